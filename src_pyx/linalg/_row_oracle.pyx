"""The DSEC oracle for D2 in rows: what an answer costs depends on the rows, not on the dimension.

With B = S + eps_r I and the rows phi_r of weights w_r behind M2 = (1/n) sum_r w_r phi_r phi_r^T, the answer is True iff

    lambda_max(E) >= n R,   E_rs = (w_r w_s)^{1/2} phi_r^T B^{-1} phi_s,   R = eps_2 / eps_1,

since X B^{-1} X^T and B^{-1} X^T X have the same eigenvalues other than 0. B^{-1} changes only with S, so it is kept.
On columns that no row of S has it is I / eps_r, so it is kept on the others, the support of S. The diagonal of E, the
leverages w_r phi_r^T B^{-1} phi_r, settles most answers: False if their sum is below n R, True if one of them is not.

Every bound below is on |x^T D y| <= c m(x) m(y) with m(x) = sum_i |x_i| (W_ii)^{1/2}, for errors D of entries
|D_ij| <= c (W_ii W_jj)^{1/2}. It is the scale in which all roundings of W and of products with it are small: as W is
positive definite, its own entries obey it with c = 1.

*What is kept.* (1 - rho) B^{-1} <= W <= (1 + rho) B^{-1}. For errors D of W as above, |x^T D x| <= c m(x)^2, and
x_i^2 <= B_ii x^T B^{-1} x, so m(x)^2 <= t^2 x^T B^{-1} x with t = sum_i (B_ii W_ii)^{1/2}: rho grows by c t^2. A new
W = B^{-1} from LAPACK is verified by its residual: the eigenvalues of W B - I, those of B^{1/2} W B^{1/2} - I, are at
most the largest absolute sum of a row of any matrix similar to it. If S grows by w x x^T, exact arithmetic would keep
rho: B <= (1 + rho) W^{-1} gives B + w x x^T <= (1 + rho) (W^{-1} + w x x^T), and likewise on the other side.

Answers that these bounds leave open are found as for matrices, on the columns that any row has; what the sum of the
rows rounds away is added where float64 proves nothing.
"""

cimport numpy as cnp
from libc.float cimport DBL_EPSILON
from libc.math cimport INFINITY, NAN, fabs, isfinite, log, sqrt
from libc.stdint cimport int32_t
from libc.stdlib cimport calloc, free, malloc
from libc.string cimport memcpy, memset

from dmq_fast.kernels._linalg cimport cholesky_upper, invert_upper, multiply
from dmq_fast.kernels._dsec cimport (
    MARGINAL_NO_SHIFT, NO_SHIFT, NOT_FINITE, SHIFT, Answer, Scan, decide_exactly, decide_robustly, decide_work_size,
    says_true, shift_value, value_work_size,
)
from dmq_fast.kernels._double_double cimport Double2, add, scale, two_product
from dmq_fast.kernels._memory cimport Buffer, Owner, grown
from dmq_fast.kernels._moments cimport as_columns
from dmq_fast.kernels._rows cimport LevelRows, collected, compress, empty_rows
from dmq_fast.kernels._validate cimport LARGEST, all_finite, entries, integer, matrix, positive, refuse_not_finite

import numpy as np

from dmq_fast.kernels._validate import as_csr, is_sparse

cnp.import_array()

cdef extern from *:
    """
    #include "dmq_reduce.h"
    #include "dmq_wide.h"

    /* y (n,) <- y + a x */
    DMQ_WIDE static void dmq_axpy(double a, const double *restrict x, double *restrict y, ptrdiff_t n)
    {
        for (ptrdiff_t i = 0; i < n; i++)
            y[i] += a * x[i];
    }

    /* w (n, n), in rows of length room <- w + a y y^T */
    DMQ_WIDE static void dmq_rank_one(
        double *restrict w, ptrdiff_t room, double a, const double *restrict y, ptrdiff_t n)
    {
        for (ptrdiff_t i = 0; i < n; i++)
            for (ptrdiff_t j = 0; j < n; j++)
                w[i * room + j] += (a * y[i]) * y[j];
    }
    """
    void dmq_axpy(double a, const double* x, double* y, Py_ssize_t n) noexcept nogil
    void dmq_rank_one(double* w, Py_ssize_t room, double a, const double* y, Py_ssize_t n) noexcept nogil

# Relative rounding error of one operation.
cdef double UNIT = DBL_EPSILON / 2.0

# Numbers beyond this, or below its inverse, are left to `exactly`: within, what underflows is far below the roundings.
cdef double VAST = 1e100

# W is computed anew when rho is larger than this, and not used where that does not help.
cdef double LOOSE = 1e-6

cdef int VERSION = 1

