/* a = U^{-T} x for many rows x of one Cholesky factor U (d, d), row-major in the upper triangle: leverages |a|^2 and
   products z . a. DMQ_GROUP rows are solved for side by side, DMQ_PIVOTS entries of each at a time, in sums that stay in
   registers: every entry of U that is loaded serves all rows of the group, and a triangular solve costs half of a product
   with the inverse of V.

   The bits of a row do not depend on the rows beside it. Where the processor multiplies and adds with one rounding, this
   does; so bits depend on the type of processor, as those of BLAS do. */
#ifndef DMQ_SCORE_H
#define DMQ_SCORE_H

#include <math.h>
#include <stddef.h>
#include <string.h>
#include "dmq_finite.h"
#include "dmq_wide.h"

/* Rows of a group, in double and in single precision: two of the widest vectors. */
#define DMQ_GROUP 16
#define DMQ_GROUP_SINGLE 32
/* Entries of a row that are solved for together. */
#define DMQ_PIVOTS 8
/* Targets whose predictions are computed together. */
#define DMQ_TARGETS 16

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
            ptrdiff_t columns = d - first < DMQ_PIVOTS ? d - first : DMQ_PIVOTS, k = 0; \
            /* Of known length and stride: in vectors. */ \
            for (; columns == DMQ_PIVOTS && !reversed && k < first; k++, packed += DMQ_PIVOTS) \
                for (ptrdiff_t p = 0; p < DMQ_PIVOTS; p++) \
                    packed[p] = (REAL) u[k * d + first + p]; \
            for (; k < first; k++, packed += DMQ_PIVOTS) \
                for (ptrdiff_t p = 0; p < DMQ_PIVOTS; p++) \
                    packed[p] = p < columns ? (REAL) corner[k * down + (first + p) * right] : 0; \
            for (k = 0; k < DMQ_PIVOTS; k++, packed += DMQ_PIVOTS) \
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
/* Vectors of four numbers, and c0 to c3 <- the columns of the rows r0 to r3. Numbers are paired within 16 bytes first, which
   takes one instruction. */
#define DMQ_FOUR(REAL, INTEGER) \
    typedef REAL four __attribute__((vector_size(4 * sizeof(REAL)), aligned(sizeof(REAL)), may_alias)); \
    typedef INTEGER places __attribute__((vector_size(4 * sizeof(REAL)), unused));
#define DMQ_TRANSPOSE_double(r0, r1, r2, r3) \
    four even = DMQ_MIX(r0, r1, 0, 4, 2, 6), odd = DMQ_MIX(r0, r1, 1, 5, 3, 7); \
    four below = DMQ_MIX(r2, r3, 0, 4, 2, 6), last = DMQ_MIX(r2, r3, 1, 5, 3, 7); \
    four c0 = DMQ_MIX(even, below, 0, 1, 4, 5), c1 = DMQ_MIX(odd, last, 0, 1, 4, 5); \
    four c2 = DMQ_MIX(even, below, 2, 3, 6, 7), c3 = DMQ_MIX(odd, last, 2, 3, 6, 7);
#define DMQ_TRANSPOSE_float(r0, r1, r2, r3) \
    four even = DMQ_MIX(r0, r1, 0, 4, 1, 5), odd = DMQ_MIX(r0, r1, 2, 6, 3, 7); \
    four below = DMQ_MIX(r2, r3, 0, 4, 1, 5), last = DMQ_MIX(r2, r3, 2, 6, 3, 7); \
    four c0 = DMQ_MIX(even, below, 0, 1, 4, 5), c1 = DMQ_MIX(even, below, 2, 3, 6, 7); \
    four c2 = DMQ_MIX(odd, last, 0, 1, 4, 5), c3 = DMQ_MIX(odd, last, 2, 3, 6, 7);
#endif

/* Lanes of a group of some rows that are computed: all, or the first half. */
#define DMQ_SOLVED(GROUP, rows) ((rows) > GROUP / 2 ? GROUP : GROUP / 2)

/* out (dmq_padded(d), GROUP) <- the transpose of `rows` <= GROUP rows of x, `stride` numbers from one to the next, with
   `reversed` the last number of a row first; zeros in the other lanes that are computed. Squares of four rows and columns
   are transposed in registers. */
