"""``dmq-fast bench``: measure times on this machine."""

from __future__ import annotations

import argparse
import math
from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from dmq_fast._support.json_text import to_json
from dmq_fast.cli.exit_codes import FINISHED, SHORT_EXIT_CODES
from dmq_fast.cli.files import claim_file, write_text
from dmq_fast.cli.options import HelpFormatter, command_parser, positive_integer
from dmq_fast.cli.terminal import not_saved, say, show, signals, told, usage_error

__all__ = ["bench"]

LARGEST_DIMENSION = 4096


def bench(arguments: Sequence[str]) -> int:
    """Run ``dmq-fast bench``: there is one benchmark, ``oracle``."""
    parser = command_parser("bench")
    benchmarks = parser.add_subparsers(dest="benchmark", required=True, metavar="BENCHMARK")
    oracle = benchmarks.add_parser(
        "oracle",
        help="compare the DSEC oracle with implementations by NumPy and SciPy",
        description="Time the DSEC oracle and implementations of it with NumPy and SciPy. The methods take turns, so "
        "that noise hits all of them alike. BLAS runs on one thread unless an environment variable such as "
        "OPENBLAS_NUM_THREADS is set.",
        epilog=SHORT_EXIT_CODES,
        formatter_class=HelpFormatter,
        allow_abbrev=False,
    )
    oracle.add_argument(
        "--d", type=dimension_list, metavar="D,...", help="dimensions; default: 4,8,16,32,64,128,256,512"
    )
    oracle.add_argument("--n", type=positive_integer, default=15, metavar="N", help="number of rounds; default: 15")
    oracle.add_argument(
        "--json", metavar="FILE", help="save all measurements as JSON; - prints them instead of the table"
    )
    return bench_oracle(parser.parse_args(arguments))


def dimension_list(text: str) -> list[int]:
    """Read dimensions, separated by commas."""
    dimensions = [positive_integer(part) for part in text.split(",")]
    if max(dimensions) > LARGEST_DIMENSION:
        raise argparse.ArgumentTypeError(f"expected dimensions up to {LARGEST_DIMENSION}, got {max(dimensions)}")
    return sorted(set(dimensions))


def bench_oracle(options: Namespace) -> int:
    """Run ``dmq-fast bench oracle``."""
    saved = None if options.json in (None, "-") else Path(options.json)
    try:
        if saved is not None:
            claim_file("--json", saved)
    except OSError as error:
        return usage_error(f"bench oracle: {told(error)}")

    from dmq_fast.experiments import oracle_bench

    code = FINISHED

    def show_rows(rows: list[dict[str, Any]]) -> None:
        nonlocal code
        code = show("bench oracle", measurement_table(rows) + "\n", code)
        signals.check()

    progress = None if options.json == "-" else show_rows
    with signals.held():
        result = signals.attempt(
            lambda: oracle_bench.measure(options.d or oracle_bench.DIMENSIONS, options.n, progress=progress)
        )
        if result is None:
            return signals.code(code)
        for warning in result["warnings"]:
            say(f"warning: {warning}")
        try:
            if saved is not None:
                write_text(saved, to_json(result, indent=2) + "\n")
        except OSError as error:
            code = not_saved("bench oracle", error)
        text = to_json(result) if options.json == "-" else closing_lines(result)
        return signals.code(show("bench oracle", text, code))


def measurement_table(rows: Sequence[dict[str, Any]]) -> str:
    """Return the table of the rows of one dimension."""
    lines = [f"d = {rows[0]['d']}".ljust(40) + f"{'min us':>11}{'median us':>11}{'x best':>9}"]
    for row in rows:
        mark = "*" if row["kind"] == "alternative" and row["ratio"] == 1.0 else ""
        times = "".join(f"{three_digits(row[name]):>11}" for name in ("min_us", "median_us"))
        lines.append(f"{row['method']:<40}{times}{three_digits(row['ratio']):>9}{mark}")
    return "\n".join(lines)


def three_digits(x: float) -> str:
    """Return a number with three digits and no exponent."""
    return f"{x:.{max(0, 2 - math.floor(math.log10(x)))}f}"


def closing_lines(result: dict[str, Any]) -> str:
    """Return the text below the tables: machine, versions, and the meaning of the columns."""
    lines = [
        f"{result['machine']['cpu']}, {result['machine']['cores']} cores",
        ", ".join(f"{name} {version}" for name, version in result["versions"].items()),
        "x best: median time of the best alternative (*) divided by the median time of the method. dpotrf alone is no",
        "alternative: it is the one factorisation that the oracle needs, without its certificate against rounding.",
    ]
    return "\n".join(lines)
