"""Tables with other rewards: with noise on them, or scaled and shifted.

`with_noise` simulates a finite MDP in NumPy, with normal noise on its rewards: a `BatchEnvironment` whose exact values
are known. `affine` returns a finite MDP in other units.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from dmq_fast._support.arrays import once_each
from dmq_fast._support.checks import flag, number
from dmq_fast.environments.finite import FiniteMDP, PolicyLike
from dmq_fast.environments.ranges import Edges, edges_of
from dmq_fast.kernels import is_sparse, transition_edges
from dmq_fast.observing import TableObserver
from dmq_fast.rewards import RewardModel
from dmq_fast.table_policy import TablePolicy

__all__ = ["NoisyMDP", "affine", "with_noise"]

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

LARGEST = 1e50
"""Largest scale, shift and noise."""


def with_noise(env: FiniteMDP, sigma: float, last: bool = False) -> NoisyMDP:
    """Return an environment that pays the rewards of a finite MDP plus noise of the law N(0, sigma²).

    Parameters
    ----------
    env : FiniteMDP
    sigma : float
        Standard deviation >= 0 of the noise. 0 only simulates the tables in NumPy.
    last : bool, optional
        Whether only rewards of the last level are noisy. By default all are, but for those after the end of an episode.

    Returns
    -------
    NoisyMDP
        Its value range is that of `env`, which bounds means, and its noise is `sigma`.

    Raises
    ------
    TypeError, ValueError
        If `env` is no FiniteMDP, or an argument is out of range.

    Examples
    --------
    >>> import dmq_fast as dmq
    >>> env = with_noise(dmq.environments.river_swim(), sigma=0.1)
    >>> env.noise, env.value_range[0].tolist(), round(env.optimal_value, 3)
    (0.1, [0.0, 1.0], 0.17)
    """
    if not isinstance(env, FiniteMDP):
        raise TypeError(f"env: expected a FiniteMDP, whose tables are needed here, got {type(env).__name__}")
    return NoisyMDP(env, number("sigma", sigma, 0.0, LARGEST), flag("last", last))


Kind = TypeVar("Kind", "FiniteMDP", "NoisyMDP")


def affine(env: Kind, scale: float = 1.0, shift: float = 0.0) -> Kind:
    """Return the environment with rewards `scale` r, and `shift` on top once an episode, when it ends.

    So all values of policies are scaled and shifted, V' = scale V + shift, and the value range with them. Episodes that
    have ended are worth 0, as before.

    Parameters
    ----------
    env : FiniteMDP or NoisyMDP
    scale : float, optional
        > 0.
    shift : float, optional

    Returns
    -------
    FiniteMDP or NoisyMDP
        A NoisyMDP draws the same transitions and the same noise, which is scaled, too.

    Raises
    ------
    TypeError, ValueError
        If an argument is of another type or out of range, or if tables do not hold the rewards: where an episode may
        end before the last level, these must not be Bernoulli (`caps`), and transitions that end only some episodes
        must be dense.

    Examples
    --------
    >>> import dmq_fast as dmq
    >>> lock = dmq.environments.combination_lock(horizon=5, rng=0)
    >>> paid = affine(lock, scale=100, shift=-30)
    >>> paid.optimal_value, paid.value_range[0].tolist(), paid.value(dmq.Policy.fixed([0] * 5))
    (40.0, [-30.0, 70.0], -30.0)
    """
    scale, shift = number("scale", scale, 0.0, LARGEST), number("shift", shift, -LARGEST, LARGEST)
    if scale == 0.0:
        raise ValueError("scale: expected a number > 0, got 0")
    if isinstance(env, NoisyMDP):
        return NoisyMDP(env.source, env.sigma, env.last, scale * env.scale, scale * env.shift + shift)
    if not isinstance(env, FiniteMDP):
        raise TypeError(f"env: expected a FiniteMDP or a NoisyMDP, got {type(env).__name__}")
    edges = edges_of(env.P)
    levels = [moved(env, level, edges, scale, shift) for level in range(env.horizon)]
    P = list(env.P)
    if (last := levels[-1].P) is not None:
        P[env.horizon - 1 :] = [last]
    other = FiniteMDP(
        P,
        [one.R for one in levels],
        env.features,
        env.start,
        [one.cap for one in levels],
        value_range=scale * env.value_range + shift,
        name=env.name,
        parameters={**env.parameters, "scale": scale, "shift": shift},
    )
    other.state_numbers, other.row_numbers, other.grid = env.state_numbers, env.row_numbers, env.grid
    return other


class Level(NamedTuple):
    """The rewards of a level, their cap, and transitions where these are others than before."""

    R: Floats
    cap: float
    P: Floats | None = None


def moved(env: FiniteMDP, level: int, edges: Sequence[Edges], scale: float, shift: float) -> Level:
    """Return the rewards of a level of `affine`."""
    rewards, cap = scale * env.R[level], scale * float(env.caps[level])
    going = ~env.ended[level]
    if level == env.horizon - 1:
        paid = shift * going
        if cap == 0.0 or shift == 0.0:
            return Level(rewards + paid.reshape(-1, *[1] * (rewards.ndim - 1)) if shift else rewards, cap)
        # Paid or not is the next state, as a reward has one value for each.
        chance = np.clip(env.R[level] / env.caps[level], 0.0, 1.0)
        ways = np.stack([cap + 0.0 * chance, 0.0 * chance], axis=2) + paid[:, None, None]
        return Level(ways, 0.0, np.stack([chance, 1.0 - chance], axis=2))
    over = env.ended[level + 1]
    if shift == 0.0 or not over.any():
        return Level(rewards, cap)
    ends = over[edges[level].targets]
    some, every = (
        going[:, None] & one.reduceat(ends, edges[level].starts).reshape(-1, env.n_actions)
        for one in (np.logical_or, np.logical_and)
    )
    if not some.any():
        return Level(rewards, cap)
    if cap > 0.0:
        raise ValueError(f"env: expected no Bernoulli rewards where an episode may end, got caps[{level}] = {cap:g}")
    if rewards.ndim == 2 and (some == every).all():
        return Level(rewards + shift * every, cap)
    if is_sparse(env.P[level]):
        raise ValueError(
            f"env: P: level {level}: expected dense transitions, as an action ends some episodes and others go on, got "
            "sparse ones"
        )
    each = rewards if rewards.ndim == 3 else rewards[:, :, None]
    return Level(each + shift * (going[:, None, None] & over), cap)


class NoisyMDP:
    """A finite MDP that is simulated in NumPy, with noise on its rewards: a `BatchEnvironment`.

    `with_noise` makes it, and `affine` moves it. States are numbers, as in the tables.

    Attributes
    ----------
    source : FiniteMDP
        The tables that are simulated.
    tables : FiniteMDP
        Those of the mean rewards: the same but for the scale and the shift.
    sigma : float
        Standard deviation of the noise, before it is scaled.
    last : bool
        Whether only rewards of the last level are noisy.
    scale, shift : float
        As of `affine`.
    horizon, n_actions, dimension : int
    value_range : numpy.ndarray, shape (H, 2)
        Bounds of the mean of what can be earned from a level on.
    noise : float or None
        Standard deviation of the noise; None without noise.
    name : str
    parameters : dict

    Examples
    --------
    >>> import dmq_fast as dmq
    >>> env = with_noise(dmq.environments.chain(horizon=5), sigma=0.1)
    >>> states = env.reset(3, np.random.default_rng(0))
    >>> states, env.step(0, states, np.array([0, 0, 1]), np.random.default_rng(0))[1].round(2)
    (array([0, 0, 0]), array([ 0.18,  0.14, -0.02]))
    """

    def __init__(
        self, source: FiniteMDP, sigma: float, last: bool = False, scale: float = 1.0, shift: float = 0.0
    ) -> None:
        self.source, self.sigma, self.last, self.scale, self.shift = source, sigma, last, scale, shift
        self.tables = source if (scale, shift) == (1.0, 0.0) else affine(source, scale, shift)
        self.horizon, self.n_actions, self.dimension = source.horizon, source.n_actions, source.dimension
        self.value_range, self.noise = self.tables.value_range, scale * sigma or None
        self.homogeneous = source.homogeneous and not last
        self.name = f"noisy-{source.name}" if sigma else source.name
        self.parameters = {**self.tables.parameters, "sigma": sigma, "last": last}
        self._draws = once_each(Draws, source.P)

    def reset(self, n: int, rng: np.random.Generator) -> Integers:
        """Return the states in which n episodes start, (n,)."""
        start = self.source.start
        reached = np.flatnonzero(start)
        place = np.searchsorted(np.cumsum(start[reached]), rng.random(n), side="right")
        return reached[np.minimum(place, len(reached) - 1)]

    def features(self, level: int, states: Integers) -> Floats:
        """Return the features of states, (n, d)."""
        rows = self.source.features[level][states]
        return rows.toarray() if is_sparse(rows) else rows

    def step(
        self, level: int, states: Integers, actions: Integers, rng: np.random.Generator
    ) -> tuple[Integers, Floats]:
        """Return the next states and the rewards, (n,)."""
        source, last = self.source, level == self.horizon - 1
        # Drawn in all cases, so that neither kind nor size of the rewards changes what is drawn later.
        u, noise = rng.random((2, len(states))), rng.standard_normal(len(states))
        ahead = np.zeros(len(states), dtype=np.int64)
        if level < len(source.P):
            ahead = self._draws[level](states * self.n_actions + actions, u[0])
        table, cap = source.R[level], source.caps[level]
        rewards = table[states, actions] if table.ndim == 2 else table[states, actions, ahead]
        if cap > 0:
            rewards = np.where(u[1] * cap < rewards, cap, 0.0)
        going = ~source.ended[level][states]
        if self.sigma and (last or not self.last):
            rewards = rewards + self.sigma * np.where(going, noise, 0.0)
        if (self.scale, self.shift) != (1.0, 0.0):
            ends = going if last else going & source.ended[level + 1][ahead]
            rewards = self.scale * rewards + self.shift * ends
        return ahead, rewards

    @property
    def observer(self) -> TableObserver:
        """What turns the numbers of states into features; see `Policy.act_on`."""
        return self.source.observer

    @property
    def optimal_value(self) -> float:
        """Expected return of the best policy."""
        return self.tables.optimal_value

    @property
    def optimal_policy(self) -> TablePolicy:
        """The best policy; see `FiniteMDP.optimal_policy`."""
        return self.tables.optimal_policy

    def value(self, policy: PolicyLike) -> float:
        """Return the exact expected return of a policy; see `FiniteMDP.value`."""
        return self.tables.value(policy)

    def fingerprint(self) -> dict[str, Any]:
        """Describe the environment, JSON-able."""
        own = {"sigma": self.sigma, "last": self.last, "scale": self.scale, "shift": self.shift}
        return {
            "name": self.name,
            "rewards": RewardModel.of(self).describe(),
            "tables": self.source.fingerprint(),
            "noise": own,
        }

    def __repr__(self) -> str:
        """Name and sizes."""
        return (
            f"NoisyMDP({self.name!r}, horizon={self.horizon}, n_actions={self.n_actions}, dimension={self.dimension}, "
            f"noise={self.noise})"
        )


class Draws:
    """Next states, drawn by the rows s K + a of a transition array.

    Parameters
    ----------
    transitions : numpy.ndarray of shape (S, K, S'), or csr_array of shape (S K, S')
    """

    def __init__(self, transitions: Any) -> None:
        rows, self.targets, chances = transition_edges(transitions)
        self.counts = np.bincount(rows)
        self.starts = np.cumsum(self.counts) - self.counts
        # Row + share of the row up to an edge: ascending over all edges, so that one search serves all rows.
        sums = np.cumsum(chances)
        before = np.repeat(sums[self.starts] - chances[self.starts], self.counts)
        self.places = rows + np.minimum(sums - before, 1.0)

    def __call__(self, rows: Integers, u: Floats) -> Integers:
        """Return a next state for each row, given uniforms in [0, 1), all (n,)."""
        edge = np.searchsorted(self.places, rows + u, side="right")
        edge = np.clip(edge, self.starts[rows], self.starts[rows] + self.counts[rows] - 1)
        return self.targets[edge].astype(np.int64)
