/* Whether arrays are finite. */
#ifndef DMQ_FINITE_H
#define DMQ_FINITE_H

#include <stddef.h>
#include "dmq_wide.h"

/* Whether none of x (n,) is NaN or infinite: these survive a product with zero. The sums fill two of the widest vectors. */
#define DMQ_FINITE(NAME, REAL, SUMS) \
    DMQ_WIDE static int NAME(const REAL *x, ptrdiff_t n) \
    { \
        REAL sums[SUMS] = {0}, rest = 0; \
        ptrdiff_t i = 0; \
        for (; i + SUMS <= n; i += SUMS) \
            for (int l = 0; l < SUMS; l++) \
                sums[l] += x[i + l] * (REAL) 0; \
        for (; i < n; i++) \
            rest += x[i] * (REAL) 0; \
        for (int l = 0; l < SUMS; l++) \
            rest += sums[l]; \
        return rest == 0; \
    }

DMQ_FINITE(dmq_finite, double, 16)

#endif
