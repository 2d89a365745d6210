"""MDPs whose Q* is exactly linear in few features of many states."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from dmq_fast._support.checks import Seed, integer, number, seeded
from dmq_fast.environments.finite import FiniteMDP
from dmq_fast.environments.registry import register

__all__ = ["linear_q"]

Array = NDArray[np.float64]

CONSTANT = float(np.sqrt(0.75))
"""First feature of every state. It carries the per-level offset of Q*, which is larger than the differences
between actions, so most of the unit norm goes to it: that keeps ‖θ*‖ <= 1."""

TRIES = 200
"""Largest number of weights tried for a level."""

CANDIDATES = 64
"""Number of directions drawn for each state that is needed."""


@register("linear-q")
def linear_q(
    horizon: int = 5,
    n_states: int = 40,
    dimension: int = 6,
    n_actions: int = 3,
    *,
    rng: Seed = None,
    min_gap: float = 1.0,
) -> FiniteMDP:
    """Draw an MDP with Q*(s, a) = φ(s)·θ_h^a exactly, a positive gap, and stochastic transitions.

    Q* comes first: unit features and weights with a positive gap in every state. Transitions are then drawn
    freely (Dirichlet rows), and the rewards follow, R_h = Q*_h - P V*_{h+1}. The constant feature
    lifts every level so that its smallest reward is 0, and one factor scales all rewards into [0, 1/H].

    Parameters
    ----------
    horizon : int, optional
        Number of levels H >= 1.
    n_states : int, optional
        Number of states S >= 1 of each level; episodes start in state 0.
    dimension : int, optional
        d >= 2; every Q function is linear anyway where d >= S.
    n_actions : int, optional
        Number of actions K >= 2.
    rng : None, int, SeedSequence or Generator, optional
        Draws everything.
    min_gap : float, optional
        Smallest difference, at least 1e-6, between the best action and the next one in any state, in units of
        1/√(d-1), the standard deviation of φ·θ over features drawn without that condition. The larger, the
        easier to learn.

    Returns
    -------
    FiniteMDP
        With deterministic rewards and ‖θ_h^a‖ <= 1.

    Raises
    ------
    TypeError, ValueError
        If an argument is of another type or out of range, or if no features with such a gap are found.

    Examples
    --------
    >>> env = linear_q(horizon=3, n_states=8, dimension=4, rng=0)
    >>> env.horizon, env.n_actions, env.dimension
    (3, 3, 4)
    """
    horizon, n_states = integer("horizon", horizon, 1), integer("n_states", n_states, 1)
    dimension, n_actions = integer("dimension", dimension, 2), integer("n_actions", n_actions, 2)
    min_gap = number("min_gap", min_gap, 1e-6, np.inf)
    generator, seed = seeded(rng)
    pieces = [_separated(n_states, dimension - 1, n_actions, min_gap, generator) for _ in range(horizon)]
    P = [generator.dirichlet(np.ones(n_states), size=(n_states, n_actions)) for _ in range(horizon - 1)]
    return FiniteMDP(
        P=P,
        R=_rewards(P, [directions @ weights.T for directions, weights in pieces]),
        features=[_features(directions) for directions, _ in pieces],
        name="linear-q",
        parameters={
            "horizon": horizon,
            "n_states": n_states,
            "dimension": dimension,
            "n_actions": n_actions,
            "rng": seed,
            "min_gap": min_gap,
        },
    )


def _features(directions: Array) -> Array:
    """Return unit features (S, d): the constant, then the directions (S, d-1)."""
    return np.insert(np.sqrt(1 - CONSTANT**2) * directions, 0, CONSTANT, axis=1)


def _separated(
    n_states: int, dimension: int, n_actions: int, min_gap: float, rng: np.random.Generator
) -> tuple[Array, Array]:
    """Draw unit directions (S, dimension) and weights (K, dimension) until the best action stands out.

    By rejection: directions are kept where it does, weights are redrawn where it does in too few.
    """
    for _ in range(TRIES):
        weights = _weights(n_actions, dimension, rng)
        candidates = rng.standard_normal((CANDIDATES * n_states, dimension))
        candidates /= np.linalg.norm(candidates, axis=1, keepdims=True)
        second, best = np.sort(candidates @ weights.T, axis=1)[:, -2:].T
        kept = candidates[best - second >= min_gap / np.sqrt(dimension)][:n_states]
        if len(kept) == n_states:
            return kept, weights
    raise ValueError(
        f"min_gap: expected a gap that {n_states} random features of dimension {dimension + 1} can keep "
        f"between {n_actions} actions, got {min_gap}, for which none were found; lower it"
    )


def _weights(n_actions: int, dimension: int, rng: np.random.Generator) -> Array:
    """Random weights (n_actions, dimension) of norm at most 1, orthonormal where there is room."""
    weights: Array = rng.standard_normal((n_actions, dimension))
    if n_actions <= dimension:
        return np.ascontiguousarray(np.linalg.qr(weights.T).Q.T)
    weights /= np.linalg.norm(weights, axis=1).max()
    return weights


def _rewards(P: Sequence[Array], advantages: Sequence[Array]) -> Array:
    """Rewards (H, S, K) in [0, 1/H] under which Q* is, up to scale and an offset a level, `advantages`.

    With V_{h+1} = max_a A_{h+1}, the reward A_h - P V_{h+1} gives Q*_h = A_h; adding a constant to a level's
    rewards moves that and the earlier levels of Q* by constants, which the constant feature represents.
    """
    rewards: Array = np.array(advantages)
    for level, transitions in enumerate(P):
        rewards[level] -= transitions @ advantages[level + 1].max(axis=1)
    rewards -= rewards.min(axis=(1, 2), keepdims=True)
    rewards /= len(rewards) * rewards.max()
    return rewards
