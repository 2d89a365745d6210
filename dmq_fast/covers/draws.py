"""Trajectories for Algorithms 2 and 3: each call has a stream of its own, and is remembered if it may be used again."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache, partial
from time import perf_counter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dmq_fast.arithmetic import Arithmetic
from dmq_fast.covers.hindsight import Archive
from dmq_fast.covers.memory import Known, Memory
from dmq_fast.covers.options import Options
from dmq_fast.engine.ledger import Ledger, OutOfBudget, added_to
from dmq_fast.kernels import Stream
from dmq_fast.moments import Moments, Simulated, SparseMoment, summed
from dmq_fast.policy import Deviations, Policy
from dmq_fast.samplers import RolloutSampler, Sampler, collect_chunks
from dmq_fast.samplers._binomial import binomial
from dmq_fast.samplers.streams import OWN_CALLS

__all__ = ["Batch", "Draws", "mixture"]

Levels = Sequence[int]
Moment = NDArray[Any] | SparseMoment


class Batch:
    """Trajectories of one call of the sampler, known by their moments.

    Parameters
    ----------
    known : Known
        The call, its policy, and what the oracle found on it.
    moments : Moments, optional
        The moments. Without them `draw` is needed.
    draw : callable, optional
        Returns the moments of the call, bit for bit. It is called when `moments` is first read.
    """

    __slots__ = ("_draw", "_moments", "known")

    def __init__(self, known: Known, moments: Moments | None = None, draw: Callable[[], Moments] | None = None) -> None:
        self.known = known
        self._moments = moments
        self._draw = draw

    @property
    def moments(self) -> Moments:
        """The moments of the trajectories: known, or drawn again when they were dropped or lost in a kill."""
        if self._moments is None:
            assert self._draw is not None
            self._moments = self._draw()
        return self._moments

    def at(self, level: int) -> Batch:
        """Return the same trajectories with the moments of one level only, so that the others can be freed."""
        if self._moments is not None:
            one = self._moments.at(level)
            return self if one is self._moments else Batch(self.known, one)
        draw = self._draw
        assert draw is not None
        return Batch(self.known, draw=lambda: draw().at(level))


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
        # What draws for several policies in one call of compiled code, and how many; a subclass may do something else.
        plain = sampler.unwrapped()
        self.at_once = plain.at_once(n_samples) if type(plain) is RolloutSampler else 0
        self.simulator = plain if isinstance(plain, RolloutSampler) and self.at_once > 0 else None
        # The trajectories of the candidate that `Candidates` stopped at, where `memory` does not hold them.
        self.stopped_at: Batch | None = None
        self.archive = Archive(sampler.horizon) if options.hindsight else None
        memo, reuse = options.memo, options.reuse
        # By purpose: whether earlier draws may serve it, and whether draws for it are remembered.
        self.serves = {"check": memo, "regression": reuse, "states": False, "final": memo}
        self.remembered = self.serves | {"check": memo or reuse}
        self.wanted = cache(self._levels)

    def begin_action(self, h: int) -> None:
        """Begin with an action of level h in Algorithm 2: without `memo`, forget earlier draws for that level."""
        if not self.options.memo:
            self.memory.forget(h)

    def trajectories(self, policy: Policy, h: int) -> Batch:
        """Return N trajectories of pi_h^a, for the levels after h (Algorithm 3, line 2)."""
        if self.stopped_at is not None:
            batch, self.stopped_at = self.stopped_at, None
            return batch
        return self._collect((policy,), 0, self.n_samples, "check", h)

    def returned(self, policy: Policy) -> Batch:
        """Return N trajectories of the policy to be returned, for all levels."""
        return self._collect((policy,), 0, self.n_samples, "final", -1)

    def pairs(self, policies: Deviations, h: int) -> list[Batch]:
        """Return N |Pi_h| pairs (phi(s_h), y), of policies drawn uniformly or N of each (Algorithm 2, lines 5 to 8)."""
        if self.options.mixture == "stratified":
            if self._together("regression"):
                pairs = Moments.added_up(self.n_samples, h, self._draw_each(policies, "regression", h))
                return [Batch(Known(self.ledger.calls, policies), pairs)]
            counts = [self.n_samples] * len(policies)
        else:
            counts = self._mixture(len(policies))
        contents: Sequence[int | None] = [None] * len(counts)
        if self.remembered["regression"] and self.archive is None:
            contents = self.memory.contents(policies, self.last_rule("regression", h))
        chosen = [(member, n) for member, n in enumerate(counts) if n > 0]
        return [self._collect(policies, member, n, "regression", h, contents[member]).at(h) for member, n in chosen]

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
            data = self._states(cover, h)
        return self.ledger.answer_level(h, self.sampler.dimension, self._sum_of_moments, h, data, shares, kept)

    def _states(self, cover: Sequence[Policy], h: int) -> list[Batch]:
        """Return N states of level h drawn with each policy."""
        n, call = self.n_samples, self.ledger.calls + 1
        if not self._together("states"):
            return [self._collect(cover, member, n, "states", h) for member in range(len(cover))]
        drawn = self._draw_each(cover, "states", h)
        return [Batch(Known(call + i, cover, i), Moments.simulated(n, (h,), (), *sums)) for i, sums in enumerate(drawn)]

    def _together(self, purpose: str) -> bool:
        """Return whether compiled code draws with many policies in one call: those of which nothing is remembered."""
        nothing = not self.remembered[purpose] and self.archive is None
        return nothing and self.simulator is not None and not self.ledger.replaying

    def _sum_of_moments(self, h: int, data: Sequence[Batch], shares: int, kept: Moment | None) -> Moment:
        """Return `kept` plus the second moments of the batches, each a share of that of a policy."""
        total = kept
        for batch in data:
            moment = batch.moments.moment_at(h, shares)
            total = moment if total is None else summed(total, moment)
        return self.arithmetic.zeros((self.sampler.dimension, self.sampler.dimension)) if total is None else total

    def second_moment(self, batch: Batch, level: int) -> Moment:
        """Return M2 of one level."""
        kind = added_to(level, self.sampler.dimension)
        found: Moment = self.ledger.answer(kind, lambda: batch.moments.moment_at(level))
        return found

    def spend(self, batch: Batch) -> None:
        """Mark a batch as spent: it is not used again."""
        self.memory.spend(batch.known.call)

    def _mixture(self, size: int) -> list[int]:
        if self.n_samples * size >= 2**63:
            raise OutOfBudget("n_samples")
        self.n_mixtures += 1
        return mixture(self.stream.at(OWN_CALLS + self.n_mixtures), self.n_samples * size, size)

    def _levels(self, purpose: str, h: int) -> tuple[Levels, Levels]:
        """Return the levels whose second moments are needed, and those whose returns to go are."""
        horizon = self.sampler.horizon
        if purpose == "final":
            return range(horizon), ()
        if purpose == "states":
            return (h,), ()
        if self.options.reuse:  # the same trajectories serve the check and the regression
            return range(h, horizon), (h,)
        return ((h,), (h,)) if purpose == "regression" else (range(h + 1, horizon), ())

    def last_rule(self, purpose: str, h: int) -> int:
        """Return how many rules affect the trajectories of a purpose: all, or those before the last level wanted."""
        levels, returns_from = self.wanted(purpose, h)
        return self.sampler.horizon if returns_from else levels[-1]

    def _draw_each(self, policies: Sequence[Policy], purpose: str, h: int) -> list[Simulated]:
        """Return N trajectories of each policy, as `_draw` does, many drawn in one call of compiled code."""
        n, ledger, simulator = self.n_samples, self.ledger, self.simulator
        assert simulator is not None
        levels, returns_from = self.wanted(purpose, h)
        cover, split = (policies.cover, h) if isinstance(policies, Deviations) else (policies, simulator.horizon)
        drawn: list[Simulated] = []
        while (first := len(drawn)) < len(policies):
            ledger.check_trajectories(n)
            some, began = cover[first : first + int(min(self.at_once, ledger.affordable(n)))], perf_counter()
            drawn += simulator.collect_each(
                some, policies[first], n, split, self.stream.at(ledger.calls + 1), levels, returns_from
            )
            ledger.calls += len(some)
            ledger.count_trajectories(purpose, n * len(some))
            ledger.seconds["rollouts"] += perf_counter() - began
        return drawn

    def _collect(
        self, policies: Sequence[Policy], member: int, n: int, purpose: str, h: int, content: int | None = None
    ) -> Batch:
        """Return n trajectories of ``policies[member]``: from memory if they may be used again, otherwise drawn.

        Each draw has a stream of its own. `content` is that of the policy for this purpose, where the caller has it.
        """
        levels, returns_from = self.wanted(purpose, h)
        if self.archive is not None:
            return self._in_hindsight(self.archive, policies[member], n, purpose, levels, returns_from)
        if not self.remembered[purpose]:
            return self._draw(policies, member, n, purpose, levels, returns_from)
        if content is None:
            content = self.memory.content(policies[member], self.last_rule(purpose, h))
        known = self.memory.find(h, content) if self.serves[purpose] else None
        if known is not None:
            self.ledger.check_time()
            if (moments := self.memory.moments(known.call)) is not None:
                return Batch(known, moments)
            return Batch(known, draw=partial(self._draw_again, known, n, levels, returns_from))
        batch = self._draw(policies, member, n, purpose, levels, returns_from)
        self.memory.note(h, content, batch.known)
        if not self.ledger.replaying:
            self.memory.keep(batch.known.call, batch.moments)
        return batch

    def _in_hindsight(
        self, archive: Archive, policy: Policy, n: int, purpose: str, levels: Levels, returns_from: Levels
    ) -> Batch:
        """Return about n trajectories: calls of the archive that serve the policy, and as many fresh ones as lack."""
        ledger = self.ledger
        ledger.check_time()
        found = archive.serving(policy, n)
        lacking = n - sum(archive.sizes[position] for position in found)
        if lacking > 0:
            ledger.check_trajectories(lacking)
            ledger.calls += 1
            began = perf_counter()
            drawn = self.sampler.trajectories(policy, lacking, stream=self.stream.at(ledger.calls))
            ledger.count_trajectories(purpose, lacking)
            archive.add(ledger.calls, policy, drawn)
            ledger.seconds["rollouts"] += perf_counter() - began
            found.append(len(archive.calls) - 1)
        pieces = [self._archived(archive, position).only(levels, returns_from) for position in found]
        return Batch(Known(archive.calls[found[-1]], (policy,)), sum(pieces[1:], start=pieces[0]))

    def _archived(self, archive: Archive, position: int) -> Moments:
        """Return the moments of a call of the archive, computed again where they were dropped from memory."""
        call = archive.calls[position]
        moments = self.memory.moments(call)
        if moments is None:
            moments = archive.moments(position)
            self.memory.keep(call, moments)
        return moments

    def _draw(
        self, policies: Sequence[Policy], member: int, n: int, purpose: str, levels: Levels, returns_from: Levels
    ) -> Batch:
        """Return n trajectories, drawn within the budget; in a replay, drawn when their moments are first read."""
        ledger = self.ledger
        ledger.check_trajectories(n)
        ledger.calls += 1
        known = Known(ledger.calls, policies, member)
        if ledger.replaying:
            ledger.count_trajectories(purpose, n)
            return Batch(known, draw=partial(self._draw_again, known, n, levels, returns_from))
        policy, stream, began = policies[member], self.stream.at(known.call), perf_counter()
        if ledger.budget.max_seconds is None:
            moments = self.sampler.collect(policy, n, stream=stream, levels=levels, returns_from=returns_from)
            ledger.trajectories[purpose] += n  # without a limit of seconds, there is no clock to check
        else:  # count the trajectories chunk by chunk, and check the clock after each
            count = partial(ledger.count_trajectories, purpose)
            moments = collect_chunks(self.sampler, policy, n, stream, levels, returns_from, count)
        ledger.seconds["rollouts"] += perf_counter() - began
        return Batch(known, moments)

    def _draw_again(self, known: Known, n: int, levels: Levels, returns_from: Levels) -> Moments:
        """Return moments that were counted before, but dropped from memory or lost in a kill: draw them again."""
        call = known.call
        if (kept := self.memory.moments(call)) is not None:
            return kept
        stream, began = self.stream.at(call), perf_counter()
        moments = collect_chunks(
            self.sampler, known.policy, n, stream, levels, returns_from, lambda _: self.ledger.check_time()
        )
        self.ledger.seconds["rollouts"] += perf_counter() - began
        if self.options.memo or self.options.reuse:
            self.memory.keep(call, moments)
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
