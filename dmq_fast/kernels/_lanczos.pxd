"""The top eigenvalue of a symmetric pencil (A, U^T U) by the Lanczos iteration, with a bound that can be proved.

With C = U^{-T} A U^{-1}, a unit vector z, its Rayleigh quotient t = z^T C z and its residual r = |C z - t z|, the top
eigenvalue of C is t at least. If no other eigenvalue is above a number s < t, it is t + r^2 / (t - s) at most (Temple
and Kato). A caller can prove the condition: one eigenvalue at most is >= s if, for any vector y, s U^T U - A + y y^T is
positive definite, because y^T x = 0 leaves out one dimension only.

The iteration ends as soon as z stands out. The factor of that proof then makes z as exact as one likes (see
`top_by_lanczos` in _dsec.pyx), at less than the steps that are left would cost.
"""

cdef struct Ritz:
    # t, s and r. The iteration takes s between the two top Ritz values, near to the first: the second still grows.
    double value
    double apart
    double residual

# Whether the bound above is within `tolerance` of t, relative to it.
cdef inline bint within(const Ritz* found, double tolerance) noexcept nogil:
    cdef double relative = found.residual / found.value
    return found.value > 0.0 and relative * relative <= tolerance * ((found.value - found.apart) / found.value)

# Doubles of workspace for `lanczos`.
cdef Py_ssize_t lanczos_work_size(Py_ssize_t d) noexcept nogil

# Iterates until r <= (t - s) / 2. Upper triangles of a (d, d) and of the factor u (d, d) are read. The vector is left
# in z (d,); `basis` has room for most <= d rows of d. Returns the number of steps, or 0 if the iteration did not
# converge in fewer than `most`, or met a number that is not finite.
cdef Py_ssize_t lanczos(
    const double* a, const double* u, double* basis, Py_ssize_t most, double* z, Ritz* found, double* work,
    Py_ssize_t d
) noexcept nogil
