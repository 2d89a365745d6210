"""Which levels of an environment are the same, so that what was seen at one of them holds at all.

An environment declares it by an attribute `homogeneous`: True, False, or a label for each level. Levels of one label
have the same transitions, rewards and features; values differ, as fewer steps are left.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dmq_fast.kernels import is_sparse

__all__ = [
    "AUTO",
    "Groups",
    "Homogeneous",
    "as_labels",
    "declared_by",
    "equal_levels",
    "groups_of",
    "is_auto",
    "numbered",
]

AUTO = "auto"
"""What the environment declares."""

Homogeneous = bool | str | Sequence[int] | NDArray[np.integer[Any]]
"""Type of the argument `homogeneous`: "auto", True, False, or H labels."""

Groups = tuple[int, ...]
"""A label for each level: 0, 1, ... in order of appearance."""


def groups_of(sampler: Any, homogeneous: Homogeneous = AUTO) -> Groups:
    """Return the labels of the levels of a sampler.

    Parameters
    ----------
    sampler : Sampler
        Its class, or the environment behind it, may have an attribute `homogeneous`.
    homogeneous : bool, "auto" or sequence of int
        "auto": what is declared, else False.

    Raises
    ------
    TypeError, ValueError
        If it is something else; the message names it.

    Examples
    --------
    >>> import dmq_fast as dmq
    >>> groups_of(dmq.samplers.as_sampler(dmq.environments.river_swim(horizon=4)))
    (0, 0, 0, 0)
    >>> groups_of(dmq.samplers.as_sampler(dmq.environments.deep_sea(4)))
    (0, 1, 2, 3)
    """
    if is_auto(homogeneous):
        source = sampler.unwrapped()
        homogeneous = declared_by(source, source.env)
    return as_labels(homogeneous, sampler.horizon)


def is_auto(homogeneous: object) -> bool:
    """Return whether what the environment declares is asked for."""
    return isinstance(homogeneous, str) and homogeneous == AUTO


def declared_by(*sources: object) -> Any:
    """Return the first `homogeneous` that is not None of these objects, else False."""
    declared = [getattr(source, "homogeneous", None) for source in sources]
    return next((one for one in declared if one is not None), False)


def as_labels(homogeneous: Any, horizon: int) -> Groups:
    """Return the labels that True, False, or a sequence of H labels stand for."""
    if isinstance(homogeneous, bool | np.bool_):
        return (0,) * horizon if homogeneous else tuple(range(horizon))
    labels = None if isinstance(homogeneous, str | bytes) else np.asarray(homogeneous)
    if labels is None or labels.shape != (horizon,) or labels.dtype.kind not in "iu":
        raise ValueError(
            f"homogeneous: expected 'auto', True, False, or {horizon} integers, one label a level, got {homogeneous!r}"
        )
    return numbered(labels.tolist())


def numbered(labels: Sequence[int]) -> Groups:
    """Return labels as 0, 1, ... in order of appearance."""
    numbers: dict[int, int] = {}
    return tuple(numbers.setdefault(label, len(numbers)) for label in labels)


def equal_levels(*parts: Sequence[Any] | NDArray[Any]) -> bool | Groups:
    """Return whether all levels have equal parts, or labels if the last level alone has others.

    Parameters
    ----------
    *parts : sequence of array, or array with a row a level
        One array a level; a sequence shorter by one says nothing of the last level.

    Examples
    --------
    >>> one, other = np.zeros(2), np.ones(2)
    >>> equal_levels([one, one]), equal_levels([one, one, other]), equal_levels([one, other, other])
    (True, (0, 0, 1), False)
    """
    horizon = max(map(len, parts))
    if not all(is_equal(part[0], array) for part in parts for array in part[: horizon - 1]):
        return False
    if all(is_equal(part[0], part[-1]) for part in parts if len(part)):
        return True
    return (*(0,) * (horizon - 1), 1) if horizon > 2 else False


def is_equal(one: Any, other: Any) -> bool:
    """Return whether two arrays, dense or sparse, have the same shape and entries."""
    if one is other:
        return True
    if is_sparse(one) or is_sparse(other):
        differs: Any = one != other if is_sparse(one) and is_sparse(other) and one.shape == other.shape else None
        return differs is not None and differs.nnz == 0
    return bool(np.array_equal(one, other))
