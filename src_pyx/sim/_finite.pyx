"""Rollouts of finite MDPs: trajectories are counted state by state, and the counts weight the features.

A level of the MDP is stored so that one step is two look-ups: every row (s, a) lists its possible next states
(its edges) with an alias table (Walker, 1977; Vose, 1991), or a single next state where the level is
deterministic. Moments need no trajectory: at level h they are sum_s count(s) phi(s) phi(s)^T and
sum_s (sum of returns from s) phi(s).

Uniforms are drawn a block of trajectories at a time, in this order: the start state (if there is more than
one); then per level those of a uniform rule, of a Bernoulli reward (from the first level whose return is asked
for), of the transition (if the level is stochastic; at the last level only if its reward depends on it). Nothing
is drawn for an outcome that is certain, and until something is drawn, all trajectories of a block are one.
"""

cimport numpy as cnp
from libc.math cimport INFINITY
from libc.stdint cimport int32_t, int64_t
from libc.string cimport memcpy, memset

from dmq_fast.kernels._greedy cimport greedy_action, greedy_action_sparse
from dmq_fast.kernels._memory cimport Owner
from dmq_fast.kernels._moments cimport add_outer, add_outer_sparse, mirror
from dmq_fast.kernels._philox cimport Philox, Stream, philox_open, philox_uniforms
from dmq_fast.kernels._plan cimport Plan
from dmq_fast.kernels._rows cimport LevelRows, empty_rows
from dmq_fast.kernels._rules cimport FIXED, UNIFORM
from dmq_fast.kernels._validate cimport entries

import numpy as np

from dmq_fast.kernels._validate import as_csr, as_floats, as_numbers, is_sparse

cnp.import_array()

# Trajectories simulated together: their states, rewards and uniforms stay in the first-level cache.
# Part of the format: it fixes the order in which uniforms are used.
cdef enum:
    BLOCK = 512


def alias_tables(probabilities):
    """Return the alias table of one distribution.

    Parameters
    ----------
    probabilities : numpy.ndarray of float64, shape (m,)
        Positive, summing to 1 up to rounding.

    Returns
    -------
    threshold : numpy.ndarray of float64, shape (m,)
    alias : numpy.ndarray of int32, shape (m,)
        A uniform u picks column k = floor(m u); the outcome is k if m u - k < threshold[k], else alias[k].

    Examples
    --------
    >>> alias_tables(np.array([0.5, 0.25, 0.25]))
    (array([1.  , 0.75, 0.75]), array([0, 0, 0], dtype=int32))
    """
    probabilities = as_floats("probabilities", probabilities, (None,))
    threshold = np.empty(probabilities.shape)
    alias = np.empty(probabilities.shape, dtype=np.int32)
    fill_alias(probabilities, threshold, alias)
    return threshold, alias


cdef int fill_alias(const double[::1] p, double[::1] threshold, int32_t[::1] alias) except -1:
    cdef Py_ssize_t m = p.shape[0], i, small, large
    cdef double total = 0.0
    for i in range(m):
        if not p[i] > 0.0:
            raise ValueError(f"probabilities: expected positive numbers, got {p[i]}")
        total += p[i]
    if not total < INFINITY:
        raise ValueError("probabilities: expected a sum of 1, got one that overflows float64")
    for i in range(m):
        threshold[i] = p[i] / total * m
        alias[i] = i
    cdef list below = [i for i in range(m) if threshold[i] < 1.0]
    cdef list above = [i for i in range(m) if threshold[i] >= 1.0]
    while below and above:
        small = below.pop()
        large = above[len(above) - 1]
        alias[small] = large
        threshold[large] -= 1.0 - threshold[small]
        if threshold[large] < 1.0:
            below.append(above.pop())
    # Columns that rounding left over have threshold 1.
    for i in below + above:
        threshold[i] = 1.0
    return 0


