"""The second moments of the covers, all that a run keeps of D_h."""

from __future__ import annotations

from typing import Any

from numpy.typing import NDArray

from dmq_fast.arithmetic import Arithmetic
from dmq_fast.function_class import Solver
from dmq_fast.kernels import RowOracle
from dmq_fast.moments import Moment

__all__ = ["CoverMoments"]


class CoverMoments:
    """S_h of all levels, and when each last changed.

    Time is the number of changes so far. S_h is a matrix; or where the first moment that comes is sparse, and the
    solver knows how, a `RowOracle`, whose inverse is updated by rows.

    Parameters
    ----------
    horizon, dimension : int
    solver : Solver
    arithmetic : Arithmetic
    """

    def __init__(self, horizon: int, dimension: int, solver: Solver, arithmetic: Arithmetic) -> None:
        self.time = 0
        self._horizon, self._dimension, self._solver, self._arithmetic = horizon, dimension, solver, arithmetic
        self._changed = [0] * horizon
        self._latest = [0] * horizon
        # One of the two is filled when the first moment comes.
        self._oracles: list[RowOracle] = []
        self._matrices: NDArray[Any] = arithmetic.zeros((0, 0, 0))
        self._moments: dict[int, Moment] = {}

    @property
    def sums(self) -> NDArray[Any] | list[RowOracle]:
        """S_h by level, as `Solver.scan` takes them, shape (H, d, d) or H oracles; changed by `add` and `replace`."""
        return self._oracles or self._matrices

    def __getitem__(self, level: int) -> Moment:
        """Return S of a level; not to be changed."""
        if self._oracles and level not in self._moments:
            oracle = self._oracles[level]
            self._moments[level] = Moment(oracle.gram, oracle.support, oracle.dimension)
        return self._moments[level] if self._oracles else Moment(self._matrices[level])

    def add(self, level: int, moment: Moment) -> None:
        """S_level <- S_level + moment."""
        self._begin(moment)
        self._note(level)
        if self._oracles:
            grow(self._oracles[level], moment)
        else:
            self._matrices[level] += moment.matrix()

    def replace(self, level: int, moment: Moment) -> None:
        """S_level <- moment; no change where they are equal."""
        self._begin(moment)
        if self[level] == moment:
            return
        self._note(level)
        if self._oracles:
            self._oracles[level] = self._oracle_of(moment)
        else:
            self._matrices[level] = moment.matrix()

    def potentials(self, level: int, moment: Moment) -> tuple[float, float]:
        """Return log det(S_level + eps_r G) before and after a moment is added; see `Solver.potential`."""
        if not self._oracles:
            before = self._matrices[level]
            return self._solver.potential(before), self._solver.potential(before + moment.matrix())
        oracle = self._oracles[level]
        if len(moment.rows) != 1:
            return oracle.log_det(), self._oracle_of(self[level] + moment).log_det()
        rows, divisor = moment.rows[0]
        return oracle.log_det(), oracle.log_det(rows, 0, divisor)

    def changed(self, level: int, since: int) -> bool:
        """Return whether S of a level has changed since a time."""
        return self._changed[level] > since

    def latest(self, bottom: int) -> int:
        """Return the time of the last change of S at the levels from `bottom` on."""
        return self._latest[bottom]

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
        self._latest[: level + 1] = [self.time] * (level + 1)
        self._moments.pop(level, None)

    def _begin(self, moment: Moment) -> None:
        """Choose the form, if this is the first moment."""
        if len(self.sums):
            return
        if moment.sparse and hasattr(self._solver, "row_oracle"):
            self._oracles = [self._solver.row_oracle() for _ in range(self._horizon)]
        else:
            self._matrices = self._arithmetic.zeros((self._horizon, self._dimension, self._dimension))

    def _oracle_of(self, moment: Moment) -> RowOracle:
        """Return a new oracle whose S is a moment."""
        oracle: RowOracle = self._solver.row_oracle()  # type: ignore[attr-defined]
        grow(oracle, moment)
        return oracle


def grow(oracle: RowOracle, moment: Moment) -> None:
    """Add a moment to the S of an oracle: in rows where they are at hand, so that its inverse is updated."""
    for rows, divisor in moment.rows:
        oracle.add(rows, 0, divisor)
    if not moment.rows:
        oracle.add_gram(moment.support, moment.gram)
