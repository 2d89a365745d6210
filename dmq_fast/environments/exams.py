"""Environments of bsuite (Osband and others, 2020) by their id, with the horizon and the rewards that its source has.

bsuite itself is imported only where an environment is made.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dmq_fast._support.checks import Seed
from dmq_fast._support.names import suggestion
from dmq_fast.environments.dm import DmEnvBatch, from_dm_env
from dmq_fast.environments.views import Features
from dmq_fast.environments.wrapped import features_of, wrapped
from dmq_fast.rewards import ValueRange, as_bounds

__all__ = ["BSUITE_PREFIX", "bsuite_environment", "takes_seed"]

BSUITE_PREFIX = "bsuite:"


class Known(NamedTuple):
    """What bsuite's source says of an experiment: levels, range of what can be earned, noise of rewards."""

    horizon: int
    value_range: Any
    noise: float | None = None


def bsuite_environment(
    identifier: str,
    horizon: int | None = None,
    *,
    features: str | Features | None = None,
    history: str | None = None,
    wrapper: str | Any = None,
    hold: int | None = None,
    value_range: ValueRange = None,
    noise: float | None = None,
    rng: Seed = None,
) -> DmEnvBatch:
    """Build an environment of bsuite's from its id.

    Parameters
    ----------
    identifier : str
        Experiment and setting, such as ``"deep_sea/10"``.
    horizon : int, optional
        Number of levels H. Default: the length of the experiment's episodes.
    features : str, optional
        seen, one-hot by appearance; interpolation, of real numbers on grids that uniform play chooses; or
        MODULE:FUNCTION, a function from observations (n, ...) to features (n, d). Default: see `from_dm_env`.
    history : str, optional
        first: join the first observation of an episode to each.
    wrapper : str, optional
        MODULE:FUNCTION, a function from the environment to another one with the same interface.
    hold : int, optional
        Steps of a level, in which its action is held. Default: 1; with interpolation and all steps of the experiment 2
        from a limit of 100 steps on, and more above 500.
    value_range : pair of float, array_like of shape (H, 2) or "seen", optional
        Default: that of the experiment.
    noise : float, optional
        Standard deviation of the noise of the reward of a level. Default: that of the experiment for each step.
    rng : None, int, SeedSequence or Generator, optional
        What the environment is drawn from, where it takes a seed. None: as bsuite's setting has it.

    Returns
    -------
    DmEnvBatch

    Raises
    ------
    ImportError
        If bsuite is not installed.
    ValueError
        If bsuite has no such setting, or an argument is out of range.
    """
    try:
        import bsuite
        from bsuite import sweep
    except ImportError as error:
        raise ImportError(
            f'env: {BSUITE_PREFIX}{identifier} needs bsuite; install it with pip install "dmq-fast[exams]" ({error})'
        ) from error
    if identifier not in sweep.SETTINGS:
        names = sorted({one.partition("/")[0] for one in sweep.SWEEP})
        name = identifier.partition("/")[0]
        last = sum(one.startswith(f"{name}/") for one in sweep.SWEEP) - 1
        expected = f"{name}/0 to {name}/{last}" if name in names else f"EXPERIMENT/NUMBER of {', '.join(names)}"
        hint = "" if name in names else suggestion(name, names)
        raise ValueError(f"env: expected {expected}, got {identifier!r}{hint}")
    name, settings = identifier.partition("/")[0], dict(sweep.SETTINGS[identifier])
    known = known_of(name, settings)
    if rng is not None and takes_seed(identifier):
        settings["seed"] = int(np.random.default_rng(rng).integers(2**31))
    env = wrapped(bsuite.load(name, settings), wrapper)
    env.max_episode_steps = known.horizon  # where `from_dm_env` looks for it
    batch = from_dm_env(
        env,
        horizon,
        features_of(features),
        history=history,
        value_range=value_range,
        noise=noise,
        name=f"{BSUITE_PREFIX}{identifier}",
        hold=hold,
    )
    if noise is None and known.noise is not None:
        batch.noise = known.noise * min(batch.hold, known.horizon) ** 0.5  # of a sum of as many rewards
    if value_range is None:
        whole = horizon is None or (horizon, batch.hold) == (known.horizon, 1)
        by_step = as_bounds(known.value_range, known.horizon) if whole else None
        batch.value_range = None if by_step is None else by_step[:: batch.hold]
    batch.parameters |= {"features": features} if isinstance(features, str) else {}
    batch.parameters |= {"wrapper": wrapper} if isinstance(wrapper, str) else {}
    return batch


def takes_seed(identifier: str) -> bool:
    """Return whether the setting of an id, which bsuite has, can be made from a seed."""
    import bsuite

    load = bsuite.bsuite.EXPERIMENT_NAME_TO_ENVIRONMENT[identifier.partition("/")[0]]
    return "seed" in inspect.signature(load).parameters


def known_of(name: str, settings: Mapping[str, Any]) -> Known:
    """Return horizon, range and noise of an experiment, in points."""
    scale, noise = float(settings.get("reward_scale", 1.0)), settings.get("noise_scale")
    kind = name.removesuffix("_noise").removesuffix("_scale")
    if kind in ("bandit", "mnist"):
        return Known(1, (0.0 if kind == "bandit" else -scale, scale), noise)
    if kind == "catch":
        return Known(9, (-scale, scale), noise)
    if name == "deep_sea":
        # The way to the treasure, right at every level, costs .01 in all, and any other no more.
        return Known(settings["size"], by_level(settings["size"], -0.01 / settings["size"], 0.0, top=1.0))
    if name == "deep_sea_stochastic":
        return Known(settings["size"], (-0.01, 1.0), 1.0)
    if name == "discounting_chain":
        return Known(100, (0.0, 1.1))
    if name in ("umbrella_length", "umbrella_distract"):
        # A coin of 1 or -1 at every step but the last.
        return Known(settings.get("chain_length", 20), (-1.0, 1.0), 1.0)
    if name in ("memory_len", "memory_size"):
        return Known(settings.get("memory_length", 2) + 1, (-1.0, 1.0))
    if kind == "cartpole":
        return Known(1001, by_level(1001, 0.0, scale), noise)
    if kind == "cartpole_swingup":
        return Known(1001, by_level(1001, -0.1, 1.0))
    if kind == "mountain_car":
        return Known(1000, by_level(1000, -scale, 0.0), noise)
    raise ValueError(f"env: expected an experiment whose horizon is known, got {name}; from_dm_env takes others")


def by_level(horizon: int, low: float, high: float, top: float = 0.0) -> NDArray[np.float64]:
    """Return what steps of [low, high] add up to from each level on, (H, 2), and `top` at most in the end."""
    bounds: NDArray[np.float64] = np.outer(horizon - np.arange(horizon), [low, high])
    bounds[:, 1] += top
    return bounds
