"""The paper's theory as numbers: what the proof prescribes, what it needs, and what a run can be held against.

`Parameters.from_theorem` evaluates the constants of Theorem 6.1, as printed or corrected; `Parameters.check` lists the
inequalities behind them with both sides. Nothing here knows an environment: what is measured on one is in
`dmq_fast.certificate`.

Notes
-----
Where the printed algorithm and its proof fall short, and the test that shows it:

A. *Low Variance does not reach random roll-ins.* Assumption 3.1 speaks of deterministic policies, and the proof applies
   it to pi_h^a, which inherits the uniform initial policy of every cover. Under it the ratio of Assumption 3.1 is K^h
   on a deterministic lock, where C = 1, and the printed algorithm settles for a decoy, even with expectations for
   samples. One fixed action sequence as the initial policy repairs it.
   (test_certificate.py: test_uniform_roll_in_has_no_low_variance; test_findings.py)
B. *A check that was passed can go stale.* Learning level h' again changes what is played from h' on, so that samples
   drawn before say nothing about later levels any more. Repeating checks until nothing is found repairs it; no
   constants do.
   (test_findings.py: test_a_relearned_level_takes_its_trajectories_where_nothing_was_checked,
   test_a_check_that_went_stale_before_the_regression_goes_unnoticed_above,
   test_the_returned_policy_mixes_what_was_checked_one_by_one;
   test_extended.py: test_no_constants_repair_a_check_that_went_stale)
C. *Keeping the M_2 that was accepted makes the bound on covers sure.* If S grows by the very moments that the oracle
   said True to, log det(S + eps_r I) grows by at least log(1 + R) each time, whatever the noise: `sure_cover_bound`.
   (test_theory.py: test_accepted_moments_multiply_the_determinant, test_sure_bound_holds_on_accumulated_moments;
   test_findings.py)
D. *Trajectories can serve more than once*: those of the last clean check as regression data, those of a policy that is
   met again as its moments. (test_findings.py: test_frugal_draws_less_at_equal_success)
E. *Constants.*
   (i) eps_s <= eps_t suffices for the doubling in Lemma A.5, no 1/d is needed. If x^T M x >= eps_t and
   x^T A x <= eps_s for A = S + eps_r I, then A^{-1/2} M A^{-1/2} has a Rayleigh quotient of at least eps_t / eps_s, at
   A^{1/2} x, and so a top eigenvalue mu_1 as large: det(A + M) / det A = prod_i (1 + mu_i) >= 1 + eps_t / eps_s. The
   paper splits the same quotient into the coordinates of A's eigenvectors and loses the factor d by Cauchy-Schwarz.
   (test_equal_thresholds_double_the_determinant)
   (ii) The last step of Lemma A.5 does not give its bound: at d = 2, eps_r = .01 the inequality admits 23 > 21.2.
   (test_sure_bound_exceeds_the_printed_one_where_its_last_step_fails)
   (iii) Nor does its bound hold: at d = 1, eps_r = .5, eps_s = eps_t the oracle accepts M = .5, then M = 1, and
   2 > 1.39. (test_the_potential_lemma_fails_for_large_eps_r)
   (iv) "5 (...) |Pi| <= eps_s" needs 5 (C + 3) 12 <= 96 C, that is C >= 5. (test_printed_constants_need_c_of_five)
   (v) The ridge estimate has norm at most 1 / (2 sqrt(ridge)) for |y| <= 1, since sigma / (sigma^2 + ridge) is never
   more; for ridge <= 1 some data attain it. Lemma A.4 has 1 / ridge. (test_ridge_norm_bound_holds,
   test_ridge_norm_bound_is_tight)
   (vi) An error below gamma / 2 is needed of all K actions at once, so that each may fail with probability
   epsilon / (H K) only: the union is missing. (test_printed_constants_miss_the_union_over_actions)
   (vii) Lemma A.6 uses Lemma A.5 with 2 eps_s and eps_t / 2, so that the premise is needed with a factor 4, and needs
   B^2 in N, which the theorem's N lacks. (test_printed_constants_lack_what_lemma_a6_uses)
F. *The printed constants cannot be run by sampling.* Their eps_s <= eps_t / d holds below epsilon = 2e-6 for a small
   problem (gamma = .5, C = 1, d = 2, H = 5) and below 2e-10 for gamma = .1, d = 10, H = 50; N is then 1e70 and more,
   eps_r below 1e-34. (test_largest_epsilon_of_the_printed_premise) On exact expectations in extended precision they
   do run. (test_extended.py)
G. *Parameters that work in practice* are far from these: R = 2, eps_r = .01, ridge = .001, N = 100, the defaults of
   `DMQ`. What they guarantee is test_proof.py's to say: with expectations and tails that are optimal, mean square
   errors of |Pi_h| ridge |theta|^2 / 4 under the cover, and R (that + eps_r |theta|^2) where the oracle says False.
   (test_findings.py: test_new_directions_stay_hidden_where_ratio_times_regulariser_is_large;
   test_proof.py: test_working_parameters_guarantee_a_tolerance, test_no_action_is_suboptimal_with_enough_samples)
"""

