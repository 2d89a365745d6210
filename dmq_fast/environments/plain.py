"""`from_object`: any object with `reset` and `step`, without a library of environments."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Mapping
from typing import Any

import numpy as np

from dmq_fast._support.checks import declared
from dmq_fast.environments._look import Grids
from dmq_fast.environments.played import COPIES, PlayedBatch, Step, as_flag, as_scalar, own_limit
from dmq_fast.environments.views import Features, Looking, View, actions_of, view_of_object, view_of_space
from dmq_fast.homogeneity import Homogeneous
from dmq_fast.rewards import ValueRange
from dmq_fast.spaces import Finite, Integer

__all__ = ["ObjectBatch", "from_object", "is_object"]

SEEDING = ("seed", "rng")
"""Arguments of `reset` that fix what is random: an integer, or a generator of NumPy's."""


class ObjectBatch(PlayedBatch):
    """Episodes of an object of `from_object`: a `BatchEnvironment`."""


def from_object(
    env: Any,
    horizon: int | None = None,
    features: Features | Grids | None = None,
    *,
    history: str | None = None,
    value_range: ValueRange = None,
    noise: float | None = None,
    homogeneous: Homogeneous | None = None,
    copies: int = COPIES,
    name: str | None = None,
    hold: int | None = None,
) -> ObjectBatch:
    """Return the episodes of an object with `reset` and `step`: a `BatchEnvironment`.

    The object needs

    - ``reset()``, which starts an episode and returns the first observation, or a tuple of it and a dict;
    - ``step(action)``, which returns (observation, reward, done), (observation, reward, done, info), or (observation,
      reward, terminated, truncated, info);
    - ``n_actions``, the number of its actions 0, 1, ..., or an ``action_space`` of Gymnasium's, old or new.

    It may have

    - ``horizon`` or ``max_episode_steps``, the number of levels, which otherwise is to be given;
    - ``reset(seed=...)`` with an int, ``reset(rng=...)`` with a generator of NumPy's, or a method ``seed(int)``. Each
      then fixes all that is random up to the next reset, so that runs can be repeated, and episodes are played in
      copies. Without, one episode is played after the other in the object itself, and runs cannot be repeated;
    - ``observation_space``, of Gymnasium's. Without, observations are numbers, texts, arrays, or tuples, lists and
      dicts of them;
    - ``value_range``, ``noise`` and ``homogeneous``, as any environment; ``name``; and ``close()``;
    - for pictures: ``desc``, a map with a letter for each cell, or ``shape``, (rows, columns), where observations are
      numbers row by row or pairs (row, column); ``arrows``, a letter for each action such as "^>v<"; and
      ``observation_names`` of observed numbers.

    Parameters
    ----------
    env : object, or callable
        The object, which is left open; or a function without arguments that makes one.
    horizon : int, optional
        Number of levels H. Default: what the object says.
    features : callable, optional
        From n observations to features (n, d) of norm at most 1: an array (n, ...) of numbers, otherwise an array of n
        objects. Default: as for `GymnasiumBatch` with an `observation_space`; else arrays of up to 16 real numbers that
        ten episodes of uniform play hardly ever show twice are interpolated on grids, and all else is one-hot by
        appearance, `features.Seen`.
    history : {"first"}, optional
        Join the first observation of an episode to each.
    value_range, noise, homogeneous : optional
        Instead of what the object declares.
    copies : int, default 256
        Episodes of a block, where `reset` takes a seed.
    name : str, optional
        Default: its `name`, or that of its class.
    hold : int, optional
        Steps of a level, in which its action is held. Default: see `GymnasiumBatch`.

    Raises
    ------
    TypeError, ValueError
        If the object lacks something; the message says what to write.

    Examples
    --------
    >>> import dmq_fast as dmq
    >>> class Walk:
    ...     n_actions, horizon, value_range = 2, 4, (0, 1)
    ...
    ...     def reset(self):
    ...         self.place = 0
    ...         return self.place
    ...
    ...     def step(self, action):
    ...         self.place += action
    ...         return self.place, float(self.place == 3), self.place == 3
    >>> result = dmq.learn(Walk(), rng=0)
    >>> result.status, [result.policy.act_on(level, level) for level in range(3)]
    ('finished', [1, 1, 1])
    """
    given_object = is_object(env)
    if not given_object and not callable(env):
        raise TypeError(f"env: expected an object with reset and step, or a function that makes one, got {env!r:.80}")
    made = env if given_object else env()
    if not is_object(made):
        raise TypeError(f"env: expected a function that makes an object with reset and step, got {made!r:.80} from it")
    inside = getattr(made, "unwrapped", made)
    seeding = seeding_of(made)
    first = Played(made, seeding)
    space = getattr(made, "observation_space", None)

    def view(features: Features | Grids | None, paired: bool, look: Looking) -> View:
        if space is not None:
            return view_of_space(space, features, paired, look)
        return view_of_object(first.reset(None if seeding is None else 0), features, paired, look)

    return ObjectBatch(
        Maker(env, given_object, seeding),
        first,
        view,
        actions_of_object(made),
        horizon,
        own_limit(made),
        features,
        history=history,
        value_range=declared("value_range", value_range, inside),
        noise=declared("noise", noise, inside),
        homogeneous=declared("homogeneous", homogeneous, inside),
        seeded=seeding is not None,
        copies=copies,
        name=str(getattr(inside, "name", None) or type(inside).__name__) if name is None else name,
        hold=hold,
    )


