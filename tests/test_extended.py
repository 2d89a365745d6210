"""Extended precision: runs with the constants of the theorem."""

from __future__ import annotations

import copy
import importlib.util
import itertools
import math
import pickle
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal
from fractions import Fraction
from pathlib import Path

import mpmath
import numpy as np
import pytest
from flat import flat
from hypothesis import given, settings
from hypothesis import strategies as st
from properties import refuses
from refusals import refused
from test_findings import stale_lock
from test_rollout import random_mdp, random_policy
from test_samplers_agree import everything

import dmq_fast as dmq
from dmq_fast.arithmetic import FLOAT64, Extended, as_arithmetic, extended
from dmq_fast.environments import chain, combination_lock, decoy_lock, linear_q, river_swim
from dmq_fast.function_class import FiniteClass, LinearClass
from dmq_fast.kernels import Fixed, Greedy, Stream, Uniform
from dmq_fast.moments import Moments
from dmq_fast.policy import Policy
from dmq_fast.rules import ExactGreedy
from dmq_fast.samplers import ExactSampler, FlowSampler, ParallelSampler, RolloutSampler
from dmq_fast.theory import Parameters


def load_property_run():
    path = Path(__file__).parent.parent / "bench" / "property_run.py"
    spec = importlib.util.spec_from_file_location("property_run", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


property_run = load_property_run()

ARITHMETICS = [40, "rational"]
every_arithmetic = pytest.mark.parametrize("digits", ARITHMETICS)

ENVIRONMENTS = {
    "lock": lambda: combination_lock(4, 3, rng=0, p_success=0.75),
    "rotated lock": lambda: combination_lock(4, 3, rng=1, dimension=4),
    "decoy": lambda: decoy_lock(4, 3),
    "chain": lambda: chain(4, rng=0),
    "river swim": lambda: river_swim(4, 4),
    "linear q": lambda: linear_q(3, 6, 3, 3, rng=0),
    "everything": everything,
}


def floats(array):
    return np.asarray(array, dtype=object).astype(np.float64)


def corrected(env, C=1):
    problem = Parameters.from_theorem(0.1, env.gap, C, env.dimension, env.horizon, env.n_actions, corrected=True)
    return problem.at(problem.largest_epsilon())


# The same expectations


@every_arithmetic
@pytest.mark.parametrize("seed", [0, 3, 5])
def test_moments_are_those_of_float64(digits, seed):
    rng = np.random.default_rng(seed)
    env = everything()
    if seed:
        env = random_mdp(rng, int(rng.integers(1, 5)), 4, 3, 3, "dense", caps=True, shared=seed == 5)
    for _ in range(4):
        policy = random_policy(rng, env)
        request = {"levels": range(env.horizon), "returns_from": range(env.horizon), "stream": Stream(0)}
        expected = ExactSampler(env).collect(policy, 7, **request)
        moments = ExactSampler(env, digits).collect(policy, 7, **request)
        assert moments.grams.dtype == object and moments.n == 7
        np.testing.assert_allclose(floats(moments.grams), expected.grams, rtol=1e-12, atol=1e-14)
        for h, returns in expected.returns.items():
            np.testing.assert_allclose(floats(moments.returns[h].moment), returns.moment, rtol=1e-12, atol=1e-14)
            assert float(moments.returns[h].square) == pytest.approx(returns.square, rel=1e-12, abs=1e-14)
            assert moments.returns[h].n == 7


def test_tables_are_converted_exactly():
    env = combination_lock(2, 2, rng=0, p_success=0.1)
    secret = int(env.P[0][0, :, 0].argmax())
    moments = ExactSampler(env, "rational").collect(Policy.fixed([secret, 0]), 1, stream=Stream(0), levels=(1,))
    assert moments.gram[1][0, 0] == Fraction(0.1) != Fraction(1, 10)
    # 1 - p_success was rounded, and so was what is left for the other state.
    assert moments.gram[1][1, 1] == Fraction(0.9)


@every_arithmetic
def test_n_only_multiplies_and_may_be_any_integer(digits):
    env, policy = everything(), Policy.uniform(4)
    sampler = ExactSampler(env, digits)
    request = {"levels": (0, 3), "returns_from": (1,), "stream": Stream(0)}
    one, many = sampler.collect(policy, 1, **request), sampler.collect(policy, 10**80, **request)
    assert many.n == many.returns[1].n == 10**80 and isinstance(many.n, int)
    scaled = 10**80 * one.grams
    assert all(abs(a / b - 1) < 1e-35 if b else a == b for a, b in zip(many.grams.flat, scaled.flat, strict=True))
    none = sampler.collect(policy, 0, **request)
    assert not none.grams.any() and not none.returns[1].moment.any() and none.n == 0


# The same runs


def decisions(result):
    columns = result.history.columns()
    return [columns[name].tolist() for name in ("target", "action", "member", "level", "decision")]


# Each variant with an environment or two; the other combinations are slow.
QUICK = {("decoy", "sound"), ("linear q", "frugal"), ("river swim", "paper"), ("everything", "sound")}


@pytest.mark.parametrize(
    ("name", "variant"),
    [
        case if case in QUICK else pytest.param(*case, marks=pytest.mark.slow)
        for case in itertools.product(ENVIRONMENTS, ["sound", "frugal", "paper"])
    ],
)
def test_every_decision_is_that_of_float64(name, variant):
    env = ENVIRONMENTS[name]()
    settings = {"ratio": 2.0, "eps_r": 1e-3, "ridge": 1e-3, "variant": variant, "mixture": "stratified", "rng": 3}
    settings["oracle"] = "value" if variant == "sound" and env.dimension <= 3 else "decision"
    expected = flat(ExactSampler(env), **settings).learn()
    for digits in ARITHMETICS:
        result = flat(ExactSampler(env, digits), **settings).learn()
        assert decisions(result) == decisions(expected)
        assert result.cover_sizes == expected.cover_sizes and result.warnings == expected.warnings
        assert result.counts["trajectories"] == expected.counts["trajectories"]
        values, theirs = (r.history.columns()["value"] for r in (result, expected))
        np.testing.assert_allclose(values, theirs, rtol=1e-9, atol=1e-12)
        np.testing.assert_allclose(result.theta, expected.theta, rtol=1e-9, atol=1e-9)
        assert result.theta.dtype == np.float64 and result.theta.shape == expected.theta.shape
        assert env.value(result.policy) == pytest.approx(env.value(expected.policy), abs=1e-12)
    assert len(result.history) > 0


# Below the resolution of float64


@pytest.mark.parametrize("digits", [80, "rational"])
def test_an_eps_r_of_1e_36_is_resolved(digits):
    numbers = as_arithmetic(digits)
    eps_r, ratio = 2.0**-120, 2.0
    linear = numbers.solver(LinearClass(), 2, ridge=1e-3, eps_s=1.0, eps_t=ratio, eps_r=eps_r, oracle="value")
    # The cover has seen (3/5, 4/5) alone, and so has the candidate, but for a mass across it.
    seen, across = (numbers.convert_array(v) for v in ([3.0, 4.0], [4.0, -3.0]))
    cover = np.multiply.outer(seen, seen)[None] / 25
    for factor in (0.25, 0.999999, 1.000001, 4.0):
        mass = numbers.convert(factor) * numbers.convert(ratio) * numbers.convert(eps_r)
        second = cover + mass * np.multiply.outer(across, across)[None] / 25
        found, (value,) = linear.scan(cover, Moments(1, (0,), second, {}), 0, 0)
        assert (found == 0) == (factor > 1)
        assert value == pytest.approx(max(1.0, factor * ratio))
    assert linear.n_marginal == 0
    # In float64 the mass is lost in the rounding of the rest, so that every factor gets the same answer.
    double = LinearClass().solver(2, ridge=1e-3, eps_s=1.0, eps_t=ratio, eps_r=eps_r, oracle="decision")
    answers = set()
    for factor in (0.25, 4.0):
        mass = numbers.convert(factor * ratio * eps_r)
        second = floats(cover + mass * np.multiply.outer(across, across)[None] / 25)
        answers.add(double.scan(floats(cover), Moments(1, (0,), second, {}), 0, 0)[0])
    assert len(answers) == 1


def test_equality_is_true_and_marginal_unless_nothing_is_rounded():
    for digits, marginal in ((60, 1), ("rational", 0)):
        numbers = as_arithmetic(digits)
        linear = numbers.solver(LinearClass(), 1, ridge=1e-3, eps_s=1.0, eps_t=3.0, eps_r=0.1, oracle="decision")
        second = numbers.convert(3) * (numbers.convert_array([[[0.25]]]) + numbers.convert(0.1))
        assert linear.scan(numbers.convert_array([[[0.25]]]), Moments(1, (0,), second, {}), 0, 0)[0] == 0
        assert linear.n_marginal == marginal


@pytest.mark.parametrize(("digits", "seed"), [(100, 0), ("rational", 1)])
def test_corrected_constants_open_a_lock_that_float64_cannot_decide_on(digits, seed, monkeypatch):
    env = combination_lock(4, 3, rng=seed, dimension=3)
    p = corrected(env)
    assert all(one.holds for one in p.check()) and p.eps_r < 1e-24 and p.n_samples > 10**50
    arguments = p.dmq_arguments(extended=True)
    result = flat(ExactSampler(env, digits), **arguments, rng=seed).learn()
    assert result.status == "ended" and not result.warnings
    assert env.optimal_value - env.value(result.policy) <= p.epsilon
    assert max(result.cover_sizes) == 2 <= p.cover_bound
    assert result.n_trajectories % arguments["n_samples"] == 0 and result.n_trajectories > 10**50
    assert result.parameters["n_samples"] == arguments["n_samples"]
    with pytest.raises(ValueError, match=r"^eps_r: expected at least 1e-16, the resolution of float64 beside S, got "):
        flat(ExactSampler(env), **arguments | {"n_samples": 1})
    # Why: features of two states only, and float64 takes its own rounding for a third.
    monkeypatch.setattr("dmq_fast.covers.options.FLOAT64_EPS_R", 0)
    rough = flat(ExactSampler(env), **arguments | {"n_samples": 1}, max_policies=20, rng=seed).learn()
    assert rough.status == "max_policies" or max(rough.cover_sizes) > 2


def test_printed_constants_run_too():
    env = combination_lock(3, 2, rng=0)
    p = Parameters.from_theorem(1e-8, env.gap, 1, env.dimension, 3, 2)
    assert p.eps_r < 1e-47
    result = flat(ExactSampler(env, 120), **p.dmq_arguments(extended=True), variant="paper", rng=0).learn()
    assert result.status == "ended" and result.options["mixture"] == "stratified"
    assert env.value(result.policy) == env.optimal_value


def test_printed_and_decimal_constants_may_be_handed_over_as_they_are():
    env = combination_lock(3, 2, rng=0)
    p = corrected(env)
    run = dmq.DMQ(ExactSampler(env, 100), ratio=p.eps_t / p.eps_s, eps_r=p.eps_r, ridge=p.ridge)
    expected = p.dmq_arguments(extended=True)
    assert {name: getattr(run.parameters, name) for name in expected if name != "n_samples"} == {
        name: value for name, value in expected.items() if name != "n_samples"
    }
    for number in (mpmath.mpf("0.5"), Fraction(1, 2), Decimal("0.5")):
        parameters = dmq.DMQ(env, ratio=4 * number, eps_r=number, ridge=number).parameters
        assert parameters.eps_r == parameters.ridge == 0.5 and parameters.ratio == 2 and type(parameters.eps_r) is float
    for number in (Decimal("1e-400"), Decimal("1e400"), Decimal("nan"), mpmath.mpc(1, 1)):
        with pytest.raises((ValueError, TypeError), match=r"^eps_r: "):
            dmq.DMQ(env, eps_r=number)


def test_arguments_beyond_float64_are_refused_even_so():
    with pytest.raises(ValueError, match=r"^eps_r: expected a number that float64 holds, got 1e-360$"):
        Parameters.from_theorem(Decimal("1e-60"), 0.5, 1, 2, 4, 3).dmq_arguments(extended=True)


# Greedy, exactly

fractions = st.fractions(min_value=-4, max_value=4)
entries = st.floats(-1, 1, allow_subnormal=True)


@given(data=st.data(), n_actions=st.integers(1, 4), d=st.integers(1, 3))
@settings(max_examples=30, deadline=None)
def test_exact_greedy_takes_the_first_of_the_largest_scores(data, n_actions, d):
    theta = [[data.draw(fractions) for _ in range(d)] for _ in range(n_actions)]
    rows = [[data.draw(entries) for _ in range(d)] for _ in range(3)]
    scores = [[sum(w * Fraction(x) for w, x in zip(row, phi, strict=True)) for row in theta] for phi in rows]
    rule = ExactGreedy(theta)
    for _ in range(2):  # computed, then remembered
        assert rule.actions(rows).tolist() == [score.index(max(score)) for score in scores]


def test_ties_and_what_float64_takes_for_one():
    third = Fraction(1, 3)
    tied, apart = ExactGreedy([[third, 0], [third, 1]]), ExactGreedy([[third], [third + Fraction(1, 10**60)]])
    assert tied.actions([[1.0, 0.0], [0.5, 0.0], [1.0, 1e-300], [0.0, 0.0]]).tolist() == [0, 0, 1, 0]
    assert apart.actions([[1.0], [-1.0], [0.0]]).tolist() == [1, 0, 0]
    assert (apart.theta[0] == apart.theta[1]).all()
    assert Policy([Greedy(apart.theta)]).act(0, [1.0]) == 0 and Policy([apart]).act(0, [1.0]) == 1
    # .1 + .2 is not .3 in float64: the scores of these are as their float64 weights say
    assert ExactGreedy([[0.3], [0.1 + 0.2]]).actions([[1.0]]) == 1


def test_rules_behave_like_those_of_float64():
    rule, same, other = ExactGreedy([[Fraction(1, 3), 2]]), ExactGreedy([[Fraction(2, 6), 2.0]]), ExactGreedy([[0, 2]])
    assert rule == same and hash(rule) == hash(same) and rule.digest == same.digest
    assert rule != other and rule.digest != other.digest and rule != Fixed(0)
    assert ExactGreedy([[0.5]]) != Greedy([[0.5]]) and Greedy([[0.5]]) != ExactGreedy([[0.5]])
    assert Policy([ExactGreedy([[0.5]])]).digest() != Policy([Greedy([[0.5]])]).digest() != Policy([Uniform()]).digest()
    for copied in (pickle.loads(pickle.dumps(rule)), copy.deepcopy(rule)):
        assert copied == rule and copied.theta.tolist() == rule.theta.tolist()
    assert rule.n_actions == 1 and rule.theta.shape == (1, 2) and "(1, 2)" in repr(rule)
    with pytest.raises(AttributeError, match="immutable"):
        rule.theta = 0
    with pytest.raises(AttributeError, match="immutable"):
        del rule.theta
    with pytest.raises(ValueError, match="read-only"):
        rule.theta[0, 0] = 1
    for theta in ([[math.inf]], [[math.nan]], [[None]], [["x"]], 5):
        with pytest.raises(ValueError, match=r"^theta: expected rows of finite numbers, got"):
            ExactGreedy(theta)
    for theta in ([], [[]], [[1], [1, 2]]):
        with pytest.raises(ValueError, match=r"^theta: expected shape"):
            ExactGreedy(theta)
    policy = Policy([rule, same])
    assert policy.probabilities(0, [[1.0, 0.0]], 1).tolist() == [[1.0]] and repr(policy) == "Policy(gg)"
    with pytest.raises(ValueError, match=r"^n_actions"):
        policy.probabilities(0, [[1.0, 0.0]], 2)


def test_other_samplers_refuse_exact_rules():
    env = combination_lock(2, 2, rng=0)
    policy = Policy([ExactGreedy(np.eye(2).tolist())] * 2)
    request = {"levels": (1,), "stream": Stream(0)}
    words = r"level 0 is an ExactGreedy rule; only ExactSampler\(env, arithmetic"
    rolled, wide = RolloutSampler(env), Policy([ExactGreedy(np.eye(3).tolist())] * 2)
    follow = r"^policy: expected a rule that compiled code can follow at level 0"
    shape, collect = r"^policy: expected theta of shape \(2, 2\) at level 0", ExactSampler(env, "rational").collect
    refused([
        (lambda: FlowSampler(env).collect(policy, 3, **request), TypeError, words),
        (lambda: ExactSampler(env).collect(policy, 3, **request), TypeError, words),
        (lambda: rolled.collect(policy, 3, **request), TypeError, follow),
        (lambda: rolled.evaluate(policy, 3, stream=Stream(0)), TypeError, follow),
        (lambda: collect(wide, 3, **request), ValueError, shape),
    ])  # fmt: skip


# Results


@every_arithmetic
def test_a_saved_result_keeps_every_digit(digits, tmp_path):
    env = combination_lock(4, 3, rng=0, dimension=3)
    result = dmq.DMQ(ExactSampler(env, digits), n_samples=10**70, initial=[1, 0, 2, 0], rng=0).learn()
    result.save(tmp_path / "r.npz")
    loaded = dmq.load(tmp_path / "r.npz")
    assert loaded.policy == result.policy and loaded.cover == result.cover and loaded.history == result.history
    assert loaded.theta.tolist() == result.theta.tolist() and loaded.counts == result.counts
    assert loaded.n_trajectories > 10**70 and env.value(loaded.policy) == env.value(result.policy)
    assert {type(rule) for rule in loaded.policy.rules} == {ExactGreedy}
    weights = [weight for rule in loaded.policy.rules for row in rule.exact for weight in row]
    assert max(weight.denominator.bit_length() for weight in weights) > 100


def test_damaged_fractions_are_refused(tmp_path):
    env = combination_lock(2, 2, rng=0)
    dmq.DMQ(ExactSampler(env, "rational"), rng=0).learn().save(tmp_path / "r.npz")
    with np.load(tmp_path / "r.npz") as archive:
        arrays = dict(archive)
    for text in ("1/0", "1", "x/1", "1/2/3", ""):
        arrays["rule_fractions"][0, 0, 0] = text
        np.savez(tmp_path / "bad.npz", **arrays)
        with pytest.raises(dmq.FileError, match="damaged"):
            dmq.load(tmp_path / "bad.npz")


def test_a_budget_ends_a_run_in_extended_precision():
    env = combination_lock(3, 2, rng=0)
    sampler = ExactSampler(env, "rational")
    result = dmq.DMQ(sampler, n_samples=10**30, rng=0).learn(max_trajectories=2 * 10**30)
    assert result.status == "max_trajectories" and result.n_trajectories == 2 * 10**30
    unlimited = dmq.DMQ(sampler, n_samples=10**30, rng=0).learn(max_seconds=1e6)
    assert unlimited.status == "ended" and isinstance(unlimited.n_trajectories, int)
    drawn = flat(sampler, n_samples=10**30, mixture="multinomial", rng=0).learn()
    assert drawn.status == "n_samples"


# What is refused, and what is not needed


def test_arithmetics_by_name():
    env = combination_lock(2, 2, rng=0)
    assert as_arithmetic("float64") is FLOAT64 is ExactSampler(env).arithmetic
    assert as_arithmetic("rational").name == "rational" and as_arithmetic(np.int64(50)) == Extended(50) != Extended(60)
    assert hash(Extended(50)) == hash(Extended(50)) and repr(Extended(50)) == "Extended(50)"
    names = r"^arithmetic: expected 'float64', 'rational' or a number of digits"
    refuses([
        *((ValueError, names, ExactSampler, env, wrong) for wrong in ("mpmath", "200")),
        *((TypeError, r"^arithmetic: expected 'float64'", ExactSampler, env, wrong) for wrong in (50.0, True, None)),
        (ValueError, r"^arithmetic: expected at least 20 digits, got 10", ExactSampler, env, 10),
    ])  # fmt: skip


def test_too_few_digits_are_refused(tmp_path):
    env = combination_lock(2, 2, rng=0)
    exact, given = ExactSampler(env, 40), Policy([ExactGreedy(np.eye(3).tolist())] * 2)
    large = r"^n_samples: expected an integer < 2\^63, got 9.*; ExactSampler\(env, "
    refused([
        (lambda: dmq.DMQ(exact, eps_r=1e-36), ValueError, r"^arithmetic: expected at least 56 digits for eps_r = "),
        (lambda: dmq.DMQ(exact).learn(journal=tmp_path / "j"), ValueError, r"^journal: expected none in extended prec"),
        (lambda: dmq.DMQ(ExactSampler(env), n_samples=2**63), ValueError, large),
        (lambda: dmq.DMQ(exact, n_samples=0), ValueError, r"^n_samples: expected an integer >= 1, got 0"),
        (lambda: dmq.DMQ(exact, initial=given), ValueError, r"^initial: expected theta of shape \(2, 2\)"),
    ])  # fmt: skip


@pytest.mark.parametrize("variant", ["paper", "sound", "frugal"])
def test_float64_refuses_what_it_does_not_resolve(variant):
    """Without the refusal such runs do not end: on a lock with two feature vectors in d = 4 every answer was True."""
    env = combination_lock(2, 2, rng=0, dimension=4)
    for sampler in (env, FlowSampler(env), ExactSampler(env)):
        words = (
            r"^eps_r: expected at least 1e-16, .* got 9.9e-17; on a FiniteMDP, ExactSampler\(env, arithmetic=digits\)"
        )
        with pytest.raises(ValueError, match=words):
            dmq.DMQ(sampler, eps_r=9.9e-17, variant=variant)
        assert dmq.DMQ(sampler, n_samples=100, eps_r=1e-16, variant=variant, rng=0).learn().status == "ended"
    exact = dmq.DMQ(ExactSampler(env, "rational"), eps_r=9.9e-17, variant=variant, rng=0).learn()
    assert exact.status == "ended" and env.value(exact.policy) == env.optimal_value
    # Functions that are finitely many have no such directions.
    assert dmq.DMQ(env, function_class=FiniteClass(eps_s=0.1), eps_r=1e-300, variant=variant).parameters.eps_r == 1e-300


def test_digits_need_mpmath_and_fractions_do_not():
    program = """
import sys
sys.modules["mpmath"] = None
import dmq_fast as dmq
env = dmq.environments.combination_lock(2, 2, rng=0)
result = dmq.DMQ(dmq.samplers.ExactSampler(env, "rational"), rng=0).learn()
assert env.value(result.policy) == env.optimal_value
try:
    dmq.samplers.ExactSampler(env, 50)
except ImportError as error:
    assert "dmq-fast[theory]" in str(error)
else:
    raise AssertionError
"""
    subprocess.run([sys.executable, "-P", "-c", program], check=True)


def test_nobodys_precision_matters_and_none_is_changed():
    env = combination_lock(3, 2, rng=0, dimension=3)
    before = mpmath.mp.dps
    expected = dmq.DMQ(ExactSampler(env, 60), rng=0).learn()
    with mpmath.workdps(5):
        assert dmq.DMQ(ExactSampler(env, 60), rng=0).learn().policy == expected.policy
    assert mpmath.mp.dps == before


def test_copies_and_workers_answer_the_same():
    env = combination_lock(3, 2, rng=0, dimension=3)
    sampler = ExactSampler(env, 60)
    expected = dmq.DMQ(sampler, rng=0).learn()
    for other in (pickle.loads(pickle.dumps(sampler)), copy.deepcopy(sampler)):
        assert other.arithmetic == sampler.arithmetic and dmq.DMQ(other, rng=0).learn().policy == expected.policy
    assert dmq.DMQ(sampler, rng=0).learn(workers=2).policy == expected.policy
    with ThreadPoolExecutor(2) as pool:
        assert dmq.DMQ(ParallelSampler(sampler, pool), rng=0).learn().policy == expected.policy


# Linear algebra


@every_arithmetic
@given(seed=st.integers(0, 2**32 - 1), d=st.integers(1, 5))
@settings(max_examples=10, deadline=None)
def test_linear_algebra_agrees_with_lapack(digits, seed, d):
    rng = np.random.default_rng(seed)
    numbers = as_arithmetic(digits)
    a, b = (x @ x.T + 0.1 * np.eye(d) for x in rng.standard_normal((2, d, d)))
    exact_a, exact_b = numbers.convert_array(a), numbers.convert_array(b)
    np.testing.assert_allclose(floats(extended.solve_definite(exact_a, exact_b)), np.linalg.solve(a, b), rtol=1e-8)
    residual = exact_a @ extended.solve_definite(exact_a, exact_b[0]) - exact_b[0]
    assert np.abs(floats(residual)).max() < 1e-30
    top = np.linalg.eigvals(np.linalg.solve(a, b)).real.max()
    assert float(extended.top_eigenvalue(exact_a, exact_b)) == pytest.approx(top, rel=1e-8)
    for factor in (0.999, 1.001):
        assert extended.is_definite(numbers.convert(factor * top) * exact_a - exact_b) == (factor > 1)


def test_definite_means_positive_pivots():
    for matrix, definite in (([[1]], True), ([[0]], False), ([[-1]], False), ([[1, 0], [1, 1]], False)):
        assert extended.is_definite(as_arithmetic("rational").convert_array(matrix)) == definite
    assert extended.top_eigenvalue(*as_arithmetic("rational").convert_array([[[2.0]], [[0.0]]])) == 0


# The property

STALE = 672


def test_without_rechecks_it_fails_on_some_seed():
    row = property_run.run(STALE, names=("paper, fixed", "sound"))
    assert row["paper, fixed"]["loss"] == 0.5 and row["sound"]["loss"] == 0.0


@pytest.mark.parametrize(
    "seed", [*range(5), STALE, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(5, 60))]
)
def test_the_theorem_holds_on_random_mdps(seed):
    row = property_run.run(seed)
    for name in property_run.MUST:
        assert row[name]["within"] and row[name]["loss"] <= row["epsilon"], row
        assert row[name]["cover"] <= row["bound"] and not row[name]["marginal"], row
        assert row[name]["suboptimal"] <= row["epsilon"] / row["H"], row


