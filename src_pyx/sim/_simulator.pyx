"""The core of every simulation of a compiled environment; see the .pxd."""

from libc.math cimport isfinite
from libc.stdint cimport uintptr_t

from dmq_fast.kernels._validate import as_floats

cdef extern from "dmq_simulate.h":
    Py_ssize_t dmq_too_long(const double* rows, Py_ssize_t n, Py_ssize_t d, double most) noexcept nogil
    Py_ssize_t dmq_not_finite(const double* r, Py_ssize_t n) noexcept nogil

SLACK = 1e-9

cdef Py_ssize_t too_long(const double* rows, Py_ssize_t n, Py_ssize_t d, double most) noexcept nogil:
    return dmq_too_long(rows, n, d, most)


cdef Py_ssize_t not_finite(const double* r, Py_ssize_t n) noexcept nogil:
    return dmq_not_finite(r, n)


cdef object limits_of(rewards, Py_ssize_t horizon):
    # With rounding; None where nothing is checked.
    if rewards is not None and not hasattr(rewards, "refusal"):
        raise TypeError(f"rewards: expected a RewardModel or None, got {type(rewards).__name__}")
    limits = None if rewards is None else rewards.limits
    return None if limits is None else as_floats("rewards", limits, (horizon, 2))


cdef Py_ssize_t mapped_dimension(EnvironmentHandle handle, FeatureMap feature_map) except -1:
    cdef Py_ssize_t inputs = handle.environment.dimension
    if feature_map is None:
        return inputs
    if feature_map.inputs != inputs:
        raise ValueError(
            f"feature_map: expected one of the environment's {inputs} observed numbers, "
            f"got one of {feature_map.inputs}"
        )
    return feature_map.dimension


cdef Py_ssize_t most_uniforms_of(const Environment* env) noexcept nogil:
    cdef int64_t most = max(<int64_t> 1, env.reset_uniforms)
    cdef Py_ssize_t h
    for h in range(env.horizon):
        if env.feature_uniforms != NULL:
            most = max(most, env.feature_uniforms[h])
        if env.step_uniforms != NULL:
            most = max(most, env.step_uniforms[h])
    return most


cdef class Simulator:
    """Base class of simulations: `Episode`, and the workspace of one call of `CompiledModel.rollout`.

    Attributes
    ----------
    handle : EnvironmentHandle
        The environment.
    feature_map : FeatureMap or None
        What makes features of its observations.
    horizon, n_actions, dimension : int
        Numbers of levels, actions, and features after the map.
    """

    cdef int allocate(self, EnvironmentHandle handle, FeatureMap feature_map, Py_ssize_t block) except -1:
        cdef Py_ssize_t observed = 0, map_work = 0
        self.dimension = self.width = mapped_dimension(handle, feature_map)
        self.handle, self.feature_map, self.block = handle, feature_map, block
        self.env = handle.environment
        self.horizon, self.n_actions = self.env.horizon, self.env.n_actions
        self.most_uniforms = most_uniforms_of(self.env)
        if feature_map is not None:
            observed, map_work = feature_map.inputs, feature_map.work_size
            self.sparse = feature_map.nonzeros > 0
            if self.sparse:
                self.width = feature_map.nonzeros
        # Aligned to 64 bytes.
        self.states = <signed char*> ((<uintptr_t> self.zeros(block * self.env.state_bytes + 64, 1) + 63) // 64 * 64)
        self.actions = <int64_t*> self.zeros(block, sizeof(int64_t))
        self.rewards = <double*> self.zeros(block, sizeof(double))
        self.rows = <double*> self.zeros(block * self.width, sizeof(double))
        self.columns = <int32_t*> self.zeros(block * self.width, sizeof(int32_t))
        self.uniforms = <double*> self.zeros(block * self.most_uniforms, sizeof(double))
        self._ended = <int8_t*> self.zeros(block, sizeof(int8_t))
        self._ended_before = <int8_t*> self.zeros(block, sizeof(int8_t))
        self._observed = <double*> self.zeros(block * observed, sizeof(double))
        self._map_work = <double*> self.zeros(map_work, sizeof(double))
        return 0


cdef bint has_blank(const signed char* states, Py_ssize_t n, Py_ssize_t state_bytes) noexcept nogil:
    cdef Py_ssize_t i, k
    for i in range(n):
        for k in range(state_bytes):
            if states[i * state_bytes + k] != -1:
                break
        else:
            return True
    return False


cdef object explain(const Stop* stop, Stream stream, rewards=None):
    where = f"level {stop.level}, call {stream.call}, chunk {stream.chunk}"
    functions = {RESET: "reset", FEATURES: "features", STEP: "step", ENDED: "ended"}
    if stop.fault in functions:
        return RuntimeError(f"{where}: {functions[stop.fault]} of the environment returned the code {stop.code}")
    if stop.fault == BLANK:
        return ValueError(f"{where}: reset: left a state out (did the function raise?)")
    if stop.fault == SCORE:
        return ArithmeticError(f"{where}: a greedy score is not finite (theta too large)")
    if stop.fault == NORM:
        expected = "features: expected Euclidean norms of at most 1"
        missing = "features: expected finite numbers"
    elif stop.fault == RETURN:
        return ValueError(f"{where}: {rewards.refusal(stop.value, stop.level)}")
    else:
        expected = missing = "rewards: expected finite numbers"
    if isfinite(stop.value):
        return ValueError(f"{where}: {expected}, got {stop.value:.12g}")
    return ValueError(
        f"{where}: {missing}, got {stop.value} (did the function raise, leave numbers out, or read uniforms that it "
        "did not ask for?)"
    )
