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

Levels of one label in `groups` share their data: an environment that is the same at each of them has transitions there
that are data for all, while the values F, W and Z of each level remain its own. Then

- rewards are not shifted: the end, whose row is 0, is worth -low / width at every level;
- c(s) counts what was collected before s at earlier levels, too, if all levels from there on have one label: with fewer
  steps left a state is worth no more, but for what these steps may cost;
- a pair can hide its outcome whenever it is met. So in a table F + b (c - F) becomes U(s, a), the value of the pair if
  it has this outcome with the chance b at every level of the label, and no other pair hides anything: a backward pass
  for each pair. The raise counts whenever its pair is met likewise. With other features `sums` decides: all pairs hide
  an outcome at once, phi^T omega + b (c - phi^T omega), or one pair does, once an episode;
- what follows the last step of an episode is not shown, so the last level has data of its own: those of all levels of
  its label, with that step. The others lack it.

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

# Columns of the rows of a table: a row of no entry, and one that is no row of a table.
cdef enum:
    ENDED = -1
    NO_TABLE = -2

# After a pair whose leverage was larger at the plan, and halves, the plan is made again: it was tried a few times.
cdef double UNSETTLED = 0.2

# The claims that a plan looks at again: none, those of pairs whose leverage has halved since the last look, or all.
cdef enum:
    NO_CLAIMS = 0
    OLD_CLAIMS = 1
    ALL_CLAIMS = 2

# Pairs whose hidden outcomes are looked at together; and steps between two plans in an episode where plans take long.
cdef enum:
    TOGETHER = 32
    SPACING = 5

# Equal transitions from a pair, row K + action, to a row of the next level (0 after the last one), and the next such
# move from this pair, or -1. In a refit the sums of the weights of their episodes, and of these times rewards.
cdef struct Move:
    Py_ssize_t pair
    Py_ssize_t next
    Py_ssize_t other
    double count
    double paid
    double squared
    double least
    double most
    double weight
    double weighted

# A step of an episode: what it paid, its reward in units, and its move in the data of its level.
cdef struct Step:
    int32_t row
    int32_t action
    Py_ssize_t move
    double paid
    double reward

# A step of an episode that has not ended, where levels share data: its pair, that of the next step, its moves in the
# data of its level and in those of the last one, -1 where there is none, and its reward in units.
cdef struct Past:
    int32_t episode
    int32_t pair
    int32_t next
    int32_t move
    int32_t last_move
    double reward

# What follows a step at a level, if its next pair is this one: `kept` times the return from there, plus `more`.
cdef struct Sequel:
    double kept
    double more

# What is kept of a feature row at a level: the most reward collected before at this level (-inf where rewards are
# noisy), and what follows from it and earlier levels; max_a F, W and Z of a plan, max_a F of a refit, the greedy action
# of the last fit, and how many episodes would meet the row if all followed these actions. Where rewards are noisy, also
# the variance of max_a F, and the largest W of the other actions.
cdef struct State:
    double visits
    double before
    double held
    double plain
    double hopeful
    double behind
    double variance
    double rival
    double value
    double reach
    Py_ssize_t greedy

# What is kept of a pair, row K + action, for all levels that share data: the leverage now, at the last plan, and when
# its claims were last looked at (0: never); b before the floor, the sum of rewards, the number of steps and the last of
# its moves. In a refit the weight of its episodes, and these times normal numbers.
cdef struct Tried:
    double leverage
    double planned
    double claimed
    double chance
    double earned
    double count
    Py_ssize_t move
    double weight
    double shaken

# What is kept of a pair at a level: in a pass the weight of its episodes,
# and the sums of both targets, which become phi^T theta and phi^T omega. `noise` is the variance of a target where
# rewards are noisy, and `later` that of the mean of max_a F behind it. `claim` is what it may be worth if it hides an
# outcome whenever it is met, -1 if that is not known. Of `look_behind`: sigma^2, top, the raise and Z.
cdef struct Pair:
    double weight
    double target
    double hope
    double noise
    double later
    double claim
    double spread
    double top
    double raised
    double behind

# Distinct rows, of one level or of all. In a table every row has one entry, in a column of its own, or none.
cdef struct Rows:
    Observed seen
    Py_ssize_t room
    Py_ssize_t* columns
    bint table

# The data of the levels of one label, or of the last level together with all others of its label: tried pairs, distinct
# moves, found as rows (pair, next), and (K,) factors, which tables of several levels do not need.
cdef struct Data:
    Rows* rows
    bint shared
    Py_ssize_t room
    Tried* tried
    Observed moved
    Py_ssize_t move_room
    Move* moves
    Factor* factors
    # (K,) rank-one changes since leverages were computed afresh.
    Py_ssize_t* since

cdef struct Level:
    Rows* rows
    Data* data
    # (room,) and (room, K), by row.
    Py_ssize_t room
    State* states
    Pair* pairs
    # (n_episodes,) the steps at this level: passes go through the episodes level by level.
    Step* steps
    # In units: the largest value to go, and the variance of targets where rewards are noisy. In points: the least and
    # the largest that an episode earned from here on.
    double top
    double noise
    double worst
    double best


cdef Py_ssize_t move_of(Data* data, Py_ssize_t pair, Py_ssize_t following) noexcept nogil:
    # The number of a move, which is kept if it is new; -1 if memory ran out.
    cdef double[2] key
    cdef Py_ssize_t t, n = data.moved.n, room = room_for_more(&data.moved)
    cdef Move* move
    key[0], key[1] = pair, following
    if room > data.move_room:
        if not grown(<void**> &data.moves, room * sizeof(Move)):
            return -1
        data.move_room = room
    t = keep(&data.moved, key)
    if t == n:
        move = data.moves + t
        move.pair, move.next = pair, following
        move.other, data.tried[pair].move = data.tried[pair].move, t
        clear_move(move)
    return t


cdef inline void clear_move(Move* move) noexcept nogil:
    move.count = move.paid = move.squared = 0.0
    move.least, move.most = INFINITY, -INFINITY


cdef inline void weigh_step(Data* data, Py_ssize_t t, const Past* past, double w, double shaken) noexcept nogil:
    data.moves[t].weight += w
    data.moves[t].weighted += w * past.reward
    data.tried[past.pair].weight += w
    data.tried[past.pair].shaken += shaken


