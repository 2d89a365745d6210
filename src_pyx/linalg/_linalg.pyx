"""Dense linear algebra: BLAS and LAPACK of SciPy, and a Cholesky factor that follows its matrix; see the .pxd.

The routines of SciPy are those of ``scipy.linalg.cython_blas`` and ``cython_lapack``, taken from the capsules these
modules export instead of by ``cimport``: SciPy 1.18 renamed the integer type in their signatures, so a
``cimport`` compiled against one side of that release refuses to load on the other. Integers travel in eight
bytes, zeroed first; a little-endian LP64 routine reads and writes the lower half, an ILP64 one all of it, so
one binary serves both.

Rows are rotated in and out by Givens rotations of [U; w^T] (Golub and Van Loan, Matrix Computations, section 6.5).
"""

from cpython.pycapsule cimport PyCapsule_GetName, PyCapsule_GetPointer
from libc.float cimport DBL_EPSILON
from libc.math cimport sqrt
from libc.stdint cimport int32_t, int64_t
from libc.string cimport memcpy, memset

from dmq_fast.kernels._validate cimport all_finite

import sys

from scipy.linalg import cython_blas, cython_lapack

cdef extern from "dmq_factor.h":
    void dmq_update(double* u, double* w, Py_ssize_t d) noexcept nogil
    void dmq_downdate(double* u, double* x, const double* c, const double* s, Py_ssize_t d) noexcept nogil
    void dmq_solve_transposed(const double* u, double* x, Py_ssize_t d) noexcept nogil
    void dmq_solve(const double* u, double* x, Py_ssize_t d) noexcept nogil
    void dmq_solve_block_transposed(const double* u, double* x, Py_ssize_t m, Py_ssize_t d) noexcept nogil
    void dmq_solve_block(const double* u, double* x, Py_ssize_t m, Py_ssize_t d) noexcept nogil
    double dmq_wide_dot(const double* x, const double* y, Py_ssize_t n) noexcept nogil
    double dmq_inverse_squares(const double* u, double* x, Py_ssize_t d, double most) noexcept nogil
    double dmq_leverage(const double* u, const double* x, double* work, Py_ssize_t d) noexcept nogil

cdef extern from "dmq_score.h":
    ctypedef void (*Scorer "dmq_scorer")(
        const double* packed, const double* z, const double* x, double* a, double* mean, double* square,
        Py_ssize_t rows, Py_ssize_t d
    ) noexcept nogil
    ctypedef void (*SingleScorer "dmq_scorer_single")(
        const float* packed, const float* z, const float* x, float* a, float* mean, float* square,
        Py_ssize_t rows, Py_ssize_t d
    ) noexcept nogil

    Scorer dmq_best_scorer()
    SingleScorer dmq_best_scorer_single()
    void dmq_pack(const double* u, double* packed, int reversed, Py_ssize_t d) noexcept nogil
    void dmq_pack_single(const double* u, float* packed, int reversed, Py_ssize_t d) noexcept nogil
    void dmq_gather(
        const double* x, Py_ssize_t stride, Py_ssize_t rows, double* out, int reversed, Py_ssize_t d
    ) noexcept nogil
    void dmq_gather_single(
        const float* x, Py_ssize_t stride, Py_ssize_t rows, float* out, int reversed, Py_ssize_t d
    ) noexcept nogil
    void dmq_displace(
        const double* a, const double* mean, double width, Py_ssize_t rows, double* x, Py_ssize_t d
    ) noexcept nogil
    bint dmq_products(const double* x, const double* y, double* out, Py_ssize_t m, Py_ssize_t d) noexcept nogil
    bint dmq_products_single(const float* x, const float* y, float* out, Py_ssize_t m, Py_ssize_t d) noexcept nogil
    void dmq_targets(
        const double* x, const double* w, const double* base, double* out, Py_ssize_t m, Py_ssize_t t, Py_ssize_t d
    ) noexcept nogil
    bint dmq_raise(double* mean, const double* square, double width, Py_ssize_t m) noexcept nogil
    bint dmq_raise_single(float* mean, const float* square, float width, Py_ssize_t m) noexcept nogil
    bint dmq_finite_single(const float* x, Py_ssize_t n) noexcept nogil
    Py_ssize_t dmq_packed_size(Py_ssize_t d) noexcept nogil
    Py_ssize_t dmq_padded(Py_ssize_t d) noexcept nogil
    enum:
        DMQ_GROUP
        DMQ_GROUP_SINGLE
        DMQ_TARGETS

# As the declarations for other projects have them, which need no header.
assert GROUP == DMQ_GROUP and GROUP_SINGLE == DMQ_GROUP_SINGLE

# Chosen for the processor this runs on.
cdef Scorer scorer = dmq_best_scorer()
cdef SingleScorer single_scorer = dmq_best_scorer_single()

