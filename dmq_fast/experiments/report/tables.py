"""Tables of cells and lists of failures, for the commands about sweeps and for pages."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from dmq_fast._support.words import four_digits, number_of
from dmq_fast.experiments.report.cells import (
    SHOWN,
    CellRuns,
    by_message,
    cells_of,
    seeds_of_some,
    split_parameters,
)
from dmq_fast.experiments.report.intervals import STATISTICS
from dmq_fast.experiments.report.metrics import GOOD, QUANTITIES
from dmq_fast.experiments.sweeps.records import peek
from dmq_fast.results.score import scores

__all__ = [
    "MEANS",
    "SOLVED",
    "count_errors",
    "failure_dict",
    "failure_lines",
    "failures_of",
    "summarise_cells",
    "summary_of",
    "table_of",
]

MEANS = {
    "value": "mean value",
    "optimal_value": "mean optimum",
    "score": "mean score",
    "n_trajectories": "mean trajectories",
    "seconds": "mean seconds",
}
"""Means of the runs of a cell, and their titles."""

SOLVED = {
    "success": "solved",
    "episodes": "median episodes until solved",
    "good_after": "good after",
    "stopped_after": "stopped after",
    "earned": "until half is earned",
}
"""Further quantities of a cell on pages, and their titles."""


def summarise_cells(rows: Iterable[Mapping[str, Any]], quantities: Iterable[str] = ()) -> list[dict[str, Any]]:
    """Return parameters, numbers of runs, means and the statistics of further quantities of each cell."""
    return [summary_of(cell, quantities) for cell in cells_of(rows)]


def summary_of(cell: CellRuns, quantities: Iterable[str] = ()) -> dict[str, Any]:
    """Return parameters, numbers of runs, means and the statistics of further quantities of a cell."""
    return {
        "cell": cell.id,
        "environment": cell.environment,
        "environment_parameters": cell.environment_parameters,
        "algorithm": cell.algorithm,
        **{name: cell.rows[0].get(name) for name in ("algorithm_parameters", "max_trajectories", "max_seconds")},
        "runs": len(cell.rows),
        "failed": int(cell.numbers.failed.sum()),
        **{name: mean(cell, name) for name in MEANS},
        **{name: statistic_of(cell, name) for name in quantities},
    }


def mean(cell: CellRuns, name: str) -> float | None:
    """Return the mean of the known entries of a column, or of the known scores."""
    numbers = cell.numbers
    known = scores(numbers.value, numbers.uniform, numbers.optimum) if name == "score" else numbers.of(name)
    known = known[~np.isnan(known)]
    return math.fsum(known) / len(known) if len(known) else None


def statistic_of(cell: CellRuns, name: str) -> float | None:
    """Return the statistic of a quantity that figures show, None where it is unknown of some run."""
    quantity = QUANTITIES[name]
    numbers = quantity.numbers(cell.numbers, GOOD)
    return None if np.isnan(numbers).any() else float(STATISTICS[quantity.statistic](numbers))


def table_of(
    cells: Sequence[Mapping[str, Any]], counts: Sequence[str], others: Mapping[str, str]
) -> tuple[list[str], list[list[str]]]:
    """Return heads and rows of a table of cells: their parameters, then counts, then `others` under their titles.

    A parameter that all cells of an environment or algorithm share is left out.
    """
    columns: list[tuple[str, list[str]]] = []
    for kind, names in varying(cells).items():
        columns.append((kind, [cell[kind] for cell in cells]))
        columns += [(name, [spell(cell[f"{kind}_parameters"].get(name)) for cell in cells]) for name in names]
    budgets = [{name: cell.get(name) for name in ("max_trajectories", "max_seconds")} for cell in cells]
    columns += [(name, [spell(given[name]) for given in budgets]) for name in split_parameters(budgets)[0]]
    columns += [(name, [f"{cell[name]:,}" for cell in cells]) for name in counts]
    columns += [(title, [spell(cell[name]) for cell in cells]) for name, title in others.items()]
    heads, entries = zip(*columns, strict=True)
    return list(heads), [list(row) for row in zip(*entries, strict=True)]


def varying(cells: Sequence[Mapping[str, Any]]) -> dict[str, list[str]]:
    """Return, for environments and for algorithms, the names of the parameters in which cells of one name differ."""
    found = {}
    for kind in ("environment", "algorithm"):
        by_name: dict[str, list[Mapping[str, Any]]] = {cell[kind]: [] for cell in cells}
        for cell in cells:
            by_name[cell[kind]].append(cell[f"{kind}_parameters"])
        names = (name for given in by_name.values() for name in split_parameters(given)[0])
        found[kind] = list(dict.fromkeys(names))
    return found


def labels(cells: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """Return a short text for each cell by its id, such as "lock horizon=5, dmq variant=sound"."""

    def side(cell: Mapping[str, Any], kind: str, names: list[str]) -> str:
        given = cell[f"{kind}_parameters"]
        return " ".join([cell[kind], *(f"{name}={spell(given[name])}" for name in names if name in given)])

    names = varying(cells)
    return {cell["cell"]: ", ".join(side(cell, kind, names[kind]) for kind in names) for cell in cells}


def failures_of(rows: Iterable[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Return the rows of the runs that failed, crashed or timed out."""
    return [row for row in rows if row["error"] is not None]


def count_errors(rows: Iterable[Mapping[str, Any]]) -> dict[str, int]:
    """Count the error messages of runs, the most common first."""
    return dict(Counter(row["error"] for row in failures_of(rows)).most_common())


def failure_lines(failures: Sequence[Mapping[str, Any]], cells: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Yield the lines about runs that failed: each message with its cells, seeds, and the traceback of one run."""
    names, found = labels(cells), by_message(failures)
    for failure in found[:SHOWN]:
        yield f"{sum(map(len, failure.cells.values())):,} x {failure.message}"
        for cell, rows in list(failure.cells.items())[:SHOWN]:
            yield f"    {names[cell]}: {seeds_of_some(rows)}"
        if len(failure.cells) > SHOWN:
            yield f"    and {number_of(len(failure.cells) - SHOWN, 'more cell')}"
        if failure.trace is not None:
            yield from (f"        {line}" for line in failure.trace.rstrip().splitlines())
    if len(found) > SHOWN:
        yield f"and {number_of(len(found) - SHOWN, 'more message')} in the store"


def failure_dict(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return the cell, the seed and the failure of a run as plain data."""
    names = ("cell", "seed", "environment", "environment_parameters", "algorithm", "algorithm_parameters", "status")
    return {name: row[name] for name in (*names, "error")} | {"traceback": peek(row, "details").get("traceback")}


def spell(value: Any) -> str:
    """Return an entry of a table as text."""
    if isinstance(value, float) and abs(value) >= 1000:
        return f"{value:,.0f}"
    return four_digits(value) if value is None or isinstance(value, float) else str(value)
