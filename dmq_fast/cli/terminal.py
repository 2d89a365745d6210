"""Messages, the progress line, and the signals that stop a command."""

from __future__ import annotations

import _thread
import contextlib
import logging
import math
import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

from dmq_fast._support.files import writable
from dmq_fast._support.progress import write_error
from dmq_fast.cli.exit_codes import FINISHED, INTERRUPTED, NOT_SAVED, OUT_OF_BUDGET, TERMINATED, USAGE

__all__ = [
    "forget_output",
    "not_saved",
    "output_apart",
    "own_output",
    "say",
    "say_where",
    "show",
    "signals",
    "spoken_log",
    "told",
    "usage_error",
]

T = TypeVar("T")


def say(message: str) -> None:
    """Print a line to standard error. A message that cannot be printed does not end the command."""
    write_error(f"{message}\n")


def say_where() -> None:
    """Print the traceback of the exception being handled to standard error."""
    write_error(traceback.format_exc())


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


def told(error: Exception) -> str:
    """Return the message of an exception, without the number of an error of the system."""
    if isinstance(error, OSError) and error.strerror and error.filename:
        return f"{error.filename}: {error.strerror}"
    return str(error)


def not_saved(command: str, error: Exception) -> int:
    """Print why the output could not be saved and return the exit code of that."""
    say(f"dmq-fast {command}: could not save: {told(error)}")
    return NOT_SAVED


def show(command: str, text: str, code: int) -> int:
    """Print what a command found, once everything is saved; return `code`, or that of a print that failed."""
    try:
        if sys.stdout is None:  # it was closed when the program began
            raise ValueError("standard output is closed")
        with signals.held(spare=1):  # the second signal leaves a reader that reads no more
            print(writable(text), flush=True)
    except BrokenPipeError:  # the reader, such as `head`, has seen enough
        forget_output()
    except (OSError, ValueError) as error:  # a full disk, a closed file, a name that cannot be encoded
        forget_output()
        say(f"dmq-fast {command}: could not print: {error}")
        return NOT_SAVED if code == FINISHED else code
    return code


def forget_output() -> None:
    """Send standard output nowhere, so that what is left in its buffer does not fail once more at exit."""
    with contextlib.suppress(OSError, ValueError, AttributeError):  # perhaps there is none
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


@contextlib.contextmanager
def own_output() -> Iterator[None]:
    """Keep standard output for the results of this block, the whole program: descriptor 1 becomes standard error.

    So what compiled code and other processes print is not among the results. It stays so after the block, since C
    keeps in a buffer what it prints until the process ends, and exit handlers print as well.
    """
    given = sys.__stdout__
    if given is None or sys.stdout is not given:  # closed, or replaced by other code
        yield
        return
    given.flush()
    result = open(os.dup(1), "w", encoding=given.encoding, errors=given.errors)
    os.dup2(2, 1)
    sys.stdout = result
    try:
        yield
    finally:
        sys.stdout = sys.stderr
        try:
            result.close()
        except BrokenPipeError:  # the reader has seen enough
            pass
        except OSError as error:  # help on a full disk; what `show` prints it has written
            say(f"dmq-fast: could not print: {error}")
            raise SystemExit(NOT_SAVED) from error


@contextlib.contextmanager
def output_apart() -> Iterator[None]:
    """Send what the code of users prints to standard error, since standard output is for the result of a command."""
    with contextlib.redirect_stdout(sys.stderr):
        yield


class Signals:
    """SIGINT and SIGTERM while a command runs: they raise KeyboardInterrupt, or are noted while results are saved.

    Python drops an exception that is raised where nobody can catch it: in a callback of a weak reference, of the
    garbage collector or of ctypes, or in a ``__del__``. If that was the KeyboardInterrupt of a signal, it is raised
    once more as soon as the callback has ended. One that code of the user catches is not: loops find out by `check`.

    The handlers belong to the process, so there is one object, :data:`signals`.

    Attributes
    ----------
    received : list of int
        The signals since the command began.
    spare : float
        Number of further signals that are only noted; the next one raises KeyboardInterrupt.
    """

    def __init__(self) -> None:
        self.received: list[int] = []
        self.spare = 0.0
        self._again = self._dropping = False

    @contextlib.contextmanager
    def listening(self) -> Iterator[None]:
        """Handle signals in this block, which is a whole command; without effect outside the main thread."""
        self.received, self.spare, self._again, self._dropping = [], 0.0, False, False
        if threading.current_thread() is not threading.main_thread():  # Python delivers no signals to it
            yield
            return
        main, hook = threading.get_ident(), sys.unraisablehook
        ended = False

        def send_again() -> None:
            while self._dropping:
                time.sleep(0.001)
            if not ended:
                self._again = True
                signal.pthread_kill(main, self.received[0])

        def dropped(what: Any) -> None:
            if not (self.received and issubclass(what.exc_type, KeyboardInterrupt) and threading.get_ident() == main):
                hook(what)
                return
            # Only another thread can raise it outside of this callback. Without one, `check` is what is left. What the
            # handler raised in this function would be dropped as well.
            self._dropping = True
            with contextlib.suppress(RuntimeError):
                _thread.start_new_thread(send_again, ())
            self._dropping = False

        before = {number: signal.signal(number, self._handle) for number in (signal.SIGINT, signal.SIGTERM)}
        sys.unraisablehook = dropped
        try:
            yield
        finally:
            ended, sys.unraisablehook = True, hook
            for number, handler in before.items():
                signal.signal(number, handler)

    def _handle(self, number: int, frame: object) -> None:
        again, self._again = self._again, False
        if not again:
            self.received.append(number)
        if self.spare <= 0:
            if self._dropping:
                return
            raise KeyboardInterrupt
        if not again:
            self.spare -= 1

    @contextlib.contextmanager
    def held(self, spare: float = math.inf) -> Iterator[None]:
        """Only note the signals in this block, or the first `spare` of them: it saves or prints results."""
        before, self.spare = self.spare, spare
        try:
            yield
        finally:
            self.spare = before

    def attempt(self, work: Callable[[], T]) -> T | None:
        """Return what `work` returns, or None where a signal ends it or came before; to be called in a `held` block."""
        held = self.spare
        try:
            try:
                self.spare = 0.0
                self.check()
                return work()
            finally:
                self.spare = held
        except KeyboardInterrupt:  # perhaps from within `finally`
            self.spare = held
            if not self.received:
                self.received.append(signal.SIGINT)
            return None

    def check(self) -> None:
        """Raise KeyboardInterrupt if a signal has been noted, or its KeyboardInterrupt was caught by other code."""
        if self.received:
            raise KeyboardInterrupt

    def checking(self, progress: Callable[[Any], object] | None) -> Callable[[Any], None]:
        """Return a function `progress` for a long computation, which calls `check` before what it is to call."""

        def look(state: Any) -> None:
            self.check()
            if progress is not None:
                progress(state)

        return look

    def code(self, code: int) -> int:
        """Return the exit code of the first signal received, or `code` if there was none or it is a failure."""
        if not self.received or code not in (FINISHED, OUT_OF_BUDGET, INTERRUPTED):
            return code
        return TERMINATED if self.received[0] == signal.SIGTERM else INTERRUPTED


signals = Signals()
"""The signals of this process."""
