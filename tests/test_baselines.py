"""Baselines: episodes against the environment's functions, learners against plain twins, facts of the literature."""

from __future__ import annotations

import ctypes
import functools
import itertools
import math
import pickle
import signal
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import walker
from hypothesis import strategies as st
from properties import for_all
from refusals import refused
from test_rollout import random_mdp

import dmq_fast
from dmq_fast.baselines import (
    BPIUCBVI,
    LSVIUCB,
    OCP,
    OPPO,
    REGISTRY,
    RLSVI,
    UCBQ,
    DelayedQ,
    Estimates,
    LinearQ,
    PythonLearner,
    TablePolicy,
    UniformLeastSquares,
    register,
)
from dmq_fast.environments import CompiledEnv, FiniteMDP, cart_pole, chain, combination_lock, deep_sea, mountain_car
from dmq_fast.environments.block import block_mdp, lock_bernoulli, lock_gaussian
from dmq_fast.environments.compiled import ENDED, FEATURES, RESET, STEP
from dmq_fast.environments.linear_mdp import linear_mdp
from dmq_fast.environments.locks import decoy_lock
from dmq_fast.kernels import Stream
from dmq_fast.kernels._env import EnvironmentHandle
from dmq_fast.kernels._episode import Episode, Learner
from dmq_fast.kernels._learners import BernsteinLearner, SpanLearner, UCBQLearner
from dmq_fast.kernels._lsvi import LeastSquaresLearner
from dmq_fast.kernels._philox import normals
from dmq_fast.policy import Policy
from dmq_fast.rewards import RewardModel
from dmq_fast.samplers import RolloutSampler

pytestmark = pytest.mark.kernels

everywhere = pytest.mark.parametrize("name", REGISTRY)

# Parameters with which an algorithm that stops by itself does not.
ENDLESS = {"bpi-ucbvi": {"epsilon": None}}


def episode_of(env, seed=0, rewards=None):
    compiled = block_mdp(env) if isinstance(env, FiniteMDP) else env
    return Episode(compiled.handle, compiled.features, Stream(seed), rewards)


def small_linear_mdp(seed, horizon=3, n_actions=2):
    return linear_mdp(horizon, 5, 2, n_actions, rng=seed)


# Episodes -----------------------------------------------------------------------------------------------------------

ENVIRONMENTS = {
    "chain": lambda: block_mdp(chain(6, 2)),
    "gaussian": lambda: lock_gaussian(5, 0.1, 0.3, rng=1),
    "coins": lambda: lock_bernoulli(5, 0.1, observation="coins", rng=1),
    "tiles": lambda: mountain_car(8, "tiles"),
    "fourier": lambda: cart_pole(60),
}


@pytest.mark.parametrize("name", ENVIRONMENTS)
def test_an_episode_is_what_the_functions_of_the_environment_say(name):
    env = ENVIRONMENTS[name]()
    handle, stream = env.handle, Stream(3)
    episode = Episode(handle, env.features, stream)
    ended = 0
    for number in (0, 1, 7):
        episode.reset(number)
        dynamics, seen, own = (stream.at(number, chunk).generator() for chunk in range(3))
        states = handle.reset(dynamics.random((1, handle.reset_uniforms)))
        for level in range(env.horizon):
            phi = handle.features(level, states, seen.random((1, handle.feature_uniforms[level])))
            if env.features is not None:
                phi = env.features(phi)
            over = handle.ended(level, states)[0]
            ended += over
            np.testing.assert_array_equal(episode.features(), np.zeros(env.dimension) if over else phi[0])
            np.testing.assert_array_equal(episode.features(), episode.features())
            action = int(own.random() * env.n_actions)
            assert episode.act(np.zeros(env.n_actions)) == action
            reward = handle.step(level, states, [action], dynamics.random((1, handle.step_uniforms[level])))[0]
            assert episode.step(action) == reward
            np.testing.assert_array_equal(episode.state, states[0])
        with pytest.raises(ValueError, match="has not ended"):
            episode.step(0)
    assert ended > 0 or name != "fourier"


def test_the_environment_meets_the_same_numbers_whoever_looks():
    env = lock_gaussian(6, 0.2, rng=0)
    states = []
    for looks, draws in ((True, 0), (False, 5)):
        episode = Episode(env.handle, None, Stream(4))
        episode.reset(2)
        for _ in range(env.horizon):
            if looks:
                episode.features()
            episode.draws(draws)
            episode.step(1)
            states.append(episode.state)
    np.testing.assert_array_equal(states[:6], states[6:])


def test_ties_are_broken_uniformly_among_the_largest_scores():
    episode = episode_of(chain(2, 4))
    episode.reset(0)
    counts = np.bincount([episode.act([1.0, 0.5, 1.0, 1.0]) for _ in range(3000)], minlength=4)
    assert counts[1] == 0
    assert (abs(counts[[0, 2, 3]] - 1000) < 150).all()
    assert episode.act([0.0, 0.0, 2.0, 0.0]) == 2
    with pytest.raises(ValueError, match="scores"):
        episode.act([0.0, np.nan, 0.0, 0.0])


def test_errors_of_an_episode_name_its_level_call_and_chunk():
    def episode(reset):
        functions = {"reset": RESET(reset), "features": FEATURES(lambda *_: 0), "step": STEP(lambda *_: 0)}
        env = CompiledEnv.from_functions(horizon=3, n_actions=2, dimension=2, state_bytes=4, **functions)
        return Episode(env.handle, None, Stream(0))

    refused(
        [
            (lambda: episode(lambda *_: 0).reset(5), ValueError, "level 0, call 5, chunk 0: reset: left a state out"),
            (lambda: episode(lambda *_: 3).reset(0), RuntimeError, "reset of the environment returned the code 3"),
        ]
    )


def test_episodes_refuse_maps_that_do_not_fit():
    with pytest.raises(ValueError, match="feature_map"):
        Episode(block_mdp(chain(3, 2)).handle, mountain_car(4).features, Stream(0))
    with pytest.raises(TypeError):
        Episode(None, None, Stream(0))
    start = functools.partial(Episode, block_mdp(chain(3, 2)).handle, None, Stream(0))
    short = RewardModel(np.array([[0.0, 1.0]]))
    refused([
        (lambda: start((0, 1)), TypeError, "rewards: expected a RewardModel or None, got tuple"),
        (lambda: start(short), ValueError, r"rewards: expected shape \(3, 2\), got \(1, 2\)"),
    ])  # fmt: skip
    assert isinstance(episode_of(chain(3, 2)).handle, EnvironmentHandle)


