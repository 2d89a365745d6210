"""One episode at a time, for algorithms that learn from single transitions.

Episode e draws from call e of a stream: chunk 0 for reset and steps, chunk 1 for what is observed, chunk 2 for the
learner's own draws. So the environment draws the same numbers whatever the learner does with its own.
"""

from libc.stdint cimport int32_t, int64_t, uint64_t

from dmq_fast.kernels._simulator cimport Fault, Simulator
from dmq_fast.kernels._philox cimport Philox, Stream

# Numbers computed between two checks for Ctrl-C: some ten milliseconds.
cdef enum:
    UNCHECKED = 1 << 22

# A block of one trajectory; horizon, n_actions, dimension and `stop` are those of the simulator.
cdef class Episode(Simulator):
    # States by level, for environments whose state begins with a number of the level's states; else None.
    cdef readonly tuple n_states
    cdef readonly Stream stream
    # Position of the episode: its number and level; the reward of the last `move`, in units where `converts`, and the
    # sum of the environment's own so far.
    cdef uint64_t number
    cdef Py_ssize_t level
    cdef double reward
    cdef readonly double earned
    # The model of the rewards or None, the least value and the size of a unit, the level whose step ended the episode;
    # (H, 2) least and largest return to go from each level, NULL if they are not checked, and what each level paid.
    cdef object declared
    cdef bint converts
    cdef double low
    cdef double unit
    cdef Py_ssize_t last
    cdef object _limits
    cdef const double* limits
    cdef double* paid
    # (d,) features where `observe` wrote them, and (K,) scores for `pick`.
    cdef double* phi
    cdef double* scores
    cdef Philox dynamics
    cdef Philox observations
    cdef Philox own
    cdef bint seen

    # Each returns False when the episode is over; `stop` then holds the reason.
    # Start episode `number`.
    cdef bint begin(self, uint64_t number) noexcept nogil
    # phi <- features of the state; once a level.
    cdef bint observe(self) noexcept nogil
    # Take an action: reward, earned and level move on.
    cdef bint move(self, int64_t action) noexcept nogil
    # Whether the returns to go of the episode that has ended are in the limits.
    cdef bint check_returns(self) noexcept nogil
    cdef bint fail(self, Fault fault, int code, double value) noexcept nogil

    # argmax of the scores, ties at random with one uniform of the learner's, always drawn; -1 if one is not finite.
    cdef Py_ssize_t pick(self) noexcept nogil
    # u (n,) <- the learner's own uniforms.
    cdef void draw(self, double* u, Py_ssize_t n) noexcept nogil

    # State of an environment that has `n_states`.
    cdef inline int32_t latent(self) noexcept nogil:
        return (<const int32_t*> self.states)[0]

    # The reward of the step of level h that was just taken, if it had ended the episode, as the last step does.
    cdef inline double reward_at_end(self, Py_ssize_t h) noexcept nogil:
        return (self.paid[h] - self.low) / self.unit

    # Whether the episode had ended before the present level. One that is over when it begins ends with its first step.
    cdef inline bint is_over(self) noexcept nogil:
        return self.env.ended != NULL and self.level > 0 and self._ended[0]

    cdef object explained(self)
    cdef int must_go_on(self) except -1


# The data of levels that are the same. A data set has the steps of all levels of one label. What follows the last step
# is not shown, so the last level has a set of its own: with its own steps if it has a label of its own, else with those
# of all levels of its label, each with the reward that it would have had as the last.
cdef class Sharing:
    # Labels 0, 1, ... in order of appearance; whether two levels have the same.
    cdef readonly tuple groups
    cdef readonly bint shares
    # Number of data sets, and that of the last level.
    cdef readonly Py_ssize_t n
    cdef Py_ssize_t last
    # (H,) the data set of each level, in order of appearance: h without sharing.
    cdef Py_ssize_t[::1] of
    # The sets that steps of level h enter, that of the last level first: entered[begin[h]:begin[h + 1]].
    cdef Py_ssize_t[::1] entered
    cdef Py_ssize_t[::1] begin


# Largest values hoped for by level, an array (H,): 1 each for "flat", H - h for "steps"; ValueError for another name.
cdef object tops_of(optimism, Py_ssize_t horizon)

cdef class Learner:
    cdef readonly Episode episode
    # Episodes learned from so far.
    cdef readonly Py_ssize_t n_episodes
    # Whether a rule of the algorithm's own has ended learning.
    cdef readonly bint stopped
    # Numbers that an episode computes, about.
    cdef Py_ssize_t work
    # Whether a call is running, possibly in another thread and without the lock of the interpreter.
    cdef bint busy

    # Set `busy`; RuntimeError if it is set already.
    cdef int begin_work(self) except -1

    # Learn from the episode that has just begun. False if the episode failed, or, with `stop` at NONE, for lack of
    # memory.
    cdef bint play(self) noexcept nogil
