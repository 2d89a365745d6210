"""Measure rollouts of compiled environments with their moments, beside vectorised NumPy and bare BLAS.

    python bench/test_compiled_rollouts.py    # the table, interleaved
    pytest bench/test_compiled_rollouts.py    # one by one

The job is n trajectories of a block MDP under a greedy policy, with features, scores, argmax, step and the second
moment of every level. The NumPy version does it for all n at once, without the projection of long observations. Bare
BLAS does the arithmetic alone: dgemm for the scores and dsyrk for the moment, on blocks of as many rows as the compiled
engine uses.
"""

import time
from functools import partial

import numpy as np
import pytest
from common import heading, interleaved, line
from scipy.linalg.blas import dgemm, dsyrk

import dmq_fast as dmq
from dmq_fast.environments import combination_lock
from dmq_fast.environments.block import block_mdp, lock_bernoulli
from dmq_fast.samplers import RolloutSampler

HORIZON, N, BLOCK, SIGMA = 20, 4096, 256, 0.1


def rotated(dimension, **noise):
    return block_mdp(combination_lock(HORIZON, 4, rng=0), dimension=dimension, rng=0, **noise)


CASES = {
    "coins 8": lambda: lock_bernoulli(5, observation="coins", rng=0),
    "coins 32": lambda: lock_bernoulli(29, observation="coins", rng=0),
    **{f"rotated {d}": (lambda d=d: rotated(d)) for d in (8, 32, 64, 128)},
    **{f"gaussian {d}": (lambda d=d: rotated(d, noise="gaussian", sigma=SIGMA)) for d in (8, 32, 64, 128)},
}


class NumPy:
    """Simulator of the same distribution in NumPy, all trajectories at once."""

    def __init__(self, env, theta):
        self.horizon, self.dimension, self.theta = env.horizon, env.dimension, theta
        self.successor = [p.argmax(axis=2) for p in env.latent.P]
        assert all((p.max(axis=2) == 1.0).all() for p in env.latent.P), "expected deterministic transitions"
        self.noise = env.parameters.get("noise", "coins")
        # Features of the states without noise, and the size of the noise.
        if self.noise == "gaussian":
            rows, scale = rotated(env.dimension), 1 / (1 + SIGMA * (np.sqrt(env.dimension) + 3))
            self.rows = [scale * emitted(rows, h) for h in range(env.horizon)]
            self.amount = scale * SIGMA
        else:
            self.rows = [emitted(env, h) for h in range(env.horizon)]
            self.amount = float((emitted(env, 0, 1.0 - 1e-16) - self.rows[0]).max())

    def collect(self, n, rng):
        """Return the second moments of all levels."""
        grams, states = [], np.zeros(n, dtype=np.int64)
        for h in range(self.horizon):
            phi = self.rows[h][states]
            if self.noise == "gaussian":
                phi += self.amount * rng.standard_normal(phi.shape)
            elif self.noise == "coins":
                phi[:, 3:] = self.amount * rng.integers(0, 2, size=(n, self.dimension - 3), dtype=np.int8)
            grams.append(phi.T @ phi)
            actions = (phi @ self.theta[h].T).argmax(axis=1)
            if h + 1 < self.horizon:
                states = self.successor[h][states, actions]
        return np.array(grams)


def emitted(env, level, u=0.0):
    """Return the features of all states of a level when every uniform number is u, 0 for coins that are all 0."""
    n = len(env.latent.features[level])
    states = np.arange(n, dtype=np.int32).view(np.uint8).reshape(n, 4).copy()
    return env.handle.features(level, states, np.full((n, env.handle.feature_uniforms[level]), u))


def bare_blas(phi, theta, n_levels):
    gram = np.zeros((phi.shape[1], phi.shape[1]), order="F")
    for _ in range(n_levels * (N // BLOCK)):
        dgemm(1.0, theta.T, phi.T, trans_a=True)
        gram = dsyrk(1.0, phi.T, beta=1.0, c=gram, overwrite_c=True, lower=False)
    return gram


def job(name):
    env = CASES[name]()
    theta = np.random.default_rng(1).normal(size=(env.horizon, env.n_actions, env.dimension))
    return env, theta, dmq.Policy.greedy(theta)


@pytest.mark.parametrize("name", CASES)
@pytest.mark.benchmark(group="compiled rollouts", min_rounds=7)
def test_engine(benchmark, name):
    env, theta, policy = job(name)
    sampler, stream = RolloutSampler(env), dmq.Stream(0)
    moments = benchmark(sampler.collect, policy, N, stream=stream, levels=range(env.horizon))
    peer = NumPy(env, theta).collect(N, np.random.default_rng(0))
    # Means of numbers within [-1, 1]: five standard errors of a difference.
    np.testing.assert_allclose(moments.grams / N, peer / N, atol=5 * np.sqrt(2 / N))
    note(benchmark, env)


@pytest.mark.parametrize("name", CASES)
@pytest.mark.benchmark(group="compiled rollouts", min_rounds=7)
def test_numpy(benchmark, name):
    env, theta, _ = job(name)
    peer, rng = NumPy(env, theta), np.random.default_rng(0)
    benchmark(peer.collect, N, rng)
    note(benchmark, env)


@pytest.mark.parametrize("dimension", [32, 64, 128])
@pytest.mark.benchmark(group="compiled rollouts", min_rounds=7)
def test_bare_blas(benchmark, dimension):
    env, theta, _ = job(f"rotated {dimension}")
    phi = np.random.default_rng(0).normal(size=(BLOCK, dimension))
    benchmark(bare_blas, phi, theta[0], HORIZON)
    note(benchmark, env)


def note(benchmark, env):
    if benchmark.stats is not None:  # None under --benchmark-disable
        benchmark.extra_info["ns a step"] = round(benchmark.stats.stats.median * 1e9 / (N * env.horizon), 1)


def main():
    """Print the table: minima of 15 interleaved rounds of engine, NumPy and bare BLAS, of about 80,000 steps.

    Times are those of the processor, which other programs disturb less than those of the clock.
    """
    heading(("case", "n a call", "engine, ns a step", "NumPy", "bare BLAS", "NumPy / engine", "BLAS / engine"))
    for name in CASES:
        env, theta, policy = job(name)
        phi = np.random.default_rng(0).normal(size=(BLOCK, env.dimension))
        for n in (20, 100, N):
            stream, calls = dmq.Stream(0), max(1, N // n)
            collect = partial(RolloutSampler(env).collect, policy, n, stream=stream, levels=range(env.horizon))
            simulate = partial(NumPy(env, theta).collect, n, np.random.default_rng(0))
            ways = {
                "engine": lambda collect=collect, calls=calls: [collect() for _ in range(calls)],
                "NumPy": lambda simulate=simulate, calls=calls: [simulate() for _ in range(calls)],
                "BLAS": partial(bare_blas, phi, theta[0], env.horizon),
            }
            times = interleaved(ways, timer=time.thread_time)
            engine, numpy = (times[way][0] / (calls * n * env.horizon) * 1e9 for way in ("engine", "NumPy"))
            blas = times["BLAS"][0] / (N * env.horizon) * 1e9
            compared = (
                f"{blas:.1f}" if n == N else "",
                f"{numpy / engine:.1f}",
                f"{blas / engine:.2f}" if n == N else "",
            )
            line((name, n, f"{engine:.1f}", f"{numpy:.0f}", *compared))


if __name__ == "__main__":
    main()
