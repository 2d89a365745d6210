"""Ridge beyond one row at a time: weights, sparse rows, several targets, forgetting, another lambda, given moments."""

from __future__ import annotations

import copy
import pickle

import mpmath
import numpy as np
import pytest
import scipy.sparse
import twins
from hypothesis import given, settings
from hypothesis import strategies as st

from dmq_fast.kernels import Ridge, SecondMoment, Stream

pytestmark = pytest.mark.kernels

EPS = np.finfo(np.float64).eps
DIMENSIONS = [1, 2, 3, 9, 17, 40, 130]


def rows_of(d, n, seed=0, targets=None):
    rng = np.random.default_rng(seed)
    return rng.normal(size=(n, d)) / np.sqrt(d), rng.normal(size=n if targets is None else (n, targets))


def everything(ridge):
    state = ridge.__reduce__()[2]
    return {name: part.tobytes() if isinstance(part, np.ndarray) else part for name, part in state.items()}


def certify(ridge, gram, moment, tolerance=1e-13):
    """U^T U = V and V theta = moment, for the sums that are meant."""
    d, divisor = ridge.dimension, max(ridge.n, 1) if ridge.normalized else 1
    v = gram / divisor + ridge.regularization * np.eye(d)
    factor, theta = ridge.factor, ridge.theta
    scale = np.trace(v)
    assert np.linalg.norm(factor.T @ factor - v) <= tolerance * d * scale
    residual = np.linalg.norm(v @ theta - moment / divisor)
    assert residual <= tolerance * d * (scale * np.linalg.norm(theta) + np.linalg.norm(moment) / divisor)
    np.testing.assert_allclose(ridge.gram, gram, rtol=0, atol=tolerance * d * (np.trace(gram) + 1e-300))
    np.testing.assert_allclose(ridge.moment, moment, rtol=0, atol=tolerance * d * (abs(moment).max() + 1e-300))


# Weights of one row


@pytest.mark.parametrize("d", DIMENSIONS)
@pytest.mark.parametrize("normalized", [False, True])
def test_a_weight_scales_the_products(d, normalized):
    rows, y = rows_of(d, 30, d)
    weights = np.random.default_rng(0).random(30) * 3
    weights[4] = 0.0
    ridge = Ridge(d, 0.3, normalized)
    for phi, target, weight in zip(rows, y.tolist(), weights.tolist(), strict=True):
        ridge.update(phi, target, weight)
    assert ridge.n == 30
    certify(ridge, (rows.T * weights) @ rows, rows.T @ (weights * y))
    one, other = Ridge(d, 0.3, normalized), Ridge(d, 0.3, normalized)
    one.update(rows[0], 2.0, weight=1)
    other.update(rows[0], 2.0)
    assert everything(one) == everything(other)


# Sparse rows


def sparse_problem(d, n, seed):
    rng = np.random.default_rng(seed)
    rows = scipy.sparse.csr_array(rng.random((n, d)) * (rng.random((n, d)) < 0.3))
    return rows, rng.normal(size=n)


@pytest.mark.parametrize("d", DIMENSIONS)
@pytest.mark.parametrize("n", [0, 1, 2, 70, 300])
@pytest.mark.parametrize("normalized", [False, True])
def test_sparse_rows_are_the_rows_they_stand_for(d, n, normalized):
    rows, y = sparse_problem(d, n, d + n)
    dense = rows.toarray()
    for form, weights in ((rows, None), (rows.tocoo(), None), (rows.tocsc(), np.arange(n) % 3)):
        ridge, twin = Ridge(d, 0.3, normalized), Ridge(d, 0.3, normalized)
        ridge.update(np.ones(d), 1.0)
        twin.update(np.ones(d), 1.0)
        ridge.update_rows(form, y, weights)
        twin.update_rows(dense, y, weights)
        assert ridge.n == twin.n == n + 1
        certify(ridge, twin.gram, twin.moment)
        np.testing.assert_allclose(ridge.predict(form), ridge.predict(dense), rtol=0, atol=1e-13)
        assert (ridge.leverage(form) == ridge.leverage(dense)).all()


