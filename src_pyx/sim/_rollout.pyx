"""Rollouts of compiled environments: blocks of trajectories, features -> action -> step, moments on the way.

Uniforms are drawn a block of trajectories at a time, in this order: those of `reset`; then per level those of
`features`, where anybody looks at them (a greedy rule, or a moment that is wanted); of a uniform rule, one a
trajectory; of `step`.
"""

from libc.math cimport isfinite
from libc.stdint cimport int8_t, int32_t, int64_t, uintptr_t
from libc.stdlib cimport calloc, free
from libc.string cimport memcpy, memset

from dmq_fast.kernels._env cimport Environment, EnvironmentHandle
from dmq_fast.kernels._features cimport FeatureMap
from dmq_fast.kernels._greedy cimport greedy_action_sparse, greedy_rows, pack_theta, packed_size
from dmq_fast.kernels._moments cimport add_block, add_outer_sparse, block_work_size, mirror
from dmq_fast.kernels._philox cimport Philox, Stream, philox_open, philox_uniforms
from dmq_fast.kernels._plan cimport Plan
from dmq_fast.kernels._rules cimport FIXED, GREEDY, UNIFORM

import numpy as np

cdef extern from *:
    """
    #include <math.h>
    #include "dmq_square.h"
    #include "dmq_wide.h"

    /* The first of n rows (n, d) whose sum of squares is not <= most, or -1. */
    DMQ_WIDE static ptrdiff_t dmq_too_long(const double *rows, ptrdiff_t n, ptrdiff_t d, double most)
    {
        for (ptrdiff_t i = 0; i < n; i++)
            if (!(dmq_square(rows + i * d, d) <= most))
                return i;
        return -1;
    }

    /* moment (d,) <- moment + sum_i y_i phi_i, phi (n, d). */
    DMQ_WIDE static void dmq_add_weighted(
        double* restrict moment, const double* restrict phi, const double* restrict y, ptrdiff_t n, ptrdiff_t d)
    {
        for (ptrdiff_t i = 0; i < n; i++)
            for (ptrdiff_t j = 0; j < d; j++)
                moment[j] += y[i] * phi[i * d + j];
    }

    /* r <- scale (r + shift), in place; the first that is not in [0, most], or -1. */
    DMQ_WIDE static ptrdiff_t dmq_rewards(double* restrict r, ptrdiff_t n, double shift, double scale, double most)
    {
        int bad = 0;
        for (ptrdiff_t i = 0; i < n; i++) {
            r[i] = scale * (r[i] + shift);
            bad |= !(r[i] >= 0.0 && r[i] <= most);
        }
        if (bad)
            for (ptrdiff_t i = 0; i < n; i++)
                if (!(r[i] >= 0.0 && r[i] <= most))
                    return i;
        return -1;
    }
    """
    Py_ssize_t too_long "dmq_too_long"(const double* rows, Py_ssize_t n, Py_ssize_t d, double most) noexcept nogil
    void add_weighted "dmq_add_weighted"(
        double* moment, const double* phi, const double* y, Py_ssize_t n, Py_ssize_t d
    ) noexcept nogil
    Py_ssize_t to_rewards "dmq_rewards"(double* r, Py_ssize_t n, double shift, double scale, double most) noexcept nogil

# Trajectories simulated together. Part of the format: it fixes the order in which uniforms are used.
cdef enum:
    BLOCK = 256

SLACK = 1e-9


