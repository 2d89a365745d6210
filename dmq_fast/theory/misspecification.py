"""Thresholds of the oracle for a Q* that is linear up to an error. Not in the paper; they follow from its proof."""

from __future__ import annotations

import math

from dmq_fast.kernels import as_positive

__all__ = ["largest_misspecification", "misspecified_thresholds"]


def misspecified_thresholds(
    eps_s: float, eps_t: float, *, delta: float, gap: float, n_policies: int
) -> tuple[float, float]:
    """Return thresholds (eps_s', eps_t') for a class that contains Q* up to `delta`, from those for an exact class.

    Not in the paper. The thresholds follow from its proof of the theorem when assumption 3.2 is weakened to: for every
    h and a there is a theta = theta_h^a, ||theta|| <= 1, with g(s) = Q*(s, a) - phi(s)^T theta and |g(s)| <= delta for
    all s.

    1. *Fit.* A pair of the regression is y = phi^T theta + (b + g) + xi, with the b of the proof, E b^2 <= C eps^2. The
       lemma on ridge regression with bias applies to b + g in place of b if its mean square is at most 1. That mean
       square is at most 2 C eps^2 + 2 delta^2. So the sum over the cover of E((theta_hat - theta)^T phi)^2, with the
       regulariser, which was at most 5 |Pi_h| (C eps^2 + ...) <= eps_s, is now at most
       eps_s' = 2 eps_s + 10 |Pi_h| delta^2. (In general eps_s' >= 4 |Pi_h| delta^2 is necessary: two functions within
       delta of Q* on all states of D_h may differ by 2 delta there, and where these are the estimate and the theta
       above, the oracle must consider their pair.)
    2. *Transfer.* Where the oracle returns False for (eps_s', eps_t'), the mean of ((theta_hat - theta)^T phi)^2 over
       D_2 is at most eps_t'. The proof adds the sampling error of D_2 to eps_t; this error must shrink as eps_t does,
       so that N grows.
    3. *Greedy actions.* A wrong action takes |phi^T theta_hat - Q*| >= gap / 2 for one of the actions, hence
       |(theta_hat - theta)^T phi| >= gap / 2 - delta. By Markov's inequality this has a probability of at most
       eps_t' / (gap / 2 - delta)^2, which is eps_t / (gap / 2)^2 as before if eps_t' = eps_t (1 - 2 delta / gap)^2.

    For the linear class only R' = eps_t' / eps_s' matters: an error in the class requires a lower ratio, for which the
    oracle returns True more often. The covers grow with it, up to d log(...) / log(1 + R'), and eps_s' grows with them.
    The proof requires R' >= 1; `largest_misspecification` returns the largest delta for which that holds.

    Parameters
    ----------
    eps_s, eps_t : float
        Thresholds that satisfy the proof for delta = 0, > 0.
    delta : float
        Largest |Q*(s, a) - phi(s)^T theta_h^a|, in [0, gap / 2).
    gap : float
        Smallest positive gap gamma, > 0.
    n_policies : int
        Bound on |Pi_h|, such as `theory.sure_cover_bound` for R'.

    Raises
    ------
    TypeError, ValueError
        If an argument is out of range; the message names it.

    Examples
    --------
    >>> eps_s, eps_t = misspecified_thresholds(1e-5, 1e-2, delta=0.01, gap=0.2, n_policies=4)
    >>> print(f"{eps_s:0.4g}, {eps_t:0.4g}")
    0.00402, 0.0081
    """
    eps_s, eps_t, gap = as_positive("eps_s", eps_s), as_positive("eps_t", eps_t), as_positive("gap", gap)
    delta, size = as_positive("delta", delta, zero=True), as_positive("n_policies", n_policies)
    if delta == 0.0:
        return eps_s, eps_t
    if not 2.0 * delta < gap:
        raise ValueError(f"delta: expected less than gap / 2 = {gap / 2.0:g}, got {delta:g}")
    return 2.0 * eps_s + 10.0 * size * delta**2, eps_t * (1.0 - 2.0 * delta / gap) ** 2


def largest_misspecification(eps_s: float, eps_t: float, *, gap: float, n_policies: int) -> float:
    """Return the largest delta for which `misspecified_thresholds` returns eps_s' <= eps_t', or 0 if there is none.

    Where eps_s is negligible and the cover is large, this is about sqrt(eps_t / (10 |Pi_h|)): with the paper's
    eps_t = gap^2 eps / (5 H), gap sqrt(eps / (50 |Pi_h| H)). Arguments and errors are those of
    `misspecified_thresholds`.

    Examples
    --------
    >>> print(f"{largest_misspecification(1e-5, 1e-2, gap=0.2, n_policies=4):0.4g}")
    0.01364
    """
    eps_s, eps_t, gap = as_positive("eps_s", eps_s), as_positive("eps_t", eps_t), as_positive("gap", gap)
    size = as_positive("n_policies", n_policies)
    # (1 - x)^2 eps_t = 2 eps_s + c x^2 for x = 2 delta / gap: a quadratic equation, its smaller root for c < eps_t.
    c = 2.5 * size * gap**2
    room = eps_t - 2.0 * eps_s
    if room <= 0.0:
        return 0.0
    # (eps_t - c) x^2 - 2 eps_t x + room = 0, in the form without cancellation.
    x = room / (eps_t + math.sqrt(eps_t**2 - (eps_t - c) * room))
    return 0.5 * gap * x
