"""Measure incremental ridge regression, one row a call, beside Sherman-Morrison updates of the inverse.

    pytest bench/test_ridge.py

There are two alternatives: NumPy, in place and without temporaries; and SciPy's BLAS, which reads and writes one
triangle only.
"""

import numpy as np
import pytest
from common import demand, interleaved, noted
from scipy.linalg.blas import dsymv, dsyr

from dmq_fast.kernels import Ridge

REGULARIZATION = 1.0
TARGETS = {8: 5.0, 16: 5.0, 64: 3.0, 128: 1.5, 256: 1.5}


class ShermanMorrison:
    """Ridge regression with V^{-1} <- V^{-1} - g g^T / (1 + phi^T g), where g = V^{-1} phi."""

    def __init__(self, d):
        self.inverse, self.moment = np.eye(d) / REGULARIZATION, np.zeros(d)
        self.g, self.scaled, self.product, self.outer = np.empty(d), np.empty(d), np.empty(d), np.empty((d, d))

    def update(self, phi, y):
        """Add a row."""
        np.dot(self.inverse, phi, out=self.g)
        np.multiply(self.g, 1.0 / (1.0 + np.dot(phi, self.g)), out=self.scaled)
        np.multiply(self.scaled[:, None], self.g, out=self.outer)
        np.subtract(self.inverse, self.outer, out=self.inverse)
        np.multiply(phi, y, out=self.product)
        np.add(self.moment, self.product, out=self.moment)

    @property
    def theta(self):
        """The estimate."""
        return self.inverse @ self.moment


class BlasShermanMorrison(ShermanMorrison):
    """Ridge regression by the same formula with dsymv and dsyr."""

    def __init__(self, d):
        super().__init__(d)
        self.inverse = np.asfortranarray(self.inverse)

    def update(self, phi, y):
        """Add a row."""
        g = dsymv(1.0, self.inverse, phi)
        dsyr(-1.0 / (1.0 + phi @ g), g, a=self.inverse, overwrite_a=1)
        np.multiply(phi, y, out=self.product)
        np.add(self.moment, self.product, out=self.moment)

    @property
    def theta(self):
        """The estimate."""
        return dsymv(1.0, self.inverse, self.moment)


def rows(d, n):
    rng = np.random.default_rng(d)
    return rng.normal(size=(n, d)) / np.sqrt(d), rng.random(n).tolist()


def feeding(learner, phi, y):
    """Return a function that adds all rows to the learner."""
    update, pairs = learner.update, list(zip(phi, y, strict=True))

    def feed():
        for row, target in pairs:
            update(row, target)

    return feed


@pytest.mark.parametrize("d", [1, *TARGETS])
def test_update(benchmark, d):
    n = 256
    phi, y = rows(d, n)
    learners = {"ridge": Ridge(d, REGULARIZATION), "numpy": ShermanMorrison(d), "blas": BlasShermanMorrison(d)}
    calls = {name: feeding(learner, phi, y) for name, learner in learners.items()}
    for call in calls.values():
        call()
    times = interleaved(calls, 2)
    for name in ("numpy", "blas"):
        np.testing.assert_allclose(learners[name].theta, learners["ridge"].theta, rtol=1e-8, atol=1e-10)
    benchmark(calls["ridge"])

    noted(benchmark.extra_info, times, "ridge", n)
    demand(times["numpy"][0] >= TARGETS.get(d, 1.0) * times["ridge"][0], benchmark.extra_info)


@pytest.mark.parametrize("d", [16, 64, 256])
def test_leverage_of_rows(benchmark, d):
    n = 1000
    phi, y = rows(d, n)
    ridge = Ridge(d, REGULARIZATION)
    ridge.update_rows(phi, y)
    inverse, product = np.linalg.inv(ridge.gram + REGULARIZATION * np.eye(d)), np.empty((n, d))

    def numpy():
        return np.einsum("ij,ij->i", np.dot(phi, inverse, out=product), phi)

    times = interleaved({"ridge": lambda: ridge.leverage(phi), "numpy": numpy}, 5)
    leverage = benchmark(ridge.leverage, phi)

    np.testing.assert_allclose(leverage, numpy(), rtol=1e-9)
    noted(benchmark.extra_info, times, "ridge", n)


@pytest.mark.parametrize("d", [16, 64, 256])
def test_update_and_query(benchmark, d):
    """Measure the rounds of a bandit: each adds a row, then computes the estimate and one leverage."""
    phi, y = rows(d, 256)
    ours, theirs = Ridge(d, REGULARIZATION), ShermanMorrison(d)

    def ridge():
        for row, target in zip(phi, y, strict=True):
            ours.update(row, target)
            ours.predict(row)
            ours.leverage(row)

    def numpy():
        for row, target in zip(phi, y, strict=True):
            theirs.update(row, target)
            np.dot(theirs.inverse, theirs.moment).dot(row)
            np.dot(theirs.inverse, row).dot(row)

    times = interleaved({"ridge": ridge, "numpy": numpy}, 2)
    benchmark(ridge)

    np.testing.assert_allclose(
        ours.leverage(phi),
        np.einsum("ij,ij->i", phi @ np.linalg.inv(ours.gram + REGULARIZATION * np.eye(d)), phi),
        rtol=1e-8,
    )
    noted(benchmark.extra_info, times, "ridge", 256)


@pytest.mark.parametrize("d", [16, 64, 128, 256])
def test_blocks_cost_no_more_than_either_way(benchmark, d):
    """Compare both ways at the number of rows at which `update_rows` changes from rotations to a factorisation."""
    switch = (d + 12) // 12
    ridge = Ridge(d, REGULARIZATION)
    phi, y = rows(d, 2 * switch)
    few, many = (phi[:switch], y[:switch]), (phi[: switch + 1], y[: switch + 1])
    times = interleaved(
        {"rotations": lambda: ridge.update_rows(*few), "factorisation": lambda: ridge.update_rows(*many)}, 50
    )
    benchmark(ridge.update_rows, *few)

    assert np.isfinite(ridge.theta).all()
    noted(benchmark.extra_info, times, "rotations")
