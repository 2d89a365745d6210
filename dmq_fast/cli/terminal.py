"""Messages, the progress line, and the signals that stop a command."""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

from dmq_fast.cli.exit_codes import FINISHED, INTERRUPTED, NOT_SAVED, TERMINATED, USAGE

__all__ = [
    "ProgressLine",
    "exit_code",
    "forget_output",
    "interruptible",
    "not_saved",
    "say",
    "show",
    "spoken_log",
    "usage_error",
]


def say(message: str) -> None:
    """Print a line to standard error."""
    print(message, file=sys.stderr)


class Spoken(logging.Handler):
    """Prints what the package logs to standard error."""

    def emit(self, record: logging.LogRecord) -> None:
        """Print one message."""
        say(f"{record.levelname.lower()}: {record.getMessage()}")


@contextlib.contextmanager
def spoken_log() -> Iterator[None]:
    """Print what the package logs from the level WARNING on, at once."""
    logger, handler = logging.getLogger("dmq_fast"), Spoken(logging.WARNING)
    logger.addHandler(handler)
    try:
        yield
    finally:
        logger.removeHandler(handler)


def usage_error(message: str) -> int:
    """Print an error of the command line and return its exit code."""
    say(f"dmq-fast {message}")
    return USAGE


def not_saved(command: str, error: Exception) -> int:
    """Print why the output could not be saved and return the exit code of that."""
    say(f"dmq-fast {command}: could not save: {error}")
    return NOT_SAVED


def show(command: str, text: str, code: int) -> int:
    """Print what a command found, once everything is saved; return `code`, or that of a print that failed."""
    try:
        print(text, flush=True)
    except BrokenPipeError:  # the reader, such as `head`, has seen enough
        forget_output()
    except (OSError, ValueError) as error:  # a full disk, a closed file, a name that cannot be encoded
        forget_output()
        say(f"dmq-fast {command}: could not print: {error}")
        return NOT_SAVED if code == FINISHED else code
    return code


def forget_output() -> None:
    """Send standard output nowhere, so that what is left in its buffer does not fail once more at exit."""
    with contextlib.suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


@contextlib.contextmanager
def interruptible() -> Iterator[list[int]]:
    """Turn SIGINT and SIGTERM into KeyboardInterrupt; yield the list of the signals received."""
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
    """Shows progress: a line rewritten at most ten times a second on a terminal, else a new line every ten seconds.

    `text_of` turns a progress object into the line.
    """

    def __init__(
        self, text_of: Callable[[Any], str], *, terminal: bool = True, write: Callable[[str], object] | None = None
    ) -> None:
        self.text_of = text_of
        self.terminal = terminal
        self.write = write or sys.stderr.write
        self.drawn: float | None = None

    def __call__(self, progress: object) -> None:
        """Show the progress, unless it was shown a moment ago."""
        now = time.monotonic()
        if self.drawn is not None and now - self.drawn < (0.1 if self.terminal else 10.0):
            return
        self.drawn = now
        text = self.text_of(progress)
        self.write(f"\r\x1b[K{text}" if self.terminal else f"{text}\n")
        sys.stderr.flush()

    def clear(self) -> None:
        """Remove the line from the terminal."""
        if self.terminal and self.drawn is not None:
            self.write("\r\x1b[K")
            sys.stderr.flush()
