"""The episodes of a self-stopping run: played into its planner piece by piece, counted, and recorded in its journal.

A piece is a call of the sampler that fits one chunk. In compiled environments episode e draws from call e of the run's
key; elsewhere the episodes of a piece share the call of the first of them. So the bits depend neither on the number of
workers, which draw the pieces of greedy policies, nor on where a run was cut.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing
from functools import partial
from itertools import islice
from time import perf_counter
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dmq_fast.engine import journal
from dmq_fast.engine.journal import Record
from dmq_fast.engine.ledger import Kind, Ledger, expect
from dmq_fast.environments.block import block_mdp
from dmq_fast.environments.finite import FiniteMDP
from dmq_fast.kernels import Episode, Greedy, OptimisticPlanner, Rule, Stream
from dmq_fast.policy import Policy
from dmq_fast.rules import Optimistic
from dmq_fast.samplers import Drawing, RolloutSampler, Sampler, check_shown
from dmq_fast.trajectories import Trajectories

__all__ = ["PIECE", "PURPOSES", "Episodes"]

Floats = NDArray[np.float64]
Numbers = NDArray[np.int64]

PURPOSES = ("explore", "refine", "test")
"""Purposes of episodes: to find outcomes that no episode showed, to settle the noise or get better, to test."""

# Episodes of a piece, if a chunk holds them: few, so that workers share the pieces of a test and optimistic ones follow
# what was just seen; but no more than so many pieces in a call, as each takes time of its own.
PIECE, PIECES = 8, 32


class Piece(NamedTuple):
    """n episodes, greedy on theta before `level` and optimistic from it on."""

    theta: Floats | None
    level: int
    n: int


class Episodes:
    """Plays the episodes of one run.

    Parameters
    ----------
    sampler : Sampler
        One that shows trajectories. A `RolloutSampler` is passed over: its environment is played in compiled code.
    planner : OptimisticPlanner
        Gets every episode.
    stream : Stream
        Key of the run.
    ledger : Ledger
        Counts the episodes by purpose; `OutOfBudget` is raised before a piece that a budget does not allow.
    """

    def __init__(self, sampler: Sampler, planner: OptimisticPlanner, stream: Stream, ledger: Ledger) -> None:
        check_shown(sampler, "a self-stopping run")
        self.sampler, self.planner, self.stream, self.ledger = sampler, planner, stream, ledger
        # Feature rows by level, or of all levels where some share their data, while a journal is replayed.
        self._rows: list[list[Floats]] = [[] for _ in range(1 if planner.pooled else planner.horizon)]
        self._episode: Episode | None = None
        inner = sampler.unwrapped()
        if type(inner) is RolloutSampler:
            env = block_mdp(inner.env) if isinstance(inner.env, FiniteMDP) else inner.env
            self._episode = Episode(env.handle, env.features, stream)

    def play(self, purpose: str, n: int, theta: Floats | None = None, level: int | None = None) -> Numbers:
        """Play n episodes and return their numbers.

        They are greedy on theta before `level`, by default throughout, and optimistic from it on; without theta they
        are optimistic.
        """
        return self.play_all(purpose, [(theta, n)], level)

    def play_all(self, purpose: str, shares: Sequence[tuple[Floats | None, int]], level: int | None = None) -> Numbers:
        """Play n episodes for each (theta, n), and return their numbers; see `play`."""
        first = self.planner.n_episodes
        pieces: list[Piece] = []
        for theta, n in shares:
            from_level = 0 if theta is None else self.planner.horizon if level is None else level
            pieces += [Piece(theta, from_level, size) for size in self._sizes(n)]
        if self._episode is not None:
            for piece in pieces:
                self._answer(
                    purpose, piece, partial(self.planner.play, self._episode, piece.n, piece.theta, piece.level)
                )
        else:
            waiting = deque(pieces)
            with closing(self._played(waiting)) as played:
                for piece in pieces:
                    self._answer(purpose, piece, partial(next, played), waiting.popleft)
        return np.arange(first, self.planner.n_episodes)

    def play_uniformly(self, purpose: str, n: int) -> Numbers:
        """Play n episodes of uniform actions, and return their numbers."""
        first, horizon = self.planner.n_episodes, self.planner.horizon

        def play(size: int) -> None:
            stream = self.stream.at(self.planner.n_episodes)
            self._add_drawn(self.sampler.unwrapped().trajectories_chunk(Policy.uniform(horizon), size, rng=stream))

        for size in self._sizes(n):
            self._answer(purpose, Piece(None, 0, size), partial(play, size))
        return np.arange(first, self.planner.n_episodes)

    def _sizes(self, n: int) -> list[int]:
        """Return the sizes of the pieces of n episodes."""
        most = self.sampler.chunks(max(PIECE, -(-n // PIECES)))[0]
        return [min(most, n - done) for done in range(0, n, most)]

    def _answer(
        self, purpose: str, piece: Piece, play: Callable[[], None], skip: Callable[[], object] | None = None
    ) -> None:
        """Recall a piece from the journal, or play and record it; `skip` is called for one that is recalled."""
        ledger, planner = self.ledger, self.planner
        ledger.check_trajectories(piece.n)
        ledger.calls += 1
        first = planner.n_episodes

        def find() -> None:
            began = perf_counter()
            play()
            ledger.seconds["rollouts"] += perf_counter() - began

        def recall(record: Record) -> None:
            if skip is not None:
                skip()
            self._add_record(record, piece)

        try:
            if ledger.journal is None:
                find()
            else:
                known = planner.n_rows
                ledger.answer(Kind(journal.EPISODES, lambda _: self._packed(first, known), recall), find)
        finally:
            ledger.trajectories[purpose] += planner.n_episodes - first

    def regrouped(self) -> None:
        """Follow the planner, in which fewer levels share their data from now on."""
        if not self.planner.pooled:
            self._rows = [list(self.planner.rows(h)) for h in range(self.planner.horizon)]

    # ---- Playing

    def _played(self, waiting: deque[Piece]) -> Generator[None]:
        """Play the waiting pieces one after the other."""
        # An optimistic policy follows the planner, which stays here; greedy ones can be sent to workers.
        greedy = all(piece.level == self.planner.horizon for piece in waiting)
        sampler = self.sampler if greedy else self.sampler.unwrapped()
        for drawn in sampler.series(self._drawings(self._allowed(waiting))):
            self._add_drawn(drawn)
            yield

    def _add_drawn(self, drawn: Trajectories) -> None:
        """Add episodes that a sampler has drawn."""
        self._add(drawn.dense(), drawn.actions, drawn.rewards)

    def _add(self, features: Floats, actions: Numbers, rewards: Floats) -> None:
        """Add n episodes, given features (n, H, d), actions and rewards (n, H)."""
        for episode in zip(features, actions, rewards, strict=True):
            self.planner.add(*episode)

    def _allowed(self, waiting: deque[Piece]) -> Iterator[Piece]:
        """Yield the waiting pieces that the budget has room for; workers ask for some in advance."""
        total, most = self.ledger.n_trajectories, self.ledger.budget.max_trajectories
        while waiting:
            total += waiting[0].n
            if most is not None and total > most:
                return
            yield waiting.popleft()

    def _drawings(self, pieces: Iterator[Piece]) -> Iterator[Drawing]:
        call, theta, policy = self.planner.n_episodes, None, None
        for piece in pieces:
            if piece.level < self.planner.horizon:
                self.planner.refresh()
            if policy is None or piece.theta is not theta:
                theta, policy = piece.theta, self._policy(piece)
            yield Drawing(policy, piece.n, self.stream.at(call))
            call += piece.n

    def _policy(self, piece: Piece) -> Policy:
        roll_in: list[Rule] = [] if piece.theta is None else [Greedy(theta) for theta in piece.theta[: piece.level]]
        return Policy([*roll_in, *(Optimistic(self.planner, h) for h in range(piece.level, self.planner.horizon))])

    # ---- Records: feature rows are spelled out once, when they first appear

    def _packed(self, first: int, known: Sequence[int]) -> tuple[Sequence[int], Sequence[Any]]:
        planner = self.planner
        episodes = np.arange(first, planner.n_episodes)
        (rows, actions, _), rewards = planner.recorded(episodes), planner.paid(episodes)
        new = [planner.rows(h, known[h]) for h in range(len(self._rows))]
        return [len(rows), *rows.ravel().tolist(), *actions.ravel().tolist()], [rewards, *new]

    def _add_record(self, record: Record, piece: Piece) -> None:
        planner, n = self.planner, piece.n
        shape = (n, planner.horizon)
        sizes, got = (n, 2 * math.prod(shape)), ((*record.integers, -1)[0], len(record.integers) - 1)
        expect(got == sizes, "{} episodes with {} rows and actions, got {} with {}", *sizes, *got)
        rows, actions = np.array(record.integers[1:]).reshape(2, *shape)
        largest = [rows.max()] if planner.pooled else rows.max(axis=0)
        fresh = [max(0, int(last) + 1 - len(known)) for last, known in zip(largest, self._rows, strict=True)]
        expect(bool((rows >= 0).all()), "numbers of feature rows >= 0, got {}", rows.min())
        size = rows.size + sum(fresh) * planner.dimension
        expect(
            len(record.floats) == size,
            "{} rewards and {} rows of {} features, got {}",
            *(rows.size, sum(fresh), planner.dimension, len(record.floats)),
        )
        rewards, new = record.floats[: rows.size].reshape(shape), record.floats[rows.size :]
        features, spelled = np.empty((*shape, planner.dimension)), iter(new.reshape(-1, planner.dimension))
        for known, some in zip(self._rows, fresh, strict=True):
            known.extend(islice(spelled, some))
        for h in range(planner.horizon):
            features[:, h] = [self._rows[0 if planner.pooled else h][row] for row in rows[:, h]]
        self._add(features, actions, rewards)
