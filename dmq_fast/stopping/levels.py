"""A test on the data of a self-stopping run: whether levels that share their data differ.

If they do not, the outcomes of a pair are exchangeable between its visits, at whatever levels these were and whatever
rule chose when. So for each pair that was visited often, the visits before and from a level on are compared, by five
numbers of the outcome: the reward, the end, the value of the next state, and two random numbers of the next row. The
sum over the visits before a cut has a known variance V over all permutations, and no visit adds more than b to it. So
it exceeds s with a probability of 2 exp(-s^2 / (2 V + 2 b s / 3)) at most, or nearly (Bernstein), also where few visits
showed something rare. This is corrected for all pairs, cuts and numbers (Bonferroni) and for the earlier tests.

Compared are rows, so the test sees nothing where no row comes often enough, as with continuous features; and nothing at
levels where a pair was not visited.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dmq_fast.homogeneity import Groups, numbered
from dmq_fast.kernels import OptimisticPlanner
from dmq_fast.stopping.tuning import Tuning

__all__ = ["Difference", "difference", "split"]

Floats = NDArray[np.float64]
Numbers = NDArray[np.int64]

NUMBERS = ("reward", "end of the episode", "value of the next state", "next state", "next state")
"""What is compared."""

# Standard deviations up to it are rounding.
ROUNDING = 1e-12


@dataclass(frozen=True)
class Difference:
    """Two parts of a group of levels at which one pair has different outcomes.

    Attributes
    ----------
    level : int
        The first level of the second part.
    row, action : int
        The row is ``planner.rows(level)[row]``.
    column : int
        The largest feature of the row, which of a table is the state.
    group : int
        The label of the levels.
    visits : int
        Number of visits of the pair at all of them.
    what : str
        The number that differs.
    statistic : float
        Absolute difference of the means in standard deviations.
    excess : float
        By how much the exponent of its bound is larger than it would be by chance.
    """

    level: int
    row: int
    action: int
    column: int
    group: int
    visits: int
    what: str
    statistic: float
    excess: float

    @property
    def warning(self) -> str:
        """The difference in a sentence."""
        return (
            f"the environment is not the same at every level: in the state of row {self.row} (largest feature: "
            f"{self.column}), action {self.action}, the {self.what} differs before and from level {self.level} on, by "
            f"{self.statistic:.1f} standard deviations of {self.visits} visits; levels before and after no longer "
            "share their data; homogeneous=False says so from the start"
        )


def difference(planner: OptimisticPlanner, tuning: Tuning, earlier: int) -> Difference | None:
    """Return the clearest difference within a group of levels, None if all are within chance.

    Parameters
    ----------
    planner : OptimisticPlanner
        With a plan of all its episodes.
    tuning : Tuning
        `level_delta` is the probability of a false alarm, all looks together; pairs with fewer visits than
        `level_visits` are not looked at.
    earlier : int
        Number of tests before.
    """
    if not planner.pooled or planner.n_episodes == 0:
        return None
    share = tuning.level_delta * 6 / (math.pi * (1 + earlier)) ** 2
    # Exponent, statistic, group, pair, number, level, visits.
    found: list[tuple[float, float, int, int, int, int, int]] = []
    tests = 0
    outcomes = Outcomes(planner)
    for group in sorted(set(planner.groups)):
        levels = [h for h, label in enumerate(planner.groups) if label == group]
        if len(levels) == 1:
            continue
        for numbers, where in ((range(1), levels), (range(1, 5), [h for h in levels if h < planner.horizon - 1])):
            pairs, at, z = outcomes.of(where, numbers)
            for i, j in outcomes.often_visited(pairs, at, tuning.level_visits):
                more, best = compared(at[i:j], z[i:j], tuning.level_visits // 4)
                tests += more
                if best is not None:
                    exponent, statistic, number, level = best
                    found.append((exponent, statistic, group, int(pairs[i]), numbers[number], level, j - i))
    if not found:
        return None
    exponent, statistic, group, pair, number, level, visits = max(found)
    excess = exponent - math.log(2 * tests / share)
    if excess <= 0.0:
        return None
    row, action = divmod(pair, planner.n_actions)
    column = int(np.abs(planner.rows(level)[row]).argmax())
    return Difference(level, row, action, column, group, visits, NUMBERS[number], statistic, excess)


def split(groups: Groups, found: Difference) -> Groups:
    """Return labels by which levels before and from the level of a difference on no longer share data.

    Examples
    --------
    >>> split((0, 0, 1, 0), Difference(1, 0, 0, 0, 0, 50, "reward", 9.0, 4.0))
    (0, 1, 2, 1)
    """
    return numbered([-1 if one == found.group and h >= found.level else one for h, one in enumerate(groups)])


class Outcomes:
    """The outcomes of all steps, by level: five numbers each."""

    def __init__(self, planner: OptimisticPlanner) -> None:
        every = np.arange(planner.n_episodes)
        rows, actions, _ = planner.recorded(every)
        known = planner.rows(0)
        self.ended: NDArray[np.bool_] = np.logical_not(known.any(axis=1))
        self.rows, self.pairs = rows.T, (rows * planner.n_actions + actions).T
        values = planner.table(0)[2]
        random = np.random.default_rng(0).standard_normal((2, len(known)))
        self.paid = planner.paid(every).T
        self.next = np.stack([self.ended.astype(np.float64), values, *random])

    def of(self, levels: list[int], numbers: range) -> tuple[Numbers, Numbers, Floats]:
        """Return pairs (n,), levels (n,) and numbers (n, k) of all steps at some levels, by pair, then level."""
        some: Any = [np.zeros((0,), dtype=np.int64)] * 2 + [np.zeros((0, len(numbers)))]
        parts = [
            (
                self.pairs[h][live],
                np.full(int(live.sum()), h),
                self.paid[h][live, None] if numbers[0] == 0 else self.next[:, self.rows[h + 1][live]].T,
            )
            for h in levels
            if (live := ~self.ended[self.rows[h]]).any()
        ]
        pairs, at, z = (np.concatenate(arrays) for arrays in zip(some, *parts, strict=True))
        order = np.argsort(pairs, kind="stable")
        return pairs[order], at[order], z[order]

    def often_visited(self, pairs: Numbers, at: Numbers, least: int) -> list[tuple[int, int]]:
        """Return where the steps of each pair begin and end that has enough of them, at more than one level."""
        starts = np.flatnonzero(np.diff(pairs, prepend=-1))
        ends = np.append(starts[1:], len(pairs))
        return [(int(i), int(j)) for i, j in zip(starts, ends, strict=True) if j - i >= least and at[i] < at[j - 1]]


def compared(at: Numbers, z: Floats, least: int) -> tuple[int, tuple[float, float, int, int] | None]:
    """Return how many comparisons were made, and the clearest one: exponent, statistic, number, and level of the cut.

    Parameters
    ----------
    at : numpy.ndarray of int, shape (n,)
        Levels, ascending.
    z : numpy.ndarray, shape (n, k)
    least : int
        Visits on each side of a cut.
    """
    n = len(at)
    centred = z - z.mean(axis=0)
    spread = centred.std(axis=0)
    some = spread > ROUNDING
    places = np.flatnonzero(np.diff(at)) + 1
    places = places[(least <= places) & (places <= n - least)]
    if not len(places) or not some.any():
        return 0, None
    sums = np.abs(centred.cumsum(axis=0)[places - 1][:, some])
    deviations = spread[some] * np.sqrt(places * (n - places) / n)[:, None]
    largest = np.abs(centred[:, some]).max(axis=0)
    exponents = sums**2 / (2 * deviations**2 + 2 / 3 * largest * sums)
    cut, number = np.unravel_index(int(exponents.argmax()), exponents.shape)
    statistic = float(sums[cut, number] / deviations[cut, number])
    best = float(exponents[cut, number]), statistic, int(np.flatnonzero(some)[number]), int(at[places[cut]])
    return exponents.size, best
