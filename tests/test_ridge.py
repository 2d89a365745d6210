"""`Ridge`: whatever is done to it, U^T U = V and V theta = moment; what it promises of digits, seeds, and refusals."""

from __future__ import annotations

import copy
import pickle
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import scipy.linalg
import scipy.sparse
from hypothesis import strategies as st
from properties import everything, for_all, refuses, seeds

from dmq_fast.kernels import Ridge, RidgeArms, SecondMoment, Stream, ridge_fit

pytestmark = pytest.mark.kernels

EPS = np.finfo(np.float64).eps
REFACTOR = 1024
dimensions = st.one_of(st.integers(1, 20), st.sampled_from([40, 130]))


def rows_of(d, n, seed=0, targets=None, spread=1.0):
    """Rows whose second moment has condition about spread^2, and targets."""
    rng = np.random.default_rng(seed)
    basis = np.linalg.qr(rng.normal(size=(d, d)))[0]
    rows = rng.normal(size=(n, d)) * np.geomspace(1.0, 1.0 / spread, d) @ basis.T / np.sqrt(d)
    return rows, rng.normal(size=n if targets is None else (n, targets))


def fed(d, regularization, rows, y, **how):
    ridge = Ridge(d, regularization, **how)
    for phi, target in zip(rows, y.tolist(), strict=True):
        ridge.update(phi, target)
    return ridge


def unseen(d, n, seed):
    """Rows orthogonal to a direction: its leverage is 1 / lambda. To the last bit: integers, all sums exact."""
    rng = np.random.default_rng(seed)
    direction = rng.integers(1, 4, size=d) * rng.choice([-1, 1], size=d)
    direction[0] = 1
    rows = rng.integers(-4, 5, size=(n, d))
    rows[:, 0] -= rows @ direction
    assert (rows @ direction == 0).all()
    return rows.astype(float), direction.astype(float)


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


class Sums:
    """The sums that a `Ridge` stands for, and the largest V and sizes of terms so far, to which errors are relative."""

    def __init__(self, d, regularization, targets=None):
        self.gram, self.moment = np.zeros((d, d)), np.zeros(d if targets is None else (d, targets))
        self.regularization, self.n, self.largest, self.reach = regularization, 0, 0.0, 0.0
        self.add(np.zeros((0, d)), np.zeros(0 if targets is None else (0, targets)))

    def add(self, rows, y, weights=1.0, sign=1):
        weighted = np.broadcast_to(weights, len(rows))[:, None] * rows
        # The error of a sum is relative to the sum of the sizes of its terms.
        self.reach = max(self.reach, (abs(self.moment) + abs(weighted).T @ abs(y)).max())
        self.gram, self.moment = self.gram + sign * weighted.T @ rows, self.moment + sign * weighted.T @ y
        self.n += sign * len(rows)
        self.largest = max(self.largest, np.trace(self.v))

    @property
    def v(self):
        return self.gram + self.regularization * np.eye(len(self.gram))

    def certify(self, ridge, tolerance=1e-13):
        d, v, factor, theta = len(self.gram), self.v, ridge.factor, ridge.theta
        allowed = tolerance * d * self.largest
        assert ridge.n == self.n and ridge.regularization == pytest.approx(self.regularization, rel=1e-12)
        assert np.linalg.norm(factor.T @ factor - v) <= allowed and (np.tril(factor, -1) == 0).all()
        # The bounds that decide whether the Gram matrix may be used.
        state = ridge.__reduce__()[2]
        assert state["trace"] >= np.trace(v) * (1 - 1e-12) and state["least"] <= np.linalg.eigvalsh(v)[0] + allowed
        norm = np.linalg.norm(theta)
        assert np.linalg.norm(v @ theta - self.moment) <= allowed * norm + tolerance * d * self.reach
        np.testing.assert_allclose(ridge.gram, self.gram, rtol=0, atol=allowed)
        assert (ridge.gram == ridge.gram.T).all()
        np.testing.assert_allclose(ridge.moment, self.moment, rtol=0, atol=tolerance * d * self.reach)


COPIES = [Ridge.copy, copy.copy, copy.deepcopy, lambda ridge: pickle.loads(pickle.dumps(ridge))]


def change(ridge, sums, what, rng, removable):
    """Do one thing to both, and return the `Ridge` that goes on."""
    d, t = ridge.dimension, ridge.targets
    m = int(rng.integers(0, 150))
    rows, y = rng.normal(size=(m, d)) / np.sqrt(d), rng.normal(size=m if t is None else (m, t))
    phi, target = rng.normal(size=d) / np.sqrt(d), rng.normal(size=() if t is None else t)
    one = target if t is not None else float(target)
    share, factor = float(rng.choice([0.0, 1.0, rng.random() * 3])), float(rng.uniform(0.5, 1.0))
    sparse = scipy.sparse.csr_array(rows * (rng.random(rows.shape) < 0.3))
    if what == "update":
        ridge.update(phi, one, share)
        sums.add(phi[None], target[None], share)
    elif what == "update_sparse":
        columns = rng.integers(0, d, size=min(d, 3)).astype(rng.choice([np.int64, np.int32, np.uint8]))
        values, dense = rng.normal(size=len(columns)), np.zeros(d)
        np.add.at(dense, columns, values)
        ridge.update_sparse(columns, values, one, share)
        sums.add(dense[None], target[None], share)
    elif what == "update_rows":
        weights = rng.random(m) if share else None
        ridge.update_rows(rows, y, weights)
        sums.add(rows, y, 1.0 if weights is None else weights)
    elif what == "few":
        ridge.update_rows(rows[:2], y[:2])
        sums.add(rows[:2], y[:2])
    elif what == "sparse rows":
        weights = rng.random(m) if share else None
        ridge.update_rows(rng.choice([sparse.tocsr, sparse.tocoo, sparse.tocsc])(), y, weights)
        sums.add(sparse.toarray(), y, 1.0 if weights is None else weights)
    elif what == "downdate":
        if removable:
            phi, target = removable.pop()
            ridge.downdate(phi, target)
            sums.add(phi[None], np.asarray(target)[None], sign=-1)
        else:
            ridge.update(phi, one)
            sums.add(phi[None], target[None])
            removable.append((phi, one))
        return ridge
    elif what == "discount":
        ridge.discount(factor)
        sums.gram, sums.moment = factor * sums.gram, factor * sums.moment
    elif what == "discount all":
        ridge.discount(factor, with_regularization=True)
        sums.gram, sums.moment = factor * sums.gram, factor * sums.moment
        sums.regularization *= factor
    elif what == "regularize":
        sums.regularization = float(rng.uniform(0.1, 2.0))
        ridge.regularize(sums.regularization)
    elif what == "refactor":
        ridge.refactor()
        assert (ridge.theta == ridge.copy().theta).all()
    elif what == "copy":
        ridge = COPIES[rng.integers(len(COPIES))](ridge)
    elif what == "merge":
        other = Ridge(d, ridge.regularization, t)
        other.update_rows(rows, y)
        before = everything(other)
        ridge.merge(other)
        assert everything(other) == before
        sums.add(rows, y)
    elif what == "merge itself":
        ridge.merge(ridge)
        sums.gram, sums.moment, sums.n = 2 * sums.gram, 2 * sums.moment, 2 * sums.n
    elif what == "from moments":
        ridge = Ridge.from_moments(np.triu(ridge.gram), ridge.moment, ridge.n, ridge.regularization)
        assert ridge.targets == t
    removable.clear()
    sums.add(np.zeros((0, d)), y[:0])
    return ridge


