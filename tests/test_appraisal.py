"""The value of a learned policy beside uniform play and the optimum: exact from tables, estimated without."""

import pytest

from dmq_fast import Policy, Stream
from dmq_fast.environments import cart_pole, chain, lock_gaussian
from dmq_fast.results.appraisal import appraise, environment_of, tables_of
from dmq_fast.results.score import score
from dmq_fast.samplers import RolloutSampler, Sampler


class Hidden(Sampler):
    """A sampler that shows no environment, but knows its optimum."""

    value_range = (0, 1)

    def __init__(self, env):
        self._inner, self.latent = RolloutSampler(env), env
        self.horizon, self.n_actions, self.dimension = env.horizon, env.n_actions, env.dimension

    def collect_chunk(self, policy, n, *, rng, levels, returns_from=()):
        return self._inner.collect_chunk(policy, n, rng=rng, levels=levels, returns_from=returns_from)


def test_tables_give_the_exact_value():
    env = chain(4)
    policy = Policy.uniform(4)
    for source in (env, RolloutSampler(env)):
        assert tables_of(source) is env
        worth = appraise(source, policy, 100, Stream(0))
        assert worth["value"] == env.value(policy)
        assert worth["value_standard_error"] is worth["value_trajectories"] is None
        assert (worth["optimal_value"], worth["gap"]) == (env.optimal_value, env.gap)
        assert (worth["uniform_value"], worth["score"]) == (env.value(policy), 0.0)
    best = appraise(env, Policy.greedy(env.optimal_theta), 0, Stream(0))
    assert (best["value"], best["score"]) == (pytest.approx(env.optimal_value), 1.0)


def test_a_sampler_without_environment_is_asked_itself():
    env = chain(4)
    sampler = Hidden(env)
    assert environment_of(sampler) is sampler
    assert tables_of(sampler) is None
    worth = appraise(sampler, Policy.uniform(4), 400, Stream(0))
    assert worth["optimal_value"] == env.optimal_value
    assert worth["uniform_value"] == env.value(Policy.uniform(4))
    assert abs(worth["value"] - env.value(Policy.uniform(4))) < 5 * worth["value_standard_error"]
    assert worth["score"] == score(worth["value"], worth["uniform_value"], worth["optimal_value"])


def test_a_compiled_environment_is_estimated_or_left_alone():
    env = lock_gaussian(4, rng=0)
    worth = appraise(env, Policy.uniform(4), 50, Stream(0))
    assert worth["value_trajectories"] == 50
    assert worth["optimal_value"] == env.latent.optimal_value
    assert worth["uniform_value"] == env.latent.value(Policy.uniform(4))
    assert worth["uniform_value_trajectories"] is None
    assert appraise(env, Policy.uniform(4), 0, Stream(0))["value"] is None
    assert appraise(env, None, 50, Stream(0))["value"] is None


def test_uniform_play_is_estimated_where_a_policy_is():
    env = cart_pole(12)
    worth = appraise(env, Policy.uniform(12), 200, Stream(0))
    assert worth["uniform_value_trajectories"] == 200
    assert abs(worth["uniform_value"] - worth["value"]) < 10 * worth["value_standard_error"]
    assert worth["uniform_value"] != worth["value"]  # from other trajectories
    assert worth["optimal_value"] is worth["score"] is None
    assert appraise(env, Policy.uniform(12), 0, Stream(0))["uniform_value"] is None
