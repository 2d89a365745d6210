"""The top eigenvalue of a symmetric positive definite pencil by the Lanczos iteration (see the .pxd)."""

from libc.math cimport fabs, isfinite, sqrt
from libc.stdint cimport uint64_t

from dmq_fast.kernels._blas cimport (
    add_rows, multiply_rows, multiply_symmetric, solve_upper, solve_upper_transposed, top_of_tridiagonal,
    tridiagonal_work_size,
)
from dmq_fast.kernels._factor cimport dot

# Steps between two looks at the Ritz values.
cdef enum:
    EVERY = 6

# How far below t the number s is that separates the two top Ritz values, in units of their distance: the nearer, the
# fewer corrections follow, and the less it matters that the second Ritz value still grows.
cdef double NEAR = 0.05

# What is left of a product, relative to it, where the basis spans an invariant subspace within rounding.
cdef double SPANNED = 2.0 ** -44


cdef Py_ssize_t lanczos_work_size(Py_ssize_t d) noexcept nogil:
    # Diagonal and off-diagonal of T, two vectors of T, coefficients, a product; and LAPACK.
    return 6 * d + tridiagonal_work_size(d)


cdef void apply(const double* a, const double* u, const double* z, double* x, double* out, Py_ssize_t d) noexcept nogil:
    # out <- U^{-T} A U^{-1} z, by way of x.
    cdef Py_ssize_t i
    for i in range(d):
        x[i] = z[i]
    solve_upper(u, x, d)
    multiply_symmetric(a, x, out, d)
    solve_upper_transposed(u, out, d)


cdef inline double length(const double* x, Py_ssize_t d) noexcept nogil:
    return sqrt(dot(x, x, d))


cdef inline void subtract(double* w, double factor, const double* q, Py_ssize_t d) noexcept nogil:
    cdef Py_ssize_t i
    for i in range(d):
        w[i] -= factor * q[i]


cdef void begin(double* q, Py_ssize_t d) noexcept nogil:
    # A unit vector without a pattern (the finaliser of SplitMix64 on 1, 2, ...), so that no structure of a problem is
    # orthogonal to it.
    cdef uint64_t word
    cdef Py_ssize_t i
    cdef double size
    for i in range(d):
        word = <uint64_t> (i + 1) * <uint64_t> 0x9E3779B97F4A7C15
        word = (word ^ (word >> 30)) * <uint64_t> 0xBF58476D1CE4E5B9
        word = (word ^ (word >> 27)) * <uint64_t> 0x94D049BB133111EB
        q[i] = <double> (word >> 11) * 2.0 ** -52 - 1.0
    size = length(q, d)
    for i in range(d):
        q[i] /= size


cdef Py_ssize_t lanczos(
    const double* a, const double* u, double* basis, Py_ssize_t most, double* z, Ritz* found, double* work,
    Py_ssize_t d
) noexcept nogil:
    cdef double* diagonal = work
    cdef double* beside = work + d
    cdef double* vectors = work + 2 * d
    cdef double* coefficients = work + 4 * d
    cdef double* x = work + 5 * d
    cdef double* scratch = work + 6 * d
    cdef double* q
    cdef double* w
    cdef double values[2]
    cdef double size, rest
    cdef Py_ssize_t i, k
    cdef bint spanned
    begin(basis, d)
    for k in range(1, most):
        # w = C q_k without its components in the basis; row k of the basis becomes q_{k+1}.
        q, w = basis + (k - 1) * d, basis + k * d
        apply(a, u, q, x, w, d)
        size = length(w, d)
        diagonal[k - 1] = dot(q, w, d)
        subtract(w, diagonal[k - 1], q, d)
        if k >= 2:
            subtract(w, beside[k - 2], q - d, d)
        # In exact arithmetic these two were all. Rounding brings the others back, unless it is removed at every step.
        multiply_rows(basis, w, coefficients, k, d)
        add_rows(basis, coefficients, -1.0, w, k, d)
        rest = length(w, d)
        beside[k - 1] = rest
        if not (isfinite(size) and isfinite(rest) and rest < size * 2.0):
            return 0
        spanned = rest <= SPANNED * size
        if k >= 2 and (spanned or k % EVERY == 0 or k == most - 1):
            if top_of_tridiagonal(diagonal, beside, k, values, vectors, scratch) != 0:
                return 0
            found.value, found.apart = values[1], values[1] - NEAR * (values[1] - values[0])
            found.residual = rest * fabs(vectors[2 * k - 1])
            if found.value > 0.0 and found.residual <= 0.5 * (found.value - found.apart):
                for i in range(d):
                    z[i] = 0.0
                add_rows(basis, vectors + k, 1.0, z, k, d)
                return k
        if spanned:
            return 0
        for i in range(d):
            w[i] /= rest
    return 0
