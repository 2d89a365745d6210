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
    from dmq_fast.theory import Inequality, Parameters

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


def theory(arguments: Sequence[str]) -> int:
    """Run ``dmq-fast theory``."""
    parser = command_parser(
        "theory",
        description="Compare the constants that the proof of Theorem 6.1 prescribes with corrected ones. For both, "
        "print the inequalities that the proof needs, the largest epsilon for which all of them hold, and the number "
        "of trajectories for that epsilon.",
        epilog=SHORT_EXIT_CODES,
    )
    parser.add_argument(
        "--gamma",
        type=decimal_number,
        required=True,
        metavar="X",
        help="minimum gap between the best and the second-best action",
    )
    parser.add_argument("--d", type=positive_integer, required=True, metavar="N", help="dimension of the features")
    parser.add_argument("--H", type=positive_integer, required=True, metavar="N", help="horizon")
    parser.add_argument("--K", type=positive_integer, required=True, metavar="N", help="number of actions")
    parser.add_argument(
        "--C",
        type=decimal_number,
        default="1",
        metavar="X",
        help="constant C of the Low Variance condition; default: 1",
    )
    parser.add_argument(
        "--epsilon",
        type=decimal_number,
        default="0.1",
        metavar="X",
        help="accuracy epsilon of the returned policy; default: 0.1",
    )
    parser.add_argument(
        "--delta",
        type=decimal_number,
        default="0.1",
        metavar="X",
        help="probability of failure, for the corrected constants; default: 0.1",
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    given = vars(parser.parse_args(arguments))
    as_json = given.pop("json")
    try:
        description = constants_summary(**given)
    except ValueError as error:
        return usage_error(f"theory: --{error}")
    text = to_json(description) if as_json else constants_table(description)
    return signals.code(show("theory", text, FINISHED))


def decimal_number(text: str) -> Decimal:
    """Read a number, also one beyond the range of float64."""
    try:
        return Decimal(text)
    except ArithmeticError:
        raise argparse.ArgumentTypeError(f"expected a number, got {text!r}") from None


def constants_summary(
    epsilon: Decimal, gamma: Decimal, C: Decimal, d: int, H: int, K: int, *, delta: Decimal = Decimal("0.1")
) -> dict[str, Any]:
    """Return the constants and inequalities of a problem as plain data.

    Numbers that may be beyond float64 are written as {"value": text such as "4.5e+72", "log10": float}.

    Raises
    ------
    TypeError, ValueError
        As `Parameters.from_theorem`.
    """
    from dmq_fast.theory import Parameters

    both = [
        Parameters.from_theorem(epsilon, gamma, C, d, H, K, corrected=name == "corrected", delta=delta) for name in SETS
    ]
    given = {name: number_entry(getattr(both[0], name)) for name in ("epsilon", "gamma", "C", "delta")}
    problem = {**given, "d": both[0].d, "H": both[0].H, "K": both[0].K}
    return {"problem": problem, **{name: set_summary(one) for name, one in zip(SETS, both, strict=True)}}


def set_summary(parameters: Parameters) -> dict[str, Any]:
    """Return one set of constants: values, inequalities, the largest epsilon and its cost, and whether DMQ can run."""
    largest = parameters.largest_epsilon()
    return {
        **constants(parameters),
        "inequalities": [inequality_summary(parameters, inequality) for inequality in parameters.check()],
        "largest_epsilon": None if largest is None else number_entry(largest),
        "at_largest_epsilon": None if largest is None else constants(parameters.at(largest)),
    }


def constants(parameters: Parameters) -> dict[str, Any]:
    """Return the constants, and the arguments of `DMQ` for them or the reason why there are none."""
    try:
        arguments, why = parameters.dmq_arguments(), None
    except ValueError as error:
        arguments, why = None, str(error)
    return {
        "constants": {name: number_entry(getattr(parameters, name)) for name in CONSTANTS},
        "dmq_arguments": arguments,
        "not_runnable": why,
    }


def inequality_summary(parameters: Parameters, inequality: Inequality) -> dict[str, Any]:
    """Return one inequality with both sides, and the largest epsilon for which it holds."""
    largest = parameters.largest_epsilon(inequality.name)
    return {
        "name": inequality.name,
        "formula": inequality.formula,
        "source": inequality.source,
        "left": number_entry(inequality.left),
        "right": number_entry(inequality.right),
        "holds": inequality.holds,
        "largest_epsilon": None if largest is None else number_entry(largest),
    }


def number_entry(value: Decimal) -> dict[str, Any]:
    """Return a positive number as text and logarithm."""
    return {"value": f"{value:.12g}", "log10": float(value.log10())}


def constants_table(description: dict[str, Any]) -> str:
    """Return a summary as a table."""
    return "\n".join(line.rstrip() for line in table_lines(description))


def table_lines(description: dict[str, Any]) -> Iterator[str]:
    """Yield the lines of a table."""
    yield ", ".join(
        f"{name} = {value if isinstance(value, int) else short(value)}"
        for name, value in description["problem"].items()
    )
    yield ""
    yield f"{'':<18}{'printed':<16}corrected"
    for name, label in CONSTANTS.items():
        yield f"{label:<18}" + "".join(f"{short(description[one]['constants'][name]):<15} " for one in SETS)
    for one in SETS:
        yield ""
        title = f"What the proof needs of the {one} constants"
        yield f"{title:<{WIDTH}}{'left':<11} {'right':<11} {'':<7}for epsilon up to"
        for inequality in description[one]["inequalities"]:
            yield from inequality_lines(inequality)
    yield ""
    for one in SETS:
        yield from cost_lines(one, description[one])


def inequality_lines(inequality: dict[str, Any]) -> Iterator[str]:
    """Yield the lines of one inequality: formula and sides, then its place in the proof."""
    largest = inequality["largest_epsilon"]
    yield (
        f"{'  ' + inequality['formula']:<{WIDTH}}{short(inequality['left']):<11} {short(inequality['right']):<11} "
        f"{'holds' if inequality['holds'] else 'FAILS':<7}{largest_text(largest)}"
    )
    yield f"    {inequality['name']}; {inequality['source']}"


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
