"""The binary interface of compiled environments, version 2.

An environment is a struct of functions that advance many trajectories at a time. They are pure in (state, action,
uniforms): all randomness comes from uniforms that the simulator draws and passes in. So an environment needs no
generator of its own, runs can be repeated, and one context serves any number of threads.

Arrays are C-contiguous and belong to the caller. `n` trajectories are handed in at a time; state i lies at byte
i * state_bytes of `states`, the first aligned to 64 bytes; `u` is (n, m), row i the m uniforms on [0, 1) of
trajectory i, and must not be read where m is 0: what is there then is NaN, so that a forgotten m does not pass for
randomness. A function returns 0, or a code of its own other than 0, which ends the
run as an exception that names function, code, level and chunk. It must write all of its output: numbers that it leaves
out are NaN, which ends the run too.
"""

from libc.stdint cimport int8_t, int64_t

cdef enum:
    ENVIRONMENT_VERSION = 2

cdef struct Environment:
    # sizeof(Environment) and ENVIRONMENT_VERSION when the environment was compiled.
    int64_t size
    int64_t version
    # H, K and d, all >= 1; bytes of a state >= 1.
    int64_t horizon
    int64_t n_actions
    int64_t dimension
    int64_t state_bytes
    # Uniforms of a trajectory for `reset`, and for `features` and `step` at each level: (H,), or NULL for none.
    int64_t reset_uniforms
    const int64_t* feature_uniforms
    const int64_t* step_uniforms
    # Passed to every function; must not change during a simulation.
    void* context
    # States <- the start. A state with all bits 1 counts as not written.
    int (*reset)(const void* context, int64_t n, const double* u, void* states) noexcept nogil
    # phi (n, d) <- the features of the states, of norm <= 1 unless a feature map follows; states of `level`.
    int (*features)(
        const void* context, int64_t level, int64_t n, const void* states, const double* u, double* phi
    ) noexcept nogil
    # States <- the next states, in place; rewards (n,) <- finite numbers of any sign and size. Actions are in [0, K).
    int (*step)(
        const void* context, int64_t level, int64_t n, void* states, const int64_t* actions, const double* u,
        double* rewards
    ) noexcept nogil
    # ended (n,) <- 1 if the episode is over, else 0; NULL if none ends before level H. Such a trajectory stays in
    # a state that `step` keeps, earns r = 0, and has features 0, whatever `features` writes there.
    int (*ended)(const void* context, int64_t level, int64_t n, const void* states, int8_t* ended) noexcept nogil
    # Called once, with the GIL, when the environment is no longer used; may be NULL.
    void (*release)(void* context) noexcept


# A capsule that passes an environment on. The one who takes it empties it and calls `release` in the end; the struct
# must stay at its address until then. An object that has a method __dmq_environment__ returning such a capsule can
# be given to `dmq_fast.environments.CompiledEnv`, which keeps the object alive.
cdef object environment_capsule(const Environment* environment)

# What a function is given that asked for no uniforms: NaN, for UNASKED_BLOCK trajectories of UNASKED_ROW numbers.
# Read-only, and shared by all threads.
cdef enum:
    UNASKED_BLOCK = 256
    UNASKED_ROW = 64

cdef const double* unasked

cdef class EnvironmentHandle:
    cdef const Environment* environment
    cdef object _alive
    # What Python reads of it.
    cdef readonly size_t address
    cdef readonly int64_t horizon
    cdef readonly int64_t n_actions
    cdef readonly int64_t dimension
    cdef readonly int64_t state_bytes
    cdef readonly int64_t reset_uniforms
