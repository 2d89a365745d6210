"""Learners of the baselines, one transition at a time.

- `LinearQLearner`: Q-learning with linear function approximation (Melo and Ribeiro, 2007).
- `SpanLearner`: Optimistic Constraint Propagation for a linear span (Wen and Van Roy, 2013, section 5).
- `UCBQLearner`, `DelayedQLearner`: Q-learning on a table, with upper confidence bounds (Jin et al., 2018) and delayed
  (Strehl et al., 2006).
- `BernsteinLearner`, `PolicyOptimisationLearner`: BPI-UCBVI and optimistic policy optimisation, which estimate a model
  of every level and plan in it.

Rewards are those of an `Episode` in units: values to go are in [0, 1], and a single reward may be of any sign. Tabular
papers have rewards in [0, 1] and returns of up to H, so their numbers are here over H.
"""

from libc.math cimport INFINITY, exp, fabs, sqrt
from libc.stdint cimport int64_t
from libc.stdlib cimport free, realloc
from libc.string cimport memcpy

from dmq_fast.kernels._episode cimport Episode, Learner, Sharing, tops_of
from dmq_fast.kernels._simulator cimport SCORE
from dmq_fast.kernels._validate cimport entries, integer

import numpy as np

from dmq_fast.kernels._validate import as_positive


cdef class LinearQLearner(Learner):
    """Epsilon-greedy Q-learning: theta_h^a <- theta_h^a + alpha_e delta phi(s_h), after every step.

    delta = r_h + max_b phi(s_{h+1})^T theta_{h+1}^b - phi(s_h)^T theta_h^a, without the maximum at the last level. A
    step changes theta of all levels that share its data, from the last to the first. In episode e = 0, 1, ... the step
    size is alpha / (1 + e alpha_decay), and the probability of a uniform action epsilon / (1 + e epsilon_decay).

    Parameters
    ----------
    episode : Episode
    alpha, epsilon : float
        In [0, 1].
    alpha_decay, epsilon_decay : float
        >= 0.
    groups : sequence of int, optional
        A label for each level; a step of one level is data for all levels of its label.
    """

    cdef double alpha, alpha_decay, epsilon, epsilon_decay
    cdef Sharing sharing
    cdef object _theta, _before
    # (H, K, d) and (d,)
    cdef double* theta
    cdef double* before

    def __cinit__(self, Episode episode not None, alpha, alpha_decay, epsilon, epsilon_decay, *, groups=None):
        self.alpha, self.epsilon = fraction("alpha", alpha), fraction("epsilon", epsilon)
        self.alpha_decay = as_positive("alpha_decay", alpha_decay, zero=True)
        self.epsilon_decay = as_positive("epsilon_decay", epsilon_decay, zero=True)
        self._theta = np.zeros((episode.horizon, episode.n_actions, episode.dimension))
        self._before = np.zeros(episode.dimension)
        self.theta, self.before = entries(self._theta), entries(self._before)
        self.sharing = Sharing(groups, episode.horizon)
        if self.sharing.shares:
            self.work *= episode.horizon

    @property
    def weights(self):
        """The estimates, a copy, shape (H, K, d)."""
        return self._theta.copy()

    cdef double score(self, Py_ssize_t h) noexcept nogil:
        # scores_a <- phi^T theta_h^a; returns the largest.
        cdef Py_ssize_t a, d = self.episode.dimension
        cdef const double* theta = self.theta + h * self.episode.n_actions * d
        cdef double total, best = 0.0
        for a in range(self.episode.n_actions):
            total = product(theta + a * d, self.episode.phi, d)
            self.episode.scores[a] = total
            if a == 0 or total > best:
                best = total
        return best

    cdef bint play(self) noexcept nogil:
        cdef Py_ssize_t h, a, d = self.episode.dimension, last = self.episode.horizon - 1
        cdef double alpha = self.alpha / (1.0 + self.n_episodes * self.alpha_decay)
        cdef double epsilon = self.epsilon / (1.0 + self.n_episodes * self.epsilon_decay)
        cdef double ahead, predicted
        cdef double[2] u
        if not self.episode.observe():
            return False
        self.score(0)
        for h in range(last + 1):
            self.episode.draw(u, 2)
            a = self.episode.pick()
            if a < 0:
                return False
            if u[0] < epsilon:
                a = <Py_ssize_t> (u[1] * self.episode.n_actions)
            predicted = self.episode.scores[a]
            memcpy(self.before, self.episode.phi, d * sizeof(double))
            if not self.episode.move(a):
                return False
            if h < last and not self.episode.observe():
                return False
            if self.sharing.shares:
                self.share(h, a, alpha)
            ahead = self.score(h + 1) if h < last else 0.0
            if not self.sharing.shares:
                self.add(h, a, alpha * (self.episode.reward + ahead - predicted))
        return True

    cdef void share(self, Py_ssize_t h, Py_ssize_t a, double alpha) noexcept nogil:
        # The step of level h at all levels that learn from it. After the end, features are 0 and change nothing.
        cdef Py_ssize_t k, i, data, place, last = self.episode.horizon - 1, d = self.episode.dimension
        cdef double delta
        for i in range(self.sharing.begin[h], self.sharing.begin[h + 1]):
            data = self.sharing.entered[i]
            for k in range(last, -1, -1):
                if self.sharing.of[k] != data:
                    continue
                place = (k * self.episode.n_actions + a) * d
                delta = self.episode.reward if k < last or h == last else self.episode.reward_at_end(h)
                delta += self.score(k + 1) if k < last else 0.0
                self.add(k, a, alpha * (delta - product(self.theta + place, self.before, d)))

    cdef void add(self, Py_ssize_t h, Py_ssize_t a, double step) noexcept nogil:
        cdef Py_ssize_t i, d = self.episode.dimension
        cdef double* theta = self.theta + (h * self.episode.n_actions + a) * d
        for i in range(d):
            theta[i] += step * self.before[i]


