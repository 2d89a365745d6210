"""Weighted sparse rows of features, level by level: the second moments of few trajectories in many dimensions."""

from libc.stdint cimport int32_t

cdef class LevelRows:
    cdef readonly Py_ssize_t dimension
    cdef readonly Py_ssize_t n_levels
    # Row r of level l, begins[l] <= r < begins[l + 1], has weight weights[r] and the entries values[i] at the ascending
    # positions columns[i], starts[r] <= i < starts[r + 1]; no entry is 0.
    cdef Py_ssize_t* begins
    cdef Py_ssize_t* starts
    cdef int32_t* columns
    cdef double* values
    cdef double* weights
    # Rows and entries that there is room for.
    cdef Py_ssize_t _rows
    cdef Py_ssize_t _entries

    # Make room for more rows and entries behind those that are there; MemoryError if there is none.
    cdef int reserve(self, Py_ssize_t rows, Py_ssize_t n_entries) except -1 nogil

    # Add a row to the level that is being filled, without entries that are 0; a row of zeros is left out. `columns`
    # NULL for 0, 1, 2, ...
    cdef int push(
        self, const int32_t* columns, const double* values, Py_ssize_t nnz, double weight
    ) except -1 nogil

    # Add a level: rows with positive weights, None for ones, from arguments of these names.
    cdef int fill(self, tuple parts, str name, weights, str weights_name) except -1

    # End the level that rows are being added to.
    cdef void end_level(self) noexcept nogil

    # The same sums with equal rows of a level merged, in the order of their first appearance.
    cdef LevelRows merged(self)

    # gram (k, k), zeros before, <- the sum of w phi phi^T of a level; `places` has the row there of every entry.
    cdef void add_up(self, Py_ssize_t level, const int32_t* places, double* gram, Py_ssize_t k) noexcept nogil
    cdef int check_level(self, Py_ssize_t level) except -1

    # Add a level: the merged rows of one level of each part, `places` its position there.
    cdef int take(self, list parts, list places) except -1
    cdef int take_level(self, LevelRows other, Py_ssize_t level, Py_ssize_t* table, Py_ssize_t size) except -1

# No levels yet, with room for `n_levels` of them.
cdef LevelRows empty_rows(Py_ssize_t dimension, Py_ssize_t n_levels)

# The rows of `LevelRows.of`, not merged; rows of zeros are left out.
cdef LevelRows collected(levels, weights)

# The distinct of n columns, ascending; `places` <- the place of each column among them. Returns how many there are.
cdef Py_ssize_t compress(const int32_t* columns, Py_ssize_t n, int32_t* distinct, int32_t* places) noexcept nogil
