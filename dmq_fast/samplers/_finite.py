"""Actions and moments on the tables of a finite MDP, for samplers that roll out no single trajectories."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dmq_fast.arithmetic import ExactGreedy
from dmq_fast.environments.finite import FiniteMDP
from dmq_fast.kernels import Fixed, Greedy, Rule, SecondMoment, Uniform, greedy_actions
from dmq_fast.policy import FOLLOWS_EXACT

__all__ = ["FeatureRows", "action_of", "actions_everywhere"]

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]


def action_of(rule: Rule, level: int, features: Floats, occupied: NDArray[np.bool_] | None = None) -> Integers | None:
    """Return the action in each state, (S,), or None where the rule is uniform. By default, all states are occupied.

    Raises
    ------
    ArithmeticError
        If a greedy score of an occupied state overflows. The actions of other states are arbitrary.
    """
    if isinstance(rule, Uniform):
        return None
    if isinstance(rule, Fixed):
        return np.full(len(features), rule.action, dtype=np.int64)
    if isinstance(rule, ExactGreedy):
        raise TypeError(f"policy: level {level} is an ExactGreedy rule; {FOLLOWS_EXACT}")
    assert isinstance(rule, Greedy)
    try:
        if occupied is None or occupied.all():
            return greedy_actions(features, rule.theta)
        actions = np.zeros(len(features), dtype=np.int64)
        actions[occupied] = greedy_actions(features[occupied], rule.theta)
    except ValueError as error:
        raise ArithmeticError(f"level {level}: a greedy score is not finite (theta too large)") from error
    return actions


def actions_everywhere(env: FiniteMDP, level: int, rule: Rule) -> Integers | None:
    """Return the action in each state of a level, (S,), or None where a rule is uniform or a score overflows."""
    try:
        return action_of(rule, level, env.features[level])
    except ArithmeticError:
        return None


class FeatureRows:
    """The feature rows of one level, stored so that weighted sums over the states are fast.

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
