"""Self-stopping runs on environments that are the same at every level: episodes, losses, journals, what is declared."""

import numpy as np
import pytest

import dmq_fast as dmq
from dmq_fast.environments import FiniteMDP
from dmq_fast.homogeneity import as_labels, equal_levels, groups_of
from dmq_fast.kernels import OptimisticPlanner
from dmq_fast.samplers import as_sampler
from dmq_fast.stopping.levels import difference
from dmq_fast.stopping.tuning import TUNING, Tuning

ENVIRONMENTS = dmq.environments


def random_table(seed, n_states=10, n_actions=3, horizon=20, paying=0.5):
    """Dirichlet transitions, Bernoulli rewards in a share of the pairs: at most 1 / H a step."""
    rng = np.random.default_rng([21, seed])
    P = rng.dirichlet(np.full(n_states, 0.2), size=(n_states, n_actions))
    R = rng.random((n_states, n_actions)) * (rng.random((n_states, n_actions)) < paying) / horizon
    start = rng.dirichlet(np.ones(n_states))
    features = [np.eye(n_states)] * horizon
    return FiniteMDP([P] * (horizon - 1), [R] * horizon, features, start, caps=[1 / horizon] * horizon)


def lever(horizon, chance, decoy):
    """A lever that pays 1 with a small chance, and then ends the episode; leaving pays the decoy."""
    P, R = np.zeros((2, 2, 2, 2))
    P[1, :, 1] = P[0, 1, 1] = 1
    P[0, 0] = 1 - chance, chance
    R[0, :, 1] = 1.0, decoy
    return FiniteMDP([P] * horizon, [R] * horizon, [np.eye(2, 1)] * horizon)


def timed_lock(seed, horizon=10):
    """Two states; the right action depends on the level."""
    P, R = np.zeros((horizon, 2, 3, 2)), np.zeros((horizon, 2, 3))
    P[:, :, :, 1] = 1
    key = np.random.default_rng(seed).integers(3, size=horizon)
    P[np.arange(horizon), 0, key] = 1, 0
    R[-1, 0, key[-1]] = 1
    return FiniteMDP(P[:-1], R, [np.eye(2)] * horizon)


def late_door(horizon=20, opens=12):
    """Leaving pays .3, and .8 from a level on; waiting costs nothing."""
    P = np.zeros((2, 2, 2))
    P[0, 0, 0] = P[0, 1, 1] = 1
    P[1, :, 1] = 1
    R = [np.array([[0, 0.3 if level < opens else 0.8], [0, 0]]) for level in range(horizon)]
    return FiniteMDP([P] * (horizon - 1), R, [np.eye(2, 1)] * horizon)


def two_tables(seed, horizon=20, n_states=6):
    """One random table in the first half, another in the second."""
    rng = np.random.default_rng(seed)
    P = rng.dirichlet(np.full(n_states, 0.3), size=(2, n_states, 2))
    R = (rng.random((2, n_states, 2)) < 0.3) * rng.random((2, n_states, 2)) / horizon
    half = [int(2 * level >= horizon) for level in range(horizon)]
    return FiniteMDP([P[i] for i in half[:-1]], [R[i] for i in half], [np.eye(n_states)] * horizon)


FAMILIES = {
    "river": (lambda seed: ENVIRONMENTS.river_swim(6, 20), 142, 94),
    "dense": (lambda seed: random_table(seed), 184, 131),
    "sparse": (lambda seed: random_table(seed, paying=0.1), 328, 139),
    "chain": (lambda seed: ENVIRONMENTS.chain(20, rng=seed), 94, 85),
}


@pytest.mark.parametrize("mode", ["strict", "quick"])
@pytest.mark.parametrize("family", FAMILIES)
def test_few_episodes_and_no_failures(family, mode):
    """Medians of the prototype, but for what ten seeds leave open; per-level data need 2 to 10 times as many."""
    make, strict, quick = FAMILIES[family]
    episodes = []
    for seed in range(10):
        env = make(seed)
        result = dmq.learn(env, mode=mode, rng=seed)
        assert result.status == "finished" and env.optimal_value - env.value(result.policy) <= 0.05
        assert (
            set(result.stopping["homogeneous"]["groups"]) == {0} and not result.stopping["homogeneous"]["differences"]
        )
        episodes.append(result.n_trajectories)
    assert np.median(episodes) <= 1.2 * (strict if mode == "strict" else quick)


def test_a_lever_is_pulled_until_it_cannot_pay():
    """One claim a path lost 12 % of such runs: the lever counts for forty chances."""
    env = lever(40, 0.04, 0.5)
    assert env.optimal_value > 0.75
    losses = [env.optimal_value - env.value(dmq.learn(env, rng=seed).policy) for seed in range(20)]
    assert sum(loss > 0.05 for loss in losses) <= 3  # one is allowed in the mean


