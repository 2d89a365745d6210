/* The loops of least-squares value iteration over the observations of a level. */
#ifndef DMQ_LSVI_H
#define DMQ_LSVI_H

#include <math.h>
#include <stddef.h>
#include "dmq_reduce.h"
#include "dmq_wide.h"

/* y <- y + a x */
static inline void dmq_add(double* restrict y, const double* restrict x, double a, ptrdiff_t d)
{
    for (ptrdiff_t i = 0; i < d; i++)
        y[i] += a * x[i];
}

/* moment (K, d) += values_j sums_p for every pair p = pair[j, a] >= 0 */
DMQ_WIDE static void dmq_add_targets(
    double* moment, const double* values, const double* sums, const ptrdiff_t* pair, ptrdiff_t m, ptrdiff_t K,
    ptrdiff_t d)
{
    for (ptrdiff_t j = 0; j < m; j++)
        for (ptrdiff_t a = 0; a < K; a++)
            if (pair[j * K + a] >= 0)
                dmq_add(moment + a * d, sums + pair[j * K + a] * d, values[j], d);
}

/* values_j <- max_a min(1, phi_j . theta^a + scale sqrt(leverage_ja)); -1, or a row whose score is not finite. */
DMQ_WIDE static ptrdiff_t dmq_confident(
    double* values, const double* phi, const double* theta, const double* leverage, double scale, ptrdiff_t m,
    ptrdiff_t K, ptrdiff_t d)
{
    for (ptrdiff_t j = 0; j < m; j++) {
        double best = -HUGE_VAL;
        for (ptrdiff_t a = 0; a < K; a++) {
            double score = dmq_dot(phi + j * d, theta + a * d, d) + scale * sqrt(leverage[j * K + a]);
            if (!(score * 0.0 == 0.0))
                return j;
            best = score > best ? score : best;
        }
        values[j] = best < 1.0 ? best : 1.0;
    }
    return -1;
}

/* leverage_j <- leverage_j - (phi_j . x)^2 / denominator, column `a` of (m, K); never below 0. */
DMQ_WIDE static void dmq_shrink(
    double* leverage, const double* phi, const double* x, double denominator, ptrdiff_t m, ptrdiff_t K,
    ptrdiff_t d)
{
    for (ptrdiff_t j = 0; j < m; j++) {
        double t = dmq_dot(phi + j * d, x, d), left = leverage[j * K] - t * t / denominator;
        leverage[j * K] = left > 0.0 ? left : 0.0;
    }
}

#endif
