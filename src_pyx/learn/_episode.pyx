"""Episodes of compiled environments, one at a time, and the loop in which a learner plays them."""

from cpython.exc cimport PyErr_CheckSignals
from libc.math cimport INFINITY, isfinite
from libc.stdint cimport uint64_t
from libc.string cimport memset

from dmq_fast.kernels._env cimport EnvironmentHandle
from dmq_fast.kernels._simulator cimport NONE, RETURN, SCORE, explain, limits_of
from dmq_fast.kernels._features cimport FeatureMap
from dmq_fast.kernels._finite cimport FiniteModel
from dmq_fast.kernels._philox cimport Philox, Stream, philox_uniforms
from dmq_fast.kernels._validate cimport entries, integer

import time

import numpy as np

from dmq_fast.kernels._block import BlockModel
from dmq_fast.kernels._validate import as_floats

cdef enum Chunk:
    DYNAMICS = 0
    OBSERVATIONS = 1
    OWN = 2


cdef inline void open_at(Philox* generator, Stream stream, uint64_t call, uint64_t chunk) noexcept nogil:
    # The same as `philox_open`, without a Stream for every position.
    generator.key[0], generator.key[1] = stream._key[0], stream._key[1]
    generator.counter[0] = generator.counter[1] = 0
    generator.counter[2], generator.counter[3] = chunk, call
    generator.used = 4


