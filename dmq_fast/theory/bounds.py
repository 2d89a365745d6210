"""Bounds for any run: on covers (lemmas A.5 and A.6) and on estimates (lemma A.4)."""

from __future__ import annotations

import math
from decimal import Decimal

from dmq_fast._support.checks import integer
from dmq_fast.kernels import as_positive

__all__ = [
    "FLOAT64_EPS_R",
    "UNBOUNDED",
    "finite_cover_bound",
    "printed_cover_bound",
    "ridge_norm_bound",
    "sure_cover_bound",
]

UNBOUNDED = 2**62
"""Largest value that the bounds on covers return, also where the bound is larger."""

FLOAT64_EPS_R = Decimal("1e-16")
"""Smallest eps_r that float64 resolves in oracle decisions on moments of norm one."""

ROUNDED_SUMS = 1e-9
"""Relative error allowed for a sum of up to 10^6 rounded terms in float64."""


def ridge_norm_bound(ridge: float) -> float:
    """Return the largest norm of a normalised ridge estimate on |y| <= 1, |phi| <= 1; it is linear in the bound on |y|.

    With singular values sigma <= 1 of the rows / sqrt(n), its norm is at most max sigma / (sigma^2 + ridge): 1 / (2
    sqrt(ridge)), attained at sigma^2 = ridge, or 1 / (1 + ridge) where ridge > 1. Lemma A.4 has 1 / ridge.

    Examples
    --------
    >>> ridge_norm_bound(0.01)
    5.0
    """
    ridge = as_positive("ridge", ridge)
    return 0.5 / math.sqrt(ridge) if ridge <= 1.0 else 1.0 / (1.0 + ridge)


def printed_cover_bound(dimension: int, eps_r: float) -> float:
    """Return 2 d log(d / eps_r), the bound on |Pi_h| that the potential lemma (lemma A.5) prints.

    The last step of its proof does not hold for large eps_r, and the lemma is about expectations, not samples.
    `sure_cover_bound` is the bound that holds on every run that accumulates moments.

    Raises
    ------
    TypeError, ValueError
        If the dimension is not an integer >= 1 or eps_r not a positive number.

    Examples
    --------
    >>> round(printed_cover_bound(5, 0.01), 1)
    62.1
    """
    d, eps_r = integer("dimension", dimension, 1), as_positive("eps_r", eps_r)
    return 2.0 * d * (math.log(d) - math.log(eps_r))


def sure_cover_bound(dimension: int, ratio: float, eps_r: float, initial: int = 1) -> int:
    """Return the largest n with (1 + R)^(n - m) <= ((eps_r + n / d) / eps_r)^d, or 2^62 if that is smaller.

    m is the number of `initial` policies, which were not added by a True. Each True multiplies det(S + eps_r I) by at
    least 1 + R and adds at most one to its trace. So no cover is larger than n as long as S keeps the moments that its
    Trues were decided on (option `accumulate`); where D_h is drawn anew, the bound holds up to sampling noise.

    Raises
    ------
    TypeError, ValueError
        If the dimension is not an integer >= 1, R or eps_r not a positive number, or m not an integer >= 0.

    Examples
    --------
    With d = 2, R = 1 and eps_r = 1, 2^(n - 1) <= (1 + n / 2)^2 holds up to n = 4:

    >>> sure_cover_bound(2, ratio=1.0, eps_r=1.0)
    4
    >>> sure_cover_bound(8, ratio=10.0, eps_r=1e-5)
    45
    """
    d, m = integer("dimension", dimension, 1), integer("initial", initial, 0)
    ratio, eps_r = as_positive("ratio", ratio), as_positive("eps_r", eps_r)
    growth = math.log1p(ratio)

    def admitted(n: int) -> bool:
        grown = n / (d * eps_r)
        return (n - m) * growth <= d * (math.log1p(grown) if grown < math.inf else math.log(n / d) - math.log(eps_r))

    # The left side grows linearly and the right one logarithmically: double, then bisect.
    high = m + 1
    while admitted(high) and high < UNBOUNDED:
        high *= 2
    if admitted(high):
        return UNBOUNDED
    low = high // 2
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if admitted(middle) else (low, middle)
    return min(low, UNBOUNDED)


def finite_cover_bound(n_functions: int, eps_s: float, eps_t: float, initial: int = 1) -> int:
    """Return m + (floor(eps_s / eps_t) + 1) k (k - 1) / 2 for k functions, or 2^62 if that is smaller.

    This bound takes the place of `sure_cover_bound` for finitely many functions. m is the number of `initial` policies.
    When a pair of functions causes a True, the M_2 added to S raises the pair's mean square difference by at least
    eps_t, and a pair can cause a True only while that difference is at most eps_s. Where eps_s is a multiple of eps_t
    up to rounding, it is taken for one, since rounded sums may not exceed it.

    Raises
    ------
    TypeError, ValueError
        If k is not an integer >= 1, a threshold not a positive number, or m not an integer >= 0.

    Examples
    --------
    >>> finite_cover_bound(4, eps_s=1.0, eps_t=2.0)  # each of the six pairs can cause one True
    7
    """
    k, m = integer("n_functions", n_functions, 1), integer("initial", initial, 0)
    multiple = as_positive("eps_s", eps_s) / as_positive("eps_t", eps_t) * (1.0 + ROUNDED_SUMS)
    if multiple >= UNBOUNDED:
        return UNBOUNDED
    return min(UNBOUNDED, m + (math.floor(multiple) + 1) * (k * (k - 1) // 2))
