"""Q-learning on a table: with upper confidence bounds (Jin et al., 2018), and delayed (Strehl et al., 2006).

Returns are at most 1 here; the papers have rewards in [0, 1] and returns of up to H, so numbers here are theirs over H.
"""

from libc.math cimport sqrt
from libc.stdint cimport int64_t

from dmq_fast.kernels._episode cimport Episode, tops_of

import numpy as np

from dmq_fast.kernels._validate import as_positive


cdef class TabularLearner(Learner):
    """Base class of learners with a table of Q by level, state and action, on which actions are greedy by default.

    Parameters
    ----------
    episode : Episode
        Of an environment whose states are numbered: one with `n_states`.
    """

    def __cinit__(self, Episode episode not None, *arguments, **options):
        if episode.n_states is None:
            raise TypeError("env: expected a FiniteMDP or a block MDP, whose states are numbered")
        sizes = np.array(episode.n_states)
        self.first = np.cumsum(sizes) - sizes
        self.q = np.ones((sizes.sum(), episode.n_actions))
        self.visits = np.zeros((sizes.sum(), episode.n_actions), dtype=np.int64)

    cdef list by_level(self, table):
        return np.split(table, np.asarray(self.first)[1:])

    @property
    def table(self):
        """Q, copies, a list of H arrays (S_h, K)."""
        return self.by_level(np.array(self.q))

    @property
    def counts(self):
        """How often every action was taken, copies, a list of H arrays (S_h, K)."""
        return self.by_level(np.array(self.visits))

    cdef bint play(self) noexcept nogil:
        cdef Py_ssize_t h, a, row = self.first[0] + self.episode.latent(), following
        for h in range(self.episode.horizon):
            a = self.choose(row)
            if a < 0 or not self.episode.move(a):
                return False
            following = -1
            if h < self.episode.horizon - 1:
                following = self.first[h + 1] + self.episode.latent()
            self.visits[row, a] += 1
            if not self.learn(row, a, self.episode.reward, following):
                return False
            row = following
        self.plan()
        return True

    cdef Py_ssize_t choose(self, Py_ssize_t row) noexcept nogil:
        cdef Py_ssize_t a
        for a in range(self.episode.n_actions):
            self.episode.scores[a] = self.q[row, a]
        return self.episode.pick()

    cdef bint learn(self, Py_ssize_t row, Py_ssize_t a, double reward, Py_ssize_t following) noexcept nogil:
        return True

    cdef void plan(self) noexcept nogil:
        pass


cdef class UCBQLearner(TabularLearner):
    """Algorithm 1 of Jin, Allen-Zhu, Bubeck and Jordan (2018), with Hoeffding bonuses.

    Q_h begins at top_h. At the t-th visit Q_h <- (1 - alpha_t) Q_h + alpha_t (r + min(top_{h+1}, max_b Q_{h+1}(s', b))
    + c top_h sqrt(H / t)), where alpha_t = (H + 1) / (H + t) or a constant.

    Parameters
    ----------
    episode : Episode
    c : float
        >= 0; the paper's c sqrt(iota).
    alpha : float or None
        A constant step size in (0, 1], instead of the paper's.
    clipped : bool
        Whether Q_h itself is kept at or below top_h. The paper only does so with V, so that a visited action can look
        better than one never tried.
    optimism : {"flat", "steps"}
        top_h, the largest value hoped for at level h: 1, or H - h.
    """

    cdef double c, alpha
    cdef bint clipped
    # By row.
    cdef double[::1] tops

    def __cinit__(self, Episode episode not None, c, alpha, bint clipped, *, optimism="flat"):
        self.c = as_positive("c", c, zero=True)
        self.alpha = 0.0 if alpha is None else as_positive("alpha", alpha)
        if self.alpha > 1.0:
            raise ValueError(f"alpha: expected a number in (0, 1] or None, got {alpha}")
        self.clipped = clipped
        self.tops = np.repeat(tops_of(optimism, episode.horizon), episode.n_states)
        np.asarray(self.q)[:] = np.asarray(self.tops)[:, None]

    cdef bint learn(self, Py_ssize_t row, Py_ssize_t a, double reward, Py_ssize_t following) noexcept nogil:
        cdef double horizon = self.episode.horizon, t = self.visits[row, a], alpha = self.alpha, top = self.tops[row]
        cdef double ahead = self.best(following)
        if alpha == 0.0:
            alpha = (horizon + 1.0) / (horizon + t)
        if following >= 0 and ahead > self.tops[following]:
            ahead = self.tops[following]
        self.q[row, a] = (1.0 - alpha) * self.q[row, a] + alpha * (reward + ahead + self.c * top * sqrt(horizon / t))
        if self.clipped and self.q[row, a] > top:
            self.q[row, a] = top
        return True


cdef class DelayedQLearner(TabularLearner):
    """Delayed Q-learning (Strehl, Li, Wiewiora, Langford and Littman, 2006) with a table a level and no discount.

    An entry attempts an update after every m visits that it counts: if Q is at least 2 epsilon above the mean of
    r + max_b Q(s', b) over them, Q becomes that mean plus epsilon. After an attempt that failed, an entry counts no
    visits until some Q has changed since.

    Parameters
    ----------
    episode : Episode
    m : int
        >= 1.
    epsilon : float
        >= 0, the paper's epsilon_1.
    """

    cdef int64_t m, step, changed
    cdef double epsilon
    cdef readonly Py_ssize_t n_attempts, n_updates
    # By row and action: U, l, t and LEARN of the paper.
    cdef double[:, ::1] total
    cdef int64_t[:, ::1] waited
    cdef int64_t[:, ::1] attempted
    cdef signed char[:, ::1] learning

    def __cinit__(self, Episode episode not None, m, epsilon):
        self.m = m
        if self.m < 1:
            raise ValueError(f"m: expected an integer >= 1, got {m}")
        self.epsilon = as_positive("epsilon", epsilon, zero=True)
        shape = (self.q.shape[0], self.q.shape[1])
        self.total = np.zeros(shape)
        self.waited, self.attempted = np.zeros(shape, dtype=np.int64), np.zeros(shape, dtype=np.int64)
        self.learning = np.ones(shape, dtype=np.int8)

    cdef bint learn(self, Py_ssize_t row, Py_ssize_t a, double reward, Py_ssize_t following) noexcept nogil:
        cdef double mean
        self.step += 1
        if not self.learning[row, a]:
            if self.attempted[row, a] < self.changed:
                self.learning[row, a] = True
            return True
        self.total[row, a] += reward + self.best(following)
        self.waited[row, a] += 1
        if self.waited[row, a] < self.m:
            return True
        mean = self.total[row, a] / self.m
        self.n_attempts += 1
        if self.q[row, a] - mean >= 2.0 * self.epsilon:
            self.q[row, a] = mean + self.epsilon
            self.changed = self.step
            self.n_updates += 1
        elif self.attempted[row, a] >= self.changed:
            self.learning[row, a] = False
        self.attempted[row, a], self.total[row, a], self.waited[row, a] = self.step, 0.0, 0
        return True
