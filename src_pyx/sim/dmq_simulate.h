/* Checks of what an environment wrote for a block of trajectories. */
#ifndef DMQ_SIMULATE_H
#define DMQ_SIMULATE_H

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

/* r <- scale (r + shift), in place; the first that is not in [0, most], or -1. */
DMQ_WIDE static ptrdiff_t dmq_rewards(double *restrict r, ptrdiff_t n, double shift, double scale, double most)
{
    int bad = 0;
    for (ptrdiff_t i = 0; i < n; i++) {
        r[i] = scale * (r[i] + shift);
        bad |= !(r[i] >= 0.0 && r[i] <= most);
    }
    if (bad)
        for (ptrdiff_t i = 0; i < n; i++)
            if (!(r[i] >= 0.0 && r[i] <= most))
                return i;
    return -1;
}

#endif
