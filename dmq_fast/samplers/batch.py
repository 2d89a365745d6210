"""`BatchSampler`: trajectories of environments written in Python, many of them advanced at once."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, NamedTuple, Protocol, cast, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from dmq_fast._support.checks import count, integer
from dmq_fast.kernels import Fixed, Greedy, Rule, SecondMoment, Stream, as_floats, greedy_actions
from dmq_fast.moments import Moments, Returns, fits_rows, sums_of
from dmq_fast.policy import Policy, check_policy
from dmq_fast.rewards import LARGEST, RewardModel, ValueRange
from dmq_fast.rules import Optimistic
from dmq_fast.samplers.base import Estimate, Sampler, estimate
from dmq_fast.samplers.request import Request
from dmq_fast.samplers.streams import check_stream
from dmq_fast.trajectories import Trajectories

__all__ = ["BatchEnvironment", "BatchSampler"]

# Largest number of trajectories in one chunk where the environment sets no `chunk_size`. Part of the format.
CHUNK = 4_096

# Numbers of a chunk that may be kept to see whether rows are cheaper than matrices: 64 MB.
FEW = 2**23

# How far above 1 a feature norm may lie, for rounding in the environment.
SLACK = 1e-9

# Distance between the generator of the environment and that of the policy, in blocks of four draws: it is counted in
# word 1 of the counter.
APART = 2**64

REQUIRED = ("horizon", "n_actions", "dimension", "reset", "features", "step")

Visit = Callable[[int, NDArray[np.float64], NDArray[np.float64]], None]
"""Called with a level, the features of its states, and the rewards earned before it."""

Step = Callable[[int, NDArray[np.int64], NDArray[np.float64]], None]
"""Called with a level, the actions taken at it, and their rewards."""


@runtime_checkable
class BatchEnvironment(Protocol):
    """An episodic environment that advances n trajectories at once.

    Any class with these members will do; it need not derive from this one. What a trajectory does may depend on its
    state, the action and the generator alone.

    ``value_range`` and ``noise`` are what is known of the rewards, in their own units: what those from a level on can
    add up to, a pair (low, high) or one a level, and the standard deviation of their noise around a mean, if any; see
    `RewardModel`. Without a range, algorithms that need one take that of the returns that they see. An episode ends
    where its features become 0; then nothing is paid.

    More members are optional. ``chunk_size`` is the largest number of trajectories advanced at once, 4,096 by
    default. ``release(states)`` is called with the last states of a chunk when it is finished, also when it failed.
    ``fingerprint()`` returns a JSON-able dict of what the environment was made with: a journal compares it before a run
    is resumed; of an environment without it only sizes and class are compared. Two attributes say what such an
    environment cannot do: ``repeatable`` is False where the same generator does not give the same episodes again, as it
    takes no seed, and ``ordered`` True where an episode depends on those before it; then workers are not used.

    Examples
    --------
    >>> import dmq_fast as dmq
    >>> class Walk:  # action 1 goes right with probability 0.9; the end of the line pays
    ...     horizon, n_actions, dimension = 4, 2, 5
    ...     value_range = (0, 1)
    ...
    ...     def reset(self, n, rng):
    ...         return np.zeros(n, dtype=int)
    ...
    ...     def features(self, level, states):
    ...         return np.eye(5)[states]
    ...
    ...     def step(self, level, states, actions, rng):
    ...         states = states + actions * (rng.random(len(states)) < 0.9)
    ...         return states, (states == 4).astype(float)
    >>> result = dmq.DMQ(Walk(), n_samples=50, rng=0).learn()
    >>> result.policy.act(3, np.eye(5)[3])
    1
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
        """Return the features of the states, shape (n, d), of Euclidean norm at most 1; 0 where the episode has ended.

        Called only where features are needed, so it must draw nothing and change nothing.
        """

    def step(
        self, level: int, states: Any, actions: NDArray[np.int64], rng: np.random.Generator
    ) -> tuple[Any, NDArray[np.float64]]:
        """Return the next states and the rewards (n,), finite numbers.

        The states may be changed in place and returned.
        """


