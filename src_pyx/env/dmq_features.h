/* The loops of the feature maps. Sines, cosines and exponentials are computed here, with the same bits at any vector
   width, because those of libm are slower and differ between machines. */
#ifndef DMQ_FEATURES_H
#define DMQ_FEATURES_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include "dmq_reduce.h"
#include "dmq_wide.h"

/* Largest angle of dmq_sincos: up to there a multiple of pi/2 has at most 20 bits. */
#define DMQ_LARGEST_ANGLE 1.0e6

/* 1.5 * 2^52: adding it to a number rounds that to an integer, which stands in the low bits of the sum. */
#define DMQ_ROUNDER 6755399441055744.0

/* sine, cosine (n,) <- scale times those of angle (n,), |angle| <= DMQ_LARGEST_ANGLE; NaN for NaN.
   angle = k pi/2 + r with pi/2 in three parts, the first two of 33 bits, so that k times these is exact; then the
   Taylor polynomials of r, whose remainder is below 1e-16 on [-pi/4, pi/4]. Without calls and branches the loop
   becomes vectors. */
DMQ_WIDE static void dmq_sincos(
    const double *restrict angle, ptrdiff_t n, double scale, double *restrict sine, double *restrict cosine)
{
    for (ptrdiff_t i = 0; i < n; i++) {
        double shifted = angle[i] * 0x1.45f306dc9c883p-1 + DMQ_ROUNDER, k = shifted - DMQ_ROUNDER;
        double r = angle[i] - k * 0x1.921fb544p+0 - k * 0x1.0b4611a6p-34 - k * 0x1.3198a2e037073p-69;
        double q = r * r;
        double s = r + r * q * (-1.0 / 6 + q * (1.0 / 120 + q * (-1.0 / 5040 + q * (1.0 / 362880
            + q * (-1.0 / 39916800 + q * (1.0 / 6227020800 + q * (-1.0 / 1307674368000)))))));
        double c = 1.0 + q * (-0.5 + q * (1.0 / 24 + q * (-1.0 / 720 + q * (1.0 / 40320 + q * (-1.0 / 3628800
            + q * (1.0 / 479001600 + q * (-1.0 / 87178291200 + q * (1.0 / 20922789888000))))))));
        uint64_t quarter, sbits, cbits, odd, out;
        s *= scale;
        c *= scale;
        memcpy(&quarter, &shifted, sizeof quarter);
        memcpy(&sbits, &s, sizeof sbits);
        memcpy(&cbits, &c, sizeof cbits);
        /* A quarter turn swaps sine and cosine, a half turn changes their signs. */
        odd = 0 - (quarter & 1);
        out = ((sbits & ~odd) | (cbits & odd)) ^ ((quarter & 2) << 62);
        memcpy(sine + i, &out, sizeof out);
        out = ((cbits & ~odd) | (sbits & odd)) ^ (((quarter + 1) & 2) << 62);
        memcpy(cosine + i, &out, sizeof out);
    }
}

/* x (n,) <- exp((shift - x) / 2) for x >= shift, 0 below exp(-700); NaN for NaN. The exponent is k log 2 + r with
   42 bits in the first part of log 2, so that k times it is exact; the remainder of the polynomial is below
   1e-17. */
DMQ_WIDE static void dmq_bumps(double *x, ptrdiff_t n, double shift)
{
    for (ptrdiff_t i = 0; i < n; i++) {
        double a = 0.5 * (shift - x[i]), b = a < -700.0 ? -700.0 : a;
        double shifted = b * 0x1.71547652b82fep+0 + DMQ_ROUNDER, k = shifted - DMQ_ROUNDER;
        double r = b - k * 0x1.62e42fefa38p-1 - k * 0x1.ef35793c76730p-45, power;
        double p = 1.0 + r * (1.0 + r * (0.5 + r * (1.0 / 6 + r * (1.0 / 24 + r * (1.0 / 120 + r * (1.0 / 720
            + r * (1.0 / 5040 + r * (1.0 / 40320 + r * (1.0 / 362880 + r * (1.0 / 3628800
            + r * (1.0 / 39916800 + r * (1.0 / 479001600 + r * (1.0 / 6227020800.0)))))))))))));
        uint64_t bits;
        memcpy(&bits, &shifted, sizeof bits);
        bits = (bits << 52) + ((uint64_t) 1023 << 52);
        memcpy(&power, &bits, sizeof power);
        x[i] = a < -700.0 ? 0.0 : p * power;
    }
}

