"""Growth of whole runs, as exponents of CPU time and memory: a table of docs/benchmarks.md.

    python bench/scaling.py                     # all, about fifteen minutes
    python bench/scaling.py frugal adaptive     # some of sound, frugal, adaptive

The quantities are H, K, d, N, the number of initial policies Pi, and the number of states S of a level. Each runs
through a geometric grid, while everything else is fixed. An exponent is the slope of a least-squares line through the
upper half of the grid, both axes logarithmic. Time is CPU time, the sum over three seeds of the minimum of three runs.
Memory is the growth of the resident set to its peak in the first run of a fresh process (VmHWM, Linux).

A run cannot do less than its trajectories ask for, so the exponent of their number is given as well. The time of one
trajectory has an exponent of its own, PER_TRAJECTORY, which is derived from the algorithm and not measured; `at most`
is the sum of the two. A `*` marks a time that grows faster than that, by more than .1.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

os.environ.update(dict.fromkeys(("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"), "1"))

import numpy as np

import dmq_fast as dmq
from dmq_fast import environments as E

SEEDS, ROUNDS, TOLERANCE = 3, 3, 0.1
# Growth below this is noise of the allocator.
LEAST_MEMORY = 2**20


class Quantity(NamedTuple):
    """A quantity, its grid, and the environment and arguments at one of its values."""

    grid: Sequence[int]
    environment: Callable[[int], Any]
    arguments: Callable[[int], dict[str, Any]]


def sequences(n: int, horizon: int = 10) -> dict[str, Any]:
    """Return the argument of a run with n initial policies, random action sequences."""
    return {"initial": np.random.default_rng(0).integers(4, size=(n, horizon)).tolist()}


def nothing(_: int) -> dict[str, Any]:
    """Return no arguments."""
    return {}


QUANTITIES = {
    "H": Quantity((10, 20, 40, 80, 160, 320), lambda n: E.combination_lock(n, 4, rng=0), nothing),
    "K": Quantity((4, 8, 16, 32, 64, 128), lambda n: E.combination_lock(20, n, rng=0), nothing),
    "d": Quantity((8, 16, 32, 64, 128, 256), lambda n: E.combination_lock(10, 4, rng=0, dimension=n), nothing),
    "N": Quantity(
        (100, 400, 1600, 6400, 25600, 102400), lambda n: E.combination_lock(20, 4, rng=0), lambda n: {"n_samples": n}
    ),
    "Pi": Quantity((1, 2, 4, 8, 16, 32), lambda n: E.combination_lock(10, 4, rng=0), sequences),
    "S": Quantity((20, 40, 80, 160, 320, 640), lambda n: E.linear_q(n_states=n, rng=0), nothing),
}

# H: its levels. K: the actions compared at a greedy step or in a plan. d: the second moment has d^2 numbers, and one
# factorisation serves N trajectories, or a plan. S: the tables of the environment, read once, have S^2 numbers, more
# than a plan has distinct rows of features.
DMQ = {"H": 1, "K": 1, "d": 2, "N": 0, "Pi": 0, "S": 2}
PER_TRAJECTORY = {"sound": DMQ, "frugal": DMQ, "adaptive": {"H": 1, "K": 1, "d": 2, "S": 2}}
SETTINGS: dict[str, dict[str, Any]] = {
    "sound": {"variant": "sound", "n_samples": 100},
    "frugal": {"variant": "frugal", "n_samples": 100},
    "adaptive": {"epsilon": 0.05, "delta": 0.05},
}


class Measured(NamedTuple):
    """CPU seconds and trajectories of all seeds, and the growth of memory in bytes."""

    seconds: float
    trajectories: int
    memory: int


def resident(name: str) -> int:
    """Return VmRSS or VmHWM of this process in bytes."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(f"{name}:"):
            return int(line.split()[1]) * 1024
    raise OSError(f"/proc/self/status: expected a line {name}, got none")


def measure(variant: str, name: str, value: int) -> Measured:
    """Measure the runs at one point of a grid."""
    dmq.DMQ(E.combination_lock(3, 2, rng=0), rng=0, **SETTINGS[variant]).learn()  # what a first run imports
    quantity = QUANTITIES[name]
    env = quantity.environment(value)
    arguments = SETTINGS[variant] | quantity.arguments(value)
    Path("/proc/self/clear_refs").write_text("5")  # the peak is that from now on
    before = resident("VmRSS")
    seconds, trajectories, memory = 0.0, 0, 0
    for seed in range(SEEDS):
        times = []
        for _ in range(ROUNDS):
            began = time.process_time()
            result = dmq.DMQ(env, rng=seed, **arguments).learn()
            times.append(time.process_time() - began)
            memory = memory or resident("VmHWM") - before
        seconds += min(times)
        trajectories += result.n_trajectories
    return Measured(seconds, trajectories, memory)


def slope(grid: Sequence[int], values: Sequence[float]) -> float:
    """Return the exponent over the upper half of a grid."""
    half = len(grid) // 2
    return float(np.polyfit(np.log(grid[half:]), np.log(values[half:]), 1)[0])


def row(variant: str, name: str, grid: Sequence[int], found: Sequence[Measured]) -> str:
    """Return a row of the table."""
    drawn, seconds = slope(grid, [one.trajectories for one in found]), slope(grid, [one.seconds for one in found])
    most = drawn + PER_TRAJECTORY[variant][name]
    enough = all(one.memory >= LEAST_MEMORY for one in found[len(grid) // 2 :])
    memory = f"{slope(grid, [one.memory for one in found]):.2f}" if enough else "below noise"
    times = f"{found[0].seconds / SEEDS:.2g} to {found[-1].seconds / SEEDS:.2g}"
    return (
        f"| `{variant}` | {name} | {grid[0]} to {grid[-1]:,} | {times} | {drawn:.2f} | {most:.2f} | "
        f"{seconds:.2f}{' *' if seconds > most + TOLERANCE else ''} | {found[-1].memory / 2**20:.0f} | {memory} |"
    )


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("variants", nargs="*", help=f"some of {', '.join(SETTINGS)}; default: all")
    parser.add_argument("--only", choices=QUANTITIES, help="one quantity")
    options = parser.parse_args()
    print("| variant | of | grid | seconds | trajectories | time at most | time | MiB | memory |")
    print("|---|---|---|---|---|---|---|---|---|")
    for variant in options.variants or SETTINGS:
        for name in PER_TRAJECTORY[variant]:
            if options.only not in (None, name):
                continue
            grid = QUANTITIES[name].grid
            # A process for each point, so that no peak hides in memory that was freed before.
            with ProcessPoolExecutor(1, multiprocessing.get_context("spawn"), max_tasks_per_child=1) as pool:
                found = [pool.submit(measure, variant, name, value).result() for value in grid]
            print(row(variant, name, grid, found), flush=True)


if __name__ == "__main__":
    main()
