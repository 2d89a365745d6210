/* Greedy actions of rows of features, four rows and four actions at a time. */
#ifndef DMQ_GREEDY_H
#define DMQ_GREEDY_H

#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include "dmq_wide.h"

#ifdef DMQ_VECTORS
typedef double dmq_four __attribute__((vector_size(32)));
typedef int64_t dmq_long __attribute__((vector_size(32)));

/* s[a] <- the scores of four rows of phi (each d) for action a of packed (d, 4). Every score is summed over the
   features in order, whatever the vector width, so the bits are those of a plain loop on every machine. */
static inline __attribute__((always_inline)) void dmq_scores(
    const double *const p[4], const double *packed, ptrdiff_t d, dmq_four s[4])
{
    dmq_four r0 = {0}, r1 = {0}, r2 = {0}, r3 = {0}, t;
    for (ptrdiff_t i = 0; i < d; i++) {
        memcpy(&t, packed + 4 * i, sizeof t);
        r0 += p[0][i] * t;
        r1 += p[1][i] * t;
        r2 += p[2][i] * t;
        r3 += p[3][i] * t;
    }
    for (int a = 0; a < 4; a++)
        s[a] = (dmq_four) {r0[a], r1[a], r2[a], r3[a]};
}

/* The greedy actions of n rows and their scores; -1, or the first row with a score that is not finite. Four rows at
   a time, which are the lanes, and four actions. Selections instead of branches, as the best action cannot be
   predicted. */
DMQ_WIDE static ptrdiff_t dmq_greedy_rows(
    const double *phi, ptrdiff_t n, ptrdiff_t n_actions, ptrdiff_t d, const double *packed, int64_t *action,
    double *value)
{
    for (ptrdiff_t first = 0; first < n; first += 4) {
        ptrdiff_t size = n - first < 4 ? n - first : 4;
        const double *p[4];
        dmq_four s[4], best = {-INFINITY, -INFINITY, -INFINITY, -INFINITY}, poison = {0};
        dmq_long taken = {0};
        /* A short last block repeats its last row. */
        for (ptrdiff_t r = 0; r < 4; r++)
            p[r] = phi + (first + (r < size ? r : size - 1)) * d;
        for (ptrdiff_t done = 0; done < n_actions; done += 4) {
            dmq_scores(p, packed + done * d, d, s);
            for (int a = 0; a < 4 && a < n_actions - done; a++) {
                dmq_long better = (dmq_long) (s[a] > best), this = {done + a, done + a, done + a, done + a};
                best = (dmq_four) (((dmq_long) s[a] & better) | ((dmq_long) best & ~better));
                taken = (this & better) | (taken & ~better);
                poison += s[a] * 0.0;
            }
        }
        for (ptrdiff_t r = 0; r < size; r++) {
            value[first + r] = best[r];
            action[first + r] = taken[r];
            if (poison[r] != 0.0)
                return first + r;
        }
    }
    return -1;
}
#else
static ptrdiff_t dmq_greedy_rows(
    const double *phi, ptrdiff_t n, ptrdiff_t n_actions, ptrdiff_t d, const double *packed, int64_t *action,
    double *value)
{
    for (ptrdiff_t row = 0; row < n; row++) {
        double best = -INFINITY, poison = 0.0;
        int64_t taken = 0;
        for (ptrdiff_t a = 0; a < n_actions; a++) {
            const double *theta = packed + (a / 4 * d) * 4 + a % 4;
            double s = 0.0;
            for (ptrdiff_t i = 0; i < d; i++)
                s += phi[row * d + i] * theta[4 * i];
            taken = s > best ? a : taken;
            best = s > best ? s : best;
            poison += s * 0.0;
        }
        value[row] = best;
        action[row] = taken;
        if (poison != 0.0)
            return row;
    }
    return -1;
}
#endif

#endif
