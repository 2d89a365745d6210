"""Ridge regression: the rank-one changes of a Cholesky factor.

A factor is row-major (d, d) and upper: V = U^T U with U in the upper triangle, positive on the diagonal. What is below
the diagonal is neither read nor written.
"""

cdef enum:
    NOT_DEFINITE = -2

# U <- the factor of U^T U + w w^T, by Givens rotations: 3 d^2 operations, no allocation. `w` (d,) is destroyed.
cdef void update_factor(double* u, double* w, Py_ssize_t d) noexcept nogil

# U <- the factor of U^T U - w w^T, by the rotations that would have brought w in. `w` (d,) is destroyed, `work` has
# 2 d doubles. Returns 0, or NOT_DEFINITE when the result would not be definite in float64; U is unchanged then.
cdef int downdate_factor(double* u, double* w, double* work, Py_ssize_t d) noexcept nogil

# x (d,) <- U^{-T} x and x <- U^{-1} x; the first and then the second solve V x = b, and |U^{-T} phi|^2 is the leverage
# phi^T V^{-1} phi.
cdef void solve_factor_transposed(const double* u, double* x, Py_ssize_t d) noexcept nogil
cdef void solve_factor(const double* u, double* x, Py_ssize_t d) noexcept nogil
