"""Episodes until solved, in the two senses that people mean.

By policy: until the policy that would be returned is worth 95 % of the optimum. An algorithm with a learning curve is
granted the first such checkpoint, one without (DMQ) all it drew until it stopped by itself.

By reward: the first multiple of 100 episodes with a running mean above half of the optimum, as papers on locks report.
What learns first and earns afterwards is counted as if it had earned nothing while it learned, which makes about twice
what it drew.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from dmq_fast.experiments.sweeps.algorithms import GOOD, REWARD_EVERY

__all__ = ["GOOD", "by_policy", "by_reward", "has_curve"]


def has_curve(row: Mapping[str, Any]) -> bool:
    """Whether a run knows how it went on the way, and what the optimum is."""
    return "learned_at" in (row.get("details") or {})


def by_policy(row: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a row with "solved", and the episodes it took as "n_trajectories", where it has a learning curve."""
    return told(row, row["details"]["learned_at"]) if has_curve(row) else row


def by_reward(row: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a row with "solved" by its mean reward, and the episodes until then as "n_trajectories"."""
    if has_curve(row):
        return told(row, row["details"]["solved_at"])
    value, optimum, n = row.get("value"), row.get("optimal_value"), row.get("n_trajectories")
    if value is None or optimum is None or n is None or value <= optimum / 2:
        return told(row, None)
    # Episodes T with (T - n) value > T optimum / 2.
    least = n * value / (value - optimum / 2)
    return told(row, REWARD_EVERY * (math.floor(least / REWARD_EVERY) + 1))


def told(row: Mapping[str, Any], at: int | None) -> Mapping[str, Any]:
    """Return a row that says when it was solved, or with what it spent in vain."""
    return {**row, "solved": at is not None, "n_trajectories": row.get("n_trajectories") if at is None else at}
