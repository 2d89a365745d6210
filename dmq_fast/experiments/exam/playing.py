"""The environments that algorithms of the exam play: Gymnasium's interface, and everything is counted.

Gymnasium is imported here, so this module is imported only where an exam begins.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import Any

import gymnasium
import numpy as np
from gymnasium.spaces import Discrete
from numpy.typing import NDArray

from dmq_fast.environments.finite import FiniteMDP
from dmq_fast.experiments.exam.protocol import Tally, Terms
from dmq_fast.kernels import is_sparse

__all__ = ["Stepped", "TableEnv", "numbers_of"]

Entry = tuple[list[float], list[int], list[float]]


def numbers_of(mdp: FiniteMDP) -> list[int]:
    """Return the number under which each row of a level is observed; any of a state that has ended."""
    n = max(mdp.n_states)
    if mdp.state_numbers is None:
        return list(range(n))
    # Copies of a state, which tell its rewards apart, have its features.
    origin = np.asarray(mdp.features[0].argmax(axis=1)).ravel()
    numbers: list[int] = mdp.state_numbers[origin].tolist()
    return numbers


class Dynamics:
    """What follows states and actions of tables, laid out for single steps; an entry is made when it is needed."""

    def __init__(self, mdp: FiniteMDP) -> None:
        self.mdp, self.last = mdp, mdp.horizon - 1
        self.entries: dict[tuple[int, int, int], Entry] = {}
        # Levels whose arrays are the same objects share their entries.
        arrays: dict[tuple[int, int, float], int] = {}
        self.kinds = [
            arrays.setdefault((id(mdp.P[h]) if h < len(mdp.P) else 0, id(mdp.R[h]), float(mdp.caps[h])), h)
            for h in range(mdp.horizon)
        ]
        self.ended = [mask.tolist() for mask in mdp.ended]
        self.start = np.cumsum(mdp.start).tolist()

    def entry(self, level: int, state: int, action: int) -> Entry:
        """Return cumulated probabilities, next states and rewards."""
        mdp, h = self.mdp, self.kinds[level]
        targets: NDArray[Any]
        if h < len(mdp.P):
            P: Any = mdp.P[h]
            if is_sparse(P):
                pair = state * mdp.n_actions + action
                part = slice(P.indptr[pair], P.indptr[pair + 1])
                targets, chances = P.indices[part], P.data[part]
            else:
                targets = np.flatnonzero(P[state, action])
                chances = P[state, action, targets]
        else:
            targets, chances = np.zeros(1, dtype=np.intp), np.ones(1)
        R = mdp.R[h]
        rewards = R[state, action][targets] if R.ndim == 3 else np.full(len(targets), R[state, action])
        if (cap := float(mdp.caps[h])) > 0.0:  # the cap with probability R / cap, else nothing
            paid = float(R[state, action]) / cap
            targets, chances = np.tile(targets, 2), np.concatenate([chances * paid, chances * (1.0 - paid)])
            rewards = np.repeat([cap, 0.0], len(targets) // 2)
        made = np.cumsum(chances).tolist(), targets.tolist(), rewards.tolist()
        self.entries[h, state, action] = made
        return made

    def step(self, level: int, state: int, action: int, uniform: float) -> tuple[int, float, bool]:
        """Return the next state, the reward, and whether the episode has ended, not counting the horizon."""
        found = self.entries.get((self.kinds[level], state, action))
        sums, targets, rewards = self.entry(level, state, action) if found is None else found
        i = place(sums, uniform)
        following = targets[i]
        return following, rewards[i], level < self.last and self.ended[level + 1][following]


def place(sums: list[float], uniform: float) -> int:
    """Return the outcome that a uniform number draws; rounding never leads beyond the last."""
    return 0 if len(sums) == 1 else min(bisect_right(sums, uniform * sums[-1]), len(sums) - 1)


class TableEnv(gymnasium.Env[Any, Any]):
    """An environment that steps through tables: what one observes of a state is its number.

    Attributes
    ----------
    horizon, n_actions : int
        Episodes are truncated after `horizon` steps.
    value_range : tuple of float
    homogeneous : bool
    tally : Tally
    mdp : FiniteMDP
    """

    def __init__(self, mdp: FiniteMDP, terms: Terms, tally: Tally) -> None:
        self.mdp, self.terms, self.tally = mdp, terms, tally
        self.horizon, self.n_actions = mdp.horizon, mdp.n_actions
        self.value_range, self.homogeneous = terms.value_range, mdp.homogeneous
        self.numbers, self.dynamics = numbers_of(mdp), Dynamics(mdp)
        self.observation_space, self.action_space = Discrete(max(self.numbers) + 1), Discrete(mdp.n_actions)
        self.state, self.level = 0, -1
        super().reset(seed=terms.seed)  # so that also an algorithm that passes no seeds is repeated

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[int, dict[str, Any]]:
        """Start an episode; return the first observation and nothing else."""
        super().reset(seed=seed)
        self.state, self.level = place(self.dynamics.start, self.np_random.random()), 0
        return self.numbers[self.state], {}

    def step(self, action: Any) -> tuple[int, float, bool, bool, dict[str, Any]]:
        """Take an action; return the observation, the reward, whether the episode has ended, or reached the horizon."""
        action = int(action)
        if not 0 <= action < self.n_actions:
            raise ValueError(f"action: expected one in [0, {self.n_actions}), got {action}")
        if not 0 <= self.level < self.horizon:
            raise ValueError("step: expected reset() first, as the episode has ended")
        self.tally.count(self.level)
        state, reward, ended = self.dynamics.step(self.level, self.state, action, self.np_random.random())
        self.level += 1
        over = self.level == self.horizon
        if not (ended or over):
            self.state = state
        elif ended:
            self.level = self.horizon
        return self.numbers[self.state], reward, ended, over and not ended, {}

    def __deepcopy__(self, memo: object) -> TableEnv:
        """Return a copy that shares the tables and the tally; its first `reset` should have a seed."""
        other = object.__new__(type(self))
        vars(other).update(vars(self))
        return other


class Stepped(gymnasium.Wrapper[Any, Any, Any, Any]):
    """An environment of Gymnasium's own, which ends its episodes itself; attributes as of `TableEnv`, no tables."""

    mdp = None

    def __init__(self, env: gymnasium.Env[Any, Any], terms: Terms, tally: Tally) -> None:
        super().__init__(env)
        self.terms, self.tally, self.horizon = terms, tally, terms.horizon
        self.n_actions = int(env.action_space.n)  # type: ignore[attr-defined]
        self.value_range, self.homogeneous = terms.value_range, terms.homogeneous
        self.level = 0
        env.reset(seed=terms.seed)

    def reset(self, **options: Any) -> Any:
        """Start an episode."""
        self.level = 0
        return self.env.reset(**options)

    def step(self, action: Any) -> Any:
        """Take an action."""
        self.tally.count(self.level)
        self.level += 1
        return self.env.step(action)
