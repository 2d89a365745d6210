"""Draws and solves from a kept factor: what V says of them, to 60 digits, and what they promise about seeds."""

from __future__ import annotations

import copy

import mpmath
import numpy as np
import pytest
import twins

from dmq_fast.kernels import Ridge, Stream

pytestmark = pytest.mark.kernels

EPS = np.finfo(np.float64).eps
DIMENSIONS = [1, 2, 3, 16, 17, 33, 130]


def fed(d, n, normalized=False, regularization=0.5):
    rng = np.random.default_rng(d)
    ridge = Ridge(d, regularization, normalized)
    ridge.update_rows(rng.normal(size=(n, d)) / np.sqrt(d), rng.normal(size=n))
    return ridge


def matrix_of(ridge):
    return ridge.gram / (ridge.n if ridge.normalized else 1) + ridge.regularization * np.eye(ridge.dimension)


@pytest.mark.parametrize("d", DIMENSIONS)
@pytest.mark.parametrize("normalized", [False, True])
def test_a_sample_is_the_estimate_and_the_factor_on_normals(d, normalized):
    """U (sample - theta) = scale z: a residual, with the bound of a back substitution."""
    ridge = fed(d, 3 * d, normalized)
    for scale in (0.0, 0.3, 7.0):
        z = np.random.default_rng(1).standard_normal(d)
        sample = ridge.sample(np.random.default_rng(1), scale)
        assert sample.shape == (d,)
        factor, theta = ridge.factor, ridge.theta
        allowed = 4 * (d + 2) * EPS * (abs(factor) @ (abs(sample) + abs(theta)) + scale * abs(z))
        assert (abs(factor @ (sample - theta) - scale * z) <= allowed).all()


@pytest.mark.parametrize("d", [1, 3, 9])
def test_samples_and_solutions_to_sixty_digits(d):
    ridge = fed(d, 4 * d, regularization=1e-4)
    z, b = np.random.default_rng(1).standard_normal(d), np.arange(1.0, 2 * d + 1).reshape(d, 2)
    with mpmath.workdps(60):
        v = mpmath.matrix(ridge.gram.tolist()) + mpmath.mpf(ridge.regularization) * mpmath.eye(d)
        lower = mpmath.cholesky(v)
        step = mpmath.lu_solve(lower.T, mpmath.matrix(z.tolist()))
        theta = mpmath.lu_solve(v, mpmath.matrix(ridge.moment.tolist()))
        expected = np.array([float(theta[i] + step[i]) for i in range(d)])
        solved = np.array([[float(x) for x in mpmath.lu_solve(v, mpmath.matrix(b[:, k].tolist()))] for k in (0, 1)]).T
    condition = np.linalg.cond(matrix_of(ridge))
    rtol = 50 * d * d * EPS * condition
    assert np.linalg.norm(ridge.sample(np.random.default_rng(1)) - expected) <= rtol * np.linalg.norm(expected)
    assert np.linalg.norm(ridge.solve(b) - solved) <= rtol * np.linalg.norm(solved)


@pytest.mark.parametrize("d", DIMENSIONS)
@pytest.mark.parametrize("normalized", [False, True])
def test_solutions_have_small_residuals(d, normalized):
    ridge = fed(d, 2 * d, normalized)
    v, rng = matrix_of(ridge), np.random.default_rng(0)
    for shape in ((d,), (d, 1), (d, 2), (d, 31), (d, 32), (d, 70), (d, 0)):
        b = rng.normal(size=shape)
        x = ridge.solve(b)
        assert x.shape == shape and x is not b
        allowed = 8 * d * (d + 2) * EPS * (np.linalg.norm(v) * np.linalg.norm(x) + np.linalg.norm(b))
        assert np.linalg.norm(v @ x - b) <= allowed
    assert ridge.solve(ridge.moment) == pytest.approx(ridge.theta * (ridge.n if normalized else 1), rel=1e-9, abs=1e-12)


@pytest.mark.parametrize("d", DIMENSIONS)
def test_many_draws_are_the_draws_one_by_one(d):
    ridge = fed(d, 3 * d)
    for m in (0, 1, 2, 40):
        one, many = np.random.default_rng(2), np.random.default_rng(2)
        expected = np.array([ridge.sample(one, 0.5) for _ in range(m)]).reshape(m, d)
        drawn = ridge.sample_many(many, m, 0.5)
        np.testing.assert_allclose(drawn, expected, rtol=0, atol=1e-12)
        assert one.random() == many.random()
    stream = Stream(3, call=5)
    np.testing.assert_allclose(ridge.sample_many(stream, 7)[0], ridge.sample(stream), rtol=0, atol=1e-12)


@pytest.mark.parametrize("d", [1, 5, 130])
def test_the_same_seed_gives_the_same_bits(d):
    ridge = fed(d, 20)
    for make in (lambda: np.random.default_rng(4), lambda: Stream(4, 1, 2)):
        assert (ridge.sample(make()) == ridge.copy().sample(make())).all()
        assert (ridge.sample_many(make(), 5) == copy.copy(ridge).sample_many(make(), 5)).all()
    stream = Stream(0)
    assert (ridge.sample(stream) == ridge.sample(stream)).all()
    assert not (ridge.sample(stream) == ridge.sample(stream.at(1))).any()
    rng = np.random.default_rng(0)
    assert not (ridge.sample(rng) == ridge.sample(rng)).any()