from __future__ import annotations

import decimal
import math
from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dmq_fast._arguments import integer, one_of
from dmq_fast.kernels import as_numbers, as_positive

__all__ = [
    "Inequality",
    "Parameters",
    "finite_cover_bound",
    "potential",
    "printed_cover_bound",
    "ridge_norm_bound",
    "sure_cover_bound",
]

# Constants span hundreds of decades, so they are decimals of 40 digits whose exponent has no bound in practice.
ARITHMETIC = decimal.Context(prec=40, Emax=decimal.MAX_EMAX, Emin=decimal.MIN_EMIN, rounding=decimal.ROUND_HALF_EVEN)

ROUNDING = Decimal("1e-30")

LARGEST_EXPONENT = 10**6
LARGEST_N = 2**63 - 1

UNBOUNDED = 2**62
"""What bounds on covers answer where they are larger."""

FLOAT64_EPS_R = Decimal("1e-16")
"""Smallest eps_r that oracle decisions in float64 notice beside moments of norm one."""

ROUNDED_SUMS = 1e-9
"""Share by which a sum of rounded terms may be off: of up to 10^6 terms, in float64."""

SMALLEST_LOG = -(2**16)
"""Natural logarithm of the epsilon below which `Parameters.largest_epsilon` looks no further."""

Number = float | int | Decimal


class Inequality(NamedTuple):
    """left <= right, needed by the proof: a name, the formula, where in the paper it is used, and both sides."""

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


