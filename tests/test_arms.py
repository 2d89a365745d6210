"""RidgeArms: K ridge regressions that answer together are K of `Ridge`, and what V and the rows say they are."""

from __future__ import annotations

import copy
import pickle

import mpmath
import numpy as np
import pytest
import twins
from hypothesis import given, settings
from hypothesis import strategies as st

from dmq_fast.kernels import Ridge, RidgeArms, Stream

pytestmark = pytest.mark.kernels

EPS = np.finfo(np.float64).eps
SHAPES = [(1, 1), (2, 3), (3, 4), (4, 7), (5, 8), (9, 13), (10, 32), (3, 130)]


def history(n_arms, d, n, seed=0):
    """Rows, targets and the arms they belong to; the last arm gets none unless it is alone."""
    rng = np.random.default_rng(seed)
    arms = rng.integers(0, max(n_arms - 1, 1), size=n).tolist()
    return rng.normal(size=(n, d)) / np.sqrt(d), rng.normal(size=n).tolist(), arms


def fed(n_arms, d, n, regularization=0.5, seed=0):
    arms, ridges = RidgeArms(n_arms, d, regularization), [Ridge(d, regularization) for _ in range(n_arms)]
    for phi, y, arm in zip(*history(n_arms, d, n, seed), strict=True):
        arms.update(arm, phi, y)
        ridges[arm].update(phi, y)
    return arms, ridges


def everything(arms):
    state = arms.__reduce__()[2]
    return {name: part.tobytes() if isinstance(part, np.ndarray) else part for name, part in state.items()}


@pytest.mark.parametrize(("n_arms", "d"), SHAPES)
@pytest.mark.parametrize("n", [0, 1, 200])
def test_arms_are_ridges(n_arms, d, n):
    """Factors and leverages to the bit."""
    arms, ridges = fed(n_arms, d, n)
    points = np.random.default_rng(1).normal(size=(n_arms, d))
    points[0, ::2] = 0.0
    assert (arms.n == [ridge.n for ridge in ridges]).all() and arms.n.dtype == np.int64
    assert (arms.factor == [ridge.factor for ridge in ridges]).all()
    assert (arms.leverage(points) == [ridge.leverage(phi) for ridge, phi in zip(ridges, points, strict=True)]).all()
    for phi in points:
        assert (arms.leverage(phi) == [ridge.leverage(phi) for ridge in ridges]).all()
        np.testing.assert_allclose(arms.predict(phi), [ridge.predict(phi) for ridge in ridges], rtol=0, atol=1e-11)
    np.testing.assert_allclose(arms.theta, [ridge.theta for ridge in ridges], rtol=0, atol=1e-11)
    own = [ridge.predict(phi) for ridge, phi in zip(ridges, points, strict=True)]
    np.testing.assert_allclose(arms.predict(points), own, rtol=0, atol=1e-11)


@settings(deadline=None, max_examples=80)
@given(
    st.integers(1, 7),
    st.integers(1, 20),
    st.integers(0, 60),
    st.integers(-8, 3),
    st.integers(-140, 140),
    st.integers(0, 2**32),
)
def test_certificates(n_arms, d, n, regularization, exponent, seed):
    """U^T U = V and V theta = sum y phi: backward errors that depend on no scale."""
    scale = 10.0**exponent
    rows, y, chosen = history(n_arms, d, n, seed)
    arms = RidgeArms(n_arms, d, 10.0**regularization * scale * scale)
    for phi, target, arm in zip(rows * scale, y, chosen, strict=True):
        arms.update(arm, phi, target)
    theta = arms.theta
    for k in range(n_arms):
        mine = rows[np.array(chosen, dtype=int) == k]
        v = mine.T @ mine + 10.0**regularization * np.eye(d)
        moment = mine.T @ np.array(y)[np.array(chosen, dtype=int) == k]
        factor, estimate = arms.factor[k] / scale, theta[k] * scale
        allowed = (20 * (n + 1) * d + 2 * (n + d)) * EPS
        assert np.linalg.norm(factor.T @ factor - v) <= allowed * np.trace(v)
        bound = allowed * np.sqrt(np.trace(v)) * (np.sqrt(np.trace(v)) * np.linalg.norm(estimate) + np.linalg.norm(y))
        assert np.linalg.norm(v @ estimate - moment) <= 2 * bound


