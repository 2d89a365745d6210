"""SecondMoment: sums of outer products, however they are put together."""

from __future__ import annotations

import copy
import sys

import numpy as np
import pytest
import scipy.sparse
import twins
from hypothesis import strategies as st
from properties import for_all, refuses, seeds

from dmq_fast.kernels import SecondMoment

pytestmark = pytest.mark.kernels

EPS = np.finfo(np.float64).eps


def close(actual, expected, rows, weights=None):
    """Two sums of n products each differ by at most n eps sum_i w_i |phi_i| |phi_i|^T."""
    bound = (len(rows) + 2) * EPS * twins.second_moment(np.abs(rows), weights)
    return (np.abs(actual - expected) <= bound).all()


def moment_of(rows, weights=None):
    moment = SecondMoment(np.shape(rows)[1])
    moment.add_rows(rows, weights)
    return moment


@for_all(
    d=st.one_of(st.integers(1, 17), st.sampled_from([40, 48, 49, 64])),  # by BLAS above 48, unless weighted
    sizes=st.lists(st.one_of(st.integers(0, 40), st.just(300)), max_size=6),
    weighted=st.booleans(),
    seed=seeds,
)
def test_rows_blocks_and_merges_are_sums_of_outer_products(d, sizes, weighted, seed):
    rng = np.random.default_rng(seed)
    blocks = [rng.normal(size=(size, d)) for size in sizes]
    weights = [rng.random(size) * (rng.random(size) < 0.8) if weighted else np.ones(size) for size in sizes]
    rows, weight = np.concatenate([np.empty((0, d)), *blocks]), np.concatenate([np.empty(0), *weights])
    by_row, by_block, merged = SecondMoment(d), SecondMoment(d), SecondMoment(d)
    for row in np.sqrt(weight)[:, None] * rows:
        by_row.add(row)
    for block, share in zip(blocks, weights, strict=True):
        by_block.add_rows(block, share if weighted else None)
        merged.merge(moment_of(block, share))
    for moment in (by_row, by_block, merged):
        assert moment.n == len(rows) and moment.dimension == d and (moment.matrix == moment.matrix.T).all()
        assert close(moment.matrix, twins.second_moment(rows, weight), np.vstack([rows, rows]), np.tile(weight, 2))
    integers = rng.integers(-9, 10, size=(200, d))  # added exactly
    assert (moment_of(integers).matrix == integers.T @ integers).all()
    assert (moment_of(integers, np.full(200, 3)).matrix == 3 * (integers.T @ integers)).all()
    if len(rows) and d <= 12:
        assert (by_block.mean == by_block.matrix / len(rows)).all()
        assert np.linalg.eigvalsh(by_block.mean)[0] >= -d * EPS * np.trace(by_block.mean)


def test_sums_by_hand():
    moment = moment_of([[1, 2]])
    moment.matrix[:] = 7  # a new array
    assert (moment.matrix == [[1, 2], [2, 4]]).all() and repr(moment) == "SecondMoment(dimension=2, n=1)"
    moment.merge(moment)
    assert (moment.matrix == [[2, 4], [4, 8]]).all() and moment.n == 2
    moment = moment_of(np.eye(9))
    moment.add_rows(moment.matrix)
    assert (moment.matrix == 2 * np.eye(9)).all()
    tiny, huge = moment_of(1e-150 * np.eye(2)), moment_of(1e150 * np.eye(2))
    assert tiny.matrix == pytest.approx(1e-300 * np.eye(2), rel=4 * EPS, abs=0)
    assert huge.matrix == pytest.approx(1e300 * np.eye(2), rel=4 * EPS, abs=0)
    with pytest.raises(ValueError, match="mean: no row"):
        _ = SecondMoment(2).mean


def test_arguments_are_named_and_change_nothing():
    moment = moment_of(np.eye(3))
    refuses([
        (ValueError, r"^weights: expected non-negative numbers, got -1", moment.add_rows, np.ones((2, 3)), [1, -1]),
        (ValueError, r"^rows: expected an array", moment.add_rows, [[1, 2, 3], [3]]),
        (ValueError, "other: expected dimension 3, got 2", moment.merge, SecondMoment(2)),
        *((TypeError, "other", moment.merge, other) for other in (None, np.eye(3))),
        *((ValueError, "dimension", SecondMoment, d) for d in (0, -1)),
        *((MemoryError, "dimension", SecondMoment, d) for d in (2**31, 2**40, sys.maxsize)),
    ], lambda: (moment.matrix.tobytes(), moment.n))  # fmt: skip
    blank = SecondMoment.__new__(SecondMoment, 2)
    assert not blank.matrix.any() and blank.n == 0


