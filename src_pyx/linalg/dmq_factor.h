/* Loops over a Cholesky factor: U (d, d) row-major in the upper triangle, V = U^T U. What is below the diagonal is
   neither read nor written. */
#ifndef DMQ_FACTOR_H
#define DMQ_FACTOR_H

#include <math.h>
#include <stddef.h>
#include <string.h>
#include "dmq_reduce.h"
#include "dmq_rotate.h"
#include "dmq_wide.h"

/* y <- y - a x */
static inline void dmq_subtract(
    double* restrict y, const double* restrict x, double a, ptrdiff_t n)
{
    for (ptrdiff_t j = 0; j < n; j++)
        y[j] -= a * x[j];
}

/* U <- the factor of U^T U + w w^T. w is destroyed. */
DMQ_WIDE static void dmq_update(double* u, double* w, ptrdiff_t d)
{
    dmq_add_row(u, w, NULL, NULL, d);
}

/* Apply the rotations (c, s) to U and x, which starts at 0, from the last row up: they move a row from U into x. */
DMQ_WIDE static void dmq_downdate(double* u, double* x, const double* c, const double* s, ptrdiff_t d)
{
    for (ptrdiff_t j = 0; j < d; j++)
        x[j] = 0.0;
    for (ptrdiff_t i = d - 1; i >= 0; i--)
        dmq_rotate(u + i * d + i, x + i, (dmq_rotation){c[i], -s[i]}, d - i);
}

/* Solve for the next entries of x <- U^{-T} x, from k on, and subtract them from those behind; return where they end.
   Four at a time, which read and write the others once, with the operations and the order of one at a time. */
static inline ptrdiff_t dmq_forward(const double* restrict u, double* restrict x, ptrdiff_t k, ptrdiff_t d)
{
    const double* r0 = u + k * d;
    if (k + 4 > d) {
        x[k] /= r0[k];
        dmq_subtract(x + k + 1, r0 + k + 1, x[k], d - k - 1);
        return k + 1;
    }
    const double *r1 = r0 + d, *r2 = r1 + d, *r3 = r2 + d;
    double x0 = x[k] / r0[k];
    double x1 = (x[k + 1] - x0 * r0[k + 1]) / r1[k + 1];
    double x2 = (x[k + 2] - x0 * r0[k + 2] - x1 * r1[k + 2]) / r2[k + 2];
    double x3 = (x[k + 3] - x0 * r0[k + 3] - x1 * r1[k + 3] - x2 * r2[k + 3]) / r3[k + 3];
    x[k] = x0, x[k + 1] = x1, x[k + 2] = x2, x[k + 3] = x3;
    for (ptrdiff_t j = k + 4; j < d; j++)
        x[j] = x[j] - x0 * r0[j] - x1 * r1[j] - x2 * r2[j] - x3 * r3[j];
    return k + 4;
}

/* x <- U^{-T} x */
DMQ_WIDE static void dmq_solve_transposed(const double* u, double* x, ptrdiff_t d)
{
    for (ptrdiff_t k = 0; k < d;)
        k = dmq_forward(u, x, k, d);
}

/* |U^{-T} x|^2; `work` of d doubles. */
DMQ_WIDE static double dmq_leverage(
    const double* restrict u, const double* restrict x, double* restrict work, ptrdiff_t d)
{
    double total = 0.0;
    for (ptrdiff_t j = 0; j < d; j++)
        work[j] = x[j];
    for (ptrdiff_t k = 0; k < d;)
        for (ptrdiff_t end = dmq_forward(u, work, k, d); k < end; k++)
            total += work[k] * work[k];
    return total;
}

/* |U^{-1}|^2 in the Frobenius norm, column by column of U^{-T}, or infinity as soon as it exceeds `most`; `x` of d
   doubles. */
DMQ_WIDE static double dmq_inverse_squares(const double* u, double* x, ptrdiff_t d, double most)
{
    double total = 0.0;
    for (ptrdiff_t k = 0; k < d; k++) {
        for (ptrdiff_t i = k; i < d; i++)
            x[i] = 0.0;
        x[k] = 1.0;
        for (ptrdiff_t i = k; i < d;)
            for (ptrdiff_t end = dmq_forward(u, x, i, d); i < end; i++)
                total += x[i] * x[i];
        if (!(total <= most))
            return HUGE_VAL;
    }
    return total;
}

/* x . y */
DMQ_WIDE static double dmq_wide_dot(const double* x, const double* y, ptrdiff_t n)
{
    return dmq_dot(x, y, n);
}

/* x (d, m) <- U^{-T} x, DMQ_LANES columns side by side: 32, because GCC unrolls shorter loops. */
#define DMQ_LANES 32
DMQ_WIDE static void dmq_solve_block_transposed(const double* restrict u, double* restrict x, ptrdiff_t m, ptrdiff_t d)
{
    for (ptrdiff_t first = 0; first < m; first += DMQ_LANES) {
        ptrdiff_t lanes = m - first < DMQ_LANES ? m - first : DMQ_LANES;
        double solved[DMQ_LANES];
        for (ptrdiff_t k = 0; k < d; k++) {
            for (ptrdiff_t l = 0; l < lanes; l++)
                solved[l] = x[k * m + first + l] /= u[k * d + k];
            for (ptrdiff_t j = k + 1; j < d; j++)
                for (ptrdiff_t l = 0; l < lanes; l++)
                    x[j * m + first + l] -= u[k * d + j] * solved[l];
        }
    }
}

/* x (d, m) <- U^{-1} x, likewise. */
DMQ_WIDE static void dmq_solve_block(const double* restrict u, double* restrict x, ptrdiff_t m, ptrdiff_t d)
{
    for (ptrdiff_t first = 0; first < m; first += DMQ_LANES) {
        ptrdiff_t lanes = m - first < DMQ_LANES ? m - first : DMQ_LANES;
        double left[DMQ_LANES];
        for (ptrdiff_t i = d - 1; i >= 0; i--) {
            for (ptrdiff_t l = 0; l < lanes; l++)
                left[l] = x[i * m + first + l];
            for (ptrdiff_t j = i + 1; j < d; j++)
                for (ptrdiff_t l = 0; l < lanes; l++)
                    left[l] -= u[i * d + j] * x[j * m + first + l];
            for (ptrdiff_t l = 0; l < lanes; l++)
                x[i * m + first + l] = left[l] / u[i * d + i];
        }
    }
}

/* x <- U^{-1} x, with the sums of `dmq_dot` to the bit. The last eight solutions stay in registers: a vector that is
   loaded from where an entry was just stored has to wait for it. */
DMQ_WIDE static void dmq_solve(const double* u, double* x, ptrdiff_t d)
{
    ptrdiff_t i = d - 1;
    for (; i >= 0 && i >= d - 8; i--) {
        const double* row = u + i * d;
        x[i] = (x[i] - dmq_dot(row + i + 1, x + i + 1, d - i - 1)) / row[i];
    }
    if (i < 0)
        return;
    double last[8];
    memcpy(last, x + i + 1, sizeof last);
    for (; i >= 0; i--) {
        const double* row = u + i * d;
        x[i] = (x[i] - dmq_dot_from(last, row + i + 1, x + i + 1, d - i - 1)) / row[i];
        for (int l = 7; l > 0; l--)
            last[l] = last[l - 1];
        last[0] = x[i];
    }
}

#endif
