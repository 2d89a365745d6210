"""Ridge regression row by row (paper, section 6, with Gamma(theta) = lambda_ridge ||theta||^2).

`Ridge` keeps the Cholesky factor U of V = lambda I + sum phi phi^T up to date by Givens rotations of the rows of
[U; phi^T] (see `_factor`), so that a row costs O(d^2) and nothing is inverted.
"""

cimport cython
cimport numpy as cnp
from cpython.exc cimport PyErr_CheckSignals
from libc.float cimport DBL_EPSILON, DBL_MAX, DBL_MIN
from libc.math cimport INFINITY, fabs, isfinite, log, sqrt
from libc.stdint cimport int32_t, int64_t
from libc.string cimport memcpy, memset

from dmq_fast.kernels._blas cimport add_gram, cholesky_upper
from dmq_fast.kernels._factor cimport (
    downdate_factor_above, dot, inverse_squares, leverage_work_size, leverages, solve_block, solve_block_transposed,
)
from dmq_fast.kernels._moments cimport (
    add_outer, add_outer_sparse, as_columns, mirror, refuse_indefinite, sparse_rows,
)
from dmq_fast.kernels._normal cimport standard_normals
from dmq_fast.kernels._validate cimport (
    all_finite, entries, flag, integer, is_sparse, matrix, non_negative, number, positive, refuse_not_finite, vector,
)

import numpy as np

from dmq_fast.kernels._validate import as_floats, as_numbers, as_positive

cnp.import_array()


cdef enum:
    # Version of pickled states.
    STATE = 1
    # Rows added to the Gram matrix together, by one dsyrk.
    HELD = 64
    # Rotated rows after which the factor is computed afresh from the Gram matrix.
    REFACTOR = 1024
    # A block of m rows is rotated in where ROTATE m <= d + FEW (bench/test_ridge.py).
    ROTATE = 12
    FEW = 12
    # From this dimension on, work on one row releases the lock of the interpreter.
    LONG = 128
    # Rows for which `leverage` works between two checks for signals.
    BLOCK = 4096
    # Samples that are solved for together.
    TOGETHER = 32
    # Sparse rows made dense at a time.
    SPREAD = 256
    # Rows handed to BLAS at a time: its integers may have 32 bits.
    MOST = 1 << 16

# A downdate that leaves a share of det(V) below this would amplify rounding by the inverse root of the share: V is
# factorised again instead.
cdef double LEAST = 2.0 ** -10

# The factor is computed from the Gram matrix only if the error in any direction is at most this share of V: see
# `sound`.
cdef double SHARE = 2.0 ** -20

# Most numbers of one call of `sample_many`.
cdef Py_ssize_t MANY = <Py_ssize_t> 1 << 56

# Largest n of an unpickled state: half of the largest integer, so that more rows can be added.
cdef Py_ssize_t LAST = <Py_ssize_t> (<size_t> -1 >> 2)

# Sums of squares up to here keep every entry of V away from overflow, rounding included.
cdef double ROOM = DBL_MAX / 8.0


cdef inline cnp.ndarray doubles(Py_ssize_t n):
    cdef cnp.npy_intp size = n
    return cnp.PyArray_SimpleNew(1, &size, cnp.NPY_DOUBLE)


cdef cnp.ndarray copied(const double* x, Py_ssize_t rows, Py_ssize_t columns):
    # A new array (rows, columns), or (columns,) if `rows` is negative. By memcpy, as NumPy's own copies release the
    # lock of the interpreter.
    cdef cnp.npy_intp[2] shape
    cdef cnp.ndarray out
    shape[0], shape[1] = rows, columns
    out = doubles(columns) if rows < 0 else cnp.PyArray_SimpleNew(2, shape, cnp.NPY_DOUBLE)
    memcpy(entries(out), x, (1 if rows < 0 else rows) * columns * sizeof(double))
    return out


# Rows (n, d) that one call adds: dense, or sparse if `starts` is not NULL.
cdef struct Rows:
    Py_ssize_t n
    const double* values
    const int32_t* columns
    const int64_t* starts


cdef Rows dense(cnp.ndarray rows):
    return Rows(cnp.PyArray_DIM(rows, 0), entries(rows), NULL, NULL)


