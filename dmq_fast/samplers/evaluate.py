"""The value of a policy from trajectories, where no table of the environment gives it exactly."""

from __future__ import annotations

from collections.abc import Iterable
from math import sqrt
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dmq_fast._support.arguments import integer
from dmq_fast.kernels import Stream
from dmq_fast.policy import Policy
from dmq_fast.samplers.base import Sampler

__all__ = ["Estimate", "estimate", "estimate_value"]


class Estimate(NamedTuple):
    """Mean return of n trajectories and its standard error (NaN for n = 1)."""

    value: float
    standard_error: float
    n: int


def estimate(blocks: Iterable[NDArray[np.float64]]) -> Estimate:
    """Return mean and standard error of the returns in all blocks together."""
    n, mean, spread = 0, 0.0, 0.0
    for y in blocks:
        # Chan's update: nothing cancels where all returns are about the same.
        center = float(y.mean())
        delta = center - mean
        spread += float(((y - center) ** 2).sum()) + delta**2 * n * len(y) / (n + len(y))
        n += len(y)
        mean += delta * len(y) / n
    return Estimate(mean, sqrt(spread / (n - 1) / n) if n > 1 else float("nan"), n)


def estimate_value(sampler: Sampler, policy: Policy, n: int, *, stream: Stream) -> Estimate:
    """Estimate the value of `policy` from n >= 1 trajectories of the call that `stream` stands for.

    By the sampler's own method `evaluate` (policy, n, stream) where it has one. Otherwise trajectory i is drawn alone
    on ``stream.at(stream.call, i)``, since moments hold the sum of squared returns only: of one trajectory that is
    its return, which is not negative. A sampler that returns expectations instead of trajectories has no use for this.
    """
    n = integer("n", n, 1)
    own = getattr(sampler, "evaluate", None)
    if own is not None:
        answer: Estimate = own(policy, n, stream=stream)
        return answer

    def alone(i: int) -> NDArray[np.float64]:
        position = stream.at(stream.call, i)
        moments = sampler.collect_chunk(policy, 1, rng=position, levels=(), returns_from=(0,))
        return np.array([sqrt(moments.returns[0].square)])

    return estimate(alone(i) for i in range(n))
