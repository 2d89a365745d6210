"""Arrays as environments keep them: float64, C-contiguous, read-only, with checks that name the wrong element."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dmq_fast._support.arrays import once_each
from dmq_fast.kernels import as_numbers

__all__ = ["as_float64", "digest", "frozen", "refuse_where"]

Array = NDArray[np.float64]
Scalar = TypeVar("Scalar", bound=np.generic)


def frozen(array: NDArray[Scalar]) -> NDArray[Scalar]:
    """Make an array read-only, in place, and return it."""
    array.setflags(write=False)
    return array


def digest(arrays: Sequence[NDArray[Any]]) -> str:
    """Return the SHA-256 of arrays, their shapes included; those that repeat are read once."""
    whole = hashlib.sha256()
    digests = once_each(lambda array: hashlib.sha256(np.ascontiguousarray(array).data).digest(), arrays)
    for array, own in zip(arrays, digests, strict=True):
        whole.update(repr(array.shape).encode() + own)
    return whole.hexdigest()


def as_float64(label: str, value: ArrayLike, axes: Sequence[str]) -> Array:
    """Copy a nonempty array of finite real numbers into a float64, C-contiguous, read-only one.

    Parameters
    ----------
    label : str
        How messages name the argument.
    value : array_like
        Booleans, integers or floats.
    axes : sequence of str
        How messages name the indices of an element.

    Returns
    -------
    ndarray

    Raises
    ------
    TypeError
        If the numbers are complex or not numbers at all.
    ValueError
        If the array is ragged, empty or holds a NaN or an infinity.
    """
    given = as_numbers(label, value)
    if given.size == 0:
        raise ValueError(f"{label}: expected at least one element along each axis, got shape {given.shape}")
    array = np.array(given, dtype=np.float64, order="C")
    refuse_where(~np.isfinite(array), label, array, axes, "a finite number")
    return frozen(array)


def refuse_where(wrong: NDArray[np.bool_], label: str, array: Array, axes: Sequence[str], expected: str) -> None:
    """Raise on the first wrong element, naming its indices."""
    if wrong.any():
        index = np.unravel_index(int(wrong.argmax()), wrong.shape)
        where = [label, *(f"{axis} {i}" for axis, i in zip(axes, index, strict=False))]
        raise ValueError(f"{', '.join(where)}: expected {expected}, got {array[index]:.12g}")
