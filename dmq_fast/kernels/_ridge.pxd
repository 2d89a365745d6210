"""Ridge regression from moments."""

cdef enum:
    NOT_FINITE = -1

# theta (d,) <- (gram / n + ridge I)^{-1} (moment / n); the lower triangle of gram is read. `work` has d * d doubles.
# Returns 0; k >= 1 when the leading minor of order k is not positive definite; or NOT_FINITE when a mean or the
# estimate is not finite.
cdef int fit(
    double* theta, const double* gram, const double* moment, double n, double ridge, double* work, Py_ssize_t d
) noexcept nogil
