"""`from_gymnasium` against the transition tables themselves."""

from __future__ import annotations

import sys
from types import SimpleNamespace

import numpy as np
import pytest
from refusals import refused

from dmq_fast.environments import GymnasiumBatch, from_gymnasium, make
from dmq_fast.policy import Policy

gymnasium = pytest.importorskip("gymnasium")

TAXI = max(name for name in gymnasium.registry if name.startswith("Taxi-v"))
CLIFF = max(name for name in gymnasium.registry if name.startswith("CliffWalking-v"))

CASES = [
    ("FrozenLake-v1", {}, 20),
    ("FrozenLake-v1", {}, 1),
    ("FrozenLake-v1", {}, 6),
    ("FrozenLake-v1", {"is_slippery": False}, 20),
    ("FrozenLake8x8-v1", {}, 30),
    (CLIFF, {}, 20),
    (CLIFF, {}, 5),
    (CLIFF, {"is_slippery": True}, 30),
    (TAXI, {}, 5),
]


def table_optimum(env, horizon):
    """Optimal return by dynamic programming on the transition table, in the environment's own units."""
    best = dict.fromkeys(env.unwrapped.P, 0.0)
    for _ in range(horizon):
        best = {
            state: max(
                sum(p * (r + (0.0 if ended else best[int(after)])) for p, after, r, ended in outcomes)
                for outcomes in actions.values()
            )
            for state, actions in env.unwrapped.P.items()
        }
    return sum(p * best[state] for state, p in enumerate(env.unwrapped.initial_state_distrib))


@pytest.fixture(scope="module", params=CASES, ids=lambda case: f"{case[0]}-{case[1]}-{case[2]}")
def pair(request):
    identifier, arguments, horizon = request.param
    env = gymnasium.make(identifier, **arguments)
    return env, from_gymnasium(env, horizon)


def test_optimum_is_that_of_the_table(pair):
    env, mdp = pair
    expected = table_optimum(env, mdp.horizon)
    tolerance = 1e-13 * max(1, np.abs(mdp.value_range).max())
    assert mdp.optimal_value == pytest.approx(expected, abs=tolerance)
    low, high = mdp.value_range[0]
    assert low <= mdp.value(Policy.uniform(mdp.horizon)) <= mdp.optimal_value <= high + tolerance


def test_rewards_and_features_meet_the_assumptions(pair):
    env, mdp = pair
    if "FrozenLake" in mdp.name:
        assert (mdp.value_range == [0, 1]).all()
    outcomes = [one for actions in env.unwrapped.P.values() for some in actions.values() for one in some]
    rewards = {reward for _, _, reward, _ in outcomes}
    assert {reward for table in mdp.R for reward in np.unique(table)} <= rewards | {0}
    assert all(mask.sum() == (~phi.any(axis=1)).sum() > 0 for mask, phi in zip(mdp.ended, mdp.features, strict=True))
    assert mdp.realizability_residual < 1e-12
    assert len({id(array) for array in (*mdp.P, *mdp.R, *mdp.features)}) <= 3


def test_outcomes_are_those_of_the_table(pair):
    """Joint law of reward and next state (or end), for every reachable state and action."""
    env, mdp = pair
    names = state_names(env, mdp)
    for level in (0, mdp.horizon - 1):
        for state in np.flatnonzero(mdp.reachable[level]):
            for action in range(mdp.n_actions):
                ours = outcome_law(mdp, level, state, action, names)
                theirs = table_law(env, mdp, level, names[state], action)
                assert ours.keys() == theirs.keys()
                for key, probability in theirs.items():
                    assert ours[key] == pytest.approx(probability, abs=1e-15)


def state_names(env, mdp):
    """Gymnasium's state for each state of the MDP, "end" for the absorbing one: states alike in features."""
    table = env.unwrapped.P
    reached, frontier = set(), {int(s) for s in np.flatnonzero(env.unwrapped.initial_state_distrib)}
    for _ in range(mdp.horizon):
        reached |= frontier
        frontier = {
            int(after)
            for state in frontier
            for outcomes in table[state].values()
            for p, after, _, ended in outcomes
            if p > 0 and not ended
        }
    kept = [*sorted(reached), "end"]
    phi = mdp.features[0]
    names = [kept[int(np.flatnonzero((phi[: len(kept)] == row).all(axis=1))[0])] for row in phi]
    assert names[: len(kept)] == kept
    return names


