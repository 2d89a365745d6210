"""Measure the steps of cart-pole a second under uniform actions on one core, beside other vectorised simulators.

    pytest bench/test_control.py

Compiled episodes have 50 levels, and only the steps before the end of an episode count, although the time includes the
other ones. The other simulators restart ended episodes themselves, and all of their steps count. All draw their
actions; the measurements are interleaved. Simulators that are not installed are skipped.
"""

from functools import partial

import numpy as np
import pytest
from common import rates

import dmq_fast as dmq
from dmq_fast.environments import cart_pole
from dmq_fast.samplers import RolloutSampler

pytestmark = pytest.mark.filterwarnings("ignore")  # other packages warn on import

H = 50
ROWS = 1024
ID = "CartPole-v1"


def gymnasium_vector(mode, rows):
    env = pytest.importorskip("gymnasium").make_vec(ID, num_envs=rows, vectorization_mode=mode)
    env.reset(seed=0)
    return partial(step_rows, env, rows, np.int64)


def envpool():
    env = pytest.importorskip("envpool").make(ID, env_type="gymnasium", num_envs=ROWS, num_threads=1, seed=0)
    env.reset()
    return partial(step_rows, env, ROWS, np.int32)


def step_rows(env, rows, dtype):
    """Take H steps of all rows, and return the number of steps."""
    rng = np.random.default_rng(0)
    for _ in range(H):
        env.step(rng.integers(2, size=rows, dtype=dtype))
    return H * rows


def gymnax():
    """Return the work of gymnax: a scan over the levels inside a map over the rows, compiled as a whole."""
    jax = pytest.importorskip("jax")
    env, parameters = pytest.importorskip("gymnax").make(ID)

    def advance(state, key):
        draw, own = jax.random.split(key)
        action = jax.random.randint(draw, (), 0, 2)
        _, state, reward, *_ = env.step(own, state, action, parameters)
        return state, reward

    def episode(key):
        start, rest = jax.random.split(key)
        _, state = env.reset(start, parameters)
        return jax.lax.scan(advance, state, jax.random.split(rest, H))[1].sum()

    run = jax.jit(lambda key: jax.vmap(episode)(jax.random.split(key, ROWS)).sum())
    key = jax.random.key(0)
    run(key).block_until_ready()

    def work():
        run(key).block_until_ready()
        return H * ROWS

    return work


OTHERS = {
    "Gymnasium, vector entry point": partial(gymnasium_vector, "vector_entry_point", ROWS),
    "Gymnasium, sync": partial(gymnasium_vector, "sync", 64),
    "EnvPool, one thread": envpool,
    "gymnax on the CPU": gymnax,
}


@pytest.mark.parametrize("other", OTHERS)
def test_steps(benchmark, other):
    """Compare with two jobs of this package: returns alone, and the moments of the default features."""
    theirs = OTHERS[other]()
    sampler = RolloutSampler(cart_pole(H))
    policy, stream, n = dmq.Policy.uniform(H), dmq.Stream(0), 16 * ROWS

    def returns():
        # Every step earns 1.
        return round(sampler.evaluate(policy, n, stream=stream).value * n)

    def moments():
        found = sampler.collect(policy, n // 16, stream=stream, levels=range(H), returns_from=(0,))
        assert found.n == n // 16
        return returns_of_moments

    returns_of_moments = round(sampler.evaluate(policy, n // 16, stream=stream).value * (n // 16))

    assert 20 < rates(benchmark, returns, {"theirs": theirs, "moments": moments}) / n < 24
