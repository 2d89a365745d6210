"""FiniteMDP: certificates of the exact solution, and one clear error for each way to get the input wrong."""

from __future__ import annotations

import copy
import functools
import pickle

import numpy as np
import pytest
import twins
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from refusals import refused
from test_rollout import random_mdp, random_policy

from dmq_fast.environments import FiniteMDP
from dmq_fast.policy import Policy

EPS = np.finfo(np.float64).eps


def mdps(horizon, largest, n_actions):
    """Strategy for MDPs with one-hot features, levels of different sizes, and every kind of transition and reward."""
    return st.builds(
        lambda seed, horizon, n_actions, caps: random_mdp(
            np.random.default_rng(seed), horizon, largest, n_actions, largest, "one-hot", caps=caps
        ),
        seed=st.integers(0, 2**32),
        horizon=horizon,
        n_actions=n_actions,
        caps=st.booleans(),
    )


any_mdp = mdps(st.integers(1, 5), 5, st.integers(1, 4))
small_mdp = mdps(st.just(3), 3, st.just(2))


def paths(mdp, policy=None):
    """Every path of positive probability as (probability, mean reward, largest reward, states)."""

    def extend(level, state, probability, total, largest, states):
        if level == mdp.horizon:
            yield probability, total, largest, states
            return
        chances = (
            np.ones(mdp.n_actions)
            if policy is None
            else policy.probabilities(level, mdp.features[level], mdp.n_actions)[state]
        )
        for action in np.flatnonzero(chances):
            following = mdp.P[level][state, action] if level < len(mdp.P) else np.ones(1)
            for after in np.flatnonzero(following):
                reward = mdp.R[level][state, action]
                reward = reward[after] if np.ndim(reward) else reward
                top = mdp.caps[level] if reward > 0 and mdp.caps[level] > 0 else reward
                yield from extend(
                    level + 1,
                    after,
                    probability * chances[action] * following[after],
                    total + reward,
                    largest + top,
                    (*states, (level, int(state), int(action))),
                )

    for first in np.flatnonzero(mdp.start):
        yield from extend(0, first, mdp.start[first], 0.0, 0.0, ())


# Certificates


@given(any_mdp)
def test_optimal_values_satisfy_the_bellman_equations(mdp):
    for level in range(mdp.horizon):
        q, v = mdp.optimal_q[level], mdp.optimal_v[level]
        ahead = 0.0
        if level + 1 < mdp.horizon:
            ahead = np.einsum("sat,t->sa", mdp.P[level], mdp.optimal_v[level + 1])
        assert np.abs(q - mdp.expected_rewards[level] - ahead).max() <= 8 * EPS
        assert np.array_equal(v, q.max(axis=1))
    assert mdp.optimal_value == pytest.approx(float(mdp.start @ mdp.optimal_v[0]), abs=4 * EPS)
    assert mdp.optimal_value <= mdp.tight_range[0, 1] + 16 * EPS
    assert mdp.value(Policy.greedy(mdp.optimal_theta)) == pytest.approx(mdp.optimal_value, abs=1e-14)


@settings(max_examples=25)
@given(small_mdp, st.integers(0, 2**32))
def test_value_is_the_sum_over_paths(mdp, seed):
    policy = random_policy(np.random.default_rng(seed), mdp)
    enumerated = list(paths(mdp, policy))
    assert sum(p for p, *_ in enumerated) == pytest.approx(1, abs=1e-14)
    assert mdp.value(policy) <= mdp.optimal_value + 1e-14
    assert mdp.value(policy) == pytest.approx(sum(p * total for p, total, *_ in enumerated), abs=1e-14)
    visits = [np.zeros(size) for size in mdp.n_states]
    for probability, _, _, states in enumerated:
        for level, state, _ in states:
            visits[level][state] += probability
    for exact, summed in zip(mdp.occupancy(policy), visits, strict=True):
        np.testing.assert_allclose(exact, summed, atol=1e-14)


