"""`PlayedBatch`: environments that play one episode at a time through their own `reset` and `step`.

Gymnasium's, dm_env's and plain objects differ in their members, the objects that play, and in what they say about
themselves; the rest is here.
"""

from __future__ import annotations

import contextlib
import copy
import threading
from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from dmq_fast._support.checks import integer
from dmq_fast.environments._look import Grids, Look, default_hold, look_at
from dmq_fast.environments.compiled import digest_of_map
from dmq_fast.environments.views import FIRST, Features, Looking, View, as_history
from dmq_fast.features import Interpolation, Seen
from dmq_fast.grids import grid_of, names_of
from dmq_fast.homogeneity import Homogeneous
from dmq_fast.kernels import FeatureMap, as_floats, as_numbers
from dmq_fast.observing import Form, MapObserver
from dmq_fast.rewards import RewardModel, ValueRange, as_bounds, as_noise
from dmq_fast.spaces import Finite, Integer

__all__ = [
    "COPIES",
    "Member",
    "PlayedBatch",
    "Row",
    "Step",
    "as_flag",
    "as_flags",
    "as_scalar",
    "as_shape",
    "own_limit",
    "required",
]

Array = NDArray[np.float64]

# Episodes of a block where each is a copy of one environment. Part of the format.
COPIES = 256

# Seeds handed to `reset` are below this: simulators written in C often take no more.
SEEDS = 2**31


class Step(NamedTuple):
    """What a step of one episode gave."""

    observation: Any
    reward: float
    ended: bool


class Member(Protocol):
    """An environment that plays one episode at a time."""

    env: Any
    width: int

    def reset(self, seed: int | None) -> Any:
        """Start over; return the first observation."""

    def step(self, action: Any) -> Step:
        """Take an action, as the environment names it."""

    def close(self) -> None:
        """Close the environment."""


class Row(Protocol):
    """An environment with a row for each of `width` episodes."""

    env: Any
    width: int

    def reset(self, seed: int | None) -> Any:
        """Start all rows over; return their first observations."""

    def kept(self, observations: Any, firsts: Any, form: Form) -> NDArray[Any]:
        """Return the observations of all rows as they are kept, after the first ones where those are given."""

    def step(self, actions: list[Any], ended: NDArray[np.bool_]) -> tuple[Any, Array, NDArray[np.bool_]]:
        """Step all rows, those that have `ended` in any way; return observations, rewards, and which end."""

    def close(self) -> None:
        """Close the environment."""


