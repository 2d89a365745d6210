"""Least-squares value iteration on all transitions so far: fitted once, randomized or with upper confidence bounds.

    theta_h^a = V^{-1} sum phi(s_h) (r_h + value_{h+1}(s_{h+1})),   V = ridge I + sum phi(s_h) phi(s_h)^T,

sums over the transitions of level h with action a, from the last level to the first. `value` is the largest

- PLAIN: phi^T theta^a;
- NOISE: phi^T (theta^a + scale top_h U^{-1} z), V = U^T U, z standard normal (Osband, Van Roy and Wen, 2016,
  algorithm 1);
- BONUS: min(top_h, phi^T theta^a + scale top_h sqrt(phi^T V^{-1} phi)) (Jin, Yang, Wang and Jordan, 2020,
  algorithm 1).

If `clipped`, NOISE and BONUS clip the products with phi^T to [0, top_h] before anything is added.

Levels that are the same share their data: then the sums are over the transitions of all of them (see `Sharing`), with
one V, and the values of level h + 1.

phi(s) has weights theta^a and a V for each action. With `blocks` it consists of phi(s, 1), ..., phi(s, K), which share
one theta and one V. Below, the `width` of theta is d or d / K, and there are `n_weights` of them a level, K or 1.

The values of all observations reached so far change with theta, so each fit visits them all. Equal observations of a
level are kept once, with the sum of phi(s_h) over the transitions into them; so with m of them an episode costs

    O(H (m K d + K d^2))

where m <= episodes, or steps where levels share data, and m <= states if features have no noise. For BONUS this
includes the leverages phi^T V^{-1} phi of all m, which are stored: a row x that enters V reduces them by
(phi^T V^{-1} x)^2 / (1 + x^T V^{-1} x).
"""

from libc.math cimport INFINITY, sqrt
from libc.stdint cimport int64_t
from libc.stdlib cimport calloc, free
from libc.string cimport memcpy, memset

from dmq_fast.kernels._episode cimport Episode, Learner, Sharing, tops_of
from dmq_fast.kernels._linalg cimport dot, solve_factor, solve_factor_transposed, update_factor
from dmq_fast.kernels._simulator cimport SCORE
from dmq_fast.kernels._greedy cimport greedy_rows, pack_theta, packed_size
from dmq_fast.kernels._philox cimport normals_into
from dmq_fast.kernels._memory cimport grown
from dmq_fast.kernels._observed cimport FIRST_ROOM, Observed, keep, release_rows, room_for_more
from dmq_fast.kernels._validate cimport entries, flag

import numpy as np

from dmq_fast.kernels._validate import as_positive

cdef extern from "dmq_lsvi.h":
    void add_targets "dmq_add_targets"(
        double* moment, const double* values, const double* sums, const Py_ssize_t* pair, Py_ssize_t m,
        Py_ssize_t n_actions, Py_ssize_t d
    ) noexcept nogil
    Py_ssize_t confident "dmq_confident"(
        double* values, const double* phi, const double* theta, const double* leverage, double scale, double top,
        bint clipped, Py_ssize_t m, Py_ssize_t n_actions, Py_ssize_t d, Py_ssize_t width, Py_ssize_t apart,
        Py_ssize_t stride
    ) noexcept nogil
    void shrink "dmq_shrink"(
        double* leverage, const double* phi, const double* x, double denominator, Py_ssize_t m,
        Py_ssize_t n_actions, Py_ssize_t d, Py_ssize_t width
    ) noexcept nogil
    double clip "dmq_clip"(double fit, double top) noexcept nogil

cdef enum Exploration:
    PLAIN = 0
    NOISE = 1
    BONUS = 2

KINDS = {"uniform": PLAIN, "randomized": NOISE, "confident": BONUS}

cdef enum:
    # Rows passed to `greedy_rows` at a time.
    ROWS = 256
    # Rows rotated into V after which its leverages are computed afresh, to bound rounding.
    REFRESH = 1024

# The distinct observations that follow the steps of one data set, and these steps, for levels h + 1 with data of
# another: its V gives the leverages. Levels with the same two data sets have one store.
cdef struct Store:
    Observed seen
    # The two data sets.
    Py_ssize_t source
    Py_ssize_t data
    # Observations that the columns have room for.
    Py_ssize_t room
    # (room,) and (room, K).
    double* values
    double* leverage
    # (room, n_weights) the pair (weights, observation) of transitions, or -1.
    Py_ssize_t* pair
    # (n_pairs, width) sum of the action's features over the transitions of a pair.
    Py_ssize_t n_pairs
    Py_ssize_t pair_room
    double* sums


