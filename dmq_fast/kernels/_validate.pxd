"""Checks of arguments for compiled code. Each converts its argument or raises an error that names it."""

cimport numpy as cnp
from libc.stdint cimport uint64_t

# The largest int32: dimensions and columns of feature maps are at most that.
cdef Py_ssize_t LARGEST

# Whether none of x (n,) is NaN or infinite.
cdef bint all_finite(const double* x, Py_ssize_t n) noexcept nogil

# `value` as a C-contiguous array of float64, (size,) or (rows, columns); a negative size leaves an axis free. Copied
# only if necessary. Entries may be NaN or infinite: see refuse_not_finite.
cdef cnp.ndarray vector(value, str name, Py_ssize_t size)
cdef cnp.ndarray matrix(value, str name, Py_ssize_t rows, Py_ssize_t columns)

# ValueError with name and index if an entry is NaN or infinite.
cdef int refuse_not_finite(str name, cnp.ndarray array) except -1

# `value` as a finite float > 0, or >= 0.
cdef double positive(value, str name) except -1.0
cdef double non_negative(value, str name) except -1.0

# `value`, the state of a pickle, as a dict with these keys besides its version; ValueError for anything else.
cdef dict state_of(value, str kind, int version, tuple keys)

# `value` as a float, NaN and infinities of a float included.
cdef double number(value, str name) except? -1.0

# `value` as a bool; TypeError for anything but a bool of Python or NumPy.
cdef bint flag(value, str name) except -1

# `value` as an integer of 64 bits without sign, for streams.
cdef uint64_t word(value, str name) except? 0

# `value` as an integer in [least, most]; a bool is a TypeError.
cdef Py_ssize_t integer(value, str name, Py_ssize_t least, Py_ssize_t most) except? -1

# m of them: one integer stands for all.
cdef list integers(value, str name, Py_ssize_t m, Py_ssize_t least, Py_ssize_t most)

# Whether `value` is a SciPy sparse matrix or array; see the source.
cpdef bint is_sparse(value) except -1

# Zeros of a shape whose last two axes are features; MemoryError with the size if the machine has less memory.
cdef cnp.ndarray square_zeros(str names, tuple shape)

# A read-only C-contiguous copy, so that a kernel can keep a pointer to the entries.
cdef cnp.ndarray frozen(array)

# The arguments `low` and `high` of a box as frozen arrays (m,), low < high.
cdef tuple box(low, high)

# The argument `width` as a frozen array (m,) of numbers > 0; one number stands for all.
cdef cnp.ndarray widths(width, Py_ssize_t m)

# Pointer to the entries of an array of float64.
cdef inline double* entries(cnp.ndarray array) noexcept:
    return <double*> cnp.PyArray_DATA(array)
