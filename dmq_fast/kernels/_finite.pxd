"""Finite MDPs packed for simulation, as other kernels read them."""

from libc.stdint cimport int32_t

from dmq_fast.kernels._plan cimport Model

cdef enum Rewards:
    NONE = 0
    BY_ROW = 1
    BY_EDGE = 2
    BERNOULLI = 3

cdef struct Level:
    Py_ssize_t n_states
    # Transitions: successor[row] if the level is deterministic, else edges row_start[row] .. row_start[row + 1].
    bint deterministic
    const int32_t* successor
    const int32_t* row_start
    const int32_t* next_state
    const double* threshold
    const int32_t* alias
    # Rewards by row or by edge; for Bernoulli the probability of `cap` by row.
    Rewards rewards
    const double* reward
    double cap
    # Features: dense rows, or CSR if rows have few entries.
    const double* dense
    const int32_t* phi_start
    const int32_t* phi_column
    const double* phi_value

# Outcome of a uniform u by an alias table of m entries; see `alias_tables`.
cdef inline Py_ssize_t outcome(const double* threshold, const int32_t* alias, Py_ssize_t m, double u) noexcept nogil:
    cdef double x = u * m
    cdef Py_ssize_t k = <Py_ssize_t> x
    cdef Py_ssize_t other = alias[k]
    # All bits of k ^ other, or none: a branch on a random number would be predicted wrongly every few steps.
    return other ^ ((k ^ other) & -<Py_ssize_t> (x - k < threshold[k]))

# Immutable. Whoever uses the pointers below must keep the model alive.
cdef class FiniteModel(Model):
    # levels (H,); offset (H + 1,), offset[h] the states of the levels before h; `widest`, the most states of a level.
    cdef Level* levels
    cdef Py_ssize_t* offset
    cdef Py_ssize_t widest
    # Alias table of the start; its outcome k is the state start_state[k].
    cdef Py_ssize_t n_start
    cdef const double* start_threshold
    cdef const int32_t* start_alias
    cdef const int32_t* start_state
    cdef list _alive

    cdef const double* keep_doubles(self, array) except? NULL
    cdef const int32_t* keep_integers(self, array) except? NULL
    cdef int pack_features(self, Py_ssize_t h, features, dict packed) except -1
    cdef int pack_transitions(self, Py_ssize_t h, table, bint by_edge, dict packed) except -1
    cdef int pack_rewards(self, Py_ssize_t h, table, rewards, double cap) except -1
