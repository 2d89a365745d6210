"""Ridge regression: the normal equations hold, and what cannot be fitted says why."""

from __future__ import annotations

import numpy as np
import pytest
import twins
from hypothesis import given, settings
from hypothesis import strategies as st

from dmq_fast.kernels import RidgeFit, ridge_fit

EPS = np.finfo(np.float64).eps
DIMENSIONS = [1, 2, 3, 15, 16, 17, 40]  # plain loops up to 16, LAPACK above


def problem(d, n, seed):
    rng = np.random.default_rng(seed)
    phi = rng.normal(size=(n, d)) / np.sqrt(d)
    y = rng.random(n)
    return phi.T @ phi, phi.T @ y, n


def residual_is_small(gram, moment, n, ridge, theta):
    """Backward stability: |A theta - b| <= c d eps (|A| |theta| + |b|), A = gram / n + ridge I."""
    d = len(theta)
    a = gram / n + ridge * np.eye(d)
    b = moment / n
    norm = np.linalg.norm
    # Cholesky: d + 1 products a row, forward and back substitution; |L| |L^T| <= d |A|
    allowed = 4 * d * (d + 2) * EPS * (norm(a, 2) * norm(theta) + norm(b))
    return norm(a @ theta - b) <= allowed


@pytest.mark.parametrize("d", DIMENSIONS)
@pytest.mark.parametrize("ridge", [1e-12, 1e-6, 1e-3, 1.0, 1e6])
@pytest.mark.parametrize("n", [1, 7, 200])
def test_normal_equations_hold(d, ridge, n):
    gram, moment, n = problem(d, n, d)
    theta = ridge_fit(gram, moment, n, ridge)
    assert theta.shape == (d,) and theta.dtype == np.float64
    assert residual_is_small(gram, moment, n, ridge, theta)


@settings(deadline=None, max_examples=100)
@given(st.integers(1, 30), st.integers(1, 60), st.floats(1e-6, 1e3), st.integers(0, 2**32))
def test_kernel_equals_twin(d, n, ridge, seed):
    gram, moment, n = problem(d, n, seed)
    theta = ridge_fit(gram, moment, n, ridge)
    condition = np.linalg.cond(gram / n + ridge * np.eye(d))
    expected = twins.ridge_fit(gram, moment, n, ridge)
    allowed = 20 * d * EPS * condition * np.linalg.norm(expected)
    assert np.linalg.norm(theta - expected) <= allowed
    assert (RidgeFit(d, ridge)(gram, moment, n) == theta).all()


@pytest.mark.parametrize("d", DIMENSIONS)
def test_gradient_of_the_regularised_loss_vanishes(d):
    rng = np.random.default_rng(d)
    phi, y, ridge = rng.normal(size=(3 * d, d)), rng.random(3 * d), 0.1
    theta = ridge_fit(phi.T @ phi, phi.T @ y, len(y), ridge)

    def loss(x):
        return ((phi @ x - y) ** 2).mean() + ridge * x @ x

    for direction in np.eye(d):
        assert loss(theta) <= min(loss(theta + 1e-3 * direction), loss(theta - 1e-3 * direction))


@pytest.mark.parametrize("d", DIMENSIONS)
def test_estimate_obeys_its_bound(d):
    """|theta| <= 1 / (2 sqrt(lambda)) where |y| <= 1."""
    for ridge in (1e-6, 1e-2, 1.0):
        gram, moment, n = problem(d, 5, d)
        assert np.linalg.norm(ridge_fit(gram, moment, n, ridge)) <= (1 + 1e-6) / (2 * np.sqrt(ridge))


@pytest.mark.parametrize("d", DIMENSIONS)
def test_zero_gram_divides_by_the_ridge(d):
    moment = np.arange(1.0, d + 1)
    assert ridge_fit(np.zeros((d, d)), moment, 2, 4.0) == pytest.approx(moment / 8, rel=4 * EPS)


