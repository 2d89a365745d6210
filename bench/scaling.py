"""Growth of self-stopping runs whose levels share data, as exponents: a table of docs/homogeneous.md.

    python bench/scaling.py          # a few minutes
    python bench/scaling.py H S      # some of H, S, K, d

Each quantity runs through a geometric grid while the others are fixed: H levels of river swim, S states with H = 2 S, K
actions of random tables, and d features that are no table: river swim with the rows of a random rotation. An exponent
is the slope of a least-squares line through the upper half of the grid, both axes logarithmic. Seconds are CPU time,
the median of three seeds; a run cannot do less than its episodes ask for, so the last exponent is that of one episode.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import common  # sets the number of BLAS threads before NumPy loads
import numpy as np
from adaptive_families import same_table

import dmq_fast as dmq

SEEDS = 3


class Quantity(NamedTuple):
    """A grid, and the environment at one of its values."""

    grid: Sequence[int]
    environment: Callable[[int], Any]


def rotated(n: int) -> dmq.environments.FiniteMDP:
    """Return river swim with n states, seen through a random rotation: n dense features."""
    env = dmq.environments.river_swim(n_states=n, horizon=20)
    rows, _ = np.linalg.qr(np.random.default_rng(0).standard_normal((n, n)))
    return dmq.environments.FiniteMDP(env.P, env.R, [rows] * env.horizon, env.start)


QUANTITIES = {
    "H": Quantity((10, 20, 40, 80, 160), lambda n: dmq.environments.river_swim(n_states=6, horizon=n)),
    "S": Quantity((6, 9, 12, 18, 24), lambda n: dmq.environments.river_swim(n_states=n, horizon=2 * n)),
    "K": Quantity((2, 4, 8, 16, 32), lambda n: same_table(0, 10, n, 20)),
    "d": Quantity((6, 9, 12, 18, 24), rotated),
}


def exponent(grid: Sequence[int], numbers: Sequence[float]) -> float:
    """Return the slope of log numbers over log grid, in the upper half."""
    half = len(grid) // 2
    return float(np.polyfit(np.log(grid[half:]), np.log(numbers[half:]), 1)[0])


def measured(env: Any, mode: str) -> tuple[float, float]:
    """Return median episodes and CPU seconds of a run."""
    found = []
    for seed in range(SEEDS):
        began = time.process_time()
        episodes = dmq.learn(env, 0.05, mode=mode, rng=seed, max_seconds=120).n_trajectories
        found.append((episodes, time.process_time() - began))
    return tuple(np.median(found, axis=0).tolist())


def main() -> None:
    """Measure what is asked for, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("quantities", nargs="*", help="some of " + ", ".join(QUANTITIES))
    parser.add_argument("--mode", default="strict")
    given = parser.parse_args()
    common.heading(["", "grid", "episodes", "CPU seconds", "exponent of episodes", "of seconds", "of both, an episode"])
    for name in given.quantities or QUANTITIES:
        grid, environment = QUANTITIES[name]
        episodes, seconds = zip(*(measured(environment(n), given.mode) for n in grid), strict=True)
        each = [s / e for s, e in zip(seconds, episodes, strict=True)]
        slopes = [f"{exponent(grid, numbers):.2f}" for numbers in (episodes, seconds, each)]
        ends = f"{episodes[0]:,.0f} to {episodes[-1]:,.0f}", f"{seconds[0]:.3g} to {seconds[-1]:.3g}"
        common.line([name, f"{grid[0]} to {grid[-1]}", *ends, *slopes])


if __name__ == "__main__":
    main()