cdef inline double product(const double* x, const double* y, Py_ssize_t d) noexcept nogil:
    cdef Py_ssize_t i
    cdef double total = 0.0
    for i in range(d):
        total += x[i] * y[i]
    return total


cdef double fraction(str name, value) except -1.0:
    cdef double number = as_positive(name, value, zero=True)
    if number > 1.0:
        raise ValueError(f"{name}: expected a number in [0, 1], got {number}")
    return number


# If Q_h(., a) is in the span of d features and nothing else is known, the largest Q(s, a) that agrees with the
# equations seen so far is the value they give if phi(s) is a combination of their features, and infinite otherwise.


cdef class SpanLearner(Learner):
    """Learn Q* of a deterministic system from equations Q_h(s, a) = y.

    Parameters
    ----------
    episode : Episode
        Of a deterministic environment: no step may depend on a uniform.
    tolerance : float
        > 0. Features at most so far from the known span count as in it.
    groups : sequence of int, optional
        A label for each level; a step of one level gives equations for all levels of its label at which the value of
        the next state is known.

    Attributes
    ----------
    n_conflicts : int
        Equations that contradict earlier ones by more than 1e-6: Q* is not linear, or the environment is random.
    """

    cdef readonly Py_ssize_t n_conflicts
    cdef double tolerance
    cdef Sharing sharing
    cdef object _theta, _basis, _ranks, _record, _residual
    # theta (H, K, d), of least norm; orthonormal bases (H, K, d, d), of which `ranks` (H, K) rows are in use.
    cdef double* theta
    cdef double* basis
    cdef int64_t[:, ::1] ranks_
    # Of the episode: features (H, d), rewards, those of steps that end the episode, and actions (H,).
    cdef double* record
    cdef double* residual
    cdef double[::1] rewards
    cdef double[::1] at_end
    cdef int64_t[::1] actions

    def __cinit__(self, Episode episode not None, tolerance, *, groups=None):
        cdef Py_ssize_t horizon = episode.horizon, n_actions = episode.n_actions, d = episode.dimension
        self.tolerance = as_positive("tolerance", tolerance)
        self._theta, self._basis = np.zeros((horizon, n_actions, d)), np.zeros((horizon, n_actions, d, d))
        self._ranks = np.zeros((horizon, n_actions), dtype=np.int64)
        self._record, self._residual = np.zeros((horizon, d)), np.zeros(d)
        self.theta, self.basis = entries(self._theta), entries(self._basis)
        self.record, self.residual, self.ranks_ = entries(self._record), entries(self._residual), self._ranks
        self.rewards, self.at_end = np.zeros(horizon), np.zeros(horizon)
        self.actions = np.zeros(horizon, dtype=np.int64)
        self.sharing = Sharing(groups, horizon)
        self.work = 4 * horizon * n_actions * d * d * (horizon if self.sharing.shares else 1)

    @property
    def weights(self):
        """The estimates of least norm, a copy, shape (H, K, d)."""
        return self._theta.copy()

    @property
    def ranks(self):
        """Dimensions of the known spans, a copy, shape (H, K)."""
        return self._ranks.copy()

    cdef double distance(self, Py_ssize_t h, Py_ssize_t a, const double* phi) noexcept nogil:
        # residual <- phi - B^T B phi, twice for the sake of rounding; returns its norm. 0 where the span is everything:
        # whatever the tolerance, rounding adds no direction to d of them.
        cdef Py_ssize_t i, k, _twice, d = self.episode.dimension, n_actions = self.episode.n_actions
        cdef const double* row
        cdef double total
        if self.ranks_[h, a] == d:
            return 0.0
        memcpy(self.residual, phi, d * sizeof(double))
        for _twice in range(2):
            for k in range(self.ranks_[h, a]):
                row = self.basis + ((h * n_actions + a) * d + k) * d
                total = 0.0
                for i in range(d):
                    total += row[i] * self.residual[i]
                for i in range(d):
                    self.residual[i] -= total * row[i]
        total = 0.0
        for i in range(d):
            total += self.residual[i] * self.residual[i]
        return sqrt(total)

    cdef double optimistic(self, Py_ssize_t h, Py_ssize_t a, const double* phi) noexcept nogil:
        # sup Q_h(s, a)
        if self.distance(h, a, phi) > self.tolerance:
            return INFINITY
        return self.predict(h, a, phi)

    cdef double predict(self, Py_ssize_t h, Py_ssize_t a, const double* phi) noexcept nogil:
        cdef Py_ssize_t d = self.episode.dimension
        return product(self.theta + (h * self.episode.n_actions + a) * d, phi, d)

    cdef Py_ssize_t choose(self, Py_ssize_t h, const double* phi, double* value) noexcept nogil:
        # argmax_a sup Q_h(s, a), ties to the smallest.
        cdef Py_ssize_t a, action = 0
        cdef double score
        value[0] = -INFINITY
        for a in range(self.episode.n_actions):
            score = self.optimistic(h, a, phi)
            if score > value[0]:
                value[0], action = score, a
        return action

    cdef void add(self, Py_ssize_t h, Py_ssize_t a, const double* phi, double y) noexcept nogil:
        # The equation phi^T theta = y.
        cdef Py_ssize_t i, d = self.episode.dimension, place = h * self.episode.n_actions + a
        cdef double length = self.distance(h, a, phi), off = y - self.predict(h, a, phi)
        cdef double* row
        if length <= self.tolerance:
            self.n_conflicts += fabs(off) > 1e-6
            return
        row = self.basis + (place * d + self.ranks_[h, a]) * d
        for i in range(d):
            row[i] = self.residual[i] / length
            # Earlier equations still hold: the new direction is orthogonal to their features.
            self.theta[place * d + i] += off / length * row[i]
        self.ranks_[h, a] += 1

    cdef bint play(self) noexcept nogil:
        cdef Py_ssize_t h, k, i, last = self.episode.horizon - 1, d = self.episode.dimension
        cdef bint over
        cdef double value = 0.0
        for h in range(last + 1):
            if not self.episode.observe():
                return False
            memcpy(self.record + h * d, self.episode.phi, d * sizeof(double))
            self.actions[h] = self.choose(h, self.episode.phi, &value)
            if value != value or value == -INFINITY:
                return self.episode.fail(SCORE, 0, value)
            over = self.episode.is_over()
            if not self.episode.move(self.actions[h]):
                return False
            self.rewards[h] = self.episode.reward
            self.at_end[h] = 0.0 if over else self.episode.reward_at_end(h)
        # Backward: a new equation of a level may make the value known that the level before needs.
        for k in range(last, -1, -1):
            for h in range(last, -1, -1):
                for i in range(self.sharing.begin[h], self.sharing.begin[h + 1]):
                    if self.sharing.entered[i] == self.sharing.of[k]:
                        self.learn(k, h)
        return True

    cdef void learn(self, Py_ssize_t k, Py_ssize_t h) noexcept nogil:
        # The equation at level k of the step of level h, if the value of what followed is known there.
        cdef Py_ssize_t last = self.episode.horizon - 1, d = self.episode.dimension
        cdef double value = 0.0, reward = self.at_end[h] if k == last and h < last else self.rewards[h]
        if k < last:
            self.choose(k + 1, self.record + (h + 1) * d, &value)
        if value != INFINITY:
            self.add(k, self.actions[h], self.record + h * d, reward + value)


