"""``dmq-fast envs``: list the environments and their parameters."""

from __future__ import annotations

import json
import shutil
import textwrap
from collections.abc import Sequence
from typing import TYPE_CHECKING

from dmq_fast.cli.exit_codes import FINISHED
from dmq_fast.cli.options import command_parser

if TYPE_CHECKING:
    from dmq_fast.environments.registry import Parameter

__all__ = ["envs"]


def envs(arguments: Sequence[str]) -> int:
    """Run ``dmq-fast envs``."""
    parser = command_parser("envs", description="List the environments that dmq-fast run and sweeps can name.")
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
        print(json.dumps(listing))
        return FINISHED
    for name, parameters in known.items():
        print(name)
        print_parameters(parameters)
    print("--env-file FILE:NAME")
    print_option("--make", "KEY=VALUE: argument of the function NAME in the Python file FILE; may be repeated")
    print_option("", "An environment of your own: NAME returns a FiniteMDP, CompiledEnv, BatchEnvironment or Sampler.")
    print("gym:ID")
    print_parameters(registry.describe_gymnasium())
    print_option("--make", "KEY=VALUE: argument of gymnasium.make; may be repeated")
    print_option("", "Any Gymnasium environment with discrete actions, such as FrozenLake-v1 or Acrobot-v1.")
    return FINISHED


def print_parameters(parameters: Sequence[Parameter]) -> None:
    """Print the parameters of one environment."""
    for parameter in parameters:
        if parameter.required:
            note = " (required)"
        else:
            note = "" if parameter.default is None else f" (default {parameter.default})"
        print_option(f"--{parameter.name.replace('_', '-')}", parameter.help + note)


def print_option(flag: str, text: str) -> None:
    """Print one option of the listing, wrapped to the terminal."""
    width = max(40, shutil.get_terminal_size().columns)
    indent = " " * 17
    print(textwrap.fill(text, width, initial_indent=f"  {flag:<15}", subsequent_indent=indent))
