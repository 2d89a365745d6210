"""The constants of Theorem 6.1, as the proof in the paper prints them, or corrected."""

from __future__ import annotations

import decimal
import math
from dataclasses import dataclass
from decimal import Decimal

import numpy as np

from dmq_fast._support.checks import integer, one_of
from dmq_fast.theory.bounds import FLOAT64_EPS_R
from dmq_fast.theory.inequalities import (
    ARITHMETIC,
    Constants,
    Inequality,
    largest_admitted,
    needs,
    samples_needed,
)

__all__ = ["Parameters"]

LARGEST_EXPONENT = 10**6
"""Largest decimal exponent of an argument."""

LARGEST_N = 2**63 - 1
"""Largest number of trajectories that compiled samplers count to."""

SMALLEST_LOG = -(2**16)
"""Natural logarithm of the epsilon below which `Parameters.largest_epsilon` ends its search."""

Number = float | int | Decimal


@dataclass(frozen=True)
class Parameters(Constants):
    """The constants of the proof of Theorem 6.1 for one problem; `from_theorem` makes them.

    All but the sizes are decimals of 40 digits, since float64 can represent neither the largest nor the smallest.

    Attributes
    ----------
    epsilon, gamma, C : Decimal
        Target accuracy, minimum gap (definition 3.1), constant of Low Variance (assumption 3.1). Epsilon and gamma are
        in units of the value range: points over its width.
    d, H, K : int
        Dimension, horizon, number of actions.
    delta : Decimal
        Probability with which the theorem may fail; only the corrected N depends on it.
    corrected : bool
        Whether the constants are the corrected ones.
    eps_t, eps_s, eps_r : Decimal
        Thresholds and regulariser of the oracle.
    eps_n : Decimal
        epsilon_N, the statistical error of the regression (lemma A.3).
    ridge : Decimal
        lambda_ridge.
    cover_bound : Decimal
        B, the bound on |Pi_h| (lemma A.6).
    n_samples : Decimal
        N, an integer.
    noise : Decimal
        Standard deviation of the noise of a reward around its mean, in units of the value range; 0 without noise.

    Examples
    --------
    >>> problem = Parameters.from_theorem(0.1, gamma=0.5, C=1, d=3, H=4, K=2, corrected=True)
    >>> print(f"{problem.eps_s:0.2g} {problem.eps_t:0.3g} {problem.n_samples:0.3g}")
    6.4 0.000625 1.39e+13
    >>> [inequality.name for inequality in problem.check() if not inequality.holds]
    ['regression', 'thresholds, expected']
    >>> print(f"{problem.largest_epsilon():0.3g}")  # so small must epsilon be for the proof to apply
    4.78e-7
    """

    @classmethod
    def from_theorem(
        cls,
        epsilon: Number,
        gamma: Number,
        C: Number,
        d: int,
        H: int,
        K: int,
        *,
        corrected: bool = False,
        delta: Number = 0.1,
        noise: Number = 0,
    ) -> Parameters:
        """Return the constants of the theorem, as its proof prints them or corrected.

        Parameters
        ----------
        epsilon : float, int or Decimal
            Target accuracy, 0 < epsilon < 1, in units of the value range.
        gamma : float, int or Decimal
            Minimum gap, 0 < gamma <= 1, in these units.
        C : float, int or Decimal
            Constant of Low Variance, C >= 1.
        d, H, K : int
            Dimension, horizon, number of actions, each >= 1.
        corrected : bool, default False
            Return constants that satisfy every inequality of the proof for small epsilon; see Notes.
        delta : float, int or Decimal, default 0.1
            Probability of failure of the corrected constants, 0 < delta < 1; the paper has "high probability" only.
        noise : float, int or Decimal, default 0
            Standard deviation s of normal noise around the mean of each reward, >= 0, in these units.

        Raises
        ------
        TypeError, ValueError
            If an argument is of a wrong type or out of range.

        Notes
        -----
        *Printed* (first lines of the proof of Theorem 6.1, appendix A; eps_r is lambda_r there)::

            eps_t = gamma^2 epsilon / (5 H)      eps_s = 96 C epsilon^2 d log(d / epsilon)
            eps_n = ridge = epsilon^2            eps_r = epsilon^6
            B = 12 d log(d / epsilon)            N = d / eps_r^2 polylog(1 / epsilon)

        with log(1 / epsilon), the smallest possible choice, for polylog(1 / epsilon).

        *Corrected*, in the order of the proof, for a deterministic initial policy and re-checks (docs/findings.md, A
        and B). Let D = 1 + 1 / (2 sqrt(ridge)) >= |theta_hat - theta| (docs/findings.md, E.v), and let
        tau = gamma^2 epsilon / (4 H K). By Markov's inequality, errors of mean square at most tau imply
        P[the error of some action is gamma / 2 or more] <= epsilon / H at every level.

        1. Covers (lemmas A.5, A.6). Let every second moment be known to eta = eps_r / B in operator norm. A True has
           an x with x^T x <= eps_s / eps_r, so that for expectations x^T (S + eps_r I) x <= 2 eps_s and x^T M_2 x >=
           eps_t / 2, and the determinant doubles if 4 eps_s <= eps_t (docs/findings.md, E.i). The trace grows by at
           most one, so |Pi_h| <= B where 2^(B - 1) = ((eps_r + B / d) / eps_r)^d.
        2. Regression (lemma A.3). On the data, the mean square of (theta_hat - theta)^T phi is at most
           3 (C epsilon^2 + eps_n + ridge). On the distribution of the data it is larger by at most eta D^2, and under
           each policy of the cover at most |Pi_h| <= B times as large. So invariant 1 needs
           3 B (C epsilon^2 + eps_n + ridge) + eps_r D^2 <= tau.
        3. Invariant 2 applies the oracle to theta_hat - theta. Its left side is at most B times the above, plus
           eta B D^2 for the samples of D_h, plus eps_r D^2: 3 B (C epsilon^2 + eps_n + ridge) + 3 eps_r D^2 <= eps_s.
           After a False, invariant 2 needs eps_t + eta D^2 <= tau.
        4. eta requires N >= (8/3) log(2 d U / delta) / eta^2 (matrix Bernstein; no factor d), the noise of the
           regression N >= (4 d + 6 log(U / delta)) / eps_n (tail of a quadratic form), the mean square of its bias
           N >= 2 log(U / delta) / eps_n^2 (Hoeffding), where U = 17 H^2 K B^2 bounds the number of these events: there
           are at most H B Trues, 3 H B runs of Algorithm 2, and 4 H K B passes of Algorithm 3.

        5. With noise, returns are not bounded, but sub-Gaussian: the noise of the regression needs 1 + 4 s^2 H times as
           many samples, and D = 1 + (1 + s sqrt(2 H)) / (2 sqrt(ridge)) and U = 20 H^2 K B^2, as each of 3 H K B
           regressions has one event more. Moments and the bias of values stay as they are: noise does not touch them.

        eps_n = ridge = epsilon^2 as printed; eps_t = gamma^2 epsilon / (5 H K), eps_r = epsilon^4,
        eps_s = 3 (C + 3) B epsilon^2, and N the least integer.
        """
        epsilon, gamma, C, delta, noise = (
            _decimal(name, value)
            for name, value in (("epsilon", epsilon), ("gamma", gamma), ("C", C), ("delta", delta), ("noise", noise))
        )
        _require(0 < epsilon < 1, "epsilon", "0 < epsilon < 1", epsilon)
        _require(0 < gamma <= 1, "gamma", "0 < gamma <= 1", gamma)
        _require(C >= 1, "C", "C >= 1", C)
        _require(0 < delta < 1, "delta", "0 < delta < 1", delta)
        _require(noise >= 0, "noise", "noise >= 0", noise)
        d, H, K = (integer(name, value, 1) for name, value in (("d", d), ("H", H), ("K", K)))
        with decimal.localcontext(ARITHMETIC):
            eps_n = ridge = epsilon**2
            if corrected:
                eps_t = gamma**2 * epsilon / (5 * H * K)
                eps_r = epsilon**4
                cover_bound = largest_admitted(d, Decimal(1), 1 / (d * eps_r))
                eps_s = 3 * (C + 3) * cover_bound * epsilon**2
                n_samples = max(samples_needed(d, H, K, delta, eps_n, eps_r, cover_bound, noise))
            else:
                eps_t = gamma**2 * epsilon / (5 * H)
                eps_s = 96 * C * epsilon**2 * d * (d / epsilon).ln()
                eps_r = epsilon**6
                cover_bound = 12 * d * (d / epsilon).ln()
                n_samples = d / eps_r**2 * -epsilon.ln()
            n_samples = n_samples.to_integral_value(decimal.ROUND_CEILING)
        return cls(
            epsilon=epsilon,
            gamma=gamma,
            C=C,
            d=d,
            H=H,
            K=K,
            delta=delta,
            corrected=bool(corrected),
            eps_t=eps_t,
            eps_s=eps_s,
            eps_n=eps_n,
            ridge=ridge,
            eps_r=eps_r,
            cover_bound=cover_bound,
            n_samples=n_samples,
            noise=noise,
        )

    def check(self) -> tuple[Inequality, ...]:
        """Evaluate the inequalities that the proof needs of these constants.

        For the printed constants these are the inequalities that the paper displays, and those that its proof uses
        without displaying them; for the corrected constants, the inequalities of `from_theorem`, Notes.
        """
        with decimal.localcontext(ARITHMETIC):
            return needs(self)

    def largest_epsilon(self, name: str | None = None) -> Decimal | None:
        """Return the largest epsilon <= 1 / e for which all inequalities hold for this problem, or one of them.

        Bisects log(epsilon) to ten digits. This is correct because an inequality that holds for one epsilon <= 1 / e
        holds for all smaller ones too.

        Parameters
        ----------
        name : str, optional
            Name of the inequality; all of `check` if not given.

        Returns
        -------
        Decimal or None
            An epsilon at which the inequalities hold. None if there is none above e^-65536.

        Raises
        ------
        ValueError
            If there is no inequality of that name.
        """
        if name is not None:
            one_of("name", name, [inequality.name for inequality in self.check()])

        def holds(log: Decimal) -> bool:
            at = self._at(log.exp(ARITHMETIC))
            return all(inequality.holds for inequality in at.check() if name in (None, inequality.name))

        low = Decimal(-1)
        while not holds(low):
            low *= 2
            if low < SMALLEST_LOG:
                return None
        if low == -1:
            return low.exp(ARITHMETIC)
        high = low / 2
        while high - low > Decimal("1e-10"):
            middle = (low + high) / 2
            low, high = (middle, high) if holds(middle) else (low, middle)
        return low.exp(ARITHMETIC)

    def at(self, epsilon: Number) -> Parameters:
        """Return the constants of the same problem for another target accuracy."""
        return self._at(_decimal("epsilon", epsilon))

    def _at(self, epsilon: Decimal) -> Parameters:
        return Parameters.from_theorem(
            epsilon, self.gamma, self.C, self.d, self.H, self.K, corrected=self.corrected, delta=self.delta,
            noise=self.noise,
        )  # fmt: skip

    @property
    def trajectories(self) -> Decimal:
        """Bound on the trajectories of a run with re-checks: 11 H K B^2 N.

        4 H K B passes of Algorithm 3 with at most B batches of N each, 3 H K B regressions on at most B N pairs, and
        the states of 3 H B runs of Algorithm 2 and H B tests of the returned policy, together at most 4 H B^2 batches.
        """
        with decimal.localcontext(ARITHMETIC):
            return 11 * self.H * self.K * self.cover_bound**2 * self.n_samples

    def dmq_arguments(self, *, extended: bool = False) -> dict[str, float | int]:
        """Return n_samples, ratio, eps_r and ridge as `DMQ` takes them, rounded to float64.

        Parameters
        ----------
        extended : bool, default False
            Whether the arguments are for ``ExactSampler(env, arithmetic=digits)``, where N may be any integer and eps_r
            any positive number of float64.

        Raises
        ------
        ValueError
            If N exceeds 64 bits, eps_r is below 1e-16, which float64 does not resolve beside second moments of norm
            one, or a constant is outside the range of float64.
        """
        exact = {"ratio": self.eps_t / self.eps_s, "eps_r": self.eps_r, "ridge": self.ridge}
        values = {name: float(number) for name, number in exact.items()}
        wrong = []
        for name in values if extended else ("ratio",):
            if not 0.0 < values[name] < math.inf:
                wrong.append(f"{name}: expected a number that float64 holds, got {exact[name]:.3g}")
        if self.n_samples > LARGEST_N and not extended:
            wrong.append(f"n_samples: expected at most 2^63 - 1, got {self.n_samples:.3g}")
        if self.eps_r < FLOAT64_EPS_R and not extended:
            wrong.append(
                f"eps_r: expected at least {FLOAT64_EPS_R:g}, the resolution of float64 beside S, got {self.eps_r:.3g}"
            )
        if wrong:
            hint = "" if extended else "; the exact sampler in extended precision takes any (extended=True)"
            raise ValueError("; ".join(wrong) + hint)
        return {**values, "n_samples": int(self.n_samples)}


def _decimal(name: str, value: Number) -> Decimal:
    """Return a finite number as a decimal with the digits that `str` prints."""
    if isinstance(value, bool) or not isinstance(value, float | int | Decimal | np.integer | np.floating):
        raise TypeError(f"{name}: expected a number, got {value!r}")
    if isinstance(value, int | np.integer):
        return Decimal(int(value))
    number = value if isinstance(value, Decimal) else Decimal(str(value))
    if not number.is_finite() or abs(number.adjusted()) > LARGEST_EXPONENT:
        raise ValueError(f"{name}: expected a finite number of at most {LARGEST_EXPONENT:,} digits, got {value}")
    return number


def _require(condition: bool, name: str, expected: str, value: Decimal) -> None:
    if not condition:
        raise ValueError(f"{name}: expected {expected}, got {value}")
