"""Ridge regression on sparse rows of many features, as hashing makes them: its state costs what its data cost.

`SparseRidge` is exact while few columns were seen. From then on it keeps the rows, a theta that every new row moves by
the gain of a diagonal V, and that `refine` takes to the exact one by conjugate gradients; leverages are those of the
diagonal, with bounds.
"""

cimport cython
cimport numpy as cnp
from cpython.exc cimport PyErr_CheckSignals
from libc.float cimport DBL_MAX, DBL_MIN
from libc.math cimport fabs, isfinite, sqrt
from libc.stdint cimport int32_t, int64_t
from libc.string cimport memcpy, memset

from dmq_fast.kernels._moments cimport as_columns, sparse_rows
from dmq_fast.kernels._validate cimport (
    entries, flag, integer, is_sparse, non_negative, number, positive, refuse_not_finite, state_of, vector,
)

import numpy as np

from dmq_fast.kernels._saved import load, save
from dmq_fast.kernels._validate import as_floats, as_numbers

cnp.import_array()

# What an object is made of, in files.
cdef tuple NAMES = ("dimension", "regularization", "exact_columns")

cdef extern from "dmq_arms.h":
    void look "dmq_look"(
        const double* u, const double* z, const double* x, Py_ssize_t stride, double* mean, double* square,
        double* work, Py_ssize_t n, Py_ssize_t d
    ) noexcept nogil
    void learn "dmq_learn"(double* u, double* z, double* w, double y, Py_ssize_t d) noexcept nogil
    enum:
        DMQ_ARMS

# Version of pickled states.
cdef int STATE = 1

# Sums up to here keep every number away from overflow, rounding included.
cdef double ROOM = DBL_MAX / 8.0

# Most entries that a state may hold.
cdef Py_ssize_t MOST = <Py_ssize_t> 1 << 40