# Twins: the algorithms as their papers print them, on the Python face of the same episodes ----------------------------


def tops_of(optimism, horizon):
    """The largest value hoped for at each level."""
    return [1.0 if optimism == "flat" else float(horizon - h) for h in range(horizon)]


def taught(groups, h):
    """The levels that learn from a step of level h, the last first: what follows the last step is not shown."""
    last = len(groups) - 1
    return [k for k in range(last, -1, -1) if k == h or (groups[k] == groups[h] and h < last)]


class Lessons:
    """What each level learns from the steps of an episode, in units of the range of a model of rewards, if any."""

    def __init__(self, env, groups=None, model=None):
        self.env, self.groups = env, range(env.horizon) if groups is None else groups
        self.low, self.width = (0.0, 1.0) if model is None else (model.low, model.width)
        self.over = False

    def of(self, h, paid, following):
        """(level, reward, next state or None) of a step of level h."""
        if h == 0:
            self.over = False
        if self.over:
            return []
        last = self.env.horizon - 1
        # Only tables that share data are told of the end, and others of this file have none before the last level.
        self.over = h < last and isinstance(self.env, FiniteMDP) and self.env.ended[h + 1][following]
        ends = {k: k == last or self.over for k in taught(self.groups, h)}
        return [(k, (paid - self.low * end) / self.width, None if end else following) for k, end in ends.items()]


