"""Interval estimates from few runs: the stratified bootstrap, as Agarwal et al. (NeurIPS 2021) advise, and Wilson's.

The runs of one cell are a stratum: each resample draws as many of its runs with replacement as there are. Draws come
from a fixed seed, so that equal runs have equal intervals. The median of one stratum takes none, as its distribution is
known.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from statistics import NormalDist
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import betaincinv

__all__ = ["STATISTICS", "Interval", "bootstrap", "wilson"]

DRAWS = 2000
"""Number of resamples: the ends of a 95 % interval then stand on the 50 most extreme ones on each side."""


class Interval(NamedTuple):
    """An estimate and the interval around it; without an interval, as of a single run, its ends are NaN."""

    middle: float
    low: float
    high: float


def mean(x: NDArray[np.float64]) -> Any:
    """Return the mean along the last axis."""
    return x.mean(axis=-1)


def interquartile_mean(x: NDArray[np.float64]) -> Any:
    """Return the mean of the middle half along the last axis: a quarter, rounded down, is cut off at each end."""
    cut = x.shape[-1] // 4
    return np.sort(x, axis=-1)[..., cut : x.shape[-1] - cut].mean(axis=-1)


def median(x: NDArray[np.float64]) -> Any:
    """Return the lower median along the last axis, which is one of the entries even where others are infinite."""
    return np.sort(x, axis=-1)[..., (x.shape[-1] - 1) // 2]


STATISTICS: dict[str, Callable[[NDArray[np.float64]], Any]] = {
    "mean": mean,
    "iqm": interquartile_mean,
    "median": median,
}
"""The statistics of several runs, by name; each works along the last axis."""


def bootstrap(
    strata: Sequence[ArrayLike], statistic: str = "mean", *, level: float = 0.95, draws: int = DRAWS, seed: int = 0
) -> Interval:
    """Return a statistic of all entries, and its percentile interval from the stratified bootstrap.

    Parameters
    ----------
    strata : sequence of array_like
        The numbers of each stratum, shape (n,) each; infinities are allowed.
    statistic : {"mean", "iqm", "median"}
        "iqm" is the mean of the middle half.
    level : float, default 0.95
        Confidence, in (0, 1).
    draws : int, default 2000
    seed : int, default 0

    Returns
    -------
    Interval
        Without an interval if no stratum has two entries.

    Raises
    ------
    ValueError
        If there are no entries, the statistic is unknown, or the level is not in (0, 1).

    Examples
    --------
    >>> bootstrap([[1.0, 1.0, 1.0], [3.0]])
    Interval(middle=1.5, low=1.5, high=1.5)
    """
    if statistic not in STATISTICS:
        raise ValueError(f"statistic: expected one of {', '.join(STATISTICS)}, got {statistic!r}")
    check_level(level)
    arrays = [np.asarray(one, dtype=np.float64) for one in strata]
    if not any(one.size for one in arrays):
        raise ValueError("strata: expected at least one entry, got none")
    of = STATISTICS[statistic]
    middle = float(of(np.concatenate(arrays)))
    if max(one.size for one in arrays) < 2:
        return Interval(middle, math.nan, math.nan)
    ends = (1 - level) / 2, (1 + level) / 2
    arrays = [one for one in arrays if one.size]
    if statistic == "median" and len(arrays) == 1:
        return Interval(middle, *medians(arrays[0], ends))
    rng = np.random.default_rng(seed)
    at_once = max(1, LARGE // sum(one.size for one in arrays))
    resampled = np.empty(draws)
    for first in range(0, draws, at_once):
        part = resampled[first : first + at_once]
        drawn = [one[rng.integers(one.size, size=(part.size, one.size), dtype=np.uint32)] for one in arrays]
        part[:] = of(np.concatenate(drawn, axis=1) if len(drawn) > 1 else drawn[0])
    # An entry of the sample, since infinities cannot be interpolated.
    low, high = np.quantile(resampled, ends, method="inverted_cdf")
    return Interval(middle, float(low), float(high))


LARGE = 1 << 20
"""Numbers that are resampled at a time."""


def medians(x: NDArray[np.float64], ends: tuple[float, float]) -> tuple[float, float]:
    """Return quantiles of the lower median of n entries that are drawn from x, shape (n,), with replacement.

    No draws are needed: the entry is the one at floor(n U), where U is an order statistic of n uniforms, which has a
    beta distribution.
    """
    n, order = len(x), np.sort(x)
    rank = (n - 1) // 2 + 1
    at = np.ceil(n * betaincinv(rank, n + 1 - rank, ends)) - 1
    low, high = order[np.clip(at, 0, n - 1).astype(np.int64)].tolist()
    return low, high


def wilson(successes: int, n: int, *, level: float = 0.95) -> Interval:
    """Return a success rate and Wilson's interval, which has a width even where all runs succeeded or failed.

    Raises
    ------
    ValueError
        If n < 1, or the level is not in (0, 1).

    Examples
    --------
    >>> tuple(round(number, 3) for number in wilson(10, 10))
    (1.0, 0.722, 1.0)
    """
    check_level(level)
    if n < 1:
        raise ValueError(f"n: expected at least 1, got {n}")
    rate, z = successes / n, NormalDist().inv_cdf((1 + level) / 2)
    centre = (rate + z * z / (2 * n)) / (1 + z * z / n)
    reach = z / (1 + z * z / n) * math.sqrt(rate * (1 - rate) / n + z * z / (4 * n * n))
    return Interval(rate, centre - reach if successes else 0.0, centre + reach if successes < n else 1.0)


def check_level(level: float) -> None:
    """Raise ValueError unless the level of an interval is in (0, 1)."""
    if not 0 < level < 1:
        raise ValueError(f"level: expected a number in (0, 1), got {level}")
