"""Compiled environments, taken over from their makers as capsules; see `_env.pxd` for the interface."""

cimport cython
cimport numpy as cnp
from cpython.pycapsule cimport PyCapsule_GetPointer, PyCapsule_IsValid, PyCapsule_New, PyCapsule_SetName
from libc.math cimport NAN
from libc.stdint cimport int64_t, uint64_t

from dmq_fast.kernels._validate cimport entries, integer, matrix, word

import numpy as np

cnp.import_array()

# Names of a capsule that holds an environment, and of one whose environment was taken.
cdef const char* FULL = "dmq_fast.environment"
cdef const char* EMPTY = "dmq_fast.environment.taken"

# Upper limit of every size that an environment declares; larger ones are taken for mistakes.
cdef enum:
    MOST = 1 << 24

# The NaN that arithmetic makes, not bytes of ones: a state that holds it counts as written.
cdef double[UNASKED_BLOCK * UNASKED_ROW] no_numbers
cdef Py_ssize_t entry
for entry in range(UNASKED_BLOCK * UNASKED_ROW):
    no_numbers[entry] = NAN
unasked = no_numbers

# Size and version that a struct written in Python must declare.
ENVIRONMENT_SIZE = sizeof(Environment)
VERSION = ENVIRONMENT_VERSION


ctypedef void (*Release)(void* context) noexcept


cdef object environment_capsule(const Environment* environment):
    return PyCapsule_New(<void*> environment, FULL, NULL)


def capsule_at(address):
    """Return a capsule of the environment struct at an address. The struct must stay at that address."""
    cdef uint64_t place = word(address, "environment")
    if place == 0:
        raise ValueError("environment: expected an address, got NULL")
    return environment_capsule(<const Environment*> <size_t> place)