cdef class Episode(Simulator):
    """One trajectory at a time of a compiled environment.

    Parameters
    ----------
    handle : EnvironmentHandle
    feature_map : FeatureMap or None
        A map of as many inputs as the environment's own features; with None those are the features.
    stream : Stream
        Gives the key: episode e reads chunk 0 of call e for reset and steps, chunk 1 for the features and chunk 2 for
        the learner's own draws.
    rewards : RewardModel, optional
        Rewards are then in units of its range, r' = (r - [the episode ends] low) / width, and ValueError is raised,
        with its `refusal`, for an episode whose returns to go leave its `limits`. An episode ends where `ended` says
        so, or at the last level. Default: rewards are the environment's own, and unchecked.

    Attributes
    ----------
    horizon, n_actions, dimension : int
        H, K and d, the latter after the feature map.
    n_states : tuple of H int, or None
        Number of states by level, if `state` begins with the state's number (finite and block MDPs).
    earned : float
        What the episode has earned so far, in the environment's own rewards.

    Raises
    ------
    TypeError, ValueError
        On an argument of a wrong type, or sizes that do not fit.
    """

    def __cinit__(
        self, EnvironmentHandle handle not None, FeatureMap feature_map, Stream stream not None, rewards=None
    ):
        self.allocate(handle, feature_map, 1)
        self.stream = stream
        self._limits = limits_of(rewards, self.horizon)
        self.declared = rewards
        self.converts = rewards is not None
        self.low, self.unit = (rewards.low, rewards.width) if self.converts else (0.0, 1.0)
        if self._limits is not None:
            self.limits = entries(self._limits)
        self.paid = <double*> self.zeros(self.horizon, sizeof(double))
        self.n_states = states_of(handle._alive[0])
        self.scores = <double*> self.zeros(self.n_actions, sizeof(double))
        self.phi = <double*> self.zeros(self.dimension, sizeof(double)) if self.sparse else self.rows
        # No episode has begun: `step` and `features` are refused until `reset`.
        self.level = self.horizon

    cdef bint fail(self, Fault fault, int code, double value) noexcept nogil:
        return self.halt(fault, self.level, code, value)

    cdef bint begin(self, uint64_t number) noexcept nogil:
        open_at(&self.dynamics, self.stream, number, DYNAMICS)
        open_at(&self.observations, self.stream, number, OBSERVATIONS)
        open_at(&self.own, self.stream, number, OWN)
        self.number, self.level, self.reward, self.earned, self.seen = number, 0, 0.0, 0.0, False
        return self.begin_block(&self.dynamics, 1)

    cdef bint observe(self) noexcept nogil:
        cdef Py_ssize_t i
        self.seen = True
        if not self.observe_block(&self.observations, self.level, 1):
            return False
        if self.sparse:
            memset(self.phi, 0, self.dimension * sizeof(double))
            for i in range(self.width):
                self.phi[self.columns[i]] = self.rows[i]
        return True

    cdef bint move(self, int64_t action) noexcept nogil:
        self.actions[0] = action
        if not self.move_block(&self.dynamics, self.level, 1):
            return False
        self.reward = self.paid[self.level] = self.rewards[0]
        self.earned += self.reward
        if self.converts:
            if self.just_ended(self.level):
                self.last = self.level
                self.reward -= self.low
            self.reward /= self.unit
        self.level += 1
        self.seen = False
        return self.limits == NULL or self.level < self.horizon or self.check_returns()

    cdef bint check_returns(self) noexcept nogil:
        # The first level outside of the limits is named: it has the longest sum.
        cdef Py_ssize_t h
        cdef double to_go = 0.0
        for h in range(self.horizon - 1, -1, -1):
            to_go += self.paid[h]
            if h <= self.last and not self.limits[2 * h] <= to_go <= self.limits[2 * h + 1]:
                self.halt(RETURN, h, 0, to_go)
        return self.stop.fault == NONE

    cdef void draw(self, double* u, Py_ssize_t n) noexcept nogil:
        philox_uniforms(&self.own, u, n)

    cdef Py_ssize_t pick(self) noexcept nogil:
        cdef Py_ssize_t a, count = 0, chosen
        cdef double best = -INFINITY, u
        self.draw(&u, 1)
        for a in range(self.n_actions):
            if not isfinite(self.scores[a]):
                self.fail(SCORE, 0, self.scores[a])
                return -1
            if self.scores[a] > best:
                best, count = self.scores[a], 0
            count += self.scores[a] == best
        chosen = <Py_ssize_t> (u * count)
        for a in range(self.n_actions):
            if self.scores[a] == best:
                if chosen == 0:
                    return a
                chosen -= 1
        return -1

    cdef object explained(self):
        return explain(&self.stop, self.stream.at(self.number), self.declared)

    # The steps for Python: for tests, and for learners written in Python.

    def reset(self, number):
        """Start episode `number` >= 0, which draws its uniforms from the call of that number."""
        if not self.begin(integer(number, "number", 0, 2**63 - 1)):
            raise self.explained()

    def features(self):
        """Return the features of the present state, shape (d,). They are drawn once a level, also if they are noisy."""
        cdef Py_ssize_t i
        self.must_go_on()
        if not self.seen and not self.observe():
            raise self.explained()
        out = np.empty(self.dimension)
        for i in range(self.dimension):
            out[i] = self.phi[i]
        return out

    def act(self, scores):
        """Return the action of the largest of K finite scores; ties are broken by the learner's next uniform."""
        cdef Py_ssize_t a
        given = as_floats("scores", scores, (self.n_actions,))
        for a in range(self.n_actions):
            self.scores[a] = given[a]
        return self.pick()

    def step(self, action):
        """Take an action in [0, K) and return the reward, in units if `rewards` were given."""
        self.must_go_on()
        if not self.move(integer(action, "action", 0, self.n_actions - 1)):
            raise self.explained()
        return self.reward

    def draws(self, Py_ssize_t n):
        """Return the learner's next n uniforms of this episode, shape (n,)."""
        cdef double[::1] u = np.empty(n)
        if n > 0:
            self.draw(&u[0], n)
        return np.asarray(u)

    @property
    def state(self):
        """Bytes of the state, a copy, shape (state_bytes,)."""
        cdef const unsigned char[::1] view = <unsigned char[:self.env.state_bytes]> <unsigned char*> self.states
        return np.array(view)

    cdef int must_go_on(self) except -1:
        if self.level >= self.horizon:
            raise ValueError("episode: expected one that has not ended, got one at its end; start another with `reset`")
        return 0


cdef tuple states_of(source):
    # Only the state of a BlockModel is known to begin with its number.
    if not isinstance(source, BlockModel):
        return None
    cdef FiniteModel model = source.model
    return tuple([model.levels[h].n_states for h in range(model.horizon)])


