"""`Sampler`, the base class of all sources of trajectories: roll out n of them and return their moments, or them."""

from __future__ import annotations

import copy
from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import closing
from math import sqrt
from typing import Any, NamedTuple, Self, overload

import numpy as np
from numpy.typing import NDArray

from dmq_fast._support.checks import count, integer
from dmq_fast.arithmetic import FLOAT64, Arithmetic
from dmq_fast.environments.finite import FiniteMDP
from dmq_fast.homogeneity import Homogeneous
from dmq_fast.kernels import Rule, Stream
from dmq_fast.moments import Moments
from dmq_fast.policy import Policy
from dmq_fast.rewards import RewardModel, ValueRange, as_bounds, as_noise
from dmq_fast.samplers.streams import check_stream
from dmq_fast.trajectories import Trajectories

__all__ = [
    "Drawing",
    "EqualChunks",
    "Estimate",
    "Sampler",
    "check_shown",
    "check_tables",
    "close",
    "collect_chunks",
    "estimate",
    "estimate_value",
]


class Drawing(NamedTuple):
    """One call of a sampler that fits one chunk: n trajectories of a policy, drawn from a stream."""

    policy: Policy
    n: int
    stream: Stream


class Estimate(NamedTuple):
    """Mean return of n trajectories and its standard error (NaN for n = 1)."""

    value: float
    standard_error: float
    n: int


