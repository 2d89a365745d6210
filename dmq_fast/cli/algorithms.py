"""``dmq-fast algorithms``: list the algorithms of sweeps and their parameters."""

from __future__ import annotations

from collections.abc import Sequence

from dmq_fast._support.json_text import to_json
from dmq_fast.cli.exit_codes import FINISHED, SHORT_EXIT_CODES
from dmq_fast.cli.listing import option_line, paragraph, parameter_dicts, parameter_lines
from dmq_fast.cli.options import command_parser
from dmq_fast.cli.terminal import output_apart, show, signals, usage_error

__all__ = ["algorithms"]


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
    if options.json:
        listing = {
            name: {"summary": summary, "parameters": parameter_dicts(parameters)}
            for name, (summary, parameters) in known.items()
        }
        return signals.code(show("algorithms", to_json(listing), FINISHED))
    if options.name:
        summary, parameters = known[options.name]
        lines = [options.name, paragraph(summary), *parameter_lines(parameters, flags=False)]
    else:
        lines = []
        for name, (summary, parameters) in known.items():
            given = (f"{one.name} = {one.default}" if one.default is not None else one.name for one in parameters)
            lines += [option_line(name, summary), option_line("", ", ".join(given))]
    return signals.code(show("algorithms", "\n".join(lines), FINISHED))
