"""The look of pictures: colours, lines and markers of any number of series, text sizes, and names as text.

The colours are those of Okabe and Ito and two of Tol's, which colour-blind people can distinguish.
"""

from __future__ import annotations

import contextlib
import textwrap
from collections.abc import Iterator
from typing import Any, Literal, NamedTuple

from dmq_fast._support.files import writable

__all__ = [
    "BLUE",
    "COLOURS",
    "FAINT",
    "GREEN",
    "INK",
    "LINE",
    "MUTED",
    "OLIVE",
    "ORANGE",
    "PURPLE",
    "REFERENCE",
    "SKY",
    "WINE",
    "YELLOW",
    "Look",
    "in_style",
    "look",
    "plain",
    "wrapped",
]

BLUE, ORANGE, GREEN, PURPLE, SKY, YELLOW = "#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00"
WINE, OLIVE = "#882255", "#999933"
INK, MUTED, FAINT = "#1a1a1a", "#6b6b6b", "#e4e4e4"
"""Colours of text and axes, of reference lines, and of the background."""

COLOURS = (BLUE, ORANGE, GREEN, PURPLE, SKY, YELLOW, INK, WINE, OLIVE)
"""Colours of the series, in this order; see `look` for more series than colours."""

MARKERS = "osD^vPX<>"

LINE = 8.5 / 72.0
"""Height of a line of text in inches."""

REFERENCE = (0, (4, 2))
"""Dashes of reference lines."""

STYLE: dict[str, Any] = {
    "font.family": "DejaVu Sans",
    "font.size": 7.5,
    "axes.labelsize": 7.5,
    "axes.titlesize": 7.5,
    "axes.titlelocation": "left",
    "axes.linewidth": 0.6,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": INK,
    "axes.labelcolor": INK,
    "text.color": INK,
    "xtick.color": INK,
    "ytick.color": INK,
    "xtick.labelsize": 7,
    "ytick.labelsize": 7,
    "xtick.major.width": 0.6,
    "ytick.major.width": 0.6,
    "xtick.minor.width": 0.4,
    "ytick.minor.width": 0.4,
    "lines.linewidth": 1.2,
    "lines.markersize": 3.5,
    "legend.frameon": False,
    "legend.fontsize": 7,
    "mathtext.fontset": "dejavusans",
    # Type 42 fonts, as publishers ask for; text of SVG files as paths, which need no fonts.
    "pdf.fonttype": 42,
    "ps.fonttype": 42,
    "svg.fonttype": "path",
    # Equal pictures are equal files.
    "svg.hashsalt": "dmq_fast",
}


class Look(NamedTuple):
    """Colour, marker and line style of a series."""

    colour: str
    marker: str
    line: Literal["-", ""] | tuple[float, tuple[float, ...]]


def look(i: int) -> Look:
    """Return the look of series 0, 1, 2, ...: no two have the same colour and line style.

    From the tenth series on colours come again, with another marker, and with a dash and one dot, two dots, and so on.
    """
    around, place = divmod(i, len(COLOURS))
    dashes = (0.0, (6.0, 1.5) + (1.0, 1.5) * around)
    return Look(COLOURS[place], MARKERS[(place + around) % len(MARKERS)], dashes if around else "-")


def plain(name: object) -> str:
    """Return a name that matplotlib shows as it is: a dollar sign begins no formula, and no letter is missing."""
    return writable(str(name)).replace("$", r"\$")


def wrapped(name: object, width: float) -> str:
    """Return a name in lines of at most half the width, in inches, of a picture; see `plain`."""
    letters = max(8, int(7.0 * width))
    whole = str(name).replace(" = ", "\N{NO-BREAK SPACE}=\N{NO-BREAK SPACE}")  # no line ends between name and value
    return plain("\n".join(textwrap.wrap(whole, letters, break_on_hyphens=False)) or whole)


@contextlib.contextmanager
def in_style() -> Iterator[None]:
    """Set the style of pictures within the block, from matplotlib's defaults and not from the user's settings."""
    import matplotlib.style

    with matplotlib.style.context(["default", STYLE]):
        yield