def outcome_law(mdp, level, state, action, names):
    """{(next state, raw reward): probability} by the MDP; the next state is left out at the last level."""
    last = level == mdp.horizon - 1
    rewards = mdp.R[level][state, action]
    law = {}
    if len(mdp.P) == level:
        return {round_key(None, rewards): 1.0}
    for after in np.flatnonzero(mdp.P[level][state, action]):
        reward = rewards[after] if rewards.ndim else rewards
        key = round_key(None if last else names[after], reward)
        law[key] = law.get(key, 0.0) + mdp.P[level][state, action, after]
    return law


def table_law(env, mdp, level, state, action):
    if state == "end":
        return {round_key(None if level == mdp.horizon - 1 else "end", 0.0): 1.0}
    law = {}
    for probability, after, reward, ended in env.unwrapped.P[state][action]:
        name = None if level == mdp.horizon - 1 else "end" if ended else int(after)
        key = round_key(name, reward)
        law[key] = law.get(key, 0.0) + probability
    return law


def round_key(name, reward):
    return name, round(float(reward), 6) + 0.0


@pytest.mark.parametrize(("identifier", "arguments"), [("FrozenLake-v1", {"is_slippery": False}), (CLIFF, {})])
def test_fixed_actions_earn_what_stepping_earns(identifier, arguments):
    env = gymnasium.make(identifier, max_episode_steps=100, **arguments)
    mdp = from_gymnasium(env, 12)
    rng = np.random.default_rng(0)
    for _ in range(30):
        actions = rng.choice([1, 2], size=12)  # towards the goal, or into holes and off the cliff
        env.reset(seed=0)
        earned = 0.0
        for action in actions:
            _, reward, terminated, _, _ = env.step(int(action))
            earned += float(reward)
            if terminated:
                break
        assert mdp.value(Policy.fixed(actions)) == pytest.approx(earned, abs=1e-9)


def test_slippery_lake_has_a_tiny_gap_and_rewards_on_transitions():
    mdp = from_gymnasium("FrozenLake-v1", 20)
    assert mdp.gap == pytest.approx(3.136e-5, rel=1e-3)
    assert all(rewards.ndim == 3 for rewards in mdp.R) and len(mdp.P) == 20
    assert mdp.n_states[0] == 12 and mdp.dimension == 11
    assert not mdp.features[0][-1].any()


def test_values_of_cliff_and_taxi_are_gymnasiums_own():
    cliff = from_gymnasium(CLIFF, 20)
    assert cliff.optimal_value == -13 and cliff.gap == 1
    assert all(rewards.ndim == 2 for rewards in cliff.R) and len(cliff.P) == 19
    # The absorbing state has no features of its own, and pays nothing.
    np.testing.assert_array_equal(cliff.features[0], np.eye(38, 37))
    assert not cliff.R[0][-1].any() and cliff.ended[0].tolist() == [False] * 37 + [True]
    # From level h on: at best the shortest way to the goal, at worst over the cliff with each step.
    best = [-max(1, 13 - h) for h in range(20)]
    assert cliff.value_range.tolist() == [[-100 * (20 - h), best[h]] for h in range(20)]
    taxi = from_gymnasium(TAXI, 20)
    assert taxi.optimal_value == pytest.approx(7.93) and taxi.value_range[0].tolist() == [-200, 15]
    assert taxi.value_range[-1].tolist() == [-10, 20]


def test_a_range_of_ones_own_is_checked():
    assert from_gymnasium(CLIFF, 5, value_range=(-500, 0)).value_range.tolist() == [[-500, 0]] * 5
    with pytest.raises(ValueError, match=r"value_range: .* adds up to -500; write value_range=\(-500, -1\)"):
        from_gymnasium(CLIFF, 5, value_range=(-5, 0))