cdef class CompiledModel:
    """A compiled environment, with the map that makes features of its observations, ready to simulate.

    Immutable, and shared freely between threads.

    Parameters
    ----------
    handle : EnvironmentHandle
    feature_map : FeatureMap, optional
        Of as many inputs as the environment's own features; without it they are the features.

    Raises
    ------
    TypeError, ValueError
        On an argument of a wrong type, or sizes that do not fit.
    """

    cdef readonly EnvironmentHandle handle
    cdef readonly FeatureMap feature_map
    cdef readonly Py_ssize_t horizon
    cdef readonly Py_ssize_t n_actions
    cdef readonly Py_ssize_t dimension
    cdef Py_ssize_t most_uniforms

    def __cinit__(self, EnvironmentHandle handle not None, FeatureMap feature_map=None):
        cdef Py_ssize_t inputs = handle.environment.dimension
        if feature_map is not None and feature_map.inputs != inputs:
            raise ValueError(
                f"feature_map: expected one of the environment's {inputs} observed numbers, "
                f"got one of {feature_map.inputs}"
            )
        self.handle = handle
        self.feature_map = feature_map
        self.horizon = handle.environment.horizon
        self.n_actions = handle.environment.n_actions
        self.dimension = inputs if feature_map is None else feature_map.dimension
        self.most_uniforms = max(1, handle.reset_uniforms, *handle.feature_uniforms, *handle.step_uniforms)

    def rollout(self, rules, Py_ssize_t n, Stream stream not None, levels, returns_from):
        """Simulate n trajectories and return moments; cut after the last level that matters.

        Parameters
        ----------
        rules : sequence of H Rule
        n : int
            Number of trajectories, >= 0.
        stream : Stream
            Where the uniforms come from.
        levels : sequence of int, strictly ascending
            Levels whose second moment is wanted.
        returns_from : sequence of int, strictly ascending
            Levels h whose return to go, sum_{h' >= h} r_{h'}, is wanted.

        Returns
        -------
        grams : numpy.ndarray, shape (len(levels), d, d)
            Sum over trajectories of phi(s_h) phi(s_h)^T.
        moments : numpy.ndarray, shape (len(returns_from), d)
            Sum of y phi(s_h), with y the return to go from h.
        squares : numpy.ndarray, shape (len(returns_from),)
            Sum of y^2.

        Raises
        ------
        TypeError, ValueError
            When rules or levels do not fit the environment, or where it writes features of norm above 1, or rewards
            that leave [0, 1] or sum to more; names level, call and chunk.
        RuntimeError
            When a function of the environment returns a code; names it, level, call and chunk.
        ArithmeticError
            When a greedy score is not finite; names level, call and chunk.
        KeyboardInterrupt
            On Ctrl-C.
        """
        cdef Py_ssize_t d = self.dimension, i
        cdef Plan plan = Plan(rules, self.horizon, self.n_actions, d, levels, returns_from)
        grams = np.zeros((plan.n_levels, d, d))
        moments = np.zeros((plan.n_returns, d))
        squares = np.zeros(plan.n_returns)
        cdef double[:, :, ::1] gram = grams
        cdef double[:, ::1] moment = moments
        cdef double[::1] square = squares
        cdef _Rollout job = _Rollout(self, plan, n)
        for i in range(plan.n_levels):
            job.grams[plan.wanted[i]] = &gram[i, 0, 0]
        if plan.n_returns > 0:
            job.moments, job.squares = &moment[0, 0], &square[0]
        job.simulate(stream)
        for i in range(plan.n_levels):
            mirror(&gram[i, 0, 0], d)
        return grams, moments, squares

    def returns(self, rules, Py_ssize_t n, Stream stream not None):
        """Simulate n trajectories to their ends and return what each earned, shape (n,); see `rollout`."""
        cdef _Rollout job = _Rollout(self, Plan(rules, self.horizon, self.n_actions, self.dimension, (), (0,)), n)
        earned = np.zeros(n)
        cdef double[::1] y = earned
        if n > 0:
            job.earned = &y[0]
        job.simulate(stream)
        return earned


