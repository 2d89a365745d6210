"""What the variants of `DMQ` need, and one call of `learn` of each: Algorithms 1 to 3, and the self-stopping run."""

from __future__ import annotations

import math
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dmq_fast._support import threads
from dmq_fast._support.checks import flag
from dmq_fast._support.words import level_names, number_of
from dmq_fast.covers.doubts import Verdict, doubts, exactly, within_shrinkage
from dmq_fast.covers.draws import Draws
from dmq_fast.covers.initial import initial_policies
from dmq_fast.covers.memory import Memory
from dmq_fast.covers.options import VARIANTS, Options, RunParameters
from dmq_fast.covers.oracle import Oracle, Regression
from dmq_fast.dmq import DifferenceMaximization
from dmq_fast.engine.budget import Budget
from dmq_fast.engine.fingerprint import fingerprint, policy_fingerprint
from dmq_fast.engine.journal import Journal
from dmq_fast.engine.ledger import Ledger, OutOfBudget
from dmq_fast.function_class import FunctionClass, LinearClass, Solver
from dmq_fast.kernels import Greedy, Stream, Uniform
from dmq_fast.moments import SparseMoment
from dmq_fast.policy import Policy
from dmq_fast.results.history import History
from dmq_fast.results.result import Result
from dmq_fast.rules import ExactGreedy
from dmq_fast.samplers import ParallelSampler, Sampler, check_shown
from dmq_fast.samplers.parallel import spread
from dmq_fast.self_stopping import PURPOSES, SelfStoppingRun
from dmq_fast.stopping.aim import Aim

__all__ = ["Adaptive", "MonteCarlo", "Progress", "Resources", "Session"]


class Progress(NamedTuple):
    """Argument of `progress`, called whenever Algorithm 2 has finished a level, or the adaptive variant has planned.

    Attributes
    ----------
    level : int
        The level.
    levels_learned : int
        Runs of Algorithm 2 so far: a level that is learned again counts again.
    n_trajectories : int
        Trajectories drawn so far, for all purposes.
    n_policies : int
        Policies added to the covers so far.
    seconds : float
        Time since the run began, that before it was resumed included.
    phase : str
        Of the adaptive variant, for which the numbers of levels and policies are 0: "explore", "refine" or "test".
    gap : float
        Of the adaptive variant: how much one outcome that no episode showed could add to the value at the start.
    """

    level: int
    levels_learned: int
    n_trajectories: int
    n_policies: int
    seconds: float
    phase: str = ""
    gap: float = math.nan

    def text(self, horizon: int) -> str:
        """Return the progress of a run with this horizon on one line."""
        if self.phase:
            return (
                f"{self.phase}: {number_of(self.n_trajectories, 'trajectory')}, {self.gap:.3g} may still be missed, "
                f"{self.seconds:.1f} s"
            )
        return (
            f"learned level {self.level} of {horizon}, {number_of(self.n_trajectories, 'trajectory')}, "
            f"{number_of(self.n_policies, 'policy')}, {self.seconds:.1f} s"
        )


@dataclass(frozen=True)
class Resources:
    """What runs of all variants share: the trajectories, the key, the limits, and whom to report to."""

    variant: str
    sampler: Sampler
    stream: Stream
    budget: Budget
    workers: int | None
    executor: Executor | Callable[[], Executor] | None
    progress: Callable[[Progress], object] | None

    def open_journal(self, path: Path | None, settings: dict[str, Any]) -> Journal | None:
        """Open the journal of a run with these settings, if it is to have one."""
        if path is None:
            return None
        header = {
            "variant": self.variant,
            **settings,
            "key": [f"{word:#018x}" for word in self.stream.key],
            "environment": fingerprint(self.sampler),
            "budget": asdict(self.budget),
        }
        return Journal(path, header)


