"""Block MDPs: the kernel against a NumPy twin, the distribution of what it draws, and the locks built on it."""

from __future__ import annotations

import gc
import itertools
import sys
from functools import partial

import numpy as np
import pytest
import scipy.stats
from hypothesis import strategies as st
from properties import for_all, seeds
from refusals import refused
from test_normal import HALF, of_odd
from test_rollout import feature_array, packed, random_mdp, twin
from twins import noise_words, threefry

from dmq_fast.environments import FiniteMDP, combination_lock, deep_sea
from dmq_fast.environments.block import block_mdp, diabolical_lock, lock_bernoulli, lock_gaussian, noisy_deep_sea
from dmq_fast.environments.linear_mdp import linear_mdp
from dmq_fast.kernels._block import BlockModel
from dmq_fast.kernels._env import EnvironmentHandle

pytestmark = pytest.mark.kernels

EPS = np.finfo(np.float64).eps
LEVEL = 1e-4  # of a statistical test

# Twins --------------------------------------------------------------------------------------------------------------


def digits(u, n_coins):
    """Coins of uniforms (n, m): binary digits, 52 from each."""
    coins = []
    for column in u.T:
        rest = column.copy()
        for _ in range(52):
            rest = 2 * rest
            coins.append(np.floor(rest))
            rest -= coins[-1]
    return np.array(coins).T[:, :n_coins]


def noise_of(u, d):
    """The standard normals (n, d) of observations with the uniforms u (n, 2)."""
    m = (d + 3) // 4
    words = noise_words(u, m).reshape(len(u), 4 * m)[:, :d]
    return of_odd(2 * (words >> np.uint32(6)).astype(np.int64) + 1 - HALF)


def observations(rows, states, u, noise, n_coins, sigma, scale):
    base = scale * rows[states]
    if noise == "coins":
        return np.hstack([base, scale * digits(u, n_coins)])
    if noise == "none" or sigma == 0:
        return base
    phi = base + scale * sigma * noise_of(u, base.shape[1])
    norms = np.linalg.norm(phi, axis=1, keepdims=True)
    return phi / np.maximum(1, norms)


def without_noise(env, level, states):
    """What states emit but for Gaussian noise, and its deviation, from two observations of each with known noise."""
    raw, u = raw_states(states), np.array([[0.25, 0.5], [0.5, 0.25]])
    first, second = (env.handle.features(level, raw, np.tile(row, (len(raw), 1))) for row in u)
    assert max(np.linalg.norm(phi, axis=1).max() for phi in (first, second)) < 1 - 1e-9, "expected no projection"
    z, other = noise_of(u, env.dimension)
    deviation = float(np.mean((first - second) @ (z - other)) / np.sum((z - other) ** 2))
    return first - deviation * z, deviation


def follow(plain, h, states, actions, u):
    """Next states and rewards of one step, trajectory by trajectory."""
    last, reward = h == len(plain.rewards) - 1, plain.rewards[h]
    by_edge = reward.ndim == 3 and bool(reward.any())
    after, paid = [], []
    for s, a, row in zip(states, actions, u, strict=True):
        left = list(row)
        here = plain.caps[h] * (left.pop(0) < reward[s, a] / plain.caps[h]) if plain.is_bernoulli(h) else None
        s_next = None
        if h < len(plain.tables):
            table = plain.tables[h][s][a]
            if not plain.stochastic[h]:
                s_next = int(table[0][0])
            elif not last or by_edge:
                s_next = plain.draw(table, left.pop(0))
        if here is None:
            here = reward[s, a] if reward.ndim == 2 else (reward[s, a, s_next] if by_edge else 0.0)
        assert not left
        after.append(s_next)
        paid.append(here)
    return after, np.array(paid)


def states_of(raw):
    return raw.view(np.int32)[:, 0]


def raw_states(states):
    return np.array(states, dtype=np.int32)[:, None].view(np.uint8)