cdef int check_shapes(tuple transitions, tuple rewards, tuple features, start, caps) except -1:
    # Check the types and shapes that the pointers below rely on. FiniteMDP validates the numbers.
    cdef Py_ssize_t h, horizon = len(rewards)
    cdef set seen = set()
    for name, tables in (("transitions", transitions), ("rewards", rewards), ("features", features)):
        for h, table in enumerate(tables):
            if isinstance(table, np.ndarray):
                if id(table) not in seen:
                    seen.add(id(table))
                    as_floats(f"{name}: level {h}", table, table.shape)
            elif name == "rewards" or not is_sparse(table):
                wanted = "an array" if name == "rewards" else "a dense or sparse array"
                raise TypeError(f"{name}: level {h}: expected {wanted}, got {type(table).__name__}")
    if horizon == 0 or not (horizon == len(features) == len(caps)) or len(transitions) not in (horizon - 1, horizon):
        raise ValueError("transitions, rewards, features, caps: expected H - 1 or H, H, H and H entries with H >= 1")
    for h in range(horizon):
        here = rewards[h].shape[:2]
        if rewards[h].ndim not in (2, 3) or 0 in here or here[1] != rewards[0].shape[1]:
            raise ValueError(f"rewards: level {h}: expected shape (S, K) or (S, K, S'), got {rewards[h].shape}")
        if features[h].ndim != 2 or features[h].shape != (here[0], features[0].shape[1]) or features[h].shape[1] == 0:
            raise ValueError(f"features: level {h}: expected one row a state and one d, got {features[h].shape}")
        if h < len(transitions):
            ahead = rewards[h + 1].shape[0] if h + 1 < horizon else transitions[h].shape[transitions[h].ndim - 1]
            expected = (here[0] * here[1], ahead) if is_sparse(transitions[h]) else (*here, ahead)
            if transitions[h].shape != expected:
                raise ValueError(f"transitions: level {h}: expected shape {expected}, got {transitions[h].shape}")
        if rewards[h].ndim == 3 and (h >= len(transitions) or rewards[h].shape != transitions[h].shape):
            raise ValueError(f"rewards: level {h}: expected the shape of the transitions, got {rewards[h].shape}")
    if np.shape(start) != (rewards[0].shape[0],) or not np.any(start):
        raise ValueError(f"start: expected shape {(rewards[0].shape[0],)} and some mass, got shape {np.shape(start)}")
    return 0


def transition_edges(transitions):
    """Return the transitions of positive probability, in the order of their rows s K + a.

    Parameters
    ----------
    transitions : numpy.ndarray of shape (S, K, S'), or csr_array of shape (S K, S') in the form of `as_csr`

    Returns
    -------
    rows, targets : numpy.ndarray of int, shape (m,)
    probabilities : numpy.ndarray, shape (m,)

    Examples
    --------
    >>> transition_edges(np.array([[[0.0, 1.0], [0.5, 0.5]]]))
    (array([0, 1, 1]), array([1, 0, 1]), array([1. , 0.5, 0.5]))
    """
    if is_sparse(transitions):
        if transitions.format != "csr":
            raise TypeError(f"transitions: expected a csr_array or a dense array, got the format {transitions.format}")
        rows = np.repeat(np.arange(transitions.shape[0]), np.diff(transitions.indptr))
        return rows, transitions.indices, transitions.data
    transitions = as_numbers("transitions", transitions)
    if transitions.ndim != 3:
        raise ValueError(f"transitions: expected shape (S, K, S'), got {transitions.shape}")
    flat = transitions.reshape(-1, transitions.shape[2])
    rows, targets = np.nonzero(flat)
    return rows, targets, flat[rows, targets]