class Session(ABC):
    """One call of `learn`: an algorithm, what surrounds it, and the result.

    Parameters
    ----------
    resources : Resources
    ledger : Ledger
        Its journal is open.
    """

    def __init__(self, resources: Resources, ledger: Ledger) -> None:
        self.resources, self.ledger = resources, ledger
        self.sampler = spread(resources.sampler, resources.workers, resources.executor)
        self.status = "interrupted"
        self.ended: float | None = None

    @abstractmethod
    def run(self) -> None:
        """Run the algorithm until it ends or a budget is used up."""

    @abstractmethod
    def result(self) -> Result:
        """Return what was learned."""

    def end(self) -> None:
        """Stop the clock, close the journal and shut down the workers of the run."""
        self.ended = time.perf_counter()
        self.ledger.close(self.status == "finished")
        if self.sampler is not self.resources.sampler and isinstance(self.sampler, ParallelSampler):
            self.sampler.close()

    def report(self, level: int, levels_learned: int, phase: str = "", gap: float = math.nan) -> None:
        """Call `progress`."""
        if self.resources.progress is not None:
            ledger = self.ledger
            seconds = time.perf_counter() - ledger.began
            self.resources.progress(
                Progress(level, levels_learned, ledger.n_trajectories, ledger.n_policies, seconds, phase, gap)
            )

    def seconds(self) -> dict[str, float]:
        """Return the wall-clock time by phase, the rest, and the total."""
        total = (time.perf_counter() if self.ended is None else self.ended) - self.ledger.began
        return self.ledger.seconds | {"other": total - sum(self.ledger.seconds.values()), "total": total}

    def journal_failure(self) -> tuple[str, ...]:
        """Return what went wrong with the journal: its records that were lost, and why it could not be written."""
        journal = self.ledger.journal
        return () if journal is None else tuple(filter(None, (journal.damage, journal.failure)))


# ---- Algorithms 1 to 3


class MonteCarlo:
    """The settings of the variants "paper", "sound" and "frugal"; see `DMQ` for the arguments and errors."""

    def __init__(
        self,
        variant: str,
        sampler: Sampler,
        stream: Stream,
        constants: dict[str, Any],
        choices: dict[str, Any],
        initial: str | Policy | Sequence[int] | Sequence[Sequence[int]] | None,
        function_class: FunctionClass | None,
    ) -> None:
        self.arithmetic, self.dimension, self.n_actions = sampler.arithmetic, sampler.dimension, sampler.n_actions
        in_float64 = self.arithmetic.is_float64
        self.function_class = as_class(function_class)
        self.parameters = RunParameters.of(**constants, function_class=self.function_class, in_float64=in_float64)
        initial = VARIANTS[variant].initial if initial is None else initial
        name, self.initial = initial_policies(initial, sampler, stream, exact=not in_float64)
        self.options = Options.of(variant, in_float64=in_float64, initial=name, **choices)
        self.solver()  # raises an error if the class does not fit

    def solver(self) -> Solver:
        """Return a new solver of the function class, with the parameters of this run."""
        return self.arithmetic.solver(
            self.function_class,
            self.dimension,
            ridge=self.parameters.ridge,
            eps_s=self.parameters.eps_s,
            eps_t=self.parameters.eps_t,
            eps_r=self.parameters.eps_r,
            oracle=self.options.oracle,
        )

    def warnings(self) -> Iterator[str]:
        """Yield a warning for each known way in which these parameters fail (docs/findings.md, A and G)."""
        ratio, n_actions = self.parameters.ratio, self.n_actions
        if ratio <= 1.0:
            yield f"R = eps_t / eps_s = {ratio:g} <= 1: the oracle can return True on what is covered already"
        if not self.function_class.is_cone:
            return  # What follows scales functions up until they reach a threshold.
        if ratio * self.parameters.eps_r > 0.2:
            yield f"R eps_r = {ratio * self.parameters.eps_r:g} > 0.2: new directions of small mass stay hidden"
        if any(isinstance(rule, Uniform) for policy in self.initial for rule in policy.rules) and ratio >= n_actions:
            yield f"uniform initial policy with R = {ratio:g} >= K = {n_actions}: a shift by one action goes unseen"

    def penalty(self) -> NDArray[np.float64] | float | None:
        """Return what the regression adds to second moments, a matrix (d, d) or a multiple of the identity.

        None for classes that are not linear.
        """
        if not isinstance(self.function_class, LinearClass):
            return None
        penalty = self.function_class.penalty
        return float(self.parameters.ridge) if penalty is None else self.parameters.ridge * penalty

    def session(self, resources: Resources, journal: Path | None) -> MonteCarloSession:
        """Open the journal, and return a run that has not begun."""
        header = {
            "options": asdict(self.options),
            "parameters": asdict(self.parameters),
            "function_class": self.function_class.describe(),
            "initial": ",".join(map(policy_fingerprint, self.initial)),
        }
        ledger = Ledger(resources.budget, resources.open_journal(journal, header))
        return MonteCarloSession(resources, ledger, self)


