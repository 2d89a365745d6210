"""Actions that are held for several steps, and the look at observations that chooses grids."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

import dmq_fast as dmq
from dmq_fast.environments import (
    GymnasiumBatch,
    as_environment,
    cart_pole,
    from_dm_env,
    from_object,
    make,
    mountain_car,
)
from dmq_fast.environments._look import FEW_VALUES, Grids, Look, default_hold, interpolation, shows_real_numbers
from dmq_fast.features import Interpolation
from dmq_fast.kernels import Episode

TASKS = {mountain_car: 200, cart_pole: 500}


@pytest.mark.parametrize("factory", TASKS)
@pytest.mark.parametrize("hold", [2, 3, 7])
def test_a_held_action_is_that_many_steps(factory, hold):
    """Ends and the limit of steps may come within a level."""
    limit = TASKS[factory]
    levels = -(-limit // hold) + 1
    actions = np.random.default_rng(hold).integers(2, size=levels)
    held, single = factory(levels, hold=hold), factory(levels * hold)
    one, other = (Episode(env.handle, env.features, dmq.Stream(3)) for env in (held, single))
    one.reset(0)
    other.reset(0)
    for action in actions:
        np.testing.assert_array_equal(one.features(), other.features())
        assert one.step(int(action)) == sum(other.step(int(action)) for _ in range(hold))
    assert one.earned == other.earned


def test_a_held_task_declares_what_its_steps_can_pay():
    env = mountain_car(100, "interpolation", hold=2)
    assert env.value_range[0].tolist() == [-200.0, 0.0] and env.value_range[-1].tolist() == [-2.0, 0.0]
    assert env.homogeneous and not env.linear and mountain_car().linear
    assert not mountain_car(102, hold=2).homogeneous  # the last level comes after the limit
    for wrong in (0, 501, 2.5, "2"):
        with pytest.raises((TypeError, ValueError), match="hold"):
            mountain_car(10, hold=wrong)


def test_gymnasium_is_held_alike():
    pytest.importorskip("gymnasium")
    phi = Interpolation([[-1.2, 0.6], [-0.07, 0.07]])
    held, single = (GymnasiumBatch("MountainCar-v0", n, phi, hold=hold) for n, hold in ((100, 2), (200, 1)))
    states, others = (env.reset(3, np.random.default_rng(0)) for env in (held, single))
    rng = np.random.default_rng(1)
    for h in range(100):
        actions = rng.integers(3, size=3)
        np.testing.assert_array_equal(held.features(h, states), single.features(h, others))
        states, earned = held.step(h, states, actions, rng)
        paid = np.zeros(3)
        for i in range(2):
            others, more = single.step(2 * h + i, others, actions, rng)
            paid += more
        np.testing.assert_array_equal(earned, paid)
    assert held.homogeneous and held.parameters["hold"] == 2 and "hold" not in single.parameters


def test_a_box_gets_a_grid_where_it_was_seen():
    """Angles, coordinates without bounds, with few values, and with one."""
    rng = np.random.default_rng(0)
    angle, speed = rng.uniform(-np.pi, np.pi, 500), rng.normal(0.0, 1.0, 500)
    leg, still = rng.integers(2, size=500).astype(float), np.full(500, 0.25)
    seen = np.stack([np.cos(angle), np.sin(angle), speed, leg, still], axis=1)
    low, high = np.array([-1.0, -1.0, -np.inf, 0.0, -2.0]), np.array([1.0, 1.0, np.inf, 1.0, 2.0])
    phi = interpolation(Look(low, high, seen))
    round_, speeds, legs, one = phi.nodes
    assert isinstance(round_, int) and legs.tolist() == [0.0, 1.0] and len(legs) <= FEW_VALUES
    half = np.ptp(speed) / 2
    assert speeds[0] == pytest.approx(speed.min() + half - 3 * half) and np.diff(speeds).min() < np.ptp(speeds) / 12
    assert one[0] == -2.0 and one[-1] == 2.0
    assert np.isfinite(phi(seen)).all() and phi.dimension <= 900


def test_too_many_numbers_are_refused_with_the_remedy():
    with pytest.raises(ValueError, match=r"features: .*, got 17; give features, a function"):
        interpolation(Look(np.zeros(17), np.ones(17), np.zeros((5, 17))))


@pytest.mark.parametrize(("limit", "hold"), [(20, 1), (200, 2), (500, 2), (1000, 4)])
def test_actions_are_held_where_episodes_are_long(limit, hold):
    assert default_hold(limit) == hold


def test_one_call_chooses_features_and_leaves_the_object_alone():
    gymnasium = pytest.importorskip("gymnasium")
    mine = gymnasium.make("Acrobot-v1")
    mine.reset(seed=5)
    before = np.array(mine.unwrapped.state)
    env = as_environment(mine, box="interpolation")
    assert (env.horizon, env.hold, env.linear) == (250, 2, False)
    np.testing.assert_array_equal(mine.unwrapped.state, before)
    again = as_environment("gym:Acrobot-v1", box="interpolation")
    assert env.fingerprint()["features"] == again.fingerprint()["features"]
    assert as_environment("Acrobot-v1", 50).linear  # features of the other learners


class Drift:
    """Ten steps of a place that actions -1, 0, 1 and noise move, with a clock beside it; dm_env's interface."""

    max_episode_steps = 200

    def __init__(self, seed=0):
        self.rng, self.steps = np.random.default_rng(seed), 0

    def action_spec(self):
        return SimpleNamespace(num_values=3, minimum=-1)

    def observation_spec(self):
        return SimpleNamespace(shape=(1, 2), minimum=-1.0, maximum=1.0)

    def seen(self, **more):
        return SimpleNamespace(observation=np.array([[self.x, self.t / 200]]), last=lambda: self.t == 10, **more)

    def reset(self):
        self.x, self.t = self.rng.uniform(-0.5, 0.5), 0
        return self.seen(reward=None)

    def step(self, action):
        self.steps += 1
        self.x, self.t = self.x + 0.1 * action + self.rng.normal(0.0, 0.01), self.t + 1
        return self.seen(reward=float(self.x > 0.8))


