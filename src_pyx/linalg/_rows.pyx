"""Second moments in rows: sum_r w_r phi_r phi_r^T with the rows kept, sparse and merged, level by level.

Where trajectories are few, or features sparse, rows take less room and time than (d, d) matrices, whatever d is.
"""

cimport numpy as cnp
from libc.stdint cimport int32_t, uint64_t
from libc.stdlib cimport calloc, free, qsort
from libc.string cimport memcmp, memcpy

from dmq_fast.kernels._memory cimport Owner, grown
from dmq_fast.kernels._moments cimport Rows, add_outer_sparse, begin_of, csr_parts, mirror, rows_in, sparse_rows
from dmq_fast.kernels._validate cimport LARGEST, entries, integer, is_sparse, matrix, refuse_not_finite, vector

import numpy as np

cnp.import_array()

cdef int VERSION = 1


cdef class LevelRows:
    """Weighted rows of features by level, which stand for the sums of w phi phi^T. Immutable for Python.

    Made by `LevelRows.of`, by samplers, and by `+`, `total`, `pick` and pickles.

    Attributes
    ----------
    dimension, n_levels : int
    """

    def __cinit__(self):
        self.begins = <Py_ssize_t*> calloc(2, sizeof(Py_ssize_t))
        self.starts = <Py_ssize_t*> calloc(1, sizeof(Py_ssize_t))
        if self.begins == NULL or self.starts == NULL:
            raise MemoryError()
        # The others are not NULL either: not even no bytes may be copied from there.
        self.reserve(1, 1)

    def __dealloc__(self):
        free(self.begins)
        free(self.starts)
        free(self.columns)
        free(self.values)
        free(self.weights)

    def __init__(self):
        raise TypeError("LevelRows: use LevelRows.of")

    @staticmethod
    def of(levels, weights=None):
        """Return the rows of some levels, equal ones merged.

        Parameters
        ----------
        levels : sequence of array_like, each of shape (n, d)
            Dense, or SciPy sparse matrices or arrays. At least one, all of the same d.
        weights : sequence of array_like, each of shape (n,), optional
            Positive; ones by default.

        Raises
        ------
        TypeError, ValueError
            On a wrong dtype or shape, an entry that is not finite, or a weight that is not positive.
        """
        return collected(levels, weights).merged()

    cdef int reserve(self, Py_ssize_t rows, Py_ssize_t n_entries) except -1 nogil:
        cdef Py_ssize_t have = self.begins[self.n_levels + 1], size
        if have + rows > self._rows:
            size = max(2 * self._rows, have + rows)
            if not (grown(<void**> &self.starts, (size + 1) * sizeof(Py_ssize_t))
                    and grown(<void**> &self.weights, size * sizeof(double))):
                raise MemoryError()
            self._rows = size
        have = self.starts[have]
        if have + n_entries > self._entries:
            size = max(2 * self._entries, have + n_entries)
            if not (grown(<void**> &self.columns, size * sizeof(int32_t))
                    and grown(<void**> &self.values, size * sizeof(double))):
                raise MemoryError()
            self._entries = size
        return 0

    cdef int push(
        self, const int32_t* columns, const double* values, Py_ssize_t nnz, double weight
    ) except -1 nogil:
        # begins[n_levels + 1] is the end of the level that is being filled.
        cdef Py_ssize_t row = self.begins[self.n_levels + 1], i, at
        self.reserve(1, nnz)
        at = self.starts[row]
        for i in range(nnz):
            if values[i] != 0.0:
                self.columns[at] = <int32_t> i if columns == NULL else columns[i]
                self.values[at] = values[i]
                at += 1
        if at == self.starts[row]:
            return 0
        self.starts[row + 1] = at
        self.weights[row] = weight
        self.begins[self.n_levels + 1] = row + 1
        return 0

    cdef int fill(self, tuple parts, str name, weights, str weights_name) except -1:
        cdef Rows rows = rows_in(parts)
        cdef cnp.ndarray scales = vector(np.ones(rows.n) if weights is None else weights, weights_name, rows.n)
        cdef const double* weight = entries(scales)
        cdef const int32_t* columns = NULL
        cdef Py_ssize_t i, first
        refuse_not_finite(name, parts[0])
        refuse_not_finite(weights_name, scales)
        for i in range(rows.n):
            if not weight[i] > 0.0:
                raise ValueError(f"{weights_name}: expected positive numbers, got {weight[i]} at index {i}")
            first = begin_of(&rows, i, self.dimension)
            if rows.columns != NULL:
                columns = rows.columns + first
            self.push(columns, rows.values + first, begin_of(&rows, i + 1, self.dimension) - first, weight[i])
        self.end_level()
        return 0

    cdef void end_level(self) noexcept nogil:
        self.n_levels += 1
        self.begins[self.n_levels + 1] = self.begins[self.n_levels]

    cdef LevelRows merged(self):
        cdef LevelRows out = empty_rows(self.dimension, self.n_levels)
        cdef Py_ssize_t level
        for level in range(self.n_levels):
            out.take([self], [level])
        return out

    cdef int take(self, list parts, list places) except -1:
        cdef Py_ssize_t i, rows = 0, size = 2
        cdef Owner memory = Owner()
        cdef Py_ssize_t* table
        cdef LevelRows part
        for i in range(len(parts)):
            part = parts[i]
            rows += part.begins[<Py_ssize_t> places[i] + 1] - part.begins[<Py_ssize_t> places[i]]
        while size < 2 * rows:
            size *= 2
        table = <Py_ssize_t*> memory.zeros(size, sizeof(Py_ssize_t))
        for i in range(len(parts)):
            self.take_level(parts[i], places[i], table, size)
        self.end_level()
        return 0

    cdef int take_level(self, LevelRows other, Py_ssize_t level, Py_ssize_t* table, Py_ssize_t size) except -1:
        # `table` finds the rows of the level that are there by the hash of their entries: row + 1, or 0 for none.
        cdef Py_ssize_t r, start, nnz, slot, row
        for r in range(other.begins[level], other.begins[level + 1]):
            start, nnz = other.starts[r], other.starts[r + 1] - other.starts[r]
            slot = <Py_ssize_t> (hash_of(other.columns + start, other.values + start, nnz) & <uint64_t> (size - 1))
            while True:
                row = table[slot] - 1
                if row < 0:
                    table[slot] = self.begins[self.n_levels + 1] + 1
                    self.push(other.columns + start, other.values + start, nnz, other.weights[r])
                    break
                if self.starts[row + 1] - self.starts[row] == nnz and same(
                    self.columns + self.starts[row], other.columns + start,
                    self.values + self.starts[row], other.values + start, nnz,
                ):
                    self.weights[row] += other.weights[r]
                    break
                slot = (slot + 1) & (size - 1)
        return 0

    def __add__(self, other):
        cdef LevelRows out, first, second
        cdef Py_ssize_t level
        if not isinstance(self, LevelRows) or not isinstance(other, LevelRows):
            return NotImplemented
        first, second = self, other
        if first.n_levels != second.n_levels or first.dimension != second.dimension:
            raise ValueError("rows of other levels or dimensions do not add up")
        out = empty_rows(first.dimension, first.n_levels)
        for level in range(first.n_levels):
            out.take([first, second], [level, level])
        return out

    @staticmethod
    def total(parts, levels):
        """Return the sum of one level of each of some rows, in order: rows of one level, equal ones merged.

        Parameters
        ----------
        parts : sequence of LevelRows
            At least one, all of the same dimension.
        levels : sequence of int
            The position of the level in each.
        """
        cdef list wholes = list(parts), places = list(levels)
        cdef LevelRows out, part
        cdef Py_ssize_t i, place
        if len(wholes) == 0 or len(places) != len(wholes):
            raise ValueError(f"levels: expected one for each of at least one part, got {len(places)} for {len(wholes)}")
        for i in range(len(wholes)):
            if not isinstance(wholes[i], LevelRows):
                raise TypeError(f"parts: expected LevelRows, got {type(wholes[i]).__name__}")
            part, place = wholes[i], places[i]
            if part.dimension != (<LevelRows> wholes[0]).dimension:
                raise ValueError("rows of other dimensions do not add up")
            if not 0 <= place < part.n_levels:
                raise IndexError(f"levels: expected a position in [0, {part.n_levels}), got {place}")
        out = empty_rows((<LevelRows> wholes[0]).dimension, 1)
        out.take(wholes, places)
        return out

    def pick(self, levels):
        """Return the rows of some levels, by position, in the order given."""
        cdef Py_ssize_t level, r
        cdef list places = list(levels)
        cdef LevelRows out = empty_rows(self.dimension, len(places))
        for level in places:
            if not 0 <= level < self.n_levels:
                raise IndexError(f"levels: expected positions in [0, {self.n_levels}), got {level}")
            for r in range(self.begins[level], self.begins[level + 1]):
                out.push(
                    self.columns + self.starts[r], self.values + self.starts[r], self.starts[r + 1] - self.starts[r],
                    self.weights[r],
                )
            out.end_level()
        return out

    def gram(self, Py_ssize_t level):
        """Return the sum of w phi phi^T of one level, shape (d, d)."""
        self.check_level(level)
        out = np.zeros((self.dimension, self.dimension))
        self.add_up(level, self.columns + self.starts[self.begins[level]], entries(out), self.dimension)
        return out

    def compressed(self, Py_ssize_t level):
        """Return the sum of w phi phi^T of one level on the columns on which any of its rows is not 0.

        Returns
        -------
        support : numpy.ndarray of int32, shape (k,)
            Ascending.
        gram : numpy.ndarray, shape (k, k)
        """
        cdef Py_ssize_t first, n, k
        self.check_level(level)
        first = self.starts[self.begins[level]]
        n = self.starts[self.begins[level + 1]] - first
        distinct, places = np.empty(n, np.int32), np.empty(n, np.int32)
        cdef int32_t* place = <int32_t*> cnp.PyArray_DATA(places)
        k = compress(self.columns + first, n, <int32_t*> cnp.PyArray_DATA(distinct), place)
        out = np.zeros((k, k))
        self.add_up(level, place, entries(out), k)
        return distinct[:k].copy(), out

    cdef int check_level(self, Py_ssize_t level) except -1:
        if not 0 <= level < self.n_levels:
            raise IndexError(f"level: expected a position in [0, {self.n_levels}), got {level}")
        return 0

    cdef void add_up(self, Py_ssize_t level, const int32_t* places, double* gram, Py_ssize_t k) noexcept nogil:
        cdef Py_ssize_t r, start, first = self.starts[self.begins[level]]
        for r in range(self.begins[level], self.begins[level + 1]):
            start = self.starts[r]
            add_outer_sparse(
                gram, places + (start - first), self.values + start, self.starts[r + 1] - start, self.weights[r], k
            )
        mirror(gram, k)

    def arrays(self, Py_ssize_t level):
        """Return the rows of one level as in `scipy.sparse.csr_array`, and their weights.

        Returns
        -------
        data : numpy.ndarray, shape (nnz,)
        indices : numpy.ndarray of int32, shape (nnz,)
        indptr : numpy.ndarray of int64, shape (n + 1,)
        weights : numpy.ndarray, shape (n,)
        """
        cdef Py_ssize_t first, last, begin, end
        self.check_level(level)
        first, last = self.begins[level], self.begins[level + 1]
        begin, end = self.starts[first], self.starts[last]
        data, indices = np.empty(end - begin), np.empty(end - begin, np.int32)
        indptr, weights = np.empty(last - first + 1, np.int64), np.empty(last - first)
        memcpy(cnp.PyArray_DATA(data), self.values + begin, (end - begin) * sizeof(double))
        memcpy(cnp.PyArray_DATA(indices), self.columns + begin, (end - begin) * sizeof(int32_t))
        memcpy(cnp.PyArray_DATA(indptr), self.starts + first, (last - first + 1) * sizeof(Py_ssize_t))
        memcpy(cnp.PyArray_DATA(weights), self.weights + first, (last - first) * sizeof(double))
        return data, indices, indptr - begin, weights

    @property
    def nbytes(self):
        """Number of bytes of the rows."""
        cdef Py_ssize_t rows = self.begins[self.n_levels]
        return (self.n_levels + 2 * rows + 2) * 8 + self.starts[rows] * (sizeof(double) + sizeof(int32_t))

    @property
    def n_rows(self):
        """Number of distinct rows, by level."""
        cdef Py_ssize_t level
        return tuple([self.begins[level + 1] - self.begins[level] for level in range(self.n_levels)])

    def __reduce__(self):
        return restored, (VERSION, self.dimension, [self.arrays(level) for level in range(self.n_levels)])

    def __repr__(self):
        return f"LevelRows(dimension={self.dimension}, n_rows={list(self.n_rows)})"


