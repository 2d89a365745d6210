"""A look at observations before features are chosen: the grid lines that suit what uniform play sees."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dmq_fast.features import Interpolation
from dmq_fast.kernels import as_floats, as_numbers
from dmq_fast.spaces import Finite

__all__ = [
    "MOST_COORDINATES",
    "MOST_NODES",
    "UNBOUNDED",
    "Grids",
    "Look",
    "default_hold",
    "interpolation",
    "look_at",
    "shows_real_numbers",
]

Floats = NDArray[np.float64]

UNBOUNDED = 1e30
"""Some spaces have the largest number of their type as bound where there is none."""

EPISODES, MOST_STEPS = 10, 5_000
"""Episodes of uniform play, and their steps altogether, at most."""

MOST_FEATURES, MOST_NODES, FEWEST_NODES = 900, 12, 4

MOST_COORDINATES = 16

# The part of a range around what uniform play saw, in half widths of that, which has this share of the nodes; and where
# a coordinate without bounds ends.
WIDER, SHARE, FARTHEST = 1.5, 0.6, 3.0

# Different values up to which a coordinate has a node at each.
FEW_VALUES = 4

# How far cos^2 + sin^2 may be from 1 in single precision.
ROUND = 1e-5


class Grids(NamedTuple):
    """Features that an environment is asked to choose: `interpolation` of this order on what uniform play sees."""

    order: int | None = None


class Look(NamedTuple):
    """What uniform play saw: bounds of each of m numbers and observations (n, m)."""

    low: Floats
    high: Floats
    seen: Floats


def look_at(member: Any, actions: Finite, limit: int, seeded: bool, low: ArrayLike, high: ArrayLike) -> Look:
    """Return what uniform play sees in ten episodes.

    Parameters
    ----------
    member : Member
        What plays one episode at a time, with observations that are arrays of real numbers. It is stepped.
    actions : Finite
        The space of its actions.
    limit : int
        Steps of an episode, at most.
    seeded : bool
        Whether `reset` takes seeds; they are 0, 1, ...
    low, high : array_like
        Bounds of the numbers, infinite where there are none; of the shape of an observation, or one for all.

    Raises
    ------
    TypeError
        If the member is a vector of environments.
    """
    if member.width:
        raise TypeError("features: expected those of your own for a vector of environments with observations in a box")
    rng = np.random.default_rng(0)
    seen: list[Any] = []
    for episode in range(EPISODES):
        first = as_numbers("observation", member.reset(episode if seeded else None))
        seen.append(first.astype(np.float64))
        for _ in range(min(limit, MOST_STEPS - len(seen))):
            observation, _, ended = member.step(actions.element(int(rng.integers(actions.n))))
            seen.append(as_floats("observation", observation, first.shape).copy())
            if ended:
                break
    shape = seen[0].shape
    least, most = (np.broadcast_to(np.asarray(bound, dtype=np.float64), shape).ravel() for bound in (low, high))
    return Look(least, most, np.stack(seen).reshape(len(seen), -1))


def shows_real_numbers(look: Look) -> bool:
    """Return whether a number of the observations is real: not always an integer, and mostly another one each time."""
    return any(
        len(np.unique(column)) > len(column) / 2 and bool((column != np.round(column)).any()) for column in look.seen.T
    )


def default_hold(limit: int) -> int:
    """Return for how many steps an action is held by default: 2, more above 500 steps, so that few levels are left."""
    return 1 if limit < 100 else max(2, -(-limit // 250))


def interpolation(look: Look, order: int | None = None) -> Interpolation:
    """Return interpolation on grids that are fine where uniform play was and reach the bounds.

    Two neighbouring coordinates whose squares add up to 1 are an angle. A coordinate with a few different values has a
    node at each. Every other one has `order` nodes, three fifths of them in the middle, half as wide again as what was
    seen.

    Parameters
    ----------
    look : Look
    order : int, optional
        Nodes of a coordinate, at least 2. Default: as many as make 900 features, but at least 4 and at most 12.

    Raises
    ------
    ValueError
        If observations are more than 16 numbers.
    """
    if look.seen.shape[1] > MOST_COORDINATES:
        raise ValueError(
            f"features: expected observations of up to {MOST_COORDINATES} numbers, got {look.seen.shape[1]}; "
            "give features, a function from n observations to (n, d)"
        )
    angles = angles_of(look.seen)
    m = look.seen.shape[1] - len(angles)
    if order is None:
        grids = max(1, m * (m - 1) // 2)
        order = int(np.clip(int((MOST_FEATURES / grids) ** (1 / min(m, 2))), FEWEST_NODES, MOST_NODES))
    nodes: list[Sequence[float] | int] = []
    i = 0
    while i < look.seen.shape[1]:
        if i in angles:
            nodes.append(order)
        else:
            nodes.append(nodes_of(look.seen[:, i], float(look.low[i]), float(look.high[i]), order).tolist())
        i += 2 if i in angles else 1
    return Interpolation(nodes)


def angles_of(seen: Floats) -> set[int]:
    """Return the first of each two neighbouring coordinates that are cosine and sine of one angle."""
    found: set[int] = set()
    for i in range(seen.shape[1] - 1):
        round_ = np.abs(seen[:, i] ** 2 + seen[:, i + 1] ** 2 - 1.0).max() < ROUND
        if i - 1 not in found and round_ and np.ptp(seen[:, i]) > 0.0 and np.ptp(seen[:, i + 1]) > 0.0:
            found.add(i)
    return found


def nodes_of(seen: Floats, low: float, high: float, order: int) -> Floats:
    """Return the nodes of one coordinate."""
    values = np.unique(seen)
    if 2 <= len(values) <= FEW_VALUES < len(seen):
        return values
    middle, half = float(values[0] + values[-1]) / 2, max(float(values[-1] - values[0]) / 2, 1e-6)
    if low < -UNBOUNDED or not np.isfinite(low):
        low = middle - FARTHEST * half
    if high > UNBOUNDED or not np.isfinite(high):
        high = middle + FARTHEST * half
    left, right = max(low, middle - WIDER * half), min(high, middle + WIDER * half)
    outside = (left - low) + (high - right)
    share = max(SHARE, (right - left) / (high - low))
    before = (1.0 - share) * (left - low) / outside if outside > 0.0 else 0.0
    places, ends = [0.0, before, before + share, 1.0], [low, left, right, high]
    kept = [i for i in range(4) if i in (0, 3) or low < ends[i] < high]
    nodes: Floats = np.interp(np.linspace(0.0, 1.0, max(order, 2)), [places[i] for i in kept], [ends[i] for i in kept])
    return nodes