cdef class Sharing:
    """Which data each level learns from, and which data a step enters.

    Parameters
    ----------
    groups : sequence of int, or None
        A label for each level; levels of one label have the same transitions, rewards and features. None: all differ.
    horizon : int

    Raises
    ------
    ValueError
        If there is not one label a level.
    """

    def __cinit__(self, groups, Py_ssize_t horizon):
        cdef Py_ssize_t h, last = horizon - 1
        labels = list(range(horizon)) if groups is None else as_labels(groups, horizon)
        known = {}
        self.groups = tuple([known.setdefault(label, len(known)) for label in labels])
        self.shares = len(known) < horizon
        known = {}
        of = [known.setdefault(label, len(known)) for label in [*self.groups[:last], "last"]]
        self.n, self.last, self.of = len(known), of[last], np.array(of, dtype=np.intp)
        entered, begin = [], [0]
        for h in range(horizon):
            entered += [self.last] if self.groups[h] == self.groups[last] else []
            entered += [of[h]] if h < last else []
            begin.append(len(entered))
        self.entered, self.begin = np.array(entered, dtype=np.intp), np.array(begin, dtype=np.intp)


def as_labels(groups, horizon):
    given = np.asarray(groups)
    if given.shape != (horizon,) or given.dtype.kind not in "iu":
        raise ValueError(f"groups: expected {horizon} integers, one label a level, got {groups!r}")
    return given.tolist()


cdef object tops_of(optimism, Py_ssize_t horizon):
    # Returns are at most 1, so every level may hope for 1; or every step may, so that many unknown steps beat one.
    if optimism == "flat":
        return np.ones(horizon)
    if optimism == "steps":
        return np.arange(horizon, 0, -1.0)
    raise ValueError(f"optimism: expected one of flat, steps, got {optimism!r}")


cdef class Learner:
    """Base class of algorithms that learn from one episode after the other.

    Attributes
    ----------
    episode : Episode
        Plays the episodes; the first one learned from has the number 0.
    n_episodes : int
        Episodes learned from so far.
    stopped : bool
        Whether a rule of the algorithm's own has ended learning; only algorithms that have one set it.
    """

    def __cinit__(self, Episode episode not None, *arguments, **options):
        if type(self) is Learner:
            raise TypeError("Learner is abstract: use a subclass")
        self.episode = episode
        self.work = episode.horizon * (episode.dimension * episode.n_actions + 32)

    cdef bint play(self) noexcept nogil:
        return False

    cdef int begin_work(self) except -1:
        if self.busy:
            raise RuntimeError("learner: in use by another thread; give every thread its own")
        self.busy = True
        return 0

    def run(self, double[::1] returns, deadline=None):
        """Learn from len(returns) more episodes.

        Parameters
        ----------
        returns : numpy.ndarray, shape (n,)
            Filled with what each episode earned, in the environment's own rewards.
        deadline : float, optional
            Stop between two episodes once `time.perf_counter()` has reached this; checked every ten milliseconds or so.

        Returns
        -------
        bool
            Whether all n were played, or the learner has `stopped`; `n_episodes` counts those that were.

        Raises
        ------
        ValueError, RuntimeError, ArithmeticError
            As `CompiledModel.rollout` does, naming level and call, which is the episode.
        MemoryError
            When the learner's memory of past episodes does not fit.
        KeyboardInterrupt
            On Ctrl-C, between two episodes.
        """
        cdef Py_ssize_t done = 0, n = returns.shape[0], unchecked
        cdef bint well = True
        self.begin_work()
        try:
            while done < n and not self.stopped:
                unchecked = 0
                with nogil:
                    while done < n and unchecked < UNCHECKED and not self.stopped:
                        well = self.episode.begin(self.n_episodes) and self.play()
                        if not well:
                            break
                        returns[done] = self.episode.earned
                        done += 1
                        self.n_episodes += 1
                        unchecked += self.work
                if not well:
                    raise self.episode.explained() if self.episode.stop.fault != NONE else MemoryError()
                PyErr_CheckSignals()
                if deadline is not None and time.perf_counter() >= deadline:
                    break
        finally:
            self.busy = False
        return done == n or self.stopped
