"""The DSEC oracle: decision, value and witness against the eigenproblem they stand for."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
import scipy.linalg
import twins
from hypothesis import given, settings
from hypothesis import strategies as st

from dmq_fast.kernels import DsecResult, ShiftScan, dsec, dsec_decision

EPS = np.finfo(np.float64).eps
DIMENSIONS = [1, 2, 3, 8, 15, 16, 17, 18, 40]  # plain Cholesky loops up to 16, LAPACK above


def moment(rng, d, n=None):
    """Second moment of n features of norm at most 1."""
    rows = rng.normal(size=(n or 2 * d, d))
    rows /= np.maximum(1, np.linalg.norm(rows, axis=1, keepdims=True))
    out = rows.T @ rows / len(rows)
    return (out + out.T) / 2


def pair(seed, d, eps_r=1e-2, n1=None, n2=None):
    rng = np.random.default_rng(seed)
    return moment(rng, d, n1) + eps_r * np.eye(d), moment(rng, d, n2)


def value_error(m1, value):
    """Bound on the error of a value: d eps cond(M1), with a factor for the constants of LAPACK."""
    return 20 * len(m1) * EPS * np.linalg.cond(m1) * value


def check(m1, m2, eps1, eps2):
    """One call against the twin and against its certificates."""
    answer = dsec(m1, m2, eps1, eps2)
    _, value, _ = twins.dsec(m1, m2, eps1, eps2)
    allowed = value_error(m1, max(value, eps1 * np.abs(m2).max() / np.abs(m1).max()))
    assert abs(answer.value - value) <= allowed
    x = answer.witness
    assert x.shape == (len(m1),)
    # x^T M1 x = eps1 and x^T M2 x = v
    assert abs(x @ m1 @ x - eps1) <= 20 * len(m1) * EPS * np.linalg.cond(m1) * eps1
    assert abs(x @ m2 @ x - answer.value) <= allowed
    # no direction does better: v M1 - eps1 M2 is positive semidefinite
    smallest = np.linalg.eigvalsh(answer.value * m1 - eps1 * m2)[0]
    assert smallest >= -allowed * np.linalg.norm(m1, 2)
    assert answer.decision == dsec_decision(m1, m2, eps1, eps2)
    if abs(value - eps2) > allowed:
        assert answer.decision == (value >= eps2)
    return answer


@pytest.mark.parametrize("d", DIMENSIONS)
@pytest.mark.parametrize("eps1", [0.01, 1.0, 3.7])
def test_answer_satisfies_its_certificates(d, eps1):
    m1, m2 = pair(d, d)
    value = twins.dsec_value(m1, m2, eps1)
    for eps2 in (value * 0.9, value * (1 - 1e-9), value * (1 + 1e-9), value * 1.1):
        check(m1, m2, eps1, eps2)


@settings(deadline=None, max_examples=150)
@given(
    st.integers(1, 24),
    st.integers(1, 40),
    st.integers(1, 40),
    st.floats(1e-6, 1.0),
    st.floats(0.01, 100),
    st.floats(0.01, 100),
    st.integers(0, 2**32),
)
def test_random_moments(d, n1, n2, eps_r, eps1, eps2, seed):
    check(*pair(seed, d, eps_r, n1, n2), eps1, eps2)


def test_factorisation_decides_like_the_eigenvalue():
    """5,120 pairs over d = 1 .. 40, half of them within 1e-3 of the threshold."""
    rng = np.random.default_rng(1)
    answers = []
    for d in range(1, 41):
        for trial in range(128):
            n1, n2 = rng.integers(1, 3 * d + 2, size=2)
            m1, m2 = moment(rng, d, n1) + 10.0 ** rng.uniform(-6, 0) * np.eye(d), moment(rng, d, n2)
            value = scipy.linalg.eigh(m2, m1, eigvals_only=True, check_finite=False)[-1]
            shift = rng.uniform(-1e-3, 1e-3) if trial % 2 else rng.uniform(-0.9, 3)
            eps2 = value * (1 + shift)
            if abs(shift) * value <= value_error(m1, value):
                continue
            answers.append(dsec_decision(m1, m2, 1.0, eps2))
            assert answers[-1] == (value >= eps2), (d, trial)
    assert len(answers) >= 5000
    assert 0.3 < np.mean(answers) < 0.7


@pytest.mark.parametrize("d", DIMENSIONS)
def test_value_is_invariant_under_congruence(d):
    m1, m2 = pair(d, d, eps_r=0.1)
    t = np.random.default_rng(d).normal(size=(d, d)) + 2 * d * np.eye(d)
    moved = dsec(t @ m1 @ t.T, t @ m2 @ t.T, 1, 1).value
    allowed = value_error(m1, moved) * np.linalg.cond(t) ** 2
    assert abs(moved - dsec(m1, m2, 1, 1).value) <= allowed


@pytest.mark.parametrize("d", DIMENSIONS)
def test_no_states_behind_m2(d):
    answer = check(np.eye(d), np.zeros((d, d)), 2.0, 1e-250)
    assert answer.value == 0.0 and answer.decision is False
    assert np.isfinite(answer.witness).all()


@pytest.mark.parametrize("d", DIMENSIONS)
def test_rank_one(d):
    phi = np.random.default_rng(d).normal(size=d)
    m1 = pair(d, d, 0.5)[0]
    value = phi @ np.linalg.solve(m1, phi)
    answer = check(m1, np.outer(phi, phi), 1.0, value * 0.99)
    assert answer.value == pytest.approx(value, rel=1e-12) and answer.decision is True
    # the witness is M1^{-1} phi up to scale
    direction = np.linalg.solve(m1, phi)
    cosine = answer.witness @ direction / np.linalg.norm(answer.witness) / np.linalg.norm(direction)
    assert abs(cosine) == pytest.approx(1, abs=1e-12)


@pytest.mark.parametrize("d", DIMENSIONS)
def test_repeated_top_eigenvalues(d):
    q = np.linalg.qr(np.random.default_rng(d).normal(size=(d, d)))[0]
    for multiplicity in {1, (d + 1) // 2, d}:
        spectrum = np.where(np.arange(d) < multiplicity, 3.0, 0.5)
        m2 = q * spectrum @ q.T
        assert check(np.eye(d), (m2 + m2.T) / 2, 1.0, 2.0).value == pytest.approx(3.0, rel=1e-13)
    assert check(np.eye(d), 3 * np.eye(d), 1.0, 3.0).value == 3.0


@pytest.mark.parametrize("d", DIMENSIONS)
@pytest.mark.parametrize("spread", [1e-15, 1e-12, 1e-6])
def test_clustered_eigenvalues(d, spread):
    q = np.linalg.qr(np.random.default_rng(d).normal(size=(d, d)))[0]
    m2 = q * (1 - spread * np.arange(d)) @ q.T
    assert check(np.eye(d), (m2 + m2.T) / 2, 1.0, 0.5).value == pytest.approx(1.0, rel=1e-13)


@pytest.mark.parametrize("d", DIMENSIONS)
def test_a_value_equal_to_the_threshold_is_true(d):
    rng = np.random.default_rng(d)
    below = np.diag(rng.integers(0, 6, size=d).astype(float))
    below[rng.integers(d), :] = 0
    m2 = below.copy()
    i = int(rng.integers(d))
    m2[i, i] = 6.0
    m1 = 2.0 * np.eye(d)
    above = np.nextafter(3.0, 4.0)
    for decide in (dsec_decision, lambda *arguments: dsec(*arguments).decision):
        assert decide(m1, m2, 1.0, 3.0) is True
        assert decide(m1, m2, 0.5, 1.5) is True
        assert decide(m1, m2, 1.0, above) is False
    # off the diagonal: (1, 1) / sqrt(2) has lambda = 3 against M1 = 1
    if d >= 2:
        m2 = np.eye(d)
        m2[:2, :2] = [[2, 1], [1, 2]]
        assert dsec_decision(np.eye(d), m2, 1.0, 3.0) is True
        assert dsec(np.eye(d), m2, 1.0, 3.0).decision is True
        assert dsec_decision(np.eye(d), m2, 1.0, above) is False


@pytest.mark.parametrize("d", DIMENSIONS)
@pytest.mark.parametrize("scale", [1e-150, 1e-20, 1e20, 1e150])
def test_common_scale_cancels(d, scale):
    m1, m2 = pair(d, d)
    expected = dsec(m1, m2, 1.0, 1.0)
    answer = check(m1 * scale, m2 * scale, 1.0, 1.0)
    assert answer.decision == expected.decision
    assert abs(answer.value - expected.value) <= value_error(m1, expected.value)
    for eps2 in (0.999 * expected.value, 1.001 * expected.value):
        assert dsec_decision(m1 * scale, m2 * scale, scale, eps2 * scale) == (eps2 < expected.value)


@pytest.mark.parametrize("d", DIMENSIONS)
@pytest.mark.parametrize("power", [-150, -20, 20, 150])
def test_unequal_scales(d, power):
    m1, m2 = pair(d, d)
    expected = dsec(m1, m2, 1.0, 1.0).value
    answer = dsec(m1, m2 * 10.0**power, 1.0, 10.0**power)
    assert answer.value / 10.0**power == pytest.approx(expected, rel=value_error(m1, 1.0))
    answer = dsec(m1 * 10.0**-power, m2 * 10.0**power, 1.0, 1.0)
    assert answer.value / 10.0**power / 10.0**power == pytest.approx(expected, rel=value_error(m1, 1.0))
    assert answer.decision == (power > 0)


@pytest.mark.parametrize("d", DIMENSIONS)
def test_results_beyond_float64_are_one_clear_error(d):
    tiny, huge = 1e-200 * np.eye(d), 1e200 * np.eye(d)
    with pytest.raises(ValueError, match=r"^m1, m2: .*overflows; rescale"):
        dsec(tiny, huge, 1.0, 1.0)
    assert dsec_decision(tiny, huge, 1.0, 1.0) is True
    with pytest.raises(ValueError, match=r"^m1, m2: .*overflows; rescale"):
        dsec(np.eye(d), np.eye(d) * 1e10, 1e300, 1e10)
    for oracle in (dsec, dsec_decision):
        with pytest.raises(ValueError, match=r"^m1, m2: .*overflows; rescale"):
            oracle(huge, huge, 1.0, 1e200)
        with pytest.raises(ValueError, match=r"^m1: .*underflows; rescale"):
            oracle(tiny, 0 * tiny, 1.0, 1e-200)
        for eps1, eps2 in ((1e-300, 1e300), (1e300, 1e-300)):
            with pytest.raises(ValueError, match=r"^eps1, eps2: expected a ratio within the range"):
                oracle(np.eye(d), np.eye(d), eps1, eps2)


@pytest.mark.parametrize("d", [2, 5, 16, 17, 40])
@pytest.mark.parametrize("relative", [1e-6, 1e-10, 1e-14, 1e-16])
def test_small_regularisers_still_decide(d, relative):
    """M1 = e1 e1^T + eps_r I: a state along e_d has v = weight / eps_r, one along e_1 about 1."""
    s = np.zeros((d, d))
    s[0, 0] = 1.0
    for weight in (0.5, 0.99, 1.01, 2.0):
        fresh = np.zeros((d, d))
        fresh[-1, -1] = weight * relative
        known = np.zeros((d, d))
        known[0, 0] = weight
        for m2, value in ((fresh, weight), (known, weight / (1 + relative))):
            assert dsec_decision(s + relative * np.eye(d), m2, 1.0, 1.0) is (weight > 1)
            level, values = ShiftScan(d, 1.0, relative, True).scan(s[None], m2[None], 1, 0, 0, 0)
            assert (level == 0) is (weight > 1)
            assert values == [pytest.approx(value, rel=1e-12)]
            assert ShiftScan(d, 1.0, relative, False).scan(s[None], m2[None], 1, 0, 0, 0) == (level, [])


@pytest.mark.parametrize("d", [2, 5, 16, 17, 40])
@pytest.mark.parametrize("relative", [1e-6, 1e-10, 1e-12, 1e-14, 1e-16])
def test_unseen_directions_are_found_whatever_the_basis(d, relative):
    """Half of a rotated basis is covered; weight on the other half is a shift, on that half it is not."""
    rng = np.random.default_rng(d)
    for _ in range(20):
        q = np.linalg.qr(rng.normal(size=(d, d)))[0]
        seen, unseen = q[:, : d // 2], q[:, d // 2 :]
        s = seen @ seen.T
        m1 = s + relative * np.eye(d)
        fresh = unseen @ unseen.T * 100 * d * max(relative, EPS)
        assert dsec_decision(m1, 0.5 * s + fresh, 1.0, 1.0) is True
        if relative > 100 * d * EPS:
            assert dsec_decision(m1, 0.5 * s, 1.0, 1.0) is False


@pytest.mark.parametrize("d", DIMENSIONS)
def test_singular_m1(d):
    m1 = np.eye(d)
    m1[-1, -1] = 0.0
    with pytest.raises(np.linalg.LinAlgError, match=rf"m1: not positive definite \(leading minor {d}\)"):
        dsec(m1, np.eye(d), 1, 1)
    assert dsec_decision(m1, np.eye(d), 1, 1) is True
    m1[-1, -1] = -1.0
    with pytest.raises(np.linalg.LinAlgError, match="add a regulariser"):
        dsec(m1, np.eye(d), 1, 1)
    assert dsec_decision(m1, np.zeros((d, d)), 1, 1) is True


def test_one_dimension_by_hand():
    answer = dsec([[4.0]], [[6.0]], 2.0, 3.0)
    assert isinstance(answer, DsecResult)
    assert answer == (True, 3.0, np.array([np.sqrt(0.5)]))
    assert dsec([[4.0]], [[6.0]], 2.0, 3.1).decision is False


@pytest.mark.parametrize("oracle", [dsec, dsec_decision])
class TestArguments:
    @pytest.mark.parametrize("d", [3, 17])
    def test_every_layout_gives_the_same_answer(self, oracle, d):
        m1, m2 = 2 * np.eye(d) + np.ones((d, d)), np.ones((d, d)) + np.diag(np.arange(d))
        expected = oracle(m1, m2, 0.5, 2.0)
        for first in twins.layouts(m1).values():
            assert same(oracle(first, m2, 0.5, 2.0), expected)
        for second in twins.layouts(m2).values():
            assert same(oracle(m1, second, np.float32(0.5), np.int8(2)), expected)
        assert same(oracle(np.eye(d, dtype=bool), m2, 1, True), oracle(np.eye(d), m2, 1, 1))

    @pytest.mark.parametrize("d", [3, 17])
    def test_inputs_are_left_alone(self, oracle, d):
        m1, m2 = pair(d, d)
        before = m1.tobytes(), m2.tobytes()
        oracle(m1, m2, 1, 1)
        oracle(m1, m1, 1, 1)
        assert (m1.tobytes(), m2.tobytes()) == before

    def test_only_lower_triangles_are_read(self, oracle):
        m1, m2 = pair(4, 5)
        assert same(oracle(np.tril(m1), np.tril(m2), 1, 1), oracle(m1, m2, 1, 1))

    def test_what_is_not_a_number_is_named(self, oracle):
        eye = np.eye(3)
        for bad in twins.no_numbers(eye).values():
            with pytest.raises(TypeError, match=r"^m1: expected"):
                oracle(bad, eye, 1, 1)
            with pytest.raises(TypeError, match=r"^m2: expected"):
                oracle(eye, bad, 1, 1)
        for bad in twins.no_numbers(1.0).values():
            with pytest.raises(TypeError, match=r"^eps1: expected"):
                oracle(eye, eye, bad, 1)
            with pytest.raises(TypeError, match=r"^eps2: expected"):
                oracle(eye, eye, 1, bad)

    def test_what_is_not_finite_is_named(self, oracle):
        eye = np.eye(3)
        for bad in twins.not_finite(eye):
            with pytest.raises(ValueError, match=r"^m1: expected finite"):
                oracle(bad, eye, 1, 1)
            with pytest.raises(ValueError, match=r"^m2: expected finite"):
                oracle(eye, bad, 1, 1)
        for bad in twins.not_finite(1.0):
            with pytest.raises(ValueError, match=r"^eps1: expected finite"):
                oracle(eye, eye, bad, 1)
            with pytest.raises(ValueError, match=r"^eps2: expected finite"):
                oracle(eye, eye, 1, bad)

    @pytest.mark.parametrize("bad", [0, -1, 0.0, -0.0, -1e-300])
    def test_tolerances_are_positive(self, oracle, bad):
        with pytest.raises(ValueError, match=r"^eps1: expected a positive number"):
            oracle(np.eye(2), np.eye(2), bad, 1)
        with pytest.raises(ValueError, match=r"^eps2: expected a positive number"):
            oracle(np.eye(2), np.eye(2), 1, bad)

    @pytest.mark.parametrize("shape", [(), (2,), (2, 3), (3, 2), (0, 0), (0, 2), (2, 0), (1, 2, 2)])
    def test_wrong_shapes_are_named(self, oracle, shape):
        with pytest.raises(ValueError, match=r"^m1: expected shape"):
            oracle(np.ones(shape), np.eye(2), 1, 1)
        with pytest.raises(ValueError, match=r"^m2: expected shape \(2, 2\)"):
            oracle(np.eye(2), np.ones(shape), 1, 1)


def same(one, other):
    if isinstance(one, DsecResult):
        return one[:2] == other[:2] and (one.witness == other.witness).all()
    return one == other


class TestShiftScan:
    HORIZON, BASE = 6, 2

    def problem(self, d, seed):
        rng = np.random.default_rng(seed)
        cover = np.array([moment(rng, d) * rng.uniform(0.5, 3) for _ in range(self.HORIZON)])
        grams = np.array([moment(rng, d, 1 + d // 2) for _ in range(self.HORIZON - self.BASE)])
        return cover, grams * 50

    @pytest.mark.parametrize("d", DIMENSIONS)
    @pytest.mark.parametrize("seed", range(8))
    def test_scan_stops_where_the_twin_does(self, d, seed):
        cover, grams = self.problem(d, seed)
        eps_r = 0.05
        top, bottom = self.HORIZON - 1, self.BASE
        every = twins.scan(cover, grams, 50, self.BASE, top, bottom, np.inf, eps_r)[1]
        for ratio in [value * (1 + shift) for value in every for shift in (-1e-3, -1e-9, 1e-9, 1e-3)]:
            level, values = twins.scan(cover, grams, 50, self.BASE, top, bottom, ratio, eps_r)
            by_value = ShiftScan(d, ratio, eps_r, True).scan(cover, grams, 50, self.BASE, top, bottom)
            assert by_value[0] == level
            assert by_value[1] == pytest.approx(values, rel=1e-10)
            by_factor = ShiftScan(d, ratio, eps_r, False).scan(cover, grams, 50, self.BASE, top, bottom)
            assert by_factor == (level, [])

    @pytest.mark.parametrize("with_values", [False, True])
    def test_scan_agrees_with_the_oracle(self, with_values):
        d, eps_r = 5, 0.1
        cover, grams = self.problem(d, 3)
        scan = ShiftScan(d, 2.0, eps_r, with_values)
        for level in range(self.BASE, self.HORIZON):
            m1, m2 = cover[level] + eps_r * np.eye(d), grams[level - self.BASE] / 50
            found = scan.scan(cover, grams, 50, self.BASE, level, level)[0]
            assert (found == level) == dsec_decision(m1, m2, 0.5, 1.0)

    @pytest.mark.parametrize("with_values", [False, True])
    def test_nothing_to_scan(self, with_values):
        cover, grams = self.problem(2, 0)
        assert ShiftScan(2, 1.0, 1.0, with_values).scan(cover, grams, 50, 2, 2, 3) == (-1, [])

    @pytest.mark.parametrize("with_values", [False, True])
    def test_inputs_are_left_alone_and_may_be_read_only(self, with_values):
        cover, grams = self.problem(17, 0)
        before = cover.tobytes(), grams.tobytes()
        cover.flags.writeable = grams.flags.writeable = False
        scan = ShiftScan(17, 1e6, 0.1, with_values)
        assert scan.scan(cover, grams, 50, 2, 5, 2) == scan.scan(cover, grams, 50, 2, 5, 2)
        assert (cover.tobytes(), grams.tobytes()) == before

    @pytest.mark.parametrize("with_values", [False, True])
    @pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
    def test_moments_that_are_not_finite_name_the_level(self, with_values, bad):
        scan = ShiftScan(3, 1e6, 0.1, with_values)
        for which in range(2):
            for entry in ((2, 2), (1, 0)):
                arrays = self.problem(3, 0)
                arrays[which][(3 if which == 0 else 3 - self.BASE, *entry)] = bad
                with pytest.raises(ValueError, match="level 3: a second moment is not finite"):
                    scan.scan(*arrays, 50, self.BASE, 5, 2)

    def test_eigenvalue_overflow_names_the_level(self):
        huge = np.full((1, 1, 1), 1e200)
        with pytest.raises(ValueError, match=r"level 0: .*the eigenvalue overflows"):
            ShiftScan(1, 1.0, 1e-200, True).scan(0 * huge, huge, 1, 0, 0, 0)
        assert ShiftScan(1, 1.0, 1e-200, False).scan(0 * huge, huge, 1, 0, 0, 0) == (0, [])

    @pytest.mark.parametrize("with_values", [False, True])
    def test_a_cover_that_float64_cannot_regularise_is_a_shift(self, with_values):
        cover = np.ones((1, 2, 2))
        scan = ShiftScan(2, 1.0, 1e-18, with_values)
        level, values = scan.scan(cover, np.eye(2)[None], 1, 0, 0, 0)
        assert level == 0 and values == [np.inf] * with_values

    @pytest.mark.parametrize(
        "arguments",
        [
            {"n": 0},
            {"n": -1},
            {"n": np.nan},
            {"n": np.inf},
            {"base": -1},
            {"base": 3},
            {"bottom": 1},
            {"top": 6},
            {"cover": np.zeros((6, 3, 3))},
            {"cover": np.zeros((6, 2, 3))},
            {"grams": np.zeros((4, 3, 2))},
            {"grams": np.zeros((0, 2, 2))},
            {"cover": np.zeros((0, 2, 2))},
            {"grams": np.zeros((3, 2, 2))},
            {"cover": np.zeros((6, 0, 0)), "grams": np.zeros((4, 0, 0))},
        ],
        ids=str,
    )
    def test_what_does_not_fit_is_an_error(self, arguments):
        cover, grams = self.problem(2, 0)
        given = {"cover": cover, "grams": grams, "n": 50, "base": 2, "top": 5, "bottom": 2} | arguments
        with pytest.raises(ValueError, match="do not fit together"):
            ShiftScan(2, 1.0, 1.0, False).scan(**given)

    @pytest.mark.parametrize("name", ["cover", "grams"])
    @pytest.mark.parametrize("kind", ["float32", "complex128", "object", "int64"])
    def test_other_types_are_refused(self, name, kind):
        cover, grams = self.problem(2, 0)
        given = {"cover": cover, "grams": grams} | {name: np.ones((6, 2, 2)).astype(kind)}
        with pytest.raises(ValueError, match="Buffer dtype mismatch"):
            ShiftScan(2, 1.0, 1.0, False).scan(**given, n=50, base=2, top=5, bottom=2)
        given[name] = None
        with pytest.raises(TypeError, match=f"{name}.*None"):
            ShiftScan(2, 1.0, 1.0, False).scan(**given, n=50, base=2, top=5, bottom=2)

    @pytest.mark.parametrize("bad", [0, -1.0, np.nan, np.inf])
    def test_parameters_are_named(self, bad):
        with pytest.raises(ValueError, match=r"^ratio: expected"):
            ShiftScan(2, bad, 1.0, False)
        with pytest.raises(ValueError, match=r"^eps_r: expected"):
            ShiftScan(2, 1.0, bad, False)

    def test_sizes_and_products_are_named(self):
        for d in (0, -1):
            with pytest.raises(ValueError, match=r"^dimension"):
                ShiftScan(d, 1.0, 1.0, False)
        for ratio, eps_r in ((1e-200, 1e-200), (1e200, 1e200)):
            with pytest.raises(ValueError, match=r"^ratio, eps_r"):
                ShiftScan(2, ratio, eps_r, False)
        scan = ShiftScan(3, 2.0, 0.5, True)
        assert (scan.dimension, scan.ratio, scan.eps_r, scan.with_values) == (3, 2.0, 0.5, True)


def test_no_floating_point_warning_reaches_the_caller():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(ValueError):
            dsec(1e-200 * np.eye(2), 1e200 * np.eye(2), 1e200, 1e-50)
