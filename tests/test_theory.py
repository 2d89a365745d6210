"""Constants of the theorem, bounds on the size of a cover."""

import itertools
import math
from dataclasses import FrozenInstanceError
from decimal import Decimal

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from refusals import refused

import dmq_fast as dmq
from dmq_fast.kernels import dsec, dsec_decision, ridge_fit
from dmq_fast.theory import (
    Parameters,
    finite_cover_bound,
    printed_cover_bound,
    ridge_norm_bound,
    sure_cover_bound,
)


def random_moment(rng, d):
    """Return the second moment of a few random features of norm at most 1, of any rank."""
    rows = rng.normal(size=(rng.integers(1, d + 2), d))
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    return rows.T @ rows / len(rows) * rng.random()


def test_printed_bound_is_the_papers():
    assert printed_cover_bound(2, 0.01) == pytest.approx(21.19, abs=0.01)


def test_sure_bound_exceeds_the_printed_one_where_its_last_step_fails():
    """docs/findings.md, E: at d = 2, eps_r = 0.01 and factor 2 the inequality admits 23 > 21.2."""
    factor_two = max(n for n in range(1, 100) if 2 ** (n - 1) * 0.01**2 <= (n + 1) ** 2)
    assert factor_two == 23 > printed_cover_bound(2, 0.01)


@given(st.integers(1, 50), st.floats(0.1, 100), st.floats(1e-12, 10))
def test_sure_bound_is_the_largest_admitted(d, ratio, eps_r):
    def admitted(n):
        return (n - 1) * math.log1p(ratio) <= d * math.log1p(n / (d * eps_r))

    bound = sure_cover_bound(d, ratio, eps_r)
    assert admitted(bound)
    assert not admitted(bound + 1)


def test_bounds_do_not_overflow():
    """Compare with decimals where n / (d eps_r) exceeds float64."""
    eps_r = Decimal("1e-310")
    for d in (1, 2, 40):
        bound = sure_cover_bound(d, 1.0, float(eps_r))
        sides = [(n - 1) * Decimal(2).ln() / d - ((eps_r + Decimal(n) / d) / eps_r).ln() for n in (bound, bound + 1)]
        assert sides[0] <= 0 < sides[1]
        assert printed_cover_bound(d, 1e-310) == pytest.approx(float(2 * d * (d / eps_r).ln()))


def test_the_finite_bound_by_hand():
    # Three pairs of three functions, each told apart until what it has seen exceeds eps_s.
    assert [finite_cover_bound(3, eps_s, 0.25) for eps_s in (0.24, 0.25, 0.5, 0.74)] == [4, 7, 10, 10]
    assert finite_cover_bound(1, 1.0, 0.1) == 1 and finite_cover_bound(2, 1.0, 2.0, initial=3) == 4
    # 7 is what 0.7 / 0.1 is up to rounding, and seven times 0.1 in float64 does not exceed 0.7.
    assert finite_cover_bound(2, 0.7, 0.1) == 1 + 8
    assert finite_cover_bound(2, 1e300, 1e-300) == finite_cover_bound(10**10, 1.0, 1.0) == 2**62


def printed(epsilon=0.1, gamma=0.5, C=1, d=2, H=5, K=2, **more):
    return Parameters.from_theorem(epsilon, gamma, C, d, H, K, **more)


def corrected(epsilon=0.1, gamma=0.5, C=1, d=2, H=5, K=2, delta=0.1, **more):
    return Parameters.from_theorem(epsilon, gamma, C, d, H, K, corrected=True, delta=delta, **more)


def need(parameters, name):
    (found,) = (inequality for inequality in parameters.check() if inequality.name == name)
    return found


def test_printed_constants_are_the_papers():
    p, log = printed(0.01, 0.25, 3, 4, 7, 2), math.log(4 / 0.01)
    assert float(p.eps_t) == pytest.approx(0.25**2 * 0.01 / 35)
    assert float(p.eps_s) == pytest.approx(96 * 3 * 1e-4 * 4 * log)
    assert (p.eps_n, p.ridge, p.eps_r) == (Decimal("1e-4"), Decimal("1e-4"), Decimal("1e-12"))
    assert float(p.cover_bound) == pytest.approx(48 * log)
    assert float(p.n_samples) == pytest.approx(4e24 * math.log(100))
    assert p.n_samples == p.n_samples.to_integral_value()


