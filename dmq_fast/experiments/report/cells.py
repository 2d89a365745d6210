"""The runs of a sweep by cell, for tables and pages."""

from __future__ import annotations

import functools
import re
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from dmq_fast._support.json_text import finite_json, to_json
from dmq_fast._support.words import number_of
from dmq_fast.experiments.report.csv_export import as_specified
from dmq_fast.experiments.report.numbers import Numbers
from dmq_fast.experiments.report.page import parameters_text, value_text
from dmq_fast.experiments.sweeps.records import Record, peek
from dmq_fast.experiments.sweeps.spec import BUDGETS

__all__ = [
    "SHOWN",
    "CellRuns",
    "Failure",
    "by_message",
    "cells_of",
    "counted",
    "labeller",
    "natural",
    "seeds_of_some",
    "settings",
    "sortable",
    "split_parameters",
    "warned",
]


@dataclass(frozen=True)
class CellRuns:
    """The runs of one cell. Its parameters are those of the specification, fixed seed and budgets among them."""

    id: str
    environment: str
    algorithm: str
    environment_parameters: Mapping[str, Any]
    algorithm_parameters: Mapping[str, Any]
    rows: list[Mapping[str, Any]]

    @functools.cached_property
    def numbers(self) -> Numbers:
        """The numbers of the runs, which quantities are made of."""
        return Numbers(self.rows)

    def without(self, place: str, name: str) -> CellRuns:
        """Return the cell without one of its parameters, for what two cells that differ in it have in common."""
        sides = {one: dict(getattr(self, one)) for one in ("environment_parameters", "algorithm_parameters")}
        sides[place].pop(name, None)
        environment, algorithm = sides.values()
        made = CellRuns(self.id, self.environment, self.algorithm, environment, algorithm, self.rows)
        made.__dict__["numbers"] = self.numbers
        return made


def cells_of(rows: Iterable[Mapping[str, Any]]) -> list[CellRuns]:
    """Group the runs that `load` returned, in order of environment, algorithm and their parameters.

    Rows of one cell whose parameters differ, as those of another version may, are groups of their own.
    """
    groups: dict[Hashable, list[Mapping[str, Any]]] = {}
    for row in rows:
        groups.setdefault(key_of(row), []).append(row)
    found = []
    for group in groups.values():
        first = as_specified(group[0])
        names = first["environment"], first["algorithm"]
        found.append(
            CellRuns(first["cell"], *names, first["environment_parameters"], first["algorithm_parameters"], group)
        )
    return sorted(found, key=order_of)


def key_of(row: Mapping[str, Any]) -> Hashable:
    """Return the cell of a run with its names, budgets and parameters, these as JSON as they are stored."""
    return (
        *(row["cell"], row["environment"], row["algorithm"]),
        *(row.get(name) for name in BUDGETS),
        *(stored_text(row, f"{kind}_parameters") for kind in ("environment", "algorithm")),
    )


def stored_text(row: Mapping[str, Any], name: str) -> str:
    """Return the parameters of a run as JSON."""
    if isinstance(row, Record) and (text := row.text(name)) is not None:
        return text
    try:
        return finite_json(row[name], separators=(",", ":"))
    except (TypeError, ValueError):  # of rows that no sweep has stored
        return to_json(row[name], default=repr)


def order_of(cell: CellRuns) -> list[Any]:
    """Return the key by which cells are sorted: numbers of parameters by size, and those in names too."""
    names = natural(cell.environment), natural(cell.algorithm)
    parameters = (tuple(sortable(given)) for given in (cell.environment_parameters, cell.algorithm_parameters))
    return [part for side in zip(names, parameters, strict=True) for part in side]


def natural(text: str) -> tuple[str | tuple[int, str], ...]:
    """Return a sort key of a text, in which the numbers sort by size.

    >>> sorted(["size 10", "size 9", "size"], key=natural)
    ['size', 'size 9', 'size 10']
    """
    parts = re.split(r"0*(\d+)", text)  # numbers of any length, which `int` does not read
    return tuple((len(part), part) if i % 2 else part for i, part in enumerate(parts))


def sortable(parameters: Mapping[str, Any]) -> Iterator[tuple[str, float, tuple[str | tuple[int, str], ...]]]:
    """Yield a sort key of parameters: numbers sort by size, other values by their text."""
    for name, value in parameters.items():
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        yield name, value if is_number else 0.0, () if is_number else natural(str(value))


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


SHOWN = 10
"""Largest number of messages that a page or a summary shows."""


