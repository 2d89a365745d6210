"""Actions that are held for several steps, and the look at observations that chooses grids."""

from __future__ import annotations

import numpy as np
import pytest

import dmq_fast as dmq
from dmq_fast.environments import GymnasiumBatch, as_environment, cart_pole, mountain_car
from dmq_fast.environments._look import FEW_VALUES, Look, default_hold, interpolation
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
    for seen in (np.zeros((5, 17)), np.zeros((5, 4, 4))):
        with pytest.raises(ValueError, match=r"features: .*give features, a function"):
            interpolation(Look(np.zeros(17), np.ones(17), seen))


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
