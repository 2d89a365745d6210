"""Rules and policies: immutable values that compare, hash and pickle by what they do."""

from __future__ import annotations

import copy
import pickle

import numpy as np
import pytest
import twins
from hypothesis import given, settings
from hypothesis import strategies as st

from dmq_fast.kernels import Fixed, Greedy, Rule, Uniform
from dmq_fast.policy import Policy
from dmq_fast.rules import ExactGreedy

pytestmark = pytest.mark.kernels

THETA = np.random.default_rng(0).normal(size=(4, 3, 2))  # H, K, d


def sample_rules():
    return [
        *(Uniform(), Fixed(0), Fixed(1), Fixed(2**31 - 1)),
        *(Greedy([[1.0]]), Greedy([[2.0]]), Greedy([[1.0], [1.0]]), Greedy([[1.0, 1.0]])),
    ]


def test_rules_are_equal_by_value_only():
    for i, one in enumerate(sample_rules()):
        for j, other in enumerate(sample_rules()):
            assert (one == other) is (i == j)
            assert (one != other) is (i != j)
            assert i != j or hash(one) == hash(other)
        assert one != "rule" and one != 0 and one is not None


def test_zero_has_no_sign():
    one, other = Greedy([[0.0, 1.0]]), Greedy([[-0.0, 1.0]])
    assert one == other and hash(one) == hash(other) and len({one, other}) == 1
    assert Policy([one]) == Policy([other]) and hash(Policy([one])) == hash(Policy([other]))


def test_rules_are_a_closed_set():
    with pytest.raises(TypeError, match="use Uniform"):
        Rule()
    with pytest.raises(TypeError, match="use Uniform"):
        Rule.__new__(Rule)
    for base in (Rule, Uniform):
        with pytest.raises(TypeError, match="use Uniform"):
            type("Mine", (base,), {"__init__": lambda self: None})()
    with pytest.raises(TypeError):
        Uniform(3)


@pytest.mark.parametrize("bad", [-1, 2**31, 1.0, "1", None, True, np.float64(1), np.array([1]), 1j])
def test_bad_actions_are_named(bad):
    with pytest.raises(ValueError, match=r"^action: expected an integer in \[0, 2\^31\), got "):
        Fixed(bad)


@pytest.mark.parametrize("action", [3, np.int32(3), np.uint8(3), np.int64(3)])
def test_integers_of_every_width_are_actions(action):
    assert Fixed(action) == Fixed(3) and Fixed(action).action == 3 and type(Fixed(action).action) is int


@pytest.mark.parametrize("shape", [(), (2,), (0, 2), (2, 0), (0, 0), (1, 2, 2)])
def test_theta_of_another_shape_is_named(shape):
    with pytest.raises(ValueError, match=r"^theta: expected shape"):
        Greedy(np.ones(shape))


def test_rules_show_what_they_are():
    assert [repr(rule) for rule in (Uniform(), Fixed(3), Greedy([[1, 2]]))] == [
        "Uniform()",
        "Fixed(3)",
        "Greedy(<theta of shape (1, 2)>)",
    ]
    assert repr(Policy([Uniform(), Fixed(3), Greedy([[1]])])) == "Policy(u[3]g)"


def test_policy_constructors():
    assert Policy.uniform(3).rules == (Uniform(),) * 3
    assert Policy.fixed([0, 2]).rules == (Fixed(0), Fixed(2))
    assert Policy.fixed(np.array([0, 2], dtype=np.int8)) == Policy.fixed((0, 2))
    assert Policy.greedy(THETA).rules == tuple(Greedy(theta) for theta in THETA)
    assert Policy.greedy(THETA).horizon == 4


