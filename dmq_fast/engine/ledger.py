"""The ledger of a run: its answers, budgets and clock.

Everything that a run of Algorithms 1 to 3 decides is an answer to one of four questions: does the oracle return True,
what is theta, what is the M2 of a True, what is S_h? Each is a function of trajectories. A self-stopping run asks one:
which episodes were played? So a run is resumed by one rule: an answer is either recalled from the journal or found, and
what was found is recorded.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dmq_fast._support.stopwatch import Stopwatch
from dmq_fast.engine import journal
from dmq_fast.engine.budget import Budget
from dmq_fast.engine.journal import Journal, Record
from dmq_fast.moments import Moment

__all__ = ["Fit", "Kind", "Ledger", "OutOfBudget", "Scan", "added_to", "expect", "fit_of", "scan_of"]


class OutOfBudget(Exception):
    """A budget is used up. The exception ends the run: it unwinds the recursion to `DMQ.learn`."""

    def __init__(self, status: str) -> None:
        super().__init__(status)
        self.status = status


class Kind(NamedTuple):
    """A kind of answer: its code in the journal, and the functions from an answer to a record and back.

    `unpack` raises ValueError where a record, whose checksum is right, is no such answer.
    """

    code: int
    pack: Callable[[Any], tuple[Sequence[int], Sequence[Any]]]
    unpack: Callable[[Record], Any]


class Scan(NamedTuple):
    """Answers of the oracle on one batch, from one level down to the first True.

    `found` is that level, or -1. `values` holds the v of each level where it was computed. `potentials` holds, with a
    True, log det(S + eps_r I) before and after its M2 is added. `n_marginal` is the number of answers of the run so far
    that were too close to call.
    """

    found: int
    values: NDArray[np.float64]
    potentials: NDArray[np.float64]
    n_marginal: int


class Fit(NamedTuple):
    """theta_h^a, shape (d,), and whether any of its returns to go was not zero."""

    theta: NDArray[Any]
    rewarded: bool


def expect(condition: bool, what: str, *values: Any) -> None:
    """Raise ValueError with what a record was expected to hold, if it does not; `values` fill the braces of `what`.

    They are written out in the message alone, as every record of a replay is checked.
    """
    if not condition:
        raise ValueError(f"expected {what.format(*values)}")


@lru_cache(maxsize=1024)
def scan_of(top: int, bottom: int) -> Kind:
    """Return the kind of answer to a scan of the levels top, top - 1, ..., bottom."""

    def pack(scan: Scan) -> tuple[Sequence[int], Sequence[Any]]:
        return (scan.found, scan.n_marginal), (scan.values, scan.potentials)

    def unpack(record: Record) -> Scan:
        expect(len(record.integers) == 2, "2 integers, got {}", len(record.integers))
        found, n_marginal = record.integers
        expect(found == -1 or bottom <= found <= top, "-1 or a level in {} to {}, got {}", bottom, top, found)
        expect(n_marginal >= 0, "a number of answers >= 0, got {}", n_marginal)
        end = len(record.floats) - (2 if found >= 0 else 0)
        most = top - max(found, bottom) + 1
        what = "at most {} values, and two potentials with a True, got {}"
        expect(0 <= end <= most, what, most, len(record.floats))
        return Scan(found, record.floats[:end], record.floats[end:], n_marginal)

    return Kind(journal.SCAN, pack, unpack)


def fit_of(dimension: int) -> Kind:
    """Return the kind of answer to a fit of theta_h^a, shape (dimension,)."""

    def pack(fit: Fit) -> tuple[Sequence[int], Sequence[Any]]:
        return (fit.rewarded,), (fit.theta,)

    def unpack(record: Record) -> Fit:
        expect(record.integers in ((0,), (1,)), "the integer 0 or 1, got {}", record.integers)
        expect(len(record.floats) == dimension, "theta of {} numbers, got {}", dimension, len(record.floats))
        expect(bool(np.isfinite(record.floats).all()), "a finite theta, got {}", record.floats)
        return Fit(record.floats, bool(record.integers[0]))

    return Kind(journal.FIT, pack, unpack)


def unpack_moment(level: int, dimension: int, integers: Sequence[int], floats: NDArray[np.float64]) -> Moment:
    """Return the second moment of a level from the integers and floats of its record; see `Moment.columns`."""
    expect(integers[:1] == (level,), "level {}, got {}", level, integers[:1])
    sparse = len(integers) > 1
    size = len(integers) - 2 if sparse else dimension
    expect(len(floats) == size**2, "{0} x {0} moments, got {1}", size, len(floats))
    expect(bool(np.isfinite(floats).all()), "finite moments, got others")
    gram = floats.reshape(size, size)
    if not sparse:
        return Moment(gram)
    expect(integers[1] == dimension, "dimension {}, got {}", dimension, integers[1])
    support = np.array(integers[2:], dtype=np.int64)
    ascending = bool((np.diff(support, prepend=-1, append=dimension) > 0).all())
    expect(ascending, "ascending columns below {}, got {}", dimension, support)
    return Moment(gram, support.astype(np.int32), dimension)


def added_to(level: int, dimension: int) -> Kind:
    """Return the kind of answer to which second moment a True added to a level."""

    def pack(moment: Moment) -> tuple[Sequence[int], Sequence[Any]]:
        return (level, *moment.columns), (moment.gram,)

    return Kind(journal.ADDED, pack, lambda record: unpack_moment(level, dimension, record.integers, record.floats))


class Ledger:
    """The answers, budgets and clock of one run.

    Parameters
    ----------
    budget : Budget
        Limits of the run; `OutOfBudget` is raised when one is reached.
    book : Journal, optional
        Journal of the run, open.
    purposes, phases : sequence of str
        Purposes that trajectories are counted by, and phases that the clock distinguishes; by default those of
        Algorithms 1 to 3.

    Attributes
    ----------
    calls : int
        Calls of the sampler so far. The draws count them; the journal checks them.
    n_policies : int
        Policies added to the covers, initial ones not counted.
    trajectories : dict of str to int
        Trajectories by purpose.
    seconds : dict of str to float
        Wall-clock time by phase: draws, oracle and regression add what they take.
    """

    def __init__(
        self,
        budget: Budget,
        book: Journal | None,
        purposes: Sequence[str] = ("check", "regression", "states", "final"),
        phases: Sequence[str] = ("rollouts", "oracle", "regression"),
    ) -> None:
        self.budget, self.journal = budget, book
        self.calls = 0
        self.n_policies = 0
        self.trajectories = dict.fromkeys(purposes, 0)
        self.seconds = dict.fromkeys(phases, 0.0)
        before = 0.0 if book is None else book.elapsed
        # First the watch, so that what a journal records of it is no less than the time that a result tells.
        self.watch = None if budget.max_seconds is None else Stopwatch(budget.max_seconds, before)
        self.began = time.perf_counter() - before

    # Answers

    @property
    def replaying(self) -> bool:
        """Whether the journal still holds answers, so that nothing needs to be drawn."""
        return self.journal is not None and self.journal.replaying

    def answer(self, kind: Kind, find: Callable[..., Any], *arguments: Any) -> Any:
        """Return the answer that the journal holds for this point of the run; otherwise find one and record it."""
        if self.journal is None:
            return find(*arguments)
        recalled = self.journal.recall(kind.code, self.calls)
        if recalled is not None:
            try:
                return kind.unpack(recalled)
            except ValueError as error:
                raise self.journal.refusal(recalled, error) from error
        found = find(*arguments)
        self._record(kind.code, *kind.pack(found))
        return found

    def answer_level(self, h: int, dimension: int, find: Callable[..., Any], *arguments: Any) -> Moment:
        """Return S_h of a level just learned. Its record also holds `seconds`, and a recalled one restores them."""

        def pack(moment: Moment) -> tuple[Sequence[int], Sequence[Any]]:
            return (h, *moment.columns), (list(self.seconds.values()), moment.gram)

        def unpack(record: Record) -> Moment:
            seconds, floats = np.split(record.floats, [len(self.seconds)])
            moment = unpack_moment(h, dimension, record.integers, floats)
            expect(bool(((seconds >= 0.0) & (seconds < math.inf)).all()), "seconds >= 0, got {}", seconds)
            self.seconds = dict(zip(self.seconds, seconds.tolist(), strict=True))
            return moment

        moment: Moment = self.answer(Kind(journal.LEVEL, pack, unpack), find, *arguments)
        return moment

    def _record(self, kind: int, integers: Sequence[int] = (), floats: Sequence[Any] = ()) -> None:
        if self.journal is not None:
            self.journal.record(kind, self.elapsed(), self.calls, integers, floats)

    # Budgets

    @property
    def n_trajectories(self) -> int:
        """Number of trajectories drawn for all purposes."""
        return sum(self.trajectories.values())

    def check_trajectories(self, n: int) -> None:
        """Raise `OutOfBudget` if n more trajectories exceed the budget, or `max_seconds` has passed."""
        limit = self.budget.max_trajectories
        if limit is not None and self.n_trajectories + n > limit:
            raise OutOfBudget("max_trajectories")
        self.check_time()

    def count_policy(self) -> None:
        """Count a policy to be added; raise `OutOfBudget` if the budget holds no more."""
        limit = self.budget.max_policies
        if limit is not None and self.n_policies >= limit:
            raise OutOfBudget("max_policies")
        self.n_policies += 1

    def count_trajectories(self, purpose: str, n: int) -> None:
        """Count n trajectories that were drawn, and check the clock."""
        self.trajectories[purpose] += n
        self.check_time()

    def elapsed(self) -> float:
        """Return the seconds since the run began; with a limit, without those in which this process was stopped."""
        return time.perf_counter() - self.began if self.watch is None else self.watch.seconds()

    def check_time(self) -> None:
        """Raise `OutOfBudget` when max_seconds has passed. Not checked while the journal is being replayed."""
        if self.watch is not None and not self.replaying and self.watch.left() < 0.0:
            raise OutOfBudget("max_seconds")

    def close(self, finished: bool) -> None:
        """Close the journal; first record the clock, if the run did not finish."""
        if self.journal is not None:
            if not finished and not self.replaying:
                self._record(journal.CLOCK)
            self.journal.close()
        if self.watch is not None:
            self.watch.close()
