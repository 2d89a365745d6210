"""`Candidate`: a policy of a self-stopping run, and estimates from its episodes."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammainccinv

from dmq_fast.kernels import OptimisticPlanner, greedy_actions

__all__ = ["Candidate", "episodes_of", "returns_of", "start_values", "upper_means"]

Floats = NDArray[np.float64]
Numbers = NDArray[np.int64]


class Candidate:
    """A policy, greedy on a frozen theta, with episodes that took its actions throughout.

    Parameters
    ----------
    planner : OptimisticPlanner
        Holds the episodes. Upsides and losses are those of its last plan.
    theta : numpy.ndarray, shape (H, K, d)
    episodes : numpy.ndarray of int, optional
        Their numbers; none by default.
    """

    def __init__(self, planner: OptimisticPlanner, theta: Floats, episodes: Numbers | None = None) -> None:
        self.planner, self.theta = planner, theta
        self.episodes = np.zeros(0, dtype=np.int64) if episodes is None else episodes

    def __len__(self) -> int:
        return len(self.episodes)

    def add(self, episodes: Numbers) -> None:
        """Add episodes that the policy has played."""
        self.episodes = np.concatenate([self.episodes, episodes])

    def upsides(self) -> Floats:
        """Return W - F by level, (H,): what one unseen outcome may add from there on, on average over the episodes."""
        upsides: Floats = self.planner.upsides(self.episodes).mean(axis=0)
        return upsides

    def loss(self, theta: Floats | None = None) -> float:
        """Return the loss by the policy's actions if theta were right, by default the newest; a mean over episodes."""
        return self.planner.regret(self.planner.theta if theta is None else theta, self.episodes)

    def upper_upsides(self, confidence_left: float) -> Floats:
        """Return upper limits of what `upsides` estimates, (H,): how often a state is met is known with an error."""
        return upper_means(self.planner.upsides(self.episodes), confidence_left)

    def doubts(self, confidence_left: float) -> Floats:
        """Return upper limits of the upsides plus the loss by the newest fit, (H,): a test bounds them by epsilon."""
        return self.upper_upsides(confidence_left) + self.loss()

    def mean_return(self) -> tuple[float, float]:
        """Return the mean return of the episodes, and its standard error."""
        returns = returns_of(self.planner, self.episodes)
        return float(returns.mean()), float(returns.std()) / math.sqrt(len(returns))

    def luck(self, confidence_left: float) -> Floats:
        """Return by how much the returns from each level on may have been above their mean, (H,).

        Without noise: what they missed of the best of them is read as in `upper_means`.
        """
        returns = self.planner.recorded(self.episodes)[2][:, ::-1].cumsum(axis=1)[:, ::-1]
        missed: Floats = returns.max(axis=0) - returns
        luck: Floats = upper_means(missed, confidence_left) - missed.mean(axis=0)
        return luck

    def predicted(self, theta: Floats | None = None) -> float:
        """Return the mean over the episodes of the value at their start, by the plan or by theta."""
        return float(start_values(self.planner, self.episodes, theta).mean())

    def leverages(self) -> Floats:
        """Return the leverage of every state and action of the episodes, (n, H): one over the number of visits."""
        rows, actions, _ = self.planner.recorded(self.episodes)
        tables = [self.planner.table(h)[0] for h in range(self.planner.horizon)]
        return np.stack([table[rows[:, h], actions[:, h]] for h, table in enumerate(tables)], axis=1)


def upper_means(upsides: Floats, confidence_left: float) -> Floats:
    """Return upper limits of the means of columns (n, H) of numbers >= 0, most of which are equal and some larger.

    What exceeds the smallest number is read as k = (sum)^2 / sum of squares events of equal size. Their number has a
    Poisson law, so the limit of its mean is the (1 - confidence_left)-quantile of Gamma(k + 1): it counts one event
    more than were seen.

    Examples
    --------
    >>> upsides = np.zeros((61, 2))
    >>> upsides[0] = 0.5, 0.0
    >>> upper_means(upsides, 0.05).round(4).tolist()
    [0.0389, 0.0]
    """
    least = upsides.min(axis=0)
    excess = upsides - least
    total, squares = excess.sum(axis=0), np.einsum("nh,nh->h", excess, excess)
    some = squares > 0.0
    size = np.divide(squares, total, out=np.zeros_like(total), where=some)
    events = np.divide(total, size, out=np.zeros_like(total), where=some)
    upper: Floats = least + size * gammainccinv(events + 1, confidence_left) / len(upsides)
    return upper


def start_values(planner: OptimisticPlanner, episodes: Numbers, theta: Floats | None = None) -> Floats:
    """Return max_a F in the first states of some episodes by the last plan, or by theta, clipped to [0, 1], (n,)."""
    if theta is None:
        values = planner.table(0)[2]
    else:
        values = greedy_actions(planner.rows(0), theta[0], return_values=True)[1].clip(0.0, 1.0)
    starts: Floats = values[planner.recorded(episodes)[0][:, 0]]
    return starts


def episodes_of(planner: OptimisticPlanner, theta: Floats) -> Numbers:
    """Return the numbers of the episodes whose actions are all those that are greedy on theta, ascending."""
    rows, actions, _ = planner.recorded(np.arange(planner.n_episodes))
    greedy = [greedy_actions(planner.rows(h), theta[h])[rows[:, h]] for h in range(planner.horizon)]
    return np.flatnonzero((np.stack(greedy, axis=1) == actions).all(axis=1))


def returns_of(planner: OptimisticPlanner, episodes: Numbers) -> Floats:
    """Return the sums of rewards of some episodes, shape (n,)."""
    returns: Floats = planner.recorded(episodes)[2].cumsum(axis=1)[:, -1]
    return returns