@for_all(d=st.integers(1, 12), n=st.integers(0, 30), weighted=st.booleans(), seed=seeds)
def test_one_hot_rows_are_dense_rows(d, n, weighted, seed):
    rng = np.random.default_rng(seed)
    indices = rng.integers(0, d, n)
    weights = rng.random(n) if weighted else None
    moment = moment_of(np.eye(d)[:1])
    moment.add_indices(indices, weights)
    rows = np.vstack([np.eye(d)[:1], np.eye(d)[indices]])
    assert moment.n == n + 1
    assert close(moment.matrix, twins.second_moment(rows, None if weights is None else [1, *weights]), rows)


@for_all(d=st.integers(1, 12), n=st.integers(0, 12), density=st.floats(0, 1), weighted=st.booleans(), seed=seeds)
def test_sparse_rows_are_dense_rows(d, n, density, weighted, seed):
    rng = np.random.default_rng(seed)
    rows = rng.normal(size=(n, d)) * (rng.random((n, d)) < density)
    weights = rng.random(n) if weighted else None
    csr = scipy.sparse.csr_array(rows)
    by_parts, by_object = SecondMoment(d), SecondMoment(d)
    by_parts.add_csr(csr.data, csr.indices, csr.indptr, weights)
    by_object.add_rows(csr, weights)
    assert by_parts.n == by_object.n == n
    assert close(by_parts.matrix, twins.second_moment(rows, weights), rows, weights)
    assert (by_object.matrix == by_parts.matrix).all()


@for_all(entries=st.lists(st.tuples(st.integers(0, 4), st.integers(-9, 9)), max_size=8), other=st.integers(0, 3))
def test_sparse_entries_come_in_any_order_and_those_of_one_column_add_up(entries, other):
    columns, values = [k for k, _ in entries], [x for _, x in entries]
    row = np.zeros(5)
    np.add.at(row, columns, values)
    moment = SecondMoment(5)
    moment.add_csr([*values, 2.0], [*columns, other], [0, len(entries), len(entries) + 1], [3, 1])
    assert (moment.matrix == 3 * np.outer(row, row) + 4 * np.outer(np.eye(5)[other], np.eye(5)[other])).all()


def test_wrong_indices_are_named_and_change_nothing():
    moment, sparse, largest = moment_of(np.eye(3)), scipy.sparse.csr_array, np.array([2**64 - 1], dtype=np.uint64)
    one_hot, csr = moment.add_indices, moment.add_csr
    refuses(
        [
            (ValueError, r"^indices: expected 0 <= index < 3, got 3 at position 1", one_hot, [0, 3]),
            (ValueError, r"^indices: expected 0 <= index < 3, got -1 at position 0", one_hot, [-1]),
            (ValueError, r"^indices: .* got 4294967296 at position 0", one_hot, [2**32]),  # wraps in 32 bits
            (ValueError, r"got 18446744073709551615", one_hot, largest),
            (TypeError, r"^indices: expected integers, got dtype float64", one_hot, [0.0]),
            (TypeError, r"^indices: expected integers, got dtype bool", one_hot, [True]),
            (TypeError, r"^indices: expected real numbers", one_hot, None),
            (ValueError, r"^indices: expected shape \(any\), got \(\)", one_hot, 1),
            (ValueError, r"^indices: expected shape \(any\), got \(1, 1\)", one_hot, [[1]]),
            (ValueError, r"^weights: expected shape \(2\)", one_hot, [0, 1], [1.0]),
            (ValueError, r"^weights: expected non-negative numbers, got -1.0", one_hot, [0], [-1.0]),
            (ValueError, r"^indices: expected 0 <= index < 3, got 3", csr, [1.0], [3], [0, 1]),
            (ValueError, r"^data: expected shape \(2\)", csr, [1.0], [1, 2], [0, 1]),
            (ValueError, r"^indptr: expected shape \(n \+ 1\)", csr, [], [], []),
            (ValueError, r"^indptr: expected to start with 0, got 1", csr, [1.0], [1], [1, 1]),
            (ValueError, r"^indptr: expected to end with 1", csr, [1.0], [1], [0, 2]),
            (ValueError, r"^indptr: expected to end with 1", csr, [1.0], [1], [0, 0]),
            (ValueError, r"^indptr: expected numbers that do not decrease", csr, [1.0], [1], [0, 2, 1]),
            (ValueError, r"^indptr: expected at most 1", csr, [1.0], [1], np.array([0, 2**63], dtype=np.uint64)),
            (ValueError, r"^data: expected finite numbers, got inf", csr, [np.inf, 1], [1, 0], [0, 2]),
            (ValueError, r"^weights: expected shape \(1\)", csr, [1.0], [1], [0, 1], [1, 1]),
            (ValueError, r"^weights: expected finite", csr, [1.0], [1], [0, 1], [np.inf]),
            (ValueError, r"^rows: expected shape \(any, 3\), got \(3, 2\)", moment.add_rows, sparse((3, 2))),
        ],
        lambda: (moment.matrix.tobytes(), moment.n),
    )


HUGE = 1.2e154  # its square is .8 of the largest float64


