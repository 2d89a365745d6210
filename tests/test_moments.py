"""SecondMoment: sums of outer products, however they are put together."""

from __future__ import annotations

import copy
import pickle
import sys

import numpy as np
import pytest
import scipy.sparse
import twins
from hypothesis import given, settings
from hypothesis import strategies as st

from dmq_fast.kernels import SecondMoment

pytestmark = pytest.mark.kernels

EPS = np.finfo(np.float64).eps
DIMENSIONS = [1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 40, 48, 49, 64]  # by BLAS above 48, unless weighted


def close(actual, expected, rows, weights=None):
    """Two sums of n products each differ by at most n eps sum_i w_i |phi_i| |phi_i|^T."""
    bound = (len(rows) + 2) * EPS * twins.second_moment(np.abs(rows), weights)
    return (np.abs(actual - expected) <= bound).all()


def moment_of(rows, weights=None):
    moment = SecondMoment(np.shape(rows)[1])
    moment.add_rows(rows, weights)
    return moment


@pytest.mark.parametrize("d", DIMENSIONS)
@pytest.mark.parametrize("weighted", [False, True])
def test_block_is_the_sum_of_outer_products(d, weighted):
    for n in (0, 1, 2, 5, 7, 8, 32, 33, 300):
        rng = np.random.default_rng(d + n)
        rows = rng.normal(size=(n, d))
        weights = rng.random(n) * (rng.random(n) < 0.8) if weighted else None
        moment = moment_of(rows, weights)
        assert moment.n == n and moment.dimension == d
        assert close(moment.matrix, twins.second_moment(rows, weights), rows, weights), n
        assert (moment.matrix == moment.matrix.T).all()


@settings(deadline=None, max_examples=60)
@given(st.integers(1, 60), st.lists(st.integers(0, 40), max_size=6), st.integers(0, 2**32))
def test_rows_blocks_and_merges_agree(d, sizes, seed):
    rng = np.random.default_rng(seed)
    blocks = [rng.normal(size=(size, d)) for size in sizes]
    rows = np.concatenate([np.empty((0, d)), *blocks])
    by_row, by_block, merged = SecondMoment(d), SecondMoment(d), SecondMoment(d)
    for row in rows:
        by_row.add(row)
    for block in blocks:
        by_block.add_rows(block)
        merged.merge(moment_of(block))
    expected = twins.second_moment(rows)
    for moment in (by_row, by_block, merged):
        assert moment.n == len(rows)
        assert close(moment.matrix, expected, rows)


@pytest.mark.parametrize("d", DIMENSIONS)
def test_integers_are_added_exactly(d):
    rows = np.random.default_rng(d).integers(-9, 10, size=(200, d))
    assert (moment_of(rows).matrix == rows.T @ rows).all()
    assert (moment_of(rows, np.full(200, 3)).matrix == 3 * (rows.T @ rows)).all()