ctypedef void (*potrf_t)(char* uplo, int64_t* n, double* a, int64_t* lda, int64_t* info) noexcept nogil
ctypedef void (*trsv_t)(
    char* uplo, char* trans, char* diag, int64_t* n, double* a, int64_t* lda, double* x, int64_t* incx
) noexcept nogil
ctypedef void (*syrk_t)(
    char* uplo, char* trans, int64_t* n, int64_t* k, double* alpha, double* a, int64_t* lda,
    double* beta, double* c, int64_t* ldc,
) noexcept nogil
ctypedef void (*gemm_t)(
    char* transa, char* transb, int64_t* m, int64_t* n, int64_t* k, double* alpha, double* a, int64_t* lda,
    double* b, int64_t* ldb, double* beta, double* c, int64_t* ldc,
) noexcept nogil
ctypedef void (*trsm_t)(
    char* side, char* uplo, char* trans, char* diag, int64_t* m, int64_t* n, double* alpha, double* a, int64_t* lda,
    double* b, int64_t* ldb,
) noexcept nogil
ctypedef void (*sygst_t)(
    int64_t* itype, char* uplo, int64_t* n, double* a, int64_t* lda, double* b, int64_t* ldb, int64_t* info
) noexcept nogil
ctypedef void (*syev_t)(
    char* jobz, char* uplo, int64_t* n, double* a, int64_t* lda, double* w, double* work, int64_t* lwork,
    int64_t* info,
) noexcept nogil
ctypedef void (*syevx_t)(
    char* jobz, char* range, char* uplo, int64_t* n, double* a, int64_t* lda, double* vl, double* vu,
    int64_t* il, int64_t* iu, double* abstol, int64_t* m, double* w, double* z, int64_t* ldz,
    double* work, int64_t* lwork, int64_t* iwork, int64_t* ifail, int64_t* info,
) noexcept nogil


cdef void* routine(object module, str name) except NULL:
    capsule = module.__pyx_capi__[name]
    return PyCapsule_GetPointer(capsule, PyCapsule_GetName(capsule))


if sys.byteorder != "little":
    raise ImportError("dmq_fast hands integers to LAPACK in eight bytes, which needs a little-endian machine")

cdef potrf_t dpotrf = <potrf_t> routine(cython_lapack, "dpotrf")
cdef potrf_t dpotri = <potrf_t> routine(cython_lapack, "dpotri")
cdef sygst_t dsygst = <sygst_t> routine(cython_lapack, "dsygst")
cdef syev_t dsyev = <syev_t> routine(cython_lapack, "dsyev")
cdef syevx_t dsyevx = <syevx_t> routine(cython_lapack, "dsyevx")
cdef trsv_t dtrsv = <trsv_t> routine(cython_blas, "dtrsv")
cdef trsm_t dtrsm = <trsm_t> routine(cython_blas, "dtrsm")
cdef syrk_t dsyrk = <syrk_t> routine(cython_blas, "dsyrk")
cdef gemm_t dgemm = <gemm_t> routine(cython_blas, "dgemm")

# Below this dimension the plain loops of `cholesky` beat a call into LAPACK (measured by bench/).
cdef enum:
    SMALL = 16

# Up to this dimension triangular solves beat dsygst, which does less work but in smaller pieces (measured by bench/).
cdef enum:
    WIDE = 96

# dsyevx takes (BLOCK + 3) d doubles, and its dsytrd blocks by BLOCK columns then: at these sizes a narrow block, which
# the L1 cache holds, beats the 32 of LAPACK's own choice by a tenth.
cdef enum:
    BLOCK = 8


cdef int cholesky(double* a, Py_ssize_t d) noexcept nogil:
    if d > SMALL:
        return factorise(a, d, b"U")
    # L_jj = sqrt(A_jj - sum_k L_jk^2),  L_ij = (A_ij - sum_k L_ik L_jk) / L_jj  for i > j, row by row.
    cdef Py_ssize_t i, j, k
    cdef double total
    cdef double* row
    cdef double* other
    for i in range(d):
        row = a + i * d
        for j in range(i):
            other = a + j * d
            total = row[j]
            for k in range(j):
                total -= row[k] * other[k]
            row[j] = total / other[j]
        total = row[i]
        for k in range(i):
            total -= row[k] * row[k]
        if not total > 0.0:
            return <int> (i + 1)
        row[i] = sqrt(total)
    return 0


cdef int cholesky_upper(double* a, Py_ssize_t d) noexcept nogil:
    return factorise(a, d, b"L")


cdef int factorise(double* a, Py_ssize_t d, char uplo) noexcept nogil:
    cdef int64_t n = d, info = 0
    dpotrf(&uplo, &n, a, &n, &info)
    return <int> <int32_t> info