@pytest.mark.parametrize("env", [timed_lock(0), timed_lock(1), late_door(), two_tables(0)], ids=str)
def test_levels_that_differ_are_found(env):
    assert env.homogeneous is False
    result = dmq.learn(env, homogeneous=True, rng=0)
    assert result.status == "finished" and env.optimal_value - env.value(result.policy) <= 0.05
    found = result.stopping["homogeneous"]
    assert len(found["differences"]) == max(found["groups"]) > 0
    first = found["differences"][0]
    assert any(f"action {first['action']}" in text and f"level {first['level']}" in text for text in result.warnings)


def test_no_false_alarm_where_levels_are_the_same():
    env = random_table(3)
    for seed in range(20):
        result = dmq.learn(env, rng=seed)
        assert not result.stopping["homogeneous"]["differences"]


def test_a_difference_names_pair_and_level():
    """Row 0, action 1 pays from level 3 on: 40 episodes of a walk that stays where it is."""
    planner = OptimisticPlanner(6, 2, 1, 1e-12, 3.0, [0] * 6)
    rng = np.random.default_rng(0)
    for _ in range(40):
        actions = rng.integers(2, size=6)
        planner.add(np.ones((6, 1)), actions, 0.1 * ((np.arange(6) >= 3) & (actions == 1)))
    planner.plan(0.05)
    found = difference(planner, TUNING, 0)
    assert (found.level, found.row, found.action, found.what) == (3, 0, 1, "reward")
    assert difference(planner, Tuning(level_visits=1000), 0) is None


@pytest.mark.parametrize("cut", [3, 30, 90, 160])
@pytest.mark.parametrize("name", ["river", "large river", "lock", "batch"])
def test_a_run_that_was_cut_goes_on_to_the_bit(tmp_path, name, cut):
    make = {
        "river": lambda: ENVIRONMENTS.river_swim(6, 20),
        "large river": lambda: ENVIRONMENTS.river_swim(6, 20),
        "lock": lambda: timed_lock(0),
        "batch": lambda: ENVIRONMENTS.with_noise(random_table(0, 4, 2, 6), 0.0),
    }[name]

    def learner():
        # Of large tables a plan looks at few claims again, which depends on the plans before.
        tuning = Tuning(large_table=0) if name == "large river" else TUNING
        return dmq.SelfStopping(make(), homogeneous=True, tuning=tuning, rng=2)

    whole = learner().learn(max_trajectories=400)
    learner().learn(max_trajectories=cut, journal=tmp_path / "journal")
    resumed = learner().learn(max_trajectories=400, journal=tmp_path / "journal")
    assert resumed.theta.tobytes() == whole.theta.tobytes()
    assert resumed.counts == whole.counts and resumed.stopping == whole.stopping


def test_what_is_declared():
    class Own:
        horizon, n_actions, dimension = 3, 2, 1

        def reset(self, n, rng):
            return np.zeros(n)

        def features(self, level, states):
            return np.ones((len(states), 1))

        def step(self, level, states, actions, rng):
            return states, actions * 0.1

    def labels(env):
        return groups_of(as_sampler(env))

    assert labels(Own()) == (0, 1, 2)
    Own.homogeneous = True
    assert labels(Own()) == (0, 0, 0)
    Own.homogeneous = [5, 5, 2]
    assert labels(Own()) == (0, 0, 1)
    assert labels(ENVIRONMENTS.river_swim(6, 4)) == (0,) * 4
    assert labels(ENVIRONMENTS.deep_sea(9)) == labels(ENVIRONMENTS.combination_lock(9, 4, rng=0)) == tuple(range(9))
    assert labels(ENVIRONMENTS.mountain_car(5)) == (0,) * 5 and labels(ENVIRONMENTS.mountain_car(201))[:2] == (0, 1)
    assert labels(ENVIRONMENTS.with_noise(ENVIRONMENTS.river_swim(6, 4), 0.1)) == (0,) * 4
    assert labels(ENVIRONMENTS.with_noise(ENVIRONMENTS.river_swim(6, 4), 0.1, last=True)) == (0, 1, 2, 3)
    last = [np.zeros(2), np.zeros(2), np.ones(2)]
    assert equal_levels(last) == (0, 0, 1) and equal_levels(last[1:]) is False and equal_levels(last[:2]) is True


def test_gymnasium_declares_it_within_its_limit():
    pytest.importorskip("gymnasium")
    for horizon, first in ((20, (0, 0)), (201, (0, 1))):
        env = ENVIRONMENTS.as_environment("MountainCar-v0", horizon)
        assert groups_of(as_sampler(env))[:2] == first


