"""Baselines whose levels share data: twins that keep a copy of every step for each level, bits, and what it saves."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import strategies as st
from properties import for_all
from refusals import refused
from test_baselines import (
    ENDLESS,
    compare_least_squares,
    delayed_q_twin,
    episode_of,
    linear_q_twin,
    ocp_twin,
    taught,
    ucb_q_twin,
)
from test_homogeneous import lever, random_table
from test_rollout import random_mdp
from test_tabular_model import BernsteinTwin, PolicyOptimisationTwin, assert_levels_agree

import dmq_fast as dmq
from dmq_fast import experiments
from dmq_fast.baselines import BPIUCBVI, LSVIUCB, OCP, REGISTRY, RLSVI, UCBQ, LinearQ
from dmq_fast.environments import FiniteMDP, chain, deep_sea, mountain_car, river_swim
from dmq_fast.environments.block import block_mdp
from dmq_fast.experiments.sweeps import algorithms
from dmq_fast.kernels._learners import (
    BernsteinLearner,
    DelayedQLearner,
    LinearQLearner,
    PolicyOptimisationLearner,
    SpanLearner,
    UCBQLearner,
)
from dmq_fast.rewards import RewardModel

pytestmark = pytest.mark.kernels

LABELS = {
    "one": lambda h: [0] * h,
    "last apart": lambda h: [0] * (h - 1) + [1],
    "alternating": lambda h: [k % 2 for k in range(h)],
    "two phases": lambda h: [int(2 * k >= h) for k in range(h)],
}

each_labels = pytest.mark.parametrize("labels", LABELS.values(), ids=LABELS)

everywhere = pytest.mark.parametrize("name", REGISTRY)


def walk(horizon, ends=True, low=-1.0):
    """Three states, of which the last is the end with `ends`; every step costs up to -low / horizon."""
    P = np.zeros((3, 2, 3))
    P[0, 0], P[0, 1], P[1, 0], P[1, 1], P[2, :, 2] = [0.5, 0.5, 0], [0, 1, 0], [0.25, 0.25, 0.5], [0, 0.5, 0.5], 1.0
    R = np.array([[low, 0.25 * low], [low, 0.5 * low], [0.0, 0.0]]) / horizon
    features = np.eye(3)
    features[2, 2] = 0.0 if ends else 1.0
    return FiniteMDP([P] * (horizon - 1), [R] * horizon, [features] * horizon, value_range=(low, 0.0))


def corridor(horizon, ends=True):
    """Four states in a row, both ways: deterministic. Steps cost; the last state is the end with `ends`."""
    P = np.zeros((4, 2, 4))
    for s in range(4):
        P[s, 0, max(s - 1, 0)] = P[s, 1, min(s + 1, 3)] = 1.0
    P[3] = np.eye(4)[3]
    R = np.array([[-0.5, -1.0], [-0.25, -1.0], [-0.5, -0.75], [0.0, 0.0]]) / horizon
    features = np.diag([1.0, 1.0, 1.0, 0.0 if ends else 1.0])
    return FiniteMDP([P] * (horizon - 1), [R] * horizon, [features] * horizon, value_range=(-1.0, 0.0))


def environments(seed=0):
    """Pairs (table, model of rewards): levels of equal sizes that differ, and walks that cost and may end early."""
    rng = np.random.default_rng(seed)
    made = [(random_mdp(rng, 5, 4, 3, 4, "dense", shared=True, caps=True), None) for _ in range(2)]
    return [*made, *((env, RewardModel.of(env)) for env in (walk(5), walk(4, ends=False)))]


def played(learner, n):
    """The returns of n episodes."""
    returns = np.zeros(n)
    assert learner.run(returns)
    return returns


def test_which_levels_learn_from_a_step():
    assert [taught([0, 0, 1, 0], h) for h in range(4)] == [[3, 1, 0], [3, 1, 0], [2], [3]]


@each_labels
@pytest.mark.parametrize(("alpha", "clipped", "optimism"), [(None, True, "flat"), (0.2, False, "steps")])
def test_ucb_q(labels, alpha, clipped, optimism):
    for env, model in environments(1):
        groups = labels(env.horizon)
        q, returns, _ = ucb_q_twin(env, 120, 0.1, alpha, clipped, optimism, groups=groups, model=model)
        learner = UCBQLearner(episode_of(env, rewards=model), 0.1, alpha, clipped, optimism=optimism, groups=groups)
        np.testing.assert_allclose(played(learner, 120), returns, rtol=0, atol=1e-12)
        assert_levels_agree(learner.table, q)
        assert sum(n.sum() for n in learner.counts) == 120 * env.horizon


@each_labels
def test_delayed_q(labels):
    for env, model in environments(2):
        for m, epsilon in [(1, 0.02), (5, 0.01)]:
            groups = labels(env.horizon)
            q, returns, _, updates = delayed_q_twin(env, 120, m, epsilon, groups=groups, model=model)
            learner = DelayedQLearner(episode_of(env, rewards=model), m, epsilon, groups=groups)
            np.testing.assert_allclose(played(learner, 120), returns, rtol=0, atol=1e-12)
            assert_levels_agree(learner.table, q)
            assert learner.n_updates == updates > 0


@each_labels
@pytest.mark.parametrize(("optimism", "c1", "c2"), [("flat", 1.0, 0.3), ("steps", 0.5, 0.1)])
def test_bpi_ucbvi(labels, optimism, c1, c2):
    for env, model in environments(3):
        groups = labels(env.horizon)
        learner = BernsteinLearner(episode_of(env, rewards=model), optimism, c1, c2, None, groups=groups)
        twin = BernsteinTwin(env, optimism, c1, c2, groups=groups, model=model)
        for number in range(40):
            assert abs(played(learner, 1)[0] - twin.play(number)) < 1e-12
            assert learner.gap == pytest.approx(twin.gap, rel=1e-9, abs=1e-9)
        assert_levels_agree(learner.table, twin.q)
        assert_levels_agree(learner.lower, twin.low)
        assert_levels_agree(learner.fit(), twin.fit())


@each_labels
@pytest.mark.parametrize(("optimism", "alpha", "beta"), [("flat", 1.0, 0.3), ("steps", 10.0, 0.1)])
def test_oppo(labels, optimism, alpha, beta):
    for env, model in environments(4):
        groups = labels(env.horizon)
        learner = PolicyOptimisationLearner(episode_of(env, rewards=model), optimism, alpha, beta, groups=groups)
        twin = PolicyOptimisationTwin(env, optimism, alpha, beta, groups=groups, model=model)
        np.testing.assert_allclose(played(learner, 40), [twin.play(n) for n in range(40)], rtol=0, atol=1e-12)
        assert_levels_agree(learner.table, twin.q)
        assert_levels_agree(learner.probabilities, twin.pi)
        assert_levels_agree(learner.fit(), twin.fit())


KINDS = [("uniform", 0.0), ("randomized", 0.2), ("confident", 0.3), ("confident", 2.0)]


@for_all(
    30,
    slow=300,
    kind=st.sampled_from(KINDS),
    seed=st.integers(0, 10**6),
    horizon=st.integers(1, 5),
    n_actions=st.integers(1, 3),
    ridge=st.floats(0.01, 2.0),
    labels=st.sampled_from(list(LABELS.values())),
    options=st.fixed_dictionaries(
        {"optimism": st.sampled_from(["flat", "steps"]), "clipped": st.booleans(), "blocks": st.booleans()}
    ),
)
def test_least_squares(kind, seed, horizon, n_actions, ridge, labels, options):
    env = dmq.environments.linear_mdp(horizon, 5, 2, n_actions, rng=seed)
    compare_least_squares(env, kind[0], ridge, kind[1], 20, groups=labels(horizon), **options)


@each_labels
def test_least_squares_of_walks_that_end_and_cost(labels):
    for kind, scale in KINDS:
        env = walk(5)
        compare_least_squares(env, kind, 0.1, scale, 30, groups=labels(5), model=RewardModel.of(env))


def test_least_squares_where_every_observation_is_new():
    env = dmq.environments.lock_gaussian(5, 0.1, 0.4, n_actions=2, rng=0)
    for kind, scale in KINDS[:3]:
        learner = compare_least_squares(env, kind, 0.1, scale, 30, groups=[0] * 5)
        assert learner.n_observations == (0, 120, 120, 120, 120)


@pytest.mark.slow
def test_leverages_stay_right_over_thousands_of_updates():
    compare_least_squares(
        dmq.environments.linear_mdp(4, 5, 2, 1, rng=5), "confident", 1.0, 0.5, 400, groups=[0, 0, 0, 0]
    )


@each_labels
@pytest.mark.parametrize("decays", [(0.0, 0.0), (0.1, 0.3)])
def test_linear_q(labels, decays):
    for env, model in environments(5):
        groups = labels(env.horizon)
        learner = LinearQLearner(episode_of(env, rewards=model), 0.5, decays[0], 0.3, decays[1], groups=groups)
        theta, returns = linear_q_twin(env, 80, 0.5, decays[0], 0.3, decays[1], groups=groups, model=model)
        np.testing.assert_allclose(played(learner, 80), returns, rtol=0, atol=1e-12)
        np.testing.assert_allclose(learner.weights, theta, rtol=1e-9, atol=1e-12)


@each_labels
@pytest.mark.parametrize("ends", [False, True])
def test_ocp(labels, ends):
    env = corridor(6, ends)
    groups, model = labels(6), RewardModel.of(env)
    learner = SpanLearner(episode_of(env, rewards=model), 1e-6, groups=groups)
    mine = played(learner, 60)
    rows, returns = ocp_twin(env, 60, groups, model)
    np.testing.assert_allclose(mine, returns, rtol=0, atol=1e-12)
    assert learner.ranks.tolist() == [[len(y) for _, y in level] for level in rows]
    assert learner.n_conflicts == 0 and mine[-1] == pytest.approx(env.optimal_value, abs=1e-12)
    assert OCP(env, n_episodes=60, rng=0).groups == (0,) * 6


# The argument ---------------------------------------------------------------------------------------------------------


@everywhere
def test_labels_that_all_differ_are_data_by_level(name):
    env, own = corridor(6), {"n_episodes": 80, "rng": 1, **ENDLESS.get(name, {})}
    plain, labelled = (REGISTRY[name](env, homogeneous=given, **own).learn() for given in (False, range(6)))
    np.testing.assert_array_equal(plain.returns, labelled.returns)
    for one, other in zip(plain.table or plain.theta, labelled.table or labelled.theta, strict=True):
        np.testing.assert_array_equal(one, other)
    assert plain.parameters == labelled.parameters and plain.parameters["homogeneous"] is False


@everywhere
def test_the_default_is_what_the_table_declares(name):
    own = {"n_episodes": 80, "rng": 1, **ENDLESS.get(name, {})}
    for env, declared in [(corridor(6), True), (deep_sea(6, rng=0), False)]:
        default, given = REGISTRY[name](env, **own), REGISTRY[name](env, homogeneous=declared, **own)
        assert default.groups == given.groups == (tuple([0] * 6) if declared else tuple(range(6)))
        np.testing.assert_array_equal(default.learn().returns, given.learn().returns)
        assert default.parameters["homogeneous"] is declared
    phases = REGISTRY[name](corridor(6), homogeneous=[7, 7, 7, 2, 2, 2], **own)
    assert phases.groups == (0, 0, 0, 1, 1, 1) and phases.learn().parameters["homogeneous"] == [0, 0, 0, 1, 1, 1]


def test_rows_that_may_never_repeat_are_shared_on_request():
    env = mountain_car(10, order=1)
    assert env.homogeneous is True
    assert LSVIUCB(env).groups == tuple(range(10)) and LSVIUCB(env, homogeneous=True).groups == (0,) * 10
    shared = LSVIUCB(env, homogeneous=True, n_episodes=20, n_evaluation=10, rng=0).learn()
    assert shared.counts["observations"][1:] == [180] * 9


def test_wrong_labels_are_refused():
    uneven = FiniteMDP([np.full((1, 2, 2), 0.5)], [np.zeros((1, 2)), np.zeros((2, 2))], [np.eye(1, 2), np.eye(2)])
    words = r"homogeneous: expected 'auto', True, False, or 3 integers, one label a level, got "
    refused(
        [
            (lambda: UCBQ(chain(3, 2), homogeneous="yes"), ValueError, words + "'yes'"),
            (lambda: RLSVI(chain(3, 2), homogeneous=[0, 0]), ValueError, words),
            (
                lambda: BPIUCBVI(uneven, homogeneous=True),
                ValueError,
                "homogeneous: expected levels of one label to have as many states, got 1 and 2",
            ),
            (lambda: LinearQ(chain(3, 2), homogeneous=[0.0, 1.0, 2.0]), ValueError, words),
            (
                lambda: UCBQLearner(episode_of(chain(3, 2)), 0.1, None, True, groups=[0, 0]),
                ValueError,
                "groups: expected 3 integers, one label a level",
            ),
        ]
    )


def test_a_block_mdp_may_declare_it():
    env = block_mdp(river_swim(4, 6))
    assert BPIUCBVI(env).groups == tuple(range(6))
    shared, table = BPIUCBVI(env, homogeneous=True, rng=0).learn(), BPIUCBVI(river_swim(4, 6), rng=0).learn()
    np.testing.assert_array_equal(shared.returns, table.returns)


# What it saves, and the promise ---------------------------------------------------------------------------------------

TABLES = {
    "river": lambda seed: river_swim(6, 20),
    "chain": lambda seed: chain(20, rng=seed),
    "dense": random_table,
    "sparse": lambda seed: random_table(seed, paying=0.1),
}

TUNED = {
    "bpi-ucbvi": {},
    "lsvi-ucb": {"beta": 0.01, "ridge": 1e-5, "clipped": True, "optimism": "steps"},
    "rlsvi": {"sigma": 0.03},
    "ucb-q": {"c": 0.001},
    "oppo": {"beta": 0.1},
}


def regret(env, result, n):
    """Mean loss of the rewards of the first n episodes."""
    return env.optimal_value - result.returns[:n].mean()


@pytest.mark.parametrize("family", TABLES)
@pytest.mark.parametrize("name", TUNED)
def test_shared_data_save_episodes(name, family):
    saved = []
    for seed in range(5):
        env, own = TABLES[family](seed), TUNED[name] | {"n_episodes": 300, "checkpoints": 1, "rng": seed}
        own |= ENDLESS.get(name, {})
        losses = [regret(env, REGISTRY[name](env, homogeneous=shared, **own).learn(), 300) for shared in (False, True)]
        saved.append(losses[1] < losses[0])
    assert sum(saved) >= 4


@pytest.mark.parametrize("family", TABLES)
def test_bpi_ucbvi_stops_sooner_and_within_epsilon(family):
    for seed in range(10):
        env = TABLES[family](seed)
        result = BPIUCBVI(env, n_episodes=20_000, checkpoints=1, rng=seed).learn()
        assert result.status == "finished" and env.optimal_value - result.value <= 0.05
        apart = BPIUCBVI(env, homogeneous=False, n_episodes=3 * result.n_trajectories, checkpoints=1, rng=seed).learn()
        assert apart.status == "max_trajectories"


def test_bpi_ucbvi_pulls_a_lever_as_often_as_its_constant_says():
    """A lever of chance p is given up after k c2 / epsilon pulls, k of them an episode."""
    env = lever(40, 0.04, 0.5)
    losses = [env.optimal_value - BPIUCBVI(env, n_episodes=20_000, rng=seed).learn().value for seed in range(40)]
    assert sum(loss > 0.05 for loss in losses) <= 5


@pytest.mark.parametrize("given", ["auto", "no", "0,0,0,1"])
def test_sweeps_name_labels(tmp_path, given):
    spec = {
        "environments": [{"name": "river-swim", "n_states": 3, "horizon": 4}],
        "algorithms": [{"name": "rlsvi", "n_episodes": 20, "homogeneous": given}],
        "seeds": 1,
    }
    experiments.sweep(spec, tmp_path)
    row = experiments.load(tmp_path)[0]
    expected = {False: False, "no": False, "0,0,0,1": [0, 0, 0, 1]}.get(given, True)
    assert row["details"]["parameters"]["homogeneous"] == expected


def test_a_cell_with_data_by_level_is_that_of_version_0_2_0():
    lock = {"name": "lock", "horizon": 2, "n_actions": 2}
    named = [{"name": "rlsvi", "homogeneous": False}, {"name": "rlsvi"}, {"name": "ucb-q", "homogeneous": False}]
    cells = experiments.read({"environments": [lock], "algorithms": named}).cells
    by_level, shared, another = (cell.id for cell in cells)
    assert (by_level, another) == ("a4828e368678306704c9", "00dc8276153ae23eb9b9") and shared != by_level
    with pytest.raises(ValueError, match="homogeneous: expected auto, yes, no, or labels such as 0,0,0,1, got 'maybe'"):
        algorithms.find("rlsvi")(chain(3, 2), 0, homogeneous="maybe")
    with pytest.raises(ValueError, match=r"^homogeneous: expected auto"):
        algorithms.find("self-stopping")(chain(3, 2), 0, homogeneous="maybe")
