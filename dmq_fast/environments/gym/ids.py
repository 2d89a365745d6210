"""Gymnasium environments by their id, through their tables or through their own `step`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dmq_fast.environments._box import box_features, box_of
from dmq_fast.environments.finite import FiniteMDP
from dmq_fast.environments.gym.batch import GymnasiumBatch
from dmq_fast.environments.gym.tables import from_gymnasium, has_table, make_environment

__all__ = ["gymnasium_environment"]

# Shifts that make the rewards of environments without tables nonnegative; 0 for others. With the scale 1/H they sum to
# at most 1.
SHIFTS = {"Acrobot-v1": 1.0, "MountainCar-v0": 1.0}


def gymnasium_environment(
    env: str,
    horizon: int,
    *,
    through: str | None = None,
    features: str | None = None,
    order: int | None = None,
    reward_shift: float | None = None,
    reward_scale: float | None = None,
    make: Mapping[str, Any] | None = None,
) -> FiniteMDP | GymnasiumBatch:
    """Build a Gymnasium environment from its id.

    Parameters
    ----------
    env : str
        Such as ``"CartPole-v1"``.
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
    reward_shift : float, optional
        With step: r' = reward_scale (r + reward_shift), which must be >= 0 and sum to at most 1 an episode. Default:
        that of the tables where there are any, 1 for MountainCar-v0 and Acrobot-v1, else 0.
    reward_scale : float, optional
        Default: that of the tables where there are any, else 1/H.
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
    made = make_environment(env, **arguments)
    try:
        tables = has_table(made)
        if through not in (None, "tables", "step"):
            raise ValueError(f"through: expected tables or step, got {through!r}")
        if through == "tables" or (through is None and tables):
            options = {
                "features": features, "order": order, "reward_shift": reward_shift, "reward_scale": reward_scale
            }  # fmt: skip
            for name, value in options.items():
                if value is not None:
                    raise ValueError(f"{name}: expected none with tables, got {value!r}; through='step' takes it")
            return from_gymnasium(made, horizon)
        shift, scale = SHIFTS.get(env, 0.0), None
        if tables and (reward_shift is None or reward_scale is None):
            known = from_gymnasium(made, horizon)
            shift, scale = known.reward_shift, known.reward_scale
        feature_map = None
        recorded: dict[str, Any] = {"env": env, "horizon": horizon, "through": "step"}
        if hasattr(made.observation_space, "low"):
            kind = "fourier" if features is None else features
            feature_map, order = box_features(box_of(made.observation_space, env), kind, order)
            recorded |= {"features": kind, "order": order}
        elif features is not None or order is not None:
            raise ValueError(f"features, order: expected none for observations in {made.observation_space}")
    finally:
        made.close()
    batch = GymnasiumBatch(
        env,
        horizon,
        feature_map,
        reward_shift=shift if reward_shift is None else reward_shift,
        reward_scale=scale if reward_scale is None else reward_scale,
        make=arguments,
    )
    rewards = {"reward_shift": batch.reward_shift, "reward_scale": batch.reward_scale}
    batch.parameters = recorded | rewards | arguments
    return batch