@settings(deadline=None, max_examples=80)
@given(st.integers(0, 3), st.integers(0, 2), st.booleans())
def test_deviation_is_equation_1(level, action, uniform):
    before = Policy.uniform(4) if uniform else Policy.fixed([2, 1, 0, 1])
    theta = THETA.copy()
    policy = before.deviate(level, action, theta)
    theta[:] = 0.0
    assert policy.rules[:level] == before.rules[:level]
    assert policy.rules[level] == Fixed(action)
    assert policy.rules[level + 1 :] == tuple(Greedy(t) for t in THETA[level + 1 :])
    assert before.deviate(level, action, Policy.greedy(THETA)) == policy
    assert before == (Policy.uniform(4) if uniform else Policy.fixed([2, 1, 0, 1]))


def test_deviations_share_rules_instead_of_copying():
    tail = Policy.greedy(THETA)
    assert Policy.uniform(4).deviate(1, 0, tail).rules[3] is tail.rules[3]


@pytest.mark.parametrize(
    ("level", "error", "words"),
    [
        (-1, ValueError, "an integer >= 0, got -1"),
        (4, ValueError, "an integer < 4, got 4"),
        (100, ValueError, "an integer < 4, got 100"),
        *((level, TypeError, "an integer, got ") for level in (1.0, "1", None, True)),
    ],
)
def test_a_level_that_there_is_not_is_named(level, error, words):
    policy = Policy.uniform(4)
    for call in (
        lambda: policy.deviate(level, 0, THETA),
        lambda: policy.replace(level, Fixed(0)),
        lambda: policy.act(level, [0.0], n_actions=2, rng=np.random.default_rng(0)),
        lambda: policy.probabilities(level, [[0.0]], 2),
    ):
        with pytest.raises(error, match=rf"^level: expected {words}"):
            call()


@pytest.mark.parametrize(("bad", "error"), [(0, ValueError), (-2, ValueError), (2.0, TypeError), ("2", TypeError)])
def test_sizes_of_uniform_policies_are_named(bad, error):
    with pytest.raises(error, match=r"^horizon: expected an integer"):
        Policy.uniform(bad)
    with pytest.raises(error, match=r"^n_actions: expected an integer"):
        Policy.uniform(1).act(0, [0.0], n_actions=bad, rng=np.random.default_rng(0))
    with pytest.raises(error, match=r"^n_actions: expected an integer"):
        Policy.uniform(1).probabilities(0, [[0.0]], bad)


def test_deviation_checks_its_arguments():
    with pytest.raises(ValueError, match=r"^theta: expected 4 levels, got 3"):
        Policy.uniform(4).deviate(0, 0, THETA[:3])
    with pytest.raises(ValueError, match=r"^action"):
        Policy.uniform(4).deviate(0, -1, THETA)
    for theta in (THETA[0], np.ones((4, 0, 2)), THETA * np.nan):
        with pytest.raises(ValueError, match=r"^theta"):
            Policy.uniform(4).deviate(0, 0, theta)
    for theta in (None, THETA * 1j):
        with pytest.raises(TypeError, match=r"^theta"):
            Policy.uniform(4).deviate(0, 0, theta)


def test_replace_changes_one_level():
    policy = Policy.uniform(3).replace(1, Fixed(2))
    assert policy.rules == (Uniform(), Fixed(2), Uniform())


def test_policies_compare_and_pickle_by_their_rules():
    policy = Policy([Uniform(), Fixed(1), Greedy(THETA[0])])
    twin = Policy([Uniform(), Fixed(1), Greedy(THETA[0].copy())])
    assert policy == twin and hash(policy) == hash(twin) and len({policy, twin}) == 1
    assert policy != Policy.uniform(3) and policy != policy.rules and policy != 3
    assert Policy.uniform(2) != Policy.uniform(3)
    for again in (pickle.loads(pickle.dumps(policy)), copy.deepcopy(policy), copy.copy(policy)):
        assert again == policy and hash(again) == hash(policy)


def test_policies_cannot_be_changed():
    policy = Policy.uniform(2)
    for name in ("rules", "horizon", "other"):
        with pytest.raises(AttributeError):
            setattr(policy, name, ())
    with pytest.raises(TypeError):
        policy.rules[0] = Fixed(0)
    rules = [Uniform(), Uniform()]
    policy = Policy(rules)
    rules[0] = Fixed(1)
    assert policy == Policy.uniform(2)