@settings(max_examples=25)
@given(small_mdp)
def test_path_sum_reachability_and_gap_by_enumeration(mdp):
    enumerated = list(paths(mdp))
    assert mdp.tight_range[0, 1] == pytest.approx(max(largest for _, _, largest, _ in enumerated), abs=1e-14)
    visited = {(level, state) for *_, states in enumerated for level, state, _ in states}
    masks = [(level, int(s)) for level, mask in enumerate(mdp.reachable) for s in np.flatnonzero(mask)]
    assert set(masks) == visited
    gaps = [
        mdp.optimal_v[level][state] - q
        for level, state in visited
        for q in mdp.optimal_q[level][state]
        if mdp.optimal_v[level][state] - q > 1e-12
    ]
    assert mdp.gap == (pytest.approx(min(gaps)) if gaps else np.inf)


@given(any_mdp)
def test_one_hot_features_realise_q_star(mdp):
    assert mdp.optimal_theta.shape == (mdp.horizon, mdp.n_actions, mdp.dimension)
    assert mdp.realizability_residual <= 64 * EPS
    for level, mask in enumerate(mdp.reachable):
        # Minimum norm: nothing is put on the features of states that cannot be reached.
        elsewhere = ~mdp.features[level][mask].any(axis=0)
        assert np.abs(mdp.optimal_theta[level][:, elsewhere]).max(initial=0.0) <= 64 * EPS


def test_theta_is_the_least_squares_fit_where_q_star_is_not_linear():
    rng = np.random.default_rng(0)
    phi = rng.random((6, 2)) / 2
    mdp = FiniteMDP([], [rng.random((6, 3))], [phi], np.full(6, 1 / 6))
    residual = mdp.optimal_q[0] - phi @ mdp.optimal_theta[0].T
    np.testing.assert_allclose(phi.T @ residual, 0, atol=1e-14)
    assert mdp.realizability_residual == pytest.approx(np.abs(residual).max()) != 0


def test_gap_ignores_ties_rounding_and_unreachable_states():
    third = 0.1 + 0.2  # differs from .3 by rounding only
    mdp = FiniteMDP([], [[[0.3, third], [0.3, 0.1]]], [np.eye(2)])
    assert mdp.gap == np.inf
    assert mdp.reachable[0].tolist() == [True, False]
    everywhere = FiniteMDP([], [[[0.3, third], [0.3, 0.1]]], [np.eye(2)], [0.5, 0.5])
    assert FiniteMDP([np.ones((1, 2, 1))], [np.zeros((1, 2))] * 2, [[[1.0]]] * 2).gap == np.inf
    assert everywhere.gap == pytest.approx(0.2)


def test_rewards_of_the_last_level_may_depend_on_the_terminal_state():
    mdp = FiniteMDP([[[[0.25, 0.75], [1.0, 0.0]]]], [[[[1.0, 0.0], [0.5, 1.0]]]], [[[1.0]]])
    assert mdp.horizon == 1 and mdp.n_states == (1,)
    np.testing.assert_array_equal(mdp.expected_rewards[0], [[0.25, 0.5]])
    assert mdp.tight_range[0, 1] == 1.0  # the reward 1 of action 1 has probability 0
    assert mdp.gap == 0.25


def test_bernoulli_caps_count_in_the_path_sum():
    mdp = FiniteMDP([], [[[0.25, 0.0]]], [[[1.0]]], caps=[0.5])
    assert mdp.tight_range[0, 1] == 0.5
    assert mdp.optimal_value == 0.25


def test_policies_that_do_not_fit_are_refused():
    mdp = random_mdp(np.random.default_rng(0), 3, 3, 2, 3, "one-hot")
    short, horizons = Policy.uniform(2), "policy: expected 3 rules, one a level, got 2"
    for method in (mdp.value, mdp.occupancy):
        refused(
            [
                (functools.partial(method, short), ValueError, horizons),
                (functools.partial(method, "greedy"), TypeError, "^policy: expected a Policy, got str$"),
            ]
        )


