"""`TablePolicy`: a policy of the state itself instead of its features."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dmq_fast._support.words import number_of
from dmq_fast.kernels import as_numbers

if TYPE_CHECKING:
    from dmq_fast._support.arrays import Sparse

__all__ = ["TablePolicy", "Tables"]

Integers = NDArray[np.int64]


class Tables(Protocol):
    """The members of a `FiniteMDP` that a table of actions has to fit."""

    @property
    def n_states(self) -> tuple[int, ...]:
        """Numbers of states by level."""

    @property
    def n_actions(self) -> int:
        """Number of actions K."""

    @property
    def row_numbers(self) -> NDArray[np.integer[Any]] | None:
        """The number under which each state is observed, -1 of none; None: those of their rows."""


class TablePolicy:
    """One action for every level and state of a finite MDP; `FiniteMDP.value` and `occupancy` take it as a policy.

    Parameters
    ----------
    actions : sequence of H array_like of int, each (S_h,)
        One for each row of the tables; `from_table` takes other forms and compares them with the tables.

    Attributes
    ----------
    rules : tuple of H numpy.ndarray
        The actions, read-only.

    Raises
    ------
    ValueError
        If an entry is no integer >= 0, or a level has another form than (S,).

    Examples
    --------
    >>> import dmq_fast as dmq
    >>> env = dmq.environments.chain(horizon=4, rng=0)
    >>> best = env.optimal_policy
    >>> best, env.value(best) == env.optimal_value
    (TablePolicy(<4 levels>), True)
    """

    def __init__(self, actions: Sequence[ArrayLike]) -> None:
        rules = [as_actions(f"actions: level {level}", row) for level, row in enumerate(actions)]
        if not rules:
            raise ValueError("actions: expected at least one level, got none")
        self.rules = tuple(rules)

    @classmethod
    def from_table(cls, actions: ArrayLike | Sequence[ArrayLike], env: Tables) -> TablePolicy:
        """Return the policy of a table of actions in a finite MDP.

        Parameters
        ----------
        actions : array_like of int
            Shape (S,): the same actions at every level; (H, S), or H arrays (S_h,) where levels differ in their
            states. Entry s is the action in state s, as the environment numbers its states: in tables of Gymnasium's,
            all states of the Gymnasium environment count, also those that are never reached.
        env : FiniteMDP

        Returns
        -------
        TablePolicy
            Where an episode has ended, it takes action 0.

        Raises
        ------
        ValueError
            If there are more or fewer states or levels, or an action is out of range.

        Examples
        --------
        >>> import dmq_fast as dmq
        >>> env = dmq.environments.from_gymnasium("CliffWalking-v1", horizon=20)
        >>> actions = np.ones(48, dtype=int)  # to the right
        >>> actions[36], actions[35] = 0, 2  # up from the start, and down to the goal
        >>> env.value(TablePolicy.from_table(actions, env))
        -13.0
        """
        horizon = len(env.n_states)
        numbers = env.row_numbers
        rows = [actions] * horizon if is_one_level(actions) else list(actions)  # type: ignore[arg-type]
        if len(rows) != horizon:
            raise ValueError(f"actions: expected shape (S,), or one row for each of {horizon} levels, got {len(rows)}")
        rules = []
        for level, (row, size) in enumerate(zip(rows, env.n_states, strict=True)):
            name = f"actions: level {level}"
            given = as_actions(name, row)
            least = size if numbers is None else int(numbers.max()) + 1
            if len(given) < least or (numbers is None and len(given) > size):
                wanted = f"{size}" if numbers is None else f"at least {least}"
                raise ValueError(f"{name}: expected an action for each of {wanted} states, got {len(given)}")
            if given.max(initial=0) >= env.n_actions:
                raise ValueError(f"{name}: expected actions < {env.n_actions}, got {given.max()}")
            rules.append(given if numbers is None else np.where(numbers >= 0, given[numbers], 0))
        return cls(rules)

    @property
    def horizon(self) -> int:
        """Number of levels H."""
        return len(self.rules)

    def act(self, level: int, states: NDArray[np.integer]) -> Integers:
        """Return the actions of states of a level, by their rows in the tables."""
        actions: Integers = self.rules[level][states]
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


def is_one_level(actions: Any) -> bool:
    """Return whether a table of actions is one row for all levels."""
    return all(np.ndim(one) == 0 for one in actions)


def as_actions(name: str, row: Any) -> Integers:
    """Return the actions of one level, read-only; ValueError unless they are integers >= 0, (S,)."""
    given = as_numbers(name, row)
    if given.ndim != 1 or given.dtype.kind not in "iu" or (given < 0).any():
        raise ValueError(f"{name}: expected integers >= 0, shape (S,), got {given.dtype} of shape {given.shape}")
    rule = np.array(given, dtype=np.int64)
    rule.setflags(write=False)
    return rule
