"""The exam for algorithms that stop by themselves: its tables, its counts, its judgement and its command."""

import importlib
import json
import os
import signal
import time
from importlib.util import find_spec

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from refusals import refused

import dmq_fast as dmq
from dmq_fast.environments import FiniteMDP
from dmq_fast.table_policy import TablePolicy

gymnasium = pytest.importorskip("gymnasium")

from dmq_fast.experiments.exam import (  # noqa: E402
    CONTESTANTS,
    TASKS,
    Answer,
    NotApplicable,
    Over,
    Row,
    Terms,
    exam,
    run,
    summary_lines,
    tables,
)
from dmq_fast.experiments.exam.judging import value_by_play, value_on_tables  # noqa: E402
from dmq_fast.experiments.exam.playing import TableEnv, numbers_of  # noqa: E402
from dmq_fast.experiments.exam.protocol import Tally  # noqa: E402

SLOW = {"minigrid-four-rooms"}
NAMES = [
    pytest.param(name, marks=pytest.mark.slow) if name in SLOW else name
    for name, task in TASKS.items()
    if task.missing() is None
]


def terms_of(mdp, **changes):
    bounds = float(mdp.value_range.min()), float(mdp.value_range.max())
    plain = Terms(mdp.horizon, bounds, 0.05 * (bounds[1] - bounds[0]), 0.05, 10**6, 1e6, 0, mdp.homogeneous is True)
    return plain._replace(**changes)


def env_of(mdp, **changes):
    terms = terms_of(mdp, **changes)
    return TableEnv(mdp, terms, Tally(terms.max_episodes, terms.max_seconds))


def made(name):
    """The tables of a task; tests of one share them."""
    if name not in MADE:
        MADE[name] = TASKS[name].make()
    return MADE[name]


MADE = {}


# ---- Environments


@pytest.mark.parametrize("name", NAMES)
def test_a_task_is_what_it_says(name):
    task = TASKS[name]
    try:
        env = made(name)
    except ValueError:
        if name == "cliff-walking-slippery" and gymnasium.__version__ < "1.2":
            pytest.skip("this version of Gymnasium has none; the exam names it as not run")
        raise
    assert task.horizon == (env.horizon if isinstance(env, FiniteMDP) else env.spec.max_episode_steps)
    low, high = run.range_of(task, env if isinstance(env, FiniteMDP) else None)
    assert low < high
    if isinstance(env, FiniteMDP):
        assert task.optimum is None and low <= env.tight_range.min() and env.tight_range.max() <= high
        # There is something to learn.
        assert env.optimal_value > env.value(dmq.Policy.uniform(env.horizon)) + 1e-3
    else:
        assert low <= task.optimum <= high
        env.close()


