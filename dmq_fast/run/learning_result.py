"""The attributes that results of all algorithms share: `LearningResult`."""

from __future__ import annotations

from typing import Any, Protocol, runtime_checkable

__all__ = ["LearningResult"]


@runtime_checkable
class LearningResult(Protocol):
    """Result of a run of any algorithm: `Result` of DMQ, `BaselineResult` of a baseline."""

    @property
    def policy(self) -> Any:
        """Learned policy: a Policy or a TablePolicy."""

    @property
    def theta(self) -> Any:
        """Linear estimates, shape (H, K, d), or None for an algorithm that has none."""

    @property
    def status(self) -> str:
        """Status: "finished", or the reason why the run ended early."""

    @property
    def parameters(self) -> dict[str, Any]:
        """Parameters of the run, JSON-able."""

    @property
    def counts(self) -> dict[str, Any]:
        """Numbers of trajectories and of other events, by name."""

    @property
    def seconds(self) -> dict[str, float]:
        """Wall-clock time by phase, and "total"."""

    @property
    def key(self) -> tuple[int, int]:
        """128-bit key of the run."""

    @property
    def warnings(self) -> tuple[str, ...]:
        """Reasons to doubt the result."""

    @property
    def n_trajectories(self) -> int:
        """Number of trajectories that the algorithm learned from."""