cdef inline void count_move(Data* data, Py_ssize_t t, double reward) noexcept nogil:
    cdef Move* move = data.moves + t
    move.count += 1.0
    move.paid += reward
    move.squared += reward * reward
    move.least, move.most = min(move.least, reward), max(move.most, reward)
    data.tried[move.pair].earned += reward
    data.tried[move.pair].count += 1.0


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
    groups : sequence of int, optional
        A label of each level (H,): levels of one label share their data. By default no two do.
    sums : bool, default False
        Whether all pairs of shared data may hide an outcome at once where features are no table; else one pair may,
        once an episode.

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
    groups : tuple of H int
        Labels of the levels: those of one label share moves, factors and visits.
    pooled : bool
        Whether any levels do.
    """

    cdef readonly Py_ssize_t horizon, n_actions, dimension, n_episodes, n_records
    cdef readonly bint rewarded
    cdef readonly double low, width
    # Guess of the standard deviation of a reward, in units; 0 where nothing is noisy.
    cdef double guess
    cdef double ridge, log_confidence, floor
    # Whether theta, omega and the tables of values are those of all episodes; whether episodes maximise Z, not W;
    # whether pairs may hide an outcome whenever they are met.
    cdef bint planned, raised, repeats
    cdef bint busy
    cdef Level* levels
    # Labels 0, 1, ... in order of appearance, and how many; whether any is that of several levels, and whether all
    # pairs may hide an outcome at once. (1,) rows of all levels or (H,); data by label, then those of the last level.
    cdef readonly tuple groups
    cdef Py_ssize_t n_groups
    cdef readonly bint pooled
    cdef bint sums
    cdef Py_ssize_t n_data
    cdef Rows* rows_of
    cdef Data* data
    # The data of the last level's label.
    cdef Data* main
    # The first level from which on all have one label; the worth of an end, in units, which is 0 where the last step
    # pays it; the most that a step has cost, in points.
    cdef Py_ssize_t tail
    cdef double end_worth
    cdef double cost
    # What the present episode has collected, in units; whether a claimed pair has halved its leverage since the last
    # plan, the level of that plan, and the steps that there must be between two.
    cdef double collected
    cdef bint outdated
    cdef Py_ssize_t planned_at
    cdef Py_ssize_t spacing
    # Which claims plans look at, whether all are those of the present data, and for which floor.
    cdef int claims
    cdef bint looked
    cdef double looked_floor
    # Of the last plan: impatience, and the L of the raise. (2, room, TOGETHER) values of rows, one column for each pair
    # that may hide an outcome.
    cdef double lost_share
    cdef double confidence
    cdef double* columns
    # Of the steps of each level.
    cdef Py_ssize_t room
    cdef object _theta, _omega, _scratch, _weighted
    # sqrt(ridge), (H, K) factors, and estimates (H, K, d).
    cdef double root
    cdef double* theta
    cdef double* omega
    # Of a pass over reweighted episodes: the factor of a level and action, on its support, and weights of visits that
    # no episode made and normal numbers (H, n_episodes), if any.
    cdef double* weighted
    cdef Py_ssize_t weighted_size
    cdef const Data* weighed
    cdef const double* imagined
    cdef const double* normals
    # All steps that count, by level, where levels share data; where those of each level begin, (H + 1,); and whether
    # they are those of all episodes in the present units. (pairs,) sequels at the level after that of a fit to returns.
    cdef Past* past
    cdef Py_ssize_t* past_from
    cdef bint gathered
    cdef Sequel* sequels
    # (H, d) features of an episode, (d,), (d,), (K,), (H,) rewards.
    cdef double* record
    cdef double* x
    cdef double* w
    cdef double* scores
    cdef double* rewards
    cdef int64_t[::1] actions

    def __cinit__(self, horizon, n_actions, dimension, ridge, log_confidence, groups=None, sums=False):
        cdef Py_ssize_t most = (<Py_ssize_t> 1 << 31) - 1, d
        self.horizon, self.n_actions = integer(horizon, "horizon", 1, most), integer(n_actions, "n_actions", 1, most)
        self.dimension = d = integer(dimension, "dimension", 1, most)
        self.ridge, self.log_confidence = positive(ridge, "ridge"), positive(log_confidence, "log_confidence")
        self.root = sqrt(self.ridge)
        self.sums = flag(sums, "sums")
        self.levels = <Level*> calloc(self.horizon, sizeof(Level))
        self.past_from = <Py_ssize_t*> calloc(self.horizon + 1, sizeof(Py_ssize_t))
        if self.levels == NULL or self.past_from == NULL:
            raise MemoryError()
        for level in range(self.horizon):
            self.levels[level].top, self.levels[level].worst, self.levels[level].best = 1.0, INFINITY, -INFINITY
        self.low, self.width, self.guess, self.spacing = 0.0, 1.0, 0.0, 1
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
        self.label(self.as_groups(range(self.horizon) if groups is None else groups))

    def __dealloc__(self):
        self.forget()
        free(self.levels)
        free(self.past_from)

    cdef tuple as_groups(self, groups):
        given = np.asarray(groups)
        if given.shape != (self.horizon,) or given.dtype.kind not in "iu":
            raise ValueError(f"groups: expected {self.horizon} integers, one label a level, got {groups!r}")
        numbers = {}
        return tuple([numbers.setdefault(label, len(numbers)) for label in given.tolist()])

    cdef int label(self, tuple groups) except -1:
        # Levels get their label, and data without episodes.
        cdef Py_ssize_t h, i, n_rows
        cdef bint shared
        self.groups, self.n_groups = groups, max(groups) + 1
        self.pooled = self.n_groups < self.horizon
        shared = groups.count(groups[self.horizon - 1]) > 1
        self.n_data, n_rows = self.n_groups + shared, 1 if self.pooled else self.horizon
        self.rows_of, self.data = <Rows*> calloc(n_rows, sizeof(Rows)), <Data*> calloc(self.n_data, sizeof(Data))
        if self.rows_of == NULL or self.data == NULL:
            raise MemoryError()
        for i in range(n_rows):
            self.rows_of[i].seen.d, self.rows_of[i].table = self.dimension, self.pooled
        for i in range(self.n_data):
            self.data[i].rows = self.rows_of + (0 if self.pooled else i)
            self.data[i].moved.d = 2
            self.data[i].shared = i == self.n_groups or groups.count(i) > 1
            self.data[i].factors = <Factor*> calloc(self.n_actions, sizeof(Factor))
            self.data[i].since = <Py_ssize_t*> calloc(self.n_actions, sizeof(Py_ssize_t))
            if self.data[i].factors == NULL or self.data[i].since == NULL:
                raise MemoryError()
        for h in range(self.horizon):
            self.levels[h].rows = self.rows_of + (0 if self.pooled else h)
            self.levels[h].data = self.data + <Py_ssize_t> groups[h]
        self.main = self.levels[self.horizon - 1].data
        if shared:
            self.levels[self.horizon - 1].data = self.data + self.n_groups
        self.end_worth = -self.low / self.width if self.pooled else 0.0
        self.tail = self.horizon - 1
        while self.tail > 0 and groups[self.tail - 1] == groups[self.horizon - 1]:
            self.tail -= 1
        return 0

    cdef void forget(self):
        # Levels and data without episodes or memory.
        cdef Py_ssize_t h, i, a
        for h in range(self.horizon if self.levels != NULL else 0):
            free(self.levels[h].states)
            free(self.levels[h].pairs)
            free(self.levels[h].steps)
            self.levels[h].states, self.levels[h].pairs, self.levels[h].steps, self.levels[h].room = NULL, NULL, NULL, 0
        for i in range(self.n_data if self.data != NULL else 0):
            for a in range(self.n_actions if self.data[i].factors != NULL else 0):
                release_factor(self.data[i].factors + a)
            free(self.data[i].factors)
            free(self.data[i].since)
            free(self.data[i].tried)
            free(self.data[i].moves)
            release_rows(&self.data[i].moved)
        for i in range((1 if self.pooled else self.horizon) if self.rows_of != NULL else 0):
            free(self.rows_of[i].columns)
            release_rows(&self.rows_of[i].seen)
        free(self.data)
        free(self.rows_of)
        free(self.columns)
        free(self.past)
        free(self.sequels)
        self.data, self.rows_of, self.columns, self.past, self.sequels = NULL, NULL, NULL, NULL, NULL
        self.gathered = False

    def regroup(self, groups):
        """Give the levels other labels, (H,) integers; the episodes stay.

        Numbers of rows change. The next call should be `plan`.
        """
        labels = self.as_groups(groups)
        every = np.arange(self.n_episodes)
        rows, actions, _ = self.recorded(every)
        paid = self.paid(every)
        known = [self.rows(h) for h in range(self.horizon)]
        cdef Py_ssize_t h
        self.begin_work()
        try:
            self.forget()
            self.label(labels)
            self.room = self.n_episodes = self.n_records = 0
            self.planned = self.raised = self.looked = False
            for h in range(self.horizon):
                self.levels[h].worst, self.levels[h].best = INFINITY, -INFINITY
        finally:
            self.busy = False
        for row, action, points in zip(rows, actions, paid, strict=True):
            self.add(np.stack([known[level][j] for level, j in enumerate(row)]), action, points)

    # Checks at the border of Python

    cdef int begin_work(self) except -1:
        if self.busy:
            raise RuntimeError("planner: in use by another thread; give every thread its own")
        self.busy = True
        return 0

    cdef object as_theta(self, theta):
        return as_floats("theta", theta, (self.horizon, self.n_actions, self.dimension))

    cdef object as_episodes(self, episodes):
        given = np.asarray(episodes)
        if given.ndim != 1 or (given.size and given.dtype.kind not in "iu"):
            raise TypeError(f"episodes: expected integers in one dimension, got shape {given.shape}, {given.dtype}")
        cdef const int64_t[::1] numbers = np.ascontiguousarray(given, dtype=np.int64)
        cdef Py_ssize_t i
        for i in range(numbers.shape[0]):
            if not 0 <= numbers[i] < self.n_episodes:
                raise ValueError(
                    f"episodes: expected numbers in [0, {self.n_episodes}), got {given.min()} to {given.max()}"
                )
        return np.asarray(numbers)

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
        return tuple([self.levels[h].rows.seen.n for h in range(self.horizon)])

    def rows(self, level, first=0):
        """Return the distinct feature rows of a level from number `first` on, in order of appearance, shape (m, d).

        Where levels share data, these are the rows of all levels.
        """
        cdef const Observed* seen = &self.level_at(level).rows.seen
        cdef Py_ssize_t start = integer(first, "first", 0, seen.n), d = self.dimension
        out = np.empty((seen.n - start, d))
        if seen.n > start:  # before the first episode there are no rows to copy from
            memcpy(entries(out), seen.rows + start * d, (seen.n - start) * d * sizeof(double))
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
        """Return leverages (m, K), the rewards collected before (m,), and max_a F and max_a W (m,) of the last plan.

        Where all levels from an earlier one on share data, what was collected before there counts, too.
        """
        cdef Level* at = self.level_at(level)
        cdef Py_ssize_t j, n = at.rows.seen.n
        self.must_be_planned()
        leverage, states = np.empty((n, self.n_actions)), np.empty((3, n))
        cdef double[:, ::1] u = leverage, out = states
        for j in range(n * self.n_actions):
            u[j // self.n_actions, j % self.n_actions] = at.data.tried[j].leverage
        for j in range(n):
            out[0, j], out[1, j], out[2, j] = at.states[j].held, at.states[j].plain, at.states[j].hopeful
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
        self.end_worth = -least / unit if self.pooled else 0.0
        self.planned = self.gathered = self.looked = False
        for h in range(self.horizon):
            self.levels[h].top = given[h]
        with nogil:
            self.restate()
        self.busy = False

    cdef void restate(self) noexcept nogil:
        # The steps, moves and states of all episodes in the present units. The rows stay, and so do the moves.
        cdef Py_ssize_t h, i, j, p, t, e
        cdef Level* level
        cdef Data* data
        for i in range(self.n_data):
            data = self.data + i
            for p in range(data.rows.seen.n * self.n_actions):
                data.tried[p].earned = data.tried[p].count = data.tried[p].claimed = 0.0
            for t in range(data.moved.n):
                clear_move(data.moves + t)
        for h in range(self.horizon):
            level = self.levels + h
            for j in range(level.rows.seen.n):
                level.states[j].before = level.states[j].held = -INFINITY
        for e in range(self.n_episodes):
            self.price(e)
            for h in range(self.horizon):
                self.recount(h, e)

    cdef void recount(self, Py_ssize_t h, Py_ssize_t e) noexcept nogil:
        # A step enters the sums of moves again.
        cdef Level* level = self.levels + h
        cdef const Step* step = level.steps + e
        cdef Py_ssize_t last = self.horizon - 1
        cdef double reward = step.paid / self.width if self.pooled else step.reward
        if self.pooled and level.rows.columns[step.row] == ENDED:
            return
        if step.move >= 0:
            count_move(level.data, step.move, reward)
        if self.joins_last(h):
            level = self.levels + last
            count_move(level.data, level.data.tried[step.row * self.n_actions + step.action].move, reward)

    cdef inline bint joins_last(self, Py_ssize_t h) noexcept nogil:
        # Whether a step of level h is one of the last level's shared data.
        return self.n_data > self.n_groups and (h == self.horizon - 1 or self.levels[h].data == self.main)

    cdef void price(self, Py_ssize_t e) noexcept nogil:
        # The rewards of an episode in units, and the most that was collected before its rows.
        cdef Py_ssize_t h, last = self.horizon - 1
        cdef double earned = 0.0
        cdef Level* level
        cdef Step* step
        cdef State* state
        while last > 0 and self.is_end(last, self.levels[last].rows.seen.rows
                                       + self.levels[last].steps[e].row * self.dimension):
            last -= 1
        for h in range(self.horizon):
            level = self.levels + h
            step = level.steps + e
            state = level.states + step.row
            if self.guess == 0.0:
                state.before, state.held = max(state.before, earned), max(state.held, earned)
            step.reward = self.in_units(step.paid, h == last)
            earned += step.reward

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

        Where levels share data, steps enter them as they are made, and optimistic episodes plan again, as the last plan
        did, when a claimed pair has halved its leverage; and first of all if there were episodes since that plan.

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
        if first < self.horizon:
            self.refresh()
        self.begin_work()
        try:
            while left > 0:
                unchecked = 0
                with nogil:
                    while left > 0 and unchecked < UNCHECKED:
                        well = self.live(episode, greedy, first)
                        if not well:
                            break
                        left -= 1
                        unchecked += work
                if not well:
                    raise episode.explained() if episode.stop.fault != NONE else MemoryError()
                PyErr_CheckSignals()
        finally:
            self.busy = False
            if not well and self.pooled:
                self.regroup(self.groups)  # without the steps of the episode that failed

    def refresh(self):
        """Plan again, as the last plan did, where levels share data and episodes came since."""
        if not self.pooled or self.planned or self.n_episodes == 0:
            return
        self.begin_work()
        with nogil:
            self.replan(0)
        self.busy = False

    cdef bint live(self, Episode episode, const double* greedy, Py_ssize_t first) noexcept nogil:
        # An episode that is played now, and enters the data.
        cdef Py_ssize_t h, a, i, d = self.dimension
        cdef double u, best
        cdef double* phi
        if not (episode.begin(self.n_episodes) and self.open()):
            return False
        for h in range(self.horizon):
            if not episode.observe():
                return False
            phi = self.record + h * d
            for i in range(d):
                phi[i] = episode.phi[i] + 0.0  # -0.0 and 0.0 become one row
            if self.pooled:
                if not self.arrive(h):
                    return False
                if h > first and self.has_halved(h - 1):
                    self.outdated = True
                if self.outdated and h > first and h - self.planned_at >= self.spacing:
                    self.replan(h)
                    self.outdated, self.planned_at = False, h
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
        return self.close()

    cdef bint has_halved(self, Py_ssize_t h) noexcept nogil:
        # Whether the pair of the step of level h claimed something at the plan, and was tried often since.
        cdef const Step* step = self.levels[h].steps + self.n_episodes
        cdef const Tried* tried = self.levels[h].data.tried + step.row * self.n_actions + step.action
        return (
            self.levels[h].data.shared
            and tried.planned > UNSETTLED
            and tried.leverage < 0.5 * tried.planned
            and chance_of(self.log_confidence * tried.planned) >= self.floor
        )

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
            well = self.open()
            if self.pooled:
                for h in range(self.horizon):
                    well = well and self.arrive(h)
            well = well and self.close()
        self.busy = False
        if not well:
            raise MemoryError()

    cdef bint open(self) noexcept nogil:
        # Room for an episode.
        cdef Py_ssize_t h, room
        self.planned, self.gathered, self.looked, self.collected = False, False, False, 0.0
        self.outdated, self.planned_at = False, 0
        if self.n_episodes == self.room:
            room = max(<Py_ssize_t> FIRST_ROOM, 2 * self.room)
            for h in range(self.horizon):
                if not grown(<void**> &self.levels[h].steps, room * sizeof(Step)):
                    return False
            self.room = room
        return True

    cdef bint arrive(self, Py_ssize_t h) noexcept nogil:
        # The recorded features of level h get their row, and the step before, which is complete now, enters the data.
        cdef Level* level = self.levels + h
        cdef Step* step = level.steps + self.n_episodes
        cdef State* state
        cdef Py_ssize_t j
        if self.pooled and h > 0:
            self.levels[h - 1].steps[self.n_episodes].action = <int32_t> self.actions[h - 1]
            self.levels[h - 1].steps[self.n_episodes].paid = self.rewards[h - 1]
            self.collected += self.rewards[h - 1] / self.width
        j = self.find(level, self.record + h * self.dimension)
        if j < 0:
            return False
        step.row = <int32_t> j
        state = level.states + j
        state.visits += 1.0
        if self.guess == 0.0:
            state.before, state.held = max(state.before, self.collected), max(state.held, self.collected)
        return not self.pooled or h == 0 or self.enter_step(h - 1)

    cdef bint enter_step(self, Py_ssize_t h) noexcept nogil:
        # A step enters the data of its level's label, and those of the last level.
        cdef Level* level = self.levels + h
        cdef Step* step = level.steps + self.n_episodes
        cdef Py_ssize_t last = self.horizon - 1
        cdef Py_ssize_t following = 0 if h == last else self.levels[h + 1].steps[self.n_episodes].row
        cdef double reward = step.paid / self.width if self.pooled else step.reward
        cdef double* phi = self.record + h * self.dimension
        step.move = -1
        if self.pooled and level.rows.columns[step.row] == ENDED:
            return True
        self.cost = max(self.cost, -step.paid)
        if h < last or self.n_data == self.n_groups:
            step.move = self.enter(level.data, step.row, step.action, following, reward, phi)
            if step.move < 0:
                return False
        return not self.joins_last(h) or self.enter(
            self.levels[last].data, step.row, step.action, 0, reward, phi
        ) >= 0

    cdef bint close(self) noexcept nogil:
        # The recorded episode is complete.
        cdef Py_ssize_t horizon = self.horizon, h, last = horizon - 1, e = self.n_episodes
        cdef bint record = False
        cdef double earned = 0.0
        cdef Level* level
        cdef Step* step
        while last > 0 and self.is_end(last, self.record + last * self.dimension):
            last -= 1
        for h in range(horizon):
            level = self.levels + h
            step = level.steps + e
            if not self.pooled and not self.arrive(h):
                return False
            step.action, step.paid = <int32_t> self.actions[h], self.rewards[h]
            step.reward = self.in_units(step.paid, h == last)
            self.collected += 0.0 if self.pooled else step.reward
        for h in range(horizon - 1 if self.pooled else 0, horizon):
            if not self.enter_step(h):
                return False
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

    cdef Py_ssize_t find(self, Level* level, const double* phi) noexcept nogil:
        # The number of a row, which is kept if it is new; -1 if memory ran out.
        cdef Rows* rows = level.rows
        cdef Py_ssize_t a, h, i, j, n = rows.seen.n, room = room_for_more(&rows.seen)
        # Where data are shared, all levels and data have the same rows.
        cdef Py_ssize_t at = level - self.levels
        cdef Py_ssize_t begin = 0 if self.pooled else at, end = self.horizon if self.pooled else at + 1
        cdef Py_ssize_t data_end = self.n_data if self.pooled else at + 1
        cdef Tried* tried
        if room > rows.room and not self.make_room(rows, room, begin, end, data_end):
            return -1
        j = keep(&rows.seen, phi)
        if j < n:
            return j
        for h in range(begin, end):
            memset(self.levels[h].states + j, 0, sizeof(State))
            self.levels[h].states[j].before = self.levels[h].states[j].held = -INFINITY
            memset(self.levels[h].pairs + j * self.n_actions, 0, self.n_actions * sizeof(Pair))
            for a in range(self.n_actions):
                self.levels[h].pairs[j * self.n_actions + a].claim = -1.0
        rows.columns[j] = self.column_of(rows, j)
        for i in range(begin if not self.pooled else 0, data_end):
            memset(self.data[i].tried + j * self.n_actions, 0, self.n_actions * sizeof(Tried))
            for a in range(self.n_actions):
                self.data[i].tried[j * self.n_actions + a].move = -1
        if rows.table and rows.columns[j] == NO_TABLE:
            rows.table = False
            if not self.factorize():
                return -1
        for i in range(begin if not self.pooled else 0, data_end):
            for a in range(self.n_actions):
                tried = self.data[i].tried + j * self.n_actions + a
                self.set_leverage(tried, self.leverage(self.data + i, a, phi, j))
                tried.planned = tried.leverage
        return j

    cdef bint make_room(
        self, Rows* rows, Py_ssize_t room, Py_ssize_t begin, Py_ssize_t end, Py_ssize_t data_end
    ) noexcept nogil:
        cdef Py_ssize_t h, i
        for h in range(begin, end):
            if not (grown(<void**> &self.levels[h].states, room * sizeof(State))
                    and grown(<void**> &self.levels[h].pairs, room * self.n_actions * sizeof(Pair))):
                return False
        for i in range(begin if not self.pooled else 0, data_end):
            if not grown(<void**> &self.data[i].tried, room * self.n_actions * sizeof(Tried)):
                return False
        if not grown(<void**> &rows.columns, room * sizeof(Py_ssize_t)):
            return False
        if self.pooled and not grown(<void**> &self.columns, 2 * room * TOGETHER * sizeof(double)):
            return False
        rows.room = room
        return True

    cdef Py_ssize_t column_of(self, const Rows* rows, Py_ssize_t j) noexcept nogil:
        # The column of a new row of a table, ENDED without an entry, NO_TABLE if the rows are none.
        cdef Py_ssize_t i, column = ENDED
        cdef const double* phi = rows.seen.rows + j * self.dimension
        for i in range(self.dimension):
            if phi[i] != 0.0:
                if column != ENDED or not rows.table:
                    return NO_TABLE
                column = i
        if column != ENDED:
            for i in range(j):
                if rows.columns[i] == column:
                    return NO_TABLE
        return column

    cdef bint factorize(self) noexcept nogil:
        # The shared data of what was a table get factors.
        cdef Py_ssize_t i, j, a, d = self.dimension
        cdef Data* data
        cdef Tried* tried
        cdef const double* phi
        for i in range(self.n_data):
            data = self.data + i
            if not data.shared:
                continue
            for a in range(self.n_actions):
                for j in range(data.rows.seen.n):
                    tried = data.tried + j * self.n_actions + a
                    phi = data.rows.seen.rows + j * d
                    if tried.count > 0.0:
                        if not widen(data.factors + a, phi, self.root, d):
                            return False
                        rotate_in(data.factors + a, data.factors[a].u, phi, tried.count, self.w)
        return True

    cdef inline double leverage(self, const Data* data, Py_ssize_t a, const double* phi, Py_ssize_t j) noexcept nogil:
        # phi^T V^{-1} phi, phi that of row j, or of no row with j = -1.
        cdef double square
        if data.shared and data.rows.table and j >= 0:
            if data.rows.columns[j] == ENDED:
                return 0.0
            square = phi[data.rows.columns[j]] * phi[data.rows.columns[j]]
            return square / (self.ridge + data.tried[j * self.n_actions + a].count * square)
        return leverage_of(data.factors + a, phi, self.root, self.dimension, self.w)

    cdef inline void set_leverage(self, Tried* tried, double u) noexcept nogil:
        # What overflows is not known.
        tried.leverage = u if u < INFINITY else INFINITY
        tried.chance = chance_of(self.log_confidence * tried.leverage)

    cdef Py_ssize_t enter(
        self, Data* data, Py_ssize_t row, Py_ssize_t a, Py_ssize_t following, double reward, const double* phi
    ) noexcept nogil:
        # The number of the move; V <- V + phi phi^T, and u_j <- u_j - (phi_j . x)^2 / (1 + phi . x) with x = V^{-1}
        # phi. -1 if memory ran out.
        cdef Py_ssize_t j, d = self.dimension, move = move_of(data, row * self.n_actions + a, following)
        cdef const Observed* seen = &data.rows.seen
        cdef Factor* factor = data.factors + a
        cdef Tried* tried
        cdef double denominator, t, u
        if move < 0:
            return -1
        count_move(data, move, reward)
        if data.shared and data.rows.table:
            self.set_leverage(data.tried + row * self.n_actions + a, self.leverage(data, a, phi, row))
            return move
        if not widen(factor, phi, self.root, d):
            return -1
        memcpy(self.x, phi, d * sizeof(double))
        solve_on_support(factor, factor.u, self.x, self.w)
        rotate_in(factor, factor.u, phi, 1.0, self.w)
        denominator = 1.0 + dot(self.x, phi, d)
        data.since[a] = (data.since[a] + 1) % REFRESH
        for j in range(seen.n):
            tried = data.tried + j * self.n_actions + a
            t = row_dot(seen, j, self.x)
            u = tried.leverage - t * t / denominator
            # After most of a leverage has gone the difference has lost digits.
            if data.since[a] == 0 or not u >= 0.5 * tried.leverage:
                u = self.leverage(data, a, seen.rows + j * d, j)
            if t != 0.0 or data.since[a] == 0:
                self.set_leverage(tried, u)
        return move

    # Plans

    def plan(self, floor, impatience=0.0, enough=0.0):
        """Make the backward pass on all episodes so far.

        Parameters
        ----------
        floor : float
            In [0, 1]: smaller chances of an outcome that was never seen count as 0.
        impatience : float, default 0
            >= 0: the share of an imagined value that is lost by a step tried once on the way to it. With some, near
            outcomes are looked for first; W then bounds values only up to this share a level.
        enough : float, default 0
            >= 0. Where levels share data, pairs that hide an outcome whenever they are met are looked at only if one
            that is met once an episode adds at most so much: what W is then too small by does not matter yet. Then
            those are looked at again that were visited so often since the last look that their leverage has halved,
            and all of them if the others add at most so much. And episodes plan less often on their way, as such plans
            take long: 5 steps apart, or not at all once all visits are looked at.

        Returns
        -------
        upside : float
            Mean of max_a W - max_a F over the first states of all episodes, 1 if there are none.
        residual : float
            Largest |r + max_b F_{h+1}(s', b) - phi^T theta_h^a| of a transition.
        """
        cdef double upside, residual
        cdef double least = self.as_floor(floor), lost = number(impatience, "impatience")
        cdef double most = number(enough, "enough")
        if not lost >= 0.0:
            raise ValueError(f"impatience: expected a number >= 0, got {impatience!r}")
        if not most >= 0.0:
            raise ValueError(f"enough: expected a number >= 0, got {enough!r}")
        self.begin_work()
        with nogil:
            self.floor, self.lost_share, self.raised = least, lost, False
            self.repeats, self.spacing = most == 0.0, 1 if most == 0.0 else SPACING
            self.claims = ALL_CLAIMS if most == 0.0 else NO_CLAIMS
            residual = self.replan(0)
            upside = self.upside_at_start()
            if not self.repeats and self.pooled and self.rows_of.table:
                while self.claims < ALL_CLAIMS and upside <= most:
                    self.repeats, self.spacing, self.claims = True, self.horizon, self.claims + 1
                    residual = self.replan(0)
                    upside = self.upside_at_start()
                # Not before the next plan: what a piece of episodes finds does not depend on where it was cut.
                self.claims = NO_CLAIMS
        self.planned = True
        self.busy = False
        return upside, residual

    cdef double upside_at_start(self) noexcept nogil:
        # The mean over the first states of all episodes, 1 if there are none.
        cdef Py_ssize_t j
        cdef double upside = 0.0
        if self.n_episodes == 0:
            return 1.0
        for j in range(self.levels[0].rows.seen.n):
            upside += self.levels[0].states[j].visits * self.upside_of(self.levels[0].states + j)
        return upside / self.n_episodes

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
        cdef Py_ssize_t j
        cdef Level* first = self.levels
        if self.n_episodes == 0:
            return upside
        self.begin_work()
        with nogil:
            self.confidence, self.raised = confidence, True
            self.look_further()
            for j in range(first.rows.seen.n):
                gain = first.states[j].visits * (first.states[j].behind - first.states[j].plain)
                square += gain * gain
        self.busy = False
        return max(upside, sqrt(square) / self.n_episodes)

    cdef double replan(self, Py_ssize_t first) noexcept nogil:
        # What `plan` or `look_behind` did last, for the levels from `first` on. Returns the largest residual.
        cdef Py_ssize_t i, p
        cdef double residual
        self.inherit()
        if self.repeats and self.pooled and self.rows_of.table and self.claims > NO_CLAIMS:
            if not (self.looked and self.looked_floor == self.floor):
                self.look_alone(first, False)
                self.looked, self.looked_floor = first == 0 and self.claims == ALL_CLAIMS, self.floor
        residual = self.backward(NULL, self.theta, self.omega, NULL, 0.0, self.lost_share, first)
        for i in range(self.n_data if self.pooled else 0):
            for p in range(self.data[i].rows.seen.n * self.n_actions):
                self.data[i].tried[p].planned = self.data[i].tried[p].leverage
        if self.raised:
            self.look_further()
        return residual

    cdef void inherit(self) noexcept nogil:
        # With fewer steps left a state is worth no more, but for what these steps can cost. So what was collected
        # before it counts at all later levels, if all of them are alike.
        cdef Py_ssize_t h, j
        cdef double cost = self.cost / self.width
        cdef State* state
        for h in range(self.horizon):
            for j in range(self.levels[h].rows.seen.n):
                state = self.levels[h].states + j
                state.held = state.before
                if h > self.tail:
                    state.held = max(state.held, self.levels[h - 1].states[j].held - cost)

    cdef void look_alone(self, Py_ssize_t first, bint rare) noexcept nogil:
        # What the pairs of shared tables are worth from the level `first` on, each if it alone hides an outcome
        # whenever it is met, or if one of its outcomes is more frequent whenever it is (`rare`).
        cdef Py_ssize_t g, p, n, size = self.rows_of.seen.n * self.n_actions
        cdef Data* data
        cdef Py_ssize_t[TOGETHER] pairs
        for g in range(self.n_groups):
            data, n = self.data + g, 0
            for p in range(size if data.shared else 0):
                if self.has_claim(data, p, rare):
                    pairs[n] = p
                    n += 1
                    if not rare:
                        data.tried[p].claimed = data.tried[p].leverage
                if n == TOGETHER or (n > 0 and p == size - 1):
                    self.look_together(first, data, pairs, n, rare)
                    n = 0

    cdef bint has_claim(self, const Data* data, Py_ssize_t p, bint rare) noexcept nogil:
        # Whether a pair of shared data may be worth more by itself than it looks.
        cdef Py_ssize_t h
        cdef const Tried* tried = data.tried + p
        if not rare:
            return tried.count > 0.0 and tried.chance >= self.floor and (
                self.claims == ALL_CLAIMS or not tried.leverage >= 0.5 * tried.claimed or tried.claimed == 0.0
            )
        for h in range(self.horizon):
            if self.levels[h].pairs[p].raised > 0.0 and self.speaks_for(data, self.levels + h):
                return True
        return False

    cdef inline bint speaks_for(self, const Data* data, const Level* level) noexcept nogil:
        # Whether data are those of a level's label: the last level's own have the steps of the label, too.
        return level.data == data or (level.data == self.data + self.n_groups and data == self.main)

    cdef void look_together(
        self, Py_ssize_t first, const Data* data, const Py_ssize_t* pairs, Py_ssize_t n, bint rare
    ) noexcept nogil:
        # `look_alone` for n pairs of shared data, each in a column of values, by a backward pass of its own.
        cdef Py_ssize_t h, i, j, a, p, following, m = self.rows_of.seen.n
        cdef double most, least
        cdef double[TOGETHER] value
        cdef double* now = self.columns
        cdef double* later = self.columns + m * TOGETHER
        cdef Level* level
        for h in range(self.horizon - 1, first - 1, -1):
            level, following = self.levels + h, 0
            for j in range(m):
                least = level.states[j].hopeful if rare else 0.0
                if self.rows_of.columns[j] == ENDED:
                    least = self.end_worth
                for i in range(TOGETHER):
                    now[j * TOGETHER + i] = least
                if self.rows_of.columns[j] == ENDED:
                    continue
                most = self.ceiling(h, level.states[j].held)
                for a in range(self.n_actions):
                    p = j * self.n_actions + a
                    i = following
                    following += following < n and pairs[following] == p
                    if level.data.tried[p].count == 0.0:
                        continue
                    self.mean(level, p, later, value)
                    if i < following and self.speaks_for(data, level):
                        value[i] = self.claimed(level, p, value[i], most, rare)
                    self.keep_larger(now + j * TOGETHER, value, most)
            now, later = later, now

    cdef inline double claimed(self, Level* level, Py_ssize_t p, double mean, double most, bint rare) noexcept nogil:
        # What a pair is worth by its own claim, given the mean of what follows; the claim is kept.
        cdef Pair* pair = level.pairs + p
        cdef double chance = level.data.tried[p].chance
        if rare:
            mean += pair.raised
            pair.raised = max(pair.raised, mean - pair.hope)
            return mean
        mean = clip(mean, most)
        pair.claim = mean + (chance if chance >= self.floor else 0.0) * (most - mean)
        return pair.claim

    cdef void mean(self, const Level* level, Py_ssize_t p, const double* later, double* value) noexcept nogil:
        # value (TOGETHER,) <- the mean of reward and next value of a tried pair, in all columns of the values of rows.
        cdef Py_ssize_t i
        cdef const Tried* tried = level.data.tried + p
        cdef const Move* move
        cdef const double* following
        cdef Py_ssize_t t = tried.move
        cdef double share = tried.earned / tried.count
        if level == self.levels + self.horizon - 1:
            share, t = share + self.end_worth, -1
        for i in range(TOGETHER):
            value[i] = share
        while t >= 0:
            move = level.data.moves + t
            share, following = move.count / tried.count, later + move.next * TOGETHER
            for i in range(TOGETHER):
                value[i] += share * following[i]
            t = move.other

    cdef inline void keep_larger(self, double* best, const double* value, double most) noexcept nogil:
        # best (TOGETHER,) <- the larger of it and the values, cut off.
        cdef Py_ssize_t i
        cdef double x
        for i in range(TOGETHER):
            x = value[i] if value[i] < most else most
            best[i] = best[i] if best[i] > x else x

    cdef double backward(
        self, const double* weights, double* theta, double* omega, double* carry, double near, double impatience,
        Py_ssize_t first
    ) noexcept nogil:
        # theta (H, K, d) <- estimates of all episodes, omega <- those of W. Returns the largest residual.
        # - `weights` (n_episodes,): how often an episode counts. Then omega is NULL: F alone, clipped to [0, 1], so
        #   that the tables of the last plan stay.
        # - `carry` (n_episodes,), or (H, n_episodes) where levels share data, with weights: targets are returns, see
        #   `refit`. It gets those of each level.
        # - `first`: the levels before stay as they are.
        cdef Py_ssize_t h, size = self.n_actions * self.dimension
        cdef double* hope
        cdef double residual = 0.0
        if self.levels[0].rows.seen.n == 0:
            return residual
        if weights != NULL and self.pooled:
            self.weigh(weights)
        for h in range(self.horizon - 1, first - 1, -1):
            hope = NULL if omega == NULL else omega + h * size
            if weights == NULL:
                self.sum_targets(h)
            elif self.pooled:
                self.weigh_shared_targets(h, weights, theta, carry, near)
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
        cdef const Data* data = level.data
        cdef const State* following
        cdef const Move* move
        for p in range(level.rows.seen.n * self.n_actions):
            level.pairs[p].target = level.pairs[p].hope = data.tried[p].earned
            if h + 1 == self.horizon and self.pooled:
                level.pairs[p].target += data.tried[p].count * self.end_worth
                level.pairs[p].hope = level.pairs[p].target
        if h + 1 < self.horizon:
            for t in range(data.moved.n):
                move = data.moves + t
                following = self.levels[h + 1].states + move.next
                level.pairs[move.pair].target += move.count * following.plain
                level.pairs[move.pair].hope += move.count * following.hopeful

    cdef bint gather(self) noexcept nogil:
        # The steps that count, of all episodes, by level; False if memory ran out.
        cdef Py_ssize_t h, e, p, n = 0, last = self.horizon - 1, n_actions = self.n_actions
        cdef const Step* step
        cdef Past* past
        if self.gathered:
            return True
        if not (grown(<void**> &self.past, (self.horizon * self.n_episodes + 1) * sizeof(Past))
                and grown(<void**> &self.sequels, (self.rows_of.seen.n * n_actions + 1) * sizeof(Sequel))):
            return False
        for h in range(self.horizon):
            self.past_from[h] = n
            for e in range(self.n_episodes):
                step = self.levels[h].steps + e
                if self.rows_of.columns[step.row] == ENDED:
                    continue
                p, past = step.row * n_actions + step.action, self.past + n
                past.episode, past.pair, past.reward = <int32_t> e, <int32_t> p, step.paid / self.width
                past.move, past.last_move, past.next = <int32_t> step.move, -1, -1
                if self.joins_last(h):
                    past.last_move = <int32_t> self.levels[last].data.tried[p].move
                if h < last:
                    step = self.levels[h + 1].steps + e
                    past.next = <int32_t> (step.row * n_actions + step.action)
                n += 1
        self.past_from[self.horizon] = n
        self.gathered = True
        return True

    cdef void weigh(self, const double* weights) noexcept nogil:
        # The weights of all moves and pairs, from the episodes, where levels share data.
        cdef Py_ssize_t h, i, p, t
        cdef double w, shaken = 0.0
        cdef const Past* past
        cdef Data* data
        cdef Data* last = self.levels[self.horizon - 1].data
        for i in range(self.n_data):
            data = self.data + i
            for p in range(data.rows.seen.n * self.n_actions):
                data.tried[p].weight = data.tried[p].shaken = 0.0
            for t in range(data.moved.n):
                data.moves[t].weight = data.moves[t].weighted = 0.0
        self.weighed = NULL
        for h in range(self.horizon):
            data = self.levels[h].data
            for i in range(self.past_from[h], self.past_from[h + 1]):
                past = self.past + i
                w = weights[past.episode]
                if self.normals != NULL:
                    shaken = w * self.normals[h * self.n_episodes + past.episode]
                if past.move >= 0:
                    weigh_step(data, past.move, past, w, shaken)
                if past.last_move >= 0:
                    weigh_step(last, past.last_move, past, w, shaken)

    cdef void weigh_shared_targets(
        self, Py_ssize_t h, const double* weights, const double* theta, double* carry, double near
    ) noexcept nogil:
        # `weigh_targets` where levels share data.
        cdef Py_ssize_t e, p, t, last = self.horizon - 1
        cdef double y
        cdef const double* imagined = self.imagined
        cdef Level* level = self.levels + h
        cdef const Data* data = level.data
        cdef const State* states = NULL if h == last else self.levels[h + 1].states
        cdef const Move* move
        cdef Pair* pair
        for e in range(h if imagined != NULL else 0):
            imagined += self.levels[e].rows.seen.n * self.n_actions
        for p in range(level.rows.seen.n * self.n_actions):
            pair = level.pairs + p
            pair.weight, pair.target = data.tried[p].weight, 0.0
            if self.normals != NULL:
                pair.target = data.tried[p].shaken * sqrt(pair.noise * min(1.0, data.tried[p].leverage))
            if imagined != NULL:
                pair.weight += imagined[p]
                pair.target += imagined[p] * self.ceiling(h, level.states[p // self.n_actions].held)
        if carry != NULL:
            self.weigh_returns(h, weights, theta, carry, near)
            return
        for t in range(data.moved.n):
            move = data.moves + t
            y = self.end_worth if states == NULL else states[move.next].value
            level.pairs[move.pair].target += move.weighted + move.weight * y

    cdef void weigh_returns(
        self, Py_ssize_t h, const double* weights, const double* theta, double* carry, double near
    ) noexcept nogil:
        # The returns of all steps of the data of level h, as if they had been made there: as in the episode, as long as
        # its actions are good. O(steps), with a table of what each pair of the next level says.
        cdef Py_ssize_t k, i, last = self.horizon - 1, n = self.n_episodes
        cdef double y
        cdef bint followed
        cdef Pair* pairs = self.levels[h].pairs
        cdef const State* states = NULL if h == last else self.levels[h + 1].states
        cdef const Past* past
        cdef const Sequel* sequel
        if h < last:
            self.look_up_sequels(h + 1, theta, near)
        for k in range(self.horizon):
            if not self.belongs(k, h):
                continue
            followed = k < last and h < last and self.belongs(k + 1, h + 1)
            for i in range(self.past_from[k], self.past_from[k + 1]):
                past = self.past + i
                if followed:
                    sequel = self.sequels + past.next
                    y = past.reward + (sequel.kept * carry[(k + 1) * n + past.episode] + sequel.more)
                elif h < last:
                    y = past.reward + states[past.next // self.n_actions].value
                else:
                    y = past.reward + self.end_worth
                carry[k * n + past.episode] = y
                pairs[past.pair].target += weights[past.episode] * y

    cdef void look_up_sequels(self, Py_ssize_t h, const double* theta, double near) noexcept nogil:
        # What follows if the next step is one of these pairs, at level h: the return goes on after a greedy action, or
        # one that is worth less by at most `near`, which is added; else the value of the state follows.
        cdef Py_ssize_t a, j
        cdef const Level* level = self.levels + h
        cdef const State* state
        cdef Sequel* sequel
        cdef double less
        theta += h * self.n_actions * self.dimension
        for j in range(level.rows.seen.n):
            state = level.states + j
            for a in range(self.n_actions):
                sequel = self.sequels + j * self.n_actions + a
                sequel.kept, sequel.more = 0.0, state.value
                if self.has_ended(level, j):
                    continue
                if state.greedy == a:
                    sequel.kept, sequel.more = 1.0, 0.0
                elif level.data.tried[j * self.n_actions + a].count > 0.0:
                    less = state.value - clip(
                        row_dot(&level.rows.seen, j, theta + a * self.dimension), self.most_fitted(h)
                    )
                    if 0.0 <= less <= near:
                        sequel.kept, sequel.more = 1.0, less

    cdef inline bint belongs(self, Py_ssize_t k, Py_ssize_t h) noexcept nogil:
        # Whether the steps of level k are in the data of level h.
        if h == self.horizon - 1:
            return self.joins_last(k) if self.n_data > self.n_groups else k == h
        return k < self.horizon - 1 and self.levels[k].data == self.levels[h].data

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
        for p in range(level.rows.seen.n * self.n_actions):
            level.pairs[p].weight = level.pairs[p].target = 0.0
        if imagined != NULL:
            for e in range(h):
                imagined += self.levels[e].rows.seen.n * self.n_actions
            for p in range(level.rows.seen.n * self.n_actions):
                level.pairs[p].weight = imagined[p]
                level.pairs[p].target = imagined[p] * self.ceiling(h, level.states[p // self.n_actions].held)
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
                y += self.normals[h * self.n_episodes + e] * sqrt(
                    pair.noise * min(1.0, level.data.tried[pair - level.pairs].leverage)
                )
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
        less = value - clip(row_dot(&level.rows.seen, step.row, theta), self.most_fitted(h))
        return carry + less if 0.0 <= less <= near else value

    cdef void fit(self, Py_ssize_t h, bint weighted, double* theta, double* omega, double impatience) noexcept nogil:
        # theta (K, d) <- estimates of level h, and omega if it is not NULL.
        cdef Py_ssize_t a, j, d = self.dimension
        cdef Level* level = self.levels + h
        cdef const Observed* seen = &level.rows.seen
        cdef const Factor* factor
        cdef const Pair* pair
        cdef double* u
        # Levels that share data have the same weights, but for visits that are imagined.
        cdef bint known = weighted and self.weighed == level.data and self.imagined == NULL
        for a in range(self.n_actions):
            factor = level.data.factors + a
            memset(theta + a * d, 0, d * sizeof(double))
            if omega != NULL:
                memset(omega + a * d, 0, d * sizeof(double))
            if level.data.shared and level.rows.table:
                self.fit_table(level, a, weighted, theta, omega, impatience)
                continue
            u = factor.u
            if weighted:
                # Rows are rotated in: a sum of squares would lose what is shorter than the root of the rounding.
                u = self.weighted + a * self.weighted_size
                if not known:
                    diagonal(u, self.root, factor.n)
            for j in range(seen.n):
                pair = level.pairs + j * self.n_actions + a
                if weighted and not known and pair.weight != 0.0:
                    rotate_in(factor, u, seen.rows + j * d, pair.weight, self.w)
                if pair.target != 0.0:
                    add_row(theta + a * d, seen, j, pair.target)
                if omega != NULL and pair.hope != 0.0:
                    add_row(
                        omega + a * d, seen, j,
                        pair.hope / (1.0 + impatience * level.data.tried[j * self.n_actions + a].leverage)
                    )
            solve_on_support(factor, u, theta + a * d, self.w)
            if omega != NULL:
                solve_on_support(factor, u, omega + a * d, self.w)
        if weighted and self.pooled:
            self.weighed = level.data

    cdef void fit_table(
        self, const Level* level, Py_ssize_t a, bint weighted, double* theta, double* omega, double impatience
    ) noexcept nogil:
        # The estimates of action a, whose V is diagonal.
        cdef Py_ssize_t j, column
        cdef double x, v
        cdef const Pair* pair
        cdef const Tried* tried
        for j in range(level.rows.seen.n):
            column = level.rows.columns[j]
            if column < 0:
                continue
            x = level.rows.seen.rows[j * self.dimension + column]
            pair, tried = level.pairs + j * self.n_actions + a, level.data.tried + j * self.n_actions + a
            v = self.ridge + (pair.weight if weighted else tried.count) * x * x
            theta[a * self.dimension + column] = x * pair.target / v
            if omega != NULL:
                omega[a * self.dimension + column] = x * pair.hope / (1.0 + impatience * tried.leverage) / v

    cdef void evaluate(self, Py_ssize_t h, const double* theta, const double* omega) noexcept nogil:
        # Values of all rows of level h; without omega, F and its greedy action.
        cdef Py_ssize_t a, j, d = self.dimension
        cdef double most, f
        cdef Level* level = self.levels + h
        cdef const Observed* seen = &level.rows.seen
        cdef const Tried* tried
        cdef State* state
        cdef Pair* pair
        for j in range(seen.n):
            state = level.states + j
            if omega == NULL:
                if self.pooled:
                    state.greedy = self.greedy_of(seen, j, theta, &state.value)
                else:
                    state.greedy = greedy_action(seen.rows + j * d, theta, self.n_actions, d, &state.value)
                state.value = clip(state.value, self.most_fitted(h))
                if self.has_ended(level, j):
                    state.value = self.end_worth
                continue
            for a in range(self.n_actions):
                pair = level.pairs + j * self.n_actions + a
                pair.target = row_dot(seen, j, theta + a * d)
                pair.hope = row_dot(seen, j, omega + a * d)
        if omega == NULL:
            return
        if self.guess > 0.0:
            self.estimate_noise(h)
        for j in range(seen.n):
            state = level.states + j
            most = self.ceiling(h, state.held)
            state.plain = state.hopeful = 0.0
            state.greedy = 0
            if self.has_ended(level, j):
                state.plain = state.hopeful = self.end_worth
                state.variance, state.rival = 0.0, 0.0
                continue
            for a in range(self.n_actions):
                pair, tried = level.pairs + j * self.n_actions + a, level.data.tried + j * self.n_actions + a
                f = clip(pair.target, most)
                if f > state.plain:
                    state.plain, state.greedy = f, a
                f = self.hoped(
                    level.data, f, tried.chance, pair.hope, most, self.lucky(pair.noise, tried.leverage),
                    self.claim_of(tried, pair)
                )
                state.hopeful = max(state.hopeful, f)
            if self.guess > 0.0:
                self.compare(h, j, most)

    cdef inline bint has_ended(self, const Level* level, Py_ssize_t j) noexcept nogil:
        return self.pooled and level.rows.columns[j] == ENDED

    cdef inline double claim_of(self, const Tried* tried, const Pair* pair) noexcept nogil:
        # -1 where nothing is claimed beyond one outcome: the chance is below the floor, or no step was tried.
        return pair.claim if self.repeats and tried.count > 0.0 and tried.chance >= self.floor else -1.0

    cdef Py_ssize_t greedy_of(
        self, const Observed* seen, Py_ssize_t j, const double* theta, double* best
    ) noexcept nogil:
        # `greedy_action` of a sparse row.
        cdef Py_ssize_t a, greedy = 0
        cdef double value
        best[0] = -INFINITY
        for a in range(self.n_actions):
            value = row_dot(seen, j, theta + a * self.dimension)
            if value > best[0]:
                best[0], greedy = value, a
        return greedy

    cdef void compare(self, Py_ssize_t h, Py_ssize_t j, double most) noexcept nogil:
        # Of row j of level h: the variance of max_a F, and the largest W of the other actions.
        cdef Py_ssize_t a
        cdef double best = -INFINITY
        cdef Level* level = self.levels + h
        cdef State* state = level.states + j
        cdef const Pair* pair = level.pairs + j * self.n_actions
        cdef const Tried* tried = level.data.tried + j * self.n_actions
        # Where values are cut off at the top, the greedy action is that of the largest fit.
        for a in range(self.n_actions):
            if pair[a].target > best:
                best, state.greedy = pair[a].target, a
        state.rival = 0.0
        for a in range(self.n_actions):
            if a != state.greedy:
                state.rival = max(state.rival, self.hoped(
                    level.data, clip(pair[a].target, most), tried[a].chance, pair[a].hope, most,
                    self.lucky(pair[a].noise, tried[a].leverage), self.claim_of(tried + a, pair + a)
                ))
        pair += state.greedy
        state.variance = pair.noise * min(1.0, tried[state.greedy].leverage) + pair.later

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
        for p in range(level.rows.seen.n * self.n_actions):
            level.pairs[p].weight = level.pairs[p].noise = level.pairs[p].later = 0.0
        for t in range(level.data.moved.n):
            move = level.data.moves + t
            pair = level.pairs + move.pair
            value = self.levels[h + 1].states[move.next].plain if h + 1 < self.horizon else self.end_worth
            value -= pair.target
            if h + 1 < self.horizon:
                pair.later += move.count * self.levels[h + 1].states[move.next].variance
            pair.noise += max(0.0, move.squared + 2.0 * value * move.paid + value * value * move.count)
            pair.weight += move.count
        for p in range(level.rows.seen.n * self.n_actions):
            pair = level.pairs + p
            squares += pair.noise
            spare += max(0.0, pair.weight * (1.0 - level.data.tried[p].leverage))
        level.noise = squares / spare
        for p in range(level.rows.seen.n * self.n_actions):
            pair = level.pairs + p
            pair.noise = (SHARED * level.noise + pair.noise) / (SHARED + pair.weight)
            pair.later /= max(1.0, pair.weight)

    cdef double residual(self, Py_ssize_t h) noexcept nogil:
        # The largest |r + max_b F(s', b) - phi^T theta^a| of a move of level h.
        cdef Py_ssize_t t
        cdef double largest = 0.0, value
        cdef const Level* level = self.levels + h
        cdef const Move* move
        for t in range(level.data.moved.n):
            move = level.data.moves + t
            value = self.levels[h + 1].states[move.next].plain if h + 1 < self.horizon else self.end_worth
            value -= level.pairs[move.pair].target
            largest = max(largest, max(fabs(move.most + value), fabs(move.least + value)))
        return largest

    cdef void look_further(self) noexcept nogil:
        # Z at all levels, given a plan.
        cdef Py_ssize_t h
        self.follow()
        for h in range(self.horizon - 1, -1, -1):
            self.raise_values(h)
        if self.pooled and self.rows_of.table:
            self.look_alone(0, True)
        for h in range(self.horizon - 1, -1, -1):
            self.look_beyond(h)

    cdef void follow(self) noexcept nogil:
        # The reach of every row under the greedy policy of the plan, by the moves that were seen.
        cdef Py_ssize_t h, j, t
        cdef Level* level
        cdef const Move* move
        cdef const State* state
        for j in range(self.levels[0].rows.seen.n):
            self.levels[0].states[j].reach = self.levels[0].states[j].visits
        for h in range(self.horizon - 1):
            level = self.levels + h
            for j in range(self.levels[h + 1].rows.seen.n):
                self.levels[h + 1].states[j].reach = 0.0
            for t in range(level.data.moved.n):
                move = level.data.moves + t
                state = level.states + move.pair // self.n_actions
                if state.greedy == move.pair % self.n_actions:
                    self.levels[h + 1].states[move.next].reach += (
                        state.reach * move.count / level.data.tried[move.pair].count
                    )

    cdef inline bint on_the_way(self, const State* state) noexcept nogil:
        # Whether the greedy policy comes to a row about as often as the episodes did.
        return state.reach > 0.0 and state.reach >= ON_THE_WAY * state.visits

    cdef void raise_values(self, Py_ssize_t h) noexcept nogil:
        # By how much the mean of a pair of level h may be better, as an outcome may be more frequent than it was.
        cdef Py_ssize_t a, j, t, p, d = self.dimension
        cdef double value, hidden
        cdef Level* level = self.levels + h
        cdef const Data* data = level.data
        cdef const Move* move
        cdef const State* following = NULL
        cdef State* state
        cdef Pair* pair
        for p in range(level.rows.seen.n * self.n_actions):
            pair = level.pairs + p
            pair.spread = pair.top = 0.0
        for t in range(data.moved.n):
            move = data.moves + t
            pair = level.pairs + move.pair
            state = level.states + move.pair // self.n_actions
            if h + 1 < self.horizon:
                following = self.levels[h + 1].states + move.next
            if state.greedy == move.pair % self.n_actions and self.on_the_way(state):
                value = pair.target - pair.hope
                if following != NULL:
                    value += following.hopeful - following.plain
                pair.spread += value * value * move.count
            else:
                value = (self.end_worth if following == NULL else following.hopeful) - pair.hope
                pair.spread += move.squared + 2.0 * value * move.paid + value * value * move.count
                value += move.most
            pair.top = max(pair.top, value)
        for a in range(self.n_actions):
            memset(self.x, 0, d * sizeof(double))
            for j in range(level.rows.seen.n):
                if level.pairs[j * self.n_actions + a].spread > 0.0:
                    add_row(self.x, &level.rows.seen, j, level.pairs[j * self.n_actions + a].spread)
            self.solve(level, a)
            for j in range(level.rows.seen.n):
                level.pairs[j * self.n_actions + a].spread = row_dot(&level.rows.seen, j, self.x)
        for j in range(level.rows.seen.n):
            state = level.states + j
            for a in range(self.n_actions):
                p = j * self.n_actions + a
                pair = level.pairs + p
                pair.raised = 0.0
                if self.guess > 0.0 and not (a == state.greedy and self.on_the_way(state)):
                    pair.spread = max(pair.spread, pair.noise)
                if pair.spread > ROUNDING:
                    hidden = 0.5 * data.tried[p].chance * pair.top
                    pair.raised = hidden + sqrt(
                        hidden * hidden + 2.0 * self.confidence * data.tried[p].leverage * pair.spread
                    )

    cdef void solve(self, const Level* level, Py_ssize_t a) noexcept nogil:
        # x <- V^{-1} x with the V of an action.
        cdef Py_ssize_t j, column
        cdef double value
        if not (level.data.shared and level.rows.table):
            solve_on_support(level.data.factors + a, level.data.factors[a].u, self.x, self.w)
            return
        for j in range(level.rows.seen.n):
            column = level.rows.columns[j]
            if column >= 0:
                value = level.rows.seen.rows[j * self.dimension + column]
                self.x[column] /= self.ridge + level.data.tried[j * self.n_actions + a].count * value * value

    cdef void look_beyond(self, Py_ssize_t h) noexcept nogil:
        # Z of all pairs of level h.
        cdef Py_ssize_t a, j, t, p, d = self.dimension
        cdef double value, most
        cdef Level* level = self.levels + h
        cdef const Data* data = level.data
        cdef const Move* move
        cdef State* state
        cdef Pair* pair
        for p in range(level.rows.seen.n * self.n_actions):
            level.pairs[p].weight = data.tried[p].earned
            if h + 1 == self.horizon and self.pooled:
                level.pairs[p].weight += data.tried[p].count * self.end_worth
        for t in range(data.moved.n if h + 1 < self.horizon else 0):
            move = data.moves + t
            level.pairs[move.pair].weight += move.count * self.levels[h + 1].states[move.next].behind
        for a in range(self.n_actions):
            memset(self.x, 0, d * sizeof(double))
            for j in range(level.rows.seen.n):
                if level.pairs[j * self.n_actions + a].weight != 0.0:
                    add_row(self.x, &level.rows.seen, j, level.pairs[j * self.n_actions + a].weight)
            self.solve(level, a)
            for j in range(level.rows.seen.n):
                level.pairs[j * self.n_actions + a].behind = row_dot(&level.rows.seen, j, self.x)
        for j in range(level.rows.seen.n):
            state = level.states + j
            most = self.ceiling(h, state.held)
            state.behind = state.hopeful
            if self.has_ended(level, j):
                continue
            for a in range(self.n_actions):
                pair = level.pairs + j * self.n_actions + a
                value = pair.hope + pair.raised
                pair.behind = clip(max(value, pair.behind), most)
                state.behind = max(state.behind, pair.behind)

    cdef inline double ceiling(self, Py_ssize_t h, double before) noexcept nogil:
        # What can still be earned from level h on after so much.
        return max(0.0, min(self.levels[h].top, self.levels[0].top - before))

    cdef inline double most_fitted(self, Py_ssize_t h) noexcept nogil:
        # Where fits to reweighted episodes are clipped. With noise two estimates above the top are no tie.
        return self.levels[h].top if self.guess == 0.0 else INFINITY

    cdef inline double hoped(
        self, const Data* data, double f, double chance, double later, double most, double lucky, double claim
    ) noexcept nogil:
        # W of a pair whose F is f and whose phi^T omega is `later`; its mean may be better by `lucky`. `claim` < 0:
        # what it may hide is not known for all levels together.
        cdef double base = f
        if claim < 0.0:
            if data.shared and self.sums and not data.rows.table:
                base = clip(max(f, later), most)
            claim = base + (chance if chance >= self.floor else 0.0) * (most - base)
        return clip(max(max(claim, f + lucky), later), most)

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
        cdef Py_ssize_t a, p, j = number_of(&level.rows.seen, phi), count = 0, chosen, n_actions = self.n_actions
        cdef Py_ssize_t d = self.dimension
        cdef double best = 0.0, most, leverage, chance, claim
        cdef const Tried* tried = level.data.tried
        if self.guess > 0.0:
            earned = -INFINITY
        most = self.ceiling(h, max(earned, level.states[j].held) if j >= 0 else earned)
        for a in range(n_actions):
            p, claim = j * n_actions + a, -1.0
            if j >= 0:
                leverage, chance = tried[p].leverage, tried[p].chance
                if leverage == tried[p].planned:
                    claim = min(self.claim_of(tried + p, level.pairs + p), most)
            else:
                leverage = self.leverage(level.data, a, phi, -1)
                chance = chance_of(self.log_confidence * leverage)
            self.scores[a] = self.hoped(
                level.data, clip(dot(phi, self.theta + (h * n_actions + a) * d, d), most), chance,
                dot(phi, self.omega + (h * n_actions + a) * d, d), most,
                self.lucky(level.pairs[p].noise if j >= 0 else level.noise, leverage), claim
            )
            if self.raised and j >= 0:
                self.scores[a] = max(self.scores[a], min(level.pairs[p].behind, most))
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
        for i in range(level.rows.seen.n * n_actions):
            level.pairs[i].weight = 0.0
        for i in range(index.shape[0]):
            level.pairs[level.steps[index[i]].row * n_actions + level.steps[index[i]].action].weight += 1.0
        for j in range(level.rows.seen.n):
            best, visits, pair = 0.0, 0.0, level.pairs + j * n_actions
            for a in range(n_actions):
                visits += pair[a].weight
            if visits == 0.0:
                continue
            for a in range(n_actions):
                self.scores[a] = clip(row_dot(&level.rows.seen, j, theta + a * self.dimension), self.most_fitted(h))
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
        carry = np.zeros((self.horizon if self.pooled else 1) * self.n_episodes) if flag(returns, "returns") else None
        cdef double slack = number(near, "near")
        cdef double* theta = entries(estimates)
        cdef double* carried = NULL if carry is None else entries(carry)
        cdef double* by_episode = entries(given)
        self.begin_work()
        try:
            self.make_room_for_weighted()
            if self.pooled and not self.gather():
                raise MemoryError()
            self.imagined = NULL if extra is None else entries(extra)
            self.normals = NULL if shaken is None else entries(shaken)
            with nogil:
                self.backward(by_episode, theta, NULL, carried, slack, 0.0, 0)
        finally:
            self.imagined = self.normals = NULL
            self.busy = False
        return estimates

    cdef int make_room_for_weighted(self) except -1:
        cdef Py_ssize_t i, a, most = 0
        for i in range(self.n_data):
            for a in range(self.n_actions):
                most = max(most, self.data[i].factors[a].n)
        # Levels that share data find the factors of all actions there.
        self.weighted_size = most * most if self.pooled else 0
        most *= most * (self.n_actions if self.pooled else 1)
        if most > len(self._weighted):
            self._weighted = np.empty(most)
            self.weighted = entries(self._weighted)
        return 0
