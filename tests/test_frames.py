"""Columns of pandas, nullable and in Arrow's memory, and of Polars: numbers, but refused where one is missing."""

from __future__ import annotations

import numpy as np
import pytest

from dmq_fast.kernels import (
    LevelRows,
    Ridge,
    RidgeArms,
    SecondMoment,
    SparseRidge,
    as_floats,
    dsec_rows,
    greedy_actions,
)

pytestmark = pytest.mark.kernels

ROWS = np.array([[1.0, 0.5], [2.0, 1.0], [3.0, -1.0], [0.0, 4.0], [5.0, 1.0], [2.0, 2.0]])
TARGETS = np.array([1.0, 2.0, 0.0, 3.0, 1.0, 1.0])


def frames():
    """Return the same numbers in frames of several kinds, by name."""
    pandas = pytest.importorskip("pandas")
    plain = pandas.DataFrame(ROWS, columns=["a", "b"])
    found = {
        "plain": plain,
        "nullable": plain.astype("Float64"),
        "integers and floats": plain.astype({"a": "Int64", "b": "Float32"}),
        "one nullable column": plain.astype({"a": "Float64"}),
        "sparse": plain.astype(pandas.SparseDtype("float64", 0.0)),
    }
    pytest.importorskip("pyarrow")
    found["Arrow"] = plain.astype("float64[pyarrow]")
    found["Arrow and NumPy"] = plain.astype({"a": "int64[pyarrow]"})
    return found


CALLS = {
    "Ridge.update_rows": lambda rows, y: Ridge(2, 1.0).update_rows(rows, y),
    "Ridge.predict": lambda rows, y: Ridge(2, 1.0).predict(rows),
    "Ridge.leverage": lambda rows, y: Ridge(2, 1.0).leverage(rows),
    "Ridge.upper": lambda rows, y: Ridge(2, 1.0).upper(rows, 1.0),
    "RidgeArms.update_rows": lambda rows, y: RidgeArms(3, 2, 1.0).update_rows(0, rows, y),
    "RidgeArms.upper": lambda rows, y: RidgeArms(3, 2, 1.0).upper(rows, 1.0),
    "SparseRidge.update_rows": lambda rows, y: SparseRidge(2, 1.0).update_rows(rows, y),
    "SparseRidge.leverage": lambda rows, y: SparseRidge(2, 1.0).leverage(rows),
    "SecondMoment.add_rows": lambda rows, y: SecondMoment(2).add_rows(rows, y),
    "LevelRows.of": lambda rows, y: LevelRows.of([rows]).gram(0),
    "greedy_actions": lambda rows, y: greedy_actions(rows, [[1.0, 0.0], [0.0, 1.0]]),
    "dsec_rows": lambda rows, y: dsec_rows(rows, rows, 1.0, 2.0).value,
}


@pytest.mark.parametrize("name", CALLS)
def test_frames_are_rows(name):
    expected = CALLS[name](ROWS, TARGETS)
    for kind, frame in frames().items():
        found = CALLS[name](frame, frame["a"] * 0 + TARGETS)
        np.testing.assert_array_equal(found, expected, err_msg=kind)


def test_a_column_keeps_integers():
    """Columns of sparse rows and arms are integers, whatever holds them."""
    for kind in ("Int64", "UInt8", "int32[pyarrow]"):
        frame = frames()["plain"].astype(kind, errors="ignore")["a"].astype(kind)
        assert as_floats("x", frame, (6,)).tolist() == ROWS[:, 0].tolist()
        arms, model = RidgeArms(6, 2, 1.0), Ridge(6, 1.0)
        arms.update_rows(frame, ROWS, TARGETS)
        model.update_sparse(frame, ROWS[:, 1], 1.0)
        assert arms.n.tolist() == [1, 1, 2, 1, 0, 1]
        assert model.gram[2, 2] == 9.0


@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize("kind", ["nullable", "integers and floats", "one nullable column", "Arrow", "Arrow and NumPy"])
def test_a_missing_value_is_refused_with_the_remedy(name, kind):
    frame = frames()[kind].copy()
    frame.loc[3, "a"] = None
    with pytest.raises(ValueError, match=r"got a missing value at index \(3, 0\); fill or drop .* fillna and dropna"):
        CALLS[name](frame, TARGETS)
    kept = frame.dropna()
    CALLS[name](kept, TARGETS[kept.index])
    if "update_rows" in name:
        with pytest.raises(ValueError, match=r"^y: expected numbers, got a missing value at index \(3,\)"):
            CALLS[name](ROWS, frame["a"])


def test_what_is_no_number_is_refused():
    pandas = pytest.importorskip("pandas")
    frame = frames()["nullable"].assign(c=pandas.array(["x"] * 6, dtype="string"))
    with pytest.raises(TypeError, match=r"^X: expected real numbers, got dtype string"):
        as_floats("X", frame, (None, 3))
    with pytest.raises(TypeError, match=r"^x: expected real numbers, got dtype (object|<U1)"):
        as_floats("x", frame["c"], (None,))


def test_frames_of_polars():
    polars = pytest.importorskip("polars")
    frame = polars.DataFrame({"a": ROWS[:, 0].astype(int), "b": ROWS[:, 1]})
    for name, call in CALLS.items():
        np.testing.assert_array_equal(call(frame, frame["a"] * 0 + TARGETS), call(ROWS, TARGETS), err_msg=name)
    missing = frame.with_columns(a=polars.Series([1, None, 3, 4, 5, 6]))
    with pytest.raises(ValueError, match=r"^Phi: expected finite numbers, got nan at index \(1, 0\)"):
        Ridge(2, 1.0).update_rows(missing, TARGETS)


@pytest.mark.parametrize("kind", ["nullable", "integers and floats", "Arrow", "Arrow and NumPy"])
def test_the_estimator_of_scikit_learn_takes_frames(kind):
    pytest.importorskip("sklearn")
    from dmq_fast.sklearn import RidgeRegressor

    frame = frames()[kind]
    y = frame["b"] + 1.0
    model = RidgeRegressor(0.5).fit(frame, y, sample_weight=frame["a"] * 0 + 1)
    again = RidgeRegressor(0.5).fit(ROWS, ROWS[:, 1] + 1.0)
    assert (model.predict(frame) == again.predict(ROWS)).all()
    frame = frame.copy()
    frame.loc[3, "a"] = None
    for call in (model.predict, lambda rows: model.fit(rows, y)):
        with pytest.raises(ValueError, match=r"Input X contains NaN"):
            call(frame)
