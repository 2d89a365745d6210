"""Learned policies act on the observations of their environments, also after they were saved."""

import pickle

import gymnasium
import numpy as np
import pytest
import scipy.sparse
from refusals import refused
from test_sources import Corner, Walk

import dmq_fast as dmq
from dmq_fast.environments import FiniteMDP, GymnasiumBatch, as_environment, chain, combination_lock, with_noise
from dmq_fast.observing import described, observer_of
from dmq_fast.policy import BoundPolicy, Policy

CLIFF, LAKE = "CliffWalking-v1", "FrozenLake-v1"


def saved(result, tmp_path):
    result.save(tmp_path / "result.npz")
    return dmq.load(tmp_path / "result.npz")


def played(env, policy, horizon):
    """The return of an episode of Gymnasium, played on its observations."""
    observation, _ = env.reset(seed=0)
    total = 0.0
    for level in range(horizon):
        action = policy.act_on(level, observation)
        assert type(action) is int and env.action_space.contains(action)
        observation, reward, terminated, truncated, _ = env.step(action)
        total += reward
        if terminated or truncated:
            break
    return total


def best(mdp):
    return Policy.greedy(mdp.optimal_theta)


def test_tables_of_gymnasium_are_played_in_gymnasium(tmp_path):
    mdp = as_environment(CLIFF, 20)
    result = dmq.DMQ(mdp, n_samples=5, variant="frugal", rng=0).learn(max_trajectories=50)
    assert isinstance(result.policy, BoundPolicy) and isinstance(result.policy, Policy)
    policy = best(mdp).bind(mdp)
    assert policy == best(mdp) and hash(policy) == hash(best(mdp)) and mdp.value(policy) == -13
    assert played(gymnasium.make(CLIFF), policy, 20) == -13
    for other in (saved(result, tmp_path).policy, pickle.loads(pickle.dumps(result.policy))):
        assert other == result.policy
        assert [other.act_on(19, s) for s in range(37)] == [result.policy.act_on(19, s) for s in range(37)]
    block = policy.act_on(0, np.array([36, 24, 25]))
    assert block.tolist() == [policy.act_on(0, s) for s in (36, 24, 25)]
    assert mdp.features_of(0, 36).tolist() == mdp.features[0][mdp.start.argmax()].tolist()
    assert mdp.features_of(0, [36, 0]).shape == (2, 37)


@pytest.mark.parametrize("start", [0, 3])
def test_stepped_environments_are_played_in_their_own_numbers(start, tmp_path):
    class Numbered(Corner):
        action_space = gymnasium.spaces.Discrete(2, start=start)

        def step(self, action):
            return super().step(action - start)

    env = as_environment(Numbered, 4)
    policy = Policy.fixed([0, 1, 1, 1]).bind(env)
    assert played(Numbered(), policy, 4) == -2
    assert policy.act_on(1, np.zeros((5, 2))).tolist() == [1 + start] * 5
    result = dmq.DMQ(env, n_samples=5, variant="frugal", rng=0).learn(max_trajectories=30)
    again = saved(result, tmp_path).policy
    observations = np.random.default_rng(0).uniform(-1, 1, (20, 2)).astype(np.float32)
    for level in range(4):
        rng = [np.random.default_rng(0) for _ in range(2)]
        expected = result.policy.act_on(level, observations, rng=rng[0])
        np.testing.assert_array_equal(again.act_on(level, observations, rng=rng[1]), expected)
        assert set(expected) <= {start, start + 1}
    assert env.features_of(0, observations).tolist() == [env.features_of(0, one).tolist() for one in observations]


def test_a_lake_is_crossed_after_learning(tmp_path):
    env = GymnasiumBatch(LAKE, 6, make={"is_slippery": False}, value_range=(0, 1))
    result = dmq.DMQ(env, n_samples=5, variant="frugal", rng=0).learn()
    lake = gymnasium.make(LAKE, is_slippery=False)
    assert played(lake, result.policy, 6) == played(lake, saved(result, tmp_path).policy, 6) == 1


def test_states_in_numpy_are_observations(tmp_path):
    result = dmq.DMQ(Walk(), n_samples=50, rng=0).learn()
    states = np.arange(4)
    assert result.policy.act_on(3, states).tolist() == result.policy.act(3, np.eye(5)[states]).tolist()
    words = r"^act_on: the features of Walk have no name and were not saved; policy.bind\(env\) takes those"
    for policy in (saved(result, tmp_path).policy, pickle.loads(pickle.dumps(result.policy))):
        assert policy == result.policy
        with pytest.raises(ValueError, match=words):
            policy.act_on(3, states)
        assert policy.bind(Walk()).act_on(3, states).tolist() == result.policy.act_on(3, states).tolist()
        assert saved(saved(result, tmp_path), tmp_path).policy == result.policy


def test_functions_without_a_name_are_not_saved(tmp_path):
    env = GymnasiumBatch(Corner, 4, lambda seen: seen / 2)
    result = dmq.DMQ(env, n_samples=5, variant="frugal", rng=0).learn(max_trajectories=30)
    assert result.policy.act_on(3, np.zeros(2), rng=np.random.default_rng(0)) in (0, 1)
    with pytest.raises(ValueError, match=r"^act_on: the features of .*<lambda> have no name"):
        saved(result, tmp_path).policy.act_on(3, np.zeros(2))


