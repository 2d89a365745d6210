"""Standard normals from uniforms."""

# z (size,) <- normals of (size + 1) // 2 uniforms u: those of their first halves, then those of the second. Any size.
cdef void normals_into(const double* u, double* z, Py_ssize_t size) noexcept nogil

# A new array (m, n) of standard normals, or (n,) if m is negative. A numpy.random.Generator goes on; a Stream is read
# from its beginning, (n + 1) // 2 uniforms a row. TypeError for anything else.
cdef object standard_normals(rng, Py_ssize_t m, Py_ssize_t n)
