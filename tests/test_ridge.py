"""Ridge regression: the normal equations hold, and what cannot be fitted says why."""

from __future__ import annotations

import copy
import pickle
import threading
import time

import numpy as np
import pytest
import scipy.linalg
import twins
from hypothesis import given, settings
from hypothesis import strategies as st

from dmq_fast.kernels import Ridge, RidgeFit, ridge_fit

pytestmark = pytest.mark.kernels

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


def test_only_the_upper_triangle_is_read():
    gram, moment, n = problem(5, 20, 0)
    assert (ridge_fit(np.triu(gram), moment, n, 0.1) == ridge_fit(gram, moment, n, 0.1)).all()


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


@pytest.mark.parametrize("n", [2**63, 2**64, 10**30])
def test_integers_of_any_size_are_numbers(n):
    gram, moment = np.array([[0.5 * n]]), np.array([0.25 * n])
    assert ridge_fit(gram, moment, n, 0.5) == RidgeFit(1, 0.5)(gram, moment, n) == pytest.approx([0.25])
    assert ridge_fit(gram, moment, 1, n) == ridge_fit(gram, moment, 1, float(n))
    with pytest.raises(ValueError, match=r"^n: expected a number that float64 holds, got an integer of 1025 bits"):
        ridge_fit(gram, moment, 2**1024, 0.5)
    with pytest.raises(ValueError, match=r"^n: expected a positive number"):
        ridge_fit(gram, moment, -n, 0.5)


def test_signs_are_checked():
    for n in (0, -1, -0.0):
        with pytest.raises(ValueError, match=r"^n: expected a positive"):
            ridge_fit(np.eye(3), np.ones(3), n, 1)
    with pytest.raises(ValueError, match=r"^ridge: expected a non-negative number, got -1"):
        ridge_fit(np.eye(3), np.ones(3), 1, -1)


def test_reusable_fit_names_what_does_not_fit():
    fit = RidgeFit(2, 0.5)
    assert (fit.dimension, fit.ridge) == (2, 0.5)
    gram, moment = np.eye(2), np.array([3.0, 6.0])
    assert fit(gram, moment, 2.0) == pytest.approx([1.5, 3.0])
    for shape in ((), (2,), (3, 3), (2, 3), (0, 0)):
        with pytest.raises(ValueError, match=r"^gram: expected shape \(2, 2\)"):
            fit(np.ones(shape), moment, 1)
    for shape in ((), (3,), (0,), (1, 2)):
        with pytest.raises(ValueError, match=r"^moment: expected shape \(2\)"):
            fit(gram, np.ones(shape), 1)
    for bad in (0, -1.0):
        with pytest.raises(ValueError, match=r"^n: expected a positive number"):
            fit(gram, moment, bad)
    for bad in (np.nan, np.inf):
        with pytest.raises(ValueError, match=r"^n: expected finite"):
            fit(gram, moment, bad)
        with pytest.raises(ValueError, match=r"^gram: expected finite"):
            fit(bad * np.ones((2, 2)), moment, 1)
        with pytest.raises(ValueError, match=r"^moment: expected finite"):
            fit(gram, np.array([1.0, bad]), 1)
    with pytest.raises(ValueError, match=r"^ridge: expected a non-negative"):
        RidgeFit(2, -1.0)
    for bad in (0, -1, 2**28 + 1, 2**32, 2**62):
        with pytest.raises(ValueError, match=r"^dimension: expected an integer in"):
            RidgeFit(bad, 1.0)
    for bad in twins.no_numbers(gram).values():
        with pytest.raises(TypeError, match=r"^gram: expected"):
            fit(bad, moment, 1)
    for bad in twins.no_numbers(moment).values():
        with pytest.raises(TypeError, match=r"^moment: expected"):
            fit(gram, bad, 1)
    with pytest.raises(TypeError):
        RidgeFit.__new__(RidgeFit)


def test_reusable_fit_takes_what_ridge_fit_takes():
    fit, gram, moment = RidgeFit(2, 0.5), 2 * np.eye(2), np.array([3.0, 6.0])
    expected = fit(gram, moment, 2.0)
    for alternative in (gram.tolist(), *twins.layouts(gram).values()):
        assert (fit(alternative, moment, 2) == expected).all()
    for alternative in (moment.tolist(), *twins.layouts(moment).values()):
        assert (fit(gram, alternative, np.float32(2)) == expected).all()


def test_reusable_fit_is_copied_and_pickled():
    fit = RidgeFit(3, 0.25)
    for other in (copy.copy(fit), copy.deepcopy(fit), pickle.loads(pickle.dumps(fit))):
        assert type(other) is RidgeFit and (other.dimension, other.ridge) == (3, 0.25)
        assert (other(np.eye(3), np.ones(3), 1) == fit(np.eye(3), np.ones(3), 1)).all()


