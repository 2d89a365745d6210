/* A Givens rotation of two rows. */
#ifndef DMQ_ROTATE_H
#define DMQ_ROTATE_H

#include <stddef.h>

/* (u, w) <- (c u + s w, c w - s u), entry by entry. */
static inline void dmq_rotate(
    double* restrict u, double* restrict w, double c, double s, ptrdiff_t n)
{
    for (ptrdiff_t j = 0; j < n; j++) {
        double t = u[j];
        u[j] = c * t + s * w[j];
        w[j] = c * w[j] - s * t;
    }
}

#endif
