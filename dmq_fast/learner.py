"""`DMQ`: the arguments of a run, and one call of `learn`."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np

from dmq_fast._support.bars import Bar, check_progress, showing
from dmq_fast._support.json_text import check_form
from dmq_fast.arguments import ADAPTIVE, variant_of
from dmq_fast.engine.budget import Budget
from dmq_fast.engine.journal import JournalError, read_header
from dmq_fast.environments.compiled import CompiledEnv
from dmq_fast.environments.finite import FiniteMDP
from dmq_fast.function_class import FunctionClass
from dmq_fast.kernels import Stream
from dmq_fast.policy import Policy
from dmq_fast.results.result import Result
from dmq_fast.samplers import BatchEnvironment, Sampler, as_sampler
from dmq_fast.samplers.parallel import check_workers
from dmq_fast.samplers.streams import as_key
from dmq_fast.sessions import Adaptive, MonteCarlo, Progress, Resources, Session

__all__ = ["DMQ", "Progress"]

LOGGER = logging.getLogger(__name__)


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
        Options of the algorithm, described in `covers.options.Options`; the variant's by default. `reuse` implies the
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
        every other argument must be the same. See `engine.journal`.
    progress : callable or bool, optional
        Called with a `Progress` each time a level has been learned, or the adaptive variant has planned. True shows a
        progress bar, on terminals and in notebooks, and needs tqdm.
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
        progress: Callable[[Progress], object] | bool | None = None,
        rng: int | np.random.SeedSequence | np.random.Generator | Stream | None = None,
    ) -> None:
        self.sampler = as_sampler(env_or_sampler)
        in_float64 = self.sampler.arithmetic.is_float64
        aim = {"epsilon": epsilon, "delta": delta, "strict": strict, "p_min": p_min}
        constants = {"n_samples": n_samples, "ratio": ratio, "eps_s": eps_s, "eps_t": eps_t}
        constants |= {"eps_r": eps_r, "ridge": ridge}
        choices: dict[str, Any] = {"recheck": recheck, "accumulate": accumulate, "reuse": reuse, "memo": memo}
        choices |= {"oracle": oracle, "mixture": mixture}
        others = {"initial": initial, "function_class": function_class, "max_policies": max_policies}
        self.variant = variant_of(variant, aim | constants | choices | others)
        self.journal = as_journal(journal, in_float64=in_float64)
        self.stream = as_key(rng) if rng is not None or self.journal is None else key_of(self.journal)
        self.settings: MonteCarlo | Adaptive
        if self.variant == ADAPTIVE:
            self.settings = Adaptive(self.sampler, aim)
        else:
            self.settings = MonteCarlo(
                self.variant, self.sampler, self.stream, constants, choices, initial, function_class
            )
        self.budget = Budget.of(
            max_trajectories=max_trajectories,
            max_policies=max_policies,
            max_seconds=max_seconds,
            in_float64=in_float64,
        )
        self.workers, self.executor = check_workers(workers, executor, self.sampler)
        check_progress(progress)
        self.progress = progress
        self._session: Session | None = None

    def learn(self) -> Result:
        """Run the algorithm from its beginning; with a journal that exists, continue the run in it.

        What `warnings` yields is logged first, at the level WARNING.

        Returns
        -------
        Result
            Its `status` is "finished", or the name of the budget that was used up ("n_samples" where a mixture of
            N |Pi_h| trajectories would not fit 64 bits), or "contradiction" (docs/adaptive.md).

        Raises
        ------
        KeyboardInterrupt
            On Ctrl-C; `result` still returns what was learned.
        JournalError
            If the journal is that of another run, has a damaged header, or is in use.
        """
        with showing(self.progress, self.bar) as progress:
            resources = Resources(
                self.variant, self.sampler, self.stream, self.budget, self.workers, self.executor, progress
            )
            self._session = session = self.settings.session(resources, self.journal)
            for warning in self.warnings():
                LOGGER.warning("%s", warning)
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

    def bar(self) -> Bar:
        """Return a progress bar of a run: over the levels, or without an end where the run stops by itself."""
        horizon = self.sampler.horizon
        if self.variant == ADAPTIVE:
            return Bar(None, lambda progress: progress.n_trajectories, lambda progress: progress.text(horizon))
        return Bar(horizon, lambda progress: horizon - progress.level, lambda progress: progress.text(horizon))

    def warnings(self) -> Iterator[str]:
        """Yield a warning for each known way in which these parameters fail (docs/findings.md, A and G)."""
        return self.settings.warnings()

    def __getstate__(self) -> dict[str, Any]:
        """Return everything but the last session, which holds compiled workspace: a copy starts afresh."""
        return vars(self) | {"_session": None}


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
    if header is None:
        return as_key(None)
    try:
        check_form("header", header, {"key": [str, str]})
        return Stream.from_key([int(word, 16) for word in header["key"]])
    except (ValueError, OverflowError) as error:
        raise JournalError(journal, f"damaged: {error}", "give another path") from error
