"""The mirage lock: Q* is linear, but optimism of least squares about one state becomes pessimism about another."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dmq_fast._support.checks import Seed, integer, number, one_of, seeded
from dmq_fast.environments.block import block_mdp
from dmq_fast.environments.compiled import CompiledEnv
from dmq_fast.environments.finite import FiniteMDP
from dmq_fast.environments.registry import register

__all__ = ["mirage_lock"]

Array = NDArray[np.float64]

DEAD, HALL, CORRIDOR, SOURCE, ANCHOR, LOCK = range(6)
"""States of the levels after the first; with copies, all from LOCK on are the lock."""

MOST_COPIES = 1000
"""Largest number of numbered copies: the tables of transitions between them take over half a gigabyte."""

LEAST = 1e-6
"""Smallest accepted reward, difference of rewards, and u: room above the rounding of Q*."""

LARGEST = 1e6
"""Upper limit for kappa; larger values are taken for mistakes."""


@register("mirage-lock")
def mirage_lock(
    horizon: int = 40,
    n_actions: int = 4,
    *,
    pre: int = 5,
    gates: int = 10,
    kappa: float = 24.0,
    final: float = 0.8,
    sure: float = 0.35,
    low: float = 0.05,
    u: float = 0.6,
    copies: int = 1,
    observation: str = "state",
    rng: Seed = None,
) -> FiniteMDP | CompiledEnv:
    """Build the mirage lock, on which textbook optimism of linear least squares gives up what it has not tried.

    Level h has a secret action a_h. Episodes begin in front of three doors: one action leads into the lock, one pays
    `sure` and ends, all others lead into the hall.

    - Lock: a_h stays in the lock and at the last level pays 1 with probability `final`. Before level `pre` all other
      actions lead into the hall, from then on to the dead state.
    - Hall: all actions do the same. At one of the levels pre, ..., pre + gates - 1, each as likely, the agent finds
      itself in the source or in the anchor of that level, each with probability 1/2.
    - Source: a_h pays 1 with probability `low` and leads into the corridor; the others lead to the dead state.
    - Anchor: a_h pays 1 with probability (final + kappa low) / (1 + kappa). Every action leads to the dead state.
    - Corridor and dead state: nothing pays.

    With t = √(1 - u²) / kappa the features are (u, -t, 0, 0) in the source, (u, 0, 0, 0) in the anchor,
    (u, kappa t, 0, 0) in the lock, the third unit vector in the hall and in front of the doors, the fourth in the
    corridor, and 0 in the dead state. So φ(lock) = (1 + kappa) φ(anchor) - kappa φ(source), and Q* obeys the same
    equation: it is linear. An agent that is optimistic about the corridor overrates the source a little, which does no
    harm there, but lowers its score of the lock by kappa times that.

    The features have norm at most 1, and ‖θ*‖ < 1 at the default values. The gap is `low`, unless leaving or the hall
    is closer to the optimum. The constant of Low Variance is 2 · gates: a policy that is wrong in one source only loses
    with probability 1 / (2 gates), and no state from which something is lost is rarer.

    Parameters
    ----------
    horizon : int, optional
        Number of levels H >= pre + gates + 2.
    n_actions : int, optional
        Number of actions K >= 3.
    pre : int, optional
        First level, >= 1, with a source and an anchor.
    gates : int, optional
        Number of levels, >= 1, with a source and an anchor.
    kappa : float, optional
        Factor >= 1 by which errors of the source are extrapolated to the lock.
    final : float, optional
        Mean of the Bernoulli reward at the end of the lock, in (0, 1].
    sure : float, optional
        Reward for leaving at once, in [0, final).
    low : float, optional
        Mean of the Bernoulli reward of the source, in (0, final).
    u : float, optional
        First feature of source, anchor and lock, in (0, 1).
    copies : int, optional
        Number of states, from 1 to 1000, that the lock consists of at every level. They have the same features; which
        of them is entered is drawn uniformly at each step. Linear learners cannot tell them apart, tables have to.
    observation : str, optional
        "state": a finite MDP. "features": a compiled environment that shows the features only, as if there were
        copies without number; algorithms with tables refuse it.
    rng : None, int, SeedSequence or Generator, optional
        Draws the secret actions and the doors.

    Returns
    -------
    FiniteMDP or CompiledEnv
        With optimal value `final`.

    Raises
    ------
    TypeError, ValueError
        If an argument is of another type or out of range.

    Notes
    -----
    This family is the project's own. Its numbers were chosen against the baselines of this package: it shows that the
    failure exists, not that it is common. At the default values it separates textbook forms from DMQ, not optimism as
    such: LSVI-UCB whose fit is clipped to [0, 1] before the bonus is added solves it with a suitable beta. With a
    longer way to the gates and a longer corridor (horizon 130, pre 40) that did not help. docs/mirage.md has
    the mechanism, what was measured, and all caveats.

    That optimism of linear fits needs more than a linear Q* is known: Zanette, Lazaric, Kochenderfer and Brunskill
    (2020), Learning near optimal policies with low inherent Bellman error, ICML.

    Examples
    --------
    >>> env = mirage_lock(rng=0)
    >>> env
    FiniteMDP('mirage-lock', horizon=40, n_states=1..6, n_actions=4, dimension=4)
    >>> env.optimal_value, round(env.gap, 12)
    (0.8, 0.05)
    """
    given = _Lock(horizon, n_actions, pre, gates, kappa, final, sure, low, u, copies, observation)
    generator, seed = seeded(rng)
    secrets = generator.integers(given.n_actions, size=given.horizon).tolist()
    doors = generator.permutation(given.n_actions)
    plan = _Plan(given.n_actions, range(given.pre, given.pre + given.gates), LOCK + given.copies)
    first, leave = plan.first(doors, given.sure)
    rewards, caps = given.rewards(secrets, plan)
    features = given.features(plan.n_states)
    env = FiniteMDP(
        P=[first, *(plan.transitions(level, secrets[level]) for level in range(1, given.horizon - 1))],
        R=[leave, *rewards[1:]],
        features=[features[[HALL]], *[features] * (given.horizon - 1)],
        caps=caps,
        name="mirage-lock",
        parameters={**vars(given), "rng": seed},
    )
    if observation == "state":
        return env
    return block_mdp(env, numbered=False, name=env.name, parameters=env.parameters)


@dataclass
class _Lock:
    """The checked arguments of `mirage_lock`, and its rewards and features."""

    horizon: int
    n_actions: int
    pre: int
    gates: int
    kappa: float
    final: float
    sure: float
    low: float
    u: float
    copies: int
    observation: str

    def __post_init__(self) -> None:
        """Check the arguments."""
        self.pre, self.gates = integer("pre", self.pre, 1), integer("gates", self.gates, 1)
        self.horizon, self.n_actions = integer("horizon", self.horizon, 1), integer("n_actions", self.n_actions, 3)
        least = self.pre + self.gates + 2
        if self.horizon < least:
            raise ValueError(f"horizon: expected an integer >= pre + gates + 2 = {least}, got {self.horizon}")
        self.kappa, self.final = number("kappa", self.kappa, 1.0, LARGEST), number("final", self.final, 2 * LEAST)
        self.sure = number("sure", self.sure, 0.0, self.final - LEAST)
        self.low = number("low", self.low, LEAST, self.final - LEAST)
        self.u = number("u", self.u, LEAST, 1 - LEAST)
        self.copies = integer("copies", self.copies, 1)
        if one_of("observation", self.observation, ("state", "features")) == "features" and self.copies > 1:
            raise ValueError(
                f"copies: expected 1 with observation='features', which do not show the copy, got {self.copies}"
            )
        if self.copies > MOST_COPIES:
            raise ValueError(
                f"copies: expected an integer <= {MOST_COPIES}, as their table of transitions has {self.n_actions} "
                f"copies² entries, got {self.copies}; observation='features' stands for any number of copies"
            )

    def rewards(self, secrets: Sequence[int], plan: _Plan) -> tuple[list[Array], Array]:
        """Return the mean rewards (S, K) of the levels after the first, and the caps (H,)."""
        rewards = [np.zeros((plan.n_states, self.n_actions)) for _ in range(self.horizon)]
        anchored = (self.final + self.kappa * self.low) / (1 + self.kappa)
        for level in plan.gates:
            rewards[level][[SOURCE, ANCHOR], secrets[level]] = self.low, anchored
        rewards[-1][LOCK:, secrets[-1]] = self.final
        caps = np.zeros(self.horizon)
        caps[[*plan.gates, -1]] = 1.0
        return rewards, caps

    def features(self, n_states: int) -> Array:
        """Return the features (S, 4) of the states of a level after the first."""
        features = np.zeros((n_states, 4))
        features[HALL, 2] = features[CORRIDOR, 3] = 1
        features[SOURCE:, 0] = self.u
        t = np.sqrt(1 - self.u**2)
        features[SOURCE, 1], features[LOCK:, 1] = -t / self.kappa, t
        return features


class _Plan:
    """Transitions of the mirage lock, given the number of actions and of states and the levels of the gates."""

    def __init__(self, n_actions: int, gates: range, n_states: int) -> None:
        self.n_actions, self.gates, self.n_states = n_actions, gates, n_states
        self.dead: Array = np.eye(n_states)[DEAD]
        self.corridor: Array = np.eye(n_states)[CORRIDOR]
        self.lock: Array = np.zeros(n_states)
        self.lock[LOCK:] = 1 / (n_states - LOCK)
        self._known: dict[tuple[int, int], Array] = {}

    def hall(self, level: int) -> Array:
        """Distribution (S,) of where the hall of a level leads: at the gates that are left, each is as likely."""
        following = level + 1
        if following >= self.gates.stop:
            return self.dead
        chance = 1 / (self.gates.stop - following) if following in self.gates else 0.0
        onwards = np.zeros(self.n_states)
        onwards[[HALL, SOURCE, ANCHOR]] = 1 - chance, chance / 2, chance / 2
        return onwards

    def first(self, doors: NDArray[np.int64], sure: float) -> tuple[Array, Array]:
        """Transitions (1, K, S) and rewards (1, K) of level 0."""
        transitions, rewards = np.tile(self.hall(0), (1, self.n_actions, 1)), np.zeros((1, self.n_actions))
        transitions[0, doors[:2]] = self.lock, self.dead
        rewards[0, doors[1]] = sure
        return transitions, rewards

    def transitions(self, level: int, secret: int) -> Array:
        """Transitions (S, K, S) of a later level; levels that are alike share an array."""
        before, stop = self.gates.start, self.gates.stop
        alike = 1 if level < before - 1 else min(level, stop)
        if (alike, secret) not in self._known:
            transitions = np.zeros((self.n_states, self.n_actions, self.n_states))
            transitions[:] = self.dead
            transitions[CORRIDOR], transitions[HALL] = self.corridor, self.hall(level)
            if level in self.gates:
                transitions[SOURCE, secret] = self.corridor
            if level < before:
                transitions[LOCK:] = self.hall(level)
            transitions[LOCK:, secret] = self.lock
            self._known[alike, secret] = transitions
        return self._known[alike, secret]
