"""Rewards of any sign, size and noise: the model, and self-stopping runs in points (docs/rewards.md)."""

import logging

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import dmq_fast as dmq
from dmq_fast.results.result import SelfStoppingResult
from dmq_fast.rewards import RewardModel
from dmq_fast.stopping.aim import Aim
from dmq_fast.stopping.outcome import coarse, mean_interval


class Walk:
    """Five states in a row; the last one pays `scale` at the end, and every end pays `shift`. Means plus noise."""

    n_actions, dimension = 2, 5

    def __init__(self, scale=1.0, shift=0.0, sigma=0.0, *, horizon=6, slip=0.1, early=False, **declared):
        self.horizon, self.scale, self.shift, self.sigma, self.slip = horizon, scale, shift, sigma, slip
        self.early = early  # whether the last state ends an episode
        vars(self).update(declared)

    def reset(self, n, rng):
        return np.zeros(n, dtype=int)

    def features(self, level, states):
        return np.eye(6)[states][:, :5]

    def step(self, level, states, actions, rng):
        over = states == 5
        states = np.minimum(states + actions * (rng.random(len(states)) >= self.slip), 4)
        ends = ~over & ((level == self.horizon - 1) | (self.early & (states == 4)))
        rewards = self.scale * (ends & (states == 4)) + self.shift * ends
        if self.sigma:
            rewards = rewards + self.sigma * rng.standard_normal(len(states)) * ~over
        return np.where(over | (ends & self.early), 5, states), rewards


UNIT = {"value_range": (0.0, 1.0)}


def learned(env, epsilon=None, seed=3, **how):
    return dmq.SelfStopping(env, epsilon, rng=seed, **how).learn(max_trajectories=60_000)


# ---- The model


@pytest.mark.parametrize(
    ("value_range", "said"),
    [
        ("all", "'seen'"),
        ((0, 1, 2), "low, high"),
        ((1, 0), "low < high"),
        ((1, 1), "low < high"),
        ((0, np.nan), "finite"),
        ([(0, 1)] * 5, "each of 6 levels"),
        (3.0, "low, high"),
    ],
)
def test_a_range_of_another_form_is_refused(value_range, said):
    with pytest.raises(ValueError, match=said):
        dmq.SelfStopping(Walk(), value_range=value_range)
    with pytest.raises(ValueError, match=said):
        dmq.SelfStopping(Walk(value_range=value_range))


@pytest.mark.parametrize("noise", [0.0, -1.0, np.inf, np.nan, "s"])
def test_a_noise_that_is_none_is_refused(noise):
    with pytest.raises((TypeError, ValueError), match="noise"):
        dmq.SelfStopping(Walk(**UNIT), noise=noise)


@pytest.mark.parametrize(
    ("epsilon", "said"),
    [(7.0, "7"), (-1.0, "epsilon"), ("5", "share"), ("0%", "share"), ("100%", "share"), ("x%", "share")],
)
def test_an_epsilon_that_promises_nothing_is_refused(epsilon, said):
    with pytest.raises(ValueError, match=said):
        dmq.SelfStopping(Walk(value_range=(-3, 4)), epsilon)


def test_an_argument_takes_the_place_of_a_declaration():
    env = Walk(value_range=(-3, 4), noise=0.5)
    assert RewardModel.of(env).describe() == {"value_range": [-3.0, 4.0], "noise": 0.5}
    assert RewardModel.of(env, (0, 1), 2).describe() == {"value_range": [0.0, 1.0], "noise": 2.0}
    assert not RewardModel.of(env, "seen").known and not RewardModel.of(Walk()).known
    by_level = RewardModel.of(env, [(-6 + h, 0) for h in range(6)])
    assert (by_level.low, by_level.width, by_level.tops.tolist()) == (-6.0, 6.0, [1.0] * 6)


@given(low=st.floats(-1e6, 1e6), width=st.floats(1e-3, 1e6), units=st.floats(0, 1))
def test_points_and_units_are_converted_back(low, width, units):
    model = RewardModel(np.array([[low, low + width]]))
    assert model.in_units(model.value(units) - model.low) == pytest.approx(units, abs=1e-6)