class Sampler:
    """A source of trajectories: rolls out n of them with a policy, and returns their moments or shows them.

    A sampler of one's own derives from this class, sets `horizon`, `n_actions` and `dimension`, and defines
    `trajectories_chunk`, or `collect_chunk` where moments are cheaper or all there is. The other members have defaults.
    A sampler keeps no state between calls: the same arguments give the same answer.

    Attributes
    ----------
    horizon, n_actions, dimension : int
        Number of levels H, number of actions K, feature dimension d. Set by the subclass.
    chunk_size : int or None
        Largest number of trajectories in one chunk. None, the default: every call is one chunk.
    arithmetic : Arithmetic
        Number type of the moments; float64 by default.
    holds_gil : bool
        Whether `collect_chunk` runs Python code. Then `workers` of a run are processes instead of threads.
    env : object or None
        The environment that is sampled, where there is one to show.
    value_range : pair of float, array_like of shape (H, 2), "seen" or None
        What the rewards from a level on can add up to; see `RewardModel`. None: what `env` declares.
    noise : float or None
        Standard deviation of the noise of rewards around their means. None: what `env` declares.
    homogeneous : bool, sequence of int or None
        Whether all levels have the same transitions, rewards and features, or a label of each level: levels of one
        label have. None: what `env` declares.
    shows_trajectories : bool
        Whether it can show single trajectories, as `trajectories` does; a self-stopping run needs them.

    Examples
    --------
    >>> import dmq_fast as dmq
    >>> class Halved(dmq.samplers.Sampler):  # another sampler, in chunks of half the size
    ...     def __init__(self, inner):
    ...         self.inner, self.chunk_size = inner, inner.chunk_size // 2
    ...         self.horizon, self.n_actions, self.dimension = inner.horizon, inner.n_actions, inner.dimension
    ...
    ...     def collect_chunk(self, policy, n, *, rng, levels, returns_from=()):
    ...         return self.inner.collect_chunk(policy, n, rng=rng, levels=levels, returns_from=returns_from)
    >>> env = dmq.environments.combination_lock(horizon=3, rng=0)
    >>> sampler = Halved(dmq.samplers.RolloutSampler(env))
    >>> list(sampler.chunks(20_000))
    [8192, 8192, 3616]
    >>> dmq.DMQ(sampler, n_samples=20, rng=0).learn().status
    'ended'

    A simulator that shows its trajectories needs no more for any variant:

    >>> class Coin(dmq.samplers.Sampler):
    ...     horizon, n_actions, dimension = 1, 2, 1
    ...
    ...     def trajectories_chunk(self, policy, n, *, rng):
    ...         features, actions = np.ones((n, 1, 1)), np.zeros((n, 1), dtype=int)
    ...         actions[:, 0] = policy.act(0, features[:, 0], n_actions=2, rng=rng.generator())
    ...         return dmq.Trajectories(features, actions, 0.5 * actions)
    >>> result = dmq.SelfStopping(Coin(), epsilon=0.1, delta=0.1, rng=0).learn()
    >>> result.status, result.policy.act(0, [1.0])
    ('finished', 1)
    """

    horizon: int
    n_actions: int
    dimension: int
    chunk_size: int | None = None
    arithmetic: Arithmetic = FLOAT64
    holds_gil: bool = False
    env: Any = None
    value_range: ValueRange = None
    noise: float | None = None
    homogeneous: Homogeneous | None = None

    def __new__(cls, *_arguments: Any, **_options: Any) -> Self:
        """Refuse a class without a method that draws."""
        if cls.collect_chunk is Sampler.collect_chunk and cls.trajectories_chunk is Sampler.trajectories_chunk:
            raise TypeError(f"{cls.__name__}: expected a sampler with collect_chunk or trajectories_chunk, got neither")
        return super().__new__(cls)

    @property
    def rewards(self) -> RewardModel:
        """Range and noise of the rewards: those of the sampler where it has any, else what the environment declares."""
        given: Any = self.value_range
        if given is None:
            given = getattr(self.env, "value_range", None)
        noise = getattr(self.env, "noise", None) if self.noise is None else self.noise
        return RewardModel(as_bounds(given, self.horizon), None if noise is None else as_noise(noise))

    def declaring(self, value_range: ValueRange, noise: float | None) -> Sampler:
        """Return the same sampler with this range and noise of its rewards; None keeps what there is."""
        other = copy.copy(self)
        other.value_range = self.value_range if value_range is None else value_range
        other.noise = self.noise if noise is None else noise
        return other

    def collect_chunk(
        self, policy: Policy, n: int, *, rng: Stream, levels: Sequence[int], returns_from: Sequence[int] = ()
    ) -> Moments:
        """Roll out one chunk of n trajectories.

        Parameters
        ----------
        policy : Policy
            One rule for each level.
        n : int
            Number of trajectories, >= 0.
        rng : Stream
            Source of the uniforms of this chunk.
        levels : sequence of int
            Ascending levels whose second moment is wanted.
        returns_from : sequence of int
            Ascending levels h whose return to go, the sum of the rewards of levels h, ..., H-1, is wanted.

        Returns
        -------
        Moments
            A trajectory may be cut after the last level that matters. By default those of `trajectories_chunk`.

        Raises
        ------
        ValueError
            If a return to go is outside of a range that is declared; the message names level, call and chunk.
        """
        drawn, rewards = self.trajectories_chunk(policy, n, rng=rng), self.rewards
        for level in returns_from if rewards.limits is not None else ():
            # What has ended, with features 0, is worth 0, whatever the range of the other states.
            to_go = drawn.returns_to_go(level)[drawn.going(level)]
            rewards.check(to_go, level, f"level {level}, call {rng.call}, chunk {rng.chunk}")
        return drawn.moments(levels, returns_from)

    def trajectories_chunk(self, policy: Policy, n: int, *, rng: Stream) -> Trajectories:
        """Roll out one chunk of n trajectories to their ends, and show them.

        They are those that `collect_chunk` counts with the same arguments, all levels and a return from level 0.

        Parameters
        ----------
        policy : Policy
            One rule for each level. `Policy.act` follows rules of every kind.
        n : int
            Number of trajectories, >= 0.
        rng : Stream
            Source of the uniforms of this chunk.

        Raises
        ------
        TypeError
            By default: the sampler gives moments only.
        """
        raise TypeError(f"{type(self).__name__} gives moments only and cannot show single trajectories")

    @property
    def shows_trajectories(self) -> bool:
        """Whether `trajectories_chunk` is defined."""
        return type(self).trajectories_chunk is not Sampler.trajectories_chunk

    def trajectories(self, policy: Policy, n: int, *, stream: Stream) -> Trajectories:
        """Roll out n trajectories with `policy`, chunk by chunk, and show them; see `collect`.

        Examples
        --------
        >>> import dmq_fast as dmq
        >>> sampler = dmq.samplers.RolloutSampler(dmq.environments.chain(horizon=5))
        >>> drawn = sampler.trajectories(dmq.Policy.uniform(5), 100, stream=dmq.Stream(0))
        >>> moments = sampler.collect(dmq.Policy.uniform(5), 100, stream=dmq.Stream(0), levels=[4], returns_from=[0])
        >>> bool((drawn.moments([4]).grams == moments.grams).all())
        True
        """
        check_stream("stream", stream)
        if len(self.chunks(n)) == 1:
            return self.trajectories_chunk(policy, n, rng=stream.at(stream.call))
        sizes = enumerate(self.chunks(n))
        drawings = (Drawing(policy, size, stream.at(stream.call, chunk)) for chunk, size in sizes)
        return Trajectories.joined(list(self.series(drawings)))

    def series(self, drawings: Iterable[Drawing]) -> Generator[Trajectories]:
        """Yield the trajectories of several drawings in order; closing the generator cancels the remaining ones."""
        for policy, n, stream in drawings:
            yield self.trajectories_chunk(policy, n, rng=stream)

    def collect(
        self,
        policy: Policy,
        n: int,
        *,
        stream: Stream,
        levels: Sequence[int],
        returns_from: Sequence[int] = (),
    ) -> Moments:
        """Roll out n trajectories with `policy`, chunk by chunk.

        Parameters
        ----------
        policy, n, levels, returns_from
            As of `collect_chunk`.
        stream : Stream
            The call: chunk j of it uses ``stream.at(stream.call, j)``.

        Returns
        -------
        Moments
            The sum of the moments of the chunks, added up in order.
        """
        check_stream("stream", stream)
        if len(self.chunks(n)) == 1:
            # The usual case, thousands of times a run.
            return self.collect_chunk(policy, n, rng=stream.at(stream.call), levels=levels, returns_from=returns_from)
        return collect_chunks(self, policy, n, stream, levels, returns_from)

    def chunks(self, n: int) -> Sequence[int]:
        """Return the sizes of the chunks in which n trajectories are drawn: `chunk_size` each, then the rest."""
        size = self.chunk_size
        return (n,) if size is None or (isinstance(n, int) and 0 <= n <= size) else EqualChunks(n, size)

    def pieces(
        self, policy: Policy, n: int, stream: Stream, levels: Sequence[int], returns_from: Sequence[int]
    ) -> Generator[Moments]:
        """Yield the moments of the chunks of a call in order; closing the generator cancels the remaining ones."""
        for chunk, size in enumerate(self.chunks(n)):
            position = stream.at(stream.call, chunk)
            yield self.collect_chunk(policy, size, rng=position, levels=levels, returns_from=returns_from)

    def evaluate(self, policy: Policy, n: int, *, stream: Stream) -> Estimate:
        """Estimate the value of `policy` from n >= 1 trajectories of the call that `stream` stands for.

        Where moments are all there is, trajectory i is drawn alone, on ``stream.at(stream.call, i)``: they hold the sum
        of squared returns, and for one trajectory the root of it is the return, if none is negative.

        Raises
        ------
        TypeError, ValueError
            If an argument is out of range, or moments are all there is and returns may be negative.
        """
        n = integer("n", n, 1)
        check_stream("stream", stream)
        if self.shows_trajectories:
            sizes = enumerate(self.chunks(n))
            drawings = (Drawing(policy, size, stream.at(stream.call, chunk)) for chunk, size in sizes)
            return estimate(drawn.returns_to_go(0) for drawn in self.series(drawings))

        if not (self.rewards.known and self.rewards.low >= 0.0):
            raise TypeError(
                f"{type(self).__name__} gives moments only, which hold no signs of returns: expected a method "
                "trajectories_chunk or evaluate, or a value_range such as (0, 1), in which no return is negative"
            )

        def alone(i: int) -> NDArray[np.float64]:
            position = stream.at(stream.call, i)
            moments = self.collect_chunk(policy, 1, rng=position, levels=(), returns_from=(0,))
            return np.array([sqrt(moments.returns[0].square)])

        return estimate(alone(i) for i in range(n))

    def actions(self, level: int, rule: Rule) -> NDArray[np.int64] | None:
        """Return the action of a rule in each state of a level, or None where that is not known.

        `DMQ` with `memo` or `reuse` draws trajectories once for policies that act the same. By default None: then only
        policies of equal rules count as the same.
        """
        return None

    def fingerprint(self) -> Any:
        """Return what the answers depend on besides the environment, JSON-able; a journal compares it.

        By default None: nothing.
        """
        return None

    def unwrapped(self) -> Sampler:
        """Return the sampler whose answers these are; another one where `self` only spreads its work."""
        return self

    def __repr__(self) -> str:
        return f"{type(self).__name__}({'' if self.env is None else repr(self.env)})"


