"""Parts of pictures that several pictures have: names at the ends of lines, and ticks."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from dmq_fast.plotting.style import LINE, Look, wrapped

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["End", "label_ends", "room_for", "shorten", "tall", "whole_numbers"]


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


def label_ends(figure: Figure, ends: Mapping[Axes, Sequence[End]]) -> None:
    """Write the name of each line to the right of its end, moved apart if ends are close.

    A piece of each line is drawn beside its name, unless there is only one, so that no colour has to tell them apart.
    """
    figure.draw_without_rendering()  # computes the positions of the axes, whose heights the names do not change
    several = any(len(own) > 1 for own in ends.values())
    for axes, own in ends.items():
        write_names(axes, own, pieces=several)


def write_names(axes: Axes, ends: Sequence[End], *, pieces: bool) -> None:
    """Write the names beside axes whose position is computed."""
    from matplotlib.transforms import ScaledTranslation, blended_transform_factory
    from scipy.optimize import isotonic_regression

    figure = axes.figure
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
    # Inches to the right of the axes, so that the room for the names does not depend on the width of the axes.
    beside = figure.dpi_scale_trans + ScaledTranslation(1.0, 0.0, axes.transAxes)  # type: ignore[arg-type]
    transform = blended_transform_factory(beside, axes.transAxes)
    for y, index in zip(at / height, order, strict=True):
        name, own, _, _ = ends[index]
        if pieces:
            axes.plot([0.05, 0.22, 0.39], [y] * 3, color=own.colour, linestyle=own.line, marker=own.marker,
                      markevery=[1], transform=transform, clip_on=False)  # fmt: skip
        axes.text(0.44 if pieces else 0.05, y, name, color=own.colour, va="center", ha="left", linespacing=1.05,
                  transform=transform, clip_on=False)  # fmt: skip


def whole_numbers(axis: Any) -> None:
    """Put ticks at integers only."""
    from matplotlib.ticker import MaxNLocator

    axis.set_major_locator(MaxNLocator(6, integer=True))


def shorten(axis: Any) -> None:
    """Write thousands as k and millions as M on an axis."""
    from matplotlib.ticker import EngFormatter, MaxNLocator

    axis.set_major_formatter(EngFormatter(sep=""))
    axis.set_major_locator(MaxNLocator(5))
