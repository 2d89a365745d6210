"""Compiled code that reads SciPy sparse arrays: what it makes of dense ones, and errors instead of wild reads."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import strategies as st
from properties import for_all, seeds
from refusals import refused
from test_rollout import random_mdp, random_policy, subset

from dmq_fast.kernels import FiniteModel, LevelRows, RowOracle, RowScan, SecondMoment, Stream, as_csr, greedy_actions

pytestmark = pytest.mark.kernels

FORMATS = ["csr", "csc", "coo", "lil", "dok", "dia", "bsr"]


def scattered(rng, n, d, share=0.2):
    """An array with many zeros, some of its rows among them."""
    return np.where(rng.random((n, d)) < share, rng.normal(size=(n, d)), 0.0)


@for_all(
    seed=seeds,
    n=st.integers(0, 6),
    d=st.integers(1, 9),
    kind=st.sampled_from(FORMATS),
    as_array=st.booleans(),
    dtype=st.sampled_from([np.float64, np.float32, np.int64, np.bool_, np.uint8]),
)
def test_every_format_becomes_the_same_array(seed, n, d, kind, as_array, dtype):
    rng = np.random.default_rng(seed)
    dense = (4 * scattered(rng, n, d, 0.5)).clip(0).astype(dtype)
    given = (sp.csr_array if as_array else sp.csr_matrix)(dense).asformat(kind)
    before = given.toarray()
    found, expected = as_csr("x", given, (n, None)), sp.csr_array(dense.astype(np.float64))
    for name in ("data", "indices", "indptr"):
        assert (getattr(found, name) == getattr(expected, name)).all()
    assert (found.data.dtype, found.indices.dtype, found.indptr.dtype) == (np.float64, np.int32, np.int32)
    assert (given.toarray() == before).all() and not np.shares_memory(found.data, getattr(given, "data", np.zeros(1)))


def test_duplicates_are_added_up_zeros_dropped_and_the_argument_is_left_alone():
    given = sp.csr_array(([1.0, 2.0, -1.0, 1.0, 0.0], [3, 1, 2, 2, 0], [0, 2, 5]), shape=(2, 5))
    given.data.setflags(write=False)
    found = as_csr("x", given, (None, 5))
    assert found.data.tolist() == [2.0, 1.0] and found.indices.tolist() == [1, 3] and found.indptr.tolist() == [0, 2, 2]
    assert given.indices.tolist() == [3, 1, 2, 2, 0]


def changed(kind, change):
    """A sparse array (2, 3) of some format that was changed after it was made."""
    array = sp.csr_array(np.array([[0.5, 0.0, 1.0], [0.0, 2.0, 0.0]])).asformat(kind)
    assert (as_csr("x", array, (2, 3)).toarray() == array.toarray()).all()
    change(array)
    return array


def put(name, place, value):
    """A change of one entry of a part."""
    return lambda array: getattr(array, name).__setitem__(place, value)


def part(name, value):
    """Another part."""
    return lambda array: setattr(array, name, value)


def test_what_is_no_array_of_numbers_is_refused():
    valid, below = "x: expected a valid sparse array: .*", "expected columns below 3, got"
    lists = [np.array([[0, column], [1]], dtype=object) for column in (2**31, "a", -1)]
    table = [
        (sp.csr_array(np.eye(2) * 1j), TypeError, "x: expected real numbers, got dtype complex128"),
        (sp.csr_array(np.eye(2, dtype=np.longdouble)), TypeError, "x: expected numbers that fit float64"),
        (sp.csr_array(np.eye(4)), ValueError, r"x: expected shape \(any, 3\), got \(4, 4\)"),
        (sp.coo_array(np.ones(3)), ValueError, r"x: expected shape \(any, 3\), got \(3,\)"),
        (changed("csr", put("data", 1, np.nan)), ValueError, r"x: expected finite numbers, got nan at index \(0, 2\)"),
        (changed("csr", put("data", 2, -np.inf)), ValueError, r"x: expected finite numbers, got -inf at index"),
        (changed("csr", put("indices", 1, 3)), ValueError, valid),
        (changed("csr", put("indices", 1, -1)), ValueError, valid),
        (changed("csr", put("indptr", 1, 4)), ValueError, valid),
        (changed("csr", put("indptr", 1, 10**6)), ValueError, valid),
        (changed("csr", put("indptr", slice(1, 3), [2**31 - 1, -2])), ValueError, valid),
        (changed("csr", part("indptr", np.array([], dtype=np.int32))), ValueError, rf"{valid}index pointer size"),
        (changed("csc", put("indices", 1, 10**6)), ValueError, "x: expected"),
        (changed("coo", put("row", 0, 10**6)), ValueError, rf"{valid}coordinates of axis 0 are not all in \[0, 2\)"),
        (changed("coo", put("col", 0, -1)), ValueError, rf"{valid}coordinates of axis 1 are not all in \[0, 3\)"),
        (changed("coo", part("data", np.ones(2))), ValueError, f"{valid}row, column and data arrays"),
        (changed("lil", put("data", 1, [1.0] * 1000)), ValueError, f"{valid}a row has lists of columns"),
        (changed("lil", part("rows", lists[0])), ValueError, f"{valid}{below} 2147483648"),
        (changed("lil", part("rows", lists[1])), ValueError, f"{valid}{below} 'a'"),
        (changed("lil", part("rows", lists[2])), ValueError, f"{valid}{below} -1"),
        (changed("dia", part("data", np.ones((1, 3)))), ValueError, rf"{valid}data \(1, 3\) do not fit the off"),
        (changed("dia", part("data", np.ones(3))), ValueError, rf"{valid}data \(3,\) do not fit"),
        (changed("dia", part("offsets", np.arange(9, dtype=np.int32))), ValueError, f"{valid}the offsets of 9"),
    ]  # fmt: skip
    refused([(partial(as_csr, "x", array, (None, 3)), error, f"^{text}") for array, error, text in table])
    for array, error, _ in table:
        oracle = RowOracle(3, 0.5)
        calls = [
            partial(LevelRows.of, [np.zeros((1, 3)), array]),
            partial(oracle.leverages, array),
            partial(oracle.add, array),
            partial(oracle.decision, array, 1.0, 2.0),
            partial(greedy_actions, array, np.ones((2, 3))),
            partial(SecondMoment(3).add_rows, array),
        ]
        refused([(call, error, "") for call in calls])
    words = "^x: expected a SciPy sparse .*, got "
    dense = [([[1.0]], "list"), (np.eye(3), "ndarray"), (None, "NoneType")]
    refused([(partial(as_csr, "x", value, (None, 3)), TypeError, words + name) for value, name in dense])
    vector = partial(as_csr, "x", sp.coo_array(np.ones(3)), (None,))
    refused([(vector, ValueError, r"^x: expected two dimensions, got shape \(3,\)")])


@for_all(
    kind=st.sampled_from(FORMATS), n=st.integers(0, 60), d=st.integers(1, 50), n_actions=st.integers(1, 5), seed=seeds
)
def test_greedy_actions_of_sparse_rows_are_those_of_dense_ones(kind, n, d, n_actions, seed):
    rng = np.random.default_rng(seed)
    features, theta = scattered(rng, n, d), rng.integers(-2, 3, size=(n_actions, d)).astype(float)
    actions, values = greedy_actions(sp.csr_array(features).asformat(kind), theta, return_values=True)
    expected, best = greedy_actions(features, theta, return_values=True)
    assert (actions == expected).all() and (values == best).all() and actions.dtype == np.int64


def test_greedy_actions_of_sparse_rows_refuse_what_overflows_or_does_not_fit():
    rows, large = sp.csr_array([[0.0, 1.0]]), sp.csr_array([[0.0, 1.0], [1e300, 0.0]])
    refused(
        [
            (lambda: greedy_actions(large, [[1e300, 0.0]]), ValueError, "score of row 1 is not finite"),
            (lambda: greedy_actions(rows, [[0.0, np.nan]]), ValueError, "theta: expected finite"),
            (lambda: greedy_actions(rows, np.ones((2, 3))), ValueError, r"theta: expected shape \(any, 2\)"),
            (lambda: greedy_actions(rows, np.ones((0, 2))), ValueError, "theta: expected shape"),
        ]
    )


def test_an_oracle_takes_arrays():
    """Leverages of every row, those of zeros and equal ones as well; decisions with n the number of rows."""
    rng = np.random.default_rng(3)
    seen, rows = scattered(rng, 20, 30), scattered(rng, 8, 30)
    rows[2], rows[5] = 0.0, rows[4]
    expected = np.einsum("ij,ji->i", rows, np.linalg.solve(seen.T @ seen / 20 + 0.1 * np.eye(30), rows.T))
    merged = RowOracle(30, 0.1)
    merged.add(LevelRows.of([seen]), divisor=20)
    for convert in (np.array, *(lambda x, kind=kind: sp.csr_array(x).asformat(kind) for kind in FORMATS)):
        oracle = RowOracle(30, 0.1)
        oracle.add(convert(seen), divisor=20)
        np.testing.assert_allclose(oracle.matrix(), seen.T @ seen / 20, atol=1e-15)
        np.testing.assert_allclose(oracle.leverages(convert(rows)), expected, rtol=1e-6, atol=1e-14)
        for threshold in (0.5, 2.0, 20.0):
            found = oracle.decision(convert(rows), 1.0, threshold)
            assert found == merged.decision(LevelRows.of([rows]), 1.0, threshold, n=8)
        assert oracle.leverages(convert(np.zeros((2, 30)))).tolist() == [0.0, 0.0]
        wide = convert(np.ones((1, 29)))
        refused([(partial(oracle.leverages, wide), ValueError, "rows: expected")])
        refused([(partial(oracle.leverages, convert(rows), 1), ValueError, "level")])


STATE = {"data": [1.0, 2.0], "indices": [0, 2], "indptr": [0, 1, 2], "weights": [1.0, 3.0]}


def test_corrupt_pickles_of_rows_are_refused():
    make = LevelRows.of([np.ones((1, 1))]).__reduce__()[0]

    def restored(**change):
        return make(1, 3, [map(np.array, (STATE | change).values())])

    assert (restored().gram(0) == np.diag([1.0, 0.0, 12.0])).all()
    table = [
        ({"indices": [0, 3]}, "indices: expected 0 <= index < 3, got 3 at position 1"),
        ({"indices": [-1, 2]}, "indices: expected 0 <= index < 3, got -1"),
        ({"indices": [0]}, r"data: expected shape \(1\), got \(2,\)"),
        ({"indptr": [0, 10**6, 2]}, "indptr: expected numbers that do not decrease"),
        ({"indptr": [1, 2, 2]}, "indptr: expected to start with 0, got 1"),
        ({"weights": [1.0]}, r"weights: expected shape \(2\), got \(1,\)"),
        ({"weights": [1.0, 0.0]}, "weights: expected positive numbers, got 0.0 at index 1"),
        ({"data": [1.0, np.nan]}, "data: expected finite numbers, got nan"),
    ]
    refused([(partial(restored, **change), ValueError, f"^state: {message}") for change, message in table])
    refused([(partial(make, 1, dimension, []), ValueError, "^state: dimension") for dimension in (0, 2**31)])


def test_values_and_decisions_share_what_they_expand():
    """`value` does not change a decision, whatever path it takes, and is not left over from another level."""
    rng = np.random.default_rng(5)
    oracles = []
    for level in range(6):
        oracle = RowOracle(40, 1e-9 if level % 2 else 0.1)
        oracle.add(scattered(rng, 5 + 10 * level, 40))
        oracles.append(oracle)
    rows = LevelRows.of([scattered(rng, 1 + 3 * level, 40, 0.5) for level in range(6)])
    for threshold in (0.3, 1.0, 30.0, 1e12):
        with_values, without = RowScan(1.0, threshold, True), RowScan(1.0, threshold)
        level, values = with_values.scan(oracles, rows, 4.0, 0, 5, 0)
        assert level == without.scan(oracles, rows, 4.0, 0, 5, 0)[0]
        assert (with_values.n_marginal, with_values.n_exact) == (without.n_marginal, without.n_exact)
        for h, value in zip(range(5, -1, -1), values, strict=False):
            s = oracles[h].matrix() + oracles[h].eps_r * np.eye(40)
            expected = np.linalg.eigvals(np.linalg.solve(s, rows.gram(h) / 4.0)).real.max()
            np.testing.assert_allclose(value, expected, rtol=1e-5)


@for_all(
    seed=seeds,
    horizon=st.integers(1, 4),
    d=st.sampled_from([2, 7, 40]),
    kind=st.sampled_from(["one-hot", "dense", "sparse"]),
    n=st.sampled_from([0, 1, 513]),
    in_rows=st.booleans(),
    transitions=st.booleans(),
)
def test_models_of_sparse_arrays_are_those_of_dense_ones(seed, horizon, d, kind, n, in_rows, transitions):
    """To the last bit: the sums are over the same entries in the same order."""
    rng = np.random.default_rng(seed)
    env = random_mdp(rng, horizon, 5, 3, d, kind, caps=True)
    rules, levels, returns_from = random_policy(rng, env).rules, subset(rng, horizon), subset(rng, horizon)
    P = env.P
    if transitions and all(rewards.ndim == 2 for rewards in env.R):
        P = [sp.csr_array(table.reshape(-1, table.shape[2])) for table in env.P]
    dense = FiniteModel(env.P, env.R, env.features, env.start, env.caps)
    sparse = FiniteModel(P, env.R, [sp.csr_array(phi) for phi in env.features], env.start, env.caps)
    for one, other in zip(
        dense.trajectories(rules, n, Stream(seed)), sparse.trajectories(rules, n, Stream(seed)), strict=True
    ):
        assert (one == other).all()
    ours, theirs = (model.rollout(rules, n, Stream(seed), levels, returns_from, in_rows) for model in (sparse, dense))
    if in_rows:
        for level in range(len(levels)):
            for one, other in zip(ours[0].arrays(level), theirs[0].arrays(level), strict=True):
                assert (one == other).all()
    else:
        assert (ours[0] == theirs[0]).all()
    assert (ours[1] == theirs[1]).all() and (ours[2] == theirs[2]).all()


def test_models_refuse_sparse_arrays_that_do_not_fit():
    flat, phi = sp.csr_array(np.ones((4, 1))), sp.csr_array(np.eye(2, 3))
    start, caps, rewards = np.array([1.0, 0.0]), np.zeros(2), [np.zeros((2, 2)), np.zeros((1, 2))]
    features = [phi, sp.csr_array(np.eye(1, 3))]
    model = FiniteModel([flat], rewards, features, start, caps)
    assert model.rollout(random_policy(np.random.default_rng(0), model, "f").rules, 3, Stream(0), [1])[0][0, 0, 0] == 3
    wild, wide = flat.copy(), [phi, sp.csr_array(np.eye(1, 4))]
    wild.indices = np.array([0, 7, 0, 0], np.int32)
    edges, empty, square = [np.zeros((2, 2, 1)), rewards[1]], sp.csr_array((4, 1)), sp.csr_array(np.ones((2, 2)))
    table = [
        ([square], rewards, features, r"transitions: level 0: expected shape \(4, 1\), got \(2, 2\)"),
        ([flat], rewards, wide, "features: level 1"),
        ([flat], edges, features, "rewards: level 0: expected the shape of the transitions"),
        ([wild], rewards, features, "transitions: level 0: expected a valid sparse array"),
        ([empty], rewards, features, "expected some next state of every state and action"),
    ]
    refused([(partial(FiniteModel, *arrays, start, caps), ValueError, message) for *arrays, message in table])