# ---- No shift and no scale changes a run


SCALES = [(7.0, -3.0), (1e-3, 20.0)]


@pytest.mark.parametrize(
    ("early", "scale", "shift", "how"),
    [
        (True, 7.0, -3.0, {}),
        (False, 1e6, -1e6, {}),
        (True, 1e-3, 20.0, {"mode": "quick"}),
        (False, 7.0, -3.0, {"mode": "many"}),
        (True, 7.0, -3.0, {"noise": 0.2}),
        (False, 1e-3, 20.0, {"noise": 0.2}),
    ],
)
def test_a_run_is_the_same_for_every_shift_and_scale(early, scale, shift, how):
    """Data, decisions and policy; values are moved alike. The shift is paid once, where an episode ends."""
    sigma, how = how.get("noise", 0.0), {key: value for key, value in how.items() if key != "noise"}
    base = learned(Walk(sigma=sigma, early=early, noise=sigma or None, **UNIT), 0.05, **how)
    declared = {"value_range": (shift, shift + scale), "noise": scale * sigma or None}
    other = learned(Walk(scale, shift, scale * sigma, early=early, **declared), 0.05 * scale, **how)
    assert (base.status, other.status) == ("finished", "finished")
    assert other.counts == base.counts
    np.testing.assert_allclose(other.theta, base.theta, rtol=1e-6, atol=1e-6)
    for key in ("mean_return", "interval"):
        np.testing.assert_allclose(other.stopping[key], shift + scale * np.array(base.stopping[key]), rtol=1e-6)
    for key in ("upsides", "rare_transitions", "loss_quantile"):
        np.testing.assert_allclose(other.stopping[key], scale * np.array(base.stopping[key]), atol=1e-6 * scale)
    assert len(other.warnings) == len(base.warnings)


@pytest.mark.parametrize(("scale", "shift"), SCALES)
def test_a_share_and_a_range_that_is_seen_are_the_same_for_every_shift_and_scale(scale, shift):
    base, other = learned(Walk(), "10%"), learned(Walk(scale, shift), "10%")
    assert other.counts == base.counts
    np.testing.assert_allclose(other.interval, shift + scale * np.array(base.interval), rtol=1e-6)
    assert other.parameters["epsilon"] == pytest.approx(scale * base.parameters["epsilon"])


# ---- Ranges


def test_the_default_is_a_share_where_the_range_is_not_that_of_the_paper():
    assert learned(Walk(**UNIT)).parameters["epsilon"] == 0.05
    result = learned(Walk(7.0, -3.0, value_range=(-3, 4)))
    # Uniform play is worth about -3 + 7 * 0.3, the best policy about -3 + 7 * 0.98.
    assert result.parameters["share"] == 0.05
    span = result.stopping["mean_return"] - result.stopping["uniform"]
    assert 0.5 * 0.05 * span < result.parameters["epsilon"] <= 0.05 * span * 1.05


def test_a_range_declared_wrongly_costs_no_episode_and_is_named():
    right = learned(Walk(7.0, -3.0, value_range=(-3, 4)), 0.35)
    wrong = learned(Walk(7.0, -3.0, value_range=(0, 1)), 0.35)
    assert wrong.status == "finished" and wrong.theta.shape == right.theta.shape
    (warning,) = wrong.warnings
    assert "an episode earned -3 from level 0 on, outside of value_range = (0, 1)" in warning
    assert "value_range=(-3, 4)" in warning
    assert wrong.stopping["rewards"]["value_range"] == [-3.0, 7.5]  # as where nothing is declared
    assert not wrong.stopping["rewards"]["declared"] and "in (-3, 7.5)" in wrong.stopping["promise"]
    low, high = wrong.interval
    assert low < 3.8 < high


