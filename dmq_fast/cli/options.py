"""The parsers of the command line, and the options of ``learn`` and ``run``, which depend on the environment.

The options for the arguments of a learner and of an environment are made from their docstrings.
"""

from __future__ import annotations

import argparse
import functools
import itertools
import json
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from dmq_fast._support.names import suggestion
from dmq_fast.cli.exit_codes import EXIT_CODES, USAGE

if TYPE_CHECKING:
    from dmq_fast._support.described import Parameter

__all__ = [
    "EVALUATION",
    "EXAMPLES",
    "HelpFormatter",
    "ShowVersion",
    "add_resources",
    "as_options",
    "command_parser",
    "environment_parser",
    "full_path",
    "learner_options",
    "nonnegative_integer",
    "path",
    "positive_integer",
    "reader",
]

EVALUATION = 1000
"""Default of ``--evaluate``."""

EXAMPLES = """\
examples:
  dmq-fast learn lock --horizon 100 --epsilon 0.05
  dmq-fast learn gym:CliffWalking-v1 --horizon 20 --epsilon 5%
  dmq-fast run lock --horizon 100 --n-samples 20
  dmq-fast run decoy --horizon 12 --variant paper --ratio 8 --n-samples 2000
  dmq-fast run decoy --horizon 60 --variant paper --ratio 8 --sampler exact
  dmq-fast learn FrozenLake-v1 --horizon 20 --make is_slippery=false
  dmq-fast learn bsuite:deep_sea/10
  dmq-fast run cart-pole --horizon 50 --max-trajectories 100000
  dmq-fast learn --env-file my_env.py:make_env --make size=5
  dmq-fast learn --env-file my_env.py:make_env --check
  dmq-fast learn chain --horizon 20 --out run1; dmq-fast resume run1
  dmq-fast bench oracle
  dmq-fast theory --gamma 0.5 --d 2 --H 5 --K 2
  dmq-fast report run1
  dmq-fast exam --only river-swim,chain
  dmq-fast sweep locks.toml --out locks --export locks.csv
"""


def command_parser(name: str = "", **settings: Any) -> argparse.ArgumentParser:
    """Build the parser of a command, which accepts no abbreviated option."""
    return Parser(prog=f"dmq-fast {name}".strip(), formatter_class=HelpFormatter, allow_abbrev=False, **settings)


