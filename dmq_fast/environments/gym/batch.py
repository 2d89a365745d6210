"""Any Gymnasium environment with discrete actions, advanced through its own `step`.

Gymnasium itself is imported only where an object is made.
"""

from __future__ import annotations

import contextlib
import copy
import threading
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dmq_fast._support.checks import integer
from dmq_fast.environments.compiled import digest_of_map
from dmq_fast.environments.gym.tables import import_gymnasium, make_environment, scalar_arguments
from dmq_fast.kernels import FeatureMap, as_floats, as_numbers
from dmq_fast.observing import MapObserver, OneHot, observed
from dmq_fast.rewards import RewardModel, ValueRange, as_bounds, as_noise

__all__ = ["GymnasiumBatch"]

Array = NDArray[np.float64]
Features = Callable[[NDArray[Any]], Array]

# Episodes of a block where each is a copy of one `Env`. Part of the format.
COPIES = 256

# Seeds handed to `reset` are below this: simulators written in C often take no more.
SEEDS = 2**31


class GymnasiumBatch:
    """Episodes of a Gymnasium environment, cut or prolonged to `horizon` levels: a `BatchEnvironment`.

    An episode that ends before the horizon, terminated or truncated (a `TimeLimit` shorter than the horizon
    included), is absorbed: from then on its features are 0, and it earns nothing. Rewards are the environment's own.

    Parameters
    ----------
    env : str, gymnasium.Env, gymnasium.vector.VectorEnv, or callable
        An id for ``gymnasium.make``; an environment; or a function without arguments that makes one. Episodes of a
        block run in copies of an `Env` or in the rows of a `VectorEnv`, in any autoreset mode; these are made
        again from id or function, and by ``copy.deepcopy`` from an object.
    horizon : int
        Number of levels H.
    features : callable, optional
        From observations (n, ...) to features (n, d) of norm at most 1. Default, for discrete observations only:
        one-hot.
    value_range : pair of float, array_like of shape (H, 2) or "seen", optional
        Bounds of what can still be earned from a level on, (low, high) or one such pair a level. Default: unknown, and
        algorithms that need a range take that of the returns that they see.
    noise : float, optional
        Standard deviation of the noise of rewards around their means, if they are noisy.
    make : mapping, optional
        Arguments of ``gymnasium.make`` beside the id.
    copies : int, default 256
        Episodes of a block of copies. Another number draws other episodes.
    name : str, optional
        Name of the environment. Default: its id where there is one.

    Attributes
    ----------
    horizon, n_actions, dimension : int
        H, K and d. Actions count from 0 whatever the space starts at.
    chunk_size : int
        Episodes of a block: `copies`, or the rows of a `VectorEnv`.
    value_range : numpy.ndarray of shape (H, 2), or None
    noise : float or None
    name : str
    parameters : dict

    Raises
    ------
    ImportError
        If Gymnasium is not installed.
    TypeError, ValueError
        On a space that is not supported or another argument out of range; the message names it.

    Notes
    -----
    Copies are kept for later blocks. Each episode starts with ``reset(seed=...)``, an int drawn from the block's
    generator (one for all rows of a `VectorEnv`), which by Gymnasium's contract fixes all that is random. An
    environment that carries more from one episode to the next than its generator breaks that contract, and its
    runs cannot be repeated.
    """

    def __init__(
        self,
        env: Any,
        horizon: int,
        features: Features | None = None,
        *,
        value_range: ValueRange = None,
        noise: float | None = None,
        make: Mapping[str, Any] | None = None,
        copies: int = COPIES,
        name: str | None = None,
    ) -> None:
        self.horizon = integer("horizon", horizon, 1)
        self.value_range = as_bounds(value_range, self.horizon)
        self.noise = None if noise is None else as_noise(noise)
        copies = integer("copies", copies, 1)
        if make is not None and not isinstance(env, str):
            raise ValueError("make: expected an id in env with it; a function or an object is made already")
        self._source = Source(env, dict(make or {}))
        self._pool = Pool(self._source.episodes)
        first = self._pool.take()
        try:
            self._actions = action_space(first.action_space)
            self._observations = observation_space(first.observation_space)
            self.n_actions = int(self._actions.n)
            self.chunk_size = first.width or copies
            spec = getattr(first.env, "spec", None)
            own_name = getattr(spec, "id", None) or type(getattr(first.env, "unwrapped", first.env)).__name__
            self.name = str(own_name if name is None else name)
            self.dimension, self._features = self._feature_map(features, first)
        except BaseException:
            first.close()
            raise
        self._pool.give(first)
        arguments = scalar_arguments(spec) if make is None else make
        self.parameters = {"env": self.name, "horizon": self.horizon, **arguments}
        limit = getattr(spec, "max_episode_steps", None)
        self.homogeneous = limit is None or limit >= self.horizon

    def _feature_map(self, features: Features | None, first: Single | Rows) -> tuple[int, Features]:
        space = self._observations
        if features is None:
            if not is_discrete(space):
                raise TypeError(
                    f"features: expected a function from observations (n, ...) to features (n, d), "
                    f"since only discrete observations have a default; got None with {space}"
                )
            return int(space.n), OneHot(int(space.n), int(space.start))
        if not callable(features):
            raise TypeError(f"features: expected a callable, got {features!r}")
        seen = first.reset(0)[:1]
        phi = np.asarray(features(np.ascontiguousarray(seen)))
        if phi.ndim != 2 or len(phi) != 1 or phi.shape[1] == 0:
            raise ValueError(f"features: expected shape (1, d) for observations {seen.shape}, got {phi.shape}")
        return phi.shape[1], features

    def new_member(self) -> Single | Rows:
        """Make an environment beside those of the blocks."""
        return self._source.episodes()

    def reset(self, n: int, rng: np.random.Generator) -> Episodes:
        """Start n episodes, n <= `chunk_size`; see `BatchEnvironment.reset`."""
        if not 1 <= n <= self.chunk_size:
            raise ValueError(f"n: expected 1 <= n <= {self.chunk_size} episodes, got {n}")
        members: list[Single | Rows] = []
        try:
            members.append(self._pool.take())
            width = members[0].width
            while width == 0 and len(members) < n:
                members.append(self._pool.take())
            if len({id(member.env) for member in members}) < len(members):
                raise ValueError(
                    "env: expected a new environment from every call of the function, got the same one twice"
                )
            seeds = [int(seed) for seed in rng.integers(SEEDS, size=len(members))]
            episodes = Episodes(members, seeds, n, self._observations)
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
        return states, states.step(actions + int(self._actions.start))

    def release(self, states: Episodes) -> None:
        """Keep the copies for the next block; close those in which something went wrong."""
        for member in states.members:
            if states.sound:
                self._pool.give(member)
            else:
                self._pool.drop(member)
        states.members = []

    @property
    def observer(self) -> MapObserver:
        """What turns observations into features; see `Policy.act_on`."""
        space = self._observations
        return MapObserver(self._features, space.shape, space.dtype, self.n_actions, int(self._actions.start))

    def features_of(self, level: int, observation: Any) -> Array:
        """Return the features (d,) of an observation, or (n, d) of a block of n of them, at any level."""
        phi, alone = self.observer.see(level, observation)
        return phi[0] if alone else phi

    def fingerprint(self) -> dict[str, Any]:
        """Describe the environment, JSON-able: name, arguments, spaces, range of rewards and features.

        Features that are not a `FeatureMap` are described by the name of their function or class.
        """
        features = self._features
        if isinstance(features, FeatureMap):
            described = digest_of_map(features)
        else:
            described = getattr(features, "__qualname__", type(features).__qualname__)
        return {
            "name": self.name,
            "parameters": self.parameters,
            "observations": str(self._observations),
            "actions": str(self._actions),
            "rewards": RewardModel.of(self).describe(),
            "features": described,
        }

    def close(self) -> None:
        """Close the copies kept."""
        self._pool.close()

    def __getstate__(self) -> dict[str, Any]:
        """Return all attributes but the copies kept."""
        return vars(self) | {"_pool": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Restore the attributes, without copies."""
        vars(self).update(state)
        self._pool = Pool(self._source.episodes)

    def __repr__(self) -> str:
        """Name and sizes."""
        return (
            f"GymnasiumBatch({self.name!r}, horizon={self.horizon}, n_actions={self.n_actions}, "
            f"dimension={self.dimension})"
        )


class Single:
    """An `Env`, for one episode at a time."""

    width = 0

    def __init__(self, env: Any) -> None:
        self.env = env
        self.action_space = env.action_space
        self.observation_space = env.observation_space

    def reset(self, seed: int) -> NDArray[Any]:
        """Start over; return the observation in one row."""
        return self.seen(first_of_two(self.env.reset(seed=seed)))[None]

    def seen(self, observation: Any) -> NDArray[Any]:
        """Return one observation as an array."""
        return observed("observation", observation, self.observation_space.shape, self.observation_space.dtype)

    def close(self) -> None:
        """Close the environment."""
        self.env.close()


class Rows:
    """A `VectorEnv`."""

    def __init__(self, env: Any) -> None:
        self.env = env
        self.width = integer("env.num_envs", env.num_envs, 1)
        self.action_space = env.single_action_space
        self.observation_space = env.single_observation_space
        # Gymnasium before 1.1 has no such entry and resets with the next step.
        mode = (env.metadata or {}).get("autoreset_mode", "NextStep")
        self.mode = getattr(mode, "value", mode)
        if self.mode not in ("NextStep", "SameStep", "Disabled"):
            raise ValueError(f"env: expected an autoreset mode NextStep, SameStep or Disabled, got {self.mode!r}")

    def reset(self, seed: int) -> NDArray[Any]:
        """Start all rows over; return the observations (rows, ...)."""
        return self.seen(first_of_two(self.env.reset(seed=seed)))

    def seen(self, observations: Any) -> NDArray[Any]:
        """Return the observations of all rows as an array."""
        space = self.observation_space
        return observed("observations", observations, (self.width, *space.shape), space.dtype)

    def close(self) -> None:
        """Close the environment."""
        self.env.close()


class Source:
    """The id, object or function that environments are made from."""

    def __init__(self, env: Any, arguments: dict[str, Any]) -> None:
        gymnasium = import_gymnasium()
        self.given = env
        self.arguments = arguments
        self.is_object = isinstance(env, gymnasium.Env | gymnasium.vector.VectorEnv)
        if not (isinstance(env, str) or self.is_object or callable(env)):
            raise TypeError(
                f"env: expected an id, a gymnasium Env or VectorEnv, or a function that makes one, "
                f"got {type(env).__name__}"
            )

    def episodes(self) -> Single | Rows:
        """Make one environment."""
        gymnasium = import_gymnasium()
        if isinstance(self.given, str):
            made = make_environment(self.given, **self.arguments)
        elif self.is_object:
            try:
                made = copy.deepcopy(self.given)
            except Exception as error:
                raise TypeError(
                    f"env: this {type(self.given).__name__} cannot be copied ({error}); "
                    "give an id or a function that makes it"
                ) from error
        else:
            made = self.given()
        if isinstance(made, gymnasium.vector.VectorEnv):
            return Rows(made)
        if isinstance(made, gymnasium.Env):
            return Single(made)
        raise TypeError(f"env: expected a function that makes a gymnasium Env or VectorEnv, got {made!r} from it")


class Pool:
    """The environments that no block uses at the moment."""

    def __init__(self, make: Callable[[], Single | Rows]) -> None:
        self.make = make
        self.idle: list[Single | Rows] = []
        self.lock = threading.Lock()

    def take(self) -> Single | Rows:
        """Return an environment for the caller alone."""
        with self.lock:
            if self.idle:
                return self.idle.pop()
        return self.make()

    def give(self, member: Single | Rows) -> None:
        """Take an environment back."""
        with self.lock:
            self.idle.append(member)

    def drop(self, member: Single | Rows) -> None:
        """Give up an environment in which something went wrong."""
        # The exception that led here is the one to report.
        with contextlib.suppress(Exception):
            member.close()

    def close(self) -> None:
        """Close the idle environments; where one raises an exception, after the others."""
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


def is_discrete(space: Any) -> bool:
    """Return whether a space of `observation_space` is Discrete."""
    return hasattr(space, "start") and np.ndim(space.start) == 0


class Episodes:
    """A block of running episodes: the states of a `GymnasiumBatch`.

    Attributes
    ----------
    observations : numpy.ndarray, shape (n, ...)
        The last of each episode; meaningless where it has ended.
    alive : numpy.ndarray of bool, shape (n,)
    sound : bool
        Whether all calls of environments returned; False while one runs, or after it raised.
    """

    def __init__(self, members: list[Single | Rows], seeds: list[int], n: int, space: Any) -> None:
        self.members = members
        self.seeds = seeds
        self.space = space
        self.alive = np.ones(n, dtype=bool)
        self.sound = True
        first = members[0]
        if isinstance(first, Rows):
            self.ended = np.zeros(first.width, dtype=bool)
            self.observations = first.reset(seeds[0])[:n]
        else:
            self.observations = np.empty((n, *space.shape), dtype=space.dtype)
            for row, (member, seed) in enumerate(zip(members, seeds, strict=True)):
                try:
                    self.observations[row] = member.reset(seed)[0]
                except Exception as error:
                    error.add_note(f"in reset(seed={seed})")
                    raise
        self.check_range()

    def check_range(self) -> None:
        """Refuse discrete observations outside their space."""
        if is_discrete(self.space):
            low, high = int(self.space.start), int(self.space.start) + int(self.space.n)
            seen = self.observations[self.alive]
            if seen.size and not (low <= seen.min() and seen.max() < high):
                raise ValueError(f"observation: expected one in [{low}, {high}), got {seen.min()} to {seen.max()}")

    def step(self, actions: NDArray[np.int64]) -> Array:
        """Step the episodes that have not ended; return the rewards (n,), 0 for those that had."""
        rewards = np.zeros(len(self.alive))
        if self.alive.any():
            self.sound = False
            first = self.members[0]
            if isinstance(first, Rows):
                self.step_rows(first, actions, rewards)
            else:
                self.step_singles(actions, rewards)
            self.check_range()
            self.sound = True
        return rewards

    def step_singles(self, actions: NDArray[np.int64], rewards: Array) -> None:
        """Step copies of an Env, one by one."""
        row = 0
        try:
            for row in np.flatnonzero(self.alive).tolist():
                member = self.members[row]
                outcome = member.env.step(int(actions[row]))
                observation, reward, terminated, truncated = four_of_five(outcome)
                rewards[row] = as_scalar("reward", reward)
                if as_flag("terminated", terminated) or as_flag("truncated", truncated):
                    self.alive[row] = False
                else:
                    self.observations[row] = member.seen(observation)
        except Exception as error:
            error.add_note(f"in episode {row} of the block, which began with reset(seed={self.seeds[row]})")
            raise

    def step_rows(self, rows: Rows, actions: NDArray[np.int64], rewards: Array) -> None:
        """Step the rows of a VectorEnv; those that have ended, or serve no episode, get any action."""
        n = len(self.alive)
        try:
            if rows.mode == "Disabled" and self.ended.any():
                rows.env.reset(options={"reset_mask": self.ended.copy()})
            every = np.full(rows.width, int(rows.action_space.start), dtype=rows.action_space.dtype)
            every[:n] = np.where(self.alive, actions, every[:n])
            observations, earned, terminated, truncated = four_of_five(rows.env.step(every))
        except Exception as error:
            error.add_note(f"in a block that began with reset(seed={self.seeds[0]})")
            raise
        self.observations = rows.seen(observations)[:n]
        rewards[self.alive] = as_shape("rewards", earned, (rows.width,))[:n][self.alive]
        self.ended = as_flags("terminations", terminated, rows.width) | as_flags("truncations", truncated, rows.width)
        self.alive = self.alive & ~self.ended[:n]


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


def first_of_two(outcome: Any) -> Any:
    """Return the observation of what `reset` returned."""
    if not isinstance(outcome, tuple) or len(outcome) != 2:
        raise TypeError(f"reset: expected (observation, info), got {type(outcome).__name__}")
    return outcome[0]


def four_of_five(outcome: Any) -> tuple[Any, Any, Any, Any]:
    """Return all but the info of what `step` returned."""
    if not isinstance(outcome, tuple) or len(outcome) != 5:
        got = f"a tuple of {len(outcome)}" if isinstance(outcome, tuple) else type(outcome).__name__
        raise TypeError(f"step: expected (observation, reward, terminated, truncated, info), got {got}")
    return outcome[:4]


def action_space(space: Any) -> Any:
    """Return a discrete action space; refuse others by name."""
    spaces = import_gymnasium().spaces
    if isinstance(space, spaces.Discrete):
        return space
    hint = "; continuous actions need a wrapper that offers a choice of them" if isinstance(space, spaces.Box) else ""
    raise TypeError(f"env: expected a Discrete action space, got {space}{hint}")


def observation_space(space: Any) -> Any:
    """Return an observation space whose observations stack into one array; refuse others by name."""
    spaces = import_gymnasium().spaces
    if isinstance(space, spaces.Box | spaces.Discrete | spaces.MultiDiscrete | spaces.MultiBinary):
        return space
    raise TypeError(
        f"env: expected observations in a Box, Discrete, MultiDiscrete or MultiBinary space, got {space}; "
        "gymnasium.wrappers.FlattenObservation makes a Box of most others"
    )
