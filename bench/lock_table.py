"""Measure the episodes in which DMQ solves Lock-Bernoulli, beside published figures, or the diabolical lock.

    python bench/lock_table.py [--seeds 25] [--diabolical]

Prints a Markdown table. The episodes of DMQ are all trajectories drawn until `learn` ends, including those of
`settings`. A run counts as solved if the returned policy earns more than .25 (the criterion of the peers), and in
brackets if it earns more than .45, near the optimum of .5. The figures of the peers are median episodes until a
running mean of rewards exceeds .25, measured with the authors' own code (Du et al., 2019, microsoft/StateDecoding).
Peers stop while they learn, DMQ stops after it has checked its policy. R, eps_r and Lambda were chosen on seeds 100 to
199, which the table does not use. Two more columns: UCB-Q, which sees the state as OracleQ does, with the step sizes of
its paper instead of OracleQ's constant one, by the metric of the peers; and the run that stops by itself, on states.
"""

import argparse
import time

import numpy as np

import dmq_fast as dmq
from dmq_fast.baselines import UCBQ
from dmq_fast.environments import diabolical_lock, lock_bernoulli
from dmq_fast.samplers import as_sampler, estimate_value

# N by (observation, switch, H). The rows of the table differ in N and in `settings` only.
SAMPLES = {
    ("latent", 0.0): {5: 5, 10: 5, 15: 5, 20: 5, 30: 5},
    ("latent", 0.1): {5: 10, 10: 15, 15: 22, 20: 30, 30: 45},
    ("coins", 0.0): {5: 20, 10: 20, 15: 30, 20: 40, 30: 60},
    ("coins", 0.1): {5: 20, 10: 20, 15: 30, 20: 40, 30: 60},
}

# Median episodes of OracleQ (which sees the latent state) and PCID-linear (which sees observations).
PEERS = {
    ("latent", 0.0): {5: 700, 10: 1300, 15: 2000, 20: 2900},
    ("latent", 0.1): {5: 700, 10: 1400, 15: 2100, 20: 2900},
    ("coins", 0.0): {5: 3500, 10: 7500, 15: 11500, 20: 15500, 30: 23600},
    ("coins", 0.1): {5: 3500, 10: 7600, 15: 11600, 20: 15800, 30: 23600},
}


def settings(env, observation, seed):
    """Return the parameters of the oracle, and the number of trajectories drawn to find them.

    With coins, Lambda = eps_r I + 3 M, where M is the second moment at the last level under uniform actions, from 10 d
    trajectories. This acts as three more uniform policies in each cover: the difference between the second moments of
    two samples of N coins is no longer taken for a shift, while states that uniform actions do not reach are as visible
    as before. So R can be small; with a small R, a policy counts as covered by policies that reach the same states 1/R
    times as often. eps_r is given in units of the squared length that coins leave for the feature of a state,
    1 / (1 + H).
    """
    if observation == "latent":
        return {"ratio": 1.5, "eps_r": 0.02}, 0
    n, eps_r = 10 * env.dimension, 0.05 / (1 + env.horizon)
    uniform, last = dmq.Policy.uniform(env.horizon), env.horizon - 1
    pilot = as_sampler(env).collect(uniform, n, stream=dmq.Stream(seed, call=2**61), levels=[last])
    regularizer = np.eye(env.dimension) + 3 / eps_r * pilot.grams[0] / n
    return {"ratio": 1.5, "eps_r": eps_r, "function_class": dmq.LinearClass(regularizer=regularizer)}, n


def solve(env, seed, **parameters):
    """Run DMQ; return its trajectories, the value of its policy from 2,000 fresh trajectories, and its seconds."""
    began = time.perf_counter()
    result = dmq.DMQ(env, rng=seed, **parameters).learn()
    seconds = time.perf_counter() - began
    value = estimate_value(as_sampler(env), result.policy, 2000, stream=dmq.Stream(seed, call=2**62)).value
    return result.n_trajectories, value, seconds


def strong_q(env, seed):
    """Return the multiple of 100 episodes at which the running mean of UCB-Q's rewards exceeds .25."""
    return UCBQ(env, c=0.001, n_episodes=5000, checkpoints=1, rng=seed).learn().first_above(0.25, 100)


def lock_bernoulli_table(seeds):
    """Print the table of Lock-Bernoulli."""
    print("| features | switch | H | N | variant | episodes | solved | peer | UCB-Q | stops by itself | seconds |")
    print("|---|---|---|---|---|---|---|---|---|---|---|")
    for (observation, switch), samples in SAMPLES.items():
        for horizon, n_samples in samples.items():
            envs = [lock_bernoulli(horizon, switch, observation=observation, rng=seed) for seed in range(seeds)]
            peers = [strong_q(env, 1000 + seed) for seed, env in enumerate(envs)]
            alone = ""
            if observation == "latent":
                stopped = [solve(env, 1000 + seed, epsilon=0.05) for seed, env in enumerate(envs)]
                assert all(value > 0.45 for _, value, _ in stopped)
                alone = f"{np.median([episodes for episodes, *_ in stopped]):,.0f}"
            for variant in ("frugal", "sound"):
                runs = []
                for seed, env in enumerate(envs):
                    parameters, n_pilot = settings(env, observation, 1000 + seed)
                    episodes, *others = solve(env, 1000 + seed, variant=variant, n_samples=n_samples, **parameters)
                    runs.append((n_pilot + episodes, *others))
                runs = np.array(runs)
                peer = PEERS[observation, switch].get(horizon)
                print(
                    f"| {observation} | {switch:g} | {horizon} | {n_samples} | {variant} "
                    f"| {np.median(runs[:, 0]):,.0f} "
                    f"| {(runs[:, 1] > 0.25).sum()} ({(runs[:, 1] > 0.45).sum()}) of {seeds} "
                    f"| {'' if peer is None else f'{peer:,}'} | {np.median(peers):,.0f} | {alone} "
                    f"| {np.median(runs[:, 2]):.2f} |",
                    flush=True,
                )


def diabolical_table(seeds):
    """Print the table of the diabolical lock with rotated noisy observations, by horizon and swap."""
    print("| H | d | swap | N | episodes | solved | seconds |")
    print("|---|---|---|---|---|---|---|")
    still, swapping = {"eps_r": 3e-3, "ridge": 1e-2}, {"eps_r": 3e-4, "ridge": 1e-3}
    cells = [(20, 0.0, 100, still), *((horizon, 0.5, 1000, swapping) for horizon in (4, 5, 6, 7, 8, 10))]
    for horizon, swap, n_samples, parameters in [*cells, (100, 0.0, 200, still)]:
        runs, repeats = [], min(seeds, 5) if horizon == 100 else seeds  # a minute or two each
        for seed in range(repeats):
            env = diabolical_lock(horizon, swap=swap, observation="noisy", rng=seed)
            runs.append(solve(env, 1000 + seed, variant="frugal", n_samples=n_samples, **parameters))
        trajectories, values, seconds = np.array(runs).T
        print(
            f"| {horizon} | {env.dimension} | {swap:g} | {n_samples} | {np.median(trajectories):,.0f} "
            f"| {(values > 0.95 * env.optimal_value).sum()} of {repeats} | {np.median(seconds):.1f} |",
            flush=True,
        )


def main():
    """Print the table that the command line names."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=25)
    parser.add_argument("--diabolical", action="store_true", help="measure the diabolical lock instead")
    arguments = parser.parse_args()
    (diabolical_table if arguments.diabolical else lock_bernoulli_table)(arguments.seeds)


if __name__ == "__main__":
    main()
