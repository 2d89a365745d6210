"""Feature maps: from observations to features of Euclidean norm at most 1, compiled.

    phi = dmq.features.Fourier(low=[-1.2, -0.07], high=[0.6, 0.07], order=7)
    env = dmq.environments.GymnasiumBatch("MountainCar-v0", horizon=200, features=phi, reward_shift=1)

A map called with observations (n, m) gives features (n, d); it is immutable, can be pickled, and serves any number of
threads. Others can be derived from `FeatureMap` in Cython.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import sqrt
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dmq_fast._support.arguments import integer
from dmq_fast.kernels import (
    RBF,
    FeatureMap,
    Fourier,
    Identity,
    Nystrom,
    OneHot,
    RandomFourier,
    TileCoding,
    as_floats,
)

__all__ = [
    "RBF",
    "FeatureMap",
    "Fourier",
    "Identity",
    "Nystrom",
    "OneHot",
    "RandomFourier",
    "TileCoding",
    "action_blocks",
    "grid",
]

Array = NDArray[np.float64]


def grid(low: ArrayLike, high: ArrayLike, counts: int | Sequence[int] | NDArray[np.integer[Any]]) -> Array:
    """Return the points of a regular grid in a box, as centres of `RBF` or landmarks of `Nystrom`.

    Parameters
    ----------
    low, high : array_like, shape (m,)
        The box, finite, low <= high.
    counts : int or sequence of int, length m
        Points along each coordinate, the first at `low` and the last at `high`; a single one is in the middle.

    Returns
    -------
    numpy.ndarray, shape (prod(counts), m)
        In lexicographic order.

    Raises
    ------
    TypeError, ValueError
        If an argument is of another type or shape or out of range; the message names it.
    """
    lower = as_floats("low", np.atleast_1d(low), (None,))
    upper = as_floats("high", np.atleast_1d(high), lower.shape)
    if (lower > upper).any():
        raise ValueError(f"high: expected numbers >= low, got {upper.tolist()} against {lower.tolist()}")
    numbers = list(counts) if isinstance(counts, Sequence | np.ndarray) else [counts] * len(lower)
    if len(numbers) != len(lower):
        raise ValueError(f"counts: expected an integer or {len(lower)} of them, got {counts!r}")
    axes = [_points(a, b, count) for a, b, count in zip(lower, upper, numbers, strict=True)]
    return np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1).reshape(-1, len(lower))


def _points(low: float, high: float, count: int) -> Array:
    number = integer("counts", count, 1)
    return np.linspace(low, high, number) if number > 1 else np.array([low / 2 + high / 2])


def action_blocks(phi: ArrayLike) -> Array:
    """Turn features of states and actions into features of states.

    Row s of the result is (phi(s, 1), ..., phi(s, K)) / sqrt(K), so that its squared norm is the mean of
    ‖phi(s, a)‖^2 over the actions, at most 1 if each of these is. A function Q(s, a) = phi(s, a)^T w, linear in the
    features of pairs, is linear in these: theta^a is sqrt(K) w in block a (entries a d to (a + 1) d, a = 0, ..., K - 1)
    and 0 elsewhere, and features(s)^T theta^a = phi(s, a)^T w.

    Parameters
    ----------
    phi : array_like, shape (S, K, d)
        Features of S states and K >= 1 actions, finite.

    Returns
    -------
    numpy.ndarray, shape (S, K * d)

    Raises
    ------
    TypeError, ValueError
        If `phi` has another dtype or shape, or is not finite.
    """
    blocks = as_floats("phi", phi, (None, None, None))
    n_states, n_actions, d = blocks.shape
    if n_actions == 0 or d == 0:
        raise ValueError(f"phi: expected shape (S, K, d) with K, d >= 1, got {blocks.shape}")
    return blocks.reshape(n_states, n_actions * d) / sqrt(n_actions)
