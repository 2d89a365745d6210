"""Pictures of runs and sweeps, as papers print them.

Every function returns a matplotlib `Figure` of the width of a column, 3.3 inches, without any global state::

    figure = pictures.cover_and_potential(result)
    figure.savefig("cover.pdf")

Names are text: underscores and dollar signs in them are drawn as they are. Labels of axes may hold formulas. Pictures
look the same whatever matplotlib's settings are, and PDF files hold Type 42 fonts. Needs the extra
``plot``.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike

from dmq_fast.experiments.report.against import against, plot_line
from dmq_fast.experiments.report.intervals import Interval
from dmq_fast.experiments.report.panels import Line, Point
from dmq_fast.plotting.axes import add_legend, legend_height, name_level, shorten
from dmq_fast.plotting.canvas import WIDTH, canvas
from dmq_fast.plotting.style import COLOURS, INK, MUTED, REFERENCE, look
from dmq_fast.results.pictures import cover_and_potential, oracle_values, trajectories_by_purpose, visits

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = [
    "COLOURS",
    "INK",
    "MUTED",
    "against",
    "cover_and_potential",
    "learning_curves",
    "oracle_values",
    "trajectories_by_purpose",
    "visits",
]


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
    """Plot the median of several runs with a band for each algorithm: values, regret, seconds or bytes over episodes.

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
    with canvas(width, height + legend_height(curves, width)) as figure:
        axes = figure.subplots()
        axes.set(xscale=xscale, yscale=yscale, xlabel=xlabel, ylabel=ylabel)
        if optimum is not None:
            axes.axhline(optimum, color=MUTED, linewidth=0.8, linestyle=REFERENCE)
            name_level(axes, "$V^*$", optimum, MUTED)
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
            if len(values) == 1:
                lower = upper = np.full(at.size, np.nan)
            own = own._replace(line="") if at.size == 1 else own
            points = [
                Point(x, Interval(*ends_and_middle), len(values), 0, math.nan)
                for x, *ends_and_middle in np.column_stack([at, median, lower, upper]).tolist()
            ]
            # Markers where those of other curves are not, a fifth of the diagonal of the axes apart.
            plot_line(axes, Line(label, own, points), every=None if at.size == 1 else (0.02 + 0.2 * (i % 7) / 7, 0.2))
        if xscale == "linear":
            axes.set_xlim(left=0)
            shorten(axes.xaxis)
        add_legend(figure, {name: looks[name] for name in curves})
    return figure
