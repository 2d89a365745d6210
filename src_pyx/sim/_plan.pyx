"""The arguments of one call of a simulator, checked once and laid out for its loops."""

from cpython.exc cimport PyErr_CheckSignals
from libc.stdlib cimport calloc, free

from dmq_fast.kernels._philox cimport Stream
from dmq_fast.kernels._rows cimport LevelRows
from dmq_fast.kernels._rules cimport FIXED, GREEDY, INTERPRETED, Fixed, Greedy, Rule

from dmq_fast.kernels._stop import Stopped, heeded

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
        self.kinds = <Kind*> calloc(horizon, sizeof(Kind))
        self.fixed = <int32_t*> calloc(horizon, sizeof(int32_t))
        self.weights = <const double**> calloc(horizon, sizeof(double*))
        self.wanted = <Py_ssize_t*> calloc(self.n_levels + 1, sizeof(Py_ssize_t))
        self.counted = <char*> calloc(horizon, sizeof(char))
        self.returns = <Py_ssize_t*> calloc(self.n_returns + 1, sizeof(Py_ssize_t))
        if (self.kinds == NULL or self.fixed == NULL or self.weights == NULL or self.wanted == NULL
                or self.counted == NULL or self.returns == NULL):
            raise MemoryError()
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

    def __dealloc__(self):
        free(self.kinds)
        free(self.fixed)
        free(self.weights)
        free(self.wanted)
        free(self.counted)
        free(self.returns)

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


cdef class RowDraws:

    cdef LevelRows draw(self, Stream stream, double* moments, double* squares):
        raise NotImplementedError


cdef class Model:

    cdef RowDraws row_draws(self, Plan plan, Py_ssize_t n):
        raise NotImplementedError