@pytest.mark.parametrize(("n_arms", "d"), [(2, 1), (3, 5), (5, 9)])
def test_answers_to_sixty_digits(n_arms, d):
    rows, y, chosen = history(n_arms, d, 30)
    arms = fed(n_arms, d, 30, 1e-3)[0]
    phi, z = np.linspace(-1.0, 2.0, d), np.random.default_rng(4).standard_normal((n_arms, d))
    predictions, leverages, samples = arms.predict(phi), arms.leverage(phi), arms.sample(np.random.default_rng(4), 0.7)
    with mpmath.workdps(60):
        x = mpmath.matrix(phi.tolist())
        for k in range(n_arms):
            v, b = mpmath.mpf(1e-3) * mpmath.eye(d), mpmath.zeros(d, 1)
            for row, target, arm in zip(rows, y, chosen, strict=True):
                if arm == k:
                    column = mpmath.matrix(row.tolist())
                    v, b = v + column * column.T, b + mpmath.mpf(target) * column
            theta = mpmath.lu_solve(v, b)
            drawn = theta + mpmath.mpf(0.7) * mpmath.lu_solve(mpmath.cholesky(v).T, mpmath.matrix(z[k].tolist()))
            condition = np.linalg.cond(np.array(v.tolist(), dtype=float))
            size = float(mpmath.norm(theta)) + float(mpmath.norm(drawn)) + 1.0
            rtol = 100 * d * 30 * EPS * condition
            assert abs(predictions[k] - float((x.T * theta)[0])) <= rtol * size * np.linalg.norm(phi)
            assert leverages[k] == pytest.approx(float((x.T * mpmath.lu_solve(v, x))[0]), rel=rtol)
            assert np.linalg.norm(samples[k] - [float(entry) for entry in drawn]) <= rtol * size


def test_a_hundred_thousand_rows_do_not_drift():
    d, n = 16, 100_000
    rng = np.random.default_rng(0)
    rows, y = rng.normal(size=(n, d)) / np.sqrt(d), rng.normal(size=n)
    arms, update = RidgeArms(2, d, 1.0), None
    update = arms.update
    for phi, target in zip(rows, y.tolist(), strict=True):
        update(1, phi, target)
    v = rows.T @ rows + np.eye(d)
    factor = arms.factor[1]
    assert np.linalg.norm(factor.T @ factor - v) <= 1e-12 * np.trace(v)
    np.testing.assert_allclose(arms.theta[1], np.linalg.solve(v, rows.T @ y), rtol=1e-10, atol=1e-13)


@pytest.mark.parametrize("share", [1e-8, 1e-16])
def test_directions_never_seen_keep_their_digits(share):
    """lambda / trace(V) = share: an inverse that is updated would have lost these leverages."""
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(300, 6))
    rows[:, 5] = 0.0
    regularization = share * (rows * rows).sum()
    arms = RidgeArms(1, 6, regularization)
    for phi in rows:
        arms.update(0, phi, 1.0)
    assert arms.leverage(np.eye(6)[5]) == pytest.approx(1.0 / regularization, rel=1e-12)


@pytest.mark.parametrize(("n_arms", "d"), SHAPES)
def test_bounds_and_the_choice_follow_from_the_answers(n_arms, d):
    arms, _ = fed(n_arms, d, 50)
    for seed in range(20):
        phi = np.random.default_rng(seed).normal(size=(n_arms, d) if seed % 2 else d)
        for alpha in (0, 0.5, 3.0):
            upper = arms.predict(phi) + alpha * np.sqrt(arms.leverage(phi))
            assert (arms.upper(phi, alpha) == upper).all()
            assert arms.select(phi, alpha) == upper.argmax()
    assert RidgeArms(4, d, 1.0).select(np.ones(d), 1.0) == 0  # the smallest of those that tie


def test_weights_scale_products():
    one, other = RidgeArms(2, 3, 0.5), RidgeArms(2, 3, 0.5)
    phi = np.array([0.5, -1.0, 2.0])
    one.update(1, phi, 3.0, 4.0)
    one.update(0, phi, 3.0, weight=0.0)
    other.update(1, 2.0 * phi, 6.0)
    assert (one.factor == other.factor).all() and (one.theta == other.theta).all()
    assert (one.n == [1, 1]).all() and (other.n == [0, 1]).all()


def test_samples_have_the_moments_of_the_posterior():
    arms, _ = fed(3, 4, 30)
    for rng in (np.random.default_rng(0), Stream(0)):
        draws = np.array([arms.sample(rng.at(i) if isinstance(rng, Stream) else rng, 2.0) for i in range(20_000)])
        white = np.einsum("kij,nkj->nki", arms.factor, draws - arms.theta) / 2.0
        assert abs(white.mean(axis=0)).max() < 0.04
        for k in range(3):
            assert abs(white[:, k].T @ white[:, k] / len(white) - np.eye(4)).max() < 0.06
    assert (arms.sample(Stream(1)) == arms.copy().sample(Stream(1))).all()
    assert not (arms.sample(Stream(1)) == arms.sample(Stream(1, 1))).any()
    np.testing.assert_allclose(arms.sample(Stream(1), 0.0), arms.theta, rtol=0, atol=1e-14)


