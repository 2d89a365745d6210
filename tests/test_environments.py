"""The generators: published numbers, structure, seeds, and the registry that the command line reads."""

from __future__ import annotations

import functools
import itertools
import json

import numpy as np
import pytest
from refusals import refused

from dmq_fast.environments import (
    REGISTRY,
    FiniteMDP,
    chain,
    combination_lock,
    decoy_lock,
    deep_sea,
    describe,
    linear_q,
    make,
    register,
    river_swim,
)

MINIMAL = {
    "lock": {"horizon": 4},
    "chain": {"horizon": 4},
    "deep-sea": {"size": 4},
    "river-swim": {},
    "linear-q": {},
    "decoy": {"horizon": 4},
    "linear-mdp": {},
    "lock-bernoulli": {"horizon": 4},
    "diabolical-lock": {"horizon": 4, "observation": "latent"},
    "mirage-lock": {},
}
DRAWN = ["lock", "chain", "deep-sea", "linear-q", "linear-mdp", "lock-bernoulli", "diabolical-lock", "mirage-lock"]
OBSERVED = {"lock-gaussian": {"horizon": 4}, "noisy-deep-sea": {"size": 4}, "mountain-car": {}, "cart-pole": {}}


def same(one, other):
    return all(
        len(a) == len(b) and all(np.array_equal(x, y) for x, y in zip(a, b, strict=True))
        for a, b in [(one.P, other.P), (one.R, other.R), (one.features, other.features)]
    )


# What all of them promise


def test_every_finite_environment_is_listed_here():
    assert set(REGISTRY) == set(MINIMAL) | set(OBSERVED)
    for name, parameters in OBSERVED.items():
        assert not isinstance(make(name, rng=0, **parameters), FiniteMDP)


@pytest.mark.parametrize("name", MINIMAL)
def test_rewards_are_scaled_and_parameters_recorded(name):
    env = make(name, rng=0, **MINIMAL[name])
    assert env.name == name
    assert 0 < env.optimal_value <= env.tight_range[0, 1] <= 1 + 1e-12
    assert (env.value_range == [0, 1]).all()
    assert 0 < env.gap < np.inf
    assert env.realizability_residual < 1e-12
    recorded = json.loads(json.dumps(env.parameters))
    assert recorded == env.parameters
    assert set(recorded) - {"rng"} == {parameter.name for parameter in describe()[name]}
    assert same(REGISTRY[name](**recorded), env)


@pytest.mark.parametrize("name", DRAWN)
def test_recorded_seed_gives_the_environment_again(name):
    for seed in (None, np.random.SeedSequence(5), np.int64(3)):
        env = make(name, rng=seed, **MINIMAL[name])
        assert same(REGISTRY[name](**env.parameters), env)


@pytest.mark.parametrize("name", DRAWN)
def test_seeds_differ_and_forms_of_a_seed_agree(name):
    def build(rng):
        return REGISTRY[name](**MINIMAL[name], rng=rng)

    assert same(build(7), build(7))
    assert same(build(7), make(name, rng=7, **MINIMAL[name]))
    assert same(build(7), build(np.random.SeedSequence(7)))
    assert same(build(7), build(np.random.default_rng(7)))
    assert not same(build(7), build(8))
    child = np.random.SeedSequence(7).spawn(1)[0]
    assert not same(build(7), build(child))
    assert build(child).parameters["rng"] == "SeedSequence"
    assert build(np.random.default_rng(7)).parameters["rng"] == "Generator"


