"""Greedy actions argmax_a phi(s)^T theta^a (paper, equation 1, third case)."""

cimport numpy as cnp
from cpython.exc cimport PyErr_CheckSignals
from libc.math cimport INFINITY, isfinite
from libc.stdint cimport int32_t, int64_t
from libc.string cimport memset

from dmq_fast.kernels._memory cimport Buffer
from dmq_fast.kernels._validate cimport entries, matrix, refuse_not_finite

from dmq_fast.kernels._validate import as_csr, is_sparse

cnp.import_array()

cdef extern from "dmq_greedy.h":
    Py_ssize_t greedy_of "dmq_greedy_rows"(
        const double* phi, Py_ssize_t n, Py_ssize_t n_actions, Py_ssize_t d, const double* packed, int64_t* action,
        double* value
    ) noexcept nogil

# Numbers for which no memory is allocated: one row then takes less time.
cdef enum:
    SMALL = 256


cdef Py_ssize_t greedy_action(
    const double* phi, const double* theta, Py_ssize_t n_actions, Py_ssize_t d, double* best
) noexcept nogil:
    return best_action(True, NULL, phi, d, theta, n_actions, d, best)


cdef Py_ssize_t greedy_action_sparse(
    const int32_t* columns, const double* values, Py_ssize_t nnz,
    const double* theta, Py_ssize_t n_actions, Py_ssize_t d, double* best
) noexcept nogil:
    return best_action(False, columns, values, nnz, theta, n_actions, d, best)


cdef inline Py_ssize_t best_action(
    bint dense, const int32_t* columns, const double* values, Py_ssize_t nnz,
    const double* theta, Py_ssize_t n_actions, Py_ssize_t d, double* best
) noexcept nogil:
    # `dense` for the columns 0, 1, 2, ...; the compiler makes two loops of this one.
    cdef Py_ssize_t a, i, action = 0
    cdef double score
    best[0] = -INFINITY
    for a in range(n_actions):
        score = 0.0
        for i in range(nnz):
            score += values[i] * theta[a * d + (i if dense else columns[i])]
        if not isfinite(score):
            return -1
        if score > best[0]:
            best[0] = score
            action = a
    return action


def greedy_actions(features, theta, *, return_values=False):
    """Return the greedy action of every row: argmax_a phi_i^T theta^a, ties to the smallest action.

    Parameters
    ----------
    features : array_like or SciPy sparse matrix or array, shape (n, d)
        Scores of sparse rows are sums over their stored entries.
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

    Examples
    --------
    >>> greedy_actions([[1.0, 0.0], [0.0, 1.0]], [[1.0, 2.0], [3.0, 2.0]])
    array([1, 0])
    """
    cdef bint sparse = is_sparse(features)
    cdef cnp.ndarray phi = None
    cdef cnp.npy_intp n
    cdef Py_ssize_t d, failed
    csr = None
    if sparse:
        csr = as_csr("features", features, (None, None))
        n, d = csr.shape
    else:
        phi = matrix(features, "features", -1, -1)
        n, d = cnp.PyArray_DIM(phi, 0), cnp.PyArray_DIM(phi, 1)
    cdef cnp.ndarray weights = matrix(theta, "theta", -1, d)
    cdef Py_ssize_t n_actions = cnp.PyArray_DIM(weights, 0)
    if n_actions == 0 or d == 0:
        raise ValueError(f"theta: expected shape (K, d) with K, d >= 1, got {(n_actions, d)}")
    actions = cnp.PyArray_SimpleNew(1, &n, cnp.NPY_INT64)
    values = cnp.PyArray_SimpleNew(1, &n, cnp.NPY_DOUBLE)
    cdef int64_t* action = <int64_t*> cnp.PyArray_DATA(actions)
    cdef double* value = entries(values)
    if sparse:
        failed = sparse_actions(csr, entries(weights), n_actions, action, value)
    else:
        failed = dense_actions(phi, entries(weights), n_actions, action, value)
    if failed >= 0:
        if not sparse:
            refuse_not_finite("features", phi)
        refuse_not_finite("theta", weights)
        raise ValueError(f"greedy_actions: a score of row {failed} is not finite (overflow)")
    return (actions, values) if return_values else actions


# The actions and scores of rows. Each returns -1, or the first row with a score that is not finite. A piece of work
# takes milliseconds; Ctrl-C is checked between pieces.


cdef Py_ssize_t dense_actions(
    cnp.ndarray phi, const double* theta, Py_ssize_t n_actions, int64_t* action, double* value
) except -2:
    cdef Py_ssize_t n = cnp.PyArray_DIM(phi, 0), d = cnp.PyArray_DIM(phi, 1), failed = -1, start = 0
    cdef Py_ssize_t piece = 4 * max(<Py_ssize_t> 1, (1 << 22) // (4 * d * n_actions))
    cdef const double* rows = entries(phi)
    cdef double[SMALL] few
    cdef double* packed = few
    cdef Buffer buffer
    if packed_size(n_actions, d) > SMALL:
        buffer = Buffer(packed_size(n_actions, d))
        packed = buffer.data
    with nogil:
        pack_theta(theta, n_actions, d, packed)
    while start < n and failed < 0:
        with nogil:
            failed = greedy_rows(
                rows + start * d, min(piece, n - start), n_actions, d, packed, action + start, value + start
            )
        if failed >= 0:
            failed += start
        start += piece
        PyErr_CheckSignals()
    return failed


cdef Py_ssize_t sparse_actions(
    csr, const double* theta, Py_ssize_t n_actions, int64_t* action, double* value
) except -2:
    # Of a `csr_array` from `as_csr`.
    cdef Py_ssize_t n = csr.shape[0], d = csr.shape[1], first = 0, failed = -1
    cdef cnp.ndarray data = csr.data, indices = csr.indices, indptr = csr.indptr
    cdef const int32_t* start = <const int32_t*> cnp.PyArray_DATA(indptr)
    cdef const int32_t* columns = <const int32_t*> cnp.PyArray_DATA(indices)
    cdef const double* values = entries(data)
    cdef Py_ssize_t piece = max(<Py_ssize_t> 1, (1 << 22) // n_actions), end, i
    while first < n and failed < 0:
        # Some million products, or one row.
        end = first + 1
        while end < n and start[end + 1] - start[first] + end - first < piece:
            end += 1
        with nogil:
            for i in range(first, end):
                action[i] = greedy_action_sparse(
                    columns + start[i], values + start[i], start[i + 1] - start[i], theta, n_actions, d, value + i
                )
                if action[i] < 0:
                    failed = i
                    break
        first = end
        PyErr_CheckSignals()
    return failed


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
