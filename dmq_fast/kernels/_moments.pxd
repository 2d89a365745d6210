"""Second moments: the lower triangle is accumulated, `mirror` completes it."""

from libc.stdint cimport int32_t

# Lower triangle of gram (d, d) <- gram + weight * phi phi^T.
cdef void add_outer(double* gram, const double* phi, double weight, Py_ssize_t d) noexcept nogil

# The same for a sparse phi with `nnz` entries `values` at the ascending positions `columns`: nnz^2 / 2 work.
cdef void add_outer_sparse(
    double* gram, const int32_t* columns, const double* values, Py_ssize_t nnz, double weight, Py_ssize_t d
) noexcept nogil

# Upper triangle <- lower triangle.
cdef void mirror(double* gram, Py_ssize_t d) noexcept nogil