cdef class TabularLearner(Learner):
    """Base class of learners with a table of Q by level, state and action, on which actions are greedy by default.

    Parameters
    ----------
    episode : Episode
        Of an environment whose states are numbered: one with `n_states`.
    groups : sequence of int, optional
        A label for each level; a step of one level is data for all levels of its label. They must have as many states.
        Where levels share data, an episode that has ended is known to earn nothing more; else that is learned.
    """

    def __cinit__(self, Episode episode not None, *arguments, groups=None, **options):
        if episode.n_states is None:
            raise TypeError("env: expected a FiniteMDP or a block MDP, whose states are numbered")
        sizes = np.array(episode.n_states)
        self.first = np.cumsum(sizes) - sizes
        self.q = np.ones((sizes.sum(), episode.n_actions))
        self.visits = np.zeros((sizes.sum(), episode.n_actions), dtype=np.int64)
        self.sharing = Sharing(groups, episode.horizon)
        self.pool, self.n_pooled = pools_of(episode, self.sharing)
        self.tried = np.zeros((self.n_pooled, episode.n_actions), dtype=np.int64)
        if self.sharing.shares:
            self.work += episode.horizon * episode.horizon * episode.n_actions

    cdef list by_level(self, table):
        return np.split(table, np.asarray(self.first)[1:])

    @property
    def table(self):
        """Q, copies, a list of H arrays (S_h, K)."""
        return self.by_level(np.array(self.q))

    @property
    def counts(self):
        """How often every action was taken, copies, a list of H arrays (S_h, K)."""
        return self.by_level(np.array(self.visits))

    cdef bint play(self) noexcept nogil:
        cdef Py_ssize_t h, a, i, data, following, state = self.episode.latent(), last = self.episode.horizon - 1
        cdef bint over = False
        cdef double reward
        for h in range(last + 1):
            a = self.choose(self.first[h] + state)
            if a < 0 or not self.episode.move(a):
                return False
            self.visits[self.first[h] + state, a] += 1
            following = self.episode.latent() if h < last else -1
            if not over:
                over = self.sharing.shares and h < last and self.episode.just_ended(h)
                for i in range(self.sharing.begin[h], self.sharing.begin[h + 1]):
                    data = self.sharing.entered[i]
                    self.tried[self.pool[data] + state, a] += 1
                    if h == last or data != self.sharing.last:
                        reward = self.episode.reward
                    else:
                        reward = self.episode.reward_at_end(h)
                    if not self.learn(data, state, a, reward, -1 if over or data == self.sharing.last else following):
                        return False
            state = following
        self.plan()
        return True

    cdef Py_ssize_t choose(self, Py_ssize_t row) noexcept nogil:
        cdef Py_ssize_t a
        for a in range(self.episode.n_actions):
            self.episode.scores[a] = self.q[row, a]
        return self.episode.pick()

    cdef bint learn(
        self, Py_ssize_t data, Py_ssize_t state, Py_ssize_t a, double reward, Py_ssize_t following
    ) noexcept nogil:
        return True

    cdef void plan(self) noexcept nogil:
        pass


