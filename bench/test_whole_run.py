"""Measure a whole run on the lock of 100 levels, beside the literal NumPy reference in the same process.

pytest bench/test_whole_run.py
"""

import numpy as np
from common import interleaved, noted
from reference import NumpySampler, ReferenceDMQ

import dmq_fast as dmq
from dmq_fast import environments

N_SAMPLES = 20
SETTINGS = {"eps_r": 1e-5, "ridge": 1e-3}


def reference(env, initial):
    """Return a run of the reference with the same settings, which has ended."""
    sampler, shape = NumpySampler(env, np.random.default_rng(1)), (env.horizon, env.n_actions, env.dimension)
    run = ReferenceDMQ(
        sampler, *shape, n_samples=N_SAMPLES, eps_s=1.0, eps_t=10.0, **SETTINGS, initial=initial, recheck=True,
        mixture=None,
    )  # fmt: skip
    return run.learn()


def test_lock_100_against_the_reference(benchmark):
    env = environments.combination_lock(100, 4, rng=0)
    algorithm = dmq.DMQ(env, n_samples=N_SAMPLES, ratio=10.0, rng=1, **SETTINGS)
    fast = algorithm.learn()
    initial = tuple(("fixed", rule.action) for rule in fast.cover[0][0].rules)
    slow = []
    calls = {"dmq": algorithm.learn, "reference": lambda: slow.append(reference(env, initial))}
    times = interleaved(calls, rounds=7)
    result = benchmark(algorithm.learn)

    assert env.value(result.policy) == env.value(fast.policy) == env.optimal_value
    assert env.value(dmq.Policy.greedy(slow[0].theta)) == env.optimal_value
    noted(benchmark.extra_info, times, "dmq")
    benchmark.extra_info["trajectories, reference"] = slow[0].n_trajectories
    benchmark.extra_info["trajectories"] = result.n_trajectories
