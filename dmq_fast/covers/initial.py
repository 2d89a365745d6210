"""Initial policies of every cover: the uniform one of the paper, a random action sequence, or given ones."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from dmq_fast._support.checks import one_of
from dmq_fast.kernels import Stream
from dmq_fast.policy import Policy, check_policy
from dmq_fast.samplers import Sampler
from dmq_fast.samplers.streams import OWN_CALLS

__all__ = ["initial_policies"]

NAMES = ("uniform", "fixed")


def initial_policies(
    initial: str | Policy | Sequence[int] | Sequence[Sequence[int]], sampler: Sampler, stream: Stream, *, exact: bool
) -> tuple[Policy, ...]:
    """Return the first policies of every cover.

    Parameters
    ----------
    initial : {"uniform", "fixed"}, Policy, sequence of int, or sequence of sequences of int
        A name, a policy, or one or several action sequences.
    sampler : Sampler
        Sampler that the policies must fit.
    stream : Stream
        Key of the run, which draws the "fixed" sequence.
    exact : bool
        Whether the sampler can follow `ExactGreedy` rules.

    Raises
    ------
    TypeError, ValueError
        If `initial` is of another type, or does not fit the sampler.
    """
    if isinstance(initial, str):
        if one_of("initial", initial, NAMES) == "uniform":
            return (Policy.uniform(sampler.horizon),)
        actions = stream.at(OWN_CALLS).generator().integers(sampler.n_actions, size=sampler.horizon)
        return (Policy.fixed(actions),)
    if isinstance(initial, Policy):
        several: Sequence[Any] = [initial]
    elif is_sequence(initial):
        several = initial if len(initial) and all(map(is_sequence, initial)) else [initial]
    else:
        raise TypeError(f"initial: expected a name, sequences of actions or a Policy, got {initial!r}")
    policies = tuple(map(as_policy, several))
    for policy in policies:
        check_policy(sampler, policy, name="initial", exact=exact)
    return policies


def as_policy(initial: Any) -> Policy:
    """Return a policy itself, or the policy of a sequence of actions."""
    if isinstance(initial, Policy):
        return initial
    try:
        return Policy.fixed(np.asarray(initial, dtype=object))
    except ValueError as error:
        raise ValueError(f"initial: {error}") from error


def is_sequence(value: object) -> bool:
    """Return whether a value is a sequence, such as one of actions, and not text."""
    return isinstance(value, Sequence | np.ndarray) and not isinstance(value, str | bytes)
