"""What several commands read alike, and the options of ``run``, which depend on the environment."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from dmq_fast.cli import EXIT_CODES

__all__ = [
    "EVALUATION",
    "ShowVersion",
    "command_parser",
    "count",
    "environment_parser",
    "positive_integer",
    "resource_options",
    "run_options",
]

# Trajectories from which a value is estimated, unless --evaluate says otherwise.
EVALUATION = 1000


def command_parser(name: str = "", **settings: Any) -> argparse.ArgumentParser:
    """Build the parser of a command, which keeps the line breaks of its epilog and takes no abbreviated option."""
    return argparse.ArgumentParser(
        prog=f"dmq-fast {name}".strip(),
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
        **settings,
    )


class ShowVersion(argparse.Action):
    """Print the version and exit; argparse's own wants to know it beforehand, and to ask takes a third of --help."""

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        """Print it, and end the program."""
        from dmq_fast._version import __version__

        print(f"dmq-fast {__version__}")
        parser.exit()


def positive_integer(text: str) -> int:
    """Read an integer >= 1."""
    return integer_from(1, text)


def count(text: str) -> int:
    """Read an integer >= 0."""
    return integer_from(0, text)


def integer_from(least: int, text: str) -> int:
    """Read an integer >= `least`."""
    try:
        number = int(text)
    except ValueError:
        number = least - 1
    if number < least:
        raise argparse.ArgumentTypeError(f"expected an integer >= {least}, got {text!r}")
    return number


def key_value(text: str) -> tuple[str, Any]:
    """Split KEY=VALUE; VALUE is read as JSON, or taken as a string where it is none."""
    key, equals, value = text.partition("=")
    if not equals or not key:
        raise argparse.ArgumentTypeError(f"expected KEY=VALUE, got {text!r}")
    try:
        return key, json.loads(value)
    except json.JSONDecodeError:
        return key, value


def arithmetic(text: str) -> str | int:
    """Read what `samplers.ExactSampler` takes: a name, or a number of decimal digits."""
    try:
        return int(text)
    except ValueError:
        return text


def resource_options() -> argparse.ArgumentParser:
    """Build the options that ``run`` and ``resume`` share: none of them changes what a run decides."""
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    group = parser.add_argument_group("budgets")
    group.add_argument("--max-trajectories", type=int, metavar="N")
    group.add_argument("--max-policies", type=int, metavar="N", help="policies added to the covers")
    group.add_argument("--max-seconds", type=float, metavar="S")
    group = parser.add_argument_group("workers")
    group.add_argument(
        "--workers", type=positive_integer, metavar="N",
        help="threads (processes, of an environment in Python) that share batches of several chunks, which have up to "
        "16,384 trajectories (4,096)",
    )  # fmt: skip
    group = parser.add_argument_group("output")
    group.add_argument("--json", action="store_true", help="print one JSON object instead of a table")
    group.add_argument("--quiet", action="store_true", help="no progress line")
    return parser