def test_draws_have_the_mean_and_covariance_of_the_posterior():
    """Of 40,000 draws, in units of the posterior: the mean is off by about 1 / 200, the covariance by 1.4 / 200."""
    ridge = fed(4, 10)
    for rng in (np.random.default_rng(0), Stream(0)):
        draws = ridge.sample_many(rng, 40_000, 2.0)
        white = (draws - ridge.theta) @ ridge.factor.T / 2.0
        assert abs(white.mean(axis=0)).max() < 0.03
        assert abs(white.T @ white / len(white) - np.eye(4)).max() < 0.05


def test_a_draw_changes_nothing():
    ridge = fed(5, 20)
    before = [part.tobytes() if isinstance(part, np.ndarray) else part for part in ridge.__reduce__()[2].values()]
    theta = ridge.theta
    ridge.sample(Stream(0))[:] = 7.0
    ridge.sample_many(Stream(0), 3)[:] = 7.0
    b = np.ones(5)
    ridge.solve(b)[:] = 7.0
    assert (b == 1).all() and (ridge.theta == theta).all()
    after = [part.tobytes() if isinstance(part, np.ndarray) else part for part in ridge.__reduce__()[2].values()]
    assert before == after


@pytest.mark.parametrize("d", DIMENSIONS)
def test_the_factor_is_a_view_that_follows(d):
    ridge = fed(d, 3 * d)
    factor = ridge.factor
    assert factor.shape == (d, d) and (np.tril(factor, -1) == 0).all()
    for change in (
        lambda: ridge.update(np.ones(d), 1.0),
        ridge.refactor,
        lambda: ridge.update_rows(np.ones((300, d)), np.ones(300)),
        lambda: ridge.downdate(np.ones(d), 1.0),
        lambda: ridge.merge(fed(d, 5)),
        lambda: ridge.__setstate__(fed(d, 9).__reduce__()[2]),
    ):
        change()
        v = matrix_of(ridge)
        assert np.linalg.norm(factor.T @ factor - v) <= 1e-12 * np.trace(v) and (ridge.factor == factor).all()
    with pytest.raises(ValueError, match="read-only"):
        factor[0, 0] = 1.0
    with pytest.raises(ValueError, match="WRITEABLE"):
        factor.setflags(write=True)
    kept, expected = fed(d, 9).factor, fed(d, 9)
    assert (kept == expected.factor).all()  # the object is gone, its factor is not


def test_a_normalised_factor_follows_at_the_next_query():
    ridge = fed(3, 8, normalized=True)
    factor = ridge.factor
    ridge.update(np.ones(3), 1.0)
    v = matrix_of(ridge)
    assert np.linalg.norm(ridge.factor.T @ ridge.factor - v) <= 1e-13
    assert (factor == ridge.factor).all()


def test_what_a_pickle_holds_below_the_diagonal_does_not_show():
    ridge = fed(3, 8)
    make, arguments, state = ridge.__reduce__()
    state["factor"] = state["factor"] + np.tril(np.ones((3, 3)), -1)
    other = make(*arguments)
    other.__setstate__(state)
    assert (other.factor == ridge.factor).all()


def test_what_is_refused_is_named():
    ridge = fed(3, 8)
    for bad in (None, 0, "x", np.random.RandomState(0), np.random.SeedSequence(0), np.random.PCG64(0)):
        with pytest.raises(TypeError, match=r"^rng: expected a numpy.random.Generator or a Stream, got "):
            ridge.sample(bad)
        with pytest.raises(TypeError, match=r"^rng: expected a numpy.random.Generator or a Stream, got "):
            ridge.sample_many(bad, 2)
    for sample in (ridge.sample, lambda rng, scale: ridge.sample_many(rng, 2, scale)):
        with pytest.raises(ValueError, match=r"^scale: expected a non-negative number, got -1"):
            sample(Stream(0), -1.0)
        for bad in twins.not_finite(1.0):
            with pytest.raises(ValueError, match=r"^scale: expected finite"):
                sample(Stream(0), bad)
        for bad in twins.no_numbers(1.0).values():
            with pytest.raises(TypeError, match=r"^scale: expected"):
                sample(Stream(0), bad)
    wide = Ridge(2, 1e-10)
    for sample in (lambda: wide.sample(Stream(0), 1.7e308), lambda: wide.sample_many(Stream(0), 2, 1.7e308)):
        with pytest.raises(ValueError, match=r"^scale: a sample is out of the range"):
            sample()
    for bad, error in ((-1, ValueError), (2.5, TypeError), (True, TypeError), ("x", TypeError), (2**63, ValueError)):
        with pytest.raises(error, match=r"^m: expected an integer"):
            ridge.sample_many(Stream(0), bad)
    b = np.ones(3)
    for bad in twins.no_numbers(b).values():
        with pytest.raises(TypeError, match=r"^b: expected"):
            ridge.solve(bad)
    for bad in twins.not_finite(b):
        with pytest.raises(ValueError, match=r"^b: expected finite"):
            ridge.solve(bad)
    for shape in ((), (2,), (0,), (2, 3), (1, 3, 1)):
        with pytest.raises(ValueError, match=r"^b: expected shape"):
            ridge.solve(np.ones(shape))
    with pytest.raises(ValueError, match=r"^b: a solution is out"):
        Ridge(1, 1e-200).solve([1e200])
    for name, alternative in twins.layouts(np.arange(6.0).reshape(3, 2)).items():
        assert (ridge.solve(alternative) == ridge.solve(np.arange(6.0).reshape(3, 2))).all(), name
    with pytest.raises(AttributeError):
        ridge.factor = np.eye(3)
    lost = Ridge(20, 1e-20, True)
    lost.update_rows(np.ones((100, 20)), np.ones(100))
    for query in (lambda: lost.factor, lambda: lost.sample(Stream(0)), lambda: lost.solve(np.ones(20))):
        with pytest.raises(np.linalg.LinAlgError, match="regularization"):
            query()