def test_same_target_with_two_rewards_is_split():
    # 8x8: from the cell left of the goal one action can end in the goal (1) or in a hole (0).
    lake = from_gymnasium("FrozenLake8x8-v1", 60)
    assert lake.n_states[0] == lake.dimension + 2
    np.testing.assert_array_equal(lake.features[0][-2:], 0)
    cliff = from_gymnasium(gymnasium.make(CLIFF, is_slippery=True), 30)
    assert cliff.n_states[0] == cliff.dimension + 2
    np.testing.assert_array_equal(cliff.features[0][-1], cliff.features[0][cliff.start.argmax()])


def test_taxi_over_a_long_horizon_is_small():
    mdp = from_gymnasium(TAXI, 60)
    assert len({id(array) for array in mdp.P}) == len({id(array) for array in mdp.R}) == 1
    assert mdp.P[0].nbytes < 20e6
    assert mdp.start.sum() == pytest.approx(1)
    assert mdp.optimal_value == pytest.approx(table_optimum(gymnasium.make(TAXI), 60), abs=1e-8)


def test_only_states_within_the_horizon_are_kept():
    assert from_gymnasium("FrozenLake-v1", 1).n_states == (2,)
    assert from_gymnasium("FrozenLake-v1", 2).n_states == (4, 4)
    assert from_gymnasium("FrozenLake-v1", 2).gap == np.inf


def test_names_and_parameters():
    env = gymnasium.make("FrozenLake-v1", is_slippery=False)
    mdp = from_gymnasium(env, 8)
    assert mdp.name == "FrozenLake-v1"
    assert mdp.parameters == {"env": "FrozenLake-v1", "horizon": 8, "map_name": "4x4", "is_slippery": False}
    assert from_gymnasium(env, 8, name="lake").name == "lake"
    named = make("gym:FrozenLake-v1", horizon=8, is_slippery=False)
    assert named.parameters == mdp.parameters and named.optimal_value == mdp.optimal_value == 1


# Features of one's own


def test_features_from_an_array_or_a_function():
    rng = np.random.default_rng(0)
    phi = rng.random((16, 3)) / 2
    from_array = from_gymnasium("FrozenLake-v1", 10, features=phi)
    from_function = from_gymnasium("FrozenLake-v1", 10, features=lambda state: list(phi[state]))
    np.testing.assert_array_equal(from_array.features[0], from_function.features[0])
    kept = [0, 1, 2, 3, 4, 6, 8, 9, 10, 13, 14]
    np.testing.assert_array_equal(from_array.features[0], np.vstack([phi[kept], np.zeros(3)]))


def toy(table, initial=(1.0,)):
    return SimpleNamespace(P=table, initial_state_distrib=list(initial))


def test_tables_that_are_not_gymnasiums_own():
    """A bare object with a table is enough; outcomes with the same target and reward are merged."""
    mdp = from_gymnasium(toy({0: {0: [(0.25, 0, 1.0, False), (0.25, 0, 1.0, False), (0.5, 0, 3.0, False)]}}), 2)
    assert mdp.n_states == (3, 3)  # state 0, absorbing, and the copy of state 0 reached with the other reward
    np.testing.assert_array_equal(np.sort(mdp.P[0][0, 0]), [0, 0.5, 0.5])
    assert mdp.optimal_value == pytest.approx(4)
    assert mdp.value_range.tolist() == [[2, 6], [1, 3]]


def test_ended_episodes_stay_ended_even_in_a_state_that_others_pass_through():
    on, end = (0.5, 1, 1.0, False), (0.5, 1, 1.0, True)
    mdp = from_gymnasium(toy({0: {0: [on, end]}, 1: {0: [(1.0, 0, 4.0, False)]}}, (1.0, 0.0)), 2)
    assert mdp.optimal_value == pytest.approx(1 + 0.5 * 4)