@cython.no_gc_clear  # release needs the source, which a collected cycle would have cleared
cdef class EnvironmentHandle:
    """An environment that was taken over. Immutable, and shared freely between threads.

    Parameters
    ----------
    source : object
        A capsule, or an object with a method ``__dmq_environment__`` that returns one. It is kept alive. If it has a
        method ``check_states(level, states)``, states that come from Python pass it first.

    Attributes
    ----------
    address : int
        Address of the struct, which stays valid as long as this object.
    horizon, n_actions : int
        H and K.
    dimension : int
        Numbers that the environment's own `features` writes for a state.
    state_bytes : int
        Bytes of a state.
    reset_uniforms : int
        Uniforms that a start needs.
    feature_uniforms, step_uniforms : tuple of int, length H

    Raises
    ------
    TypeError, ValueError
        If `source` is neither, was taken already, follows another version of the interface, or holds a size that makes
        no sense.

    Examples
    --------
    >>> from dmq_fast.kernels import MountainCar
    >>> handle = EnvironmentHandle(MountainCar(horizon=200))
    >>> handle.horizon, handle.n_actions
    (200, 3)
    """

    def __cinit__(self, source):
        capsule = source
        if hasattr(source, "__dmq_environment__"):
            capsule = source.__dmq_environment__()
        if PyCapsule_IsValid(capsule, EMPTY):
            raise ValueError("environment: this capsule was taken already")
        if not PyCapsule_IsValid(capsule, FULL):
            raise TypeError(
                "environment: expected a capsule named 'dmq_fast.environment' or an object with a method "
                f"__dmq_environment__ that returns one, got {type(capsule).__name__}"
            )
        cdef const Environment* given = <const Environment*> PyCapsule_GetPointer(capsule, FULL)
        check_struct(given)
        PyCapsule_SetName(capsule, EMPTY)
        self._alive = (source, capsule, <size_t> given.release, <size_t> given.context)
        self.environment, self.address = given, <size_t> given
        self.horizon, self.n_actions, self.dimension = given.horizon, given.n_actions, given.dimension
        self.state_bytes, self.reset_uniforms = given.state_bytes, given.reset_uniforms

    def __dealloc__(self):
        # The struct is not read: where a cycle is collected, its source may have been cleared before, and freed it.
        if self._alive is not None and self._alive[2]:
            (<Release> <size_t> self._alive[2])(<void*> <size_t> self._alive[3])

    @property
    def feature_uniforms(self):
        """Uniforms that the features of a state need, by level."""
        return uniforms_of(self.environment.feature_uniforms, self.horizon)

    @property
    def step_uniforms(self):
        """Uniforms that a step needs, by level."""
        return uniforms_of(self.environment.step_uniforms, self.horizon)

    def reset(self, uniforms):
        """Start trajectories.

        Parameters
        ----------
        uniforms : array_like, shape (n, reset_uniforms)

        Returns
        -------
        states : numpy.ndarray of uint8, shape (n, state_bytes)
            Copy them to keep them; ``states.view(dtype)`` shows what they hold.

        Raises
        ------
        ValueError
            On a wrong shape.
        RuntimeError
            If the environment returns a code.
        """
        cdef cnp.ndarray u = matrix(uniforms, "uniforms", -1, self.environment.reset_uniforms)
        cdef cnp.npy_intp n = cnp.PyArray_DIM(u, 0)
        u = uniforms_for(u, n, self.environment.reset_uniforms)
        cdef cnp.ndarray states = np.zeros((n, self.environment.state_bytes), dtype=np.uint8)
        refuse_code("reset", self.environment.reset(self.environment.context, n, entries(u), cnp.PyArray_DATA(states)))
        return states

    def features(self, level, states, uniforms=None):
        """Return the environment's own features of states of `level`, before any feature map, shape (n, dimension).

        Parameters
        ----------
        level : int
        states : numpy.ndarray of uint8, shape (n, state_bytes)
        uniforms : array_like, shape (n, feature_uniforms[level]), optional
            May be left out if that number is 0.
        """
        cdef int64_t h = level_of(self.environment, level)
        cdef cnp.ndarray given = states_of(self, h, states)
        cdef cnp.npy_intp n = cnp.PyArray_DIM(given, 0)
        cdef cnp.ndarray u = uniforms_for(uniforms, n, at(self.environment.feature_uniforms, h))
        cdef cnp.ndarray phi = np.full((n, self.environment.dimension), np.nan)
        refuse_code("features", self.environment.features(
            self.environment.context, h, n, cnp.PyArray_DATA(given), entries(u), entries(phi)
        ))
        return phi

    def step(self, level, states, actions, uniforms=None):
        """Take one action a state, in place, and return the rewards, shape (n,).

        Parameters
        ----------
        level : int
        states : numpy.ndarray of uint8, shape (n, state_bytes)
            Changed in place.
        actions : array_like of int, shape (n,)
        uniforms : array_like, shape (n, step_uniforms[level]), optional
            May be left out if that number is 0.
        """
        cdef int64_t h = level_of(self.environment, level)
        cdef cnp.ndarray given = states_of(self, h, states)
        cdef cnp.npy_intp n = cnp.PyArray_DIM(given, 0)
        cdef cnp.ndarray u = uniforms_for(uniforms, n, at(self.environment.step_uniforms, h))
        chosen = np.asarray(actions)
        if (chosen.shape != (n,) or chosen.dtype.kind not in "iu"
                or (n > 0 and not (0 <= chosen.min() and chosen.max() < self.environment.n_actions))):
            raise ValueError(f"actions: expected {n} integers in [0, {self.environment.n_actions}), got {actions!r}")
        cdef cnp.ndarray taken = np.require(chosen, np.int64, ["C", "A"])
        cdef cnp.ndarray rewards = np.full(n, np.nan)
        refuse_code("step", self.environment.step(
            self.environment.context, h, n, cnp.PyArray_DATA(given), <const int64_t*> cnp.PyArray_DATA(taken),
            entries(u), entries(rewards),
        ))
        return rewards

    def ended(self, level, states):
        """Return which episodes are over, an array of bool, shape (n,)."""
        cdef int64_t h = level_of(self.environment, level)
        cdef cnp.ndarray given = states_of(self, h, states)
        cdef cnp.npy_intp n = cnp.PyArray_DIM(given, 0)
        cdef cnp.ndarray over = np.zeros(n, dtype=np.int8)
        if self.environment.ended != NULL:
            refuse_code("ended", self.environment.ended(
                self.environment.context, h, n, cnp.PyArray_DATA(given), <cnp.int8_t*> cnp.PyArray_DATA(over)
            ))
        return over != 0


