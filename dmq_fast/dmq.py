"""Difference Maximization Q-learning: Algorithms 1 to 3 of Du, Luo, Wang and Zhang (2019), as control flow.

Levels are 0 .. H-1 here and 1 .. H in the paper. Everything the algorithms learn from their trajectories goes
through one primitive, `Sampler.collect`, which returns moments.
"""

from __future__ import annotations

import functools
import os
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor
from dataclasses import asdict, dataclass, replace
from decimal import Decimal
from numbers import Real
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dmq_fast import threads
from dmq_fast._arguments import count, flag, integer, one_of
from dmq_fast.arithmetic import FLOAT64, Arithmetic, ExactGreedy
from dmq_fast.environments.compiled import CompiledEnv
from dmq_fast.environments.finite import FiniteMDP
from dmq_fast.function_class import FunctionClass, LinearClass, Solver
from dmq_fast.journal import (
    ADDED,
    CLOCK,
    FIT,
    LEVEL,
    SCAN,
    Journal,
    Record,
    fingerprint,
    policy_fingerprint,
    read_header,
    unwrapped,
)
from dmq_fast.kernels import Greedy, Stream, Uniform, as_positive
from dmq_fast.memory import Memory
from dmq_fast.moments import Moments, Redrawn
from dmq_fast.policy import Policy
from dmq_fast.result import History, Result
from dmq_fast.samplers import BatchEnvironment, ParallelSampler, Sampler, as_sampler, collect_chunks
from dmq_fast.samplers._binomial import binomial
from dmq_fast.samplers.parallel import check_executor, pool_of
from dmq_fast.samplers.protocol import check_policy
from dmq_fast.theory import FLOAT64_EPS_R

__all__ = ["DMQ", "VARIANTS", "Options", "Parameters", "Progress"]

# A run's own draws (initial sequence, mixture counts) use the calls from here on; its trajectories those below.
OWN_CALLS = 2**63

# `target` and `action` of an oracle call that tests the returned policy instead of a pi_h^a.
FINAL = -1


MIXTURES = ("stratified", "multinomial")


@dataclass(frozen=True)
class Options:
    """What distinguishes the variants; each can be set on its own.

    Attributes
    ----------
    initial : str
        First policy of every cover: "uniform" (the paper), "fixed" (one random action sequence) or "given", which may
        be several.
    recheck : bool
        Repeat Algorithm 3 until a whole pass has no True, Algorithm 2 on the first level until one run has none,
        and test the returned policy itself. The paper passes once.
    accumulate : bool
        When the oracle says True, add to S_h' = sum over pi in Pi_h' of M_pi the very M2 that said so. The paper draws
        D_h' anew. Then det(S_h' + eps_r I) grows by a factor of at least 1 + R each time, on every sample path, and
        |Pi_h'| never exceeds `theory.sure_cover_bound`.
    reuse : bool
        The trajectories of the last pass of Algorithm 3 on (h, a) are N of every pi_h^a with the current tail: take
        them as the regression data of Algorithm 2, and their states of level h as D_h. For the regression this costs
        independence: which policies are added depends on trajectories that are fitted later. By a self-normalised
        bound that is worth at most a factor |Pi_h| in N.
    memo : bool
        A policy that was checked before, same rules and same theta, has the distribution it had: test the moments it
        had then, and draw policies only whose tail has changed. Where the sampler knows the states, policies are the
        same that act the same in all of them. Nothing is drawn twice, so N must carry the noise.
        Without `accumulate`, moments that said True are drawn afresh, since D_h' was.
    oracle : {"value", "decision"}
        Compute the paper's v, a top eigenvalue, and record it; or answer v >= eps_t by one factorisation alone. The
        answers are the same: where rounding of v could matter, the factorisation decides.
    mixture : {"multinomial", "stratified"}
        Regression data from N |Pi_h| policies drawn uniformly (the paper), or N trajectories with each policy.
    """

    initial: str
    recheck: bool
    accumulate: bool
    reuse: bool
    memo: bool
    oracle: str
    mixture: str


VARIANTS = {
    "paper": Options(
        initial="uniform",
        recheck=False,
        accumulate=False,
        reuse=False,
        memo=False,
        oracle="value",
        mixture="multinomial",
    ),
    "sound": Options(
        initial="fixed",
        recheck=True,
        accumulate=False,
        reuse=False,
        memo=False,
        oracle="decision",
        mixture="stratified",
    ),
}
VARIANTS["frugal"] = replace(VARIANTS["sound"], accumulate=True, reuse=True, memo=True)


@dataclass(frozen=True)
class Parameters:
    """Parameters by the paper's names: N, epsilon_s, epsilon_t, the oracle's regulariser, lambda_ridge."""

    n_samples: int
    eps_s: float
    eps_t: float
    eps_r: float
    ridge: float

    @property
    def ratio(self) -> float:
        """R = eps_t / eps_s, all of the two that enters a decision."""
        return self.eps_t / self.eps_s


