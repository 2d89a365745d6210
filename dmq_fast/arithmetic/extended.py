"""Arithmetics with more digits than float64: mpmath numbers of any precision, and fractions."""

from __future__ import annotations

import math
import operator
from collections.abc import Iterator
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dmq_fast.arithmetic.float64 import FLOAT64, Float64
from dmq_fast.function_class import FunctionClass, LinearClass, Solver
from dmq_fast.moments import Moments
from dmq_fast.rules import ExactGreedy
from dmq_fast.theory.bounds import sure_cover_bound

__all__ = ["Extended", "ExtendedSolver", "as_arithmetic"]

# A number of an extended arithmetic: mpf or Fraction.
Number = Any
Objects = NDArray[Any]

GUARD = 20
"""Decimal digits required beyond those of the smallest constant."""

LEAST_DIGITS = 20
"""Smallest number of decimal digits of an arithmetic."""


class Extended:
    """Arithmetic on object arrays of mpmath numbers of a fixed precision, or of fractions.

    Parameters
    ----------
    digits : int or None
        Number of decimal digits, at least 20; None for rational numbers, which are never rounded.

    Raises
    ------
    ImportError
        If mpmath is needed and not installed.
    ValueError
        If there are fewer than 20 digits.

    Notes
    -----
    Each arithmetic has an mpmath context of its own: it neither depends on ``mpmath.mp.dps`` nor changes it.

    Examples
    --------
    >>> rational = Extended(None)
    >>> rational.convert(0.25)
    Fraction(1, 4)
    >>> rational.zeros((1, 2))
    array([[Fraction(0, 1), Fraction(0, 1)]], dtype=object)
    """

    is_float64 = False

    def __init__(self, digits: int | None) -> None:
        self.digits = digits
        if digits is None:
            self._number: Any = Fraction
            return
        if digits < LEAST_DIGITS:
            raise ValueError(f"arithmetic: expected at least {LEAST_DIGITS} digits, got {digits}")
        try:
            import mpmath  # type: ignore[import-untyped]
        except ImportError as error:
            raise ImportError(
                "arithmetic: a number of digits needs mpmath, pip install 'dmq-fast[theory]'; 'rational' does not"
            ) from error
        context = mpmath.MPContext()
        context.dps = digits
        self._number = context.mpf
        self._ratio = mpmath.libmp.to_rational

    @property
    def name(self) -> str | int:
        """Argument with which `as_arithmetic` returns this arithmetic."""
        return "rational" if self.digits is None else self.digits

    def convert(self, value: float) -> Number:
        """Convert a float or integer to a number of this arithmetic, exactly if its digits suffice."""
        return self._number(value)

    def convert_array(self, array: ArrayLike) -> Objects:
        """Convert an array of float64 to an array of numbers of this arithmetic, exactly."""
        values = np.asarray(array, dtype=np.float64)
        out = np.empty(values.shape, dtype=object)
        out.ravel()[:] = [self.convert(value) for value in values.ravel().tolist()]
        return out

    def fraction(self, number: Number) -> Fraction:
        """Convert a number of this arithmetic to a fraction, exactly."""
        return Fraction(number) if self.digits is None else Fraction(*self._ratio(number._mpf_))

    def zeros(self, shape: tuple[int, ...]) -> Objects:
        """Return an array of zeros."""
        return np.full(shape, self.convert(0), dtype=object)

    def greedy(self, theta: Objects) -> ExactGreedy:
        """Return the rule that is greedy on theta, shape (K, d)."""
        return ExactGreedy([[self.fraction(weight) for weight in row] for row in theta])

    def solver(self, function_class: FunctionClass, dimension: int, **parameters: Any) -> Solver:
        """Return a new solver of a `LinearClass`, with the parameters of `FunctionClass.solver`.

        Raises
        ------
        TypeError, ValueError
            If the class is another one, or the arithmetic has too few digits for the parameters.
        """
        if not isinstance(function_class, LinearClass):
            raise TypeError(f"function_class: expected a LinearClass in extended precision, got {function_class!r}")
        return ExtendedSolver(self, dimension, **parameters)

    def __eq__(self, other: object) -> bool:
        return self.digits == other.digits if isinstance(other, Extended) else NotImplemented

    def __hash__(self) -> int:
        return hash((Extended, self.digits))

    def __repr__(self) -> str:
        return f"Extended({self.digits})"

    def __reduce__(self) -> tuple[type[Extended], tuple[int | None]]:
        return (Extended, (self.digits,))


def as_arithmetic(arithmetic: str | int) -> Float64 | Extended:
    """Return the arithmetic with a name, "float64" or "rational", or with a number of decimal digits.

    Raises
    ------
    TypeError, ValueError
        If the argument is none of these.
    ImportError
        If it is a number of digits and mpmath is not installed.

    Examples
    --------
    >>> as_arithmetic("rational"), as_arithmetic("float64").is_float64
    (Extended(None), True)
    """
    if isinstance(arithmetic, str):
        if arithmetic not in ("float64", "rational"):
            raise ValueError(f"arithmetic: expected 'float64', 'rational' or a number of digits, got {arithmetic!r}")
        return FLOAT64 if arithmetic == "float64" else Extended(None)
    if isinstance(arithmetic, bool) or not isinstance(arithmetic, int | np.integer):
        raise TypeError(f"arithmetic: expected 'float64', 'rational' or a number of digits, got {arithmetic!r}")
    return Extended(operator.index(arithmetic))


