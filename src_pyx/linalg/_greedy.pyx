"""Greedy actions argmax_a phi(s)^T theta^a (paper, equation 1, third case)."""

cimport numpy as cnp
from cpython.exc cimport PyErr_CheckSignals
from libc.math cimport INFINITY, isfinite
from libc.stdint cimport int32_t, int64_t
from libc.stdlib cimport free, malloc
from libc.string cimport memset

from dmq_fast.kernels._validate cimport entries, matrix, refuse_not_finite

cnp.import_array()

cdef extern from *:
    """
    #include <math.h>
    #include <stdint.h>
    #include <string.h>
    #include "dmq_wide.h"

    typedef double dmq_four __attribute__((vector_size(32)));
    typedef int64_t dmq_long __attribute__((vector_size(32)));

    /* s[a] <- the scores of four rows of phi (each d) for action a of packed (d, 4). Every score is summed over the
       features in order, whatever the vector width, so the bits are those of a plain loop on every machine. */
    static inline __attribute__((always_inline)) void dmq_scores(
        const double *const p[4], const double *packed, ptrdiff_t d, dmq_four s[4])
    {
        dmq_four r0 = {0}, r1 = {0}, r2 = {0}, r3 = {0}, t;
        for (ptrdiff_t i = 0; i < d; i++) {
            memcpy(&t, packed + 4 * i, sizeof t);
            r0 += p[0][i] * t;
            r1 += p[1][i] * t;
            r2 += p[2][i] * t;
            r3 += p[3][i] * t;
        }
        for (int a = 0; a < 4; a++)
            s[a] = (dmq_four) {r0[a], r1[a], r2[a], r3[a]};
    }

    /* The greedy actions of n rows and their scores; -1, or the first row with a score that is not finite. Four rows at
       a time, which are the lanes, and four actions. Selections, not branches: who wins cannot be predicted. */
    DMQ_WIDE static ptrdiff_t dmq_greedy_rows(
        const double *phi, ptrdiff_t n, ptrdiff_t n_actions, ptrdiff_t d, const double *packed, int64_t *action,
        double *value)
    {
        for (ptrdiff_t first = 0; first < n; first += 4) {
            ptrdiff_t size = n - first < 4 ? n - first : 4;
            const double *p[4];
            dmq_four s[4], best = {-INFINITY, -INFINITY, -INFINITY, -INFINITY}, poison = {0};
            dmq_long taken = {0};
            /* A short last block repeats its last row. */
            for (ptrdiff_t r = 0; r < 4; r++)
                p[r] = phi + (first + (r < size ? r : size - 1)) * d;
            for (ptrdiff_t done = 0; done < n_actions; done += 4) {
                dmq_scores(p, packed + done * d, d, s);
                for (int a = 0; a < 4 && a < n_actions - done; a++) {
                    dmq_long better = (dmq_long) (s[a] > best), this = {done + a, done + a, done + a, done + a};
                    best = (dmq_four) (((dmq_long) s[a] & better) | ((dmq_long) best & ~better));
                    taken = (this & better) | (taken & ~better);
                    poison += s[a] * 0.0;
                }
            }
            for (ptrdiff_t r = 0; r < size; r++) {
                value[first + r] = best[r];
                action[first + r] = taken[r];
                if (poison[r] != 0.0)
                    return first + r;
            }
        }
        return -1;
    }
    """
    Py_ssize_t greedy_of "dmq_greedy_rows"(
        const double* phi, Py_ssize_t n, Py_ssize_t n_actions, Py_ssize_t d, const double* packed, int64_t* action,
        double* value
    ) noexcept nogil


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
    cdef cnp.ndarray phi = matrix(features, "features", -1, -1)
    cdef cnp.npy_intp n = cnp.PyArray_DIM(phi, 0)
    cdef Py_ssize_t d = cnp.PyArray_DIM(phi, 1), failed = -1
    cdef cnp.ndarray weights = matrix(theta, "theta", -1, d)
    cdef Py_ssize_t n_actions = cnp.PyArray_DIM(weights, 0)
    if n_actions == 0 or d == 0:
        raise ValueError(f"theta: expected shape (K, d) with K, d >= 1, got {(n_actions, d)}")
    cdef cnp.ndarray actions = cnp.PyArray_SimpleNew(1, &n, cnp.NPY_INT64)
    cdef cnp.ndarray values = cnp.PyArray_SimpleNew(1, &n, cnp.NPY_DOUBLE)
    cdef const double* rows = entries(phi)
    cdef const double* columns = entries(weights)
    cdef int64_t* action = <int64_t*> cnp.PyArray_DATA(actions)
    cdef double* value = entries(values)
    cdef double* packed = <double*> malloc(packed_size(n_actions, d) * sizeof(double))
    if packed == NULL:
        raise MemoryError()
    # A piece of work takes milliseconds; in between, Ctrl-C is answered.
    cdef Py_ssize_t piece = 4 * max(<Py_ssize_t> 1, (1 << 22) // (4 * d * n_actions)), start = 0
    try:
        with nogil:
            pack_theta(columns, n_actions, d, packed)
        while start < n and failed < 0:
            with nogil:
                failed = greedy_rows(
                    rows + start * d, min(piece, n - start), n_actions, d, packed, action + start, value + start
                )
            if failed >= 0:
                failed += start
            start += piece
            PyErr_CheckSignals()
    finally:
        free(packed)
    if failed >= 0:
        refuse_not_finite("features", phi)
        refuse_not_finite("theta", weights)
        raise ValueError(f"greedy_actions: a score of row {failed} is not finite (overflow)")
    return (actions, values) if return_values else actions


cdef void pack_theta(const double* theta, Py_ssize_t n_actions, Py_ssize_t d, double* packed) noexcept nogil:
    # Groups of four actions, (d, 4) each, filled up with zeros.
    cdef Py_ssize_t i, a
    memset(packed, 0, packed_size(n_actions, d) * sizeof(double))
    for a in range(n_actions):
        for i in range(d):
            packed[(a // 4 * d + i) * 4 + a % 4] = theta[a * d + i]


cdef Py_ssize_t greedy_rows(
    const double* phi, Py_ssize_t n, Py_ssize_t n_actions, Py_ssize_t d,
    const double* packed, int64_t* action, double* value
) noexcept nogil:
    return greedy_of(phi, n, n_actions, d, packed, action, value)
