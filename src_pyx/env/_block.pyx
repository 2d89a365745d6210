"""Block MDPs as compiled environments: a finite MDP whose states emit noisy observations (Du et al., 2019, PCID).

The hidden MDP is a `FiniteModel`, whose tables are used without a copy. A state s of level h emits
phi = scale (base_h(s) + noise):

- none: the row itself, without uniforms;
- coins: n further coordinates, each 0 or 1 with probability 1/2. Coin j of 52 is the (j + 1)-th binary digit of one
  uniform after the point, so a state takes ceil(n / 52) uniforms;
- gaussian: independent N(0, sigma^2) on every coordinate. The 106 binary digits of two uniforms are a position of the
  counter-based generator Threefry, whose words become normals (see `_philox`), for any number of coordinates. A
  rotation leaves this noise as it is, so a rotated observation needs rotated rows only. Observations of norm above 1
  are then projected onto the unit ball.

Where observations have no noise, an episode is over in a state whose row is 0, if so are the rows of all states that
may follow it, and nothing is paid any more.

Nothing here depends on the machine: square roots and divisions are rounded correctly, and sums have a fixed order.
"""

from cpython.pycapsule cimport PyCapsule_GetContext, PyCapsule_SetContext, PyCapsule_SetDestructor
from cpython.ref cimport Py_DECREF, Py_INCREF
from libc.stdint cimport int8_t, int32_t, int64_t

from dmq_fast.kernels._env cimport ENVIRONMENT_VERSION, Environment, environment_capsule
from dmq_fast.kernels._finite cimport BERNOULLI, BY_EDGE, BY_ROW, FiniteModel, Level, outcome
from dmq_fast.kernels._memory cimport Owner
from dmq_fast.kernels._validate cimport integer

import numpy as np

from dmq_fast.kernels._validate import as_floats, as_positive

cdef extern from "dmq_block.h":
    void noisy_rows "dmq_noisy_rows"(
        const double* base, const int32_t* states, Py_ssize_t n, Py_ssize_t d, double deviation, const double* u,
        double* phi
    ) noexcept nogil
    void rows_of "dmq_rows"(
        const double* base, const int32_t* states, Py_ssize_t n, Py_ssize_t m, Py_ssize_t d, double* phi
    ) noexcept nogil
    void coins_of "dmq_coins"(
        const double* u, Py_ssize_t n, Py_ssize_t coins, const double* table, Py_ssize_t d, double* phi
    ) noexcept nogil

# Coins of one uniform, uniforms of an observation with Gaussian noise, and the most coins.
cdef enum:
    DIGITS = 52
    SEEDS = 2
    MOST = 1 << 24

cdef enum Noise:
    NO_NOISE = 0
    COINS = 1
    GAUSSIAN = 2

NOISES = {"none": NO_NOISE, "coins": COINS, "gaussian": GAUSSIAN}


# The context of the functions below; the arrays belong to the BlockModel and its FiniteModel.
cdef struct Block:
    Py_ssize_t horizon
    Py_ssize_t n_actions
    Py_ssize_t dimension
    const Level* levels
    Py_ssize_t n_start
    const double* start_threshold
    const int32_t* start_alias
    const int32_t* start_state
    Noise noise
    Py_ssize_t n_coins
    # Values of four coins, (16, 4), by the number whose binary digits they are; and the deviation of Gaussian noise.
    double[64] coins
    double deviation
    # By level: scaled rows, each (S_h, d - n_coins).
    const double** base
    # By level.
    int64_t* feature_uniforms
    int64_t* step_uniforms
    # Whether episodes are over in a state; state s of level h is at offset[h] + s.
    const Py_ssize_t* offset
    int8_t* over