@dataclass(frozen=True)
class Budget:
    """Where to stop. None: no limit."""

    max_trajectories: int | None
    max_policies: int | None
    max_seconds: float | None


class Drawn(NamedTuple):
    """Trajectories: the call that drew them, and their moments."""

    call: int
    moments: Moments


class Progress(NamedTuple):
    """What `progress` is called with whenever Algorithm 2 has finished a level."""

    level: int
    levels_learned: int
    n_trajectories: int
    n_policies: int
    seconds: float


class DMQ:
    """Difference Maximization Q-learning.

    Parameters
    ----------
    env_or_sampler : FiniteMDP, CompiledEnv, BatchEnvironment or Sampler
        Where trajectories come from.
    n_samples : int, default 100
        N, trajectories per policy, below 2^63; any integer >= 1 with an `ExactSampler` in extended precision.
    ratio : float, optional
        R = eps_t / eps_s; 2 unless both `eps_s` and `eps_t` are given.
    eps_s, eps_t : float, optional
        Thresholds of the oracle. Only their ratio matters; with `ratio` alone, eps_s = 1.
    eps_r : float, default 1e-2
        Regulariser of the oracle (the paper's lambda_r), > 0; for linear functions at least 1e-16, as float64 does not
        resolve less beside S, but ``ExactSampler(env, arithmetic=digits)`` does. This and the other constants may be
        any real number, also a Decimal; they are rounded to float64.
    ridge : float, default 1e-3
        lambda_ridge of the regression, > 0.
    variant : {"sound", "frugal", "paper"}, default "sound"
        "paper" is Algorithms 1 to 3 to the letter; "sound" repairs what is known to fail in them: a fixed initial
        action sequence instead of the uniform policy, and re-checks; "frugal" is "sound" with fewer trajectories, by
        `accumulate`, `reuse` and `memo`. See `Options`.
    initial : {"uniform", "fixed"}, sequence of int, sequence of sequences of int, or Policy, optional
        First policy of every cover, instead of the variant's; an action sequence, or several for as many policies.
    recheck, accumulate, reuse, memo : bool, optional
    oracle : {"decision", "value"}, optional
    mixture : {"stratified", "multinomial"}, optional
        Each instead of the variant's. `reuse` implies the stratified mixture, and in extended precision it is the
        default, as the limit of the other for N to infinity.
    function_class : FunctionClass, optional
        `LinearClass()` by default. Ridge and thresholds reach it from here; `FiniteClass` needs `eps_s` or `eps_t`, as
        their ratio does not say enough there. A regulariser other than the identity belongs to the class.
    max_trajectories, max_policies : int, optional
    max_seconds : float, optional
        Budgets: trajectories drawn, policies added to the covers, seconds since `learn` began. One that runs out
        ends the run with the policy learned so far.
    workers : int, optional
        Draw the chunks of a call on so many threads, or processes where the environment is written in Python, which
        live as long as the run; by default in the calling thread. Changes no bit of the result. A call of up to one
        chunk cannot be split: 16,384 trajectories, 4,096 of a `BatchEnvironment` or what its ``chunk_size`` says.
        Processes are spawned: the environment must be picklable, and a script that starts them needs the usual
        ``if __name__ == "__main__"``.
    executor : concurrent.futures.Executor, or callable, optional
        Draw them on this executor instead, or on one that the function makes; see `samplers.ParallelSampler`.
    journal : str or path-like, optional
        File in which the run notes what it decides. Where it exists already, `learn` goes on from its end: what comes
        out is what an undisturbed run gives, byte for byte. Without `rng`, its key is used. Budgets may differ, all
        else must be the same. See `dmq_fast.journal`.
    progress : callable, optional
        Called with a `Progress` each time a level has been learned.
    rng : None, int, SeedSequence, Generator or Stream, optional
        Source of the run's 128-bit key.

    Raises
    ------
    TypeError, ValueError
        On an argument of a wrong type or out of range; the message names it.
    """

    def __init__(
        self,
        env_or_sampler: FiniteMDP | CompiledEnv | BatchEnvironment | Sampler,
        *,
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
        self.arithmetic: Arithmetic = getattr(unwrapped(self.sampler), "arithmetic", FLOAT64)
        in_float64 = self.arithmetic.is_float64
        self.variant = one_of("variant", variant, VARIANTS)
        self.function_class = LinearClass() if function_class is None else as_class(function_class)
        if eps_s is None and eps_t is None and not self.function_class.is_cone:
            raise ValueError(
                f"eps_s, eps_t: expected at least one of them with {self.function_class!r}, where the ratio alone does "
                "not decide; got none"
            )
        eps_s, eps_t = thresholds(ratio, eps_s, eps_t)
        eps_r = as_real("eps_r", eps_r)
        if in_float64 and self.function_class.is_cone and eps_r < float(FLOAT64_EPS_R):
            # The oracle would take rounding for new directions, and say True for ever.
            raise ValueError(
                f"eps_r: expected at least {FLOAT64_EPS_R:g}, what float64 resolves beside S, got {eps_r:g}; on a "
                "FiniteMDP, ExactSampler(env, arithmetic=digits) takes less"
            )
        self.parameters = Parameters(
            n_samples=as_trajectories("n_samples", n_samples, bounded=in_float64),
            eps_s=eps_s,
            eps_t=eps_t,
            eps_r=eps_r,
            ridge=as_real("ridge", ridge),
        )
        if journal is not None and not isinstance(journal, str | os.PathLike):
            raise TypeError(f"journal: expected a path, got {journal!r}")
        if journal is not None and not in_float64:
            raise ValueError(
                f"journal: expected none in extended precision, since it holds float64 only, got {journal!r}"
            )
        self.journal = None if journal is None else Path(journal)
        self.stream = as_key(rng) if rng is not None or self.journal is None else key_of(self.journal)
        defaults = VARIANTS[variant]
        flags = {"recheck": recheck, "accumulate": accumulate, "reuse": reuse, "memo": memo}
        given = {name: flag(name, value) for name, value in flags.items() if value is not None}
        if given.get("reuse", defaults.reuse):
            if one_of("mixture", mixture or "stratified", MIXTURES) != "stratified":
                raise ValueError(f"mixture: expected 'stratified', which reuse implies, got {mixture!r} with reuse")
            mixture = "stratified"
        initial_name, self.initial = self._initial_policies(defaults.initial if initial is None else initial)
        self.options = replace(
            defaults,
            initial=initial_name,
            oracle=defaults.oracle if oracle is None else one_of("oracle", oracle, ("decision", "value")),
            mixture=(defaults.mixture if in_float64 else "stratified")
            if mixture is None
            else one_of("mixture", mixture, MIXTURES),
            **given,
        )
        self.solver()  # refuses a class that does not fit
        self.budget = Budget(
            max_trajectories=None
            if max_trajectories is None
            else as_trajectories("max_trajectories", max_trajectories, bounded=in_float64),
            max_policies=None if max_policies is None else count("max_policies", max_policies, 0),
            max_seconds=None if max_seconds is None else as_positive("max_seconds", max_seconds),
        )
        if workers is not None and executor is not None:
            raise ValueError("workers, executor: expected at most one of them, got both")
        self.workers = None if workers is None else count("workers", workers, 1)
        if executor is not None:
            check_executor(executor)
        self.executor = executor
        if progress is not None and not callable(progress):
            raise TypeError(f"progress: expected a callable, got {progress!r}")
        self.progress = progress
        self._run: Run | None = None

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

    def _initial_policies(
        self, initial: str | Policy | Sequence[int] | Sequence[Sequence[int]]
    ) -> tuple[str, tuple[Policy, ...]]:
        horizon, n_actions = self.sampler.horizon, self.sampler.n_actions
        if isinstance(initial, str):
            if one_of("initial", initial, ("uniform", "fixed")) == "uniform":
                return "uniform", (Policy.uniform(horizon),)
            actions = self.stream.at(OWN_CALLS).generator().integers(n_actions, size=horizon)
            return "fixed", (Policy.fixed(actions),)
        if isinstance(initial, Policy):
            return "given", (self._given(initial),)
        if not is_sequence(initial):
            raise TypeError(f"initial: expected a name, sequences of actions or a Policy, got {initial!r}")
        sequences = initial if len(initial) and all(map(is_sequence, initial)) else [initial]
        return "given", tuple(map(self._given, sequences))

    def _given(self, initial: Policy | Any) -> Policy:
        """Return the policy, or the policy of a sequence of actions, if it fits the sampler."""
        if isinstance(initial, Policy):
            policy = initial
        else:
            try:
                policy = Policy.fixed(np.asarray(initial, dtype=object))
            except ValueError as error:
                raise ValueError(f"initial: {error}") from error
        check_policy(self.sampler, policy, name="initial", exact=not self.arithmetic.is_float64)
        return policy

    def learn(self) -> Result:
        """Run Algorithm 1 from its beginning.

        Returns
        -------
        Result
            Its `status` is "finished", or names the budget that ran out ("n_samples" where a mixture of N |Pi_h|
            trajectories would not fit 64 bits).

        Raises
        ------
        KeyboardInterrupt
            On Ctrl-C; `result` still holds what was learned.
        JournalError
            If the journal is that of another run, damaged, or in use.
        """
        # Algorithms 2 and 3 nest at most H deep, four frames a level.
        raise_recursion_limit(4 * self.sampler.horizon + 1000)
        if self.arithmetic.is_float64 and self.sampler.dimension > threads.LARGEST_WITHOUT_BLAS:
            threads.say_once()
        self._run = run = Run(self)
        try:
            run.algorithm_1()
            run.status = "finished"
        except OutOfBudget as stop:
            run.status = stop.status
        finally:
            run.end()
        return run.result()

    def result(self) -> Result:
        """Return what the last `learn` has got; its status is "interrupted" where an exception ended it.

        Raises
        ------
        RuntimeError
            If `learn` was never called.
        """
        if self._run is None:
            raise RuntimeError("result: learn was never called")
        return self._run.result()

    def open_journal(self) -> Journal | None:
        """Open the run's journal, if it is to have one."""
        if self.journal is None:
            return None
        header = {
            "variant": self.variant,
            "options": asdict(self.options),
            "parameters": asdict(self.parameters),
            "function_class": self.function_class.describe(),
            "key": [f"{word:#018x}" for word in self.stream.key],
            "initial": ",".join(map(policy_fingerprint, self.initial)),
            "environment": fingerprint(self.sampler),
            "budget": asdict(self.budget),
        }
        return Journal(self.journal, header)

    def parallel_sampler(self) -> Sampler:
        """Return the sampler, its chunks spread over the workers of a run where there are any."""
        if self.executor is not None:
            return ParallelSampler(self.sampler, self.executor)
        if self.workers is None or self.workers == 1:
            return self.sampler
        return ParallelSampler(self.sampler, pool_of(self.sampler, self.workers))

    def warnings(self) -> Iterator[str]:
        """Yield what is known to fail of these parameters (README, findings A and constants)."""
        ratio, n_actions = self.parameters.ratio, self.sampler.n_actions
        if ratio <= 1.0:
            yield f"R = eps_t / eps_s = {ratio:g} <= 1: the oracle can say True about what is covered already"
        if not self.function_class.is_cone:
            return  # What follows scales functions up until they reach a threshold.
        if ratio * self.parameters.eps_r > 0.2:
            yield f"R eps_r = {ratio * self.parameters.eps_r:g} > 0.2: new directions of small mass stay hidden"
        if any(isinstance(rule, Uniform) for policy in self.initial for rule in policy.rules) and ratio >= n_actions:
            yield f"uniform initial policy with R = {ratio:g} >= K = {n_actions}: a shift by one action goes unseen"

    def __getstate__(self) -> dict[str, Any]:
        """Everything but the last run, which holds compiled workspace: a copy starts afresh."""
        return vars(self) | {"_run": None}


class OutOfBudget(Exception):
    """A budget ran out; unwinds the recursion to `DMQ.learn`."""

    def __init__(self, status: str) -> None:
        super().__init__(status)
        self.status = status


class Run:
    """The global variables of section 5, and the algorithms that change them.

    Attributes
    ----------
    greedy : Policy
        The estimates theta_h^a as the policy that is greedy on them; zero where `learned` is still False. Replaced,
        never changed in place, so that every policy built from it is a snapshot.
    cover : list of H lists of Policy
        Pi_h.
    moments : numpy.ndarray, shape (H, d, d)
        S_h = sum over pi in Pi_h of the second moment of the states drawn with pi, all that is kept of D_h.
    memory : Memory
        What was drawn already, by target level and policy; `serves` says for which purposes it is asked.
    """

    def __init__(self, dmq: DMQ) -> None:
        self.dmq = dmq
        self.options = dmq.options
        self.journal = dmq.open_journal()
        self.sampler = dmq.parallel_sampler()
        self.n_samples = dmq.parameters.n_samples
        horizon, n_actions, dimension = self.sampler.horizon, self.sampler.n_actions, self.sampler.dimension
        self.arithmetic = dmq.arithmetic
        self.solver = dmq.solver()
        self.greedy = Policy([self.arithmetic.greedy(self.arithmetic.zeros((n_actions, dimension)))] * horizon)
        self.learned = [False] * horizon
        self.cover: list[list[Policy]] = [list(dmq.initial) for _ in range(horizon)]
        self.moments = self.arithmetic.zeros((horizon, dimension, dimension))
        self.memory = Memory(actions=getattr(unwrapped(dmq.sampler), "actions", None))
        memo, reuse = self.options.memo, self.options.reuse
        self.serves = {"check": memo, "regression": reuse, "states": False, "final": memo}
        self.remembered = self.serves | {"check": memo or reuse}
        self.largest_cover = self.solver.cover_bound(len(dmq.initial))
        self.history = History()
        self.calls = 0
        self.mixtures = 0
        self.levels_learned = 0
        self.trues = 0
        self.saw_reward = False
        self.recalled_marginal = 0
        self.trajectories = {"check": 0, "regression": 0, "states": 0, "final": 0}
        self.n_trajectories = 0
        self.seconds = {"rollouts": 0.0, "oracle": 0.0, "regression": 0.0}
        self.status = "interrupted"
        self.began = time.perf_counter() - (0.0 if self.journal is None else self.journal.elapsed)
        self.ended: float | None = None

    def end(self) -> None:
        """Stop the clock, close the journal and let go of the workers that the run had."""
        self.ended = time.perf_counter()
        if self.journal is not None:
            if self.status != "finished" and not self.replaying:
                self.record(CLOCK)
            self.journal.close()
        if self.sampler is not self.dmq.sampler and isinstance(self.sampler, ParallelSampler):
            self.sampler.close()

    def algorithm_1(self) -> None:
        """Algorithm 1: learn every level from the last to the first; then, with re-checks, until all is quiet."""
        for h in reversed(range(self.sampler.horizon)):  # line 1
            trues = self.trues
            self.algorithm_2(h)  # line 2
        if not self.options.recheck:
            return
        # Beyond the paper (README, finding B): one run of Algorithm 2 on the first level must be without a True,
        while True:
            while self.trues > trues:
                trues = self.trues
                self.algorithm_2(0)
            # and so must a test of the returned policy, which mixes the pi_0^a over the start states.
            if not self.check_returned_policy():
                return

    def algorithm_2(self, h: int) -> None:
        """Algorithm 2: learn the predictors of level h, then draw D_h anew."""
        n, size = self.n_samples, len(self.cover[h])
        theta = self.arithmetic.zeros((self.sampler.n_actions, self.sampler.dimension))
        data: list[Moments] = []
        for a in range(self.sampler.n_actions):  # line 1
            if not self.options.memo:
                self.memory.forget(h)
            self.algorithm_3(h, a)  # line 2
            cover_a = [pi.deviate(h, a, self.greedy) for pi in self.cover[h]]  # line 4
            counts = [n] * size if self.options.mixture == "stratified" else self.draw_mixture(size)
            pairs = [  # lines 5 to 8
                self.collect(pi, count, "regression", h).moments.at(h)
                for pi, count in zip(cover_a, counts, strict=True)
                if count > 0
            ]
            theta[a] = self.fit(pairs, h)  # line 9
            data += pairs
        second_moment = self.second_moment(h, data)  # lines 10 to 13
        if (recalled := self.recall(LEVEL)) is not None:
            self.seconds = dict(zip(self.seconds, recalled.floats[:3].tolist(), strict=True))
            second_moment = recalled.floats[3:].reshape(second_moment.shape)
        else:
            self.record(LEVEL, (h,), (list(self.seconds.values()), second_moment))
        # Nothing above looked at theta_h, so all that is known of the level changes together.
        self.greedy = self.greedy.replace(h, self.arithmetic.greedy(theta))
        self.moments[h] = second_moment
        self.learned[h] = True
        assert len(self.cover[h]) == size, "only covers of later levels grow while level h is learned"
        self.report(h)

    def second_moment(self, h: int, data: list[Moments]) -> NDArray[Any]:
        """Draw D_h anew, the sum over the cover of each policy's second moment (Algorithm 2, lines 10 to 13).

        Beyond the paper: with `accumulate` the sum is there already, but for the initial policies at first; with
        `reuse` the states are those of the regression data, N for each policy and action.
        """
        total = self.arithmetic.zeros(self.moments.shape[1:])
        if self.options.accumulate and self.learned[h]:
            total += self.moments[h]
            return total
        n, n_each = self.n_samples, self.n_samples
        if self.options.reuse:
            n_each = n * self.sampler.n_actions
        else:
            data = [self.collect(pi, n, "states", h).moments for pi in self.cover[h]]
        if not self.replaying:
            for states in data:
                total += states.grams[0] / n_each
        return total

    def algorithm_3(self, h: int, a: int) -> None:
        """Algorithm 3: check that the later levels predict well where action a at level h leads."""
        if h == self.sampler.horizon - 1:
            return  # No later level: nothing to draw trajectories for.
        quiet = False
        while not quiet:
            quiet = True
            for member, pi in enumerate(self.cover[h]):  # line 1
                candidate = pi.deviate(h, a, self.greedy)
                later = range(h + 1, self.sampler.horizon)
                trajectories = self.collect(candidate, self.n_samples, "check", h)  # line 2
                for level in self.shifted_levels(trajectories, later, (h, a, member)):  # lines 3 to 6
                    self.add(candidate, level, trajectories)  # line 7
                    self.algorithm_2(level)  # line 8
                    # Beyond the paper: what was drawn before is stale now above `level`, so check again.
                    quiet = not self.options.recheck

    def check_returned_policy(self) -> bool:
        """Roll out the returned policy and test every level. Returns whether there was a True."""
        policy, every = self.greedy, range(self.sampler.horizon)
        trues = self.trues
        trajectories = self.collect(policy, self.n_samples, "final", FINAL)
        for level in self.shifted_levels(trajectories, every, (FINAL, FINAL, 0)):
            self.add(policy, level, trajectories)
            self.algorithm_2(level)
        return self.trues > trues

    def shifted_levels(self, trajectories: Drawn, levels: range, source: tuple[int, int, int]) -> Iterator[int]:
        """Invoke the oracle on (D_h', D~_h') for h' from the last of `levels` to the first; yield where it is True.

        The caller relearns the yielded level before the next is looked at, which only changes S of levels >= h':
        so the answers up to the first True can be computed in one go.
        """
        top = levels[-1]
        while top >= levels[0]:
            found, values = self.scan(trajectories.moments, top, levels[0])
            self.history.append(trajectories.call, *source, top, found if found >= 0 else levels[0], found >= 0, values)
            if found < 0:
                return
            self.trues += 1
            yield found
            top = found - 1

    def scan(self, trajectories: Moments, top: int, bottom: int) -> tuple[int, NDArray[np.float64]]:
        """Invoke the oracle on levels top, ..., bottom, until it says True; see `Solver.scan`."""
        if (recalled := self.recall(SCAN)) is not None:
            found, self.recalled_marginal = recalled.integers
            if found < 0:
                return found, recalled.floats
            self.history.note_potential(*recalled.floats[-2:].tolist())
            return found, recalled.floats[:-2]
        trajectories = trajectories.drawn()
        began = time.perf_counter()
        found, values = self.solver.scan(self.moments, trajectories, top, bottom)
        floats = [values]
        if found >= 0:
            floats.append(self.potentials(trajectories, found))
            self.history.note_potential(*floats[-1].tolist())
        self.seconds["oracle"] += time.perf_counter() - began
        if self.journal is not None:
            self.record(SCAN, (found, self.n_marginal), floats)
        return found, values

    def potentials(self, trajectories: Moments, level: int) -> NDArray[np.float64]:
        """Return log det(S + eps_r I) of a level before and after the M2 of a True is added; see `History`."""
        before = self.moments[level]
        after = before + trajectories.grams[trajectories.levels.index(level)] / trajectories.n
        return np.array([self.solver.potential(moment) for moment in (before, after)])

    def add(self, policy: Policy, level: int, trajectories: Drawn) -> None:
        """Pi_level <- Pi_level + {policy}, whose trajectories the oracle said True about."""
        limit = self.dmq.budget.max_policies
        if limit is not None and self.n_policies >= limit:
            raise OutOfBudget("max_policies")
        self.cover[level].append(policy)
        if not self.options.accumulate:
            # D_level will be drawn anew, and may lack what they have seen: they would say True for ever.
            self.memory.spend(trajectories.call)
            return
        self.moments[level] += self.added_moment(trajectories.moments, level)
        if (size := len(self.cover[level])) > self.largest_cover:
            raise AssertionError(f"level {level}: |Pi_h| = {size} exceeds its sure bound {self.largest_cover}")

    def added_moment(self, moments: Moments, level: int) -> NDArray[np.float64]:
        """Return the M2 of one level."""
        if (recalled := self.recall(ADDED)) is not None:
            return recalled.floats.reshape(self.moments[level].shape)
        added: NDArray[Any] = moments.grams[moments.levels.index(level)] / moments.n
        self.record(ADDED, (level,), (added,))
        return added

    def fit(self, pairs: list[Moments], h: int) -> NDArray[np.float64]:
        """Regression of equation 2 on all pairs of one action."""
        if (recalled := self.recall(FIT)) is not None:
            self.saw_reward = self.saw_reward or bool(recalled.integers[0])
            return recalled.floats
        total = pairs[0].drawn()
        for more in pairs[1:]:
            total = total + more
        began = time.perf_counter()
        theta = self.solver.fit(total, h)
        rewarded = total.returns[h].square > 0.0
        self.saw_reward = self.saw_reward or rewarded
        self.seconds["regression"] += time.perf_counter() - began
        self.record(FIT, (rewarded,), (theta,))
        return theta

    def draw_mixture(self, size: int) -> list[int]:
        """How often each of `size` policies is drawn in N size uniform draws (Algorithm 2, line 6)."""
        if self.n_samples * size >= 2**63:
            raise OutOfBudget("n_samples")
        self.mixtures += 1
        generator = self.dmq.stream.at(OWN_CALLS + self.mixtures).generator()
        rest, counts = self.n_samples * size, []
        for others in range(size, 1, -1):
            # Number of the draws that are left which go to this policy and to none of the others.
            counts.append(int(binomial(generator, np.array([rest]), np.array([1.0 / others]))[0]))
            rest -= counts[-1]
        return [*counts, rest]

    def asked_of(self, purpose: str, h: int) -> tuple[Sequence[int], Sequence[int]]:
        """Return the levels whose states are needed, and those whose returns are."""
        horizon = self.sampler.horizon
        if purpose == "final":
            return range(horizon), ()
        if purpose == "states":
            return (h,), ()
        if self.options.reuse:  # the same trajectories are both
            return range(h, horizon), (h,)
        return ((h,), (h,)) if purpose == "regression" else (range(h + 1, horizon), ())

    def collect(self, policy: Policy, n: int, purpose: str, h: int) -> Drawn:
        """Return n trajectories: from memory where they may serve again, or drawn on a stream of their own."""
        levels, returns_from = self.asked_of(purpose, h)
        if not self.remembered[purpose]:
            moments = self.draw(policy, n, purpose, levels, returns_from)
            return Drawn(self.calls, moments)
        # Rules of later levels than these do not matter.
        content = self.memory.content(policy, self.sampler.horizon if returns_from else levels[-1])
        known = self.memory.find(h, content) if self.serves[purpose] else None
        if known is not None:
            self.check_time()
            moments = self.memory.moments(known.call) or self.redrawn(*known, n, levels, returns_from)
            return Drawn(known.call, moments)
        moments = self.draw(policy, n, purpose, levels, returns_from)
        self.memory.note(h, content, self.calls, policy)
        if not isinstance(moments, Redrawn):
            self.memory.keep(self.calls, moments)
        return Drawn(self.calls, moments)

    def draw(self, policy: Policy, n: int, purpose: str, levels: Sequence[int], returns_from: Sequence[int]) -> Moments:
        """Draw n trajectories, within the budget, on a stream of their own."""
        budget = self.dmq.budget
        if budget.max_trajectories is not None and self.n_trajectories + n > budget.max_trajectories:
            raise OutOfBudget("max_trajectories")
        self.check_time()
        self.calls += 1
        stream = self.dmq.stream.at(self.calls)
        if self.replaying:
            self.count(purpose, n)
            return self.redrawn(self.calls, policy, n, levels, returns_from)
        began = time.perf_counter()
        if budget.max_seconds is None:
            moments = self.sampler.collect(policy, n, stream=stream, levels=levels, returns_from=returns_from)
            self.count(purpose, n)
        else:
            drawn = functools.partial(self.count, purpose)
            moments = collect_chunks(self.sampler, policy, n, stream, levels, returns_from, drawn)
        self.seconds["rollouts"] += time.perf_counter() - began
        return moments

    def redrawn(self, call: int, policy: Policy, n: int, levels: Sequence[int], returns_from: Sequence[int]) -> Redrawn:
        """Return the moments of an earlier call, drawn again when somebody looks at them."""
        return Redrawn(n, levels, functools.partial(self.draw_again, call, policy, n, levels, returns_from))

    def draw_again(
        self, call: int, policy: Policy, n: int, levels: Sequence[int], returns_from: Sequence[int]
    ) -> Moments:
        """Draw trajectories that were counted already: the memory dropped them, or the run was killed since."""
        if (kept := self.memory.moments(call)) is not None:
            return kept
        began = time.perf_counter()
        stream = self.dmq.stream.at(call)
        moments = collect_chunks(self.sampler, policy, n, stream, levels, returns_from, lambda _: self.check_time())
        self.seconds["rollouts"] += time.perf_counter() - began
        if self.options.memo or self.options.reuse:
            self.memory.keep(call, moments)
        return moments

    def count(self, purpose: str, n: int) -> None:
        """Count n trajectories that were drawn, and look at the clock."""
        self.trajectories[purpose] += n
        self.n_trajectories += n
        self.check_time()

    def check_time(self) -> None:
        """End the run when its seconds are used up; to hear what the journal tells is always time."""
        limit = self.dmq.budget.max_seconds
        if limit is not None and not self.replaying and time.perf_counter() - self.began > limit:
            raise OutOfBudget("max_seconds")

    @property
    def replaying(self) -> bool:
        """Whether the journal still tells what was decided, so that nothing needs to be drawn."""
        return self.journal is not None and self.journal.replaying

    def recall(self, kind: int) -> Record | None:
        """Return the journal's answer at this point of the run, if it has one."""
        return None if self.journal is None else self.journal.recall(kind, self.calls)

    def record(self, kind: int, integers: Sequence[int] = (), floats: Sequence[Any] = ()) -> None:
        """Note an answer in the journal, if there is one."""
        if self.journal is not None:
            self.journal.record(kind, time.perf_counter() - self.began, self.calls, integers, floats)

    @property
    def n_marginal(self) -> int:
        """Oracle answers that were too close to call."""
        return self.recalled_marginal + self.solver.n_marginal

    @property
    def n_policies(self) -> int:
        """Policies added to the covers, initial ones not counted."""
        return sum(map(len, self.cover)) - self.sampler.horizon * len(self.dmq.initial)

    def report(self, level: int) -> None:
        """Count a finished run of Algorithm 2 and tell the progress callback."""
        self.levels_learned += 1
        if self.dmq.progress is not None:
            seconds = time.perf_counter() - self.began
            self.dmq.progress(Progress(level, self.levels_learned, self.n_trajectories, self.n_policies, seconds))

    def result(self) -> Result:
        """Freeze what was learned: greedy where a level was learned, the initial policy's rule where not."""
        total = (time.perf_counter() if self.ended is None else self.ended) - self.began
        by_level = zip(self.learned, self.greedy.rules, self.dmq.initial[0].rules, strict=True)
        parameters = self.dmq.parameters
        return Result(
            policy=Policy([greedy if learned else initial for learned, greedy, initial in by_level]),
            theta=np.array([rule.theta for rule in self.greedy.rules if isinstance(rule, Greedy | ExactGreedy)]),
            cover=tuple(tuple(policies) for policies in self.cover),
            history=self.history.freeze(),
            status=self.status,
            variant=self.dmq.variant,
            options=asdict(self.dmq.options),
            parameters=asdict(parameters) | {"ratio": parameters.ratio},
            function_class=self.dmq.function_class.describe(),
            counts={
                "trajectories": dict(self.trajectories),
                "oracle_calls": self.history.n_calls,
                "trues": self.trues,
                "algorithm_2_runs": self.levels_learned,
                "sampler_calls": self.calls,
            },
            seconds=self.seconds | {"other": total - sum(self.seconds.values()), "total": total},
            key=self.dmq.stream.key,
            warnings=tuple(self.warnings()),
        )

    def warnings(self) -> Iterator[str]:
        """Yield the parameters' warnings, and what the run itself gives reason to doubt."""
        yield from self.dmq.warnings()
        unseen = [h for h, learned in enumerate(self.learned) if learned and not self.moments[h].any()]
        if self.n_policies == 0 and unseen:
            yield f"no policy was ever added, although every state seen at level(s) {unseen} had features 0"
        if any(self.learned) and not self.saw_reward:
            yield "no reward was ever seen: the returned policy is arbitrary"
        if self.n_marginal:
            yield f"{self.n_marginal} oracle answer(s) were too close to call"
        if self.journal is not None and self.journal.failure is not None:
            yield self.journal.failure


def as_class(value: object) -> FunctionClass:
    """Return `value` if it is a function class."""
    if not isinstance(value, FunctionClass) or isinstance(value, type):
        raise TypeError(f"function_class: expected a FunctionClass such as LinearClass(), got {value!r}")
    return value


def as_trajectories(name: str, value: int, *, bounded: bool) -> int:
    """Return a number of trajectories >= 1, below 2^63 where it is `bounded`."""
    if bounded:
        return count(name, value, 1, "; ExactSampler(env, arithmetic=digits) takes any")
    return integer(name, value, 1)


def as_real(name: str, value: float | Decimal) -> float:
    """Return a positive real number of any kind as float64."""
    if isinstance(value, Real | Decimal) and not isinstance(value, int | float | np.generic):
        value = float(value)
    return as_positive(name, value)


def is_sequence(value: object) -> bool:
    """Whether a value is a sequence, such as one of actions, and not text."""
    return isinstance(value, Sequence | np.ndarray) and not isinstance(value, str | bytes)


def thresholds(
    ratio: float | Decimal | None, eps_s: float | Decimal | None, eps_t: float | Decimal | None
) -> tuple[float, float]:
    """Return (eps_s, eps_t) from any sufficient part of (R, eps_s, eps_t)."""
    given = {
        name: as_real(name, value)
        for name, value in (("ratio", ratio), ("eps_s", eps_s), ("eps_t", eps_t))
        if value is not None
    }
    if len(given) == 3:
        raise ValueError("ratio, eps_s, eps_t: expected at most two of them, since ratio = eps_t / eps_s; got all")
    r = given.get("ratio", 2.0)
    small = given.get("eps_s", given["eps_t"] / r if "eps_t" in given else 1.0)
    large = given.get("eps_t", r * small)
    if not (0.0 < small < np.inf and 0.0 < large < np.inf and 0.0 < large / small < np.inf):
        raise ValueError(f"ratio, eps_s, eps_t: expected numbers within the range of float64, got {given}")
    return small, large


def as_key(rng: int | np.random.SeedSequence | np.random.Generator | Stream | None) -> Stream:
    """Return the stream at call 0 of the key that `rng` stands for."""
    if isinstance(rng, Stream):
        if rng.call or rng.chunk:
            raise ValueError(f"rng: expected a Stream at call 0 and chunk 0, got {rng!r}")
        return rng
    try:
        return Stream(rng)
    except (TypeError, ValueError) as error:
        raise type(error)(f"rng: {error}") from error


def key_of(journal: Path) -> Stream:
    """Return the stream at call 0 of a journal's key, or of a new key where there is none yet."""
    header = read_header(journal)
    return as_key(None) if header is None else Stream.from_key([int(word, 16) for word in header["key"]])


def raise_recursion_limit(depth: int) -> None:
    """Make room for `depth` frames; never lowers the limit, so threads do not disturb each other."""
    import sys

    sys.setrecursionlimit(max(sys.getrecursionlimit(), depth))