def restored(version, dimension, levels):
    """Return the rows of a pickle."""
    cdef LevelRows out
    cdef Py_ssize_t d
    if not (isinstance(version, int) and version == VERSION):
        raise ValueError(f"state: expected that of LevelRows, version {VERSION}, got {version!r}")
    d = integer(dimension, "state: dimension", 1, LARGEST)
    cdef list parts = list(levels)
    out = empty_rows(d, len(parts))
    for data, indices, indptr, weights in parts:
        out.fill(csr_parts(data, indices, indptr, d, "state: "), "state: data", weights, "state: weights")
    return out


cdef LevelRows collected(levels, weights):
    cdef LevelRows out
    cdef Py_ssize_t d = -1
    cdef tuple parts
    if len(levels) == 0:
        raise ValueError("levels: expected at least one")
    if weights is not None and len(weights) != len(levels):
        raise ValueError(f"weights: expected {len(levels)} arrays, one a level, got {len(weights)}")
    out = empty_rows(1, len(levels))
    for level, given in enumerate(levels):
        name = f"levels[{level}]"
        parts = sparse_rows(given, name, d) if is_sparse(given) else (matrix(given, name, -1, d),)
        if d < 0:
            out.dimension = d = integer(given.shape[1] if len(parts) > 1 else parts[0].shape[1], "d", 1, LARGEST)
        out.fill(parts, name, None if weights is None else weights[level], f"weights[{level}]")
    return out