cdef class BlockModel(Owner):
    """A finite MDP whose states emit observations, as a compiled environment. Immutable.

    Parameters
    ----------
    model : FiniteModel
        The hidden MDP; its features are not used.
    base : sequence of H array_like, each (S_h, m)
        Emissions of the states of a level, without noise. An array object that appears at several levels is kept once.
    noise : {"none", "coins", "gaussian"}
    n_coins : int
        Number of coins, appended to the m coordinates; >= 1 for coins, else 0.
    sigma : float
        Standard deviation of Gaussian noise before scaling; >= 0, and 0 for other noise.
    scale : float
        Factor of base and noise; > 0.

    Attributes
    ----------
    model : FiniteModel

    Raises
    ------
    TypeError, ValueError
        If an argument is of another type, shape or range.
    """

    cdef readonly FiniteModel model
    cdef Block block
    cdef Environment environment
    cdef list _alive

    def __cinit__(
        self, FiniteModel model not None, base, *, noise="none", n_coins=0, sigma=0.0, scale=1.0
    ):
        cdef Block* block = &self.block
        self.model = model
        if noise not in NOISES:
            raise ValueError(f"noise: expected one of {', '.join(NOISES)}, got {noise!r}")
        block.noise = NOISES[noise]
        block.n_coins = integer(n_coins, "n_coins", 0, MOST)
        if (block.n_coins > 0) != (block.noise == COINS):
            raise ValueError(f"n_coins: expected a number >= 1 for coins, and 0 for other noise, got {n_coins}")
        cdef double deviation = as_positive("sigma", sigma, zero=True)
        if deviation > 0.0 and block.noise != GAUSSIAN:
            raise ValueError(f"sigma: expected 0 without Gaussian noise, got {sigma}")
        cdef double scaling = as_positive("scale", scale)
        block.deviation = scaling * deviation
        for i in range(64):
            block.coins[i] = (i // 4 >> (3 - i % 4) & 1) * scaling
        block.horizon, block.n_actions, block.levels = model.horizon, model.n_actions, model.levels
        block.n_start, block.start_state = model.n_start, model.start_state
        block.start_threshold, block.start_alias = model.start_threshold, model.start_alias
        block.base = <const double**> self.zeros(model.horizon, sizeof(double*))
        block.feature_uniforms = <int64_t*> self.zeros(model.horizon, sizeof(int64_t))
        block.step_uniforms = <int64_t*> self.zeros(model.horizon, sizeof(int64_t))
        self.pack_base(tuple(base), scaling)
        self.count_uniforms()
        self.describe()
        block.offset = model.offset
        block.over = <int8_t*> self.zeros(model.offset[model.horizon], sizeof(int8_t))
        if block.noise != COINS and block.deviation == 0.0 and self.mark_ends():
            self.environment.ended = ended

    cdef int pack_base(self, tuple base, double scaling) except -1:
        cdef Py_ssize_t h
        cdef const double[:, ::1] rows
        cdef dict packed = {}
        width = None
        self._alive = []
        if len(base) != self.block.horizon:
            raise ValueError(f"base: expected {self.block.horizon} arrays, one a level, got {len(base)}")
        for h in range(self.block.horizon):
            if id(base[h]) not in packed:
                given = as_floats(f"base: level {h}", base[h], (None, width))
                width = given.shape[1]
                if width == 0:
                    raise ValueError(f"base: level {h}: expected at least one column, got shape {given.shape}")
                packed[id(base[h])] = given * scaling
            rows = packed[id(base[h])]
            if rows.shape[0] != self.block.levels[h].n_states:
                raise ValueError(
                    f"base: level {h}: expected one row for each of {self.block.levels[h].n_states} states, "
                    f"got {rows.shape[0]}"
                )
            self._alive.append(rows)
            self.block.base[h] = &rows[0, 0]
        self.block.dimension = width + self.block.n_coins
        return 0

    cdef void count_uniforms(self) noexcept:
        cdef Py_ssize_t h
        cdef int64_t seen = 0
        if self.block.noise == COINS:
            seen = (self.block.n_coins + DIGITS - 1) // DIGITS
        elif self.block.noise == GAUSSIAN and self.block.deviation > 0.0:
            seen = SEEDS
        for h in range(self.block.horizon):
            self.block.feature_uniforms[h] = seen
            self.block.step_uniforms[h] = (self.block.levels[h].rewards == BERNOULLI) + moves(&self.block, h)

    cdef bint mark_ends(self) noexcept:
        # From the last level to the first; returns whether an episode can end before the last one.
        cdef Py_ssize_t h, s
        cdef bint found = False
        for h in reversed(range(self.block.horizon)):
            for s in range(self.block.levels[h].n_states):
                if self.is_over(h, s):
                    self.block.over[self.block.offset[h] + s] = found = True
        return found

    cdef bint is_over(self, Py_ssize_t h, Py_ssize_t s) noexcept:
        cdef const Level* level = &self.block.levels[h]
        cdef const int8_t* later = self.block.over + self.block.offset[h + 1]
        cdef bint last = h == self.block.horizon - 1
        cdef Py_ssize_t i, k, row, d = self.block.dimension
        for i in range(d):
            if self.block.base[h][s * d + i] != 0.0:
                return False
        for row in range(s * self.block.n_actions, (s + 1) * self.block.n_actions):
            if level.rewards in (BY_ROW, BERNOULLI) and level.reward[row] != 0.0:
                return False
            if level.deterministic:
                if not last and not later[level.successor[row]]:
                    return False
                continue
            for k in range(level.row_start[row], level.row_start[row + 1]):
                if level.rewards == BY_EDGE and level.reward[k] != 0.0 or not (last or later[level.next_state[k]]):
                    return False
        return True

    cdef void describe(self) noexcept:
        cdef Environment* environment = &self.environment
        environment.size = sizeof(Environment)
        environment.version = ENVIRONMENT_VERSION
        environment.horizon = self.block.horizon
        environment.n_actions = self.block.n_actions
        environment.dimension = self.block.dimension
        environment.state_bytes = sizeof(int32_t)
        environment.reset_uniforms = self.block.n_start > 1
        environment.feature_uniforms = self.block.feature_uniforms
        environment.step_uniforms = self.block.step_uniforms
        environment.context = &self.block
        environment.reset = reset
        environment.features = features
        environment.step = step

    def check_states(self, level, states):
        """Raise ValueError unless `states`, as an `EnvironmentHandle` has them, are numbers of states of a level."""
        cdef Py_ssize_t n_states = self.block.levels[integer(level, "level", 0, self.block.horizon - 1)].n_states
        numbers = np.ascontiguousarray(states, np.uint8).view(np.int32)
        if numbers.size and not (0 <= numbers.min() and numbers.max() < n_states):
            raise ValueError(
                f"states: expected numbers in [0, {n_states}) at level {level}, got {numbers.min()} to {numbers.max()}"
            )

    def __dmq_environment__(self):
        """Return a capsule of the environment, which keeps this model alive."""
        capsule = environment_capsule(&self.environment)
        PyCapsule_SetContext(capsule, <void*> self)
        Py_INCREF(self)
        PyCapsule_SetDestructor(capsule, let_go)
        return capsule


cdef void let_go(object capsule) noexcept:
    Py_DECREF(<object> PyCapsule_GetContext(capsule))


cdef inline bint moves(const Block* block, int64_t h) noexcept nogil:
    # Whether the next state takes a uniform. After the last level it matters only to rewards that depend on it.
    cdef const Level* level = &block.levels[h]
    return not level.deterministic and (h < block.horizon - 1 or level.rewards == BY_EDGE)


cdef int reset(const void* context, int64_t n, const double* u, void* states) noexcept nogil:
    cdef const Block* block = <const Block*> context
    cdef int32_t* state = <int32_t*> states
    cdef Py_ssize_t i, k = 0
    for i in range(n):
        if block.n_start > 1:
            k = outcome(block.start_threshold, block.start_alias, block.n_start, u[i])
        state[i] = block.start_state[k]
    return 0


cdef int features(
    const void* context, int64_t level, int64_t n, const void* states, const double* u, double* phi
) noexcept nogil:
    cdef const Block* block = <const Block*> context
    cdef const double* base = block.base[level]
    cdef const int32_t* state = <const int32_t*> states
    cdef Py_ssize_t d = block.dimension
    if block.feature_uniforms[level] == 0:
        rows_of(base, state, n, d, d, phi)
    elif block.noise == COINS:
        rows_of(base, state, n, d - block.n_coins, d, phi)
        coins_of(u, n, block.n_coins, block.coins, d, phi)
    else:
        noisy_rows(base, state, n, d, block.deviation, u, phi)
    return 0


cdef int ended(const void* context, int64_t level, int64_t n, const void* states, int8_t* flags) noexcept nogil:
    cdef const Block* block = <const Block*> context
    cdef const int32_t* state = <const int32_t*> states
    cdef const int8_t* over = block.over + block.offset[level]
    cdef Py_ssize_t i
    for i in range(n):
        flags[i] = over[state[i]]
    return 0


cdef int step(
    const void* context, int64_t h, int64_t n, void* states, const int64_t* actions, const double* u, double* rewards
) noexcept nogil:
    # Uniforms of a trajectory as in `FiniteModel.rollout`: that of a Bernoulli reward, then that of the transition.
    cdef const Block* block = <const Block*> context
    cdef const Level* level = &block.levels[h]
    cdef int32_t* state = <int32_t*> states
    cdef bint moving = moves(block, h)
    cdef Py_ssize_t i, row, first, k
    for i in range(n):
        row = state[i] * block.n_actions + actions[i]
        rewards[i] = 0.0
        if level.rewards == BY_ROW:
            rewards[i] = level.reward[row]
        elif level.rewards == BERNOULLI:
            if u[0] < level.reward[row]:
                rewards[i] = level.cap
            u += 1
        if level.deterministic:
            state[i] = level.successor[row]
        elif moving:
            first = level.row_start[row]
            k = first + outcome(
                level.threshold + first, level.alias + first, level.row_start[row + 1] - first, u[0]
            )
            u += 1
            state[i] = level.next_state[k]
            if level.rewards == BY_EDGE:
                rewards[i] = level.reward[k]
    return 0