# Input: what is accepted


def plain(horizon=2):
    """Arguments of a valid MDP with two states and two actions, as fresh writable arrays."""
    return {
        "P": [np.array([[[0.25, 0.75], [1, 0]], [[0, 1], [0.5, 0.5]]]) for _ in range(horizon - 1)],
        "R": [np.array([[0.0, 0.5], [0.25, 0.125]]) * 2 / horizon for _ in range(horizon)],
        "features": [np.array([[1.0, 0.0], [0.5, 0.5]]) for _ in range(horizon)],
    }


def test_forms_of_arrays_are_equivalent():
    move, paid = np.eye(2)[[[0, 1], [1, 0]]], np.array([[0.0, 1.0], [0.0, 0.0]])
    given = {"P": [move], "R": [np.zeros((2, 2)), paid], "features": [np.eye(2)] * 2, "start": np.eye(2)[1]}
    expected = FiniteMDP(**given)
    for name in ("P", "R", "features"):
        forms = twins.layouts(given[name][-1]) | {"bool": given[name][-1].astype(bool)}
        for form, array in forms.items():
            mdp = FiniteMDP(**given | {name: [*given[name][:-1], array]})
            for ours, theirs in zip(getattr(mdp, name), getattr(expected, name), strict=True):
                assert ours.dtype == np.float64 and ours.flags.c_contiguous and not ours.flags.writeable, form
                np.testing.assert_array_equal(ours, theirs)
    for form, array in twins.layouts(given["start"]).items():
        mdp = FiniteMDP(**given | {"start": array})
        assert mdp.start.dtype == np.float64 and mdp.reachable[0].tolist() == [False, True], form


def test_stacked_arrays_and_generators():
    arguments = plain(3)
    stacked = FiniteMDP(**{key: np.array(value) for key, value in arguments.items()})
    lazy = FiniteMDP(**{key: (array for array in value) for key, value in arguments.items()})
    assert stacked.optimal_value == lazy.optimal_value == FiniteMDP(**arguments).optimal_value


def test_arrays_of_the_caller_are_copied_and_stay_writable():
    arguments = plain()
    mdp = FiniteMDP(**arguments)
    arguments["R"][0][...] = 7
    assert mdp.R[0].max() == 0.5
    with pytest.raises(ValueError, match="read-only"):
        mdp.R[0][0, 0] = 1
    for array in (
        mdp.optimal_q[0],
        mdp.optimal_v[0],
        mdp.reachable[0],
        mdp.optimal_theta,
        mdp.start,
        mdp.caps,
        mdp.value_range,
        mdp.tight_range,
    ):
        assert not array.flags.writeable


def homogeneous(horizon=50, n_states=3):
    rng = np.random.default_rng(0)
    P = rng.dirichlet(np.ones(n_states), size=(n_states, 2))
    R = rng.random((n_states, 2)) / horizon
    return FiniteMDP([P] * (horizon - 1), [R] * horizon, [np.eye(n_states)] * horizon)


def test_copies_keep_sharing_and_protection_and_leave_the_solution_behind():
    original = homogeneous()
    before = len(pickle.dumps(original))
    value = original.optimal_value
    assert np.isfinite(original.gap) and original.optimal_theta.any() and len(pickle.dumps(original)) == before
    for clone in (lambda m: m, copy.copy, copy.deepcopy, lambda m: pickle.loads(pickle.dumps(m))):
        mdp = clone(original)
        assert len({id(a) for a in mdp.P}) == len({id(a) for a in mdp.R}) == len({id(a) for a in mdp.features}) == 1
        assert not any(a.flags.writeable for a in (*mdp.P, *mdp.R, *mdp.features, mdp.start, mdp.caps, mdp.value_range))
        assert mdp.optimal_value == value
        assert mdp.horizon == 50 and mdp.parameters == original.parameters and repr(mdp) == repr(original)


