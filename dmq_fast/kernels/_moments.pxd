"""Second moments: the lower triangle is accumulated, `mirror` completes it."""

from libc.stdint cimport int32_t, int64_t

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

# Rows (n, d): dense values if `starts` is NULL; else sparse, the entries of row i from starts[i] up to starts[i + 1].
cdef struct Rows:
    Py_ssize_t n
    const double* values
    const int32_t* columns
    const int64_t* starts

# Where row i begins among the values, and so the one before ends.
cdef inline Py_ssize_t begin_of(const Rows* rows, Py_ssize_t i, Py_ssize_t d) noexcept nogil:
    return i * d if rows.starts == NULL else rows.starts[i]

# The arrays behind rows, which have to stay alive: of dense ones (values,), a single row (d,) or (n, d); of sparse ones
# values (nnz,), columns (nnz,) of int32 and starts (n + 1,) of int64.
cdef Rows rows_in(tuple parts)

# These parts of sparse rows, checked, each row with strictly ascending columns. Of anything with a method `tocsr`, of d
# columns unless d is negative; or of three arrays whose names begin with `prefix`, with values that may be NaN or
# infinite.
cdef tuple sparse_rows(value, str name, Py_ssize_t d)
cdef tuple csr_parts(data, indices, indptr, Py_ssize_t d, str prefix)

# `value` as an array of int32, each in [0, d).
cdef object as_columns(value, str name, Py_ssize_t d)

# The row (d,) with some finite values at some columns, in any order; the values of one column add up.
cdef object dense_row(indices, values, Py_ssize_t d)

# The upper triangle of an argument (d, d), d >= 1, as the lower one of a new array. ValueError if it is not finite, or
# cannot be that of a positive semidefinite matrix.
cdef object lower_of(value, str name)
