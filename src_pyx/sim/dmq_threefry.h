/* Threefry4x32 with 20 rounds (Salmon et al., 2011, "Parallel random numbers: as easy as 1, 2, 3"), with the key 0. It
   needs only additions, rotations and exclusive ors, so compilers compute many blocks at a time, on any machine. */
#ifndef DMQ_THREEFRY_H
#define DMQ_THREEFRY_H

#include <stddef.h>
#include <stdint.h>
#include "dmq_wide.h"

#define DMQ_MIX(a, b, turn) \
    a += b; \
    b = (b << turn | b >> (32 - turn)) ^ a;

#define DMQ_TWO_ROUNDS(a, b, c, d) \
    DMQ_MIX(x0, x1, a) DMQ_MIX(x2, x3, b) \
    DMQ_MIX(x0, x3, c) DMQ_MIX(x2, x1, d)

#define DMQ_ODD_ROUNDS DMQ_TWO_ROUNDS(10, 26, 11, 21) DMQ_TWO_ROUNDS(13, 27, 23, 5)
#define DMQ_EVEN_ROUNDS DMQ_TWO_ROUNDS(6, 20, 17, 11) DMQ_TWO_ROUNDS(25, 10, 18, 20)

/* words (4, n) <- the blocks of n counters (4, n). After every four rounds the next five of the extended key are added,
   which are 0 but for the parity, and the number of the addition. */
DMQ_WIDE static void dmq_threefry(const uint32_t *restrict counters, ptrdiff_t n, uint32_t *restrict words)
{
    const uint32_t parity = 0x1bd11bda;
    for (ptrdiff_t i = 0; i < n; i++) {
        uint32_t x0 = counters[i], x1 = counters[n + i], x2 = counters[2 * n + i], x3 = counters[3 * n + i];
        DMQ_ODD_ROUNDS
        x3 += parity + 1;
        DMQ_EVEN_ROUNDS
        x2 += parity;
        x3 += 2;
        DMQ_ODD_ROUNDS
        x1 += parity;
        x3 += 3;
        DMQ_EVEN_ROUNDS
        x0 += parity;
        x3 += 4;
        DMQ_ODD_ROUNDS
        x3 += 5;
        words[i] = x0;
        words[n + i] = x1;
        words[2 * n + i] = x2;
        words[3 * n + i] = x3;
    }
}

#endif