class Failure(NamedTuple):
    """The runs that failed with one message: by cell, and the traceback of the first, if one was stored."""

    message: str
    cells: dict[str, list[Mapping[str, Any]]]
    seed: int
    trace: str | None


def by_message(rows: Iterable[Mapping[str, Any]]) -> list[Failure]:
    """Group runs that failed by their messages, the most common first."""
    groups: dict[str, list[Mapping[str, Any]]] = {}
    for row in rows:
        groups.setdefault(row["error"], []).append(row)
    failures = []
    for message, group in sorted(groups.items(), key=lambda one: -len(one[1])):
        cells: dict[str, list[Mapping[str, Any]]] = {}
        for row in group:
            cells.setdefault(row["cell"], []).append(row)
        trace = (peek(group[0], "details") or {}).get("traceback")
        failures.append(Failure(message, cells, group[0]["seed"], trace))
    return failures


def seeds_of_some(rows: Sequence[Mapping[str, Any]]) -> str:
    """Return the seeds of runs in words, the first `SHOWN` of them."""
    more = f" and {len(rows) - SHOWN:,} more" if len(rows) > SHOWN else ""
    return f"{'seed' if len(rows) == 1 else 'seeds'} {', '.join(str(row['seed']) for row in rows[:SHOWN])}{more}"


def counted(messages: Iterable[str], kind: Callable[[str], str] = str) -> list[str]:
    """Return messages with the number of runs that have them, the most common first.

    Those of one kind count together, and the most common of them is shown.

    >>> counted(["of dmq: 3 levels", "of dmq: 3 levels", "of dmq: 4 levels", "of ocp: x"], without_numbers)
    ['3 runs of dmq: 3 levels (others with other numbers)', '1 run of ocp: x']
    """
    kinds: dict[str, Counter[str]] = {}
    for message in messages:
        kinds.setdefault(kind(message), Counter())[message] += 1
    found = sorted(kinds.values(), key=lambda some: -some.total())
    lines = []
    for some in found[:SHOWN]:
        others = " (others with other numbers)" if len(some) > 1 else ""
        lines.append(f"{number_of(some.total(), 'run')} {some.most_common(1)[0][0]}{others}")
    return lines + ([f"and {number_of(len(found) - SHOWN, 'more message')} in the store"] if len(found) > SHOWN else [])


def without_numbers(message: str) -> str:
    """Return a message with its numbers left out, and those of levels however many they are.

    >>> without_numbers("fitted 3 times at level 4"), without_numbers("fitted 12 times at levels 0 to 2, 5")
    ('fitted # times at level #', 'fitted # times at level #')
    """
    return re.sub(r"\d[\d.,]*(e[+-]?\d+)?", "#", re.sub(r"\blevels? \d+( to \d+|, \d+)*", "level #", message))


def warned(rows: Iterable[Mapping[str, Any]]) -> list[str]:
    """Return the warnings of runs with their numbers; those that differ in numbers only, such as levels, are one."""
    said = (f"of {row['algorithm']}: {warning}" for row in rows for warning in peek(row, "warnings") or ())
    return counted(said, without_numbers)


def settings(cells: Sequence[CellRuns], but: str | None = None) -> Iterator[tuple[str, list[CellRuns]]]:
    """Yield title and cells of each environment; those that differ in a parameter other than `but` are separate."""
    for environment in dict.fromkeys(cell.environment for cell in cells):
        here = [cell for cell in cells if cell.environment == environment]
        names = split_parameters([cell.environment_parameters for cell in here])[0]
        found: dict[tuple[Any, ...], list[CellRuns]] = {}
        for cell in here:
            others = {name: cell.environment_parameters.get(name) for name in names if name != but}
            title = ", ".join([environment, *([parameters_text(others)] if others else [])])
            found.setdefault((*sortable(others), title), []).append(cell)
        for (*_, title), some in sorted(found.items()):
            yield title, some


def labeller(cells: Sequence[CellRuns]) -> Callable[[CellRuns], str]:
    """Return a function that names the algorithm of a cell, with the parameters in which its cells differ."""
    names = {
        algorithm: split_parameters([cell.algorithm_parameters for cell in cells if cell.algorithm == algorithm])[0]
        for algorithm in {cell.algorithm for cell in cells}
    }

    def label(cell: CellRuns) -> str:
        given = cell.algorithm_parameters
        own = {name: given[name] for name in names[cell.algorithm] if given.get(name) is not None}
        # Where several parameters differ, two of them may have the same value.
        text = parameters_text(own) if len(names[cell.algorithm]) > 1 else ", ".join(map(value_text, own.values()))
        return f"{cell.algorithm}, {text}" if text else cell.algorithm

    return label
