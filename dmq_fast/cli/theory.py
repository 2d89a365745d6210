"""``dmq-fast theory``: compare the constants printed in the paper with corrected ones, for one problem."""

from __future__ import annotations

import argparse
import math
from collections.abc import Iterator, Sequence
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from dmq_fast._support.json_text import to_json
from dmq_fast.cli.exit_codes import FINISHED, SHORT_EXIT_CODES
from dmq_fast.cli.options import command_parser, positive_integer
from dmq_fast.cli.terminal import show, signals, usage_error

if TYPE_CHECKING:
    from dmq_fast.theory import Parameters

__all__ = ["constants_summary", "constants_table", "theory"]

SETS = ("printed", "corrected")

WIDTH = 78
"""Column width of a formula."""

SMALLEST = "e^-65536"
"""Smallest epsilon that `Parameters.largest_epsilon` tries."""

# Fields of `Parameters`, and their names in the table.
CONSTANTS = {
    "eps_t": "eps_t",
    "eps_s": "eps_s",
    "eps_r": "eps_r",
    "eps_n": "eps_N",
    "ridge": "lambda_ridge",
    "cover_bound": "B",
    "n_samples": "N",
    "trajectories": "trajectories <=",
}


def decimal_number(text: str) -> Decimal:
    """Read a number, also one beyond the range of float64."""
    try:
        return Decimal(text)
    except ArithmeticError:
        raise argparse.ArgumentTypeError(f"expected a number, got {text!r}") from None


OPTIONS = {
    "gamma": (
        decimal_number,
        None,
        "minimum gap between the best and the second-best action, in units of the value range",
    ),
    "d": (positive_integer, None, "dimension of the features"),
    "H": (positive_integer, None, "horizon"),
    "K": (positive_integer, None, "number of actions"),
    "C": (decimal_number, "1", "constant C of the Low Variance condition"),
    "epsilon": (decimal_number, "0.1", "accuracy epsilon of the returned policy, in units of the value range"),
    "delta": (decimal_number, "0.1", "probability of failure, for the corrected constants"),
    "noise": (decimal_number, "0", "standard deviation of the noise of a reward, as gamma in units of the value range"),
}
"""Type, default and meaning of each option."""


def theory(arguments: Sequence[str]) -> int:
    """Run ``dmq-fast theory``."""
    parser = command_parser(
        "theory",
        description="Compare the constants that the proof of Theorem 6.1 prescribes with corrected ones. For both, "
        "print the inequalities that the proof needs, the largest epsilon for which all of them hold, and the number "
        "of trajectories for that epsilon.",
        epilog=SHORT_EXIT_CODES,
    )
    for name, (kind, default, text) in OPTIONS.items():
        need = {"required": True} if default is None else {"default": default}
        end = "" if default is None else f"; default: {default}"
        metavar = "N" if kind is positive_integer else "X"
        parser.add_argument(f"--{name}", type=kind, metavar=metavar, help=text + end, **need)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    given = vars(parser.parse_args(arguments))
    as_json = given.pop("json")
    try:
        description = constants_summary(**given)
    except ValueError as error:
        return usage_error(f"theory: --{error}")
    text = to_json(description) if as_json else constants_table(description)
    return signals.code(show("theory", text, FINISHED))


def constants_summary(
    epsilon: Decimal,
    gamma: Decimal,
    C: Decimal,
    d: int,
    H: int,
    K: int,
    *,
    delta: Decimal = Decimal("0.1"),
    noise: Decimal = Decimal(0),
) -> dict[str, Any]:
    """Return the constants and inequalities of a problem as plain data.

    Numbers that may be beyond float64 are written as {"value": text such as "4.5e+72", "log10": float}.

    Raises
    ------
    TypeError, ValueError
        As `Parameters.from_theorem`.
    """
    from dmq_fast.theory import Parameters

    summary = {}
    for name in SETS:
        parameters = Parameters.from_theorem(
            epsilon, gamma, C, d, H, K, corrected=name == "corrected", delta=delta, noise=noise
        )
        largest = parameters.largest_epsilon()
        summary[name] = {
            **constants(parameters),
            "inequalities": [
                {
                    **one._asdict(),
                    "holds": one.holds,
                    "largest_epsilon": parameters.largest_epsilon(one.name),
                }
                for one in parameters.check()
            ],
            "largest_epsilon": largest,
            "at_largest_epsilon": None if largest is None else constants(parameters.at(largest)),
        }
    problem = {name: getattr(parameters, name) for name in ("epsilon", "gamma", "C", "delta", "d", "H", "K")}
    problem |= {"noise": parameters.noise} if parameters.noise else {}
    return plain({"problem": problem, **summary})  # type: ignore[no-any-return]


