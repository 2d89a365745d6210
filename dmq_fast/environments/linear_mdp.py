"""Random linear MDPs: transitions and rewards linear in features of states and actions."""

from __future__ import annotations

import numpy as np

from dmq_fast._support.checks import Seed, integer, seeded
from dmq_fast.environments.finite import FiniteMDP
from dmq_fast.environments.ranges import unit_sums
from dmq_fast.environments.registry import register
from dmq_fast.features import action_blocks

__all__ = ["linear_mdp"]


@register("linear-mdp")
def linear_mdp(
    horizon: int = 5, n_states: int = 20, dimension: int = 4, n_actions: int = 3, *, rng: Seed = None
) -> FiniteMDP:
    """Draw a linear MDP on simplices (sltap/efficient-low-regret-linear-mdp-rl, linear_mdp.py).

    Features φ(s, a), reward weights θ_h and the d measures μ_h over next states are uniform on their simplices, so that
    r_h(s, a) = φ(s, a)·θ_h and P_h(s'|s, a) = φ(s, a)·μ_h(s') are rewards in [0, 1] and distributions. Then the Q
    function of every policy is linear in φ(s, a). A state's features are those of its actions side by side,
    (φ(s, 1), ..., φ(s, K)) / √K, in which it is linear with weights for each action. The baselines with the option
    `blocks` learn one weight vector for all actions instead.

    Parameters
    ----------
    horizon : int, optional
        Number of levels H >= 1.
    n_states : int, optional
        Number of states S >= 1 of each level; episodes start in state 0.
    dimension : int, optional
        Dimension >= 1 of φ(s, a). The features of a state have K times as many.
    n_actions : int, optional
        Number of actions K >= 1.
    rng : None, int, SeedSequence or Generator, optional
        Draws everything.

    Returns
    -------
    FiniteMDP
        With rewards scaled so that the largest path sum is 1. They are their means: the noise (clipped, of deviation
        0.02) that the original adds is left out.

    Raises
    ------
    TypeError, ValueError
        If an argument is of another type or out of range.

    Examples
    --------
    >>> env = linear_mdp(horizon=3, n_states=8, dimension=4, rng=0)
    >>> env.horizon, env.n_actions, env.dimension
    (3, 3, 12)
    """
    horizon, n_states = integer("horizon", horizon, 1), integer("n_states", n_states, 1)
    dimension, n_actions = integer("dimension", dimension, 1), integer("n_actions", n_actions, 1)
    generator, seed = seeded(rng)
    phi = generator.dirichlet(np.ones(dimension), size=(n_states, n_actions))
    theta = generator.dirichlet(np.ones(dimension), size=horizon)
    measures = generator.dirichlet(np.ones(n_states), size=(horizon - 1, dimension))
    features = action_blocks(phi)
    P = [phi @ measure for measure in measures]
    return FiniteMDP(
        P=P,
        R=unit_sums(P, [phi @ weights for weights in theta]),
        features=[features] * horizon,
        name="linear-mdp",
        parameters={
            "horizon": horizon,
            "n_states": n_states,
            "dimension": dimension,
            "n_actions": n_actions,
            "rng": seed,
        },
    )