def run_options() -> argparse.ArgumentParser:
    """Build the options of ``run`` that every environment shares."""
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False, parents=[resource_options()])
    group = parser.add_argument_group("algorithm (what is not given comes from the variant or the library)")
    group.add_argument("--variant", choices=["sound", "frugal", "paper"], help="default: sound")
    group.add_argument("--n-samples", type=int, metavar="N", help="trajectories per policy; default: 100")
    group.add_argument("--ratio", type=float, metavar="R", help="R = eps_t / eps_s of the oracle; default: 2")
    group.add_argument("--eps-s", type=float, metavar="X", help="eps_s; default: 1")
    group.add_argument("--eps-t", type=float, metavar="X", help="eps_t; default: R eps_s")
    group.add_argument("--eps-r", type=float, metavar="X", help="regulariser of the oracle; default: 0.01")
    group.add_argument("--ridge", type=float, metavar="X", help="lambda_ridge of the regression; default: 0.001")
    group.add_argument("--initial", choices=["uniform", "fixed"], help="first policy of every cover")
    group.add_argument("--recheck", action=argparse.BooleanOptionalAction, help="repeat checks until all is quiet")
    group.add_argument("--accumulate", action=argparse.BooleanOptionalAction, help="keep the moments that said True")
    group.add_argument("--reuse", action=argparse.BooleanOptionalAction, help="fit what was drawn for the checks")
    group.add_argument("--memo", action=argparse.BooleanOptionalAction, help="draw no policy twice")
    group.add_argument("--oracle", choices=["decision", "value"], help="one Cholesky factorisation or the eigenvalue")
    group.add_argument("--mixture", choices=["stratified", "multinomial"], help="how regression data mix policies")
    group.add_argument(
        "--sampler",
        choices=["rollout", "flow", "exact"],
        default="rollout",
        help="simulated trajectories, counts of any number of them, or expectations; default: rollout",
    )
    group.add_argument(
        "--arithmetic",
        type=arithmetic,
        metavar="rational|DIGITS",
        help="compute with --sampler exact in fractions or in so many decimal digits, where constants are far below "
        "float64's resolution; such a run keeps no journal",
    )
    group.add_argument("--seed", type=int, default=0, metavar="S", help="of the run; default: 0")
    group = parser.add_argument_group("saving")
    group.add_argument(
        "--out",
        type=Path,
        metavar="DIR",
        help="save the run: DIR/result.npz and DIR/run.json at its end, DIR/journal on the way, for dmq-fast resume",
    )
    group.add_argument("--overwrite", action="store_true", help="let --out replace a run saved in DIR")
    group = parser.add_argument_group("certificate")
    group.add_argument(
        "--certificate", action="store_true", help="also hold the run against the lemmas of the paper, one by one"
    )
    return parser


def environment_parser(name: str | None) -> tuple[argparse.ArgumentParser, list[str]]:
    """Build the parser of ``run NAME``; with it, the names of the environment's own parameters."""
    from dmq_fast.environments import registry

    parser = command_parser("run" if name is None else f"run {name}", parents=[run_options()], epilog=EXIT_CODES)
    group = parser.add_argument_group("environment")
    group.add_argument(
        "--evaluate", type=count, default=EVALUATION, metavar="N",
        help="trajectories drawn after the run, beyond its budgets, to estimate the value of its policy where no "
        f"table gives it; 0: none. Default: {EVALUATION:,}",
    )  # fmt: skip
    if name is None:
        group.add_argument(
            "--env-file", required=True, metavar="FILE:NAME",
            help="the function NAME in the Python file FILE returns a FiniteMDP, CompiledEnv, BatchEnvironment or "
            "Sampler",
        )  # fmt: skip
        group.add_argument("--make", action="append", type=key_value, metavar="KEY=VALUE", help="argument of NAME")
        return parser, []
    group.add_argument("--env-seed", type=int, default=0, metavar="S", help="what it is drawn from; default: 0")
    if name.startswith(registry.GYMNASIUM_PREFIX):
        parameters = registry.describe_gymnasium()
        group.add_argument(
            "--make", action="append", type=key_value, metavar="KEY=VALUE", help="argument of gymnasium.make"
        )
    else:
        known = registry.describe()
        if name not in known:
            registry.make(name)  # says which there are
        parameters = known[name]
    for parameter in parameters:
        flag = "--" + parameter.name.replace("_", "-")
        if parameter.required or parameter.default is None:
            help_text = parameter.help
        else:
            help_text = f"{parameter.help} Default: {parameter.default}"
        help_text = help_text.replace("%", "%%")
        if parameter.type is bool:
            group.add_argument(flag, action=argparse.BooleanOptionalAction, help=help_text)
        else:
            metavar = {int: "N", float: "X"}.get(parameter.type, "VALUE")
            group.add_argument(flag, type=parameter.type, required=parameter.required, metavar=metavar, help=help_text)
    return parser, [parameter.name for parameter in parameters]
