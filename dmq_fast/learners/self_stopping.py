"""`SelfStopping`: a run that is given an accuracy, chooses its number of trajectories and stops by itself."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from dmq_fast._support.checks import one_of
from dmq_fast.engine.learner import Learner, Seed
from dmq_fast.engine.ledger import Ledger
from dmq_fast.engine.session import Resources, Session
from dmq_fast.environments.sources import as_environment
from dmq_fast.environments.views import Features
from dmq_fast.environments.wrapped import INTERPOLATION
from dmq_fast.homogeneity import AUTO, Groups, Homogeneous, groups_of
from dmq_fast.policy import Policy
from dmq_fast.results.history import Looks
from dmq_fast.results.result import SelfStoppingResult
from dmq_fast.rewards import ValueRange
from dmq_fast.samplers import Sampler, check_shown
from dmq_fast.self_stopping import PURPOSES, Report, SelfStoppingRun, repeats
from dmq_fast.stopping.aim import MODES, TESTED, Aim
from dmq_fast.stopping.tuning import TUNING, Tuning
from dmq_fast.tested import TestedRun

__all__ = ["SelfStopping", "learn"]

VERSION = 2
"""Version of the algorithm's decisions; a journal of another one is not resumed."""


class SelfStopping(Learner[SelfStoppingResult]):
    """A policy within epsilon of the best with probability 1 - delta, if Q* is linear in the features.

    The run chooses its number of trajectories, tests its policy on fresh ones, and stops by itself (docs/adaptive.md).

    Parameters
    ----------
    env : FiniteMDP, CompiledEnv, BatchEnvironment or Sampler, or what stands for one
        Source of the trajectories: also what `environments.as_environment` takes, of which `samplers.as_sampler` makes
        one. The sampler must show single trajectories.
    epsilon : float or str, optional
        Largest loss of the policy, in points: the units of the rewards. Or a text such as "5%": a share of what the
        best policy that the run finds gains over uniform play. Default: 0.05 where the range of values is (0, 1), else
        "5%".
    delta : float, default 0.05
        Largest probability with which the policy may lose more, in (0, 1).
    mode : {"auto", "strict", "quick", "many", "tested"}, default "auto"
        "quick" needs fewer trajectories, as it ignores outcomes that have a probability below 1/2 in some state and
        action, or 1/10 where levels share their data; its promise does not cover such outcomes. "many" needs up to four
        times as many as "strict", and covers many small outcomes on one path, which the promise of the other modes
        leaves out. "tested" is for features in which Q* is only nearly linear, such as interpolation of real numbers.
        It promises an interval for the value of the returned policy, from fresh trajectories and without an assumption,
        and nothing about other policies (docs/control.md); levels are the same to it. "auto" is "tested" where the
        environment has such features (its attribute `linear` is False), else "strict".
    p_min : float, optional
        Smallest probability of an outcome, in some state and action, that the run looks for, in (0, 1]. By default
        epsilon over the width of the value range, over the number of levels that share their data; and 1/2 or 1/10 in
        the quick mode.
    value_range : pair of float, array_like of shape (H, 2), or "seen", optional
        Least and largest sum of rewards that can be expected from a level on; one pair, or one for each level. A tight
        upper end saves the most episodes. Default: what the environment declares. "seen", and the default where nothing
        is declared: the range of the returns seen, widened above by half; the promise then holds within it.
    noise : float, optional
        Where rewards are means plus noise of any size: a guess of its standard deviation, in points. Default: what the
        environment declares; without it, what a trajectory earns from a level on lies in the value range.
    homogeneous : "auto", bool or sequence of int, default "auto"
        Whether transitions, rewards and features are the same at every level. Then a step at one level is data for all,
        which saves most trajectories (docs/homogeneous.md). Or H labels: levels of one label are the same. "auto": what
        the environment declares; tables know. Visits to one pair at several levels are compared during the run, and
        levels that differ are told apart. What no test can see is a difference at levels where nothing was visited: a
        room that was known from early visits and pays from some level on. Who declares an environment homogeneous
        declares that away.
    tuning : Tuning, optional
        The other numbers of a run. Those with the role PROMISE were chosen so that runs keep their promise.
    rng : None, int, SeedSequence, Generator or Stream, optional
        Source of the run's 128-bit key.

    Attributes
    ----------
    sampler : Sampler
    stream : Stream
        The key, at its first call.
    aim : Aim
        epsilon, delta, mode and p_min, checked.
    groups : tuple of int
        A label for each level; levels of one label share their data.
    tuning : Tuning

    Raises
    ------
    TypeError, ValueError
        If an argument is of a wrong type or out of range; the message names it.

    Examples
    --------
    >>> import dmq_fast as dmq
    >>> env = dmq.environments.combination_lock(horizon=30, n_actions=4, rng=0)
    >>> result = dmq.SelfStopping(env, epsilon=0.05, delta=0.05, rng=1).learn()
    >>> result.status, env.value(result.policy), result.n_trajectories < 1000
    ('finished', 0.7, True)
    """

    def __init__(
        self,
        env: Any,
        epsilon: float | str | None = None,
        delta: float = 0.05,
        *,
        mode: str = AUTO,
        p_min: float | None = None,
        value_range: ValueRange = None,
        noise: float | None = None,
        homogeneous: Homogeneous = AUTO,
        tuning: Tuning | None = None,
        rng: Seed = None,
    ) -> None:
        super().__init__(env, rng, value_range, noise)
        self.groups = groups_of(self.sampler, homogeneous)
        rewards = self.sampler.rewards
        if epsilon is None:
            epsilon = 0.05 if rewards.known and (rewards.low, rewards.high) == (0.0, 1.0) else "5%"
        width = rewards.width if rewards.known else None
        if one_of("mode", mode, (AUTO, *MODES)) == AUTO:
            mode = "strict" if is_linear(self.sampler) else TESTED
        self.aim = Aim.of(epsilon, delta, mode=mode, p_min=p_min, width=width).repeated(repeats(self.groups))
        self.tuning = as_tuning(tuning)
        check_shown(self.sampler, "a self-stopping run")

    def session(self, resources: Resources) -> Session[SelfStoppingResult]:
        """Open the journal, and return a run that has not begun."""
        # A run of 0.2.0, whose header has no version of the algorithm, would go on differently.
        changes = self.tuning.changes()
        header = {"algorithm_version": VERSION, "parameters": self.aim.numbers()}
        header |= {"tuning": changes} if changes else {}
        header |= {"groups": list(self.groups)} if self.aim.repeats > 1 else {}
        tested = self.aim.mode == TESTED
        journal = resources.open_journal(TESTED if tested else "adaptive", header)
        ledger = Ledger(resources.budget, journal, PURPOSES, ("rollouts",))
        if tested:
            return TestedSession(resources, ledger, self.aim)
        return StoppingSession(resources, ledger, self.aim, self.tuning, self.groups)

    def __repr__(self) -> str:
        aim, tuned = self.aim, "" if self.tuning == TUNING else f", tuning={self.tuning!r}"
        return (
            f"SelfStopping({self.sampler!r}, epsilon={aim.points:g}, delta={aim.delta:g}, mode={aim.mode!r}, "
            f"p_min={aim.p_min:g}{tuned})"
        )