def test_leverages_of_many_sparse_rows_come_in_pieces():
    rows, _ = sparse_problem(5, 1000, 0)
    ridge = Ridge(5, 1.0)
    ridge.update_rows(rows, np.ones(1000))
    assert (ridge.leverage(rows) == ridge.leverage(rows.toarray())).all()


@pytest.mark.parametrize("d", DIMENSIONS)
def test_one_sparse_row_is_the_row_it_stands_for(d):
    rng = np.random.default_rng(d)
    sparse, dense = Ridge(d, 0.5), Ridge(d, 0.5)
    for i in range(40):
        indices = rng.integers(0, d, size=min(d, 3)).astype([np.int64, np.int32, np.uint8][i % 3])
        values, row = rng.normal(size=len(indices)), np.zeros(d)
        np.add.at(row, indices, values)
        sparse.update_sparse(indices, values, 1.0, 0.5 + i % 2)
        dense.update(row, 1.0, 0.5 + i % 2)
    sparse.update_sparse([], [], 2.0)
    dense.update(np.zeros(d), 2.0)
    assert everything(sparse) == everything(dense)


def test_sparse_rows_without_order_or_with_duplicates_add_up():
    rows = scipy.sparse.csr_array(([1.0, 2.0, 4.0], [2, 0, 2], [0, 3]), shape=(1, 3))
    ridge = Ridge(3, 1.0)
    ridge.update_rows(rows, [1.0])
    assert (ridge.gram == np.outer([2, 0, 5], [2, 0, 5])).all() and (ridge.moment == [2, 0, 5]).all()
    assert ridge.predict(rows) == pytest.approx(29 / 30) and (rows.indices == [2, 0, 2]).all()


def test_sparse_rows_rotate_where_the_regularization_is_tiny():
    """3,000 rows that never see the last direction: its leverage is 1 / lambda."""
    rng = np.random.default_rng(0)
    dense = rng.normal(size=(3000, 8))
    dense[:, 7] = 0.0
    regularization = 1e-16 * (dense * dense).sum()
    ridge = Ridge(8, regularization)
    ridge.update_rows(scipy.sparse.csr_array(dense), np.zeros(3000))
    assert ridge.leverage(np.eye(8)[7]) == pytest.approx(1.0 / regularization, rel=1e-6)


# Several targets


@pytest.mark.parametrize("d", DIMENSIONS)
@pytest.mark.parametrize("targets", [1, 2, 5, 40])
@pytest.mark.parametrize("normalized", [False, True])
def test_targets_are_ridges_that_share_a_factor(d, targets, normalized):
    rows, y = rows_of(d, 90, d, targets)
    ridge, singles = Ridge(d, 0.4, normalized, targets), [Ridge(d, 0.4, normalized) for _ in range(targets)]
    assert ridge.targets == targets and singles[0].targets is None
    for phi, target in zip(rows[:6], y[:6], strict=True):
        ridge.update(phi, target)
    ridge.update_rows(rows[6:], y[6:], np.ones(84))
    ridge.update(rows[0], y[0], weight=4.0)
    ridge.update(2 * rows[1], 2 * y[1])
    ridge.downdate(2 * rows[1], 2 * y[1])
    ridge.update_sparse(np.arange(d), rows[2], y[2])
    for j, single in enumerate(singles):
        single.update_rows(np.vstack([rows, 2 * rows[0]]), np.append(y[:, j], 2 * y[0, j]))
        single.update(rows[2], y[2, j])
    assert ridge.theta.shape == ridge.moment.shape == (d, targets)
    np.testing.assert_allclose(ridge.theta, np.stack([single.theta for single in singles], axis=1), rtol=0, atol=1e-11)
    certify(ridge, singles[0].gram, np.stack([single.moment for single in singles], axis=1))
    assert ridge.predict(rows).shape == (90, targets) and ridge.predict(rows[0]).shape == (targets,)
    np.testing.assert_allclose(ridge.predict(rows), rows @ ridge.theta, rtol=0, atol=1e-12)
    assert (ridge.predict(rows[3]) == ridge.predict(rows)[3]).all()
    np.testing.assert_allclose(ridge.predict(scipy.sparse.csr_array(rows)), rows @ ridge.theta, rtol=0, atol=1e-12)
    z = np.random.default_rng(3).standard_normal((d, targets))
    drawn = ridge.sample(np.random.default_rng(3), 0.5)
    np.testing.assert_allclose(ridge.factor @ (drawn - ridge.theta), 0.5 * z, rtol=0, atol=1e-11)
    many = ridge.sample_many(np.random.default_rng(3), 4, 0.5)
    assert many.shape == (4, d, targets)
    np.testing.assert_allclose(many[0], drawn, rtol=0, atol=1e-12)


