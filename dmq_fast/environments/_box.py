"""Feature maps of observations in a box, by name, for the command line."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from dmq_fast._support.checks import integer, one_of
from dmq_fast.environments._look import MOST_NODES, UNBOUNDED, Look, interpolation
from dmq_fast.environments.wrapped import INTERPOLATION
from dmq_fast.features import RBF, FeatureMap, Fourier, TileCoding, grid

__all__ = ["CART_POLE", "MOUNTAIN_CAR", "Box", "box_features", "box_of"]


class Box(NamedTuple):
    """The part of a space that a feature map resolves; observations outside count as on its border."""

    low: tuple[float, ...]
    high: tuple[float, ...]


MOUNTAIN_CAR = Box((-1.2, -0.07), (0.6, 0.07))

# What uniform actions show of the same coordinates in ten episodes.
SEEN = {
    MOUNTAIN_CAR: Box((-0.69, -0.015), (-0.35, 0.015)),
}

# Episodes end at 2.4 and 12 degrees. Velocities have no bounds; these are what uniform actions rarely exceed.
CART_POLE = Box((-2.4, -3.0, -0.2095, -3.5), (2.4, 3.0, 0.2095, 3.5))

SEEN[CART_POLE] = Box((-0.3, -1.6, -0.24, -2.5), (0.3, 1.6, 0.24, 2.5))

# Environments whose observations have tighter bounds than their space.
KNOWN = {"CartPole-v0": CART_POLE, "CartPole-v1": CART_POLE, "MountainCar-v0": MOUNTAIN_CAR}

# Default order, and the number of features above which it is lowered. Tiles are sparse: there may be more of them.
ORDERS = {"fourier": (3, 100), "tiles": (8, 400), "rbf": (5, 100)}

# Largest accepted number of features.
LARGEST = 4096

TILINGS = 4


def box_features(box: Box, kind: str, order: int | None = None) -> tuple[FeatureMap, int]:
    """Make a feature map of a box.

    Parameters
    ----------
    box : Box
    kind : {"interpolation", "fourier", "tiles", "rbf"}
        Interpolation only where `SEEN` has what uniform actions show of the box.
    order : int, optional
        Order of the Fourier basis, or the tiles (of each of 4 tilings) or centres along each axis. Default: 3, 8 or 5,
        less where that makes more than 100 features (400 tiles).

    Returns
    -------
    features : FeatureMap
    order : int

    Raises
    ------
    TypeError, ValueError
        If `kind` is another, or `order` is no positive integer or makes more than 4,096 features.
    """
    one_of("features", kind, (INTERPOLATION, *ORDERS) if box in SEEN else ORDERS)
    m = len(box.low)
    if kind == INTERPOLATION:
        look = Look(np.array(box.low), np.array(box.high), np.stack([SEEN[box].low, SEEN[box].high]))
        order = MOST_NODES if order is None else integer("order", order, 2)
        return interpolation(look, order), order
    if order is None:
        most, moderate = ORDERS[kind]
        order = next((lower for lower in range(most, 1, -1) if size(kind, m, lower) <= moderate), 1)
    order = integer("order", order, 1)
    if size(kind, m, order) > LARGEST:
        # The number itself is left out: for an image it has thousands of digits.
        choose = "choose a smaller order, or" if order > 1 else f"{m} numbers need"
        raise ValueError(
            f"order: expected at most {LARGEST:,} features, got more by order {order} with {m} numbers; "
            f"{choose} features of your own, as in GymnasiumBatch(..., features=...)"
        )
    if kind == "fourier":
        return Fourier(box.low, box.high, order), order
    if kind == "tiles":
        return TileCoding(box.low, box.high, order, TILINGS), order
    # Bumps as wide as their centres are apart.
    width = (np.array(box.high) - box.low) / max(order - 1, 1)
    return RBF(grid(box.low, box.high, order), width), order


def size(kind: str, m: int, order: int) -> int:
    """Count the features that `order` makes of m numbers."""
    # A displaced tiling needs one tile more.
    side = order if kind == "rbf" else order + 1
    return int(side**m) * (TILINGS if kind == "tiles" else 1)


def box_of(space: Any, identifier: str) -> Box:
    """Return the box of a Gymnasium ``Box`` space.

    Parameters
    ----------
    space : gymnasium.spaces.Box
    identifier : str
        Id of the environment: the observations of some are known to stay in a part of their space.

    Returns
    -------
    Box

    Raises
    ------
    ValueError
        If observations are no vectors, or a number has no bounds.
    """
    if identifier in KNOWN:
        return KNOWN[identifier]
    if len(space.shape) != 1:
        raise ValueError(
            f"features: expected observations that are vectors, got shape {space.shape}; such need features of your own"
        )
    low, high = (np.asarray(bound, dtype=np.float64) for bound in (space.low, space.high))
    free = np.flatnonzero(~((np.abs(low) < UNBOUNDED) & (np.abs(high) < UNBOUNDED)))
    if free.size:
        raise ValueError(
            f"features: expected observations with bounds, got none for {', '.join(map(str, free))} of "
            f"{identifier}; it needs features of your own"
        )
    return Box(tuple(low.tolist()), tuple(high.tolist()))
