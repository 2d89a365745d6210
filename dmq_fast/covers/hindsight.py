"""Hindsight: stored trajectories serve every policy that would have acted the same on them.

The option `hindsight` keeps the trajectories of every call in rows. A call serves a policy if each action that was
taken on its trajectories is what the policy takes there: then a run with this policy would have looked the same. Calls
are taken or left whole. So they are unbiased up to states of mass ln(1/delta) / N, on which the two policies differ and
which N trajectories all missed: the resolution that a check has anyway.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from dmq_fast.kernels import Fixed, Greedy, Rule, greedy_actions
from dmq_fast.moments import Moments
from dmq_fast.policy import Policy
from dmq_fast.trajectories import Trajectories

__all__ = ["Archive"]

Numbers = NDArray[np.int64]


class Rows:
    """The distinct feature rows of a level, and the row and action of every trajectory."""

    def __init__(self) -> None:
        self.known: dict[bytes, int] = {}
        self.features: list[NDArray[np.float64]] = []
        self.numbers: list[Numbers] = []
        self.actions: list[Numbers] = []

    def add(self, features: NDArray[np.float64], actions: Numbers) -> None:
        """Add the features (n, d) and actions (n,) of a call."""
        numbers = np.empty(len(features), dtype=np.int64)
        for i, row in enumerate(features):
            number = numbers[i] = self.known.setdefault(row.tobytes(), len(self.features))
            if number == len(self.features):
                self.features.append(row.copy())
        self.numbers.append(numbers)
        self.actions.append(actions)


class Answers:
    """Whether a rule would have acted as a call did at a level: bit p of `same`, for the first `n` calls."""

    __slots__ = ("chosen", "n", "same")

    def __init__(self) -> None:
        self.chosen = np.zeros(0, dtype=np.int64)
        self.n = self.same = 0


class Archive:
    """The trajectories of a run, by call.

    Parameters
    ----------
    horizon : int
    """

    def __init__(self, horizon: int) -> None:
        self.levels = [Rows() for _ in range(horizon)]
        self.calls: list[int] = []
        self.sizes: list[int] = []
        self._policies: list[Policy] = []
        self._rewards: list[NDArray[np.float64]] = []
        self._answers: dict[tuple[int, Rule], Answers] = {}

    def add(self, call: int, policy: Policy, trajectories: Trajectories) -> None:
        """Add the trajectories of a call that followed a policy."""
        features = trajectories.dense()
        for h, level in enumerate(self.levels):
            level.add(features[:, h], trajectories.actions[:, h])
        self.calls.append(call)
        self.sizes.append(trajectories.n)
        self._policies.append(policy)
        self._rewards.append(trajectories.rewards)

    def serving(self, policy: Policy, n: int) -> list[int]:
        """Return positions of calls that serve a policy, newest first, up to n trajectories in all or one call more."""
        serves = (1 << len(self.calls)) - 1
        for key in enumerate(policy.rules):
            answers = self._answers.get(key)
            if answers is None or answers.n < len(self.calls):
                answers = self._answered(*key)
            serves &= answers.same
            if not serves:
                return []
        found: list[int] = []
        while serves and n > 0:
            found.append(serves.bit_length() - 1)
            serves ^= 1 << found[-1]
            n -= self.sizes[found[-1]]
        return found

    def _answered(self, h: int, rule: Rule) -> Answers:
        """Return whether each call took the actions of a rule at level h throughout, or followed it."""
        answers, level = self._answers.setdefault((h, rule), Answers()), self.levels[h]
        if isinstance(rule, Greedy) and len(answers.chosen) < len(level.features):
            fresh = greedy_actions(np.array(level.features[len(answers.chosen) :]), rule.theta)
            answers.chosen = np.concatenate([answers.chosen, fresh])
        for position in range(answers.n, len(self.calls)):
            actions = level.actions[position]
            if isinstance(rule, Greedy):
                same = bool((answers.chosen[level.numbers[position]] == actions).all())
            elif isinstance(rule, Fixed):
                same = bool((actions == rule.action).all())
            else:  # a random rule is the same only where it was followed
                same = self._policies[position].rules[h] == rule
            answers.same |= same << position
        answers.n = len(self.calls)
        return answers

    def moments(self, position: int) -> Moments:
        """Return the moments of a call, of all levels."""
        levels: Sequence[int] = range(len(self.levels))
        features = [np.array(level.features)[level.numbers[position]] for level in self.levels]
        actions = [level.actions[position] for level in self.levels]
        drawn = Trajectories(np.stack(features, axis=1), np.stack(actions, axis=1), self._rewards[position])
        return drawn.moments(levels, levels)
