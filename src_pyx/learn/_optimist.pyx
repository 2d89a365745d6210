"""Optimistic planning from all episodes so far, with at most one outcome imagined that was never seen.

A backward pass over the levels fits two values to the transitions of a run, with V = ridge I + sum phi phi^T,

    plain:       F_h(s, a) = clip(phi^T theta_h^a, 0, c(s)),                          target r + max_b F_{h+1}(s', b)
    optimistic:  W_h(s, a) = clip(max(F_h + b (c - F_h), phi^T omega_h^a), 0, c(s)),  target r + max_b W_{h+1}(s', b)

- c(s) is 1 minus the most reward that any episode had collected before s: what can still be earned, as rewards of an
  episode sum to at most 1;
- where a plan is impatient, the optimistic targets are divided by 1 + impatience u, which is 1 after many visits;
- b = 1 - exp(-log_confidence u) with the leverage u = phi^T V^{-1} phi, whose inverse counts visits: an outcome of a
  larger chance would have been seen; chances below `floor` count as 0.

W is the value of the best policy if one pair (s, a) of an episode had an outcome that no visit showed. It is what
episodes maximise that explore, and W - F bounds what is left to find.

Equal feature rows of a level are kept once, and equal transitions (row, action, next row) once with their number, so
with m rows and t transitions a level a plan costs

    O(H (m K d + t + K s^2))

whatever the number of episodes; where all rows differ, m and t are that number. s <= d is the support of a level and
action: the columns in which a feature of its data is not 0. V is ridge I elsewhere, so its factor is kept on the
support alone.
"""

from cpython.exc cimport PyErr_CheckSignals
from libc.math cimport fabs, sqrt
from libc.stdint cimport int32_t, int64_t, uint64_t
from libc.stdlib cimport calloc, free, malloc, realloc
from libc.string cimport memcmp, memcpy, memset

from dmq_fast.kernels._episode cimport UNCHECKED, Episode
from dmq_fast.kernels._factor cimport dot, solve_factor, solve_factor_transposed, update_factor
from dmq_fast.kernels._fault cimport NONE, SCORE, SLACK
from dmq_fast.kernels._greedy cimport greedy_action
from dmq_fast.kernels._validate cimport entries, flag, integer, number, positive

import numpy as np

from dmq_fast.kernels._validate import as_floats

cdef enum:
    # Rank-one changes of V after which its leverages are computed afresh, to bound rounding.
    REFRESH = 1024
    FIRST_ROOM = 16
    # Rows with at most one entry in so many that is not 0 are kept by entries.
    SPARSE = 4
    # Halvings of the argument of exp, see `chance_of`.
    HALVINGS = 10

# Values that differ by less are equal for the optimistic rule; and how much of a value the leverage decides among them.
cdef double TIE = 1e-9, CURIOSITY = 1e-6

# Equal transitions from a pair, row K + action, to a row of the next level (0 after the last one).
cdef struct Move:
    Py_ssize_t pair
    Py_ssize_t next
    double count
    double least
    double most

# A step of an episode.
cdef struct Step:
    int32_t row
    int32_t action
    double reward

# An entry of a feature row that is not 0.
cdef struct Entry:
    Py_ssize_t column
    double x

cdef struct Level:
    Py_ssize_t n
    Py_ssize_t room
    # (room, d) distinct feature rows, (room,) visits, the most reward collected before, and max_a F and W.
    double* rows
    double* visits
    double* before
    double* plain
    double* hopeful
    # (room, K) leverages, b before the floor, sums of rewards, and the two targets of a plan, then phi^T theta.
    double* leverage
    double* chance
    double* earned
    double* target
    double* hope
    # Where the entries of a row end (room,), those of all rows one after the other. A row of many has none here, and is
    # read from `rows`.
    Py_ssize_t* ends
    Py_ssize_t entry_room
    Entry* entries
    # Open addressing by content: index + 1, or 0; a power of two, at least twice the room.
    Py_ssize_t* slots
    Py_ssize_t n_moves
    Py_ssize_t move_room
    Move* moves
    Py_ssize_t* move_slots
    # (n_episodes,) the steps at this level: plans go through the episodes level by level.
    Step* steps


# U (n, n) in the upper triangle, on the columns (n,) of the support, ascending; sqrt(ridge) I on the others.
cdef struct Factor:
    Py_ssize_t n
    Py_ssize_t* columns
    double* u


cdef void gather(const Factor* factor, const double* x, double scale, double* out) noexcept nogil:
    cdef Py_ssize_t i
    for i in range(factor.n):
        out[i] = scale * x[factor.columns[i]]


cdef void scatter(const Factor* factor, const double* x, double* out) noexcept nogil:
    cdef Py_ssize_t i
    for i in range(factor.n):
        out[factor.columns[i]] = x[i]


cdef void solve_on_support(const Factor* factor, const double* u, double* x, double* work) noexcept nogil:
    # x <- V^{-1} x for an x (d,) that is 0 outside of the support, with a factor u on it.
    gather(factor, x, 1.0, work)
    solve_factor_transposed(u, work, factor.n)
    solve_factor(u, work, factor.n)
    scatter(factor, work, x)


cdef void ridge_alone(double* u, double root, Py_ssize_t n) noexcept nogil:
    cdef Py_ssize_t i
    memset(u, 0, n * n * sizeof(double))
    for i in range(n):
        u[i * n + i] = root


cdef bint widen(Factor* factor, const double* phi, double root, Py_ssize_t d) noexcept nogil:
    # The support takes in the columns of phi. False, and nothing changed, if memory ran out.
    cdef Py_ssize_t n = 0, i, j, old = 0, into
    cdef Py_ssize_t* columns
    cdef Py_ssize_t* place
    cdef double* u
    for j in range(d):
        if old < factor.n and factor.columns[old] == j:
            old += 1
            n += 1
        elif phi[j] != 0.0:
            n += 1
    if n == factor.n:
        return True
    columns, u = <Py_ssize_t*> malloc(2 * n * sizeof(Py_ssize_t)), <double*> malloc(n * n * sizeof(double))
    if columns == NULL or u == NULL:
        free(columns)
        free(u)
        return False
    # Where the old columns go.
    place, old, into = columns + n, 0, 0
    for j in range(d):
        if old < factor.n and factor.columns[old] == j:
            place[old] = into
            old += 1
        elif phi[j] == 0.0:
            continue
        columns[into] = j
        into += 1
    ridge_alone(u, root, n)
    for i in range(factor.n):
        for j in range(i, factor.n):
            u[place[i] * n + place[j]] = factor.u[i * factor.n + j]
    free(factor.columns)
    free(factor.u)
    factor.n, factor.columns, factor.u = n, columns, u
    return True