def test_one_target_with_an_axis_has_the_bits_of_one_without():
    rows, y = rows_of(7, 50)
    one, other = Ridge(7, 0.5, targets=1), Ridge(7, 0.5)
    for phi, target in zip(rows, y, strict=True):
        one.update(phi, [target])
        other.update(phi, target)
    assert (one.theta[:, 0] == other.theta).all() and (one.factor == other.factor).all()


def test_targets_are_copied_pickled_and_merged():
    rows, y = rows_of(4, 20, targets=3)
    ridge, other = Ridge(4, 0.5, targets=3), Ridge(4, 0.5, targets=3)
    ridge.update_rows(rows[:12], y[:12])
    other.update_rows(rows[12:], y[12:])
    for make in (Ridge.copy, copy.copy, copy.deepcopy, lambda r: pickle.loads(pickle.dumps(r))):
        assert everything(make(ridge)) == everything(ridge) and repr(make(ridge)) == repr(ridge)
    assert repr(ridge) == "Ridge(4, 0.5, targets=3): n=12"
    ridge.merge(other)
    certify(ridge, rows.T @ rows, rows.T @ y)
    with pytest.raises(ValueError, match=r"^other: expected targets 3, got None"):
        ridge.merge(Ridge(4, 0.5))
    with pytest.raises(ValueError, match=r"^state\['moment'\]: expected shape \(4, 3\)"):
        ridge.__setstate__(Ridge(4, 0.5).__reduce__()[2])
    assert len(Ridge(4, 0.5).__reduce__()[1]) == 3


def test_targets_that_do_not_fit_are_named():
    for bad, error in ((0, ValueError), (-1, ValueError), (2.5, TypeError), (True, TypeError), ("x", TypeError)):
        with pytest.raises(error, match=r"^targets: expected an integer"):
            Ridge(2, 1.0, targets=bad)
    ridge = Ridge(2, 1.0, targets=3)
    before, phi = everything(ridge), np.ones(2)
    for change in (ridge.update, ridge.downdate):
        for bad in (1.0, [1.0], np.ones(4), np.ones((1, 3))):
            with pytest.raises(ValueError, match=r"^y: expected shape \(3\)"):
                change(phi, bad)
    for bad in twins.not_finite(np.ones(3)):
        for weight in (0.0, 1.0, 2.0):
            with pytest.raises(ValueError, match=r"^y: expected finite"):
                ridge.update(phi, bad, weight)
        with pytest.raises(ValueError, match=r"^y: expected finite"):
            ridge.update_rows(phi[None, :], bad[None, :])
    for shape in ((2,), (2, 2), (1, 3)):
        with pytest.raises(ValueError, match=r"^y: expected shape \(2, 3\)"):
            ridge.update_rows(np.ones((2, 2)), np.ones(shape))
    with pytest.raises(ValueError, match=r"^phi, y: .* out of the range"):
        ridge.update(1e10 * phi, [1.0, 1e300, 1.0])
    assert everything(ridge) == before


# Forgetting


@pytest.mark.parametrize("d", DIMENSIONS)
@pytest.mark.parametrize("normalized", [False, True])
@pytest.mark.parametrize("regularization", [1.0, 1e-9])
@pytest.mark.parametrize("whole", [False, True])
def test_discounted_sums(d, normalized, regularization, whole):
    rows, y = rows_of(d, 3 * d + 5, d)
    ridge, gram, moment, share = Ridge(d, regularization, normalized), np.zeros((d, d)), np.zeros(d), 1.0
    for i, (phi, target) in enumerate(zip(rows, y.tolist(), strict=True)):
        ridge.update(phi, target)
        gram, moment = gram + np.outer(phi, phi), moment + target * phi
        if i % 7 == 0:
            ridge.discount(0.9, with_regularization=whole)
            gram, moment, share = 0.9 * gram, 0.9 * moment, 0.9 * share
    assert ridge.n == len(rows) and ridge.regularization == pytest.approx(regularization * (share if whole else 1.0))
    certify(ridge, gram, moment, 1e-12)


