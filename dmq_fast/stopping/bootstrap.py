"""`Bootstrap`: how much the data of a self-stopping run leave open, by fits to reweighted episodes.

A number of refits shows the quantile 1 - delta of their law only if it exceeds 1 / delta by far. So below `LEVEL` the
weights get a larger spread instead: refits then differ from the fit by more, in the ratio of the quantiles of a normal
law, and their quantile 1 - `LEVEL` is taken.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from dmq_fast.kernels import OptimisticPlanner, Stream, greedy_actions
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
    noisy_rewards : bool
        Whether rewards are means plus noise.
    """

    def __init__(self, planner: OptimisticPlanner, aim: Aim, tuning: Tuning, stream: Stream) -> None:
        self.planner, self.aim, self.tuning, self.stream = planner, aim, tuning, stream
        normal = NormalDist()
        self.spread = max(1.0, normal.inv_cdf(aim.delta) / normal.inv_cdf(LEVEL))
        self.noisy_rewards = False
        self._call = OWN_CALLS

    def generator(self) -> np.random.Generator:
        """Return a generator for the draws of one question, another one each time; replays get the same ones."""
        generator = self.stream.at(self._call).generator()
        self._call += 1
        return generator

    def weights(self, rng: np.random.Generator, n: int) -> Floats:
        """Return n random weights, with the mean 1 and the standard deviation `spread`."""
        shape = self.spread**-2
        return rng.standard_gamma(shape, n) / shape

    def refits(self, rng: np.random.Generator, theta: Floats) -> list[Floats]:
        """Return `tuning.refits` estimates, (H, K, d) each, fitted to rewards plus values.

        In the mode "many" they imagine one visit more of every pair that was tried, but for the actions that are greedy
        on theta: k outcomes in n visits then count like a Gamma(k + 1) variable. With features that overlap, the
        imagined visits of an action weigh as much together as there are directions.
        """
        n, times = self.planner.n_episodes, range(self.tuning.refits)
        if not self.aim.imagines:
            return [self.planner.refit(self.weights(rng, n), normals=self.normals(rng)) for _ in times]
        shares = self.shares(theta)
        return [
            self.planner.refit(
                self.weights(rng, n), imagined=shares * self.weights(rng, len(shares)), normals=self.normals(rng)
            )
            for _ in times
        ]

    def refits_to_returns(self, rng: np.random.Generator) -> Iterator[Floats]:
        """Yield `tuning.refits` estimates, (H, K, d) each, fitted to returns."""
        n, near = self.planner.n_episodes, self.tuning.near * self.aim.epsilon
        for _ in range(self.tuning.refits):
            yield self.planner.refit(self.weights(rng, n), True, near, normals=self.normals(rng))

    def normals(self, rng: np.random.Generator) -> Floats | None:
        """Return normal numbers (H, n_episodes) of standard deviation `spread` where rewards are noisy, else None.

        The bootstrap of a mean of n values lacks 1/n of its variance, and all of it for n = 1.
        """
        if not self.noisy_rewards:
            return None
        return self.spread * rng.standard_normal((self.planner.horizon, self.planner.n_episodes))

    def shares(self, theta: Floats) -> Floats:
        """Return mean weights of imagined visits, of every row and action by level: the leverage times the visits."""
        planner = self.planner
        rows, actions, _ = planner.recorded(np.arange(planner.n_episodes))
        shares, labels = [], np.array(planner.groups)
        for h in range(planner.horizon):
            leverages = planner.table(h)[0]
            alike = labels == labels[h]  # levels that share their data
            pairs = (rows[:, alike] * planner.n_actions + actions[:, alike]).ravel()
            visits = np.bincount(pairs, minlength=leverages.size).reshape(leverages.shape)
            share = np.where(visits > 0, np.minimum(1.0, visits * leverages), 0.0)
            share[np.arange(len(share)), greedy_actions(planner.rows(h), theta[h])] = 0.0
            shares.append(share.ravel())
        return np.concatenate(shares)

    def upper(self, numbers: Sequence[float] | Floats) -> float:
        """Return the (1 - delta)-quantile of a number that each refit gave, where the spread allows for small delta.

        One more refit would exceed it with that probability (Weibull). NumPy's default, the quantile of the sample, is
        exceeded more often: of 40 refits with the probability 0.072 instead of 0.05.
        """
        return float(np.quantile(numbers, 1 - max(self.aim.delta, LEVEL), method="weibull"))