@pytest.mark.parametrize(
    "seed", [*range(6), *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(10, 300, 5))]
)
def test_random_mdps_meet_the_assumptions_exactly(seed):
    env = property_run.random_mdp(seed)
    assert env.horizon <= 4 and env.n_actions <= 4 and env.dimension <= 4 and 0 < env.gap < 1
    for table in (*env.P, *env.R, *env.features, env.start):
        assert all(x == round(x * 2**24) / 2**24 for x in table.ravel().tolist())
    for P in env.P:
        assert (P.sum(axis=2) == 1.0).all()
    # Q* in fractions is what float64 says, and linear.
    for h, q in enumerate(env.optimal_q):
        phi = [[Fraction(x) for x in row] for row in env.features[h].tolist()]
        for a in range(env.n_actions):
            target = [Fraction(x) for x in q[:, a].tolist()]
            assert solvable(phi, target), (h, a)
    assert np.linalg.norm(env.optimal_theta, axis=2).max() <= 1 + 1e-12


def solvable(rows, right):
    """Return whether rows x = right has a solution, by elimination in fractions."""
    rows = [[*row, value] for row, value in zip(rows, right, strict=True)]
    for column in range(len(rows[0]) - 1):
        pivot = next((row for row in rows if row[column] != 0), None)
        if pivot is not None:
            rows = [
                [x - row[column] / pivot[column] * y for x, y in zip(row, pivot, strict=True)]
                for row in rows
                if row is not pivot
            ]
    return all(row[-1] == 0 for row in rows)


