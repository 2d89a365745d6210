"""Gymnasium environments by their id, through their tables or through their own `step`."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dmq_fast.environments._box import ORDERS, Box, box_features, box_of
from dmq_fast.environments._look import Grids
from dmq_fast.environments.finite import FiniteMDP
from dmq_fast.environments.gym.batch import GymnasiumBatch
from dmq_fast.environments.gym.tables import from_gymnasium, has_table, import_gymnasium, make_environment
from dmq_fast.environments.played import own_limit, required
from dmq_fast.environments.views import FIRST, Features, as_history, has_box
from dmq_fast.environments.wrapped import INTERPOLATION, Wrapped, features_of
from dmq_fast.rewards import RewardModel, ValueRange, as_bounds

__all__ = ["gymnasium_environment"]

# Least and largest reward of a step, where the environment's documentation has them.
STEPS = {"Acrobot-v1": (-1.0, 0.0), "CartPole-v1": (0.0, 1.0), "MountainCar-v0": (-1.0, 0.0)}


def gymnasium_environment(
    env: Any,
    horizon: int | None = None,
    *,
    through: str | None = None,
    features: str | Features | None = None,
    order: int | None = None,
    history: str | None = None,
    wrapper: str | Any = None,
    value_range: ValueRange = None,
    noise: float | None = None,
    hold: int | None = None,
    make: Mapping[str, Any] | None = None,
    box: str = "fourier",
) -> FiniteMDP | GymnasiumBatch:
    """Build an environment of Gymnasium's from its id, or from an object or function.

    Parameters
    ----------
    env : str, gymnasium.Env, gymnasium.vector.VectorEnv, or callable
        An id, such as ``"CartPole-v1"``; an environment, which is left as it is; or a function without arguments that
        makes one.
    horizon : int, optional
        Number of levels H >= 1. Default: the environment's own limit of steps, if it has one.
    through : str, optional
        How it is simulated: tables (known transition probabilities) or step (Gymnasium's own). Default: tables where
        there are any, unless features or a history are given.
    features : str, optional
        With step: interpolation, fourier, tiles or rbf, for observations in a box; seen, one-hot by appearance; or
        MODULE:FUNCTION, a function from observations (n, ...) to features (n, d). Default: in a box of real numbers
        interpolation for a self-stopping run and fourier for others, otherwise one-hot.
    order : int, optional
        Order of the Fourier basis, or the nodes, tiles or centres along each axis. Default: 3, 12, 8 or 5, less where
        that makes more than 100 features (900 with interpolation, 400 tiles).
    history : str, optional
        With step, first: join the first observation of an episode to each.
    wrapper : str, optional
        MODULE:FUNCTION, a function from the environment to another one of Gymnasium's.
    value_range : pair of float, array_like of shape (H, 2) or "seen", optional
        What can still be earned from a level on, (low, high). Default: that of the tables where there are any; with
        step (-(H - h), 0) of MountainCar-v0 and Acrobot-v1 and (0, H - h) of CartPole-v1 from level h on, an attribute
        of the environment, else unknown.
    noise : float, optional
        With step: standard deviation of the noise of rewards, if they are noisy.
    hold : int, optional
        With step: steps of a level, in which its action is held. Default: 1; with interpolation and the environment's
        own limit of steps 2 from a limit of 100 steps on, and more above 500.
    make : mapping, optional
        Arguments of ``gymnasium.make`` beside the id.
    box : str, default "fourier"
        Kind of the features of observations in a box where none are given.

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
    if not isinstance(env, str) and make is not None:
        raise ValueError("make: expected an id in env with it; a function or an object is made already")
    if through not in (None, "tables", "step"):
        raise ValueError(f"through: expected tables or step, got {through!r}")
    paired = as_history(history)
    source: Any = env if wrapper is None else Wrapped(Origin(env, arguments), wrapper)
    named = env if isinstance(env, str) else None
    if isinstance(source, str):
        made = make_environment(source, **arguments)
    else:
        made = source if hasattr(source, "action_space") and not isinstance(source, type) else source()
    space = getattr(made, "single_observation_space", None) or made.observation_space
    spec = getattr(made, "spec", None)
    name = str(named or getattr(spec, "id", type(getattr(made, "unwrapped", made)).__name__))
    try:
        limit = own_limit(made)
        levels = required(horizon, limit)
        tables = has_table(made)
        stepped = {"features": features, "order": order, "noise": noise, "history": history, "hold": hold}
        wanted = features is not None or paired
        if through == "tables" or (through is None and tables and not wanted):
            for key, value in stepped.items():
                if value is not None:
                    raise ValueError(f"{key}: expected none with tables, got {value!r}; through='step' takes it")
            return from_gymnasium(made, levels, value_range=value_range)
        kind = box if features is None else features
        boxed = has_box(space) and isinstance(kind, str) and kind in (INTERPOLATION, *ORDERS)
        recorded: dict[str, Any] = {}
        feature_map: Features | Grids | None
        if boxed and kind == INTERPOLATION:
            feature_map = Grids(order)
            recorded |= {"features": kind, "order": order}
        elif boxed:
            corners = box_of(space, name)
            feature_map, order = box_features(
                Box(*(2 * corner for corner in corners)) if paired else corners, str(kind), order
            )
            recorded |= {"features": kind, "order": order}
        else:
            if order is not None or (isinstance(features, str) and features in (INTERPOLATION, *ORDERS)):
                raise ValueError(f"features, order: expected none for observations in {space}")
            feature_map = features_of(features, ORDERS if has_box(space) else ())
            recorded |= {"features": features} if isinstance(features, str) else {}
        batch = GymnasiumBatch(
            source,
            horizon,
            feature_map,
            value_range=value_range,
            noise=noise,
            make=arguments if isinstance(source, str) else None,
            history=history,
            name=name,
            hold=hold,
        )
        if value_range is None:
            steps = batch.horizon * batch.hold if horizon is not None or limit is None else limit
            known = from_gymnasium(made, steps).value_range if tables else None
            if not tables and wrapper is None:
                known = known_range(name, steps)
            if known is not None:
                batch.value_range = as_bounds(known[:: batch.hold], batch.horizon)
    finally:
        if made is not env:
            made.close()
    recorded = {"env": name, "horizon": batch.horizon, "through": "step"} | recorded
    recorded |= {"hold": batch.hold} if batch.hold > 1 else {}
    told = RewardModel.of(batch).describe()
    given = {"value_range": value_range, "noise": noise}
    batch.parameters = recorded | {name: told[name] for name, own in given.items() if own is not None} | arguments
    batch.parameters |= {"history": FIRST} if paired else {}
    batch.parameters |= {"wrapper": wrapper} if isinstance(wrapper, str) else {}
    return batch


class Origin:
    """Makes the environment that a wrapper is put around: from an id, a function, or as a copy of an object."""

    def __init__(self, env: Any, arguments: Mapping[str, Any]) -> None:
        self.env, self.arguments = env, arguments

    def __call__(self) -> Any:
        """Make one."""
        if isinstance(self.env, str):
            return make_environment(self.env, **self.arguments)
        gymnasium = import_gymnasium()
        if isinstance(self.env, gymnasium.Env | gymnasium.vector.VectorEnv):
            return copy.deepcopy(self.env)
        return self.env()


def known_range(env: str, steps: int) -> NDArray[np.float64] | None:
    """Return what can be earned from each step on, (steps, 2), in an environment whose rewards are documented."""
    return np.outer(steps - np.arange(steps), STEPS[env]) if env in STEPS else None