def test_the_range_that_a_warning_names_holds_what_was_seen_from_every_level_on():
    class Toll(Walk):
        """A toll of 8 at the start, and up to 7 at the end: more can be earned from later levels on than in all."""

        def step(self, level, states, actions, rng):
            states, rewards = super().step(level, states, actions, rng)
            return states, rewards - 8.0 * (level == 0)

    (warning,) = learned(Toll(7.0, value_range=(0, 1)), 0.35).warnings
    assert "such as value_range=(-8, 7)" in warning
    assert not learned(Toll(7.0, value_range=(-8, 7)), 0.35).warnings


def test_a_range_that_is_too_narrow_for_the_best_policy_hides_it_no_longer():
    """One episode of the worst arm is within the range: the others would not seem worth trying."""

    class Paid(Arms):
        horizon, n_actions, noise = 2, 3, None

        def step(self, level, states, actions, rng):
            return states, np.array([1000.0, 2000.0, 4000.0])[actions]

    for value_range, epsilon in (((0, 1), 0.9), ((1900, 2100), 180), (None, 900)):
        for seed in range(2 if epsilon < 900 else 6):
            result = learned(Paid(0.0, value_range=value_range), epsilon, seed)
            assert [result.policy.act(h, [1.0]) for h in range(2)] == [2, 2]


def test_a_range_that_is_seen_is_a_condition_of_the_promise():
    result = learned(Walk(7.0, -3.0), 0.35)
    assert result.status == "finished" and result.stopping["rewards"]["declared"] is False
    assert result.stopping["rewards"]["value_range"] == [-3.0, 7.5]  # half as wide again as what was seen
    assert "no policy earns more or less than in (-3, 7.5)" in result.stopping["promise"]


@pytest.mark.parametrize("epsilon", [1.0, 2.0, 50.0])
def test_an_epsilon_of_a_point_or_more_is_kept_before_a_range_was_seen(epsilon):
    result = learned(Walk(70.0, -30.0), epsilon)
    assert result.status == "finished" and result.parameters["epsilon"] == epsilon
    assert Aim.of(epsilon, width=None).p_min <= 0.5


def test_a_range_that_is_seen_is_not_that_of_the_first_episode():
    class Arms:
        """Two levels of three arms, of which the first is the worst."""

        horizon, n_actions, dimension = 2, 3, 1

        def reset(self, n, rng):
            return np.zeros(n, dtype=int)

        def features(self, level, states):
            return np.ones((len(states), 1))

        def step(self, level, states, actions, rng):
            return states, np.array([1000.0, 2000.0, 4000.0])[actions]

    for seed in range(5):
        result = learned(Arms(), 900.0, seed)
        assert result.status == "finished" and result.stopping["mean_return"] == pytest.approx(8000.0)
        assert result.stopping["uniform"] is None


def test_an_epsilon_that_any_policy_keeps_is_named_at_the_start_with_one_that_would_not(caplog):
    with caplog.at_level(logging.WARNING):
        result = learned(Walk(0.2, 0.4, **UNIT), 0.5)
    (said,) = (record.getMessage() for record in caplog.records)
    assert said in result.warnings or "epsilon = 0.01 would" in said
    assert coarse(5.0, -20.0, -13.0) == (
        "returns lie between -20 and -13, within epsilon = 5 of each other, so any policy that was played would keep "
        "the promise; epsilon = 0.3 would tell them apart"
    )


def test_an_epsilon_within_which_the_policy_is_of_the_worst_that_was_seen_is_named():
    class Fine(Walk):
        """Whoever does not move at all pays a fine of 30."""

        def step(self, level, states, actions, rng):
            states, rewards = super().step(level, states, actions, rng)
            return states, rewards - 30.0 * ((states == 0) & (level == self.horizon - 1))

    result = learned(Fine(-3.0, -5.0, value_range=(-35, -5)), 10.0)
    low, high = result.stopping["rewards"]["returns_seen"]
    assert (low, high) == (-35.0, -5.0) and result.stopping["mean_return"] > -6.0 and not result.warnings
    (warning,) = learned(Fine(-3.0, -5.0, value_range=(-35, -5)), 29.5, seed=1).warnings
    assert "within epsilon = 29.5 of the least that an episode earned" in warning
    assert "a policy that always earns -35 would keep it too" in warning


