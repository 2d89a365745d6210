"""The population oracle: expectations instead of trajectories."""

from __future__ import annotations

import operator
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from dmq_fast.environments.finite import FiniteMDP
from dmq_fast.kernels import Rule, Stream
from dmq_fast.moments import Moments, Returns
from dmq_fast.policy import Policy
from dmq_fast.samplers._finite import FeatureRows, action_of, actions_everywhere, checked

__all__ = ["ExactSampler"]

Floats = NDArray[np.float64]


class ExactSampler:
    """Gives n times the expectations of the moments of one trajectory: the paper's Oracle 4.1, n = infinity.

    Parameters
    ----------
    env : FiniteMDP

    Notes
    -----
    Nothing is drawn: the stream of a call is not used, and every call is one chunk. The number of trajectories only
    multiplies, so that it may be any n >= 0, and what DMQ learns is the same for all of them up to rounding; with
    ``mixture="multinomial"`` its own draws still decide how often each policy counts.

    State distributions are carried forwards, first and second moments of the return to go backwards, in
    O(S^2) operations a level (K S^2 under a uniform rule).
    """

    def __init__(self, env: FiniteMDP) -> None:
        self.env = env
        self.horizon = env.horizon
        self.n_actions = env.n_actions
        self.dimension = env.dimension
        known = {id(phi): FeatureRows(phi) for phi in env.features}
        self._rows = [known[id(phi)] for phi in env.features]

    def chunks(self, n: int) -> Sequence[int]:
        """Return [n]: one piece."""
        return [n]

    def collect_chunk(
        self, policy: Policy, n: int, *, rng: Stream, levels: Sequence[int], returns_from: Sequence[int] = ()
    ) -> Moments:
        """Return n times the expectations; see `Sampler.collect_chunk`."""
        request = checked(self.env, policy, n, levels, returns_from)
        n = operator.index(n)
        grams = np.zeros((len(request.levels), self.dimension, self.dimension))
        returns = {h: Returns(np.zeros(self.dimension), 0.0, n) for h in request.returns_from}
        if n == 0 or request.last < 0:
            return Moments(n, request.levels, grams, returns)
        occupancy, actions = self._forwards(request.rules, request.last, bool(request.returns_from))
        for gram, h in zip(grams, request.levels, strict=True):
            gram[...] = self._rows[h].second_moment(n * occupancy[h])
        if request.returns_from:
            first, second = self._backwards(actions, request.returns_from[0])
            for h in request.returns_from:
                moment = self._rows[h].weighted_sum(n * (occupancy[h] * first[h]))
                returns[h] = Returns(moment, float(n * (occupancy[h] @ second[h])), n)
        return Moments(n, request.levels, grams, returns)

    def collect(
        self,
        policy: Policy,
        n: int,
        *,
        stream: Stream,
        levels: Sequence[int],
        returns_from: Sequence[int] = (),
    ) -> Moments:
        """Return n times the expectations; see `Sampler.collect`."""
        return self.collect_chunk(policy, n, rng=stream, levels=levels, returns_from=returns_from)

    def _forwards(
        self, rules: Sequence[Rule], last: int, act_at_last: bool
    ) -> tuple[list[Floats], list[NDArray[np.int64] | None]]:
        """State distributions of levels 0 .. last, and each state's action there (None: uniform)."""
        occupancy, actions = [self.env.start], []
        for h in range(last + act_at_last):
            actions.append(action_of(rules[h], h, self.env.features[h], occupancy[h] > 0.0))
            if h < last:
                occupancy.append(occupancy[h] @ _under(self.env.P[h], actions[h]))
        return occupancy, actions

    def _backwards(
        self, actions: Sequence[NDArray[np.int64] | None], first_level: int
    ) -> tuple[dict[int, Floats], dict[int, Floats]]:
        """E[y | s_h] and E[y^2 | s_h] of the return to go y, for h = first_level .. H-1.

        With y = r + y', y' independent of r given the next state: E y^2 = E r^2 + 2 E[r E y'] + E y'^2.
        """
        env = self.env
        first: dict[int, Floats] = {}
        second: dict[int, Floats] = {}
        for h in reversed(range(first_level, env.horizon)):
            rewards, cap = env.R[h], env.caps[h]
            last = h == env.horizon - 1
            if rewards.ndim == 3:
                # r depends on the next state, and so on y'.
                P = env.P[h]
                ahead = np.zeros(P.shape[2]) if last else first[h + 1]
                beyond = np.zeros(P.shape[2]) if last else second[h + 1]
                mean = (P * (rewards + ahead)).sum(axis=2)
                square = (P * (rewards * (rewards + 2.0 * ahead) + beyond)).sum(axis=2)
                first[h], second[h] = _under(mean, actions[h]), _under(square, actions[h])
                continue
            mean = _under(rewards, actions[h])
            # A Bernoulli reward is its cap with probability r / cap.
            square = cap * mean if cap > 0.0 else _under(rewards * rewards, actions[h])
            if not last:
                later = env.P[h] @ first[h + 1]
                square = square + _under(2.0 * rewards * later, actions[h])
                transitions = _under(env.P[h], actions[h])
                mean, square = mean + transitions @ first[h + 1], square + transitions @ second[h + 1]
            first[h], second[h] = mean, square
        return first, second

    def actions(self, level: int, rule: Rule) -> NDArray[np.int64] | None:
        """Return what a rule does in each state of a level: two policies that do the same are one.

        None where the rule is uniform or a score overflows.
        """
        return actions_everywhere(self.env, level, rule)

    def __reduce__(self) -> tuple[type[ExactSampler], tuple[FiniteMDP]]:
        return (ExactSampler, (self.env,))


def _under(table: Floats, actions: NDArray[np.int64] | None) -> Floats:
    """Average a table by state and action, (S, K, ...), over the rule: (S, ...)."""
    if actions is None:
        average: Floats = table.mean(axis=1)
        return average
    chosen: Floats = table[np.arange(len(table)), actions]
    return chosen