CHANGES = [
    *("update", "update_sparse", "update_rows", "few", "sparse rows", "downdate", "downdate", "discount"),
    *("discount all", "regularize", "refactor", "copy", "merge", "merge itself", "from moments"),
]


def check_answers(ridge, sums, seed):
    """Every query against V, theta and the factor."""
    d, t, rng = ridge.dimension, ridge.targets, np.random.default_rng(seed)
    points, v, theta, factor = rng.normal(size=(40, d)), sums.v, ridge.theta, ridge.factor
    rtol = 1e-13 * d * sums.largest / np.linalg.eigvalsh(v)[0]
    expected = np.einsum("ij,ji->i", points, np.linalg.solve(v, points.T))
    np.testing.assert_allclose(ridge.leverage(points), expected, rtol=10 * rtol)
    predicted, size = ridge.predict(points), abs(points) @ abs(theta) + 1e-300
    assert theta.shape == ((d,) if t is None else (d, t)) and predicted.shape == ((40,) if t is None else (40, t))
    assert (abs(predicted - points @ theta) <= 4 * d * EPS * size).all()
    for i, point in enumerate(points[:9]):
        one = ridge.leverage(point)
        assert type(one) is float and one == ridge.leverage(points[i : i + 5])[0]
        one = ridge.predict(point)
        assert (one == predicted[i]).all() and (type(one) is float if t is None else one.shape == (t,))
    sparse = scipy.sparse.csr_array(points * (points > 0))
    assert (abs(ridge.predict(sparse) - ridge.predict(sparse.toarray())) <= 4 * d * EPS * size).all()
    assert (ridge.leverage(sparse) == ridge.leverage(sparse.toarray())).all()
    sign, logdet = np.linalg.slogdet(v)
    assert sign == 1 and ridge.logdet == pytest.approx(logdet, rel=1e-12, abs=d * rtol + 1e-12)
    for shape in ((d,), (d, 1), (d, 2), (d, 33), (d, 0)):
        b = rng.normal(size=shape)
        x = ridge.solve(b)
        assert x.shape == shape and x is not b
        residual = np.linalg.norm(v @ x - b)
        assert residual <= 1e-13 * d * sums.largest * np.linalg.norm(x) + 8 * d * (d + 2) * EPS * np.linalg.norm(b)
    # U (sample - theta) = scale z: a residual, with the bound of a back substitution.
    for scale in (0.0, 0.3, 7.0):
        z = np.random.default_rng(seed).standard_normal(theta.shape)
        sample = ridge.sample(np.random.default_rng(seed), scale)
        allowed = 4 * (d + 2) * EPS * (abs(factor) @ (abs(sample) + abs(theta)) + scale * abs(z))
        assert sample.shape == theta.shape and (abs(factor @ (sample - theta) - scale * z) <= allowed).all()
    for m in (0, 1, 2, 40):
        one, many = np.random.default_rng(seed), np.random.default_rng(seed)
        expected = np.array([ridge.sample(one, 0.5) for _ in range(m)]).reshape(m, *theta.shape)
        atol = 10 * rtol * (1 + abs(theta).max() + abs(expected).max(initial=0))
        np.testing.assert_allclose(ridge.sample_many(many, m, 0.5), expected, rtol=0, atol=atol)
        assert one.random() == many.random()
    stream = Stream(seed, call=5)
    np.testing.assert_allclose(ridge.sample_many(stream, 7)[0], ridge.sample(stream), rtol=0, atol=atol)


@for_all(
    slow=1000,
    d=dimensions,
    targets=st.sampled_from([None, None, 1, 2, 5, 40]),
    changes=st.lists(st.sampled_from(CHANGES), max_size=25),
    seed=seeds,
)
def test_any_sequence_of_changes_ends_at_the_sums_it_names(d, targets, changes, seed):
    rng, removable = np.random.default_rng(seed), []
    ridge, sums = Ridge(d, 0.5, targets), Sums(d, 0.5, targets)
    kept = ridge.factor
    for i, what in enumerate(changes):
        ridge, before = change(ridge, sums, what, rng, removable), ridge
        kept = kept if ridge is before else ridge.factor
        if i % 5 == 0:
            sums.certify(ridge)
    sums.certify(ridge)
    # `factor` is a view that follows every change.
    assert (kept == ridge.factor).all()
    if d <= 40:
        check_answers(ridge, sums, seed)