@pytest.mark.slow
def test_the_optimum_of_mountain_car_is_that_of_value_iteration():
    """On 400 x 400 cells; the policy that looks one step ahead, played from 5,000 starts, bounds it from below."""
    position, velocity = np.linspace(-1.2, 0.6, 400), np.linspace(-0.07, 0.07, 400)

    def step(x, v, action):
        v = np.clip(v + (action - 1) * 0.001 - np.cos(3 * x) * 0.0025, -0.07, 0.07)
        x = np.clip(x + v, -1.2, 0.6)
        return x, np.where((x <= -1.2) & (v < 0), 0.0, v)

    def between(table, x, v):
        i, j = (x + 1.2) / 1.8 * 399, (v + 0.07) / 0.14 * 399
        a, b = np.minimum(i.astype(int), 398), np.minimum(j.astype(int), 398)
        p, q = i - a, j - b
        low = (1 - q) * table[a, b] + q * table[a, b + 1]
        return (1 - p) * low + p * ((1 - q) * table[a + 1, b] + q * table[a + 1, b + 1])

    def ahead(table, x, v):  # steps to go after each action; it arrives at 0.5
        return [
            (after, np.where(after[0] >= 0.5, 0.0, between(table, *after)))
            for after in (step(x, v, a) for a in range(3))
        ]

    steps = np.full((400, 400), 200.0)
    grid = np.meshgrid(position, velocity, indexing="ij")
    for _ in range(200):
        steps = np.minimum(200.0, 1.0 + np.min([left for _, left in ahead(steps, *grid)], axis=0))
    env, rng = gymnasium.make("MountainCar-v0").unwrapped, np.random.default_rng(0)
    for _ in range(50):  # these are Gymnasium's dynamics
        env.state = rng.uniform(-1.2, 0.5), rng.uniform(-0.07, 0.07)
        action = int(rng.integers(3))
        expected = step(*map(np.float64, env.state), action)
        assert env.step(action)[0] == pytest.approx(np.array(expected), abs=1e-6)
    x, v = rng.uniform(-0.6, -0.4, 5000), np.zeros(5000)
    total, playing = np.zeros(5000), np.ones(5000, dtype=bool)
    for _ in range(200):
        options = ahead(steps, x, v)
        best = np.argmin([left for _, left in options], axis=0)
        total += playing
        x, v = (np.choose(best, [after[part] for after, _ in options]) for part in (0, 1))
        playing &= x < 0.5
    assert not playing.any()
    assert -total.mean() == pytest.approx(TASKS["mountain-car"].optimum, abs=0.5)


def walk(mdp, reset, step, n, seed=0):
    """Play an environment with random actions, and follow it in the tables: rewards, ends, and numbers where there are.

    ``reset(episode)`` and ``step(action)`` give the number of the state, or None, the latter also reward and end.
    """
    rng, numbers = np.random.default_rng(seed), np.array(numbers_of(mdp))
    for episode in range(n):
        first = reset(episode)
        here = [one for one in np.flatnonzero(mdp.start).tolist() if first in (None, numbers[one])]
        assert here, "a first state that the tables do not have"
        for level in range(mdp.horizon - 1):
            action = int(rng.integers(mdp.n_actions))
            seen, reward, ended = step(action)
            there = set()
            for state in here:
                P, R = mdp.P[level], mdp.R[level]
                pair = state * mdp.n_actions + action
                row = P[state, action] if isinstance(P, np.ndarray) else P[[pair]].toarray()[0]
                for following in np.flatnonzero(row).tolist():
                    paid = R[state, action] if R.ndim == 2 else R[state, action, following]
                    same = bool(mdp.ended[level + 1][following]) == ended and abs(paid - reward) < 1e-9
                    if same and (ended or seen in (None, numbers[following])):
                        there.add(following)
            assert there, f"level {level}, action {action}: ({seen}, {reward}, {ended}) is not in the tables"
            if ended:
                break
            here = there


def test_blackjack_is_that_of_gymnasium():
    mdp, env = tables.blackjack(20), gymnasium.make("Blackjack-v1")

    def number(observation):
        total, card, ace = map(int, observation)
        return (total - 4) * 20 + 2 * (card - 1) + ace

    def step(action):
        observation, reward, ended, _, _ = env.step(action)
        return (0 if ended else number(observation)), reward, ended

    walk(mdp, lambda seed: number(env.reset(seed=seed)[0]), step, 150)
    # Sutton and Barto's figure 5.2 (2018): the best policy loses some 4.7 % of a stake.
    assert mdp.optimal_value == pytest.approx(-0.0466, abs=5e-4)
    rng, n, total = np.random.default_rng(1), 5_000, 0.0
    for episode in range(n):
        env.reset(seed=episode)
        ended = False
        while not ended:
            _, reward, ended, _, _ = env.step(int(rng.integers(2)))
        total += reward
    assert total / n == pytest.approx(mdp.value(dmq.Policy.uniform(20)), abs=5 / n**0.5)