def test_corrected_constants_are_those_of_the_docstring():
    p = corrected(0.01, 0.25, 3, 4, 7, 2, delta=0.05)
    assert float(p.eps_t) == pytest.approx(0.25**2 * 0.01 / 70)
    assert (p.eps_n, p.ridge, p.eps_r) == (Decimal("1e-4"), Decimal("1e-4"), Decimal("1e-8"))
    bound = float(p.cover_bound)
    assert 2 ** ((bound - 1) / 4) == pytest.approx((1e-8 + bound / 4) / 1e-8)
    assert float(p.eps_s) == pytest.approx(18 * bound * 1e-4)
    events = 17 * 49 * 2 * bound**2
    assert float(p.n_samples) == pytest.approx(8 / 3 * math.log(8 * events / 0.05) * (bound / 1e-8) ** 2)
    assert float(p.trajectories) == pytest.approx(154 * bound**2 * float(p.n_samples))


def test_sides_of_the_printed_inequalities():
    """Compare with each inequality of the proof, evaluated independently in float64."""
    eps, gamma, C, d, H, K = 0.01, 0.25, 3, 4, 7, 2
    p = printed(eps, gamma, C, d, H, K)
    log, allowed = math.log(d / eps), gamma**2 * eps / (4 * H)
    B, eps_s, eps_t, eps_r, ridge = 12 * d * log, 96 * C * eps**2 * d * log, gamma**2 * eps / (5 * H), eps**6, eps**2
    N = math.log(1 / eps) * d / eps_r**2
    bound = 2 * d * math.log(d / eps_r)
    sides = {
        "union over actions": (K * eps / H, eps / H),
        "regression": (4 * (C + 2) * eps**2 * B, allowed),
        "oracle, premise": (5 * (C + 3) * eps**2 * B, eps_s),
        "oracle, False": (eps_t + eps_r + eps_r / ridge**2, allowed),
        "norm": ((1 + 0.5 / eps) ** 2, 1 + eps**-4),
        "thresholds": (d * eps_s, eps_t),
        "thresholds, expected": (2 * d * eps_s, eps_t / 2),
        "last step": (float(need(p, "last step").left), bound),
        "cover": (bound, B),
        "samples, moments": (d * B**2 / eps_r**2 * math.log(1 / eps), N),
        "samples, regression": (d / eps**4 * math.log(1 / eps), N),
    }
    assert {one.name: (float(one.left), float(one.right)) for one in p.check()} == {
        name: pytest.approx(both) for name, both in sides.items()
    }
    n = sides["last step"][0]
    assert (n - 1) * math.log(2) + d * math.log(eps_r) == pytest.approx(d * math.log(n + 1))


def test_sides_of_the_corrected_inequalities():
    eps, gamma, C, d, H, K, delta = 0.01, 0.25, 3, 4, 7, 2, 0.05
    p = corrected(eps, gamma, C, d, H, K, delta)
    B, eps_t, eps_s, N = (float(x) for x in (p.cover_bound, p.eps_t, p.eps_s, p.n_samples))
    eps_r, D, allowed = eps**4, 1 + 0.5 / eps, gamma**2 * eps / (4 * H * K)
    once = math.log(17 * H**2 * K * B**2 / delta)
    sides = {
        "regression": (3 * B * (C + 2) * eps**2 + eps_r * D**2, allowed),
        "oracle, premise": (3 * B * (C + 2) * eps**2 + 3 * eps_r * D**2, eps_s),
        "oracle, False": (eps_t + eps_r * D**2 / B, allowed),
        "thresholds, expected": (2 * eps_s, eps_t / 2),
        "cover": (d * math.log(1 + B / (d * eps_r)), (B - 1) * math.log(2)),
        "samples, moments": (8 / 3 * (math.log(2 * d) + once) * (B / eps_r) ** 2, N),
        "samples, noise": ((4 * d + 6 * once) / eps**2, N),
        "samples, bias": (2 * once / eps**4, N),
    }
    assert {one.name: (float(one.left), float(one.right)) for one in p.check()} == {
        name: pytest.approx(both) for name, both in sides.items()
    }


