"""Function classes: finite ones against enumeration, kernels against exact ones."""

import itertools
import json
import pickle

import exact_kernel
import numpy as np
import pytest
import reference
import scipy.linalg
from flat import flat
from hypothesis import given, settings
from hypothesis import strategies as st
from refusals import refused
from replay import assert_agrees

import dmq_fast as dmq
from dmq_fast.covers.options import VARIANTS
from dmq_fast.environments import FiniteMDP, combination_lock
from dmq_fast.features import Nystrom, RandomFourier
from dmq_fast.function_class import FiniteClass, FunctionClass, LinearClass
from dmq_fast.moments import Moments, Returns

seeds = st.integers(0, 2**32)


def solver_of(function_class, dimension, *, ridge=1e-3, eps_s=1.0, eps_t=2.0, eps_r=1e-2, oracle="value"):
    return function_class.solver(dimension, ridge=ridge, eps_s=eps_s, eps_t=eps_t, eps_r=eps_r, oracle=oracle)


def moments_of(*levels, base=0):
    """Return the moments of rows (n, d) by level."""
    grams = np.array([rows.T @ rows for rows in levels])
    return Moments(len(levels[0]), range(base, base + len(levels)), grams, {})


def pairs_of(rows, y):
    returns = Returns(rows.T @ y, float(y @ y), len(y))
    return Moments(len(y), (0,), (rows.T @ rows)[None], {0: returns})


def mean_gram(rows):
    return rows.T @ rows / len(rows)


def spd(rng, d, least=0.05):
    root = rng.standard_normal((d, d))
    return root @ root.T + least * np.eye(d)


# Finite classes


def literal_oracle(d1, d2, eps_1, eps_2):
    """Evaluate oracle 4.2 as the paper prints it, from the values (n, m) of all functions on both samples."""
    v, m = -np.inf, d1.shape[1]
    for i, j in itertools.product(range(m), repeat=2):
        if np.mean((d1[:, i] - d1[:, j]) ** 2) <= eps_1:
            v = max(v, np.mean((d2[:, i] - d2[:, j]) ** 2))
    return v >= eps_2, v


def literal_fit(values, y):
    """Return the index of the function that minimises equation 2, by enumeration."""
    return min(range(values.shape[1]), key=lambda i: np.mean((values[:, i] - y) ** 2))


@settings(deadline=None)
@given(seeds, st.integers(1, 6), st.integers(1, 3), st.sampled_from([0.01, 0.3, 1.0, 4.0]))
def test_the_finite_oracle_is_the_papers(seed, m, n_policies, eps_s):
    rng = np.random.default_rng(seed)
    n, scale, levels = 5, rng.uniform(0.5, 3), 3
    samples = [[rng.uniform(-1, 1, (n, m)) for _ in range(n_policies)] for _ in range(levels)]
    later = [rng.uniform(-1, 1, (n, m)) for _ in range(levels)]
    cover = np.array([sum(mean_gram(rows) for rows in policies) for policies in samples]) / scale**2
    finite = FiniteClass(scale)
    eps_t = rng.uniform(0.1, 2)
    solver = solver_of(finite, m, eps_s=eps_s, eps_t=eps_t)
    level, values = solver.scan(cover, moments_of(*(rows / scale for rows in later)), levels - 1, 0)
    wanted, decisions = [], []
    for h in reversed(range(levels)):
        d1 = np.concatenate(samples[h])
        decision, v = literal_oracle(d1, later[h], eps_s / n_policies, eps_t)
        wanted.append(max(v, 0.0))
        decisions.append(decision)
        if decision:
            break
    assert level == (levels - len(decisions) if decisions[-1] else -1)
    np.testing.assert_allclose(values, wanted, rtol=1e-9, atol=1e-12)
    assert solver.n_marginal == 0
    silent = solver_of(finite, m, eps_s=eps_s, eps_t=eps_t, oracle="decision")
    answer, nothing = silent.scan(cover, moments_of(*(rows / scale for rows in later)), levels - 1, 0)
    assert answer == level and nothing.size == 0


@settings(deadline=None)
@given(seeds, st.integers(1, 8), st.integers(1, 30))
def test_the_finite_fit_is_the_best_of_all(seed, m, n):
    rng = np.random.default_rng(seed)
    values, y, scale = rng.uniform(-1, 1, (n, m)), rng.uniform(0, 1, n), rng.uniform(0.5, 3)
    theta = solver_of(FiniteClass(scale), m, ridge=0.3).fit(pairs_of(values / scale, y), 0)
    best = literal_fit(values, y)
    np.testing.assert_array_equal(theta, scale * np.eye(m)[best])
    np.testing.assert_allclose(values / scale @ theta, values[:, best])