@for_all(
    d=st.integers(1, 40),
    n=st.integers(0, 200),
    exponent=st.integers(-140, 150),
    regularization=st.integers(-16, 3),
    spread=st.integers(0, 8),
    seed=seeds,
)
def test_factor_and_estimate_have_certificates(d, n, exponent, regularization, spread, seed):
    """Scales from 1e-140 to 1e150 and conditions up to 1e16: backward errors do not depend on them."""
    rows, y = rows_of(d, n, seed, spread=10.0**spread)
    scale, u, norm = 10.0**exponent, EPS / 2, np.linalg.norm
    ridge = fed(d, 10.0**regularization * scale * scale, scale * rows, y)
    v, moment, theta = rows.T @ rows + 10.0**regularization * np.eye(d), rows.T @ y, ridge.theta * scale
    size = np.trace(v)
    # Rotations, and the sums: ours, and those of v.
    allowed = (20 * (n + 1) * d + 2 * (n + d)) * u
    factor = ridge.factor / scale
    assert (np.diagonal(factor) > 0).all()
    assert norm(factor.T @ factor - v) <= allowed * size
    reach = (abs(y) * norm(rows, axis=1)).sum()
    assert norm(v @ theta - moment) <= (allowed + 8 * d * (d + 2) * u) * size * norm(theta) + (n + 2) * u * reach
    gram = rows.T @ rows
    np.testing.assert_allclose(ridge.gram / scale / scale, gram, rtol=0, atol=4 * (n + 2) * EPS * np.trace(gram))


@for_all(quick=25, slow=500, d=st.one_of(st.integers(1, 20), st.sampled_from([40, 130])), seed=seeds)
def test_rotations_and_leverages_are_those_of_the_twin_bit_for_bit(d, seed):
    """So no product is contracted and nothing is reordered, whatever vectors this machine has."""
    rows, points = rows_of(d, 9, seed)[0], rows_of(d, 40, seed + 1)[0]
    rows[3], rows[4, ::2], rows[5] = 0.0, 0.0, np.eye(d)[-1]
    ridge, one = Ridge(d, 0.1), Ridge(d, 0.1, targets=1)
    factor = np.sqrt(0.1) * np.eye(d)
    for phi in rows:
        ridge.update(phi, 1.0)
        one.update(phi, [1.0])
        factor = rotate_in(factor, phi)
        assert (ridge.factor == factor).all()
    assert (one.theta[:, 0] == ridge.theta).all()
    expected = [leverage(factor, point) for point in points]
    assert [ridge.leverage(point) for point in points] == expected
    assert (ridge.leverage(points[:5]) == expected[:5]).all()


def bound_of_roots(ridge, points, u):
    """What the roots of leverages may be off by: see `Ridge.leverage`."""
    below = abs(np.triu(ridge.factor, 1))
    solved = scipy.linalg.solve_triangular(np.diag(np.diagonal(ridge.factor)) - below, abs(points).T, trans="T")
    return 2 * (ridge.dimension + 3) * u * np.linalg.norm(solved, axis=0) + 2 * u


@for_all(
    quick=40,
    slow=500,
    d=st.one_of(st.integers(1, 33), st.sampled_from([64, 130])),
    m=st.integers(0, 70),
    spread=st.integers(0, 3),
    seed=seeds,
)
def test_many_rows_are_scored_within_the_bound(d, m, spread, seed):
    """Against a triangular solve by SciPy, in double and in single precision; whatever rows are beside a row."""
    rows, points = rows_of(d, 2 * d, seed, spread=10.0**spread)[0], rows_of(d, m, seed + 1)[0]
    ridge = Ridge(d, 0.1)
    ridge.update_rows(rows, np.ones(2 * d))
    single = points.astype(np.float32)
    for given_rows, u in ((points, EPS / 2), (single, 2.0**-24)):
        found = ridge.leverage(given_rows)
        assert found.dtype == given_rows.dtype and found.shape == (m,)
        exact = np.linalg.norm(
            scipy.linalg.solve_triangular(ridge.factor, given_rows.T.astype(float), trans="T"), axis=0
        )
        assert (abs(np.sqrt(found.astype(float)) - exact) <= bound_of_roots(ridge, given_rows.astype(float), u)).all()
        predicted, size = ridge.predict(given_rows), abs(given_rows).astype(float) @ abs(ridge.theta)
        assert predicted.dtype == given_rows.dtype
        assert (abs(predicted - given_rows.astype(float) @ ridge.theta) <= 2 * (d + 3) * u * size).all()
        upper = ridge.upper(given_rows, 0.5)
        width = predicted.dtype.type(0.5)
        np.testing.assert_allclose(upper, predicted + width * np.sqrt(found), rtol=4 * u, atol=4 * u)
        if m:
            assert ridge.select(given_rows, 0.5) == upper.argmax()
        if m >= 12:
            order = np.random.default_rng(seed).permutation(m)
            assert (ridge.leverage(given_rows[order]) == found[order]).all()
            assert (ridge.upper(given_rows[order[:7]], 0.5) == upper[order[:7]]).all()
        if m > 1:
            doubled = np.repeat(given_rows, 2, axis=0)[::2]
            assert not doubled.flags.c_contiguous and (ridge.leverage(doubled) == found).all()
    assert (ridge.predict(points) == [ridge.predict(point) for point in points]).all()
    for point in points[:3]:
        assert ridge.upper(point, 2.0) == ridge.predict(point) + 2.0 * np.sqrt(ridge.leverage(point))


