"""Bounds of the paper that a run can be held against, and parameters that are known to fail."""

from __future__ import annotations

import math

__all__ = ["printed_cover_bound", "sure_cover_bound"]


def printed_cover_bound(dimension: int, eps_r: float) -> float:
    """Return 2 d log(d / eps_r), the bound on |Pi_h| that the potential lemma (lemma A.5) prints.

    Its last step does not hold for large eps_r, and the lemma speaks of expectations, not of samples: see
    `sure_cover_bound` for what holds on every run that accumulates.
    """
    return 2.0 * dimension * math.log(dimension / eps_r)


def sure_cover_bound(dimension: int, ratio: float, eps_r: float, initial: int = 1) -> int:
    """Return the largest n with (1 + R)^(n - m) <= ((eps_r + n / d) / eps_r)^d, or 2^62 if that is smaller.

    m is the number of `initial` policies, which no True has added. Each True multiplies det(S + eps_r I) by at least
    1 + R, and its trace grows by at most one, so no cover is larger as long as S keeps the moments that its Trues were
    decided on; with D_h drawn anew it holds up to sampling noise.
    """
    if not (dimension >= 1 and ratio > 0.0 and eps_r > 0.0):
        raise ValueError(f"expected dimension, ratio and eps_r > 0, got {dimension}, {ratio}, {eps_r}")
    growth = math.log1p(ratio)

    def admitted(n: int) -> bool:
        return (n - initial) * growth <= dimension * math.log1p(n / (dimension * eps_r))

    # The left side grows linearly and the right one logarithmically: double, then bisect.
    high = initial + 1
    while admitted(high) and high < 2**62:
        high *= 2
    if admitted(high):
        return high
    low = high // 2
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if admitted(middle) else (low, middle)
    return low
