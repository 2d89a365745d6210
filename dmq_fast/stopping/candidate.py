"""`Candidate`: a policy of a self-stopping run, and what its episodes say about it."""

from __future__ import annotations

import math
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from dmq_fast.kernels import OptimisticPlanner

__all__ = ["Candidate"]

Floats = NDArray[np.float64]
Numbers = NDArray[np.int64]


class Candidate:
    """A policy, greedy on a frozen theta, with episodes that took its actions throughout.

    Parameters
    ----------
    planner : OptimisticPlanner
        Holds the episodes. Gains and losses are those of its last plan.
    theta : numpy.ndarray, shape (H, K, d)
    episodes : numpy.ndarray of int, optional
        Their numbers; none by default.
    """

    def __init__(self, planner: OptimisticPlanner, theta: Floats, episodes: Numbers | None = None) -> None:
        self.planner, self.theta = planner, theta
        self.episodes = np.zeros(0, dtype=np.int64) if episodes is None else episodes

    def __len__(self) -> int:
        return len(self.episodes)

    def add(self, episodes: Numbers) -> None:
        """Add episodes that the policy has played."""
        self.episodes = np.concatenate([self.episodes, episodes])

    def gaps(self) -> Floats:
        """Return the largest gain by one unseen outcome from each level on, on average over the episodes, (H,)."""
        gaps: Floats = self.planner.gaps(self.episodes).mean(axis=0)
        return gaps

    def loss(self, theta: Floats | None = None) -> float:
        """Return the loss by the policy's actions if theta were right, by default the newest; a mean over episodes."""
        return self.planner.regret(self.planner.theta if theta is None else theta, self.episodes)

    def upper_gaps(self, confidence_left: float) -> Floats:
        """Return upper limits of what `gaps` estimates, (H,): how often a state is met is known with an error."""
        gaps = self.planner.gaps(self.episodes)
        error = gaps.std(axis=0) / math.sqrt(len(self))
        upper: Floats = gaps.mean(axis=0) - NormalDist().inv_cdf(confidence_left) * error
        return upper

    def doubt(self, confidence_left: float) -> float:
        """Return what the policy may miss where its episodes went: the largest gap, and its loss by the newest fit."""
        return float(self.upper_gaps(confidence_left).max()) + self.loss()

    def mean_return(self) -> tuple[float, float]:
        """Return the mean return of the episodes, and its standard error."""
        returns = self.planner.returns(self.episodes)
        return float(returns.mean()), float(returns.std()) / math.sqrt(len(returns))

    def predicted(self, theta: Floats | None = None) -> float:
        """Return the mean over the episodes of the value at their start, by the plan or by theta."""
        return float(self.planner.predicted(self.episodes, theta).mean())

    def leverages(self) -> Floats:
        """Return the leverage of every state and action of the episodes, (n, H): one over the number of visits."""
        rows, actions, _ = (entries[self.episodes] for entries in self.planner.recorded(0))
        tables = [self.planner.table(h)[0] for h in range(self.planner.horizon)]
        return np.stack([table[rows[:, h], actions[:, h]] for h, table in enumerate(tables)], axis=1)
