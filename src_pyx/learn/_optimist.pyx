"""Optimistic planning from all episodes so far, with at most one outcome imagined that was never seen.

A backward pass over the levels fits two values to the transitions of a run, with V = ridge I + sum phi phi^T,

    plain:       F_h(s, a) = clip(phi^T theta_h^a, 0, c(s)),                          target r + max_b F_{h+1}(s', b)
    optimistic:  W_h(s, a) = clip(max(F_h + b (c - F_h), phi^T omega_h^a), 0, c(s)),  target r + max_b W_{h+1}(s', b)

- rewards are those of the environment in units of its range, r = (paid - [the episode ends] low) / width, where an
  episode ends after its last row of features that is not 0;
- c(s) is what can still be earned: the least of the top of the level, and of the top of the first level minus the most
  reward that any episode had collected before s. Where rewards are noisy it is the top of the level, as what was
  collected may have been noise;
- where a plan is impatient, the optimistic targets are divided by 1 + impatience u, which is 1 after many visits;
- b = 1 - exp(-log_confidence u) with the leverage u = phi^T V^{-1} phi, whose inverse counts visits: an outcome of a
  larger chance would have been seen; chances below `floor` count as 0.

Where rewards are means plus noise, F + z s sqrt(u) is a third claim of W: that one mean is better than it looks, with s
the standard deviation of the targets of the pair (`noise`).

W is the value of the best policy if one pair (s, a) of an episode had an outcome that no visit showed. It is what
episodes maximise that explore, and the upside W - F bounds what is left to find.

What lies behind rare transitions is a third value, Z >= W. There one pair on the way may besides lead to what was seen
behind it more often than it did (finding J):

    Z_h(s, a) = clip(max(W_h, phi^T omega_h^a + raise, phi^T zeta_h^a), 0, c(s)),     target r + max_b Z_{h+1}(s', b)
    raise = B/2 + sqrt(B^2/4 + 2 L u sigma^2),     B = b (top - phi^T omega_h^a)

with sigma^2 the mean square of the residuals of the optimistic targets at (s, a), fitted as these are, and top the
largest of them. Pairs that the greedy policy of F takes count with W - F instead of W: more of what is known there
makes this policy better too.

Equal feature rows of a level are kept once, and equal transitions (row, action, next row) once with their number, so
with m rows and t transitions a level a plan costs

    O(H (m K d + t + K s^2))

whatever the number of episodes; where all rows differ, m and t are that number. s <= d is the support of a level and
action: the columns in which a feature of its data is not 0. V is ridge I elsewhere, so its factor is kept on the
support alone.
"""

from cpython.exc cimport PyErr_CheckSignals
from libc.math cimport INFINITY, fabs, sqrt
from libc.stdint cimport int32_t, int64_t
from libc.stdlib cimport calloc, free
from libc.string cimport memcpy, memset

from dmq_fast.kernels._episode cimport UNCHECKED, Episode
from dmq_fast.kernels._linalg cimport dot
from dmq_fast.kernels._simulator cimport NONE, SCORE
from dmq_fast.kernels._greedy cimport greedy_action
from dmq_fast.kernels._memory cimport grown
from dmq_fast.kernels._observed cimport (
    FIRST_ROOM,
    Factor,
    Observed,
    add_row,
    diagonal,
    keep,
    leverage_of,
    number_of,
    release_factor,
    release_rows,
    room_for_more,
    rotate_in,
    row_dot,
    solve_on_support,
    widen,
)
from dmq_fast.kernels._validate cimport entries, flag, integer, number, positive

import numpy as np

from dmq_fast.kernels._validate import as_floats

cdef enum:
    # Rank-one changes of V after which its leverages are computed afresh, to bound rounding.
    REFRESH = 1024
    # Halvings of the argument of exp, see `chance_of`.
    HALVINGS = 10

# Values that differ by less are equal for the optimistic rule; and how much of a value the leverage decides among them.
cdef double TIE = 1e-9, CURIOSITY = 1e-6

# Mean squares of residuals up to it are rounding. The greedy policy is on a row if it comes there at least this share
# of the times that the episodes did.
cdef double ROUNDING = 1e-14, ON_THE_WAY = 0.5

# Standard errors by which the mean of one pair may be better than it looks; and observations that the noise of a level
# counts for in the noise of each of its pairs.
cdef double LUCK = 1.6448536269514722, SHARED = 2.0

# Equal transitions from a pair, row K + action, to a row of the next level (0 after the last one).
cdef struct Move:
    Py_ssize_t pair
    Py_ssize_t next
    double count
    double paid
    double squared
    double least
    double most

# A step of an episode: what it paid, and its reward in units.
cdef struct Step:
    int32_t row
    int32_t action
    double paid
    double reward

# What is kept of a feature row: the most reward collected before (-inf where rewards are noisy), max_a F, W and Z of a
# plan, max_a F of a refit, the greedy action of the last fit, and how many episodes would meet the row if all followed
# these actions. Where rewards are noisy, also the variance of max_a F, and the largest W of the other actions.
cdef struct State:
    double visits
    double before
    double plain
    double hopeful
    double behind
    double variance
    double rival
    double value
    double reach
    Py_ssize_t greedy

# What is kept of a pair, row K + action: b before the floor, the sum of rewards; in a pass the weight of its episodes,
# and the sums of both targets, which become phi^T theta and phi^T omega. `noise` is the variance of a target where
# rewards are noisy, and `later` that of the mean of max_a F behind it. Of `look_behind`: sigma^2, top and Z.
cdef struct Pair:
    double leverage
    double chance
    double earned
    double weight
    double target
    double hope
    double noise
    double later
    double spread
    double top
    double behind