class LeastSquaresTwin:
    """All transitions kept, by level that learns from them; every matrix is formed and solved anew."""

    def __init__(self, episode, kind, ridge, scale, lessons, *, optimism="flat", clipped=False, blocks=False):
        self.episode, self.kind, self.ridge, self.scale, self.lessons = episode, kind, ridge, scale, lessons
        self.tops, self.clipped, self.blocks = tops_of(optimism, episode.horizon), clipped, blocks
        self.n_weights = 1 if blocks else episode.n_actions
        self.width = episode.dimension // episode.n_actions if blocks else episode.dimension
        self.data = [[([], [], []) for _ in range(self.n_weights)] for _ in range(episode.horizon)]

    def pairs(self, phi):
        """Pairs (features of an action, index of its weights) by action."""
        if not self.blocks:
            return [(phi, a) for a in range(self.episode.n_actions)]
        return [(block, 0) for block in np.split(phi, self.episode.n_actions, axis=-1)]

    def fit(self, kind, noise=None):
        """theta, and V by level and weights."""
        e = self.episode
        theta, v = np.zeros((e.horizon, self.n_weights, self.width)), {}
        for h in reversed(range(e.horizon)):
            for a in range(self.n_weights):
                phi, rewards, after = (np.array(column) for column in self.data[h][a])
                v[h, a] = self.ridge * np.eye(self.width)
                if len(phi):
                    v[h, a] = v[h, a] + phi.T @ phi
                    ahead = self.values(h + 1, after, theta, v, kind) if h + 1 < e.horizon else 0.0
                    theta[h, a] = np.linalg.solve(v[h, a], phi.T @ (rewards + ahead))
                if kind == "randomized":
                    scale = self.scale * self.tops[h]
                    theta[h, a] += scale * np.linalg.solve(np.linalg.cholesky(v[h, a]).T, noise[h, a])
        return theta, v

    def values(self, h, phi, theta, v, kind):
        return self.scores(h, phi, theta, v, kind).max(axis=1)

    def scores(self, h, phi, theta, v, kind):
        scores, top = np.zeros((len(phi), self.episode.n_actions)), self.tops[h]
        for a, (x, which) in enumerate(self.pairs(phi)):
            scores[:, a] = x @ theta[h, which]
            if self.clipped and kind != "plain":
                scores[:, a] = np.clip(scores[:, a], 0.0, top)
            if kind == "confident":
                leverage = np.einsum("ni,in->n", x, np.linalg.solve(v[h, which], x.T))
                scores[:, a] = np.minimum(scores[:, a] + self.scale * top * np.sqrt(leverage), top)
        return scores

    def by_action(self, theta):
        """Weights of all d features for each action."""
        if not self.blocks:
            return theta
        return np.stack([np.kron(row, theta[:, 0]) for row in np.eye(self.episode.n_actions)], axis=1)

    def play(self, number):
        e, noise = self.episode, None
        e.reset(number)
        theta, v = np.zeros((e.horizon, self.n_weights, self.width)), None
        if self.kind == "randomized":
            noise = normals(e.draws((theta.size + 1) // 2))[: theta.size].reshape(theta.shape)
        if self.kind != "uniform":
            theta, v = self.fit(self.kind, noise)
        self.theta = self.by_action(theta)
        path, total = [], 0.0
        for h in range(e.horizon):
            phi = e.features()
            if self.kind == "uniform":
                a = int(e.draws(1)[0] * e.n_actions)
            else:
                a = e.act(self.scores(h, phi[None], theta, v, self.kind)[0])
            paid = e.step(a)
            path.append((phi, a, self.lessons.of(h, paid, state_of(e))))
            total += paid
        for h, (phi, a, lessons) in enumerate(path):
            x, which = self.pairs(phi)[a]
            for k, reward, following in lessons:
                after = np.zeros(e.dimension) if following is None else path[h + 1][0]
                for column, value in zip(self.data[k][which], (x, reward, after), strict=True):
                    column.append(value)
        return total


def compare_least_squares(env, kind, ridge, scale, n, rtol=1e-6, groups=None, model=None, **options):
    learner = LeastSquaresLearner(episode_of(env, rewards=model), kind, ridge, scale, groups=groups, **options)
    twin = LeastSquaresTwin(episode_of(env), kind, ridge, scale, Lessons(env, groups, model), **options)
    returns = np.zeros(n)
    assert learner.run(returns)
    np.testing.assert_allclose(returns, [twin.play(number) for number in range(n)], rtol=0, atol=1e-12)
    np.testing.assert_allclose(learner.weights, twin.theta, rtol=rtol, atol=1e-9)
    np.testing.assert_allclose(learner.fit(), twin.by_action(twin.fit("plain")[0]), rtol=rtol, atol=1e-9)
    return learner


KINDS = [("uniform", 0.0), ("randomized", 0.2), ("confident", 0.3), ("confident", 2.0)]


@for_all(
    slow=500,
    kind=st.sampled_from(KINDS),
    seed=st.integers(0, 10**6),
    horizon=st.integers(1, 4),
    n_actions=st.integers(1, 3),
    ridge=st.floats(0.01, 2.0),
    options=st.fixed_dictionaries(
        {"optimism": st.sampled_from(["flat", "steps"]), "clipped": st.booleans(), "blocks": st.booleans()}
    ),
)
def test_least_squares_of_finite_mdps(kind, seed, horizon, n_actions, ridge, options):
    env = small_linear_mdp(seed, horizon, n_actions)
    learner = compare_least_squares(env, kind[0], ridge, kind[1], 25, **options)
    assert all(n <= 5 for n in learner.n_observations)


def test_least_squares_where_every_observation_is_new():
    env, steps, blocks = lock_gaussian(5, 0.1, 0.4, n_actions=2, rng=0), {"optimism": "steps"}, {"blocks": True}
    for kind, scale, options in [
        ("uniform", 0.0, {}),
        ("confident", 0.3, {}),
        ("randomized", 0.2, {"clipped": True, **steps}),
        ("randomized", 0.2, {"clipped": True, **blocks}),
        ("confident", 0.3, {"clipped": True, **steps}),
        ("confident", 2.0, {"clipped": True, **blocks}),
    ]:
        learner = compare_least_squares(env, kind, 0.1, scale, 70, **options)
        assert learner.n_observations == (0, 70, 70, 70, 70)
        if options:
            # The observations have negative numbers: without clipping, what is learned differs.
            unclipped = LeastSquaresLearner(episode_of(env), kind, 0.1, scale, **{**options, "clipped": False})
            unclipped.run(np.zeros(70))
            assert not np.allclose(learner.weights, unclipped.weights)


def test_least_squares_of_a_mapped_environment():
    for kind, scale in KINDS[:3]:
        compare_least_squares(cart_pole(12), kind, 0.5, scale, 12)


@pytest.mark.parametrize(("n_actions", "options"), [(1, {}), pytest.param(2, {"blocks": True}, marks=pytest.mark.slow)])
def test_leverages_stay_right_over_thousands_of_updates(n_actions, options):
    # Both ways past the point where they are computed afresh.
    compare_least_squares(small_linear_mdp(5, 2, n_actions), "confident", 1.0, 0.5, 1030, **options)


def test_equal_observations_are_kept_once():
    learner = LeastSquaresLearner(episode_of(linear_mdp(3, 60, 2, 2, rng=0)), "uniform", 1.0, 0.0)
    learner.run(np.zeros(3000))
    first, *others = learner.n_observations
    assert first == 0
    assert all(50 < n <= 60 for n in others)


def test_rewards_by_edge_and_shrinking_levels():
    rng = np.random.default_rng(2)
    for _ in range(5):
        env = random_mdp(rng, 4, 5, 3, 4, "dense", caps=True)
        compare_least_squares(env, "randomized", 0.3, 0.3, 25)


def linear_q_twin(env, n, alpha, alpha_decay, epsilon, epsilon_decay, groups=None, model=None):
    """Weights and returns."""
    e, lessons = episode_of(env), Lessons(env, groups, model)
    theta, returns = np.zeros((env.horizon, env.n_actions, env.dimension)), []
    for number in range(n):
        e.reset(number)
        step, explore, total = alpha / (1 + number * alpha_decay), epsilon / (1 + number * epsilon_decay), 0.0
        for h in range(env.horizon):
            u, action = e.draws(2)
            before = e.features()
            a = e.act(theta[h] @ before)
            if u < explore:
                a = int(action * env.n_actions)
            paid = e.step(a)
            for k, reward, following in lessons.of(h, paid, state_of(e)):
                ahead = 0.0 if following is None else (theta[k + 1] @ e.features()).max()
                theta[k, a] += step * (reward + ahead - before @ theta[k, a]) * before
            total += paid
        returns.append(total)
    return theta, returns


@for_all(
    15,
    500,
    seed=st.integers(0, 10**6),
    alpha=st.floats(0.0, 1.0),
    epsilon=st.floats(0.0, 1.0),
    decays=st.tuples(st.floats(0.0, 1.0), st.floats(0.0, 1.0)),
)
def test_linear_q_learning(seed, alpha, epsilon, decays):
    env, n = small_linear_mdp(seed), 30
    result = LinearQ(
        env, alpha=alpha, epsilon=epsilon, alpha_decay=decays[0], epsilon_decay=decays[1], n_episodes=n, rng=0
    ).learn()
    theta, returns = linear_q_twin(env, n, alpha, decays[0], epsilon, decays[1])
    np.testing.assert_allclose(result.returns, returns, rtol=0, atol=1e-12)
    np.testing.assert_allclose(result.theta, theta, rtol=1e-9, atol=1e-12)


def state_of(episode):
    return int(episode.state[:4].view(np.int32)[0])


def tabular_twin(env, n, update, first, groups=None, model=None):
    """Greedy episodes on a table that begins at `first` by level and `update(q, h, s, a, reward, ahead)` changes."""
    e, lessons = episode_of(env), Lessons(env, groups, model)
    q = [np.full((size, env.n_actions), value) for size, value in zip(env.n_states, first, strict=True)]
    returns = []
    for number in range(n):
        e.reset(number)
        total = 0.0
        for h in range(env.horizon):
            s = state_of(e)
            a = e.act(q[h][s])
            paid = e.step(a)
            for k, reward, following in lessons.of(h, paid, state_of(e)):
                update(q, k, s, a, reward, 0.0 if following is None else q[k + 1][following].max())
            total += paid
        returns.append(total)
    return q, returns


def ucb_q_twin(env, n, c, alpha, clipped, optimism, **shared):
    """Table, returns, and the number of updates of each entry."""
    visits, tops, horizon = {}, (*tops_of(optimism, env.horizon), 0.0), env.horizon

    def update(q, h, s, a, reward, ahead):
        t = visits[h, s, a] = visits.get((h, s, a), 0) + 1
        rate = (horizon + 1) / (horizon + t) if alpha is None else alpha
        target = reward + min(tops[h + 1], ahead) + c * tops[h] * np.sqrt(horizon / t)
        q[h][s, a] = (1 - rate) * q[h][s, a] + rate * target
        if clipped:
            q[h][s, a] = min(tops[h], q[h][s, a])

    return *tabular_twin(env, n, update, tops[:-1], **shared), visits


def test_ucb_q():
    rng = np.random.default_rng(6)
    for alpha, clipped, optimism in itertools.product((None, 0.2), (True, False), ("flat", "steps")):
        env = random_mdp(rng, 4, 4, 3, 4, "dense", caps=True, start="random")
        q, returns, visits = ucb_q_twin(env, 200, 0.1, alpha, clipped, optimism)
        result = UCBQ(env, c=0.1, alpha=alpha, clipped=clipped, optimism=optimism, n_episodes=200, rng=0).learn()
        np.testing.assert_allclose(result.returns, returns, rtol=0, atol=1e-12)
        for mine, theirs in zip(result.table, q, strict=True):
            np.testing.assert_allclose(mine, theirs, rtol=1e-12)
        learner = UCBQLearner(episode_of(env), 0.1, alpha, clipped, optimism=optimism)
        learner.run(np.zeros(200))
        assert {(h, s, a): n for h, t in enumerate(learner.counts) for (s, a), n in np.ndenumerate(t) if n} == visits


def delayed_q_twin(env, n, m, epsilon, **shared):
    """Table, returns, whether each entry learns, and the number of updates."""
    total, waited, attempted, learn = {}, {}, {}, {}
    clock = {"now": 0, "changed": 0, "updates": 0}

    def update(q, h, s, a, reward, ahead):
        key = h, s, a
        clock["now"] += 1
        if learn.setdefault(key, True):
            total[key] = total.get(key, 0.0) + reward + ahead
            waited[key] = waited.get(key, 0) + 1
            if waited[key] == m:
                if q[h][s, a] - total[key] / m >= 2 * epsilon:
                    q[h][s, a] = total[key] / m + epsilon
                    clock["changed"], clock["updates"] = clock["now"], clock["updates"] + 1
                elif attempted.get(key, 0) >= clock["changed"]:
                    learn[key] = False
                attempted[key], total[key], waited[key] = clock["now"], 0.0, 0
        elif attempted.get(key, 0) < clock["changed"]:
            learn[key] = True

    return *tabular_twin(env, n, update, tops_of("flat", env.horizon), **shared), learn, clock["updates"]


def test_delayed_q():
    rng, stuck = np.random.default_rng(7), 0
    for m, epsilon in [(1, 0.02), (3, 0.05), (7, 0.01), (3, 0.05)]:
        env = random_mdp(rng, 3, 3, 2, 4, "dense", caps=True)
        q, returns, learn, updates = delayed_q_twin(env, 800, m, epsilon)
        result = DelayedQ(env, m=m, epsilon=epsilon, n_episodes=800, rng=0).learn()
        np.testing.assert_allclose(result.returns, returns, rtol=0, atol=1e-12)
        for mine, theirs in zip(result.table, q, strict=True):
            np.testing.assert_allclose(mine, theirs, rtol=1e-12)
        assert result.counts["updates"] == updates
        stuck += sum(not waiting for waiting in learn.values())
    assert stuck > 0


def deterministic_linear(seed, dimension):
    """A deterministic lock with rotated features."""
    return combination_lock(5, 3, final=1.0, rng=seed, dimension=dimension)


def ocp_twin(env, n, groups=None, model=None):
    """Equations (features, values) by level and action, and returns."""
    e, d, last = episode_of(env), env.dimension, env.horizon - 1
    lessons = Lessons(env, groups, model)
    rows = [[(np.zeros((0, d)), np.zeros(0)) for _ in range(env.n_actions)] for _ in range(env.horizon)]
    returns = []

    def optimistic(h, phi):
        best = []
        for phis, y in rows[h]:
            coefficients = np.linalg.lstsq(phis.T, phi, rcond=None)[0] if len(phis) else np.zeros(0)
            known = np.linalg.norm(phis.T @ coefficients - phi) < 1e-6
            best.append(coefficients @ y if known else np.inf)
        return np.array(best)

    for number in range(n):
        e.reset(number)
        path, total = [], 0.0
        for h in range(last + 1):
            phi = e.features()
            a = int(optimistic(h, phi).argmax())
            paid = e.step(a)
            path.append((phi, a, lessons.of(h, paid, state_of(e))))
            total += paid
        returns.append(total)
        for level in reversed(range(last + 1)):
            for h in reversed(range(last + 1)):
                phi, a, known = path[h]
                for reward, following in [known[1:] for known in known if known[0] == level]:
                    ahead = 0.0 if following is None else optimistic(level + 1, path[h + 1][0]).max()
                    if ahead < np.inf and optimistic(level, phi)[a] == np.inf:
                        phis, y = rows[level][a]
                        rows[level][a] = np.vstack([phis, phi]), np.append(y, reward + ahead)
    return rows, returns


@for_all(5, 200, seed=st.integers(0, 10**6), dimension=st.integers(2, 5))
def test_ocp(seed, dimension):
    env, n = deterministic_linear(seed, dimension), 40
    learner, mine = SpanLearner(episode_of(env), 1e-6), np.zeros(n)
    learner.run(mine)
    rows, returns = ocp_twin(env, n)
    np.testing.assert_allclose(mine, returns, rtol=0, atol=1e-12)
    assert learner.ranks.tolist() == [[len(y) for _, y in level] for level in rows]
    assert learner.n_conflicts == 0


# Facts of the literature ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("horizon", "published"), [(5, 700), (20, 2900)])
def test_ucb_q_solves_locks_as_fast_as_published(horizon, published):
    # Du et al. (2019, arXiv 1901.09018) with their authors' code: medians of the first multiple of 100 episodes whose
    # running mean exceeds 1/4.
    first = [
        UCBQ(lock_bernoulli(horizon, rng=seed), c=0.001, alpha=0.1, n_episodes=2 * published, rng=seed, checkpoints=1)
        .learn()
        .first_above(0.25)
        for seed in range(5)
    ]
    assert 0.75 * published <= np.median(first) <= 1.25 * published, first


def solved_at(algorithm, env, n_episodes, seed, **parameters):
    """The first episode after which the policy is worth 95 % of the optimum, or infinity."""
    baseline = algorithm(env, n_episodes=n_episodes, checkpoints=range(1, n_episodes), rng=seed, **parameters)
    curve = baseline.learn().curve
    good = curve.episodes[curve.value >= 0.95 * env.optimal_value]
    return good[0] if good.size else np.inf


def test_optimism_in_steps_solves_the_deep_sea_in_twice_its_depth():
    # As many episodes as there are pairs of a level and an action.
    size = 20
    for seed in range(2):
        env, options = deep_sea(size, rng=seed), {"beta": 0.001, "ridge": 1e-6}
        assert solved_at(LSVIUCB, env, 2 * size, seed, optimism="steps", **options) <= 2 * size
        assert solved_at(LSVIUCB, env, 2 * size, seed, **options) == np.inf


def test_ocp_knows_at_most_as_many_directions_as_there_are():
    # Rounding is always farther from the span than such a tolerance.
    learner = SpanLearner(episode_of(deterministic_linear(0, 3)), 1e-300)
    learner.run(np.zeros(400))
    assert learner.ranks.max() == 3 and np.isfinite(learner.weights).all()


@pytest.mark.parametrize(
    "env",
    [decoy_lock(10), deep_sea(12, rng=3), combination_lock(20, final=1.0, rng=0), deterministic_linear(1, 6)],
    ids=["decoy", "deep-sea", "lock", "rotated"],
)
def test_ocp_is_suboptimal_in_at_most_eluder_dimension_many_episodes(env):
    dimension = sum(
        int(np.linalg.matrix_rank(phi[seen])) * env.n_actions
        for phi, seen in zip(env.features, env.reachable, strict=True)
    )
    result = OCP(env, n_episodes=dimension + 50, rng=0).learn()
    suboptimal = np.count_nonzero(result.returns < env.optimal_value - 1e-9)
    assert 0 < suboptimal <= dimension
    assert result.counts["equations"] <= dimension
    assert result.value == pytest.approx(env.optimal_value, abs=1e-9)
    assert result.warnings == ()


# The base class -------------------------------------------------------------------------------------------------------


@everywhere
def test_results_say_what_happened(name):
    env = deep_sea(4)
    baseline = REGISTRY[name](env, n_episodes=90, rng=5, **ENDLESS.get(name, {}))
    result = baseline.learn()
    assert (result.algorithm, result.status, result.n_trajectories) == (name, "ended", 90)
    assert result.counts["episodes"] == 90
    assert result.counts["transitions"] == 360
    assert result.counts["evaluation_trajectories"] == 0
    assert result.value == env.value(result.policy)
    assert (result.theta is None) != (result.table is None)
    assert isinstance(result.policy, Policy)
    curve = result.curve
    assert curve.episodes[0] == 1
    assert curve.episodes[-1] == 90
    assert (np.diff(curve.episodes) > 0).all()
    np.testing.assert_allclose(curve.reward, np.cumsum(result.returns)[curve.episodes - 1], rtol=1e-12)
    assert (curve.standard_error == 0).all()
    assert result.parameters["n_episodes"] == 90
    assert result.seconds["total"] == result.seconds["learning"] + result.seconds["evaluation"]
    assert name in repr(result)
    # What was returned runs on other samplers too.
    estimate = RolloutSampler(env).evaluate(result.policy, 10, stream=Stream(0))
    assert estimate.value == pytest.approx(result.value)


@everywhere
def test_runs_are_repeatable_and_begin_alike(name):
    env, own = deep_sea(4), ENDLESS.get(name, {})
    first = REGISTRY[name](env, n_episodes=60, rng=5, **own)
    result = first.learn()
    longer = first.learn(100)
    assert first.n_episodes == 100
    again = REGISTRY[name](env, n_episodes=60, rng=Stream.from_key(result.key), **own).learn()
    copied = pickle.loads(pickle.dumps(first)).learn(60)
    for other in (longer, again, copied):
        np.testing.assert_array_equal(other.returns[:60], result.returns)
    assert again.policy == copied.policy == result.policy
    # Nothing in OCP on a deterministic system is random.
    other = REGISTRY[name](env, n_episodes=60, rng=6, **own).learn()
    assert np.array_equal(other.returns, result.returns) == (name == "ocp")


def test_budgets_in_seconds():
    for name, algorithm in REGISTRY.items():
        result = algorithm(deep_sea(5), n_episodes=10**7, rng=0, **ENDLESS.get(name, {})).learn(max_seconds=1e-9)
        assert result.status == "max_seconds"
        assert 0 < result.n_trajectories < 10**7
        assert len(result.returns) == result.curve.episodes[-1]


@pytest.mark.parametrize("algorithm", [UCBQ, RLSVI])
def test_an_interrupted_run_keeps_what_it_has(algorithm):
    def interrupt(*_):
        raise KeyboardInterrupt

    baseline = algorithm(deep_sea(10), n_episodes=10**8, checkpoints=[100], rng=0)
    with pytest.raises(RuntimeError, match="no episode"):
        baseline.result()
    before = signal.signal(signal.SIGVTALRM, interrupt)
    try:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0.5)  # seconds of the process, not of the machine
        with pytest.raises(KeyboardInterrupt):
            baseline.learn()
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)
    result = baseline.result()
    assert result.status == "interrupted"
    assert result.n_trajectories >= 100
    assert result.curve.episodes[-1] == result.n_trajectories


