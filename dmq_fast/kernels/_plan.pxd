"""The arguments of one call of a simulator: the policy's rules, and the levels whose moments are wanted."""

from libc.stdint cimport int32_t

from dmq_fast.kernels._memory cimport Owner
from dmq_fast.kernels._philox cimport Stream
from dmq_fast.kernels._rules cimport Kind

cdef class Plan(Owner):
    cdef Py_ssize_t horizon
    # By level: the kind of the rule, the action of a fixed rule, theta (K, d) of a greedy one.
    cdef Kind* kinds
    cdef int32_t* fixed
    cdef const double** weights
    # wanted[i] is the i-th level whose second moment is wanted; counted[h] is 1 if h is one of them.
    cdef Py_ssize_t n_levels
    cdef Py_ssize_t* wanted
    cdef char* counted
    # returns[i] is the i-th level whose return to go is wanted; first_return the first of them, H without any.
    cdef Py_ssize_t n_returns
    cdef Py_ssize_t* returns
    cdef Py_ssize_t first_return
    # The last level to simulate, -1 for none. Actions are taken at it only if returns are wanted.
    cdef Py_ssize_t last
    cdef tuple _rules
    # About how many numbers were computed since signals were checked last; the event that cancels the call, or None.
    cdef Py_ssize_t unchecked
    cdef object stop

    # Check for signals and for `stop` from time to time, by the numbers computed since the last call.
    cdef int check_after(self, Py_ssize_t work) except -1 nogil
    cdef int check_signals(self) except -1
    cdef int set_rule(self, Py_ssize_t h, rule, Py_ssize_t n_actions, Py_ssize_t dimension) except -1

# An environment ready to simulate. Immutable.
cdef class Model(Owner):
    cdef readonly Py_ssize_t horizon
    cdef readonly Py_ssize_t n_actions
    cdef readonly Py_ssize_t dimension

    # Draw n trajectories on a stream. Returns the second moments, (n_levels, d, d) or LevelRows; moments (n_returns, d)
    # and squares (n_returns,), zeros before, hold the sums of y phi and of y^2 then.
    cdef object draw(self, Plan plan, Py_ssize_t n, Stream stream, bint in_rows, double* moments, double* squares)
