"""The oracle for rows: against exact arithmetic, and against the oracle on matrices."""

from __future__ import annotations

import itertools
import operator
import pickle
from fractions import Fraction
from functools import partial

import numpy as np
import pytest
import twins
from hypothesis import strategies as st
from properties import for_all, refuses, seeds
from scipy.sparse import csr_array

from dmq_fast.kernels import LevelRows, RowOracle, RowScan, ShiftScan, dsec_decision

pytestmark = pytest.mark.kernels

EPS_R = 0.01


def rows_of(rng, kind, n, d):
    """n rows of norm at most 1."""
    if kind == "dense":
        rows = rng.normal(size=(n, d))
    elif kind == "one-hot":
        rows = np.eye(d)[rng.integers(d, size=n)]
    elif kind == "tiles":
        rows = np.zeros((n, d))
        for row in rows:
            row[rng.choice(d, size=min(3, d), replace=False)] = 1.0
    elif kind == "alike":
        # Nearly one direction: S is ill-conditioned.
        rows = rng.normal(size=d) + 10.0 ** rng.uniform(-9, -3) * rng.normal(size=(n, d))
    else:
        rows = rng.normal(size=(n, d)) * (rng.random(size=(n, d)) < 0.3)
    return rows / np.maximum(1.0, np.linalg.norm(rows, axis=1, keepdims=True))


KINDS = ("dense", "one-hot", "tiles", "alike", "sparse")


def covered(rng, kind, d, pieces, eps_r=EPS_R):
    """An oracle whose S was added in some pieces."""
    oracle = RowOracle(d, eps_r)
    for _ in range(pieces):
        n = int(rng.integers(1, 6))
        oracle.add(LevelRows.of([rows_of(rng, kind, n, d)]), divisor=float(n))
        if rng.random() < 0.5:
            oracle.leverages(LevelRows.of([np.zeros((1, d))]))  # the inverse is kept from here on
    return oracle


def shifted(s, eps_r, rows, ratio, n):
    """Whether n R (S + eps_r I) - sum of w phi phi^T is not positive definite, in rational numbers."""
    d, first = len(s), twins.fractions(s)
    second = [[Fraction(0)] * d for _ in range(d)]
    for i in range(d):
        first[i][i] += Fraction(eps_r)
    data, indices, indptr, weights = rows.arrays(0)
    for r, weight in enumerate(weights):
        entries = [(int(indices[k]), Fraction(float(data[k]))) for k in range(indptr[r], indptr[r + 1])]
        for (i, x), (j, y) in itertools.product(entries, repeat=2):
            second[i][j] += Fraction(float(weight)) * x * y
    return twins.is_shift(first, second, Fraction(ratio) * Fraction(n), 1)


def top(oracle, rows, n):
    """lambda_max((S + eps_r I)^-1 M2)."""
    b = oracle.matrix() + oracle.eps_r * np.eye(oracle.dimension)
    return float(np.linalg.eigvals(np.linalg.solve(b, rows.gram(0) / n)).real.max())


QUICK = {("dense", 1e-12), ("one-hot", 1.0), ("tiles", 1e-6), ("alike", 1e-2), ("sparse", 1e-12), ("dense", 1e-2)}


@pytest.mark.parametrize(
    ("kind", "eps_r"),
    [
        case if case in QUICK else pytest.param(*case, marks=pytest.mark.slow)
        for case in itertools.product(KINDS, [1.0, 1e-2, 1e-6, 1e-12])
    ],
)
def test_no_answer_is_wrong(kind, eps_r):
    """Against exact arithmetic, near the threshold and far from it, unless they are flagged; quick ones never are."""
    rng = np.random.default_rng([KINDS.index(kind), int(-np.log10(eps_r))])
    quick = settled = 0
    for _ in range(25):
        d, n = int(rng.integers(1, 9)), int(rng.integers(1, 7))
        oracle = covered(rng, kind, d, int(rng.integers(0, 9)), eps_r)
        weights = rng.integers(1, 4, size=n)
        rows, total = LevelRows.of([rows_of(rng, kind, n, d)], [weights]), float(weights.sum())
        value = top(oracle, rows, total)
        if not value > 0.0:
            continue
        for step in (0.0, 1e-14, 1e-10, 1e-7, 1e-5, 1e-3, 0.3):
            for ratio in (value * (1 - step), value * (1 + step)):
                scan = RowScan(1.0, ratio)
                answer = scan.scan([oracle], rows, total, 0, 0, 0)[0] == 0
                quick += scan.n_exact == 0
                settled += scan.n_exact > scan.n_marginal
                assert scan.n_marginal <= scan.n_exact
                assert scan.n_marginal or answer == shifted(oracle.matrix(), eps_r, rows, ratio, total), (d, n, step)
    assert quick > 100 and settled > 50


