"""What is measured of policies and results on finite MDPs."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import dmq_fast as dmq
from dmq_fast import Policy
from dmq_fast.certificate import low_variance, policy_values, suboptimal_probability, value_error
from dmq_fast.environments import FiniteMDP, combination_lock, decoy_lock, deep_sea, linear_q, river_swim
from dmq_fast.kernels import Fixed, Uniform


@pytest.fixture
def fork():
    """Two levels: action 0 leads to state 0 or 1 with probabilities .25 and .75, action 1 to state 1 for .1.

    At the second level, state 0 pays .8 for action 0 and nothing for 1; state 1 pays .2 for either.
    """
    return FiniteMDP(
        P=[[[[0.25, 0.75], [0.0, 1.0]]]],
        R=[[[0.0, 0.1]], [[0.8, 0.0], [0.2, 0.2]]],
        features=[[[1.0, 0.0]], [[0.6, 0.8], [0.0, 0.5]]],
    )


def small_mdp(rng, horizon=3, n_states=3, n_actions=2):
    def simplex(*shape):
        weights = rng.random(shape)
        return weights / weights.sum(axis=-1, keepdims=True)

    return FiniteMDP(
        P=[simplex(1 if h == 0 else n_states, n_actions, n_states) for h in range(horizon - 1)],
        R=[rng.random((1 if h == 0 else n_states, n_actions)) / horizon for h in range(horizon)],
        features=[np.eye(n_states)[: 1 if h == 0 else n_states] for h in range(horizon)],
    )


def paths(mdp, policy):
    """Every path: states, actions, probability."""
    sizes, horizon = mdp.n_states, mdp.horizon
    for states in itertools.product(*(range(size) for size in sizes)):
        for actions in itertools.product(range(mdp.n_actions), repeat=horizon):
            probability = mdp.start[states[0]]
            for h in range(horizon):
                taken = policy.probabilities(h, mdp.features[h], mdp.n_actions)[states[h], actions[h]]
                probability *= taken
                if h + 1 < horizon:
                    probability *= mdp.P[h][states[h], actions[h], states[h + 1]]
            if probability > 0:
                yield states, actions, probability


@pytest.mark.parametrize("horizon", [7, 9])
def test_uniform_roll_in_has_no_low_variance(horizon):
    """Finding A: on a deterministic lock, where C = 1, the ratio is K^h."""
    ratios = low_variance(combination_lock(horizon, n_actions=4, rng=0), Policy.uniform(horizon))
    assert ratios[[1, 2, 4, 6]] == pytest.approx([4, 16, 256, 4096], rel=1e-12)
    assert ratios == pytest.approx(4.0 ** np.arange(horizon), rel=1e-12)


def test_the_ratio_is_that_of_the_roll_in_whatever_fails_afterwards():
    """What the proof uses is pi_h^a: uniform before h, deterministic from there on."""
    lock = combination_lock(6, n_actions=4, rng=1)
    secrets = [int(np.argmax(q[0])) for q in lock.optimal_q]
    wrong = Policy.fixed([(action + 1) % 4 for action in secrets])
    for h in range(5):
        policy = Policy([*[Uniform()] * h, *wrong.rules[h:]])
        assert low_variance(lock, policy)[h] == pytest.approx(4.0**h)


@pytest.mark.parametrize("make", [lambda: combination_lock(6, rng=0), lambda: decoy_lock(6), lambda: deep_sea(5)])
def test_deterministic_policies_of_deterministic_mdps_have_ratio_one(make):
    mdp, rng = make(), np.random.default_rng(0)
    for _ in range(20):
        policy = Policy.fixed(rng.integers(mdp.n_actions, size=mdp.horizon))
        assert low_variance(mdp, policy) == pytest.approx(np.ones(mdp.horizon), rel=1e-9)
    theta = rng.normal(size=(mdp.horizon, mdp.n_actions, mdp.dimension))
    assert low_variance(mdp, Policy.greedy(theta)) == pytest.approx(np.ones(mdp.horizon), rel=1e-9)


def test_optimal_policies_have_ratio_one():
    for mdp in (linear_q(rng=0), river_swim()):
        optimal = Policy.greedy(mdp.optimal_theta)
        assert mdp.value(optimal) == pytest.approx(mdp.optimal_value)
        assert (low_variance(mdp, optimal) == 1).all()
        assert (suboptimal_probability(mdp, optimal) == 0).all()


def test_losses_far_below_their_square_root_do_not_underflow():
    """Under action 1 the loss is 1e-12 with probability 1e-3: the ratio is 1000."""
    mdp = FiniteMDP(
        P=[[[[1e-3, 1 - 1e-3]] * 2]],
        R=[[[0.0, 0.0]], [[1e-12, 0.0], [0.0, 0.0]]],
        features=[[[1.0]], [[1.0], [0.5]]],
    )
    assert low_variance(mdp, Policy.fixed([0, 1])) == pytest.approx([1, 1000])


def test_by_hand(fork):
    """V* is .2 + .25 .6 = .35 by action 0 and .1 + .2 = .3 by action 1."""
    wrong_then_wrong, right_then_wrong = Policy.fixed([1, 1]), Policy.fixed([0, 1])
    assert fork.optimal_value == pytest.approx(0.35)
    assert [v.tolist() for v in policy_values(fork, right_then_wrong)] == [pytest.approx([0.15]), [0.0, 0.2]]
    # Losses at the second level: .8 with probability .25.
    assert low_variance(fork, right_then_wrong) == pytest.approx([1, 0.25 * 0.64 / 0.2**2])
    assert low_variance(fork, wrong_then_wrong) == pytest.approx([1, 1])
    assert suboptimal_probability(fork, right_then_wrong) == pytest.approx([0, 0.25])
    # State 1 is a tie, and state 0 is not reached.
    assert suboptimal_probability(fork, wrong_then_wrong) == pytest.approx([1, 0])
    assert suboptimal_probability(fork, Policy.uniform(2)) == pytest.approx([0.5, 0.125 * 0.5])


def test_value_error_by_hand(fork):
    theta = np.zeros((2, 2, 2))
    theta[1, 0] = [1.0, 0.0]
    cover = [[Policy.fixed([0, 0])], [Policy.fixed([0, 0]), Policy.uniform(2)]]
    first, second = value_error(fork, theta, cover)
    assert first == pytest.approx(np.array([[0.35**2, 0.3**2]]))
    # Action 0 is estimated at .6 and 0 where .8 and .2 are right; action 1 at 0 where 0 and .2 are.
    reached = np.array([[0.25, 0.75], [0.125, 0.875]])
    assert second == pytest.approx(reached @ np.array([[0.04, 0.0], [0.04, 0.04]]))


@given(st.integers(0, 2**32 - 1))
def test_everything_agrees_with_the_sum_over_paths(seed):
    rng = np.random.default_rng(seed)
    mdp = small_mdp(rng)
    policy = Policy([Uniform(), Fixed(1), *Policy.greedy(rng.normal(size=(1, 2, 3))).rules])
    theta = rng.normal(size=(3, 2, 3))
    values = policy_values(mdp, policy)
    means, squares, wrong, errors = np.zeros(3), np.zeros(3), np.zeros(3), np.zeros((3, 2))
    for states, actions, probability in paths(mdp, policy):
        for h, (s, a) in enumerate(zip(states, actions, strict=True)):
            loss = mdp.optimal_v[h][s] - values[h][s]
            means[h] += probability * loss
            squares[h] += probability * loss**2
            wrong[h] += probability * (mdp.optimal_q[h][s, a] < mdp.optimal_q[h][s].max())
            errors[h] += probability * (theta[h] @ mdp.features[h][s] - mdp.optimal_q[h][s]) ** 2
    expected = np.divide(squares, means**2, out=np.ones(3), where=means > 1e-12)
    assert low_variance(mdp, policy) == pytest.approx(expected)
    assert suboptimal_probability(mdp, policy) == pytest.approx(wrong)
    assert np.concatenate(value_error(mdp, theta, [[policy]] * 3)) == pytest.approx(errors)
    assert values[0] @ mdp.start == pytest.approx(mdp.value(policy))


@given(st.integers(0, 2**32 - 1))
def test_lemma_a1_bounds_the_loss(seed):
    """At most sum_h P[suboptimal at h] is lost, as rewards add up to at most 1."""
    rng = np.random.default_rng(seed)
    mdp = small_mdp(rng)
    policy = Policy.greedy(rng.normal(size=(3, 2, 3)))
    assert mdp.optimal_value - mdp.value(policy) <= suboptimal_probability(mdp, policy).sum() + 1e-12


def test_small_errors_everywhere_mean_few_suboptimal_actions():
    """The use of invariant 1, with the union over actions: P[suboptimal] <= sum_a E(f - Q*)^2 / (gamma / 2)^2."""
    rng = np.random.default_rng(0)
    for _ in range(50):
        mdp = small_mdp(rng)
        theta = mdp.optimal_theta + rng.normal(size=(3, 2, 3)) * 0.05
        policy = Policy.greedy(theta)
        errors = value_error(mdp, theta, [[policy]] * 3)
        bound = np.array([error.sum() for error in errors]) / (mdp.gap / 2) ** 2
        assert (suboptimal_probability(mdp, policy) <= bound + 1e-12).all()


def test_what_dmq_learns_is_certified():
    lock = combination_lock(8, n_actions=3, rng=0)
    result = dmq.DMQ(lock, n_samples=50, rng=0).learn()
    assert (suboptimal_probability(lock, result.policy) == 0).all()
    errors = value_error(lock, result.theta, result.cover)
    assert [error.shape for error in errors] == [(size, 3) for size in result.cover_sizes]
    assert max(error.max() for error in errors) < (lock.gap / 2) ** 2


def test_rewards_that_depend_on_where_the_last_action_leads():
    mdp = FiniteMDP(P=[[[[0.5, 0.5], [1.0, 0.0]]]], R=[[[[1.0, 0.0], [0.25, 0.0]]]], features=[[[1.0]]])
    assert policy_values(mdp, Policy.uniform(1))[0] == pytest.approx([0.375])
    assert suboptimal_probability(mdp, Policy.uniform(1)) == pytest.approx([0.5])


@pytest.mark.parametrize("measure", [low_variance, suboptimal_probability, policy_values])
def test_policies_that_do_not_fit_are_refused(fork, measure):
    with pytest.raises(ValueError, match="policy: expected 2 rules, one a level, got 3"):
        measure(fork, Policy.uniform(3))
    with pytest.raises(ValueError, match="level 1 takes action 2"):
        measure(fork, Policy.fixed([0, 2]))
    with pytest.raises(TypeError, match="policy: expected a Policy, got str"):
        measure(fork, "uniform")


def test_estimates_and_covers_that_do_not_fit_are_refused(fork):
    with pytest.raises(ValueError, match="theta"):
        value_error(fork, np.zeros((2, 3, 2)), [[], []])
    with pytest.raises(ValueError, match="policies: expected 2 levels, got 1"):
        value_error(fork, np.zeros((2, 2, 2)), [[]])
    with pytest.raises(ValueError, match="policy: expected 2 rules"):
        value_error(fork, np.zeros((2, 2, 2)), [[], [Policy.uniform(1)]])
