"""`PolicyTable`: what a learned policy does in every state, and what that is worth, as arrays."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dmq_fast._support.words import four_digits, table_lines
from dmq_fast.environments.finite import FiniteMDP
from dmq_fast.kernels import Fixed, Greedy, is_sparse
from dmq_fast.observing import MapObserver, Observer, observer_of
from dmq_fast.policy import BoundPolicy, Policy
from dmq_fast.rules import ExactGreedy
from dmq_fast.table_policy import TablePolicy

__all__ = ["Decisions", "PolicyTable", "decisions", "observer_for", "tabulate"]

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
Mask = NDArray[np.bool_]

ALIKE = 1e-9
"""Estimates of actions whose differences are at most this part of them are equal."""


@dataclass(frozen=True, eq=False)
class PolicyTable:
    """A policy in every state at every level. `Result.policy_table` makes it.

    Attributes
    ----------
    states : list
        The S states, as the environment shows them: numbers, texts or tuples of them; "#5" stands for one that is not
        known any more. Where levels differ in their states, state i of each.
    actions : numpy.ndarray of int64, shape (H, S)
        Their numbers from 0; -1 where a uniform action is taken, or there is no such state.
    values : numpy.ndarray, shape (H, S)
        Expected sum of rewards from there on, in points: exact if `exact`, else as the run estimates it. NaN where it
        is unknown.
    decided : numpy.ndarray of bool, shape (H, S)
        Whether one action looked better than another. Where nothing was learned, none does, and the policy takes the
        smallest.
    reached : numpy.ndarray of bool, shape (H, S)
        Whether any policy gets there, and goes on from there; of estimates, whether one may have got there by then, as
        far as it is known.
    visits : numpy.ndarray, shape (H, S), or None
        Probability with which the policy gets there; None where it is unknown.
    exact : bool
        Whether the values are those of the environment's tables.
    """

    states: list[Any]
    actions: Integers
    values: Floats
    decided: Mask
    reached: Mask
    visits: Floats | None
    exact: bool

    @property
    def levels(self) -> Integers:
        """The first level at which each state is reached and anything was learned of it, (S,); -1 where none is."""
        known = self.decided & self.reached
        return np.where(known.any(axis=0), known.argmax(axis=0), -1)

    def columns(self) -> dict[str, list[Any]]:
        """Return a row for each level and state, as columns; see `Result.to_dataframe`."""
        there = ~np.isnan(self.values) | (self.actions >= 0)
        levels, places = np.nonzero(there)
        columns: dict[str, list[Any]] = {
            "level": levels.tolist(),
            "state": [self.states[i] for i in places],
            "action": self.actions[there].tolist(),
            "value": self.values[there].tolist(),
            "decided": self.decided[there].tolist(),
        }
        return columns if self.visits is None else columns | {"probability": self.visits[there].tolist()}

    def __repr__(self) -> str:
        """Return a line for each state, at its first level; see `levels`."""
        horizon, n = self.actions.shape
        lines = []
        for i, level in enumerate(self.levels[:SHOWN].tolist()):
            known = (level, int(self.actions[level, i]), four_digits(float(self.values[level, i])))
            lines.append([str(self.states[i]), *map(str, known if level >= 0 else ("-", "-", "-"))])
        heads = ["state", "level", "action", "value" if self.exact else "value (estimate)"]
        more = [f"and {n - SHOWN} more"] * (n > SHOWN)
        return "\n".join([f"{horizon} levels, {n} states:", *table_lines(heads, lines, right=(1, 2, 3)), *more])


SHOWN = 40
"""Number of states that `repr` of a table shows."""


@dataclass(frozen=True, eq=False)
class Decisions:
    """The actions of a rule in n states (n,), -1 of uniform ones, their estimated values, and whether one is better."""

    actions: Integers
    values: Floats
    decided: Mask


def decisions(rule: Any, features: Any, level: int, points: Callable[[int, Floats], Floats]) -> Decisions:
    """Return what a rule of a `Policy` of a level decides where the features (n, d) are these."""
    n = features.shape[0]
    if isinstance(rule, Greedy | ExactGreedy):
        q: Floats = np.asarray(features @ np.asarray(rule.theta).T)
        best = q.max(axis=1)
        decided = best - q.min(axis=1) > ALIKE * np.abs(q).max(axis=1)
        dense = features.toarray() if is_sparse(features) else features
        actions = rule.actions(dense) if isinstance(rule, ExactGreedy) else q.argmax(axis=1)
        values = np.where(np.abs(q).max(axis=1) > 0.0, points(level, best), np.nan)
        return Decisions(actions, values, decided | (q.shape[1] == 1))
    unknown = np.full(n, np.nan)
    if isinstance(rule, Fixed):
        return Decisions(np.full(n, rule.action, dtype=np.int64), unknown, np.ones(n, dtype=bool))
    return Decisions(np.full(n, -1, dtype=np.int64), unknown, np.zeros(n, dtype=bool))


def observer_for(policy: Policy | TablePolicy, mdp: FiniteMDP | None) -> Observer | None:
    """Return what shows the states of a policy: the tables, or what the policy has inside; None without either."""
    if mdp is not None:
        return observer_of(mdp)
    return policy.observer if isinstance(policy, BoundPolicy) else None


def tabulate(
    policy: Policy | TablePolicy,
    mdp: FiniteMDP | None,
    points: Callable[[int, Floats], Floats],
    q: Sequence[Floats] | None = None,
) -> PolicyTable:
    """Return the table of a policy.

    Parameters
    ----------
    policy : Policy or TablePolicy
    mdp : FiniteMDP or None
        Gives exact values, visits, and what can be reached.
    points : callable
        From level and estimates to points.
    q : sequence of H numpy.ndarray (S_h, K), optional
        Estimates of a `TablePolicy`, by the rows of the tables.

    Raises
    ------
    ValueError
        If it is not known which states there are.
    """
    observer = observer_for(policy, mdp)
    shown = None
    if isinstance(observer, MapObserver):  # to which all levels are the same
        shown = [observer.states(0)] * policy.horizon
    elif observer is not None:
        shown = [observer.states(level) for level in range(policy.horizon)]
    if shown is None or any(one is None for one in shown):
        raise ValueError(
            "policy_table: expected a policy of an environment that shows finitely many states; "
            + (
                "mdp=env gives its tables"
                if shown is None
                else "this one shows real numbers, or has features of its own"
            )
        )
    longest = max((one for one in shown if one is not None), key=lambda one: len(one.labels))
    labels = [f"#{i}" if label is None else label for i, label in enumerate(longest.labels)]
    shape = (policy.horizon, len(labels))
    actions, values = np.full(shape, -1, dtype=np.int64), np.full(shape, np.nan)
    decided, reached = np.zeros(shape, dtype=bool), np.zeros(shape, dtype=bool)
    for level, one in enumerate(shown):
        assert one is not None
        n = len(one.labels)
        if isinstance(policy, TablePolicy):
            rule = policy.rules[level][:n]
            some = np.ones(n, dtype=bool) if q is None else np.ptp(q[level][:n], axis=1) > 0.0
            found = Decisions(rule, np.full(n, np.nan) if q is None else points(level, q[level][:n].max(axis=1)), some)
        else:
            found = decisions(policy.rules[level], one.features, level, points)
        actions[level, :n], values[level, :n], decided[level, :n] = found.actions, found.values, found.decided
        reached[level, :n] = True if one.first is None else level >= one.first
    if mdp is None:
        return PolicyTable(labels, actions, values, decided, reached, None, exact=False)
    visits = np.zeros(shape)
    exact, occupied = mdp.values(policy), mdp.occupancy(policy)
    for level in range(mdp.horizon):
        n = mdp.n_states[level] if mdp.state_numbers is None else len(mdp.state_numbers)
        values[level, :n] = exact[level][:n]
        over = mdp.ended[level]
        rows, places = places_of(mdp, level)
        np.add.at(visits[level], places, occupied[level][rows])
        there = np.zeros(len(labels))
        np.add.at(there, places, (mdp.reachable[level] & ~over)[rows])
        reached[level] = there > 0
        decided[level, :n] &= ~over[:n]
    return PolicyTable(labels, actions, values, decided, reached, visits, exact=True)


def places_of(mdp: FiniteMDP, level: int) -> tuple[Integers, Integers]:
    """Return the rows of the tables that stand for states, and the place of the state of each."""
    if mdp.state_numbers is None or mdp.row_numbers is None:
        every = np.arange(mdp.n_states[level])
        return every, every
    rows = np.flatnonzero(mdp.row_numbers >= 0)
    return rows, np.searchsorted(mdp.state_numbers, mdp.row_numbers[rows])