def test_bounds_of_rows_are_refused_where_there_are_none():
    ridge, single = Ridge(2, 1e-60), np.ones((8, 2), np.float32)
    refuses(
        [
            (
                ValueError,
                "^Phi: expected one target; of several take",
                Ridge(2, 1.0, targets=2).select,
                [[1.0, 2.0]],
                1.0,
            ),
            (ValueError, "^alpha: a bound is out", Ridge(2, 1.0, targets=2).upper, [[1e10, 2.0]], 1.7e308),
            (
                ValueError,
                r"^Phi: expected shape \(m, 2\) with m >= 1, got \(0, 2\)",
                ridge.select,
                np.ones((0, 2)),
                1.0,
            ),
            (ValueError, r"^Phi: expected shape \(m, 2\) with m >= 1, got \(2,\)", ridge.select, [1.0, 2.0], 1.0),
            (ValueError, "^Phi: a result is out of the range of float32; pass", ridge.leverage, single),
            (ValueError, "^Phi: a result is out of the range of float32; pass", ridge.leverage, single[:2]),
            (ValueError, "^Phi: a result is out of the range of float32; pass", ridge.upper, single, 1.0),
            (
                ValueError,
                "^Phi: expected finite numbers, got nan at index",
                ridge.upper,
                single * np.float32("nan"),
                1.0,
            ),
            (ValueError, "^Phi: expected finite numbers, got nan at index", ridge.leverage, np.full((9, 2), np.nan)),
            (ValueError, "^Phi: expected finite numbers, got inf at index", ridge.predict, np.full((9, 2), np.inf)),
            (ValueError, "^alpha: a bound is out of the range of float64", ridge.upper, np.ones((8, 2)), 1e300),
            (ValueError, "^alpha: a bound is out of the range of float64", ridge.upper, [1.0, 1.0], 1e300),
            (ValueError, "^alpha: a bound is out of the range of float32", Ridge(2, 1.0).upper, single, 1e39),
            (ValueError, "^alpha: expected a non-negative", ridge.upper, single, -1.0),
        ],
        lambda: everything(ridge),
    )
    assert np.isfinite(ridge.leverage(single.astype(float))).all()


def test_leverages_of_many_rows_come_in_pieces():
    rows = np.random.default_rng(0).normal(size=(5000, 3))
    ridge, sparse = Ridge(3, 1.0), scipy.sparse.csr_array(rows)
    ridge.update_rows(sparse, np.ones(5000))
    assert (ridge.leverage(sparse) == ridge.leverage(rows)).all()
    assert (ridge.leverage(rows)[4000:] == ridge.leverage(rows[4000:])).all()


@pytest.mark.parametrize("m", [2**16, 2**16 + 1, 2**17 + 3])
def test_blocks_of_any_length_are_summed_in_pieces(m):
    """BLAS counts rows in 32 bits, so it gets 2^16 at a time; integers are summed without rounding in any order."""
    rng = np.random.default_rng(m)
    rows, y = rng.integers(-8, 9, size=(m, 3)).astype(float), rng.integers(-8, 9, size=m).astype(float)
    ridge = Ridge(3, 1.0)
    ridge.update_rows(rows, y)
    assert ridge.n == m
    assert (ridge.gram == rows.T @ rows).all() and (ridge.moment == rows.T @ y).all()


@for_all(d=st.integers(1, 40), kept=st.integers(0, 60), removed=st.integers(1, 20), seed=seeds)
def test_downdates_undo_updates(d, kept, removed, seed):
    """Errors are relative to the largest V; a downdate amplifies them by 2^5 at most."""
    rows, y = rows_of(d, kept + removed, seed)
    ridge = fed(d, 1e-3, rows, y)
    for i in np.random.default_rng(seed).permutation(np.arange(kept, kept + removed)):
        ridge.downdate(rows[i], y[i])
    v, moment = rows[:kept].T @ rows[:kept] + 1e-3 * np.eye(d), rows[:kept].T @ y[:kept]
    allowed = 32 * 20 * (kept + 2 * removed + 1) * d * EPS * ((rows * rows).sum() + d * 1e-3)
    assert ridge.n == kept and np.linalg.norm(ridge.factor.T @ ridge.factor - v) <= allowed
    np.testing.assert_allclose(ridge.moment, moment, rtol=0, atol=1e-13 * (1 + abs(y).sum()))
    if not kept:
        assert everything(ridge) == everything(Ridge(d, 1e-3)) and (ridge.theta == 0).all()
    if allowed < 1e-4:
        expected = np.linalg.solve(v, moment)
        error = 4 * allowed / 1e-3 * (np.linalg.norm(expected) + abs(y).sum())
        assert np.linalg.norm(ridge.theta - expected) <= error


@pytest.mark.parametrize("d", [1, 2, 9, 130])
def test_a_downdate_that_loses_definiteness_changes_nothing(d):
    rows, y = rows_of(d, 3, d)
    ridge = fed(d, 1e-3, rows, y)
    before, theta, gram = everything(ridge), ridge.theta, ridge.gram  # among them what is left until U is made afresh
    for factor in (3.0, 1e3, 1e100):
        with pytest.raises(np.linalg.LinAlgError, match=r"^phi: .* not be positive definite .* regularization 0\.001"):
            ridge.downdate(factor * (abs(rows).sum(axis=0) + 1), 0.0)
    after = everything(ridge)
    # Rows that waited may have been added to the sums: the state is another way to write the same.
    for name in before.keys() - {"lower", "rows"}:
        assert before[name] == after[name], name
    assert (ridge.theta == theta).all() and (ridge.gram == gram).all()


def test_a_row_that_was_all_leaves_the_regularization():
    """Leverage one but for rounding: only the sums have what is left."""
    ridge = Ridge(1, 1e-3)
    ridge.update([1e10], 1.0)
    ridge.downdate([1e10], 1.0)
    assert ridge.leverage([1.0]) == pytest.approx(1e3) and ridge.theta == [0.0] and ridge.n == 0
    assert everything(ridge.copy()) == everything(ridge)


def test_rows_that_have_gone_make_room():
    """Rows whose products fill much of the range of float64 come and go, and fit each time."""
    ridge = Ridge(2, 1.0)
    for _ in range(10):
        ridge.update([1e150, 0.0], 7e157)
        ridge.downdate([1e150, 0.0], 7e157)
        assert (ridge.theta == 0).all() and (ridge.moment == 0).all() and (ridge.gram == 0).all()


def test_sums_stop_before_they_overflow():
    ridge = Ridge(1, 1.0)
    with pytest.raises(ValueError, match=r"^phi, y: a sum of products is out of the range"):
        for _ in range(1000):
            ridge.update([1e153], 1e153)
    assert 1 < ridge.n < 1000 and np.isfinite(ridge.gram).all() and np.isfinite(ridge.moment).all()
    assert ridge.theta == pytest.approx(1.0)
    for call in (Ridge.update, Ridge.downdate):
        ridge = Ridge(1, 1.0)
        ridge.update_rows(np.ones((100, 1)), np.zeros(100))
        with pytest.raises(ValueError, match=r"^phi, y: a sum of products is out of the range"):
            for _ in range(99):
                call(ridge, [0.5], 1e307)
        assert 0 < ridge.n < 199 and np.isfinite(ridge.moment).all()


