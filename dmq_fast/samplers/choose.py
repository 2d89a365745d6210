"""`as_sampler`: the sampler for an environment."""

from __future__ import annotations

from typing import Any

from dmq_fast._support.checks import integer
from dmq_fast.environments.compiled import CompiledEnv
from dmq_fast.environments.finite import FiniteMDP
from dmq_fast.environments.sources import as_environment, is_source
from dmq_fast.rewards import RewardModel, ValueRange
from dmq_fast.samplers.base import Sampler
from dmq_fast.samplers.batch import REQUIRED, BatchEnvironment, BatchSampler, missing_members
from dmq_fast.samplers.rollout import RolloutSampler

__all__ = ["as_sampler"]

SIZES = ("horizon", "n_actions", "dimension")


def as_sampler(
    source: Any,
    value_range: ValueRange = None,
    noise: float | None = None,
) -> Sampler:
    """Return `source` itself if it is a sampler, or a sampler that simulates it if it is an environment.

    Parameters
    ----------
    source : FiniteMDP, CompiledEnv, BatchEnvironment, Sampler, or what stands for one
        What `environments.as_environment` takes.
    value_range : pair of float, array_like of shape (H, 2) or "seen", optional
        What the rewards from a level on can add up to, instead of what the source declares; see `RewardModel`.
    noise : float, optional
        Standard deviation of the noise of rewards around their means, instead of what the source declares.

    Raises
    ------
    TypeError, ValueError
        If it is neither, or a sampler whose `horizon`, `n_actions` or `dimension` is missing or no positive integer, or
        if a range or noise is of another form.

    Examples
    --------
    >>> import dmq_fast as dmq
    >>> type(as_sampler(dmq.environments.chain(horizon=5))).__name__
    'RolloutSampler'
    """
    sampler = chosen(source)
    return sampler if value_range is None and noise is None else checked(sampler.declaring(value_range, noise))


def chosen(source: object) -> Sampler:
    """Return the sampler for a source."""
    if isinstance(source, FiniteMDP | CompiledEnv):
        return RolloutSampler(source)
    if isinstance(source, Sampler):
        return checked(source)
    if isinstance(source, BatchEnvironment) and not isinstance(source, type):
        return BatchSampler(source)
    if is_source(source):
        return chosen(as_environment(source))
    raise TypeError(
        f"env: expected a FiniteMDP, a CompiledEnv, a BatchEnvironment or a Sampler, got {description(source)}"
    )


def checked(sampler: Sampler) -> Sampler:
    """Return a sampler whose sizes are positive integers."""
    for name in SIZES:
        if not hasattr(sampler, name):
            raise TypeError(f"env: expected a sampler that sets {name}, got {type(sampler).__name__}")
        integer(f"env.{name}", getattr(sampler, name), 1)
    if not isinstance(sampler.rewards, RewardModel):
        raise TypeError(f"env: expected a RewardModel as the sampler's rewards, got {sampler.rewards!r}")
    return sampler


def resembles_sampler(source: object) -> bool:
    """Return whether an object has the method that every sampler has."""
    return callable(getattr(source, "collect_chunk", None))


def description(source: object) -> str:
    """Describe an object that is neither sampler nor environment, and how to make it one where that is clear."""
    name = type(source).__name__
    if resembles_sampler(source):
        return f"{name}, which has collect_chunk but is no sampler; derive its class from dmq_fast.samplers.Sampler"
    missing = missing_members(source)
    if len(missing) < len(REQUIRED):
        return f"{name}, which is no BatchEnvironment: it lacks {', '.join(missing)}"
    return name