cdef class FiniteModel(Model):
    """A finite-horizon MDP packed for simulation. Immutable, and shared freely between threads.

    Parameters
    ----------
    transitions : sequence of H - 1 or H numpy.ndarray of shape (S_h, K, S_{h+1}) or csr_array of shape (S_h K, S_{h+1})
    rewards : sequence of H numpy.ndarray, each (S_h, K) or (S_h, K, S_{h+1})
    features : sequence of H numpy.ndarray or csr_array, each (S_h, d)
    start : numpy.ndarray, shape (S_0,)
    caps : numpy.ndarray, shape (H,)
        caps[h] > 0: the reward of level h is caps[h] with probability rewards[h] / caps[h], else 0.

    Notes
    -----
    The arrays must be such as `FiniteMDP` accepts. Levels that share an array object share its table.
    """

    def __cinit__(self, transitions, rewards, features, start, caps):
        cdef Py_ssize_t h
        # Levels that share an array are found by its id, so the arrays must stay alive until all are packed.
        transitions, rewards, features = tuple(transitions), tuple(rewards), tuple(features)
        start, caps = as_floats("start", start, (None,)), as_floats("caps", caps, (None,))
        check_shapes(transitions, rewards, features, start, caps)
        self.horizon = len(rewards)
        self.n_actions = rewards[0].shape[1]
        self.dimension = features[0].shape[1]
        self._alive = []
        self.levels = <Level*> self.zeros(self.horizon, sizeof(Level))
        self.offset = <Py_ssize_t*> self.zeros(self.horizon + 1, sizeof(Py_ssize_t))
        cdef dict packed = {}
        for h in range(self.horizon):
            states = features[h].shape[0]
            if states * self.n_actions >= 2**31:
                raise ValueError(f"level {h}: {states} states x {self.n_actions} actions exceed 2^31 rows")
            self.levels[h].n_states = states
            self.offset[h + 1] = self.offset[h] + states
            self.widest = max(self.widest, states)
            self.pack_features(h, features[h], packed)
            table = transitions[h] if h < len(transitions) else None
            self.pack_transitions(h, table, rewards[h].ndim == 3, packed)
            self.pack_rewards(h, table, rewards[h], caps[h])
        support = np.flatnonzero(start)
        threshold, alias = alias_tables(start[support])
        self.n_start = support.shape[0]
        self.start_threshold = self.keep_doubles(threshold)
        self.start_alias = self.keep_integers(alias)
        self.start_state = self.keep_integers(support.astype(np.int32))

    cdef const double* keep_doubles(self, array) except? NULL:
        cdef const double[::1] view = np.ascontiguousarray(array, dtype=np.float64).reshape(-1)
        self._alive.append(view)
        return &view[0] if view.shape[0] > 0 else NULL

    cdef const int32_t* keep_integers(self, array) except? NULL:
        cdef const int32_t[::1] view = np.ascontiguousarray(array, dtype=np.int32).reshape(-1)
        self._alive.append(view)
        return &view[0] if view.shape[0] > 0 else NULL

    cdef int pack_features(self, Py_ssize_t h, features, dict packed) except -1:
        cdef Level* level = &self.levels[h]
        if id(features) in packed:
            first = &self.levels[<Py_ssize_t> packed[id(features)]]
            level.dense, level.phi_start = first.dense, first.phi_start
            level.phi_column, level.phi_value = first.phi_column, first.phi_value
            return 0
        packed[id(features)] = h
        if is_sparse(features):
            csr = as_csr(f"features: level {h}", features, (None, self.dimension))
            starts, columns, values = csr.indptr, csr.indices, csr.data
        else:
            nonzero = features != 0.0
            counts = nonzero.sum(axis=1)
            # Indirect access costs about as much as three dense entries.
            if 4 * counts.max() > self.dimension:
                level.dense = self.keep_doubles(features)
                return 0
            rows, columns = np.nonzero(nonzero)
            starts, values = np.concatenate([[0], np.cumsum(counts)]), features[rows, columns]
        level.phi_start = self.keep_integers(starts)
        # One entry more than needed keeps the pointers valid where every feature is zero.
        level.phi_column = self.keep_integers(np.append(columns, 0))
        level.phi_value = self.keep_doubles(np.append(values, 0.0))
        return 0

    cdef int pack_transitions(self, Py_ssize_t h, table, bint by_edge, dict packed) except -1:
        cdef Level* level = &self.levels[h]
        cdef Level* first
        cdef Py_ssize_t row
        if table is None:
            level.deterministic = True
            level.successor = self.keep_integers(np.zeros(level.n_states * self.n_actions, dtype=np.int32))
            return 0
        key = (id(table), by_edge)
        if key in packed:
            first = &self.levels[<Py_ssize_t> packed[key]]
            level.deterministic, level.successor = first.deterministic, first.successor
            level.row_start, level.next_state = first.row_start, first.next_state
            level.threshold, level.alias = first.threshold, first.alias
            return 0
        packed[key] = h
        if is_sparse(table):
            table = as_csr(f"transitions: level {h}", table, (None, None))
        rows, targets, flat = transition_edges(table)
        counts = np.bincount(rows, minlength=level.n_states * self.n_actions)
        if not counts.all():
            raise ValueError(f"transitions: level {h}: expected some next state of every state and action")
        level.deterministic = counts.max() == 1
        if level.deterministic:
            level.successor = self.keep_integers(targets)
            return 0
        if len(rows) >= 2**31:
            raise ValueError(f"level {h}: {len(rows)} transitions exceed 2^31")
        starts = np.concatenate([[0], np.cumsum(counts)])
        threshold = np.empty(len(flat))
        alias = np.empty(len(flat), dtype=np.int32)
        for row in range(len(counts)):
            here = slice(starts[row], starts[row + 1])
            fill_alias(flat[here], threshold[here], alias[here])
        level.row_start = self.keep_integers(starts)
        level.next_state = self.keep_integers(targets)
        level.threshold = self.keep_doubles(threshold)
        level.alias = self.keep_integers(alias)
        return 0

    cdef int pack_rewards(self, Py_ssize_t h, table, rewards, double cap) except -1:
        cdef Level* level = &self.levels[h]
        if not rewards.any():
            level.rewards = NONE
        elif rewards.ndim == 3:
            rows, targets = np.nonzero(table.reshape(-1, table.shape[2]))
            level.rewards = BY_ROW if level.deterministic else BY_EDGE
            level.reward = self.keep_doubles(rewards.reshape(-1, table.shape[2])[rows, targets])
        elif cap > 0.0 and ((rewards != 0.0) & (rewards != cap)).any():
            level.rewards = BERNOULLI
            level.cap = cap
            level.reward = self.keep_doubles(rewards / cap)
        else:
            level.rewards = BY_ROW
            level.reward = self.keep_doubles(rewards)
        return 0

    cdef object draw(self, Plan plan, Py_ssize_t n, Stream stream, bint in_rows, double* moments, double* squares):
        cdef _CountedRollout job = _CountedRollout(self, plan, n)
        cdef Py_ssize_t i, d = self.dimension
        cdef cnp.npy_intp[3] shape
        cdef LevelRows rows = None
        cdef double* gram = NULL
        if in_rows:
            sums = rows = job.found = empty_rows(d, plan.n_levels)
        else:
            shape[0], shape[1], shape[2] = plan.n_levels, d, d
            sums = cnp.PyArray_ZEROS(3, shape, cnp.NPY_DOUBLE, 0)
            gram = entries(sums)
        job.simulate(stream)
        with nogil:
            for i in range(0 if in_rows and 0 < n <= job.block else plan.n_levels):
                if in_rows:
                    job.write_rows(plan.wanted[i])
                    plan.check_after(rows.starts[rows.begins[i + 1]])
                else:
                    job.write_gram(plan.wanted[i], gram + i * d * d)
                    plan.check_after(d * d + job.products(plan.wanted[i]) // 32)
            job.write_returns(moments, squares)
        return sums

    def returns(self, rules, Py_ssize_t n, Stream stream not None):
        """Simulate n trajectories to their ends and return the return of each, shape (n,); see `rollout`."""
        cdef Plan plan = Plan(rules, self.horizon, self.n_actions, self.dimension, (), (0,))
        cdef _CountedRollout job = _CountedRollout(self, plan, n)
        earned = np.zeros(n)
        job.earned = entries(earned)
        job.simulate(stream)
        return earned

    def trajectories(self, rules, Py_ssize_t n, Stream stream not None):
        """Simulate n trajectories to their ends, those of `rollout` with a return from level 0, and show them.

        Returns
        -------
        states : numpy.ndarray of int32, shape (n, H)
        actions : numpy.ndarray of int64, shape (n, H)
        rewards : numpy.ndarray, shape (n, H)
        """
        cdef Plan plan = Plan(rules, self.horizon, self.n_actions, self.dimension, (), (0,))
        cdef _CountedRollout job = _CountedRollout(self, plan, n)
        shape = (n, self.horizon)
        states, actions, rewards = np.zeros(shape, np.int32), np.zeros(shape, np.int64), np.zeros(shape)
        job.seen, job.taken, job.paid = states, actions, rewards
        job.shown = True
        job.simulate(stream)
        return states, actions, rewards


# Features of a state; `columns` is NULL for 0, 1, 2, ...
cdef struct Row:
    const int32_t* columns
    const double* values
    Py_ssize_t n


cdef class _CountedRollout(Owner):
    # One call of n trajectories, simulated `block` at a time: counters and workspace. States are numbers that are
    # counted and never observed, so this shares no step with a `Simulator` of compiled environments.
    cdef FiniteModel model
    cdef Plan plan
    cdef Py_ssize_t n
    cdef Py_ssize_t block
    cdef Philox generator
    # The second moments in rows, if they are wanted: level by level where one block is all, else at the end.
    cdef LevelRows found
    # By (level, state), at model.offset[level] + state: visits, and the greedy action (-1: not computed yet); no
    # actions are kept of one trajectory, which sees each state once.
    cdef Py_ssize_t* visits
    cdef int32_t* actions
    # Trajectories of the block that are simulated: one, which stands for all, until a uniform is drawn.
    cdef Py_ssize_t width
    # By trajectory of the block.
    cdef int32_t* states
    cdef int32_t* rows
    cdef double* uniforms
    cdef double* rewards
    # By (return, trajectory of the block): the state at its level, and the return so far.
    cdef int32_t* origin
    cdef double* so_far
    # By (return, state): sum of returns; by return: sum of squares.
    cdef double* totals
    cdef double* squares
    # Returns by trajectory; belongs to the caller, and is NULL if they are not wanted.
    cdef double* earned
    # States, actions and rewards (n, H), if they are to be shown.
    cdef bint shown
    cdef int32_t[:, ::1] seen
    cdef int64_t[:, ::1] taken
    cdef double[:, ::1] paid

    def __cinit__(self, FiniteModel model, Plan plan, Py_ssize_t n):
        cdef Py_ssize_t n_rows = model.offset[model.horizon], n_returns = plan.n_returns
        if n < 0:
            raise ValueError(f"n: expected a non-negative number of trajectories, got {n}")
        self.model = model
        self.plan = plan
        self.n = n
        self.block = max(<Py_ssize_t> 1, min(n, <Py_ssize_t> BLOCK))
        self.visits = <Py_ssize_t*> self.zeros(n_rows, sizeof(Py_ssize_t))
        self.actions = <int32_t*> self.zeros(n_rows, sizeof(int32_t))
        self.states = <int32_t*> self.zeros(self.block, sizeof(int32_t))
        self.rows = <int32_t*> self.zeros(self.block, sizeof(int32_t))
        self.uniforms = <double*> self.zeros(self.block, sizeof(double))
        self.rewards = <double*> self.zeros(self.block, sizeof(double))
        self.origin = <int32_t*> self.zeros(self.block * n_returns, sizeof(int32_t))
        self.so_far = <double*> self.zeros(self.block * n_returns, sizeof(double))
        self.totals = <double*> self.zeros(model.widest * n_returns, sizeof(double))
        self.squares = <double*> self.zeros(n_returns, sizeof(double))

    cdef int simulate(self, Stream stream) except -1:
        cdef Py_ssize_t failed
        philox_open(&self.generator, stream)
        if self.n > 1:
            memset(self.actions, 0xFF, self.model.offset[self.model.horizon] * sizeof(int32_t))
        with nogil:
            failed = self.run()
        if failed >= 0:
            raise ArithmeticError(f"level {failed}: a greedy score is not finite (theta too large)")
        return 0

    cdef Py_ssize_t run(self) except -2 nogil:
        # Returns -1, or the level at which a greedy score was not finite.
        cdef Py_ssize_t done = 0, size, h
        while done < self.n:
            size = min(self.block, self.n - done)
            self.start(size)
            for h in range(self.plan.last + 1):
                self.arrive(h, size)
                # A step of one trajectory is a uniform or two and a look into a table.
                self.plan.check_after(4 * self.width)
                if h == self.plan.last and self.plan.n_returns == 0:
                    break
                if self.act(h, size) != 0:
                    return h
                if self.shown:
                    memset(self.rewards, 0, size * sizeof(double))
                if h >= self.plan.first_return:
                    self.pay(h, size)
                if h < self.plan.last:
                    self.move(h, size)
                if self.shown:
                    self.show(h, done, size)
            self.settle(done, size)
            done += size
        return -1

    cdef void start(self, Py_ssize_t size) noexcept nogil:
        cdef Py_ssize_t i, k
        self.width = 1
        if self.model.n_start == 1:
            self.states[0] = self.model.start_state[0]
            if self.shown or self.earned != NULL:
                self.part(size)
            return
        self.width = size
        philox_uniforms(&self.generator, self.uniforms, size)
        for i in range(size):
            k = outcome(self.model.start_threshold, self.model.start_alias, self.model.n_start, self.uniforms[i])
            self.states[i] = self.model.start_state[k]

    cdef void part(self, Py_ssize_t size) noexcept nogil:
        # From here on, each trajectory of the block is simulated.
        cdef Py_ssize_t i, r, first
        if self.width == size:
            return
        self.width = size
        for i in range(1, size):
            self.states[i], self.rows[i] = self.states[0], self.rows[0]
        for r in range(self.plan.n_returns):
            first = r * self.block
            for i in range(first + 1, first + size):
                self.origin[i], self.so_far[i] = self.origin[first], self.so_far[first]

    cdef int arrive(self, Py_ssize_t h, Py_ssize_t size) except -1 nogil:
        # Count the states of level h, if its moment is wanted; keep them, if a return starts here.
        cdef Py_ssize_t i, r, each = size // self.width
        cdef Py_ssize_t* visits = self.visits + self.model.offset[h]
        if self.plan.counted[h] and self.found is not None and self.n == 1:
            self.push_state(h, self.states[0], 1.0)
            self.found.end_level()
        elif self.plan.counted[h]:
            for i in range(self.width):
                visits[self.states[i]] += each
            if self.found is not None and self.n <= self.block:
                self.write_rows(h)
        for r in range(self.plan.n_returns):
            if self.plan.returns[r] == h:
                for i in range(self.width):
                    self.origin[r * self.block + i] = self.states[i]
                    self.so_far[r * self.block + i] = 0.0
        return 0

    cdef int act(self, Py_ssize_t h, Py_ssize_t size) noexcept nogil:
        # rows[i] <- s_i K + a_i
        cdef Py_ssize_t i
        cdef int32_t n_actions = <int32_t> self.model.n_actions, s
        cdef int32_t* known = self.actions + self.model.offset[h]
        if self.plan.kinds[h] == FIXED:
            for i in range(self.width):
                self.rows[i] = self.states[i] * n_actions + self.plan.fixed[h]
        elif self.plan.kinds[h] == UNIFORM:
            self.part(size)
            philox_uniforms(&self.generator, self.uniforms, size)
            for i in range(size):
                self.rows[i] = self.states[i] * n_actions + <int32_t> (self.uniforms[i] * n_actions)
        else:
            for i in range(self.width):
                s = self.states[i]
                if self.n == 1 or known[s] < 0:
                    known[s] = self.greedy(h, s)
                    if known[s] < 0:
                        return -1
                self.rows[i] = s * n_actions + known[s]
        return 0

    cdef int32_t greedy(self, Py_ssize_t h, int32_t s) noexcept nogil:
        cdef const double* weights = self.plan.weights[h]
        cdef Py_ssize_t n_actions = self.model.n_actions, d = self.model.dimension
        cdef Row phi = self.features(h, s)
        cdef double best
        if phi.columns == NULL:
            return <int32_t> greedy_action(phi.values, weights, n_actions, d, &best)
        return <int32_t> greedy_action_sparse(phi.columns, phi.values, phi.n, weights, n_actions, d, &best)

    cdef inline Row features(self, Py_ssize_t h, Py_ssize_t s) noexcept nogil:
        cdef Level* level = &self.model.levels[h]
        cdef int32_t first
        if level.dense != NULL:
            return Row(NULL, level.dense + s * self.model.dimension, self.model.dimension)
        first = level.phi_start[s]
        return Row(level.phi_column + first, level.phi_value + first, level.phi_start[s + 1] - first)

    cdef void pay(self, Py_ssize_t h, Py_ssize_t size) noexcept nogil:
        # Rewards that depend on (s, a) alone; `move` adds those of edges.
        cdef Level* level = &self.model.levels[h]
        cdef Py_ssize_t i
        if level.rewards == BY_ROW:
            for i in range(self.width):
                self.rewards[i] = level.reward[self.rows[i]]
        elif level.rewards == BERNOULLI:
            self.part(size)
            philox_uniforms(&self.generator, self.uniforms, size)
            for i in range(size):
                self.rewards[i] = level.cap if self.uniforms[i] < level.reward[self.rows[i]] else 0.0
        elif level.rewards == BY_EDGE and h == self.plan.last:
            self.move(h, size)
            return
        else:
            return
        self.collect_rewards(h)

    cdef void collect_rewards(self, Py_ssize_t h) noexcept nogil:
        cdef Py_ssize_t i, r
        for r in range(self.plan.n_returns):
            if self.plan.returns[r] <= h:
                for i in range(self.width):
                    self.so_far[r * self.block + i] += self.rewards[i]

    cdef void move(self, Py_ssize_t h, Py_ssize_t size) noexcept nogil:
        cdef Level* level = &self.model.levels[h]
        cdef Py_ssize_t i
        cdef Py_ssize_t first, k
        cdef bint paying = level.rewards == BY_EDGE and h >= self.plan.first_return
        if level.deterministic:
            for i in range(self.width):
                self.states[i] = level.successor[self.rows[i]]
            return
        self.part(size)
        philox_uniforms(&self.generator, self.uniforms, size)
        for i in range(size):
            first = level.row_start[self.rows[i]]
            k = first + outcome(
                level.threshold + first, level.alias + first, level.row_start[self.rows[i] + 1] - first,
                self.uniforms[i],
            )
            self.states[i] = level.next_state[k]
            if paying:
                self.rewards[i] = level.reward[k]
        if paying:
            self.collect_rewards(h)

    cdef void show(self, Py_ssize_t h, Py_ssize_t done, Py_ssize_t size) noexcept nogil:
        cdef Py_ssize_t i
        cdef int32_t n_actions = <int32_t> self.model.n_actions
        for i in range(size):
            self.seen[done + i, h] = self.rows[i] // n_actions
            self.taken[done + i, h] = self.rows[i] % n_actions
            self.paid[done + i, h] = self.rewards[i]

    cdef void settle(self, Py_ssize_t done, Py_ssize_t size) noexcept nogil:
        # The block is over: add its returns, one by one, to the totals of the states they started from.
        cdef Py_ssize_t i, r, apart = self.width > 1
        cdef double y, square
        cdef double* so_far
        cdef double* totals
        cdef int32_t* origin
        for r in range(self.plan.n_returns):
            so_far, origin = self.so_far + r * self.block, self.origin + r * self.block
            totals, square = self.totals + r * self.model.widest, self.squares[r]
            for i in range(size):
                y = so_far[i * apart]
                totals[origin[i * apart]] += y
                square += y * y
            self.squares[r] = square
        if self.earned != NULL:
            memcpy(self.earned + done, self.so_far, size * sizeof(double))

    cdef void write_gram(self, Py_ssize_t h, double* gram) noexcept nogil:
        # gram = sum_s visits(s) phi(s) phi(s)^T; nothing has been visited afterwards.
        cdef Py_ssize_t* visits = self.visits + self.model.offset[h]
        cdef Py_ssize_t s, d = self.model.dimension
        cdef Row phi
        cdef bint diagonal = True
        for s in range(self.model.levels[h].n_states):
            if visits[s] == 0:
                continue
            phi = self.features(h, s)
            diagonal &= phi.columns != NULL and phi.n <= 1
            if phi.columns == NULL:
                add_outer(gram, phi.values, <double> visits[s], d)
            else:
                add_outer_sparse(gram, phi.columns, phi.values, phi.n, <double> visits[s], d)
            visits[s] = 0
        if not diagonal:
            mirror(gram, d)

    cdef int write_rows(self, Py_ssize_t h) except -1 nogil:
        # A row for each state that was visited; nothing has been visited afterwards.
        cdef Py_ssize_t* visits = self.visits + self.model.offset[h]
        cdef Py_ssize_t s
        for s in range(self.model.levels[h].n_states):
            if visits[s] != 0:
                self.push_state(h, s, <double> visits[s])
                visits[s] = 0
        self.found.end_level()
        return 0

    cdef int push_state(self, Py_ssize_t h, Py_ssize_t s, double weight) except -1 nogil:
        cdef Row phi = self.features(h, s)
        return self.found.push(phi.columns, phi.values, phi.n, weight)

    cdef Py_ssize_t products(self, Py_ssize_t h) noexcept nogil:
        # Multiplications of `write_gram`, at most.
        cdef Level* level = &self.model.levels[h]
        return 0 if level.dense == NULL else level.n_states * self.model.dimension * self.model.dimension

    cdef void write_returns(self, double* moments, double* squares) noexcept nogil:
        # moments_r = sum_s totals(s) phi(s); nothing is left of the totals and squares afterwards.
        cdef Py_ssize_t r, s, n_states
        cdef double* totals
        for r in range(self.plan.n_returns):
            squares[r], self.squares[r] = self.squares[r], 0.0
            totals = self.totals + r * self.model.widest
            s, n_states = 0, self.model.levels[self.plan.returns[r]].n_states
            if self.n == 1:
                s = self.origin[r]
                n_states = s + 1
            while s < n_states:
                if totals[s] != 0.0:
                    self.add_return(self.plan.returns[r], s, totals[s], moments + r * self.model.dimension)
                    totals[s] = 0.0
                s += 1

    cdef void add_return(self, Py_ssize_t h, Py_ssize_t s, double total, double* moment) noexcept nogil:
        cdef Row phi = self.features(h, s)
        cdef Py_ssize_t i
        for i in range(phi.n):
            moment[i if phi.columns == NULL else phi.columns[i]] += total * phi.values[i]
