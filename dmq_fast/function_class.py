"""Function classes: the regression and the DSEC oracle over a set of functions f(s) = phi(s)^T theta.

A `FunctionClass` is immutable and serves any number of runs. It makes one `Solver` for each run, which holds the
parameters and the workspace of that run. Both work on moments, never on states.
"""

from __future__ import annotations

import hashlib
import math
from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dmq_fast.kernels import RidgeFit, RowOracle, RowScan, ShiftScan, as_floats, as_positive, ridge_fit
from dmq_fast.moments import Moments
from dmq_fast.theory.bounds import UNBOUNDED, finite_cover_bound, sure_cover_bound

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
        """Return log det(S_h + eps_r G) of one level.

        NaN where the class has no potential, or S_h + eps_r G is not positive definite in its arithmetic.
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

    Parameters
    ----------
    regularizer : array_like of shape (d, d), optional
        Symmetric positive definite G of the oracle's Lambda(theta_1, theta_2) = eps_r ||theta_1 - theta_2||_G^2 with
        ||x||_G^2 = x^T G x; the identity if not given. Asymmetry within rounding is averaged out.
    penalty : array_like of shape (d, d), optional
        Symmetric positive definite P of the regression's Gamma(theta) = lambda_ridge ||theta||_P^2; the identity if not
        given.

    Attributes
    ----------
    regularizer, penalty : numpy.ndarray or None
        The arguments, read-only.

    Raises
    ------
    TypeError, ValueError
        If an argument is not such a matrix; the message names it.

    Notes
    -----
    With G = L L^T the class is that of the features L^{-1} phi under the identity, in the coordinates L^T theta. For
    features (k(z_1, s), ..., k(z_m, s)) of a kernel k, G = P = (k(z_i, z_j))_ij makes both norms those of the kernel's
    Hilbert space; `features.Nystrom` has the same effect through whitened features, of norm at most 1.

    Examples
    --------
    >>> LinearClass()
    LinearClass()
    >>> LinearClass(regularizer=[[2.0, 0.5], [0.5, 1.0]])
    LinearClass(regularizer=<array of shape (2, 2)>)
    """

    is_cone = True

    def thresholds(self, ratio: float) -> tuple[float, float]:
        """Return (1, R): only the ratio of the thresholds matters."""
        return 1.0, ratio

    def __init__(self, regularizer: ArrayLike | None = None, penalty: ArrayLike | None = None) -> None:
        self.regularizer = None if regularizer is None else _definite("regularizer", regularizer)
        self.penalty = None if penalty is None else _definite("penalty", penalty)

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

        Raises
        ------
        ValueError
            If a matrix of the class is of another dimension.
        """
        for name in ("regularizer", "penalty"):
            _check_shape(name, getattr(self, name), (dimension, dimension))
        return LinearSolver(
            dimension,
            ridge=ridge,
            eps_s=eps_s,
            eps_t=eps_t,
            eps_r=eps_r,
            oracle=oracle,
            regularizer=self.regularizer,
            penalty=self.penalty,
        )

    def describe(self) -> dict[str, Any]:
        """Return the name of the class, and the SHA-256 of each matrix."""
        return {"name": "linear", "regularizer": _digest(self.regularizer), "penalty": _digest(self.penalty)}

    def __repr__(self) -> str:
        return f"LinearClass({_arguments(regularizer=self.regularizer, penalty=self.penalty)})"


class LinearSolver:
    """Ridge regression and oracle of a `LinearClass`, with v = eps_s lambda_max((S_h + eps_r G)^{-1} M2).

    Attributes
    ----------
    row_scan : RowScan
        What answers for moments in rows.
    """

    def __init__(
        self,
        dimension: int,
        *,
        ridge: float,
        eps_s: float,
        eps_t: float,
        eps_r: float,
        oracle: str,
        regularizer: Array | None = None,
        penalty: Array | None = None,
    ) -> None:
        self.matrix_scan = ShiftScan(dimension, eps_s, eps_t, eps_r, oracle == "value", regularizer)
        self.row_scan = RowScan(eps_s, eps_t, oracle == "value")
        self._ridge, self._penalty = ridge, None if penalty is None else ridge * penalty
        self._ridge_fit = RidgeFit(dimension, ridge if penalty is None else 0.0)

    @property
    def n_marginal(self) -> int:
        """Number of oracle answers so far that were too close to call; see `kernels.DsecResult`."""
        return self.matrix_scan.n_marginal + self.row_scan.n_marginal

    def row_oracle(self) -> RowOracle | None:
        """Return a `RowOracle` without states; None with a regulariser G."""
        scan = self.matrix_scan
        return RowOracle(scan.dimension, scan.eps_r) if scan.regularizer is None else None

    def fit(self, moments: Moments, level: int) -> Array:
        """Return the ridge estimate theta_h^a, shape (d,); see `Solver.fit`.

        Where no row has an entry, theta is 0, so rows are fitted on the columns that have.
        """
        pairs = moments.returns[level]
        if moments.rows is not None and self._penalty is None:
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
        gram = moments.gram_at(level)
        if self._penalty is not None:
            gram = gram + pairs.n * self._penalty
        return self._ridge_fit(gram, pairs.moment, pairs.n)

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
        """Return log det(S_h + eps_r G); see `Solver.potential`."""
        scan = self.matrix_scan
        shift = np.eye(len(moment)) if scan.regularizer is None else scan.regularizer
        sign, logarithm = np.linalg.slogdet(moment + scan.eps_r * shift)
        return float(logarithm) if sign > 0.0 else float("nan")

    def cover_bound(self, initial: int) -> int:
        """Return the bound of `theory.sure_cover_bound`.

        With a regulariser G, the features whitened by G have squared norm at most 1 / lambda_min(G). The bound is then
        that for eps_r lambda_min(G) in place of eps_r.
        """
        scan, least = self.matrix_scan, 1.0
        if scan.regularizer is not None:
            spectrum = np.linalg.eigvalsh(scan.regularizer)
            least = float(spectrum[0] - len(spectrum) * EPSILON * spectrum[-1])
        if least * scan.eps_r <= 0.0:
            return UNBOUNDED
        return sure_cover_bound(scan.dimension, scan.eps_t / scan.eps_s, scan.eps_r * least, initial=initial)


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
    regularizer : array_like of shape (m, m), optional
        Symmetric matrix with entries >= 0: the oracle's Lambda(f_i, f_j) is eps_r times its entry. 0 if not given:
        the bound on covers, `FiniteSolver.cover_bound`, needs no regulariser for finitely many pairs.
    penalty : array_like of shape (m,), optional
        Vector whose entries times lambda_ridge are the regression's Gamma(f_i). 0 if not given.
    eps_s, eps_t : float, optional
        Thresholds of the oracle, > 0, in units of (f_i - f_j)^2. A run needs at least one of them, and finds the other
        by its `ratio`; both have a ratio of their own.

    Attributes
    ----------
    scale : float
    eps_s, eps_t : float or None
        The arguments.
    regularizer, penalty : numpy.ndarray or None
        The arguments, read-only.

    Raises
    ------
    TypeError, ValueError
        If an argument is of another type or shape or out of range; the message names it.

    Notes
    -----
    The class is not a cone, so both thresholds matter, in units of (f_i - f_j)^2, and not only their ratio. eps_s is
    the error that the fit on a cover may have, summed over its policies. Where all differences on all states are
    smaller than sqrt(eps_t), the oracle never returns True. An answer costs O(m^2) operations a level.

    Examples
    --------
    >>> FiniteClass(scale=2.0)
    FiniteClass(scale=2.0)
    """

    is_cone = False

    def __init__(
        self,
        scale: float = 1.0,
        *,
        regularizer: ArrayLike | None = None,
        penalty: ArrayLike | None = None,
        eps_s: float | None = None,
        eps_t: float | None = None,
    ) -> None:
        self.scale = as_positive("scale", scale)
        self.eps_s = None if eps_s is None else as_positive("eps_s", eps_s)
        self.eps_t = None if eps_t is None else as_positive("eps_t", eps_t)
        self.regularizer = None if regularizer is None else _symmetric("regularizer", regularizer)
        if self.regularizer is not None and (self.regularizer < 0.0).any():
            raise ValueError(f"regularizer: expected entries >= 0, got {self.regularizer.min()}")
        self.penalty = None if penalty is None else _frozen(as_floats("penalty", penalty, (None,)))

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
            Factors of `penalty` and `regularizer`.
        eps_s, eps_t : float
            Thresholds of the oracle, in units of (f_i - f_j)^2.
        oracle : {"decision", "value"}
            Whether to compute v as well as the decision.

        Raises
        ------
        ValueError
            If an array of the class is of another size.
        """
        _check_shape("regularizer", self.regularizer, (dimension, dimension))
        _check_shape("penalty", self.penalty, (dimension,))
        return FiniteSolver(
            dimension,
            self.scale,
            penalty=np.zeros(dimension) if self.penalty is None else ridge * self.penalty,
            regularizer=np.zeros((dimension, dimension)) if self.regularizer is None else eps_r * self.regularizer,
            eps_s=eps_s,
            eps_t=eps_t,
            with_values=oracle == "value",
        )

    def describe(self) -> dict[str, Any]:
        """Return the name of the class, its scale, and the SHA-256 of each array.

        The thresholds are parameters of a run.
        """
        return {
            "name": "finite",
            "scale": self.scale,
            "regularizer": _digest(self.regularizer),
            "penalty": _digest(self.penalty),
        }

    def __repr__(self) -> str:
        given = _arguments(
            scale=self.scale,
            regularizer=self.regularizer,
            penalty=self.penalty,
            eps_s=self.eps_s,
            eps_t=self.eps_t,
        )
        return f"FiniteClass({given})"


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
    penalty : numpy.ndarray, shape (m,)
        Gamma(f_i).
    regularizer : numpy.ndarray, shape (m, m)
        |Pi_h| Lambda(f_i, f_j).
    eps_s, eps_t : float
        Thresholds of the oracle.
    with_values : bool
        Whether to compute v as well as the decision.
    """

    def __init__(
        self,
        dimension: int,
        scale: float,
        *,
        penalty: Array,
        regularizer: Array,
        eps_s: float,
        eps_t: float,
        with_values: bool,
    ) -> None:
        self.dimension = dimension
        self.scale = scale
        self.penalty = penalty
        self.regularizer = regularizer
        self.eps_s = eps_s
        self.eps_t = eps_t
        self.with_values = with_values
        self.n_marginal = 0

    def fit(self, moments: Moments, level: int) -> Array:
        """Return scale e_i, shape (m,), for the first i that minimises mean (y - f_i)^2 + Gamma(f_i).

        The mean of y^2 is the same for all i and left out.
        """
        pairs = moments.returns[level]
        gram = moments.gram_at(level)
        with np.errstate(over="ignore", invalid="ignore"):
            squares = self.scale**2 * np.diagonal(gram)
            losses = (squares - 2.0 * self.scale * pairs.moment) / pairs.n + self.penalty
        if not np.isfinite(losses).all():
            raise ValueError(f"level {level}: a moment is not finite, or too large for float64")
        theta = np.zeros(self.dimension)
        theta[losses.argmin()] = self.scale
        return theta

    def scan(self, cover_moments: Array, moments: Moments, top: int, bottom: int) -> tuple[int, Array]:
        """Invoke the oracle level by level; see `Solver.scan`.

        The answer is True if E_{D2}(f_i - f_j)^2 >= eps_t for some i, j with |Pi_h| times
        (E_{D1}(f_i - f_j)^2 + Lambda(f_i, f_j)) at most eps_s. The pair i = j makes v at least 0.
        """
        values = []
        for level in range(top, bottom - 1, -1):
            first = self._distances(cover_moments[level], level)
            second = self._distances(moments.grams[level - moments.levels[0]], level)
            bounded = first.values + self.regularizer
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


