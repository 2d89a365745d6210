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
from collections.abc import Mapping
from typing import Any

from dmq_fast.experiments.sweeps.algorithms import GOOD, REWARD_EVERY

__all__ = ["GOOD", "by_policy", "by_reward", "for_good", "has_curve"]


def has_curve(row: Mapping[str, Any]) -> bool:
    """Whether a run has a learning curve and a known optimum."""
    return "learned_at" in (row.get("details") or {})


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
    return with_episodes(row, row["details"]["kept_at"]) if has_curve(row) else row


def by_reward(row: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a row with "solved" by its mean reward, and the episodes until then as "n_trajectories"."""
    if has_curve(row):
        return with_episodes(row, row["details"]["solved_at"])
    value, optimum, n = row.get("value"), row.get("optimal_value"), row.get("n_trajectories")
    if value is None or optimum is None or n is None or value <= optimum / 2:
        return with_episodes(row, None)
    # The least T with (T - n) value > T optimum / 2: no reward in the first n episodes, then `value` in each.
    least = n * value / (value - optimum / 2)
    return with_episodes(row, REWARD_EVERY * (math.floor(least / REWARD_EVERY) + 1))


def with_episodes(row: Mapping[str, Any], at: int | None) -> Mapping[str, Any]:
    """Return a row that was solved `at` this number of episodes; for None, one that was not solved."""
    return {**row, "solved": at is not None, "n_trajectories": row.get("n_trajectories") if at is None else at}