cdef tuple pools_of(Episode episode, Sharing sharing):
    # The first row of each data set in arrays with a row for each of its states, and their number of rows.
    sizes, most = np.zeros(sharing.n, dtype=np.int64), {}
    for label, data, n in zip(sharing.groups, np.asarray(sharing.of), episode.n_states, strict=True):
        sizes[data] = n
        if most.setdefault(label, n) != n:
            raise ValueError(
                f"homogeneous: expected levels of one label to have as many states, got {most[label]} and {n}"
            )
    return np.cumsum(sizes) - sizes, sizes.sum()


cdef class UCBQLearner(TabularLearner):
    """Algorithm 1 of Jin, Allen-Zhu, Bubeck and Jordan (2018), with Hoeffding bonuses.

    Q_h begins at top_h. At the t-th visit Q_h <- (1 - alpha_t) Q_h + alpha_t (r + min(top_{h+1}, max_b Q_{h+1}(s', b))
    + c top_h sqrt(H / t)), where alpha_t = (H + 1) / (H + t) or a constant. A step is a visit at all levels that share
    its data, from the last to the first.

    Parameters
    ----------
    episode : Episode
    c : float
        >= 0; the paper's c sqrt(iota).
    alpha : float or None
        A constant step size in (0, 1], instead of the paper's.
    clipped : bool
        Whether Q_h itself is kept at or below top_h. The paper only does so with V, so that a visited action can look
        better than one never tried.
    optimism : {"flat", "steps"}
        top_h, the largest value hoped for at level h: 1, or H - h.
    groups : sequence of int, optional
        As of `TabularLearner`.
    """

    cdef double c, alpha
    cdef bint clipped
    # By row.
    cdef double[::1] tops

    def __cinit__(self, Episode episode not None, c, alpha, bint clipped, *, optimism="flat", groups=None):
        self.c = as_positive("c", c, zero=True)
        self.alpha = 0.0 if alpha is None else as_positive("alpha", alpha)
        if self.alpha > 1.0:
            raise ValueError(f"alpha: expected a number in (0, 1] or None, got {alpha}")
        self.clipped = clipped
        self.tops = np.repeat(tops_of(optimism, episode.horizon), episode.n_states)
        np.asarray(self.q)[:] = np.asarray(self.tops)[:, None]

    cdef bint learn(
        self, Py_ssize_t data, Py_ssize_t state, Py_ssize_t a, double reward, Py_ssize_t following
    ) noexcept nogil:
        cdef Py_ssize_t h
        cdef int64_t t = self.tried[self.pool[data] + state, a]
        for h in range(self.episode.horizon - 1, -1, -1):
            if self.sharing.of[h] == data:
                self.update(self.first[h] + state, a, t, reward, self.row_after(h, following))
        return True

    cdef void update(self, Py_ssize_t row, Py_ssize_t a, double t, double reward, Py_ssize_t following) noexcept nogil:
        cdef double horizon = self.episode.horizon, alpha = self.alpha, top = self.tops[row]
        cdef double ahead = self.best(following)
        if alpha == 0.0:
            alpha = (horizon + 1.0) / (horizon + t)
        if following >= 0 and ahead > self.tops[following]:
            ahead = self.tops[following]
        self.q[row, a] = (1.0 - alpha) * self.q[row, a] + alpha * (reward + ahead + self.c * top * sqrt(horizon / t))
        if self.clipped and self.q[row, a] > top:
            self.q[row, a] = top


