"""The Distribution Shift Error Checking oracle for linear functions (paper, oracle 4.2 and section 6).

With M1 the regularised second moment of D1 and M2 that of D2,

    v = eps_1 lambda_max(M1^{-1/2} M2 M1^{-1/2}),    True  iff  v >= eps_2.

The decision needs no eigenvalue: with R = eps_2 / eps_1 it is True iff A = R M1 - M2 is not positive definite. Gaussian
elimination can prove either answer: by success on A with its diagonal lowered by a bound on all rounding errors, or by
failure on A with its diagonal raised by it. If neither happens, the same is tried in double-double arithmetic. Answers
that this leaves open are flagged as marginal.
"""

cimport cython
cimport numpy as cnp
from cpython.exc cimport PyErr_CheckSignals
from libc.float cimport DBL_EPSILON
from libc.math cimport INFINITY, fmod, frexp, isfinite, ldexp, sqrt
from libc.string cimport memcpy

from dmq_fast.kernels._double_double cimport Double2, add, divide, negate, scale, two_product, two_sum
from dmq_fast.kernels._linalg cimport (
    NOT_FOUND, OVERFLOW, cholesky_upper, dot, eigen_work_size, solve_upper, solve_upper_transposed, top_eigenpair,
)
from dmq_fast.kernels._memory cimport Buffer
from dmq_fast.kernels._validate cimport (
    all_finite, entries, flag, integer, matrix, non_negative, positive, refuse_not_finite,
)

cdef extern from "dmq_double_double.h":
    void dmq_add_multiple(
        double* row_high, double* row_low, const double* x_high, const double* x_low,
        double factor_high, double factor_low, Py_ssize_t n
    ) noexcept nogil

import numpy as np

from dmq_fast.kernels._dsec_numpy import DsecResult, broadcast, rank_deficient, singular
from dmq_fast.kernels._validate import as_numbers

cnp.import_array()

# Below this dimension `eliminate` beats LAPACK's call overhead (bench/test_oracle.py).
cdef enum:
    SMALL = 12

# Relative rounding error of one operation: in float64, and a generous bound in double-double arithmetic.
cdef double UNIT = DBL_EPSILON / 2.0
cdef double UNIT2 = 2.0 ** -100

# Products of numbers smaller than this may underflow; problems with such numbers are scaled first.
cdef double TINY = 2.0 ** -800

# Directions with larger entries are not tried in double-double arithmetic.
cdef double LARGE = 2.0 ** 100

# Pivot rows that `eliminate_exactly` applies at once: those of d = 1000 fit the second cache.
cdef enum:
    PANEL = 16

# Stands for the exponent of 0: less than that of any number or product of two.
cdef enum:
    ZERO_EXPONENT = -10000


cdef Py_ssize_t decide_work_size(Py_ssize_t d) noexcept nogil:
    # A, with high and low parts for double-double arithmetic; the scales; and a direction.
    return 2 * d * d + 2 * d


cdef inline double margin(double unit, double roundings, Py_ssize_t d) noexcept nogil:
    # Bound on the rounding errors in A, relative to g_i = R (M1)_ii + (M2)_ii. Scale rows and columns by g_i^{-1/2}: as
    # M1 and M2 are positive semidefinite, |R (M1)_ij| + |(M2)_ij| <= 1 for the scaled ones. In units per entry,
    #   forming A takes 5, and its diagonal 1 more;
    #   elimination that succeeds takes d + 4, in whatever order it sums (Higham, Accuracy and Stability of Numerical
    #   Algorithms, theorem 10.3; a pivot's reciprocal adds one);
    #   a product x^T A x takes 1.5 d + 11, forming A included (see `proves_shift`).
    # So each stays below 2 (d + 8) an entry, d times that in norm, also where an M is indefinite by its own rounding;
    # `roundings` are those that an entry of M2 has seen before.
    return unit * d * (2.0 * (d + 8) + roundings)


cdef int eliminate(double* a, Py_ssize_t d) noexcept nogil:
    # A = U^T D U on the upper triangle, in place. Returns 0, or k >= 1 when pivot k is not positive.
    cdef Py_ssize_t i, j, k
    cdef double reciprocal, factor
    cdef double* pivot_row
    cdef double* row
    for k in range(d):
        pivot_row = a + k * d
        if not pivot_row[k] > 0.0:
            return <int> (k + 1)
        reciprocal = 1.0 / pivot_row[k]
        for i in range(k + 1, d):
            factor = pivot_row[i] * reciprocal
            row = a + i * d
            for j in range(i, d):
                row[j] -= factor * pivot_row[j]
    return 0


cdef Answer form(
    const double* s, const double* m2, double roundings, double ratio, double eps_r, double* a, Py_ssize_t d
) noexcept nogil:
    # a <- A - margin diag(g), upper triangle. Returns SHIFT if a diagonal entry of A is certainly negative, NOT_FINITE
    # if a number is not finite or outside the range of the analysis, else NO_SHIFT.
    cdef Py_ssize_t i, j
    cdef double first, second, g, shift = margin(UNIT, roundings, d)
    cdef double* row
    cdef bint fits = True
    cdef Answer answer = NO_SHIFT
    for i in range(d):
        first = ratio * (s[i * d + i] + eps_r)
        second = m2[i * d + i]
        g = first + second
        row = a + i * d
        if first - second < -(5.0 + roundings) * UNIT * g:
            answer = SHIFT
        if g == 0.0 and s[i * d + i] + eps_r == 0.0:
            # Rows of zeros in both do not matter, and must not look like a bad pivot.
            row[i] = 1.0
        else:
            row[i] = (first - second) - shift * g
            fits = fits and TINY <= g < INFINITY
        for j in range(i + 1, d):
            row[j] = ratio * s[i * d + j] - m2[i * d + j]
        fits = fits and all_finite(row + i + 1, d - i - 1)
    return answer if fits else NOT_FINITE


