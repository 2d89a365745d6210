"""`DMQ`: the arguments of a run, and one call of `learn`."""

from __future__ import annotations

import math
import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor
from dataclasses import asdict
from decimal import Decimal
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from dmq_fast._support import threads
from dmq_fast._support.checks import one_of
from dmq_fast.adaptive import Aim, Report, SelfStopping
from dmq_fast.arithmetic import Arithmetic, ExactGreedy
from dmq_fast.dmq import DifferenceMaximization
from dmq_fast.environments.compiled import CompiledEnv
from dmq_fast.environments.finite import FiniteMDP
from dmq_fast.function_class import FunctionClass, LinearClass, Solver
from dmq_fast.kernels import Greedy, Stream, Uniform
from dmq_fast.policy import Policy
from dmq_fast.run.draws import Draws
from dmq_fast.run.episodes import check_episodes
from dmq_fast.run.fingerprint import fingerprint, policy_fingerprint
from dmq_fast.run.history import History
from dmq_fast.run.initial import initial_policies
from dmq_fast.run.journal import Journal, read_header
from dmq_fast.run.ledger import Ledger, OutOfBudget
from dmq_fast.run.memory import Memory
from dmq_fast.run.options import ADAPTIVE, VARIANTS, Budget, Options, RunParameters
from dmq_fast.run.oracle import Oracle, Regression
from dmq_fast.run.result import Result
from dmq_fast.samplers import BatchEnvironment, ParallelSampler, Sampler, as_sampler
from dmq_fast.samplers.parallel import check_workers, spread
from dmq_fast.samplers.streams import as_key

__all__ = ["DMQ", "Progress"]


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


