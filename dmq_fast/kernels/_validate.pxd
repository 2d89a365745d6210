"""The border, for kernels: arrays of float64, C-contiguous, of the right shape, and their data."""

cimport numpy as cnp

# Whether none of x (n,) is NaN or infinite.
cdef bint all_finite(const double* x, Py_ssize_t n) noexcept nogil

# `value` as an array (size,) or (rows, columns); a negative size leaves an axis free. Copied only where it must
# be. Entries may be NaN or infinite: see refuse_not_finite. Errors name the argument.
cdef cnp.ndarray vector(value, str name, Py_ssize_t size)
cdef cnp.ndarray matrix(value, str name, Py_ssize_t rows, Py_ssize_t columns)

# ValueError with name and index if an entry is NaN or infinite.
cdef int refuse_not_finite(str name, cnp.ndarray array) except -1

# `value` as a finite float > 0.
cdef double positive(value, str name) except -1.0

# Where the numbers of an array of float64 are.
cdef inline double* entries(cnp.ndarray array) noexcept:
    return <double*> cnp.PyArray_DATA(array)
