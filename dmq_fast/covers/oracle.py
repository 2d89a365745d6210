"""The oracle and the regression of a run: answers of a `Solver`, recalled from the journal or found and recorded."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from time import perf_counter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dmq_fast.covers.cover import CoverMoments
from dmq_fast.covers.memory import Batch
from dmq_fast.engine.ledger import Fit, Ledger, Scan, fit_of, scan_of
from dmq_fast.function_class import Solver
from dmq_fast.moments import Moments
from dmq_fast.results.history import History

__all__ = ["Oracle", "Regression"]

NONE = np.empty(0)


class Oracle:
    """Oracle 4.2: returns True if some pair of functions agrees on D_h' but differs on D~_h'.

    Attributes
    ----------
    history : History
        Every call, in order.
    n_trues : int
        Number of answers True.
    n_marginal : int
        Number of answers that were too close to call.
    cover_bound : int
        Bound on |Pi_h| on every sample path, where moments accumulate.
    """

    def __init__(self, solver: Solver, ledger: Ledger, n_initial: int) -> None:
        self.solver, self.ledger = solver, ledger
        self.cover_bound = solver.cover_bound(n_initial)
        self.history = History()
        self.n_trues = 0
        self.n_marginal = 0

    def shifted(
        self, cover_moments: CoverMoments, batch: Batch, levels: range, source: tuple[int, int, int]
    ) -> Iterator[int]:
        """Invoke the oracle on (D_h', D~_h') for h' from the last of `levels` to the first; yield each h' with a True.

        Parameters
        ----------
        cover_moments : CoverMoments
            S_h. The caller may change those of the yielded level and later ones before it resumes the iterator. So all
            answers up to the first True can be computed in one scan.
        batch : Batch
            The trajectories that hold D~.
        levels : range
            Ascending levels h', up to the last.
        source : tuple of int
            Target level, action and member of the cover of the policy that was followed, for the history.
        """
        began, certain = cover_moments.time, True
        top, bottom = levels[-1], levels[0]
        if cover_moments.latest(bottom) <= batch.refuted:  # every answer is False still, so nothing is asked
            self.history.append(batch.call, *source, top, bottom, False, NONE)
            return
        while top >= bottom:
            scan: Scan = self.ledger.answer(scan_of(top, bottom), self._scan, cover_moments, batch, top, bottom)
            shift = scan.found >= 0
            # Values are recorded, so they are computed every time.
            certain = certain and scan.n_marginal == self.n_marginal and len(scan.values) == 0
            self.n_marginal = scan.n_marginal
            if shift:
                self.history.note_potential(*scan.potentials.tolist())
            self.history.append(batch.call, *source, top, scan.found if shift else bottom, shift, scan.values)
            if not shift:
                break
            self.n_trues += 1
            self.ledger.count_policy()
            yield scan.found
            certain = certain and cover_moments.changed(scan.found, began)
            top = scan.found - 1
        if certain:
            batch.refuted = began

    def _scan(self, cover_moments: CoverMoments, batch: Batch, top: int, bottom: int) -> Scan:
        """Ask for the levels whose answer may have changed, until one is True."""
        found, values, potentials, marginal = -1, NONE, NONE, self.solver.n_marginal
        for first, last in cover_moments.runs(top, bottom, batch.refuted):
            moments, began = batch.moments, perf_counter()
            # Only a solver with a method `row_oracle` is given oracles.
            found, values = self.solver.scan(cover_moments.sums, moments, first, last)  # type: ignore[arg-type]
            if found >= 0:
                potentials = np.array(cover_moments.potentials(found, moments.moment_at(found)))
            self.ledger.seconds["oracle"] += perf_counter() - began
            if found >= 0:
                break
        return Scan(found, values, potentials, self.n_marginal + self.solver.n_marginal - marginal)


class Regression:
    """Regression of a run (equation 2).

    Attributes
    ----------
    saw_reward : bool
        Whether any return to go was not zero.
    """

    def __init__(self, solver: Solver, ledger: Ledger, dimension: int) -> None:
        self.solver, self.ledger, self.kind = solver, ledger, fit_of(dimension)
        self.saw_reward = False

    def fit(self, pairs: Sequence[Batch], h: int) -> NDArray[Any]:
        """Return theta_h^a, shape (d,), fitted to all pairs (phi(s_h), y) of one action."""
        fit: Fit = self.ledger.answer(self.kind, self._fit, pairs, h)
        self.saw_reward = self.saw_reward or fit.rewarded
        return fit.theta

    def _fit(self, pairs: Sequence[Batch], h: int) -> Fit:
        total = Moments.total([batch.moments for batch in pairs], h)
        began = perf_counter()
        theta, rewarded = self.solver.fit(total, h), total.returns[h].square > 0.0
        self.ledger.seconds["regression"] += perf_counter() - began
        return Fit(theta, rewarded)
