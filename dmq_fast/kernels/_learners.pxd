"""Base class of the learners that see the number of the state, which keep tables of it."""

from libc.stdint cimport int64_t

from dmq_fast.kernels._episode cimport Learner

cdef inline double largest(const double[:, ::1] table, Py_ssize_t row) noexcept nogil:
    cdef Py_ssize_t a
    cdef double most = table[row, 0]
    for a in range(1, table.shape[1]):
        if table[row, a] > most:
            most = table[row, a]
    return most

cdef class TabularLearner(Learner):
    # First row by level, (H,); the table, (sum of states, K); visits of its entries.
    cdef Py_ssize_t[::1] first
    cdef double[:, ::1] q
    cdef int64_t[:, ::1] visits

    # Split an array over all rows into H arrays.
    cdef list by_level(self, table)

    # The largest Q of a row; 0 for row -1, the end of the episode.
    cdef inline double best(self, Py_ssize_t row) noexcept nogil:
        return 0.0 if row < 0 else largest(self.q, row)

    # What subclasses replace. The action in a row, -1 after a failure: by default the largest Q, ties at random.
    cdef Py_ssize_t choose(self, Py_ssize_t row) noexcept nogil
    # Learn from a step, which `visits` has counted; the next row is -1 after the last level. False for lack of memory.
    cdef bint learn(self, Py_ssize_t row, Py_ssize_t a, double reward, Py_ssize_t following) noexcept nogil
    # The episode is over.
    cdef void plan(self) noexcept nogil