class PlayedBatch:
    """Episodes of an environment, cut or prolonged to `horizon` levels: a `BatchEnvironment`.

    An episode that ends before the horizon is absorbed: from then on its features are 0, and it earns nothing.

    Parameters
    ----------
    make : callable
        Makes a member.
    first : Member or Row
        One that was made.
    view : callable
        From `features`, whether observations are paired, and a function that looks at uniform play, to a `View`.
    actions : Finite
        The space of actions.
    horizon : int or None
        Number of levels H. None: as many as the limit makes.
    limit : int or None
        Steps after which the environment ends an episode by itself.
    features : callable, Grids or None
        From n observations to features (n, d) of norm at most 1. None: by the view.
    history : {"first"} or None
        Whether the first observation of an episode is joined to the current one.
    value_range, noise
        What is known of the rewards; see `RewardModel`.
    homogeneous : bool or sequence of int, or None
        See `homogeneity`.
    seeded : bool
        Whether `reset` takes a seed that fixes all that is random. Otherwise there is one member, and one episode at a
        time.
    copies : int
        Episodes of a block.
    name : str
    hold : int, optional
        Steps of a level, in which its action is held; the reward of the level is their sum. Default: 1; with grids
        that a look has chosen and the environment's own limit `default_hold` of it.
    """

    def __init__(
        self,
        make: Callable[[], Any],
        first: Any,
        view: Callable[[Features | Grids | None, bool, Looking], View],
        actions: Finite,
        horizon: int | None,
        limit: int | None,
        features: Features | Grids | None,
        *,
        history: str | None,
        value_range: ValueRange,
        noise: float | None,
        homogeneous: Homogeneous | None,
        seeded: bool,
        copies: int,
        name: str,
        hold: int | None = None,
    ) -> None:
        steps = required(horizon, limit) * (1 if horizon is None or hold is None else integer("hold", hold, 1))

        def look(low: Any, high: Any) -> Look:
            return look_at(first, actions, steps, seeded, low, high)

        self._form, self._features, self._bounds = view(features, as_history(history), look)
        self.linear = not (
            isinstance(self._features, Interpolation) and (features is None or isinstance(features, Grids))
        )
        if hold is None:
            hold = 1 if self.linear or horizon is not None or limit is None else default_hold(limit)
        self.hold = integer("hold", hold, 1)
        self.horizon = required(horizon, None if limit is None else -(-limit // self.hold))
        self.value_range = as_bounds(value_range, self.horizon)
        self.noise = None if noise is None else as_noise(noise)
        self.homogeneous = homogeneous
        self.repeatable = seeded
        self.history = history
        self.name = name
        self.parameters: dict[str, Any] = {"env": name, "horizon": self.horizon}
        if history is not None:
            self.parameters["history"] = history
        if self.hold > 1:
            self.parameters["hold"] = self.hold
        self._make = make
        self._pool = Pool(make)
        self._actions = actions
        self.n_actions = actions.n
        self.grid = grid_of(first.env, actions.n) if not first.width and history is None else None
        self.observation_names = names_of(first.env, name)
        self.chunk_size = first.width or (integer("copies", copies, 1) if seeded else 1)
        self.dimension = self._dimension(first, given=features is not None and self.linear)
        self._pool.give(first)

    def _dimension(self, first: Any, given: bool) -> int:
        """Return the number of features; features that were given have to be such for a first observation."""
        if not given or isinstance(self._features, Seen):
            features: Any = self._features
            return int(getattr(features, "dimension", getattr(features, "n", 0)))
        episodes = Episodes([first], [0 if self.repeatable else None], 1, self)
        seen = episodes.observations[:1]
        phi = np.asarray(self._features(np.ascontiguousarray(seen)))
        if phi.ndim != 2 or len(phi) != 1 or phi.shape[1] == 0:
            raise ValueError(f"features: expected shape (1, d) for observations {seen.shape}, got {phi.shape}")
        return int(phi.shape[1])

    @property
    def ordered(self) -> bool:
        """Whether an episode depends on those before it, by the environment or by the numbers of what was seen.

        Then all are drawn in the caller's thread, one after the other.
        """
        return not self.repeatable or isinstance(self._features, Seen)

    @property
    def memory(self) -> Seen | None:
        """What a journal has to keep beside episodes: the numbers of what was seen, if any are given."""
        return self._features if isinstance(self._features, Seen) else None

    def new_member(self) -> Any:
        """Make an environment beside those of the blocks."""
        return self._make()

    def reset(self, n: int, rng: np.random.Generator) -> Episodes:
        """Start n episodes, n <= `chunk_size`; see `BatchEnvironment.reset`."""
        if not 1 <= n <= self.chunk_size:
            raise ValueError(f"n: expected 1 <= n <= {self.chunk_size} episodes, got {n}")
        members: list[Any] = []
        try:
            members.append(self._pool.take())
            width = members[0].width
            while width == 0 and len(members) < n:
                members.append(self._pool.take())
            if len({id(member.env) for member in members}) < len(members):
                raise ValueError(
                    "env: expected a new environment from every call of the function, got the same one twice"
                )
            seeds: list[Any] = [int(seed) for seed in rng.integers(SEEDS, size=len(members))]
            episodes = Episodes(members, seeds if self.repeatable else [None], n, self)
        except BaseException:
            for member in members:
                self._pool.drop(member)
            raise
        return episodes

    def features(self, level: int, states: Episodes) -> Array:
        """Return the features (n, d), zero where an episode has ended; see `BatchEnvironment.features`."""
        alive = states.alive
        if alive.all():
            return self._features(states.observations)
        phi = np.zeros((len(alive), self.dimension))
        if alive.any():
            shape = (int(alive.sum()), self.dimension)
            phi[alive] = as_floats("features", self._features(states.observations[alive]), shape, finite=False)
        return phi

    def step(
        self, level: int, states: Episodes, actions: NDArray[np.int64], rng: np.random.Generator
    ) -> tuple[Episodes, Array]:
        """Step the episodes that have not ended; see `BatchEnvironment.step`."""
        rewards = states.step(actions)
        for _ in range(self.hold - 1):
            rewards += states.step(actions)
        return states, rewards

    def release(self, states: Episodes) -> None:
        """Keep the members for the next block; close those in which something went wrong."""
        for member in states.members:
            if states.sound:
                self._pool.give(member)
            else:
                self._pool.drop(member)
        states.members = []

    @property
    def observer(self) -> MapObserver:
        """What turns observations into features; see `Policy.act_on`."""
        plain = self._actions if isinstance(self._actions, Integer) else None
        return MapObserver(
            self._features,
            self._form,
            self.n_actions,
            0 if plain is None else plain.start,
            None if plain is not None else self._actions,
            self.grid,
            self.observation_names,
        )

    def features_of(self, level: int, observation: Any) -> Array:
        """Return the features (d,) of an observation, or (n, d) of a block of n of them, at any level."""
        phi, alone = self.observer.see(level, observation)
        return phi[0] if alone else phi

    def fingerprint(self) -> dict[str, Any]:
        """Describe the environment, JSON-able: name, arguments, range of rewards and features.

        Features that are not a `FeatureMap` are described by the name of their function or class.
        """
        features = self._features
        if isinstance(features, FeatureMap):
            described = digest_of_map(features)
        elif isinstance(features, Seen):
            described = repr(features)
        else:
            described = getattr(features, "__qualname__", type(features).__qualname__)
        return {
            "name": self.name,
            "parameters": self.parameters,
            **self._described(),
            "rewards": RewardModel.of(self).describe(),
            "features": described,
            **({} if self.repeatable else {"repeatable": False}),
        }

    def _described(self) -> dict[str, Any]:
        """Describe observations and actions."""
        return {"observations": self._form.describe(), "actions": self._actions.describe()}

    def close(self) -> None:
        """Close the members kept."""
        self._pool.close()

    def __getstate__(self) -> dict[str, Any]:
        """Return all attributes but the members kept."""
        return vars(self) | {"_pool": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Restore the attributes, without members."""
        vars(self).update(state)
        self._pool = Pool(self._make)

    def __repr__(self) -> str:
        """Name and sizes."""
        return (
            f"{type(self).__name__}({self.name!r}, horizon={self.horizon}, n_actions={self.n_actions}, "
            f"dimension={self.dimension})"
        )


class Pool:
    """The members that no block uses at the moment."""

    def __init__(self, make: Callable[[], Any]) -> None:
        self.make = make
        self.idle: list[Any] = []
        self.lock = threading.Lock()

    def take(self) -> Any:
        """Return a member for the caller alone."""
        with self.lock:
            if self.idle:
                return self.idle.pop()
        return self.make()

    def give(self, member: Any) -> None:
        """Take a member back."""
        with self.lock:
            self.idle.append(member)

    def drop(self, member: Any) -> None:
        """Give up a member in which something went wrong."""
        # The exception that led here is the one to report.
        with contextlib.suppress(Exception):
            member.close()

    def close(self) -> None:
        """Close the idle members; where one raises an exception, after the others."""
        with self.lock:
            idle, self.idle = self.idle, []
        failure: Exception | None = None
        for member in idle:
            try:
                member.close()
            except Exception as error:
                failure = failure or error
        if failure is not None:
            raise failure


class Episodes:
    """A block of running episodes: the states of a `PlayedBatch`.

    Attributes
    ----------
    observations : numpy.ndarray, shape (n, ...)
        The last of each episode, as its form keeps it; meaningless where it has ended.
    alive : numpy.ndarray of bool, shape (n,)
    sound : bool
        Whether all calls of environments returned; False while one runs, or after it raised.
    """

    def __init__(self, members: list[Any], seeds: list[int | None], n: int, batch: PlayedBatch) -> None:
        self.members, self.seeds = members, seeds
        self.form, self.actions, self.bounds = batch._form, batch._actions, batch._bounds
        self.paired = batch.history == FIRST
        self.alive = np.ones(n, dtype=bool)
        self.sound = True
        self.firsts: Any = None
        first = members[0]
        if first.width:
            self.ended = np.zeros(first.width, dtype=bool)
            self.firsts = self.kept_first(first.reset(seeds[0]))
            self.observations = first.kept(self.firsts, self.firsts if self.paired else None, self.form)[:n]
        else:
            self.observations = np.empty((n, *self.form.shape), dtype=self.form.dtype)
            self.firsts = [None] * n
            for row, (member, seed) in enumerate(zip(members, seeds, strict=True)):
                try:
                    self.firsts[row] = seen = self.kept_first(member.reset(seed))
                    self.observations[row] = self.form.keep((seen, seen) if self.paired else seen)
                except Exception as error:
                    error.add_note(f"in reset({'' if seed is None else f'seed={seed}'})")
                    raise
        self.check_range()

    def kept_first(self, observation: Any) -> Any:
        """Return a first observation, as a copy where it is kept, since environments may write into theirs."""
        return copy.deepcopy(observation) if self.paired else observation

    def check_range(self) -> None:
        """Refuse integers outside their space."""
        if self.bounds is not None:
            low, high = self.bounds
            seen = self.observations[self.alive]
            if seen.size and not (low <= seen.min() and seen.max() < high):
                raise ValueError(f"observation: expected one in [{low}, {high}), got {seen.min()} to {seen.max()}")

    def step(self, actions: NDArray[np.int64]) -> Array:
        """Step the episodes that have not ended; return the rewards (n,), 0 for those that had."""
        rewards = np.zeros(len(self.alive))
        if self.alive.any():
            self.sound = False
            if self.members[0].width:
                self.step_rows(self.members[0], actions, rewards)
            else:
                self.step_singles(actions, rewards)
            self.check_range()
            self.sound = True
        return rewards

    def step_singles(self, actions: NDArray[np.int64], rewards: Array) -> None:
        """Step members one by one."""
        row = 0
        try:
            for row in np.flatnonzero(self.alive).tolist():
                seen, rewards[row], ended = self.members[row].step(self.actions.element(actions[row]))
                if ended:
                    self.alive[row] = False
                else:
                    self.observations[row] = self.form.keep((self.firsts[row], seen) if self.paired else seen)
        except Exception as error:
            began = "" if self.seeds[row] is None else f", which began with reset(seed={self.seeds[row]})"
            error.add_note(f"in episode {row} of the block{began}")
            raise

    def step_rows(self, rows: Any, actions: NDArray[np.int64], rewards: Array) -> None:
        """Step the rows of a vector; those that have ended, or serve no episode, get any action."""
        n = len(self.alive)
        every = np.zeros(rows.width, dtype=np.int64)
        every[:n] = np.where(self.alive, actions, 0)
        try:
            observations, earned, ended = rows.step([self.actions.element(one) for one in every.tolist()], self.ended)
        except Exception as error:
            error.add_note(f"in a block that began with reset(seed={self.seeds[0]})")
            raise
        self.observations = rows.kept(observations, self.firsts if self.paired else None, self.form)[:n]
        rewards[self.alive] = earned[:n][self.alive]
        self.ended = ended
        self.alive = self.alive & ~ended[:n]


def own_limit(env: Any) -> int | None:
    """Return the number of steps after which an environment ends an episode by itself, if it says so."""
    for one in (env, getattr(env, "unwrapped", None)):
        spec = getattr(one, "spec", None)
        for owner, name in ((spec, "max_episode_steps"), (one, "max_episode_steps"), (one, "horizon")):
            limit = getattr(owner, name, None)
            if limit in (None, -1) or callable(limit):  # -1 is Gymnasium's word for none
                continue
            return integer(f"env.{name}", limit, 1)
    return None


def required(horizon: int | None, limit: int | None) -> int:
    """Return the horizon, by default the environment's own limit; refuse none."""
    if horizon is not None:
        return integer("horizon", horizon, 1)
    if limit is None:
        raise ValueError(
            "horizon: expected the number of levels, such as horizon=50, as the environment has no limit of steps of "
            "its own, got none"
        )
    return limit


def as_shape(name: str, value: Any, shape: tuple[int, ...]) -> NDArray[Any]:
    """Return bools or real numbers as an array; raise unless it has this shape."""
    array = as_numbers(name, value)
    if array.shape != shape:
        raise ValueError(f"{name}: expected shape {shape}, got {array.shape}")
    return array


def as_scalar(name: str, value: Any) -> float:
    """Return a single real number; raise for anything else."""
    # The usual type first: this is called once a step.
    return value if isinstance(value, float) else float(as_shape(name, value, ()).item())


def as_flag(name: str, value: Any) -> bool:
    """Return a single bool, 0 or 1 as a bool; raise for anything else."""
    # The usual types first: this is called twice a step.
    if isinstance(value, (bool, np.bool_)):
        return bool(value)
    return bool(as_flags(name, as_shape(name, value, ())[None], 1)[0])


def as_flags(name: str, values: Any, n: int) -> NDArray[np.bool_]:
    """Return bools, 0 and 1 as bools (n,); raise for anything else."""
    array = as_shape(name, values, (n,))
    flags: NDArray[np.bool_] = array == 1
    wrong = ~flags & ~(array == 0)
    if wrong.any():
        raise ValueError(f"{name}: expected True or False (1 or 0), got {array[wrong][0]!r}")
    return flags
