"""FiniteModel.rollout: the trajectories of a plain simulation, their exact distribution, and their errors."""

from __future__ import annotations

import itertools
from functools import partial

import numpy as np
import pytest
import twins
from hypothesis import given
from hypothesis import strategies as st
from properties import for_all, refuses, seeds
from scipy.sparse import csr_array

from dmq_fast.environments import FiniteMDP, combination_lock, mountain_car, river_swim
from dmq_fast.features import TileCoding
from dmq_fast.kernels import FiniteModel, Fixed, Greedy, Stream, Uniform, alias_tables, transition_edges
from dmq_fast.policy import Policy
from dmq_fast.samplers import RolloutSampler

pytestmark = pytest.mark.kernels

EPS = np.finfo(np.float64).eps


def transition_array(rng, before, n_actions, after, kind):
    """Transition rows (S, K, S'): with one next state each, or with a random support."""
    if kind == "deterministic":
        return np.eye(after)[rng.integers(after, size=(before, n_actions))]
    weights = rng.random((before, n_actions, after)) ** 3 + 1e-12
    weights *= rng.random(weights.shape) < 0.7
    weights[..., rng.integers(after)] += 1e-3
    return weights / weights.sum(axis=2, keepdims=True)


def feature_array(rng, states, d, kind):
    if kind == "one-hot":
        return np.eye(d)[rng.permutation(max(d, states))[:states] % d]
    features = rng.normal(size=(states, d))
    if kind == "sparse":
        features *= rng.permuted(np.tile(np.arange(d) < max(1, d // 4), (states, 1)), axis=1)
        features[rng.random(states) < 0.2] = 0.0
    return features / np.maximum(1.0, np.linalg.norm(features, axis=1, keepdims=True))


def random_mdp(rng, horizon, largest, n_actions, d, kind, *, shared=False, caps=False, start="random"):
    """Levels of every sort; with `shared` the levels share their array objects where they can."""
    sizes = [largest] * (horizon + 1) if shared else rng.integers(1, largest + 1, size=horizon + 1).tolist()
    terminal = bool(rng.integers(2))
    P = [
        transition_array(rng, before, n_actions, after, rng.choice(["deterministic", "stochastic"]))
        for before, after in itertools.pairwise(sizes)
    ]
    features = [feature_array(rng, size, d, kind) for size in sizes[:-1]]
    if shared:
        P, features = [P[0]] * horizon, [features[0]] * horizon
    if not terminal:
        P.pop()
    R, capped = [], []
    for level in range(horizon):
        by_edge = level < len(P) and rng.random() < 0.5
        rewards = rng.random(P[level].shape if by_edge else (sizes[level], n_actions)) / horizon
        rewards[rng.random(rewards.shape) < 0.4] = 0.0
        cap = 1 / horizon if caps and not by_edge and rng.random() < 0.7 else 0.0
        if cap and rng.random() < 0.3:
            rewards = cap * (rng.random(rewards.shape) < 0.5)  # certain after all
        R.append(rewards * (rng.random() < 0.9))
        capped.append(cap)
    first = np.eye(sizes[0])[rng.integers(sizes[0])]
    if start == "random":
        first = first + rng.random(sizes[0]) * (rng.random(sizes[0]) < 0.7)
    return FiniteMDP(P, R, features, first / first.sum(), capped)


def random_policy(rng, env, kinds="ufg"):
    """A rule of a random kind for every level; greedy weights are small integers, so that ties occur."""
    rules = []
    for _ in range(env.horizon):
        kind = rng.choice(list(kinds))
        theta = rng.integers(-2, 3, size=(env.n_actions, env.dimension))
        rules.append({"u": Uniform(), "f": Fixed(int(rng.integers(env.n_actions))), "g": Greedy(theta)}[kind])
    return Policy(rules)


def packed(env):
    return FiniteModel(env.P, env.R, env.features, env.start, env.caps)


def twin(env):
    return twins.Model(env.P, env.R, env.features, env.start, env.caps)


def subset(rng, horizon):
    return np.flatnonzero(rng.random(horizon) < 0.6).tolist()


@for_all(
    seed=seeds,
    horizon=st.integers(1, 5),
    largest=st.integers(1, 6),
    n_actions=st.integers(1, 4),
    d=st.integers(1, 8),
    kind=st.sampled_from(["one-hot", "dense", "sparse"]),
    shared=st.booleans(),
    caps=st.booleans(),
    start=st.sampled_from(["one state", "random"]),
    n=st.sampled_from([0, 1, 511, 512, 513, 1500]),
    quick=100,
    slow=500,
)
def test_kernel_follows_the_twin(seed, horizon, largest, n_actions, d, kind, shared, caps, start, n):
    rng = np.random.default_rng(seed)
    env = random_mdp(rng, horizon, largest, n_actions, d, kind, shared=shared, caps=caps, start=start)
    model, plain = packed(env), twin(env)
    policy = random_policy(rng, env)
    stream = Stream(seed, call=3)
    every = list(range(horizon))
    asked = [(every, every), (subset(rng, horizon), []), (subset(rng, horizon), subset(rng, horizon))]
    for chunk, (levels, returns_from) in enumerate(asked):
        here = stream.at(3, chunk)
        grams, moments, squares = model.rollout(policy.rules, n, here, levels, returns_from)
        expected = twins.rollout(plain, policy.rules, n, here, levels, returns_from)
        assert grams.shape == (len(levels), d, d) and moments.shape == (len(returns_from), d)
        if kind == "one-hot":
            assert (grams == expected[0]).all()
        assert np.abs(grams - expected[0]).max(initial=0.0) <= 1e-12 * n
        assert (grams == grams.transpose(0, 2, 1)).all()
        assert np.abs(moments - expected[1]).max(initial=0.0) <= 1e-12 * n
        assert squares == pytest.approx(expected[2], rel=1e-12, abs=1e-300)


class Fresh:
    """A sequence whose items are new objects every time they are looked at."""

    def __init__(self, items):
        self.items, self.looks = items, [0] * len(items)

    def __len__(self):
        return len(self.items)

    def __getitem__(self, index):
        array = self.items[index].copy()
        self.looks[index] += 1
        return array


@pytest.mark.parametrize("wrap", [Fresh, np.array, tuple])
def test_levels_are_told_apart_in_any_sequence(wrap):
    """Levels share what is one object, and the addresses of objects that come and go may repeat."""
    rng = np.random.default_rng(0)
    horizon, states, n_actions, d = 40, 4, 2, 40
    P = [transition_array(rng, states, n_actions, states, "stochastic") for _ in range(horizon - 1)]
    R = list(rng.random((horizon, states, n_actions)) / horizon)
    features = [np.eye(d)[rng.permutation(d)[:states]] for _ in range(horizon)]
    start, caps, rules = np.eye(states)[0], np.zeros(horizon), Policy.uniform(horizon).rules
    given = [wrap(items) for items in (P, R, features)]
    one, other = (
        FiniteModel(*arrays, start, caps).rollout(rules, 600, Stream(2), range(horizon), range(horizon))
        for arrays in ((P, R, features), given)
    )
    assert all((a == b).all() for a, b in zip(one, other, strict=True))
    assert wrap is not Fresh or all(set(items.looks) == {1} for items in given)


def test_model_outlives_its_arrays():
    env = random_mdp(np.random.default_rng(4), 5, 5, 3, 8, "dense")
    model, rules = packed(env), Policy.uniform(5).rules
    before = [a.tobytes() for a in model.rollout(rules, 300, Stream(1), range(5), range(5))]
    del env
    junk = [np.random.default_rng(0).random(size) for size in range(1, 400)]
    after = [a.tobytes() for a in model.rollout(rules, 300, Stream(1), range(5), range(5))]
    assert before == after and len(junk) == 399


def test_alias_table_of_tiny_probabilities():
    p = np.array([1e-300, 0.5, 5e-324, 0.5])
    threshold, alias = alias_tables(p)
    assert threshold[0] == 4e-300 and threshold[2] == 2e-323
    assert np.abs(twins.alias_probabilities(threshold, alias) - p).max() <= len(p) * EPS
    assert [a.tolist() for a in alias_tables([1.0])] == [[1.0], [0]]
    assert [a.tolist() for a in alias_tables([1e-300])] == [[1.0], [0]]
    assert [len(a) for a in alias_tables([])] == [0, 0]


@given(st.lists(st.floats(1e-12, 1.0), min_size=1, max_size=80), st.sampled_from([1, 8]))
def test_alias_tables_hold_the_distribution_and_reach_exactly_its_support(weights, power):
    """At most m subtractions from a threshold of at most m, each rounded by m eps / 2, over m columns."""
    p = np.array(weights) ** power
    p /= p.sum()
    threshold, alias = alias_tables(p)
    assert threshold.dtype == np.float64 and alias.dtype == np.int32
    assert ((threshold >= 0) & (threshold <= 1)).all() and ((0 <= alias) & (alias < len(p))).all()
    assert np.abs(twins.alias_probabilities(threshold, alias) - p).max() <= len(p) * EPS
    grid = (np.arange(4096) + 0.5) / 4096
    counts = np.bincount([twins.alias_draw(threshold, alias, u) for u in grid], minlength=len(p))
    assert np.abs(counts / 4096 - p).max() <= len(p) / 2048


def test_collect_is_the_sum_of_its_chunks():
    env = random_mdp(np.random.default_rng(8), 4, 5, 3, 5, "dense", caps=True)
    sampler, policy, stream = RolloutSampler(env), Policy.uniform(4), Stream(5, call=9)
    total = sampler.collect(policy, 40_000, stream=stream, levels=[0, 2], returns_from=[1, 3])
    sizes = list(sampler.chunks(40_000))
    assert sizes == [16_384, 16_384, 7_232]
    pieces = [
        sampler.collect_chunk(policy, size, rng=stream.at(9, chunk), levels=[0, 2], returns_from=[1, 3])
        for chunk, size in enumerate(sizes)
    ]
    summed = pieces[0] + pieces[1] + pieces[2]
    assert total.n == summed.n == 40_000
    assert total.grams.tobytes() == summed.grams.tobytes()
    for h in (1, 3):
        assert total.returns[h].moment.tobytes() == summed.returns[h].moment.tobytes()
        assert total.returns[h].square == summed.returns[h].square and total.returns[h].n == 40_000
    assert pieces[0].grams.tobytes() != pieces[1].grams.tobytes()


def test_golden_lock():
    env = combination_lock(5, 3, rng=7, p_success=0.9, final=0.7)
    grams, moments, squares = packed(env).rollout(Policy.uniform(5).rules, 2000, Stream(2024, call=1), range(5), [0, 4])
    assert [np.diag(gram).tolist() for gram in grams] == GOLDEN_COUNTS
    assert (moments.tolist(), squares.tolist()) == GOLDEN_RETURNS


def test_golden_random_start_and_rewards_by_edge():
    half = np.array([[[0.5, 0.5], [0.25, 0.75]], [[1.0, 0.0], [0.125, 0.875]]])
    rewards = [half / 4, np.array([[0.25, 0.5], [0.125, 0.0]])]
    model = FiniteModel([half], rewards, [np.eye(2)] * 2, np.array([0.375, 0.625]), np.array([0.0, 0.5]))
    grams, moments, squares = model.rollout(Policy.uniform(2).rules, 1000, Stream(5), [0, 1], [0, 1])
    assert [np.diag(gram).tolist() for gram in grams] == GOLDEN_EDGE_COUNTS
    assert (moments.tolist(), squares.tolist()) == GOLDEN_EDGE_RETURNS


GOLDEN_COUNTS = [[2000.0, 0.0], [598.0, 1402.0], [177.0, 1823.0], [45.0, 1955.0], [18.0, 1982.0]]
GOLDEN_RETURNS = ([[4.0, 0.0], [4.0, 0.0]], [4.0, 4.0])
GOLDEN_EDGE_COUNTS = [[394.0, 606.0], [482.0, 518.0]]
GOLDEN_EDGE_RETURNS = ([[128.375, 276.59375], [186.0, 30.0]], [228.6279296875, 108.0])


def test_arguments_are_named():
    """Policies, numbers and levels that no sampler takes are tested with all samplers."""
    model = packed(random_mdp(np.random.default_rng(0), 3, 3, 2, 4, "dense"))
    assert (model.horizon, model.n_actions, model.dimension) == (3, 2, 4)
    with pytest.raises(AttributeError):
        model.horizon = 1
    grams, moments, squares = model.rollout((Uniform(),) * 3, 100, Stream(0), [])
    assert (grams.shape, moments.shape, squares.shape) == ((0, 4, 4), (0, 4), (0,))
    u, call, table = Uniform(), model.rollout, []
    for bad in (None, 0, "u", Uniform, np.ones((2, 4))):
        table.append((TypeError, r"^policy: expected a Rule at level 1", call, (u, bad, u), 5, Stream(0), [0]))
    for shape in ((1, 4), (3, 4), (2, 3), (2, 5), (4, 2)):
        text = r"^policy: expected theta of shape \(2, 4\) at level 0"
        table.append((ValueError, text, call, (Greedy(np.ones(shape)), u, u), 5, Stream(0), [0]))
    table += [(ValueError, r"^n: expected a non-negative", call, (u,) * 3, -1, Stream(0), [0])]
    table += [(TypeError, "integer|index|float", call, (u,) * 3, n, Stream(0), [0]) for n in (1.5, None, "3")]
    table += [(TypeError, "stream", call, (u,) * 3, 5, bad, [0]) for bad in (None, 0, np.random.default_rng(0))]
    refuses([*table, *((TypeError, "rules", call, bad, 5, Stream(0), [0]) for bad in (None, [u] * 3))])


@pytest.mark.parametrize("d", [4, 32])
def test_overflow_names_the_level(d):
    """Dense rows for d = 4, sparse ones for d = 32."""
    phi = np.zeros((1, d))
    phi[0, :4] = 0.5
    P, R = [np.ones((1, 2, 1))] * 2, [np.zeros((1, 2))] * 3
    model = FiniteModel(P, R, [phi] * 3, np.ones(1), np.zeros(3))
    safe, large = Greedy(np.ones((2, d))), Greedy(np.full((2, d), 1e308))
    with pytest.raises(ArithmeticError, match=r"^level 1: a greedy score is not finite"):
        model.rollout((safe, large, safe), 5, Stream(0), [2])
    with pytest.raises(ArithmeticError, match=r"^level 2: a greedy score is not finite"):
        model.rollout((safe, safe, large), 5, Stream(0), [2], [0])
    # nothing is decided at the last level asked for, nor anywhere without trajectories
    assert model.rollout((safe, safe, large), 5, Stream(0), [2])[0][0, 0, 0] == 1.25
    assert not model.rollout((safe, large, safe), 0, Stream(0), [2])[0].any()


def test_a_model_refuses_arrays_that_do_not_fit():
    fits = {
        "transitions": [np.full((2, 2, 2), 0.5)], "rewards": [np.zeros((2, 2))] * 2, "features": [np.eye(2)] * 2,
        "start": np.array([1.0, 0.0]), "caps": np.zeros(2),
    }  # fmt: skip
    FiniteModel(**fits)
    refuses([
        (ValueError, name, lambda name=name, bad=bad: FiniteModel(**(fits | {name: bad})))
        for name, bad in (
            ("rewards", []), ("features", [np.eye(2)]), ("caps", np.zeros(1)), ("transitions", []),
            ("transitions", [np.zeros((2, 2, 2))]), ("transitions", [np.full((2, 2, 3), 1 / 3)]),
            ("start", np.array([0.5, 0.25, 0.25])), ("start", np.zeros(2)),
            ("rewards", [np.zeros((2, 2, 2)), np.zeros((2, 2, 2))]), ("rewards", [np.zeros((2, 2)), np.zeros((2, 3))]),
            ("features", [np.eye(2), np.zeros((2, 0))]),
        )
    ])  # fmt: skip


def test_a_model_refuses_what_are_no_arrays_of_numbers():
    fits = [[np.full((2, 2, 2), 0.5)], [np.zeros((2, 2))] * 2, [np.eye(2)] * 2, [1.0, 0.0], [0.0, 0.0]]
    FiniteModel(*fits)
    for place, name in enumerate(("transitions", "rewards", "features")):
        for value, error in ((None, TypeError), ([[1.0]], TypeError), (np.full((2, 2), 1j), TypeError)):
            with pytest.raises(error, match=rf"^{name}: level 0: expected"):
                FiniteModel(*fits[:place], [value, *fits[place][1:]], *fits[place + 1 :])
        with pytest.raises(ValueError, match=rf"^{name}: level 0: expected finite numbers, got nan"):
            FiniteModel(*fits[:place], [fits[place][0] * np.nan, *fits[place][1:]], *fits[place + 1 :])


def test_edges_are_those_of_tables():
    rows, targets, probabilities = transition_edges(np.array([[[0.0, 1.0], [0.5, 0.5]]]))
    assert (rows.tolist(), targets.tolist(), probabilities.tolist()) == ([0, 1, 1], [1, 0, 1], [1.0, 0.5, 0.5])
    for value, error in (
        (np.eye(2), ValueError), (None, TypeError), (csr_array(np.eye(2)).tocoo(), TypeError), ([["x"]], TypeError)
    ):  # fmt: skip
        with pytest.raises(error, match=r"^transitions: expected"):
            transition_edges(value)


def test_what_is_no_distribution_is_refused():
    numbers = [np.ones((1, 1)), 1.0, *([0.5, wrong] for wrong in (0.0, -1.0, np.nan, np.inf))]
    features = [np.ones((1, 1)), np.ones((2, 1))]
    negative = partial(
        FiniteModel, [np.array([[[1.5, -0.5]]])], [phi * 0.0 for phi in features], features, [1.0], [0.0, 0.0]
    )
    refuses([
        *((TypeError, "^probabilities: expected", alias_tables, bad) for bad in twins.no_numbers(np.ones(2)).values()),
        *((ValueError, "^probabilities: expected", alias_tables, bad) for bad in numbers),
        (ValueError, "^probabilities: expected a sum of 1", alias_tables, [1e308] * 4),
        (ValueError, r"^probabilities: expected positive numbers, got -0\.5", negative),
    ])  # fmt: skip


def test_chunks_of_any_number_are_computed_when_asked_for():
    chunks = RolloutSampler(combination_lock(2, rng=0)).chunks(2**63 - 1)
    assert len(chunks) == 2**49
    assert (chunks[0], chunks[-1]) == (16_384, 16_383)
    assert sum(chunks[:3]) == 3 * 16_384
    assert list(RolloutSampler(combination_lock(2, rng=0)).chunks(0)) == [0]
    with pytest.raises(ValueError, match="n: expected"):
        RolloutSampler(combination_lock(2, rng=0)).chunks(-1)


@pytest.mark.parametrize("n", [0, 1, 513, 2000])
def test_rows_are_those_of_the_matrices(n):
    for env in (river_swim(30, 12), mountain_car(horizon=6, features=TileCoding([-1.2, -0.07], [0.6, 0.07], 6, 4))):
        model, levels = RolloutSampler(env)._model, [0, 2, env.horizon - 1]
        kinds = (Uniform(), Fixed(1), Greedy(np.random.default_rng(1).normal(size=(env.n_actions, env.dimension))))
        rules = tuple(kinds[h % 3] for h in range(env.horizon))
        rows, *sums = model.rollout(rules, n, Stream(3), levels, (1, 2), True)
        grams, *their_sums = model.rollout(rules, n, Stream(3), levels, (1, 2), False)
        assert rows.n_levels == len(levels)
        for i in range(len(levels)):
            np.testing.assert_allclose(rows.gram(i), grams[i], rtol=1e-13, atol=1e-300)
        np.testing.assert_allclose(sums[0], their_sums[0], rtol=1e-13, atol=1e-15)
        np.testing.assert_array_equal(sums[1], their_sums[1])


def test_one_trajectory_is_greedy_as_many_are():
    """No actions are kept of a single one, which has no state twice."""
    lock = combination_lock(4, 3, rng=0)
    model = FiniteModel(lock.P, lock.R, lock.features, lock.start, lock.caps)
    theta = np.zeros((3, lock.features[0].shape[1]))
    theta[2] = 1.0
    for n in (1, 2):
        _, actions, _ = model.trajectories((Greedy(theta),) * 4, n, Stream(0))
        assert (actions == 2).all()
