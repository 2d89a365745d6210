"""Episodes of compiled environments one at a time, and the loop of what learns from them."""

from cpython.exc cimport PyErr_CheckSignals
from libc.math cimport INFINITY, isfinite
from libc.stdint cimport int64_t, uint64_t, uintptr_t
from libc.stdlib cimport calloc, free
from libc.string cimport memset

from dmq_fast.kernels._finite cimport FiniteModel
from dmq_fast.kernels._philox cimport Philox, Stream, philox_uniforms
from dmq_fast.kernels._rollout cimport (
    BLANK, ENDED, FEATURES, NONE, NORM, RESET, RETURN, REWARD, SCORE, SLACK, STEP, Fault, explain, has_blank,
)

import time

import numpy as np

from dmq_fast.kernels._block import BlockModel
from dmq_fast.kernels._validate import as_floats

cdef enum Chunk:
    DYNAMICS = 0
    OBSERVATIONS = 1
    OWN = 2


cdef inline void open_at(Philox* generator, Stream stream, uint64_t call, uint64_t chunk) noexcept nogil:
    # As `philox_open`, without an object for each position.
    generator.key[0], generator.key[1] = stream._key[0], stream._key[1]
    generator.counter[0] = generator.counter[1] = 0
    generator.counter[2], generator.counter[3] = chunk, call
    generator.used = 4