@pytest.mark.parametrize("noise", [0.1, 1, 10])
def test_noise_costs_what_a_sub_gaussian_return_costs(noise):
    """The regression needs 1 + 4 s^2 H times the samples; moments and the bias of values need as many as before."""
    eps, gamma, C, d, H, K, delta = 0.01, 0.25, 3, 4, 7, 2, 0.05
    for make, name, events in ((corrected, "samples, noise", 20 / 17), (printed, "samples, regression", 1)):
        quiet, noisy = make(eps, gamma, C, d, H, K, delta=delta), make(eps, gamma, C, d, H, K, delta=delta, noise=noise)
        before, after = float(need(quiet, name).left), float(need(noisy, name).left)
        more = 6 * math.log(events) / eps**2  # of the union bound
        assert after == pytest.approx((1 + 4 * noise**2 * H) * (before + more))
        assert need(noisy, name).formula == f"(1 + 4 s^2 H) {need(quiet, name).formula}"
        assert need(noisy, "samples, moments").left >= need(quiet, "samples, moments").left
    D = 1 + (1 + noise * math.sqrt(2 * H)) / (2 * eps)
    assert float(need(noisy, "norm").left) == pytest.approx(D**2)
    assert noisy.at(0.005).noise == noisy.noise
    with pytest.raises(ValueError, match="noise: expected noise >= 0"):
        printed(eps, gamma, C, d, H, K, noise=-1)


def test_corrected_cover_bound_is_the_sure_one_for_factor_two():
    for d, epsilon in itertools.product((1, 2, 7, 50), (0.5, 0.1, 1e-3)):
        assert math.floor(corrected(epsilon, d=d).cover_bound) == sure_cover_bound(d, 1.0, epsilon**4)


SIZES = (st.integers(1, 99), st.integers(1, 99), st.integers(1, 9))


@settings(max_examples=10)
@given(st.integers(-300, -8), st.floats(1e-3, 1), st.floats(1, 1e3), *SIZES)
def test_corrected_constants_hold_for_every_small_epsilon(exponent, gamma, C, d, H, K):
    """Only three of the inequalities bound epsilon; the others hold by choice."""
    p = corrected(Decimal(10) ** exponent, gamma, C, d, H, K)
    bounding = {"regression", "oracle, False", "thresholds, expected"}
    assert all(inequality.holds for inequality in p.check() if inequality.name not in bounding)
    largest = p.largest_epsilon()
    assert all(inequality.holds for inequality in p.at(largest).check())
    assert not all(inequality.holds for inequality in p.at(largest * Decimal("1.000001")).check())
    assert all(inequality.holds for inequality in p.check()) == (p.epsilon <= largest)


@pytest.mark.parametrize("make", [printed, corrected])
@pytest.mark.parametrize("sizes", [(0.5, 1, 2, 5, 2), (0.1, 6, 1, 1, 1), (1, 100, 30, 50, 10)])
def test_what_holds_for_some_epsilon_holds_below_it(make, sizes):
    """The bisection of `largest_epsilon` relies on this."""
    grid = [Decimal(-k) / 4 for k in range(4, 150)]
    held = [[inequality.holds for inequality in make(log.exp(), *sizes).check()] for log in grid]
    for by_epsilon in zip(*held, strict=True):
        assert sorted(by_epsilon) == list(by_epsilon)


