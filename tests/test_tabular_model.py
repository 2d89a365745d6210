"""Baselines that plan in a model of every level, BPI-UCBVI and OPPO: plain twins, bounds, and when a run stops."""

from __future__ import annotations

import math

import numpy as np
import pytest
from test_baselines import Lessons, episode_of, state_of
from test_rollout import random_mdp

from dmq_fast.baselines import BPIUCBVI
from dmq_fast.environments import FiniteMDP, chain, combination_lock, deep_sea
from dmq_fast.environments.block import lock_bernoulli
from dmq_fast.experiments import Budget
from dmq_fast.experiments.sweeps.algorithms import BaselineAlgorithm
from dmq_fast.kernels._learners import BernsteinLearner, PolicyOptimisationLearner

pytestmark = pytest.mark.kernels


def random_mdps():
    """Three environments, one of them with a single first state."""
    rng = np.random.default_rng(8)
    made = [random_mdp(rng, 4, 5, 3, 4, "dense", caps=True) for _ in range(6)]
    return sorted(made, key=lambda env: env.n_states[0])[:3]


class ModelTwin:
    """A list of (reward, next state) for each pair of a level, and dictionaries of it for sums as in the kernel."""

    def __init__(self, env, optimism, **shared):
        self.env, self.e, self.lessons = env, episode_of(env), Lessons(env, **shared)
        self.first = []
        h = env.horizon
        self.caps = [float(h - level) if optimism == "steps" else 1.0 for level in range(h)]
        self.q = [np.full((size, env.n_actions), cap) for size, cap in zip(env.n_states, self.caps, strict=False)]
        self.seen = {}

    def moments(self, h, s, a, ahead):
        """Mean and variance of reward + value of the next state, n > 0 visits."""
        seen = self.seen[h, s, a]
        ahead = {**dict(enumerate(ahead)), None: 0.0}
        # Equal bits break ties equally: running means, and the latest kind of transition first.
        count, mean, within = {}, {}, 0.0
        for reward, state in seen:
            count[state] = count.get(state, 0) + 1
            before = mean.get(state, 0.0)
            mean[state] = before + (reward - before) / count[state]
            within += (reward - before) * (reward - mean[state])
        total = 0.0
        for state in reversed(count):
            total += count[state] * (mean[state] + ahead[state])
        expected = total / len(seen)
        for state in reversed(count):
            within += count[state] * (mean[state] + ahead[state] - expected) ** 2
        # The same by NumPy from the list.
        targets = np.array([reward + ahead[state] for reward, state in seen])
        assert abs(targets.mean() - expected) < 1e-12
        assert abs(targets.var() - within / len(seen)) < 1e-12
        return expected, within / len(seen)

    def pairs(self):
        """Yield all pairs, from the last level to the first."""
        for h in reversed(range(self.env.horizon)):
            for s in range(self.env.n_states[h]):
                for a in range(self.env.n_actions):
                    yield h, s, a, len(self.seen.get((h, s, a), ()))

    def fit(self):
        """Q of the model itself."""
        q = [np.zeros_like(level) for level in self.q]
        for h, s, a, n in self.pairs():
            if n > 0:
                q[h][s, a], _ = self.moments(h, s, a, self.ahead(q, h))
        return q

    def ahead(self, q, h):
        """Largest values of the next level by state; none after the last."""
        return q[h + 1].max(axis=1) if h + 1 < self.env.horizon else []

    def play(self, number):
        self.e.reset(number)
        total = 0.0
        for h in range(self.env.horizon):
            s = state_of(self.e)
            if h == 0:
                self.first.append(s)
            a = self.choose(h, s)
            paid = self.e.step(a)
            for k, reward, following in self.lessons.of(h, paid, state_of(self.e)):
                self.seen.setdefault((k, s, a), []).append((reward, following))
            total += paid
        self.plan(number + 1)
        return total