ONE = r"env: expected \(probability, next state, reward, terminated\) in P\[0\]\[0\]\[0\], .*, got "
MALFORMED = [
    ({1: {0: []}}, r"env: expected P\[0\] to P\[0\], got none for 0"),
    ({0: {1: []}}, r"env: expected P\[0\]\[0\] to P\[0\]\[0\], got none for 0"),
    ({"a": {0: []}}, r"env: expected numbers as keys of P, each once, got \['a'\]"),
    ({0: {0: [], "0": []}}, r"env: expected numbers as keys of P\[0\], each once"),
    ({0.5: {0: []}}, "env: expected numbers as keys of P, each once"),
    ({0: "ab"}, r"env: expected a mapping or a list in P\[0\], got str"),
    ({0: {0: 3}}, r"env: expected a list of outcomes in P\[0\]\[0\], got int"),
    ({0: {0: [(1.0, 0, 1.0)]}}, ONE + r"\(1.0, 0, 1.0\)"),
    ({0: {0: [(1.0, "a", 1.0, True)]}}, ONE + r"\(1.0, 'a', 1.0, True\)"),
    ({0: {0: [(1.0, 0.9, 1.0, True)]}}, ONE),
    ({0: {0: [(1.0, 0, "1", True)]}}, ONE),
    ({0: {0: [(np.nan, 0, 1.0, True)]}}, ONE),
    ({0: {0: [(1.0, 0, np.inf, False)]}}, ONE),
    ({0: {0: [(1.0, 0, 1.0, "False")]}}, ONE),
    ({0: {0: [(1.0, 0, 1.0, np.nan)]}}, ONE),
    ({0: {0: [(1.0, 1, 1.0, False)]}}, r"env: expected next states in \[0, 1\) in P, got 1"),
    ({0: {0: [(0.5, 0, 1.0, False)]}}, "P: level 0, state 0, action 0: expected probabilities that sum to 1"),
    ({0: {0: [(-1.0, 0, 1.0, False), (2.0, 0, 2.0, False)]}}, "P: level 0, state 0, .*>= 0, got -1"),
    ({0: {0: []}}, "P: level 0, state 0, action 0: .*sum to 1, got 0"),
]

FEATURES = [
    (np.eye(15), ValueError, r"features: expected 16 rows, one for each state, got shape \(15, 15\)"),
    (np.ones(16), ValueError, r"features: expected vectors of one length d, got shape \(11,\)"),
    (np.eye(16) * np.nan, ValueError, "features, state 0, feature 0: expected a finite number, got nan"),
    (np.eye(16) * 2, ValueError, "features: level 0, state 0: expected features of Euclidean norm at most 1"),
    (np.eye(16) * 1j, TypeError, "features: expected real numbers, got dtype complex128"),
    ("one-hot", TypeError, "features: expected real numbers"),
    (lambda state: 1.0, ValueError, "features: expected vectors of one length d"),
    (lambda state: np.ones(1 + state) / 16, ValueError, "features: expected vectors of one length d"),
    (lambda state: None, TypeError, "features: state 0: expected real numbers"),
]


def test_what_cannot_be_read_is_refused(monkeypatch):
    lake = gymnasium.make("FrozenLake-v1")
    stay = [(1.0, 0, 0.0, False)]
    uneven = toy({0: {0: stay}, 1: {0: stay, 1: stay}}, (0.5, 0.5))
    initials = [SimpleNamespace(P={0: {0: []}}, initial_state_distrib=given) for given in ([0.0], [[1.0]], 1.0)]
    refused((lambda table=table: from_gymnasium(toy(table), 2), ValueError, words) for table, words in MALFORMED)
    refused((lambda phi=phi: from_gymnasium(lake, 10, features=phi), error, words) for phi, error, words in FEATURES)
    refused(
        [
            (lambda: from_gymnasium(lake, 0), ValueError, "horizon: expected an integer"),
            (lambda: from_gymnasium(lake, 2.5), TypeError, "horizon: expected an integer"),
            (
                lambda: from_gymnasium("CartPole-v1", 10),
                TypeError,
                "env: .*got CartPoleEnv without P and initial_state",
            ),
            (lambda: from_gymnasium("Blackjack-v1", 10), TypeError, "env: .*got BlackjackEnv without"),
            (lambda: from_gymnasium(3, 10), TypeError, "env: .*got int without"),
            (lambda: from_gymnasium(uneven, 2), ValueError, r"env: expected as many actions .* of P, got \[1, 2\]"),
            *((lambda env=env: from_gymnasium(env, 2), ValueError, "env: .* distribution over") for env in initials),
        ]
    )
    monkeypatch.setitem(sys.modules, "gymnasium", None)
    words = r'env: .*FrozenLake-v1.*pip install "dmq-fast\[gym\]"'
    refused([(lambda: from_gymnasium("FrozenLake-v1", 10), ImportError, words)])


