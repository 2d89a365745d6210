"""Episodes and failures of the adaptive variant, by family of environments: the tables of docs/adaptive.md.

    python bench/adaptive.py                          # all families, 20 seeds, both modes
    python bench/adaptive.py --seeds 1000 lock-20     # one family
    python bench/adaptive.py --strict attacks         # a group: shipped, attacks, held-out, after, later

A run fails if the loss of its policy exceeds epsilon = .05. Brackets are exact 95 % intervals (Clopper and Pearson,
1934). Where an environment has no tables, the loss is estimated, and three standard errors are taken off.
"""

from __future__ import annotations

import argparse
import time
from typing import Any, NamedTuple

import numpy as np
from adaptive_families import GROUPS
from scipy.stats import binomtest

from dmq_fast import SelfStopping
from dmq_fast.kernels import Stream
from dmq_fast.results.appraisal import appraise

EPSILON = DELTA = 0.05
HEADING = "median episodes (range) | loss > epsilon | largest loss | not finished | warned | CPU seconds"


class Run(NamedTuple):
    """What is kept of a run."""

    status: str
    episodes: int
    loss: float
    warnings: int
    seconds: float

    @property
    def failed(self) -> bool:
        """Whether the policy loses more than epsilon."""
        return self.loss > EPSILON + 1e-9


def run(env: Any, seed: int, *, strict: bool) -> Run:
    """Run the adaptive variant once, and value its policy."""
    began = time.process_time()
    result = SelfStopping(env, epsilon=EPSILON, delta=DELTA, mode="strict" if strict else "quick", rng=seed).learn(
        max_trajectories=10**6
    )
    seconds = time.process_time() - began
    worth = appraise(env, result.policy, 200_000, Stream(99))
    loss = worth["optimal_value"] - worth["value"] - 3 * (worth["value_standard_error"] or 0.0)
    return Run(result.status, result.n_trajectories, loss, len(result.warnings), seconds)


def row(runs: list[Run]) -> str:
    """Return the row of a table about these runs."""
    failures, n, largest = sum(run.failed for run in runs), len(runs), max(run.loss for run in runs)
    episodes = [run.episodes for run in runs]
    interval = binomtest(failures, n).proportion_ci()
    return (
        f"{np.median(episodes):,.0f} ({min(episodes):,} to {max(episodes):,}) | "
        f"{failures} of {n:,} [{interval.low:.4f}, {interval.high:.4f}] | {max(largest, 0.0):.3f} | "
        f"{sum(run.status != 'finished' for run in runs)} | {sum(run.warnings > 0 for run in runs)} | "
        f"{np.median([run.seconds for run in runs]):.3f}"
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
    print(f"family | mode | {HEADING}\n---|---{'|---' * (HEADING.count('|') + 1)}")
    for name in wanted:
        for strict in [True, False] if not (options.strict or options.quick) else [options.strict]:
            seeds = range(options.first, options.first + options.seeds)
            runs = [run(families[name](seed), seed, strict=strict) for seed in seeds]
            print(f"{name} | {'strict' if strict else 'quick'} | {row(runs)}", flush=True)


if __name__ == "__main__":
    main()
