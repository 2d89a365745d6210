/* DMQ_WIDE before a function compiles it for the wider vectors of x86-64 too; the choice is made when the module loads.
   Use it only for loops whose entries are computed independently, or summed in a fixed order: as nothing is contracted
   (setup.py), the bits are then the same at any width. Not under the sanitizers, which start after the choice. */
#ifndef DMQ_WIDE_H
#define DMQ_WIDE_H

#include <stddef.h>

#if defined(__GNUC__) && !defined(__clang__) && defined(__x86_64__) && defined(__linux__) && defined(__GLIBC__) \
    && !defined(__SANITIZE_ADDRESS__)
#define DMQ_WIDE __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define DMQ_WIDE
#endif

/* DMQ_VECTORS says that there are the vector types of GCC and Clang. Where there are none, and with -DDMQ_PLAIN, plain
   loops add in the same order: slower, with the same bits. */
#if (defined(__GNUC__) || defined(__clang__)) && !defined(DMQ_PLAIN)
#define DMQ_VECTORS
#endif

#endif