def test_a_discount_of_one_changes_nothing():
    ridge = Ridge(3, 0.5)
    ridge.update_rows(*rows_of(3, 100))
    theta, factor = ridge.theta, ridge.factor.copy()
    for whole in (False, True):
        ridge.discount(1, whole)
        assert (ridge.theta == theta).all() and (ridge.factor == factor).all() and ridge.regularization == 0.5


def test_a_whole_discount_keeps_the_estimate():
    ridge = Ridge(5, 0.5)
    ridge.update_rows(*rows_of(5, 30))
    theta, leverage = ridge.theta, ridge.leverage(np.ones(5))
    ridge.discount(0.25, with_regularization=True)
    np.testing.assert_allclose(ridge.theta, theta, rtol=1e-13)
    assert ridge.leverage(np.ones(5)) == pytest.approx(4 * leverage, rel=1e-13) and ridge.regularization == 0.125


def test_forgetting_for_long_does_not_drift():
    """After 5,000 discounts, what is left is the last rows with their powers."""
    rows, y = rows_of(6, 5000)
    ridge = Ridge(6, 0.1)
    for phi, target in zip(rows, y.tolist(), strict=True):
        ridge.discount(0.97)
        ridge.update(phi, target)
    powers = 0.97 ** np.arange(4999, -1, -1.0)
    certify(ridge, (rows.T * powers) @ rows, rows.T @ (powers * y))


@pytest.mark.parametrize("share", [1e-8, 1e-13, 1e-16])
def test_forgetting_keeps_lambda_where_the_sums_have_no_digits_of_it(share):
    """Directions never seen: V is lambda there, whatever was forgotten."""
    rng = np.random.default_rng(0)
    rows = rng.integers(-4, 5, size=(200, 6)).astype(float)
    rows[:, 0] = -rows[:, 1:].sum(axis=1)  # orthogonal to (1, ..., 1)
    regularization = share * (rows * rows).sum()
    ridge = Ridge(6, regularization)
    for phi in rows:
        ridge.update(phi, 0.0)
    for _ in range(20):
        ridge.discount(0.8)
    allowed = max(2000 * EPS * share**-0.5, 0.0 if share < 1e-11 else 2.0**-20)
    assert ridge.leverage(np.ones(6)) == pytest.approx(6 / regularization, rel=allowed)


def test_a_discounted_ridge_to_sixty_digits():
    rows, y = rows_of(4, 12)
    ridge = Ridge(4, 1e-3)
    with mpmath.workdps(60):
        v, b = mpmath.zeros(4), mpmath.zeros(4, 1)
        for phi, target in zip(rows, y.tolist(), strict=True):
            ridge.discount(0.875)
            ridge.update(phi, target, weight=2.5)
            x = mpmath.matrix(phi.tolist())
            v = mpmath.mpf(0.875) * v + mpmath.mpf(2.5) * x * x.T
            b = mpmath.mpf(0.875) * b + mpmath.mpf(2.5) * mpmath.mpf(target) * x
        ridge.regularize(2e-3)
        v += mpmath.mpf(2e-3) * mpmath.eye(4)
        theta = np.array([float(entry) for entry in mpmath.lu_solve(v, b)])
        condition = np.linalg.cond(np.array(v.tolist(), dtype=float))
    assert np.linalg.norm(ridge.theta - theta) <= 1000 * EPS * condition * np.linalg.norm(theta)


