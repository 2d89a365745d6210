"""`from_dm_env`: environments of dm_env's interface, without importing it."""

from __future__ import annotations

from typing import Any

import numpy as np

from dmq_fast._support.checks import declared
from dmq_fast.environments._look import Grids
from dmq_fast.environments.played import PlayedBatch, Step, as_scalar, own_limit
from dmq_fast.environments.views import Features, Looking, View, view_of_object, view_of_space
from dmq_fast.homogeneity import Homogeneous
from dmq_fast.rewards import ValueRange
from dmq_fast.spaces import Finite, Integer

__all__ = ["DmEnvBatch", "from_dm_env", "is_dm_env"]

SPECS = ("action_spec", "observation_spec", "reset", "step")

# Actions up to which an integer with a least and a largest value is one of few.
MOST_ACTIONS = 1024


class DmEnvBatch(PlayedBatch):
    """Episodes of a dm_env environment: a `BatchEnvironment`; see `from_dm_env`."""


def from_dm_env(
    env: Any,
    horizon: int | None = None,
    features: Features | Grids | None = None,
    *,
    history: str | None = None,
    value_range: ValueRange = None,
    noise: float | None = None,
    homogeneous: Homogeneous | None = None,
    name: str | None = None,
    hold: int | None = None,
) -> DmEnvBatch:
    """Return the episodes of a dm_env environment: a `BatchEnvironment`.

    Parameters
    ----------
    env : dm_env.Environment, or callable
        An environment, which is played itself and left open, or a function without arguments that makes one.
    horizon : int, optional
        Number of levels H. Default: an attribute `horizon` or `max_episode_steps` of the environment.
    features : callable, optional
        From observations (n, ...) to features (n, d) of norm at most 1; where an observation is no array, from an array
        of n objects. Default: one-hot for a ``DiscreteArray``; up to 16 real numbers that ten episodes of uniform play
        hardly ever show twice are interpolated on grids; all else is one-hot by appearance, `features.Seen`.
    history : {"first"}, optional
        Join the first observation of an episode to each.
    value_range, noise, homogeneous : optional
        Instead of attributes of these names of the environment. A range of single rewards, as a ``reward_spec`` may
        have it, is used where H = 1; times the number of steps it is mostly far too wide.
    name : str, optional
        Default: the name of the class.
    hold : int, optional
        Steps of a level, in which its action is held. Default: see `GymnasiumBatch`.

    Raises
    ------
    TypeError, ValueError
        If actions are no single integer, or an argument is out of range; the message names it.

    Notes
    -----
    dm_env has no seeds: a run in such an environment can be recorded, but not repeated. One episode is played after
    the other, in the calling thread. A resumed run has its episodes from the journal and goes on with new ones. Grids
    of a second look would be others, so give features to a run in real numbers that is to be resumed.

    Examples
    --------
    >>> from types import SimpleNamespace as Space
    >>> class Coin:  # as dm_env has it
    ...     def action_spec(self):
    ...         return Space(num_values=2, minimum=0)
    ...
    ...     def observation_spec(self):
    ...         return Space(shape=(1,))
    ...
    ...     def reset(self):
    ...         return Space(observation=np.zeros(1), reward=None, last=lambda: False)
    ...
    ...     def step(self, action):
    ...         return Space(observation=np.zeros(1), reward=float(action), last=lambda: True)
    >>> import dmq_fast as dmq
    >>> result = dmq.learn(from_dm_env(Coin(), horizon=1, value_range=(0, 1)), rng=0)
    >>> result.status, result.policy.act_on(0, np.zeros(1))
    ('finished', 1)
    """
    given_object = is_dm_env(env)
    if not given_object and not callable(env):
        raise TypeError(f"env: expected a dm_env environment or a function that makes one, got {env!r:.80}")
    made = env if given_object else env()
    if not is_dm_env(made):
        raise TypeError(f"env: expected a function that makes a dm_env environment, got {made!r:.80} from it")
    limit = own_limit(made)
    first = Steps(made, own=not given_object)
    spec = made.observation_spec()

    def view(features: Features | Grids | None, paired: bool, look: Looking) -> View:
        if hasattr(spec, "num_values"):
            return view_of_space(AsDiscrete(spec), features, paired, look)
        low, high = getattr(spec, "minimum", -np.inf), getattr(spec, "maximum", np.inf)
        return view_of_object(first.reset(None), features, paired, look, low, high)

    value_range = declared("value_range", value_range, made)
    if value_range is None and (limit if horizon is None else horizon) == 1:
        value_range = range_of(made)
    return DmEnvBatch(
        Again(env, given_object),
        first,
        view,
        actions_of_spec(made.action_spec()),
        horizon,
        limit,
        features,
        history=history,
        value_range=value_range,
        noise=declared("noise", noise, made),
        homogeneous=declared("homogeneous", homogeneous, made),
        seeded=False,
        copies=1,
        name=type(getattr(made, "raw_env", made)).__name__ if name is None else name,
        hold=hold,
    )