@cython.final
cdef class SparseRidge:
    """Ridge regression, V = lambda I + sum phi phi^T and V theta = sum y phi, on sparse rows of many features.

    While at most `exact_columns` columns were seen, all answers are exact up to rounding, as those of `Ridge` on these
    columns. After that, `exact` is False, and

    - theta is that of conjugate gradients after `refine`; each later row moves it by the gain of a diagonal V ::

        theta_j <- theta_j + phi_j / P_j (y - phi^T theta) / (1 + sum_k phi_k^2 / P_k),

      with P_j = lambda + sum phi_j^2 over the rows before it. `error_bound` bounds
      ``|V^{1/2} (theta - exact theta)|`` at any time; a prediction is then off by at most that
      times the root of the leverage;
    - `leverage` is that of the diagonal, ``sum_j phi_j^2 / P_j``. With s the most entries of a row, V is at most
      ``lambda I + s (P - lambda I)``. So the exact leverage is at least ``sum_j phi_j^2 / (lambda + s (P_j - lambda))``
      and at most ``|phi|^2 / lambda``; `leverage_bounds` returns both. For columns that rarely come together the
      diagonal is near; for columns that always do, it is too small by up to s times.

    Parameters
    ----------
    d : int
        Feature dimension d in [1, 2^31 - 1].
    regularization : float
        lambda > 0.
    exact_columns : int, default 256
        Columns that are treated exactly, in [0, 4096]. A row then takes up to 3 exact_columns^2 operations.

    Attributes
    ----------
    dimension : int
        d.
    regularization : float
        lambda.
    exact_columns : int
        As given.
    n : int
        Rows added.

    Raises
    ------
    TypeError, ValueError
        If an argument is of another type or out of range.

    Notes
    -----
    The state takes 20 d bytes, 12 bytes an entry and 16 bytes a row, with room for half as many more, and 8
    exact_columns^2 bytes while it is exact. A row with s entries costs O(s) then, a refinement about 20 s n an
    iteration.

    A call that raises leaves the state unchanged. All calls keep the lock of the interpreter.

    Examples
    --------
    >>> model = SparseRidge(2**18, 1.0)
    >>> model.update([7, 70_000], [1.0, 1.0], 3.0)
    >>> model.predict_one([7, 70_000], [1.0, 1.0])
    2.0
    >>> model.exact, model.columns_seen
    (True, 2)
    """

    cdef readonly Py_ssize_t dimension
    cdef readonly Py_ssize_t exact_columns
    cdef readonly Py_ssize_t n
    cdef readonly double regularization
    # Columns seen, entries of all rows, most entries of a row.
    cdef Py_ssize_t _seen, _size, _longest
    # Sum of squares of all entries.
    cdef double _total
    cdef bint _exact
    # (d,): place of a column among those seen, from 1 on, or 0; theta; sums of squares.
    cdef cnp.ndarray _places, _theta, _squares
    # The rows, scaled by the roots of their weights: begins (n + 1), columns and values, targets.
    cdef cnp.ndarray _starts, _columns, _values, _targets
    # U and z on the columns seen, one row of features, and workspace.
    cdef cnp.ndarray _factor, _rotated, _row, _work

    def __cinit__(self, d, regularization, exact_columns=256):
        self.dimension = integer(d, "d", 1, (<Py_ssize_t> 1 << 31) - 1)
        self.regularization = positive(regularization, "regularization")
        if self.regularization < DBL_MIN or self.regularization > ROOM:
            raise ValueError(f"regularization: {self.regularization} is out of the range of float64 here")
        self.exact_columns = integer(exact_columns, "exact_columns", 0, 4096)
        try:
            self._places, self._theta = np.zeros(self.dimension, np.int32), np.zeros(self.dimension)
            self._squares = np.zeros(self.dimension)
        except MemoryError:
            raise MemoryError(f"d: no memory for {20 * self.dimension / 1e9:.3g} GB, 20 bytes a feature") from None
        self._starts, self._targets = np.zeros(65, np.int64), np.zeros(64)
        self._columns, self._values = np.zeros(256, np.int32), np.zeros(256)
        self._exact = self.exact_columns > 0
        self.make_factor()

    cdef int make_factor(self) except -1:
        cdef Py_ssize_t size = self.exact_columns if self._exact else 0
        self._factor, self._rotated = np.sqrt(self.regularization) * np.eye(size), np.zeros(size)
        self._row, self._work = np.zeros(size), np.zeros(DMQ_ARMS * size)
        return 0

    # Rows

    def update(self, indices, values, y, weight=1.0):
        """Add a row that is zero but at some columns: V <- V + w phi phi^T, and w y phi to the sum behind theta.

        Parameters
        ----------
        indices : array_like of int, shape (nnz,)
            Columns in 0..d-1, in any order; the values of one column add up.
        values : array_like, shape (nnz,)
        y : float
            Target.
        weight : float, default 1
            w >= 0.

        Raises
        ------
        TypeError, ValueError
            On a wrong dtype, shape or range, an entry that is not finite, or a sum that would overflow; nothing has
            changed then.
        """
        cdef double target = number(y, "y"), root = sqrt(non_negative(weight, "weight"))
        cdef tuple row = self.row_of(indices, values)
        if not isfinite(target):
            raise ValueError(f"y: expected a finite number, got {target}")
        self.add(row[0], scaled(row[1], root), root * target)

    cdef tuple row_of(self, indices, values):
        # Distinct ascending columns (int32) and finite values.
        cdef cnp.ndarray columns = as_columns(indices, "indices", self.dimension)
        cdef cnp.ndarray numbers = vector(values, "values", cnp.PyArray_DIM(columns, 0))
        cdef const int32_t* x = <const int32_t*> cnp.PyArray_DATA(columns)
        cdef Py_ssize_t i
        refuse_not_finite("values", numbers)
        for i in range(1, cnp.PyArray_DIM(columns, 0)):
            if x[i] <= x[i - 1]:
                columns, inverse = np.unique(columns, return_inverse=True)
                with np.errstate(over="ignore"):
                    numbers = np.bincount(inverse, numbers, len(columns))
                refuse_not_finite("values", numbers)
                break
        return columns, numbers

    def update_rows(self, Phi, y, weights=None):
        """Add rows, as many calls of `update` do.

        Parameters
        ----------
        Phi : array_like or sparse, shape (m, d)
        y : array_like, shape (m,)
        weights : array_like, shape (m,), optional
            Non-negative weights, ones by default.

        Raises
        ------
        TypeError, ValueError
            As for `update`; nothing has changed then, not by any row.
        """
        cdef cnp.ndarray data, columns, starts, targets, roots
        cdef Py_ssize_t i, m
        cdef const int64_t* begin
        data, columns, starts = self.parts(Phi)
        begin = <const int64_t*> cnp.PyArray_DATA(starts)
        m = cnp.PyArray_DIM(starts, 0) - 1
        targets = as_floats("y", y, (m,))
        if weights is not None:
            roots = as_floats("weights", weights, (m,))
            if (roots < 0.0).any():
                raise ValueError(f"weights: expected non-negative numbers, got {roots.min()}")
            roots = np.sqrt(roots)
            with np.errstate(over="ignore"):
                data, targets = data * np.repeat(roots, np.diff(starts)), targets * roots
        # A row may be refused after others were added: go back then.
        before = self.copy() if m > 1 else None
        try:
            for i in range(m):
                if i % 1024 == 0:
                    PyErr_CheckSignals()
                self.add(
                    columns[begin[i] : begin[i + 1]], data[begin[i] : begin[i + 1]], entries(targets)[i]
                )
        except BaseException:
            if before is not None:
                self.take(before)
            raise

    cdef tuple parts(self, Phi):
        # Values, columns and starts of rows, dense or sparse.
        cdef cnp.ndarray rows
        if is_sparse(Phi):
            return sparse_rows(Phi, "Phi", self.dimension)
        rows = as_floats("Phi", Phi, (None, self.dimension))
        where = np.nonzero(rows)
        starts = np.zeros(len(rows) + 1, np.int64)
        np.cumsum(np.bincount(where[0], minlength=len(rows)), out=starts[1:])
        return rows[where], where[1].astype(np.int32), starts

    cdef int add(self, cnp.ndarray columns, cnp.ndarray values, double y) except -1:
        # A row with ascending columns.
        cdef Py_ssize_t i, size = cnp.PyArray_DIM(columns, 0), fresh = 0
        cdef const int32_t* column = <const int32_t*> cnp.PyArray_DATA(columns)
        cdef const double* x = entries(values)
        cdef int32_t* place = <int32_t*> cnp.PyArray_DATA(self._places)
        cdef double* theta
        cdef double* squares = entries(self._squares)
        cdef double total = 0.0, gain = 0.0, mean = 0.0, step, weight, reach = 0.0
        for i in range(size):
            total += x[i] * x[i]
            fresh += place[column[i]] == 0
            reach = max(reach, fabs(x[i]))
        if not (total <= ROOM - self._total and fabs(y) * reach <= ROOM and fabs(y) <= sqrt(ROOM)):
            raise ValueError("values, y: a sum of products is out of the range of float64; rescale")
        if self._size + size > MOST or self.n >= MOST:
            raise ValueError("values: expected fewer entries in all")
        self.make_place(size)
        if self._exact and self._seen + fresh > self.exact_columns:
            self.give_up()
        theta = entries(self._theta)
        if not self._exact:
            for i in range(size):
                gain += x[i] * (x[i] / (self.regularization + squares[column[i]]))
                mean += x[i] * theta[column[i]]
            step = (y - mean) / (1.0 + gain)
            for i in range(size):
                weight = self.regularization + squares[column[i]]
                if not isfinite(theta[column[i]] + x[i] / weight * step):
                    raise ValueError("y: the estimate is out of the range of float64; rescale")
            for i in range(size):
                weight = self.regularization + squares[column[i]]
                theta[column[i]] += x[i] / weight * step
        for i in range(size):
            squares[column[i]] += x[i] * x[i]
            if place[column[i]] == 0:
                self._seen += 1
                place[column[i]] = <int32_t> self._seen
        if self._exact:
            self.spread(column, x, size)
            learn(entries(self._factor), entries(self._rotated), entries(self._row), y, self.exact_columns)
        memcpy(<int32_t*> cnp.PyArray_DATA(self._columns) + self._size, column, size * sizeof(int32_t))
        memcpy(entries(self._values) + self._size, x, size * sizeof(double))
        entries(self._targets)[self.n] = y
        self._size += size
        self.n += 1
        (<int64_t*> cnp.PyArray_DATA(self._starts))[self.n] = self._size
        self._total += total
        self._longest = max(self._longest, size)
        return 0

    cdef int make_place(self, Py_ssize_t size) except -1:
        # Room for one more row of `size` entries.
        if self.n + 1 > cnp.PyArray_DIM(self._targets, 0):
            more = self.n + self.n // 2 + 64
            self._targets, self._starts = longer(self._targets, more), longer(self._starts, more + 1)
        if self._size + size > cnp.PyArray_DIM(self._values, 0):
            more = (self._size + size) + (self._size + size) // 2
            self._columns, self._values = longer(self._columns, more), longer(self._values, more)
        return 0

    cdef Py_ssize_t spread(self, const int32_t* column, const double* x, Py_ssize_t size) noexcept:
        # _row (exact_columns,) <- the row on the columns seen; return how many entries are on others.
        cdef const int32_t* place = <const int32_t*> cnp.PyArray_DATA(self._places)
        cdef Py_ssize_t i, others = 0
        memset(entries(self._row), 0, self.exact_columns * sizeof(double))
        for i in range(size):
            if place[column[i]] == 0:
                others += 1
            else:
                entries(self._row)[place[column[i]] - 1] = x[i]
        return others

    cdef int give_up(self) except -1:
        # From now on theta and the diagonal are approximations; theta begins at the exact one.
        self._theta = self.theta
        self._exact = False
        self.make_factor()
        return 0

    # Answers

    @property
    def exact(self):
        """Whether all answers are exact up to rounding: whether at most `exact_columns` columns were seen."""
        return self._exact

    @property
    def columns_seen(self):
        """How many columns any row has."""
        return self._seen

    @property
    def longest_row(self):
        """The most entries of a row, s in the bounds."""
        return self._longest

    @property
    def nbytes(self):
        """Bytes of the state, without the room for more rows."""
        return 20 * self.dimension + 12 * self._size + 16 * self.n + self._factor.nbytes + self._rotated.nbytes

    @property
    def theta(self):
        """The estimate, shape (d,), a new array. ValueError if it overflows."""
        cdef cnp.ndarray out
        if not self._exact:
            return self._theta.copy()
        from scipy.linalg import solve_triangular

        out = np.zeros(self.dimension)
        solved = solve_triangular(self._factor, self._rotated, check_finite=False)
        if not np.isfinite(solved).all():
            raise ValueError("theta: the estimate is out of the range of float64; rescale")
        seen = np.flatnonzero(self._places)
        out[seen] = solved[self._places[seen] - 1]
        return out

    cdef int ask(
        self, const int32_t* column, const double* x, Py_ssize_t size, double* mean, double* square
    ) except -1:
        cdef const int32_t* place = <const int32_t*> cnp.PyArray_DATA(self._places)
        cdef const double* squares = entries(self._squares)
        cdef const double* theta = entries(self._theta)
        cdef Py_ssize_t i
        mean[0] = square[0] = 0.0
        if self._exact:
            self.spread(column, x, size)
            look(
                entries(self._factor), entries(self._rotated), entries(self._row), 0, mean, square,
                entries(self._work), 1, self.exact_columns,
            )
            for i in range(size):
                if place[column[i]] == 0:
                    square[0] += x[i] * (x[i] / self.regularization)
        else:
            for i in range(size):
                mean[0] += x[i] * theta[column[i]]
                square[0] += x[i] * (x[i] / (self.regularization + squares[column[i]]))
        if not (isfinite(mean[0]) and isfinite(square[0])):
            raise ValueError("Phi: a prediction or a leverage is out of the range of float64; rescale")
        return 0

    cdef tuple ask_rows(self, Phi):
        cdef cnp.ndarray data, columns, starts, mean, square
        cdef const int64_t* begin
        cdef Py_ssize_t i, m
        data, columns, starts = self.parts(Phi)
        m = cnp.PyArray_DIM(starts, 0) - 1
        begin = <const int64_t*> cnp.PyArray_DATA(starts)
        mean, square = np.empty(m), np.empty(m)
        for i in range(m):
            if i % 1024 == 0:
                PyErr_CheckSignals()
            self.ask(
                <const int32_t*> cnp.PyArray_DATA(columns) + begin[i], entries(data) + begin[i],
                begin[i + 1] - begin[i], entries(mean) + i, entries(square) + i,
            )
        return mean, square

    def predict_one(self, indices, values):
        """Return phi^T theta of one row, by columns and values as in `update`.

        Parameters
        ----------
        indices : array_like of int, shape (nnz,)
        values : array_like, shape (nnz,)

        Returns
        -------
        float

        Raises
        ------
        TypeError, ValueError
            On a wrong dtype, shape or range, an entry that is not finite, or a result that overflows.
        """
        return self.one(indices, values)[0]

    def leverage_one(self, indices, values):
        """Return the leverage of one row, by columns and values; see `predict_one` and `leverage`."""
        return self.one(indices, values)[1]

    cdef tuple one(self, indices, values):
        cdef cnp.ndarray columns, numbers
        cdef double mean, square
        columns, numbers = self.row_of(indices, values)
        self.ask(
            <const int32_t*> cnp.PyArray_DATA(columns), entries(numbers), cnp.PyArray_DIM(columns, 0), &mean, &square
        )
        return mean, square

    def predict(self, Phi):
        """Return Phi @ theta.

        Parameters
        ----------
        Phi : array_like or sparse, shape (m, d)

        Returns
        -------
        numpy.ndarray, shape (m,)

        Raises
        ------
        TypeError, ValueError
            On a wrong dtype or shape, an entry that is not finite, or a prediction or leverage that overflows.
        """
        return self.ask_rows(Phi)[0]

    def leverage(self, Phi):
        """Return phi^T V^{-1} phi of rows, (m,): exact, or that of the diagonal, see the class; else as `predict`."""
        return self.ask_rows(Phi)[1]

    def leverage_bounds(self, Phi):
        """Return a lower and an upper bound on the leverages of rows, see the class.

        Parameters
        ----------
        Phi : array_like or sparse, shape (m, d)

        Returns
        -------
        low, high : numpy.ndarray, shape (m,)
            Both the exact leverages while `exact` is True.

        Raises
        ------
        TypeError, ValueError
            As for `predict`.
        """
        cdef cnp.ndarray data, columns, starts
        if self._exact:
            exact = self.leverage(Phi)
            return exact, exact.copy()
        data, columns, starts = self.parts(Phi)
        rows = np.repeat(np.arange(len(starts) - 1), np.diff(starts))
        with np.errstate(over="ignore"):
            most = self.regularization + self._longest * self._squares[columns]
            low, high = (
                np.bincount(rows, data * (data / part), len(starts) - 1)
                for part in (most, np.full(len(columns), self.regularization))
            )
        if not (np.isfinite(low).all() and np.isfinite(high).all()):
            raise ValueError("Phi: a bound is out of the range of float64; rescale")
        return low, high

    def upper(self, Phi, alpha):
        """Return the upper confidence bounds phi^T theta + alpha (leverage)^(1/2) of rows.

        Parameters
        ----------
        Phi : array_like or sparse, shape (m, d)
        alpha : float
            Width of the bounds, non-negative.

        Returns
        -------
        numpy.ndarray, shape (m,)

        Raises
        ------
        TypeError, ValueError
            As for `predict`, and if `alpha` is negative, not finite, or too large.
        """
        cdef double width = non_negative(alpha, "alpha")
        mean, square = self.ask_rows(Phi)
        with np.errstate(over="ignore"):
            mean += width * np.sqrt(square)
        if not np.isfinite(mean).all():
            raise ValueError("alpha: a bound is out of the range of float64")
        return mean

    def select(self, Phi, alpha):
        """Return the row with the largest upper bound, the first of those that tie; see `upper` for the arguments.

        Returns
        -------
        int

        Raises
        ------
        TypeError, ValueError
            As for `upper`, and if there are no rows.
        """
        bounds = self.upper(Phi, alpha)
        if len(bounds) == 0:
            raise ValueError(f"Phi: expected shape (m, {self.dimension}) with m >= 1, got {np.shape(Phi)}")
        return int(bounds.argmax())

    # Refinement

    cdef cnp.ndarray times(self, cnp.ndarray v):
        # V v, in O(entries).
        cdef cnp.ndarray out = self.regularization * v
        cdef const int64_t* begin = <const int64_t*> cnp.PyArray_DATA(self._starts)
        cdef const int32_t* column = <const int32_t*> cnp.PyArray_DATA(self._columns)
        cdef const double* x = entries(self._values)
        cdef double* to = entries(out)
        cdef const double* given = entries(v)
        cdef double product
        cdef Py_ssize_t i, k
        for i in range(self.n):
            product = 0.0
            for k in range(begin[i], begin[i + 1]):
                product += x[k] * given[column[k]]
            for k in range(begin[i], begin[i + 1]):
                to[column[k]] += product * x[k]
        return out

    cdef cnp.ndarray gradient(self):
        # sum (y - phi^T theta) phi - lambda theta
        cdef cnp.ndarray theta = self.theta, out = -self.regularization * theta
        cdef const int64_t* begin = <const int64_t*> cnp.PyArray_DATA(self._starts)
        cdef const int32_t* column = <const int32_t*> cnp.PyArray_DATA(self._columns)
        cdef const double* x = entries(self._values)
        cdef double* to = entries(out)
        cdef double rest
        cdef Py_ssize_t i, k
        for i in range(self.n):
            rest = entries(self._targets)[i]
            for k in range(begin[i], begin[i + 1]):
                rest -= x[k] * entries(theta)[column[k]]
            for k in range(begin[i], begin[i + 1]):
                to[column[k]] += rest * x[k]
        return out

    def error_bound(self):
        """Return a bound on |V^{1/2} (theta - exact theta)|, in O(entries): the gradient over the root of lambda.

        With g = sum y phi - V theta, the square of the norm is g^T V^{-1} g <= |g|^2 / lambda.
        """
        return float(np.linalg.norm(self.gradient()) / sqrt(self.regularization))

    def refine(self, tolerance=1e-6, most=1000):
        """Take theta to the exact one in place, by conjugate gradients that the diagonal of V preconditions.

        Parameters
        ----------
        tolerance : float, default 1e-6
            Ends where `error_bound` is at most this, > 0. Predictions then are off by at most tolerance times the root
            of the leverage, so at most ``tolerance |phi| / lambda^{1/2}``.
        most : int, default 1000
            Most iterations, at least 0; each is two passes over the rows.

        Returns
        -------
        float
            The bound that was reached, which may be larger than `tolerance`: rounding leaves some.

        Raises
        ------
        TypeError, ValueError
            If an argument is of another type or out of range; nothing has changed then.
        """
        cdef double aim = positive(tolerance, "tolerance")
        cdef Py_ssize_t turns = integer(most, "most", 0, 1 << 30)
        if self._exact or turns == 0:
            return self.error_bound()
        theta, rest = self.theta, self.gradient()
        weights = self.regularization + self._squares
        best, start = theta.copy(), float(np.linalg.norm(rest))
        norm = least = start
        z = rest / weights
        direction, product = z.copy(), float(rest @ z)
        root = sqrt(self.regularization)
        for _ in range(turns):
            if not norm / root > aim or product == 0.0:
                break
            PyErr_CheckSignals()
            moved = self.times(direction)
            curvature = float(direction @ moved)
            if not 0.0 < curvature < np.inf:
                break
            step = product / curvature
            theta += step * direction
            rest -= step * moved
            norm = float(np.linalg.norm(rest))
            if norm < least:
                least, best = norm, theta.copy()
            z = rest / weights
            before, product = product, float(rest @ z)
            direction = z + (product / before) * direction
        old = self._theta
        self._theta = best
        bound = self.error_bound()
        # The recursion of the residual drifts from it: never end farther away than where this began.
        if not bound <= start / root:
            self._theta = old
            return start / root
        return bound

    # Copies

    def copy(self):
        """Return an independent object in the same state, bit for bit."""
        cdef SparseRidge other = SparseRidge(self.dimension, self.regularization, self.exact_columns)
        other.take(self)
        return other

    cdef void take(self, SparseRidge other) noexcept:
        # Take over copies of the state of another.
        self.n, self._seen, self._size, self._longest = other.n, other._seen, other._size, other._longest
        self._total, self._exact = other._total, other._exact
        self._places, self._theta, self._squares = other._places.copy(), other._theta.copy(), other._squares.copy()
        self._starts, self._columns = other._starts.copy(), other._columns.copy()
        self._values, self._targets = other._values.copy(), other._targets.copy()
        self._factor, self._rotated = other._factor.copy(), other._rotated.copy()
        self._row, self._work = other._row.copy(), other._work.copy()

    def __reduce__(self):
        state = {
            "version": STATE,
            "exact": self._exact,
            "places": self._places.copy(),
            "theta": self._theta.copy(),
            "squares": self._squares.copy(),
            "starts": self._starts[: self.n + 1].copy(),
            "columns": self._columns[: self._size].copy(),
            "values": self._values[: self._size].copy(),
            "targets": self._targets[: self.n].copy(),
            "factor": self._factor.copy(),
            "rotated": self._rotated.copy(),
        }
        return SparseRidge, (self.dimension, self.regularization, self.exact_columns), state

    def __setstate__(self, state):
        cdef cnp.ndarray theta, squares, starts, columns, values, targets, factor, rotated
        cdef Py_ssize_t d = self.dimension, n, size
        cdef double total = 0.0
        state = state_of(
            state, "a SparseRidge", STATE,
            ("exact", "places", "theta", "squares", "starts", "columns", "values", "targets", "factor", "rotated"),
        )
        exact = flag(state["exact"], "state['exact']")
        targets = as_floats("state['targets']", state["targets"], (None,))
        n = cnp.PyArray_DIM(targets, 0)
        values = as_floats("state['values']", state["values"], (None,))
        size = cnp.PyArray_DIM(values, 0)
        parts = state_rows(state, values, n, d)
        columns, starts = parts
        theta = as_floats("state['theta']", state["theta"], (d,))
        squares = as_floats("state['squares']", state["squares"], (d,))
        places = as_numbers("state['places']", state["places"])
        cap = self.exact_columns if exact else 0
        factor = np.triu(as_floats("state['factor']", state["factor"], (cap, cap)))
        rotated = as_floats("state['rotated']", state["rotated"], (cap,))
        seen = np.unique(columns)
        if places.dtype != np.int32 or places.shape != (d,):
            raise ValueError(f"state['places']: expected int32 of shape ({d},), got {places.dtype}, {places.shape}")
        numbers = np.sort(places[places != 0])
        if not np.array_equal(numbers, np.arange(1, len(seen) + 1)) or not (places[seen] > 0).all():
            raise ValueError("state['places']: expected the numbers of the columns of the rows")
        if exact and len(seen) > cap or exact and cap == 0:
            raise ValueError(f"state['exact']: expected at most {cap} columns, got {len(seen)}")
        if not (np.diagonal(factor) > 0.0).all():
            raise ValueError("state['factor']: expected a positive diagonal")
        with np.errstate(over="ignore"):
            total = (values * values).sum()
            both = total + squares.sum()
        if not ((squares >= 0.0).all() and both <= 2.0 * ROOM):
            raise ValueError("state['squares']: expected non-negative numbers within the range of float64")
        self._places, self._theta, self._squares = places.copy(), theta.copy(), squares.copy()
        self._starts, self._columns = np.array(starts), np.array(columns)
        self._values, self._targets = values.copy(), targets.copy()
        self.n, self._size, self._seen, self._total = n, size, len(seen), total
        self._longest = int(np.diff(starts).max(initial=0))
        self._exact = exact
        self.make_factor()
        self._factor, self._rotated = np.ascontiguousarray(factor), rotated.copy()

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
        return load(path, SparseRidge, NAMES, STATE)

    def __repr__(self):
        kind = "exact" if self._exact else "approximate"
        return f"SparseRidge({self.dimension}, {self.regularization!r}): n={self.n}, {self._seen} columns, {kind}"


