"""Environments by name, for the command line."""

from __future__ import annotations

import inspect
import re
import typing
from collections.abc import Callable
from typing import Any, NamedTuple

from dmq_fast._support.arguments import Seed, suggestion
from dmq_fast.environments.block import diabolical_lock, lock_bernoulli, lock_gaussian, noisy_deep_sea
from dmq_fast.environments.classic import chain, deep_sea, river_swim
from dmq_fast.environments.compiled import CompiledEnv
from dmq_fast.environments.control import cart_pole, mountain_car
from dmq_fast.environments.finite import FiniteMDP
from dmq_fast.environments.gym.batch import GymnasiumBatch
from dmq_fast.environments.gym.ids import gymnasium_environment
from dmq_fast.environments.linear_mdp import linear_mdp
from dmq_fast.environments.linear_q import linear_q
from dmq_fast.environments.locks import combination_lock, decoy_lock

__all__ = ["REGISTRY", "Parameter", "describe", "describe_gymnasium", "make"]

Environment = FiniteMDP | CompiledEnv | GymnasiumBatch

REGISTRY: dict[str, Callable[..., FiniteMDP | CompiledEnv]] = {
    "lock": combination_lock,
    "chain": chain,
    "deep-sea": deep_sea,
    "river-swim": river_swim,
    "linear-q": linear_q,
    "decoy": decoy_lock,
    "linear-mdp": linear_mdp,
    "lock-bernoulli": lock_bernoulli,
    "lock-gaussian": lock_gaussian,
    "diabolical-lock": diabolical_lock,
    "noisy-deep-sea": noisy_deep_sea,
    "mountain-car": mountain_car,
    "cart-pole": cart_pole,
}

GYMNASIUM_PREFIX = "gym:"


class Parameter(NamedTuple):
    """One argument of an environment; ``default`` is ``inspect.Parameter.empty`` where it has to be given."""

    name: str
    type: type
    default: Any
    help: str

    @property
    def required(self) -> bool:
        """Whether there is no default."""
        return self.default is inspect.Parameter.empty


def describe() -> dict[str, tuple[Parameter, ...]]:
    """List the arguments of every environment in :data:`REGISTRY`, but for ``rng``.

    Returns
    -------
    dict
        From name to the arguments in order. An argument that may be None has the type it has otherwise.
    """
    return {name: _parameters(factory) for name, factory in REGISTRY.items()}


def describe_gymnasium() -> tuple[Parameter, ...]:
    """List the arguments of ``"gym:ID"``, but for those of ``gymnasium.make``.

    Returns
    -------
    tuple of Parameter
    """
    return tuple(parameter for parameter in _parameters(gymnasium_environment) if parameter.name not in ("env", "make"))


def make(name: str, rng: Seed = None, **parameters: Any) -> Environment:
    """Make an environment from its name.

    Parameters
    ----------
    name : str
        A key of :data:`REGISTRY`, or ``"gym:ID"`` for a Gymnasium environment.
    rng : None, int, SeedSequence or Generator, optional
        What the environment is drawn from; environments that draw nothing do not use it.
    **parameters
        Arguments of the generator; for ``"gym:ID"`` those that :func:`describe_gymnasium` lists, and arguments of
        ``gymnasium.make``.

    Returns
    -------
    FiniteMDP, CompiledEnv or GymnasiumBatch
        The last for Gymnasium environments without tables, or ``through="step"``.

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
    if name not in REGISTRY:
        raise ValueError(
            f"environment: expected one of {', '.join(REGISTRY)} or {GYMNASIUM_PREFIX}ID, got {name!r}"
            f"{suggestion(name, REGISTRY)}"
        )
    factory = REGISTRY[name]
    known = _parameters(factory)
    _refuse_unknown(name, parameters, [parameter.name for parameter in known])
    for parameter in known:
        if parameter.required and parameter.name not in parameters:
            raise ValueError(f"{name}: expected the parameter {parameter.name}, got none")
    if "rng" in inspect.signature(factory).parameters:
        parameters["rng"] = rng
    return factory(**parameters)


def _make_gymnasium(name: str, parameters: dict[str, Any]) -> FiniteMDP | GymnasiumBatch:
    if "horizon" not in parameters:
        raise ValueError(f"{name}: expected the parameter horizon, got none")
    known = {parameter.name for parameter in describe_gymnasium()}
    own = {key: value for key, value in parameters.items() if key in known}
    arguments = {key: value for key, value in parameters.items() if key not in known}
    return gymnasium_environment(name.removeprefix(GYMNASIUM_PREFIX), make=arguments, **own)


def _refuse_unknown(name: str, parameters: dict[str, Any], known: list[str]) -> None:
    for given in parameters:
        if given not in known:
            raise ValueError(
                f"{name}: expected parameters among {', '.join(known)}, got {given!r}{suggestion(given, known)}"
            )


def _parameters(factory: Callable[..., Any]) -> tuple[Parameter, ...]:
    types = typing.get_type_hints(factory)
    help_of = _help(factory)
    return tuple(
        Parameter(name, _plain_type(types[name]), parameter.default, help_of[name])
        for name, parameter in inspect.signature(factory).parameters.items()
        if name != "rng"
    )


def _plain_type(annotation: Any) -> type:
    """Return the one type of an annotation ``T`` or ``T | None``."""
    choices: list[type] = [choice for choice in typing.get_args(annotation) if choice is not type(None)]
    return choices[0] if choices else annotation


def _help(factory: Callable[..., Any]) -> dict[str, str]:
    """Read the description of each parameter, on one line, from a numpydoc docstring."""
    sections = re.split(r"^(\w+)\n-+\n", inspect.getdoc(factory) or "", flags=re.MULTILINE)
    text = sections[sections.index("Parameters") + 1]
    entries = re.findall(r"^(\w+) : .*\n((?:^(?: +.*)?\n)+)", text, flags=re.MULTILINE)
    return {name: " ".join(description.split()) for name, description in entries}
