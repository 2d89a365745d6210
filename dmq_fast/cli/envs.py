"""``dmq-fast envs``: list the environments and their parameters."""

from __future__ import annotations

import shutil
import textwrap
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from dmq_fast._support.json_text import to_json
from dmq_fast.cli.exit_codes import FINISHED, SHORT_EXIT_CODES
from dmq_fast.cli.options import command_parser
from dmq_fast.cli.terminal import show, signals

if TYPE_CHECKING:
    from dmq_fast.environments.registry import Parameter

__all__ = ["envs"]


def envs(arguments: Sequence[str]) -> int:
    """Run ``dmq-fast envs``."""
    parser = command_parser(
        "envs",
        description="List the environments that dmq-fast run and sweeps can name.",
        epilog=SHORT_EXIT_CODES,
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    options = parser.parse_args(arguments)

    from dmq_fast.environments import registry

    known = registry.describe()
    if options.json:
        listing = {
            name: [
                {
                    "name": parameter.name,
                    "type": parameter.type.__name__,
                    "required": parameter.required,
                    "default": None if parameter.required else parameter.default,
                    "help": parameter.help,
                }
                for parameter in parameters
            ]
            for name, parameters in known.items()
        }
        return signals.code(show("envs", to_json(listing), FINISHED))
    lines: list[str] = []
    for name, parameters in known.items():
        lines += [name, *parameter_lines(parameters)]
    lines += [
        "--env-file FILE:NAME",
        option_line("--make", "KEY=VALUE: argument of the function NAME in the Python file FILE; may be repeated"),
        option_line(
            "", "An environment of your own: NAME returns a FiniteMDP, CompiledEnv, BatchEnvironment or Sampler."
        ),
        "gym:ID",
        *parameter_lines(registry.describe_gymnasium()),
        option_line("--make", "KEY=VALUE: argument of gymnasium.make; may be repeated"),
        option_line("", "Any Gymnasium environment with discrete actions, such as FrozenLake-v1 or Acrobot-v1."),
    ]
    return signals.code(show("envs", "\n".join(lines), FINISHED))


def parameter_lines(parameters: Sequence[Parameter]) -> Iterator[str]:
    """Yield the lines of the parameters of one environment."""
    for parameter in parameters:
        if parameter.required:
            note = " (required)"
        else:
            note = "" if parameter.default is None else f" (default {parameter.default})"
        yield option_line(f"--{parameter.name.replace('_', '-')}", parameter.help + note)


def option_line(flag: str, text: str) -> str:
    """Return one option of the listing, wrapped to the terminal."""
    width = max(40, shutil.get_terminal_size().columns)
    return textwrap.fill(text, width, initial_indent=f"  {flag:<15}", subsequent_indent=" " * 17)