cdef class DelayedQLearner(TabularLearner):
    """Delayed Q-learning (Strehl, Li, Wiewiora, Langford and Littman, 2006) with a table a level and no discount.

    An entry attempts an update after every m visits that it counts: if Q is at least 2 epsilon above the mean of
    r + max_b Q(s', b) over them, Q becomes that mean plus epsilon. After an attempt that failed, an entry counts no
    visits until some Q has changed since. A step is a visit at all levels that share its data, from the last to the
    first.

    Parameters
    ----------
    episode : Episode
    m : int
        >= 1.
    epsilon : float
        >= 0, the paper's epsilon_1.
    groups : sequence of int, optional
        As of `TabularLearner`.

    Attributes
    ----------
    n_attempts, n_updates : int
        Attempts to change an entry so far, and those that changed it.
    """

    cdef int64_t m, step, changed
    cdef double epsilon
    cdef readonly Py_ssize_t n_attempts, n_updates
    # By row and action: U, l, t and LEARN of the paper.
    cdef double[:, ::1] total
    cdef int64_t[:, ::1] waited
    cdef int64_t[:, ::1] attempted
    cdef signed char[:, ::1] learning

    def __cinit__(self, Episode episode not None, m, epsilon, *, groups=None):
        self.m = integer(m, "m", 1, 2**63 - 1)
        self.epsilon = as_positive("epsilon", epsilon, zero=True)
        shape = (self.q.shape[0], self.q.shape[1])
        self.total = np.zeros(shape)
        self.waited, self.attempted = np.zeros(shape, dtype=np.int64), np.zeros(shape, dtype=np.int64)
        self.learning = np.ones(shape, dtype=np.int8)

    cdef bint learn(
        self, Py_ssize_t data, Py_ssize_t state, Py_ssize_t a, double reward, Py_ssize_t following
    ) noexcept nogil:
        cdef Py_ssize_t h
        for h in range(self.episode.horizon - 1, -1, -1):
            if self.sharing.of[h] == data:
                self.update(self.first[h] + state, a, reward, self.row_after(h, following))
        return True

    cdef void update(self, Py_ssize_t row, Py_ssize_t a, double reward, Py_ssize_t following) noexcept nogil:
        cdef double mean
        self.step += 1
        if not self.learning[row, a]:
            if self.attempted[row, a] < self.changed:
                self.learning[row, a] = True
            return
        self.total[row, a] += reward + self.best(following)
        self.waited[row, a] += 1
        if self.waited[row, a] < self.m:
            return
        mean = self.total[row, a] / self.m
        self.n_attempts += 1
        if self.q[row, a] - mean >= 2.0 * self.epsilon:
            self.q[row, a] = mean + self.epsilon
            self.changed = self.step
            self.n_updates += 1
        elif self.attempted[row, a] >= self.changed:
            self.learning[row, a] = False
        self.attempted[row, a], self.total[row, a], self.waited[row, a] = self.step, 0.0, 0