def test_largest_epsilon_of_the_printed_premise():
    """docs/findings.md, F: eps_s <= eps_t / d holds below 2e-6 and 2e-10, where no sampler draws N trajectories."""
    largest = printed().largest_epsilon("thresholds")
    assert float(largest) == pytest.approx(1.8763e-6, rel=1e-4)
    assert 96 * 2 * float(largest) * math.log(2 / float(largest)) == pytest.approx(0.25 / (5 * 5 * 2))
    at = printed(largest)
    assert at.n_samples > Decimal("1e70")
    assert at.eps_r < Decimal("1e-34")
    assert float(printed(0.1, 0.1, d=10, H=50).largest_epsilon("thresholds")) == pytest.approx(1.679e-10, rel=1e-3)


def test_largest_epsilon_of_the_corrected_constants():
    largest = corrected().largest_epsilon()
    assert float(largest) == pytest.approx(5.7958e-7, rel=1e-4)
    assert largest == corrected(0.01).largest_epsilon()
    assert corrected(largest).n_samples > Decimal("1e55")


def test_no_epsilon_makes_all_of_the_printed_inequalities_hold():
    assert printed().largest_epsilon() is None


@pytest.mark.parametrize(("C", "holds"), [(1, False), (4.99, False), (5, True), (100, True)])
def test_printed_constants_need_c_of_five(C, holds):
    """docs/findings.md, E: 5 (C + 3) 12 <= 96 C, whatever epsilon is."""
    for epsilon in (0.3, 1e-6, 1e-60):
        inequality = need(printed(epsilon, C=C), "oracle, premise")
        assert float(inequality.left / inequality.right) == pytest.approx(60 * (C + 3) / (96 * C))
        assert inequality.holds is holds
    assert (printed(C=C).largest_epsilon("oracle, premise") is not None) is holds


def test_printed_constants_miss_the_union_over_actions():
    assert need(printed(K=1), "union over actions").holds
    inequality = need(printed(1e-30, K=3), "union over actions")
    assert inequality.left == 3 * inequality.right


def test_printed_constants_lack_what_lemma_a6_uses():
    """Lemma A.5 with 2 eps_s and eps_t / 2 needs a ratio four times as large, and lemma A.6 an N with B^2."""
    p = printed(1e-6)
    assert need(p, "thresholds").holds
    assert not need(p, "thresholds, expected").holds
    samples = need(p, "samples, moments")
    assert float(samples.left / samples.right) == pytest.approx(float(p.cover_bound) ** 2)
    # With epsilon = 0.99 the integer N is far from its formula.
    assert printed(0.99, d=1).n_samples == math.ceil(-math.log(0.99) / 0.99**12)


def test_last_step_of_the_potential_lemma_fails_for_large_eps_r_only():
    inequality = need(printed(Decimal("0.01") ** (Decimal(1) / 6)), "last step")
    assert math.floor(inequality.left) == 23
    assert float(inequality.right) == pytest.approx(printed_cover_bound(2, 0.01))
    assert not inequality.holds
    assert need(printed(0.01), "last step").holds


def test_constants_beyond_float64_are_numbers_still():
    p = printed(Decimal("1e-400"))
    assert p.eps_r == Decimal("1e-2400")
    assert f"{p.n_samples:.3g}" == "1.84e+4803"
    assert "E+" in repr(p.n_samples)
    assert len(p.check()) == 11


def test_constants_can_be_given_to_dmq():
    lock = dmq.environments.combination_lock(3, rng=0)
    for p in (printed(), corrected()):
        arguments = p.dmq_arguments()
        assert arguments.keys() == {"ratio", "eps_r", "ridge", "n_samples"}
        assert arguments["n_samples"] == p.n_samples
        parameters = dmq.DMQ(lock, **arguments).parameters
        assert parameters.ratio == pytest.approx(float(p.eps_t / p.eps_s))


