"""`Moments`: the sums over trajectories that Algorithms 2 and 3 need; `Moment`: the second moment of one level.

Sums of phi phi^T are Gram matrices on all columns, or rows while they are few; `fits_rows` returns which is cheaper.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dmq_fast._support.words import number_of
from dmq_fast.kernels import LevelRows, SecondMoment, is_sparse

if TYPE_CHECKING:
    from dmq_fast._support.arrays import Sparse

__all__ = ["DENSE_BELOW", "Moment", "Moments", "Returns", "entries_of", "fits_rows", "sums_of"]

DENSE_BELOW = 24
"""Number of dimensions below which a Gram matrix and its factorisation cost about as much as one row
(bench/test_row_oracle.py)."""


FIXED = (tuple, range)  # sequences that cannot change; a union of the two would be made anew at every call


class Returns(NamedTuple):
    """Moments of the pairs (phi(s_h), y), y the return to go from h: Sum y phi (d,), sum y^2, and their number."""

    moment: NDArray[np.float64]
    square: float
    n: int


class Moment:
    """A second moment, or a sum of some: a Gram matrix on a support, 0 on all other columns.

    Parameters
    ----------
    gram : numpy.ndarray, shape (k, k)
        The entries on the support.
    support : numpy.ndarray of int32, shape (k,), optional
        Ascending columns; by default all.
    dimension : int, optional
        d; k by default.
    rows : tuple of (LevelRows, float)
        Rows of one level and divisors that it is the sum of, where they are at hand.

    Examples
    --------
    >>> one = Moment(np.array([[2.0]]), np.array([1]), 4)
    >>> (one + Moment(np.array([[0.5]]), np.array([3]), 4)).matrix().diagonal()
    array([0. , 2. , 0. , 0.5])
    >>> (one + Moment(np.eye(4))).matrix().diagonal()
    array([1., 3., 1., 1.])
    """

    __slots__ = ("_support", "dimension", "gram", "rows")

    def __init__(
        self,
        gram: NDArray[Any],
        support: NDArray[np.int32] | None = None,
        dimension: int | None = None,
        rows: tuple[tuple[LevelRows, float], ...] = (),
    ) -> None:
        self.gram, self._support, self.rows = gram, support, rows
        self.dimension = len(gram) if dimension is None else dimension

    @property
    def support(self) -> NDArray[np.int32]:
        """Ascending columns outside of which the entries are 0, shape (k,)."""
        return np.arange(self.dimension, dtype=np.int32) if self._support is None else self._support

    @property
    def sparse(self) -> bool:
        """Whether the support was given; otherwise it is all columns."""
        return self._support is not None

    @property
    def columns(self) -> list[int]:
        """The support as a record of a journal has it: d and the columns, or nothing for all columns."""
        return [] if self._support is None else [self.dimension, *self._support.tolist()]

    def on(self, columns: NDArray[np.integer]) -> NDArray[Any]:
        """Return the entries on ascending columns that hold the support, shape (len(columns), len(columns))."""
        if self._support is None:
            return self.gram
        out = np.zeros((len(columns), len(columns)))
        places = np.searchsorted(columns, self._support)
        out[np.ix_(places, places)] = self.gram
        return out

    def matrix(self) -> NDArray[Any]:
        """Return all entries, shape (d, d)."""
        return self.on(np.arange(self.dimension, dtype=np.int32))

    def any(self) -> bool:
        """Return whether an entry is not 0."""
        return bool(self.gram.any())

    def __add__(self, other: Moment) -> Moment:
        if not isinstance(other, Moment):
            return NotImplemented
        if self._support is None or other._support is None:
            return Moment(self.matrix() + other.matrix())
        columns = np.union1d(self._support, other._support)
        # Rows of one part alone would not be those of the sum.
        rows = self.rows + other.rows if self.rows and other.rows else ()
        return Moment(self.on(columns) + other.on(columns), columns, self.dimension, rows)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Moment):
            return NotImplemented
        return np.array_equal(self.support, other.support) and np.array_equal(self.gram, other.gram)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"Moment(dimension={self.dimension}, <{number_of(len(self.gram), 'column')}>)"


def fits_rows(n: int, nonzeros: int, dimension: int) -> bool:
    """Return whether n rows with so many nonzero entries are cheaper than a Gram matrix of this dimension."""
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
    returns : mapping of int to Returns
        By level h, the moments of the return to go from h.

    Attributes
    ----------
    n, levels, returns
        The arguments.
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

    __slots__ = ("_grams", "levels", "n", "returns", "rows")

    def __init__(
        self, n: int, levels: Sequence[int], sums: NDArray[Any] | LevelRows, returns: Mapping[int, Returns]
    ) -> None:
        self.n = n
        self.levels = levels if isinstance(levels, FIXED) else tuple(levels)
        self.rows: LevelRows | None = sums if isinstance(sums, LevelRows) else None
        self._grams: NDArray[Any] | None = None if isinstance(sums, LevelRows) else sums
        self.returns = returns

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

    def moment_at(self, level: int, shares: int = 1) -> Moment:
        """Return the second moment of one level divided by `shares`, with its rows if the sums came in rows."""
        divisor = self.n * shares
        if self.rows is None:
            return Moment(self.gram_at(level) / divisor)
        i = self.levels.index(level)
        support, gram = self.rows.compressed(i)
        rows = self.rows if self.rows.n_levels == 1 else self.rows.pick((i,))
        return Moment(gram / divisor, support, self.rows.dimension, ((rows, float(divisor)),))

    @property
    def gram(self) -> dict[int, NDArray[np.float64]]:
        """Sum of phi phi^T by level."""
        return dict(zip(self.levels, self.grams, strict=True))

    @property
    def nbytes(self) -> int:
        """Number of bytes of the arrays."""
        size = self.grams.nbytes if self.rows is None else self.rows.nbytes
        for returns in self.returns.values():
            size += returns.moment.nbytes
        return size

    def at(self, level: int) -> Moments:
        """Return the moments of one level: its second moment, and the return to go from it if it is there."""
        if len(self.levels) == 1:
            return self
        i = self.levels.index(level)
        # A copy, so that the other levels need not be kept.
        sums = self.grams[i : i + 1].copy() if self.rows is None else self.rows.pick((i,))
        returns = self.returns.get(level)
        return Moments(self.n, (level,), sums, {} if returns is None else {level: returns})

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
        pairs = [part.returns[level] for part in parts]
        moment = pairs[0].moment.copy()
        for other in pairs[1:]:
            moment += other.moment
        returns = Returns(moment, sum([pair.square for pair in pairs]), sum([pair.n for pair in pairs]))
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