def _frozen(array: Array) -> Array:
    """Return a read-only copy."""
    out = np.array(array)
    out.setflags(write=False)
    return out


def _symmetric(name: str, value: ArrayLike) -> Array:
    """Return a symmetric matrix, read-only; asymmetry within rounding is averaged out."""
    matrix = as_floats(name, value, (None, None))
    d = len(matrix)
    if d == 0 or matrix.shape != (d, d):
        raise ValueError(f"{name}: expected shape (d, d) with d >= 1, got {matrix.shape}")
    if np.abs(matrix - matrix.T).max() > 8.0 * d * EPSILON * np.abs(matrix).max():
        raise ValueError(f"{name}: expected a symmetric matrix, got entries that differ across the diagonal")
    return _frozen(0.5 * matrix + 0.5 * matrix.T)


def _definite(name: str, value: ArrayLike) -> Array:
    """Return a symmetric positive definite matrix, read-only."""
    matrix = _symmetric(name, value)
    try:
        np.linalg.cholesky(matrix)
    except np.linalg.LinAlgError:
        raise ValueError(f"{name}: expected a positive definite matrix, got one that is not so in float64") from None
    return matrix


def _check_shape(name: str, array: Array | None, shape: tuple[int, ...]) -> None:
    """Raise ValueError if an array of the class does not fit the features."""
    if array is not None and array.shape != shape:
        raise ValueError(f"function_class: expected {name} of shape {shape} for these features, got {array.shape}")


def _digest(array: Array | None) -> str | None:
    """Return the SHA-256 of an array, or None without an array."""
    return None if array is None else hashlib.sha256(repr(array.shape).encode() + array.tobytes()).hexdigest()


def _arguments(**given: float | Array | None) -> str:
    """Return the text of the arguments of a constructor, for `repr`; None is left out."""
    return ", ".join(
        f"{name}=<array of shape {value.shape}>" if isinstance(value, np.ndarray) else f"{name}={value!r}"
        for name, value in given.items()
        if value is not None
    )
