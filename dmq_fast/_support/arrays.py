"""Sequences in which an object may repeat, such as the tables of an MDP whose levels share arrays; sparse types."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:  # importing scipy.sparse takes time, and only users of sparse arrays need it
    import numpy as np
    from scipy.sparse import csr_array, sparray, spmatrix

    Sparse = csr_array[np.float64, tuple[int, int]]
    AnySparse = sparray[Any, Any] | spmatrix[Any]

__all__ = ["first_positions", "once_each"]

T = TypeVar("T")
U = TypeVar("U")


def once_each(convert: Callable[..., U], items: Iterable[T], *others: Iterable[Any]) -> list[U]:
    """Return the converted items as `map` does, but convert each distinct object only once.

    Parameters
    ----------
    convert : callable
        Function of an item, and of the elements of `others` at the position where the item first appears.
    items : iterable
        Items to convert. Two items are the same if they are one object, not if they are equal.
    *others : iterable
        Further arguments of `convert`, each of as many elements as there are items.

    Returns
    -------
    list
        One result for each item; an object that repeats has the same result each time.

    Examples
    --------
    >>> row = [1, 2]
    >>> sums = once_each(lambda item, level: (sum(item), level), [row, [3], row], range(3))
    >>> sums
    [(3, 0), (3, 1), (3, 0)]
    """
    kept = tuple(items)  # ids are unique only as long as the objects live
    known: dict[int, U] = {}
    for item, *arguments in zip(kept, *others, strict=True):
        if id(item) not in known:
            known[id(item)] = convert(item, *arguments)
    return [known[id(item)] for item in kept]


def first_positions(items: Iterable[object]) -> list[int]:
    """Return for each item the position at which its object first appears.

    Examples
    --------
    >>> row = [1, 2]
    >>> first_positions([row, [1, 2], row])
    [0, 1, 0]
    """
    kept = tuple(items)
    return once_each(lambda _, position: position, kept, range(len(kept)))
