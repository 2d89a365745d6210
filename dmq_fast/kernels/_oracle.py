"""The DSEC oracle where NumPy does: in square-root form from raw features, and on a singular M1."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import scipy.linalg
from numpy.typing import ArrayLike, NDArray

from dmq_fast.kernels._validate import as_floats, as_positive

__all__ = ["DsecResult", "dsec_rows", "singular"]

EPSILON = float(np.finfo(np.float64).eps)


class DsecResult(NamedTuple):
    """Answer of the DSEC oracle.

    `decision` (v >= eps2), `value` v, `witness` x (d,), and `marginal`.

    The witness is the theta_1 - theta_2 that attains v: x^T M1 x = eps1 and x^T M2 x = v. Where v is infinite, x is a
    direction with x^T M1 x = 0 and x^T M2 x = 1. A decision that is not marginal is certain for the numbers given; a
    marginal one lies so close to the threshold that arithmetic of 100 bits does not resolve it, or rests on the
    numerical rank of a singular M1. The value is rounded, so it may contradict a decision within its last digits.
    """

    decision: bool
    value: float
    witness: NDArray[np.float64]
    marginal: bool


def singular(
    m1: NDArray[np.float64], m2: NDArray[np.float64], eps1: float, decision: bool, marginal: bool
) -> DsecResult:
    """Value and witness of `dsec` where m1 (d, d) is not positive definite in float64; the decision is known."""
    # Scaled to unit diagonal first: what is tiny because of its units is not singular.
    units = np.sqrt(np.diag(m1))
    empty = units == 0.0
    units[empty] = 1.0
    with np.errstate(over="ignore", invalid="ignore"):
        first, second = (np.triu(m) + np.triu(m, 1).T for m in (m1, m2))
        first, second = (m / units / units[:, None] for m in (first, second))
    if not (np.isfinite(first).all() and np.isfinite(second).all() and (np.diag(m1) >= 0.0).all()):
        raise np.linalg.LinAlgError("m1: expected a positive semidefinite matrix, got one that is not")
    lengths, axes = np.linalg.eigh(first)
    tolerance = len(m1) * EPSILON * max(lengths[-1], 1.0)
    if lengths[0] < -8.0 * tolerance:
        raise np.linalg.LinAlgError(f"m1: expected a positive semidefinite matrix, got eigenvalue {lengths[0]:.3g}")
    null = axes[:, lengths <= tolerance]
    kept = axes[:, lengths > tolerance] / np.sqrt(lengths[lengths > tolerance])
    # Rows of zeros are a null space without doubt; any other is one within rounding.
    exact = null.shape[1] == empty.sum()
    mass, directions = np.linalg.eigh(null.T @ second @ null)
    if null.size and mass[-1] > tolerance * max(1.0, np.diag(second).max()):
        x = null @ directions[:, -1] / np.sqrt(mass[-1])
        return DsecResult(True, np.inf, x / units, bool(marginal or not exact))
    if kept.size == 0:
        return DsecResult(decision, 0.0, np.zeros(len(m1)), bool(marginal))
    values, directions = np.linalg.eigh(kept.T @ second @ kept)
    witness = kept @ directions[:, -1] * np.sqrt(eps1) / units
    return DsecResult(decision, float(values[-1]) * eps1, witness, bool(marginal or not exact))


def dsec_rows(rows1: ArrayLike, rows2: ArrayLike, eps1: float, eps2: float, *, eps_r: float = 0.0) -> DsecResult:
    """DSEC oracle from raw features, in square-root form: no second moment is formed, no condition number squared.

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
        `marginal` where |v - eps2| is within the rounding error of the factorisations; v is infinite where X1 with
        its regulariser has not full rank and X2 has mass outside.

    Raises
    ------
    TypeError, ValueError
        On a wrong dtype, shape or range, no row in either, or an entry that is not finite.
    """
    first = as_floats("rows1", rows1, (None, None))
    n1, d = first.shape
    second = as_floats("rows2", rows2, (None, d))
    n2 = len(second)
    if n1 == 0 or n2 == 0 or d == 0:
        raise ValueError(f"rows1, rows2: expected at least one row and column, got {(n1, d)} and {(n2, d)}")
    eps1, eps2, eps_r = as_positive("eps1", eps1), as_positive("eps2", eps2), as_positive("eps_r", eps_r, zero=True)
    stacked = np.vstack([first / np.sqrt(n1), np.sqrt(eps_r) * np.eye(d)]) if eps_r > 0.0 else first / np.sqrt(n1)
    triangle, order = scipy.linalg.qr(stacked, mode="r", pivoting=True, check_finite=False)
    triangle = triangle[:d]
    target = scipy.linalg.qr(second[:, order] / np.sqrt(n2), mode="r", check_finite=False)[0][:d]
    lengths = np.abs(np.diag(triangle))
    unit = EPSILON * max(n1, n2, d)
    rank = int((lengths > unit * lengths[0]).sum()) if lengths[0] > 0.0 else 0
    # Coordinates y = T x: x is free in the last d - rank, where T x = 0.
    kernel = np.zeros((d, d - rank))
    basis = scipy.linalg.solve_triangular(triangle[:rank, :rank], np.eye(rank)) if rank else np.zeros((0, 0))
    if rank < d:
        kernel[:rank] = -basis @ triangle[:rank, rank:]
        kernel[rank:] = np.eye(d - rank)
        kernel = scipy.linalg.orth(kernel)
        _, mass, directions = np.linalg.svd(target @ kernel)
        if mass[0] > unit * np.linalg.norm(target):
            return DsecResult(True, np.inf, _unpermute(kernel @ directions[0] / mass[0], order), False)
    _, sigma, directions = np.linalg.svd(target[:, :rank] @ basis)
    top = float(sigma[0]) if len(sigma) else 0.0
    value = eps1 * top * top
    witness = np.zeros(d)
    if rank:
        witness[:rank] = basis @ directions[0] * np.sqrt(eps1)
    # A relative perturbation of T by `unit` moves sigma by its condition number times as much.
    spread = 4.0 * unit * (lengths[0] / lengths[rank - 1] if rank else 1.0)
    marginal = abs(value - eps2) <= 2.0 * spread * max(value, eps2)
    return DsecResult(value >= eps2, value, _unpermute(witness, order), bool(marginal))


def _unpermute(x: NDArray[np.float64], order: NDArray[np.intp]) -> NDArray[np.float64]:
    """Undo the column pivoting of a QR factorisation."""
    out = np.empty_like(x)
    out[order] = x
    return out