def handle_of(model, base, **arguments):
    return EnvironmentHandle(BlockModel(model, base, **arguments))


# The kernel ---------------------------------------------------------------------------------------------------------


@for_all(
    seed=seeds,
    horizon=st.integers(1, 5),
    largest=st.integers(1, 6),
    n_actions=st.integers(1, 4),
    shared=st.booleans(),
    caps=st.booleans(),
    start=st.sampled_from(["one state", "random"]),
    n=st.sampled_from([0, 1, 7, 50]),
)
def test_steps_follow_the_twin(seed, horizon, largest, n_actions, shared, caps, start, n):
    rng = np.random.default_rng(seed)
    env = random_mdp(rng, horizon, largest, n_actions, 3, "dense", shared=shared, caps=caps, start=start)
    plain, handle = twin(env), handle_of(packed(env), env.features)
    assert (handle.horizon, handle.n_actions, handle.dimension, handle.state_bytes) == (horizon, n_actions, 3, 4)
    assert set(handle.feature_uniforms) == {0}
    assert handle.reset_uniforms == (len(plain.start[0]) > 1)
    u = rng.random((n, handle.reset_uniforms))
    raw = handle.reset(u)
    first = [plain.draw(plain.start, row[0] if len(row) else 0.0) for row in u]
    assert states_of(raw).tolist() == first
    for h in range(horizon):
        states = states_of(raw).tolist()
        assert (handle.features(h, raw) == env.features[h][states]).all()
        assert (handle.ended(h, raw) == env.ended[h][states]).all()
        actions = rng.integers(n_actions, size=n)
        u = rng.random((n, handle.step_uniforms[h]))
        rewards = handle.step(h, raw, actions, u)
        after, paid = follow(plain, h, states, actions, u)
        assert rewards == pytest.approx(paid, rel=4 * EPS, abs=0)
        if h < horizon - 1:
            assert states_of(raw).tolist() == after


def test_episodes_are_over_where_rows_are_zero_from_then_on():
    """States 0 and 1 of four levels; 1 is absorbing. Its row is 0 throughout, or but for one level; or it pays once."""
    stay, rows, blank = np.eye(2)[:, None], np.eye(2, 3), np.array([[1.0, 0.0, 0.0], [0.0, 0.0, 0.0]])
    quiet, pays = np.zeros((2, 1)), np.array([[0.0], [0.1]])
    drift = np.array([[[0.5, 0.5]], [[0.0, 1.0]]])
    paid_on_the_way = np.array([[[0.0, -1.0]], [[0.0, 0.0]]])
    cases = [
        ([stay] * 3, [quiet] * 4, [blank] * 4, [1, 1, 1, 1]),
        ([drift] * 3, [quiet] * 4, [blank] * 4, [1, 1, 1, 1]),
        ([drift] * 3, [paid_on_the_way] * 3 + [quiet], [blank] * 4, [1, 1, 1, 1]),
        ([drift[:, :, ::-1]] * 3, [quiet] * 4, [blank] * 4, [0, 0, 0, 1]),
        ([stay] * 3, [quiet] * 4, [blank, rows, blank, blank], [0, 0, 1, 1]),
        ([stay] * 3, [quiet, quiet, pays, quiet], [blank] * 4, [0, 0, 0, 1]),
        ([stay] * 3, [quiet, pays, quiet, pays], [blank] * 4, [0, 0, 0, 0]),
    ]
    for P, R, features, expected in cases:
        env = FiniteMDP(P, R, features)
        handle = block_mdp(env).handle
        over = np.array([handle.ended(h, raw_states([0, 1])) for h in range(4)])
        assert over[:, 1].tolist() == [bool(flag) for flag in expected] and not over[:, 0].any()
        np.testing.assert_array_equal(over, env.ended)
    env = FiniteMDP([stay] * 3, [quiet] * 4, [blank] * 4)
    for noise in ({"noise": "coins", "n_coins": 2}, {"noise": "gaussian", "sigma": 0.1}):  # then features are not 0
        assert not block_mdp(env, **noise).handle.ended(3, raw_states([0, 1])).any()
    assert block_mdp(env, noise="gaussian", sigma=0.0).handle.ended(3, raw_states([0, 1])).any()


