"""The candidates pi_h^a of Algorithm 3 that need no attention, as the oracle certainly answers False on them."""

from __future__ import annotations

from collections.abc import Sequence
from time import perf_counter

from dmq_fast.function_class import LinearSolver
from dmq_fast.policy import Policy, fixed
from dmq_fast.run.cover import CoverMoments
from dmq_fast.run.draws import Draws
from dmq_fast.run.ledger import SCAN, Scan
from dmq_fast.run.memory import Known
from dmq_fast.run.oracle import NONE, Oracle
from dmq_fast.samplers import RolloutSampler

__all__ = ["Candidates"]

AT_ONCE = 64
"""Most candidates drawn in one call of compiled code."""

WORK = 2**18
"""Most steps simulated in such a call, beyond the first candidate: some ten milliseconds, as budgets wait for it."""


class Candidates:
    """Passes over candidates one after another, many in a call of compiled code.

    A candidate is passed over if every answer on it is False for certain. That leaves behind what
    `Draws.trajectories` and `Oracle.shifted` would: calls, trajectories, history, records and memory. The first
    candidate on which there is more to say is theirs; if it was drawn here, they find it in the memory.

    Only runs that remember trajectories (`memo`) have something to pass over.
    """

    def __init__(self, draws: Draws, oracle: Oracle) -> None:
        self.draws, self.oracle = draws, oracle
        self._remembers = draws.serves["check"] and draws.archive is None
        # By target level, the content of the members of its cover before that level.
        self._before: list[list[int]] = [[] for _ in range(draws.sampler.horizon)]
        sampler, solver = draws.sampler.unwrapped(), oracle.solver
        # A subclass may do something else.
        self._sampler: RolloutSampler | None = None
        if type(sampler) is RolloutSampler and type(solver) is LinearSolver and not solver.row_scan.with_values:
            self._sampler, self._scan = sampler, solver.row_scan

    def next(
        self, moments: CoverMoments, cover: Sequence[Policy], greedy: Policy, h: int, a: int, later: range, member: int
    ) -> int:
        """Return the first position in the cover, from `member` on, that is not passed over; its length if none is.

        Parameters
        ----------
        moments : CoverMoments
            S_h' by level.
        cover : sequence of Policy
            Pi_h; between two calls for h it may only grow.
        greedy : Policy
            Followed after level h.
        h, a : int
            The target level of the candidates, and its action.
        later : range
            The levels h' after h, ascending.
        member : int
            Position in the cover.
        """
        if not self._remembers:
            return member
        draws, memory = self.draws, self.draws.memory
        draws.ledger.check_time()
        before, latest = self._before[h], moments.latest(later)
        before += [memory.sums(pi)[h] for pi in cover[len(before) :]]
        after = memory.deviation(h, fixed(a), greedy, draws.last_rule("check", h))
        while member < len(cover):
            known = memory.find(h, before[member] + after)
            if known is None:
                unknown = self._unknown(h, [content + after for content in before[member : member + AT_ONCE]])
                passed = self._draw(unknown, moments, cover[member:], greedy, h, a, later, member)
                member += passed
                if passed < len(unknown) or not unknown:
                    break
            elif known.refuted < latest:
                break
            else:
                self.oracle.history.append(known.call, h, a, member, later[-1], later[0], False, NONE)
                member += 1
        return member

    def _unknown(self, h: int, contents: list[int]) -> list[int]:
        """Return those at the beginning of the contents that one call of compiled code may draw for level h."""
        draws, found = self.draws, set[int]()
        n, sampler = draws.n_samples, self._sampler
        if sampler is None or draws.ledger.replaying or not sampler.gives_rows(n):
            return []
        most = min(1 + WORK // (n * sampler.horizon), draws.ledger.affordable(n))
        for i, content in enumerate(contents):
            if i == most or content in found or draws.memory.find(h, content) is not None:
                return contents[:i]
            found.add(content)
        return contents

    def _draw(
        self,
        contents: list[int],
        moments: CoverMoments,
        cover: Sequence[Policy],
        greedy: Policy,
        h: int,
        a: int,
        later: range,
        member: int,
    ) -> int:
        """Draw candidates until one is not passed over; return the number of those before it."""
        sampler, ledger, memory, n = self._sampler, self.draws.ledger, self.draws.memory, self.draws.n_samples
        if not contents or sampler is None or not isinstance(moments.sums, list) or not moments.sums:
            return 0
        began, call = perf_counter(), ledger.calls
        levels, returns_from = self.draws.wanted("check", h)
        cover = cover[: len(contents)]
        policies = [pi.deviate(h, a, greedy) for pi in cover]
        drawn, certain, seconds = sampler.draw_until_shift(
            cover,
            policies[0],
            n,
            self._scan,
            moments.sums,
            h,
            stream=self.draws.stream.at(call + 1),
            levels=levels,
            returns_from=returns_from,
        )
        ledger.seconds["oracle"] += seconds
        ledger.seconds["rollouts"] += perf_counter() - began - seconds
        refuted = Scan(-1, NONE, NONE, self.oracle.n_marginal)
        for i, (content, policy, batch) in enumerate(zip(contents, policies, drawn, strict=False)):
            ledger.calls += 1
            ledger.trajectories["check"] += n
            known = Known(ledger.calls, policy)
            memory.note(h, content, known)
            memory.keep(known.call, batch)
            if i + 1 < len(drawn) or certain:
                known.refuted = moments.time
                ledger.answer(SCAN, lambda: refuted)
                self.oracle.history.append(known.call, h, a, member + i, later[-1], later[0], False, NONE)
        return len(drawn) - (not certain)
