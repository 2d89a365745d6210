"""Trajectories of environments written in Python, a block of them at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, NamedTuple, Protocol, cast, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from dmq_fast._support.arguments import count, integer
from dmq_fast.kernels import Fixed, Greedy, Rule, SecondMoment, Stream, as_floats, greedy_actions
from dmq_fast.moments import Moments, Returns
from dmq_fast.policy import Policy, check_policy
from dmq_fast.samplers.base import EqualChunks, ascending, collect_chunks
from dmq_fast.samplers.evaluate import Estimate, estimate
from dmq_fast.samplers.streams import check_stream

__all__ = ["BatchEnvironment", "BatchSampler"]

# Trajectories of one stream, unless the environment says otherwise. Part of the format.
CHUNK = 4_096

# How far above 1 a feature norm or a return may lie, for rounding in the environment.
SLACK = 1e-9

# Blocks of four draws between the environment's generator and the engine's: word 1 of the counter.
APART = 2**64


@runtime_checkable
class BatchEnvironment(Protocol):
    """An episodic environment that advances n trajectories at once.

    What a trajectory does may depend on its state, the action and the generator alone. Three optional members are
    looked for: ``chunk_size``, the most trajectories of one block (4,096 where there is none);
    ``release(states)``, called when a block is over, whether it ended well or not; and ``fingerprint()``, which returns
    a JSON-able dict of what the environment was made with: a journal compares it before it goes on, and knows of an
    environment without one its sizes and class only.
    """

    @property
    def horizon(self) -> int:
        """Number of levels H."""

    @property
    def n_actions(self) -> int:
        """Number of actions K."""

    @property
    def dimension(self) -> int:
        """Feature dimension d."""

    def reset(self, n: int, rng: np.random.Generator) -> Any:
        """Return the states in which n trajectories start: any object, such as an array of n rows.

        `rng` is a position of the run's stream and serves the whole block; it does not spawn others.
        """

    def features(self, level: int, states: Any) -> NDArray[np.float64]:
        """Return the features of the states, shape (n, d), of Euclidean norm at most 1.

        Called only where features are needed, so it must draw nothing and change nothing.
        """

    def step(
        self, level: int, states: Any, actions: NDArray[np.int64], rng: np.random.Generator
    ) -> tuple[Any, NDArray[np.float64]]:
        """Return the next states and the rewards (n,), >= 0 with a sum of at most 1 a trajectory.

        The states may be changed in place and returned.
        """


class Place(NamedTuple):
    """Where a block of trajectories stands, for messages."""

    call: int
    chunk: int

    def at(self, level: int) -> str:
        """Spell it out."""
        return f"level {level}, call {self.call}, chunk {self.chunk}"


class BatchSampler:
    """Simulates trajectories of a `BatchEnvironment`, in blocks.

    Parameters
    ----------
    env : BatchEnvironment
        Also a Gymnasium environment in a `GymnasiumBatch`.

    Raises
    ------
    TypeError, ValueError
        If `env` lacks a member, or its sizes are no positive integers.

    Notes
    -----
    Memory does not depend on the number of trajectories: a chunk holds its states and, for each level of
    `returns_from`, its features (chunk, d).

    Randomness: chunk j of call c hands the environment ``stream.at(c, j).generator()``, which is Philox with counter
    (0, 0, j, c). The actions of uniform rules come from a second generator, Philox with the same key and counter
    (0, 1, j, c), as ``integers(K, size=n)`` a level: what the policy draws never shifts what the environment draws.

    Everything the environment returns is checked. A message names level, call and chunk; so does the note added to
    an exception from inside the environment, which is raised as it is.
    """

    # Workers that are to run at the same time must be processes.
    holds_gil = True

    def __init__(self, env: BatchEnvironment) -> None:
        missing = missing_members(env)
        if missing:
            raise TypeError(f"env: expected a BatchEnvironment, got {type(env).__name__} without {', '.join(missing)}")
        self.env = env
        self.horizon = integer("env.horizon", env.horizon, 1)
        self.n_actions = integer("env.n_actions", env.n_actions, 1)
        self.dimension = integer("env.dimension", env.dimension, 1)
        self.chunk_size = integer("env.chunk_size", getattr(env, "chunk_size", CHUNK), 1)

    def chunks(self, n: int) -> Sequence[int]:
        """Return the sizes of the pieces of n trajectories: `chunk_size` each, then the rest."""
        return EqualChunks(n, self.chunk_size)

    def collect_chunk(
        self, policy: Policy, n: int, *, rng: Stream, levels: Sequence[int], returns_from: Sequence[int] = ()
    ) -> Moments:
        """Roll out one piece; see `Sampler.collect_chunk`.

        Raises
        ------
        TypeError, ValueError
            On an argument out of range, or where the environment returns what it must not.
        ArithmeticError
            Where a greedy score is not finite.
        """
        n = count("n", n, 0)
        check_policy(self, policy, exact=False)
        check_stream("rng", rng)
        levels = ascending("levels", levels, self.horizon)
        returns_from = ascending("returns_from", returns_from, self.horizon)
        grams = [SecondMoment(self.dimension) for _ in levels]
        moment_of = dict(zip(levels, grams, strict=True))
        starts: dict[int, tuple[NDArray[np.float64], NDArray[np.float64]]] = {}

        def visit(level: int, phi: NDArray[np.float64], earned: NDArray[np.float64]) -> None:
            if level in moment_of:
                moment_of[level].add_rows(phi)
            if level in wanted:
                # Copies: the environment may reuse its array.
                starts[level] = phi.copy(), earned.copy()

        wanted = frozenset(returns_from)
        last = self.horizon if returns_from else levels[-1] if levels else 0
        total = self._roll_out(policy, n, rng, wanted.union(levels), last, visit)
        returns = {}
        for h in returns_from:
            phi, before = starts.get(h, (np.empty((0, self.dimension)), np.empty(0)))
            y = np.maximum(total - before, 0.0)
            returns[h] = Returns(np.einsum("nd,n->d", phi, y), float(np.einsum("n,n->", y, y)), n)
        stacked = np.array([gram.matrix for gram in grams]).reshape(len(levels), self.dimension, self.dimension)
        return Moments(n, levels, stacked, returns)

    def collect(
        self,
        policy: Policy,
        n: int,
        *,
        stream: Stream,
        levels: Sequence[int],
        returns_from: Sequence[int] = (),
    ) -> Moments:
        """Roll out n trajectories; see `Sampler.collect`."""
        return collect_chunks(self, policy, n, stream, levels, returns_from)

    def evaluate(self, policy: Policy, n: int, *, stream: Stream) -> Estimate:
        """Estimate the value of `policy` from n >= 1 trajectories of the call that `stream` stands for."""
        n = count("n", n, 1)
        check_policy(self, policy, exact=False)
        check_stream("stream", stream)
        blocks = (
            self._roll_out(policy, size, stream.at(stream.call, chunk), frozenset(), self.horizon, ignore)
            for chunk, size in enumerate(self.chunks(n))
        )
        return estimate(blocks)

    def _roll_out(
        self,
        policy: Policy,
        n: int,
        rng: Stream,
        wanted: frozenset[int],
        last: int,
        visit: Callable[[int, NDArray[np.float64], NDArray[np.float64]], None],
    ) -> NDArray[np.float64]:
        """Advance n trajectories to level `last` (H: to their end); return what each has earned.

        `visit` gets the features of the `wanted` levels and what was earned before them.
        """
        total = np.zeros(n)
        if n == 0 or not (wanted or last):
            return total
        env, place = self.env, Place(rng.call, rng.chunk)
        release = getattr(env, "release", keep)
        own, draws = generators(rng)
        with told("reset", place.at(0)):
            states = env.reset(n, own)
        try:
            for level in range(min(last + 1, self.horizon)):
                where = place.at(level)
                moving = level < last
                rule = policy.rules[level]
                phi = None
                if level in wanted or (moving and isinstance(rule, Greedy)):
                    with told("features", where):
                        given = env.features(level, states)
                    phi = self._checked_features(given, n, where)
                    if level in wanted:
                        visit(level, phi, total)
                if not moving:
                    break
                actions = self._actions(rule, phi, n, draws, where)
                with told("step", where):
                    stepped = env.step(level, states, actions, own)
                if not isinstance(stepped, tuple) or len(stepped) != 2:
                    raise TypeError(f"{where}: step: expected (states, rewards), got {brief(stepped)}")
                states, rewards = stepped
                add_rewards(total, rewards, where)
        except BaseException:
            with suppress(Exception):  # what went wrong before is what matters
                release(states)
            raise
        with told("release", where):
            release(states)
        return total

    def _actions(
        self,
        rule: Rule,
        phi: NDArray[np.float64] | None,
        n: int,
        draws: np.random.Generator,
        where: str,
    ) -> NDArray[np.int64]:
        if isinstance(rule, Fixed):
            return np.full(n, rule.action, dtype=np.int64)
        if isinstance(rule, Greedy):
            assert phi is not None
            try:
                return greedy_actions(phi, rule.theta)
            except (ValueError, ArithmeticError) as error:
                raise ArithmeticError(f"{where}: a greedy score is not finite (theta too large)") from error
        return draws.integers(self.n_actions, size=n)

    @np.errstate(over="ignore", invalid="ignore")  # what overflows is refused
    def _checked_features(self, given: Any, n: int, where: str) -> NDArray[np.float64]:
        phi = as_floats(f"{where}: features", given, (n, self.dimension), finite=False)
        squares = np.einsum("nd,nd->n", phi, phi)
        good = squares <= (1.0 + SLACK) ** 2
        if not good.all():
            row = int(np.argmin(good))
            if not np.isfinite(phi[row]).all():
                raise ValueError(f"{where}: features: expected finite numbers, got {phi[row]} for trajectory {row}")
            raise ValueError(
                f"{where}: features: expected Euclidean norms of at most 1, "
                f"got {np.linalg.norm(phi[row]):.12g} for trajectory {row}"
            )
        return phi

    def fingerprint(self) -> dict[str, int]:
        """Return what, besides the environment, the answers depend on."""
        return {"chunk_size": self.chunk_size}

    def __reduce__(self) -> tuple[type[BatchSampler], tuple[BatchEnvironment]]:
        return (BatchSampler, (self.env,))


def generators(rng: Stream) -> tuple[np.random.Generator, np.random.Generator]:
    """Return the environment's generator and the engine's."""
    own, draws = rng.generator(), rng.generator()
    cast(np.random.Philox, draws.bit_generator).advance(APART)
    return own, draws


def missing_members(env: object) -> list[str]:
    """List what `env` lacks to be a `BatchEnvironment`."""
    if isinstance(env, type):
        return ["being an instance"]
    missing = [name for name in ("horizon", "n_actions", "dimension") if not hasattr(env, name)]
    return missing + [name for name in ("reset", "features", "step") if not callable(getattr(env, name, None))]


def add_rewards(total: NDArray[np.float64], given: Any, where: str) -> None:
    """Add the rewards of one level to `total` (n,) in place; refuse what a reward must not be."""
    rewards = as_floats(f"{where}: rewards", given, total.shape, finite=False)
    good = rewards >= 0.0
    if not good.all():
        row = int(np.argmin(good))
        raise ValueError(f"{where}: rewards: expected numbers >= 0, got {rewards[row]} for trajectory {row}")
    total += rewards
    good = total <= 1.0 + SLACK
    if not good.all():
        row = int(np.argmin(good))
        raise ValueError(
            f"{where}: rewards: expected a sum of at most 1 a trajectory, got {total[row]:.12g} for trajectory {row}"
        )


@contextmanager
def told(method: str, where: str) -> Iterator[None]:
    """Add to an exception from inside the environment where it happened."""
    try:
        yield
    except Exception as error:
        error.add_note(f"raised in {method} of the environment: {where}")
        raise


def brief(value: object) -> str:
    """Describe a wrong value in a few words."""
    if isinstance(value, tuple):
        return f"a tuple of {len(value)}"
    return type(value).__name__


def keep(states: Any) -> None:
    """Release nothing."""


def ignore(level: int, phi: NDArray[np.float64], earned: NDArray[np.float64]) -> None:
    """Visit nothing."""