cdef bint make_room(Store* store, Py_ssize_t n_actions, Py_ssize_t n_weights) noexcept nogil:
    # In the columns, for one observation more.
    cdef Py_ssize_t room = room_for_more(&store.seen)
    if room > store.room:
        if not (grown(<void**> &store.values, room * sizeof(double))
                and grown(<void**> &store.leverage, room * n_actions * sizeof(double))
                and grown(<void**> &store.pair, room * n_weights * sizeof(Py_ssize_t))):
            return False
        store.room = room
    return True


cdef bint add_pair(Store* store, Py_ssize_t* pair, const double* phi, Py_ssize_t width) noexcept nogil:
    # Features of a transition into an observation enter the sum of their pair, which is made where there is none.
    cdef Py_ssize_t p = pair[0], i
    if p < 0:
        if store.n_pairs == store.pair_room:
            p = max(<Py_ssize_t> FIRST_ROOM, 2 * store.pair_room)
            if not grown(<void**> &store.sums, p * width * sizeof(double)):
                return False
            store.pair_room = p
        p = store.n_pairs
        pair[0] = p
        memset(store.sums + p * width, 0, width * sizeof(double))
        store.n_pairs += 1
    for i in range(width):
        store.sums[p * width + i] += phi[i]
    return True


cdef class LeastSquaresLearner(Learner):
    """Least-squares value iteration before every episode, or, with uniform actions, whenever `fit` is called.

    Parameters
    ----------
    episode : Episode
    kind : {"uniform", "randomized", "confident"}
        How actions are chosen: uniformly; greedily on randomized estimates; greedily on upper confidence bounds.
    ridge : float
        > 0.
    scale : float
        >= 0: scale of the noise or of the bonus.
    optimism : {"flat", "steps"}
        The largest value hoped for at level h, top_h: 1, or H - h. It caps upper confidence bounds and multiplies
        `scale`.
    clipped : bool, default False
        Whether the fit is clipped to [0, top_h] before the bonus is added, and randomized values are.
    blocks : bool, default False
        Whether an observation has a block of d / K features for each action, with weights that the actions share.
    groups : sequence of int, optional
        A label for each level; a step of one level is data for all levels of its label.

    Raises
    ------
    TypeError, ValueError
        On a wrong argument, or `blocks` where d is no multiple of K.
    """

    cdef Exploration kind
    cdef double ridge
    cdef bint clipped
    cdef Py_ssize_t n_weights, width
    # From the features of one action to those of the next: `width` with `blocks`, otherwise 0.
    cdef Py_ssize_t apart
    cdef Sharing sharing
    cdef Store* stores
    cdef Py_ssize_t n_stores
    # (H,) the store of the observations of each level; that of level 0 is not used.
    cdef Py_ssize_t[::1] store_of
    cdef object _factors, _moments, _theta, _record, _scratch, _since
    # (H,) tops, and scales of the noise or of the bonus.
    cdef double[::1] tops
    cdef double[::1] scales
    # By data set: U (n, n_weights, width, width) in upper triangles, and sum of r phi (n, n_weights, width). The
    # estimates in use, (H, n_weights, width).
    cdef double* factors
    cdef double* moments
    cdef double* theta
    # Features (H, d), rewards, those of steps that end the episode, and actions (H,) of the episode.
    cdef double* record
    cdef double[::1] rewards
    cdef double[::1] at_end
    cdef int64_t[::1] actions
    # (width,), (width,), (H, n_weights, width) twice, packed weights and (ROWS,).
    cdef double* x
    cdef double* w
    cdef double* uniforms
    cdef double* normals
    cdef double* packed
    cdef int64_t[::1] chosen
    # (n, n_weights) rows of a data set since leverages were computed afresh.
    cdef int64_t[:, ::1] since

    def __cinit__(
        self, Episode episode not None, kind, ridge, scale, *, optimism="flat", clipped=False, blocks=False, groups=None
    ):
        cdef Py_ssize_t horizon = episode.horizon, n_actions = episode.n_actions, d = episode.dimension, n, width, i
        if kind not in KINDS:
            raise ValueError(f"kind: expected one of {', '.join(KINDS)}, got {kind!r}")
        self.kind, self.clipped = KINDS[kind], flag(clipped, "clipped")
        self.ridge = as_positive("ridge", ridge)
        self.tops = tops_of(optimism, horizon)
        self.scales = as_positive("scale", scale, zero=True) * np.asarray(self.tops)
        self.n_weights, self.width = n_actions, d
        if flag(blocks, "blocks"):
            if d % n_actions != 0:
                raise ValueError(
                    "blocks: expected a number of features that is a multiple of the number of actions, got "
                    f"{d} features and {n_actions} actions"
                )
            self.n_weights, self.width, self.apart = 1, d // n_actions, d // n_actions
        n, width = self.n_weights, self.width
        self.sharing = Sharing(groups, horizon)
        links = {}
        self.store_of = np.array([links.setdefault(link, len(links)) for link in self.links()], dtype=np.intp)
        self.stores = <Store*> calloc(len(links), sizeof(Store))
        if self.stores == NULL:
            raise MemoryError()
        self.n_stores = len(links)
        for i, (source, data) in enumerate(links):
            self.stores[i].seen.d, self.stores[i].source, self.stores[i].data = d, source, data
        self._factors = np.zeros((self.sharing.n, n, width, width))
        self._factors[:, :, np.arange(width), np.arange(width)] = sqrt(self.ridge)
        self._moments, self._theta = np.zeros((self.sharing.n, n, width)), np.zeros((horizon, n, width))
        self._record = np.zeros((horizon, d))
        self._scratch = np.zeros(2 * width + 2 * horizon * n * width + packed_size(n_actions, d))
        self.factors, self.moments, self.theta = entries(self._factors), entries(self._moments), entries(self._theta)
        self.record = entries(self._record)
        self.x = entries(self._scratch)
        self.w = self.x + width
        self.uniforms = self.w + width
        self.normals = self.uniforms + horizon * n * width
        self.packed = self.normals + horizon * n * width
        self.rewards, self.at_end = np.zeros(horizon), np.zeros(horizon)
        self.actions = np.zeros(horizon, dtype=np.int64)
        self.chosen, self.since = np.zeros(ROWS, dtype=np.int64), np.zeros((self.sharing.n, n), dtype=np.int64)

    cdef list links(self):
        # The data sets of the level before and of the level itself; none before level 0.
        cdef Py_ssize_t h
        return [(self.sharing.of[h - 1] if h > 0 else -1, self.sharing.of[h]) for h in range(self.sharing.of.shape[0])]

    def __dealloc__(self):
        # `episode` may have been cleared already, so this counts with `n_stores`.
        cdef Py_ssize_t i
        for i in range(self.n_stores):
            release_rows(&self.stores[i].seen)
            free(self.stores[i].values)
            free(self.stores[i].leverage)
            free(self.stores[i].pair)
            free(self.stores[i].sums)
        free(self.stores)

    @property
    def weights(self):
        """The estimates that the last episode used, a copy, shape (H, K, d); zero for uniform actions."""
        return self.by_action(self._theta)

    @property
    def n_observations(self):
        """Number of distinct observations stored, by level; 0 at the first."""
        return tuple([self.stores[self.store_of[h]].seen.n for h in range(self.episode.horizon)])

    def fit(self):
        """Return the estimates of plain least squares on all transitions so far, shape (H, K, d).

        Raises
        ------
        ArithmeticError
            If they overflow.
        """
        estimates = np.zeros_like(self._theta)
        cdef double* theta = entries(estimates)
        cdef bint well
        self.begin_work()
        with nogil:
            well = self.iterate(theta, PLAIN)
        self.busy = False
        if not well:
            raise self.episode.explained()
        return self.by_action(estimates)

    cdef object by_action(self, theta):
        # A copy in the shape (H, K, d): shared weights stand in block a of action a, beside zeros.
        cdef Py_ssize_t n_actions = self.episode.n_actions
        if self.apart == 0:
            return theta.copy()
        spread = np.zeros((theta.shape[0], n_actions, n_actions, self.width))
        spread[:, np.arange(n_actions), np.arange(n_actions)] = theta
        return spread.reshape(theta.shape[0], n_actions, -1)

    cdef inline Py_ssize_t index(self, Py_ssize_t a) noexcept nogil:
        # Which of the weights of a level are those of action a.
        return a if self.apart == 0 else 0

    cdef inline double* factor(self, Py_ssize_t data, Py_ssize_t a) noexcept nogil:
        return self.factors + (data * self.n_weights + self.index(a)) * self.width * self.width

    cdef bint iterate(self, double* theta, Exploration kind) noexcept nogil:
        # theta (H, n_weights, width) <- estimates, backward.
        cdef Py_ssize_t h, a, i, data, n = self.n_weights, width = self.width
        cdef double* weights
        cdef double* z
        cdef Store* store
        for h in range(self.episode.horizon - 1, -1, -1):
            data = self.sharing.of[h]
            weights = theta + h * n * width
            memcpy(weights, self.moments + data * n * width, n * width * sizeof(double))
            if h < self.episode.horizon - 1:
                store = self.stores + self.store_of[h + 1]
                add_targets(weights, store.values, store.sums, store.pair, store.seen.n, n, width)
            for a in range(n):
                solve_factor_transposed(self.factor(data, a), weights + a * width, width)
                if kind == NOISE:
                    # U^{-1} (U^{-T} moment + scale z)
                    z = self.normals + (h * n + a) * width
                    for i in range(width):
                        weights[a * width + i] += self.scales[h] * z[i]
                solve_factor(self.factor(data, a), weights + a * width, width)
            if h > 0 and not self.evaluate(h, weights, kind):
                return False
        return True

    cdef bint evaluate(self, Py_ssize_t h, const double* weights, Exploration kind) noexcept nogil:
        # The values of the observations of level h.
        cdef Store* store = self.stores + self.store_of[h]
        cdef Py_ssize_t done = 0, size, n_actions = self.episode.n_actions, d = self.episode.dimension, j
        cdef Py_ssize_t wrong = -1
        cdef bint clipped = self.clipped and kind != PLAIN
        if kind == BONUS or self.apart > 0:
            wrong = confident(
                store.values, store.seen.rows, weights, store.leverage, self.scales[h] if kind == BONUS else 0.0,
                self.tops[h] if kind == BONUS or clipped else INFINITY, clipped, store.seen.n, n_actions, d, self.width,
                self.apart, self.index(1) * self.width
            )
        else:
            pack_theta(weights, n_actions, d, self.packed)
            while done < store.seen.n and wrong < 0:
                size = min(<Py_ssize_t> ROWS, store.seen.n - done)
                wrong = greedy_rows(
                    store.seen.rows + done * d, size, n_actions, d, self.packed, &self.chosen[0], store.values + done
                )
                done += size
            if clipped:
                for j in range(store.seen.n):
                    store.values[j] = clip(store.values[j], self.tops[h])
        if wrong >= 0:
            self.episode.level = h
            return self.episode.fail(SCORE, 0, 0.0)
        return True

    cdef double leverage(self, Py_ssize_t data, Py_ssize_t a, const double* phi) noexcept nogil:
        memcpy(self.w, phi + a * self.apart, self.width * sizeof(double))
        solve_factor_transposed(self.factor(data, a), self.w, self.width)
        return dot(self.w, self.w, self.width)

    cdef void score(self, Py_ssize_t h) noexcept nogil:
        cdef Py_ssize_t a
        cdef double total
        cdef const double* weights = self.theta + h * self.n_weights * self.width
        for a in range(self.episode.n_actions):
            total = dot(self.episode.phi + a * self.apart, weights + self.index(a) * self.width, self.width)
            if self.clipped:
                total = clip(total, self.tops[h])
            if self.kind == BONUS:
                total += self.scales[h] * sqrt(self.leverage(self.sharing.of[h], a, self.episode.phi))
                if total > self.tops[h]:
                    total = self.tops[h]
            self.episode.scores[a] = total

    cdef bint play(self) noexcept nogil:
        cdef Py_ssize_t h, a, size, d = self.episode.dimension
        cdef double u
        if self.kind == NOISE:
            size = self.episode.horizon * self.n_weights * self.width
            self.episode.draw(self.uniforms, (size + 1) // 2)
            normals_into(self.uniforms, self.normals, size)
        if self.kind != PLAIN:
            if not self.iterate(self.theta, self.kind):
                return False
            self.episode.level = 0
        for h in range(self.episode.horizon):
            if not self.episode.observe():
                return False
            if self.kind == PLAIN:
                self.episode.draw(&u, 1)
                a = <Py_ssize_t> (u * self.episode.n_actions)
            else:
                self.score(h)
                a = self.episode.pick()
                if a < 0:
                    return False
            memcpy(self.record + h * d, self.episode.phi, d * sizeof(double))
            if not self.episode.move(a):
                return False
            self.actions[h], self.rewards[h], self.at_end[h] = a, self.episode.reward, self.episode.reward_at_end(h)
        return self.absorb()

    cdef bint absorb(self) noexcept nogil:
        # The transitions of the episode enter the sums.
        cdef Py_ssize_t h, i, a, d = self.episode.dimension, last = self.episode.horizon - 1, data, size
        self.work = 0
        for h in range(last + 1):
            a = self.actions[h]
            for i in range(self.sharing.begin[h], self.sharing.begin[h + 1]):
                data = self.sharing.entered[i]
                self.enter(
                    data, a, self.record + h * d + a * self.apart,
                    self.at_end[h] if h < last and data == self.sharing.last else self.rewards[h]
                )
            if h > 0 and not self.follow(h):
                return False
            for i in range(self.sharing.begin[h], self.sharing.begin[h + 1]):
                data = self.sharing.entered[i]
                if self.kind == BONUS and self.since[data, self.index(a)] >= REFRESH:
                    self.refresh(data, a)
            if h > 0 and self.kind != PLAIN:
                size = self.stores[self.store_of[h]].seen.n
                self.work += (size + d) * self.episode.n_actions * (d + 8)
        self.work += self.episode.horizon * d * (d + self.episode.n_actions)
        return True

    cdef void enter(self, Py_ssize_t data, Py_ssize_t a, const double* phi, double reward) noexcept nogil:
        # The features phi of action a, and the reward, enter a data set.
        cdef Py_ssize_t i, place = data * self.n_weights + self.index(a)
        if self.kind == BONUS:
            self.update_leverages(data, a, phi)
        memcpy(self.w, phi, self.width * sizeof(double))
        update_factor(self.factor(data, a), self.w, self.width)
        for i in range(self.width):
            self.moments[place * self.width + i] += reward * phi[i]

    cdef bint follow(self, Py_ssize_t h) noexcept nogil:
        # What was observed at level h > 0 enters the stores of the step before. False if memory ran out.
        cdef Py_ssize_t i, j, d = self.episode.dimension, before = self.actions[h - 1]
        for i in range(self.n_stores):
            if self.stores[i].source != self.sharing.of[h - 1]:
                continue
            j = self.find(self.stores + i, self.record + h * d)
            if j < 0 or not add_pair(
                self.stores + i, self.stores[i].pair + j * self.n_weights + self.index(before),
                self.record + (h - 1) * d + before * self.apart, self.width
            ):
                return False
        return True

    cdef Py_ssize_t find(self, Store* store, const double* phi) noexcept nogil:
        # The number of an observation, which is kept if it is new; -1 if memory ran out.
        cdef Py_ssize_t a, j, n, n_actions = self.episode.n_actions
        n = store.seen.n
        if not make_room(store, n_actions, self.n_weights):
            return -1
        j = keep(&store.seen, phi)
        if j == n:
            store.values[j] = 0.0
            for a in range(self.n_weights):
                store.pair[j * self.n_weights + a] = -1
            for a in range(n_actions):
                store.leverage[j * n_actions + a] = self.leverage(store.data, a, phi) if self.kind == BONUS else 0.0
        return j

    cdef void update_leverages(self, Py_ssize_t data, Py_ssize_t a, const double* phi) noexcept nogil:
        # Before the features phi of action a enter V: x = V^{-1} phi.
        cdef Py_ssize_t i, b, n_actions = self.episode.n_actions
        cdef double denominator
        cdef Store* store
        memcpy(self.x, phi, self.width * sizeof(double))
        solve_factor_transposed(self.factor(data, a), self.x, self.width)
        solve_factor(self.factor(data, a), self.x, self.width)
        denominator = 1.0 + dot(self.x, phi, self.width)
        self.since[data, self.index(a)] += 1
        for i in range(self.n_stores):
            store = self.stores + i
            b = self.index(a) if store.data == data else n_actions
            while b < n_actions:
                shrink(
                    store.leverage + b, store.seen.rows + b * self.apart, self.x, denominator, store.seen.n, n_actions,
                    self.episode.dimension, self.width
                )
                b += self.n_weights

    cdef void refresh(self, Py_ssize_t data, Py_ssize_t a) noexcept nogil:
        # All actions with the weights of action a.
        cdef Py_ssize_t i, j, b, n_actions = self.episode.n_actions
        cdef Store* store
        self.since[data, self.index(a)] = 0
        for i in range(self.n_stores):
            store = self.stores + i
            b = self.index(a) if store.data == data else n_actions
            while b < n_actions:
                for j in range(store.seen.n):
                    store.leverage[j * n_actions + b] = self.leverage(
                        data, b, store.seen.rows + j * self.episode.dimension
                    )
                b += self.n_weights