#ifdef DMQ_VECTORS
#define DMQ_SQUARES(REAL, INTEGER, GROUP) \
    DMQ_FOUR(REAL, INTEGER) \
    for (; l + 4 <= rows && done + 4 <= d; done += 4) { \
        const REAL* corner = x + l * stride + (reversed ? d - 4 - done : done); \
        REAL* target = out + (reversed ? done + 3 : done) * GROUP + l; \
        four r0 = *(const four*) corner, r1 = *(const four*) (corner + stride); \
        four r2 = *(const four*) (corner + 2 * stride), r3 = *(const four*) (corner + 3 * stride); \
        DMQ_TRANSPOSE_##REAL(r0, r1, r2, r3) \
        *(four*) target = c0; \
        *(four*) (target + down) = c1; \
        *(four*) (target + 2 * down) = c2; \
        *(four*) (target + 3 * down) = c3; \
    }
#else
#define DMQ_SQUARES(REAL, INTEGER, GROUP)
#endif
#define DMQ_GATHER(NAME, REAL, INTEGER, GROUP) \
    DMQ_WIDE static void NAME( \
        const REAL* restrict x, ptrdiff_t stride, ptrdiff_t rows, REAL* restrict out, int reversed, ptrdiff_t d) \
    { \
        const ptrdiff_t down = reversed ? -GROUP : GROUP; \
        (void) down; \
        for (ptrdiff_t l = 0; l < DMQ_SOLVED(GROUP, rows); l += 4) { \
            ptrdiff_t done = 0; \
            DMQ_SQUARES(REAL, INTEGER, GROUP) \
            for (; done < dmq_padded(d); done++) \
                for (ptrdiff_t i = l; i < l + 4; i++) \
                    out[done * GROUP + i] \
                        = done < d && i < rows ? x[i * stride + (reversed ? d - 1 - done : done)] : 0; \
        } \
    }

DMQ_GATHER(dmq_gather, double, long long, DMQ_GROUP)
DMQ_GATHER(dmq_gather_single, float, int, DMQ_GROUP_SINGLE)

/* x_l <- mean + width a_l for the solution a of a reversed group: `rows` rows of x (rows, d). */
DMQ_WIDE static void dmq_displace(
    const double* restrict a, const double* restrict mean, double width, ptrdiff_t rows, double* restrict x, ptrdiff_t d)
{
    ptrdiff_t l = 0;
#ifdef DMQ_VECTORS
    DMQ_FOUR(double, long long)
    for (; l + 4 <= rows; l += 4) {
        double* to = x + l * d;
        ptrdiff_t j = 0;
        for (; j + 4 <= d; j += 4) {
            const double* from = a + (d - 1 - j) * DMQ_GROUP + l;
            four r0 = *(const four*) from, r1 = *(const four*) (from - DMQ_GROUP), at = *(const four*) (mean + j);
            four r2 = *(const four*) (from - 2 * DMQ_GROUP), r3 = *(const four*) (from - 3 * DMQ_GROUP);
            DMQ_TRANSPOSE_double(r0, r1, r2, r3)
            *(four*) (to + j) = at + width * c0;
            *(four*) (to + d + j) = at + width * c1;
            *(four*) (to + 2 * d + j) = at + width * c2;
            *(four*) (to + 3 * d + j) = at + width * c3;
        }
        for (; j < d; j++)
            for (ptrdiff_t i = 0; i < 4; i++)
                to[i * d + j] = mean[j] + width * a[(d - 1 - j) * DMQ_GROUP + l + i];
    }
#endif
    for (; l < rows; l++)
        for (ptrdiff_t j = 0; j < d; j++)
            x[l * d + j] = mean[j] + width * a[(d - 1 - j) * DMQ_GROUP + l];
}

/* out (m,) <- x y for x (m, d), four rows at a time, which read y once; return whether all are finite. In double precision each has the bits of `dmq_dot`,
   which adds up in SUMS = 8 partial sums, and then what is left. Vectors of half as many: those of 64 bytes would cross two
   lines of the cache. What is fetched ahead may lie beyond x, which is harmless. */
