"""What type checkers say of kernels: `mypy` reads this file, and nothing runs it."""

from __future__ import annotations

from typing import assert_type

import numpy as np
from numpy.typing import NDArray

from dmq_fast.kernels import Ridge, RidgeArms, dsec, dsec_decision, dsec_rows, dsec_value, greedy_actions

Floats = NDArray[np.float64]
Singles = NDArray[np.float32]
Bools = NDArray[np.bool_]


def one_row(ridge: Ridge, arms: RidgeArms, row: np.ndarray[tuple[int], np.dtype[np.float64]]) -> None:
    assert_type(ridge.leverage([1.0, 2.0]), float)
    assert_type(ridge.leverage(row), float)
    assert_type(ridge.predict(row), float | Floats)  # of several targets an array
    assert_type(ridge.upper(row, 0.5), float | Floats)
    assert_type(arms.predict(row), Floats)
    assert_type(arms.upper([1.0, 2.0], 0.5), Floats)
    assert_type(arms.select(row, 0.5), int)


def rows(ridge: Ridge, arms: RidgeArms, block: np.ndarray[tuple[int, int], np.dtype[np.float64]]) -> None:
    assert_type(ridge.predict(block), Floats)
    assert_type(ridge.leverage([[1.0], [2.0]]), Floats)
    assert_type(ridge.upper(block, 0.5), Floats)
    assert_type(ridge.select(block, 0.5), int)
    assert_type(arms.leverage(block), Floats)
    assert_type(arms.select(block, 0.5), NDArray[np.int64])
    assert_type(arms.select(block, 0.5, per_arm=True), int)
    assert_type(greedy_actions(block, block), NDArray[np.int64])


def rows_in_single_precision(
    ridge: Ridge, arms: RidgeArms, block: np.ndarray[tuple[int, int], np.dtype[np.float32]]
) -> None:
    assert_type(ridge.leverage(block), Singles)
    assert_type(ridge.predict(block), Singles | Floats)
    assert_type(arms.upper(block, 0.5), Singles)


def oracle(
    matrix: np.ndarray[tuple[int, int], np.dtype[np.float64]],
    stack: np.ndarray[tuple[int, int, int], np.dtype[np.float64]],
) -> None:
    assert_type(dsec_value(matrix, matrix, 1.0), float)
    assert_type(dsec_value(stack, matrix, 1.0), Floats)
    assert_type(dsec_value(matrix, stack, [1.0, 2.0]), Floats)
    assert_type(dsec_decision(matrix, matrix, 1.0, 2.0), bool)
    assert_type(dsec_decision(stack, stack, 1.0, 2.0), Bools)
    assert_type(dsec_decision([[1.0]], [[1.0]], 1.0, 2.0, return_marginal=True), tuple[bool, bool])
    assert_type(dsec_decision(matrix, stack, 1.0, 2.0, return_marginal=True), tuple[Bools, Bools])
    assert_type(dsec(matrix, matrix, 1.0, 2.0).decision, bool)
    assert_type(dsec(stack, matrix, 1.0, 2.0).value, Floats)
    assert_type(dsec_rows(matrix, matrix, 1.0, 2.0).marginal, bool)