NO_FLOAT64 = "expected a number that float64 holds, got"
REFUSALS = [
    (lambda: printed_cover_bound(0, 0.1), ValueError, "dimension: expected an integer >= 1, got 0"),
    (lambda: printed_cover_bound(2.0, 0.1), TypeError, "dimension: expected an integer, got 2.0"),
    (lambda: printed_cover_bound(2, 0.0), ValueError, "eps_r: expected a positive number, got 0.0"),
    (lambda: sure_cover_bound(2.5, 2.0, 0.1), TypeError, "dimension: expected an integer, got 2.5"),
    (lambda: sure_cover_bound(2, -1.0, 0.1), ValueError, "ratio: expected a positive number, got -1.0"),
    (lambda: sure_cover_bound(2, math.inf, 0.1), ValueError, "ratio: expected finite numbers, got inf"),
    (lambda: sure_cover_bound(2, 2.0, "x"), TypeError, "eps_r: "),
    (lambda: sure_cover_bound(2, 2.0, 0.1, -1), ValueError, "initial: expected an integer >= 0, got -1"),
    (lambda: finite_cover_bound(0, 2.0, 0.1), ValueError, "n_functions: expected an integer >= 1, got 0"),
    (lambda: finite_cover_bound(2, 0.0, 0.1), ValueError, "eps_s: expected a positive number, got 0.0"),
    (lambda: finite_cover_bound(2, 0.1, -0.1), ValueError, "eps_t: expected a positive number, got -0.1"),
    (lambda: finite_cover_bound(2, 0.1, 0.1, True), TypeError, "initial: expected an integer, got True"),
    (lambda: ridge_norm_bound(0.0), ValueError, "ridge: expected a positive number, got 0.0"),
    (lambda: corrected(epsilon=0), ValueError, "epsilon: expected 0 < epsilon < 1, got 0"),
    (lambda: corrected(epsilon=1.0), ValueError, "epsilon: expected 0 < epsilon < 1, got 1.0"),
    (lambda: corrected(epsilon=math.nan), ValueError, "epsilon: expected a finite number"),
    (lambda: corrected(epsilon=Decimal("1e-9999999")), ValueError, "epsilon: .* number of at most 1,000,000 digits"),
    (lambda: corrected(epsilon="0.1"), TypeError, "epsilon: expected a number, got '0.1'"),
    (lambda: corrected(gamma=1.5), ValueError, "gamma: expected 0 < gamma <= 1, got 1.5"),
    (lambda: corrected(gamma=True), TypeError, "gamma: expected a number, got True"),
    (lambda: corrected(C=0.5), ValueError, "C: expected C >= 1, got 0.5"),
    (lambda: corrected(delta=1), ValueError, "delta: expected 0 < delta < 1, got 1"),
    (lambda: corrected(d=0), ValueError, "d: expected an integer >= 1, got 0"),
    (lambda: corrected(H=2.0), TypeError, "H: expected an integer, got 2.0"),
    (lambda: corrected(K=True), TypeError, "K: expected an integer, got True"),
    (printed(0.01).dmq_arguments, ValueError, r"n_samples: expected at most 2\^63 - 1, got 9.21e\+24.*exact sampler"),
    (printed(1e-3).dmq_arguments, ValueError, "n_samples: .*eps_r: expected at least 1e-16, .*, got 1e-18; the exact"),
    (printed(gamma=Decimal("1e-200")).dmq_arguments, ValueError, f"ratio: {NO_FLOAT64} 6.95e-404"),
    (printed(C=Decimal("1e400")).dmq_arguments, ValueError, f"ratio: {NO_FLOAT64} 1.74e-404"),
    (
        lambda: printed().largest_epsilon("threshold"),
        ValueError,
        "name: expected one of union .*, got 'threshold'",
    ),
]


def test_what_is_refused_is_named():
    refused((call, error, f"^{words}") for call, error, words in REFUSALS)


def test_numbers_of_numpy_are_taken():
    given = Parameters.from_theorem(
        np.float64(0.1), np.float32(0.5), np.int64(1), np.int64(2), np.int32(5), np.uint8(2)
    )
    assert given == printed()
    with pytest.raises(FrozenInstanceError):
        given.eps_r = Decimal(1)


