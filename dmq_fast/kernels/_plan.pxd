"""What one call asks of a simulator: the policy's rules, and the levels whose moments are wanted."""

from libc.stdint cimport int32_t

from dmq_fast.kernels._rules cimport Kind

cdef class Plan:
    cdef Py_ssize_t horizon
    # Of the rule at each level: its kind, its action where fixed, theta (K, d) where greedy.
    cdef Kind* kinds
    cdef int32_t* fixed
    cdef const double** weights
    # wanted[i]: i-th level whose second moment is wanted; counted[h]: whether h is one of them.
    cdef Py_ssize_t n_levels
    cdef Py_ssize_t* wanted
    cdef char* counted
    # returns[i]: i-th level whose return to go is wanted; the first of them, H where there is none.
    cdef Py_ssize_t n_returns
    cdef Py_ssize_t* returns
    cdef Py_ssize_t first_return
    # The last level that matters, -1 where none does. Actions are taken there only for the sake of returns.
    cdef Py_ssize_t last
    cdef tuple _rules
    # Numbers computed since `listen` was called last, about, and what it heeds beside signals.
    cdef Py_ssize_t unheard
    cdef object stop

    cdef int count(self, Py_ssize_t work) except -1 nogil
    cdef int listen(self) except -1
    cdef int set_rule(self, Py_ssize_t h, rule, Py_ssize_t n_actions, Py_ssize_t dimension) except -1
