/* DMQ_WIDE before a function: compile it for the wider vectors of x86-64 too, and choose when the module loads.
   Only for loops whose every entry is computed on its own: as nothing is contracted (setup.py), the bits are then the
   same at any width. The sanitizers run too late for the choice. */
#ifndef DMQ_WIDE_H
#define DMQ_WIDE_H

#include <stddef.h>

#if defined(__GNUC__) && !defined(__clang__) && defined(__x86_64__) && defined(__linux__) && defined(__GLIBC__) \
    && !defined(__SANITIZE_ADDRESS__)
#define DMQ_WIDE __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define DMQ_WIDE
#endif

#endif
