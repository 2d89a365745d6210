"""What `as_environment` makes of Gymnasium environments, ids, classes, functions and names."""

import functools
import sys

import gymnasium
import numpy as np
import pytest
from refusals import refused

import dmq_fast as dmq
from dmq_fast.environments import FiniteMDP, GymnasiumBatch, as_environment, chain
from dmq_fast.samplers import BatchSampler, as_sampler

CLIFF = "CliffWalking-v1"


class Walk:
    """Action 1 goes right; the end of the line pays."""

    horizon, n_actions, dimension = 4, 2, 5

    def reset(self, n, rng):
        return np.zeros(n, dtype=int)

    def features(self, level, states):
        return np.eye(5)[states]

    def step(self, level, states, actions, rng):
        return states + actions, (states + actions == 4).astype(float)


class Corner(gymnasium.Env):
    """Two numbers in a box; every step costs 1, and action 1 ends the episode after the second one."""

    action_space = gymnasium.spaces.Discrete(2)
    observation_space = gymnasium.spaces.Box(-1.0, 1.0, (2,))

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.steps = 0
        return np.zeros(2, np.float32), {}

    def step(self, action):
        self.steps += 1
        return np.full(2, self.steps / 9, np.float32), -1.0, bool(action and self.steps > 1), False, {}


class Needy(Corner):
    def __init__(self, size):
        self.size = size


TABLES = [CLIFF, f"gym:{CLIFF}", gymnasium.make(CLIFF), lambda: gymnasium.make(CLIFF), gymnasium.make(CLIFF).unwrapped]


@pytest.mark.parametrize("source", TABLES, ids=range(5))
def test_tables_are_read_where_there_are_any(source):
    env = as_environment(source, horizon=20)
    assert isinstance(env, FiniteMDP) and env.optimal_value == -13 and env.name.startswith("CliffWalking")


def test_other_environments_are_stepped():
    made = Corner()
    for source in (Corner, Corner(), made, lambda: Corner(), functools.partial(Corner)):
        env = as_environment(source, horizon=6)
        assert isinstance(env, GymnasiumBatch) and (env.name, env.horizon, env.dimension) == ("Corner", 6, 16)
        assert env.value_range is None and isinstance(as_sampler(env), BatchSampler)
        drawn = as_sampler(env).trajectories(dmq.Policy.fixed([0, 1, 1, 1, 1, 1]), 5, stream=dmq.Stream(0))
        assert drawn.returns_to_go(0).tolist() == [-2.0] * 5
    named = as_environment("MountainCar-v0", horizon=12)
    assert named.value_range[0].tolist() == [-12, 0]
    made = as_environment(lambda: gymnasium.make("MountainCar-v0"), horizon=12)
    assert (made.name, made.dimension) == (named.name, named.dimension)
    assert made.value_range.tolist() == named.value_range.tolist()
    vector = as_environment(lambda: gymnasium.make_vec("CartPole-v1", num_envs=3), horizon=5)
    assert (vector.chunk_size, vector.dimension, vector.value_range[0, 1]) == (3, 81, 5)


def test_what_is_an_environment_stays_one():
    mdp = chain(5)
    sampler = as_sampler(mdp)
    for source in (mdp, sampler, Walk(), dmq.environments.mountain_car(20), as_environment(CLIFF, 5)):
        assert as_environment(source) is source and as_environment(source, source.horizon) is source
    assert isinstance(as_environment(Walk), Walk) and as_environment(lambda: mdp) is mdp
    assert as_environment("chain", 7).horizon == 7 and as_environment("river-swim").name == "river-swim"


def test_what_nothing_can_be_made_of_is_refused(monkeypatch):
    refused(
        [
            (
                lambda: as_environment(CLIFF),
                ValueError,
                r"^horizon: .* such as horizon=50, as the environment has no limit .* got none",
            ),
            (lambda: as_environment(Corner), ValueError, "^horizon: .* such as horizon=50, as .* got none"),
            (
                lambda: as_environment(chain(5), 6),
                ValueError,
                "^horizon: expected that of the env.*, 5, .* got 6",
            ),
            (lambda: as_environment(chain(5), 2.5), TypeError, "^horizon: expected an integer"),
            (
                lambda: as_environment(Needy, 5),
                TypeError,
                r"^env: .* Needy\(\) raised: .*'size'; give one such",
            ),
            (lambda: as_environment(3, 5), TypeError, "^env: expected an environment, .* got int"),
            (lambda: as_environment(lambda: 3, 5), TypeError, "^env: expected an environment, .* got int"),
            (
                lambda: as_environment(lambda: Walk, 5),
                TypeError,
                "^env: expected a class or function that makes",
            ),
            (
                lambda: as_environment("NoSuch-v0", 5),
                ValueError,
                r"^env: gymnasium.make\('NoSuch-v0'\) failed: .*'minigrid:Mini",
            ),
        ]
    )
    monkeypatch.setitem(sys.modules, "gymnasium", None)
    refused([(lambda: as_environment(CLIFF, 5), ImportError, r'pip install "dmq-fast\[gym\]"')])


def test_the_look_at_real_numbers_plays_actions_of_several_integers():
    class Pairs(gymnasium.Env):
        observation_space = gymnasium.spaces.Box(-1.0, 1.0, (2,))
        action_space = gymnasium.spaces.MultiDiscrete([2, 3])

        def reset(self, *, seed=None, options=None):
            super().reset(seed=seed)
            return self.observation_space.sample(), {}

        def step(self, action):
            assert action in self.action_space
            return self.observation_space.sample(), 0.0, False, False, {}

    env = as_environment(Pairs, horizon=4, features="interpolation")
    assert env.n_actions == 6 and env.dimension > 4
