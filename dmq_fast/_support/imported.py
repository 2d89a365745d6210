"""Functions that a text names, as "module:function"."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

__all__ = ["imported", "one_line"]


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
