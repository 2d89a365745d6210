"""What can end a simulation, and the exception that it becomes."""

from dmq_fast.kernels._philox cimport Stream

# What can end a rollout, and where it happened.
cdef enum Fault:
    NONE, RESET, FEATURES, STEP, ENDED, BLANK, NORM, REWARD, RETURN, SCORE

cdef struct Stop:
    Fault fault
    Py_ssize_t level
    int code
    double value

# How far above 1 a feature norm or a return may lie, for rounding in the environment.
cdef double SLACK

# Whether one of the states is still all ones, as they were before `reset`.
cdef bint has_blank(const signed char* states, Py_ssize_t n, Py_ssize_t state_bytes) noexcept nogil

# The exception that a stop stands for.
cdef object explain(const Stop* stop, Stream stream)
