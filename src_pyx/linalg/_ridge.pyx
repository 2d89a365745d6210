"""Ridge regression (paper, section 6, with Gamma(theta) = lambda_ridge ||theta||^2), from moments and row by row.

`Ridge` keeps the Cholesky factor U of V = lambda I + sum phi phi^T up to date by Givens rotations of the rows of
[U; phi^T] (see `_linalg`), so that a row costs O(d^2) and nothing is inverted.
"""

cimport cython
cimport numpy as cnp
from cpython.exc cimport PyErr_CheckSignals
from libc.float cimport DBL_EPSILON, DBL_MAX, DBL_MIN
from libc.math cimport isfinite, log, sqrt
from libc.string cimport memcpy, memset

from dmq_fast.kernels._linalg cimport (
    GROUP_SINGLE, add_gram, cholesky, cholesky_solve, cholesky_upper, displace, dot, downdate_factor,
    downdate_factor_above, finite_all, gather, group_size, inverse_squares, leverage, pack, packed_size, raise_by, real,
    score, solve_block, solve_block_transposed, solve_factor, solve_factor_transposed, target_products, update_factor,
)
from dmq_fast.kernels._linalg cimport products as inner_products
from dmq_fast.kernels._moments cimport (
    Rows, add_outer, add_outer_sparse, begin_of, dense_row, lower_of, mirror, rows_in, sparse_rows,
)
from dmq_fast.kernels._philox cimport standard_normals
from dmq_fast.kernels._validate cimport (
    all_finite, entries, flag, integer, is_sparse, matrix, non_negative, number, positive, refuse_not_finite,
    square_zeros, state_of, vector,
)

import numpy as np

from dmq_fast.kernels._saved import load, save
from dmq_fast.kernels._validate import as_floats, as_numbers

cnp.import_array()

# What an object is made of, in files.
cdef tuple NAMES = ("dimension", "regularization", "targets")


cdef enum:
    # Dimensions whose square, in bytes, fits an integer of 64 bits, and which BLAS can count.
    LARGEST = 1 << 28
    # Up to this dimension a fit takes less time than releasing the lock, and the workspace is on the stack.
    SHORT = 16
    # Version of pickled states.
    STATE = 2
    # Rows added to the Gram matrix together, by one dsyrk.
    HELD = 64
    # Rotated rows after which the factor is computed afresh from the Gram matrix.
    REFACTOR = 1024
    # A block of m rows is rotated in where ROTATE m <= d + FEW (bench/test_ridge.py).
    ROTATE = 12
    FEW = 12
    # From this number of rows on, a group of them is solved for in less time than one after the other.
    MANY_ROWS = 6
    # Rows that are scored between two checks for signals, and sparse rows made dense at a time: the cache holds them.
    PIECE = 256
    # Rows whose predictions alone are computed between two checks.
    BLOCK = 1 << 16
    # Rows handed to BLAS at a time: its integers may have 32 bits.
    MOST = 1 << 16

# A downdate that leaves a share of det(V) below this would amplify rounding by the inverse root of the share: V is
# factorised again instead.
cdef double LEAST = 2.0 ** -10

# The factor is computed from the Gram matrix only if the error in any direction is at most this share of V: see
# `sound`.
cdef double SHARE = 2.0 ** -20

# Discounts let lambda fall to this share of the mean diagonal of V, or to its square, and then raise it.
cdef double LOST = 2.0 ** -500
cdef double RAISED = 2.0 ** 100

# Most numbers of one call of `sample_many`.
cdef Py_ssize_t MANY = <Py_ssize_t> 1 << 56

# Largest n of an unpickled state: half of the largest integer, so that more rows can be added.
cdef Py_ssize_t LAST = <Py_ssize_t> (<size_t> -1 >> 2)

# Sums of squares up to here keep every entry of V away from overflow, rounding included.
cdef double ROOM = DBL_MAX / 8.0


cdef int fit(
    double* theta, const double* gram, const double* moment, double n, double ridge, double* work, Py_ssize_t d
) noexcept nogil:
    cdef Py_ssize_t i, j
    cdef int info
    cdef double poison = 0.0
    # A = gram / n + lambda I
    for i in range(d):
        for j in range(i, d):
            work[j * d + i] = gram[i * d + j] / n
            poison += work[j * d + i] * 0.0
        work[i * d + i] += ridge
        theta[i] = moment[i] / n
        poison += theta[i] * 0.0
    # NaN and infinities survive a product with zero.
    if poison != 0.0:
        return NOT_FINITE
    info = cholesky(work, d)
    if info != 0:
        return info
    cholesky_solve(work, theta, d)
    for i in range(d):
        poison += theta[i] * 0.0
    return NOT_FINITE if poison != 0.0 else 0


cdef cnp.ndarray workspace(Py_ssize_t d):
    cdef cnp.npy_intp size = d * d
    return None if d <= SHORT else cnp.PyArray_SimpleNew(1, &size, cnp.NPY_DOUBLE)


cdef cnp.ndarray estimate(cnp.ndarray gram, cnp.ndarray moment, double n, double ridge, cnp.ndarray scratch):
    # `scratch` comes from `workspace` and is used by this call alone.
    cdef cnp.npy_intp d = cnp.PyArray_DIM(gram, 0)
    cdef double[SHORT * SHORT] small
    cdef cnp.ndarray theta = cnp.PyArray_SimpleNew(1, &d, cnp.NPY_DOUBLE)
    cdef double* out = entries(theta)
    cdef const double* g = entries(gram)
    cdef const double* m = entries(moment)
    cdef double* work = small
    cdef int info
    refuse_not_finite("gram", gram)
    refuse_not_finite("moment", moment)
    if d <= SHORT:
        info = fit(out, g, m, n, ridge, work, d)
    else:
        work = entries(scratch)
        with nogil:
            info = fit(out, g, m, n, ridge, work, d)
    if info == 0:
        return theta
    if info == NOT_FINITE:
        raise ValueError("gram, moment: a mean or the estimate is not finite")
    raise np.linalg.LinAlgError(
        f"gram / n + ridge I is not positive definite (leading minor {info}, ridge {ridge:g}); raise ridge"
    )


cdef class RidgeFit:
    """`ridge_fit` for many fits of one dimension and one lambda. Threads may share it.

    Parameters
    ----------
    dimension : int
        Feature dimension d in [1, 2^28].
    ridge : float
        lambda_ridge >= 0.

    Examples
    --------
    >>> fit = RidgeFit(2, ridge=1.0)
    >>> fit([[2.0, 0.0], [0.0, 0.0]], [4.0, 0.0], 2)
    array([1., 0.])
    """

    cdef readonly Py_ssize_t dimension
    cdef readonly double ridge
    # None while a call uses it; a call of another thread then allocates its own.
    cdef cnp.ndarray _work

    def __cinit__(self, dimension, ridge):
        self.dimension = integer(dimension, "dimension", 1, LARGEST)
        self.ridge = non_negative(ridge, "ridge")

    def __call__(self, gram, moment, n):
        """Return (gram / n + ridge I)^{-1} (moment / n), shape (d,); arguments and errors are those of `ridge_fit`."""
        cdef Py_ssize_t d = self.dimension
        cdef cnp.ndarray sums = matrix(gram, "gram", d, d), products = vector(moment, "moment", d), theta, scratch
        cdef double count = positive(n, "n")
        scratch, self._work = self._work, None
        if scratch is None:
            scratch = workspace(d)
        theta = estimate(sums, products, count, self.ridge, scratch)
        self._work = scratch
        return theta

    def __reduce__(self):
        return type(self), (self.dimension, self.ridge)


