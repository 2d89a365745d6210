"""``dmq-fast exam``: let algorithms that stop by themselves take an exam on public environments."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dmq_fast._support.json_text import to_json
from dmq_fast._support.progress import ProgressLine, on_terminal
from dmq_fast.cli.exit_codes import FINISHED, SHORT_EXIT_CODES
from dmq_fast.cli.files import claim_file, write_text
from dmq_fast.cli.options import command_parser, nonnegative_integer, positive_integer, reader
from dmq_fast.cli.terminal import not_saved, output_apart, say, show, signals, told, usage_error

if TYPE_CHECKING:
    from dmq_fast.experiments.exam import Row

__all__ = ["exam"]

OPTIONS = {
    "algorithms": "--algorithm",
    "only": "--only",
    "epsilon": "--epsilon",
    "delta": "--delta",
    "max_seconds": "--max-seconds",
    "n_evaluation": "--evaluate",
}
"""By argument of the exam: the option that gives it."""


def exam(arguments: Sequence[str]) -> int:
    """Run ``dmq-fast exam``."""
    parser = command_parser(
        "exam",
        description="Let algorithms that stop by themselves learn public environments whose best policies are known, "
        "all with one setting. Needs the extra exams; environments whose package is missing are not run, and named.",
        epilog=SHORT_EXIT_CODES,
    )
    parser.add_argument("--list", action="store_true", help="run nothing: list environments and algorithms")
    parser.add_argument("--only", type=texts, metavar="NAME,...", help="only these environments; default: all")
    parser.add_argument(
        "--algorithm", type=texts, default=["self-stopping"], metavar="NAME,...",
        help="algorithms of --list, or MODULE:FUNCTION, a function from an environment and terms to a policy; those of "
        "the package that never stop are granted the episodes of the first; default: self-stopping",
    )  # fmt: skip
    parser.add_argument(
        "--seeds", type=seed_list, default=[0], metavar="S,...", help="seeds of the runs, such as 0,1,2; default: 0"
    )
    parser.add_argument(
        "--epsilon", type=share, default=0.05, metavar="X%",
        help="loss that is allowed, as a share of the range of returns; default: 5%%",
    )  # fmt: skip
    parser.add_argument(
        "--delta", type=reader(float), default=0.05, metavar="X", help="chance to lose more; default: 0.05"
    )
    parser.add_argument(
        "--max-trajectories", type=positive_integer, default=10_000, metavar="N",
        help="episodes of a run, at most; default: 10,000",
    )  # fmt: skip
    parser.add_argument(
        "--max-seconds",
        type=reader(float),
        default=150.0,
        metavar="X",
        help="CPU seconds of a run, at most; default: 150",
    )
    parser.add_argument(
        "--evaluate", type=positive_integer, default=300, metavar="N",
        help="episodes that estimate the value of a policy where there are no tables, at least 2; default: 300",
    )  # fmt: skip
    parser.add_argument(
        "--json", metavar="FILE", help="save all rows as JSON, after each; - prints them instead of the table"
    )
    parser.add_argument("--quiet", action="store_true", help="show no progress line")
    return taken(parser.parse_args(arguments))


def taken(options: argparse.Namespace) -> int:
    """Run the exam that options describe."""
    saved = None if options.json in (None, "-") else Path(options.json)
    from dmq_fast.environments.gym.tables import import_gymnasium

    try:
        with output_apart():
            import_gymnasium("the exam")
            from dmq_fast.experiments.exam import run, summary_lines

            run.algorithms_of(options.algorithm)
            run.names_of(options.only)
        if saved is not None and not options.list:
            claim_file("--json", saved)
    except (ImportError, OSError, TypeError, ValueError) as error:
        return usage_error(f"exam: {with_options(told(error))}")
    if options.list:
        return signals.code(show("exam", listing(options.json == "-"), FINISHED))
    rows: list[Row] = []
    unsaved: list[OSError] = []
    progress = None if options.quiet or not on_terminal() else ProgressLine(progress_text)

    def report(row: Row) -> None:
        rows.append(row)
        with signals.held():
            if saved is not None and not unsaved:
                try:
                    write_text(saved, to_json([asdict(one) for one in rows], indent=1) + "\n")
                except OSError as error:
                    unsaved.append(error)
        signals.check()
        if progress is not None:
            progress(rows)

    @output_apart()
    def work() -> list[Row]:
        return run.exam(
            options.algorithm,
            options.only,
            options.seeds,
            epsilon=options.epsilon,
            delta=options.delta,
            max_episodes=options.max_trajectories,
            max_seconds=options.max_seconds,
            n_evaluation=options.evaluate,
            report=report,
        )

    with signals.held():
        try:
            done = signals.attempt(work)
        except (TypeError, ValueError) as error:
            return usage_error(f"exam: {with_options(told(error))}")
        if progress is not None:
            progress.clear()
        if done is None:
            say(f"dmq-fast exam: stopped after {len(rows):,} rows")
        code = FINISHED if not unsaved else not_saved("exam", unsaved[0])
        text = to_json([asdict(row) for row in rows]) if options.json == "-" else "\n".join(summary_lines(rows))
        return signals.code(show("exam", text, code))


def listing(as_json: bool) -> str:
    """Return the environments and the algorithms."""
    from dmq_fast._support.words import table_lines
    from dmq_fast.experiments.exam import CONTESTANTS, TASKS

    tasks = [
        {
            "name": name,
            "horizon": task.horizon,
            "source": task.source,
            "optimum": task.optimum_source,
            "missing": task.missing(),
        }
        for name, task in TASKS.items()
    ]
    if as_json:
        return to_json({"environments": tasks, "algorithms": list(CONTESTANTS)})
    heads = ("environment", "H", "source", "optimum", "")
    rows = [[str(value if value is not None else "") for value in task.values()] for task in tasks]
    return "\n".join([*table_lines(heads, rows, right=[1]), "", f"algorithms: {', '.join(CONTESTANTS)}"])


def progress_text(rows: Sequence[Any]) -> str:
    """Return the progress line."""
    last = rows[-1]
    return f"{len(rows):,} rows; {last.algorithm} on {last.environment}, seed {last.seed}"


def with_options(message: str) -> str:
    """Return a message with the argument that it begins with replaced by its option."""
    name, colon, rest = message.partition(": ")
    return OPTIONS.get(name, name) + colon + rest


def texts(text: str) -> list[str]:
    """Read names, separated by commas."""
    return text.split(",")


def seed_list(text: str) -> list[int]:
    """Read seeds, separated by commas."""
    return [nonnegative_integer(part) for part in text.split(",")]


def share(text: str) -> float:
    """Read a share such as 5% or 0.05."""
    number = text.removesuffix("%")
    try:
        value = float(number) / (100 if number != text else 1)
    except ValueError:
        value = 0.0
    if not 0.0 < value < 1.0:
        raise argparse.ArgumentTypeError(f"expected a share between 0% and 100%, such as 5%, got {text!r}")
    return value
