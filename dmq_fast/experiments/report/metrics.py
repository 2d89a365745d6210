"""The number of episodes until an environment is solved, by three definitions.

By policy: until the policy that would be returned is worth 95 % of the optimum. For an algorithm with a learning curve
this is the first such checkpoint, for one without (DMQ) the number of all its trajectories.

For good: until this is so at every checkpoint from then on.

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

__all__ = [
    "EPISODES",
    "GOOD",
    "QUANTITIES",
    "Quantity",
    "by_policy",
    "by_reward",
    "check_share",
    "for_good",
    "has_curve",
    "is_solved",
    "verdict_on",
]


def is_solved(row: Mapping[str, Any], share: float = GOOD) -> bool:
    """Return whether a run found a policy that is worth at least `share` of the optimum.

    Parameters
    ----------
    row : mapping
        Row of a sweep. Its entry "solved" decides, if it has one; otherwise "value" and "optimal_value" do.
    share : float, default 0.95

    Raises
    ------
    ValueError
        If the row has neither "solved" nor "optimal_value".

    Examples
    --------
    >>> is_solved({"value": 0.69, "optimal_value": 0.7})
    True
    """
    if row.get("solved") is not None:
        return bool(row["solved"])
    if row.get("status") in FAILURES:
        return False
    if row.get("optimal_value") is None:
        raise ValueError('rows: expected "solved" or "optimal_value" in every run')
    value = row.get("value")
    # If the optimum is 0, every policy is optimal.
    return value is not None and value >= share * row["optimal_value"]


def verdict_on(row: Mapping[str, Any], share: float = GOOD) -> bool | None:
    """Return whether a run solved its environment, by its policy; None if the optimum is unknown."""
    try:
        return is_solved(by_policy(row, share), share)
    except ValueError:
        return None


def check_share(share: float) -> None:
    """Raise ValueError unless the share of the optimum from which a run counts as solved is in (0, 1]."""
    if not 0 < share <= 1:
        raise ValueError(f"share: expected a number in (0, 1], got {share}")


def has_curve(row: Mapping[str, Any], *columns: str) -> bool:
    """Return whether a run has a learning curve, with these columns too, and a known optimum, as baselines have.

    `algorithms.progress_of` describes what such a run has; numbers of episodes beside "learned_at" may be missing.
    """
    details = row.get("details") or {}
    form: dict[str, Form] = {
        "curve": {"episodes": [int], **{name: [float] for name in ("value", *columns)}},
        "learned_at": int | None,
        **{name: int | None for name in ("kept_at", "solved_at") if name in details},
    }
    try:
        check_form("details", details, form)
    except ValueError:
        return False
    return bool(learning_curve(row)) and row.get("optimal_value") is not None


def by_policy(row: Mapping[str, Any], share: float = GOOD) -> Mapping[str, Any]:
    """Return a row with "solved" and the episodes until then as "n_trajectories".

    A row without a learning curve, or with an entry "solved" of its own, is returned as it is. `share` is that of the
    optimum from which a policy counts as good.
    """
    if not has_curve(row) or row.get("solved") is not None:
        return row
    if share == GOOD:
        return with_episodes(row, row["details"]["learned_at"])
    curve, least = row["details"]["curve"], share * row["optimal_value"]
    good = (n for n, value in zip(curve["episodes"], curve["value"], strict=True) if value >= least)
    return with_episodes(row, next(good, None))


def for_good(row: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a row with "solved" from some checkpoint on, and the episodes until then as "n_trajectories"."""
    return with_episodes(row, row["details"].get("kept_at")) if has_curve(row) else row


def by_reward(row: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a row with "solved" by its mean reward, and the episodes until then as "n_trajectories"."""
    if has_curve(row):
        return with_episodes(row, row["details"].get("solved_at"))
    value, optimum, n = row.get("value"), row.get("optimal_value"), row.get("n_trajectories")
    if value is None or optimum is None or n is None or value <= optimum / 2:
        return with_episodes(row, None)
    # The least T with (T - n) value > T optimum / 2: no reward in the first n episodes, then `value` in each.
    least = n * value / (value - optimum / 2)
    return with_episodes(row, REWARD_EVERY * (math.floor(least / REWARD_EVERY) + 1))


def with_episodes(row: Mapping[str, Any], at: int | None) -> Mapping[str, Any]:
    """Return a row that was solved `at` this number of episodes; for None, one that was not solved."""
    return {**row, "solved": at is not None, "n_trajectories": row.get("n_trajectories") if at is None else at}


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


def success(row: Mapping[str, Any], share: float) -> float | None:
    """Return 1 if a run solved its environment, 0 if not or if it failed."""
    verdict = verdict_on(row, share)
    return None if verdict is None else float(verdict)


def episodes(row: Mapping[str, Any], share: float) -> float | None:
    """Return the episodes until an environment was solved, by policy; infinity if it was not, or if the run failed."""
    verdict = verdict_on(row, share)
    if not verdict:
        return None if verdict is None else math.inf
    return float(by_policy(row, share)["n_trajectories"])


def earned(row: Mapping[str, Any], share: float) -> float | None:
    """Return the episodes until an environment was solved by reward; infinity if it was not, or if the run failed."""
    if verdict_on(row, share) is None:
        return None
    found = by_reward(row)
    return float(found["n_trajectories"]) if found["solved"] else math.inf


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
