/* Loops over a Cholesky factor: U (d, d) row-major in the upper triangle, V = U^T U. What is below the diagonal is
   neither read nor written. */
#ifndef DMQ_FACTOR_H
#define DMQ_FACTOR_H

#include <math.h>
#include <stddef.h>
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

/* U <- the factor of U^T U + w w^T: rotate (U_kk, w_k) to (r, 0) for k = 0, 1, ...; the rest of row k and of w follow.
   w is destroyed. */
DMQ_WIDE static void dmq_update(double* u, double* w, ptrdiff_t d)
{
    for (ptrdiff_t k = 0; k < d; k++) {
        double* row = u + k * d;
        double a = row[k], b = w[k];
        if (b == 0.0)
            continue;
        double r = sqrt(a * a + b * b);
        row[k] = r;
        dmq_rotate(row + k + 1, w + k + 1, a / r, b / r, d - k - 1);
    }
}

/* Apply the rotations (c, s) to U and x, which starts at 0, from the last row up: they move a row from U into x. */
DMQ_WIDE static void dmq_downdate(double* u, double* x, const double* c, const double* s, ptrdiff_t d)
{
    for (ptrdiff_t j = 0; j < d; j++)
        x[j] = 0.0;
    for (ptrdiff_t i = d - 1; i >= 0; i--)
        dmq_rotate(u + i * d + i, x + i, c[i], -s[i], d - i);
}

/* x <- U^{-T} x */
DMQ_WIDE static void dmq_solve_transposed(const double* u, double* x, ptrdiff_t d)
{
    for (ptrdiff_t k = 0; k < d; k++) {
        x[k] /= u[k * d + k];
        dmq_subtract(x + k + 1, u + k * d + k + 1, x[k], d - k - 1);
    }
}

/* out_i <- |U^{-T} x_i|^2 for m rows (m, d), with `work` of d DMQ_LANES doubles. DMQ_LANES rows are solved side by
   side, a vector of them for each k; fewer than DMQ_ALONE are solved one by one, with the same operations. There are 32
   lanes because GCC unrolls shorter loops. */
#define DMQ_LANES 32
#define DMQ_ALONE 6
DMQ_WIDE static void dmq_leverage(
    const double* restrict u, const double* restrict x, double* restrict out,
    double* restrict work, ptrdiff_t m, ptrdiff_t d)
{
    ptrdiff_t i = 0;
    for (; m - i >= DMQ_ALONE; i += DMQ_LANES) {
        ptrdiff_t lanes = m - i < DMQ_LANES ? m - i : DMQ_LANES;
        double solved[DMQ_LANES], total[DMQ_LANES] = {0.0};
        for (ptrdiff_t j = 0; j < d; j++)
            for (ptrdiff_t l = 0; l < DMQ_LANES; l++)
                work[j * DMQ_LANES + l] = l < lanes ? x[(i + l) * d + j] : 0.0;
        for (ptrdiff_t k = 0; k < d; k++) {
            for (ptrdiff_t l = 0; l < DMQ_LANES; l++) {
                solved[l] = work[k * DMQ_LANES + l] / u[k * d + k];
                total[l] += solved[l] * solved[l];
            }
            for (ptrdiff_t j = k + 1; j < d; j++)
                for (ptrdiff_t l = 0; l < DMQ_LANES; l++)
                    work[j * DMQ_LANES + l] -= u[k * d + j] * solved[l];
        }
        for (ptrdiff_t l = 0; l < lanes; l++)
            out[i + l] = total[l];
    }
    for (; i < m; i++) {
        double total = 0.0;
        for (ptrdiff_t j = 0; j < d; j++)
            work[j] = x[i * d + j];
        for (ptrdiff_t k = 0; k < d; k++) {
            work[k] /= u[k * d + k];
            total += work[k] * work[k];
            dmq_subtract(work + k + 1, u + k * d + k + 1, work[k], d - k - 1);
        }
        out[i] = total;
    }
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
        for (ptrdiff_t i = k; i < d; i++) {
            x[i] /= u[i * d + i];
            total += x[i] * x[i];
            dmq_subtract(x + i + 1, u + i * d + i + 1, x[i], d - i - 1);
        }
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

/* x (d, m) <- U^{-T} x, DMQ_LANES columns side by side. */
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

/* x <- U^{-1} x */
DMQ_WIDE static void dmq_solve(const double* u, double* x, ptrdiff_t d)
{
    for (ptrdiff_t i = d - 1; i >= 0; i--) {
        const double* row = u + i * d;
        x[i] = (x[i] - dmq_dot(row + i + 1, x + i + 1, d - i - 1)) / row[i];
    }
}

#endif
