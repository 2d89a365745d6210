"""The content of a figure of a sweep: a quantity against a parameter, as panels of lines of points.

Each environment has a panel.
"""

from __future__ import annotations

import math
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dmq_fast._support.names import suggestion
from dmq_fast.experiments.report.cells import CellRuns, cells_of, labeller, settings, sortable, split_parameters
from dmq_fast.experiments.report.intervals import STATISTICS, Interval, bootstrap, check_level, wilson
from dmq_fast.experiments.report.metrics import (
    EPISODES,
    GOOD,
    IN_POINTS,
    QUANTITIES,
    check_share,
)
from dmq_fast.experiments.report.page import value_text
from dmq_fast.plotting.style import Look, look

__all__ = [
    "ALGORITHM",
    "Line",
    "Panel",
    "Panels",
    "Point",
    "located",
    "measurable",
    "panels_of",
    "panels_of_cells",
    "swept",
]

ALGORITHM = "algorithm"
"""The x of a figure that compares algorithms, each with a row of its own."""

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


def swept(cells: Iterable[CellRuns]) -> list[str]:
    """Return the parameters in which cells on one environment, or cells of one algorithm, differ.

    Numbers come before others, and parameters of environments before those of algorithms. A name that both have begins
    with "environment." or "algorithm.".
    """
    cells = list(cells)
    found: list[tuple[bool, str, str]] = []
    for prefix, place in PLACES.items():
        groups: dict[str, list[Mapping[str, Any]]] = {}
        for cell in cells:
            groups.setdefault(getattr(cell, prefix), []).append(getattr(cell, place))
        for name in dict.fromkeys(name for some in groups.values() for name in split_parameters(some)[0]):
            values = [given for cell in cells if (given := getattr(cell, place).get(name)) is not None]
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
    cells = cells_of(rows)
    if not cells:
        raise ValueError("rows: expected at least one run, got none")
    return panels_of_cells(cells, x, y, share=share, statistic=statistic, level=level, pool=pool)


def panels_of_cells(
    cells: Sequence[CellRuns],
    x: str | None,
    y: str,
    *,
    share: float = GOOD,
    statistic: str | None = None,
    level: float = 0.95,
    pool: bool = False,
) -> Panels:
    """Return what `against` draws of the runs of these cells; arguments and errors as there."""
    if y not in QUANTITIES:
        raise ValueError(f"y: expected one of {', '.join(QUANTITIES)}, got {y!r}{suggestion(y, QUANTITIES)}")
    check_share(share)
    check_level(level)
    statistic = "mean" if y == "success" else statistic or QUANTITIES[y].statistic
    if statistic not in STATISTICS:
        raise ValueError(f"statistic: expected one of {', '.join(STATISTICS)}, got {statistic!r}")
    x, place, name = located(cells, x)
    have_x = cells if x == ALGORITHM else [cell for cell in cells if getattr(cell, place).get(name) is not None]
    left_out = [missing(count(cells) - count(have_x), f"without {name}")]
    known = [(cell, measured(cell, y, share, judged(have_x))) for cell in have_x]
    failed = sum(int((np.isnan(numbers) & cell.numbers.failed).sum()) for cell, numbers in known)
    unknown = sum(int((np.isnan(numbers) & ~cell.numbers.failed).sum()) for cell, numbers in known)
    left_out += [missing(unknown, f"whose {y} is unknown")]
    left_out += [f"{failed:,} failed {'run' if failed == 1 else 'runs'}"] * bool(failed)
    measures = {id(cell): numbers for cell, numbers in known if not np.isnan(numbers).all()}
    have_y = [cell for cell in have_x if id(cell) in measures]
    if not have_y:
        raise ValueError(f"rows: expected at least one run with {name} and {y}, got none")
    label = labeller(have_y)
    values = [label(cell) if x == ALGORITHM else getattr(cell, place)[name] for cell in have_y]
    texts = list(dict.fromkeys(values)) if x == ALGORITHM else ordered_texts(values)
    categories = [] if all(map(is_number, values)) else texts
    at = {
        id(cell): float(categories.index(value_text(own)) if categories else own)
        for cell, own in zip(have_y, values, strict=True)
    }
    # Without x, the cells of a line have equal parameters.
    bare = list(have_y) if x == ALGORITHM else [cell.without(place, name) for cell in have_y]
    original = {id(one): cell for one, cell in zip(bare, have_y, strict=True)}
    label = (lambda cell: cell.algorithm) if x == ALGORITHM else labeller(bare)
    looks = {text: look(i) for i, text in enumerate(dict.fromkeys(map(label, bare)))}
    panels: list[Panel] = []
    for title, here in [(pooled_title(bare), bare)] if pool else settings(bare):
        lines: dict[str, list[CellRuns]] = {}
        for one in here:
            lines.setdefault(label(one), []).append(original[id(one)])
        made = [
            Line(text, looks[text], list(points(some, at, measures, y, statistic, level)))
            for text, some in lines.items()
        ]
        known_actions = {cell.environment_parameters.get("n_actions") for cell in here}
        horizons = y in EPISODES and (place, name) == (PLACES["environment"], "horizon")
        n_actions = known_actions.pop() if horizons and len(known_actions) == 1 else None
        panels.append(Panel(title, made, n_actions))
    return Panels(x, y, statistic, level, share, panels, categories, [text for text in left_out if text], pool)


