"""BLAS and LAPACK of SciPy, with scalars by value and row-major matrices.

Every matrix below is row-major with leading dimension equal to its number of columns. A symmetric or
triangular row-major matrix is the transpose of the column-major one LAPACK sees, so "lower" here is
LAPACK's "U" on the same memory.
"""

# A = L L^T in place (lower triangle of `a`; the upper one is unchanged).
# Returns 0, or k >= 1 when the leading minor of order k is not positive definite.
cdef int cholesky(double* a, Py_ssize_t d) noexcept nogil

# `cholesky` for A = U^T U on the upper triangle.
cdef int cholesky_upper(double* a, Py_ssize_t d) noexcept nogil

# b <- (L L^T)^{-1} b, with the factor `cholesky` left in the lower triangle of `l`.
cdef void cholesky_solve(const double* l, double* b, Py_ssize_t d) noexcept nogil

# x <- L^{-T} x.
cdef void solve_transposed(const double* l, double* x, Py_ssize_t d) noexcept nogil

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