@pytest.mark.parametrize("d", [1, 5, 12])
def test_mean_is_positive_semidefinite(d):
    rows = np.random.default_rng(d).normal(size=(d // 2 + 1, d))
    moment = moment_of(rows)
    assert (moment.mean == moment.matrix / len(rows)).all()
    assert np.linalg.eigvalsh(moment.mean)[0] >= -d * EPS * np.trace(moment.mean)


def test_mean_of_nothing_is_an_error():
    with pytest.raises(ValueError, match="mean: no row"):
        _ = SecondMoment(2).mean


def test_matrix_is_a_new_array():
    moment = moment_of([[1, 2]])
    moment.matrix[:] = 7
    assert (moment.matrix == [[1, 2], [2, 4]]).all()


def test_merge_with_itself_doubles():
    moment = moment_of([[1, 2]])
    moment.merge(moment)
    assert (moment.matrix == [[2, 4], [4, 8]]).all() and moment.n == 2


@pytest.mark.parametrize("d", [2, 9])
def test_every_layout_gives_the_same_sum(d):
    rows = np.random.default_rng(0).integers(0, 5, size=(6, d))
    for name, alternative in twins.layouts(rows).items():
        assert (moment_of(alternative).matrix == rows.T @ rows).all(), name
    for name, row in twins.layouts(rows[0]).items():
        moment = SecondMoment(d)
        moment.add(row)
        assert (moment.matrix == np.outer(rows[0], rows[0])).all(), name
    for name, weights in twins.layouts(np.arange(6)).items():
        expected = (rows.T * np.arange(6)) @ rows
        assert (moment_of(rows, weights).matrix == expected).all(), name
    assert (moment_of(rows > 2).matrix == (rows > 2).T.astype(int) @ (rows > 2)).all()


def test_inputs_are_left_alone():
    rows, weights = np.random.default_rng(0).random((5, 9)), np.ones(5)
    before = rows.tobytes(), weights.tobytes()
    moment_of(rows)
    moment_of(rows, weights)
    assert (rows.tobytes(), weights.tobytes()) == before


def test_rows_may_be_the_sum_itself():
    moment = moment_of(np.eye(9))
    moment.add_rows(moment.matrix)
    assert (moment.matrix == 2 * np.eye(9)).all()


@pytest.mark.parametrize(
    ("name", "call"),
    [
        ("phi", lambda m, bad: m.add(bad[0] if bad is not None else None)),
        ("rows", lambda m, bad: m.add_rows(bad)),
        ("weights", lambda m, bad: m.add_rows(np.ones((3, 3)), bad[0] if bad is not None else "none")),
    ],
)
def test_what_is_not_a_number_is_named_and_changes_nothing(name, call):
    moment = moment_of(np.eye(3))
    for label, bad in twins.no_numbers(np.ones((3, 3))).items():
        with pytest.raises(TypeError, match=rf"^{name}: expected"):
            call(moment, bad)
        assert (moment.matrix == np.eye(3)).all() and moment.n == 3, label
    for bad in twins.not_finite(np.ones((1, 3))):
        with pytest.raises(ValueError, match=rf"^{name}: expected finite numbers, got (nan|-?inf)"):
            call(moment, bad)
        assert (moment.matrix == np.eye(3)).all() and moment.n == 3


@pytest.mark.parametrize("shape", [(), (2,), (4,), (1, 3), (0,)])
def test_rows_of_another_shape_are_named(shape):
    with pytest.raises(ValueError, match=r"^phi: expected shape \(3\)"):
        SecondMoment(3).add(np.ones(shape))


@pytest.mark.parametrize("shape", [(), (3,), (2, 4), (2, 0), (0, 2), (1, 2, 3)])
def test_blocks_of_another_shape_are_named(shape):
    with pytest.raises(ValueError, match=r"^rows: expected shape \(any, 3\)"):
        SecondMoment(3).add_rows(np.ones(shape))


@pytest.mark.parametrize("shape", [(), (1,), (3,), (2, 1), (0,)])
def test_weights_of_another_shape_are_named(shape):
    with pytest.raises(ValueError, match=r"^weights: expected shape \(2\)"):
        SecondMoment(3).add_rows(np.ones((2, 3)), np.ones(shape))


def test_negative_weight_is_named():
    with pytest.raises(ValueError, match=r"^weights: expected non-negative numbers, got -1"):
        SecondMoment(3).add_rows(np.ones((2, 3)), [1, -1])


def test_ragged_rows_are_named():
    with pytest.raises(ValueError, match=r"^rows: expected an array"):
        SecondMoment(2).add_rows([[1, 2], [3]])


@pytest.mark.parametrize("d", [0, -1])
def test_dimension_is_positive(d):
    with pytest.raises(ValueError, match="dimension"):
        SecondMoment(d)


@pytest.mark.parametrize("d", [None, 1.5, "2"])
def test_dimension_is_an_integer(d):
    with pytest.raises(TypeError):
        SecondMoment(d)


def test_merge_names_what_does_not_fit():
    with pytest.raises(ValueError, match="other: expected dimension 2, got 3"):
        SecondMoment(2).merge(SecondMoment(3))
    for other in (None, np.eye(2)):
        with pytest.raises(TypeError, match="other"):
            SecondMoment(2).merge(other)


def test_scales_beyond_the_square_root_of_the_range():
    tiny, huge = moment_of(1e-150 * np.eye(2)), moment_of(1e150 * np.eye(2))
    assert tiny.matrix == pytest.approx(1e-300 * np.eye(2), rel=4 * EPS, abs=0)
    assert huge.matrix == pytest.approx(1e300 * np.eye(2), rel=4 * EPS, abs=0)


def test_repr_shows_dimension_and_count():
    assert repr(moment_of(np.eye(2))) == "SecondMoment(dimension=2, n=2)"


@settings(deadline=None, max_examples=60)
@given(st.integers(1, 12), st.integers(0, 30), st.booleans(), st.integers(0, 2**32))
def test_one_hot_rows_are_dense_rows(d, n, weighted, seed):
    rng = np.random.default_rng(seed)
    indices = rng.integers(0, d, n)
    weights = rng.random(n) if weighted else None
    moment = moment_of(np.eye(d)[:1])
    moment.add_indices(indices, weights)
    rows = np.vstack([np.eye(d)[:1], np.eye(d)[indices]])
    assert moment.n == n + 1
    assert close(moment.matrix, twins.second_moment(rows, None if weights is None else [1, *weights]), rows)


@settings(deadline=None, max_examples=60)
@given(st.integers(1, 12), st.integers(0, 12), st.floats(0, 1), st.booleans(), st.integers(0, 2**32))
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


@settings(deadline=None, max_examples=60)
@given(st.lists(st.tuples(st.integers(0, 4), st.integers(-9, 9)), max_size=8), st.integers(0, 3))
def test_sparse_entries_come_in_any_order_and_those_of_one_column_add_up(entries, other):
    columns, values = [k for k, _ in entries], [x for _, x in entries]
    row = np.zeros(5)
    np.add.at(row, columns, values)
    moment = SecondMoment(5)
    moment.add_csr([*values, 2.0], [*columns, other], [0, len(entries), len(entries) + 1], [3, 1])
    assert (moment.matrix == 3 * np.outer(row, row) + 4 * np.outer(np.eye(5)[other], np.eye(5)[other])).all()


@pytest.mark.parametrize("kind", ["csr", "csc", "coo", "lil", "dia"])
@pytest.mark.parametrize("container", ["array", "matrix"])
@pytest.mark.parametrize("dtype", ["float64", "float32", "int64", "bool"])
def test_every_sparse_container_is_taken(kind, container, dtype):
    rows = np.array([[0, 1, 0], [1, 0, 1], [0, 0, 0]], dtype=dtype)
    given = getattr(scipy.sparse, f"{kind}_{container}")(rows)
    moment = SecondMoment(3)
    moment.add_rows(given, weights=[1, 2, 3])
    assert (moment.matrix == [[2, 0, 2], [0, 1, 0], [2, 0, 2]]).all() and moment.n == 3
    assert (given.toarray() == rows).all()


def test_sparse_input_is_left_alone():
    given = scipy.sparse.csr_array((np.array([1.0, 2.0, 3.0]), np.array([2, 0, 0]), np.array([0, 3])), shape=(1, 3))
    before = given.data.tobytes(), given.indices.tobytes(), given.indptr.tobytes()
    moment = SecondMoment(3)
    moment.add_rows(given)
    assert (given.data.tobytes(), given.indices.tobytes(), given.indptr.tobytes()) == before
    assert (moment.matrix == np.outer([5, 0, 1], [5, 0, 1])).all()


def integer_layouts(values):
    for name, alternative in twins.layouts(values).items():
        if isinstance(alternative, np.ndarray) and alternative.dtype.kind in "iu":
            yield name, alternative
    yield "list", list(values)
    yield "strided integers", np.repeat(values, 2)[::2]
    yield "read-only integers", np.frombuffer(np.array(values, dtype=np.int32).tobytes(), dtype=np.int32)
    yield "unaligned", np.frombuffer(b"-" + np.array(values, dtype=np.int64).tobytes(), dtype=np.int64, offset=1)


def test_indices_of_every_integer_type_and_layout():
    for name, indices in integer_layouts([2, 0, 2]):
        one_hot, sparse = SecondMoment(3), SecondMoment(3)
        one_hot.add_indices(indices)
        sparse.add_csr(np.ones(3), indices, np.arange(4))
        assert (one_hot.matrix == np.diag([1, 0, 2])).all(), name
        assert (sparse.matrix == one_hot.matrix).all(), name
    for name, starts in integer_layouts([0, 1, 3]):
        moment = SecondMoment(3)
        moment.add_csr(np.ones(3), [0, 0, 1], starts)
        assert (moment.matrix == [[2, 1, 0], [1, 1, 0], [0, 0, 0]]).all(), name


def test_no_rows_are_no_rows():
    moment = SecondMoment(3)
    moment.add_indices([])
    moment.add_csr([], [], [0])
    moment.add_rows(scipy.sparse.csr_array((0, 3)))
    assert moment.n == 0 and not moment.matrix.any()
    moment.add_csr([], [], [0, 0])
    assert moment.n == 1 and not moment.matrix.any()


WRONG = {
    "one-hot: too large": (ValueError, r"^indices: expected 0 <= index < 3, got 3 at position 1", ([0, 3],)),
    "one-hot: negative": (ValueError, r"^indices: expected 0 <= index < 3, got -1 at position 0", ([-1],)),
    "one-hot: wraps in 32 bits": (ValueError, r"^indices: .* got 4294967296 at position 0", ([2**32],)),
    "one-hot: wraps in 64 bits": (ValueError, r"got 18446744073709551615", (np.array([2**64 - 1], dtype=np.uint64),)),
    "one-hot: fractions": (TypeError, r"^indices: expected integers, got dtype float64", ([0.0],)),
    "one-hot: booleans": (TypeError, r"^indices: expected integers, got dtype bool", ([True],)),
    "one-hot: none": (TypeError, r"^indices: expected real numbers", (None,)),
    "one-hot: a number": (ValueError, r"^indices: expected shape \(any\), got \(\)", (1,)),
    "one-hot: a matrix": (ValueError, r"^indices: expected shape \(any\), got \(1, 1\)", ([[1]],)),
    "one-hot: weights": (ValueError, r"^weights: expected shape \(2\)", ([0, 1], [1.0])),
    "one-hot: negative weight": (ValueError, r"^weights: expected non-negative numbers, got -1.0", ([0], [-1.0])),
    "one-hot: nan": (ValueError, r"^weights: expected finite numbers, got nan", ([0], [np.nan])),
    "csr: column": (ValueError, r"^indices: expected 0 <= index < 3, got 3", ([1.0], [3], [0, 1])),
    "csr: columns and data": (ValueError, r"^data: expected shape \(2\)", ([1.0], [1, 2], [0, 1])),
    "csr: no starts": (ValueError, r"^indptr: expected shape \(n \+ 1\)", ([], [], [])),
    "csr: start": (ValueError, r"^indptr: expected to start with 0, got 1", ([1.0], [1], [1, 1])),
    "csr: end": (ValueError, r"^indptr: expected to end with 1", ([1.0], [1], [0, 2])),
    "csr: early end": (ValueError, r"^indptr: expected to end with 1", ([1.0], [1], [0, 0])),
    "csr: descends": (ValueError, r"^indptr: expected numbers that do not decrease", ([1.0], [1], [0, 2, 1])),
    "csr: huge": (ValueError, r"^indptr: expected at most 1", ([1.0], [1], np.array([0, 2**63], dtype=np.uint64))),
    "csr: nan": (ValueError, r"^data: expected finite numbers, got nan", ([np.nan], [1], [0, 1])),
    "csr: inf, unsorted": (ValueError, r"^data: expected finite numbers, got inf", ([np.inf, 1], [1, 0], [0, 2])),
    "csr: complex": (TypeError, r"^data: expected real numbers", ([1j], [1], [0, 1])),
    "csr: weights": (ValueError, r"^weights: expected shape \(1\)", ([1.0], [1], [0, 1], [1, 1])),
    "csr: infinite weight": (ValueError, r"^weights: expected finite", ([1.0], [1], [0, 1], [np.inf])),
}


@pytest.mark.parametrize("case", WRONG)
def test_wrong_indices_are_named_and_change_nothing(case):
    error, message, arguments = WRONG[case]
    moment = moment_of(np.eye(3))
    with pytest.raises(error, match=message):
        getattr(moment, "add_indices" if case.startswith("one-hot") else "add_csr")(*arguments)
    assert (moment.matrix == np.eye(3)).all() and moment.n == 3


def test_a_sparse_matrix_that_does_not_fit_is_named():
    moment = SecondMoment(3)
    with pytest.raises(ValueError, match=r"^rows: expected shape \(any, 3\), got \(3, 2\)"):
        moment.add_rows(scipy.sparse.csr_array((3, 2)))
    with pytest.raises(TypeError, match=r"^rows: expected real numbers"):
        moment.add_rows(scipy.sparse.csr_array(1j * np.eye(3)))
    with pytest.raises(ValueError, match=r"^rows: expected finite numbers, got nan"):
        moment.add_rows(scipy.sparse.csr_array(np.nan * np.eye(3)))


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


def copies(moment):
    yield moment.copy()
    yield copy.copy(moment)
    yield copy.deepcopy(moment)
    for protocol in range(2, pickle.HIGHEST_PROTOCOL + 1):
        yield pickle.loads(pickle.dumps(moment, protocol))


class Subclass(SecondMoment):
    pass


@pytest.mark.parametrize("kind", [SecondMoment, Subclass])
def test_copies_are_independent(kind):
    moment = kind(9)
    moment.add_rows(np.random.default_rng(0).normal(size=(20, 9)))
    before = moment.matrix
    for other in copies(moment):
        assert type(other) is kind
        assert (other.matrix == before).all() and other.n == 20
        other.add(np.ones(9))
        assert (moment.matrix == before).all() and moment.n == 20
        assert other.n == 21 and (other.matrix != before).all()


GOOD_STATE = {"version": 1, "n": 3, "lower": [1.0, 2.0, 5.0]}


def test_state_is_the_lower_triangle():
    moment = SecondMoment(2)
    moment.__setstate__(GOOD_STATE)
    assert (moment.matrix == [[1, 2], [2, 5]]).all() and moment.n == 3


@pytest.mark.parametrize(
    ("state", "error"),
    [
        (None, ValueError),
        ({}, ValueError),
        ({**GOOD_STATE, "version": 2}, ValueError),
        ({**GOOD_STATE, "n": -1}, ValueError),
        ({**GOOD_STATE, "n": 1.5}, TypeError),
        ({**GOOD_STATE, "n": 2**63}, ValueError),
        ({"version": 1, "n": 1}, ValueError),
        ({"version": 1, "lower": [1.0, 0.0, 1.0]}, ValueError),
        ({**GOOD_STATE, "lower": [1.0, 2.0]}, ValueError),
        ({**GOOD_STATE, "lower": [1.0, np.nan, 1.0]}, ValueError),
    ],
)
def test_a_foreign_state_is_refused_and_changes_nothing(state, error):
    moment = moment_of(np.eye(2))
    with pytest.raises(error):
        moment.__setstate__(state)
    assert (moment.matrix == np.eye(2)).all() and moment.n == 2


def test_nothing_is_uninitialised():
    with pytest.raises(TypeError):
        SecondMoment.__new__(SecondMoment)
    blank = SecondMoment.__new__(SecondMoment, 2)
    assert not blank.matrix.any() and blank.n == 0


@pytest.mark.parametrize("d", [2**31, 2**40, sys.maxsize])
def test_a_dimension_beyond_memory_is_one_clear_error(d):
    with pytest.raises(MemoryError, match="dimension"):
        SecondMoment(d)


def test_counts_stay_within_64_bits():
    moment = SecondMoment(1)
    moment.__setstate__({"version": 1, "n": sys.maxsize - 1, "lower": [1.0]})
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
    for bad in twins.no_numbers(eye).values():
        with pytest.raises(TypeError, match=r"^matrix: expected"):
            make(bad, 1)
    for bad in twins.not_finite(eye):
        with pytest.raises(ValueError, match=r"^matrix: expected finite"):
            make(bad, 1)
    for shape in ((), (2,), (0, 0), (2, 3), (1, 2, 2)):
        with pytest.raises(ValueError, match=r"^matrix: expected shape"):
            make(np.ones(shape), 1)
    for bad, error in ((-1, ValueError), (1.5, TypeError), (True, TypeError), (2**63, ValueError)):
        with pytest.raises(error, match=r"^n: expected an integer"):
            make(eye, bad)
    with pytest.raises(ValueError, match=r"^n: expected an integer >= 1 where matrix is not zero, got 0"):
        make(eye, 0)
    assert make(0 * eye, 0).n == 0
    with pytest.raises(ValueError, match=r"^matrix: expected a non-negative diagonal, got -1.0 at 1"):
        make(np.diag([1.0, -1.0]), 1)
    with pytest.raises(ValueError, match=r"^matrix: expected a positive semidefinite matrix, got 1e\+300 at \(1, 0\)"):
        make([[0.0, 1e300], [0.0, 0.0]], 1)
    tiny = SecondMoment(2)
    tiny.add(np.array([5e-163, 2.7e-162]))
    assert (make(tiny.matrix, 1).matrix == tiny.matrix).all()  # products that underflow differ by a whole unit


def test_a_pickle_whose_diagonal_does_not_bound_it_is_refused():
    """The checks of `merge` and `add` against overflow read the diagonal only."""
    make, arguments, state = moment_of([[1, 2]]).__reduce__()
    moment = moment_of([[3, 4]])
    with pytest.raises(ValueError, match=r"^state\['lower'\]: expected a positive semidefinite matrix"):
        moment.__setstate__({**state, "lower": np.array([1.0, 1e308, 1.0])})
    assert (moment.matrix == [[9, 12], [12, 16]]).all()
    assert make(*arguments).dimension == 2


def test_scales_that_do_not_fit_are_named():
    moment = moment_of([[1e150, 1.0]])
    before = moment.matrix
    for bad in (-1.0, np.nan, np.inf):
        with pytest.raises(ValueError, match=r"^factor: expected"):
            moment.scale(bad)
    for bad in twins.no_numbers(1.0).values():
        with pytest.raises(TypeError, match=r"^factor: expected"):
            moment.scale(bad)
    with pytest.raises(ValueError, match=r"^factor: the sum overflows"):
        moment.scale(1e10)
    assert (moment.matrix == before).all()
