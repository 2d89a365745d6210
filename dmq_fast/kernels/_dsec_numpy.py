"""The two parts of the DSEC oracle that are in NumPy: the square-root form from raw features, and a singular M1."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Generic, NamedTuple, TypeVar

import numpy as np
import scipy.linalg
from numpy.typing import ArrayLike, NDArray

from dmq_fast.kernels._validate import as_floats, as_numbers, as_positive

__all__ = ["DsecResult", "broadcast", "dsec_rows", "rank_deficient", "singular"]

EPSILON = float(np.finfo(np.float64).eps)

# Of one problem, or arrays of a stack of them.
Decision = TypeVar("Decision", bool, NDArray[np.bool_])
Value = TypeVar("Value", float, NDArray[np.float64])

# Eigenvalues below minus that many tolerances are no rounding of zero.
INDEFINITE = 8.0


class DsecResult(NamedTuple, Generic[Decision, Value]):
    """Answer of the DSEC oracle: `decision` (v >= eps2), `value` v, `witness` x (d,), and `marginal`.

    The witness is the theta_1 - theta_2 that attains v: x^T M1 x = eps1 and x^T M2 x = v. If v is infinite, x is a
    direction with x^T M1 x = 0 and x^T M2 x = 1. A decision that is not marginal is certain for the numbers given; a
    marginal one lies so close to the threshold that arithmetic of 100 bits does not resolve it, or decision, value or
    witness rest on the numerical rank of a singular M1. The value is rounded, so it may contradict a decision within
    its error, which grows with the condition number of M1.

    Of one problem they are a bool, a float, an array and a bool; of a stack of shape (...) they are arrays of this
    shape, the witness (..., d).
    """

    decision: Decision
    value: Value
    witness: NDArray[np.float64]
    marginal: Decision


def broadcast(
    m1: ArrayLike, m2: ArrayLike, eps1: ArrayLike, eps2: ArrayLike
) -> tuple[tuple[int, ...], list[NDArray[np.float64]], NDArray[np.intp]]:
    """Return a stack of problems whose leading dimensions broadcast.

    Returns
    -------
    shape : tuple of int
        Leading dimensions of the stack.
    arrays : list of numpy.ndarray
        The matrices (b, d, d) and the thresholds (b,), of as many b each as were given.
    at : numpy.ndarray, shape (4, number of problems)
        Which of each a problem takes.
    """
    arrays = [*matrices(m1=m1, m2=m2), *thresholds(eps1=eps1, eps2=eps2)]
    leading = [array.shape[: -2 if i < 2 else None] for i, array in enumerate(arrays)]
    try:
        shape = np.broadcast_shapes(*leading)
    except ValueError:
        raise ValueError(
            f"m1, m2, eps1, eps2: expected leading dimensions that broadcast, got {', '.join(map(str, leading))}"
        ) from None
    counts = [math.prod(lead) for lead in leading]
    at = np.empty((4, *shape), np.intp)
    for places, count, lead in zip(at, counts, leading, strict=True):
        places[...] = np.arange(count).reshape(lead)
    flat = [a.reshape(n, *a.shape[len(lead) :]) for a, n, lead in zip(arrays, counts, leading, strict=True)]
    return shape, flat, at.reshape(4, math.prod(shape))


def matrices(**given: ArrayLike) -> Iterator[NDArray[np.float64]]:
    """Yield stacks (..., d, d) of the same d as arrays of float64."""
    d = None
    for name, value in given.items():
        array = as_numbers(name, value)
        if d is None and array.ndim >= 2 and array.shape[-1] > 0:
            d = array.shape[-1]
        if d is None or array.shape[-2:] != (d, d):
            wanted = "(..., d, d) with d >= 1" if name == next(iter(given)) else f"(..., {d}, {d})"
            raise ValueError(f"{name}: expected shape {wanted}, got {array.shape}")
        yield as_floats(name, array, array.shape, finite=False)


def thresholds(**given: ArrayLike) -> Iterator[NDArray[np.float64]]:
    """Yield arrays of positive numbers."""
    for name, value in given.items():
        array = as_numbers(name, value)
        floats = as_floats(name, array, array.shape)
        if (floats <= 0.0).any():
            where = tuple(int(i) for i in np.argwhere(floats <= 0.0)[0])
            raise ValueError(f"{name}: expected positive numbers, got {floats[where]} at index {where}")
        yield floats


def rank_deficient(m1: NDArray[np.float64]) -> bool:
    """Return whether m1 (d, d) is singular within its own rounding, rows of zeros left out.

    With units in which its diagonal is 1, an eigenvalue of d units in the last place of the largest counts as zero; an
    m1 that is indefinite beyond rounding is not deficient.
    """
    lengths = np.diag(m1)
    kept = lengths > 0.0
    units = np.sqrt(lengths[kept])
    with np.errstate(over="ignore", invalid="ignore"):
        scaled = np.triu(m1[np.ix_(kept, kept)]) / units / units[:, None]
    if (lengths < 0.0).any() or not kept.any() or not np.isfinite(scaled).all():
        return False
    # A factorisation settles most cases: the largest eigenvalue is at most d, and elimination that succeeds is exact
    # for a matrix that is off by less than one of these four tolerances.
    shift = 4.0 * _tolerance(len(m1), len(scaled))
    try:
        np.linalg.cholesky(scaled.T - shift * np.eye(len(scaled)))
    except np.linalg.LinAlgError:
        pass
    else:
        return False
    spectrum = np.linalg.eigvalsh(scaled, UPLO="U")
    tolerance = _tolerance(len(m1), spectrum[-1])
    return bool(-INDEFINITE * tolerance <= spectrum[0] <= tolerance)


def _tolerance(d: int, largest: float) -> float:
    return d * EPSILON * max(largest, 1.0)


def singular(
    m1: NDArray[np.float64], m2: NDArray[np.float64], eps1: float, eps2: float, decision: bool, marginal: bool
) -> DsecResult[bool, float]:
    """Return the result of `dsec` if m1 (d, d) is not positive definite in float64.

    The decision is given, and kept unless it is marginal: then it follows from the value.
    """
    d, open_question = len(m1), marginal
    first, second = (np.triu(m) + np.triu(m, 1).T for m in (m1, m2))
    lengths, masses = np.diag(first), np.diag(second)
    if (lengths < 0.0).any():
        raise np.linalg.LinAlgError(f"m1: expected a positive semidefinite matrix, got {lengths.min():.3g} in it")
    empty = lengths == 0.0
    bare = np.where(empty, masses, 0.0)
    if (bare > 0.0).any():
        # A row of zeros is certainly in the null space.
        i = int(bare.argmax())
        return DsecResult(True, np.inf, np.eye(d)[i] / np.sqrt(bare[i]), False)
    # Scale to unit diagonal, so that small units do not pass for singularity.
    units = np.where(empty, 1.0, np.sqrt(lengths))
    with np.errstate(over="ignore", invalid="ignore"):
        first, second = (m / units / units[:, None] for m in (first, second))
    if not np.isfinite(first).all():
        raise np.linalg.LinAlgError("m1: expected a positive semidefinite matrix, got large entries in small rows")
    if not np.isfinite(second).all():
        raise ValueError("m1, m2: v or its witness overflows; rescale")
    spectrum, axes = np.linalg.eigh(first)
    tolerance = _tolerance(d, spectrum[-1])
    if spectrum[0] < -INDEFINITE * tolerance:
        raise np.linalg.LinAlgError(f"m1: expected a positive semidefinite matrix, got eigenvalue {spectrum[0]:.3g}")
    null = axes[:, spectrum <= tolerance]
    kept = axes[:, spectrum > tolerance] / np.sqrt(spectrum[spectrum > tolerance])
    # Apart from rows of zeros, a null space is one only within rounding.
    marginal = bool(marginal or null.shape[1] > empty.sum())
    mass, directions = np.linalg.eigh(null.T @ second @ null) if null.size else (np.zeros(1), np.eye(1))
    if mass[-1] > tolerance * np.diag(second).max():
        x = null @ directions[:, -1] / np.sqrt(mass[-1])
        # A certain False stays: M1 is definite then, but v cannot be computed in float64.
        return DsecResult(decision or open_question, np.inf, x / units, True)
    if kept.size == 0:
        return DsecResult(decision and not open_question, 0.0, np.zeros(d), marginal)
    values, directions = np.linalg.eigh(kept.T @ second @ kept)
    value = float(values[-1]) * eps1
    witness = kept @ directions[:, -1] * np.sqrt(eps1) / units
    witness[empty] = 0.0
    if not (np.isfinite(value) and np.isfinite(witness).all()):
        raise ValueError("m1, m2: v or its witness overflows; rescale")
    return DsecResult(value >= eps2 if open_question else decision, value, witness, marginal)


def dsec_rows(
    rows1: ArrayLike, rows2: ArrayLike, eps1: float, eps2: float, *, eps_r: float = 0.0
) -> DsecResult[bool, float]:
    """Return the answer of the DSEC oracle from raw features, without forming second moments.

    v = eps1 sigma_max(X2 T^{-1})^2 / n2, with T the triangular factor of [X1 / sqrt(n1); sqrt(eps_r) I].

    Parameters
    ----------
    rows1 : array_like, shape (n1, d)
        Features X1 of the states in D1.
    rows2 : array_like, shape (n2, d)
        Features X2 of the states in D2.
    eps1, eps2 : float
        epsilon_1 > 0 and epsilon_2 > 0 of the oracle.
    eps_r : float, default 0
        Regulariser added to the mean of D1, >= 0.

    Returns
    -------
    DsecResult
        `marginal` where |v - eps2| is within a bound on the rounding error of the factorisations and the witness does
        not prove v >= eps2 either. v is infinite where X1 with its regulariser has not full rank, within rounding,
        and X2 has mass outside.

    Raises
    ------
    TypeError, ValueError
        On a wrong dtype, shape or range, no row in either, an entry that is not finite, or a result beyond float64.
    """
    first = as_floats("rows1", rows1, (None, None))
    n1, d = first.shape
    second = as_floats("rows2", rows2, (None, d))
    n2 = len(second)
    if n1 == 0 or n2 == 0 or d == 0:
        raise ValueError(f"rows1, rows2: expected at least one row and column, got {(n1, d)} and {(n2, d)}")
    eps1, eps2, eps_r = as_positive("eps1", eps1), as_positive("eps2", eps2), as_positive("eps_r", eps_r, zero=True)
    if eps_r > 0.0:
        first = np.vstack([first, np.sqrt(eps_r) * np.sqrt(n1) * np.eye(d)])
    # Scale columns to order one, so that small units do not pass for singularity.
    units = np.abs(first).max(axis=0)
    empty = units == 0.0
    bare = np.where(empty, np.abs(second).max(axis=0), 0.0)
    if bare.any():
        # A column of zeros is certainly in the null space.
        i = int(bare.argmax())
        with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
            length = bare[i] * float(np.linalg.norm(second[:, i] / bare[i]) / np.sqrt(n2))
            witness = np.eye(d)[i] / length
        if not (np.isfinite(length) and np.isfinite(witness).all()):
            raise ValueError("rows1, rows2: v or its witness overflows; rescale")
        return DsecResult(True, np.inf, witness, False)
    units[empty] = 1.0
    with np.errstate(over="ignore", invalid="ignore"):
        first, second = first / units, second / units
        # v = (gain sigma)^2. Compute with lengths: their squares may overflow even if v does not.
        size = float(np.abs(second).max()) or 1.0
        gain, target = size * np.sqrt(eps1) * np.sqrt(n1 / n2), np.sqrt(eps2)
        if not (np.isfinite(size) and 0.0 < gain < np.inf):
            raise ValueError("rows1, rows2: v or its witness overflows; rescale")
        sigma, x, spread, proved = _top_direction(first, second / size, target / gain)
        length = gain * sigma
        value = float(length * length) if np.isfinite(sigma) else np.inf
        if np.isfinite(sigma):
            x = x / units * np.sqrt(eps1) * np.sqrt(n1)
        else:
            x = x / units * np.sqrt(n2) / size
    if not np.isfinite(x).all() or (np.isfinite(sigma) and not np.isfinite(value)):
        raise ValueError("rows1, rows2: v or its witness overflows; rescale")
    # The bound on the spread is of first order, so it holds for small spreads only.
    close = spread > 0.1 or abs(length - target) <= spread * max(length, target)
    return DsecResult(bool(proved or length >= target), value, x, bool(close and not proved))


def _top_direction(
    first: NDArray[np.float64], second: NDArray[np.float64], ratio: float
) -> tuple[float, NDArray[np.float64], float, bool]:
    """Maximum of |second x| / |first x| and its x, for columns of order one in `first`.

    Returns the maximum, x (d,) with |first x| = 1, a bound on the relative error of the maximum, and whether it is at
    least `ratio` for certain. It is infinite, and |second x| = 1, where first x vanishes up to rounding.
    """
    d = first.shape[1]
    factor, order = scipy.linalg.qr(first, mode="r", pivoting=True, check_finite=False)
    factor = factor[:d]
    target = scipy.linalg.qr(second[:, order], mode="r", check_finite=False)[0][:d]
    lengths = np.abs(np.diag(factor))
    # Householder QR is off by a small multiple of (rows) (columns) units in every column, relative to that column.
    unit1, unit2 = (EPSILON * 2.0 * d * len(rows) for rows in (first, second))
    rank = int((lengths > unit1 * lengths[0]).sum()) if lengths[0] > 0.0 else 0
    triangle = factor[:rank, :rank]
    # Coordinates y = T x: x is free in the last d - rank, where T x = 0.
    inverse = scipy.linalg.solve_triangular(triangle, np.eye(rank)) if rank else np.zeros((0, 0))
    x = np.zeros(d)
    if rank < d:
        kernel = np.zeros((d, d - rank))
        kernel[:rank] = -inverse @ factor[:rank, rank:]
        kernel[rank:] = np.eye(d - rank)
        kernel = scipy.linalg.orth(kernel)
        _, mass, directions = np.linalg.svd(target @ kernel)
        if mass[0] > max(unit1, unit2) * np.linalg.norm(target):
            x[order] = kernel @ directions[0] / mass[0]
            return np.inf, x, np.inf, _proves_shift(first, second, x, ratio)
    if rank == 0:
        return 0.0, x, 0.0, False
    _, sigma, directions = np.linalg.svd(target[:, :rank] @ inverse)
    top = float(sigma[0])
    x[order[:rank]] = inverse @ directions[0]
    # Bounds on the change of sigma if each column of T, or of X2, changes by `unit` of its length.
    weights = np.linalg.norm(inverse, axis=1)
    relative = unit1 * float(np.linalg.norm(triangle, axis=0) @ weights)
    absolute = unit2 * float(np.linalg.norm(target[:, :rank], axis=0) @ weights)
    spread = 2.0 * (relative + absolute / top) if top > 0.0 else 0.0
    rest = order[rank:]
    if first[:, rest].any() or second[:, rest].any():
        # With a numerical rank there is no bound.
        spread = np.inf
    return top, x, spread, _proves_shift(first, second, x, ratio)


def _proves_shift(
    first: NDArray[np.float64], second: NDArray[np.float64], x: NDArray[np.float64], ratio: float
) -> bool:
    """Return whether |second x| >= ratio |first x| for certain."""
    unit = EPSILON * (len(x) + 4)
    above = float(np.linalg.norm(second @ x) - unit * np.linalg.norm(np.abs(second) @ np.abs(x)))
    below = float(np.linalg.norm(first @ x) + unit * np.linalg.norm(np.abs(first) @ np.abs(x)))
    slack = 1.0 - EPSILON * (len(first) + len(second) + 8)
    return bool(above > 0.0 and above * slack >= ratio * below)