@pytest.mark.parametrize("d", [8, 100])
def test_threads_share_a_fit(d):
    """Of the object and of its copy: every call has a workspace of its own."""
    fit = RidgeFit(d, 0.5)
    problems = [problem(d, 2 * d, seed) for seed in range(4)]
    expected = [fit(*given) for given in problems]
    wrong = []

    def work(i, fit):
        for _ in range(500):
            if not (fit(*problems[i]) == expected[i]).all():
                wrong.append(i)

    workers = [threading.Thread(target=work, args=(i, fit if i % 2 else copy.copy(fit))) for i in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert not wrong


# Ridge: the factor that rows are rotated into. Certificates: U^T U = V and V theta = moment.

REFACTOR = 1024
FACTOR_DIMENSIONS = [1, 2, 3, 7, 8, 9, 16, 17, 40, 130]


class TwinRidge:
    """The same from all rows at once."""

    def __init__(self, d, regularization, normalized=False):
        self.rows, self.y = np.empty((0, d)), np.empty(0)
        self.regularization, self.normalized = regularization, normalized

    def update_rows(self, rows, y, weights=1.0):
        root = np.sqrt(np.broadcast_to(weights, len(rows)))
        self.rows = np.vstack([self.rows, rows * root[:, None]])
        self.y = np.append(self.y, y * root)

    @property
    def divisor(self):
        return max(len(self.rows), 1) if self.normalized else 1

    @property
    def v(self):
        d = self.rows.shape[1]
        return self.rows.T @ self.rows / self.divisor + self.regularization * np.eye(d)

    @property
    def theta(self):
        return np.linalg.solve(self.v, self.rows.T @ self.y / self.divisor)

    def leverage(self, points):
        return np.einsum("ij,ji->i", points, np.linalg.solve(self.v, points.T))


def rotate_in(factor, w):
    """Givens rotations in NumPy, in the order of the kernel: not a bit may differ."""
    factor, w = factor.copy(), w.copy()
    for k in range(len(w)):
        if w[k] == 0.0:
            continue
        r = np.sqrt(factor[k, k] * factor[k, k] + w[k] * w[k])
        c, s = factor[k, k] / r, w[k] / r
        factor[k, k] = r
        row, rest = factor[k, k + 1 :].copy(), w[k + 1 :].copy()
        factor[k, k + 1 :] = c * row + s * rest
        w[k + 1 :] = c * rest - s * row
    return factor


def leverage(factor, x):
    """|U^{-T} x|^2 in NumPy, in the order of the kernel: not a bit may differ."""
    x, total = x.copy(), 0.0
    for k in range(len(x)):
        x[k] /= factor[k, k]
        total += x[k] * x[k]
        x[k + 1 :] -= x[k] * factor[k, k + 1 :]
    return total


def factor_of(ridge):
    return np.triu(ridge.__reduce__()[2]["factor"])


def everything(ridge):
    """The state, to the bit."""
    state = ridge.__reduce__()[2]
    return {name: part.tobytes() if isinstance(part, np.ndarray) else part for name, part in state.items()}


def check(ridge, v, moment, k, reach=0.0):
    """Certificates, for a factor with k rows rotated in; `reach` is sum |y| |phi| / n."""
    d, u = ridge.dimension, EPS / 2
    norm = np.linalg.norm
    theta = ridge.theta  # first: a normalised factor is made on demand
    factor = factor_of(ridge)
    assert (np.diagonal(factor) > 0).all()
    scale = np.sqrt(np.trace(v))
    # Rotations, and the sums: ours, and those of v.
    allowed = (20 * (k + 1) * d + 2 * (ridge.n + d)) * u
    scaled = factor / scale
    assert norm(scaled.T @ scaled - v / scale / scale) <= allowed
    # |V theta - moment|, in units that do not overflow.
    assert theta.shape == (d,)
    unit = norm(theta) or 1.0
    residual = (v / scale / scale) @ (theta / unit) - moment / scale / scale / unit
    solve = 8 * d * (d + 2) * u
    assert norm(residual) <= allowed + solve + (ridge.n + 2) * u * reach / scale / scale / unit


def rows_of(d, n, seed, spread=1.0):
    """Rows whose second moment has condition about spread^2, and targets."""
    rng = np.random.default_rng(seed)
    basis = np.linalg.qr(rng.normal(size=(d, d)))[0]
    rows = rng.normal(size=(n, d)) * np.geomspace(1.0, 1.0 / spread, d) @ basis.T / np.sqrt(d)
    return rows, rng.normal(size=n)


def fed(d, regularization, rows, y, normalized=False):
    ridge = Ridge(d, regularization, normalized)
    for phi, target in zip(rows, y.tolist(), strict=True):
        ridge.update(phi, target)
    return ridge


@settings(deadline=None, max_examples=150)
@given(
    st.integers(1, 40),
    st.integers(0, 200),
    st.integers(-140, 150),
    st.integers(-16, 3),
    st.integers(0, 8),
    st.booleans(),
    st.integers(0, 2**32),
)
def test_factor_and_estimate_have_certificates(d, n, exponent, regularization, spread, normalized, seed):
    """Scales from 1e-140 to 1e150 and conditions up to 1e16: backward errors do not depend on them."""
    rows, y = rows_of(d, n, seed, 10.0**spread)
    scale = 10.0**exponent
    rows *= scale
    ridge, twin = fed(d, 10.0**regularization * scale * scale, rows, y, normalized), TwinRidge(d, 0, normalized)
    twin.update_rows(rows, y)
    twin.regularization = ridge.regularization
    try:
        theta = ridge.theta
    except np.linalg.LinAlgError as error:
        assert normalized and regularization < -12, error
        return
    reach = (abs(y) * np.linalg.norm(rows / scale, axis=1)).sum() * scale / twin.divisor
    check(ridge, twin.v, twin.rows.T @ twin.y / twin.divisor, 0 if normalized else n, reach)
    assert ridge.n == n and (ridge.theta == theta).all()
    gram = ridge.gram
    assert (gram == gram.T).all()
    np.testing.assert_allclose(gram / scale / scale, (rows / scale).T @ (rows / scale), atol=4 * d * (n + 1) * EPS)


@settings(deadline=None, max_examples=100)
@given(st.integers(1, 40), st.integers(0, 120), st.integers(-6, 3), st.booleans(), st.integers(0, 2**32))
def test_every_query_equals_the_twin(d, n, regularization, normalized, seed):
    rows, y = rows_of(d, n, seed)
    points = rows_of(d, 40, seed + 1)[0]
    ridge, twin = fed(d, 10.0**regularization, rows, y, normalized), TwinRidge(d, 10.0**regularization, normalized)
    twin.update_rows(rows, y)
    condition = np.linalg.cond(twin.v)
    rtol = 50 * d * (n + d) * EPS * condition
    np.testing.assert_allclose(ridge.theta, twin.theta, rtol=0, atol=rtol * (np.linalg.norm(twin.theta) + EPS))
    np.testing.assert_allclose(ridge.leverage(points), twin.leverage(points), rtol=rtol)
    assert (ridge.leverage(points) >= 0).all()
    np.testing.assert_allclose(
        ridge.predict(points), points @ ridge.theta, rtol=0, atol=1e-13 * (1 + abs(ridge.theta).sum())
    )
    sign, logdet = np.linalg.slogdet(twin.v)
    assert sign == 1 and ridge.logdet == pytest.approx(logdet, rel=1e-13, abs=d * rtol + 1e-13)
    np.testing.assert_allclose(ridge.moment, rows.T @ y, atol=1e-12)
    for i, point in enumerate(points):
        single = ridge.leverage(point)
        assert type(single) is float and single == ridge.leverage(points)[i]
        single = ridge.predict(point)
        assert type(single) is float and single == ridge.predict(points)[i]


@pytest.mark.parametrize("d", FACTOR_DIMENSIONS)
def test_rotations_are_those_of_the_twin_bit_for_bit(d):
    """So no product is contracted and nothing is reordered, whatever vectors this machine has."""
    rows, _ = rows_of(d, 12, d)
    rows[3], rows[4, ::2], rows[5] = 0.0, 0.0, np.eye(d)[-1]
    ridge = Ridge(d, 0.1)
    factor = np.sqrt(0.1) * np.eye(d)
    for phi in rows:
        ridge.update(phi, 1.0)
        factor = rotate_in(factor, phi)
        assert (factor_of(ridge) == factor).all()


@pytest.mark.parametrize("d", FACTOR_DIMENSIONS)
def test_leverages_are_those_of_the_twin_bit_for_bit(d):
    """The first 32 of 40 rows are solved with side by side, the others alone."""
    rows, y = rows_of(d, 12, d)
    ridge, points = fed(d, 0.1, rows, y), rows_of(d, 40, d + 1)[0]
    expected = [leverage(factor_of(ridge), point) for point in points]
    assert (ridge.leverage(points) == expected).all()
    assert [ridge.leverage(point) for point in points] == expected


@pytest.mark.parametrize("d", FACTOR_DIMENSIONS)
@pytest.mark.parametrize("m", [1, 2, 7, 63, 64, 65, 300])
@pytest.mark.parametrize("normalized", [False, True])
def test_blocks_are_the_rows_they_consist_of(d, m, normalized):
    rows, y = rows_of(d, 5 + m, m)
    one_by_one, blocks = fed(d, 0.5, rows, y, normalized), fed(d, 0.5, rows[:5], y[:5], normalized)
    blocks.update_rows(rows[5:], y[5:])
    assert blocks.n == one_by_one.n == 5 + m
    np.testing.assert_allclose(blocks.theta, one_by_one.theta, rtol=1e-9, atol=1e-11)
    np.testing.assert_allclose(blocks.gram, one_by_one.gram, rtol=1e-12, atol=1e-12)
    assert blocks.logdet == pytest.approx(one_by_one.logdet, rel=1e-12, abs=1e-12)


@pytest.mark.parametrize("d", [1, 5, 40])
@pytest.mark.parametrize("m", [1, 3, 100])
@pytest.mark.parametrize("normalized", [False, True])
def test_weights_scale_products(d, m, normalized):
    rows, y = rows_of(d, m, d)
    weights = np.random.default_rng(m).random(m)
    weights[0] = 0.0
    ridge, twin = Ridge(d, 0.3, normalized), TwinRidge(d, 0.3, normalized)
    ridge.update_rows(rows, y, weights)
    twin.update_rows(rows, y, weights)
    check(ridge, twin.v, twin.rows.T @ twin.y / twin.divisor, m, abs(y).sum())
    unit, plain = Ridge(d, 0.3, normalized), Ridge(d, 0.3, normalized)
    unit.update_rows(rows, y, weights=np.ones(m))
    plain.update_rows(rows, y)
    assert everything(unit) == everything(plain)


@pytest.mark.parametrize("m", [2**16 - 1, 2**16, 2**16 + 1, 2**17 + 3])
@pytest.mark.parametrize("normalized", [False, True])
def test_blocks_of_any_length_are_summed_in_pieces(m, normalized):
    """BLAS counts rows in 32 bits, so it gets 2^16 at a time; integers are summed without rounding in any order."""
    rng = np.random.default_rng(m)
    rows, y = rng.integers(-8, 9, size=(m, 3)).astype(float), rng.integers(-8, 9, size=m).astype(float)
    ridge = Ridge(3, 1.0, normalized)
    ridge.update_rows(rows, y)
    assert ridge.n == m
    assert (ridge.gram == rows.T @ rows).all() and (ridge.moment == rows.T @ y).all()


def test_no_rows():
    for normalized in (False, True):
        ridge = Ridge(3, 4.0, normalized)
        before = everything(ridge)
        ridge.update_rows(np.empty((0, 3)), np.empty(0))
        ridge.update_rows(np.empty((0, 3)), [], [])
        assert everything(ridge) == before
        assert (ridge.theta == 0).all() and (ridge.gram == 0).all() and (ridge.moment == 0).all() and ridge.n == 0
        assert ridge.logdet == pytest.approx(3 * np.log(4.0))
        assert ridge.leverage([1.0, 1.0, 0.0]) == pytest.approx(0.5)
        assert ridge.leverage(np.empty((0, 3))).shape == ridge.predict(np.empty((0, 3))).shape == (0,)


@settings(deadline=None, max_examples=100)
@given(st.integers(1, 40), st.integers(0, 60), st.integers(1, 20), st.booleans(), st.integers(0, 2**32))
def test_downdates_undo_updates(d, kept, removed, normalized, seed):
    rows, y = rows_of(d, kept + removed, seed)
    ridge, twin = fed(d, 1e-3, rows, y, normalized), TwinRidge(d, 1e-3, normalized)
    twin.update_rows(rows[:kept], y[:kept])
    for i in np.random.default_rng(seed).permutation(np.arange(kept, kept + removed)):
        ridge.downdate(rows[i], y[i])
    assert ridge.n == kept
    # Errors are relative to the largest V; a downdate amplifies them by 2^5 at most.
    largest = (rows * rows).sum() + d * 1e-3
    allowed = 32 * 20 * (kept + 2 * removed + 1) * d * EPS * largest
    np.testing.assert_allclose(ridge.moment, twin.rows.T @ twin.y, atol=1e-13 * (1 + abs(y).sum()))
    if not kept:
        assert everything(ridge) == everything(Ridge(d, 1e-3, normalized)) and (ridge.theta == 0).all()
    ridge.theta  # noqa: B018
    factor = factor_of(ridge)
    assert np.linalg.norm(factor.T @ factor - twin.v) <= allowed
    weak = allowed / 1e-3
    if weak < 0.1:
        expected = twin.theta
        assert np.linalg.norm(ridge.theta - expected) <= 4 * weak * (np.linalg.norm(expected) + abs(y).sum())


@pytest.mark.parametrize("normalized", [False, True])
def test_a_sliding_window_does_not_drift(normalized):
    d, window, steps = 12, 50, 5000
    rows, y = rows_of(d, steps, 0)
    ridge = fed(d, 0.1, rows[:window], y[:window], normalized)
    for i in range(window, steps):
        ridge.update(rows[i], y[i])
        ridge.downdate(rows[i - window], y[i - window])
    fresh = fed(d, 0.1, rows[-window:], y[-window:], normalized)
    assert ridge.n == window
    np.testing.assert_allclose(ridge.theta, fresh.theta, rtol=1e-10, atol=1e-12)
    assert ridge.logdet == pytest.approx(fresh.logdet, rel=1e-11, abs=1e-11)


@pytest.mark.parametrize("d", FACTOR_DIMENSIONS)
@pytest.mark.parametrize("normalized", [False, True])
def test_a_downdate_that_loses_definiteness_changes_nothing(d, normalized):
    rows, y = rows_of(d, 3, d)
    ridge = fed(d, 1e-3, rows, y, normalized)
    ridge.theta  # noqa: B018
    before, theta = everything(ridge), ridge.theta
    for factor in (3.0, 1e3, 1e100):
        with pytest.raises(np.linalg.LinAlgError, match=r"^phi: .* not be positive definite .* regularization 0\.001"):
            ridge.downdate(factor * (abs(rows).sum(axis=0) + 1), 0.0)
    after = everything(ridge)
    # Rows that waited may have been added to the sums: the state is another way to write the same.
    for name in ("version", "n", "factor", "moment", "trace", "reach"):
        assert before[name] == after[name], name
    assert (ridge.theta == theta).all()
    twin = TwinRidge(d, 1e-3)
    twin.update_rows(rows, y)
    np.testing.assert_allclose(ridge.gram, twin.rows.T @ twin.rows, atol=1e-14)


def test_a_row_that_was_all_leaves_the_regularization():
    """Leverage one but for rounding: only the sums know what is left."""
    ridge = Ridge(1, 1e-3)
    ridge.update([1e10], 1.0)
    ridge.downdate([1e10], 1.0)
    assert ridge.leverage([1.0]) == pytest.approx(1e3) and ridge.theta == [0.0] and ridge.n == 0
    assert everything(ridge.copy()) == everything(ridge)


@pytest.mark.parametrize("normalized", [False, True])
def test_what_has_gone_makes_room(normalized):
    """Rows whose products fill a third of the range of float64 come and go, and fit each time."""
    ridge = Ridge(2, 1.0, normalized)
    for _ in range(10):
        ridge.update([1e150, 0.0], 7e156)
        ridge.downdate([1e150, 0.0], 7e156)
        assert (ridge.theta == 0).all() and (ridge.moment == 0).all() and (ridge.gram == 0).all()
    ridge.update([0.0, 1.0], 1.0)
    for _ in range(10):
        ridge.update([1e150, 0.0], 7e156)
        ridge.downdate([1e150, 0.0], 7e156)
    ridge.update([1e150, 0.0], 2e157)
    ridge.downdate([1e150, 0.0], 2e157)
    ridge = Ridge(1, 1.0, normalized)
    for _ in range(10):
        ridge.update([1.4e153], 1.0)
        ridge.downdate([1.4e153], 1.0)
    ridge.update_rows(np.ones((20, 1)), np.zeros(20))
    with pytest.raises(ValueError, match=r"^phi, y: .* out of the range"):
        for _ in range(19):
            ridge.downdate([0.5], 1e307)
    assert 0 < ridge.n < 20 and np.isfinite(ridge.moment).all()


def test_without_rows_there_is_nothing_to_remove():
    for normalized in (False, True):
        with pytest.raises(ValueError, match=r"^phi: there is no row"):
            Ridge(2, 1.0, normalized).downdate([0.1, 0.1], 1.0)


@pytest.mark.parametrize("normalized", [False, True])
@pytest.mark.parametrize("sizes", [(0, 0), (0, 9), (9, 0), (70, 3), (200, 100)])
def test_merging_is_concatenation(sizes, normalized):
    d = 11
    rows, y = rows_of(d, sum(sizes), 3)
    first = fed(d, 0.2, rows[: sizes[0]], y[: sizes[0]], normalized)
    second = fed(d, 0.2, rows[sizes[0] :], y[sizes[0] :], normalized)
    before, whole = everything(second), fed(d, 0.2, rows, y, normalized)
    first.merge(second)
    assert everything(second) == before
    assert first.n == sum(sizes)
    np.testing.assert_allclose(first.theta, whole.theta, rtol=1e-11, atol=1e-13)
    np.testing.assert_allclose(first.gram, whole.gram, rtol=1e-12, atol=1e-13)
    np.testing.assert_allclose(first.moment, whole.moment, rtol=1e-12, atol=1e-13)
    assert first.logdet == pytest.approx(whole.logdet, rel=1e-12)
    for phi, target in zip(rows, y.tolist(), strict=True):
        first.update(phi, target)
    whole.update_rows(rows, y)
    np.testing.assert_allclose(first.theta, whole.theta, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("normalized", [False, True])
def test_merging_with_itself_doubles(normalized):
    rows, y = rows_of(4, 10, 0)
    ridge, twin = fed(4, 0.2, rows, y, normalized), TwinRidge(4, 0.2, normalized)
    ridge.merge(ridge)
    for _ in range(2):
        twin.update_rows(rows, y)
    assert ridge.n == 20
    np.testing.assert_allclose(ridge.theta, twin.theta, rtol=1e-12)


def test_what_does_not_merge_is_named():
    for other, name in (
        (Ridge(3, 1.0), "dimension"),
        (Ridge(2, 2.0), "regularization"),
        (Ridge(2, 1.0, True), "normal"),
    ):
        with pytest.raises(ValueError, match=rf"^other: expected {name}"):
            Ridge(2, 1.0).merge(other)
    for bad in (None, 1, "x"):
        with pytest.raises(TypeError, match="other"):
            Ridge(2, 1.0).merge(bad)
    large, other = Ridge(1, 1e-300), Ridge(1, 1e-300)
    for ridge in (large, other):
        ridge.update([4e153], 0.0)
        ridge.update([1e153], 0.0)
    before = everything(large)
    with pytest.raises(ValueError, match=r"^other: .* out of the range"):
        large.merge(other)
    assert everything(large) == before


def test_regularization_lost_in_rounding():
    """V = 1e-14 I + rows of rank one: the rotated factor stays definite, the sums are not."""
    d = 20
    phi = np.random.default_rng(0).normal(size=d)
    ridge = Ridge(d, 1e-14)
    for _ in range(3 * REFACTOR):
        ridge.update(phi, 1.0)
    assert np.isfinite(ridge.theta).all() and np.isfinite(ridge.logdet)
    assert ridge.predict(phi) == pytest.approx(1.0)
    before = everything(ridge)["factor"]
    with pytest.raises(np.linalg.LinAlgError, match=r"^regularization: gram \+ regularization I .* 1e-14"):
        ridge.refactor()
    assert everything(ridge)["factor"] == before
    ridge.update_rows(np.tile(phi, (100, 1)), np.ones(100))
    assert ridge.n == 3 * REFACTOR + 100 and ridge.predict(phi) == pytest.approx(1.0)
    other, n, theta = ridge.copy(), ridge.n, ridge.theta
    with pytest.raises(np.linalg.LinAlgError, match=r"^other: "):
        ridge.merge(other)
    assert ridge.n == n and (ridge.theta == theta).all()
    means = Ridge(d, 1e-20, True)
    means.update_rows(np.tile(phi, (100, 1)), np.ones(100))
    for query in (lambda: means.theta, lambda: means.logdet, lambda: means.leverage(phi), lambda: means.predict(phi)):
        with pytest.raises(np.linalg.LinAlgError, match=r"gram / n \+ regularization I"):
            query()


@pytest.mark.parametrize("d", [1, 6, 33])
@pytest.mark.parametrize("normalized", [False, True])
def test_order_does_not_matter(d, normalized):
    rows, y = rows_of(d, 300, d)
    order = np.random.default_rng(0).permutation(300)
    first, second = fed(d, 0.1, rows, y, normalized), fed(d, 0.1, rows[order], y[order], normalized)
    np.testing.assert_allclose(first.theta, second.theta, rtol=1e-10, atol=1e-12)
    assert first.logdet == pytest.approx(second.logdet, rel=1e-12)


def test_a_million_updates_do_not_drift():
    """Rows of norm <= 1 through the rank-one path, against one factorisation of all of them."""
    d, n, parts = 32, 1_000_000, 10
    ridge, v = Ridge(d, 1.0), np.eye(d)
    moment = np.zeros(d)
    rng = np.random.default_rng(0)
    for _ in range(parts):
        rows = rng.normal(size=(n // parts, d))
        rows /= np.maximum(np.linalg.norm(rows, axis=1), rng.random(n // parts) * np.sqrt(2 * d))[:, None]
        y = rng.random(n // parts)
        update = ridge.update
        for phi, target in zip(rows, y.tolist(), strict=True):
            update(phi, target)
        v += rows.T @ rows
        moment += rows.T @ y
    assert ridge.n == n
    fresh = scipy.linalg.cholesky(v)
    drift = np.linalg.norm(factor_of(ridge) - fresh) / np.linalg.norm(fresh)
    assert drift < 1e-9, drift
    theta = scipy.linalg.cho_solve((fresh, False), moment)
    assert np.linalg.norm(ridge.theta - theta) < 1e-9 * np.linalg.norm(theta)
    assert ridge.logdet == pytest.approx(2 * np.log(np.diagonal(fresh)).sum(), rel=1e-12)


@pytest.mark.parametrize("d", [2, 32])
@pytest.mark.parametrize("spread", [1.0, 1e4, 1e8])
def test_the_stated_bound_holds_between_refactorisations(d, spread):
    rows, y = rows_of(d, REFACTOR - 1, d, spread)
    ridge, twin = Ridge(d, 1e-16), TwinRidge(d, 1e-16)
    twin.update_rows(rows, y)
    for phi, target in zip(rows, y.tolist(), strict=True):
        ridge.update(phi, target)
    exact = twin.rows.astype(np.longdouble).T @ twin.rows.astype(np.longdouble) + np.longdouble(1e-16) * np.eye(d)
    factor = factor_of(ridge).astype(np.longdouble)
    error = np.sqrt(((factor.T @ factor - exact) ** 2).sum())
    assert error <= 20 * (len(rows) + 1) * d * (EPS / 2) * np.trace(exact)
    assert error <= 1e-13 * np.trace(exact)  # in practice
    ridge.refactor()
    factor = factor_of(ridge)
    assert np.linalg.norm(factor.T @ factor - exact.astype(float)) <= 1e-14 * d * float(np.trace(exact))


@pytest.mark.parametrize("normalized", [False, True])
def test_a_copy_is_another_with_the_same_bits(normalized):
    rows, y = rows_of(7, 300, 0)
    ridge = fed(7, 0.1, rows[:200], y[:200], normalized)
    for query in (False, True):  # with and without a factor, when normalised
        if query:
            ridge.theta  # noqa: B018
        makers = (Ridge.copy, copy.copy, copy.deepcopy, lambda r: pickle.loads(pickle.dumps(r)))
        for make in makers:
            state, other = everything(ridge), make(ridge)
            assert type(other) is Ridge and everything(other) == state and repr(other) == repr(ridge)
            for phi, target in zip(rows[200:], y[200:].tolist(), strict=True):
                other.update(phi, target)
            assert everything(ridge) == state and other.n == ridge.n + 100
            again = make(ridge)
            for phi, target in zip(rows[200:], y[200:].tolist(), strict=True):
                again.update(phi, target)
            assert everything(again) == everything(other)
            assert (again.theta == other.theta).all()


def test_pickled_states_are_checked():
    ridge = fed(2, 0.5, *rows_of(2, 3, 0))
    make, arguments, state = ridge.__reduce__()
    assert state["version"] == 1
    for version in (0, 2, -1, np.nan, None, "1", 1.5, np.ones(2)):
        with pytest.raises(ValueError, match=r"^state: expected that of a Ridge, version 1, got "):
            make(*arguments).__setstate__({**state, "version": version})
    for name in state:
        for bad in ("missing", None, "x", np.full((2, 2), np.nan), np.ones((70, 70))):
            if name == "factor" and bad is None:
                continue
            broken = {**state, name: bad}
            if bad == "missing" if isinstance(bad, str) else False:
                del broken[name]
            with pytest.raises(ValueError, match=r"^state: " if name == "version" else rf"^state.*'{name}'"):
                make(*arguments).__setstate__(broken)
    for name, bad in (
        ("n", -1),
        ("n", 2**63),
        ("n", 2.7),
        ("n", "3"),
        ("n", True),
        ("left", 0),
        ("left", 1025),
        ("left", np.nan),
        ("factor", None),
        ("factor", -np.eye(2)),
        ("factor", np.zeros((2, 2))),
        ("factor", np.eye(3)),
        ("lower", np.eye(3)),
        ("lower", -100 * np.eye(2)),
        ("lower", np.diag([1.0, np.inf])),
        ("rows", np.ones((3, 3))),
        ("rows", np.ones((64, 2))),
        ("rows", np.full((1, 2), 1e200)),
        ("moment", [1.0, np.nan]),
        ("moment", np.ones(3)),
        ("trace", np.inf),
        ("trace", -1.0),
        ("trace", 1e308),
        ("least", 0.0),
        ("least", 1e300),
        ("reach", -1.0),
        ("reach", np.nan),
    ):
        other = fed(2, 0.5, *rows_of(2, 5, 1))
        before = everything(other)
        named = "lower" if name == "rows" and np.shape(bad) == (1, 2) else name
        with pytest.raises(ValueError, match=rf"^state\['{named}'\]: expected "):
            other.__setstate__({**state, name: bad})
        assert everything(other) == before
    for bad in (None, [], 1):
        with pytest.raises(ValueError, match=r"^state: expected that of a Ridge, version 1, got "):
            make(*arguments).__setstate__(bad)


def test_what_comes_out_is_the_callers():
    rows, y = rows_of(3, 10, 0)
    ridge = fed(3, 0.5, rows, y)
    before, theta, prediction = everything(ridge), ridge.theta, ridge.predict(rows)
    mine = ridge.theta
    mine.setflags(write=True)
    mine[:] = 1e9
    assert (ridge.theta == theta).all() and (ridge.predict(rows) == prediction).all()
    ridge.gram[:] = 7.0
    ridge.moment[:] = 7.0
    ridge.leverage(rows)[:] = 7.0
    assert everything(ridge) == before
    kept = theta.copy()
    ridge.update(rows[0], 3.0)
    assert (theta == kept).all() and not (ridge.theta == kept).all()


@pytest.mark.parametrize("normalized", [False, True])
@pytest.mark.parametrize("d", [3, 17])
def test_every_layout_gives_the_same_ridge(d, normalized):
    phi, block = np.arange(d) % 5 - 2.0, np.arange(3.0 * d).reshape(3, d) % 7
    y = np.array([1.0, 2.0, 0.0])

    def run(phi, block, y, one):
        ridge = Ridge(d, 0.5, normalized)
        ridge.update(phi, one)
        ridge.update_rows(block, y)
        ridge.update_rows(block, y, y)
        ridge.downdate(phi, one)
        return ridge, ridge.leverage(block), ridge.predict(block), ridge.leverage(phi), ridge.predict(phi)

    def same(one, other):
        return everything(one[0]) == everything(other[0]) and all(
            (np.asarray(a) == np.asarray(b)).all() for a, b in zip(one[1:], other[1:], strict=True)
        )

    expected = run(phi, block, y, 2.0)
    for name, alternative in twins.layouts(phi).items():
        assert same(run(alternative, block, y, 2.0), expected), name
    for name, alternative in twins.layouts(block).items():
        assert same(run(phi, alternative, y, 2.0), expected), name
    for name, alternative in twins.layouts(y).items():
        assert same(run(phi, block, alternative, 2.0), expected), name
    for one in (2, True + 1, np.float32(2), np.float64(2), np.int8(2), np.array(2.0)):
        assert same(run(phi, block, y, one), expected)


@pytest.mark.parametrize("normalized", [False, True])
@pytest.mark.parametrize("d", [2, 130])
def test_what_is_refused_changes_nothing(d, normalized):
    rows, y = rows_of(d, 10, 0)
    ridge = fed(d, 0.5, rows, y, normalized)
    ridge.theta  # noqa: B018
    before = everything(ridge)
    phi, block, targets = np.ones(d), np.ones((3, d)), np.ones(3)

    def refused(error, match, call, *arguments):
        with pytest.raises(error, match=match):
            call(*arguments)
        assert everything(ridge) == before

    for change in (ridge.update, ridge.downdate):
        for bad in twins.no_numbers(phi).values():
            refused(TypeError, r"^phi: expected", change, bad, 1.0)
        for bad in twins.no_numbers(1.0).values():
            refused(TypeError, r"^y: expected", change, phi, bad)
        for bad in twins.not_finite(phi):
            refused(ValueError, r"^phi: expected finite", change, bad, 1.0)
        for bad in twins.not_finite(1.0):
            refused(ValueError, r"^y: expected finite", change, phi, bad)
            refused(ValueError, r"^y: expected finite", change, phi, bad.item())
            refused(ValueError, r"^y: expected finite", change, 0 * phi, bad.item())
        for shape in ((), (0,), (d + 1,), (1, d), (d, 1)):
            refused(ValueError, r"^phi: expected shape", change, np.ones(shape), 1.0)
        for bad in ([1.0], [], [[1.0]]):
            refused(ValueError, r"^y: expected shape", change, phi, bad)
        refused(ValueError, r"^phi, y: .* out of the range", change, 1e155 * phi, 1.0)
        refused(ValueError, r"^phi, y: .* out of the range", change, 1e10 * phi, 1e300)
    for bad in twins.no_numbers(block).values():
        refused(TypeError, r"^Phi: expected", ridge.update_rows, bad, targets)
        refused(TypeError, r"^Phi: expected", ridge.leverage, bad)
        refused(TypeError, r"^Phi: expected", ridge.predict, bad)
    for name, bad in twins.no_numbers(targets).items():
        refused(TypeError, r"^y: expected", ridge.update_rows, block, bad)
        if name != "none":
            refused(TypeError, r"^weights: expected", ridge.update_rows, block, targets, bad)
    for bad in twins.not_finite(block):
        refused(ValueError, r"^Phi: expected finite", ridge.update_rows, bad, targets)
        refused(ValueError, r"^Phi: expected finite", ridge.update_rows, bad, targets, 0 * targets)
        refused(ValueError, r"^Phi: expected finite", ridge.leverage, bad)
        refused(ValueError, r"^Phi: expected finite", ridge.predict, bad)
        refused(ValueError, r"^Phi: expected finite", ridge.leverage, bad[-1] + bad[0])
    for bad in twins.not_finite(targets):
        refused(ValueError, r"^y: expected finite", ridge.update_rows, block, bad)
        refused(ValueError, r"^y: expected finite", ridge.update_rows, 0 * block, bad)
        refused(ValueError, r"^y: expected finite", ridge.update_rows, block, bad, 0 * targets)
        refused(ValueError, r"^weights: expected finite", ridge.update_rows, block, targets, bad)
    refused(ValueError, r"^weights: expected non-negative numbers, got -1", ridge.update_rows, block, targets, -targets)
    for shape in ((), (d,), (3, d + 1), (0, d + 1), (3, 0), (1, 3, d)):
        refused(ValueError, r"^Phi: expected shape", ridge.update_rows, np.ones(shape), targets)
        if shape != (d,):
            refused(ValueError, r"^Phi: expected shape", ridge.leverage, np.ones(shape))
            refused(ValueError, r"^Phi: expected shape", ridge.predict, np.ones(shape))
    for shape in ((), (2,), (0,), (3, 1)):
        refused(ValueError, r"^y: expected shape \(3\)", ridge.update_rows, block, np.ones(shape))
        refused(ValueError, r"^weights: expected shape \(3\)", ridge.update_rows, block, targets, np.ones(shape))
    refused(ValueError, r"^Phi, y: .* out of the range", ridge.update_rows, 1e155 * block, targets)
    refused(
        ValueError, r"^Phi, y, weights: .* out of the range", ridge.update_rows, 1e200 * block, targets, 1e300 * targets
    )
    refused(ValueError, r"^Phi: a leverage is out", ridge.leverage, 1e200 * block)
    refused(ValueError, r"^Phi: a leverage is out", ridge.leverage, 1e200 * phi)


def test_results_that_overflow_are_errors():
    ridge = Ridge(1, 1e-300)
    ridge.update([1e-150], 1e300)
    with pytest.raises(ValueError, match=r"^theta: .* out of the range"):
        ridge.theta  # noqa: B018
    ridge = Ridge(1, 1e-200)
    ridge.update([1e-100], 1e100)
    assert np.isfinite(ridge.theta).all()
    for points in ([1e200], [[1e200]]):
        with pytest.raises(ValueError, match=r"^Phi: a prediction is out"):
            ridge.predict(points)


def test_sums_stop_before_they_overflow():
    ridge = Ridge(1, 1.0)
    with pytest.raises(ValueError, match=r"^phi, y: a sum of products is out of the range"):
        for _ in range(1000):
            ridge.update([1e153], 1e153)
    assert 1 < ridge.n < 1000 and np.isfinite(ridge.gram).all() and np.isfinite(ridge.moment).all()
    assert ridge.theta == pytest.approx(1.0)


def test_construction_names_what_does_not_fit():
    for bad in (0, -1, 2**28 + 1, 2**62):
        with pytest.raises(ValueError, match=r"^d: expected an integer"):
            Ridge(bad, 1.0)
    for bad in (0, 0.0, -0.0, -1.0):
        with pytest.raises(ValueError, match=r"^regularization: expected a positive"):
            Ridge(2, bad)
    for bad in (np.nan, np.inf):
        with pytest.raises(ValueError, match=r"^regularization: expected finite"):
            Ridge(2, bad)
    for bad in (1e-310, 1e308):
        with pytest.raises(ValueError, match=r"^regularization: .* out of the range"):
            Ridge(2, bad)
    for bad in (None, "1", 1j):
        with pytest.raises(TypeError, match=r"^regularization: expected"):
            Ridge(2, bad)
    for bad in (None, 1, "True"):
        with pytest.raises(TypeError, match=r"^normalized: expected a bool"):
            Ridge(2, 1.0, bad)
    with pytest.raises(TypeError):
        Ridge(2.5, 1.0)
    with pytest.raises(TypeError):
        Ridge.__new__(Ridge)
    ridge = Ridge(d=np.int32(2), regularization=np.float32(0.5), normalized=np.True_)
    assert (ridge.dimension, ridge.regularization, ridge.normalized, ridge.n) == (2, 0.5, True, 0)
    assert repr(ridge) == "Ridge(2, 0.5, normalized=True): n=0"
    for name in ("dimension", "regularization", "normalized", "n", "theta", "logdet", "gram", "moment"):
        with pytest.raises(AttributeError):
            setattr(ridge, name, 1)


def test_the_mean_form_is_the_estimate_of_the_paper():
    rows, y = rows_of(6, 80, 0)
    ridge = fed(6, 0.01, rows, y, normalized=True)
    expected = ridge_fit(rows.T @ rows, rows.T @ y, 80, 0.01)
    np.testing.assert_allclose(ridge.theta, expected, rtol=1e-12)
    scaled = fed(6, 0.01 * 80, rows, y)
    np.testing.assert_allclose(scaled.theta, expected, rtol=1e-12)
    np.testing.assert_allclose(ridge.leverage(rows), 80 * scaled.leverage(rows), rtol=1e-12)


def test_threads_do_not_disturb_each_other():
    """While a block is added without the interpreter's lock, others are turned away; readers share."""
    d, m = 400, 20_000
    rows, y = rows_of(d, m, 0)
    ridge = Ridge(d, 1.0)

    def add_all():
        while True:
            try:
                return ridge.update_rows(rows, y)
            except RuntimeError:  # the row below is being added
                time.sleep(1e-3)

    worker = threading.Thread(target=add_all)
    worker.start()
    done = refused = 0
    while worker.is_alive():
        time.sleep(0.01)
        try:
            ridge.update(rows[0], y[0])
            done += 1
        except RuntimeError as error:
            assert "another thread" in str(error)
            refused += 1
    worker.join()
    assert refused > 0 and ridge.n == m + done
    expected = Ridge(d, 1.0)
    expected.update_rows(rows, y)
    for _ in range(done):
        expected.update(rows[0], y[0])
    np.testing.assert_allclose(ridge.theta, expected.theta, rtol=1e-9, atol=1e-12)
    answers = [None] * 4

    def read(i):
        answers[i] = ridge.leverage(rows)

    readers = [threading.Thread(target=read, args=(i,)) for i in range(4)]
    for reader in readers:
        reader.start()
    for reader in readers:
        reader.join()
    assert all((answer == answers[0]).all() for answer in answers)


@pytest.mark.parametrize("normalized", [False, True])
def test_a_merge_takes_the_other_as_it_was_at_one_moment(normalized):
    """Rows e_1 with target 1, added while the merge factorises: n, the moment and the Gram matrix count the same."""
    d, one = 700, np.eye(700)[0]
    for _ in range(3):
        ridge, other = Ridge(d, 1.0, normalized), Ridge(d, 1.0, normalized)
        other.update(one, 1.0)
        worker = threading.Thread(target=ridge.merge, args=(other,))
        worker.start()
        while worker.is_alive():
            other.update(one, 1.0)
        worker.join()
        assert 1 <= ridge.n <= other.n
        assert ridge.gram[0, 0] == ridge.moment[0] == ridge.n


def test_readers_of_a_stale_normalised_ridge_share():
    """The first to come factorises, the others wait."""
    d, rows, y = 500, *rows_of(500, 20, 0)
    for _ in range(5):
        ridge, errors, answers = fed(d, 1.0, rows, y, True), [], []
        barrier = threading.Barrier(4)

        def read(ridge=ridge, errors=errors, answers=answers, barrier=barrier):
            barrier.wait()
            try:
                answers.append((ridge.leverage(rows), ridge.logdet, ridge.theta))
            except RuntimeError as error:
                errors.append(error)

        readers = [threading.Thread(target=read) for _ in range(4)]
        for reader in readers:
            reader.start()
        for reader in readers:
            reader.join()
        assert not errors
        for leverage, logdet, theta in answers:
            assert (leverage == answers[0][0]).all() and logdet == answers[0][1] and (theta == answers[0][2]).all()


def unseen(d, n, seed):
    """Rows orthogonal to a direction: its leverage is 1 / lambda. To the last bit: integers, all sums exact."""
    rng = np.random.default_rng(seed)
    direction = rng.integers(1, 4, size=d) * rng.choice([-1, 1], size=d)
    direction[0] = 1
    rows = rng.integers(-4, 5, size=(n, d))
    rows[:, 0] -= rows @ direction
    assert (rows @ direction == 0).all()
    return rows.astype(float), direction.astype(float)


@pytest.mark.parametrize("d", [2, 8, 20])
@pytest.mark.parametrize("share", [1e-4, 1e-8, 1e-12, 1e-16])
@pytest.mark.parametrize("way", ["one by one", "block", "blocks", "small blocks", "few", "window"])
def test_directions_never_seen_keep_their_digits(d, share, way):
    """Of lambda / trace(V) = share: the error is of the order of u / sqrt(share) or, from the sums, at most 2^-20."""
    n = 3 * REFACTOR
    rows, direction = unseen(d, n, d)
    regularization = share * (rows * rows).sum()
    ridge, y = Ridge(d, regularization), np.zeros(n)
    if way in ("one by one", "window"):
        for i, row in enumerate(rows):
            ridge.update(row, 0.0)
            if way == "window" and i >= 100:
                ridge.downdate(rows[i - 100], 0.0)
    else:
        size = {"block": n, "blocks": REFACTOR + 7, "small blocks": 50, "few": 1}[way]
        for i in range(0, n, size):
            ridge.update_rows(rows[i : i + size], y[i : i + size])
    expected = direction @ direction / regularization
    rotated = 200 * d * EPS * share**-0.5
    allowed = rotated if share < 1e-11 else max(rotated, 2.0**-20)
    assert ridge.leverage(direction) == pytest.approx(expected, rel=allowed)


@pytest.mark.parametrize("d", [3, 8, 20])
@pytest.mark.parametrize("size", [100 / 3, 1e3 / 3, 1e4 / 3])
def test_a_large_row_that_goes_leaves_directions_never_seen(d, size):
    """The leverage of the row is one but for less than 2^-10, and the sums have no digits of lambda."""
    rows, direction = unseen(d, 200, d)
    regularization = 1e-13 * (rows * rows).sum()
    ridge = fed(d, regularization, rows, np.zeros(200))
    large = size * np.sqrt(200) * rows[0]
    ridge.update(large, 0.0)
    assert 1 - ridge.leverage(large) < 2.0**-10
    ridge.downdate(large, 0.0)
    assert ridge.leverage(direction) == pytest.approx(direction @ direction / regularization, rel=1e-14 * size**3)


def test_the_sums_are_used_where_the_factor_shows_that_they_may():
    """lambda is tiny, but the rows span everything: REFACTOR of them are rotated, the rest comes as a block."""
    rows, y = rows_of(20, 5 * REFACTOR, 0)
    ridge = Ridge(20, 1e-14)
    ridge.update_rows(rows, y)
    assert ridge.__reduce__()[2]["left"] == REFACTOR
    twin = TwinRidge(20, 1e-14)
    twin.update_rows(rows, y)
    np.testing.assert_allclose(ridge.theta, twin.theta, rtol=1e-11)
    np.testing.assert_allclose(ridge.leverage(rows), twin.leverage(rows), rtol=1e-11)
    state = ridge.__reduce__()[2]
    assert state["least"] <= np.linalg.eigvalsh(twin.v)[0]


def test_a_copy_is_of_one_moment():
    d, one, stop = 700, np.eye(700)[0], threading.Event()
    ridge, failures = Ridge(d, 1.0), []

    def look():
        while not stop.is_set():
            try:
                other = pickle.loads(pickle.dumps(ridge))
                gram, moment, n = other.gram[0, 0], other.moment[0], other.n
            except RuntimeError:
                continue
            if not gram == moment == n:
                failures.append((gram, moment, n))

    worker = threading.Thread(target=look)
    worker.start()
    while ridge.n < 1000:
        ridge.update(one, 1.0)
    stop.set()
    worker.join()
    assert not failures


def test_integer_targets_are_numbers():
    for value in (0, 1, -7, True, 2**53, 2**53 + 2, 2**63 - 1):
        ridge = Ridge(1, 1.0)
        ridge.update([1.0], value)
        assert ridge.moment == [float(value)]
    with pytest.raises(TypeError, match=r"^y: expected"):
        Ridge(1, 1.0).update([1.0], 10**400)


def test_a_failed_change_does_not_put_off_the_next_factorisation():
    ridge = fed(3, 1e-3, *rows_of(3, 20, 0))
    left = ridge.__reduce__()[2]["left"]
    with pytest.raises(np.linalg.LinAlgError):
        ridge.downdate([1e3, 0.0, 0.0], 0.0)
    assert ridge.__reduce__()[2]["left"] == left == REFACTOR - 20


def test_rows_may_be_those_of_the_factor():
    # A block of so few rows is rotated in, which changes the factor.
    ridge, other = Ridge(40, 1.0), Ridge(40, 1.0)
    for model in (ridge, other):
        model.update_rows(np.random.default_rng(0).normal(size=(50, 40)), np.ones(50))
    ridge.update_rows(ridge.factor[:4], np.ones(4))
    other.update_rows(other.factor[:4].copy(), np.ones(4))
    assert (ridge.factor == other.factor).all() and (ridge.gram == other.gram).all()


def test_the_estimate_after_a_refactorisation_is_that_of_its_copy():
    rng, ridge = np.random.default_rng(0), Ridge(5, 1e-3)
    for _ in range(500):
        ridge.update(rng.normal(size=5), rng.normal())
    before = ridge.theta
    ridge.refactor()
    assert (ridge.theta == ridge.copy().theta).all() and np.allclose(ridge.theta, before, rtol=1e-9)
