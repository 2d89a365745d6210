"""Mountain car and cart-pole, compiled: Gymnasium's own states, step by step."""

from __future__ import annotations

import json
from functools import partial

import numpy as np
import pytest
from hypothesis import strategies as st
from properties import for_all, seeds
from refusals import refused

from dmq_fast import Policy, Stream
from dmq_fast.environments import REGISTRY, cart_pole, describe, make, mountain_car
from dmq_fast.features import Fourier, Identity
from dmq_fast.kernels._control import CartPole, MountainCar
from dmq_fast.kernels._env import EnvironmentHandle
from dmq_fast.samplers import RolloutSampler

ENDED = ("ended", np.int64)
CAR = np.dtype([("position", np.float64), ("velocity", np.float64), ENDED])
CART = np.dtype([(name, np.float64) for name in ("x", "x_dot", "theta", "theta_dot")] + [ENDED])

CASES = {
    "MountainCar-v0": (MountainCar, CAR, 200, -1.0),
    "CartPole-v1": (CartPole, CART, 500, 1.0),
}
cases = pytest.mark.parametrize("name", CASES)


def handle_of(name, horizon=1000):
    made, dtype, *_ = CASES[name]
    return EnvironmentHandle(made(horizon)), dtype


def numbers(states, dtype):
    """The numbers of the states (n, m), and whether they ended (n,)."""
    records = states.view(dtype)[:, 0]
    names = [name for name in dtype.names if name != "ended"]
    return np.stack([records[name] for name in names], axis=1), records["ended"]


def put(states, dtype, row, values):
    """Write the numbers of one state."""
    record = states.view(dtype)[row]
    for name, value in zip(dtype.names, values, strict=False):
        record[name] = value


def started(env, dtype, values):
    """States with these numbers (n, m)."""
    states = env.reset(np.full((len(values), env.reset_uniforms), 0.5))
    for row, value in enumerate(values):
        put(states, dtype, row, value)
    return states


@cases
def test_what_it_says_about_itself(name):
    env, dtype = handle_of(name, 40)
    assert (env.horizon, env.state_bytes, env.dimension) == (40, dtype.itemsize, len(dtype.names) - 1)
    assert set(env.step_uniforms) == set(env.feature_uniforms) == {0}
    assert env.n_actions == {"MountainCar-v0": 3, "CartPole-v1": 2}[name]
    message = "horizon: expected an integer in"
    refused([(partial(handle_of, name, horizon), ValueError, message) for horizon in (0, -1)])


@cases
@pytest.mark.parametrize("steps", [8_000, pytest.param(100_000, marks=pytest.mark.slow)])
def test_states_are_those_of_gymnasium(name, steps):
    """Actions are kept for a while, so that episodes reach every part of the space."""
    gymnasium = pytest.importorskip("gymnasium")
    theirs, (env, dtype) = gymnasium.make(name), handle_of(name)
    rng = np.random.default_rng(1)
    theirs.reset(seed=2)
    states = started(env, dtype, [theirs.unwrapped.state])
    level, action, farthest, terminations, truncations = 0, 0, 0.0, 0, 0
    for _ in range(steps):
        if rng.random() < 0.1:
            action = int(rng.integers(env.n_actions))
            if name == "MountainCar-v0" and rng.random() < 0.8:  # push the way it moves, or it never arrives
                action = 2 * int(states.view(dtype)["velocity"].item() >= 0)
            if name == "CartPole-v1" and rng.random() < 0.8:
                action = int(states.view(dtype)["theta"].item() >= 0)
        observation, reward, terminated, truncated, _ = theirs.step(action)
        earned = env.step(level, states, [action])
        ours, ended = numbers(states, dtype)
        farthest = max(farthest, np.abs(ours[0] - theirs.unwrapped.state).max())
        assert earned[0] == reward
        assert bool(ended[0]) == env.ended(level, states)[0] == (terminated or truncated), (level, ours)
        np.testing.assert_allclose(env.features(level, states)[0], observation, rtol=2e-7, atol=1e-12)
        level += 1
        terminations += terminated
        truncations += truncated
        if terminated or truncated:
            theirs.reset()
            states = started(env, dtype, [theirs.unwrapped.state])
            level = 0
    assert farthest < 1e-12
    assert terminations > steps // 1000 and (truncations > 0 or name == "CartPole-v1")


@cases
def test_the_time_limit_is_that_of_gymnasium(name):
    gymnasium = pytest.importorskip("gymnasium")
    _, _, limit, reward = CASES[name]
    assert gymnasium.spec(name).max_episode_steps == limit
    env, dtype = handle_of(name)
    states = started(env, dtype, np.zeros((1, env.dimension)))
    balanced = states.copy()
    assert env.step(limit - 2, states, [1])[0] == reward
    assert not env.ended(limit - 2, states)[0]
    assert env.step(limit - 1, balanced, [1])[0] == reward
    assert env.ended(limit - 1, balanced)[0]


@cases
def test_what_has_ended_stays_and_earns_nothing(name):
    env, dtype = handle_of(name)
    away = [0.5, 0.07] if name == "MountainCar-v0" else [2.5, 0.0, 0.0, 0.0]
    states = started(env, dtype, [away, [0.0] * env.dimension])
    rewards = env.step(3, states, [1, 1])
    assert rewards[0] == rewards[1] != 0.0
    assert env.ended(3, states).tolist() == [True, False]
    before = states.copy()
    assert env.step(4, states, [0, 0]).tolist() == [0.0, rewards[1]]
    assert (states[0] == before[0]).all() and (states[1] != before[1]).any()


