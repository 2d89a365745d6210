"""Arithmetics for a run: float64, or numbers that hold the constants of the theorem beside second moments.

The constants of the proof have eps_r near 1e-36 and below, where float64 cannot tell S from S + eps_r I: moments, fit,
greedy choice and oracle must then all be computed in more digits. An arithmetic says how: a sampler has one, as its
attribute `arithmetic`, and `DMQ` asks it for the arrays, greedy rules and function class that suit that sampler's
moments. All but `samplers.ExactSampler` on request work in `FLOAT64`.
"""

from __future__ import annotations

import hashlib
import math
import operator
from collections.abc import Iterator, Sequence
from fractions import Fraction
from typing import Any, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dmq_fast.function_class import FunctionClass, LinearClass, Solver
from dmq_fast.kernels import Greedy, Interpreted, Rule, as_floats
from dmq_fast.moments import Moments

__all__ = ["FLOAT64", "Arithmetic", "ExactGreedy", "Extended", "ExtendedSolver", "as_arithmetic"]

# A number of whatever arithmetic: they add, multiply and compare.
Number = Any
Objects = NDArray[Any]

GUARD = 20
"""Digits that an arithmetic must have beyond those of the smallest constant."""

LEAST_DIGITS = 20


class Arithmetic(Protocol):
    """What `DMQ` asks of an arithmetic.

    Attributes
    ----------
    name : str or int
        What `as_arithmetic` takes.
    is_float64 : bool
        Whether its arrays are, so that files hold them. Otherwise N may be any integer: there is nothing to draw.
    """

    @property
    def name(self) -> str | int:
        """What `as_arithmetic` takes."""

    @property
    def is_float64(self) -> bool:
        """Whether its arrays are of float64."""

    def zeros(self, shape: tuple[int, ...]) -> NDArray[Any]:
        """Return an array of zeros."""

    def greedy(self, theta: NDArray[Any]) -> Rule:
        """Return the rule that is greedy on theta, shape (K, d)."""

    def solver(self, function_class: FunctionClass, dimension: int, **parameters: Any) -> Solver:
        """Return a new solver of the class, with the parameters of `FunctionClass.solver`."""


class Float64:
    """float64 and compiled kernels."""

    name = "float64"
    is_float64 = True

    def zeros(self, shape: tuple[int, ...]) -> NDArray[np.float64]:
        """Return an array of zeros."""
        return np.zeros(shape)

    def greedy(self, theta: NDArray[np.float64]) -> Greedy:
        """Return the rule that is greedy on theta, shape (K, d)."""
        return Greedy(theta)

    def solver(self, function_class: FunctionClass, dimension: int, **parameters: Any) -> Solver:
        """Return a new solver of the class, with the parameters of `FunctionClass.solver`."""
        return function_class.solver(dimension, **parameters)


FLOAT64 = Float64()


