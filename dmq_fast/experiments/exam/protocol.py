"""What an algorithm of the exam is given, and what it returns."""

from __future__ import annotations

import contextlib
import signal
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

__all__ = ["Algorithm", "Answer", "NotApplicable", "Over", "Tally", "Terms", "alarm"]


SHORTEST, LONGEST = 1e-3, 1e8
"""Seconds that a timer of the system can take; 0 would stop it."""


class Over(Exception):
    """Raised by the environment of an exam where a budget is used up: "episodes" or "seconds".

    An algorithm may catch it and return the policy that it has; it is not taken to have stopped by itself then.
    """


class NotApplicable(Exception):
    """To be raised by an algorithm on an environment that it is not made for: counted as not run, not as failed."""


class Terms(NamedTuple):
    """What an algorithm is told beside the environment.

    Attributes
    ----------
    horizon : int
        Number of steps H of an episode, at most.
    value_range : tuple of float
        Least and largest sum of rewards that can be earned from any step on, in points.
    epsilon : float
        The loss that is allowed, in points: how much less than the best policy the one that is returned may earn.
    delta : float
        The probability with which it may lose more.
    max_episodes : int
        Episodes until `Over` is raised.
    max_seconds : float
        CPU seconds of this process until `Over` is raised.
    seed : int
        Of the algorithm. The same seed gives the same episodes if the algorithm passes seeds to `reset`.
    homogeneous : bool
        Whether transitions and rewards are the same at every step.
    """

    horizon: int
    value_range: tuple[float, float]
    epsilon: float
    delta: float
    max_episodes: int
    max_seconds: float
    seed: int
    homogeneous: bool


class Answer(NamedTuple):
    """What an algorithm returns.

    Attributes
    ----------
    act : callable or object
        ``act(level, observation)`` is the action of the policy at a level 0, 1, ...; or an object with a method
        `act_on` of this form, as the policies of this package. It is asked level by level, and has to be the same
        function of both whenever it is asked.
    stopped : bool
        Whether the algorithm stopped by a rule of its own, before its budget was used up.
    """

    act: Any
    stopped: bool = False


Algorithm = Callable[[Any, Terms], Any]
"""From an environment and `Terms` to an `Answer`, a pair like one, or the policy alone: it did not stop by itself."""


class Tally:
    """Episodes and steps of all copies of an environment, the budget, and whether it was `over`: it raises `Over`.

    An episode counts from its first step on, so that a reset to look at the first observation is none.
    """

    def __init__(self, max_episodes: int, max_seconds: float) -> None:
        self.max_episodes, self.max_seconds = max_episodes, max_seconds
        self.episodes = self.steps = 0
        self.over = False
        self.began = time.process_time()

    def count(self, level: int) -> None:
        """Count a step; the first of an episode counts the episode."""
        if level == 0:
            self.look()
            if self.episodes >= self.max_episodes:
                self.over = True
                raise Over("episodes")
            self.episodes += 1
        self.steps += 1

    def look(self, *_: object) -> None:
        """Raise `Over` if the seconds are used up; an algorithm that plans for long between episodes may call it."""
        if self.seconds > self.max_seconds:
            self.over = True
            raise Over("seconds")

    @property
    def seconds(self) -> float:
        """CPU seconds of this process so far."""
        return time.process_time() - self.began

    def __deepcopy__(self, memo: object) -> Tally:
        """Return itself: copies of an environment count together."""
        return self


@contextlib.contextmanager
def alarm(seconds: float) -> Iterator[None]:
    """Raise `Over` in this block after so many CPU seconds, and again each second: for code that plays no episode.

    An alarm around this one goes on afterwards, later by what this block took. Without effect outside the main thread,
    and where the system has no such timer.
    """
    if threading.current_thread() is not threading.main_thread() or not hasattr(signal, "setitimer"):
        yield
        return

    def ring(*_: object) -> None:
        raise Over("seconds")

    before = signal.signal(signal.SIGPROF, ring)
    outer = signal.setitimer(signal.ITIMER_PROF, min(max(seconds, SHORTEST), LONGEST), 1.0)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, *outer)
        signal.signal(signal.SIGPROF, before)
