"""What a person at a terminal sees and does: messages, the progress line, Ctrl-C."""

from __future__ import annotations

import contextlib
import signal
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

from dmq_fast.cli.exit_codes import INTERRUPTED, NOT_SAVED, TERMINATED, USAGE

__all__ = ["ProgressLine", "exit_code", "interruptible", "not_saved", "say", "usage_error"]


def say(message: str) -> None:
    """Print a line beside the output of the command."""
    print(message, file=sys.stderr)


def usage_error(message: str) -> int:
    """Say what is wrong and return the exit code for it."""
    say(f"dmq-fast {message}")
    return USAGE


def not_saved(command: str, error: Exception) -> int:
    """Say why nothing could be saved and return the exit code for it."""
    say(f"dmq-fast {command}: could not save: {error}")
    return NOT_SAVED


@contextlib.contextmanager
def interruptible() -> Iterator[list[int]]:
    """Turn signals that ask to stop into KeyboardInterrupt; yield the list of those received."""
    received: list[int] = []

    def stop(number: int, frame: object) -> None:
        received.append(number)
        raise KeyboardInterrupt

    before = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield received
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def exit_code(received: list[int]) -> int:
    """Return the exit code of the first signal received."""
    return TERMINATED if received[:1] == [signal.SIGTERM] else INTERRUPTED


class ProgressLine:
    """One line on a terminal, rewritten at most ten times a second; elsewhere a line every ten seconds.

    `describe` turns what a run reports into its text.
    """

    def __init__(
        self, describe: Callable[[Any], str], *, terminal: bool = True, write: Callable[[str], object] | None = None
    ) -> None:
        self.describe = describe
        self.terminal = terminal
        self.write = write or sys.stderr.write
        self.drawn: float | None = None

    def __call__(self, progress: object) -> None:
        """Draw, unless that was done a moment ago."""
        now = time.monotonic()
        if self.drawn is not None and now - self.drawn < (0.1 if self.terminal else 10.0):
            return
        self.drawn = now
        text = self.describe(progress)
        self.write(f"\r\x1b[K{text}" if self.terminal else f"{text}\n")
        sys.stderr.flush()

    def clear(self) -> None:
        """Remove the line."""
        if self.terminal and self.drawn is not None:
            self.write("\r\x1b[K")
            sys.stderr.flush()