# The model of a pair (a state of a data set, an action) has the frequencies of its next states and the mean reward on
# the way to each. A plan goes from the last level to the first over all transitions that have been seen, so an episode
# costs
#
#     O(H + K S + E),   S states of all levels, E distinct transitions seen, once for each level that they are data of.

cdef enum:
    FIRST_ROOM = 64

# The transitions of a pair into one next state: their number, their mean reward, the state (-1 if the episode is over),
# and the next transition of the pair, or -1.
cdef struct Transition:
    int64_t count
    double reward
    Py_ssize_t state
    Py_ssize_t next


cdef class ModelLearner(TabularLearner):
    """Base class of learners that keep a model and plan after every episode.

    Parameters
    ----------
    episode : Episode
        Of an environment whose states are numbered: one with `n_states`.
    optimism : str
        cap_h, the most that is believed of a pair of level h, and what is believed of one never tried: "flat", 1, or
        "steps", the number of steps to go.
    groups : sequence of int, optional
        As of `TabularLearner`.
    """

    cdef Transition* transitions
    cdef Py_ssize_t n_transitions, room
    # (n_pooled, K) the first transition of a pair, or -1, and the sum of squares of rewards about the mean of their
    # transition.
    cdef Py_ssize_t[:, ::1] heads
    cdef double[:, ::1] within
    # (rows,) cap_h of the row's level, and values to plan with.
    cdef double[::1] cap
    cdef double[::1] value

    def __cinit__(self, Episode episode not None, optimism, *arguments, groups=None, **options):
        self.cap = np.repeat(tops_of(optimism, episode.horizon), episode.n_states)
        self.q = np.repeat(self.cap, episode.n_actions).reshape(-1, episode.n_actions)
        self.value = np.array(self.cap)
        self.heads = np.full((self.n_pooled, episode.n_actions), -1)
        self.within = np.zeros((self.n_pooled, episode.n_actions))
        self.work += 8 * self.q.shape[0] * episode.n_actions

    def __dealloc__(self):
        free(self.transitions)

    def fit(self):
        """Return Q of the model itself, without optimism, a list of H arrays (S_h, K); 0 where nothing was tried."""
        cdef Py_ssize_t h, row, pair, a
        cdef double[:, ::1] q = np.zeros((self.q.shape[0], self.q.shape[1]))
        cdef double[::1] value = np.zeros(self.q.shape[0])
        self.begin_work()
        try:
            for h in reversed(range(self.episode.horizon)):
                pair = self.pool[self.sharing.of[h]]
                for row in range(self.first[h], self.end(h)):
                    for a in range(self.q.shape[1]):
                        q[row, a] = self.expected(pair, a, value, h)
                    value[row] = largest(q, row)
                    pair += 1
        finally:
            self.busy = False
        return self.by_level(np.asarray(q))

    # One past the last row of level h.
    cdef inline Py_ssize_t end(self, Py_ssize_t h) noexcept nogil:
        return self.first[h + 1] if h + 1 < self.episode.horizon else self.q.shape[0]

    cdef bint learn(
        self, Py_ssize_t data, Py_ssize_t state, Py_ssize_t a, double reward, Py_ssize_t following
    ) noexcept nogil:
        cdef Py_ssize_t pair = self.pool[data] + state, i = self.heads[pair, a], more
        cdef Transition* found
        cdef void* moved
        cdef double off
        while i >= 0 and self.transitions[i].state != following:
            i = self.transitions[i].next
        if i < 0:
            if self.n_transitions == self.room:
                more = max(<Py_ssize_t> FIRST_ROOM, 2 * self.room)
                moved = realloc(self.transitions, more * sizeof(Transition))
                if moved == NULL:
                    return False
                self.transitions, self.room = <Transition*> moved, more
            i = self.n_transitions
            self.n_transitions += 1
            self.transitions[i] = Transition(0, 0.0, following, self.heads[pair, a])
            self.heads[pair, a] = i
        found = self.transitions + i
        found.count += 1
        off = reward - found.reward
        found.reward += off / found.count
        self.within[pair, a] += off * (reward - found.reward)
        return True

    # Below, `pair` is a row of the data set of level h, and `value` is by row of the table.

    cdef double expected(self, Py_ssize_t pair, Py_ssize_t a, const double[::1] value, Py_ssize_t h) noexcept nogil:
        # Mean of reward + value of the next state at level h + 1; 0 for a pair that was never tried.
        cdef Py_ssize_t i = self.heads[pair, a]
        cdef Transition t
        cdef double total = 0.0
        if i < 0:
            return 0.0
        while i >= 0:
            t = self.transitions[i]
            total += t.count * (t.reward if t.state < 0 else t.reward + value[self.first[h + 1] + t.state])
            i = t.next
        return total / self.tried[pair, a]

    cdef double variance(
        self, Py_ssize_t pair, Py_ssize_t a, const double[::1] value, Py_ssize_t h, double mean
    ) noexcept nogil:
        # Variance of reward + value of the next state, about a mean that `expected` has returned.
        cdef Py_ssize_t i = self.heads[pair, a]
        cdef Transition t
        cdef double total = self.within[pair, a], off
        while i >= 0:
            t = self.transitions[i]
            off = (t.reward if t.state < 0 else t.reward + value[self.first[h + 1] + t.state]) - mean
            total += t.count * off * off
            i = t.next
        return total / self.tried[pair, a]


