"""Trajectories shown in rows: those that moments count, from every sampler and with any number of workers."""

import itertools
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from multiprocessing import get_context

import numpy as np
import pytest
from flat import flat
from line import Line

import dmq_fast as dmq
from dmq_fast import environments as E
from dmq_fast.kernels import OptimisticPlanner
from dmq_fast.rules import Optimistic
from dmq_fast.samplers import (
    BatchSampler,
    Drawing,
    ExactSampler,
    FlowSampler,
    ParallelSampler,
    RolloutSampler,
    Sampler,
    as_sampler,
)

ENVIRONMENTS = {
    "deterministic": lambda: E.combination_lock(6, 3, rng=0),
    "Bernoulli rewards": lambda: E.combination_lock(6, 3, rng=0, p_success=0.7),
    "rewards by edge": lambda: E.FiniteMDP(
        P=[np.full((1, 2, 2), 0.5), np.full((2, 2, 2), 0.5)],
        R=[np.array([[[0.0, 0.1], [0.2, 0.3]]]), np.array([[[0.1, 0.4], [0.0, 0.2]], [[0.3, 0.0], [0.5, 0.1]]])],
        features=[np.eye(2)[:1], np.eye(2)],
    ),
    "dense features": lambda: E.linear_q(rng=1),
    "start states": lambda: E.FiniteMDP(
        P=[np.full((2, 2, 2), 0.5)], R=[np.zeros((2, 2)), np.eye(2)], features=[np.eye(2)] * 2, start=[0.3, 0.7]
    ),
    "compiled, noisy": lambda: E.lock_bernoulli(5, 0.1, rng=0, observation="coins"),
    "compiled, sparse": lambda: E.make("mountain-car", horizon=12),
    "Python": lambda: Line(0.8, 0.5),
}


def policies(sampler):
    H, K, d = sampler.horizon, sampler.n_actions, sampler.dimension
    yield dmq.Policy.uniform(H)
    yield dmq.Policy.fixed([h % K for h in range(H)])
    yield dmq.Policy.greedy(np.random.default_rng(0).normal(size=(H, K, d)))


@pytest.mark.kernels
@pytest.mark.parametrize("name", ENVIRONMENTS)
@pytest.mark.parametrize("n", [0, 1, 700])
def test_moments_count_the_trajectories_that_rows_show(name, n):
    sampler = as_sampler(ENVIRONMENTS[name]())
    H, stream = sampler.horizon, dmq.Stream(3, call=7)
    for policy in policies(sampler):
        drawn = sampler.trajectories(policy, n, stream=stream)
        assert drawn.features.shape == (n, H, sampler.dimension)
        assert drawn.actions.shape == drawn.rewards.shape == (n, H) and drawn.n == n
        counted = sampler.collect(policy, n, stream=stream, levels=range(H), returns_from=range(H))
        shown = drawn.moments(range(H), range(H))
        np.testing.assert_allclose(shown.grams, counted.grams, rtol=0, atol=1e-11)
        for h in range(H):
            np.testing.assert_allclose(shown.returns[h].moment, counted.returns[h].moment, rtol=0, atol=1e-10)
            assert shown.returns[h].square == pytest.approx(counted.returns[h].square, rel=1e-10, abs=1e-12)
        for h, rule in enumerate(policy.rules):
            if not isinstance(rule, dmq.kernels.Uniform):
                np.testing.assert_array_equal(drawn.actions[:, h], policy.act(h, drawn.features[:, h]))


@pytest.mark.parametrize("sampler", [FlowSampler, ExactSampler], ids=lambda kind: kind.__name__)
def test_samplers_of_moments_show_no_trajectories(sampler):
    sampler = sampler(E.chain(4))
    assert not sampler.shows_trajectories and not ParallelSampler(sampler, lambda: None).shows_trajectories
    with pytest.raises(TypeError, match=f"^{type(sampler).__name__} gives moments only"):
        sampler.trajectories(dmq.Policy.uniform(4), 5, stream=dmq.Stream(0))


