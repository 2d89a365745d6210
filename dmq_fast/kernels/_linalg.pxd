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

# |U^{-T} x|^2, the leverage of x (d,); `work` has d doubles.
cdef double leverage(const double* u, const double* x, double* work, Py_ssize_t d) noexcept nogil

# Many rows of one factor, in double or in single precision: the factor is packed, and rows are gathered in groups, that
# of a group one below the other at every entry. See dmq_score.h.

ctypedef fused real:
    double
    float

cdef enum:
    GROUP = 16
    GROUP_SINGLE = 32

# Numbers of a packed factor, and at most of a group.
cdef Py_ssize_t packed_size(Py_ssize_t d) noexcept nogil
cdef Py_ssize_t group_size(Py_ssize_t d) noexcept nogil

# packed <- the factor u (d, d).
cdef void pack(const double* u, real* packed, Py_ssize_t d) noexcept nogil

# out <- a group of at most `rows` rows, `stride` numbers from one to the next; returns how many they are, GROUP or
# GROUP_SINGLE unless there are fewer.
cdef Py_ssize_t gather(
    const real* x, Py_ssize_t stride, Py_ssize_t rows, real* out, Py_ssize_t d
) noexcept nogil

# For a group x of so many rows: a, which may be x, <- U^{-T} x; square <- a . a and, unless z (d,) is NULL, mean <-
# z . a; both have room for all rows of a group.
cdef void score(
    const real* packed, const real* z, const real* x, real* a, real* mean, real* square, Py_ssize_t rows, Py_ssize_t d
) noexcept nogil

# mean (m,) <- mean + width square^{1/2}; return whether all of mean is finite.
cdef bint raise_by(real* mean, const real* square, double width, Py_ssize_t m) noexcept nogil

# Whether none of x (n,) is NaN or infinite.
cdef bint finite_all(const real* x, Py_ssize_t n) noexcept nogil

# out (m,) <- x y for x (m, d); in double precision with the bits of `dot`. Returns whether all are finite.
cdef bint products(const real* x, const real* y, real* out, Py_ssize_t m, Py_ssize_t d) noexcept nogil

# out (m, t) <- x weights + base for x (m, d), weights (d, t) and base (m,); `work` has d t + 16 doubles.
cdef void target_products(
    const double* x, const double* weights, const double* base, double* out, double* work, Py_ssize_t m, Py_ssize_t t,
    Py_ssize_t d
) noexcept nogil

# x_i <- mean + width U^{-1} x_i for the rows of x (m, d); `work` has packed_size(d) + group_size(d) doubles.
cdef void displace(
    const double* u, const double* mean, double width, double* x, double* work, Py_ssize_t m, Py_ssize_t d
) noexcept nogil

# |U^{-1}|^2 in the Frobenius norm, or infinity if it exceeds `most`; `work` has d doubles.
cdef double inverse_squares(const double* u, double* work, Py_ssize_t d, double most) noexcept nogil

# x . y, summed as in dmq_reduce.h.
cdef double dot(const double* x, const double* y, Py_ssize_t n) noexcept nogil
