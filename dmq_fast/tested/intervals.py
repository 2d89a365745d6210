"""An interval for a mean of bounded numbers that is narrow where they vary little."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

__all__ = ["betting_interval"]

# Means that are tried, evenly spaced.
MEANS = 4_001

# The largest share of its capital that a gambler bets.
MOST = 0.5


def betting_interval(
    numbers: NDArray[np.float64], low: float, high: float, confidence_left: float
) -> tuple[float, float]:
    """Return an interval for the mean of independent numbers in [low, high] with one mean.

    It is the hedged capital interval of Waudby-Smith and Ramdas (2024, section 4.4, Remark 3 with the bets of Theorem
    3): a mean m stays in it unless somebody who bets against m, half of the capital on larger and half on smaller
    numbers, has made 1 / confidence_left times that capital. If m is the mean, the probability of that is at most
    `confidence_left`, by Ville's inequality, whatever the law of the numbers and however few there are. Bets depend on
    the numbers before them alone, and are large where these varied little.

    Parameters
    ----------
    numbers : numpy.ndarray, shape (n,)
        In the order in which they came.
    low, high : float
        Their bounds, low < high.
    confidence_left : float
        delta, in (0, 1).

    Returns
    -------
    low, high : float

    Examples
    --------
    >>> import numpy as np
    >>> low, high = betting_interval(np.full(61, 0.5), 0.0, 1.0, 0.05)
    >>> round(low, 2), round(high, 2)
    (0.44, 0.56)
    """
    x = np.clip((np.asarray(numbers, dtype=np.float64) - low) / (high - low), 0.0, 1.0)
    n = len(x)
    t = np.arange(1, n + 1)
    # Mean and variance of the numbers so far, with one at 1/2 of variance 1/4 before them.
    mean = (0.5 + np.cumsum(x)) / (t + 1)
    variance = (0.25 + np.cumsum((x - mean) ** 2)) / (t + 1)
    before = np.concatenate([[0.25], variance[:-1]])[:n]
    bets = np.sqrt(2.0 * math.log(2.0 / confidence_left) / (before * max(n, 1)))
    grid = np.linspace(0.0, 1.0, MEANS)[:, None]
    with np.errstate(divide="ignore"):
        above = np.log1p(np.minimum(bets, MOST / grid) * (x - grid)).sum(axis=1)
        below = np.log1p(-np.minimum(bets, MOST / (1.0 - grid)) * (x - grid)).sum(axis=1)
    kept = np.flatnonzero(np.maximum(above, below) + math.log(0.5) < math.log(1.0 / confidence_left))
    # Means between two of the grid may be in, too.
    first, last = max(kept[0] - 1, 0), min(kept[-1] + 1, MEANS - 1)
    return low + (high - low) * float(grid[first, 0]), low + (high - low) * float(grid[last, 0])
