"""Ridge regressions side by side, one an arm: what a bandit asks of all its arms at every step, in one call.

`RidgeArms` keeps for each arm the triangular factor U of V = lambda I + sum phi phi^T and z = U^{-T} sum y phi, both by
the same Givens rotations. One triangular solve a = U^{-T} phi then answers twice: phi^T theta = z . a, and
phi^T V^{-1} phi = a . a.
"""

cimport cython
cimport numpy as cnp
from cpython.exc cimport PyErr_CheckSignals
from cpython.long cimport PyLong_AsLongLongAndOverflow
from libc.float cimport DBL_MAX, DBL_MIN
from libc.math cimport fabs, isfinite, sqrt
from libc.stdint cimport int32_t, int64_t
from libc.string cimport memcpy, memset

from dmq_fast.kernels._linalg cimport (
    GROUP, GROUP_SINGLE, dot, downdate_factor, gather, group_size, pack, packed_size, raise_by, real, score,
    solve_factor,
)
from dmq_fast.kernels._moments cimport Rows, as_columns, dense_row, rows_in, sparse_rows
from dmq_fast.kernels._philox cimport standard_normals
from dmq_fast.kernels._validate cimport (
    all_finite, entries, flag, integer, integers, is_sparse, matrix, non_negative, number, positive, refuse_not_finite,
    square_zeros, state_of, vector,
)

import numpy as np

from dmq_fast.kernels._saved import load, save
from dmq_fast.kernels._validate import as_floats, as_numbers

cnp.import_array()

cdef extern from "dmq_arms.h":
    void look "dmq_look"(
        const double* u, const double* z, const double* x, Py_ssize_t stride, double* mean, double* square,
        double* work, Py_ssize_t n, Py_ssize_t d
    ) noexcept nogil
    void learn "dmq_learn"(double* u, double* z, double* w, double y, Py_ssize_t d) noexcept nogil
    enum:
        DMQ_ARMS

cdef enum:
    # Contexts that are gathered together, a multiple of the rows of a group in either precision.
    PIECE = 256
    # From this number of contexts on, a group of them is solved for in less time than one after the other.
    MANY_ROWS = 6

# Version of pickled states.
cdef int STATE = 1

# What an object is made of, in files.
cdef tuple NAMES = ("n_arms", "dimension", "regularization")

# Discounts let lambda fall to this share of the mean diagonal of V, or to its square, and then raise it.
cdef double LOST = 2.0 ** -500
cdef double RAISED = 2.0 ** 100

# Sums up to here keep every entry of V and z away from overflow, rounding included.
cdef double ROOM = DBL_MAX / 8.0


