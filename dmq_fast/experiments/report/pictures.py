"""Pictures of runs and sweeps, as papers print them.

Every function returns a matplotlib `Figure` of the width of a column, 3.3 inches, without any global state::

    figure = pictures.cover_and_potential(result)
    figure.savefig("cover.pdf")

Names are text: underscores and dollar signs in them are drawn as they are. Labels of axes may hold formulas. Pictures
look the same whatever matplotlib's settings are, and PDF files hold Type 42 fonts. `experiments.oracle_bench.picture`
draws the cost of the oracle. Needs matplotlib, the extra ``plot``.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dmq_fast.experiments.report.against import against
from dmq_fast.experiments.report.metrics import GOOD, by_policy, is_solved
from dmq_fast.plotting.axes import End, label_ends, room_for, shorten
from dmq_fast.plotting.canvas import WIDTH, canvas
from dmq_fast.plotting.style import COLOURS, INK, MUTED, REFERENCE, Look, look, wrapped
from dmq_fast.results.pictures import cover_and_potential, oracle_values, trajectories_by_purpose, visits

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = [
    "COLOURS",
    "INK",
    "MUTED",
    "against",
    "cover_and_potential",
    "episodes_to_solve",
    "is_solved",
    "learning_curves",
    "oracle_values",
    "trajectories_by_purpose",
    "visits",
]

# Largest number of unsolved runs that are drawn one by one.
COUNTABLE = 6


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
    share: float = GOOD,
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
    low = min(low, max(min(spent), 1) / 1.2)  # room for a marker on the last power of ten
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
            label_ends(figure, {axes: ends})
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
        for i, (label, (x, y)) in enumerate(curves.items()):
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
            own = own._replace(line="") if at.size == 1 else own
            # Markers where those of other curves are not, a fifth of the diagonal of the axes apart.
            every = None if at.size == 1 else (0.02 + 0.2 * (i % 7) / 7, 0.2)
            axes.plot(at, median, color=own.colour, linestyle=own.line, marker=own.marker, markevery=every)
            ends.append(End(wrapped(label, width), own, float(at[-1]), float(median[-1])))
        if xscale == "linear":
            axes.set_xlim(left=0)
            shorten(axes.xaxis)
        label_ends(figure, {axes: ends})
    return figure
