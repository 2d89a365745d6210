"""Greedy actions argmax_a phi(s)^T theta^a (paper, equation 1, third case)."""

from libc.float cimport DBL_EPSILON, DBL_MIN
from libc.math cimport INFINITY, isfinite
from libc.stdint cimport int32_t

from dmq_fast.kernels._blas cimport multiply_transposed

import numpy as np

from dmq_fast.kernels._validate import as_floats

# From this dimension on scores come from a matrix product, ROWS states at a time.
cdef enum:
    SMALL = 12
    ROWS = 256


cdef Py_ssize_t greedy_action(
    const double* phi, const double* theta, Py_ssize_t n_actions, Py_ssize_t d, double* best
) noexcept nogil:
    cdef Py_ssize_t a, i, action = 0
    cdef double score
    best[0] = -INFINITY
    for a in range(n_actions):
        score = 0.0
        for i in range(d):
            score += phi[i] * theta[a * d + i]
        if not isfinite(score):
            return -1
        if score > best[0]:
            best[0] = score
            action = a
    return action


cdef Py_ssize_t greedy_action_sparse(
    const int32_t* columns, const double* values, Py_ssize_t nnz,
    const double* theta, Py_ssize_t n_actions, Py_ssize_t d, double* best
) noexcept nogil:
    cdef Py_ssize_t a, i, action = 0
    cdef double score
    best[0] = -INFINITY
    for a in range(n_actions):
        score = 0.0
        for i in range(nnz):
            score += values[i] * theta[a * d + columns[i]]
        if not isfinite(score):
            return -1
        if score > best[0]:
            best[0] = score
            action = a
    return action


def greedy_actions(features, theta, *, return_values=False):
    """Greedy action of every row: argmax_a phi_i^T theta^a, ties to the smallest action.

    Parameters
    ----------
    features : array_like, shape (n, d)
    theta : array_like, shape (K, d)
        One weight vector per action.
    return_values : bool, default False
        Whether to return the largest score of every row as well.

    Returns
    -------
    actions : numpy.ndarray of int64, shape (n,)
    values : numpy.ndarray, shape (n,)
        Only with `return_values`.

    Raises
    ------
    TypeError, ValueError
        On a wrong dtype or shape, K = 0, or scores that are not finite.
    """
    cdef const double[:, ::1] phi = as_floats("features", features, (None, None))
    cdef Py_ssize_t n = phi.shape[0], d = phi.shape[1]
    cdef const double[:, ::1] weights = as_floats("theta", theta, (None, d))
    cdef Py_ssize_t n_actions = weights.shape[0]
    if n_actions == 0 or d == 0:
        raise ValueError(f"theta: expected shape (K, d) with K, d >= 1, got {(n_actions, d)}")
    actions = np.empty(n, dtype=np.int64)
    values = np.empty(n)
    cdef long long[::1] action = actions
    cdef double[::1] value = values
    cdef double[:, ::1] scores
    cdef double slack
    cdef Py_ssize_t i, start = 0, rows, failed = -1
    if n == 0:
        return (actions, values) if return_values else actions
    if d < SMALL:
        with nogil:
            for i in range(n):
                action[i] = greedy_action(&phi[i, 0], &weights[0, 0], n_actions, d, &value[i])
                if action[i] < 0:
                    failed = i
                    break
    else:
        scores = np.empty((min(n, <Py_ssize_t> ROWS), n_actions))
        # |score - exact| <= d eps / 2 sum_i |phi_i theta_i|, for this sum and for the one of `greedy_action`.
        slack = <double> np.abs(phi).max() * <double> np.abs(weights).max()
        slack = 2.0 * d * d * DBL_EPSILON * slack + d * DBL_MIN
        with nogil:
            while start < n and failed < 0:
                rows = min(<Py_ssize_t> ROWS, n - start)
                multiply_transposed(&scores[0, 0], &phi[start, 0], &weights[0, 0], rows, n_actions, d)
                for i in range(rows):
                    action[start + i] = row_argmax(
                        &scores[i, 0], &phi[start + i, 0], &weights[0, 0], n_actions, d, slack, &value[start + i]
                    )
                    if action[start + i] < 0:
                        failed = start + i
                        break
                start += rows
    if failed >= 0:
        raise ValueError(f"greedy_actions: a score of row {failed} is not finite (overflow)")
    return (actions, values) if return_values else actions


cdef Py_ssize_t row_argmax(
    const double* scores, const double* phi, const double* theta, Py_ssize_t n_actions, Py_ssize_t d,
    double slack, double* best
) noexcept nogil:
    # A matrix product does not sum all its columns in one order: near ties are decided as `greedy_action` does.
    cdef Py_ssize_t a, action = 0, near = 0
    best[0] = -INFINITY
    for a in range(n_actions):
        if not isfinite(scores[a]):
            return -1
        if scores[a] > best[0]:
            best[0] = scores[a]
            action = a
    for a in range(n_actions):
        near += not scores[a] < best[0] - slack
    return action if near == 1 else greedy_action(phi, theta, n_actions, d, best)
