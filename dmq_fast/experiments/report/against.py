"""`against`: a picture of a quantity of the runs of a sweep against any parameter that was swept, with bands."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dmq_fast.experiments.report.metrics import EPISODES, GOOD, PARTS, QUANTITIES
from dmq_fast.experiments.report.panels import ALGORITHM, Line, Panel, Panels, Point, panels_of
from dmq_fast.plotting.axes import LETTER, add_legend, legend_height, longest, most_lines, shorten
from dmq_fast.plotting.canvas import WIDTH, canvas
from dmq_fast.plotting.style import FAINT, LINE, MUTED, REFERENCE, plain, wrapped

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["against", "plot", "plot_line"]

SYMBOLS = {
    "horizon": "horizon $H$",
    "size": "size $N$",
    "n_actions": "actions $K$",
    "n_samples": "trajectories for each policy $N$",
    "ratio": "ratio $R$",
    "eps_r": r"regulariser $\varepsilon_r$",
    "epsilon": r"accuracy $\varepsilon$",
    "delta": r"failure probability $\delta$",
    "ridge": r"ridge $\lambda$",
}
"""Labels of parameters on the abscissa."""

NAMES = {"mean": "mean", "iqm": "interquartile mean", "median": "median"}

ROOM = 2.1
"""Least width of a panel in inches."""

TALL = 1.8
"""Height of a panel with its labels, in inches."""

NOTE = 6.0
"""Size of the text below the panels, in points."""


def against(
    rows: Iterable[Mapping[str, Any]],
    x: str | None = None,
    y: str = "value",
    *,
    share: float = GOOD,
    statistic: str | None = None,
    level: float = 0.95,
    pool: bool = False,
    log_x: bool | None = None,
    log_y: bool | None = None,
    width: float = WIDTH,
) -> Figure:
    """Plot a quantity of runs against a parameter, with a line for each algorithm and setting of it.

    Parameters
    ----------
    rows : iterable of mapping
        The rows that `experiments.load` returns.
    x : str, optional
        A parameter of the environments or the algorithms, such as "horizon", or "algorithm.seed" where both have it.
        Its values may also be texts. Or "algorithm": a row for each algorithm and setting of it, with y along them. By
        default the first parameter that was swept, of the environments or of all algorithms; else "algorithm".
    y : str, default "value"
        One of `metrics.QUANTITIES`. "value" and "seconds" are what they say, "loss" is V* - V, "score" is
        (V - V_uniform) / (V* - V_uniform), "shortfall" 1 - score, "success" the share of runs that solved their
        environment, and "episodes" their number until then: "stopped_after" of algorithms that stop by themselves,
        "good_after", the first checkpoint with a good policy, of all others. "earned" is the first multiple of 100
        episodes with a running mean reward above (V_uniform + V*) / 2.
    share : float, default 0.95
        Score, in (0, 1], from which a run counts as solved.
    statistic : {"mean", "iqm", "median"}, optional
        What the lines show of several runs; "iqm" is the mean of the middle half. By default the median of episodes and
        seconds, and the mean of the rest. The success rate is always a mean.
    level : float, default 0.95
        Confidence of the bands, in (0, 1): intervals of the stratified bootstrap with a fixed seed, those of a success
        rate by Wilson. A single run has no band.
    pool : bool, default False
        Draw the runs on all environments in one panel instead of one for each. Each cell is a stratum then.
    log_x, log_y : bool, optional
        Whether the axes are logarithmic. By default the abscissa is where x spans more than a decade by ratios; the
        ordinate where episodes, seconds or losses, all positive, span more than a decade.
    width : float, default 3.3
        Width in inches. Panels are side by side where there is room.

    Notes
    -----
    A run that did not solve its environment counts as infinity among the episodes, so there is no point where the
    statistic is infinite. An open marker at the largest number of their episodes stands for the unsolved runs. A run
    that failed counts as unsolved, and is left out of the other quantities. The text below the panels describes what
    bands are and what is left out. Where all runs of a panel have the same number K of actions, episodes against the
    horizon have the reference line K^H, about what random exploration needs.

    Raises
    ------
    ValueError
        If an argument is out of range, or no run has both x and y.
    """
    return plot(
        panels_of(rows, x, y, share=share, statistic=statistic, level=level, pool=pool),
        log_x=log_x,
        log_y=log_y,
        width=width,
    )


def across_of(shown: Panels, width: float) -> int:
    """Return how many panels stand side by side at this width in inches."""
    return min(len(shown.panels), max(1, int(width / ROOM)))


def plot(shown: Panels, *, log_x: bool | None = None, log_y: bool | None = None, width: float = WIDTH) -> Figure:
    """Plot panels side by side and below each other; see `against` for the arguments and errors."""
    if shown.x == ALGORITHM:
        return plot_algorithms(shown, log_y=log_y, width=width)
    panels = shown.panels
    across = across_of(shown, width)
    down, own = math.ceil(len(panels) / across), width / across
    looks = {line.name: line.look for panel in panels for line in panel.lines}
    titles = ["\n".join(textwrap.wrap(plain(panel.title), int(14 * own))) for panel in panels if len(panels) > 1]
    numbers = np.array(sorted({point.x for point in points_of(panels)}))
    ratios = ratio_axis(shown, numbers, log_x)
    powers = spans_a_decade(shown) if log_y is None else log_y
    below = note(shown, powers, width)
    room = own - 0.7
    labels, upright = category_texts(shown.categories, room) if shown.categories else ([], True)
    label_room = LINE * most_lines(labels) if upright else LETTER * longest(labels)
    height = down * (TALL + label_room + 1.1 * LINE * most_lines(titles)) + 1.25 * NOTE / 72 * most_lines([below])
    with canvas(width, height + legend_height(looks, width)) as figure:
        grid = figure.subplots(down, across, squeeze=False)
        used = dict(zip(grid.flat, panels, strict=False))
        for axes, panel in used.items():
            low, high = limits_of(panel, shown.y, powers)
            axes.set(
                xscale="log" if ratios else "linear",
                yscale="log" if powers else "linear",
                xlim=span(numbers, ratios, shown.categories, 0.08 if shown.y in EPISODES else 0.04),
                ylim=(low, high),
            )
            for i, line in enumerate(panel.lines):
                aside = (i - (len(panel.lines) - 1) / 2) * step_aside(shown, panel, room)
                plot_line(axes, line, low, high, aside, joined=not shown.categories)
            if panel.n_actions is not None and not shown.categories:
                plot_exponential(axes, panel.n_actions, numbers, low, high)
            set_ticks(axes, numbers, shown.categories, room)
            if powers:
                label_powers(axes.yaxis, low, high)
            elif shown.y in EPISODES:
                shorten(axes.yaxis)
        for axes, title in zip(used, titles, strict=False):
            axes.set_title(title)
        for axes in grid[:, 0]:
            axes.set_ylabel(QUANTITIES[shown.y].label)
        for axes in list(used)[-across:]:  # the lowest of each column
            axes.set_xlabel(SYMBOLS.get(shown.x.rpartition(".")[2], plain(shown.x)))
        for axes in grid.flat[len(panels) :]:
            axes.remove()
        figure.supxlabel(below, x=0.01, ha="left", fontsize=NOTE, color=MUTED, linespacing=1.2)
        add_legend(figure, looks, joined=not shown.categories)
    return figure


def plot_algorithms(shown: Panels, *, log_y: bool | None, width: float) -> Figure:
    """Plot panels below each other, with a row for each algorithm and setting: a point, and a bar for its interval."""
    powers = spans_a_decade(shown) if log_y is None else log_y
    names = [wrapped(name, 0.8 * width) for name in shown.categories]
    rows = LINE * 1.25 * sum(name.count("\n") + 1.2 for name in names)
    some = shown.panels if len(shown.panels) > 1 else []
    titles = ["\n".join(textwrap.wrap(plain(panel.title), int(14 * width))) for panel in some]
    below = note(shown, powers, width)
    extra = 0.3 + 1.1 * LINE * most_lines(titles)
    height = len(shown.panels) * (rows + extra) + 0.2 + 1.25 * NOTE / 72 * most_lines([below])
    with canvas(width, height) as figure:
        grid = figure.subplots(len(shown.panels), 1, squeeze=False, sharey=True)[:, 0]
        for axes, panel in zip(grid, shown.panels, strict=True):
            low, high = limits_of(panel, shown.y, powers)
            axes.set(xscale="log" if powers else "linear", xlim=(low, high), ylim=(len(names) - 0.5, -0.5))
            axes.hlines(range(len(names)), low, high, color=FAINT, linewidth=0.6, zorder=0)
            for line in panel.lines:
                plot_rows(axes, line, low, high)
            axes.set_yticks(range(len(names)), names)
            axes.tick_params(axis="y", length=0)
            if powers:
                label_powers(axes.xaxis, low, high)
            elif shown.y in EPISODES:
                shorten(axes.xaxis)
            else:
                axes.locator_params(axis="x", nbins=4)  # numbers of five digits have room
        for axes, title in zip(grid, titles, strict=False):
            axes.set_title(title)
        grid[-1].set_xlabel(QUANTITIES[shown.y].label)
        figure.supxlabel(below, x=0.01, ha="left", fontsize=NOTE, color=MUTED, linespacing=1.2)
    return figure


def plot_rows(axes: Axes, line: Line, low: float, high: float) -> None:
    """Plot the points of an algorithm in their rows, with bars, and open markers where runs are unsolved."""
    colour, marker, _ = line.look
    for point in line.points:
        middle, first, last = (min(max(end, low), high) for end in point.interval)
        if math.isfinite(point.interval.low):
            axes.hlines(point.x, first, last, color=colour, linewidth=1.4)
        if math.isfinite(point.interval.middle):
            axes.plot([middle], [point.x], color=colour, marker=marker, clip_on=False)
        if point.unsolved:
            axes.plot([point.spent], [point.x], linestyle="", marker=marker, markersize=4, markerfacecolor="none",
                      markeredgecolor=colour, markeredgewidth=0.7, clip_on=False, in_layout=False)  # fmt: skip


def points_of(panels: Iterable[Panel]) -> Iterator[Point]:
    """Yield the points of panels."""
    for panel in panels:
        for line in panel.lines:
            yield from line.points


def ratio_axis(shown: Panels, numbers: NDArray[np.float64], log_x: bool | None) -> bool:
    """Return whether the abscissa is logarithmic; ValueError if it cannot be and shall."""
    if log_x and shown.categories:
        raise ValueError(f"log_x: expected numbers as values of {shown.x}, got {', '.join(shown.categories)}")
    if log_x and numbers[0] <= 0:
        raise ValueError(f"log_x: expected positive values of {shown.x}, got {numbers[0]:g}")
    return not shown.categories and (by_ratios(numbers) if log_x is None else log_x)


def by_ratios(numbers: NDArray[np.float64]) -> bool:
    """Return whether ascending numbers span more than a decade, and their ratios vary less than their differences.

    >>> by_ratios(np.array([5.0, 10, 20, 40, 100])), by_ratios(np.arange(5.0, 105, 5)), by_ratios(np.array([5.0, 20]))
    (True, False, False)
    """
    if len(numbers) < 2 or numbers[0] <= 0 or numbers[-1] <= 10 * numbers[0]:
        return False
    ratios, differences = np.diff(np.log(numbers)), np.diff(numbers)
    return bool(ratios.std() / ratios.mean() <= differences.std() / differences.mean())


def spans_a_decade(shown: Panels) -> bool:
    """Return whether losses, episodes or seconds are all positive and span more than a decade."""
    drawn = [end for point in points_of(shown.panels) for end in (point.interval.middle, point.spent)]
    drawn = [end for end in drawn if math.isfinite(end)]
    return (
        shown.y in ("loss", "shortfall", "seconds", *EPISODES)
        and bool(drawn)
        and min(drawn) > 0
        and max(drawn) > 10 * min(drawn)
    )


def limits_of(panel: Panel, y: str, powers: bool) -> tuple[float, float]:
    """Return the ends of the ordinate of a panel; ValueError if it shall be logarithmic and nothing is > 0."""
    if y == "success" and not powers:
        return -0.04, 1.04
    ends = [end for point in points_of([panel]) for end in (*point.interval, point.spent) if math.isfinite(end)]
    if powers:
        positive = [end for end in ends if end > 0]
        if not positive:
            raise ValueError(f"log_y: expected some {y} > 0, got none")
        room = max(1.3, (max(positive) / min(positive)) ** 0.05)
        return min(positive) / (room if min(ends) > 0 else max(room, 3.0)), max(positive) * room
    low, high = min(ends, default=0.0), max(ends, default=1.0)
    if low == high == 0.0:  # such as losses of which there are none
        return -0.03, 1.0
    pad = 0.05 * (high - min(low, 0.0)) or 0.5
    return (-0.6 * pad if low >= 0 else low - pad), high + pad


def span(numbers: NDArray[np.float64], ratios: bool, categories: Sequence[str], pad: float) -> tuple[float, float]:
    """Return the ends of the abscissa, with room for the markers at its ends, `pad` of its length."""
    first, last = float(numbers[0]), float(numbers[-1])
    if categories:
        return -0.5, len(categories) - 0.5
    if ratios:
        room = (last / first) ** pad if last > first else 2.0
        return first / room, last * room
    room = pad * (last - first) or max(0.5, 1e-3 * abs(first))
    return first - room, last + room


def plot_exponential(axes: Axes, n_actions: int, numbers: NDArray[np.float64], low: float, high: float) -> None:
    """Plot the part of K^H within the axes, with its name beside its upper end."""
    first, last = float(numbers[0]), float(numbers[-1])
    x = np.geomspace(first, last, 100) if first > 0 else np.array([])
    y = x * math.log(n_actions)  # of large horizons K^H overflows
    seen = (y <= math.log(high)) & (y >= (math.log(low) if low > 0 else -math.inf))
    if seen.sum() > 1:
        axes.plot(x[seen], np.exp(y[seen]), color=MUTED, linestyle=REFERENCE, linewidth=0.9)
        axes.annotate(f"${n_actions}^H$", (x[seen][-1], float(np.exp(y[seen][-1]))), (-6, -4),
                      textcoords="offset points", color=MUTED, va="bottom", ha="right")  # fmt: skip


def plot_line(
    axes: Axes,
    line: Line,
    low: float = -math.inf,
    high: float = math.inf,
    aside: float = 0.0,
    *,
    joined: bool = True,
    every: tuple[float, float] | None = None,
) -> None:
    """Plot the points of a line with their intervals: a band where points are joined, else a bar for each.

    What does not lie on the line is moved aside, by points, so that lines do not hide each other's. `every` thins the
    markers, as matplotlib's `markevery` does.
    """
    from matplotlib.transforms import ScaledTranslation

    moved = axes.transData + ScaledTranslation(aside / 72, 0, axes.figure.dpi_scale_trans)
    colour, marker, dashes = line.look
    x = np.array([point.x for point in line.points])
    middle, lower, upper = np.array([point.interval for point in line.points]).T
    middle = np.where(np.isfinite(middle), np.maximum(middle, low), np.nan)
    has = np.isfinite(lower)
    lower, upper = np.where(has, np.maximum(lower, low), np.nan), np.where(has, np.minimum(upper, high), np.nan)
    if joined and has.sum() > 1:
        axes.fill_between(x, lower, upper, color=colour, alpha=0.18, linewidth=0)
    else:
        axes.vlines(x[has], lower[has], upper[has], color=colour, linewidth=0.8, transform=moved)
    style = {"linestyle": dashes} if joined else {"linestyle": "", "transform": moved}
    axes.plot(x, middle, color=colour, marker=marker, markevery=every, **style)
    if unsolved := [point for point in line.points if point.unsolved]:
        axes.plot([point.x for point in unsolved], [point.spent for point in unsolved], linestyle="", marker=marker,
                  markersize=4, markerfacecolor="none", markeredgecolor=colour, markeredgewidth=0.7,
                  transform=moved, clip_on=False, in_layout=False)  # fmt: skip


def step_aside(shown: Panels, panel: Panel, room: float) -> float:
    """Return how far lines are moved aside from each other, in points; categories stay apart on `room` inches."""
    if not shown.categories:
        return 2.5
    return min(5.0, 0.8 * 72 * max(room, 0.5) / len(shown.categories) / len(panel.lines))


def label_powers(axis: Any, low: float, high: float) -> None:
    """Label the powers of ten on a logarithmic axis; where fewer than two are in sight, 2 and 5 of each as well."""
    from matplotlib.ticker import LogLocator, NullFormatter, StrMethodFormatter

    axis.set_minor_formatter(NullFormatter())
    if math.floor(math.log10(high)) <= math.ceil(math.log10(low)):
        axis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
        axis.set_major_formatter(StrMethodFormatter("{x:g}"))


def category_texts(categories: Sequence[str], room: float) -> tuple[list[str], bool]:
    """Return the labels of categories in lines, and whether they are upright on an axis of `room` inches."""
    letters = max(1, int(room / len(categories) / LETTER) - 1)
    upright = all(len(word) <= letters for text in categories for word in text.split())
    return [plain("\n".join(textwrap.wrap(text, letters if upright else 20))) for text in categories], upright


def set_ticks(axes: Axes, numbers: NDArray[np.float64], categories: Sequence[str], room: float) -> None:
    """Put ticks at the values of x, as many as have room for their labels on an axis of `room` inches."""
    from matplotlib.ticker import NullLocator

    axes.xaxis.set_minor_locator(NullLocator())
    if categories:
        texts, upright = category_texts(categories, room)
        axes.set_xticks(range(len(categories)), texts)
        axes.tick_params(axis="x", labelrotation=0 if upright else 90)
        return
    first, last = axes.get_xlim()
    log = axes.get_xscale() == "log"
    places = room * (np.log(numbers / first) / np.log(last / first) if log else (numbers - first) / (last - first))
    kept: list[int] = []
    for i, number in enumerate(numbers):
        apart = LETTER * (len(f"{number:g}") + 1)
        while i == len(numbers) - 1 and kept and places[i] - places[kept[-1]] < apart:
            kept.pop()  # the last value has a tick
        if not kept or places[i] - places[kept[-1]] >= apart:
            kept.append(i)
    axes.set_xticks(numbers[kept], [f"{number:g}" for number in numbers[kept]])


def note(shown: Panels, powers: bool, width: float) -> str:
    """Return the lines of text below the panels: what points and bands are, and what is left out."""
    every = list(points_of(shown.panels))
    runs = sorted({point.runs for point in every})
    of = f"{runs[0]:,}" if len(runs) == 1 else f"{runs[0]:,} to {runs[-1]:,}"
    texts = [f"Points: {NAMES[shown.statistic]} of {of} run{'s' * (runs[-1] > 1)}"]
    if any(math.isfinite(point.interval.low) for point in every):
        kind = "Wilson" if shown.y == "success" else "stratified bootstrap" if shown.pooled else "bootstrap"
        texts.append(f"{'bars' if shown.categories else 'bands'}: {shown.level * 100:g} % {kind} interval")
    if shown.y in ("success", "episodes", *PARTS):
        texts.append(f"solved: a score of at least {shown.share * 100:g} %")
    if any(point.unsolved for point in every):
        texts.append("open markers: episodes of unsolved runs, which count as infinite")
    if powers and any(point.interval.middle <= 0 for point in every):
        texts.append("points at 0 are drawn at the bottom")
    if shown.left_out:
        texts.append(f"left out: {', '.join(shown.left_out)}")
    return "\n".join(textwrap.wrap("; ".join(texts) + ".", int(19 * width)))
