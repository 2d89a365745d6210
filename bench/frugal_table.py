"""Measure the trajectories and the success of each option that draws less, as a Markdown table.

    python bench/frugal_table.py [--seeds 5]

The environments are those of the registry, except mountain-car, whose 200 levels take every option more than minutes,
and two of Gymnasium.
The value of the returned policy is exact on a finite MDP, and elsewhere the mean of 20,000 fresh trajectories.
"""

import argparse
import importlib.util

import numpy as np

import dmq_fast as dmq
from dmq_fast.environments import (
    FiniteMDP,
    cart_pole,
    chain,
    combination_lock,
    decoy_lock,
    deep_sea,
    diabolical_lock,
    linear_mdp,
    linear_q,
    lock_bernoulli,
    lock_gaussian,
    make,
    noisy_deep_sea,
    river_swim,
)
from dmq_fast.samplers import as_sampler, estimate_value

OPTIONS = {
    "sound": {},
    "accumulate": {"accumulate": True},
    "reuse": {"reuse": True},
    "memo": {"memo": True},
    "frugal": {"variant": "frugal"},
}

# Label, environment by seed, settings. In the last six cases N is close to the minimum for `sound`.
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
    ("linear MDP, N = 1000", lambda seed: linear_mdp(rng=seed), {"n_samples": 1000}),
    ("Lock-Bernoulli, H = 10, switch .1", lambda seed: lock_bernoulli(10, 0.1, rng=seed), {"n_samples": 20}),
    (
        "Lock-Bernoulli, H = 10, switch .1, coins",
        lambda seed: lock_bernoulli(10, 0.1, observation="coins", rng=seed),
        {"n_samples": 50, "eps_r": 0.1 / 11},
    ),
    ("Lock-Gaussian, H = 10", lambda seed: lock_gaussian(10, rng=seed), {"n_samples": 50}),
    ("diabolical lock, H = 20", lambda seed: diabolical_lock(20, rng=seed), {"n_samples": 50}),
    (
        "diabolical lock, H = 10, noisy",
        lambda seed: diabolical_lock(10, observation="noisy", rng=seed),
        {"n_samples": 50, "eps_r": 3e-3, "ridge": 1e-2},
    ),
    ("noisy deep sea 10", lambda seed: noisy_deep_sea(10, rng=seed), {}),
    ("cart-pole, H = 30", lambda seed: cart_pole(horizon=30), {"n_samples": 20}),
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
    """Return the trajectories and V / V* of the runs, by seed."""
    drawn, shares = [], []
    for seed in range(seeds):
        env = make_env(seed)
        result = dmq.DMQ(env, rng=seed, **settings).learn(max_trajectories=10**8)
        drawn.append(result.n_trajectories)
        if isinstance(env, FiniteMDP):
            value, best = env.value(result.policy), env.optimal_value
        else:
            fresh = dmq.Stream(seed, call=2**62)
            value = estimate_value(as_sampler(env), result.policy, 20_000, stream=fresh).value
            best = env.optimal_value or 1.0  # the return of a cart-pole that never falls
        shares.append(value / best)
    return np.array(drawn), np.array(shares)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
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