cdef inline uint64_t mixed(uint64_t x) noexcept nogil:
    x *= <uint64_t> 0xBF58476D1CE4E5B9
    return x ^ (x >> 29)


cdef bint grown(void** block, Py_ssize_t size) noexcept nogil:
    cdef void* more = realloc(block[0], size)
    if more == NULL:
        return False
    block[0] = more
    return True


cdef Py_ssize_t* slot_of(const Level* level, const double* row, Py_ssize_t d) noexcept nogil:
    # The slot of the row, or the empty one that it would take.
    cdef const uint64_t* words = <const uint64_t*> row
    cdef uint64_t x = 0x9E3779B97F4A7C15
    cdef Py_ssize_t i, place, last = 2 * level.room - 1
    for i in range(d):
        x = mixed(x ^ words[i])
    place = <Py_ssize_t> (x & <uint64_t> last)
    while level.slots[place] != 0 and memcmp(level.rows + (level.slots[place] - 1) * d, row, d * sizeof(double)) != 0:
        place = (place + 1) & last
    return level.slots + place


cdef Py_ssize_t* move_slot_of(const Level* level, Py_ssize_t pair, Py_ssize_t following) noexcept nogil:
    cdef Py_ssize_t last = 2 * level.move_room - 1, place
    cdef const Move* move
    place = <Py_ssize_t> (mixed(mixed(<uint64_t> pair + 1) ^ <uint64_t> following) & <uint64_t> last)
    while level.move_slots[place] != 0:
        move = level.moves + level.move_slots[place] - 1
        if move.pair == pair and move.next == following:
            break
        place = (place + 1) & last
    return level.move_slots + place


cdef bint make_room(Level* level, Py_ssize_t n_actions, Py_ssize_t d) noexcept nogil:
    cdef Py_ssize_t room = max(<Py_ssize_t> FIRST_ROOM, 2 * level.room), j
    cdef Py_ssize_t* slots
    cdef double** columns[4]
    cdef double** tables[5]
    columns[0], columns[1], columns[2], columns[3] = &level.visits, &level.before, &level.plain, &level.hopeful
    tables[0], tables[1], tables[2] = &level.leverage, &level.chance, &level.earned
    tables[3], tables[4] = &level.target, &level.hope
    for j in range(4):
        if not grown(<void**> columns[j], room * sizeof(double)):
            return False
    for j in range(5):
        if not grown(<void**> tables[j], room * n_actions * sizeof(double)):
            return False
    if not (grown(<void**> &level.rows, room * d * sizeof(double))
            and grown(<void**> &level.ends, room * sizeof(Py_ssize_t))):
        return False
    slots = <Py_ssize_t*> calloc(2 * room, sizeof(Py_ssize_t))
    if slots == NULL:
        return False
    free(level.slots)
    level.slots, level.room = slots, room
    for j in range(level.n):
        slot_of(level, level.rows + j * d, d)[0] = j + 1
    return True


cdef bint keep_row(Level* level, const double* phi, Py_ssize_t d) noexcept nogil:
    # Row number `level.n` <- phi; `level.n` stays.
    cdef Py_ssize_t i, many = 0, j = level.n, end = level.ends[j - 1] if j > 0 else 0
    for i in range(d):
        many += phi[i] != 0.0
    if SPARSE * many > d:
        many = 0
    if end + many > level.entry_room:
        if not grown(<void**> &level.entries, 2 * (end + many) * sizeof(Entry)):
            return False
        level.entry_room = 2 * (end + many)
    memcpy(level.rows + j * d, phi, d * sizeof(double))
    level.ends[j] = end + many
    if many > 0:
        for i in range(d):
            if phi[i] != 0.0:
                level.entries[end].column, level.entries[end].x = i, phi[i]
                end += 1
    return True


cdef double row_dot(const Level* level, Py_ssize_t j, const double* y, Py_ssize_t d) noexcept nogil:
    # Row j . y.
    cdef Py_ssize_t k, start = level.ends[j - 1] if j > 0 else 0
    cdef double total = 0.0
    if start == level.ends[j]:
        return dot(level.rows + j * d, y, d)
    for k in range(start, level.ends[j]):
        total += level.entries[k].x * y[level.entries[k].column]
    return total


cdef void add_row(double* y, const Level* level, Py_ssize_t j, double scale, Py_ssize_t d) noexcept nogil:
    # y <- y + scale row j.
    cdef Py_ssize_t k, start = level.ends[j - 1] if j > 0 else 0
    if start == level.ends[j]:
        for k in range(d):
            y[k] += scale * level.rows[j * d + k]
        return
    for k in range(start, level.ends[j]):
        y[level.entries[k].column] += scale * level.entries[k].x


cdef bint make_room_for_moves(Level* level) noexcept nogil:
    cdef Py_ssize_t room = max(<Py_ssize_t> FIRST_ROOM, 2 * level.move_room), i
    cdef Py_ssize_t* slots
    if not grown(<void**> &level.moves, room * sizeof(Move)):
        return False
    slots = <Py_ssize_t*> calloc(2 * room, sizeof(Py_ssize_t))
    if slots == NULL:
        return False
    free(level.move_slots)
    level.move_slots, level.move_room = slots, room
    for i in range(level.n_moves):
        move_slot_of(level, level.moves[i].pair, level.moves[i].next)[0] = i + 1
    return True


cdef bint add_move(Level* level, Py_ssize_t pair, Py_ssize_t following, double reward) noexcept nogil:
    cdef Py_ssize_t* slot
    cdef Move* move
    if level.n_moves == level.move_room and not make_room_for_moves(level):
        return False
    slot = move_slot_of(level, pair, following)
    if slot[0] == 0:
        move = level.moves + level.n_moves
        move.pair, move.next, move.count, move.least, move.most = pair, following, 0.0, reward, reward
        level.n_moves += 1
        slot[0] = level.n_moves
    move = level.moves + slot[0] - 1
    move.count += 1.0
    move.least, move.most = min(move.least, reward), max(move.most, reward)
    level.earned[pair] += reward
    return True