@for_all(
    quick=80,
    seed=seeds,
    n_states=st.integers(1, 5),
    m=st.one_of(st.integers(1, 70), st.sampled_from([127, 128, 129, 255, 256, 257, 600])),
    noise=st.sampled_from(["none", "coins", "gaussian"]),
    n_coins=st.sampled_from([1, 3, 51, 52, 53, 104, 130]),
    sigma=st.sampled_from([0.0, 0.1, 0.3, 2.0]),
    scale=st.sampled_from([1.0, 0.5, 0.3]),
    n=st.sampled_from([0, 1, 2, 9, 33]),
)
def test_observations_follow_the_twin(seed, n_states, m, noise, n_coins, sigma, scale, n):
    rng = np.random.default_rng(seed)
    rows = feature_array(rng, n_states, m, "dense")
    mdp = FiniteMDP(
        [np.ones((n_states, 1, n_states)) / n_states], np.zeros((2, n_states, 1)), [np.ones((n_states, 1))] * 2
    )
    n_coins, sigma = n_coins if noise == "coins" else 0, sigma if noise == "gaussian" else 0.0
    other = -rows
    handle = handle_of(packed(mdp), [rows, other], noise=noise, n_coins=n_coins, sigma=sigma, scale=scale)
    assert handle.dimension == m + n_coins
    expected = {"none": 0, "coins": -(-n_coins // 52), "gaussian": 2 if sigma else 0}[noise]
    assert handle.feature_uniforms == (expected, expected)
    states = rng.integers(n_states, size=n)
    u = rng.random((n, expected))
    for level, base in enumerate((rows, other)):
        phi = handle.features(level, raw_states(states), u)
        want = observations(base, states, u, noise, n_coins, sigma, scale)
        if noise == "gaussian" and sigma:
            assert np.abs(phi - want).max(initial=0) <= 8 * EPS
            inside = np.linalg.norm(want, axis=1) < 1 - 1e-9
            assert (phi[inside] == want[inside]).all()
            assert np.linalg.norm(phi, axis=1).max(initial=0) <= 1 + 4 * EPS
        else:
            assert (phi == want).all()


def test_the_twin_of_the_generator_gives_the_answers_of_its_authors():
    """The answers of Random123, the authors' library, to Threefry4x32 with 20 rounds."""
    digits_of_pi = [0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344]
    for word, key, block in [
        ([0] * 4, [0] * 4, "9c6ca96a e17eae66 fc10ecd4 5256a7d8"),
        ([0xFFFFFFFF] * 4, [0xFFFFFFFF] * 4, "2a881696 57012287 f6c7446e a16a6732"),
        (digits_of_pi, [0xA4093822, 0x299F31D0, 0x082EFA98, 0xEC4E6C89], "59cd1dbb b8879579 86b5d00c ac8b6d84"),
    ]:
        answer = threefry(np.array(word, dtype=np.uint32)[:, None], key)[:, 0]
        assert " ".join(f"{x:08x}" for x in answer) == block


def test_arrays_given_for_several_levels_are_told_apart():
    mdp = combination_lock(4, rng=0)
    one, other = np.eye(2), np.eye(2)[::-1]
    handle = handle_of(packed(mdp), [one, other, one, other])
    states = raw_states([0, 1])
    assert all((handle.features(h, states) == (one, other)[h % 2]).all() for h in range(4))


def test_the_model_lives_as_long_as_somebody_holds_it():
    mdp = lock_bernoulli(3, 0.5, rng=0)
    model = BlockModel(packed(mdp), mdp.features)
    count = sys.getrefcount(model)
    unused = model.__dmq_environment__()
    first, second = EnvironmentHandle(model.__dmq_environment__()), EnvironmentHandle(model)
    assert sys.getrefcount(model) > count
    del unused, second
    raw = first.reset(np.empty((5, 0)))
    del first
    gc.collect()
    assert sys.getrefcount(model) == count
    handle = EnvironmentHandle(model.__dmq_environment__())
    del model, mdp
    gc.collect()
    assert (handle.features(0, raw) == np.eye(3)[0]).all()


def test_kernel_refuses():
    model, fitting = packed(combination_lock(2, rng=0)), [np.eye(2)] * 2
    arguments = [
        ({"noise": "loud"}, "noise: expected one of none, coins, gaussian, got 'loud'"),
        ({"noise": "coins"}, "n_coins: expected a number >= 1 for coins"),
        ({"n_coins": 3}, "n_coins: expected a number >= 1 for coins, and 0 for other noise, got 3"),
        ({"noise": "coins", "n_coins": 2**63 - 1}, "^n_coins: expected an integer"),
        ({"noise": "coins", "n_coins": 2**63}, "^n_coins: expected an integer"),
        ({"noise": "coins", "n_coins": -1}, "^n_coins: expected an integer"),
        ({"sigma": 0.1}, "sigma: expected 0 without Gaussian noise, got 0.1"),
        ({"noise": "gaussian", "sigma": -0.1}, "sigma: expected a non-negative number"),
        ({"scale": 0.0}, "scale: expected a positive number"),
        ({"base": [np.eye(2)]}, "base: expected 2 arrays, one a level, got 1"),
        ({"base": [np.eye(2), np.eye(3)]}, r"base: level 1: expected shape \(any, 2\), got \(3, 3\)"),
        ({"base": [np.eye(2), np.eye(3, 2)]}, "base: level 1: expected one row for each of 2 states, got 3"),
        ({"base": [np.empty((2, 0))] * 2}, "base: level 0: expected at least one column"),
        ({"base": [np.full((2, 1), np.nan)] * 2}, "base: level 0: expected finite numbers"),
    ]
    calls = [(partial(BlockModel, model, **({"base": fitting} | given)), text) for given, text in arguments]
    refused([(call, ValueError, text) for call, text in calls])
    refused([(partial(BlockModel, model, (), noise="coins", n_coins=1.5), TypeError, "^n_coins: expected an integer")])


# What is drawn ------------------------------------------------------------------------------------------------------


def test_gaussian_noise_is_that_of_the_twin_after_a_rotation_too():
    env = block_mdp(lock_bernoulli(2, rng=0), noise="gaussian", sigma=0.2, dimension=10, rng=5)
    rows, deviation = without_noise(env, 0, range(3))
    scale = 1 / (1 + 0.2 * (np.sqrt(10) + 3))
    assert deviation == pytest.approx(0.2 * scale)
    assert rows @ rows.T == pytest.approx(scale**2 * np.eye(3), abs=1e-12)
    u = np.random.default_rng(5).random((100, 2))
    noise = env.handle.features(0, raw_states(np.arange(100) % 3), u) - rows[np.arange(100) % 3]
    assert noise == pytest.approx(deviation * noise_of(u, 10), abs=1e-12)


def test_noise_is_normal_and_independent_where_uniforms_are_neighbours():
    """Uniforms that count up differ in one bit or a few, as do the blocks of one observation."""
    d = 64
    mdp = combination_lock(1, rng=0)
    sigma, n = 1e-3, 1_200_000 // d
    handle = handle_of(packed(mdp), [np.zeros((2, d))], noise="gaussian", sigma=sigma)
    u = np.column_stack([np.full(n, 0.5), np.arange(n) * 2.0**-53])
    z = handle.features(0, raw_states(np.zeros(n)), u) / sigma
    assert scipy.stats.kstest(z.ravel(), "norm").pvalue > LEVEL
    for limit in (3.0, 4.0):  # each tail on its own
        for beyond in (z > limit, z < -limit):
            assert scipy.stats.binomtest(int(beyond.sum()), z.size, scipy.stats.norm.sf(limit)).pvalue > LEVEL
    # Powers of normals have the means 0, 1, 0, 3 and the variances 1, 2, 15, 96.
    for power, mean, variance in ((1, 0, 1), (2, 1, 2), (3, 0, 15), (4, 3, 96)):
        assert abs((z**power).mean() - mean) <= 4 * np.sqrt(variance / z.size)
    # Products of independent normals, and of their squares less 1: means 0, variances 1 and 4.
    pairs = [(z[1:], z[:-1]), (z[:, 1:], z[:, :-1])]
    m = (d + 3) // 4
    pairs.append((z[:, m : 2 * m], z[:, :m]))  # two words of one block
    for x, y in pairs:
        assert abs((x * y).mean()) <= 4 * np.sqrt(1 / x.size)
        assert abs(((x**2 - 1) * (y**2 - 1)).mean()) <= 4 * np.sqrt(4 / x.size)
    # The sum of z z^T over n rows: entries off the diagonal have the variance n, those on it 2 n.
    gram = z.T @ z - n * np.eye(d)
    gram[np.diag_indices(d)] /= np.sqrt(2)
    assert np.abs(gram).max() <= scipy.stats.norm.isf(LEVEL / d**2) * np.sqrt(n)


def test_projections_are_as_rare_as_said():
    d = np.arange(1, 5_000)
    assert scipy.stats.chi2.sf((np.sqrt(d) + 3) ** 2, d).max() <= 7e-5
    env = lock_gaussian(5, sigma=0.3, rng=0)
    rng = np.random.default_rng(6)
    phi = env.handle.features(0, raw_states(np.zeros(20_000)), rng.random((20_000, 2)))
    assert np.linalg.norm(phi, axis=1).max() < 1


# The environments ---------------------------------------------------------------------------------------------------


def test_a_finite_mdp_becomes_a_compiled_environment():
    latent = deep_sea(5)
    env = block_mdp(latent)
    assert env.latent is latent and env.dimension == 5 and env.optimal_value == latent.optimal_value
    assert env.handle.feature_uniforms == env.handle.step_uniforms == (0,) * 5
    assert all((env.handle.features(h, raw_states(np.arange(h + 1))) == latent.features[h]).all() for h in range(5))
    assert env.parameters["latent"] == {"name": "deep-sea", **latent.parameters}


@pytest.mark.parametrize("rotation", ["random", "hadamard"])
def test_rotations_keep_lengths_and_angles(rotation):
    latent = deep_sea(5)
    rows = [
        rng.normal(size=(size, 7)) for size, rng in zip(range(1, 6), map(np.random.default_rng, range(5)), strict=True)
    ]
    env = block_mdp(latent, embedding=rows, rotation=rotation, rng=0)
    assert env.dimension == {"random": 7, "hadamard": 8}[rotation]
    scale = 1 / max(np.linalg.norm(array, axis=1).max() for array in rows)
    seen = np.vstack([env.handle.features(h, raw_states(np.arange(h + 1))) for h in range(5)])
    before = scale * np.vstack(rows)
    assert np.abs(seen @ seen.T - before @ before.T).max() <= 1e-12
    assert not np.allclose(seen[:, :7], before)
    if rotation == "hadamard":
        spread = block_mdp(latent, rotation="hadamard", dimension=16).handle.features(4, raw_states(range(5)))
        assert (np.abs(spread) == 0.25).all()


def test_block_mdps_are_drawn_from_their_seed():
    def look(seed):
        env = block_mdp(deep_sea(4), noise="gaussian", sigma=0.1, dimension=6, rng=seed)
        return env, env.handle.features(2, raw_states([0, 1, 2]), np.full((3, 2), 0.3))

    (env, one), (_, same), (_, other) = look(7), look(7), look(8)
    assert (one == same).all() and not np.allclose(one, other)
    again = env._factory()
    assert (again.handle.features(2, raw_states([0, 1, 2]), np.full((3, 2), 0.3)) == one).all()
    assert again.parameters == env.parameters and env.parameters["rotation_rng"] == 7
    for factory in (lock_bernoulli, lock_gaussian, diabolical_lock):
        assert factory(20, rng=3).parameters == factory(20, rng=3).parameters
        first, second = (getattr(factory(20, rng=seed), "latent", factory(20, rng=seed)) for seed in (3, 4))
        assert not all((p == q).all() for p, q in zip(first.P, second.P, strict=True))


def test_block_mdp_refuses():
    latent, eye = lock_bernoulli(4, rng=0), np.eye(3)
    table = [
        ({"latent": "lock"}, TypeError, "latent: expected a FiniteMDP, got str"),
        ({"noise": "loud"}, ValueError, "noise: expected one of"),
        ({"noise": "gaussian", "sigma": -1.0}, ValueError, "sigma: expected a number in"),
        ({"noise": "coins", "n_coins": 2.5}, TypeError, "n_coins: expected an integer"),
        ({"noise": "coins", "n_coins": 2, "dimension": 8}, ValueError, "dimension, rotation: expected None with coins"),
        ({"dimension": 2}, ValueError, "dimension: expected an integer >= 3"),
        ({"dimension": 6, "rotation": "hadamard"}, ValueError, "dimension: expected a power of 2"),
        ({"rotation": "fourier"}, ValueError, "rotation: expected one of"),
        ({"embedding": 3.0}, TypeError, "embedding: expected an array, got float"),
        ({"embedding": np.eye(4)}, ValueError, r"embedding: level 0: expected shape \(3, 4\), got \(4, 4\)"),
        ({"embedding": [np.eye(3)]}, ValueError, "embedding: expected one array, or 4, one a level, got 1"),
        (
            {"embedding": [eye, np.eye(3, 4), eye, eye]},
            ValueError,
            r"embedding: level 1: expected shape \(3, 3\), got \(3, 4\)",
        ),
    ]
    refused([(partial(block_mdp, **({"latent": latent} | given)), error, text) for given, error, text in table])


def decoding_lock_step(secrets, switch, n_actions, h, state, action):
    """Distribution of the next state, and mean of the reward if this is the last level, as StateDecoding says it."""
    if state == 2:
        return {2: 1.0}, 0.0
    other = 1 - state
    if action == secrets[h][state]:
        return {state: 1 - switch, other: switch}, 0.5
    if action == (secrets[h][state] + 1) % n_actions:
        return {other: 1 - switch, state: switch}, 0.5
    return {2: 1.0}, 0.0


@pytest.mark.parametrize(("switch", "n_actions"), [(0.0, 4), (0.1, 2)])
def test_lock_bernoulli_is_the_lock_of_state_decoding(switch, n_actions):
    env = lock_bernoulli(8, switch, n_actions=n_actions, rng=2)
    secrets = np.random.default_rng(2).integers(n_actions, size=(8, 2))
    assert env.optimal_value == pytest.approx(0.5, abs=1e-15) and env.realizability_residual <= 1e-14
    for h, state, action in itertools.product(range(8), range(3), range(n_actions)):
        after, mean = decoding_lock_step(secrets, switch, n_actions, h, state, action)
        if h < 7:
            assert env.P[h][state, action] == pytest.approx([after.get(s, 0.0) for s in range(3)])
        assert env.R[h][state, action] == (mean if h == 7 else 0)
    assert env.caps.tolist() == [0] * 7 + [1]


def test_locks_are_seen_as_in_the_field():
    coins = lock_bernoulli(5, 0.1, observation="coins", rng=2)
    assert coins.dimension == 8 and coins.optimal_value == pytest.approx(0.5)
    assert coins.handle.feature_uniforms == (1,) * 5 and coins.handle.step_uniforms == (1,) * 5
    tight = coins.handle.features(0, raw_states([0]), [[1 - 2.0**-53]])
    assert np.linalg.norm(tight) == pytest.approx(1)
    noisy = lock_gaussian(5, 0.0, 0.1, rng=2)
    assert noisy.dimension == 8 and noisy.optimal_value == pytest.approx(0.5)
    assert noisy.handle.feature_uniforms == (2,) * 5 and noisy.handle.step_uniforms == (0,) * 4 + (1,)
    scale = 1 / (1 + 0.1 * (np.sqrt(8) + 3))
    rows, deviation = without_noise(noisy, 0, range(3))
    assert rows == pytest.approx(scale * np.eye(3, 8)) and deviation == pytest.approx(0.1 * scale)
    assert lock_gaussian(5, sigma=0.0, rng=0).handle.feature_uniforms == (0,) * 5


@pytest.mark.parametrize(("horizon", "swap"), [(1, 0.5), (2, 0.0), (20, 0.5)])
def test_diabolical_lock_with_live_costs(horizon, swap):
    env = diabolical_lock(horizon, swap=swap, rng=4)
    assert env.optimal_value == pytest.approx(1)
    assert env.tight_range[0, 1] == pytest.approx(1) and env.start.tolist() == [1 - swap, swap, 0]
    secrets = np.random.default_rng(4).integers(10, size=(horizon, 2))
    cost = 1 / (horizon - 1) if horizon > 1 else 0
    for h, state, action in itertools.product(range(horizon), range(3), range(10)):
        alive = state < 2 and action == secrets[h][state]
        reward = (5 if h == horizon - 1 else -cost) if alive else 0
        # The cost is added to every reward, so that none is negative, and the largest sum is 5 and all of them, or 5.
        assert env.R[h][state, action] * (5 + (horizon > 1) * horizon * cost - (horizon > 1)) == pytest.approx(
            reward + cost, abs=1e-12
        )
        if h < horizon - 1:
            expected = [0, 0, 1] if not alive else [1 - swap, swap, 0] if state == 0 else [swap, 1 - swap, 0]
            assert env.P[h][state, action].tolist() == expected


@pytest.mark.parametrize("horizon", [1, 5])
def test_diabolical_lock_with_anti_shaping(horizon):
    env = diabolical_lock(horizon, 3, swap=0.5, shaping="anti-shaping", rng=4)
    assert env.optimal_value == pytest.approx(1)
    secrets = np.random.default_rng(4).integers(3, size=(horizon, 2))
    handle, n = block_mdp(env).handle, 4_000
    rng = np.random.default_rng(5)
    for h, state, action in itertools.product(range(horizon), range(3), range(3)):
        alive = state < 2 and action == secrets[h][state]
        raw = raw_states([state] * n)
        rewards = handle.step(h, raw, [action] * n, rng.random((n, handle.step_uniforms[h])))
        falls = state < 2 and not alive
        paid = {0.0, 0.1} if falls else {float(alive and h == horizon - 1)}
        assert set(rewards.tolist()) == paid
        if falls:
            assert scipy.stats.binomtest(int((rewards > 0).sum()), n).pvalue > LEVEL
        if h < horizon - 1:
            assert set(states_of(raw).tolist()) == ({0, 1} if alive else {2})


def test_diabolical_lock_is_seen_through_a_hadamard_matrix():
    env = diabolical_lock(20, swap=0.5, observation="noisy", rng=4)
    assert env.dimension == 32 and env.optimal_value == pytest.approx(1)
    still = [without_noise(env, h, range(3))[0] for h in range(20)]
    seen = np.vstack(still) * (np.sqrt(2) + 0.1 * (np.sqrt(32) + 3))
    level, state = np.divmod(np.arange(60), 3)
    expected = (level[:, None] == level) * 1.0 + (state[:, None] == state)
    assert np.abs(seen @ seen.T - expected).max() <= 1e-12
    entries = np.unique(np.abs(np.round(seen * np.sqrt(32), 9)))
    assert entries.tolist() == [0, 2]


def test_noisy_deep_sea_hides_deep_sea():
    env = noisy_deep_sea(10, dimension=16)
    plain = deep_sea(10)
    assert env.optimal_value == pytest.approx(1)
    assert all((p == q).all() for p, q in zip(env.latent.P, plain.P, strict=True))
    assert env.dimension == 16 and noisy_deep_sea(10).dimension == 10
    same, _ = without_noise(noisy_deep_sea(10, dimension=16), 9, range(10))
    assert (without_noise(env, 9, range(10))[0] == same).all()
    assert any((p != q).any() for p, q in zip(noisy_deep_sea(10, rng=0).latent.P, plain.P, strict=True))
    assert max(noisy_deep_sea(3, stochastic=True).handle.step_uniforms) == 1


@for_all(
    seed=seeds,
    horizon=st.integers(1, 5),
    n_states=st.integers(1, 12),
    dimension=st.integers(1, 5),
    n_actions=st.integers(1, 4),
)
def test_linear_mdps_are_linear(seed, horizon, n_states, dimension, n_actions):
    env = linear_mdp(horizon, n_states, dimension, n_actions, rng=seed)
    assert env.dimension == dimension * n_actions and env.tight_range[0, 1] == pytest.approx(1)
    phi = env.features[0].reshape(n_states, n_actions, dimension) * np.sqrt(n_actions)
    assert phi.min() >= 0 and phi.sum(axis=2) == pytest.approx(np.ones((n_states, n_actions)))
    flat = phi.reshape(-1, dimension)
    for level in range(horizon):
        targets = [env.R[level].reshape(-1, 1), env.optimal_q[level].reshape(-1, 1)]
        if level < horizon - 1:
            targets.append(env.P[level].reshape(-1, n_states))
        for target in targets:
            fit = np.linalg.lstsq(flat, target, rcond=None)[0]
            assert np.abs(flat @ fit - target).max() <= 1e-10
    assert env.realizability_residual <= 1e-10


def test_generators_refuse():
    table = [
        (lambda: lock_bernoulli(0), "horizon: expected an integer >= 1"),
        (lambda: lock_bernoulli(3, 1.5), "switch: expected a number in"),
        (lambda: lock_bernoulli(3, n_actions=1), "n_actions: expected an integer >= 2"),
        (lambda: lock_bernoulli(3, observation="bits"), "observation: expected one of latent, coins, got 'bits'"),
        (lambda: lock_gaussian(3, sigma=np.inf), "sigma: expected a number in"),
        (lambda: diabolical_lock(3, shaping="none"), "shaping: expected one of live-cost, anti-shaping, got 'none'"),
        (lambda: diabolical_lock(3, observation="coins"), "observation: expected one of latent, noisy"),
        (lambda: diabolical_lock(3, swap=-0.1), "swap: expected a number in"),
        (lambda: noisy_deep_sea(0), "size: expected an integer >= 1"),
        (lambda: noisy_deep_sea(4, dimension=3), "dimension: expected an integer >= 4"),
        (lambda: linear_mdp(n_states=0), "n_states: expected an integer >= 1"),
    ]
    refused([(call, ValueError, message) for call, message in table])


def test_states_of_another_level_are_refused():
    handle = lock_bernoulli(4, observation="coins", rng=0).handle
    states = handle.reset(np.full((2, handle.reset_uniforms), 0.5))
    uniforms = [np.full((2, n), 0.5) for n in (handle.feature_uniforms[0], handle.step_uniforms[0])]
    assert handle.features(0, states, uniforms[0]).shape == (2, handle.dimension)
    for number in (-1, 3, 2**31 - 1):
        wrong = states.copy()
        wrong.view(np.int32)[1] = number
        message = rf"^states: expected numbers in \[0, \d\) at level 0, got .*{number}"
        look, act = partial(handle.features, 0, wrong), partial(handle.step, 0, wrong, [0, 0])
        refused([(partial(look, uniforms[0]), ValueError, message), (partial(act, uniforms[1]), ValueError, message)])
