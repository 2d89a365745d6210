"""Bounds that hold for any run: on the covers (lemmas A.5 and A.6), on the estimates (lemma A.4); and the potential."""

from __future__ import annotations

import math
from decimal import Decimal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dmq_fast._support.arguments import integer
from dmq_fast.kernels import as_numbers, as_positive

__all__ = [
    "FLOAT64_EPS_R",
    "UNBOUNDED",
    "finite_cover_bound",
    "potential",
    "printed_cover_bound",
    "ridge_norm_bound",
    "sure_cover_bound",
]

UNBOUNDED = 2**62
"""What bounds on covers return where they are larger."""

FLOAT64_EPS_R = Decimal("1e-16")
"""Smallest eps_r that oracle decisions in float64 resolve beside moments of norm one."""

ROUNDED_SUMS = 1e-9
"""Share by which a sum of rounded terms may be off: of up to 10^6 terms, in float64."""


def potential(s: ArrayLike, eps_r: float) -> NDArray[np.float64]:
    """Return log det(S + eps_r I), the potential of Lemma A.5, from a Cholesky factorisation.

    Parameters
    ----------
    s : array_like, shape (..., d, d)
        S of one level or of several, symmetric positive semidefinite; the lower triangle is read.
    eps_r : float
        Regulariser of the oracle, > 0.

    Returns
    -------
    numpy.ndarray, shape (...)

    Raises
    ------
    TypeError, ValueError
        If an argument is of a wrong type, shape or range.
    numpy.linalg.LinAlgError
        If S + eps_r I is not positive definite in float64.
    """
    matrices = np.asarray(as_numbers("s", s), dtype=np.float64)
    eps_r = as_positive("eps_r", eps_r)
    if matrices.ndim < 2 or matrices.shape[-1] != matrices.shape[-2]:
        raise ValueError(f"s: expected shape (..., d, d), got {matrices.shape}")
    if not np.isfinite(matrices).all():
        raise ValueError("s: expected finite numbers")
    try:
        factors = np.linalg.cholesky(matrices + eps_r * np.eye(matrices.shape[-1]))
    except np.linalg.LinAlgError as error:
        raise np.linalg.LinAlgError(
            f"s: S + eps_r I is not positive definite in float64 at eps_r = {eps_r:g}; eps_r is too small beside S, or "
            "S is not positive semidefinite"
        ) from error
    return np.asarray(2.0 * np.log(np.diagonal(factors, axis1=-2, axis2=-1)).sum(axis=-1))


def ridge_norm_bound(ridge: float) -> float:
    """Return the largest norm of a normalised ridge estimate on |y| <= 1, |phi| <= 1.

    With singular values sigma <= 1 of the rows / sqrt(n), its norm is at most max sigma / (sigma^2 + ridge): 1 / (2
    sqrt(ridge)), attained at sigma^2 = ridge, or 1 / (1 + ridge) where ridge > 1. Lemma A.4 has 1 / ridge.
    """
    ridge = as_positive("ridge", ridge)
    return 0.5 / math.sqrt(ridge) if ridge <= 1.0 else 1.0 / (1.0 + ridge)


def printed_cover_bound(dimension: int, eps_r: float) -> float:
    """Return 2 d log(d / eps_r), the bound on |Pi_h| that the potential lemma (lemma A.5) prints.

    Its last step does not hold for large eps_r, and the lemma speaks of expectations, not of samples: see
    `sure_cover_bound` for what holds on every run that accumulates.

    Raises
    ------
    TypeError, ValueError
        If the dimension is no integer >= 1 or eps_r no positive number.
    """
    d, eps_r = integer("dimension", dimension, 1), as_positive("eps_r", eps_r)
    return 2.0 * d * (math.log(d) - math.log(eps_r))


def sure_cover_bound(dimension: int, ratio: float, eps_r: float, initial: int = 1) -> int:
    """Return the largest n with (1 + R)^(n - m) <= ((eps_r + n / d) / eps_r)^d, or 2^62 if that is smaller.

    m is the number of `initial` policies, which no True has added. Each True multiplies det(S + eps_r I) by at least
    1 + R, and its trace grows by at most one, so no cover is larger as long as S keeps the moments that its Trues were
    decided on; with D_h drawn anew it holds up to sampling noise.

    Raises
    ------
    TypeError, ValueError
        If the dimension is no integer >= 1, R or eps_r no positive number, or m no integer >= 0.
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

    What takes the place of `sure_cover_bound` with finitely many functions. m is the number of `initial` policies. The
    M_2 that a pair had said True about adds at least eps_t to what the pair must keep within eps_s from then on. Where
    eps_s is a multiple of eps_t up to rounding it counts as one, as rounded sums may stay within it.

    Raises
    ------
    TypeError, ValueError
        If k is no integer >= 1, a threshold no positive number, or m no integer >= 0.
    """
    k, m = integer("n_functions", n_functions, 1), integer("initial", initial, 0)
    multiple = as_positive("eps_s", eps_s) / as_positive("eps_t", eps_t) * (1.0 + ROUNDED_SUMS)
    if multiple >= UNBOUNDED:
        return UNBOUNDED
    return min(UNBOUNDED, m + (math.floor(multiple) + 1) * (k * (k - 1) // 2))
