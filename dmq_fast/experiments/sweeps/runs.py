"""One run of a sweep, and the row that is stored of it."""

from __future__ import annotations

import contextlib
import datetime
import functools
import importlib
import math
import os
import socket
import time
import traceback
from collections.abc import Sequence
from typing import Any, NamedTuple, TypeVar

from dmq_fast._support.files import writable
from dmq_fast._support.imported import imported
from dmq_fast._support.json_text import from_json, to_json
from dmq_fast._support.workers import ending, in_worker
from dmq_fast.environments import registry
from dmq_fast.experiments.sweeps import algorithms
from dmq_fast.experiments.sweeps.algorithms import Environment, Factory, Outcome
from dmq_fast.experiments.sweeps.spec import Cell, make_environment, seeds_of
from dmq_fast.kernels import Stream
from dmq_fast.kernels.build import build
from dmq_fast.learners.named import named_class
from dmq_fast.results.appraisal import appraise
from dmq_fast.samplers.base import close
from dmq_fast.samplers.streams import LAST_CALL

__all__ = [
    "CRASHED",
    "FAILED",
    "FAILURES",
    "TIMEOUT",
    "SweepRun",
    "crashed_row",
    "do_runs",
    "overdue_row",
    "row_json",
    "spelled",
]

T = TypeVar("T")

FAILED = "failed"
"""Status of a run that raised an exception."""

CRASHED = "crashed"
"""Status of a run whose process died."""

TIMEOUT = "timeout"
"""Status of a run that was ended as it went on beyond its budget of seconds."""

FAILURES = (FAILED, CRASHED, TIMEOUT)

WORTH = ("value", "value_standard_error", "uniform_value", "optimal_value", "gap")
"""Those entries of `appraise` that a row keeps."""


class SweepRun(NamedTuple):
    """A cell and a seed.

    A factory that was registered comes with them, as a worker may not have it registered. One that is named by its
    module is None, and imported by the worker.
    """

    cell: Cell
    seed: int
    factory: Factory | None

    @classmethod
    def of(cls, cell: Cell, seed: int) -> SweepRun:
        """Return the run of a cell with a seed."""
        name = cell.algorithm
        by_name = name not in algorithms.REGISTRY and not name.startswith("__main__:")
        return cls(cell, seed, None if by_name else algorithms.find(name))

    @property
    def name(self) -> str:
        """Text that no other run of a sweep has."""
        return f"{self.cell.id} {self.seed}"


def prepare(runs: Sequence[SweepRun], version: str) -> None:
    """Raise ImportError if this process cannot do runs that a process with this version of dmq_fast sends.

    So what is missing in a process is told from what fails in a run.
    """
    try:
        if version != build():
            raise ValueError(f"expected dmq_fast {version}, got {build()}")
        for run in runs:
            cell = run.cell
            function_class = cell.algorithm_parameters.get("function_class") if cell.algorithm == "dmq" else None
            find(cell.environment, None if run.factory else cell.algorithm, function_class)
    except (TypeError, ValueError, ImportError) as error:
        raise ImportError(f"process {os.getpid()} on {socket.gethostname()}: {error}") from error


@functools.lru_cache(maxsize=1024)
def find(environment: str, algorithm: str | None, function_class: str | None) -> None:
    """Import what a run names; raise ImportError, TypeError or ValueError if it is not there."""
    if environment.startswith(registry.PREFIXES):
        importlib.import_module("gymnasium" if environment.startswith(registry.GYMNASIUM_PREFIX) else "bsuite")
    elif environment not in registry.REGISTRY:
        if ":" not in environment:
            raise ValueError(f"environment: {environment} is registered in the sweeping process only")
        imported("environment", environment)
    if algorithm is not None:
        imported("algorithm", algorithm)
    named_class(function_class)


def do_runs(runs: Sequence[SweepRun], version: str) -> list[dict[str, Any]]:
    """Do runs one after the other, in the worker process, and return the row of each.

    Raises
    ------
    ImportError
        As `prepare` does; then no run was begun.
    """
    prepare(runs, version)
    return [within_limit(run) for run in runs]


def within_limit(run: SweepRun) -> dict[str, Any]:
    """Do one run and return its row; a worker process, which its parent replaces, ends at the limit of the cell."""
    limit = run.cell.limit
    if limit is None or not in_worker():
        return do_run(run)
    with ending(limit, run.name):
        return do_run(run)


def do_run(run: SweepRun) -> dict[str, Any]:
    """Do one run and return its row; an exception becomes part of the row."""
    clock = Clock()
    try:
        outcome = attempt(run, clock)
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # such as SystemExit, or what asyncio raises in a task that is cancelled
        outcome = failure_entries(FAILED, error, traceback.format_exc())
    return identity(run) | outcome | {"seconds": clock.total(), "timings": clock.phases | outcome["timings"]}


def attempt(run: SweepRun, clock: Clock) -> dict[str, Any]:
    """Make the environment, learn, and close the environment."""
    environment_seed, algorithm_seed = seeds_of(run.seed)
    env = make_environment(run.cell, environment_seed)
    try:
        row = learned(run, env, algorithm_seed, clock)
    except BaseException:
        with contextlib.suppress(Exception):  # the first exception is the one to report
            close(env)
        raise
    try:
        close(env)
    except Exception as error:  # it does not undo what was learned
        row["warnings"].append(f"close of the environment failed: {spelled(error)}")
    return row


