"""The value of a policy of the exam: exact from tables, from fresh episodes where there are none."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from scipy.special import stdtrit

from dmq_fast.environments.finite import FiniteMDP
from dmq_fast.experiments.exam.contestants import OnTables
from dmq_fast.experiments.exam.playing import numbers_of
from dmq_fast.kernels import is_sparse
from dmq_fast.table_policy import TablePolicy

__all__ = ["Value", "policy_of", "value_by_play", "value_on_tables"]

CONFIDENCE = 0.95


class Value(NamedTuple):
    """A value, and half the width of its 95 % interval (Student's); 0 where it is exact."""

    value: float
    half_width: float = 0.0


def policy_of(act: Any) -> Any:
    """Return what chooses actions: a function of level and observation, or a policy of tables."""
    if isinstance(act, OnTables):
        return act
    found = getattr(act, "act_on", act)
    if not callable(found):
        raise TypeError(f"act: expected a function of level and observation, or a policy with act_on, got {act!r:.80}")
    return found


def action_of(chosen: Any, n_actions: int) -> int:
    """Return an action as an integer; raise if it is none."""
    try:
        action = operator.index(chosen)
    except TypeError:
        raise TypeError(f"act: expected an integer, got {chosen!r:.80}") from None
    if not 0 <= action < n_actions:
        raise ValueError(f"act: expected an action in [0, {n_actions}), got {action}")
    return action


def value_on_tables(mdp: FiniteMDP, act: Any) -> Value:
    """Return the exact value of a policy, which is asked once for each state that it reaches, level by level."""
    if isinstance(act, OnTables):
        return Value(mdp.value(act.policy))
    numbers, reached, rules = numbers_of(mdp), mdp.start > 0.0, []
    for level in range(mdp.horizon):
        actions = np.zeros(mdp.n_states[level], dtype=np.int64)
        states = np.flatnonzero(reached & ~mdp.ended[level])
        for state in states.tolist():
            actions[state] = action_of(act(level, numbers[state]), mdp.n_actions)
        rules.append(actions)
        if level < mdp.horizon - 1:
            P: Any = mdp.P[level]
            chances = P[states * mdp.n_actions + actions[states]] if is_sparse(P) else P[states, actions[states]]
            reached = np.asarray(chances.sum(axis=0)).ravel() > 0.0
    return Value(mdp.value(TablePolicy(rules)))


def value_by_play(env: Any, act: Callable[[int, Any], Any], horizon: int, n: int, seed: int) -> Value:
    """Return the mean return of n episodes, n >= 2, from seeds that no algorithm is given."""
    seeds = np.random.SeedSequence([seed, 2**32 - 1]).generate_state(n).tolist()
    n_actions, returns = int(env.action_space.n), np.zeros(n)
    for episode, one in enumerate(seeds):
        observation, _ = env.reset(seed=one % 2**31)
        for level in range(horizon):
            action = action_of(act(level, observation), n_actions)
            observation, reward, ended, cut, _ = env.step(action)
            returns[episode] += float(reward)
            if ended or cut:
                break
    reach = float(stdtrit(n - 1, (1.0 + CONFIDENCE) / 2))
    return Value(float(returns.mean()), reach * float(returns.std(ddof=1)) / n**0.5)
