"""Measure the moments of a block of Gymnasium's CartPole with 50 levels, beside its steps alone, on one core.

    pytest bench/test_gymnasium_batch.py

Both start 256 or 1,024 episodes and take uniform actions. Steps after the end of an episode, which vectorised
environments take too, do not count.
"""

import numpy as np
import pytest
from common import rates

import dmq_fast as dmq
from dmq_fast.environments import GymnasiumBatch
from dmq_fast.samplers import BatchSampler

gymnasium = pytest.importorskip("gymnasium")

H = 50
ID = "CartPole-v1"


def single():
    return gymnasium.make(ID)


def sync():
    return gymnasium.vector.SyncVectorEnv([single] * 256)


def vectorised():
    return gymnasium.make_vec(ID, num_envs=1024, vectorization_mode="vector_entry_point")


CASES = {"Env": (single, 256), "SyncVectorEnv": (sync, 256), "CartPoleVectorEnv": (vectorised, 1024)}


def tiles(observations):
    """Return one-hot features of 6 x 4 tiles of angle and angular velocity."""
    angle = np.clip((observations[:, 2] / 0.21 + 1) * 3, 0, 5).astype(int)
    spin = np.clip((observations[:, 3] / 1.5 + 1) * 2, 0, 3).astype(int)
    phi = np.zeros((len(observations), 24))
    phi[np.arange(len(phi)), angle * 4 + spin] = 1.0
    return phi


def step_alone(env, n):
    """Step until the end of the episodes, and return the number of steps; the loop does nothing else."""
    rng, steps = np.random.default_rng(0), 0
    if n == 1:
        for episode in range(256):
            env.reset(seed=episode)
            for _ in range(H):
                _, _, terminated, truncated, _ = env.step(int(rng.integers(2)))
                steps += 1
                if terminated or truncated:
                    break
        return steps
    env.reset(seed=0)
    alive = np.ones(n, dtype=bool)
    for _ in range(H):
        _, _, terminated, truncated, _ = env.step(rng.integers(2, size=n))
        steps += int(alive.sum())
        alive &= ~(terminated | truncated)
    return steps


@pytest.mark.parametrize("case", CASES)
def test_moments(benchmark, case):
    """Interleave the two, so that noise of the machine affects both alike."""
    make, n = CASES[case]
    sampler = BatchSampler(GymnasiumBatch(make, H, tiles))
    policy, stream = dmq.Policy.uniform(H), dmq.Stream(0)
    env = make()

    def alone():
        steps = step_alone(env, getattr(env, "num_envs", 1))
        assert 15 < steps / n < 30
        return steps

    def work():
        moments = sampler.collect(policy, n, stream=stream, levels=range(H), returns_from=(0,))
        return int(np.trace(moments.grams, axis1=1, axis2=2).sum())

    assert 15 < rates(benchmark, work, {"alone": alone}) / n < 30