def test_a_label_for_each_level_is_a_run_without_labels():
    env = ENVIRONMENTS.river_swim(6, 10)
    one, other = (dmq.SelfStopping(env, homogeneous=given, rng=0).learn() for given in (False, range(10)))
    assert one.theta.tobytes() == other.theta.tobytes() and one.stopping == other.stopping


def test_arguments_are_checked():
    env = ENVIRONMENTS.river_swim(6, 4)
    for given in ("yes", [0, 0], [0.0] * 4, None):
        with pytest.raises(ValueError, match="homogeneous"):
            dmq.learn(env, homogeneous=given)
    assert as_labels(np.array([3, 3, 1]), 3) == (0, 0, 1)


@pytest.mark.parametrize("seed", range(40))
def test_values_lie_between_f_and_w_on_any_data_of_a_deterministic_table(seed):
    """Finding Q: F <= V* <= W at every level, in every row that was seen, with data of all levels together."""
    rng = np.random.default_rng(seed)
    n_states, n_actions, horizon = int(rng.integers(2, 6)), int(rng.integers(1, 4)), int(rng.integers(2, 7))
    following = rng.integers(n_states, size=(n_states, n_actions))
    rewards = rng.random((n_states, n_actions)) * (rng.random((n_states, n_actions)) < 0.5) / horizon
    env = FiniteMDP([np.eye(n_states)[following]] * (horizon - 1), [rewards] * horizon, [np.eye(n_states)] * horizon)
    planner = OptimisticPlanner(horizon, n_actions, n_states, 1e-12, 3.0, [0] * horizon)
    for _ in range(int(rng.integers(1, 8))):
        states, actions = [0], rng.integers(n_actions, size=horizon)
        for action in actions[:-1]:
            states.append(following[states[-1], action])
        planner.add(np.eye(n_states)[states], actions, rewards[states, actions])
    planner.plan(0.0)
    for h in range(horizon):
        _, _, plain, hopeful = planner.table(h)
        best = env.optimal_v[h][planner.rows(h).argmax(axis=1)]
        assert (plain <= best + 1e-9).all() and (best <= hopeful + 1e-9).all()


@pytest.mark.parametrize("seed", range(10))
def test_w_bounds_what_one_pair_hides_at_all_levels(seed):
    """Finding P: where the fits of all pairs are right but for one, W is at least the value with its hidden outcome."""
    rng = np.random.default_rng(seed)
    n_states, horizon, confidence = 4, 6, 3.0
    P = rng.dirichlet(np.full(n_states, 0.5), size=(n_states, 2))
    R = rng.random((n_states, 2)) / horizon
    planner = OptimisticPlanner(horizon, 2, n_states, 1e-12, confidence, [0] * horizon)
    for _ in range(60):
        states, actions = [0], rng.integers(2, size=horizon)
        for action in actions[:-1]:
            states.append(rng.choice(n_states, p=P[states[-1], action]))
        planner.add(np.eye(n_states)[states], actions, R[states, actions])
    planner.plan(0.0)
    rows, actions, _ = planner.recorded(np.arange(60))
    steps = rows[:, :-1].ravel(), actions[:, :-1].ravel()  # the last level's are data of that level alone
    counts, moves = np.zeros((n_states, 2)), np.zeros((n_states, 2, n_states))
    np.add.at(counts, steps, 1)
    np.add.at(moves, (*steps, rows[:, 1:].ravel()), 1)
    paid = R[planner.rows(0).argmax(axis=1)]
    for pair in map(tuple, np.argwhere(counts > 0)):
        chance = -np.expm1(-confidence / counts[pair])
        value = np.zeros(n_states)
        for h in reversed(range(horizon)):
            most = np.clip(1 - planner.table(h)[1], 0, 1)[:, None]
            q = np.clip(paid + moves @ value / np.maximum(counts, 1), 0, most)
            q[pair] += chance * (most[pair[0], 0] - q[pair]) if h < horizon - 1 else 0.0
            value = q.max(axis=1)
        assert (value <= planner.table(0)[3] + 1e-6)[rows[:, 0]].all()


def test_plans_below_epsilon_are_as_rare_as_above_it():
    plans = []
    result = dmq.learn(ENVIRONMENTS.river_swim(6, 20), "5%", 0.05, rng=1, progress=plans.append)
    assert len(plans) < result.counts["trajectories"]["explore"] / 3


def test_levels_part_where_rows_hardly_ever_repeat():
    env = ENVIRONMENTS.mountain_car(20)
    result = dmq.SelfStopping(env, tuning=Tuning(most_values=6000), rng=0).learn(max_trajectories=60)
    found = result.stopping["homogeneous"]
    assert found["groups"] == list(range(20)) and 5 <= found["parted_at"] < 60 and not found["differences"]
