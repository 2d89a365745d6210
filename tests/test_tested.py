"""Runs by returns: the interval keeps its promise, and a run is the same for any workers and after any kill."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
import scipy.stats
from properties import refuses

import dmq_fast as dmq
from dmq_fast.engine import journal
from dmq_fast.tested import betting_interval
from dmq_fast.tested import run as running

LAWS = {
    "coins": lambda rng, n: (rng.random(n) < 0.3).astype(float),
    "rare": lambda rng, n: (rng.random(n) < 0.02).astype(float),
    "nearly always": lambda rng, n: (rng.random(n) < 0.97).astype(float),
    "uniform": lambda rng, n: rng.random(n),
    "narrow": lambda rng, n: 0.4 + 0.01 * rng.random(n),
    "far ends": lambda rng, n: rng.beta(0.1, 0.3, n),
}
MEANS = {
    "coins": 0.3, "rare": 0.02, "nearly always": 0.97, "uniform": 0.5, "narrow": 0.405, "far ends": 0.25,
}  # fmt: skip


# The interval


@pytest.mark.parametrize("law", LAWS)
def test_the_interval_fails_no_more_often_than_it_says(law):
    rng, delta, runs = np.random.default_rng(1), 0.1, 200
    missed = 0
    for i in range(runs):
        low, high = betting_interval(LAWS[law](rng, (5, 30, 61)[i % 3]), 0.0, 1.0, delta)
        missed += not low <= MEANS[law] <= high
    # The failures of a run that fails with probability delta at most are this many or more with probability 1e-3.
    assert missed <= scipy.stats.binom.isf(1e-3, runs, delta)


def test_the_interval_has_the_units_of_the_numbers_and_shrinks():
    rng = np.random.default_rng(0)
    numbers = rng.random(400)
    widths = []
    for n in (1, 10, 100, 400):
        low, high = betting_interval(numbers[:n], 0.0, 1.0, 0.05)
        assert 0.0 <= low < high <= 1.0
        np.testing.assert_allclose(
            betting_interval(7.0 * numbers[:n] - 3.0, -3.0, 4.0, 0.05), [7.0 * low - 3.0, 7.0 * high - 3.0], atol=1e-2
        )
        widths.append(high - low)
    assert widths == sorted(widths, reverse=True) and widths[-1] < 0.2
    assert betting_interval(np.zeros(0), 0.0, 1.0, 0.05) == (0.0, 1.0)
    low, high = betting_interval(np.zeros(61), 0.0, 1.0, 0.05)
    assert low == 0.0 and high < 0.15
    assert betting_interval(np.ones(61), 0.0, 1.0, 0.05) == pytest.approx((1.0 - high, 1.0))


# Runs


def lock(horizon=3, n_actions=2):
    return dmq.environments.combination_lock(horizon=horizon, n_actions=n_actions, rng=0)


def run(env=None, rng=1, epsilon=0.2, learner=(), **how):
    settings = {"mode": "tested", "epsilon": epsilon, **dict(learner)}
    return dmq.SelfStopping(lock() if env is None else env, rng=rng, **settings).learn(**how)


def bits(result):
    stopping = json.dumps(result.stopping, sort_keys=True)
    return result.theta.tobytes(), result.status, result.n_trajectories, stopping, result.warnings


def test_a_run_ends_tested_and_its_interval_contains_the_value(tmp_path):
    env, missed = lock(), 0
    for seed in range(10):
        result = run(env, seed)
        low, high = result.stopping["interval"]
        assert result.status == "tested" and result.mode == "tested"
        assert result.stopping["tests_made"] == 1 and result.stopping["test_size"] > 0
        missed += not low <= env.value(result.policy) <= high
    assert missed <= scipy.stats.binom.isf(1e-3, 10, 0.05)
    result.save(tmp_path / "result")
    again = dmq.load(tmp_path / "result")
    assert bits(again) == bits(result) and again.mode == "tested"
    json.dumps(result.stopping, allow_nan=False)


@pytest.mark.parametrize(
    "env", [lock(1), dmq.environments.mountain_car(1), dmq.environments.mountain_car(2, "interpolation")]
)
def test_small_environments(env):
    result = run(env, epsilon="20%")
    assert result.status == "tested" and all(map(math.isfinite, result.stopping["interval"]))


def test_where_nothing_differs_the_run_says_so():
    result = run(dmq.environments.mountain_car(2, "interpolation"), epsilon="20%")
    assert any("all episodes had the same return" in warning for warning in result.warnings)


def test_workers_give_the_same_bits():
    for env in (lock(), dmq.environments.cart_pole(5, "tiles")):
        assert bits(run(env, epsilon="20%", workers=1)) == bits(run(env, epsilon="20%", workers=2))


@pytest.mark.parametrize("epsilon", [0.2, 0.01])  # pieces of 8 episodes, and larger ones in the test
def test_a_journal_that_ends_after_any_record_gives_the_undisturbed_run(tmp_path, epsilon):
    path = tmp_path / "journal"
    whole = run(journal=path, epsilon=epsilon)
    assert bits(run(epsilon=epsilon)) == bits(whole)
    assert (whole.stopping["test_size"] > 256) == (epsilon < 0.1)
    contents, ends = path.read_bytes(), [0]
    for _, _, payload in journal.records(contents):
        ends.append(ends[-1] + journal.HEAD.size + len(payload))
    assert len(ends) > 5
    for end in [*ends[1 :: max(1, len(ends) // 25)], ends[-1], (ends[-1] + ends[-2]) // 2]:
        path.write_bytes(contents[:end])
        assert bits(run(journal=path, epsilon=epsilon)) == bits(whole)
        assert len(path.read_bytes()) == len(contents)  # the seconds differ


def test_records_that_are_no_episodes_are_refused(tmp_path):
    path = tmp_path / "journal"
    run(journal=path)
    contents = path.read_bytes()
    changes = [
        lambda n: [*n[:1], 99, *n[2:]],
        lambda n: n[:-1],
        lambda n: [*n, 0],
        lambda n: [n[0] + 1, *n[1:]],
        lambda n: [],
    ]
    for change in changes:
        parts, changed = [], False
        for kind, number, payload in journal.records(contents):
            new = bytes(payload)
            if kind != journal.HEADER and not changed:
                record = journal.decision(kind, payload)
                integers = change(list(record.integers))
                new = journal.packed(record.elapsed, record.calls, integers, [record.floats])
                changed = True
            parts.append(journal.seal(kind, number, new))
        assert changed
        path.write_bytes(b"".join(parts))
        with pytest.raises(dmq.JournalError, match="damaged: "):
            run(journal=path)


def test_a_journal_of_another_mode_is_refused(tmp_path):
    run(journal=tmp_path / "journal", max_trajectories=20)
    with pytest.raises(ValueError, match="journal"):
        run(journal=tmp_path / "journal", learner={"mode": "strict"})


def test_budgets_end_a_run_with_the_best_so_far():
    whole = run()
    for most in (1, 12, 30, whole.n_trajectories - 1):
        result = run(max_trajectories=most)
        assert result.status != "tested" and result.status != "finished"
        assert result.n_trajectories <= most and result.stopping["interval"] == [0.0, 1.0]
        assert result.theta.shape == whole.theta.shape
    assert run(max_trajectories=whole.n_trajectories).status == "tested"
    assert run(max_seconds=1e-9).status != "tested"


def test_a_budget_without_room_for_the_first_piece_says_so():
    message = "no episode was played: the first 8 are played together, so allow at least 8"
    few, enough = run(max_trajectories=7), run(max_trajectories=8)
    assert few.n_trajectories == 0 and message in few.warnings
    assert enough.n_trajectories == 8 and message not in enough.warnings


@pytest.mark.parametrize("gains", [True, False])
def test_a_run_that_ends_for_lack_of_room_says_so_where_policies_still_got_better(monkeypatch, gains):
    monkeypatch.setattr(running.TestedRun, "still_gains", lambda self: gains)
    monkeypatch.setattr(running.TestedRun, "is_perfect", lambda self, idea: False)
    result = run()
    assert result.status == "tested"
    assert any("still got better" in warning for warning in result.warnings) is gains
    assert (result.stopping["candidates"] == running.PRACTICE.first_look) is not gains


def test_ranges_that_are_not_declared_or_wrong():
    seen = run(learner={"value_range": "seen"})
    assert seen.status == "tested" and "asymptotic" in seen.stopping["promise"]
    wrong = run(lock(2), learner={"value_range": (0.0, 0.01)}, epsilon=0.005)
    assert wrong.status == "tested"
    if wrong.stopping["rewards"]["returns_seen"][1] > 0.01:
        assert wrong.warnings and "asymptotic" in wrong.stopping["promise"]
    noisy = run(learner={"noise": 0.5})
    assert noisy.status == "tested" and "asymptotic" in noisy.stopping["promise"]


def test_the_mode_is_that_of_the_features():
    assert dmq.SelfStopping(dmq.environments.mountain_car(5, "interpolation"), epsilon="5%").aim.mode == "tested"
    assert dmq.SelfStopping(dmq.environments.mountain_car(5), epsilon="5%").aim.mode == "strict"
    refuses([(ValueError, "^mode: expected one of", lambda: dmq.SelfStopping(lock(), mode="returns"))])


@pytest.mark.slow
def test_mountain_car_arrives_from_nearly_all_starts():
    gymnasium = pytest.importorskip("gymnasium")
    result = dmq.learn("mountain-car", rng=0)
    assert result.status == "tested"
    env, arrived = gymnasium.make("MountainCar-v0"), 0
    for seed in range(1000):
        seen, _ = env.reset(seed=seed)
        for step in range(200):
            if step % 2 == 0:
                action = int(result.policy.act_on(step // 2, seen))
            seen, _, terminated, truncated, _ = env.step(action)
            if terminated or truncated:
                arrived += terminated
                break
    assert arrived >= 990
