"""Lists of parameters with their defaults and meanings, for the commands that describe environments and algorithms."""

from __future__ import annotations

import shutil
import textwrap
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dmq_fast._support.described import Parameter

__all__ = ["option_line", "paragraph", "parameter_dicts", "parameter_lines"]


def parameter_dicts(parameters: Sequence[Parameter]) -> list[dict[str, Any]]:
    """Return parameters as plain data."""
    return [
        {
            "name": parameter.name,
            "type": getattr(parameter.type, "__name__", str(parameter.type)),
            "required": parameter.required,
            "default": None if parameter.required else parameter.default,
            "help": parameter.help,
        }
        for parameter in parameters
    ]


def parameter_lines(parameters: Sequence[Parameter], *, flags: bool = True) -> Iterator[str]:
    """Yield the lines of parameters, spelled as options of the shell or as keys of a specification."""
    for parameter in parameters:
        if parameter.required:
            note = "(required)"
        else:
            note = "" if parameter.default is None else f"(default {parameter.default})"
        name = f"--{parameter.name.replace('_', '-')}" if flags else parameter.name
        yield option_line(name, " ".join(filter(None, [parameter.help, note])))


def option_line(flag: str, text: str) -> str:
    """Return one option of the listing, wrapped to the terminal."""
    return textwrap.fill(text, width(), initial_indent=f"  {flag:<15} ", subsequent_indent=" " * 18)


def paragraph(text: str) -> str:
    """Return a text wrapped to the terminal."""
    return textwrap.fill(text, width())


def width() -> int:
    """Return the width of the terminal, or one that can be read."""
    return max(40, shutil.get_terminal_size().columns)
