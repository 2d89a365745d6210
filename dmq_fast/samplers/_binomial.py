"""Binomial draws of any number of trials below 2^63.

`numpy.random.Generator.binomial` (BTPE; Kachitvichyanukul and Schmeiser, 1988) is made for moderate n: its last
acceptance test subtracts numbers of size n, so that from n eps ~ 1 on it decides at random (at n = 10^18 and
p = 10^-16 the mean is 0.8 % off), and it squares a distance in 64-bit integers, which overflows for standard deviations
above some 5 10^8 (at n = 2^63 - 1 and p = 1/2 the variance is 18 % off). So it is used for up to 2^28 trials only,
where its error is about 10^-8 in total variation or less. Beyond:

- n p q < 2^22: a Poisson(n p) proposal, accepted with the ratio of the two mass functions, which is bounded by
  (1 - p)^(-1/2); p < 2^-5 here, so nearly all are accepted.
- else the rounded Cornish-Fisher transform of a normal, of the binomial's first four cumulants (those of the rounding
  subtracted). Its error falls as (n p q)^(-3/2), here below 10^-9.

Numbers above 2^53 are multiples of the spacing of float64, at most 2^10 (10^-6 standard deviations, where n p q is of
the order of n). Sums of moments are float64 and could not hold more.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

__all__ = ["binomial"]

FEW_TRIALS = 2**28
LARGE_VARIANCE = 2.0**22
HUGE_VARIANCE = 2.0**46

Counts = NDArray[np.int64]
Floats = NDArray[np.float64]


def binomial(generator: np.random.Generator, n: Counts, p: Floats) -> Counts:
    """Draw one binomial for each entry.

    Parameters
    ----------
    generator : numpy.random.Generator
    n : numpy.ndarray of int64
        Numbers of trials, >= 0.
    p : numpy.ndarray of the same shape
        Probabilities in [0, 1/2], to full relative accuracy.

    Returns
    -------
    numpy.ndarray of int64
    """
    if not (n > FEW_TRIALS).any():
        return generator.binomial(n, p)
    variance = n * p * (1.0 - p)
    wide = (n > FEW_TRIALS) & (variance >= LARGE_VARIANCE)
    if wide.all():
        return _cornish_fisher(generator, n, p, variance)
    out = np.zeros(n.shape, dtype=np.int64)
    if wide.any():
        out[wide] = _cornish_fisher(generator, n[wide], p[wide], variance[wide])
    rest = (variance > 0.0) & ~wide
    if rest.any():
        rare = rest & (n > FEW_TRIALS)
        few = rest & ~rare
        out[few] = generator.binomial(n[few], p[few])
        out[rare] = _poisson_rejection(generator, n[rare], p[rare])
    return out


def _cornish_fisher(generator: np.random.Generator, n: Counts, p: Floats, variance: Floats) -> Counts:
    """Round mean + s (z + g1 (z^2 - 1)/6 + g2 (z^3 - 3z)/24 - g1^2 (2z^3 - 5z)/36), z normal."""
    z = generator.standard_normal(p.shape)
    z2 = z * z
    # p <= 1/2: far from 2^63; and 0 is thousands of standard deviations away.
    mean = n * p
    if variance.min() >= HUGE_VARIANCE:
        # The other terms are below 10^-14 standard deviations.
        return np.rint(mean + (np.sqrt(variance) * z + (1.0 - 2.0 * p) * (z2 - 1.0) / 6.0)).astype(np.int64)
    # Rounding adds 1/12 to the second cumulant and takes 1/120 from the fourth (Sheppard).
    square = variance - 1.0 / 12.0
    s = np.sqrt(square)
    g1 = variance * (1.0 - 2.0 * p) / (square * s)
    g2 = (variance * (1.0 - 6.0 * p * (1.0 - p)) + 1.0 / 120.0) / (square * square)
    x = z + g1 * (z2 - 1.0) / 6.0 + g2 * z * (z2 - 3.0) / 24.0 - g1 * g1 * z * (2.0 * z2 - 5.0) / 36.0
    return np.rint(mean + s * x).astype(np.int64)


def _poisson_rejection(generator: np.random.Generator, n: Counts, p: Floats) -> Counts:
    """Draw Poisson(n p) until accepted with probability b(k) / (pi(k) c), c = (1 - p)^(-1/2) up to 1 / (8n)."""
    out = np.empty(n.shape, dtype=np.int64)
    bound = -0.5 * np.log1p(-p) + 0.5 / FEW_TRIALS
    left = np.arange(n.size)
    while left.size:
        trials, share = n[left].astype(np.float64), p[left]
        k = generator.poisson(trials * share)
        # log b(k)/pi(k) by Stirling's formula; the terms left out are k / (12 n^2) < 2^-37.
        excess = k - trials * share
        ratio = -(trials - k) * np.log1p(-excess / (trials * (1.0 - share))) - excess - 0.5 * np.log1p(-k / trials)
        accepted = np.log1p(-generator.random(k.size)) <= ratio - bound[left]
        out[left[accepted]] = k[accepted]
        left = left[~accepted]
    return out
