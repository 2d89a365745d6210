"""Measure a whole run on the lock of 100 levels.

pytest bench/test_whole_run.py
"""

import dmq_fast as dmq
from dmq_fast import environments


def test_lock_100(benchmark):
    env = environments.combination_lock(100, 4, rng=0)
    result = benchmark(dmq.DMQ(env, n_samples=20, ratio=10.0, eps_r=1e-5, rng=1).learn)

    assert env.value(result.policy) == env.optimal_value
    benchmark.extra_info["trajectories"] = result.n_trajectories