@cython.final
cdef class RidgeArms:
    """K ridge regressions of one dimension, one an arm: V_k = lambda I + sum phi phi^T, theta_k = V_k^{-1} sum y phi.

    Parameters
    ----------
    n_arms : int
        K >= 1.
    d : int
        Feature dimension d >= 1.
    regularization : float
        lambda > 0, the same for all arms.

    Attributes
    ----------
    n_arms, dimension : int
        K and d.
    regularization : float
        lambda.

    Raises
    ------
    TypeError, ValueError
        If an argument is of another type or out of range.
    MemoryError
        If the factors, 8 K d^2 bytes, are more than the memory of the machine.

    Notes
    -----
    The state takes 8 K d^2 bytes: 80 kB for 10 arms with 32 features, 5 MB with 256, 670 MB with 2^11. A query takes
    about K d^2 operations, an update 3 d^2.

    Factors and leverages have the bits of one `Ridge` an arm until that computes its factor afresh; estimates differ
    from those of `Ridge` by rounding. Here nothing is ever computed afresh: rotations are orthogonal, so after k rows
    of an arm ``|U^T U - V| <= 20 (k + 1) d u trace(V)`` in the Frobenius norm to first order, where u = 2^-53, and in
    practice the error grows like the root of k. Factors are always definite.

    A call that raises leaves the state unchanged. All calls keep the lock of the interpreter, so threads may share an
    object, one call after the other.

    Examples
    --------
    >>> arms = RidgeArms(2, 3, 1.0)
    >>> arms.update(1, [1.0, 0.0, 0.0], 4.0)
    >>> arms.predict([1.0, 1.0, 0.0])
    array([0., 2.])
    >>> arms.leverage([2.0, 0.0, 0.0]).round(9)
    array([4., 2.])
    >>> arms.select([1.0, 0.0, 0.0], alpha=0.5)
    1
    """

    cdef readonly Py_ssize_t n_arms
    cdef readonly Py_ssize_t dimension
    cdef readonly double regularization
    # U (K, d, d), zero below the diagonals, and z (K, d)
    cdef double* _factor
    cdef double* _coordinates
    # Upper bounds on trace(V) and on |z|, (K,) each.
    cdef double* _trace
    cdef double* _reach
    # phi^T theta and phi^T V^{-1} phi of the present question, (K,) each.
    cdef double* _mean
    cdef double* _square
    # (DMQ_ARMS, d)
    cdef double* _work
    # Arrays that own the memory of the pointers above.
    cdef cnp.ndarray _factors, _rotated, _bounds, _answers, _scratch
    cdef cnp.ndarray _counts

    def __cinit__(self, n_arms, d, regularization):
        cdef Py_ssize_t k
        self.dimension = integer(d, "d", 1, 1 << 28)
        self.regularization = positive(regularization, "regularization")
        if self.regularization < DBL_MIN or self.dimension * self.regularization > ROOM:
            raise ValueError(f"regularization: {self.regularization} is out of the range of float64 here")
        self.make_room("n_arms", n_arms)
        for k in range(self.n_arms):
            self.clear(k)

    cdef int make_room(self, str name, n_arms) except -1:
        # New arrays, whose contents are undefined, or none at all.
        cdef Py_ssize_t arms = integer(n_arms, name, 1, 1 << 28), d = self.dimension
        cdef cnp.ndarray factors = square_zeros(f"{name}, d", (arms, d, d)), rotated = np.zeros((arms, d))
        cdef cnp.ndarray bounds = np.zeros((2, arms)), answers = np.zeros((2, arms)), scratch = np.zeros((DMQ_ARMS, d))
        cdef cnp.ndarray counts = np.zeros(arms, dtype=np.int64)
        # `factor` hands out views.
        factors.flags.writeable = False
        self._factors, self._rotated, self._bounds, self._answers = factors, rotated, bounds, answers
        self._scratch, self._counts, self.n_arms = scratch, counts, arms
        self._factor, self._coordinates, self._work = entries(factors), entries(rotated), entries(scratch)
        self._trace, self._mean = entries(bounds), entries(answers)
        self._reach, self._square = self._trace + arms, self._mean + arms
        return 0

    cdef void clear(self, Py_ssize_t k) noexcept:
        # Arm k, of which all is zero, has no rows.
        cdef Py_ssize_t i
        self._trace[k] = self.dimension * self.regularization
        for i in range(self.dimension):
            self.matrix_of(k)[i * (self.dimension + 1)] = sqrt(self.regularization)

    cdef int keep(self, str name, Py_ssize_t arms, list kept) except -1:
        # Go on with `arms` arms: those of `kept`, and new ones.
        cdef Py_ssize_t i, k, d = self.dimension, before = self.n_arms
        cdef cnp.ndarray factors = self._factors, rotated = self._rotated, bounds = self._bounds, counts = self._counts
        self.make_room(name, arms)
        for i in range(len(kept)):
            k = kept[i]
            memcpy(self.matrix_of(i), entries(factors) + k * d * d, d * d * sizeof(double))
            memcpy(self._coordinates + i * d, entries(rotated) + k * d, d * sizeof(double))
            self._trace[i], self._reach[i] = entries(bounds)[k], entries(bounds)[before + k]
            (<int64_t*> cnp.PyArray_DATA(self._counts))[i] = (<int64_t*> cnp.PyArray_DATA(counts))[k]
        for i in range(len(kept), arms):
            self.clear(i)
        return 0

    def add_arms(self, n=1):
        """Add arms without rows behind the others, in O(K d^2). Views of `factor` from before show what was.

        Parameters
        ----------
        n : int, default 1
            How many, at least 1.

        Raises
        ------
        TypeError, ValueError
            If it is no such number.
        MemoryError
            As for a new object.

        Examples
        --------
        >>> arms = RidgeArms(2, 3, 1.0)
        >>> arms.add_arms(3)
        >>> arms.n_arms
        5
        """
        cdef Py_ssize_t more = integer(n, "n", 1, (1 << 28) - self.n_arms)
        self.keep("n", self.n_arms + more, list(range(self.n_arms)))

    def remove_arm(self, arm):
        """Remove an arm, in O(K d^2): those behind it move up by one. Views of `factor` from before show what was.

        Parameters
        ----------
        arm : int
            In 0..K-1.

        Raises
        ------
        TypeError, ValueError
            If it is no such number, or the only arm.
        """
        cdef Py_ssize_t k = self.index(arm)
        if self.n_arms == 1:
            raise ValueError("arm: expected one of several, got the only one")
        self.keep("arm", self.n_arms - 1, [i for i in range(self.n_arms) if i != k])

    cdef inline double* matrix_of(self, Py_ssize_t k) noexcept nogil:
        return self._factor + k * self.dimension * self.dimension

    cdef Py_ssize_t index(self, arm) except -1:
        cdef int overflow = 0
        cdef long long k
        if type(arm) is int:
            k = PyLong_AsLongLongAndOverflow(arm, &overflow)
            if overflow == 0 and 0 <= k < self.n_arms:
                return k
        return integer(arm, "arm", 0, self.n_arms - 1)

    cdef bint single_question(self, phi, per_arm) except -1:
        # Whether `phi` is one context: (d,), or (K, d) with `per_arm`.
        return cnp.PyArray_NDIM(phi) == (2 if flag(per_arm, "per_arm") else 1)

    cdef int ask(self, cnp.ndarray phi) except -1:
        # _mean and _square <- the answers for phi, (d,) for all arms or (K, d).
        cdef Py_ssize_t k, d = self.dimension
        cdef cnp.ndarray rows
        cdef bint own = cnp.PyArray_NDIM(phi) == 2
        cdef double poison = 0.0
        rows = matrix(phi, "phi", self.n_arms, d) if own else vector(phi, "phi", d)
        look(
            self._factor, self._coordinates, entries(rows), d if own else 0, self._mean, self._square, self._work,
            self.n_arms, d,
        )
        for k in range(self.n_arms):
            poison += self._mean[k] * 0.0 + self._square[k] * 0.0
        if poison != 0.0:
            refuse_not_finite("phi", rows)
            raise ValueError("phi: a prediction or a leverage is out of the range of float64; rescale")
        return 0

    cdef tuple ask_many(self, phi, bint own):
        # Predictions and leverages (B, K) for contexts (B, d), or (B, K, d) if arms have their own features.
        cdef Py_ssize_t b, m, d = self.dimension, arms = self.n_arms
        cdef cnp.ndarray rows, mean, square
        cdef bint narrow = cnp.PyArray_TYPE(phi) == cnp.NPY_FLOAT
        # The memory that is read, whatever a handler of a signal does with the object.
        cdef cnp.ndarray factors = self._factors, coordinates = self._rotated
        cdef tuple shape = (None, arms, d) if own else (None, d)
        m = len(phi) if np.ndim(phi) else 0
        if narrow and m >= MANY_ROWS and np.shape(phi)[1:] == shape[1:]:
            rows = np.require(phi, np.float32, ["C", "A"])
            mean, square = np.empty((m, arms), np.float32), np.empty((m, arms), np.float32)
            z = coordinates.astype(np.float32)
            contexts[float](
                entries(factors), <float*> cnp.PyArray_DATA(z), <float*> cnp.PyArray_DATA(rows),
                <float*> cnp.PyArray_DATA(mean), <float*> cnp.PyArray_DATA(square), own, m, arms, d,
            )
        else:
            rows = as_floats("phi", phi, shape, finite=False)
            mean, square = np.empty((m, arms)), np.empty((m, arms))
            if m >= MANY_ROWS:
                contexts[double](
                    entries(factors), entries(coordinates), entries(rows), entries(mean), entries(square), own, m,
                    arms, d,
                )
            else:
                for b in range(m):
                    look(
                        self._factor, self._coordinates, entries(rows) + b * d * (arms if own else 1), d if own else 0,
                        entries(mean) + b * arms, entries(square) + b * arms, self._work, arms, d,
                    )
            if narrow:
                with np.errstate(over="ignore"):
                    mean, square = mean.astype(np.float32), square.astype(np.float32)
        if not (np.isfinite(mean).all() and np.isfinite(square).all()):
            refuse_not_finite("phi", np.require(rows, np.float64, ["C", "A"]))
            remedy = "pass it as float64" if narrow else "rescale"
            raise ValueError(f"phi: a prediction or a leverage is out of the range of {mean.dtype}; {remedy}")
        return mean, square

    cdef cnp.ndarray answer(self, const double* values):
        cdef cnp.npy_intp size = self.n_arms
        cdef cnp.ndarray out = cnp.PyArray_SimpleNew(1, &size, cnp.NPY_DOUBLE)
        memcpy(entries(out), values, self.n_arms * sizeof(double))
        return out

    def predict(self, phi, *, per_arm=False):
        """Return phi^T theta_k of every arm.

        Parameters
        ----------
        phi : array_like, shape (d,) or (B, d)
            Features that all arms share: of one context, or of B of them. With `per_arm`, shape (K, d) or (B, K, d).
        per_arm : bool, default False
            Whether every arm has features of its own.

        Returns
        -------
        numpy.ndarray, shape (K,) or (B, K)
            Six or more contexts in float32 are solved for in float32, and of contexts in float32 the result has that
            type; see `Ridge.leverage` for the error.

        Raises
        ------
        TypeError, ValueError
            On a wrong dtype or shape, an entry that is not finite, or a prediction or leverage that overflows.

        Examples
        --------
        >>> arms = RidgeArms(2, 2, 1.0)
        >>> arms.predict([[1.0, 0.0], [0.0, 1.0]]).shape, arms.predict([[1.0, 0.0], [0.0, 1.0]], per_arm=True).shape
        ((2, 2), (2,))
        """
        if not cnp.PyArray_Check(phi):
            phi = as_numbers("phi", phi)
        if not self.single_question(phi, per_arm):
            return self.ask_many(phi, per_arm)[0]
        self.ask(phi)
        return self.answer(self._mean)

    def leverage(self, phi, *, per_arm=False):
        """Return phi^T V_k^{-1} phi of every arm, (K,) or (B, K); arguments and errors are those of `predict`."""
        if not cnp.PyArray_Check(phi):
            phi = as_numbers("phi", phi)
        if not self.single_question(phi, per_arm):
            return self.ask_many(phi, per_arm)[1]
        self.ask(phi)
        return self.answer(self._square)

    cdef int raise_bounds(self, cnp.ndarray phi, double width) except -1:
        # _mean <- _mean + width _square^{1/2}
        cdef Py_ssize_t k
        self.ask(phi)
        for k in range(self.n_arms):
            self._mean[k] += width * sqrt(self._square[k])
            if not isfinite(self._mean[k]):
                raise ValueError("alpha: a bound is out of the range of float64")
        return 0

    cdef cnp.ndarray many_bounds(self, phi, double width, bint own):
        cdef cnp.ndarray mean, square
        cdef bint finite
        mean, square = self.ask_many(phi, own)
        if cnp.PyArray_TYPE(mean) == cnp.NPY_FLOAT:
            finite = raise_by[float](
                <float*> cnp.PyArray_DATA(mean), <const float*> cnp.PyArray_DATA(square), width, cnp.PyArray_SIZE(mean)
            )
        else:
            finite = raise_by[double](entries(mean), entries(square), width, cnp.PyArray_SIZE(mean))
        if not finite:
            raise ValueError(f"alpha: a bound is out of the range of {mean.dtype}")
        return mean

    def upper(self, phi, alpha, *, per_arm=False):
        """Return the upper confidence bounds phi^T theta_k + alpha (phi^T V_k^{-1} phi)^(1/2) of all arms.

        Parameters
        ----------
        phi : array_like, shape (d,) or (B, d)
            Features that all arms share: of one context, or of B of them. With `per_arm`, shape (K, d) or (B, K, d).
        alpha : float
            Width of the bounds, non-negative.
        per_arm : bool, default False
            Whether every arm has features of its own.

        Returns
        -------
        numpy.ndarray, shape (K,) or (B, K)

        Raises
        ------
        TypeError, ValueError
            As for `predict`, and if `alpha` is negative, not finite, or too large.
        """
        cdef double width = non_negative(alpha, "alpha")
        if not cnp.PyArray_Check(phi):
            phi = as_numbers("phi", phi)
        if not self.single_question(phi, per_arm):
            return self.many_bounds(phi, width, per_arm)
        self.raise_bounds(phi, width)
        return self.answer(self._mean)

    def select(self, phi, alpha, *, per_arm=False):
        """Return the arm with the largest upper bound, the smallest of those that tie; see `upper` for the arguments.

        With alpha = 0 this is the arm with the largest prediction.

        Returns
        -------
        int, or numpy.ndarray of int64, shape (B,), for B contexts
        """
        cdef Py_ssize_t k, best = 0
        cdef double width = non_negative(alpha, "alpha")
        if not cnp.PyArray_Check(phi):
            phi = as_numbers("phi", phi)
        if not self.single_question(phi, per_arm):
            return self.many_bounds(phi, width, per_arm).argmax(axis=1)
        self.raise_bounds(phi, width)
        for k in range(1, self.n_arms):
            if self._mean[k] > self._mean[best]:
                best = k
        return best

    def update(self, arm, phi, y, weight=1.0):
        """Add a row to one arm, in O(d^2): V <- V + w phi phi^T, and w y phi to the sum behind theta.

        Parameters
        ----------
        arm : int
            In 0..K-1.
        phi : array_like, shape (d,)
            Features.
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
        cdef Py_ssize_t i, k = self.index(arm), d = self.dimension
        cdef cnp.ndarray row = vector(phi, "phi", d)
        cdef double target = number(y, "y"), root = sqrt(non_negative(weight, "weight")), square
        cdef const double* x = entries(row)
        for i in range(d):
            self._work[i] = root * x[i]
        square = dot(self._work, self._work, d)
        # Sums are NaN or infinite if an argument is; a weight of 0 may hide that.
        if not (square <= ROOM - self._trace[k] and fabs(root * target) <= ROOM - self._reach[k]) or root == 0.0:
            refuse_not_finite("phi", row)
            as_floats("y", y, np.shape(y))
            if root != 0.0:
                raise ValueError("phi, y: a sum of products is out of the range of float64; rescale")
            # The checks may have let another thread in, which has the workspace now: there is nothing to add.
            self.count(k)
            return
        learn(self.matrix_of(k), self._coordinates + k * d, self._work, root * target, d)
        self._trace[k] += square
        self._reach[k] += fabs(root * target)
        self.count(k)

    def update_sparse(self, arm, indices, values, y, weight=1.0):
        """Add a row that is zero but at some columns to one arm; see `update`.

        Parameters
        ----------
        arm : int
            In 0..K-1.
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
            As for `update`; nothing has changed then.
        """
        self.update(arm, dense_row(indices, values, self.dimension), y, weight)

    def update_rows(self, arms, Phi, y, weights=None):
        """Add a block of rows, as rewards that come late: as many calls of `update`, in their order, to the bit.

        Parameters
        ----------
        arms : int, or array_like of int, shape (m,)
            The arm of each row, or of all.
        Phi : array_like or sparse, shape (m, d)
            Anything with a method `tocsr` is taken as a SciPy sparse matrix or array.
        y : array_like, shape (m,)
        weights : array_like, shape (m,), optional
            Non-negative weights, ones by default.

        Raises
        ------
        TypeError, ValueError
            As for `update`; nothing has changed then, not by any row.

        Examples
        --------
        >>> arms = RidgeArms(2, 2, 1.0)
        >>> arms.update_rows([1, 0, 1], [[1.0, 0.0], [1.0, 0.0], [0.0, 3.0]], [4.0, 2.0, 10.0])
        >>> arms.theta
        array([[1., 0.],
               [2., 3.]])
        """
        cdef Py_ssize_t i, k, d = self.dimension
        cdef bint sparse = is_sparse(Phi)
        cdef tuple parts = sparse_rows(Phi, "Phi", d) if sparse else (matrix(Phi, "Phi", -1, d),)
        cdef Rows rows = rows_in(parts)
        cdef cnp.ndarray values = parts[0], targets = vector(y, "y", rows.n), roots = np.ones(rows.n), owners, bounds
        cdef double square, reach
        cdef double* trace
        cdef const int32_t* owner
        if np.ndim(arms) == 0:
            owners = np.full(rows.n, self.index(arms), dtype=np.int32)
        else:
            owners = as_columns(arms, "arms", self.n_arms)
        if cnp.PyArray_DIM(owners, 0) != rows.n:
            raise ValueError(f"arms: expected an integer or shape ({rows.n},), got {np.shape(arms)}")
        if weights is not None:
            roots = as_floats("weights", weights, (rows.n,))
            if (roots < 0.0).any():
                raise ValueError(f"weights: expected non-negative numbers, got {roots.min()}")
            roots = np.sqrt(roots)
        refuse_not_finite("Phi.data" if sparse else "Phi", values)
        refuse_not_finite("y", targets)
        owner = <const int32_t*> cnp.PyArray_DATA(owners)
        if np.may_share_memory(values, self._factors):
            # Rows of `factor` would change while they are rotated in.
            values = values.copy()
            rows.values = entries(values)
        bounds = self._bounds.copy()
        trace = entries(bounds)
        for i in range(rows.n):
            k = owner[i]
            self.place(&rows, i, entries(roots)[i])
            square = dot(self._work, self._work, d)
            reach = fabs(entries(roots)[i] * entries(targets)[i])
            if not (square <= ROOM - trace[k] and reach <= ROOM - trace[self.n_arms + k]):
                raise ValueError("Phi, y: a sum of products is out of the range of float64; rescale")
            trace[k] += square
            trace[self.n_arms + k] += reach
        # From here on no other thread runs.
        for i in range(rows.n):
            k = owner[i]
            self.count(k)
            if entries(roots)[i] == 0.0:
                continue
            self.place(&rows, i, entries(roots)[i])
            learn(
                self.matrix_of(k), self._coordinates + k * d, self._work, entries(roots)[i] * entries(targets)[i], d
            )
        memcpy(self._trace, trace, 2 * self.n_arms * sizeof(double))

    cdef void place(self, const Rows* rows, Py_ssize_t i, double root) noexcept nogil:
        # _work (d,) <- root times row i
        cdef Py_ssize_t j, d = self.dimension
        if rows.starts == NULL:
            for j in range(d):
                self._work[j] = root * rows.values[i * d + j]
            return
        memset(self._work, 0, d * sizeof(double))
        for j in range(rows.starts[i], rows.starts[i + 1]):
            self._work[rows.columns[j]] = root * rows.values[j]

    def discount(self, factor, with_regularization=False):
        """Forget: multiply the sums of all arms by a factor in place, as `Ridge.discount` does.

        Parameters
        ----------
        factor : float
            In (0, 1].
        with_regularization : bool, default False
            Whether lambda shrinks along, in O(K d^2); otherwise it stays, in O(K d^3). See `Ridge.discount`, also for
            the least lambda.

        Raises
        ------
        TypeError, ValueError
            If an argument is of another type or out of range; nothing has changed then.
        """
        cdef double share = positive(factor, "factor"), root = sqrt(share), more, least
        cdef bint whole = flag(with_regularization, "with_regularization")
        cdef Py_ssize_t i, d = self.dimension
        if share > 1.0:
            raise ValueError(f"factor: expected a number in (0, 1], got {share}")
        for i in range(self.n_arms * d * d):
            self._factor[i] *= root
        for i in range(self.n_arms * d):
            self._coordinates[i] *= root
        for i in range(self.n_arms):
            self._trace[i] *= share
            self._reach[i] *= root
        more = (1.0 - share) * self.regularization
        if whole:
            self.regularization *= share
            least = LOST * LOST
            for i in range(self.n_arms):
                least = max(least, self._trace[i] / d * LOST)
            more = 0.0
            if self.regularization < least:
                more = least * RAISED - self.regularization
                self.regularization = least * RAISED
        if more > 0.0:
            self.lift(more)

    cdef void lift(self, double more) noexcept:
        # V_k <- V_k + more I: rows without targets.
        cdef Py_ssize_t i, k, d = self.dimension
        for k in range(self.n_arms):
            for i in range(d):
                memset(self._work, 0, d * sizeof(double))
                self._work[i] = sqrt(more)
                learn(self.matrix_of(k), self._coordinates + k * d, self._work, 0.0, d)
            self._trace[k] += d * more

    def merge(self, RidgeArms other not None):
        """Add the rows of another object with as many arms, the same dimension and regularization, arm by arm.

        The factor of an arm takes in the d rows of the other's, and gives away the second lambda: 6 d^3 operations an
        arm, all of them rotations. Rows that both have count twice: of two copies of one base that both went on, the
        base does.

        Parameters
        ----------
        other : RidgeArms

        Raises
        ------
        ValueError
            If the two do not go together or their sums overflow; nothing has changed then.

        Examples
        --------
        >>> one, other = RidgeArms(1, 1, 1.0), RidgeArms(1, 1, 1.0)
        >>> one.update(0, [1.0], 3.0)
        >>> other.update(0, [1.0], 6.0)
        >>> one.merge(other)
        >>> one.theta.round(12), one.n
        (array([[3.]]), array([2]))
        """
        cdef Py_ssize_t i, j, k, d = self.dimension
        cdef cnp.ndarray factors, rotated, scratch = np.zeros(3 * d), bounds
        cdef double* x = entries(scratch)
        cdef double* z
        cdef double rest, extra = d * self.regularization
        for name in ("n_arms", "dimension", "regularization"):
            mine, theirs = getattr(self, name), getattr(other, name)
            if mine != theirs:
                raise ValueError(f"other: expected {name} {mine}, got {theirs}")
        bounds = self._bounds + other._bounds
        if not bounds.max() <= ROOM:
            raise ValueError("other: a sum of products is out of the range of float64")
        # Of itself, too.
        factors, rotated = other._factors.copy(), other._rotated.copy()
        counts = self._counts + other._counts
        for k in range(self.n_arms):
            z = self._coordinates + k * d
            for i in range(d):
                memset(x, 0, i * sizeof(double))
                memcpy(x + i, entries(factors) + (k * d + i) * d + i, (d - i) * sizeof(double))
                learn(self.matrix_of(k), z, x, entries(rotated)[k * d + i], d)
            # V holds lambda twice. Without the rows of lambda I one after the other at most half of a row's leverage is
            # lost, so rotations amplify no rounding.
            for i in range(d):
                memset(x, 0, d * sizeof(double))
                x[i] = sqrt(self.regularization)
                downdate_factor(self.matrix_of(k), x, x + d, d)
                # The rotations (c, s) that would bring the row in take z and 0 to what is there: undo them.
                rest = 0.0
                for j in range(d):
                    z[j] = (z[j] - x[j] * rest) / x[d + j]
                    rest = x[d + j] * rest - x[j] * z[j]
            self._trace[k] = max(entries(bounds)[k] - extra, extra)
            self._reach[k] = entries(bounds)[self.n_arms + k]
        self._counts[:] = counts

    cdef inline void count(self, Py_ssize_t k) noexcept:
        (<int64_t*> cnp.PyArray_DATA(self._counts))[k] += 1

    @property
    def n(self):
        """Rows of each arm, whatever their weights, shape (K,), a new array of int64."""
        return self._counts.copy()

    @property
    def theta(self):
        """The estimates, shape (K, d), a new array. ValueError if one overflows."""
        return self.solved(self._rotated.copy(), "theta: an estimate")

    @property
    def factor(self):
        """The factors, V_k = U_k^T U_k, upper triangular, (K, d, d): a read-only view that follows every change.

        It does until arms are added or removed.
        """
        return self._factors[:]

    cdef cnp.ndarray solved(self, cnp.ndarray rows, str what):
        # rows (K, d) <- U_k^{-1} rows_k
        cdef Py_ssize_t k, d = self.dimension
        for k in range(self.n_arms):
            solve_factor(self.matrix_of(k), entries(rows) + k * d, d)
        if not all_finite(entries(rows), self.n_arms * d):
            raise ValueError(f"{what} is out of the range of float64; rescale")
        return rows

    def sample(self, rng, scale=1.0):
        """Draw from N(theta_k, scale^2 V_k^{-1}) for every arm: U_k^{-1} (z_k + scale normals), see `Ridge.sample`.

        Parameters
        ----------
        rng : numpy.random.Generator or Stream
            A generator goes on; a Stream is read from its beginning. The same seed gives the same bits.
        scale : float, default 1
            Non-negative.

        Returns
        -------
        numpy.ndarray, shape (K, d)

        Raises
        ------
        TypeError, ValueError
            If an argument is of another type or out of range, or a result overflows.
        """
        cdef double width = non_negative(scale, "scale")
        cdef cnp.ndarray out = standard_normals(rng, self.n_arms, self.dimension)
        cdef double* x = entries(out)
        cdef Py_ssize_t i
        for i in range(self.n_arms * self.dimension):
            x[i] = self._coordinates[i] + width * x[i]
        return self.solved(out, "scale: a sample")

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
        """Return the arms that `save` wrote, bit for bit.

        Raises
        ------
        OSError
            If the file cannot be read.
        FileError
            If it is not a file of `save`, is damaged, or of a later version; a ValueError.
        """
        return load(path, RidgeArms, NAMES, STATE)

    def copy(self):
        """Return independent arms in the same state, bit for bit."""
        make, arguments, state = self.__reduce__()
        other = make(*arguments)
        other.__setstate__(state)
        return other

    def __reduce__(self):
        state = {
            "version": STATE,
            "n": self._counts.copy(),
            "factor": self._factors.copy(),
            "rotated": self._rotated.copy(),
            "bounds": self._bounds.copy(),
        }
        return RidgeArms, (self.n_arms, self.dimension, self.regularization), state

    def __setstate__(self, state):
        cdef Py_ssize_t arms = self.n_arms, d = self.dimension
        cdef cnp.ndarray factor, rotated, bounds
        state = state_of(state, "RidgeArms", STATE, ("n", "factor", "rotated", "bounds"))
        counts = integers(state["n"], "state['n']", arms, 0, 1 << 62)
        factor = as_floats("state['factor']", state["factor"], (arms, d, d))
        rotated = as_floats("state['rotated']", state["rotated"], (arms, d))
        bounds = as_floats("state['bounds']", state["bounds"], (2, arms))
        if not (bounds.min() >= 0.0 and bounds.max() <= ROOM):
            raise ValueError(f"state['bounds']: expected numbers in [0, {ROOM}], got {bounds.min()} to {bounds.max()}")
        upper = np.triu(factor)
        if not (np.diagonal(upper, axis1=1, axis2=2) > 0.0).all():
            raise ValueError("state['factor']: expected positive diagonals")
        self._counts[:] = counts
        memcpy(self._factor, entries(upper), arms * d * d * sizeof(double))
        memcpy(self._coordinates, entries(rotated), arms * d * sizeof(double))
        memcpy(self._trace, entries(bounds), 2 * arms * sizeof(double))

    def __repr__(self):
        return f"RidgeArms({self.n_arms}, {self.dimension}, {self.regularization!r}): n={self._counts.tolist()}"


cdef int contexts(
    const double* u, const real* z, const real* x, real* mean, real* square, bint own, Py_ssize_t m, Py_ssize_t arms,
    Py_ssize_t d
) except -1:
    # mean and square (m, arms) <- z_k . a and a . a with a = U_k^{-T} x for the rows of x, (m, d) or, with `own`, (m,
    # arms, d). For a piece of contexts every factor is packed once, and groups are gathered once unless they differ by
    # arm.
    cdef Py_ssize_t wide = GROUP_SINGLE if real is float else GROUP
    cdef Py_ssize_t first, size, k, i, q, rows, packed = packed_size(d), group = group_size(d)
    cdef Py_ssize_t groups = 1 if own else (min(m, <Py_ssize_t> PIECE) + wide - 1) // wide
    cdef real[GROUP_SINGLE] means, squares
    cdef cnp.ndarray scratch = np.empty(packed + group * (groups + 1), np.float32 if real is float else np.float64)
    cdef real* factor = <real*> cnp.PyArray_DATA(scratch)
    cdef real* a = factor + packed
    cdef real* gathered = a + group
    cdef real* x_group
    for first in range(0, m, PIECE):
        size = min(m - first, <Py_ssize_t> PIECE)
        i = size if own else 0
        while i < size:
            i += gather(x + (first + i) * d, d, size - i, gathered + i // wide * group, d)
        for k in range(arms):
            PyErr_CheckSignals()
            pack(u + k * d * d, factor, d)
            i = 0
            while i < size:
                rows = min(size - i, wide)
                x_group = gathered + (0 if own else i // wide * group)
                if own:
                    gather(x + ((first + i) * arms + k) * d, arms * d, rows, x_group, d)
                score(factor, z + k * d, <const real*> x_group, a, means, squares, rows, d)
                for q in range(rows):
                    mean[(first + i + q) * arms + k] = means[q]
                    square[(first + i + q) * arms + k] = squares[q]
                i += rows
    return 0
