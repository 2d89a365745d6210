"""What the samplers of finite MDPs without trajectories share: the request, the actions, the sums of moments."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dmq_fast._support.arguments import integer
from dmq_fast.arithmetic import ExactGreedy
from dmq_fast.environments.finite import FiniteMDP
from dmq_fast.kernels import Fixed, Greedy, Rule, SecondMoment, Stream, Uniform, greedy_actions
from dmq_fast.policy import FOLLOWS_EXACT, Policy, check_policy
from dmq_fast.samplers.base import ascending
from dmq_fast.samplers.streams import check_stream

__all__ = ["FeatureRows", "Request", "action_of", "actions_everywhere", "checked"]

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]


class Request(NamedTuple):
    """The arguments of one call, checked; `last` is the last level that matters, -1 if none does."""

    n: int
    rules: tuple[Rule, ...]
    levels: tuple[int, ...]
    returns_from: tuple[int, ...]
    last: int


def checked(
    env: FiniteMDP,
    policy: Policy,
    n: int,
    rng: Stream,
    levels: Sequence[int],
    returns_from: Sequence[int],
) -> Request:
    """Check the arguments of `collect_chunk` against `env`."""
    n = integer("n", n, 0)
    check_policy(env, policy)
    check_stream("rng", rng)
    asked = ascending("levels", levels, env.horizon)
    origins = ascending("returns_from", returns_from, env.horizon)
    last = env.horizon - 1 if origins else max(asked, default=-1)
    return Request(n, policy.rules, asked, origins, last)


def action_of(rule: Rule, level: int, features: Floats, occupied: NDArray[np.bool_]) -> Integers | None:
    """Return the action in each state, (S,), or None where the rule is uniform.

    Raises
    ------
    ArithmeticError
        If a greedy score of an occupied state overflows. What is said of other states does not matter.
    """
    if isinstance(rule, Uniform):
        return None
    actions = np.zeros(len(features), dtype=np.int64)
    if isinstance(rule, Fixed):
        actions[:] = rule.action
        return actions
    if isinstance(rule, ExactGreedy):
        raise TypeError(f"policy: level {level} is an ExactGreedy rule; {FOLLOWS_EXACT}")
    assert isinstance(rule, Greedy)
    try:
        if occupied.all():
            return greedy_actions(features, rule.theta)
        actions[occupied] = greedy_actions(features[occupied], rule.theta)
    except ValueError as error:
        raise ArithmeticError(f"level {level}: a greedy score is not finite (theta too large)") from error
    return actions


def actions_everywhere(env: FiniteMDP, level: int, rule: Rule) -> Integers | None:
    """Return the action in each state of a level, (S,), or None where a rule is uniform or a score overflows."""
    features = env.features[level]
    try:
        return action_of(rule, level, features, np.ones(len(features), dtype=bool))
    except ArithmeticError:
        return None


class FeatureRows:
    """The feature rows of one level, as it suits weighted sums over the states.

    Parameters
    ----------
    features : numpy.ndarray, shape (S, d)
    """

    def __init__(self, features: Floats) -> None:
        self.features = features
        nonzero = features != 0.0
        counts = nonzero.sum(axis=1)
        self.sparse = 4 * int(counts.max()) <= features.shape[1]
        if self.sparse:
            self.indptr = np.concatenate([[0], np.cumsum(counts)])
            self.columns = np.nonzero(nonzero)[1]
            self.values = features[nonzero]

    def second_moment(self, weights: Floats) -> Floats:
        """Sum over the states of w phi phi^T, (d, d)."""
        total = SecondMoment(self.features.shape[1])
        if self.sparse:
            total.add_csr(self.values, self.columns, self.indptr, weights)
        else:
            total.add_rows(self.features, weights)
        return total.matrix

    def weighted_sum(self, weights: Floats) -> Floats:
        """Sum over the states of w phi, (d,)."""
        return weights @ self.features