@pytest.mark.parametrize("identifier", ["Empty-5x5", "DoorKey-5x5"])
def test_grids_are_those_of_minigrid(identifier):
    pytest.importorskip("minigrid")
    name, ends = f"MiniGrid-{identifier}-v0", []
    mdp, env = tables.minigrid(name, 60), gymnasium.make(f"MiniGrid-{identifier}-v0").unwrapped

    def step(action):
        _, reward, ended, _, _ = env.step(action)
        ends.append(ended)
        return None, reward, ended

    walk(mdp, lambda episode: env.reset(seed=0) and None, step, 60)
    assert any(ends) or "Door" in name
    # The shortest way, and what it pays.
    n = {"Empty-5x5": 5, "DoorKey-5x5": 11}[identifier]
    assert mdp.optimal_value == pytest.approx(1 - 0.9 * n / env.max_steps)


@pytest.mark.parametrize(
    ("module", "name"),
    [
        ("classic_gridworld", "ClassicGridworld"),
        ("sparse_gridworld", "SparseGridworld"),
        ("windy_gridworld", "WindyGridworldKingsStochastic"),
        ("cliff_walk", "CliffWalk"),
    ],
)
def test_tables_of_the_book_are_what_steps(module, name):
    pytest.importorskip("gym_classics")
    mdp = tables.sutton_barto(module, name, 30, None)
    env = getattr(importlib.import_module(f"gym_classics.envs.{module}"), name)()

    def step(action):
        seen, reward, ended, _, _ = env.step(action)
        return seen, reward, ended

    walk(mdp, lambda seed: env.reset(seed=seed)[0], step, 300)


@pytest.mark.parametrize(("identifier", "horizon", "n_starts"), [("catch/0", 9, 5), ("deep_sea/0", 10, 1)])
def test_tables_of_bsuite_are_what_steps(identifier, horizon, n_starts):
    bsuite = pytest.importorskip("bsuite")
    from bsuite import sweep

    mdp = tables.bsuite(identifier, horizon, None, n_starts)
    env = bsuite.load(identifier.partition("/")[0], sweep.SETTINGS[identifier])

    def step(action):
        taken = env.step(action)
        return None, taken.reward, taken.last()

    walk(mdp, lambda episode: env.reset() and None, step, 200)
    assert mdp.optimal_value == pytest.approx(1.0 if "catch" in identifier else 0.99)


@pytest.mark.parametrize("name", ["river-swim", "chain", "blackjack", "lock", "inventory", "queue", "frozen-lake-4"])
def test_what_is_stepped_is_the_tables(name):
    mdp = made(name)
    env, rng, n = env_of(mdp), np.random.default_rng(2), 4000
    returns = np.zeros(n)
    for episode in range(n):
        env.reset(seed=episode)
        over = False
        while not over:
            _, reward, ended, cut, _ = env.step(int(rng.integers(mdp.n_actions)))
            returns[episode] += reward
            over = ended or cut
    error = returns.std() / n**0.5
    assert returns.mean() == pytest.approx(mdp.value(dmq.Policy.uniform(mdp.horizon)), abs=5 * error + 1e-9)


def test_rewards_that_are_coins_and_seeds():
    # Half of the rewards of a level pay their cap with chance R / cap.
    P, R = [np.ones((1, 2, 1))], [np.array([[0.1, 0.3]]), np.array([[0.2, 0.4]])]
    mdp = FiniteMDP(P, R, [np.ones((1, 1))] * 2, caps=[0.5, 0.0], value_range=(0, 1))
    env, paid = env_of(mdp), []
    for episode in range(4000):
        env.reset(seed=episode)
        paid.append(env.step(1)[1])
        assert env.step(0)[1:4] == (0.2, False, True)
    assert set(paid) == {0.0, 0.5} and np.mean(paid) == pytest.approx(0.3, abs=5 * 0.25 / 4000**0.5)
    one, other = (env_of(mdp) for _ in range(2))  # without a seed, that of the terms
    assert [one.reset() and one.step(1)[1] for _ in range(20)] == [
        other.reset() and other.step(1)[1] for _ in range(20)
    ]
    refused(
        [
            (lambda: env.step(0), ValueError, r"step: expected reset\(\) first"),
            (lambda: env.reset(seed=0) and env.step(2), ValueError, r"action: expected one in \[0, 2\), got 2"),
        ]
    )


