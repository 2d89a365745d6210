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

from dmq_fast._support.json_text import Form, check_form
from dmq_fast.experiments.report.csv_export import learning_curve, score_of, uniform_of
from dmq_fast.experiments.sweeps.algorithms import GOOD, REWARD_EVERY
from dmq_fast.experiments.sweeps.runs import FAILURES
from dmq_fast.results.score import solves

__all__ = [
    "EPISODES",
    "GOOD",
    "IN_POINTS",
    "PARTS",
    "QUANTITIES",
    "Quantity",
    "check_share",
    "has_curve",
    "stops_by_itself",
]

BUDGETS = ("max_trajectories", "max_policies", "max_seconds", "n_samples")
"""Statuses of runs that a budget ended."""


def check_share(share: float) -> None:
    """Raise ValueError unless the score from which a run counts as solved is in (0, 1]."""
    if not 0 < share <= 1:
        raise ValueError(f"share: expected a number in (0, 1], got {share}")


def has_curve(row: Mapping[str, Any], *columns: str) -> bool:
    """Return whether a run has a learning curve, with these columns too, and a known optimum, as baselines have.

    `algorithms.progress_of` describes what such a run has.
    """
    form: dict[str, Form] = {"episodes": [int], **{name: [float] for name in ("value", *columns)}}
    try:
        check_form("curve", learning_curve(row), form)
    except ValueError:
        return False
    return bool(row["details"]["curve"]["episodes"]) and row.get("optimal_value") is not None


class Quantity(NamedTuple):
    """A quantity of each run that a figure shows.

    Attributes
    ----------
    label : str
        Label of the axis.
    of : callable
        Function of a row and of the score from which a run counts as solved; None where it is unknown.
    statistic : str
        The statistic of several runs that figures show unless told otherwise, one of `intervals.STATISTICS`.
    """

    label: str
    of: Callable[[Mapping[str, Any], float], float | None]
    statistic: str = "mean"


def value(row: Mapping[str, Any], share: float) -> float | None:
    """Return the value of the learned policy."""
    return None if row["status"] in FAILURES else row.get("value")


def score(row: Mapping[str, Any], share: float) -> float | None:
    """Return the score of the learned policy."""
    return None if row["status"] in FAILURES else score_of(row)


def loss(row: Mapping[str, Any], share: float) -> float | None:
    """Return how far the learned policy is from the optimum."""
    own, best = value(row, share), row.get("optimal_value")
    return None if own is None or best is None else best - own


def shortfall(row: Mapping[str, Any], share: float) -> float | None:
    """Return how far the score of the learned policy is from that of the best."""
    own = score(row, share)
    return None if own is None else 1.0 - own


def stops_by_itself(row: Mapping[str, Any]) -> bool:
    """Return whether the algorithm of a run has a rule when to stop: all do that have no learning curve."""
    if not has_curve(row):
        return True
    return "stopped_after" in row["counts"] and row["algorithm_parameters"].get("epsilon", 0.05) is not None


def good_after(row: Mapping[str, Any], share: float) -> float | None:
    """Return the first checkpoint whose policy solves the environment; infinity if none does, or if the run failed."""
    if row["status"] in FAILURES:
        return math.inf
    if not has_curve(row):
        return None
    curve = row["details"]["curve"]
    best, uniform = row["optimal_value"], uniform_of(row)
    values = zip(curve["episodes"], curve["value"], strict=True)
    return float(next((n for n, own in values if solves(own, uniform, best, share)), math.inf))


def stopped_after(row: Mapping[str, Any], share: float) -> float | None:
    """Return the episodes after which an algorithm stopped by itself, infinity if it did not or returned a bad policy.

    None where it has no such rule, or the optimum is unknown.
    """
    if row["status"] in FAILURES:
        return math.inf
    if row.get("optimal_value") is None or not stops_by_itself(row):
        return None
    own, n = row.get("value"), row.get("n_trajectories")
    if own is None or n is None or row["status"] in BUDGETS:
        return math.inf
    return float(n) if solves(own, uniform_of(row), row["optimal_value"], share) else math.inf


def episodes(row: Mapping[str, Any], share: float) -> float | None:
    """Return the episodes until an environment was solved, by policy; infinity if it was not, or if the run failed."""
    return (stopped_after if stops_by_itself(row) else good_after)(row, share)


def success(row: Mapping[str, Any], share: float) -> float | None:
    """Return 1 if a run solved its environment, 0 if not or if it failed."""
    needed = episodes(row, share)
    return None if needed is None else float(math.isfinite(needed))


def earned(row: Mapping[str, Any], share: float) -> float | None:
    """Return the episodes until an environment was solved by reward; infinity if it was not, or if the run failed."""
    if episodes(row, share) is None:
        return None
    if has_curve(row):
        at = row["details"].get("solved_at")
        return float(at) if isinstance(at, int) else math.inf
    own, n = score(row, share), row.get("n_trajectories")
    if own is None or n is None or own <= 0.5:
        return math.inf
    # The least T with (T - n) score > T / 2: the reward of uniform play in the first n episodes, then `value` in each.
    least = n * own / (own - 0.5)
    return float(REWARD_EVERY * (math.floor(least / REWARD_EVERY) + 1))


def seconds(row: Mapping[str, Any], share: float) -> float | None:
    """Return the wall-clock time of a run."""
    return None if row["status"] in FAILURES else row.get("seconds")


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
