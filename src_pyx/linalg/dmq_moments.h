/* gram <- gram + left^T right, in tiles that stay in registers. */
#ifndef DMQ_MOMENTS_H
#define DMQ_MOMENTS_H

#include <stddef.h>
#include "dmq_wide.h"

typedef void (*dmq_tiles)(double*, const double*, const double*, ptrdiff_t, ptrdiff_t);

#ifdef DMQ_VECTORS
/* One kernel for vectors of 2, 4 and 8 doubles. Every sum runs over the rows in order and nothing is contracted,
   so all give the same bits; the tile of ROWS x (VECTORS * LANES) sums fills the registers there are. */
#define DMQ_TILES(NAME, TARGET, LANES, ROWS, VECTORS) \
    TARGET static void NAME( \
        double* gram, const double* left, const double* right, ptrdiff_t n, ptrdiff_t d) \
    { \
        typedef double lanes __attribute__((vector_size(LANES * 8), aligned(8), may_alias)); \
        const ptrdiff_t columns = VECTORS * LANES; \
        for (ptrdiff_t i = 0; i < d; i += ROWS) \
            for (ptrdiff_t j = 0; j < i + ROWS && j < d; j += columns) { \
                lanes t[ROWS][VECTORS] = {{{0.0}}}; \
                for (ptrdiff_t k = 0; k < n; k++) { \
                    const double* l = left + k * d + i; \
                    const lanes* r = (const lanes*) (right + k * d + j); \
                    for (int p = 0; p < ROWS; p++) \
                        for (int q = 0; q < VECTORS; q++) \
                            t[p][q] += l[p] * r[q]; \
                } \
                for (int p = 0; p < ROWS && i + p < d; p++) \
                    for (int q = 0; q < VECTORS; q++) \
                        for (int c = 0; c < LANES; c++) { \
                            ptrdiff_t at = j + q * LANES + c; \
                            if (at <= i + p) \
                                gram[(i + p) * d + at] += t[p][q][c]; \
                        } \
            } \
    }

DMQ_TILES(dmq_tiles_2, , 2, 2, 4)
#else
static void dmq_tiles_2(double* gram, const double* left, const double* right, ptrdiff_t n, ptrdiff_t d)
{
    for (ptrdiff_t i = 0; i < d; i++)
        for (ptrdiff_t j = 0; j <= i; j++) {
            double t = 0.0;
            for (ptrdiff_t k = 0; k < n; k++)
                t += left[k * d + i] * right[k * d + j];
            gram[i * d + j] += t;
        }
}
#endif

#if defined(DMQ_VECTORS) && defined(__x86_64__) && defined(__linux__) && !defined(__SANITIZE_ADDRESS__)
DMQ_TILES(dmq_tiles_4, __attribute__((target("avx2"))), 4, 4, 2)
DMQ_TILES(dmq_tiles_8, __attribute__((target("avx512f"))), 8, 8, 1)

static dmq_tiles dmq_best_tiles(void)
{
    __builtin_cpu_init();
    if (__builtin_cpu_supports("avx512f"))
        return dmq_tiles_8;
    return __builtin_cpu_supports("avx2") ? dmq_tiles_4 : dmq_tiles_2;
}
#else
static dmq_tiles dmq_best_tiles(void)
{
    return dmq_tiles_2;
}
#endif

#endif