cdef bint proves_shift(
    const double* s, const double* m2, double roundings, double ratio, double eps_r, const double* x, Py_ssize_t order,
    Py_ssize_t d
) noexcept nogil:
    # Whether x^T A x < 0 for certain, for an x (order,) that is zero from there on. With y_i = g_i^{1/2} |x_i| the
    # terms add up to (sum_i y_i)^2 <= order x^T diag(g) x at most; each sees 5 roundings in A, order / 2 + 4 in the sum
    # of its row and order + 2 in the sum of the rows.
    cdef Py_ssize_t i, j
    cdef double total = 0.0, weight = 0.0, first, second, p0, p1, p2, p3
    cdef const double* a
    cdef const double* b
    for i in range(order):
        a, b = s + i * d, m2 + i * d
        first, second = ratio * (a[i] + eps_r), b[i]
        # Four sums hide the latency of one.
        p0, p1, p2, p3 = 0.0, 0.0, 0.0, 0.0
        for j in range(i + 1, order - 3, 4):
            p0 += (ratio * a[j] - b[j]) * x[j]
            p1 += (ratio * a[j + 1] - b[j + 1]) * x[j + 1]
            p2 += (ratio * a[j + 2] - b[j + 2]) * x[j + 2]
            p3 += (ratio * a[j + 3] - b[j + 3]) * x[j + 3]
        for j in range(order - (order - i - 1) % 4, order):
            p0 += (ratio * a[j] - b[j]) * x[j]
        weight += (first + second) * x[i] * x[i]
        total += x[i] * ((first - second) * x[i] + 2.0 * ((p0 + p1) + (p2 + p3)))
    # A weight that small, and a total that is not finite, are beyond the analysis.
    return weight >= TINY and -INFINITY < total < -margin(UNIT, roundings, order) * weight


cdef void largest_column(const double* m2, double* x, Py_ssize_t d) noexcept nogil:
    # The column of M2 with the largest diagonal entry: if M2 has rank one, the direction of the shift.
    cdef Py_ssize_t i, best = 0
    for i in range(d):
        if m2[i * d + i] > m2[best * d + best]:
            best = i
    for i in range(d):
        x[i] = m2[i * d + best] if i < best else m2[best * d + i]


cdef void bad_direction(const double* a, int minor, double* x, Py_ssize_t d) noexcept nogil:
    # x (minor,) with x^T A x = the pivot on which `factor` gave up: U x = 0 but for the last row of the leading block.
    cdef Py_ssize_t i, j
    cdef double p, q
    cdef const double* row
    x[minor - 1] = 1.0
    for i in range(minor - 2, -1, -1):
        row = a + i * d
        p, q = 0.0, 0.0
        for j in range(i + 1, minor - 1, 2):
            p += row[j] * x[j]
            q += row[j + 1] * x[j + 1]
        if (minor - i) % 2 == 0:
            p += row[minor - 1] * x[minor - 1]
        x[i] = -(p + q) / row[i]


cdef Answer decide(
    const double* s, const double* m2, double eps1, double eps2, double eps_r, double* work, Py_ssize_t d
) noexcept nogil:
    return decide_sum(s, m2, 1.0, eps1, eps2, eps_r, work, d)


cdef Answer decide_sum(
    const double* s, const double* sum, double n, double eps1, double eps2, double eps_r, double* work, Py_ssize_t d
) noexcept nogil:
    cdef Answer answer = decide_robustly(s, sum, 0.0, n, eps1, eps2, eps_r, work, d)
    return decide_exactly(s, sum, NULL, 0.0, n, eps1, eps2, eps_r, work, d) if answer == NOT_FINITE else answer


cdef Answer decide_robustly(
    const double* s, const double* sum, double roundings, double n, double eps1, double eps2, double eps_r,
    double* work, Py_ssize_t d
) noexcept nogil:
    cdef double ratio = n * eps2 / eps1
    cdef double* x = work + 2 * d * d
    cdef Answer answer
    cdef int minor
    if not TINY < ratio < 1.0 / TINY:
        return NOT_FINITE
    answer = form(s, sum, roundings, ratio, eps_r, work, d)
    if answer != NO_SHIFT:
        return answer
    if d >= SMALL:
        largest_column(sum, x, d)
        if proves_shift(s, sum, roundings, ratio, eps_r, x, d, d):
            return SHIFT
    minor = factor(work, d)
    if minor == 0:
        return NO_SHIFT
    if minor > 0:
        bad_direction(work, minor, x, d)
        if proves_shift(s, sum, roundings, ratio, eps_r, x, minor, d):
            return SHIFT
    return NOT_FINITE