def test_discounts_that_do_not_fit_are_named():
    ridge = Ridge(2, 1e-300)
    ridge.update(np.ones(2), 1.0)
    before = everything(ridge)
    for bad in (0, -0.5, 1.5, np.nan, np.inf):
        with pytest.raises(ValueError, match=r"^factor: expected"):
            ridge.discount(bad)
    for bad in twins.no_numbers(1.0).values():
        with pytest.raises(TypeError, match=r"^factor: expected"):
            ridge.discount(bad)
    with pytest.raises(TypeError, match=r"^with_regularization: expected a bool"):
        ridge.discount(0.5, 1)
    with pytest.raises(ValueError, match=r"^factor: 1e-10 times regularization 1e-300 is out of range"):
        ridge.discount(1e-10, with_regularization=True)
    assert everything(ridge) == before and ridge.regularization == 1e-300


# Another lambda


@pytest.mark.parametrize("d", DIMENSIONS)
@pytest.mark.parametrize("normalized", [False, True])
def test_another_lambda(d, normalized):
    rows, y = rows_of(d, 3 * d, d)
    ridge = Ridge(d, 0.5, normalized)
    ridge.update_rows(rows, y)
    for regularization in (0.7, 0.7, 30.0, 1e-3, 2.0):
        ridge.regularize(regularization)
        assert ridge.regularization == regularization
        certify(ridge, rows.T @ rows, rows.T @ y)
        ridge.update(np.zeros(d), 0.0)
        ridge.downdate(np.zeros(d), 0.0)
    again = pickle.loads(pickle.dumps(ridge))
    assert everything(again) == everything(ridge) and again.regularization == 2.0


def test_a_lambda_that_rises_is_rotated_in_where_the_sums_have_no_digits_of_it():
    rng = np.random.default_rng(0)
    rows = rng.integers(-4, 5, size=(200, 6)).astype(float)
    rows[:, 0] = -rows[:, 1:].sum(axis=1)
    size = (rows * rows).sum()
    ridge = Ridge(6, 1e-17 * size)
    for phi in rows:
        ridge.update(phi, 0.0)
    ridge.regularize(1e-16 * size)
    assert ridge.leverage(np.ones(6)) == pytest.approx(6e16 / size, rel=1e-6)


def test_lambdas_that_do_not_fit_are_named():
    ridge = Ridge(20, 1.0)
    phi = np.random.default_rng(0).normal(size=20)
    for _ in range(100):
        ridge.update(phi, 1.0)
    theta, before = ridge.theta, everything(ridge)
    for bad in (0, -1.0, 1e-310, 1e308, np.nan, np.inf):
        with pytest.raises(ValueError, match=r"^regularization: "):
            ridge.regularize(bad)
    with pytest.raises(TypeError, match=r"^regularization: expected"):
        ridge.regularize(None)
    assert everything(ridge) == before
    with pytest.raises(np.linalg.LinAlgError, match=r"^regularization: .* regularization 1e-20"):
        ridge.regularize(1e-20)
    assert ridge.regularization == 1.0 and (ridge.theta == theta).all()
    assert everything(ridge)["factor"] == before["factor"]


# Moments that are given


@pytest.mark.parametrize("d", DIMENSIONS)
@pytest.mark.parametrize("normalized", [False, True])
@pytest.mark.parametrize("targets", [None, 1, 3])
def test_a_ridge_goes_on_from_moments(d, normalized, targets):
    rows, y = rows_of(d, 60, d, targets)
    second = SecondMoment(d)
    second.add_rows(rows[:40])
    ridge = Ridge.from_moments(second.matrix, rows[:40].T @ y[:40], second.n, 0.3, normalized)
    assert (ridge.n, ridge.targets, ridge.normalized, ridge.regularization) == (40, targets, normalized, 0.3)
    certify(ridge, rows[:40].T @ rows[:40], rows[:40].T @ y[:40])
    ridge.update_rows(rows[40:], y[40:])
    certify(ridge, rows.T @ rows, rows.T @ y)
    again = Ridge.from_moments(np.triu(ridge.gram), ridge.moment, ridge.n, 0.3, normalized)
    certify(again, rows.T @ rows, rows.T @ y)
    assert everything(pickle.loads(pickle.dumps(again))) == everything(again)
    ridge.merge(again)
    certify(ridge, 2 * rows.T @ rows, 2 * rows.T @ y)


