"""`as_environment`: the environment that an object, a class, a function or a name stands for."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial
from typing import Any

from dmq_fast._support.checks import Seed, integer
from dmq_fast.environments.compiled import CompiledEnv
from dmq_fast.environments.dm import from_dm_env, is_dm_env
from dmq_fast.environments.finite import FiniteMDP
from dmq_fast.environments.gym.ids import gymnasium_environment
from dmq_fast.environments.plain import from_object, is_object
from dmq_fast.environments.registry import PREFIXES, REGISTRY, full_name, in_a_box, make
from dmq_fast.environments.views import Features
from dmq_fast.environments.wrapped import Wrapped, features_of, wrapped

__all__ = ["as_environment", "is_source"]

KINDS = (
    "an environment, a sampler, an environment of Gymnasium's or its id, a dm_env environment, an object with reset "
    "and step, or a class or function that makes one"
)


def as_environment(
    source: Any,
    horizon: int | None = None,
    *,
    features: str | Features | None = None,
    history: str | None = None,
    wrapper: str | Callable[[Any], Any] | None = None,
    hold: int | None = None,
    box: str = "fourier",
    rng: Seed = None,
) -> Any:
    """Return the environment that `source` stands for.

    Parameters
    ----------
    source : object, class, callable or str
        One of

        - an environment of the package's, a `BatchEnvironment` or a sampler, which is returned as it is;
        - an environment of Gymnasium's or a vector of them: tables where there are any, otherwise a `GymnasiumBatch`;
        - a dm_env environment, see `from_dm_env`;
        - any other object with `reset` and `step`, see `from_object`;
        - a name: in `REGISTRY`, an id of Gymnasium's such as ``"CliffWalking-v1"`` or ``"gym:CliffWalking-v1"``, or one
          of bsuite's, such as ``"bsuite:deep_sea/10"``;
        - a class, or a function without arguments, that makes one.
    horizon : int, optional
        Number of levels H. Default: what the environment says, such as Gymnasium's limit of steps. Refused if an
        environment of the package's has another.
    features : str, optional
        Of an environment that is stepped: seen, interpolation, or MODULE:FUNCTION, a function from observations
        (n, ...) to features (n, d) of norm at most 1, or in Python the function. Default: by the observations, see
        `GymnasiumBatch`, `from_dm_env` and `from_object`.
    history : str, optional
        Of an environment that is stepped, first: join the first observation of an episode to each.
    wrapper : str, optional
        Of an environment that is stepped: MODULE:FUNCTION, or in Python the function, from the environment to another
        one.
    hold : int, optional
        Of an environment that is stepped, and of mountain car and cart-pole: steps of a level, in which its action is
        held. Default: see `GymnasiumBatch`.
    box : str, default "fourier"
        Kind of the features of a box of Gymnasium's where none are given; a self-stopping run asks for interpolation.
    rng : None, int, SeedSequence or Generator, optional
        What the environment of a name is drawn from.

    Returns
    -------
    FiniteMDP, CompiledEnv, BatchEnvironment or Sampler

    Raises
    ------
    ImportError
        If Gymnasium or bsuite is needed and not installed.
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
    how: dict[str, Any] = {"features": features, "history": history, "hold": hold}
    if isinstance(source, str):
        return named(source, horizon, how | {"wrapper": wrapper}, box, rng)
    if is_ready(source):
        return as_it_is(source, horizon, how | {"wrapper": wrapper})
    if is_gymnasium(source):
        return gymnasium_environment(source, horizon, wrapper=wrapper, box=box, **how)
    if is_dm_env(source) or is_object(source):
        return stepped(wrapped(source, wrapper), source, horizon, wrapper, how)
    if callable(source):
        made = called(source)
        if is_gymnasium(made):
            made.close()
            return gymnasium_environment(source, horizon, wrapper=wrapper, box=box, **how)
        if is_ready(made) or not (is_dm_env(made) or is_object(made)):
            return as_environment(made, horizon, wrapper=wrapper, box=box, **how)
        return stepped(wrapped(made, wrapper), source, horizon, wrapper, how)
    raise TypeError(f"env: expected {KINDS}, got {type(source).__name__}")


def is_source(source: object) -> bool:
    """Return whether `as_environment` may make something of an object that is no environment or sampler yet."""
    if is_ready(source):
        return False
    return isinstance(source, str) or is_gymnasium(source) or is_object(source) or callable(source)


def named(name: str, horizon: int | None, how: dict[str, Any], box: str, rng: Seed) -> Any:
    """Return the environment of a name."""
    name = full_name(name)
    given = {key: value for key, value in (("horizon", horizon), *how.items()) if value is not None}
    if name in REGISTRY:
        own: dict[str, Any] = {key: given.pop(key) for key in ("horizon", "hold") if key in given}
        refuse(name, given)
        return make(name, rng, **in_a_box(name, own, box))
    if name.startswith(PREFIXES):
        given = in_a_box(name, given, box)
        return make(name, rng, **given)
    return make(name, rng)  # raises the error that lists the names


def stepped(made: Any, source: Any, horizon: int | None, wrapper: Any, how: dict[str, Any]) -> Any:
    """Return the environment of an object with reset and step, where `source` is the object or makes it."""
    if is_gymnasium(made):  # a wrapper has made one
        return gymnasium_environment(partial(wrapped, source, wrapper), horizon, **how)
    origin = source
    if wrapper is not None:
        origin = made if is_object(source) else Wrapped(source, wrapper)
    door: Callable[..., Any] = from_dm_env if is_dm_env(made) else from_object
    return door(origin, horizon, features_of(how["features"]), history=how["history"], hold=how["hold"])


def is_ready(source: object) -> bool:
    """Return whether a learner takes an object as it is: an environment of the package's, or a sampler."""
    if isinstance(source, type):
        return False
    if isinstance(source, FiniteMDP | CompiledEnv) or callable(getattr(source, "collect_chunk", None)):
        return True
    batch = hasattr(source, "dimension") or callable(getattr(source, "features", None))
    return hasattr(source, "horizon") and (batch or not is_object(source))


def is_gymnasium(source: object) -> bool:
    """Return whether an object is a Gymnasium environment, or a vector of them; Gymnasium is not imported for that."""
    gymnasium: Any = sys.modules.get("gymnasium")  # which an object of its classes has imported
    return gymnasium is not None and isinstance(source, gymnasium.Env | gymnasium.vector.VectorEnv)


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
    if made is source or (callable(made) and not (is_ready(made) or is_gymnasium(made) or is_object(made))):
        raise TypeError(f"env: expected a class or function that makes an environment, got {made!r} from {name}()")
    return made


def as_it_is(env: Any, horizon: int | None, how: dict[str, Any]) -> Any:
    """Return an environment that has a horizon and features of its own."""
    if horizon is not None and integer("horizon", horizon, 1) != env.horizon:
        raise ValueError(f"horizon: expected that of the environment, {env.horizon}, or none, got {horizon}")
    refuse(type(env).__name__, {key: value for key, value in how.items() if value is not None})
    return env


def refuse(name: str, given: dict[str, Any]) -> None:
    """Raise ValueError if anything is given that only an environment that is stepped takes."""
    for key, value in given.items():
        raise ValueError(f"{key}: expected none, as {name} has features of its own, got {value!r:.80}")
