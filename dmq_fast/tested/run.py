"""`TestedRun`: explore by optimism, improve by fits to returns, choose by fresh returns, and test.

Where Q* is not linear in the features, a fit may be wrong everywhere, and no plan on it can promise anything. What
remains is what a policy earned in episodes that nothing else was decided by. So this run uses fits to have ideas and
returns to judge them, and promises an interval for the value of the policy that it returns. Four steps, in the order of
the file; numbers are in `Practice`.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.linalg.lapack import dpotrf, dpotri

from dmq_fast._support.words import rounded
from dmq_fast.engine.budget import Budget
from dmq_fast.engine.ledger import Ledger, OutOfBudget
from dmq_fast.kernels import Stream
from dmq_fast.results.history import Look, Looks
from dmq_fast.samplers import Sampler
from dmq_fast.samplers.streams import OWN_CALLS
from dmq_fast.stopping.aim import TESTED, Aim
from dmq_fast.stopping.episodes import PIECE, PURPOSES
from dmq_fast.stopping.outcome import mean_interval
from dmq_fast.tested.data import Data, SparseEpisodes
from dmq_fast.tested.intervals import betting_interval

__all__ = ["Practice", "TestedRun"]

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Practice:
    """The numbers of a run by returns. None of them is part of its promise.

    Attributes
    ----------
    uniform : int
        Episodes of uniform play, at first: they show what returns are like.
    ridge : float
        Of leverages: a direction of length 1 counts as 1 / ridge before any visit.
    most_exploring : int
        Episodes of exploration, at most.
    settled : float
        Exploration ends where unseen outcomes may add at most this share of the range of values.
    fit_ridge : float
        Of the fits to returns, in visits.
    refits : int
        Fits to reweighted episodes whose mean is a candidate.
    piece : int
        Episodes that a candidate plays.
    top : int
        Candidates that play `again` times as many more; the mean of as many of the newest estimates is one more.
    again : int
    growth : float
        Candidates are compared with those before, whenever their number has grown so many times.
    gain : float
        They go on while the newest third earns so much more than the third before, as a share of what the best gains
        over uniform play; and while it earns less than the fits predict by more than epsilon.
    perfect : int
        Episodes after which a candidate that earned all that can be earned, but for epsilon / 4, ends the improvement.
    first_look : int
        Number of candidates at the first comparison.
    look_ahead : int
        Levels that fits look ahead, in lengths of the episode that earned the most.
    most : int
        Episodes altogether, at most, the test included.
    """

    uniform: int = 10
    ridge: float = 1e-2
    most_exploring: int = 40
    settled: float = 0.03
    fit_ridge: float = 0.03
    refits: int = 4
    piece: int = 3
    top: int = 4
    again: int = 3
    growth: float = 1.25
    gain: float = 0.05
    perfect: int = 48
    first_look: int = 12
    look_ahead: int = 2
    most: int = 500


PRACTICE = Practice()


class Fit(NamedTuple):
    """Estimates of T levels on the columns that rows had: theta (T, K, s), columns (s,)."""

    theta: Floats
    columns: NDArray[np.int64]

    def at_all_levels(self, horizon: int, dimension: int) -> Floats:
        """Return theta (H, K, d): a level with more than T levels left has that of the first."""
        levels = levels_of(horizon, len(self.theta))
        theta = np.zeros((horizon, self.theta.shape[1], dimension))
        theta[:, :, self.columns] = self.theta[levels]
        return theta


@dataclass
class Idea:
    """A policy that is greedy on theta (H, K, d), and what its episodes earned, in points.

    Q is low + phi^T theta, clipped to [low, top], which are by level, (H,).
    """

    theta: Floats
    low: Floats
    top: Floats
    earned: list[float] = field(default_factory=list)

    @property
    def mean(self) -> float:
        """Mean return so far; minus infinity without any."""
        return float(np.mean(self.earned)) if self.earned else -math.inf


class TestedRun:
    """One run by returns.

    Parameters
    ----------
    sampler : Sampler
        One that shows single trajectories. Levels count as the same.
    aim : Aim
        Its epsilon gives the size of the test, its delta the confidence of the interval.
    stream : Stream
        Key of the run.
    ledger : Ledger, optional
        With the purposes explore, refine (what candidates play) and test, and a phase "rollouts".
    progress : callable, optional
        Called after every plan and fit with the purpose, and with what unseen outcomes may add, in points.
    practice : Practice, optional

    Attributes
    ----------
    data : Data
    ideas : list of Idea
        The best candidates so far, by their mean returns.
    newest : deque of Idea
        The newest candidates.
    means : list of float
        Mean return of the first episodes of each candidate.
    upside : float
        W - F at the start by the last plan, in points.
    predictions : list of float
        What the fits predict of each, in points.
    cut_short : bool
        Whether candidates still got better when there was no room for more.
    """

    def __init__(
        self,
        sampler: Sampler,
        aim: Aim,
        stream: Stream,
        ledger: Ledger | None = None,
        progress: Callable[[str, float], object] | None = None,
        practice: Practice = PRACTICE,
    ) -> None:
        self.aim, self.stream, self.progress, self.practice = aim, stream, progress, practice
        self.rewards = sampler.rewards
        self.horizon, self.dimension = sampler.horizon, sampler.dimension
        self.data = Data(sampler.horizon, sampler.n_actions, sampler.dimension, practice.ridge)
        self.ledger = Ledger(Budget(), None, PURPOSES, ("rollouts",)) if ledger is None else ledger
        self.episodes = SparseEpisodes(sampler, self.data, stream, self.ledger)  # type: ignore[arg-type]
        self.upside = self.uniform = math.nan
        self.ideas: list[Idea] = []
        self.newest: deque[Idea] = deque(maxlen=practice.top)
        self.means: list[float] = []
        self.predictions: list[float] = []
        self.chosen: Idea | None = None
        self.tested: Floats = np.zeros(0)
        self.look_ahead = self.horizon
        self.looks = Looks()
        self.cut_short = False
        self.status, self._draws = "interrupted", 0

    def learn(self) -> str:
        """Run until a policy was tested, or a budget is used up; return the status."""
        try:
            self.explore()
            self.improve()
            self.chosen = self.choose()
            self.test(self.chosen)
            self.status = TESTED
        except OutOfBudget as stop:
            self.status = stop.status
        return self.status

    # ---- 1. Exploration

    def explore(self) -> None:
        """Play episodes of the optimistic plan until unseen outcomes can add little, or enough were played."""
        self.episodes.play_uniformly("explore", self.practice.uniform)
        self.uniform = float(np.mean(self.data.earned))
        for _ in range(self.practice.most_exploring):
            low, top = self.bounds(self.horizon)
            self.plan(low, top)
            if self.upside <= self.practice.settled * (top[0] - low[0]):
                break
            self.episodes.play("explore", 1)

    def plan(self, low: Floats, top: Floats) -> None:
        """Make the passes for F, and for W in which an action without a visit nearby is worth all that can be."""
        transitions = self.data.transitions
        inverse = inverses(transitions.gram(), self.practice.ridge)
        unknown = transitions.leverages(inverse) >= 1.0
        _, values = transitions.fit(inverse, low, top)
        omega, hopeful = transitions.fit(inverse, low, top, unknown=unknown)
        transitions.plan(omega, inverse, low, top)
        self.upside = float((hopeful - values).mean())
        self.looks.note(Look(self.data.n_episodes, "explore", self.upside, float(values.mean())))
        self.report("explore")

    def bounds(self, levels: int) -> tuple[Floats, Floats]:
        """Return least and largest value with `levels`, ..., 1 levels left, (T,) each, in points.

        They are the declared ones, or those of the returns seen, widened above by half.
        """
        if self.rewards.known and not self.left_range():
            assert self.rewards.bounds is not None
            low, top = self.rewards.bounds[self.horizon - levels :].T
            return low.copy(), np.maximum(top, low)
        to_go = self.data.returns_to_go()
        least, most = (float(to_go.min()), float(to_go.max())) if len(to_go) else (0.0, 0.0)
        return np.full(levels, least), np.full(levels, most + 0.5 * max(most - least, 1e-9))

    def left_range(self) -> bool:
        """Return whether an episode earned what the declared range does not allow."""
        return self.rewards.noise is None and self.rewards.outside(np.array(self.data.earned), 0).size > 0

    # ---- 2. Improvement

    def improve(self) -> None:
        """Fit returns, play the greedy policy, and fit again, until it no longer gets better or can not."""
        practice = self.practice
        look = practice.first_look
        size = self.test_size
        reserved = practice.piece * (1 + practice.again * (practice.top + 1)) + size
        while not self.ideas or self.data.n_episodes + reserved <= max(practice.most, 4 * size):
            idea = self.new_idea()
            self.try_out(idea, practice.piece)
            self.means.append(idea.mean)
            self.looks.note(Look(self.data.n_episodes, "refine", self.upside, self.predicted, idea.mean))
            self.keep(idea)
            if self.stays_perfect(idea):
                return
            if len(self.means) >= look:
                if not self.still_gains():
                    return
                look = math.ceil(practice.growth * look)
        self.cut_short = len(self.means) >= 3 and self.still_gains()

    def new_idea(self) -> Idea:
        """Return the policy that is greedy on the mean of fits to returns, each to episodes with random weights."""
        transitions, practice = self.data.transitions, self.practice
        self.look_ahead = self.levels_ahead()
        low, top = self.bounds(self.look_ahead)
        rng = self.generator()
        thetas, values = [], []
        for _ in range(practice.refits):
            weights = rng.standard_exponential(self.data.n_episodes)
            inverse = inverses(transitions.gram(weights), practice.fit_ridge)
            theta, first = transitions.fit(inverse, low, top, weights, returns=True)
            thetas.append(theta)
            values.append(float(first.mean()))
        self.predictions.append(float(np.mean(values)))
        self.report("refine")
        fit = Fit(np.mean(thetas, axis=0), transitions.support)
        levels = levels_of(self.horizon, self.look_ahead)
        return Idea(fit.at_all_levels(self.horizon, self.dimension), low[levels], top[levels])

    def levels_ahead(self) -> int:
        """Return how many levels fits look ahead: twice those of the episode that earned the most, at most H.

        What lies farther ahead is met by the same policy again. All H where all episodes earned the same.
        """
        earned = np.array(self.data.earned)
        if np.ptp(earned) == 0.0:
            return self.horizon
        return min(self.horizon, self.practice.look_ahead * max(self.data.lasted[int(earned.argmax())], 5))

    def try_out(self, idea: Idea, n: int) -> None:
        """Play n episodes of an idea. They are data of later fits."""
        played = self.episodes.play("refine", n, idea.theta)
        idea.earned += [self.data.earned[e] for e in played]

    def keep(self, idea: Idea) -> None:
        """Keep an idea among the newest, and among the best if it is one."""
        self.newest.append(idea)
        self.ideas = sorted([*self.ideas, idea], key=lambda one: -one.mean)[: self.practice.top]

    def is_perfect(self, idea: Idea) -> bool:
        """Return whether an idea earned all that can be earned, but for a quarter of epsilon."""
        if not self.rewards.known or self.left_range():
            return False
        _, top = self.bounds(self.horizon)
        return bool(idea.mean >= top[0] - 0.25 * self.epsilon)

    def stays_perfect(self, idea: Idea) -> bool:
        """Play more and more episodes of an idea while it earns all that can be earned; return whether it still does.

        A few perfect episodes are luck often enough.
        """
        while self.is_perfect(idea):
            if len(idea.earned) >= self.practice.perfect:
                return True
            self.try_out(idea, len(idea.earned))
        return False

    def still_gains(self) -> bool:
        """Return whether the newest third of the candidates earns more than the one before, or less than predicted."""
        third = len(self.means) // 3
        newest, before = np.mean(self.means[-third:]), np.mean(self.means[-2 * third : -third])
        missing = np.mean(self.predictions[-third:]) - newest
        return bool(newest - before > self.practice.gain * (max(self.means) - self.uniform) or missing > self.epsilon)

    # ---- 3. Choice

    def choose(self) -> Idea:
        """Return the best of the best candidates and the mean of the newest estimates, by more episodes."""
        practice = self.practice
        if any(map(self.is_perfect, self.ideas)):
            return max(self.ideas, key=lambda one: (len(one.earned), one.mean))
        for idea in self.ideas:
            self.try_out(idea, practice.again * practice.piece)
        middle = Idea(
            *(np.mean([getattr(idea, name) for idea in self.newest], axis=0) for name in ("theta", "low", "top"))
        )
        self.try_out(middle, practice.again * practice.piece)
        return max([*self.ideas, middle], key=lambda one: one.mean)

    # ---- 4. The test

    @property
    def test_size(self) -> int:
        """Number of fresh episodes of the test."""
        return self.aim.in_units_of(self.width).test_size(1)

    @property
    def width(self) -> float:
        """Width of the range of values, in points: the declared one, or that of the returns seen."""
        return self.rewards.width if self.rewards.known else max(float(np.ptp(self.data.earned)), 1e-9)

    @property
    def epsilon(self) -> float:
        """Epsilon in points; a share is one of the width."""
        return self.aim.in_units_of(self.width).points

    def test(self, idea: Idea) -> None:
        """Play the chosen policy on fresh episodes, which nothing is decided by."""
        played = self.episodes.play("test", self.test_size, idea.theta)
        self.tested = np.array([self.data.earned[e] for e in played])
        self.looks.note(Look(self.data.n_episodes, "test", self.upside, self.predicted, float(self.tested.mean())))

    def interval(self) -> tuple[float, float]:
        """Return an interval of confidence 1 - delta for the value of the policy, in points."""
        bounds = self.rewards.bounds
        if bounds is None or self.rewards.noise is not None or self.left_range():
            return mean_interval(self.tested, self.aim.delta)
        low, high = bounds[0].tolist()
        return betting_interval(self.tested, low, high, self.aim.delta)

    def known_bounds(self) -> tuple[float, float]:
        """Return what is known of the value of any policy, in points."""
        if self.rewards.bounds is None or self.left_range():
            return -math.inf, math.inf
        low, high = self.rewards.bounds[0].tolist()
        return low, high

    # ---- What surrounds it

    def generator(self) -> np.random.Generator:
        """Return a generator for the weights of one idea, another one each time; replays get the same ones."""
        self._draws += 1
        return self.stream.at(OWN_CALLS + self._draws).generator()

    def report(self, phase: str) -> None:
        """Call `progress`."""
        if self.progress is not None:
            self.progress(phase, self.upside)

    @property
    def predicted(self) -> float:
        """What the fits predict of the newest candidate, in points; NaN without one."""
        return self.predictions[-1] if self.predictions else math.nan

    @property
    def best(self) -> Idea:
        """The chosen policy, the best so far, or zeros before there is any."""
        idea = self.chosen or max(self.ideas, key=lambda one: one.mean, default=None)
        zeros = np.zeros((self.horizon, self.data.n_actions, self.dimension))
        return Idea(zeros, np.zeros(self.horizon), np.zeros(self.horizon)) if idea is None else idea

    def outcome(self) -> dict[str, Any]:
        """Return what was learned so far, as data that JSON can hold."""
        passed = self.status == TESTED
        low, high = self.interval() if passed else self.known_bounds()
        mean = float(self.tested.mean()) if passed else None
        seen = [min(self.data.earned), max(self.data.earned)] if self.data.earned else None
        bounds = [self.rewards.low, self.rewards.high] if self.rewards.known else None
        known = self.rewards.known and not self.left_range()
        return {
            "promise": (
                "With probability 1 - delta the value of the policy lies in the interval. Nothing is promised of other "
                "policies: Q* need not be linear in the features, so `predicted` and `upside` are diagnostics"
                + ("." if known and self.rewards.noise is None else ", and the interval is asymptotic.")
            ),
            "reason": (
                f"{len(self.means)} policies were tried, and the chosen one played {len(self.tested)} fresh episodes"
                if passed
                else f"no policy was tested before the run ended ({self.status})"
            ),
            "tests_made": int(passed),
            "test_size": len(self.tested) if passed else 0,
            "mean_return": mean,
            "interval": [float(low), float(high)],
            "predicted": none_of(self.predicted),
            "upside": none_of(self.upside),
            "candidates": len(self.means),
            "look_ahead": self.look_ahead,
            "uniform": none_of(self.uniform),
            "rewards": {
                "value_range": bounds,
                "noise": self.rewards.noise,
                "declared": known,
                "returns_seen": seen,
            },
        }

    def warnings(self) -> tuple[str, ...]:
        """Return reasons to doubt the result, and what to change."""
        found = []
        earned = np.array(self.data.earned)
        if len(earned) > 1 and np.ptp(earned) == 0.0:
            found.append("all episodes had the same return: nothing shows which actions are better")
        if self.status == "max_trajectories" and not self.data.earned:
            first = min(PIECE, self.practice.uniform)
            found.append(f"no episode was played: the first {first} are played together, so allow at least {first}")
        if self.status != TESTED:
            found.append("no policy was tested: nothing is known about the returned policy")
        if self.left_range():
            wrong = self.rewards.outside(earned, 0)[0]
            found.append(self.rewards.refusal(float(earned[wrong]), 0, earned))
        if self.status == TESTED and (high := self.interval()[1]) < self.predicted:
            found.append(
                f"fits to returns predicted {rounded(self.predicted)}, above the interval (to {rounded(high)}): "
                "values are not linear in these features; finer ones, or actions held for more steps, bring them closer"
            )
        if self.status == TESTED and self.cut_short:
            found.append(
                f"policies still got better when the run ended its {self.data.n_episodes} episodes: allow it more"
            )
        return tuple(found)


def levels_of(horizon: int, fitted: int) -> NDArray[np.int64]:
    """Return for each of H levels which of the fitted ones it has: that with as many levels left, or the first."""
    return np.maximum(np.arange(horizon) - (horizon - fitted), 0)


def inverses(grams: Floats, ridge: float) -> Floats:
    """Return (ridge I + gram)^-1 of each symmetric matrix, (K, s, s)."""
    out = np.empty_like(grams)
    for one, gram in zip(out, grams, strict=True):
        if not len(gram):
            continue
        factor, failed = dpotrf(gram + ridge * np.eye(len(gram)), lower=1)
        inverse, _ = dpotri(factor, lower=1)
        if failed:  # no ridge that is larger than the rounding errors of the sums
            raise ArithmeticError(f"ridge: expected a positive definite matrix, got one that is not at {failed}")
        one[:] = np.tril(inverse) + np.tril(inverse, -1).T
    return out


def none_of(number: float) -> float | None:
    """Return a number, None for NaN."""
    return None if math.isnan(number) else float(number)
