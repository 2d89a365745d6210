"""The options of ``dmq-fast report --figures``, and the files that they make."""

from __future__ import annotations

import argparse
import io
import re
from argparse import ArgumentParser, Namespace
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from dmq_fast._support.files import make_directory
from dmq_fast._support.names import suggestion
from dmq_fast.cli.files import Output, write_bytes
from dmq_fast.cli.options import reader

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from dmq_fast.environments import FiniteMDP
    from dmq_fast.experiments import Rows
    from dmq_fast.results.result import DMQResult, SelfStoppingResult

__all__ = ["FIGURE_OPTIONS", "FigureSettings", "add_figure_options", "figure_files", "settings_of"]

FORMATS = ("pdf", "svg", "png")

WIDTHS = {"one": 3.3, "two": 6.8}
"""Widths of one and two columns in inches."""

CHOICES = ("format", "width", "x", "y", "success", "statistic", "interval", "pool", "log_x", "log_y")
"""Options that say how figures look; None unless they are given."""

OF_INTERVALS = {"statistic", "interval", "pool", "log_x", "log_y"}
"""Those of them that the pictures of a page do not have."""

FIGURE_OPTIONS = {name: name for name in ("figures", *CHOICES)} | {"share": "success", "level": "interval"}
"""Arguments in messages, and the options that give them."""


def add_figure_options(parser: ArgumentParser) -> None:
    """Add the group of options."""
    group = parser.add_argument_group(
        "figures",
        "Without --x and --y, the pictures of the page; with either, a quantity of the runs of a sweep against a "
        "parameter, with an interval for each point.",
    )
    add = group.add_argument
    add("--figures", type=Path, metavar="OUT", help="write figures to the directory OUT")
    add("--format", metavar="LIST", help=f"formats, some of {','.join(FORMATS)}; default: pdf")
    add("--width", metavar="one|two|INCHES", help="width of the figures, one or two columns; default: one")
    add("--x", metavar="PARAM", help="the parameter on the abscissa; default: the first that was swept")
    add(
        "--y",
        metavar="LIST",
        help="value, loss, success, episodes, earned, seconds, or all; default: all that are known",
    )
    add("--success", type=reader(float), metavar="SHARE",
        help="share of the optimum from which a run counts as solved; default: 0.95")  # fmt: skip
    add("--statistic", metavar="NAME",
        help="mean, iqm (mean of the middle half) or median of the runs; default: the median of episodes and seconds, "
        "the mean of the rest")  # fmt: skip
    add("--interval", type=reader(float), metavar="LEVEL", help="confidence of the intervals; default: 0.95")
    add("--pool", action="store_true", default=None, help="one panel for the runs on all environments")
    for axis in "xy":
        add(f"--log-{axis}", action=argparse.BooleanOptionalAction,
            help=f"whether {axis} has a logarithmic axis; default: where it spans more than a decade")  # fmt: skip


class FigureSettings(NamedTuple):
    """The figures that are asked for: where, in which formats, how wide, and of what; None stands for a default."""

    directory: Path
    formats: Sequence[str]
    width: float
    x: str | None
    y: str | None
    share: float
    statistic: str | None
    level: float
    pool: bool
    log_x: bool | None
    log_y: bool | None

    def of_a_run(self, result: DMQResult | SelfStoppingResult, mdp: FiniteMDP | None) -> Iterator[tuple[str, Figure]]:
        """Yield names and figures of a run; ValueError if a parameter of a sweep is asked for."""
        from dmq_fast.experiments.report.reports import run_pictures

        for name in ("x", "y"):
            if getattr(self, name) is not None:
                raise ValueError(f"{name}: expected the directory of a sweep")
        for picture in run_pictures(result, mdp, self.width):
            yield picture.title, picture.figure

    def of_a_sweep(self, rows: Rows) -> Iterator[tuple[str, Figure]]:
        """Yield names and figures of a sweep."""
        from dmq_fast.experiments.report.reports import sweep_pictures

        if self.x is None and self.y is None:
            for picture in sweep_pictures(rows, self.width, self.share):
                yield picture.title, picture.figure
        else:
            yield from self.against(rows)

    def against(self, rows: Rows) -> Iterator[tuple[str, Figure]]:
        """Yield names and figures of quantities against a parameter."""
        from dmq_fast.experiments.report.against import pages, plot
        from dmq_fast.experiments.report.panels import measurable, panels_of

        wanted = measurable(rows, self.share) if self.y in (None, "all") else str(self.y).split(",")
        for y in wanted:
            shown = panels_of(
                rows, self.x, y.strip(), share=self.share, statistic=self.statistic, level=self.level, pool=self.pool
            )
            parts = list(pages(shown, self.width))
            for i, part in enumerate(parts, 1):
                end = f" {i}" if len(parts) > 1 else ""
                figure = plot(part, log_x=self.log_x, log_y=self.log_y, width=self.width)
                yield f"{shown.y} by {shown.x}{end}", figure


def settings_of(options: Namespace) -> FigureSettings | None:
    """Return the figures that are asked for, or None; ValueError if an option is wrong or there is no --figures."""
    given = {name: getattr(options, name) for name in CHOICES if getattr(options, name) is not None}
    if options.figures is None:
        if given:
            raise ValueError(f"{next(iter(given))}: expected with --figures only")
        return None
    if "x" not in given and "y" not in given:
        for name in given.keys() & OF_INTERVALS:
            raise ValueError(f"{name}: expected with --x or --y only")
    if options.figures.exists() and not options.figures.is_dir():
        raise NotADirectoryError(f"figures: expected a directory, got the file {options.figures}")
    formats = [one.strip().lower() for one in given.get("format", "pdf").split(",")]
    for one in formats:
        if one not in FORMATS:
            raise ValueError(f"format: expected some of {', '.join(FORMATS)}, got {one!r}{suggestion(one, FORMATS)}")
    return FigureSettings(
        options.figures,
        list(dict.fromkeys(formats)),
        width_of(given.get("width", "one")),
        given.get("x"),
        given.get("y"),
        given.get("success", 0.95),
        given.get("statistic"),
        given.get("interval", 0.95),
        given.get("pool", False),
        given.get("log_x"),
        given.get("log_y"),
    )


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


def figure_files(drawn: FigureSettings, pictures: Iterable[tuple[str, Figure]]) -> Iterator[Output]:
    """Yield the files of figures, drawn already; errors as in `against`."""
    names: set[str] = set()
    for title, figure in pictures:
        name = base = re.sub(r"[^a-z0-9.=_]+", "-", title.lower()).strip("-") or "figure"
        while name in names:
            name = f"{base}-{len(names)}"
        names.add(name)
        for form in drawn.formats:
            data = rendered(figure, form)
            yield Output(drawn.directory / f"{name}.{form}", partial(put, data=data))
    if not names:
        raise ValueError("figures: there is nothing to draw")


def put(path: Path, data: bytes) -> None:
    """Write a file, in a directory that is made for it."""
    make_directory(path.parent)
    write_bytes(path, data)


def rendered(figure: Figure, form: str) -> bytes:
    """Return the bytes of a figure; equal figures have equal bytes, as there is no date in them."""
    dates = {"pdf": {"CreationDate": None}, "svg": {"Date": None}, "png": {}}
    file = io.BytesIO()
    figure.savefig(file, format=form, dpi=300, metadata=dates[form])
    return file.getvalue()
