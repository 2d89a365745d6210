"""Episodes and failures of self-stopping runs, by family of environments: the tables of docs/adaptive.md.

    python bench/adaptive.py                          # all families, 20 seeds, both modes
    python bench/adaptive.py --seeds 1000 lock-20     # one family
    python bench/adaptive.py --mode strict attacks    # a group of adaptive_families.py
    python bench/adaptive.py --delta 0.01 --mode strict pressed
    python bench/adaptive.py --mode strict --first 10000000 --seeds 500 --file runs.csv shipped

A run fails if it finishes with a policy whose loss exceeds epsilon = 0.05. Where the range of values is not (0, 1),
epsilon and the loss are shares of V* - V_uniform. Runs that end otherwise are counted apart,
and their losses are left out. Brackets are exact 95 % intervals (Clopper and Pearson, 1934). Where an environment has
no tables, the loss is estimated, and three standard errors are taken off. With a file, every run is written there when
it ends, and not repeated if it is there already: a command that was killed goes on.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from adaptive_families import DECLARED, FAMILIES, GROUPS
from common import Store
from scipy.stats import binomtest

import dmq_fast as dmq
from dmq_fast.kernels import Stream
from dmq_fast.results.appraisal import appraise
from dmq_fast.stopping.tuning import TUNING, Tuning

EPSILON = DELTA = 0.05
HEADING = "median episodes (range) | loss > epsilon, of finished | largest loss | not finished | warned | CPU seconds"


class Run(NamedTuple):
    """What is kept of a run."""

    status: str
    episodes: int
    loss: float
    warnings: int
    seconds: float


def run(
    env: Any,
    seed: int,
    *,
    mode: str = "strict",
    delta: float = DELTA,
    tuning: Tuning = TUNING,
    same: bool | str = "auto",
) -> Run:
    """Run once, and value the policy; `same` says whether the environment is the same at every level."""
    began = time.process_time()
    # Without an epsilon it is 0.05 in the range (0, 1), and "5%" in any other.
    learner = dmq.SelfStopping(env, None, delta, mode=mode, homogeneous=same, tuning=tuning, rng=seed)
    result = learner.learn(max_trajectories=10**6)
    seconds = time.process_time() - began
    worth = appraise(env, result.policy, 200_000, Stream(99))
    loss = worth["optimal_value"] - worth["value"] - 3 * (worth["value_standard_error"] or 0.0)
    if learner.aim.share is not None:
        loss /= worth["optimal_value"] - worth["uniform_value"]
    return Run(result.status, result.n_trajectories, loss, len(result.warnings), seconds)


def row(runs: list[Run]) -> str:
    """Return the row of a table about these runs."""
    episodes, losses = [run.episodes for run in runs], [run.loss for run in runs if run.status == "finished"]
    failures, n = sum(loss > EPSILON + 1e-9 for loss in losses), len(losses)
    low, high = binomtest(failures, n).proportion_ci() if n else (0.0, 1.0)
    return (
        f"{np.median(episodes):,.0f} ({min(episodes):,} to {max(episodes):,}) | "
        f"{failures} of {n:,} [{low:.4f}, {high:.4f}] | {max([0.0, *losses]):.3f} | "
        f"{len(runs) - n} | {sum(run.warnings > 0 for run in runs)} | "
        f"{np.median([run.seconds for run in runs]):.3f}"
    )


def main() -> None:
    """Print the tables that the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", help=f"families, or groups: {', '.join(GROUPS)}; default: all")
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--first", type=int, default=0, help="first seed")
    parser.add_argument("--delta", type=float, default=DELTA)
    parser.add_argument("--mode", choices=["strict", "quick"], help="one mode only")
    parser.add_argument("--by-level", action="store_true", help="data by level, also where levels are the same")
    parser.add_argument("--file", type=Path, help="CSV file of the runs")
    options = parser.parse_args()
    store, everything = Store(options.file, Run), list[Run]()
    wanted = [name for given in options.names or GROUPS for name in GROUPS.get(given, [given])]
    print(f"family | mode | {HEADING}\n---|---{'|---' * (HEADING.count('|') + 1)}")
    for name in wanted:
        for mode in [options.mode] if options.mode else ["strict", "quick"]:
            seeds = range(options.first, options.first + options.seeds)

            def one(seed: int, name: str = name, mode: str = mode) -> Run:
                """Run a family, if the file has not."""
                key = name, mode, seed, options.delta
                same = False if options.by_level else True if name in DECLARED else "auto"
                how = {"mode": mode, "delta": options.delta, "same": same}
                return store.run(key, lambda: run(FAMILIES[name](seed), seed, **how))

            runs = [one(seed) for seed in seeds]
            everything += runs
            print(f"{name} | {mode} | {row(runs)}", flush=True)
    print(f"all | | {row(everything)}")


if __name__ == "__main__":
    main()
