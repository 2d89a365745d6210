"""Ridge regression from moments: the normal equations hold, and what cannot be fitted says why."""

from __future__ import annotations

import copy
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import twins
from hypothesis import strategies as st
from properties import for_all, refuses, seeds

from dmq_fast.kernels import RidgeFit, ridge_fit

pytestmark = pytest.mark.kernels

EPS = np.finfo(np.float64).eps
dimensions = st.one_of(st.integers(1, 20), st.just(40))  # plain loops up to 16, LAPACK above


def problem(d, n, seed):
    rng = np.random.default_rng(seed)
    phi = rng.normal(size=(n, d)) / np.sqrt(d)
    y = rng.random(n)
    return phi.T @ phi, phi.T @ y, n


@for_all(d=dimensions, n=st.integers(1, 200), exponent=st.sampled_from([None, *range(-12, 7)]), seed=seeds)
def test_normal_equations_hold(d, n, exponent, seed):
    """Backward stability: |A theta - b| <= c d eps (|A| |theta| + |b|), A = gram / n + ridge I."""
    ridge = 0.0 if exponent is None else 10.0**exponent
    gram, moment, n = problem(d, n if ridge else 4 * d + n, seed)
    theta, norm = ridge_fit(gram, moment, n, ridge), np.linalg.norm
    assert theta.shape == (d,) and theta.dtype == np.float64
    a, b = gram / n + ridge * np.eye(d), moment / n
    # Cholesky: d + 1 products a row, forward and back substitution; |L| |L^T| <= d |A|
    assert norm(a @ theta - b) <= 4 * d * (d + 2) * EPS * (norm(a, 2) * norm(theta) + norm(b))
    if ridge:
        # |theta| <= 1 / (2 sqrt(lambda)) where |y| <= 1
        assert norm(theta) <= (1 + 1e-6) / (2 * np.sqrt(ridge))
    forward = 20 * d * EPS * np.linalg.cond(a) * norm(theta)
    assert norm(theta - twins.ridge_fit(gram, moment, n, ridge)) <= forward
    # The scale of the moments cancels, only the upper triangle is read, and the reusable fit has the same bits.
    for scale in (1e-300, 1e-150, 1e150, 1e300):
        assert norm(ridge_fit(gram * scale, moment * scale, n, ridge * scale) - theta) <= forward
    assert (ridge_fit(np.triu(gram), moment, n, ridge) == theta).all()
    assert (RidgeFit(d, ridge)(gram, moment, n) == theta).all()


@pytest.mark.parametrize("d", [1, 3, 17])
def test_gradient_of_the_regularised_loss_vanishes(d):
    rng = np.random.default_rng(d)
    phi, y, ridge = rng.normal(size=(3 * d, d)), rng.random(3 * d), 0.1
    theta = ridge_fit(phi.T @ phi, phi.T @ y, len(y), ridge)

    def loss(x):
        return ((phi @ x - y) ** 2).mean() + ridge * x @ x

    for direction in np.eye(d):
        assert loss(theta) <= min(loss(theta + 1e-3 * direction), loss(theta - 1e-3 * direction))


def test_a_zero_gram_divides_by_the_ridge():
    for d in (1, 16, 17):
        moment = np.arange(1.0, d + 1)
        assert ridge_fit(np.zeros((d, d)), moment, 2, 4.0) == pytest.approx(moment / 8, rel=4 * EPS)


@pytest.mark.parametrize("d", [1, 2, 16, 17, 40])
def test_what_has_no_fit_says_what_to_do(d):
    singular, indefinite, eye, one = np.eye(d), np.eye(d), np.eye(d), np.ones(d)
    singular[-1, -1], indefinite[-1, -1] = 0.0, -1.0
    overflows = [(1e300 * eye, one, 1e-300, 1.0), (eye, 1e300 * one, 1e-300, 1.0), (0 * eye, 1e300 * one, 1, 1e-300)]
    refuses(
        [
            (np.linalg.LinAlgError, rf"leading minor {d}, ridge 0\); raise ridge", ridge_fit, singular, 0 * one, 1, 0),
            (np.linalg.LinAlgError, "raise ridge", ridge_fit, 0 * eye, 0 * one, 1, -0.0),
            (np.linalg.LinAlgError, f"leading minor {d}", ridge_fit, indefinite, 0 * one, 1, 0.5),
            *((ValueError, r"gram, moment: .* not finite", ridge_fit, *given) for given in overflows),
        ]
    )


def test_what_does_not_fit_is_named():
    gram, moment, fit = np.eye(3), np.ones(3), RidgeFit(3, 1.0)
    assert (fit.dimension, fit.ridge) == (3, 1.0)
    table = []
    for call in (lambda *given: ridge_fit(*given, 1), fit):
        bad = [*twins.not_finite(1.0), *(np.ones(shape) for shape in ((1,), (0,), (1, 1)))]
        table += [(ValueError, "^n: expected", call, gram, moment, n) for n in bad]
        table += [(TypeError, "^n: expected", call, gram, moment, n) for n in twins.no_numbers(1.0).values()]
        table += [(ValueError, "^n: expected a pos", call, gram, moment, n) for n in (0, -1, -0.0)]
    table += [
        (ValueError, "^dimension: expected an integer in", RidgeFit, bad, 1.0) for bad in (0, -1, 2**28 + 1, 2**62)
    ]
    refuses(
        [
            *table,
            (ValueError, "^ridge: expected a non-negative number, got -1", ridge_fit, gram, moment, 1, -1),
            (ValueError, "^ridge: expected a non-negative", RidgeFit, 2, -1.0),
            (TypeError, "argument", RidgeFit.__new__, RidgeFit),
            (ValueError, "^n: .* float64 holds, got an integer of 1025 bits", ridge_fit, gram, moment, 2**1024, 1),
        ]
    )


@pytest.mark.parametrize("n", [2**63, 2**64, 10**30])
def test_integers_of_any_size_are_numbers(n):
    gram, moment = np.array([[0.5 * n]]), np.array([0.25 * n])
    assert ridge_fit(gram, moment, n, 0.5) == RidgeFit(1, 0.5)(gram, moment, n) == pytest.approx([0.25])
    assert ridge_fit(gram, moment, 1, n) == ridge_fit(gram, moment, 1, float(n))


@pytest.mark.parametrize("d", [8, 100])
def test_threads_share_a_fit(d):
    """Of the object and of its copy: every call has a workspace of its own."""
    fit = RidgeFit(d, 0.5)
    problems = [problem(d, 2 * d, seed) for seed in range(4)]
    expected = [fit(*given) for given in problems]

    def right(i):
        mine = fit if i % 2 else copy.copy(fit)
        return all((mine(*problems[i]) == expected[i]).all() for _ in range(200))

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(right, range(4)))