@dataclass(frozen=True)
class Parameters:
    """The constants of the proof of Theorem 6.1 for one problem; make them with `from_theorem`.

    All but the sizes are decimals of 40 digits, as float64 holds neither the largest nor the smallest of them.

    Attributes
    ----------
    epsilon, gamma, C : Decimal
        Target accuracy, minimum gap (definition 3.1), constant of Low Variance (assumption 3.1).
    d, H, K : int
        Dimension, horizon, number of actions.
    delta : Decimal
        Probability with which everything may fail; only the corrected N depends on it.
    corrected : bool
        Whether these are the corrected constants.
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
    """

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
    ) -> Parameters:
        """Evaluate the constants, as the proof prints them or corrected.

        Parameters
        ----------
        epsilon : float, int or Decimal
            Target accuracy, 0 < epsilon < 1.
        gamma : float, int or Decimal
            Minimum gap, 0 < gamma <= 1.
        C : float, int or Decimal
            Constant of Low Variance, C >= 1.
        d, H, K : int
            Dimension, horizon, number of actions, each >= 1.
        corrected : bool, default False
            Return constants under which the proof goes through, see Notes.
        delta : float, int or Decimal, default 0.1
            Probability of failure of the corrected constants, 0 < delta < 1; the paper says "high probability".

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

        where polylog(1 / epsilon) is read as log(1 / epsilon), the least it can be.

        *Corrected*, in the order of the proof, for a deterministic initial policy and re-checks (findings A, B).
        Write D = 1 + 1 / (2 sqrt(ridge)) >= |theta_hat - theta| (finding E.v) and tau = gamma^2 epsilon / (4 H K), so
        that by Markov's inequality errors of mean square at most tau make P[some action is off by gamma / 2 or more]
        <= epsilon / H at every level.

        1. Covers (lemmas A.5, A.6). Let every second moment be known to eta = eps_r / B in operator norm. A True comes
           with x^T x <= eps_s / eps_r, so that for expectations x^T (S + eps_r I) x <= 2 eps_s and x^T M_2 x >=
           eps_t / 2, and the determinant doubles if 4 eps_s <= eps_t (finding E.i). Its trace grows by at most one, so
           |Pi_h| <= B where 2^(B - 1) = ((eps_r + B / d) / eps_r)^d.
        2. Regression (lemma A.3). On the data, the mean square of (theta_hat - theta)^T phi is at most
           3 (C epsilon^2 + eps_n + ridge); on its distribution by at most eta D^2 more, and under each policy of the
           cover at most |Pi_h| <= B times that. So invariant 1 needs 3 B (C epsilon^2 + eps_n + ridge) + eps_r D^2 <=
           tau.
        3. Invariant 2 puts theta_hat - theta into the oracle. Its left side is at most B times the above, plus
           eta B D^2 for the samples of D_h, plus eps_r D^2: 3 B (C epsilon^2 + eps_n + ridge) + 3 eps_r D^2 <= eps_s.
           A False then says eps_t + eta D^2 <= tau.
        4. eta takes N >= (8/3) log(2 d U / delta) / eta^2 (matrix Bernstein; no factor d), the noise of the regression
           N >= (4 d + 6 log(U / delta)) / eps_n (tail of a quadratic form), the mean square of its bias
           N >= 2 log(U / delta) / eps_n^2 (Hoeffding), where U = 17 H^2 K B^2 bounds the number of these events: there
           are at most H B Trues, 3 H B runs of Algorithm 2, and 4 H K B passes of Algorithm 3.

        eps_n = ridge = epsilon^2 as printed; eps_t = gamma^2 epsilon / (5 H K), eps_r = epsilon^4,
        eps_s = 3 (C + 3) B epsilon^2, and N the least integer.
        """
        epsilon, gamma, C, delta = (
            _decimal(name, value)
            for name, value in (("epsilon", epsilon), ("gamma", gamma), ("C", C), ("delta", delta))
        )
        _require(0 < epsilon < 1, "epsilon", "0 < epsilon < 1", epsilon)
        _require(0 < gamma <= 1, "gamma", "0 < gamma <= 1", gamma)
        _require(C >= 1, "C", "C >= 1", C)
        _require(0 < delta < 1, "delta", "0 < delta < 1", delta)
        d, H, K = (integer(name, value, 1) for name, value in (("d", d), ("H", H), ("K", K)))
        with decimal.localcontext(ARITHMETIC):
            eps_n = ridge = epsilon**2
            if corrected:
                eps_t = gamma**2 * epsilon / (5 * H * K)
                eps_r = epsilon**4
                cover_bound = _largest_admitted(d, Decimal(1), 1 / (d * eps_r))
                eps_s = 3 * (C + 3) * cover_bound * epsilon**2
                n_samples = max(_samples(d, H, K, delta, eps_n, eps_r, cover_bound))
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
        )

    def check(self) -> tuple[Inequality, ...]:
        """Evaluate the inequalities that the proof needs of these constants.

        For the printed ones these are the displays of the paper, and where it uses more than it displays, that; for
        the corrected ones those of `from_theorem`, Notes.
        """
        with decimal.localcontext(ARITHMETIC):
            return tuple(self._corrected_needs() if self.corrected else self._printed_needs())

    def _printed_needs(self) -> Iterator[Inequality]:
        epsilon, C, d, H, K, B = self.epsilon, self.C, self.d, self.H, self.K, self.cover_bound
        error = C * epsilon**2 + self.eps_n + self.ridge
        allowed = self.gamma**2 * epsilon / (4 * H)
        printed = 2 * d * (d / self.eps_r).ln()
        admitted = _largest_admitted(d, 1 / self.eps_r, 1 / self.eps_r)
        norm = (1 + 1 / (2 * self.ridge.sqrt())) ** 2
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
            5 * (error + self.eps_r / self.ridge**2) * B,
            self.eps_s,
        )
        yield Inequality(
            "oracle, False",
            "eps_t + eps_r (1 + 1 / ridge^2) <= gamma^2 epsilon / (4 H)",
            "proof of Theorem 6.1, invariant 2",
            self.eps_t + self.eps_r * (1 + 1 / self.ridge**2),
            allowed,
        )
        yield Inequality(
            "norm",
            "(1 + 1 / (2 sqrt(ridge)))^2 <= 1 + 1 / ridge^2",
            "Lemma A.4, as invariant 2 uses it",
            norm,
            1 + 1 / self.ridge**2,
        )
        yield Inequality("thresholds", "d eps_s <= eps_t", "Lemma A.5, premise", d * self.eps_s, self.eps_t)
        yield Inequality(
            "thresholds, expected",
            "d (2 eps_s) <= eps_t / 2",
            "Lemma A.5, as Lemma A.6 uses it",
            2 * d * self.eps_s,
            self.eps_t / 2,
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
            d * B**2 * log / self.eps_r**2,
            self.n_samples,
        )
        yield Inequality(
            "samples, regression",
            "d log(1 / epsilon) / eps_n^2 <= N",
            "Lemma A.3, premise",
            d * log / self.eps_n**2,
            self.n_samples,
        )

    def _corrected_needs(self) -> Iterator[Inequality]:
        d, H, K, B = self.d, self.H, self.K, self.cover_bound
        error = 3 * B * (self.C * self.epsilon**2 + self.eps_n + self.ridge)
        shift = self.eps_r * (1 + 1 / (2 * self.ridge.sqrt())) ** 2
        allowed = self.gamma**2 * self.epsilon / (4 * H * K)
        moments, noise, bias = _samples(d, H, K, self.delta, self.eps_n, self.eps_r, B)
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
            self.eps_s,
        )
        yield Inequality(
            "oracle, False",
            "eps_t + eps_r D^2 / B <= gamma^2 epsilon / (4 H K)",
            "proof of Theorem 6.1, invariant 2",
            self.eps_t + shift / B,
            allowed,
        )
        yield Inequality(
            "thresholds, expected",
            "2 eps_s <= eps_t / 2",
            "Lemma A.5, as Lemma A.6 uses it",
            2 * self.eps_s,
            self.eps_t / 2,
        )
        yield Inequality(
            "cover",
            "d log((eps_r + B / d) / eps_r) <= (B - 1) log 2",
            "Lemma A.5, last line",
            d * (1 + B / (d * self.eps_r)).ln(),
            (B - 1) * Decimal(2).ln(),
        )
        yield Inequality(
            "samples, moments",
            "8 B^2 log(2 d U / delta) / (3 eps_r^2) <= N",
            "Lemma A.2, as Lemma A.6 uses it",
            moments,
            self.n_samples,
        )
        yield Inequality(
            "samples, noise",
            "(4 d + 6 log(U / delta)) / eps_n <= N",
            "Lemma A.3, third term",
            noise,
            self.n_samples,
        )
        yield Inequality(
            "samples, bias",
            "2 log(U / delta) / eps_n^2 <= N",
            "Lemma A.3, second term",
            bias,
            self.n_samples,
        )

    def largest_epsilon(self, name: str | None = None) -> Decimal | None:
        """Return the largest epsilon <= 1 / e for which all inequalities hold for this problem, or the one named.

        Bisects log(epsilon) to ten digits, which is right as every inequality that holds for some epsilon <= 1 / e
        holds for smaller ones too.

        Parameters
        ----------
        name : str, optional
            Of an inequality of `check`.

        Returns
        -------
        Decimal or None
            It holds at the number returned. None if it holds for no epsilon above e^-65536.

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
            epsilon, self.gamma, self.C, self.d, self.H, self.K, corrected=self.corrected, delta=self.delta
        )

    @property
    def trajectories(self) -> Decimal:
        """Bound on the trajectories of a run with re-checks: 11 H K B^2 N.

        4 H K B passes of Algorithm 3 with at most B batches of N each, 3 H K B regressions on at most B N pairs, and
        the states of 3 H B runs of Algorithm 2 and H B tests of the returned policy, together at most 4 H B^2 batches.
        """
        with decimal.localcontext(ARITHMETIC):
            return 11 * self.H * self.K * self.cover_bound**2 * self.n_samples

    def dmq_arguments(self, *, extended: bool = False) -> dict[str, float | int]:
        """Return eps_s, eps_t, eps_r, ridge and n_samples as `DMQ` takes them, rounded to float64.

        Parameters
        ----------
        extended : bool, default False
            For a run on ``ExactSampler(env, arithmetic=digits)``, where N may be any integer and eps_r any number that
            float64 holds.

        Raises
        ------
        ValueError
            If N is beyond 64 bits, eps_r below what float64 resolves beside second moments of norm one (1e-16), or a
            constant beyond float64.
        """
        values = {name: float(getattr(self, name)) for name in ("eps_s", "eps_t", "eps_r", "ridge")}
        wrong = []
        for name in values if extended else ("eps_s", "eps_t"):
            if not 0.0 < values[name] < math.inf:
                wrong.append(f"{name}: expected a number that float64 holds, got {getattr(self, name):.3g}")
        if self.n_samples > LARGEST_N and not extended:
            wrong.append(f"n_samples: expected at most 2^63 - 1, got {self.n_samples:.3g}")
        if self.eps_r < FLOAT64_EPS_R and not extended:
            wrong.append(
                f"eps_r: expected at least {FLOAT64_EPS_R:g}, what float64 resolves beside S, got {self.eps_r:.3g}"
            )
        if wrong:
            left = "" if extended else "; what is left is the exact sampler in extended precision (extended=True)"
            raise ValueError("; ".join(wrong) + left)
        return {**values, "n_samples": int(self.n_samples)}


def _samples(
    d: int, H: int, K: int, delta: Decimal, eps_n: Decimal, eps_r: Decimal, B: Decimal
) -> tuple[Decimal, Decimal, Decimal]:
    """N that the second moments, the noise and the bias of the regression need (`from_theorem`, Notes, 4)."""
    events = 17 * H**2 * K * B**2
    once = (events / delta).ln()
    moments = Decimal(8) / 3 * (2 * d * events / delta).ln() * (B / eps_r) ** 2
    return moments, (4 * d + 6 * once) / eps_n, 2 * once / eps_n**2


def _largest_admitted(d: int, constant: Decimal, slope: Decimal) -> Decimal:
    """Largest real x with 2^(x - 1) <= (constant + slope x)^d, for constant + slope > 1."""
    scale = d / Decimal(2).ln()
    x = Decimal(2)
    while x - 1 < scale * (constant + slope * x).ln():
        x *= 2
    # Newton's iteration on a convex function comes down to the root from the right.
    while True:
        base = constant + slope * x
        step = (x - 1 - scale * base.ln()) / (1 - scale * slope / base)
        x -= step
        if abs(step) <= x * Decimal("1e-20"):
            return x


def _decimal(name: str, value: Number) -> Decimal:
    """Return a finite number as the decimal that it is written as."""
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
