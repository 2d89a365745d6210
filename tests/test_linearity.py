"""The test of linear Q* at the end of a self-stopping run: few false alarms, and power where features pool states."""

import numpy as np
import pytest

import dmq_fast as dmq
from dmq_fast import environments as E
from dmq_fast.engine.budget import Budget
from dmq_fast.engine.ledger import Ledger
from dmq_fast.kernels import OptimisticPlanner, Stream
from dmq_fast.samplers import as_sampler
from dmq_fast.self_stopping import PURPOSES, SelfStoppingRun
from dmq_fast.stopping.aim import Aim
from dmq_fast.stopping.linearity import disagreements, quantile
from dmq_fast.stopping.tuning import TUNING, Tuning

AIM = Aim.of(0.05, 0.05)


def outcome_of(env, seed):
    ledger = Ledger(Budget(max_trajectories=20_000), None, PURPOSES, ("rollouts",))
    return SelfStoppingRun(as_sampler(env), Aim.of(), Stream(seed), ledger).learn()


def alarmed(env, seed):
    return any("returns differ" in warning for warning in outcome_of(env, seed).warnings)


def pooled(mu, better):
    """Level 1 pools two states worth .5 + mu and .5 - mu: Q* is not linear, by mu."""
    R = [np.zeros((1, 2)), np.full((2, 2), 0.5 - mu)]
    R[1][better] = 0.5 + mu
    return E.FiniteMDP(P=[np.eye(2)[None]], R=R, features=[np.ones((1, 1)), np.ones((2, 1))])


def tiled_lock(seed):
    """A lock that forgives one mistake for .4, whose good and half-good states share a feature."""
    secrets = np.random.default_rng(seed).integers(3, size=6)
    P, R = [np.zeros((3, 3, 3)) for _ in range(6)], [np.zeros((3, 3)) for _ in range(6)]
    for transitions, secret in zip(P, secrets, strict=True):
        transitions[0, :, 1] = transitions[1, :, 2] = transitions[2, :, 2] = 1
        transitions[0, secret], transitions[1, secret] = [1, 0, 0], [0, 1, 0]
    R[-1][:2, secrets[-1]] = [0.9, 0.5]
    return E.FiniteMDP(P=P[:-1], R=R, features=[np.array([[1.0, 0], [1, 0], [0, 1]])] * 6, start=[1.0, 0, 0])


LINEAR = {
    "noisy lock": lambda seed: E.combination_lock(10, 4, rng=seed, p_success=0.9),
    "chain": lambda seed: E.chain(10, rng=seed),
    "linear MDP": lambda seed: E.linear_mdp(rng=seed),
    "linear Q": lambda seed: E.linear_q(rng=seed),
}


@pytest.mark.parametrize(("n_seeds", "most"), [(2, 2), pytest.param(10, 7, marks=pytest.mark.slow)])
def test_is_silent_where_q_star_is_linear(n_seeds, most):
    """At most delta = .05 of the runs may be warned of: 7 of 40 would be more than four standard deviations above."""
    assert sum(alarmed(make(seed), seed) for make in LINEAR.values() for seed in range(n_seeds)) <= most


@pytest.mark.parametrize("mu", [0.05, 0.1, 0.2])
def test_warns_where_a_level_pools_states(mu):
    assert all(alarmed(pooled(mu, seed % 2), seed) for seed in range(3))


def test_warns_where_a_lock_is_seen_through_tiles():
    assert sum(alarmed(tiled_lock(seed), seed) for seed in range(6)) >= 3


def planner_of(rows, rewards):
    planner = OptimisticPlanner(1, 1, len(rows[0]), 1e-12, 4.7)
    for row, reward in zip(rows, rewards, strict=True):
        planner.add([row], np.array([0]), [reward])
    return planner


def test_names_the_rows_off_the_line():
    """Three states on a line in one dimension and a constant, the middle one worth more than the mean of the others."""
    rng = np.random.default_rng(0)
    rows = np.repeat([[0.5, -0.5], [0.5, 0.0], [0.5, 0.5]], 100, axis=0)
    means = np.repeat([0.3, 0.8, 0.3], 100)
    planner = planner_of(rows, rng.random(300) < means)
    found = disagreements(planner, np.arange(300), AIM, TUNING, rng)
    assert {one.row for one in found} == {0, 1, 2} and [one.visits for one in found] == [100] * 3
    differences = {one.row: one.difference for one in found}
    # Least squares: the constant is the mean of the means, .467, and nothing is left for the slope.
    assert differences[1] == pytest.approx(1 / 3, abs=0.1) and differences[0] < -0.05
    assert all(0.02 < one.standard_error < 0.06 for one in found)
    straight = planner_of(rows, rng.random(300) < np.repeat([0.3, 0.5, 0.7], 100))
    assert disagreements(straight, np.arange(300), AIM, TUNING, rng) == []


def test_says_nothing_about_rows_that_never_come_twice():
    rng = np.random.default_rng(1)
    planner = planner_of(rng.normal(size=(50, 2)) / 9, rng.random(50))
    assert disagreements(planner, np.arange(50), AIM, Tuning(least_disagreement=1e-9), rng) == []


def test_quantiles_are_close_to_those_of_student():
    # Tables of Student's t: .975 and .9995 with 39 degrees of freedom.
    assert quantile(0.975, 39) == pytest.approx(2.0227, abs=0.005)
    assert quantile(0.9995, 39) == pytest.approx(3.5581, abs=0.05)


def test_a_warning_names_the_ridge_where_it_outweighs_a_direction():
    """Features 1, x, x^2 for x = 0 and 0.001, -0.001: Q* is linear, but x^2 takes a direction of length 1e-6."""
    secret = np.random.default_rng(0).integers(3, size=6)
    powers = np.array([[1.0, x, x * x] for x in (0.0, 1e-3, -1e-3, 0.0)]) / 1.1  # start, good, odd and dead
    P, R = [], [np.zeros((4, 3)) for _ in range(6)]
    for right in secret[:-1]:
        P.append(np.zeros((4, 3, 4)))
        P[-1][:, :, 3] = 1
        P[-1][:2, right], P[-1][:, (right + 1) % 3] = np.eye(4)[1], np.eye(4)[2]
    R[0][0] = 0.3 * (np.arange(3) != secret[0])
    R[-1][1, secret[-1]] = 0.8
    env = E.FiniteMDP(P=P, R=R, features=[powers] * 6, start=np.eye(4)[0])
    result = dmq.learn(env, rng=0)
    assert result.status == "finished" and env.optimal_value - env.value(result.policy) < 1e-9
    assert any("the ridge outweighs its data" in warning for warning in result.warnings)
    assert result.stopping["disagreements"][0]["drowned"]
    assert not any("linear" in warning for warning in result.warnings)
