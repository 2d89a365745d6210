"""Measure a whole run on the lock of 100 levels, beside the literal NumPy reference in the same process.

pytest bench/test_whole_run.py
"""

import time

import numpy as np
from reference import NumpySampler, ReferenceDMQ

import dmq_fast as dmq
from dmq_fast import environments

SETTINGS = {"n_samples": 20, "eps_s": 1.0, "eps_t": 10.0, "eps_r": 1e-5, "ridge": 1e-3}
ROUNDS = 7


def timed(call, *arguments):
    began = time.perf_counter()
    result = call(*arguments)
    return time.perf_counter() - began, result


def test_lock_100_against_the_reference(benchmark):
    env = environments.combination_lock(100, 4, rng=0)
    algorithm = dmq.DMQ(env, rng=1, **SETTINGS)
    initial = tuple(("fixed", rule.action) for rule in algorithm.settings.initial[0].rules)

    def reference():
        sampler = NumpySampler(env, np.random.default_rng(1))
        shape = env.horizon, env.n_actions, env.dimension
        return ReferenceDMQ(sampler, *shape, **SETTINGS, initial=initial, recheck=True, mixture=None).learn()

    algorithm.learn()
    ours, theirs = [], []
    for _ in range(ROUNDS):  # interleaved, so that noise of the machine affects both
        seconds, slow = timed(reference)
        theirs.append(seconds)
        seconds, fast = timed(algorithm.learn)
        ours.append(seconds)
    result = benchmark(algorithm.learn)

    assert env.value(result.policy) == env.value(fast.policy) == env.optimal_value
    assert env.value(dmq.Policy.greedy(slow.theta)) == env.optimal_value
    info = benchmark.extra_info
    info["reference s"] = round(float(np.median(theirs)), 3)
    info["ratio of medians"] = round(float(np.median(theirs) / np.median(ours)), 1)
    info["ratio of minima"] = round(min(theirs) / min(ours), 1)
    info["trajectories, reference"] = slow.n_trajectories
    info["trajectories"] = result.n_trajectories
