"""The arguments of one call of a simulator, checked once and laid out for its loops."""

cimport cython
cimport numpy as cnp
from cpython.exc cimport PyErr_CheckSignals

from dmq_fast.kernels._philox cimport Stream
from dmq_fast.kernels._rules cimport FIXED, GREEDY, INTERPRETED, Fixed, Greedy, Rule
from dmq_fast.kernels._validate cimport entries

from dmq_fast.kernels._stop import Stopped, heeded

cnp.import_array()

# Numbers computed between two checks for Ctrl-C: some ten milliseconds.
cdef enum:
    UNCHECKED = 1 << 22


cdef class Plan:
    # Plan(rules, horizon, n_actions, dimension, levels, returns_from). Immutable, except for the counter that decides
    # when to check for signals.

    def __cinit__(
        self, rules, Py_ssize_t horizon, Py_ssize_t n_actions, Py_ssize_t dimension, levels, returns_from
    ):
        cdef Py_ssize_t h, i
        if len(rules) != horizon:
            raise ValueError(f"policy: expected {horizon} rules, one a level, got {len(rules)}")
        self.horizon = horizon
        self.stop = heeded()
        self.n_levels = length("levels", levels)
        self.n_returns = length("returns_from", returns_from)
        self.kinds = <Kind*> self.zeros(horizon, sizeof(Kind))
        self.fixed = <int32_t*> self.zeros(horizon, sizeof(int32_t))
        self.weights = <const double**> self.zeros(horizon, sizeof(double*))
        self.wanted = <Py_ssize_t*> self.zeros(self.n_levels, sizeof(Py_ssize_t))
        self.counted = <char*> self.zeros(horizon, sizeof(char))
        self.returns = <Py_ssize_t*> self.zeros(self.n_returns, sizeof(Py_ssize_t))
        # The rules own the weights that `weights` points at.
        self._rules = tuple(rules)
        for h in range(horizon):
            self.set_rule(h, self._rules[h], n_actions, dimension)
        ascending("levels", levels, horizon, self.wanted)
        ascending("returns_from", returns_from, horizon, self.returns)
        for i in range(self.n_levels):
            self.counted[self.wanted[i]] = 1
        self.last = self.wanted[self.n_levels - 1] if self.n_levels > 0 else -1
        self.first_return = horizon
        if self.n_returns > 0:
            self.first_return = self.returns[0]
            self.last = horizon - 1

    cdef int check_after(self, Py_ssize_t work) except -1 nogil:
        # Check for signals and for `stop` after every UNCHECKED numbers computed.
        self.unchecked += work
        if self.unchecked > UNCHECKED:
            self.unchecked = 0
            with gil:
                self.check_signals()
        return 0

    cdef int check_signals(self) except -1:
        PyErr_CheckSignals()
        if self.stop is not None and self.stop.is_set():
            raise Stopped("rollout: cancelled")
        return 0

    cdef int set_rule(self, Py_ssize_t h, rule, Py_ssize_t n_actions, Py_ssize_t dimension) except -1:
        if not isinstance(rule, Rule):
            raise TypeError(f"policy: expected a Rule at level {h}, got {type(rule).__name__}")
        self.kinds[h] = (<Rule> rule).kind
        if self.kinds[h] == INTERPRETED:
            raise TypeError(
                f"policy: expected a rule that compiled code can follow at level {h}, got {type(rule).__name__}"
            )
        if self.kinds[h] == FIXED:
            if (<Fixed> rule).action >= n_actions:
                raise ValueError(f"policy: level {h} takes action {(<Fixed> rule).action}, expected < {n_actions}")
            self.fixed[h] = <int32_t> (<Fixed> rule).action
        elif self.kinds[h] == GREEDY:
            if (<Greedy> rule).n_actions != n_actions or (<Greedy> rule).dimension != dimension:
                raise ValueError(
                    f"policy: expected theta of shape {(n_actions, dimension)} at level {h}, "
                    f"got {((<Greedy> rule).n_actions, (<Greedy> rule).dimension)}"
                )
            self.weights[h] = (<Greedy> rule).weights
        return 0


cdef Py_ssize_t length(str name, levels) except -1:
    try:
        return len(levels)
    except TypeError:
        raise TypeError(f"{name}: expected a sequence of integers, got {levels!r}") from None


cdef int ascending(str name, levels, Py_ssize_t horizon, Py_ssize_t* out) except -1:
    cdef Py_ssize_t i, h, before = -1, size = len(levels)
    if type(levels) is range and size > 0 and 0 <= levels[0] and levels[size - 1] == levels[0] + size - 1 < horizon:
        # What most calls want: no integer objects are made.
        h = levels[0]
        for i in range(size):
            out[i] = h + i
        return 0
    for i in range(size):
        try:
            h = levels[i]
        except TypeError:
            raise TypeError(f"{name}: expected a sequence of integers, got {levels!r}") from None
        except OverflowError:
            h = horizon
        if not before < h < horizon:
            raise ValueError(f"{name}: expected ascending levels in [0, {horizon}), got {levels[i]} after {before}")
        before = h
        out[i] = h
    return 0


@cython.auto_pickle(False)  # its __setstate__ would read beyond a state that is too short
cdef class Model:
    """Base class of environments that are ready to simulate. Immutable.

    Attributes
    ----------
    horizon, n_actions, dimension : int
        Numbers of levels, actions, and features.
    """

    def rollout(
        self, tuple rules not None, Py_ssize_t n, Stream stream not None, levels, returns_from=(), bint in_rows=False
    ):
        """Simulate n trajectories up to the last level that matters and return their moments.

        Parameters
        ----------
        rules : tuple of H Rule
            The policy, one rule a level.
        n : int
            Number of trajectories, >= 0.
        stream : Stream
            Call and chunk whose uniforms are used.
        levels : sequence of int, strictly ascending
            Levels whose second moment is wanted.
        returns_from : sequence of int, strictly ascending
            Levels h whose return to go, sum_{h' >= h} r_{h'}, is wanted.
        in_rows : bool, default False
            Whether second moments are wanted in rows: for a finite MDP a row a state, its visits the weight; for a
            compiled environment equal rows merged.

        Returns
        -------
        sums : numpy.ndarray, shape (len(levels), d, d), or LevelRows
            Sum over trajectories of phi(s_h) phi(s_h)^T.
        moments : numpy.ndarray, shape (len(returns_from), d)
            Sum of y phi(s_h), with y the return to go from h.
        squares : numpy.ndarray, shape (len(returns_from),)
            Sum of y^2.

        Raises
        ------
        TypeError, ValueError
            When rules or levels do not fit the environment, or where a compiled environment writes features of norm
            above 1, rewards that are not finite, or such that sum to more or less than is declared; names level, call
            and chunk.
        RuntimeError
            When a function of a compiled environment returns a code; names it, level, call and chunk.
        ArithmeticError
            When a greedy score is not finite; names the level.
        KeyboardInterrupt
            On Ctrl-C.
        """
        cdef Plan plan = Plan(rules, self.horizon, self.n_actions, self.dimension, levels, returns_from)
        cdef cnp.npy_intp[2] shape = [plan.n_returns, self.dimension]
        moments = cnp.PyArray_ZEROS(2, shape, cnp.NPY_DOUBLE, 0)
        squares = cnp.PyArray_ZEROS(1, shape, cnp.NPY_DOUBLE, 0)
        sums = self.draw(plan, n, stream, in_rows, entries(moments), entries(squares))
        return sums, moments, squares

    cdef object draw(self, Plan plan, Py_ssize_t n, Stream stream, bint in_rows, double* moments, double* squares):
        raise NotImplementedError
