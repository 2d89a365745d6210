"""`OptimisticPlanner` against its NumPy twin, which keeps every episode and inverts every matrix anew."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dmq_fast import Policy
from dmq_fast.environments import chain, combination_lock, mountain_car
from dmq_fast.environments.block import block_mdp
from dmq_fast.features import Identity
from dmq_fast.kernels import Episode, OptimisticPlanner, Stream
from dmq_fast.stopping.candidate import episodes_of, start_values

pytestmark = pytest.mark.kernels

RIDGE, LOG_CONFIDENCE = 1e-3, 4.74


class Twin:
    """The same on arrays of whole episodes: features (N, H, d), actions and rewards in units (N, H)."""

    def __init__(self, features, actions, rewards, n_actions, tops=None, guess=0.0):
        self.x, self.a, self.r, self.n_actions, self.guess = features, actions, rewards, n_actions, guess
        self.n, self.horizon, self.d = features.shape
        self.tops = np.ones(self.horizon) if tops is None else tops
        self.most = np.full(self.horizon, np.inf) if guess else self.tops
        before = np.cumsum(rewards, axis=1) - rewards
        self.left = np.empty((self.n, self.horizon))
        for h in range(self.horizon):
            for e in range(self.n):
                same = (features[:, h] == features[e, h]).all(axis=1)
                collected = -np.inf if guess else before[same, h].max()
                self.left[e, h] = max(0.0, min(self.tops[h], self.tops[0] - collected))

    def noises(self, h, y):
        """Variances of the targets y of the pairs of all rows, (n, K), by the residuals of theta."""
        rows = np.unique(self.x[:, h], axis=0, return_inverse=True)[1].ravel()
        squares = (y - (self.x[:, h] @ self.theta[h].T)[np.arange(self.n), self.a[:, h]]) ** 2
        u = self.leverage(h, self.x[:, h])
        own, visits = np.zeros((2, self.n, self.n_actions))
        for e in range(self.n):
            for b in range(self.n_actions):
                at = (rows == rows[e]) & (self.a[:, h] == b)
                own[e, b], visits[e, b] = squares[at].sum(), at.sum()
        _, first = np.unique(rows, return_index=True)
        free = np.maximum(0, visits * (1 - u))[first].sum()
        level = (self.guess**2 + squares.sum()) / (1 + free)
        return (2 * level + own) / (2 + visits)

    def inverse(self, h, a, weights):
        x = self.x[self.a[:, h] == a, h]
        return np.linalg.inv(x.T @ (weights[self.a[:, h] == a, None] * x) + RIDGE * np.eye(self.d))

    def fit(self, h, y, weights):
        theta = np.zeros((self.n_actions, self.d))
        for a in range(self.n_actions):
            at = self.a[:, h] == a
            theta[a] = self.inverse(h, a, weights) @ (self.x[at, h].T @ (weights[at] * y[at]))
        return theta

    def leverage(self, h, x):
        inverses = [self.inverse(h, a, np.ones(self.n)) for a in range(self.n_actions)]
        return np.stack([np.einsum("ni,ij,nj->n", x, inverse, x) for inverse in inverses], axis=1)

    def values(self, h, x, left, theta, omega, floor):
        plain = np.clip(x @ theta.T, 0, left[:, None])
        leverage = self.leverage(h, x)
        chance = -np.expm1(-LOG_CONFIDENCE * leverage)
        chance[chance < floor] = 0
        hopeful = np.maximum(plain + chance * (left[:, None] - plain), x @ omega.T)
        if self.guess:
            hopeful = np.maximum(hopeful, plain + 1.6448536269514722 * np.sqrt(self.noise[h] * leverage))
        return plain, np.clip(hopeful, 0, left[:, None]), leverage

    def plan(self, floor, impatience=0.0):
        self.theta, self.omega = np.zeros((2, self.horizon, self.n_actions, self.d))
        self.F, self.W, self.u, self.noise = ([None] * self.horizon for _ in range(4))
        ones, self.residual = np.ones(self.n), 0.0
        for h in reversed(range(self.horizon)):
            y, z = self.r[:, h].copy(), self.r[:, h].copy()
            if h + 1 < self.horizon:
                y += self.F[h + 1].max(axis=1)
                z += self.W[h + 1].max(axis=1)
            x = self.x[:, h]
            # The share of a hope that a step costs is that of a row and action, for all its episodes together.
            z /= 1 + impatience * self.leverage(h, x)[np.arange(self.n), self.a[:, h]]
            self.theta[h], self.omega[h] = self.fit(h, y, ones), self.fit(h, z, ones)
            self.residual = max(self.residual, np.abs(y - (x @ self.theta[h].T)[np.arange(self.n), self.a[:, h]]).max())
            self.noise[h] = self.noises(h, y) if self.guess else None
            self.F[h], self.W[h], self.u[h] = self.values(h, x, self.left[:, h], self.theta[h], self.omega[h], floor)
        self.upside = [self.upsides(h) for h in range(self.horizon)]
        self.gap = self.upside[0].mean()

    def upsides(self, h):
        F, W = self.F[h].max(axis=1), self.W[h]
        upside = W.max(axis=1) - F
        if not self.guess or self.n_actions == 1:
            return upside
        greedy = (self.x[:, h] @ self.theta[h].T).argmax(axis=1)
        others = np.where(np.arange(self.n_actions) == greedy[:, None], 0.0, W).max(axis=1)
        return np.maximum(upside, np.minimum(1, others - F + 1.6448536269514722 * np.sqrt(self.variance(h, greedy))))

    def variance(self, h, greedy):
        every = np.arange(self.n)
        rows = np.unique(self.x[:, h], axis=0, return_inverse=True)[1].ravel()
        variance = self.noise[h][every, greedy] * np.minimum(1, self.u[h][every, greedy])
        if h + 1 < self.horizon:
            later = self.variance(h + 1, (self.x[:, h + 1] @ self.theta[h + 1].T).argmax(axis=1))
            for e in range(self.n):
                at = (rows == rows[e]) & (self.a[:, h] == greedy[e])
                variance[e] += later[at].mean() if at.any() else 0.0
        return variance

    def look_behind(self, floor, log_confidence):
        self.plan(floor)
        every = np.arange(self.n)
        rows = [np.unique(x, axis=0, return_inverse=True)[1].ravel() for x in self.x.swapaxes(0, 1)]
        reach = np.ones(self.n)  # of the row of an episode, over its visits
        values = [None] * (self.horizon + 1)
        on_the_way, on_row = np.empty((2, self.horizon, self.n), dtype=bool)
        for h in range(self.horizon):
            greedy = self.F[h].argmax(axis=1) == self.a[:, h]
            on_row[h] = reach >= 0.5
            on_the_way[h] = greedy & on_row[h]
            if h + 1 < self.horizon:
                visits, followed = np.bincount(rows[h]), np.bincount(rows[h], greedy)
                share = np.where(greedy, reach * visits[rows[h]] / np.maximum(followed, 1)[rows[h]], 0)
                reach = (np.bincount(rows[h + 1], share) / np.bincount(rows[h + 1]))[rows[h + 1]]
        zero = np.zeros(self.n)
        values[-1] = zero
        for h in reversed(range(self.horizon)):
            x, a, r, left = self.x[:, h], self.a[:, h], self.r[:, h], self.left[:, h, None]
            F, W = (v[h + 1].max(axis=1) if h + 1 < self.horizon else zero for v in (self.F, self.W))
            plain, later = x @ self.theta[h].T, x @ self.omega[h].T
            residuals = np.where(on_the_way[h], W - F - (later - plain)[every, a], r + W - later[every, a])
            spread = x @ self.fit(h, residuals**2, np.ones(self.n)).T
            if self.guess:
                followed = on_row[h][:, None] & (np.arange(self.n_actions) == self.F[h].argmax(axis=1)[:, None])
                spread = np.where(followed, spread, np.maximum(spread, self.noise[h]))
            top = np.zeros((self.n, self.n_actions))
            for e in range(self.n):
                for b in range(self.n_actions):
                    top[e, b] = residuals[(rows[h] == rows[h][e]) & (a == b)].max(initial=0)
            half = -np.expm1(-LOG_CONFIDENCE * self.u[h]) * top / 2
            above = half + np.sqrt(half**2 + 2 * log_confidence * self.u[h] * np.maximum(spread, 0))
            raised = np.where(spread > 1e-14, later + above, later)
            further = x @ self.fit(h, r + values[h + 1], np.ones(self.n)).T
            Z = np.clip(np.maximum(raised, further), 0, left)
            values[h] = np.maximum(self.W[h].max(axis=1), Z.max(axis=1))
        gains, visits = (values[0] - self.F[0].max(axis=1)), np.bincount(rows[0])[rows[0]]
        return max(self.gap, np.sqrt((gains**2 * visits).sum()) / self.n)

    def gaps(self, chosen):
        return np.array([upside[chosen].sum() for upside in self.upside])

    def regret(self, theta, chosen):
        total = 0.0
        for h in range(self.horizon):
            q = np.clip(self.x[chosen, h] @ theta[h].T, 0, self.most[h])
            total += np.minimum(1, q.max(axis=1) - q[np.arange(len(q)), self.a[chosen, h]]).mean()
        return total

    def hindsight(self, theta):
        scores = np.einsum("nhi,hai->nha", self.x, theta)
        return np.flatnonzero((scores.argmax(axis=2) == self.a).all(axis=1))

    def refit(self, weights, returns=False, near=0.0, imagined=None, normals=None):
        """Of imagined visits: the rows of each level, their weights by action, and what is left to earn there."""
        theta, value = np.zeros((self.horizon, self.n_actions, self.d)), np.zeros(self.n)
        for h in reversed(range(self.horizon)):
            y = self.r[:, h] + value
            shaken = y
            if normals is not None:
                here = np.arange(self.n), self.a[:, h]
                shaken = y + normals[h] * np.sqrt(self.noise[h][here] * np.minimum(1, self.u[h][here]))
            theta[h] = self.fit(h, shaken, weights)
            for a in range(self.n_actions) if imagined else ():
                (rows, extra, left), at = imagined[h], self.a[:, h] == a
                x, w, g = self.x[at, h], weights[at], extra[:, a]
                matrix = x.T @ (w[:, None] * x) + rows.T @ (g[:, None] * rows) + RIDGE * np.eye(self.d)
                theta[h, a] = np.linalg.solve(matrix, x.T @ (w * y[at]) + rows.T @ (g * left))
            scores = self.x[:, h] @ theta[h].T
            value = np.clip(scores.max(axis=1), 0, self.most[h])
            if returns:
                less = value - np.clip(scores[np.arange(self.n), self.a[:, h]], 0, self.most[h])
                value = np.where(less <= near, y + less, value)
                value = np.where(scores.argmax(axis=1) == self.a[:, h], y, value)
        return theta


def made_up(rng, n, horizon, n_actions, d, kind):
    """Return features, actions and rewards of n episodes of no particular environment."""
    if kind == "one-hot":
        x = np.eye(d)[rng.integers(d, size=(n, horizon))]
    elif kind == "tiles":  # a tile of each of two tilings
        x = (np.eye(d)[rng.integers(d // 2, size=(n, horizon))] + np.eye(d)[rng.integers(d // 2, d, (n, horizon))]) / 2
    else:
        pool = rng.normal(size=(5, d)) if kind == "few" else rng.normal(size=(n * horizon, d))
        pool /= np.maximum(np.linalg.norm(pool, axis=1, keepdims=True), 1e-300) * rng.uniform(1, 3)
        x = pool[rng.integers(len(pool), size=(n, horizon)) if kind == "few" else np.arange(n * horizon)]
        x = x.reshape(n, horizon, d)
    r = rng.random((n, horizon)) * (rng.random((n, horizon)) < 0.3)
    return x, rng.integers(n_actions, size=(n, horizon)), r / np.maximum(1, r.sum(axis=1, keepdims=True)) * (1 - 1e-12)


def planner_of(x, a, r, n_actions):
    planner = OptimisticPlanner(x.shape[1], n_actions, x.shape[2], RIDGE, LOG_CONFIDENCE)
    for episode in zip(x, a, r, strict=True):
        planner.add(*episode)
    return planner


def close(got, expected):
    np.testing.assert_allclose(got, expected, rtol=1e-9, atol=1e-9)


def agree(planner, twin, floor, rng, impatience=0.0):
    gap, residual = planner.plan(floor, impatience)
    twin.plan(floor, impatience)
    close([gap, residual], [twin.gap, twin.residual])
    close(planner.theta, twin.theta)
    close(planner.omega, twin.omega)
    chosen = rng.integers(twin.n, size=rng.integers(1, 2 * twin.n))
    close(planner.upsides(chosen).sum(axis=0), twin.gaps(chosen))
    close(start_values(planner, chosen), twin.F[0].max(axis=1)[chosen])
    theta = rng.normal(size=twin.theta.shape)
    first = np.clip((twin.x[chosen, 0] @ theta[0].T).max(axis=1), 0, 1)
    close(start_values(planner, chosen, theta), first)
    close(planner.recorded(chosen)[2], twin.r[chosen])
    for h in range(twin.horizon):
        leverage, before, plain, hopeful = planner.table(h)
        row = [int(np.flatnonzero((planner.rows(h) == x).all(axis=1))[0]) for x in twin.x[:, h]]
        close(leverage[row], twin.u[h])
        close(np.maximum(0, np.minimum(twin.tops[h], twin.tops[0] - before[row])), twin.left[:, h])
        close(plain[row], twin.F[h].max(axis=1))
        close(hopeful[row], twin.W[h].max(axis=1))
    weights = rng.exponential(size=twin.n)
    refit = twin.refit(weights)
    close(planner.refit(weights), refit)
    imagined = []
    for h in range(twin.horizon):
        leverage, before, _, _ = planner.table(h)
        visited = np.zeros(leverage.shape)
        visited[planner.recorded(np.arange(twin.n))[0][:, h], twin.a[:, h]] = 1.0
        left = np.maximum(0, np.minimum(twin.tops[h], twin.tops[0] - before))
        imagined.append((planner.rows(h), rng.exponential(size=visited.shape) * visited, left))
    weighed = np.concatenate([extra.ravel() for _, extra, _ in imagined])
    close(planner.refit(weights, imagined=weighed), twin.refit(weights, imagined=imagined))
    for near in (0.0, 0.1):
        close(planner.refit(weights, returns=True, near=near), twin.refit(weights, returns=True, near=near))
    if twin.guess:
        normals = rng.normal(size=(twin.horizon, twin.n))
        close(planner.refit(weights, normals=normals), twin.refit(weights, normals=normals))
    close(planner.look_behind(floor, 5.0), twin.look_behind(floor, 5.0))
    planner.plan(floor)
    twin.plan(floor)
    close(planner.theta, twin.theta)
    close(planner.regret(refit, chosen), twin.regret(refit, chosen))
    other = rng.normal(size=refit.shape)
    assert episodes_of(planner, other).tolist() == twin.hindsight(other).tolist()
    follows = twin.theta + 0.0
    assert episodes_of(planner, follows).tolist() == twin.hindsight(follows).tolist()


@settings(max_examples=60)
@given(
    seed=st.integers(0, 2**32),
    n=st.integers(1, 40),
    horizon=st.integers(1, 5),
    n_actions=st.integers(1, 4),
    d=st.integers(1, 9),
    kind=st.sampled_from(["one-hot", "few", "all distinct"]),
    # At 1, whether a chance rounds to 1 decides.
    floor=st.sampled_from([0.0, 0.05, 0.5, 0.99]),
    impatience=st.sampled_from([0.0, 1e-3, 0.2]),
)
def test_agrees_with_the_twin(seed, n, horizon, n_actions, d, kind, floor, impatience):
    rng = np.random.default_rng(seed)
    x, a, r = made_up(rng, n, horizon, n_actions, d, kind)
    planner = planner_of(x, a, r, n_actions)
    assert planner.n_episodes == n and planner.rewarded == (r.sum() > 0)
    agree(planner, Twin(x, a, r, n_actions), floor, rng, impatience)


@pytest.mark.parametrize(("kind", "d"), [("few", 6), ("tiles", 12)])
def test_agrees_after_a_thousand_rank_one_changes_and_more(kind, d):
    rng = np.random.default_rng(0)
    x, a, r = made_up(rng, 1100, 1, 1, d, kind)
    agree(planner_of(x, a, r, 1), Twin(x, a, r, 1), 0.05, rng)


def test_sparse_rows_of_columns_that_appear_late_agree_with_the_twin():
    for seed in range(5):
        rng = np.random.default_rng(seed)
        x, a, r = made_up(rng, 25, 3, 3, 20, "tiles")
        agree(planner_of(x, a, r, 3), Twin(x, a, r, 3), 0.05, rng)


def test_factors_are_as_large_as_their_data():
    """Matrices over all 200,000 columns would take 2.6 terabytes."""
    d = 200_000
    planner = OptimisticPlanner(2, 4, d, RIDGE, LOG_CONFIDENCE)
    x = np.zeros((2, d))
    x[:, [7, d - 1]] = 0.5
    planner.add(x, np.array([1, 2]), [0.0, 0.5])
    planner.plan(0.5)
    value = 0.25 / (0.5 + RIDGE)  # 0.5 |phi|^2 / (|phi|^2 + ridge)
    close(planner.table(1)[2], [value])
    close(planner.table(1)[0][0, [2, 0]], [0.5 / (0.5 + RIDGE), 0.5 / RIDGE])


def test_what_the_end_of_an_episode_earns_is_seen_from_its_start():
    """Features are 0 after the end, so nothing could be fitted to what was earned there."""
    env = mountain_car(200, Identity([-1.2, -0.07], [0.6, 0.07]))
    push = Policy.greedy([[[0.0, -1.0], [0.0, 0.0], [0.0, 1.0]]] * 200)  # the way it moves
    planner = OptimisticPlanner(200, 3, 2, 1e-12, LOG_CONFIDENCE)
    planner.play(Episode(env.handle, env.features, Stream(0)), 20, np.array([rule.theta for rule in push.rules]), 200)
    planner.set_rewards(-200.0, 200.0, np.ones(200))
    planner.plan(1.0)
    returns = planner.recorded(np.arange(20))[2].sum(axis=1)
    assert returns.min() > 0.15
    assert start_values(planner, np.arange(20)).mean() > returns.mean() / 2


def test_plans_between_episodes_change_nothing():
    rng = np.random.default_rng(1)
    episodes = made_up(rng, 60, 4, 3, 5, "few")
    often = OptimisticPlanner(4, 3, 5, RIDGE, LOG_CONFIDENCE)
    for episode in zip(*episodes, strict=True):
        often.add(*episode)
        often.plan(0.5)
    once = planner_of(*episodes, 3)
    assert once.plan(0.5) == often.plan(0.5)
    assert once.theta.tobytes() == often.theta.tobytes() and once.omega.tobytes() == often.omega.tobytes()


def test_an_optimistic_action_has_the_largest_w_then_the_largest_leverage():
    rng = np.random.default_rng(2)
    x, a, r = made_up(rng, 50, 3, 4, 5, "few")
    planner, twin = planner_of(x, a, r, 4), Twin(x, a, r, 4)
    planner.plan(0.05)
    twin.plan(0.05)
    for h in range(3):
        for e in range(50):
            score = twin.W[h][e] + 1e-6 * twin.u[h][e] / (1 + twin.u[h][e])
            ties = np.flatnonzero(score >= score.max() - 1e-9)
            for u in (0.0, 0.3, 0.999):
                assert planner.choose(h, x[e, h], 0.0, u) == ties[int(u * len(ties))]
        new = rng.normal(size=5) / 9
        left = np.array([0.4])
        _, hopeful, leverage = twin.values(h, new[None], left, twin.theta[h], twin.omega[h], 0.05)
        score = hopeful[0] + 1e-6 * leverage[0] / (1 + leverage[0])
        assert planner.choose(h, new, 0.6, 0.0) == np.flatnonzero(score >= score.max() - 1e-9)[0]


def test_what_an_episode_has_earned_leaves_less_to_hope_for():
    """Action 0 pays .6; 5 visits of the other, which paid nothing, leave a chance of .61 for all that is left."""
    planner = OptimisticPlanner(1, 2, 1, RIDGE, LOG_CONFIDENCE)
    for i in range(105):
        planner.add([[1.0]], np.array([int(i < 5)]), [0.0 if i < 5 else 0.6])
    planner.plan(0.05)
    assert planner.choose(0, [1.0], 0.0, 0.5) == 1 and planner.choose(0, [1.0], 0.5, 0.5) == 0


def test_the_residual_is_that_of_the_reward_farthest_from_the_fit():
    planner = OptimisticPlanner(1, 1, 1, RIDGE, LOG_CONFIDENCE)
    for reward in (0.8, 0.8, 0.0, 0.8):
        planner.add([[1.0]], np.array([0]), [reward])
    assert planner.plan(0.5)[1] == pytest.approx(0.6, abs=1e-3)


def test_zeros_of_both_signs_are_one_row():
    planner = OptimisticPlanner(1, 1, 2, RIDGE, LOG_CONFIDENCE)
    planner.add([[0.0, 1.0]], np.array([0]), [0.0])
    planner.add([[-0.0, 1.0]], np.array([0]), [0.5])
    assert planner.n_rows == (1,)


@pytest.mark.parametrize("env", [combination_lock(6, 3, rng=0), chain(4, rng=0)], ids=["lock", "chain"])
@pytest.mark.parametrize("level", [0, 2, None])
def test_played_episodes_are_those_of_the_rules(env, level):
    """Episode e draws from call e, and each optimistic action takes one uniform of the learner's own."""
    env, stream = block_mdp(env), Stream(7)
    level = env.horizon if level is None else level
    played = OptimisticPlanner(env.horizon, env.n_actions, env.dimension, RIDGE, LOG_CONFIDENCE)
    added = OptimisticPlanner(env.horizon, env.n_actions, env.dimension, RIDGE, LOG_CONFIDENCE)
    theta = np.random.default_rng(0).normal(size=(env.horizon, env.n_actions, env.dimension))
    episode, steps = (Episode(env.handle, env.features, stream) for _ in range(2))
    for e in range(30):
        played.play(episode, 1, theta, level)
        steps.reset(e)
        record = []
        for h in range(env.horizon):
            phi, earned = steps.features(), sum(r for _, _, r in record)
            a = int((theta[h] @ phi).argmax()) if h < level else added.choose(h, phi, earned, steps.draws(1)[0])
            record.append((phi, a, steps.step(a)))
        x, a, r = zip(*record, strict=True)
        added.add(x, np.array(a), r)
        assert played.plan(0.05) == added.plan(0.05)
    assert played.theta.tobytes() == added.theta.tobytes()
    for one, other in zip(played.recorded(np.arange(30)), added.recorded(np.arange(30)), strict=True):
        assert one.tobytes() == other.tobytes()


