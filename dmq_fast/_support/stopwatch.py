"""`Stopwatch`: seconds of work, without those in which this process was stopped."""

from __future__ import annotations

import os
import threading
import time

__all__ = ["LONGEST", "SLICE", "Stopwatch"]

SLICE, LONGEST = 0.25, 1.0
"""Seconds between two looks at the clock, and the longest time between two that counts.

In a longer one the process was stopped: by SIGSTOP, in a frozen container, or as a batch system suspends a job.
"""


class Looks:
    """Adds up the seconds in which this process was stopped, by a thread that looks at the clock again and again.

    No clock of the system tells. A thread that waits for Python's lock sees a long time between two looks as well, but
    then the process has computed.
    """

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.users, self.stopped = 0, 0.0
        self.thread: threading.Thread | None = None
        self.over = threading.Event()
        self.now = self.cpu = 0.0

    def open(self) -> None:
        """Begin to look. Where no thread can be started, all time counts."""
        with self.lock:
            self.users += 1
            if self.thread is None:
                self.now, self.cpu, self.over = time.perf_counter(), time.process_time(), threading.Event()
                thread = threading.Thread(target=self.run, args=(self.over,), name="dmq_fast stopwatch", daemon=True)
                try:
                    thread.start()
                except RuntimeError:
                    return
                self.thread = thread

    def close(self) -> None:
        """Look no more, unless others need it; then the thread ends."""
        with self.lock:
            self.users -= 1
            if self.users > 0 or self.thread is None:
                return
            thread, self.thread = self.thread, None
            self.over.set()
        thread.join()

    def run(self, over: threading.Event) -> None:
        """Look until this is over."""
        while not over.wait(SLICE):
            with self.lock:
                self.look(time.perf_counter(), time.process_time())

    def look(self, now: float, cpu: float) -> None:
        """Note a time, and how many seconds the process has computed until then."""
        passed = now - self.now
        if passed > LONGEST and cpu - self.cpu < passed / 10:
            self.stopped += passed - SLICE
        self.now, self.cpu = now, cpu

    def seconds(self) -> float:
        """Return the seconds in which the process was stopped, until now."""
        with self.lock:
            if self.thread is not None:  # which may not have had its turn since the process goes on
                self.look(time.perf_counter(), time.process_time())
            return self.stopped


looks = Looks()


def begin_afresh() -> None:
    """Forget the thread of the parent, in a forked child."""
    global looks
    looks = Looks()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=begin_afresh)


class Stopwatch:
    """Measures the seconds since it was made, without those in which this process was stopped.

    Parameters
    ----------
    limit : float
        Seconds that somebody has.
    before : float
        Seconds to begin with.
    """

    def __init__(self, limit: float, before: float = 0.0) -> None:
        looks.open()
        self._open, self.limit = True, limit
        self._began = time.perf_counter() - before - looks.seconds()

    def seconds(self) -> float:
        """Return the seconds."""
        return time.perf_counter() - self._began - looks.seconds()

    def left(self) -> float:
        """Return the seconds that are left of the limit, negative ones if it is exceeded."""
        return self.limit - self.seconds()

    def close(self) -> None:
        """Let the thread end that looks at the clock."""
        if self._open:
            self._open = False
            looks.close()
