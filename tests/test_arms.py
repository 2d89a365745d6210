"""RidgeArms: K ridge regressions that answer together are K of `Ridge`."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse
from hypothesis import strategies as st
from properties import everything, for_all, refuses, seeds

from dmq_fast.kernels import Ridge, RidgeArms, Stream

pytestmark = pytest.mark.kernels

EPS = np.finfo(np.float64).eps


def history(n_arms, d, n, seed=0):
    """Rows, targets and the arms they belong to; the last arm gets none unless it is alone."""
    rng = np.random.default_rng(seed)
    arms = rng.integers(0, max(n_arms - 1, 1), size=n).tolist()
    return rng.normal(size=(n, d)) / np.sqrt(d), rng.normal(size=n).tolist(), arms


def fed(n_arms, d, n, regularization=0.5, seed=0, scale=1.0):
    regularization *= scale * scale
    arms, ridges = RidgeArms(n_arms, d, regularization), [Ridge(d, regularization) for _ in range(n_arms)]
    rows, *rest = history(n_arms, d, n, seed)
    for phi, y, arm in zip(scale * rows, *rest, strict=True):
        arms.update(arm, phi, y)
        ridges[arm].update(phi, y)
    return arms, ridges


@for_all(
    n_arms=st.integers(1, 10),
    d=st.one_of(st.integers(1, 33), st.just(130)),
    n=st.integers(0, 200),
    exponent=st.one_of(st.just(0), st.integers(-140, 140)),
    seed=seeds,
)
def test_arms_are_ridges(n_arms, d, n, exponent, seed):
    """Of which tests/test_ridge.py has the certificates: factors and leverages to the bit, all else to rounding."""
    scale = 10.0**exponent
    arms, ridges = fed(n_arms, d, n, seed=seed, scale=scale)
    points = np.random.default_rng(seed).normal(size=(n_arms, d)) * scale
    points[0, ::2] = 0.0
    assert (arms.n == [ridge.n for ridge in ridges]).all() and arms.n.dtype == np.int64
    assert (arms.factor == [ridge.factor for ridge in ridges]).all()
    assert (
        arms.leverage(points, per_arm=True) == [ridge.leverage(phi) for ridge, phi in zip(ridges, points, strict=True)]
    ).all()
    for phi in points:
        assert (arms.leverage(phi) == [ridge.leverage(phi) for ridge in ridges]).all()
        np.testing.assert_allclose(arms.predict(phi), [ridge.predict(phi) for ridge in ridges], rtol=0, atol=1e-11)
    theta = np.array([ridge.theta for ridge in ridges])
    np.testing.assert_allclose(scale * arms.theta, scale * theta, rtol=0, atol=1e-11)
    own = [ridge.predict(phi) for ridge, phi in zip(ridges, points, strict=True)]
    np.testing.assert_allclose(arms.predict(points, per_arm=True), own, rtol=0, atol=1e-11)
    for phi, per_arm in ((points, True), (points[0], False)):
        for alpha in (0, 0.5, 3.0):
            upper = arms.predict(phi, per_arm=per_arm) + alpha * np.sqrt(arms.leverage(phi, per_arm=per_arm))
            assert (arms.upper(phi, alpha, per_arm=per_arm) == upper).all()
            assert arms.select(phi, alpha, per_arm=per_arm) == upper.argmax()
    assert RidgeArms(n_arms, d, 1.0).select(np.ones(d), 1.0) == 0  # the smallest of those that tie


@for_all(
    quick=40,
    slow=500,
    n_arms=st.integers(1, 6),
    d=st.one_of(st.integers(1, 33), st.just(70)),
    batch=st.one_of(st.integers(0, 40), st.sampled_from([300])),
    per_arm=st.booleans(),
    seed=seeds,
)
def test_a_batch_of_contexts_has_the_answers_of_each(n_arms, d, batch, per_arm, seed):
    """B contexts of K arms give (B, K), also where B = K; in single precision, with the error of rounded rows."""
    arms, _ = fed(n_arms, d, 60, seed=seed)
    rng = np.random.default_rng(seed)
    phi = rng.normal(size=(batch, n_arms, d) if per_arm else (batch, d)) / np.sqrt(d)
    each = np.array([arms.predict(x, per_arm=per_arm) for x in phi]).reshape(batch, n_arms)
    squares = np.array([arms.leverage(x, per_arm=per_arm) for x in phi]).reshape(batch, n_arms)
    # Largest leverages are 1 / lambda = 2, of V with condition below 300.
    for rows, rtol in ((phi, 1e-12), (phi.astype(np.float32), 4e-4)):
        mean, square = arms.predict(rows, per_arm=per_arm), arms.leverage(rows, per_arm=per_arm)
        assert mean.dtype == square.dtype == rows.dtype and mean.shape == square.shape == (batch, n_arms)
        np.testing.assert_allclose(mean, each, rtol=0, atol=rtol * (1 + abs(each).max(initial=0)))
        np.testing.assert_allclose(square, squares, rtol=rtol, atol=1e-30)
        upper = arms.upper(rows, 0.7, per_arm=per_arm)
        np.testing.assert_allclose(upper, mean + rows.dtype.type(0.7) * np.sqrt(square), rtol=1e-6, atol=1e-6)
        chosen = arms.select(rows, 0.7, per_arm=per_arm)
        assert chosen.shape == (batch,) and chosen.dtype == np.int64 and (chosen == upper.argmax(axis=1)).all()
        if batch >= 12:
            assert (arms.predict(rows[5:12], per_arm=per_arm) == mean[5:12]).all()
            assert (arms.leverage(rows[::-1], per_arm=per_arm) == square[::-1]).all()


@for_all(
    quick=30,
    slow=300,
    n_arms=st.integers(1, 5),
    d=st.integers(1, 24),
    steps=st.lists(
        st.sampled_from(["rows", "sparse", "row", "discount", "whole", "merge", "add", "remove"]), max_size=9
    ),
    seed=seeds,
)
def test_any_sequence_of_changes_ends_at_the_sums_it_names(n_arms, d, steps, seed):
    """Against sums in NumPy, arm by arm: U^T U = V, and V theta = moment."""
    rng, arms, ridge = np.random.default_rng(seed), RidgeArms(n_arms, d, 0.5), 0.5
    gram, moment, n, largest = np.zeros((n_arms, d, d)), np.zeros((n_arms, d)), np.zeros(n_arms, int), 0.0

    def add(owners, rows, y, weights):
        for k, phi, target, weight in zip(owners, rows, y, weights, strict=True):
            gram[k] += weight * np.outer(phi, phi)
            moment[k] += weight * target * phi
            n[k] += 1

    for step in steps:
        m, k = int(rng.integers(0, 20)), int(rng.integers(arms.n_arms))
        rows, y = rng.normal(size=(m, d)) / np.sqrt(d), rng.normal(size=m)
        owners, weights = rng.integers(0, arms.n_arms, size=m), rng.choice([0.0, 1.0, 2.5], size=m)
        if step == "rows":
            before = arms.copy()
            arms.update_rows(owners, rows, y, weights)
            for owner, phi, target, weight in zip(owners.tolist(), rows, y.tolist(), weights.tolist(), strict=True):
                before.update(owner, phi, target, weight)
            assert everything(before) == everything(arms)
            add(owners, rows, y, weights)
        elif step == "sparse":
            rows *= rng.random(rows.shape) < 0.3
            arms.update_rows(k, scipy.sparse.csr_array(rows), y)
            add([k] * m, rows, y, np.ones(m))
        elif step == "row":
            columns, values = rng.integers(0, d, size=3), rng.normal(size=3)
            dense = np.zeros(d)
            np.add.at(dense, columns, values)
            arms.update_sparse(k, columns, values, 1.5, 0.5)
            add([k], [dense], [1.5], [0.5])
        elif step in ("discount", "whole"):
            arms.discount(0.7, with_regularization=step == "whole")
            gram, moment, ridge = 0.7 * gram, 0.7 * moment, ridge * (0.7 if step == "whole" else 1.0)
        elif step == "merge":
            other = RidgeArms(arms.n_arms, d, arms.regularization)
            other.update_rows(owners, rows, y)
            kept = everything(other)
            arms.merge(other)
            assert everything(other) == kept
            add(owners, rows, y, np.ones(m))
        elif step == "add":
            arms.add_arms(2)
            gram, moment = np.pad(gram, ((0, 2), (0, 0), (0, 0))), np.pad(moment, ((0, 2), (0, 0)))
            n = np.append(n, [0, 0])
        elif arms.n_arms > 1:
            arms.remove_arm(k)
            gram, moment, n = (np.delete(part, k, axis=0) for part in (gram, moment, n))
        v = gram + ridge * np.eye(d)
        largest = max(largest, np.trace(v, axis1=1, axis2=2).max())
    v = gram + ridge * np.eye(d)
    assert (arms.n == n).all() and arms.regularization == pytest.approx(ridge, rel=1e-13)
    assert (np.tril(arms.factor, -1) == 0).all()
    assert abs(arms.factor.transpose(0, 2, 1) @ arms.factor - v).max() <= 1e-13 * d * max(largest, 1.0)
    assert abs(np.einsum("kij,kj->ki", v, arms.theta) - moment).max() <= 1e-11 * d * max(largest, 1.0)
    state = arms.__reduce__()[2]
    assert (state["bounds"][0] >= np.trace(v, axis1=1, axis2=2) * (1 - 1e-12)).all()


def test_merged_arms_keep_directions_never_seen():
    """Lambda is twice in the sum of both factors, and leaves it by rotations: no digit of it is lost in the sums."""
    one, other = RidgeArms(1, 3, 1e-8), RidgeArms(1, 3, 1e-8)
    one.update_rows(0, 1e4 * np.eye(3)[[0, 0]], [1.0, 2.0])
    other.update_rows(0, 1e4 * np.eye(3)[[1, 0]], [1.0, 2.0])
    one.merge(other)
    assert one.leverage([0.0, 0.0, 1.0]) == pytest.approx(1e8, rel=1e-14)
    itself = one.copy()
    itself.merge(itself)
    assert itself.leverage([0.0, 0.0, 1.0]) == pytest.approx(1e8, rel=1e-14)
    assert itself.leverage([1.0, 0.0, 0.0]) == pytest.approx(1 / 6e8, rel=1e-14)


def test_forgetting_with_lambda_never_leaves_float64():
    arms = RidgeArms(2, 2, 1.0)
    for _ in range(20_000):
        arms.discount(0.95, with_regularization=True)
        arms.update(0, [1.0, 0.0], 2.0)
    assert 2.0**-510 < arms.regularization < 2.0**-390
    assert arms.leverage([1.0, 0.0])[0] == pytest.approx(0.05, rel=1e-9) and arms.theta[0, 0] == pytest.approx(2.0)
    assert np.isfinite(arms.leverage([1.0, 1.0])).all()


def test_views_of_before_stay_as_they_were():
    arms, _ = fed(3, 4, 20)
    view, copied = arms.factor, arms.factor.copy()
    arms.add_arms()
    arms.update(0, np.ones(4), 1.0)
    assert (view == copied).all() and not (arms.factor[:3] == copied).all()
    with pytest.raises(ValueError, match="read-only"):
        arms.factor[0, 0, 0] = 1.0


def test_weights_scale_products():
    one, other = RidgeArms(2, 3, 0.5), RidgeArms(2, 3, 0.5)
    phi = np.array([0.5, -1.0, 2.0])
    one.update(1, phi, 3.0, 4.0)
    one.update(0, phi, 3.0, weight=0.0)
    other.update(1, 2.0 * phi, 6.0)
    assert (one.factor == other.factor).all() and (one.theta == other.theta).all()
    assert (one.n == [1, 1]).all() and (other.n == [0, 1]).all()


def test_samples_are_those_of_the_posterior():
    """theta + scale U^{-1} z: NumPy's normals of a generator, and normals of a stream."""
    arms, _ = fed(3, 4, 30)
    z = np.random.default_rng(4).standard_normal((3, 4))
    drawn = arms.sample(np.random.default_rng(4), 0.7) - arms.theta
    np.testing.assert_allclose(np.einsum("kij,kj->ki", arms.factor, drawn), 0.7 * z, rtol=0, atol=1e-13)
    draws = np.array([arms.sample(Stream(0, i), 2.0) for i in range(20_000)])
    white = np.einsum("kij,nkj->nki", arms.factor, draws - arms.theta) / 2.0
    assert abs(white.mean(axis=0)).max() < 0.04
    for k in range(3):
        assert abs(white[:, k].T @ white[:, k] / len(white) - np.eye(4)).max() < 0.06
    assert (arms.sample(Stream(1)) == arms.copy().sample(Stream(1))).all()
    assert not (arms.sample(Stream(1)) == arms.sample(Stream(1, 1))).any()
    np.testing.assert_allclose(arms.sample(Stream(1), 0.0), arms.theta, rtol=0, atol=1e-14)


