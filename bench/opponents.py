"""How soon BPI-UCBVI stops where levels share data, and how often too early: a table of docs/homogeneous.md.

    python bench/opponents.py                         # all families and settings, 20 seeds
    python bench/opponents.py --seeds 300 river-swim  # one family
    python bench/opponents.py --by-level              # data by level
    python bench/opponents.py --c1 0.5 --c2 0.1       # one setting

Families and columns are those of adaptive.py, which has the self-stopping run: a run fails if it stops with a policy
whose loss exceeds epsilon = 0.05.
"""

from __future__ import annotations

import argparse
import time
from typing import Any

from adaptive import HEADING, Run, row
from adaptive_families import FAMILIES, GROUPS

from dmq_fast.baselines import BPIUCBVI

NAMES = ("river-swim", "chain-20", *GROUPS["same"])
SETTINGS = ((0.25, 0.03), (0.5, 0.03), (0.5, 0.1), (0.5, 0.3), (1.0, 0.3), (1.0, 1.0))


def run(env: Any, seed: int, c1: float, c2: float, shared: bool) -> Run:
    """Run once, and value the policy."""
    began = time.process_time()
    own = {"c1": c1, "c2": c2, "epsilon": 0.05, "homogeneous": shared}
    result = BPIUCBVI(env, n_episodes=10**5, checkpoints=1, rng=seed, **own).learn()
    seconds = time.process_time() - began
    loss = env.optimal_value - result.value
    return Run(result.status, result.n_trajectories, loss, len(result.warnings), seconds)


def main() -> None:
    """Print the table that the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", help=f"families of adaptive.py; default: {', '.join(NAMES)}")
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--first", type=int, default=0, help="first seed")
    parser.add_argument("--by-level", action="store_true", help="data by level")
    parser.add_argument("--c1", type=float, help="with --c2: one setting only")
    parser.add_argument("--c2", type=float)
    options = parser.parse_args()
    if (options.c1 is None) != (options.c2 is None):
        parser.error("--c1 and --c2: expected both or none")
    settings = SETTINGS if options.c1 is None else [(options.c1, options.c2)]
    seeds = range(options.first, options.first + options.seeds)
    print(f"family | c₁ | c₂ | {HEADING}\n---|---|---{'|---' * (HEADING.count('|') + 1)}")
    for name in options.names or NAMES:
        for c1, c2 in settings:
            runs = [run(FAMILIES[name](seed), seed, c1, c2, not options.by_level) for seed in seeds]
            print(f"{name} | {c1:g} | {c2:g} | {row(runs)}", flush=True)


if __name__ == "__main__":
    main()