class Extended:
    """Object arrays of mpmath numbers of so many digits, or of fractions.

    Parameters
    ----------
    digits : int or None
        Decimal digits, at least 20; None for rational numbers, which are never rounded.

    Raises
    ------
    ImportError
        If mpmath is needed and not installed.
    ValueError
        If there are fewer than 20 digits.

    Notes
    -----
    Every number comes from a context of its own, so that nobody's ``mpmath.mp.dps`` matters, and none is changed.
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
                "arithmetic: digits need mpmath, pip install 'dmq-fast[theory]'; 'rational' does without"
            ) from error
        context = mpmath.MPContext()
        context.dps = digits
        self._number = context.mpf
        self._ratio = mpmath.libmp.to_rational

    @property
    def name(self) -> str | int:
        """What `as_arithmetic` takes."""
        return "rational" if self.digits is None else self.digits

    def number(self, value: float) -> Number:
        """Return a float64 or integer as a number of this arithmetic, exactly if it has the digits."""
        return self._number(value)

    def numbers(self, array: ArrayLike) -> Objects:
        """Return an array of float64 in this arithmetic, exactly."""
        values = np.asarray(array, dtype=np.float64)
        out = np.empty(values.shape, dtype=object)
        out.ravel()[:] = [self.number(value) for value in values.ravel().tolist()]
        return out

    def fraction(self, number: Number) -> Fraction:
        """Return a number of this arithmetic exactly."""
        return Fraction(number) if self.digits is None else Fraction(*self._ratio(number._mpf_))

    def zeros(self, shape: tuple[int, ...]) -> Objects:
        """Return an array of zeros."""
        return np.full(shape, self.number(0), dtype=object)

    def greedy(self, theta: Objects) -> ExactGreedy:
        """Return the rule that is greedy on theta, shape (K, d)."""
        return ExactGreedy([[self.fraction(weight) for weight in row] for row in theta])

    def solver(self, function_class: FunctionClass, dimension: int, **parameters: Any) -> Solver:
        """Return a new solver of a `LinearClass`, with the parameters of `FunctionClass.solver`.

        Raises
        ------
        TypeError, ValueError
            If it is another class, or the arithmetic has too few digits for the parameters.
        """
        if not isinstance(function_class, LinearClass):
            raise TypeError(f"function_class: expected a LinearClass in extended precision, got {function_class!r}")
        return ExtendedSolver(self, function_class, dimension, **parameters)

    def __eq__(self, other: object) -> bool:
        return self.digits == other.digits if isinstance(other, Extended) else NotImplemented

    def __hash__(self) -> int:
        return hash((Extended, self.digits))

    def __repr__(self) -> str:
        return f"Extended({self.digits})"

    def __reduce__(self) -> tuple[type[Extended], tuple[int | None]]:
        return (Extended, (self.digits,))


def as_arithmetic(arithmetic: str | int) -> Float64 | Extended:
    """Return the arithmetic of a name, "float64" or "rational", or of a number of decimal digits.

    Raises
    ------
    TypeError, ValueError
        If it is none of these.
    ImportError
        If it needs mpmath, which is not installed.
    """
    if isinstance(arithmetic, str):
        if arithmetic not in ("float64", "rational"):
            raise ValueError(f"arithmetic: expected 'float64', 'rational' or a number of digits, got {arithmetic!r}")
        return FLOAT64 if arithmetic == "float64" else Extended(None)
    if isinstance(arithmetic, bool) or not isinstance(arithmetic, int | np.integer):
        raise TypeError(f"arithmetic: expected 'float64', 'rational' or a number of digits, got {arithmetic!r}")
    return Extended(operator.index(arithmetic))


class ExactGreedy(Interpreted):
    """Take argmax_a phi(s)^T theta^a without rounding anything, ties to the smallest action.

    Parameters
    ----------
    theta : sequence of K sequences of d Fraction
        One weight vector per action; float64 and integers will do as well.

    Attributes
    ----------
    exact : tuple of K tuples of d Fraction
        theta.
    theta : numpy.ndarray, shape (K, d)
        It rounded to float64: shows what it is, but need not have the same greedy actions.

    Raises
    ------
    ValueError
        If theta has no entry, or rows of different lengths.

    Notes
    -----
    Features are float64, hence fractions too, so that a score is one, and comparing them is integer arithmetic. Actions
    are kept by feature vector: of a finite MDP, a table. Only samplers that work in Python can follow it.
    """

    __slots__ = ("_actions", "_digest", "_integers", "exact", "theta")

    def __init__(self, theta: Sequence[Sequence[Fraction | float]]) -> None:
        exact = tuple(tuple(Fraction(weight) for weight in row) for row in theta)
        if not exact or not exact[0] or len({len(row) for row in exact}) > 1:
            raise ValueError(f"theta: expected shape (K, d) with K, d >= 1, got rows of {[len(row) for row in exact]}")
        rounded = np.array(exact, dtype=np.float64)
        rounded.setflags(write=False)
        # One denominator for all weights: what is left decides.
        common = math.lcm(*(weight.denominator for row in exact for weight in row))
        integers = [[weight.numerator * (common // weight.denominator) for weight in row] for row in exact]
        whole = hashlib.blake2b(b"exact %d %d;" % rounded.shape, digest_size=16)
        for row in exact:
            for weight in row:
                whole.update(b"%x/%x;" % (weight.numerator, weight.denominator))
        for name, value in (
            ("exact", exact),
            ("theta", rounded),
            ("_digest", whole.digest()),
            ("_integers", integers),
            ("_actions", {}),
        ):
            object.__setattr__(self, name, value)

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"ExactGreedy is immutable; {name} cannot be set")

    def __delattr__(self, name: str) -> None:
        raise AttributeError(f"ExactGreedy is immutable; {name} cannot be deleted")

    exact: tuple[tuple[Fraction, ...], ...]
    theta: NDArray[np.float64]
    _digest: bytes
    _integers: list[list[int]]
    _actions: dict[bytes, int]

    @property
    def digest(self) -> bytes:
        """16 bytes that stand for theta: equal where it is, and else different."""
        return self._digest

    @property
    def n_actions(self) -> int:
        """Number of actions K."""
        return len(self.exact)

    def actions(self, features: ArrayLike) -> NDArray[np.int64]:
        """Return the actions (n,) of states whose features (n, d) are given."""
        rows = as_floats("features", features, (None, self.theta.shape[1]))
        out = np.empty(len(rows), dtype=np.int64)
        for i, row in enumerate(rows):
            key = row.tobytes()
            action = self._actions.get(key)
            if action is None:
                action = self._actions[key] = self._action(row.tolist())
            out[i] = action
        return out

    def _action(self, row: list[float]) -> int:
        ratios = [value.as_integer_ratio() for value in row]
        common = math.lcm(*(denominator for _, denominator in ratios))
        phi = [numerator * (common // denominator) for numerator, denominator in ratios]
        scores = [sum(map(operator.mul, phi, weights)) for weights in self._integers]
        return scores.index(max(scores))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Rule):
            return NotImplemented
        return isinstance(other, ExactGreedy) and self.exact == other.exact

    def __hash__(self) -> int:
        return hash(self.digest)

    def __repr__(self) -> str:
        return f"ExactGreedy(<theta of shape {self.theta.shape}>)"

    def __reduce__(self) -> tuple[type[ExactGreedy], tuple[tuple[tuple[Fraction, ...], ...]]]:
        return (ExactGreedy, (self.exact,))


class ExtendedSolver:
    """Ridge regression and oracle on moments of an `Extended` arithmetic; see `Solver` and `LinearClass.solver`.

    Raises
    ------
    ValueError
        If the arithmetic has too few digits for the constants.

    Notes
    -----
    The constants are float64 and exact as such. The oracle looks for the pivots of R (S + eps_r G) - M2: all positive
    means False. An answer that would change if the diagonal moved by that matrix's rounding is counted as marginal.
    """

    def __init__(
        self,
        arithmetic: Extended,
        linear: LinearClass,
        dimension: int,
        *,
        ridge: float,
        eps_s: float,
        eps_t: float,
        eps_r: float,
        oracle: str,
    ) -> None:
        # Checks the matrices of the class; its bound needs no digits.
        self._float64 = linear.solver(dimension, ridge=ridge, eps_s=eps_s, eps_t=eps_t, eps_r=eps_r, oracle="decision")
        smallest = min(ridge, eps_r, eps_t / eps_s * eps_r)
        needed = GUARD + max(0, math.ceil(-math.log10(smallest)))
        if arithmetic.digits is not None and arithmetic.digits < needed:
            raise ValueError(
                f"arithmetic: expected at least {needed} digits for eps_r = {eps_r:g}, R eps_r = "
                f"{eps_t / eps_s * eps_r:g} and ridge = {ridge:g}, got {arithmetic.digits}"
            )
        number = arithmetic.number
        self._arithmetic = arithmetic
        self._identity = arithmetic.numbers(np.eye(dimension))
        regularizer, penalty = (
            self._identity if matrix is None else arithmetic.numbers(matrix)
            for matrix in (linear.regularizer, linear.penalty)
        )
        self._regularizer, self._penalty = number(eps_r) * regularizer, number(ridge) * penalty
        self._eps_s, self._ratio = number(eps_s), number(eps_t) / number(eps_s)
        self._value = oracle == "value"
        # Sums of some hundred terms, each rounded: two of the guard digits are theirs, and two to spare.
        self._unit = number(0) if arithmetic.digits is None else 1 / number(10 ** (arithmetic.digits - 4))
        self.n_marginal = 0

    def fit(self, moments: Moments, level: int) -> Objects:
        """Return the ridge estimate theta_h^a, shape (d,), from pairs (phi(s_h), y) of one level (equation 2)."""
        pairs = moments.returns[level]
        gram = moments.grams[moments.levels.index(level)]
        return solved(gram / pairs.n + self._penalty, pairs.moment / pairs.n)

    def scan(self, cover: Objects, moments: Moments, top: int, bottom: int) -> tuple[int, NDArray[np.float64]]:
        """Invoke the oracle on levels top, top - 1, ..., bottom, until it says True; see `Solver.scan`."""
        values = []
        for level in range(top, bottom - 1, -1):
            second = moments.grams[moments.levels.index(level)] / moments.n
            first = cover[level] + self._regularizer
            if self._value:
                values.append(float(self._eps_s * top_eigenvalue(first, second)))
            if self._exceeds(first, second):
                return level, np.array(values)
        return -1, np.array(values)

    def potential(self, moment: Objects) -> float:
        """Return log det(S_h + eps_r G) of one level, rounded; see `Solver.potential`."""
        pivots = [self._arithmetic.fraction(pivot) for pivot in pivots_of(moment + self._regularizer)]
        if any(pivot <= 0 for pivot in pivots):
            return float("nan")
        return sum(math.log(pivot.numerator) - math.log(pivot.denominator) for pivot in pivots)

    def cover_bound(self, initial: int) -> int:
        """Return a bound on |Pi_h|; see `Solver.cover_bound`."""
        return self._float64.cover_bound(initial)

    def _exceeds(self, first: Objects, second: Objects) -> bool:
        """Whether lambda_max(first^{-1} second) >= R."""
        difference = self._ratio * first - second
        slack = self._unit * (self._ratio * first.trace() + second.trace()) * self._identity
        if is_definite(difference - slack):
            return False
        if self._unit == 0 or not is_definite(difference + slack):
            return True
        self.n_marginal += 1
        return not is_definite(difference)


def pivots_of(matrix: Objects) -> Iterator[Number]:
    """Yield the pivots of L D L^T of a symmetric matrix, up to the first that is not positive. Reads the lower half."""
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
    """Whether a symmetric matrix is positive definite: all its pivots are positive."""
    return all(pivot > 0 for pivot in pivots_of(matrix))


def solved(matrix: Objects, right: Objects) -> Objects:
    """Return matrix^{-1} right for a positive definite matrix (d, d) and right of shape (d,) or (d, m)."""
    a, b = matrix.copy(), right.copy()
    d = len(a)
    for j in range(d):  # no pivoting: it is definite
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

    It is the largest number t for which t first - second is not positive definite, at most the trace of
    first^{-1} second, and at least a d-th of that.
    """
    trace = solved(first, second).trace()
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
