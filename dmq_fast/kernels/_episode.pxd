"""One episode at a time, for algorithms that learn from single transitions.

Episode e of a stream uses the calls' chunks (call e) as follows: chunk 0 for reset and steps, chunk 1 for what is
observed, chunk 2 for the learner's own draws. So an environment meets the same numbers whoever learns.
"""

from libc.stdint cimport int8_t, int32_t, int64_t, uint64_t

from dmq_fast.kernels._env cimport Environment, EnvironmentHandle
from dmq_fast.kernels._features cimport FeatureMap
from dmq_fast.kernels._philox cimport Philox, Stream
from dmq_fast.kernels._rollout cimport Fault, Stop

# Numbers that are computed between two looks for Ctrl-C: some ten milliseconds.
cdef enum:
    UNHEARD = 1 << 22

cdef class Episode:
    cdef readonly EnvironmentHandle handle
    cdef readonly FeatureMap feature_map
    cdef readonly Py_ssize_t horizon
    cdef readonly Py_ssize_t n_actions
    cdef readonly Py_ssize_t dimension
    # States by level, for environments whose state begins with a number of the level's states; else None.
    cdef readonly tuple n_states
    cdef readonly Stream stream
    cdef const Environment* env
    cdef Stop stop
    # Where the episode is: its number, the level, what `move` earned last and all steps so far.
    cdef uint64_t number
    cdef Py_ssize_t level
    cdef double reward
    cdef double earned
    # (d,) features where `observe` wrote them, and (K,) scores for `pick`.
    cdef double* phi
    cdef double* scores
    cdef Philox dynamics
    cdef Philox observations
    cdef Philox own
    cdef signed char* state
    cdef void* state_alone
    cdef double* uniforms
    cdef double* observed
    cdef double* map_work
    cdef int32_t* columns
    cdef double* values
    cdef bint seen

    # Each returns False when `stop` says why the episode is over.
    # Start episode `number`.
    cdef bint begin(self, uint64_t number) noexcept nogil
    # phi <- features of the state; once a level.
    cdef bint observe(self) noexcept nogil
    # Take an action: reward, earned and level move on.
    cdef bint move(self, int64_t action) noexcept nogil
    cdef bint fail(self, Fault fault, int code, double value) noexcept nogil

    # argmax of the scores, ties at random with one uniform of the learner's, always drawn; -1 if one is not finite.
    cdef Py_ssize_t pick(self) noexcept nogil
    # u (n,) <- the learner's own uniforms.
    cdef void draw(self, double* u, Py_ssize_t n) noexcept nogil

    # State of an environment that has `n_states`.
    cdef inline int32_t latent(self) noexcept nogil:
        return (<const int32_t*> self.state)[0]

    cdef object explained(self)
    cdef int must_go_on(self) except -1

cdef class Learner:
    cdef readonly Episode episode
    # Episodes learned from so far.
    cdef readonly Py_ssize_t n_episodes
    # Numbers that an episode computes, about.
    cdef Py_ssize_t work
    # Whether a thread is at work that may not hold the lock of the interpreter.
    cdef bint busy

    # RuntimeError if it is busy; else it is from now on.
    cdef int begin_work(self) except -1

    # Learn from the episode that has just begun; False as in Episode, or when memory ran out and `stop` is empty.
    cdef bint play(self) noexcept nogil