def test_elimination_tells_what_is_linear():
    assert solvable([[1, 0], [1, 1], [0, 1]], [1, 3, 2]) and not solvable([[1, 0], [1, 1], [0, 1]], [1, 3, 3])
    assert not math.isnan(property_run.low_variance_constant(decoy_lock(3))[0])


@pytest.mark.parametrize("seed", range(0, 60, 12))
def test_the_bound_on_c_is_one(seed, monkeypatch):
    env = property_run.random_mdp(seed)
    C, source = property_run.low_variance_constant(env)
    if source == "enumerated":
        monkeypatch.setattr(property_run, "LARGEST_ENUMERATION", 0)
        bound, source = property_run.low_variance_constant(env)
        assert source == "bound" and C <= bound * (1 + 1e-6)
    assert C >= 1


@pytest.mark.parametrize(("digits", "variant"), [(60, "paper"), ("rational", "sound"), ("rational", "frugal")])
@pytest.mark.parametrize("recheck", [False, True])
def test_no_constants_repair_a_check_that_went_stale(digits, variant, recheck):
    """docs/findings.md, B, with constants that satisfy every inequality of the proof: outdated checks remain."""
    env = stale_lock()
    p = corrected(env)
    assert all(one.holds for one in p.check())
    settings = p.dmq_arguments(extended=True) | {"variant": variant, "recheck": recheck, "initial": [2, 0, 0]}
    result = flat(ExactSampler(env, digits), **settings, oracle="decision", rng=0).learn()
    loss = env.optimal_value - env.value(result.policy)
    assert loss <= p.epsilon if recheck else loss == pytest.approx(0.5)


@every_arithmetic
def test_other_classes_are_refused(digits):
    env = combination_lock(4, 3, rng=0, dimension=3)
    with pytest.raises(TypeError, match=r"^function_class: expected a LinearClass in extended precision"):
        dmq.DMQ(ExactSampler(env, digits), function_class=FiniteClass(eps_s=1))
