"""How a rollout in a worker thread is told to stop: signals are heard in the main thread alone."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["Stopped", "heeded", "heeding"]


class Stopped(Exception):
    """Nobody waits for this rollout any more."""


class _Thread(threading.local):
    # In the class, so that a thread that never heeded anything need not raise and swallow an AttributeError.
    stop: threading.Event | None = None


_thread = _Thread()


@contextmanager
def heeding(stop: threading.Event | None) -> Iterator[None]:
    """Let the rollouts that this thread begins within raise `Stopped` soon after `stop` is set."""
    before = heeded()
    _thread.stop = stop
    try:
        yield
    finally:
        _thread.stop = before


def heeded() -> threading.Event | None:
    """Return what the rollouts of this thread heed, None where nothing."""
    return _thread.stop
