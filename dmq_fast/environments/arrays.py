"""Arrays as environments keep them: float64, C-contiguous or CSR, read-only, with checks that name what is wrong."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dmq_fast._support.arrays import once_each
from dmq_fast.kernels import as_csr, as_numbers, is_sparse

if TYPE_CHECKING:
    from dmq_fast._support.arrays import Sparse

__all__ = ["as_dense", "as_float64", "as_table", "digest", "frozen", "frozen_csr", "refuse_where"]

Array = NDArray[np.float64]
Scalar = TypeVar("Scalar", bound=np.generic)

MOST_DENSE = 2**26
"""Number of entries up to which a sparse array is made dense where that is needed; they take 512 MB."""


def frozen(array: NDArray[Scalar]) -> NDArray[Scalar]:
    """Make an array read-only, in place, and return it."""
    array.setflags(write=False)
    return array


def frozen_csr(array: Sparse) -> Sparse:
    """Make the arrays of a sparse array read-only, in place, and return it."""
    for part in (array.data, array.indices, array.indptr):
        part.setflags(write=False)
    return array


def digest(arrays: Sequence[NDArray[Any] | Sparse]) -> str:
    """Return the SHA-256 of arrays, their shapes and forms included; those that repeat are read once."""
    whole = hashlib.sha256()
    for array, own in zip(arrays, once_each(_digest, arrays), strict=True):
        whole.update(repr(array.shape).encode() + own)
    return whole.hexdigest()


def _digest(array: NDArray[Any] | Sparse) -> bytes:
    if not is_sparse(array):
        return hashlib.sha256(np.ascontiguousarray(array).data).digest()
    whole = hashlib.sha256(b"csr")
    for part in (array.data, array.indices, array.indptr):
        whole.update(np.ascontiguousarray(part).data)
    return whole.digest()


def as_dense(label: str, array: Array | Sparse, purpose: str) -> Array:
    """Return a dense array as it is, and a sparse one in dense form, read-only.

    Raises
    ------
    ValueError
        If that has more than 2^26 entries. The message names the argument `label`, and what needs it, `purpose`.
    """
    if not is_sparse(array):
        return array
    if array.shape[0] * array.shape[1] > MOST_DENSE:
        raise ValueError(
            f"{label}: {purpose} needs them dense, and sparse ones of at most {MOST_DENSE} entries, zeros included, "
            f"are made so; got shape {array.shape}"
        )
    return frozen(array.toarray())


def as_table(label: str, value: Any, axes: Sequence[str]) -> Array | Sparse:
    """Copy dense numbers as `as_float64` does, and a SciPy sparse matrix or array into a read-only `csr_array`.

    Raises
    ------
    TypeError, ValueError
        As `as_float64`, and if a sparse array is malformed or has other than two axes.
    """
    if not is_sparse(value):
        return as_float64(label, value, axes)
    array = as_csr(label, value, (None, None))
    if 0 in array.shape:
        raise ValueError(f"{label}: expected at least one element along each axis, got shape {array.shape}")
    return frozen_csr(array)


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
