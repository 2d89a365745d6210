"""`Learner`: the base class of `DMQ` and `SelfStopping`."""

from __future__ import annotations

import logging
import os
from abc import ABC, abstractmethod
from collections.abc import Callable
from concurrent.futures import Executor
from dataclasses import replace
from pathlib import Path
from typing import Any, Generic

import numpy as np

from dmq_fast._support.checks import as_path
from dmq_fast._support.json_text import check_form
from dmq_fast._support.progress import check_progress, showing
from dmq_fast._support.words import number_of
from dmq_fast.engine.budget import Budget
from dmq_fast.engine.journal import JournalError, read_header
from dmq_fast.engine.session import Progress, R, Resources, Session, is_repeatable, noting_the_end
from dmq_fast.environments.compiled import CompiledEnv
from dmq_fast.environments.finite import FiniteMDP
from dmq_fast.kernels import Stream
from dmq_fast.rewards import ValueRange
from dmq_fast.samplers import BatchEnvironment, Sampler, as_sampler
from dmq_fast.samplers.parallel import check_workers
from dmq_fast.samplers.streams import as_key

__all__ = ["Environment", "Learner", "Seed"]

LOGGER = logging.getLogger(__name__)

Environment = FiniteMDP | CompiledEnv | BatchEnvironment | Sampler
"""The environments that a learner takes."""

Seed = int | np.random.SeedSequence | np.random.Generator | Stream | None
"""The sources of a key that a learner takes."""


