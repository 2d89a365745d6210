"""Episodes and failures of self-stopping runs, by family of environments: the tables of docs/adaptive.md.

    python bench/adaptive.py                          # all families, 20 seeds, both modes
    python bench/adaptive.py --seeds 1000 lock-20     # one family
    python bench/adaptive.py --mode strict attacks    # a group: shipped, attacks, held-out, after, later
    python bench/adaptive.py --mode strict --first 10000000 --seeds 500 --file runs.csv shipped

A run fails if the loss of its policy exceeds epsilon = 0.05. Brackets are exact 95 % intervals (Clopper and Pearson,
1934). Where an environment has no tables, the loss is estimated, and three standard errors are taken off. With a file,
every run is written there when it ends, and not repeated if it is there already: a command that was killed goes on.
"""

from __future__ import annotations

import argparse
import csv
import time
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from adaptive_families import FAMILIES, GROUPS
from scipy.stats import binomtest

import dmq_fast as dmq
from dmq_fast.kernels import Stream
from dmq_fast.results.appraisal import appraise
from dmq_fast.stopping.tuning import TUNING, Tuning

EPSILON = DELTA = 0.05
HEADING = "median episodes (range) | loss > epsilon | largest loss | not finished | warned | CPU seconds"


class Run(NamedTuple):
    """What is kept of a run."""

    status: str
    episodes: int
    loss: float
    warnings: int
    seconds: float


def run(env: Any, seed: int, *, mode: str = "strict", tuning: Tuning = TUNING) -> Run:
    """Run once, and value the policy."""
    began = time.process_time()
    learner = dmq.SelfStopping(env, EPSILON, DELTA, mode=mode, tuning=tuning, rng=seed)
    result = learner.learn(max_trajectories=10**6)
    seconds = time.process_time() - began
    worth = appraise(env, result.policy, 200_000, Stream(99))
    loss = worth["optimal_value"] - worth["value"] - 3 * (worth["value_standard_error"] or 0.0)
    return Run(result.status, result.n_trajectories, loss, len(result.warnings), seconds)


def row(runs: list[Run]) -> str:
    """Return the row of a table about these runs."""
    failures, n, largest = sum(run.loss > EPSILON + 1e-9 for run in runs), len(runs), max(run.loss for run in runs)
    episodes = [run.episodes for run in runs]
    interval = binomtest(failures, n).proportion_ci()
    return (
        f"{np.median(episodes):,.0f} ({min(episodes):,} to {max(episodes):,}) | "
        f"{failures} of {n:,} [{interval.low:.4f}, {interval.high:.4f}] | {max(largest, 0.0):.3f} | "
        f"{sum(run.status != 'finished' for run in runs)} | {sum(run.warnings > 0 for run in runs)} | "
        f"{np.median([run.seconds for run in runs]):.3f}"
    )


class Store:
    """The runs in a CSV file, if any: family, mode, seed, and the fields of a run."""

    def __init__(self, path: Path | None) -> None:
        self.path, self.runs = path, {}
        if path is not None and path.exists():
            with path.open(newline="") as file:
                for family, mode, seed, status, episodes, loss, warnings, seconds in csv.reader(file):
                    found = Run(status, int(episodes), float(loss), int(warnings), float(seconds))
                    self.runs[family, mode, int(seed)] = found

    def run(self, family: str, mode: str, seed: int) -> Run:
        """Return a run of the file, or do it and write it there."""
        if (family, mode, seed) not in self.runs:
            done = self.runs[family, mode, seed] = run(FAMILIES[family](seed), seed, mode=mode)
            if self.path is not None:
                with self.path.open("a", newline="") as file:
                    csv.writer(file).writerow([family, mode, seed, *done])
        return self.runs[family, mode, seed]


def main() -> None:
    """Print the tables that the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", help=f"families, or groups: {', '.join(GROUPS)}; default: all")
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--first", type=int, default=0, help="first seed")
    parser.add_argument("--mode", choices=["strict", "quick"], help="one mode only")
    parser.add_argument("--file", type=Path, help="CSV file of the runs")
    options = parser.parse_args()
    store, everything = Store(options.file), []
    wanted = [name for given in options.names or GROUPS for name in GROUPS.get(given, [given])]
    print(f"family | mode | {HEADING}\n---|---{'|---' * (HEADING.count('|') + 1)}")
    for name in wanted:
        for mode in [options.mode] if options.mode else ["strict", "quick"]:
            seeds = range(options.first, options.first + options.seeds)
            runs = [store.run(name, mode, seed) for seed in seeds]
            everything += runs
            print(f"{name} | {mode} | {row(runs)}", flush=True)
    print(f"all | | {row(everything)}")


if __name__ == "__main__":
    main()
