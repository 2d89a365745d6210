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

/* A fit, clipped to [0, top]; one that is not a number stays so. */
static inline double dmq_clip(double fit, double top)
{
    fit = fit < 0.0 ? 0.0 : fit;
    return fit > top ? top : fit;
}

/* values_j <- max_a min(top, fit + scale sqrt(leverage_ja)), fit = phi_ja . theta^a, clipped to [0, top] if `clipped`.
   phi_ja begins `apart` a numbers after row j of phi (m, d), theta^a `stride` a numbers after theta; both have `width`.
   Returns -1, or a row with a fit or a bonus that is not finite. */
DMQ_WIDE static ptrdiff_t dmq_confident(
    double* values, const double* phi, const double* theta, const double* leverage, double scale, double top,
    int clipped, ptrdiff_t m, ptrdiff_t K, ptrdiff_t d, ptrdiff_t width, ptrdiff_t apart, ptrdiff_t stride)
{
    for (ptrdiff_t j = 0; j < m; j++) {
        double best = -HUGE_VAL;
        for (ptrdiff_t a = 0; a < K; a++) {
            double fit = dmq_dot(phi + j * d + a * apart, theta + a * stride, width);
            double bonus = scale * sqrt(leverage[j * K + a]), score = fit + bonus;
            if (!(score * 0.0 == 0.0))
                return j;
            score = clipped ? dmq_clip(fit, top) + bonus : score;
            best = score > best ? score : best;
        }
        values[j] = best < top ? best : top;
    }
    return -1;
}

/* leverage_j <- leverage_j - (phi_j . x)^2 / denominator, the first column of (m, K); never below 0. phi_j are the first
   `width` numbers of row j of (m, d). */
DMQ_WIDE static void dmq_shrink(
    double* leverage, const double* phi, const double* x, double denominator, ptrdiff_t m, ptrdiff_t K, ptrdiff_t d,
    ptrdiff_t width)
{
    for (ptrdiff_t j = 0; j < m; j++) {
        double t = dmq_dot(phi + j * d, x, width), left = leverage[j * K] - t * t / denominator;
        leverage[j * K] = left > 0.0 ? left : 0.0;
    }
}

#endif