class Rows(Sampler):
    """The trajectories of a chain, and nothing else."""

    holds_gil = True
    chunk_size = 30

    def __init__(self):
        self.inner = RolloutSampler(E.chain(4, 2, fail=0.3))
        self.horizon, self.n_actions, self.dimension = 4, 2, self.inner.dimension

    def trajectories_chunk(self, policy, n, *, rng):
        H, generator = self.horizon, rng.generator()
        features, actions = np.zeros((n, H, self.dimension)), np.zeros((n, H), dtype=int)
        rewards, earned, states = np.zeros((n, H)), np.zeros(n), np.zeros(n, dtype=int)
        env = self.inner.env
        for h in range(H):
            features[:, h] = env.features[h][states]
            actions[:, h] = policy.act(h, features[:, h], n_actions=2, rng=generator, earned=earned)
            rewards[:, h] = env.R[h][states, actions[:, h]]
            earned += rewards[:, h]
            if h + 1 < H:
                states = [generator.choice(len(p), p=p) for p in env.P[h][states, actions[:, h]]]
        return dmq.Trajectories(features, actions, rewards)


def test_a_sampler_needs_no_more_than_rows():
    sampler, policy = Rows(), dmq.Policy.fixed([1] * 4)
    drawn = sampler.trajectories(policy, 100, stream=dmq.Stream(1))
    counted = sampler.collect(policy, 100, stream=dmq.Stream(1), levels=[1, 3], returns_from=[0, 2])
    np.testing.assert_array_equal(counted.grams[0], drawn.features[:, 1].T @ drawn.features[:, 1])
    assert counted.returns[2].square == pytest.approx((drawn.rewards[:, 2:].sum(axis=1) ** 2).sum())
    estimate = sampler.evaluate(policy, 100, stream=dmq.Stream(1))
    assert estimate.value == pytest.approx(drawn.returns_to_go(0).mean())
    env = sampler.inner.env
    for arguments in ({"n_samples": 50}, {"epsilon": 0.1, "mode": "quick"}):
        result = flat(sampler, rng=0, **arguments).learn()
        assert result.status in ("ended", "finished") and env.optimal_value - env.value(result.policy) < 0.1


def executors():
    yield lambda: ThreadPoolExecutor(2)
    yield lambda: ProcessPoolExecutor(2, mp_context=get_context("spawn"))


def test_series_are_the_same_on_any_workers():
    stream = dmq.Stream(5)
    for inner in (BatchSampler(Line(0.8, 0.5)), RolloutSampler(E.river_swim(6, 10))):
        drawings = [
            Drawing(policy, n, stream.at(call))
            for call, (policy, n) in enumerate(itertools.product(policies(inner), [1, 8]))
        ]
        expected = list(inner.series(drawings))
        for make in executors():
            with ParallelSampler(inner, make) as sampler:
                for mine, theirs in zip(sampler.series(iter(drawings)), expected, strict=True):
                    assert all(np.array_equal(a, b) for a, b in zip(mine, theirs, strict=True))


def test_an_optimistic_rule_follows_its_planner():
    planner = OptimisticPlanner(2, 3, 2, 1e-6, 3.0)
    planner.plan(0.0)
    rule = Optimistic(planner, 0)
    policy = dmq.Policy([rule, Optimistic(planner, 1)])
    rows, earned, uniforms = np.eye(2), np.array([0.0, 0.5]), np.array([0.1, 0.9])
    expected = [planner.choose(0, rows[i], earned[i], uniforms[i]) for i in range(2)]
    assert rule.actions(rows, earned, uniforms).tolist() == expected
    draws = np.random.default_rng(0)
    acted = policy.act(0, rows, rng=np.random.default_rng(0), earned=earned)
    assert acted.tolist() == rule.actions(rows, earned, draws.random(2)).tolist()
    assert policy.act(0, rows[0], rng=np.random.default_rng(0)) in range(3)
    with pytest.raises(ValueError, match="is optimistic and needs rng"):
        policy.act(0, rows)
    with pytest.raises(TypeError, match="a rule that compiled code can follow"):
        RolloutSampler(E.combination_lock(2, 3, rng=0)).trajectories(policy, 1, stream=dmq.Stream(0))
