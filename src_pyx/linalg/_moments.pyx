"""Second moments sum_i w_i phi_i phi_i^T: one row, a block, one-hot or sparse rows at a time."""

cimport numpy as cnp
from libc.float cimport DBL_MAX, DBL_MIN
from libc.math cimport fabs
from libc.stdint cimport int32_t, int64_t
from libc.stdlib cimport calloc, free
from libc.string cimport memcpy

from dmq_fast.kernels._linalg cimport add_gram
from dmq_fast.kernels._memory cimport Buffer
from dmq_fast.kernels._validate cimport all_finite, entries, integer, is_sparse, refuse_not_finite, vector
from dmq_fast.kernels._validate cimport matrix as as_matrix

import numpy as np

from dmq_fast._support.files import FileError
from dmq_fast.kernels._saved import read, write
from dmq_fast.kernels._validate import as_csr, as_numbers, as_positive

cnp.import_array()

cdef extern from "dmq_moments.h":
    ctypedef void (*Tiles "dmq_tiles")(
        double* gram, const double* left, const double* right, Py_ssize_t n, Py_ssize_t d
    ) noexcept nogil

    Tiles best_tiles "dmq_best_tiles"()

cdef extern from "dmq_reduce.h":
    double dmq_dot(const double* x, const double* y, Py_ssize_t n) noexcept nogil

# Lower triangle of gram (d, d) <- gram + left^T right for left and right (n, d); up to 7 doubles behind their ends are
# read, but not used. Chosen for the processor this runs on.
cdef Tiles add_tiles = best_tiles()

# Up to this dimension `add_tiles` beats dsyrk (bench/test_moments.py).
cdef enum:
    SMALL = 48

# Rows weighted at a time, and handed to BLAS at a time (its integers have 32 bits).
cdef enum:
    PACKED = 32
    MOST = 1 << 24

# Largest d: the bytes of a (d, d) matrix fit a 64-bit integer, and d fits the integers of BLAS.
cdef enum:
    LARGEST = 1 << 29

# A sum of at most this cannot have overflowed in between.
cdef double ROOM = DBL_MAX / 4.0


cdef void add_outer(double* gram, const double* phi, double weight, Py_ssize_t d) noexcept nogil:
    cdef Py_ssize_t i, j
    cdef double scaled
    for i in range(d):
        scaled = weight * phi[i]
        for j in range(i + 1):
            gram[i * d + j] += scaled * phi[j]


cdef void add_outer_sparse(
    double* gram, const int32_t* columns, const double* values, Py_ssize_t nnz, double weight, Py_ssize_t d
) noexcept nogil:
    cdef Py_ssize_t i, j
    cdef double scaled
    cdef double* row
    for i in range(nnz):
        scaled = weight * values[i]
        row = gram + columns[i] * d
        for j in range(i + 1):
            row[columns[j]] += scaled * values[j]


cdef void mirror(double* gram, Py_ssize_t d) noexcept nogil:
    # In tiles of 16 x 16, because every entry of a column of a large matrix is in a cache line of its own.
    cdef Py_ssize_t i, j, top, left
    for top in range(0, d, 16):
        for left in range(0, top + 1, 16):
            for i in range(top, min(top + 16, d)):
                for j in range(left, min(left + 16, i)):
                    gram[j * d + i] = gram[i * d + j]


cdef inline Py_ssize_t padded(Py_ssize_t d) noexcept nogil:
    return (d + 7) // 8 * 8


cdef Py_ssize_t block_work_size(Py_ssize_t d) noexcept nogil:
    # Weighted rows and the last rows, each with room behind for reads beyond the end.
    return (PACKED + 8) * d + 16


