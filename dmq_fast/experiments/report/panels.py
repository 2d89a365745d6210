"""The content of a figure of a sweep: a quantity against a parameter, as panels of lines of points.

Each environment has a panel.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from dmq_fast._support.names import suggestion
from dmq_fast.experiments.report.cells import in_order, labeller, settings, sortable, split_parameters
from dmq_fast.experiments.report.csv_export import as_specified
from dmq_fast.experiments.report.intervals import STATISTICS, Interval, bootstrap, check_level, wilson
from dmq_fast.experiments.report.metrics import (
    EPISODES,
    GOOD,
    IN_POINTS,
    QUANTITIES,
    check_share,
    has_curve,
)
from dmq_fast.experiments.report.page import value_text
from dmq_fast.experiments.sweeps.runs import FAILURES
from dmq_fast.plotting.style import Look, look

__all__ = ["Line", "Panel", "Panels", "Point", "located", "measurable", "panels_of", "swept"]

PLACES = {"environment": "environment_parameters", "algorithm": "algorithm_parameters"}
"""The entries of rows that hold parameters, by the prefix that a name may have."""


class Point(NamedTuple):
    """The runs of a line at one x: the estimate, and how many of the runs did not solve their environment."""

    x: float
    interval: Interval
    runs: int
    unsolved: int
    spent: float


class Line(NamedTuple):
    """The points of one algorithm with the same parameters, by ascending x."""

    name: str
    look: Look
    points: list[Point]


class Panel(NamedTuple):
    """The lines of one setting; of episodes against the horizon, `n_actions` is the K of all runs, else None."""

    title: str
    lines: list[Line]
    n_actions: int | None = None


class Panels(NamedTuple):
    """The content of a figure: a quantity `y` against a parameter `x`, whose values are numbers or `categories`."""

    x: str
    y: str
    statistic: str
    level: float
    share: float
    panels: list[Panel]
    categories: list[str]
    left_out: list[str]
    pooled: bool


def swept(rows: Iterable[Mapping[str, Any]]) -> list[str]:
    """Return the parameters in which runs on one environment, or runs of one algorithm, differ.

    Numbers come before others, and parameters of environments before those of algorithms. A name that both have begins
    with "environment." or "algorithm.".
    """
    rows = [as_specified(row) for row in rows]
    found: list[tuple[bool, str, str]] = []
    for prefix, place in PLACES.items():
        groups: dict[str, list[Mapping[str, Any]]] = {}
        for row in rows:
            groups.setdefault(row[prefix], []).append(row[place])
        for name in dict.fromkeys(name for some in groups.values() for name in split_parameters(some)[0]):
            values = [row[place][name] for row in rows if row[place].get(name) is not None]
            found.append((not all(map(is_number, values)), prefix, name))
    names = [name for _, _, name in found]
    return [
        f"{prefix}.{name}" if names.count(name) > 1 else name
        for _, prefix, name in sorted(found, key=lambda one: one[0])
    ]


def panels_of(
    rows: Iterable[Mapping[str, Any]],
    x: str | None = None,
    y: str = "value",
    *,
    share: float = GOOD,
    statistic: str | None = None,
    level: float = 0.95,
    pool: bool = False,
) -> Panels:
    """Return what `against` draws of these runs; arguments and errors as there."""
    if y not in QUANTITIES:
        raise ValueError(f"y: expected one of {', '.join(QUANTITIES)}, got {y!r}{suggestion(y, QUANTITIES)}")
    check_share(share)
    check_level(level)
    statistic = "mean" if y == "success" else statistic or QUANTITIES[y].statistic
    if statistic not in STATISTICS:
        raise ValueError(f"statistic: expected one of {', '.join(STATISTICS)}, got {statistic!r}")
    given = in_order([as_specified(row) for row in rows])
    if not given:
        raise ValueError("rows: expected at least one run, got none")
    x, place, name = located(given, x)
    have_x = [row for row in given if row[place].get(name) is not None]
    left_out = [missing(given, have_x, f"without {name}")]
    known = list(measured(have_x, y, share))
    have_y = [row for row, number in known if number is not None]
    failed = [row for row, number in known if number is None and row["status"] in FAILURES]
    left_out += [missing(have_x, [*have_y, *failed], f"whose {y} is unknown")]
    left_out += [f"{len(failed):,} failed {'run' if len(failed) == 1 else 'runs'}"] * bool(failed)
    if not have_y:
        raise ValueError(f"rows: expected at least one run with {name} and {y}, got none")
    numbers = {id(row): number for row, number in known if number is not None}
    values = [row[place][name] for row in have_y]
    categories = [] if all(map(is_number, values)) else ordered_texts(values)

    def at(row: Mapping[str, Any]) -> float:
        own = row[place][name]
        return float(categories.index(value_text(own)) if categories else own)

    # Without x, the runs of a line have equal parameters.
    bare = [{**row, place: {k: v for k, v in row[place].items() if k != name}} for row in have_y]
    original = {id(one): row for one, row in zip(bare, have_y, strict=True)}
    label = labeller(bare)
    looks = {text: look(i) for i, text in enumerate(dict.fromkeys(map(label, bare)))}
    panels: list[Panel] = []
    for title, here in [(pooled_title(bare), bare)] if pool else settings(bare):
        lines: dict[str, list[Mapping[str, Any]]] = {}
        for one in here:
            lines.setdefault(label(one), []).append(original[id(one)])
        made = [
            Line(text, looks[text], list(points(some, at, numbers, y, statistic, level)))
            for text, some in lines.items()
        ]
        known_actions = {row["environment_parameters"].get("n_actions") for row in here}
        horizons = y in EPISODES and (place, name) == (PLACES["environment"], "horizon")
        n_actions = known_actions.pop() if horizons and len(known_actions) == 1 else None
        panels.append(Panel(title, made, n_actions))
    return Panels(x, y, statistic, level, share, panels, categories, [text for text in left_out if text], pool)


def ordered_texts(values: Iterable[Any]) -> list[str]:
    """Return the texts of the different values of a parameter, in order."""
    return list(dict.fromkeys(value_text(one[""]) for one in sorted(({"": v} for v in values), key=sort_key)))


def sort_key(parameters: Mapping[str, Any]) -> list[Any]:
    """Return the key by which parameters sort."""
    return list(sortable(parameters))


def is_number(value: Any) -> bool:
    """Return whether a value of a parameter is a number."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def located(rows: Sequence[Mapping[str, Any]], x: str | None) -> tuple[str, str, str]:
    """Return x or its default, where rows have that parameter, and its name there; ValueError if none has it."""
    if x is None:
        x = next(iter(swept(rows)), None)
        if x is None:
            raise ValueError("x: expected a parameter; none was swept")
    prefix, dot, rest = x.partition(".")
    places = [PLACES[prefix]] if dot and prefix in PLACES else [*PLACES.values()]
    name = rest if dot and prefix in PLACES else x
    having = [place for place in places if any(row[place].get(name) is not None for row in rows)]
    if not having:
        known = dict.fromkeys(name for row in rows for place in PLACES.values() for name in row[place])
        raise ValueError(
            f"x: expected a parameter of the runs, such as {', '.join(swept(rows) or known)}, got {x!r}"
            f"{suggestion(x, [*known])}"
        )
    varying = [place for place in having if len({value_text(row[place].get(name)) for row in rows}) > 1]
    if len(varying) > 1:
        raise ValueError(f"x: expected environment.{name} or algorithm.{name}, as both were swept, got {x!r}")
    return x, (varying or having)[0], name