class MonteCarloSession(Session):
    """One run of Algorithm 1."""

    def __init__(self, resources: Resources, ledger: Ledger, settings: MonteCarlo) -> None:
        super().__init__(resources, ledger)
        self.settings = settings
        solver = settings.solver()
        self.oracle = Oracle(solver, ledger, len(settings.initial))
        self.regression = Regression(solver, ledger, self.sampler.dimension)
        memory = Memory(actions=resources.sampler.actions)
        draws = Draws(
            self.sampler,
            settings.parameters.n_samples,
            resources.stream,
            settings.options,
            memory,
            ledger,
            settings.arithmetic,
        )
        self.algorithm = DifferenceMaximization(
            settings.initial, settings.options, settings.arithmetic, draws, self.oracle, self.regression, self.learned
        )
        self.algorithm_2_runs = 0

    def run(self) -> None:
        """Run Algorithm 1 until it ends or a budget is used up."""
        # Algorithms 2 and 3 nest at most H deep, four frames a level. The limit is never lowered: threads share it.
        sys.setrecursionlimit(max(sys.getrecursionlimit(), 4 * self.sampler.horizon + 1000))
        if self.settings.arithmetic.is_float64 and self.sampler.dimension > threads.LARGEST_WITHOUT_BLAS:
            threads.log_once()
        try:
            self.algorithm.algorithm_1()
            self.status = "finished"
        except OutOfBudget as stop:
            self.status = stop.status

    def learned(self, level: int) -> None:
        """Count a finished run of Algorithm 2, and call `progress`."""
        self.algorithm_2_runs += 1
        self.report(level, self.algorithm_2_runs)

    def result(self) -> Result:
        """Return what was learned: greedy where a level was learned, the initial policy's rule where not."""
        settings, ledger, algorithm = self.settings, self.ledger, self.algorithm
        by_level = zip(algorithm.learned, algorithm.greedy.rules, settings.initial[0].rules, strict=True)
        return Result(
            policy=Policy([greedy if done else initial for done, greedy, initial in by_level]),
            theta=np.array([rule.theta for rule in algorithm.greedy.rules if isinstance(rule, Greedy | ExactGreedy)]),
            cover=tuple(tuple(policies) for policies in algorithm.cover),
            history=self.oracle.history.freeze(),
            status=self.status,
            variant=self.resources.variant,
            options=asdict(settings.options),
            parameters=asdict(settings.parameters) | {"ratio": settings.parameters.ratio},
            function_class=settings.function_class.describe(),
            counts={
                "trajectories": dict(ledger.trajectories),
                "oracle_calls": self.oracle.history.n_calls,
                "trues": self.oracle.n_trues,
                "algorithm_2_runs": self.algorithm_2_runs,
                "sampler_calls": ledger.calls,
            },
            seconds=self.seconds(),
            key=self.resources.stream.key,
            warnings=tuple(self.warnings()),
        )

    def warnings(self) -> Iterator[str]:
        """Yield the warnings about the parameters, then those about the run itself."""
        algorithm = self.algorithm
        yield from self.settings.warnings()
        unseen = [h for h, done in enumerate(algorithm.learned) if done and not algorithm.moments[h].any()]
        if self.ledger.n_policies == 0 and unseen:
            yield f"no policy was ever added, although every state seen at {level_names(unseen)} had features 0"
        if any(algorithm.learned) and not self.regression.saw_reward:
            yield "no reward was ever seen: the returned policy is arbitrary"
        elif self.resources.sampler.n_actions > 1:
            yield from doubts(self.verdicts())
        if self.oracle.n_marginal:
            calls = self.oracle.history.n_calls
            yield f"answers of the oracle that were too close to call: {self.oracle.n_marginal:,} of {calls:,}"
        yield from self.journal_failure()

    def verdicts(self) -> list[Verdict | None]:
        """Return whether the estimates of each level tell its actions apart; None where it was not learned."""
        algorithm, penalty = self.algorithm, self.settings.penalty()

        def verdict(h: int) -> Verdict | None:
            rule = algorithm.greedy.rules[h]
            if not algorithm.learned[h]:
                return None
            if isinstance(rule, ExactGreedy):
                return exactly(np.array(rule.exact))
            assert isinstance(rule, Greedy)
            if penalty is None:
                return exactly(rule.theta)
            theta, moment, strength = rule.theta, algorithm.moments[h], penalty
            if isinstance(moment, SparseMoment):  # where theta and the states are 0 there is nothing to tell
                columns = np.union1d(moment.support, np.flatnonzero(theta.any(axis=0)))
                theta, moment = theta[:, columns], moment.on(columns)
                strength = penalty if isinstance(penalty, float) else penalty[np.ix_(columns, columns)]
            return within_shrinkage(theta, moment / len(algorithm.cover[h]), strength)

        return [verdict(h) for h in range(algorithm.horizon)]