class DMQ:
    """Difference Maximization Q-learning: the arguments of a run. `learn` runs it.

    Parameters
    ----------
    env_or_sampler : FiniteMDP, CompiledEnv, BatchEnvironment or Sampler
        Source of the trajectories. An environment is simulated by the sampler that `samplers.as_sampler` chooses.
    epsilon, delta : float, optional
        Return a policy within epsilon of the best with probability 1 - delta, each in (0, 1) and .05 by default: the
        run chooses its number of trajectories and stops by itself (docs/adaptive.md). One of them is enough to choose
        the variant "adaptive", which takes none of the other arguments from `n_samples` to `function_class`.
    strict : bool, optional
        With False, rewards and transitions rarer than one half at a single place may be missed, and fewer trajectories
        are needed. Chooses the variant "adaptive" as well; True by default.
    p_min : float, optional
        In (0, 1], instead of epsilon in the strict mode or one half: the chance of the rarest outcome at a single place
        that is looked for. Chooses the variant "adaptive" as well.
    n_samples : int, default 100
        N, the number of trajectories for each policy, >= 1 and below 2^63. An `ExactSampler` in extended precision
        takes any integer >= 1.
    ratio : float, optional
        R = eps_t / eps_s; 2 unless both `eps_s` and `eps_t` are given.
    eps_s, eps_t : float, optional
        Thresholds of the oracle, > 0. For linear functions only their ratio matters. With `ratio` alone, eps_s = 1.
    eps_r : float, default 1e-2
        Regulariser of the oracle (the paper's lambda_r), > 0. For linear functions it must be at least 1e-16, the
        resolution of float64 beside S; ``ExactSampler(env, arithmetic=digits)`` takes less. This and the other
        constants may be any real number, also a Decimal; they are rounded to float64.
    ridge : float, default 1e-3
        lambda_ridge of the regression, > 0.
    variant : {"sound", "frugal", "paper", "adaptive"}, default "sound"
        "paper" runs Algorithms 1 to 3 to the letter. "sound" repairs their known failures: it starts from a fixed
        action sequence instead of the uniform policy, and it checks again. "frugal" is "sound" with fewer
        trajectories, by `accumulate`, `reuse` and `memo`. "adaptive" is another algorithm with the same assumption,
        that Q* is linear in the features, and far fewer trajectories; see `epsilon`.
    initial : {"uniform", "fixed"}, sequence of int, sequence of sequences of int, or Policy, optional
        First policy of every cover: a name, the actions of all levels, or a policy. Several action sequences are as
        many policies. The variant's by default.
    recheck, accumulate, reuse, memo : bool, optional
    oracle : {"decision", "value"}, optional
    mixture : {"stratified", "multinomial"}, optional
        Options of the algorithm, described in `run.options.Options`; the variant's by default. `reuse` implies the
        stratified mixture. In extended precision that mixture is the default, as the limit of the multinomial one for
        N to infinity.
    function_class : FunctionClass, optional
        Class of the predictors; `LinearClass()` by default. `FiniteClass` needs `eps_s` or `eps_t`, since their ratio
        does not decide there.
    max_trajectories, max_policies : int, optional
    max_seconds : float, optional
        Budgets: trajectories drawn, policies added to the covers, seconds since `learn` began. A budget that is used up
        ends the run with the policy learned so far.
    workers : int, optional
        Number of threads that draw the chunks of a call, or of processes for an environment in Python. They live as
        long as the run and change no bit of the result. By default the calling thread draws. A call of one chunk cannot
        be split; a chunk has up to 16,384 trajectories, or the ``chunk_size`` of a `BatchEnvironment` (4,096 by
        default). Processes are spawned: the environment must be picklable, and a script that starts them needs
        ``if __name__ == "__main__"``.
    executor : concurrent.futures.Executor, or callable, optional
        Executor that draws the chunks instead, or a function that makes one; see `samplers.ParallelSampler`.
    journal : str or path-like, optional
        File in which the run records its decisions. If the file exists, `learn` continues the run in it, and the result
        is that of an undisturbed run, byte for byte. Without `rng`, the key in the file is used. Budgets may differ;
        every other argument must be the same. See `run.journal`. The adaptive variant keeps none.
    progress : callable, optional
        Called with a `Progress` each time a level has been learned, or the adaptive variant has planned.
    rng : None, int, SeedSequence, Generator or Stream, optional
        Source of the run's 128-bit key.

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
    ('finished', 0.7, 0.7)
    >>> max(result.cover_sizes)
    2

    The adaptive variant needs nothing but what it shall promise:

    >>> result = dmq.DMQ(env, epsilon=0.05, delta=0.05, rng=1).learn()
    >>> result.status, env.value(result.policy), result.n_trajectories < 1000
    ('finished', 0.7, True)
    """

    def __init__(
        self,
        env_or_sampler: FiniteMDP | CompiledEnv | BatchEnvironment | Sampler,
        *,
        epsilon: float | None = None,
        delta: float | None = None,
        strict: bool | None = None,
        p_min: float | None = None,
        n_samples: int = 100,
        ratio: float | Decimal | None = None,
        eps_s: float | Decimal | None = None,
        eps_t: float | Decimal | None = None,
        eps_r: float | Decimal = 1e-2,
        ridge: float | Decimal = 1e-3,
        variant: str = "sound",
        initial: str | Policy | Sequence[int] | Sequence[Sequence[int]] | None = None,
        recheck: bool | None = None,
        accumulate: bool | None = None,
        reuse: bool | None = None,
        memo: bool | None = None,
        oracle: str | None = None,
        mixture: str | None = None,
        function_class: FunctionClass | None = None,
        max_trajectories: int | None = None,
        max_policies: int | None = None,
        max_seconds: float | None = None,
        workers: int | None = None,
        executor: Executor | Callable[[], Executor] | None = None,
        journal: str | os.PathLike[str] | None = None,
        progress: Callable[[Progress], object] | None = None,
        rng: int | np.random.SeedSequence | np.random.Generator | Stream | None = None,
    ) -> None:
        self.sampler = as_sampler(env_or_sampler)
        self.arithmetic: Arithmetic = self.sampler.arithmetic
        in_float64 = self.arithmetic.is_float64
        self.variant, self.aim = as_aim(variant, epsilon=epsilon, delta=delta, strict=strict, p_min=p_min)
        if self.aim is not None:
            given = locals()
            refuse_for_adaptive({name: given[name] for name in NOT_ADAPTIVE})
            check_episodes(self.sampler)
        base = "sound" if self.aim is not None else self.variant
        self.function_class = as_class(function_class)
        self.parameters = RunParameters.of(
            n_samples=n_samples,
            ratio=ratio,
            eps_s=eps_s,
            eps_t=eps_t,
            eps_r=eps_r,
            ridge=ridge,
            function_class=self.function_class,
            in_float64=in_float64,
        )
        self.journal = as_journal(journal, in_float64=in_float64)
        self.stream = as_key(rng) if rng is not None or self.journal is None else key_of(self.journal)
        initial_name, self.initial = initial_policies(
            VARIANTS[base].initial if initial is None else initial,
            self.sampler,
            self.stream,
            exact=not in_float64,
        )
        self.options = Options.of(
            base,
            in_float64=in_float64,
            recheck=recheck,
            accumulate=accumulate,
            reuse=reuse,
            memo=memo,
            oracle=oracle,
            mixture=mixture,
            initial=initial_name,
        )
        self.solver()  # raises an error if the class does not fit
        self.budget = Budget.of(
            max_trajectories=max_trajectories,
            max_policies=max_policies,
            max_seconds=max_seconds,
            in_float64=in_float64,
        )
        self.workers, self.executor = check_workers(workers, executor)
        if progress is not None and not callable(progress):
            raise TypeError(f"progress: expected a callable, got {progress!r}")
        self.progress = progress
        self._session: Session | StoppingSession | None = None

    def solver(self) -> Solver:
        """Return a new solver of the function class, with the parameters of this run."""
        return self.arithmetic.solver(
            self.function_class,
            self.sampler.dimension,
            ridge=self.parameters.ridge,
            eps_s=self.parameters.eps_s,
            eps_t=self.parameters.eps_t,
            eps_r=self.parameters.eps_r,
            oracle=self.options.oracle,
        )

    def learn(self) -> Result:
        """Run Algorithm 1 from its beginning; with a journal that exists, continue the run in it.

        Returns
        -------
        Result
            Its `status` is "finished", or the name of the budget that was used up ("n_samples" where a mixture of
            N |Pi_h| trajectories would not fit 64 bits).

        Raises
        ------
        KeyboardInterrupt
            On Ctrl-C; `result` still returns what was learned.
        JournalError
            If the journal is that of another run, damaged, or in use.
        """
        # Algorithms 2 and 3 nest at most H deep, four frames a level. The limit is never lowered: threads share it.
        sys.setrecursionlimit(max(sys.getrecursionlimit(), 4 * self.sampler.horizon + 1000))
        if self.arithmetic.is_float64 and self.sampler.dimension > threads.LARGEST_WITHOUT_BLAS:
            threads.log_once()
        self._session = session = Session(self) if self.aim is None else StoppingSession(self, self.aim)
        try:
            session.run()
        finally:
            session.end()
        return session.result()

    def result(self) -> Result:
        """Return the result of the last `learn`; its status is "interrupted" where an exception ended it.

        Raises
        ------
        RuntimeError
            If `learn` was never called.
        """
        if self._session is None:
            raise RuntimeError("result: learn was never called")
        return self._session.result()

    def warnings(self) -> Iterator[str]:
        """Yield a warning for each known way in which these parameters fail (docs/findings.md, A and G)."""
        if self.aim is not None:
            return
        ratio, n_actions = self.parameters.ratio, self.sampler.n_actions
        if ratio <= 1.0:
            yield f"R = eps_t / eps_s = {ratio:g} <= 1: the oracle can return True on what is covered already"
        if not self.function_class.is_cone:
            return  # What follows scales functions up until they reach a threshold.
        if ratio * self.parameters.eps_r > 0.2:
            yield f"R eps_r = {ratio * self.parameters.eps_r:g} > 0.2: new directions of small mass stay hidden"
        if any(isinstance(rule, Uniform) for policy in self.initial for rule in policy.rules) and ratio >= n_actions:
            yield f"uniform initial policy with R = {ratio:g} >= K = {n_actions}: a shift by one action goes unseen"

    def __getstate__(self) -> dict[str, Any]:
        """Return everything but the last session, which holds compiled workspace: a copy starts afresh."""
        return vars(self) | {"_session": None}


