"""Runs what a specification asks for and the store does not hold yet."""

from __future__ import annotations

import math
import os
import random
import time
from collections import Counter, deque
from collections.abc import Callable, Mapping
from concurrent.futures import FIRST_COMPLETED, BrokenExecutor, CancelledError, Executor, Future, wait
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from dmq_fast._support.arguments import integer
from dmq_fast._version import __version__
from dmq_fast.experiments.sweeps import algorithms
from dmq_fast.experiments.sweeps.runs import CRASHED, FAILURES, Run, lost, perform
from dmq_fast.experiments.sweeps.spec import Spec, read
from dmq_fast.experiments.sweeps.store import Store
from dmq_fast.experiments.sweeps.workers import Workers, WorkerStartError
from dmq_fast.samplers.parallel import workers_of

__all__ = ["Summary", "SweepProgress", "sweep"]

BATCH_SECONDS = 1.0
"""How long a task should take: long beside what it costs to send one, short beside what a kill may cost."""

BATCH_RUNS = 256
"""Most runs of a task."""


class SweepProgress(NamedTuple):
    """What `progress` is called with.

    `seconds_left` adds up the mean times of finished runs of the same cells; the runs of the `unseen` cells, of which
    none has finished yet, are not in it. None where nothing is known.
    """

    done: int
    total: int
    failed: int
    seconds: float
    seconds_left: float | None
    unseen: int


@dataclass(frozen=True)
class Summary:
    """What a sweep has come to.

    Attributes
    ----------
    name : str
    out : Path
    runs : int
        Runs that the specification asks for; `ran` of them were done now.
    ran : int
    statuses : dict
        Number of these runs by status.
    seconds : float
        Wall-clock time of this call.
    warnings : tuple of str
    """

    name: str
    out: Path
    runs: int
    ran: int
    statuses: dict[str, int]
    seconds: float
    warnings: tuple[str, ...]

    @property
    def failed(self) -> int:
        """Number of runs that failed or crashed."""
        return sum(self.statuses.get(status, 0) for status in FAILURES)


def sweep(
    spec: str | os.PathLike[str] | Mapping[str, Any] | Spec,
    out: str | os.PathLike[str],
    *,
    workers: int | None = None,
    executor: Executor | None = None,
    retry: bool = False,
    progress: Callable[[SweepProgress], object] | None = None,
) -> Summary:
    """Do all runs of a specification that are not stored in a directory yet.

    Parameters
    ----------
    spec : path, mapping or Spec
        A TOML file or its contents; see `dmq_fast.experiments.sweeps.spec`.
    out : str or path-like
        Directory of the store, made where there is none. It may hold runs of other specifications.
    workers : int, optional
        Spawned processes, with one BLAS thread each; 0: run in this one. Default: as many as there are CPUs.
    executor : concurrent.futures.Executor, optional
        Run there instead: threads, loky, dask's ``Client.get_executor()``, mpi4py and the like. It is left open; that
        its workers have one BLAS thread is up to whoever made it. With `workers`, the death of a worker costs one
        run; one that breaks an executor, as it does a ``ProcessPoolExecutor``, ends the sweep.
    retry : bool
        Do runs again that failed or crashed.
    progress : callable, optional
        Called with a `SweepProgress` at the beginning and about once a second.

    Returns
    -------
    Summary

    Raises
    ------
    SpecError
        If the specification is wrong. Nothing was run.
    StoreError, OSError
        If the store cannot be used; WriteError, an OSError, if it cannot be written any more.
    KeyboardInterrupt
        On Ctrl-C. The same call goes on from what is stored, as it does after a kill. `workers` are stopped at once,
        an `executor` finishes what it is at.
    BrokenExecutor
        If `executor` breaks.

    Notes
    -----
    Several sweeps may share a directory on one machine. They take their runs in random order and look before each
    task which of them others have stored meanwhile, so they share the work but for what they happen to do at the same
    time; that is stored once.
    """
    began = time.perf_counter()
    if workers is not None and executor is not None:
        raise ValueError("workers, executor: expected at most one of them, got both")
    workers = None if workers is None else integer("workers", workers, 0)
    if executor is not None and not isinstance(executor, Executor):
        raise TypeError(f"executor: expected an Executor, got {executor!r}")
    if progress is not None and not callable(progress):
        raise TypeError(f"progress: expected a callable, got {progress!r}")
    spec, out = read(spec), Path(out)
    spec.check()
    with Store(out) as store:
        store.note(spec)
        if retry:
            store.forget_failures(spec)
        job = Sweep(spec, store, progress, began)
        if job.missing:
            own = executor is None
            pool = executor if executor is not None else own_executor(workers, len(job.missing))
            try:
                job.run(pool)
            except BaseException:
                if isinstance(pool, Workers):
                    pool.kill()
                raise
            finally:
                if own:
                    pool.shutdown()
        job.report()
        known = store.statuses()
        statuses = Counter(known[cell.id, seed] for cell in spec.cells for seed in spec.seeds)
        others = [version for version in store.versions() if version != __version__]
    warnings = [f"some of the runs stored in {out} are of dmq_fast {', '.join(others)}"] if others else []
    seconds = time.perf_counter() - began
    return Summary(spec.name, out, spec.n_runs, job.ran, dict(sorted(statuses.items())), seconds, tuple(warnings))


