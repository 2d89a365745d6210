"""Base class of the learners that see the number of the state, which keep tables of it."""

from libc.stdint cimport int64_t

from dmq_fast.kernels._episode cimport Learner, Sharing

cdef inline double largest(const double[:, ::1] table, Py_ssize_t row) noexcept nogil:
    cdef Py_ssize_t a
    cdef double most = table[row, 0]
    for a in range(1, table.shape[1]):
        if table[row, a] > most:
            most = table[row, a]
    return most

cdef class TabularLearner(Learner):
    # First row by level, (H,); the table, (sum of states, K); how often each action was taken, by row.
    cdef Py_ssize_t[::1] first
    cdef double[:, ::1] q
    cdef int64_t[:, ::1] visits
    # Which levels share data; first row by data set, (n,), in arrays with a row for each of its states, of which there
    # are `n_pooled`; and how many steps have entered, (n_pooled, K).
    cdef Sharing sharing
    cdef Py_ssize_t[::1] pool
    cdef Py_ssize_t n_pooled
    cdef int64_t[:, ::1] tried

    # Split an array over all rows into H arrays.
    cdef list by_level(self, table)

    # The largest Q of a row; 0 for row -1, the end of the episode.
    cdef inline double best(self, Py_ssize_t row) noexcept nogil:
        return 0.0 if row < 0 else largest(self.q, row)

    # The row of the next state, seen from level h; -1 for the end.
    cdef inline Py_ssize_t row_after(self, Py_ssize_t h, Py_ssize_t state) noexcept nogil:
        return -1 if state < 0 else self.first[h + 1] + state

    # What subclasses replace. The action in a row, -1 after a failure: by default the largest Q, ties at random.
    cdef Py_ssize_t choose(self, Py_ssize_t row) noexcept nogil
    # Learn from a step that enters a data set, which `tried` has counted: state, action, reward and the next state, -1
    # if the episode is over. False for lack of memory.
    cdef bint learn(
        self, Py_ssize_t data, Py_ssize_t state, Py_ssize_t a, double reward, Py_ssize_t following
    ) noexcept nogil
    # The episode is over.
    cdef void plan(self) noexcept nogil
