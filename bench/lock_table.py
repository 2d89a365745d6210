"""Episodes that DMQ takes to solve Lock-Bernoulli, beside figures of others; and the diabolical lock.

    python bench/lock_table.py [--seeds 25] [--diabolical]

Prints Markdown. An episode count is the trajectories drawn when `learn` ends. Solved: the returned policy earns more
than .25 (the peers' criterion), and in brackets more than .45, near the optimum of .5. The peers' figures are medians
until a running mean of rewards exceeds .25, measured with the authors' own code (Du et al., 2019,
microsoft/StateDecoding); they stop while learning, DMQ when it has checked what it learned.
"""

import argparse
import time

import numpy as np

import dmq_fast as dmq
from dmq_fast.environments import diabolical_lock, lock_bernoulli
from dmq_fast.samplers import as_sampler, estimate_value

# N by (observation, switch, H). Everything else is the same in all of the table.
SAMPLES = {
    ("latent", 0.0): {5: 5, 10: 5, 15: 5, 20: 5, 30: 5},
    ("latent", 0.1): {5: 10, 10: 20, 15: 30, 20: 40, 30: 60},
    ("coins", 0.0): {5: 30, 10: 30, 15: 30, 20: 30, 30: 50},
    ("coins", 0.1): {5: 50, 10: 50, 15: 100, 20: 100, 30: 200},
}

# Median episodes of OracleQ (which sees the latent state) and PCID-linear (which sees observations).
PEERS = {
    ("latent", 0.0): {5: 700, 10: 1300, 15: 2000, 20: 2900},
    ("latent", 0.1): {5: 700, 10: 1400, 15: 2100, 20: 2900},
    ("coins", 0.0): {5: 3500, 10: 7500, 15: 11500, 20: 15500, 30: 23600},
    ("coins", 0.1): {5: 3500, 10: 7600, 15: 11600, 20: 15800, 30: 23600},
}


def regulariser(observation, horizon):
    """Return eps_r: a hundredth, or a tenth of the squared length 1 / (1 + H) that coins leave to a state's feature."""
    return 0.01 if observation == "latent" else 0.1 / (1 + horizon)


def solve(env, seed, **parameters):
    """Learn; return trajectories, value of the returned policy (2,000 fresh trajectories), and seconds."""
    began = time.perf_counter()
    result = dmq.DMQ(env, rng=seed, **parameters).learn()
    seconds = time.perf_counter() - began
    value = estimate_value(as_sampler(env), result.policy, 2000, stream=dmq.Stream(seed, call=2**62)).value
    return result.n_trajectories, value, seconds


def lock_bernoulli_table(seeds):
    """Print the table of all cells."""
    print("| features | switch | H | N | variant | episodes | solved | peer | seconds |")
    print("|---|---|---|---|---|---|---|---|---|")
    for (observation, switch), samples in SAMPLES.items():
        for horizon, n_samples in samples.items():
            for variant in ("frugal", "sound"):
                runs = np.array(
                    [
                        solve(
                            lock_bernoulli(horizon, switch, observation=observation, rng=seed),
                            1000 + seed,
                            variant=variant,
                            n_samples=n_samples,
                            eps_r=regulariser(observation, horizon),
                        )
                        for seed in range(seeds)
                    ]
                )
                peer = PEERS[observation, switch].get(horizon)
                print(
                    f"| {observation} | {switch:g} | {horizon} | {n_samples} | {variant} "
                    f"| {np.median(runs[:, 0]):,.0f} "
                    f"| {(runs[:, 1] > 0.25).sum()} ({(runs[:, 1] > 0.45).sum()}) of {seeds} "
                    f"| {'' if peer is None else f'{peer:,}'} | {np.median(runs[:, 2]):.2f} |",
                    flush=True,
                )


def diabolical_table(seeds):
    """Print runs of the diabolical lock, rotated noisy observations, by horizon and swap."""
    print("| H | d | swap | N | episodes | solved | seconds |")
    print("|---|---|---|---|---|---|---|")
    still, swapping = {"eps_r": 3e-3, "ridge": 1e-2}, {"eps_r": 3e-4, "ridge": 1e-3}
    cells = [(20, 0.0, 100, still), *((horizon, 0.5, 1000, swapping) for horizon in (4, 5, 6, 7, 8, 10))]
    for horizon, swap, n_samples, parameters in [*cells, (100, 0.0, 200, still)]:
        runs = []
        for seed in range(seeds):
            env = diabolical_lock(horizon, swap=swap, observation="noisy", rng=seed)
            runs.append(solve(env, 1000 + seed, variant="frugal", n_samples=n_samples, **parameters))
        trajectories, values, seconds = np.array(runs).T
        print(
            f"| {horizon} | {env.dimension} | {swap:g} | {n_samples} | {np.median(trajectories):,.0f} "
            f"| {(values > 0.95 * env.optimal_value).sum()} of {seeds} | {np.median(seconds):.1f} |",
            flush=True,
        )


def main():
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=25)
    parser.add_argument("--diabolical", action="store_true", help="the diabolical lock instead")
    arguments = parser.parse_args()
    (diabolical_table if arguments.diabolical else lock_bernoulli_table)(arguments.seeds)


if __name__ == "__main__":
    main()
