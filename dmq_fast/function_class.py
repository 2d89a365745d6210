"""Function classes: the regression and the DSEC oracle over a set of functions f(s) = phi(s)^T theta.

A `FunctionClass` is immutable and serves any number of runs. It makes one `Solver` for each run, which holds the
parameters and the workspace of that run. Both work on moments, never on states.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from dmq_fast.kernels import RidgeFit, RowOracle, RowScan, ShiftScan, as_positive, ridge_fit
from dmq_fast.moments import Moments
from dmq_fast.theory.bounds import finite_cover_bound, sure_cover_bound

__all__ = ["FiniteClass", "FiniteSolver", "FunctionClass", "LinearClass", "LinearSolver", "Solver"]

Array = NDArray[np.float64]

REFINEMENTS = 4
"""Rounds in which `dual_ridge` has to converge."""

NONE = np.empty(0)

EPSILON = float(np.finfo(np.float64).eps)
"""Distance of 1 from the next larger float64."""


class Solver(Protocol):
    """Regression and oracle of one run. A solver owns its workspace, so threads must not share one."""

    @property
    def n_marginal(self) -> int:
        """Number of oracle answers so far that were too close to call in floating point."""

    def fit(self, moments: Moments, level: int) -> Array:
        """Return theta_h^a, shape (d,), fitted to the pairs (phi(s_h), y) of one level (equation 2)."""

    def scan(self, cover_moments: Array, moments: Moments, top: int, bottom: int) -> tuple[int, Array]:
        """Invoke the oracle on levels top, top - 1, ..., bottom, until it returns True.

        An answer follows from S_h and the moments of its level alone: a run does not ask again while both are the same.

        Parameters
        ----------
        cover_moments : numpy.ndarray, shape (H, d, d)
            S_h, the sum over Pi_h of the second moments of its policies; for a solver with a method `row_oracle` it may
            be a list of H of what that returns. The size of the cover cancels: D_h has N
            states of each policy, so its mean is S_h / |Pi_h|, and regulariser and eps_1 = eps_s / |Pi_h| are divided
            by |Pi_h| as well.
        moments : Moments
            Moments of the candidate policy, on consecutive levels.
        top, bottom : int
            First and last level to test.

        Returns
        -------
        level : int
            The level whose answer was True, or -1.
        values : numpy.ndarray
            Value v of each level tested, in order; empty with ``oracle="decision"``.
        """

    def potential(self, moment: Array) -> float:
        """Return log det(S_h + eps_r I) of one level.

        NaN where the class has no potential, or S_h + eps_r I is not positive definite in its arithmetic.
        """

    def cover_bound(self, initial: int) -> int:
        """Return a bound on |Pi_h| that holds on every sample path if S_h keeps the M2 of every True.

        `initial` is the number of initial policies. The bound is 2^62 where there is none.
        """


@runtime_checkable
class FunctionClass(Protocol):
    """Interface of a class of functions f(s) = phi(s)^T theta with theta in some set, as `DMQ` uses it."""

    @property
    def is_cone(self) -> bool:
        """Whether c f belongs to the class with f, for all c >= 0. Then only the ratio of the thresholds matters."""

    def thresholds(self, ratio: float) -> tuple[float, float]:
        """Return eps_s and eps_t of the oracle, of the ratio R = eps_t / eps_s; (1, R) of a cone.

        Raises
        ------
        ValueError
            If the class has none, or others.
        """

    def solver(self, dimension: int, *, ridge: float, eps_s: float, eps_t: float, eps_r: float, oracle: str) -> Solver:
        """Return a new solver for features of this dimension, with the parameters of a run.

        Raises
        ------
        ValueError
            If the class does not fit the dimension.
        """

    def describe(self) -> dict[str, Any]:
        """Return a JSON-able description with "name" that differs from those of all other classes.

        Journals and results store it.
        """


class LinearClass:
    """Linear functions f(s) = phi(s)^T theta (paper, section 6).

    Notes
    -----
    The regularisers are Lambda(theta_1, theta_2) = eps_r ||theta_1 - theta_2||^2 of the oracle and Gamma(theta) =
    lambda_ridge ||theta||^2 of the regression. A norm ||x||_G^2 = x^T G x with G = L L^T in both is that of the class
    on the features L^{-1} phi; `features.Nystrom` makes such features of a kernel.

    Examples
    --------
    >>> LinearClass()
    LinearClass()
    """

    is_cone = True

    def thresholds(self, ratio: float) -> tuple[float, float]:
        """Return (1, R): only the ratio of the thresholds matters."""
        return 1.0, ratio

    def solver(
        self, dimension: int, *, ridge: float, eps_s: float, eps_t: float, eps_r: float, oracle: str
    ) -> LinearSolver:
        """Return a new solver.

        Parameters
        ----------
        dimension : int
            Feature dimension d.
        ridge : float
            lambda_ridge of the regression.
        eps_s, eps_t, eps_r : float
            Thresholds and regulariser of the oracle. Only R = eps_t / eps_s and eps_r affect its answer.
        oracle : {"decision", "value"}
            Whether to decide by one factorisation alone, or to compute the top eigenvalue v as well.
        """
        return LinearSolver(dimension, ridge=ridge, eps_s=eps_s, eps_t=eps_t, eps_r=eps_r, oracle=oracle)

    def describe(self) -> dict[str, Any]:
        """Return the name of the class. Journals of 0.2.0 have two matrices beside it, which never differ from None."""
        return {"name": "linear", "regularizer": None, "penalty": None}

    def __repr__(self) -> str:
        return "LinearClass()"


class LinearSolver:
    """Ridge regression and oracle of a `LinearClass`, with v = eps_s lambda_max((S_h + eps_r I)^{-1} M2).

    Attributes
    ----------
    row_scan : RowScan
        What answers for moments in rows.
    """

    def __init__(self, dimension: int, *, ridge: float, eps_s: float, eps_t: float, eps_r: float, oracle: str) -> None:
        self.matrix_scan = ShiftScan(dimension, eps_s, eps_t, eps_r, oracle == "value")
        self.row_scan = RowScan(eps_s, eps_t, oracle == "value")
        self._ridge, self._ridge_fit = ridge, RidgeFit(dimension, ridge)

    @property
    def n_marginal(self) -> int:
        """Number of oracle answers so far that were too close to call; see `kernels.DsecResult`."""
        return self.matrix_scan.n_marginal + self.row_scan.n_marginal

    def row_oracle(self) -> RowOracle:
        """Return a `RowOracle` without states."""
        return RowOracle(self.matrix_scan.dimension, self.matrix_scan.eps_r)

    def fit(self, moments: Moments, level: int) -> Array:
        """Return the ridge estimate theta_h^a, shape (d,); see `Solver.fit`.

        Where no row has an entry, theta is 0, so rows are fitted on the columns that have.
        """
        pairs = moments.returns[level]
        if moments.rows is not None:
            rows, _, _, weights = moments.rows.arrays(moments.levels.index(level))
            # Rows that are all of length d are dense.
            if 2 * len(weights) < moments.rows.dimension and len(rows) == len(weights) * moments.rows.dimension:
                dense = rows.reshape(len(weights), -1) * np.sqrt(weights)[:, None]
                theta = dual_ridge(dense, pairs.moment, pairs.n * self._ridge)
                if theta is not None:
                    return theta
            support, gram = moments.rows.compressed(moments.levels.index(level))
            theta = np.zeros(moments.rows.dimension)
            if len(support):
                theta[support] = ridge_fit(gram, pairs.moment[support], pairs.n, self._ridge)
            return theta
        return self._ridge_fit(moments.gram_at(level), pairs.moment, pairs.n)

    def scan(
        self, cover_moments: Array | list[RowOracle], moments: Moments, top: int, bottom: int
    ) -> tuple[int, Array]:
        """Invoke the oracle level by level; see `Solver.scan`."""
        n, base = moments.n, moments.levels[0]
        if isinstance(cover_moments, list):
            if moments.rows is not None:
                level, values = self.row_scan.scan(cover_moments, moments.rows, n, base, top, bottom)
                return level, np.asarray(values) if values else NONE
            dense = np.zeros((top + 1, self.matrix_scan.dimension, self.matrix_scan.dimension))
            for h in range(bottom, top + 1):
                dense[h] = cover_moments[h].matrix()
            cover_moments = dense
        level, values = self.matrix_scan.scan(cover_moments, moments.grams, n, base, top, bottom)
        return level, np.asarray(values) if values else NONE

    def potential(self, moment: Array) -> float:
        """Return log det(S_h + eps_r I); see `Solver.potential`."""
        sign, logarithm = np.linalg.slogdet(moment + self.matrix_scan.eps_r * np.eye(len(moment)))
        return float(logarithm) if sign > 0.0 else float("nan")

    def cover_bound(self, initial: int) -> int:
        """Return the bound of `theory.sure_cover_bound`."""
        scan = self.matrix_scan
        return sure_cover_bound(scan.dimension, scan.eps_t / scan.eps_s, scan.eps_r, initial=initial)


@np.errstate(over="ignore", invalid="ignore")  # what is not finite is left to the other way
def dual_ridge(rows: Array, moment: Array, penalty: float) -> Array | None:
    """Solve (X^T X + p I) theta = b for n rows X (n, d), n < d, by equations of order n.

    theta = (b - X^T (X X^T + p I)^{-1} X b) / p subtracts nearly equal vectors where p is small, so it is refined until
    its residual is that of rounding. None if it is not after a few rounds.
    """
    inner = rows @ rows.T
    inner[np.diag_indices_from(inner)] += penalty
    theta, residual = np.zeros_like(moment), moment
    allowed = 8.0 * EPSILON * float(np.linalg.norm(moment))
    for _ in range(REFINEMENTS if penalty > 0.0 else 0):
        theta = theta + (residual - rows.T @ np.linalg.solve(inner, rows @ residual)) / penalty
        residual = moment - rows.T @ (rows @ theta) - penalty * theta
        if not np.linalg.norm(residual) > allowed:
            return theta if np.isfinite(theta).all() else None
    return None


class FiniteClass:
    """Class of finitely many functions f_1, ..., f_m, linear or not: oracle and regression by enumeration.

    The environment's features are F(s) = (f_1(s), ..., f_m(s)) / scale, so d = m, and f_i is theta = scale e_i. Second
    moments G of F suffice, as E(f_i - f_j)^2 = scale^2 (G_ii - 2 G_ij + G_jj); greedy rules, samplers and files need no
    change.

    Parameters
    ----------
    scale : float, default 1
        Factor > 0 between features and functions; sqrt(m) makes ||F|| <= 1 for functions with values in [-1, 1].
    eps_s, eps_t : float, optional
        Thresholds of the oracle, > 0, in units of (f_i - f_j)^2. A run needs at least one of them, and finds the other
        by its `ratio`; both have a ratio of their own.

    Attributes
    ----------
    scale : float
    eps_s, eps_t : float or None
        The arguments.

    Raises
    ------
    TypeError, ValueError
        If an argument is of another type or shape or out of range; the message names it.

    Notes
    -----
    The class is not a cone, so both thresholds matter, in units of (f_i - f_j)^2, and not only their ratio. eps_s is
    the error that the fit on a cover may have, summed over its policies. Where all differences on all states are
    smaller than sqrt(eps_t), the oracle never returns True. An answer costs O(m^2) operations a level. Lambda and Gamma
    are 0, so eps_r and lambda_ridge have no effect: finitely many pairs bound the covers alone, see
    `FiniteSolver.cover_bound`.

    Examples
    --------
    >>> FiniteClass(scale=2.0)
    FiniteClass(scale=2.0)
    """

    is_cone = False

    def __init__(self, scale: float = 1.0, *, eps_s: float | None = None, eps_t: float | None = None) -> None:
        self.scale = as_positive("scale", scale)
        self.eps_s = None if eps_s is None else as_positive("eps_s", eps_s)
        self.eps_t = None if eps_t is None else as_positive("eps_t", eps_t)

    def thresholds(self, ratio: float) -> tuple[float, float]:
        """Return eps_s and eps_t. Where one is not given, it follows from the other by the ratio.

        Raises
        ------
        ValueError
            If neither is given, or one is beyond float64.
        """
        small, large = self.eps_s, self.eps_t
        if small is None:
            if large is None:
                raise ValueError(f"function_class: expected eps_s or eps_t, since it is no cone, got {self!r}")
            small = large / ratio
        if large is None:
            large = ratio * small
        if not (0.0 < small < math.inf and 0.0 < large < math.inf and 0.0 < large / small < math.inf):
            raise ValueError(f"ratio: expected thresholds and R within float64, got {ratio:g} with {self!r}")
        return small, large

    def solver(
        self, dimension: int, *, ridge: float, eps_s: float, eps_t: float, eps_r: float, oracle: str
    ) -> FiniteSolver:
        """Return a new solver for m = `dimension` functions.

        Parameters
        ----------
        dimension : int
            Number m of functions.
        ridge, eps_r : float
            Without effect.
        eps_s, eps_t : float
            Thresholds of the oracle, in units of (f_i - f_j)^2.
        oracle : {"decision", "value"}
            Whether to compute v as well as the decision.
        """
        return FiniteSolver(dimension, self.scale, eps_s=eps_s, eps_t=eps_t, with_values=oracle == "value")

    def describe(self) -> dict[str, Any]:
        """Return the name of the class and its scale; the thresholds are parameters of a run.

        Journals of 0.2.0 have two arrays beside them, which never differ from None.
        """
        return {"name": "finite", "scale": self.scale, "regularizer": None, "penalty": None}

    def __repr__(self) -> str:
        given = {"scale": self.scale, "eps_s": self.eps_s, "eps_t": self.eps_t}
        return f"FiniteClass({', '.join(f'{name}={value!r}' for name, value in given.items() if value is not None)})"


class Distances(NamedTuple):
    """Sums of (f_i - f_j)^2 over states, shape (m, m), and bounds on their rounding errors."""

    values: Array
    errors: Array


class FiniteSolver:
    """Least squares and the oracle (paper, oracle 4.2) over m functions; see `FiniteClass.solver`.

    Parameters
    ----------
    dimension : int
        Number m of functions.
    scale : float
        Factor between features and functions.
    eps_s, eps_t : float
        Thresholds of the oracle.
    with_values : bool
        Whether to compute v as well as the decision.
    """

    def __init__(self, dimension: int, scale: float, *, eps_s: float, eps_t: float, with_values: bool) -> None:
        self.dimension = dimension
        self.scale = scale
        self.eps_s = eps_s
        self.eps_t = eps_t
        self.with_values = with_values
        self.n_marginal = 0

    def fit(self, moments: Moments, level: int) -> Array:
        """Return scale e_i, shape (m,), for the first i that minimises mean (y - f_i)^2.

        The mean of y^2 is the same for all i and left out.
        """
        pairs = moments.returns[level]
        gram = moments.gram_at(level)
        with np.errstate(over="ignore", invalid="ignore"):
            squares = self.scale**2 * np.diagonal(gram)
            losses = (squares - 2.0 * self.scale * pairs.moment) / pairs.n
        if not np.isfinite(losses).all():
            raise ValueError(f"level {level}: a moment is not finite, or too large for float64")
        theta = np.zeros(self.dimension)
        theta[losses.argmin()] = self.scale
        return theta

    def scan(self, cover_moments: Array, moments: Moments, top: int, bottom: int) -> tuple[int, Array]:
        """Invoke the oracle level by level; see `Solver.scan`.

        The answer is True if E_{D2}(f_i - f_j)^2 >= eps_t for some i, j with |Pi_h|
        E_{D1}(f_i - f_j)^2 at most eps_s. The pair i = j makes v at least 0.
        """
        values = []
        for level in range(top, bottom - 1, -1):
            first = self._distances(cover_moments[level], level)
            second = self._distances(moments.grams[level - moments.levels[0]], level)
            bounded = first.values
            slack = first.errors + EPSILON * bounded
            target = moments.n * self.eps_t
            if self.with_values:
                values.append(float(second.values[bounded <= self.eps_s].max(initial=0.0)) / moments.n)
            answer = ((bounded <= self.eps_s) & (second.values >= target)).any()
            surely = ((bounded + slack <= self.eps_s) & (second.values - second.errors >= target)).any()
            possibly = ((bounded - slack <= self.eps_s) & (second.values + second.errors >= target)).any()
            self.n_marginal += int(possibly and not surely)
            if answer:
                return level, np.array(values)
        return -1, np.array(values)

    def potential(self, moment: Array) -> float:
        """Return NaN: the potential is one of linear functions."""
        return float("nan")

    def cover_bound(self, initial: int) -> int:
        """Return the bound of `theory.finite_cover_bound`."""
        return finite_cover_bound(self.dimension, self.eps_s, self.eps_t, initial)

    def _distances(self, gram: Array, level: int) -> Distances:
        """Return sums of (f_i - f_j)^2 from `gram`; each has five roundings of numbers up to twice G_ii + G_jj."""
        with np.errstate(over="ignore", invalid="ignore"):
            squares = self.scale**2 * np.diagonal(gram)
            sums = squares[:, None] + squares
            values = np.maximum(sums - 2.0 * self.scale**2 * gram, 0.0)
        if not np.isfinite(values).all():
            raise ValueError(f"level {level}: a second moment is not finite, or too large for float64")
        return Distances(values, 5.0 * EPSILON * sums)