@settings(max_examples=30)
@given(st.integers(0, 2**32 - 1), st.integers(1, 6), st.floats(0.05, 20), st.floats(1e-8, 1))
def test_accepted_moments_multiply_the_determinant(seed, d, ratio, eps_r):
    """docs/findings.md, C and E: after a True, adding its M2 multiplies the determinant by >= 1 + R."""
    rng = np.random.default_rng(seed)
    s, trues = np.zeros((d, d)), 0
    for _ in range(40):
        m2 = random_moment(rng, d)
        if dsec_decision(s + eps_r * np.eye(d), m2, 1.0, ratio):
            after, before = (np.linalg.slogdet(moment + eps_r * np.eye(d))[1] for moment in (s + m2, s))
            grown = after - before
            assert grown >= math.log1p(ratio) - 1e-9
            s, trues = s + m2, trues + 1
    assert trues <= sure_cover_bound(d, ratio, eps_r)


@given(st.integers(0, 2**32 - 1), st.integers(1, 6))
def test_equal_thresholds_double_the_determinant(seed, d):
    """docs/findings.md, E: a witness x of x^T M x >= eps_t = eps_s >= x^T A x suffices, without the premise's 1/d."""
    rng = np.random.default_rng(seed)
    a, m = random_moment(rng, d) + 1e-3 * np.eye(d), random_moment(rng, d)
    x = rng.normal(size=d)
    # Scaled so that this x is a witness, with equality.
    m *= (x @ a @ x) / (x @ m @ x)
    assert np.linalg.slogdet(a + m)[1] - np.linalg.slogdet(a)[1] >= math.log(2) - 1e-9


def test_doubling_is_tight():
    """A single direction grows by exactly 1 + R, so no larger factor can be guaranteed."""
    a, m = np.diag([0.5, 0.25]), np.diag([0.0, 0.25])
    assert dsec(a, m, 1.0, 1.0).decision
    assert np.linalg.slogdet(a + m)[1] - np.linalg.slogdet(a)[1] == pytest.approx(math.log(2))


def test_the_potential_lemma_fails_for_large_eps_r():
    """docs/findings.md, E: at d = 1, eps_r = 0.5, eps_s = eps_t, M = 0.5 and then M = 1 are accepted, and 2 > 1.39."""
    eps_r, s, accepted = 0.5, np.zeros((1, 1)), 0
    for m in (0.5, 1.0):
        answer = dsec(s + eps_r, np.array([[m]]), 1.0, 1.0)
        assert answer.decision
        assert answer.value == pytest.approx(1.0)
        s, accepted = s + m, accepted + 1
    assert accepted == 2 > printed_cover_bound(1, eps_r) == pytest.approx(1.386, abs=1e-3)


@given(st.integers(0, 2**32 - 1), st.integers(1, 5), st.floats(1e-6, 10))
def test_ridge_norm_bound_holds(seed, d, ridge):
    rng = np.random.default_rng(seed)
    rows = rng.normal(size=(20, d)) * 10.0 ** rng.uniform(-3, 1, size=d)
    rows /= np.maximum(1.0, np.linalg.norm(rows, axis=1, keepdims=True))
    # The worst returns for one direction.
    y = np.sign(rows @ rng.normal(size=d))
    theta = ridge_fit(rows.T @ rows, rows.T @ y, len(rows), ridge)
    assert np.linalg.norm(theta) <= ridge_norm_bound(ridge) * (1 + 1e-9)
    assert ridge_norm_bound(ridge) <= 1 / (2 * math.sqrt(ridge)) * (1 + 1e-15)
    assert ridge_norm_bound(ridge) < 1 / ridge


def test_ridge_norm_bound_is_tight():
    """docs/findings.md, E: features of length sqrt(ridge), or 1 if that is longer, and returns of 1."""
    for ridge in (1e-12, 1e-6, 0.01, 0.5, 1.0, 4.0):
        rows = np.full((10, 1), min(1.0, math.sqrt(ridge)))
        theta = ridge_fit(rows.T @ rows, rows.sum(axis=0), 10, ridge)
        assert theta == pytest.approx([ridge_norm_bound(ridge)])
        if ridge <= 1:
            assert theta == pytest.approx([1 / (2 * math.sqrt(ridge))])
