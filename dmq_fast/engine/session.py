"""The surroundings of a run: `Progress`, the resources of one call of `learn`, and `Session`, that call."""

from __future__ import annotations

import contextlib
import math
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from concurrent.futures import Executor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

from dmq_fast._support.words import number_of
from dmq_fast.engine.budget import Budget
from dmq_fast.engine.fingerprint import fingerprint
from dmq_fast.engine.journal import Journal
from dmq_fast.engine.ledger import Ledger
from dmq_fast.kernels import Stream
from dmq_fast.results.result import COMPLETE, Result
from dmq_fast.samplers import ParallelSampler, Sampler
from dmq_fast.samplers.parallel import spread

__all__ = ["Progress", "Resources", "Session", "is_repeatable", "noting_the_end"]


class Progress(NamedTuple):
    """Argument of `progress`, called whenever Algorithm 2 has finished a level, or a self-stopping run has planned.

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
        Of a self-stopping run, for which the numbers of levels and policies are 0: "explore", "refine" or "test".
    upside : float
        Of a self-stopping run: how much one outcome that no episode showed could add to the value at the start.
    """

    level: int
    levels_learned: int
    n_trajectories: int
    n_policies: int
    seconds: float
    phase: str = ""
    upside: float = math.nan

    def text(self, horizon: int) -> str:
        """Return the progress of a run with this horizon on one line."""
        if self.phase:
            return (
                f"{self.phase}: {number_of(self.n_trajectories, 'trajectory')}, unseen outcomes may add "
                f"{self.upside:.3g}, {self.seconds:.1f} s"
            )
        return (
            f"learned level {self.level} of {horizon}, {number_of(self.n_trajectories, 'trajectory')}, "
            f"{number_of(self.n_policies, 'policy')}, {self.seconds:.1f} s"
        )


@dataclass(frozen=True)
class Resources:
    """The arguments of a call of `learn`, checked: trajectories, key, limits, workers, journal, progress."""

    sampler: Sampler
    stream: Stream
    budget: Budget
    workers: int | None = None
    executor: Executor | Callable[[], Executor] | None = None
    journal: Path | None = None
    progress: Callable[[Progress], object] | bool | None = None

    def open_journal(self, variant: str, settings: dict[str, Any]) -> Journal | None:
        """Open the journal of a run of this variant with these settings, if it is to have one."""
        if self.journal is None:
            return None
        header = {
            "variant": variant,
            **settings,
            "key": [f"{word:#018x}" for word in self.stream.key],
            "environment": fingerprint(self.sampler),
            "budget": asdict(self.budget),
        }
        return Journal(self.journal, header, getattr(self.sampler.unwrapped().env, "memory", None))


R = TypeVar("R", bound=Result)


class Session(ABC, Generic[R]):
    """One call of `learn`: an algorithm, what surrounds it, and the result.

    Parameters
    ----------
    resources : Resources
    ledger : Ledger
        Its journal is open.

    Attributes
    ----------
    status : str
        As in `Result`.
    """

    def __init__(self, resources: Resources, ledger: Ledger) -> None:
        self.resources, self.ledger = resources, ledger
        self.sampler = spread(resources.sampler, resources.workers, resources.executor)
        self.status = "running"
        self.ended: float | None = None

    @abstractmethod
    def run(self) -> None:
        """Run the algorithm until it ends or a budget is used up."""

    @abstractmethod
    def result(self) -> R:
        """Return what was learned so far."""

    def end(self) -> None:
        """Stop the clock, close the journal and shut down the workers of the run."""
        self.ended = time.perf_counter()
        self.ledger.close(self.status in COMPLETE)
        if self.sampler is not self.resources.sampler and isinstance(self.sampler, ParallelSampler):
            self.sampler.close()

    def report(self, level: int, levels_learned: int, phase: str = "", upside: float = math.nan) -> None:
        """Call `progress`."""
        if callable(self.resources.progress):
            ledger = self.ledger
            seconds = time.perf_counter() - ledger.began
            self.resources.progress(
                Progress(level, levels_learned, ledger.n_trajectories, ledger.n_policies, seconds, phase, upside)
            )

    def common(self, warnings: tuple[str, ...]) -> dict[str, Any]:
        """Return the fields that the results of all sessions have: status, seconds by phase, key and warnings."""
        if (journal := self.ledger.journal) is not None:  # its records that were lost, and why it could not be written
            warnings = (*warnings, *filter(None, (journal.mixed, journal.damage, journal.failure)))
            if journal.resumed and not is_repeatable(self.resources.sampler):
                warnings = (*warnings, RECORDED)
        total = (time.perf_counter() if self.ended is None else self.ended) - self.ledger.began
        other = total - sum(self.ledger.seconds.values())
        return {
            "status": self.status,
            "seconds": self.ledger.seconds | {"other": other, "total": total},
            "key": self.resources.stream.key,
            "warnings": warnings,
        }


RECORDED = (
    "this run was resumed in an environment that takes no seed: episodes from before are those of the journal, later "
    "ones are others than an undisturbed run would have played"
)
"""Warning about a run that its journal cannot repeat."""


def is_repeatable(sampler: Sampler) -> bool:
    """Return whether the environment of a sampler gives the same trajectories again, as all do that take seeds."""
    return bool(getattr(sampler.unwrapped().env, "repeatable", True))


class HasStatus(Protocol):
    """A run with a status."""

    status: str


@contextlib.contextmanager
def noting_the_end(run: HasStatus) -> Iterator[None]:
    """Set the status of a run that an exception ends: "interrupted" by Ctrl-C, else "failed"."""
    try:
        yield
    except Exception:
        run.status = "failed"
        raise
    except BaseException:
        run.status = "interrupted"
        raise