SEEDS = [("0", TypeError), (1.5, TypeError), (True, TypeError), ([1], TypeError), (-1, ValueError)]
FROM_ONE = ("lock", "chain", "river-swim", "linear-q", "decoy")
REFUSALS = [
    *((name, "rng", seed, error) for name in DRAWN for seed, error in SEEDS),
    *((name, "horizon", 0, ValueError) for name in FROM_ONE),
    *((name, "horizon", value, TypeError) for name in FROM_ONE for value in (2.0, "3", True, None)),
    *((name, "n_actions", 1, ValueError) for name in ("lock", "chain", "linear-q", "decoy")),
    *(("lock", name, value, ValueError) for name in ("p_success", "final") for value in (-0.1, 1.1, np.nan, 10**400)),
    ("lock", "final", "0.5", TypeError),
    ("lock", "final", 1j, TypeError),
    ("lock", "dimension", 1, ValueError),
    ("lock", "dimension", 2.5, TypeError),
    ("chain", "length", 1, ValueError),
    ("chain", "fail", 2, ValueError),
    ("deep-sea", "size", 0, ValueError),
    ("deep-sea", "stochastic", 1, TypeError),
    ("river-swim", "n_states", 1, ValueError),
    ("linear-q", "n_states", 0, ValueError),
    ("linear-q", "dimension", 1, ValueError),
    *(("linear-q", "min_gap", value, ValueError) for value in (-1, 0, 100, np.nan)),
]


def test_bad_arguments_are_refused_by_name():
    refused(
        (functools.partial(REGISTRY[name], **MINIMAL[name] | {argument: value}), error, f"^{argument}: expected .*got")
        for name, argument, value, error in REFUSALS
    )


# Combination lock


def test_lock_value_is_the_final_reward():
    for horizon in (1, 2, 100):
        env = combination_lock(horizon, rng=0)
        assert env.optimal_value == env.gap == 0.7
        assert env.tight_range[0, 1] == 1.0
        assert env.caps.tolist() == [0.0] * (horizon - 1) + [1.0]


def test_lock_needs_every_secret_action():
    env = combination_lock(5, rng=3, p_success=0.9, final=0.5)
    assert env.optimal_value == pytest.approx(0.9**4 * 0.5, abs=1e-15)
    for level, q in enumerate(env.optimal_q):
        secret = q[0].argmax()
        assert q[0, secret] == pytest.approx(0.9 ** (4 - level) * 0.5)
        assert np.count_nonzero(q) == 1
    for transitions in env.P:
        assert sorted(transitions[0, :, 0].tolist()) == [0, 0, 0, 0.9]
        assert not transitions[1, :, 0].any()


@pytest.mark.parametrize("dimension", [2, 3, 50])
def test_lock_rotation_is_orthonormal_and_keeps_the_lock(dimension):
    plain, rotated = combination_lock(6, rng=1), combination_lock(6, rng=1, dimension=dimension)
    assert rotated.dimension == dimension
    assert all(np.array_equal(a, b) for a, b in zip(plain.P, rotated.P, strict=True))
    phi = rotated.features[0]
    np.testing.assert_allclose(phi @ phi.T, np.eye(2), atol=1e-15)
    assert all(features is phi for features in rotated.features)
    assert np.count_nonzero(phi) == phi.size
    assert rotated.realizability_residual < 1e-15


def test_lock_rotation_is_uniform_on_the_sphere():
    # First features of Haar-distributed rows are symmetric with second moment 1/d.
    first = np.array([combination_lock(1, rng=seed, dimension=4).features[0] for seed in range(400)])
    assert np.abs(first.mean(axis=0)).max() < 4 * np.sqrt(0.25 / 400)
    np.testing.assert_allclose((first**2).mean(axis=0), 0.25, atol=4 * np.sqrt(0.25 / 400) / 2)


def test_lock_secrets_are_uniform():
    env = combination_lock(4000, rng=0)
    counts = np.bincount([q[0].argmax() for q in env.optimal_q], minlength=4)
    assert np.abs(counts - 1000).max() < 4 * np.sqrt(4000 * 3 / 16)


# Decoy lock


def test_decoy_value_and_gap():
    for horizon, n_actions in ((1, 2), (2, 4), (60, 4)):
        env = decoy_lock(horizon, n_actions)
        assert env.optimal_value == 0.7
        assert env.gap == pytest.approx(0.3 if horizon > 1 else 0.6)
        assert env.realizability_residual < 1e-15
        np.testing.assert_allclose(np.linalg.norm(env.features[0], axis=1), [1, 1, 0], atol=1e-15)
        assert not env.caps.any()
        assert all(set(np.unique(transitions)) == {0, 1} for transitions in env.P)