cdef class BernsteinLearner(ModelLearner):
    """BPI-UCBVI (Menard, Domingues, Jonsson, Kaufmann, Leurent and Valko, 2021), with the bonus

        b(s, a) = c1 sqrt(Var(r + U(s')) / n(s, a)) + c2 / n(s, a) + c1 noise / sqrt(n(s, a)),

    mean and variance under the model. U_h(s, a) = min(cap_h, mean(r + max_b U(s', b)) + b(s, a)), where cap_h is 1 or
    the number of steps to go, and L_h(s, a) = max(0, mean(r + max_b L(s', b)) - b(s, a)). Pairs that were never tried
    have U = cap_h and L = 0. Actions are greedy on U.

    Parameters
    ----------
    episode : Episode
    optimism : str
        cap_h: "flat" or "steps".
    c1, c2 : float
        >= 0.
    epsilon : float or None
        > 0. Learning stops at the first `gap` of at most epsilon; with None, never.
    noise : float, optional
        >= 0. Standard deviation of rewards around their means. The variance seen holds it too, but that of few visits
        may be far too small.
    groups : sequence of int, optional
        As of `TabularLearner`: n(s, a), mean and variance are then of all levels of a label.

    Attributes
    ----------
    gap : float
        The mean over first states of min(1, max U) - max L. If the environment has several first states, these are
        weighted by their frequencies, and c1 sqrt(Var / n) + c2 / n is added, n episodes; at most 1.
    """

    cdef double c1, c2, epsilon, noise
    cdef readonly double gap
    # (rows, K), and (rows,) its largest entries.
    cdef double[:, ::1] low
    cdef double[::1] sure

    def __cinit__(self, Episode episode not None, optimism, c1, c2, epsilon, noise=0.0, *, groups=None):
        self.c1, self.c2 = as_positive("c1", c1, zero=True), as_positive("c2", c2, zero=True)
        self.epsilon = -1.0 if epsilon is None else as_positive("epsilon", epsilon)
        self.noise = as_positive("noise", noise, zero=True)
        self.low, self.sure = np.zeros((self.q.shape[0], self.q.shape[1])), np.zeros(self.q.shape[0])
        self.gap = 1.0

    @property
    def lower(self):
        """L, copies, a list of H arrays (S_h, K); U is `table`."""
        return self.by_level(np.array(self.low))

    cdef void plan(self) noexcept nogil:
        cdef Py_ssize_t h, row, pair, a
        cdef double n, mean, bonus
        for h in range(self.episode.horizon - 1, -1, -1):
            pair = self.pool[self.sharing.of[h]]
            for row in range(self.first[h], self.end(h)):
                for a in range(self.q.shape[1]):
                    n = self.tried[pair, a]
                    if n == 0.0:
                        continue
                    mean = self.expected(pair, a, self.value, h)
                    bonus = self.c1 * sqrt(self.variance(pair, a, self.value, h, mean) / n) + self.c2 / n
                    bonus += self.c1 * self.noise / sqrt(n)
                    self.q[row, a] = min(self.cap[row], mean + bonus)
                    self.low[row, a] = max(0.0, self.expected(pair, a, self.sure, h) - bonus)
                self.value[row], self.sure[row] = largest(self.q, row), largest(self.low, row)
                pair += 1
        self.measure()
        self.stopped = self.gap <= self.epsilon

    cdef void measure(self) noexcept nogil:
        # The episode just played is not yet in `n_episodes`.
        cdef Py_ssize_t row, n_first = self.end(0)
        cdef double n = self.n_episodes + 1.0, mean = 0.0, variance = 0.0
        for row in range(n_first):
            mean += self.starts(row) / n * self.width(row)
        self.gap = mean
        if n_first > 1:
            for row in range(n_first):
                variance += self.starts(row) / n * (self.width(row) - mean) ** 2
            self.gap = min(1.0, self.gap + self.c1 * sqrt(variance / n) + self.c2 / n)

    cdef double starts(self, Py_ssize_t row) noexcept nogil:
        cdef Py_ssize_t a
        cdef int64_t n = 0
        for a in range(self.q.shape[1]):
            n += self.visits[row, a]
        return n

    cdef double width(self, Py_ssize_t row) noexcept nogil:
        return min(1.0, self.value[row]) - self.sure[row]


