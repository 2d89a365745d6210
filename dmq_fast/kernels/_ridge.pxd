"""Ridge regression from moments."""

# theta (d,) <- (gram / n + ridge I)^{-1} (moment / n). `work` has d * d doubles.
# Returns 0, or k >= 1 when the leading minor of order k is not positive definite.
cdef int fit(
    double* theta, const double* gram, const double* moment, double n, double ridge, double* work, Py_ssize_t d
) noexcept nogil
