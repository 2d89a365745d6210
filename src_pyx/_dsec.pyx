"""The Distribution Shift Error Checking oracle for linear functions (paper, oracle 4.2 and section 6).

With M1 the regularised second moment of D1 and M2 that of D2,

    v = eps_1 lambda_max(M1^{-1/2} M2 M1^{-1/2}),    True  iff  v >= eps_2.

The decision needs no eigenvalue: it is True iff (eps_2 / eps_1) M1 - M2 is not positive definite.
"""

from libc.float cimport DBL_EPSILON, DBL_MIN
from libc.math cimport INFINITY

from dmq_fast.kernels._blas cimport OVERFLOW, cholesky, eigen_work_size, top_eigenpair

from typing import NamedTuple

import numpy as np

from dmq_fast.kernels._validate import as_floats, as_positive


cdef int decide(
    const double* s, const double* m2, double ratio, double eps_r, double* work, Py_ssize_t d
) noexcept nogil:
    cdef Py_ssize_t i, j
    cdef double poison = 0.0, smallest = INFINITY, entry
    # A = R (S + eps_r I) - M2, lower triangle
    for i in range(d):
        for j in range(i):
            entry = ratio * s[i * d + j] - m2[i * d + j]
            # NaN and infinities survive a product with zero; a sum of them shows that there was one.
            poison += entry * 0.0
            work[i * d + j] = entry
        entry = ratio * (s[i * d + i] + eps_r) - m2[i * d + i]
        poison += entry * 0.0
        smallest = min(smallest, entry)
        work[i * d + i] = entry
    if poison != 0.0:
        return NOT_FINITE
    # A non-positive diagonal entry settles it without a factorisation.
    if not smallest > 0.0:
        return SHIFT
    return SHIFT if cholesky(work, d) != 0 else NO_SHIFT


cdef Py_ssize_t value_work_size(Py_ssize_t d) noexcept nogil:
    return 2 * d * d + eigen_work_size(d)


cdef int shift_value(
    const double* s, const double* m2, double eps_r, double* value, double* witness, double* work, Py_ssize_t d
) noexcept nogil:
    cdef double* factor = work
    cdef double* target = work + d * d
    cdef double poison = 0.0
    cdef Py_ssize_t i, j
    cdef int info
    for i in range(d):
        for j in range(i + 1):
            factor[i * d + j] = s[i * d + j]
            target[i * d + j] = m2[i * d + j]
            poison += factor[i * d + j] * 0.0 + target[i * d + j] * 0.0
        factor[i * d + i] += eps_r
    # LAPACK may hang on infinities and answer zeros on NaN.
    if poison != 0.0:
        return NOT_FINITE
    info = cholesky(factor, d)
    if info != 0:
        return info
    info = top_eigenpair(target, factor, d, value, witness, work + 2 * d * d)
    if info == OVERFLOW:
        return NOT_FINITE
    return 0 if info == 0 else -100 - abs(info)


class DsecResult(NamedTuple):
    """Answer of the DSEC oracle: `decision` (v >= eps2), `value` v, and `witness` x (d,).

    The witness is the theta_1 - theta_2 that attains v: x^T M1 x = eps1 and x^T M2 x = v. The decision is that
    of `dsec_decision`, exact where v = eps2 is; the value of such a tie may be rounded to below eps2.
    """

    decision: bool
    value: float
    witness: np.ndarray


