/* Loops over K Cholesky factors of one dimension d, one behind the other: U_k (d, d) row-major in the upper triangle. */
#ifndef DMQ_ARMS_H
#define DMQ_ARMS_H

#include <stddef.h>
#include <string.h>
#include "dmq_rotate.h"
#include "dmq_wide.h"

/* Factors that are solved with side by side: each hides the latency of the others' divisions. */
#define DMQ_ARMS 4
/* Entries that are solved for before they are subtracted from those behind them. */
#define DMQ_PIVOTS 4

/* For each of n factors: a <- U^{-T} x in `work` (DMQ_ARMS, d), mean <- z . a and square <- a . a, for x of `stride` 0
   (the same for all) or d. Every entry of a sees the operations of one solve after another, in their order. */
DMQ_WIDE static void dmq_look(
    const double* restrict u, const double* restrict z, const double* restrict x, ptrdiff_t stride,
    double* restrict mean, double* restrict square, double* restrict work, ptrdiff_t n, ptrdiff_t d)
{
    for (ptrdiff_t first = 0; first < n; first += DMQ_ARMS) {
        ptrdiff_t group = n - first < DMQ_ARMS ? n - first : DMQ_ARMS, k = 0;
        double total[DMQ_ARMS] = {0.0}, product[DMQ_ARMS] = {0.0}, solved[DMQ_ARMS][DMQ_PIVOTS];
        for (ptrdiff_t a = 0; a < group; a++)
            memcpy(work + a * d, x + (first + a) * stride, d * sizeof(double));
        for (; k + DMQ_PIVOTS <= d; k += DMQ_PIVOTS) {
            /* First what has to wait for divisions, for all factors: the processor then overlaps the waiting. */
            for (ptrdiff_t a = 0; a < group; a++) {
                const double* r0 = u + ((first + a) * d + k) * d + k;
                const double* r1 = r0 + d;
                const double* r2 = r1 + d;
                const double* r3 = r2 + d;
                const double* zk = z + (first + a) * d + k;
                const double* w = work + a * d + k;
                double w0 = w[0] / r0[0];
                double w1 = (w[1] - r0[1] * w0) / r1[1];
                double w2 = (w[2] - r0[2] * w0 - r1[2] * w1) / r2[2];
                double w3 = (w[3] - r0[3] * w0 - r1[3] * w1 - r2[3] * w2) / r3[3];
                total[a] = total[a] + w0 * w0 + w1 * w1 + w2 * w2 + w3 * w3;
                product[a] = product[a] + w0 * zk[0] + w1 * zk[1] + w2 * zk[2] + w3 * zk[3];
                solved[a][0] = w0;
                solved[a][1] = w1;
                solved[a][2] = w2;
                solved[a][3] = w3;
            }
            for (ptrdiff_t a = 0; a < group; a++) {
                const double* r0 = u + ((first + a) * d + k) * d;
                const double* r1 = r0 + d;
                const double* r2 = r1 + d;
                const double* r3 = r2 + d;
                double* restrict w = work + a * d;
                double w0 = solved[a][0], w1 = solved[a][1], w2 = solved[a][2], w3 = solved[a][3];
                for (ptrdiff_t j = k + DMQ_PIVOTS; j < d; j++)
                    w[j] = w[j] - r0[j] * w0 - r1[j] * w1 - r2[j] * w2 - r3[j] * w3;
            }
        }
        for (ptrdiff_t a = 0; a < group; a++) {
            double* w = work + a * d;
            for (ptrdiff_t i = k; i < d; i++) {
                const double* row = u + ((first + a) * d + i) * d;
                w[i] /= row[i];
                total[a] += w[i] * w[i];
                product[a] += w[i] * z[(first + a) * d + i];
                for (ptrdiff_t j = i + 1; j < d; j++)
                    w[j] -= row[j] * w[i];
            }
            mean[first + a] = product[a];
            square[first + a] = total[a];
        }
    }
}

/* (U, z) <- those of U^T U + w w^T and U^T z + y w. w is destroyed. */
DMQ_WIDE static void dmq_learn(double* restrict u, double* restrict z, double* restrict w, double y, ptrdiff_t d)
{
    dmq_add_row(u, w, z, &y, d);
}

#endif