cdef void add_block(
    double* gram, const double* rows, const double* weights, Py_ssize_t n, Py_ssize_t d, double* work
) noexcept nogil:
    # `add_tiles` reads 8 columns at a time and so beyond the end of a row, into the next one. The last few rows are
    # copied to the workspace, where there is room behind them.
    cdef Py_ssize_t done = 0, size, i, direct
    cdef double* weighted = work
    cdef double* last = work + PACKED * d + 8
    if weights == NULL and d > SMALL:
        while done < n:
            size = min(MOST, n - done)
            add_gram(gram, rows + done * d, size, d)
            done += size
        return
    direct = max(0, n - (padded(d) - 1) // d)
    while done < n:
        size = direct - done if done < direct else n - done
        if done >= direct:
            memcpy(last, rows, size * d * sizeof(double))
        if weights == NULL:
            add_tiles(gram, rows if done < direct else last, rows if done < direct else last, size, d)
        else:
            size = min(PACKED, size)
            for i in range(size):
                scale_row(weighted + i * d, rows + i * d, weights[done + i], d)
            add_tiles(gram, weighted, rows if done < direct else last, size, d)
        rows += size * d
        done += size


cdef inline void scale_row(double* out, const double* row, double weight, Py_ssize_t d) noexcept nogil:
    cdef Py_ssize_t j
    for j in range(d):
        out[j] = weight * row[j]


# One call adds rows of `Rows`, or one-hot ones, which have columns but no values. Weights are NULL for ones.


cdef double mass(const Rows* rows, const double* weights, Py_ssize_t d) noexcept nogil:
    # sum_i w_i |phi_i|^2, an upper bound on every entry that is added; NaN or infinite if a number is.
    cdef Py_ssize_t i, first
    cdef double total = 0.0, norm = 1.0
    if weights == NULL:
        if rows.values == NULL:
            return <double> rows.n
        return dmq_dot(rows.values, rows.values, begin_of(rows, rows.n, d))
    for i in range(rows.n):
        if rows.values != NULL:
            first = begin_of(rows, i, d)
            norm = dmq_dot(rows.values + first, rows.values + first, begin_of(rows, i + 1, d) - first)
        total += weights[i] * norm
    return total


cdef void accumulate(
    double* gram, const Rows* rows, const double* weights, Py_ssize_t d, double* work
) noexcept nogil:
    cdef Py_ssize_t i, first
    cdef double weight = 1.0
    if rows.columns == NULL:
        if rows.n == 1:
            add_outer(gram, rows.values, 1.0 if weights == NULL else weights[0], d)
        else:
            add_block(gram, rows.values, weights, rows.n, d, work)
        return
    for i in range(rows.n):
        if weights != NULL:
            weight = weights[i]
        if rows.values == NULL:
            gram[rows.columns[i] * (d + 1)] += weight
        else:
            first = rows.starts[i]
            add_outer_sparse(gram, rows.columns + first, rows.values + first, rows.starts[i + 1] - first, weight, d)


cdef class SecondMoment:
    """Running sum of phi phi^T and the number of rows in it.

    Not safe to share between threads while rows are added. Rows and weights that would take a sum out of float64's
    range are refused; every method that raises leaves the sum as it was.

    Parameters
    ----------
    dimension : int
        Feature dimension d >= 1.

    Attributes
    ----------
    dimension : int
    n : int
        Number of rows, whatever their weights.

    Notes
    -----
    The paper calls the mean, `matrix / n`, a covariance matrix; it is not centred.
    """

    # The lower triangle, followed by the workspace of `add_block`.
    cdef double* _gram
    cdef readonly Py_ssize_t dimension
    cdef readonly Py_ssize_t n

    def __cinit__(self, dimension):
        cdef Py_ssize_t d = integer(dimension, "dimension", 1, <Py_ssize_t> (<size_t> -1 >> 1))
        if d <= LARGEST:
            self._gram = <double*> calloc(d * d + block_work_size(d), sizeof(double))
        if self._gram == NULL:
            raise MemoryError(f"dimension: no memory for a matrix of shape ({d}, {d}), {8 * int(d) ** 2 / 1e9:.3g} GB")
        self.dimension = d
        self.n = 0

    def __dealloc__(self):
        free(self._gram)

    def add(self, phi):
        """Add one row, phi of shape (d,), in place: S <- S + phi phi^T.

        Raises
        ------
        TypeError, ValueError
            On a wrong dtype or shape, an entry that is not finite, or overflow.
        """
        cdef cnp.ndarray row = vector(phi, "phi", self.dimension)
        self._add(Rows(1, entries(row), NULL, NULL), "phi", row, None)

    def add_rows(self, rows, weights=None):
        """Add a block of rows in place, S <- S + sum_i w_i phi_i phi_i^T; every row counts once in `n`.

        Parameters
        ----------
        rows : array_like or sparse, shape (n, d)
            Dense, or a SciPy sparse matrix or array, see `add_csr`.
        weights : array_like, shape (n,), optional
            Non-negative weights, ones by default.

        Raises
        ------
        TypeError, ValueError
            On a wrong dtype or shape, an entry that is not finite, a negative weight, or overflow.
        """
        cdef tuple parts
        if is_sparse(rows):
            parts = sparse_rows(rows, "rows", self.dimension)
            self._add(rows_in(parts), "rows.data", parts[0], weights)
        else:
            parts = (as_matrix(rows, "rows", -1, self.dimension),)
            self._add(rows_in(parts), "rows", parts[0], weights)

    def add_indices(self, indices, weights=None):
        """Add one-hot rows in place, phi_i = e_k for k = indices[i]: constant work a row.

        Parameters
        ----------
        indices : array_like of int, shape (n,)
            Each in 0..d-1.
        weights : array_like, shape (n,), optional
            Non-negative weights, ones by default.

        Raises
        ------
        TypeError, ValueError
            On a wrong dtype, shape or range, or overflow.
        """
        cdef cnp.ndarray columns = as_columns(indices, "indices", self.dimension)
        cdef const int32_t* column = <const int32_t*> cnp.PyArray_DATA(columns)
        self._add(Rows(cnp.PyArray_DIM(columns, 0), NULL, column, NULL), "weights", None, weights)

    def add_csr(self, data, indices, indptr, weights=None):
        """Add sparse rows in place, nnz^2 / 2 operations for a row of nnz entries.

        Parameters
        ----------
        data : array_like, shape (nnz,)
        indices : array_like of int, shape (nnz,)
            Columns; row i has data[indptr[i]:indptr[i + 1]] at indices[indptr[i]:indptr[i + 1]]. Entries of a row may
            come in any order; those of one column add up.
        indptr : array_like of int, shape (n + 1,)
        weights : array_like, shape (n,), optional
            Non-negative weights, ones by default.

        Raises
        ------
        TypeError, ValueError
            On a wrong dtype, shape or range, an entry that is not finite, a negative weight, or overflow.
        """
        cdef tuple parts = csr_parts(data, indices, indptr, self.dimension, "")
        self._add(rows_in(parts), "data", parts[0], weights)

    def merge(self, SecondMoment other not None, SecondMoment base=None):
        """Add the rows of another accumulator of the same dimension, in place.

        Rows that both have count twice, as those of an accumulator do of which both are copies. Give that one as
        `base`, with which they count once.

        Raises
        ------
        TypeError, ValueError
            If `other` or `base` is not a SecondMoment, or has another dimension, if `base` has more rows than one of
            both, or the sum overflows.
        """
        cdef Py_ssize_t i, size = self.dimension * self.dimension
        for argument, accumulator in (("other", other), ("base", other if base is None else base)):
            if accumulator.dimension != self.dimension:
                raise ValueError(f"{argument}: expected dimension {self.dimension}, got {accumulator.dimension}")
        if base is not None and base.n > min(self.n, other.n):
            raise ValueError(f"base: expected rows that both have, at most {min(self.n, other.n)}, got {base.n}")
        self._check_count(other.n)
        # Each is positive semidefinite: the diagonal bounds the rest.
        for i in range(self.dimension):
            if not self._gram[i * (self.dimension + 1)] + other._gram[i * (self.dimension + 1)] <= DBL_MAX:
                raise ValueError("other: the sum overflows float64; rescale")
        for i in range(size):
            self._gram[i] += other._gram[i]
        self.n += other.n
        if base is not None:
            for i in range(size):
                self._gram[i] -= base._gram[i]
            self.n -= base.n

    def scale(self, factor):
        """Multiply the sum in place, S <- factor S, to forget; `n` stays, as weights do not count in it.

        Parameters
        ----------
        factor : float
            Non-negative.

        Raises
        ------
        TypeError, ValueError
            If `factor` is no such number, or an entry overflows.
        """
        cdef double share = as_positive("factor", factor, zero=True)
        cdef Py_ssize_t i
        for i in range(self.dimension):
            if not share * self._gram[i * (self.dimension + 1)] <= DBL_MAX:
                raise ValueError("factor: the sum overflows float64; rescale")
        for i in range(self.dimension * self.dimension):
            self._gram[i] *= share

    @classmethod
    def from_matrix(cls, matrix, n):
        """Return an accumulator that goes on from a sum.

        Parameters
        ----------
        matrix : array_like, shape (d, d)
            Sum of phi phi^T; the upper triangle is read.
        n : int
            Rows in it; 0 only where `matrix` is zero.

        Raises
        ------
        TypeError, ValueError
            On a wrong dtype or shape, an entry that is not finite, or one that its diagonal does not allow.

        Examples
        --------
        >>> moment = SecondMoment.from_matrix([[4.0, 2.0], [2.0, 1.0]], n=1)
        >>> moment.scale(0.5)
        >>> moment.matrix
        array([[2. , 1. ],
               [1. , 0.5]])
        """
        cdef cnp.ndarray sums = lower_of(matrix, "matrix")
        cdef Py_ssize_t d = cnp.PyArray_DIM(sums, 0)
        cdef SecondMoment new = cls(d)
        new.n = integer(n, "n", 0, <Py_ssize_t> (<size_t> -1 >> 1))
        if new.n == 0 and sums.any():
            raise ValueError("n: expected an integer >= 1 where matrix is not zero, got 0")
        memcpy(new._gram, entries(sums), d * d * sizeof(double))
        return new

    def save(self, path):
        """Write the state to a file, which `load` reads: npz, in the format that docs/kernels.md describes.

        Parameters
        ----------
        path : str or path
            A file there is replaced, once the new one is complete.

        Raises
        ------
        OSError
            If it cannot be written.
        """
        write(path, "SecondMoment", {"matrix": self.matrix, "n": self.n})

    @classmethod
    def load(cls, path):
        """Return the accumulator that `save` wrote, bit for bit.

        Raises
        ------
        OSError
            If the file cannot be read.
        FileError
            If it is not a file of `save`, is damaged, or of a later version; a ValueError.
        """
        contents = read(path, "SecondMoment")
        try:
            return cls.from_matrix(contents["matrix"], contents["n"])
        except (KeyError, TypeError, ValueError) as error:
            raise FileError(f"{path}: expected a file of SecondMoment.save: {error}") from error

    def copy(self):
        """Return an independent accumulator with the same rows in it."""
        cdef SecondMoment new = type(self).__new__(type(self), self.dimension)
        memcpy(new._gram, self._gram, self.dimension * self.dimension * sizeof(double))
        new.n = self.n
        return new

    def __reduce__(self):
        return type(self).from_matrix, (self.matrix, self.n)

    @property
    def matrix(self):
        """The sum of phi phi^T, shape (d, d), a new symmetric array."""
        cdef cnp.ndarray full = np.empty((self.dimension, self.dimension))
        memcpy(cnp.PyArray_DATA(full), self._gram, self.dimension * self.dimension * sizeof(double))
        mirror(entries(full), self.dimension)
        return full

    @property
    def mean(self):
        """The second moment M = (1/n) sum phi phi^T, shape (d, d); ValueError while no row was added."""
        if self.n == 0:
            raise ValueError("mean: no row was added yet")
        return self.matrix / self.n

    def __repr__(self):
        return f"{type(self).__name__}(dimension={self.dimension}, n={self.n})"

    cdef int _add(self, Rows rows, str name, cnp.ndarray numbers, weights) except -1:
        # `numbers` are the values of the rows, None for one-hot ones.
        cdef cnp.ndarray scales = as_weights(weights, rows.n)
        cdef const double* scale = NULL if scales is None else entries(scales)
        cdef Py_ssize_t i, d = self.dimension, size = d * d
        cdef double total
        cdef Buffer scratch
        self._check_count(rows.n)
        if rows.n == 0:
            return 0
        with nogil:
            total = mass(&rows, scale, d)
            for i in range(d):
                total += self._gram[i * (d + 1)]
            if total <= ROOM:
                accumulate(self._gram, &rows, scale, d, self._gram + size)
        if not total <= ROOM:
            if numbers is not None:
                refuse_not_finite(name, numbers)
            if scales is not None:
                refuse_not_finite("weights", scales)
            # The bound says that a sum may overflow: add on a copy, and see whether one does.
            scratch = Buffer(size)
            memcpy(scratch.data, self._gram, size * sizeof(double))
            accumulate(scratch.data, &rows, scale, d, self._gram + size)
            if not all_finite(scratch.data, size):
                raise ValueError(f"{name}: the sum overflows float64; rescale")
            memcpy(self._gram, scratch.data, size * sizeof(double))
        self.n += rows.n
        return 0

    cdef int _check_count(self, Py_ssize_t more) except -1:
        if more > (<Py_ssize_t> (<size_t> -1 >> 1)) - self.n:
            raise OverflowError(f"n: {self.n} + {more} rows are more than an integer of 64 bits counts")
        return 0


cdef object lower_of(value, str name):
    cdef cnp.ndarray sums = as_matrix(value, name, -1, -1)
    cdef Py_ssize_t i, j, d = cnp.PyArray_DIM(sums, 0)
    cdef const double* gram
    if d == 0 or cnp.PyArray_DIM(sums, 1) != d:
        raise ValueError(f"{name}: expected shape (d, d) with d >= 1, got {(d, cnp.PyArray_DIM(sums, 1))}")
    sums = np.ascontiguousarray(np.triu(sums).T)
    refuse_not_finite(name, sums)
    # The diagonal of a positive semidefinite matrix bounds the rest, and the checks against overflow rely on that:
    # |g_ij| <= (g_ii + g_jj) / 2, here up to a millionth and underflow.
    gram = entries(sums)
    for i in range(d):
        if gram[i * (d + 1)] < 0.0:
            raise ValueError(f"{name}: expected a non-negative diagonal, got {gram[i * (d + 1)]} at {i}")
        for j in range(i):
            if fabs(gram[i * d + j]) > (0.5 * gram[i * (d + 1)] + 0.5 * gram[j * (d + 1)]) * (1.0 + 1e-6) + DBL_MIN:
                raise ValueError(
                    f"{name}: expected a positive semidefinite matrix, got {gram[i * d + j]} at {(i, j)} "
                    f"with {gram[j * (d + 1)]} and {gram[i * (d + 1)]} on the diagonal"
                )
    return sums


cdef Rows rows_in(tuple parts):
    cdef cnp.ndarray values = parts[0], columns, starts
    if len(parts) == 1:
        return Rows(1 if cnp.PyArray_NDIM(values) == 1 else cnp.PyArray_DIM(values, 0), entries(values), NULL, NULL)
    columns, starts = parts[1], parts[2]
    return Rows(
        cnp.PyArray_DIM(starts, 0) - 1, entries(values), <const int32_t*> cnp.PyArray_DATA(columns),
        <const int64_t*> cnp.PyArray_DATA(starts),
    )


cdef tuple sparse_rows(value, str name, Py_ssize_t d):
    csr = as_csr(name, value, (None, None if d < 0 else d))
    return csr.data, csr.indices, csr.indptr.astype(np.int64)


cdef tuple csr_parts(data, indices, indptr, Py_ssize_t d, str prefix):
    cdef cnp.ndarray columns = as_columns(indices, prefix + "indices", d)
    cdef cnp.ndarray values = vector(data, prefix + "data", cnp.PyArray_DIM(columns, 0))
    cdef cnp.ndarray starts = as_starts(indptr, prefix + "indptr", cnp.PyArray_DIM(columns, 0))
    cdef Py_ssize_t n = cnp.PyArray_DIM(starts, 0) - 1
    if ascending(<const int32_t*> cnp.PyArray_DATA(columns), <const int64_t*> cnp.PyArray_DATA(starts), n):
        return values, columns, starts
    from scipy.sparse import csr_array

    refuse_not_finite(prefix + "data", values)
    canonical = csr_array((values, columns, starts), shape=(n, d), copy=True)
    canonical.sum_duplicates()
    return (
        np.ascontiguousarray(canonical.data, dtype=np.float64),
        np.ascontiguousarray(canonical.indices, dtype=np.int32),
        np.ascontiguousarray(canonical.indptr, dtype=np.int64),
    )


cdef cnp.ndarray as_weights(value, Py_ssize_t n):
    cdef cnp.ndarray array
    cdef const double* x
    cdef Py_ssize_t i
    if value is None:
        return None
    array = vector(value, "weights", n)
    x = entries(array)
    for i in range(n):
        if not 0.0 <= x[i] <= DBL_MAX:
            refuse_not_finite("weights", array)
            raise ValueError(f"weights: expected non-negative numbers, got {x[i]} at index {i}")
    return array


cdef cnp.ndarray as_integers(str name, value):
    # A one-dimensional array of integers, of any integer dtype.
    array = as_numbers(name, value)
    if array.ndim != 1:
        raise ValueError(f"{name}: expected shape (any), got {array.shape}")
    if array.dtype.kind not in "iu" and array.size:
        raise TypeError(f"{name}: expected integers, got dtype {array.dtype}")
    return array


cdef inline bint ready(value):
    # Whether `value` is a vector of int32 or int64 that can be read without conversion.
    return (
        cnp.PyArray_CheckExact(value)
        and cnp.PyArray_NDIM(value) == 1
        and cnp.PyArray_ISCARRAY_RO(value)
        and cnp.PyArray_ISINTEGER(value)
        and cnp.PyArray_ISSIGNED(value)
        and cnp.PyArray_ITEMSIZE(value) in (4, 8)
    )


cdef object dense_row(indices, values, Py_ssize_t d):
    cdef cnp.ndarray columns = as_columns(indices, "indices", d), row = np.zeros(d)
    cdef cnp.ndarray numbers = vector(values, "values", cnp.PyArray_DIM(columns, 0))
    cdef const int32_t* column = <const int32_t*> cnp.PyArray_DATA(columns)
    cdef Py_ssize_t i
    refuse_not_finite("values", numbers)
    for i in range(cnp.PyArray_DIM(columns, 0)):
        entries(row)[column[i]] += entries(numbers)[i]
    return row


cdef object as_columns(value, str name, Py_ssize_t d):
    cdef cnp.ndarray array, out
    cdef const int32_t* narrow
    cdef const int64_t* wide
    cdef int32_t* x
    cdef Py_ssize_t i, n
    if not ready(value):
        value = as_integers(name, value)
        if value.dtype.kind == "u" and value.size and value.max() >= d:
            # Before the cast, which would wrap.
            i = value.argmax()
            raise ValueError(f"{name}: expected 0 <= index < {d}, got {value[i]} at position {i}")
        value = np.require(value, np.int64, ["C", "A"])
    array = value
    n = cnp.PyArray_DIM(array, 0)
    if cnp.PyArray_ITEMSIZE(array) == 4:
        narrow = <const int32_t*> cnp.PyArray_DATA(array)
        for i in range(n):
            if not 0 <= narrow[i] < d:
                raise ValueError(f"{name}: expected 0 <= index < {d}, got {narrow[i]} at position {i}")
        return array
    out = np.empty(n, dtype=np.int32)
    x = <int32_t*> cnp.PyArray_DATA(out)
    wide = <const int64_t*> cnp.PyArray_DATA(array)
    for i in range(n):
        if not 0 <= wide[i] < d:
            raise ValueError(f"{name}: expected 0 <= index < {d}, got {wide[i]} at position {i}")
        x[i] = <int32_t> wide[i]
    return out


cdef cnp.ndarray as_starts(value, str name, Py_ssize_t nnz):
    cdef cnp.ndarray array
    cdef const int64_t* x
    cdef Py_ssize_t i, n
    value = as_integers(name, value)
    if value.size == 0:
        raise ValueError(f"{name}: expected shape (n + 1), got (0,)")
    if value.dtype.kind == "u" and value.max() > nnz:
        raise ValueError(f"{name}: expected at most {nnz}, the number of entries, got {value.max()}")
    array = np.require(value, np.int64, ["C", "A"])
    x = <const int64_t*> cnp.PyArray_DATA(array)
    n = cnp.PyArray_DIM(array, 0)
    if x[0] != 0:
        raise ValueError(f"{name}: expected to start with 0, got {x[0]}")
    for i in range(1, n):
        if x[i] < x[i - 1]:
            raise ValueError(f"{name}: expected numbers that do not decrease, got {x[i - 1]}, {x[i]} at {i - 1}, {i}")
    if x[n - 1] != nnz:
        raise ValueError(f"{name}: expected to end with {nnz}, the number of entries, got {x[n - 1]}")
    return array


cdef bint ascending(const int32_t* columns, const int64_t* starts, Py_ssize_t n) noexcept nogil:
    # Whether the columns of every row ascend strictly.
    cdef Py_ssize_t i, k
    for i in range(n):
        for k in range(starts[i] + 1, starts[i + 1]):
            if columns[k] <= columns[k - 1]:
                return False
    return True