def dsec(m1, m2, eps1, eps2):
    """DSEC oracle with value and witness (paper, oracle 4.2, linear class).

    Parameters
    ----------
    m1 : array_like, shape (d, d)
        Second moment of D1 with its regulariser added; symmetric positive definite (lower triangle read).
    m2 : array_like, shape (d, d)
        Second moment of D2; symmetric positive semidefinite (lower triangle read).
    eps1, eps2 : float
        epsilon_1 > 0 and epsilon_2 > 0 of the oracle.

    Returns
    -------
    DsecResult

    Raises
    ------
    numpy.linalg.LinAlgError
        If m1 is not positive definite in float64, or the eigenvalue routine fails.
    TypeError, ValueError
        On a wrong dtype, shape or range, an entry that is not finite, or a result beyond float64.
    """
    cdef const double[:, ::1] first
    cdef const double[:, ::1] second
    cdef double value = 0.0, scale, ratio
    cdef int info, answer
    first, second = _pair(m1, m2)
    cdef Py_ssize_t d = first.shape[0]
    eps1, ratio = as_positive("eps1", eps1), _ratio(eps1, eps2, first)
    witness = np.empty(d)
    cdef double[::1] x = witness
    cdef double[::1] work = np.empty(value_work_size(d))
    with nogil:
        info = shift_value(&first[0, 0], &second[0, 0], 0.0, &value, &x[0], &work[0], d)
        answer = decide(&first[0, 0], &second[0, 0], ratio, 0.0, &work[0], d)
    if info > 0:
        raise np.linalg.LinAlgError(
            f"m1: not positive definite (leading minor {info}); add a regulariser eps_r I that float64 can resolve"
        )
    if info < NOT_FINITE:
        raise np.linalg.LinAlgError(f"dsec: the eigenvalue routine failed (info {info + 100})")
    scale = eps1 ** 0.5
    with np.errstate(over="ignore"):
        witness *= scale
    value *= eps1
    if info == NOT_FINITE or answer == NOT_FINITE or not (value < INFINITY and np.isfinite(witness).all()):
        raise ValueError("m1, m2: v, its witness or (eps2 / eps1) m1 - m2 overflows; rescale")
    return DsecResult(answer == SHIFT, value, witness)


def dsec_decision(m1, m2, eps1, eps2):
    """DSEC oracle, decision only: one Cholesky factorisation of (eps2 / eps1) m1 - m2.

    Parameters and errors as for `dsec`; an m1 that is not positive definite gives True.

    Returns
    -------
    bool
        Whether v >= eps2.
    """
    cdef const double[:, ::1] first
    cdef const double[:, ::1] second
    cdef int answer
    first, second = _pair(m1, m2)
    cdef Py_ssize_t d = first.shape[0]
    cdef double ratio = _ratio(eps1, eps2, first)
    cdef double[::1] work = np.empty(d * d)
    with nogil:
        answer = decide(&first[0, 0], &second[0, 0], ratio, 0.0, &work[0], d)
    if answer == NOT_FINITE:
        raise ValueError("m1, m2: (eps2 / eps1) m1 - m2 overflows; rescale")
    return answer == SHIFT


def _pair(m1, m2):
    first = as_floats("m1", m1, (None, None))
    d = first.shape[0]
    if d == 0 or first.shape[1] != d:
        raise ValueError(f"m1: expected shape (d, d) with d >= 1, got {first.shape}")
    return first, as_floats("m2", m2, (d, d))


cdef double _ratio(eps1, eps2, const double[:, ::1] m1) except -1.0:
    # eps2 / eps1, where float64 resolves it and its product with the diagonal of m1.
    cdef double ratio = as_positive("eps2", eps2) / as_positive("eps1", eps1)
    cdef Py_ssize_t i
    if not DBL_MIN / DBL_EPSILON <= ratio < INFINITY:
        raise ValueError(f"eps1, eps2: expected a ratio within the range of float64, got {eps2} / {eps1}")
    for i in range(m1.shape[0]):
        if 0.0 < m1[i, i] and ratio * m1[i, i] < DBL_MIN:
            raise ValueError("m1: (eps2 / eps1) m1 underflows; rescale")
    return ratio