# ---- The self-stopping run


class Adaptive:
    """The settings of the variant "adaptive": its aim."""

    def __init__(self, sampler: Sampler, aim: dict[str, Any]) -> None:
        given = {name: value for name, value in aim.items() if value is not None}
        if "strict" in given:
            given["mode"] = "strict" if flag("strict", given.pop("strict")) else "quick"
        self.aim = Aim.of(**given)
        check_shown(sampler, "the variant 'adaptive'")

    def warnings(self) -> Iterator[str]:
        """Yield nothing: every aim is allowed."""
        return iter(())

    def session(self, resources: Resources, journal: Path | None) -> AdaptiveSession:
        """Open the journal, and return a run that has not begun."""
        opened = resources.open_journal(journal, {"parameters": self.aim.numbers()})
        return AdaptiveSession(resources, Ledger(resources.budget, opened, PURPOSES, ("rollouts",)), self.aim)


class AdaptiveSession(Session):
    """One self-stopping run."""

    def __init__(self, resources: Resources, ledger: Ledger, aim: Aim) -> None:
        super().__init__(resources, ledger)
        progress = None if resources.progress is None else self.planned
        self.algorithm = SelfStoppingRun(self.sampler, aim, resources.stream, ledger, progress)

    def run(self) -> None:
        """Run until a policy has passed its test, or a budget is used up."""
        self.status = self.algorithm.learn().status

    def planned(self, phase: str, upside: float) -> None:
        """Call `progress`."""
        self.report(0, 0, phase, upside)

    def result(self) -> Result:
        """Return what was learned."""
        outcome = self.algorithm.outcome()
        return Result(
            policy=Policy.greedy(outcome.theta),
            theta=outcome.theta,
            cover=((),) * self.sampler.horizon,
            history=History().freeze(),
            status=outcome.status,
            variant=self.resources.variant,
            options={},
            parameters=self.algorithm.aim.numbers(),
            function_class=LinearClass().describe(),
            counts={"trajectories": outcome.counts},
            seconds=self.seconds(),
            key=self.resources.stream.key,
            warnings=outcome.warnings + self.journal_failure(),
            stopping=outcome.describe(),
        )


def as_class(value: object) -> FunctionClass:
    """Return `value` if it is a function class, linear functions for None."""
    if value is None:
        return LinearClass()
    if not isinstance(value, FunctionClass) or isinstance(value, type):
        raise TypeError(f"function_class: expected a FunctionClass such as LinearClass(), got {value!r}")
    return value
