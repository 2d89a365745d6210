"""Compiled and Gymnasium's own mountain car, cart-pole and frozen lake: the same moments, but for chance."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.stats

from dmq_fast.environments import cart_pole, from_gymnasium, make, mountain_car
from dmq_fast.kernels import Stream
from dmq_fast.policy import Policy
from dmq_fast.samplers import as_sampler

pytest.importorskip("gymnasium")

FAMILY_LEVEL = 1e-3  # probability that a correct pair fails any of the tests of one function
EPISODES = 600
BATCHES = 24


# Levels for which the fixed policy pushes one way: a swing of the car, which takes most of them up the hill.
SWAY = {"CartPole-v1": 3, "MountainCar-v0": 34, "FrozenLake-v1": 2}


def policies(env, sway):
    """Uniform, a fixed sequence that sways, greedy on given weights, and uniform that turns greedy."""
    horizon, n_actions, d = env.horizon, env.n_actions, env.dimension
    theta = np.random.default_rng(7).normal(size=(horizon, n_actions, d))
    greedy = Policy.greedy(theta)
    uniform = Policy.uniform(horizon)
    half = horizon // 2
    return {
        "uniform": uniform,
        "fixed": Policy.fixed([h // sway % 2 * (n_actions - 1) for h in range(horizon)]),
        "greedy": greedy,
        "mixed": Policy([*uniform.rules[:half], *greedy.rules[half:]]),
    }


def batch_means(env, policy, seed):
    """Means of the entries of the moments over each of BATCHES batches (BATCHES, m): features, energy and returns."""
    sampler, n = as_sampler(env), EPISODES // BATCHES
    levels = sorted({0, env.horizon // 4, env.horizon // 2, env.horizon - 1})
    rows = []
    for call in range(BATCHES):
        moments = sampler.collect(policy, n, stream=Stream(seed, call=call), levels=levels, returns_from=levels)
        grams = [moments.gram[h][np.triu_indices(env.dimension)] for h in levels]
        returns = [np.append(moments.returns[h].moment, moments.returns[h].square) for h in levels]
        rows.append(np.concatenate(grams + returns) / n)
    return np.array(rows)


def smallest_p_value(one, other):
    """Welch's test of each mean that varies, the smallest p value times their number (Bonferroni)."""
    spread = np.maximum(one.std(axis=0), other.std(axis=0))
    size = np.maximum(np.abs(one).max(axis=0), np.abs(other).max(axis=0))
    moving = spread > 1e-6 * np.maximum(size, 1e-6)
    # What never varies is equal, up to single precision.
    np.testing.assert_allclose(one[:, ~moving].mean(axis=0), other[:, ~moving].mean(axis=0), rtol=1e-4, atol=1e-6)
    assert moving.any()
    found = scipy.stats.ttest_ind(one[:, moving], other[:, moving], equal_var=False).pvalue
    return float(np.nanmin(found)) * int(moving.sum())


POLICIES = ["uniform", "fixed", "greedy", "mixed"]
every_policy = pytest.mark.parametrize("which", POLICIES)


# Steps of Gymnasium take the time, and the mountain car's episodes are four times as long.
@pytest.mark.parametrize(
    ("name", "which"),
    [
        *(("CartPole-v1", which) for which in POLICIES),
        *(pytest.param("MountainCar-v0", which, marks=pytest.mark.slow) for which in POLICIES),
    ],
)
def test_compiled_twins_agree_with_gymnasium(name, which):
    twin = cart_pole(50, order=1) if name == "CartPole-v1" else mountain_car(200, order=2)
    theirs = make(f"gym:{name}", horizon=twin.horizon, order=twin.parameters["order"])
    assert (theirs.n_actions, theirs.dimension) == (twin.n_actions, twin.dimension)
    assert (theirs.reward_shift, theirs.reward_scale) == (twin.reward_shift, twin.reward_scale)
    policy = policies(twin, SWAY[name])[which]
    samples = [batch_means(env, policy, seed) for seed, env in enumerate((twin, theirs))]
    assert smallest_p_value(*samples) > FAMILY_LEVEL / 8


@every_policy
def test_tables_of_frozen_lake_agree_with_its_steps(which):
    tables = from_gymnasium("FrozenLake-v1", 12, features=np.eye(16))
    steps = make("gym:FrozenLake-v1", horizon=12, through="step")
    assert (steps.reward_shift, steps.reward_scale) == (tables.reward_shift, tables.reward_scale)
    policy = policies(tables, SWAY["FrozenLake-v1"])[which]
    samples = [batch_means(env, policy, seed) for seed, env in enumerate((tables, steps))]
    assert smallest_p_value(*samples) > FAMILY_LEVEL / 4
