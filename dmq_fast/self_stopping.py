"""A run that chooses its number of episodes and stops by itself: optimistic exploration, and a test that is resumed.

The only assumption is the paper's: Q* is linear in the features of every level. A run explores by optimistic episodes
until one outcome that no episode showed could not lift the value at the start by more than epsilon; settles the noise
of its estimates by a bootstrap; and tests its greedy policy on fresh episodes (docs/adaptive.md). The data, the
backward pass and the optimistic rule are in `kernels.OptimisticPlanner`; streams, budgets and journal in
`stopping.episodes`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dmq_fast.engine.budget import Budget
from dmq_fast.engine.ledger import Ledger, OutOfBudget
from dmq_fast.kernels import OptimisticPlanner, Stream
from dmq_fast.samplers import Sampler
from dmq_fast.samplers.streams import OWN_CALLS
from dmq_fast.stopping.aim import Aim
from dmq_fast.stopping.candidate import Candidate
from dmq_fast.stopping.episodes import Episodes
from dmq_fast.stopping.linearity import Disagreement, disagreements
from dmq_fast.stopping.outcome import CONTRADICTION, Outcome, interval

__all__ = ["PURPOSES", "Report", "SelfStopping"]

Floats = NDArray[np.float64]
Numbers = NDArray[np.int64]

PURPOSES = ("explore", "refine", "test")
"""What episodes are played for: to find outcomes that no episode showed, to settle the noise, to test a policy."""

# Added to the sums of squares of the fits. A part of a feature outside the span of the data that is shorter than its
# root, 1e-6, goes unseen; a larger ridge hides longer ones. Factors are rotated, never taken of a sum of squares, so
# features count as parallel only where their rounding does; with N episodes of noise, rounding moves the values of
# directions that were never seen by some 1e-16 sqrt(N) / ridge, which is still small.
RIDGE = 1e-12

# Residuals up to this share of epsilon / H change no value by more than this share of epsilon. Without larger ones a
# bootstrap has nothing to settle.
NOISE = 0.1

# Refits of the bootstrap: enough for a .95 quantile, the second largest of them.
REPLICATES = 20

# Largest share of the episodes so far that the replicates play; less where less settles the noise. Between .05 and .2
# it makes no clear difference.
GROWTH = 0.2

# The part of it that all replicates share equally; the rest goes to those that see a loss, in proportion.
EQUAL_PART = 0.2

# Episodes of a candidate on whose states the bootstrap looks before its test: the smallest sample worth a mean.
FIRST_SAMPLE = 8

# Part of epsilon that a candidate may lose by the newest fit before a new one takes its place. The new one would play a
# longer test; but a loss that is known leaves less for what is not.
KEPT_LOSS = 1 / 4

# First piece of a test. The pieces then double, so that a candidate that fails fails early.
FIRST_PIECE = 4

# The search for rarer outcomes, after a test whose returns contradict the estimates, ends at this share of epsilon.
LEAST_SHARE = 1 / 8

# Duels by returns that a run fights, after a test, with policies that its returns speak for and its fits do not.
DUELS = 3

# What one unseen outcome may add by plans from reweighted episodes, in epsilons. Exploration ends at 1 by the plan
# itself, so 1 would never be reached; at 1.5 twice as many runs stop too early where rare transitions lead to what is
# unexplored.
MARGIN = 1.2

# Episodes of a run above which a reweighted plan plays more than one: one more for each so many.
EPISODES_PER_EPISODE = 1000

# Tests after which a run gives up, as its fits keep changing: 60 tests^2 / 2 episodes went into them.
MOST_TESTS = 20

# Share of an imagined value that is lost by a step on the way to it, so that near outcomes are looked for first. At the
# end exploration goes on without it.
IMPATIENCE = 1e-3

# Differences between returns and fit up to this share of epsilon are no reason for a warning.
LEAST_DISAGREEMENT = 0.1

# Distinct rows of a level above which several episodes are played between two plans: one more for each so many.
ROWS_PER_EPISODE = 512


@dataclass(frozen=True)
class Report:
    """What `progress` is called with after every plan: the phase, the episodes so far, and what may still be missed."""

    phase: str
    n_trajectories: int
    gap: float


class SelfStopping:
    """One self-stopping run.

    Parameters
    ----------
    sampler : Sampler
        One that shows single trajectories.
    aim : Aim
    stream : Stream
        Key of the run. Draws of the run itself use the calls from `OWN_CALLS` on.
    ledger : Ledger, optional
        With the purposes `PURPOSES`, and a phase "rollouts".
    progress : callable, optional
        Called with a `Report` after every plan.

    Attributes
    ----------
    planner : OptimisticPlanner
        The data and the last plan.
    p_min, floor : float
        Chances below `floor` are not looked for. It is `p_min` once a reward was seen.
    noisy : bool
        Whether a residual showed that something is random.
    """

    def __init__(
        self,
        sampler: Sampler,
        aim: Aim,
        stream: Stream,
        ledger: Ledger | None = None,
        progress: Callable[[Report], object] | None = None,
    ) -> None:
        sizes = (sampler.horizon, sampler.n_actions, sampler.dimension)
        self.aim, self.stream, self.progress = aim, stream, progress
        self.planner = OptimisticPlanner(*sizes, RIDGE, aim.log_confidence)
        self.ledger = Ledger(Budget(), None, PURPOSES, ("rollouts",)) if ledger is None else ledger
        self.episodes = Episodes(sampler, self.planner, stream, self.ledger)
        self.p_min = self.floor = aim.p_min
        self.noisy, self.gap, self.phase = False, 1.0, "explore"
        self.own_calls = self.tests_made = self.contradictions = self.duels_won = 0
        self.loss_quantile = 0.0
        self.candidate: Candidate | None = None
        self.tested: list[Candidate] = []
        self.disagreements: list[Disagreement] = []
        self.status, self.passed = "interrupted", False

    def learn(self) -> Outcome:
        """Run to the end, or until a budget is used up."""
        try:
            self.status = "finished" if self.run() else CONTRADICTION
            if self.passed and self.noisy and self.candidate is not None:
                least, rng = LEAST_DISAGREEMENT * self.aim.epsilon, self.own_generator()
                episodes = self.candidate.episodes
                self.disagreements = disagreements(self.planner, episodes, self.aim.delta, least, rng)
        except OutOfBudget as stop:
            self.status = stop.status
        return self.outcome()

    def run(self) -> bool:
        """Explore, settle the noise and test, until a candidate passes; False if returns and fits do not agree."""
        epsilon = self.aim.epsilon
        sample: Candidate | None = None  # exploration also looks where it went
        while True:
            self.explore(sample)
            candidate = self.candidate
            if candidate is None or not len(candidate) or candidate.loss() > KEPT_LOSS * epsilon:
                candidate = self.candidate = Candidate(self.planner, self.planner.theta)  # else its test goes on
            sample = candidate if len(candidate) else None
            if self.noisy:
                seen = candidate if len(candidate) >= FIRST_SAMPLE else self.hindsight(candidate)
                if not self.settled(seen):
                    continue
            if not self.replicates_content():
                continue
            if not len(candidate):
                if self.tests_made >= MOST_TESTS:
                    self.best_by_returns(self.best_tested())
                    return False
                self.tests_made += 1
                self.tested.append(candidate)
            sample, before = candidate, self.planner.n_episodes
            if not self.passes(candidate):
                continue
            if self.noisy and self.planner.n_episodes > before and not self.settled(candidate):
                continue
            sample = self.candidate = self.best_by_returns(candidate)
            if sample is candidate and self.contradicted(candidate):
                self.contradictions += 1  # look for rarer outcomes, with a new candidate
                self.p_min = self.floor = self.p_min / 2
                self.candidate = sample = None
                if self.p_min < LEAST_SHARE * epsilon:
                    return False
            elif sample is not candidate and sample.upper_gaps(self.aim.delta).max() > epsilon:
                self.candidate = None  # what the winner may miss is explored first
            else:
                self.passed = True
                return True

    def plan(self, impatience: float = 0.0) -> None:
        """Make the backward pass on all episodes so far."""
        self.gap, residual = self.planner.plan(self.floor, impatience)
        self.noisy = self.noisy or residual > NOISE * self.aim.epsilon / self.planner.horizon
        if self.progress is not None:
            self.progress(Report(self.phase, self.planner.n_episodes, self.gap))

    # ---- Exploration

    def explore(self, sample: Candidate | None) -> None:
        """Play optimistic episodes until one unseen outcome cannot add epsilon, at the start nor where `sample` goes.

        W is a fit, which can come out too low where many levels lie behind: so the states of the sample are looked at
        on every level, and where level k fails, episodes follow its policy before k. What the sample's policy loses by
        the newest fit counts, too. Where that is too much, the sample is dropped: the policy will not be returned, and
        what it may miss need not be known.
        """
        self.phase, planner, impatience = "explore", self.planner, IMPATIENCE
        while True:
            self.plan(impatience)
            # The more distinct rows there are the more a plan costs, so the more episodes are played before the next.
            n = 1 + max(planner.n_rows) // ROWS_PER_EPISODE
            if not planner.n_episodes:
                self.episodes.play("explore", 1, planner.theta)
            elif self.gap > self.aim.epsilon:
                self.episodes.play("explore", n)
            elif sample is not None and sample.loss() > KEPT_LOSS * self.aim.epsilon:
                sample = None
            elif sample is not None and sample.doubt(self.aim.delta) > self.aim.epsilon:
                level = int(np.argmax(sample.upper_gaps(self.aim.delta)))
                self.episodes.play("explore", n, sample.theta, level)
            elif impatience:
                impatience = 0.0
            elif not planner.rewarded and self.floor > self.aim.epsilon:
                sample, self.floor, impatience = None, self.floor / 2, IMPATIENCE  # nothing ever paid: look for rarer
            elif planner.rewarded and self.floor < self.p_min:
                sample, self.floor, impatience = None, self.p_min, IMPATIENCE
            else:
                return

    # ---- Noise: a Bayesian bootstrap over episodes

    def own_generator(self) -> np.random.Generator:
        """Return a generator for draws of the run itself, another one each time."""
        self.own_calls += 1
        return self.stream.at(OWN_CALLS + self.own_calls - 1).generator()

    def replicates(self, rng: np.random.Generator, *, returns: bool = False) -> list[Floats]:
        """Return fits in which every episode counts with a random weight."""
        n, near = self.planner.n_episodes, self.aim.epsilon / 2
        return [self.planner.replicate(rng.standard_exponential(n), returns, near) for _ in range(REPLICATES)]

    def settled(self, sample: Candidate) -> bool:
        """Whether the bootstrap agrees with the sample's actions up to epsilon; else the replicates play.

        Those that see more loss play more. But a part of the episodes goes to all, also to those that agree: where the
        others object because the sample's actions may earn too little, they prefer what is well known, and only more
        episodes with these actions can decide.
        """
        rng = self.own_generator()
        replicates = self.replicates(rng)
        losses = np.array([sample.loss(theta) for theta in replicates])
        self.loss_quantile = float(np.quantile(losses, 1 - self.aim.delta))
        if self.loss_quantile <= self.aim.epsilon:
            return True
        self.phase = "refine"
        weights = EQUAL_PART / REPLICATES + (1 - EQUAL_PART) * losses / losses.sum()
        growth = min(GROWTH, (self.loss_quantile / self.aim.epsilon) ** 2 - 1)  # the quantile falls like 1 / sqrt(n)
        n = max(1, math.ceil(growth * self.planner.n_episodes))
        shares = rng.multinomial(n, weights / weights.sum())
        self.episodes.play_all("refine", list(zip(replicates, shares.tolist(), strict=True)))
        return False

    def replicates_content(self) -> bool:
        """Whether one unseen outcome adds at most `MARGIN` epsilon by reweighted episodes, too; else they play.

        Where the unexplored lies behind a rare transition, the chance to get there is known with an error. The gain is
        counted from the larger of both values at the start, so that noise in what is known makes none.
        """
        rng, planner, most = self.own_generator(), self.planner, MARGIN * self.aim.epsilon
        known = float(planner.predicted(np.arange(planner.n_episodes)).mean())
        gains = []
        for _ in range(REPLICATES):
            plain, hopeful = planner.imagine(rng.standard_exponential(planner.n_episodes), self.floor)
            gains.append(hopeful - max(plain, known))
            if gains[-1] > most:
                self.phase = "explore"
                self.episodes.play("explore", 1 + planner.n_episodes // EPISODES_PER_EPISODE)
        self.plan()
        return bool(np.quantile(gains, 1 - self.aim.delta) <= most)

    def hindsight(self, candidate: Candidate) -> Candidate:
        """Return the candidate with all episodes that took its actions throughout, filled up to a first sample."""
        stored = self.planner.hindsight(candidate.theta)
        more = self.episodes.play("refine", max(0, FIRST_SAMPLE - len(stored)), candidate.theta)
        self.plan()
        return Candidate(self.planner, candidate.theta, np.concatenate([stored, more]))

    # ---- The test of a candidate

    def passes(self, candidate: Candidate) -> bool:
        """Go on with the test of a candidate on fresh episodes; False if it loses or misses too much.

        The candidate was fixed before these episodes, so it does not matter what is played between them. A test ends
        early by a known loss only. Where there is a gap, it may be the value of the candidate that is estimated too
        low; and to test is then cheaper than to explore.
        """
        size, self.phase = self.aim.test_size(self.tests_made), "test"
        while len(candidate) < size:
            piece = min(max(FIRST_PIECE, len(candidate)), size - len(candidate))
            candidate.add(self.episodes.play("test", piece, candidate.theta))
            self.plan()
            if candidate.loss() > KEPT_LOSS * self.aim.epsilon:
                return False
        return candidate.doubt(self.aim.delta) <= self.aim.epsilon

    def contradicted(self, candidate: Candidate) -> bool:
        """Whether the returns of a candidate differ from its predicted value by more than epsilon and chance."""
        mean, error = candidate.mean_return()
        return abs(candidate.predicted() - mean) > self.aim.epsilon + 3 * error

    # ---- A second opinion: returns instead of values, for features in which Q* is not quite linear

    def best_by_returns(self, candidate: Candidate) -> Candidate:
        """Return the candidate, or the policy that beat it by returns on fresh episodes.

        Targets that are returns, as long as an episode goes on greedily, tell states apart that equal features take for
        one. Where Q* is linear both kinds of target have the same mean, and the fits agree once the noise is settled.
        """
        for _ in range(DUELS):
            if not self.returns_object(candidate):
                break
            theta = self.planner.replicate(np.ones(self.planner.n_episodes), returns=True, near=self.aim.epsilon / 2)
            self.tests_made += 1
            fresh = self.episodes.play("test", self.aim.test_size(self.tests_made), theta)
            rival = Candidate(self.planner, theta, fresh)
            self.tested.append(rival)
            self.plan()
            (mean, error), (other, other_error) = candidate.mean_return(), rival.mean_return()
            if other - mean <= self.aim.epsilon / 2 + 2 * math.hypot(error, other_error):
                break
            self.duels_won += 1
            candidate = rival
        return candidate

    def returns_object(self, candidate: Candidate) -> bool:
        """Whether fits to returns see a loss in the candidate's actions, and a value above its mean return."""
        epsilon, (mean, error) = self.aim.epsilon, candidate.mean_return()
        replicates = self.replicates(self.own_generator(), returns=True)
        value = np.median([candidate.predicted(theta) for theta in replicates])
        loss = np.median([candidate.loss(theta) for theta in replicates])
        return bool(loss > epsilon and value - mean > epsilon + 2 * error)

    def best_tested(self) -> Candidate:
        """Return the best by returns of the candidates that were tested: the one that earns the most for sure."""

        def surely(candidate: Candidate) -> float:
            return interval(candidate.mean_return()[0], len(candidate), self.aim.delta)[0]

        return max(filter(len, self.tested), key=surely)

    # ---- What comes out

    def outcome(self) -> Outcome:
        """Return what was learned so far."""
        planner, passed = self.planner, self.candidate if self.passed else None
        planner.plan(self.floor)
        unknown = np.full(planner.horizon, math.nan)
        size, mean = (0, math.nan) if passed is None else (len(passed), passed.mean_return()[0])
        if passed is not None:
            theta = passed.theta
        else:  # after a contradiction the best by returns, else the newest estimates
            theta = self.best_tested().theta if self.status == CONTRADICTION else planner.theta
        return Outcome(
            theta=theta,
            status=self.status,
            epsilon=self.aim.epsilon,
            counts=dict(self.ledger.trajectories),
            tests_made=self.tests_made,
            test_size=size,
            mean_return=mean,
            interval=interval(mean, size, self.aim.delta),
            gaps=unknown if passed is None else passed.gaps(),
            largest=unknown if passed is None else passed.leverages().max(axis=0),
            loss_quantile=self.loss_quantile,
            p_min=self.floor,
            rewarded=planner.rewarded,
            alike=planner.n_episodes > 1 and bool(np.ptp(planner.returns(np.arange(planner.n_episodes))) == 0.0),
            contradictions=self.contradictions,
            duels_won=self.duels_won,
            disagreements=tuple(self.disagreements),
        )