def test_copies_and_pickles_have_the_same_bits():
    arms, _ = fed(3, 5, 60)
    for make in (RidgeArms.copy, copy.copy, copy.deepcopy, lambda a: pickle.loads(pickle.dumps(a))):
        before, other = everything(arms), make(arms)
        assert type(other) is RidgeArms and everything(other) == before and repr(other) == repr(arms)
        other.update(0, np.ones(5), 1.0)
        assert everything(arms) == before and not (other.theta == arms.theta).all()


def test_pickled_states_are_checked():
    arms, _ = fed(2, 3, 20)
    make, arguments, state = arms.__reduce__()
    for bad in (None, [], {}, {**state, "version": 2}, {**state, "version": "1"}):
        with pytest.raises(ValueError, match=r"^state: expected that of RidgeArms, version 1, got "):
            make(*arguments).__setstate__(bad)
    for name in ("n", "factor", "rotated", "bounds"):
        less = {key: part for key, part in state.items() if key != name}
        with pytest.raises(ValueError, match=rf"^state: .*'{name}'"):
            make(*arguments).__setstate__(less)
        for bad in ("x", np.ones(5), np.full(np.shape(state[name]), -1.0), np.full(np.shape(state[name]), np.nan)):
            if name == "rotated" and isinstance(bad, np.ndarray) and bad.shape == (2, 3) and bad[0, 0] == -1:
                continue
            before = everything(arms)
            with pytest.raises(ValueError, match=rf"^state.*'{name}'"):
                arms.__setstate__({**state, name: bad})
            assert everything(arms) == before
    below = {**state, "factor": state["factor"] + np.tril(np.ones((3, 3)), -1)}
    other = make(*arguments)
    other.__setstate__(below)
    assert (other.factor == arms.factor).all()


def test_what_comes_out_is_the_callers():
    arms, _ = fed(2, 3, 20)
    before, phi = everything(arms), np.ones(3)
    for out in (
        arms.n,
        arms.theta,
        arms.predict(phi),
        arms.leverage(phi),
        arms.upper(phi, 1.0),
        arms.sample(Stream(0)),
    ):
        out[:] = 7
    assert everything(arms) == before and (phi == 1).all()
    with pytest.raises(ValueError, match="read-only"):
        arms.factor[0, 0, 0] = 1.0
    with pytest.raises(ValueError, match="WRITEABLE"):
        arms.factor.setflags(write=True)
    factor = arms.factor
    arms.update(0, phi, 1.0)
    assert (factor == arms.factor).all()


@pytest.mark.parametrize("d", [2, 9])
def test_what_is_refused_changes_nothing(d):
    arms, _ = fed(3, d, 20)
    before, phi = everything(arms), np.ones(d)

    def refused(error, match, call, *arguments):
        with pytest.raises(error, match=match):
            call(*arguments)
        assert everything(arms) == before

    for bad in (-1, 3, 2**70):
        refused(ValueError, r"^arm: expected an integer in \[0, 2\], got", arms.update, bad, phi, 1.0)
    for bad in (None, 1.0, "0", True):
        refused(TypeError, r"^arm: expected an integer", arms.update, bad, phi, 1.0)
    for bad in twins.no_numbers(phi).values():
        for call in (arms.predict, arms.leverage, lambda x: arms.upper(x, 1.0), lambda x: arms.select(x, 1.0)):
            refused(TypeError, r"^phi: expected", call, bad)
        refused(TypeError, r"^phi: expected", arms.update, 0, bad, 1.0)
    for bad in twins.not_finite(phi):
        for call in (arms.predict, arms.leverage, lambda x: arms.upper(x, 1.0), lambda x: arms.select(x, 1.0)):
            refused(ValueError, r"^phi: expected finite", call, bad)
        for weight in (0.0, 1.0):
            refused(ValueError, r"^phi: expected finite", arms.update, 0, bad, 1.0, weight)
    for bad in twins.no_numbers(1.0).values():
        refused(TypeError, r"^y: expected", arms.update, 0, phi, bad)
        refused(TypeError, r"^weight: expected", arms.update, 0, phi, 1.0, bad)
        refused(TypeError, r"^alpha: expected", arms.select, phi, bad)
        refused(TypeError, r"^scale: expected", arms.sample, Stream(0), bad)
    for bad in twins.not_finite(1.0):
        for weight in (0.0, 1.0):
            refused(ValueError, r"^y: expected finite", arms.update, 0, phi, bad, weight)
            refused(ValueError, r"^y: expected finite", arms.update, 0, 0 * phi, bad, weight)
        refused(ValueError, r"^weight: expected finite", arms.update, 0, phi, 1.0, bad)
        refused(ValueError, r"^alpha: expected finite", arms.upper, phi, bad)
    for shape in ((), (0,), (d + 1,), (3, d, 1)):
        for call in (arms.predict, arms.leverage, lambda x: arms.upper(x, 1.0), lambda x: arms.select(x, 1.0)):
            refused(ValueError, r"^phi: expected shape", call, np.ones(shape))
        refused(ValueError, r"^phi: expected shape", arms.update, 0, np.ones(shape), 1.0)
    refused(ValueError, rf"^phi: expected shape \(3, {d}\)", arms.predict, np.ones((2, d)))
    refused(ValueError, r"^weight: expected a non-negative", arms.update, 0, phi, 1.0, -1.0)
    refused(ValueError, r"^alpha: expected a non-negative", arms.select, phi, -1.0)
    refused(ValueError, r"^alpha: a bound is out", arms.select, 10 * phi, 1.7e308)
    refused(ValueError, r"^phi, y: .* out of the range", arms.update, 0, 1e155 * phi, 1.0)
    refused(ValueError, r"^phi, y: .* out of the range", arms.update, 0, phi, 1e308)
    refused(ValueError, r"^phi: a prediction or a leverage is out", arms.predict, 1e200 * phi)
    refused(TypeError, r"^rng: expected a numpy.random.Generator or a Stream", arms.sample, 0)


