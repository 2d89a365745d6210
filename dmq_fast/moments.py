"""What a batch of trajectories leaves behind. Algorithms 2 and 3 need nothing else, and it adds up."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

__all__ = ["Moments", "Redrawn", "Returns"]


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
    """

    __slots__ = ("grams", "levels", "n", "returns")

    def __init__(self, n: int, levels: Sequence[int], grams: NDArray[np.float64], returns: dict[int, Returns]) -> None:
        self.n = n
        self.levels = levels if isinstance(levels, tuple | range) else tuple(levels)
        self.grams = grams
        self.returns = returns

    def drawn(self) -> Moments:
        """Return these moments, drawn by now."""
        return self

    @property
    def gram(self) -> dict[int, NDArray[np.float64]]:
        """Sum of phi phi^T by level."""
        return dict(zip(self.levels, self.grams, strict=True))

    def at(self, level: int) -> Moments:
        """Return what concerns one level: its second moment, and the return to go from it where there is one."""
        if len(self.levels) == 1:
            return self
        i = self.levels.index(level)
        returns = {level: self.returns[level]} if level in self.returns else {}
        # A copy, so that the other levels need not be kept.
        return Moments(self.n, (level,), self.grams[i : i + 1].copy(), returns)

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


class Redrawn(Moments):
    """Moments of an earlier call, dropped or lost in a kill: drawn again, bit for bit, when somebody looks at them.

    Parameters
    ----------
    n, levels
        As of `Moments`.
    draw : callable
        Returns the moments.
    """

    __slots__ = ("_draw",)

    def __init__(self, n: int, levels: Sequence[int], draw: Callable[[], Moments]) -> None:
        self.n = n
        self.levels = levels if isinstance(levels, tuple | range) else tuple(levels)
        self._draw = draw

    def at(self, level: int) -> Moments:
        """Return what concerns one level, not drawn before somebody looks at it."""
        draw = self._draw
        return self if len(self.levels) == 1 else Redrawn(self.n, (level,), lambda: draw().at(level))

    def drawn(self) -> Moments:
        """Return these moments, drawn by now."""
        self.grams  # noqa: B018
        return self

    def __getattr__(self, name: str) -> Any:
        # Asked for `grams` and `returns` only as long as they are not set.
        if name not in ("grams", "returns"):
            raise AttributeError(name)
        drawn = self._draw()
        self.grams, self.returns = drawn.grams, drawn.returns
        return getattr(self, name)
