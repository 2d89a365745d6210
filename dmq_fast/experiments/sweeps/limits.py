"""Limits of time for runs that do not heed their budget of seconds: what blocks cannot be asked to end."""

from __future__ import annotations

import contextlib
import faulthandler
import os
import sys
import tempfile
import threading
import traceback
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from multiprocessing.reduction import DupFd
from typing import Any, BinaryIO, NamedTuple, TypeVar

__all__ = ["LastWords", "Overdue", "OverdueError", "limited"]

T = TypeVar("T")


class Overdue(NamedTuple):
    """What was ended at its limit: its name, and where it was."""

    name: str
    trace: str


class OverdueError(RuntimeError):
    """A call has not ended within its limit; the message tells where it was."""


class LastWords:
    """A file without a name in which a worker process leaves what it was doing when it ended itself.

    It is made by the parent of the worker and sent when this process starts. The worker writes the name of each call
    before it begins.
    """

    def __init__(self, file: BinaryIO | None = None) -> None:
        self.file = tempfile.TemporaryFile(buffering=0) if file is None else file

    def __reduce__(self) -> tuple[Callable[[Any], LastWords], tuple[Any]]:
        return received, (DupFd(self.file.fileno()),)

    def read(self) -> Overdue | None:
        """Return what the worker has left; None if it ended in another way."""
        text = os.pread(self.file.fileno(), 2**20, 0).decode(errors="replace")
        name, _, trace = text.partition("\n")
        heading, _, trace = trace.partition("\n")  # "Timeout (0:00:01)!"
        return Overdue(name, trace) if heading else None

    @contextlib.contextmanager
    def ending(self, seconds: float, name: str) -> Iterator[None]:
        """End this process if the block takes longer, whatever it is doing: this needs neither Python nor its lock."""
        self.empty()
        self.file.write(f"{name}\n".encode())
        faulthandler.dump_traceback_later(seconds, exit=True, file=self.file.fileno())
        try:
            yield
        finally:
            faulthandler.cancel_dump_traceback_later()
            self.empty()

    def empty(self) -> None:
        """Remove what is in the file."""
        self.file.seek(0)
        self.file.truncate()

    def close(self) -> None:
        """Close the file."""
        self.file.close()


def received(handle: Any) -> LastWords:
    """Return the last words of this process, which its parent will read."""
    global own
    own = LastWords(os.fdopen(handle.detach(), "r+b", buffering=0))
    return own


own: LastWords | None = None
"""The last words of this process, if it is a worker that its parent replaces."""


def limited(work: Callable[[], T], seconds: float | None, name: str) -> T:
    """Return the result of a call that may take so many seconds, any number for None.

    In a worker process that its parent replaces, this process ends at the limit. In any other, the call has a thread of
    its own, which goes on without a purpose until it or the process ends.

    Raises
    ------
    OverdueError
        If the thread has not ended in time.
    """
    if seconds is None:
        return work()
    if own is not None:
        with own.ending(seconds, name):
            return work()
    outcome: Future[T] = Future()

    def settle() -> None:
        try:
            outcome.set_result(work())
        except BaseException as error:
            outcome.set_exception(error)

    thread = threading.Thread(target=settle, name=name, daemon=True)
    thread.start()
    try:
        return outcome.result(seconds)
    except TimeoutError:
        if outcome.done():
            return outcome.result()
        frame = sys._current_frames().get(thread.ident or 0)
        raise OverdueError("".join(traceback.format_stack(frame))) from None
