"""Pictures of runs: covers, oracle, visits, trajectories.

Every function returns a matplotlib `Figure` of the width of a column, 3.3 inches. Needs the extra ``plot``.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dmq_fast.environments.finite import FiniteMDP
from dmq_fast.plotting.axes import name_level, shorten, tall, whole_numbers
from dmq_fast.plotting.canvas import WIDTH, canvas
from dmq_fast.plotting.style import (
    BLUE,
    FAINT,
    GREEN,
    INK,
    MUTED,
    OLIVE,
    ORANGE,
    PURPLE,
    REFERENCE,
    SKY,
    WINE,
    YELLOW,
    plain,
    wrapped,
)
from dmq_fast.policy import Policy
from dmq_fast.results.history import RETURNED, History, Looks
from dmq_fast.table_policy import TablePolicy
from dmq_fast.theory.bounds import printed_cover_bound, sure_cover_bound

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = [
    "cover_and_potential",
    "learning_curve",
    "levels_by_call",
    "looks_of_a_run",
    "oracle_values",
    "trajectories_by_purpose",
    "visits",
]

# Number of markers from which a picture draws them as pixels, so that its file stays small.
MANY = 4000


def cover_and_potential(
    records: Sequence[Mapping[str, Any]],
    initial: int,
    dimension: int,
    ratio: float,
    eps_r: float,
    *,
    width: float = WIDTH,
    height: float = 3.9,
) -> Figure:
    """Draw |Pi_h| by level with its bounds, and the potential of Lemma A.5 after each True.

    The second panel shows the proof of the lemma: log det(S + eps_r I) starts at d log eps_r, every True raises it by
    at least log(1 + R), and n policies raise it to d log(eps_r + n / d) at most. The sure bound is the n at which these
    two bounds meet.

    Parameters
    ----------
    records : sequence of mappings
        As `DMQResult.levels` yields them, of a run with linear functions.
    initial : int
        Number of initial policies of every cover.
    dimension : int
    ratio, eps_r : float
        Constants of the run.

    Raises
    ------
    ValueError
        If the result was saved without the potential.
    """
    sizes, horizon = [record["cover_size"] for record in records], len(records)
    printed, sure = printed_cover_bound(dimension, eps_r), sure_cover_bound(dimension, ratio, eps_r, initial)
    steps = [step for record in records for step in record["raises"]]
    if steps and all(math.isnan(step["after"]) for step in steps):
        raise ValueError("result: expected the potential at each True, which its file does not hold")
    with canvas(width, height) as figure:
        top, bottom = figure.subplots(2, 1, height_ratios=(1, 1.35))
        plot_cover(top, sizes, printed, sure)
        top.set(xlabel="level $h$", xlim=(-0.7, horizon - 0.3))
        base = dimension * math.log(eps_r)
        far = min(max(sure, printed), 3 * max(sizes) + 10) * 1.04
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
        whole_numbers(bottom.xaxis)
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


def plot_cover(axes: Axes, sizes: Sequence[int], printed: float, sure: int) -> None:
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
            name_level(axes, label, value, colour)
    axes.set(ylim=(0, top), ylabel=r"$|\Pi_h|$")
    whole_numbers(axes.xaxis)
    whole_numbers(axes.yaxis)


def oracle_values(history: History, threshold: float, *, width: float = WIDTH, height: float = 2.3) -> Figure:
    """Draw the value v of every oracle call, the threshold eps_t, and which calls were True.

    Parameters
    ----------
    history : History
        That of a run with ``oracle="value"``.
    threshold : float
        eps_t of the run.

    Raises
    ------
    ValueError
        If the run has made no oracle calls, or computed no values.
    """
    columns = history.columns()
    v, trues = columns["value"], columns["decision"]
    if v.size == 0:
        raise ValueError("result: expected a run with oracle calls, got none")
    if np.isnan(v).all():
        raise ValueError('result: expected values of the oracle; this run had oracle="decision"')
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
        shorten(axes.xaxis)
        name_level(axes, r"$\varepsilon_t$", threshold, MUTED)
        n_trues = int(trues.sum())
        axes.set_title(f"{v.size:,} calls", color=MUTED, loc="left")
        axes.set_title(f"False {v.size - n_trues:,}", color=BLUE, loc="center")
        axes.set_title(f"True {n_trues:,}", color=ORANGE, loc="right")
    return figure


def visits(
    mdp: FiniteMDP,
    policies: Policy | TablePolicy | Sequence[Sequence[Policy]],
    *,
    least: float = 1e-4,
    width: float = WIDTH,
    height: float = 2.4,
) -> Figure:
    """Draw the probability of each state at each level as a heat map, exactly.

    Parameters
    ----------
    mdp : FiniteMDP
    policies : Policy or TablePolicy, or sequence of H sequences of Policy
        A policy; or covers such as `DMQResult.cover`, for which level h shows the mean over Pi_h, the distribution of
        D_h.
    least : float, default 1e-4
        Probability of the palest colour. States with a smaller positive probability have this colour, too; states that
        are never visited have none.

    Raises
    ------
    ValueError
        If a policy does not fit the MDP, or there is not a cover for every level.
    """
    if isinstance(policies, Policy | TablePolicy):
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


def learning_curve(
    episodes: NDArray[np.int64],
    value: NDArray[np.float64],
    standard_error: NDArray[np.float64],
    optimum: float | None = None,
    uniform: float | None = None,
    *,
    width: float = WIDTH,
    height: float = 2.1,
) -> Figure:
    """Draw the value of a policy against the episodes that it was learned from, with two standard errors.

    The ordinate is in points. With uniform play in sight, a picture in other units is the same but for its numbers.

    Parameters
    ----------
    episodes, value, standard_error : numpy.ndarray, shape (m,)
        Of the checkpoints; see `Curve`.
    optimum, uniform : float, optional
        Values of the best policy and of uniform play.
    """
    with canvas(width, height) as figure:
        axes = figure.subplots()
        axes.fill_between(
            episodes, value - 2 * standard_error, value + 2 * standard_error, color=BLUE, alpha=0.25, linewidth=0
        )
        axes.plot(episodes, value, color=BLUE, linewidth=1.0, marker="o", markersize=2)
        axes.set(xscale="log", xlabel="episodes", ylabel="value of the policy")
        for name, level in (("$V^*$", optimum), ("uniform", uniform)):
            if level is not None:
                axes.axhline(level, color=MUTED, linewidth=0.8, linestyle=REFERENCE, zorder=1)
                name_level(axes, name, level, MUTED)
    return figure


def looks_of_a_run(
    looks: Looks,
    epsilon: float,
    tested: tuple[float, float, float] | None,
    optimum: float | None = None,
    *,
    width: float = WIDTH,
    height: float = 3.6,
) -> Figure:
    """Draw what a self-stopping run knew over its episodes: what unseen outcomes may add, and the value.

    Parameters
    ----------
    looks : Looks
    epsilon : float
        Accuracy of the run, in points.
    tested : tuple of three float, or None
        Mean return of the final test, and the ends of its interval.
    optimum : float, optional
        Value of the best policy.

    Raises
    ------
    ValueError
        If there are no looks.
    """
    if not len(looks):
        raise ValueError("result: expected a run with a record of its looks, which files of older versions do not hold")
    columns = looks.columns()
    n, phases = columns["episodes"], np.array(columns["phase"])
    with canvas(width, height) as figure:
        top, bottom = figure.subplots(2, 1, sharex=True, height_ratios=(1, 1.15))
        # What is far below epsilon is rounding as much as knowledge.
        floor = 1e-2 * epsilon
        upsides = np.maximum(columns["upside"], floor)
        top.plot(n, upsides, color=INK, linewidth=1.0)
        top.axhline(epsilon, color=MUTED, linewidth=0.8, linestyle=REFERENCE, zorder=1)
        name_level(top, r"$\varepsilon$", epsilon, MUTED)
        limits = [epsilon, *upsides[~np.isnan(upsides)].tolist()]
        if max(limits) > 20.0 * min(limits):
            top.set(yscale="log", ylim=(min(limits) / 1.5, 1.5 * max(limits)))
        else:
            top.set_ylim(0.0, 1.1 * max(limits))
        top.set_ylabel("unseen outcomes\nmay add")
        bottom.plot(n, columns["predicted"], color=BLUE, linewidth=1.0, label="predicted")
        played = ~np.isnan(columns["mean_return"])
        tries = played & (phases == "refine")
        if tries.any():
            bottom.plot(n[tries], columns["mean_return"][tries], color=SKY, linestyle="", marker="o", markersize=1.8,
                        markeredgewidth=0, label="candidates", zorder=1)  # fmt: skip
        if tested is not None:
            mean, low, high = tested
            bottom.errorbar([n[-1]], [mean], [[mean - low], [high - mean]], color=ORANGE, marker="o", markersize=3,
                            elinewidth=1.2, capsize=2, label="test", clip_on=False, zorder=3)  # fmt: skip
        if optimum is not None:
            bottom.axhline(optimum, color=MUTED, linewidth=0.8, linestyle=REFERENCE, zorder=1)
            name_level(bottom, "$V^*$", optimum, MUTED)
        bottom.set(xlabel="episodes", ylabel="value")
        bottom.set_xlim(0, 1.12 * float(n[-1]) + 1)  # with room for the name of the optimum
        shorten(bottom.xaxis)
        bottom.legend(loc="lower left", bbox_to_anchor=(0.0, 1.0), ncols=3, borderpad=0.2, handlelength=1.2,
                      columnspacing=1.0, handletextpad=0.4, borderaxespad=0.1)  # fmt: skip
    return figure


def levels_by_call(
    history: History, horizon: int, n_samples: int, *, width: float = WIDTH, height: float = 2.3
) -> Figure:
    """Draw how Algorithms 1 to 3 went back through the levels: the level that each batch of trajectories checked.

    They learn the last level first, and no policy of theirs has a value before the first level is learned, so there is
    no curve of values. Where the oracle answered True, the cover of that level got a policy, and it was learned again.

    Parameters
    ----------
    history : History
    horizon : int
    n_samples : int
        Trajectories of a batch.

    Raises
    ------
    ValueError
        If the run has made no oracle calls.
    """
    columns = history.columns()
    if not history.n_calls:
        raise ValueError("result: expected a run with oracle calls, got none")
    calls, trues = columns["call"], columns["decision"]
    checked = np.where(columns["target"] == RETURNED, -1, columns["target"])
    with canvas(width, height) as figure:
        axes = figure.subplots()
        axes.plot(calls, checked, linestyle="", marker="s", markersize=2, markeredgewidth=0, color=BLUE,
                  rasterized=history.n_calls > MANY)  # fmt: skip
        axes.plot(calls[trues], columns["level"][trues], linestyle="", marker="^", markersize=4, markeredgewidth=0,
                  color=ORANGE)  # fmt: skip
        axes.set(xlabel=f"batch of {n_samples:,} trajectories", ylabel="level $h$", ylim=(-1.6, horizon - 0.4))
        axes.set_xlim(0, 1.02 * float(calls.max()) + 1)
        whole_numbers(axes.yaxis)
        ticks = [tick for tick in axes.get_yticks().tolist() if 0 <= tick < horizon]
        axes.set_yticks([-1.0, *ticks], labels=["test", *(f"{tick:g}" for tick in ticks)])
        shorten(axes.xaxis)
        axes.set_title("action checked", color=BLUE, loc="left")
        axes.set_title(f"oracle True: new policy ({int(trues.sum()):,})", color=ORANGE, loc="right")
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


def trajectories_by_purpose(
    runs: Mapping[str, Mapping[str, int]], *, width: float = WIDTH, height: float | None = None
) -> Figure:
    """Draw the numbers of trajectories by purpose, with one bar for each run.

    Parameters
    ----------
    runs : mapping of str to mapping of str to int
        By name of the run: the numbers by purpose, as `Result.trajectories` has them.

    Raises
    ------
    ValueError
        If there are no runs.
    """
    if not runs:
        raise ValueError("runs: expected at least one, got none")
    counts = {name: dict(one) for name, one in runs.items()}
    total = max(max(sum(one.values()) for one in counts.values()), 1)
    drawn = {name for one in counts.values() for name, n in one.items() if n}
    purposes = {name: (*PURPOSES[name], "") for name in PURPOSES if name in drawn}
    for i, name in enumerate(sorted(drawn - PURPOSES.keys())):  # those that differ in hatches alone
        purposes[name] = (plain(name), OLIVE, "/" * i)
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