def test_repr_is_short():
    assert repr(homogeneous()) == ("FiniteMDP('finite-mdp', horizon=50, n_states=3, n_actions=2, dimension=3)")
    mixed = FiniteMDP([np.ones((1, 1, 2)) / 2], [np.zeros((1, 1)), np.zeros((2, 1))], [[[1.0]], [[1.0], [1.0]]])
    assert "n_states=1..2" in repr(mixed)


# Input: what is refused, and how the message says it


def spoiled(name, level, index, value):
    """Valid arguments with one element replaced."""
    arguments = plain()
    arguments[name][level][index] = value
    return arguments


def replaced(name, level, value):
    arguments = plain()
    arguments[name][level] = value
    return arguments


HALF = np.full((2, 2), 0.5)

VALUES = [
    (spoiled("P", 0, (1, 0, 1), 0.5), r"P: level 0, state 1, action 0: .*sum to 1, got 0\.5"),
    (spoiled("P", 0, (0, 1), [1.5, -0.5]), r"P: level 0, state 0, action 1, next state 1: .*>= 0, got -0\.5"),
    (
        spoiled("P", 0, (1, 1, 0), np.nan),
        "P: level 0, state 1, action 1, next state 0: expected a finite number, got nan",
    ),
    (spoiled("P", 0, (0, 0, 0), np.inf), "P: level 0, state 0.*got inf"),
    (spoiled("P", 0, (0, 0), 1e308), "P: level 0, state 0, action 0: .*sum to 1, got inf"),
    (spoiled("R", 0, (0, 1), np.nan), "R: level 0, state 0, action 1: .*finite.*got nan"),
    (spoiled("R", 0, (0, 1), np.inf), "R: level 0, state 0, action 1: .*finite.*got inf"),
    (
        plain() | {"R": [np.full((2, 2), 1e308)] * 2},
        r"R: expected rewards .* between -1e\+100 and 1e\+100 on every path, got 1e\+308",
    ),
    (spoiled("features", 1, (0, 1), 1.0), r"features: level 1, state 0: .*norm at most 1, got 1\.414"),
    (spoiled("features", 0, (1, 1), 1e200), "features: level 0, state 1: .*got inf"),
    (
        spoiled("features", 0, (1, 1), np.nan),
        "features: level 0, state 1, feature 1: expected a finite number, got nan",
    ),
    (plain() | {"start": [0.5, 0.4]}, r"start: .*sum to 1, got a sum of 0\.9"),
    (plain() | {"start": [1.5, -0.5]}, r"start, state 1: .*>= 0, got -0\.5"),
    (plain() | {"start": [np.nan, 1]}, "start, state 0: .*finite"),
    (plain() | {"start": [1.0]}, r"start: expected shape \(2,\), got \(1,\)"),
    (plain() | {"start": []}, r"start: .*at least one.*\(0,\)"),
    (plain() | {"caps": [1.0]}, r"caps: expected shape \(2,\), got \(1,\)"),
    (plain() | {"caps": [0.0, -1.0]}, "caps: level 1: .*>= 0, got -1"),
    (plain() | {"caps": [0.0, np.nan]}, "caps, level 1: .*finite number, got nan"),
    (plain() | {"caps": [0.25, 0.0]}, r"R: level 0, state 0, action 1: .*at most the cap 0\.25, got 0\.5"),
    (
        replaced("R", 0, np.zeros((2, 2, 2))) | {"caps": [1.0, 0.0]},
        "caps: level 0: expected 0 where the rewards depend on the next state, got 1",
    ),
    (plain() | {"R": []}, "R: expected at least one level"),
    (plain(3) | {"P": plain(2)["P"]}, "P: expected 2 arrays for the 3 levels of R.*got 1"),
    (plain() | {"P": plain(4)["P"]}, "P: expected 1 arrays.*got 3"),
    (plain() | {"features": plain(1)["features"]}, "features: expected 2 arrays.*got 1"),
    (replaced("P", 0, HALF), r"P: level 0: expected shape \(S, K, S'\), got \(2, 2\)"),
    (replaced("P", 0, np.full((2, 2, 4), 0.25)), r"P: level 0: expected shape \(2, 2, 2\), got \(2, 2, 4\)"),
    (replaced("R", 1, [0.0, 0.0]), r"R: level 1: expected shape \(S, K\) or .*got \(2,\)"),
    (replaced("R", 1, np.zeros((2, 3))), r"R: level 1: expected shape \(2, 2\), got \(2, 3\)"),
    (replaced("R", 1, np.zeros((3, 2))), r"level \d: expected shape"),
    (replaced("R", 0, np.zeros((2, 2, 3))), r"R: level 0: expected shape \(2, 2, 2\), got \(2, 2, 3\)"),
    (
        replaced("R", 1, np.zeros((2, 2, 2))),
        r"R: level 1: expected shape \(S, K\), got \(2, 2, 2\).*need a transition array",
    ),
    (replaced("features", 0, [1.0, 0.0]), r"features: level 0: expected shape \(S, d\)"),
    (replaced("features", 1, np.eye(2, 3)), r"features: level 1: expected shape \(2, 2\), got \(2, 3\)"),
    (replaced("features", 1, np.eye(3, 2)), r"features: level 1: expected shape \(2, 2\)"),
    (replaced("R", 0, np.zeros((0, 2))), r"R: level 0: .*at least one.*got shape \(0, 2\)"),
    (replaced("R", 0, np.zeros((2, 0))), r"R: level 0: .*got shape \(2, 0\)"),
    (replaced("features", 0, np.zeros((2, 0))), r"features: level 0: .*got shape \(2, 0\)"),
    (replaced("P", 0, np.zeros((2, 2, 0))), r"P: level 0: .*got shape \(2, 2, 0\)"),
    (replaced("R", 0, [[0.0], [0.0, 0.0]]), "R: level 0: .*unequal lengths"),
    (
        spoiled("R", 1, (1, 0), -0.1) | {"caps": [0.0, 1.0]},
        r"R: level 1, state 1, action 0: expected a mean >= 0 of a reward of 0 or 1, got -0\.1",
    ),
    (plain() | {"value_range": (1, 0)}, r"value_range: .*low < high, got \(1, 0\)"),
    (plain() | {"value_range": "seen"}, r"value_range: expected \(low, high\) or None, as tables know .*got 'seen'"),
    (plain() | {"value_range": [(0, 1)] * 3}, "value_range: .*one such pair for each of 2 levels"),
]