MAPS = {
    "fourier": dmq.features.Fourier([-1.0, -1.0], [1.0, 1.0], order=2),
    "rbf": dmq.features.RBF(dmq.features.grid([-1.0, -1.0], [1.0, 1.0], 3), 0.5),
    "tiles": dmq.features.TileCoding([-1.0, -1.0], [1.0, 1.0], tiles=3, tilings=2),
    "random": dmq.features.RandomFourier(2, 8, rng=0),
    "nystrom": dmq.features.Nystrom(dmq.features.grid([-1.0, -1.0], [1.0, 1.0], 3), 0.5),
    "identity": dmq.features.Identity([-1.0, -1.0], [1.0, 1.0]),
}


@pytest.mark.parametrize("name", MAPS)
def test_maps_of_the_package_have_names(name):
    env = GymnasiumBatch(Corner, 4, MAPS[name])
    again = described(observer_of(env).describe())
    observations = np.random.default_rng(0).uniform(-1, 1, (20, 2)).astype(np.float32)
    np.testing.assert_array_equal(again.see(0, observations).features, env.features_of(0, observations))


def test_other_environments(tmp_path):
    car = dmq.environments.mountain_car(20)
    theta = np.random.default_rng(0).normal(size=(20, 3, car.dimension))
    policy = Policy.greedy(theta).bind(car)
    seen = np.array([[-0.5, 0.0], [0.1, 0.01]])
    assert policy.act_on(3, seen).tolist() == Policy.greedy(theta).act(3, car.features(seen)).tolist()
    lock = combination_lock(6, rng=0)
    for source in (lock, with_noise(lock, 0.1), dmq.samplers.as_sampler(lock)):
        assert best(lock).bind(source).act_on(2, 0) == best(lock).act(2, lock.features[2][0])
    again = pickle.loads(pickle.dumps(best(lock).bind(lock)))
    assert again.act_on(2, [0, 1]).tolist() == best(lock).act(2, lock.features[2]).tolist()
    wide = FiniteMDP([], [np.zeros((2100, 2))], [scipy.sparse.eye_array(2100)], np.full(2100, 1 / 2100))
    assert np.array_equal(described(wide.observer.describe()).see(0, [7]).features, wide.features_of(0, [7]))
    mixed = FiniteMDP([], [[[0.0, 1.0]]], [[[0.6, 0.8]]])
    assert best(mixed).bind(mixed).act_on(0, 0) == 1
    with pytest.raises(ValueError, match="the features of the tables of a FiniteMDP have no name"):
        pickle.loads(pickle.dumps(best(mixed).bind(mixed))).act_on(0, 0)
    baseline = dmq.baselines.LSVIUCB(lock, n_episodes=20, rng=0).learn()
    assert baseline.policy.act_on(2, 0) == baseline.policy.act(2, lock.features[2][0])


def test_what_does_not_fit_is_refused():
    mdp, env = chain(4), GymnasiumBatch(Corner, 4, MAPS["fourier"])
    tables, stepped = best(mdp).bind(mdp), Policy.fixed([0] * 4).bind(env)
    cliff = best(as_environment(CLIFF, 3)).bind(as_environment(CLIFF, 3))
    lake = Policy.fixed([0] * 4).bind(GymnasiumBatch(LAKE, 4))
    refused(
        [
            (
                lambda: best(mdp).act_on(0, 0),
                ValueError,
                r"^act_on: this policy has no features inside; policy.bind\(env\)",
            ),
            (lambda: tables.act_on(0, 5), ValueError, "^observation: expected a state of level 0, got 5"),
            (lambda: tables.act_on(0, -1), ValueError, "^observation: expected a state of level 0, got -1"),
            (lambda: tables.act_on(4, 0), ValueError, r"^level: expected an integer in \[0, 4\), got 4"),
            (lambda: tables.act_on(0, 0.5), ValueError, "^observation: expected the number of a state, .* got 0.5"),
            (lambda: tables.act_on(0, [[0]]), ValueError, "^observation: expected the number of a state"),
            (lambda: cliff.act_on(0, 0), ValueError, "^observation: expected a state of level 0, got 0"),
            (lambda: lake.act_on(0, 16), ValueError, r"^observation: expected one in \[0, 16\), got 16 to 16"),
            (lambda: lake.act_on(0, 0.5), ValueError, "^observation: expected numbers that int64 holds, got 0.5"),
            (lambda: stepped.act_on(0, [0.0] * 3), ValueError, r"^observation: expected shape \(2,\), or \(n, ...\)"),
            (lambda: stepped.act_on(0, "left"), TypeError, "^observation: expected real numbers"),
            (
                lambda: best(mdp).bind(3),
                TypeError,
                "^env: expected an environment with features of .* got int",
            ),
            (lambda: described({"kind": "map", "features": "os"}), ValueError, "^observer: expected a feature map"),
            (
                lambda: described(chain(2).observer.describe() | {"columns": [[0, 1, 2, 3, 5]]}),
                ValueError,
                r"^observer: expected columns in \[-1, 5\), got \[0, 1, 2, 3, 5\]",
            ),
        ]
    )
