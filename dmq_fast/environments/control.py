"""Mountain car and cart-pole, compiled."""

from __future__ import annotations

import functools
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from dmq_fast._support.checks import integer
from dmq_fast.environments._box import CART_POLE, MOUNTAIN_CAR, Box, box_features
from dmq_fast.environments.compiled import CompiledEnv
from dmq_fast.environments.registry import register
from dmq_fast.features import FeatureMap
from dmq_fast.kernels import CartPole, MountainCar

__all__ = ["cart_pole", "mountain_car"]

CAR_LIMIT, CART_LIMIT = 200, 500
"""Steps of an episode, at most, as in Gymnasium."""


@register("mountain-car")
def mountain_car(
    horizon: int = 200, features: str | FeatureMap = "fourier", order: int | None = None, hold: int = 1
) -> CompiledEnv:
    """Build Gymnasium's MountainCar-v0: an underpowered car has to swing itself up a hill.

    Observations are position and velocity, as single precision holds them; actions 0, 1, 2 push left, not at all and
    right. Every step costs 1 until the car has arrived, or until Gymnasium's limit of 200 steps, so from level h on at
    most min(H, 200) - h is lost.

    Parameters
    ----------
    horizon : int, optional
        Number of levels H >= 1.
    features : str or FeatureMap, optional
        Kind of features: interpolation, fourier, tiles or rbf (from Python also a feature map of 2 inputs).
    order : int, optional
        Order of the Fourier basis, or the tiles or centres along each axis. Default: 3, 8 or 5;
        nodes of the interpolation: 12.
    hold : int, default 1
        Steps of a level, in which its action is held.

    Returns
    -------
    CompiledEnv

    Raises
    ------
    TypeError, ValueError
        If an argument is of another type or out of range.

    Examples
    --------
    >>> import dmq_fast as dmq
    >>> features = dmq.features.TileCoding([-1.2, -0.07], [0.6, 0.07], tiles=4, tilings=2)
    >>> env = mountain_car(horizon=200, features=features)
    >>> env.horizon, env.n_actions, env.dimension
    (200, 3, 50)
    """
    horizon = integer("horizon", horizon, 1)
    lost = 0.0 - steps_left(horizon, CAR_LIMIT, hold)  # without zeros of another sign
    value_range = np.stack([lost, np.zeros(horizon)], axis=1)
    return _control(
        "mountain-car", mountain_car, MountainCar, MOUNTAIN_CAR, horizon, features, order, hold, value_range, CAR_LIMIT
    )


@register("cart-pole")
def cart_pole(
    horizon: int = 50, features: str | FeatureMap = "fourier", order: int | None = None, hold: int = 1
) -> CompiledEnv:
    """Build Gymnasium's CartPole-v1: a pole on a cart has to be kept upright.

    Observations are position and velocity of the cart, angle and angular velocity of the pole, as single precision
    holds them; actions 0 and 1 push left and right. Every step earns 1 until the pole falls or the cart leaves the
    track, or until Gymnasium's limit of 500 steps, so from level h on at most min(H, 500) - h is earned.

    Parameters
    ----------
    horizon : int, optional
        Number of levels H >= 1.
    features : str or FeatureMap, optional
        Kind of features: interpolation, fourier, tiles or rbf (from Python also a feature map of 4 inputs). These
        resolve velocities up to 3 and angular velocities up to 3.5.
    order : int, optional
        Order of the Fourier basis, or the tiles or centres along each axis. Default: 2, 2 or 3;
        nodes of the interpolation: 12.
    hold : int, default 1
        Steps of a level, in which its action is held.

    Returns
    -------
    CompiledEnv

    Raises
    ------
    TypeError, ValueError
        If an argument is of another type or out of range.
    """
    horizon = integer("horizon", horizon, 1)
    value_range = np.stack([np.zeros(horizon), steps_left(horizon, CART_LIMIT, hold)], axis=1)
    return _control(
        "cart-pole", cart_pole, CartPole, CART_POLE, horizon, features, order, hold, value_range, CART_LIMIT
    )


def steps_left(horizon: int, limit: int, hold: int) -> NDArray[np.float64]:
    """Return how many steps an episode has left at each level of `hold` steps, at most, shape (H,)."""
    hold = integer("hold", hold, 1)
    return np.maximum(min(horizon * hold, limit) - hold * np.arange(horizon, dtype=np.float64), 0.0)


def _control(
    name: str,
    factory: Callable[..., CompiledEnv],
    made: type[MountainCar] | type[CartPole],
    box: Box,
    horizon: int,
    features: str | FeatureMap,
    order: int | None,
    hold: int,
    value_range: NDArray[np.float64],
    limit: int,
) -> CompiledEnv:
    again = functools.partial(factory, horizon, features, order, hold)
    nearly = features == "interpolation"
    if isinstance(features, str):
        recorded = features
        feature_map, order = box_features(box, features, order)
    elif order is not None:
        raise ValueError(f"order: expected none beside a feature map, got {order!r}")
    else:
        recorded = repr(features)
        feature_map = features
    env = CompiledEnv(
        made(horizon, hold),
        name=name,
        parameters={"horizon": horizon, "features": recorded, "order": order, "hold": hold},
        factory=again,
        features=feature_map,
        value_range=value_range,
        homogeneous=(horizon - 1) * hold < limit,
    )
    env.linear = not nearly
    return env