# ---- Judging


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 2**32 - 1))
def test_the_value_of_a_policy_is_exact(seed):
    rng = np.random.default_rng(seed)
    horizon, sizes, n_actions = 4, rng.integers(1, 5, size=4), int(rng.integers(1, 4))
    P = [rng.dirichlet(np.full(sizes[h + 1], 0.3), size=(sizes[h], n_actions)).round(12) for h in range(horizon - 1)]
    P = [part / part.sum(axis=2, keepdims=True) for part in P]
    R = [rng.normal(size=(sizes[h], n_actions)) for h in range(horizon)]
    mdp = FiniteMDP(P, R, [np.full((size, 1), 0.5) for size in sizes], start=np.full(sizes[0], 1 / sizes[0]))
    rules = [rng.integers(n_actions, size=size) for size in sizes]
    asked = []

    def act(level, observation):
        asked.append((level, observation))
        return np.int64(rules[level][observation])

    assert value_on_tables(mdp, act).value == pytest.approx(mdp.value(TablePolicy(rules)), abs=1e-12)
    assert len(asked) == len(set(asked)) <= sizes.sum()


def test_a_value_by_play_has_its_interval():
    mdp = made("blackjack")
    _, half = found = value_by_play(env_of(mdp), lambda level, observation: 0, 20, 2000, seed=3)
    assert abs(found.value - value_on_tables(mdp, lambda level, observation: 0).value) < 2 * half
    assert half == pytest.approx(1.96 * 0.95 / 2000**0.5, rel=0.1)


# ---- The exam


def first_action(env, terms):
    env.reset(seed=terms.seed)
    for _ in range(terms.horizon):
        if any(env.step(0)[2:4]):
            break
    return Answer(lambda level, observation: 0, stopped=True)


def test_episodes_are_counted_by_the_exam():
    results = []

    def ours(env, terms):
        assert (env.horizon, env.n_actions, env.value_range) == (20, 2, (0.0, 1.0))
        assert terms.epsilon == 0.05 and terms.homogeneous
        results.append(dmq.learn(env, terms.epsilon, terms.delta, rng=terms.seed))
        return results[-1].policy, True

    [row] = exam([ours], ["river-swim"], [3])
    assert row.episodes == results[0].n_trajectories and row.steps == 20 * row.episodes
    [same] = exam(["self-stopping"], ["river-swim"], [3])
    assert (same.episodes, same.loss, same.stopped, same.within) == (row.episodes, 0.0, True, True)


def test_the_same_seeds_give_the_same_rows():
    def rows():
        names = ["self-stopping", "bpi-ucbvi", "lsvi-ucb", first_action]
        found = exam(names, ["chain", "blackjack"], [0, 1], max_episodes=300)
        return [{**vars(row), "cpu_seconds": 0.0} for row in found]

    once = rows()
    assert once == rows()
    by_name = {(row["environment"], row["seed"], row["algorithm"]): row for row in once}
    for name in ("chain", "blackjack"):
        # Who never stops is granted what the first used.
        assert by_name[name, 1, "lsvi-ucb"]["episodes"] == by_name[name, 1, "self-stopping"]["episodes"] <= 300


