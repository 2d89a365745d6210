"""Parameters of functions and classes: names, types and defaults from signatures, meanings from docstrings."""

from __future__ import annotations

import functools
import inspect
import re
import typing
from collections.abc import Callable, Collection, Hashable
from typing import Any, NamedTuple

__all__ = ["Parameter", "meanings", "parameters_of", "summary_of"]


class Parameter(NamedTuple):
    """One parameter; ``default`` is ``inspect.Parameter.empty`` where it has to be given.

    `choices` holds all values, if the docstring lists them as in {"strict", "quick"}.
    """

    name: str
    type: type
    default: Any
    help: str
    choices: tuple[str, ...] = ()

    @property
    def required(self) -> bool:
        """Whether there is no default."""
        return self.default is inspect.Parameter.empty


def parameters_of(factory: Callable[..., Any], *, but: Collection[str] = ("rng",)) -> tuple[Parameter, ...]:
    """Return the parameters of a function or class in order, without those in `but`.

    The type of a parameter that may be None is that of its other values, that of one without a hint the type of its
    default.
    """
    find = read_parameters if isinstance(factory, Hashable) else read_parameters.__wrapped__
    return find(factory, tuple(but))


@functools.lru_cache(maxsize=256)
def read_parameters(factory: Callable[..., Any], but: tuple[str, ...]) -> tuple[Parameter, ...]:
    """Return the parameters of a function or class, read once: each run of a sweep asks for those of its own."""
    code = unwrapped(factory)
    types = typing.get_type_hints(called(code))
    help_of, choices_of = meanings(code), choices(code)
    return tuple(
        Parameter(
            name,
            one_type(types.get(name, type_of(given.default))),
            given.default,
            help_of.get(name, ""),
            choices_of.get(name, ()),
        )
        for name, given in inspect.signature(factory).parameters.items()
        if name not in but and given.kind not in (given.VAR_POSITIONAL, given.VAR_KEYWORD)
    )


def unwrapped(factory: Any) -> Any:
    """Return the function or class of a partial one."""
    while isinstance(factory, functools.partial):
        factory = factory.func
    return factory


def called(code: Any) -> Any:
    """Return the function that runs when a function, class or other object is called: it has the hints."""
    if inspect.isclass(code):
        return code.__init__
    return code if inspect.isroutine(code) else type(code).__call__


def type_of(default: Any) -> type:
    """Return the type of an argument that has no hint: that of its default, or else text."""
    return str if default in (None, inspect.Parameter.empty) else type(default)


def one_type(annotation: Any) -> type:
    """Return the one type of an annotation ``T`` or ``T | None``."""
    choices: list[type] = [choice for choice in typing.get_args(annotation) if choice is not type(None)]
    return choices[0] if choices else annotation


def entries(factory: Callable[..., Any]) -> dict[str, tuple[str, str]]:
    """Read the type and the description of each parameter from a numpydoc docstring."""
    sections = re.split(r"^(\w+)\n-+\n", f"{inspect.getdoc(factory)}\n", flags=re.MULTILINE)
    text = dict(zip(sections[1::2], sections[2::2], strict=True)).get("Parameters", "")
    found = re.findall(r"^(\w+(?:, \w+)*) : (.*)\n((?:^(?: +.*)?\n)+)", text, flags=re.MULTILINE)
    return {name: (kind, meaning) for names, kind, meaning in found for name in names.split(", ")}


def meanings(factory: Callable[..., Any]) -> dict[str, str]:
    """Return the description of each parameter, on one line."""
    return {name: " ".join(meaning.split()) for name, (_, meaning) in entries(factory).items()}


def choices(factory: Callable[..., Any]) -> dict[str, tuple[str, ...]]:
    """Return the values of each parameter whose type is a list of texts, as in {"strict", "quick"}."""
    listed = {name: re.match(r"\{(.*?)\}", kind) for name, (kind, _) in entries(factory).items()}
    return {name: tuple(re.findall(r'"(.*?)"', found[1])) for name, found in listed.items() if found}


def summary_of(factory: Callable[..., Any]) -> str:
    """Return the first paragraph of a docstring, on one line."""
    return " ".join((inspect.getdoc(unwrapped(factory)) or "").partition("\n\n")[0].split())
