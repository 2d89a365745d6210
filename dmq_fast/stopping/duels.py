"""`Duels`: the tested candidates of a self-stopping run, and contests between them by returns."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from dmq_fast.stopping.aim import Aim
from dmq_fast.stopping.bootstrap import Bootstrap
from dmq_fast.stopping.candidate import Candidate
from dmq_fast.stopping.episodes import Episodes
from dmq_fast.stopping.outcome import interval

__all__ = ["Contradiction", "Duels"]


class Contradiction(Exception):
    """Raised when returns and fits still disagree after everything that a run tries."""


class Duels:
    """The candidates that played tests, and duels in which the returns of another policy may beat a candidate's.

    A policy found by returns is greedy on a fit whose targets are the returns of the episodes for as long as they go on
    greedily. Such targets tell apart states that equal features pool. Where Q* is linear both kinds of target have the
    same mean, so both fits agree once the noise is settled.

    Parameters
    ----------
    episodes : Episodes
        Plays the tests.
    bootstrap : Bootstrap
        Has the planner, the aim and the numbers of the run.
    plan : callable
        Plans on all episodes so far.

    Attributes
    ----------
    tested : list of Candidate
        Those that began a test.
    tests, won : int
        Numbers of tests, and of duels that a policy found by returns won.
    """

    def __init__(self, episodes: Episodes, bootstrap: Bootstrap, plan: Callable[[], None]) -> None:
        self.episodes, self.bootstrap, self.plan = episodes, bootstrap, plan
        self.planner, self.tuning = bootstrap.planner, bootstrap.tuning
        self.tested: list[Candidate] = []
        self.tests = self.won = 0

    @property
    def aim(self) -> Aim:
        """The aim of the run, in its present units."""
        return self.bootstrap.aim

    def begin_test(self, candidate: Candidate) -> int:
        """Count a test of the candidate, and return its number of episodes."""
        self.tests += 1
        self.tested.append(candidate)
        return self.test_size()

    def test_size(self) -> int:
        """Return the number of fresh episodes of the newest test."""
        return self.aim.test_size(self.tests)

    def winner(self, candidate: Candidate) -> Candidate:
        """Return the candidate, or the policy found by returns that beat it, or that policy's own winner."""
        lead = self.tuning.lead * self.aim.epsilon
        for _ in range(self.tuning.duels):
            if not self.returns_favour_another(candidate):
                break
            rival = self.rival()
            (mean, error), (other, other_error) = candidate.mean_return(), rival.mean_return()
            if other - mean <= lead + self.tuning.errors * math.hypot(error, other_error):
                break
            self.won += 1
            candidate = rival
        return candidate

    def returns_favour_another(self, candidate: Candidate) -> bool:
        """Return whether fits to returns see a loss in the candidate's actions, and a value above its mean return."""
        (mean, error), most = candidate.mean_return(), self.tuning.refits // 2
        least = mean + self.aim.epsilon + self.tuning.errors * error
        losses, values = [], []
        for theta in self.bootstrap.refits_to_returns(self.bootstrap.generator()):
            losses.append(candidate.loss(theta))
            values.append(candidate.predicted(theta))
            # More than half of the refits have seen no loss, or no value: no need for the others.
            if max(sum(loss <= self.aim.epsilon for loss in losses), sum(value <= least for value in values)) > most:
                return False
        return bool(np.median(losses) > self.aim.epsilon and np.median(values) > least)

    def rival(self) -> Candidate:
        """Return the policy that is greedy on the fit to returns, after a test of its own."""
        near = self.tuning.near * self.aim.epsilon
        rival = Candidate(self.planner, self.planner.refit(np.ones(self.planner.n_episodes), True, near))
        rival.add(self.episodes.play("test", self.begin_test(rival), rival.theta))
        self.plan()
        return rival

    def best(self) -> Candidate:
        """Return the tested candidate with the largest lower limit of its mean return."""

        def surely(candidate: Candidate) -> float:
            return interval(candidate.mean_return()[0], len(candidate), self.aim.delta)[0]

        return max(filter(len, self.tested), key=surely)