def test_what_goes_wrong_is_in_the_rows_and_the_exam_goes_on():
    def wrong(env, terms):
        raise RuntimeError("no\nluck")

    def declines(env, terms):
        raise NotApplicable("not me")

    def leaves(env, terms):
        raise SystemExit(3)

    def endless(env, terms):
        while True:
            first_action(env, terms)

    def catches(env, terms):
        try:
            endless(env, terms)
        except Over as over:
            assert str(over) == "episodes"
        return Answer(lambda level, observation: 1, stopped=True)  # which it did not

    def no_policy(env, terms):
        return 3

    def no_action(env, terms):
        return (lambda level, observation: 0.5), True

    def too_large(env, terms):
        return (lambda level, observation: 2), True

    algorithms = [wrong, declines, leaves, endless, catches, no_policy, no_action, too_large, first_action]
    reported = []
    rows = exam(algorithms, ["river-swim"], max_episodes=7, report=reported.append)
    assert rows == reported
    found = {row.algorithm: row for row in rows}
    assert {name: row.error for name, row in found.items()} == {
        "wrong": "RuntimeError: no luck",
        "declines": "NotApplicable: not me",
        "leaves": "SystemExit: 3",
        "endless": "no policy: out of episodes",
        "catches": None,
        "no_policy": "TypeError: act: expected a function of level and observation, or a policy with act_on, got 3",
        "no_action": "TypeError: act: expected an integer, got 0.5",
        "too_large": "ValueError: act: expected an action in [0, 2), got 2",
        "first_action": None,
    }
    assert [row.ran for row in rows] == [True, False, *[True] * 7]
    assert found["endless"].episodes == found["catches"].episodes == 7 and not found["catches"].stopped
    assert found["catches"].within and found["first_action"].within is False and found["first_action"].stopped
    assert 'raise RuntimeError("no\\nluck")' in found["wrong"].traceback and found["endless"].traceback is None
    text = "\n".join(summary_lines(rows))
    assert (
        "first_action: 0 of 1 environment passed with every seed; of 1 run 1 stopped, 0 within epsilon, 1 stopped"
        in text
    )
    assert "not run: river-swim by declines: NotApplicable: not me" in text


def test_seconds_end_what_plays_and_what_does_not():
    def plays(env, terms):
        while True:
            first_action(env, terms)

    def thinks(env, terms):
        while True:
            try:
                time.process_time()
            except ValueError:
                pass

    rows = exam([plays, thinks], ["river-swim"], max_seconds=0.2, max_episodes=10**9)
    assert [row.error for row in rows] == ["no policy: out of seconds"] * 2
    assert 0.2 <= rows[0].cpu_seconds < 0.8 and 1.0 <= rows[1].cpu_seconds < 3.0
    for name, task in (("self-stopping", "lock"), ("bpi-ucbvi", "frozen-lake-8")):
        [row] = exam([name], [task], max_seconds=0.05)
        assert not row.stopped and row.value is not None  # that of the policy that it had


def test_an_environment_whose_package_is_missing_is_named(monkeypatch):
    from dmq_fast.experiments.exam import tasks

    monkeypatch.setattr(tasks, "find_spec", lambda name: None if name == "minigrid" else find_spec(name))
    rows = exam([first_action], ["minigrid-empty-5", "river-swim"])
    assert [(row.environment, row.ran, row.error) for row in rows] == [
        ("minigrid-empty-5", False, "needs minigrid: pip install minigrid"),
        ("river-swim", True, None),
    ]
    assert "1 environment not run" in "\n".join(summary_lines(rows))


def test_control_is_stepped_and_judged_by_episodes():
    [ours, baseline] = exam(["self-stopping", "bpi-ucbvi"], ["cart-pole"], max_episodes=12, n_evaluation=5)
    assert not ours.stopped and ours.episodes == 12 and ours.loss_error > 0 and ours.score is None
    assert 0 < ours.value < 500 == ours.optimum
    assert not baseline.ran and "real numbers" in baseline.error


@pytest.mark.parametrize("algorithm", CONTESTANTS)
def test_contestants_find_the_end_of_the_chain(algorithm):
    [row] = exam([algorithm], ["chain"], max_episodes=2000)
    assert row.within and row.stopped == (algorithm != "lsvi-ucb")


