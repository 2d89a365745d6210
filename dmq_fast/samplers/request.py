"""The arguments of `Sampler.collect_chunk`, checked; compiled rollouts check theirs in compiled code."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import NamedTuple

from dmq_fast.kernels import Rule, Stream
from dmq_fast.policy import Policy, Sizes, check_policy
from dmq_fast.samplers.streams import check_stream

__all__ = ["Request", "check_levels"]


class Request(NamedTuple):
    """The request of one call; `last` is the last level that matters, -1 if none does."""

    n: int
    rules: tuple[Rule, ...]
    levels: tuple[int, ...]
    returns_from: tuple[int, ...]
    last: int

    @classmethod
    def of(
        cls,
        sizes: Sizes,
        policy: Policy,
        n: int,
        rng: Stream,
        levels: Sequence[int],
        returns_from: Sequence[int],
        *,
        exact: bool = True,
    ) -> Request:
        """Check the arguments against the sizes of an environment or sampler.

        Parameters
        ----------
        sizes : FiniteMDP or Sampler
            Anything with `horizon`, `n_actions` and `dimension`.
        policy, rng, levels, returns_from
            Arguments of `Sampler.collect_chunk`.
        n : int
            Number of trajectories, checked already: its upper limit depends on the sampler.
        exact : bool, optional
            Whether `ExactGreedy` rules are accepted.

        Raises
        ------
        TypeError, ValueError
            If an argument is of another type or does not fit; the message names it.
        """
        check_policy(sizes, policy, exact=exact)
        check_stream("rng", rng)
        levels = check_levels("levels", levels, sizes.horizon)
        returns_from = check_levels("returns_from", returns_from, sizes.horizon)
        last = sizes.horizon - 1 if returns_from else max(levels, default=-1)
        return cls(n, policy.rules, levels, returns_from, last)


def check_levels(name: str, levels: Sequence[int], horizon: int) -> tuple[int, ...]:
    """Return levels as a tuple of integers; raise unless they ascend within [0, horizon). `name` is the argument."""
    try:
        checked = tuple(operator.index(level) for level in levels)
    except TypeError:
        raise TypeError(f"{name}: expected a sequence of integers, got {levels!r}") from None
    before = -1
    for level in checked:
        if not before < level < horizon:
            raise ValueError(f"{name}: expected ascending levels in [0, {horizon}), got {level} after {before}")
        before = level
    return checked