class PlainDrift:
    """The same as a plain object."""

    n_actions, horizon = 3, 200

    def __init__(self):
        self.inside = Drift()

    def reset(self):
        return self.inside.reset().observation

    def step(self, action):
        step = self.inside.step(action - 1)
        return step.observation, step.reward, step.last()


@pytest.mark.parametrize(("door", "source"), [(from_dm_env, Drift), (from_object, PlainDrift)])
def test_other_doors_choose_grids_and_hold_alike(door, source):
    """Observations may be rows of numbers, of which some are never seen twice."""
    env = door(source())
    assert (env.horizon, env.hold, env.linear, env.dimension) == (100, 2, False, 144)
    held, single = door(source(), 10, Grids(5), hold=2), door(source(), 20, Grids(5))
    assert (held.hold, single.hold, held.dimension, held.linear) == (2, 1, 25, False)
    rng = np.random.default_rng(0)
    states, others = held.reset(1, rng), single.reset(1, rng)
    for h in range(10):
        np.testing.assert_array_equal(held.features(h, states), single.features(2 * h, others))
        action = rng.integers(3, size=1)
        states, earned = held.step(h, states, action, rng)
        for i in range(2):
            others, more = single.step(2 * h + i, others, action, rng)
            earned -= more
        assert not earned.any()
    assert door(source(), 10, lambda seen: seen.reshape(len(seen), 2)).linear  # features of one's own
    assert as_environment(source, features="seen").linear and as_environment(source, hold=5).horizon == 40
    assert door(source(), history="first").memory is not None  # a pair is no point of a grid


def test_a_policy_on_grids_acts_on_rows():
    env = from_dm_env(Drift(), value_range=(0, 10))
    result = dmq.learn(env, rng=0)
    assert result.status == "tested" and result.policy.act_on(0, np.array([[0.1, 0.0]])) == 1


def test_only_numbers_that_do_not_repeat_are_real():
    n = 100
    rng, whole = np.random.default_rng(0), np.arange(float(n))
    clock, coins, place = np.tile(whole[:10] / 10, 10), rng.integers(2, size=n).astype(float), rng.uniform(size=n)

    def real(*columns):
        return shows_real_numbers(Look(np.zeros(len(columns)), np.ones(len(columns)), np.stack(columns, axis=1)))

    assert real(place) and real(clock, place) and not real(clock, coins) and not real(whole)


def test_a_held_environment_with_tables_declares_all_its_steps():
    pytest.importorskip("gymnasium")
    env = as_environment("gym:CliffWalking-v1", 10, features="seen", hold=2)
    assert env.value_range[0].tolist() == as_environment("CliffWalking-v1", 20).value_range[0].tolist()


def test_bsuite_in_real_numbers_is_on_grids():
    pytest.importorskip("bsuite")
    env = as_environment("bsuite:cartpole/0", rng=0)
    assert (env.horizon, env.hold, env.linear) == (201, 5, False)
    assert env.value_range[0].tolist() == [0.0, 1001.0] and env.value_range[-1].tolist() == [0.0, 1.0]
    assert as_environment("bsuite:mountain_car/0", hold=10).value_range[-1].tolist() == [-10.0, 0.0]
    assert as_environment("bsuite:mountain_car_noise/0", hold=4).noise == pytest.approx(0.2)  # four steps of .1
    assert as_environment("bsuite:umbrella_length/0", hold=100).noise == 1.0  # that is all of one step
    assert make("bsuite:catch_noise/0", noise=3.0, hold=4).noise == 3.0
    for name in ("bandit/0", "memory_size/3", "discounting_chain/0", "umbrella_distract/0"):
        other = as_environment(f"bsuite:{name}", rng=0)
        assert other.linear and other.hold == 1 and other.memory is not None