class ExtendedSolver:
    """Ridge regression and oracle on moments of an `Extended` arithmetic; see `Solver` and `LinearClass.solver`.

    Raises
    ------
    ValueError
        If the arithmetic has too few digits for the constants.

    Notes
    -----
    The constants are float64 numbers, converted exactly. The oracle returns False if all pivots of
    R (S + eps_r I) - M2 are positive. An answer counts as marginal if a change of the diagonal by the rounding error of
    that matrix would change it.
    """

    def __init__(
        self,
        arithmetic: Extended,
        dimension: int,
        *,
        ridge: float,
        eps_s: float,
        eps_t: float,
        eps_r: float,
        oracle: str,
    ) -> None:
        smallest = min(ridge, eps_r, eps_t / eps_s * eps_r)
        needed = GUARD + max(0, math.ceil(-math.log10(smallest)))
        if arithmetic.digits is not None and arithmetic.digits < needed:
            raise ValueError(
                f"arithmetic: expected at least {needed} digits for eps_r = {eps_r:g}, R eps_r = "
                f"{eps_t / eps_s * eps_r:g} and ridge = {ridge:g}, got {arithmetic.digits}"
            )
        convert = arithmetic.convert
        self._arithmetic = arithmetic
        self._identity = arithmetic.convert_array(np.eye(dimension))
        self._regularizer, self._penalty = convert(eps_r) * self._identity, convert(ridge) * self._identity
        self._float64 = dimension, eps_t / eps_s, eps_r
        self._eps_s, self._ratio = convert(eps_s), convert(eps_t) / convert(eps_s)
        self._value = oracle == "value"
        # Sums of some hundred rounded terms lose two digits; two more are a margin.
        self._unit = convert(0) if arithmetic.digits is None else 1 / convert(10 ** (arithmetic.digits - 4))
        self.n_marginal = 0

    def fit(self, moments: Moments, level: int) -> Objects:
        """Return the ridge estimate theta_h^a, shape (d,), from pairs (phi(s_h), y) of one level (equation 2)."""
        pairs = moments.returns[level]
        gram = moments.gram_at(level)
        return solve_definite(gram / pairs.n + self._penalty, pairs.moment / pairs.n)

    def scan(self, cover_moments: Objects, moments: Moments, top: int, bottom: int) -> tuple[int, NDArray[np.float64]]:
        """Invoke the oracle on levels top, top - 1, ..., bottom, until it returns True; see `Solver.scan`."""
        values = []
        for level in range(top, bottom - 1, -1):
            second = moments.second_moment(level)
            first = cover_moments[level] + self._regularizer
            if self._value:
                values.append(float(self._eps_s * top_eigenvalue(first, second)))
            if self._exceeds(first, second):
                return level, np.array(values)
        return -1, np.array(values)

    def potential(self, moment: Objects) -> float:
        """Return log det(S_h + eps_r I) of one level, rounded; see `Solver.potential`."""
        pivots = [self._arithmetic.fraction(pivot) for pivot in pivots_of(moment + self._regularizer)]
        if any(pivot <= 0 for pivot in pivots):
            return float("nan")
        return sum(math.log(pivot.numerator) - math.log(pivot.denominator) for pivot in pivots)

    def cover_bound(self, initial: int) -> int:
        """Return a bound on |Pi_h|; see `Solver.cover_bound`."""
        return sure_cover_bound(*self._float64, initial=initial)

    def _exceeds(self, first: Objects, second: Objects) -> bool:
        """Return whether lambda_max(first^{-1} second) >= R."""
        difference = self._ratio * first - second
        slack = self._unit * (self._ratio * first.trace() + second.trace()) * self._identity
        if is_definite(difference - slack):
            return False
        if self._unit == 0 or not is_definite(difference + slack):
            return True
        self.n_marginal += 1
        return not is_definite(difference)


def pivots_of(matrix: Objects) -> Iterator[Number]:
    """Yield the pivots of the factorisation L D L^T of a symmetric matrix, up to the first that is not positive.

    Only the lower triangle is read.
    """
    a = [list(row) for row in matrix]
    for j in range(len(a)):
        pivot = a[j][j]
        yield pivot
        if not pivot > 0:
            return
        for i in range(j + 1, len(a)):
            if a[i][j]:
                factor = a[i][j] / pivot
                for k in range(j + 1, i + 1):
                    a[i][k] -= factor * a[k][j]


def is_definite(matrix: Objects) -> bool:
    """Return whether a symmetric matrix is positive definite, that is, whether all its pivots are positive."""
    return all(pivot > 0 for pivot in pivots_of(matrix))


def solve_definite(matrix: Objects, right: Objects) -> Objects:
    """Return matrix^{-1} right for a positive definite matrix (d, d) and right of shape (d,) or (d, m)."""
    a, b = matrix.copy(), right.copy()
    d = len(a)
    for j in range(d):  # without pivoting, since the matrix is definite
        for i in range(j + 1, d):
            factor = a[i, j] / a[j, j]
            a[i, j:] -= factor * a[j, j:]
            b[i] -= factor * b[j]
    for j in reversed(range(d)):
        for k in range(j + 1, d):
            b[j] -= a[j, k] * b[k]
        b[j] /= a[j, j]
    return b


def top_eigenvalue(first: Objects, second: Objects) -> Number:
    """Return lambda_max(first^{-1} second) to float64 accuracy, by bisection.

    It is the largest t for which t first - second is not positive definite. It lies between a d-th of the trace of
    first^{-1} second and that trace.
    """
    trace = solve_definite(first, second).trace()
    if not trace > 0:
        return trace
    low, high = trace / len(first), trace
    while (high - low) * 2**54 > high:
        middle = (low + high) / 2
        if is_definite(middle * first - second):
            high = middle
        else:
            low = middle
    return high
