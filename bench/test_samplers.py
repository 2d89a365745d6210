"""Measure the flow sampler at n = 10^3 and n = 10^18, which should take the same time, and the exact sampler.

pytest bench/test_samplers.py
"""

from functools import partial

import numpy as np
import pytest
from common import interleaved, noted

import dmq_fast as dmq
from dmq_fast import environments
from dmq_fast.environments import FiniteMDP
from dmq_fast.samplers import ExactSampler, FlowSampler

FEW, MANY = 10**3, 10**18


def random_mdp(support, horizon=20, states=40, n_actions=4):
    """Return an MDP whose actions lead to `support` of 40 states each, with rewards for one pair in ten."""
    rng = np.random.default_rng(0)
    P = np.zeros((states, n_actions, states))
    for row in P.reshape(-1, states):
        row[rng.permutation(states)[:support]] = rng.dirichlet(np.ones(support))
    R = np.where(rng.random((states, n_actions)) < 0.1, 1 / horizon, 0.0)
    return FiniteMDP([P] * (horizon - 1), [R] * horizon, [np.eye(states)] * horizon)


CASES = {
    "40 states, 4 successors": random_mdp(4),
    "40 states, 40 successors": random_mdp(40),
    "river swim 20": environments.river_swim(),
    "deep sea 20, stochastic": environments.deep_sea(20, stochastic=True),
}


def policy_of(env, rule):
    shape = (env.horizon, env.n_actions, env.dimension)
    greedy = dmq.Policy.greedy(np.random.default_rng(0).normal(size=shape))
    return greedy if rule == "greedy" else dmq.Policy.uniform(env.horizon)


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("rule", ["greedy", "uniform"])
@pytest.mark.parametrize("returns_from", [(), (0,)], ids=["moments", "returns"])
def test_flow(benchmark, name, rule, returns_from):
    """Interleave the two sizes, so that noise of the machine affects both."""
    env = CASES[name]
    sampler, policy = FlowSampler(env), policy_of(env, rule)

    def collect(n):
        return sampler.collect(policy, n, stream=dmq.Stream(0), levels=range(env.horizon), returns_from=returns_from)

    times = interleaved({"10^3": partial(collect, FEW), "10^18": partial(collect, MANY)}, rounds=30)
    moments = benchmark(collect, MANY)

    for h, occupied in enumerate(env.occupancy(policy)):
        np.testing.assert_allclose(np.trace(moments.grams[h]), MANY * occupied.sum(), rtol=1e-9)
    noted(benchmark.extra_info, times, "10^3")


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("rule", ["greedy", "uniform"])
def test_exact(benchmark, name, rule):
    env = CASES[name]
    sampler, policy = ExactSampler(env), policy_of(env, rule)
    moments = benchmark(sampler.collect, policy, 1, stream=dmq.Stream(0), levels=range(env.horizon), returns_from=(0,))
    y = env.value(policy)
    assert moments.returns[0].square >= y * y * (1 - 1e-12)
