"""Numbers as arguments of kernels: the usual types are read without an array."""

import numpy as np
import pytest

from dmq_fast.kernels import (
    Ridge,
    RidgeFit,
    SecondMoment,
    ShiftScan,
    as_positive,
    dsec_decision,
)

IDENTITY = np.eye(3)


@pytest.mark.parametrize("number", [np.float32(2.0), np.int64(2), np.uint8(2), np.array(2.0), True, 2**70])
def test_other_numbers_are_read_as_well(number):
    assert as_positive("x", number) == float(number)


@pytest.mark.parametrize("number", [-1, -1.0, np.float64(-1.0), float("nan"), np.float64("inf"), 0, 0.0, -(2**70)])
def test_numbers_that_are_not_positive_are_refused_by_name(number):
    with pytest.raises(ValueError, match="x: expected"):
        as_positive("x", number)
    with pytest.raises(ValueError, match="eps1: expected"):
        dsec_decision(IDENTITY, IDENTITY, number, 1.0)


def test_zero_is_accepted_where_it_may_be():
    assert [as_positive("x", zero, zero=True) for zero in (0, 0.0, np.float64(0.0), -0.0)] == [0.0] * 4


@pytest.mark.parametrize("size", ["3", 3.0, True, None, 0, -1, 2**63])
def test_sizes_are_integers_in_range_or_refused_by_name(size):
    error = ValueError if type(size) is int else TypeError
    for make in (
        lambda: Ridge(size, 1.0),
        lambda: RidgeFit(size, 1.0),
        lambda: SecondMoment(size),
        lambda: ShiftScan(size, 1.0, 1.0, 1.0, False),
    ):
        with pytest.raises(error, match=r"^d(imension)?: expected an integer"):
            make()
    assert ShiftScan(np.int64(3), 1.0, 1.0, 1.0, False).dimension == Ridge(np.int64(3), 1.0).dimension == 3
