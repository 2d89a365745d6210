"""Memory of a run: which trajectories were drawn, and their moments, so that they can be used again."""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import accumulate
from operator import is_

import numpy as np
from numpy.typing import NDArray

from dmq_fast.kernels import Rule
from dmq_fast.moments import Moments
from dmq_fast.policy import Deviations, Policy

__all__ = ["Known", "Memory"]

LIMIT = 2**28
"""Default limit of the moments kept, in bytes. Dropped moments are drawn again from the stream of their call."""

REMEMBERED = 2**18
"""Largest number of sums of digests kept, some ten megabytes."""


@dataclass(slots=True)
class Known:
    """Number of a call of the sampler, the policy that it followed, and what the oracle found on it.

    The policy is one of several, which share most of what they are. The oracle certainly answers False on the
    trajectories of this call for every S_h that has not changed since time `refuted` of `CoverMoments`.
    """

    call: int
    policies: Sequence[Policy]
    member: int = 0
    refuted: int = -1

    @property
    def policy(self) -> Policy:
        """The policy that was followed."""
        return self.policies[self.member]


class Tables(dict[tuple[int, Rule], int]):
    """Digest of the actions of a rule at a level, or of the rule, by level and rule; computed on first use."""

    def __init__(self, actions: Callable[[int, Rule], NDArray[np.int64] | None] | None) -> None:
        super().__init__()
        self._actions = actions

    def __missing__(self, key: tuple[int, Rule]) -> int:
        level, rule = key
        actions = None if self._actions is None else self._actions(level, rule)
        whole = hashlib.blake2b(b"%d %d;" % (level, actions is None), digest_size=16)
        whole.update(rule.digest if actions is None else actions.tobytes())
        self[key] = table = int.from_bytes(whole.digest())
        return table


NOTHING: dict[int, Known] = {}
"""What is known of a target level for which nothing was drawn."""


class Memory:
    """Index from policies to the calls of the sampler that drew them, and the moments of the calls used last.

    Parameters
    ----------
    limit : int, optional
        Largest number of bytes of moments kept; `LIMIT` by default.
    actions : callable, optional
        ``actions(level, rule)`` returns the action of a rule in each state of a level, or None where it is unknown.
        With it, policies count as the same if they take the same actions.

    Notes
    -----
    A call number and a policy suffice to draw the moments again, bit for bit. The two take some 400 bytes and a pointer
    for each level, since policies share rules. Policies are compared by content, that is by their rules or actions,
    never by address.
    """

    def __init__(
        self, limit: int | None = None, *, actions: Callable[[int, Rule], NDArray[np.int64] | None] | None = None
    ) -> None:
        self.limit = LIMIT if limit is None else limit
        self.size = 0
        self._tables = Tables(actions)
        self._contents: dict[int, tuple[Policy, list[int]]] = {}
        self._covers: dict[int, tuple[Sequence[Policy], list[int]]] = {}
        self._last: tuple[Policy | None, list[int]] = None, []
        self._known: dict[int, dict[int, Known]] = {}
        self._spent: set[int] = set()
        self._moments: OrderedDict[int, Moments] = OrderedDict()

    def content(self, policy: Policy, levels: int) -> int:
        """Return a digest of the first `levels` rules of a policy.

        It is the sum of the digests of its levels, 16 bytes each. So that of a policy that deviates follows from those
        of the two policies that it was made of.
        """
        if policy.origin is None:
            return self._sums(policy)[levels]
        before, level, rule, after = policy.origin
        if level >= levels:
            return self._sums(before)[levels]
        return self._sums(before)[level] + self._deviation(level, rule, after, levels)

    def contents(self, policies: Deviations, levels: int) -> list[int]:
        """Return the `content` of deviations at a level below `levels`, in the order of their cover.

        What a cover of that level contributes is remembered; it may grow, but not change.
        """
        cover, level = policies.cover, policies.level
        if self._covers.get(level, (None, []))[0] is not cover:
            self._covers[level] = cover, []
        before = self._covers[level][1]
        before += [self._sums(pi)[level] for pi in cover[len(before) :]]
        after = self._deviation(level, policies.rule, policies.after, levels)
        return [content + after for content in before]

    def _deviation(self, level: int, rule: Rule, after: Policy, levels: int) -> int:
        """Return what a deviation at a level adds to the content of the policy followed before."""
        sums = self._sums(after)
        return self._tables[level, rule] + sums[levels] - sums[level + 1]

    def _sums(self, policy: Policy) -> list[int]:
        """Return the content of 0, 1, ..., H levels of a policy; remembered, as many policies are made of it."""
        known = self._contents.get(id(policy))
        if known is not None:
            return known[1]
        if len(self._contents) > REMEMBERED // policy.horizon:
            self._contents.clear()
        sums = self._sums_like(*self._last, policy)
        # The policy is kept, so that no other one takes its address.
        self._last = self._contents[id(policy)] = policy, sums
        return sums

    def _sums_like(self, other: Policy | None, known: list[int], policy: Policy) -> list[int]:
        """Return the sums of a policy, given those of another one; most policies differ from the last at one level."""
        rules = policy.rules
        if other is not None and rules != other.rules:
            level = [*map(is_, rules, other.rules)].index(False)
            if rules[level + 1 :] == other.rules[level + 1 :]:
                shift = known[level] + self._tables[level, rules[level]] - known[level + 1]
                return known[: level + 1] + [total + shift for total in known[level + 1 :]]
        return list(accumulate(map(self._tables.__getitem__, enumerate(rules)), initial=0))

    def find(self, target: int, content: int) -> Known | None:
        """Return the call that drew a policy for a target level, if its moments may be used again; otherwise None."""
        known = self._known.get(target, NOTHING).get(content)
        return None if known is None or known.call in self._spent else known

    def note(self, target: int, content: int, known: Known) -> None:
        """Record that a call draws a policy for a target level, in place of an earlier call."""
        self._known.setdefault(target, {})[content] = known

    def spend(self, call: int) -> None:
        """Mark a call as spent: its moments may not be used again."""
        self._spent.add(call)
        self._drop(call)

    def forget(self, target: int) -> None:
        """Forget all calls for a target level."""
        for known in self._known.pop(target, NOTHING).values():
            self._spent.discard(known.call)
            self._drop(known.call)

    def moments(self, call: int) -> Moments | None:
        """Return the moments of a call, unless they were dropped."""
        moments = self._moments.get(call)
        if moments is not None:
            self._moments.move_to_end(call)
        return moments

    def keep(self, call: int, moments: Moments) -> None:
        """Keep the moments of a call; drop those unused for longest while the limit is exceeded."""
        if call in self._moments:
            self._drop(call)
        self._moments[call] = moments
        self.size += moments.nbytes
        while self.size > self.limit:
            self._drop(next(iter(self._moments)))

    def _drop(self, call: int) -> None:
        moments = self._moments.pop(call, None)
        if moments is not None:
            self.size -= moments.nbytes
