"""Reasons why a simulation ends early, and the exception for each."""

from dmq_fast.kernels._philox cimport Stream

# What the environment, its rewards or a score did wrong; NONE while all is well.
cdef enum Fault:
    NONE, RESET, FEATURES, STEP, ENDED, BLANK, NORM, REWARD, RETURN, SCORE

# The first fault of a simulation: its level, the code of the environment's function, the number that was refused.
cdef struct Stop:
    Fault fault
    Py_ssize_t level
    int code
    double value

# How far above 1 a feature norm or a return may lie, for rounding in the environment.
cdef double SLACK

# Whether one of n states is still all ones, as the simulator left them before `reset`.
cdef bint has_blank(const signed char* states, Py_ssize_t n, Py_ssize_t state_bytes) noexcept nogil

# The exception for a stop; it names level, call and chunk.
cdef object explain(const Stop* stop, Stream stream)
