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
    #include <stdint.h>
    #include <string.h>
    #include "dmq_wide.h"

    typedef double dmq_four __attribute__((vector_size(32)));

    /* out[4][4] <- four rows of phi (each d) times four columns of packed (d, 4). Every score is summed over the
       features in order, whatever the vector width, so the bits are those of a plain loop on every machine. */
    DMQ_WIDE static void dmq_scores(
        const double *p0, const double *p1, const double *p2, const double *p3, const double *packed,
        ptrdiff_t d, double *out)
    {
        dmq_four s0 = {0}, s1 = {0}, s2 = {0}, s3 = {0}, t;
        for (ptrdiff_t i = 0; i < d; i++) {
            memcpy(&t, packed + 4 * i, sizeof t);
            s0 += p0[i] * t;
            s1 += p1[i] * t;
            s2 += p2[i] * t;
            s3 += p3[i] * t;
        }
        memcpy(out, &s0, sizeof s0);
        memcpy(out + 4, &s1, sizeof s1);
        memcpy(out + 8, &s2, sizeof s2);
        memcpy(out + 12, &s3, sizeof s3);
    }

    /* The best of m <= 4 scores of actions first, first + 1, ... against the best so far, the earlier winning ties.
       Selections, not branches: which action wins cannot be predicted. Returns 0, or NaN if a score is not finite. */
    static inline double dmq_better(
        const double *score, int m, int64_t first, double *value, int64_t *action)
    {
        double best = *value, poison = 0.0;
        int64_t taken = *action;
        for (int a = 0; a < m; a++) {
            int better = score[a] > best;
            best = better ? score[a] : best;
            taken = better ? first + a : taken;
            poison += score[a] * 0.0;
        }
        *value = best;
        *action = taken;
        return poison;
    }
    """
    double better "dmq_better"(
        const double* score, int m, int64_t first, double* value, int64_t* action
    ) noexcept nogil
    void scores "dmq_scores"(
        const double* p0, const double* p1, const double* p2, const double* p3, const double* packed,
        Py_ssize_t d, double* out,
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
    # Four rows and four actions at a time.
    cdef Py_ssize_t r, g, block, groups = (n_actions + 3) // 4
    cdef double out[16]
    cdef double poison[4]
    cdef const double* rows[4]
    for block in range(0, n, 4):
        for r in range(4):
            # A short last block repeats its last row.
            rows[r] = phi + min(block + r, n - 1) * d
            poison[r] = 0.0
        for g in range(groups):
            scores(rows[0], rows[1], rows[2], rows[3], packed + g * 4 * d, d, out)
            for r in range(min(<Py_ssize_t> 4, n - block)):
                if g == 0:
                    value[block + r] = out[4 * r]
                    action[block + r] = 0
                poison[r] += better(
                    out + 4 * r, <int> min(<Py_ssize_t> 4, n_actions - 4 * g), 4 * g, &value[block + r],
                    &action[block + r],
                )
        for r in range(min(<Py_ssize_t> 4, n - block)):
            if poison[r] != 0.0:
                return block + r
    return -1