cdef void cholesky_solve(const double* l, double* b, Py_ssize_t d) noexcept nogil:
    # b <- L^{-1} b, then L^{-T} b.
    cdef int64_t n = d, one = 1
    cdef char uplo = b"U", trans = b"T", plain = b"N"
    cdef Py_ssize_t i, k
    cdef double total
    if d > SMALL:
        dtrsv(&uplo, &trans, &plain, &n, <double*> l, &n, b, &one)
        dtrsv(&uplo, &plain, &plain, &n, <double*> l, &n, b, &one)
        return
    for i in range(d):
        total = b[i]
        for k in range(i):
            total -= l[i * d + k] * b[k]
        b[i] = total / l[i * d + i]
    for i in range(d - 1, -1, -1):
        b[i] /= l[i * d + i]
        for k in range(i):
            b[k] -= l[i * d + k] * b[i]


cdef void add_gram(double* c, const double* x, Py_ssize_t n, Py_ssize_t d) noexcept nogil:
    cdef int64_t size = d, rows = n
    cdef char uplo = b"U", trans = b"N"
    cdef double one = 1.0
    if n == 0 or d == 0:
        return
    # C += X^T X: column-major, X is the (d, n) matrix A of C := A A^T + C.
    dsyrk(&uplo, &trans, &size, &rows, &one, <double*> x, &size, &one, c, &size)


cdef int invert_upper(double* a, Py_ssize_t d) noexcept nogil:
    cdef int64_t n = d, info = 0
    cdef char uplo = b"L"
    dpotri(&uplo, &n, a, &n, &info)
    return <int> <int32_t> info


cdef void multiply(const double* a, const double* b, double* c, Py_ssize_t d) noexcept nogil:
    # Column-major, the same memory holds b a, with the factors exchanged: c^T = b^T a^T.
    cdef int64_t n = d
    cdef char plain = b"N"
    cdef double one = 1.0, zero = 0.0
    dgemm(&plain, &plain, &n, &n, &n, &one, <double*> b, &n, <double*> a, &n, &zero, c, &n)


cdef void solve_upper(const double* u, double* x, Py_ssize_t d) noexcept nogil:
    cdef int64_t n = d, one = 1
    cdef char uplo = b"L", trans = b"T", diag = b"N"
    dtrsv(&uplo, &trans, &diag, &n, <double*> u, &n, x, &one)


cdef void solve_upper_transposed(const double* u, double* x, Py_ssize_t d) noexcept nogil:
    cdef int64_t n = d, one = 1
    cdef char uplo = b"L", trans = b"N", diag = b"N"
    dtrsv(&uplo, &trans, &diag, &n, <double*> u, &n, x, &one)


cdef Py_ssize_t eigen_work_size(Py_ssize_t d) noexcept nogil:
    # eigenvalues d, eigenvector d, LAPACK (BLOCK + 3) d, integers 6 d (eight bytes each)
    return (BLOCK + 11) * d


cdef int top_eigenpair(
    double* a, const double* u, Py_ssize_t d, double* value, double* vector, bint thorough, double* work
) noexcept nogil:
    cdef int64_t n = d, info = 0, found = 0, lwork = (BLOCK + 3) * d
    cdef char uplo = b"L", by_index = b"I", job = b"N" if vector == NULL else b"V"
    cdef double unused = 0.0, tolerance = 0.0
    cdef double* eigenvalues = work
    cdef double* eigenvector = work + d
    cdef double* scratch = work + 2 * d
    cdef int64_t* integers = <int64_t*> (scratch + lwork)
    cdef Py_ssize_t i
    info = whiten(a, u, d)
    if <int32_t> info != 0:
        return <int> <int32_t> info
    # LAPACK may not return on infinities, and may return zeros on NaN.
    for i in range(d):
        if not all_finite(a + i * d + i, d - i):
            return OVERFLOW
    if thorough:
        dsyev(&job, &uplo, &n, a, &n, eigenvalues, scratch, &lwork, &info)
        value[0] = eigenvalues[d - 1]
        eigenvector = a + d * (d - 1)
    else:
        dsyevx(
            &job, &by_index, &uplo, &n, a, &n, &unused, &unused, &n, &n, &tolerance, &found, eigenvalues, eigenvector,
            &n, scratch, &lwork, integers, integers + 5 * d, &info,
        )
        value[0] = eigenvalues[0]
        if <int32_t> info != 0 or <int32_t> found != 1:
            return NOT_FOUND
    if vector != NULL and <int32_t> info == 0:
        for i in range(d):
            vector[i] = eigenvector[i]
        solve_upper(u, vector, d)
    return <int> <int32_t> info