def test_bad_rules_are_named():
    with pytest.raises(ValueError, match=r"^rules: expected at least one level"):
        Policy([])
    for bad in (None, 1, "u", Uniform, THETA[0]):
        with pytest.raises(TypeError, match=r"^rules: expected a Rule at level 1"):
            Policy([Uniform(), bad])
    with pytest.raises(ValueError, match=r"^action"):
        Policy.fixed([0, -1])


def test_act_follows_the_rule_of_the_level():
    policy = Policy([Greedy(THETA[0]), Fixed(2), Uniform()])
    features = np.random.default_rng(5).normal(size=(30, 2))
    best = (features @ THETA[0].T).argmax(axis=1)
    assert (policy.act(0, features) == best).all() and policy.act(0, features).dtype == np.int64
    assert [policy.act(0, phi) for phi in features] == best.tolist()
    assert type(policy.act(0, features[0])) is int and type(policy.act(1, features[0])) is int
    assert (policy.act(1, features) == 2).all()
    drawn = policy.act(2, np.zeros((3000, 2)), n_actions=3, rng=np.random.default_rng(0))
    assert (abs(np.bincount(drawn, minlength=3) - 1000) < 5 * np.sqrt(3000 * 2 / 9)).all()
    assert policy.act(0, features[:0]).shape == (0,)
    with pytest.raises(ValueError, match="rule of level 2 is uniform"):
        policy.act(2, features)
    for wrong in (0, [], np.random.RandomState(0)):
        with pytest.raises(TypeError, match=r"^rng: expected a numpy\.random\.Generator, got"):
            policy.act(2, features, n_actions=3, rng=wrong)


@pytest.mark.parametrize("rule", [Greedy(THETA[0]), ExactGreedy([[1, 2], [3, 4], [5, 6]])])
def test_features_of_another_dimension_are_what_is_named(rule):
    policy = Policy([rule])
    with pytest.raises(ValueError, match=r"^features: expected shape \(any, 2\), got \(1, 3\)"):
        policy.act(0, [1.0, 0.0, 0.0])
    with pytest.raises(ValueError, match=r"^features: expected shape \(any, 2\), got \(4, 1\)"):
        policy.probabilities(0, np.zeros((4, 1)), 3)


@pytest.mark.parametrize("d", [1, 11, 12, 20])
def test_act_gives_ties_to_the_smallest_action(d):
    rng = np.random.default_rng(d)
    theta = np.tile(rng.normal(size=d), (7, 1))
    assert not np.any(Policy([Greedy(theta)]).act(0, rng.normal(size=(50, d))))
    assert Policy([Greedy(theta)]).act(0, rng.normal(size=d)) == 0


def test_probabilities_are_those_of_the_actions():
    policy = Policy([Greedy(THETA[0]), Fixed(2), Uniform()])
    features = np.random.default_rng(5).normal(size=(30, 2))
    assert (policy.probabilities(0, features, 3) == np.eye(3)[policy.act(0, features)]).all()
    assert (policy.probabilities(1, features, 3) == np.eye(3)[2]).all()
    assert (policy.probabilities(2, features, 3) == 1 / 3).all()
    assert policy.probabilities(0, features[:0], 3).shape == (0, 3)


def test_bad_features_are_named():
    policy = Policy([Greedy(THETA[0])])
    for bad in twins.no_numbers(np.ones((2, 2))).values():
        for call in (lambda x: policy.act(0, x), lambda x: policy.probabilities(0, x, 3)):
            with pytest.raises(TypeError, match=r"^features: expected"):
                call(bad)
    for bad in twins.not_finite(np.ones((2, 2))):
        for call in (lambda x: policy.act(0, x), lambda x: policy.probabilities(0, x, 3)):
            with pytest.raises(ValueError, match=r"^features: expected finite"):
                call(bad)
