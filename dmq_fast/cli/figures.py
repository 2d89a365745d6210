"""The options of ``dmq-fast report --figures``, and the files that they make."""

from __future__ import annotations

import argparse
import io
import re
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from dmq_fast._support.files import check_makeable
from dmq_fast._support.names import suggestion
from dmq_fast.cli.options import full_path, reader
from dmq_fast.cli.terminal import signals, told

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from dmq_fast.experiments.report.page import Picture

__all__ = ["FIGURE_OPTIONS", "add_figure_options", "check_figure_options", "figures", "rendered"]

FORMATS = ("pdf", "svg", "png")

WIDTHS = {"one": 3.3, "two": 6.8}
"""Widths of one and two columns in inches."""

LONGEST = 200
"""Most letters of a title in the name of a file: file systems take 255."""

LOOKS = {name: name for name in ("x", "y", "statistic", "pool", "log_x", "log_y")} | {
    "share": "success",
    "level": "interval",
}
"""Arguments of the pictures of a sweep, and the options that give them; None unless they are given."""

FIGURE_OPTIONS = {name: name for name in ("figures", "format", "width")} | LOOKS
"""Arguments in messages, and the options that give them."""


def add_figure_options(parser: ArgumentParser) -> None:
    """Add the group of options."""
    group = parser.add_argument_group(
        "figures",
        "The pictures of the page. With --x or --y, quantities of the runs of a sweep against a parameter, with an "
        "interval for each point.",
    )
    add = group.add_argument
    add("--figures", type=full_path, metavar="OUT", help="write figures to the directory OUT")
    add("--format", metavar="LIST", help=f"formats, some of {','.join(FORMATS)}; default: pdf")
    add("--width", metavar="one|two|INCHES", help="width of the figures, one or two columns; default: one")
    add("--x", metavar="PARAM",
        help="the parameter on the abscissa, or algorithm: a row for each of them; default: the first parameter that "
        "was swept, of environments or of all algorithms, else algorithm")  # fmt: skip
    add(
        "--y",
        metavar="LIST",
        help="value, loss, score, shortfall (1 - score), success, episodes (until solved), good_after, stopped_after, "
        "earned, seconds, or all; default: those that are known, but neither good_after nor stopped_after, and no "
        "value or loss where scores are known",
    )
    add("--success", type=reader(float), metavar="SHARE",
        help="score from which a run counts as solved; default: 0.95")  # fmt: skip
    add("--statistic", metavar="NAME",
        help="mean, iqm (mean of the middle half) or median of the runs; default: the median of episodes and seconds, "
        "the mean of the rest")  # fmt: skip
    add("--interval", type=reader(float), metavar="LEVEL", help="confidence of the intervals; default: 0.95")
    add("--pool", action="store_true", default=None, help="one panel for the runs on all environments")
    for axis in "xy":
        add(f"--log-{axis}", action=argparse.BooleanOptionalAction,
            help=f"whether {axis} has a logarithmic axis; default: where it spans more than a decade")  # fmt: skip


def figures(options: Namespace, pictures: Callable[..., Iterable[Picture]]) -> Iterator[tuple[Path, bytes]]:
    """Yield the files of the figures that are asked for, which `pictures` draws, with their contents.

    Raises
    ------
    ImportError
        If matplotlib is not installed.
    ValueError
        If an option is wrong or does not fit, or there is nothing to draw.
    """
    formats = [one.strip().lower() for one in (options.format or "pdf").split(",")]
    for one in formats:
        if one not in FORMATS:
            raise ValueError(f"format: expected some of {', '.join(FORMATS)}, got {one!r}{suggestion(one, FORMATS)}")
    given = {name: value for name, option in LOOKS.items() if (value := getattr(options, option)) is not None}
    names: set[str] = set()
    for picture in pictures(width=width_of(options.width or "one"), **given):
        name = base = re.sub(r"[^a-z0-9.=_]+", "-", picture.title.lower())[:LONGEST].strip("-") or "figure"
        while name in names:
            name = f"{base}-{len(names)}"
        names.add(name)
        for form in dict.fromkeys(formats):
            signals.check()
            yield options.figures / f"{name}.{form}", rendered(picture.figure, form)
    if not names:
        raise ValueError("figures: there is nothing to draw")


def check_figure_options(options: Namespace) -> None:
    """Raise ValueError or OSError if there are options of figures without --figures, or that is no directory."""
    given = [name for name, option in FIGURE_OPTIONS.items() if getattr(options, option) is not None]
    if options.figures is None and given:
        raise ValueError(f"{given[0]}: expected with --figures only")
    if options.figures is not None:
        try:
            check_makeable(options.figures)
        except OSError as error:
            raise type(error)(f"figures: {told(error)}") from error


def width_of(text: str) -> float:
    """Return a width in inches."""
    if text in WIDTHS:
        return WIDTHS[text]
    try:
        width = float(text)
    except ValueError:
        width = 0.0
    if not 2.5 <= width <= 20.0:
        raise ValueError(f"width: expected {', '.join(WIDTHS)} or a number of inches in [2.5, 20], got {text!r}")
    return width


def rendered(figure: Figure, form: str) -> bytes:
    """Return the bytes of a figure; equal figures have equal bytes, as there is no date in them."""
    dates = {"pdf": {"CreationDate": None}, "svg": {"Date": None}, "png": {}}
    file = io.BytesIO()
    figure.savefig(file, format=form, dpi=300, metadata=dates[form])
    return file.getvalue()
