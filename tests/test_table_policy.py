"""Policies from tables of actions, and the best policy of an environment with tables."""

import pickle

import numpy as np
import pytest
from refusals import refused

import dmq_fast as dmq
from dmq_fast import Policy, TablePolicy
from dmq_fast.environments import (
    FiniteMDP,
    chain,
    combination_lock,
    deep_sea,
    linear_mdp,
    lock_gaussian,
    mountain_car,
    river_swim,
    with_noise,
)

MDPS = {
    "chain": lambda: chain(6, rng=0),
    "lock": lambda: combination_lock(7, rng=0),
    "sea": lambda: deep_sea(5, rng=0),
    "swim": lambda: river_swim(4, 9),
    "dense": lambda: linear_mdp(rng=0),
}


@pytest.mark.parametrize("name", MDPS)
def test_the_best_policy_is_worth_the_optimum(name):
    env = MDPS[name]()
    best = env.optimal_policy
    assert best is env.optimal_policy and isinstance(best, TablePolicy)
    assert env.value(best) == pytest.approx(env.optimal_value, abs=env.gap_tolerance)
    for mine, optimal, q in zip(env.values(best), env.optimal_v, env.optimal_q, strict=True):
        np.testing.assert_allclose(mine, optimal, atol=env.horizon * env.gap_tolerance)
        assert q.shape[0] == len(mine)
    assert "optimal_policy" not in pickle.loads(pickle.dumps(env)).__dict__


def test_ties_go_to_the_smallest_action_whatever_rounding_says():
    # The last bits of 0.1 + 0.2 and 0.3 differ: action 1 is better by rounding only.
    env = FiniteMDP([np.ones((1, 2, 1))], [[[0.3, 0.1 + 0.2]], [[0.0, 0.0]]], [[[1.0]]] * 2)
    assert env.optimal_q[0][0].argmax() == 1
    assert env.optimal_policy == TablePolicy([[0], [0]])


def test_environments_that_know_tables_have_their_best_policy():
    lock = lock_gaussian(4, 0.1, 0.3, rng=0)
    assert lock.optimal_policy == lock.latent.optimal_policy
    assert mountain_car(5).optimal_policy is None
    swim = river_swim(4, 6)
    noisy = with_noise(swim, 0.1)
    assert noisy.optimal_policy == swim.optimal_policy
    assert noisy.value(noisy.optimal_policy) == noisy.optimal_value


def test_values_are_those_of_every_state():
    env = chain(5, rng=0)
    policy = dmq.DMQ(env, n_samples=20, rng=0).learn().policy
    values = env.values(policy)
    assert env.value(policy) == float(env.start @ values[0])
    for level in range(env.horizon):
        ahead = np.zeros(env.n_states[level]) if level == env.horizon - 1 else values[level + 1]
        taken = policy.probabilities(level, env.features[level], env.n_actions)
        q = env.expected_rewards[level]
        if level < env.horizon - 1:
            q = q + np.asarray(env.P[level]) @ ahead
        np.testing.assert_allclose(values[level], (taken * q).sum(axis=1))


def test_a_table_is_read_in_each_of_its_forms():
    env = chain(3, rng=0)
    size = env.n_states[0]
    row = np.arange(size) % env.n_actions
    once = TablePolicy.from_table(row, env)
    assert once == TablePolicy.from_table([row] * 3, env) == TablePolicy.from_table(np.tile(row, (3, 1)), env)
    assert once == TablePolicy([row] * 3)
    sea = deep_sea(3, rng=0)
    sizes = sea.n_states
    ragged = TablePolicy.from_table([np.ones(n, dtype=int) for n in sizes], sea)
    assert sea.value(ragged) == sea.value(Policy.fixed([1] * 3))
    policy = Policy.from_table(row, env)
    assert env.value(policy) == pytest.approx(env.value(once))
    assert [policy.act_on(0, s) for s in range(size)] == row.tolist()
    again = pickle.loads(pickle.dumps(policy))
    assert again == policy and again.act_on(1, 2) == row[2]
    assert pickle.loads(pickle.dumps(once)) == once


@pytest.mark.parametrize("name", ["FrozenLake-v1", "CliffWalking-v1", "Taxi-v4"])
def test_tables_of_gymnasium_are_read_by_its_own_numbers(name):
    gymnasium = pytest.importorskip("gymnasium")
    if name not in gymnasium.registry:
        pytest.skip(f"no {name}")
    env = dmq.environments.from_gymnasium(name, 20)
    rng = np.random.default_rng(0)
    actions = rng.integers(env.n_actions, size=(20, int(env.state_numbers.max()) + 1))
    policy, table = Policy.from_table(actions, env), TablePolicy.from_table(actions, env)
    assert env.value(policy) == pytest.approx(env.value(table))
    for level in (0, 7, 19):
        acted = policy.act_on(level, env.state_numbers)
        assert acted.tolist() == actions[level][env.state_numbers].tolist()
        # Copies of a state act as it does, and where an episode has ended nothing matters.
        known = env.row_numbers >= 0
        assert (table.rules[level][known] == actions[level][env.row_numbers[known]]).all()
        assert (table.rules[level][~known] == 0).all()


def test_a_learned_table_comes_back_from_a_file(tmp_path):
    env = lock_gaussian(4, 0.1, 0.3, rng=0)
    result = dmq.baselines.UCBQ(env, n_episodes=50, c=0.01, rng=0).learn()
    result.save(tmp_path / "run.npz")
    assert dmq.load(tmp_path / "run.npz").policy == result.policy


def test_tables_that_do_not_fit_are_refused():
    env, sea = chain(3, rng=0), deep_sea(3, rng=0)
    size = env.n_states[0]
    alike = FiniteMDP([np.ones((2, 2, 2)) / 2], [np.zeros((2, 2))] * 2, [np.ones((2, 1))] * 2)
    of = TablePolicy.from_table
    refused(
        [
            (lambda: TablePolicy([]), ValueError, "actions: expected at least one level"),
            (lambda: TablePolicy([[0.5]]), ValueError, "actions: level 0: expected integers >= 0"),
            (lambda: of(np.zeros((2, size), dtype=int), env), ValueError, "one row for each of 3 levels, got 2"),
            (lambda: of(np.zeros(size + 1, dtype=int), env), ValueError, f"each of {size} states, got {size + 1}"),
            (lambda: of(np.full(size, 3), env), ValueError, "level 0: expected actions < 3, got 3"),
            (lambda: of(np.full(size, -1), env), ValueError, "level 0: expected integers >= 0"),
            (lambda: of(np.zeros(1, dtype=int), sea), ValueError, "level 1: expected an action for each of"),
            (lambda: of(np.zeros(size), env), ValueError, "expected integers >= 0, shape .S,., got float64"),
            (lambda: Policy.from_table([0, 1], alike), ValueError, "those of state 1 at level 0 are too much like"),
        ]
    )
