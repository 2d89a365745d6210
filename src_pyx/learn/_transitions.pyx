"""Transitions of all levels as rows of one regression, and least-squares fits of values and of returns to them.

With T levels left, a backward pass goes through the levels k = T - 1, ..., 0 of

    theta_k^a = V_a^-1 sum over steps i with action a of w_i phi(s_i) (y_k(i) - low_k),
    Q_k(s, a) = low_k + clip(phi(s)^T theta_k^a, 0, top_k - low_k),
    y_k(i) = r_i + max_b Q_{k+1}(s'_i, b)                                                         (values)
    y_k(i) = r_i + (y_{k+1}(i + 1) if step i + 1 is greedy on Q_{k+1}, else as above)         (returns)

where V_a = ridge I + sum w_i phi phi^T over the steps with action a, of all levels: they are the same. An end is worth
0. What a state is worth beyond the worst, low_k, is what is fitted, so the ridge pulls to the worst.

Returns are the targets of Watkins (1989, chapter 7), at every level: they follow the episode for as long as it does
what the fit would do, so that fewer fits lie between a reward and the states before it.

Rows are kept by their entries that are not 0. Columns that no row has yet take no part: fits have s <= d of them, the
support. A pass costs O(T (n p + K s^2)) with n steps and p entries a row.
"""

from libc.math cimport INFINITY
from libc.stdint cimport int32_t, int64_t

from dmq_fast.kernels._validate cimport LARGEST, integer, number, positive

import numpy as np

from dmq_fast.kernels._validate import as_floats

cdef enum:
    ENDED = -1

# Scores that differ by less are equal, and the learner's uniform chooses.
cdef double TIE = 1e-9


cdef object longer(object array, Py_ssize_t size):
    # The array, or a copy with room for `size` entries.
    if len(array) >= size:
        return array
    out = np.zeros(max(size, 2 * len(array)), array.dtype)
    out[:len(array)] = array
    return out


cdef object numbers_in(str name, value, size, least, most):
    # Integers in [least, most], of a given number, as int64.
    array = np.asarray(value)
    if array.ndim == 1 and not array.size:
        array = array.astype(np.int64)
    if array.ndim != 1 or array.dtype.kind not in "iu":
        raise TypeError(f"{name}: expected integers in one dimension, got shape {array.shape}, {array.dtype}")
    if size is not None and len(array) != size:
        raise ValueError(f"{name}: expected {size} integers, got {len(array)}")
    if ((array < least) | (array > most)).any():
        raise ValueError(f"{name}: expected integers in [{least}, {most}], got {array}")
    return array.astype(np.int64)


