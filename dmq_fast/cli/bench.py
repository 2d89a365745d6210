"""``dmq-fast bench``: measure times on this machine."""

from __future__ import annotations

import argparse
import importlib.util
import math
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
    oracle.add_argument(
        "--plot", type=Path, metavar="FILE", help="plot the times to a .png, .pdf or .svg file; needs matplotlib"
    )
    options = parser.parse_args(arguments)
    return bench_oracle(options.d, options.n, options.json, options.plot)


def dimension_list(text: str) -> list[int]:
    """Read dimensions, separated by commas."""
    dimensions = [positive_integer(part) for part in text.split(",")]
    if max(dimensions) > LARGEST_DIMENSION:
        raise argparse.ArgumentTypeError(f"expected dimensions up to {LARGEST_DIMENSION}, got {max(dimensions)}")
    return sorted(set(dimensions))


def bench_oracle(dimensions: list[int] | None, rounds: int, json_file: str | None, plot: Path | None) -> int:
    """Run ``dmq-fast bench oracle``."""
    try:
        if plot is not None:
            if plot.suffix.lower() not in (".png", ".pdf", ".svg"):
                raise ValueError(f"--plot: expected a file that ends in .png, .pdf or .svg, got {plot}")
            if importlib.util.find_spec("matplotlib") is None:
                raise ImportError('--plot needs matplotlib: pip install "dmq-fast[plot]"')
        for option, path in (("--json", Path(json_file) if json_file not in (None, "-") else None), ("--plot", plot)):
            if path is not None:
                claim_file(option, path)
    except (ValueError, ImportError, OSError) as error:
        return usage_error(f"bench oracle: {told(error)}")

    from dmq_fast.experiments import oracle_bench

    code = FINISHED

    def show_rows(rows: list[dict[str, Any]]) -> None:
        nonlocal code
        code = show("bench oracle", measurement_table(rows) + "\n", code)
        signals.check()

    with signals.held():
        result = signals.attempt(
            lambda: oracle_bench.measure(
                dimensions or oracle_bench.DIMENSIONS, rounds, progress=None if json_file == "-" else show_rows
            )
        )
        if result is None:
            return signals.code(code)
        for warning in result["warnings"]:
            say(f"warning: {warning}")
        try:
            if json_file not in (None, "-"):
                write_text(Path(str(json_file)), to_json(result, indent=2) + "\n")
            if plot is not None:
                oracle_bench.save_picture(result, plot)
        except OSError as error:
            code = not_saved("bench oracle", error)
        text = to_json(result) if json_file == "-" else closing_lines(result)
        return signals.code(show("bench oracle", text, code))


HEADER = f"{'min us':>11}{'median us':>11}{'GFLOP/s':>9}{'of dgemm':>10}{'x best':>9}"


def measurement_table(rows: Sequence[dict[str, Any]]) -> str:
    """Return the table of the rows of one dimension; its last column is `ratio_median`."""
    lines = [f"d = {rows[0]['d']}".ljust(40) + HEADER]
    for item in rows:
        mark = "*" if item["kind"] == "alternative" and item["ratio_median"] == 1.0 else ""
        rate = "" if item["gflops"] is None else f"{item['gflops']:.2f}"
        share = "" if item["gflops"] is None else f"{item['share_of_dgemm']:.1%}"
        lines.append(
            f"{item['method']:<40}{three_digits(item['min_us']):>11}{three_digits(item['median_us']):>11}{rate:>9}{share:>10}"
            f"{three_digits(item['ratio_median']):>9}{mark}"
        )
    return "\n".join(lines)


def three_digits(x: float) -> str:
    """Return a number with three digits and no exponent."""
    return f"{x:.{max(0, 2 - math.floor(math.log10(x)))}f}"


def closing_lines(result: dict[str, Any]) -> str:
    """Return the text below the tables: machine, versions, and the meaning of the columns."""
    box, versions = result["machine"], result["versions"]
    lines = [
        f"{box['cpu']}{', ' + box['cpu_family'] if box['cpu_family'] else ''}, {box['cores']} cores; "
        f"dgemm of size {result['dgemm']['size']}: {result['dgemm']['gflops']:.1f} GFLOP/s, "
        f"median / min {result['dgemm']['median_over_min']:.2f}",
        ", ".join(f"{name} {version}" for name, version in versions.items()),
        "x best: median time of the best alternative (*) divided by the median time of the method. The methods on",
        "R M1 - M2 are no alternatives: they are the idea of the oracle without its certificate against rounding.",
    ]
    return "\n".join(lines)
