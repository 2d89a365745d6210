"""Trajectories for Algorithms 2 and 3: each call has a stream of its own, and is remembered if it may be used again."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache, partial
from time import perf_counter

import numpy as np

from dmq_fast.arithmetic import Arithmetic
from dmq_fast.covers.memory import Batch, Memory, Wanted
from dmq_fast.covers.options import Options
from dmq_fast.engine.ledger import Ledger, OutOfBudget, added_to
from dmq_fast.kernels import Stream
from dmq_fast.moments import Moment, Moments
from dmq_fast.policy import Policy
from dmq_fast.samplers import Sampler, collect_chunks
from dmq_fast.samplers._binomial import binomial
from dmq_fast.samplers.streams import OWN_CALLS

__all__ = ["Draws", "mixture"]


class Draws:
    """Source of the trajectories of one run, with a method for each purpose in the algorithms.

    Parameters
    ----------
    sampler : Sampler
        Source of the trajectories.
    n_samples : int
        N.
    stream : Stream
        Key of the run: call c of the sampler uses ``stream.at(c)``.
    options : Options
        Options of the run; `reuse`, `memo` and `mixture` decide which trajectories serve which purpose.
    memory : Memory
        Trajectories drawn already, by target level and policy.
    ledger : Ledger
        Counts and times the draws, and ends the run when a budget is used up.
    arithmetic : Arithmetic
        Number type of the moments.
    """

    def __init__(
        self,
        sampler: Sampler,
        n_samples: int,
        stream: Stream,
        options: Options,
        memory: Memory,
        ledger: Ledger,
        arithmetic: Arithmetic,
    ) -> None:
        self.sampler, self.n_samples, self.stream, self.options = sampler, n_samples, stream, options
        self.memory, self.ledger, self.arithmetic = memory, ledger, arithmetic
        self.sizes = sampler.horizon, sampler.n_actions, sampler.dimension
        self.n_mixtures = 0
        memo, reuse = options.memo, options.reuse
        # By purpose: whether earlier draws may serve it, and whether draws for it are remembered.
        self.serves = {"check": memo, "regression": reuse, "states": False, "final": memo}
        self.remembered = self.serves | {"check": memo or reuse}
        self.wanted = cache(self._wanted)
        self.again = self._draw_again  # one for all batches

    def begin_action(self, h: int) -> None:
        """Begin with an action of level h in Algorithm 2: without `memo`, forget earlier draws for that level."""
        if not self.options.memo:
            self.memory.forget(h)

    def trajectories(self, policy: Policy, h: int) -> Batch:
        """Return N trajectories of pi_h^a, for the levels after h (Algorithm 3, line 2)."""
        return self._collect(policy, self.n_samples, "check", h)

    def returned(self, policy: Policy) -> Batch:
        """Return N trajectories of the policy to be returned, for all levels."""
        return self._collect(policy, self.n_samples, "final", -1)

    def pairs(self, policies: Sequence[Policy], h: int) -> list[Batch]:
        """Return N |Pi_h| pairs (phi(s_h), y), of policies drawn uniformly or N of each (Algorithm 2, lines 5 to 8).

        Algorithm 2 holds them while it runs for later levels. With `memo` they stay in memory as long, otherwise they
        keep the moments of level h alone.
        """
        stratified = self.options.mixture == "stratified"
        counts = [self.n_samples] * len(policies) if stratified else self._mixture(len(policies))
        chosen = [(pi, n) for pi, n in zip(policies, counts, strict=True) if n > 0]
        batches = [self._collect(pi, n, "regression", h) for pi, n in chosen]
        only_here = self.options.reuse and not self.options.memo
        return [batch.at(h) for batch in batches] if only_here else batches

    def states(self, cover: Sequence[Policy], h: int, data: Sequence[Batch], kept: Moment | None) -> Moment:
        """Return S_h, the sum over the cover of each policy's second moment (Algorithm 2, lines 10 to 13).

        Beyond the paper: with `accumulate` the sum is `kept` already; with `reuse` the states are those of `data`, the
        regression pairs: N for each policy and action.
        """
        shares = 1
        if kept is not None:
            data = ()
        elif self.options.reuse:
            shares = self.sampler.n_actions
        else:
            data = [self._collect(pi, self.n_samples, "states", h) for pi in cover]
        return self.ledger.answer_level(h, self.sampler.dimension, self._sum_of_moments, h, data, shares, kept)

    def _sum_of_moments(self, h: int, data: Sequence[Batch], shares: int, kept: Moment | None) -> Moment:
        """Return `kept` plus the second moments of the batches, each a share of that of a policy."""
        total = kept
        for batch in data:
            moment = batch.moments.moment_at(h, shares)
            total = moment if total is None else total + moment
        assert total is not None
        return total

    def second_moment(self, batch: Batch, level: int) -> Moment:
        """Return M2 of one level."""
        kind = added_to(level, self.sampler.dimension)
        found: Moment = self.ledger.answer(kind, lambda: batch.moments.moment_at(level))
        return found

    def spend(self, batch: Batch) -> None:
        """Mark a batch as spent: it is not used again."""
        batch.spent = True

    def _mixture(self, size: int) -> list[int]:
        if self.n_samples * size >= 2**63:
            raise OutOfBudget("n_samples")
        self.n_mixtures += 1
        return mixture(self.stream.at(OWN_CALLS + self.n_mixtures), self.n_samples * size, size)

    def _wanted(self, purpose: str, h: int) -> Wanted:
        """Return what is wanted of N trajectories that are drawn for a purpose and a target level."""
        n, horizon = self.n_samples, self.sampler.horizon
        if purpose == "final":
            return Wanted(n, range(horizon), (), horizon - 1)
        if purpose == "states":
            return Wanted(n, (h,), (), h)
        if self.options.reuse:  # the same trajectories serve the check and the regression
            return Wanted(n, range(h, horizon), (h,), horizon)
        if purpose == "regression":
            return Wanted(n, (h,), (h,), horizon)
        return Wanted(n, range(h + 1, horizon), (), horizon - 1)

    def _collect(self, policy: Policy, n: int, purpose: str, h: int) -> Batch:
        """Return n trajectories of a policy: those in memory if they may be used again, otherwise drawn."""
        wanted, memory = self.wanted(purpose, h), self.memory
        if not self.remembered[purpose]:
            return self._draw(policy, purpose, wanted if n == wanted.n else wanted._replace(n=n))
        content = memory.content(policy, h + 1, wanted.n_rules)
        known = memory.find(h, content) if self.serves[purpose] else None
        if known is not None:
            self.ledger.check_time()
            return known
        batch = self._draw(policy, purpose, wanted)
        memory.note(h, content, batch)
        return batch

    def _draw(self, policy: Policy, purpose: str, wanted: Wanted) -> Batch:
        """Return trajectories, drawn within the budget; in a replay, drawn when their moments are first read.

        Each call has a stream of its own.
        """
        ledger, (n, levels, returns_from, _) = self.ledger, wanted
        ledger.check_trajectories(n)
        ledger.calls += 1
        batch = Batch(ledger.calls, policy.rules, wanted, self.again)
        if ledger.replaying:
            ledger.count_trajectories(purpose, n)
            return batch
        stream, began = self.stream.at(batch.call), perf_counter()
        if ledger.budget.max_seconds is None:
            batch.kept = self.sampler.collect(policy, n, stream=stream, levels=levels, returns_from=returns_from)
            ledger.trajectories[purpose] += n  # without a limit of seconds, there is no clock to check
        else:  # count the trajectories chunk by chunk, and check the clock after each
            count = partial(ledger.count_trajectories, purpose)
            batch.kept = collect_chunks(self.sampler, policy, n, stream, levels, returns_from, count)
        ledger.seconds["rollouts"] += perf_counter() - began
        return batch

    def _draw_again(self, batch: Batch) -> Moments:
        """Return moments that were counted before, but dropped from memory or lost in a kill: draw them again."""
        stream, began = self.stream.at(batch.call), perf_counter()
        clock, (n, levels, returns_from) = self.ledger.check_time, batch.wanted[:3]
        moments = collect_chunks(self.sampler, Policy(batch.rules), n, stream, levels, returns_from, lambda _: clock())
        self.ledger.seconds["rollouts"] += perf_counter() - began
        if self.options.memo or self.options.reuse:
            self.memory.keep(batch, moments)
        else:
            batch.kept = moments
        return moments


def mixture(stream: Stream, n: int, size: int) -> list[int]:
    """Return how often each of `size` policies is drawn in n uniform draws (Algorithm 2, line 6)."""
    generator = stream.generator()
    rest, counts = n, []
    for others in range(size, 1, -1):
        # The number of the remaining draws that fall on this policy, one of `others` equally likely ones.
        counts.append(int(binomial(generator, np.array([rest]), np.array([1.0 / others]))[0]))
        rest -= counts[-1]
    return [*counts, rest]
