"""`OptimisticPlanner` with levels that share data, against a NumPy twin that looks at every step for every level."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from test_optimist import LOG_CONFIDENCE, RIDGE, close, made_up

from dmq_fast.environments import FiniteMDP, chain, river_swim
from dmq_fast.environments.block import block_mdp
from dmq_fast.kernels import Episode, OptimisticPlanner, Stream

pytestmark = pytest.mark.kernels

LUCK = 1.6448536269514722


class PooledTwin:
    """Arrays of whole episodes: features (N, H, d), actions and rewards in units (N, H), without the end's worth."""

    def __init__(self, x, a, r, n_actions, labels, tops=None, end=0.0, cost=0.0, sums=False, guess=0.0):
        self.n, self.horizon, self.d = x.shape
        self.a, self.r, self.n_actions, self.labels = a, r, n_actions, np.array(labels)
        self.end, self.sums, self.guess = end, sums, guess
        self.tops = np.ones(self.horizon) if tops is None else tops
        self.most_fitted = np.full(self.horizon, np.inf) if guess else self.tops
        numbers = {}
        self.row = np.array(
            [[numbers.setdefault(phi.tobytes(), len(numbers)) for phi in episode] for episode in x + 0.0]
        )
        self.rows = np.array([np.frombuffer(key) for key in numbers])
        self.ended = ~self.rows.any(axis=1)
        columns = [tuple(np.flatnonzero(phi)) for phi in self.rows[~self.ended]]
        self.table = len(set(columns)) == len(columns) and all(len(column) == 1 for column in columns)
        before = np.full((self.horizon, len(self.rows)), -np.inf)
        collected = np.cumsum(r, axis=1) - r
        for h in range(self.horizon if not guess else 0):
            np.maximum.at(before[h], self.row[:, h], collected[:, h])
        tail = max([h + 1 for h in range(self.horizon) if labels[h] != labels[-1]], default=0)
        for h in range(tail + 1, self.horizon):
            before[h] = np.maximum(before[h], before[h - 1] - cost)
        self.before = before
        self.most = np.maximum(0, np.minimum(self.tops[:, None], self.tops[0] - before))

    def shared(self, k):
        return (self.labels == self.labels[k]).sum() > 1

    def steps(self, k):
        """Episodes and levels of the data of level k."""
        last = self.horizon - 1
        levels = [h for h in range(self.horizon) if self.labels[h] == self.labels[k] and (h < last or k == last)]
        e, h = (part.ravel() for part in np.meshgrid(np.arange(self.n), levels, indexing="ij"))
        live = ~self.ended[self.row[e, h]]
        return e[live], h[live]

    def counts(self, k):
        e, h = self.steps(k)
        counts = np.zeros((len(self.rows), self.n_actions))
        np.add.at(counts, (self.row[e, h], self.a[e, h]), 1.0)
        return counts

    def later(self, k, e, h, values):
        """What follows the steps (e, h) at level k if rows are worth so much at level k + 1."""
        return np.full(len(e), self.end) if k == self.horizon - 1 else values[k + 1][self.row[e, h + 1]]

    def inverse(self, k, a, weights):
        e, h = self.steps(k)
        at = self.a[e, h] == a
        phi = self.rows[self.row[e, h][at]]
        return np.linalg.inv(phi.T @ (weights[e][at, None] * phi) + RIDGE * np.eye(self.d))

    def fit(self, k, y, weights):
        e, h = self.steps(k)
        theta = np.zeros((self.n_actions, self.d))
        for a in range(self.n_actions):
            at = self.a[e, h] == a
            phi = self.rows[self.row[e, h][at]]
            theta[a] = self.inverse(k, a, weights) @ (phi.T @ (weights[e][at] * y[at]))
        return theta

    def leverage(self, k):
        inverses = [self.inverse(k, a, np.ones(self.n)) for a in range(self.n_actions)]
        return np.stack([np.einsum("ni,ij,nj->n", self.rows, one, self.rows) for one in inverses], axis=1)

    def noises(self, k, y):
        e, h = self.steps(k)
        j, a = self.row[e, h], self.a[e, h]
        squares = (y - (self.rows @ self.theta[k].T)[j, a]) ** 2
        own = np.zeros((len(self.rows), self.n_actions))
        np.add.at(own, (j, a), squares)
        free = np.maximum(0, self.counts(k) * (1 - self.u[k])).sum()
        level = (self.guess**2 + squares.sum()) / (1 + free)
        return (2 * level + own) / (2 + self.counts(k))

    def means(self, k, values):
        """The mean outcome of every tried pair at level k, NaN elsewhere, (m, K)."""
        e, h = self.steps(k)
        total = np.zeros((len(self.rows), self.n_actions))
        np.add.at(total, (self.row[e, h], self.a[e, h]), self.r[e, h] + self.later(k, e, h, values))
        counts = self.counts(k)
        return np.where(counts > 0, total / np.maximum(counts, 1), np.nan)

    def chance(self, k, floor):
        chance = -np.expm1(-LOG_CONFIDENCE * self.u[k])
        return np.where(chance >= floor, chance, 0.0)

    def claims(self, floor):
        """What every pair is worth if it hides an outcome whenever it is met; NaN where nothing is claimed."""
        claims = np.full((self.horizon, len(self.rows), self.n_actions), np.nan)
        if not self.table:
            return claims
        for label in set(self.labels):
            levels = np.flatnonzero(self.labels == label)
            if len(levels) == 1:
                continue
            tried = (self.counts(levels[0]) > 0) & (self.chance(levels[0], floor) > 0)
            for j, a in np.argwhere(tried):
                values = [None] * (self.horizon + 1)
                for k in reversed(range(self.horizon)):
                    q = np.clip(self.means(k, values), 0, self.most[k][:, None])
                    if k in levels:
                        q[j, a] += self.chance(k, floor)[j, a] * (self.most[k][j] - q[j, a])
                        claims[k, j, a] = q[j, a] if self.chance(k, floor)[j, a] > 0 else np.nan
                    values[k] = np.where(self.ended, self.end, np.nan_to_num(q).max(axis=1))
        return claims

    def plan(self, floor, impatience=0.0):
        m = len(self.rows)
        self.theta, self.omega = np.zeros((2, self.horizon, self.n_actions, self.d))
        self.u = [self.leverage(k) for k in range(self.horizon)]
        claims = self.claims(floor)
        self.F, self.W, self.best, self.hope, self.noise = ([None] * (self.horizon + 1) for _ in range(5))
        ones, self.residual = np.ones(self.n), 0.0
        for k in reversed(range(self.horizon)):
            e, h = self.steps(k)
            j, a = self.row[e, h], self.a[e, h]
            y, z = self.r[e, h] + self.later(k, e, h, self.best), self.r[e, h] + self.later(k, e, h, self.hope)
            z = z / (1 + impatience * self.u[k][j, a])
            self.theta[k], self.omega[k] = self.fit(k, y, ones), self.fit(k, z, ones)
            q, later, most = self.rows @ self.theta[k].T, self.rows @ self.omega[k].T, self.most[k][:, None]
            if len(e):
                self.residual = max(self.residual, np.abs(y - q[j, a]).max())
            self.noise[k] = self.noises(k, y) if self.guess else np.zeros((m, self.n_actions))
            F = np.clip(q, 0, most)
            base = np.clip(np.maximum(F, later), 0, most) if self.sums and self.shared(k) and not self.table else F
            W = base + self.chance(k, floor) * (most - base)
            W = np.where(np.isnan(claims[k]), W, claims[k])
            if self.guess:
                W = np.maximum(W, F + LUCK * np.sqrt(self.noise[k] * self.u[k]))
            self.F[k], self.W[k] = F, np.clip(np.maximum(W, later), 0, most)
            self.best[k] = np.where(self.ended, self.end, F.max(axis=1))
            self.hope[k] = np.where(self.ended, self.end, self.W[k].max(axis=1))

    def look_behind(self, floor, log_confidence):
        self.plan(floor)
        m, every = len(self.rows), range(self.horizon)
        visits = np.array([np.bincount(self.row[:, h], minlength=m) for h in every])
        reach, greedy = visits[0].astype(float), [self.F[k].argmax(axis=1) for k in every]
        on_row = []
        for k in every:
            on_row.append((reach > 0) & (reach >= 0.5 * visits[k]))
            following = np.zeros(m)
            if k + 1 < self.horizon:
                e, h = self.steps(k)
                j, a = self.row[e, h], self.a[e, h]
                at = greedy[k][j] == a
                np.add.at(
                    following,
                    self.row[e[at], h[at] + 1],
                    (reach / np.maximum(1, self.counts(k)[np.arange(m), greedy[k]]))[j[at]],
                )
            reach = following
        raised = np.zeros((self.horizon, m, self.n_actions))
        for k in every:
            e, h = self.steps(k)
            j, a = self.row[e, h], self.a[e, h]
            q, later = self.rows @ self.theta[k].T, self.rows @ self.omega[k].T
            follows = (greedy[k][j] == a) & on_row[k][j]
            hope, best = (self.later(k, e, h, values) for values in (self.hope, self.best))
            errors = np.where(follows, hope - best - (later - q)[j, a], self.r[e, h] + hope - later[j, a])
            spread = self.rows @ self.fit(k, errors**2, np.ones(self.n)).T
            if self.guess:
                on = on_row[k][:, None] & (greedy[k][:, None] == np.arange(self.n_actions))
                spread = np.where(on, spread, np.maximum(spread, self.noise[k]))
            top = np.zeros((m, self.n_actions))
            np.maximum.at(top, (j, a), errors)
            half = -np.expm1(-LOG_CONFIDENCE * self.u[k]) * top / 2
            above = half + np.sqrt(half**2 + 2 * log_confidence * self.u[k] * np.maximum(spread, 0))
            raised[k] = np.where(spread > 1e-14, above, 0.0)
        alone = raised.copy()
        if self.table:
            for label in set(self.labels):
                levels = np.flatnonzero(self.labels == label)
                for j, a in np.argwhere((alone[levels] > 0).any(axis=0)) if len(levels) > 1 else ():
                    values = [None] * (self.horizon + 1)
                    for k in reversed(every):
                        q = self.means(k, values)
                        if k in levels and not np.isnan(q[j, a]):
                            q[j, a] += alone[k, j, a]
                            raised[k, j, a] = max(alone[k, j, a], q[j, a] - (self.rows @ self.omega[k].T)[j, a])
                        q = np.minimum(np.nan_to_num(q, nan=-np.inf), self.most[k][:, None])
                        values[k] = np.where(self.ended, self.end, np.maximum(self.hope[k], q.max(axis=1)))
        values = [None] * (self.horizon + 1)
        for k in reversed(every):
            e, h = self.steps(k)
            zeta = self.fit(k, self.r[e, h] + self.later(k, e, h, values), np.ones(self.n))
            Z = np.maximum(self.rows @ self.omega[k].T + raised[k], self.rows @ zeta.T)
            Z = np.clip(Z, 0, self.most[k][:, None]).max(axis=1)
            values[k] = np.where(self.ended, self.end, np.maximum(self.hope[k], Z))
        gains = visits[0] * (values[0] - self.best[0])
        return np.sqrt((gains**2).sum()) / self.n

    def refit(self, weights, returns=False, near=0.0, normals=None):
        theta = np.zeros((self.horizon, self.n_actions, self.d))
        values, scores = ([None] * (self.horizon + 1) for _ in range(2))
        following = {}
        for k in reversed(range(self.horizon)):
            e, h = self.steps(k)
            y = self.r[e, h] + self.later(k, e, h, values)
            if returns and k + 1 < self.horizon:
                ok = list(zip(*self.steps(k + 1), strict=True))
                for i, (episode, level) in enumerate(zip(e, h, strict=True)):
                    j, a = self.row[episode, level + 1], self.a[episode, level + 1]
                    if (episode, level + 1) not in ok:
                        continue
                    less = values[k + 1][j] - np.clip(scores[k + 1][j, a], 0, self.most_fitted[k + 1])
                    if scores[k + 1][j].argmax() == a:
                        y[i] = self.r[episode, level] + following[episode, level + 1]
                    elif less <= near:
                        y[i] = self.r[episode, level] + following[episode, level + 1] + less
            following = dict(zip(zip(e.tolist(), h.tolist(), strict=True), y, strict=True))
            shaken = y
            if normals is not None:
                j, a = self.row[e, h], self.a[e, h]
                shaken = y + normals[h, e] * np.sqrt(self.noise[k][j, a] * np.minimum(1, self.u[k][j, a]))
            theta[k] = self.fit(k, shaken, weights)
            scores[k] = self.rows @ theta[k].T
            best = np.clip(scores[k].max(axis=1), 0, self.most_fitted[k])
            values[k] = np.where(self.ended, self.end, best)
        return theta