/* out (d,) <- sum_i ((x_i - centers_ij) inverse_i)^2, centers (m, d). */
DMQ_WIDE static void dmq_distances(
    const double *restrict x, const double *restrict centers, const double *restrict inverse, ptrdiff_t m,
    ptrdiff_t d, double *restrict out)
{
    for (ptrdiff_t j = 0; j < d; j++) {
        double t = (x[0] - centers[j]) * inverse[0];
        out[j] = t * t;
    }
    for (ptrdiff_t i = 1; i < m; i++)
        for (ptrdiff_t j = 0; j < d; j++) {
            double t = (x[i] - centers[i * d + j]) * inverse[i];
            out[j] += t * t;
        }
}

/* The smallest x_j, in one order of the comparisons at any vector width. */
DMQ_WIDE static double dmq_smallest(const double *x, ptrdiff_t n)
{
    double lane[8], least;
    for (int c = 0; c < 8; c++)
        lane[c] = x[c < n ? c : 0];
    for (ptrdiff_t j = 8; j + 8 <= n; j += 8)
        for (int c = 0; c < 8; c++)
            lane[c] = x[j + c] < lane[c] ? x[j + c] : lane[c];
    least = lane[0];
    for (int c = 1; c < 8; c++)
        least = lane[c] < least ? lane[c] : least;
    for (ptrdiff_t j = n - n % 8; j < n; j++)
        least = x[j] < least ? x[j] : least;
    return least;
}

/* Sum of x_j. */
DMQ_WIDE static double dmq_wide_sum(const double *x, ptrdiff_t n)
{
    return dmq_sum(x, n);
}

/* x <- scale x */
DMQ_WIDE static void dmq_scale(double *x, ptrdiff_t n, double scale)
{
    for (ptrdiff_t j = 0; j < n; j++)
        x[j] *= scale;
}

/* out (d,) <- sum_i x_i frequencies_ij, frequencies (m, d). */
DMQ_WIDE static void dmq_angles(
    const double *restrict x, const double *restrict frequencies, ptrdiff_t m, ptrdiff_t d, double *restrict out)
{
    for (ptrdiff_t j = 0; j < d; j++)
        out[j] = x[0] * frequencies[j];
    for (ptrdiff_t i = 1; i < m; i++)
        for (ptrdiff_t j = 0; j < d; j++)
            out[j] += x[i] * frequencies[i * d + j];
}

/* phi ((order + 1)^m,) <- scale Re prod_i z_i^c_i over c in lexicographic order, z_i = cosine_i + i sine_i. `re`
   and `im` ((order + 1)^(m - 1),) hold the products over the last coordinates, one more in every round. */
DMQ_WIDE static void dmq_harmonics(
    const double *restrict cosine, const double *restrict sine, ptrdiff_t m, ptrdiff_t order, double scale,
    double *restrict pr, double *restrict pi, double *restrict re, double *restrict im, double *restrict phi)
{
    ptrdiff_t length = 1;
    for (ptrdiff_t i = m - 1; i >= 0; i--) {
        /* z^q = z^(q/2) z^(q - q/2): a short chain. The product with 0 keeps NaN. */
        pr[0] = 1.0 + 0.0 * cosine[i];
        pi[0] = 0.0;
        pr[1] = cosine[i];
        pi[1] = sine[i];
        for (ptrdiff_t q = 2; q <= order; q++) {
            ptrdiff_t a = q / 2, b = q - a;
            pr[q] = pr[a] * pr[b] - pi[a] * pi[b];
            pi[q] = pr[a] * pi[b] + pi[a] * pr[b];
        }
        if (m == 1)
            for (ptrdiff_t q = 0; q <= order; q++)
                phi[q] = scale * pr[q];
        else if (i == m - 1)
            for (ptrdiff_t q = 0; q <= order; q++) {
                re[q] = scale * pr[q];
                im[q] = scale * pi[q];
            }
        else if (i == 0)
            for (ptrdiff_t q = 0; q <= order; q++)
                for (ptrdiff_t c = 0; c < length; c++)
                    phi[q * length + c] = re[c] * pr[q] - im[c] * pi[q];
        else
            /* The factors, q = 0, go last. */
            for (ptrdiff_t q = order; q >= 0; q--)
                for (ptrdiff_t c = 0; c < length; c++) {
                    double a = re[c], b = im[c];
                    re[q * length + c] = a * pr[q] - b * pi[q];
                    im[q * length + c] = a * pi[q] + b * pr[q];
                }
        length *= order + 1;
    }
}

#endif
