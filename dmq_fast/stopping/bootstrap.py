"""`Bootstrap`: how much the data of a self-stopping run leave open, by fits to reweighted episodes.

A number of refits shows the quantile 1 - delta of their law only if it exceeds 1 / delta by far. So below `LEVEL` the
weights get a larger spread instead: refits then differ from the fit by more, in the ratio of the quantiles of a normal
law, and their quantile 1 - `LEVEL` is taken.
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from dmq_fast.kernels import OptimisticPlanner, Stream
from dmq_fast.samplers.streams import OWN_CALLS
from dmq_fast.stopping.aim import Aim
from dmq_fast.stopping.tuning import Tuning

__all__ = ["Bootstrap"]

Floats = NDArray[np.float64]

LEVEL = 0.05
"""The smallest share of the refits that may object."""


class Bootstrap:
    """The Bayesian bootstrap over the episodes of a run: each counts with a weight Exp(1) (Rubin, 1981).

    For delta below `LEVEL` the weights are Gamma variables of mean 1 and a larger standard deviation.

    Parameters
    ----------
    planner : OptimisticPlanner
        Holds the episodes.
    aim : Aim
    tuning : Tuning
    stream : Stream
        Key of the run. Draws of the bootstrap use the calls from `OWN_CALLS` on.

    Attributes
    ----------
    spread : float
        Standard deviation of the weights.
    """

    def __init__(self, planner: OptimisticPlanner, aim: Aim, tuning: Tuning, stream: Stream) -> None:
        self.planner, self.aim, self.tuning, self.stream = planner, aim, tuning, stream
        normal = NormalDist()
        self.spread = max(1.0, normal.inv_cdf(aim.delta) / normal.inv_cdf(LEVEL))
        self._call = OWN_CALLS

    def generator(self) -> np.random.Generator:
        """Return a generator for the draws of one question, another one each time; replays get the same ones."""
        generator = self.stream.at(self._call).generator()
        self._call += 1
        return generator

    def weights(self, rng: np.random.Generator) -> Floats:
        """Return a weight for each episode, with the mean 1 and the standard deviation `spread`."""
        shape = self.spread**-2
        return rng.standard_gamma(shape, self.planner.n_episodes) / shape

    def refits(self, rng: np.random.Generator, *, returns: bool = False) -> list[Floats]:
        """Return `tuning.refits` estimates, (H, K, d) each, fitted to rewards plus values, or to returns."""
        near = self.tuning.near * self.aim.epsilon
        return [self.planner.refit(self.weights(rng), returns, near) for _ in range(self.tuning.refits)]

    def upper(self, numbers: Sequence[float] | Floats) -> float:
        """Return the (1 - delta)-quantile of a number that each refit gave, where the spread allows for small delta."""
        return float(np.quantile(numbers, 1 - max(self.aim.delta, LEVEL)))