def test_functions_that_agree_on_the_data_are_the_first():
    values = np.random.default_rng(0).uniform(0, 1, (20, 1)) * [0.5, 1.0, 1.0, 1.0]
    theta = solver_of(FiniteClass(), 4).fit(pairs_of(values, values[:, 1]), 0)
    np.testing.assert_array_equal(theta, [0, 1, 0, 0])


def test_ties_are_marginal():
    # Two functions that differ by exactly 1 in one state of four, 2 in one of the others.
    first, second = np.zeros((4, 2)), np.zeros((4, 2))
    first[0, 0], second[1, 1] = 1.0, 2.0
    cover, later = mean_gram(first)[None], moments_of(second)
    for eps_s, eps_t, answer, marginal in [
        (0.25, 1.0, 0, 1),
        (0.25, 0.5, 0, 1),
        (0.2500001, 1.0, 0, 1),
        (0.2500001, 0.9999999, 0, 0),
        (0.2499999, 0.5, -1, 0),
        (0.25, 1.0000001, -1, 0),
    ]:
        solver = solver_of(FiniteClass(), 2, eps_s=eps_s, eps_t=eps_t)
        assert (solver.scan(cover, later, 0, 0)[0], solver.n_marginal) == (answer, marginal)


def threshold_lock(horizon, n, rng, final=0.7, **allowed):
    """Return a lock whose right action depends on whether a random context exceeds a hidden threshold, and its class.

    Contexts 0, ..., n-1 are uniformly random at each level, state n is out. One of two actions is right above the
    threshold, the other below; the wrong one leads out. So Q*(x, a) is `final` on one side of a threshold, 0 on the
    other and outside: one of the 2 (n + 1) functions that do so.
    """
    x, above = np.arange(n), rng.integers(2, size=horizon)
    thresholds = rng.integers(1, n, size=horizon)
    into, out = np.append(np.full(n, 1 / n), 0.0), np.eye(n + 1)[n]
    P, R = [], []
    for h in range(horizon):
        right = np.where(x >= thresholds[h], above[h], 1 - above[h])
        p, r = np.empty((n + 1, 2, n + 1)), np.zeros((n + 1, 2))
        p[:] = out
        p[x, right] = into
        r[x, right] = final * (h == horizon - 1)
        P.append(p)
        R.append(r)
    steps = (x[:, None] >= np.arange(n + 1)).astype(float)
    values = final * np.vstack([np.hstack([steps, 1 - steps]), np.zeros(2 * (n + 1))])
    scale = np.sqrt(values.shape[1])
    env = FiniteMDP(P=P[:-1], R=R, features=[values / scale] * horizon, start=into)
    return env, FiniteClass(scale, **allowed), values


@pytest.mark.parametrize("variant", ["sound", "frugal"])
def test_dmq_solves_the_threshold_lock(variant):
    for seed in range(5):
        env, finite, _ = threshold_lock(5, 12, np.random.default_rng(seed), eps_s=0.005, eps_t=0.02)
        result = dmq.DMQ(env, n_samples=400, function_class=finite, variant=variant, rng=seed).learn()
        assert result.status == "ended" and result.warnings == ()
        np.testing.assert_allclose(env.value(result.policy), env.optimal_value, rtol=1e-12)
        # Each theta selects one candidate.
        assert ((result.theta != 0).sum(axis=2) == 1).all()
        predicted = env.features[0] @ result.theta[0].T
        np.testing.assert_allclose(predicted[:-1], env.optimal_q[0][:-1], atol=1e-12)


def finite_reference(monkeypatch, finite):
    """Return the literal reference for a finite class with Lambda(f_i, f_j) = eps_r for i != j."""
    scale = finite.scale

    def oracle(m1, m2, eps_1, eps_2):
        # m1 holds eps_r I / |Pi|, which is far below the rounding of the moments.
        first, second = (scale**2 * (np.diag(m)[:, None] + np.diag(m) - 2 * m) for m in (m1, m2))
        v = max(0.0, second[first <= eps_1].max())
        return v >= eps_2, v

    def fit(gram, moment, n, ridge):
        losses = [scale**2 * gram[i, i] - 2 * scale * moment[i] for i in range(len(gram))]
        return scale * np.eye(len(gram))[int(np.argmin(losses))]

    monkeypatch.setattr(reference, "dsec_oracle", oracle)
    monkeypatch.setattr(reference, "ridge_regression", fit)