cdef class Transitions:
    """Steps of episodes that are the same at every level.

    Parameters
    ----------
    horizon, n_actions, dimension : int
        H, K and d.
    ridge : float
        > 0, the ridge of leverages.

    Attributes
    ----------
    n_episodes, n_steps, n_rows : int

    Examples
    --------
    One action, two rows, one after the other, which pay 0 and 1 before the end:

    >>> import numpy as np
    >>> data = Transitions(horizon=3, n_actions=1, dimension=2, ridge=1e-9)
    >>> one = np.ones(2, dtype=np.int64)
    >>> data.add_rows(one, np.array([0, 1]), np.ones(2), 0 * one, np.array([0.0, 1.0]))
    >>> inverse = np.linalg.inv(data.gram() + 1e-9 * np.eye(2))
    >>> theta, values = data.fit(inverse, np.zeros(2), np.ones(2))
    >>> theta.round(3).tolist(), values.round(3).tolist()
    ([[[1.0, 1.0]], [[0.0, 1.0]]], [1.0])
    """

    cdef readonly Py_ssize_t horizon, n_actions, dimension, n_episodes, n_steps, n_rows
    cdef readonly double ridge
    # By row: where its entries begin, their columns and values. By step: row, action, reward, next row. By episode: its
    # first step.
    cdef object _begin, _columns, _values, _row, _action, _reward, _next, _first, _seen
    # The last plan: W by level (H, K, d), tops and lows; and the inverse of V, which follows the episode being played.
    cdef object _omega, _top, _low, _planned, _live

    def __cinit__(self, horizon, n_actions, dimension, ridge):
        self.horizon = integer(horizon, "horizon", 1, LARGEST)
        self.n_actions = integer(n_actions, "n_actions", 1, LARGEST)
        self.dimension = integer(dimension, "dimension", 1, LARGEST)
        self.ridge = positive(ridge, "ridge")
        self._begin, self._first = np.zeros(1, np.int64), np.zeros(1, np.int64)
        self._columns, self._values = np.zeros(0, np.int32), np.zeros(0)
        self._row, self._action, self._next = (np.zeros(0, np.int64) for _ in range(3))
        self._reward = np.zeros(0)
        self._seen = np.zeros(self.dimension, bool)

    # ---- Episodes

    def add_rows(self, sizes, columns, values, actions, rewards):
        """Add an episode of n <= H levels, by the entries of its features that are not 0.

        With n < H it ended there. What follows the last level is not shown, so the step taken there, if the episode
        lasts that long, is left out unless H = 1.

        Parameters
        ----------
        sizes : numpy.ndarray of int, shape (n,)
            Entries of each level, at least one.
        columns : numpy.ndarray of int, shape (m,)
            Their columns, m the sum of sizes.
        values : array_like, shape (m,)
            Finite.
        actions : numpy.ndarray of int, shape (n,)
        rewards : array_like, shape (n,)
            Finite.

        Raises
        ------
        TypeError, ValueError
            If an argument is of another type or length, or out of range; the message names it. Nothing was added.
        """
        sizes = numbers_in("sizes", sizes, None, 1, self.dimension)
        n = len(sizes)
        if n > self.horizon:
            raise ValueError(f"sizes: expected at most {self.horizon} levels, got {n}")
        total = int(sizes.sum())
        columns = numbers_in("columns", columns, total, 0, self.dimension - 1)
        values = as_floats("values", values, (total,))
        actions = numbers_in("actions", actions, n, 0, self.n_actions - 1)
        rewards = as_floats("rewards", rewards, (n,))
        kept = n if n < self.horizon or n == 1 else n - 1
        rows, steps, entries = self.n_rows, self.n_steps, int(self._begin[self.n_rows])
        self._begin = longer(self._begin, rows + n + 1)
        self._begin[rows + 1:rows + n + 1] = entries + np.cumsum(sizes)
        self._columns, self._values = (longer(x, entries + total) for x in (self._columns, self._values))
        self._columns[entries:entries + total] = columns
        self._values[entries:entries + total] = values
        self._seen[columns] = True
        self._row, self._action, self._next, self._reward = (
            longer(x, steps + kept) for x in (self._row, self._action, self._next, self._reward)
        )
        self._row[steps:steps + kept] = rows + np.arange(kept)
        self._next[steps:steps + kept] = rows + 1 + np.arange(kept)
        if kept == n and n:
            self._next[steps + n - 1] = ENDED
        self._action[steps:steps + kept] = actions[:kept]
        self._reward[steps:steps + kept] = rewards[:kept]
        self.n_rows, self.n_steps, self.n_episodes = rows + n, steps + kept, self.n_episodes + 1
        self._first = longer(self._first, self.n_episodes + 1)
        self._first[self.n_episodes] = self.n_steps

    @property
    def support(self):
        """Columns that some row has, ascending, shape (s,)."""
        return np.flatnonzero(self._seen)

    def gram(self, weights=None):
        """Return sum w phi phi^T over the steps of each action, on the support, without a ridge.

        Parameters
        ----------
        weights : array_like, shape (n_episodes,), optional
            Those of the episodes. Default: 1.

        Returns
        -------
        numpy.ndarray, shape (K, s, s)

        Raises
        ------
        TypeError, ValueError
            If `weights` have another dtype or shape, or are not finite.
        """
        cdef int64_t[::1] place = self.places(), begin = self._begin, row = self._row, action = self._action
        cdef int32_t[::1] columns = self._columns
        cdef double[::1] values = self._values
        cdef const double[::1] w = self.by_step(weights)
        cdef Py_ssize_t i, j, c, s = len(self.support), n = self.n_steps
        cdef double[:, :, ::1] out = np.zeros((self.n_actions, s, s))
        cdef double x
        with nogil:
            for i in range(n):
                for j in range(begin[row[i]], begin[row[i] + 1]):
                    x = w[i] * values[j]
                    for c in range(begin[row[i]], begin[row[i] + 1]):
                        out[action[i], place[columns[j]], place[columns[c]]] += x * values[c]
        return np.asarray(out)

    def leverages(self, inverse):
        """Return phi^T V_a^-1 phi of every row and action.

        Parameters
        ----------
        inverse : array_like, shape (K, s, s)
            V_a^-1 on the support.

        Returns
        -------
        numpy.ndarray, shape (n_rows, K)

        Raises
        ------
        TypeError, ValueError
            If `inverse` has another dtype or shape, or is not finite.
        """
        cdef const double[:, :, ::1] inv = self.as_inverse(inverse)
        cdef int64_t[::1] place = self.places(), begin = self._begin
        cdef int32_t[::1] columns = self._columns
        cdef double[::1] values = self._values
        cdef Py_ssize_t r, a, j, c, n = self.n_rows, K = self.n_actions
        cdef double[:, ::1] out = np.zeros((n, K))
        cdef double total, x
        with nogil:
            for r in range(n):
                for a in range(K):
                    total = 0.0
                    for j in range(begin[r], begin[r + 1]):
                        x = 0.0
                        for c in range(begin[r], begin[r + 1]):
                            x += inv[a, place[columns[j]], place[columns[c]]] * values[c]
                        total += values[j] * x
                    out[r, a] = total
        return np.asarray(out)

    # ---- The backward pass

    def fit(self, inverse, low, top, weights=None, returns=False, unknown=None):
        """Make a backward pass over T levels; see the module.

        Parameters
        ----------
        inverse : array_like, shape (K, s, s)
            V_a^-1 on the support.
        low, top : array_like, shape (T,)
            Least and largest value of a state by level, in points.
        weights : array_like, shape (n_episodes,), optional
        returns : bool, default False
            Fit returns instead of values.
        unknown : numpy.ndarray of bool, shape (n_rows, K), optional
            Pairs that are worth top_k, whatever the fit says.

        Returns
        -------
        theta : numpy.ndarray, shape (T, K, s)
        values : numpy.ndarray, shape (n_episodes,)
            Fitted values of the states in which the episodes began, with T levels left; 0 of an episode without any.

        Raises
        ------
        TypeError, ValueError
            If an argument has another dtype or shape, or is not finite; the message names it.
        """
        cdef const double[:, :, ::1] inv = self.as_inverse(inverse)
        cdef int64_t[::1] place = self.places(), begin = self._begin, row = self._row, action = self._action
        cdef int64_t[::1] following = self._next, first = self._first
        cdef int32_t[::1] columns = self._columns
        cdef double[::1] values = self._values, reward = self._reward
        cdef const double[::1] w = self.by_step(weights)
        cdef const double[::1] lows = as_floats("low", low, (None,)), tops = as_floats("top", top, (len(low),))
        cdef Py_ssize_t T = lows.shape[0], K = self.n_actions, n = self.n_steps, m = self.n_rows
        cdef Py_ssize_t s = inv.shape[1], e, i, j, k, a, b, c
        cdef bint follow = returns, hopeful = unknown is not None
        hidden = np.zeros((m if hopeful else 0, K), np.uint8)
        if hopeful:
            given = np.asarray(unknown)
            if given.shape != hidden.shape or given.dtype != bool:
                raise ValueError(f"unknown: expected bools of shape {hidden.shape}, got {given.dtype}, {given.shape}")
            hidden[:] = given
        cdef unsigned char[:, ::1] hide = hidden
        cdef double[:, :, ::1] theta = np.zeros((T, K, s))
        cdef double[:, ::1] moment = np.zeros((K, s))
        cdef double[::1] V = np.zeros(m), y = np.zeros(n), before = np.zeros(n)
        cdef int64_t[::1] greedy = np.zeros(m, np.int64)
        cdef double x, best, span
        # The step after i, in the same episode.
        cdef unsigned char[::1] goes_on = np.zeros(n, np.uint8)
        for e in range(self.n_episodes):
            for i in range(first[e], first[e + 1] - 1):
                goes_on[i] = 1
        with nogil:
            for k in range(T - 1, -1, -1):
                moment[:, :] = 0.0
                for i in range(n):
                    x = reward[i]
                    if following[i] >= 0 and k + 1 < T:
                        if follow and goes_on[i] and action[i + 1] == greedy[following[i]]:
                            x += before[i + 1]
                        else:
                            x += V[following[i]]
                    y[i] = x
                    x = w[i] * (x - lows[k])
                    for j in range(begin[row[i]], begin[row[i] + 1]):
                        moment[action[i], place[columns[j]]] += x * values[j]
                y, before = before, y
                for a in range(K):
                    for b in range(s):  # row by row of the symmetric inverse: sums over c would not become vectors
                        x = moment[a, b]
                        for c in range(s):
                            theta[k, a, c] += inv[a, b, c] * x
                span = tops[k] - lows[k]
                for i in range(m):
                    best = -INFINITY
                    for a in range(K):
                        if hopeful and hide[i, a]:
                            x = span
                        else:
                            x = 0.0
                            for j in range(begin[i], begin[i + 1]):
                                x += theta[k, a, place[columns[j]]] * values[j]
                        if x > best:
                            best, greedy[i] = x, a
                    V[i] = lows[k] + min(max(best, 0.0), span)
        begun = self.lengths > 0
        values_at_start = np.zeros(self.n_episodes)
        values_at_start[begun] = np.asarray(V)[self._row[self._first[:self.n_episodes][begun]]]
        return np.asarray(theta), values_at_start

    # ---- Playing by the plan

    def plan(self, omega, inverse, low, top):
        """Keep a plan for `choose`.

        Parameters
        ----------
        omega : array_like, shape (H, K, s)
            Fitted optimistic values, by level.
        inverse : array_like, shape (K, s, s)
        low, top : array_like, shape (H,)
        """
        support = self.support
        omega = as_floats("omega", omega, (self.horizon, self.n_actions, len(support)))
        inverse = self.as_inverse(inverse)
        low = as_floats("low", low, (self.horizon,))
        self._top, self._low = as_floats("top", top, (self.horizon,)).copy(), low.copy()
        self._omega = np.zeros((self.horizon, self.n_actions, self.dimension))
        self._omega[:, :, support] = omega
        self._planned = np.zeros((self.n_actions, self.dimension, self.dimension))
        self._planned[:, np.arange(self.dimension), np.arange(self.dimension)] = 1.0 / self.ridge
        self._planned[:, support[:, None], support[None, :]] = inverse
        self.refresh()

    def refresh(self):
        """Forget what was visited since the plan; before each episode."""
        if self._planned is not None:
            self._live = self._planned.copy()

    def choose(self, level, features, earned, uniform):
        """Return the action that is best by the plan, and count the visit until `refresh`.

        An action whose leverage is at least 1, which no visit nearby has, is worth top_k.

        Parameters
        ----------
        level : int
        features : array_like, shape (d,)
        earned : float
            Not used: values do not depend on the past.
        uniform : float
            In [0, 1), chooses among equal actions.
        """
        given = as_floats("features", features, (self.dimension,))
        number(earned, "earned")
        cdef const double[::1] phi = given
        cdef int64_t[::1] at = np.flatnonzero(given)
        cdef Py_ssize_t p = at.shape[0], K = self.n_actions, d = self.dimension, a, i, j, best = 0, ties = 0
        cdef Py_ssize_t h = integer(level, "level", 0, self.horizon - 1)
        cdef double x, u, most = -INFINITY, span, chance = number(uniform, "uniform")
        cdef double[::1] score = np.zeros(K), g = np.zeros(d)
        if not 0.0 <= chance < 1.0:
            raise ValueError(f"uniform: expected a number in [0, 1), got {uniform!r}")
        if self._live is None:
            return int(chance * K)
        cdef double[:, :, ::1] live = self._live
        cdef double[:, :, ::1] omega = self._omega
        span = self._top[h] - self._low[h]
        for a in range(K):
            u = x = 0.0
            for i in range(p):
                for j in range(p):
                    u += phi[at[i]] * live[a, at[i], at[j]] * phi[at[j]]
                x += phi[at[i]] * omega[h, a, at[i]]
            score[a] = span if u >= 1.0 else min(max(x, 0.0), span)
            most = max(most, score[a])
        for a in range(K):
            ties += score[a] >= most - TIE
        i = <Py_ssize_t> (chance * ties)
        for a in range(K):
            if score[a] >= most - TIE:
                if i == 0:
                    best = a
                    break
                i -= 1
        # V_a gains phi phi^T: its inverse loses g g^T / (1 + u), g = V_a^-1 phi (Sherman and Morrison).
        u = 0.0
        for i in range(d):
            x = 0.0
            for j in range(p):
                x += live[best, i, at[j]] * phi[at[j]]
            g[i] = x
        for j in range(p):
            u += g[at[j]] * phi[at[j]]
        with nogil:
            for i in range(d):
                if g[i] != 0.0:
                    x = g[i] / (1.0 + u)
                    for j in range(d):
                        live[best, i, j] -= x * g[j]
        return best

    # ---- What was recorded

    def sums(self):
        """Return the sums of the rewards of all steps before each step, (n_steps + 1,), in points."""
        return np.concatenate([[0.0], np.cumsum(self._reward[:self.n_steps])])

    @property
    def first(self):
        """First step of each episode, and the number of steps, shape (n_episodes + 1,)."""
        return self._first[:self.n_episodes + 1].copy()

    @property
    def lengths(self):
        """Number of steps of each episode that are kept, shape (n_episodes,)."""
        return np.diff(self._first[:self.n_episodes + 1])

    # ---- Checks

    def places(self):
        """Return the place of each column in the support, (d,), 0 where it has none."""
        return np.where(self._seen, np.cumsum(self._seen) - 1, 0).astype(np.int64)

    cdef object as_inverse(self, inverse):
        s = len(self.support)
        return as_floats("inverse", inverse, (self.n_actions, s, s))

    cdef object by_step(self, weights):
        if weights is None:
            return np.ones(self.n_steps)
        given = as_floats("weights", weights, (self.n_episodes,))
        return np.repeat(given, np.diff(self._first[:self.n_episodes + 1]))
