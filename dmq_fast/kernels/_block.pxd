"""Block MDPs: what other kernels use of their noise."""

# z (n,) <- the standard normal quantiles of u (n,), elsewhere; see `normal_quantiles`.
cdef void normal_quantiles_into(const double* u, Py_ssize_t n, double* z) noexcept nogil
