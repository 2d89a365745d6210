"""A way to stop a rollout in a worker thread, where Python delivers no signals."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["Stopped", "heeded", "heeding"]


class Stopped(Exception):
    """The rollout was cancelled: its `heeding` event was set."""


class _Thread(threading.local):
    # A class attribute is the default of every thread, without the cost of an AttributeError.
    stop: threading.Event | None = None


_thread = _Thread()


@contextmanager
def heeding(stop: threading.Event | None) -> Iterator[None]:
    """Make rollouts that this thread begins inside the context raise `Stopped` soon after `stop` is set."""
    before = heeded()
    _thread.stop = stop
    try:
        yield
    finally:
        _thread.stop = before


def heeded() -> threading.Event | None:
    """Return the event that stops the rollouts of this thread, or None."""
    return _thread.stop
