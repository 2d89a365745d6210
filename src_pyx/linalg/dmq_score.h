/* a = U^{-T} x for many rows x of one Cholesky factor U (d, d), row-major in the upper triangle: leverages |a|^2 and
   products z . a. DMQ_GROUP rows are solved for side by side, DMQ_PIVOTS entries of each at a time, in sums that stay in
   registers: every entry of U that is loaded serves all rows of the group, and a triangular solve costs half of a product
   with the inverse of V.

   The bits of a row do not depend on the rows beside it. Where the processor multiplies and adds with one rounding, this
   does; so bits depend on the type of processor, as those of BLAS do. */
#ifndef DMQ_SCORE_H
#define DMQ_SCORE_H

#include <stddef.h>
#include "dmq_wide.h"

/* Rows of a group, in double and in single precision: two of the widest vectors. */
#define DMQ_GROUP 16
#define DMQ_GROUP_SINGLE 32
/* Entries of a row that are solved for together. */
#define DMQ_PIVOTS 8

/* The least multiple of DMQ_PIVOTS from d on: entries of a row of a group, the last of them zeros. */
static inline ptrdiff_t dmq_padded(ptrdiff_t d)
{
    return (d + DMQ_PIVOTS - 1) / DMQ_PIVOTS * DMQ_PIVOTS;
}

/* Numbers of a packed factor. */
static inline ptrdiff_t dmq_packed_size(ptrdiff_t d)
{
    return dmq_padded(d) * (dmq_padded(d) + DMQ_PIVOTS) / 2;
}

/* packed <- U in the order in which it is read: DMQ_PIVOTS columns after the other, row by row down to the diagonal, of
   which the inverses are kept. Columns beyond d are those of the unit matrix. With `reversed` it is the transpose of U with
   rows and columns in reverse: then the reverse of U^{-T} x is U^{-1} times the reverse of x. */
#define DMQ_PACK(NAME, REAL) \
    static void NAME(const double* restrict u, REAL* restrict packed, int reversed, ptrdiff_t d) \
    { \
        ptrdiff_t down = reversed ? -1 : d, right = reversed ? -d : 1; \
        const double* corner = reversed ? u + d * d - 1 : u; \
        for (ptrdiff_t first = 0; first < d; first += DMQ_PIVOTS) { \
            ptrdiff_t columns = d - first < DMQ_PIVOTS ? d - first : DMQ_PIVOTS; \
            for (ptrdiff_t k = 0; k < first; k++, packed += DMQ_PIVOTS) \
                for (ptrdiff_t p = 0; p < DMQ_PIVOTS; p++) \
                    packed[p] = p < columns ? (REAL) corner[k * down + (first + p) * right] : 0; \
            for (ptrdiff_t k = 0; k < DMQ_PIVOTS; k++, packed += DMQ_PIVOTS) \
                for (ptrdiff_t p = 0; p < DMQ_PIVOTS; p++) { \
                    if (p < k || p >= columns) \
                        packed[p] = p == k; \
                    else if (p == k) \
                        packed[p] = (REAL) (1.0 / corner[(first + k) * (down + right)]); \
                    else \
                        packed[p] = (REAL) corner[(first + k) * down + (first + p) * right]; \
                } \
        } \
    }

DMQ_PACK(dmq_pack, double)
DMQ_PACK(dmq_pack_single, float)

#if defined(__clang__)
#define DMQ_MIX(a, b, p, q, r, s) __builtin_shufflevector(a, b, p, q, r, s)
#elif defined(DMQ_VECTORS)
#define DMQ_MIX(a, b, p, q, r, s) __builtin_shuffle(a, b, (places) {p, q, r, s})
#endif
#ifdef DMQ_VECTORS
/* Vectors of four numbers, and c0 to c3 <- the columns of the rows r0 to r3. */
#define DMQ_FOUR(REAL, INTEGER) \
    typedef REAL four __attribute__((vector_size(4 * sizeof(REAL)), aligned(sizeof(REAL)), may_alias)); \
    typedef INTEGER places __attribute__((vector_size(4 * sizeof(REAL)), unused));
#define DMQ_TRANSPOSE(r0, r1, r2, r3) \
    four even = DMQ_MIX(r0, r1, 0, 4, 2, 6), odd = DMQ_MIX(r0, r1, 1, 5, 3, 7); \
    four below = DMQ_MIX(r2, r3, 0, 4, 2, 6), last = DMQ_MIX(r2, r3, 1, 5, 3, 7); \
    four c0 = DMQ_MIX(even, below, 0, 1, 4, 5), c1 = DMQ_MIX(odd, last, 0, 1, 4, 5); \
    four c2 = DMQ_MIX(even, below, 2, 3, 6, 7), c3 = DMQ_MIX(odd, last, 2, 3, 6, 7);
