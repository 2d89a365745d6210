"""The second moments of the covers, all that a run keeps of D_h."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dmq_fast.arithmetic import Arithmetic
from dmq_fast.function_class import Solver
from dmq_fast.kernels import RowOracle
from dmq_fast.moments import SparseMoment, as_matrix, summed

__all__ = ["CoverMoments"]


class CoverMoments:
    """S_h of all levels, and when each last changed.

    Time is the number of changes so far. The first moment that comes decides the form: matrices, or where that is
    sparse and the solver knows how, a `RowOracle` for each level.

    Parameters
    ----------
    horizon, dimension : int
    solver : Solver
    arithmetic : Arithmetic

    Attributes
    ----------
    sums : numpy.ndarray, shape (H, d, d), or list of H RowOracle
        S_h by level, as `Solver.scan` takes them. Changed by `add` and `replace` only.
    """

    def __init__(self, horizon: int, dimension: int, solver: Solver, arithmetic: Arithmetic) -> None:
        self.sums: Any = []
        self.time = 0
        self._horizon, self._dimension, self._solver, self._arithmetic = horizon, dimension, solver, arithmetic
        self._changed = [0] * horizon
        self._sparse: dict[int, SparseMoment] = {}

    def __getitem__(self, level: int) -> NDArray[Any] | SparseMoment:
        """Return S of a level; not to be changed."""
        if len(self.sums) == 0:
            return self._arithmetic.zeros((self._dimension, self._dimension))
        if isinstance(self.sums, list):
            if level not in self._sparse:
                oracle = self.sums[level]
                self._sparse[level] = SparseMoment(self._dimension, oracle.support, oracle.gram)
            return self._sparse[level]
        moment: NDArray[Any] = self.sums[level]
        return moment

    def add(self, level: int, moment: NDArray[Any] | SparseMoment) -> None:
        """S_level <- S_level + moment."""
        self._begin(moment)
        self._note(level)
        if isinstance(self.sums, list):
            grow(self.sums[level], moment)
        else:
            self.sums[level] += as_matrix(moment)

    def replace(self, level: int, moment: NDArray[Any] | SparseMoment) -> None:
        """S_level <- moment; no change where they are equal."""
        self._begin(moment)
        if isinstance(self.sums, list):
            if self[level] is not moment and self[level] != moment:
                self._note(level)
                self.sums[level] = self._row_oracle()
                grow(self.sums[level], moment)
        elif not np.array_equal(self.sums[level], as_matrix(moment)):
            self._note(level)
            self.sums[level] = as_matrix(moment)

    def potentials(self, level: int, moment: NDArray[Any] | SparseMoment) -> tuple[float, float]:
        """Return log det(S_level + eps_r G) before and after a moment is added; see `Solver.potential`."""
        if isinstance(self.sums, list) and isinstance(moment, SparseMoment) and len(moment.rows) == 1:
            oracle, (rows, divisor) = self.sums[level], moment.rows[0]
            return oracle.log_det(), oracle.log_det(rows, 0, divisor)
        before: Any = self[level]
        return self._solver.potential(before), self._solver.potential(summed(before, moment))

    def changed(self, level: int, since: int) -> bool:
        """Return whether S of a level has changed since a time."""
        return self._changed[level] > since

    def runs(self, top: int, bottom: int, since: int) -> list[tuple[int, int]]:
        """Return the runs of consecutive levels, top to bottom, whose S changed since a time; all before time 0."""
        if since < 0:
            return [(top, bottom)]
        runs: list[tuple[int, int]] = []
        if since == self.time:
            return runs
        for level in range(top, bottom - 1, -1):
            if self._changed[level] > since:
                first = runs.pop()[0] if runs and runs[-1][1] == level + 1 else level
                runs.append((first, level))
        return runs

    def _note(self, level: int) -> None:
        self.time += 1
        self._changed[level] = self.time
        self._sparse.pop(level, None)

    def _begin(self, moment: NDArray[Any] | SparseMoment) -> None:
        """Choose the form, if this is the first moment."""
        if len(self.sums) == 0:
            if isinstance(moment, SparseMoment) and self._row_oracle() is not None:
                self.sums = [self._row_oracle() for _ in range(self._horizon)]
            else:
                self.sums = self._arithmetic.zeros((self._horizon, self._dimension, self._dimension))

    def _row_oracle(self) -> RowOracle | None:
        make = getattr(self._solver, "row_oracle", None)
        return None if make is None else make()


def grow(oracle: RowOracle, moment: NDArray[Any] | SparseMoment) -> None:
    """Add a moment to the S of an oracle: in rows where they are at hand, so that its inverse is updated."""
    if isinstance(moment, SparseMoment):
        for rows, divisor in moment.rows:
            oracle.add(rows, 0, divisor)
        if not moment.rows:
            oracle.add_gram(moment.support, moment.gram)
    else:
        support = np.flatnonzero(moment.diagonal())
        oracle.add_gram(support, moment[np.ix_(support, support)])
