"""The quantities of runs that figures and tables show, such as the episodes until an environment is solved.

A policy is judged by its score, (V - V_uniform) / (V* - V_uniform), which no shift or scale of the rewards changes: see
`results.score`. Rows of stores of 0.2.0 have no value of uniform play, which counts as 0 there: rewards were >= 0. It
solves its environment from a score of 95 % on.

Good after: the first checkpoint whose policy solves the environment, of an algorithm with a learning curve. It does not
know then that it has.

Stopped after: where an algorithm that stops by itself did so, with such a policy. DMQ, the self-stopping run and those
of one's own have no learning curve and always stop by themselves; of the baselines, BPI-UCBVI does.

Until solved: stopped after, of algorithms that stop by themselves, and good after, of all others.

By reward: the first multiple of 100 episodes with a running mean reward above the middle between uniform play and the
optimum, as papers on locks report it. An algorithm without a learning curve is credited with the reward of uniform play
while it learns, so this is about twice the number of its trajectories.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dmq_fast.experiments.report.numbers import Numbers
from dmq_fast.experiments.sweeps.algorithms import GOOD, REWARD_EVERY
from dmq_fast.results.score import scores, solved

__all__ = ["EPISODES", "GOOD", "IN_POINTS", "PARTS", "QUANTITIES", "Quantity", "check_share"]

Array = NDArray[np.float64]


def check_share(share: float) -> None:
    """Raise ValueError unless the score from which a run counts as solved is in (0, 1]."""
    if not 0 < share <= 1:
        raise ValueError(f"share: expected a number in (0, 1], got {share}")


class Quantity(NamedTuple):
    """A quantity of each run that a figure shows.

    Attributes
    ----------
    label : str
        Label of the axis.
    numbers : callable
        Function of the numbers of runs and of the score from which a run counts as solved; an array with NaN where the
        quantity is unknown.
    statistic : str
        The statistic of several runs that figures show unless told otherwise, one of `intervals.STATISTICS`.
    """

    label: str
    numbers: Callable[[Numbers, float], Array]
    statistic: str = "mean"

    def of(self, row: Mapping[str, Any], share: float) -> float | None:
        """Return the quantity of one run, None where it is unknown."""
        (number,) = self.numbers(Numbers([row]), share).tolist()
        return None if math.isnan(number) else number


def value(runs: Numbers, share: float) -> Array:
    """Return the values of the learned policies."""
    return np.where(runs.failed, math.nan, runs.value)


def score(runs: Numbers, share: float) -> Array:
    """Return the scores of the learned policies."""
    return scores(value(runs, share), runs.uniform, runs.optimum)


def loss(runs: Numbers, share: float) -> Array:
    """Return how far the learned policies are from the optimum."""
    return runs.optimum - value(runs, share)


def shortfall(runs: Numbers, share: float) -> Array:
    """Return how far the scores of the learned policies are from that of the best."""
    return 1.0 - score(runs, share)


def good_after(runs: Numbers, share: float) -> Array:
    """Return the first checkpoint whose policy solves the environment; infinity if none does, or if the run failed."""
    return np.where(runs.failed, math.inf, runs.curves(share).good_after)


def stopped_after(runs: Numbers, share: float) -> Array:
    """Return the episodes after which an algorithm stopped by itself, infinity if it did not or returned a bad policy.

    NaN where it has no such rule, or the optimum is unknown.
    """
    good = solved(runs.value, runs.uniform, runs.optimum, share) & ~np.isnan(runs.episodes) & ~runs.cut
    found = np.where(good, runs.episodes, math.inf)
    found[np.isnan(runs.optimum) | ~runs.curves(share).stops] = math.nan
    return np.where(runs.failed, math.inf, found)


def episodes(runs: Numbers, share: float) -> Array:
    """Return the episodes until an environment was solved, by policy; infinity if it was not, or if the run failed."""
    return np.where(runs.curves(share).stops, stopped_after(runs, share), good_after(runs, share))


def success(runs: Numbers, share: float) -> Array:
    """Return 1 if a run solved its environment, 0 if not or if it failed."""
    needed = episodes(runs, share)
    return np.where(np.isnan(needed), math.nan, np.isfinite(needed))


def earned(runs: Numbers, share: float) -> Array:
    """Return the episodes until an environment was solved by reward; infinity if it was not, or if the run failed."""
    own, n, curves = score(runs, share), runs.episodes, runs.curves(share)
    with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
        # The least T with (T - n) score > T / 2: reward of uniform play in the first n episodes, then `value` in each.
        least = n * own / (own - 0.5)
        at = np.where((own > 0.5) & ~np.isnan(n), REWARD_EVERY * (np.floor(least / REWARD_EVERY) + 1), math.inf)
    found = np.where(runs.failed, math.inf, np.where(curves.has, curves.solved_at, at))
    return np.where(np.isnan(episodes(runs, share)), math.nan, found)


def seconds(runs: Numbers, share: float) -> Array:
    """Return the wall-clock times of the runs."""
    return np.where(runs.failed, math.nan, runs.seconds)


QUANTITIES = {
    "value": Quantity("value $V$", value),
    "loss": Quantity("loss $V^*-V$", loss),
    "score": Quantity("score", score),
    "shortfall": Quantity("1 - score", shortfall),
    "success": Quantity("success rate", success),
    "episodes": Quantity("episodes until solved", episodes, "median"),
    "good_after": Quantity("episodes, good after", good_after, "median"),
    "stopped_after": Quantity("episodes, stopped after", stopped_after, "median"),
    "earned": Quantity("episodes until half is earned", earned, "median"),
    "seconds": Quantity("seconds", seconds, "median"),
}
"""The quantities of figures, by name."""

IN_POINTS = {"value": "score", "loss": "shortfall"}
"""Those in points, which a shift or scale of the rewards changes, and what takes their place on pages where known."""

PARTS = ("good_after", "stopped_after")
"""Those that "episodes" is made of, which have columns in tables."""

EPISODES = ("episodes", "good_after", "stopped_after", "earned")
"""Those of them that are infinite for a run that did not solve its environment."""
