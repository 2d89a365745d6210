"""A Cholesky factor that follows its matrix: rank-one changes, solves, leverages; see the .pxd.

Rows are rotated in and out by Givens rotations of [U; w^T] (Golub and Van Loan, Matrix Computations, section 6.5).
"""

from libc.float cimport DBL_EPSILON
from libc.math cimport sqrt

cdef extern from "dmq_factor.h":
    void dmq_update(double* u, double* w, Py_ssize_t d) noexcept nogil
    void dmq_downdate(double* u, double* x, const double* c, const double* s, Py_ssize_t d) noexcept nogil
    void dmq_solve_transposed(const double* u, double* x, Py_ssize_t d) noexcept nogil
    void dmq_solve(const double* u, double* x, Py_ssize_t d) noexcept nogil
    void dmq_solve_block_transposed(const double* u, double* x, Py_ssize_t m, Py_ssize_t d) noexcept nogil
    void dmq_solve_block(const double* u, double* x, Py_ssize_t m, Py_ssize_t d) noexcept nogil
    double dmq_wide_dot(const double* x, const double* y, Py_ssize_t n) noexcept nogil
    double dmq_inverse_squares(const double* u, double* x, Py_ssize_t d, double most) noexcept nogil
    void dmq_leverage(
        const double* u, const double* x, double* out, double* work, Py_ssize_t m, Py_ssize_t d
    ) noexcept nogil
    enum:
        DMQ_LANES


cdef double dot(const double* x, const double* y, Py_ssize_t n) noexcept nogil:
    return dmq_wide_dot(x, y, n)


cdef void update_factor(double* u, double* w, Py_ssize_t d) noexcept nogil:
    dmq_update(u, w, d)


cdef int downdate_factor(double* u, double* w, double* work, Py_ssize_t d) noexcept nogil:
    return downdate_factor_above(u, w, work, d, d * DBL_EPSILON)


cdef int downdate_factor_above(double* u, double* w, double* work, Py_ssize_t d, double least) noexcept nogil:
    # LINPACK's way (Users' Guide, chapter 10). a = U^{-T} w; 1 - |a|^2 = det(V - w w^T) / det(V) must exceed `least`.
    cdef double* c = work
    cdef double norm, radius, longer
    cdef Py_ssize_t i
    solve_factor_transposed(u, w, d)
    norm = sqrt(dmq_wide_dot(w, w, d))
    radius = (1.0 - norm) * (1.0 + norm)
    if not radius > least:
        return NOT_DEFINITE
    # Rotations that take [a; sqrt(1 - |a|^2)] to [0; 1], its last entry first.
    radius = sqrt(radius)
    for i in range(d - 1, -1, -1):
        longer = sqrt(radius * radius + w[i] * w[i])
        c[i] = radius / longer
        w[i] = w[i] / longer
        radius = longer
    dmq_downdate(u, work + d, c, w, d)
    return 0


cdef void solve_factor_transposed(const double* u, double* x, Py_ssize_t d) noexcept nogil:
    dmq_solve_transposed(u, x, d)


cdef void solve_factor(const double* u, double* x, Py_ssize_t d) noexcept nogil:
    dmq_solve(u, x, d)


cdef void solve_block_transposed(const double* u, double* x, Py_ssize_t m, Py_ssize_t d) noexcept nogil:
    dmq_solve_block_transposed(u, x, m, d)


cdef void solve_block(const double* u, double* x, Py_ssize_t m, Py_ssize_t d) noexcept nogil:
    dmq_solve_block(u, x, m, d)


cdef Py_ssize_t leverage_work_size(Py_ssize_t d) noexcept nogil:
    return DMQ_LANES * d


cdef void leverages(
    const double* u, const double* x, double* out, double* work, Py_ssize_t m, Py_ssize_t d
) noexcept nogil:
    dmq_leverage(u, x, out, work, m, d)


cdef double inverse_squares(const double* u, double* work, Py_ssize_t d, double most) noexcept nogil:
    return dmq_inverse_squares(u, work, d, most)
