/* Checks of what an environment wrote for a block of trajectories. */
#ifndef DMQ_SIMULATE_H
#define DMQ_SIMULATE_H

#include <math.h>
#include <stddef.h>
#include "dmq_reduce.h"
#include "dmq_wide.h"

/* The first of n rows (n, d) whose sum of squares is not <= most, or -1. */
DMQ_WIDE static ptrdiff_t dmq_too_long(const double *rows, ptrdiff_t n, ptrdiff_t d, double most)
{
    for (ptrdiff_t i = 0; i < n; i++)
        if (!(dmq_square(rows + i * d, d) <= most))
            return i;
    return -1;
}

/* The first of n numbers that is not finite, or -1. */
DMQ_WIDE static ptrdiff_t dmq_not_finite(const double *r, ptrdiff_t n)
{
    for (ptrdiff_t i = 0; i < n; i++)
        if (!isfinite(r[i]))
            return i;
    return -1;
}

#endif