class EqualChunks(Sequence[int]):
    """Sizes of the chunks of n trajectories: `size` each, then the rest; at least one chunk, also for n = 0.

    The sizes are computed on access: n may be as large as 2^63 - 1.

    Examples
    --------
    >>> list(EqualChunks(10, 4)), list(EqualChunks(0, 4)), len(EqualChunks(2**62, 2))
    ([4, 4, 2], [0], 2305843009213693952)
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


def check_shown(sampler: Sampler, purpose: str) -> None:
    """Raise TypeError for a sampler that cannot show single trajectories; `purpose` needs them.

    Examples
    --------
    >>> import dmq_fast as dmq
    >>> env = dmq.environments.chain(horizon=3)
    >>> check_shown(dmq.samplers.as_sampler(env), "this plot")
    >>> check_shown(dmq.samplers.ExactSampler(env), "this plot")
    Traceback (most recent call last):
        ...
    TypeError: env...
    """
    if not sampler.shows_trajectories:
        raise TypeError(
            "env: expected an environment, or a sampler that shows trajectories (trajectories_chunk), for "
            f"{purpose}; got {type(sampler.unwrapped()).__name__}"
        )


def check_tables(env: object) -> None:
    """Raise TypeError for an environment that is not a FiniteMDP."""
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
    """Collect chunk by chunk, as `Sampler.collect` does; `drawn` is called with the size of each and may raise.

    Examples
    --------
    >>> import dmq_fast as dmq
    >>> sampler = dmq.samplers.as_sampler(dmq.environments.chain(horizon=3, rng=0))
    >>> moments = collect_chunks(sampler, dmq.Policy.uniform(3), 100, dmq.Stream(0), [2], [0], drawn=print)
    100
    >>> moments.n, moments.gram[2].shape
    (100, (5, 5))
    """
    check_stream("stream", stream)
    total: Moments | None = None
    with closing(sampler.pieces(policy, n, stream, levels, returns_from)) as pieces:
        for piece in pieces:
            total = piece if total is None else total + piece
            if drawn is not None:
                drawn(piece.n)
    assert total is not None
    return total


def estimate_value(sampler: Sampler, policy: Policy, n: int, *, stream: Stream) -> Estimate:
    """Estimate the value of `policy` from n >= 1 trajectories of the call that `stream` stands for.

    Not for a sampler that returns expectations instead of trajectories, such as `ExactSampler`.

    Examples
    --------
    >>> import dmq_fast as dmq
    >>> sampler = dmq.samplers.RolloutSampler(dmq.environments.chain(horizon=5))
    >>> estimate = dmq.samplers.estimate_value(sampler, dmq.Policy.fixed([1] * 5), 1000, stream=dmq.Stream(0))
    >>> round(estimate.value, 3), round(estimate.standard_error, 3)
    (0.202, 0.003)
    """
    return sampler.evaluate(policy, integer("n", n, 1), stream=stream)


def estimate(blocks: Iterable[NDArray[np.float64]]) -> Estimate:
    """Return mean and standard error of the returns in all blocks together.

    Examples
    --------
    >>> estimate([np.array([0.0, 1.0]), np.array([0.5])])
    Estimate(value=0.5, standard_error=0.28867513459481287, n=3)
    """
    n, mean, squares = 0, 0.0, 0.0
    for y in blocks:
        # Chan's update: no cancellation where all returns are about the same.
        center = float(y.mean())
        delta = center - mean
        squares += float(((y - center) ** 2).sum()) + delta**2 * n * len(y) / (n + len(y))
        n += len(y)
        mean += delta * len(y) / n
    return Estimate(mean, sqrt(squares / (n - 1) / n) if n > 1 else float("nan"), n)


def close(env: Any) -> None:
    """Call the method ``close`` of an environment, or of a sampler and of the environment that it plays, if it has one.

    Raises whatever that raises, after all were called.
    """
    parts = [env, env.env] if isinstance(env, Sampler) else [env]
    failure: Exception | None = None
    for part in parts:
        method = getattr(part, "close", None)
        if callable(method) and not isinstance(part, type):
            try:
                method()
            except Exception as error:
                failure = failure or error
    if failure is not None:
        raise failure
