"""Environments by name, for the command line."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from typing import Any, TypeVar

from dmq_fast._support.checks import Seed
from dmq_fast._support.described import Parameter, parameters_of
from dmq_fast._support.names import suggestion
from dmq_fast.environments.compiled import CompiledEnv
from dmq_fast.environments.dm import DmEnvBatch
from dmq_fast.environments.exams import BSUITE_PREFIX, bsuite_environment, takes_seed
from dmq_fast.environments.finite import FiniteMDP
from dmq_fast.environments.gym.batch import GymnasiumBatch
from dmq_fast.environments.gym.ids import gymnasium_environment

__all__ = [
    "BSUITE_PREFIX",
    "GYMNASIUM_PREFIX",
    "PREFIXES",
    "REGISTRY",
    "Parameter",
    "describe",
    "describe_prefixed",
    "draws",
    "full_name",
    "in_a_box",
    "make",
    "register",
]

Environment = FiniteMDP | CompiledEnv | GymnasiumBatch | DmEnvBatch

REGISTRY: dict[str, Callable[..., FiniteMDP | CompiledEnv]] = {}
"""Name -> function that makes the environment."""

Factory = TypeVar("Factory", bound=Callable[..., FiniteMDP | CompiledEnv])

GYMNASIUM_PREFIX = "gym:"

PREFIXES = (GYMNASIUM_PREFIX, BSUITE_PREFIX)
"""Beginnings of names that stand for the environments of other packages."""

BOXES = {"mountain-car": 200, "cart-pole": 500}
"""Environments with observations in a box, and the limits of their steps."""

VERSIONED = re.compile(r".+-v\d+")
"""Form of an id of Gymnasium's."""

REWARDS = ("value_range", "noise")
"""Arguments of ``"gym:ID"`` that are not listed, as runs have them, too, for environments of every kind."""


def register(name: str) -> Callable[[Factory], Factory]:
    """Return a decorator that adds a function to `REGISTRY` under this name.

    The command line and sweeps read the arguments from the function's signature and numpydoc docstring.

    Examples
    --------
    >>> @register("two-arms")
    ... def two_arms(good: float = 0.9) -> FiniteMDP:
    ...     '''Build a bandit.
    ...
    ...     Parameters
    ...     ----------
    ...     good : float, optional
    ...         Mean reward of action 1.
    ...     '''
    ...     return FiniteMDP(P=[], R=[[[0.1, good]]], features=[[[1.0]]], caps=[1.0], name="two-arms")
    >>> make("two-arms", good=0.8).optimal_value
    0.8
    >>> describe()["two-arms"]
    (Parameter(name='good', type=<class 'float'>, default=0.9, help='Mean reward of action 1.', choices=()),)
    >>> del REGISTRY["two-arms"]
    """

    def add(factory: Factory) -> Factory:
        if name in REGISTRY:
            raise ValueError(f"name: {name!r} is already registered")
        REGISTRY[name] = factory
        return factory

    return add


def describe() -> dict[str, tuple[Parameter, ...]]:
    """List the arguments of every environment in :data:`REGISTRY`, but for ``rng``.

    Returns
    -------
    dict
        From name, in alphabetical order, to the arguments in order. The type of an argument that may be None is that of
        its other values.
    """
    return {name: parameters_of(factory) for name, factory in sorted(REGISTRY.items())}


def describe_prefixed(name: str) -> tuple[Parameter, ...]:
    """List the arguments of ``"gym:ID"`` or ``"bsuite:ID"``, but for those of ``gymnasium.make``, and `REWARDS`.

    Returns
    -------
    tuple of Parameter
    """
    if name.startswith(BSUITE_PREFIX):
        return parameters_of(bsuite_environment, but=("identifier", "rng", *REWARDS))
    return parameters_of(gymnasium_environment, but=("env", "make", "box", *REWARDS))


def full_name(name: str) -> str:
    """Return a name with its prefix: ids of Gymnasium's, such as CartPole-v1, may come without.

    >>> full_name("CartPole-v1"), full_name("chain"), full_name("bsuite:catch/0")
    ('gym:CartPole-v1', 'chain', 'bsuite:catch/0')
    """
    bare = name not in REGISTRY and VERSIONED.fullmatch(name) and not name.startswith(PREFIXES)
    return f"{GYMNASIUM_PREFIX}{name}" if bare else name


