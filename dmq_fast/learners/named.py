"""Learners as a shell and a TOML file give them: their arguments, and the objects that texts can only name.

The arguments come from signatures and docstrings, so each is described once. `SPELLED` has the few that are no numbers,
names or booleans.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from typing import Any

from dmq_fast._support.checks import one_of
from dmq_fast._support.described import Parameter, parameters_of
from dmq_fast._support.imported import imported, one_line
from dmq_fast.covers.options import VARIANTS, Options
from dmq_fast.engine.learner import Environment, Learner
from dmq_fast.environments.finite import FiniteMDP
from dmq_fast.function_class import FiniteClass, FunctionClass, LinearClass
from dmq_fast.learners.dmq import DMQ
from dmq_fast.learners.self_stopping import SelfStopping
from dmq_fast.rewards import SEEN
from dmq_fast.samplers import ExactSampler, FlowSampler

__all__ = [
    "LEARNERS",
    "SPELLED",
    "as_given",
    "decisions_of",
    "named_class",
    "named_learner",
    "read_text",
    "resources_of",
]

LEARNERS: dict[str, type[DMQ] | type[SelfStopping]] = {"self-stopping": SelfStopping, "dmq": DMQ}
"""The learners by name."""

NOT_TEXT = ("executor", "journal", "progress", "rng", "env", "tuning")
"""Arguments that take objects of Python, or that a shell and a sweep give in another way."""

CLASSES: dict[str, tuple[Callable[..., FunctionClass], tuple[str, ...]]] = {
    "linear": (LinearClass, ()),
    "finite": (FiniteClass, ("scale", "eps_s", "eps_t")),
}
"""Function classes by name, with their arguments, which are numbers."""


# ---- Arguments


def decisions_of(name: str) -> tuple[Parameter, ...]:
    """Return the arguments of the learner of a name that a text can give, with those of its sampler and its options.

    An option without a value is that of the variant.
    """
    own = offered(LEARNERS[name], ())
    if name != "dmq":
        return own
    options = tuple(one._replace(default=None) for one in offered(Options, ("initial",)))
    return (*offered(named_sampler, ()), *own, *options)


def resources_of(name: str) -> tuple[Parameter, ...]:
    """Return the arguments of `learn` of the learner of a name that a text can give."""
    common = {one.name: one for one in offered(Learner.learn, ("self",))}
    own = offered(LEARNERS[name].learn, ("self",))
    return tuple(one if one.help else common.get(one.name, one) for one in own)


def offered(function: Callable[..., Any], but: Collection[str]) -> tuple[Parameter, ...]:
    """Return the parameters of a function that a text can give, with how to spell those that are objects."""
    found = parameters_of(function, but=(*NOT_TEXT, *but))
    return tuple(
        one._replace(type=str, choices=(), help=f"{one.help} {SPELLED[one.name]}".strip())
        if one.name in SPELLED
        else one
        for one in found
    )


SPELLED = {
    "initial": "As a text: uniform, fixed, or actions such as 0,1,1,0; several sequences with / between them.",
    "function_class": "As a text: linear or finite, with arguments as in finite:eps_s=0.01,scale=2, or "
    "MODULE:FUNCTION, which returns a FunctionClass.",
    "epsilon": "",
    "value_range": "As a text: LOW,HIGH, one such pair for each level with / between them, or seen.",
    "homogeneous": "As a text: auto, yes, no, or labels such as 0,0,0,1.",
}
"""Arguments that take objects, or more than one type, and how a text gives them."""


def read_text(name: str, text: str) -> Any:
    """Return the value of an argument that is not always a number, such as the actions of `initial`.

    >>> read_text("initial", "fixed"), read_text("initial", "0,1,2/2,1,0"), read_text("arithmetic", "60")
    ('fixed', [[0, 1, 2], [2, 1, 0]], 60)
    >>> read_text("epsilon", ".1"), read_text("epsilon", "5%"), read_text("value_range", "-20,0")
    (0.1, '5%', (-20.0, 0.0))
    """
    if name == "arithmetic":
        return int(text) if text.isdecimal() else text
    if name == "epsilon":
        return share_or_points(text)
    if name == "value_range":
        return text if text == SEEN else range_of(text)
    if name == "homogeneous":
        return labels_of(text)
    if name != "initial" or text in ("uniform", "fixed"):
        return text
    try:
        return [[int(action) for action in sequence.split(",")] for sequence in text.split("/")]
    except ValueError:
        raise ValueError(f"expected uniform, fixed, or actions such as 0,1,2, got {text!r}") from None


def labels_of(text: str) -> bool | str | list[int]:
    """Return which levels are the same: auto, yes, no, or a label for each of them."""
    if text in ("auto", "yes", "no"):
        return text if text == "auto" else text == "yes"
    try:
        return [int(label) for label in text.split(",")]
    except ValueError:
        raise ValueError(f"expected auto, yes, no, or labels such as 0,0,0,1, got {text!r}") from None


def share_or_points(text: str) -> float | str:
    """Return an accuracy: a number of points, or the text of a share."""
    if text.endswith("%"):
        return text
    try:
        return float(text)
    except ValueError:
        raise ValueError(f"expected a number of points, or a share such as 5%, got {text!r}") from None


def as_given(name: str, value: Any) -> Any:
    """Return the value of an argument that may be a text; errors name the argument."""
    if not isinstance(value, str):
        return value
    try:
        return read_text(name, value)
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from error


def range_of(text: str) -> tuple[float, ...] | list[tuple[float, ...]]:
    """Return the pair of numbers that a text holds, or several with / between them."""
    try:
        pairs = [tuple(float(end) for end in pair.split(",")) for pair in text.split("/")]
    except ValueError:
        pairs = []
    if not pairs or any(len(pair) != 2 for pair in pairs):
        raise ValueError(f"expected the least and the largest sum of rewards, such as -20,0, or {SEEN}, got {text!r}")
    return pairs[0] if len(pairs) == 1 else pairs


# ---- Objects


def named_learner(name: str, env: Environment, given: Mapping[str, Any]) -> DMQ | SelfStopping:
    """Return the learner of a name with these arguments: those of `decisions_of`, and `rng`. None is a default."""
    chosen = {key: value for key, value in given.items() if value is not None}
    # Texts, as a sweep gives them, where lists are grids.
    chosen |= {key: as_given(key, chosen[key]) for key in ("homogeneous", "value_range") if key in chosen}
    if name == "self-stopping":
        return SelfStopping(env, **chosen)
    env = named_sampler(env, **{key: chosen.pop(key) for key in ("sampler", "arithmetic") if key in chosen})
    options = {one.name: chosen.pop(one.name) for one in offered(Options, ("initial",)) if one.name in chosen}
    if options:
        if options.get("reuse") or not env_in_float64(env):  # which both imply
            options = {"mixture": "stratified"} | options
        variant = one_of("variant", chosen.get("variant", "sound"), VARIANTS)
        chosen["variant"] = replace(VARIANTS[variant], **options)
    if "function_class" in chosen:
        chosen["function_class"] = named_class(chosen["function_class"])
    return DMQ(env, **chosen)


def env_in_float64(env: Environment) -> bool:
    """Whether trajectories are counted in float64."""
    return not isinstance(env, ExactSampler) or env.arithmetic.is_float64


def named_sampler(env: Environment, sampler: str = "rollout", arithmetic: str | int | None = None) -> Environment:
    """Return the sampler of a name on an environment; the environment itself, which `DMQ` takes, for "rollout".

    Parameters
    ----------
    env : FiniteMDP, CompiledEnv, BatchEnvironment or Sampler
        A FiniteMDP for all samplers but "rollout".
    sampler : {"rollout", "flow", "exact"}
        Simulated trajectories; or counts of any number of them; or expectations. The last two need a FiniteMDP.
    arithmetic : str or int, optional
        Of the exact sampler: rational, or a number of decimal digits, for constants below the resolution of float64.

    Raises
    ------
    ValueError
        If there is no such sampler, or it does not go with the environment or the arithmetic.
    """
    one_of("sampler", sampler, ("rollout", "flow", "exact"))
    if arithmetic is not None and sampler != "exact":
        raise ValueError(f"arithmetic: expected only with the sampler exact, got {arithmetic} with {sampler}")
    if sampler == "rollout":
        return env
    if not isinstance(env, FiniteMDP):
        raise ValueError(f"sampler: {sampler} needs a FiniteMDP, got {type(env).__name__}")
    return FlowSampler(env) if sampler == "flow" else ExactSampler(env, "float64" if arithmetic is None else arithmetic)


def named_class(text: str | None) -> FunctionClass | None:
    """Return the function class that a text describes; None for None.

    Parameters
    ----------
    text : str or None
        "linear", or "finite", alone or with arguments of `FiniteClass`, as in "finite:scale=2,eps_s=0.01". Otherwise
        "module:function", where the function takes no arguments and returns a `FunctionClass`.

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
            "in finite:scale=2"
        )
    function = imported("function_class", text)
    try:
        made = function()
    except Exception as error:  # whatever the function does
        raise ValueError(f"function_class: {text}() failed: {one_line(error)}") from error
    if not isinstance(made, FunctionClass) or isinstance(made, type):
        raise TypeError(f"function_class: expected {text}() to return a FunctionClass, got {made!r}")
    return made


def class_argument(text: str, known: tuple[str, ...]) -> tuple[str, float]:
    """Read KEY=VALUE, where VALUE is a number."""
    key, equals, value = text.partition("=")
    if not equals or key not in known:
        raise ValueError(f"expected KEY=VALUE with KEY among {', '.join(known) or 'none'}, got {text!r}")
    try:
        return key, float(value)
    except ValueError:
        raise ValueError(f"{key}: expected a number, got {value!r}") from None
