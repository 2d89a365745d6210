"""Measure the time of an episode of each baseline, and compare LSVI-UCB and UCB-Q with other implementations.

pytest bench/test_baselines.py
"""

import time

import common
import numpy as np
import pytest

from dmq_fast.baselines import LSVIUCB, REGISTRY, UCBQ
from dmq_fast.environments import chain, deep_sea
from dmq_fast.environments.block import block_mdp, lock_bernoulli, lock_gaussian
from dmq_fast.kernels import Episode, Stream

HORIZON, LENGTH = 10, 10
BETA, RIDGE = 0.1, 1.0


def learned(env, n):
    """Return the learning seconds of a run, and its result."""
    result = LSVIUCB(env, beta=BETA, ridge=RIDGE, n_episodes=n, checkpoints=1, rng=0).learn()
    return result.seconds["learning"], result


def fastest(call):
    return min((call() for _ in range(7 if common.MEASURING else 1)), key=lambda answer: answer[0])


class NumpyLSVIUCB:
    """LSVI-UCB in vectorised NumPy, with inverses updated by the Sherman-Morrison formula."""

    def __init__(self, episode):
        self.episode = episode
        self.d = episode.dimension * episode.n_actions
        self.inverses = np.repeat(np.eye(self.d)[None] / RIDGE, episode.horizon, axis=0)
        self.rows = np.zeros((episode.horizon, 0, self.d))
        self.rewards = np.zeros((episode.horizon, 0))
        self.after = np.zeros((episode.horizon, 0, episode.n_actions, self.d))

    def pairs(self, phi):
        """Return the features of the state with every action, (K, K d)."""
        return np.kron(np.eye(self.episode.n_actions), phi)

    def scores(self, h, pairs, theta):
        """Return the upper confidence bounds of pairs (..., K d)."""
        leverage = np.einsum("...i,...i->...", pairs @ self.inverses[h], pairs)
        return np.minimum(pairs @ theta[h] + BETA * np.sqrt(leverage), 1.0)

    def play(self, number):
        """Plan, play and learn from one episode; return its sum of rewards."""
        e, theta = self.episode, np.zeros((self.episode.horizon, self.d))
        for h in reversed(range(e.horizon)):
            y = self.rewards[h]
            if h + 1 < e.horizon:
                y = y + self.scores(h + 1, self.after[h], theta).max(axis=1)
            theta[h] = self.inverses[h] @ (y @ self.rows[h])
        e.reset(number)
        seen, actions, rewards = [], [], []
        for h in range(e.horizon):
            seen.append(self.pairs(e.features()))
            actions.append(e.act(self.scores(h, seen[-1], theta)))
            rewards.append(e.step(actions[-1]))
        rows = np.array([pairs[a] for pairs, a in zip(seen, actions, strict=True)])
        for h, row in enumerate(rows):
            g = self.inverses[h] @ row
            self.inverses[h] -= np.outer(g, g) / (1.0 + row @ g)
        self.rows = np.concatenate([self.rows, rows[:, None]], axis=1)
        self.rewards = np.concatenate([self.rewards, np.array(rewards)[:, None]], axis=1)
        after = np.array([*seen[1:], np.zeros_like(seen[0])])
        self.after = np.concatenate([self.after, after[:, None]], axis=1)
        return sum(rewards)


PROBLEMS = {
    "chain, 10 states": lambda: block_mdp(chain(HORIZON, 2, length=LENGTH)),
    "every observation new, d = 13": lambda: lock_gaussian(HORIZON, 0.1, n_actions=2, rng=0),
}


@pytest.mark.parametrize("problem", PROBLEMS)
def test_lsvi_ucb_beside_numpy(benchmark, problem):
    env, n = PROBLEMS[problem](), 400 if common.MEASURING else 100
    twin = NumpyLSVIUCB(Episode(env.handle, env.features, Stream(0)))
    began = time.perf_counter()
    theirs = [twin.play(number) for number in range(n)]
    seconds = time.perf_counter() - began
    ours, result = fastest(lambda: learned(env, n))
    benchmark.pedantic(lambda: learned(env, n), rounds=3)
    # Rounding decides between equally good actions, so that episodes may differ.
    assert abs(sum(theirs) - result.returns.sum()) < 0.1 * n
    info = benchmark.extra_info
    info["numpy s"], info["ours ms"], info["ratio"] = round(seconds, 3), round(1e3 * ours, 2), round(seconds / ours, 1)
    common.demand(seconds >= 5 * ours, info)


@pytest.mark.parametrize("name", REGISTRY)
def test_episodes(benchmark, name):
    env, n = deep_sea(20, rng=0), 2000
    # No rule ends the run before its last episode.
    own = {"epsilon": None} if name == "bpi-ucbvi" else {}
    baseline = REGISTRY[name](env, n_episodes=n, checkpoints=1, rng=0, **own)

    def learning():
        return baseline.learn().seconds["learning"]

    seconds = min(learning() for _ in range(5 if common.MEASURING else 1))
    benchmark.pedantic(learning, rounds=3)
    benchmark.extra_info["us an episode of 20 steps"] = round(1e6 * seconds / n, 2)


@pytest.mark.parametrize(("horizon", "published"), [(5, 700), (10, 1300), (15, 2000), (20, 2900)])
def test_ucb_q_on_locks(benchmark, horizon, published):
    # Medians of the first multiple of 100 episodes whose mean exceeds 1/4; published: those of the authors' own code
    # (Du et al., 2019, arXiv 1901.09018), whose step size is constant.
    def median(**parameters):
        first = [
            UCBQ(lock_bernoulli(horizon, rng=seed), n_episodes=2 * published, rng=seed, checkpoints=1, **parameters)
            .learn()
            .first_above(0.25)
            for seed in range(41 if common.MEASURING else 3)
        ]
        return float(np.median([np.inf if n is None else n for n in first]))

    constant = benchmark.pedantic(lambda: median(c=0.001, alpha=0.1), rounds=1)
    info = benchmark.extra_info
    info["published"], info["constant step"], info["step of the paper"] = published, constant, median(c=0.001)
    common.demand(0.8 * published <= constant <= 1.2 * published, info)
    common.demand(info["step of the paper"] < constant, info)
