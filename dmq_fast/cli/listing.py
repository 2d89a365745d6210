"""``dmq-fast envs`` and ``dmq-fast algorithms``: list what a run or a sweep can name, with its parameters."""

from __future__ import annotations

import shutil
import textwrap
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from dmq_fast._support.json_text import to_json
from dmq_fast.cli.exit_codes import FINISHED, SHORT_EXIT_CODES
from dmq_fast.cli.options import command_parser
from dmq_fast.cli.terminal import output_apart, show, signals, usage_error

if TYPE_CHECKING:
    from dmq_fast._support.described import Parameter

__all__ = ["algorithms", "envs"]


def envs(arguments: Sequence[str]) -> int:
    """Run ``dmq-fast envs [NAME]``."""
    parser = command_parser(
        "envs",
        description="List the environments that dmq-fast run and sweeps can name, with their parameters.",
        epilog=SHORT_EXIT_CODES,
    )
    parser.add_argument("name", nargs="?", metavar="NAME", help="only this one; also gym:ID or module:function")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    options = parser.parse_args(arguments)

    from dmq_fast.environments import registry

    try:
        if options.name:
            summary, parameters = described_environment(options.name)
            data: dict[str, Any] = {options.name: {"summary": summary, "parameters": parameter_dicts(parameters)}}
            lines = [options.name, paragraph(summary), *parameter_lines(parameters)]
        else:
            known = registry.describe()
            data = {name: parameter_dicts(parameters) for name, parameters in known.items()}
            lines = [line for name, parameters in known.items() for line in (name, *parameter_lines(parameters))]
            lines += [
                "--env-file FILE:NAME",
                option_line(
                    "--make", "KEY=VALUE: argument of the function NAME in the Python file FILE; may be repeated"
                ),
                option_line(
                    "",
                    "An environment of your own: NAME returns a FiniteMDP, CompiledEnv, BatchEnvironment or Sampler, "
                    "an environment of Gymnasium's or dm_env's, or an object with reset and step.",
                ),
                "gym:ID",
                *parameter_lines(registry.describe_prefixed("gym:")),
                option_line("--make", "KEY=VALUE: argument of gymnasium.make; may be repeated"),
                option_line(
                    "", "Any Gymnasium environment with discrete actions, such as FrozenLake-v1 or Acrobot-v1."
                ),
                "bsuite:ID",
                *parameter_lines(registry.describe_prefixed("bsuite:")),
                option_line("", "An experiment of bsuite's and the number of its setting, such as deep_sea/10."),
            ]
    except ValueError as error:
        return usage_error(f"envs: {error}")
    return signals.code(show("envs", to_json(data) if options.json else "\n".join(lines), FINISHED))


def described_environment(name: str) -> tuple[str, tuple[Parameter, ...]]:
    """Return what an environment is, and its parameters; ValueError if there is none of this name."""
    from dmq_fast._support.described import parameters_of, summary_of
    from dmq_fast._support.imported import imported
    from dmq_fast.environments import registry
    from dmq_fast.environments.exams import bsuite_environment
    from dmq_fast.environments.gym.ids import gymnasium_environment

    if name.startswith(registry.PREFIXES):
        made = gymnasium_environment if name.startswith(registry.GYMNASIUM_PREFIX) else bsuite_environment
        return summary_of(made), registry.describe_prefixed(name)
    if name not in registry.REGISTRY and ":" not in name:
        registry.make(name)  # raises the error that lists the names
    with output_apart():
        factory = registry.REGISTRY.get(name) or imported("environment", name)
    return summary_of(factory), parameters_of(factory)


def algorithms(arguments: Sequence[str]) -> int:
    """Run ``dmq-fast algorithms [NAME]``."""
    parser = command_parser(
        "algorithms",
        description="List the algorithms that the specification of a sweep can name, with their parameters and "
        "defaults, as [[algorithms]] takes them. With NAME, say what each parameter of this one means.",
        epilog=SHORT_EXIT_CODES,
    )
    parser.add_argument("name", nargs="?", metavar="NAME", help="one of them, or module:function")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    options = parser.parse_args(arguments)

    from dmq_fast.experiments.sweeps.algorithms import REGISTRY, describe

    try:
        with output_apart():
            known = {name: describe(name) for name in ([options.name] if options.name else REGISTRY)}
    except ValueError as error:
        return usage_error(f"algorithms: {error}")
    data = {name: {"summary": text, "parameters": parameter_dicts(given)} for name, (text, given) in known.items()}
    lines: list[str] = []
    for name, (summary, parameters) in known.items():
        if options.name:
            lines += [name, paragraph(summary), *parameter_lines(parameters, flags=False)]
        else:
            given = (f"{one.name} = {one.default}" if one.default is not None else one.name for one in parameters)
            lines += [option_line(name, summary), option_line("", ", ".join(given))]
    return signals.code(show("algorithms", to_json(data) if options.json else "\n".join(lines), FINISHED))


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
        note = f"(default {parameter.default})" if parameter.default is not None else ""
        name = f"--{parameter.name.replace('_', '-')}" if flags else parameter.name
        text = [parameter.help, "(required)" if parameter.required else note]
        yield option_line(name, " ".join(filter(None, text)))


def option_line(flag: str, text: str) -> str:
    """Return one option of the listing, wrapped to the terminal."""
    return textwrap.fill(text, width(), initial_indent=f"  {flag:<15} ", subsequent_indent=" " * 18)


def paragraph(text: str) -> str:
    """Return a text wrapped to the terminal."""
    return textwrap.fill(text, width())


def width() -> int:
    """Return the width of the terminal, or one that can be read."""
    return max(40, shutil.get_terminal_size().columns)
