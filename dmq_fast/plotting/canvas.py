"""`canvas` makes the figures of all pictures; it imports matplotlib only when it is called."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING

from dmq_fast.plotting.style import in_style

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["WIDTH", "canvas"]

WIDTH = 3.3
"""Width of a column in inches."""


@contextlib.contextmanager
def canvas(width: float, height: float) -> Iterator[Figure]:
    """Yield a styled figure, in inches, without global state; its axes must be made within the block.

    Raises
    ------
    ImportError
        If matplotlib is not installed.
    """
    try:
        import matplotlib  # noqa: F401
    except ModuleNotFoundError as error:
        message = 'pictures: expected matplotlib: pip install "dmq-fast[plot]"'
        raise ModuleNotFoundError(message, name="matplotlib") from error
    from dmq_fast.plotting.figure import StyledFigure

    with in_style():
        yield StyledFigure(figsize=(width, height), layout="constrained", dpi=200)
