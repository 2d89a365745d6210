"""`SparseRidge`: exact while few columns were seen, then within the bounds that it states."""

from __future__ import annotations

import copy
import pickle

import numpy as np
import pytest
import scipy.sparse
from hypothesis import strategies as st
from properties import everything, for_all, refuses, seeds

from dmq_fast.kernels import SparseRidge

pytestmark = pytest.mark.kernels


def random_rows(n, d, density, seed):
    """Sparse rows; SciPy's own function has another name for its generator in older versions."""
    rng = np.random.default_rng(seed)
    return scipy.sparse.csr_array(rng.random((n, d)) * (rng.random((n, d)) < density))


def stream(d, n, seed, s=4):
    """Sparse rows with at most s entries, targets of a linear function with noise, and weights."""
    rng = np.random.default_rng(seed)
    truth = rng.normal(size=d)
    for _ in range(n):
        columns = rng.choice(d, size=min(s, d), replace=False)
        values = rng.normal(size=len(columns))
        yield columns, values, float(truth[columns] @ values + 0.1 * rng.normal()), float(rng.choice([1.0, 2.0, 0.0]))


def dense(d, columns, values):
    out = np.zeros(d)
    out[columns] = values
    return out


@for_all(
    quick=40,
    slow=400,
    d=st.integers(1, 30),
    n=st.integers(0, 60),
    exact_columns=st.sampled_from([0, 1, 5, 30]),
    ridge=st.sampled_from([0.01, 1.0, 10.0]),
    seed=seeds,
)
def test_answers_are_exact_or_within_their_bounds(d, n, exact_columns, ridge, seed):
    model = SparseRidge(d, ridge, exact_columns)
    v, moment, longest, seen = ridge * np.eye(d), np.zeros(d), 0, set()
    for columns, values, y, weight in stream(d, n, seed):
        model.update(columns, values, y, weight)
        phi = dense(d, columns, values)
        v, moment = v + weight * np.outer(phi, phi), moment + weight * y * phi
        longest, seen = max(longest, len(columns)), seen | set(columns.tolist())
    exact = np.linalg.solve(v, moment)
    assert model.n == n and model.columns_seen == len(seen) and model.longest_row == longest
    assert model.exact == (len(seen) <= exact_columns and exact_columns > 0)
    rows = random_rows(20, d, 0.3, seed)
    full = rows.toarray()
    leverage = np.einsum("ij,ji->i", full, np.linalg.solve(v, full.T))
    found, (low, high) = model.leverage(rows), model.leverage_bounds(rows)
    scale = 1e-11 * (1 + np.linalg.norm(v) / ridge)
    assert (low <= leverage * (1 + scale) + 1e-14).all() and (leverage <= high * (1 + scale) + 1e-14).all()
    assert (low <= found * (1 + 1e-12)).all() and (found <= high * (1 + 1e-12)).all()
    for turn in range(3):
        # |phi^T (theta - exact)| <= bound times the root of the leverage; rounding adds what it adds to theta.
        bound = model.error_bound()
        error = abs(model.predict(full) - full @ exact)
        assert (error <= bound * np.sqrt(leverage) + scale * (1 + abs(exact).max(initial=0))).all()
        assert (model.predict(rows) == model.predict(full)).all()
        reached = model.refine(1e-9 if turn else 1e-2)
        assert reached <= bound * (1 + 1e-9) + 1e-300
        assert reached == pytest.approx(model.error_bound(), rel=1e-6, abs=scale)
    assert model.error_bound() <= 1e-8 + scale * np.linalg.norm(moment) / np.sqrt(ridge)
    if model.exact:
        np.testing.assert_allclose(found, leverage, rtol=scale, atol=1e-14)
        np.testing.assert_allclose(model.theta, exact, rtol=0, atol=scale * (1 + abs(exact).max()))
    upper = model.upper(rows, 0.5)
    assert (upper == model.predict(rows) + 0.5 * np.sqrt(found)).all() and model.select(rows, 0.5) == upper.argmax()
    one = rows[[0]]
    assert model.predict_one(one.indices, one.data) == model.predict(one)[0]
    assert model.leverage_one(one.indices, one.data) == found[0]


def test_rows_of_one_entry_are_exact_on_the_diagonal():
    """Then V is diagonal, and so are both bounds that do not use lambda alone."""
    model, exact = SparseRidge(50, 1.0, exact_columns=0), SparseRidge(50, 1.0, exact_columns=50)
    for columns, values, y, weight in stream(50, 300, 3, s=1):
        model.update(columns, values, y, weight)
        exact.update(columns, values, y, weight)
    points = np.eye(50)
    np.testing.assert_allclose(model.leverage(points), exact.leverage(points), rtol=1e-12)
    np.testing.assert_allclose(model.leverage_bounds(points)[0], exact.leverage(points), rtol=1e-12)
    np.testing.assert_allclose(model.predict(points), exact.predict(points), rtol=0, atol=1e-11)


def test_rows_at_once_are_rows_one_by_one():
    rows = random_rows(200, 40, 0.1, 0)
    y, weights = np.arange(200.0), np.linspace(0.0, 2.0, 200)
    one, all_rows, plain = SparseRidge(40, 0.5, 8), SparseRidge(40, 0.5, 8), SparseRidge(40, 0.5, 8)
    all_rows.update_rows(rows, y, weights)
    plain.update_rows(rows.toarray(), y, weights)
    for i in range(200):
        row = rows[[i]]
        one.update(row.indices[::-1], row.data[::-1], float(y[i]), float(weights[i]))
    assert everything(one) == everything(all_rows) == everything(plain)


