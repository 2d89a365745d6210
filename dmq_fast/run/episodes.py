"""Single episodes of an environment, played into an `OptimisticPlanner`, with budgets and a count by purpose.

Episode e draws from call e of the run's key whatever was played before it and in which pieces, so a run has the same
bits for any number of workers. An environment written in Python plays several episodes at once: they share the call of
the first of them.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from contextlib import suppress
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dmq_fast.environments.block import block_mdp
from dmq_fast.environments.finite import FiniteMDP
from dmq_fast.kernels import Episode, OptimisticPlanner, Stream, greedy_actions
from dmq_fast.run.ledger import OutOfBudget
from dmq_fast.run.options import Budget
from dmq_fast.samplers import BatchSampler, RolloutSampler, Sampler
from dmq_fast.samplers.batch import Place, noting

__all__ = ["BatchEpisodes", "CompiledEpisodes", "Episodes", "check_episodes", "episodes_of"]

# Chunk of an episode's call that gives the uniforms of the optimistic rule, as in `kernels.Episode`.
OWN_CHUNK = 2

# Most episodes played between two looks at the clock.
PIECE = 1024


class Episodes(ABC):
    """Where the episodes of a run come from.

    Parameters
    ----------
    planner : OptimisticPlanner
        Gets every episode.
    stream : Stream
        Source of all uniforms.
    budget : Budget
        `OutOfBudget` is raised when it is used up; what was played before stays in the planner.

    Attributes
    ----------
    planner : OptimisticPlanner
    counts : dict of str to int
        Episodes by purpose.
    """

    def __init__(self, planner: OptimisticPlanner, stream: Stream, budget: Budget) -> None:
        self.planner, self.stream, self.budget = planner, stream, budget
        self.counts = {"explore": 0, "refine": 0, "test": 0}
        self.began = time.perf_counter()

    def play(self, n: int, purpose: str, theta: NDArray[np.float64] | None = None, level: int = 0) -> NDArray[np.int64]:
        """Play n episodes, greedy on theta before `level` and optimistic from it on; return their numbers."""
        first, end = self.planner.n_episodes, self.planner.n_episodes + n
        most, seconds = self.budget.max_trajectories, self.budget.max_seconds
        while self.planner.n_episodes < end:
            done = self.planner.n_episodes
            if most is not None and done >= most:
                raise OutOfBudget("max_trajectories")
            if seconds is not None and time.perf_counter() - self.began >= seconds:
                raise OutOfBudget("max_seconds")
            piece = min(end - done, PIECE) if most is None else min(end - done, PIECE, most - done)
            try:
                self.roll_out(piece, theta, level)
            finally:
                self.counts[purpose] += self.planner.n_episodes - done
        return np.arange(first, end)

    @abstractmethod
    def roll_out(self, n: int, theta: NDArray[np.float64] | None, level: int) -> None:
        """Play n episodes into the planner."""


class CompiledEpisodes(Episodes):
    """Episodes of a finite MDP or of a compiled environment."""

    def __init__(self, sampler: RolloutSampler, planner: OptimisticPlanner, stream: Stream, budget: Budget) -> None:
        super().__init__(planner, stream, budget)
        env = block_mdp(sampler.env) if isinstance(sampler.env, FiniteMDP) else sampler.env
        self.episode = Episode(env.handle, env.features, stream)

    def roll_out(self, n: int, theta: NDArray[np.float64] | None, level: int) -> None:
        """Play n episodes in compiled code."""
        self.planner.play(self.episode, n, theta, level)


class BatchEpisodes(Episodes):
    """Episodes of an environment written in Python, several at once."""

    def __init__(self, sampler: BatchSampler, planner: OptimisticPlanner, stream: Stream, budget: Budget) -> None:
        super().__init__(planner, stream, budget)
        self.sampler = sampler

    def roll_out(self, n: int, theta: NDArray[np.float64] | None, level: int) -> None:
        """Play n episodes in batches of at most a chunk; none of a batch sees the others."""
        while n > 0:
            size = min(n, self.sampler.chunk_size)
            for episode in zip(*self.batch(size, theta, level), strict=True):
                self.planner.add(*episode)
            n -= size

    def batch(
        self, n: int, theta: NDArray[np.float64] | None, level: int
    ) -> tuple[NDArray[np.float64], NDArray[np.int64], NDArray[np.float64]]:
        """Return features (n, H, d), actions (n, H) and rewards (n, H) of a batch."""
        env, planner, call = self.sampler.env, self.planner, self.planner.n_episodes
        place = Place(call, 0)
        own = self.stream.at(call).generator()
        ties = self.stream.at(call, OWN_CHUNK).uniforms(n * planner.horizon).reshape(n, planner.horizon)
        features = np.empty((n, planner.horizon, planner.dimension))
        actions, rewards = np.empty((n, planner.horizon), dtype=np.int64), np.empty((n, planner.horizon))
        total = np.zeros(n)
        with noting("reset", place.at(0)):
            states: Any = env.reset(n, own)
        try:
            for h in range(planner.horizon):
                where = place.at(h)
                phi = features[:, h] = self.sampler.observe(h, states, n, where)
                if h < level and theta is not None:
                    actions[:, h] = greedy_actions(phi, theta[h])
                else:
                    actions[:, h] = [planner.choose(h, phi[i], total[i], ties[i, h]) for i in range(n)]
                before = total.copy()
                states = self.sampler.advance(h, states, actions[:, h].copy(), own, total, where)
                rewards[:, h] = total - before
        finally:
            release = getattr(env, "release", None)
            if release is not None:
                with suppress(Exception):
                    release(states)
        return features, actions, rewards


def episodes_of(sampler: Sampler, planner: OptimisticPlanner, stream: Stream, budget: Budget) -> Episodes:
    """Return the source of single episodes of what a sampler samples; see `check_episodes`."""
    checked = check_episodes(sampler)
    if isinstance(checked, RolloutSampler):
        return CompiledEpisodes(checked, planner, stream, budget)
    return BatchEpisodes(checked, planner, stream, budget)


def check_episodes(sampler: Sampler) -> RolloutSampler | BatchSampler:
    """Return a sampler that plays single episodes.

    Raises
    ------
    TypeError
        If it gives moments only.
    """
    if isinstance(sampler, RolloutSampler | BatchSampler):
        return sampler
    raise TypeError(
        "env_or_sampler: expected an environment, or its RolloutSampler or BatchSampler, whose single episodes can be "
        f"seen, for the variant 'adaptive'; got {type(sampler).__name__}"
    )
