"""What fuzz targets break, and how: bytes, values of JSON at any depth, and arrays, dense and sparse."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import scipy.sparse

Generator = np.random.Generator


def pick(rng: Generator, things: Sequence[Any]) -> Any:
    """One of some things, which NumPy does not convert."""
    return things[int(rng.integers(len(things)))]


def broken_bytes(rng: Generator, data: bytes) -> bytes:
    """Bytes with a few of them flipped, cut off, inserted, removed, zeroed or moved."""
    out = bytearray(data)
    for _ in range(int(rng.integers(1, 4))):
        at = int(rng.integers(len(out) + 1))
        size = int(pick(rng, (1, 1, 2, 4, 8, 64)))
        kind = rng.integers(6)
        if kind == 0 and at < len(out):
            out[at] ^= 1 << int(rng.integers(8))
        elif kind == 1:
            del out[at:]
        elif kind < 5:
            end = at if kind == 2 else at + size
            out[at:end] = (rng.bytes(size), b"", bytes(len(out[at:end])))[kind - 2]
        else:
            out[at:at] = out[at - size : at]
    return bytes(out)


def deep(depth: int) -> list[Any]:
    """Lists in lists."""
    return [deep(depth - 1)] if depth else []


JUNK: tuple[Any, ...] = (
    None, True, False, 0, 1, -1, 2, 3, 7, 2**31, 2**63, -(2**63), 2**64, 10**30, 0.0, 0.5, -1.5, 1e308, math.nan,
    math.inf, "", "a", "NaN", "Infinity", "é", "\ud800", "0x0", "\x00", "1", [], [[]], [0], [1, 2], ["a", "b"], {},
    {"a": 1}, [None], {"": {}}, deep(20),
)  # fmt: skip
"""Values of every type of JSON, the extreme ones among them."""


def near(rng: Generator, value: Any) -> Any:
    """A value of the same type, or one of another."""
    if rng.random() < 0.5:
        if isinstance(value, bool):
            return not value
        if isinstance(value, int):
            return value + int(pick(rng, (-1, 1, 2, 10, 2**40, -(2**40))))
        if isinstance(value, float):
            return pick(rng, (-value, value + 1, value * 1e300, math.nan, math.inf, 0.0, 3))
        if isinstance(value, str):
            at = int(rng.integers(len(value) + 1))
            return value[:at] + pick(rng, ("", "x", ":", "é", "\n", "0", "-")) + value[at + 1 :]
    return pick(rng, JUNK)


def broken(rng: Generator, value: Any) -> Any:
    """A copy of a value with one of its entries, at any depth, replaced, removed, added, moved or repeated."""
    if isinstance(value, np.ndarray) or scipy.sparse.issparse(value):
        return broken_array(rng, value)
    if isinstance(value, tuple):
        out = broken(rng, list(value))
        return tuple(out) if isinstance(out, list) else out
    if isinstance(value, dict | list) and value and rng.random() < 0.85:
        items = dict(value) if isinstance(value, dict) else list(value)
        key: Any = pick(rng, list(items)) if isinstance(items, dict) else int(rng.integers(len(items)))
        kind = rng.integers(12)
        if kind == 0:
            del items[key]
        elif kind == 1 and isinstance(items, dict):
            names = ("", "a", "x y", "é", f"{key}_") if isinstance(key, str) else (-1, key + 1, "a", None, 0.5)
            items[pick(rng, names)] = items.pop(key)
        elif kind == 1:
            items.insert(key, items[key])
        elif kind == 2 and isinstance(items, dict):
            items[key] = items[pick(rng, list(items))]
        elif kind == 2:
            items.append(pick(rng, JUNK))
        elif kind == 3:
            items[key] = pick(rng, ([items[key]], {"a": items[key]}))
        else:
            items[key] = broken(rng, items[key])
        return items
    return near(rng, value)


DTYPES = ("<f8", "<f4", "<i8", "<i4", "<u8", "?", "<U3", "S3", "<c16", ">f8", "<M8[s]", "O", "f2", "V8", "longdouble")
EXTREME = (0, 1, 0, 1, -1, -2, -3, 2, 5, 99, 2**62, -(2**62), math.nan, math.inf, 1e300, -1e-10, "x/0", "", "1/3")
PARTS = {
    "csr": ("data", "indices", "indptr"), "csc": ("data", "indices", "indptr"), "bsr": ("data", "indices", "indptr"),
    "coo": ("data", "row", "col"), "dia": ("data", "offsets"), "lil": ("data", "rows"), "dok": (),
}  # fmt: skip
"""The formats of SciPy, and the attributes that may be changed after an array was made."""


def broken_array(rng: Generator, table: Any) -> Any:
    """An array, dense or sparse, with something that is unusual or wrong; the parts of a sparse one may not fit."""
    kind, sparse = rng.integers(8), scipy.sparse.issparse(table)
    with contextlib.suppress(TypeError, ValueError, OverflowError, IndexError, NotImplementedError):
        if kind == 0:
            return table.astype(pick(rng, ("f4", "c16", "i8", "?") if sparse else DTYPES))
        if kind == 1 and not sparse:
            return pick(rng, (table[:-1], table[1:], table[None], table.ravel(), table.T, table[:0], table[::-1]))
        if kind == 1:
            return pick(rng, (table[:-1], table[:, :-1], table[:, :0], table.T, scipy.sparse.coo_array(np.ones(3))))
        if kind == 2 and not sparse:
            layouts = (table.tolist(), np.asfortranarray(table), np.concatenate([table, table]))
            return pick(
                rng, (*layouts, np.ma.masked_array(table), memoryview(table.copy()), scipy.sparse.coo_array(table))
            )
        if kind == 3 and rng.random() < 0.5:
            return pick(rng, JUNK)
        if not sparse:
            out = np.array(table)
            if out.size:
                out.flat[int(rng.integers(out.size))] = pick(rng, EXTREME)
            return out
    if not sparse:
        return table
    name = pick(rng, list(PARTS))
    out = table.asformat(name)
    if kind == 2 or not PARTS[name]:
        return out
    attribute = pick(rng, PARTS[name])
    part = getattr(out, attribute)
    if name == "lil" and len(part):
        part[int(rng.integers(len(part)))] = pick(rng, ([], [-1], [0, 0], [2**31], [10**6], ["a"], [0.5], [math.nan]))
    elif rng.random() < 0.6 and part.size:
        extreme = (math.nan, math.inf, 0.0, -1.0, 2.0) if attribute == "data" else (-1, 0, 1, 2, 99, 2**30, -(2**31))
        part.flat[int(rng.integers(part.size))] = pick(rng, extreme)
    elif attribute not in ("row", "col"):
        setattr(out, attribute, pick(rng, (part[:-1], part[:0], np.concatenate([part, part]), part.astype(np.float32))))
    return out