def test_entries_of_one_column_add_up():
    one, other = SparseRidge(5, 1.0), SparseRidge(5, 1.0)
    one.update([3, 1, 3], [1.0, 2.0, 0.5], 1.0)
    other.update([1, 3], [2.0, 1.5], 1.0)
    assert everything(one) == everything(other)
    assert one.predict_one([3, 3], [1.0, 1.0]) == other.predict_one([3], [2.0])


@pytest.mark.parametrize("exact_columns", [2, 64])
def test_copies_go_on_alike(exact_columns):
    model = SparseRidge(30, 0.5, exact_columns)
    rows = list(stream(30, 40, 1))
    for columns, values, y, _ in rows[:20]:
        model.update(columns, values, y)
    copies = [model.copy(), copy.deepcopy(model), pickle.loads(pickle.dumps(model))]
    for each in (model, *copies):
        for columns, values, y, _ in rows[20:]:
            each.update(columns, values, y)
    for each in copies:
        assert (each.theta == model.theta).all() and (each.leverage(np.eye(30)) == model.leverage(np.eye(30))).all()


def test_memory_follows_the_data():
    """10^4 rows with 30 entries in 2^18 dimensions: 20 bytes a feature, and at most 20 bytes an entry."""
    model, rng = SparseRidge(2**18, 1.0), np.random.default_rng(0)
    for _ in range(10_000):
        columns = np.unique(rng.integers(0, 2**18, size=30))
        model.update(columns, np.ones(len(columns)), 1.0)
    assert model.nbytes < 20 * 2**18 + 20 * 300_000 + 10**6
    assert model.refine(1e-6) <= 1e-6


def test_pickled_states_are_checked():
    model = SparseRidge(9, 0.5, 3)
    for columns, values, y, _ in stream(9, 5, 0, s=2):
        model.update(columns, values, y)
    state = model.__reduce__()[2]
    broken = {
        "places": [state["places"][:-1], state["places"].astype(np.int64), np.zeros(9, np.int32)],
        "theta": [state["theta"][:-1], np.full(9, np.nan)],
        "squares": [-np.ones(9), np.full(9, 1e308)],
        "starts": [state["starts"][:-1], state["starts"] + 1, state["starts"][::-1].copy()],
        "columns": [state["columns"][:-1], state["columns"] + 9, np.zeros_like(state["columns"])],
        "values": [state["values"][:-1], np.full_like(state["values"], np.nan)],
        "targets": [state["targets"][:-1]],
        "exact": [True],
        "factor": [np.zeros((3, 3))],
        "rotated": [np.zeros(2)],
    }
    table = [
        (ValueError, "^state", model.__setstate__, {**state, name: bad})
        for name, bads in broken.items()
        for bad in bads
    ]
    table += [(ValueError, "^state", model.__setstate__, {k: v for k, v in state.items() if k != n}) for n in state]
    refuses(table, lambda: everything(model))


@pytest.mark.parametrize("exact_columns", [0, 8])
def test_what_is_refused_changes_nothing(exact_columns):
    model = SparseRidge(6, 0.5, exact_columns)
    model.update([1, 2], [1.0, 2.0], 3.0)
    wide, rows = scipy.sparse.csr_array(np.ones((1, 7))), np.ones((2, 6))
    refuses(
        [
            (ValueError, "^indices: expected 0 <= index < 6, got 6", model.update, [6], [1.0], 1.0),
            (ValueError, r"^values: expected shape \(1\)", model.update, [0], [1.0, 2.0], 1.0),
            (ValueError, "^values: expected finite", model.update, [0], [np.nan], 1.0),
            (ValueError, "^y: expected a finite number, got nan", model.update, [0], [1.0], np.nan),
            (ValueError, "^weight: expected a non-negative", model.update, [0], [1.0], 1.0, -1.0),
            (ValueError, "^values, y: .* out of the range", model.update, [0], [1e155], 1.0),
            (ValueError, "^values, y: .* out of the range", model.update, [0], [1.0], 1e300),
            (ValueError, "^values, y: .* out of the range", model.update_rows, [rows[0], 1e155 * rows[0]], [1.0, 1.0]),
            (ValueError, r"^Phi: expected shape \(any, 6\)", model.predict, wide),
            (ValueError, r"^Phi: expected shape \(any, 6\)", model.update_rows, wide, [1.0]),
            (ValueError, r"^Phi: expected shape \(any, 6\)", model.predict, np.ones(6)),
            (ValueError, "^Phi: expected finite", model.predict, np.full((1, 6), np.inf)),
            (ValueError, "^Phi: a prediction or a leverage is out", model.leverage, 1e200 * rows),
            (ValueError, "^weights: expected non-negative numbers", model.update_rows, rows, [1.0, 1.0], [1.0, -1.0]),
            (ValueError, "^alpha: expected a non-negative", model.upper, rows, -1.0),
            (ValueError, "^alpha: a bound is out", model.upper, 10 * rows, 1.7e308),
            (ValueError, "^Phi: expected shape", model.select, np.ones((0, 6)), 1.0),
            (ValueError, "^tolerance: expected a positive", model.refine, 0.0),
            (ValueError, "^most: expected an integer", model.refine, 1e-6, -1),
        ],
        lambda: everything(model),
    )
    refuses(
        [
            (ValueError, "^d: expected an integer", SparseRidge, 0, 1.0),
            (ValueError, "^d: expected an integer", SparseRidge, 2**31, 1.0),
            (ValueError, "^regularization: expected a pos", SparseRidge, 2, 0.0),
            (ValueError, "^regularization: .* out of the range", SparseRidge, 2, 1e-310),
            (ValueError, "^exact_columns: expected an integer", SparseRidge, 2, 1.0, -1),
        ]
    )
    assert repr(SparseRidge(6, 0.5)) == "SparseRidge(6, 0.5): n=0, 0 columns, exact"
