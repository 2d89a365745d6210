"""The runs of a sweep by cell, for tables and pages."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from dmq_fast._support.words import number_of
from dmq_fast.experiments.report.csv_export import as_specified
from dmq_fast.experiments.report.page import parameters_text, value_text

__all__ = [
    "SHOWN",
    "CellRuns",
    "Failure",
    "by_message",
    "cells_of",
    "counted",
    "in_order",
    "known",
    "labeller",
    "natural",
    "seeds_of_some",
    "settings",
    "sortable",
    "split_parameters",
    "warned",
]


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
    for row in in_order(rows):
        groups.setdefault(row["cell"], []).append(row)
    found = []
    for cell, group in groups.items():
        first = as_specified(group[0])
        names = first["environment"], first["algorithm"]
        found.append(CellRuns(cell, *names, first["environment_parameters"], first["algorithm_parameters"], group))
    return found


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


def known(rows: Iterable[Mapping[str, Any]], name: str) -> list[Any]:
    """Return the entries of a column that are not None."""
    return [row[name] for row in rows if row.get(name) is not None]


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
        trace = (group[0].get("details") or {}).get("traceback")
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
    said = (f"of {row['algorithm']}: {warning}" for row in rows for warning in row.get("warnings") or ())
    return counted(said, without_numbers)


def in_order(rows: Iterable[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Return rows in order of environment, algorithm and their parameters."""

    def key(row: Mapping[str, Any]) -> list[Any]:
        whole = as_specified(row)
        names = (natural(row[kind]) for kind in ("environment", "algorithm"))
        parameters = (tuple(sortable(whole[f"{kind}_parameters"])) for kind in ("environment", "algorithm"))
        return [part for side in zip(names, parameters, strict=True) for part in side]

    return sorted(rows, key=key)


def settings(
    rows: Sequence[Mapping[str, Any]], but: str | None = None
) -> Iterator[tuple[str, list[Mapping[str, Any]]]]:
    """Yield title and runs of each environment; those that differ in a parameter other than `but` are separate."""
    for environment in dict.fromkeys(row["environment"] for row in rows):
        here = [row for row in rows if row["environment"] == environment]
        names = split_parameters([row["environment_parameters"] for row in here])[0]
        found: dict[tuple[Any, ...], list[Mapping[str, Any]]] = {}
        for row in here:
            others = {name: row["environment_parameters"].get(name) for name in names if name != but}
            title = ", ".join([environment, *([parameters_text(others)] if others else [])])
            found.setdefault((*sortable(others), title), []).append(row)
        for (*_, title), some in sorted(found.items()):
            yield title, some


def labeller(rows: Sequence[Mapping[str, Any]]) -> Callable[[Mapping[str, Any]], str]:
    """Return a function that names the algorithm of a run, with the parameters in which its runs differ."""
    names = {
        algorithm: split_parameters([row["algorithm_parameters"] for row in rows if row["algorithm"] == algorithm])[0]
        for algorithm in {row["algorithm"] for row in rows}
    }

    def label(row: Mapping[str, Any]) -> str:
        given = row["algorithm_parameters"]
        own = {name: given[name] for name in names[row["algorithm"]] if given.get(name) is not None}
        # Where several parameters differ, two of them may have the same value.
        text = parameters_text(own) if len(names[row["algorithm"]]) > 1 else ", ".join(map(value_text, own.values()))
        return f"{row['algorithm']}, {text}" if text else str(row["algorithm"])

    return label