def test_pickled_states_are_checked():
    arms, _ = fed(2, 3, 20)
    make, arguments, state = arms.__reduce__()
    table = [
        (ValueError, rf"^state.*'{name}'", arms.__setstate__, {**state, name: np.full_like(state[name], -1)})
        for name in ("n", "factor", "bounds")
    ]
    refuses(table, lambda: everything(arms))
    below = {**state, "factor": state["factor"] + np.tril(np.ones((3, 3)), -1)}
    other = make(*arguments)
    other.__setstate__(below)
    assert (other.factor == arms.factor).all()


def test_the_factors_are_a_view_that_cannot_be_written():
    arms, _ = fed(2, 3, 20)
    factor = arms.factor
    with pytest.raises(ValueError, match="read-only"):
        factor[0, 0, 0] = 1.0
    with pytest.raises(ValueError, match="WRITEABLE"):
        factor.setflags(write=True)
    arms.update(0, np.ones(3), 1.0)
    assert (factor == arms.factor).all()


@pytest.mark.parametrize("d", [2, 9])
def test_what_is_refused_changes_nothing(d):
    arms, _ = fed(3, d, 20)
    phi, update, table = np.ones(d), arms.update, []
    table += [(ValueError, r"^arm: expected an integer in \[0, 2\]", update, bad, phi, 1.0) for bad in (-1, 3, 2**70)]
    table += [(TypeError, "^arm: expected an integer", update, bad, phi, 1.0) for bad in (None, 1.0, "0", True)]
    table += [
        (ValueError, rf"^phi: expected shape \(3, {d}\)", lambda x: arms.predict(x, per_arm=True), np.ones((2, d))),
        (ValueError, rf"^phi: expected shape \(any, {d}\)", arms.predict, np.ones((2, d + 1))),
        (ValueError, rf"^phi: expected shape \(any, {d}\)", arms.predict, np.ones((2, 3, d))),
        (
            ValueError,
            rf"^phi: expected shape \(any, 3, {d}\)",
            lambda x: arms.predict(x, per_arm=True),
            np.ones((3, 2, d)),
        ),
        (ValueError, rf"^phi: expected shape \(any, 3, {d}\)", lambda x: arms.predict(x, per_arm=True), np.ones(d)),
        (ValueError, rf"^phi: expected shape \(any, {d}\)", arms.predict, 1.0),
        (TypeError, "^per_arm: expected a bool", lambda x: arms.predict(x, per_arm=1), np.ones(d)),
        (ValueError, "^phi: expected finite numbers, got nan", arms.predict, np.full((9, d), np.nan)),
        (ValueError, "^phi: .* out of the range of float64; rescale", arms.predict, np.full((9, d), 1e200)),
        (
            ValueError,
            "^phi: .* out of the range of float32; pass it as float64",
            arms.predict,
            np.full((9, d), 1e30, "f"),
        ),
        (ValueError, "^alpha: a bound is out of the range of float64", arms.select, 10 * np.ones((9, d)), 1.7e308),
        (ValueError, "^weight: expected a non-negative", update, 0, phi, 1.0, -1.0),
        (ValueError, "^alpha: expected a non-negative", arms.select, phi, -1.0),
        (ValueError, "^alpha: a bound is out", arms.select, 10 * phi, 1.7e308),
        (ValueError, "^phi, y: .* out of the range", update, 0, 1e155 * phi, 1.0),
        (ValueError, "^phi, y: .* out of the range", update, 0, phi, 1e308),
        (ValueError, "^phi: a prediction or a leverage is out", arms.predict, 1e200 * phi),
        (TypeError, "^rng: expected a numpy.random.Generator or a Stream", arms.sample, 0),
        (ValueError, r"^arms: expected 0 <= index < 3, got 3", arms.update_rows, [0, 3], np.ones((2, d)), [1.0, 1.0]),
        (TypeError, r"^arms: expected integers", arms.update_rows, [0.0, 1.0], np.ones((2, d)), [1.0, 1.0]),
        (ValueError, r"^arms: expected an integer or shape", arms.update_rows, [0], np.ones((2, d)), [1.0, 1.0]),
        (ValueError, r"^arm: expected an integer in", arms.update_rows, 3, np.ones((2, d)), [1.0, 1.0]),
        (ValueError, r"^y: expected shape \(2\)", arms.update_rows, 0, np.ones((2, d)), [1.0]),
        (ValueError, r"^y: expected finite", arms.update_rows, 0, np.ones((2, d)), [1.0, np.nan]),
        (ValueError, r"^Phi: expected finite", arms.update_rows, 0, np.full((2, d), np.inf), [1.0, 1.0], [0.0, 0.0]),
        (ValueError, r"^weights: expected non-negative", arms.update_rows, 0, np.ones((2, d)), [1.0, 1.0], [1.0, -1.0]),
        (ValueError, r"^Phi, y: .* out of the range", arms.update_rows, 0, [np.ones(d), np.full(d, 1e155)], [1.0, 1.0]),
        (ValueError, rf"^indices: expected 0 <= index < {d}", arms.update_sparse, 0, [d], [1.0], 1.0),
        (ValueError, r"^factor: expected", arms.discount, 0.0),
        (ValueError, r"^factor: expected a number in \(0, 1\], got 1.5", arms.discount, 1.5),
        (ValueError, r"^other: expected n_arms 3, got 2", arms.merge, RidgeArms(2, d, 0.5)),
        (ValueError, r"^other: expected regularization 0.5, got 1.0", arms.merge, RidgeArms(3, d, 1.0)),
        (TypeError, "other", arms.merge, None),
        (ValueError, r"^n: expected an integer in \[1, ", arms.add_arms, 0),
        (ValueError, r"^arm: expected an integer in", arms.remove_arm, 3),
        (ValueError, r"^arm: expected one of several", RidgeArms(1, d, 1.0).remove_arm, 0),
    ]
    refuses(table, lambda: everything(arms))


