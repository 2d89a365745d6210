/* Emissions of the states of a block MDP. */
#ifndef DMQ_BLOCK_H
#define DMQ_BLOCK_H

#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include "dmq_reduce.h"
#include "dmq_wide.h"

/* phi <- row + deviation z, (n,). */
DMQ_WIDE static void dmq_add_noise(
    double *restrict phi, const double *restrict row, const float *restrict z, ptrdiff_t n, double deviation)
{
    for (ptrdiff_t j = 0; j < n; j++)
        phi[j] = row[j] + deviation * z[j];
}

/* The rows of phi (n, d), projected onto the unit ball. */
DMQ_WIDE static void dmq_project(double *phi, ptrdiff_t n, ptrdiff_t d)
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
