"""SecondMoment: sums of outer products, however they are put together."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
import twins
from hypothesis import given, settings
from hypothesis import strategies as st

from dmq_fast.kernels import SecondMoment

EPS = np.finfo(np.float64).eps
DIMENSIONS = [1, 2, 3, 7, 8, 9, 16, 17, 40]  # rows are added one by one below 8, by BLAS from 8 on


def close(actual, expected, rows, weights=None):
    """Two sums of n products each differ by at most n eps sum_i w_i |phi_i| |phi_i|^T."""
    bound = (len(rows) + 2) * EPS * twins.second_moment(np.abs(rows), weights)
    return (np.abs(actual - expected) <= bound).all()


def moment_of(rows, weights=None):
    moment = SecondMoment(np.shape(rows)[1])
    moment.add_rows(rows, weights)
    return moment


@pytest.mark.parametrize("d", DIMENSIONS)
@pytest.mark.parametrize("n", [0, 1, 2, 5, 300])
@pytest.mark.parametrize("weighted", [False, True])
def test_block_is_the_sum_of_outer_products(d, n, weighted):
    rng = np.random.default_rng(d + n)
    rows = rng.normal(size=(n, d))
    weights = rng.random(n) * (rng.random(n) < 0.8) if weighted else None
    moment = moment_of(rows, weights)
    assert moment.n == n and moment.dimension == d
    assert close(moment.matrix, twins.second_moment(rows, weights), rows, weights)
    assert (moment.matrix == moment.matrix.T).all()


@settings(deadline=None, max_examples=60)
@given(st.integers(1, 20), st.lists(st.integers(0, 9), max_size=6), st.integers(0, 2**32))
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


def test_accumulators_are_not_pickled_by_accident():
    with pytest.raises(TypeError):
        pickle.dumps(SecondMoment(2))


def test_repr_shows_dimension_and_count():
    assert repr(moment_of(np.eye(2))) == "SecondMoment(dimension=2, n=2)"