class Learner(ABC, Generic[R]):
    """An environment and a key, to learn from.

    Parameters
    ----------
    env : FiniteMDP, CompiledEnv, BatchEnvironment or Sampler, or what stands for one
        Source of the trajectories. An environment is simulated by the sampler that `samplers.as_sampler` chooses.
    rng : None, int, SeedSequence, Generator or Stream, optional
        Source of the run's 128-bit key.
    value_range, noise : optional
        Instead of what the environment declares of its rewards; see `RewardModel.of`.

    Attributes
    ----------
    sampler : Sampler
        The sampler of the environment, with range and noise of the rewards.
    stream : Stream
        The key, at its first call.
    redraws : bool
        Whether a resumed run may draw trajectories again, and does not have them all in its journal.
    """

    redraws = False

    def __init__(self, env: Any, rng: Seed, value_range: ValueRange = None, noise: float | None = None) -> None:
        self.sampler = as_sampler(env, value_range, noise)
        self.stream, self._has_key = as_key(rng), rng is not None
        self._session: Session[R] | None = None

    @abstractmethod
    def session(self, resources: Resources) -> Session[R]:
        """Open the journal, and return a run that has not begun."""

    def learn(
        self,
        *,
        max_trajectories: int | None = None,
        max_seconds: float | None = None,
        workers: int | None = None,
        executor: Executor | Callable[[], Executor] | None = None,
        journal: str | os.PathLike[str] | None = None,
        progress: Callable[[Progress], object] | bool | None = None,
    ) -> R:
        """Run from the beginning to the end, or to a budget; with a journal that exists, continue the run in it.

        No argument changes a decision of the run. The texts of `warnings` are logged first, at the level WARNING.
        Start, progress and end are logged at the level INFO.

        Parameters
        ----------
        max_trajectories : int, optional
            End the run after this many trajectories, with the policy learned so far.
        max_seconds : float, optional
            End the run after this many seconds, with the policy learned so far. Time in which the process is stopped,
            as by SIGSTOP, does not count.
        workers : int, optional
            Number of threads that draw the chunks of a call, or of processes for an environment in Python. They live as
            long as the run. By default the calling thread draws. A call of one chunk cannot be split; a chunk has up to
            16,384 trajectories, or the ``chunk_size`` of a `BatchEnvironment` (4,096 by default). Processes are
            spawned: the environment must be picklable, and a script that starts them needs ``if __name__ ==
            "__main__"``.
        executor : concurrent.futures.Executor, or callable, optional
            Executor that draws the chunks instead, or a function that makes one; see `samplers.ParallelSampler`.
        journal : str or path-like, optional
            File in which the run records its decisions. If the file exists, the run in it is continued, and the result
            is that of an undisturbed run, byte for byte. Without `rng`, the key in the file is used. Budgets may
            differ; the learner must be the same. See `engine.journal`.
        progress : callable or bool, optional
            Called with a `Progress` each time a level has been learned, or a self-stopping run has planned. True shows
            a line of text.

        Returns
        -------
        Result

        Raises
        ------
        TypeError, ValueError
            If an argument is of a wrong type or out of range; the message names it.
        KeyboardInterrupt
            On Ctrl-C; `result` still returns what was learned.
        JournalError
            If the journal is that of another run, has a damaged header, or is in use.
        """
        return self.run(
            self.resources(
                max_trajectories=max_trajectories,
                max_seconds=max_seconds,
                workers=workers,
                executor=executor,
                journal=journal,
                progress=progress,
            )
        )

    def resources(
        self,
        *,
        workers: int | None = None,
        executor: Executor | Callable[[], Executor] | None = None,
        journal: str | os.PathLike[str] | None = None,
        progress: Callable[[Progress], object] | bool | None = None,
        **limits: Any,
    ) -> Resources:
        """Return the arguments of `learn`, checked; `limits` are those of `Budget.of`.

        Raises
        ------
        TypeError, ValueError, ImportError, JournalError
            As `learn`.
        """
        in_float64 = self.sampler.arithmetic.is_float64
        budget = Budget.of(**limits, in_float64=in_float64)
        workers, executor = check_workers(workers, executor)
        check_progress(progress)
        place = as_journal(journal, in_float64=in_float64)
        if place is not None and self.redraws and not is_repeatable(self.sampler):
            raise ValueError(
                "journal: expected none, as the environment takes no seed and its trajectories cannot be drawn again, "
                f"got {str(place)!r}; a self-stopping run keeps its episodes"
            )
        stream = self.stream if self._has_key or place is None else key_of(place, self.stream)
        return Resources(self.sampler, stream, budget, workers, executor, place, progress)

    def run(self, resources: Resources) -> R:
        """Run with these resources; see `learn`."""
        horizon = self.sampler.horizon
        with showing(resources.progress, lambda progress: progress.text(horizon), LOGGER) as report:
            self._session = session = self.session(replace(resources, progress=report))
            LOGGER.info("start: %r", self)
            for warning in self.warnings():
                LOGGER.warning("%s", warning)
            try:
                with noting_the_end(session):
                    session.run()
            finally:
                session.end()
                LOGGER.info("end: %s, %s", session.status, number_of(session.ledger.n_trajectories, "trajectory"))
        return session.result().seen_in(self.sampler)

    def result(self) -> R:
        """Return the result of the last `learn`, also where Ctrl-C ("interrupted") or an exception ("failed") ended it.

        Raises
        ------
        RuntimeError
            If `learn` was never called.
        """
        if self._session is None:
            raise RuntimeError("result: learn was never called")
        return self._session.result().seen_in(self.sampler)

    def warnings(self) -> tuple[str, ...]:
        """Return a warning for each known way in which a run with these arguments fails."""
        return ()

    def __getstate__(self) -> dict[str, Any]:
        """Return all attributes but the last run, which holds workspace, threads and files: a copy starts afresh."""
        return vars(self) | {"_session": None}


def as_journal(value: str | os.PathLike[str] | None, *, in_float64: bool) -> Path | None:
    """Return the place of the journal, absolute: an environment may change the working directory."""
    if value is None:
        return None
    path = as_path("journal", value)
    if not in_float64:
        raise ValueError(f"journal: expected none in extended precision, since it holds float64 only, got {value!r}")
    return path.absolute()


def key_of(journal: Path, otherwise: Stream) -> Stream:
    """Return the stream at call 0 of a journal's key, or another where there is no journal yet."""
    header = read_header(journal)
    if header is None:
        return otherwise
    try:
        check_form("header", header, {"key": [str, str]})
        return Stream.from_key([int(word, 16) for word in header["key"]])
    except (ValueError, OverflowError) as error:
        raise JournalError(journal, f"damaged: {error}", "give another path") from error