class PlannedSession(Session[SelfStoppingResult]):
    """One run that makes plans, and tells of them."""

    @property
    def progress(self) -> Report | None:
        """What the run calls after every plan, if somebody wants to know."""
        return self.planned if callable(self.resources.progress) else None

    def planned(self, phase: str, upside: float) -> None:
        """Call `progress`."""
        self.report(0, 0, phase, upside)


class StoppingSession(PlannedSession):
    """One self-stopping run."""

    def __init__(self, resources: Resources, ledger: Ledger, aim: Aim, tuning: Tuning, groups: Groups) -> None:
        super().__init__(resources, ledger)
        self.algorithm = SelfStoppingRun(self.sampler, aim, resources.stream, ledger, self.progress, tuning, groups)

    def run(self) -> None:
        """Run until a policy has passed its test, or a budget is used up."""
        self.status = self.algorithm.learn().status

    def result(self) -> SelfStoppingResult:
        """Return what was learned so far."""
        outcome = replace(self.algorithm.outcome(), status=self.status)
        return SelfStoppingResult(
            policy=Policy.greedy(outcome.theta),
            theta=outcome.theta,
            units=outcome.units,
            parameters=self.algorithm.aim.numbers() | self.algorithm.tuning.changes(),
            counts={"trajectories": outcome.counts},
            stopping=outcome.describe(),
            looks=outcome.looks,
            **self.common(outcome.warnings),
        )