cdef inline int factor(double* a, Py_ssize_t d) noexcept nogil:
    cdef Py_ssize_t i
    cdef int minor
    if d < SMALL:
        return eliminate(a, d)
    minor = cholesky_upper(a, d)
    if minor == 0:
        # LAPACK may take NaN for a pivot; whatever overflowed ends up in one.
        for i in range(d):
            if not 0.0 < a[i * d + i] < INFINITY:
                return <int> (i + 1)
    return minor


cdef inline int exponent(double x) noexcept nogil:
    cdef int out = 0
    if x == 0.0:
        return ZERO_EXPONENT
    frexp(x, &out)
    return out


cdef Answer decide_exactly(
    const double* s, const double* sum, const double* rest, double roundings, double n, double eps1, double eps2,
    double eps_r, double* work, Py_ssize_t d
) noexcept nogil:
    # `decide_sum` in double-double arithmetic, on a problem scaled to g_i of order one: powers of two change no bit,
    # and numbers that underflow then are far below the margin.
    cdef double* halves = work + 2 * d * d
    cdef double* x = halves + d
    cdef double shift = margin(UNIT2, roundings, d)
    cdef int e1, e2, en, es, em, minor
    cdef Py_ssize_t i
    cdef Double2 target
    eps1 = frexp(eps1, &e1)
    target = two_product(frexp(n, &en), frexp(eps2, &e2))
    e2 += en
    for i in range(d):
        es = e2 + max(exponent(s[i * d + i]), exponent(eps_r))
        em = e1 + exponent(sum[i * d + i])
        halves[i] = max(es, em) // 2
    if not form_exactly(s, sum, rest, eps1, target, eps_r, 0.0, e1, e2, halves, work, d):
        return NOT_FINITE
    # Below the margin of float64 most shifts still have a direction that float64 finds. On the raised diagonal, x^T A x
    # may be off by what `margin` allows; entries of x beyond 2^100 could overflow.
    minor = factor(work, d)
    if minor > 0:
        bad_direction(work, minor, x, d)
        if moderate(x, minor):
            form_exactly(s, sum, rest, eps1, target, eps_r, -shift, e1, e2, halves, work, d)
            if negative_exactly(work, x, minor, d):
                return SHIFT
    form_exactly(s, sum, rest, eps1, target, eps_r, shift, e1, e2, halves, work, d)
    if eliminate_exactly(work, d) == 0:
        return NO_SHIFT
    # Elimination that fails at a pivot is exact for a leading block with three times the error of one that succeeds;
    # UNIT2 is large enough for that.
    form_exactly(s, sum, rest, eps1, target, eps_r, -shift, e1, e2, halves, work, d)
    minor = eliminate_exactly(work, d)
    if minor > 0:
        return SHIFT
    form_exactly(s, sum, rest, eps1, target, eps_r, 0.0, e1, e2, halves, work, d)
    return MARGINAL_NO_SHIFT if eliminate_exactly(work, d) == 0 else MARGINAL_SHIFT


cdef bint moderate(const double* x, Py_ssize_t d) noexcept nogil:
    # Whether no product of x with numbers of order one overflows. Its last entry is 1: what underflows does not count.
    cdef Py_ssize_t i
    for i in range(d):
        if not -LARGE < x[i] < LARGE:
            return False
    return True


cdef bint form_exactly(
    const double* s, const double* sum, const double* rest, double eps1, Double2 target, double eps_r, double shift,
    int e1, int e2, const double* halves, double* work, Py_ssize_t d
) noexcept nogil:
    # Upper triangle of 2^e2 target (S + eps_r I) - 2^e1 eps1 (sum + rest) - shift diag(g), row and column i divided by
    # 2^halves[i]; leading parts in work, the rest behind them. Returns whether everything is finite.
    cdef double* high = work
    cdef double* low = work + d * d
    cdef double poison = 0.0, g
    cdef Py_ssize_t i, j
    cdef int power
    cdef Double2 first, second, entry
    for i in range(d):
        for j in range(i, d):
            power = -<int> (halves[i] + halves[j])
            first = two_sum(ldexp(s[i * d + j], e2 + power), ldexp(eps_r, e2 + power) if i == j else 0.0)
            first = add(scale(first, target.hi), scale(first, target.lo))
            second = two_product(eps1, ldexp(sum[i * d + j], e1 + power))
            if rest != NULL:
                second = add(second, two_product(eps1, ldexp(rest[i * d + j], e1 + power)))
            entry = add(first, negate(second))
            if i == j:
                g = first.hi + second.hi
                entry = add(entry, two_product(-shift, g))
                if first.hi == 0.0 and second.hi == 0.0:
                    entry.hi = 1.0
            high[i * d + j] = entry.hi
            low[i * d + j] = entry.lo
            poison += (entry.hi + entry.lo) * 0.0
    return poison == 0.0


