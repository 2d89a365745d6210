"""Feature maps: from observations x (n, m) to features phi (n, d) of Euclidean norm at most 1."""

from libc.stdint cimport int32_t

cdef class FeatureMap:
    # m and d.
    cdef readonly Py_ssize_t inputs
    cdef readonly Py_ssize_t dimension
    # Entries of a row that may differ from 0, for maps that write `apply_sparse`; 0 for those that write `apply`.
    cdef readonly Py_ssize_t nonzeros
    # Doubles of workspace for `apply`.
    cdef Py_ssize_t work_size

    # phi (n, d) <- the features of x (n, m).
    cdef void apply(self, const double* x, Py_ssize_t n, double* phi, double* work) noexcept nogil

    # columns and values (n, nonzeros) <- the same features; columns ascend in every row.
    cdef void apply_sparse(self, const double* x, Py_ssize_t n, int32_t* columns, double* values) noexcept nogil