def count(cells: Iterable[CellRuns]) -> int:
    """Return the number of runs of cells."""
    return sum(len(cell.rows) for cell in cells)


def ordered_texts(values: Iterable[Any]) -> list[str]:
    """Return the texts of the different values of a parameter, in order."""
    return list(dict.fromkeys(value_text(one[""]) for one in sorted(({"": v} for v in values), key=sort_key)))


def sort_key(parameters: Mapping[str, Any]) -> list[Any]:
    """Return the key by which parameters sort."""
    return list(sortable(parameters))


def is_number(value: Any) -> bool:
    """Return whether a value of a parameter is a number."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def located(cells: Sequence[CellRuns], x: str | None) -> tuple[str, str, str]:
    """Return x or its default, where cells have that parameter, and its name there; ValueError if none has it."""
    if x is None:
        x = next((name for name in swept(cells) if is_default(cells, name)), ALGORITHM)
    if x == ALGORITHM:
        return x, "", x
    prefix, dot, rest = x.partition(".")
    places = [PLACES[prefix]] if dot and prefix in PLACES else [*PLACES.values()]
    name = rest if dot and prefix in PLACES else x
    having = [place for place in places if any(getattr(cell, place).get(name) is not None for cell in cells)]
    if not having:
        known = dict.fromkeys(name for cell in cells for place in PLACES.values() for name in getattr(cell, place))
        raise ValueError(
            f"x: expected a parameter of the runs, such as {', '.join(swept(cells) or known)}, got {x!r}"
            f"{suggestion(x, [*known])}"
        )
    varying = [place for place in having if len({value_text(getattr(cell, place).get(name)) for cell in cells}) > 1]
    if len(varying) > 1:
        raise ValueError(f"x: expected environment.{name} or algorithm.{name}, as both were swept, got {x!r}")
    return x, (varying or having)[0], name


def is_default(cells: Sequence[CellRuns], name: str) -> bool:
    """Return whether a parameter that was swept is one of the environments, or one that all algorithms have."""
    place, dot, rest = name.partition(".")
    if dot and place in PLACES:
        return place == "environment" or all(cell.algorithm_parameters.get(rest) is not None for cell in cells)
    return any(name in cell.environment_parameters for cell in cells) or all(
        cell.algorithm_parameters.get(name) is not None for cell in cells
    )


def missing(n: int, why: str) -> str:
    """Return a text on n runs that are left out; empty if none is."""
    return f"{n:,} {'run' if n == 1 else 'runs'} {why}" if n else ""


def judged(cells: Iterable[CellRuns]) -> set[str]:
    """Return the environments whose optimum is known of some run."""
    return {cell.environment for cell in cells if not np.isnan(cell.numbers.optimum).all()}


def measured(cell: CellRuns, y: str, share: float, known: Container[str]) -> NDArray[np.float64]:
    """Return the quantity of each run; a failed run is unsolved only where the optimum is `known` of others."""
    numbers = QUANTITIES[y].numbers(cell.numbers, share)
    if y in ("success", *EPISODES) and cell.environment not in known:
        numbers = np.where(cell.numbers.failed, math.nan, numbers)
    return numbers


def measurable(cells: Sequence[CellRuns], share: float = GOOD) -> list[str]:
    """Return the quantities that are known of some run, for pages: not those in points where scores are known.

    Good after, stopped after and earned are those of runs with a learning curve, and of runs beside them.
    """
    optimum = judged(cells)
    known = [y for y in QUANTITIES if any(not np.isnan(measured(cell, y, share, optimum)).all() for cell in cells)]
    left_out = {y for y, instead in IN_POINTS.items() if instead in known}
    if not any(cell.numbers.curves(share).has.any() for cell in cells):
        left_out |= {"good_after", "stopped_after", "earned"}
    return [y for y in known if y not in left_out]


def pooled_title(cells: Sequence[CellRuns]) -> str:
    """Return the title of a panel with the runs on all environments."""
    names = list(dict.fromkeys(cell.environment for cell in cells))
    return names[0] if len(names) == 1 else f"{len(names)} environments"


def points(
    cells: Sequence[CellRuns],
    at: Mapping[int, float],
    measures: Mapping[int, NDArray[np.float64]],
    y: str,
    statistic: str,
    level: float,
) -> Iterator[Point]:
    """Yield the points of a line; the cells of a point are its strata."""
    groups: dict[float, list[CellRuns]] = {}
    for cell in cells:
        groups.setdefault(at[id(cell)], []).append(cell)
    for x, some in sorted(groups.items()):
        yield point_of(x, some, [measures[id(cell)] for cell in some], y, statistic, level)


def point_of(
    x: float, cells: Sequence[CellRuns], measures: Sequence[NDArray[np.float64]], y: str, statistic: str, level: float
) -> Point:
    """Return the point at x of the runs of some cells, of which these numbers are known, NaN where one is not."""
    strata = [numbers[~np.isnan(numbers)] for numbers in measures]
    runs = sum(map(len, strata))
    if y == "success":
        interval = wilson(round(sum(float(one.sum()) for one in strata)), runs, level=level)
    else:
        interval = bootstrap(strata, statistic, level=level)
    spent = np.concatenate(
        [cell.numbers.episodes[np.isinf(numbers)] for cell, numbers in zip(cells, measures, strict=True)]
        if y in EPISODES
        else [np.array([])]
    )
    most = float(np.nan_to_num(spent).max()) if len(spent) else math.nan
    return Point(x, interval, runs, len(spent), most)
