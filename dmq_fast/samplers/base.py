"""The one primitive: roll out n trajectories with a policy and give back their moments."""

from __future__ import annotations

import operator
from collections.abc import Callable, Generator, Sequence
from contextlib import closing
from functools import partial
from typing import Protocol, overload, runtime_checkable

from dmq_fast._support.arguments import count
from dmq_fast.environments.compiled import CompiledEnv
from dmq_fast.environments.finite import FiniteMDP
from dmq_fast.kernels import Stream
from dmq_fast.moments import Moments
from dmq_fast.policy import Policy
from dmq_fast.samplers.streams import check_stream

__all__ = [
    "EqualChunks",
    "Sampler",
    "as_sampler",
    "ascending",
    "check_tables",
    "collect_chunks",
]


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


class EqualChunks(Sequence[int]):
    """Sizes of the pieces of n trajectories, `size` each and the rest last; at least one, even of none.

    Computed when asked for: n may be as large as 2^63 - 1.
    """

    def __init__(self, n: int, size: int) -> None:
        self.n = count("n", n, 0)
        self.size = size

    def __len__(self) -> int:
        return max(1, -(-self.n // self.size))

    @overload
    def __getitem__(self, index: int) -> int: ...
    @overload
    def __getitem__(self, index: slice) -> list[int]: ...
    def __getitem__(self, index: int | slice) -> int | list[int]:
        positions = range(len(self))[index]
        if isinstance(positions, range):
            return [self[i] for i in positions]
        return min(self.size, self.n - positions * self.size)


def ascending(name: str, levels: Sequence[int], horizon: int) -> tuple[int, ...]:
    """Return the levels as integers, if they ascend within [0, horizon)."""
    try:
        out = tuple(operator.index(level) for level in levels)
    except TypeError:
        raise TypeError(f"{name}: expected a sequence of integers, got {levels!r}") from None
    before = -1
    for level in out:
        if not before < level < horizon:
            raise ValueError(f"{name}: expected ascending levels in [0, {horizon}), got {level} after {before}")
        before = level
    return out


def check_tables(env: object) -> None:
    """Refuse what is not a FiniteMDP."""
    if not isinstance(env, FiniteMDP):
        raise TypeError(f"env: expected a FiniteMDP, whose tables are needed here, got {type(env).__name__}")


def collect_chunks(
    sampler: Sampler,
    policy: Policy,
    n: int,
    stream: Stream,
    levels: Sequence[int],
    returns_from: Sequence[int],
    drawn: Callable[[int], None] | None = None,
) -> Moments:
    """Answer `collect` chunk by chunk; `drawn` is told the size of each in order, and may raise to stop."""
    check_stream("stream", stream)
    whole: Moments | None = None
    draw = sampler.pieces if isinstance(sampler, DrawsPieces) else partial(one_by_one, sampler)
    with closing(draw(policy, n, stream, levels, returns_from)) as pieces:
        for piece in pieces:
            whole = piece if whole is None else whole + piece
            if drawn is not None:
                drawn(piece.n)
    assert whole is not None
    return whole


@runtime_checkable
class DrawsPieces(Protocol):
    """A sampler with a way of its own to the moments of the chunks of a call, in order."""

    def pieces(
        self, policy: Policy, n: int, stream: Stream, levels: Sequence[int], returns_from: Sequence[int]
    ) -> Generator[Moments]:
        """Yield them; closing the generator gives up the rest."""


def one_by_one(
    sampler: Sampler, policy: Policy, n: int, stream: Stream, levels: Sequence[int], returns_from: Sequence[int]
) -> Generator[Moments]:
    """Draw one chunk after the other."""
    for chunk, size in enumerate(sampler.chunks(n)):
        position = stream.at(stream.call, chunk)
        yield sampler.collect_chunk(policy, size, rng=position, levels=levels, returns_from=returns_from)


def as_sampler(source: object) -> Sampler:
    """Return `source` if it is a sampler, the sampler that simulates it if it is an environment.

    Raises
    ------
    TypeError
        If it is neither.
    """
    from dmq_fast.samplers.batch import BatchEnvironment, BatchSampler, missing_members
    from dmq_fast.samplers.rollout import RolloutSampler

    if isinstance(source, FiniteMDP | CompiledEnv):
        return RolloutSampler(source)
    if not isinstance(source, type):
        if isinstance(source, Sampler):
            return source
        if isinstance(source, BatchEnvironment):
            return BatchSampler(source)
    accepted = "a FiniteMDP, a CompiledEnv, a BatchEnvironment or a Sampler"
    if isinstance(source, type):
        hint = f"the class {source.__name__} instead of an object of it"
    elif hasattr(source, "observation_space") and hasattr(source, "action_space"):
        hint = f"{type(source).__name__}; a Gymnasium environment becomes one by environments.GymnasiumBatch"
    elif len(missing := missing_members(source)) < 6:
        hint = f"{type(source).__name__}, which is no BatchEnvironment for want of {', '.join(missing)}"
    else:
        hint = type(source).__name__
    raise TypeError(f"env_or_sampler: expected {accepted}, got {hint}")
