"""The Distribution Shift Error Checking oracle for linear functions."""

# What `decide` can answer.
cdef enum Answer:
    NO_SHIFT = 0
    SHIFT = 1
    NOT_FINITE = -1

# Whether lambda_max((S + eps_r I)^{-1} M2) >= ratio: one Cholesky of ratio (S + eps_r I) - M2.
# `work` has d * d doubles.
cdef int decide(
    const double* s, const double* m2, double ratio, double eps_r, double* work, Py_ssize_t d
) noexcept nogil

# Doubles of workspace for `shift_value`.
cdef Py_ssize_t value_work_size(Py_ssize_t d) noexcept nogil

# lambda_max((S + eps_r I)^{-1} M2) in `value`; with `witness` not NULL, x (d,) with
# x^T (S + eps_r I) x = 1 and x^T M2 x = value. Returns 0; k >= 1 when the leading minor of order k of
# S + eps_r I is not positive definite; NOT_FINITE, also where the eigenvalue overflows; or -100 - |info| of the
# eigenvalue routine.
cdef int shift_value(
    const double* s, const double* m2, double eps_r, double* value, double* witness, double* work, Py_ssize_t d
) noexcept nogil
