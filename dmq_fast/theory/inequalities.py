"""The inequalities that the proof of Theorem 6.1 needs of its constants, each with its source and both sides."""

from __future__ import annotations

import decimal
from dataclasses import dataclass
from decimal import Decimal
from typing import NamedTuple

__all__ = ["ARITHMETIC", "Constants", "Inequality", "largest_admitted", "needs", "samples_needed"]

# The constants span hundreds of orders of magnitude: decimals of 40 digits with practically unbounded exponents.
ARITHMETIC = decimal.Context(prec=40, Emax=decimal.MAX_EMAX, Emin=decimal.MIN_EMIN, rounding=decimal.ROUND_HALF_EVEN)

ROUNDING = Decimal("1e-30")
"""Tolerance for left <= right, relative to the right side: both sides are rounded to 40 digits."""


@dataclass(frozen=True)
class Constants:
    """The constants of the proof of Theorem 6.1 for one problem; see `theory.Parameters`, which computes them."""

    epsilon: Decimal
    gamma: Decimal
    C: Decimal
    d: int
    H: int
    K: int
    delta: Decimal
    corrected: bool
    eps_t: Decimal
    eps_s: Decimal
    eps_n: Decimal
    ridge: Decimal
    eps_r: Decimal
    cover_bound: Decimal
    n_samples: Decimal
    noise: Decimal = Decimal(0)


class Inequality(NamedTuple):
    """An inequality left <= right of the proof: its name, formula, place in the paper, and the values of both sides."""

    name: str
    formula: str
    source: str
    left: Decimal
    right: Decimal

    @property
    def holds(self) -> bool:
        """Whether left <= right, or they are equal but for rounding."""
        with decimal.localcontext(ARITHMETIC):
            return self.left <= self.right + abs(self.right) * ROUNDING


# By name: formula, and place in the paper. In the order of the proof.
PRINTED = {
    "union over actions": ("K epsilon / H <= epsilon / H", "proof of Theorem 6.1, before equation (3)"),
    "regression": (
        "4 (C epsilon^2 + eps_n + ridge) B <= gamma^2 epsilon / (4 H)",
        "proof of Theorem 6.1, invariant 1",
    ),
    "oracle, premise": (
        "5 (C epsilon^2 + eps_n + ridge + eps_r / ridge^2) B <= eps_s",
        "proof of Theorem 6.1, invariant 2",
    ),
    "oracle, False": (
        "eps_t + eps_r (1 + 1 / ridge^2) <= gamma^2 epsilon / (4 H)",
        "proof of Theorem 6.1, invariant 2",
    ),
    "norm": ("(1 + 1 / (2 sqrt(ridge)))^2 <= 1 + 1 / ridge^2", "Lemma A.4, as invariant 2 uses it"),
    "thresholds": ("d eps_s <= eps_t", "Lemma A.5, premise"),
    "thresholds, expected": ("d (2 eps_s) <= eps_t / 2", "Lemma A.5, as Lemma A.6 uses it"),
    "last step": ("max {x : 2^(x-1) eps_r^d <= (x+1)^d} <= 2 d log(d / eps_r)", "Lemma A.5, last line"),
    "cover": ("2 d log(d / eps_r) <= B", "Lemma A.6"),
    "samples, moments": ("d B^2 log(1 / epsilon) / eps_r^2 <= N", "Lemma A.6, premise"),
    "samples, regression": ("d log(1 / epsilon) / eps_n^2 <= N", "Lemma A.3, premise"),
}

# In the order of the notes of `Parameters.from_theorem`; D is `deviation`, 1 + 1 / (2 sqrt(ridge)) without noise.
CORRECTED = {
    "regression": (
        "3 B (C epsilon^2 + eps_n + ridge) + eps_r D^2 <= gamma^2 epsilon / (4 H K)",
        "proof of Theorem 6.1, invariant 1",
    ),
    "oracle, premise": (
        "3 B (C epsilon^2 + eps_n + ridge) + 3 eps_r D^2 <= eps_s",
        "proof of Theorem 6.1, invariant 2",
    ),
    "oracle, False": ("eps_t + eps_r D^2 / B <= gamma^2 epsilon / (4 H K)", "proof of Theorem 6.1, invariant 2"),
    "thresholds, expected": ("2 eps_s <= eps_t / 2", "Lemma A.5, as Lemma A.6 uses it"),
    "cover": ("d log((eps_r + B / d) / eps_r) <= (B - 1) log 2", "Lemma A.5, last line"),
    "samples, moments": ("8 B^2 log(2 d U / delta) / (3 eps_r^2) <= N", "Lemma A.2, as Lemma A.6 uses it"),
    "samples, noise": ("(4 d + 6 log(U / delta)) / eps_n <= N", "Lemma A.3, third term"),
    "samples, bias": ("2 log(U / delta) / eps_n^2 <= N", "Lemma A.3, second term"),
}


# Instead of these, where rewards are noisy: s is the standard deviation of the noise of a reward.
NOISY = {
    "norm": ("(1 + (1 + s sqrt(2 H)) / (2 sqrt(ridge)))^2 <= 1 + 1 / ridge^2", "Lemma A.4, as invariant 2 uses it"),
    "samples, regression": ("(1 + 4 s^2 H) d log(1 / epsilon) / eps_n^2 <= N", "Lemma A.3, premise"),
    "samples, noise": ("(1 + 4 s^2 H) (4 d + 6 log(U / delta)) / eps_n <= N", "Lemma A.3, third term"),
}