# Digits


@for_all(
    slow=300,
    d=st.integers(2, 20),
    share=st.sampled_from([1e-4, 1e-8, 1e-12, 1e-16]),
    way=st.sampled_from(["one by one", "window", REFACTOR * 3, REFACTOR + 7, 50, 1, "sparse"]),
)
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
    elif way == "sparse":
        ridge.update_rows(scipy.sparse.csr_array(rows), y)
    else:
        for i in range(0, n, way):
            ridge.update_rows(rows[i : i + way], y[i : i + way])
    rotated = 200 * d * EPS * share**-0.5
    allowed = rotated if share < 1e-11 else max(rotated, 2.0**-20)
    assert ridge.leverage(direction) == pytest.approx(direction @ direction / regularization, rel=allowed)


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


@pytest.mark.parametrize("share", [1e-8, 1e-13, 1e-16])
def test_forgetting_keeps_lambda_where_the_sums_have_no_digits_of_it(share):
    rows, direction = unseen(6, 200, 0)
    regularization = share * (rows * rows).sum()
    ridge = fed(6, regularization, rows, np.zeros(200))
    for _ in range(20):
        ridge.discount(0.8)
    allowed = max(2000 * EPS * share**-0.5, 0.0 if share < 1e-11 else 2.0**-20)
    assert ridge.leverage(direction) == pytest.approx(direction @ direction / regularization, rel=allowed)
    # A lambda that rises is rotated in.
    ridge.regularize(10 * regularization)
    assert ridge.leverage(direction) == pytest.approx(direction @ direction / regularization / 10, rel=allowed)


def test_forgetting_for_long_does_not_drift():
    """After 5,000 discounts, what is left is the last rows with their powers; every 1024 changes U is made afresh."""
    rows, y = rows_of(6, 5000)
    ridge, sums, whole = Ridge(6, 0.1), Sums(6, 0.1), Ridge(3, 1.0)
    for phi, target in zip(rows, y.tolist(), strict=True):
        ridge.discount(0.97)
        ridge.update(phi, target)
    sums.add(rows, y, 0.97 ** np.arange(4999, -1, -1.0))
    sums.certify(ridge)
    whole.update_rows(*rows_of(3, 50))
    for _ in range(3000):
        whole.discount(0.999, with_regularization=True)
    v = whole.gram + whole.regularization * np.eye(3)
    assert np.linalg.norm(whole.factor.T @ whole.factor - v) <= 1024 * EPS * np.trace(v)
    assert whole.__reduce__()[2]["left"] > 0


@pytest.mark.parametrize("share", [0.99, 1e-3, 1e-200])
def test_forgetting_with_lambda_never_leaves_float64(share):
    """One direction repeats: V tends to 1 / (1 - share) there; lambda stops falling, and leverages are finite."""
    ridge, steps = Ridge(3, 1.0), int(min(100_000, 900_000 / -np.log2(share)))
    for _ in range(steps):
        ridge.discount(share, with_regularization=True)
        ridge.update([1.0, 0.0, 0.0], 2.0)
    # The mean diagonal of V is that before the row of a step.
    assert max(2.0**-502 * share / (1 - share) / 3, 2.0**-1001) < ridge.regularization < 2.0**-390
    assert ridge.leverage([1.0, 0.0, 0.0]) == pytest.approx(1 - share, rel=1e-9)
    assert ridge.theta == pytest.approx([2.0, 0.0, 0.0], rel=1e-9)
    assert ridge.leverage([0.0, 1.0, 0.0]) == pytest.approx(1 / ridge.regularization, rel=1e-6)
    for _ in range(10):  # nothing new at all
        ridge.discount(1e-300, with_regularization=True)
    assert 2.0**-1001 < ridge.regularization and np.isfinite(ridge.leverage(np.ones(3)))


def test_several_targets_share_leverages():
    rows, y = rows_of(5, 30, 0, targets=4)
    arms = fed(5, 0.5, rows, y, targets=4)
    upper = arms.upper(rows[:9], 0.7)
    assert (upper == arms.predict(rows[:9]) + 0.7 * np.sqrt(arms.leverage(rows[:9]))[:, None]).all()
    assert (arms.upper(rows[0], 0.7) == arms.predict(rows[0]) + 0.7 * np.sqrt(arms.leverage(rows[0]))).all()


@for_all(
    quick=30,
    slow=500,
    d=st.one_of(st.integers(1, 20), st.just(70)),
    targets=st.one_of(st.integers(1, 20), st.sampled_from([32, 37, 100])),
    m=st.one_of(st.integers(0, 20), st.just(300)),
    seed=seeds,
)
def test_many_targets_of_many_rows(d, targets, m, seed):
    """A row has the same bits alone and beside others; the error is that of a sum of d products."""
    ridge = fed(d, 0.5, *rows_of(d, 30, seed, targets=targets), targets=targets)
    points, theta = rows_of(d, m, seed + 1)[0], ridge.theta
    predicted, upper = ridge.predict(points), ridge.upper(points, 0.7)
    assert predicted.shape == upper.shape == (m, targets)
    assert (abs(predicted - points @ theta) <= 2 * (d + 2) * EPS * (abs(points) @ abs(theta)) + 1e-300).all()
    assert (upper == predicted + 0.7 * np.sqrt(ridge.leverage(points))[:, None]).all()
    for i in range(min(m, 7)):
        assert (ridge.predict(points[i]) == predicted[i]).all() and (ridge.predict(points[i:]) == predicted[i:]).all()
    sparse = scipy.sparse.csr_array(np.where(points > 0, points, 0.0))
    np.testing.assert_allclose(ridge.upper(sparse, 0.7), ridge.upper(sparse.toarray(), 0.7), rtol=1e-10, atol=1e-10)
    if m:
        points[-1, -1] = np.nan
        for call in (ridge.predict, lambda rows: ridge.upper(rows, 0.7)):
            with pytest.raises(ValueError, match=r"^Phi: expected finite numbers, got nan"):
                call(points)
        points[-1] = 1e308
        with pytest.raises(ValueError, match=r"^Phi: a (prediction|leverage) is out of the range"):
            ridge.upper(points, 1.0)
        with pytest.raises(ValueError, match=r"^alpha: a bound is out of the range of float64"):
            ridge.upper(1e3 * np.ones((m, d)), 1.5e308)


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
    ridge = fed(d, 1.0, np.tile(phi, (100, 1)), np.ones(100))
    before, theta = everything(ridge)["factor"], ridge.theta
    with pytest.raises(np.linalg.LinAlgError, match=r"^regularization: .* regularization 1e-20"):
        ridge.regularize(1e-20)
    assert ridge.regularization == 1.0 and (ridge.theta == theta).all() and everything(ridge)["factor"] == before


