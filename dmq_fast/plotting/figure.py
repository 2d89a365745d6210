"""`StyledFigure`: a figure that keeps its style until it is saved."""

from __future__ import annotations

import io
from typing import Any

from matplotlib.backend_bases import RendererBase
from matplotlib.figure import Figure

from dmq_fast.plotting.style import in_style

__all__ = ["StyledFigure"]


class StyledFigure(Figure):
    """A figure in the style of `style`, whatever the user's settings are when it is drawn or saved.

    matplotlib makes ticks when it draws, and embeds fonts when it saves: both read the settings of that moment.
    """

    def draw(self, renderer: RendererBase) -> None:
        """Draw the figure."""
        with in_style():
            super().draw(renderer)

    def savefig(self, fname: Any, **options: Any) -> None:
        """Save the figure; see `matplotlib.figure.Figure.savefig`."""
        with in_style():
            super().savefig(fname, **options)

    def _repr_png_(self) -> bytes:
        """Return the picture for notebooks, on white paper."""
        file = io.BytesIO()
        self.savefig(file, format="png", dpi=150, facecolor="white")
        return file.getvalue()
