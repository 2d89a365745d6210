"""The quantities of runs that figures and tables show, such as the episodes until an environment is solved.

By policy: until the policy that would be returned is worth 95 % of the optimum. For an algorithm with a learning curve
this is the first such checkpoint, for one without (DMQ) the number of all its trajectories.

By reward: the first multiple of 100 episodes with a running mean reward above half of the optimum, as papers on locks
report it. An algorithm without a learning curve is credited with no reward while it learns, so this is about twice the
number of its trajectories.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from dmq_fast._support.json_text import Form, check_form
from dmq_fast.experiments.report.csv_export import learning_curve
from dmq_fast.experiments.sweeps.algorithms import GOOD, REWARD_EVERY
from dmq_fast.experiments.sweeps.runs import FAILURES

__all__ = ["EPISODES", "GOOD", "QUANTITIES", "Quantity", "check_share", "has_curve"]


def check_share(share: float) -> None:
    """Raise ValueError unless the share of the optimum from which a run counts as solved is in (0, 1]."""
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
        Function of a row and of the share of the optimum from which a run counts as solved; None where it is unknown.
    statistic : str
        The statistic of several runs that figures show unless told otherwise, one of `intervals.STATISTICS`.
    """

    label: str
    of: Callable[[Mapping[str, Any], float], float | None]
    statistic: str = "mean"


def value(row: Mapping[str, Any], share: float) -> float | None:
    """Return the value of the learned policy."""
    return None if row["status"] in FAILURES else row.get("value")


def loss(row: Mapping[str, Any], share: float) -> float | None:
    """Return how far the learned policy is from the optimum."""
    own, best = value(row, share), row.get("optimal_value")
    return None if own is None or best is None else best - own


def episodes(row: Mapping[str, Any], share: float) -> float | None:
    """Return the episodes until an environment was solved, by policy; infinity if it was not, or if the run failed."""
    if row["status"] in FAILURES:
        return math.inf
    if row.get("optimal_value") is None:
        return None
    least = share * row["optimal_value"]  # if the optimum is 0, every policy is optimal
    if has_curve(row):
        curve = row["details"]["curve"]
        good = (n for n, own in zip(curve["episodes"], curve["value"], strict=True) if own >= least)
        return float(next(good, math.inf))
    own, n = row.get("value"), row.get("n_trajectories")
    return math.inf if own is None or n is None or own < least else float(n)


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
    own, optimum, n = value(row, share), row.get("optimal_value"), row.get("n_trajectories")
    if own is None or optimum is None or n is None or own <= optimum / 2:
        return math.inf
    # The least T with (T - n) value > T optimum / 2: no reward in the first n episodes, then `value` in each.
    least = n * own / (own - optimum / 2)
    return float(REWARD_EVERY * (math.floor(least / REWARD_EVERY) + 1))


def seconds(row: Mapping[str, Any], share: float) -> float | None:
    """Return the wall-clock time of a run."""
    return None if row["status"] in FAILURES else row.get("seconds")


QUANTITIES = {
    "value": Quantity("value $V$", value),
    "loss": Quantity("loss $V^*-V$", loss),
    "success": Quantity("success rate", success),
    "episodes": Quantity("episodes until solved", episodes, "median"),
    "earned": Quantity("episodes until $V^*/2$ is earned", earned, "median"),
    "seconds": Quantity("seconds", seconds, "median"),
}
"""The quantities of figures, by name."""

EPISODES = ("episodes", "earned")
"""Those of them that are infinite for a run that did not solve its environment."""