def test_environments_without_tables_are_valued_by_rollouts():
    env = mountain_car(10, "fourier", 1)
    for algorithm in (UniformLeastSquares, LinearQ, RLSVI, LSVIUCB):
        result = algorithm(env, n_episodes=20, checkpoints=[5], n_evaluation=64, rng=0).learn()
        assert result.counts["evaluation_trajectories"] == 128
        stream = Stream.from_key(result.key, call=2**63 + 1)
        assert result.value == RolloutSampler(env).evaluate(result.policy, 64, stream=stream).value
        assert "evaluation" in result.seconds


@pytest.mark.parametrize("algorithm", [UCBQ, DelayedQ, BPIUCBVI, OPPO])
def test_tabular_algorithms_see_through_the_noise_of_block_mdps(algorithm):
    env = lock_gaussian(3, 0.1, 0.3, rng=0)
    parameters = {UCBQ: {"c": 0.01}, DelayedQ: {"m": 20}}.get(algorithm, {})
    result = algorithm(env, n_episodes=5000, rng=0, **parameters).learn()
    assert isinstance(result.policy, TablePolicy)
    assert result.value == env.latent.value(result.policy) == env.optimal_value
    assert env.latent.occupancy(result.policy)[0].sum() == pytest.approx(1.0)
    assert result.policy.act(0, np.array([0, 0])).tolist() == [result.table[0][0].argmax()] * 2


