"""Tables of cells, and lists of failures, for the commands about sweeps."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from dmq_fast._support.words import number_of

__all__ = ["clock", "count_errors", "failure_dict", "failure_lines", "grid", "spell"]


def grid(cells: Sequence[Mapping[str, Any]], counts: Sequence[str], means: Mapping[str, str]) -> Iterator[str]:
    """Yield the lines of the cells: their parameters, then counts, then the columns in `means` under their titles.

    A parameter that all cells of an environment or algorithm share is left out.
    """
    from dmq_fast.experiments.report.cells import split_parameters

    columns: list[tuple[str, list[str]]] = []
    for kind, names in varying(cells).items():
        columns.append((kind, [cell[kind] for cell in cells]))
        columns += [(name, [spell(cell[f"{kind}_parameters"].get(name)) for cell in cells]) for name in names]
    budgets = [{name: cell.get(name) for name in ("max_trajectories", "max_seconds")} for cell in cells]
    columns += [(name, [spell(given[name]) for given in budgets]) for name in split_parameters(budgets)[0]]
    columns += [(name, [f"{cell[name]:,}" for cell in cells]) for name in counts]
    columns += [(title, [spell(cell[name]) for cell in cells]) for name, title in means.items()]
    widths = [max(map(len, [title, *entries])) for title, entries in columns]
    for row in zip(*([title, *entries] for title, entries in columns), strict=True):
        yield "  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)).rstrip()


def varying(cells: Sequence[Mapping[str, Any]]) -> dict[str, list[str]]:
    """Return, for environments and for algorithms, the names of the parameters in which cells of one name differ."""
    from dmq_fast.experiments.report.cells import split_parameters

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


def count_errors(rows: Sequence[Mapping[str, Any]]) -> dict[str, int]:
    """Count the error messages of runs, the most common first."""
    return dict(Counter(row["error"] for row in rows if row["error"] is not None).most_common())


def failure_lines(failures: Sequence[Mapping[str, Any]], cells: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Yield the lines about runs that failed: each message with its cells, seeds, and the traceback of one run."""
    from dmq_fast.experiments.report.cells import SHOWN, by_message, seeds_of_some

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
    return {name: row[name] for name in (*names, "error")} | {"traceback": row["details"].get("traceback")}


def spell(value: Any) -> str:
    """Return an entry of the grid as text."""
    if value is None:
        return "-"
    if isinstance(value, float):
        return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"
    return str(value)


def clock(seconds: float) -> str:
    """Return a time in seconds, minutes or hours."""
    if seconds < 100:
        return f"{seconds:.0f} s" if seconds >= 10 else f"{seconds:.1f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 100 else f"{minutes / 60:.1f} h"
