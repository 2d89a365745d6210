"""Rollout, compiled rollout, an environment in NumPy, flow and exact: ways to the same moments."""

from __future__ import annotations

import itertools
import math
import pickle
from functools import partial

import numpy as np
import pytest
import scipy.stats
from flat import flat
from properties import for_all, seeds
from refusals import refused
from test_batch import Table
from test_rollout import random_mdp, random_policy

import dmq_fast as dmq
from dmq_fast.baselines import TablePolicy
from dmq_fast.environments import (
    FiniteMDP,
    chain,
    decoy_lock,
    deep_sea,
    linear_q,
)
from dmq_fast.environments.block import block_mdp
from dmq_fast.kernels import Fixed, Greedy, Stream, Uniform
from dmq_fast.policy import Policy
from dmq_fast.samplers import BatchSampler, ExactSampler, FlowSampler, RolloutSampler, Sampler
from dmq_fast.samplers._binomial import binomial

FAMILY_LEVEL = 1e-3  # probability that correct samplers fail any of the statistical tests of one function


def compiled(env):
    """The same MDP, its features being what a compiled environment observes."""
    return RolloutSampler(block_mdp(env, noise="none"))


SAMPLERS = {
    "rollout": RolloutSampler,
    "compiled rollout": compiled,
    "in NumPy": lambda env: BatchSampler(Table(env)),
    "flow": FlowSampler,
    "exact": ExactSampler,
}
DRAWN = {name: make for name, make in SAMPLERS.items() if name != "exact"}

slow = pytest.mark.slow
every_sampler = pytest.mark.parametrize("make", SAMPLERS.values(), ids=SAMPLERS)


def tabular(env):
    """The same MDP with one-hot features, under which the diagonals of second moments are state counts."""
    width = max(env.n_states)
    return FiniteMDP(env.P, env.R, [np.eye(size, width) for size in env.n_states], env.start, env.caps)


def everything():
    """Bernoulli and edge rewards, a start distribution, a terminal layer."""
    rng = np.random.default_rng(11)
    P = [rng.dirichlet(np.ones(4), size=(4, 2)) for _ in range(4)]
    P[1] = np.eye(4)[rng.integers(4, size=(4, 2))]
    R = [0.25 * rng.integers(3, size=(4, 2)) / 2, rng.random((4, 2)) / 4, *(rng.integers(3, size=(2, 4, 2, 4)) / 8)]
    return FiniteMDP(P, R, [np.eye(4)] * 4, [0.5, 0.25, 0.25, 0.0], [0.0, 0.25, 0.0, 0.0])


def signed():
    """The same with rewards of both signs and any size, but for Bernoulli's."""
    env = everything()
    R = [20.0 * rewards - 3.0 * (cap == 0.0) for rewards, cap in zip(env.R, env.caps, strict=True)]
    return FiniteMDP(env.P, R, env.features, env.start, 20.0 * env.caps)


ENVIRONMENTS = {
    "deep sea": lambda: deep_sea(6, stochastic=True),
    "everything": everything,
    "signed": signed,
}


def half_greedy(env):
    """Optimal and uniform levels in turn, so that good and bad states are seen. For tabular features."""
    rules = []
    for h, q in enumerate(env.optimal_q):
        theta = np.zeros((env.n_actions, env.dimension))
        theta[:, : len(q)] = q.T
        rules.append(Uniform() if h % 2 else Greedy(theta))
    return Policy(rules)


def power_means(env, policy, h, most=4):
    """E[y^k | s_h] for k = 0 .. most, (most + 1, S_h), y the return to go from h; state by state."""
    if h == env.horizon:
        size = env.P[h - 1].shape[2] if len(env.P) == env.horizon else 1
        return np.eye(most + 1)[0][:, None] * np.ones(size)
    ahead = power_means(env, policy, h + 1, most)
    probabilities = policy.probabilities(h, env.features[h], env.n_actions)
    out = np.zeros((most + 1, env.n_states[h]))
    for s, a in itertools.product(range(env.n_states[h]), range(env.n_actions)):
        row = env.P[h][s, a] if h < len(env.P) else np.ones(1)
        for following in np.flatnonzero(row):
            for reward, share in rewards_of(env, h, s, a, following):
                for k in range(most + 1):
                    shifted = sum(math.comb(k, j) * reward ** (k - j) * ahead[j, following] for j in range(k + 1))
                    out[k, s] += probabilities[s, a] * row[following] * share * shifted
    return out


