"""The mirage lock: its facts, its rules, and the algorithms that it separates."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
from flat import flat
from refusals import refused
from test_baselines import episode_of

import dmq_fast as dmq
from dmq_fast.baselines import LSVIUCB, RLSVI, UCBQ, DelayedQ, LinearQ
from dmq_fast.environments import make, mirage_lock
from dmq_fast.environments.mirage import ANCHOR, CORRIDOR, DEAD, HALL, LOCK, SOURCE
from dmq_fast.policy import Policy
from dmq_fast.theory.measures import checked_policies, low_variance

pytestmark = pytest.mark.kernels

GATES = range(5, 15)
SMALL = {"horizon": 9, "pre": 3, "gates": 2}


def secrets_of(env):
    """The action of level h >= 1 that stays in the lock."""
    return [int(q[LOCK].argmax()) for q in env.optimal_q[1:]]


def through_the_hall(env):
    """A policy that goes into the hall and then does what is best."""
    into = int(env.P[0][0, :, HALL].argmax())
    return Policy([Policy.fixed([into]).rules[0], *Policy.greedy(env.optimal_theta).rules[1:]])


# Facts


def test_facts():
    env = mirage_lock(rng=0)
    assert env.n_states == (1, *[6] * 39) and env.dimension == 4
    assert env.optimal_value == 0.8
    assert env.gap == pytest.approx(0.05, abs=1e-12)
    assert env.realizability_residual < 1e-12
    assert env.tight_range[0, 1] == 1.0
    norms = np.concatenate([np.linalg.norm(features, axis=1) for features in env.features])
    assert norms.max() == pytest.approx(1.0, abs=1e-15)
    assert np.linalg.norm(env.optimal_theta, axis=2).max() == pytest.approx(0.912, abs=1e-3)


def test_q_is_linear_for_other_arguments():
    for arguments in (
        {"horizon": 17},
        {"pre": 1, "gates": 1, "horizon": 4},
        {"kappa": 1.0, "u": 0.3, "low": 0.3, "sure": 0.0, "final": 1.0},
        {"n_actions": 3, "copies": 9},
        {"kappa": 200.0, "n_actions": 9, "gates": 30},
    ):
        env = mirage_lock(**{"horizon": 40} | arguments, rng=0)
        assert env.realizability_residual < 1e-12
        assert env.optimal_value == pytest.approx(arguments.get("final", 0.8), abs=1e-12)
        assert env.gap == pytest.approx(arguments.get("low", 0.05), abs=1e-12)
        assert env.tight_range[0, 1] == 1.0


def test_the_gap_may_be_at_the_doors():
    assert mirage_lock(sure=0.79, rng=0).gap == pytest.approx(0.01, abs=1e-12)
    hall = (0.7 + (0.8 + 0.7) / 2) / 2  # kappa = 1: the anchor is the mean of source and lock
    assert mirage_lock(kappa=1.0, low=0.7, rng=0).gap == pytest.approx(0.8 - hall, abs=1e-12)


def test_source_anchor_and_lock_are_on_a_line():
    env = mirage_lock(rng=0)
    for level in range(1, 40):
        features = env.features[level]
        np.testing.assert_allclose(features[LOCK], 25 * features[ANCHOR] - 24 * features[SOURCE], atol=1e-13)
    for level in GATES:
        q = env.optimal_q[level]
        np.testing.assert_allclose(q[LOCK], 25 * q[ANCHOR] - 24 * q[SOURCE], atol=1e-13)


def test_the_constant_of_low_variance_is_twice_the_number_of_gates():
    env = mirage_lock(rng=0)
    best = through_the_hall(env)
    np.testing.assert_array_equal(low_variance(env, best)[1:], 1)
    for level in (5, 9, 14):
        theta = env.optimal_theta.copy()
        # The secret action is overrated in the lock and underrated in the source, the anchor's value is right.
        secret = secrets_of(env)[level - 1]
        theta[level, secret, :2] = np.linalg.solve(env.features[level][[ANCHOR, SOURCE], :2], [0.08, -0.01])
        wrong = Policy([*best.rules[:level], *Policy.greedy(theta).rules[level:]])
        assert env.value(wrong) == pytest.approx(env.value(best) - 0.05 / 20, abs=1e-12)
        assert low_variance(env, wrong).max() == pytest.approx(20, abs=1e-9)


def test_policies_that_dmq_checks_stay_below_the_constant():
    env = mirage_lock(rng=1)
    result = dmq.DMQ(env, variant="frugal", n_samples=20, rng=1).learn()
    assert checked_policies(env, result).low_variance.max() == pytest.approx(20, abs=1e-9)


# Rules


def test_the_hall_ends_in_every_gate_alike():
    env = mirage_lock(rng=0)
    occupancy = env.occupancy(through_the_hall(env))
    for level in range(1, 40):
        at = occupancy[level]
        expected = 1 / 20 if level in GATES else 0.0
        assert at[SOURCE] == pytest.approx(expected) and at[ANCHOR] == pytest.approx(expected)
        waiting = min(1.0, max(0.0, (14 - level) / 10))
        assert at[HALL] == pytest.approx(waiting, abs=1e-12)
        assert at[LOCK] == 0
    # One half has been in a source, and its right action leads into the corridor, which lasts to the end.
    assert occupancy[-1][CORRIDOR] == pytest.approx(0.5) and occupancy[-1][DEAD] == pytest.approx(0.5)


def test_one_action_stays_in_the_lock():
    env = mirage_lock(rng=3)
    secrets = secrets_of(env)
    for level in range(1, 39):
        P = env.P[level]
        for action, following in enumerate(P[LOCK]):
            if action == secrets[level - 1]:
                assert following[LOCK] == 1
            else:
                np.testing.assert_array_equal(following, P[HALL, action] if level < 5 else np.eye(6)[DEAD])
        assert (P[DEAD, :, DEAD] == 1).all() and (P[CORRIDOR, :, CORRIDOR] == 1).all()
        assert (P[HALL] == P[HALL, 0]).all()
        assert (P[ANCHOR, :, DEAD] == 1).all()
        gains = np.flatnonzero(P[SOURCE, :, CORRIDOR])
        assert gains.tolist() == ([secrets[level - 1]] if level in GATES else [])


def test_rewards_are_paid_in_four_places():
    env = mirage_lock(rng=2)
    secrets = secrets_of(env)
    assert sorted(env.R[0][0].tolist()) == [0, 0, 0, 0.35]
    for level in range(1, 40):
        expected = np.zeros((6, 4))
        if level in GATES:
            expected[SOURCE, secrets[level - 1]] = 0.05
            expected[ANCHOR, secrets[level - 1]] = (0.8 + 24 * 0.05) / 25
        if level == 39:
            expected[LOCK, secrets[level - 1]] = 0.8
        np.testing.assert_allclose(env.R[level], expected, atol=1e-16)
    assert np.flatnonzero(env.caps).tolist() == [*GATES, 39]


def test_secrets_and_doors_are_uniform():
    drawn = [mirage_lock(**SMALL, rng=seed) for seed in range(200)]
    for counts in (
        np.bincount([secrets_of(env)[3] for env in drawn], minlength=4),
        np.bincount([env.P[0][0, :, LOCK].argmax() for env in drawn], minlength=4),
        np.bincount([env.R[0][0].argmax() for env in drawn], minlength=4),
    ):
        assert np.abs(counts - 50).max() < 4 * np.sqrt(200 * 3 / 16)


# Copies


def test_copies_are_entered_alike_and_change_no_value():
    one, many = mirage_lock(rng=4), mirage_lock(copies=7, rng=4)
    assert many.n_states == (1, *[12] * 39)
    assert many.optimal_value == pytest.approx(one.optimal_value, abs=1e-12)
    assert many.gap == pytest.approx(one.gap, abs=1e-12)
    policy = Policy.greedy(one.optimal_theta)
    assert one.value(policy) == 0.8 and many.value(policy) == pytest.approx(0.8, abs=1e-12)
    for level, at in enumerate(many.occupancy(policy)[1:], 1):
        np.testing.assert_allclose(at[LOCK:], 1 / 7)
        assert (many.features[level][LOCK:] == one.features[level][LOCK]).all()


def test_features_alone_serve_linear_learners_only():
    env, table = make("mirage-lock", observation="features", rng=0), mirage_lock(rng=0)
    assert (env.optimal_value, env.numbered) == (0.8, False)
    assert not pickle.loads(pickle.dumps(env)).numbered
    for algorithm in (UCBQ, DelayedQ):
        with pytest.raises(TypeError, match=r"^env: expected .* whose states are numbered, got CompiledEnv"):
            algorithm(env)
    one, other = (LSVIUCB(e, ridge=1e-3, n_episodes=50, n_evaluation=1, rng=0).learn() for e in (env, table))
    np.testing.assert_array_equal(one.returns, other.returns)
    result = dmq.DMQ(env, variant="frugal", n_samples=10, rng=0).learn()
    assert table.value(result.policy) == 0.8


# What it separates


@pytest.mark.parametrize(
    "arguments",
    [{"variant": "frugal", "n_samples": 10}, {"variant": "frugal", "n_samples": 20}, {"epsilon": 0.05, "delta": 0.05}],
)
def test_dmq_solves_it(arguments):
    env = mirage_lock(rng=0)
    result = flat(env, **arguments, rng=0).learn()
    assert result.status == ("finished" if "epsilon" in arguments else "ended")
    assert env.value(result.policy) == 0.8
    assert result.n_trajectories < (1000 if "epsilon" in arguments else 25_000)


def test_dmq_solves_the_long_form():
    env = mirage_lock(130, pre=40, rng=0)
    result = dmq.SelfStopping(env, epsilon=0.05, delta=0.05, rng=0).learn()
    assert result.status == "finished" and env.value(result.policy) == 0.8
    assert result.n_trajectories < 2500
    own = LSVIUCB(env, beta=0.1, ridge=1e-3, n_episodes=2500, rng=0).learn()
    assert own.curve.value.max() == 0.35


LINEAR = [
    (LSVIUCB, {"beta": 0.1, "ridge": 1e-3}),
    (LSVIUCB, {"beta": 0.1, "ridge": 0.03}),
    (RLSVI, {"sigma": 0.1, "precision": 1.0}),
    (LinearQ, {"alpha": 0.5, "epsilon": 0.2}),
]


@pytest.mark.parametrize(("algorithm", "own"), LINEAR)
def test_linear_baselines_do_not_solve_it(algorithm, own):
    """None finds a policy better than leaving at once, within 3000 episodes."""
    assert algorithm(mirage_lock(rng=0), **own, n_episodes=3000, rng=0).learn().curve.value.max() == 0.35


def test_optimism_about_the_source_is_pessimism_about_the_lock():
    env = mirage_lock(rng=0)
    learner = LSVIUCB(env, beta=0.1, ridge=1e-3).learner(episode_of(env))
    learner.run(np.zeros(3000))
    acting, plain = learner.weights, learner.fit()
    level, features = 9, env.features[9]
    secret = secrets_of(env)[level - 1]
    assert features[SOURCE] @ acting[level, secret] > 0.3  # the truth is 0.05
    assert features[LOCK] @ acting[level, secret] < -2  # the truth is 0.8
    # Without optimism the same transitions show what the secret action is worth in the lock better than that.
    assert features[LOCK] @ plain[level, secret] > features[LOCK] @ acting[level, secret] + 2


# Errors


REFUSALS = [
    ({"horizon": 16}, ValueError, r"horizon: expected an integer >= pre \+ gates \+ 2 = 17, got 16"),
    ({"horizon": 0}, ValueError, "horizon: expected an integer >= 1, got 0"),
    ({"horizon": 20.0}, TypeError, "horizon: expected an integer, got 20.0"),
    ({"n_actions": 2}, ValueError, "n_actions: expected an integer >= 3, got 2"),
    ({"pre": 0}, ValueError, "pre: expected an integer >= 1, got 0"),
    ({"gates": 0}, ValueError, "gates: expected an integer >= 1, got 0"),
    ({"kappa": 0.9}, ValueError, r"kappa: expected a number in \[1, 1e\+06\], got 0.9"),
    ({"final": 0.0}, ValueError, r"final: expected a number in \[2e-06, 1\], got 0.0"),
    ({"final": 1.1}, ValueError, "final: .* got 1.1"),
    ({"sure": 0.8}, ValueError, r"sure: expected a number in \[0, 0.799999\], got 0.8"),
    ({"sure": -0.1}, ValueError, "sure: .* got -0.1"),
    ({"low": 0.0}, ValueError, r"low: expected a number in \[1e-06, 0.799999\], got 0.0"),
    ({"low": 0.9}, ValueError, "low: .* got 0.9"),
    ({"u": 0.0}, ValueError, "u: .* got 0.0"),
    ({"u": 1.0}, ValueError, r"u: expected a number in \[1e-06, 0.999999\], got 1.0"),
    ({"copies": 0}, ValueError, "copies: expected an integer >= 1, got 0"),
    ({"copies": 10**6}, ValueError, "copies: expected an integer <= 1000, .* got 1000000; observation='features' st"),
    ({"copies": 5, "observation": "features"}, ValueError, "copies: expected 1 with observation='features'.*, got 5$"),
    ({"observation": "latent"}, ValueError, "observation: expected one of state, features, got 'latent'"),
]


def test_errors_name_the_argument():
    refused((lambda given=given: mirage_lock(**given, rng=0), error, f"^{words}") for given, error, words in REFUSALS)
    with pytest.raises(TypeError, match=r"^numbered: expected a bool, got 1$"):
        dmq.environments.block_mdp(mirage_lock(rng=0), numbered=1)
