"""A run that chooses its number of episodes and stops by itself: optimistic exploration, and a test that is resumed.

The only assumption is the paper's: Q* is linear in the features of every level. A run explores by optimistic episodes
until one outcome that no episode showed could not lift the value at the start by more than epsilon; settles the noise
of its estimates by a bootstrap; and tests its greedy policy on fresh episodes. Everything about the data, the backward
pass and the optimistic rule is in `kernels.OptimisticPlanner`; budgets and streams are in `run.episodes`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dmq_fast._support.checks import flag
from dmq_fast.kernels import OptimisticPlanner, Stream, as_positive
from dmq_fast.run.episodes import Episodes, episodes_of
from dmq_fast.run.ledger import OutOfBudget
from dmq_fast.run.options import Budget
from dmq_fast.samplers import Sampler
from dmq_fast.samplers.streams import OWN_CALLS

__all__ = ["Aim", "Outcome", "Report", "SelfStopping"]

Floats = NDArray[np.float64]
Numbers = NDArray[np.int64]

# Added to the sums of squares of the fits. A part of a feature outside the span of the data that is shorter than some
# tenth of its root, 1e-4, goes unseen; a larger ridge hides longer ones, and a smaller one loses digits.
RIDGE = 1e-6

# A fit whose largest residual is below this is that of a deterministic environment, which needs no bootstrap.
NOISE = 0.02

# Refits of the bootstrap: enough for a .95 quantile, the second largest of them.
REPLICATES = 20

# Share of the episodes so far that the replicates play. Between .05 and .2 it makes no clear difference.
GROWTH = 0.2

# The part of it that all replicates share equally; the rest goes to those that see a loss, in proportion.
EQUAL_PART = 0.2

# Episodes of a candidate on whose states the bootstrap looks before its test: the smallest sample worth a mean.
FIRST_SAMPLE = 8

# First piece of a test. The pieces then double, so that a candidate that fails fails early.
FIRST_PIECE = 4

# In quick mode: rewards and transitions rarer than this, at a single place, may be missed.
QUICK = 0.5

# The search for rarer outcomes, after a test whose returns contradict the estimates, ends at this share of epsilon.
LEAST_SHARE = 1 / 8

# Duels by returns that a run fights, after a test, with policies that its returns speak for and its fits do not.
DUELS = 3

# Tests after which a run gives up, as its fits keep changing: 60 tests^2 / 2 episodes went into them.
MOST_TESTS = 20

# Distinct rows of a level above which several episodes are played between two plans: one more for each so many.
ROWS_PER_EPISODE = 512


@dataclass(frozen=True)
class Aim:
    """The promise of a run: a policy within epsilon of the best with probability 1 - delta.

    Attributes
    ----------
    epsilon, delta : float
        In (0, 1).
    p_min : float
        Chance, at a single state and action, of the rarest outcome that is looked for off the returned policy. With
        epsilon, the strict mode, none that could matter is left out.
    log_confidence : float
        L such that after v visits an outcome of chance 1 - exp(-L / v) counts as excluded.
    """

    epsilon: float
    delta: float
    p_min: float
    log_confidence: float

    @classmethod
    def of(cls, epsilon: float = 0.05, delta: float = 0.05, *, strict: bool = True, p_min: float | None = None) -> Aim:
        """Return the aim of the strict mode, or of the quick one, or with another p_min.

        Raises
        ------
        TypeError, ValueError
            If an argument is of a wrong type, or epsilon or delta is not in (0, 1), or p_min not in (0, 1].
        """
        epsilon, delta, strict = below_one("epsilon", epsilon), below_one("delta", delta), flag("strict", strict)
        share = epsilon if strict else QUICK
        if p_min is not None:
            share = as_positive("p_min", p_min)
            if share > 1:
                raise ValueError(f"p_min: expected a number in (0, 1], got {p_min!r}")
        return cls(epsilon, delta, share, seen_once(delta) if strict else math.log(1 / delta))

    def test_size(self, test: int) -> int:
        """Return the number of fresh episodes of test 1, 2, ..., which errs with probability (1 - delta) delta^test.

        So many episodes all miss an event of mass epsilon with at most this probability; the sum over all tests is
        delta.
        """
        return math.ceil((test * math.log(1 / self.delta) - math.log1p(-self.delta)) / self.epsilon)


def below_one(name: str, value: float) -> float:
    """Return a number in (0, 1)."""
    number = as_positive(name, value)
    if number >= 1:
        raise ValueError(f"{name}: expected a number in (0, 1), got {value!r}")
    return number


def seen_once(delta: float) -> float:
    """Return the x that solves (1 + x) exp(-x) = delta, the 1 - delta quantile of Gamma(2).

    An outcome that was seen at most once in v visits has a chance below x / v, with probability 1 - delta; the
    bootstrap alone would take one seen once for as frequent as it was.
    """
    x = math.log(1 / delta)
    for _ in range(100):
        x = math.log((1 + x) / delta)
    return x


@dataclass
class Candidate:
    """A policy, greedy on a frozen theta, and the numbers of the episodes that it played since."""

    theta: Floats
    episodes: Numbers = field(default_factory=lambda: np.zeros(0, dtype=np.int64))

    def __len__(self) -> int:
        return len(self.episodes)


@dataclass(frozen=True, eq=False)
class Outcome:
    """What a self-stopping run returns.

    Attributes
    ----------
    theta : numpy.ndarray, shape (H, K, d)
        The returned policy is greedy on it.
    status : str
        "finished" only after a passed test; else the budget that ran out, "contradiction" where returns kept
        contradicting the estimates or `MOST_TESTS` tests failed, or "interrupted".
    reason : str
        Why the run stopped, in a sentence.
    counts : dict of str to int
        Episodes by purpose: explore, refine (the noise), test.
    tests_made : int
        Candidates that played at least one episode of a test.
    test_size : int
        Fresh episodes of the final test; 0 unless it was passed.
    mean_return : float
        Their mean return; NaN unless the test was passed.
    interval : tuple of two float
        Interval of confidence 1 - delta for the value of the returned policy, from these returns alone.
    gaps : numpy.ndarray, shape (H,)
        Largest gain by one unseen outcome from each level on, on average over the states of the final test.
    loss_quantile : float
        1 - delta quantile of the loss that the bootstrap sees on these states; 0 where nothing was random.
    p_min : float
        Chance of the rarest outcome that was looked for in the end.
    warnings : tuple of str
        Reasons to doubt the result.
    """

    theta: Floats
    status: str
    reason: str
    counts: dict[str, int]
    tests_made: int
    test_size: int
    mean_return: float
    interval: tuple[float, float]
    gaps: Floats
    loss_quantile: float
    p_min: float
    warnings: tuple[str, ...]

    @property
    def n_episodes(self) -> int:
        """Number of episodes of all purposes."""
        return sum(self.counts.values())

    def describe(self) -> dict[str, Any]:
        """Return what the run promises and why it stopped, as data that JSON can hold."""
        passed = self.test_size > 0
        return {
            "reason": self.reason,
            "tests_made": self.tests_made,
            "test_size": self.test_size,
            "mean_return": self.mean_return if passed else None,
            "interval": list(self.interval),
            "gaps": self.gaps.tolist() if passed else None,
            "loss_quantile": self.loss_quantile,
            "p_min": self.p_min,
        }


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
        Where single episodes come from: a `RolloutSampler` or a `BatchSampler`.
    aim : Aim
    stream : Stream
        Episode e draws from its call e; draws of the run itself use the calls from `OWN_CALLS` on.
    budget : Budget, optional
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
        budget: Budget | None = None,
        progress: Callable[[Report], object] | None = None,
    ) -> None:
        sizes = (sampler.horizon, sampler.n_actions, sampler.dimension)
        self.aim, self.stream, self.progress = aim, stream, progress
        self.planner = OptimisticPlanner(*sizes, RIDGE, aim.log_confidence)
        self.episodes: Episodes = episodes_of(sampler, self.planner, stream, Budget() if budget is None else budget)
        self.p_min = self.floor = aim.p_min
        self.noisy, self.gap, self.phase = False, 1.0, "explore"
        self.own_calls = self.tests_made = self.contradictions = self.duels_won = 0
        self.loss_quantile = 0.0
        self.candidate: Candidate | None = None
        self.tested: list[Candidate] = []
        self.status, self.passed = "interrupted", False

    # ---- Exploration

    def explore(self, sample: Candidate | None) -> None:
        """Play optimistic episodes until one unseen outcome cannot add epsilon, at the start nor where `sample` goes.

        W is a fit, which can come out too low where many levels lie behind: so the states of the sample are looked at
        on every level, and where level k fails, episodes follow its policy before k.
        """
        self.phase = "explore"
        while True:
            self.plan()
            if not self.planner.n_episodes:
                self.episodes.play(1, "explore", np.zeros_like(self.planner.theta), self.planner.horizon)
                continue
            if self.gap > self.aim.epsilon:
                self.episodes.play(self.batch_size(), "explore")
                continue
            if sample is not None and self.largest_gap(sample) > self.aim.epsilon:
                level = int(np.argmax(self.planner.gaps(sample.episodes)))
                self.episodes.play(self.batch_size(), "explore", sample.theta, level)
                continue
            sample = None  # the start decides from now on
            if not self.planner.rewarded and self.floor > self.aim.epsilon:
                self.floor /= 2  # nothing ever paid: look for rarer rewards
            elif self.planner.rewarded and self.floor < self.p_min:
                self.floor = self.p_min
            else:
                return

    def plan(self) -> None:
        """Make the backward pass on all episodes so far."""
        self.gap, residual = self.planner.plan(self.floor)
        self.noisy = self.noisy or residual > NOISE
        if self.progress is not None:
            self.progress(Report(self.phase, self.planner.n_episodes, self.gap))

    def batch_size(self) -> int:
        """Return the number of episodes to play before the next plan, which costs the more the more rows there are."""
        return 1 + max(self.planner.n_rows) // ROWS_PER_EPISODE

    def largest_gap(self, sample: Candidate) -> float:
        """Return the largest gain by one unseen outcome from a level on, on average over the states of a sample."""
        return float(self.planner.gaps(sample.episodes).max()) / len(sample)

    # ---- Noise: a Bayesian bootstrap over episodes

    def settled(self, sample: Candidate) -> bool:
        """Whether the bootstrap agrees with the sample's actions up to epsilon; else the replicates play.

        Those that see more loss play more. But a part of the episodes goes to all, also to those that agree: where the
        others object because the sample's actions may earn too little, they prefer what is well known, and only more
        episodes with these actions can decide.
        """
        rng, n = self.own_generator(), self.planner.n_episodes
        replicates = [self.planner.replicate(rng.standard_exponential(n)) for _ in range(REPLICATES)]
        losses = np.array([self.planner.regret(theta, sample.episodes) for theta in replicates])
        self.loss_quantile = float(np.quantile(losses, 1 - self.aim.delta))
        if self.loss_quantile <= self.aim.epsilon:
            return True
        self.phase = "refine"
        weights = EQUAL_PART / REPLICATES + (1 - EQUAL_PART) * losses / losses.sum()
        shares = rng.multinomial(max(1, math.ceil(GROWTH * n)), weights / weights.sum())
        for theta, share in zip(replicates, shares, strict=True):
            self.episodes.play(int(share), "refine", theta, self.planner.horizon)
        return False

    def own_generator(self) -> np.random.Generator:
        """Return a generator for draws of the run itself, another one each time."""
        self.own_calls += 1
        return self.stream.at(OWN_CALLS + self.own_calls - 1).generator()

    def hindsight(self, candidate: Candidate) -> Candidate:
        """Return the candidate with all episodes that took its actions throughout, filled up to a first sample."""
        stored = self.planner.hindsight(candidate.theta)
        missing = max(0, FIRST_SAMPLE - len(stored))
        more = self.episodes.play(missing, "refine", candidate.theta, self.planner.horizon)
        self.plan()
        return Candidate(candidate.theta, np.concatenate([stored, more]))

    # ---- The test of a candidate

    def passes(self, candidate: Candidate) -> bool:
        """Go on with the test of a candidate on fresh episodes; False as soon as its mean over all of them must fail.

        The candidate was fixed before these episodes, so it does not matter what is played between them.
        """
        size, self.phase = self.aim.test_size(self.tests_made), "test"
        while len(candidate) < size:
            piece = min(max(FIRST_PIECE, len(candidate)), size - len(candidate))
            more = self.episodes.play(piece, "test", candidate.theta, self.planner.horizon)
            candidate.episodes = np.concatenate([candidate.episodes, more])
            self.plan()
            if self.doubt(candidate) * len(candidate) > self.aim.epsilon * size:
                return False
        return True

    def doubt(self, candidate: Candidate) -> float:
        """Return what a candidate may miss on its states: its loss by the newest fit, and the largest gap."""
        return self.largest_gap(candidate) + self.planner.regret(self.planner.theta, candidate.episodes)

    def contradicted(self, candidate: Candidate) -> bool:
        """Whether the returns of a candidate differ from its predicted value by more than epsilon and chance."""
        mean, error = self.mean_return(candidate)
        predicted = float(self.planner.predicted(candidate.episodes).mean())
        return abs(predicted - mean) > self.aim.epsilon + 3 * error

    # ---- A second opinion: returns instead of values, for features in which Q* is not quite linear

    def best_by_returns(self, candidate: Candidate) -> Candidate:
        """Return the candidate, or the policy that beat it by returns on fresh episodes.

        Targets that are returns, as long as an episode goes on greedily, tell states apart that equal features take for
        one. Where Q* is linear both kinds of target have the same mean, and the fits agree once the noise is settled.
        """
        for _ in range(DUELS):
            if not self.returns_object(candidate):
                break
            theta = self.planner.replicate(np.ones(self.planner.n_episodes), returns=True)
            self.tests_made += 1
            size = self.aim.test_size(self.tests_made)
            rival = Candidate(theta, self.episodes.play(size, "test", theta, self.planner.horizon))
            self.plan()
            (mean, error), (other, other_error) = self.mean_return(candidate), self.mean_return(rival)
            if other - mean <= self.aim.epsilon / 2 + math.hypot(error, other_error):
                break
            self.duels_won += 1
            candidate = rival
        return candidate

    def returns_object(self, candidate: Candidate) -> bool:
        """Whether fits to returns see a loss in the candidate's actions, and a value above its mean return."""
        rng, n = self.own_generator(), self.planner.n_episodes
        mean, error = self.mean_return(candidate)
        losses, values = [], []
        for _ in range(REPLICATES):
            theta = self.planner.replicate(rng.standard_exponential(n), returns=True)
            losses.append(self.planner.regret(theta, candidate.episodes))
            values.append(self.planner.predicted(candidate.episodes, theta).mean())
        epsilon = self.aim.epsilon
        return bool(np.median(losses) > epsilon and np.median(values) - mean > epsilon + 2 * error)

    def mean_return(self, candidate: Candidate) -> tuple[float, float]:
        """Return the mean return of a candidate's episodes, and its standard error."""
        returns = self.planner.returns(candidate.episodes)
        return float(returns.mean()), float(returns.std()) / math.sqrt(len(returns))

    # ---- The run

    def learn(self) -> Outcome:
        """Run to the end, or until a budget is used up."""
        try:
            self.status = "finished" if self.run() else "contradiction"
        except OutOfBudget as stop:
            self.status = stop.status
        return self.outcome()

    def run(self) -> bool:
        """Explore, settle the noise and test, until a candidate passes; False if returns and fits do not agree."""
        sample: Candidate | None = None
        while True:
            self.explore(sample)
            candidate = self.candidate
            if candidate is None or not len(candidate) or self.doubt(candidate) > self.aim.epsilon:
                candidate = self.candidate = Candidate(self.planner.theta)  # else its test goes on
            sample = candidate if len(candidate) else None
            if self.noisy:
                seen = candidate if len(candidate) >= FIRST_SAMPLE else self.hindsight(candidate)
                if self.largest_gap(seen) > self.aim.epsilon:
                    sample, self.candidate = seen, None
                    continue
                if not self.settled(seen):
                    continue
            if not len(candidate):
                if self.tests_made >= MOST_TESTS:
                    self.tested.append(self.best_by_returns(self.best_tested()))
                    return False
                self.tests_made += 1
                self.tested.append(candidate)
            sample = candidate
            if not self.passes(candidate) or (self.noisy and not self.settled(candidate)):
                continue
            sample = self.candidate = self.best_by_returns(candidate)
            if sample is candidate and self.contradicted(candidate):
                self.contradictions += 1  # look for rarer outcomes, with a new candidate
                self.p_min = self.floor = self.p_min / 2
                self.candidate = sample = None
                if self.p_min < LEAST_SHARE * self.aim.epsilon:
                    return False
            elif sample is not candidate and self.largest_gap(sample) > self.aim.epsilon:
                self.candidate = None  # what the winner may miss is explored first
            else:
                self.passed = True
                return True

    # ---- What comes out

    def outcome(self) -> Outcome:
        """Return what was learned so far."""
        self.planner.plan(self.floor)
        candidate = self.candidate if self.passed else None
        returns = np.zeros(0) if candidate is None else self.planner.returns(candidate.episodes)
        mean = float(returns.mean()) if len(returns) else math.nan
        return Outcome(
            theta=self.returned_theta(),
            status=self.status,
            reason=self.reason(len(returns)),
            counts=dict(self.episodes.counts),
            tests_made=self.tests_made,
            test_size=len(returns),
            mean_return=mean,
            interval=interval(mean, len(returns), self.aim.delta),
            gaps=np.full(self.planner.horizon, math.nan)
            if candidate is None
            else self.planner.gaps(candidate.episodes) / len(candidate),
            loss_quantile=self.loss_quantile,
            p_min=self.floor,
            warnings=tuple(self.warnings()),
        )

    def returned_theta(self) -> Floats:
        """Return theta of the candidate that passed; after a contradiction, of the best by returns; else the newest."""
        if self.passed and self.candidate is not None:
            return self.candidate.theta
        if self.status == "contradiction" and self.tested:
            return self.best_tested().theta
        return self.planner.theta

    def best_tested(self) -> Candidate:
        """Return the best by returns of the candidates that were tested."""
        tested = [candidate for candidate in self.tested if len(candidate)]
        return max(tested, key=lambda candidate: self.mean_return(candidate)[0])

    def reason(self, size: int) -> str:
        """Return why the run stopped, in a sentence."""
        if self.passed:
            return (
                f"test {self.tests_made} was passed: on {size} fresh episodes, the loss and the gain by an outcome "
                f"that was never seen were at most epsilon = {self.aim.epsilon:g}"
            )
        if self.status == "contradiction":
            return (
                "predicted values and returns do not agree, however much was explored: Q* may not be linear in the "
                "features; the policy is the one with the best returns among those tested"
            )
        return f"no test was passed before the run ended ({self.status})"

    def warnings(self) -> list[str]:
        """Return reasons to doubt the result."""
        found = []
        if not self.planner.rewarded:
            found.append(
                f"no episode earned anything: if any policy is worth more than epsilon = {self.aim.epsilon:g}, its "
                "rewards are rarer than this run looked for"
                if self.passed
                else "no episode earned anything so far"
            )
        if self.contradictions:
            found.append(
                f"predicted value and mean return differed by more than epsilon in {self.contradictions} test(s): Q* "
                "may not be linear in the features, or an outcome is rarer than p_min"
            )
        if self.duels_won:
            found.append(
                f"{self.duels_won} policies that the fits advised against earned more by over epsilon / 2: Q* is not "
                "linear in the features, and the loss may exceed epsilon"
            )
        if not self.passed:
            found.append("no test was passed: nothing is known about the returned policy")
        return found


def interval(mean: float, n: int, confidence_left: float) -> tuple[float, float]:
    """Return the Chernoff interval for the mean of n numbers in [0, 1]: all mu with n kl(mean, mu) <= log(2 / delta).

    Examples
    --------
    >>> low, high = interval(0.7, 61, 0.05)
    >>> round(low, 3), round(high, 3)
    (0.529, 0.84)
    """
    if n == 0:
        return 0.0, 1.0
    mean, most = min(max(mean, 0.0), 1.0), math.log(2 / confidence_left) / n

    def end(wrong: float) -> float:
        right = mean
        for _ in range(60):
            middle = (right + wrong) / 2
            right, wrong = (middle, wrong) if divergence(mean, middle) <= most else (right, middle)
        return right

    return end(0.0), end(1.0)


def divergence(p: float, q: float) -> float:
    """Return kl(p, q) of two Bernoulli laws."""
    return sum(x * math.log(x / y) if y else math.inf for x, y in ((p, q), (1 - p, 1 - q)) if x)