def missing(rows: Sequence[Any], kept: Sequence[Any], why: str) -> str:
    """Return a text on the rows that are left out; empty if none is."""
    n = len(rows) - len(kept)
    return f"{n:,} {'run' if n == 1 else 'runs'} {why}" if n else ""


def measured(
    rows: Sequence[Mapping[str, Any]], y: str, share: float
) -> Iterator[tuple[Mapping[str, Any], float | None]]:
    """Yield each row with its quantity; a failed run is unsolved only where the optimum of others is known."""
    of = QUANTITIES[y].of
    judged = {row["environment"] for row in rows if row.get("optimal_value") is not None}
    for row in rows:
        unknown = row["status"] in FAILURES and y in ("success", *EPISODES) and row["environment"] not in judged
        yield row, None if unknown else of(row, share)


def measurable(rows: Iterable[Mapping[str, Any]], share: float = GOOD) -> list[str]:
    """Return the quantities that are known of some run, for pages: not those in points where scores are known.

    Good after, stopped after and earned are those of runs with a learning curve, and of runs beside them.
    """
    rows = list(rows)
    curved = [row for row in rows if has_curve(row)]
    known = [y for y in QUANTITIES if any(number is not None for _, number in measured(rows, y, share))]
    left_out = {y for y, instead in IN_POINTS.items() if instead in known}
    if not curved:
        left_out |= {"good_after", "stopped_after", "earned"}
    return [y for y in known if y not in left_out]


def pooled_title(rows: Sequence[Mapping[str, Any]]) -> str:
    """Return the title of a panel with the runs on all environments."""
    names = list(dict.fromkeys(row["environment"] for row in rows))
    return names[0] if len(names) == 1 else f"{len(names)} environments"


def points(
    rows: Sequence[Mapping[str, Any]],
    at: Callable[[Mapping[str, Any]], float],
    numbers: Mapping[int, float],
    y: str,
    statistic: str,
    level: float,
) -> Iterator[Point]:
    """Yield the points of a line."""
    groups: dict[float, list[Mapping[str, Any]]] = {}
    for row in rows:
        groups.setdefault(at(row), []).append(row)
    for x, some in sorted(groups.items()):
        strata: dict[str, list[float]] = {}
        for row in some:
            strata.setdefault(row["cell"], []).append(numbers[id(row)])
        if y == "success":
            entries = [number for stratum in strata.values() for number in stratum]
            interval = wilson(round(sum(entries)), len(entries), level=level)
        else:
            interval = bootstrap([*strata.values()], statistic, level=level)
        unsolved = [row for row in some if y in EPISODES and math.isinf(numbers[id(row)])]
        spent = max((float(row["n_trajectories"] or 0) for row in unsolved), default=math.nan)
        yield Point(x, interval, len(some), len(unsolved), spent)
