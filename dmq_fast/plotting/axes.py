"""Parts of pictures that several pictures have: legends, names of reference lines, and ticks."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from dmq_fast.plotting.style import LINE, Look, wrapped

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["LETTER", "add_legend", "legend_height", "longest", "most_lines", "name_level", "shorten", "tall",
           "whole_numbers"]  # fmt: skip

LETTER = 0.064
"""Width of a letter in inches."""


def longest(texts: Iterable[str]) -> int:
    """Return the number of letters of the longest line of texts."""
    return max(len(line) for text in texts for line in text.split("\n"))


def most_lines(texts: Iterable[str]) -> int:
    """Return the largest number of lines of texts."""
    return max((text.count("\n") + 1 for text in texts), default=0)


def tall(name: str) -> float:
    """Return the height of a name in inches."""
    return LINE * (1.0 + 1.2 * name.count("\n"))


def legend_columns(names: Iterable[str], width: float) -> tuple[list[str], int]:
    """Return the texts of a legend as wide as a picture in inches, and the number of its columns."""
    texts = [wrapped(name, width) for name in names]
    return texts, min(len(texts), max(1, int(width / (0.45 + LETTER * longest(texts)))))


def legend_height(names: Iterable[str], width: float) -> float:
    """Return the height of a legend in inches; a single line has none."""
    texts, columns = legend_columns(names, width)
    return 0.1 + 1.15 * LINE * math.ceil(len(texts) / columns) * most_lines(texts) if len(texts) > 1 else 0.0


def add_legend(figure: Figure, looks: Mapping[str, Look], *, joined: bool = True) -> None:
    """Add a legend of the lines by name above the panels, unless there is a single one; a piece of each is drawn."""
    from matplotlib.lines import Line2D

    if len(looks) < 2:
        return
    texts, columns = legend_columns(looks, figure.get_figwidth())
    handles = [
        Line2D([], [], color=colour, marker=marker, linestyle=dashes if joined else "")
        for colour, marker, dashes in looks.values()
    ]
    figure.legend(handles, texts, loc="outside upper left", ncols=columns, handlelength=2.4, columnspacing=1.0,
                  handletextpad=0.5, borderpad=0, labelspacing=0.3)  # fmt: skip


def name_level(axes: Axes, name: str, y: float, colour: str) -> None:
    """Write the name of a horizontal reference line above its right end."""
    axes.annotate(name, (1, y), (0, 1.5), xycoords=("axes fraction", "data"), textcoords="offset points",
                  ha="right", va="bottom", color=colour, fontsize=6.5)  # fmt: skip


def whole_numbers(axis: Any) -> None:
    """Put ticks at integers only."""
    from matplotlib.ticker import MaxNLocator

    axis.set_major_locator(MaxNLocator(6, integer=True))


def shorten(axis: Any) -> None:
    """Write thousands as k and millions as M on an axis."""
    from matplotlib.ticker import EngFormatter, MaxNLocator

    axis.set_major_formatter(EngFormatter(sep=""))
    axis.set_major_locator(MaxNLocator(5))
