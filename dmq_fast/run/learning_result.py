"""`LearningResult`: the attributes that results of all algorithms share."""

from __future__ import annotations

from typing import Any, Protocol, runtime_checkable

__all__ = ["LearningResult"]


@runtime_checkable
class LearningResult(Protocol):
    """The result of a run of any algorithm: `Result` of DMQ, `BaselineResult` of a baseline."""

    @property
    def policy(self) -> Any:
        """The learned policy: a Policy or a TablePolicy."""

    @property
    def theta(self) -> Any:
        """Linear estimates, shape (H, K, d), or None for an algorithm without."""

    @property
    def status(self) -> str:
        """Whether the run is "finished", or what ended it early."""

    @property
    def parameters(self) -> dict[str, Any]:
        """Parameters of the run, JSON-able."""

    @property
    def counts(self) -> dict[str, Any]:
        """Trajectories and whatever else the algorithm counts."""

    @property
    def seconds(self) -> dict[str, float]:
        """Wall-clock time by phase, and "total"."""

    @property
    def key(self) -> tuple[int, int]:
        """The run's 128-bit key."""

    @property
    def warnings(self) -> tuple[str, ...]:
        """Reasons to doubt the result."""

    @property
    def n_trajectories(self) -> int:
        """Number of trajectories that the algorithm learned from."""
