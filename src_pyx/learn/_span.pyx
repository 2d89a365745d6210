"""Optimistic Constraint Propagation for a linear span (Wen and Van Roy, 2013, section 5): exact subspace tracking.

If Q_h(., a) is in the span of d features and nothing else is known, the largest Q(s, a) that agrees with the equations
seen so far is the value they give if phi(s) is a combination of their features, and infinite otherwise.
"""

from libc.math cimport INFINITY, fabs, sqrt
from libc.stdint cimport int64_t
from libc.string cimport memcpy

from dmq_fast.kernels._episode cimport Episode, Learner
from dmq_fast.kernels._fault cimport SCORE
from dmq_fast.kernels._validate cimport entries

import numpy as np

from dmq_fast.kernels._validate import as_positive


cdef class SpanLearner(Learner):
    """Learn Q* of a deterministic system from equations Q_h(s, a) = y.

    Parameters
    ----------
    episode : Episode
        Of a deterministic environment: no step may depend on a uniform.
    tolerance : float
        > 0. Features at most so far from the known span count as in it.

    Attributes
    ----------
    n_conflicts : int
        Equations that contradict earlier ones by more than 1e-6: Q* is not linear, or the environment is random.
    """

    cdef readonly Py_ssize_t n_conflicts
    cdef double tolerance
    cdef object _theta, _basis, _ranks, _record, _residual, _rewards, _actions
    # theta (H, K, d), of least norm; orthonormal bases (H, K, d, d), of which `ranks` (H, K) rows are in use.
    cdef double* theta
    cdef double* basis
    cdef int64_t[:, ::1] ranks_
    # Of the episode: features (H, d), rewards and actions (H,).
    cdef double* record
    cdef double* residual
    cdef double[::1] rewards
    cdef int64_t[::1] actions

    def __cinit__(self, Episode episode not None, tolerance):
        cdef Py_ssize_t horizon = episode.horizon, n_actions = episode.n_actions, d = episode.dimension
        self.tolerance = as_positive("tolerance", tolerance)
        self._theta, self._basis = np.zeros((horizon, n_actions, d)), np.zeros((horizon, n_actions, d, d))
        self._ranks = np.zeros((horizon, n_actions), dtype=np.int64)
        self._record, self._residual = np.zeros((horizon, d)), np.zeros(d)
        self.theta, self.basis = entries(self._theta), entries(self._basis)
        self.record, self.residual, self.ranks_ = entries(self._record), entries(self._residual), self._ranks
        self.rewards, self.actions = np.zeros(horizon), np.zeros(horizon, dtype=np.int64)
        self.work = 4 * horizon * n_actions * d * d

    @property
    def weights(self):
        """The estimates of least norm, a copy, shape (H, K, d)."""
        return self._theta.copy()

    @property
    def ranks(self):
        """Dimensions of the known spans, a copy, shape (H, K)."""
        return self._ranks.copy()

    cdef double distance(self, Py_ssize_t h, Py_ssize_t a, const double* phi) noexcept nogil:
        # residual <- phi - B^T B phi, twice for the sake of rounding; returns its norm. 0 where the span is everything:
        # whatever the tolerance, rounding adds no direction to d of them.
        cdef Py_ssize_t i, k, _twice, d = self.episode.dimension, n_actions = self.episode.n_actions
        cdef const double* row
        cdef double total
        if self.ranks_[h, a] == d:
            return 0.0
        memcpy(self.residual, phi, d * sizeof(double))
        for _twice in range(2):
            for k in range(self.ranks_[h, a]):
                row = self.basis + ((h * n_actions + a) * d + k) * d
                total = 0.0
                for i in range(d):
                    total += row[i] * self.residual[i]
                for i in range(d):
                    self.residual[i] -= total * row[i]
        total = 0.0
        for i in range(d):
            total += self.residual[i] * self.residual[i]
        return sqrt(total)

    cdef double optimistic(self, Py_ssize_t h, Py_ssize_t a, const double* phi) noexcept nogil:
        # sup Q_h(s, a)
        if self.distance(h, a, phi) > self.tolerance:
            return INFINITY
        return self.predict(h, a, phi)

    cdef double predict(self, Py_ssize_t h, Py_ssize_t a, const double* phi) noexcept nogil:
        cdef Py_ssize_t i, d = self.episode.dimension
        cdef const double* theta = self.theta + (h * self.episode.n_actions + a) * d
        cdef double total = 0.0
        for i in range(d):
            total += theta[i] * phi[i]
        return total

    cdef Py_ssize_t choose(self, Py_ssize_t h, const double* phi, double* value) noexcept nogil:
        # argmax_a sup Q_h(s, a), ties to the smallest.
        cdef Py_ssize_t a, action = 0
        cdef double score
        value[0] = -INFINITY
        for a in range(self.episode.n_actions):
            score = self.optimistic(h, a, phi)
            if score > value[0]:
                value[0], action = score, a
        return action

    cdef void add(self, Py_ssize_t h, Py_ssize_t a, const double* phi, double y) noexcept nogil:
        # The equation phi^T theta = y.
        cdef Py_ssize_t i, d = self.episode.dimension, place = h * self.episode.n_actions + a
        cdef double length = self.distance(h, a, phi), off = y - self.predict(h, a, phi)
        cdef double* row
        if length <= self.tolerance:
            self.n_conflicts += fabs(off) > 1e-6
            return
        row = self.basis + (place * d + self.ranks_[h, a]) * d
        for i in range(d):
            row[i] = self.residual[i] / length
            # Earlier equations still hold: the new direction is orthogonal to their features.
            self.theta[place * d + i] += off / length * row[i]
        self.ranks_[h, a] += 1

    cdef bint play(self) noexcept nogil:
        cdef Py_ssize_t h, d = self.episode.dimension
        cdef double value = 0.0
        cdef double* phi
        for h in range(self.episode.horizon):
            if not self.episode.observe():
                return False
            memcpy(self.record + h * d, self.episode.phi, d * sizeof(double))
            self.actions[h] = self.choose(h, self.episode.phi, &value)
            if value != value or value == -INFINITY:
                return self.episode.fail(SCORE, 0, value)
            if not self.episode.move(self.actions[h]):
                return False
            self.rewards[h] = self.episode.reward
        # Backward: a new equation of a level may make the value known that the level before needs.
        value = 0.0
        for h in range(self.episode.horizon - 1, -1, -1):
            phi = self.record + h * d
            if value != INFINITY:
                self.add(h, self.actions[h], phi, self.rewards[h] + value)
            self.choose(h, phi, &value)
        return True
