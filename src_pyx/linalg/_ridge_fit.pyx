"""Ridge regression from moments (paper, section 6, with Gamma(theta) = lambda_ridge ||theta||^2)."""

cimport numpy as cnp
from libc.math cimport INFINITY

from dmq_fast.kernels._blas cimport cholesky, cholesky_solve
from dmq_fast.kernels._validate cimport entries, integer, matrix, positive, refuse_not_finite, vector

import numpy as np

from dmq_fast.kernels._validate import as_positive

cnp.import_array()

cdef enum:
    # Dimensions whose square, in bytes, fits an integer of 64 bits, and which BLAS can count.
    LARGEST = 1 << 28
    # Up to this dimension a fit takes less time than releasing the lock, and the workspace is on the stack.
    SHORT = 16


# Integers up to here are floats.
cdef long long SAFE = 1 << 53


cdef int fit(
    double* theta, const double* gram, const double* moment, double n, double ridge, double* work, Py_ssize_t d
) noexcept nogil:
    cdef Py_ssize_t i, j
    cdef int info
    cdef double poison = 0.0
    # A = gram / n + lambda I
    for i in range(d):
        for j in range(i, d):
            work[j * d + i] = gram[i * d + j] / n
            poison += work[j * d + i] * 0.0
        work[i * d + i] += ridge
        theta[i] = moment[i] / n
        poison += theta[i] * 0.0
    # NaN and infinities survive a product with zero.
    if poison != 0.0:
        return NOT_FINITE
    info = cholesky(work, d)
    if info != 0:
        return info
    cholesky_solve(work, theta, d)
    for i in range(d):
        poison += theta[i] * 0.0
    return NOT_FINITE if poison != 0.0 else 0


cdef double pairs(n) except -1.0:
    # The fast path: n is an integer as a rule.
    if type(n) is int and 0 < n <= SAFE:
        return n
    return positive(n, "n")


cdef cnp.ndarray workspace(Py_ssize_t d):
    cdef cnp.npy_intp size = d * d
    return None if d <= SHORT else cnp.PyArray_SimpleNew(1, &size, cnp.NPY_DOUBLE)


cdef cnp.ndarray estimate(cnp.ndarray gram, cnp.ndarray moment, double n, double ridge, cnp.ndarray scratch):
    # `scratch` comes from `workspace` and is used by this call alone.
    cdef cnp.npy_intp d = cnp.PyArray_DIM(gram, 0)
    cdef double[SHORT * SHORT] small
    cdef cnp.ndarray theta = cnp.PyArray_SimpleNew(1, &d, cnp.NPY_DOUBLE)
    cdef double* out = entries(theta)
    cdef const double* g = entries(gram)
    cdef const double* m = entries(moment)
    cdef double* work = small
    cdef int info
    refuse_not_finite("gram", gram)
    refuse_not_finite("moment", moment)
    if d <= SHORT:
        info = fit(out, g, m, n, ridge, work, d)
    else:
        work = entries(scratch)
        with nogil:
            info = fit(out, g, m, n, ridge, work, d)
    if info == 0:
        return theta
    if info == NOT_FINITE:
        raise ValueError("gram, moment: a mean or the estimate is not finite")
    raise np.linalg.LinAlgError(
        f"gram / n + ridge I is not positive definite (leading minor {info}, ridge {ridge:g}); raise ridge"
    )


cdef double penalty(value) except -1.0:
    if type(value) is float and 0.0 <= <double> value < INFINITY:
        return value
    return as_positive("ridge", value, zero=True)


cdef class RidgeFit:
    """`ridge_fit` for many fits of one dimension and one lambda. Threads may share it.

    Parameters
    ----------
    dimension : int
        Feature dimension d in [1, 2^28].
    ridge : float
        lambda_ridge >= 0.
    """

    cdef readonly Py_ssize_t dimension
    cdef readonly double ridge
    # None while a call uses it; a call of another thread then allocates its own.
    cdef cnp.ndarray _work

    def __cinit__(self, dimension, ridge):
        self.dimension = integer(dimension, "dimension", 1, LARGEST)
        self.ridge = penalty(ridge)

    def __call__(self, gram, moment, n):
        """Return (gram / n + ridge I)^{-1} (moment / n), shape (d,); arguments and errors are those of `ridge_fit`."""
        cdef Py_ssize_t d = self.dimension
        cdef cnp.ndarray sums = matrix(gram, "gram", d, d), products = vector(moment, "moment", d), theta, scratch
        cdef double count = pairs(n)
        scratch, self._work = self._work, None
        if scratch is None:
            scratch = workspace(d)
        theta = estimate(sums, products, count, self.ridge, scratch)
        self._work = scratch
        return theta

    def __reduce__(self):
        return type(self), (self.dimension, self.ridge)


def ridge_fit(gram, moment, n, ridge):
    """Ridge estimate from moments: (gram / n + ridge I)^{-1} (moment / n).

    Parameters
    ----------
    gram : array_like, shape (d, d)
        Sum of phi phi^T over the pairs; the upper triangle is read.
    moment : array_like, shape (d,)
        Sum of y phi.
    n : float
        Number of pairs, > 0 and finite.
    ridge : float
        lambda_ridge >= 0, in units of the mean.

    Returns
    -------
    numpy.ndarray, shape (d,)

    Raises
    ------
    numpy.linalg.LinAlgError
        If gram / n + ridge I is not positive definite in float64: raise `ridge`.
    TypeError, ValueError
        On a wrong dtype, shape or range, or an estimate that overflows.
    """
    cdef cnp.ndarray moments = matrix(gram, "gram", -1, -1)
    cdef Py_ssize_t d = cnp.PyArray_DIM(moments, 0)
    if d == 0 or cnp.PyArray_DIM(moments, 1) != d:
        raise ValueError(f"gram: expected shape (d, d) with d >= 1, got {(d, cnp.PyArray_DIM(moments, 1))}")
    return estimate(moments, vector(moment, "moment", d), pairs(n), penalty(ridge), workspace(d))