def ridge_fit(gram, moment, n, ridge):
    """Ridge estimate from moments: (gram / n + ridge I)^{-1} (moment / n).

    Parameters
    ----------
    gram : array_like, shape (d, d)
        Sum of phi phi^T over the pairs; the upper triangle is read.
    moment : array_like, shape (d,)
        Sum of y phi.
    n : float
        Number of pairs, > 0 and finite.
    ridge : float
        lambda_ridge >= 0, in units of the mean.

    Returns
    -------
    numpy.ndarray, shape (d,)

    Raises
    ------
    numpy.linalg.LinAlgError
        If gram / n + ridge I is not positive definite in float64: raise `ridge`.
    TypeError, ValueError
        On a wrong dtype, shape or range, or an estimate that overflows.

    Examples
    --------
    >>> ridge_fit([[2.0, 0.0], [0.0, 0.0]], [4.0, 0.0], n=2, ridge=1.0)
    array([1., 0.])
    """
    cdef cnp.ndarray moments = matrix(gram, "gram", -1, -1)
    cdef Py_ssize_t d = cnp.PyArray_DIM(moments, 0)
    if d == 0 or cnp.PyArray_DIM(moments, 1) != d:
        raise ValueError(f"gram: expected shape (d, d) with d >= 1, got {(d, cnp.PyArray_DIM(moments, 1))}")
    return estimate(
        moments, vector(moment, "moment", d), positive(n, "n"), non_negative(ridge, "ridge"), workspace(d)
    )


cdef inline cnp.ndarray doubles(Py_ssize_t n):
    cdef cnp.npy_intp size = n
    return cnp.PyArray_SimpleNew(1, &size, cnp.NPY_DOUBLE)


cdef inline cnp.ndarray singles(Py_ssize_t n):
    cdef cnp.npy_intp size = n
    return cnp.PyArray_SimpleNew(1, &size, cnp.NPY_FLOAT)


cdef void spread(double* out, const Rows* rows, Py_ssize_t i, Py_ssize_t d) noexcept nogil:
    # out (d,) <- row i
    cdef Py_ssize_t k
    if rows.starts == NULL:
        memcpy(out, rows.values + i * d, d * sizeof(double))
        return
    memset(out, 0, d * sizeof(double))
    for k in range(rows.starts[i], rows.starts[i + 1]):
        out[rows.columns[k]] = rows.values[k]