cdef tuple state_rows(dict state, cnp.ndarray values, Py_ssize_t n, Py_ssize_t d):
    # Columns and starts of the rows of a pickled state.
    cdef cnp.ndarray columns = as_columns(state["columns"], "state['columns']", d)
    starts = as_numbers("state['starts']", state["starts"])
    if starts.dtype != np.int64 or starts.shape != (n + 1,) or len(columns) != len(values):
        raise ValueError("state['starts']: expected int64, one more than targets, and as many columns as values")
    if starts[0] != 0 or starts[n] != len(values) or (np.diff(starts) < 0).any():
        raise ValueError("state['starts']: expected numbers that ascend from 0 to the number of values")
    inner = np.ones(len(columns), bool)
    inner[starts[:n][np.diff(starts) > 0]] = False
    if len(columns) > 1 and (np.diff(columns.astype(np.int64))[inner[1:]] <= 0).any():
        raise ValueError("state['columns']: expected columns that ascend within a row")
    return columns, starts


cdef cnp.ndarray scaled(cnp.ndarray x, double root):
    return x if root == 1.0 else root * x


cdef cnp.ndarray longer(cnp.ndarray array, Py_ssize_t size):
    # A copy with room for more entries, which are zeros.
    out = np.zeros(size, array.dtype)
    out[: len(array)] = array
    return out
