"""Trajectories and success of each way to draw less, on every environment there is, as a Markdown table."""

import argparse
import importlib.util

import numpy as np

import dmq_fast as dmq
from dmq_fast.environments import chain, combination_lock, decoy_lock, deep_sea, linear_q, make, river_swim

OPTIONS = {
    "sound": {},
    "accumulate": {"accumulate": True},
    "reuse": {"reuse": True},
    "memo": {"memo": True},
    "frugal": {"variant": "frugal"},
}

# Label, environment by seed, settings. The second half has so few samples that `sound` is at its limits.
CASES = [
    ("lock, K = 4, H = 20, N = 20", lambda seed: combination_lock(20, 4, rng=seed), {"n_samples": 20}),
    ("lock, K = 4, H = 80", lambda seed: combination_lock(80, 4, rng=seed), {}),
    ("lock, p = .9, d = 5", lambda seed: combination_lock(10, 4, rng=seed, p_success=0.9, dimension=5), {}),
    ("chain, H = 10", lambda seed: chain(10, rng=seed), {}),
    ("chain, H = 20", lambda seed: chain(20, rng=seed), {}),
    ("deep sea 10", lambda seed: deep_sea(10, rng=seed), {}),
    ("deep sea 20", lambda seed: deep_sea(20, rng=seed), {}),
    ("deep sea 10, stochastic", lambda seed: deep_sea(10, rng=seed, stochastic=True), {}),
    ("river swim 6/20, N = 1000", lambda seed: river_swim(6, 20), {"n_samples": 1000}),
    ("linear Q*, N = 5000", lambda seed: linear_q(rng=seed), {"n_samples": 5000, "ridge": 1e-4}),
    ("decoy, H = 20", lambda seed: decoy_lock(20), {}),
    ("FrozenLake 4x4, H = 8, not slippery", lambda seed: make("gym:FrozenLake-v1", horizon=8, is_slippery=False), {}),
    ("FrozenLake 4x4, H = 20, N = 1000", lambda seed: make("gym:FrozenLake-v1", horizon=20), {"n_samples": 1000}),
    ("lock, K = 4, H = 20, N = 5", lambda seed: combination_lock(20, 4, rng=seed), {"n_samples": 5}),
    (
        "lock, p = .9, d = 5, N = 20",
        lambda seed: combination_lock(10, 4, rng=seed, p_success=0.9, dimension=5),
        {"n_samples": 20},
    ),
    ("chain, H = 10, N = 20", lambda seed: chain(10, rng=seed), {"n_samples": 20}),
    (
        "deep sea 10, stochastic, N = 30",
        lambda seed: deep_sea(10, rng=seed, stochastic=True),
        {"n_samples": 30},
    ),
    ("river swim 6/20, N = 200", lambda seed: river_swim(6, 20), {"n_samples": 200}),
    ("linear Q*, N = 500", lambda seed: linear_q(rng=seed), {"n_samples": 500, "ridge": 1e-4}),
]


def measure(make_env, settings, seeds):
    """Trajectories, and V / V*, by seed."""
    drawn, shares = [], []
    for seed in range(seeds):
        env = make_env(seed)
        result = dmq.DMQ(env, rng=seed, max_trajectories=10**8, **settings).learn()
        drawn.append(result.n_trajectories)
        shares.append(env.value(result.policy) / env.optimal_value)
    return np.array(drawn), np.array(shares)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=5)
    seeds = parser.parse_args().seeds
    print(f"Median trajectories of {seeds} seeds; of how many V > .97 V*; mean V / V*\n")
    print("| environment |", " | ".join(OPTIONS), "|")
    print("|---" * (len(OPTIONS) + 1) + "|")
    for label, make_env, settings in CASES:
        if "FrozenLake" in label and importlib.util.find_spec("gymnasium") is None:
            continue
        cells = []
        for chosen in OPTIONS.values():
            drawn, shares = measure(make_env, settings | chosen, seeds)
            cells.append(f"{np.median(drawn):,.0f}; {np.sum(shares > 0.97)}/{seeds}; {shares.mean():.3f}")
        print(f"| {label} |", " | ".join(cells), "|", flush=True)


if __name__ == "__main__":
    main()
