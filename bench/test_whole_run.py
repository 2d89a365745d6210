"""Measure a whole run on the lock of 100 levels, beside the literal NumPy reference in the same process.

pytest bench/test_whole_run.py
"""

import time

import numpy as np
from profile_run import SETTINGS, reference

import dmq_fast as dmq
from dmq_fast import environments

N_SAMPLES, ROUNDS = 20, 7


def test_lock_100_against_the_reference(benchmark):
    env = environments.combination_lock(100, 4, rng=0)
    algorithm = dmq.DMQ(env, n_samples=N_SAMPLES, rng=1, **SETTINGS)
    algorithm.learn()
    ours, theirs = [], []
    for _ in range(ROUNDS):  # interleaved, so that noise of the machine affects both
        seconds, slow = reference(env, algorithm, N_SAMPLES)
        theirs.append(seconds)
        began = time.perf_counter()
        fast = algorithm.learn()
        ours.append(time.perf_counter() - began)
    result = benchmark(algorithm.learn)

    assert env.value(result.policy) == env.value(fast.policy) == env.optimal_value
    assert env.value(dmq.Policy.greedy(slow.theta)) == env.optimal_value
    info = benchmark.extra_info
    info["reference s"] = round(float(np.median(theirs)), 3)
    info["ratio of medians"] = round(float(np.median(theirs) / np.median(ours)), 1)
    info["ratio of minima"] = round(min(theirs) / min(ours), 1)
    info["trajectories, reference"] = slow.n_trajectories
    info["trajectories"] = result.n_trajectories
