"""Pictures of runs and sweeps, as papers print them.

Every function returns a matplotlib `Figure` of the width of a column, 3.3 inches, without any global state::

    figure = pictures.cover_and_potential(result)
    figure.savefig("cover.pdf")

Names are text: underscores and dollar signs in them are drawn as they are. Labels of axes may hold formulas. Pictures
look the same whatever matplotlib's settings are, and PDF files hold Type 42 fonts. `experiments.oracle_bench.picture`
draws the cost of the oracle. Needs matplotlib, the extra ``plot``.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dmq_fast.environments.finite import FiniteMDP
from dmq_fast.experiments.report.canvas import canvas
from dmq_fast.experiments.report.metrics import by_policy
from dmq_fast.experiments.report.style import (
    BLUE,
    COLOURS,
    FAINT,
    GREEN,
    INK,
    LINE,
    MUTED,
    OLIVE,
    ORANGE,
    PURPLE,
    REFERENCE,
    SKY,
    WINE,
    YELLOW,
    Look,
    look,
    plain,
    wrapped,
)
from dmq_fast.experiments.sweeps.runs import FAILURES
from dmq_fast.policy import Policy
from dmq_fast.run.result import Result
from dmq_fast.theory import printed_cover_bound, sure_cover_bound
from dmq_fast.theory.certificate import is_plain_linear, level_records, n_initial

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = [
    "COLOURS",
    "INK",
    "MUTED",
    "cover_and_potential",
    "episodes_to_solve",
    "is_solved",
    "learning_curves",
    "oracle_values",
    "trajectories_by_purpose",
    "visits",
]

WIDTH = 3.3
"""Width of a column in inches."""

# Number of markers from which a picture draws them as pixels, so that its file stays small.
MANY = 4000

# Largest number of unsolved runs that are drawn one by one.
COUNTABLE = 6


def is_solved(row: Mapping[str, Any], share: float = 0.95) -> bool:
    """Return whether a run found a policy that is worth at least `share` of the optimum.

    Parameters
    ----------
    row : mapping
        Row of a sweep. Its entry "solved" decides, if it has one; otherwise "value" and "optimal_value" do.
    share : float, default 0.95

    Raises
    ------
    ValueError
        If the row has neither "solved" nor "optimal_value".

    Examples
    --------
    >>> is_solved({"value": 0.69, "optimal_value": 0.7})
    True
    """
    if row.get("solved") is not None:
        return bool(row["solved"])
    if row.get("status") in FAILURES:
        return False
    if row.get("optimal_value") is None:
        raise ValueError('rows: expected "solved" or "optimal_value" in every run')
    value = row.get("value")
    # If the optimum is 0, every policy is optimal.
    return value is not None and value >= share * row["optimal_value"]


def field(row: Mapping[str, Any], name: str) -> Any:
    """Return an entry of a row or of its parameters; None if there is none."""
    for place in (row, row.get("environment_parameters") or {}, row.get("algorithm_parameters") or {}):
        if name in place:
            return place[name]
    return None


def episodes_to_solve(
    rows: Iterable[Mapping[str, Any]],
    *,
    x: str = "horizon",
    by: str | Callable[[Mapping[str, Any]], Hashable] = "algorithm",
    n_actions: int | None = None,
    share: float = 0.95,
    quantiles: tuple[float, float] = (0.25, 0.75),
    xlabel: str = "horizon $H$",
    ylabel: str = "episodes until solved",
    width: float = WIDTH,
    height: float = 2.5,
) -> Figure:
    """Draw the episodes until an environment is solved against its horizon, log-log.

    Parameters
    ----------
    rows : iterable of mapping
        One for each run, as `experiments.load` returns them. Each needs "n_trajectories" and the entries that
        `is_solved` reads; `x` and `by` are among its entries, "environment_parameters" or "algorithm_parameters". Of a
        run with a learning curve, the episodes count until the first checkpoint whose policy is good enough, unless the
        row has its own entry "solved".
    x : str
        Name of the entry on the abscissa.
    by : str or callable
        Name of the entry that distinguishes the lines, or a function that returns it.
    n_actions : int, optional
        K of the reference line K^H, the episodes that random exploration needs. By default the "n_actions" of the runs,
        if all agree.
    share : float, default 0.95
        Share of the optimal value from which a run counts as solved.
    quantiles : pair of float
        Quantiles that bound the band around the median.

    Notes
    -----
    A run that did not solve its environment counts as infinity in median and band, as it would have needed more
    episodes than it had. So there is a median only where more than half of the runs solved it, and a band without upper
    end reaches the top. Each unsolved run is an open marker at the number of its episodes; more than six share one
    marker with their number beside it, and if no run solved it, they share one without a number. Failed runs, which
    have no "n_trajectories", are left out; the title says how many.

    Raises
    ------
    ValueError
        If there are no rows, or one lacks an entry that is needed.
    """
    given = list(rows)
    rows = [by_policy(row, share) for row in given if row.get("n_trajectories") is not None]
    if not rows:
        raise ValueError("rows: expected at least one run with n_trajectories, got none")
    groups: dict[Hashable, dict[float, list[Mapping[str, Any]]]] = {}
    for row in rows:
        at = field(row, x)
        if not isinstance(at, int | float) or not at > 0:
            raise ValueError(f"rows: expected a positive {x} in every run, got {at!r}")
        groups.setdefault(by(row) if callable(by) else field(row, by), {}).setdefault(float(at), []).append(row)
    if n_actions is None:
        known = {field(row, "n_actions") for row in rows}
        n_actions = known.pop() if len(known) == 1 else None
    spent = [row["n_trajectories"] for row in rows]
    low, high = (
        10.0 ** round_to(math.log10(x))
        for round_to, x in ((math.floor, max(min(spent), 1)), (math.ceil, 1.5 * max(spent)))
    )
    with canvas(width, room_for(groups, width, height)) as figure:
        axes = figure.subplots()
        axes.set(xscale="log", yscale="log", ylim=(low, high), xlabel=xlabel, ylabel=ylabel)
        if len(rows) < len(given):
            axes.set_title(f"left out: {len(given) - len(rows):,} failed", color=MUTED)
        ends = []
        for i, (label, runs) in enumerate(groups.items()):
            # Markers of algorithms that failed after the same number of episodes must not cover each other.
            aside = 1.3 ** ((i - (len(groups) - 1) / 2) / max(len(groups), 9))
            end = draw_solved(axes, runs, look(i), share, quantiles, high, aside)
            ends.append(End(wrapped(label, width), look(i), *end))
        horizons = np.array(sorted({at for runs in groups.values() for at in runs}))
        if n_actions is not None and x == "horizon":
            draw_exponential(axes, n_actions, horizons, low, high)
        ticks = horizons if len(horizons) <= 7 else horizons[:: math.ceil(len(horizons) / 7)]
        axes.set_xticks(ticks, labels=[f"{tick:g}" for tick in ticks])
        axes.set_xticks([], minor=True)
        if len(ends) > 1:
            label_ends(axes, ends)
    return figure


def draw_solved(
    axes: Axes,
    runs: Mapping[float, Sequence[Mapping[str, Any]]],
    own: Look,
    share: float,
    quantiles: tuple[float, float],
    top: float,
    aside: float,
) -> tuple[float, float]:
    """Draw median, band and unsolved runs of one line, with open markers at `aside` times x; return its last point."""
    at = sorted(runs)
    # As floats, since the counts of exact samplers do not fit 64-bit integers.
    needed = [[float(row["n_trajectories"]) if is_solved(row, share) else np.inf for row in runs[x]] for x in at]
    lower, median, upper = (
        np.array([np.quantile(some, q, method="inverted_cdf") for some in needed])
        for q in (quantiles[0], 0.5, quantiles[1])
    )
    known = np.isfinite(lower)
    axes.fill_between(
        np.array(at), np.where(known, lower, np.nan), np.minimum(upper, top), color=own.colour, alpha=0.18, linewidth=0
    )
    solved = np.isfinite(median)
    axes.plot(np.array(at)[solved], median[solved], color=own.colour, marker=own.marker, linestyle=own.line)
    unsolved = {
        x: spent
        for x in at
        if (spent := [float(row["n_trajectories"]) for row in runs[x] if not is_solved(row, share)])
    }
    for x, spent in unsolved.items():
        one_for_all = len(spent) > COUNTABLE or len(spent) == len(runs[x])
        shown = [max(spent)] if one_for_all else spent
        # Side by side, as most have the same number of episodes.
        beside = aside * x * (1.0 + 0.02 * (np.arange(len(shown)) - (len(shown) - 1) / 2))
        axes.plot(beside, shown, linestyle="", marker=own.marker, markersize=4, markerfacecolor="none",
                  markeredgecolor=own.colour, markeredgewidth=0.7)  # fmt: skip
        if COUNTABLE < len(spent) < len(runs[x]):
            axes.annotate(f"{len(spent)}/{len(runs[x])}", (aside * x, max(spent)), (0, 4), textcoords="offset points",
                          ha="center", fontsize=6, color=own.colour)  # fmt: skip
    last = at[-1]
    return last, float(median[-1]) if solved[-1] else float(max(unsolved[last]))


def draw_exponential(axes: Axes, n_actions: int, horizons: NDArray[np.float64], low: float, high: float) -> None:
    """Draw the part of K^H within the axes, with its name beside its upper end."""
    last = min(float(horizons[-1]), math.log(high) / math.log(n_actions)) if n_actions > 1 else float(horizons[-1])
    first = min(float(horizons[0]), last)
    x = np.geomspace(first, last, 100)
    axes.plot(x, float(n_actions) ** x, color=MUTED, linestyle=REFERENCE, linewidth=0.9)
    y = min(float(n_actions) ** last, high)
    if y > low:
        axes.annotate(f"${n_actions}^H$", (last, y), (-5, -2), textcoords="offset points", color=MUTED, va="top",
                      ha="right")  # fmt: skip


class End(NamedTuple):
    """The end of a line: its name in lines of text, its look, and where it is."""

    name: str
    look: Look
    x: float
    y: float


def room_for(names: Iterable[object], width: float, height: float) -> float:
    """Return the height of a picture with room for the names of its lines."""
    return max(height, 0.5 + LINE + sum(tall(wrapped(name, width)) for name in names))


def tall(name: str) -> float:
    """Return the height of a name in inches."""
    return LINE * (1.0 + 1.2 * name.count("\n"))


def label_ends(axes: Axes, ends: Sequence[End]) -> None:
    """Write the name of each line to the right of its end, moved apart if ends are close.

    Where lines share a colour, a piece of each line is drawn beside its name.
    """
    from matplotlib.transforms import ScaledTranslation, blended_transform_factory
    from scipy.optimize import isotonic_regression

    figure = axes.figure
    figure.draw_without_rendering()  # type: ignore[union-attr]  # computes the position of the axes
    height = axes.bbox.height / figure.dpi
    bottom = float(axes.bbox.y0) / figure.dpi
    to_display = axes.transData.transform
    places = np.array([float(to_display((end.x, end.y))[1]) / figure.dpi - bottom for end in ends])
    order = np.argsort(places, kind="stable")
    sizes = np.array([tall(ends[index].name) for index in order])
    # The middles of the names closest to the ends in least squares, so far apart that no two of them overlap.
    steps = np.cumsum(sizes) - sizes / 2 - sizes[0] / 2
    at = isotonic_regression(places[order] - steps).x
    at = np.clip(at, 0.0, max(0.0, height - steps[-1])) + steps
    shared = len({end.look.colour for end in ends}) < len(ends)
    # Inches to the right of the axes, so that the room for the names does not depend on the width of the axes.
    beside = figure.dpi_scale_trans + ScaledTranslation(1.0, 0.0, axes.transAxes)  # type: ignore[arg-type]
    transform = blended_transform_factory(beside, axes.transAxes)
    for y, index in zip(at / height, order, strict=True):
        name, own, _, _ = ends[index]
        if shared:
            axes.plot([0.05, 0.22, 0.39], [y] * 3, color=own.colour, linestyle=own.line, marker=own.marker,
                      markevery=[1], transform=transform, clip_on=False)  # fmt: skip
        axes.text(0.44 if shared else 0.05, y, name, color=own.colour, va="center", ha="left", linespacing=1.05,
                  transform=transform, clip_on=False)  # fmt: skip


def learning_curves(
    curves: Mapping[str, tuple[ArrayLike, ArrayLike]],
    *,
    quantiles: tuple[float, float] = (0.25, 0.75),
    optimum: float | None = None,
    among: Iterable[str] | None = None,
    xlabel: str = "episodes",
    ylabel: str = "value",
    xscale: str = "linear",
    yscale: str = "linear",
    width: float = WIDTH,
    height: float = 2.3,
) -> Figure:
    """Draw the median of several runs with a band for each algorithm: values, regret, seconds or bytes over episodes.

    Parameters
    ----------
    curves : mapping of str to (x, y)
        By name: x of shape (n,), y of shape (runs, n), or (n,) for one run; NaN after the end of a run. A single x is
        drawn as a dot.
    quantiles : pair of float
        Quantiles that bound the band; a single run has no band.
    optimum : float, optional
        Value of the reference line V*.
    among : iterable of str, optional
        Names of the curves of several pictures, in which each has the same look; by default those of this one.

    Raises
    ------
    ValueError
        If there are no curves, one is of a wrong shape, or `among` leaves one out.
    """
    if not curves:
        raise ValueError("curves: expected at least one, got none")
    looks = {name: look(i) for i, name in enumerate(dict.fromkeys(curves if among is None else among))}
    if missing := [name for name in curves if name not in looks]:
        raise ValueError(f"among: expected the names of all curves, got none of {missing}")
    with canvas(width, room_for(curves, width, height)) as figure:
        axes = figure.subplots()
        axes.set(xscale=xscale, yscale=yscale, xlabel=xlabel, ylabel=ylabel)
        ends = []
        if optimum is not None:
            axes.axhline(optimum, color=MUTED, linewidth=0.8, linestyle=REFERENCE)
            ends.append(End("$V^*$", Look(MUTED, "", REFERENCE), 0.0, optimum))
        for label, (x, y) in curves.items():
            own = looks[label]
            at, values = np.asarray(x, dtype=np.float64), np.atleast_2d(np.asarray(y, dtype=np.float64))
            if at.ndim != 1 or values.ndim != 2 or values.shape[1] != at.size or values.size == 0:
                raise ValueError(f"curves[{label!r}]: expected x (n,) and y (runs, n), got {at.shape}, {values.shape}")
            some = ~np.isnan(values).all(axis=0)
            at, values = at[some], values[:, some]
            if at.size == 0:
                raise ValueError(f"curves[{label!r}]: expected numbers, got NaN only")
            lower, median, upper = np.nanquantile(values, (quantiles[0], 0.5, quantiles[1]), axis=0)
            if at.size == 1:
                axes.vlines(at, lower, upper, color=own.colour, linewidth=0.8)
            elif len(values) > 1:
                axes.fill_between(at, lower, upper, color=own.colour, alpha=0.18, linewidth=0)
            own = own._replace(line="") if at.size == 1 else own._replace(marker="")
            axes.plot(at, median, color=own.colour, linestyle=own.line, marker=own.marker)
            ends.append(End(wrapped(label, width), own, float(at[-1]), float(median[-1])))
        if xscale == "linear":
            axes.set_xlim(left=0)
            shorten(axes)
        label_ends(axes, ends)
    return figure


def shorten(axes: Axes) -> None:
    """Write thousands as k and millions as M on the abscissa."""
    from matplotlib.ticker import EngFormatter, MaxNLocator

    axes.xaxis.set_major_formatter(EngFormatter(sep=""))
    axes.xaxis.set_major_locator(MaxNLocator(5))


def cover_and_potential(result: Result, *, width: float = WIDTH, height: float = 3.9) -> Figure:
    """Draw |Pi_h| by level with its bounds, and the potential of Lemma A.5 after each True.

    The second panel shows the proof of the lemma: log det(S + eps_r I) starts at d log eps_r, every True raises it by
    at least log(1 + R), and n policies raise it to d log(eps_r + n / d) at most. The sure bound is the n at which these
    two bounds meet.

    Parameters
    ----------
    result : Result

    Raises
    ------
    ValueError
        If the function class is not `LinearClass()`, or the result was saved without the potential.
    """
    if not is_plain_linear(result):
        raise ValueError(f"result: expected the linear class without matrices, got {result.function_class}")
    dimension, horizon = result.theta.shape[2], len(result.cover)
    given = result.parameters
    ratio, eps_r, initial = given["ratio"], given["eps_r"], n_initial(result)
    printed, sure = printed_cover_bound(dimension, eps_r), sure_cover_bound(dimension, ratio, eps_r, initial)
    records = list(level_records(result))
    steps = [step for record in records for step in record["raises"]]
    if steps and all(math.isnan(step["after"]) for step in steps):
        raise ValueError("result: expected the potential at each True, which its file does not hold")
    with canvas(width, height) as figure:
        top, bottom = figure.subplots(2, 1, height_ratios=(1, 1.35))
        draw_cover(top, result.cover_sizes, printed, sure)
        top.set(xlabel="level $h$", xlim=(-0.7, horizon - 0.3))
        base = dimension * math.log(eps_r)
        far = min(max(sure, printed), 3 * max(result.cover_sizes) + 10) * 1.04
        n = np.linspace(float(initial), far, 300)
        ceiling = dimension * np.log1p(n / (dimension * eps_r))
        floor = (n - initial) * math.log1p(ratio)
        bottom.fill_between(n, floor, ceiling, where=(floor <= ceiling).tolist(), color=FAINT, linewidth=0)
        bottom.plot(n, floor, color=MUTED, linewidth=0.8)
        bottom.plot(n, ceiling, color=MUTED, linewidth=0.8)
        shades = level_shades(horizon)
        for record in records:
            path = potential_path(record["raises"])
            if path:
                x, y = zip(*path, strict=True)
                bottom.plot(x, np.array(y) - base, color=shades[record["level"]], linewidth=0.8, marker="o",
                            markersize=2)  # fmt: skip
        bottom.set(xlabel="policies $n$", ylabel=r"$\log\det(S+\varepsilon_r I)-d\,\log\varepsilon_r$", xlim=(0.6, far))
        bottom.set_ylim(0, max(1.2 * float(ceiling[-1]), 1.0))
        write = {"color": MUTED, "fontsize": 6.5, "transform": bottom.transAxes}
        bottom.text(0.02, 0.98, r"most: $d\,\log(1+n/d\varepsilon_r)$", ha="left", va="top", **write)
        bottom.text(0.98, 0.03, rf"least: $(n-{initial})\log(1+R)$", ha="right", va="bottom", **write)
        if sure <= far:
            meet = dimension * math.log1p(sure / (dimension * eps_r))
            bottom.plot(sure, meet, marker="o", color=GREEN, markersize=3)
            bottom.annotate(f"sure: {sure}", (sure, meet), (-2, 5), textcoords="offset points", ha="center",
                            va="bottom", color=GREEN, fontsize=6.5)  # fmt: skip
        if steps:
            name_levels(figure, bottom, horizon)
    return figure


def level_shades(horizon: int) -> list[Any]:
    """Return the colours of the levels, from dark to light."""
    import matplotlib

    return list(matplotlib.colormaps["viridis"](np.linspace(0.0, 0.88, horizon)))


def name_levels(figure: Figure, axes: Axes, horizon: int) -> None:
    """Add the colour bar of the levels."""
    import matplotlib
    from matplotlib.cm import ScalarMappable
    from matplotlib.colors import ListedColormap, Normalize

    colours = ListedColormap(matplotlib.colormaps["viridis"](np.linspace(0.0, 0.88, 256)))
    scale = ScalarMappable(Normalize(0, max(horizon - 1, 1)), colours)
    bar = figure.colorbar(scale, ax=axes, fraction=0.04, pad=0.02, aspect=30)
    bar.set_ticks([0, horizon - 1] if horizon > 1 else [0])
    bar.set_label("level $h$", labelpad=-4)
    bar.outline.set_visible(False)
    bar.ax.tick_params(length=2)


def potential_path(steps: Sequence[Mapping[str, Any]]) -> list[tuple[int, float]]:
    """Return the points (policies, potential) of one level: before and after each True, and after D_h was redrawn."""
    path: list[tuple[int, float]] = []
    for step in steps:
        path += [(step["policies"] - 1, step["before"]), (step["policies"], step["after"])]
    return path


def draw_cover(axes: Axes, sizes: Sequence[int], printed: float, sure: int) -> None:
    """Draw |Pi_h| as bars and its bounds as lines, or as text if they are far above."""
    levels, largest = len(sizes), max(sizes)
    axes.bar(range(levels), sizes, width=0.8 if levels <= 60 else 1.0, color=BLUE, linewidth=0)
    bounds = [
        (printed, rf"printed: $2d\,\log(d/\varepsilon_r)$ = {printed:.1f}", ORANGE),
        (sure, f"sure: {sure}", GREEN),
    ]
    top = 1.25 * max(printed, sure)
    if top > 12 * largest:
        # With the bounds in sight, the bars would be too small to see.
        top = 1.5 * largest
        text = f"bounds above: sure {sure}, printed {printed:.1f}"
        axes.text(0.99, 0.97, text, transform=axes.transAxes, ha="right", va="top", color=MUTED, fontsize=6.5)
    else:
        for value, label, colour in bounds:
            axes.axhline(value, color=colour, linewidth=0.9, linestyle=REFERENCE)
            axes.annotate(label, (1, value), (0, 1.5), xycoords=("axes fraction", "data"), textcoords="offset points",
                          ha="right", va="bottom", color=colour, fontsize=6.5)  # fmt: skip
    axes.set(ylim=(0, top), ylabel=r"$|\Pi_h|$")
    whole_numbers(axes.xaxis)
    whole_numbers(axes.yaxis)


def whole_numbers(axis: Any) -> None:
    """Put ticks at integers only."""
    from matplotlib.ticker import MaxNLocator

    axis.set_major_locator(MaxNLocator(6, integer=True))


def oracle_values(result: Result, *, width: float = WIDTH, height: float = 2.3) -> Figure:
    """Draw the value v of every oracle call, the threshold eps_t, and which calls were True.

    Parameters
    ----------
    result : Result
        Result of a run with ``oracle="value"``.

    Raises
    ------
    ValueError
        If the run has made no oracle calls, or computed no values.
    """
    columns = result.history.columns()
    v, trues = columns["value"], columns["decision"]
    if v.size == 0:
        raise ValueError("result: expected a run with oracle calls, got none")
    if np.isnan(v).all():
        raise ValueError('result: expected values of the oracle; this run had oracle="decision"')
    threshold = result.parameters["eps_t"]
    calls = np.arange(1, v.size + 1)
    # v is 0 if all features seen were 0; a logarithmic axis has no 0.
    positive = v[v > 0.0]
    least = min(threshold, float(np.quantile(positive, 0.01)) if positive.size else threshold) / 1.5
    shown = np.maximum(v, least)
    pixels = v.size > MANY
    with canvas(width, height) as figure:
        axes = figure.subplots()
        axes.set(yscale="log", xlabel="oracle call", ylabel="$v$")
        axes.axhline(threshold, color=MUTED, linewidth=0.8, linestyle=REFERENCE, zorder=1)
        axes.plot(calls[~trues], shown[~trues], linestyle="", marker="o", markersize=1.6 if v.size > 500 else 2.2,
                  markeredgewidth=0, color=BLUE, alpha=0.6, rasterized=pixels)  # fmt: skip
        axes.plot(calls[trues], shown[trues], linestyle="", marker="^", markersize=4, markeredgewidth=0, color=ORANGE)
        axes.set_xlim(0, v.size * 1.01 + 1)
        axes.set_ylim(bottom=least / 1.3)
        shorten(axes)
        label_ends(axes, [End(r"$\varepsilon_t$", Look(MUTED, "", REFERENCE), 0.0, threshold)])
        n_trues = int(trues.sum())
        axes.set_title(f"{v.size:,} calls", color=MUTED, loc="left")
        axes.set_title(f"False {v.size - n_trues:,}", color=BLUE, loc="center")
        axes.set_title(f"True {n_trues:,}", color=ORANGE, loc="right")
    return figure


def visits(
    mdp: FiniteMDP,
    policies: Policy | Sequence[Sequence[Policy]],
    *,
    least: float = 1e-4,
    width: float = WIDTH,
    height: float = 2.4,
) -> Figure:
    """Draw the probability of each state at each level as a heat map, exactly.

    Parameters
    ----------
    mdp : FiniteMDP
    policies : Policy, or sequence of H sequences of Policy
        A policy; or covers such as `Result.cover`, for which level h shows the mean over Pi_h, the distribution of D_h.
    least : float, default 1e-4
        Probability of the palest colour. States with a smaller positive probability have this colour, too; states that
        are never visited have none.

    Raises
    ------
    ValueError
        If a policy does not fit the MDP, or there is not a cover for every level.
    """
    if isinstance(policies, Policy):
        levels = list(mdp.occupancy(policies))
    else:
        if len(policies) != mdp.horizon or not all(policies):
            raise ValueError(f"policies: expected {mdp.horizon} covers of at least one policy, got {len(policies)}")
        known: dict[Policy, tuple[NDArray[np.float64], ...]] = {}
        for policy in itertools.chain.from_iterable(policies):
            if policy not in known:
                known[policy] = mdp.occupancy(policy)
        levels = [
            np.mean([known[policy][level] for policy in members], axis=0) for level, members in enumerate(policies)
        ]
    size = max(mdp.n_states)
    table = np.full((size, mdp.horizon), np.nan)
    for level, distribution in enumerate(levels):
        table[: len(distribution), level] = np.where(distribution > 0, np.maximum(distribution, least), np.nan)
    with canvas(width, height) as figure:
        from matplotlib.colors import LogNorm

        axes = figure.subplots()
        image = axes.imshow(
            table, norm=LogNorm(least, 1.0), cmap="viridis_r", aspect="auto", interpolation="nearest", origin="upper"
        )
        for level, distribution in enumerate(levels):
            if len(distribution) < size:
                # No such states at this level.
                axes.fill_between(
                    [level - 0.5, level + 0.5], len(distribution) - 0.5, size - 0.5, color=FAINT, linewidth=0
                )
        axes.set(xlabel="level $h$", ylabel="state")
        whole_numbers(axes.xaxis)
        whole_numbers(axes.yaxis)
        axes.spines[["left", "bottom"]].set_visible(False)
        bar = figure.colorbar(image, ax=axes, fraction=0.05, pad=0.02, aspect=25)
        bar.set_label("probability")
        bar.outline.set_visible(False)
        bar.ax.tick_params(length=2)
        bar.ax.minorticks_off()
    return figure


PURPOSES = {
    "check": ("checks", BLUE),
    "regression": ("regression", ORANGE),
    "states": ("states $D_h$", GREEN),
    "final": ("returned policy", PURPLE),
    "explore": ("explore", SKY),
    "refine": ("refine", YELLOW),
    "test": ("test", WINE),
}
"""Names and colours of the purposes of Algorithms 1 to 3, and of the run that stops by itself."""

OTHERS = (OLIVE, INK)
"""Colours of further purposes; from the third on, hatches differ."""


def trajectories_by_purpose(
    results: Mapping[str, Result | Mapping[str, int]], *, width: float = WIDTH, height: float | None = None
) -> Figure:
    """Draw the numbers of trajectories by purpose, with one bar for each run.

    Parameters
    ----------
    results : mapping of str to Result, or to a mapping of purpose to number
        By name; `Result.counts` has the numbers as "trajectories".

    Raises
    ------
    ValueError
        If there are no results.
    """
    if not results:
        raise ValueError("results: expected at least one, got none")
    counts = {
        name: dict(one.counts["trajectories"]) if isinstance(one, Result) else dict(one)
        for name, one in results.items()
    }
    total = max(max(sum(one.values()) for one in counts.values()), 1)
    drawn = {name for one in counts.values() for name, n in one.items() if n}
    purposes = {name: (*PURPOSES[name], "") for name in PURPOSES if name in drawn}
    for i, name in enumerate(sorted(drawn - PURPOSES.keys())):
        purposes[name] = (plain(name), OTHERS[i % len(OTHERS)], "/" * (i // len(OTHERS)))
    names = [wrapped(name, width) for name in counts]
    # Room for each bar, or for its name, in inches; the ordinate is in inches, too.
    room = np.maximum(0.27, [0.1 + tall(name) for name in names])
    places = np.cumsum(room) - room / 2
    columns = 4
    from matplotlib.patches import Patch

    legend = 0.16 * math.ceil(len(purposes) / columns)
    with canvas(width, height or 0.39 + legend + float(room.sum())) as figure:
        axes = figure.subplots()
        for place, one in zip(places.tolist(), counts.values(), strict=True):
            left = 0
            for name, (_, colour, hatch) in purposes.items():
                n = one.get(name, 0)
                axes.barh(place, float(n), left=float(left), color=colour, height=0.17, hatch=hatch, edgecolor="white",
                          linewidth=0.4)  # fmt: skip
                if n > 0.16 * total:
                    axes.text(left + n / 2, place, f"{n:,}", ha="center", va="center", color="white", fontsize=6.5)
                left += n
            axes.text(left + 0.012 * total, place, f"{left:,}", ha="left", va="center", fontsize=6.5)
        axes.set_yticks(places, labels=names, linespacing=1.05)
        axes.set_ylim(room.sum(), 0.0)
        axes.set_xlim(0, 1.16 * total)
        axes.tick_params(axis="y", length=0)
        axes.spines[["left", "bottom"]].set_visible(False)
        axes.set_xticks([])
        handles = [
            Patch(facecolor=colour, hatch=hatch, edgecolor="white", linewidth=0.4, label=label)
            for label, colour, hatch in purposes.values()
        ]
        figure.legend(handles=handles, loc="outside upper left", ncols=columns, handlelength=0.8, handleheight=0.8,
                      columnspacing=1.0, handletextpad=0.4, borderpad=0)  # fmt: skip
    return figure
