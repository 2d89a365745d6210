"""Rollouts of compiled environments: blocks of trajectories, features -> action -> step, moments on the way.

Uniforms are drawn a block of trajectories at a time, in this order: those of `reset`; then per level those of
`features`, where features are used (by a greedy rule, or for a moment that is wanted); of a uniform rule, one a
trajectory; of `step`.
"""

from libc.stdint cimport int32_t, int64_t
from libc.string cimport memcpy, memset

from dmq_fast.kernels._env cimport EnvironmentHandle
from dmq_fast.kernels._features cimport FeatureMap
from dmq_fast.kernels._greedy cimport greedy_action_sparse, greedy_rows, pack_theta, packed_size
from dmq_fast.kernels._moments cimport add_block, add_outer_sparse, block_work_size, mirror
from dmq_fast.kernels._philox cimport Philox, Stream, philox_open
from dmq_fast.kernels._plan cimport Model, Plan
from dmq_fast.kernels._rows cimport LevelRows, empty_rows
from dmq_fast.kernels._rules cimport FIXED, GREEDY, UNIFORM
from dmq_fast.kernels._simulator cimport NONE, RETURN, SCORE, Simulator, explain, limits_of, mapped_dimension
from dmq_fast.kernels._validate cimport entries

import numpy as np

cdef extern from *:
    """
    #include "dmq_wide.h"

    /* moment (d,) <- moment + sum_i y_i phi_i, phi (n, d). */
    DMQ_WIDE static void dmq_add_weighted(
        double* restrict moment, const double* restrict phi, const double* restrict y, ptrdiff_t n, ptrdiff_t d)
    {
        for (ptrdiff_t i = 0; i < n; i++)
            for (ptrdiff_t j = 0; j < d; j++)
                moment[j] += y[i] * phi[i * d + j];
    }
    """
    void add_weighted "dmq_add_weighted"(
        double* moment, const double* phi, const double* y, Py_ssize_t n, Py_ssize_t d
    ) noexcept nogil

# Trajectories simulated together. Part of the format: it fixes the order in which uniforms are used.
cdef enum:
    BLOCK = 256


cdef class CompiledModel(Model):
    """A compiled environment, with the map that makes features of its observations, ready to simulate.

    Immutable, and shared freely between threads.

    Parameters
    ----------
    handle : EnvironmentHandle
    feature_map : FeatureMap, optional
        A map of as many inputs as the environment's own features; without one those are the features.
    rewards : RewardModel, optional
        `rollout` checks returns to go against its `limits`, and raises ValueError with its `refusal`. Default: none is
        checked.

    Raises
    ------
    TypeError, ValueError
        On an argument of a wrong type, or sizes that do not fit.
    """

    cdef readonly EnvironmentHandle handle
    cdef readonly FeatureMap feature_map
    cdef readonly object rewards
    cdef object limits

    def __cinit__(self, EnvironmentHandle handle not None, FeatureMap feature_map=None, rewards=None):
        self.dimension = mapped_dimension(handle, feature_map)
        self.limits = limits_of(rewards, handle.environment.horizon)
        self.handle = handle
        self.feature_map = feature_map
        self.rewards = rewards
        self.horizon = handle.environment.horizon
        self.n_actions = handle.environment.n_actions

    cdef object draw(self, Plan plan, Py_ssize_t n, Stream stream, bint in_rows, double* moments, double* squares):
        cdef _Rollout job = _Rollout(self, plan, n)
        cdef Py_ssize_t i, d = self.dimension
        cdef double* gram
        job.moments, job.squares, job.declared = moments, squares, self.rewards
        if self.limits is not None:
            job.limits = entries(self.limits)
        if in_rows:
            job.total = job.fresh = empty_rows(d, plan.n_levels)
            for _ in range(plan.n_levels if n == 0 else 0):
                job.total.end_level()
            job.simulate(stream)
            return job.total
        grams = np.zeros((plan.n_levels, d, d))
        gram = entries(grams)
        for i in range(plan.n_levels):
            job.grams[plan.wanted[i]] = gram + i * d * d
        job.simulate(stream)
        for i in range(plan.n_levels):
            mirror(gram + i * d * d, d)
        return grams

    def returns(self, rules, Py_ssize_t n, Stream stream not None):
        """Simulate n trajectories to their ends and return the return of each, shape (n,); see `rollout`."""
        cdef _Rollout job = _Rollout(self, Plan(rules, self.horizon, self.n_actions, self.dimension, (), (0,)), n)
        earned = np.zeros(n)
        job.earned = entries(earned)
        job.simulate(stream)
        return earned

    def trajectories(self, rules, Py_ssize_t n, Stream stream not None):
        """Simulate n trajectories to their ends, those of `rollout` with all levels wanted, and show them.

        Returns
        -------
        features : numpy.ndarray, shape (n, H, d)
        actions : numpy.ndarray of int64, shape (n, H)
        rewards : numpy.ndarray, shape (n, H)
        """
        cdef Py_ssize_t horizon = self.horizon, d = self.dimension
        cdef _Rollout job = _Rollout(self, Plan(rules, horizon, self.n_actions, d, range(horizon), (0,)), n)
        features = np.zeros((n, horizon, d))
        actions, rewards = np.zeros((n, horizon), np.int64), np.zeros((n, horizon))
        job.seen, job.taken, job.paid = features, actions, rewards
        job.shown = True
        job.simulate(stream)
        return features, actions, rewards


