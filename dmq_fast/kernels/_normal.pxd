"""Standard normals from uniforms."""

# Uniforms of one call of `normal_piece`, at most.
cdef enum:
    PIECE = 256

# high, low (n,) <- the two normals of each of n <= PIECE uniforms u.
cdef void normal_piece(const double* u, Py_ssize_t n, float* high, float* low) noexcept nogil

# z (size,) <- normals of (size + 1) // 2 uniforms u: those of their first halves, then those of the second. Any size.
cdef void normals_into(const double* u, double* z, Py_ssize_t size) noexcept nogil

# A new array (m, n) of standard normals, or (n,) if m is negative. A numpy.random.Generator goes on; a Stream is read
# from its beginning, (n + 1) // 2 uniforms a row. TypeError for anything else.
cdef object standard_normals(rng, Py_ssize_t m, Py_ssize_t n)
