"""Memory of a run: which trajectories were drawn, and their moments, so that they can be used again."""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dmq_fast.kernels import Rule
from dmq_fast.moments import Moments
from dmq_fast.policy import Policy

__all__ = ["Memory"]

LIMIT = 2**28
"""Default limit of the moments kept, in bytes. Dropped moments are drawn again from the stream of their call."""


class Known(NamedTuple):
    """Number of a call of the sampler, and the policy that it followed."""

    call: int
    policy: Policy


class Tables(dict[tuple[int, Rule], bytes]):
    """Digest of the actions of a rule at a level, 16 bytes by level and rule, computed on first use."""

    def __init__(self, actions: Callable[[int, Rule], NDArray[np.int64] | None]) -> None:
        super().__init__()
        self._actions = actions

    def __missing__(self, key: tuple[int, Rule]) -> bytes:
        actions = self._actions(*key)
        if actions is None:
            table = key[1].digest
        else:
            table = hashlib.blake2b(actions.tobytes(), digest_size=16).digest()
        self[key] = table
        return table


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
    A call number and a policy suffice to draw the moments again, bit for bit. The two take some 300 bytes and a pointer
    for each level, since policies share rules. Policies are compared by content, that is by their rules or actions,
    never by address.
    """

    def __init__(
        self, limit: int | None = None, *, actions: Callable[[int, Rule], NDArray[np.int64] | None] | None = None
    ) -> None:
        self.limit = LIMIT if limit is None else limit
        self.size = 0
        self._tables = None if actions is None else Tables(actions)
        self._known: dict[int, dict[bytes, Known]] = {}
        self._spent: set[int] = set()
        self._moments: OrderedDict[int, Moments] = OrderedDict()

    def content(self, policy: Policy, levels: int) -> bytes:
        """Return a digest of the first `levels` rules of a policy, 16 bytes."""
        if self._tables is None:
            return policy.digest(levels)
        # This runs for each batch and level, so it calls no Python code for rules that are in the table.
        tables = map(self._tables.__getitem__, enumerate(policy.rules[:levels]))
        return hashlib.blake2b(b"".join(tables), digest_size=16).digest()

    def find(self, target: int, content: bytes) -> Known | None:
        """Return the call that drew a policy for a target level, if its moments may be used again; otherwise None."""
        known = self._known.get(target, {}).get(content)
        return None if known is None or known.call in self._spent else known

    def note(self, target: int, content: bytes, call: int, policy: Policy) -> None:
        """Record that a call draws a policy for a target level, in place of an earlier call."""
        self._known.setdefault(target, {})[content] = Known(call, policy)

    def spend(self, call: int) -> None:
        """Mark a call as spent: its moments may not be used again."""
        self._spent.add(call)
        self._drop(call)

    def forget(self, target: int) -> None:
        """Forget all calls for a target level."""
        for call, _ in self._known.pop(target, {}).values():
            self._spent.discard(call)
            self._drop(call)

    def moments(self, call: int) -> Moments | None:
        """Return the moments of a call, unless they were dropped."""
        if call in self._moments:
            self._moments.move_to_end(call)
        return self._moments.get(call)

    def keep(self, call: int, moments: Moments) -> None:
        """Keep the moments of a call; drop those unused for longest while the limit is exceeded."""
        self._drop(call)
        self._moments[call] = moments
        self.size += moments.nbytes
        while self.size > self.limit:
            self._drop(next(iter(self._moments)))

    def _drop(self, call: int) -> None:
        moments = self._moments.pop(call, None)
        if moments is not None:
            self.size -= moments.nbytes
