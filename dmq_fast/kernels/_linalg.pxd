"""Dense linear algebra: BLAS and LAPACK of SciPy, and a Cholesky factor that follows its matrix.

Scalars are passed by value. Every matrix below is row-major with leading dimension equal to its number of columns. A
symmetric or triangular row-major matrix is the transpose of the column-major one LAPACK sees, so "lower" here is
LAPACK's "U" on the same memory.

A factor is row-major (d, d) and upper: V = U^T U with U in the upper triangle, positive on the diagonal. What is below
the diagonal is neither read nor written.
"""

# A = L L^T in place (lower triangle of `a`; the upper one is unchanged).
# Returns 0, or k >= 1 when the leading minor of order k is not positive definite.
cdef int cholesky(double* a, Py_ssize_t d) noexcept nogil

# `cholesky` for A = U^T U on the upper triangle.
cdef int cholesky_upper(double* a, Py_ssize_t d) noexcept nogil

# b <- (L L^T)^{-1} b, with the factor `cholesky` left in the lower triangle of `l`.
cdef void cholesky_solve(const double* l, double* b, Py_ssize_t d) noexcept nogil

# Lower triangle of c (d, d) <- c + x^T x, x of shape (n, d).
cdef void add_gram(double* c, const double* x, Py_ssize_t n, Py_ssize_t d) noexcept nogil

# Upper triangle of a <- that of (U^T U)^{-1}, for the factor that `cholesky_upper` left there. Returns LAPACK's info.
cdef int invert_upper(double* a, Py_ssize_t d) noexcept nogil

# c (d, d) <- a b for symmetric a and b.
cdef void multiply(const double* a, const double* b, double* c, Py_ssize_t d) noexcept nogil

# x <- U^{-1} x and x <- U^{-T} x, with the factor that `cholesky_upper` left in the upper triangle of `u`.
cdef void solve_upper(const double* u, double* x, Py_ssize_t d) noexcept nogil
cdef void solve_upper_transposed(const double* u, double* x, Py_ssize_t d) noexcept nogil

# Doubles of LAPACK's workspace for `top_eigenpair`.
cdef Py_ssize_t eigen_work_size(Py_ssize_t d) noexcept nogil

# Largest eigenvalue of the pencil (a, u^T u): the symmetric a (d, d), of which the upper triangle is read, is
# destroyed, `u` holds a factor from `cholesky_upper`. With `vector` not NULL it receives x (d,), scaled to
# x^T u^T u x = 1. `work` has eigen_work_size(d) doubles. Returns LAPACK's info (0: fine); OVERFLOW when
# u^{-T} a u^{-1} is not finite; or, unless `thorough`, NOT_FOUND: a subset driver may find nothing in a cluster of
# eigenvalues, then `thorough` on a fresh copy of a always answers.
cdef enum:
    OVERFLOW = -1000
    NOT_FOUND = -1001

cdef int top_eigenpair(
    double* a, const double* u, Py_ssize_t d, double* value, double* vector, bint thorough, double* work
) noexcept nogil

# A factor that follows its matrix: rank-one changes, solves, leverages.

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
