r"""A comparison of the algorithms of a sweep as a LaTeX table, with the numbers of the figures against "algorithm"."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from dmq_fast._support.words import rounded
from dmq_fast.experiments.report.cells import CellRuns, cells_of, labeller, settings
from dmq_fast.experiments.report.intervals import Interval
from dmq_fast.experiments.report.metrics import GOOD, QUANTITIES
from dmq_fast.experiments.report.panels import judged, measurable, measured, point_of

__all__ = ["comparison"]

BETTER = {"value": max, "score": max, "success": max, "episodes": min, "seconds": min}
"""The quantities that have columns where they are known, and which of two numbers is the better one."""

LEVEL = 0.95
"""Confidence of the intervals."""

SPECIAL = {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"}
SPECIAL |= {letter: f"\\{letter}" for letter in "&%$#_{}"}


def comparison(rows: Iterable[Mapping[str, Any]]) -> str:
    r"""Return a LaTeX table, which needs the package booktabs: a line for each algorithm and setting, by environment.

    The numbers are those of figures against "algorithm": means or, of episodes and seconds, medians, each with its
    interval. The best of an environment are bold. Episodes of runs that did not solve it are infinite.

    Parameters
    ----------
    rows : iterable of mapping
        The rows that `experiments.load` returns.
    """
    cells = cells_of(rows)
    known = [y for y in measurable(cells) if y in BETTER]
    label, where = labeller(cells), judged(cells)
    heads = ["environment", "algorithm", "runs", *(QUANTITIES[y].label for y in known)]
    kinds = ", ".join(f"{y} ({'mean' if y == 'success' else QUANTITIES[y].statistic})" for y in known)
    lines = [
        f"% {kinds}, with {LEVEL:.0%} intervals. Solved: a score of at least {GOOD:.0%}.",
        r"% \usepackage{booktabs}",
        f"\\begin{{tabular}}{{ll{'r' * (len(heads) - 2)}}}",
        r"\toprule",
        joined(heads),
    ]
    for title, here in settings(cells):
        groups: dict[str, list[CellRuns]] = {}
        for cell in here:
            groups.setdefault(label(cell), []).append(cell)
        columns = [entries_of([interval_of(some, y, where) for some in groups.values()], y) for y in known]
        lines.append(r"\midrule")
        for i, (name, some) in enumerate(groups.items()):
            runs = number(sum(len(cell.rows) for cell in some))
            lines.append(joined([escaped(title) if i == 0 else "", escaped(name), runs, *(one[i] for one in columns)]))
    return "\n".join([*lines, r"\bottomrule", r"\end{tabular}", ""])


def interval_of(cells: Sequence[CellRuns], y: str, known: set[str]) -> Interval | None:
    """Return a quantity of the runs of cells with its interval, None where it is unknown of all."""
    measures = [measured(cell, y, GOOD, known) for cell in cells]
    if all(np.isnan(numbers).all() for numbers in measures):
        return None
    return point_of(0.0, cells, measures, y, QUANTITIES[y].statistic, LEVEL).interval


def entries_of(intervals: Sequence[Interval | None], y: str) -> list[str]:
    """Return the entries of a column on one environment; the best are bold, unless all are as good."""
    middles = [one.middle for one in intervals if one is not None]
    best = BETTER[y](middles) if len(set(middles)) > 1 else math.nan
    return [entry(one, best) for one in intervals]


def entry(interval: Interval | None, best: float) -> str:
    """Return an estimate with its interval, bold if it is the best."""
    if interval is None:
        return "--"
    middle = number(interval.middle, bold=interval.middle == best)
    ends = (interval.low, interval.high)
    return middle if any(map(math.isnan, ends)) else f"{middle} [{', '.join(map(number, ends))}]"


def number(value: float, *, bold: bool = False) -> str:
    r"""Return a number in LaTeX's mathematics.

    >>> print(number(12345.6), number(1e-5), number(-13.0, bold=True), number(math.inf), number(0.9996))
    $12{,}346$ $1 \times 10^{-5}$ $\mathbf{-13}$ $\infty$ $0.999$
    """
    if math.isinf(value):
        text = r"\infty" if value > 0 else r"-\infty"
    else:
        text = f"{value:,.0f}".replace(",", "{,}") if abs(value) >= 1000 or value == int(value) else rounded(value, 3)
    text = re.sub(r"e([+-]\d+)", lambda found: rf" \times 10^{{{int(found[1])}}}", text)
    return f"$\\mathbf{{{text}}}$" if bold else f"${text}$"


def escaped(text: str) -> str:
    r"""Return a text with what LaTeX reads as commands escaped.

    >>> print(escaped("n_samples = 5 & 50%"))
    n\_samples = 5 \& 50\%
    """
    return "".join(SPECIAL.get(letter, letter) for letter in text)


def joined(entries: Iterable[str]) -> str:
    """Return a line of the table."""
    return " & ".join(entries) + r" \\"
