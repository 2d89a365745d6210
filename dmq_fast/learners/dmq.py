"""`DMQ`: the settings of Algorithms 1 to 3, and a run of them."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor
from dataclasses import asdict, replace
from decimal import Decimal
from typing import Any

import numpy as np

from dmq_fast._support import threads
from dmq_fast._support.words import level_names
from dmq_fast.covers.doubts import Verdict, doubts, exactly, within_shrinkage
from dmq_fast.covers.draws import Draws
from dmq_fast.covers.initial import initial_policies
from dmq_fast.covers.memory import Memory
from dmq_fast.covers.options import Options, RunParameters, noisy_samples
from dmq_fast.covers.oracle import Oracle, Regression
from dmq_fast.dmq import DifferenceMaximization
from dmq_fast.engine.fingerprint import policy_fingerprint
from dmq_fast.engine.learner import Learner, Seed
from dmq_fast.engine.ledger import Ledger, OutOfBudget
from dmq_fast.engine.session import Progress, Resources, Session
from dmq_fast.function_class import FunctionClass, LinearClass, Solver
from dmq_fast.kernels import Greedy, Stream, Uniform
from dmq_fast.policy import Policy
from dmq_fast.results.result import DMQResult
from dmq_fast.rewards import ValueRange
from dmq_fast.rules import ExactGreedy

__all__ = ["DMQ"]


class DMQ(Learner[DMQResult]):
    """Difference Maximization Q-learning, Algorithms 1 to 3 of the paper, with N and R set by hand.

    A run that comes to its end promises nothing about its policy; `SelfStopping` does.

    Parameters
    ----------
    env : FiniteMDP, CompiledEnv, BatchEnvironment or Sampler, or what stands for one
        Source of the trajectories: also what `environments.as_environment` takes, of which `samplers.as_sampler` makes
        one.
    n_samples : int, default 100
        N, the number of trajectories for each policy, >= 1 and below 2^63. An `ExactSampler` in extended precision
        takes any integer >= 1. Where rewards are noisy and their range is known, 1 + 4 s^2 H times as many are drawn,
        with the noise s in units of the range.
    variant : {"sound", "frugal", "paper"} or Options, default "sound"
        "paper" runs Algorithms 1 to 3 to the letter. "sound" repairs their known failures: it starts from a fixed
        action sequence instead of the uniform policy, and it checks again. "frugal" is "sound" with fewer
        trajectories, by `accumulate`, `reuse` and `memo`. Options of your own are made from these:
        ``dataclasses.replace(VARIANTS["sound"], memo=True)``.
    ratio : float, default 2
        R = eps_t / eps_s of the oracle, > 0. A `FiniteClass` with both thresholds has its own.
    eps_r : float, default 0.01
        Regulariser of the oracle (the paper's lambda_r), > 0. For linear functions it must be at least 1e-16, the
        resolution of float64 beside S; ``ExactSampler(env, arithmetic=digits)`` takes less. This and the other
        constants may be any real number, also a Decimal; they are rounded to float64.
    ridge : float, default 0.001
        lambda_ridge of the regression, > 0.
    function_class : FunctionClass, optional
        Class of the predictors; `LinearClass()` by default.
    initial : {"uniform", "fixed"}, sequence of int, sequence of sequences of int, or Policy, optional
        First policy of every cover: a name, the actions of all levels, or a policy. Several action sequences are as
        many policies. The variant's by default.
    value_range, noise : optional
        Instead of what the environment declares of its rewards; see `SelfStopping`. Beside the number of trajectories,
        they change no decision: the oracle sees features only, and theta is in points. Returns outside of a declared
        range are refused.
    rng : None, int, SeedSequence, Generator or Stream, optional
        Source of the run's 128-bit key.

    Attributes
    ----------
    sampler : Sampler
    stream : Stream
        The key, at its first call.
    variant : str
        Name of the variant, "custom" of options that no variant has.
    options : Options
    parameters : RunParameters
    function_class : FunctionClass
    initial : tuple of Policy
        First policies of every cover.

    Raises
    ------
    TypeError, ValueError
        If an argument is of a wrong type or out of range; the message names it.

    Examples
    --------
    >>> import dmq_fast as dmq
    >>> env = dmq.environments.combination_lock(horizon=30, n_actions=4, rng=0)
    >>> result = dmq.DMQ(env, n_samples=20, rng=1).learn()
    >>> result.status, env.value(result.policy), env.optimal_value
    ('ended', 0.7, 0.7)
    >>> max(result.cover_sizes)
    2
    """

    redraws = True

    def __init__(
        self,
        env: Any,
        n_samples: int = 100,
        variant: str | Options = "sound",
        *,
        ratio: float | Decimal = 2.0,
        eps_r: float | Decimal = 1e-2,
        ridge: float | Decimal = 1e-3,
        function_class: FunctionClass | None = None,
        initial: str | Policy | Sequence[int] | Sequence[Sequence[int]] | None = None,
        value_range: ValueRange = None,
        noise: float | None = None,
        rng: Seed = None,
    ) -> None:
        super().__init__(env, rng, value_range, noise)
        arithmetic = self.sampler.arithmetic
        self.variant, self.options = Options.of(variant, in_float64=arithmetic.is_float64)
        self.function_class = as_class(function_class)
        self.parameters = RunParameters.of(
            n_samples=n_samples,
            ratio=ratio,
            eps_r=eps_r,
            ridge=ridge,
            function_class=self.function_class,
            in_float64=arithmetic.is_float64,
        )
        n_samples = noisy_samples(self.parameters.n_samples, self.sampler.rewards, self.sampler.horizon)
        self.parameters = replace(self.parameters, n_samples=n_samples)
        self.given = self.options.initial if initial is None else initial
        self.initial = self.first_policies(self.stream)
        self.options = replace(self.options, initial=self.given if isinstance(self.given, str) else "given")
        self.solver()  # raises an error if the class does not fit

    def first_policies(self, stream: Stream) -> tuple[Policy, ...]:
        """Return the first policies of every cover; the key draws those that have the name "fixed"."""
        return initial_policies(self.given, self.sampler, stream, exact=not self.sampler.arithmetic.is_float64)

    def solver(self) -> Solver:
        """Return a new solver of the function class, with the parameters of a run."""
        return self.sampler.arithmetic.solver(
            self.function_class,
            self.sampler.dimension,
            ridge=self.parameters.ridge,
            eps_s=self.parameters.eps_s,
            eps_t=self.parameters.eps_t,
            eps_r=self.parameters.eps_r,
            oracle=self.options.oracle,
        )

    def warnings(self) -> tuple[str, ...]:
        """Return a warning for each known way in which these parameters fail (docs/findings.md, A and G)."""
        return tuple(self.doubts())

    def doubts(self) -> Iterator[str]:
        """Yield the warnings."""
        ratio, eps_r, n_actions = self.parameters.ratio, self.parameters.eps_r, self.sampler.n_actions
        if ratio <= 1.0:
            yield f"R = eps_t / eps_s = {ratio:g} <= 1: the oracle can return True on what is covered already"
        if not self.function_class.is_cone:
            return  # What follows scales functions up until they reach a threshold.
        if ratio * eps_r > 0.2:
            yield f"R eps_r = {ratio * eps_r:g} > 0.2: new directions of small mass stay hidden"
        if any(isinstance(rule, Uniform) for policy in self.initial for rule in policy.rules) and ratio >= n_actions:
            yield f"uniform initial policy with R = {ratio:g} >= K = {n_actions}: a shift by one action goes unseen"

    def learn(
        self,
        *,
        max_trajectories: int | None = None,
        max_policies: int | None = None,
        max_seconds: float | None = None,
        workers: int | None = None,
        executor: Executor | Callable[[], Executor] | None = None,
        journal: str | os.PathLike[str] | None = None,
        progress: Callable[[Progress], object] | bool | None = None,
    ) -> DMQResult:
        """Run from the beginning to the end, or to a budget; with a journal that exists, continue the run in it.

        Parameters
        ----------
        max_policies : int, optional
            End the run after adding this many policies to covers.
        max_trajectories, max_seconds, workers, executor, journal, progress
            As those of `SelfStopping.learn`.

        Returns
        -------
        DMQResult
            Its status is "ended", or the name of the budget that was used up ("n_samples" where a mixture of N |Pi_h|
            trajectories would not fit 64 bits).

        Raises
        ------
        TypeError, ValueError, KeyboardInterrupt, JournalError
            As `SelfStopping.learn`.
        """
        return self.run(
            self.resources(
                max_trajectories=max_trajectories,
                max_policies=max_policies,
                max_seconds=max_seconds,
                workers=workers,
                executor=executor,
                journal=journal,
                progress=progress,
            )
        )

    def session(self, resources: Resources) -> CoverSession:
        """Open the journal, and return a run that has not begun."""
        initial = self.initial if resources.stream.key == self.stream.key else self.first_policies(resources.stream)
        header = {
            "options": asdict(self.options),
            "parameters": asdict(self.parameters),
            "function_class": self.function_class.describe(),
            "initial": ",".join(map(policy_fingerprint, initial)),
        }
        ledger = Ledger(resources.budget, resources.open_journal(self.variant, header))
        return CoverSession(resources, ledger, self, initial)

    def __repr__(self) -> str:
        given, variant = self.parameters, self.options if self.variant == "custom" else self.variant
        return (
            f"DMQ({self.sampler!r}, n_samples={given.n_samples}, variant={variant!r}, ratio={given.ratio:g}, "
            f"eps_r={given.eps_r:g}, ridge={given.ridge:g}, function_class={self.function_class!r})"
        )


class CoverSession(Session[DMQResult]):
    """One run of Algorithm 1."""

    def __init__(self, resources: Resources, ledger: Ledger, settings: DMQ, initial: Sequence[Policy]) -> None:
        super().__init__(resources, ledger)
        self.settings, self.initial = settings, initial
        arithmetic, solver = settings.sampler.arithmetic, settings.solver()
        self.oracle = Oracle(solver, ledger, len(initial))
        self.regression = Regression(solver, ledger, self.sampler.dimension)
        memory = Memory(actions=settings.sampler.actions)
        draws = Draws(
            self.sampler,
            settings.parameters.n_samples,
            resources.stream,
            settings.options,
            memory,
            ledger,
            arithmetic,
        )
        self.algorithm = DifferenceMaximization(
            initial, settings.options, arithmetic, draws, self.oracle, self.regression, self.learned
        )
        self.algorithm_2_runs = 0

    def run(self) -> None:
        """Run Algorithm 1 until it ends or a budget is used up."""
        # Algorithms 2 and 3 nest at most H deep, four frames a level. The limit is never lowered: threads share it.
        sys.setrecursionlimit(max(sys.getrecursionlimit(), 4 * self.sampler.horizon + 1000))
        if self.sampler.arithmetic.is_float64 and self.sampler.dimension > threads.LARGEST_WITHOUT_BLAS:
            threads.log_once()
        try:
            self.algorithm.algorithm_1()
            self.status = "ended"
        except OutOfBudget as stop:
            self.status = stop.status

    def learned(self, level: int) -> None:
        """Count a finished run of Algorithm 2, and call `progress`."""
        self.algorithm_2_runs += 1
        self.report(level, self.algorithm_2_runs)

    def result(self) -> DMQResult:
        """Return what was learned: greedy where a level was learned, the initial policy's rule where not."""
        settings, ledger, algorithm = self.settings, self.ledger, self.algorithm
        by_level = zip(algorithm.learned, algorithm.greedy.rules, self.initial[0].rules, strict=True)
        return DMQResult(
            policy=Policy([greedy if done else initial for done, greedy, initial in by_level]),
            theta=np.array([rule.theta for rule in algorithm.greedy.rules if isinstance(rule, Greedy | ExactGreedy)]),
            cover=tuple(tuple(policies) for policies in algorithm.cover),
            history=self.oracle.history.freeze(),
            variant=settings.variant,
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
            **self.common((*settings.warnings(), *self.warnings())),
        )

    def warnings(self) -> Iterator[str]:
        """Yield the warnings about the run itself."""
        algorithm = self.algorithm
        unseen = [h for h, done in enumerate(algorithm.learned) if done and not algorithm.moments[h].any()]
        if self.ledger.n_policies == 0 and unseen:
            yield f"no policy was ever added, although every state seen at {level_names(unseen)} had features 0"
        if any(algorithm.learned) and not self.regression.saw_reward:
            yield "no reward was ever seen: the returned policy is arbitrary"
        elif self.sampler.n_actions > 1:
            yield from doubts(self.verdicts())
        if self.oracle.n_marginal:
            calls = self.oracle.history.n_calls
            yield f"answers of the oracle that were too close to call: {self.oracle.n_marginal:,} of {calls:,}"

    def verdicts(self) -> list[Verdict | None]:
        """Return whether the estimates of each level tell its actions apart; None where it was not learned."""
        algorithm, settings = self.algorithm, self.settings

        def verdict(h: int) -> Verdict | None:
            rule = algorithm.greedy.rules[h]
            if not algorithm.learned[h]:
                return None
            if isinstance(rule, ExactGreedy):
                return exactly(np.array(rule.exact))
            assert isinstance(rule, Greedy)
            if not isinstance(settings.function_class, LinearClass):
                return exactly(rule.theta)
            theta, moment = rule.theta, algorithm.moments[h]
            columns = np.arange(moment.dimension)
            if moment.sparse:  # where theta and the states are 0 there is nothing to tell
                columns = np.union1d(moment.support, np.flatnonzero(theta.any(axis=0)))
                theta = theta[:, columns]
            return within_shrinkage(theta, moment.on(columns) / len(algorithm.cover[h]), settings.parameters.ridge)

        return [verdict(h) for h in range(algorithm.horizon)]


def as_class(value: object) -> FunctionClass:
    """Return `value` if it is a function class, linear functions for None."""
    if value is None:
        return LinearClass()
    if not isinstance(value, FunctionClass) or isinstance(value, type):
        raise TypeError(f"function_class: expected a FunctionClass such as LinearClass(), got {value!r}")
    return value