def test_sums_stop_before_they_overflow():
    arms = RidgeArms(1, 1, 1.0)
    with pytest.raises(ValueError, match=r"^phi, y: a sum of products is out of the range"):
        for _ in range(1000):
            arms.update(0, [1e153], 1e153)
    assert 1 < arms.n[0] < 1000 and arms.theta[0] == pytest.approx(1.0)
    arms = RidgeArms(1, 1, 1.0)
    with pytest.raises(ValueError, match=r"^phi, y: a sum of products is out of the range"):
        for _ in range(100):
            arms.update(0, [1e-3], 1e307)
    assert 1 <= arms.n[0] < 100
    arms = RidgeArms(1, 1, 1e-300)
    arms.update(0, [1e-150], 1e300)
    with pytest.raises(ValueError, match=r"^theta: an estimate is out of the range"):
        arms.theta  # noqa: B018


def test_construction_names_what_does_not_fit():
    integer, positive = "expected an integer", r"expected an integer in \[1, "
    refuses(
        [
            (ValueError, f"^n_arms: {positive}", RidgeArms, 0, 2, 1.0),
            (ValueError, f"^n_arms: {positive}", RidgeArms, -1, 2, 1.0),
            (ValueError, f"^d: {positive}", RidgeArms, 2, 0, 1.0),
            (ValueError, f"^d: {positive}", RidgeArms, 2, 2**29, 1.0),
            (TypeError, f"^d: {integer}", RidgeArms, 2, True, 1.0),
            *((ValueError, "^regularization: ", RidgeArms, 2, 2, bad) for bad in (0, -1.0, 1e-310, 1e308)),
            (MemoryError, r"^n_arms, d: no memory for matrices of shape .* GB", RidgeArms, 2**28, 2**28, 1.0),
            (MemoryError, r"^n_arms, d: .* take 1\.1e\+03 GB", RidgeArms, 2**19, 2**9, 1.0),
        ]
    )
    arms = RidgeArms(n_arms=np.int32(2), d=3, regularization=np.float32(0.5))
    assert (arms.n_arms, arms.dimension, arms.regularization) == (2, 3, 0.5)
    assert repr(arms) == "RidgeArms(2, 3, 0.5): n=[0, 0]"