class Session:
    """One call of `learn`: the algorithms, what surrounds them, and the result."""

    def __init__(self, dmq: DMQ) -> None:
        self.dmq = dmq
        journal = open_journal(dmq)
        self.sampler = spread(dmq.sampler, dmq.workers, dmq.executor)
        self.ledger = Ledger(dmq.budget, journal)
        solver = dmq.solver()
        self.oracle = Oracle(solver, self.ledger, len(dmq.initial))
        self.regression = Regression(solver, self.ledger)
        memory = Memory(actions=dmq.sampler.actions)
        draws = Draws(
            self.sampler, dmq.parameters.n_samples, dmq.stream, dmq.options, memory, self.ledger, dmq.arithmetic
        )
        self.algorithm = DifferenceMaximization(
            dmq.initial, dmq.options, dmq.arithmetic, draws, self.oracle, self.regression, self.report
        )
        self.algorithm_2_runs = 0
        self.status = "interrupted"
        self.ended: float | None = None

    def run(self) -> None:
        """Run Algorithm 1 until it ends or a budget is used up."""
        try:
            self.algorithm.algorithm_1()
            self.status = "finished"
        except OutOfBudget as stop:
            self.status = stop.status

    def end(self) -> None:
        """Stop the clock, close the journal and shut down the workers of the run."""
        self.ended = time.perf_counter()
        self.ledger.close(self.status == "finished")
        if self.sampler is not self.dmq.sampler and isinstance(self.sampler, ParallelSampler):
            self.sampler.close()

    def report(self, level: int) -> None:
        """Count a finished run of Algorithm 2, and call `progress`."""
        self.algorithm_2_runs += 1
        if self.dmq.progress is not None:
            ledger = self.ledger
            seconds = time.perf_counter() - ledger.began
            self.dmq.progress(Progress(level, self.algorithm_2_runs, ledger.n_trajectories, ledger.n_policies, seconds))

    def result(self) -> Result:
        """Return what was learned: greedy where a level was learned, the initial policy's rule where not."""
        dmq, ledger, algorithm = self.dmq, self.ledger, self.algorithm
        total = (time.perf_counter() if self.ended is None else self.ended) - ledger.began
        by_level = zip(algorithm.learned, algorithm.greedy.rules, dmq.initial[0].rules, strict=True)
        return Result(
            policy=Policy([greedy if done else initial for done, greedy, initial in by_level]),
            theta=np.array([rule.theta for rule in algorithm.greedy.rules if isinstance(rule, Greedy | ExactGreedy)]),
            cover=tuple(tuple(policies) for policies in algorithm.cover),
            history=self.oracle.history.freeze(),
            status=self.status,
            variant=dmq.variant,
            options=asdict(dmq.options),
            parameters=asdict(dmq.parameters) | {"ratio": dmq.parameters.ratio},
            function_class=dmq.function_class.describe(),
            counts={
                "trajectories": dict(ledger.trajectories),
                "oracle_calls": self.oracle.history.n_calls,
                "trues": self.oracle.n_trues,
                "algorithm_2_runs": self.algorithm_2_runs,
                "sampler_calls": ledger.calls,
            },
            seconds=ledger.seconds | {"other": total - sum(ledger.seconds.values()), "total": total},
            key=dmq.stream.key,
            warnings=tuple(self.warnings()),
        )

    def warnings(self) -> Iterator[str]:
        """Yield the warnings about the parameters, then those about the run itself."""
        algorithm, journal = self.algorithm, self.ledger.journal
        yield from self.dmq.warnings()
        unseen = [h for h, done in enumerate(algorithm.learned) if done and not algorithm.moments[h].any()]
        if self.ledger.n_policies == 0 and unseen:
            yield f"no policy was ever added, although every state seen at level(s) {unseen} had features 0"
        if any(algorithm.learned) and not self.regression.saw_reward:
            yield "no reward was ever seen: the returned policy is arbitrary"
        if self.oracle.n_marginal:
            yield f"{self.oracle.n_marginal} oracle answer(s) were too close to call"
        if journal is not None and journal.failure is not None:
            yield journal.failure