class Sweep:
    """The state of a sweep under way."""

    def __init__(
        self, spec: Spec, store: Store, progress: Callable[[SweepProgress], object] | None, began: float
    ) -> None:
        self.store, self.progress, self.began = store, progress, began
        known = store.statuses()
        factories = {cell.algorithm: algorithms.find(cell.algorithm) for cell in spec.cells}
        runs = [Run(cell, seed, factories[cell.algorithm]) for cell in spec.cells for seed in spec.seeds]
        self.missing = [run for run in runs if (run.cell.id, run.seed) not in known]
        random.shuffle(self.missing)  # see the notes of `sweep`; what a run gives does not depend on its turn
        # Halves of tasks that were lost, smaller and smaller, until what takes a worker down is alone.
        self.broken: deque[list[Run]] = deque()
        self.flying: dict[Future[list[dict[str, Any]]], list[Run]] = {}
        self.total, self.ran = len(runs), 0
        self.failed = sum(known.get((run.cell.id, run.seed)) in FAILURES for run in runs)
        self.left = Counter(run.cell.id for run in self.missing)
        self.timings = store.timings()
        self.workers = 1

    def run(self, executor: Executor) -> None:
        """Do the missing runs."""
        here = isinstance(executor, Here)
        self.workers = 1 if here else workers_of(executor)
        window = 1 if here else 2 * self.workers
        self.report()
        try:
            while True:
                while len(self.flying) < window and (batch := self.next_batch()):
                    self.flying[executor.submit(perform, batch)] = batch
                if not self.flying:
                    return
                done, _ = wait(self.flying, timeout=1.0, return_when=FIRST_COMPLETED)
                for future in done:
                    self.take(future, self.flying.pop(future))
                self.report()
        finally:
            for future in self.flying:
                future.cancel()

    def next_batch(self) -> list[Run]:
        """Return the runs of the next task; none when none are left to hand out."""
        if self.broken:
            return self.broken.popleft()
        while self.missing:
            # Smaller towards the end: workers end together, and what sweeps that share the work do twice is little.
            most = min(BATCH_RUNS, math.ceil(len(self.missing) / (8 * self.workers)))
            batch: list[Run] = []
            seconds = 0.0
            while self.missing and len(batch) < most and seconds < BATCH_SECONDS:
                batch.append(self.missing.pop())
                seconds += self.mean(batch[-1].cell.id) or BATCH_SECONDS
            known = self.store.known([(run.cell.id, run.seed) for run in batch])
            self.left.subtract(cell for cell, _ in known)
            if batch := [run for run in batch if (run.cell.id, run.seed) not in known]:
                return batch
        return []

    def take(self, future: Future[list[dict[str, Any]]], batch: list[Run]) -> None:
        """Store what a task has come to."""
        try:
            rows = future.result()
        except (BrokenExecutor, WorkerStartError) as error:
            error.add_note("What has finished is stored, and the same call goes on from there.")
            raise
        except (Exception, CancelledError) as error:
            if len(batch) > 1:
                middle = len(batch) // 2
                self.broken.extend((batch[:middle], batch[middle:]))
                return
            rows = [lost(batch[0], CRASHED, error)]
        self.store.add(rows)
        self.ran += len(rows)
        for row in rows:
            cell = row["cell"]
            self.left[cell] -= 1
            self.failed += row["status"] in FAILURES
            if row["seconds"] is not None:
                count, seconds = self.timings.get(cell, (0, 0.0))
                self.timings[cell] = count + 1, seconds + row["seconds"]

    def mean(self, cell: str) -> float | None:
        """Mean seconds of the finished runs of a cell."""
        count, seconds = self.timings.get(cell, (0, 0.0))
        return seconds / count if count else None

    def report(self) -> None:
        """Tell the progress callback."""
        if self.progress is not None:
            done = self.total - self.left.total()
            left, unseen = time_left(self.left, self.timings, self.workers)
            self.progress(SweepProgress(done, self.total, self.failed, time.perf_counter() - self.began, left, unseen))


def time_left(
    left: Mapping[str, int], timings: Mapping[str, tuple[int, float]], workers: int
) -> tuple[float | None, int]:
    """Estimate the seconds that `workers` need for what is left; with it, the number of cells nothing is known of.

    By the mean times of finished runs of the same cells, and no shorter than the longest single one.
    """
    rest = {cell: count for cell, count in left.items() if count > 0}
    means = {cell: timings[cell][1] / timings[cell][0] for cell in rest if cell in timings}
    unseen = len(rest) - len(means)
    if rest and not means:
        return None, unseen
    return max([sum(rest[cell] * mean for cell, mean in means.items()) / workers, *means.values()], default=0.0), unseen


class Here(Executor):
    """Runs at once what is submitted, in the calling thread."""

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Run and return a future that is done."""
        future: Future[Any] = Future()
        try:
            future.set_result(fn(*args, **kwargs))
        except Exception as error:
            future.set_exception(error)
        return future


def own_executor(workers: int | None, n_runs: int) -> Executor:
    """Make what runs are done on where no executor was given."""
    if workers == 0:
        return Here()
    if workers is None:
        workers = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return Workers(min(workers, n_runs))