def test_tables_of_features_that_are_no_units():
    env = small_linear_mdp(0)
    result = UCBQ(env, n_episodes=50, rng=0).learn()
    assert isinstance(result.policy, TablePolicy)
    assert result.value == env.value(result.policy)


def test_table_policies():
    policy = TablePolicy([np.array([1, 0]), np.array([0])])
    assert policy == TablePolicy([[1, 0], [0]])
    assert policy != TablePolicy([[1, 1], [0]])
    assert policy.probabilities(0, np.zeros((2, 3)), 2).tolist() == [[0, 1], [1, 0]]
    with pytest.raises(ValueError, match="all 2 states"):
        policy.probabilities(0, np.zeros((3, 3)), 2)
    with pytest.raises(ValueError, match="n_actions"):
        policy.probabilities(0, np.zeros((2, 3)), 1)
    with pytest.raises(ValueError, match="actions: level 1"):
        TablePolicy([[0], [-1]])
    with pytest.raises(ValueError, match="read-only"):
        policy.rules[0][0] = 0


def test_wrong_arguments_are_refused_before_anything_runs():
    table = [
        (RLSVI, "lock", {}, TypeError, "env: expected a FiniteMDP or a CompiledEnv"),
        (RLSVI, chain(3, 2), {"sigma": -1.0}, ValueError, "sigma"),
        (RLSVI, chain(3, 2), {"precision": 0.0}, ValueError, "precision"),
        (LSVIUCB, chain(3, 2), {"beta": float("nan")}, ValueError, "beta"),
        (LSVIUCB, chain(3, 2), {"optimism": "step"}, ValueError, "optimism: expected one of flat, steps, got 'step'"),
        (UCBQ, chain(3, 2), {"optimism": None}, ValueError, "optimism: expected one of flat, steps, got None"),
        (RLSVI, chain(3, 2), {"clipped": 1}, TypeError, "clipped: expected a bool, got 1"),
        (UniformLeastSquares, deep_sea(3), {"blocks": "no"}, TypeError, "blocks: expected a bool, got 'no'"),
        (
            LSVIUCB,
            deep_sea(3),
            {"blocks": True},
            ValueError,
            "blocks: expected a number of features that is a multiple",
        ),
        (LinearQ, chain(3, 2), {"epsilon": 1.5}, ValueError, r"epsilon: expected a number in \[0, 1\]"),
        (LinearQ, chain(3, 2), {"alpha_decay": -1}, ValueError, "alpha_decay"),
        (LinearQ, chain(3, 2), {"gamma": 1.0}, TypeError, "gamma"),
        (OCP, chain(3, 2), {}, ValueError, "deterministic"),
        (OCP, lock_bernoulli(3, rng=0), {}, ValueError, "deterministic"),
        (OCP, lock_gaussian(3, rng=0), {}, ValueError, "deterministic"),
        (OCP, deep_sea(3), {"tolerance": 0.0}, ValueError, "tolerance"),
        (UCBQ, mountain_car(5), {}, TypeError, "states are numbered"),
        (DelayedQ, mountain_car(5), {}, TypeError, "states are numbered"),
        (BPIUCBVI, mountain_car(5), {}, TypeError, "states are numbered"),
        (OPPO, mountain_car(5), {}, TypeError, "states are numbered"),
        (BPIUCBVI, chain(3, 2), {"optimism": "all"}, ValueError, "optimism: expected one of flat, steps, got 'all'"),
        (OPPO, chain(3, 2), {"alpha": 1e10}, ValueError, "alpha: expected a number in"),
        (BPIUCBVI, chain(3, 2), {"epsilon": 2.0}, ValueError, "epsilon: expected a number in"),
        (RLSVI, chain(3, 2), {"sigma": 1e-200}, ValueError, "sigma: expected sigma"),
        (LSVIUCB, chain(3, 2), {"n_episode": 5}, TypeError, "n_episode: expected no such argument"),
        (UniformLeastSquares, chain(3, 2), {"beta": 3}, TypeError, "beta: expected no such argument"),
        (OPPO, chain(3, 2), {"optimism": 1}, ValueError, "optimism: expected one of flat, steps, got 1"),
        (BPIUCBVI, chain(3, 2), {"c1": -1.0}, ValueError, "c1: "),
        (BPIUCBVI, chain(3, 2), {"c2": float("inf")}, ValueError, "c2: "),
        (BPIUCBVI, chain(3, 2), {"epsilon": 0.0}, ValueError, "epsilon: "),
        (OPPO, chain(3, 2), {"alpha": -1.0}, ValueError, "alpha: "),
        (OPPO, chain(3, 2), {"beta": -1.0}, ValueError, "beta: "),
        (UCBQ, chain(3, 2), {"alpha": 2.0}, ValueError, "alpha"),
        (UCBQ, chain(3, 2), {"c": -1.0}, ValueError, "c: "),
        (DelayedQ, chain(3, 2), {"m": 0}, ValueError, "m: expected an integer >= 1"),
        (DelayedQ, chain(3, 2), {"m": 2.5}, TypeError, "m: expected an integer, got 2.5"),
        (DelayedQ, chain(3, 2), {"m": True}, TypeError, "m: expected an integer, got True"),
        (DelayedQ, chain(3, 2), {"m": 2**63}, ValueError, r"m: expected an integer < 2\^63"),
        (UCBQ, chain(3, 2), {"clipped": "no"}, TypeError, "clipped: expected a bool, got 'no'"),
        (DelayedQ, chain(3, 2), {"n_episodes": 2**63}, ValueError, r"n_episodes: expected an integer < 2\^63"),
        (DelayedQ, chain(3, 2), {"n_evaluation": 2**63}, ValueError, r"n_evaluation: expected an integer < 2\^63"),
        (DelayedQ, chain(3, 2), {"n_episodes": 0}, ValueError, "n_episodes"),
        (DelayedQ, chain(3, 2), {"checkpoints": [0]}, ValueError, "checkpoints"),
        (DelayedQ, chain(3, 2), {"max_seconds": 0}, ValueError, "max_seconds"),
        (DelayedQ, chain(3, 2), {"rng": -1}, ValueError, "rng"),
        (lambda env: LeastSquaresLearner(episode_of(env), "greedy", 1.0, 0.0), chain(3, 2), {}, ValueError, "kind"),
    ]
    refused([(functools.partial(call, env, **given), error, text) for call, env, given, error, text in table])