class Place(NamedTuple):
    """The call and the chunk of trajectories, for messages."""

    call: int
    chunk: int

    def at(self, level: int) -> str:
        """Return level, call and chunk as text."""
        return f"level {level}, call {self.call}, chunk {self.chunk}"


class BatchSampler(Sampler):
    """Simulates trajectories of a `BatchEnvironment`, a chunk of them at a time.

    Parameters
    ----------
    env : BatchEnvironment
        Also a Gymnasium environment in a `GymnasiumBatch`.
    value_range, noise
        Instead of those that the environment declares; see `RewardModel`.

    Attributes
    ----------
    env : BatchEnvironment
    rewards : RewardModel
        What is known of the rewards. Where they have a range and no noise, returns to go are checked.
    chunk_size : int
        Largest number of trajectories in one chunk: 4,096, or what the environment sets.

    Raises
    ------
    TypeError, ValueError
        If `env` lacks a member, its sizes are no positive integers, or its range or noise has another form.

    Notes
    -----
    Memory does not depend on the number of trajectories: a chunk holds its states and, for each level of
    `returns_from`, its features (chunk, d).

    Randomness: in chunk j of call c the environment gets ``stream.at(c, j).generator()``, which is Philox with counter
    (0, 0, j, c). The actions of uniform rules come from a second generator, Philox with the same key and counter
    (0, 1, j, c), as ``integers(K, size=n)`` at each level: draws of the policy never shift those of the environment.

    Everything the environment returns is checked. A message names level, call and chunk. An exception from inside the
    environment is raised unchanged, with a note that names the same.

    Examples
    --------
    >>> import dmq_fast as dmq
    >>> class Coin:
    ...     horizon, n_actions, dimension = 2, 2, 1
    ...
    ...     def reset(self, n, rng):
    ...         return np.ones((n, 1))
    ...
    ...     def features(self, level, states):
    ...         return states
    ...
    ...     def step(self, level, states, actions, rng):
    ...         return states, rng.integers(2, size=len(states)) / 2
    >>> estimate = BatchSampler(Coin()).evaluate(dmq.Policy.uniform(2), 10_000, stream=dmq.Stream(0))
    >>> round(estimate.value, 2), round(estimate.standard_error, 4)
    (0.5, 0.0035)
    """

    env: BatchEnvironment
    chunk_size: int
    holds_gil = True

    def __init__(self, env: BatchEnvironment, value_range: ValueRange = None, noise: float | None = None) -> None:
        missing = missing_members(env)
        if missing:
            raise TypeError(f"env: expected a BatchEnvironment, got {type(env).__name__} without {', '.join(missing)}")
        self.env, self.value_range, self.noise = env, value_range, noise
        self.horizon = integer("env.horizon", env.horizon, 1)
        self.n_actions = integer("env.n_actions", env.n_actions, 1)
        self.dimension = integer("env.dimension", env.dimension, 1)
        self.chunk_size = integer("env.chunk_size", getattr(env, "chunk_size", CHUNK), 1)
        self._release: Callable[[Any], object] | None = getattr(env, "release", None)
        self._rewards = super().rewards

    @property
    def rewards(self) -> RewardModel:
        """Range and noise of the rewards; see `Sampler.rewards`."""
        return self._rewards

    def declaring(self, value_range: ValueRange, noise: float | None) -> BatchSampler:
        """Return the same sampler with this range and noise; see `Sampler.declaring`."""
        given = self.value_range if value_range is None else value_range
        return BatchSampler(self.env, given, self.noise if noise is None else noise)

    def collect_chunk(
        self, policy: Policy, n: int, *, rng: Stream, levels: Sequence[int], returns_from: Sequence[int] = ()
    ) -> Moments:
        """Roll out one chunk; see `Sampler.collect_chunk`.

        Raises
        ------
        TypeError, ValueError
            If an argument is out of range, or the environment returns something of another type, shape or range.
        ArithmeticError
            If a greedy score is not finite.
        """
        n = count("n", n, 0)
        request = Request.of(self, policy, n, rng, levels, returns_from, exact=False)
        levels, returns_from = request.levels, request.returns_from
        # Rows are few enough to be kept until all are there, or they are added up one level at a time.
        few = fits_rows(n, 1, self.dimension) and n * self.dimension * len(levels) <= FEW
        blocks = {level: np.empty((0, self.dimension)) for level in levels}
        grams = {} if few else {level: SecondMoment(self.dimension) for level in levels}
        starts: dict[int, tuple[NDArray[np.float64], NDArray[np.float64]]] = {}

        def visit(level: int, phi: NDArray[np.float64], earned: NDArray[np.float64]) -> None:
            if level in grams:
                grams[level].add_rows(phi)
            elif level in blocks:
                # Copies: the environment may reuse its array.
                blocks[level] = phi.copy()
            if level in returns_from:
                starts[level] = phi.copy(), earned.copy()

        last = self.horizon if returns_from else max(request.last, 0)
        total = self._roll_out(policy, n, rng, frozenset((*levels, *returns_from)), last, visit)
        returns = {}
        for h in returns_from:
            phi, before = starts.get(h, (np.empty((0, self.dimension)), np.empty(0)))
            y = self._to_go(phi, total - before, h, Place(rng.call, rng.chunk))
            returns[h] = Returns(np.einsum("nd,n->d", phi, y), float(np.einsum("n,n->", y, y)), n)
        if few:
            return Moments(n, levels, sums_of(list(blocks.values()), self.dimension), returns)
        stacked = np.array([gram.matrix for gram in grams.values()])
        return Moments(n, levels, stacked.reshape(len(levels), self.dimension, self.dimension), returns)

    def _to_go(self, phi: NDArray[np.float64], y: NDArray[np.float64], level: int, place: Place) -> NDArray[np.float64]:
        """Return the returns to go y (n,) from states of a level, without rounding errors; refuse what is out of range.

        What has ended, with features 0, is worth 0, whatever the range of the other states.
        """
        model = self._rewards
        if model.bounds is None or model.noise is not None:
            return y
        going = phi.any(axis=1) | (y != 0.0)
        model.check(y[going], level, place.at(level))
        return np.where(going, np.maximum(y, model.bounds[level, 0]), 0.0)

    def trajectories_chunk(self, policy: Policy, n: int, *, rng: Stream) -> Trajectories:
        """Roll out one chunk and show it; see `collect_chunk` for the errors."""
        n = count("n", n, 0)
        check_policy(self, policy, exact=False)
        check_stream("rng", rng)
        horizon = self.horizon
        features = np.empty((n, horizon, self.dimension))
        taken, paid = np.empty((n, horizon), dtype=np.int64), np.empty((n, horizon))

        def visit(level: int, phi: NDArray[np.float64], _earned: NDArray[np.float64]) -> None:
            features[:, level] = phi

        def step(level: int, actions: NDArray[np.int64], rewards: NDArray[np.float64]) -> None:
            taken[:, level], paid[:, level] = actions, rewards

        self._roll_out(policy, n, rng, frozenset(range(horizon)), horizon, visit, step)
        return Trajectories(features, taken, paid)

    def evaluate(self, policy: Policy, n: int, *, stream: Stream) -> Estimate:
        """Estimate the value of `policy` from n >= 1 trajectories of the call that `stream` stands for."""
        n = count("n", n, 1)
        check_policy(self, policy, exact=False)
        check_stream("stream", stream)
        returns = (
            self._roll_out(policy, size, stream.at(stream.call, chunk), frozenset(), self.horizon, None)
            for chunk, size in enumerate(self.chunks(n))
        )
        return estimate(returns)

    def _roll_out(
        self,
        policy: Policy,
        n: int,
        rng: Stream,
        wanted: frozenset[int],
        last: int,
        visit: Visit | None,
        step: Step | None = None,
    ) -> NDArray[np.float64]:
        """Advance n trajectories to level `last` (H: to their end); return the sum of rewards of each.

        `visit` is called at the `wanted` levels, `step` after every step.
        """
        total = np.zeros(n)
        if n == 0 or not (wanted or last):
            return total
        env, place = self.env, Place(rng.call, rng.chunk)
        own, draws = generators(rng)
        with noting("reset", place.at(0)):
            states = env.reset(n, own)
        try:
            for level in range(min(last + 1, self.horizon)):
                where = place.at(level)
                moving = level < last
                rule = policy.rules[level]
                phi = None
                if level in wanted or (moving and isinstance(rule, Greedy | Optimistic)):
                    phi = self._observe(level, states, n, where)
                    if visit is not None and level in wanted:
                        visit(level, phi, total)
                if not moving:
                    break
                actions = self._actions(rule, phi, n, draws, total, where)
                # A copy where the actions are kept: the environment may change the array.
                kept = actions if step is None else actions.copy()
                states, rewards = self._advance(level, states, actions, own, total, where)
                if step is not None:
                    step(level, kept, rewards)
        except BaseException:
            if self._release is not None:
                with suppress(Exception):  # the first exception is the one to report
                    self._release(states)
            raise
        if self._release is not None:
            with noting("release", where):
                self._release(states)
        return total

    def _actions(
        self,
        rule: Rule,
        phi: NDArray[np.float64] | None,
        n: int,
        draws: np.random.Generator,
        earned: NDArray[np.float64],
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
        if isinstance(rule, Optimistic):
            assert phi is not None
            return rule.actions(phi, earned, draws.random(n))
        return draws.integers(self.n_actions, size=n)

    def _advance(
        self,
        level: int,
        states: Any,
        actions: NDArray[np.int64],
        own: np.random.Generator,
        total: NDArray[np.float64],
        where: str,
    ) -> tuple[Any, NDArray[np.float64]]:
        """Take actions (n,) in the states of a level; return the next states and the rewards, added to `total` (n,)."""
        with noting("step", where):
            stepped = self.env.step(level, states, actions, own)
        if not isinstance(stepped, tuple) or len(stepped) != 2:
            raise TypeError(f"{where}: step: expected (states, rewards), got {kind_of(stepped)}")
        states, rewards = stepped
        return states, add_rewards(total, rewards, where)

    def _observe(self, level: int, states: Any, n: int, where: str) -> NDArray[np.float64]:
        """Return the features of n states of a level, shape (n, d), checked: finite, of norm at most 1."""
        with noting("features", where):
            given = self.env.features(level, states)
        return self._checked_features(given, n, where)

    @np.errstate(over="ignore", invalid="ignore")  # numbers that overflow are refused
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
        """Return what the answers depend on besides the environment; see `Sampler.fingerprint`."""
        return {"chunk_size": self.chunk_size}

    def __reduce__(self) -> tuple[Any, ...]:
        return (BatchSampler, (self.env, self.value_range, self.noise))


def generators(rng: Stream) -> tuple[np.random.Generator, np.random.Generator]:
    """Return the generator of the environment and that of uniform rules."""
    own, draws = rng.generator(), rng.generator()
    cast(np.random.Philox, draws.bit_generator).advance(APART)
    return own, draws


def missing_members(env: object) -> list[str]:
    """List the required members of a `BatchEnvironment` that `env` lacks."""
    if isinstance(env, type):
        return ["being an instance"]
    sizes, methods = REQUIRED[:3], REQUIRED[3:]
    missing = [name for name in sizes if not hasattr(env, name)]
    return missing + [name for name in methods if not callable(getattr(env, name, None))]


def add_rewards(total: NDArray[np.float64], given: Any, where: str) -> NDArray[np.float64]:
    """Return the rewards of one level, and add them to `total` (n,); refuse those that are no finite numbers."""
    rewards = as_floats(f"{where}: rewards", given, total.shape, finite=False)
    good = np.abs(rewards) <= LARGEST
    if not good.all():
        row = int(np.argmin(good))
        raise ValueError(
            f"{where}: rewards: expected finite numbers between -{LARGEST:g} and {LARGEST:g}, got {rewards[row]} for "
            f"trajectory {row}"
        )
    total += rewards
    return rewards


@contextmanager
def noting(method: str, where: str) -> Iterator[None]:
    """Add a note to an exception from inside the environment: the method that raised it, and where."""
    try:
        yield
    except Exception as error:
        error.add_note(f"raised in {method} of the environment: {where}")
        raise


def kind_of(value: object) -> str:
    """Describe a value of a wrong type in a few words."""
    return f"a tuple of {len(value)}" if isinstance(value, tuple) else type(value).__name__