def test_moments_that_do_not_fit_are_named():
    make, gram, moment = Ridge.from_moments, np.eye(2), np.ones(2)
    for bad in twins.no_numbers(gram).values():
        with pytest.raises(TypeError, match=r"^gram: expected"):
            make(bad, moment, 1, 1.0)
    for bad in twins.no_numbers(moment).values():
        with pytest.raises(TypeError, match=r"^moment: expected"):
            make(gram, bad, 1, 1.0)
    for bad in twins.not_finite(gram):
        with pytest.raises(ValueError, match=r"^gram: expected finite"):
            make(bad, moment, 1, 1.0)
    for bad in twins.not_finite(moment):
        with pytest.raises(ValueError, match=r"^moment: expected finite"):
            make(gram, bad, 1, 1.0)
    for shape in ((), (2,), (0, 0), (2, 3), (1, 2, 2)):
        with pytest.raises(ValueError, match=r"^gram: expected shape"):
            make(np.ones(shape), moment, 1, 1.0)
    for shape in ((), (3,), (3, 2), (1, 2, 1)):
        with pytest.raises(ValueError, match=r"^moment: expected shape"):
            make(gram, np.ones(shape), 1, 1.0)
    with pytest.raises(ValueError, match=r"^targets: "):
        make(gram, np.ones((2, 0)), 1, 1.0)
    for bad, error in ((-1, ValueError), (1.5, TypeError), (True, TypeError), (2**63, ValueError)):
        with pytest.raises(error, match=r"^n: expected an integer"):
            make(gram, moment, bad, 1.0)
    for sums, products in ((gram, 0 * moment), (0 * gram, moment)):
        with pytest.raises(ValueError, match=r"^n: expected an integer >= 1 where gram or moment is not zero"):
            make(sums, products, 0, 1.0)
    assert make(0 * gram, 0 * moment, 0, 1.0).n == 0
    with pytest.raises(ValueError, match=r"^gram: expected a non-negative diagonal, got -1.0 at 1"):
        make(np.diag([1.0, -1.0]), moment, 1, 2.0)
    with pytest.raises(ValueError, match=r"^gram: expected a positive semidefinite matrix, got 2.0 at \(1, 0\)"):
        make([[1.0, 2.0], [2.0, 1.0]], moment, 1, 9.0)
    with pytest.raises(np.linalg.LinAlgError, match=r"^gram: gram \+ regularization I would not be positive definite"):
        make(np.ones((2, 2)), moment, 1, 1e-300)
    for sums, products in ((1e308 * gram, moment), (gram, 1e308 * moment)):
        with pytest.raises(ValueError, match=r"^gram, moment: a sum is out of the range"):
            make(sums, products, 1, 1.0)
    with pytest.raises(ValueError, match=r"^regularization: expected a positive"):
        make(gram, moment, 1, 0.0)
    with pytest.raises(TypeError, match=r"^normalized: expected a bool"):
        make(gram, moment, 1, 1.0, 1)


