"""What a run remembers of its trajectories, so that they can serve again."""

from __future__ import annotations

from collections import OrderedDict

from dmq_fast.moments import Moments

__all__ = ["Memory"]

LIMIT = 2**28
"""Bytes of moments that a run keeps; what is dropped is drawn again from its call's stream when it is needed."""


class Memory:
    """Which call of the sampler drew which policy, and the moments of the calls looked at last.

    Parameters
    ----------
    limit : int
        Most bytes of moments kept.

    Notes
    -----
    A call number costs some 200 bytes and is all that is needed: the moments of a call can be drawn again, bit for
    bit. A policy is known by its content, `Policy.digest`, never by an address.
    """

    def __init__(self, limit: int = LIMIT) -> None:
        self.limit = limit
        self.size = 0
        self._calls: dict[int, dict[bytes, int]] = {}
        self._spent: set[int] = set()
        self._moments: OrderedDict[int, Moments] = OrderedDict()

    def call(self, target: int, content: bytes) -> int | None:
        """Return the call that drew a policy for a target level, if there was one whose moments may serve again."""
        call = self._calls.get(target, {}).get(content)
        return None if call in self._spent else call

    def note(self, target: int, content: bytes, call: int) -> None:
        """Note which call draws a policy; an earlier one is forgotten."""
        self._calls.setdefault(target, {})[content] = call

    def spend(self, call: int) -> None:
        """Let the moments of a call serve no more."""
        self._spent.add(call)
        self._drop(call)

    def forget(self, target: int) -> None:
        """Forget all that was drawn for a target level."""
        for call in self._calls.pop(target, {}).values():
            self._spent.discard(call)
            self._drop(call)

    def moments(self, call: int) -> Moments | None:
        """Return the moments of a call, unless they were dropped."""
        if call in self._moments:
            self._moments.move_to_end(call)
        return self._moments.get(call)

    def keep(self, call: int, moments: Moments) -> None:
        """Keep the moments of a call, and drop those not looked at for longest where they are too many."""
        self._drop(call)
        self._moments[call] = moments
        self.size += bytes_of(moments)
        while self.size > self.limit:
            self._drop(next(iter(self._moments)))

    def _drop(self, call: int) -> None:
        moments = self._moments.pop(call, None)
        if moments is not None:
            self.size -= bytes_of(moments)


def bytes_of(moments: Moments) -> int:
    """Bytes of the arrays of moments."""
    return moments.grams.nbytes + sum(returns.moment.nbytes for returns in moments.returns.values())