cdef double chance_of(double x) noexcept nogil:
    # 1 - exp(-x) for x >= 0, in operations that give the same bits on every machine: a series, then
    # exp(-2y) - 1 = m (2 + m) for m = exp(-y) - 1.
    cdef double y = x * (1.0 / (1 << HALVINGS)), m
    cdef int _halving
    if not x < 40.0:
        return 1.0
    m = 1.0 - y * (1.0 / 4) * (1.0 - y * (1.0 / 5) * (1.0 - y * (1.0 / 6)))
    m = -y * (1.0 - y * (1.0 / 2) * (1.0 - y * (1.0 / 3) * m))
    for _halving in range(HALVINGS):
        m *= 2.0 + m
    return -m


cdef inline double clip(double x, double most) noexcept nogil:
    return 0.0 if not x > 0.0 else min(x, most)


cdef class OptimisticPlanner:
    """The data of a run, and the plans made from them.

    Parameters
    ----------
    horizon, n_actions, dimension : int
        H, K and d.
    ridge : float
        > 0, added to the sums of squares.
    log_confidence : float
        > 0: after v visits an outcome of a chance above 1 - exp(-log_confidence / v) counts as excluded.

    Attributes
    ----------
    horizon, n_actions, dimension : int
    n_episodes : int
        Episodes played or added so far.
    rewarded : bool
        Whether any of them earned anything.
    """

    cdef readonly Py_ssize_t horizon, n_actions, dimension, n_episodes
    cdef readonly bint rewarded
    cdef double ridge, log_confidence, floor, impatience
    # Whether theta, omega and the tables of values are those of all episodes.
    cdef bint planned
    cdef bint busy
    cdef Level* levels
    # Of the steps of each level.
    cdef Py_ssize_t room
    cdef object _theta, _omega, _scratch, _since
    # (H, K) factors; estimates (H, K, d).
    cdef Factor* factors
    cdef double* theta
    cdef double* omega
    # (H, d) features of an episode, (d,), (d,), (K,), (H,) rewards.
    cdef double* record
    cdef double* x
    cdef double* w
    cdef double* scores
    cdef double* rewards
    cdef int64_t[::1] actions
    # (H, K) rank-one changes since leverages were computed afresh.
    cdef int64_t[:, ::1] since

    def __cinit__(self, horizon, n_actions, dimension, ridge, log_confidence):
        cdef Py_ssize_t most = (<Py_ssize_t> 1 << 31) - 1, d
        self.horizon, self.n_actions = integer(horizon, "horizon", 1, most), integer(n_actions, "n_actions", 1, most)
        self.dimension = d = integer(dimension, "dimension", 1, most)
        self.ridge, self.log_confidence = positive(ridge, "ridge"), positive(log_confidence, "log_confidence")
        self.levels = <Level*> calloc(self.horizon, sizeof(Level))
        self.factors = <Factor*> calloc(self.horizon * self.n_actions, sizeof(Factor))
        if self.levels == NULL or self.factors == NULL:
            raise MemoryError()
        self._theta = np.zeros((self.horizon, self.n_actions, d))
        self._omega = np.zeros((self.horizon, self.n_actions, d))
        self._scratch = np.zeros((self.horizon + 2) * d + self.n_actions + self.horizon)
        self.theta, self.omega = entries(self._theta), entries(self._omega)
        self.record = entries(self._scratch)
        self.x = self.record + self.horizon * d
        self.w = self.x + d
        self.scores = self.w + d
        self.rewards = self.scores + self.n_actions
        self.actions = np.zeros(self.horizon, dtype=np.int64)
        self.since = np.zeros((self.horizon, self.n_actions), dtype=np.int64)

    def __dealloc__(self):
        cdef Py_ssize_t h
        cdef Level* level
        if self.levels != NULL:
            for h in range(self.horizon):
                level = self.levels + h
                free(level.rows)
                free(level.ends)
                free(level.entries)
                free(level.visits)
                free(level.before)
                free(level.plain)
                free(level.hopeful)
                free(level.leverage)
                free(level.chance)
                free(level.earned)
                free(level.target)
                free(level.hope)
                free(level.slots)
                free(level.moves)
                free(level.move_slots)
                free(level.steps)
        if self.factors != NULL:
            for h in range(self.horizon * self.n_actions):
                free(self.factors[h].columns)
                free(self.factors[h].u)
        free(self.factors)
        free(self.levels)

    # Checks at the border of Python

    cdef int begin_work(self) except -1:
        if self.busy:
            raise RuntimeError("planner: in use by another thread; give every thread its own")
        self.busy = True
        return 0

    cdef object as_theta(self, theta):
        return as_floats("theta", theta, (self.horizon, self.n_actions, self.dimension))

    cdef object as_episodes(self, episodes):
        given = np.ascontiguousarray(episodes)
        if given.ndim != 1 or (given.size and given.dtype.kind not in "iu"):
            raise TypeError(f"episodes: expected integers in one dimension, got shape {given.shape}, {given.dtype}")
        if given.size and not (0 <= given.min() and given.max() < self.n_episodes):
            raise ValueError(
                f"episodes: expected numbers in [0, {self.n_episodes}), got {given.min()} to {given.max()}"
            )
        return given.astype(np.int64, copy=False)

    cdef int must_be_planned(self) except -1:
        if not self.planned:
            raise RuntimeError("planner: expected a call of `plan` after the last episode")
        return 0

    cdef Level* level_at(self, level) except NULL:
        return self.levels + integer(level, "level", 0, self.horizon - 1)

    # Attributes, copies

    @property
    def theta(self):
        """Estimates theta of the last plan, a copy, shape (H, K, d)."""
        return self._theta.copy()

    @property
    def omega(self):
        """Optimistic estimates of the last plan, a copy, shape (H, K, d)."""
        return self._omega.copy()

    @property
    def n_rows(self):
        """Number of distinct feature rows, by level."""
        return tuple([self.levels[h].n for h in range(self.horizon)])

    def rows(self, level, first=0):
        """Return the distinct feature rows of a level from number `first` on, in order of appearance, shape (m, d)."""
        cdef Level* at = self.level_at(level)
        cdef Py_ssize_t start = integer(first, "first", 0, at.n)
        return copied(at.rows + start * self.dimension, (at.n - start) * self.dimension).reshape(-1, self.dimension)

    def recorded(self, first):
        """Return the episodes from number `first` on: numbers of their rows (n, H), actions (n, H), rewards (n, H)."""
        cdef Py_ssize_t start = integer(first, "first", 0, self.n_episodes), e, h
        shape = (self.n_episodes - start, self.horizon)
        rows, actions, rewards = np.empty(shape, np.int64), np.empty(shape, np.int64), np.empty(shape)
        cdef int64_t[:, ::1] row = rows, action = actions
        cdef double[:, ::1] reward = rewards
        cdef Step step
        for e in range(self.n_episodes - start):
            for h in range(self.horizon):
                step = self.levels[h].steps[start + e]
                row[e, h], action[e, h], reward[e, h] = step.row, step.action, step.reward
        return rows, actions, rewards

    def table(self, level):
        """Return leverages (m, K), the rewards collected before (m,), and max_a F and max_a W (m,) of the last plan."""
        cdef Level* at = self.level_at(level)
        self.must_be_planned()
        leverage = copied(at.leverage, at.n * self.n_actions).reshape(at.n, self.n_actions)
        return leverage, copied(at.before, at.n), copied(at.plain, at.n), copied(at.hopeful, at.n)

    def returns(self, episodes):
        """Return the sums of rewards of some episodes, shape (n,)."""
        chosen = self.as_episodes(episodes)
        cdef const int64_t[::1] index = chosen
        cdef double[::1] out = np.zeros(len(chosen))
        cdef Py_ssize_t i, h
        for i in range(index.shape[0]):
            for h in range(self.horizon):
                out[i] += self.levels[h].steps[index[i]].reward
        return np.asarray(out)

    # Episodes

    def play(self, Episode episode not None, n, theta=None, level=0):
        """Play n episodes, and add them to the data. Episode e draws from call e, e the number of those so far.

        Parameters
        ----------
        episode : Episode
        n : int
        theta : numpy.ndarray of shape (H, K, d), optional
            Actions are greedy on it before `level`; needed if `level` > 0.
        level : int, default 0
            Level in [0, H] from which on actions are optimistic.

        Raises
        ------
        ValueError, RuntimeError, ArithmeticError
            As `CompiledModel.rollout` does, naming level and call, which is the episode.
        MemoryError
            When the data do not fit.
        KeyboardInterrupt
            On Ctrl-C, between two episodes.
        """
        cdef Py_ssize_t left = integer(n, "n", 0, (<Py_ssize_t> 1 << 62)), unchecked
        cdef Py_ssize_t first = integer(level, "level", 0, self.horizon)
        cdef Py_ssize_t work = self.horizon * self.n_actions * (self.dimension + 32) * self.dimension
        cdef double* greedy = NULL
        cdef bint well = True
        sizes = (episode.horizon, episode.n_actions, episode.dimension)
        if sizes != (self.horizon, self.n_actions, self.dimension):
            raise ValueError(
                f"episode: expected H, K, d = {(self.horizon, self.n_actions, self.dimension)}, got {sizes}"
            )
        if theta is not None:
            given = self.as_theta(theta)
            greedy = entries(given)
        elif first > 0:
            raise ValueError(f"theta: expected estimates for the levels before {first}, got None")
        self.begin_work()
        try:
            while left > 0:
                unchecked = 0
                with nogil:
                    while left > 0 and unchecked < UNCHECKED:
                        well = self.act_out(episode, greedy, first) and self.absorb()
                        if not well:
                            break
                        left -= 1
                        unchecked += work
                if not well:
                    raise episode.explained() if episode.stop.fault != NONE else MemoryError()
                PyErr_CheckSignals()
        finally:
            self.busy = False

    cdef bint act_out(self, Episode episode, const double* greedy, Py_ssize_t first) noexcept nogil:
        # The record of an episode that is played now.
        cdef Py_ssize_t h, a, i, d = self.dimension
        cdef double u, best
        cdef double* phi
        if not episode.begin(self.n_episodes):
            return False
        for h in range(self.horizon):
            if not episode.observe():
                return False
            phi = self.record + h * d
            for i in range(d):
                phi[i] = episode.phi[i] + 0.0  # -0.0 and 0.0 become one row
            if h < first:
                a = greedy_action(phi, greedy + h * self.n_actions * d, self.n_actions, d, &best)
                if a < 0:
                    return episode.fail(SCORE, 0, best)
            else:
                episode.draw(&u, 1)
                a = self.optimist(h, phi, episode.earned, u)
            if not episode.move(a):
                return False
            self.actions[h], self.rewards[h] = a, episode.reward
        return True

    def add(self, features, actions, rewards):
        """Add an episode that was played elsewhere.

        Parameters
        ----------
        features : numpy.ndarray, shape (H, d)
        actions : numpy.ndarray of int, shape (H,)
        rewards : numpy.ndarray, shape (H,)
            >= 0, with a sum of at most 1.

        Raises
        ------
        TypeError, ValueError
            On an argument of a wrong type, shape or range; nothing is added.
        """
        cdef Py_ssize_t h
        cdef bint well
        phi = as_floats("features", features, (self.horizon, self.dimension)) + 0.0
        paid = as_floats("rewards", rewards, (self.horizon,))
        taken = np.ascontiguousarray(actions)
        if taken.shape != (self.horizon,) or taken.dtype.kind not in "iu":
            raise TypeError(f"actions: expected {self.horizon} integers, got shape {taken.shape}, {taken.dtype}")
        if not (0 <= taken.min() and taken.max() < self.n_actions):
            raise ValueError(f"actions: expected integers in [0, {self.n_actions}), got {taken}")
        if not (paid.min() >= 0.0 and paid.sum() <= 1.0 + SLACK):
            raise ValueError(f"rewards: expected numbers >= 0 with a sum of at most 1, got {paid}")
        self.begin_work()
        memcpy(self.record, entries(phi), self.horizon * self.dimension * sizeof(double))
        for h in range(self.horizon):
            self.actions[h], self.rewards[h] = taken[h], paid[h]
        with nogil:
            well = self.absorb()
        self.busy = False
        if not well:
            raise MemoryError()

    cdef inline Factor* factor(self, Py_ssize_t h, Py_ssize_t a) noexcept nogil:
        return self.factors + h * self.n_actions + a

    cdef double leverage(self, Py_ssize_t h, Py_ssize_t a, const double* phi) noexcept nogil:
        cdef const Factor* factor = self.factor(h, a)
        cdef Py_ssize_t j, i = 0
        cdef double outside = 0.0, root = sqrt(self.ridge)
        gather(factor, phi, 1.0, self.w)
        solve_factor_transposed(factor.u, self.w, factor.n)
        for j in range(self.dimension):
            if i < factor.n and factor.columns[i] == j:
                i += 1
            elif phi[j] != 0.0:
                outside += (phi[j] / root) * (phi[j] / root)
        return dot(self.w, self.w, factor.n) + outside

    cdef bint absorb(self) noexcept nogil:
        # The recorded episode enters the data.
        cdef Py_ssize_t horizon = self.horizon, n_actions = self.n_actions, h, j, room, e = self.n_episodes
        cdef double earned = 0.0
        cdef Level* level
        cdef Step* step
        self.planned = False
        if e == self.room:
            room = max(<Py_ssize_t> FIRST_ROOM, 2 * self.room)
            for h in range(horizon):
                if not grown(<void**> &self.levels[h].steps, room * sizeof(Step)):
                    return False
            self.room = room
        for h in range(horizon):
            j = self.find(h, self.record + h * self.dimension)
            if j < 0:
                return False
            level = self.levels + h
            level.visits[j] += 1.0
            level.before[j] = max(level.before[j], earned)
            earned += self.rewards[h]
            step = level.steps + e
            step.row, step.action, step.reward = <int32_t> j, <int32_t> self.actions[h], self.rewards[h]
            if not self.enter(h, self.actions[h], self.record + h * self.dimension):
                return False
        for h in range(horizon):
            step = self.levels[h].steps + e
            j = self.levels[h + 1].steps[e].row if h + 1 < horizon else 0
            if not add_move(self.levels + h, step.row * n_actions + step.action, j, step.reward):
                return False
        self.rewarded = self.rewarded or earned > 0.0
        self.n_episodes += 1
        return True

    cdef Py_ssize_t find(self, Py_ssize_t h, const double* phi) noexcept nogil:
        # The index of a row of level h, which is stored if it is new; -1 if memory ran out.
        cdef Py_ssize_t a, j, n_actions = self.n_actions, d = self.dimension
        cdef Level* level = self.levels + h
        cdef Py_ssize_t* slot
        if level.n == level.room and not make_room(level, n_actions, d):
            return -1
        slot = slot_of(level, phi, d)
        if slot[0] == 0:
            j = level.n
            if not keep_row(level, phi, d):
                return -1
            level.visits[j] = level.before[j] = level.plain[j] = level.hopeful[j] = 0.0
            for a in range(n_actions):
                level.earned[j * n_actions + a] = 0.0
                self.set_leverage(h, j, a, self.leverage(h, a, phi))
            level.n += 1
            slot[0] = level.n
        return slot[0] - 1

    cdef inline void set_leverage(self, Py_ssize_t h, Py_ssize_t j, Py_ssize_t a, double u) noexcept nogil:
        cdef Level* level = self.levels + h
        level.leverage[j * self.n_actions + a] = u
        level.chance[j * self.n_actions + a] = chance_of(self.log_confidence * u)

    cdef bint enter(self, Py_ssize_t h, Py_ssize_t a, const double* phi) noexcept nogil:
        # V <- V + phi phi^T, and u_j <- u_j - (phi_j . x)^2 / (1 + phi . x) with x = V^{-1} phi.
        cdef Py_ssize_t j, n_actions = self.n_actions, d = self.dimension
        cdef Level* level = self.levels + h
        cdef Factor* factor = self.factor(h, a)
        cdef double denominator, t, u
        if not widen(factor, phi, sqrt(self.ridge), d):
            return False
        memcpy(self.x, phi, d * sizeof(double))
        solve_on_support(factor, factor.u, self.x, self.w)
        gather(factor, phi, 1.0, self.w)
        update_factor(factor.u, self.w, factor.n)
        self.since[h, a] += 1
        denominator = 1.0 + dot(self.x, phi, d)
        if self.since[h, a] == REFRESH:
            self.since[h, a] = 0
        for j in range(level.n):
            t = row_dot(level, j, self.x, d)
            u = level.leverage[j * n_actions + a] - t * t / denominator
            # After most of a leverage has gone the difference has lost digits.
            if self.since[h, a] == 0 or u < 0.5 * level.leverage[j * n_actions + a]:
                u = self.leverage(h, a, level.rows + j * d)
            if t != 0.0 or self.since[h, a] == 0:
                self.set_leverage(h, j, a, u)
        return True

    # Plans

    def plan(self, floor, impatience=0.0):
        """Make the backward pass on all episodes so far.

        Parameters
        ----------
        floor : float
            In [0, 1]: smaller chances of an outcome that was never seen count as 0.
        impatience : float, default 0
            >= 0: the share of an imagined value that is lost by a step tried once on the way to it. With some, near
            outcomes are looked for first; W then bounds values only up to this share a level.

        Returns
        -------
        gap : float
            Mean of max_a W - max_a F over the first states of all episodes, 1 if there are none.
        residual : float
            Largest |r + max_b F_{h+1}(s', b) - phi^T theta_h^a| of a transition.
        """
        cdef double gap = 1.0, residual
        cdef double least = number(floor, "floor"), lost = number(impatience, "impatience")
        cdef Py_ssize_t j
        cdef Level* first = self.levels
        if not 0.0 <= least <= 1.0:
            raise ValueError(f"floor: expected a number in [0, 1], got {floor!r}")
        if not lost >= 0.0:
            raise ValueError(f"impatience: expected a number >= 0, got {impatience!r}")
        self.begin_work()
        with nogil:
            self.floor, self.impatience = least, lost
            residual = self.backward()
            if self.n_episodes > 0:
                gap = 0.0
                for j in range(first.n):
                    gap += first.visits[j] * (first.hopeful[j] - first.plain[j])
                gap /= self.n_episodes
        self.planned = True
        self.busy = False
        return gap, residual

    cdef double backward(self) noexcept nogil:
        cdef Py_ssize_t h, a, j, p, t, n_actions = self.n_actions, d = self.dimension
        cdef double largest = 0.0, most, q, f, value
        cdef double* theta
        cdef double* omega
        cdef Level* level
        cdef Level* following
        cdef const Move* move
        for h in range(self.horizon - 1, -1, -1):
            level, following = self.levels + h, self.levels + h + 1
            theta, omega = self.theta + h * n_actions * d, self.omega + h * n_actions * d
            if level.n > 0:  # before the first episode there is nothing to copy, nor a place for it
                memcpy(level.target, level.earned, level.n * n_actions * sizeof(double))
                memcpy(level.hope, level.earned, level.n * n_actions * sizeof(double))
            if h + 1 < self.horizon:
                for t in range(level.n_moves):
                    move = level.moves + t
                    level.target[move.pair] += move.count * following.plain[move.next]
                    level.hope[move.pair] += move.count * following.hopeful[move.next]
            memset(theta, 0, n_actions * d * sizeof(double))
            memset(omega, 0, n_actions * d * sizeof(double))
            for j in range(level.n):
                for a in range(n_actions):
                    p = j * n_actions + a
                    if level.hope[p] != 0.0 or level.target[p] != 0.0:
                        level.hope[p] /= 1.0 + self.impatience * level.leverage[p]
                        add_row(theta + a * d, level, j, level.target[p], d)
                        add_row(omega + a * d, level, j, level.hope[p], d)
            for a in range(n_actions):
                self.solve(h, a, theta + a * d)
                self.solve(h, a, omega + a * d)
            for j in range(level.n):
                most = ceiling(level.before[j])
                level.plain[j] = level.hopeful[j] = 0.0
                for a in range(n_actions):
                    p = j * n_actions + a
                    q = level.target[p] = row_dot(level, j, theta + a * d, d)
                    f = clip(q, most)
                    level.plain[j] = max(level.plain[j], f)
                    value = self.hoped(f, level.chance[p], row_dot(level, j, omega + a * d, d), most)
                    level.hopeful[j] = max(level.hopeful[j], value)
            for t in range(level.n_moves):
                move = level.moves + t
                value = following.plain[move.next] if h + 1 < self.horizon else 0.0
                value -= level.target[move.pair]
                largest = max(largest, max(fabs(move.most + value), fabs(move.least + value)))
        return largest

    cdef inline void solve(self, Py_ssize_t h, Py_ssize_t a, double* moment) noexcept nogil:
        cdef const Factor* factor = self.factor(h, a)
        solve_on_support(factor, factor.u, moment, self.w)

    cdef inline double hoped(self, double f, double chance, double later, double most) noexcept nogil:
        # W of a pair whose F is f and whose phi^T omega is `later`.
        return clip(max(f + (chance if chance >= self.floor else 0.0) * (most - f), later), most)

    def choose(self, level, features, earned, u):
        """Return the action of the optimistic rule in a state: largest W, then largest leverage, then at random.

        Parameters
        ----------
        level : int
        features : numpy.ndarray, shape (d,)
        earned : float
            What this episode has earned before, which counts where the table knows no more.
        u : float
            A uniform in [0, 1), for ties.
        """
        cdef Py_ssize_t h = integer(level, "level", 0, self.horizon - 1)
        cdef double before = number(earned, "earned"), uniform = number(u, "u")
        phi = as_floats("features", features, (self.dimension,)) + 0.0
        if not (before >= 0.0 and 0.0 <= uniform < 1.0):
            raise ValueError(f"earned, u: expected a number >= 0 and one in [0, 1), got {earned!r}, {u!r}")
        return self.optimist(h, entries(phi), before, uniform)

    cdef Py_ssize_t optimist(self, Py_ssize_t h, const double* phi, double earned, double u) noexcept nogil:
        cdef Py_ssize_t a, j = -1, count = 0, chosen, n_actions = self.n_actions, d = self.dimension
        cdef Level* level = self.levels + h
        cdef double best = 0.0, most, leverage, chance
        if level.room > 0:
            j = slot_of(level, phi, d)[0] - 1
        most = ceiling(max(earned, level.before[j]) if j >= 0 else earned)
        for a in range(n_actions):
            if j >= 0:
                leverage, chance = level.leverage[j * n_actions + a], level.chance[j * n_actions + a]
            else:
                leverage = self.leverage(h, a, phi)
                chance = chance_of(self.log_confidence * leverage)
            self.scores[a] = self.hoped(
                clip(dot(phi, self.theta + (h * n_actions + a) * d, d), most), chance,
                dot(phi, self.omega + (h * n_actions + a) * d, d), most
            ) + CURIOSITY * leverage / (1.0 + leverage)
            best = max(best, self.scores[a])
        for a in range(n_actions):
            count += self.scores[a] >= best - TIE
        chosen = <Py_ssize_t> (u * count)
        for a in range(n_actions):
            if self.scores[a] >= best - TIE:
                if chosen == 0:
                    return a
                chosen -= 1
        return n_actions - 1

    # What the plans and other estimates make of episodes

    def gaps(self, episodes):
        """Return max_a W - max_a F in the states of some episodes, shape (n, H)."""
        chosen = self.as_episodes(episodes)
        self.must_be_planned()
        cdef const int64_t[::1] index = chosen
        cdef double[:, ::1] out = np.zeros((len(chosen), self.horizon))
        cdef Py_ssize_t i, h, j
        for i in range(index.shape[0]):
            for h in range(self.horizon):
                j = self.levels[h].steps[index[i]].row
                out[i, h] = self.levels[h].hopeful[j] - self.levels[h].plain[j]
        return np.asarray(out)

    def predicted(self, episodes, theta=None):
        """Return max_a F of the first states of some episodes, or max_a clip(phi^T theta_0^a, 0, 1), shape (n,)."""
        chosen = self.as_episodes(episodes)
        cdef const int64_t[::1] index = chosen
        cdef double[::1] out = np.zeros(len(chosen))
        cdef double best
        cdef Py_ssize_t i, j
        cdef double* weights = NULL
        if theta is None:
            self.must_be_planned()
        else:
            given = self.as_theta(theta)
            weights = entries(given)
        for i in range(index.shape[0]):
            j = self.levels[0].steps[index[i]].row
            if weights == NULL:
                out[i] = self.levels[0].plain[j]
            else:
                greedy_action(
                    self.levels[0].rows + j * self.dimension, weights, self.n_actions, self.dimension, &best
                )
                out[i] = clip(best, 1.0)
        return np.asarray(out)

    cdef Py_ssize_t most_rows(self) noexcept nogil:
        cdef Py_ssize_t h, most = 1
        for h in range(self.horizon):
            most = max(most, self.levels[h].n)
        return most

    def regret(self, theta, episodes):
        """Return the loss by the actions of some episodes if Q_h(s, a) = clip(phi^T theta_h^a, 0, 1).

        The mean over the episodes (at least one) of the sum over the levels of max_a Q_h(s_h, a) - Q_h(s_h, a_h).
        """
        given, chosen = self.as_theta(theta), self.as_episodes(episodes)
        if len(chosen) == 0:
            raise ValueError("episodes: expected at least one, got none")
        cdef const double* weights = entries(given)
        cdef const int64_t[::1] index = chosen
        cdef double[::1] counts = np.empty(self.most_rows() * self.n_actions)
        cdef double total = 0.0
        self.begin_work()
        with nogil:
            total = self.lost(weights, index, counts)
        self.busy = False
        return total / len(chosen)

    cdef double lost(self, const double* weights, const int64_t[::1] index, double[::1] counts) noexcept nogil:
        cdef Py_ssize_t h, i, a, j, n_actions = self.n_actions, d = self.dimension
        cdef double total = 0.0, best, visits
        cdef Level* level
        cdef const Step* step
        for h in range(self.horizon):
            level = self.levels + h
            memset(&counts[0], 0, level.n * n_actions * sizeof(double))
            for i in range(index.shape[0]):
                step = level.steps + index[i]
                counts[step.row * n_actions + step.action] += 1.0
            for j in range(level.n):
                visits = 0.0
                for a in range(n_actions):
                    visits += counts[j * n_actions + a]
                if visits == 0.0:
                    continue
                best = 0.0
                for a in range(n_actions):
                    self.scores[a] = clip(row_dot(level, j, weights + (h * n_actions + a) * d, d), 1.0)
                    best = max(best, self.scores[a])
                for a in range(n_actions):
                    total += counts[j * n_actions + a] * (best - self.scores[a])
        return total

    def hindsight(self, theta):
        """Return the numbers of the episodes whose actions are all those that are greedy on theta, ascending."""
        cdef Py_ssize_t h, j, e, start, n_actions = self.n_actions, d = self.dimension
        cdef double best
        cdef const Step* step
        given = self.as_theta(theta)
        cdef const double* weights = entries(given)
        cdef int64_t[::1] greedy = np.empty(max(1, sum(self.n_rows)), dtype=np.int64)
        cdef unsigned char[::1] same = np.ones(self.n_episodes, dtype=np.uint8)
        self.begin_work()
        with nogil:
            start = 0
            for h in range(self.horizon):
                for j in range(self.levels[h].n):
                    greedy[start + j] = greedy_action(
                        self.levels[h].rows + j * d, weights + h * n_actions * d, n_actions, d, &best
                    )
                for e in range(self.n_episodes):
                    step = self.levels[h].steps + e
                    if greedy[start + step.row] != step.action:
                        same[e] = 0
                start += self.levels[h].n
        self.busy = False
        return np.flatnonzero(np.asarray(same))

    def replicate(self, weights, returns=False, near=0.0):
        """Return the plain estimates if episode e counted weights[e] times, shape (H, K, d).

        Values are clipped to [0, 1] instead of [0, c]: with weights Exp(1) this is a Bayesian bootstrap.

        Parameters
        ----------
        weights : numpy.ndarray, shape (n_episodes,)
            >= 0.
        returns : bool, default False
            Targets are what the episode earned until its first action that is not greedy on these estimates, plus the
            value there (Watkins): values of states that the features take for one are told apart by their returns.
        near : float, default 0
            With `returns`, an action worth less than the greedy one by at most so much does not end the returns: they
            go on, and the difference is added. That leaves their mean as it is where the estimates are right.
        """
        given = as_floats("weights", weights, (self.n_episodes,))
        if given.size and given.min() < 0.0:
            raise ValueError(f"weights: expected numbers >= 0, got {given.min()}")
        cdef Py_ssize_t most = self.most_rows()
        cdef const double[::1] by_episode = given
        estimates = np.zeros((self.horizon, self.n_actions, self.dimension))
        cdef double[::1] gram = np.empty(self.dimension * self.dimension)
        cdef double[:, ::1] pairs = np.empty((2, most * self.n_actions))
        cdef double[:, ::1] values = np.zeros((2, most))
        cdef bint carried = flag(returns, "returns")
        cdef double slack = number(near, "near")
        cdef double[::1] carry = np.zeros(self.n_episodes if carried else 0)
        cdef int64_t[::1] greedy = np.zeros(most, dtype=np.int64)
        cdef double* theta = entries(estimates)
        self.begin_work()
        with nogil:
            if self.n_episodes > 0:
                self.refit(&by_episode[0], theta, &gram[0], pairs, values, greedy, carry, slack)
        self.busy = False
        return estimates

    def imagine(self, weights, floor):
        """Plan as if episode e had counted weights[e] times, for the next episodes played.

        Leverages, and so what may be hidden, stay those of the episodes themselves. The next `plan` undoes it.

        Parameters
        ----------
        weights : numpy.ndarray, shape (n_episodes,)
            >= 0.
        floor : float
            As in `plan`.

        Returns
        -------
        plain, hopeful : float
            Means of max_a F and max_a W over the first states of all episodes; 0 and 1 if there are none.
        """
        given = as_floats("weights", weights, (self.n_episodes,))
        if given.size and given.min() < 0.0:
            raise ValueError(f"weights: expected numbers >= 0, got {given.min()}")
        cdef double least = number(floor, "floor"), plain = 0.0, hopeful = 1.0
        if not 0.0 <= least <= 1.0:
            raise ValueError(f"floor: expected a number in [0, 1], got {floor!r}")
        cdef const double[::1] by_episode = given
        cdef double[:, ::1] pairs = np.empty((3, self.most_rows() * self.n_actions))
        cdef double[::1] factor = np.empty(self.dimension * self.dimension)
        cdef Py_ssize_t j
        cdef Level* first = self.levels
        self.begin_work()
        with nogil:
            self.planned, self.floor = False, least
            if self.n_episodes > 0:
                self.reimagine(&by_episode[0], pairs, &factor[0])
                hopeful = 0.0
                for j in range(first.n):
                    plain += first.visits[j] * first.plain[j]
                    hopeful += first.visits[j] * first.hopeful[j]
                plain, hopeful = plain / self.n_episodes, hopeful / self.n_episodes
        self.busy = False
        return plain, hopeful

    cdef void reimagine(self, const double* weights, double[:, ::1] pairs, double* factor) noexcept nogil:
        # `pairs` has the sums of weights, of plain and of optimistic targets.
        cdef Py_ssize_t h, e, a, i, j, p, n_actions = self.n_actions, d = self.dimension
        cdef double y, z, f, most
        cdef double* theta
        cdef double* omega
        cdef const double* phi
        cdef const Factor* support
        cdef Level* level
        cdef Level* following
        for h in range(self.horizon - 1, -1, -1):
            level, following = self.levels + h, self.levels + h + 1
            for i in range(3):
                memset(&pairs[i, 0], 0, level.n * n_actions * sizeof(double))
            for e in range(self.n_episodes):
                p = level.steps[e].row * n_actions + level.steps[e].action
                y = z = level.steps[e].reward
                if h + 1 < self.horizon:
                    y += following.plain[following.steps[e].row]
                    z += following.hopeful[following.steps[e].row]
                pairs[0, p] += weights[e]
                pairs[1, p] += weights[e] * y
                pairs[2, p] += weights[e] * z
            for a in range(n_actions):
                theta, omega = self.theta + (h * n_actions + a) * d, self.omega + (h * n_actions + a) * d
                memset(theta, 0, d * sizeof(double))
                memset(omega, 0, d * sizeof(double))
                support = self.factor(h, a)
                ridge_alone(factor, sqrt(self.ridge), support.n)
                for j in range(level.n):
                    p, phi = j * n_actions + a, level.rows + j * d
                    if pairs[0, p] == 0.0:
                        continue
                    add_row(theta, level, j, pairs[1, p], d)
                    add_row(omega, level, j, pairs[2, p], d)
                    gather(support, phi, sqrt(pairs[0, p]), self.w)
                    update_factor(factor, self.w, support.n)
                solve_on_support(support, factor, theta, self.w)
                solve_on_support(support, factor, omega, self.w)
            theta, omega = self.theta + h * n_actions * d, self.omega + h * n_actions * d
            for j in range(level.n):
                most = ceiling(level.before[j])
                level.plain[j] = level.hopeful[j] = 0.0
                for a in range(n_actions):
                    f = clip(row_dot(level, j, theta + a * d, d), most)
                    level.plain[j] = max(level.plain[j], f)
                    z = self.hoped(f, level.chance[j * n_actions + a], row_dot(level, j, omega + a * d, d), most)
                    level.hopeful[j] = max(level.hopeful[j], z)

    cdef void refit(
        self, const double* weights, double* theta, double* gram, double[:, ::1] pairs, double[:, ::1] values,
        int64_t[::1] greedy, double[::1] carry, double near
    ) noexcept nogil:
        # `values` has the values of the next level's rows in row (h + 1) % 2, `greedy` their actions. `carry` has the
        # targets of the next level by episode, or no entries.
        cdef Py_ssize_t h, e, a, j, p, horizon = self.horizon, n_actions = self.n_actions, d = self.dimension
        cdef double y, count, best, less
        cdef double* moment
        cdef const double* phi
        cdef const Factor* support
        cdef Level* level
        cdef Level* following
        for h in range(horizon - 1, -1, -1):
            level, following = self.levels + h, self.levels + h + 1
            memset(&pairs[0, 0], 0, level.n * n_actions * sizeof(double))
            memset(&pairs[1, 0], 0, level.n * n_actions * sizeof(double))
            for e in range(self.n_episodes):
                y = level.steps[e].reward
                if h + 1 < horizon:
                    less, j = -1.0, following.steps[e].row
                    if carry.shape[0] > 0:
                        less = 0.0
                        if greedy[j] != following.steps[e].action:
                            moment = theta + ((h + 1) * n_actions + following.steps[e].action) * d
                            less = values[(h + 1) % 2, j] - clip(row_dot(following, j, moment, d), 1.0)
                            if less > near:
                                less = -1.0
                    y += carry[e] + less if less >= 0.0 else values[(h + 1) % 2, j]
                if carry.shape[0] > 0:
                    carry[e] = y
                p = level.steps[e].row * n_actions + level.steps[e].action
                pairs[0, p] += weights[e]
                pairs[1, p] += weights[e] * y
            for a in range(n_actions):
                moment = theta + (h * n_actions + a) * d
                # Rows are rotated in: a sum of squares would lose what is shorter than the root of the rounding.
                support = self.factor(h, a)
                ridge_alone(gram, sqrt(self.ridge), support.n)
                for j in range(level.n):
                    count, phi = pairs[0, j * n_actions + a], level.rows + j * d
                    if count == 0.0:
                        continue
                    add_row(moment, level, j, pairs[1, j * n_actions + a], d)
                    gather(support, phi, sqrt(count), self.w)
                    update_factor(gram, self.w, support.n)
                solve_on_support(support, gram, moment, self.w)
            for j in range(level.n):
                greedy[j] = greedy_action(level.rows + j * d, theta + h * n_actions * d, n_actions, d, &best)
                values[h % 2, j] = clip(best, 1.0)


cdef inline double ceiling(double before) noexcept nogil:
    # What can still be earned after so much.
    return max(0.0, 1.0 - before)


cdef object copied(const double* x, Py_ssize_t n):
    out = np.empty(n)
    if n > 0:  # before the first episode x is NULL
        memcpy(entries(out), x, n * sizeof(double))
    return out
