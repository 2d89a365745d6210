"""The inequalities that the proof of Theorem 6.1 needs of its constants, each with its source and both sides."""

from __future__ import annotations

import decimal
from collections.abc import Iterator
from decimal import Decimal
from typing import NamedTuple, Protocol

__all__ = ["ARITHMETIC", "Inequality", "corrected_needs", "largest_admitted", "printed_needs", "samples_needed"]

# The constants span hundreds of orders of magnitude: decimals of 40 digits with practically unbounded exponents.
ARITHMETIC = decimal.Context(prec=40, Emax=decimal.MAX_EMAX, Emin=decimal.MIN_EMIN, rounding=decimal.ROUND_HALF_EVEN)

ROUNDING = Decimal("1e-30")
"""Tolerance for left <= right, relative to the right side: both sides are rounded to 40 digits."""


class Constants(Protocol):
    """Constants that the inequalities contain: attributes of `theory.Parameters`."""

    @property
    def epsilon(self) -> Decimal: ...
    @property
    def gamma(self) -> Decimal: ...
    @property
    def C(self) -> Decimal: ...
    @property
    def d(self) -> int: ...
    @property
    def H(self) -> int: ...
    @property
    def K(self) -> int: ...
    @property
    def delta(self) -> Decimal: ...
    @property
    def eps_t(self) -> Decimal: ...
    @property
    def eps_s(self) -> Decimal: ...
    @property
    def eps_n(self) -> Decimal: ...
    @property
    def ridge(self) -> Decimal: ...
    @property
    def eps_r(self) -> Decimal: ...
    @property
    def cover_bound(self) -> Decimal: ...
    @property
    def n_samples(self) -> Decimal: ...


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


def printed_needs(of: Constants) -> Iterator[Inequality]:
    """Yield the inequalities that the paper displays, and those that its proof uses without displaying them."""
    epsilon, C, d, H, K, B = of.epsilon, of.C, of.d, of.H, of.K, of.cover_bound
    error = C * epsilon**2 + of.eps_n + of.ridge
    allowed = of.gamma**2 * epsilon / (4 * H)
    printed = 2 * d * (d / of.eps_r).ln()
    admitted = largest_admitted(d, 1 / of.eps_r, 1 / of.eps_r)
    norm = (1 + 1 / (2 * of.ridge.sqrt())) ** 2
    log = -epsilon.ln()
    yield Inequality(
        "union over actions",
        "K epsilon / H <= epsilon / H",
        "proof of Theorem 6.1, before equation (3)",
        K * epsilon / H,
        epsilon / H,
    )
    yield Inequality(
        "regression",
        "4 (C epsilon^2 + eps_n + ridge) B <= gamma^2 epsilon / (4 H)",
        "proof of Theorem 6.1, invariant 1",
        4 * error * B,
        allowed,
    )
    yield Inequality(
        "oracle, premise",
        "5 (C epsilon^2 + eps_n + ridge + eps_r / ridge^2) B <= eps_s",
        "proof of Theorem 6.1, invariant 2",
        5 * (error + of.eps_r / of.ridge**2) * B,
        of.eps_s,
    )
    yield Inequality(
        "oracle, False",
        "eps_t + eps_r (1 + 1 / ridge^2) <= gamma^2 epsilon / (4 H)",
        "proof of Theorem 6.1, invariant 2",
        of.eps_t + of.eps_r * (1 + 1 / of.ridge**2),
        allowed,
    )
    yield Inequality(
        "norm",
        "(1 + 1 / (2 sqrt(ridge)))^2 <= 1 + 1 / ridge^2",
        "Lemma A.4, as invariant 2 uses it",
        norm,
        1 + 1 / of.ridge**2,
    )
    yield Inequality("thresholds", "d eps_s <= eps_t", "Lemma A.5, premise", d * of.eps_s, of.eps_t)
    yield Inequality(
        "thresholds, expected",
        "d (2 eps_s) <= eps_t / 2",
        "Lemma A.5, as Lemma A.6 uses it",
        2 * d * of.eps_s,
        of.eps_t / 2,
    )
    yield Inequality(
        "last step",
        "max {x : 2^(x-1) eps_r^d <= (x+1)^d} <= 2 d log(d / eps_r)",
        "Lemma A.5, last line",
        admitted,
        printed,
    )
    yield Inequality("cover", "2 d log(d / eps_r) <= B", "Lemma A.6", printed, B)
    yield Inequality(
        "samples, moments",
        "d B^2 log(1 / epsilon) / eps_r^2 <= N",
        "Lemma A.6, premise",
        d * B**2 * log / of.eps_r**2,
        of.n_samples,
    )
    yield Inequality(
        "samples, regression",
        "d log(1 / epsilon) / eps_n^2 <= N",
        "Lemma A.3, premise",
        d * log / of.eps_n**2,
        of.n_samples,
    )


