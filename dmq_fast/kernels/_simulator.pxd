"""The core of every simulation of a compiled environment: a block of trajectories that visit the levels together.

`begin_block`, `observe_block` and `move_block` draw uniforms, call the environment and check what it wrote. Rollouts
choose the actions in between by a policy; an `Episode` is a block of one trajectory whose learner chooses them.
"""

from libc.math cimport isfinite
from libc.stdint cimport int8_t, int32_t, int64_t
from libc.string cimport memset

from dmq_fast.kernels._env cimport Environment, EnvironmentHandle, unasked
from dmq_fast.kernels._features cimport FeatureMap
from dmq_fast.kernels._memory cimport Owner
from dmq_fast.kernels._philox cimport Philox, Stream, philox_uniforms

# What the environment, its rewards or a score did wrong; NONE while all is well.
cdef enum Fault:
    NONE, RESET, FEATURES, STEP, ENDED, BLANK, NORM, REWARD, RETURN, SCORE

# The first fault of a simulation: its level, the code of the environment's function, the number that was refused.
cdef struct Stop:
    Fault fault
    Py_ssize_t level
    int code
    double value

# How far above 1 a feature norm may lie, for rounding in the environment.
cdef double SLACK

# Whether one of n states is still all ones, as the simulator left them before `reset`.
cdef bint has_blank(const signed char* states, Py_ssize_t n, Py_ssize_t state_bytes) noexcept nogil

# Limits of the returns to go from each level, (H, 2), of a RewardModel, or None where they are not checked.
cdef object limits_of(rewards, Py_ssize_t horizon)

# The exception for a stop; it names level, call and chunk. A RewardModel has the words for a return.
cdef object explain(const Stop* stop, Stream stream, rewards=*)

# The first of n rows (n, d) whose sum of squares is not <= most, or -1.
cdef Py_ssize_t too_long(const double* rows, Py_ssize_t n, Py_ssize_t d, double most) noexcept nogil

# The first of n numbers that is not finite, or -1.
cdef Py_ssize_t not_finite(const double* r, Py_ssize_t n) noexcept nogil

# Sum of the squares of x (d,), added in order.
cdef inline double square_in_order(const double* x, Py_ssize_t d) noexcept nogil:
    cdef Py_ssize_t i
    cdef double total = 0.0
    for i in range(d):
        total += x[i] * x[i]
    return total

# d after the feature map, or without one; ValueError if the map does not fit the environment.
cdef Py_ssize_t mapped_dimension(EnvironmentHandle handle, FeatureMap feature_map) except -1