def test_learners_are_for_one_thread():
    learner = LeastSquaresLearner(episode_of(deep_sea(10)), "randomized", 0.01, 0.1)
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(learner.run, np.zeros(3000))
        refused = False
        while not (refused or running.done()):
            try:
                learner.fit()
            except RuntimeError as error:
                refused = "another thread" in str(error)
        try:
            running.result()
        except RuntimeError as error:
            refused = "another thread" in str(error)
    assert refused
    with pytest.raises(TypeError, match="abstract"):
        Learner(episode_of(deep_sea(3)))


class Uniform(PythonLearner):
    """Plays uniformly random actions, without learning."""

    def play(self):
        zeros = np.zeros(self.episode.n_actions)
        for _ in range(self.episode.horizon):
            self.episode.features()
            self.episode.step(self.episode.act(zeros))


class PlayedInPython(UniformLeastSquares):
    """Plays the episodes of its base class, one after the other in Python."""

    def learner(self, episode):
        return Uniform(episode)

    def estimates(self, learner):
        return Estimates(Policy.uniform(self.env.horizon))

    def counts(self, learner):
        return {}


def test_a_learner_in_python_plays_the_episodes_of_a_compiled_one():
    env = lock_gaussian(4, 0.1, rng=0)
    expected = UniformLeastSquares(env, n_episodes=40, checkpoints=[10], rng=3).learn()
    result = PlayedInPython(env, n_episodes=40, checkpoints=[10], rng=3).learn()
    np.testing.assert_array_equal(result.returns, expected.returns)
    assert result.status == "ended"
    assert result.curve.episodes.tolist() == [10, 40]
    stopped = PlayedInPython(env, n_episodes=10**7, checkpoints=[10**7], rng=3).learn(max_seconds=1e-9)
    assert (stopped.status, stopped.n_trajectories) == ("max_seconds", 1)


