"""Combination locks: long action sequences that only pay when every action is right."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dmq_fast._support.checks import Seed, integer, number, seeded
from dmq_fast.environments.finite import FiniteMDP
from dmq_fast.environments.registry import register

__all__ = ["combination_lock", "decoy_lock"]

GOOD, BAD, DEAD = range(3)


@register("lock")
def combination_lock(
    horizon: int,
    n_actions: int = 4,
    *,
    rng: Seed = None,
    p_success: float = 1.0,
    final: float = 0.7,
    dimension: int | None = None,
) -> FiniteMDP:
    """Build the combination lock of the paper (section "Preliminaries").

    States are good (0, where episodes start) and bad (1). Each level has one secret action, which in the good
    state stays good with probability `p_success`; every other action, and every action in the bad state,
    leads to the bad state. The only reward is that of the secret action in the good state at the last level:
    1 with probability `final`.

    Parameters
    ----------
    horizon : int
        Number of levels H >= 1.
    n_actions : int, optional
        Number of actions K >= 2.
    rng : None, int, SeedSequence or Generator, optional
        Draws the secret actions and the rotation.
    p_success : float, optional
        Probability in [0, 1] that the secret action stays good.
    final : float, optional
        Mean in [0, 1] of the Bernoulli reward at the end.
    dimension : int, optional
        Rotate the one-hot features into this dimension d >= 2 by a uniformly random matrix with orthonormal
        columns, the same at each level. Default: plain one-hot features, d = 2.

    Returns
    -------
    FiniteMDP
        With optimal value p_success^(H-1) · final.

    Raises
    ------
    TypeError, ValueError
        If an argument is of another type or out of range.

    Examples
    --------
    >>> env = combination_lock(horizon=5, n_actions=4, rng=0)
    >>> env
    FiniteMDP('lock', horizon=5, n_states=2, n_actions=4, dimension=2)
    >>> env.optimal_value
    0.7
    """
    horizon, n_actions = integer("horizon", horizon, 1), integer("n_actions", n_actions, 2)
    p_success, final = number("p_success", p_success), number("final", final)
    generator, seed = seeded(rng)
    secrets = generator.integers(n_actions, size=horizon)
    features = np.eye(2)
    if dimension is not None:
        dimension = integer("dimension", dimension, 2)
        features = orthonormal_rows(2, dimension, generator)
    transitions = [_lock_transitions(action, n_actions, p_success) for action in range(n_actions)]
    last = np.zeros((2, n_actions))
    last[GOOD, secrets[-1]] = final
    return FiniteMDP(
        P=[transitions[action] for action in secrets[:-1]],
        R=[np.zeros((2, n_actions))] * (horizon - 1) + [last],
        features=[features] * horizon,
        caps=[0.0] * (horizon - 1) + [1.0],
        name="lock",
        parameters={
            "horizon": horizon,
            "n_actions": n_actions,
            "rng": seed,
            "p_success": p_success,
            "final": final,
            "dimension": dimension,
        },
    )


@register("decoy")
def decoy_lock(horizon: int, n_actions: int = 4) -> FiniteMDP:
    """Build a deterministic lock on which uniform initial policies mislead the learner.

    States good (0, the start), bad (1) and dead (2) with features (0.6, 0.8), (1, 0) and (0, 0). In the good
    state action 1 stays good and pays 0.7 at the last level; the others pay 0.1 (1 - h/H) at level h = 0, ...,
    H-1 and lead to bad. In the bad state action 0 stays bad and pays 0.3 at the last level; the others lead to
    dead.

    Under uniform roll-ins almost all mass at deep levels is on dead, so that regressions there use states
    that no good policy visits, although the MDP is deterministic (Low Variance holds with C = 1). The optimal
    value is 0.7 and the gap 0.3.

    Parameters
    ----------
    horizon : int
        Number of levels H >= 1.
    n_actions : int, optional
        Number of actions K >= 2.

    Returns
    -------
    FiniteMDP

    Raises
    ------
    TypeError, ValueError
        If an argument is of another type or out of range.
    """
    horizon, n_actions = integer("horizon", horizon, 1), integer("n_actions", n_actions, 2)
    transitions = np.zeros((3, n_actions, 3))
    transitions[GOOD, :, BAD] = transitions[BAD, :, DEAD] = transitions[DEAD, :, DEAD] = 1
    transitions[GOOD, 1] = np.eye(3)[GOOD]
    transitions[BAD, 0] = np.eye(3)[BAD]
    rewards = np.zeros((horizon, 3, n_actions))
    rewards[:, GOOD, :] = 0.1 * (1 - np.arange(horizon) / horizon)[:, None]
    rewards[:, GOOD, 1] = 0
    rewards[-1, GOOD, 1] = 0.7
    rewards[-1, BAD, 0] = 0.3
    features = np.array([[0.6, 0.8], [1.0, 0.0], [0.0, 0.0]])
    return FiniteMDP(
        P=[transitions] * (horizon - 1),
        R=rewards,
        features=[features] * horizon,
        name="decoy",
        parameters={"horizon": horizon, "n_actions": n_actions},
    )


def _lock_transitions(secret: int, n_actions: int, p_success: float) -> NDArray[np.float64]:
    transitions = np.zeros((2, n_actions, 2))
    transitions[:, :, BAD] = 1
    transitions[GOOD, secret] = p_success, 1 - p_success
    return transitions


def orthonormal_rows(n: int, dimension: int, rng: np.random.Generator) -> NDArray[np.float64]:
    """Draw orthonormal rows (n, dimension) of the Haar distribution: QR of a Gaussian, diag(R) positive."""
    q, r = np.linalg.qr(rng.standard_normal((dimension, n)))
    return np.ascontiguousarray((q * np.sign(np.diag(r))).T)
