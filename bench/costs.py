"""Measure what calls of the ridge kernels cost, in CPU time and memory, by dimension d, arms K and contexts B.

    python bench/costs.py

Prints microseconds of CPU time a call (the least of several rounds), and the megabytes of the object. The last lines
are of 100,000 rounds on hashed features, in a plain loop: two scores and an update of 30 entries of 2^18.
"""

from __future__ import annotations

import resource
import time
import tracemalloc
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import numpy as np
from common import heading, interleaved, line, options

from dmq_fast.kernels import Ridge, RidgeArms, SparseRidge

Call = tuple[str, Callable[[], object]]


def of_ridge(d: int) -> Iterator[Call]:
    """One regression."""
    rng, model = np.random.default_rng(d), Ridge(d, 1.0)
    rows, targets = rng.normal(size=(1000, d)) / np.sqrt(d), rng.normal(size=1000)
    model.update_rows(rows, targets)
    yield "update", partial(model.update, rows[0], 1.0)
    yield "leverage of a row", partial(model.leverage, rows[0])
    yield "sample", partial(model.sample, rng)
    yield "upper of 1,000 rows", partial(model.upper, rows, 0.5)
    yield "update_rows of 1,000 rows", partial(model.update_rows, rows, targets)
    yield "discount", partial(model.discount, 0.999)


def of_arms(d: int, n_arms: int) -> Iterator[Call]:
    """Several, one an arm."""
    rng, arms = np.random.default_rng(d), RidgeArms(n_arms, d, 1.0)
    rows = rng.normal(size=(1000, d)) / np.sqrt(d)
    arms.update_rows(rng.integers(n_arms, size=1000), rows, rng.normal(size=1000))
    yield "update", partial(arms.update, 0, rows[0], 1.0)
    yield "select of a context", partial(arms.select, rows[0], 0.5)
    yield "select of B = 100 contexts", partial(arms.select, rows[:100], 0.5)
    yield "select of B = 1,000 contexts", partial(arms.select, rows, 0.5)
    yield "discount, with lambda", partial(arms.discount, 0.999, with_regularization=True)


def megabytes(make: Callable[[], object]) -> float:
    """Return the size of an object."""
    tracemalloc.start()
    made = make()
    size = tracemalloc.get_traced_memory()[0] / 1e6
    tracemalloc.stop()
    del made
    return size


def resident() -> float:
    """Return the memory of this process in megabytes; NaN where /proc does not show it."""
    shown = Path("/proc/self/statm")
    return int(shown.read_text().split()[1]) * resource.getpagesize() / 1e6 if shown.exists() else float("nan")


def hashed(rounds: int) -> None:
    """Print the seconds of a bandit on hashed features, and those of a refinement after it."""
    rng, d = np.random.default_rng(0), 2**18
    truth, columns, values = rng.normal(size=d), rng.integers(d, size=(rounds, 30)), np.ones(30)
    rewards = truth[columns].sum(axis=1) + 0.1 * rng.normal(size=rounds)
    memory, model = resident(), SparseRidge(d, 1.0)
    began = time.process_time()
    for places, reward in zip(columns, rewards.tolist(), strict=True):
        model.predict_one(places, values)
        model.leverage_one(places, values)
        model.update(places, values, reward)
    played, grown = time.process_time() - began, resident() - memory
    before, began = model.error_bound(), time.process_time()
    after = model.refine(1e-6)
    refined = time.process_time() - began
    print(
        f"\n{rounds:,} rounds on 2^18 hashed features: {played:.1f} s, {model.nbytes / 1e6:.0f} MB, "
        f"the process grew by {grown:.0f} MB"
    )
    print(f"refine: {refined:.1f} s, error bound {before:.3g} before and {after:.1g} after")


def main(rounds: int, hashed_rounds: int) -> None:
    """Print the table."""
    cases: list[tuple[str, Iterator[Call], Callable[[], object]]] = [
        (f"`Ridge({d})`", of_ridge(d), partial(Ridge, d, 1.0)) for d in (16, 64, 256, 1024)
    ]
    for n_arms, d in ((10, 16), (10, 64), (100, 64), (10, 256)):
        cases.append((f"`RidgeArms({n_arms}, {d})`", of_arms(d, n_arms), partial(RidgeArms, n_arms, d, 1.0)))
    heading(["object", "MB", "call", "µs"])
    for name, calls, make in cases:
        size = f"{megabytes(make):.3g}"
        for call, work in calls:
            once = interleaved({call: work}, 1, 2, time.process_time)[call][0]
            number = max(1, int(2e-3 / (once + 1e-7)))
            best = interleaved({call: work}, number, rounds, time.process_time)[call][0] * 1e6
            line([name, size, call, f"{best:.3g}" if best < 1000 else f"{best:,.0f}"])
    hashed(hashed_rounds)


if __name__ == "__main__":
    given = options(__doc__, rounds=9, hashed_rounds=100_000)
    main(given.rounds, given.hashed_rounds)