@pytest.mark.parametrize("kind", ["dense", "one-hot", "tiles", "sparse"])
def test_most_answers_are_quick(kind):
    """Where rows are fewer than columns, a factorisation on all columns is needed near the threshold only."""
    rng = np.random.default_rng(0)
    for _ in range(15):
        d, n = int(rng.integers(20, 60)), int(rng.integers(1, 15))
        oracle = covered(rng, kind, d, int(rng.integers(1, 20)))
        rows = LevelRows.of([rows_of(rng, kind, n, d)])
        value = top(oracle, rows, n)
        for ratio in (0.9 * value, value * (1 - 1e-4), value * (1 + 1e-4), 1.1 * value):
            scan = RowScan(1.0, ratio)
            assert (scan.scan([oracle], rows, n, 0, 0, 0)[0] == 0) == (ratio < value)
            assert scan.n_exact == 0 or rows.n_rows[0] > oracle.order


@for_all(
    kind=st.sampled_from(KINDS), d=st.integers(1, 40), pieces=st.integers(0, 30), n=st.integers(1, 40),
    eps_r=st.sampled_from([1e-8, 1e-3, 0.1, 1.0]), eps_t=st.floats(0.1, 20.0), seed=seeds, quick=60,
)  # fmt: skip
def test_answers_values_leverages_and_potentials_are_those_of_matrices(kind, d, pieces, n, eps_r, eps_t, seed):
    rng = np.random.default_rng(seed)
    oracle = covered(rng, kind, d, pieces, eps_r)
    batch = [rows_of(rng, kind, n, d) for _ in range(3)]
    rows = LevelRows.of(batch)
    dense, sparse = ShiftScan(d, 1.0, eps_t, eps_r, True), RowScan(1.0, eps_t, True)
    cover, grams = np.stack([oracle.matrix()] * 3), np.stack([rows.gram(i) for i in range(3)])
    found, values = dense.scan(cover, grams, n, 0, 2, 0)
    level, ours = sparse.scan([oracle] * 3, rows, n, 0, 2, 0)
    assert level == found and sparse.n_marginal <= dense.n_marginal
    bound = 1e-12 * (1 + np.trace(oracle.matrix()) / eps_r)
    np.testing.assert_allclose(ours, values, rtol=bound, atol=bound)
    assert oracle.decision(rows, 1.0, eps_t, 2, n=n) == (found == 2)
    # Leverages of rows once each, and the potentials before and after a sum.
    s = oracle.matrix() + eps_r * np.eye(d)
    data, indices, indptr, _ = rows.arrays(1)
    merged = csr_array((data, indices, indptr), shape=(len(indptr) - 1, d)).toarray()
    leverages = np.einsum("ij,ji->i", merged, np.linalg.solve(s, merged.T))
    np.testing.assert_allclose(oracle.leverages(rows, 1), leverages, rtol=10 * bound)
    after = s + batch[1].T @ batch[1] / 3.0
    allowed = d * 1e-12 * (1 + np.trace(after) / eps_r)
    assert oracle.log_det() == pytest.approx(np.linalg.slogdet(s)[1], rel=1e-10, abs=allowed)
    assert oracle.log_det(rows, 1, 3.0) == pytest.approx(np.linalg.slogdet(after)[1], rel=1e-10, abs=allowed)
    assert (oracle.matrix() + eps_r * np.eye(d) == s).all()


