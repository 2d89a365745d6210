"""Transitions of all levels against plain NumPy: sums, leverages, fits of values and returns, plans."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import strategies as st
from properties import for_all, refuses, seeds

from dmq_fast.kernels import Transitions

pytestmark = pytest.mark.kernels


class Twin:
    """What `Transitions` computes, by loops over dense rows."""

    def __init__(self, horizon, n_actions, dimension, ridge):
        self.horizon, self.n_actions, self.dimension, self.ridge = horizon, n_actions, dimension, ridge
        self.episodes = []

    def add(self, rows, actions, rewards):
        self.episodes.append((rows, actions, rewards))

    def kept(self, rows):
        """Steps whose next state is known: all of an episode that ended, else all but the last."""
        return len(rows) if len(rows) < self.horizon or self.horizon == 1 else len(rows) - 1

    @property
    def rows(self):
        return np.concatenate([np.zeros((0, self.dimension)), *(rows for rows, _, _ in self.episodes)])

    @property
    def support(self):
        return np.flatnonzero((self.rows != 0.0).any(axis=0))

    def steps(self):
        """Episode, row, action, reward and whether another row follows, of each step."""
        for e, (rows, actions, rewards) in enumerate(self.episodes):
            for i in range(self.kept(rows)):
                yield e, i, int(actions[i]), float(rewards[i])

    def gram(self, weights):
        out = np.zeros((self.n_actions, self.dimension, self.dimension))
        for e, i, a, _ in self.steps():
            row = self.episodes[e][0][i]
            out[a] += weights[e] * np.outer(row, row)
        return out[np.ix_(range(self.n_actions), self.support, self.support)]

    def leverages(self, inverse):
        rows = self.rows[:, self.support]
        return np.einsum("rb,abc,rc->ra", rows, inverse, rows)

    def fit(self, inverse, low, top, weights, returns, unknown):
        """The equations of the module, level by level."""
        T, s = len(low), len(self.support)
        theta = np.zeros((T, self.n_actions, s))
        sizes = [len(rows) for rows, _, _ in self.episodes]
        begin = np.cumsum([0, *sizes])
        values, greedy = np.zeros(begin[-1]), np.zeros(begin[-1], int)
        before = {}
        for k in range(T - 1, -1, -1):
            moment, targets = np.zeros((self.n_actions, s)), {}
            for e, i, a, reward in self.steps():
                rows, actions, _ = self.episodes[e]
                y = reward
                if k + 1 < T and i + 1 < sizes[e]:
                    following = begin[e] + i + 1
                    follows = returns and i + 1 < self.kept(rows) and actions[i + 1] == greedy[following]
                    y += before[e, i + 1] if follows else values[following]
                targets[e, i] = y
                moment[a] += weights[e] * (y - low[k]) * rows[i, self.support]
            before = targets
            theta[k] = np.einsum("abc,ac->ab", inverse, moment)
            scores = self.rows[:, self.support] @ theta[k].T
            if unknown is not None:
                scores = np.where(unknown, top[k] - low[k], scores)
            greedy = scores.argmax(axis=1)
            values = low[k] + np.clip(scores.max(axis=1), 0.0, top[k] - low[k])
        return theta, np.array([values[b] if n else 0.0 for b, n in zip(begin, sizes, strict=False)])


def sparse(rows):
    """Sizes, columns and values of dense rows."""
    places = np.nonzero(rows)
    return np.bincount(places[0], minlength=len(rows)), places[1], rows[places]


def both(rng, horizon, n_actions, dimension, episodes, ridge=0.5):
    ours, twin = (kind(horizon, n_actions, dimension, ridge) for kind in (Transitions, Twin))
    for _ in range(episodes):
        n = int(rng.integers(horizon + 1))
        rows = rng.standard_normal((n, dimension)) * (rng.random((n, dimension)) < 0.4)
        rows[np.arange(n), rng.integers(0, max(dimension - 1, 1), n)] += 0.5  # the last column is not always seen
        rows /= np.maximum(1.0, np.linalg.norm(rows, axis=1, keepdims=True))
        actions, rewards = rng.integers(0, n_actions, n), rng.standard_normal(n)
        ours.add_rows(*sparse(rows), actions, rewards)
        twin.add(rows, actions, rewards)
    return ours, twin


sizes = {
    "seed": seeds, "horizon": st.integers(1, 6), "n_actions": st.integers(1, 3), "dimension": st.integers(1, 5),
    "episodes": st.integers(0, 6),
}  # fmt: skip


@for_all(**sizes)
def test_what_was_added_is_counted(seed, horizon, n_actions, dimension, episodes):
    ours, twin = both(np.random.default_rng(seed), horizon, n_actions, dimension, episodes)
    kept = [twin.kept(rows) if len(rows) else 0 for rows, _, _ in twin.episodes]
    assert (ours.n_episodes, ours.n_rows, ours.n_steps) == (episodes, len(twin.rows), sum(kept))
    assert ours.lengths.tolist() == kept and ours.first.tolist() == np.cumsum([0, *kept]).tolist()
    assert ours.support.tolist() == twin.support.tolist()
    rewards = [reward for _, _, _, reward in twin.steps()]
    np.testing.assert_allclose(ours.sums(), np.cumsum([0.0, *rewards]), rtol=1e-14, atol=1e-14)


@for_all(**sizes, weighted=st.booleans(), returns=st.booleans(), hopeful=st.booleans(), T=st.integers(0, 8))
def test_sums_leverages_and_fits_are_the_twins(
    seed, horizon, n_actions, dimension, episodes, weighted, returns, hopeful, T
):
    rng = np.random.default_rng(seed)
    ours, twin = both(rng, horizon, n_actions, dimension, episodes)
    weights = rng.standard_exponential(episodes) if weighted else None
    ones = np.ones(episodes) if weights is None else weights
    grams = ours.gram(weights)
    np.testing.assert_allclose(grams, twin.gram(ones), rtol=1e-13, atol=1e-13)
    inverse = np.linalg.inv(grams + 0.1 * np.eye(len(ours.support)))
    np.testing.assert_allclose(ours.leverages(inverse), twin.leverages(inverse), rtol=1e-12, atol=1e-12)
    low = rng.standard_normal(T)
    top = low + rng.random(T) * 3.0
    unknown = rng.random((ours.n_rows, n_actions)) < 0.2 if hopeful else None
    theta, values = ours.fit(inverse, low, top, weights, returns, unknown)
    expected = twin.fit(inverse, low, top, ones, returns, unknown)
    # The inverse is at most 1 / 0.1 long, a level multiplies by at most 10 times the number of steps.
    np.testing.assert_allclose(theta, expected[0], rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(values, expected[1] if T else np.zeros(episodes), rtol=1e-9, atol=1e-9)


def chain(horizon, n, actions, rewards, ridge=1.0):
    """One episode of n levels, each with a feature of its own."""
    out = Transitions(horizon, 2, 8, ridge)
    out.add_rows(*sparse(np.eye(8)[:n]), np.array(actions), np.array(rewards))
    return out


def exact_fit(transitions, levels, **how):
    """Fits of levels with bounds of -10 and 10 and next to no ridge."""
    inverse = np.linalg.inv(transitions.gram() + 1e-12 * np.eye(len(transitions.support)))
    return transitions.fit(inverse, np.full(levels, -10.0), np.full(levels, 10.0), **how)


def test_an_end_is_worth_nothing_and_the_last_step_of_a_whole_episode_is_left_out():
    ended = chain(4, 3, [0, 0, 0], [1.0, 2.0, 4.0])
    theta, values = exact_fit(ended, 4)
    assert ended.n_steps == 3
    # Of a chain that was walked once the other action is unknown and stays at the lower end.
    np.testing.assert_allclose(theta[0, 0] - 10.0, [7.0, 6.0, 4.0], rtol=1e-9)
    np.testing.assert_allclose(values, [7.0], rtol=1e-9)
    np.testing.assert_allclose(theta[3, 0] - 10.0, [1.0, 2.0, 4.0], rtol=1e-9)  # one level left: rewards alone
    whole = chain(3, 3, [0, 0, 0], [1.0, 2.0, 4.0])
    assert whole.n_steps == 2 and whole.n_rows == 3 and whole.sums().tolist() == [0.0, 1.0, 3.0]
    single = chain(1, 1, [1], [4.0])
    assert single.n_steps == 1
    np.testing.assert_allclose(exact_fit(single, 1)[1], [4.0], rtol=1e-9)


def test_returns_follow_the_episode_as_long_as_it_is_greedy():
    """Two episodes disagree about the value of the second state: the fit has the mean, each return its own."""
    transitions = Transitions(4, 1, 3, 1.0)
    for i, reward in ((0, 0.0), (1, 4.0)):
        rows = np.zeros((2, 3))
        rows[0, i], rows[1, 2] = 1.0, 1.0
        transitions.add_rows(*sparse(rows), np.zeros(2, int), np.array([0.0, reward]))
    _, fitted = exact_fit(transitions, 2)
    _, followed = exact_fit(transitions, 2, returns=True)
    np.testing.assert_allclose(fitted, [2.0, 2.0], rtol=1e-9)
    np.testing.assert_allclose(followed, [0.0, 4.0], rtol=1e-9, atol=1e-9)


@for_all(seed=seeds, horizon=st.integers(2, 5), n_actions=st.integers(1, 3), dimension=st.integers(1, 5))
def test_choices_are_those_of_the_plan_with_leverages_that_follow_the_episode(seed, horizon, n_actions, dimension):
    rng = np.random.default_rng(seed)
    ours, _ = both(rng, horizon, n_actions, dimension, 3, ridge=0.5)
    s, support = len(ours.support), ours.support
    phi = rng.standard_normal(dimension)
    assert ours.choose(0, phi, 0.0, 0.99) == n_actions - 1  # without a plan the uniform alone chooses
    grams = ours.gram()
    omega, low = rng.random((horizon, n_actions, s)), rng.standard_normal(horizon)
    top = low + rng.random(horizon)
    ours.plan(omega, np.linalg.inv(grams + 0.5 * np.eye(s)), low, top)
    for _ in range(2):
        live = np.stack([0.5 * np.eye(dimension)] * n_actions)
        live[np.ix_(range(n_actions), support, support)] += grams
        for level in range(horizon):
            phi = rng.standard_normal(dimension) * 0.7
            leverages = np.array([phi @ np.linalg.solve(V, phi) for V in live])
            scores = np.clip(omega[level] @ phi[support], 0.0, top[level] - low[level])
            scores[leverages >= 1.0] = top[level] - low[level]
            best = np.flatnonzero(scores >= scores.max() - 1e-9)
            u = float(rng.random())
            chosen = ours.choose(level, phi, 0.0, u)
            assert chosen == best[int(u * len(best))]
            live[chosen] += np.outer(phi, phi)
        ours.refresh()  # the second episode finds the leverages of the plan again


def test_visits_of_the_episode_use_up_what_is_unknown():
    ours = Transitions(9, 2, 1, 0.4)
    ours.plan(np.zeros((9, 2, 0)), np.zeros((2, 0, 0)), np.zeros(9), np.ones(9))
    # Each action is unknown for one visit: 1 / 0.4 >= 1 > 1 / 1.4.
    assert [ours.choose(h, [1.0], 0.0, 0.0) for h in range(4)] == [0, 1, 0, 0]
    assert ours.choose(4, [1.0], 0.0, 0.6) == 1  # equal scores: the uniform
    ours.refresh()
    assert [ours.choose(h, [1.0], 0.0, 0.9) for h in range(3)] == [1, 0, 1]


def test_rows_that_do_not_fit_are_named_and_change_nothing():
    ours = Transitions(2, 2, 3, 1.0)
    good = {"sizes": [1, 2], "columns": [0, 1, 2], "values": [1.0, 0.5, 0.5], "actions": [0, 1], "rewards": [0.0, 1.0]}
    ours.add_rows(*good.values())
    before = ours.gram().tobytes()
    bad = {
        "sizes": [[1, 3], [0, 3], [1, 1, 1], [1.0, 2.0], [[1, 2]], [-1, 4]],
        "columns": [[0, 1], [0, 1, 3], [-1, 1, 2], [0.0, 1.0, 2.0], [2**40, 1, 2]],
        "values": [[1.0, 0.5], [1.0, np.nan, 0.5], [1.0, np.inf, 0.5], ["a"] * 3],
        "actions": [[0], [0, 2], [-1, 0], [0.0, 1.0]],
        "rewards": [[0.0], [0.0, np.nan], [[0.0, 1.0]]],
    }
    for name, values in bad.items():
        for value in values:
            with pytest.raises((TypeError, ValueError), match=f"^({name}|columns|sizes): expected"):
                ours.add_rows(*(good | {name: value}).values())
    assert ours.gram().tobytes() == before and (ours.n_episodes, ours.n_rows, ours.n_steps) == (1, 2, 1)
    inverse = np.stack([np.eye(3)] * 2)
    refuses(
        [
            (ValueError, "^ridge: expected a positive", Transitions, 2, 2, 3, 0.0),
            (ValueError, "^horizon: expected an integer in", Transitions, 0, 2, 3, 1.0),
            (ValueError, "^weights: expected shape", ours.gram, [1.0, 2.0]),
            (ValueError, "^inverse: expected shape", ours.leverages, np.eye(3)),
            (ValueError, "^top: expected shape", ours.fit, inverse, [0.0], [1.0, 1.0]),
            (ValueError, "^unknown: expected bools", ours.fit, inverse, [0.0], [1.0], None, False, [[True]]),
            (ValueError, "^omega: expected shape", ours.plan, np.zeros((2, 2, 2)), inverse, [0.0] * 2, [1.0] * 2),
            (ValueError, "^level: expected an integer in", ours.choose, 2, [0.0] * 3, 0.0, 0.5),
            (ValueError, "^uniform: expected a number in", ours.choose, 0, [0.0] * 3, 0.0, 1.0),
        ]
    )