def test_tables_as_json_has_them():
    """Keys are texts, of which "10" is not before "2", or tables are lists of lists."""
    outcomes = [[[1.0, 0, action / 16, True]] for action in range(12)]
    as_lists, as_numbers = [outcomes], {0: dict(enumerate(outcomes))}
    as_json = {"0": {str(action): outcomes[action] for action in reversed(range(12))}}
    rewards = [from_gymnasium(toy(table), 1).R[0][0] for table in (as_numbers, as_lists, as_json)]
    np.testing.assert_array_equal(rewards[0], rewards[1])
    np.testing.assert_array_equal(rewards[0], rewards[2])
    assert (np.diff(rewards[0]) > 0).all()


class Costly(gymnasium.RewardWrapper):
    def reward(self, reward):
        return reward - 0.01


class Mirrored(gymnasium.ActionWrapper):
    def action(self, action):
        return 3 - action


class TimeLimit(gymnasium.Wrapper):
    """Has the name of a harmless one."""


def test_wrappers_that_may_change_the_environment_are_refused():
    inner = gymnasium.make("FrozenLake-v1", is_slippery=False)
    for wrapper in (Costly, Mirrored, TimeLimit):
        env = gymnasium.wrappers.RecordEpisodeStatistics(wrapper(inner))
        with pytest.raises(ValueError, match=f"env: expected no wrapper .*got {wrapper.__name__}.*GymnasiumBatch"):
            from_gymnasium(env, 10)
    assert from_gymnasium(gymnasium.wrappers.RecordEpisodeStatistics(inner), 10).optimal_value == 1


def test_tables_that_are_not_what_steps_are_refused():
    with pytest.raises(
        ValueError, match=r"env: expected a table that is the environment's own, but action \d in state"
    ):
        from_gymnasium(gymnasium.make(TAXI, fickle_passenger=True), 20)
    from_gymnasium(gymnasium.make(TAXI, is_rainy=True), 20)
    other = gymnasium.make("FrozenLake-v1", is_slippery=False)
    other.unwrapped.reset = lambda seed: (5, {})
    with pytest.raises(ValueError, match="but reset leads to a state"):
        from_gymnasium(other, 5)
    wrong = gymnasium.make("FrozenLake-v1", is_slippery=False)
    wrong.unwrapped.step = lambda action: (0, 0.25, False, False, {})
    with pytest.raises(ValueError, match=r"led to 0 with reward 0.25, which P gives no probability"):
        from_gymnasium(wrong, 5)


def test_the_check_of_steps_leaves_the_environment_alone():
    env, twin = (gymnasium.make("FrozenLake-v1") for _ in range(2))
    states = [e.reset(seed=3)[0] for e in (env, twin)]
    from_gymnasium(env, 5)
    for _ in range(20):
        one, other = (e.step(1) for e in (env, twin))
        assert one[:3] == other[:3]
        if one[2] or one[3]:
            break
    assert states[0] == states[1]


def test_an_id_whose_table_is_not_its_own_is_stepped():
    env = make(f"gym:{TAXI}", horizon=10, fickle_passenger=True)
    assert env.value_range is None
    assert isinstance(env, GymnasiumBatch)
    with pytest.raises(ValueError, match="environment's own"):
        make(f"gym:{TAXI}", horizon=10, fickle_passenger=True, through="tables")
