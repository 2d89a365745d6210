"""The field's tabular exploration benchmarks: chain, deep sea and river swim.

All of them have one-hot features, so that every value function is linear.
"""

from __future__ import annotations

import numpy as np

from dmq_fast._support.checks import Seed, flag, integer, number, seeded
from dmq_fast.environments.finite import FiniteMDP
from dmq_fast.environments.ranges import unit_sums
from dmq_fast.environments.registry import register

__all__ = ["chain", "deep_sea", "river_swim"]

MOVE_COST = 0.01
"""Deep sea: cost of a whole episode of right moves (bsuite's unscaled move cost)."""

BSUITE_MAPPING_SEED = 42
"""Deep sea: seed of the action map in bsuite's sweep."""


@register("chain")
def chain(horizon: int, n_actions: int = 3, *, rng: Seed = None, length: int = 5, fail: float = 0.1) -> FiniteMDP:
    """Build rlberry's chain (rlberry/envs/finite/chain.py), with any number of actions.

    Each state has one forward action; all others go backward. An action goes its way with probability 1 -
    `fail` and the other way otherwise; at the two ends, going further out means staying. Every action pays
    0.05 in the first state, where episodes start, and 1 in the last.

    Parameters
    ----------
    horizon : int
        Number of levels H >= 1.
    n_actions : int, optional
        Number of actions K >= 2.
    rng : None, int, SeedSequence or Generator, optional
        Draws the forward action of every state. None is a fixed map: with two actions rlberry's own, where
        action 1 goes forward; with more the one drawn from seed 0.
    length : int, optional
        Number of states S >= 2; also the dimension.
    fail : float, optional
        Probability in [0, 1] that an action goes the other way.

    Returns
    -------
    FiniteMDP
        With rewards scaled so that the largest path sum is 1.

    Raises
    ------
    TypeError, ValueError
        If an argument is of another type or out of range.
    """
    horizon, n_actions = integer("horizon", horizon, 1), integer("n_actions", n_actions, 2)
    length, fail = integer("length", length, 2), number("fail", fail)
    seed: int | str | None = None
    if rng is None and n_actions == 2:
        forward = np.ones(length, dtype=np.intp)
    else:
        generator, seed = seeded(0 if rng is None else rng)
        forward = generator.integers(n_actions, size=length)
    states = np.arange(length)
    right = np.eye(length)[np.minimum(states + 1, length - 1)]
    left = np.eye(length)[np.maximum(states - 1, 0)]
    transitions = np.repeat(((1 - fail) * left + fail * right)[:, None, :], n_actions, axis=1)
    transitions[states, forward] = (1 - fail) * right + fail * left
    rewards = np.zeros((length, n_actions))
    rewards[0], rewards[-1] = 0.05, 1.0
    P = [transitions] * (horizon - 1)
    return FiniteMDP(
        P=P,
        R=unit_sums(P, [rewards] * horizon),
        features=[np.eye(length)] * horizon,
        name="chain",
        parameters={
            "horizon": horizon,
            "n_actions": n_actions,
            "rng": seed,
            "length": length,
            "fail": fail,
        },
    )


@register("deep-sea")
def deep_sea(size: int, *, rng: Seed = None, stochastic: bool = False) -> FiniteMDP:
    """Build bsuite's deep sea (bsuite/environments/deep_sea.py and its sweep).

    The level is the row of an N x N grid, the state the column (0, ..., h at level h), and an episode falls
    one row a step. In each cell one of the two actions is right, the other left. Right costs 0.01/N; in the
    last column, which only the last row has, it also pays 1. Left costs nothing.

    Parameters
    ----------
    size : int
        N >= 1: horizon, number of columns and dimension.
    rng : None, int, SeedSequence or Generator, optional
        Draws which action is right in each cell. None is the fixed map of bsuite's sweep (mapping seed 42).
    stochastic : bool, optional
        Right moves stay in their column with probability 1/N, at the same cost and pay. The Gaussian noise
        that bsuite adds to the last rewards is left out; `with_noise` adds it.

    Returns
    -------
    FiniteMDP
        With 0.01/N added to every reward, so that left pays 0.01/N and right nothing: the optimum of the deterministic
        form is 1, where bsuite's is 0.99.

    Raises
    ------
    TypeError, ValueError
        If an argument is of another type or out of range.
    """
    size, stochastic = integer("size", size, 1), flag("stochastic", stochastic)
    seed: int | str | None = None
    if rng is None:
        right = np.random.RandomState(BSUITE_MAPPING_SEED).binomial(1, 0.5, (size, size))
    else:
        generator, seed = seeded(rng)
        right = generator.integers(2, size=(size, size))
    slip = 1 / size if stochastic else 0.0
    shift = MOVE_COST / size
    P, R = [], []
    for row in range(size):
        columns = np.arange(row + 1)
        moves_right = right[row, : row + 1]
        rewards = np.zeros((row + 1, 2))
        rewards[columns, 1 - moves_right] = shift
        R.append(rewards)
        transitions = np.zeros((row + 1, 2, row + 2))
        transitions[columns, moves_right, columns + 1] = 1 - slip
        transitions[columns, moves_right, columns] += slip
        transitions[columns, 1 - moves_right, np.maximum(columns - 1, 0)] = 1
        P.append(transitions)
    R[-1][-1, right[-1, -1]] = 1
    return FiniteMDP(
        P=P[:-1],
        R=R,
        features=[np.eye(row + 1, size) for row in range(size)],
        name="deep-sea",
        parameters={"size": size, "rng": seed, "stochastic": stochastic},
    )


@register("river-swim")
def river_swim(n_states: int = 6, horizon: int = 20) -> FiniteMDP:
    """Build the episodic river swim of iosband/TabulaRL (environment.py).

    Action 0 swims left and always succeeds. Action 1 swims right: from an inner state it moves on with
    probability 0.35, stays with 0.6 and drifts back with 0.05; in state 0 it stays with 0.4, otherwise moves on;
    in the last state it stays with 0.6, otherwise drifts back. Left in state 0, where episodes start, pays
    0.005; right in the last state pays 1.

    Parameters
    ----------
    n_states : int, optional
        Number of states S >= 2; also the dimension.
    horizon : int, optional
        Number of levels H >= 1.

    Returns
    -------
    FiniteMDP
        With rewards scaled by 1/H.

    Raises
    ------
    TypeError, ValueError
        If an argument is of another type or out of range.
    """
    n_states, horizon = integer("n_states", n_states, 2), integer("horizon", horizon, 1)
    states = np.arange(n_states)
    transitions = np.zeros((n_states, 2, n_states))
    transitions[states, 0, np.maximum(states - 1, 0)] = 1
    inner = states[1:-1]
    transitions[inner, 1, inner - 1] = 0.05
    transitions[states, 1, states] = 0.6
    transitions[inner, 1, inner + 1] = 0.35
    transitions[0, 1, :2] = 0.4, 0.6
    transitions[-1, 1, -2] = 0.4
    rewards = np.zeros((n_states, 2))
    rewards[0, 0], rewards[-1, 1] = 0.005 / horizon, 1 / horizon
    return FiniteMDP(
        P=[transitions] * (horizon - 1),
        R=[rewards] * horizon,
        features=[np.eye(n_states)] * horizon,
        name="river-swim",
        parameters={"n_states": n_states, "horizon": horizon},
    )