def learned(run: SweepRun, env: Environment, algorithm_seed: int, clock: Clock) -> dict[str, Any]:
    """Make the algorithm, learn, and appraise the learned policy."""
    factory = run.factory or algorithms.find(run.cell.algorithm)
    algorithm = factory(env, algorithm_seed, **run.cell.algorithm_parameters)
    clock.tick("making")
    outcome = Outcome.of(algorithm.learn(run.cell.budget))
    clock.tick("learning")
    worth = worth_of(env, outcome, run.cell.evaluate, algorithm_seed)
    clock.tick("evaluation")
    row = {
        "status": writable(str(outcome.status)),
        "error": None,
        **worth,
        "n_trajectories": int(outcome.n_trajectories),
        "counts": dict(outcome.counts),
        "timings": {"phases": dict(outcome.seconds)},
        "warnings": list(outcome.warnings),
        "details": dict(outcome.details),
    }
    if row["status"] in FAILURES:
        raise ValueError(f"learn: expected a status other than {', '.join(FAILURES)}, got {row['status']}")
    if row["value"] is not None and not math.isfinite(row["value"]):
        raise ValueError(f"learn: expected a finite value, got {row['value']}")
    # An outcome that cannot be stored must fail this run, not the sweep. What comes back from JSON can be pickled, and
    # unpickled where the modules of users are not.
    row = from_json(row_json(row))
    if not 0 <= row["n_trajectories"] <= 1e308:
        raise ValueError(f"learn: expected n_trajectories in [0, 1e308], got {row['n_trajectories']}")
    return row  # type: ignore[no-any-return]


def worth_of(env: Environment, outcome: Outcome, n: int, seed: int) -> dict[str, Any]:
    """Return the values of what was learned, exact or from n trajectories, of uniform play and of the best policy."""
    policy = outcome.policy
    worth = appraise(env, policy, n, Stream(seed).at(LAST_CALL))
    if worth["value"] is None and outcome.value is not None:
        worth["value"] = float(outcome.value)
    return {name: worth[name] for name in WORTH}


def identity(run: SweepRun) -> dict[str, Any]:
    """Return the part of a row that identifies the run."""
    cell = run.cell
    environment_seed, algorithm_seed = seeds_of(run.seed)
    return {
        "cell": cell.id,
        "seed": run.seed,
        "environment": cell.environment,
        "environment_parameters": cell.environment_parameters,
        "environment_seed": environment_seed if cell.environment_seed is None else cell.environment_seed,
        "algorithm": cell.algorithm,
        "algorithm_parameters": cell.algorithm_parameters,
        "algorithm_seed": algorithm_seed,
        "max_trajectories": cell.budget.max_trajectories,
        "max_seconds": cell.budget.max_seconds,
        "evaluate": cell.evaluate,
        "version": build(),
        "host": socket.gethostname(),
        "ended": datetime.datetime.now(datetime.UTC).isoformat(timespec="milliseconds"),
    }


def spelled(error: BaseException) -> str:
    """Return the last line of an exception's traceback, with type and message, then its notes, one on each line."""
    shown = traceback.TracebackException.from_exception(error)
    notes, shown.__notes__ = shown.__notes__, None  # otherwise the notes would be the last lines
    words = [list(shown.format_exception_only())[-1].strip(), *(notes if isinstance(notes, list) else ())]
    return writable("\n".join(map(str, words)))


def failure_entries(status: str, error: BaseException, trace: str | None = None) -> dict[str, Any]:
    """Return the other part of the row, for a run that failed, crashed or timed out."""
    return {
        "status": status,
        "error": spelled(error),
        **dict.fromkeys((*WORTH, "n_trajectories")),
        "counts": {},
        "seconds": None,
        "timings": {},
        "warnings": [],
        "details": {} if trace is None else {"traceback": trace},
    }


def crashed_row(run: SweepRun, error: BaseException) -> dict[str, Any]:
    """Return the row of a run whose process died."""
    return identity(run) | failure_entries(CRASHED, error)


def overdue_row(run: SweepRun, trace: str) -> dict[str, Any]:
    """Return the row of a run that was ended at its limit, where its traceback was this."""
    cell = run.cell
    assert cell.limit is not None and cell.budget.max_seconds is not None
    error = TimeoutError(
        f"the run went on {cell.limit:g} s after its beginning: max_seconds = {cell.budget.max_seconds:g} and "
        f"grace = {cell.grace:g}"
    )
    return identity(run) | failure_entries(TIMEOUT, error, writable(trace)) | {"seconds": cell.limit}


def row_json(value: Any) -> str:
    """Return the JSON of a structured column."""
    return to_json(value, separators=(",", ":"))


class Clock:
    """Measures the seconds of each phase of a run."""

    def __init__(self) -> None:
        self.began = self.last = time.perf_counter()
        self.phases: dict[str, Any] = {}

    def tick(self, phase: str) -> None:
        """End a phase, which began with the end of the one before."""
        now = time.perf_counter()
        self.phases[phase], self.last = now - self.last, now

    def total(self) -> float:
        """Return the seconds since the beginning."""
        return time.perf_counter() - self.began