cdef class _Rollout:
    # The mutable half: scratch of one call of n trajectories, simulated `block` at a time, allocated once. `grams`, by
    # level, `moments` and `squares`, by return, and `earned`, by trajectory, belong to the caller; NULL where they are
    # not wanted.
    cdef CompiledModel model
    cdef Plan plan
    cdef Py_ssize_t n
    cdef Py_ssize_t block
    cdef const Environment* env
    cdef Philox generator
    cdef Stop stop
    cdef double** grams
    cdef double* moments
    cdef double* squares
    cdef double* earned
    # By block position.
    cdef signed char* states
    cdef void* states_alone
    cdef double* uniforms
    cdef int64_t* actions
    cdef double* scores
    cdef double* rewards
    cdef int8_t* ended
    cdef double* observed
    # Features of the level, (block, width): dense with width d, or sparse with as many columns; and workspace.
    cdef bint mapped
    cdef bint sparse
    cdef Py_ssize_t width
    cdef double* phi
    cdef int32_t* columns
    cdef double* map_work
    cdef double* gram_work
    cdef double* packed
    # By (return, block position): features at its level and the return so far.
    cdef double* origin
    cdef int32_t* origin_columns
    cdef double* so_far

    def __cinit__(self, CompiledModel model, Plan plan, Py_ssize_t n):
        cdef Py_ssize_t d = model.dimension, returns = plan.n_returns, observed = 0, map_work = 0
        if n < 0:
            raise ValueError(f"n: expected a non-negative number of trajectories, got {n}")
        self.model = model
        self.plan = plan
        self.n = n
        self.block = max(<Py_ssize_t> 1, min(n, <Py_ssize_t> BLOCK))
        self.env = model.handle.environment
        self.width = d
        self.mapped = model.feature_map is not None
        if self.mapped:
            observed = model.feature_map.inputs
            map_work = model.feature_map.work_size
            self.sparse = model.feature_map.nonzeros > 0
            if self.sparse:
                self.width = model.feature_map.nonzeros
        self.grams = <double**> calloc(plan.horizon, sizeof(double*))
        self.states_alone = calloc(self.block * self.env.state_bytes + 64, 1)
        self.states = <signed char*> ((<uintptr_t> self.states_alone + 63) // 64 * 64)
        self.uniforms = <double*> calloc(self.block * model.most_uniforms, sizeof(double))
        self.actions = <int64_t*> calloc(self.block, sizeof(int64_t))
        self.scores = <double*> calloc(self.block, sizeof(double))
        self.rewards = <double*> calloc(self.block, sizeof(double))
        self.ended = <int8_t*> calloc(self.block, sizeof(int8_t))
        self.observed = <double*> calloc(self.block * observed + 1, sizeof(double))
        self.phi = <double*> calloc(self.block * self.width, sizeof(double))
        self.columns = <int32_t*> calloc(self.block * self.width, sizeof(int32_t))
        self.map_work = <double*> calloc(map_work + 1, sizeof(double))
        self.gram_work = <double*> calloc(block_work_size(d), sizeof(double))
        self.packed = <double*> calloc(packed_size(model.n_actions, d), sizeof(double))
        self.origin = <double*> calloc(self.block * self.width * returns + 1, sizeof(double))
        self.origin_columns = <int32_t*> calloc(self.block * self.width * returns + 1, sizeof(int32_t))
        self.so_far = <double*> calloc(self.block * returns + 1, sizeof(double))
        if (self.grams == NULL or self.states_alone == NULL or self.uniforms == NULL or self.actions == NULL
                or self.scores == NULL or self.rewards == NULL or self.ended == NULL or self.observed == NULL
                or self.phi == NULL or self.columns == NULL or self.map_work == NULL or self.gram_work == NULL
                or self.packed == NULL or self.origin == NULL or self.origin_columns == NULL or self.so_far == NULL):
            raise MemoryError()

    def __dealloc__(self):
        free(self.grams)
        free(self.states_alone)
        free(self.uniforms)
        free(self.actions)
        free(self.scores)
        free(self.rewards)
        free(self.ended)
        free(self.observed)
        free(self.phi)
        free(self.columns)
        free(self.map_work)
        free(self.gram_work)
        free(self.packed)
        free(self.origin)
        free(self.origin_columns)
        free(self.so_far)

    cdef int simulate(self, Stream stream) except -1:
        philox_open(&self.generator, stream)
        with nogil:
            self.run()
        if self.stop.fault != NONE:
            raise explain(&self.stop, stream)
        return 0

    cdef int run(self) except -1 nogil:
        cdef Py_ssize_t done = 0, size, h
        while done < self.n:
            size = min(self.block, self.n - done)
            if not self.start(size):
                return 0
            for h in range(self.plan.last + 1):
                if not self.observe(h, size):
                    return 0
                self.plan.count(size * self.work(h))
                if h == self.plan.last and self.plan.n_returns == 0:
                    break
                if not (self.act(h, size) and self.move(h, size)):
                    return 0
            if not self.settle(done, size):
                return 0
            done += size
        return 0

    cdef Py_ssize_t work(self, Py_ssize_t h) noexcept nogil:
        # Numbers drawn, written and copied for one trajectory at level h; of products, 32 cost as much as one of these.
        cdef Py_ssize_t d = self.model.dimension, products = 0
        if self.plan.counted[h] and not self.sparse:
            products += d * d
        if self.plan.kinds[h] == GREEDY:
            products += self.width * self.model.n_actions
        if self.mapped and not self.sparse:
            products += d * self.model.feature_map.inputs
        return self.width + self.model.most_uniforms + 8 + products // 32

    # The steps of a level; each returns False when `stop` says why the rollout is over.

    cdef bint fail(self, Fault fault, Py_ssize_t level, int code, double value) noexcept nogil:
        self.stop.fault, self.stop.level, self.stop.code, self.stop.value = fault, level, code, value
        return False

    cdef const double* draw(self, Py_ssize_t size, Py_ssize_t count) noexcept nogil:
        philox_uniforms(&self.generator, self.uniforms, size * count)
        return self.uniforms

    cdef bint start(self, Py_ssize_t size) noexcept nogil:
        cdef const double* u = self.draw(size, self.env.reset_uniforms)
        memset(self.states, 0xFF, size * self.env.state_bytes)
        cdef int code = self.env.reset(self.env.context, size, u, self.states)
        if code != 0:
            return self.fail(RESET, 0, code, 0.0)
        return not has_blank(self.states, size, self.env.state_bytes) or self.fail(BLANK, 0, 0, 0.0)

    cdef bint observe(self, Py_ssize_t h, Py_ssize_t size) noexcept nogil:
        # The features of the level, where anybody looks at them, go into the moments that are wanted.
        cdef Py_ssize_t r
        cdef bint starting = False
        for r in range(self.plan.n_returns):
            starting |= self.plan.returns[r] == h
        if not (starting or self.plan.counted[h] or self.plan.kinds[h] == GREEDY):
            return True
        if not self.write_features(h, size):
            return False
        if self.plan.counted[h]:
            self.add_moment(h, size)
        for r in range(self.plan.n_returns):
            if self.plan.returns[r] == h:
                memcpy(self.origin + r * self.block * self.width, self.phi, size * self.width * sizeof(double))
                memcpy(
                    self.origin_columns + r * self.block * self.width, self.columns, size * self.width * sizeof(int32_t)
                )
                memset(self.so_far + r * self.block, 0, size * sizeof(double))
        return True

    cdef bint write_features(self, Py_ssize_t h, Py_ssize_t size) noexcept nogil:
        cdef Py_ssize_t i, wrong, count = 0
        cdef int code
        cdef double* out = self.observed if self.mapped else self.phi
        if self.env.feature_uniforms != NULL:
            count = self.env.feature_uniforms[h]
        cdef const double* u = self.draw(size, count)
        # Bytes of ones are NaN: what a function leaves out is noticed.
        memset(out, 0xFF, size * self.env.dimension * sizeof(double))
        code = self.env.features(self.env.context, h, size, self.states, u, out)
        if code != 0:
            return self.fail(FEATURES, h, code, 0.0)
        if self.sparse:
            self.model.feature_map.apply_sparse(self.observed, size, self.columns, self.phi)
        elif self.mapped:
            self.model.feature_map.apply(self.observed, size, self.phi, self.map_work)
        if self.env.ended != NULL:
            code = self.env.ended(self.env.context, h, size, self.states, self.ended)
            if code != 0:
                return self.fail(ENDED, h, code, 0.0)
            for i in range(size):
                if self.ended[i]:
                    memset(self.phi + i * self.width, 0, self.width * sizeof(double))
        wrong = too_long(self.phi, size, self.width, (1.0 + SLACK) * (1.0 + SLACK))
        return wrong < 0 or self.fail(NORM, h, 0, norm(self.phi + wrong * self.width, self.width))

    cdef void add_moment(self, Py_ssize_t h, Py_ssize_t size) noexcept nogil:
        cdef Py_ssize_t i, d = self.model.dimension
        if self.grams[h] == NULL:
            return
        if self.sparse:
            for i in range(size):
                add_outer_sparse(
                    self.grams[h], self.columns + i * self.width, self.phi + i * self.width, self.width, 1.0, d
                )
        else:
            add_block(self.grams[h], self.phi, NULL, size, d, self.gram_work)

    cdef bint act(self, Py_ssize_t h, Py_ssize_t size) noexcept nogil:
        cdef Py_ssize_t i, n_actions = self.model.n_actions, d = self.model.dimension
        cdef const double* u
        if self.plan.kinds[h] == FIXED:
            for i in range(size):
                self.actions[i] = self.plan.fixed[h]
        elif self.plan.kinds[h] == UNIFORM:
            u = self.draw(size, 1)
            for i in range(size):
                self.actions[i] = <int64_t> (u[i] * n_actions)
        elif self.sparse:
            for i in range(size):
                self.actions[i] = greedy_action_sparse(
                    self.columns + i * self.width, self.phi + i * self.width, self.width,
                    self.plan.weights[h], n_actions, d, &self.scores[i],
                )
                if self.actions[i] < 0:
                    return self.fail(SCORE, h, 0, 0.0)
        else:
            pack_theta(self.plan.weights[h], n_actions, d, self.packed)
            if greedy_rows(self.phi, size, n_actions, d, self.packed, self.actions, self.scores) >= 0:
                return self.fail(SCORE, h, 0, 0.0)
        return True

    cdef bint move(self, Py_ssize_t h, Py_ssize_t size) noexcept nogil:
        cdef Py_ssize_t i, r, wrong, count = 0
        cdef int code
        if self.env.step_uniforms != NULL:
            count = self.env.step_uniforms[h]
        cdef const double* u = self.draw(size, count)
        memset(self.rewards, 0xFF, size * sizeof(double))
        code = self.env.step(self.env.context, h, size, self.states, self.actions, u, self.rewards)
        if code != 0:
            return self.fail(STEP, h, code, 0.0)
        wrong = to_rewards(self.rewards, size, self.env.reward_shift, self.env.reward_scale, 1.0 + SLACK)
        if wrong >= 0:
            return self.fail(REWARD, h, 0, self.rewards[wrong])
        for r in range(self.plan.n_returns):
            if self.plan.returns[r] <= h:
                for i in range(size):
                    self.so_far[r * self.block + i] += self.rewards[i]
        return True

    cdef bint settle(self, Py_ssize_t done, Py_ssize_t size) noexcept nogil:
        # The block is over: what its trajectories earned goes to where they started from.
        cdef Py_ssize_t i, r, d = self.model.dimension
        cdef double* y
        for r in range(self.plan.n_returns):
            y = self.so_far + r * self.block
            for i in range(size):
                if not y[i] <= 1.0 + SLACK:
                    return self.fail(RETURN, self.plan.returns[r], 0, y[i])
            if self.squares != NULL:
                for i in range(size):
                    self.squares[r] += y[i] * y[i]
            if self.moments != NULL:
                self.add_return(r, size, self.moments + r * d)
        if self.earned != NULL:
            memcpy(self.earned + done, self.so_far, size * sizeof(double))
        return True

    cdef void add_return(self, Py_ssize_t r, Py_ssize_t size, double* moment) noexcept nogil:
        # moment <- moment + sum_i y_i phi_i
        cdef const double* y = self.so_far + r * self.block
        cdef const double* phi = self.origin + r * self.block * self.width
        cdef const int32_t* columns = self.origin_columns + r * self.block * self.width
        cdef Py_ssize_t i, k
        if not self.sparse:
            add_weighted(moment, phi, y, size, self.model.dimension)
            return
        for i in range(size):
            for k in range(self.width):
                moment[columns[i * self.width + k]] += y[i] * phi[i * self.width + k]


cdef bint has_blank(const signed char* states, Py_ssize_t n, Py_ssize_t state_bytes) noexcept nogil:
    cdef Py_ssize_t i, k
    for i in range(n):
        for k in range(state_bytes):
            if states[i * state_bytes + k] != -1:
                break
        else:
            return True
    return False


cdef double norm(const double* x, Py_ssize_t d) noexcept nogil:
    cdef Py_ssize_t i
    cdef double total = 0.0
    for i in range(d):
        total += x[i] * x[i]
    return total ** 0.5


cdef object explain(const Stop* stop, Stream stream):
    """Return the exception that a stop stands for."""
    where = f"level {stop.level}, call {stream.call}, chunk {stream.chunk}"
    functions = {RESET: "reset", FEATURES: "features", STEP: "step", ENDED: "ended"}
    if stop.fault in functions:
        return RuntimeError(f"{where}: {functions[stop.fault]} of the environment returned the code {stop.code}")
    if stop.fault == BLANK:
        return ValueError(f"{where}: reset: left a state out, as where a function raised")
    if stop.fault == SCORE:
        return ArithmeticError(f"{where}: a greedy score is not finite (theta too large)")
    if stop.fault == NORM:
        expected = "features: expected Euclidean norms of at most 1"
        missing = "features: expected finite numbers"
    elif stop.fault == REWARD:
        expected = missing = "rewards: expected numbers in [0, 1] after shift and scale"
    else:
        expected = missing = "rewards: expected a sum of at most 1 a trajectory after shift and scale"
    if isfinite(stop.value):
        return ValueError(f"{where}: {expected}, got {stop.value:.12g}")
    return ValueError(f"{where}: {missing}, got {stop.value}, as where a function raised, or left numbers out")