class BernsteinTwin(ModelTwin):
    def __init__(self, env, optimism, c1, c2, **shared):
        super().__init__(env, optimism, **shared)
        self.c1, self.c2 = c1, c2
        self.low = [np.zeros_like(level) for level in self.q]

    def choose(self, h, s):
        return self.e.act(self.q[h][s])

    def plan(self, n_episodes):
        for h, s, a, n in self.pairs():
            if n > 0:
                mean, variance = self.moments(h, s, a, self.ahead(self.q, h))
                bonus = self.c1 * math.sqrt(variance / n) + self.c2 / n
                self.q[h][s, a] = min(self.caps[h], mean + bonus)
                mean, _ = self.moments(h, s, a, self.ahead(self.low, h))
                self.low[h][s, a] = max(0.0, mean - bonus)
        gaps = np.minimum(1.0, self.q[0].max(axis=1)) - self.low[0].max(axis=1)
        starts = gaps[self.first]
        self.gap = starts.mean()
        if len(gaps) > 1:
            self.gap = min(1.0, self.gap + self.c1 * starts.std() / math.sqrt(n_episodes) + self.c2 / n_episodes)


class PolicyOptimisationTwin(ModelTwin):
    def __init__(self, env, optimism, alpha, beta, **shared):
        super().__init__(env, optimism, **shared)
        self.alpha, self.beta = alpha, beta
        self.pi = [np.full(level.shape, 1.0 / env.n_actions) for level in self.q]
        self.sums = [np.zeros_like(level) for level in self.q]

    def choose(self, h, s):
        u = self.e.draws(1)[0]
        return min(int((np.cumsum(self.pi[h][s]) <= u).sum()), self.env.n_actions - 1)

    def plan(self, n_episodes):
        for h in reversed(range(self.env.horizon)):
            for s in range(self.env.n_states[h]):
                for a in range(self.env.n_actions):
                    if n := len(self.seen.get((h, s, a), ())):
                        ahead = (self.pi[h + 1] * self.q[h + 1]).sum(axis=1) if h + 1 < self.env.horizon else []
                        mean, _ = self.moments(h, s, a, ahead)
                        self.q[h][s, a] = min(self.caps[h], mean + self.beta / math.sqrt(n))
        # Levels are evaluated with the policy that has been played.
        for pi, sums, q in zip(self.pi, self.sums, self.q, strict=True):
            sums += q
            weights = np.exp(self.alpha * (sums - sums.max(axis=1, keepdims=True)))
            pi[:] = weights / weights.sum(axis=1, keepdims=True)