class TestedSession(PlannedSession):
    """One run by returns."""

    def __init__(self, resources: Resources, ledger: Ledger, aim: Aim) -> None:
        super().__init__(resources, ledger)
        self.algorithm = TestedRun(self.sampler, aim, resources.stream, ledger, self.progress)

    def run(self) -> None:
        """Run until a policy was tested, or a budget is used up."""
        self.status = self.algorithm.learn()

    def result(self) -> SelfStoppingResult:
        """Return what was learned so far."""
        algorithm, best = self.algorithm, self.algorithm.best
        return SelfStoppingResult(
            policy=Policy.greedy(best.theta),
            theta=best.theta,
            units=np.stack([best.low, np.ones_like(best.low), best.top], axis=1),
            parameters=algorithm.aim.numbers(),
            counts={"trajectories": dict(self.ledger.trajectories)},
            stopping=algorithm.outcome(),
            looks=Looks(algorithm.looks),
            **self.common(algorithm.warnings()),
        )


def is_linear(sampler: Sampler) -> bool:
    """Return whether Q* is taken to be linear in the features, unless the environment says no."""
    return bool(getattr(getattr(sampler.unwrapped(), "env", None), "linear", True))


def as_tuning(value: object) -> Tuning:
    """Return `value` if it is a `Tuning`, the default one for None."""
    if value is None:
        return TUNING
    if not isinstance(value, Tuning):
        raise TypeError(f"tuning: expected a Tuning, got {value!r}")
    return value


def learn(
    env: Any,
    epsilon: float | str | None = None,
    delta: float = 0.05,
    *,
    horizon: int | None = None,
    features: str | Features | None = None,
    history: str | None = None,
    wrapper: str | Callable[[Any], Any] | None = None,
    hold: int | None = None,
    mode: str = AUTO,
    value_range: ValueRange = None,
    noise: float | None = None,
    homogeneous: Homogeneous = AUTO,
    rng: Seed = None,
    **how: Any,
) -> SelfStoppingResult:
    """Return a policy within epsilon of the best with probability 1 - delta, if Q* is linear in the features.

    Parameters
    ----------
    env : FiniteMDP, CompiledEnv, BatchEnvironment, Sampler, or what stands for one
        Also an environment of Gymnasium's or of dm_env's, an object with `reset` and `step`, an id such as
        ``"CliffWalking-v1"`` or ``"bsuite:deep_sea/10"``, a class or a function: what `environments.as_environment`
        takes.
    epsilon, delta, mode, value_range, noise, homogeneous, rng
        As those of `SelfStopping`.
    horizon, features, history, wrapper, hold : optional
        Number of levels H, where the environment does not say it; and how one that is stepped is seen. As those of
        `environments.as_environment`. Real numbers are interpolated on grids by default, and the run is one by returns
        (the mode "tested").
    **how
        Arguments of `SelfStopping.learn`: budgets, workers, a journal, progress.

    Returns
    -------
    SelfStoppingResult

    Raises
    ------
    TypeError, ValueError
        If an argument is of a wrong type or out of range; the message names it.

    Examples
    --------
    >>> import dmq_fast as dmq
    >>> env = dmq.environments.combination_lock(horizon=100, n_actions=4, rng=0)
    >>> result = dmq.learn(env, epsilon=0.05, delta=0.05, rng=1)
    >>> result.status, env.value(result.policy), env.optimal_value
    ('finished', 0.7, 0.7)

    Costs, with epsilon in points:

    >>> result = dmq.learn("CliffWalking-v1", 0.5, horizon=20, rng=0)
    >>> result.status, dmq.environments.as_environment("CliffWalking-v1", 20).value(result.policy)
    ('finished', -13.0)
    """
    env = as_environment(
        env, horizon, features=features, history=history, wrapper=wrapper, hold=hold, box=INTERPOLATION
    )
    learner = SelfStopping(
        env, epsilon, delta, mode=mode, value_range=value_range, noise=noise, homogeneous=homogeneous, rng=rng
    )
    return learner.learn(**how)
