"""Greedy action evaluation."""

from libc.stdint cimport int32_t

# argmax_a theta[a] . phi, ties to the smallest a; its score in `best`.
# Returns -1 when a score is not finite.
cdef Py_ssize_t greedy_action(
    const double* phi, const double* theta, Py_ssize_t n_actions, Py_ssize_t d, double* best
) noexcept nogil

# The same for a sparse phi.
cdef Py_ssize_t greedy_action_sparse(
    const int32_t* columns, const double* values, Py_ssize_t nnz,
    const double* theta, Py_ssize_t n_actions, Py_ssize_t d, double* best
) noexcept nogil
