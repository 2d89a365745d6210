"""Any Gymnasium environment with discrete actions, advanced through its own `step`.

Gymnasium itself is imported only where an object is made.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dmq_fast._support.checks import declared, integer
from dmq_fast.environments._look import Grids
from dmq_fast.environments.gym.tables import import_gymnasium, make_environment, scalar_arguments
from dmq_fast.environments.played import (
    COPIES,
    PlayedBatch,
    Step,
    as_flag,
    as_flags,
    as_scalar,
    as_shape,
    own_limit,
)
from dmq_fast.environments.views import Features, actions_of, view_of_space
from dmq_fast.homogeneity import Homogeneous
from dmq_fast.observing import ArrayForm, Form, observed
from dmq_fast.rewards import ValueRange

__all__ = ["GymnasiumBatch"]

Array = NDArray[np.float64]


class GymnasiumBatch(PlayedBatch):
    """Episodes of a Gymnasium environment, cut or prolonged to `horizon` levels: a `BatchEnvironment`.

    An episode that ends before the horizon, terminated or truncated (a `TimeLimit` shorter than the horizon
    included), is absorbed: from then on its features are 0, and it earns nothing. Rewards are the environment's own.

    Parameters
    ----------
    env : str, gymnasium.Env, gymnasium.vector.VectorEnv, or callable
        An id for ``gymnasium.make``; an environment; or a function without arguments that makes one. Episodes of a
        block run in copies of an `Env` or in the rows of a `VectorEnv`, in any autoreset mode; these are made
        again from id or function, and by ``copy.deepcopy`` from an object.
    horizon : int, optional
        Number of levels H. Default: the environment's own limit of steps, if it has one.
    features : callable, optional
        From observations (n, ...) to features (n, d) of norm at most 1; of a Tuple or Dict it gets an array of n
        objects. Default: one-hot, for integers and spaces of up to 4,096 elements by their numbers, for larger finite
        ones, arrays of integers and texts by appearance (`features.Seen`); up to 16 real numbers in a Box are
        interpolated on grids that ten episodes of uniform play choose, in which Q* is only nearly linear.
    value_range : pair of float, array_like of shape (H, 2) or "seen", optional
        Bounds of what can still be earned from a level on, (low, high) or one such pair a level. Default: an attribute
        `value_range` of the environment, else unknown: algorithms that need a range take that of the returns that
        they see.
    noise : float, optional
        Standard deviation of the noise of rewards around their means, if they are noisy. Default: an attribute `noise`
        of the environment.
    make : mapping, optional
        Arguments of ``gymnasium.make`` beside the id.
    copies : int, default 256
        Episodes of a block of copies. Another number draws other episodes.
    name : str, optional
        Name of the environment. Default: its id where there is one.
    history : {"first"}, optional
        Join the first observation of an episode to each: arrays along their first axis, others as pairs.
    homogeneous : bool or sequence of int, optional
        Whether all levels are the same. Default: an attribute `homogeneous` of the environment, else True unless its
        own limit of steps ends episodes before the horizon.
    hold : int, optional
        Steps of a level, in which its action is held; the reward of the level is their sum. Who follows a learned
        policy holds its actions, too. Default: 1; on grids that uniform play chooses, in all steps that the environment
        allows, 2 from a limit of 100 steps on, and more above 500.

    Attributes
    ----------
    horizon, n_actions, dimension : int
        H, K and d. Actions count from 0 whatever the space starts at; combinations of a MultiDiscrete, MultiBinary,
        Tuple or Dict space, up to 256, have numbers in lexicographic order.
    chunk_size : int
        Episodes of a block: `copies`, or the rows of a `VectorEnv`.
    value_range : numpy.ndarray of shape (H, 2), or None
    noise : float or None
    homogeneous : bool or sequence of int
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
        horizon: int | None = None,
        features: Features | Grids | None = None,
        *,
        value_range: ValueRange = None,
        noise: float | None = None,
        make: Mapping[str, Any] | None = None,
        copies: int = COPIES,
        name: str | None = None,
        history: str | None = None,
        homogeneous: Homogeneous | None = None,
        hold: int | None = None,
    ) -> None:
        if make is not None and not isinstance(env, str):
            raise ValueError("make: expected an id in env with it; a function or an object is made already")
        self._source = Source(env, dict(make or {}))
        if horizon is not None:
            integer("horizon", horizon, 1)
        first = self._source.episodes()
        try:
            inside = getattr(first.env, "unwrapped", first.env)
            spec = getattr(first.env, "spec", None)
            limit = own_limit(first.env)
            self._spaces = first.observation_space, first.action_space
            own_name = getattr(spec, "id", None) or type(inside).__name__
            super().__init__(
                self._source.episodes,
                first,
                partial(view_of_space, first.observation_space),
                actions_of(first.action_space),
                horizon,
                limit,
                features,
                history=history,
                value_range=declared("value_range", value_range, inside),
                noise=declared("noise", noise, inside),
                homogeneous=homogeneous,
                seeded=True,
                copies=copies,
                name=str(own_name if name is None else name),
                hold=hold,
            )
        except BaseException:
            first.close()
            raise
        if homogeneous is None:
            whole = limit is None or limit > (self.horizon - 1) * self.hold  # no level comes after the limit
            self.homogeneous = getattr(inside, "homogeneous", whole)
        self.parameters |= scalar_arguments(spec) if make is None else make

    def _described(self) -> dict[str, Any]:
        """Describe observations and actions by their spaces."""
        observations, actions = self._spaces
        return {"observations": str(observations), "actions": str(actions)}


