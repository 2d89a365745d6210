"""Algorithms that estimate a model of every level and plan in it: BPI-UCBVI, and optimistic policy optimisation.

The model of a pair (a state of a level, an action) has the frequencies of its next states and the mean reward on the
way to each. A plan goes from the last level to the first over all transitions that have been seen, so an episode costs

    O(H + K S + E),   S states of all levels, E distinct transitions seen.

Returns are at most 1 here; the papers have rewards in [0, 1] and returns of up to H.
"""

from libc.math cimport exp, sqrt
from libc.stdint cimport int64_t
from libc.stdlib cimport free, realloc

from dmq_fast.kernels._episode cimport Episode, tops_of
from dmq_fast.kernels._tabular_q cimport TabularLearner, largest

import numpy as np

from dmq_fast.kernels._validate import as_positive

cdef enum:
    FIRST_ROOM = 64

# The transitions of a pair into one next state: their number, their mean reward, the row of the state (-1 after the
# last level), and the next transition of the pair, or -1.
cdef struct Transition:
    int64_t count
    double reward
    Py_ssize_t state
    Py_ssize_t next


cdef class ModelLearner(TabularLearner):
    """Base class of learners that keep a model and plan after every episode.

    Parameters
    ----------
    episode : Episode
        Of an environment whose states are numbered: one with `n_states`.
    optimism : str
        cap_h, the most that is believed of a pair of level h, and what is believed of one never tried: "flat", 1, or
        "steps", the number of steps to go.
    """

    cdef Transition* transitions
    cdef Py_ssize_t n_transitions, room
    # (rows, K) the first transition of a pair, or -1, and the sum of squares of rewards about the mean of their
    # transition.
    cdef Py_ssize_t[:, ::1] heads
    cdef double[:, ::1] within
    # (rows,) cap_h of the row's level, and values to plan with.
    cdef double[::1] cap
    cdef double[::1] value

    def __cinit__(self, Episode episode not None, optimism, *arguments, **options):
        self.cap = np.repeat(tops_of(optimism, episode.horizon), episode.n_states)
        self.q = np.repeat(self.cap, episode.n_actions).reshape(-1, episode.n_actions)
        self.value = np.array(self.cap)
        self.heads = np.full((self.q.shape[0], episode.n_actions), -1)
        self.within = np.zeros((self.q.shape[0], episode.n_actions))
        self.work += 8 * self.q.shape[0] * episode.n_actions

    def __dealloc__(self):
        free(self.transitions)

    def fit(self):
        """Return Q of the model itself, without optimism, a list of H arrays (S_h, K); 0 where nothing was tried."""
        cdef Py_ssize_t row, a
        cdef double[:, ::1] q = np.zeros((self.q.shape[0], self.q.shape[1]))
        cdef double[::1] value = np.zeros(self.q.shape[0])
        self.begin_work()
        try:
            for row in reversed(range(self.q.shape[0])):
                for a in range(self.q.shape[1]):
                    q[row, a] = self.expected(row, a, value)
                value[row] = largest(q, row)
        finally:
            self.busy = False
        return self.by_level(np.asarray(q))

    cdef bint learn(self, Py_ssize_t row, Py_ssize_t a, double reward, Py_ssize_t following) noexcept nogil:
        cdef Py_ssize_t i = self.heads[row, a], more
        cdef Transition* found
        cdef void* moved
        cdef double off
        while i >= 0 and self.transitions[i].state != following:
            i = self.transitions[i].next
        if i < 0:
            if self.n_transitions == self.room:
                more = max(<Py_ssize_t> FIRST_ROOM, 2 * self.room)
                moved = realloc(self.transitions, more * sizeof(Transition))
                if moved == NULL:
                    return False
                self.transitions, self.room = <Transition*> moved, more
            i = self.n_transitions
            self.n_transitions += 1
            self.transitions[i] = Transition(0, 0.0, following, self.heads[row, a])
            self.heads[row, a] = i
        found = self.transitions + i
        found.count += 1
        off = reward - found.reward
        found.reward += off / found.count
        self.within[row, a] += off * (reward - found.reward)
        return True

    cdef double expected(self, Py_ssize_t row, Py_ssize_t a, const double[::1] value) noexcept nogil:
        # Mean of reward + value of the next row; 0 for a pair that was never tried.
        cdef Py_ssize_t i = self.heads[row, a]
        cdef Transition t
        cdef double total = 0.0
        if i < 0:
            return 0.0
        while i >= 0:
            t = self.transitions[i]
            total += t.count * (t.reward if t.state < 0 else t.reward + value[t.state])
            i = t.next
        return total / self.visits[row, a]

    cdef double variance(self, Py_ssize_t row, Py_ssize_t a, const double[::1] value, double mean) noexcept nogil:
        # Variance of reward + value of the next row, about a mean that `expected` has returned.
        cdef Py_ssize_t i = self.heads[row, a]
        cdef Transition t
        cdef double total = self.within[row, a], off
        while i >= 0:
            t = self.transitions[i]
            off = (t.reward if t.state < 0 else t.reward + value[t.state]) - mean
            total += t.count * off * off
            i = t.next
        return total / self.visits[row, a]