def is_dm_env(source: object) -> bool:
    """Return whether something has the interface of dm_env's environments; dm_env is not imported for that."""
    return not isinstance(source, type) and all(callable(getattr(source, name, None)) for name in SPECS)


def actions_of_spec(spec: Any) -> Finite:
    """Return the actions of a spec of a single integer; TypeError for others."""
    low: Any = getattr(spec, "minimum", 0)
    high: Any = getattr(spec, "maximum", None)
    if hasattr(spec, "num_values"):
        return Integer(int(spec.num_values), int(low))
    single = getattr(spec, "shape", None) == () and high is not None and np.dtype(spec.dtype).kind in "iu"
    if single and int(high) - int(low) < MOST_ACTIONS:
        return Integer(int(high) - int(low) + 1, int(low))
    raise TypeError(
        f"env: expected actions that are one integer of few, got {spec!r:.200}; others need a wrapper that offers a "
        "choice of them"
    )


class AsDiscrete:
    """A spec of one integer, with the attributes of Gymnasium's Discrete."""

    shape: tuple[int, ...] = ()

    def __init__(self, spec: Any) -> None:
        self.n, self.start, self.dtype = int(spec.num_values), int(getattr(spec, "minimum", 0)), np.dtype(np.int64)


def range_of(env: Any) -> tuple[float, float] | None:
    """Return the least and the largest reward of a step, if the environment's spec has finite ones."""
    spec = env.reward_spec() if callable(getattr(env, "reward_spec", None)) else None
    low, high = (np.asarray(getattr(spec, name, np.nan), dtype=np.float64) for name in ("minimum", "maximum"))
    fits = low.ndim == high.ndim == 0 and np.isfinite(low) and np.isfinite(high) and low < high
    return (float(low), float(high)) if fits else None


class Steps:
    """A dm_env environment, for one episode at a time."""

    width = 0

    def __init__(self, env: Any, own: bool) -> None:
        self.env, self.own = env, own

    def reset(self, seed: int | None) -> Any:
        """Start over; return the first observation."""
        return self.env.reset().observation

    def step(self, action: Any) -> Step:
        """Take an action; return what came."""
        step = self.env.step(action)
        if step.reward is None:
            raise TypeError("step: expected a reward, got none, as if the episode had begun anew")
        return Step(step.observation, as_scalar("reward", step.reward), bool(step.last()))

    def close(self) -> None:
        """Close the environment, if it was made here and can be closed."""
        if self.own and callable(close := getattr(self.env, "close", None)):
            close()


class Again:
    """Makes members: with the environment itself, or another one of the function's."""

    def __init__(self, given: Any, is_object: bool) -> None:
        self.given, self.is_object = given, is_object

    def __call__(self) -> Steps:
        """Make a member."""
        return Steps(self.given if self.is_object else self.given(), own=not self.is_object)