TYPES = [
    (replaced("R", 1, np.zeros((2, 2), complex)), "R: level 1: .*complex128"),
    (replaced("P", 0, np.zeros((2, 2, 2), object)), "P: level 0: .*object"),
    (replaced("features", 0, [["a", "b"]] * 2), "features: level 0: .*real numbers, got dtype <U1"),
    (replaced("R", 0, np.zeros((2, 2), "M8[s]")), "R: level 0: .*datetime64"),
    (replaced("R", 0, None), "R: level 0: .*object"),
    (plain() | {"P": None}, "P: expected a sequence of arrays, one a level, got NoneType"),
    (plain() | {"R": 0.5}, "R: expected a sequence of arrays, one a level, got float"),
    (plain() | {"features": np.array(1.0)}, "features: expected a sequence of arrays"),
    (plain() | {"P": "P"}, "P: level 0: expected real numbers"),
    (replaced("R", 0, np.zeros((2, 2), np.longdouble)), "R: level 0: expected numbers that fit float64"),
    (plain() | {"start": [1j, 0]}, "start: expected real numbers, got dtype complex128"),
    (plain() | {"caps": ["a", "b"]}, "caps: expected real numbers"),
]


def test_arguments_that_do_not_fit_are_refused():
    for error, table in ((ValueError, VALUES), (TypeError, TYPES)):
        refused([(functools.partial(FiniteMDP, **arguments), error, message) for arguments, message in table])