cdef class BernsteinLearner(ModelLearner):
    """BPI-UCBVI (Menard, Domingues, Jonsson, Kaufmann, Leurent and Valko, 2021), with the bonus

        b(s, a) = c1 sqrt(Var(r + U(s')) / n(s, a)) + c2 / n(s, a),

    mean and variance under the model. U_h(s, a) = min(cap_h, mean(r + max_b U(s', b)) + b(s, a)), where cap_h is 1 or
    the number of steps to go, and L_h(s, a) = max(0, mean(r + max_b L(s', b)) - b(s, a)). Pairs that were never tried
    have U = cap_h and L = 0. Actions are greedy on U.

    Parameters
    ----------
    episode : Episode
    optimism : str
        cap_h: "flat" or "steps".
    c1, c2 : float
        >= 0.
    epsilon : float or None
        > 0. Learning stops at the first `gap` of at most epsilon; with None, never.

    Attributes
    ----------
    gap : float
        The mean over first states of min(1, max U) - max L. If the environment has several first states, these are
        weighted by their frequencies, and c1 sqrt(Var / n) + c2 / n is added, n episodes; at most 1.
    """

    cdef double c1, c2, epsilon
    cdef readonly double gap
    # (rows, K), and (rows,) its largest entries.
    cdef double[:, ::1] low
    cdef double[::1] sure

    def __cinit__(self, Episode episode not None, optimism, c1, c2, epsilon):
        self.c1, self.c2 = as_positive("c1", c1, zero=True), as_positive("c2", c2, zero=True)
        self.epsilon = -1.0 if epsilon is None else as_positive("epsilon", epsilon)
        self.low, self.sure = np.zeros((self.q.shape[0], self.q.shape[1])), np.zeros(self.q.shape[0])
        self.gap = 1.0

    @property
    def lower(self):
        """L, copies, a list of H arrays (S_h, K); U is `table`."""
        return self.by_level(np.array(self.low))

    cdef void plan(self) noexcept nogil:
        cdef Py_ssize_t row, a
        cdef double n, mean, bonus
        for row in reversed(range(self.q.shape[0])):
            for a in range(self.q.shape[1]):
                n = self.visits[row, a]
                if n == 0.0:
                    continue
                mean = self.expected(row, a, self.value)
                bonus = self.c1 * sqrt(self.variance(row, a, self.value, mean) / n) + self.c2 / n
                self.q[row, a] = min(self.cap[row], mean + bonus)
                self.low[row, a] = max(0.0, self.expected(row, a, self.sure) - bonus)
            self.value[row], self.sure[row] = largest(self.q, row), largest(self.low, row)
        self.measure()
        self.stopped = self.gap <= self.epsilon

    cdef void measure(self) noexcept nogil:
        # The episode just played is not yet in `n_episodes`.
        cdef Py_ssize_t row, n_first = self.first[1] if self.episode.horizon > 1 else self.q.shape[0]
        cdef double n = self.n_episodes + 1.0, mean = 0.0, variance = 0.0
        for row in range(n_first):
            mean += self.starts(row) / n * self.width(row)
        self.gap = mean
        if n_first > 1:
            for row in range(n_first):
                variance += self.starts(row) / n * (self.width(row) - mean) ** 2
            self.gap = min(1.0, self.gap + self.c1 * sqrt(variance / n) + self.c2 / n)

    cdef double starts(self, Py_ssize_t row) noexcept nogil:
        cdef Py_ssize_t a
        cdef int64_t n = 0
        for a in range(self.q.shape[1]):
            n += self.visits[row, a]
        return n

    cdef double width(self, Py_ssize_t row) noexcept nogil:
        return min(1.0, self.value[row]) - self.sure[row]