@pytest.mark.parametrize(
    "add",
    [
        lambda m, x: m.add([x, 0, 0]),
        lambda m, x: m.add_rows([[x, 0, 0], [0, 0, 0]]),
        lambda m, x: m.add_rows([[1, 0, 0], [0, 0, 1]], [x * x, 1]),
        lambda m, x: m.add_csr([x], [0], [0, 1]),
        lambda m, x: m.add_indices([0], [x * x]),
        lambda m, x: m.merge(moment_of([[x, 0, 0]])),
    ],
    ids=["row", "block", "weights", "sparse", "one-hot", "merge"],
)
def test_sums_fill_the_range_and_no_more(add):
    moment = SecondMoment(3)
    add(moment, HUGE)
    count = moment.n
    expected = np.zeros((3, 3))
    expected[0, 0] = HUGE * HUGE
    assert moment.matrix[0, 0] == expected[0, 0]
    before = moment.matrix
    with pytest.raises(ValueError, match="overflows float64; rescale"):
        add(moment, HUGE)
    assert (moment.matrix == before).all() and moment.n == count
    with pytest.raises(ValueError, match="overflows float64; rescale"):
        moment_of([[1e155]])
    with pytest.raises(ValueError, match="overflows float64; rescale"):
        moment_of([[10.0]], [1e308])  # the weight alone takes it out of range


def test_counts_stay_within_64_bits():
    moment = SecondMoment.from_matrix([[1.0]], sys.maxsize - 1)
    with pytest.raises(OverflowError, match="rows"):
        moment.merge(moment)
    moment.add([1.0])
    for add in (lambda: moment.add([1.0]), lambda: moment.add_rows([[1.0]]), lambda: moment.add_indices([0])):
        with pytest.raises(OverflowError, match="rows"):
            add()
    assert moment.n == sys.maxsize and moment.matrix[0, 0] == 2.0


@pytest.mark.parametrize("d", [1, 3, 49])
def test_a_sum_that_is_given_goes_on(d):
    rows = np.random.default_rng(d).normal(size=(30, d))
    moment = SecondMoment.from_matrix(np.triu(rows[:20].T @ rows[:20]), 20)
    assert type(moment) is SecondMoment and (moment.n, moment.dimension) == (20, d)
    moment.add_rows(rows[20:])
    assert moment.n == 30 and close(moment.matrix, twins.second_moment(rows), rows)
    whole = moment_of(rows)
    again = SecondMoment.from_matrix(whole.matrix, whole.n)
    assert (again.matrix == whole.matrix).all()
    again.scale(0.25)
    assert (again.matrix == 0.25 * whole.matrix).all() and again.n == 30
    again.scale(0)
    assert (again.matrix == 0).all()


def test_sums_that_cannot_be_are_named():
    make, eye = SecondMoment.from_matrix, np.eye(2)
    indefinite = r"^matrix: expected a positive semidefinite matrix, got 1e\+300 at \(1, 0\)"
    refuses([
        *((ValueError, r"^n: expected an integer", make, eye, n) for n in (-1, 2**63)),
        *((TypeError, r"^n: expected an integer", make, eye, n) for n in (1.5, True)),
        (ValueError, r"^n: expected an integer >= 1 where matrix is not zero, got 0", make, eye, 0),
        (ValueError, r"^matrix: expected a non-negative diagonal, got -1.0 at 1", make, np.diag([1.0, -1.0]), 1),
        (ValueError, indefinite, make, [[0.0, 1e300], [0.0, 0.0]], 1),
    ])  # fmt: skip
    assert make(0 * eye, 0).n == 0
    tiny = SecondMoment(2)
    tiny.add(np.array([5e-163, 2.7e-162]))
    assert (make(tiny.matrix, 1).matrix == tiny.matrix).all()  # products that underflow differ by a whole unit


def test_scales_that_do_not_fit_are_named():
    moment = moment_of([[1e150, 1.0]])
    refuses([
        (ValueError, r"^factor: expected", moment.scale, -1.0),
        (ValueError, r"^factor: the sum overflows", moment.scale, 1e10),
    ], lambda: moment.matrix.tobytes())  # fmt: skip


def test_copies_of_a_subclass_are_of_it():
    kind = type("Own", (SecondMoment,), {"__module__": __name__})
    for other in (kind(2).copy(), copy.copy(kind(2)), copy.deepcopy(kind(2))):
        assert type(other) is kind


def test_rows_that_two_copies_share_count_once():
    rows = np.random.default_rng(0).normal(size=(30, 4))
    base = SecondMoment(4)
    base.add_rows(rows[:20])
    one, other = copy.copy(base), copy.copy(base)
    one.add_rows(rows[20:24])
    other.add_rows(rows[24:])
    one.merge(other, base=base)
    assert one.n == 30
    np.testing.assert_allclose(one.matrix, rows.T @ rows, atol=1e-12)
    with pytest.raises(ValueError, match="base: expected rows that both have, at most 20, got 30"):
        base.merge(other, base=one)
