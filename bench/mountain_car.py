"""Measure how far the self-stopping run gets on mountain car within a number of episodes.

    python bench/mountain_car.py [--seeds 1] [--episodes 5000] [--epsilon .2] [--tiles 8] [--tilings 4]

Starts, dynamics and the limit of 200 steps are those of Gymnasium's MountainCar-v0; every level has its own weights of
the tiles. Nothing is random but the start, so p_min is .95: an outcome that one visit did not show counts as excluded.
Prints for each seed the status, the episodes, the seconds, and of the returned policy the number of 1,000 fresh starts
from which it arrives with a step to spare, and its mean return in Gymnasium's units.
"""

import os

os.environ.update(dict.fromkeys(("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"), "1"))

import argparse
import time

import numpy as np

import dmq_fast as dmq
from dmq_fast.environments import mountain_car
from dmq_fast.features import TileCoding
from dmq_fast.samplers import RolloutSampler

LOW, HIGH = (-1.2, -0.07), (0.6, 0.07)
BLOCKS, SIZE = 10, 100


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    parser.add_argument("--episodes", type=int, default=5000)
    parser.add_argument("--epsilon", type=float, default=0.2)
    parser.add_argument("--tiles", type=int, default=8)
    parser.add_argument("--tilings", type=int, default=4)
    given = parser.parse_args()
    env = mountain_car(200, TileCoding(LOW, HIGH, given.tiles, given.tilings))
    for seed in given.seeds:
        run = dmq.SelfStopping(env, epsilon=given.epsilon, delta=0.1, mode="quick", p_min=0.95, rng=seed)
        began = time.perf_counter()
        result = run.learn()
        seconds = time.perf_counter() - began
        sampler = RolloutSampler(env)
        shown = [sampler.trajectories(result.policy, SIZE, stream=dmq.Stream(seed, call)) for call in range(BLOCKS)]
        returns = np.concatenate([block.rewards.sum(axis=1) for block in shown])
        print(
            f"seed {seed}: {result.status}, {result.n_trajectories:,} episodes, {seconds:.0f} s, arrives from "
            f"{np.count_nonzero(returns):,} of {len(returns):,} starts, {env.original_value(returns.mean()):.1f}",
            flush=True,
        )


if __name__ == "__main__":
    main()