def test_sums_stop_before_they_overflow():
    arms = RidgeArms(1, 1, 1.0)
    with pytest.raises(ValueError, match=r"^phi, y: a sum of products is out of the range"):
        for _ in range(1000):
            arms.update(0, [1e153], 1e153)
    assert 1 < arms.n[0] < 1000 and arms.theta[0] == pytest.approx(1.0)
    arms = RidgeArms(1, 1, 1e-300)
    arms.update(0, [1e-150], 1e300)
    with pytest.raises(ValueError, match=r"^theta: an estimate is out of the range"):
        arms.theta  # noqa: B018


@pytest.mark.parametrize("d", [3, 17])
def test_every_layout_gives_the_same_answers(d):
    phi, block = np.arange(d) % 5 - 2.0, np.arange(2.0 * d).reshape(2, d) % 7
    arms = RidgeArms(2, d, 0.5)
    arms.update(1, phi, 2.0)
    for name, alternative in twins.layouts(phi).items():
        other = RidgeArms(2, d, 0.5)
        other.update(np.int8(1), alternative, np.float32(2.0))
        assert everything(other) == everything(arms), name
        assert (arms.leverage(alternative) == arms.leverage(phi)).all(), name
    for name, alternative in twins.layouts(block).items():
        assert (arms.predict(alternative) == arms.predict(block)).all(), name


def test_construction_names_what_does_not_fit():
    for name, arguments in (
        ("n_arms", (0, 2, 1.0)),
        ("d", (2, 0, 1.0)),
        ("n_arms", (-1, 2, 1.0)),
        ("d", (2, 2**29, 1.0)),
    ):
        with pytest.raises(ValueError, match=rf"^{name}: expected an integer in \[1, "):
            RidgeArms(*arguments)
    for name, arguments in (("n_arms", (2.5, 2, 1.0)), ("d", (2, "x", 1.0)), ("d", (2, True, 1.0))):
        with pytest.raises(TypeError, match=rf"^{name}: expected an integer"):
            RidgeArms(*arguments)
    for bad in (0, -1.0, 1e-310, 1e308, np.nan):
        with pytest.raises(ValueError, match=r"^regularization: "):
            RidgeArms(2, 2, bad)
    with pytest.raises(TypeError, match=r"^regularization: expected"):
        RidgeArms(2, 2, None)
    with pytest.raises(MemoryError, match=r"^n_arms, d: no memory for factors of shape"):
        RidgeArms(2**28, 2**28, 1.0)
    with pytest.raises(TypeError):
        RidgeArms.__new__(RidgeArms)
    arms = RidgeArms(n_arms=np.int32(2), d=3, regularization=np.float32(0.5))
    assert (arms.n_arms, arms.dimension, arms.regularization) == (2, 3, 0.5)
    assert repr(arms) == "RidgeArms(2, 3, 0.5): n=[0, 0]"
    for name in ("n_arms", "dimension", "regularization", "n", "theta", "factor"):
        with pytest.raises(AttributeError):
            setattr(arms, name, 1)
