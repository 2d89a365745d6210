/* Emissions of the states of a block MDP. */
#ifndef DMQ_BLOCK_H
#define DMQ_BLOCK_H

#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include "dmq_normal.h"
#include "dmq_reduce.h"
#include "dmq_threefry.h"
#include "dmq_wide.h"

/* Blocks of Threefry computed together, and words of a block. */
enum { DMQ_LANES = 64, DMQ_WORDS = 4 };

/* counters (4, stride), its first `run` columns <- those of the blocks first, first + 1, ... of an observation. The 128
   bits of a counter are the 53 binary digits of the uniform u[0], those of u[1], and the number of the block. */
static inline void dmq_counters(const double *u, ptrdiff_t first, ptrdiff_t run, ptrdiff_t stride, uint32_t *counters)
{
    uint64_t a = (uint64_t) (int64_t) (u[0] * 0x1p53), b = (uint64_t) (int64_t) (u[1] * 0x1p53);
    uint32_t low = (uint32_t) a, middle = (uint32_t) (a >> 32 | b << 21), high = (uint32_t) (b >> 11);
    uint32_t last = (uint32_t) (b >> 43) | (uint32_t) first << 10;
    for (ptrdiff_t k = 0; k < run; k++) {
        counters[k] = low;
        counters[stride + k] = middle;
        counters[2 * stride + k] = high;
        counters[3 * stride + k] = last + ((uint32_t) k << 10);
    }
}

/* phi (n,) <- row + deviation z, eight at a time, as n is small. */
static inline void dmq_add_noise(
    double *restrict phi, const double *restrict row, const float *restrict z, ptrdiff_t n, double deviation)
{
    ptrdiff_t j = 0;
    for (; j + 8 <= n; j += 8)
        for (int k = 0; k < 8; k++)
            phi[j + k] = row[j + k] + deviation * z[j + k];
    for (; j < n; j++)
        phi[j] = row[j] + deviation * z[j];
}

/* The rows of phi (n, d), projected onto the unit ball. */
static inline void dmq_project(double *phi, ptrdiff_t n, ptrdiff_t d)
{
    for (ptrdiff_t i = 0; i < n; i++) {
        double square = dmq_square(phi + i * d, d);
        if (square > 1.0) {
            double shrink = 1.0 / sqrt(square);
            for (ptrdiff_t j = 0; j < d; j++)
                phi[i * d + j] *= shrink;
        }
    }
}

/* phi (n, d) <- base[states] + deviation z, projected onto the unit ball, with the normals z of u (n, 2). Word c of block
   j of an observation makes the normal of coordinate c m + j, where m = ceil(d / 4) is the number of its blocks. Short
   rows are made together, a long one in pieces. */
DMQ_WIDE static void dmq_noisy_rows(
    const double *base, const int32_t *states, ptrdiff_t n, ptrdiff_t d, double deviation, const double *u, double *phi)
{
    uint32_t counters[DMQ_WORDS * DMQ_LANES], words[DMQ_WORDS * DMQ_LANES];
    float z[DMQ_WORDS * DMQ_LANES];
    const ptrdiff_t m = (d + DMQ_WORDS - 1) / DMQ_WORDS, most = m < DMQ_LANES ? DMQ_LANES / m : 1;
    for (ptrdiff_t row = 0; row < n; row += most) {
        ptrdiff_t rows = n - row < most ? n - row : most;
        for (ptrdiff_t j = 0; j < m; j += DMQ_LANES) {
            ptrdiff_t run = m - j < DMQ_LANES ? m - j : DMQ_LANES;
            /* Lanes behind the last whole vector are computed one by one. More than three of them take longer than a
               vector, which the last row then fills. */
            ptrdiff_t needed = rows * run, lanes = needed % 16 > 3 ? (needed + 15) / 16 * 16 : needed;
            for (ptrdiff_t i = 0; i < rows; i++)
                dmq_counters(u + 2 * (row + i), j, i < rows - 1 ? run : lanes - i * run, lanes, counters + i * run);
            dmq_threefry(counters, lanes, words);
            dmq_normals_of_words(words, DMQ_WORDS * lanes, z);
            for (ptrdiff_t i = 0; i < rows; i++)
                for (ptrdiff_t c = 0; c < DMQ_WORDS; c++) {
                    ptrdiff_t first = c * m + j, size = d - first < run ? d - first : run;
                    dmq_add_noise(phi + (row + i) * d + first, base + states[row + i] * d + first,
                                  z + c * lanes + i * run, size, deviation);
                }
        }
        dmq_project(phi + row * d, rows, d);
    }
}

/* Rows are short: a call of memcpy would take longer than the copy. */
static inline void dmq_copy(double *out, const double *in, ptrdiff_t n)
{
    for (; n >= 4; n -= 4, out += 4, in += 4)
        memcpy(out, in, 4 * sizeof(double));
    if (n & 2)
        memcpy(out, in, 2 * sizeof(double));
    if (n & 1)
        out[n & 2] = in[n & 2];
}

/* The first m of d coordinates of every row. */
DMQ_WIDE static void dmq_rows(
    const double *base, const int32_t *states, ptrdiff_t n, ptrdiff_t m, ptrdiff_t d, double *phi)
{
    for (ptrdiff_t i = 0; i < n; i++)
        dmq_copy(phi + i * d, base + states[i] * m, m);
}

/* The last `coins` of d coordinates of every row, four at a time: row i of table (16, 4) has the values of digits i. */
DMQ_WIDE static void dmq_coins(
    const double *u, ptrdiff_t n, ptrdiff_t coins, const double *table, ptrdiff_t d, double *phi)
{
    for (ptrdiff_t i = 0; i < n; i++) {
        double *out = phi + i * d + d - coins;
        for (ptrdiff_t left = coins; left > 0; left -= 52) {
            int64_t digits = (int64_t) (*u++ * 4503599627370496.0);
            ptrdiff_t some = left < 52 ? left : 52;
            for (ptrdiff_t j = 0; j < some; j += 4)
                dmq_copy(out + j, table + 4 * (digits >> (48 - j) & 15), some - j < 4 ? some - j : 4);
            out += some;
        }
    }
}

#endif