cdef int64_t level_of(const Environment* environment, level) except -1:
    return integer(level, "level", 0, environment.horizon - 1)


cdef cnp.ndarray states_of(EnvironmentHandle handle, int64_t level, states):
    # States are changed in place, so an array that would have to be copied is refused.
    cdef const Environment* environment = handle.environment
    # A state of so many bytes may hold numbers of as many bytes as the largest power of 2 that divides it, up to 8.
    cdef int64_t unit = min(8, environment.state_bytes & -environment.state_bytes)
    if not (isinstance(states, np.ndarray) and states.dtype == np.uint8 and states.flags.carray
            and states.ndim == 2 and states.shape[1] == environment.state_bytes
            and (unit == 0 or states.ctypes.data % unit == 0)):
        raise ValueError(
            f"states: expected a contiguous array of uint8 of shape (n, {environment.state_bytes}), "
            f"which begins at a multiple of {unit} bytes, such as `reset` returns"
        )
    source = handle._alive[0]
    if hasattr(source, "check_states"):
        source.check_states(level, states)
    return states


cdef int refuse_code(str name, int code) except -1:
    if code != 0:
        raise RuntimeError(f"environment: {name} returned the code {code}")
    return 0


cdef inline int64_t at(const int64_t* counts, int64_t level) noexcept:
    return 0 if counts == NULL else counts[level]


cdef cnp.ndarray uniforms_for(uniforms, Py_ssize_t n, int64_t count):
    # Rows of NaN instead of none, as in a simulation; see `unasked`.
    cdef cnp.ndarray given = matrix(np.empty((n, 0)) if uniforms is None else uniforms, "uniforms", n, count)
    cdef const double* u = entries(given)
    cdef Py_ssize_t i
    # Environments look into tables by them.
    for i in range(n * count):
        if not 0.0 <= u[i] < 1.0:
            raise ValueError(f"uniforms: expected numbers in [0, 1), got {u[i]}")
    return given if count > 0 else np.full((n, UNASKED_ROW), np.nan)


cdef tuple uniforms_of(const int64_t* counts, int64_t horizon):
    return tuple([at(counts, h) for h in range(horizon)])


cdef int check_struct(const Environment* given) except -1:
    if given.version != ENVIRONMENT_VERSION or given.size != sizeof(Environment):
        raise ValueError(
            f"environment: expected version {ENVIRONMENT_VERSION} of the interface and {sizeof(Environment)} bytes, "
            f"got version {given.version} and {given.size} bytes; compile it again with the headers of this dmq_fast"
            + (
                ", without reward_shift and reward_scale: rewards are the environment's own, and their range is an "
                "argument of CompiledEnv, value_range=(low, high)" if given.version == 1 else ""
            )
        )
    check_size("horizon", given.horizon, 1)
    check_size("n_actions", given.n_actions, 1)
    check_size("dimension", given.dimension, 1)
    check_size("state_bytes", given.state_bytes, 1)
    check_size("reset_uniforms", given.reset_uniforms, 0)
    for h in range(given.horizon):
        if given.feature_uniforms != NULL:
            check_size(f"feature_uniforms[{h}]", given.feature_uniforms[h], 0)
        if given.step_uniforms != NULL:
            check_size(f"step_uniforms[{h}]", given.step_uniforms[h], 0)
    for name, missing in (
        ("reset", given.reset == NULL), ("features", given.features == NULL), ("step", given.step == NULL)
    ):
        if missing:
            raise ValueError(f"environment: {name}: expected a function, got NULL")
    return 0


cdef int check_size(str name, int64_t value, int64_t least) except -1:
    if not least <= value <= MOST:
        raise ValueError(f"environment: {name}: expected an integer in [{least}, {MOST}], got {value}")
    return 0
