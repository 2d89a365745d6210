"""Finite spaces, whose elements have numbers 0, ..., n - 1: one integer, an array of integers, and tuples and dicts.

`finite` reads a space of Gymnasium's (Discrete, MultiDiscrete, MultiBinary, and Tuple and Dict of them), or an object
with the same attributes. Numbers are in lexicographic order, exact, and can be turned back into elements.

Examples
--------
>>> space = Product((Integer(32), Integer(11, start=1), Integer(2)))  # as in blackjack
>>> space.n, space.number((20, 5, 1)), space.element(449)
(704, 449, (20, 5, 1))
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["Arrays", "Finite", "Integer", "Product", "described_space", "finite"]


@dataclass(frozen=True)
class Integer:
    """The integers start, ..., start + n - 1."""

    n: int
    start: int = 0

    def number(self, element: Any) -> int:
        """Return the number of an element; ValueError if it is none."""
        number = as_integer(element) - self.start
        if not 0 <= number < self.n:
            raise ValueError(f"expected an integer in [{self.start}, {self.start + self.n}), got {element!r:.80}")
        return number

    def element(self, number: int) -> int:
        """Return the element with a number."""
        return self.start + int(number)

    def is_one(self, given: Any) -> bool:
        """Return whether something has the form of one element, not of a block of them."""
        return np.ndim(given) == 0

    def describe(self) -> dict[str, Any]:
        """Return the space as data that JSON can hold."""
        return {"integer": [self.n, self.start]}


@dataclass(frozen=True)
class Arrays:
    """Arrays of integers of one shape: entry i is one of starts[i], ..., starts[i] + sizes[i] - 1, in C order."""

    shape: tuple[int, ...]
    sizes: tuple[int, ...]
    starts: tuple[int, ...]

    @property
    def n(self) -> int:
        """Number of elements."""
        return prod(self.sizes)

    def number(self, element: Any) -> int:
        """Return the number of an element; ValueError if it is none."""
        given = np.asarray(element)
        digits = given.ravel().tolist() if given.shape == self.shape and given.dtype.kind in "biuf" else []
        number = 0
        for digit, size, start in zip(digits, self.sizes, self.starts, strict=False):
            place = digit - start
            if not (0 <= place < size and place == int(place)):
                digits = []
                break
            number = number * size + int(place)
        if len(digits) != len(self.sizes):
            raise ValueError(f"expected an array {self.shape} of integers in their ranges, got {element!r:.80}")
        return number

    def element(self, number: int) -> NDArray[np.int64]:
        """Return the element with a number."""
        digits = []
        for size in reversed(self.sizes):
            number, digit = divmod(int(number), size)
            digits.append(digit)
        return (np.array(digits[::-1], dtype=np.int64) + np.array(self.starts, dtype=np.int64)).reshape(self.shape)

    def is_one(self, given: Any) -> bool:
        """Return whether something has the form of one element, not of a block of them."""
        return bool(np.shape(given) == self.shape)

    def describe(self) -> dict[str, Any]:
        """Return the space as data that JSON can hold."""
        return {"arrays": [list(self.shape), list(self.sizes), list(self.starts)]}


@dataclass(frozen=True)
class Product:
    """Tuples with an element of each part, or dicts with these keys."""

    parts: tuple[Finite, ...]
    keys: tuple[Any, ...] | None = None

    @property
    def n(self) -> int:
        """Number of elements."""
        return prod(part.n for part in self.parts)

    def number(self, element: Any) -> int:
        """Return the number of an element; ValueError if it is none."""
        if self.keys is None:
            fits = isinstance(element, tuple | list) and len(element) == len(self.parts)
            expected = f"a tuple of {len(self.parts)}"
        else:
            fits = isinstance(element, Mapping) and set(element) == set(self.keys)
            expected = f"a dict with the keys {', '.join(map(str, self.keys))}"
        if not fits:
            raise ValueError(f"expected {expected}, got {element!r:.80}")
        values = element if self.keys is None else [element[key] for key in self.keys]
        number = 0
        for part, value in zip(self.parts, values, strict=True):
            number = number * part.n + part.number(value)
        return number

    def element(self, number: int) -> Any:
        """Return the element with a number."""
        values = []
        for part in reversed(self.parts):
            number, place = divmod(int(number), part.n)
            values.append(part.element(place))
        values.reverse()
        return tuple(values) if self.keys is None else dict(zip(self.keys, values, strict=True))

    def is_one(self, given: Any) -> bool:
        """Return whether something has the form of one element, not of a block (a list) of them."""
        return isinstance(given, tuple if self.keys is None else Mapping)

    def describe(self) -> dict[str, Any]:
        """Return the space as data that JSON can hold."""
        return {
            "product": [part.describe() for part in self.parts],
            "keys": None if self.keys is None else [*self.keys],
        }


Finite = Integer | Arrays | Product
"""A finite space."""


def finite(space: Any) -> Finite | None:
    """Return a space of Gymnasium's as a finite one; None if it is not finite, or of a kind that is not known.

    Examples
    --------
    >>> import gymnasium.spaces as spaces
    >>> finite(spaces.Dict(at=spaces.MultiDiscrete([3, 2]), key=spaces.Discrete(2))).element(5)
    {'at': array([1, 0]), 'key': 1}
    >>> finite(spaces.Box(0, 1))
    """
    if isinstance(space, Mapping):
        parts = [finite(space[key]) for key in space]
        return None if None in parts else Product(tuple(part for part in parts if part is not None), tuple(space))
    if isinstance(space, Sequence) and hasattr(space, "spaces"):
        parts = [finite(part) for part in space]
        return None if None in parts else Product(tuple(part for part in parts if part is not None))
    if hasattr(space, "nvec"):
        sizes = np.asarray(space.nvec)
        starts = np.broadcast_to(np.asarray(getattr(space, "start", 0)), sizes.shape)
        return Arrays(sizes.shape, tuple(sizes.ravel().tolist()), tuple(starts.ravel().tolist()))
    if hasattr(space, "n") and getattr(space, "shape", ()) in ((), None):
        return Integer(int(space.n), int(getattr(space, "start", 0)))
    if hasattr(space, "n"):  # MultiBinary
        size = prod(space.shape)
        return Arrays(tuple(space.shape), (2,) * size, (0,) * size)
    return None


def described_space(data: Mapping[str, Any]) -> Finite:
    """Return the space that `describe` wrote down; ValueError, TypeError or KeyError if it is none."""
    if "integer" in data:
        n, start = map(int, data["integer"])
        return Integer(n, start)
    if "arrays" in data:
        shape, sizes, starts = (tuple(map(int, numbers)) for numbers in data["arrays"])
        if not prod(shape) == len(sizes) == len(starts):
            raise ValueError(f"space: expected as many sizes as the shape {shape} has entries, got {len(sizes)}")
        return Arrays(shape, sizes, starts)
    parts, keys = tuple(map(described_space, data["product"])), data["keys"]
    if keys is not None and len(keys) != len(parts):
        raise ValueError(f"space: expected {len(parts)} keys, got {len(keys)}")
    return Product(parts, None if keys is None else tuple(keys))


def as_integer(value: Any) -> int:
    """Return a single integer, also one that comes as a float or an array of no dimension; ValueError for all else."""
    array = np.asarray(value)
    if array.ndim or array.dtype.kind not in "biuf" or array != np.floor(array):
        raise ValueError(f"expected an integer, got {value!r:.80}")
    return int(array)