def sums_of(*arguments, **more):
    """The range of the first level, which is that of a whole path."""
    return FiniteMDP(*arguments, **more).value_range[0].tolist()


def test_path_sum_is_that_of_the_best_and_the_worst_actions():
    P = [np.ones((1, 2, 1))] * 3
    R = [[[0.0, 0.5]], [[0.25, 0.4]], [[0.125, 0.0]], [[0.25, 0.0]]]
    assert sums_of(P, R, [[[1.0]]] * 4) == [0.25, 1.275]
    assert FiniteMDP(P, R, [[[1.0]]] * 4).value_range[2].tolist() == [0.0, 0.375]


def test_path_sum_follows_positive_probabilities_from_the_start_only():
    heavy = [[0.0, 0.0], [1.0, 1.0]]
    stay = np.eye(2)[[[0, 0], [1, 1]]]
    assert FiniteMDP([stay], [heavy] * 2, [np.eye(2)] * 2).tight_range[0].tolist() == [0, 0]
    assert sums_of([stay], [heavy] * 2, [np.eye(2)] * 2) == [0, 1]
    assert sums_of([stay], [heavy] * 2, [np.eye(2)] * 2, [0.5, 0.5]) == [0, 2]
    leak = stay * (1 - 1e-9)
    leak[:, :, ::-1] += 1e-9 * stay
    assert sums_of([leak], [heavy] * 2, [np.eye(2)] * 2) == [0, 1]
    assert sums_of([leak] * 2, [heavy] * 3, [np.eye(2)] * 3) == [0, 2]


def test_path_sum_with_rewards_on_transitions_and_caps():
    to_second = np.zeros((1, 1, 2))
    to_second[...] = 0.5
    rewards = np.array([[[0.25, 0.75]]])
    last = np.full((2, 1), 0.5)
    features = [[[1.0]], [[1.0], [1.0]]]
    assert sums_of([to_second], [rewards, last], features) == [0.75, 1.25]
    halves = [rewards * [[[1, 0]]], last * [[0.5], [0]]]
    assert sums_of([to_second], halves, features, caps=[0.0, 1.0]) == [0, 1.25]
    certain = [rewards, np.ones((2, 1))]
    assert sums_of([to_second], certain, features, caps=[0.0, 1.0]) == [1.25, 1.75]


def pay_and_end(*costs, kept=2.0):
    """Action 1 ends the episode, whose state has features 0; action 0 pays `costs` by level, and `kept` in the end."""
    move = np.eye(2)[[[0, 1], [1, 1]]]
    R = [np.array([[cost, -1.0], [0.0, 0.0]]) for cost in (*costs, kept)]
    return {"P": [move] * len(costs), "R": R, "features": [[[1.0], [0.0]]] * (len(costs) + 1)}


def test_states_that_have_ended_are_worth_nothing_and_do_not_count():
    mdp = FiniteMDP(**pay_and_end(-3.0, -3.0))
    assert [mask.tolist() for mask in mdp.ended] == [[False, True]] * 3
    assert mdp.value_range.tolist() == [[-7, -1], [-4, -1], [-1, 2]]
    assert mdp.value_range is not mdp.ended and not mdp.value_range.flags.writeable and not mdp.ended[0].flags.writeable
    assert mdp.optimal_value == -1 and mdp.gap == 3
    # A state with features 0 that pays, or leads to one that does not have features 0, has not ended.
    paying, leaving = pay_and_end(-3.0, -3.0), pay_and_end(-3.0, -3.0)
    paying["R"][2][1, 0] = -9
    assert [mask.tolist() for mask in FiniteMDP(**paying).ended] == [[False, False]] * 3
    assert FiniteMDP(**paying).value_range.tolist() == [[-13, -1], [-10, 0], [-9, 2]]
    leaving["P"] = [leaving["P"][0], np.eye(2)[[[0, 1], [1, 0]]]]
    assert [mask.tolist() for mask in FiniteMDP(**leaving).ended] == [[False, False]] * 2 + [[False, True]]
    # The same of rewards and features in their other forms.
    dense = pay_and_end(-3.0, -3.0)
    on_edges = [np.where(P > 0, R[:, :, None], 7.0) for P, R in zip(dense["P"], dense["R"], strict=False)]
    assert FiniteMDP(**dense | {"R": [*on_edges, dense["R"][-1]]}).value_range.tolist() == mdp.value_range.tolist()


