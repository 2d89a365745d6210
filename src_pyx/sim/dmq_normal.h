/* Standard normals from uniforms and from words of 32 bits; see _normal.pyx. */
#ifndef DMQ_NORMAL_H
#define DMQ_NORMAL_H

#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include "dmq_wide.h"

#define DMQ_HORNER_6(x, c0, c1, c2, c3, c4, c5, c6) \
    ((((((c6 * x + c5) * x + c4) * x + c3) * x + c2) * x + c1) * x + c0)

/* Integers handled together, few enough for the first-level cache. */
enum { DMQ_SOME = 256 };

/* An odd integer a in (-2^26, 2^26) stands for the quantile of 1/2 + a / 2^27, in a tail for |a| > DMQ_CENTRE. */
enum { DMQ_HALF = 1 << 26, DMQ_CENTRE = 66773319 };

DMQ_WIDE static void dmq_halves(const double *restrict u, ptrdiff_t n, int32_t *restrict a, int32_t *restrict b)
{
    for (ptrdiff_t i = 0; i < n; i++) {
        double x = u[i] * DMQ_HALF;
        int32_t high = (int32_t) x, low = (int32_t) ((x - high) * DMQ_HALF);
        a[i] = 2 * high + 1 - DMQ_HALF;
        b[i] = 2 * low + 1 - DMQ_HALF;
    }
}

DMQ_WIDE static void dmq_odd(const uint32_t *restrict words, ptrdiff_t n, int32_t *restrict a)
{
    for (ptrdiff_t i = 0; i < n; i++)
        a[i] = 2 * (int32_t) (words[i] >> 6) + 1 - DMQ_HALF;
}

/* In the centre, |a| <= c = .995 2^26: x = a / 2^26 times a rational function of s = c^2 / 2^52 - x^2, minimax in
   relative error (5.1e-8). Its coefficients are positive, and s is a product, so that nothing cancels. Powers of 2 are
   exact factors wherever they stand. */
DMQ_WIDE static void dmq_centre(const int32_t *restrict a, ptrdiff_t n, float *restrict z)
{
    for (ptrdiff_t i = 0; i < n; i++) {
        float s = (float) (DMQ_CENTRE - a[i]) * (float) (DMQ_CENTRE + a[i]) * 0x1p-52f;
        z[i] = a[i] * 0x1p-26f
            * (DMQ_HORNER_6(s, 2.82113862f, 374.304657f, 14027.0801f, 165982.078f, 568278.062f, 444733.844f,
                            36979.7148f)
               / DMQ_HORNER_6(s, 1.0f, 143.706635f, 6041.52832f, 84506.9141f, 370841.906f, 434070.844f,
                              88649.8906f));
    }
}

/* log x of a normal x in (0, 1/2): x = 2^e m with m in [sqrt(1/2), sqrt(2)), and log m = 2 artanh t with
   t = (m - 1)/(m + 1), whose series is cut where terms fall below 2^-27 of the first, since t^2 < .0295. */
static inline float dmq_log(float x)
{
    const uint32_t root = 0x3f3504f3, one = 0x3f800000;
    uint32_t bits;
    float e, m, t, w;
    memcpy(&bits, &x, sizeof bits);
    bits += one - root;
    e = (float) ((int32_t) (bits >> 23) - 127);
    bits = (bits & 0x007fffff) + root;
    memcpy(&m, &bits, sizeof m);
    t = (m - 1.0f) / (m + 1.0f);
    w = t * t;
    return e * 0.693147181f + 2.0f * (t + t * w * (1.0f / 3 + w * (1.0f / 5 + w * (1.0f / 7 + w * (1.0f / 9)))));
}

/* In a tail: a polynomial in sqrt(-log p), p the smaller tail, minimax in relative error (5.9e-8). */
static inline float dmq_tail(int32_t a)
{
    float p = (DMQ_HALF - (a < 0 ? -a : a)) * 0x1p-27f, r = sqrtf(-dmq_log(p)) - 3.25f;
    float z = DMQ_HORNER_6(r, 4.04764175f, 1.52187717f, -0.0245752502f, 0.00594688905f, -0.00150852674f,
                           0.00042093129f, -9.34113414e-05f);
    return a < 0 ? -z : z;
}

/* far (n,) <- whether a lies in a tail. */
DMQ_WIDE static void dmq_far(const int32_t *restrict a, ptrdiff_t n, uint8_t *restrict far)
{
    for (ptrdiff_t i = 0; i < n; i++)
        far[i] = (uint32_t) a[i] + DMQ_CENTRE > 2u * DMQ_CENTRE;
}

/* Replace the z that lie in a tail. One in two hundred does, so eight at a time are passed over. */
static void dmq_tails(const int32_t *a, ptrdiff_t n, float *z)
{
    uint8_t far[DMQ_SOME] = {0};
    dmq_far(a, n, far);
    for (ptrdiff_t first = 0; first < n; first += 8) {
        uint64_t any;
        memcpy(&any, far + first, sizeof any);
        for (ptrdiff_t i = first; any && i < first + 8; i++)
            if (far[i])
                z[i] = dmq_tail(a[i]);
    }
}

/* z (n,) <- the quantiles of a (n,), n <= DMQ_SOME. */
static void dmq_quantiles(const int32_t *a, ptrdiff_t n, float *z)
{
    dmq_centre(a, n, z);
    dmq_tails(a, n, z);
}

/* high, low (n,) <- the normals of u (n,), n <= DMQ_SOME. */
static inline void dmq_normals(const double *u, ptrdiff_t n, float *high, float *low)
{
    int32_t a[DMQ_SOME], b[DMQ_SOME];
    dmq_halves(u, n, a, b);
    dmq_quantiles(a, n, high);
    dmq_quantiles(b, n, low);
}

/* z (n,) <- the normals of the first 26 binary digits of words (n,), n <= DMQ_SOME. */
static inline void dmq_normals_of_words(const uint32_t *words, ptrdiff_t n, float *z)
{
    int32_t a[DMQ_SOME];
    dmq_odd(words, n, a);
    dmq_quantiles(a, n, z);
}

#endif
