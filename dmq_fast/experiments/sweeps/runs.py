"""One run of a sweep, and what is stored of it."""

from __future__ import annotations

import datetime
import functools
import json
import math
import socket
import time
import traceback
from collections.abc import Sequence
from typing import Any, NamedTuple

from dmq_fast._version import __version__
from dmq_fast.experiments.sweeps.algorithms import Environment, Factory, Outcome
from dmq_fast.experiments.sweeps.errors import spelled, writable
from dmq_fast.experiments.sweeps.spec import Cell, make_environment, seeds_of
from dmq_fast.kernels import Stream
from dmq_fast.run.appraisal import appraise
from dmq_fast.samplers.streams import LAST_CALL

__all__ = ["CRASHED", "FAILED", "FAILURES", "Run", "lost", "perform"]

FAILED = "failed"
"""Status of a run that an exception ended."""

CRASHED = "crashed"
"""Status of a run whose process died."""

FAILURES = (FAILED, CRASHED)

WORTH = ("value", "value_standard_error", "optimal_value", "gap")
"""What `appraise` finds and a row keeps."""


class Run(NamedTuple):
    """A cell and a seed; `factory` is the algorithm's, which a worker need not know by name."""

    cell: Cell
    seed: int
    factory: Factory


def perform(runs: Sequence[Run]) -> list[dict[str, Any]]:
    """Do runs one after the other and return a row for each; runs in the worker."""
    return [one(run) for run in runs]


def one(run: Run) -> dict[str, Any]:
    """Do one run; whatever it raises is in the row."""
    clock = Clock()
    try:
        outcome = attempt(run, clock)
    except (Exception, SystemExit) as error:
        outcome = failure(FAILED, error, traceback.format_exc())
    return described(run) | outcome | {"seconds": clock.total(), "timings": clock.phases | outcome["timings"]}


def attempt(run: Run, clock: Clock) -> dict[str, Any]:
    """Make environment and algorithm, learn, and find the value of what was learned."""
    environment_seed, algorithm_seed = seeds_of(run.seed)
    env = make_environment(run.cell, environment_seed)
    algorithm = run.factory(env, algorithm_seed, **run.cell.algorithm_parameters)
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
        raise ValueError(f"learn: expected a status other than {FAILED} and {CRASHED}, got {row['status']}")
    if row["value"] is not None and not math.isfinite(row["value"]):
        raise ValueError(f"learn: expected a finite value, got {row['value']}")
    # What cannot be stored fails this run, not the sweep.
    json.dumps(row, default=plain)
    if not 0 <= row["n_trajectories"] <= 1e308:
        raise ValueError(f"learn: expected n_trajectories in [0, 1e308], got {row['n_trajectories']}")
    return row


def worth_of(env: Environment, outcome: Outcome, n: int, seed: int) -> dict[str, Any]:
    """Return the value of what was learned, exact or estimated from n trajectories, and the optimum."""
    policy = outcome.policy
    worth = appraise(env, policy, n, Stream(seed).at(LAST_CALL))
    if worth["value"] is None and outcome.value is not None:
        worth["value"] = float(outcome.value)
    return {name: worth[name] for name in WORTH}


def described(run: Run) -> dict[str, Any]:
    """The part of a row that says which run it is."""
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
        "version": __version__,
        "host": socket.gethostname(),
        "ended": datetime.datetime.now(datetime.UTC).isoformat(timespec="milliseconds"),
    }


def failure(status: str, error: BaseException, trace: str | None = None) -> dict[str, Any]:
    """The other part, of a run that failed or crashed."""
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


def lost(run: Run, status: str, error: BaseException) -> dict[str, Any]:
    """Return the row of a run that never came back."""
    return described(run) | failure(status, error)


def plain(value: Any) -> Any:
    """Turn NumPy's numbers and arrays into what JSON knows."""
    if hasattr(value, "tolist"):
        return value.tolist()
    raise TypeError(f"expected what JSON can hold, got {type(value).__name__}")


to_json = functools.partial(json.dumps, default=plain, separators=(",", ":"))
"""How structured columns are written."""


class Clock:
    """Seconds by phase."""

    def __init__(self) -> None:
        self.began = self.last = time.perf_counter()
        self.phases: dict[str, Any] = {}

    def tick(self, phase: str) -> None:
        """End a phase."""
        now = time.perf_counter()
        self.phases[phase], self.last = now - self.last, now

    def total(self) -> float:
        """Seconds since the beginning."""
        return time.perf_counter() - self.began