class Parser(argparse.ArgumentParser):
    """Suggests a similar name for an unknown option or choice, and prints errors on one line.

    What begins with a minus and a digit or point is no option but a value, such as -1e3 or -20,0.
    """

    def __init__(self, *arguments: Any, **settings: Any) -> None:
        super().__init__(*arguments, **settings)
        self._negative_number_matcher = re.compile(r"-\.?\d")

    def error(self, message: str) -> NoReturn:
        """Print the message, without the usage, which has twenty lines or more for ``run``; end with exit code 2."""
        self.exit(USAGE, f"{self.prog}: {message} (see {self.prog} --help)\n")

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Refuse a misspelt option before argparse reports the required ones, of which it may be one."""
        given = list(itertools.takewhile(lambda argument: argument != "--", args or ()))
        if self._subparsers is not None:  # what comes after a command is left to the parser of the command
            given = list(itertools.takewhile(lambda argument: argument.startswith("-"), given))
        if not {"-h", "--help"}.intersection(given):
            known = self._option_string_actions
            for option in (argument.partition("=")[0] for argument in given if argument.startswith("--")):
                if option not in known and (near := suggestion(option, known)):
                    self.error(f"unrecognized argument {option}{near}")
        return super().parse_known_args(args, namespace)

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        try:
            super()._check_value(action, value)
        except argparse.ArgumentError as error:
            error.message += suggestion(str(value), list(map(str, action.choices or ())))
            raise


class HelpFormatter(argparse.HelpFormatter):
    """Wraps all texts but the epilogs, which are tables: those that have several lines."""

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        return text if "\n" in text else super()._fill_text(text, width, indent)


class ShowVersion(argparse.Action):
    """Print the version and exit.

    argparse's own action needs the version when the parser is built, which would slow down every ``--help``.
    """

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        """Print the version and end the program."""
        from dmq_fast._version import __version__

        print(f"dmq-fast {__version__}")
        parser.exit()


def positive_integer(text: str) -> int:
    """Read an integer >= 1."""
    return integer_from(1, text)


def nonnegative_integer(text: str) -> int:
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


def path(text: str) -> Path:
    """Read a path; an empty text, as of a variable that is not set, would be the working directory."""
    if not text:
        raise argparse.ArgumentTypeError("expected a path, got an empty text")
    return Path(text)


def full_path(text: str) -> Path:
    """Read a path, and keep its meaning: the code of an environment may change the working directory."""
    try:
        return path(text).absolute()
    except FileNotFoundError as error:
        raise argparse.ArgumentTypeError(f"{text} is in the working directory, which was removed") from error


def key_value(text: str) -> tuple[str, Any]:
    """Split KEY=VALUE; VALUE is JSON or a number as Python writes it, such as .5, 1. or +1, and otherwise a string."""
    key, equals, value = text.partition("=")
    if not equals or not key:
        raise argparse.ArgumentTypeError(f"expected KEY=VALUE, got {text!r}")
    try:
        return key, json.loads(value)
    except json.JSONDecodeError:
        number = NUMBER.fullmatch(value)
        return key, value if number is None else float(value) if number["fraction"] else int(value)


NUMBER = re.compile(r"[+-]?(?=\.?\d)(0|[1-9]\d*)?(?P<fraction>(\.\d*)?([eE][+-]?\d+)?)")
"""A decimal number, of which JSON takes some; no digits after a leading 0, as in names such as 007."""


def add_parameter(group: argparse._ArgumentGroup, parameter: Parameter, read: Callable[[str], Any]) -> None:
    """Add the option --NAME for a parameter, for a boolean also --no-NAME; `read` returns the value of a text."""
    flag = "--" + parameter.name.replace("_", "-")
    end = " Required." if parameter.required else "" if parameter.default is None else f" Default: {parameter.default}."
    help_text = (parameter.help + end).replace("%", "%%")
    if parameter.type is bool:
        group.add_argument(flag, action=argparse.BooleanOptionalAction, help=help_text)
        return
    if parameter.name == "value_range":
        group.add_argument(flag, action=Joined, type=str, nargs="+", read=read, metavar="LOW HIGH", help=help_text)
        return
    group.add_argument(
        flag,
        type=reader(read),
        required=parameter.required,
        choices=parameter.choices or None,
        metavar=None if parameter.choices else {int: "N", float: "X"}.get(parameter.type, "VALUE"),
        help=help_text,
    )


class Joined(argparse.Action):
    """Store what `read` makes of the texts of an option, joined by commas: LOW HIGH is LOW,HIGH."""

    def __init__(self, *arguments: Any, read: Callable[[str], Any], **settings: Any) -> None:
        super().__init__(*arguments, **settings)
        self.read = read

    def __call__(self, parser: argparse.ArgumentParser, namespace: argparse.Namespace, values: Any, *_: object) -> None:
        """Store the value."""
        try:
            setattr(namespace, self.dest, self.read(",".join(values)))
        except ValueError as error:
            raise argparse.ArgumentError(self, str(error)) from error


def reader(read: Callable[[str], Any]) -> Callable[[str], Any]:
    """Return a function that argparse can call: one whose error messages it shows."""
    numbers = {int: "an integer", float: "a number"}

    def read_text(text: str) -> Any:
        try:
            return read(text)
        except ValueError as error:
            expected = f"expected {numbers[read]}, got {text!r}" if read in numbers else str(error)
            raise argparse.ArgumentTypeError(expected) from error

    return read_text


def add_parameters(parser: argparse.ArgumentParser, title: str, parameters: Sequence[Parameter]) -> None:
    """Add the options for parameters of a learner."""
    from dmq_fast.learners.named import read_text

    group = parser.add_argument_group(title)
    for one in parameters:
        add_parameter(group, one, functools.partial(read_text, one.name) if one.type is str else one.type)


def add_resources(parser: argparse.ArgumentParser, learner: str) -> None:
    """Add the options that a command and ``resume`` share: none of them changes what a run decides."""
    from dmq_fast.learners.named import resources_of

    add_parameters(parser, "budgets and workers", resources_of(learner))
    group = parser.add_argument_group("output")
    group.add_argument("--json", action="store_true", help="print one JSON object instead of a table")
    group.add_argument("--quiet", action="store_true", help="show no progress line")


def learner_options(learner: str) -> argparse.ArgumentParser:
    """Build the options of ``learn`` or ``run`` that every environment shares."""
    from dmq_fast.learners.named import decisions_of

    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    add_parameters(parser, "algorithm", decisions_of(learner))
    parser.add_argument("--seed", type=nonnegative_integer, default=0, metavar="S", help="seed of the run; default: 0")
    add_resources(parser, learner)
    group = parser.add_argument_group("saving")
    group.add_argument(
        "--out",
        type=full_path,
        metavar="DIR",
        help="save the run: DIR/journal while it runs, from which dmq-fast resume continues it"
        f"{' (none with --arithmetic)' if learner == 'dmq' else ''}, DIR/result.npz and DIR/run.json at its end",
    )
    group.add_argument("--overwrite", action="store_true", help="let --out replace a run saved in DIR")
    if learner == "dmq":
        group = parser.add_argument_group("certificate")
        group.add_argument(
            "--certificate", action="store_true", help="compare the run with the lemmas of the paper, one by one"
        )
    return parser


def as_options(message: str) -> str:
    """Return a message that names arguments of Python with the options in their place.

    >>> as_options("such as value_range=(-20, 0), or noise=, the standard deviation")
    'such as --value-range -20 0, or --noise, the standard deviation'
    """
    message = re.sub(r"value_range ?= ?\(([^,()]+), ([^,()]+)\)", r"--value-range \1 \2", message)
    return re.sub(r"\bnoise=", "--noise", message)


def add_make(group: argparse._ArgumentGroup, help_text: str) -> None:
    """Add the option --make."""
    group.add_argument("--make", action="append", type=key_value, metavar="KEY=VALUE", help=help_text)


def environment_parser(command: str, learner: str, name: str | None) -> tuple[argparse.ArgumentParser, list[str]]:
    """Return the parser of a command such as ``run NAME``, and the names of the environment's parameters."""
    from dmq_fast._support.described import parameters_of
    from dmq_fast.environments import as_environment, registry
    from dmq_fast.learners.named import decisions_of

    parser = command_parser(
        command if name is None else f"{command} {name}", parents=[learner_options(learner)], epilog=EXIT_CODES
    )
    group = parser.add_argument_group("environment")
    group.add_argument(
        "--check", action="store_true",
        help="learn nothing: simulate a few episodes in many ways, and list what is wrong with the environment",
    )  # fmt: skip
    group.add_argument(
        "--evaluate", type=nonnegative_integer, default=EVALUATION, metavar="N",
        help="number of trajectories drawn after the run, beyond its budgets, to estimate the value of its policy if "
        f"the environment has no tables to compute it from; default: {EVALUATION:,}",
    )  # fmt: skip
    if name is None:
        group.add_argument(
            "--env-file", required=True, metavar="FILE:NAME",
            help="the function NAME in the Python file FILE returns an environment: a FiniteMDP, CompiledEnv, "
            "BatchEnvironment or Sampler, an environment of Gymnasium's or dm_env's, or an object with reset and step",
        )  # fmt: skip
        add_make(group, "argument of NAME")
        group.add_argument(
            "--env-seed", type=nonnegative_integer, metavar="S",
            help="seed of the environment, for a parameter rng or seed of NAME; default: that of NAME",
        )  # fmt: skip
        for parameter in parameters_of(as_environment, but=("source", "rng", "box")):
            add_parameter(group, parameter, parameter.type)
        return parser, []
    group.add_argument(
        "--env-seed", type=nonnegative_integer, default=0, metavar="S", help="seed of the environment; default: 0"
    )
    if name.startswith(registry.PREFIXES):
        parameters = registry.describe_prefixed(name)
        add_make(
            group, "argument of gymnasium.make" if name.startswith(registry.GYMNASIUM_PREFIX) else argparse.SUPPRESS
        )
    else:
        known = registry.describe()
        if name not in known:
            registry.make(name)  # raises the error that lists the names
        parameters = known[name]
        add_make(group, argparse.SUPPRESS)  # to say what is to be given instead
    # What a learner takes, such as value_range, it takes in place of what the environment would declare.
    own = [parameter for parameter in parameters if parameter.name not in {one.name for one in decisions_of(learner)}]
    for parameter in own:
        add_parameter(group, parameter, parameter.type)
    return parser, [parameter.name for parameter in own]