class TestKeptInverse:
    def test_many_additions_do_not_wear_it_out(self):
        """Thousands of updates of one inverse: leverages stay right, and answers quick."""
        rng = np.random.default_rng(2)
        oracle, d = RowOracle(30, EPS_R), 30
        for _ in range(3000):
            oracle.add(LevelRows.of([rows_of(rng, "tiles", 1, d)]))
            oracle.decision(LevelRows.of([np.ones((1, d)) / d]), 1.0, 2.0)
        probe = rows_of(rng, "dense", 5, d)
        expected = np.einsum("ij,jk,ik->i", probe, np.linalg.inv(oracle.matrix() + EPS_R * np.eye(d)), probe)
        np.testing.assert_allclose(oracle.leverages(LevelRows.of([probe])), expected, rtol=1e-6)

    def test_sums_are_those_of_matrices(self):
        """The same roundings as S <- S + gram / n, entry by entry."""
        rng = np.random.default_rng(3)
        oracle, s = RowOracle(20, EPS_R), np.zeros((20, 20))
        for n in (1, 3, 7, 20):
            rows = LevelRows.of([rows_of(rng, "sparse", n, 20)])
            oracle.add(rows, divisor=n)
            s += rows.gram(0) / n
        assert (oracle.matrix() == s).all()
        assert (oracle.support == np.flatnonzero(s.any(axis=1))).all()
        assert (oracle.gram == s[np.ix_(oracle.support, oracle.support)]).all()

    @pytest.mark.parametrize("scale", [1e-160, 1e-120, 1e120, 1e150])
    def test_numbers_beyond_the_analysis(self, scale):
        """Tiny and huge moments are decided as matrices are."""
        rng = np.random.default_rng(5)
        for _ in range(10):
            rows = [LevelRows.of([scale * rows_of(rng, "dense", 3, 6)]) for _ in range(2)]
            oracle = RowOracle(6, min(max(scale**2, 1e-300), 1e300))
            oracle.add(rows[0])
            for ratio in (0.1, 1.0, 10.0):
                m1 = oracle.matrix() + oracle.eps_r * np.eye(6)
                expected = dsec_decision(m1, rows[1].gram(0), 1.0, ratio * 3)
                assert oracle.decision(rows[1], 1.0, ratio) == expected

    def test_nothing_seen(self):
        oracle = RowOracle(10**6, 0.5)
        empty, one = (
            LevelRows.of([np.zeros((3, 10**6))]),
            LevelRows.of([csr_array(([1.0], ([0], [7])), shape=(1, 10**6))]),
        )
        assert oracle.decision(empty, 1.0, 1e-9, n=3) is False
        assert oracle.decision(one, 1.0, 2.0) is True and oracle.decision(one, 1.0, 2.1) is False
        oracle.add(empty)
        assert oracle.order == 0 and len(oracle.leverages(empty)) == 0

    def test_ties_are_true(self):
        """v = eps_t exactly, in numbers without rounding."""
        for n in (1, 4):
            rows = LevelRows.of([np.repeat([[0.0, 1.0, 0.0]], n, axis=0)])
            oracle = RowOracle(3, 0.5)
            oracle.add(rows, divisor=n)
            assert oracle.decision(rows, 1.5, 1.0) is True
            assert oracle.decision(rows, 1.5, np.nextafter(1.0, 2.0)) is False


class TestLevelRows:
    @pytest.mark.parametrize("kind", KINDS)
    def test_sums(self, kind):
        rng = np.random.default_rng(6)
        blocks = [rows_of(rng, kind, n, 12) for n in (1, 5, 40)]
        weights = [rng.integers(1, 5, size=len(block)).astype(float) for block in blocks]
        rows, csr = LevelRows.of(blocks, weights), LevelRows.of([csr_array(b) for b in blocks], weights)
        twice = rows + csr
        for level, (block, weight) in enumerate(zip(blocks, weights, strict=True)):
            expected = (block.T * weight) @ block
            np.testing.assert_allclose(rows.gram(level), expected, atol=1e-14)
            np.testing.assert_allclose(twice.gram(level), 2 * expected, atol=1e-13)
            support, gram = rows.compressed(level)
            assert (gram == rows.gram(level)[np.ix_(support, support)]).all()
            assert rows.n_rows[level] == twice.n_rows[level] == len(np.unique(block[block.any(axis=1)], axis=0))
            assert (rows.pick([level]).gram(0) == rows.gram(level)).all()
            assert all((a == b).all() for a, b in zip(rows.arrays(level), csr.arrays(level), strict=True))
        again = pickle.loads(pickle.dumps(rows))
        assert all((again.gram(i) == rows.gram(i)).all() for i in range(3)) and again.nbytes == rows.nbytes