def assert_levels_agree(mine, theirs):
    assert len(mine) == len(theirs)
    for one, other in zip(mine, theirs, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize(("optimism", "c1", "c2"), [("flat", 1.0, 0.3), ("steps", 0.5, 0.1), ("steps", 0.0, 1.0)])
def test_bpi_ucbvi(optimism, c1, c2):
    gaps, n_first = [], set()
    for env in random_mdps():
        learner, twin = BernsteinLearner(episode_of(env), optimism, c1, c2, None), BernsteinTwin(env, optimism, c1, c2)
        returns = np.zeros(1)
        for number in range(50):
            assert learner.run(returns)
            assert abs(twin.play(number) - returns[0]) < 1e-12
            assert learner.gap == pytest.approx(twin.gap, rel=1e-9, abs=1e-9)
        assert_levels_agree(learner.table, twin.q)
        assert_levels_agree(learner.lower, twin.low)
        assert_levels_agree(learner.fit(), twin.fit())
        assert all(learner.counts[h][s, a] == n for h, s, a, n in twin.pairs())
        gaps.append(learner.gap)
        n_first.add(env.n_states[0] > 1)
    assert min(gaps) < 0.9
    assert n_first == {True, False}


@pytest.mark.parametrize(
    ("optimism", "alpha", "beta"), [("flat", 1.0, 0.3), ("steps", 10.0, 0.1), ("flat", 300.0, 0.0)]
)
def test_oppo(optimism, alpha, beta):
    for env in random_mdps():
        learner = PolicyOptimisationLearner(episode_of(env), optimism, alpha, beta)
        twin, returns = PolicyOptimisationTwin(env, optimism, alpha, beta), np.zeros(50)
        assert learner.run(returns)
        np.testing.assert_allclose(returns, [twin.play(number) for number in range(50)], rtol=0, atol=1e-12)
        assert_levels_agree(learner.table, twin.q)
        assert_levels_agree(learner.probabilities, twin.pi)
        assert_levels_agree(learner.fit(), twin.fit())


# Facts of the literature ----------------------------------------------------------------------------------------------


STOPPED = {
    "lock": lambda seed: combination_lock(10, 4, rng=seed),
    "deep sea": lambda seed: deep_sea(10, rng=seed),
    "lock-Bernoulli": lambda seed: lock_bernoulli(10, rng=seed),
    "lock-Bernoulli, noisy": lambda seed: lock_bernoulli(10, 0.1, rng=seed),
    "chain": lambda seed: chain(6, 2),
}


@pytest.mark.parametrize("name", STOPPED)
def test_runs_stop_within_epsilon_of_the_optimum(name):
    for seed in range(4):
        env = STOPPED[name](seed)
        result = BPIUCBVI(env, n_episodes=20_000, checkpoints=[20], rng=seed).learn()
        optimum = env.optimal_value if isinstance(env, FiniteMDP) else env.latent.optimal_value
        assert result.counts["stopped_after"] == result.n_trajectories < 20_000
        assert result.counts["gap"] <= 0.05
        assert (result.status, result.warnings) == ("finished", ())
        assert result.value >= optimum - 0.05


# When a run ends ------------------------------------------------------------------------------------------------------


def test_what_a_run_says_about_its_end():
    env = combination_lock(5, 3, rng=0)
    stopped = BPIUCBVI(env, rng=0, n_episodes=10_000).learn()
    n = stopped.counts["stopped_after"]
    assert n == stopped.n_trajectories == stopped.curve.episodes[-1]
    learner = BernsteinLearner(episode_of(env), "steps", 1.0, 0.3, 0.05)
    assert learner.run(np.zeros(10_000))
    assert (learner.stopped, learner.n_episodes) == (True, n)
    # No further episode is played.
    assert learner.run(np.zeros(5))
    assert learner.n_episodes == n
    assert_levels_agree(stopped.table, learner.lower)
    # Where the value is looked at makes no difference.
    assert BPIUCBVI(env, rng=0, n_episodes=10_000, checkpoints=1).learn().counts["stopped_after"] == n
    assert BPIUCBVI(env, rng=0, n_episodes=n).learn().status == "finished"

    cut = BPIUCBVI(env, rng=0, n_episodes=n - 1).learn()
    assert (cut.status, cut.counts["stopped_after"]) == ("max_trajectories", None)
    assert cut.warnings == (f"not stopped by its rule: the gap is {cut.counts['gap']:.3g}, epsilon = 0.05",)
    np.testing.assert_array_equal(cut.returns, stopped.returns[:-1])

    endless = BPIUCBVI(env, rng=0, n_episodes=n + 50, epsilon=None).learn()
    assert (endless.status, endless.n_trajectories, endless.warnings) == ("ended", n + 50, ())
    np.testing.assert_array_equal(endless.returns[:n], stopped.returns)


def test_sweeps_tell_a_run_that_stopped_from_one_that_was_cut():
    env = combination_lock(5, 3, rng=0)
    n = BPIUCBVI(env, rng=0, n_episodes=10_000).learn().n_trajectories
    algorithm = BaselineAlgorithm(BPIUCBVI(env, rng=0, n_episodes=10_000))
    assert algorithm.learn(Budget(max_trajectories=n)).status == "finished"
    assert algorithm.learn(Budget(max_trajectories=n - 1)).status == "max_trajectories"
    algorithm = BaselineAlgorithm(BPIUCBVI(env, rng=0, n_episodes=n - 1))
    assert algorithm.learn(Budget()).status == "max_trajectories"
    algorithm = BaselineAlgorithm(BPIUCBVI(env, rng=0, n_episodes=10_000, epsilon=None))
    assert algorithm.learn(Budget(max_trajectories=n)).status == "max_trajectories"
