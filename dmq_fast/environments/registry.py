"""Environments by name, for the command line."""

from __future__ import annotations

import difflib
import inspect
import re
import typing
from collections.abc import Callable
from typing import Any, NamedTuple

from dmq_fast.environments._arguments import Seed
from dmq_fast.environments.classic import chain, deep_sea, river_swim
from dmq_fast.environments.finite import FiniteMDP
from dmq_fast.environments.gymnasium import from_gymnasium, make_environment
from dmq_fast.environments.linear_q import linear_q
from dmq_fast.environments.locks import combination_lock, decoy_lock

__all__ = ["REGISTRY", "Parameter", "describe", "make"]

REGISTRY: dict[str, Callable[..., FiniteMDP]] = {
    "lock": combination_lock,
    "chain": chain,
    "deep-sea": deep_sea,
    "river-swim": river_swim,
    "linear-q": linear_q,
    "decoy": decoy_lock,
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


def make(name: str, rng: Seed = None, **parameters: Any) -> FiniteMDP:
    """Make an environment from its name.

    Parameters
    ----------
    name : str
        A key of :data:`REGISTRY`, or ``"gym:ID"`` for :meth:`FiniteMDP.from_gymnasium`.
    rng : None, int, SeedSequence or Generator, optional
        What the environment is drawn from; environments that draw nothing do not use it.
    **parameters
        Arguments of the generator; for ``"gym:ID"`` the horizon and arguments of ``gymnasium.make``.

    Returns
    -------
    FiniteMDP

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
            f"{_suggestion(name, list(REGISTRY))}"
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


def _make_gymnasium(name: str, parameters: dict[str, Any]) -> FiniteMDP:
    if "horizon" not in parameters:
        raise ValueError(f"{name}: expected the parameter horizon, got none")
    arguments = {key: value for key, value in parameters.items() if key != "horizon"}
    env = make_environment(name.removeprefix(GYMNASIUM_PREFIX), **arguments)
    return from_gymnasium(env, parameters["horizon"])


def _refuse_unknown(name: str, parameters: dict[str, Any], known: list[str]) -> None:
    for given in parameters:
        if given not in known:
            raise ValueError(
                f"{name}: expected parameters among {', '.join(known)}, got {given!r}{_suggestion(given, known)}"
            )


def _suggestion(given: str, known: list[str]) -> str:
    close = difflib.get_close_matches(given, known, n=1)
    return f"; did you mean {close[0]!r}?" if close else ""


def _parameters(factory: Callable[..., FiniteMDP]) -> tuple[Parameter, ...]:
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


def _help(factory: Callable[..., FiniteMDP]) -> dict[str, str]:
    """Read the description of each parameter, on one line, from a numpydoc docstring."""
    sections = re.split(r"^(\w+)\n-+\n", inspect.getdoc(factory) or "", flags=re.MULTILINE)
    text = sections[sections.index("Parameters") + 1]
    entries = re.findall(r"^(\w+) : .*\n((?:^(?: +.*)?\n)+)", text, flags=re.MULTILINE)
    return {name: " ".join(description.split()) for name, description in entries}
