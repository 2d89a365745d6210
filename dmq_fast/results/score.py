"""The score of a policy: the share of the way from uniform play to the optimum, which no shift or scale changes."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

__all__ = ["ROUNDING", "percent", "score", "scores", "solved", "solves"]

ROUNDING = 1e-9
"""Differences of scores up to this are rounding."""

SAME = 1e-12
"""Values whose difference is at most this part of them are equal."""


def score(value: float, uniform: float, optimum: float) -> float | None:
    """Return (V - V_uniform) / (V* - V_uniform): 0 for uniform play, 1 for the best policy, below 0 for worse ones.

    Parameters
    ----------
    value, uniform, optimum : float
        Values of the policy, of uniform play and of the best policy, in any units: all may be shifted and scaled.

    Returns
    -------
    float or None
        1 exactly where the policy is the best one but for rounding. None where uniform play is the best, too: then
        every policy is, or the values are estimates.

    Examples
    --------
    >>> score(0.75, 0.5, 1.0), score(-15.0, -20.0, -10.0), score(3.0, 3.0, 3.0)
    (0.5, 0.5, None)
    """
    span = optimum - uniform
    if not span > SAME * max(abs(optimum), abs(uniform)):
        return None
    return 1.0 if abs(optimum - value) <= ROUNDING * span else (value - uniform) / span


def solves(value: float, uniform: float, optimum: float, share: float) -> bool:
    """Return whether a policy scores at least `share`; where every policy is optimal, whether this one is.

    Examples
    --------
    >>> solves(0.95, 0.0, 1.0, 0.95), solves(-10.6, -20.0, -10.0, 0.95), solves(3.0, 3.0, 3.0, 0.95)
    (True, False, True)
    """
    found = score(value, uniform, optimum)
    if found is None:
        return value >= optimum - SAME * max(abs(optimum), abs(uniform))
    return found >= share - ROUNDING


def scores(
    value: NDArray[np.float64], uniform: NDArray[np.float64], optimum: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Return `score` of each of many policies, NaN where it is None or a value is NaN.

    Examples
    --------
    >>> scores(np.array([0.75, 3.0]), np.array([0.5, 3.0]), np.array([1.0, 3.0]))
    array([0.5, nan])
    """
    span = optimum - uniform
    with np.errstate(invalid="ignore", divide="ignore"):
        found = np.where(np.abs(optimum - value) <= ROUNDING * span, 1.0, (value - uniform) / span)
        return np.where(span > SAME * np.maximum(np.abs(optimum), np.abs(uniform)), found, np.nan)


def solved(
    value: NDArray[np.float64], uniform: NDArray[np.float64], optimum: NDArray[np.float64], share: float
) -> NDArray[np.bool_]:
    """Return `solves` of each of many policies, False where a value is NaN.

    Examples
    --------
    >>> solved(np.array([0.95, 3.0]), np.array([0.0, 3.0]), np.array([1.0, 3.0]), 0.95)
    array([ True,  True])
    """
    with np.errstate(invalid="ignore"):
        best = SAME * np.maximum(np.abs(optimum), np.abs(uniform))
        good = scores(value, uniform, optimum) >= share - ROUNDING
        return np.where(optimum - uniform > best, good, value >= optimum - best)


def percent(score: float) -> str:
    """Return a score in per cent, rounded down: 100 % is a policy as good as the best, 0 % none better than uniform.

    Examples
    --------
    >>> percent(1.0), percent(0.99996), percent(0.2999999999999), percent(-0.31), percent(0.0004)
    ('100.0%', '99.9%', '30.0%', '-31.0%', '<0.1%')
    """
    if ROUNDING < score < 0.001 - ROUNDING:
        return "<0.1%"
    return f"{min(math.floor(1000.0 * (score + ROUNDING)), 999) / 10.0 if score < 1.0 else 100.0 * score:.1f}%"
