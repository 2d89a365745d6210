"""Q-learning with linear function approximation (Melo and Ribeiro, 2007), one weight vector a level and action."""

from libc.string cimport memcpy

from dmq_fast.kernels._episode cimport Episode, Learner
from dmq_fast.kernels._validate cimport entries

import numpy as np

from dmq_fast.kernels._validate import as_positive


cdef class LinearQLearner(Learner):
    """Epsilon-greedy Q-learning: theta_h^a <- theta_h^a + alpha_e delta phi(s_h), after every step.

    delta = r_h + max_b phi(s_{h+1})^T theta_{h+1}^b - phi(s_h)^T theta_h^a, without the maximum at the last level. In
    episode e = 0, 1, ... the step size is alpha / (1 + e alpha_decay), and the probability of a uniform action
    epsilon / (1 + e epsilon_decay).

    Parameters
    ----------
    episode : Episode
    alpha, epsilon : float
        In [0, 1].
    alpha_decay, epsilon_decay : float
        >= 0.
    """

    cdef double alpha, alpha_decay, epsilon, epsilon_decay
    cdef object _theta, _before
    # (H, K, d) and (d,)
    cdef double* theta
    cdef double* before

    def __cinit__(self, Episode episode not None, alpha, alpha_decay, epsilon, epsilon_decay):
        self.alpha, self.epsilon = fraction("alpha", alpha), fraction("epsilon", epsilon)
        self.alpha_decay = as_positive("alpha_decay", alpha_decay, zero=True)
        self.epsilon_decay = as_positive("epsilon_decay", epsilon_decay, zero=True)
        self._theta = np.zeros((episode.horizon, episode.n_actions, episode.dimension))
        self._before = np.zeros(episode.dimension)
        self.theta, self.before = entries(self._theta), entries(self._before)

    @property
    def weights(self):
        """The estimates, a copy, shape (H, K, d)."""
        return self._theta.copy()

    cdef double score(self, Py_ssize_t h) noexcept nogil:
        # scores_a <- phi^T theta_h^a; returns the largest.
        cdef Py_ssize_t a, i, d = self.episode.dimension
        cdef const double* theta = self.theta + h * self.episode.n_actions * d
        cdef double total, best = 0.0
        for a in range(self.episode.n_actions):
            total = 0.0
            for i in range(d):
                total += theta[a * d + i] * self.episode.phi[i]
            self.episode.scores[a] = total
            if a == 0 or total > best:
                best = total
        return best

    cdef bint play(self) noexcept nogil:
        cdef Py_ssize_t h, a, i, d = self.episode.dimension
        cdef double alpha = self.alpha / (1.0 + self.n_episodes * self.alpha_decay)
        cdef double epsilon = self.epsilon / (1.0 + self.n_episodes * self.epsilon_decay)
        cdef double ahead, predicted
        cdef double* theta
        cdef double[2] u
        if not self.episode.observe():
            return False
        self.score(0)
        for h in range(self.episode.horizon):
            self.episode.draw(u, 2)
            a = self.episode.pick()
            if a < 0:
                return False
            if u[0] < epsilon:
                a = <Py_ssize_t> (u[1] * self.episode.n_actions)
            predicted = self.episode.scores[a]
            memcpy(self.before, self.episode.phi, d * sizeof(double))
            if not self.episode.move(a):
                return False
            ahead = 0.0
            if h < self.episode.horizon - 1:
                if not self.episode.observe():
                    return False
                ahead = self.score(h + 1)
            theta = self.theta + (h * self.episode.n_actions + a) * d
            for i in range(d):
                theta[i] += alpha * (self.episode.reward + ahead - predicted) * self.before[i]
        return True


cdef double fraction(str name, value) except -1.0:
    cdef double number = as_positive(name, value, zero=True)
    if number > 1.0:
        raise ValueError(f"{name}: expected a number in [0, 1], got {number}")
    return number