cdef class Episode:
    """One trajectory at a time of a compiled environment.

    Parameters
    ----------
    handle : EnvironmentHandle
    feature_map : FeatureMap or None
        Of as many inputs as the environment's own features; None: they are the features.
    stream : Stream
        Its key is used: episode e reads chunk 0 of call e for reset and steps, chunk 1 for what is observed and
        chunk 2 for the learner's own draws.

    Attributes
    ----------
    horizon, n_actions, dimension : int
        H, K and d, the latter after the feature map.
    n_states : tuple of H int, or None
        States by level, where `state` begins with a number among them (finite and block MDPs).

    Raises
    ------
    TypeError, ValueError
        On an argument of a wrong type, or sizes that do not fit.
    """

    def __cinit__(self, EnvironmentHandle handle not None, FeatureMap feature_map, Stream stream not None):
        cdef Py_ssize_t inputs = handle.environment.dimension, map_work = 0, nonzeros = 0
        if feature_map is not None and feature_map.inputs != inputs:
            raise ValueError(
                f"feature_map: expected one of the environment's {inputs} observed numbers, "
                f"got one of {feature_map.inputs}"
            )
        self.handle, self.feature_map, self.stream = handle, feature_map, stream
        self.env = handle.environment
        self.horizon, self.n_actions = self.env.horizon, self.env.n_actions
        self.dimension = inputs
        if feature_map is not None:
            self.dimension = feature_map.dimension
            map_work, nonzeros = feature_map.work_size, feature_map.nonzeros
        self.n_states = states_of(handle._alive[0])
        most = max(1, handle.reset_uniforms, *handle.feature_uniforms, *handle.step_uniforms)
        self.state_alone = calloc(self.env.state_bytes + 64, 1)
        self.state = <signed char*> ((<uintptr_t> self.state_alone + 63) // 64 * 64)
        self.phi = <double*> calloc(self.dimension, sizeof(double))
        self.scores = <double*> calloc(self.n_actions, sizeof(double))
        self.uniforms = <double*> calloc(most, sizeof(double))
        self.observed = <double*> calloc(inputs, sizeof(double))
        self.map_work = <double*> calloc(map_work + 1, sizeof(double))
        self.columns = <int32_t*> calloc(nonzeros + 1, sizeof(int32_t))
        self.values = <double*> calloc(nonzeros + 1, sizeof(double))
        if (self.state_alone == NULL or self.phi == NULL or self.scores == NULL or self.uniforms == NULL
                or self.observed == NULL or self.map_work == NULL or self.columns == NULL or self.values == NULL):
            raise MemoryError()
        # Before `reset` there is nothing to step.
        self.level = self.horizon

    def __dealloc__(self):
        free(self.state_alone)
        free(self.phi)
        free(self.scores)
        free(self.uniforms)
        free(self.observed)
        free(self.map_work)
        free(self.columns)
        free(self.values)

    cdef bint fail(self, Fault fault, int code, double value) noexcept nogil:
        self.stop.fault, self.stop.level, self.stop.code, self.stop.value = fault, self.level, code, value
        return False

    cdef bint begin(self, uint64_t number) noexcept nogil:
        cdef int code
        open_at(&self.dynamics, self.stream, number, DYNAMICS)
        open_at(&self.observations, self.stream, number, OBSERVATIONS)
        open_at(&self.own, self.stream, number, OWN)
        self.number, self.level, self.reward, self.earned, self.seen = number, 0, 0.0, 0.0, False
        self.stop.fault = NONE
        philox_uniforms(&self.dynamics, self.uniforms, self.env.reset_uniforms)
        memset(self.state, 0xFF, self.env.state_bytes)
        code = self.env.reset(self.env.context, 1, self.uniforms, self.state)
        if code != 0:
            return self.fail(RESET, code, 0.0)
        return not has_blank(self.state, 1, self.env.state_bytes) or self.fail(BLANK, 0, 0.0)

    cdef bint observe(self) noexcept nogil:
        cdef Py_ssize_t i, d = self.dimension
        cdef bint mapped = self.feature_map is not None
        cdef double* out = self.observed if mapped else self.phi
        cdef double total = 0.0
        cdef int8_t over = 0
        cdef int code
        self.seen = True
        if self.env.feature_uniforms != NULL:
            philox_uniforms(&self.observations, self.uniforms, self.env.feature_uniforms[self.level])
        # Bytes of ones are NaN: what a function leaves out is noticed.
        memset(out, 0xFF, self.env.dimension * sizeof(double))
        code = self.env.features(self.env.context, self.level, 1, self.state, self.uniforms, out)
        if code != 0:
            return self.fail(FEATURES, code, 0.0)
        if mapped and self.feature_map.nonzeros > 0:
            self.feature_map.apply_sparse(self.observed, 1, self.columns, self.values)
            memset(self.phi, 0, d * sizeof(double))
            for i in range(self.feature_map.nonzeros):
                self.phi[self.columns[i]] = self.values[i]
        elif mapped:
            self.feature_map.apply(self.observed, 1, self.phi, self.map_work)
        if self.env.ended != NULL:
            code = self.env.ended(self.env.context, self.level, 1, self.state, &over)
            if code != 0:
                return self.fail(ENDED, code, 0.0)
            if over:
                memset(self.phi, 0, d * sizeof(double))
        for i in range(d):
            total += self.phi[i] * self.phi[i]
        return total <= (1.0 + SLACK) * (1.0 + SLACK) or self.fail(NORM, 0, total ** 0.5)

    cdef bint move(self, int64_t action) noexcept nogil:
        cdef double reward
        cdef int code
        if self.env.step_uniforms != NULL:
            philox_uniforms(&self.dynamics, self.uniforms, self.env.step_uniforms[self.level])
        memset(&self.reward, 0xFF, sizeof(double))
        code = self.env.step(self.env.context, self.level, 1, self.state, &action, self.uniforms, &self.reward)
        if code != 0:
            return self.fail(STEP, code, 0.0)
        reward = self.env.reward_scale * (self.reward + self.env.reward_shift)
        if not (reward >= 0.0 and reward <= 1.0 + SLACK):
            return self.fail(REWARD, 0, reward)
        self.reward = reward
        self.earned += reward
        if not self.earned <= 1.0 + SLACK:
            return self.fail(RETURN, 0, self.earned)
        self.level += 1
        self.seen = False
        return True

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
        return explain(&self.stop, self.stream.at(self.number))

    # The same from Python: for tests, and for learners written in Python.

    def reset(self, number):
        """Start episode `number` >= 0, which is the call that its uniforms come from."""
        if not 0 <= number < 2**63:
            raise ValueError(f"number: expected 0 <= number < 2^63, got {number}")
        if not self.begin(number):
            raise self.explained()

    def features(self):
        """Return the features of the present state, shape (d,); drawn once a level, also where they are noisy."""
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
        """Take an action in [0, K) and return the reward r'."""
        self.must_go_on()
        if not 0 <= action < self.n_actions:
            raise ValueError(f"action: expected an integer in [0, {self.n_actions}), got {action}")
        if not self.move(action):
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
        cdef const unsigned char[::1] view = <unsigned char[:self.env.state_bytes]> <unsigned char*> self.state
        return np.array(view)

    cdef int must_go_on(self) except -1:
        if self.level >= self.horizon:
            raise ValueError("episode: expected one that goes on; start the next with `reset`")
        return 0


cdef tuple states_of(source):
    # Only these are known to begin with a state's number.
    if not isinstance(source, BlockModel):
        return None
    cdef FiniteModel model = source.model
    return tuple([model.levels[h].n_states for h in range(model.horizon)])


cdef class Learner:
    """What learns from one episode after the other; see the subclasses.

    Attributes
    ----------
    episode : Episode
        Where episodes come from: the first one learned from has the number 0.
    n_episodes : int
        Episodes learned from so far.
    """

    def __cinit__(self, Episode episode not None, *arguments, **options):
        if type(self) is Learner:
            raise TypeError("Learner is abstract: use one that learns")
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
            Filled with what each episode earned.
        deadline : float, optional
            Stop between two episodes when `time.perf_counter()` has got there, within some ten milliseconds.

        Returns
        -------
        bool
            Whether all n were played; `n_episodes` says how many.

        Raises
        ------
        ValueError, RuntimeError, ArithmeticError
            As `CompiledModel.rollout` does, naming level and call, which is the episode.
        MemoryError
            When what is kept of the episodes does not fit.
        KeyboardInterrupt
            On Ctrl-C, between two episodes.
        """
        cdef Py_ssize_t done = 0, n = returns.shape[0], unheard
        cdef bint well = True
        self.begin_work()
        try:
            while done < n:
                unheard = 0
                with nogil:
                    while done < n and unheard < UNHEARD:
                        well = self.episode.begin(self.n_episodes) and self.play()
                        if not well:
                            break
                        returns[done] = self.episode.earned
                        done += 1
                        self.n_episodes += 1
                        unheard += self.work
                if not well:
                    raise self.episode.explained() if self.episode.stop.fault != NONE else MemoryError()
                PyErr_CheckSignals()
                if deadline is not None and time.perf_counter() >= deadline:
                    break
        finally:
            self.busy = False
        return done == n