@pytest.mark.parametrize("variant", VARIANTS)
def test_finite_runs_agree_with_the_literal_reference(monkeypatch, variant):
    env, finite, _ = threshold_lock(4, 7, np.random.default_rng(3))
    finite = FiniteClass(finite.scale, eps_s=0.0103, eps_t=0.0317)
    finite_reference(monkeypatch, finite)
    algorithm = flat(
        env,
        n_samples=150,
        eps_r=1e-30,
        function_class=finite,
        variant=variant,
        oracle="value",
        rng=5,
    )
    assert assert_agrees(algorithm, atol=1e-9).counts["trues"] > 0


# Bounds on covers


def trues_in_a_row(solver, grams):
    """Return how many of `grams` are added one after the other, each as the M2 of a True."""
    cover, count = np.zeros_like(grams[:1]), 0
    for gram in itertools.chain.from_iterable([grams] * 4):
        level, _ = solver.scan(cover, Moments(1, (0,), gram[None], {}), 0, 0)
        if level == 0:
            cover = cover + gram
            count += 1
    return count


@settings(deadline=None, max_examples=30)
@given(seeds, st.integers(2, 5), st.sampled_from([0.3, 0.5, 1.0, 3.0]), st.booleans())
def test_covers_that_accumulate_stay_within_their_bounds(seed, d, ratio, finite):
    rng = np.random.default_rng(seed)
    rows = rng.standard_normal((60, d))
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    grams = rows[:, :, None] * rows[:, None, :]
    if finite:
        solver = solver_of(FiniteClass(2.0), d, eps_s=0.1 / ratio, eps_t=0.1)
    else:
        solver = solver_of(LinearClass(), d, eps_t=ratio)
    count = trues_in_a_row(solver, grams)
    assert 1 <= count <= solver.cover_bound(0)
    assert solver.cover_bound(3) >= solver.cover_bound(0)


@pytest.mark.parametrize(("eps_s", "times"), [(0.3, 3), (0.7, 8)])
def test_a_run_on_the_verge_of_its_bound_is_no_error(eps_s, times):
    """Action 1 meets the state where the functions differ by 1 with probability .1, and eps_t = .1.

    So each True adds .1 to what must not exceed eps_s; seven tenths add up to .7 in float64, three to more than .3.
    """
    env = FiniteMDP(
        P=[[[[0.0, 1.0], [0.1, 0.9]]]], R=[[[0, 0]], [[0.5, 0], [0, 0]]], features=[[[0, 0]], [[1, 0], [0, 0]]]
    )
    settings = {"function_class": FiniteClass(eps_s=eps_s, eps_t=0.1), "initial": [0, 0], "n_samples": 1}
    result = flat(dmq.samplers.ExactSampler(env), variant="frugal", rng=0, **settings).learn()
    assert result.cover_sizes == (1, 1 + times)
    (held,) = (one for one in dmq.certificate(result)["statements"] if one["name"] == "cover, sure")
    assert held["holds"] and held["right"] >= 1 + times


# Regularisers of the kernel


