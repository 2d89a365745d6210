"""A run that chooses its number of episodes and stops by itself (docs/adaptive.md).

The only assumption is the paper's: Q* is linear in the features of every level. The algorithm is five steps, methods of
`SelfStoppingRun` in the order of the page, and a sixth where levels share their data. Each returns True if it has no
objection to the present candidate, a policy that is greedy on frozen estimates. Otherwise it plays episodes and returns
False, and the run begins again with the first step. So a policy is returned once all agree in one pass. Their numbers
are in `stopping.tuning`, in the same order.

Data and plans are in `kernels.OptimisticPlanner`; streams, budgets and the journal in `stopping.episodes`. Values are
in units of the range of values, which `stopping.units` follows; the outcome is in points.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from dmq_fast.engine.budget import Budget
from dmq_fast.engine.learner import LOGGER
from dmq_fast.engine.ledger import Ledger, OutOfBudget
from dmq_fast.homogeneity import Groups
from dmq_fast.kernels import OptimisticPlanner, Stream
from dmq_fast.results.history import Look, Looks
from dmq_fast.samplers import Sampler
from dmq_fast.stopping.aim import Aim
from dmq_fast.stopping.bootstrap import Bootstrap
from dmq_fast.stopping.candidate import Candidate, episodes_of, returns_of, start_values
from dmq_fast.stopping.duels import Contradiction, Duels
from dmq_fast.stopping.episodes import PURPOSES, Episodes
from dmq_fast.stopping.levels import Difference, difference, split
from dmq_fast.stopping.linearity import Disagreement, disagreements
from dmq_fast.stopping.outcome import CONTRADICTION, Outcome, coarse, interval, mean_interval
from dmq_fast.stopping.tuning import TUNING, Tuning
from dmq_fast.stopping.units import Units

__all__ = ["PURPOSES", "Report", "SelfStoppingRun"]

Floats = NDArray[np.float64]

# The floor that only what was never tried reaches: after a visit the chance of a hidden outcome is below 1.
NEVER_TRIED = 1.0

# Where epsilon is a share of the span between uniform play and the best policy found: episodes of uniform play, and how
# far below the share of the span of now epsilon is set, as the span changes while a run goes on.
UNIFORM, BELOW = 30, 0.9

# Episodes whose first states a look asks for their value.
STARTS = 64

# The share of epsilon down to which upsides are explored on there.
FINER = 0.05

Report = Callable[[str, float], object]
"""Type of `progress`: called after every plan with the phase, one of `PURPOSES`, and the upside W - F at the start, in
points."""


class SelfStoppingRun:
    """One self-stopping run.

    Parameters
    ----------
    sampler : Sampler
        One that shows single trajectories.
    aim : Aim
    stream : Stream
        Key of the run.
    ledger : Ledger, optional
        With the purposes `PURPOSES`, and a phase "rollouts".
    progress : callable, optional
        A `Report`.
    tuning : Tuning, optional
    groups : sequence of int, optional
        A label of each level, (H,): levels of one label share their data. By default no two do.

    Attributes
    ----------
    aim : Aim
        In the present units.
    planner : OptimisticPlanner
        The data and the last plan.
    units : Units
        The range of values.
    uniform : float
        Mean return of uniform play, in points; NaN unless epsilon is a share.
    candidate : Candidate
        The policy that the steps judge. Another takes its place when it is known to lose.
    watched : Candidate or None
        The policy on whose path exploration looks too: the candidate, once it has episodes.
    p_min, floor : float
        Outcomes of a probability below `floor` are not looked for. It is `p_min` once a reward was seen.
    noisy : bool
        Whether a residual showed that something is random.
    upside : float
        W - F at the start, by the last plan.
    rare_transitions : float
        Z - F at the start, by the last look behind rare transitions.
    looks : Looks
        What was known over the episodes: a record for pictures, which nothing is decided by.
    """

    def __init__(
        self,
        sampler: Sampler,
        aim: Aim,
        stream: Stream,
        ledger: Ledger | None = None,
        progress: Report | None = None,
        tuning: Tuning = TUNING,
        groups: Groups | None = None,
    ) -> None:
        self.progress, self.tuning = progress, tuning
        sizes = (sampler.horizon, sampler.n_actions, sampler.dimension)
        self.planner = OptimisticPlanner(*sizes, tuning.ridge, aim.log_confidence, groups, aim.mode != "quick")
        aim = aim.repeated(repeats(self.planner.groups))
        self.ledger = Ledger(Budget(), None, PURPOSES, ("rollouts",)) if ledger is None else ledger
        self.episodes = Episodes(sampler, self.planner, stream, self.ledger)
        self.bootstrap = Bootstrap(self.planner, aim, tuning, stream)
        self.duels = Duels(self.episodes, self.bootstrap, self.plan)
        self.units = Units(sampler.rewards, self.planner, most_to_go(sampler) if self.planner.pooled else None)
        self.bootstrap.noisy_rewards = self.units.model.noise is not None
        self.contradictions, self.status = 0, "interrupted"
        self.pursue(aim.in_units_of(self.units.model.width))
        self.noisy, self.upside, self.phase = self.bootstrap.noisy_rewards, 1.0, "explore"
        self.uniform = math.nan
        self.candidate = self.newest()
        self.watched: Candidate | None = None
        self.looks = Looks()
        self.loss_quantile, self.rare_transitions = 0.0, 0.0
        self.disagreements: list[Disagreement] = []
        self.differences: list[Difference] = []
        self.level_tests = 0
        self.parted_at: int | None = None

    def learn(self) -> Outcome:
        """Run until all steps agree, a budget is used up, or returns and fits cannot be reconciled."""
        steps = (
            self.explore,
            self.settle_noise,
            self.look_behind_rare_transitions,
            self.test,
            self.ask_returns,
            self.levels_are_alike,
        )
        try:
            self.play_uniformly()
            while not (all(step() for step in steps) and self.is_fine_enough()):  # the first that objects ends the pass
                pass
            self.status = "finished"
            self.look_for_nonlinearity()
        except OutOfBudget as stop:
            self.status = stop.status
        except Contradiction:
            self.status = CONTRADICTION
            self.candidate = self.duels.best()
            self.look_for_nonlinearity()
        return self.outcome()

    # ---- Units, and epsilon as a share

    def pursue(self, aim: Aim) -> None:
        """Have this aim from now on: the same in other units, or with another epsilon."""
        self.aim = self.bootstrap.aim = aim
        self.p_min = self.floor = math.ldexp(aim.p_min, -self.contradictions)

    def follow_returns(self) -> None:
        """Follow what episodes earn with the range of values, unless it was declared and is right."""
        trusted = self.units.trusted
        self.measure()
        if trusted and not self.units.trusted:
            self.play_uniformly()
            self.measure()

    def measure(self) -> None:
        """Measure values in the range that counts now."""
        if self.units.follow(self.aim.points):
            self.pursue(self.aim.in_units_of(self.units.model.width))

    def play_uniformly(self) -> None:
        """Play uniform actions, where epsilon is a share of what is gained over them, or the range is unknown.

        The range of a single episode may be so narrow that nothing beyond it seems worth epsilon.
        """
        if self.aim.share is None and self.units.trusted:
            return
        episodes = self.episodes.play_uniformly("explore", UNIFORM)
        if self.aim.share is not None:
            self.uniform = float(self.planner.paid(episodes).sum(axis=1).mean())

    def span(self) -> float:
        """Return what the candidate is worth more than uniform play, in points; at least a 20th of what was seen."""
        low, high = self.planner.returns_seen[0]
        gained = self.units.model.value(self.candidate.predicted()) - self.uniform
        return max(gained, float(high - low) / 20)

    def is_fine_enough(self) -> bool:
        """Return whether epsilon is at most the share of the span; otherwise it is from now on."""
        if self.aim.share is None or not (most := self.aim.share * self.span()) or self.aim.points <= most:
            return True
        self.pursue(self.aim.tightened(BELOW * most))
        return False

    def plan(self, impatience: float = 0.0, share: float = 1.0) -> None:
        """Make the backward pass for F and W on all episodes so far, to explore down to a share of epsilon."""
        self.follow_returns()
        self.part_with_many_rows()
        self.upside, residual = self.planner.plan(self.floor, impatience, share * self.enough())
        self.noisy = self.noisy or residual > self.tuning.noise * self.aim.epsilon / self.planner.horizon
        if self.looks.wants(self.planner.n_episodes, self.phase):
            self.looks.note(self.look(self.upside))
        self.report(self.upside)

    def look(self, upside: float) -> Look:
        """Return what the last plan says, in points."""
        planner, points, n = self.planner, self.units.model, self.planner.n_episodes
        newest = np.arange(max(0, n - STARTS), n)
        predicted = points.value(float(start_values(planner, newest).mean())) if n else math.nan
        testing = self.phase == "test" and len(self.candidate) > 0
        mean = points.value(self.candidate.mean_return()[0]) if testing else math.nan
        return Look(n, self.phase, points.difference(upside), predicted, mean)

    def report(self, upside: float) -> None:
        """Call `progress` with an upside, which it gets in points."""
        if self.progress is not None:
            self.progress(self.phase, self.units.model.difference(upside))

    def enough(self) -> float:
        """Return the upside up to which a plan looks at outcomes that are hidden whenever their pair is met.

        Where levels share the data of a large table, that takes most of the time, so they are looked at only once a
        single one adds at most epsilon.
        """
        planner = self.planner
        passes = planner.horizon * (max(planner.n_rows) * planner.n_actions) ** 2
        return self.aim.epsilon if passes > self.tuning.large_table else 0.0

    def newest(self) -> Candidate:
        """Return the policy that is greedy on the newest estimates, without episodes."""
        return Candidate(self.planner, self.planner.theta)

    def is_known_to_lose(self, candidate: Candidate) -> bool:
        """Return whether the candidate loses so much by the newest fit that another takes its place."""
        return candidate.loss() > self.tuning.kept_loss * self.aim.epsilon

    # ---- 1. Exploration

    def explore(self) -> bool:
        """Play optimistic episodes until one unseen outcome cannot add epsilon; then choose the candidate."""
        self.phase = "explore"
        while True:
            for impatience in (self.tuning.impatience, 0.0):  # near outcomes first
                self.close_upsides(impatience)
            if (floor := self.wanted_floor()) == self.floor:
                break
            self.floor, self.watched = floor, None
        self.explore_on()
        if not len(self.candidate) or self.is_known_to_lose(self.candidate):
            self.candidate = self.newest()
        self.watched = self.candidate if len(self.candidate) else None
        return True

    def close_upsides(self, impatience: float) -> None:
        """Play until W - F <= epsilon at the start, and on every level where the watched policy goes.

        W is a fit, which can come out too low where many levels lie behind. So the states of the watched policy are
        looked at on every level, and where level k fails, episodes follow this policy before k. A policy that is known
        to lose will not be returned, so it is watched no longer.
        """
        planner, epsilon, delta = self.planner, self.aim.epsilon, self.aim.delta
        while True:
            self.plan(impatience)
            if not planner.n_episodes:
                self.episodes.play("explore", 1, planner.theta)
            elif self.upside > epsilon:
                self.episodes.play("explore", self.between_plans())
            elif self.watched is not None and self.is_known_to_lose(self.watched):
                self.watched = None
            elif self.watched is not None and (uppers := self.watched.doubts(delta)).max() > epsilon:
                self.episodes.play("explore", self.between_plans(), self.watched.theta, int(uppers.argmax()))
            else:
                return

    def between_plans(self) -> int:
        """Return how many episodes explore between two plans: more where plans take long, or change little."""
        planner, tuning = self.planner, self.tuning
        per_plan = tuning.pooled_episodes_per_plan if planner.pooled else tuning.episodes_per_plan
        return 1 + max(planner.n_rows) // tuning.rows_per_episode + planner.n_episodes // per_plan

    def wanted_floor(self) -> float:
        """Return the smallest probability of an outcome to look for: `p_min`, or less while nothing ever paid."""
        if self.planner.rewarded:
            return self.p_min
        return self.floor / 2 if self.floor > self.aim.epsilon else self.floor

    def explore_on(self) -> None:
        """Where epsilon is a share: explore what is worth less than epsilon, for as many episodes as a test takes.

        Uniform play may be so bad that any policy is within a share of the best. Whoever named no number of points gets
        a better policy than was promised, for twice the episodes at most.
        """
        if self.aim.share is None:
            return
        size = self.aim.test_size(max(1, self.duels.tests))
        while self.upside > FINER * self.aim.epsilon and self.ledger.trajectories["explore"] < size:
            self.episodes.play("explore", self.between_plans())
            self.plan(share=FINER)

    # ---- 2. Noise

    def settle_noise(self) -> bool:
        """Return whether refits to reweighted episodes see a loss of at most epsilon; otherwise they play."""
        if not (self.noisy or self.aim.imagines):
            return True
        enough = len(self.candidate) >= self.tuning.first_sample
        return self.refits_agree(self.candidate if enough else self.first_sample())

    def first_sample(self) -> Candidate:
        """Return the candidate with all episodes that took its actions throughout, and new ones if they are few."""
        theta, found = self.candidate.theta, episodes_of(self.planner, self.candidate.theta)
        new = self.episodes.play("refine", max(0, self.tuning.first_sample - len(found)), theta)
        self.plan()
        return Candidate(self.planner, theta, np.concatenate([found, new]))

    def refits_agree(self, sample: Candidate) -> bool:
        """Return whether the (1 - delta)-quantile of the losses by refits is at most epsilon; otherwise they play.

        Refits that agree are drawn and asked again: a quantile of few refits is itself random, and a run that looks
        often would stop where it comes out too low.
        """
        self.loss_quantile = 0.0
        for _ in range(self.tuning.asks):
            rng = self.bootstrap.generator()
            refits = self.bootstrap.refits(rng, sample.theta)
            losses = np.array([sample.loss(theta) for theta in refits])
            self.loss_quantile = max(self.loss_quantile, self.bootstrap.upper(losses))
            if self.loss_quantile > self.aim.epsilon:
                self.play_refits(refits, losses, rng)
                return False
        return True

    def play_refits(self, refits: list[Floats], losses: Floats, rng: np.random.Generator) -> None:
        """Play episodes of refits that see a loss: the larger it is, the more; a part is shared equally.

        The quantile falls like 1 / sqrt(episodes), which gives their number.
        """
        self.phase, tuning = "refine", self.tuning
        growth = min(tuning.growth, (self.loss_quantile / self.aim.epsilon) ** 2 - 1)
        n = max(1, math.ceil(growth * self.planner.n_episodes))
        weights = tuning.equal_part / tuning.refits + (1 - tuning.equal_part) * losses / losses.sum()
        shares = rng.multinomial(n, weights / weights.sum()).tolist()
        self.episodes.play_all("refine", list(zip(refits, shares, strict=True)))

    # ---- 3. What lies behind rare transitions

    def look_behind_rare_transitions(self) -> bool:
        """Whether Z adds little where W does; otherwise play the policy that is greedy on Z until it does.

        How often the way to something unexplored opens is known with an error: Z lets one transition on the way be as
        frequent as its visits allow, however often a run has looked (finding J).
        """
        planner, tuning, before = self.planner, self.tuning, self.planner.n_episodes
        confidence = self.aim.log_confidence + math.log(tuning.looks)
        while True:
            self.follow_returns()
            self.rare_transitions = planner.look_behind(self.floor, confidence)
            if self.rare_transitions <= tuning.margin * self.aim.epsilon:
                break
            self.phase = "explore"
            self.report(self.rare_transitions)
            self.episodes.play("explore", 1 + planner.n_episodes // tuning.episodes_per_episode)
        self.plan()
        return planner.n_episodes == before

    # ---- 4. The test

    def test(self) -> bool:
        """Go on with the candidate's test on fresh episodes; whether upside and loss are at most epsilon on them.

        The candidate was fixed before these episodes, so it does not matter what is played between them. A test ends
        early by a known loss only: where there is an upside, to test is cheaper than to explore.
        """
        candidate, before = self.candidate, self.planner.n_episodes
        if not len(candidate):
            if not self.levels_are_alike():
                return False
            self.begin_test()
        size = self.duels.test_size()
        self.watched, self.phase = candidate, "test"
        while len(candidate) < size:
            piece = min(max(self.tuning.first_piece, len(candidate)), size - len(candidate))
            candidate.add(self.episodes.play("test", piece, candidate.theta))
            self.plan()
            if self.is_known_to_lose(candidate):
                return False
        if candidate.doubts(self.aim.delta).max() > self.aim.epsilon or self.untried_may_pay(candidate):
            return False
        if self.planner.n_episodes == before or not (self.noisy or self.aim.imagines):
            return True
        # With noise, the estimates of a candidate may have been luck, which its test has shown.
        lucky = self.bootstrap.noisy_rewards and not self.look_behind_rare_transitions()
        return not lucky and self.refits_agree(candidate)

    def untried_may_pay(self, candidate: Candidate) -> bool:
        """Return whether what was never tried may pay more than a candidate whose returns were lucky; then it is tried.

        Upsides compare W with F, an estimate of the candidate's value. What was tried has less to hide the more it was
        tried, so both at once are unlikely; what was never tried may pay all that can still be earned.
        """
        planner, tuning, epsilon = self.planner, self.tuning, self.aim.epsilon
        if not self.noisy or self.bootstrap.noisy_rewards:  # where W and Z have the luck of noise
            return False
        planner.plan(NEVER_TRIED)
        upsides = candidate.upsides()
        doubts = np.where(upsides > tuning.untried * epsilon, upsides + candidate.luck(self.aim.delta), 0.0)
        disputed = bool(doubts.max() > epsilon)
        if disputed:
            self.phase = "explore"
            self.episodes.play("explore", 1, candidate.theta, int(doubts.argmax()))
        self.plan()
        return disputed

    def begin_test(self) -> None:
        """Count a test of the candidate; after too many, let returns choose among those tested, and give up."""
        if self.duels.tests >= self.tuning.most_tests:
            self.duels.winner(self.duels.best())
            raise Contradiction
        if not self.duels.tests and self.planner.rewarded:
            low, high = self.planner.returns_seen[0]
            if 0.0 < high - low <= self.aim.points and self.aim.share is None:
                LOGGER.warning("%s", coarse(self.aim.points, float(low), float(high)))
        self.duels.begin_test(self.candidate)

    # ---- 5. A second opinion

    def ask_returns(self) -> bool:
        """Return whether returns confirm the candidate. A policy that beats it takes its place and is explored."""
        winner = self.duels.winner(self.candidate)
        if winner is self.candidate:
            return self.returns_are_as_predicted()
        if winner.upper_upsides(self.aim.delta).max() <= self.aim.epsilon:
            self.candidate = winner
            return True
        self.candidate, self.watched = self.newest(), winner
        return False

    def returns_are_as_predicted(self) -> bool:
        """Return whether predicted value and mean return differ by at most epsilon and chance; else halve p_min."""
        mean, error = self.candidate.mean_return()
        if abs(self.candidate.predicted() - mean) <= self.aim.epsilon + self.tuning.contradiction_errors * error:
            return True
        self.contradictions += 1
        self.pursue(self.aim)
        self.candidate, self.watched = self.newest(), None
        if self.p_min < self.tuning.least_share * self.aim.epsilon / self.aim.repeats:
            raise Contradiction
        return False

    # ---- Are levels the same?

    def part_with_many_rows(self) -> None:
        """Give every level data of its own if levels share data and have too many rows for values of all at each."""
        planner = self.planner
        if planner.pooled and planner.horizon * max(planner.n_rows) * planner.n_actions > self.tuning.most_values:
            self.parted_at = planner.n_episodes
            self.regroup(tuple(range(planner.horizon)))

    def regroup(self, groups: Groups) -> None:
        """Have levels of these labels share their data from now on, with the same episodes."""
        self.planner.regroup(groups)
        self.episodes.regrouped()
        self.pursue(self.aim.repeated(repeats(groups)))

    def levels_are_alike(self) -> bool:
        """Return whether levels that share their data look alike; otherwise those that differ no longer share them.

        Asked before each test of a candidate and at the end. Where levels are told apart, the run goes on with the same
        episodes: a step keeps its level.
        """
        planner, known = self.planner, len(self.differences)
        while planner.pooled:
            self.plan()
            found = difference(planner, self.tuning, self.level_tests)
            self.level_tests += 1
            if found is None:
                break
            self.differences.append(found)
            self.regroup(split(planner.groups, found))
            self.candidate, self.watched = self.newest(), None
        return len(self.differences) == known

    # ---- Is Q* linear?

    def look_for_nonlinearity(self) -> None:
        """Compare the candidate's returns with the fit, row by row, where something is random: for a warning only."""
        if self.noisy:
            rng = self.bootstrap.generator()
            self.disagreements = disagreements(self.planner, self.candidate.episodes, self.aim, self.tuning, rng)

    # ---- The result

    def outcome(self) -> Outcome:
        """Return what was learned so far: the candidate that passed, the best by returns, or the newest estimates."""
        planner, passed = self.planner, self.status == "finished"
        upside, _ = planner.plan(self.floor)
        returns = returns_of(planner, np.arange(planner.n_episodes))
        unknown, points = np.full(planner.horizon, math.nan), self.units.model
        if passed:
            chosen = self.candidate
        else:
            chosen = self.candidate if self.status == CONTRADICTION else self.newest()
        size, mean = (len(chosen), chosen.mean_return()[0]) if passed else (0, math.nan)
        if points.noise is None:
            assert points.bounds is not None
            limits = map(points.value, interval(mean, size, self.aim.delta))
            low, high = np.clip(list(limits), *points.bounds[0]).tolist()
        else:
            low, high = mean_interval(planner.paid(chosen.episodes[:size]).sum(axis=1), self.aim.delta)
        return Outcome(
            theta=chosen.theta,
            status=self.status,
            epsilon=self.aim.points,
            share=self.aim.share,
            uniform=self.uniform,
            mode=self.aim.mode,
            counts=dict(self.ledger.trajectories),
            tests_made=self.duels.tests,
            test_size=size,
            mean_return=points.value(mean),
            interval=(low, high),
            upsides=points.width * chosen.upsides() if passed else unknown,
            largest=chosen.leverages().max(axis=0) if passed else unknown,
            loss_quantile=points.difference(self.loss_quantile),
            rare_transitions=points.difference(self.rare_transitions),
            p_min=self.floor,
            rewards=self.units.describe(),
            rewarded=planner.rewarded,
            alike=planner.n_episodes > 1 and bool(np.ptp(returns) == 0.0),
            contradictions=self.contradictions,
            duels_won=self.duels.won,
            disagreements=tuple(one.times(points.width) for one in self.disagreements),
            doubts=tuple(self.units.warnings()),
            groups=planner.groups,
            differences=tuple(self.differences),
            parted_at=self.parted_at,
            looks=self.looks.ended(self.look(upside)),
            units=np.tile([points.low, points.width, points.high], (planner.horizon, 1)),
        )


def repeats(groups: Groups) -> int:
    """Return the size of the largest group: so often an episode can meet one pair."""
    return max(map(groups.count, set(groups)))


def most_to_go(sampler: Sampler) -> Floats | None:
    """Return what can still be earned from each level on, (H,), if the environment knows, as tables do."""
    most: Floats | None = getattr(sampler.unwrapped().env, "most_to_go", None)
    return most
