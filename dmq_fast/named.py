"""Objects that a shell or a TOML file can only name: samplers and function classes."""

from __future__ import annotations

import importlib
import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from dmq_fast._support.checks import one_of
from dmq_fast.arguments import ADAPTIVE, SAMPLING, variant_of
from dmq_fast.covers.options import VARIANTS
from dmq_fast.environments.compiled import CompiledEnv
from dmq_fast.environments.finite import FiniteMDP
from dmq_fast.function_class import FiniteClass, FunctionClass, LinearClass
from dmq_fast.learners import DMQ, SelfStopping
from dmq_fast.samplers import BatchEnvironment, ExactSampler, FlowSampler, Sampler

__all__ = ["class_text", "imported", "named_class", "named_learner", "named_sampler"]

Environment = FiniteMDP | CompiledEnv | BatchEnvironment | Sampler

SAMPLERS = SAMPLING[0].choices

CLASSES: dict[str, tuple[Callable[..., FunctionClass], tuple[str, ...]]] = {
    "linear": (LinearClass, ("regularizer", "penalty")),
    "finite": (FiniteClass, ("scale", "eps_s", "eps_t", "regularizer", "penalty")),
}

NUMBERS = ("scale", "eps_s", "eps_t")
"""Arguments of function classes that are numbers; the others are arrays."""


def named_sampler(name: str, env: Environment, arithmetic: str | int | None = None) -> Environment:
    """Return the sampler of a name on an environment; the environment itself, which `DMQ` takes, for "rollout".

    Parameters
    ----------
    name : {"rollout", "flow", "exact"}
    env : FiniteMDP, CompiledEnv, BatchEnvironment or Sampler
        A FiniteMDP for all samplers but "rollout".
    arithmetic : str or int, optional
        Arithmetic of the exact sampler; see `samplers.ExactSampler`.

    Raises
    ------
    ValueError
        If there is no such sampler, or it does not go with the environment or the arithmetic.
    """
    one_of("sampler", name, SAMPLERS)
    if arithmetic is not None and name != "exact":
        raise ValueError(f"arithmetic: expected only with the sampler exact, got {arithmetic} with {name}")
    if name == "rollout":
        return env
    if not isinstance(env, FiniteMDP):
        raise ValueError(f"sampler: {name} needs a FiniteMDP, got {type(env).__name__}")
    return FlowSampler(env) if name == "flow" else ExactSampler(env, "float64" if arithmetic is None else arithmetic)


def named_class(text: str | None) -> FunctionClass | None:
    """Return the function class that a text describes; None for None.

    Parameters
    ----------
    text : str or None
        "linear" or "finite", alone or with arguments of `LinearClass` and `FiniteClass`: numbers, or .npy files that
        hold arrays, as in "finite:scale=2,penalty=penalty.npy". Otherwise "module:function", where the function takes
        no arguments and returns a `FunctionClass`.

    Raises
    ------
    TypeError, ValueError
        If the text describes no function class; the message begins with "function_class".

    Examples
    --------
    >>> named_class("linear")
    LinearClass()
    >>> named_class("finite:scale=2")
    FiniteClass(scale=2.0)
    """
    if text is None:
        return None
    if not isinstance(text, str):
        raise TypeError(f"function_class: expected a text such as 'finite:scale=2', got {text!r}")
    name, colon, rest = text.partition(":")
    if name in CLASSES:
        kind, known = CLASSES[name]
        parts = re.split(r",(?=\w+=)", rest) if colon else []
        try:
            return kind(**dict(class_argument(part, known) for part in parts))
        except (TypeError, ValueError) as error:
            raise type(error)(f"function_class: {name}: {error}") from error
    if not colon:
        raise ValueError(
            f"function_class: expected {', '.join(CLASSES)} or module:function, got {text!r}; arguments are written as "
            "in finite:scale=2,penalty=FILE.npy"
        )
    function = imported("function_class", text)
    try:
        made = function()
    except Exception as error:  # whatever the function does
        raise ValueError(f"function_class: {text}() failed: {one_line(error)}") from error
    if not isinstance(made, FunctionClass) or isinstance(made, type):
        raise TypeError(f"function_class: expected {text}() to return a FunctionClass, got {made!r}")
    return made


def class_argument(text: str, known: tuple[str, ...]) -> tuple[str, Any]:
    """Read KEY=VALUE, where VALUE is a number or names a .npy file."""
    key, equals, value = text.partition("=")
    if not equals or key not in known:
        raise ValueError(f"expected KEY=VALUE with KEY among {', '.join(known)}, got {text!r}")
    if key in NUMBERS:
        try:
            return key, float(value)
        except ValueError:
            raise ValueError(f"{key}: expected a number, got {value!r}") from None
    if not value.endswith(".npy"):
        raise ValueError(f"{key}: expected a file that ends in .npy, got {value!r}")
    if not Path(value).is_file():
        raise ValueError(f"{key}: there is no file {value}")
    try:
        return key, np.load(value, allow_pickle=False)
    except Exception as error:  # NumPy raises many kinds of errors on damaged files
        raise ValueError(f"{key}: {value} cannot be read: {one_line(error)}") from error


def class_text(described: Mapping[str, Any]) -> str:
    """Return the description of a function class, as `FunctionClass.describe` gives it, on one line.

    >>> class_text(named_class("finite:scale=2").describe())
    'finite, scale = 2.0'
    """
    given = {key: value for key, value in described.items() if key != "name" and value is not None}
    # Digests of arrays are shortened.
    shown = [f"{key} = {value[:12] if isinstance(value, str) else value}" for key, value in given.items()]
    return ", ".join([described["name"], *shown])


def named_learner(env: Environment, given: Mapping[str, Any]) -> DMQ | SelfStopping:
    """Return the learner with the arguments that a shell or a sweep gave; None stands for a default."""
    chosen = {name: value for name, value in given.items() if value is not None}
    rng, variant = chosen.pop("rng", None), chosen.pop("variant", "sound")
    if (variant := variant_of(variant, chosen)) == ADAPTIVE:
        return SelfStopping(env, rng=rng, **{name: chosen[name] for name in AIM if name in chosen})
    options = {name: chosen.pop(name) for name in OPTIONS if name in chosen}
    if options.get("reuse") and "mixture" not in options:
        options["mixture"] = "stratified"  # which it implies
    return DMQ(env, variant=replace(VARIANTS[variant], **options) if options else variant, rng=rng, **chosen)


AIM = ("epsilon", "delta", "mode", "p_min")
OPTIONS = ("recheck", "accumulate", "reuse", "memo", "oracle", "mixture")


def imported(argument: str, name: str) -> Callable[..., Any]:
    """Return the function that "module:function" names.

    Raises
    ------
    ValueError
        If there is none; the message begins with the name of the argument.
    """
    module, _, attribute = name.partition(":")
    try:
        found: Any = getattr(importlib.import_module(module), attribute)
    except (Exception, SystemExit) as error:  # whatever the module does
        hint = ""
        if isinstance(error, ModuleNotFoundError) and f"{module}.".startswith(f"{error.name}."):
            hint = "; PYTHONPATH=DIR finds the modules in DIR"
        raise ValueError(f"{argument}: {name!r} cannot be imported: {one_line(error)}{hint}") from error
    if not callable(found):
        raise ValueError(f"{argument}: expected a function, and {name!r} is {type(found).__name__}")
    return found  # type: ignore[no-any-return]


def one_line(error: BaseException) -> str:
    """Return type and message of an exception on one line."""
    return " ".join(f"{type(error).__name__}: {error}".split())
