"""A Cholesky factor that follows its matrix: rank-one changes, solves, leverages.

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

# The same for the m columns of x (d, m).
cdef void solve_block_transposed(const double* u, double* x, Py_ssize_t m, Py_ssize_t d) noexcept nogil
cdef void solve_block(const double* u, double* x, Py_ssize_t m, Py_ssize_t d) noexcept nogil

# `downdate_factor` with a threshold of the caller's: NOT_DEFINITE unless det(V - w w^T) / det(V) > least.
cdef int downdate_factor_above(double* u, double* w, double* work, Py_ssize_t d, double least) noexcept nogil

# out (m,) <- |U^{-T} x_i|^2, the leverages of the rows x (m, d). `work` has leverage_work_size(d) doubles; for one row
# d are enough.
cdef Py_ssize_t leverage_work_size(Py_ssize_t d) noexcept nogil
cdef void leverages(
    const double* u, const double* x, double* out, double* work, Py_ssize_t m, Py_ssize_t d
) noexcept nogil

# |U^{-1}|^2 in the Frobenius norm, or infinity if it exceeds `most`; `work` has d doubles.
cdef double inverse_squares(const double* u, double* work, Py_ssize_t d, double most) noexcept nogil

# x . y, summed as in dmq_reduce.h.
cdef double dot(const double* x, const double* y, Py_ssize_t n) noexcept nogil