def in_a_box(name: str, parameters: dict[str, Any], kind: str) -> dict[str, Any]:
    """Return the parameters of an environment with features of this kind, if it is known to show real numbers.

    Given features stay. Mountain car and cart-pole in steps of two then have the horizon of Gymnasium's limit.
    """
    if parameters.get("features") is not None:
        return parameters
    if name.startswith(GYMNASIUM_PREFIX):
        return parameters | {"box": kind}
    if name in BOXES and kind == "interpolation":
        hold = parameters.get("hold") or 2
        return {"horizon": -(-BOXES[name] // hold)} | parameters | {"features": kind, "hold": hold}
    return parameters


def draws(name: str) -> bool:
    """Return whether the environment of a name that `make` takes is drawn from `rng`."""
    if name.startswith(BSUITE_PREFIX):
        return takes_seed(name.removeprefix(BSUITE_PREFIX))
    return not name.startswith(GYMNASIUM_PREFIX) and "rng" in inspect.signature(REGISTRY[name]).parameters


def make(name: str, rng: Seed = None, **parameters: Any) -> Environment:
    """Make an environment from its name.

    Parameters
    ----------
    name : str
        A key of :data:`REGISTRY`, ``"gym:ID"`` for a Gymnasium environment, or ``"bsuite:ID"`` for one of bsuite's.
    rng : None, int, SeedSequence or Generator, optional
        What the environment is drawn from; environments that draw nothing do not use it.
    **parameters
        Arguments of the generator; for ``"gym:ID"`` and ``"bsuite:ID"`` those that `describe_prefixed` lists,
        `value_range` and `noise`, and for Gymnasium arguments of ``gymnasium.make``.

    Returns
    -------
    FiniteMDP, CompiledEnv, GymnasiumBatch or DmEnvBatch
        The third for Gymnasium environments without tables, or ``through="step"``.

    Raises
    ------
    ValueError
        If there is no such environment or argument, if a required argument is missing, or as the generator
        does.
    TypeError
        As the generator does.
    """
    if name.startswith(GYMNASIUM_PREFIX):
        return _make_gymnasium(name, parameters)
    if name.startswith(BSUITE_PREFIX):
        _refuse_unknown(name, parameters, [*REWARDS, *(parameter.name for parameter in describe_prefixed(name))])
        return bsuite_environment(name.removeprefix(BSUITE_PREFIX), rng=rng, **parameters)
    if name not in REGISTRY:
        raise ValueError(
            f"environment: expected one of {', '.join(sorted(REGISTRY))}, "
            f"{' or '.join(f'{prefix}ID' for prefix in PREFIXES)}, got {name!r}"
            f"{suggestion(name, REGISTRY)}"
        )
    factory = REGISTRY[name]
    known = parameters_of(factory)
    _refuse_unknown(name, parameters, [parameter.name for parameter in known])
    for parameter in known:
        if parameter.required and parameter.name not in parameters:
            raise ValueError(f"{name}: expected the parameter {parameter.name}, got none")
    if "rng" in inspect.signature(factory).parameters:
        parameters["rng"] = rng
    return factory(**parameters)


def _make_gymnasium(name: str, parameters: dict[str, Any]) -> FiniteMDP | GymnasiumBatch:
    known = {*REWARDS, "box", *(parameter.name for parameter in describe_prefixed(name))}
    own = {key: value for key, value in parameters.items() if key in known}
    arguments = {key: value for key, value in parameters.items() if key not in known}
    return gymnasium_environment(name.removeprefix(GYMNASIUM_PREFIX), make=arguments, **own)


def _refuse_unknown(name: str, parameters: dict[str, Any], known: list[str]) -> None:
    for given in parameters:
        if given not in known:
            raise ValueError(
                f"{name}: expected parameters among {', '.join(known)}, got {given!r}{suggestion(given, known)}"
            )