cdef class ShiftScan:
    """The oracle calls of one batch of trajectories: levels scanned downwards, up to the first True.

    Answers ``lambda_max((S_h + eps_r I)^{-1} M_h) >= ratio`` for level after level without returning to Python.
    Owns its workspace; not safe to share between threads.

    Parameters
    ----------
    dimension : int
    ratio : float
        R = eps_t / eps_s > 0.
    eps_r : float
        Regulariser > 0.
    with_values : bool
        Decide by the eigenvalue and record it, instead of by a factorisation.
    """

    cdef readonly Py_ssize_t dimension
    cdef readonly double ratio
    cdef readonly double eps_r
    cdef readonly bint with_values
    cdef double[::1] _work
    cdef double[::1] _m2

    def __init__(self, Py_ssize_t dimension, ratio, eps_r, bint with_values):
        if dimension < 1:
            raise ValueError(f"dimension: expected an integer >= 1, got {dimension}")
        self.dimension = dimension
        self.ratio = as_positive("ratio", ratio)
        self.eps_r = as_positive("eps_r", eps_r)
        if not DBL_MIN <= self.ratio * self.eps_r < INFINITY:
            raise ValueError(f"ratio, eps_r: expected a product within the range of float64, got {ratio} * {eps_r}")
        self.with_values = with_values
        self._work = np.empty(value_work_size(dimension) if with_values else dimension * dimension)
        self._m2 = np.empty(dimension * dimension)

    def scan(self, const double[:, :, ::1] cover not None, const double[:, :, ::1] grams not None,
             double n, Py_ssize_t base, Py_ssize_t top, Py_ssize_t bottom):
        """Return the first level of top, top - 1, ..., bottom whose oracle says True, and the values on the way.

        Parameters
        ----------
        cover : numpy.ndarray, shape (H, d, d)
            S_h = sum over the cover of level h of its second moments.
        grams : numpy.ndarray, shape (L, d, d)
            Sums of phi phi^T over `n` states of levels base, base + 1, ...
        n : float
            Number of states behind each of `grams`.
        base, top, bottom : int
            base <= bottom <= top < min(H, base + L), or top < bottom for nothing to do.

        Returns
        -------
        level : int
            -1 when every answer was False.
        values : list of float
            lambda_max of each level looked at, in order; empty without `with_values`.

        Raises
        ------
        ValueError
            When a moment is not finite, or an eigenvalue overflows.
        numpy.linalg.LinAlgError
            When the eigenvalue routine fails.
        """
        cdef Py_ssize_t d = self.dimension, level, i, found = -1
        cdef int answer = 0
        cdef double value = 0.0
        cdef const double* s
        cdef const double* gram
        cdef double* m2 = &self._m2[0]
        cdef double* work = &self._work[0]
        cdef list values = []
        if top < bottom:
            return -1, values
        if not (0 <= base <= bottom and top < cover.shape[0] and top < base + grams.shape[0] and 0.0 < n < INFINITY
                and cover.shape[1] == d and cover.shape[2] == d and grams.shape[1] == d and grams.shape[2] == d):
            raise ValueError("scan: arrays and levels do not fit together")
        for level in range(top, bottom - 1, -1):
            s = &cover[level, 0, 0]
            gram = &grams[level - base, 0, 0]
            for i in range(d * d):
                m2[i] = gram[i] / n
            if self.with_values:
                answer = shift_value(s, m2, self.eps_r, &value, NULL, work, d)
                if answer > 0:
                    # S + eps_r I is not definite in float64: some direction of D2 is bounded by nothing.
                    value = INFINITY
                    answer = 0
                elif answer <= -100:
                    raise np.linalg.LinAlgError(f"level {level}: the eigenvalue routine failed ({answer + 100})")
                if answer == 0:
                    values.append(value)
                    answer = value >= self.ratio
            else:
                answer = decide(s, m2, self.ratio, self.eps_r, work, d)
            if answer == NOT_FINITE:
                raise ValueError(f"level {level}: a second moment is not finite, or the eigenvalue overflows")
            if answer == SHIFT:
                found = level
                break
        return found, values
