"""Sequences of arrays in which the same object may stand several times, as where the levels of an MDP share a table."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, TypeVar

__all__ = ["first_positions", "once_each"]

T = TypeVar("T")
U = TypeVar("U")


def once_each(convert: Callable[..., U], items: Iterable[T], *others: Iterable[Any]) -> list[U]:
    """Convert the items as `map` does, but each distinct object only once.

    Parameters
    ----------
    convert : callable
        Called with an item, and with what stands beside its first appearance in `others`.
    items : iterable
        Two items are the same if they are one object; equal arrays are not.
    *others : iterable
        Further arguments of `convert`, as many as there are items.

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
    kept = tuple(items)  # as long as the objects live, their ids are their own
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