@cython.final
cdef class Ridge:
    """Incremental ridge regression on a Cholesky factor that Givens rotations keep up to date.

    Parameters
    ----------
    d : int
        Feature dimension d >= 1.
    regularization : float
        lambda > 0.
    targets : int, optional
        Number t >= 1 of targets that share the rows and the factor: each y then has shape (t,), and `moment`, `theta`
        and samples have shape (d, t). None, the default, is one target without that axis.

    Attributes
    ----------
    dimension : int
        d.
    regularization : float
        lambda.
    n : int
        Rows added less rows removed; a weighted row counts once, and a discounted one still does.
    targets : int or None
        As given.

    Raises
    ------
    TypeError, ValueError
        If an argument is of another type or out of range.
    MemoryError
        If the state is more than the memory of the machine.

    Notes
    -----
    The state takes 24 d^2 bytes: 25 kB at d = 32, 1.6 MB at 256, 25 MB at 1024, 6.4 GB at 2^14.

    The last rows, up to 64, wait in a buffer that is added to the Gram matrix as a block, and after 1024 rotated rows
    the factor is computed afresh from the Gram matrix, as `update_rows` does. So with k < 1024 rows rotated since,
    ``|U^T U - V| <= 20 (k + 1) d u trace(V)`` in the Frobenius norm to first order, where u = 2^-53, V is that of the
    Gram matrix as summed, and trace(V) its largest since then; in practice the error grows like the root of k.

    In a direction orthogonal to all rows V is lambda. A factor computed from the Gram matrix has an error of about
    u trace(V) there, a rotated one of u sqrt(lambda trace(V)). So the factor is computed from the Gram matrix only
    while ``(d + 64) u trace(V) <= 2^-20 mu`` for a lower bound mu on the least eigenvalue of V (lambda, or a bound from
    the factor) and V is definite in float64. Otherwise the rotated factor stays, which is always definite,
    `update_rows` rotates every row, `discount` and a larger lambda are rotations of d rows, and k goes on growing. Four
    operations use the Gram matrix in any case: `merge`, `refactor`, `from_moments`, and `regularize` with a smaller
    lambda. After them leverages in such a direction have a relative error of about d u trace(V) / lambda.

    The regression of the paper's section 6 has V = lambda I + sum phi phi^T / n; that is `ridge_fit`, or a `Ridge` with
    regularization n lambda.

    A call that raises leaves the state unchanged. Several threads may read one object at a time. A thread that changes
    it must be alone with it: give every thread its own `copy`.

    Examples
    --------
    >>> ridge = Ridge(2, 1.0)
    >>> ridge.update([1.0, 0.0], 2.0)
    >>> ridge.theta
    array([1., 0.])
    >>> ridge.leverage([0.0, 1.0])
    1.0
    >>> ridge.discount(0.5)  # forget: V = I + 0.5 sum phi phi^T
    >>> round(ridge.leverage([1.0, 0.0]), 9)
    0.666666667
    """

    cdef readonly Py_ssize_t dimension
    cdef readonly Py_ssize_t n
    cdef readonly double regularization
    # Columns of the moment, and whether they are an axis of results.
    cdef Py_ssize_t _columns
    cdef bint _several
    # U, zero below the diagonal, and room for the next one. Both stay where they are: `factor` is a view.
    cdef double* _factor
    cdef double* _spare
    # Lower triangle of sum phi phi^T, without the rows in the buffer.
    cdef double* _lower
    cdef double* _rows
    # sum phi y^T (d, t), and room for the next one.
    cdef double* _moment
    cdef double* _next
    # 3 d doubles
    cdef double* _work
    # Arrays that own the memory of the pointers above.
    cdef cnp.ndarray _factors, _sums, _waiting, _products, _scratch, _theta
    # Rows in the buffer. It changes under the lock of the interpreter only, so that no thread writes beyond the buffer.
    cdef Py_ssize_t _held
    # Rows that may still be rotated before the factor is computed afresh.
    cdef Py_ssize_t _left
    # An upper bound on trace(V), and a lower bound on the least eigenvalue of V.
    cdef double _trace
    cdef double _least

    def __cinit__(self, d, regularization, targets=None):
        cdef Py_ssize_t size = integer(d, "d", 1, 1 << 28)
        self.regularization = positive(regularization, "regularization")
        if self.regularization < DBL_MIN or size * self.regularization > ROOM:
            raise ValueError(f"regularization: {self.regularization} is out of the range of float64 here")
        self._several = targets is not None
        self._columns = integer(targets, "targets", 1, 1 << 28) if self._several else 1
        self.dimension = size
        self._factors, self._sums = square_zeros("d", (2, size, size)), square_zeros("d", (size, size))
        self._waiting, self._scratch = np.zeros((HELD, size)), np.zeros(3 * size)
        self._products = np.zeros((2, size * self._columns))
        # `factor` hands out views.
        self._factors.flags.writeable = False
        self._factor, self._spare = entries(self._factors), entries(self._factors) + size * size
        self._lower, self._rows, self._work = entries(self._sums), entries(self._waiting), entries(self._scratch)
        self._moment, self._next = entries(self._products), entries(self._products) + size * self._columns
        self.clear()

    cdef void clear(self) noexcept nogil:
        # The state without rows.
        cdef Py_ssize_t i, d = self.dimension
        memset(self._lower, 0, d * d * sizeof(double))
        memset(self._moment, 0, d * self._columns * sizeof(double))
        memset(self._factor, 0, d * d * sizeof(double))
        for i in range(d):
            self._factor[i * d + i] = sqrt(self.regularization)
        self._trace = d * self.regularization
        self._least = self.regularization
        self._left = REFACTOR
        self._held = 0
        self.n = 0

    cdef double admit(
        self, const Rows* rows, const double* target, double most, str name, cnp.ndarray x, y
    ) except -1.0:
        # Next moment <- moment + sum phi y^T; return sum |phi|^2. Refuse either where it leaves the range of float64,
        # the second from `most` on: both are NaN or infinite if an argument is. Nothing else has changed.
        cdef Py_ssize_t i, j, k, first, size, column, m = rows.n, t = self._columns, d = self.dimension
        cdef double square = 0.0
        if t == 1 and rows.n == 1 and rows.starts == NULL:
            square = dot(rows.values, rows.values, d)
            for k in range(d):
                self._next[k] = self._moment[k] + target[0] * rows.values[k]
            m = 0
        else:
            memcpy(self._next, self._moment, d * t * sizeof(double))
        for i in range(m):
            first = begin_of(rows, i, d)
            size = begin_of(rows, i + 1, d) - first
            square += dot(rows.values + first, rows.values + first, size)
            if t == 1 and rows.starts == NULL:
                for k in range(d):
                    self._next[k] += target[i] * rows.values[first + k]
                continue
            for k in range(size):
                column = k if rows.starts == NULL else rows.columns[first + k]
                for j in range(t):
                    self._next[column * t + j] += rows.values[first + k] * target[i * t + j]
        if square <= most and all_finite(self._next, d * t):
            return square
        refuse_not_finite(name, x)
        as_floats("y", y, np.shape(y))
        raise ValueError(f"{name}, y: a sum of products is out of the range of float64; rescale")

    cdef void accept(self) noexcept:
        self._moment, self._next = self._next, self._moment
        self._theta = None

    cdef void hold(self, const double* x) noexcept:
        memcpy(self._rows + self._held * self.dimension, x, self.dimension * sizeof(double))
        self._held += 1

    cdef void flush(self) noexcept:
        cdef Py_ssize_t held = self._held
        self._held = 0
        with nogil:
            add_gram(self._lower, self._rows, held, self.dimension)

    cdef void form(self, double* out, const double* more, const double* less) noexcept nogil:
        # Upper triangle of out <- V of the Gram matrix, plus `more` (lower triangle), minus less less^T.
        cdef Py_ssize_t i, j, d = self.dimension
        for i in range(d):
            for j in range(i, d):
                out[i * d + j] = self._lower[j * d + i]
                if more != NULL:
                    out[i * d + j] += more[j * d + i]
                if less != NULL:
                    out[i * d + j] -= less[i] * less[j]
            out[i * d + i] += self.regularization

    cdef int factorise(self, const double* more, const double* less) noexcept:
        # Replace the factor by that of `form`. Returns 0, or the order of the leading minor that is not positive
        # definite; the factor is unchanged then.
        cdef int info
        self.flush()
        with nogil:
            self.form(self._spare, more, less)
            info = cholesky_upper(self._spare, self.dimension)
            if info == 0:
                memcpy(self._factor, self._spare, self.dimension * self.dimension * sizeof(double))
        if info == 0:
            self._left = REFACTOR
        return info

    cdef bint sound(self) noexcept nogil:
        # Whether the factor may be computed from the Gram matrix, for V = U^T U or one with more rows. Summation and
        # factorisation make an error E of norm at most (d + HELD) u trace(V), so that phi^T V phi and leverages have a
        # relative error of at most |E| / mu, where mu is the least eigenvalue of V. When that reaches SHARE, trace(V) /
        # mu is about 10^10 / (d + HELD) and the error in practice 10^-9, while a rotation makes an error of u
        # sqrt(trace(V) / mu), which is 10^-11: then the rotated factor is the better one. mu >= lambda, and mu >= 1 /
        # |U^{-1}|_F^2, which takes d^3 / 3 operations to compute; mu grows as rows are added.
        cdef Py_ssize_t d = self.dimension
        cdef double error = (d + HELD) * (0.5 * DBL_EPSILON), needed = self._trace * (error / SHARE)
        if needed > self._least:
            self._least = max(self._least, 1.0 / inverse_squares(self._factor, self._work, d, 1.0 / needed))
        return needed <= self._least

    cdef bint refreshed(self) noexcept:
        # Compute the factor from the Gram matrix, if that may be done and can be.
        return self.sound() and self.factorise(NULL, NULL) == 0

    cdef void settle(self) noexcept:
        # After a change: empty the buffer if it is full, and compute the factor afresh if enough rows were rotated.
        if self._held == HELD:
            self.flush()
        if self._left <= 0 and not self.refreshed():
            # The rotated factor is the better one; try again after as many rows.
            self._left = REFACTOR

    def refactor(self):
        """Compute the factor afresh from the Gram matrix, O(d^3); `update` does so every 1024 rows.

        Unlike `update`, this does so also if lambda is so small beside V that rotations are more accurate (see Notes).

        Raises
        ------
        numpy.linalg.LinAlgError
            If V is not positive definite in float64: `regularization` is lost in the rounding of the sums. The
            factor stays as it was.
        """
        cdef int info = self.factorise(NULL, NULL)
        if info != 0:
            raise self.indefinite("regularization", info)
        self._theta = None

    cdef object indefinite(self, str name, int minor):
        return np.linalg.LinAlgError(
            f"{name}: gram + regularization I would not be positive definite in float64 "
            f"(leading minor {minor}, regularization {self.regularization:g})"
        )

    def update(self, phi, y, weight=1.0):
        """Add a row: V <- V + w phi phi^T and moment <- moment + w y phi, in O(d^2).

        Parameters
        ----------
        phi : array_like, shape (d,)
            Features. A float64 C-contiguous array is taken as it is.
        y : float, or array_like of shape (t,)
            Target, or targets.
        weight : float, default 1
            w >= 0.

        Raises
        ------
        TypeError, ValueError
            On a wrong dtype or shape, an entry that is not finite, or a sum that would overflow; nothing has changed
            then.
        """
        self.add_one(vector(phi, "phi", self.dimension), y, weight)

    def update_sparse(self, indices, values, y, weight=1.0):
        """Add a row that is zero but at some columns; see `update`. Zeros before its first entry save time.

        Parameters
        ----------
        indices : array_like of int, shape (nnz,)
            Columns in 0..d-1, in any order; the values of one column add up.
        values : array_like, shape (nnz,)
        y : float, or array_like of shape (t,)
            Target, or targets.
        weight : float, default 1
            w >= 0.

        Raises
        ------
        TypeError, ValueError
            As for `update`; nothing has changed then.
        """
        self.add_one(dense_row(indices, values, self.dimension), y, weight)

    cdef cnp.ndarray many(self, y, Py_ssize_t m):
        # Targets: of one row if m is negative, otherwise of m.
        if not self._several:
            return vector(y, "y", m)
        return vector(y, "y", self._columns) if m < 0 else matrix(y, "y", m, self._columns)

    cdef int add_one(self, cnp.ndarray row, y, weight) except -1:
        cdef Py_ssize_t d = self.dimension
        cdef cnp.ndarray targets = self.many(y, -1) if self._several else None
        cdef double single = 0.0 if self._several else number(y, "y")
        cdef const double* target = entries(targets) if self._several else &single
        cdef double share = non_negative(weight, "weight")
        cdef const double* x = entries(row)
        cdef cnp.ndarray weighted
        cdef double square
        cdef Rows given
        if share != 1.0:
            # w phi phi^T and w y phi are those of a scaled row with scaled targets.
            refuse_not_finite("phi", row)
            as_floats("y", y, np.shape(y))
            weighted, targets = scaled(x, sqrt(share), d), scaled(target, sqrt(share), self._columns)
            x, target = entries(weighted), entries(targets)
        given = Rows(1, x, NULL, NULL)
        square = self.admit(&given, target, ROOM - self._trace, "phi", row, y)
        self.accept()
        self._trace += square
        self.hold(x)
        self.n += 1
        self.rotate(&given, 0, 1)
        self.settle()
        return 0

    cdef void rotate(self, const Rows* rows, Py_ssize_t first, Py_ssize_t last) noexcept nogil:
        # Rows first..last-1 into the factor.
        cdef Py_ssize_t i
        for i in range(first, last):
            spread(self._work, rows, i, self.dimension)
            update_factor(self._factor, self._work, self.dimension)
        self._left -= last - first

    def update_rows(self, Phi, y, weights=None):
        """Add a block of rows: V <- V + sum_i w_i phi_i phi_i^T and moment <- moment + sum_i w_i y_i phi_i.

        A few rows are rotated in one by one. From about d / 12 rows on, one product and one factorisation are cheaper,
        and are used unless lambda is too small beside V (see Notes of the class).

        Parameters
        ----------
        Phi : array_like or sparse, shape (m, d)
            Anything with a method `tocsr` is taken as a SciPy sparse matrix or array; nnz^2 / 2 operations for a row of
            nnz entries then take the place of the product.
        y : array_like, shape (m,) or (m, t)
        weights : array_like, shape (m,), optional
            Non-negative weights, ones by default. `n` grows by m, whatever the weights. To `downdate` a row of weight
            w, scale phi and y by its root.

        Raises
        ------
        TypeError, ValueError
            As for `update`, and on a negative weight; nothing has changed then.
        """
        cdef Py_ssize_t d = self.dimension
        cdef tuple parts = sparse_rows(Phi, "Phi", d) if is_sparse(Phi) else (matrix(Phi, "Phi", -1, d),)
        cdef cnp.ndarray rows = parts[0]
        cdef Rows given = rows_in(parts)
        cdef Py_ssize_t m = given.n
        cdef cnp.ndarray targets = self.many(y, m)
        cdef bint sparse = len(parts) > 1
        cdef str name = "Phi.data" if sparse else "Phi"
        if weights is not None:
            weights = as_floats("weights", weights, (m,))
            if (weights < 0.0).any():
                raise ValueError(f"weights: expected non-negative numbers, got {weights.min()}")
            refuse_not_finite(name, rows)
            refuse_not_finite("y", targets)
            with np.errstate(all="ignore"):
                # sum w phi phi^T and sum w y phi are those of scaled rows and targets.
                root = np.sqrt(weights)
                rows = rows * (np.repeat(root, np.diff(parts[2])) if sparse else root[:, None])
                targets = targets * (root[:, None] if self._several else root)
            if not (np.isfinite(rows).all() and np.isfinite(targets).all()):
                raise ValueError("Phi, y, weights: a product is out of the range of float64; rescale")
            given.values = entries(rows)
        cdef const double* target = entries(targets)
        cdef double square
        if not sparse and np.may_share_memory(rows, self._factors):
            # Rows of `factor` would change while they are rotated in.
            rows = rows.copy()
            given.values = entries(rows)
        refuse_not_finite("y", targets)
        square = self.admit(&given, target, ROOM - self._trace, name, rows, targets)
        if m == 0:
            return
        self.accept()
        self._trace += square
        self.n += m
        self.add_gram_of(&given)
        self.add_to_factor(&given)
        self.settle()

    cdef void add_gram_of(self, const Rows* rows) noexcept:
        # To the Gram matrix, or to the buffer.
        cdef Py_ssize_t i, first, size, done = 0, m = rows.n, d = self.dimension
        if rows.starts == NULL and self._held + m > HELD:
            self.flush()
        if rows.starts == NULL and m <= HELD:
            for i in range(m):
                self.hold(rows.values + i * d)
            return
        with nogil:
            if rows.starts == NULL:
                while done < m:
                    size = min(MOST, m - done)
                    add_gram(self._lower, rows.values + done * d, size, d)
                    done += size
            else:
                for i in range(m):
                    first = rows.starts[i]
                    add_outer_sparse(
                        self._lower, rows.columns + first, rows.values + first, rows.starts[i + 1] - first, 1.0, d
                    )

    cdef void add_to_factor(self, const Rows* rows) noexcept:
        cdef Py_ssize_t done = 0, last, m = rows.n
        cdef bint few = ROTATE * m <= self.dimension + FEW
        # A few rotated rows may raise the least eigenvalue enough to use the Gram matrix, which holds all rows by now.
        while done < m and (few or not self.refreshed()):
            last = min(done + REFACTOR, m)
            with nogil:
                self.rotate(rows, done, last)
            done = last

    def downdate(self, phi, y):
        """Remove a row: V <- V - phi phi^T and moment <- moment - y phi.

        This rotates the row out in O(d^2), or factorises the Gram matrix, if rotations would amplify rounding (leverage
        of the row close to one). Rounding errors are relative to the largest V so far, so a small V that is left after
        large rows were removed is mostly rounding error. When the last row is removed, the sums are exactly zero and
        V = lambda I.

        Parameters
        ----------
        phi : array_like, shape (d,)
        y : float, or array_like of shape (t,)
            A row as it was added.

        Raises
        ------
        numpy.linalg.LinAlgError
            If V without the row is not positive definite in float64; nothing has changed then.
        TypeError, ValueError
            As for `update`, and when there is no row; nothing has changed then.
        """
        cdef Py_ssize_t d = self.dimension
        cdef cnp.ndarray row = vector(phi, "phi", d)
        # A new array: the targets with the sign of the change.
        cdef cnp.ndarray targets = -self.many(y, -1) if self._several else np.array([-number(y, "y")])
        cdef const double* x = entries(row)
        cdef Rows given = Rows(1, x, NULL, NULL)
        cdef double square = self.admit(&given, entries(targets), ROOM, "phi", row, y)
        cdef int info
        if self.n == 0:
            raise ValueError("phi: there is no row to remove")
        info = self.remove(x)
        if info != 0:
            raise self.indefinite("phi", info)
        self.accept()
        # Rounding must not take the bound below trace(lambda I).
        self._trace = max(self._trace - square, d * self.regularization)
        self._least = self.regularization
        self.n -= 1
        if self.n == 0:
            self.clear()
        self.settle()

    cdef int remove(self, const double* x) noexcept:
        cdef Py_ssize_t d = self.dimension
        cdef int info
        memcpy(self._work, x, d * sizeof(double))
        info = downdate_factor_above(self._factor, self._work, self._work + d, d, LEAST)
        if info != 0 and not self.sound():
            # Rotations amplify rounding in this direction, but the Gram matrix would do so in every direction.
            memcpy(self._work, x, d * sizeof(double))
            info = downdate_factor(self._factor, self._work, self._work + d, d)
        if info == 0:
            self._left -= 1
        else:
            info = self.factorise(NULL, x)
        if info == 0:
            add_outer(self._lower, x, -1.0, d)
        return info

    def discount(self, factor, with_regularization=False):
        """Forget: multiply the sums by a factor in place, gram <- factor gram and moment <- factor moment.

        Parameters
        ----------
        factor : float
            In (0, 1].
        with_regularization : bool, default False
            Which of two ways to forget is meant::

                False:  V = lambda I + factor gram, a change of full rank, in O(d^3)
                True:   lambda <- factor lambda too, so V <- factor V and theta stays, in O(d^2)

            The second takes the prior away with the data: directions that are not seen any more become unknown. Before
        lambda falls below 2^-500 times the mean of the diagonal of V, or 2^-1000, it is raised to 2^100 times that,
        so that a stream of any length stays within float64: in O(d^3), once in many thousand steps.

        Raises
        ------
        TypeError, ValueError
            If an argument is of another type or out of range; nothing has changed then.
        """
        cdef double share = positive(factor, "factor"), root = sqrt(share)
        cdef bint whole = flag(with_regularization, "with_regularization")
        cdef Py_ssize_t i, d = self.dimension
        cdef double least, more
        if share > 1.0:
            raise ValueError(f"factor: expected a number in (0, 1], got {share}")
        self.flush()
        for i in range(d * d):
            self._lower[i] *= share
            self._factor[i] *= root
        for i in range(d * self._columns):
            self._moment[i] *= share
        self._trace *= share
        self._least *= share
        self._theta = None
        # Every entry of U was rounded, as by a rotation.
        self._left -= 1
        if whole:
            self.regularization *= share
            least = max(self._trace / d * LOST, LOST * LOST)
            if self.regularization < least:
                least *= RAISED
                more = least - self.regularization
                self.regularization = least
                self.lift(more)
        else:
            self.lift((1.0 - share) * self.regularization)
        self.settle()

    cdef void lift(self, double more) noexcept:
        # V <- V + more I, where the sums and lambda are those of the result.
        cdef Py_ssize_t i, d = self.dimension
        self._trace += d * more
        self._least += more
        if more == 0.0 or self.refreshed():
            return
        for i in range(d):
            memset(self._work, 0, d * sizeof(double))
            self._work[i] = sqrt(more)
            update_factor(self._factor, self._work, d)
        self._left -= d

    def regularize(self, regularization):
        """Change lambda in place, in O(d^3); the sums stay.

        Parameters
        ----------
        regularization : float
            The new lambda > 0. When it is smaller, V comes from the Gram matrix, as in `merge`.

        Raises
        ------
        numpy.linalg.LinAlgError
            If V is not positive definite in float64; nothing has changed then.
        TypeError, ValueError
            If it is no such number, or out of the range of float64; nothing has changed then.
        """
        cdef double new = positive(regularization, "regularization"), old = self.regularization
        cdef double trace = max(self._trace - self.dimension * old, 0.0) + self.dimension * new
        cdef int info = 0
        if new < DBL_MIN or not trace <= ROOM:
            raise ValueError(f"regularization: {new} is out of the range of float64 here")
        self.regularization = new
        if new >= old:
            self.lift(new - old)
        else:
            info = self.factorise(NULL, NULL)
        if info != 0:
            error = self.indefinite("regularization", info)
            self.regularization = old
            raise error
        if new < old:
            self._trace, self._least = trace, new
        self._theta = None
        self.settle()

    @staticmethod
    def from_moments(gram, moment, n, regularization):
        """Return a Ridge that goes on from the sums of n rows, in O(d^3).

        Parameters
        ----------
        gram : array_like, shape (d, d)
            Sum of phi phi^T; the upper triangle is read.
        moment : array_like, shape (d,), or (d, t) for t targets
            Sum of y phi.
        n : int
            Rows in the sums; 0 only where they are zero.
        regularization : float
            lambda > 0.

        Raises
        ------
        numpy.linalg.LinAlgError
            If V is not positive definite in float64.
        TypeError, ValueError
            On a wrong dtype or shape, an entry that is not finite, a diagonal of `gram` that is not that of a second
            moment, or sums out of the range of float64.

        Examples
        --------
        >>> ridge = Ridge.from_moments([[3.0]], [8.0], n=5, regularization=1.0)
        >>> ridge.n, ridge.theta
        (5, array([2.]))
        """
        cdef cnp.ndarray sums = lower_of(gram, "gram"), products = as_numbers("moment", moment)
        cdef Py_ssize_t i, d = cnp.PyArray_DIM(sums, 0), rows = integer(n, "n", 0, LAST)
        cdef Ridge new
        cdef int info
        targets = cnp.PyArray_DIM(products, 1) if cnp.PyArray_NDIM(products) == 2 else None
        products = as_floats("moment", products, (d,) if targets is None else (d, None))
        if rows == 0 and (sums.any() or products.any()):
            raise ValueError("n: expected an integer >= 1 where gram or moment is not zero, got 0")
        new = Ridge(d, regularization, targets)
        for i in range(d):
            new._trace += entries(sums)[i * (d + 1)]
        if not new._trace <= ROOM:
            raise ValueError("gram: a sum is out of the range of float64; rescale")
        memcpy(new._lower, entries(sums), d * d * sizeof(double))
        memcpy(new._moment, entries(products), d * new._columns * sizeof(double))
        new.n = rows
        info = new.factorise(NULL, NULL)
        if info != 0:
            raise new.indefinite("gram", info)
        return new

    def merge(self, Ridge other not None, Ridge base=None):
        """Add the rows of another Ridge of the same dimension, regularization and targets, in O(d^3).

        V = V1 + V2 - lambda I comes from the Gram matrices, with an error of about d u trace(V). If lambda is as small
        as that, V has no correct digits in directions orthogonal to all rows.

        Rows that both have count twice, as those of a trained model do of which both are copies. Give that model as
        `base`, with which they count once: V = V1 + V2 - V_base.

        Parameters
        ----------
        other : Ridge
            Left as it is.
        base : Ridge, optional
            The rows that both have.

        Raises
        ------
        numpy.linalg.LinAlgError
            If V of both is not positive definite in float64; nothing has changed then.
        ValueError
            If they do not go together, `base` has more rows than one of them, or sums overflow; nothing has changed
            then.
        """
        cdef Py_ssize_t i, d = self.dimension
        cdef int info
        for argument, model in (("other", other), ("base", base)):
            for name in ("dimension", "regularization", "targets"):
                mine, theirs = getattr(self, name), getattr(other if model is None else model, name)
                if mine != theirs:
                    raise ValueError(f"{argument}: expected {name} {mine}, got {theirs}")
        if base is not None and base.n > min(self.n, other.n):
            raise ValueError(f"base: expected rows that both have, at most {min(self.n, other.n)}, got {base.n}")
        cdef double trace = other._trace - d * self.regularization, least = other._least
        cdef Py_ssize_t n = self.n + other.n
        cdef cnp.ndarray more = other.sums(), products = self.moment + other.moment
        if base is not None:
            more -= base.sums()
            products -= base.moment
            trace -= base._trace - d * self.regularization
            n -= base.n
        if not (trace <= ROOM - self._trace and all_finite(entries(products), d * self._columns)):
            raise ValueError("other: a sum of products is out of the range of float64")
        info = self.factorise(entries(more), NULL)
        if info != 0:
            raise self.indefinite("other", info)
        for i in range(d * d):
            self._lower[i] += entries(more)[i]
        memcpy(self._moment, entries(products), d * self._columns * sizeof(double))
        self._theta = None
        self._trace += trace
        self._least = max(self._least, least)
        self.n = n

    cdef cnp.ndarray sums(self):
        # sum phi phi^T, lower triangle, in a new array; the upper one holds zeros.
        cdef cnp.ndarray out = self._sums.copy()
        add_gram(entries(out), self._rows, self._held, self.dimension)
        return out

    @property
    def gram(self):
        """Sum of phi phi^T, shape (d, d), a new symmetric array."""
        cdef cnp.ndarray out = self.sums()
        mirror(entries(out), self.dimension)
        return out

    @property
    def moment(self):
        """Sum of y phi, shape (d,) or (d, t), a new array."""
        return self.like_moment(self._moment)

    cdef cnp.ndarray like_moment(self, const double* x):
        # A copy of x, shape (d,) or (d, t).
        cdef cnp.npy_intp[2] shape
        shape[0], shape[1] = self.dimension, self._columns
        cdef cnp.ndarray out = cnp.PyArray_SimpleNew(2 if self._several else 1, shape, cnp.NPY_DOUBLE)
        memcpy(entries(out), x, self.dimension * self._columns * sizeof(double))
        return out

    @property
    def targets(self):
        """Number of targets, or None for one without an axis of its own."""
        return self._columns if self._several else None

    @property
    def theta(self):
        """The estimate, shape (d,) or (d, t), a new array; solved for once after a change.

        Raises
        ------
        ValueError
            If it overflows.
        """
        return self.like_moment(entries(self.estimate()))

    cdef cnp.ndarray estimate(self):
        # The object's own array: never returned to users, and never written to again.
        cdef cnp.ndarray theta = self._theta
        cdef double* x
        if theta is None:
            # U^T U theta = moment
            theta = self.like_moment(self._moment)
            x = entries(theta)
            with nogil:
                solve_both(self._factor, x, self._columns, self.dimension)
            if not all_finite(x, self.dimension * self._columns):
                raise ValueError("theta: the estimate is out of the range of float64; rescale")
            self._theta = theta
        return theta

    @property
    def factor(self):
        """The Cholesky factor U, V = U^T U, upper triangular, shape (d, d): a read-only view that follows every change.

        Copy it to keep it.
        """
        return self._factors[0]

    @property
    def logdet(self):
        """Natural logarithm of det V."""
        cdef Py_ssize_t i
        cdef double total = 0.0
        for i in range(self.dimension):
            total += log(self._factor[i * self.dimension + i])
        return 2.0 * total

    def predict(self, Phi):
        """Return Phi @ theta.

        Parameters
        ----------
        Phi : array_like or sparse, shape (m, d), or array_like, shape (d,)

        Returns
        -------
        numpy.ndarray, shape (m,), or float for a single row
            With several targets (m, t), or (t,) for a single row. Of rows in float32, of one target, those in float32:
            theta is rounded to it, and the error is at most (d + 2) 2^-24 sum_i |phi_i theta_i| to first order.

        Raises
        ------
        TypeError, ValueError
            On a wrong dtype or shape, an entry that is not finite, or a result that overflows.
        """
        cdef cnp.ndarray row = single_row(Phi, self.dimension), theta
        cdef double value
        if self._several:
            return self.each_target(Phi, row, None)
        if row is None:
            return self.answers(Phi, True, False, 0.0)
        theta = self.estimate()
        value = dot(entries(row), entries(theta), self.dimension)
        if not isfinite(value):
            refuse_results((row,), "prediction")
        return value

    cdef cnp.ndarray each_target(self, Phi, cnp.ndarray row, cnp.ndarray widths):
        # Predictions of several targets for `row`, or for the rows Phi if that is None, plus a number for each row.
        cdef Py_ssize_t i, j, d = self.dimension, t = self._columns
        cdef tuple parts = parts_of(Phi, d) if row is None else (row,)
        cdef Rows rows = rows_in(parts)
        cdef cnp.ndarray base = np.zeros(rows.n) if widths is None else widths, theta = self.estimate()
        cdef cnp.ndarray result = doubles(rows.n * t), scratch = doubles(d * t + 16)
        cdef const double* weights = entries(theta)
        cdef const double* more = entries(base)
        cdef double* out = entries(result)
        cdef double* work = entries(scratch)
        # theta is never written to again, so no thread has to wait.
        with nogil:
            if rows.starts == NULL:
                target_products(rows.values, weights, more, out, work, rows.n, t, d)
            else:
                memset(out, 0, rows.n * t * sizeof(double))
                add_products(&rows, weights, out, t, d)
                for i in range(rows.n):
                    for j in range(t):
                        out[i * t + j] += more[i]
        if not all_finite(out, rows.n * t):
            if widths is not None:
                self.each_target(Phi, row, None)
                raise ValueError("alpha: a bound is out of the range of float64")
            refuse_results(parts, "prediction")
        return result if row is not None else result.reshape(rows.n, t)

    def leverage(self, Phi):
        """Return phi^T V^{-1} phi for every row, which is |U^{-T} phi|^2.

        Parameters
        ----------
        Phi : array_like or sparse, shape (m, d), or array_like, shape (d,)

        Returns
        -------
        numpy.ndarray, shape (m,), or float for a single row
            The bits of a row do not depend on the rows beside it, but on whether they are at least six.

        Raises
        ------
        TypeError, ValueError
            On a wrong dtype or shape, an entry that is not finite, or a result that overflows.

        Notes
        -----
        Each row is solved for with the factor, in d^2 / 2 multiplications and additions; six or more side by side. With
        M(U) for U with minus the sizes of the entries beside its diagonal, the root of a leverage has an error of at
        most 2 (d + 3) u ``|M(U)^{-T} |phi||`` to first order, where u = 2^-53 (Higham, Accuracy and Stability of
        Numerical Algorithms, theorem 8.10). In practice it is a few u times the root.

        Six rows or more in float32 are solved for in float32 with the factor rounded to it, in about half of the time:
        the bound is the same with u = 2^-24. Of rows in float32 the results are in float32.
        """
        cdef Py_ssize_t d = self.dimension
        cdef cnp.ndarray row = single_row(Phi, d)
        cdef double value
        if row is None:
            return self.answers(Phi, False, True, 0.0)
        value = leverage(self._factor, entries(row), self._work, d)
        if not isfinite(value):
            refuse_results((row,), "leverage")
        return value

    def upper(self, Phi, alpha):
        """Return the upper confidence bounds phi^T theta + alpha (phi^T V^{-1} phi)^(1/2) of rows.

        Parameters
        ----------
        Phi : array_like or sparse, shape (m, d), or array_like, shape (d,)
        alpha : float
            Width of the bounds, non-negative.

        Returns
        -------
        numpy.ndarray, shape (m,), or float for a single row
            From `predict` and `leverage`, in float32 where these are. With several targets (m, t), or (t,) for a single
            row: arms that share their rows share one factor.

        Raises
        ------
        TypeError, ValueError
            As for these, and if `alpha` is negative, not finite, or too large.

        Examples
        --------
        >>> Ridge(2, 4.0).upper([[1.0, 0.0], [0.0, 3.0]], alpha=2.0)
        array([1., 3.])
        """
        cdef double width = non_negative(alpha, "alpha"), value
        cdef cnp.ndarray row = single_row(Phi, self.dimension)
        if self._several and row is None:
            with np.errstate(over="ignore"):
                widths = width * np.sqrt(np.asarray(self.leverage(Phi), np.float64))
            return self.each_target(Phi, None, widths)
        if self._several:
            return self.each_target(Phi, row, np.array([width * sqrt(self.leverage(row))]))
        if row is None:
            return self.answers(Phi, True, True, width)
        value = self.predict(row) + width * sqrt(self.leverage(row))
        if not isfinite(value):
            raise ValueError("alpha: a bound is out of the range of float64")
        return value

    def select(self, Phi, alpha):
        """Return the row with the largest upper bound, the first of those that tie; see `upper` for the arguments.

        Parameters
        ----------
        Phi : array_like or sparse, shape (m, d)
            At least one row.
        alpha : float
            Non-negative; with 0 it is the row with the largest prediction.

        Returns
        -------
        int

        Raises
        ------
        TypeError, ValueError
            As for `upper`, if there are no rows, or one without an axis for them, or if there are several targets:
            then take the best of `upper` along either axis.
        """
        if self._several:
            raise ValueError("Phi: expected one target; of several take upper(Phi, alpha).argmax(axis=...)")
        bounds = self.upper(Phi, alpha)
        if np.ndim(bounds) == 0 or len(bounds) == 0:
            raise ValueError(f"Phi: expected shape (m, {self.dimension}) with m >= 1, got {np.shape(Phi)}")
        return int(bounds.argmax())

    cdef cnp.ndarray answers(self, Phi, bint means, bint squares, double alpha):
        # Of rows (m, d): predictions, leverages, or both: upper bounds.
        cdef Py_ssize_t i, first, size, m, d = self.dimension
        cdef cnp.ndarray theta = self.estimate() if means else None, block
        cdef double* wide
        cdef tuple parts
        cdef Rows given
        cdef cnp.ndarray mean, square
        cdef bint finite = True
        if cnp.PyArray_Check(Phi) and cnp.PyArray_TYPE(Phi) == cnp.NPY_FLOAT and cnp.PyArray_NDIM(Phi) == 2:
            if cnp.PyArray_DIM(Phi, 1) == d and cnp.PyArray_DIM(Phi, 0) >= MANY_ROWS:
                if not cnp.PyArray_ISCARRAY_RO(Phi):
                    Phi = np.require(Phi, np.float32, ["C", "A"])
                return self.single_answers(Phi, means, squares, alpha)
            return narrowed(self.answers(Phi.astype(np.float64), means, squares, alpha))
        parts = parts_of(Phi, d)
        given = rows_in(parts)
        m = given.n
        mean, square = doubles(m if means else 0), doubles(m if squares else 0)
        if given.starts == NULL:
            finite = scores[double](
                self._factor, entries(theta) if means else NULL, given.values, entries(mean),
                entries(square) if squares else NULL, m >= MANY_ROWS, m, d,
            )
        else:
            if means:
                mean = np.zeros(m)
                add_products(&given, entries(theta), entries(mean), 1, d)
                finite = all_finite(entries(mean), m)
            block = doubles(min(m, PIECE) * d)
            wide = entries(block)
            for first in range(0, m if squares else 0, PIECE):
                size = min(m - first, PIECE)
                with nogil:
                    for i in range(size):
                        spread(wide + i * d, &given, first + i, d)
                scores[double](
                    self._factor, NULL, wide, NULL, entries(square) + first, m >= MANY_ROWS, size, d
                )
        if not finite:
            refuse_results(parts, "prediction")
        if not all_finite(entries(square), cnp.PyArray_SIZE(square)):
            refuse_results(parts, "leverage")
        if not means:
            return square
        if squares and not raise_by(entries(mean), entries(square), alpha, m):
            raise ValueError("alpha: a bound is out of the range of float64")
        return mean

    cdef cnp.ndarray single_answers(self, cnp.ndarray rows, bint means, bint squares, double alpha):
        # The same in single precision.
        cdef Py_ssize_t m = cnp.PyArray_DIM(rows, 0), d = self.dimension
        cdef Py_ssize_t i
        cdef cnp.ndarray mean = singles(m if means else 0), square = singles(m if squares else 0), theta = None
        cdef const double* exact
        cdef bint finite
        if means:
            theta = singles(d)
            exact = entries(self.estimate())
            for i in range(d):
                floats(theta)[i] = <float> exact[i]
        finite = scores[float](
            self._factor, floats(theta) if means else NULL, floats(rows), floats(mean),
            floats(square) if squares else NULL, True, m, d,
        )
        if not (finite and finite_all(floats(square), m if squares else 0)):
            refuse_not_finite("Phi", rows.astype(np.float64))
            raise ValueError("Phi: a result is out of the range of float32; pass the rows as float64")
        if not means:
            return square
        if squares and not raise_by(floats(mean), floats(square), alpha, m):
            raise ValueError("alpha: a bound is out of the range of float32; pass the rows as float64")
        return mean

    def solve(self, b):
        """Return V^{-1} b, from the factor in O(d^2) a column.

        Parameters
        ----------
        b : array_like, shape (d,) or (d, m)

        Returns
        -------
        numpy.ndarray, shape of b

        Raises
        ------
        TypeError, ValueError
            On a wrong dtype or shape, an entry that is not finite, or a result that overflows.
        """
        cdef cnp.ndarray out = finite(b, "b", self.dimension, self.dimension, -1).copy()
        cdef Py_ssize_t m = 1 if cnp.PyArray_NDIM(out) == 1 else cnp.PyArray_DIM(out, 1)
        cdef double* x = entries(out)
        with nogil:
            solve_both(self._factor, x, m, self.dimension)
        if not all_finite(x, self.dimension * m):
            raise ValueError("b: a solution is out of the range of float64; rescale")
        return out

    def sample(self, rng, scale=1.0):
        """Draw from N(theta, scale^2 V^{-1}), the posterior of Thompson sampling: theta + scale U^{-1} z, in O(d^2).

        With a prior N(0, (s^2 / lambda) I) and noise of variance s^2, the posterior has scale = s.

        Parameters
        ----------
        rng : numpy.random.Generator or Stream
            Gives z, d standard normals a target. A generator goes on; a Stream is read from its beginning, so give
            every draw a position of its own, ``stream.at(t)``. The same seed gives the same bits.
        scale : float, default 1
            Non-negative.

        Returns
        -------
        numpy.ndarray, shape (d,), or (d, t) with independent columns for several targets

        Raises
        ------
        TypeError, ValueError
            If an argument is of another type or out of range, or a result overflows.

        Examples
        --------
        >>> ridge = Ridge(2, 1.0)
        >>> ridge.update([1.0, 0.0], 2.0)
        >>> rng = np.random.default_rng(0)
        >>> x = np.array([0.6, 0.8])
        >>> ridge.sample(rng) @ x == ridge.sample(rng, 0.5) @ x
        np.False_
        >>> ridge.sample(rng, 0.0) == ridge.theta
        array([ True,  True])
        """
        cdef double width = non_negative(scale, "scale")
        cdef Py_ssize_t i, d = self.dimension, t = self._columns
        cdef cnp.ndarray out = standard_normals(rng, -1, d * t), theta = self.estimate()
        cdef double* x = entries(out)
        cdef const double* mean = entries(theta)
        with nogil:
            solve_up(self._factor, x, t, d)
            for i in range(d * t):
                x[i] = mean[i] + width * x[i]
        if not all_finite(x, d * t):
            raise ValueError("scale: a sample is out of the range of float64")
        return out.reshape(d, t) if self._several else out

    def sample_many(self, rng, m, scale=1.0):
        """Draw m times; see `sample`.

        Parameters
        ----------
        rng : numpy.random.Generator or Stream
            Gives the normals of m calls of `sample`, from one position of a stream.
        m : int
            Non-negative.
        scale : float, default 1
            Non-negative.

        Returns
        -------
        numpy.ndarray, shape (m, d) or (m, d, t)
            The numbers of m calls of `sample` with one generator, except for rounding.

        Raises
        ------
        TypeError, ValueError
            As for `sample`.
        """
        cdef double width = non_negative(scale, "scale")
        cdef Py_ssize_t d = self.dimension, t = self._columns, size = integer(m, "m", 0, MANY // (d * t))
        cdef cnp.ndarray out = standard_normals(rng, size, d * t), theta = self.estimate()
        cdef cnp.ndarray scratch = doubles(packed_size(d) + group_size(d)), rows, means
        cdef double* x = entries(out)
        cdef double* work = entries(scratch)
        cdef const double* mean = entries(theta)
        cdef Py_ssize_t j
        if t == 1:
            with nogil:
                displace(self._factor, mean, width, x, work, size, d)
        else:
            # Samples of each target are rows of a block of their own.
            rows = np.ascontiguousarray(out.reshape(size, d, t).transpose(2, 0, 1))
            means = np.ascontiguousarray(theta.T)
            for j in range(t):
                displace(self._factor, entries(means) + j * d, width, entries(rows) + j * size * d, work, size, d)
            out = np.ascontiguousarray(rows.transpose(1, 2, 0))
            x = entries(out)
        if not all_finite(x, d * t * size):
            raise ValueError("scale: a sample is out of the range of float64")
        return out.reshape(size, d, t) if self._several else out

    def save(self, path):
        """Write the state to a file, which `load` reads: npz, in the format that docs/kernels.md describes.

        Parameters
        ----------
        path : str or path
            A file there is replaced, once the new one is complete.

        Raises
        ------
        OSError
            If it cannot be written.
        """
        save(path, self, NAMES)

    @staticmethod
    def load(path):
        """Return the object that `save` wrote, bit for bit.

        Raises
        ------
        OSError
            If the file cannot be read.
        FileError
            If it is not a file of `save`, is damaged, or of a later version; a ValueError.
        """
        return load(path, Ridge, NAMES, STATE)

    def copy(self):
        """Return an independent Ridge in the same state, bit for bit."""
        make, arguments, state = self.__reduce__()
        other = make(*arguments)
        other.__setstate__(state)
        return other

    def __reduce__(self):
        state = {
            "version": STATE,
            "n": self.n,
            "factor": self._factors[0].copy(),
            "lower": self._sums.copy(),
            "rows": self._waiting[: self._held].copy(),
            "moment": self.moment,
            "left": self._left,
            "trace": self._trace,
            "least": self._least,
        }
        return Ridge, (self.dimension, self.regularization, self.targets), state

    def __setstate__(self, state):
        cdef Py_ssize_t n, left, d = self.dimension
        cdef cnp.ndarray factor, lower, rows, moment
        cdef double trace, least
        state = state_of(state, "a Ridge", STATE, ("n", "left", "factor", "lower", "rows", "moment", "trace", "least"))
        n = integer(state["n"], "state['n']", 0, LAST)
        left = integer(state["left"], "state['left']", 1, REFACTOR)
        factor = np.triu(as_floats("state['factor']", state["factor"], (d, d)))
        lower = as_floats("state['lower']", state["lower"], (d, d))
        rows = as_floats("state['rows']", state["rows"], (None, d))
        moment = as_floats("state['moment']", state["moment"], np.shape(self.moment))
        trace = positive(state["trace"], "state['trace']")
        least = positive(state["least"], "state['least']")
        if cnp.PyArray_DIM(rows, 0) >= HELD:
            raise ValueError(f"state['rows']: expected fewer than {HELD} rows, got {cnp.PyArray_DIM(rows, 0)}")
        if not (np.diagonal(factor) > 0.0).all():
            raise ValueError("state['factor']: expected a positive diagonal")
        if not least <= trace <= ROOM:
            raise ValueError(f"state['trace']: expected a number in [least, {ROOM}], got {trace}")
        self.n, self._held, self._left = n, cnp.PyArray_DIM(rows, 0), left
        self._trace, self._least, self._theta = trace, least, None
        memcpy(self._factor, entries(factor), d * d * sizeof(double))
        memcpy(self._lower, entries(lower), d * d * sizeof(double))
        memcpy(self._rows, entries(rows), self._held * d * sizeof(double))
        memcpy(self._moment, entries(moment), d * self._columns * sizeof(double))

    def __repr__(self):
        columns = f", targets={self._columns}" if self._several else ""
        return f"Ridge({self.dimension}, {self.regularization!r}{columns}): n={self.n}"


cdef cnp.ndarray single_row(value, Py_ssize_t d):
    # The argument Phi if it is a row (d,), or None.
    if is_sparse(value):
        return None
    if not cnp.PyArray_Check(value):
        value = as_numbers("Phi", value)
    return finite(value, "Phi", d, -1, d) if cnp.PyArray_NDIM(value) == 1 else None


cdef tuple parts_of(value, Py_ssize_t d):
    # The argument Phi, (m, d) or sparse, as parts of `rows_in`. Entries may be NaN or infinite, as the result of their
    # row then is.
    return sparse_rows(value, "Phi", d) if is_sparse(value) else (matrix(value, "Phi", -1, d),)


cdef inline float* floats(cnp.ndarray array) noexcept:
    return <float*> cnp.PyArray_DATA(array)


cdef cnp.ndarray narrowed(cnp.ndarray result):
    with np.errstate(over="ignore"):
        out = result.astype(np.float32)
    if not np.isfinite(out).all():
        raise ValueError("Phi: a result is out of the range of float32; pass the rows as float64")
    return out


cdef int scores(
    const double* u, const real* theta, const real* x, real* mean, real* square, bint grouped, Py_ssize_t m,
    Py_ssize_t d
) except -1:
    # For the rows of x (m, d): mean (m,) <- x theta unless theta is NULL, and square (m,) <- |U^{-T} x|^2 unless that
    # is NULL: `grouped`, or one by one, in double precision only. Returns whether all of mean is finite.
    cdef Py_ssize_t first = 0, size, packed = packed_size(d) if grouped else 0
    cdef cnp.ndarray scratch
    cdef real* work = NULL
    cdef bint finite = True
    if square != NULL:
        scratch = doubles(packed + (group_size(d) if grouped else d))
        work = <real*> cnp.PyArray_DATA(scratch)
    if square != NULL and grouped:
        with nogil:
            pack(u, work, d)
    while first < m:
        PyErr_CheckSignals()
        size = min(m - first, BLOCK if square == NULL else PIECE)
        with nogil:
            if theta != NULL:
                finite = inner_products(x + first * d, theta, mean + first, size, d) and finite
            if square != NULL:
                piece(u, x + first * d, square + first, work, work + packed, grouped, size, d)
        first += size
    return finite


cdef void piece(
    const double* u, const real* x, real* square, const real* packed, real* group, bint grouped, Py_ssize_t m,
    Py_ssize_t d
) noexcept nogil:
    cdef real[GROUP_SINGLE] unused, squares
    cdef Py_ssize_t i = 0, size
    if not grouped:
        if real is double:
            for i in range(m):
                square[i] = leverage(u, x + i * d, group, d)
        return
    while i < m:
        size = gather(x + i * d, d, m - i, group, d)
        score[real](packed, NULL, group, group, unused, squares, size, d)
        memcpy(square + i, squares, size * sizeof(real))
        i += size


cdef cnp.ndarray finite(value, str name, Py_ssize_t d, Py_ssize_t rows, Py_ssize_t columns):
    # (d,) or (rows, columns)
    cdef cnp.ndarray array
    if not cnp.PyArray_Check(value):
        value = as_numbers(name, value)
    array = vector(value, name, d) if cnp.PyArray_NDIM(value) == 1 else matrix(value, name, rows, columns)
    refuse_not_finite(name, array)
    return array


cdef void add_products(
    const Rows* rows, const double* weights, double* out, Py_ssize_t t, Py_ssize_t d
) noexcept nogil:
    # out (n, t) <- that plus rows weights for sparse rows, weights (d, t)
    cdef Py_ssize_t i, j, k
    cdef const double* weight
    for i in range(rows.n):
        for k in range(rows.starts[i], rows.starts[i + 1]):
            weight = weights + rows.columns[k] * t
            for j in range(t):
                out[i * t + j] += rows.values[k] * weight[j]


cdef cnp.ndarray scaled(const double* x, double factor, Py_ssize_t n):
    cdef Py_ssize_t i
    cdef cnp.ndarray out = doubles(n)
    for i in range(n):
        entries(out)[i] = factor * x[i]
    return out


cdef void solve_up(const double* factor, double* x, Py_ssize_t m, Py_ssize_t d) noexcept nogil:
    # x (d, m) <- U^{-1} x
    if m == 1:
        solve_factor(factor, x, d)
    else:
        solve_block(factor, x, m, d)


cdef void solve_both(const double* factor, double* x, Py_ssize_t m, Py_ssize_t d) noexcept nogil:
    # x (d, m) <- V^{-1} x
    if m == 1:
        solve_factor_transposed(factor, x, d)
    else:
        solve_block_transposed(factor, x, m, d)
    solve_up(factor, x, m, d)


cdef int refuse_results(tuple parts, str what) except -1:
    refuse_not_finite("Phi" if len(parts) == 1 else "Phi.data", parts[0])
    raise ValueError(f"Phi: a {what} is out of the range of float64; rescale")