cdef class PolicyOptimisationLearner(ModelLearner):
    """Optimistic proximal policy optimisation, OPPO (Cai, Yang, Jin and Wang, 2020, algorithm 1), with tables.

    After every episode, from the last level to the first, under the model,

        Q_h(s, a) = min(cap_h, mean(r + V_{h+1}(s')) + beta / sqrt(n(s, a))),  V_h(s) = sum_a pi_h(a | s) Q_h(s, a).

    Then pi_h(a | s) becomes proportional to pi_h(a | s) exp(alpha Q_h(s, a)). The first pi is uniform.

    Parameters
    ----------
    episode : Episode
    optimism : str
        cap_h: "flat" or "steps".
    alpha, beta : float
        >= 0.
    """

    cdef double alpha, beta
    # (rows, K) log pi but for a constant of the row, and pi.
    cdef double[:, ::1] logits
    cdef double[:, ::1] pi

    def __cinit__(self, Episode episode not None, optimism, alpha, beta):
        self.alpha, self.beta = as_positive("alpha", alpha, zero=True), as_positive("beta", beta, zero=True)
        self.logits = np.zeros((self.q.shape[0], self.q.shape[1]))
        self.pi = np.full((self.q.shape[0], self.q.shape[1]), 1.0 / episode.n_actions)

    @property
    def probabilities(self):
        """pi, copies, a list of H arrays (S_h, K)."""
        return self.by_level(np.array(self.pi))

    cdef Py_ssize_t choose(self, Py_ssize_t row) noexcept nogil:
        cdef Py_ssize_t a
        cdef double u
        self.episode.draw(&u, 1)
        for a in range(self.q.shape[1] - 1):
            u -= self.pi[row, a]
            if u < 0.0:
                return a
        return self.q.shape[1] - 1

    cdef void plan(self) noexcept nogil:
        cdef Py_ssize_t row, a
        cdef double n, value
        cdef bint tried
        for row in reversed(range(self.q.shape[0])):
            value, tried = 0.0, False
            for a in range(self.q.shape[1]):
                n = self.visits[row, a]
                if n > 0.0:
                    self.q[row, a] = min(self.cap[row], self.expected(row, a, self.value) + self.beta / sqrt(n))
                    tried = True
                value += self.pi[row, a] * self.q[row, a]
            if tried:
                self.value[row] = value
                self.improve(row)

    cdef void improve(self, Py_ssize_t row) noexcept nogil:
        cdef Py_ssize_t a
        cdef double top, total = 0.0
        for a in range(self.q.shape[1]):
            self.logits[row, a] += self.alpha * self.q[row, a]
        top = largest(self.logits, row)
        for a in range(self.q.shape[1]):
            self.logits[row, a] -= top
            self.pi[row, a] = exp(self.logits[row, a])
            total += self.pi[row, a]
        for a in range(self.q.shape[1]):
            self.pi[row, a] /= total