cdef class Simulator(Owner):
    cdef readonly EnvironmentHandle handle
    cdef readonly FeatureMap feature_map
    cdef readonly Py_ssize_t horizon
    cdef readonly Py_ssize_t n_actions
    cdef readonly Py_ssize_t dimension
    cdef const Environment* env
    cdef Stop stop
    # Trajectories of a block, at most; and uniforms of a trajectory for one call of a function, at most.
    cdef Py_ssize_t block
    cdef Py_ssize_t most_uniforms
    # By trajectory of the block.
    cdef signed char* states
    cdef int64_t* actions
    cdef double* rewards
    # (block, width) features of the level: dense with width d, or the entries of a sparse map with their columns.
    cdef bint sparse
    cdef Py_ssize_t width
    cdef double* rows
    cdef int32_t* columns
    cdef double* uniforms
    # The rest of the workspace: flags and observations by trajectory, and the map's own. Flags are those of the present
    # states, and of the states before.
    cdef int8_t* _ended
    cdef int8_t* _ended_before
    cdef double* _observed
    cdef double* _map_work

    # Called once, by the constructors of subclasses. Until then the object can do nothing.
    cdef int allocate(self, EnvironmentHandle handle, FeatureMap feature_map, Py_ssize_t block) except -1

    # Fill `stop` and return False.
    cdef inline bint halt(self, Fault fault, Py_ssize_t level, int code, double value) noexcept nogil:
        self.stop.fault, self.stop.level, self.stop.code, self.stop.value = fault, level, code, value
        return False

    # uniforms (size, count) <- the next numbers of the generator; NaN where none are asked for, as what an earlier
    # call has left there would pass for random.
    cdef inline const double* draw_block(self, Philox* generator, Py_ssize_t size, Py_ssize_t count) noexcept nogil:
        if count == 0:
            return unasked
        philox_uniforms(generator, self.uniforms, size * count)
        return self.uniforms

    # The three steps, for the first `size` trajectories of the block. Each returns False when `stop` was filled. They
    # are inline, and check one trajectory without a call, because a step of an episode can take as little as 30 ns.

    # States <- the start.
    cdef inline bint begin_block(self, Philox* generator, Py_ssize_t size) noexcept nogil:
        cdef const double* u = self.draw_block(generator, size, self.env.reset_uniforms)
        cdef int code
        self.stop.fault = NONE
        memset(self.states, 0xFF, size * self.env.state_bytes)
        code = self.env.reset(self.env.context, size, u, self.states)
        if code != 0:
            return self.halt(RESET, 0, code, 0.0)
        if has_blank(self.states, size, self.env.state_bytes):
            return self.halt(BLANK, 0, 0, 0.0)
        return self.env.ended == NULL or self.find_ended(0, size)

    # Flags of the episodes that are over before level h.
    cdef inline bint find_ended(self, Py_ssize_t h, Py_ssize_t size) noexcept nogil:
        cdef int code
        self._ended, self._ended_before = self._ended_before, self._ended
        code = self.env.ended(self.env.context, h, size, self.states, self._ended)
        return code == 0 or self.halt(ENDED, h, code, 0.0)

    # Rows and columns <- the features of the states of level h.
    cdef inline bint observe_block(self, Philox* generator, Py_ssize_t h, Py_ssize_t size) noexcept nogil:
        cdef Py_ssize_t i, wrong, count = 0 if self.env.feature_uniforms == NULL else self.env.feature_uniforms[h]
        cdef bint mapped = self.feature_map is not None
        cdef double* out = self._observed if mapped else self.rows
        cdef const double* u = self.draw_block(generator, size, count)
        cdef double most = (1.0 + SLACK) * (1.0 + SLACK)
        cdef int code
        # Bytes of ones are NaN, so the check of the norms finds entries that the environment did not write.
        memset(out, 0xFF, size * self.env.dimension * sizeof(double))
        code = self.env.features(self.env.context, h, size, self.states, u, out)
        if code != 0:
            return self.halt(FEATURES, h, code, 0.0)
        if self.sparse:
            self.feature_map.apply_sparse(out, size, self.columns, self.rows)
        elif mapped:
            self.feature_map.apply(out, size, self.rows, self._map_work)
        if self.env.ended != NULL:
            for i in range(size):
                if self._ended[i]:
                    memset(self.rows + i * self.width, 0, self.width * sizeof(double))
        if size == 1:
            wrong = -1 if square_in_order(self.rows, self.width) <= most else 0
        else:
            wrong = too_long(self.rows, size, self.width, most)
        if wrong < 0:
            return True
        return self.halt(NORM, h, 0, square_in_order(self.rows + wrong * self.width, self.width) ** 0.5)

    # States and rewards <- those after `actions`.
    cdef inline bint move_block(self, Philox* generator, Py_ssize_t h, Py_ssize_t size) noexcept nogil:
        cdef Py_ssize_t wrong, count = 0 if self.env.step_uniforms == NULL else self.env.step_uniforms[h]
        cdef const double* u = self.draw_block(generator, size, count)
        cdef int code
        memset(self.rewards, 0xFF, size * sizeof(double))
        code = self.env.step(self.env.context, h, size, self.states, self.actions, u, self.rewards)
        if code != 0:
            return self.halt(STEP, h, code, 0.0)
        if self.env.ended != NULL and h + 1 < self.horizon and not self.find_ended(h + 1, size):
            return False
        if size == 1:
            wrong = -1 if isfinite(self.rewards[0]) else 0
        else:
            wrong = not_finite(self.rewards, size)
        return wrong < 0 or self.halt(REWARD, h, 0, self.rewards[wrong])

    # Whether the step of level h that was just taken ended the episode of the only trajectory. One that is over when it
    # begins ends with its first step.
    cdef inline bint just_ended(self, Py_ssize_t h) noexcept nogil:
        cdef bint last = h == self.horizon - 1
        if self.env.ended == NULL:
            return last
        return (last or self._ended[0]) and (h == 0 or not (self._ended[0] if last else self._ended_before[0]))