class StoppingSession:
    """One call of `learn` of the adaptive variant."""

    def __init__(self, dmq: DMQ, aim: Aim) -> None:
        self.dmq, self.aim = dmq, aim
        self.began, self.ended = time.perf_counter(), math.nan
        report = None if dmq.progress is None else self.report
        self.algorithm = SelfStopping(dmq.sampler, aim, dmq.stream, dmq.budget, report)

    def run(self) -> None:
        """Run until a policy has passed its test, or a budget is used up."""
        self.algorithm.learn()

    def end(self) -> None:
        """Stop the clock."""
        self.ended = time.perf_counter()

    def report(self, report: Report) -> None:
        """Call `progress`."""
        assert self.dmq.progress is not None
        seconds = time.perf_counter() - self.began
        self.dmq.progress(Progress(0, 0, report.n_trajectories, 0, seconds, report.phase, report.gap))

    def result(self) -> Result:
        """Return what was learned."""
        dmq, outcome = self.dmq, self.algorithm.outcome()
        return Result(
            policy=Policy.greedy(outcome.theta),
            theta=outcome.theta,
            cover=((),) * dmq.sampler.horizon,
            history=History().freeze(),
            status=outcome.status,
            variant=ADAPTIVE,
            options={},
            parameters=asdict(self.aim),
            function_class=dmq.function_class.describe(),
            counts={"trajectories": outcome.counts},
            seconds={"total": self.ended - self.began},
            key=dmq.stream.key,
            warnings=outcome.warnings,
            stopping=outcome.describe(),
        )