cdef int whiten(double* a, const double* u, Py_ssize_t d) noexcept nogil:
    # Upper triangle of a <- that of C = U^{-T} A U^{-1}; column-major, with L = U^T, L^{-1} A L^{-T}.
    cdef int64_t n = d, half = d // 2, rest = d - d // 2, itype = 1, info = 0
    cdef char uplo = b"L", left = b"L", right = b"R", plain = b"N", trans = b"T", diag = b"N"
    cdef double one = 1.0, minus_one = -1.0
    cdef double* corner = a + (d // 2) * (d + 1)
    cdef double* factor = <double*> u
    cdef Py_ssize_t i, j
    if d > WIDE:
        dsygst(&itype, &uplo, &n, a, &n, <double*> u, &n, &info)
        return <int> <int32_t> info
    for i in range(d):
        for j in range(i + 1, d):
            a[j * d + i] = a[i * d + j]
    # B = L^{-1} A, then [X1 X2] L^T = [B1 B2]: X1 = B1 L11^{-T}, X2 = (B2 - X1 L21^T) L22^{-T}; the upper half of X2 is
    # not needed.
    dtrsm(&left, &uplo, &plain, &diag, &n, &n, &one, factor, &n, a, &n)
    dtrsm(&right, &uplo, &trans, &diag, &n, &half, &one, factor, &n, a, &n)
    dgemm(&plain, &trans, &rest, &rest, &half, &minus_one, a + half, &n, factor + half, &n, &one, corner, &n)
    dtrsm(&right, &uplo, &trans, &diag, &rest, &rest, &one, factor + half * (d + 1), &n, corner, &n)
    return 0


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


cdef double leverage(const double* u, const double* x, double* work, Py_ssize_t d) noexcept nogil:
    return dmq_leverage(u, x, work, d)


cdef Py_ssize_t packed_size(Py_ssize_t d) noexcept nogil:
    return dmq_packed_size(d)


cdef Py_ssize_t group_size(Py_ssize_t d) noexcept nogil:
    return dmq_padded(d) * GROUP_SINGLE


cdef void pack(const double* u, real* packed, Py_ssize_t d) noexcept nogil:
    if real is double:
        dmq_pack(u, packed, False, d)
    else:
        dmq_pack_single(u, packed, False, d)


cdef Py_ssize_t gather(
    const real* x, Py_ssize_t stride, Py_ssize_t rows, real* out, Py_ssize_t d
) noexcept nogil:
    if real is double:
        rows = min(rows, <Py_ssize_t> GROUP)
        dmq_gather(x, stride, rows, out, False, d)
    else:
        rows = min(rows, <Py_ssize_t> GROUP_SINGLE)
        dmq_gather_single(x, stride, rows, out, False, d)
    return rows


cdef void score(
    const real* packed, const real* z, const real* x, real* a, real* mean, real* square, Py_ssize_t rows, Py_ssize_t d
) noexcept nogil:
    if real is double:
        scorer(packed, z, x, a, mean, square, rows, d)
    else:
        single_scorer(packed, z, x, a, mean, square, rows, d)


cdef void target_products(
    const double* x, const double* weights, const double* base, double* out, double* work, Py_ssize_t m, Py_ssize_t t,
    Py_ssize_t d
) noexcept nogil:
    memcpy(work, weights, d * t * sizeof(double))
    memset(work + d * t, 0, DMQ_TARGETS * sizeof(double))
    dmq_targets(x, work, base, out, m, t, d)


cdef bint raise_by(real* mean, const real* square, double width, Py_ssize_t m) noexcept nogil:
    if real is double:
        return dmq_raise(mean, square, width, m)
    else:
        return dmq_raise_single(mean, square, <float> width, m)


cdef bint finite_all(const real* x, Py_ssize_t n) noexcept nogil:
    if real is double:
        return all_finite(x, n)
    else:
        return dmq_finite_single(x, n)


cdef bint products(const real* x, const real* y, real* out, Py_ssize_t m, Py_ssize_t d) noexcept nogil:
    if real is double:
        return dmq_products(x, y, out, m, d)
    else:
        return dmq_products_single(x, y, out, m, d)


cdef void displace(
    const double* u, const double* mean, double width, double* x, double* work, Py_ssize_t m, Py_ssize_t d
) noexcept nogil:
    cdef double* a = work + dmq_packed_size(d)
    cdef double[GROUP] unused, squares
    cdef Py_ssize_t first = 0, size
    dmq_pack(u, work, True, d)
    while first < m:
        size = min(<Py_ssize_t> GROUP, m - first)
        dmq_gather(x + first * d, d, size, a, True, d)
        scorer(work, NULL, a, a, unused, squares, size, d)
        dmq_displace(a, mean, width, size, x + first * d, d)
        first += size


cdef double inverse_squares(const double* u, double* work, Py_ssize_t d, double most) noexcept nogil:
    return dmq_inverse_squares(u, work, d, most)
