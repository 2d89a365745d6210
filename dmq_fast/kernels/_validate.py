"""The border: what comes in is converted once or refused by name."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["as_floats", "as_numbers", "as_positive"]


def as_numbers(name: str, value: Any) -> NDArray[Any]:
    """Return `value` as an array of real numbers that float64 can hold, of whatever dtype they came in.

    Raises
    ------
    TypeError
        If the entries are not such numbers (complex, object, string, long double).
    ValueError
        If nested sequences differ in length.
    """
    try:
        array = np.asarray(value)
    except ValueError as error:
        raise ValueError(f"{name}: expected an array, got nested sequences of unequal lengths") from error
    if array.dtype.kind not in "biuf":
        raise TypeError(f"{name}: expected real numbers, got dtype {array.dtype}")
    if array.dtype.itemsize > 8:
        raise TypeError(f"{name}: expected numbers that fit float64, got dtype {array.dtype}")
    return array


def as_floats(name: str, value: Any, shape: tuple[int | None, ...], *, finite: bool = True) -> NDArray[np.float64]:
    """Return `value` as a float64 C-contiguous array of the given shape, not copied where it is one already.

    Parameters
    ----------
    name : str
        Argument name for messages.
    value : array_like
        Bool, integer and floating arrays of at most 64 bits and nested sequences of such numbers.
    shape : tuple of int or None
        Expected shape; None leaves an axis free.
    finite : bool, default True
        Whether NaN and infinities are refused.

    Raises
    ------
    TypeError, ValueError
        As `as_numbers` does, and if the shape differs or an entry is not finite.
    """
    array = as_numbers(name, value)
    fits = array.ndim == len(shape) and all(
        want is None or want == have for want, have in zip(shape, array.shape, strict=True)
    )
    if not fits:
        wanted = "(" + ", ".join("any" if want is None else str(want) for want in shape) + ")"
        raise ValueError(f"{name}: expected shape {wanted}, got {array.shape}")
    out = np.ascontiguousarray(array, dtype=np.float64)
    if finite and not np.isfinite(out).all():
        where = tuple(int(i) for i in np.argwhere(~np.isfinite(out))[0])
        raise ValueError(f"{name}: expected finite numbers, got {out[where]} at index {where}")
    return out


def as_positive(name: str, value: Any, *, zero: bool = False) -> float:
    """Return `value` as a finite float > 0 (or >= 0 with `zero`); ValueError or TypeError names it."""
    number = as_floats(name, value, ()).item()
    if number < 0.0 or (number == 0.0 and not zero):
        raise ValueError(f"{name}: expected a {'non-negative' if zero else 'positive'} number, got {number}")
    return float(number)