cdef class PolicyOptimisationLearner(ModelLearner):
    """Optimistic proximal policy optimisation, OPPO (Cai, Yang, Jin and Wang, 2020, algorithm 1), with tables.

    After every episode, from the last level to the first, under the model,

        Q_h(s, a) = min(cap_h, mean(r + V_{h+1}(s')) + beta / sqrt(n(s, a))),  V_h(s) = sum_a pi_h(a | s) Q_h(s, a).

    Then pi_h(a | s) becomes proportional to pi_h(a | s) exp(alpha Q_h(s, a)). The first pi is uniform.

    Parameters
    ----------
    episode : Episode
    optimism : str
        cap_h: "flat" or "steps".
    alpha, beta : float
        >= 0.
    groups : sequence of int, optional
        As of `TabularLearner`.
    """

    cdef double alpha, beta
    # (rows, K) log pi but for a constant of the row, and pi.
    cdef double[:, ::1] logits
    cdef double[:, ::1] pi

    def __cinit__(self, Episode episode not None, optimism, alpha, beta, *, groups=None):
        self.alpha, self.beta = as_positive("alpha", alpha, zero=True), as_positive("beta", beta, zero=True)
        self.logits = np.zeros((self.q.shape[0], self.q.shape[1]))
        self.pi = np.full((self.q.shape[0], self.q.shape[1]), 1.0 / episode.n_actions)

    @property
    def probabilities(self):
        """pi, copies, a list of H arrays (S_h, K)."""
        return self.by_level(np.array(self.pi))

    cdef Py_ssize_t choose(self, Py_ssize_t row) noexcept nogil:
        cdef Py_ssize_t a
        cdef double u
        self.episode.draw(&u, 1)
        for a in range(self.q.shape[1] - 1):
            u -= self.pi[row, a]
            if u < 0.0:
                return a
        return self.q.shape[1] - 1

    cdef void plan(self) noexcept nogil:
        cdef Py_ssize_t h, row, pair, a
        cdef double n, value
        cdef bint tried
        for h in range(self.episode.horizon - 1, -1, -1):
            pair = self.pool[self.sharing.of[h]]
            for row in range(self.first[h], self.end(h)):
                value, tried = 0.0, False
                for a in range(self.q.shape[1]):
                    n = self.tried[pair, a]
                    if n > 0.0:
                        self.q[row, a] = min(
                            self.cap[row], self.expected(pair, a, self.value, h) + self.beta / sqrt(n)
                        )
                        tried = True
                    value += self.pi[row, a] * self.q[row, a]
                if tried:
                    self.value[row] = value
                    self.improve(row)
                pair += 1

    cdef void improve(self, Py_ssize_t row) noexcept nogil:
        cdef Py_ssize_t a
        cdef double top, total = 0.0
        for a in range(self.q.shape[1]):
            self.logits[row, a] += self.alpha * self.q[row, a]
        top = largest(self.logits, row)
        for a in range(self.q.shape[1]):
            self.logits[row, a] -= top
            self.pi[row, a] = exp(self.logits[row, a])
            total += self.pi[row, a]
        for a in range(self.q.shape[1]):
            self.pi[row, a] /= total