def rewards_of(env, h, s, a, following):
    """Rewards of a step with their probabilities."""
    reward, cap = env.R[h][s, a], env.caps[h]
    if env.R[h].ndim == 3:
        return [(reward[following], 1.0)]
    return [(cap, reward / cap), (0.0, 1 - reward / cap)] if cap > 0 else [(reward, 1.0)]


def refuse_small(p_values, level=FAMILY_LEVEL):
    """Bonferroni: none of the p-values is below level / number of tests."""
    smallest = min(p_values)
    assert smallest >= level / len(p_values), f"smallest of {len(p_values)} p-values: {smallest:.3g}"


def p_of_z(difference, variance):
    """Two-sided p-values; what does not vary must not differ."""
    difference, variance = np.atleast_1d(difference), np.atleast_1d(variance)
    scale = np.abs(difference).max(initial=0.0) + 1.0
    fixed = variance <= 1e-12 * variance.max(initial=1e-300)
    assert np.abs(difference[fixed]).max(initial=0.0) <= 1e-6 * scale
    return (2 * scipy.stats.norm.sf(np.abs(difference[~fixed]) / np.sqrt(variance[~fixed]))).tolist()


@pytest.mark.parametrize("name", ENVIRONMENTS)
def test_samplers_agree_at_a_million_trajectories(name):
    env = tabular(ENVIRONMENTS[name]())
    policy, p_values = half_greedy(env), []
    occupancy = env.occupancy(policy)
    levels = range(env.horizon)
    for kind, h in itertools.product(SAMPLERS, (0, env.horizon // 2)):
        sampler, exact = SAMPLERS[kind](env), kind == "exact"
        n = 10**5 if kind == "in NumPy" else 10**6
        moments = sampler.collect(policy, n, stream=Stream(1, call=h), levels=levels, returns_from=(h,))
        assert moments.n == moments.returns[h].n == n
        means = power_means(env, policy, h)
        expected = n * occupancy[h] * means[1]
        square = n * occupancy[h] @ means[2]
        found = moments.returns[h].moment[: len(expected)]
        if exact:
            for level, gram in moments.gram.items():
                visits = np.zeros(env.dimension)
                visits[: env.n_states[level]] = n * occupancy[level]
                np.testing.assert_allclose(gram, np.diag(visits), rtol=1e-12, atol=1e-9)
            np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-9)
            np.testing.assert_allclose(moments.returns[h].square, square, rtol=1e-12, atol=1e-12)
            continue
        for level, gram in moments.gram.items():
            counts, rates = np.diag(gram)[: env.n_states[level]], occupancy[level]
            assert (gram == np.diag(np.diag(gram))).all() and counts.sum() == n
            assert not counts[rates == 0.0].any()
            # Rare states together, so that the chi-square approximation holds.
            rare = n * rates < 20
            counts, rates = (np.append(x[~rare], x[rare].sum()) for x in (counts, rates))
            counts, rates = counts[rates > 0], rates[rates > 0]
            if len(counts) > 1 and n * rates.min() > 5:
                p_values.append(scipy.stats.chisquare(counts, n * rates / rates.sum()).pvalue)
        variance = n * (occupancy[h] * means[2] - (occupancy[h] * means[1]) ** 2)
        assert not found[means[2] * occupancy[h] == 0.0].any()
        # As many trajectories as weigh in the sum, for the normal approximation.
        weighing = n * occupancy[h] * means[2] ** 2 > 100 * means[4]
        p_values += p_of_z((found - expected)[weighing], variance[weighing])
        assert n * (occupancy[h] @ means[2]) ** 2 > 100 * occupancy[h] @ means[4] > 0.0
        p_values += p_of_z(moments.returns[h].square - square, n * (occupancy[h] @ means[4]) - square**2 / n)
    refuse_small(p_values, FAMILY_LEVEL / len(ENVIRONMENTS))


@for_all(seed=seeds, quick=8, slow=200)
def test_exact_moments_of_random_mdps(seed):
    rng = np.random.default_rng(seed)
    kind = str(rng.choice(["one-hot", "dense", "sparse"]))
    env = random_mdp(rng, 4, 5, 3, 8, kind, caps=True)
    if seed % 2:
        R = [rewards - (cap == 0.0) * rng.random(rewards.shape) for rewards, cap in zip(env.R, env.caps, strict=True)]
        env = FiniteMDP(env.P, R, env.features, env.start, env.caps)
    policy, n = random_policy(rng, env), 7
    moments = ExactSampler(env).collect(policy, n, stream=Stream(0), levels=range(4), returns_from=range(4))
    for h, rates in enumerate(env.occupancy(policy)):
        means, phi = power_means(env, policy, h, 2), env.features[h]
        np.testing.assert_allclose(moments.gram[h], n * (phi.T * rates) @ phi, atol=1e-13)
        np.testing.assert_allclose(moments.returns[h].moment, n * (rates * means[1]) @ phi, atol=1e-13)
        assert moments.returns[h].square == pytest.approx(n * rates @ means[2], rel=1e-12, abs=1e-15)
        assert moments.returns[h].n == n


def trajectories(env, policy, h=0, state=None):
    """Every trajectory from level h on: probability, states, rewards."""
    if h == env.horizon:
        yield 1.0, (), ()
        return
    if state is None:
        for first in np.flatnonzero(env.start):
            for share, states, rewards in trajectories(env, policy, 0, first):
                yield env.start[first] * share, states, rewards
        return
    chosen = policy.probabilities(h, env.features[h], env.n_actions)[state]
    for a in np.flatnonzero(chosen):
        row = env.P[h][state, a] if h < len(env.P) else np.ones(1)
        for following in np.flatnonzero(row):
            for reward, share in rewards_of(env, h, state, a, following):
                if share > 0:
                    for later, states, rewards in trajectories(env, policy, h + 1, following):
                        yield chosen[a] * row[following] * share * later, (int(state), *states), (reward, *rewards)


def law_of_one(env, policy, returns_from):
    """Support (m, k) and probabilities of what one trajectory adds: visits by level, y phi and y^2 by return."""
    vectors, shares = [], []
    for share, states, rewards in trajectories(env, policy):
        parts = [np.eye(env.dimension)[state] for state in states]
        for h in returns_from:
            y = sum(rewards[h:])
            parts += [y * np.eye(env.dimension)[states[h]], [y * y]]
        vectors.append(np.concatenate(parts))
        shares.append(share)
    return np.array(vectors), np.array(shares)


def statistics(env, moments):
    parts = [np.diag(gram) for gram in moments.grams]
    for returns in moments.returns.values():
        parts += [returns.moment, [returns.square]]
    return np.concatenate(parts)


def small():
    """Three levels, few enough trajectories to list them; Bernoulli and edge rewards; feasible for every n."""
    rng = np.random.default_rng(5)
    P = [rng.dirichlet(np.ones(3), size=(3, 2)) for _ in range(2)]
    P[1][:, 0] = np.eye(3)[[1, 1, 0]]
    R = [rng.integers(2, size=(3, 2)) / 4, rng.integers(3, size=(3, 2, 3)) / 8, rng.random((3, 2)) / 2]
    env = FiniteMDP(P, R, [np.eye(3)] * 3, [0.3, 0.7, 0.0], [0.0, 0.0, 0.5])
    return env, Policy([Uniform(), Greedy(rng.normal(size=(2, 3))), Uniform()])


@pytest.mark.parametrize("draws", [1_000, pytest.param(8_000, marks=slow)])
@pytest.mark.parametrize("name", DRAWN)
def test_one_trajectory_has_the_law_of_trajectories(name, draws):
    env, policy = small()
    sampler = DRAWN[name](env)
    vectors, shares = law_of_one(env, policy, (1,))
    vectors, index = np.unique(vectors.round(9), axis=0, return_inverse=True)
    shares = np.bincount(index, weights=shares)
    known = {vector.tobytes(): i for i, vector in enumerate(vectors + 0.0)}
    counts = np.zeros(len(vectors))
    for call in range(draws):
        moments = sampler.collect(policy, 1, stream=Stream(3, call=call), levels=range(3), returns_from=(1,))
        counts[known[(statistics(env, moments).round(9) + 0.0).tobytes()]] += 1
    rare = draws * shares < 8
    observed, expected = (np.append(x[~rare], x[rare].sum() + 1e-12) for x in (counts, draws * shares))
    refuse_small([scipy.stats.chisquare(observed, expected).pvalue], FAMILY_LEVEL / len(DRAWN))


@pytest.mark.parametrize("n", [10**3, *(pytest.param(n, marks=slow) for n in (30, 10**10, 2**63 - 1))])
def test_flow_has_the_joint_law_across_levels(n):
    """Means and all covariances of visits at all levels and y phi, against the list of all trajectories."""
    (env, policy), returns_from = small(), (0, 2)
    sampler, draws = FlowSampler(env), 600 if n == 1000 else 1500
    vectors, shares = law_of_one(env, policy, returns_from)
    mean = shares @ vectors
    centred = vectors - mean
    covariance = (centred.T * shares) @ centred
    samples = np.array(
        [
            statistics(env, sampler.collect(policy, n, stream=Stream(4, call=call), levels=range(3),
                                            returns_from=returns_from))
            for call in range(draws)
        ]
    )  # fmt: skip
    deviations = (samples - float(n) * mean) / np.sqrt(float(n))
    # The sum of y^2 has not its law, but its mean; and it varies less.
    squares = [9 + 4 * i + 3 for i in range(len(returns_from))]
    assert (deviations[:, squares].var(axis=0) <= 1.1 * np.diag(covariance)[squares]).all()
    spread = deviations[:, squares].var(axis=0) / draws
    p_values = p_of_z(deviations[:, squares].mean(axis=0), spread)
    kept = np.setdiff1d(np.arange(len(mean)), squares)
    deviations, covariance = deviations[:, kept], covariance[np.ix_(kept, kept)]
    p_values += p_of_z(deviations.mean(axis=0), np.diag(covariance) / draws)
    products = np.einsum("ti,tj->tij", deviations, deviations)
    upper = np.triu_indices(len(covariance))
    excess = (products.mean(axis=0) - covariance)[upper]
    spread = products.var(axis=0)[upper] / draws
    # The normal approximation needs products that are not mostly zero.
    often = (np.abs(products) > 1e-9).mean(axis=0)[upper] > 0.2
    p_values += p_of_z(excess[often], spread[often])
    refuse_small(p_values, FAMILY_LEVEL / 4)


BINOMIALS = [
    (10, 0.3), (2**28 + 1, 1e-7), (2**28 + 1, 0.0161), (10**12, 0.25), (10**18, 1e-16), (2**63 - 1, 0.5), (0, 0.5),
    (2**28, 1e-7), (2**28 + 1, 2.0**-7), (2**28 + 1, 0.0159), (2**30, 0.5), (10**10, 2e-4), (10**12, 1e-11),
    (10**18, 0.0), (10**18, 1e-18), (10**18, 1e-17), (10**18, 1e-12), (10**18, 0.3), (2**63 - 1, 1e-15),
]  # fmt: skip
"""Numbers and probabilities of all sizes; at 2^28 + 1 the variance is just below and above 2^22."""


@pytest.mark.parametrize(("n", "p"), [*BINOMIALS[:7], *(pytest.param(*case, marks=slow) for case in BINOMIALS[7:])])
def test_binomial(n, p):
    """Counts in cells of equal probability; mean, variance and skewness where they can be told."""
    draws = 200_000
    x = binomial(np.random.default_rng(7), np.full(draws, n), np.full(draws, p))
    assert x.dtype == np.int64
    if n * p == 0.0:
        assert not x.any()
        return
    # Beyond 10^12 trials the binomial is, as far as any test here can tell, Poisson or normal.
    mean, variance = n * p, n * p * (1 - p)
    law = scipy.stats.binom(n, p) if n <= 10**12 else scipy.stats.poisson(mean)
    if n > 10**12 and mean > 1e8:
        law = scipy.stats.norm(mean, np.sqrt(variance))
    edges = np.unique(law.ppf(np.linspace(0, 1, 42)[1:-1]))
    counts = np.bincount(np.searchsorted(edges, x), minlength=len(edges) + 1)
    expected = draws * np.diff(np.concatenate([[0.0], law.cdf(edges), [1.0]]))
    kept = expected > 5
    z = (x - mean) / np.sqrt(variance)
    kurtosis = 2 + (1 - 6 * p * (1 - p)) / variance
    p_values = [
        scipy.stats.chisquare(counts[kept], expected[kept] * counts[kept].sum() / expected[kept].sum()).pvalue,
        *p_of_z(z.mean(), 1 / draws),
        *p_of_z((z * z).mean() - 1, kurtosis / draws),
    ]
    refuse_small(p_values, FAMILY_LEVEL / 19)


def test_small_probabilities_keep_their_accuracy():
    """Two rare outcomes beside a common one are as likely as they say, to the last bit."""
    rare = 2.0**-50
    P = np.array([[[1 - 4 * rare, rare, 3 * rare]]])
    env = FiniteMDP([P], [np.zeros((1, 1)), np.zeros((3, 1))], [np.eye(1, 3), np.eye(3)])
    n = 2**62
    counts = np.mean(
        [
            np.diag(FlowSampler(env).collect(Policy.uniform(2), n, stream=Stream(0, call=c), levels=[1]).grams[0])
            for c in range(500)
        ],
        axis=0,
    )
    expected = n * rare * np.array([1, 3])
    assert (np.abs(counts[1:] - expected) <= 4 * np.sqrt(expected / 500)).all()


@every_sampler
def test_a_deterministic_environment_leaves_nothing_to_chance(make):
    env = decoy_lock(6)
    policy = Policy.fixed([1, 1, 0, 0, 0, 0])
    moments = make(env).collect(policy, 1000, stream=Stream(0), levels=range(6), returns_from=(0, 1))
    y = 0.1 * (1 - 2 / 6) + 0.3
    for h, gram in moments.gram.items():
        phi = env.features[h][0 if h <= 2 else 1]
        np.testing.assert_allclose(gram, 1000 * np.outer(phi, phi), rtol=1e-13)
    np.testing.assert_allclose(moments.returns[0].moment, 1000 * y * env.features[0][0], rtol=1e-12)
    assert moments.returns[1].square == pytest.approx(1000 * y * y)


@every_sampler
def test_samplers_keep_the_protocol(make):
    env = linear_q(horizon=3, n_states=5, rng=0)
    sampler, policy = make(env), Policy.uniform(3)
    assert isinstance(sampler, Sampler)
    assert (sampler.horizon, sampler.n_actions, sampler.dimension) == (3, env.n_actions, env.dimension)
    arguments = {"stream": Stream(2, call=5), "levels": [0, 2], "returns_from": [1]}
    first = sampler.collect(policy, 100, **arguments)
    chunk = sampler.collect_chunk(policy, 100, rng=Stream(2, call=5), levels=[0, 2], returns_from=[1])
    for other in (sampler.collect(policy, 100, **arguments), pickle.loads(pickle.dumps(sampler)).collect(
        policy, 100, **arguments), make(env).collect(policy, 100, **arguments), chunk):  # fmt: skip
        assert first.grams.tobytes() == other.grams.tobytes()
        assert first.returns[1].moment.tobytes() == other.returns[1].moment.tobytes()
        assert first.returns[1].square == other.returns[1].square
    assert (first.grams == first.grams.transpose(0, 2, 1)).all()
    different = sampler.collect(policy, 100, **(arguments | {"stream": Stream(2, call=6)}))
    assert (first.grams.tobytes() == different.grams.tobytes()) == (make is ExactSampler)
    assert list(sampler.chunks(100)) == [100]


@every_sampler
def test_nothing_drawn_and_nothing_asked_for(make):
    env = everything()
    moments = make(env).collect(half_greedy(env), 0, stream=Stream(0), levels=[1, 3], returns_from=[2])
    assert moments.n == moments.returns[2].n == 0
    assert moments.grams.shape == (2, 4, 4) and not moments.grams.any()
    assert not moments.returns[2].moment.any() and moments.returns[2].square == 0.0
    moments = make(env).collect(half_greedy(env), 10, stream=Stream(0), levels=[])
    assert moments.n == 10 and moments.grams.shape == (0, 4, 4) and moments.returns == {}


def test_the_largest_number():
    env = everything()
    policy = half_greedy(env)
    sampler = FlowSampler(env)
    assert all(list(make(env).chunks(2**63 - 1)) == [2**63 - 1] for make in (FlowSampler, ExactSampler))
    for n in (2**63 - 1, np.int64(2**63 - 1)):
        moments = sampler.collect(policy, n, stream=Stream(0), levels=range(4), returns_from=(0,))
        for h, rates in enumerate(env.occupancy(policy)):
            np.testing.assert_allclose(np.diag(moments.gram[h]), float(n) * rates, rtol=1e-7)
    with pytest.raises(ValueError, match=r"^n: expected an integer < 2\^63, got 9223372036854775808; ExactSampler"):
        sampler.collect(policy, 2**63, stream=Stream(0), levels=[0])
    exact = ExactSampler(env).collect(policy, 10**30, stream=Stream(0), levels=[1], returns_from=(0,))
    np.testing.assert_allclose(np.trace(exact.grams[0]), 1e30)


BAD_CALLS = [
    ({"n": -1}, ValueError, r"^n: expected (a non-negative number|an integer >= 0)"),
    *(({"n": n}, TypeError, "") for n in (1.5, None)),
    ({"policy": Policy.uniform(3)}, ValueError, r"^policy: expected 4 rules, one a level, got 3"),
    ({"policy": Policy.fixed([0, 0, 2, 0])}, ValueError, r"^policy: level 2 takes action 2, expected < 2"),
    (
        {"policy": Policy.uniform(4).replace(1, Greedy(np.ones((3, 4))))}, ValueError,
        r"^policy: expected theta of shape \(2, 4\) at level 1",
    ),
    *(
        ({name: levels}, ValueError, rf"^{name}: expected ascending levels in \[0, 4\)")
        for name in ("levels", "returns_from")
        for levels in ([1, 0], [0, 0], [-1], [4], [2**40], [2**70])
    ),
    *(
        ({name: levels}, TypeError, rf"^{name}: expected a sequence of integers, got ")
        for name in ("levels", "returns_from")
        for levels in (None, 0, [0.5], ["0"], [None])
    ),
]  # fmt: skip


@every_sampler
def test_every_sampler_refuses_alike(make):
    sampler, table = make(everything()), []
    for (wrong, error, words), some in itertools.product(BAD_CALLS, (0, 5)):
        given = {"policy": Policy.uniform(4), "n": some, "rng": Stream(0), "levels": [0], "returns_from": []} | wrong
        table.append((lambda given=given: sampler.collect_chunk(**given), error, words))
    refused(table)


@every_sampler
def test_what_is_of_another_type_is_refused(make):
    sampler, uniform, stream, table = make(everything()), Policy.uniform(4), Stream(0), []
    for n in (True, 2.0, np.float64(3), "7", None, np.array([4])):
        call = partial(sampler.collect, uniform, n, stream=stream, levels=[0])
        table.append((call, TypeError, r"^n: expected an integer, got "))
    for policy in (None, [0, 1, 0, 1], Policy, Policy.uniform(4).rules, TablePolicy([[0]] * 4)):
        words = rf"^policy: expected a Policy, got {type(policy).__name__}$"
        table.append((partial(sampler.collect, policy, 5, stream=stream, levels=[0]), TypeError, words))
        table.append((partial(sampler.collect_chunk, policy, 0, rng=stream, levels=[0]), TypeError, words))
        table.append((partial(sampler.evaluate, policy, 5, stream=stream), TypeError, words))
    for other in (None, 0, np.random.default_rng(0)):
        words = f": expected a Stream, got {type(other).__name__}"
        table.append((partial(sampler.collect, uniform, 5, stream=other, levels=[0]), TypeError, "^stream" + words))
        table.append((partial(sampler.collect_chunk, uniform, 5, rng=other, levels=[0]), TypeError, "^rng" + words))
    # A rollout takes compiled environments too.
    for env in {ExactSampler: (compiled(everything()).env, None), RolloutSampler: (None,)}.get(make, ()):
        words = f"^env: expected a FiniteMDP.* got {type(env).__name__}$"
        table.append((partial(make, env), TypeError, words))
    refused(table)


@every_sampler
@pytest.mark.parametrize("returns_from", [(), (0,)])
def test_overflow_names_the_level_if_anyone_is_there(make, returns_from):
    """One state overflows; only whoever visits it is told."""
    P = [np.eye(2)[[[0, 1], [1, 1]]]] * 2
    env = FiniteMDP(P, [np.zeros((2, 2))] * 3, [np.eye(2), np.array([[1.0, 0.0], [0.7, 0.7]]), np.eye(2)])
    large = Greedy([[1.0, 1.0], [1.7e308, 1.7e308]])
    sampler = make(env)
    safe = Policy([Fixed(0), large, Fixed(0)])
    assert sampler.collect(safe, 5, stream=Stream(0), levels=[2], returns_from=returns_from).n == 5
    with pytest.raises(ArithmeticError, match=r"^level 1(, call 0, chunk 0)?: a greedy score is not finite"):
        sampler.collect(Policy([Fixed(1), large, Fixed(0)]), 5, stream=Stream(0), levels=[2], returns_from=returns_from)


def test_too_many_groups_are_refused_with_a_way_out(monkeypatch):
    env, arguments = linear_q(horizon=6, n_states=12, rng=0), {"stream": Stream(0), "levels": range(6)}
    moments, exact = (
        kind(env).collect(Policy.uniform(6), 10**18, returns_from=(0,), **arguments)
        for kind in (FlowSampler, ExactSampler)
    )
    assert moments.returns[0].square == pytest.approx(exact.returns[0].square, rel=1e-6)
    np.testing.assert_allclose(moments.grams, exact.grams, rtol=1e-6, atol=1e11)
    for limit in ("MOST_GROUPS", "MOST_CELLS"):
        with monkeypatch.context() as patch:
            patch.setattr(f"dmq_fast.samplers.flow.{limit}", 100)
            with pytest.raises(ValueError, match=r"^returns_from: level \d: .* got \d+ groups; ask for fewer levels"):
                FlowSampler(env).collect(Policy.uniform(6), 10**18, returns_from=range(3), **arguments)


def test_dmq_solves_linear_q_without_drawing_squares():
    env = linear_q(rng=0)
    for sampler in (ExactSampler(env), FlowSampler(env)):
        result = dmq.DMQ(sampler, n_samples=10**15, ridge=1e-9, rng=1).learn()
        assert env.value(result.policy) == pytest.approx(env.optimal_value, rel=1e-9)


@pytest.mark.parametrize("variant", ["sound", "frugal"])
def test_dmq_takes_the_largest_number(variant, tmp_path):
    """A regression on several policies has more pairs than 64 bits count."""
    env = chain(4, rng=0)
    settings = {"n_samples": 2**63 - 1, "variant": variant, "rng": 0}
    result = flat(FlowSampler(env), **settings).learn()
    assert max(result.cover_sizes) > 2
    assert env.value(result.policy) == pytest.approx(env.optimal_value, rel=1e-9)
    result.save(tmp_path / "result.npz")
    assert dmq.load(tmp_path / "result.npz").n_trajectories == result.n_trajectories > 2**64


def test_values_of_both_signs():
    """Moments hold no signs, so a flow sampler draws trajectories; expectations have none to draw."""
    env = signed()
    policy, stream = half_greedy(env), Stream(3)
    assert env.value_range[0, 0] < 0.0 < env.value_range[0, 1]
    for make in DRAWN.values():
        found = make(env).evaluate(policy, 20_000, stream=stream)
        assert abs(found.value - env.value(policy)) < 4 * found.standard_error
    flow, rollout = (kind(env).evaluate(policy, 500, stream=stream) for kind in (FlowSampler, RolloutSampler))
    assert flow == rollout
    with pytest.raises(TypeError, match="gives moments only, which hold no signs of returns"):
        ExactSampler(env).evaluate(policy, 5, stream=stream)
