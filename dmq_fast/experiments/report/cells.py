"""The runs of a sweep by cell, for tables and pages."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from dmq_fast.experiments.report.csv_export import as_specified

__all__ = ["CellRuns", "cells_of", "known", "sortable", "split_parameters"]


class CellRuns(NamedTuple):
    """The runs of one cell. Its parameters are those of the specification, fixed seed and budgets among them."""

    id: str
    environment: str
    algorithm: str
    environment_parameters: Mapping[str, Any]
    algorithm_parameters: Mapping[str, Any]
    rows: list[Mapping[str, Any]]


def cells_of(rows: Iterable[Mapping[str, Any]]) -> list[CellRuns]:
    """Group the runs that `load` returned, in order of environment, algorithm and their parameters."""
    groups: dict[str, list[Mapping[str, Any]]] = {}
    for row in rows:
        groups.setdefault(row["cell"], []).append(row)
    cells = []
    for cell, group in groups.items():
        first = as_specified(group[0])
        cells.append(
            CellRuns(
                cell,
                first["environment"],
                first["algorithm"],
                first["environment_parameters"],
                first["algorithm_parameters"],
                group,
            )
        )
    return sorted(
        cells,
        key=lambda cell: (
            cell.environment,
            *sortable(cell.environment_parameters),
            cell.algorithm,
            *sortable(cell.algorithm_parameters),
        ),
    )


def sortable(parameters: Mapping[str, Any]) -> Iterator[tuple[str, float, str]]:
    """Yield a sort key of parameters: numbers sort by size, other values by their text."""
    for name, value in parameters.items():
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        yield name, float(value) if is_number else 0.0, "" if is_number else str(value)


def split_parameters(parameters: Sequence[Mapping[str, Any]]) -> tuple[list[str], dict[str, Any]]:
    """Return the names of the parameters that differ, and the values of those that all have in common.

    >>> split_parameters([{"horizon": 3, "n_actions": 2}, {"horizon": 4, "n_actions": 2}])
    (['horizon'], {'n_actions': 2})
    """
    names = list(dict.fromkeys(name for some in parameters for name in some))
    common = {
        name: parameters[0][name]
        for name in names
        if all(name in some and some[name] == parameters[0][name] for some in parameters)
    }
    return [name for name in names if name not in common], common


def known(rows: Iterable[Mapping[str, Any]], name: str) -> list[Any]:
    """Return the entries of a column that are not None."""
    return [row[name] for row in rows if row[name] is not None]
