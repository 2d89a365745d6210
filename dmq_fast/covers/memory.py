"""Memory of a run: which trajectories were drawn, and their moments, so that they can be used again."""

from __future__ import annotations

from collections import OrderedDict, defaultdict
from collections.abc import Callable, Sequence
from functools import lru_cache
from operator import getitem
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dmq_fast.kernels import Rule
from dmq_fast.moments import Moments
from dmq_fast.policy import Policy

__all__ = ["Batch", "Memory", "Wanted"]

LIMIT = 2**28
"""Default limit of the moments kept, in bytes. Dropped moments are drawn again from the stream of their call."""


PARTS = 2**13
"""Number of sequences of rules whose number is kept, so that it is found without a look at each rule."""

Content = tuple[int, int]
"""The rules of a policy, or of its first levels, by the numbers of two parts."""


class Wanted(NamedTuple):
    """Number of trajectories, ascending levels whose second moments are wanted, and those whose returns to go are.

    `n_rules` is the number of rules that affect them: all, or those before the last level wanted.
    """

    n: int
    levels: Sequence[int]
    returns_from: Sequence[int]
    n_rules: int


class Batch:
    """Trajectories of one call of the sampler, known by their moments.

    Parameters
    ----------
    call : int
        Number of the call.
    rules : tuple of Rule
        Those of the policy that was followed. Policies themselves would be more for the garbage collector to look at.
    wanted : Wanted
        What was drawn.
    draw : callable
        ``draw(batch)`` draws the moments of the call again, bit for bit. It is called where they are read and not at
        hand: they were dropped, or the call was counted in a replay.
    moments : Moments, optional
        The moments, if they are at hand.

    Attributes
    ----------
    call, rules, wanted
        The arguments.
    kept : Moments or None
        The moments, while they are at hand.
    refuted : int
        The oracle certainly answers False on these trajectories for every S_h that has not changed since this time of
        `CoverMoments`; -1 if it was not asked yet.
    spent : bool
        Whether the trajectories may not be used again.
    """

    __slots__ = ("_draw", "call", "kept", "refuted", "rules", "spent", "wanted")

    def __init__(
        self,
        call: int,
        rules: tuple[Rule, ...],
        wanted: Wanted,
        draw: Callable[[Batch], Moments],
        moments: Moments | None = None,
    ) -> None:
        self.call, self.rules, self.wanted, self._draw, self.kept = call, rules, wanted, draw, moments
        self.refuted, self.spent = -1, False

    @property
    def moments(self) -> Moments:
        """The moments of the trajectories, drawn again where they are not at hand."""
        return self._draw(self) if self.kept is None else self.kept

    def at(self, level: int) -> Batch:
        """Return the same trajectories with the moments of one level only, so that the others can be freed."""
        if self.kept is None:
            return Batch(self.call, self.rules, self.wanted, lambda _: self.moments.at(level))
        return Batch(self.call, self.rules, self.wanted, self._draw, self.kept.at(level))


class Numbers(dict[Rule, int]):
    """Number of a rule at a level; rules that take the same actions there have the same. Given on first use.

    Parameters
    ----------
    level : int
    actions : callable or None
        As for `Memory`.
    """

    def __init__(self, level: int, actions: Callable[[int, Rule], NDArray[np.int64] | None] | None) -> None:
        super().__init__()
        self._level, self._actions = level, actions
        self._kinds: dict[Rule | bytes, int] = {}

    def __missing__(self, rule: Rule) -> int:
        actions = None if self._actions is None else self._actions(self._level, rule)
        kind = rule if actions is None else actions.tobytes()
        self[rule] = number = self._kinds.setdefault(kind, len(self._kinds))
        return number


class Memory:
    """Dictionary from policies to the batches that were drawn with them; it keeps the moments of those used last.

    Parameters
    ----------
    limit : int, optional
        Largest number of bytes of moments kept; `LIMIT` by default.
    actions : callable, optional
        ``actions(level, rule)`` returns the action of a rule in each state of a level, or None where it is unknown.
        With it, policies count as the same if they take the same actions.

    Notes
    -----
    Policies are compared by content, that is by their rules or actions, never by address.
    """

    def __init__(
        self, limit: int | None = None, *, actions: Callable[[int, Rule], NDArray[np.int64] | None] | None = None
    ) -> None:
        self.limit = LIMIT if limit is None else limit
        self.size = 0
        self._actions = actions
        self._numbers: list[Numbers] = []
        self._parts: dict[tuple[int, ...], int] = {}
        self._part = lru_cache(PARTS)(self._number_part)
        self._batches: defaultdict[int, dict[Content, Batch]] = defaultdict(dict)
        self._at_hand: OrderedDict[int, Batch] = OrderedDict()

    def content(self, policy: Policy, split: int, levels: int) -> Content:
        """Return the numbers of the first `split` rules of a policy, and of those between them and level `levels`.

        The candidates pi_h^a of a cover share the rules after h, and come again with the same rules up to h.
        """
        return self._part(0, policy.rules[:split]), self._part(split, policy.rules[split:levels])

    def _number_part(self, level: int, rules: tuple[Rule, ...]) -> int:
        """Return the number of some rules from a level on."""
        while len(self._numbers) < level + len(rules):
            self._numbers.append(Numbers(len(self._numbers), self._actions))
        key = (level, *map(getitem, self._numbers[level:], rules))
        return self._parts.setdefault(key, len(self._parts))

    def find(self, target: int, content: Content) -> Batch | None:
        """Return the batch that was drawn for a target level with a policy, if it may be used again; otherwise None."""
        batch = self._batches[target].get(content)
        if batch is None or batch.spent:
            return None
        if batch.kept is not None:
            self._at_hand.move_to_end(batch.call)
        return batch

    def note(self, target: int, content: Content, batch: Batch) -> None:
        """Enter a batch that was drawn for a target level, in place of an earlier one with the same policy."""
        self._batches[target][content] = batch
        if batch.kept is not None:
            self.keep(batch, batch.kept)

    def keep(self, batch: Batch, moments: Moments) -> None:
        """Keep the moments of a batch; drop those unused for longest while the limit is exceeded."""
        if batch.call in self._at_hand:
            self._drop(batch)
        batch.kept = moments
        self._at_hand[batch.call] = batch
        self.size += moments.nbytes
        while self.size > self.limit:
            self._drop(next(iter(self._at_hand.values())))

    def forget(self, target: int) -> None:
        """Forget all batches for a target level."""
        for batch in self._batches.pop(target, {}).values():
            self._drop(batch)

    def _drop(self, batch: Batch) -> None:
        if batch.kept is not None and self._at_hand.pop(batch.call, None) is not None:
            self.size -= batch.kept.nbytes
            batch.kept = None