def test_a_name_is_registered_once():
    with pytest.raises(ValueError, match=r"^name: 'uniform' is already registered$"):
        register(type("Another", (UniformLeastSquares,), {}))
    assert REGISTRY["uniform"] is UniformLeastSquares


def test_warnings():
    unrewarded = LinearQ(lock_bernoulli(20, rng=0), n_episodes=50, rng=0).learn()
    assert "nothing shows which actions are better" in unrewarded.warnings[0]
    assert "no entry changed" in DelayedQ(chain(3, 2), m=1000, n_episodes=50, rng=0).learn().warnings[0]
    # Distinct states with one feature: equations that contradict each other.
    blurred = FiniteMDP(
        P=[np.eye(2)[[[0, 1]]]],
        R=[np.zeros((1, 2)), np.array([[0.2, 0.2], [0.9, 0.9]])],
        features=[np.ones((1, 1)), np.ones((2, 1))],
    )
    assert "contradict" in OCP(blurred, n_episodes=20, rng=0).learn().warnings[0]


def test_levels_that_show_nothing_are_named():
    """Rewards at level 0 only, which differ: the estimates of level 1 are 0, in tables and in linear functions."""
    env = FiniteMDP(
        P=[np.ones((1, 2, 1))], R=[np.array([[0.2, 0.7]]), np.zeros((1, 2))], features=[np.ones((1, 1))] * 2
    )
    said = "no reward was seen from level 1 on: what the returned policy does there is arbitrary"
    assert said in UniformLeastSquares(env, n_episodes=50, rng=0).learn().warnings
    assert said in BPIUCBVI(env, n_episodes=50, epsilon=None, rng=0).learn().warnings


def test_the_registry_is_what_the_package_offers():
    assert list(REGISTRY) == [
        *("uniform", "q-learning", "rlsvi", "lsvi-ucb", "ocp", "ucb-q", "delayed-q", "bpi-ucbvi", "oppo")
    ]
    assert dmq_fast.baselines.REGISTRY is REGISTRY


# Rewards in points ----------------------------------------------------------------------------------------------------


def plain_table(ends):
    """Rewards are multiples of 1/64 and probabilities of 1/4, so that arithmetic is exact; sums are in [0, 1].

    With `ends`, state 2 is the end, and the last reward comes on the way there or at the last level.
    """
    stay, last = np.zeros((3, 2, 3)), np.array([[8.0, 16.0], [32.0, 4.0], [0.0, 0.0]]) / 64
    stay[0, 0], stay[0, 1], stay[1, 0], stay[1, 1], stay[2, :, 2] = [1, 0, 0], [0, 1, 0], [0, 1, 0], [0, 0, 1], 1.0
    paid = np.array([[2.0, 0.0], [0.0, 20.0], [0.0, 0.0]]) / 64
    rows = np.diag([1.0, 1.0, 0.0])[:, :2] if ends else np.eye(3)
    return [stay] * 3, [paid] * 3 + [last], [rows] * 4


def moved_table(P, R, ends, scale, shift):
    """The same with rewards times `scale`, and a `shift` paid once: where the episode ends."""
    moved = [scale * rewards for rewards in R]
    moved[-1] = moved[-1] + shift
    if ends:
        moved[-1][2] = 0.0
        for rewards in moved[:-1]:
            rewards[1, 1] += shift  # on the way to state 2
    return P, moved


@everywhere
@pytest.mark.parametrize("ends", [False, True])
@pytest.mark.parametrize(("scale", "shift"), [(1.0, -1.0), (4.0, -8.0), (64.0, 0.0), (0.25, 16.0)])
def test_scale_and_shift_of_rewards_change_nothing_but_the_points(name, ends, scale, shift):
    P, R, features = plain_table(ends)
    plain = FiniteMDP(P, R, features)
    moved = FiniteMDP(*moved_table(P, R, ends, scale, shift), features, value_range=(shift, shift + scale))
    assert plain.value_range[0].tolist() == [0, 1] and plain.ended[2][2] == ends
    own = {"n_episodes": 150, "rng": 3, **ENDLESS.get(name, {})}
    mine, theirs = REGISTRY[name](plain, **own).learn(), REGISTRY[name](moved, **own).learn()
    assert mine.policy == theirs.policy and mine.warnings == theirs.warnings
    np.testing.assert_array_equal(theirs.returns, scale * mine.returns + shift)
    np.testing.assert_allclose(theirs.curve.value, scale * mine.curve.value + shift, rtol=1e-14, atol=1e-12)
    np.testing.assert_array_equal(theirs.curve.reward, scale * mine.curve.reward + shift * mine.curve.episodes)
    for one, other in zip(mine.table or mine.theta, theirs.table or theirs.theta, strict=True):
        np.testing.assert_array_equal(one, other)  # in units
    assert theirs.parameters["value_range"] == [shift, shift + scale] and "value_range" not in mine.parameters


def test_a_gap_and_an_epsilon_are_in_points():
    P, R, features = plain_table(False)
    moved = FiniteMDP(*moved_table(P, R, False, 4.0, -8.0), features, value_range=(-8, -4))
    own = {"n_episodes": 30, "rng": 3}
    mine = BPIUCBVI(FiniteMDP(P, R, features), **own).learn()
    for epsilon in (0.2, "5%"):
        theirs = BPIUCBVI(moved, epsilon=epsilon, **own).learn()
        assert theirs.counts["gap"] == 4.0 * mine.counts["gap"] > 0.2
        assert theirs.warnings[0] == f"not stopped by its rule: the gap is {theirs.counts['gap']:.3g}, epsilon = 0.2"
    with pytest.raises(ValueError, match=r"epsilon: expected a number in \(0, 4\), the width of the range"):
        BPIUCBVI(moved, epsilon=4.0)
    with pytest.raises(ValueError, match="share"):
        BPIUCBVI(moved, epsilon="4")


def signed_walk(**changes):
    return walker.in_c(**changes)


