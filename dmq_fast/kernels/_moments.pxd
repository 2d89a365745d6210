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

# Lower triangle of gram (d, d) <- gram + sum_i weights_i phi_i phi_i^T over n rows (n, d); `weights` NULL for ones.
# `work` has block_work_size(d) doubles.
cdef void add_block(
    double* gram, const double* rows, const double* weights, Py_ssize_t n, Py_ssize_t d, double* work
) noexcept nogil

cdef Py_ssize_t block_work_size(Py_ssize_t d) noexcept nogil
