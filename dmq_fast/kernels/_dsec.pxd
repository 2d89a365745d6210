"""The Distribution Shift Error Checking oracle for linear functions.

Moments are symmetric positive semidefinite, row-major (d, d); their upper triangles are read.
"""

from dmq_fast.kernels._memory cimport Buffer

# Answers of `decide`.
cdef enum Answer:
    # v < eps2, and v >= eps2; both certain for the numbers given.
    NO_SHIFT = 0
    SHIFT = 1
    # The same, if double-double arithmetic cannot decide: |v - eps2| is too small.
    MARGINAL_NO_SHIFT = 2
    MARGINAL_SHIFT = 3
    # A number is NaN or infinite, or an intermediate result overflows.
    NOT_FINITE = -1

# Doubles of workspace for `decide` and `shift_value`.
cdef Py_ssize_t decide_work_size(Py_ssize_t d) noexcept nogil
cdef Py_ssize_t value_work_size(Py_ssize_t d) noexcept nogil

# Whether v = eps1 lambda_max((S + eps_r I)^{-1} M2) >= eps2, by factorisations of (eps2 / eps1) (S + eps_r I) - M2.
cdef Answer decide(
    const double* s, const double* m2, double eps1, double eps2, double eps_r, double* work, Py_ssize_t d
) noexcept nogil

# The same for the sum n M2, by factorisations of (n eps2 / eps1) (S + eps_r I) - n M2; n eps2 is not rounded.
cdef Answer decide_sum(
    const double* s, const double* sum, double n, double eps1, double eps2, double eps_r, double* work, Py_ssize_t d
) noexcept nogil

# The steps of `decide_sum`: an answer that float64 proves, else NOT_FINITE; and the answer of double-double arithmetic.
# Entry ij of the sum has seen that many roundings of n (M2_ii M2_jj)^{1/2} at most. The second adds the `rest` (d, d),
# upper triangle, that was rounded away, unless it is NULL: then the entries are taken as they are.
cdef Answer decide_robustly(
    const double* s, const double* sum, double roundings, double n, double eps1, double eps2, double eps_r,
    double* work, Py_ssize_t d
) noexcept nogil
cdef Answer decide_exactly(
    const double* s, const double* sum, const double* rest, double roundings, double n, double eps1, double eps2,
    double eps_r, double* work, Py_ssize_t d
) noexcept nogil

# Whether an answer is True.
cdef inline bint says_true(Answer answer) noexcept nogil:
    return answer == SHIFT or answer == MARGINAL_SHIFT

# lambda_max((S + eps_r I)^{-1} M2) in `value`; with `witness` not NULL, x (d,) with
# x^T (S + eps_r I) x = 1 and x^T M2 x = value. Returns 0; k >= 1 when the leading minor of order k of
# S + eps_r I is not positive definite; NOT_FINITE; or -100 + info of the eigenvalue routine.
cdef int shift_value(
    const double* s, const double* m2, double eps_r, double* value, double* witness, double* work, Py_ssize_t d
) noexcept nogil

# The oracle calls of one batch of trajectories: levels scanned downwards, up to the first True. A subclass has its
# moments in one form. The values play no part in the decisions.
cdef class Scan:
    cdef readonly double eps_s
    cdef readonly double eps_t
    cdef readonly bint with_values
    # Number of answers so far that were marginal; see `DsecResult`.
    cdef readonly Py_ssize_t n_marginal
    cdef Buffer work

    # Check and set the thresholds.
    cdef int begin(self, eps_s, eps_t, bint with_values) except -1

    # Return the first of the levels top, ..., bottom with the answer True, or -1, and v of each level tested.
    cdef tuple descend(self, double n, Py_ssize_t top, Py_ssize_t bottom)

    # For a level: take its moments; lambda_max of the sum of n states, as `shift_value` returns it; and the answer.
    cdef int enter(self, Py_ssize_t level) except -1
    cdef int top_value(self, double* value) except? -1000
    cdef Answer decision(self, double n) except? NOT_FINITE