#endif

/* out (dmq_padded(d), GROUP) <- the transpose of `rows` <= GROUP rows of x, `stride` numbers from one to the next; zeros
   elsewhere. Squares of four rows and columns are transposed in registers. */
#ifdef DMQ_VECTORS
#define DMQ_SQUARES(REAL, INTEGER, GROUP) \
    DMQ_FOUR(REAL, INTEGER) \
    for (; rows == GROUP && done + 4 <= d; done += 4) \
        for (ptrdiff_t l = 0; l < GROUP; l += 4) { \
            const REAL* corner = x + l * stride + done; \
            REAL* target = out + done * GROUP + l; \
            four r0 = *(const four*) corner, r1 = *(const four*) (corner + stride); \
            four r2 = *(const four*) (corner + 2 * stride), r3 = *(const four*) (corner + 3 * stride); \
            DMQ_TRANSPOSE(r0, r1, r2, r3) \
            *(four*) target = c0; \
            *(four*) (target + GROUP) = c1; \
            *(four*) (target + 2 * GROUP) = c2; \
            *(four*) (target + 3 * GROUP) = c3; \
        }
#else
#define DMQ_SQUARES(REAL, INTEGER, GROUP)
#endif
#define DMQ_GATHER(NAME, REAL, INTEGER, GROUP) \
    DMQ_WIDE static void NAME( \
        const REAL* restrict x, ptrdiff_t stride, ptrdiff_t rows, REAL* restrict out, ptrdiff_t d) \
    { \
        ptrdiff_t done = 0; \
        DMQ_SQUARES(REAL, INTEGER, GROUP) \
        for (ptrdiff_t j = done; j < dmq_padded(d); j++) \
            for (ptrdiff_t l = 0; l < GROUP; l++) \
                out[j * GROUP + l] = j < d && l < rows ? x[l * stride + j] : 0; \
    }

DMQ_GATHER(dmq_gather, double, long long, DMQ_GROUP)
DMQ_GATHER(dmq_gather_single, float, int, DMQ_GROUP_SINGLE)

/* The same for the numbers of a row in reverse; and x_l <- mean + width a_l for the solution a of a group, reversed again:
   `rows` rows of x (rows, d). */
static void dmq_gather_reversed(const double* restrict x, ptrdiff_t rows, double* restrict out, ptrdiff_t d)
{
    for (ptrdiff_t j = 0; j < dmq_padded(d); j++)
        for (ptrdiff_t l = 0; l < DMQ_GROUP; l++)
            out[j * DMQ_GROUP + l] = j < d && l < rows ? x[l * d + d - 1 - j] : 0.0;
}

static void dmq_displace(
    const double* restrict a, const double* restrict mean, double width, ptrdiff_t rows, double* restrict x, ptrdiff_t d)
{
    for (ptrdiff_t l = 0; l < rows; l++)
        for (ptrdiff_t j = 0; j < d; j++)
            x[l * d + j] = mean[j] + width * a[(d - 1 - j) * DMQ_GROUP + l];
}

/* out (m,) <- x y for x (m, d), four rows at a time, which read y once: each has the bits of `dmq_dot`, which adds up in
   SUMS = 8 partial sums. Vectors of half as many: those of 64 bytes would cross two lines of the cache. What is
   fetched ahead may lie beyond x, which is harmless. */