def is_object(source: object) -> bool:
    """Return whether something is an object, and no class, with `reset` and `step`."""
    return not isinstance(source, type) and all(callable(getattr(source, name, None)) for name in ("reset", "step"))


def actions_of_object(env: Any) -> Finite:
    """Return the actions of an object; TypeError if it does not say how many there are, or they are too many."""
    n_actions, space = getattr(env, "n_actions", None), getattr(env, "action_space", None)
    if isinstance(n_actions, int | np.integer) and not isinstance(n_actions, bool) and n_actions >= 1:
        return Integer(int(n_actions))
    if space is not None and n_actions is None:
        return actions_of(space)
    got = f"n_actions = {n_actions!r:.40}" if n_actions is not None else "neither"
    raise TypeError(
        f"env: expected n_actions, the number of actions 0, 1, ..., or an action_space in {type(env).__name__}, "
        f"got {got}"
    )


def seeding_of(env: Any) -> str | None:
    """Return how an object takes a seed: "seed" or "rng" as an argument of reset, "method", or not at all."""
    resets = [env.reset, getattr(getattr(env, "unwrapped", env), "reset", env.reset)]
    for reset in resets:
        try:
            parameters = inspect.signature(reset).parameters.values()
        except (TypeError, ValueError):  # it is compiled, and does not tell
            continue
        named = {one.name for one in parameters if one.kind in (one.POSITIONAL_OR_KEYWORD, one.KEYWORD_ONLY)}
        for name in SEEDING:
            if name in named:
                return name
        if not any(one.kind == one.VAR_KEYWORD for one in parameters):
            break
    return "method" if callable(getattr(env, "seed", None)) else None


class Played:
    """An object with reset and step, for one episode at a time."""

    width = 0

    def __init__(self, env: Any, seeding: str | None, own: bool = False) -> None:
        self.env, self.seeding, self.own = env, seeding, own

    def reset(self, seed: int | None) -> Any:
        """Start over; return the first observation."""
        if self.seeding == "seed":
            outcome = self.env.reset(seed=seed)
        elif self.seeding == "rng":
            outcome = self.env.reset(rng=np.random.default_rng(seed))
        else:
            if self.seeding == "method":
                self.env.seed(seed)
            outcome = self.env.reset()
        with_info = isinstance(outcome, tuple) and len(outcome) == 2 and isinstance(outcome[1], Mapping)
        return outcome[0] if with_info else outcome

    def step(self, action: Any) -> Step:
        """Take an action; return what came."""
        outcome = self.env.step(action)
        if not isinstance(outcome, tuple | list) or len(outcome) not in (3, 4, 5):
            got = f"a tuple of {len(outcome)}" if isinstance(outcome, tuple | list) else type(outcome).__name__
            raise TypeError(
                "step: expected (observation, reward, done), (observation, reward, done, info) or (observation, "
                f"reward, terminated, truncated, info), got {got}"
            )
        ended = as_flag("done" if len(outcome) < 5 else "terminated", outcome[2])
        if len(outcome) == 5:
            ended = as_flag("truncated", outcome[3]) or ended
        return Step(outcome[0], as_scalar("reward", outcome[1]), ended)

    def close(self) -> None:
        """Close the object, if it was made here and can be closed."""
        if self.own and callable(close := getattr(self.env, "close", None)):
            close()


class Maker:
    """Makes members: copies of an object that takes seeds, the object itself otherwise, or what a function makes."""

    def __init__(self, given: Any, is_object: bool, seeding: str | None) -> None:
        self.given, self.is_object, self.seeding = given, is_object, seeding

    def __call__(self) -> Played:
        """Make a member."""
        if not self.is_object:
            return Played(self.given(), self.seeding, own=True)
        if self.seeding is None:
            return Played(self.given, None)
        try:
            return Played(copy.deepcopy(self.given), self.seeding, own=True)
        except Exception as error:
            raise TypeError(
                f"env: this {type(self.given).__name__} cannot be copied ({error}); give a function that makes it"
            ) from error
