"""The one primitive: roll out n trajectories with a policy and give back their moments."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

from dmq_fast.environments.finite import FiniteMDP
from dmq_fast.kernels import Stream
from dmq_fast.moments import Moments
from dmq_fast.policy import Policy

__all__ = ["Sampler", "as_sampler"]


@runtime_checkable
class Sampler(Protocol):
    """Answers `collect`. Stateless: the same arguments give the same answer."""

    @property
    def horizon(self) -> int:
        """Number of levels H."""

    @property
    def n_actions(self) -> int:
        """Number of actions K."""

    @property
    def dimension(self) -> int:
        """Feature dimension d."""

    def chunks(self, n: int) -> Sequence[int]:
        """Sizes of the pieces in which n trajectories are drawn; their moments add up in this order."""

    def collect_chunk(
        self, policy: Policy, n: int, *, rng: Stream, levels: Sequence[int], returns_from: Sequence[int] = ()
    ) -> Moments:
        """Roll out one piece of n trajectories with the uniforms of the stream `rng`."""

    def collect(
        self,
        policy: Policy,
        n: int,
        *,
        stream: Stream,
        levels: Sequence[int],
        returns_from: Sequence[int] = (),
    ) -> Moments:
        """Roll out n trajectories with `policy`.

        Parameters
        ----------
        policy : Policy
        n : int
            Number of trajectories, >= 0.
        stream : Stream
            The call; chunk j of it uses ``stream.at(stream.call, j)``.
        levels : sequence of int
            Ascending levels whose second moment is wanted.
        returns_from : sequence of int
            Ascending levels h whose return to go, sum over h' >= h of r_h', is wanted.

        Returns
        -------
        Moments
            A trajectory is cut after the last level that matters.
        """


def as_sampler(source: object) -> Sampler:
    """Return `source` if it is a sampler, a `RolloutSampler` of it if it is an environment."""
    from dmq_fast.samplers.rollout import RolloutSampler

    if isinstance(source, FiniteMDP):
        return RolloutSampler(source)
    if isinstance(source, Sampler):
        return source
    raise TypeError(f"env_or_sampler: expected a FiniteMDP or a Sampler, got {type(source).__name__}")
