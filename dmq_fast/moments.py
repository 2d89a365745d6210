"""`Moments`: the sums over trajectories that Algorithms 2 and 3 need; those of several batches add up."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

__all__ = ["Moments", "Returns"]


FIXED = (tuple, range)  # sequences that cannot change; a union of the two would be made anew at every call


class Returns(NamedTuple):
    """Moments of the pairs (phi(s_h), y), y the return to go from h: Sum y phi (d,), sum y^2, and their number."""

    moment: NDArray[np.float64]
    square: float
    n: int


class Moments:
    """Moments of n trajectories.

    Parameters
    ----------
    n : int
        Number of trajectories.
    levels : sequence of int
        Ascending levels that `grams` holds.
    grams : numpy.ndarray, shape (len(levels), d, d)
        Sum over the trajectories of phi(s_h) phi(s_h)^T, by level.
    returns : dict of int to Returns
        By level h, the moments of the return to go from h.

    Examples
    --------
    >>> one = Moments(1, [0], np.array([[[1.0, 0.0], [0.0, 0.0]]]), {})
    >>> two = Moments(2, [0], np.array([[[0.0, 0.0], [0.0, 2.0]]]), {})
    >>> (one + two).second_moment(0)
    array([[0.33333333, 0.        ],
           [0.        , 0.66666667]])
    """

    __slots__ = ("grams", "levels", "n", "returns")

    def __init__(self, n: int, levels: Sequence[int], grams: NDArray[np.float64], returns: dict[int, Returns]) -> None:
        self.n = n
        self.levels = levels if isinstance(levels, FIXED) else tuple(levels)
        self.grams = grams
        self.returns = returns

    def second_moment(self, level: int) -> NDArray[np.float64]:
        """Return the second moment of one level, (1 / n) Sum phi phi^T, shape (d, d)."""
        gram: NDArray[np.float64] = self.grams[self.levels.index(level)]
        return gram / self.n

    @property
    def gram(self) -> dict[int, NDArray[np.float64]]:
        """Sum of phi phi^T by level."""
        return dict(zip(self.levels, self.grams, strict=True))

    def at(self, level: int) -> Moments:
        """Return the moments of one level: its second moment, and the return to go from it if it is there."""
        if len(self.levels) == 1:
            return self
        i = self.levels.index(level)
        returns = {level: self.returns[level]} if level in self.returns else {}
        # A copy, so that the other levels need not be kept.
        return Moments(self.n, (level,), self.grams[i : i + 1].copy(), returns)

    def only(self, levels: Sequence[int], returns_from: Sequence[int]) -> Moments:
        """Return the moments of some ascending levels, and of the returns to go from some."""
        grams = self.grams[[self.levels.index(level) for level in levels]]
        return Moments(self.n, levels, grams, {h: self.returns[h] for h in returns_from})

    def __add__(self, other: Moments) -> Moments:
        if not isinstance(other, Moments):
            return NotImplemented
        if tuple(self.levels) != tuple(other.levels) or self.returns.keys() != other.returns.keys():
            raise ValueError("moments of different levels do not add up")
        returns = {
            h: Returns(mine.moment + theirs.moment, mine.square + theirs.square, mine.n + theirs.n)
            for (h, mine), theirs in zip(self.returns.items(), other.returns.values(), strict=True)
        }
        return Moments(self.n + other.n, self.levels, self.grams + other.grams, returns)

    def __repr__(self) -> str:
        return f"Moments(n={self.n}, levels={list(self.levels)}, returns_from={list(self.returns)})"
