"""Second moments sum_i w_i phi_i phi_i^T, one row or a block at a time."""

from libc.stdint cimport int32_t

from dmq_fast.kernels._blas cimport add_gram

import numpy as np

from dmq_fast.kernels._validate import as_floats


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
    cdef Py_ssize_t i, j
    for i in range(d):
        for j in range(i):
            gram[j * d + i] = gram[i * d + j]


# Rows shorter than this are added one by one: a call into BLAS costs more.
cdef enum:
    SMALL = 8


cdef class SecondMoment:
    """Running sum of phi phi^T and the number of rows in it.

    Parameters
    ----------
    dimension : int
        Feature dimension d >= 1.

    Notes
    -----
    The paper calls the mean, `matrix / n`, a covariance matrix; it is not centred.
    """

    cdef double[:, ::1] _lower
    cdef readonly Py_ssize_t dimension
    cdef readonly Py_ssize_t n

    def __init__(self, Py_ssize_t dimension):
        if dimension < 1:
            raise ValueError(f"dimension: expected an integer >= 1, got {dimension}")
        self._lower = np.zeros((dimension, dimension))
        self.dimension = dimension
        self.n = 0

    def add(self, phi):
        """Add one row, phi of shape (d,), in place: S <- S + phi phi^T."""
        cdef const double[::1] row = as_floats("phi", phi, (self.dimension,))
        with nogil:
            add_outer(&self._lower[0, 0], &row[0], 1.0, self.dimension)
        self.n += 1

    def add_rows(self, rows, weights=None):
        """Add a block of rows (n, d) in place, S <- S + sum_i w_i phi_i phi_i^T; every row counts once in `n`.

        Parameters
        ----------
        rows : array_like, shape (n, d)
        weights : array_like, shape (n,), optional
            Non-negative weights; one each when left out.

        Raises
        ------
        TypeError, ValueError
            On a wrong dtype or shape, a non-finite entry or a negative weight; S is unchanged then.
        """
        cdef const double[:, ::1] block = as_floats("rows", rows, (None, self.dimension))
        cdef const double[::1] scale
        cdef Py_ssize_t i, n = block.shape[0], d = self.dimension
        if weights is not None:
            weights = as_floats("weights", weights, (n,))
            if (weights < 0.0).any():
                raise ValueError(f"weights: expected non-negative numbers, got {weights.min()}")
            scale = weights
        if n == 0:
            return
        with nogil:
            if weights is not None:
                for i in range(n):
                    add_outer(&self._lower[0, 0], &block[i, 0], scale[i], d)
            elif d < SMALL:
                for i in range(n):
                    add_outer(&self._lower[0, 0], &block[i, 0], 1.0, d)
            else:
                add_gram(&self._lower[0, 0], &block[0, 0], n, d)
        self.n += n

    def merge(self, SecondMoment other not None):
        """Add the rows of another accumulator of the same dimension, in place."""
        if other.dimension != self.dimension:
            raise ValueError(f"other: expected dimension {self.dimension}, got {other.dimension}")
        lower = np.asarray(self._lower)
        lower += np.asarray(other._lower)
        self.n += other.n

    @property
    def matrix(self):
        """The sum of phi phi^T, shape (d, d), a new symmetric array."""
        cdef double[:, ::1] full = np.array(self._lower)
        mirror(&full[0, 0], self.dimension)
        return np.asarray(full)

    @property
    def mean(self):
        """The second moment M = (1/n) sum phi phi^T, shape (d, d); ValueError while no row was added."""
        if self.n == 0:
            raise ValueError("mean: no row was added yet")
        return self.matrix / self.n

    def __repr__(self):
        return f"SecondMoment(dimension={self.dimension}, n={self.n})"
