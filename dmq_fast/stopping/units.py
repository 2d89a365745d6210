"""`Units`: the range in which a self-stopping run measures values, and how it follows what episodes earn.

A declared range bounds what can be earned from a level on. Without one, that of the returns seen so far takes its
place, widened above by half: then the promise holds unless something pays more. Where an episode leaves a declared
range, it was declared wrongly. From then on it is as if there had been none; no episode is lost, and the result says
so.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from dmq_fast.kernels import OptimisticPlanner
from dmq_fast.rewards import RewardModel

__all__ = ["WIDER", "Units"]

Floats = NDArray[np.float64]

WIDER = 1.5
"""The range of values, where none is declared, is so many times as wide as that of the returns seen."""

# The width of a range in which nothing was seen to differ, in units of epsilon.
NOTHING_SEEN = 20.0

# Room for rounding in sums of rewards, in units.
SLACK = 1e-9

# A range widened after this share of the episodes was widened late.
LATE = 0.75


class Units:
    """The range of values of one run.

    Parameters
    ----------
    declared : RewardModel
    planner : OptimisticPlanner
        Gets every range.
    most_to_go : numpy.ndarray, shape (H,), optional
        What can still be earned from each level on, in points, where more is known than the range.

    Attributes
    ----------
    model : RewardModel
        The range that counts, with the declared noise.
    refusal : tuple of int and float, or None
        Level and sum of rewards from it on of the first episode that left the declared range.
    widened_at : int
        Number of episodes when the range changed last.
    """

    def __init__(self, declared: RewardModel, planner: OptimisticPlanner, most_to_go: Floats | None = None) -> None:
        self.declared, self.planner, self.most_to_go = declared, planner, most_to_go
        self.model = declared if declared.known else replace(declared, bounds=self.same_at_all_levels(0.0, 1.0))
        self.refusal: tuple[int, float] | None = None
        self.widened_at, self._records = 0, 0
        self.set(self.model)

    def same_at_all_levels(self, low: float, high: float) -> Floats:
        """Return the bounds (H, 2) of a range that is the same at all levels."""
        return np.broadcast_to([low, high], (self.planner.horizon, 2)).copy()

    def set(self, model: RewardModel) -> None:
        """Measure values in the range of a model from now on."""
        self.model, noise = model, model.noise
        tops = model.tops
        if self.most_to_go is not None and noise is None:
            tops = np.minimum(tops, (self.most_to_go - model.low) / model.width + SLACK)
        self.planner.set_rewards(model.low, model.width, tops, None if noise is None else noise / model.width)

    def follow(self, epsilon: float) -> bool:
        """Widen the range if episodes left it; return whether it changed. epsilon is in points."""
        planner = self.planner
        if planner.n_records == self._records:
            return False
        self._records = planner.n_records
        seen = planner.returns_seen
        if self.trusted:
            self.look_outside(seen)
        if self.trusted:
            return False
        bounds = self.around(seen, epsilon)
        if bool((bounds == self.model.bounds).all()):
            return False
        self.widened_at = planner.n_episodes
        self.set(replace(self.model, bounds=bounds))
        return True

    @property
    def trusted(self) -> bool:
        """Whether a range was declared, and no episode has left it."""
        return self.declared.known and self.refusal is None

    def look_outside(self, seen: Floats) -> None:
        """Note the first level from which an episode earned more or less than was declared, given (H, 2) extremes."""
        if (limits := self.declared.limits) is None:
            return
        there, inside = seen[:, :1] <= seen[:, 1:], (seen >= limits[:, :1]) & (seen <= limits[:, 1:])
        wrong = np.argwhere(there & ~inside)
        if len(wrong):
            # The whole episode says most: the first level has the longest sums.
            level, end = wrong[0].tolist()
            self.refusal = level, float(seen[level, end])

    def around(self, seen: Floats, epsilon: float) -> Floats:
        """Return the bounds of a range `WIDER` than that of what was seen."""
        there = seen[seen[:, 0] <= seen[:, 1]]
        low, high = float(there[:, 0].min()), float(there[:, 1].max())
        return self.same_at_all_levels(low, low + (WIDER * (high - low) or NOTHING_SEEN * epsilon))

    def describe(self) -> dict[str, object]:
        """Return the range that counted and what was seen, in points, as data that JSON can hold."""
        seen = self.planner.returns_seen[0]
        returns = seen.tolist() if self.planner.n_episodes else None
        return {**self.model.describe(), "returns_seen": returns, "declared": self.trusted}

    def warnings(self) -> list[str]:
        """Return reasons to doubt what is promised within the range."""
        if self.refusal is not None:
            seen = self.planner.returns_seen
            there = seen[seen[:, 0] <= seen[:, 1]]
            text = self.declared.refusal(self.refusal[1], self.refusal[0], there)
            return [f"the value range was declared wrongly, and that of the returns seen took its place: {text}"]
        if not self.declared.known and self.widened_at > LATE * self.planner.n_episodes:
            return [
                f"episode {self.widened_at} of {self.planner.n_episodes} still widened the range of the returns seen: "
                "others may earn more; declare value_range"
            ]
        return []