def planner_of(x, a, paid, n_actions, labels, sums=False):
    planner = OptimisticPlanner(x.shape[1], n_actions, x.shape[2], RIDGE, LOG_CONFIDENCE, labels, sums)
    for episode in zip(x, a, paid, strict=True):
        planner.add(*episode)
    return planner


def agree(planner, twin, floor, rng, impatience=0.0):
    upside, residual = planner.plan(floor, impatience)
    twin.plan(floor, impatience)
    close(residual, twin.residual)
    close(planner.theta, twin.theta)
    close(planner.omega, twin.omega)
    for h in range(twin.horizon):
        leverage, before, plain, hopeful = planner.table(h)
        np.testing.assert_array_equal(planner.rows(h), twin.rows)
        close(leverage, twin.u[h])
        close(np.maximum(0, np.minimum(twin.tops[h], twin.tops[0] - before)), twin.most[h])
        close(plain, twin.best[h])
        close(hopeful, twin.hope[h])
    if not twin.guess:
        close(upside, (twin.hope[0] - twin.best[0])[twin.row[:, 0]].mean())
    weights = rng.exponential(size=twin.n)
    close(planner.refit(weights), twin.refit(weights))
    for near in (0.0, 0.1):
        close(planner.refit(weights, returns=True, near=near), twin.refit(weights, returns=True, near=near))
    if twin.guess:
        normals = rng.normal(size=(twin.horizon, twin.n))
        close(planner.refit(weights, normals=normals), twin.refit(weights, normals=normals))
    close(planner.look_behind(floor, 5.0), max(planner.plan(floor)[0], twin.look_behind(floor, 5.0)))