cdef LevelRows empty_rows(Py_ssize_t dimension, Py_ssize_t n_levels):
    cdef LevelRows out = LevelRows.__new__(LevelRows)
    cdef Py_ssize_t* begins = <Py_ssize_t*> calloc(n_levels + 2, sizeof(Py_ssize_t))
    if begins == NULL:
        raise MemoryError()
    free(out.begins)
    out.dimension, out.begins = dimension, begins
    return out


cdef inline bint same(
    const int32_t* a, const int32_t* b, const double* x, const double* y, Py_ssize_t n
) noexcept nogil:
    return memcmp(a, b, n * sizeof(int32_t)) == 0 and memcmp(x, y, n * sizeof(double)) == 0


cdef inline uint64_t hash_of(const int32_t* columns, const double* values, Py_ssize_t n) noexcept nogil:
    # Mixed as in splitmix64.
    cdef uint64_t h = <uint64_t> n, bits
    cdef Py_ssize_t i
    for i in range(n):
        memcpy(&bits, values + i, sizeof(bits))
        h = (h ^ bits ^ (<uint64_t> columns[i] << 32)) * <uint64_t> 0x9E3779B97F4A7C15
        h ^= h >> 29
    h *= <uint64_t> 0xBF58476D1CE4E5B9
    return h ^ (h >> 32)


cdef Py_ssize_t compress(const int32_t* columns, Py_ssize_t n, int32_t* distinct, int32_t* places) noexcept nogil:
    cdef Py_ssize_t i, m = 0
    cdef bint ascending = True
    memcpy(distinct, columns, n * sizeof(int32_t))
    for i in range(1, n):
        ascending = ascending and columns[i - 1] <= columns[i]
    if not ascending:
        qsort(distinct, n, sizeof(int32_t), compare)
    for i in range(n):
        if i == 0 or distinct[i] != distinct[m - 1]:
            distinct[m] = distinct[i]
            m += 1
    for i in range(n):
        places[i] = find(distinct, m, columns[i])
    return m


cdef inline int32_t find(const int32_t* distinct, Py_ssize_t m, int32_t column) noexcept nogil:
    cdef Py_ssize_t low = 0, high = m, middle
    while high - low > 1:
        middle = (low + high) // 2
        if distinct[middle] <= column:
            low = middle
        else:
            high = middle
    return <int32_t> low


cdef int compare(const void* a, const void* b) noexcept nogil:
    cdef int32_t x = (<const int32_t*> a)[0], y = (<const int32_t*> b)[0]
    return (x > y) - (x < y)