def test_the_sum_of_rows_is_that_of_their_pairs():
    rng = np.random.default_rng(0)
    parts = [
        LevelRows.of(
            [rng.integers(0, 2, (3, 4)) * 0.1, rng.integers(0, 2, (5, 4)) * 0.1], [rng.random(3), rng.random(5)]
        )
        for _ in range(20)
    ]
    places = [i % 2 for i in range(20)]
    expected = parts[0].pick([0])
    for part, place in zip(parts[1:], places[1:], strict=True):
        expected = expected + part.pick([place])
    total = LevelRows.total(parts, places)
    for ours, theirs in zip(total.arrays(0), expected.arrays(0), strict=True):
        np.testing.assert_array_equal(ours, theirs)


def test_what_does_not_fit_is_named():
    oracle, rows, huge = RowOracle(3, 0.5), LevelRows.of([np.eye(3)]), np.full((1, 3), 1e300)
    scan, of, add, other = RowScan(1.0, 1.0), LevelRows.of, oracle.add, LevelRows.of([np.eye(2)])
    overflow = r"^rows: a second moment is not finite, or too large for float64; rescale"
    columns = r"^support: expected 0 <= index < 3"
    refuses(
        [
            (ValueError, "dimension: ", RowOracle, 0, 0.5),
            (ValueError, "eps_r: ", RowOracle, 3, 0.0),
            (ValueError, "rows: expected dimension 3, got 2", add, other),
            (ValueError, "level: ", add, rows, 1),
            (ValueError, "divisor: ", partial(add, rows, divisor=0.0)),
            (ValueError, "rows: the sum overflows", add, of([1e200 * np.eye(3)])),
            (ValueError, "level: ", oracle.leverages, rows, -1),
            (ValueError, r"^rows: a leverage is out of the range of float64; rescale", oracle.leverages, huge),
            (ValueError, overflow, oracle.decision, huge, 1.0, 1.0),
            (ValueError, "eps1: ", oracle.decision, rows, 0.0, 1.0),
            (ValueError, "n: ", partial(oracle.decision, rows, 1.0, 1.0, n=0)),
            (ValueError, r"^support: expected distinct columns, got \[1, 1\]", oracle.add_gram, [1, 1], np.eye(2)),
            *((ValueError, columns, oracle.add_gram, [column], [[1.0]]) for column in (3, -1, 2**32)),
            (TypeError, r"^support: expected integers, got dtype float64", oracle.add_gram, [0.5], [[1.0]]),
            (ValueError, "scan: ", scan.scan, [oracle], rows, 3, 0, 1, 0),
            (TypeError, r"^oracles\[0\]: expected a RowOracle, got NoneType", scan.scan, [None], rows, 1.0, 0, 0, 0),
            (TypeError, r"^oracles\[0\]: expected a RowOracle, got Lev", scan.scan, [rows], rows, 1.0, 0, 0, 0),
            (ValueError, "levels: ", of, []),
            (ValueError, r"levels\[1\]: ", of, [np.eye(2), np.eye(3)]),
            (ValueError, r"levels\[0\]: ", of, [[[np.inf]]]),
            (ValueError, r"weights\[0\]: ", of, [np.eye(2)], [[1.0, 0.0]]),
            (ValueError, "weights: ", of, [np.eye(2)], []),
            (ValueError, "do not add up", operator.add, rows, other),
            (IndexError, "level: ", rows.gram, 1),
            (TypeError, r"LevelRows\.of", LevelRows),
            (ValueError, "", LevelRows.total, [], []),
            (ValueError, "", LevelRows.total, [rows, rows], [0]),
            (ValueError, "", LevelRows.total, [rows, other], [0, 0]),
            *((IndexError, "", LevelRows.total, [rows], [level]) for level in (1, -1)),
            (TypeError, "", LevelRows.total, [rows, None], [0, 0]),
        ],
        lambda: oracle.order,
    )
    assert np.isnan(oracle.log_det(of([huge])))
    indefinite = RowOracle(2, 1e-300)  # by its rounding: float64 has no factor of it
    indefinite.add_gram([0, 1], [[1.0, 1.0], [1.0, 1.0]])
    assert np.isnan(indefinite.log_det())
