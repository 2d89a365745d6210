"""`TablePolicy`: a policy of the state itself instead of its features."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from dmq_fast._support.words import number_of
from dmq_fast.environments.finite import FiniteMDP
from dmq_fast.kernels import is_sparse
from dmq_fast.policy import Policy

if TYPE_CHECKING:
    from dmq_fast._support.arrays import Sparse

__all__ = ["TablePolicy", "greedy_on_table"]


class TablePolicy:
    """One action for every level and state of a finite MDP; `FiniteMDP.value` and `occupancy` take it as a policy.

    Parameters
    ----------
    actions : sequence of H array_like of int, each (S_h,)

    Attributes
    ----------
    rules : tuple of H numpy.ndarray
        The actions, read-only.
    """

    def __init__(self, actions: Sequence[NDArray[np.integer]]) -> None:
        rules = [np.array(row, dtype=np.int64) for row in actions]
        for level, row in enumerate(rules):
            if row.ndim != 1 or (row < 0).any():
                raise ValueError(f"actions: level {level}: expected non-negative integers (S,), got shape {row.shape}")
            row.setflags(write=False)
        self.rules = tuple(rules)

    def act(self, level: int, states: NDArray[np.integer]) -> NDArray[np.int64]:
        """Return the actions of states of a level, by their numbers."""
        actions: NDArray[np.int64] = self.rules[level][states]
        return actions

    def probabilities(self, level: int, features: NDArray[np.float64] | Sparse, n_actions: int) -> NDArray[np.float64]:
        """Return P[a | s], shape (S_h, K), for all states of a level in order.

        Only the number of rows of `features` is used: different states may have equal features.
        """
        rule = self.rules[level]
        n = np.shape(features)[0]
        if n != len(rule):
            raise ValueError(f"features: level {level}: expected those of all {len(rule)} states, got {n}")
        if rule.max(initial=0) >= n_actions:
            raise ValueError(f"n_actions: expected more than {rule.max()}, an action of level {level}, got {n_actions}")
        return np.eye(n_actions)[rule]

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, TablePolicy):
            return NotImplemented
        return len(self.rules) == len(other.rules) and all(
            np.array_equal(mine, theirs) for mine, theirs in zip(self.rules, other.rules, strict=True)
        )

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"TablePolicy(<{number_of(len(self.rules), 'level')}>)"


def greedy_on_table(table: Sequence[NDArray[np.float64]], latent: FiniteMDP, observed: bool) -> Policy | TablePolicy:
    """Return the policy that is greedy on Q, H arrays (S_h, K), ties to the smallest action.

    A `Policy`, which runs anywhere, where one sees the features of the finite MDP (`observed`) and these are distinct
    unit vectors, so that the table is linear in them; else a `TablePolicy`.
    """
    if not (observed and all(distinct_units(features) for features in latent.features)):
        return TablePolicy([q.argmax(axis=1) for q in table])
    theta = [q.T @ features for q, features in zip(table, latent.features, strict=True)]
    return Policy.greedy(np.array(theta))


def distinct_units(features: NDArray[np.float64] | Sparse) -> bool:
    """Return whether the rows are distinct unit vectors."""
    stored = features.data if is_sparse(features) else features
    units = np.isin(stored, (0.0, 1.0)).all() and (features.sum(axis=1) == 1.0).all()
    return bool(units and (features.sum(axis=0) <= 1.0).all())