# Entries of a row up to which products with W look its entries up, instead of adding its rows.
cdef enum:
    FEW = 32


cdef class RowOracle:
    """S + eps_r I of one level, its inverse kept: leverages, and the oracle for rows.

    Parameters
    ----------
    dimension : int
        Feature dimension d >= 1.
    eps_r : float
        Regulariser > 0.

    Attributes
    ----------
    dimension : int
    eps_r : float
    order : int
        Number of columns on which S is not 0. Memory is O(order^2 + d).

    Notes
    -----
    Not safe to share between threads.

    Examples
    --------
    >>> import numpy as np
    >>> from dmq_fast.kernels import LevelRows, RowOracle
    >>> oracle = RowOracle(1000, eps_r=0.5)
    >>> seen = np.zeros((1, 1000))
    >>> seen[0, 7] = 1.0
    >>> oracle.add(LevelRows.of([seen]))
    >>> oracle.leverages(LevelRows.of([seen])).round(6), oracle.order
    (array([0.666667]), 1)
    >>> oracle.decision(LevelRows.of([np.roll(seen, 1)]), 1.0, 2.0)
    True
    """

    def __cinit__(self, dimension, eps_r):
        self.dimension = integer(dimension, "dimension", 1, LARGEST)
        self.eps_r = positive(eps_r, "eps_r")
        self.place = <int32_t*> malloc(self.dimension * sizeof(int32_t))
        if self.place == NULL:
            raise MemoryError()
        memset(self.place, 0xFF, self.dimension * sizeof(int32_t))
        # The pointers are never NULL.
        self.enlarge(1)

    def __dealloc__(self):
        free(self.columns)
        free(self.place)
        free(self.s)
        free(self.w)
        free(self.root)
        free(self.y)

    def add(self, rows, level=0, divisor=1.0):
        """Add rows in place: S <- S + (sum_r w_r phi_r phi_r^T) / divisor.

        Parameters
        ----------
        rows : LevelRows, or array_like or SciPy sparse matrix or array of shape (n, d)
            Of an array, each row has weight 1.
        level : int, default 0
            Position of the level of `rows` to add.
        divisor : float, default 1.0
            A number > 0; the number of trajectories makes it the second moment.

        Raises
        ------
        TypeError, ValueError
            On an argument of a wrong type or out of range, or if the sum overflows.
        """
        cdef LevelRows given = level_rows(self, rows)[0]
        self.add_level(given, integer(level, "level", 0, given.n_levels - 1), positive(divisor, "divisor"))

    def add_gram(self, support, gram):
        """Add a matrix in place, on some columns.

        Parameters
        ----------
        support : array_like of int, shape (k,)
            Distinct columns.
        gram : array_like, shape (k, k)
            Symmetric positive semidefinite, which is not checked.

        Raises
        ------
        TypeError, ValueError
            On an argument of a wrong type, shape or range, or an entry that is not finite.
        """
        cdef cnp.ndarray columns = as_columns(support, "support", self.dimension)
        cdef Py_ssize_t i, j, k = cnp.PyArray_DIM(columns, 0)
        cdef const double* g
        cdef const int32_t* column
        if len(np.unique(columns)) != k:
            raise ValueError(f"support: expected distinct columns, got {(<object> columns).tolist()}")
        sums = matrix(gram, "gram", k, k)
        refuse_not_finite("gram", sums)
        column, g = <const int32_t*> cnp.PyArray_DATA(columns), entries(sums)
        self.extend(column, k)
        for i in range(k):
            for j in range(k):
                self.s[self.place[column[i]] * self.room + self.place[column[j]]] += g[i * k + j]
        if k:
            self.rho, self.fresh = INFINITY, False

    @property
    def support(self):
        """The columns on which S is not 0, ascending, shape (order,)."""
        return np.sort(self._columns())

    @property
    def gram(self):
        """S on its support, shape (order, order)."""
        cdef Py_ssize_t i
        out = np.empty((self.order, self.order))
        cdef double* x = entries(out)
        for i in range(self.order):
            memcpy(x + i * self.order, self.s + i * self.room, self.order * sizeof(double))
        ascending = np.argsort(self._columns())
        return np.ascontiguousarray(out[np.ix_(ascending, ascending)])

    def matrix(self):
        """Return S, shape (d, d)."""
        out, support = np.zeros((self.dimension, self.dimension)), self.support
        out[np.ix_(support, support)] = self.gram
        return out

    def _columns(self):
        columns = np.empty(self.order, np.int32)
        memcpy(cnp.PyArray_DATA(columns), self.columns, self.order * sizeof(int32_t))
        return columns

    def log_det(self, LevelRows rows=None, level=0, divisor=1.0):
        """Return log det(S + eps_r I), or that of S plus the sum of a level of rows / divisor.

        The potential of the paper's Lemma A.5. NaN where there is no Cholesky factor in float64.
        """
        cdef Py_ssize_t position, k, i
        cdef double* s
        cdef double total = 0.0, n = positive(divisor, "divisor")
        cdef RowScan scan = RowScan(1.0, 1.0)
        cdef int info
        if rows is None:
            rows = empty_rows(self.dimension, 1)
            rows.end_level()
        check_rows(self, rows)
        position = integer(level, "level", 0, rows.n_levels - 1)
        scan.expand(self, rows, position)
        k, s = scan._k, scan._dense.data
        with nogil:
            for i in range(k * k):
                s[i] += s[k * k + i] / n
            for i in range(k):
                s[i * (k + 1)] += self.eps_r
            info = cholesky_upper(s, k)
            for i in range(k):
                total += log(s[i * (k + 1)])
        # LAPACK takes an infinite pivot for one.
        return 2.0 * total + (self.dimension - k) * log(self.eps_r) if info == 0 and total < INFINITY else NAN

    def leverages(self, rows, level=0):
        """Return phi_r^T (S + eps_r I)^-1 phi_r of the rows of a level, without their weights, shape (n,).

        Their relative error is about 1e-6 at most, and that of a factorisation of S + eps_r I where that is larger.

        Parameters
        ----------
        rows : LevelRows, or array_like or SciPy sparse matrix or array of shape (n, d)
            Of an array, each row has a leverage, equal rows and rows of zeros as well.
        level : int, default 0
            Position of the level of `rows`.

        Raises
        ------
        TypeError, ValueError
            On an argument of a wrong type, shape or range, or an entry that is not finite.
        numpy.linalg.LinAlgError
            If S + eps_r I is not positive definite in float64.
        """
        cdef RowScan scan = RowScan(1.0, 1.0)
        cdef LevelRows given
        given, filled = level_rows(self, rows)
        cdef Py_ssize_t position = integer(level, "level", 0, given.n_levels - 1), r, n
        self.refresh()
        if not isfinite(self.rho):
            raise np.linalg.LinAlgError("S + eps_r I is not positive definite in float64; raise eps_r")
        n = given.begins[position + 1] - given.begins[position]
        out = np.empty(n)
        cdef double* x = entries(out)
        scan.locate(self, given, position)
        for r in range(n):
            x[r] = scan.lever[r]
        if not all_finite(x, n):
            raise ValueError("rows: a leverage is out of the range of float64; rescale")
        if filled is None:
            return out
        every = np.zeros(len(filled))
        every[filled] = out
        return every

    def decision(self, rows, eps1, eps2, level=0, *, n=None, return_marginal=False):
        """Return the decision of the oracle on D1, of second moment S + eps_r I, and D2 in rows.

        Parameters
        ----------
        rows : LevelRows, or array_like or SciPy sparse matrix or array of shape (n, d)
        eps1, eps2 : float
            Thresholds > 0.
        level : int, default 0
            Position of the level of `rows` that is D2.
        n : float, optional
            Number of states in D2; by default the number of rows of an array, or the sum of the weights. `LevelRows`
            keep no rows of zeros, so where there were some, n is needed.
        return_marginal : bool, default False
            Whether to return the flag as well.

        Returns
        -------
        decision : bool
            Whether eps1 lambda_max((S + eps_r I)^{-1} M2) >= eps2 with M2 = (1/n) sum_r w_r phi_r phi_r^T.
        marginal : bool
            Only with `return_marginal`; as for `dsec_decision`.

        Raises
        ------
        TypeError, ValueError
            On an argument of a wrong type or out of range.
        """
        cdef RowScan scan = RowScan(positive(eps1, "eps1"), positive(eps2, "eps2"))
        cdef LevelRows given
        given, filled = level_rows(self, rows)
        cdef Py_ssize_t position = integer(level, "level", 0, given.n_levels - 1), r
        cdef double total = 0.0
        cdef Answer answer
        if n is not None:
            total = positive(n, "n")
        elif filled is not None:
            total = len(filled)
        else:
            for r in range(given.begins[position], given.begins[position + 1]):
                total += given.weights[r]
        answer = scan.answer(self, given, position, total)
        if answer == NOT_FINITE:
            raise ValueError("rows: a second moment is not finite, or too large for float64; rescale")
        if return_marginal:
            return says_true(answer), answer >= MARGINAL_NO_SHIFT
        return says_true(answer)

    def __reduce__(self):
        return restored, (VERSION, self.dimension, self.eps_r, self.support, self.gram)

    def __repr__(self):
        return f"RowOracle(dimension={self.dimension}, eps_r={self.eps_r}, order={self.order})"

    cdef int extend(self, const int32_t* columns, Py_ssize_t n) except -1:
        cdef Py_ssize_t j, fresh = 0, k
        cdef double inverse = 1.0 / self.eps_r
        for j in range(n):
            fresh += self.place[columns[j]] < 0
        if fresh == 0:
            return 0
        if self.order + fresh > self.room:
            self.enlarge(max(self.order + fresh, min(self.dimension, self.room + self.room // 2 + 4)))
        for j in range(n):
            if self.place[columns[j]] < 0:
                k = self.order
                self.place[columns[j]] = <int32_t> k
                self.columns[k] = columns[j]
                self.w[k * self.room + k] = inverse
                self.root[k] = sqrt(inverse)
                self.order = k + 1
        # The inverse of a number is within a rounding of it.
        self.rho = max(self.rho, 2.0 * UNIT)
        return 0

    cdef int enlarge(self, Py_ssize_t room) except -1:
        cdef Py_ssize_t i
        cdef double* s = <double*> calloc(room * room, sizeof(double))
        cdef double* w = <double*> calloc(room * room, sizeof(double))
        if s == NULL or w == NULL or not (
            grown(<void**> &self.columns, room * sizeof(int32_t)) and grown(<void**> &self.root, room * sizeof(double))
            and grown(<void**> &self.y, room * sizeof(double))
        ):
            free(s)
            free(w)
            raise MemoryError()
        for i in range(self.order):
            memcpy(s + i * room, self.s + i * self.room, self.order * sizeof(double))
            memcpy(w + i * room, self.w + i * self.room, self.order * sizeof(double))
        free(self.s)
        free(self.w)
        self.s, self.w, self.room = s, w, room
        return 0

    cdef int add_level(self, LevelRows rows, Py_ssize_t level, double divisor) except -1:
        cdef Py_ssize_t begin = rows.begins[level], end = rows.begins[level + 1], r, i, j, m = end - begin, n
        cdef Py_ssize_t first = rows.starts[begin], last = rows.starts[end]
        cdef double t
        cdef double* sums
        cdef int32_t* places
        cdef int32_t* local
        cdef Owner memory
        if m == 0:
            return 0
        memory = Owner()
        # The sum first, on the columns of these rows, and then one addition an entry: the roundings of the dense form.
        local = <int32_t*> memory.zeros(2 * (last - first), sizeof(int32_t))
        places = local + (last - first)
        n = compress(rows.columns + first, last - first, local, places)
        sums = <double*> memory.zeros(n * n, sizeof(double))
        rows.add_up(level, places, sums, n)
        for i in range(n):
            if not isfinite(sums[i * n + i] / divisor):
                raise ValueError("rows: the sum overflows float64; rescale")
        self.extend(local, n)
        for i in range(n):
            places[i] = self.place[local[i]]
        for i in range(n):
            for j in range(n):
                self.s[places[i] * self.room + places[j]] += sums[i * n + j] / divisor
        self.fresh = False
        if self.rho <= LOOSE and m * self.order <= 3 * self.order * self.order:
            for r in range(begin, end):
                self.update(
                    rows.columns + rows.starts[r], rows.values + rows.starts[r], rows.starts[r + 1] - rows.starts[r],
                    rows.weights[r] / divisor,
                )
            # S itself is rounded: m + 4 roundings an entry.
            t = self.spread()
            self.rho += (m + 4) * UNIT * t * t
        else:
            self.rho = INFINITY
        return 0

    cdef double spread(self) noexcept nogil:
        cdef Py_ssize_t i
        cdef double t = 0.0, b
        for i in range(self.order):
            b = self.s[i * (self.room + 1)] + self.eps_r
            if not b <= VAST:
                return INFINITY
            t += sqrt(b) * self.root[i]
        return t * (1.0 + 2.0 * (self.order + 4) * UNIT)

    cdef void update(self, const int32_t* columns, const double* values, Py_ssize_t n, double weight) noexcept nogil:
        # W <- W - c y y^T, y = W x, c = w / (1 + w x^T y). In units of (W_ii W_jj)^{1/2}, an entry of y y^T is at most
        # m(x)^2; y has errors of n + 2 roundings in m(x) each, x^T y of 2 n + 4 in m(x)^2, the rest 8.
        cdef Py_ssize_t i, k = self.order
        cdef double lever = 0.0, m = 0.0, c, t
        memset(self.y, 0, k * sizeof(double))
        for i in range(n):
            dmq_axpy(values[i], self.w + self.place[columns[i]] * self.room, self.y, k)
        for i in range(n):
            lever += values[i] * self.y[self.place[columns[i]]]
            m += fabs(values[i]) * self.root[self.place[columns[i]]]
        c = weight / (1.0 + weight * lever)
        t = self.spread()
        self.rho += t * t * UNIT * (8.0 + 4.0 * (2 * n + 6) * c * m * m)
        dmq_rank_one(self.w, self.room, -c, self.y, k)
        for i in range(k):
            if not self.w[i * (self.room + 1)] > 0.0:
                self.rho = INFINITY
                return
            self.root[i] = sqrt(self.w[i * (self.room + 1)])

    cdef int refresh(self) except -1:
        cdef Py_ssize_t i, j, k = self.order
        cdef Buffer memory
        cdef double* b
        cdef double* w
        cdef double* product
        cdef double t, total, worst = 0.0
        cdef bint fits
        if self.rho <= LOOSE or self.fresh:
            return 0
        self.rho, self.fresh = INFINITY, True
        memory = Buffer(3 * k * k)
        b = memory.data
        w, product = b + k * k, b + 2 * k * k
        with nogil:
            for i in range(k):
                memcpy(b + i * k, self.s + i * self.room, k * sizeof(double))
                b[i * (k + 1)] += self.eps_r
            memcpy(w, b, k * k * sizeof(double))
            fits = cholesky_upper(w, k) == 0 and invert_upper(w, k) == 0
            for i in range(k):
                fits = fits and w[i * (k + 1)] > 0.0 and isfinite(w[i * (k + 1)])
            if fits:
                for i in range(k):
                    for j in range(i):
                        w[i * k + j] = w[j * k + i]
                multiply(b, w, product, k)
                for i in range(k):
                    memcpy(self.w + i * self.room, w + i * k, k * sizeof(double))
                    self.root[i] = sqrt(w[i * (k + 1)])
                # D^{-1} (B W - I) D for D_ii = B_ii^{1/2}: each entry of B W sums k + 1 products and sees the rounding
                # of B_ii, all in units of (B_ii W_jj)^{1/2} t.
                for i in range(k):
                    total = 0.0
                    for j in range(k):
                        total += fabs(product[i * k + j] - (1.0 if i == j else 0.0)) * sqrt(b[j * (k + 1)])
                    worst = max(worst, total / sqrt(b[i * (k + 1)]))
                t = self.spread()
                worst = worst * (1.0 + 2.0 * (k + 4) * UNIT) + (k + 4) * UNIT * t * t
                if worst < 0.5:
                    self.rho = worst
        return 0


def restored(version, dimension, eps_r, support, gram):
    """Return the oracle of a pickle."""
    if version != VERSION:
        raise ValueError(f"state: expected that of a RowOracle, version {VERSION}, got {version!r}")
    oracle = RowOracle(dimension, eps_r)
    oracle.add_gram(support, gram)
    return oracle


cdef int check_rows(RowOracle oracle, LevelRows rows) except -1:
    if rows.dimension != oracle.dimension:
        raise ValueError(f"rows: expected dimension {oracle.dimension}, got {rows.dimension}")
    return 0


cdef tuple level_rows(RowOracle oracle, rows):
    # The rows of an argument; and of an array, which of its rows are among them: those that are not 0.
    cdef cnp.ndarray block
    if isinstance(rows, LevelRows):
        check_rows(oracle, rows)
        return rows, None
    if is_sparse(rows):
        csr = as_csr("rows", rows, (None, oracle.dimension))
        return collected([csr], None), np.diff(csr.indptr) > 0
    block = matrix(rows, "rows", -1, oracle.dimension)
    refuse_not_finite("rows", block)
    return collected([block], None), np.any(block, axis=1)


cdef class RowScan(Scan):
    """The oracle calls of one batch of trajectories in rows: levels scanned downwards, up to the first True.

    What `ShiftScan` does with dense moments, answer by answer. Owns its workspace; not safe to share between threads.

    Parameters
    ----------
    eps_s, eps_t : float
        Thresholds > 0.
    with_values : bool, default False
        Whether to compute v of each level as well.

    Attributes
    ----------
    n_marginal : int
        Number of answers so far that were marginal; see `DsecResult`.
    n_exact : int
        Number of answers so far that needed a factorisation on all columns.
    """

    def __cinit__(self, eps_s, eps_t, with_values=False):
        self.begin(eps_s, eps_t, with_values)
        self._dense, self._by_row, self._by_entry = Buffer(), Buffer(), Buffer()

    def __reduce__(self):
        return RowScan, (self.eps_s, self.eps_t, bool(self.with_values))

    def scan(self, list oracles not None, LevelRows rows not None, double n, Py_ssize_t base, Py_ssize_t top,
             Py_ssize_t bottom):
        """Return the first of the levels top, top - 1, ..., bottom at which the oracle answers True, and the values.

        Parameters
        ----------
        oracles : list of RowOracle
            By level h, that of S_h.
        rows : LevelRows
            States of levels base, base + 1, ...
        n : float
            Number of states behind each level of `rows`.
        base, top, bottom : int
            base <= bottom <= top, or top < bottom for nothing to do.

        Returns
        -------
        level : int
            -1 when every answer was False.
        values : list of float
            v of each level tested, in order; empty without `with_values`.
        """
        if top < bottom:
            return -1, []
        if not (0 <= base <= bottom and top < len(oracles) and top < base + rows.n_levels and 0.0 < n < INFINITY):
            raise ValueError("scan: rows and levels do not fit together")
        self._oracles, self._batch, self._base = oracles, rows, base
        try:
            return self.descend(n, top, bottom)
        finally:
            self._oracles = self._batch = self._oracle = None

    cdef int enter(self, Py_ssize_t level) except -1:
        if not isinstance(self._oracles[level], RowOracle):
            raise TypeError(f"oracles[{level}]: expected a RowOracle, got {type(self._oracles[level]).__name__}")
        self._oracle = <RowOracle> self._oracles[level]
        self._position, self._k = level - self._base, 0
        return check_rows(self._oracle, self._batch)

    cdef int top_value(self, double* value) except? -1000:
        self.expand(self._oracle, self._batch, self._position)
        cdef Py_ssize_t k = self._k
        cdef double* s = self._dense.data
        with nogil:
            return shift_value(s, s + k * k, self._oracle.eps_r, value, NULL, s + 3 * k * k, k)

    cdef Answer decision(self, double n) except? NOT_FINITE:
        return self.answer(self._oracle, self._batch, self._position, n)

    cdef int reserve(self, Py_ssize_t rows, Py_ssize_t n_entries) except -1 nogil:
        self.lever, self.value = self._by_row.room(3 * rows + 1), self._by_entry.room(2 * n_entries + 1)
        self.size, self.inside = self.lever + rows, <Py_ssize_t*> (self.lever + 2 * rows)
        self.index = <int32_t*> (self.value + n_entries)
        return 0

    cdef int locate(self, RowOracle oracle, LevelRows rows, Py_ssize_t level) except -1 nogil:
        # Fill index, value, inside, lever and size for the rows of a level.
        cdef Py_ssize_t begin = rows.begins[level], m = rows.begins[level + 1] - begin, r, i, front, back, first, n
        cdef Py_ssize_t offset = rows.starts[begin], j
        cdef int32_t place
        cdef double v, q, t, total, outside
        cdef const double* w
        cdef double* y
        self.reserve(m, rows.starts[begin + m] - offset)
        for r in range(m):
            front, back = rows.starts[begin + r] - offset, rows.starts[begin + r + 1] - offset
            first = front
            t, outside = 0.0, 0.0
            # From the last entry on, so that those outside end up ascending.
            for i in range(back - 1, front - 1, -1):
                place, v = oracle.place[rows.columns[offset + i]], rows.values[offset + i]
                if place < 0:
                    back -= 1
                    self.index[back], self.value[back] = rows.columns[offset + i], v
                    outside += v * v
            for i in range(front, rows.starts[begin + r + 1] - offset):
                place, v = oracle.place[rows.columns[offset + i]], rows.values[offset + i]
                if place >= 0:
                    self.index[front], self.value[front] = place, v
                    t += fabs(v) * oracle.root[place]
                    front += 1
            n = front - first
            self.inside[r] = n
            total = 0.0
            if n > FEW and 4 * n > oracle.order:
                y = oracle.y
                memset(y, 0, oracle.order * sizeof(double))
                for i in range(first, front):
                    dmq_axpy(self.value[i], oracle.w + self.index[i] * oracle.room, y, oracle.order)
                for i in range(first, front):
                    total += self.value[i] * y[self.index[i]]
            else:
                for i in range(first, front):
                    w, v, q = oracle.w + self.index[i] * oracle.room, self.value[i], 0.0
                    for j in range(first, i):
                        q += self.value[j] * w[self.index[j]]
                    total += v * (2.0 * q + v * w[self.index[i]])
            outside /= oracle.eps_r
            self.lever[r] = total + outside
            self.size[r] = t * t + outside
        return 0

    cdef Answer answer(self, RowOracle oracle, LevelRows rows, Py_ssize_t level, double n) except? NOT_FINITE:
        cdef Py_ssize_t begin = rows.begins[level], m = rows.begins[level + 1] - begin, r, widest = 0
        cdef double bound = n * self.eps_t / self.eps_s, trace = 0.0, size = 0.0, largest = 0.0, slack, w, unit
        cdef Answer answer
        oracle.refresh()
        if oracle.rho <= LOOSE and 1.0 / VAST <= bound <= VAST and 1.0 / VAST <= oracle.eps_r <= VAST:
            with nogil:
                self.locate(oracle, rows, level)
                for r in range(m):
                    w = rows.weights[begin + r]
                    trace += w * self.lever[r]
                    largest = max(largest, w * self.lever[r])
                    size += w * self.size[r]
                    widest = max(widest, rows.starts[begin + r + 1] - rows.starts[begin + r])
                # An entry of E, in units of (w_r w_s)^{1/2} m(phi_r) m(phi_s), sees 2 widest + 8 roundings, and n more
                # stand for those of a Gram matrix, so that the answer is the same for moments of either form.
                unit = (2 * widest + m + n + 16) * UNIT
                slack = 1.1 * oracle.rho * trace + unit * size + 16.0 * UNIT * bound
                if size <= VAST and trace + slack < bound:
                    return NO_SHIFT
                if size <= VAST and largest - slack >= bound:
                    return SHIFT
            if size <= VAST and m <= oracle.order + widest:
                answer = self.factor(oracle, rows, level, bound, slack)
                if answer == NO_SHIFT or answer == SHIFT:
                    return answer
        return self.exactly(oracle, rows, level, n)

    cdef Answer factor(
        self, RowOracle oracle, LevelRows rows, Py_ssize_t level, double bound, double slack
    ) except? NOT_FINITE:
        # Whether bound I - E is positive definite, for certain; MARGINAL_NO_SHIFT where that cannot be told.
        cdef Py_ssize_t begin = rows.begins[level], m = rows.begins[level + 1] - begin, i, j, minor
        cdef double* e = self.work.room(2 * m * m + 2 * m + oracle.order)
        cdef double* a = e + m * m
        cdef double* x = a + m * m
        cdef double* y = x + m
        cdef double shift = slack + 4.0 * (m + 8) * m * UNIT * bound, total, norm, size, p
        cdef Answer answer = MARGINAL_NO_SHIFT
        with nogil:
            self.products(oracle, rows, level, e, y)
            memcpy(a, e, m * m * sizeof(double))
            for i in range(m):
                for j in range(i, m):
                    a[i * m + j] = -e[i * m + j]
                a[i * (m + 1)] += bound - shift
                if not a[i * (m + 1)] > 0.0:
                    # A leverage this near to the bound.
                    return MARGINAL_NO_SHIFT
            minor = cholesky_upper(a, m)
            for i in range(m if minor == 0 else 0):
                if not a[i * (m + 1)] > 0.0:
                    return MARGINAL_NO_SHIFT
            if minor == 0:
                return NO_SHIFT
            # x with U x = 0 but for the last row of the leading block.
            x[minor - 1] = 1.0
            for i in range(minor - 2, -1, -1):
                p = 0.0
                for j in range(i + 1, minor):
                    p += a[i * m + j] * x[j]
                x[i] = -p / a[i * (m + 1)]
            total, norm, size = 0.0, 0.0, 0.0
            for i in range(minor):
                p = 0.0
                for j in range(i + 1, minor):
                    p += e[i * m + j] * x[j]
                total += x[i] * (2.0 * p + e[i * (m + 1)] * x[i])
                norm += x[i] * x[i]
                size += fabs(x[i]) * sqrt(e[i * (m + 1)])
            # The rounding of x^T E x is relative to the sum of |x_i E_ij x_j|, at most size^2.
            shift = 4.0 * (m + 8) * UNIT
            if isfinite(total) and total - shift * size * size >= (bound + slack) * norm * (1.0 + shift):
                answer = SHIFT
        return answer

    cdef void products(
        self, RowOracle oracle, LevelRows rows, Py_ssize_t level, double* e, double* y
    ) noexcept nogil:
        # Upper triangle of e (m, m) <- (w_r w_s)^{1/2} phi_r^T B^{-1} phi_s. y (order,) is workspace.
        cdef Py_ssize_t begin = rows.begins[level], m = rows.begins[level + 1] - begin, r, s, i, j
        cdef Py_ssize_t offset = rows.starts[begin], first, last, other, end
        cdef double total, outside, root
        for r in range(m):
            first = rows.starts[begin + r] - offset
            last = rows.starts[begin + r + 1] - offset
            root = sqrt(rows.weights[begin + r])
            e[r * (m + 1)] = rows.weights[begin + r] * self.lever[r]
            if r + 1 == m:
                break
            memset(y, 0, oracle.order * sizeof(double))
            for i in range(first, first + self.inside[r]):
                dmq_axpy(self.value[i], oracle.w + self.index[i] * oracle.room, y, oracle.order)
            for s in range(r + 1, m):
                other, end = rows.starts[begin + s] - offset, rows.starts[begin + s + 1] - offset
                total, outside = 0.0, 0.0
                for j in range(other, other + self.inside[s]):
                    total += self.value[j] * y[self.index[j]]
                # Columns outside the support ascend in every row.
                i, j = first + self.inside[r], other + self.inside[s]
                while i < last and j < end:
                    if self.index[i] == self.index[j]:
                        outside += self.value[i] * self.value[j]
                        i += 1
                        j += 1
                    elif self.index[i] < self.index[j]:
                        i += 1
                    else:
                        j += 1
                e[r * m + s] = root * sqrt(rows.weights[begin + s]) * (total + outside / oracle.eps_r)

    cdef Answer exactly(self, RowOracle oracle, LevelRows rows, Py_ssize_t level, double n) except? NOT_FINITE:
        # A term w_r x_i x_j of the sum sees two roundings, and the sum of m terms m - 1.
        cdef Py_ssize_t m = rows.begins[level + 1] - rows.begins[level]
        cdef Answer answer
        self.n_exact += 1
        self.expand(oracle, rows, level)
        cdef Py_ssize_t k = self._k
        cdef double* s = self._dense.data
        with nogil:
            answer = decide_robustly(
                s, s + k * k, m + 2, n, self.eps_s, self.eps_t, oracle.eps_r, s + 3 * k * k, k
            )
        if answer == NOT_FINITE:
            self.expand(oracle, rows, level, True)
            with nogil:
                answer = decide_exactly(
                    s, s + k * k, s + 2 * k * k, m + 2, n, self.eps_s, self.eps_t, oracle.eps_r, s + 3 * k * k, k
                )
        return answer

    cdef int expand(self, RowOracle oracle, LevelRows rows, Py_ssize_t level, bint with_rest=False) except -1:
        # Fill `_dense`, unless it is filled: S, the sum of the rows, and room for decisions and `shift_value`. With
        # `with_rest` always, and what the sum rounds away as well.
        cdef double* s
        cdef double* gram
        if self._k > 0 and not with_rest:
            return 0
        cdef Py_ssize_t begin = rows.begins[level], end = rows.begins[level + 1], r, i, j, k
        cdef Py_ssize_t first = rows.starts[begin], n = rows.starts[end] - first, size = oracle.order + n
        cdef Owner memory = Owner()
        cdef int32_t* columns = <int32_t*> memory.zeros(3 * size, sizeof(int32_t))
        cdef int32_t* distinct = columns + size
        cdef int32_t* places = columns + 2 * size
        memcpy(columns, oracle.columns, oracle.order * sizeof(int32_t))
        memcpy(columns + oracle.order, rows.columns + first, n * sizeof(int32_t))
        k = compress(columns, size, distinct, places)
        if k == 0:
            # No row has an entry that is not 0; a matrix of zeros of order one stands for all.
            k = 1
        s = self._dense.room(3 * k * k + max(decide_work_size(k), value_work_size(k)))
        gram = s + k * k
        memset(s, 0, 2 * k * k * sizeof(double))
        for i in range(oracle.order):
            for j in range(oracle.order):
                s[places[i] * k + places[j]] = oracle.s[i * oracle.room + j]
        places += oracle.order
        rows.add_up(level, places, gram, k)
        if with_rest:
            memset(s + 2 * k * k, 0, 2 * k * k * sizeof(double))
            for r in range(begin, end):
                add_outer_exactly(
                    s + 2 * k * k, s + 3 * k * k, places + (rows.starts[r] - first), rows.values + rows.starts[r],
                    rows.starts[r + 1] - rows.starts[r], rows.weights[r], k,
                )
            for i in range(k * k):
                s[2 * k * k + i] = (s[2 * k * k + i] - gram[i]) + s[3 * k * k + i]
        self._k = k
        return 0


cdef void add_outer_exactly(
    double* high, double* low, const int32_t* columns, const double* values, Py_ssize_t n, double weight, Py_ssize_t k
) noexcept nogil:
    # Upper triangle of high + low (k, k) <- that + weight x x^T, in double-double arithmetic, for ascending columns.
    cdef Py_ssize_t i, j, at
    cdef Double2 total
    for i in range(n):
        for j in range(i, n):
            at = columns[i] * k + columns[j]
            total.hi, total.lo = high[at], low[at]
            total = add(total, scale(two_product(weight, values[i]), values[j]))
            high[at], low[at] = total.hi, total.lo
