"""Episodes and failures of the adaptive variant, by family of environments: the tables of docs/adaptive.md.

    python bench/adaptive.py                          # all families, 20 seeds, both modes
    python bench/adaptive.py --seeds 1000 lock-20     # one family
    python bench/adaptive.py --strict attacks         # a group: shipped, attacks, held-out, after, later

A run fails if the loss of its policy exceeds epsilon = .05. Brackets are 95 % Wilson intervals.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from adaptive_families import GROUPS

from dmq_fast import DMQ
from dmq_fast.kernels import Stream
from dmq_fast.run.appraisal import appraise

EPSILON = DELTA = 0.05


def wilson(k: int, n: int) -> tuple[float, float]:
    """Return the 95 % Wilson interval of k among n."""
    z = 1.96
    centre, half = (k + z * z / 2) / (n + z * z), z * np.sqrt(k * (n - k) / n + z * z / 4) / (n + z * z)
    return max(0.0, centre - half), min(1.0, centre + half)


def measure(make: Callable[[int], Any], seeds: int, *, strict: bool, first: int) -> str:
    """Run all seeds of a family; return a row of the table."""
    episodes, losses, seconds, warned, unfinished = [], [], [], 0, 0
    for seed in range(first, first + seeds):
        env = make(seed)
        began = time.perf_counter()
        result = DMQ(env, epsilon=EPSILON, delta=DELTA, strict=strict, rng=seed, max_trajectories=10**6).learn()
        seconds.append(time.perf_counter() - began)
        worth = appraise(env, result.policy, 20_000, Stream(99))
        losses.append(worth["optimal_value"] - worth["value"] - 3 * (worth["value_standard_error"] or 0.0))
        episodes.append(result.n_trajectories)
        warned += bool(result.warnings)
        unfinished += result.status != "finished"
    bad = sum(loss > EPSILON + 1e-9 for loss in losses)
    low, high = wilson(bad, seeds)
    return (
        f"{np.median(episodes):,.0f} ({min(episodes):,}..{max(episodes):,}) | {bad}/{seeds} [{low:.3f}, {high:.3f}] | "
        f"{max(0.0, *losses):.3f} | {unfinished} | {warned} | {np.median(seconds):.3f}"
    )


def main() -> None:
    """Print the tables that the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", help=f"families, or groups: {', '.join(GROUPS)}; default: all")
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--first", type=int, default=0, help="first seed")
    mode = parser.add_mutually_exclusive_group()
    mode.add_argument("--strict", action="store_true", help="strict mode only")
    mode.add_argument("--quick", action="store_true", help="quick mode only")
    options = parser.parse_args()
    families = {name: make for group in GROUPS.values() for name, make in group.items()}
    wanted = [name for given in options.names or GROUPS for name in GROUPS.get(given, [given])]
    print("family | mode | median episodes (range) | loss > epsilon | largest loss | not finished | warned | seconds")
    print("---|---|---|---|---|---|---|---")
    for name in wanted:
        for strict in [True, False] if not (options.strict or options.quick) else [options.strict]:
            row = measure(families[name], options.seeds, strict=strict, first=options.first)
            print(f"{name} | {'strict' if strict else 'quick'} | {row}", flush=True)


if __name__ == "__main__":
    main()