# Arguments that the adaptive variant does not take, with the values that stand for not given.
NOT_ADAPTIVE = {
    "n_samples": 100,
    "eps_r": 1e-2,
    "ridge": 1e-3,
    **dict.fromkeys(("ratio", "eps_s", "eps_t", "initial", "recheck", "accumulate", "reuse", "memo", "oracle")),
    **dict.fromkeys(("mixture", "function_class", "max_policies", "journal")),
}


def as_aim(
    variant: str, *, epsilon: float | None, delta: float | None, strict: bool | None, p_min: float | None
) -> tuple[str, Aim | None]:
    """Return the variant, and the aim of the adaptive one, which any part of an aim chooses where `variant` does not.

    Raises
    ------
    TypeError, ValueError
        If there is no such variant, if another one comes with an aim, or if the aim is wrong.
    """
    one_of("variant", variant, (*VARIANTS, ADAPTIVE))
    aim = {"epsilon": epsilon, "delta": delta, "strict": strict, "p_min": p_min}
    given: dict[str, Any] = {name: value for name, value in aim.items() if value is not None}
    if variant != ADAPTIVE and not given:
        return variant, None
    if variant not in (ADAPTIVE, "sound"):
        raise ValueError(f"{', '.join(given)}: expected only with the variant {ADAPTIVE!r}, got {variant!r}")
    return ADAPTIVE, Aim.of(**given)


def refuse_for_adaptive(given: dict[str, Any]) -> None:
    """Raise ValueError if an argument was given that the adaptive variant does not take."""
    if given.pop("journal") is not None:
        raise ValueError(
            f"journal: expected None with the variant {ADAPTIVE!r}, which keeps none: an equal seed repeats the run"
        )
    for name, value in given.items():
        if value is not NOT_ADAPTIVE[name] and value != NOT_ADAPTIVE[name]:
            raise ValueError(f"{name}: expected none with the variant {ADAPTIVE!r}, got {value!r}")


def as_class(value: object) -> FunctionClass:
    """Return `value` if it is a function class, linear functions for None."""
    if value is None:
        return LinearClass()
    if not isinstance(value, FunctionClass) or isinstance(value, type):
        raise TypeError(f"function_class: expected a FunctionClass such as LinearClass(), got {value!r}")
    return value


def as_journal(value: object, *, in_float64: bool) -> Path | None:
    """Return the path of a journal, or None for none; ValueError in extended precision."""
    if value is None:
        return None
    if not isinstance(value, str | os.PathLike):
        raise TypeError(f"journal: expected a path, got {value!r}")
    if not in_float64:
        raise ValueError(f"journal: expected none in extended precision, since it holds float64 only, got {value!r}")
    return Path(value)


def key_of(journal: Path) -> Stream:
    """Return the stream at call 0 of a journal's key, or of a new key where there is no journal yet."""
    header = read_header(journal)
    return as_key(None) if header is None else Stream.from_key([int(word, 16) for word in header["key"]])


def open_journal(dmq: DMQ) -> Journal | None:
    """Open the journal of a run, if it is to have one."""
    if dmq.journal is None:
        return None
    header = {
        "variant": dmq.variant,
        "options": asdict(dmq.options),
        "parameters": asdict(dmq.parameters),
        "function_class": dmq.function_class.describe(),
        "key": [f"{word:#018x}" for word in dmq.stream.key],
        "initial": ",".join(map(policy_fingerprint, dmq.initial)),
        "environment": fingerprint(dmq.sampler),
        "budget": asdict(dmq.budget),
    }
    return Journal(dmq.journal, header)