def test_a_journal_goes_on_where_the_range_was_seen_or_left(tmp_path):
    for name, declared in (("seen", {}), ("left", UNIT)):
        path, expected = tmp_path / name, learned(Walk(7.0, -3.0, **declared), "10%", 5)
        cut = dmq.SelfStopping(Walk(7.0, -3.0, **declared), "10%", rng=5)
        cut.learn(max_trajectories=expected.n_trajectories // 2, journal=path)
        resumed = dmq.SelfStopping(Walk(7.0, -3.0, **declared), "10%", rng=5).learn(journal=path)
        assert (resumed.theta == expected.theta).all() and resumed.stopping == expected.stopping
        with pytest.raises(dmq.JournalError, match="rewards"):
            dmq.SelfStopping(Walk(7.0, -3.0, value_range=(-3, 5)), "10%", rng=5).learn(journal=path)


def test_results_of_rewards_in_points_are_saved(tmp_path):
    result = learned(Walk(7.0, -3.0), "10%")
    result.save(tmp_path / "run.npz")
    again = dmq.load(tmp_path / "run.npz")
    assert isinstance(again, SelfStoppingResult) and again.stopping == result.stopping
    assert again.parameters == result.parameters and again.mode == result.mode


# ---- Noise


class Arms:
    """Eleven arms that pay 0, 0.1, ..., 1 plus normal noise."""

    horizon, n_actions, dimension, value_range = 1, 11, 1, (0.0, 1.0)

    def __init__(self, sigma, guess=None, **declared):
        self.sigma, self.noise = sigma, (sigma if guess is None else guess) or None
        vars(self).update(declared)

    def reset(self, n, rng):
        return np.zeros(n, dtype=int)

    def features(self, level, states):
        return np.ones((len(states), 1))

    def step(self, level, states, actions, rng):
        return states, actions / 10 + self.sigma * rng.standard_normal(len(states))


def failures(make, seeds, best):
    """Numbers of runs that finished, and of those whose arm is not the best, which loses .1 = 2 epsilon."""
    found = [learned(make(), seed=seed) for seed in range(seeds)]
    finished = [result for result in found if result.status == "finished"]
    return len(finished), sum(int(result.theta[0, :, 0].argmax()) != best for result in finished)


@pytest.mark.parametrize(("sigma", "guess", "seeds"), [(0.1, None, 40), (0.3, None, 40), (0.3, 0.03, 30)])
def test_noisy_arms_fail_no_more_often_than_delta(sigma, guess, seeds):
    finished, wrong = failures(lambda: Arms(sigma, guess), seeds, 10)
    assert finished == seeds
    assert wrong <= {40: 5, 30: 4}[seeds]  # more have a probability below 4 % if each fails with delta = 0.05


def test_the_interval_of_noisy_returns_is_student_s():
    rng = np.random.default_rng(0)
    missed = 0
    for _ in range(400):
        low, high = mean_interval(rng.normal(3.0, 2.0, size=12), 0.1)
        missed += not low <= 3.0 <= high
    assert missed <= 58  # 40 are expected; more have a probability below 0.3 %
    assert mean_interval(np.array([1.0]), 0.1) == (-np.inf, np.inf)


# ---- Aims


@settings(max_examples=50)
@given(points=st.floats(1e-3, 0.4), width=st.floats(1.0, 1e3))
def test_an_aim_in_other_units_promises_the_same_points(points, width):
    aim = Aim.of(points, 0.1).in_units_of(width)
    assert aim.points == points and aim.epsilon == pytest.approx(points / width)
    assert aim.p_min == aim.epsilon and aim.test_size(1) >= Aim.of(points, 0.1).test_size(1)
    share = Aim.of("5%", width=width)
    assert share.in_units_of(10.0).points == pytest.approx(0.5) and share.tightened(0.1).points == 0.1
