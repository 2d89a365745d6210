"""`as_environment`: the environment that an object, a class, a function or a name stands for."""

from __future__ import annotations

from typing import Any

from dmq_fast._support.checks import integer
from dmq_fast.environments.compiled import CompiledEnv
from dmq_fast.environments.finite import FiniteMDP
from dmq_fast.environments.gym.ids import gymnasium_environment
from dmq_fast.environments.registry import GYMNASIUM_PREFIX, REGISTRY, make

__all__ = ["as_environment"]


def as_environment(source: Any, horizon: int | None = None) -> Any:
    """Return the environment that `source` stands for.

    Parameters
    ----------
    source : object, class, callable or str
        A Gymnasium environment (tables where there are any, otherwise a `GymnasiumBatch`), or its id, such as
        ``"CliffWalking-v1"`` or ``"gym:CliffWalking-v1"``; a name in `REGISTRY`; a class, or a function without
        arguments, that makes an environment; or what is one already, or a sampler, which is returned as it is.
    horizon : int, optional
        Number of levels H: required for Gymnasium, refused if an environment has another.

    Returns
    -------
    FiniteMDP, CompiledEnv, BatchEnvironment or Sampler

    Raises
    ------
    ImportError
        If Gymnasium is needed and not installed.
    TypeError, ValueError
        If nothing can be made of the source, or the horizon is missing or another one.

    Examples
    --------
    >>> import dmq_fast as dmq
    >>> as_environment("CliffWalking-v1", horizon=20).optimal_value
    -13.0
    >>> as_environment("chain", horizon=5)
    FiniteMDP('chain', horizon=5, n_states=5, n_actions=3, dimension=5)
    """
    if isinstance(source, str):
        return named(source, horizon)
    if is_ready(source):
        return with_horizon(source, horizon)
    if is_gymnasium(source):
        return gymnasium_environment(source, required(source, horizon))
    if callable(source):
        made = called(source)
        if not is_gymnasium(made):
            return as_environment(made, horizon)
        horizon = required(made, horizon)
        made.close()
        return gymnasium_environment(source, horizon)
    raise TypeError(
        "env: expected an environment, a sampler, a Gymnasium environment or its id, or a class or function that makes "
        f"one, got {type(source).__name__}"
    )


def named(name: str, horizon: int | None) -> Any:
    """Return the environment of a name in the registry, or of a Gymnasium id."""
    if name in REGISTRY:
        return make(name) if horizon is None else make(name, horizon=horizon)
    identifier = name.removeprefix(GYMNASIUM_PREFIX)
    if horizon is None:
        raise ValueError(f"horizon: expected the number of levels of {identifier}, such as horizon=50, got none")
    return gymnasium_environment(identifier, horizon)


def is_ready(source: object) -> bool:
    """Return whether a learner takes an object as it is: an environment of the package's, or a sampler."""
    if isinstance(source, type):
        return False
    return isinstance(source, FiniteMDP | CompiledEnv) or hasattr(source, "horizon")


def is_gymnasium(source: object) -> bool:
    """Return whether an object is a Gymnasium environment, or a vector of them; Gymnasium is not imported for that."""
    return not isinstance(source, type) and hasattr(source, "action_space") and hasattr(source, "step")


def called(source: Any) -> Any:
    """Return what a class or function makes."""
    name = getattr(source, "__qualname__", type(source).__name__)
    try:
        made = source()
    except TypeError as error:
        raise TypeError(
            f"env: expected a class or function that makes an environment without arguments, but {name}() raised: "
            f"{error}; give one such as lambda: {name}(...)"
        ) from error
    if made is source or (callable(made) and not is_ready(made) and not is_gymnasium(made)):
        raise TypeError(f"env: expected a class or function that makes an environment, got {made!r} from {name}()")
    return made


def with_horizon(env: Any, horizon: int | None) -> Any:
    """Return an environment that has a horizon of its own, which must not be another."""
    if horizon is not None and integer("horizon", horizon, 1) != env.horizon:
        raise ValueError(f"horizon: expected that of the environment, {env.horizon}, or none, got {horizon}")
    return env


def required(env: Any, horizon: int | None) -> int:
    """Return the horizon; refuse none, and suggest the step limit that Gymnasium has for the environment."""
    if horizon is not None:
        return horizon
    limit = getattr(getattr(env, "spec", None), "max_episode_steps", None)
    hint = "such as horizon=50" if limit is None else f"such as horizon={limit}, its own limit of steps"
    raise ValueError(f"horizon: expected the number of levels of a Gymnasium environment, {hint}, got none")