cdef class _Rollout(Simulator):
    # One call of n trajectories, simulated `block` at a time, and its workspace. `grams`, by level, `moments` and
    # `squares`, by return, and `earned`, by trajectory, belong to the caller, and are NULL if they are not wanted.
    cdef Plan plan
    cdef Py_ssize_t n
    cdef Philox generator
    cdef double** grams
    cdef double* moments
    cdef double* squares
    cdef double* earned
    # (H, 2) least and largest return to go from each level; NULL if they are not checked. They belong to the model.
    cdef const double* limits
    cdef object declared
    # The rows of all blocks so far and of this one, if they are wanted; the same object for the first.
    cdef LevelRows total
    cdef LevelRows fresh
    # Features (n, H, d), actions and rewards (n, H), if they are to be shown.
    cdef bint shown
    cdef double[:, :, ::1] seen
    cdef int64_t[:, ::1] taken
    cdef double[:, ::1] paid
    # Scores by trajectory of the block; workspace of second moments; theta as `pack_theta` writes it.
    cdef double* scores
    cdef double* gram_work
    cdef double* packed
    # By (return, trajectory of the block): features at its level and the return so far.
    cdef double* origin
    cdef int32_t* origin_columns
    cdef double* so_far

    def __cinit__(self, CompiledModel model, Plan plan, Py_ssize_t n):
        cdef Py_ssize_t returns = plan.n_returns
        if n < 0:
            raise ValueError(f"n: expected a non-negative number of trajectories, got {n}")
        self.allocate(model.handle, model.feature_map, max(<Py_ssize_t> 1, min(n, <Py_ssize_t> BLOCK)))
        self.plan = plan
        self.n = n
        self.grams = <double**> self.zeros(plan.horizon, sizeof(double*))
        self.scores = <double*> self.zeros(self.block, sizeof(double))
        self.gram_work = <double*> self.zeros(block_work_size(self.dimension), sizeof(double))
        self.packed = <double*> self.zeros(packed_size(self.n_actions, self.dimension), sizeof(double))
        self.origin = <double*> self.zeros(self.block * self.width * returns, sizeof(double))
        self.origin_columns = <int32_t*> self.zeros(self.block * self.width * returns, sizeof(int32_t))
        self.so_far = <double*> self.zeros(self.block * returns, sizeof(double))

    cdef int simulate(self, Stream stream) except -1:
        philox_open(&self.generator, stream)
        with nogil:
            self.run()
        if self.stop.fault != NONE:
            raise explain(&self.stop, stream, self.declared)
        return 0

    cdef int run(self) except -1 nogil:
        cdef Py_ssize_t done = 0, size, h
        while done < self.n:
            size = min(self.block, self.n - done)
            if not self.begin_block(&self.generator, size):
                return 0
            for h in range(self.plan.last + 1):
                if not self.observe(h, size):
                    return 0
                self.plan.check_after(size * self.work(h))
                if h == self.plan.last and self.plan.n_returns == 0:
                    break
                if not (self.act(h, size) and self.move(h, size)):
                    return 0
                if self.shown:
                    self.show(h, done, size)
            if not self.settle(done, size):
                return 0
            done += size
            if self.total is not None and self.n > 1:
                with gil:
                    self.merge()
        return 0

    cdef int merge(self) except -1:
        if self.total is self.fresh:
            self.total = self.fresh.merged()
        else:
            self.total = self.total + self.fresh
        self.fresh = empty_rows(self.dimension, self.plan.n_levels)
        return 0

    cdef Py_ssize_t work(self, Py_ssize_t h) noexcept nogil:
        # Numbers drawn, written and copied for one trajectory at level h, and one for every 32 products.
        cdef Py_ssize_t d = self.dimension, products = 0
        if self.plan.counted[h] and not self.sparse:
            products += d * d
        if self.plan.kinds[h] == GREEDY:
            products += self.width * self.n_actions
        if self.feature_map is not None and not self.sparse:
            products += d * self.feature_map.inputs
        return self.width + self.most_uniforms + 8 + products // 32

    # The steps of a level; each returns False when `stop` holds the reason why the rollout ends.

    cdef int observe(self, Py_ssize_t h, Py_ssize_t size) except -1 nogil:
        # Compute the features of the level, where they are used, and add them to the moments that are wanted.
        cdef Py_ssize_t r
        cdef bint starting = False
        for r in range(self.plan.n_returns):
            starting |= self.plan.returns[r] == h
        if not (starting or self.plan.counted[h] or self.plan.kinds[h] == GREEDY):
            return True
        if not self.observe_block(&self.generator, h, size):
            return False
        if self.plan.counted[h]:
            if self.fresh is not None:
                self.add_rows(size)
            else:
                self.add_moment(h, size)
        for r in range(self.plan.n_returns):
            if self.plan.returns[r] == h:
                memcpy(self.origin + r * self.block * self.width, self.rows, size * self.width * sizeof(double))
                memcpy(
                    self.origin_columns + r * self.block * self.width, self.columns, size * self.width * sizeof(int32_t)
                )
                memset(self.so_far + r * self.block, 0, size * sizeof(double))
        return True

    cdef int add_rows(self, Py_ssize_t size) except -1 nogil:
        cdef Py_ssize_t i
        for i in range(size):
            self.fresh.push(
                self.columns + i * self.width if self.sparse else NULL, self.rows + i * self.width, self.width, 1.0
            )
        self.fresh.end_level()
        return 0

    cdef void add_moment(self, Py_ssize_t h, Py_ssize_t size) noexcept nogil:
        cdef Py_ssize_t i, d = self.dimension
        if self.grams[h] == NULL:
            return
        if self.sparse:
            for i in range(size):
                add_outer_sparse(
                    self.grams[h], self.columns + i * self.width, self.rows + i * self.width, self.width, 1.0, d
                )
        else:
            add_block(self.grams[h], self.rows, NULL, size, d, self.gram_work)

    cdef bint act(self, Py_ssize_t h, Py_ssize_t size) noexcept nogil:
        cdef Py_ssize_t i, n_actions = self.n_actions, d = self.dimension
        cdef const double* u
        if self.plan.kinds[h] == FIXED:
            for i in range(size):
                self.actions[i] = self.plan.fixed[h]
        elif self.plan.kinds[h] == UNIFORM:
            u = self.draw_block(&self.generator, size, 1)
            for i in range(size):
                self.actions[i] = <int64_t> (u[i] * n_actions)
        elif self.sparse:
            for i in range(size):
                self.actions[i] = greedy_action_sparse(
                    self.columns + i * self.width, self.rows + i * self.width, self.width,
                    self.plan.weights[h], n_actions, d, &self.scores[i],
                )
                if self.actions[i] < 0:
                    return self.halt(SCORE, h, 0, 0.0)
        else:
            pack_theta(self.plan.weights[h], n_actions, d, self.packed)
            if greedy_rows(self.rows, size, n_actions, d, self.packed, self.actions, self.scores) >= 0:
                return self.halt(SCORE, h, 0, 0.0)
        return True

    cdef bint move(self, Py_ssize_t h, Py_ssize_t size) noexcept nogil:
        cdef Py_ssize_t i, r
        if not self.move_block(&self.generator, h, size):
            return False
        for r in range(self.plan.n_returns):
            if self.plan.returns[r] <= h:
                for i in range(size):
                    self.so_far[r * self.block + i] += self.rewards[i]
        return True

    cdef void show(self, Py_ssize_t h, Py_ssize_t done, Py_ssize_t size) noexcept nogil:
        # The features are those observed before the step.
        cdef Py_ssize_t i, k
        for i in range(size):
            for k in range(self.width):
                self.seen[done + i, h, self.columns[i * self.width + k] if self.sparse else k] = (
                    self.rows[i * self.width + k]
                )
            self.taken[done + i, h] = self.actions[i]
            self.paid[done + i, h] = self.rewards[i]

    cdef bint settle(self, Py_ssize_t done, Py_ssize_t size) noexcept nogil:
        # The block is over: add the returns of its trajectories to the moments of the levels they are counted from.
        cdef Py_ssize_t i, r, d = self.dimension
        cdef double* y
        cdef const double* limits
        for r in range(self.plan.n_returns):
            y = self.so_far + r * self.block
            if self.limits != NULL:
                limits = self.limits + 2 * self.plan.returns[r]
                for i in range(size):
                    if not limits[0] <= y[i] <= limits[1] and self.was_on(r, i):
                        return self.halt(RETURN, self.plan.returns[r], 0, y[i])
            if self.squares != NULL:
                for i in range(size):
                    self.squares[r] += y[i] * y[i]
            if self.moments != NULL:
                self.add_return(r, size, self.moments + r * d)
        if self.earned != NULL:
            memcpy(self.earned + done, self.so_far, size * sizeof(double))
        return True

    cdef bint was_on(self, Py_ssize_t r, Py_ssize_t i) noexcept nogil:
        # Whether a feature of a trajectory was not 0 where its return begins: after its end, nothing is left to earn.
        cdef Py_ssize_t k
        for k in range(self.width):
            if self.origin[(r * self.block + i) * self.width + k] != 0.0:
                return True
        return False

    cdef void add_return(self, Py_ssize_t r, Py_ssize_t size, double* moment) noexcept nogil:
        # moment <- moment + sum_i y_i phi_i
        cdef const double* y = self.so_far + r * self.block
        cdef const double* phi = self.origin + r * self.block * self.width
        cdef const int32_t* columns = self.origin_columns + r * self.block * self.width
        cdef Py_ssize_t i, k
        if not self.sparse:
            add_weighted(moment, phi, y, size, self.dimension)
            return
        for i in range(size):
            for k in range(self.width):
                moment[columns[i * self.width + k]] += y[i] * phi[i * self.width + k]
