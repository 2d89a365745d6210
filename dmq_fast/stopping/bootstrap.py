"""`Bootstrap`: how much the data of a self-stopping run leave open, by fits to reweighted episodes."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from dmq_fast.kernels import OptimisticPlanner, Stream
from dmq_fast.samplers.streams import OWN_CALLS
from dmq_fast.stopping.aim import Aim
from dmq_fast.stopping.tuning import Tuning

__all__ = ["Bootstrap"]

Floats = NDArray[np.float64]


class Bootstrap:
    """The Bayesian bootstrap over the episodes of a run: each counts with a weight Exp(1) (Rubin, 1981).

    Parameters
    ----------
    planner : OptimisticPlanner
        Holds the episodes.
    aim : Aim
    tuning : Tuning
    stream : Stream
        Key of the run. Draws of the bootstrap use the calls from `OWN_CALLS` on.
    """

    def __init__(self, planner: OptimisticPlanner, aim: Aim, tuning: Tuning, stream: Stream) -> None:
        self.planner, self.aim, self.tuning, self.stream = planner, aim, tuning, stream
        self._call = OWN_CALLS

    def generator(self) -> np.random.Generator:
        """Return a generator for the draws of one question, another one each time; replays get the same ones."""
        generator = self.stream.at(self._call).generator()
        self._call += 1
        return generator

    def weights(self, rng: np.random.Generator) -> Floats:
        """Return a weight for each episode."""
        return rng.standard_exponential(self.planner.n_episodes)

    def refits(self, rng: np.random.Generator, *, returns: bool = False) -> list[Floats]:
        """Return `tuning.refits` estimates, (H, K, d) each, fitted to rewards plus values, or to returns."""
        near = self.tuning.near * self.aim.epsilon
        return [self.planner.refit(self.weights(rng), returns, near) for _ in range(self.tuning.refits)]

    def upper(self, numbers: Sequence[float] | Floats) -> float:
        """Return the (1 - delta)-quantile of a number that each refit gave."""
        return float(np.quantile(numbers, 1 - self.aim.delta))