@settings(max_examples=100, deadline=None)
@given(
    seed=st.integers(0, 2**32),
    n=st.integers(1, 12),
    labels=st.lists(st.integers(0, 2), min_size=2, max_size=6),
    kind=st.sampled_from(["one-hot", "few", "tiles"]),
    floor=st.sampled_from([0.0, 0.05, 0.5]),
    impatience=st.sampled_from([0.0, 0.2]),
    low=st.sampled_from([-1.0, 0.0]),
    guess=st.sampled_from([0.0, 0.0, 0.1]),
    early=st.booleans(),
    sums=st.booleans(),
)
def test_agrees_with_the_twin(seed, n, labels, kind, floor, impatience, low, guess, early, sums):
    """Any labels; ends before the last level, costs, ranges by level, noise; labels set before and after episodes."""
    rng = np.random.default_rng(seed)
    horizon, width = len(labels), 2.0
    if len(set(labels)) == horizon:
        labels = [0] * horizon
    x, a, r = made_up(rng, n, horizon, 2, 4, kind)
    ends = rng.integers(horizon, size=n) if early else np.full(n, horizon - 1)
    x[np.arange(horizon) > ends[:, None]] = 0.0
    r[np.arange(horizon) > ends[:, None]] = 0.0
    if low < 0:
        r -= 0.1 * (np.arange(horizon) <= ends[:, None])
    tops = rng.uniform(0.5, 1.0, size=horizon)
    paid = width * r
    planner = planner_of(x[: n // 2], a[: n // 2], paid[: n // 2], 2, rng.integers(2, size=horizon), sums)
    planner.set_rewards(low, width, tops, guess or None)
    planner.regroup(labels)
    for episode in zip(x[n // 2 :], a[n // 2 :], paid[n // 2 :], strict=True):
        planner.add(*episode)
    live = np.arange(horizon) <= ends[:, None]
    cost = max(0.0, -r[live].min())
    agree(planner, PooledTwin(x, a, r, 2, labels, tops, -low / width, cost, sums, guess), floor, rng, impatience)


def test_a_label_for_each_level_is_no_label():
    rng = np.random.default_rng(0)
    x, a, r = made_up(rng, 30, 4, 3, 5, "few")
    one, other = planner_of(x, a, r, 3, None), planner_of(x, a, r, 3, [7, 3, 9, 1])
    assert not other.pooled and other.groups == (0, 1, 2, 3)
    assert one.plan(0.05) == other.plan(0.05) and one.look_behind(0.05, 3.0) == other.look_behind(0.05, 3.0)
    assert one.theta.tobytes() == other.theta.tobytes() and one.omega.tobytes() == other.omega.tobytes()
    weights = rng.exponential(size=30)
    assert one.refit(weights, True, 0.1).tobytes() == other.refit(weights, True, 0.1).tobytes()


def test_levels_told_apart_are_those_that_never_shared():
    rng = np.random.default_rng(0)
    x, a, r = made_up(rng, 30, 4, 3, 5, "one-hot")
    one, other = planner_of(x, a, r, 3, None), planner_of(x, a, r, 3, [0, 0, 1, 0])
    other.plan(0.05)
    other.regroup(range(4))
    assert one.plan(0.05) == other.plan(0.05)
    assert one.theta.tobytes() == other.theta.tobytes()


@pytest.mark.parametrize("env", [river_swim(6, 12), chain(8, rng=0)], ids=["river", "chain"])
def test_data_do_not_depend_on_when_steps_entered(env):
    """Played episodes enter step by step, added ones at their end: their plans agree to the bit."""
    played, added = (
        OptimisticPlanner(env.horizon, env.n_actions, env.dimension, RIDGE, LOG_CONFIDENCE, [0] * env.horizon)
        for _ in range(2)
    )
    block = block_mdp(env)
    episode = Episode(block.handle, block.features, Stream(3))
    for _ in range(10):
        played.plan(0.01)
        played.play(episode, 3)
    rows, actions, _ = played.recorded(np.arange(30))
    for row, action, paid in zip(rows, actions, played.paid(np.arange(30)), strict=True):
        added.add(played.rows(0)[row], action, paid)
    assert played.look_behind(0.01, 4.0) == added.look_behind(0.01, 4.0)
    assert played.theta.tobytes() == added.theta.tobytes() and played.omega.tobytes() == added.omega.tobytes()


def test_a_piece_plans_again_first_so_where_it_was_cut_does_not_matter():
    env = block_mdp(river_swim(6, 12))
    records = []
    for recalled in (False, True):
        planner = OptimisticPlanner(12, 2, 6, RIDGE, LOG_CONFIDENCE, [0] * 12)
        planner.plan(0.01)
        episode = Episode(env.handle, env.features, Stream(3))
        planner.play(episode, 4)
        if recalled:
            rows, actions, _ = planner.recorded(np.arange(4))
            paid, known = planner.paid(np.arange(4)), planner.rows(0)
            planner = OptimisticPlanner(12, 2, 6, RIDGE, LOG_CONFIDENCE, [0] * 12)
            planner.plan(0.01)
            for e in range(4):
                planner.add(known[rows[e]], actions[e], paid[e])
        planner.play(episode, 4)
        records.append([part.tobytes() for part in planner.recorded(np.arange(8))])
    assert records[0] == records[1]


def test_an_episode_looks_at_all_that_may_hide_an_outcome():
    """One state, four actions that pay nothing: in one episode each is tried about as often as the others."""
    env = FiniteMDP([np.ones((1, 4, 1))] * 39, [np.zeros((1, 4))] * 40, [np.ones((1, 1))] * 40)
    block = block_mdp(env)
    planner = OptimisticPlanner(40, 4, 1, 1e-12, 3.0, [0] * 40)
    planner.plan(0.1)
    planner.play(Episode(block.handle, block.features, Stream(0)), 1)
    assert set(np.bincount(planner.recorded(np.arange(1))[1][0], minlength=4)) <= {9, 10, 11}


def test_a_plan_that_closes_has_looked_at_all_claims():
    """Where few claims are looked at again the upside is at most that of all, if it is within `enough`."""
    rng, planner = np.random.default_rng(0), OptimisticPlanner(8, 2, 4, 1e-12, 3.0, [0] * 8)
    closed = 0
    for _ in range(40):
        rows, actions = np.eye(5, 4)[rng.integers(5, size=8)], rng.integers(2, size=8)
        planner.add(rows, actions, 0.05 * actions * rows[:, 0])
        few = planner.plan(0.01, 0.0, 0.3)
        if few[0] <= 0.3:
            closed += 1
            assert few == planner.plan(0.01)
            assert few == planner.plan(0.01, 0.0, 0.3)  # nothing came since
    assert 0 < closed < 40


def test_labels_are_checked():
    for labels in ([0, 0], [0.0, 1.0, 2.0], "abc", [[0], [0], [0]]):
        with pytest.raises(ValueError, match="groups"):
            OptimisticPlanner(3, 2, 2, RIDGE, LOG_CONFIDENCE, labels)
