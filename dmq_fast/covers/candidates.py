"""The candidates pi_h^a of Algorithm 3 that need no attention, as the oracle certainly answers False on them."""

from __future__ import annotations

from collections.abc import Sequence
from time import perf_counter

from dmq_fast.covers.cover import CoverMoments
from dmq_fast.covers.draws import Batch, Draws
from dmq_fast.covers.memory import Known
from dmq_fast.covers.oracle import NONE, Oracle
from dmq_fast.engine.ledger import Scan, scan_of
from dmq_fast.function_class import LinearSolver
from dmq_fast.kernels import RowScan, ShiftScan
from dmq_fast.moments import Moments
from dmq_fast.policy import Deviations
from dmq_fast.samplers import RolloutSampler

__all__ = ["Candidates"]


class Candidates:
    """Passes over candidates one after another, many in a call of compiled code.

    A candidate is passed over if every answer on it is False for certain. That leaves behind what
    `Draws.trajectories` and `Oracle.shifted` would: calls, trajectories, history, records and memory. The first
    candidate on which there is more to say is theirs; if it was drawn here, `Draws.trajectories` returns that.

    Attributes
    ----------
    can_pass : bool
        Whether there is ever something to pass over: what compiled code draws, or the memory of the run knows.
    """

    def __init__(self, draws: Draws, oracle: Oracle) -> None:
        self.draws, self.oracle = draws, oracle
        solver, self._remembers = oracle.solver, draws.serves["check"]
        self._sampler: RolloutSampler | None = None
        # A subclass of the solver may do something else.
        if draws.simulator is not None and type(solver) is LinearSolver:
            self._in_rows = draws.simulator.gives_rows(draws.n_samples)
            self._scan: RowScan | ShiftScan = solver.row_scan if self._in_rows else solver.matrix_scan
            self._sampler = None if self._scan.with_values else draws.simulator
        forgets = not draws.remembered["check"] and self._sampler is not None
        self.can_pass = draws.archive is None and (self._remembers or forgets)

    def next(self, moments: CoverMoments, policies: Deviations, member: int) -> int:
        """Return the position of the first candidate, from `member` on, not passed over; their number if none is.

        Parameters
        ----------
        moments : CoverMoments
            S_h' by level.
        policies : Deviations
            The candidates pi_h^a of all members of Pi_h.
        member : int
            Position in the cover.
        """
        draws, history, find = self.draws, self.oracle.history, self.draws.memory.find
        h, a = policies.level, policies.rule.action
        draws.ledger.check_time()
        later = range(h + 1, draws.sampler.horizon)
        contents: Sequence[int | None] = [None] * len(policies)
        if self._remembers:
            contents = draws.memory.contents(policies, draws.last_rule("check", h))
        latest = moments.latest(later)
        while member < len(contents):
            content = contents[member]
            known = None if content is None else find(h, content)
            if known is None:
                unknown = self._unknown(h, contents[member : member + draws.at_once])
                passed = self._draw(unknown, moments, policies, member) if unknown else 0
                member += passed
                if passed == 0 or passed < len(unknown):
                    break
            elif known.refuted < latest:
                break
            else:
                history.append(known.call, h, a, member, later[-1], later[0], False, NONE)
                member += 1
        return member

    def _unknown(self, h: int, contents: Sequence[int | None]) -> Sequence[int | None]:
        """Return those at the beginning of the contents that one call of compiled code may draw for level h."""
        draws, found = self.draws, set[int]()
        if self._sampler is None or draws.ledger.replaying:
            return ()
        most = draws.ledger.affordable(draws.n_samples)
        if most < len(contents):
            contents = contents[: int(most)]
        for i, content in enumerate(contents):
            if content is not None:
                if content in found or draws.memory.find(h, content) is not None:
                    return contents[:i]
                found.add(content)
        return contents

    def _draw(self, contents: Sequence[int | None], moments: CoverMoments, policies: Deviations, member: int) -> int:
        """Draw candidates, of these contents, until one is not passed over; return the number of those before it."""
        draws, history, h, a = self.draws, self.oracle.history, policies.level, policies.rule.action
        sampler, ledger, memory, n = self._sampler, draws.ledger, draws.memory, draws.n_samples
        if sampler is None or len(moments.sums) == 0 or isinstance(moments.sums, list) != self._in_rows:
            return 0
        levels, returns_from = draws.wanted("check", h)
        began, call, top = perf_counter(), ledger.calls, draws.sampler.horizon - 1
        drawn, certain, seconds = sampler.draw_until_shift(
            policies.cover[member : member + len(contents)],
            policies[member],
            n,
            self._scan,
            moments.sums,
            h,
            draws.stream.at(call + 1),
            levels,
            returns_from,
        )
        ledger.seconds["oracle"] += seconds
        ledger.seconds["rollouts"] += perf_counter() - began - seconds
        passed = len(drawn) if certain else len(drawn) - 1
        refuted, kind = Scan(-1, NONE, NONE, self.oracle.n_marginal), scan_of(top, h + 1)
        ledger.trajectories["check"] += n * len(drawn)
        for i, sums in enumerate(drawn):
            ledger.calls = call = call + 1
            content = contents[i]
            if content is not None or i == passed:  # most runs remember nothing, and stop at few
                known, batch = Known(call, policies, member + i), Moments.simulated(n, levels, returns_from, *sums)
                if content is None:
                    draws.stopped_at = Batch(known, batch)
                else:
                    memory.note(h, content, known)
                    memory.keep(call, batch)
                    known.refuted = moments.time if i < passed else known.refuted
            if i < passed:
                ledger.answer(kind, lambda: refuted)
                history.append(call, h, a, member + i, top, h + 1, False, NONE)
        return passed
