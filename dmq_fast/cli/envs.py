"""``dmq-fast envs``: list the environments and their parameters."""

from __future__ import annotations

from collections.abc import Sequence

from dmq_fast._support.json_text import to_json
from dmq_fast.cli.exit_codes import FINISHED, SHORT_EXIT_CODES
from dmq_fast.cli.listing import option_line, paragraph, parameter_dicts, parameter_lines
from dmq_fast.cli.options import command_parser
from dmq_fast.cli.terminal import output_apart, show, signals, usage_error

__all__ = ["envs"]


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

    if options.name:
        return one(options.name, options.json)
    known = registry.describe()
    if options.json:
        listing = {name: parameter_dicts(parameters) for name, parameters in known.items()}
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


def one(name: str, as_json: bool) -> int:
    """Print what an environment is, and its parameters."""
    from dmq_fast._support.described import parameters_of, summary_of
    from dmq_fast._support.imported import imported
    from dmq_fast.environments import registry
    from dmq_fast.environments.gym.ids import gymnasium_environment

    try:
        if name in registry.REGISTRY:
            summary, parameters = summary_of(registry.REGISTRY[name]), registry.describe()[name]
        elif name.startswith(registry.GYMNASIUM_PREFIX):
            summary, parameters = summary_of(gymnasium_environment), registry.describe_gymnasium()
        elif ":" in name:
            with output_apart():
                factory = imported("environment", name)
            summary, parameters = summary_of(factory), parameters_of(factory)
        else:
            registry.make(name)  # raises the error that lists the names
    except ValueError as error:
        return usage_error(f"envs: {error}")
    if as_json:
        text = to_json({name: {"summary": summary, "parameters": parameter_dicts(parameters)}})
    else:
        text = "\n".join([name, paragraph(summary), *parameter_lines(parameters)])
    return signals.code(show("envs", text, FINISHED))