#ifdef DMQ_VECTORS
#define DMQ_PRODUCTS(NAME, REAL, INTEGER, SUMS) \
    DMQ_WIDE static int NAME( \
        const REAL* restrict x, const REAL* restrict y, REAL* restrict out, ptrdiff_t m, ptrdiff_t d) \
    { \
        DMQ_FOUR(REAL, INTEGER) \
        four poison = {0}; \
        typedef REAL sums __attribute__((vector_size(SUMS / 2 * sizeof(REAL)), aligned(sizeof(REAL)), may_alias)); \
        for (ptrdiff_t first = 0; first < m; first += 4) { \
            ptrdiff_t rows = m - first < 4 ? m - first : 4, i = 0; \
            const REAL* r0 = x + first * d; \
            const REAL* r1 = rows > 1 ? r0 + d : r0; \
            const REAL* r2 = rows > 2 ? r1 + d : r0; \
            const REAL* r3 = rows > 3 ? r2 + d : r0; \
            sums s[4] = {{0}}, t[4] = {{0}}; \
            four rest = {0}; \
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
            if (SUMS == 16 && i + SUMS / 2 <= d) { \
                sums at = *(const sums*) (y + i); \
                s[0] += *(const sums*) (r0 + i) * at; \
                s[1] += *(const sums*) (r1 + i) * at; \
                s[2] += *(const sums*) (r2 + i) * at; \
                s[3] += *(const sums*) (r3 + i) * at; \
                i += SUMS / 2; \
            } \
            for (; i + 4 <= d; i += 4) { \
                four a = *(const four*) (r0 + i), b = *(const four*) (r1 + i); \
                four c = *(const four*) (r2 + i), e = *(const four*) (r3 + i); \
                DMQ_TRANSPOSE_##REAL(a, b, c, e) \
                rest += c0 * y[i]; \
                rest += c1 * y[i + 1]; \
                rest += c2 * y[i + 2]; \
                rest += c3 * y[i + 3]; \
            } \
            for (; i < d; i++) \
                rest += (four) {r0[i], r1[i], r2[i], r3[i]} * y[i]; \
            if (d >= 8) { \
                REAL kept[4][SUMS / 2]; \
                four v[4]; \
                for (int r = 0; r < 4; r++) { \
                    *(sums*) kept[r] = s[r] + t[r]; \
                    v[r] = *(const four*) kept[r]; \
                    if (SUMS == 16) \
                        v[r] += *(const four*) (kept[r] + SUMS / 2 - 4); \
                } \
                DMQ_TRANSPOSE_##REAL(v[0], v[1], v[2], v[3]) \
                rest += (c0 + c2) + (c1 + c3); \
            } \
            poison += rest * (REAL) 0; \
            if (rows == 4) \
                *(four*) (out + first) = rest; \
            for (ptrdiff_t r = 0; rows < 4 && r < rows; r++) \
                out[first + r] = rest[r]; \
        } \
        return (poison[0] + poison[1]) + (poison[2] + poison[3]) == 0; \
    }
#else
#define DMQ_PRODUCTS(NAME, REAL, INTEGER, SUMS) \
    static int NAME(const REAL* x, const REAL* y, REAL* out, ptrdiff_t m, ptrdiff_t d) \
    { \
        REAL poison = 0; \
        for (ptrdiff_t r = 0; r < m; r++) { \
            REAL t[SUMS] = {0}, rest = 0; \
            ptrdiff_t i = 0; \
            for (; i + SUMS <= d; i += SUMS) \
                for (int l = 0; l < SUMS; l++) \
                    t[l] += x[r * d + i + l] * y[i + l]; \
            for (int l = 0; SUMS == 16 && i + 8 <= d && l < 8; l++) \
                t[l] += x[r * d + i + l] * y[i + l]; \
            i += SUMS == 16 && i + 8 <= d ? 8 : 0; \
            for (; i < d; i++) \
                rest += x[r * d + i] * y[i]; \
            for (int half = SUMS / 2; half > 1; half /= 2) \
                for (int l = 0; l < half; l++) \
                    t[l] += t[l + half]; \
            out[r] = (t[0] + t[1]) + rest; \
            poison += out[r] * (REAL) 0; \
        } \
        return poison == 0; \
    }