cdef int eliminate_exactly(double* work, Py_ssize_t d) noexcept nogil:
    # `eliminate` in double-double arithmetic; -1 where a pivot is not a number. A panel of pivot rows is finished
    # before the rows below see it, so that these are read once a panel.
    cdef double* high = work
    cdef double* low = work + d * d
    cdef Py_ssize_t panel, first, end, i, k
    cdef double pivot
    for panel in range((d + PANEL - 1) // PANEL):
        first = panel * PANEL
        end = min(first + PANEL, d)
        for k in range(first, end):
            pivot = high[k * d + k]
            if not pivot > 0.0:
                return <int> (k + 1) if pivot <= 0.0 else -1
            for i in range(k + 1, end):
                subtract_pivot_row(high, low, k, i, d)
        for i in range(end, d):
            for k in range(first, end):
                subtract_pivot_row(high, low, k, i, d)
    return 0


cdef inline void subtract_pivot_row(
    double* high, double* low, Py_ssize_t k, Py_ssize_t i, Py_ssize_t d
) noexcept nogil:
    # Row i -= (A_ki / A_kk) row k, from the diagonal on.
    cdef Double2 pivot, factor
    factor.hi, factor.lo = high[k * d + i], low[k * d + i]
    if factor.hi == 0.0:
        return
    pivot.hi, pivot.lo = high[k * d + k], low[k * d + k]
    factor = negate(divide(factor, pivot))
    dmq_add_multiple(
        high + i * d + i, low + i * d + i, high + k * d + i, low + k * d + i, factor.hi, factor.lo, d - i
    )


cdef bint negative_exactly(const double* work, const double* x, Py_ssize_t order, Py_ssize_t d) noexcept nogil:
    # Whether x^T A x < 0 in double-double arithmetic, for an x (order,) that is zero from there on.
    cdef const double* high = work
    cdef const double* low = work + d * d
    cdef Py_ssize_t i, j
    cdef Double2 total, row, entry
    total.hi, total.lo = 0.0, 0.0
    for i in range(order):
        row.hi, row.lo = 0.0, 0.0
        for j in range(i + 1, order):
            entry.hi, entry.lo = high[i * d + j], low[i * d + j]
            row = add(row, scale(entry, x[j]))
        entry.hi, entry.lo = high[i * d + i], low[i * d + i]
        row.hi, row.lo = 2.0 * row.hi, 2.0 * row.lo
        total = add(total, scale(add(row, scale(entry, x[i])), x[i]))
    return -INFINITY < total.hi < 0.0


cdef Py_ssize_t value_work_size(Py_ssize_t d) noexcept nogil:
    return 2 * d * d + max(eigen_work_size(d), d)


cdef int shift_value(
    const double* s, const double* m2, double eps_r, double* value, double* witness, double* work, Py_ssize_t d
) noexcept nogil:
    cdef double* first = work
    cdef double* second = work + d * d
    cdef double* scratch = work + 2 * d * d
    cdef bint fits
    cdef Py_ssize_t i
    cdef int info
    # LAPACK may not return on infinities, and may return zeros on NaN.
    fits = copy_upper(s, first, d)
    for i in range(d):
        fits = fits and all_finite(m2 + i * d + i, d - i)
        first[i * d + i] += eps_r
        fits = fits and isfinite(first[i * d + i])
    if not fits:
        return NOT_FINITE
    info = cholesky_upper(first, d)
    if info != 0:
        return info
    copy_upper(m2, second, d)
    info = top_eigenpair(second, first, d, value, witness, False, scratch)
    if info == NOT_FOUND:
        copy_upper(m2, second, d)
        info = top_eigenpair(second, first, d, value, witness, True, scratch)
    if info == OVERFLOW:
        return NOT_FINITE
    return 0 if info == 0 else -100 - abs(info)


cdef bint copy_upper(const double* a, double* out, Py_ssize_t d) noexcept nogil:
    # Upper triangle of out <- that of a; whether it is finite.
    cdef Py_ssize_t i
    cdef bint finite = True
    for i in range(d):
        memcpy(out + i * d + i, a + i * d + i, (d - i) * sizeof(double))
        finite = finite and all_finite(a + i * d + i, d - i)
    return finite


cdef cnp.ndarray square(value, str name, Py_ssize_t d):
    cdef cnp.ndarray array = matrix(value, name, d, d)
    if cnp.PyArray_DIM(array, 0) == 0 or cnp.PyArray_DIM(array, 1) != cnp.PyArray_DIM(array, 0):
        raise ValueError(f"{name}: expected shape (..., d, d) with d >= 1, got {(<object> array).shape}")
    return array


cdef int refuse_upper(str name, cnp.ndarray array) except -1:
    # `refuse_not_finite` for what is read.
    return refuse_not_finite(name, np.triu(array))


# Operations between two looks at Ctrl-C.
cdef enum:
    PATIENCE = 33554432


cdef class Stack:
    # Problems of the oracle whose leading dimensions broadcast, and a workspace for one of them at a time.
    cdef tuple shape
    cdef Py_ssize_t d, size, portion
    # Matrices (b, d, d) and thresholds (b,), of as many b each as were given.
    cdef cnp.ndarray m1, m2, eps1, eps2
    # Which of them each problem takes, (4, size).
    cdef Py_ssize_t[:, ::1] at
    cdef Buffer work

    def __init__(self, m1, m2, eps1, eps2):
        self.shape, (self.m1, self.m2, self.eps1, self.eps2), self.at = broadcast(m1, m2, eps1, eps2)
        self.d = d = cnp.PyArray_DIM(self.m1, 1)
        self.size = self.at.shape[1]
        self.portion = max(1, PATIENCE // (d * d * d + 100))
        self.work = Buffer(max(decide_work_size(d), value_work_size(d)))

    cdef inline const double* first(self, Py_ssize_t i) noexcept nogil:
        return <const double*> cnp.PyArray_DATA(self.m1) + self.at[0, i] * self.d * self.d

    cdef inline const double* second(self, Py_ssize_t i) noexcept nogil:
        return <const double*> cnp.PyArray_DATA(self.m2) + self.at[1, i] * self.d * self.d

    cdef inline double eps_1(self, Py_ssize_t i) noexcept nogil:
        return (<const double*> cnp.PyArray_DATA(self.eps1))[self.at[2, i]]

    cdef inline double eps_2(self, Py_ssize_t i) noexcept nogil:
        return (<const double*> cnp.PyArray_DATA(self.eps2))[self.at[3, i]]

    cdef cnp.ndarray decisions(self):
        # Answers (size,), NOT_FINITE where float64 proves none.
        cdef cnp.ndarray out = np.empty(self.size, np.int8)
        cdef signed char* answers = <signed char*> cnp.PyArray_DATA(out)
        cdef Py_ssize_t i, begin
        for begin in range(0, self.size, self.portion):
            with nogil:
                for i in range(begin, min(begin + self.portion, self.size)):
                    answers[i] = decide_robustly(
                        self.first(i), self.second(i), 0.0, 1.0, self.eps_1(i), self.eps_2(i), 0.0, self.work.data,
                        self.d,
                    )
            PyErr_CheckSignals()
        return out

    cdef cnp.ndarray values(self, cnp.ndarray values, cnp.ndarray witnesses):
        # What `scaled_value` returned for each problem (size,), which fills values (size,) and, unless they are None,
        # witnesses (size, d).
        cdef cnp.ndarray out = np.empty(self.size, np.intc)
        cdef int* infos = <int*> cnp.PyArray_DATA(out)
        cdef double* value = entries(values)
        cdef double* witness = NULL if witnesses is None else entries(witnesses)
        cdef Py_ssize_t i, begin
        for begin in range(0, self.size, self.portion):
            with nogil:
                for i in range(begin, min(begin + self.portion, self.size)):
                    infos[i] = scaled_value(
                        self.first(i), self.second(i), self.eps_1(i), value + i,
                        NULL if witness == NULL else witness + i * self.d, self.work.data, self.d,
                    )
            PyErr_CheckSignals()
        return out

    cdef object alone(self, function, Py_ssize_t i, tuple tolerances, dict options):
        # The answer to one problem that needs more than the loops above.
        try:
            return function(self.m1[self.at[0, i]], self.m2[self.at[1, i]], *tolerances, **options)
        except ValueError as error:
            index = tuple(map(int, np.unravel_index(i, self.shape)))
            raise type(error)(f"{error}; in the stack at {index}") from error


cdef bint stacked(m1, m2, eps1, eps2) except -1:
    # Whether any argument has leading dimensions.
    return (
        dimensions("m1", m1) > 2 or dimensions("m2", m2) > 2 or dimensions("eps1", eps1) > 0
        or dimensions("eps2", eps2) > 0
    )


cdef inline Py_ssize_t dimensions(str name, value) except -1:
    if cnp.PyArray_CheckExact(value):
        return cnp.PyArray_NDIM(value)
    if isinstance(value, (float, int)):
        return 0
    return as_numbers(name, value).ndim


cdef Answer answer_of(
    cnp.ndarray m1, cnp.ndarray m2, double eps1, double eps2, bint thorough, bint* singular_m1
) except *:
    # NOT_FINITE, unless `thorough`, for what float64 cannot prove. `singular_m1`: whether the answer hangs on rounding
    # of m1, which is singular within it.
    cdef Py_ssize_t d = cnp.PyArray_DIM(m1, 0)
    cdef const double* first = entries(m1)
    cdef const double* second = entries(m2)
    cdef double stack[2 * 16 * 16 + 2 * 16]
    cdef double* work = stack
    cdef Answer answer
    cdef Buffer buffer
    singular_m1[0] = False
    if d > 16:
        buffer = Buffer(decide_work_size(d))
        work = buffer.data
    with nogil:
        answer = decide_robustly(first, second, 0.0, 1.0, eps1, eps2, 0.0, work, d)
    if answer != NOT_FINITE or not thorough:
        return answer
    with nogil:
        answer = decide_exactly(first, second, NULL, 0.0, 1.0, eps1, eps2, 0.0, work, d)
    if answer == NOT_FINITE:
        refuse_upper("m1", m1)
        refuse_upper("m2", m2)
        raise ValueError("m1, m2: expected positive semidefinite matrices, got entries far larger than those allow")
    singular_m1[0] = rank_deficient(m1)
    return answer


def dsec_decision(m1, m2, eps1, eps2, *, return_marginal=False, exact=True):
    """Return the decision of the DSEC oracle, by a Cholesky factorisation of (eps2 / eps1) m1 - m2.

    Parameters
    ----------
    m1 : array_like, shape (..., d, d)
        Second moment of D1 with its regulariser added. Symmetric positive semidefinite, which is not checked; its
        upper triangle is read, and what is below does not matter. Leading dimensions are those of a stack of problems:
        they broadcast over all arguments, and each problem has the answer that it has alone, bit for bit.
    m2 : array_like, shape (..., d, d)
        Second moment of D2, likewise.
    eps1, eps2 : array_like, shape (...)
        epsilon_1 > 0 and epsilon_2 > 0 of the oracle.
    return_marginal : bool, default False
        Whether to return the flag as well.
    exact : bool, default True
        Whether to decide in double-double arithmetic what float64 cannot prove. If not, the value of `dsec_value`
        decides, flagged as marginal, in less time than that.

    Returns
    -------
    decision : bool, or numpy.ndarray of shape (...)
        Whether v >= eps2: whether (eps2 / eps1) m1 - m2 is not positive definite, rows of zeros in both left out.
    marginal : bool, or numpy.ndarray of shape (...)
        Only with `return_marginal`: whether v is too close to eps2 for arithmetic of 100 bits, or the decision hangs
        on the rounding of a singular m1, whose numerical null space then decides. Decisions without the flag are
        certain for the entries given.

    Raises
    ------
    TypeError, ValueError
        On a wrong dtype, shape or range, or an entry that is not finite.
    """
    cdef bint thorough = flag(exact, "exact")
    if stacked(m1, m2, eps1, eps2):
        decisions, marginals = decide_stack(Stack(m1, m2, eps1, eps2), thorough)
        return (decisions, marginals) if return_marginal else decisions
    cdef cnp.ndarray first = square(m1, "m1", -1)
    cdef cnp.ndarray second = square(m2, "m2", cnp.PyArray_DIM(first, 0))
    cdef double scale1 = positive(eps1, "eps1"), threshold = positive(eps2, "eps2")
    cdef bint singular_m1
    cdef Answer answer = answer_of(first, second, scale1, threshold, thorough, &singular_m1)
    cdef bint decision = says_true(answer), marginal = answer >= MARGINAL_NO_SHIFT
    if answer == NOT_FINITE:
        decision, marginal = dsec_value(first, second, scale1) >= threshold, True
    elif singular_m1:
        decision, _, _, marginal = singular(first, second, scale1, threshold, False, True)
    if return_marginal:
        return decision, marginal
    return decision


cdef tuple decide_stack(Stack stack, bint thorough):
    cdef cnp.ndarray answers = stack.decisions()
    cdef Py_ssize_t i
    decisions, marginals = answers == SHIFT, np.zeros(stack.size, np.bool_)
    options = {"return_marginal": True, "exact": bool(thorough)}
    for i in np.flatnonzero(answers == NOT_FINITE):
        decisions[i], marginals[i] = stack.alone(dsec_decision, i, (stack.eps_1(i), stack.eps_2(i)), options)
    return decisions.reshape(stack.shape), marginals.reshape(stack.shape)


def dsec_value(m1, m2, eps1):
    """Return the value v of the DSEC oracle: the top eigenvalue of eps1 M1^{-1/2} M2 M1^{-1/2}.

    v is infinite if m1 is singular and m2 has mass in its null space. Parameters are those of `dsec_decision`, stacks
    included, errors those of `dsec`.
    """
    cdef double value = 0.0
    cdef Py_ssize_t i
    cdef Stack stack
    if stacked(m1, m2, eps1, 1.0):
        stack = Stack(m1, m2, eps1, 1.0)
        values = np.empty(stack.size)
        for i in np.flatnonzero(stack.values(values, None)):
            values[i] = stack.alone(dsec_value, i, (stack.eps_1(i),), {})
        return values.reshape(stack.shape)
    cdef cnp.ndarray first = square(m1, "m1", -1)
    cdef cnp.ndarray second = square(m2, "m2", cnp.PyArray_DIM(first, 0))
    cdef double scale1 = positive(eps1, "eps1")
    if solve(first, second, scale1, &value, NULL) > 0:
        return singular(first, second, scale1, 1.0, False, True).value
    return value


# What `scaled_value` returns where m1 may have an eigenvalue of the size of rounding.
cdef enum:
    DOUBTFUL = -2


cdef int scaled_value(
    const double* m1, const double* m2, double eps1, double* value, double* witness, double* work, Py_ssize_t d
) noexcept nogil:
    # v = eps1 lambda_max and its witness, as `shift_value` says; or DOUBTFUL, with both as well.
    cdef int info = shift_value(m1, m2, 0.0, value, witness, work, d)
    cdef double root = sqrt(eps1)
    cdef Py_ssize_t i
    if info != 0:
        return info
    value[0] *= eps1
    if witness != NULL:
        for i in range(d):
            witness[i] *= root
    if nearly_singular(m1, work, work + 2 * d * d, d):
        return DOUBTFUL
    return 0 if fits(value[0], witness, d) else NOT_FINITE


cdef inline bint fits(double value, const double* witness, Py_ssize_t d) noexcept nogil:
    return isfinite(value) and (witness == NULL or all_finite(witness, d))


cdef int solve(cnp.ndarray m1, cnp.ndarray m2, double eps1, double* value, double* witness) except -1:
    # v and its witness. Returns 0, or something else if m1 is not definite in float64.
    cdef Py_ssize_t d = cnp.PyArray_DIM(m1, 0)
    cdef Buffer buffer = Buffer(value_work_size(d))
    cdef const double* s = entries(m1)
    cdef const double* m = entries(m2)
    cdef int info
    with nogil:
        info = scaled_value(s, m, eps1, value, witness, buffer.data, d)
    if info == DOUBTFUL:
        # Definite by rounding, perhaps.
        if rank_deficient(m1):
            return <int> d
        info = 0 if fits(value[0], witness, d) else NOT_FINITE
    if info == NOT_FINITE:
        refuse_upper("m1", m1)
        refuse_upper("m2", m2)
        raise ValueError(f"m1, m2: v{'' if witness == NULL else ' or its witness'} overflows; rescale")
    if info < 0:
        raise np.linalg.LinAlgError(f"dsec: the eigenvalue routine failed (info {info + 100})")
    return info


cdef bint nearly_singular(const double* m1, const double* u, double* x, Py_ssize_t d) noexcept nogil:
    # Whether m1 = U^T U, in units with a diagonal of 1, may have an eigenvalue of the size of rounding, d^2 units of it
    # and as many from the factorisation; x has d doubles. Two steps of inverse iteration show it with a large factor to
    # spare: what rounding leaves of its direction in the first vector, the next solve multiplies by its inverse. The
    # pivots would not: the last is the eigenvalue over the square of the last entry of the eigenvector.
    cdef Py_ssize_t i
    cdef double size
    cdef int _step
    for i in range(d):
        x[i] = 1.0 + fmod(0.618 * i, 1.0)
    for _step in range(2):
        size = sqrt(dot(x, x, d))
        for i in range(d):
            x[i] *= sqrt(m1[i * d + i]) / size
        solve_upper_transposed(u, x, d)
        solve_upper(u, x, d)
        for i in range(d):
            x[i] *= sqrt(m1[i * d + i])
    return not 64.0 * d * d * DBL_EPSILON * sqrt(dot(x, x, d)) < 1.0


def dsec(m1, m2, eps1, eps2):
    """Return decision, value and witness of the DSEC oracle (paper, oracle 4.2, linear class).

    Parameters
    ----------
    m1, m2, eps1, eps2
        As for `dsec_decision`.

    Returns
    -------
    DsecResult
        v is infinite if m1 is singular and m2 has mass in its null space. Of a stack, decision, value and marginal are
        arrays of its shape (...), and the witnesses are (..., d).

    Raises
    ------
    numpy.linalg.LinAlgError
        If m1 is indefinite, or the eigenvalue routine fails.
    TypeError, ValueError
        On a wrong dtype, shape or range, an entry that is not finite, or a result beyond float64.
    """
    if stacked(m1, m2, eps1, eps2):
        return dsec_stack(Stack(m1, m2, eps1, eps2))
    cdef cnp.ndarray first = square(m1, "m1", -1)
    cdef cnp.ndarray second = square(m2, "m2", cnp.PyArray_DIM(first, 0))
    cdef double scale1 = positive(eps1, "eps1"), threshold = positive(eps2, "eps2"), value = 0.0
    cdef bint singular_m1
    cdef Answer answer = answer_of(first, second, scale1, threshold, True, &singular_m1)
    cdef cnp.ndarray witness = np.empty(cnp.PyArray_DIM(first, 0))
    if singular_m1 or solve(first, second, scale1, &value, entries(witness)) > 0:
        return singular(
            first, second, scale1, threshold, says_true(answer), singular_m1 or answer >= MARGINAL_NO_SHIFT
        )
    return DsecResult(says_true(answer), value, witness, answer >= MARGINAL_NO_SHIFT)


cdef object dsec_stack(Stack stack):
    cdef cnp.ndarray answers = stack.decisions()
    cdef Py_ssize_t i
    values, witnesses = np.empty(stack.size), np.empty((stack.size, stack.d))
    infos = stack.values(values, witnesses)
    decisions, marginals = answers == SHIFT, np.zeros(stack.size, np.bool_)
    for i in np.flatnonzero((answers == NOT_FINITE) | (infos != 0)):
        decisions[i], values[i], witnesses[i], marginals[i] = stack.alone(
            dsec, i, (stack.eps_1(i), stack.eps_2(i)), {}
        )
    return DsecResult(
        decisions.reshape(stack.shape),
        values.reshape(stack.shape),
        witnesses.reshape(*stack.shape, stack.d),
        marginals.reshape(stack.shape),
    )


@cython.auto_pickle(False)  # its __setstate__ would read beyond a state that is too short
cdef class Scan:
    """Base class of scans over levels: `ShiftScan` and `RowScan`.

    Attributes
    ----------
    eps_s, eps_t : float
        Thresholds of the oracle.
    with_values : bool
        Whether the eigenvalue of each level is computed as well.
    n_marginal : int
        Number of answers so far that were marginal; see `DsecResult`.
    """

    cdef int begin(self, eps_s, eps_t, bint with_values) except -1:
        self.eps_s = positive(eps_s, "eps_s")
        self.eps_t = positive(eps_t, "eps_t")
        self.with_values = with_values
        self.work = Buffer()
        return 0

    cdef tuple descend(self, double n, Py_ssize_t top, Py_ssize_t bottom):
        cdef list values = []
        cdef Py_ssize_t level
        cdef double value = 0.0
        cdef Answer answer
        cdef int info
        for level in range(top, bottom - 1, -1):
            self.enter(level)
            if self.with_values:
                info = self.top_value(&value)
                values.append(checked_value(info, self.eps_s * (value / n), level))
            # v >= eps_t for M2 = sum / n  iff  n v >= n eps_t for the sum.
            answer = self.decision(n)
            if answer == NOT_FINITE:
                raise ValueError(f"level {level}: a second moment is not finite, or too large for float64")
            self.n_marginal += answer >= MARGINAL_NO_SHIFT
            if says_true(answer):
                return level, values
        return -1, values

    cdef int enter(self, Py_ssize_t level) except -1:
        raise NotImplementedError

    cdef int top_value(self, double* value) except? -1000:
        raise NotImplementedError

    cdef Answer decision(self, double n) except? NOT_FINITE:
        raise NotImplementedError


cdef double checked_value(int info, double value, Py_ssize_t level) except? -1.0:
    # v of a level, for what `shift_value` returned.
    if info > 0:
        # The regularised S is not definite in float64, so v has no bound.
        return INFINITY
    if info == NOT_FINITE or (info == 0 and not isfinite(value)):
        raise ValueError(f"level {level}: a second moment is not finite, or its eigenvalue overflows")
    if info < 0:
        raise np.linalg.LinAlgError(f"level {level}: the eigenvalue routine failed (info {info + 100})")
    return value


cdef class ShiftScan(Scan):
    """The oracle calls of one batch of trajectories: levels scanned downwards, up to the first True.

    Answers ``eps_s lambda_max((S_h + eps_r I)^{-1} M_h) >= eps_t`` for level after level without returning to Python:
    `decide_sum` on the sum of n states and on n eps_t, so that no moment is rounded. The values play no part in the
    decisions.

    Owns its workspace; not safe to share between threads.

    Parameters
    ----------
    dimension : int
    eps_s, eps_t : float
        Thresholds > 0.
    eps_r : float
        Regulariser >= 0.
    with_values : bool
        Whether to compute the eigenvalue of each level as well.

    Attributes
    ----------
    n_marginal : int
        Number of answers so far that were marginal; see `DsecResult`.
    """

    cdef readonly Py_ssize_t dimension
    cdef readonly double eps_r
    # What of the arguments of `scan` answers depend on: its matrices from level `_base` on, and those of a level.
    cdef const double* _cover
    cdef const double* _sums
    cdef const double* _s
    cdef const double* _sum
    cdef Py_ssize_t _base

    def __cinit__(self, dimension, eps_s, eps_t, eps_r, bint with_values):
        # Matrices of more would not fit memory.
        self.dimension = integer(dimension, "dimension", 1, 2**24 - 1)
        self.eps_r = non_negative(eps_r, "eps_r")
        self.begin(eps_s, eps_t, with_values)

    def scan(self, const double[:, :, ::1] cover not None, const double[:, :, ::1] grams not None,
             double n, Py_ssize_t base, Py_ssize_t top, Py_ssize_t bottom):
        """Return the first of the levels top, top - 1, ..., bottom at which the oracle answers True, and the values.

        Parameters
        ----------
        cover : numpy.ndarray, shape (H, d, d)
            S_h = sum over the cover of level h of its second moments.
        grams : numpy.ndarray, shape (L, d, d)
            Sums of phi phi^T over `n` states of levels base, base + 1, ...
        n : float
            Number of states behind each of `grams`.
        base, top, bottom : int
            base <= bottom <= top < min(H, base + L), or top < bottom for nothing to do.

        Returns
        -------
        level : int
            -1 when every answer was False.
        values : list of float
            v of each level tested, in order; empty without `with_values`.

        Raises
        ------
        ValueError
            When a moment is not finite, or an eigenvalue overflows.
        numpy.linalg.LinAlgError
            When the eigenvalue routine fails.
        """
        cdef Py_ssize_t d = self.dimension
        if top < bottom:
            return -1, []
        if not (0 <= base <= bottom and top < cover.shape[0] and top < base + grams.shape[0] and 0.0 < n < INFINITY
                and cover.shape[1] == d and cover.shape[2] == d and grams.shape[1] == d and grams.shape[2] == d):
            raise ValueError("scan: arrays and levels do not fit together")
        if not n * self.eps_t < INFINITY:
            raise ValueError(f"n: expected n eps_t within the range of float64, got {n} * {self.eps_t}")
        # A run whose moments are in rows never gets here, and its d may be such that d^2 numbers are too many.
        self.work.room(max(decide_work_size(d), value_work_size(d)))
        self._cover, self._sums, self._base = &cover[0, 0, 0], &grams[0, 0, 0], base
        return self.descend(n, top, bottom)

    cdef int enter(self, Py_ssize_t level) except -1:
        cdef Py_ssize_t size = self.dimension * self.dimension
        self._s, self._sum = self._cover + level * size, self._sums + (level - self._base) * size
        return 0

    cdef int top_value(self, double* value) except? -1000:
        return shift_value(self._s, self._sum, self.eps_r, value, NULL, self.work.data, self.dimension)

    cdef Answer decision(self, double n) except? NOT_FINITE:
        return decide_sum(self._s, self._sum, n, self.eps_s, self.eps_t, self.eps_r, self.work.data, self.dimension)

    def __reduce__(self):
        # A copy gets its own workspace.
        return ShiftScan, (self.dimension, self.eps_s, self.eps_t, self.eps_r, self.with_values)
