"""Ridge regression from moments (paper, section 6, with Gamma(theta) = lambda_ridge ||theta||^2)."""

from dmq_fast.kernels._blas cimport cholesky, cholesky_solve

import numpy as np

from dmq_fast.kernels._validate import as_floats, as_positive


cdef int fit(
    double* theta, const double* gram, const double* moment, double n, double ridge, double* work, Py_ssize_t d
) noexcept nogil:
    cdef Py_ssize_t i, j
    cdef int info
    # A = gram / n + lambda I
    for i in range(d):
        for j in range(i + 1):
            work[i * d + j] = gram[i * d + j] / n
        work[i * d + i] += ridge
        theta[i] = moment[i] / n
    info = cholesky(work, d)
    if info == 0:
        cholesky_solve(work, theta, d)
    return info


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
        On a wrong dtype, shape or range.
    """
    cdef const double[:, ::1] g = as_floats("gram", gram, (None, None))
    cdef Py_ssize_t d = g.shape[0]
    if d == 0 or g.shape[1] != d:
        raise ValueError(f"gram: expected shape (d, d) with d >= 1, got {(g.shape[0], g.shape[1])}")
    cdef const double[::1] m = as_floats("moment", moment, (d,))
    cdef double count = as_positive("n", n)
    cdef double penalty = as_positive("ridge", ridge, zero=True)
    theta = np.empty(d)
    cdef double[::1] out = theta
    cdef double[::1] work = np.empty(d * d)
    cdef int info
    with nogil:
        info = fit(&out[0], &g[0, 0], &m[0], count, penalty, &work[0], d)
    if info != 0:
        raise np.linalg.LinAlgError(
            f"ridge_fit: gram / n + ridge I is not positive definite (leading minor {info}, ridge {penalty:g}); "
            "raise ridge"
        )
    return theta
