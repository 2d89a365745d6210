"""Compiled feature maps from observations to features of Euclidean norm at most 1.

    phi = dmq.features.Fourier(low=[-1.2, -0.07], high=[0.6, 0.07], order=7)
    env = dmq.environments.GymnasiumBatch("MountainCar-v0", horizon=200, features=phi, value_range=(-200, 0))

A map called with observations (n, m) returns features (n, d). It is immutable, can be pickled, and serves any number of
threads. Other maps can be derived from `FeatureMap` in Cython.

Examples
--------
>>> phi = Fourier(low=[0.0], high=[1.0], order=2)
>>> phi([[0.0], [0.5]]).round(3)
array([[ 0.577,  0.577,  0.577],
       [ 0.577,  0.   , -0.577]])
>>> OneHot(3)([[2], [0]])
array([[0., 0., 1.],
       [1., 0., 0.]])
"""

from __future__ import annotations

from collections.abc import Sequence
from math import sqrt
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dmq_fast._support.checks import integer
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
        Corners of the box, finite, low <= high.
    counts : int or sequence of int, length m
        Number of points along each coordinate: the first is at `low`, the last at `high`, a single one in the middle.

    Returns
    -------
    numpy.ndarray, shape (prod(counts), m)
        The points, in lexicographic order.

    Raises
    ------
    TypeError, ValueError
        If an argument is of another type or shape or out of range; the message names it.

    Examples
    --------
    >>> grid([0.0, -1.0], [1.0, 1.0], [2, 3]).tolist()
    [[0.0, -1.0], [0.0, 0.0], [0.0, 1.0], [1.0, -1.0], [1.0, 0.0], [1.0, 1.0]]
    """
    lower = as_floats("low", np.atleast_1d(low), (None,))
    upper = as_floats("high", np.atleast_1d(high), lower.shape)
    if (lower > upper).any():
        raise ValueError(f"high: expected numbers >= low, got {upper.tolist()} against {lower.tolist()}")
    sizes = list(counts) if isinstance(counts, Sequence | np.ndarray) else [counts] * len(lower)
    if len(sizes) != len(lower):
        raise ValueError(f"counts: expected an integer or {len(lower)} integers, got {counts!r}")
    axes = [_points(a, b, size) for a, b, size in zip(lower, upper, sizes, strict=True)]
    return np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1).reshape(-1, len(lower))


def _points(low: float, high: float, size: int) -> Array:
    """Return the coordinates of the points along one axis."""
    size = integer("counts", size, 1)
    return np.linspace(low, high, size) if size > 1 else np.array([low / 2 + high / 2])


def action_blocks(phi: ArrayLike) -> Array:
    """Return features of states made from features of states and actions.

    Row s of the result is (phi(s, 1), ..., phi(s, K)) / sqrt(K), so that its squared norm is the mean of
    ||phi(s, a)||^2 over the actions, at most 1 if each of these is. A function Q(s, a) = phi(s, a)^T w, linear in the
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

    Examples
    --------
    >>> action_blocks([[[1.0, 0.0], [0.0, 1.0]]]).round(3)  # one state, two actions
    array([[0.707, 0.   , 0.   , 0.707]])
    """
    blocks = as_floats("phi", phi, (None, None, None))
    n_states, n_actions, d = blocks.shape
    if n_actions == 0 or d == 0:
        raise ValueError(f"phi: expected shape (S, K, d) with K, d >= 1, got {blocks.shape}")
    return blocks.reshape(n_states, n_actions * d) / sqrt(n_actions)
