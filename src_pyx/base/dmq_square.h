/* The sum of squares of x (d,), in an order that no vector width changes. */
#ifndef DMQ_SQUARE_H
#define DMQ_SQUARE_H

#include <stddef.h>
#include <string.h>

typedef double dmq_square_four __attribute__((vector_size(32)));

static inline double dmq_square(const double *x, ptrdiff_t d)
{
    dmq_square_four a = {0}, b = {0}, p, q;
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

#endif