def test_decoy_falls_once_for_a_tenth():
    env = decoy_lock(10)
    for level, (q, rewards) in enumerate(zip(env.optimal_q, env.R, strict=True)):
        last = level == 9
        fall = 0.1 * (1 - level / 10)
        np.testing.assert_allclose(rewards[0], [fall, 0.7 * last, fall, fall])
        np.testing.assert_allclose(q[0], np.where(np.arange(4) == 1, 0.7, fall + 0.3 * (not last)))
        np.testing.assert_allclose(q[1], [0.3, 0, 0, 0])
        assert not q[2].any()


# Chain


def test_chain_with_two_actions_is_rlberrys():
    env = chain(6, 2)
    expected = np.zeros((5, 2, 5))
    for state in range(5):
        back, on = max(state - 1, 0), min(state + 1, 4)
        expected[state, 0, back] += 0.9
        expected[state, 0, on] += 0.1
        expected[state, 1, back] += 0.1
        expected[state, 1, on] += 0.9
    np.testing.assert_allclose(env.P[0], expected, atol=1e-16)
    raw = env.R[0] / env.R[0].max()
    np.testing.assert_allclose(raw, [[0.05] * 2, [0] * 2, [0] * 2, [0] * 2, [1] * 2], atol=1e-16)


def test_chain_scale_is_the_largest_path_sum():
    for horizon in (1, 4, 5, 30):
        env = chain(horizon)
        # A path that ends in the far state needs length - 1 steps, the first of which pays 0.05.
        largest = max(0.05 * horizon, 0.05 + horizon - 4 if horizon > 4 else 0)
        assert 1 / env.R[0].max() == pytest.approx(largest)
        assert env.tight_range[0, 1] == pytest.approx(1)
        assert all(transitions is env.P[0] for transitions in env.P)


def test_chain_has_one_forward_action_a_state():
    for env in (chain(3, 5), chain(3, 5, rng=1), chain(3, 2, rng=2, length=9, fail=0.25)):
        assert (env.P[0][0, :, 1] > 0.5).sum() == 1
        forward = env.P[0].copy()
        assert np.unique(forward[1:-1].argmax(axis=2) - np.arange(1, env.dimension - 1)[:, None]).tolist() == [-1, 1]
    assert same(chain(3, 5), chain(3, 5, rng=0))


def test_chain_value_does_not_depend_on_the_number_or_names_of_actions():
    expected = chain(12, 2).optimal_value
    for n_actions, seed in itertools.product((2, 3, 7), (None, 1, 2)):
        assert chain(12, n_actions, rng=seed).optimal_value == pytest.approx(expected, abs=1e-14)


# Deep sea


def test_deep_sea_optimum():
    for size, rng in ((1, None), (2, 0), (10, 1), (30, None)):
        env = deep_sea(size, rng=rng)
        assert env.optimal_value == pytest.approx(1, abs=1e-14)
        assert env.n_states == tuple(range(1, size + 1))
        assert env.tight_range[0, 1] == pytest.approx(1)
        assert all(mask.all() for mask in env.reachable)


def simulate_deep_sea(size, right, actions, slips):
    """Play an episode by the rules, in the units of bsuite."""
    column, total = 0, 0.0
    for row, (action, slip) in enumerate(zip(actions, slips, strict=True)):
        if action == right[row, column]:
            total += (column == size - 1) - 0.01 / size
            column = min(column + (not slip), size - 1)
        else:
            column = max(column - 1, 0)
    return total


@pytest.mark.parametrize("stochastic", [False, True])
def test_deep_sea_plays_like_the_rules(stochastic):
    size = 6
    env = deep_sea(size, stochastic=stochastic)
    right = np.random.RandomState(42).binomial(1, 0.5, (size, size))
    rng = np.random.default_rng(0)
    for _ in range(50):
        actions, slips = rng.integers(2, size=size), rng.random(size) < 0.3 * stochastic
        state, total = 0, 0.0
        for level, (action, slip) in enumerate(zip(actions, slips, strict=True)):
            total += env.R[level][state, action] - 0.01 / size
            if level + 1 < size:
                row = env.P[level][state, action]
                possible = np.flatnonzero(row)
                moves = len(possible) > 1
                assert moves == (stochastic and action == right[level, state])
                if moves:
                    np.testing.assert_allclose(row[possible], [1 / size, 1 - 1 / size])
                state = possible[0 if slip else -1]
        assert total == pytest.approx(simulate_deep_sea(size, right, actions, slips), abs=1e-15)