@pytest.mark.parametrize("d", DIMENSIONS)
def test_no_ridge_is_least_squares(d):
    gram, moment, n = problem(d, 4 * d, d)
    assert residual_is_small(gram, moment, n, 0.0, ridge_fit(gram, moment, n, 0))
    assert residual_is_small(gram, moment, n, 0.0, ridge_fit(gram, moment, n, -0.0))


@pytest.mark.parametrize("d", DIMENSIONS)
def test_singular_without_ridge_says_what_to_do(d):
    gram = np.zeros((d, d))
    gram[: d - 1, : d - 1] = np.eye(d - 1)
    with pytest.raises(np.linalg.LinAlgError, match=rf"leading minor {d}, ridge 0\); raise ridge"):
        ridge_fit(gram, np.zeros(d), 1, 0)
    with pytest.raises(np.linalg.LinAlgError, match="raise ridge"):
        ridge_fit(np.zeros((d, d)), np.zeros(d), 1, 0)


@pytest.mark.parametrize("d", DIMENSIONS)
def test_indefinite_gram_is_an_error(d):
    gram = np.eye(d)
    gram[-1, -1] = -1.0
    with pytest.raises(np.linalg.LinAlgError, match=f"leading minor {d}"):
        ridge_fit(gram, np.zeros(d), 1, 0.5)


@pytest.mark.parametrize("d", DIMENSIONS)
@pytest.mark.parametrize("scale", [1e-300, 1e-150, 1e150, 1e300])
def test_scale_of_the_moments_cancels(d, scale):
    gram, moment, n = problem(d, 50, d)
    expected = ridge_fit(gram, moment, n, 1e-3)
    scaled = ridge_fit(gram * scale, moment * scale, n, 1e-3 * scale)
    condition = np.linalg.cond(gram / n + 1e-3 * np.eye(d))
    assert np.linalg.norm(scaled - expected) <= 20 * d * EPS * condition * np.linalg.norm(expected)


@pytest.mark.parametrize("d", [2, 17])
def test_overflow_is_an_error_not_a_number(d):
    eye, one = np.eye(d), np.ones(d)
    for arguments in (
        (1e300 * eye, one, 1e-300, 1.0),
        (eye, 1e300 * one, 1e-300, 1.0),
        (0 * eye, 1e300 * one, 1, 1e-300),
    ):
        with pytest.raises(ValueError, match=r"gram, moment: .* not finite"):
            ridge_fit(*arguments)


def test_only_the_lower_triangle_is_read():
    gram, moment, n = problem(5, 20, 0)
    assert (ridge_fit(np.tril(gram), moment, n, 0.1) == ridge_fit(gram, moment, n, 0.1)).all()


@pytest.mark.parametrize("d", [3, 17])
def test_every_layout_gives_the_same_fit(d):
    gram = 3 * np.eye(d) + np.ones((d, d))
    moment = np.arange(d)
    expected = ridge_fit(gram, moment, 2, 0.5)
    for name, alternative in twins.layouts(gram).items():
        assert (ridge_fit(alternative, moment, 2, 0.5) == expected).all(), name
    for name, alternative in twins.layouts(moment).items():
        assert (ridge_fit(gram, alternative, 2, 0.5) == expected).all(), name
    for n, ridge in ((np.float32(2), np.float16(0.5)), (np.int8(2), np.array(0.5)), (np.array(2), 0.5)):
        assert (ridge_fit(gram, moment, n, ridge) == expected).all()


@pytest.mark.parametrize("d", [3, 17])
def test_inputs_are_left_alone(d):
    gram, moment, n = problem(d, 40, 1)
    before = gram.tobytes(), moment.tobytes()
    first = ridge_fit(gram, moment, n, 0.1)
    assert (gram.tobytes(), moment.tobytes()) == before
    aliased = ridge_fit(gram, gram[0], n, 0.1)
    assert gram.tobytes() == before[0]
    assert (aliased == ridge_fit(gram, gram[0].copy(), n, 0.1)).all()
    assert (ridge_fit(gram, moment, n, 0.1) == first).all()


