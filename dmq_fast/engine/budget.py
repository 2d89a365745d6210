"""Limits of a run."""

from __future__ import annotations

from dataclasses import dataclass

from dmq_fast._support.checks import count, integer
from dmq_fast.kernels import as_positive

__all__ = ["Budget", "as_trajectories"]


@dataclass(frozen=True)
class Budget:
    """Limits of a run: trajectories drawn, policies added to the covers, seconds. None means no limit."""

    max_trajectories: int | None = None
    max_policies: int | None = None
    max_seconds: float | None = None

    @classmethod
    def of(
        cls,
        *,
        max_trajectories: int | None = None,
        max_policies: int | None = None,
        max_seconds: float | None = None,
        in_float64: bool = True,
    ) -> Budget:
        """Return the budget, checked.

        Raises
        ------
        TypeError, ValueError
            If a limit is of a wrong type or out of range.
        """
        if max_trajectories is not None:
            max_trajectories = as_trajectories("max_trajectories", max_trajectories, in_float64=in_float64)
        if max_policies is not None:
            max_policies = count("max_policies", max_policies, 0)
        if max_seconds is not None:
            max_seconds = as_positive("max_seconds", max_seconds)
        return cls(max_trajectories, max_policies, max_seconds)


def as_trajectories(name: str, value: int, *, in_float64: bool) -> int:
    """Return a number of trajectories >= 1, below 2^63 where moments are float64."""
    if in_float64:
        return count(name, value, 1, "; ExactSampler(env, arithmetic=digits) takes any")
    return integer(name, value, 1)
