"""Pictures of what was learned: a policy and its value on a grid, in a table of states and levels, or over a box."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dmq_fast.grids import Grid
from dmq_fast.observing import Box
from dmq_fast.plotting.axes import whole_numbers
from dmq_fast.plotting.canvas import WIDTH, canvas
from dmq_fast.plotting.style import COLOURS, FAINT, INK, MUTED, plain
from dmq_fast.results.learned import Decisions, PolicyTable

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["on_a_grid", "over_a_box", "state_table"]

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

ARROWS = {"<": "\N{LEFTWARDS ARROW}", ">": "\N{RIGHTWARDS ARROW}", "^": "\N{UPWARDS ARROW}", "v": "\N{DOWNWARDS ARROW}"}
UNDECIDED = "\N{MIDDLE DOT}"
"""Stands in states in which all actions look alike."""

SOLID = "HCX"
"""Letters of cells in which nothing can be done."""

NEVER = "////"
"""Hatches of states that no policy reaches."""

BAR = 0.62
"""Width of a colour bar with its label, in inches."""

MOST_NAMES = 30
"""Number of states up to which all of them are named on an axis."""

POINTS = 80
"""Points along each side of a box."""


def marks_of(n_actions: int, arrows: str | None) -> list[str]:
    """Return the mark of each action: an arrow, a letter or its number.

    Raises
    ------
    TypeError, ValueError
        If `arrows` is not one letter for each action.
    """
    if arrows is None:
        return [str(action) for action in range(n_actions)]
    if not isinstance(arrows, str):
        raise TypeError(f"arrows: expected a text with a letter for each action, such as '<v>^', got {arrows!r}")
    if len(arrows) != n_actions:
        raise ValueError(f"arrows: expected a letter for each of {n_actions} actions, such as '<v>^', got {arrows!r}")
    return [ARROWS.get(letter, letter) for letter in arrows]


def value_label(exact: bool) -> str:
    """Return the name of the scale of values."""
    return "value" if exact else "value (estimate)"


def on_a_grid(
    table: PolicyTable,
    grid: Grid,
    n_actions: int,
    *,
    level: int | None = None,
    actions: bool = True,
    width: float = WIDTH,
) -> Figure:
    """Draw the value of each cell as a colour, and its action as an arrow, or the value as a number.

    Parameters
    ----------
    table : PolicyTable
    grid : Grid
    n_actions : int
    level : int, optional
        By default each state is shown at the first level at which it is reached and anything was learned of it.
    actions : bool, optional
        Whether actions are drawn; otherwise values.
    width : float, optional
        In inches.

    Raises
    ------
    ValueError
        If no state stands in the grid.
    """
    place = {grid.number(state): i for i, state in enumerate(table.states)}
    cells = np.vectorize(lambda number: place.get(int(number), -1), otypes=[np.int64])(grid.cells)
    if (cells < 0).all():
        raise ValueError(
            f"shape: expected states that are numbers or pairs (row, column) in a grid of {grid.shape[0]} rows and "
            f"{grid.shape[1]} columns, got such as {table.states[0]!r:.60}"
        )
    levels = table.levels if level is None else np.full(len(table.states), level)
    each = np.arange(len(table.states))
    at = np.maximum(levels, 0)
    values, chosen = table.values[at, each], table.actions[at, each]
    decided = table.decided[at, each] & (levels >= 0)
    reached: NDArray[np.bool_] = np.asarray(table.reached.any(axis=0) if level is None else table.reached[level])
    panels, rows, columns = cells.shape
    across = min(panels, 4)
    down = math.ceil(panels / across)
    size = (width - BAR - 0.1) / (across * columns + 0.3 * (across - 1))
    named = any(grid.titles)
    height = down * (size * rows + (0.24 if named else 0.08)) + 0.2
    marks = marks_of(n_actions, grid.arrows)
    numbers = ["" if math.isnan(value) else short(float(value)) for value in values.tolist()]
    longest = max(map(len, marks if actions else numbers), default=1) or 1
    letters = min(13.0 if actions else 8.0, 72.0 * size * min(0.68, 1.25 / longest))
    with canvas(width, height) as figure:
        shown = figure.subplots(down, across, squeeze=False)
        scale = scale_of(values[[i for i in cells.ravel() if i >= 0 and decided[i]]])
        image: Any = None
        for axes, panel, title in zip(shown.flat, cells, grid.titles, strict=False):
            drawn = np.where(panel >= 0, values[panel], np.nan)
            drawn[(panel >= 0) & ~reached[panel]] = np.nan
            image = axes.imshow(drawn, cmap="viridis", norm=scale, interpolation="nearest")
            axes.set(xticks=[], yticks=[], title=plain(title))
            axes.spines[:].set_visible(True)
            axes.spines[:].set_color(MUTED)
            for row in range(rows):
                for column in range(columns):
                    i = int(panel[row, column])
                    known = i >= 0 and bool(reached[i])
                    text = ""
                    if known and not actions:
                        text = numbers[i]
                    elif known:
                        text = marks[chosen[i]] if decided[i] and chosen[i] >= 0 else UNDECIDED
                    draw_cell(axes, row, column, grid.letter(row, column), text, known, drawn, scale, size, letters)
        for axes in shown.flat[panels:]:
            axes.set_visible(False)
        bar = figure.colorbar(image, ax=shown.ravel().tolist(), fraction=0.05, pad=0.02, aspect=20)
        finish_bar(bar, value_label(table.exact))
        figure.supxlabel(where(levels[decided], level), fontsize=6.5, color=MUTED, x=0.02, ha="left")
    return figure


def where(levels: Integers, level: int | None) -> str:
    """Return the line below a picture that says which level is shown."""
    if level is not None or not levels.size or levels.max() == levels.min():
        return f"at level {level if level is not None else int(levels[0]) if levels.size else 0}"
    return "each state at its first level"


def short(value: float) -> str:
    """Return a value in few letters.

    >>> short(0.8234), short(-13.0), short(0.0), short(-0.0312)
    ('.82', '−13', '0', '−.03')
    """
    text = f"{value:.0f}" if abs(value) >= 9.95 else f"{value:.1f}" if abs(value) >= 0.995 else f"{value:.2f}"
    text = text.rstrip("0").rstrip(".") if "." in text else text
    text = "0" if text in ("-0", "") else text.replace("0.", ".", 1) if abs(value) < 1 else text
    return text.replace("-", "\N{MINUS SIGN}")


def scale_of(values: Floats) -> Any:
    """Return the scale of colours of values; of equal ones, one that they are in the middle of."""
    from matplotlib.colors import Normalize

    known = values[~np.isnan(values)]
    low, high = (float(known.min()), float(known.max())) if known.size else (0.0, 1.0)
    # What differs by rounding only has one colour.
    return Normalize(low, high) if high - low > 1e-9 * max(abs(low), abs(high)) else Normalize(low - 0.5, high + 0.5)


def draw_cell(
    axes: Axes,
    row: int,
    column: int,
    letter: str,
    text: str,
    known: bool,
    values: Floats,
    scale: Any,
    size: float,
    letters: float,
) -> None:
    """Draw what stands in one cell: its mark, its letter, and whether it is solid or never reached.

    `size` is that of a cell, in inches, and `letters` that of marks, in points.
    """
    from matplotlib.patches import Rectangle

    solid = letter in SOLID
    if solid or not known:
        hatch = None if solid or letter in "G" else NEVER
        face = INK if letter in "HC" else MUTED if solid else FAINT if hatch is None else "white"
        axes.add_patch(
            Rectangle((column - 0.5, row - 0.5), 1, 1, facecolor=face, edgecolor=FAINT, linewidth=0, hatch=hatch)
        )
    value = values[row, column]
    dark = solid or (known and not math.isnan(value) and scale(value) < 0.6)
    ink = "white" if dark else INK
    most = 72.0 * size
    if text and not solid:
        aside = 0.1 if letter.strip() else 0.0  # of the letter in the corner
        axes.text(column + aside, row + aside, plain(text), ha="center", va="center", color=ink, fontsize=letters)
    if letter.strip():
        alone = solid or not text
        x, y = (column, row) if alone else (column - 0.42, row - 0.42)
        axes.text(x, y, plain(letter), ha="center" if alone else "left", va="center" if alone else "top", color=ink,
                  fontsize=min(7.0, (0.5 if alone else 0.3) * most), fontweight="bold")  # fmt: skip


def finish_bar(bar: Any, label: str) -> None:
    """Give a colour bar its label and look."""
    bar.set_label(label)
    bar.outline.set_visible(False)
    bar.ax.tick_params(length=2)
    bar.ax.minorticks_off()


def state_table(table: PolicyTable, n_actions: int, *, actions: bool = True, width: float = WIDTH) -> Figure:
    """Draw states by levels: a colour for each action, or for the value.

    States in which all actions look alike are grey, and those that no policy reaches white.
    """
    n = len(table.states)
    height = 0.75 + min(max(0.13 * n, 0.8), 4.0) + (0.2 if actions else 0.0)
    there = table.reached & (~np.isnan(table.values) | (table.actions >= 0))
    with canvas(width, height) as figure:
        axes = figure.subplots()
        if actions:
            from matplotlib.colors import ListedColormap

            shades = colours_of(n_actions)
            shown = np.where(there, np.where(table.decided, table.actions, n_actions), -1).T.astype(float)
            shown[shown < 0] = np.nan
            axes.imshow(shown, cmap=ListedColormap([*shades, FAINT]), vmin=-0.5, vmax=n_actions + 0.5, aspect="auto",
                        interpolation="nearest")  # fmt: skip
            others = {"all alike": (shown == n_actions).any(), "not reached": np.isnan(shown).any()}
            name_actions(figure, shades, [name for name, some in others.items() if some])
        else:
            image = axes.imshow(np.where(there, table.values, np.nan).T, cmap="viridis", aspect="auto",
                                interpolation="nearest", norm=scale_of(table.values[there]))  # fmt: skip
            finish_bar(figure.colorbar(image, ax=axes, fraction=0.05, pad=0.02, aspect=25), value_label(table.exact))
        axes.set(xlabel="level $h$", ylabel="state")
        whole_numbers(axes.xaxis)
        if len(table.actions) == 1:
            axes.set_xticks([0])
        if n <= MOST_NAMES:
            names = [plain(name_of(state)) for state in table.states]
            axes.set_yticks(range(n), labels=names, fontsize=7.0 if n <= 18 else 5.5)
            axes.tick_params(axis="y", length=0)
        else:
            whole_numbers(axes.yaxis)
        axes.spines[["left", "bottom"]].set_visible(False)
    return figure


def name_of(state: Any) -> str:
    """Return a state as a short text."""
    text = ", ".join(map(str, state)) if isinstance(state, tuple) else str(state)
    return text if len(text) <= 14 else f"{text[:13]}\N{HORIZONTAL ELLIPSIS}"


def colours_of(n_actions: int) -> list[Any]:
    """Return a colour for each action: those of series while they last, else shades from dark to light."""
    if n_actions <= len(COLOURS):
        return list(COLOURS[:n_actions])
    import matplotlib

    return list(matplotlib.colormaps["viridis"](np.linspace(0.0, 1.0, n_actions)))


def name_actions(figure: Figure, shades: Sequence[Any], others: Sequence[str]) -> None:
    """Add the legend of actions above a picture; of many, the first, the middle and the last."""
    from matplotlib.patches import Patch

    n = len(shades)
    several = list(range(n)) if n <= len(COLOURS) else [0, n // 2, n - 1]
    handles = [Patch(facecolor=shades[i], label=str(i)) for i in several]
    looks = {"all alike": (FAINT, FAINT), "not reached": ("white", MUTED)}
    handles += [Patch(facecolor=looks[name][0], edgecolor=looks[name][1], linewidth=0.4, label=name) for name in others]
    figure.legend(handles=handles, title="action", loc="outside upper left", ncols=min(len(handles), 6), borderpad=0,
                  handlelength=0.8, handleheight=0.8, columnspacing=1.0, handletextpad=0.4, alignment="left",
                  title_fontsize=7)  # fmt: skip


def over_a_box(
    decide: Callable[[Floats], Decisions],
    box: Box,
    n_actions: int,
    *,
    level: int,
    actions: bool = True,
    width: float = WIDTH,
) -> Figure:
    """Draw the value over two observed numbers as a heat map, and below it the greedy action.

    Parameters
    ----------
    decide : callable
        From observations (n, 2) to what the policy decides there.
    box : Box
        Of two numbers.
    n_actions : int
    level : int
    actions : bool, optional
        Whether there is the second panel.
    width : float, optional
        In inches.
    """
    (left, bottom), (right, top) = box.low.tolist(), box.high.tolist()
    # Middles of POINTS x POINTS cells.
    steps = (np.arange(POINTS) + 0.5) / POINTS
    x, y = left + steps * (right - left), bottom + steps * (top - bottom)
    found = decide(np.stack(np.meshgrid(x, y), axis=-1).reshape(-1, 2))
    shape = (POINTS, POINTS)
    values = np.where(found.decided, found.values, np.nan).reshape(shape)
    chosen = np.where(found.decided, found.actions, n_actions).reshape(shape)
    look: dict[str, Any] = {
        "extent": (left, right, bottom, top), "origin": "lower", "aspect": "auto", "interpolation": "nearest",
    }  # fmt: skip
    with canvas(width, 4.0 if actions else 2.3) as figure:
        panels = figure.subplots(2 if actions else 1, 1, squeeze=False, sharex=True)[:, 0]
        image = panels[0].imshow(values, cmap="viridis", norm=scale_of(values.ravel()), **look)
        panels[0].set_facecolor(FAINT)
        finish_bar(figure.colorbar(image, ax=panels[0], fraction=0.06, pad=0.02, aspect=20), value_label(exact=False))
        panels[0].set_title(f"level {level}", color=MUTED)
        if actions:
            from matplotlib.colors import ListedColormap

            shades = ListedColormap([*colours_of(n_actions), FAINT])
            image = panels[1].imshow(chosen, cmap=shades, vmin=-0.5, vmax=n_actions + 0.5, **look)
            alike = bool((chosen == n_actions).any())
            bar = figure.colorbar(image, ax=panels[1], fraction=0.06, pad=0.02, aspect=20)
            finish_bar(bar, "action")
            bar.set_ticks([*range(n_actions), n_actions], labels=[*map(str, range(n_actions)), "alike"])
            bar.ax.set_ylim(-0.5, n_actions + (0.5 if alike else -0.5))
            bar.ax.tick_params(length=0)
        for axes in panels:
            axes.set_ylabel(plain(box.names[1]))
        panels[-1].set_xlabel(plain(box.names[0]))
    return figure
