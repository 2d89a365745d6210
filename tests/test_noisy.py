"""Tables with noise on their rewards, and tables in other units."""

import functools
import pickle

import numpy as np
import pytest
import scipy.sparse
from refusals import refused

import dmq_fast as dmq
from dmq_fast.environments import FiniteMDP, NoisyMDP, affine, chain, combination_lock, from_gymnasium, with_noise
from dmq_fast.environments.mirage import mirage_lock
from dmq_fast.results.appraisal import appraise
from dmq_fast.samplers import BatchEnvironment, BatchSampler, RolloutSampler, as_sampler

N = 20_000
ERRORS = 5.0  # a mean that is right is farther off with probability 6e-7


def with_ends(seed=0, sparse=False, caps=False):
    """Costs and gifts on the way; from any state an episode may end, or it goes on to the last level."""
    rng = np.random.default_rng(seed)
    states, actions, horizon = 4, 3, 4
    P, R = [], []
    for _ in range(horizon - 1):
        moves = rng.dirichlet(np.full(states, 0.4), size=(states, actions))
        moves[-1] = np.eye(states)[-1]
        P.append(scipy.sparse.csr_array(moves.reshape(-1, states)) if sparse else moves)
    for _ in range(horizon):
        R.append(np.round(rng.normal(size=(states, actions)), 3))
        R[-1][-1] = 0
    top = np.zeros(horizon)
    if caps:
        R[-1], top[-1] = np.abs(R[-1]), 5.0
    return FiniteMDP(P, R, [np.eye(states, states - 1)] * horizon, [0.5, 0.3, 0.2, 0.0], top)


TABLES = {
    "ends": with_ends,
    "sparse": functools.partial(with_ends, sparse=True),
    "caps": functools.partial(with_ends, caps=True),
    "lock": lambda: combination_lock(4, rng=0),
    "chain": lambda: chain(6),
    "mirage": lambda: mirage_lock(horizon=12, pre=2, gates=3, rng=0),
    "lake": lambda: from_gymnasium("FrozenLake-v1", 8),
    "cliff": lambda: from_gymnasium("CliffWalking-v1", 15),
}


def policies(mdp):
    rng = np.random.default_rng(1)
    yield dmq.Policy.uniform(mdp.horizon)
    yield dmq.Policy.greedy(rng.normal(size=(mdp.horizon, mdp.n_actions, mdp.dimension)))
    yield dmq.Policy.greedy(mdp.optimal_theta)


@pytest.mark.parametrize("name", TABLES)
@pytest.mark.parametrize("sigma", [0.0, 0.5])
def test_the_law_is_that_of_the_tables(name, sigma):
    mdp = TABLES[name]()
    env = with_noise(mdp, sigma)
    assert isinstance(env, BatchEnvironment) and type(as_sampler(env)) is BatchSampler
    for call, policy in enumerate(policies(mdp)):
        drawn = as_sampler(env).trajectories(policy, N, stream=dmq.Stream(0).at(call))
        y = drawn.returns_to_go(0)
        assert env.value(policy) == mdp.value(policy)
        assert abs(y.mean() - mdp.value(policy)) <= ERRORS * max(y.std(), 1e-9) / np.sqrt(N)
        for level, visits in enumerate(mdp.occupancy(policy)):
            seen = drawn.dense()[:, level]
            phi = np.asarray(mdp.features[level])
            error = ERRORS * np.sqrt(visits @ phi**2 / N) + 10 / N  # rare states are seen a few times, or not at all
            assert (np.abs(seen.mean(axis=0) - visits @ phi) <= error).all()
        if sigma == 0.0:
            low, high = mdp.value_range[0]
            assert low - 1e-9 <= y.min() and y.max() <= high + 1e-9


def test_noise_is_normal_and_ends_with_the_episode():
    mdp, uniform = with_ends(), dmq.Policy.uniform(4)
    quiet, noisy, last = (
        BatchSampler(with_noise(mdp, *given)).trajectories(uniform, N, stream=dmq.Stream(0))
        for given in ((0.0,), (2.0,), (2.0, True))
    )
    for mine, theirs in ((quiet, noisy), (quiet, last)):
        assert (mine.features == theirs.features).all() and (mine.actions == theirs.actions).all()
    going = quiet.dense().any(axis=2)
    noise = noisy.rewards - quiet.rewards
    assert not noise[~going].any() and going.all(axis=0)[0] and not going.all()
    assert abs(noise[going].mean()) <= ERRORS * 2 / np.sqrt(going.sum())
    assert noise[going].std() == pytest.approx(2.0, rel=0.02)
    assert np.array_equal(last.rewards[:, :3], quiet.rewards[:, :3])
    np.testing.assert_array_equal(last.rewards[:, 3], noisy.rewards[:, 3])


