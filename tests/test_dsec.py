"""The DSEC oracle: decision, value and witness against the eigenproblem they stand for."""

from __future__ import annotations

import itertools
import operator
import warnings
from fractions import Fraction

import numpy as np
import pytest
import twins
from hypothesis import strategies as st
from properties import for_all, refuses, seeds

from dmq_fast.kernels import ShiftScan, dsec, dsec_decision, dsec_rows, dsec_value

pytestmark = pytest.mark.kernels

EPS = np.finfo(np.float64).eps
# Plain elimination below 12, Cholesky loops and stack memory up to 16, LAPACK and the heap above.
DIMENSIONS = [1, 2, 8, 11, 12, 16, 17, 40]
dimensions = st.sampled_from([*DIMENSIONS, 3, 15, 70])


def moment(rng, d, n=None):
    """Second moment of n features of norm at most 1."""
    rows = rng.normal(size=(n or 2 * d, d))
    rows /= np.maximum(1, np.linalg.norm(rows, axis=1, keepdims=True))
    out = rows.T @ rows / len(rows)
    return (out + out.T) / 2


def pair(seed, d, eps_r=1e-2, n1=None, n2=None):
    rng = np.random.default_rng(seed)
    return moment(rng, d, n1) + eps_r * np.eye(d), moment(rng, d, n2)


def definite(m1, m2, eps1, eps2):
    """Whether eps2 m1 - eps1 m2 is positive definite, in fractions; rows of zeros in both left out."""
    kept = [i for i in range(len(m1)) if m1[i, i] != 0 or m2[i, i] != 0]
    upper1, upper2 = (twins.fractions(np.triu(m)[np.ix_(kept, kept)]) for m in (m1, m2))
    return not twins.is_shift(upper1, upper2, Fraction(float(eps2)), Fraction(float(eps1)))


def exact(m1, m2, eps1, eps2):
    """The answer of a scan, with its flag: for the entries given, without a view on their rounding."""
    scan = ShiftScan(len(m1), eps1, eps2, 0.0, False)
    level, _ = scan.scan(np.ascontiguousarray(m1)[None], np.ascontiguousarray(m2)[None], 1, 0, 0, 0)
    return level == 0, scan.n_marginal == 1


def decide(m1, m2, eps1, eps2):
    """An answer with its flag; without the flag it is checked to be right, and a public decision to be the same."""
    decision, marginal = exact(m1, m2, eps1, eps2)
    assert marginal or decision is not definite(m1, m2, eps1, eps2), (len(m1), eps1, eps2)
    public = dsec_decision(m1, m2, eps1, eps2, return_marginal=True)
    assert public[1] or public == (decision, marginal)
    return decision, marginal


def threshold(m1, m2):
    """Neighbouring floats lo, hi between which decisions for eps1 = 1 turn from True to False; None for none."""
    lo, hi = 0, int(np.float64(np.finfo(np.float64).max).view(np.int64))
    if exact(m1, m2, 1.0, float(np.int64(hi).view(np.float64)))[0]:
        return None
    while hi - lo > 1:
        middle = (lo + hi) // 2
        lo, hi = (middle, hi) if exact(m1, m2, 1.0, float(np.int64(middle).view(np.float64)))[0] else (lo, middle)
    return float(np.int64(lo).view(np.float64)), float(np.int64(hi).view(np.float64))


def rotated(rng, spectrum):
    q = np.linalg.qr(rng.normal(size=(len(spectrum), len(spectrum))))[0]
    out = q * spectrum @ q.T
    return (out + out.T) / 2


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


@for_all(
    d=st.one_of(st.integers(1, 24), dimensions),
    counts=st.tuples(st.integers(1, 40), st.integers(1, 40)),
    eps_r=st.floats(1e-6, 1.0),
    eps1=st.floats(0.01, 100),
    scales=st.sampled_from([(0, 0), (-150, -150), (150, 150), (0, 150), (0, -150), (-150, 0), (20, -20)]),
    factor=st.one_of(st.floats(0.01, 100), st.sampled_from([0.9, 1 - 1e-9, 1 + 1e-9, 1.1])),
    seed=seeds,
)
def test_answers_satisfy_their_certificates(d, counts, eps_r, eps1, scales, factor, seed):
    m1, m2 = pair(seed, d, eps_r, *counts)
    first, second = (10.0**power for power in scales)
    check(m1 * first, m2 * second, eps1, twins.dsec_value(m1, m2, eps1) * factor * second / first)


@for_all(power=st.integers(0, 12), d=st.integers(1, 24), seed=seeds, quick=25, slow=500)
def test_value_and_witness_against_the_exact_threshold(power, d, seed):
    rng = np.random.default_rng(seed)
    m1, m2 = rotated(rng, 10.0 ** np.linspace(-power, 0, d)), moment(rng, d, int(rng.integers(1, 2 * d + 1)))
    lo, hi = threshold(m1, m2)
    assert not definite(m1, m2, 1.0, lo) and definite(m1, m2, 1.0, hi)
    answer = check(m1, m2, 1.0, lo)
    allowed = value_error(m1, lo)
    assert abs(answer.value - lo) <= allowed and abs(dsec_value(m1, m2, 1.0) - lo) <= allowed


# Decisions, against exact rational arithmetic on the numbers given: none is wrong without a flag

KINDS = ("rotated", "graded", "rows", "gram", "integers", "regularised", "singular", "beyond")


