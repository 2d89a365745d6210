"""Ridge regression from moments (paper, section 6, with Gamma(theta) = lambda_ridge ||theta||^2)."""

from dmq_fast.kernels._blas cimport cholesky, cholesky_solve

import numpy as np

from dmq_fast.kernels._validate import as_floats, as_positive


cdef int fit(
    double* theta, const double* gram, const double* moment, double n, double ridge, double* work, Py_ssize_t d
) noexcept nogil:
    cdef Py_ssize_t i, j
    cdef int info
    cdef double poison = 0.0
    # A = gram / n + lambda I
    for i in range(d):
        for j in range(i + 1):
            work[i * d + j] = gram[i * d + j] / n
            poison += work[i * d + j] * 0.0
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


cdef class RidgeFit:
    """`ridge_fit` for many fits of one dimension: owns its workspace and checks nothing twice.

    Parameters
    ----------
    dimension : int
        Feature dimension d >= 1.
    ridge : float
        lambda_ridge >= 0.
    """

    cdef readonly Py_ssize_t dimension
    cdef readonly double ridge
    cdef double[::1] _work

    def __init__(self, Py_ssize_t dimension, ridge):
        if dimension < 1:
            raise ValueError(f"dimension: expected an integer >= 1, got {dimension}")
        self.dimension = dimension
        self.ridge = as_positive("ridge", ridge, zero=True)
        self._work = np.empty(dimension * dimension)

    def __call__(self, const double[:, ::1] gram not None, const double[::1] moment not None, double n):
        """Return (gram / n + ridge I)^{-1} (moment / n), shape (d,); errors as for `ridge_fit`."""
        cdef Py_ssize_t d = self.dimension
        if gram.shape[0] != d or gram.shape[1] != d or moment.shape[0] != d or not n > 0.0:
            raise ValueError(f"expected moments of dimension {d} of at least one pair")
        theta = np.empty(d)
        cdef double[::1] out = theta
        cdef int info
        with nogil:
            info = fit(&out[0], &gram[0, 0], &moment[0], n, self.ridge, &self._work[0], d)
        if info == NOT_FINITE:
            raise ValueError("gram, moment: a mean or the estimate is not finite")
        if info != 0:
            raise np.linalg.LinAlgError(
                f"gram / n + ridge I is not positive definite (leading minor {info}, ridge {self.ridge:g}); "
                "raise ridge"
            )
        return theta


def ridge_fit(gram, moment, n, ridge):
    """Ridge estimate from moments: (gram / n + ridge I)^{-1} (moment / n).

    Parameters
    ----------
    gram : array_like, shape (d, d)
        Sum of phi phi^T over the pairs; the lower triangle is read.
    moment : array_like, shape (d,)
        Sum of y phi.
    n : float
        Number of pairs, > 0.
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
    cdef const double[:, ::1] g = as_floats("gram", gram, (None, None))
    cdef Py_ssize_t d = g.shape[0]
    if d == 0 or g.shape[1] != d:
        raise ValueError(f"gram: expected shape (d, d) with d >= 1, got {(g.shape[0], g.shape[1])}")
    cdef const double[::1] m = as_floats("moment", moment, (d,))
    return RidgeFit(d, ridge)(g, m, as_positive("n", n))