class Single:
    """An `Env`, for one episode at a time."""

    width = 0

    def __init__(self, env: Any) -> None:
        self.env = env
        self.action_space = env.action_space
        self.observation_space = env.observation_space

    def reset(self, seed: int | None) -> Any:
        """Start over; return the observation."""
        return first_of_two(self.env.reset(seed=seed))

    def step(self, action: Any) -> Step:
        """Take an action; return what came."""
        observation, reward, terminated, truncated = four_of_five(self.env.step(action))
        earned = as_scalar("reward", reward)
        ended = as_flag("terminated", terminated)
        return Step(observation, earned, as_flag("truncated", truncated) or ended)

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

    def reset(self, seed: int | None) -> Any:
        """Start all rows over; return the observations of all rows."""
        return first_of_two(self.env.reset(seed=seed))

    def kept(self, observations: Any, firsts: Any, form: Form) -> NDArray[Any]:
        """Return the observations of all rows as they are kept, after the first ones where those are given."""
        if isinstance(form, ArrayForm):
            shape = (self.width, *form.single)
            parts = (observations,) if firsts is None else (firsts, observations)
            arrays = tuple(observed("observations", part, shape, form.dtype) for part in parts)
            return arrays[0] if firsts is None else form.block(arrays)[0]
        utils, space = import_gymnasium().vector.utils, self.env.observation_space
        each = list(utils.iterate(space, observations))
        if firsts is not None:
            each = list(zip(utils.iterate(space, firsts), each, strict=True))
        kept = np.empty(self.width, dtype=form.dtype)
        for row, one in enumerate(each):
            kept[row] = form.keep(one)
        return kept

    def step(self, actions: list[Any], ended: NDArray[np.bool_]) -> tuple[Any, Array, NDArray[np.bool_]]:
        """Step all rows; return observations, rewards, and which end."""
        if self.mode == "Disabled" and ended.any():
            self.env.reset(options={"reset_mask": ended.copy()})
        utils = import_gymnasium().vector.utils
        space = self.action_space
        every = utils.concatenate(space, actions, utils.create_empty_array(space, self.width))
        observations, earned, terminated, truncated = four_of_five(self.env.step(every))
        rewards = as_shape("rewards", earned, (self.width,))
        ends = as_flags("terminations", terminated, self.width) | as_flags("truncations", truncated, self.width)
        return observations, rewards, ends

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
