"""Rules: how a policy chooses actions at one level. They are immutable, so that policies can share them."""

cdef enum Kind:
    UNIFORM = 0
    FIXED = 1
    GREEDY = 2
    INTERPRETED = 3

cdef class Rule:
    cdef Kind kind

cdef class Uniform(Rule):
    pass

cdef class Fixed(Rule):
    cdef readonly Py_ssize_t action

cdef class Greedy(Rule):
    cdef readonly object theta
    cdef const double* weights
    cdef readonly Py_ssize_t n_actions
    cdef readonly Py_ssize_t dimension
    cdef bytes _digest

cdef class Interpreted(Rule):
    pass
