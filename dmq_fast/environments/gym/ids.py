"""Gymnasium environments by their id, through their tables or through their own `step`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dmq_fast._support.checks import integer
from dmq_fast.environments._box import box_features, box_of
from dmq_fast.environments.finite import FiniteMDP
from dmq_fast.environments.gym.batch import GymnasiumBatch
from dmq_fast.environments.gym.tables import from_gymnasium, has_table, make_environment
from dmq_fast.rewards import RewardModel, ValueRange

__all__ = ["gymnasium_environment"]

# Least and largest reward of a step, where the environment's documentation has them.
STEPS = {"Acrobot-v1": (-1.0, 0.0), "CartPole-v1": (0.0, 1.0), "MountainCar-v0": (-1.0, 0.0)}


def gymnasium_environment(
    env: Any,
    horizon: int,
    *,
    through: str | None = None,
    features: str | None = None,
    order: int | None = None,
    value_range: ValueRange = None,
    noise: float | None = None,
    make: Mapping[str, Any] | None = None,
) -> FiniteMDP | GymnasiumBatch:
    """Build an environment of Gymnasium's from its id, or from an object or function.

    Parameters
    ----------
    env : str, gymnasium.Env, gymnasium.vector.VectorEnv, or callable
        An id, such as ``"CartPole-v1"``; an environment, which is left as it is; or a function without arguments that
        makes one.
    horizon : int
        Number of levels H >= 1.
    through : str, optional
        How it is simulated: tables (known transition probabilities) or step (Gymnasium's own). Default: tables where
        there are any.
    features : str, optional
        Kind of features of observations in a box, with step: fourier, tiles or rbf. Default: fourier. Discrete
        observations are one-hot.
    order : int, optional
        Order of the Fourier basis, or the tiles or centres along each axis. Default: 3, 8 or 5, less where that makes
        more than 100 features (400 tiles).
    value_range : pair of float, array_like of shape (H, 2) or "seen", optional
        What can still be earned from a level on, (low, high). Default: that of the tables where there are any; with
        step (-(H - h), 0) of MountainCar-v0 and Acrobot-v1 and (0, H - h) of CartPole-v1 from level h on, else unknown.
    noise : float, optional
        With step: standard deviation of the noise of rewards, if they are noisy.
    make : mapping, optional
        Arguments of ``gymnasium.make`` beside the id.

    Returns
    -------
    FiniteMDP or GymnasiumBatch

    Raises
    ------
    ImportError
        If Gymnasium is not installed.
    TypeError, ValueError
        If Gymnasium does not know the id, or an argument is of another type, out of range, or not used there.
    """
    arguments = dict(make or {})
    if isinstance(env, str):
        made = make_environment(env, **arguments)
    else:
        if make is not None:
            raise ValueError("make: expected an id in env with it; a function or an object is made already")
        made = env if hasattr(env, "action_space") and not isinstance(env, type) else env()
    space = getattr(made, "single_observation_space", None) or made.observation_space
    spec = getattr(made, "spec", None)
    name = env if isinstance(env, str) else getattr(spec, "id", type(getattr(made, "unwrapped", made)).__name__)
    try:
        tables = has_table(made)
        if through not in (None, "tables", "step"):
            raise ValueError(f"through: expected tables or step, got {through!r}")
        if through == "tables" or (through is None and tables):
            for name, value in {"features": features, "order": order, "noise": noise}.items():
                if value is not None:
                    raise ValueError(f"{name}: expected none with tables, got {value!r}; through='step' takes it")
            return from_gymnasium(made, horizon, value_range=value_range)
        bounds = value_range
        if bounds is None:
            bounds = from_gymnasium(made, horizon).value_range if tables else known_range(name, horizon)
        feature_map = None
        recorded: dict[str, Any] = {"env": name, "horizon": horizon, "through": "step"}
        if hasattr(space, "low"):
            kind = "fourier" if features is None else features
            feature_map, order = box_features(box_of(space, name), kind, order)
            recorded |= {"features": kind, "order": order}
        elif features is not None or order is not None:
            raise ValueError(f"features, order: expected none for observations in {space}")
    finally:
        if made is not env:
            made.close()
    batch = GymnasiumBatch(
        env,
        horizon,
        feature_map,
        value_range=bounds,
        noise=noise,
        make=arguments if isinstance(env, str) else None,
    )
    told = RewardModel.of(batch).describe()
    given = {"value_range": value_range, "noise": noise}
    batch.parameters = recorded | {name: told[name] for name, own in given.items() if own is not None} | arguments
    return batch


def known_range(env: str, horizon: int) -> NDArray[np.float64] | None:
    """Return what can be earned from each level on, (H, 2), in an environment whose rewards are documented."""
    if env not in STEPS:
        return None
    left = horizon - np.arange(integer("horizon", horizon, 1))
    return np.outer(left, STEPS[env])