#endif

DMQ_PRODUCTS(dmq_products, double, long long, 8)
DMQ_PRODUCTS(dmq_products_single, float, int, 16)

/* For the first `rows` rows of a group x (dmq_padded(d), GROUP), or more of them: a, which may be x, <- U^{-T} x; square
   (GROUP,) <- a . a, and mean (GROUP,) <- z . a for z (d,) unless that is NULL. */
typedef void (*dmq_scorer)(
    const double* packed, const double* z, const double* x, double* a, double* mean, double* square, ptrdiff_t rows,
    ptrdiff_t d);
typedef void (*dmq_scorer_single)(
    const float* packed, const float* z, const float* x, float* a, float* mean, float* square, ptrdiff_t rows,
    ptrdiff_t d);

#ifdef DMQ_VECTORS
/* VECTORS vectors of LANES rows at a time, DMQ_PIVOTS sums of each: as many as there are registers for. One vector, where
   the rest of the rows is in one. */
#define DMQ_SCORE(NAME, TARGET, REAL, GROUP, LANES, VECTORS) \
    TARGET static inline __attribute__((always_inline)) void NAME##_strip( \
        const REAL* restrict u, const REAL* restrict z, const REAL* x, REAL* a, REAL* restrict mean, \
        REAL* restrict square, ptrdiff_t first, ptrdiff_t d, const int vectors) \
    { \
        typedef REAL lanes __attribute__((vector_size(LANES * sizeof(REAL)), aligned(sizeof(REAL)), may_alias)); \
        lanes t[DMQ_PIVOTS][VECTORS], total[VECTORS], product[VECTORS]; \
        for (int p = 0; p < DMQ_PIVOTS; p++) \
            for (int q = 0; q < vectors; q++) \
                t[p][q] = *(const lanes*) (x + (first + p) * GROUP + q * LANES); \
        for (ptrdiff_t k = 0; k < first; k++, u += DMQ_PIVOTS) \
            for (int p = 0; p < DMQ_PIVOTS; p++) \
                for (int q = 0; q < vectors; q++) \
                    t[p][q] -= u[p] * *(const lanes*) (a + k * GROUP + q * LANES); \
        for (int q = 0; q < vectors; q++) { \
            total[q] = *(const lanes*) (square + q * LANES); \
            product[q] = *(const lanes*) (mean + q * LANES); \
        } \
        for (int k = 0; k < DMQ_PIVOTS; k++, u += DMQ_PIVOTS) \
            for (int q = 0; q < vectors; q++) { \
                t[k][q] *= u[k]; \
                *(lanes*) (a + (first + k) * GROUP + q * LANES) = t[k][q]; \
                total[q] += t[k][q] * t[k][q]; \
                if (z != NULL && first + k < d) \
                    product[q] += z[first + k] * t[k][q]; \
                for (int p = k + 1; p < DMQ_PIVOTS; p++) \
                    t[p][q] -= u[p] * t[k][q]; \
            } \
        for (int q = 0; q < vectors; q++) { \
            *(lanes*) (square + q * LANES) = total[q]; \
            *(lanes*) (mean + q * LANES) = product[q]; \
        } \
    } \
    TARGET static void NAME( \
        const REAL* restrict packed, const REAL* restrict z, const REAL* x, REAL* a, REAL* restrict mean, \
        REAL* restrict square, ptrdiff_t rows, ptrdiff_t d) \
    { \
        for (int l = 0; l < GROUP; l++) \
            mean[l] = square[l] = 0; \
        for (ptrdiff_t first = 0; first < d; packed += (first + DMQ_PIVOTS) * DMQ_PIVOTS, first += DMQ_PIVOTS) \
            for (ptrdiff_t l = 0; l < rows; l += VECTORS * LANES) { \
                if (VECTORS > 1 && rows - l <= LANES) \
                    NAME##_strip(packed, z, x + l, a + l, mean + l, square + l, first, d, 1); \
                else \
                    NAME##_strip(packed, z, x + l, a + l, mean + l, square + l, first, d, VECTORS); \
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
/* out (m, t) <- x w + base for x (m, d), w (d, t), which has room for DMQ_TARGETS more numbers, and base (m,): four rows
   and DMQ_TARGETS targets at a time. The bits of a row do not depend on the rows beside it, as those of BLAS do. */
DMQ_WIDE static void dmq_targets(
    const double* restrict x, const double* restrict w, const double* restrict base, double* restrict out, ptrdiff_t m,
    ptrdiff_t t, ptrdiff_t d)
{
    typedef double half __attribute__((vector_size(DMQ_TARGETS / 2 * sizeof(double)), aligned(sizeof(double)), may_alias));
    for (ptrdiff_t first = 0; first < m; first += 4) {
        ptrdiff_t rows = m - first < 4 ? m - first : 4;
        const double* r0 = x + first * d;
        const double* r1 = rows > 1 ? r0 + d : r0;
        const double* r2 = rows > 2 ? r1 + d : r0;
        const double* r3 = rows > 3 ? r2 + d : r0;
        for (ptrdiff_t j = 0; j < t; j += DMQ_TARGETS) {
            half s0 = {0}, s1 = {0}, s2 = {0}, s3 = {0}, t0 = {0}, t1 = {0}, t2 = {0}, t3 = {0};
            for (ptrdiff_t k = 0; k < d; k++) {
                half at = *(const half*) (w + k * t + j), next = *(const half*) (w + k * t + j + DMQ_TARGETS / 2);
                s0 += r0[k] * at;
                t0 += r0[k] * next;
                s1 += r1[k] * at;
                t1 += r1[k] * next;
                s2 += r2[k] * at;
                t2 += r2[k] * next;
                s3 += r3[k] * at;
                t3 += r3[k] * next;
            }
            half kept[8] = {s0, t0, s1, t1, s2, t2, s3, t3};
            for (ptrdiff_t r = 0; r < rows; r++) {
                /* What is written beyond a row of few targets is overwritten by the next row. */
                double* to = out + (first + r) * t + j;
                kept[2 * r] += base[first + r];
                kept[2 * r + 1] += base[first + r];
                if ((t <= DMQ_TARGETS || t - j >= DMQ_TARGETS) && to + DMQ_TARGETS <= out + m * t) {
                    *(half*) to = kept[2 * r];
                    *(half*) (to + DMQ_TARGETS / 2) = kept[2 * r + 1];
                } else
                    memcpy(to, kept + 2 * r, (size_t) (t - j < DMQ_TARGETS ? t - j : DMQ_TARGETS) * sizeof(double));
            }
        }
    }
}
#if defined(__clang__)
#pragma clang fp contract(off)
#else
#pragma GCC pop_options
#endif
#else
static void dmq_targets(
    const double* x, const double* w, const double* base, double* out, ptrdiff_t m, ptrdiff_t t, ptrdiff_t d)
{
    for (ptrdiff_t i = 0; i < m * t; i++) {
        out[i] = 0.0;
        for (ptrdiff_t k = 0; k < d; k++)
            out[i] += x[i / t * d + k] * w[k * t + i % t];
        out[i] += base[i / t];
    }
}

#define DMQ_SCORE(NAME, REAL, GROUP) \
    static void NAME( \
        const REAL* packed, const REAL* z, const REAL* x, REAL* a, REAL* mean, REAL* square, ptrdiff_t rows, \
        ptrdiff_t d) \
    { \
        for (ptrdiff_t l = 0; l < rows; l++) { \
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

/* mean (m,) <- mean + width square^{1/2}; return whether all are finite. A root that does not set errno is a vector's. */
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC push_options
#pragma GCC optimize("no-math-errno")
#endif
#define DMQ_RAISE(NAME, REAL, ROOT, FINITE) \
    DMQ_WIDE static int NAME(REAL* restrict mean, const REAL* restrict square, REAL width, ptrdiff_t m) \
    { \
        for (ptrdiff_t i = 0; i < m; i++) \
            mean[i] += width * ROOT(square[i]); \
        return FINITE(mean, m); \
    }

DMQ_FINITE(dmq_finite_single, float, 32)
DMQ_RAISE(dmq_raise, double, sqrt, dmq_finite)
DMQ_RAISE(dmq_raise_single, float, sqrtf, dmq_finite_single)
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC pop_options
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
