"""A test of linear Q* on the data of a self-stopping run: returns against the fit, where the returned policy goes.

If Q* is linear and the fit is right, the errors r + max_b Q(s', b) - Q(s, a) of an episode have mean zero given
all that came before. So has their sum from a level on until the first action that is not greedy, which is the
difference between the return (with the fitted value from that action on) and the fitted value. Its mean is looked at
for the rows that the returned policy visits, and every action that was often taken there:

- rows whose values are not linear in their features disagree with the fit that they share: the classical lack of fit;
- states with equal features and different values disagree, by the action that led to them, one level earlier.

Elsewhere the fit may be wrong in a run that went well, as values that cannot matter are not explored. Where no row
comes twice, as with continuous features, only rows of the levels before (often the start) can be tested.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from dmq_fast.kernels import OptimisticPlanner
from dmq_fast.stopping.aim import Aim
from dmq_fast.stopping.tuning import Tuning

__all__ = ["Disagreement", "disagreements"]

Floats = NDArray[np.float64]
Numbers = NDArray[np.int64]


@dataclass(frozen=True)
class Disagreement:
    """A row of features whose returns and fitted value differ by more than chance explains.

    Attributes
    ----------
    level, row, action : int
        The row is ``planner.rows(level)[row]``.
    visits : int
        Number of episodes that took the action there.
    difference, standard_error : float
        Mean return, with fitted values from the first action that is not greedy on, minus the fitted value.
    drowned : bool
        Whether the data of an action, at this level or a later one, have a direction in which the ridge is more than
        0.1 % of their sum of squares, so that it moves the fit.
    """

    level: int
    row: int
    action: int
    visits: int
    difference: float
    standard_error: float
    drowned: bool

    def times(self, width: float) -> Disagreement:
        """Return the same in points, where a unit has so many."""
        return replace(self, difference=width * self.difference, standard_error=width * self.standard_error)


class Data:
    """Some episodes of a planner, and the errors of estimates on them."""

    def __init__(self, planner: OptimisticPlanner, episodes: Numbers) -> None:
        self.horizon, self.n_actions = planner.horizon, planner.n_actions
        self.rows = [planner.rows(h) for h in range(self.horizon)]
        self.visited, self.taken, self.paid = planner.recorded(episodes)

    def errors(self, theta: Floats) -> Floats:
        """Return the return from each level on, up to the first action that is not greedy, minus the fit, (H, N)."""
        errors = np.empty((self.horizon, len(self.paid)))
        following: Floats | float = 0.0
        for h in reversed(range(self.horizon)):
            values = self.rows[h] @ theta[h].T
            row, action = self.visited[:, h], self.taken[:, h]
            total = self.paid[:, h] + following
            errors[h] = total - values[row, action]
            best = np.clip(values.max(axis=1), 0.0, 1.0)
            following = np.where(values.argmax(axis=1)[row] == action, total, best[row])
        return errors


def disagreements(
    planner: OptimisticPlanner, episodes: Numbers, aim: Aim, tuning: Tuning, rng: np.random.Generator
) -> list[Disagreement]:
    """Return the rows, most significant first, where returns disagree with the fit by more than a tolerance and chance.

    Parameters
    ----------
    planner : OptimisticPlanner
    episodes : numpy.ndarray of int
        Numbers of episodes of the returned policy: the test is made on their rows.
    aim : Aim
        Its delta is the probability of a false alarm, all rows together (Bonferroni).
    tuning : Tuning
        Differences up to `least_disagreement` epsilon are ignored.
    rng : numpy.random.Generator
        Source of the weights of the bootstrap.
    """
    n, tolerance = planner.n_episodes, tuning.least_disagreement * aim.epsilon
    data = Data(planner, np.arange(n))
    pairs = [data.visited[:, h] * data.n_actions + data.taken[:, h] for h in range(data.horizon)]
    sizes = [len(rows) * data.n_actions for rows in data.rows]
    visits = [np.bincount(pair, minlength=size) for pair, size in zip(pairs, sizes, strict=True)]
    actions = np.arange(data.n_actions)
    tested = [(np.unique(rows[episodes])[:, None] * data.n_actions + actions).ravel() for rows in data.visited.T]
    tested = [at[visits[h][at] >= tuning.least_visits] for h, at in enumerate(tested)]
    count = sum(map(len, tested))
    if count == 0:
        return []

    errors = data.errors(planner.refit(np.ones(n)))
    limit = -quantile(aim.delta / (2 * count), tuning.linearity_refits - 1)
    found = []
    for h, at in enumerate(tested):
        differences = np.bincount(pairs[h], errors[h], sizes[h])[at] / visits[h][at]
        # Of all visits with the action at levels that share data: those of a row that saw no rare outcome all agree.
        alike = [k for k, group in enumerate(planner.groups) if group == planner.groups[h]]
        by_action = (errors[alike][data.taken.T[alike] == action] for action in actions)
        spreads = np.array([some.std() if len(some) else 0.0 for some in by_action])
        standard_errors = spreads[at % data.n_actions] / np.sqrt(visits[h][at])
        for i in np.flatnonzero(np.abs(differences) > tolerance + limit * standard_errors):
            here, (row, action) = np.flatnonzero(pairs[h] == at[i]), divmod(int(at[i]), data.n_actions)
            numbers = float(differences[i]), float(standard_errors[i])
            found.append((here, Disagreement(h, row, action, len(here), *numbers, False)))
    if not found:
        return []
    refits = np.empty((tuning.linearity_refits, len(found)))
    doubtful = np.unique(np.concatenate([here for here, _ in found]))
    some, places = Data(planner, doubtful), [np.searchsorted(doubtful, here) for here, _ in found]
    for refit in refits:
        weights = rng.standard_exponential(n)
        errors, counts = some.errors(planner.refit(weights)), weights[doubtful]
        refit[:] = [
            np.average(errors[one.level, at], weights=counts[at]) for (_, one), at in zip(found, places, strict=True)
        ]
    spreads = refits.std(axis=0, ddof=1)
    kept = [
        replace(one, standard_error=max(one.standard_error, float(spread)))
        for (_, one), spread in zip(found, spreads, strict=True)
    ]
    kept = [one for one in kept if abs(one.difference) > tolerance + limit * one.standard_error]
    if not kept:
        return []
    # Fits of later levels are in the targets of a row, so theirs count as well.
    drowned = [
        is_drowned(rows, counts.reshape(-1, data.n_actions), tuning.ridge)
        for rows, counts in zip(data.rows, visits, strict=True)
    ]
    kept = [replace(one, drowned=any(drowned[one.level :])) for one in kept]
    return sorted(kept, key=lambda one: abs(one.difference) / (one.standard_error + tolerance), reverse=True)


def is_drowned(rows: Floats, visits: Numbers, ridge: float) -> bool:
    """Return whether rows (m, d), by visits (m, K) of an action, have a direction that the ridge outweighs.

    Its sum of squares is above rounding, and below 1,000 ridges.
    """
    rows = rows[:, rows.any(axis=0)]
    for counts in visits.T:
        lengths = np.linalg.svd(rows * np.sqrt(counts)[:, None], compute_uv=False)
        resolved = lengths > lengths.max(initial=0.0) * max(rows.shape) * np.finfo(float).eps
        if (lengths[resolved] ** 2 < 1000 * ridge).any():
            return True
    return False


def quantile(share: float, freedom: int) -> float:
    """Return a quantile of Student's t, to the first order in 1 / freedom (Cornish and Fisher)."""
    x = NormalDist().inv_cdf(share)
    return x + (x**3 + x) / (4 * freedom)