#ifdef DMQ_VECTORS
#define DMQ_PRODUCTS(NAME, REAL, INTEGER, SUMS) \
    DMQ_WIDE static void NAME( \
        const REAL* restrict x, const REAL* restrict y, REAL* restrict out, ptrdiff_t m, ptrdiff_t d) \
    { \
        DMQ_FOUR(REAL, INTEGER) \
        typedef REAL sums __attribute__((vector_size(SUMS / 2 * sizeof(REAL)), aligned(sizeof(REAL)), may_alias)); \
        for (ptrdiff_t first = 0; first < m; first += 4) { \
            ptrdiff_t rows = m - first < 4 ? m - first : 4, i = 0; \
            const REAL* r0 = x + first * d; \
            const REAL* r1 = rows > 1 ? r0 + d : r0; \
            const REAL* r2 = rows > 2 ? r1 + d : r0; \
            const REAL* r3 = rows > 3 ? r2 + d : r0; \
            sums s[4] = {{0}}, t[4] = {{0}}; \
            REAL rest[4] = {0}; \
            for (; i + SUMS <= d; i += SUMS) { \
                sums at = *(const sums*) (y + i), next = *(const sums*) (y + i + SUMS / 2); \
                __builtin_prefetch(r0 + 4 * d + i); \
                __builtin_prefetch(r1 + 4 * d + i); \
                __builtin_prefetch(r2 + 4 * d + i); \
                __builtin_prefetch(r3 + 4 * d + i); \
                s[0] += *(const sums*) (r0 + i) * at; \
                t[0] += *(const sums*) (r0 + i + SUMS / 2) * next; \
                s[1] += *(const sums*) (r1 + i) * at; \
                t[1] += *(const sums*) (r1 + i + SUMS / 2) * next; \
                s[2] += *(const sums*) (r2 + i) * at; \
                t[2] += *(const sums*) (r2 + i + SUMS / 2) * next; \
                s[3] += *(const sums*) (r3 + i) * at; \
                t[3] += *(const sums*) (r3 + i + SUMS / 2) * next; \
            } \
            for (; i < d; i++) { \
                rest[0] += r0[i] * y[i]; \
                rest[1] += r1[i] * y[i]; \
                rest[2] += r2[i] * y[i]; \
                rest[3] += r3[i] * y[i]; \
            } \
            REAL kept[4][SUMS / 2]; \
            four v[4]; \
            for (int r = 0; r < 4; r++) { \
                *(sums*) kept[r] = s[r] + t[r]; \
                v[r] = *(const four*) kept[r]; \
                if (SUMS == 16) \
                    v[r] += *(const four*) (kept[r] + SUMS / 2 - 4); \
            } \
            DMQ_TRANSPOSE(v[0], v[1], v[2], v[3]) \
            *(four*) rest += (c0 + c2) + (c1 + c3); \
            for (ptrdiff_t r = 0; r < rows; r++) \
                out[first + r] = rest[r]; \
        } \
    }
#else
#define DMQ_PRODUCTS(NAME, REAL, INTEGER, SUMS) \
    static void NAME(const REAL* x, const REAL* y, REAL* out, ptrdiff_t m, ptrdiff_t d) \
    { \
        for (ptrdiff_t r = 0; r < m; r++) { \
            REAL t[SUMS] = {0}, rest = 0; \
            ptrdiff_t i = 0; \
            for (; i + SUMS <= d; i += SUMS) \
                for (int l = 0; l < SUMS; l++) \
                    t[l] += x[r * d + i + l] * y[i + l]; \
            for (; i < d; i++) \
                rest += x[r * d + i] * y[i]; \
            for (int half = SUMS / 2; half > 1; half /= 2) \
                for (int l = 0; l < half; l++) \
                    t[l] += t[l + half]; \
            out[r] = (t[0] + t[1]) + rest; \
        } \
    }
#endif

DMQ_PRODUCTS(dmq_products, double, long long, 8)
DMQ_PRODUCTS(dmq_products_single, float, int, 16)

/* For a group x (dmq_padded(d), GROUP): a, which may be x, <- U^{-T} x; square (GROUP,) <- a . a, and mean (GROUP,) <-
   z . a for z (d,) unless that is NULL. */
typedef void (*dmq_scorer)(
    const double* packed, const double* z, const double* x, double* a, double* mean, double* square, ptrdiff_t d);
typedef void (*dmq_scorer_single)(
    const float* packed, const float* z, const float* x, float* a, float* mean, float* square, ptrdiff_t d);

#ifdef DMQ_VECTORS
/* VECTORS vectors of LANES rows at a time, DMQ_PIVOTS sums of each: as many as there are registers for. */
#define DMQ_SCORE(NAME, TARGET, REAL, GROUP, LANES, VECTORS) \
    TARGET static void NAME( \
        const REAL* restrict packed, const REAL* restrict z, const REAL* x, REAL* a, REAL* restrict mean, \
        REAL* restrict square, ptrdiff_t d) \
    { \
        typedef REAL lanes __attribute__((vector_size(LANES * sizeof(REAL)), aligned(sizeof(REAL)), may_alias)); \
        for (int l = 0; l < GROUP; l++) \
            mean[l] = square[l] = 0; \
        for (ptrdiff_t first = 0; first < d; packed += (first + DMQ_PIVOTS) * DMQ_PIVOTS, first += DMQ_PIVOTS) \
            for (int strip = 0; strip < GROUP; strip += VECTORS * LANES) { \
                lanes t[DMQ_PIVOTS][VECTORS], total[VECTORS], product[VECTORS]; \
                const REAL* u = packed; \
                for (int p = 0; p < DMQ_PIVOTS; p++) \
                    for (int q = 0; q < VECTORS; q++) \
                        t[p][q] = *(const lanes*) (x + (first + p) * GROUP + strip + q * LANES); \
                for (ptrdiff_t k = 0; k < first; k++, u += DMQ_PIVOTS) \
                    for (int p = 0; p < DMQ_PIVOTS; p++) \
                        for (int q = 0; q < VECTORS; q++) \
                            t[p][q] -= u[p] * *(const lanes*) (a + k * GROUP + strip + q * LANES); \
                for (int q = 0; q < VECTORS; q++) { \
                    total[q] = *(const lanes*) (square + strip + q * LANES); \
                    product[q] = *(const lanes*) (mean + strip + q * LANES); \
                } \
                for (int k = 0; k < DMQ_PIVOTS; k++, u += DMQ_PIVOTS) \
                    for (int q = 0; q < VECTORS; q++) { \
                        t[k][q] *= u[k]; \
                        *(lanes*) (a + (first + k) * GROUP + strip + q * LANES) = t[k][q]; \
                        total[q] += t[k][q] * t[k][q]; \
                        if (z != NULL && first + k < d) \
                            product[q] += z[first + k] * t[k][q]; \
                        for (int p = k + 1; p < DMQ_PIVOTS; p++) \
                            t[p][q] -= u[p] * t[k][q]; \
                    } \
                for (int q = 0; q < VECTORS; q++) { \
                    *(lanes*) (square + strip + q * LANES) = total[q]; \
                    *(lanes*) (mean + strip + q * LANES) = product[q]; \
                } \
            } \
    }