cdef Rows sparse(tuple parts):
    # `parts` come from `sparse_rows` and stay alive.
    cdef cnp.ndarray values = parts[0], columns = parts[1], starts = parts[2]
    return Rows(
        cnp.PyArray_DIM(starts, 0) - 1, entries(values), <const int32_t*> cnp.PyArray_DATA(columns),
        <const int64_t*> cnp.PyArray_DATA(starts),
    )


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
    normalized : bool, default False
        Which of the two normalisations is meant::

            False:  V = lambda I + sum phi phi^T,      theta = V^{-1} sum y phi          (bandits)
            True:   V = lambda I + sum phi phi^T / n,  theta = V^{-1} (sum y phi) / n    (paper, section 6)

        In the second a row changes n and with it all of V, so there is no rank-one form: `update` adds to the sums in
        O(d^2), and the first query after it factorises in O(d^3), as does every `downdate`. Without rows V = lambda I.
        Without rows theta is zero in both.
    targets : int, optional
        Number t >= 1 of targets that share the rows and the factor: each y then has shape (t,), and `moment`, `theta`
        and samples have shape (d, t). None, the default, is one target without that axis.

    Attributes
    ----------
    dimension : int
        d.
    regularization : float
        lambda.
    normalized : bool
        As given.
    n : int
        Rows added less rows removed; a weighted row counts once, and a discounted one still does.
    targets : int or None
        As given.

    Notes
    -----
    The last rows, up to 64, wait in a buffer that is added to the Gram matrix as a block, and after 1024 rotated rows
    the factor is computed afresh from the Gram matrix, as `update_rows` does. So with k < 1024 rows rotated since,
    ``|U^T U - V| <= 20 (k + 1) d u trace(V)`` in the Frobenius norm to first order, where u = 2^-53, V is that of the
    Gram matrix as summed, and trace(V) its largest since then; in practice the error grows like the root of k.

    In a direction orthogonal to all rows V is lambda. A factor computed from the Gram matrix has an error of about
    u trace(V) there, a rotated one of u sqrt(lambda trace(V)). So the factor is computed from the Gram matrix only
    while ``(d + 64) u trace(V) <= 2^-20 mu`` for a lower bound mu on the least eigenvalue of V (lambda, or a bound from
    the factor) and V is definite in float64. Otherwise the rotated factor stays, which is always definite,
    `update_rows` rotates every row, `discount` and a larger lambda are rotations of d rows, and k goes on growing. Five
    operations use the Gram matrix in any case: queries when `normalized`, where trace(V) is that of the mean, `merge`,
    `refactor`, `from_moments`, and `regularize` with a smaller lambda. After them leverages in such a direction have a
    relative error of about d u trace(V) / lambda.

    A call that raises leaves the state unchanged. Several threads may read one object at a time, also when normalised:
    the first one factorises while the others wait. A thread that reads while another changes the object, or changes it
    while another reads, gets RuntimeError, unless the lock of the interpreter keeps the two apart.

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
    cdef readonly bint normalized
    # Columns of the moment, and whether they are an axis of results.
    cdef Py_ssize_t _columns
    cdef bint _several
    # U, zero below the diagonal, and room for the next one. Both stay where they are: `factor` is a view.
    cdef double* _factor
    cdef double* _spare
    # Lower triangle of sum phi phi^T, without the rows in the buffer.
    cdef double* _lower
    cdef double* _rows
    cdef double* _moment
    # 3 d doubles
    cdef double* _work
    # Arrays that own the memory of the pointers above.
    cdef cnp.ndarray _factors, _sums, _waiting, _products, _scratch
    cdef object _theta
    cdef Py_ssize_t _held
    # Rows that may still be rotated before the factor is computed afresh.
    cdef Py_ssize_t _left
    # Upper bounds on trace(V), or on d lambda + sum |phi|^2 when normalised, and on the entries of the moment.
    cdef double _trace
    cdef double _reach
    # A lower bound on the least eigenvalue of V; not used when normalised.
    cdef double _least
    # Whether U is the factor of the present sums; always True unless normalised.
    cdef bint _fresh
    # What threads do that have released the lock of the interpreter: -1, one changes the object; k > 0, k of them read.
    cdef Py_ssize_t _busy

    def __cinit__(self, d, regularization, normalized=False, targets=None):
        cdef Py_ssize_t size = integer(d, "d", 1, 1 << 28)
        self.regularization = positive(regularization, "regularization")
        self.normalized = flag(normalized, "normalized")
        self._trace = size * self.regularization
        if self.regularization < DBL_MIN or self._trace > ROOM:
            raise ValueError(f"regularization: {self.regularization} is out of the range of float64 here")
        self._several = targets is not None
        self._columns = integer(targets, "targets", 1, 1 << 28) if self._several else 1
        self.dimension = size
        self._factors, self._sums = np.zeros((2, size, size)), np.zeros((size, size))
        self._waiting, self._products = np.zeros((HELD, size)), np.zeros(size * self._columns)
        self._scratch = np.zeros(3 * size)
        # `factor` hands out views.
        self._factors.flags.writeable = False
        self._factor = entries(self._factors)
        self._spare = self._factor + size * size
        self._lower, self._rows = entries(self._sums), entries(self._waiting)
        self._moment, self._work = entries(self._products), entries(self._scratch)
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
        self._reach = 0.0
        self._left = REFACTOR
        self._fresh = True
        self._held = 0
        self.n = 0

    cdef int may_read(self) except -1:
        if self._busy < 0:
            raise RuntimeError("Ridge: being changed by another thread; give every thread its own copy()")
        return 0

    cdef int may_write(self) except -1:
        if self._busy != 0:
            raise RuntimeError("Ridge: in use by another thread; give every thread its own copy()")
        return 0

    cdef int admit(self, double square, double reach, str name, cnp.ndarray rows, y) except -1:
        # `square` = sum |phi|^2 and `reach` = sum |y| |phi| are NaN or infinite if an argument is.
        if square <= ROOM - self._trace and reach <= ROOM - self._reach:
            return 0
        return self.out_of_range(name, rows, y)

    cdef int out_of_range(self, str name, cnp.ndarray rows, y) except -1:
        refuse_not_finite(name, rows)
        as_floats("y", y, np.shape(y))
        raise ValueError(f"{name}, y: a sum of products is out of the range of float64; rescale")

    cdef void flush(self) noexcept nogil:
        add_gram(self._lower, self._rows, self._held, self.dimension)
        self._held = 0

    cdef void form(self, double* out, const double* more, const double* less, double n) noexcept nogil:
        # Upper triangle of out <- V of the Gram matrix, plus `more` (lower triangle), minus less less^T, of n rows.
        cdef Py_ssize_t i, j, d = self.dimension
        cdef double entry
        for i in range(d):
            for j in range(i, d):
                entry = self._lower[j * d + i]
                if more != NULL:
                    entry += more[j * d + i]
                if less != NULL:
                    entry -= less[i] * less[j]
                if self.normalized:
                    entry = entry / n if n > 0.0 else 0.0
                out[i * d + j] = entry
            out[i * d + i] += self.regularization

    cdef int factorise(self, const double* more, const double* less, double n) noexcept nogil:
        # Replace the factor by that of `form`. Returns 0, or the order of the leading minor that is not positive
        # definite; the factor is unchanged then.
        cdef int info
        self.flush()
        self.form(self._spare, more, less, n)
        info = cholesky_upper(self._spare, self.dimension)
        if info == 0:
            memcpy(self._factor, self._spare, self.dimension * self.dimension * sizeof(double))
            self._left = REFACTOR
            self._fresh = True
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

    cdef int settle(self) except -1:
        # After a change: empty the buffer if it is full, and compute the factor afresh if enough rows were rotated.
        if self._held == HELD or self._left <= 0:
            self._busy = -1
            with nogil:
                self.flush()
                if self._left <= 0 and not (self.sound() and self.factorise(NULL, NULL, self.n) == 0):
                    # The rotated factor is the better one; try again after as many rows.
                    self._left = REFACTOR
            self._busy = 0
        return 0

    cdef int ready(self) except -1:
        # Before a query: refuse if another thread changes the object, and make the factor that of the sums. That is
        # done under the lock of the interpreter, so that one of several readers factorises and the others wait. None of
        # them can be reading the old factor, since the change that outdated it was refused while there was a reader.
        cdef int info
        self.may_read()
        if not self._fresh:
            info = self.factorise(NULL, NULL, self.n)
            if info != 0:
                raise self.indefinite("regularization", info)
        return 0

    def refactor(self):
        """Compute the factor afresh from the Gram matrix, O(d^3); `update` does so every 1024 rows.

        Unlike `update`, this does so also if lambda is so small beside V that rotations are more accurate (see Notes).

        Raises
        ------
        numpy.linalg.LinAlgError
            If V is not positive definite in float64: `regularization` is lost in the rounding of the sums. The
            factor stays as it was.
        """
        cdef int info
        self.may_write()
        self._busy = -1
        with nogil:
            info = self.factorise(NULL, NULL, self.n)
        self._busy = 0
        if info != 0:
            raise self.indefinite("regularization", info)
        self._theta = None

    cdef object indefinite(self, str name, int minor):
        means = " / n" if self.normalized else ""
        return np.linalg.LinAlgError(
            f"{name}: gram{means} + regularization I would not be positive definite in float64 "
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
        cdef cnp.ndarray columns = as_columns(indices, "indices", self.dimension), row = np.zeros(self.dimension)
        cdef cnp.ndarray numbers = vector(values, "values", cnp.PyArray_DIM(columns, 0))
        cdef const int32_t* column = <const int32_t*> cnp.PyArray_DATA(columns)
        cdef Py_ssize_t i
        refuse_not_finite("values", numbers)
        for i in range(cnp.PyArray_DIM(columns, 0)):
            entries(row)[column[i]] += entries(numbers)[i]
        self.add_one(row, y, weight)

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
        cdef double square, reach
        if share != 1.0:
            # w phi phi^T and w y phi are those of a scaled row with scaled targets.
            refuse_not_finite("phi", row)
            as_floats("y", y, np.shape(y))
            weighted, targets = scaled(x, sqrt(share), d), scaled(target, sqrt(share), self._columns)
            x, target = entries(weighted), entries(targets)
        square = dot(x, x, d)
        reach = size_of(target, self._columns) * sqrt(square)
        self.may_write()
        self.admit(square, reach, "phi", row, y)
        self._trace += square
        self._reach += reach
        self.hold(x, target)
        self.n += 1
        self._theta = None
        if self.normalized:
            self._fresh = False
        elif d < LONG:
            self.rotate(x)
        else:
            self._busy = -1
            with nogil:
                self.rotate(x)
            self._busy = 0
        self.settle()
        return 0

    cdef void hold(self, const double* x, const double* target) noexcept nogil:
        memcpy(self._rows + self._held * self.dimension, x, self.dimension * sizeof(double))
        self.add_products(x, target)
        self._held += 1

    cdef void add_products(self, const double* x, const double* target) noexcept nogil:
        # moment (d, t) <- moment + x target^T
        cdef Py_ssize_t i, j, t = self._columns
        if t == 1:
            for i in range(self.dimension):
                self._moment[i] += target[0] * x[i]
            return
        for i in range(self.dimension):
            for j in range(t):
                self._moment[i * t + j] += x[i] * target[j]

    cdef void rotate(self, const double* x) noexcept nogil:
        memcpy(self._work, x, self.dimension * sizeof(double))
        self.rotate_work()

    cdef void rotate_work(self) noexcept nogil:
        update_factor(self._factor, self._work, self.dimension)
        self._left -= 1

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
        cdef Py_ssize_t i, first, size, d = self.dimension
        cdef tuple parts = sparse_rows(Phi, "Phi", d) if is_sparse(Phi) else None
        cdef cnp.ndarray rows = matrix(Phi, "Phi", -1, d) if parts is None else parts[0]
        cdef Rows given = dense(rows) if parts is None else sparse(parts)
        cdef Py_ssize_t m = given.n
        cdef cnp.ndarray targets = self.many(y, m)
        cdef str name = "Phi" if parts is None else "Phi.data"
        if weights is not None:
            weights = as_floats("weights", weights, (m,))
            if (weights < 0.0).any():
                raise ValueError(f"weights: expected non-negative numbers, got {weights.min()}")
            refuse_not_finite(name, rows)
            refuse_not_finite("y", targets)
            with np.errstate(all="ignore"):
                # sum w phi phi^T and sum w y phi are those of scaled rows and targets.
                root = np.sqrt(weights)
                rows = rows * (root[:, None] if parts is None else np.repeat(root, np.diff(parts[2])))
                targets = targets * (root[:, None] if self._several else root)
            if not (np.isfinite(rows).all() and np.isfinite(targets).all()):
                raise ValueError("Phi, y, weights: a product is out of the range of float64; rescale")
            given.values = entries(rows)
        cdef const double* target = entries(targets)
        cdef double square, squares = 0.0, reach = 0.0
        if parts is None and np.may_share_memory(rows, self._factors):
            # Rows of `factor` would change while they are rotated in.
            rows = rows.copy()
            given.values = entries(rows)
        with nogil:
            for i in range(m):
                first = i * d if given.starts == NULL else given.starts[i]
                size = d if given.starts == NULL else given.starts[i + 1] - first
                square = dot(given.values + first, given.values + first, size)
                squares += square
                reach += size_of(target + i * self._columns, self._columns) * sqrt(square)
        self.may_write()
        self.admit(squares, reach, name, rows, targets)
        if m == 0:
            return
        self._trace += squares
        self._reach += reach
        self._theta = None
        self._busy = -1
        with nogil:
            self.add_block(&given, target)
        self._busy = 0
        self.settle()

    cdef void add_sums(self, const Rows* rows, const double* target) noexcept nogil:
        # The Gram matrix and the moment, or the buffer.
        cdef Py_ssize_t i, k, first, size, done = 0, m = rows.n, d = self.dimension, t = self._columns
        if rows.starts != NULL:
            for i in range(m):
                first, size = rows.starts[i], rows.starts[i + 1] - rows.starts[i]
                add_outer_sparse(self._lower, rows.columns + first, rows.values + first, size, 1.0, d)
                for k in range(first, first + size):
                    for done in range(t):
                        self._moment[rows.columns[k] * t + done] += rows.values[k] * target[i * t + done]
            return
        if self._held + m > HELD:
            self.flush()
        if m <= HELD:
            for i in range(m):
                self.hold(rows.values + i * d, target + i * t)
            return
        while done < m:
            size = min(MOST, m - done)
            add_gram(self._lower, rows.values + done * d, size, d)
            done += size
        for i in range(m):
            self.add_products(rows.values + i * d, target + i * t)

    cdef void add_block(self, const Rows* rows, const double* target) noexcept nogil:
        cdef Py_ssize_t i, size, done = 0, m = rows.n, d = self.dimension
        self.add_sums(rows, target)
        self.n += m
        if self.normalized:
            self._fresh = False
            return
        if ROTATE * m <= d + FEW:
            for i in range(m):
                spread(self._work, rows, i, d)
                self.rotate_work()
            return
        # A few rotated rows may raise the least eigenvalue enough to use the Gram matrix, which holds all rows by now.
        done = 0
        while done < m and not (self.sound() and self.factorise(NULL, NULL, self.n) == 0):
            size = min(REFACTOR, m - done)
            for i in range(done, done + size):
                spread(self._work, rows, i, d)
                self.rotate_work()
            done += size

    def downdate(self, phi, y):
        """Remove a row: V <- V - phi phi^T and moment <- moment - y phi.

        This rotates the row out in O(d^2), or factorises the Gram matrix, if rotations would amplify rounding (leverage
        of the row close to one) or `normalized` is set. Rounding errors are relative to the largest V so far, so a
        small V that is left after large rows were removed is mostly rounding error. When the last row is removed, the
        sums are exactly zero and V = lambda I.

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
        cdef Py_ssize_t i, d = self.dimension
        cdef cnp.ndarray row = vector(phi, "phi", d)
        # A new array: the targets, and later their negatives.
        cdef cnp.ndarray targets = -self.many(y, -1) if self._several else np.array([-number(y, "y")])
        cdef const double* x = entries(row)
        cdef double square = dot(x, x, d), reach = size_of(entries(targets), self._columns) * sqrt(square)
        cdef int info
        self.may_write()
        # A row that was added fits. Twice ROOM also holds the difference with a row that was not.
        if not (square <= ROOM and reach <= 2.0 * ROOM - self._reach):
            self.out_of_range("phi", row, y)
        if self.n == 0:
            raise ValueError("phi: there is no row to remove")
        self._busy = -1
        with nogil:
            info = self.remove(x)
        self._busy = 0
        if info != 0:
            raise self.indefinite("phi", info)
        # Rounding must not take the bound below trace(lambda I).
        self._trace = max(self._trace - square, d * self.regularization)
        self._least = self.regularization
        self._theta = None
        self.n -= 1
        self._reach = 0.0
        self.add_products(x, entries(targets))
        for i in range(d * self._columns):
            self._reach = max(self._reach, fabs(self._moment[i]))
        if self.n == 0:
            self.clear()
        self.settle()

    cdef int remove(self, const double* x) noexcept nogil:
        cdef Py_ssize_t d = self.dimension
        cdef int info = NOT_DEFINITE
        if not self.normalized:
            memcpy(self._work, x, d * sizeof(double))
            info = downdate_factor_above(self._factor, self._work, self._work + d, d, LEAST)
            if info != 0 and not self.sound():
                # Rotations amplify rounding in this direction, but the Gram matrix would do so in every direction.
                memcpy(self._work, x, d * sizeof(double))
                info = downdate_factor(self._factor, self._work, self._work + d, d)
        if info == 0:
            self._left -= 1
        else:
            info = self.factorise(NULL, x, self.n - 1)
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

            The second takes the prior away with the data: directions that are not seen any more become unknown.

        Raises
        ------
        TypeError, ValueError
            If an argument is of another type or out of range, or lambda would be too small for float64; nothing has
            changed then.
        """
        cdef double share = positive(factor, "factor"), root = sqrt(share)
        cdef bint whole = flag(with_regularization, "with_regularization")
        cdef Py_ssize_t i, d = self.dimension
        if share > 1.0:
            raise ValueError(f"factor: expected a number in (0, 1], got {share}")
        if whole and self.regularization * share < DBL_MIN:
            raise ValueError(f"factor: {share} times regularization {self.regularization} is out of range of float64")
        self.may_write()
        self._busy = -1
        with nogil:
            self.flush()
            for i in range(d * d):
                self._lower[i] *= share
                self._factor[i] *= root
            for i in range(d * self._columns):
                self._moment[i] *= share
            self._reach *= share
            self._trace *= share
            self._least *= share
            # Every entry of U was rounded, as by a rotation.
            self._left -= 1
            if whole:
                self.regularization *= share
            else:
                self.lift((1.0 - share) * self.regularization)
            if self.normalized:
                self._fresh = False
        self._busy = 0
        self._theta = None
        self.settle()

    cdef void lift(self, double more) noexcept nogil:
        # V <- V + more I, where the sums and lambda are those of the result.
        cdef Py_ssize_t i, d = self.dimension
        self._trace += d * more
        self._least += more
        if self.normalized or more == 0.0 or (self.sound() and self.factorise(NULL, NULL, self.n) == 0):
            return
        more = sqrt(more)
        for i in range(d):
            memset(self._work, 0, d * sizeof(double))
            self._work[i] = more
            self.rotate_work()

    def regularize(self, regularization):
        """Change lambda in place, in O(d^3); the sums stay.

        Parameters
        ----------
        regularization : float
            The new lambda > 0. When it is smaller, V comes from the Gram matrix, as in `merge`.

        Raises
        ------
        numpy.linalg.LinAlgError
            If V is not positive definite in float64; nothing has changed then. When normalised, queries raise it.
        TypeError, ValueError
            If it is no such number, or out of the range of float64; nothing has changed then.
        """
        cdef double new = positive(regularization, "regularization"), old = self.regularization
        cdef double trace = max(self._trace - self.dimension * old, 0.0) + self.dimension * new
        cdef int info = 0
        if new < DBL_MIN or not trace <= ROOM:
            raise ValueError(f"regularization: {new} is out of the range of float64 here")
        self.may_write()
        self.regularization = new
        self._busy = -1
        with nogil:
            if new >= old:
                self.lift(new - old)
            elif not self.normalized:
                info = self.factorise(NULL, NULL, self.n)
        self._busy = 0
        if info != 0:
            error = self.indefinite("regularization", info)
            self.regularization = old
            raise error
        if new < old:
            self._trace, self._least = trace, new
        self._fresh = not self.normalized
        self._theta = None
        self.settle()

    @staticmethod
    def from_moments(gram, moment, n, regularization, normalized=False):
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
        normalized : bool, default False
            As for the class.

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
        cdef cnp.ndarray sums = matrix(gram, "gram", -1, -1), products = as_numbers("moment", moment)
        cdef Py_ssize_t i, d = cnp.PyArray_DIM(sums, 0), rows = integer(n, "n", 0, LAST)
        cdef Ridge new
        cdef int info
        if d == 0 or cnp.PyArray_DIM(sums, 1) != d:
            raise ValueError(f"gram: expected shape (d, d) with d >= 1, got {(d, cnp.PyArray_DIM(sums, 1))}")
        targets = cnp.PyArray_DIM(products, 1) if cnp.PyArray_NDIM(products) == 2 else None
        products = as_floats("moment", products, (d,) if targets is None else (d, None))
        sums = np.ascontiguousarray(np.triu(sums).T)  # what follows reads lower triangles
        refuse_not_finite("gram", sums)
        refuse_indefinite("gram", entries(sums), d)
        if rows == 0 and (sums.any() or products.any()):
            raise ValueError("n: expected an integer >= 1 where gram or moment is not zero, got 0")
        new = Ridge(d, regularization, normalized, targets)
        for i in range(d):
            new._trace += entries(sums)[i * (d + 1)]
            memcpy(new._lower + i * d, entries(sums) + i * d, (i + 1) * sizeof(double))
        for i in range(d * new._columns):
            new._moment[i] = entries(products)[i]
            new._reach = max(new._reach, fabs(new._moment[i]))
        if not (new._trace <= ROOM and new._reach <= ROOM):
            raise ValueError("gram, moment: a sum is out of the range of float64; rescale")
        new.n = rows
        info = new.factorise(NULL, NULL, rows)
        if info != 0:
            raise new.indefinite("gram", info)
        return new

    def merge(self, Ridge other not None):
        """Add the rows of another Ridge of the same dimension, regularization, normalisation and targets, in O(d^3).

        V = V1 + V2 - lambda I comes from the Gram matrices, with an error of about d u trace(V). If lambda is as small
        as that, V has no correct digits in directions orthogonal to all rows.

        Raises
        ------
        numpy.linalg.LinAlgError
            If V of both is not positive definite in float64; nothing has changed then.
        ValueError
            If the two do not go together or their sums overflow; nothing has changed then.
        """
        cdef Py_ssize_t i, n, d = self.dimension
        cdef int info = 0
        for name in ("dimension", "regularization", "normalized", "targets"):
            mine, theirs = getattr(self, name), getattr(other, name)
            if mine != theirs:
                raise ValueError(f"other: expected {name} {mine}, got {theirs}")
        self.may_write()
        other.may_read()
        cdef double trace = other._trace - d * self.regularization, reach = other._reach, least = other._least
        if not (trace <= ROOM - self._trace and reach <= ROOM - self._reach):
            raise ValueError("other: a sum of products is out of the range of float64")
        # Read all of `other` here, before the lock is released: it may change while the factor is computed.
        cdef cnp.ndarray sums = other.sums(), products = other.moment
        cdef const double* more = entries(sums)
        cdef const double* moment = entries(products)
        n = other.n + self.n
        if not self.normalized:
            self._busy = -1
            with nogil:
                info = self.factorise(more, NULL, n)
            self._busy = 0
        if info != 0:
            raise self.indefinite("other", info)
        self._fresh = not self.normalized
        self._theta = None
        for i in range(d * d):
            self._lower[i] += more[i]
        for i in range(d * self._columns):
            self._moment[i] += moment[i]
        self._trace += trace
        self._least = max(self._least, least)
        self._reach += reach
        self.n = n

    cdef cnp.ndarray sums(self):
        # sum phi phi^T, lower triangle, in a new array; the upper one holds zeros.
        cdef Py_ssize_t d = self.dimension
        cdef cnp.ndarray out = copied(self._lower, d, d)
        add_gram(entries(out), self._rows, self._held, d)
        return out

    @property
    def gram(self):
        """Sum of phi phi^T, shape (d, d), a new symmetric array."""
        self.may_read()
        cdef cnp.ndarray out = self.sums()
        mirror(entries(out), self.dimension)
        return out

    @property
    def moment(self):
        """Sum of y phi, shape (d,) or (d, t), a new array."""
        self.may_read()
        return self.shaped(self._moment)

    @property
    def targets(self):
        """Number of targets, or None for one without an axis of its own."""
        return self._columns if self._several else None

    cdef cnp.ndarray shaped(self, const double* x):
        # A copy of x (d, t), or (d,).
        return copied(x, self.dimension, self._columns) if self._several else copied(x, -1, self.dimension)

    @property
    def theta(self):
        """The estimate, shape (d,) or (d, t), a new array; solved for once after a change.

        Raises
        ------
        ValueError
            If it overflows.
        numpy.linalg.LinAlgError
            When normalised, if V is not positive definite in float64.
        """
        return self.shaped(entries(self.estimate()))

    cdef cnp.ndarray estimate(self):
        # The object's own array: never returned to users, and never written to again.
        cdef Py_ssize_t i, d = self.dimension, t = self._columns
        cdef double total
        cdef double* out
        cdef cnp.ndarray theta
        self.ready()
        if self._theta is None:
            theta = doubles(d * t)
            out = entries(theta)
            # Without rows theta is zero: the moment is zero, and must not be divided by n = 0.
            total = 1.0 if not self.normalized else self.n if self.n > 0 else INFINITY
            self._busy += 1
            with nogil:
                # U^T U theta = moment
                for i in range(d * t):
                    out[i] = self._moment[i] / total
                solve_both(self._factor, out, t, d)
            self._busy -= 1
            if not all_finite(out, d * t):
                raise ValueError("theta: the estimate is out of the range of float64; rescale")
            self._theta = theta
        return self._theta

    @property
    def factor(self):
        """The Cholesky factor U, V = U^T U, upper triangular, shape (d, d): a read-only view that follows every change.

        Copy it to keep it. When normalised, it follows at the next query. What a thread reads from it while another one
        changes the object is undefined.
        """
        self.ready()
        return self._factors[0]

    @property
    def logdet(self):
        """Natural logarithm of det V."""
        cdef Py_ssize_t i
        cdef double total = 0.0
        self.ready()
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
            With several targets (m, t), or (t,) for a single row.

        Raises
        ------
        TypeError, ValueError
            On a wrong dtype or shape, an entry that is not finite, or a result that overflows.
        """
        cdef Py_ssize_t i, m, d = self.dimension
        cdef tuple parts = sparse_points(Phi, d) if is_sparse(Phi) else None
        cdef cnp.ndarray rows = points(Phi, d) if parts is None else parts[0]
        cdef cnp.ndarray theta = self.estimate(), result
        cdef const double* x = entries(rows)
        cdef const double* weights = entries(theta)
        cdef double value
        cdef double* out
        if parts is not None or self._several:
            return self.predictions(sparse(parts) if parts is not None else dense(
                rows if cnp.PyArray_NDIM(rows) == 2 else rows[None, :]
            ), weights, parts is None and cnp.PyArray_NDIM(rows) == 1)
        if cnp.PyArray_NDIM(rows) == 1:
            value = dot(x, weights, d)
            if not isfinite(value):
                refuse_result("prediction")
            return value
        m = cnp.PyArray_DIM(rows, 0)
        result = doubles(m)
        out = entries(result)
        # theta is never written to again, so no thread has to wait.
        with nogil:
            value = 0.0
            for i in range(m):
                out[i] = dot(x + i * d, weights, d)
                value += out[i] * 0.0
        if value != 0.0:
            refuse_result("prediction")
        return result

    cdef cnp.ndarray predictions(self, Rows rows, const double* weights, bint single):
        # Of sparse rows, or of several targets.
        cdef Py_ssize_t i, j, k, first, size, t = self._columns, d = self.dimension
        cdef cnp.ndarray result = np.zeros((rows.n, t))
        cdef double* out = entries(result)
        cdef const double* weight
        cdef double value = 0.0
        with nogil:
            for i in range(rows.n):
                first = i * d if rows.starts == NULL else rows.starts[i]
                size = d if rows.starts == NULL else rows.starts[i + 1] - first
                for k in range(size):
                    weight = weights + (k if rows.starts == NULL else rows.columns[first + k]) * t
                    for j in range(t):
                        out[i * t + j] += rows.values[first + k] * weight[j]
                for j in range(t):
                    value += out[i * t + j] * 0.0
        if value != 0.0:
            refuse_result("prediction")
        if not self._several:
            return result[:, 0]
        return result[0] if single else result

    def leverage(self, Phi):
        """Return phi^T V^{-1} phi for every row, which is |U^{-T} phi|^2.

        Parameters
        ----------
        Phi : array_like or sparse, shape (m, d), or array_like, shape (d,)

        Returns
        -------
        numpy.ndarray, shape (m,), or float for a single row
            The bits of a row do not depend on the rows beside it.

        Raises
        ------
        TypeError, ValueError
            On a wrong dtype or shape, an entry that is not finite, or a result that overflows.
        numpy.linalg.LinAlgError
            When normalised, if V is not positive definite in float64.
        """
        cdef Py_ssize_t begin, i, m, size, d = self.dimension
        cdef tuple parts = sparse_points(Phi, d) if is_sparse(Phi) else None
        cdef cnp.ndarray rows = points(Phi, d) if parts is None else parts[0], block, result, scratch
        cdef const double* x = entries(rows)
        cdef double* work
        cdef double* out
        cdef double* wide
        cdef double value
        cdef bint single = parts is None and cnp.PyArray_NDIM(rows) == 1
        cdef Rows given
        self.ready()
        if single and d < LONG:
            leverages(self._factor, x, &value, self._work, 1, d)
            if not isfinite(value):
                refuse_result("leverage")
            return value
        given = dense(rows[None, :] if single else rows) if parts is None else sparse(parts)
        m = given.n
        block = doubles(1 if parts is None else SPREAD * d)
        result, scratch = doubles(m), doubles(leverage_work_size(d))
        out, work, wide = entries(result), entries(scratch), entries(block)
        value = 0.0
        self._busy += 1
        try:
            for begin in range(0, m, BLOCK if parts is None else SPREAD):
                PyErr_CheckSignals()
                size = min(m - begin, BLOCK if parts is None else SPREAD)
                with nogil:
                    x = given.values + begin * d
                    if given.starts != NULL:
                        x = wide
                        for i in range(size):
                            spread(wide + i * d, &given, begin + i, d)
                    leverages(self._factor, x, out + begin, work, size, d)
                    for i in range(begin, begin + size):
                        value += out[i] * 0.0
        finally:
            self._busy -= 1
        if value != 0.0:
            refuse_result("leverage")
        return out[0] if single else result

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
        numpy.linalg.LinAlgError
            When normalised, if V is not positive definite in float64.
        """
        cdef cnp.ndarray given = columns(b, self.dimension), out = given.copy()
        cdef double* x = entries(out)
        cdef Py_ssize_t d = self.dimension, m = 1 if cnp.PyArray_NDIM(out) == 1 else cnp.PyArray_DIM(out, 1)
        self.ready()
        self._busy += 1
        with nogil:
            solve_both(self._factor, x, m, d)
        self._busy -= 1
        if not all_finite(x, d * m):
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
        numpy.linalg.LinAlgError
            When normalised, if V is not positive definite in float64.

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
        cdef Py_ssize_t d = self.dimension, t = self._columns
        cdef cnp.ndarray out = standard_normals(rng, -1, d * t), theta = self.estimate()
        cdef double* x = entries(out)
        cdef const double* mean = entries(theta)
        if d < LONG:
            displace(self._factor, mean, width, x, t, d)
        else:
            self._busy += 1
            with nogil:
                displace(self._factor, mean, width, x, t, d)
            self._busy -= 1
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
        TypeError, ValueError, numpy.linalg.LinAlgError
            As for `sample`.
        """
        cdef double width = non_negative(scale, "scale")
        cdef Py_ssize_t i, d = self.dimension, t = self._columns, size = integer(m, "m", 0, MANY // (d * t))
        cdef cnp.ndarray out = standard_normals(rng, size, d * t), scratch = doubles(TOGETHER * d)
        cdef cnp.ndarray theta = self.estimate()
        cdef double* x = entries(out)
        cdef double* work = entries(scratch)
        cdef const double* mean = entries(theta)
        self._busy += 1
        with nogil:
            if t == 1:
                displace_rows(self._factor, mean, width, x, work, size, d)
            else:
                for i in range(size):
                    displace(self._factor, mean, width, x + i * d * t, t, d)
        self._busy -= 1
        if not all_finite(x, d * t * size):
            raise ValueError("scale: a sample is out of the range of float64")
        return out.reshape(size, d, t) if self._several else out

    def copy(self):
        """Return an independent Ridge in the same state, bit for bit."""
        self.may_read()
        cdef Ridge other = Ridge(*self.arguments())
        other.__setstate__(self.state())
        return other

    def __copy__(self):
        return self.copy()

    def __deepcopy__(self, memo):
        return self.copy()

    cdef dict state(self):
        cdef Py_ssize_t d = self.dimension
        return {
            "version": STATE,
            "n": self.n,
            "factor": copied(self._factor, d, d) if self._fresh else None,
            "lower": copied(self._lower, d, d),
            "rows": copied(self._rows, self._held, d),
            "moment": self.shaped(self._moment),
            "left": self._left,
            "trace": self._trace,
            "least": self._least,
            "reach": self._reach,
        }

    def __reduce__(self):
        self.may_read()
        return (Ridge, self.arguments(), self.state())

    cdef tuple arguments(self):
        # A reader of states with one target needs no more than three.
        given = (self.dimension, self.regularization, self.normalized)
        return (*given, self._columns) if self._several else given

    def __setstate__(self, state):
        cdef Py_ssize_t i, k, n, left, held, d = self.dimension
        cdef cnp.ndarray lower, rows, moment, factor = None
        cdef double trace, least, reach, total
        if not isinstance(state, dict):
            raise ValueError(f"state: expected that of a Ridge, version {STATE}, got {type(state).__name__}")
        version = state.get("version")
        if not (isinstance(version, int) and version == STATE):
            raise ValueError(f"state: expected that of a Ridge, version {STATE}, got {version!r}")
        try:
            n = integer(state["n"], "state['n']", 0, LAST)
            left = integer(state["left"], "state['left']", 1, REFACTOR)
            lower = as_floats("state['lower']", state["lower"], (d, d))
            rows = as_floats("state['rows']", state["rows"], (None, d))
            moment = as_floats("state['moment']", state["moment"], np.shape(self.shaped(self._moment)))
            trace = as_positive("state['trace']", state["trace"])
            least = as_positive("state['least']", state["least"])
            reach = as_positive("state['reach']", state["reach"], zero=True)
            if state["factor"] is not None:
                factor = as_floats("state['factor']", state["factor"], (d, d))
        except KeyError as error:
            raise ValueError(f"state: expected that of a Ridge, version {STATE}, with {error}") from error
        except TypeError as error:
            raise ValueError(str(error)) from error
        held = cnp.PyArray_DIM(rows, 0)
        if held >= HELD:
            raise ValueError(f"state['rows']: expected fewer than {HELD} rows, got {held}")
        if factor is None and not self.normalized:
            raise ValueError("state['factor']: expected a factor, got None")
        for name, value, most in (("trace", trace, ROOM), ("least", least, trace), ("reach", reach, 2.0 * ROOM)):
            if value > most:
                raise ValueError(f"state['{name}']: expected a number <= {most}, got {value}")
        for i in range(d):
            if factor is not None and not entries(factor)[i * d + i] > 0.0:
                total = entries(factor)[i * d + i]
                raise ValueError(f"state['factor']: expected a positive diagonal, got {total} at {i}")
            # Rounding in removed rows may leave a diagonal slightly below zero.
            total = entries(lower)[i * d + i]
            for k in range(held):
                total += entries(rows)[k * d + i] * entries(rows)[k * d + i]
            if not -trace <= total <= DBL_MAX:
                raise ValueError(f"state['lower']: expected a non-negative diagonal, got {total} with the rows at {i}")
        self.may_write()
        self.n, self._held, self._left = n, held, left
        self._trace, self._least, self._reach = trace, least, reach
        memcpy(self._lower, entries(lower), d * d * sizeof(double))
        memcpy(self._rows, entries(rows), held * d * sizeof(double))
        memcpy(self._moment, entries(moment), d * self._columns * sizeof(double))
        self._fresh = factor is not None
        if self._fresh:
            for i in range(d):
                memset(self._factor + i * d, 0, i * sizeof(double))
                memcpy(self._factor + i * (d + 1), entries(factor) + i * (d + 1), (d - i) * sizeof(double))
        self._theta = None

    def __repr__(self):
        means = ", normalized=True" if self.normalized else ""
        columns = f", targets={self._columns}" if self._several else ""
        return f"Ridge({self.dimension}, {self.regularization!r}{means}{columns}): n={self.n}"


cdef cnp.ndarray points(value, Py_ssize_t d):
    # (d,) or (m, d)
    cdef cnp.ndarray array
    if not isinstance(value, np.ndarray):
        value = as_numbers("Phi", value)
    array = vector(value, "Phi", d) if cnp.PyArray_NDIM(value) == 1 else matrix(value, "Phi", -1, d)
    refuse_not_finite("Phi", array)
    return array


cdef cnp.ndarray scaled(const double* x, double factor, Py_ssize_t n):
    cdef Py_ssize_t i
    cdef cnp.ndarray out = doubles(n)
    for i in range(n):
        entries(out)[i] = factor * x[i]
    return out


cdef tuple sparse_points(value, Py_ssize_t d):
    cdef tuple parts = sparse_rows(value, "Phi", d)
    refuse_not_finite("Phi.data", parts[0])
    return parts


cdef cnp.ndarray columns(value, Py_ssize_t d):
    # (d,) or (d, m)
    cdef cnp.ndarray array
    if not isinstance(value, np.ndarray):
        value = as_numbers("b", value)
    array = vector(value, "b", d) if cnp.PyArray_NDIM(value) == 1 else matrix(value, "b", d, -1)
    refuse_not_finite("b", array)
    return array


cdef double size_of(const double* y, Py_ssize_t t) noexcept nogil:
    # An upper bound on the entries of y (t,); NaN or infinite if one is.
    cdef Py_ssize_t j
    cdef double total = fabs(y[0])
    for j in range(1, t):
        total += fabs(y[j])
    return total


cdef void solve_both(const double* factor, double* x, Py_ssize_t m, Py_ssize_t d) noexcept nogil:
    # x (d, m) <- V^{-1} x
    if m == 1:
        solve_factor_transposed(factor, x, d)
        solve_factor(factor, x, d)
    else:
        solve_block_transposed(factor, x, m, d)
        solve_block(factor, x, m, d)


cdef void displace(
    const double* factor, const double* mean, double width, double* z, Py_ssize_t t, Py_ssize_t d
) noexcept nogil:
    # z (d, t) <- mean + width U^{-1} z
    cdef Py_ssize_t i
    if t == 1:
        solve_factor(factor, z, d)
    else:
        solve_block(factor, z, t, d)
    for i in range(d * t):
        z[i] = mean[i] + width * z[i]


cdef void displace_rows(
    const double* factor, const double* mean, double width, double* z, double* work, Py_ssize_t m, Py_ssize_t d
) noexcept nogil:
    # The same for the rows of z (m, d), TOGETHER of them as the columns of `work`.
    cdef Py_ssize_t i, k, first = 0, size
    while first < m:
        size = min(m - first, TOGETHER)
        for k in range(size):
            for i in range(d):
                work[i * size + k] = z[(first + k) * d + i]
        solve_block(factor, work, size, d)
        for k in range(size):
            for i in range(d):
                z[(first + k) * d + i] = mean[i] + width * work[i * size + k]
        first += size


cdef int refuse_result(str what) except -1:
    raise ValueError(f"Phi: a {what} is out of the range of float64; rescale")