def corrected_needs(of: Constants) -> Iterator[Inequality]:
    """Yield the inequalities of the corrected proof, in the order of the notes of `Parameters.from_theorem`."""
    d, H, K, B = of.d, of.H, of.K, of.cover_bound
    error = 3 * B * (of.C * of.epsilon**2 + of.eps_n + of.ridge)
    shift = of.eps_r * (1 + 1 / (2 * of.ridge.sqrt())) ** 2
    allowed = of.gamma**2 * of.epsilon / (4 * H * K)
    moments, noise, bias = samples_needed(d, H, K, of.delta, of.eps_n, of.eps_r, B)
    yield Inequality(
        "regression",
        "3 B (C epsilon^2 + eps_n + ridge) + eps_r D^2 <= gamma^2 epsilon / (4 H K)",
        "proof of Theorem 6.1, invariant 1",
        error + shift,
        allowed,
    )
    yield Inequality(
        "oracle, premise",
        "3 B (C epsilon^2 + eps_n + ridge) + 3 eps_r D^2 <= eps_s",
        "proof of Theorem 6.1, invariant 2",
        error + 3 * shift,
        of.eps_s,
    )
    yield Inequality(
        "oracle, False",
        "eps_t + eps_r D^2 / B <= gamma^2 epsilon / (4 H K)",
        "proof of Theorem 6.1, invariant 2",
        of.eps_t + shift / B,
        allowed,
    )
    yield Inequality(
        "thresholds, expected",
        "2 eps_s <= eps_t / 2",
        "Lemma A.5, as Lemma A.6 uses it",
        2 * of.eps_s,
        of.eps_t / 2,
    )
    yield Inequality(
        "cover",
        "d log((eps_r + B / d) / eps_r) <= (B - 1) log 2",
        "Lemma A.5, last line",
        d * (1 + B / (d * of.eps_r)).ln(),
        (B - 1) * Decimal(2).ln(),
    )
    yield Inequality(
        "samples, moments",
        "8 B^2 log(2 d U / delta) / (3 eps_r^2) <= N",
        "Lemma A.2, as Lemma A.6 uses it",
        moments,
        of.n_samples,
    )
    yield Inequality(
        "samples, noise",
        "(4 d + 6 log(U / delta)) / eps_n <= N",
        "Lemma A.3, third term",
        noise,
        of.n_samples,
    )
    yield Inequality(
        "samples, bias",
        "2 log(U / delta) / eps_n^2 <= N",
        "Lemma A.3, second term",
        bias,
        of.n_samples,
    )


def samples_needed(
    d: int, H: int, K: int, delta: Decimal, eps_n: Decimal, eps_r: Decimal, B: Decimal
) -> tuple[Decimal, Decimal, Decimal]:
    """Return the N needed for second moments, noise and bias of the regression (`from_theorem`, Notes, 4)."""
    events = 17 * H**2 * K * B**2
    once = (events / delta).ln()
    moments = Decimal(8) / 3 * (2 * d * events / delta).ln() * (B / eps_r) ** 2
    return moments, (4 * d + 6 * once) / eps_n, 2 * once / eps_n**2


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