def test_what_is_not_a_number_is_named():
    gram, moment = np.eye(3), np.ones(3)
    for bad in twins.no_numbers(gram).values():
        with pytest.raises(TypeError, match=r"^gram: expected"):
            ridge_fit(bad, moment, 1, 1)
    for bad in twins.no_numbers(moment).values():
        with pytest.raises(TypeError, match=r"^moment: expected"):
            ridge_fit(gram, bad, 1, 1)
    for bad in twins.no_numbers(1.0).values():
        with pytest.raises(TypeError, match=r"^n: expected"):
            ridge_fit(gram, moment, bad, 1)
        with pytest.raises(TypeError, match=r"^ridge: expected"):
            ridge_fit(gram, moment, 1, bad)


def test_what_is_not_finite_is_named():
    gram, moment = np.eye(3), np.ones(3)
    for bad in twins.not_finite(gram):
        with pytest.raises(ValueError, match=r"^gram: expected finite"):
            ridge_fit(bad, moment, 1, 1)
    for bad in twins.not_finite(moment):
        with pytest.raises(ValueError, match=r"^moment: expected finite"):
            ridge_fit(gram, bad, 1, 1)
    for bad in twins.not_finite(1.0):
        with pytest.raises(ValueError, match=r"^n: expected finite"):
            ridge_fit(gram, moment, bad, 1)
        with pytest.raises(ValueError, match=r"^ridge: expected finite"):
            ridge_fit(gram, moment, 1, bad)


@pytest.mark.parametrize("shape", [(), (3,), (2, 3), (3, 2), (0, 0), (0, 3), (3, 0), (1, 3, 3)])
def test_gram_of_another_shape_is_named(shape):
    with pytest.raises(ValueError, match=r"^gram: expected shape"):
        ridge_fit(np.ones(shape), np.ones(3), 1, 1)


@pytest.mark.parametrize("shape", [(), (2,), (0,), (1, 3), (3, 1)])
def test_moment_of_another_shape_is_named(shape):
    with pytest.raises(ValueError, match=r"^moment: expected shape \(3\)"):
        ridge_fit(np.eye(3), np.ones(shape), 1, 1)


@pytest.mark.parametrize("bad", [[1.0], [], [[1.0]]])
def test_numbers_are_scalars(bad):
    with pytest.raises(ValueError, match=r"^n: expected shape"):
        ridge_fit(np.eye(3), np.ones(3), bad, 1)
    with pytest.raises(ValueError, match=r"^ridge: expected shape"):
        ridge_fit(np.eye(3), np.ones(3), 1, bad)


def test_signs_are_checked():
    for n in (0, -1, -0.0):
        with pytest.raises(ValueError, match=r"^n: expected a positive"):
            ridge_fit(np.eye(3), np.ones(3), n, 1)
    with pytest.raises(ValueError, match=r"^ridge: expected a non-negative number, got -1"):
        ridge_fit(np.eye(3), np.ones(3), 1, -1)


def test_reusable_fit_names_what_does_not_fit():
    fit = RidgeFit(2, 0.5)
    assert (fit.dimension, fit.ridge) == (2, 0.5)
    assert fit(np.eye(2), np.array([3.0, 6.0]), 2.0) == pytest.approx([1.5, 3.0])
    for gram, moment, n in (
        (np.eye(3), np.ones(2), 1),
        (np.eye(2), np.ones(3), 1),
        (np.eye(2), np.ones(2), 0),
        (np.eye(2), np.ones(2), np.nan),
    ):
        with pytest.raises(ValueError, match="dimension 2"):
            fit(gram, moment, n)
    for bad in (np.nan, np.inf):
        with pytest.raises(ValueError, match="not finite"):
            fit(bad * np.ones((2, 2)), np.ones(2), 1)
        with pytest.raises(ValueError, match="not finite"):
            fit(np.eye(2), np.array([1.0, bad]), 1)
    with pytest.raises(ValueError, match=r"^ridge: expected a non-negative"):
        RidgeFit(2, -1.0)
    with pytest.raises(ValueError, match=r"^dimension"):
        RidgeFit(0, 1.0)
    for gram, moment in ((None, np.ones(2)), (np.eye(2), None)):
        with pytest.raises(TypeError, match="must not be None"):
            fit(gram, moment, 1)