#if defined(__x86_64__) && defined(__linux__) && !defined(__SANITIZE_ADDRESS__)
#define DMQ_SCORERS
#endif

/* One rounding of a product and a sum, where the target has such instructions: here only, see above. */
#if defined(__clang__)
#pragma clang fp contract(fast)
#else
#pragma GCC push_options
#pragma GCC optimize("fp-contract=fast")
#endif
DMQ_SCORE(dmq_score_2, , double, DMQ_GROUP, 2, 1)
DMQ_SCORE(dmq_score_single_4, , float, DMQ_GROUP_SINGLE, 4, 1)
#ifdef DMQ_SCORERS
DMQ_SCORE(dmq_score_4, __attribute__((target("avx2,fma"))), double, DMQ_GROUP, 4, 1)
DMQ_SCORE(dmq_score_8, __attribute__((target("avx512f"))), double, DMQ_GROUP, 8, 2)
DMQ_SCORE(dmq_score_single_8, __attribute__((target("avx2,fma"))), float, DMQ_GROUP_SINGLE, 8, 1)
DMQ_SCORE(dmq_score_single_16, __attribute__((target("avx512f"))), float, DMQ_GROUP_SINGLE, 16, 2)
#endif
#if defined(__clang__)
#pragma clang fp contract(off)
#else
#pragma GCC pop_options
#endif
#else
#define DMQ_SCORE(NAME, REAL, GROUP) \
    static void NAME( \
        const REAL* packed, const REAL* z, const REAL* x, REAL* a, REAL* mean, REAL* square, ptrdiff_t d) \
    { \
        for (int l = 0; l < GROUP; l++) { \
            const REAL* u = packed; \
            mean[l] = square[l] = 0; \
            for (ptrdiff_t first = 0; first < d; first += DMQ_PIVOTS, u += first * DMQ_PIVOTS) \
                for (ptrdiff_t p = 0; p < DMQ_PIVOTS; p++) { \
                    REAL t = x[(first + p) * GROUP + l]; \
                    for (ptrdiff_t k = 0; k < first + p; k++) \
                        t -= u[k * DMQ_PIVOTS + p] * a[k * GROUP + l]; \
                    t *= u[(first + p) * DMQ_PIVOTS + p]; \
                    a[(first + p) * GROUP + l] = t; \
                    square[l] += t * t; \
                    if (z != NULL && first + p < d) \
                        mean[l] += z[first + p] * t; \
                } \
        } \
    }

DMQ_SCORE(dmq_score_2, double, DMQ_GROUP)
DMQ_SCORE(dmq_score_single_4, float, DMQ_GROUP_SINGLE)
#endif

#ifdef DMQ_SCORERS
static dmq_scorer dmq_best_scorer(void)
{
    __builtin_cpu_init();
    if (__builtin_cpu_supports("avx512f"))
        return dmq_score_8;
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") ? dmq_score_4 : dmq_score_2;
}

static dmq_scorer_single dmq_best_scorer_single(void)
{
    __builtin_cpu_init();
    if (__builtin_cpu_supports("avx512f"))
        return dmq_score_single_16;
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") ? dmq_score_single_8 : dmq_score_single_4;
}
#else
static dmq_scorer dmq_best_scorer(void)
{
    return dmq_score_2;
}

static dmq_scorer_single dmq_best_scorer_single(void)
{
    return dmq_score_single_4;
}
#endif

#endif
