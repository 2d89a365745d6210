"""`Moments`: the sums over trajectories that Algorithms 2 and 3 need; those of several batches add up.

Sums of phi phi^T come in two forms, Gram matrices and rows. `fits_rows` tells which is cheaper.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dmq_fast._support.words import number_of
from dmq_fast.kernels import LevelRows, SecondMoment, is_sparse

if TYPE_CHECKING:
    from dmq_fast._support.arrays import Sparse

__all__ = [
    "DENSE_BELOW",
    "Moments",
    "Returns",
    "SparseMoment",
    "as_matrix",
    "entries_of",
    "fits_rows",
    "summed",
    "sums_of",
]

DENSE_BELOW = 24
"""Number of dimensions below which a Gram matrix and its factorisation cost about as much as one row
(bench/test_row_oracle.py)."""


FIXED = (tuple, range)  # sequences that cannot change; a union of the two would be made anew at every call


class Returns(NamedTuple):
    """Moments of the pairs (phi(s_h), y), y the return to go from h: Sum y phi (d,), sum y^2, and their number."""

    moment: NDArray[np.float64]
    square: float
    n: int


class SparseMoment:
    """A second moment, or a sum of some, that is 0 outside a few columns.

    Parameters
    ----------
    dimension : int
        d.
    support : numpy.ndarray of int32, shape (k,)
        Ascending columns.
    gram : numpy.ndarray, shape (k, k)
        The entries there.
    rows : tuple of (LevelRows, float)
        Rows of one level and divisors that it is the sum of, where they are at hand.

    Examples
    --------
    >>> one = SparseMoment(4, np.array([1]), np.array([[2.0]]))
    >>> (one + SparseMoment(4, np.array([3]), np.array([[0.5]]))).matrix().diagonal()
    array([0. , 2. , 0. , 0.5])
    """

    __slots__ = ("dimension", "gram", "rows", "support")

    def __init__(
        self,
        dimension: int,
        support: NDArray[np.int32],
        gram: NDArray[np.float64],
        rows: tuple[tuple[LevelRows, float], ...] = (),
    ) -> None:
        self.dimension, self.support, self.gram, self.rows = dimension, support, gram, rows

    def on(self, columns: NDArray[np.int32]) -> NDArray[np.float64]:
        """Return the entries on ascending columns that hold the support, shape (len(columns), len(columns))."""
        out = np.zeros((len(columns), len(columns)))
        places = np.searchsorted(columns, self.support)
        out[np.ix_(places, places)] = self.gram
        return out

    def matrix(self) -> NDArray[np.float64]:
        """Return all entries, shape (d, d)."""
        return self.on(np.arange(self.dimension, dtype=np.int32))

    def any(self) -> bool:
        """Whether an entry is not 0."""
        return bool(self.gram.any())

    def __add__(self, other: SparseMoment) -> SparseMoment:
        if not isinstance(other, SparseMoment):
            return NotImplemented
        columns = np.union1d(self.support, other.support)
        # Rows of one part alone would not be those of the sum.
        rows = self.rows + other.rows if self.rows and other.rows else ()
        return SparseMoment(self.dimension, columns, self.on(columns) + other.on(columns), rows)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, SparseMoment):
            return NotImplemented
        return np.array_equal(self.support, other.support) and np.array_equal(self.gram, other.gram)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"SparseMoment(dimension={self.dimension}, <{number_of(len(self.support), 'column')}>)"


def as_matrix(moment: NDArray[Any] | SparseMoment) -> NDArray[Any]:
    """Return a second moment of either form as a matrix, shape (d, d)."""
    return moment.matrix() if isinstance(moment, SparseMoment) else moment


def summed(one: NDArray[Any] | SparseMoment, other: NDArray[Any] | SparseMoment) -> Any:
    """Return the sum of two second moments: sparse if both are, else a matrix."""
    if isinstance(one, SparseMoment) and isinstance(other, SparseMoment):
        return one + other
    return as_matrix(one) + as_matrix(other)


def fits_rows(n: int, nonzeros: int, dimension: int) -> bool:
    """Whether n rows of so many entries that are not 0 are cheaper than a Gram matrix of this dimension."""
    return dimension >= DENSE_BELOW and 4 * n * nonzeros <= dimension * dimension


def sums_of(blocks: Sequence[NDArray[np.float64] | Sparse], dimension: int) -> NDArray[np.float64] | LevelRows:
    """Return the sums of phi phi^T over the rows of each level, each (n, d), in the cheaper form."""
    nonzeros = max((int(entries_of(block).max(initial=1)) for block in blocks), default=1)
    if blocks and fits_rows(blocks[0].shape[0], nonzeros, dimension):
        return LevelRows.of(blocks)
    grams = np.zeros((len(blocks), dimension, dimension))
    for gram, block in zip(grams, blocks, strict=True):
        total = SecondMoment(dimension)
        total.add_rows(block)
        gram[:] = total.matrix
    return grams


def entries_of(rows: NDArray[np.float64] | Sparse) -> NDArray[np.integer]:
    """Return the number of entries of each row that are not 0."""
    return np.diff(rows.indptr) if is_sparse(rows) else np.count_nonzero(rows, axis=1)


Simulated = tuple[NDArray[np.float64] | LevelRows, NDArray[np.float64], NDArray[np.float64]]
"""What compiled code returns of some trajectories: sums, moments and squares, as `Moments.simulated` takes them."""


class Moments:
    """Moments of n trajectories.

    Parameters
    ----------
    n : int
        Number of trajectories.
    levels : sequence of int
        Ascending levels that `sums` holds.
    sums : numpy.ndarray, shape (len(levels), d, d), or LevelRows
        Sum over the trajectories of phi(s_h) phi(s_h)^T by level, or the rows behind it.
    returns : dict of int to Returns
        By level h, the moments of the return to go from h.

    Attributes
    ----------
    rows : LevelRows or None
        The sums, if they came in rows.

    Examples
    --------
    >>> one = Moments(1, [0], np.array([[[1.0, 0.0], [0.0, 0.0]]]), {})
    >>> two = Moments(2, [0], LevelRows.of([[[0.0, 1.0], [0.0, 1.0]]]), {})
    >>> (one + two).second_moment(0)
    array([[0.33333333, 0.        ],
           [0.        , 0.66666667]])
    """

    __slots__ = ("_grams", "_returns", "_simulated", "levels", "n", "rows")

    _simulated: tuple[Sequence[int], NDArray[np.float64], NDArray[np.float64]]

    def __init__(
        self, n: int, levels: Sequence[int], sums: NDArray[np.float64] | LevelRows, returns: dict[int, Returns] | None
    ) -> None:
        self.n = n
        self.levels = levels if isinstance(levels, FIXED) else tuple(levels)
        self.rows: LevelRows | None = sums if isinstance(sums, LevelRows) else None
        self._grams: NDArray[np.float64] | None = None if isinstance(sums, LevelRows) else sums
        self._returns = returns

    @classmethod
    def simulated(
        cls,
        n: int,
        levels: Sequence[int],
        returns_from: Sequence[int],
        sums: NDArray[np.float64] | LevelRows,
        moments: NDArray[np.float64],
        squares: NDArray[np.float64],
    ) -> Moments:
        """Return the moments of n trajectories from what compiled code returns.

        `moments` has shape (len(returns_from), d), `squares` (len(returns_from),). The entries of `returns` are made
        when they are first read: a run makes these objects by the ten thousand and reads few.
        """
        made = cls(n, levels, sums, None)
        made._simulated = returns_from, moments, squares
        return made

    @classmethod
    def added_up(cls, n: int, level: int, drawn: Sequence[Simulated]) -> Moments:
        """Return the moments of one level, and of the return to go from it, summed over draws of n trajectories each.

        They are those of `total`, for draws that hold that level alone; the arrays of the first one become the sums.
        """
        total, moments, squares = drawn[0]
        for sums, their_moments, their_squares in drawn[1:]:
            if not isinstance(total, LevelRows) and not isinstance(sums, LevelRows):  # all are of one form
                total += sums
            moments += their_moments
            squares += their_squares
        if len(drawn) > 1 and isinstance(total, LevelRows):
            wholes = [sums for sums, _, _ in drawn if isinstance(sums, LevelRows)]
            total = LevelRows.total(wholes, [0] * len(wholes))
        return cls.simulated(n * len(drawn), (level,), (level,), total, moments, squares)

    @property
    def returns(self) -> dict[int, Returns]:
        """By level h, the moments of the return to go from h."""
        if self._returns is None:
            returns_from, moments, squares = self._simulated
            self._returns = {h: Returns(moments[i], squares[i], self.n) for i, h in enumerate(returns_from)}
        return self._returns

    def pair(self, level: int) -> tuple[NDArray[np.float64], float, int]:
        """Return the entry of `returns` of a level, as a tuple."""
        if self._returns is not None:
            return self._returns[level]
        returns_from, moments, squares = self._simulated
        i = returns_from.index(level)
        return moments[i], squares[i], self.n

    @property
    def grams(self) -> NDArray[np.float64]:
        """Sum of phi phi^T by level, shape (len(levels), d, d); made anew each time where the sums are in rows."""
        if self.rows is None:
            assert self._grams is not None
            return self._grams
        grams = np.empty((len(self.levels), self.rows.dimension, self.rows.dimension))
        for i, gram in enumerate(grams):
            gram[...] = self.rows.gram(i)
        return grams

    def gram_at(self, level: int) -> NDArray[np.float64]:
        """Return the sum of phi phi^T of one level, shape (d, d)."""
        i = self.levels.index(level)
        if self.rows is not None:
            return self.rows.gram(i)
        gram: NDArray[np.float64] = self.grams[i]
        return gram

    def second_moment(self, level: int) -> NDArray[np.float64]:
        """Return the second moment of one level, (1 / n) Sum phi phi^T, shape (d, d)."""
        return self.gram_at(level) / self.n

    def moment_at(self, level: int, shares: int = 1) -> NDArray[np.float64] | SparseMoment:
        """Return the second moment of one level divided by `shares`, in the form of the sums."""
        divisor = self.n * shares
        if self.rows is None:
            return self.gram_at(level) / divisor
        i = self.levels.index(level)
        support, gram = self.rows.compressed(i)
        rows = self.rows if self.rows.n_levels == 1 else self.rows.pick((i,))
        return SparseMoment(self.rows.dimension, support, gram / divisor, ((rows, float(divisor)),))

    @property
    def gram(self) -> dict[int, NDArray[np.float64]]:
        """Sum of phi phi^T by level."""
        return dict(zip(self.levels, self.grams, strict=True))

    @property
    def nbytes(self) -> int:
        """Number of bytes of the arrays."""
        size = self.grams.nbytes if self.rows is None else self.rows.nbytes
        if self._returns is None:
            return size + self._simulated[1].nbytes
        return size + sum(returns.moment.nbytes for returns in self._returns.values())

    def at(self, level: int) -> Moments:
        """Return the moments of one level: its second moment, and the return to go from it if it is there."""
        if len(self.levels) == 1:
            return self
        i = self.levels.index(level)
        # A copy, so that the other levels need not be kept.
        sums = self.grams[i : i + 1].copy() if self.rows is None else self.rows.pick((i,))
        if self._returns is None and tuple(self._simulated[0]) == (level,):
            return Moments.simulated(self.n, (level,), (level,), sums, *self._simulated[1:])
        returns = self.returns.get(level)
        return Moments(self.n, (level,), sums, {} if returns is None else {level: returns})

    def only(self, levels: Sequence[int], returns_from: Sequence[int]) -> Moments:
        """Return the moments of some ascending levels, and of the returns to go from some."""
        positions = [self.levels.index(level) for level in levels]
        # A copy, so that the other levels need not be kept.
        sums = self.grams[positions] if self.rows is None else self.rows.pick(positions)
        return Moments(self.n, levels, sums, {h: self.returns[h] for h in returns_from})

    @staticmethod
    def total(parts: Sequence[Moments], level: int) -> Moments:
        """Return the moments of one level, summed over `parts` in order: second moments and returns to go from it."""
        if len(parts) == 1:
            return parts[0].at(level)
        sums: NDArray[np.float64] | LevelRows
        wholes = [part.rows for part in parts if part.rows is not None]
        if len(wholes) == len(parts):
            sums = LevelRows.total(wholes, [part.levels.index(level) for part in parts])
        else:
            sums = parts[0].gram_at(level)[np.newaxis].copy()
            for part in parts[1:]:
                sums[0] += part.gram_at(level)
        pairs = [part.pair(level) for part in parts]
        moment = pairs[0][0].copy()
        for other, _, _ in pairs[1:]:
            moment += other
        returns = Returns(moment, sum([square for _, square, _ in pairs]), sum([n for _, _, n in pairs]))
        return Moments(sum([part.n for part in parts]), (level,), sums, {level: returns})

    def __add__(self, other: Moments) -> Moments:
        if not isinstance(other, Moments):
            return NotImplemented
        if tuple(self.levels) != tuple(other.levels) or self.returns.keys() != other.returns.keys():
            raise ValueError("moments of different levels do not add up")
        returns = {
            h: Returns(mine.moment + theirs.moment, mine.square + theirs.square, mine.n + theirs.n)
            for (h, mine), theirs in zip(self.returns.items(), other.returns.values(), strict=True)
        }
        if self.rows is None or other.rows is None:
            return Moments(self.n + other.n, self.levels, self.grams + other.grams, returns)
        return Moments(self.n + other.n, self.levels, self.rows + other.rows, returns)

    def __repr__(self) -> str:
        return f"Moments(n={self.n}, levels={list(self.levels)}, returns_from={list(self.returns)})"