@settings(deadline=None)
@given(seeds, st.integers(1, 20), st.sampled_from([1e-4, 1e-2, 1.0]))
def test_any_regulariser_is_the_identity_of_whitened_features(seed, d, eps_r):
    rng = np.random.default_rng(seed)
    g = spd(rng, d)
    first, second = rng.standard_normal((d // 2 + 1, d)), rng.standard_normal((7, d))
    v = 0.5 * scipy.linalg.eigh(mean_gram(second), mean_gram(first) + eps_r * g, eigvals_only=True)[-1]
    white = scipy.linalg.solve_triangular(np.linalg.cholesky(g), np.vstack([first, second]).T, lower=True).T
    cover, grams = mean_gram(white[: len(first)])[None], moments_of(white[len(first) :])
    for factor, answer in [(1 - 1e-7, 0), (1 + 1e-7, -1)]:
        level, values = solver_of(LinearClass(), d, eps_s=0.5, eps_t=factor * v, eps_r=eps_r).scan(cover, grams, 0, 0)
        assert level == answer
        np.testing.assert_allclose(values, [v], rtol=1e-8)


# Kernels


def samples(seed, n1=15, n2=12, m=2):
    rng = np.random.default_rng(seed)
    return rng.uniform(-3, 1, (n1, m)), rng.uniform(-1, 3, (n2, m))


def value_of(phi, first, second, lam):
    """Return v for eps_1 = 1, computed from features."""
    rows = phi(first)
    solver = solver_of(LinearClass(), rows.shape[1], eps_r=lam)
    return solver.scan(mean_gram(rows)[None], moments_of(phi(second)), 0, 0)[1][0]


@pytest.mark.parametrize("lam", [1e-1, 1e-2, 1e-3])
@pytest.mark.parametrize("seed", range(5))
def test_nystroem_on_all_samples_is_the_exact_oracle(seed, lam):
    first, second = samples(seed)
    both = np.vstack([first, second])
    k = exact_kernel.gaussian(both, both)
    v = exact_kernel.value(k, len(first), 1.0, lam)
    np.testing.assert_allclose(exact_kernel.value_in_span(k, len(first), 1.0, lam), v, rtol=1e-8)
    np.testing.assert_allclose(value_of(Nystrom(both), first, second, lam), v, rtol=1e-8)


def test_nystroem_ridge_is_kernel_ridge_regression():
    first, second = samples(7)
    both, y = np.vstack([first, second]), np.random.default_rng(7).random(len(first))
    phi = Nystrom(both)
    theta = solver_of(LinearClass(), phi.dimension, ridge=1e-2).fit(pairs_of(phi(first), y), 0)
    k = exact_kernel.gaussian(both, both)
    wanted = exact_kernel.ridge_predictions(k, len(first), y, 1e-2)
    np.testing.assert_allclose(phi(both) @ theta, wanted, atol=1e-8)


@pytest.mark.parametrize("kernel", ["gaussian", "matern", "exponential"])
def test_more_landmarks_are_a_larger_class(kernel):
    first, second = samples(3)
    both = np.vstack([first, second])[np.random.default_rng(0).permutation(27)]
    values = [value_of(Nystrom(both[:d], 1.0, kernel), first, second, 1e-2) for d in (3, 9, 18, 27)]
    assert np.diff(values).min() >= -1e-8 and values[0] < 0.9 * values[-1]


def test_landmarks_that_repeat_add_nothing():
    first, second = samples(4)
    once, twice = Nystrom(first), Nystrom(np.vstack([first, first]))
    np.testing.assert_allclose(value_of(twice, first, second, 1e-2), value_of(once, first, second, 1e-2), rtol=1e-8)
    assert (np.linalg.norm(twice(second), axis=1) <= 1 + 1e-14).all()


@pytest.mark.parametrize("seed", range(3))
def test_the_oracle_of_random_features_is_that_of_their_kernel(seed):
    phi, (first, second) = RandomFourier(2, 64, rng=seed), samples(5)
    rows = phi(np.vstack([first, second]))
    wanted = exact_kernel.value(rows @ rows.T, len(first), 1.0, 0.1)
    np.testing.assert_allclose(value_of(phi, first, second, 0.1), wanted, rtol=1e-8)


def test_random_features_are_within_their_bound():
    """An entry of K is a mean of D / 2 cosines: by Hoeffding's inequality it is off by t with a probability of at most
    2 exp(-D t^2 / 4). Over the n (n - 1) / 2 pairs and ten seeds all are within t but for one time in 1e9, and then
    ||E|| <= n t; the rest is `exact_kernel.slope`.
    """
    both, dimension = np.vstack(samples(5)), 4096
    k, n, n1, lam = exact_kernel.gaussian(both, both), len(both), 15, 0.1
    t = np.sqrt(4 * np.log(10 * n * (n - 1) * 1e9) / dimension)
    slope = exact_kernel.slope(n1, n - n1, 1.0, lam)
    for seed in range(10):
        rows = RandomFourier(2, dimension, rng=seed)(both)
        other = rows @ rows.T
        error = abs(exact_kernel.value(other, n1, 1.0, lam) - exact_kernel.value(k, n1, 1.0, lam))
        assert np.abs(other - k).max() <= t
        assert 0.0 < error <= slope * np.linalg.norm(other - k, 2) <= slope * n * t


# The protocol, and what a run records of it


class Counting:
    """Function class of a user: linear, and it counts its solvers."""

    is_cone = True

    def __init__(self):
        self.solvers = []

    def solver(self, dimension, **parameters):
        self.solvers.append(parameters)
        return LinearClass().solver(dimension, **parameters)

    def thresholds(self, ratio):
        return 1.0, ratio

    def describe(self):
        return {"name": "counting", "number": 3}


def test_any_class_of_the_protocol_will_do():
    mine = Counting()
    assert isinstance(mine, FunctionClass)
    arguments = {"n_samples": 5, "ratio": 3.0, "eps_r": 0.01, "ridge": 0.01, "rng": 0}
    result = flat(combination_lock(5, 3, rng=0), function_class=mine, **arguments).learn()
    plain = flat(combination_lock(5, 3, rng=0), **arguments).learn()
    np.testing.assert_array_equal(result.theta, plain.theta)
    assert result.function_class == {"name": "counting", "number": 3}
    assert mine.solvers[-1] == {"ridge": 0.01, "eps_s": 1.0, "eps_t": 3.0, "eps_r": 0.01, "oracle": "decision"}


@pytest.mark.parametrize(
    "function_class",
    [
        LinearClass(),
        FiniteClass(2.0, eps_s=0.1),
    ],
)
def test_descriptions_tell_classes_apart_and_survive_files(function_class, tmp_path):
    said = function_class.describe()
    assert json.loads(json.dumps(said)) == said == pickle.loads(pickle.dumps(function_class)).describe()
    assert FiniteClass(3.0).describe() != said
    env = FiniteMDP(P=[], R=[[[0.5, 0.0]]], features=[[[1.0, 0.0]]])
    result = dmq.DMQ(env, n_samples=2, function_class=function_class, rng=0).learn()
    result.save(tmp_path / "result.npz")
    assert dmq.load(tmp_path / "result.npz").function_class == said == result.function_class


def test_a_journal_knows_its_class(tmp_path):
    env, finite, _ = threshold_lock(3, 5, np.random.default_rng(0), eps_s=0.005, eps_t=0.02)
    arguments = {"n_samples": 100, "rng": 0}
    whole = flat(env, function_class=finite, **arguments).learn()
    cut = flat(env, function_class=finite, journal=tmp_path / "run", max_trajectories=500, **arguments)
    assert cut.learn().status == "max_trajectories"
    with pytest.raises(dmq.JournalError, match="function_class"):
        flat(env, journal=tmp_path / "run", **arguments).learn()
    with pytest.raises(dmq.JournalError, match=r"function_class\.scale"):
        flat(
            env, function_class=FiniteClass(2.0, eps_s=0.005, eps_t=0.02), journal=tmp_path / "run", **arguments
        ).learn()
    rest = flat(env, function_class=finite, journal=tmp_path / "run", **arguments).learn()
    np.testing.assert_array_equal(rest.theta, whole.theta)
    assert rest.history == whole.history and rest.counts == whole.counts


def test_a_finite_class_is_not_warned_of_what_concerns_cones():
    env, finite, _ = threshold_lock(2, 4, np.random.default_rng(0), eps_s=0.01)
    algorithm = dmq.DMQ(env, ratio=50, eps_r=1.0, function_class=finite, initial="uniform")
    assert list(algorithm.warnings()) == []
    assert len(list(dmq.DMQ(env, ratio=50, eps_r=1.0, initial="uniform").warnings())) == 2


LOCK = combination_lock(3, 2, rng=0)


REFUSALS = [
    (lambda: dmq.DMQ(LOCK, function_class=FiniteClass()), ValueError, "function_class: expected eps_s or eps_t"),
    (
        lambda: dmq.DMQ(LOCK, ratio=3, function_class=FiniteClass(eps_s=1, eps_t=2)),
        ValueError,
        "^ratio: expected 2",
    ),
    (lambda: dmq.DMQ(LOCK, ratio=1e10, function_class=FiniteClass(eps_t=1e-320)), ValueError, "^ratio: .* float64"),
    (lambda: FiniteClass(eps_s=-1.0), ValueError, "^eps_s"),
    (lambda: FiniteClass(eps_t="1"), TypeError, "^eps_t"),
    (lambda: dmq.DMQ(LOCK, function_class=LinearClass), TypeError, "function_class"),
    (lambda: dmq.DMQ(LOCK, function_class="linear"), TypeError, "function_class"),
    (lambda: FiniteClass(0.0), ValueError, "scale"),
    (lambda: FiniteClass("2"), TypeError, "scale"),
]


def test_bad_arguments_are_refused_by_name():
    refused(REFUSALS)


@pytest.mark.parametrize("function_class", [LinearClass(), FiniteClass()])
def test_moments_that_are_not_finite_are_refused(function_class):
    solver, bad = solver_of(function_class, 2), np.full((1, 2, 2), np.inf)
    with pytest.raises(ValueError, match="finite"):
        solver.scan(bad, moments_of(np.eye(2)), 0, 0)
    with pytest.raises(ValueError, match="finite"):
        solver.fit(Moments(1, (0,), bad, {0: Returns(np.zeros(2), 0.0, 1)}), 0)


def test_classes_show_their_arguments():
    assert repr(FiniteClass(2.0)) == "FiniteClass(scale=2.0)" and repr(LinearClass()) == "LinearClass()"