@cases
def test_starts_are_those_of_gymnasium_for_its_uniforms(name):
    gymnasium = pytest.importorskip("gymnasium")
    theirs, (env, dtype) = gymnasium.make(name), handle_of(name)
    for seed in range(20):
        theirs.reset(seed=seed)
        rng, _ = gymnasium.utils.seeding.np_random(seed)
        states = env.reset(rng.random((1, env.reset_uniforms)))
        ours, ended = numbers(states, dtype)
        np.testing.assert_allclose(ours[0], theirs.unwrapped.state, rtol=0, atol=1e-16)
        assert ended[0] == 0


@for_all(name=st.sampled_from(sorted(CASES)), n=st.integers(0, 9), seed=seeds)
def test_rows_do_not_depend_on_each_other(name, n, seed):
    (env, dtype), rng = handle_of(name), np.random.default_rng(seed)
    u, plans = rng.random((n, env.reset_uniforms)), rng.integers(env.n_actions, size=(20, n))
    together, alone = env.reset(u), [env.reset(row[None]) for row in u]
    for level, actions in enumerate(plans):
        rewards = env.step(level, together, actions)
        assert rewards.tolist() == [env.step(level, s, [a])[0] for s, a in zip(alone, actions, strict=True)]
    assert n == 0 or (together == np.concatenate(alone)).all()
    ours, _ = numbers(together, dtype)
    assert (env.features(20, together) == ours.astype(np.float32)).all()


def test_an_environment_outlives_its_name():
    handles = [EnvironmentHandle(CartPole(horizon)) for horizon in range(1, 200)]
    assert [handle.horizon for handle in handles] == list(range(1, 200))


# The factories


def test_parameters_are_recorded_and_give_the_environment_again():
    for name in ("mountain-car", "cart-pole"):
        env = make(name)
        assert env.name == name
        recorded = json.loads(json.dumps(env.parameters))
        assert set(recorded) == {parameter.name for parameter in describe()[name]}
        again = REGISTRY[name](**recorded)
        assert again.parameters == env.parameters
        assert (again.horizon, again.n_actions, again.dimension) == (env.horizon, env.n_actions, env.dimension)


def test_kinds_of_features():
    for features, order, dimensions in [
        ("fourier", None, (16, 81)),
        ("fourier", 1, (4, 16)),
        ("tiles", None, (324, 324)),
        ("tiles", 3, (64, 1024)),
        ("rbf", None, (25, 81)),
        ("rbf", 1, (1, 1)),
    ]:
        assert mountain_car(features=features, order=order).dimension == dimensions[0]
        assert cart_pole(features=features, order=order).dimension == dimensions[1]
    env = cart_pole(30, Fourier([-1] * 4, [1] * 4, 2))
    assert env.dimension == 81 and env.parameters["order"] is None


def test_the_range_is_that_of_the_steps_that_are_left():
    for horizon in (1, 30, 230, 510):
        car, cart = mountain_car(horizon, order=1), cart_pole(horizon, order=1)
        left = np.array([max(min(horizon, 200) - level, 0) for level in range(horizon)])
        np.testing.assert_array_equal(car.value_range, np.stack([-left, 0 * left], axis=1))
        left = np.array([max(min(horizon, 500) - level, 0) for level in range(horizon)])
        np.testing.assert_array_equal(cart.value_range, np.stack([0 * left, left], axis=1))
    levels = range(0, 230, 10)
    for policy in (Policy.uniform(230), Policy.fixed([1] * 230)):  # nothing is refused
        for env in (mountain_car(230, order=1), cart_pole(230, order=1)):
            RolloutSampler(env).collect(policy, 300, stream=Stream(0), levels=[], returns_from=levels)


def test_bad_arguments_are_refused():
    plane = Fourier([0, 0], [1, 1], 1)
    table = [
        ({"horizon": 0}, ValueError, "horizon: expected an integer >= 1"),
        ({"horizon": 2.5}, TypeError, "horizon: expected an integer"),
        (
            {"features": "waves"},
            ValueError,
            "features: expected one of interpolation, fourier, tiles, rbf, got 'waves'",
        ),
        ({"order": 0}, ValueError, "order: expected an integer >= 1"),
        ({"order": 64}, ValueError, "order: expected at most 4,096 features"),
        ({"features": plane, "order": 3}, ValueError, "order: expected none beside a feature map"),
    ]
    for factory in (mountain_car, cart_pole):
        refused([(partial(factory, **arguments), error, words) for arguments, error, words in table])


def test_sizes_and_rewards_are_those_of_gymnasium_stepped():
    pytest.importorskip("gymnasium")
    for ours, name in ((cart_pole(50, order=1), "CartPole-v1"), (mountain_car(200, order=2), "MountainCar-v0")):
        theirs = make(f"gym:{name}", horizon=ours.horizon, order=ours.parameters["order"])
        for what in ("n_actions", "dimension"):
            assert getattr(ours, what) == getattr(theirs, what), (name, what)


@pytest.mark.parametrize("horizon", [200, 230])
def test_after_arriving_nothing_is_paid(horizon):
    """Features are 0 there, and with them every linear value."""
    env = mountain_car(horizon, Identity([-1.2, -0.07], [0.6, 0.07]))
    push = Policy.greedy([[[0.0, -1.0], [0.0, 0.0], [0.0, 1.0]]] * horizon)  # the way it moves
    shown = RolloutSampler(env).trajectories(push, 50, stream=Stream(1))
    running = shown.features.any(axis=2)
    steps = running.sum(axis=1)
    assert steps.max() < 190
    assert (shown.rewards == -1.0 * running).all()
    assert (shown.returns_to_go(0) == -steps).all()