@pytest.mark.parametrize("d", [2, 40])
def test_what_is_refused_changes_nothing(d):
    rows, y = rows_of(d, 5)
    ridge = Ridge(d, 0.5)
    ridge.update_rows(rows, y)
    before, phi = everything(ridge), np.ones(d)

    def refused(error, match, call, *arguments):
        with pytest.raises(error, match=match):
            call(*arguments)
        assert everything(ridge) == before

    for bad in twins.no_numbers(1.0).values():
        refused(TypeError, r"^weight: expected", ridge.update, phi, 1.0, bad)
    for bad in twins.not_finite(1.0):
        refused(ValueError, r"^weight: expected finite", ridge.update, phi, 1.0, bad)
        refused(ValueError, r"^y: expected finite", ridge.update, phi, bad, 0.0)
    refused(ValueError, r"^weight: expected a non-negative", ridge.update, phi, 1.0, -1.0)
    for bad in twins.not_finite(phi):
        refused(ValueError, r"^phi: expected finite", ridge.update, bad, 1.0, 0.0)
        refused(ValueError, r"^values: expected finite", ridge.update_sparse, np.arange(d), bad, 1.0)
        refused(ValueError, r"^Phi: expected finite", ridge.update_rows, scipy.sparse.csr_array([bad]), [1.0])
        for query in (ridge.predict, ridge.leverage):
            refused(ValueError, r"^Phi: expected finite", query, scipy.sparse.csr_array([bad]))
    refused(ValueError, r"^phi, y: .* out of the range", ridge.update, 1e200 * phi, 1.0, 1e300)
    refused(ValueError, rf"^indices: expected 0 <= index < {d}, got {d}", ridge.update_sparse, [d], [1.0], 1.0)
    refused(ValueError, r"^values: expected shape \(1\)", ridge.update_sparse, [0], [1.0, 2.0], 1.0)
    refused(TypeError, r"^indices: expected integers", ridge.update_sparse, [0.5], [1.0], 1.0)
    wide = scipy.sparse.csr_array(np.ones((1, d + 1)))
    for call in (ridge.predict, ridge.leverage, lambda rows: ridge.update_rows(rows, [1.0])):
        refused(ValueError, rf"^Phi: expected shape \(any, {d}\)", call, wide)
    narrow = scipy.sparse.csr_array(1e155 * np.ones((1, d)))
    refused(ValueError, r"^Phi.data, y: .* out of the range", ridge.update_rows, narrow, [1.0])
    refused(ValueError, r"^y: expected shape \(1\)", ridge.update_rows, narrow, [1.0, 2.0])
    refused(ValueError, r"^Phi: a leverage is out", ridge.leverage, 1e100 * narrow)
    refused(TypeError, r"^Phi: expected real numbers", ridge.predict, 1j * narrow)


@settings(deadline=None, max_examples=60)
@given(st.integers(1, 12), st.lists(st.integers(0, 6), max_size=25), st.integers(0, 2**32))
def test_any_sequence_of_changes_ends_at_the_sums_it_says(d, changes, seed):
    rng = np.random.default_rng(seed)
    ridge, gram, moment = Ridge(d, 0.5), np.zeros((d, d)), np.zeros(d)
    largest = d * 0.5
    for change in changes:
        phi, y, weight = rng.normal(size=d), float(rng.normal()), float(rng.random())
        if change in (0, 1):
            ridge.update(phi, y, weight)
            gram, moment = gram + weight * np.outer(phi, phi), moment + weight * y * phi
        elif change == 2:
            ridge.discount(0.5 + 0.5 * weight)
            gram, moment = (0.5 + 0.5 * weight) * gram, (0.5 + 0.5 * weight) * moment
        elif change == 3:
            ridge.regularize(0.1 + weight)
        elif change == 4:
            ridge.update_rows(scipy.sparse.csr_array(np.outer([1.0, 2.0], phi)), [y, y])
            gram, moment = gram + 5 * np.outer(phi, phi), moment + 3 * y * phi
        elif change == 5:
            ridge.update_sparse([d - 1], [weight], y)
            gram[-1, -1] += weight * weight
            moment[-1] += weight * y
        else:
            ridge = pickle.loads(pickle.dumps(ridge))
        largest = max(largest, np.trace(gram) + d * ridge.regularization)
    v = gram + ridge.regularization * np.eye(d)
    factor = ridge.factor
    assert np.linalg.norm(factor.T @ factor - v) <= 1e-13 * d * largest
    np.testing.assert_allclose(ridge.theta, np.linalg.solve(v, moment), rtol=0, atol=1e-9)
    assert np.isfinite(ridge.sample(Stream(seed))).all()


def test_whole_discounts_are_followed_by_a_factor_from_the_sums():
    """Rounding of 3,000 scalings of U does not add up: every 1024 changes U comes from the Gram matrix."""
    ridge = Ridge(3, 1.0)
    ridge.update_rows(*rows_of(3, 50))
    for _ in range(3000):
        ridge.discount(0.999, with_regularization=True)
    v = ridge.gram + ridge.regularization * np.eye(3)
    assert np.linalg.norm(ridge.factor.T @ ridge.factor - v) <= 1024 * EPS * np.trace(v)
    assert ridge.__reduce__()[2]["left"] > 0
