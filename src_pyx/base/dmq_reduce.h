/* Sums over an array, each in one fixed order of the additions, which no vector width changes. The orders differ from
   each other, and results depend on them bit for bit: change none. */
#ifndef DMQ_REDUCE_H
#define DMQ_REDUCE_H

#include <stddef.h>
#include <string.h>
#include "dmq_wide.h"

#ifdef DMQ_VECTORS
typedef double dmq_reduce_four __attribute__((vector_size(32)));

/* Sum of x_j^2. */
static inline double dmq_square(const double *x, ptrdiff_t d)
{
    dmq_reduce_four a = {0}, b = {0}, p, q;
    double total;
    ptrdiff_t j = 0;
    for (; j + 8 <= d; j += 8) {
        memcpy(&p, x + j, sizeof p);
        memcpy(&q, x + j + 4, sizeof q);
        a += p * p;
        b += q * q;
    }
    if (j + 4 <= d) {
        memcpy(&p, x + j, sizeof p);
        a += p * p;
        j += 4;
    }
    a += b;
    total = (a[0] + a[1]) + (a[2] + a[3]);
    for (; j < d; j++)
        total += x[j] * x[j];
    return total;
}
#else
static inline double dmq_square(const double *x, ptrdiff_t d)
{
    double a[8] = {0.0}, total;
    ptrdiff_t j = 0;
    for (; j + 8 <= d; j += 8)
        for (int l = 0; l < 8; l++)
            a[l] += x[j + l] * x[j + l];
    if (j + 4 <= d) {
        for (int l = 0; l < 4; l++)
            a[l] += x[j + l] * x[j + l];
        j += 4;
    }
    for (int l = 0; l < 4; l++)
        a[l] += a[l + 4];
    total = (a[0] + a[1]) + (a[2] + a[3]);
    for (; j < d; j++)
        total += x[j] * x[j];
    return total;
}
#endif

/* Sum of eight partial sums and of x_j y_j from j = i on. Eight of them fill the widest vector and hide the latency of
   one addition. */
static inline double dmq_dot_rest(double *sums, const double *x, const double *y, ptrdiff_t i, ptrdiff_t n)
{
    double rest = 0.0;
    for (; i + 7 < n; i += 8)
        for (int l = 0; l < 8; l++)
            sums[l] += x[i + l] * y[i + l];
    for (; i < n; i++)
        rest += x[i] * y[i];
    for (int l = 0; l < 4; l++)
        sums[l] += sums[l + 4];
    return ((sums[0] + sums[2]) + (sums[1] + sums[3])) + rest;
}

/* Sum of x_j y_j. */
static inline double dmq_dot(const double *x, const double *y, ptrdiff_t n)
{
    double sums[8] = {0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0};
    return dmq_dot_rest(sums, x, y, 0, n);
}

/* Sum of x_j y_j for n >= 8, as `dmq_dot` adds it, where the first eight y_j are those of `head`. */
static inline double dmq_dot_from(const double *head, const double *x, const double *y, ptrdiff_t n)
{
    double sums[8];
    for (int l = 0; l < 8; l++)
        sums[l] = 0.0 + x[l] * head[l];
    return dmq_dot_rest(sums, x, y, 8, n);
}

/* Sum of x_j. */
static inline double dmq_sum(const double *x, ptrdiff_t n)
{
    double lane[8] = {0.0}, total = 0.0;
    for (ptrdiff_t j = 0; j + 8 <= n; j += 8)
        for (int c = 0; c < 8; c++)
            lane[c] += x[j + c];
    for (int c = 0; c < 8; c++)
        total += lane[c];
    for (ptrdiff_t j = n - n % 8; j < n; j++)
        total += x[j];
    return total;
}

#endif
