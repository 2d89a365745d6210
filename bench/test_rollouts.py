"""Measure rollouts of finite MDPs with their moments, in steps a second on one core.

pytest bench/test_rollouts.py
"""

import numpy as np
import pytest

import dmq_fast as dmq
from dmq_fast import environments
from dmq_fast.samplers import RolloutSampler

N = 16_384

CASES = {
    "deep sea 20": environments.deep_sea(20),
    "deep sea 20, stochastic": environments.deep_sea(20, stochastic=True),
    "lock 100": environments.combination_lock(100, rng=0),
    "river swim 20": environments.river_swim(),
    "linear-Q": environments.linear_q(rng=0),
}


def greedy(env):
    shape = (env.horizon, env.n_actions, env.dimension)
    return dmq.Policy.greedy(np.random.default_rng(0).normal(size=shape))


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("rule", ["greedy", "uniform"])
@pytest.mark.parametrize("returns", [False, True], ids=["moments", "moments and returns"])
def test_rollouts(benchmark, name, rule, returns):
    env = CASES[name]
    sampler, stream = RolloutSampler(env), dmq.Stream(0)
    policy = greedy(env) if rule == "greedy" else dmq.Policy.uniform(env.horizon)
    levels, returns_from = range(env.horizon), (0,) if returns else ()

    moments = benchmark(sampler.collect, policy, N, stream=stream, levels=levels, returns_from=returns_from)

    assert moments.n == N
    for h, occupied in enumerate(env.occupancy(policy)):
        expected = (env.features[h].T * occupied) @ env.features[h]
        np.testing.assert_allclose(moments.grams[h] / N, expected, atol=0.05)
    if benchmark.stats is not None:  # None under --benchmark-disable
        benchmark.extra_info["million steps/s"] = round(N * env.horizon / benchmark.stats.stats.min / 1e6, 1)