def constants(parameters: Parameters) -> dict[str, Any]:
    """Return the constants, and the arguments of `DMQ` for them or the reason why there are none."""
    try:
        arguments, why = parameters.dmq_arguments(), None
    except ValueError as error:
        arguments, why = None, str(error)
    return {
        "constants": {name: getattr(parameters, name) for name in CONSTANTS},
        "dmq_arguments": arguments,
        "not_runnable": why,
    }


def plain(data: Any) -> Any:
    """Return nested data with each positive Decimal as its text and logarithm."""
    if isinstance(data, Decimal):
        return {"value": f"{data:.12g}", "log10": float(data.log10())}
    if isinstance(data, dict):
        return {name: plain(value) for name, value in data.items()}
    return [plain(one) for one in data] if isinstance(data, list) else data


def constants_table(description: dict[str, Any]) -> str:
    """Return a summary as a table."""
    return "\n".join(line.rstrip() for line in table_lines(description))


def table_lines(description: dict[str, Any]) -> Iterator[str]:
    """Yield the lines of a table."""
    problem = description["problem"].items()
    yield ", ".join(f"{name} = {value if isinstance(value, int) else short(value)}" for name, value in problem)
    yield ""
    yield f"{'':<18}{'printed':<16}corrected"
    for name, label in CONSTANTS.items():
        yield f"{label:<18}" + "".join(f"{short(description[one]['constants'][name]):<15} " for one in SETS)
    for one in SETS:
        yield ""
        title = f"What the proof needs of the {one} constants"
        yield f"{title:<{WIDTH}}{'left':<11} {'right':<11} {'':<7}for epsilon up to"
        for inequality in description[one]["inequalities"]:
            yield (
                f"{'  ' + inequality['formula']:<{WIDTH}}{short(inequality['left']):<11} "
                f"{short(inequality['right']):<11} {'holds' if inequality['holds'] else 'FAILS':<7}"
                f"{largest_text(inequality['largest_epsilon'])}"
            )
            yield f"    {inequality['name']}; {inequality['source']}"
    yield ""
    for one in SETS:
        yield from cost_lines(one, description[one])


def cost_lines(name: str, column: dict[str, Any]) -> Iterator[str]:
    """Yield the lines about the largest epsilon of one set of constants, and its cost."""
    if column["largest_epsilon"] is None:
        yield f"{name}: for no epsilon above {SMALLEST} do all of them hold"
    else:
        costs = column["at_largest_epsilon"]["constants"]
        yield (
            f"{name}: all of them hold for epsilon up to {short(column['largest_epsilon'])}, with "
            f"N = {short(costs['n_samples'])}, eps_r = {short(costs['eps_r'])}, "
            f"at most {short(costs['trajectories'])} trajectories"
        )
        if column["at_largest_epsilon"]["not_runnable"]:
            yield f"  not for DMQ: {column['at_largest_epsilon']['not_runnable']}"
    if column["not_runnable"]:
        yield f"{name}, as asked: not for DMQ: {column['not_runnable']}"


def largest_text(largest: dict[str, Any] | None) -> str:
    """Return the largest epsilon for which an inequality holds as text."""
    if largest is None:
        return "none"
    # The search begins at 1/e.
    return "1/e" if math.isclose(largest["log10"], -math.log10(math.e)) else short(largest)


def short(value: dict[str, Any]) -> str:
    """Return a number with four digits."""
    decimal = Decimal(value["value"])
    return f"{decimal:.4g}" if -4 < decimal.adjusted() < 5 else f"{decimal:.3e}"