def test_an_empty_planner_imagines_everything():
    planner = OptimisticPlanner(2, 2, 3, RIDGE, LOG_CONFIDENCE)
    assert planner.plan(0.5) == (1.0, 0.0) and planner.look_behind(0.5, 1.0) == 1.0
    assert {planner.choose(0, [1.0, 0, 0], 0.0, u) for u in (0.0, 0.9)} == {0, 1}
    assert planner.refit(np.zeros(0)).shape == (2, 2, 3)
    assert planner.rows(0).shape == (0, 3)
    assert [part.shape for part in planner.table(1)] == [(0, 2), (0,), (0,), (0,)]


def test_arguments_are_checked():
    x, a, r, theta = np.zeros((2, 4)), np.zeros(2, dtype=int), np.zeros(2), np.zeros((2, 3, 4))
    nan, none, one = np.full((2, 4), np.nan), np.array([], dtype=int), np.array([0])
    empty, planner = (OptimisticPlanner(2, 3, 4, RIDGE, LOG_CONFIDENCE) for _ in range(2))
    planner.add(x, a, r)
    with pytest.raises(RuntimeError, match="plan"):
        planner.upsides(one)
    planner.plan(0.5)
    env = block_mdp(combination_lock(5, 2, rng=0))
    fitting = OptimisticPlanner(env.horizon, env.n_actions, env.dimension, RIDGE, LOG_CONFIDENCE)
    episode = Episode(env.handle, env.features, Stream(0))
    for called, arguments, named in (
        (empty.add, (nan, a, r), "features"),
        (empty.add, (x[:, :3], a, r), "features"),
        (empty.add, (x, a + 3, r), "actions"),
        (empty.add, (x, a.astype(float), r), "actions"),
        (empty.set_rewards, (np.nan, 1.0, np.ones(2)), "low"),
        (empty.set_rewards, (0.0, 0.0, np.ones(2)), "width"),
        (empty.set_rewards, (0.0, 1.0, np.ones(3)), "tops"),
        (empty.set_rewards, (0.0, 1.0, np.ones(2), 0.0), "noise"),
        (empty.add, (x, a, r * np.nan), "rewards"),
        (planner.plan, (np.nan,), "floor"),
        (planner.plan, (1.5,), "floor"),
        (planner.plan, (0.5, -1.0), "impatience"),
        (planner.upsides, (np.array([1]),), "episodes"),
        (planner.upsides, (np.array([0.5]),), "episodes"),
        (planner.recorded, (np.array([-1]),), "episodes"),
        (planner.regret, (theta, none), "episodes"),
        (planner.regret, (theta * np.nan, one), "theta"),
        (planner.refit, ([-1.0],), "weights"),
        (planner.refit, ([1.0], False, 0.0, np.ones(5)), "imagined"),
        (planner.refit, ([1.0], False, 0.0, -np.ones(3)), "imagined"),
        (planner.look_behind, (-0.5, 1.0), "floor"),
        (planner.look_behind, (0.5, 0.0), "log_confidence"),
        (planner.rows, (2,), "level"),
        (planner.choose, (0, nan[0], 0.0, 0.5), "features"),
        (planner.choose, (0, x[0], 0.0, 1.0), "u"),
        (planner.play, (episode, 1), "episode"),
        (fitting.play, (episode, 1, None, 2), "theta"),
        (OptimisticPlanner, (0, 1, 1, RIDGE, LOG_CONFIDENCE), "horizon"),
        (OptimisticPlanner, (1, 0, 1, RIDGE, LOG_CONFIDENCE), "n_actions"),
        (OptimisticPlanner, (1, True, 1, RIDGE, LOG_CONFIDENCE), "n_actions"),
        (OptimisticPlanner, (1, 1, 0, RIDGE, LOG_CONFIDENCE), "dimension"),
        (OptimisticPlanner, (1, 1, 1, 0.0, LOG_CONFIDENCE), "ridge"),
    ):
        with pytest.raises((TypeError, ValueError), match=named):
            called(*arguments)
    assert empty.n_episodes == 0


