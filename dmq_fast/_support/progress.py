"""Progress on one line of standard error, as ``progress=True`` and the commands show it, and in the log."""

from __future__ import annotations

import contextlib
import logging
import os
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

from dmq_fast._support.files import writable

__all__ = ["ProgressLine", "check_progress", "on_terminal", "showing", "write_error"]


def on_terminal() -> bool:
    """Return whether standard error is a terminal; it may have been closed when the program began."""
    return sys.stderr is not None and sys.stderr.isatty()


def write_error(text: str) -> None:
    """Write to standard error; a closed one, or one whose reader has gone, takes nothing."""
    with contextlib.suppress(OSError, ValueError, AttributeError):
        sys.stderr.write(writable(text))
        sys.stderr.flush()


class ProgressLine:
    """Shows progress: a line rewritten at most ten times a second on a terminal, else a new line every ten seconds.

    `text_of` turns a progress object into the line.
    """

    def __init__(self, text_of: Callable[[Any], str], *, terminal: bool = True) -> None:
        self.text_of = text_of
        self.terminal = terminal and os.environ.get("TERM") != "dumb"  # which has no escape sequences
        self.drawn: float | None = None

    def __call__(self, progress: object) -> None:
        """Show the progress, unless it was shown a moment ago."""
        now = time.monotonic()
        if self.drawn is not None and now - self.drawn < (0.1 if self.terminal else 10.0):
            return
        self.drawn = now
        text = self.text_of(progress)
        if self.terminal:  # what is wrapped to a second line is not overwritten
            text = text[: max(1, shutil.get_terminal_size().columns - 1)]
        write_error(f"\r\x1b[K{text}" if self.terminal else f"{text}\n")

    def clear(self) -> None:
        """Remove the line from the terminal."""
        if self.terminal and self.drawn is not None:
            write_error("\r\x1b[K")


def check_progress(progress: Any) -> None:
    """Raise TypeError unless an argument `progress` is None, a bool or a callable."""
    if not (progress is None or isinstance(progress, bool) or callable(progress)):
        raise TypeError(f"progress: expected a callable or a bool, got {progress!r}")


@contextlib.contextmanager
def showing(
    progress: Any, text_of: Callable[[Any], str], logger: logging.Logger
) -> Iterator[Callable[[Any], object] | None]:
    """Yield the function that a checked argument `progress` stands for; of True, a line that goes with the block.

    Where the logger takes the level INFO, the text of each progress is logged as well.
    """
    line = ProgressLine(text_of, terminal=on_terminal()) if progress is True else progress or None

    def logged(one: Any) -> None:
        logger.info("%s", text_of(one))
        if line is not None:
            line(one)

    try:
        yield logged if logger.isEnabledFor(logging.INFO) else line
    finally:
        if isinstance(line, ProgressLine):
            line.clear()