def test_the_range_is_that_of_the_paper_where_rewards_are():
    assert FiniteMDP(**plain()).value_range.tolist() == [[0, 1]] * 2
    assert FiniteMDP(**plain()).gap_tolerance == 4 * EPS * 8
    # A cost makes it the tightest one, also where all sums are in [0, 1].
    mdp = FiniteMDP([np.ones((1, 2, 1))], [[[-0.25, 0.0]], [[0.5, 0.5]]], [[[1.0]]] * 2)
    assert mdp.value_range.tolist() == [[0.25, 0.5], [0.5, 0.5]]


@pytest.mark.parametrize("reward", [-3.0, 5.0, 2.0 + 1e-12])
def test_where_every_policy_is_worth_the_same_the_range_reaches_to_nothing(reward):
    mdp = FiniteMDP([], [[[reward, reward]]], [[[1.0]]])
    assert mdp.value_range.tolist() == [[min(reward, 0), max(reward, 0)]]


def test_a_range_that_is_given_holds_what_the_tables_pay():
    arguments = pay_and_end(-3.0, -3.0)
    for bounds in ((-7, 2), [(-7, -1), (-4, -1), (-1, 2)], (-50, 50)):
        mdp = FiniteMDP(**arguments, value_range=bounds)
        np.testing.assert_array_equal(mdp.value_range, np.broadcast_to(bounds, (3, 2)))
        assert mdp.tight_range.tolist() == [[-7, -1], [-4, -1], [-1, 2]]
    told = (
        r"value_range: .* from a level on, got \(-6, 2\), but a path from level 0 on adds up to -7; "
        r"write value_range=\(-7, 2\)"
    )
    with pytest.raises(ValueError, match=told):
        FiniteMDP(**arguments, value_range=(-6, 2))
    with pytest.raises(ValueError, match="a path from level 2 on adds up to 2; write"):
        FiniteMDP(**arguments, value_range=[(-7, -1), (-4, -1), (-1, 1)])


@given(any_mdp, st.floats(0.1, 30), st.floats(-9, 9))
def test_rewards_of_any_sign_and_size_change_values_alike(mdp, scale, cost):
    assume(not mdp.caps.any())
    paid = [scale * rewards + cost for rewards in mdp.R]
    moved = FiniteMDP(mdp.P, paid, mdp.features, mdp.start)
    policy = random_policy(np.random.default_rng(0), mdp)
    tolerance = 1e-13 * (1 + scale + abs(cost) * mdp.horizon)
    assert moved.value(policy) == pytest.approx(scale * mdp.value(policy) + cost * mdp.horizon, abs=tolerance)
    low, high = moved.tight_range[0]
    assert low - tolerance <= moved.value(policy) <= moved.optimal_value + tolerance <= high + 2 * tolerance


def test_tolerances_leave_room_for_rounding():
    P = np.full((1, 1, 3), [0.1, 0.2, 0.7])
    assert FiniteMDP([P], [[[0.1]], np.full((3, 1), 0.9 + 1e-12)], [[[1 + 1e-12]], [[1.0]] * 3]).horizon == 2