def test_what_is_known_of_it():
    mdp = with_ends()
    env = with_noise(mdp, 0.5)
    assert (env.noise, env.tables, env.source) == (0.5, mdp, mdp) and with_noise(mdp, 0).noise is None
    assert env.value_range is mdp.value_range and env.optimal_value == mdp.optimal_value
    sampler = as_sampler(env)
    assert sampler.rewards.noise == 0.5 and sampler.rewards.bounds is not None
    for source in (env, sampler):
        worth = appraise(source, dmq.Policy.uniform(4), 0, dmq.Stream(0))
        assert worth["value"] == worth["uniform_value"] == mdp.value(dmq.Policy.uniform(4))
        assert (worth["optimal_value"], worth["gap"], worth["score"]) == (mdp.optimal_value, mdp.gap, 0)
    again = pickle.loads(pickle.dumps(env))
    assert again.fingerprint() == env.fingerprint() != with_noise(mdp, 0.6).fingerprint()
    assert repr(env) == "NoisyMDP('noisy-finite-mdp', horizon=4, n_actions=3, dimension=3, noise=0.5)"


@pytest.mark.parametrize("name", TABLES)
@pytest.mark.parametrize(("scale", "shift"), [(3.0, 0.0), (1.0, -7.0), (0.125, 40.0)])
def test_values_and_ranges_are_scaled_and_shifted(name, scale, shift):
    mdp = TABLES[name]()
    # Anchors of the mirage lock pay a Bernoulli reward and end the episode.
    held = {"sparse": "expected dense transitions", "mirage": "expected no Bernoulli rewards where an episode may end"}
    if shift and name in held:
        with pytest.raises(ValueError, match=held[name]):
            affine(mdp, scale, shift)
        return
    other = affine(mdp, scale, shift)
    size = 1e-12 * np.abs(other.value_range).max()
    for policy in policies(mdp):
        assert other.value(policy) == pytest.approx(scale * mdp.value(policy) + shift, abs=size)
    assert other.optimal_value == pytest.approx(scale * mdp.optimal_value + shift, abs=size)
    assert other.gap == pytest.approx(scale * mdp.gap, rel=1e-9)
    np.testing.assert_allclose(other.value_range, scale * mdp.value_range + shift, rtol=1e-15)
    for mine, theirs in zip(mdp.ended, other.ended, strict=True):
        np.testing.assert_array_equal(mine, theirs)
    for h, (mine, theirs) in enumerate(zip(mdp.optimal_v, other.optimal_v, strict=True)):
        np.testing.assert_allclose(theirs, np.where(mdp.ended[h], 0.0, scale * mine + shift), rtol=0, atol=size)
    # In units of the range everything is as before.
    for level, going in enumerate(mdp.ended):
        if not going.all():
            np.testing.assert_allclose(
                other.tight_range[level], scale * mdp.tight_range[level] + shift, rtol=0, atol=size
            )


@pytest.mark.parametrize("name", ["ends", "caps", "lock", "lake"])
def test_a_noisy_one_is_moved_with_its_draws(name):
    mdp = TABLES[name]()
    env = with_noise(mdp, 0.25)
    moved = affine(affine(env, 2.0, 1.0), 4.0, -3.0)
    assert (moved.scale, moved.shift, moved.noise) == (8.0, 1.0, 2.0)
    assert moved.optimal_value == pytest.approx(8 * env.optimal_value + 1)
    uniform = dmq.Policy.uniform(mdp.horizon)
    ours, theirs = (BatchSampler(one).trajectories(uniform, 500, stream=dmq.Stream(0)) for one in (env, moved))
    assert (ours.features == theirs.features).all() and (ours.actions == theirs.actions).all()
    np.testing.assert_allclose(theirs.returns_to_go(0), 8 * ours.returns_to_go(0) + 1, rtol=1e-12, atol=1e-12)
    going = ours.dense().any(axis=2)
    for level in range(mdp.horizon):
        expected = 8 * ours.returns_to_go(level) + going[:, level]
        np.testing.assert_allclose(theirs.returns_to_go(level), expected, rtol=1e-12, atol=1e-12)


def test_tables_that_are_moved_draw_the_same_where_their_shape_stays():
    mdp = with_ends()
    uniform = dmq.Policy.uniform(4)
    ours, theirs = (
        RolloutSampler(one).trajectories(uniform, 500, stream=dmq.Stream(0)) for one in (mdp, affine(mdp, 2.0, 5.0))
    )
    assert (ours.features == theirs.features).all()
    np.testing.assert_allclose(theirs.returns_to_go(0), 2 * ours.returns_to_go(0) + 5, rtol=1e-12, atol=1e-12)


def test_what_is_refused():
    mdp = with_ends()
    refused(
        [
            (lambda: with_noise(with_noise(mdp, 1.0), 1.0), TypeError, "^env: expected a FiniteMDP.*got NoisyMDP"),
            (lambda: with_noise(mdp, -1.0), ValueError, "^sigma: expected a number"),
            (lambda: with_noise(mdp, 1.0, 2), TypeError, "^last: expected"),
            (lambda: affine(mdp, 0.0), ValueError, "^scale: expected a number > 0, got 0"),
            (lambda: affine(mdp, 1.0, np.inf), ValueError, "^shift: expected a number"),
            (lambda: affine(dmq.environments.mountain_car(5)), TypeError, "^env: expected a FiniteMDP or a NoisyMDP"),
            (lambda: affine(with_ends(sparse=True), 1.0, 2.0), ValueError, "^env: P: level 0: expected dense transit"),
        ]
    )
    assert isinstance(with_noise(mdp, 1.0), NoisyMDP)
