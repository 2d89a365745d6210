"""Episodes after which the policy of a self-stopping run is good, before it knows: columns of docs/which-algorithm.md.

    python bench/good_after.py [--seeds 5]
    python bench/good_after.py --experiment same      # of docs/homogeneous.md

The other algorithms of experiments/map.toml and same.toml are measured so: at checkpoints the policy that would be
returned is valued. It is good if its score, (V - V_uniform) / (V* - V_uniform), is 95 %, and good for good at the first
checkpoint from which on all are. Here that policy is greedy on the newest estimates, and checkpoints lie 5 % apart.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Mapping
from pathlib import Path
from statistics import median_low
from typing import Any

from map import PROBLEMS, REGISTERED

import dmq_fast as dmq
from dmq_fast import experiments
from dmq_fast.experiments.sweeps.algorithms import GOOD
from dmq_fast.experiments.sweeps.spec import make_environment
from dmq_fast.kernels import Stream
from dmq_fast.results.appraisal import appraise
from dmq_fast.results.score import solves
from dmq_fast.self_stopping import SelfStoppingRun


def good_after(env: Any, parameters: Mapping[str, Any], seed: int) -> tuple[float, float, int]:
    """Return the episodes until the policy is good, until it is good for good, and until the run stops."""
    chosen = {name: parameters[name] for name in ("mode", "homogeneous")}
    learner = dmq.SelfStopping(env, **chosen, rng=seed)
    first, lasting, following = math.inf, math.inf, 1.0

    def look(*_: object) -> None:
        nonlocal first, lasting, following
        n = run.planner.n_episodes
        if n < following:
            return
        following = 1.05 * n
        worth = appraise(env, dmq.Policy.greedy(run.planner.theta), 2000, Stream(seed))
        good = solves(worth["value"], worth["uniform_value"], worth["optimal_value"], GOOD)
        first = min(first, n if good else math.inf)
        lasting = min(lasting, n) if good else math.inf

    run = SelfStoppingRun(learner.sampler, learner.aim, learner.stream, progress=look, groups=learner.groups)
    stops = run.learn().n_episodes
    return first, lasting, stops


def main() -> None:
    """Print a row for each problem of the map and each mode."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--experiment", default="map", help="name of a file in bench/experiments; default: map")
    options = parser.parse_args()
    seeds = range(options.seeds)
    print("problem | mode | good after | good for good after | stops after\n---|---|---|---|---")
    for cell in experiments.read(Path(__file__).parent / "experiments" / f"{options.experiment}.toml").cells:
        if cell.algorithm == "self-stopping":
            problem = next(name for name in REGISTERED[cell.environment] if fits(name, cell))
            parameters = cell.algorithm_parameters
            runs = [good_after(make_environment(cell, seed), parameters, seed) for seed in seeds]
            medians = [median_low(column) for column in zip(*runs, strict=True)]
            print(
                f"{problem} | {parameters['mode']} | {' | '.join(f'{episodes:,.0f}' for episodes in medians)}",
                flush=True,
            )


def fits(problem: str, cell: Any) -> bool:
    """Return whether an environment that is registered for several problems is this one."""
    try:
        return PROBLEMS[problem](cell.environment_parameters)
    except KeyError:
        return False


if __name__ == "__main__":
    main()
