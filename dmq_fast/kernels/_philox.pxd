"""Philox4x64-10 (Salmon et al., 2011), bit for bit the stream of numpy.random.Philox; and standard normals."""

from libc.stdint cimport uint64_t

# A position in one stream. buffer[used:4] holds the words that are still to be used.
cdef struct Philox:
    uint64_t key[2]
    uint64_t counter[4]
    uint64_t buffer[4]
    int used

# generator <- the beginning of a stream: counter (0, 0, chunk, call).
cdef void philox_open(Philox* generator, Stream stream) noexcept

# out (n,) <- uniforms on [0, 1) with 53 bits, the same as numpy.random.Generator.random.
cdef void philox_uniforms(Philox* generator, double* out, Py_ssize_t n) noexcept nogil

cdef class Stream:
    cdef uint64_t _key[2]
    cdef uint64_t _call
    cdef uint64_t _chunk

# z (size,) <- normals of (size + 1) // 2 uniforms u: those of their first halves, then those of the second. Any size.
cdef void normals_into(const double* u, double* z, Py_ssize_t size) noexcept nogil

# A new array (m, n) of standard normals, or (n,) if m is negative. A numpy.random.Generator goes on; a Stream is read
# from its beginning, (n + 1) // 2 uniforms a row. TypeError for anything else.
cdef object standard_normals(rng, Py_ssize_t m, Py_ssize_t n)