@pytest.mark.parametrize("make", [signed_walk, lambda: mountain_car(120, order=1), lambda: cart_pole(60, order=1)])
def test_an_episode_pays_the_shift_once(make):
    env = make()
    model = RewardModel.of(env)
    plain, units = (Episode(env.handle, env.features, Stream(0), rewards) for rewards in (None, model))
    early = 0
    for number in range(40):
        plain.reset(number)
        units.reset(number)
        paid, shifts, total = 0, 0, 0.0
        for level in range(env.horizon):
            running = units.features().any()
            action = 0 if env.name == "mountain-car" and number < 20 else env.n_actions - 1
            raw, reward = plain.step(action), units.step(action)
            ends = running and (level == env.horizon - 1 or not units.features().any())
            assert reward == (raw - model.low * ends) / model.width and (running or reward == 0.0)
            paid, shifts, total = paid + raw, shifts + ends, total + reward
            early += ends and level < env.horizon - 1
        assert shifts == 1 and plain.earned == units.earned == paid
        assert total == pytest.approx((paid - model.low) / model.width, abs=1e-12) and -1e-12 <= total <= 1 + 1e-12
    assert early > 0 or env.name == "mountain-car"


def test_an_episode_that_is_over_when_it_begins_pays_the_shift_at_once():
    env = CompiledEnv.from_functions(**over_at_once(), value_range=(-3, 0))
    episode = Episode(env.handle, None, Stream(0), RewardModel.of(env))
    episode.reset(0)
    assert [episode.step(0) for _ in range(3)] == [1.0, 0.0, 0.0] and episode.earned == 0.0


def over_at_once():
    def numbers(pointer, kind, n):
        return np.ctypeslib.as_array(ctypes.cast(pointer, ctypes.POINTER(kind)), (n,))

    def write(kind, value):
        def function(context, level, n, *pointers):
            numbers(pointers[-1], kind, n)[:] = value
            return 0

        return function

    def reset(context, n, u, states):
        numbers(states, ctypes.c_double, n)[:] = 0.0
        return 0

    return {
        "horizon": 3,
        "n_actions": 1,
        "dimension": 1,
        "state_bytes": 8,
        "reset": RESET(reset),
        "features": FEATURES(write(ctypes.c_double, 0.5)),
        "step": STEP(write(ctypes.c_double, 0.0)),
        "ended": ENDED(write(ctypes.c_int8, 1)),
    }


def test_signed_environments_in_machine_code_are_learned():
    env = walker.in_c()
    best = RolloutSampler(env).evaluate(Policy.fixed([1] * 6), 4000, stream=Stream(1)).value
    for algorithm in (UniformLeastSquares, LinearQ, RLSVI):
        result = algorithm(env, n_episodes=2000, checkpoints=1, rng=0).learn()
        assert result.value > best - 0.5 > 4.5, algorithm.name
        assert result.returns.min() >= -3.0 and result.returns.max() <= 7.5
        assert np.abs(result.theta).max() < 5.0  # in units


def test_what_leaves_the_range_is_refused_and_named():
    undeclared = walker.in_c(value_range=None)
    late = walker.in_c(value_range=[(-3.0, 7.5)] * 5 + [(-0.5, 0.0)])
    words = r"level {}, call \d+, chunk 0: an episode earned {} from level {} on, outside of value_range = {}: declare"
    table = [
        (undeclared, {}, words.format(0, r"\S+", 0, r"\(0, 1\)") + r" what .* such as value_range=\("),
        (walker.in_c(), {"value_range": (-3, 4)}, words.format(0, r"\S+", 0, r"\(-3, 4\)")),
        (late, {}, words.format(5, r"7\.5", 5, r"\(-0\.5, 0\)")),
    ]
    refused([(LinearQ(env, rng=0, **given).learn, ValueError, text) for env, given, text in table])
    # Where rewards are noisy, no episode would leave the range that counts where none is declared.
    with pytest.raises(ValueError, match="value_range: expected the range of the means of noisy rewards, got none"):
        LinearQ(undeclared, noise=0.1)
    for env, given in [(undeclared, {"value_range": (-3, 7.5)}), (late, {"noise": 0.1}), (walker.in_c(noise=1), {})]:
        assert LinearQ(env, n_episodes=300, rng=0, **given).learn().status == "ended"


def test_noise_widens_what_algorithms_allow_for():
    """s = 1/2 in units of the range (0, 1)."""
    env, own = chain(4, 2), {"n_episodes": 60, "rng": 0, "checkpoints": 1}
    for algorithm, given, same in [
        (RLSVI, {"sigma": 0.3}, {"sigma": math.hypot(0.3, 0.5)}),
        (LSVIUCB, {"beta": 0.2}, {"beta": 0.2 * 1.5}),
        (UCBQ, {"c": 0.1}, {"c": 0.1 * 1.5}),
        (DelayedQ, {"m": 4}, {"m": 9}),
        (OPPO, {"beta": 0.2}, {"beta": 0.2 * 1.5}),
        (LinearQ, {}, {}),
        (UniformLeastSquares, {}, {}),
    ]:
        noisy, wider = algorithm(env, noise=0.5, **given, **own), algorithm(env, **same, **own)
        mine, theirs = noisy.learn(), wider.learn()
        np.testing.assert_array_equal(mine.returns, theirs.returns)
        for one, other in zip(mine.table or mine.theta, theirs.table or theirs.theta, strict=True):
            np.testing.assert_array_equal(one, other)
        assert mine.parameters == {**theirs.parameters, **given, "value_range": [0.0, 1.0], "noise": 0.5}
    learner, plain = (BernsteinLearner(episode_of(env), "flat", 0.1, 0.01, None, noise) for noise in (0.5, 0.0))
    for one in (learner, plain):
        one.run(np.zeros(1))
    wider = [(q - p)[n == 1] for q, p, n in zip(learner.lower, plain.lower, plain.counts, strict=True)]
    assert wider[-1].min() >= -0.05 - 1e-12 and (learner.table[-1] >= plain.table[-1]).all()
    once = plain.counts[-1] == 1
    np.testing.assert_allclose(learner.table[-1][once], np.minimum(plain.table[-1][once] + 0.05, 1.0), rtol=1e-12)
    refused([
        (lambda: OCP(deep_sea(3), noise=0.1), ValueError, "noise: expected none, as ocp learns from exact equations"),
        (lambda: UCBQ(env, noise=-1.0), ValueError, "noise: expected"),
        (lambda: UCBQ(env, value_range=(1, 0)), ValueError, "value_range: expected .* low < high"),
    ])  # fmt: skip