@pytest.mark.parametrize("n", [100_000, pytest.param(1_000_000, marks=pytest.mark.slow)])
def test_many_updates_do_not_drift(n):
    """Rows of norm <= 1 through the rank-one path, against one factorisation of all of them."""
    d, parts = 32, 10
    ridge, v = Ridge(d, 1.0), np.eye(d)
    moment = np.zeros(d)
    rng = np.random.default_rng(0)
    for _ in range(parts):
        rows = rng.normal(size=(n // parts, d))
        rows /= np.maximum(np.linalg.norm(rows, axis=1), rng.random(n // parts) * np.sqrt(2 * d))[:, None]
        y = rng.random(n // parts)
        for phi, target in zip(rows, y.tolist(), strict=True):
            ridge.update(phi, target)
        v += rows.T @ rows
        moment += rows.T @ y
    fresh = scipy.linalg.cholesky(v)
    assert ridge.n == n and np.linalg.norm(ridge.factor - fresh) < 1e-9 * np.linalg.norm(fresh)
    theta = scipy.linalg.cho_solve((fresh, False), moment)
    assert np.linalg.norm(ridge.theta - theta) < 1e-9 * np.linalg.norm(theta)
    assert ridge.logdet == pytest.approx(2 * np.log(np.diagonal(fresh)).sum(), rel=1e-12)


@pytest.mark.slow
def test_ten_million_updates_stay_within_the_bounds_of_the_docstrings():
    """Rows of integers, so that V is exact; the bounds are 20 (k + 1) d u trace(V), k of `Ridge` < 1,024."""
    d, n, u = 16, 10_000_000, 2.0**-53
    ridge, arms, rng = Ridge(d, 1.0), RidgeArms(1, d, 1.0), np.random.default_rng(0)
    v, moment = np.eye(d), np.zeros(d)
    for _ in range(100):
        rows = rng.integers(-3, 4, size=(n // 100, d)).astype(np.float64)
        y = rng.integers(-3, 4, size=n // 100).astype(np.float64)
        for phi, target in zip(rows, y.tolist(), strict=True):
            ridge.update(phi, target)
        arms.update_rows(0, rows, y)
        v += rows.T @ rows
        moment += rows.T @ y
    assert ridge.n == arms.n[0] == n and (ridge.gram + np.eye(d) == v).all() and (ridge.moment == moment).all()
    trace, probes = np.trace(v), rng.normal(size=(50, d))
    exact, theta = np.einsum("ij,ji->i", probes, np.linalg.solve(v, probes.T)), np.linalg.solve(v, moment)
    # What an error of V by `bound` does to leverages and theta, to first order.
    condition = np.linalg.cond(v) * d
    for model, factor, k in ((ridge, ridge.factor, 1023), (arms, arms.factor[0], n)):
        bound = 20 * (k + 1) * d * u
        assert np.linalg.norm(factor.T @ factor - v) <= bound * trace
        assert (abs(model.leverage(probes).ravel() - exact) <= 2 * bound * condition * exact).all()
        found = model.theta.ravel()
        assert np.linalg.norm(found - theta) <= 2 * bound * condition * np.linalg.norm(theta)
    # In practice it is far less: errors grow like the root of k.
    assert np.linalg.norm(ridge.factor.T @ ridge.factor - v) < 1e-13 * trace
    assert np.linalg.norm(arms.factor[0].T @ arms.factor[0] - v) < 1e-11 * trace


def test_a_ridge_of_means_is_the_estimate_of_the_paper():
    rows, y = rows_of(6, 80, 0)
    expected = ridge_fit(rows.T @ rows, rows.T @ y, 80, 0.01)
    np.testing.assert_allclose(fed(6, 0.01 * 80, rows, y).theta, expected, rtol=1e-12)
    second = SecondMoment(6)
    second.add_rows(rows)
    given = Ridge.from_moments(second.matrix, rows.T @ y, second.n, 0.01 * 80)
    np.testing.assert_allclose(given.theta, expected, rtol=1e-12)


def test_draws_have_the_mean_and_covariance_of_the_posterior():
    """Of 40,000 draws, in units of the posterior: the mean is off by about 1 / 200, the covariance by 1.4 / 200."""
    ridge = fed(4, 0.5, *rows_of(4, 10))
    for rng in (np.random.default_rng(0), Stream(0)):
        draws = ridge.sample_many(rng, 40_000, 2.0)
        white = (draws - ridge.theta) @ ridge.factor.T / 2.0
        assert abs(white.mean(axis=0)).max() < 0.03
        assert abs(white.T @ white / len(white) - np.eye(4)).max() < 0.05
    stream, rng = Stream(0), np.random.default_rng(0)
    assert (ridge.sample(stream) == ridge.sample(stream)).all()
    assert not (ridge.sample(stream) == ridge.sample(stream.at(1))).any()
    assert not (ridge.sample(rng) == ridge.sample(rng)).any()


# What belongs to whom


def test_the_factor_is_a_view_that_cannot_be_written_and_outlives_its_object():
    ridge = fed(3, 0.5, *rows_of(3, 10))
    factor = ridge.factor
    with pytest.raises(ValueError, match="read-only"):
        factor[0, 0] = 1.0
    with pytest.raises(ValueError, match="WRITEABLE"):
        factor.setflags(write=True)
    expected = factor.copy()
    del ridge
    assert (factor == expected).all()


def test_rows_may_be_those_of_the_factor():
    """A block of so few rows is rotated in, which changes the factor."""
    ridge, other = Ridge(40, 1.0), Ridge(40, 1.0)
    for model in (ridge, other):
        model.update_rows(np.random.default_rng(0).normal(size=(50, 40)), np.ones(50))
    ridge.update_rows(ridge.factor[:4], np.ones(4))
    other.update_rows(other.factor[:4].copy(), np.ones(4))
    assert (ridge.factor == other.factor).all() and (ridge.gram == other.gram).all()


def test_readers_share():
    ridge, rows = Ridge(200, 1.0), rows_of(200, 5000, 0)[0]
    ridge.update_rows(rows, np.ones(5000))

    def read(_):
        return ridge.leverage(rows), ridge.theta, ridge.sample_many(Stream(0), 30), ridge.predict(rows)

    with ThreadPoolExecutor(4) as pool:
        answers = list(pool.map(read, range(4)))
    for answer in answers:
        assert all((mine == first).all() for mine, first in zip(answer, answers[0], strict=True))


def test_threads_that_change_one_object_do_not_write_beyond_it():
    """What comes out is undefined. Under the sanitizers, a write beyond the buffer of 64 rows would end the process."""
    ridge, rows = Ridge(100, 1.0), rows_of(100, 300, 0)[0]

    def work(_):
        for i in range(300):
            ridge.update(rows[i], 1.0)
            if i % 30 == 0:
                block = rows[: 40 + i]
                ridge.update_rows(block, np.ones(len(block)))

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(work, range(4)))


# Refusals


@pytest.mark.parametrize("d", [2, 130])
def test_what_is_refused_changes_nothing(d):
    ridge = fed(d, 0.5, *rows_of(d, 10, 0))
    phi, block, y = np.ones(d), np.ones((3, d)), np.ones(3)
    table = []
    for bad in (np.nan, np.inf, -np.inf):
        row = np.append(phi[1:], bad)
        table += [
            (ValueError, "^y: expected finite", ridge.update, 0 * phi, bad),
            (ValueError, "^y: expected finite", ridge.update, phi, bad, 0.0),
            (ValueError, "^phi: expected finite", ridge.update, row, 1.0, 0.0),
            (ValueError, "^Phi: expected finite", ridge.update_rows, [row], [1.0], [0.0]),
            (ValueError, "^y: expected finite", ridge.update_rows, [phi], [bad], [0.0]),
            (ValueError, "^y: expected finite", ridge.update_rows, [0 * phi], [bad]),
            (ValueError, "^y: expected finite", ridge.update_rows, scipy.sparse.csr_array((1, d)), [bad]),
            *(
                (ValueError, "^Phi: expected finite", call, scipy.sparse.csr_array([row]))
                for call in (ridge.predict, ridge.leverage, lambda rows: ridge.update_rows(rows, [1.0]))
            ),
        ]
    wide, narrow = scipy.sparse.csr_array(np.ones((1, d + 1))), scipy.sparse.csr_array(1e155 * np.ones((1, d)))
    out = "out of the range"
    refuses(
        [
            *table,
            (TypeError, "^y: expected", ridge.update, phi, 10**400),
            (ValueError, "^weight: expected a non-negative", ridge.update, phi, 1.0, -1.0),
            (ValueError, "^weights: expected non-negative numbers, got -1", ridge.update_rows, block, y, -y),
            (ValueError, f"^phi, y: .* {out}", ridge.update, 1e155 * phi, 1.0),
            (ValueError, f"^phi, y: .* {out}", ridge.update, 1e10 * phi, 1e300),
            (ValueError, f"^phi, y: .* {out}", ridge.update, 1e200 * phi, 1.0, 1e300),
            (ValueError, f"^Phi, y: .* {out}", ridge.update_rows, 1e155 * block, y),
            (ValueError, f"^Phi, y, weights: .* {out}", ridge.update_rows, 1e200 * block, y, 1e300 * y),
            (ValueError, f"^Phi.data, y: .* {out}", ridge.update_rows, narrow, [1.0]),
            (ValueError, "^Phi: a leverage is out", ridge.leverage, 1e200 * phi),
            (ValueError, "^Phi: a leverage is out", ridge.leverage, 1e100 * narrow),
            (ValueError, rf"^indices: expected 0 <= index < {d}, got {d}", ridge.update_sparse, [d], [1.0], 1.0),
            (ValueError, r"^values: expected shape \(1\)", ridge.update_sparse, [0], [1.0, 2.0], 1.0),
            (TypeError, "^indices: expected integers", ridge.update_sparse, [0.5], [1.0], 1.0),
            *(
                (ValueError, rf"^Phi: expected shape \(any, {d}\)", call, wide)
                for call in (ridge.predict, ridge.leverage, lambda rows: ridge.update_rows(rows, [1.0]))
            ),
            *((ValueError, "^factor: expected", ridge.discount, x) for x in (0, -0.5, 1.5)),
            (TypeError, "^with_regularization: expected a bool", ridge.discount, 0.5, 1),
            *((ValueError, "^regularization: ", ridge.regularize, x) for x in (0, -1.0, 1e-310, 1e308)),
            (ValueError, f"^other: expected dimension {d}, got {d + 1}", ridge.merge, Ridge(d + 1, 0.5)),
            (ValueError, "^other: expected regularization 0.5, got 2.0", ridge.merge, Ridge(d, 2.0)),
            (ValueError, "^other: expected targets None, got 1", ridge.merge, Ridge(d, 0.5, targets=1)),
            (TypeError, "other", ridge.merge, None),
            (ValueError, "^scale: expected a non-negative number, got -1", ridge.sample, Stream(0), -1.0),
            (ValueError, "^scale: a sample is out", Ridge(2, 1e-10).sample, Stream(0), 1.7e308),
            (ValueError, "^scale: a sample is out", Ridge(2, 1e-10).sample_many, Stream(0), 2, 1.7e308),
            *(
                (TypeError, "^rng: expected a numpy.random.Generator or a Stream", call, bad)
                for bad in (None, 0, "x", np.random.RandomState(0), np.random.PCG64(0))
                for call in (ridge.sample, lambda rng: ridge.sample_many(rng, 2))
            ),
            (ValueError, "^m: expected an integer", ridge.sample_many, Stream(0), 2**63),
        ],
        lambda: everything(ridge),
    )


def test_what_has_no_result_is_refused():
    small, other, large = Ridge(1, 1e-300), Ridge(1, 1e-200), Ridge(1, 1e-300)
    small.update([1e-150], 1e300)
    other.update([1e-100], 1e100)
    assert np.isfinite(other.theta).all()
    for number in (4e153, 1e153):
        large.update([number], 0.0)
    refuses(
        [
            (ValueError, "^theta: .* out of the range", getattr, small, "theta"),
            (ValueError, "^Phi: a prediction is out", other.predict, [1e200]),
            (ValueError, "^Phi: a prediction is out", other.predict, [[1e200]]),
            (ValueError, "^b: a solution is out", Ridge(1, 1e-200).solve, [1e200]),
            (ValueError, "^phi: there is no row", Ridge(2, 1.0).downdate, [0.1, 0.1], 1.0),
            (ValueError, "^other: .* out of the range", large.merge, large.copy()),
        ],
        lambda: everything(large),
    )


def test_construction_names_what_does_not_fit():
    refuses(
        [
            *((ValueError, "^d: expected an integer", Ridge, d, 1.0) for d in (0, -1, 2**28 + 1, 2**62)),
            *((ValueError, "^regularization: expected a pos", Ridge, 2, x) for x in (0, -0.0, -1.0)),
            *((ValueError, "^regularization: .* out of the range", Ridge, 2, x) for x in (1e-310, 1e308)),
            *((ValueError, "^targets: expected an integer", Ridge, 2, 1.0, t) for t in (0, -1)),
            (TypeError, "^targets: expected an integer", Ridge, 2, 1.0, True),
            (MemoryError, r"^d: no memory for matrices of shape .* take 1\.76e\+04 GB", Ridge, 2**20, 1.0),
        ]
    )
    ridge = Ridge(d=np.int32(2), regularization=np.float32(0.5))
    assert (ridge.dimension, ridge.regularization, ridge.n, ridge.targets) == (2, 0.5, 0, None)
    assert repr(ridge) == "Ridge(2, 0.5): n=0" and repr(Ridge(4, 0.5, 3)) == "Ridge(4, 0.5, targets=3): n=0"


def test_moments_that_do_not_fit_are_named():
    make, gram, moment = Ridge.from_moments, np.eye(2), np.ones(2)
    refuses(
        [
            *((ValueError, "^n: expected an integer", make, gram, moment, n, 1.0) for n in (-1, 2**63)),
            *((TypeError, "^n: expected an integer", make, gram, moment, n, 1.0) for n in (1.5, True)),
            (ValueError, "^moment: expected", make, gram, np.ones(3), 1, 1.0),
            (ValueError, "^targets: ", make, gram, np.ones((2, 0)), 1, 1.0),
            (ValueError, "^n: expected an integer >= 1 where gram or moment", make, gram, 0 * moment, 0, 1.0),
            (ValueError, "^n: expected an integer >= 1 where gram or moment", make, 0 * gram, moment, 0, 1.0),
            (ValueError, "^gram: .* non-negative diagonal, got -1.0", make, np.diag([1.0, -1.0]), moment, 1, 2.0),
            (ValueError, r"^gram: .* semidefinite .*, got 2.0 at \(1, 0", make, [[1, 2], [2, 1]], moment, 1, 9.0),
            (np.linalg.LinAlgError, r"^gram: gram \+ regularization", make, np.ones((2, 2)), moment, 1, 1e-300),
            (ValueError, "^gram: a sum is out of the range", make, 1e308 * gram, moment, 1, 1.0),
            (ValueError, "^regularization: expected a positive", make, gram, moment, 1, 0.0),
        ]
    )
    assert make(0 * gram, 0 * moment, 0, 1.0).n == 0


def test_pickled_states_are_checked():
    ridge = fed(2, 0.5, *rows_of(2, 3, 0))
    make, arguments, state = ridge.__reduce__()
    changed = [("n", bad) for bad in (-1, 2**63, 2.7, True)] + [("left", bad) for bad in (0, 1025, np.nan)]
    changed += [("factor", -np.eye(2)), ("factor", np.zeros((2, 2))), ("rows", np.ones((64, 2)))]
    changed += [("trace", bad) for bad in (np.inf, -1.0, 1e308)] + [("least", bad) for bad in (0.0, 1e300)]
    table = [
        ((TypeError, ValueError), rf"^state\['({name}|trace)'\]: expected ", ridge.__setstate__, {**state, name: bad})
        for name, bad in changed
    ]
    refuses(table, lambda: everything(ridge))
    # What a pickle holds below the diagonal does not show.
    other = make(*arguments)
    other.__setstate__({**state, "factor": state["factor"] + np.tril(np.ones((2, 2)), -1)})
    assert (other.factor == ridge.factor).all()


@pytest.mark.parametrize("targets", [None, 2])
def test_rows_that_two_copies_share_count_once(targets):
    rng = np.random.default_rng(0)
    rows, y = rng.normal(size=(60, 5)), rng.normal(size=(60, 2) if targets else 60)
    base, whole = Ridge(5, 0.1, targets=targets), Ridge(5, 0.1, targets=targets)
    base.update_rows(rows[:50], y[:50])
    whole.update_rows(rows, y)
    one, other = copy.copy(base), pickle.loads(pickle.dumps(base))
    one.update_rows(rows[50:54], y[50:54])
    other.update_rows(rows[54:], y[54:])
    twice = copy.copy(one)
    twice.merge(other)
    assert twice.n == 110
    one.merge(other, base=base)
    assert one.n == 60
    np.testing.assert_allclose(one.theta, whole.theta, rtol=1e-10)
    np.testing.assert_allclose(one.gram, whole.gram, rtol=1e-10, atol=1e-12)
    with pytest.raises(ValueError, match="base: expected rows that both have, at most 56, got 60"):
        other.merge(whole, base=one)
    with pytest.raises(ValueError, match="base: expected dimension 5, got 4"):
        one.merge(other, base=Ridge(4, 0.1, targets=targets))
