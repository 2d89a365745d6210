"""Estimates of the value of a policy from the returns of trajectories."""

from __future__ import annotations

from collections.abc import Iterable
from math import sqrt
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

__all__ = ["Estimate", "estimate"]


class Estimate(NamedTuple):
    """Mean return of n trajectories and its standard error (NaN for n = 1)."""

    value: float
    standard_error: float
    n: int


def estimate(blocks: Iterable[NDArray[np.float64]]) -> Estimate:
    """Return mean and standard error of the returns in all blocks together.

    Examples
    --------
    >>> estimate([np.array([0.0, 1.0]), np.array([0.5])])
    Estimate(value=0.5, standard_error=0.28867513459481287, n=3)
    """
    n, mean, squares = 0, 0.0, 0.0
    for y in blocks:
        # Chan's update: no cancellation where all returns are about the same.
        center = float(y.mean())
        delta = center - mean
        squares += float(((y - center) ** 2).sum()) + delta**2 * n * len(y) / (n + len(y))
        n += len(y)
        mean += delta * len(y) / n
    return Estimate(mean, sqrt(squares / (n - 1) / n) if n > 1 else float("nan"), n)