# River swim


def test_river_swim_structure():
    env = river_swim()
    assert (env.horizon, env.n_states[0], env.n_actions, env.dimension) == (20, 6, 2, 6)
    P = env.P[0]
    np.testing.assert_array_equal(P[:, 0].argmax(axis=1), [0, 0, 1, 2, 3, 4])
    np.testing.assert_array_equal(P[:, 0].max(axis=1), 1)
    np.testing.assert_array_equal(P[0, 1], [0.4, 0.6, 0, 0, 0, 0])
    np.testing.assert_array_equal(P[3, 1], [0, 0, 0.05, 0.6, 0.35, 0])
    np.testing.assert_array_equal(P[5, 1], [0, 0, 0, 0, 0.4, 0.6])
    expected = np.zeros((6, 2))
    expected[0, 0], expected[5, 1] = 0.005, 1
    np.testing.assert_allclose(env.R[0] * 20, expected)


# Linear Q*


def test_linear_q_is_linear_within_the_papers_bounds():
    for seed, arguments in enumerate(
        (
            {},
            {"horizon": 1},
            {"horizon": 20, "n_states": 100, "dimension": 10, "n_actions": 5},
            {"dimension": 2},
            {"n_states": 1},
            {"min_gap": 0.01},
            {"n_states": 3, "dimension": 30},
        )
    ):
        env = linear_q(**arguments, rng=seed)
        assert env.realizability_residual < 1e-12
        assert max(rewards.max() for rewards in env.R) == pytest.approx(1 / env.horizon)
        assert min(rewards.min() for rewards in env.R) == 0
        assert np.linalg.norm(env.optimal_theta, axis=2).max() <= 1
        for features in env.features:
            np.testing.assert_allclose(np.linalg.norm(features, axis=1), 1)
        assert all((transitions > 0).all() for transitions in env.P)
        assert not env.caps.any()


def test_linear_q_is_not_trivially_linear():
    env = linear_q(rng=0)
    for features, q in zip(env.features, env.optimal_q, strict=True):
        assert np.linalg.matrix_rank(features) == env.dimension < len(features)
        assert len(np.unique(q.argmax(axis=1))) == env.n_actions
    assert 0.2 < env.gap * env.horizon / env.optimal_value < 1


# Registry


def test_descriptions_serve_a_command_line():
    described = describe()
    assert described.keys() == REGISTRY.keys()
    lock = {parameter.name: parameter for parameter in described["lock"]}
    assert list(lock) == ["horizon", "n_actions", "p_success", "final", "dimension"]
    assert lock["horizon"].required and not lock["final"].required
    assert (lock["final"].type, lock["final"].default) == (float, 0.7)
    assert (lock["dimension"].type, lock["dimension"].default) == (int, None)
    assert lock["horizon"].help == "Number of levels H >= 1."
    for parameters in described.values():
        for parameter in parameters:
            assert parameter.type in (int, float, bool, str)
            assert parameter.help.endswith(".") and "\n" not in parameter.help
            assert parameter.required or parameter.default is None or isinstance(parameter.default, parameter.type)


def test_make_refuses_by_name():
    names = "environment: expected one of cart-pole, chain, .*"
    refused(
        (functools.partial(make, name, **parameters), ValueError, words)
        for name, parameters, words in (
            ("locks", {}, f"{names} or bsuite:ID, got 'locks'; did you mean 'lock'"),
            ("nothing", {}, f"{names}, got 'nothing'$"),
            ("lock", {"horizn": 3}, "lock: expected parameters among horizon, .*'horizn'; did you mean 'horizon'"),
            ("lock", {"horizon": 3, "colour": 3}, "lock: .* got 'colour'$"),
            ("lock", {}, "lock: expected the parameter horizon, got none"),
        )
    )


def test_a_name_is_registered_once():
    with pytest.raises(ValueError, match=r"^name: 'lock' is already registered$"):
        register("lock")(chain)
    assert REGISTRY["lock"] is combination_lock