def test_arguments_are_refused_by_name():
    refused(
        [
            (lambda: exam(["bpi-ucbv"]), ValueError, "algorithms: expected .*did you mean 'bpi-ucbvi'"),
            (lambda: exam([3]), TypeError, "algorithms: expected names or functions, got 3"),
            (lambda: exam([]), ValueError, "algorithms: expected at least one"),
            (lambda: exam([first_action] * 2), ValueError, "each once"),
            (lambda: exam(["no_module:f"]), ValueError, "algorithms: 'no_module:f' cannot be imported"),
            (lambda: exam(only=["taxy"]), ValueError, "only: expected some of .*did you mean 'taxi'"),
            (lambda: exam(seeds=[-1]), ValueError, "seeds"),
            (lambda: exam(epsilon=5), ValueError, "epsilon: expected a share"),
            (lambda: exam(delta=0), ValueError, "delta"),
            (lambda: exam(max_episodes=0), ValueError, "max_episodes"),
            (lambda: exam(max_seconds=0), ValueError, "max_seconds"),
            (lambda: exam(n_evaluation=1), ValueError, "n_evaluation"),
        ]
    )


# ---- The command


def test_the_command_prints_a_table_and_saves_rows(run, tmp_path, monkeypatch):
    (tmp_path / "my_algorithm.py").write_text(
        "def learn(env, terms):\n    print('noise')\n    return lambda level, observation: 1\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    file = tmp_path / "rows.json"
    names = "self-stopping,my_algorithm:learn"
    code, out, err = run("exam", "--only", "river-swim", "--algorithm", names, "--seeds", "0,1", "--json", file)
    assert code == 0 and "noise" in err
    assert "self-stopping: 1 of 1 environment passed with every seed; of 2 runs 2 stopped" in out
    assert "my_algorithm:learn: 0 of 1 environment passed" in out
    rows = [Row(**row) for row in json.loads(file.read_text())]
    assert [(row.seed, row.algorithm) for row in rows] == [(s, a) for s in (0, 1) for a in names.split(",")]
    code, out, err = run("exam", "--only", "chain", "--epsilon", "10%", "--json", "-")
    assert code == 0 and json.loads(out)[0]["epsilon"] == pytest.approx(0.1)
    code, out, err = run("exam", "--list")
    assert code == 0 and all(name in out for name in (*TASKS, *CONTESTANTS))
    assert [one["name"] for one in json.loads(run("exam", "--list", "--json", "-")[1])["environments"]] == list(TASKS)


def test_an_interrupted_exam_keeps_its_rows(run, tmp_path, monkeypatch):
    def interrupts(env, terms):
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(5)

    monkeypatch.setitem(CONTESTANTS, "interrupts", interrupts)
    file = tmp_path / "rows.json"
    code, out, err = run("exam", "--only", "chain", "--algorithm", "bpi-ucbvi,interrupts", "--json", file)
    assert code == 130 and "stopped after 1 rows" in err and "bpi-ucbvi: 1 of 1" in out
    assert [row["algorithm"] for row in json.loads(file.read_text())] == ["bpi-ucbvi"]


def test_the_command_refuses_in_one_line(run, tmp_path):
    for arguments, message in (
        (["--only", "chian"], "--only: expected some of"),
        (["--algorithm", "x"], "--algorithm: expected self-stopping"),
        (["--epsilon", "0"], "expected a share between 0% and 100%"),
        (["--seeds", "a"], "expected an integer"),
        (["--delta", "2", "--only", "chain"], "--delta: expected a number in (0, 1)"),
        (["--max-seconds", "nan", "--only", "chain"], "--max-seconds"),
        (["--evaluate", "1", "--only", "chain"], "--evaluate: expected"),
        (["--json", tmp_path / "no" / "where.json"], "--json"),
    ):
        code, out, err = run("exam", *arguments)
        assert (code, out) == (2, "") and message in err and len(err.splitlines()) == 1, (arguments, err)
