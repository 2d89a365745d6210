"""BLAS and LAPACK of SciPy (see the .pxd for the conventions).

The routines are those of ``scipy.linalg.cython_blas`` and ``cython_lapack``, taken from the capsules these
modules export instead of by ``cimport``: SciPy 1.18 renamed the integer type in their signatures, so a
``cimport`` compiled against one side of that release refuses to load on the other. Integers travel in eight
bytes, zeroed first; a little-endian LP64 routine reads and writes the lower half, an ILP64 one all of it, so
one binary serves both.
"""

from cpython.pycapsule cimport PyCapsule_GetName, PyCapsule_GetPointer
from libc.math cimport sqrt
from libc.stdint cimport int32_t, int64_t

import sys

from scipy.linalg import cython_blas, cython_lapack

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
cdef sygst_t dsygst = <sygst_t> routine(cython_lapack, "dsygst")
cdef syev_t dsyev = <syev_t> routine(cython_lapack, "dsyev")
cdef syevx_t dsyevx = <syevx_t> routine(cython_lapack, "dsyevx")
cdef trsv_t dtrsv = <trsv_t> routine(cython_blas, "dtrsv")
cdef syrk_t dsyrk = <syrk_t> routine(cython_blas, "dsyrk")
cdef gemm_t dgemm = <gemm_t> routine(cython_blas, "dgemm")

# Below this dimension the plain loops of `cholesky` beat a call into LAPACK (measured by bench/).
cdef enum:
    SMALL = 16

# dsytrd blocks by at most this many columns; the best workspace of dsyevx is (BLOCK + 3) d, and at least 8 d.
cdef enum:
    BLOCK = 64


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
    cdef int64_t n = d, one = 1
    cdef char uplo = b"U", trans = b"T", diag = b"N"
    cdef Py_ssize_t i, k
    cdef double total
    if d > SMALL:
        # b <- L^{-1} b
        dtrsv(&uplo, &trans, &diag, &n, <double*> l, &n, b, &one)
    else:
        for i in range(d):
            total = b[i]
            for k in range(i):
                total -= l[i * d + k] * b[k]
            b[i] = total / l[i * d + i]
    solve_transposed(l, b, d)


cdef void solve_transposed(const double* l, double* x, Py_ssize_t d) noexcept nogil:
    cdef int64_t n = d, one = 1
    cdef char uplo = b"U", trans = b"N", diag = b"N"
    cdef Py_ssize_t i, k
    if d > SMALL:
        dtrsv(&uplo, &trans, &diag, &n, <double*> l, &n, x, &one)
        return
    for i in range(d - 1, -1, -1):
        x[i] /= l[i * d + i]
        for k in range(i):
            x[k] -= l[i * d + k] * x[i]


cdef void add_gram(double* c, const double* x, Py_ssize_t n, Py_ssize_t d) noexcept nogil:
    cdef int64_t size = d, rows = n
    cdef char uplo = b"U", trans = b"N"
    cdef double one = 1.0
    if n == 0 or d == 0:
        return
    # C += X^T X: column-major, X is the (d, n) matrix A of C := A A^T + C.
    dsyrk(&uplo, &trans, &size, &rows, &one, <double*> x, &size, &one, c, &size)


cdef void multiply_transposed(
    double* out, const double* x, const double* y, Py_ssize_t n, Py_ssize_t k, Py_ssize_t d
) noexcept nogil:
    cdef int64_t rows = n, columns = k, inner = d
    cdef char transposed = b"T", plain = b"N"
    cdef double one = 1.0, zero = 0.0
    if n == 0 or k == 0:
        return
    # out = X Y^T: column-major, out^T = Y X^T with Y stored as its transpose.
    dgemm(
        &transposed, &plain, &columns, &rows, &inner, &one, <double*> y, &inner, <double*> x, &inner,
        &zero, out, &columns,
    )


cdef Py_ssize_t eigen_work_size(Py_ssize_t d) noexcept nogil:
    # eigenvalues d, eigenvector d, saved matrix d^2, LAPACK (BLOCK + 8) d, integers 6 d (eight bytes each)
    return d * d + (BLOCK + 16) * d


cdef int top_eigenpair(
    double* a, const double* l, Py_ssize_t d, double* value, double* vector, double* work
) noexcept nogil:
    cdef int64_t n = d, itype = 1, info = 0, found = 0, lwork = (BLOCK + 8) * d
    cdef char uplo = b"U", all_vectors = b"V", by_index = b"I", job = b"N" if vector == NULL else b"V"
    cdef double unused = 0.0, tolerance = 0.0, poison = 0.0
    cdef double* eigenvalues = work
    cdef double* eigenvector = work + d
    cdef double* saved = work + 2 * d
    cdef double* scratch = saved + d * d
    cdef int64_t* integers = <int64_t*> (scratch + lwork)
    cdef Py_ssize_t i, j
    # C = L^{-1} A L^{-T}
    dsygst(&itype, &uplo, &n, a, &n, <double*> l, &n, &info)
    if <int32_t> info != 0:
        return <int> <int32_t> info
    # LAPACK may hang on infinities and answer zeros on NaN.
    for i in range(d):
        for j in range(i + 1):
            poison += a[i * d + j] * 0.0
            saved[i * d + j] = a[i * d + j]
    if poison != 0.0:
        return OVERFLOW
    dsyevx(
        &job, &by_index, &uplo, &n, a, &n, &unused, &unused, &n, &n, &tolerance, &found, eigenvalues, eigenvector, &n,
        scratch, &lwork, integers, integers + 5 * d, &info,
    )
    value[0] = eigenvalues[0]
    if <int32_t> info != 0 or <int32_t> found != 1:
        # A subset driver may find nothing in a cluster; the full one always answers.
        info = 0
        dsyev(&all_vectors, &uplo, &n, saved, &n, eigenvalues, scratch, &lwork, &info)
        value[0] = eigenvalues[d - 1]
        eigenvector = saved + d * (d - 1)
    if vector != NULL:
        for i in range(d):
            vector[i] = eigenvector[i]
        # x = L^{-T} z
        solve_transposed(l, vector, d)
    return <int> <int32_t> info
