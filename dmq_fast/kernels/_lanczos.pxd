"""The top eigenvalue of a symmetric pencil (A, U^T U) by the Lanczos iteration, with a bound that can be proved.

With C = U^{-T} A U^{-1}, a unit vector z, its Rayleigh quotient t = z^T C z and its residual r = |C z - t z|, the top
eigenvalue of C is t at least. If no other eigenvalue is above a number s < t, it is t + r^2 / (t - s) at most (Temple
and Kato). A caller can prove the condition: one eigenvalue at most is >= s if, for any vector y, s U^T U - A + y y^T is
positive definite, because y^T x = 0 leaves out one dimension only.
"""

cdef struct Ritz:
    # t; the next Ritz value, which the second eigenvalue is not below; and r.
    double value
    double second
    double residual

# Whether the bound above is within `tolerance` of t, relative to it, with s = separator(t, second).
cdef inline bint within(double value, double second, double residual, double tolerance) noexcept nogil:
    cdef double relative = residual / value
    return value > 0.0 and relative * relative <= tolerance * ((value - separator(value, second)) / value)

# A number between the two top Ritz values, nearer to the first: the second still grows.
cdef inline double separator(double value, double second) noexcept nogil:
    return value - 0.25 * (value - second)

# Doubles of workspace for `lanczos`.
cdef Py_ssize_t lanczos_work_size(Py_ssize_t d) noexcept nogil

# Iterates until `within` holds. Upper triangles of a (d, d) and of the factor u (d, d) are read. The unit vector is
# left in z (d,); `basis` has room for most <= d rows of d. Returns the number of steps, or 0 if the iteration did not
# converge in fewer than `most`, or met a number that is not finite.
cdef Py_ssize_t lanczos(
    const double* a, const double* u, double tolerance, double* basis, Py_ssize_t most, double* z, Ritz* found,
    double* work, Py_ssize_t d
) noexcept nogil