@settings(max_examples=40)
@given(
    seed=st.integers(0, 2**32),
    n=st.integers(1, 25),
    horizon=st.integers(1, 4),
    kind=st.sampled_from(["one-hot", "tiles", "few"]),
    low=st.sampled_from([-3.0, 0.0, 2.0]),
    width=st.sampled_from([0.5, 1.0, 20.0]),
    guess=st.sampled_from([0.0, 0.1, 2.0]),
    early=st.booleans(),
)
def test_rewards_in_points_agree_with_the_twin_in_units(seed, n, horizon, kind, low, width, guess, early):
    """Signed rewards, ends before the last level, ranges by level, noise; set before, between and after episodes."""
    rng = np.random.default_rng(seed)
    x, a, _ = made_up(rng, n, horizon, 2, 4, kind)
    ends = rng.integers(horizon, size=n) if early else np.full(n, horizon - 1)
    x[np.arange(horizon) > ends[:, None]] = 0.0
    r = rng.normal(size=(n, horizon)) * 0.2 + guess * rng.normal(size=(n, horizon))
    paid = width * r + low * (np.arange(horizon) == ends[:, None])
    tops = rng.uniform(0.2, 1.0, size=horizon)
    planner = OptimisticPlanner(horizon, 2, 4, RIDGE, LOG_CONFIDENCE)
    first, second = sorted(rng.integers(n + 1, size=2))
    for episode in zip(x[:first], a[:first], paid[:first], strict=True):
        planner.add(*episode)
    planner.set_rewards(7.0, 3.0, np.ones(horizon))  # others, for a while
    for episode in zip(x[first:second], a[first:second], paid[first:second], strict=True):
        planner.add(*episode)
    planner.set_rewards(low, width, tops, guess or None)
    for episode in zip(x[second:], a[second:], paid[second:], strict=True):
        planner.add(*episode)
    agree(planner, Twin(x, a, r, 2, tops, guess), 0.1, rng)
    assert (planner.paid(np.arange(n)) == paid).all()
    to_go = np.where(np.arange(horizon) <= ends[:, None], paid[:, ::-1].cumsum(axis=1)[:, ::-1], np.nan)
    for h, (least, most) in enumerate(planner.returns_seen):
        if np.isfinite(to_go[:, h]).any():
            close([least, most], [np.nanmin(to_go[:, h]), np.nanmax(to_go[:, h])])
        else:
            assert (least, most) == (np.inf, -np.inf)
