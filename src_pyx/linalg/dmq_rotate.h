/* Givens rotations of rows, and of a row into a Cholesky factor. */
#ifndef DMQ_ROTATE_H
#define DMQ_ROTATE_H

#include <math.h>
#include <stddef.h>

typedef struct {
    double c, s;
} dmq_rotation;

/* (u, w) <- (c u + s w, c w - s u), entry by entry. */
static inline void dmq_rotate(double* restrict u, double* restrict w, dmq_rotation by, ptrdiff_t n)
{
    for (ptrdiff_t j = 0; j < n; j++) {
        double t = u[j];
        u[j] = by.c * t + by.s * w[j];
        w[j] = by.c * w[j] - by.s * t;
    }
}

/* Rotate (u, w), then (v, w): two calls of `dmq_rotate`, to the bit, that read and write w once. */
static inline void dmq_rotate_two(
    double* restrict u, double* restrict v, double* restrict w, dmq_rotation first, dmq_rotation second, ptrdiff_t n)
{
    for (ptrdiff_t j = 0; j < n; j++) {
        double t = u[j], between = first.c * w[j] - first.s * t;
        u[j] = first.c * t + first.s * w[j];
        t = v[j];
        v[j] = second.c * t + second.s * between;
        w[j] = second.c * between - second.s * t;
    }
}

/* Rotate entry k of w away: (U_kk, w_k) <- (r, 0), and (z_k, y) along with them if `z` is not NULL. The rest of row k
   and of w has to follow. */
static inline dmq_rotation dmq_eliminate(double* u, const double* w, double* z, double* y, ptrdiff_t k, ptrdiff_t d)
{
    double a = u[k * d + k], b = w[k], r = sqrt(a * a + b * b);
    dmq_rotation by = {a / r, b / r};
    u[k * d + k] = r;
    if (z)
        dmq_rotate(z + k, y, by, 1);
    return by;
}

/* (U, z) <- those of U^T U + w w^T and U^T z + y w, for U (d, d) row-major in the upper triangle; z may be NULL. w and
   y are destroyed. Rows are rotated in pairs. */
static inline void dmq_add_row(double* u, double* w, double* z, double* y, ptrdiff_t d)
{
    for (ptrdiff_t k = 0; k < d; k++) {
        if (w[k] == 0.0)
            continue;
        double* row = u + k * d;
        dmq_rotation by = dmq_eliminate(u, w, z, y, k, d);
        if (++k == d)
            return;
        dmq_rotate(row + k, w + k, by, 1);
        if (w[k] == 0.0)
            dmq_rotate(row + k + 1, w + k + 1, by, d - k - 1);
        else
            dmq_rotate_two(
                row + k + 1, row + d + k + 1, w + k + 1, by, dmq_eliminate(u, w, z, y, k, d), d - k - 1);
    }
}

#endif