cdef struct Level:
    Observed seen
    # (room,) and (room, K), by row.
    Py_ssize_t room
    State* states
    Pair* pairs
    # Distinct moves, found as rows (pair, next).
    Observed moved
    Py_ssize_t move_room
    Move* moves
    # (n_episodes,) the steps at this level: passes go through the episodes level by level.
    Step* steps
    # In units: the largest value to go, and the variance of targets where rewards are noisy. In points: the least and
    # the largest that an episode earned from here on.
    double top
    double noise
    double worst
    double best


cdef bint add_move(Level* level, Py_ssize_t pair, Py_ssize_t following, double reward) noexcept nogil:
    cdef double[2] key
    cdef Py_ssize_t t, n = level.moved.n, room = room_for_more(&level.moved)
    cdef Move* move
    key[0], key[1] = pair, following
    if room > level.move_room:
        if not grown(<void**> &level.moves, room * sizeof(Move)):
            return False
        level.move_room = room
    t = keep(&level.moved, key)
    if t < 0:
        return False
    move = level.moves + t
    if t == n:
        move.pair, move.next, move.least, move.most = pair, following, reward, reward
        move.count = move.paid = move.squared = 0.0
    move.count += 1.0
    move.paid += reward
    move.squared += reward * reward
    move.least, move.most = min(move.least, reward), max(move.most, reward)
    level.pairs[pair].earned += reward
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
        Whether any of them earned anything: more than 0 where nothing costs, else more or less than another.
    low, width : float
        Least value to go and size of a unit, in points; 0 and 1 until `set_rewards`.
    n_records : int
        How many episodes earned more, or less, from some level on than every one before.
    """

    cdef readonly Py_ssize_t horizon, n_actions, dimension, n_episodes, n_records
    cdef readonly bint rewarded
    cdef readonly double low, width
    # Guess of the standard deviation of a reward, in units; 0 where nothing is noisy.
    cdef double guess
    cdef double ridge, log_confidence, floor
    # Whether theta, omega and the tables of values are those of all episodes; whether episodes maximise Z, not W.
    cdef bint planned, raised
    cdef bint busy
    cdef Level* levels
    # Of the steps of each level.
    cdef Py_ssize_t room
    cdef object _theta, _omega, _scratch, _weighted
    # sqrt(ridge), (H, K) factors, and estimates (H, K, d).
    cdef double root
    cdef Factor* factors
    cdef double* theta
    cdef double* omega
    # Of a pass over reweighted episodes: the factor of a level and action, on its support, and weights of visits that
    # no episode made and normal numbers (H, n_episodes), if any.
    cdef double* weighted
    cdef const double* imagined
    cdef const double* normals
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
        self.root = sqrt(self.ridge)
        self.levels = <Level*> calloc(self.horizon, sizeof(Level))
        self.factors = <Factor*> calloc(self.horizon * self.n_actions, sizeof(Factor))
        if self.levels == NULL or self.factors == NULL:
            raise MemoryError()
        for level in range(self.horizon):
            self.levels[level].seen.d, self.levels[level].moved.d = d, 2
            self.levels[level].top, self.levels[level].worst, self.levels[level].best = 1.0, INFINITY, -INFINITY
        self.low, self.width, self.guess = 0.0, 1.0, 0.0
        self._theta = np.zeros((self.horizon, self.n_actions, d))
        self._omega = np.zeros((self.horizon, self.n_actions, d))
        self._scratch = np.zeros((self.horizon + 2) * d + self.n_actions + self.horizon)
        self._weighted = np.empty(0)
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
        if self.levels != NULL:
            for h in range(self.horizon):
                release_rows(&self.levels[h].seen)
                release_rows(&self.levels[h].moved)
                free(self.levels[h].states)
                free(self.levels[h].pairs)
                free(self.levels[h].moves)
                free(self.levels[h].steps)
        if self.factors != NULL:
            for h in range(self.horizon * self.n_actions):
                release_factor(self.factors + h)
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
        given = np.require(episodes, requirements=["C", "A", "E"])
        if given.ndim != 1 or (given.size and given.dtype.kind not in "iu"):
            raise TypeError(f"episodes: expected integers in one dimension, got shape {given.shape}, {given.dtype}")
        if given.size and not (0 <= given.min() and given.max() < self.n_episodes):
            raise ValueError(
                f"episodes: expected numbers in [0, {self.n_episodes}), got {given.min()} to {given.max()}"
            )
        return given.astype(np.int64, copy=False)

    cdef object as_weights(self, weights):
        given = as_floats("weights", weights, (self.n_episodes,))
        if given.size and given.min() < 0.0:
            raise ValueError(f"weights: expected numbers >= 0, got {given.min()}")
        return given

    cdef double as_floor(self, floor) except -1.0:
        cdef double least = number(floor, "floor")
        if not 0.0 <= least <= 1.0:
            raise ValueError(f"floor: expected a number in [0, 1], got {floor!r}")
        return least

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
        return tuple([self.levels[h].seen.n for h in range(self.horizon)])

    def rows(self, level, first=0):
        """Return the distinct feature rows of a level from number `first` on, in order of appearance, shape (m, d)."""
        cdef Level* at = self.level_at(level)
        cdef Py_ssize_t start = integer(first, "first", 0, at.seen.n), d = self.dimension
        out = np.empty((at.seen.n - start, d))
        if at.seen.n > start:  # before the first episode there are no rows to copy from
            memcpy(entries(out), at.seen.rows + start * d, (at.seen.n - start) * d * sizeof(double))
        return out

    @property
    def returns_seen(self):
        """Least and largest sum of rewards that an episode had from each level on, in points, shape (H, 2).

        Levels that come after the end of every episode have (inf, -inf).
        """
        return np.array([(self.levels[h].worst, self.levels[h].best) for h in range(self.horizon)])

    def paid(self, episodes):
        """Return the environment's own rewards of some episodes, shape (n, H)."""
        chosen = self.as_episodes(episodes)
        cdef const int64_t[::1] index = chosen
        cdef double[:, ::1] out = np.empty((len(chosen), self.horizon))
        cdef Py_ssize_t i, h
        for i in range(index.shape[0]):
            for h in range(self.horizon):
                out[i, h] = self.levels[h].steps[index[i]].paid
        return np.asarray(out)

    def recorded(self, episodes):
        """Return some episodes: numbers of their rows (n, H), actions (n, H), rewards in units (n, H)."""
        chosen = self.as_episodes(episodes)
        shape = (len(chosen), self.horizon)
        rows, actions, rewards = np.empty(shape, np.int64), np.empty(shape, np.int64), np.empty(shape)
        cdef const int64_t[::1] index = chosen
        cdef int64_t[:, ::1] row = rows, action = actions
        cdef double[:, ::1] reward = rewards
        cdef Py_ssize_t i, h
        cdef Step step
        for i in range(index.shape[0]):
            for h in range(self.horizon):
                step = self.levels[h].steps[index[i]]
                row[i, h], action[i, h], reward[i, h] = step.row, step.action, step.reward
        return rows, actions, rewards

    def table(self, level):
        """Return leverages (m, K), the rewards collected before (m,), and max_a F and max_a W (m,) of the last plan."""
        cdef Level* at = self.level_at(level)
        cdef Py_ssize_t j, n = at.seen.n
        self.must_be_planned()
        leverage, states = np.empty((n, self.n_actions)), np.empty((3, n))
        cdef double[:, ::1] u = leverage, out = states
        for j in range(n * self.n_actions):
            u[j // self.n_actions, j % self.n_actions] = at.pairs[j].leverage
        for j in range(n):
            out[0, j], out[1, j], out[2, j] = at.states[j].before, at.states[j].plain, at.states[j].hopeful
        return leverage, *states

    # Units

    def set_rewards(self, low, width, tops, noise=None):
        """Set the units of rewards, also for the episodes so far. Until the next `plan`, plans are in the old ones.

        Parameters
        ----------
        low : float
            Points that count as 0: the least value to go of any level.
        width : float
            > 0, the points of a unit.
        tops : numpy.ndarray, shape (H,)
            Largest value to go from each level on, in units.
        noise : float, optional
            > 0, in units: a guess of the standard deviation of the noise of a reward; it counts as one observation.
            None: rewards are not noisy.

        Raises
        ------
        TypeError, ValueError
            If an argument is of another type, shape or range.
        """
        cdef double least = number(low, "low"), unit = positive(width, "width")
        cdef double guess = 0.0 if noise is None else positive(noise, "noise")
        given = as_floats("tops", tops, (self.horizon,))
        if not -INFINITY < least < INFINITY:
            raise ValueError(f"low: expected a finite number, got {low!r}")
        cdef Py_ssize_t h
        self.begin_work()
        self.low, self.width, self.guess = least, unit, guess
        self.planned = False
        for h in range(self.horizon):
            self.levels[h].top = given[h]
        with nogil:
            self.restate()
        self.busy = False

    cdef void restate(self) noexcept nogil:
        # The steps, moves and states of all episodes in the present units. The rows stay, and so do the moves.
        cdef Py_ssize_t h, j, p, t, e, last
        cdef double earned
        cdef Level* level
        cdef Step* step
        for h in range(self.horizon):
            level = self.levels + h
            for j in range(level.seen.n):
                level.states[j].before = -INFINITY
            for p in range(level.seen.n * self.n_actions):
                level.pairs[p].earned = 0.0
            for t in range(level.moved.n):
                level.moves[t].count = level.moves[t].paid = level.moves[t].squared = 0.0
                level.moves[t].least, level.moves[t].most = INFINITY, -INFINITY
        for e in range(self.n_episodes):
            last = self.horizon - 1
            while last > 0 and self.is_end(last, self.levels[last].seen.rows
                                           + self.levels[last].steps[e].row * self.dimension):
                last -= 1
            earned = 0.0
            for h in range(self.horizon):
                level = self.levels + h
                step = level.steps + e
                if self.guess == 0.0:
                    level.states[step.row].before = max(level.states[step.row].before, earned)
                step.reward = self.in_units(step.paid, h == last)
                earned += step.reward
                j = self.levels[h + 1].steps[e].row if h + 1 < self.horizon else 0
                # Not False: every move is there already.
                add_move(level, step.row * self.n_actions + step.action, j, step.reward)

    cdef inline bint is_end(self, Py_ssize_t h, const double* phi) noexcept nogil:
        # Whether an episode is over at level h: its features are 0.
        cdef Py_ssize_t i
        for i in range(self.dimension):
            if phi[i] != 0.0:
                return False
        return True

    cdef inline double in_units(self, double paid, bint ends) noexcept nogil:
        return ((paid - self.low) if ends else paid) / self.width

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
                a = self.optimist(h, phi, episode.earned / self.width, u)
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
            Finite, in points.

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

    cdef bint absorb(self) noexcept nogil:
        # The recorded episode enters the data.
        cdef Py_ssize_t horizon = self.horizon, n_actions = self.n_actions, h, j, room, e = self.n_episodes
        cdef Py_ssize_t last = horizon - 1
        cdef bint record = False
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
        while last > 0 and self.is_end(last, self.record + last * self.dimension):
            last -= 1
        for h in range(horizon):
            j = self.find(h, self.record + h * self.dimension)
            if j < 0:
                return False
            level = self.levels + h
            level.states[j].visits += 1.0
            if self.guess == 0.0:
                level.states[j].before = max(level.states[j].before, earned)
            step = level.steps + e
            step.row, step.action, step.paid = <int32_t> j, <int32_t> self.actions[h], self.rewards[h]
            step.reward = self.in_units(step.paid, h == last)
            earned += step.reward
            if not self.enter(h, self.actions[h], self.record + h * self.dimension):
                return False
        for h in range(horizon):
            step = self.levels[h].steps + e
            j = self.levels[h + 1].steps[e].row if h + 1 < horizon else 0
            if not add_move(self.levels + h, step.row * n_actions + step.action, j, step.reward):
                return False
        earned = 0.0
        for h in range(horizon - 1, -1, -1):
            level = self.levels + h
            earned += level.steps[e].paid
            if h > last:
                continue
            record = record or earned < level.worst or earned > level.best
            level.worst, level.best = min(level.worst, earned), max(level.best, earned)
        self.n_records += record
        # With costs, something was earned that another episode did not.
        self.rewarded = (
            self.rewarded or (self.low >= 0.0 and earned > 0.0) or self.levels[0].worst < self.levels[0].best
        )
        self.n_episodes += 1
        return True

    cdef Py_ssize_t find(self, Py_ssize_t h, const double* phi) noexcept nogil:
        # The number of a row of level h, which is kept if it is new; -1 if memory ran out.
        cdef Level* level = self.levels + h
        cdef Py_ssize_t a, j, n = level.seen.n, room = room_for_more(&level.seen)
        if room > level.room:
            if not (grown(<void**> &level.states, room * sizeof(State))
                    and grown(<void**> &level.pairs, room * self.n_actions * sizeof(Pair))):
                return -1
            level.room = room
        j = keep(&level.seen, phi)
        if j == n:
            memset(level.states + j, 0, sizeof(State))
            level.states[j].before = -INFINITY
            memset(level.pairs + j * self.n_actions, 0, self.n_actions * sizeof(Pair))
            for a in range(self.n_actions):
                self.set_leverage(level.pairs + j * self.n_actions + a, self.leverage(h, a, phi))
        return j

    cdef inline double leverage(self, Py_ssize_t h, Py_ssize_t a, const double* phi) noexcept nogil:
        return leverage_of(self.factor(h, a), phi, self.root, self.dimension, self.w)

    cdef inline void set_leverage(self, Pair* pair, double u) noexcept nogil:
        # What overflows is not known.
        pair.leverage = u if u < INFINITY else INFINITY
        pair.chance = chance_of(self.log_confidence * pair.leverage)

    cdef bint enter(self, Py_ssize_t h, Py_ssize_t a, const double* phi) noexcept nogil:
        # V <- V + phi phi^T, and u_j <- u_j - (phi_j . x)^2 / (1 + phi . x) with x = V^{-1} phi.
        cdef Py_ssize_t j, d = self.dimension
        cdef Level* level = self.levels + h
        cdef Factor* factor = self.factor(h, a)
        cdef Pair* pair
        cdef double denominator, t, u
        if not widen(factor, phi, self.root, d):
            return False
        memcpy(self.x, phi, d * sizeof(double))
        solve_on_support(factor, factor.u, self.x, self.w)
        rotate_in(factor, factor.u, phi, 1.0, self.w)
        denominator = 1.0 + dot(self.x, phi, d)
        self.since[h, a] = (self.since[h, a] + 1) % REFRESH
        for j in range(level.seen.n):
            pair = level.pairs + j * self.n_actions + a
            t = row_dot(&level.seen, j, self.x)
            u = pair.leverage - t * t / denominator
            # After most of a leverage has gone the difference has lost digits.
            if self.since[h, a] == 0 or not u >= 0.5 * pair.leverage:
                u = self.leverage(h, a, level.seen.rows + j * d)
            if t != 0.0 or self.since[h, a] == 0:
                self.set_leverage(pair, u)
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
        upside : float
            Mean of max_a W - max_a F over the first states of all episodes, 1 if there are none.
        residual : float
            Largest |r + max_b F_{h+1}(s', b) - phi^T theta_h^a| of a transition.
        """
        cdef double upside = 1.0, residual
        cdef double least = self.as_floor(floor), lost = number(impatience, "impatience")
        cdef Py_ssize_t j
        cdef Level* first = self.levels
        if not lost >= 0.0:
            raise ValueError(f"impatience: expected a number >= 0, got {impatience!r}")
        self.begin_work()
        with nogil:
            self.floor = least
            residual = self.backward(NULL, self.theta, self.omega, NULL, 0.0, lost)
            if self.n_episodes > 0:
                upside = 0.0
                for j in range(first.seen.n):
                    upside += first.states[j].visits * self.upside_of(first.states + j)
                upside /= self.n_episodes
        self.planned, self.raised = True, False
        self.busy = False
        return upside, residual

    def look_behind(self, floor, log_confidence):
        """Plan as `plan` does, and then Z; the next episodes maximise Z.

        Parameters
        ----------
        floor : float
            As in `plan`.
        log_confidence : float
            > 0, the L of the raise.

        Returns
        -------
        upside : float
            What Z adds to F at the start: the larger of the mean of W - F over the first states of all episodes, and
            of the root of the sum of the squares of Z - F, each times the state's share of the episodes, as frequencies
            behind different first states are not wrong by their limits together. 1 if there are no episodes.
        """
        cdef double upside = self.plan(floor)[0], confidence = positive(log_confidence, "log_confidence")
        cdef double square = 0.0, gain
        cdef Py_ssize_t h, j
        cdef Level* first = self.levels
        if self.n_episodes == 0:
            return upside
        self.begin_work()
        with nogil:
            self.follow()
            for h in range(self.horizon - 1, -1, -1):
                self.raise_values(h, confidence)
            for j in range(first.seen.n):
                gain = first.states[j].visits * (first.states[j].behind - first.states[j].plain)
                square += gain * gain
        self.raised = True
        self.busy = False
        return max(upside, sqrt(square) / self.n_episodes)

    cdef double backward(
        self, const double* weights, double* theta, double* omega, double* carry, double near, double impatience
    ) noexcept nogil:
        # theta (H, K, d) <- estimates of all episodes, omega <- those of W. Returns the largest residual.
        # - `weights` (n_episodes,): how often an episode counts. Then omega is NULL: F alone, clipped to [0, 1], so
        #   that the tables of the last plan stay.
        # - `carry` (n_episodes,) with weights: targets are returns, see `refit`. It gets those of each level.
        cdef Py_ssize_t h, size = self.n_actions * self.dimension
        cdef double* hope
        cdef double residual = 0.0
        if self.n_episodes == 0:
            return residual
        for h in range(self.horizon - 1, -1, -1):
            hope = NULL if omega == NULL else omega + h * size
            if weights == NULL:
                self.sum_targets(h)
            else:
                self.weigh_targets(h, weights, theta, carry, near)
            self.fit(h, weights != NULL, theta + h * size, hope, impatience)
            self.evaluate(h, theta + h * size, hope)
            if weights == NULL:
                residual = max(residual, self.residual(h))
        return residual

    cdef void sum_targets(self, Py_ssize_t h) noexcept nogil:
        # Both targets of every pair, from the moves.
        cdef Py_ssize_t p, t
        cdef Level* level = self.levels + h
        cdef const State* following
        cdef const Move* move
        for p in range(level.seen.n * self.n_actions):
            level.pairs[p].target = level.pairs[p].hope = level.pairs[p].earned
        if h + 1 < self.horizon:
            for t in range(level.moved.n):
                move = level.moves + t
                following = self.levels[h + 1].states + move.next
                level.pairs[move.pair].target += move.count * following.plain
                level.pairs[move.pair].hope += move.count * following.hopeful

    cdef void weigh_targets(
        self, Py_ssize_t h, const double* weights, const double* theta, double* carry, double near
    ) noexcept nogil:
        # Weights and targets of F of every pair, from the episodes, given theta (H, K, d) of the later levels.
        cdef Py_ssize_t e, p
        cdef double y
        cdef const double* imagined = self.imagined
        cdef Level* level = self.levels + h
        cdef const Step* step = level.steps
        cdef const Step* after = NULL if h + 1 == self.horizon else self.levels[h + 1].steps
        cdef const State* states = NULL if h + 1 == self.horizon else self.levels[h + 1].states
        cdef const State* following
        cdef Pair* pair
        for p in range(level.seen.n * self.n_actions):
            level.pairs[p].weight = level.pairs[p].target = 0.0
        if imagined != NULL:
            for e in range(h):
                imagined += self.levels[e].seen.n * self.n_actions
            for p in range(level.seen.n * self.n_actions):
                level.pairs[p].weight = imagined[p]
                level.pairs[p].target = imagined[p] * self.ceiling(h, level.states[p // self.n_actions].before)
        for e in range(self.n_episodes):
            y = step[e].reward
            if after != NULL:
                following = states + after[e].row
                if carry == NULL:
                    y += following.value
                elif following.greedy == after[e].action:
                    y += carry[e]
                else:
                    y += self.continued(h + 1, after + e, theta, carry[e], near)
            if carry != NULL:
                carry[e] = y
            pair = level.pairs + step[e].row * self.n_actions + step[e].action
            if self.normals != NULL:
                y += self.normals[h * self.n_episodes + e] * sqrt(pair.noise * min(1.0, pair.leverage))
            pair.weight += weights[e]
            pair.target += weights[e] * y

    cdef double continued(
        self, Py_ssize_t h, const Step* step, const double* theta, double carry, double near
    ) noexcept nogil:
        # After an action that is not greedy at level h: what the return and the difference of the values add up to, or
        # the value alone if the difference exceeds `near`.
        cdef const Level* level = self.levels + h
        cdef double value = level.states[step.row].value, less
        theta += (h * self.n_actions + step.action) * self.dimension
        less = value - clip(row_dot(&level.seen, step.row, theta), self.most_fitted(h))
        return carry + less if 0.0 <= less <= near else value

    cdef void fit(self, Py_ssize_t h, bint weighted, double* theta, double* omega, double impatience) noexcept nogil:
        # theta (K, d) <- estimates of level h, and omega if it is not NULL.
        cdef Py_ssize_t a, j, d = self.dimension
        cdef Level* level = self.levels + h
        cdef const Factor* factor
        cdef const Pair* pair
        cdef double* u
        for a in range(self.n_actions):
            factor = self.factor(h, a)
            u = factor.u
            if weighted:
                # Rows are rotated in: a sum of squares would lose what is shorter than the root of the rounding.
                u = self.weighted
                diagonal(u, self.root, factor.n)
            memset(theta + a * d, 0, d * sizeof(double))
            if omega != NULL:
                memset(omega + a * d, 0, d * sizeof(double))
            for j in range(level.seen.n):
                pair = level.pairs + j * self.n_actions + a
                if weighted and pair.weight != 0.0:
                    rotate_in(factor, u, level.seen.rows + j * d, pair.weight, self.w)
                if pair.target != 0.0:
                    add_row(theta + a * d, &level.seen, j, pair.target)
                if omega != NULL and pair.hope != 0.0:
                    add_row(omega + a * d, &level.seen, j, pair.hope / (1.0 + impatience * pair.leverage))
            solve_on_support(factor, u, theta + a * d, self.w)
            if omega != NULL:
                solve_on_support(factor, u, omega + a * d, self.w)

    cdef void evaluate(self, Py_ssize_t h, const double* theta, const double* omega) noexcept nogil:
        # Values of all rows of level h; without omega, F and its greedy action.
        cdef Py_ssize_t a, j, d = self.dimension
        cdef double most, f
        cdef Level* level = self.levels + h
        cdef State* state
        cdef Pair* pair
        for j in range(level.seen.n):
            state = level.states + j
            if omega == NULL:
                state.greedy = greedy_action(level.seen.rows + j * d, theta, self.n_actions, d, &state.value)
                state.value = clip(state.value, self.most_fitted(h))
                continue
            for a in range(self.n_actions):
                pair = level.pairs + j * self.n_actions + a
                pair.target = row_dot(&level.seen, j, theta + a * d)
                pair.hope = row_dot(&level.seen, j, omega + a * d)
        if omega == NULL:
            return
        if self.guess > 0.0:
            self.estimate_noise(h)
        for j in range(level.seen.n):
            state = level.states + j
            most = self.ceiling(h, state.before)
            state.plain = state.hopeful = 0.0
            state.greedy = 0
            for a in range(self.n_actions):
                pair = level.pairs + j * self.n_actions + a
                f = clip(pair.target, most)
                if f > state.plain:
                    state.plain, state.greedy = f, a
                f = self.hoped(f, pair.chance, pair.hope, most, self.lucky(pair.noise, pair.leverage))
                state.hopeful = max(state.hopeful, f)
            if self.guess > 0.0:
                self.compare(h, j, most)

    cdef void compare(self, Py_ssize_t h, Py_ssize_t j, double most) noexcept nogil:
        # Of row j of level h: the variance of max_a F, and the largest W of the other actions.
        cdef Py_ssize_t a
        cdef double best = -INFINITY
        cdef Level* level = self.levels + h
        cdef State* state = level.states + j
        cdef const Pair* pair = level.pairs + j * self.n_actions
        # Where values are cut off at the top, the greedy action is that of the largest fit.
        for a in range(self.n_actions):
            if pair[a].target > best:
                best, state.greedy = pair[a].target, a
        state.rival = 0.0
        for a in range(self.n_actions):
            if a != state.greedy:
                state.rival = max(state.rival, self.hoped(
                    clip(pair[a].target, most), pair[a].chance, pair[a].hope, most,
                    self.lucky(pair[a].noise, pair[a].leverage)
                ))
        pair += state.greedy
        state.variance = pair.noise * min(1.0, pair.leverage) + pair.later

    cdef inline double upside_of(self, const State* state) noexcept nogil:
        if self.guess == 0.0 or self.n_actions == 1:
            return state.hopeful - state.plain
        return max(
            state.hopeful - state.plain, min(1.0, state.rival - state.plain + self.lucky(state.variance, 1.0))
        )

    cdef inline double lucky(self, double variance, double leverage) noexcept nogil:
        # By how much a mean may be better than it looks: z s sqrt(u).
        return LUCK * sqrt(variance * leverage) if self.guess > 0.0 else 0.0

    cdef void estimate_noise(self, Py_ssize_t h) noexcept nogil:
        # Variances of r + max_b F(s', b) of the pairs of level h, given phi^T theta: of their own residuals and, as
        # `SHARED` observations, the variance of the level, in which the guess is one.
        cdef Py_ssize_t p, t
        cdef double value, squares = self.guess * self.guess, spare = 1.0
        cdef Level* level = self.levels + h
        cdef const Move* move
        cdef Pair* pair
        for p in range(level.seen.n * self.n_actions):
            level.pairs[p].weight = level.pairs[p].noise = level.pairs[p].later = 0.0
        for t in range(level.moved.n):
            move = level.moves + t
            pair = level.pairs + move.pair
            value = self.levels[h + 1].states[move.next].plain if h + 1 < self.horizon else 0.0
            value -= pair.target
            if h + 1 < self.horizon:
                pair.later += move.count * self.levels[h + 1].states[move.next].variance
            pair.noise += max(0.0, move.squared + 2.0 * value * move.paid + value * value * move.count)
            pair.weight += move.count
        for p in range(level.seen.n * self.n_actions):
            pair = level.pairs + p
            squares += pair.noise
            spare += max(0.0, pair.weight * (1.0 - pair.leverage))
        level.noise = squares / spare
        for p in range(level.seen.n * self.n_actions):
            pair = level.pairs + p
            pair.noise = (SHARED * level.noise + pair.noise) / (SHARED + pair.weight)
            pair.later /= max(1.0, pair.weight)

    cdef double residual(self, Py_ssize_t h) noexcept nogil:
        # The largest |r + max_b F(s', b) - phi^T theta^a| of a move of level h.
        cdef Py_ssize_t t
        cdef double largest = 0.0, value
        cdef const Level* level = self.levels + h
        cdef const Move* move
        for t in range(level.moved.n):
            move = level.moves + t
            value = self.levels[h + 1].states[move.next].plain if h + 1 < self.horizon else 0.0
            value -= level.pairs[move.pair].target
            largest = max(largest, max(fabs(move.most + value), fabs(move.least + value)))
        return largest

    cdef void follow(self) noexcept nogil:
        # The reach of every row under the greedy policy of the plan, by the moves that were seen.
        cdef Py_ssize_t h, j, p, t
        cdef Level* level
        cdef const Move* move
        cdef const State* state
        for j in range(self.levels[0].seen.n):
            self.levels[0].states[j].reach = self.levels[0].states[j].visits
        for h in range(self.horizon - 1):
            level = self.levels + h
            for j in range(self.levels[h + 1].seen.n):
                self.levels[h + 1].states[j].reach = 0.0
            for p in range(level.seen.n * self.n_actions):
                level.pairs[p].weight = 0.0
            for t in range(level.moved.n):
                level.pairs[level.moves[t].pair].weight += level.moves[t].count
            for t in range(level.moved.n):
                move = level.moves + t
                state = level.states + move.pair // self.n_actions
                if state.greedy == move.pair % self.n_actions:
                    self.levels[h + 1].states[move.next].reach += (
                        state.reach * move.count / level.pairs[move.pair].weight
                    )

    cdef void raise_values(self, Py_ssize_t h, double confidence) noexcept nogil:
        # Z of all pairs of level h.
        cdef Py_ssize_t a, j, t, p, d = self.dimension
        cdef double value, hidden, most
        cdef Level* level = self.levels + h
        cdef const Factor* factor
        cdef const Move* move
        cdef const State* following = NULL
        cdef State* state
        cdef Pair* pair
        for p in range(level.seen.n * self.n_actions):
            pair = level.pairs + p
            pair.spread = pair.top = 0.0
            pair.weight = pair.earned
        for t in range(level.moved.n):
            move = level.moves + t
            pair = level.pairs + move.pair
            state = level.states + move.pair // self.n_actions
            if h + 1 < self.horizon:
                following = self.levels[h + 1].states + move.next
                pair.weight += move.count * following.behind
            if state.greedy == move.pair % self.n_actions and state.reach >= ON_THE_WAY * state.visits:
                value = pair.target - pair.hope
                if following != NULL:
                    value += following.hopeful - following.plain
                pair.spread += value * value * move.count
            else:
                value = (0.0 if following == NULL else following.hopeful) - pair.hope
                pair.spread += move.squared + 2.0 * value * move.paid + value * value * move.count
                value += move.most
            pair.top = max(pair.top, value)
        for a in range(self.n_actions):
            factor = self.factor(h, a)
            # Two fits with the factor of (h, a): of the squares, and of Z's targets.
            memset(self.x, 0, d * sizeof(double))
            for j in range(level.seen.n):
                if level.pairs[j * self.n_actions + a].spread > 0.0:
                    add_row(self.x, &level.seen, j, level.pairs[j * self.n_actions + a].spread)
            solve_on_support(factor, factor.u, self.x, self.w)
            for j in range(level.seen.n):
                level.pairs[j * self.n_actions + a].spread = row_dot(&level.seen, j, self.x)
            memset(self.x, 0, d * sizeof(double))
            for j in range(level.seen.n):
                if level.pairs[j * self.n_actions + a].weight != 0.0:
                    add_row(self.x, &level.seen, j, level.pairs[j * self.n_actions + a].weight)
            solve_on_support(factor, factor.u, self.x, self.w)
            for j in range(level.seen.n):
                level.pairs[j * self.n_actions + a].behind = row_dot(&level.seen, j, self.x)
        for j in range(level.seen.n):
            state = level.states + j
            most = self.ceiling(h, state.before)
            state.behind = state.hopeful
            for a in range(self.n_actions):
                pair = level.pairs + j * self.n_actions + a
                value = pair.hope
                if self.guess > 0.0 and not (a == state.greedy and state.reach >= ON_THE_WAY * state.visits):
                    pair.spread = max(pair.spread, pair.noise)
                if pair.spread > ROUNDING:
                    hidden = 0.5 * pair.chance * pair.top
                    value += hidden + sqrt(hidden * hidden + 2.0 * confidence * pair.leverage * pair.spread)
                pair.behind = clip(max(value, pair.behind), most)
                state.behind = max(state.behind, pair.behind)

    cdef inline double ceiling(self, Py_ssize_t h, double before) noexcept nogil:
        # What can still be earned from level h on after so much.
        return max(0.0, min(self.levels[h].top, self.levels[0].top - before))

    cdef inline double most_fitted(self, Py_ssize_t h) noexcept nogil:
        # Where fits to reweighted episodes are clipped. With noise two estimates above the top are no tie.
        return self.levels[h].top if self.guess == 0.0 else INFINITY

    cdef inline double hoped(
        self, double f, double chance, double later, double most, double lucky
    ) noexcept nogil:
        # W of a pair whose F is f and whose phi^T omega is `later`; its mean may be better by `lucky`.
        return clip(max(max(f + (chance if chance >= self.floor else 0.0) * (most - f), f + lucky), later), most)

    def choose(self, level, features, earned, u):
        """Return the action of the optimistic rule in a state: largest W, then largest leverage, then at random.

        Parameters
        ----------
        level : int
        features : numpy.ndarray, shape (d,)
        earned : float
            What this episode has earned before, in points, which counts where the table knows no more.
        u : float
            A uniform in [0, 1), for ties.
        """
        cdef Py_ssize_t h = integer(level, "level", 0, self.horizon - 1)
        cdef double before = number(earned, "earned"), uniform = number(u, "u")
        phi = as_floats("features", features, (self.dimension,)) + 0.0
        if not (-INFINITY < before < INFINITY and 0.0 <= uniform < 1.0):
            raise ValueError(f"earned, u: expected a finite number and one in [0, 1), got {earned!r}, {u!r}")
        return self.optimist(h, entries(phi), before / self.width, uniform)

    cdef Py_ssize_t optimist(self, Py_ssize_t h, const double* phi, double earned, double u) noexcept nogil:
        cdef Level* level = self.levels + h
        cdef Py_ssize_t a, j = number_of(&level.seen, phi), count = 0, chosen, n_actions = self.n_actions
        cdef Py_ssize_t d = self.dimension
        cdef double best = 0.0, most, leverage, chance
        if self.guess > 0.0:
            earned = -INFINITY
        most = self.ceiling(h, max(earned, level.states[j].before) if j >= 0 else earned)
        for a in range(n_actions):
            if j >= 0:
                leverage, chance = level.pairs[j * n_actions + a].leverage, level.pairs[j * n_actions + a].chance
            else:
                leverage = self.leverage(h, a, phi)
                chance = chance_of(self.log_confidence * leverage)
            self.scores[a] = self.hoped(
                clip(dot(phi, self.theta + (h * n_actions + a) * d, d), most), chance,
                dot(phi, self.omega + (h * n_actions + a) * d, d), most,
                self.lucky(level.pairs[j * n_actions + a].noise if j >= 0 else level.noise, leverage)
            )
            if self.raised and j >= 0:
                self.scores[a] = max(self.scores[a], min(level.pairs[j * n_actions + a].behind, most))
            self.scores[a] += CURIOSITY * leverage / (1.0 + leverage)
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

    # Estimates on episodes, and from reweighted ones

    def upsides(self, episodes):
        """Return max_a W - max_a F of the last plan in the states of some episodes, shape (n, H).

        Where rewards are noisy, max_a F may look better than it is: it is z standard errors smaller beside the W of
        actions that are not greedy.
        """
        chosen = self.as_episodes(episodes)
        self.must_be_planned()
        cdef const int64_t[::1] index = chosen
        cdef double[:, ::1] out = np.zeros((len(chosen), self.horizon))
        cdef Py_ssize_t i, h
        cdef const State* state
        for i in range(index.shape[0]):
            for h in range(self.horizon):
                state = self.levels[h].states + self.levels[h].steps[index[i]].row
                out[i, h] = self.upside_of(state)
        return np.asarray(out)

    def regret(self, theta, episodes):
        """Return the loss by the actions of some episodes if Q_h(s, a) = clip(phi^T theta_h^a, 0, top).

        The mean over the episodes (at least one) of the sum over the levels of max_a Q_h(s_h, a) - Q_h(s_h, a_h), each
        at most 1. With noise Q is not clipped above.
        """
        given, chosen = self.as_theta(theta), self.as_episodes(episodes)
        if len(chosen) == 0:
            raise ValueError("episodes: expected at least one, got none")
        cdef const double* weights = entries(given)
        cdef const int64_t[::1] index = chosen
        cdef double total = 0.0
        cdef Py_ssize_t h
        self.begin_work()
        with nogil:
            for h in range(self.horizon):
                total = self.lost(h, weights + h * self.n_actions * self.dimension, index, total)
        self.busy = False
        return total / len(chosen)

    cdef double lost(
        self, Py_ssize_t h, const double* theta, const int64_t[::1] index, double total
    ) noexcept nogil:
        # The total and what the episodes lose at level h by theta (K, d). Weights count them by pair.
        cdef Py_ssize_t i, a, j, n_actions = self.n_actions
        cdef double best, visits
        cdef Level* level = self.levels + h
        cdef const Pair* pair
        for i in range(level.seen.n * n_actions):
            level.pairs[i].weight = 0.0
        for i in range(index.shape[0]):
            level.pairs[level.steps[index[i]].row * n_actions + level.steps[index[i]].action].weight += 1.0
        for j in range(level.seen.n):
            best, visits, pair = 0.0, 0.0, level.pairs + j * n_actions
            for a in range(n_actions):
                visits += pair[a].weight
            if visits == 0.0:
                continue
            for a in range(n_actions):
                self.scores[a] = clip(row_dot(&level.seen, j, theta + a * self.dimension), self.most_fitted(h))
                best = max(best, self.scores[a])
            for a in range(n_actions):
                total += pair[a].weight * min(1.0, best - self.scores[a])
        return total

    def refit(self, weights, returns=False, near=0.0, imagined=None, normals=None):
        """Return the plain estimates if episode e counted weights[e] times, shape (H, K, d).

        Values are clipped to [0, top] instead of [0, c]: with weights Exp(1) this is a Bayesian bootstrap.

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
        imagined : numpy.ndarray, optional
            Weights >= 0 of visits that no episode made, of every row and action of level 0, 1, ..., shape (sum of
            `n_rows` times K,). Each of them pays all that can still be earned there.
        normals : numpy.ndarray, shape (H, n_episodes), optional
            Standard normal numbers. Each times s sqrt(u) is added to the target of a step, where rewards are noisy:
            what a bootstrap of few visits lacks.
        """
        given = self.as_weights(weights)
        extra = None
        if imagined is not None:
            extra = as_floats("imagined", imagined, (sum(self.n_rows) * self.n_actions,))
            if extra.size and extra.min() < 0.0:
                raise ValueError(f"imagined: expected numbers >= 0, got {extra.min()}")
        shaken = None if normals is None else as_floats("normals", normals, (self.horizon, self.n_episodes))
        estimates = np.zeros((self.horizon, self.n_actions, self.dimension))
        carry = np.zeros(self.n_episodes) if flag(returns, "returns") else None
        cdef double slack = number(near, "near")
        cdef double* theta = entries(estimates)
        cdef double* carried = NULL if carry is None else entries(carry)
        cdef double* by_episode = entries(given)
        self.begin_work()
        try:
            self.make_room_for_weighted()
            self.imagined = NULL if extra is None else entries(extra)
            self.normals = NULL if shaken is None else entries(shaken)
            with nogil:
                self.backward(by_episode, theta, NULL, carried, slack, 0.0)
        finally:
            self.imagined = self.normals = NULL
            self.busy = False
        return estimates

    cdef int make_room_for_weighted(self) except -1:
        cdef Py_ssize_t i, most = 0
        for i in range(self.horizon * self.n_actions):
            most = max(most, self.factors[i].n)
        if most * most > len(self._weighted):
            self._weighted = np.empty(most * most)
            self.weighted = entries(self._weighted)
        return 0
