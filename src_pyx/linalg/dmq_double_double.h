/* The inner loop of elimination in double-double arithmetic (see _double_double.pxd): numbers are sums high + low of two
   doubles, which stand in arrays of their own so that the loop runs in vectors. */
#ifndef DMQ_DOUBLE_DOUBLE_H
#define DMQ_DOUBLE_DOUBLE_H

#include <stddef.h>
#include "dmq_wide.h"

/* Veltkamp: 2^27 + 1 splits a double into halves of 26 bits. */
#define DMQ_SPLITTER 134217729.0

/* row <- row + factor x, entry by entry: a product of Dekker, renormalised, and the operations of `add`. */
DMQ_WIDE static void dmq_add_multiple(
    double* restrict row_high, double* restrict row_low, const double* restrict x_high, const double* restrict x_low,
    double factor_high, double factor_low, ptrdiff_t n)
{
    const double tf = DMQ_SPLITTER * factor_high;
    const double fh = tf - (tf - factor_high), fl = factor_high - fh;
    for (ptrdiff_t j = 0; j < n; j++) {
        double a = row_high[j], b = row_low[j], x = x_high[j];
        double tx = DMQ_SPLITTER * x;
        double xh = tx - (tx - x), xl = x - xh;
        /* factor x = p + e */
        double product = factor_high * x;
        double error = ((fh * xh - product) + fh * xl + fl * xh) + fl * xl;
        error += factor_high * x_low[j] + factor_low * x;
        double p = product + error, e = error - (p - product);
        /* a + p and b + e exactly */
        double high = a + p, t = high - a;
        double rest = (a - (high - t)) + (p - t);
        double low = b + e, s = low - b;
        double last = (b - (low - s)) + (e - s);
        /* renormalise twice */
        rest += low;
        double sum = high + rest;
        rest = (rest - (sum - high)) + last;
        high = sum + rest;
        row_high[j] = high;
        row_low[j] = rest - (high - sum);
    }
}

#endif
