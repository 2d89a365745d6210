"""`sweep`: does the runs of a specification that the store does not hold yet."""

from __future__ import annotations

import functools
import logging
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

from dmq_fast._support.checks import as_path, integer
from dmq_fast._support.cluster import Cluster, killed, reached
from dmq_fast._support.progress import check_progress, showing
from dmq_fast._support.threads import cpus
from dmq_fast._support.words import number_of
from dmq_fast._support.workers import WorkerDied, Workers, WorkerStartError
from dmq_fast.experiments.sweeps.runs import FAILURES, SweepRun, crashed_row, do_runs, overdue_row, spelled
from dmq_fast.experiments.sweeps.spec import Cell, Spec, check_shard, read
from dmq_fast.experiments.sweeps.store import Store
from dmq_fast.kernels.build import build
from dmq_fast.samplers.parallel import check_executor, made, workers_of

__all__ = ["Summary", "SweepProgress", "sweep"]

LOGGER = logging.getLogger(__name__)

BATCH_SECONDS = 1.0
"""Target duration of a task: long compared with sending it to a worker, short compared with losing it to a kill."""

BATCH_RUNS = 256
"""Largest number of runs in a task."""


class SweepProgress(NamedTuple):
    """The argument of the function `progress` of `sweep`.

    `seconds_left` is estimated from the mean times of the finished runs of each cell. It leaves out the `unseen` cells,
    of which no run has finished yet, and is None if all remaining cells are such.
    """

    done: int
    total: int
    failed: int
    seconds: float
    seconds_left: float | None
    unseen: int