def instance(rng, d, kind):
    """M1 and M2, and log10 of the condition number of M1 (before it is graded)."""
    power = rng.uniform(0, 16)
    count = int(rng.integers(1, 2 * d + 1))
    m2 = moment(rng, d, count)
    if kind == "rows":
        # About 0 .. 8, and 16 where the sample is small.
        return moment(rng, d, d + int(rng.integers(0, d + 1))), m2, None
    if kind == "gram":
        # As it comes: of a deficient rank, and perhaps indefinite by its rounding.
        rows = rng.normal(size=(d // 2 + 1, d))
        return rows.T @ rows, [rows.T @ rows * 0.5, moment(rng, d, 1)][int(rng.integers(2))], None
    if kind == "integers":
        # Ties, rows of zeros and exact singularity are common here.
        m1, m2 = (rng.integers(-2, 3, size=(rng.integers(1, d + 2), d)).astype(float) for _ in range(2))
        return m1.T @ m1, m2.T @ m2, None
    if kind == "regularised":
        m1 = moment(rng, d, int(rng.integers(1, d + 1)))
        return m1 + 10.0**-power * np.eye(d), m2, power
    if kind == "singular":
        # Integers are exact: rank below d without doubt.
        rows = rng.integers(-3, 4, size=(max(1, d - 1 - int(rng.integers(0, 2))), d)).astype(float)
        kernel = rng.integers(-3, 4, size=(2, d)).astype(float)
        return rows.T @ rows, [rows.T @ rows * 0.75, kernel.T @ kernel, m2][int(rng.integers(3))], None
    if kind == "beyond":
        power = rng.uniform(16, 40)
    m1 = rotated(rng, 10.0 ** np.linspace(-power, 0, d)) if d > 1 else np.array([[10.0**-power]])
    if kind in ("graded", "beyond"):
        units = 2.0 ** rng.integers(-40, 41, size=d)
        m1, m2 = m1 * units * units[:, None], m2 * units * units[:, None]
    return m1, m2, power


@for_all(kind=st.sampled_from(KINDS), d=st.integers(1, 14), seed=seeds, quick=60)
def test_decisions(kind, d, seed):
    rng = np.random.default_rng(seed)
    m1, m2, power = instance(rng, d, kind)
    for eps2 in (1e-3, 0.5, 1.0, 2.0, 3.0, 1e13, 1e16):
        decide(m1, m2, 1.0, eps2)
    found = threshold(m1, m2)
    if found is None or found[0] > 1e300:
        for eps2 in 10.0 ** rng.uniform(-20, 20, size=5):
            decide(m1, m2, 1.0, eps2)
        return
    lo, hi = found
    steps = 10.0 ** rng.uniform(-16, -12, size=2)
    for eps2 in (lo, hi, np.nextafter(lo, 0), *(lo * (1 - steps)), *(hi * (1 + steps)), hi * (1 + 2 * EPS)):
        if eps2 > 0:
            # Double-double arithmetic sees a relative 1e-27 of the condition number.
            marginal = decide(m1, m2, 1.0, eps2)[1]
            assert not (marginal and power is not None and power <= 9), (d, power, eps2 / lo - 1)
    for factor in (*(1 - 10.0 ** rng.uniform(-9, 0, size=2)), *(1 + 10.0 ** rng.uniform(-9, 2, size=2))):
        if lo > 0:
            eps1 = 2.0 ** rng.uniform(-1, 1)
            marginal = decide(m1, m2, eps1, lo * factor * eps1)[1]
            assert not (marginal and power is not None and power <= 15), (d, power, factor)


@for_all(d=st.sampled_from([1, 2, 5, 13, 17, 24]), seed=seeds, quick=20, slow=500)
def test_units_change_no_decision(d, seed):
    """D M D with D up to 2^+-500 for both, and powers of two on either: the same decisions, to the last bit."""
    rng = np.random.default_rng(seed)
    m1, m2 = pair(seed, d, 1e-4)
    lo, hi = threshold(m1, m2)
    powers = rng.integers(-500, 501, size=d)
    first, second = (np.ldexp(m, powers + powers[:, None]) for m in (m1, m2))
    assert (np.abs(first) > 1e-307).all() and np.isfinite(second).all()
    for eps2 in (lo / 2, lo, hi, 2 * hi):
        expected = decide(m1, m2, 1.0, eps2)
        assert dsec_decision(first, second, 1.0, eps2, return_marginal=True) == expected
        for one, two in ((-900, 0), (900, 0), (0, -900), (0, 900), (-500, 400), (-200, 600)):
            if two - one < 1000:
                scaled = np.ldexp(m1, one), np.ldexp(m2, two), 1.0, np.ldexp(eps2, two - one)
                assert dsec_decision(*scaled, return_marginal=True) == expected


@pytest.mark.parametrize("d", [1, 3, 13])
def test_decisions_at_the_ends_of_float64(d):
    m1, m2 = pair(d, d)
    tiny, huge = 5e-324, 1e308
    assert decide(m1, m2, tiny, huge) == (False, False)
    assert decide(m1, m2, huge, tiny) == (True, False)
    assert decide(m1 * 1e-150, m2 * 1e150, tiny, huge) == (False, False)
    assert decide(m1 * 1e-300, m2 * 1e-300, tiny, tiny) == decide(m1, m2, 1.0, 1.0)
    eye, column = np.eye(d), np.full(d, 1e-160)
    for first, second, eps1, eps2, expected in (
        (eye * 5e-324, 3 * 5e-324 * eye, 1.0, 2.9, True),  # subnormal numbers
        (eye * 5e-324, 3 * 5e-324 * eye, 1.0, 3.1, False),
        (eye, 3 * 5e-324 * eye, 1.0, 1e-322, False),
        (eye, 3 * 5e-324 * eye, 1.0, 5e-324, True),
        (eye, 3 * 5e-324 * eye, 5e-324, 5e-324, False),
        (eye, np.outer(column, column), 1.0, 1e-318, False),
        (eye, np.outer(column, column), 1.0, d * 0.9e-320, True),
        (eye * 1.7e308, eye * 1.7e308, 1.0, 1 - EPS, True),  # huge ones
        (eye * 1.7e308, eye * 1.7e308, 1.0, 1 + EPS, False),
        (eye * 1.7e308, np.full((d, d), 1e308), 1.0, 0.58 * d, True),
        (eye * 1.7e308, np.full((d, d), 1e308), 1.0, 0.59 * d, False),
    ):
        assert decide(first, second, eps1, eps2) == (expected, False)


@pytest.mark.parametrize("d", [2, 3, 12, 17])
def test_a_tiny_row_counts(d):
    """What underflows in float64 is no row of zeros: m1 is nearly singular there."""
    m1, m2 = np.eye(d), np.zeros((d, d))
    # The Schur complement of the last coordinate is 1/4.
    m1[0, 0], m1[0, -1] = 2.0**-300, np.sqrt(0.75) * 2.0**-150
    m2[-1, -1] = 2.0**-791
    for eps2, expected in ((2.0**-790, True), (2.0**-788, False)):
        assert decide(m1, m2, 1.0, eps2) == (expected, False)
        assert decide(m1, m2, 2.0**500, eps2 * 2.0**500) == (expected, False)


def test_a_hundred_bits():
    """det [[1, x], [x, x^2 + r]] = r: arithmetic of 53 bits sees none of these."""
    for power in range(27, 53):
        # x^2 = 1 + 2^(1 - power) + 2^(-2 power)
        x, square = 1 + 2.0**-power, 1 + 2.0 ** (1 - power)
        below = np.array([[1, x], [x, square]])
        decision, marginal = decide(below, np.zeros((2, 2)), 1.0, 1.0)
        assert decision is True and marginal == (power >= 47), power
        # x = 1 - 2^-power would need a square rounded up; the next float is above.
        above = np.array([[1, x], [x, np.nextafter(square, 2)]])
        assert decide(above, np.zeros((2, 2)), 1.0, 1.0) == (False, False)


@pytest.mark.parametrize("d", [*DIMENSIONS, 70])
def test_ties_are_true(d):
    rng = np.random.default_rng(d)
    m1 = rng.integers(-9, 10, size=(2 * d, d)).astype(float)
    m1 = m1.T @ m1 + np.eye(d)
    # d = 70 leaves room for rounding on either side, as the tie is at every pivot.
    assert decide(m1, 3 * m1, 2.0, 6.0) == (True, True)
    assert decide(m1, 3 * m1, 2.0, np.nextafter(6.0, 7.0)) == (False, False)
    assert decide(m1, 3 * m1, 2.0, np.nextafter(6.0, 5.0)) == (True, False)
    m2 = np.diag(rng.integers(0, 6, size=d).astype(float))
    i = int(rng.integers(d))
    m2[i, i] = 6.0
    # Off the diagonal: (1, 1) / sqrt(2) has lambda = 3 against M1 = 1.
    beside = np.eye(d)
    beside[:2, :2] = [[2, 1], [1, 2]] if d > 1 else 3
    for first, second in ((2.0 * np.eye(d), m2), (np.eye(d), beside)):
        for oracle in (dsec_decision, lambda *arguments: dsec(*arguments).decision):
            assert oracle(first, second, 1.0, 3.0) is True and oracle(first, second, 0.5, 1.5) is True
            assert oracle(first, second, 1.0, np.nextafter(3.0, 4.0)) is False


# Values


@pytest.mark.parametrize("kind", ["moments", "rank one", "seen by half", "units"])
def test_values_of_large_problems(kind):
    d = 192
    rng = np.random.default_rng(d)
    m1, m2 = pair(d, d, 1e-2, d // 2 if kind == "seen by half" else 4 * d, 1 if kind == "rank one" else 4 * d)
    if kind == "units":
        units = 2.0 ** rng.integers(-40, 41, size=d)
        m1, m2 = m1 * units * units[:, None], m2 * units * units[:, None]
    condition = np.linalg.cond(m1 / np.sqrt(np.diag(m1) * np.diag(m1)[:, None]))
    allowed = 20 * d * EPS * condition
    answer = dsec(m1, m2, 1.0, 1.0)
    assert dsec_value(m1, m2, 1.0) == pytest.approx(answer.value, rel=allowed)
    for factor, expected in ((1 - allowed, True), (1 + allowed, False)):
        assert dsec_decision(m1, m2, 1.0, answer.value * factor, return_marginal=True) == (expected, False)
    x = answer.witness
    assert abs(x @ m1 @ x - 1.0) <= allowed and abs(x @ m2 @ x - answer.value) <= allowed * answer.value


@pytest.mark.parametrize("d", [8, 200])
def test_repeated_eigenvalues_of_a_pencil(d):
    """LAPACK's subset may miss an eigenvalue that is repeated; all of them are computed then."""
    rng = np.random.default_rng(d)
    m1 = rotated(rng, np.linspace(0.5, 2.0, d))
    x, y = np.linalg.qr(rng.normal(size=(d, 2)))[0].T
    y -= (y @ m1 @ x) / (x @ m1 @ x) * x
    two = sum(3.0 * (m1 @ (np.outer(z, z) / (z @ m1 @ z)) @ m1) for z in (x, y))
    for m2, value in ((two, 3.0), (3.0 * m1, 3.0), (np.zeros((d, d)), 0.0)):
        assert dsec_value(m1, m2, 1.0) == pytest.approx(value, rel=1e-11)
    with pytest.raises(ValueError, match="overflows"):
        dsec_value(m1 * 1e-200, two * 1e150, 1.0)


@pytest.mark.parametrize("d", [2, 16, 17, 40])
@pytest.mark.parametrize("relative", [1e-6, 1e-12, 1e-16])
def test_small_regularisers_still_decide(d, relative):
    """M1 = e1 e1^T + eps_r I: a state along e_d has v = weight / eps_r, one along e_1 about 1."""
    s = np.zeros((d, d))
    s[0, 0] = 1.0
    for weight in (0.5, 0.99, 1.01, 2.0):
        fresh, known = np.zeros((d, d)), np.zeros((d, d))
        fresh[-1, -1], known[0, 0] = weight * relative, weight
        for m2, value in ((fresh, weight), (known, weight / (1 + relative))):
            assert dsec_decision(s + relative * np.eye(d), m2, 1.0, 1.0) is (weight > 1)
            level, values = ShiftScan(d, 1.0, 1.0, relative, True).scan(s[None], m2[None], 1, 0, 0, 0)
            assert (level == 0) is (weight > 1)
            assert values == [pytest.approx(value, rel=1e-12)]
            assert ShiftScan(d, 1.0, 1.0, relative, False).scan(s[None], m2[None], 1, 0, 0, 0) == (level, [])


@pytest.mark.parametrize("d", [1, 11, 12, 17])
def test_results_beyond_float64_are_one_clear_error(d):
    tiny, huge, eye = 1e-200 * np.eye(d), 1e200 * np.eye(d), np.eye(d)
    overflow = r"^m1, m2: .*overflows; rescale"
    refuses([
        (ValueError, overflow, dsec, tiny, huge, 1.0, 1.0),
        (ValueError, overflow, dsec_value, tiny, huge, 1.0),
        (ValueError, overflow, dsec, eye, eye * 1e10, 1e300, 1e10),
    ])  # fmt: skip
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # none of NumPy reaches the caller
        refuses([(ValueError, overflow, dsec, tiny, huge, 1e200, 1e-50)])


@pytest.mark.parametrize("d", [1, 3, 12, 17])
def test_zero_moments(d):
    zero, eye = np.zeros((d, d)), np.eye(d)
    for eps2 in (1e-300, 1.0, 1e300):
        for m1, m2, decision, value in ((zero, zero, False, 0.0), (zero, eye, True, np.inf), (eye, zero, False, 0.0)):
            assert dsec_decision(m1, m2, 1.0, eps2, return_marginal=True) == (decision, False)
            answer = dsec(m1, m2, 1.0, eps2)
            assert answer[:2] == (decision, value) and answer.marginal is False and dsec_value(m1, m2, 1.0) == value
        assert (dsec(zero, zero, 1.0, eps2).witness == 0).all()


@pytest.mark.parametrize("d", DIMENSIONS[1:])
def test_rows_of_zeros(d):
    rng = np.random.default_rng(d)
    m1, m2 = pair(d, d)
    lost = rng.permutation(d)[: max(1, d // 3)]
    kept = np.setdiff1d(np.arange(d), lost)
    inner = m1[np.ix_(kept, kept)], m2[np.ix_(kept, kept)]
    none1, none2 = m1.copy(), m2.copy()
    for m in (none1, none2):
        m[lost] = m[:, lost] = 0.0
    lo, hi = threshold(*inner)
    # In both: as if these coordinates were not there.
    for eps2 in (lo / 2, lo, hi, 2 * hi):
        assert decide(none1, none2, 1.0, eps2) == decide(*inner, 1.0, eps2)
    answer = dsec(none1, none2, 1.0, lo)
    assert answer.value == pytest.approx(lo, rel=1e-10)
    x = answer.witness
    assert x @ m1 @ x == pytest.approx(1.0, rel=1e-10) and (x[lost] == 0).all()
    # In m1 alone: whatever m2 has there is bounded by nothing.
    answer = dsec(none1, m2, 1.0, 1e300)
    assert answer[:2] == (True, np.inf) and answer.marginal is False
    assert decide(none1, m2, 1.0, 1e300) == (True, False)
    assert answer.witness @ none1 @ answer.witness == 0
    assert answer.witness @ m2 @ answer.witness == pytest.approx(1.0, rel=1e-14)
    # In m2 alone: nothing special.
    check(m1, none2, 1.0, hi)


def agree(m1, m2, eps2):
    """The answer of `dsec`, which the other two functions share."""
    answer = dsec(m1, m2, 1.0, eps2)
    decision, marginal = dsec_decision(m1, m2, 1.0, eps2, return_marginal=True)
    assert decision is answer.decision and (answer.marginal or not marginal)
    assert dsec_value(m1, m2, 1.0) == pytest.approx(answer.value, rel=1e-6)
    assert decision is (answer.value >= eps2) or answer.value == pytest.approx(eps2, rel=1e-6)
    return decision, marginal, answer.value


@for_all(d=st.integers(2, 20), seed=seeds, eps2=st.sampled_from([1e-3, 0.1, 0.4, 0.6, 10.0, 1e4]))
def test_the_three_functions_agree_on_deficient_grams(d, seed, eps2):
    rng = np.random.default_rng(seed)
    rows = rng.normal(size=(int(rng.integers(1, d)), d))
    gram = rows.T @ rows
    decision, marginal, value = agree(gram, gram / 2, eps2)
    assert (decision, marginal) == (eps2 < 0.5, eps2 > 0.5) and value == pytest.approx(0.5)
    # What a regulariser makes definite is certain.
    assert agree(gram + 1e-6 * np.eye(d), gram / 2, eps2)[:2] == (eps2 < 0.5, False)
    assert agree(gram, moment(rng, d, 1), eps2)[0] is True


class TestSingular:
    @pytest.mark.parametrize("d", [3, 4, 7])
    def test_a_null_space_that_no_pivot_shows(self, d):
        """The last pivot is the smallest eigenvalue over the square of an entry of its vector, here 2^-20."""
        null = np.full(d, 1.0)
        null[-1] = 2.0**-10
        for seed in range(8):
            rows = np.random.default_rng(seed).normal(size=(d - 1, d))
            rows -= np.outer(rows @ null, null) / (null @ null)
            gram = rows.T @ rows
            assert agree(gram, gram / 2, 0.6)[:2] == (False, True)

    @pytest.mark.parametrize("d", [2, 12, 17, 40])
    @pytest.mark.parametrize("scale", [1e-150, 1.0, 1e150])
    def test_mass_in_the_null_space_is_unbounded(self, d, scale):
        rng = np.random.default_rng(d)
        m1 = rotated(rng, np.arange(d) < d // 2) * scale
        m2 = moment(rng, d) * scale
        answer = dsec(m1, m2, 1.0, 1.0)
        assert answer[:2] == (True, np.inf) and answer.marginal is True
        assert dsec_decision(m1, m2, 1.0, 1.0) is True
        assert dsec_value(m1, m2, 1.0) == np.inf
        x = answer.witness
        assert x @ m2 @ x == pytest.approx(1.0, rel=1e-10)
        assert abs(x @ m1 @ x) <= 100 * d * EPS * (x @ x) * scale

    @pytest.mark.parametrize("d", [2, 12, 17, 40])
    @pytest.mark.parametrize("scale", [1e-20, 1.0, 1e20])
    def test_mass_in_the_range_is_bounded(self, d, scale):
        """Rank 1 .. d / 2 of integers, exact, and scaled per coordinate."""
        rng = np.random.default_rng(d)
        rows = rng.integers(-3, 4, size=(max(1, d // 2), d)).astype(float)
        rows[:, 0] = 1.0
        units = 2.0 ** rng.integers(-60, 61, size=d)
        m1 = rows.T @ rows
        m2 = rows[:1].T @ rows[:1]
        expected = rows[0] @ np.linalg.pinv(m1) @ rows[0]
        m1, m2 = m1 * units * units[:, None], m2 * units * units[:, None] * scale
        answer = dsec(m1, m2, 2.0, 1.0)
        assert answer.value == pytest.approx(2 * expected * scale, rel=1e-9)
        assert dsec_value(m1, m2, 2.0) == answer.value and answer.marginal is True
        x = answer.witness
        assert x @ m1 @ x == pytest.approx(2.0, rel=1e-9)
        assert x @ m2 @ x == pytest.approx(answer.value, rel=1e-9)

    def test_units_do_not_hide_mass(self):
        # A null space that is a coordinate: no tolerance, whatever the units of the others.
        m1, m2 = np.diag([1e-20, 0.0]), np.diag([1e20, 1e-10])
        assert dsec(m1, m2, 1.0, 1.0)[:2] == (True, np.inf)
        assert dsec(m1, m2, 1.0, 1.0).witness.tolist() == [0.0, pytest.approx(1e5)]
        # A null space that is none: relative to m2.
        assert dsec(np.ones((2, 2)), 1e-20 * np.eye(2), 1.0, 1.0).value == np.inf

    @pytest.mark.parametrize("d", [1, 2, 12, 17])
    def test_what_is_not_semidefinite_is_named(self, d):
        m1, corner = np.eye(d), np.zeros((d, d))
        m1[-1, -1] = -1.0
        corner[0, -1] = corner[-1, 0] = 1.0
        text = r"^m1: expected a positive semidefinite matrix"
        table = [(np.linalg.LinAlgError, text, dsec, m1, np.eye(d), 1, 1)]
        table += [(np.linalg.LinAlgError, text, dsec_value, m1, np.eye(d), 1)]
        if d > 1:
            table += [(np.linalg.LinAlgError, text, dsec, np.eye(d) + 2 * corner, np.eye(d), 1, 1)]
            hollow = 1e300 * corner, np.zeros((d, d)), 1, 1
            table += [
                ((ValueError, np.linalg.LinAlgError), "semidefinite", call, *hollow) for call in (dsec, dsec_decision)
            ]
            assert dsec_decision(np.eye(d) + 2 * corner, np.zeros((d, d)), 1, 1) is True
        refuses(table)
        for m2 in (np.zeros((d, d)), np.eye(d)):
            assert dsec_decision(m1, m2, 1, 1) is True

    def test_a_definite_matrix_that_float64_cannot_factor(self):
        """det = 2^-56: a scan decides the entries given; the functions let the null space decide, and say so."""
        x = 1 - 2.0**-28
        m1 = np.array([[1, x], [x, x * x]])
        m1[1, 1] = 1 - 2.0**-27 + 2.0**-53
        assert definite(m1, np.eye(2), 1.0, 1e20)
        assert exact(m1, np.eye(2), 1.0, 1e20) == (False, False)
        answer = dsec(m1, np.eye(2), 1.0, 1e20)
        assert answer[:2] == (True, np.inf) and answer.marginal is True
        assert dsec_decision(m1, np.eye(2), 1.0, 1e20, return_marginal=True) == (True, True)
        assert dsec_decision(m1, np.eye(2), 1.0, 1.0, return_marginal=True) == (True, False)


# Arguments


@pytest.mark.parametrize("oracle", [dsec, dsec_decision])
def test_arguments_are_named(oracle):
    eye = np.eye(3)
    table = []
    for d in (2, 13, 17):
        for value in (np.nan, np.inf, -np.inf):
            eye, bad = np.eye(d), np.eye(d)
            bad[0, d - 1] = value
            text = rf"^m1: expected finite numbers, got .* at index \(0, {d - 1}\)"
            table += [(ValueError, text, oracle, bad, eye, 1, 1), (ValueError, "^m2: ", oracle, eye, bad, 1, 1)]
    for bad in (0, -1, 0.0, -0.0, -1e-300):
        table.append((ValueError, "^eps1: expected a positive number", oracle, eye, eye, bad, 1))
        table.append((ValueError, "^eps2: expected a positive number", oracle, eye, eye, 1, bad))
    masked = np.ma.masked_array(eye, mask=eye)
    refuses([*table, (TypeError, "m1: expected an array without a mask", oracle, masked, eye, 1.0, 1.0)])


@pytest.mark.parametrize("d", [1, 5, 17, 40])
def test_what_float64_cannot_prove_can_be_left_to_the_value(d):
    """Far from the threshold nothing changes; near it the answer is that of the value, and flagged."""
    m1, m2 = pair(d, d)
    value = dsec_value(m1, m2, 1.5)
    for eps2, expected in ((0.9 * value, True), (1.1 * value, False)):
        assert dsec_decision(m1, m2, 1.5, eps2, exact=False, return_marginal=True) == (expected, False)
    assert dsec_decision(m1, m2, 1.5, value, exact=False, return_marginal=True) == (True, True)
    assert dsec_decision(m1, m2, 1.5, value, exact=False) is True
    with pytest.raises(TypeError, match="exact: "):
        dsec_decision(m1, m2, 1.5, value, exact=1)


# Stacks


def stack_of(rng, shape, d, eps_r=1e-2):
    """Second moments (*shape, d, d) with a regulariser."""
    out = np.empty((*shape, d, d))
    for index in np.ndindex(shape):
        out[index] = moment(rng, d) + eps_r * np.eye(d)
    return out


def one_by_one(m1, m2, eps1, eps2):
    """The answers of `dsec` and `dsec_decision` to each problem of a stack, by its index."""
    lead = np.broadcast_shapes(m1.shape[:-2], m2.shape[:-2], np.shape(eps1), np.shape(eps2))
    matrices = (np.broadcast_to(m, lead + m.shape[-2:]) for m in (m1, m2))
    tolerances = (np.broadcast_to(eps, lead) for eps in (eps1, eps2))
    arguments = [*matrices, *tolerances]
    alone = {i: [np.array(a[i]) if a[i].ndim else float(a[i]) for a in arguments] for i in np.ndindex(lead)}
    return {i: (dsec(*one), dsec_decision(*one, return_marginal=True)) for i, one in alone.items()}


def check_stack(m1, m2, eps1, eps2):
    expected = one_by_one(m1, m2, eps1, eps2)
    answer = dsec(m1, m2, eps1, eps2)
    decisions, marginals = dsec_decision(m1, m2, eps1, eps2, return_marginal=True)
    values = dsec_value(m1, m2, eps1)
    lead = np.broadcast_shapes(m1.shape[:-2], m2.shape[:-2], np.shape(eps1), np.shape(eps2))
    for array, kind in ((answer.decision, bool), (answer.marginal, bool), (answer.value, float), (decisions, bool)):
        assert array.shape == lead and array.dtype == kind
    assert answer.witness.shape == (*lead, m1.shape[-1])
    assert (np.broadcast_to(values, lead) == answer.value).all()
    assert (decisions == dsec_decision(m1, m2, eps1, eps2)).all()
    for i, (alone, decided) in expected.items():
        assert (answer.decision[i], answer.marginal[i]) == (alone.decision, alone.marginal)
        assert (decisions[i], marginals[i]) == decided
        assert answer.value[i] == alone.value and (answer.witness[i] == alone.witness).all()
    return answer


@for_all(d=dimensions, seed=seeds, quick=15, slow=200)
def test_every_problem_of_a_stack_has_the_bits_that_it_has_alone(d, seed):
    rng = np.random.default_rng(seed)
    m1, m2 = stack_of(rng, (3,), d), stack_of(rng, (3,), d, 0.0)
    values = dsec_value(m1, m2, 2.0)
    # At the threshold itself, which float64 does not decide, and on both sides.
    for eps2 in (0.9 * values, values, 1.1 * values):
        check_stack(m1, m2, 2.0, eps2)


def test_leading_dimensions_broadcast():
    rng = np.random.default_rng(0)
    for first, second, third, fourth in [
        ((4,), (), (), ()), ((), (4,), (), ()), ((), (), (4,), ()), ((), (), (), (4,)), ((3, 1), (2,), (), (3, 2)),
        ((2, 1, 1), (3, 1), (2,), (1, 1, 1)), ((1,), (1,), (), ()), ((0,), (), (), ()), ((2, 0), (1,), (), (0,)),
    ]:  # fmt: skip
        eps1, eps2 = (rng.uniform(0.5, 2.0, size=shape) for shape in (third, fourth))
        check_stack(stack_of(rng, first, 3), stack_of(rng, second, 3), eps1, eps2)


def test_problems_of_a_stack_that_need_more_than_the_loop():
    """Ties, singular and rank deficient m1, rows of zeros, infinite values and large ratios, side by side."""
    ones, eye, none, corner = np.ones((2, 2)), np.eye(2), np.zeros((2, 2)), np.diag([1.0, 0.0])
    pairs = [(eye, eye), (ones, ones), (ones, eye), (none, eye), (none, none), (corner, corner), (corner, eye)]
    m1, m2 = (np.stack(part) for part in zip(*pairs, strict=True))
    answer = check_stack(m1, m2, 1.0, [[1.0], [2.0], [1e-300]])
    assert answer.value[0].tolist() == pytest.approx([1.0, 1.0, np.inf, np.inf, 0.0, 1.0, np.inf])
    for exact in (True, False):
        decisions = dsec_decision(m1, m2, 1.0, 1.0, exact=exact)
        assert decisions.tolist() == [dsec_decision(a, b, 1.0, 1.0, exact=exact) for a, b in pairs]


@pytest.mark.parametrize("oracle", [dsec, dsec_decision, lambda m1, m2, eps1, _: dsec_value(m1, m2, eps1)])
@pytest.mark.parametrize("d", [2, 5, 12, 17])
def test_only_upper_triangles_are_read(oracle, d):
    rng = np.random.default_rng(2)
    m1, m2 = stack_of(rng, (3,), d), stack_of(rng, (3,), d, 0.0)
    m1[1] = m2[2] = 1.0
    expected = oracle(m1, m2, 1.0, 1.0)
    for rest in (0.0, 1e300, np.nan, np.inf):
        m1[:, *np.tril_indices(d, -1)] = m2[:, *np.tril_indices(d, -1)] = rest
        for one, other in zip(oracle(m1, m2, 1.0, 1.0), expected, strict=True):
            assert np.array_equal(one, other)
    # An entry above is at fault, whatever is below.
    m1[1, 0, -1] = np.nan
    with pytest.raises(
        ValueError, match=rf"^m1: expected finite .* nan at index \(0, {d - 1}\); in the stack at \(1,\)"
    ):
        oracle(m1, m2, 1.0, 1.0)


def test_arguments_of_a_stack_are_named():
    m, table = stack_of(np.random.default_rng(3), (3,), 2), []
    for oracle in (dsec, dsec_decision):
        text = r"^m1, m2, eps1, eps2: .* broadcast, got \(3,\), \(2,\), \(\), \(\)"
        table.append((ValueError, text, oracle, m, m[:2], 1.0, 1.0))
        text = r"^m2: expected shape \(\.\.\., 2, 2\), got \(3, 2, 3\)"
        table.append((ValueError, text, oracle, m, np.ones((3, 2, 3)), 1.0, 1.0))
        for bad, text in ((0.0, "positive"), (-1.0, "positive"), (np.nan, "finite"), (np.inf, "finite")):
            text, given = rf": expected {text} numbers, got .* index \(1,\)", [1.0, bad, 1.0]
            table.append((ValueError, "^eps1" + text, oracle, m, m, given, 1.0))
            table.append((ValueError, "^eps2" + text, oracle, m, m, 1.0, given))
    indefinite = m.copy()
    indefinite[1] = [[1.0, 2.0], [2.0, 1.0]]
    overflow = r"^m1, m2: v .*overflows; rescale; in the stack at \(0, 1\)"
    refuses([
        *table,
        (np.linalg.LinAlgError, r"^m1: .* in the stack at \(1,\)", dsec_value, indefinite, indefinite, 1.0),
        (ValueError, overflow, dsec_value, 1e-100 * np.eye(2), 1e150 * np.eye(2), [[1e-100, 1e200]]),
    ])  # fmt: skip


# ShiftScan

HORIZON, BASE = 6, 2


def problem(d, seed):
    rng = np.random.default_rng(seed)
    cover = np.array([moment(rng, d) * rng.uniform(0.5, 3) for _ in range(HORIZON)])
    grams = np.array([moment(rng, d, 1 + d // 2) for _ in range(HORIZON - BASE)])
    return cover, grams * 50


@for_all(d=dimensions, seed=seeds, quick=30, slow=500)
def test_scan_stops_where_the_twin_does(d, seed):
    cover, grams = problem(d, seed)
    eps_r = 0.05
    top, bottom = HORIZON - 1, BASE
    every = twins.scan(cover, grams, 50, BASE, top, bottom, np.inf, eps_r)[1]
    for ratio in [value * (1 + shift) for value in every for shift in (-1e-3, -1e-9, 1e-9, 1e-3)]:
        level, values = twins.scan(cover, grams, 50, BASE, top, bottom, ratio, eps_r)
        by_value = ShiftScan(d, 1.0, ratio, eps_r, True).scan(cover, grams, 50, BASE, top, bottom)
        assert by_value[0] == level
        assert by_value[1] == pytest.approx(values, rel=1e-10)
        by_factor = ShiftScan(d, 1.0, ratio, eps_r, False).scan(cover, grams, 50, BASE, top, bottom)
        assert by_factor == (level, [])


@pytest.mark.parametrize("d", DIMENSIONS)
def test_scan_agrees_with_the_oracle(d):
    """Level by level, on moments that are exact: 64 states, a regulariser of 1/8 on multiples of 2^-20."""
    rng = np.random.default_rng(d)
    scans = [ShiftScan(d, 0.5, 1.0, 0.125, with_values) for with_values in (False, True)]
    flagged = 0
    for trial in range(8 if d < 40 else 2):
        rows = rng.integers(-3, 4, size=(2, HORIZON, rng.integers(1, 2 * d + 1), d)).astype(float)
        cover, grams = (row.transpose(0, 2, 1) @ row for row in rows)
        cover, grams = cover / 8, grams[: HORIZON - BASE] * 2.0 ** rng.integers(-2, 8)
        if trial % 3 == 0:
            # A tie: 0.5 grams / 64 = cover + eps_r.
            grams[-1] = 128 * (cover[-1] + 0.125 * np.eye(d))
        answers = {}
        for level in range(BASE, HORIZON):
            m1, m2 = cover[level] + 0.125 * np.eye(d), grams[level - BASE] / 64
            answers[level], marginal = decide(m1, m2, 0.5, 1.0)
            flagged += marginal
            expected = ((level if answers[level] else -1), [dsec_value(m1, m2, 0.5)])
            level_only, with_value = (scan.scan(cover, grams, 64, BASE, level, level) for scan in scans)
            assert level_only == (expected[0], [])
            assert with_value == (expected[0], [pytest.approx(expected[1][0], rel=1e-10)])
        assert [scan.n_marginal for scan in scans] == [flagged, flagged]
        first = max((level for level in answers if answers[level]), default=-1)
        flagged_before = scans[0].n_marginal
        for scan in scans:
            assert scan.scan(cover, grams, 64, BASE, HORIZON - 1, BASE)[0] == first
        assert scans[0].n_marginal == scans[1].n_marginal
        flagged += scans[0].n_marginal - flagged_before
    assert flagged > 0 and isinstance(scans[0].n_marginal, int)


def test_n_times_the_threshold_is_not_rounded():
    """M2 = gram / n against eps_t, where n eps_t is no float64."""
    rng = np.random.default_rng(0)
    unlike_rounded = 0
    for _ in range(300):
        n, eps_r, eps_t = int(rng.integers(3, 100)), *rng.uniform(0.1, 1.0, size=2)
        needed = n * Fraction(eps_t) * Fraction(eps_r)
        gram = float(needed)
        scan = ShiftScan(1, 1.0, eps_t, eps_r, False)
        decision = scan.scan(np.zeros((1, 1, 1)), np.full((1, 1, 1), gram), n, 0, 0, 0)[0] == 0
        assert scan.n_marginal == 0 and decision == (gram >= needed)
        unlike_rounded += decision != (gram >= Fraction(n * eps_t) * Fraction(eps_r))
    assert unlike_rounded > 10


@pytest.mark.parametrize("with_values", [False, True])
def test_arrays_of_a_scan(with_values):
    """They may be read-only and are left alone; a level whose moments are not finite is named."""
    cover, grams = problem(17, 0)
    before = cover.tobytes(), grams.tobytes()
    cover.flags.writeable = grams.flags.writeable = False
    scan = ShiftScan(17, 1.0, 1e6, 0.1, with_values)
    assert scan.scan(cover, grams, 50, 2, 5, 2) == scan.scan(cover, grams, 50, 2, 5, 2)
    assert scan.scan(cover, grams, 50, 2, 2, 3) == (-1, [])
    assert (cover.tobytes(), grams.tobytes()) == before
    table, scan = [], ShiftScan(3, 1.0, 1e6, 0.1, with_values)
    for which, entry, bad in itertools.product((0, 1), ((2, 2), (0, 1)), (np.nan, np.inf, -np.inf)):
        arrays = problem(3, 0)
        arrays[which][(3 if which == 0 else 3 - BASE, *entry)] = bad
        table.append((ValueError, "level 3: a second moment is not finite", scan.scan, *arrays, 50, BASE, 5, 2))
    refuses(table)
    level, values = ShiftScan(2, 1.0, 1.0, 1e-18, with_values).scan(np.ones((1, 2, 2)), np.eye(2)[None], 1, 0, 0, 0)
    assert level == 0 and values == [np.inf] * with_values  # S that float64 cannot regularise
    huge = np.full((1, 1, 1), 1e200)
    scan = ShiftScan(1, 1.0, 1.0, 1e-200, with_values)
    if with_values:
        refuses([(ValueError, r"level 0: .*eigenvalue overflows", scan.scan, 0 * huge, huge, 1, 0, 0, 0)])
    else:
        assert scan.scan(0 * huge, huge, 1, 0, 0, 0) == (0, [])


def test_arguments_of_a_scan_are_named():
    cover, grams = problem(2, 0)
    fits = {"cover": cover, "grams": grams, "n": 50, "base": 2, "top": 5, "bottom": 2}
    scan, table = ShiftScan(2, 1.0, 1.0, 1.0, False), []
    for change in (
        {"n": 0}, {"n": -1}, {"n": np.nan}, {"n": np.inf}, {"base": -1}, {"base": 3}, {"bottom": 1}, {"top": 6},
        {"cover": np.zeros((6, 3, 3))}, {"cover": np.zeros((6, 2, 3))}, {"grams": np.zeros((4, 3, 2))},
        {"grams": np.zeros((0, 2, 2))}, {"cover": np.zeros((0, 2, 2))}, {"grams": np.zeros((3, 2, 2))},
        {"cover": np.zeros((6, 0, 0)), "grams": np.zeros((4, 0, 0))},
    ):  # fmt: skip
        table.append((ValueError, "do not fit together", lambda given: scan.scan(**given), fits | change))
    for name, kind in itertools.product(("cover", "grams"), ("float32", "complex128", "object", "int64")):
        change = fits | {name: np.ones((6, 2, 2)).astype(kind)}
        table.append((ValueError, "Buffer dtype mismatch", lambda given: scan.scan(**given), change))
        table.append((TypeError, f"{name}.*None", lambda given: scan.scan(**given), fits | {name: None}))
    for i, name in enumerate(("eps_s", "eps_t", "eps_r")):
        for bad in (*([] if name == "eps_r" else [0]), -1.0, np.nan, np.inf):
            given = [1.0, 1.0, 1.0]
            given[i] = bad
            table.append((ValueError, rf"^{name}: expected", ShiftScan, 2, *given, False))
    table += [(ValueError, r"^dimension", ShiftScan, d, 1.0, 1.0, 1.0, False) for d in (0, -1, 2**62)]
    one, large = np.ones((1, 1, 1)), ShiftScan(1, 1.0, 1e308, 0.5, False)
    table.append((ValueError, "n eps_t", large.scan, one, one, 100.0, 0, 0, 0))
    refuses(table)


def test_a_scan_is_made_once_with_its_arguments():
    scan, cover = ShiftScan(1, 1.0, 1.0, 1.0, False), np.ones((1, 1, 1))
    scan.__init__(100, 1.0, 1.0, 1.0, False)  # as a subclass may do once more
    assert scan.dimension == 1 and scan.scan(cover, cover, 1.0, 0, 0, 0) == (-1, [])


# dsec_rows


def is_shift(rows1, rows2, ratio):
    """Whether ratio M1 - M2, of the second moments of rows, is not positive definite, in fractions."""
    moments = []
    for rows in map(twins.fractions, (rows1, rows2)):
        columns = list(zip(*rows, strict=True))
        moments.append([[sum(map(operator.mul, x, y)) / len(rows) for y in columns] for x in columns])
    return twins.is_shift(*moments, ratio, 1)


@for_all(d=st.integers(1, 12), n2=st.integers(1, 30), eps1=st.floats(0.01, 10), seed=seeds)
def test_rows_agree_with_moments_where_these_are_well_conditioned(d, n2, eps1, seed):
    rng = np.random.default_rng(seed)
    rows1, rows2 = rng.normal(size=(3 * d + 5, d)), rng.normal(size=(n2, d))
    m1, m2 = rows1.T @ rows1 / len(rows1), rows2.T @ rows2 / n2
    for eps_r in (0.0, 0.1):
        first = m1 + eps_r * np.eye(d)
        by_moments = dsec(first, m2, eps1, eps1)
        answer = dsec_rows(rows1, rows2, eps1, eps1, eps_r=eps_r)
        assert answer.value == pytest.approx(by_moments.value, rel=1e-12)
        x = answer.witness
        assert x @ first @ x == pytest.approx(eps1, rel=1e-11)
        assert x @ m2 @ x == pytest.approx(answer.value, rel=1e-11)
        for factor in (1 - 1e-9, 1 + 1e-9):
            far = dsec_rows(rows1, rows2, eps1, answer.value * factor, eps_r=eps_r)
            assert (far.decision, far.marginal) == (factor < 1, False)
        assert dsec_rows(rows1, rows2, eps1, answer.value * (1 + EPS), eps_r=eps_r).marginal is True


@pytest.mark.parametrize("condition", [1e4, 1e10, 1e12])
@pytest.mark.parametrize("d", [2, 6])
def test_the_condition_number_is_not_squared(condition, d):
    rng = np.random.default_rng(d)
    q = np.linalg.qr(rng.normal(size=(d, d)))[0]
    rows1, rows2 = (rng.normal(size=(3 * d, d)) * condition ** -np.linspace(0, 1, d)) @ q, rng.normal(size=(5, d))
    answer = dsec_rows(rows1, rows2, 1.0, 1.0)
    error = 50 * EPS * condition
    assert is_shift(rows1, rows2, Fraction(answer.value * (1 - error)))
    assert not is_shift(rows1, rows2, Fraction(answer.value * (1 + error)))
    assert answer.decision is True and answer.marginal is False


@pytest.mark.parametrize("condition", [1.0, 1e4, 1e8, 1e12, 1e15])
def test_no_wrong_decision_without_the_flag(condition):
    rng = np.random.default_rng(int(np.log10(condition)))
    flagged = []
    for _ in range(10):
        d = int(rng.integers(1, 6))
        q = np.linalg.qr(rng.normal(size=(d, d)))[0]
        spectrum = condition ** -np.linspace(0, 1, d)
        rows1 = (rng.normal(size=(d + int(rng.integers(4)), d)) * spectrum) @ q * 10.0 ** rng.integers(-9, 9, size=d)
        rows2 = rng.normal(size=(3, d)) * np.abs(rows1).max(axis=0)
        value = dsec_rows(rows1, rows2, 1.0, 1.0).value
        for power in (-16, -13, -10, -7, -4, -1):
            for sign in (-1, 1):
                eps2 = min(value, 1e200) * (1 + sign * 10.0**power)
                answer = dsec_rows(rows1, rows2, 1.0, eps2)
                assert answer.marginal or answer.decision is is_shift(rows1, rows2, Fraction(eps2))
                flagged.append(answer.marginal and power >= -7 and condition == 1)
    assert not any(flagged)


def test_units_of_the_columns_of_rows():
    rng = np.random.default_rng(0)
    rows1, rows2 = rng.normal(size=(9, 4)), rng.normal(size=(5, 4))
    expected = dsec_rows(rows1, rows2, 1.0, 1.0)
    units = np.array([1e-150, 1e150, 1.0, 1e-20])
    answer = dsec_rows(rows1 * units, rows2 * units, 1.0, 1.0)
    assert answer.value == pytest.approx(expected.value, rel=1e-12)
    assert np.abs(answer.witness * units) == pytest.approx(np.abs(expected.witness), rel=1e-9)
    assert answer.marginal is False


def test_lost_rank():
    # A column of zeros: certain.
    answer = dsec_rows([[1.0, 0.0]], [[1e9, 1e-9]], 1.0, 1e300)
    assert answer[:2] == (True, np.inf) and answer.marginal is False
    assert answer.witness.tolist() == [0.0, pytest.approx(1e9)]
    # The same in both says nothing.
    answer = dsec_rows([[1.0, 0.0]], [[2.0, 0.0]], 1.0, 3.0)
    assert (answer.decision, answer.marginal) == (True, False) and answer.value == pytest.approx(4)
    assert dsec_rows([[1.0, 0.0]], [[2.0, 0.0]], 1.0, 5.0)[:2] == (False, pytest.approx(4))
    # Fewer rows than columns: a direction that the witness proves, where the threshold is no larger than rounding.
    rows1, rows2 = np.array([[1.0, 2.0, 2.0], [0.0, 1.0, 1.0]]), np.eye(3)
    answer = dsec_rows(rows1, rows2, 1.0, 1e6)
    assert answer[:2] == (True, np.inf) and answer.marginal is False
    x = answer.witness
    assert np.linalg.norm(rows1 @ x) < 1e-14 and x @ x / 3 == pytest.approx(1)
    assert dsec_rows(rows1, rows2, 1.0, 1e40).marginal is True
    # Mass in the range alone.
    answer = dsec_rows(rows1, 3 * rows1, 1.0, 10.0)
    assert (answer.decision, answer.marginal) == (False, True) and answer.value == pytest.approx(9, rel=1e-12)
    assert dsec_rows(rows1, 3 * rows1, 1.0, 8.0)[::3] == (True, False)
    # A regulariser settles it.
    assert dsec_rows(rows1, 3 * rows1, 1.0, 10.0, eps_r=1e-3).marginal is False


def test_nothing_in_the_rows():
    assert dsec_rows(np.zeros((2, 3)), np.zeros((1, 3)), 1.0, 1.0)[:2] == (False, 0.0)
    assert dsec_rows(np.zeros((2, 3)), np.ones((1, 3)), 1.0, 1.0)[:2] == (True, np.inf)
    answer = dsec_rows(np.zeros((2, 3)), np.ones((1, 3)), 1.0, 2.0, eps_r=0.5)
    assert answer.value == pytest.approx(6) and answer.decision is True
    answer = dsec_rows(np.ones((2, 1)), np.zeros((1, 1)), 1.0, 1e-300)
    assert answer[:2] == (False, 0.0) and answer.marginal is False


def test_arguments_of_dsec_rows_are_named():
    rows = np.ones((3, 2))
    table = []
    table.append((ValueError, r"^rows2: expected shape \(any, 2\)", dsec_rows, rows, np.ones((2, 3)), 1, 1))
    for empty in (np.ones((0, 2)), np.ones((2, 0)), np.ones((0, 0))):
        table.append((ValueError, "at least one row and column", dsec_rows, empty, np.ones((2, empty.shape[1])), 1, 1))
    for bad in (0, -1.0):
        table.append((ValueError, "^eps1: expected", dsec_rows, rows, rows, bad, 1))
        table.append((ValueError, "^eps2: expected", dsec_rows, rows, rows, 1, bad))
    table.append((ValueError, "^eps_r: expected", lambda: dsec_rows(rows, rows, 1, 1, eps_r=-1.0)))
    refuses(table)


def test_rows_whose_squares_underflow_or_overflow():
    small = dsec_rows([[1.0]], [[1e-163]], 1e300, 1e-50)
    assert (small.decision, small.marginal) == (True, False)
    assert small.value == pytest.approx(1e-26)
    large = dsec_rows([[1e-100]], [[1e100]], 1e-300, 1.0)
    assert (large.decision, large.marginal) == (True, False)
    assert large.value == pytest.approx(1e100)
    # The column of zeros of rows1 is a null space, and the witness there is 1 / 1e-310.
    text = r"^rows1, rows2: v or its witness overflows; rescale"
    refuses([
        (ValueError, text, dsec_rows, [[1e-100]], [[1e100]], 1.0, 1.0),
        (ValueError, text, dsec_rows, [[1.0, 0.0]], [[0.0, 1e-310]], 1.0, 1.0),
    ])  # fmt: skip
    assert dsec_rows([[1.0, 0.0]], [[0.0, 2.0**-1000]], 1.0, 1.0).witness.tolist() == [0.0, 2.0**1000]
