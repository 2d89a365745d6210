"""The rows of an exam as a table and a sentence for each algorithm."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from statistics import median
from typing import Any

from dmq_fast._support.words import four_digits, number_of, table_lines
from dmq_fast.experiments.exam.run import Row

__all__ = ["summary_lines", "table_rows"]

HEADS = ("environment", "algorithm", "stopped", "within", "loss", "epsilon", "share", "score", "episodes", "CPU s")


def table_rows(rows: Sequence[Row]) -> list[list[str]]:
    """Return a line of texts for each environment and algorithm that was run: counts, worst losses, medians.

    "stopped" and "within" count seeds; loss, share and score are those of the worst seed, with half the width of a
    95 % interval where the loss is an estimate; episodes are the median with the range, seconds the median.
    """
    groups: dict[tuple[str, str], list[Row]] = {}
    for row in rows:
        if row.ran:
            groups.setdefault((row.environment, row.algorithm), []).append(row)
    lines = []
    for (environment, algorithm), runs in groups.items():
        judged = [run for run in runs if run.loss is not None]
        worst = max(judged, key=lambda run: run.loss or 0.0, default=None)
        n = len(runs)
        line = [environment, algorithm, of(sum(run.stopped for run in runs), n), of(within(runs), n)]
        if worst is None or worst.loss is None or worst.share is None:
            line += ["-", four_digits(runs[0].epsilon), "-", "-"]
        else:
            reach = f" ± {three_digits(worst.loss_error)}" if worst.loss_error else ""
            line += [three_digits(worst.loss) + reach, four_digits(worst.epsilon), f"{worst.share:.3f}"]
            line += ["-" if worst.score is None else f"{worst.score:.3f}"]
        episodes = sorted(run.episodes for run in runs)
        spread = f" ({episodes[0]:,} to {episodes[-1]:,})" if episodes[0] < episodes[-1] else ""
        line += [f"{round(median(episodes)):,}{spread}", three_digits(median(run.cpu_seconds for run in runs))]
        lines.append(line)
    return lines


def summary_lines(rows: Sequence[Row]) -> Iterator[str]:
    """Yield the lines of a table of all that was run, what was not, errors, and a sentence for each algorithm."""
    if table := table_rows(rows):
        yield from table_lines(HEADS, table, right=range(2, len(HEADS)))
        yield ""
    for row in rows:
        if not row.ran:
            yield f"not run: {' by '.join(filter(None, (row.environment, row.algorithm)))}: {row.error}"
        elif row.error is not None:
            yield f"error: {row.environment}, {row.algorithm}, seed {row.seed}: {row.error}"
    missing = len({row.environment for row in rows if not row.ran and not row.algorithm})
    for algorithm in dict.fromkeys(row.algorithm for row in rows if row.ran):
        yield verdict(algorithm, [row for row in rows if row.ran and row.algorithm == algorithm])
    if missing:
        yield f"{number_of(missing, 'environment')} not run"


def verdict(algorithm: str, runs: Sequence[Row]) -> str:
    """Return how an algorithm did, in a sentence."""
    environments = dict.fromkeys(run.environment for run in runs)
    passed = sum(all(run.stopped and run.within for run in runs if run.environment == one) for one in environments)
    wrong = sum(run.stopped and run.within is False for run in runs)
    return (
        f"{algorithm}: {passed} of {number_of(len(environments), 'environment')} passed with every seed; of "
        f"{number_of(len(runs), 'run')} {sum(run.stopped for run in runs):,} stopped, {within(runs):,} within epsilon, "
        f"{wrong:,} stopped outside"
    )


def within(runs: Sequence[Row]) -> int:
    """Return how many runs lost at most epsilon."""
    return sum(run.within is True for run in runs)


def of(count: int, n: int) -> str:
    """Return a count of n."""
    return f"{count}/{n}"


def three_digits(x: Any) -> str:
    """Return a number with three significant digits, 0 for what is rounding."""
    return "0" if abs(x) < 1e-9 else f"{x:.3g}"
