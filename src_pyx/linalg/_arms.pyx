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
from libc.stdint cimport int64_t
from libc.string cimport memcpy

from dmq_fast.kernels._linalg cimport (
    GROUP, GROUP_SINGLE, dot, gather, group_size, pack, packed_size, real, score, solve_factor,
)
from dmq_fast.kernels._philox cimport standard_normals
from dmq_fast.kernels._validate cimport (
    all_finite, entries, flag, integer, integers, matrix, non_negative, number, positive, refuse_not_finite,
    square_zeros, state_of, vector,
)

import numpy as np

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
        cdef Py_ssize_t i, k
        self.n_arms = integer(n_arms, "n_arms", 1, 1 << 28)
        self.dimension = integer(d, "d", 1, 1 << 28)
        self.regularization = positive(regularization, "regularization")
        if self.regularization < DBL_MIN or self.dimension * self.regularization > ROOM:
            raise ValueError(f"regularization: {self.regularization} is out of the range of float64 here")
        shape = (self.n_arms, self.dimension, self.dimension)
        self._factors = square_zeros("n_arms, d", shape)
        self._rotated = np.zeros(shape[:2])
        self._bounds, self._answers = np.zeros((2, shape[0])), np.zeros((2, shape[0]))
        self._scratch, self._counts = np.zeros((DMQ_ARMS, shape[1])), np.zeros(shape[0], dtype=np.int64)
        # `factor` hands out views.
        self._factors.flags.writeable = False
        self._factor, self._coordinates, self._work = (
            entries(self._factors), entries(self._rotated), entries(self._scratch),
        )
        self._trace, self._mean = entries(self._bounds), entries(self._answers)
        self._reach, self._square = self._trace + self.n_arms, self._mean + self.n_arms
        for k in range(self.n_arms):
            self._trace[k] = self.dimension * self.regularization
            for i in range(self.dimension):
                self.matrix_of(k)[i * (self.dimension + 1)] = sqrt(self.regularization)

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
        m = len(phi) if np.ndim(phi) else 0
        rows = as_floats("phi", phi, (None, arms, d) if own else (None, d), finite=False)
        if narrow and m >= MANY_ROWS:
            rows = np.require(phi, np.float32, ["C", "A"])
            mean, square = np.empty((m, arms), np.float32), np.empty((m, arms), np.float32)
            z = coordinates.astype(np.float32)
            contexts[float](
                entries(factors), <float*> cnp.PyArray_DATA(z), <float*> cnp.PyArray_DATA(rows),
                <float*> cnp.PyArray_DATA(mean), <float*> cnp.PyArray_DATA(square), own, m, arms, d,
            )
        else:
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
        mean, square = self.ask_many(phi, own)
        with np.errstate(over="ignore"):
            np.sqrt(square, out=square)
            square *= width
            mean += square
        if not np.isfinite(mean).all():
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
        """The factors, V_k = U_k^T U_k, upper triangular, (K, d, d): a read-only view that follows every change."""
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
                score(factor, z + k * d, <const real*> x_group, a, means, squares, d)
                for q in range(rows):
                    mean[(first + i + q) * arms + k] = means[q]
                    square[(first + i + q) * arms + k] = squares[q]
                i += rows
    return 0
