"""Greedy action evaluation."""

from libc.stdint cimport int32_t, int64_t

# argmax_a theta[a] . phi, ties to the smallest a; its score in `best`.
# Returns -1 when a score is not finite.
cdef Py_ssize_t greedy_action(
    const double* phi, const double* theta, Py_ssize_t n_actions, Py_ssize_t d, double* best
) noexcept nogil

# The same for a sparse phi with `nnz` entries.
cdef Py_ssize_t greedy_action_sparse(
    const int32_t* columns, const double* values, Py_ssize_t nnz,
    const double* theta, Py_ssize_t n_actions, Py_ssize_t d, double* best
) noexcept nogil

# The same for n rows phi (n, d): action (n,) and its score, value (n,). Returns -1, or the first row with a score that
# is not finite. `packed` is theta as `pack_theta` lays it out, packed_size(n_actions, d) doubles.
cdef Py_ssize_t greedy_rows(
    const double* phi, Py_ssize_t n, Py_ssize_t n_actions, Py_ssize_t d,
    const double* packed, int64_t* action, double* value
) noexcept nogil

cdef void pack_theta(const double* theta, Py_ssize_t n_actions, Py_ssize_t d, double* packed) noexcept nogil

cdef inline Py_ssize_t packed_size(Py_ssize_t n_actions, Py_ssize_t d) noexcept nogil:
    return (n_actions + 3) // 4 * 4 * d
