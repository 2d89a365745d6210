"""Actions and moments on the tables of a finite MDP, for samplers that roll out no single trajectories."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dmq_fast._support.arrays import once_each
from dmq_fast.environments.finite import FiniteMDP
from dmq_fast.kernels import Fixed, Greedy, LevelRows, Rule, SecondMoment, Uniform, greedy_actions, is_sparse
from dmq_fast.moments import entries_of, fits_rows
from dmq_fast.policy import FOLLOWS_EXACT
from dmq_fast.rules import ExactGreedy

if TYPE_CHECKING:
    from dmq_fast._support.arrays import Sparse

__all__ = ["FeatureTables", "action_of", "actions_everywhere", "most_nonzeros"]

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]


def action_of(
    rule: Rule, level: int, features: Floats | Sparse, occupied: NDArray[np.bool_] | None = None
) -> Integers | None:
    """Return the action in each state, (S,), or None where the rule is uniform. By default, all states are occupied.

    Raises
    ------
    ArithmeticError
        If a greedy score of an occupied state overflows. The actions of other states are arbitrary.
    """
    if isinstance(rule, Uniform):
        return None
    if isinstance(rule, Fixed):
        return np.full(features.shape[0], rule.action, dtype=np.int64)
    if isinstance(rule, ExactGreedy):
        raise TypeError(f"policy: level {level} is an ExactGreedy rule; {FOLLOWS_EXACT}")
    assert isinstance(rule, Greedy)
    try:
        if occupied is None or occupied.all():
            return greedy_actions(features, rule.theta)
        actions = np.zeros(features.shape[0], dtype=np.int64)
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


def most_nonzeros(features: Floats | Sparse) -> int:
    """Return the most entries of a row that are not 0; 1 where there are none."""
    return int(entries_of(features).max(initial=1))


class FeatureTables:
    """The features of a finite MDP, for weighted sums over the states of a level.

    Parameters
    ----------
    features : sequence of H numpy.ndarray or csr_array, each (S_h, d)

    Attributes
    ----------
    most_rows : int
        The most states of a level.
    nonzeros : int
        The most entries of a state that are not 0.
    """

    def __init__(self, features: Sequence[Floats | Sparse]) -> None:
        self.dimension = features[0].shape[1]
        self.most_rows = max(rows.shape[0] for rows in features)
        self._rows = once_each(FeatureRows, features)
        self.nonzeros = max(rows.nonzeros for rows in self._rows)

    def fits_rows(self, n: int) -> bool:
        """Return whether n trajectories are cheaper in rows: a row a state, so there are never more of them."""
        return fits_rows(min(n, self.most_rows), self.nonzeros, self.dimension)

    def sums(self, weights: Mapping[int, Floats], in_rows: bool) -> Floats | LevelRows:
        """Return the sums over the states of w phi phi^T of some levels, given the weights (S_h,) by level."""
        if in_rows and weights:
            seen = {h: np.flatnonzero(w) for h, w in weights.items()}
            return LevelRows.of(
                [self._rows[h].features[states] for h, states in seen.items()],
                [weights[h][states] for h, states in seen.items()],
            )
        grams = np.zeros((len(weights), self.dimension, self.dimension))
        for gram, (h, w) in zip(grams, weights.items(), strict=True):
            gram[...] = self._rows[h].second_moment(w)
        return grams

    def weighted_sum(self, level: int, weights: Floats) -> Floats:
        """Return the sum over the states of a level of w phi, (d,)."""
        features: Any = self._rows[level].features
        total: Floats = weights @ features
        return total


class FeatureRows:
    """The feature rows of one level, stored so that weighted sums over the states are fast.

    Parameters
    ----------
    features : numpy.ndarray or csr_array, shape (S, d)
    """

    def __init__(self, features: Floats | Sparse) -> None:
        self.features = features
        self.nonzeros = most_nonzeros(features)
        if is_sparse(features):
            self.csr: tuple[Floats, Any, Any] | None = (features.data, features.indices, features.indptr)
            return
        self.csr = None
        if 4 * self.nonzeros <= features.shape[1]:
            nonzero = features != 0.0
            starts = np.concatenate([[0], np.cumsum(nonzero.sum(axis=1))])
            self.csr = features[nonzero], np.nonzero(nonzero)[1], starts

    def second_moment(self, weights: Floats) -> Floats:
        """Sum over the states of w phi phi^T, (d, d)."""
        total = SecondMoment(self.features.shape[1])
        if self.csr is not None:
            total.add_csr(*self.csr, weights)
        else:
            total.add_rows(self.features, weights)
        return total.matrix
