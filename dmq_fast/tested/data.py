"""The data of a run by returns: its transitions, the returns of its episodes, and how they stand in a journal."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dmq_fast.engine.journal import Record
from dmq_fast.engine.ledger import expect
from dmq_fast.kernels import Episode, Transitions, greedy_actions
from dmq_fast.stopping.episodes import Episodes, Piece

__all__ = ["Data", "SparseEpisodes"]

Floats = NDArray[np.float64]
Numbers = NDArray[np.int64]


class Entries(NamedTuple):
    """An episode by the entries of its features that are not 0: how many a level, columns, values; actions, rewards."""

    sizes: Numbers
    columns: Numbers
    values: Floats
    actions: Numbers
    rewards: Floats


class Data:
    """What the episodes of a run showed. It has the members of an `OptimisticPlanner` that `Episodes` asks for.

    Parameters
    ----------
    horizon, n_actions, dimension : int
    ridge : float
        That of leverages.

    Attributes
    ----------
    transitions : Transitions
    earned : list of float
        Sum of all rewards of each episode, in points.
    lasted : list of int
        Number of levels of each episode before its end.
    recent : list of Entries
        The episodes of the piece that is played.
    """

    pooled = True

    def __init__(self, horizon: int, n_actions: int, dimension: int, ridge: float) -> None:
        self.horizon, self.n_actions, self.dimension = horizon, n_actions, dimension
        self.transitions = Transitions(horizon, n_actions, dimension, ridge)
        self.earned: list[float] = []
        self.lasted: list[int] = []
        self.recent: list[Entries] = []

    @property
    def n_episodes(self) -> int:
        """Number of episodes so far."""
        return len(self.earned)

    @property
    def n_rows(self) -> list[int]:
        """Number of rows."""
        return [self.transitions.n_rows]

    def add(self, features: Floats, actions: Numbers, rewards: Floats) -> None:
        """Add an episode: features (H, d), actions and rewards (H,)."""
        alive = features.any(axis=1)
        n = self.horizon if alive.all() else int(alive.argmin())
        rows, columns = np.nonzero(features[:n])
        sizes = np.bincount(rows, minlength=n)
        self.add_entries(Entries(sizes, columns, features[rows, columns], actions[:n].copy(), rewards[:n].copy()))

    def add_entries(self, entries: Entries) -> None:
        """Add an episode."""
        self.transitions.add_rows(*entries)
        self.earned.append(float(entries.rewards.sum()))
        self.lasted.append(len(entries.sizes))
        self.recent.append(entries)

    def choose(self, level: int, features: Floats, earned: float, uniform: float) -> int:
        """Return the optimistic action; see `Transitions.choose`."""
        return self.transitions.choose(level, features, earned, uniform)

    def refresh(self) -> None:
        """Forget what was visited since the plan."""
        self.transitions.refresh()

    def play(self, episode: Episode, n: int, theta: Floats | None, level: int) -> None:
        """Play n episodes of a compiled environment, greedy on theta before `level` and optimistic from it on."""
        for _ in range(n):
            self.refresh()
            episode.reset(self.n_episodes)
            features = np.zeros((self.horizon, self.dimension))
            actions, rewards = np.zeros(self.horizon, dtype=np.int64), np.zeros(self.horizon)
            for h in range(self.horizon):
                features[h] = phi = episode.features()
                if not phi.any():
                    break
                if theta is not None and h < level:
                    actions[h] = greedy_actions(phi[None], theta[h])[0]
                else:
                    actions[h] = self.choose(h, phi, 0.0, float(episode.draws(1)[0]))
                rewards[h] = episode.step(int(actions[h]))
            self.add(features, actions, rewards)

    def returns_to_go(self) -> Floats:
        """Return the sum of the rewards from each step on, for all steps that are kept, (n_steps,)."""
        transitions = self.transitions
        sums = transitions.sums()
        to_go: Floats = np.repeat(sums[transitions.first[1:]], transitions.lengths) - sums[:-1]
        return to_go


class SparseEpisodes(Episodes):
    """`Episodes` whose records hold the entries of features that are not 0: rows hardly ever repeat."""

    planner: Data  # type: ignore[assignment]

    def _answer(
        self, purpose: str, piece: Piece, play: Callable[[], None], skip: Callable[[], object] | None = None
    ) -> None:
        self.planner.recent.clear()
        super()._answer(purpose, piece, play, skip)

    def _packed(self, first: int, known: Sequence[int]) -> tuple[Sequence[int], Sequence[Any]]:
        new = self.planner.recent
        integers, floats = [len(new)], []
        for one in new:
            integers += [len(one.sizes), *one.sizes.tolist(), *one.actions.tolist(), *one.columns.tolist()]
            floats += [one.rewards, one.values]
        return integers, floats

    def _add_record(self, record: Record, piece: Piece) -> None:
        integers, floats = np.array(record.integers, dtype=np.int64), record.floats
        expect(len(integers) > 0 and integers[0] == piece.n, "{} episodes, got {}", piece.n, integers[:1])
        at, place, found = 1, 0, []
        for _ in range(piece.n):
            n = int(integers[at]) if at < len(integers) else -1
            expect(0 <= n <= self.planner.horizon, "at most {} levels, got {}", self.planner.horizon, n)
            sizes = integers[at + 1 : at + 1 + n]
            total = int(sizes.sum()) if len(sizes) == n else -1
            ends = np.cumsum([at + 1, n, n, total])
            expect(bool((sizes > 0).all()) and ends[-1] <= len(integers), "rows that are whole, got others")
            sizes, actions, columns = (integers[a:b] for a, b in pairwise(ends))
            expect(place + n + total <= len(floats), "{} numbers, got {}", place + n + total, len(floats))
            rewards, values = floats[place : place + n], floats[place + n : place + n + total]
            found.append(Entries(sizes, columns, values, actions, rewards))
            at, place = int(ends[-1]), place + n + total
        expect((at, place) == (len(integers), len(floats)), "no more numbers, got some")
        for one in found:
            self.planner.add_entries(one)