@dataclass(frozen=True)
class Summary:
    """The result of a sweep.

    Attributes
    ----------
    name : str
    out : Path
    runs : int
        Number of runs in the specification, or in its shard; `ran` of them were done by this call.
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
        """Number of runs that failed, crashed, or were ended at their limit."""
        return sum(self.statuses.get(status, 0) for status in FAILURES)


def sweep(
    spec: str | os.PathLike[str] | Mapping[str, Any] | Spec,
    out: str | os.PathLike[str],
    *,
    workers: int | None = None,
    executor: Executor | Callable[[], Executor] | None = None,
    shard: tuple[int, int] | None = None,
    retry: bool = False,
    progress: Callable[[SweepProgress], object] | bool | None = None,
) -> Summary:
    """Do the runs of a specification that a directory does not hold yet, and store them there.

    Parameters
    ----------
    spec : path, mapping or Spec
        A TOML file or its contents; see `dmq_fast.experiments.sweeps.spec`.
    out : str or path-like
        Directory of the store, made if there is none. It may hold runs of other specifications.
    workers : int, optional
        Number of worker processes, each with one BLAS thread; 0 does all runs in the calling process. Default: one for
        each CPU that this process may use, by its affinity and by the quota of its control group.
    executor : concurrent.futures.Executor or callable, optional
        Executor that does the runs instead: threads, loky, dask's ``Client.get_executor()``, mpi4py and the like; the
        number of BLAS threads of its workers is up to the caller. It is not shut down. A function without arguments is
        called to make one, which is shut down. With `workers`, the death of a worker costs one run; dask tries the run
        on several workers before. A death that breaks another executor, such as a ``ProcessPoolExecutor``, ends the
        sweep.
    shard : (int, int), optional
        Do the part i of n of the runs only, for (i, n) with 0 <= i < n. The parts are disjoint, and the same at every
        call. Each may have a directory of its own, on a machine of its own; `merge` makes one store of them.
    retry : bool
        Repeat the runs that failed, crashed, or were ended at their limit of time.
    progress : callable or bool, optional
        Called with a `SweepProgress` at the beginning and about once a second. True shows a line of text.

    Returns
    -------
    Summary

    Raises
    ------
    SpecError
        If the specification is wrong. Nothing was run.
    StoreError, OSError
        If the store cannot be opened; WriteError, an OSError, if writing to it fails later.
    KeyboardInterrupt
        On Ctrl-C. The same call does the remaining runs, as it does after a kill. `workers` are stopped at once, an
        `executor` finishes its current tasks.
    BrokenExecutor
        If `executor` breaks, or a worker cannot do the runs, as it has another version of
        dmq_fast or cannot import what they name. Nothing is stored of runs that did not take place.

    Notes
    -----
    Several sweeps on one machine may share a directory. Each does its runs in random order and skips, before each task,
    the runs that others have stored meanwhile. So they share the work, except for runs that two of them do at the same
    time; these are stored once.

    With an executor of dask, the sweep waits while there is no worker, and logs this once at the level WARNING under
    the name `dmq_fast`. Start, progress and end are logged at the level INFO.

    Examples
    --------
    >>> import tempfile
    >>> from dmq_fast import experiments
    >>> spec = {
    ...     "seeds": 2,
    ...     "environments": [{"name": "lock", "horizon": [3, 4]}],
    ...     "algorithms": [{"name": "dmq", "n_samples": 20}],
    ... }
    >>> with tempfile.TemporaryDirectory() as directory:
    ...     summary = experiments.sweep(spec, directory, workers=0)
    ...     rows = experiments.load(directory)
    >>> summary.statuses, [row["value"] for row in rows]
    ({'ended': 4}, [0.7, 0.7, 0.7, 0.7])
    """
    began = time.perf_counter()
    if workers is not None and executor is not None:
        raise ValueError("workers, executor: expected at most one of them, got both")
    workers = None if workers is None else integer("workers", workers, 0)
    if executor is not None:
        check_executor(executor)
    check_progress(progress)
    shard = check_shard(shard)
    out = as_path("out", out).absolute()  # the modules and environments of users may change the working directory
    spec = read(spec)
    spec.check()
    runs = list(spec.runs(shard))
    with Store(out) as store, showing(progress, progress_text, LOGGER) as shown:
        store.note(spec, shard)
        if retry:
            store.forget_failures(runs)
        job = Sweep(runs, store, shown, began)
        LOGGER.info("start: %s of %s into %s", number_of(len(job.missing), "run"), spec.name, out)
        if job.missing:
            if executor is None:
                executor = functools.partial(own_executor, workers, len(job.missing))
            pool = made(executor) if callable(executor) else reached(executor)
            try:
                job.run(pool)
            except BaseException:
                if callable(executor) and isinstance(pool, Workers):
                    pool.kill()
                raise
            finally:
                if callable(executor):
                    pool.shutdown(cancel_futures=True)
        job.report()
        known = store.statuses()
        statuses = Counter(known[cell.id, seed] for cell, seed in runs)
        LOGGER.info("end: %s, %s", number_of(job.ran, "run"), ", ".join(f"{n} {one}" for one, n in statuses.items()))
        others = [version for version in store.versions() if version != build()]
    warnings = [f"some of the runs stored in {out} are of dmq_fast {', '.join(others)}"] if others else []
    seconds = time.perf_counter() - began
    return Summary(spec.name, out, len(runs), job.ran, dict(sorted(statuses.items())), seconds, tuple(warnings))


class Sweep:
    """The state of a sweep under way."""

    def __init__(
        self,
        wanted: list[tuple[Cell, int]],
        store: Store,
        progress: Callable[[SweepProgress], object] | None,
        began: float,
    ) -> None:
        self.store, self.progress, self.began = store, progress, began
        known = store.statuses()
        runs = [SweepRun.of(cell, seed) for cell, seed in wanted]
        self.missing = [run for run in runs if (run.cell.id, run.seed) not in known]
        random.shuffle(self.missing)  # see the notes of `sweep`; the result of a run does not depend on the order
        # Tasks whose worker died, halved again and again until the run that kills its worker is alone.
        self.broken: deque[list[SweepRun]] = deque()
        # Tasks that dask has given up, perhaps because of others on the same workers: each is done once more, alone.
        self.suspects: deque[list[SweepRun]] = deque()
        self.alone: list[SweepRun] | None = None
        self.flying: dict[Future[list[dict[str, Any]]], list[SweepRun]] = {}
        self.total, self.ran = len(runs), 0
        self.failed = sum(known.get((run.cell.id, run.seed)) in FAILURES for run in runs)
        self.left = Counter(run.cell.id for run in self.missing)
        self.timings = store.timings()
        self.workers = 1

    def run(self, executor: Executor) -> None:
        """Do the missing runs."""
        self.report()
        try:
            self.greet(executor)
            while True:
                self.fill(executor)
                if not self.flying:
                    return
                self.wait(executor)
                self.report()
        except KeyboardInterrupt:
            self.keep_finished()
            raise
        except (BrokenExecutor, WorkerStartError) as error:
            error.add_note("Finished runs are stored; the same call does the remaining ones.")
            raise
        finally:
            for future in self.flying:
                future.cancel()

    def greet(self, executor: Executor) -> None:
        """Ask an executor for the number of its workers; dask may have none yet."""
        if isinstance(executor, Cluster):
            executor.await_workers()
        self.workers = 1 if isinstance(executor, Here) else workers_of(executor)

    def fill(self, executor: Executor) -> None:
        """Submit tasks, so that each worker has one to go on with."""
        window = 1 if isinstance(executor, Here) else 2 * self.workers
        while len(self.flying) < window and (batch := self.next_batch()):
            self.submit(executor, batch)
        if self.suspects and not self.flying:
            self.alone = self.suspects.popleft()
            self.submit(executor, self.alone)

    def submit(self, executor: Executor, batch: list[SweepRun]) -> None:
        """Submit one task."""
        self.flying[executor.submit(do_runs, batch, build())] = batch

    def wait(self, executor: Executor) -> None:
        """Wait up to a second for tasks, and take the rows of those that have ended."""
        cluster = executor if isinstance(executor, Cluster) else None
        done, _ = wait(self.flying, timeout=1.0, return_when=FIRST_COMPLETED)
        for future in done:
            self.take(future, self.flying[future])
            del self.flying[future]
        if cluster is not None and not done:
            self.workers = cluster.watch() or 1

    def next_batch(self) -> list[SweepRun]:
        """Return the runs of the next task, an empty list when no run is left."""
        if self.broken:
            return self.broken.popleft()
        while self.missing:
            # Tasks get smaller towards the end, so that workers end together and two sweeps repeat little work.
            most = min(BATCH_RUNS, math.ceil(len(self.missing) / (8 * self.workers)))
            batch: list[SweepRun] = []
            seconds = 0.0
            while self.missing and len(batch) < most and seconds < BATCH_SECONDS:
                batch.append(self.missing.pop())
                seconds += self.mean(batch[-1].cell.id) or BATCH_SECONDS
            known = self.store.known([(run.cell.id, run.seed) for run in batch])
            self.left.subtract(cell for cell, _ in known)
            if batch := [run for run in batch if (run.cell.id, run.seed) not in known]:
                return batch
        return []

    def take(self, future: Future[list[dict[str, Any]]], batch: list[SweepRun]) -> None:
        """Store the rows of a finished task, or split a task whose worker died.

        Only a death is stored as a crash: of all else that a task may raise, its runs did not take place.
        """
        try:
            rows = future.result()
        except (BrokenExecutor, WorkerStartError):
            raise
        except CancelledError as error:  # as dask does when it loses its scheduler
            raise BrokenExecutor(
                "the executor has cancelled runs; it may have lost its workers or its scheduler"
            ) from error
        except Exception as error:
            if not (isinstance(error, WorkerDied) or killed(error)):
                raise BrokenExecutor(f"a worker cannot do the runs: {spelled(error)}") from error
            if isinstance(error, WorkerDied) and error.overdue is not None:
                late = next(run for run in batch if run.name == error.overdue.name)
                if rest := [run for run in batch if run is not late]:
                    self.broken.append(rest)
                self.add([overdue_row(late, error.overdue.trace)])
                return
            if len(batch) > 1:
                self.broken.extend(halves(batch))
                return
            if killed(error) and batch is not self.alone:
                self.suspects.append(batch)
                return
            rows = [crashed_row(batch[0], error)]
        self.add(rows)

    def add(self, rows: list[dict[str, Any]]) -> None:
        """Store the rows of runs that have ended."""
        self.store.add(rows)
        self.ran += len(rows)
        for row in rows:
            cell = row["cell"]
            self.left[cell] -= 1
            self.failed += row["status"] in FAILURES
            if row["seconds"] is not None:
                count, seconds = self.timings.get(cell, (0, 0.0))
                self.timings[cell] = count + 1, seconds + row["seconds"]

    def keep_finished(self) -> None:
        """Store the rows of finished tasks, but no failure: what stops the sweep may have caused it."""
        for future in self.flying:
            if succeeded(future):
                self.store.add(row for row in future.result() if row["status"] not in FAILURES)

    def mean(self, cell: str) -> float | None:
        """Return the mean seconds of the finished runs of a cell."""
        count, seconds = self.timings.get(cell, (0, 0.0))
        return seconds / count if count else None

    def report(self) -> None:
        """Call the progress function."""
        if self.progress is not None:
            done = self.total - self.left.total()
            left, unseen = time_left(self.left, self.timings, self.workers)
            self.progress(SweepProgress(done, self.total, self.failed, time.perf_counter() - self.began, left, unseen))


def succeeded(future: Future[Any]) -> bool:
    """Return whether a task has ended without an exception."""
    return future.done() and not future.cancelled() and future.exception() is None


def progress_text(progress: SweepProgress) -> str:
    """Return the progress of a sweep on one line."""
    text = f"{progress.done:,} of {number_of(progress.total, 'run')}"
    if progress.failed:
        text += f", {progress.failed:,} failed"
    text += f", {clock(progress.seconds)}"
    if progress.done == progress.total:
        return text
    if progress.seconds_left is None:
        return f"{text}, no run has finished yet: time left unknown"
    if progress.unseen:
        unseen = number_of(progress.unseen, "cell")
        return f"{text}, more than {clock(progress.seconds_left)} left ({unseen} not yet known)"
    return f"{text}, about {clock(progress.seconds_left)} left"


def clock(seconds: float) -> str:
    """Return a time in seconds, minutes or hours."""
    if seconds < 100:
        return f"{seconds:.0f} s" if seconds >= 10 else f"{seconds:.1f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 100 else f"{minutes / 60:.1f} h"


def halves(batch: list[SweepRun]) -> tuple[list[SweepRun], list[SweepRun]]:
    """Return both halves of the runs of a task."""
    middle = len(batch) // 2
    return batch[:middle], batch[middle:]


def time_left(
    left: Mapping[str, int], timings: Mapping[str, tuple[int, float]], workers: int
) -> tuple[float | None, int]:
    """Estimate the seconds that `workers` need for the remaining runs; return it and the number of unseen cells.

    The estimate uses the mean times of the finished runs of each cell, and is at least the longest of these means.
    """
    rest = {cell: count for cell, count in left.items() if count > 0}
    means = {cell: timings[cell][1] / timings[cell][0] for cell in rest if cell in timings}
    unseen = len(rest) - len(means)
    if rest and not means:
        return None, unseen
    return max([sum(rest[cell] * mean for cell, mean in means.items()) / workers, *means.values()], default=0.0), unseen


class Here(Executor):
    """An executor that runs each call at once, in the calling thread."""

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Run a call and return its finished future."""
        future: Future[Any] = Future()
        try:
            future.set_result(fn(*args, **kwargs))
        except Exception as error:
            future.set_exception(error)
        return future


def own_executor(workers: int | None, n_runs: int) -> Executor:
    """Return the executor of a sweep that was given none."""
    if workers == 0:
        return Here()
    return Workers(min(cpus() if workers is None else workers, n_runs))
