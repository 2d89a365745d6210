"""Measure what bandits ask of ridge regression, beside the best that NumPy and SciPy do with the same numbers.

    pytest bench/test_bandits.py

LinUCB is compared with the inverses of all arms in one array; samples, with a fresh Cholesky factor and a triangular
solve by SciPy; forgetting, with a fresh factor of the discounted Gram matrix.
"""

import numpy as np
import pytest
from common import demand, interleaved, noted
from scipy.linalg import cho_factor, cho_solve, solve_triangular

from dmq_fast.kernels import Ridge, RidgeArms

ALPHA = 0.5
LINUCB = {16: 5.0, 32: 5.0, 64: 3.0, 128: 3.0}


def linucb(contexts, rewards):
    """Disjoint LinUCB on RidgeArms; returns the actions."""
    arms, actions = RidgeArms(rewards.shape[1], contexts.shape[1], 1.0), []
    for x, reward in zip(contexts, rewards, strict=True):
        action = arms.select(x, ALPHA)
        arms.update(action, x, reward[action])
        actions.append(action)
    return actions


def linucb_numpy(contexts, rewards):
    """Disjoint LinUCB by Sherman-Morrison updates of one array of inverses; returns the actions."""
    n_arms, d = rewards.shape[1], contexts.shape[1]
    inverse, moment = np.tile(np.eye(d), (n_arms, 1, 1)), np.zeros((n_arms, d))
    theta, outer, actions = np.zeros((n_arms, d)), np.empty((d, d)), []
    for x, reward in zip(contexts, rewards, strict=True):
        g = inverse @ x
        action = int(np.argmax(theta @ x + ALPHA * np.sqrt(g @ x)))
        h = g[action]
        np.multiply((h / (1.0 + h @ x))[:, None], h, out=outer)
        inverse[action] -= outer
        moment[action] += reward[action] * x
        theta[action] = inverse[action] @ moment[action]
        actions.append(action)
    return actions


@pytest.mark.parametrize("d", LINUCB)
def test_linucb(benchmark, d):
    n_arms, n = 10, 600
    rng = np.random.default_rng(0)
    contexts = rng.normal(size=(n, d)) / np.sqrt(d)
    rewards = contexts @ rng.normal(size=(d, n_arms)) + 0.1 * rng.normal(size=(n, n_arms))
    calls = {"arms": lambda: linucb(contexts, rewards), "numpy": lambda: linucb_numpy(contexts, rewards)}
    times = interleaved(calls, 1)
    actions = benchmark(calls["arms"])

    # Of equal bounds the first. NumPy breaks such ties by rounding, so the actions may part there.
    assert actions[0] == 0
    noted(benchmark.extra_info, times, "arms", n)
    demand(times["numpy"][0] >= LINUCB[d] * times["arms"][0], benchmark.extra_info)


@pytest.mark.parametrize("d", [16, 64, 256])
def test_sample(benchmark, d):
    rng = np.random.default_rng(d)
    ridge = Ridge(d, 1.0)
    ridge.update_rows(rng.normal(size=(4 * d, d)), rng.normal(size=4 * d))
    v, theta = ridge.gram + np.eye(d), ridge.theta

    def cholesky(rng=rng):
        factor = cho_factor(v, check_finite=False)[0]
        return theta + solve_triangular(factor, rng.standard_normal(d), check_finite=False)

    calls = {"ridge": lambda: ridge.sample(rng), "cholesky": cholesky, "normals": lambda: rng.standard_normal(d)}
    times = interleaved(calls, 50)
    benchmark(calls["ridge"])

    np.testing.assert_allclose(
        ridge.sample(np.random.default_rng(1)), cholesky(np.random.default_rng(1)), rtol=0, atol=1e-12
    )
    noted(benchmark.extra_info, times, "ridge")
    many = interleaved({"many": lambda: ridge.sample_many(rng, 256)}, 3)["many"]
    benchmark.extra_info["us a draw of 256"] = round(many[0] / 256 * 1e6, 2)
    demand(times["cholesky"][0] >= 3.0 * times["ridge"][0], benchmark.extra_info)


@pytest.mark.parametrize("d", [8, 32, 128])
def test_discount_update_and_query(benchmark, d):
    rng = np.random.default_rng(d)
    phi = rng.normal(size=d) / np.sqrt(d)
    ridge, gram, moment = Ridge(d, 1.0), np.zeros((d, d)), np.zeros(d)
    eye = np.eye(d)

    def ours():
        ridge.discount(0.95)
        ridge.update(phi, 1.0)
        return ridge.predict(phi), ridge.leverage(phi)

    def scipy():
        nonlocal gram, moment
        gram, moment = 0.95 * gram + np.outer(phi, phi), 0.95 * moment + phi
        factor = cho_factor(gram + eye, check_finite=False)
        return phi @ cho_solve(factor, moment, check_finite=False), phi @ cho_solve(factor, phi, check_finite=False)

    times = interleaved({"ridge": ours, "scipy": scipy}, 20)
    benchmark(ours)

    for _ in range(1000):
        expected, found = scipy(), ours()
    np.testing.assert_allclose(found, expected, rtol=1e-9)
    noted(benchmark.extra_info, times, "ridge")