def needs(of: Constants) -> tuple[Inequality, ...]:
    """Return the inequalities that the proof needs of its constants, printed or corrected, in the order of their table.

    The printed ones are those that the paper displays, and those that its proof uses without displaying them.
    """
    table, sides = (CORRECTED, corrected_sides(of)) if of.corrected else (PRINTED, printed_sides(of))
    written = table | {name: text for name, text in NOISY.items() if of.noise and name in table}
    return tuple(Inequality(name, *text, *sides[name]) for name, text in written.items())


def spread(H: int, noise: Decimal) -> Decimal:
    """Return 1 + 4 s^2 H: how much larger the variance of a return, in units, may be than 1/4, that of one in [0, 1].

    The tails stay sub-Gaussian, with this factor to the proxy of a bounded return. So does every term that Hoeffding's
    inequality gives for returns; those on moments and on values, which noise does not touch, stay as they are.
    """
    return 1 + 4 * noise**2 * H


def deviation(ridge: Decimal, H: int, noise: Decimal) -> Decimal:
    """Return D >= |theta_hat - theta|: an estimate is at most as long as the root mean square of its targets allows.

    That of n returns in [0, 1] is at most 1, and that of normal noise exceeds s sqrt(2 H) with a chance of exp(-n / 7).
    """
    return 1 + (1 + noise * Decimal(2 * H).sqrt()) / (2 * ridge.sqrt())


def printed_sides(of: Constants) -> dict[str, tuple[Decimal, Decimal]]:
    """Return both sides of the inequalities of `PRINTED`, by name."""
    epsilon, d, H, B, N = of.epsilon, of.d, of.H, of.cover_bound, of.n_samples
    error = of.C * epsilon**2 + of.eps_n + of.ridge
    allowed = of.gamma**2 * epsilon / (4 * H)
    bound = 2 * d * (d / of.eps_r).ln()
    log = -epsilon.ln()
    return {
        "union over actions": (of.K * epsilon / H, epsilon / H),
        "regression": (4 * error * B, allowed),
        "oracle, premise": (5 * (error + of.eps_r / of.ridge**2) * B, of.eps_s),
        "oracle, False": (of.eps_t + of.eps_r * (1 + 1 / of.ridge**2), allowed),
        "norm": (deviation(of.ridge, H, of.noise) ** 2, 1 + 1 / of.ridge**2),
        "thresholds": (d * of.eps_s, of.eps_t),
        "thresholds, expected": (2 * d * of.eps_s, of.eps_t / 2),
        "last step": (largest_admitted(d, 1 / of.eps_r, 1 / of.eps_r), bound),
        "cover": (bound, B),
        "samples, moments": (d * B**2 * log / of.eps_r**2, N),
        "samples, regression": (spread(H, of.noise) * d * log / of.eps_n**2, N),
    }


def corrected_sides(of: Constants) -> dict[str, tuple[Decimal, Decimal]]:
    """Return both sides of the inequalities of `CORRECTED`, by name."""
    d, B = of.d, of.cover_bound
    error = 3 * B * (of.C * of.epsilon**2 + of.eps_n + of.ridge)
    shift = of.eps_r * deviation(of.ridge, of.H, of.noise) ** 2
    allowed = of.gamma**2 * of.epsilon / (4 * of.H * of.K)
    samples = samples_needed(d, of.H, of.K, of.delta, of.eps_n, of.eps_r, B, of.noise)
    return {
        "regression": (error + shift, allowed),
        "oracle, premise": (error + 3 * shift, of.eps_s),
        "oracle, False": (of.eps_t + shift / B, allowed),
        "thresholds, expected": (2 * of.eps_s, of.eps_t / 2),
        "cover": (d * (1 + B / (d * of.eps_r)).ln(), (B - 1) * Decimal(2).ln()),
        **{f"samples, {why}": (n, of.n_samples) for why, n in zip(("moments", "noise", "bias"), samples, strict=True)},
    }


def samples_needed(
    d: int, H: int, K: int, delta: Decimal, eps_n: Decimal, eps_r: Decimal, B: Decimal, noise: Decimal = Decimal(0)
) -> tuple[Decimal, Decimal, Decimal]:
    """Return the N needed for second moments, noise and bias of the regression (`from_theorem`, Notes, 4)."""
    # With noise, each of 3 H K B regressions has one event more: that on the size of its targets.
    events = (20 if noise else 17) * H**2 * K * B**2
    once = (events / delta).ln()
    moments = Decimal(8) / 3 * (2 * d * events / delta).ln() * (B / eps_r) ** 2
    return moments, spread(H, noise) * (4 * d + 6 * once) / eps_n, 2 * once / eps_n**2


def largest_admitted(d: int, constant: Decimal, slope: Decimal) -> Decimal:
    """Return the largest real x with 2^(x - 1) <= (constant + slope x)^d, for constant + slope > 1."""
    scale = d / Decimal(2).ln()
    x = Decimal(2)
    while x - 1 < scale * (constant + slope * x).ln():
        x *= 2
    # Newton's iteration on a convex function decreases to the root from the right.
    while True:
        base = constant + slope * x
        step = (x - 1 - scale * base.ln()) / (1 - scale * slope / base)
        x -= step
        if abs(step) <= x * Decimal("1e-20"):
            return x
