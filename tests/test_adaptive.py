"""The self-stopping run: what it promises, on which episodes, and when it stops."""

import itertools
import json
import math
import re
import subprocess
import sys
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from line import Counted, Line

from dmq_fast import DMQ, Policy, SelfStopping, certificate, experiments, learn, load
from dmq_fast import environments as E
from dmq_fast.cli import main
from dmq_fast.engine import journal
from dmq_fast.engine.budget import Budget
from dmq_fast.engine.ledger import Ledger
from dmq_fast.kernels import Stream
from dmq_fast.samplers import FlowSampler, as_sampler
from dmq_fast.self_stopping import PURPOSES, SelfStoppingRun
from dmq_fast.stopping.aim import Aim
from dmq_fast.stopping.candidate import Candidate
from dmq_fast.stopping.outcome import interval
from dmq_fast.stopping.tuning import PROMISE, TUNING, Tuning

STEPS = ("explore", "settle_noise", "look_behind_rare_transitions", "test", "ask_returns")


def run_of(env, seed=0, *, max_trajectories=20_000, max_seconds=None, progress=None, tuning=TUNING, **aim):
    budget = Budget(max_trajectories=max_trajectories, max_seconds=max_seconds)
    ledger = Ledger(budget, None, PURPOSES, ("rollouts",))
    return SelfStoppingRun(as_sampler(env), Aim.of(**aim), Stream(seed), ledger, progress, tuning)


def loss(env, outcome):
    return env.optimal_value - env.value(Policy.greedy(outcome.theta))


def failures(make, seeds, **options):
    """How many runs, one on each environment, lose more than epsilon."""
    return sum(loss(env, run_of(env, seed, **options).learn()) > 0.05 for seed, env in ((s, make(s)) for s in seeds))


def one_state(*means, **options):
    """One state, one level, and an action of each mean."""
    return E.FiniteMDP(P=[], R=[np.array([means])], features=[np.ones((1, 1))], **options)


def pooled(low, high, **options):
    """Two actions lead to two states of one feature that are worth these values: Q* is not linear."""
    R = [np.zeros((1, 2)), np.array([[low] * 2, [high] * 2])]
    return E.FiniteMDP(P=[np.eye(2)[None]], R=R, features=[np.ones((1, 1)), np.ones((2, 1))], **options)


def pooled_path(bonus, **options):
    """Two lanes of one feature, worth .3 and .6 at their end; on the way one action of two pays a little."""
    P = [np.eye(2)[None], np.tile(np.eye(2)[:, None], (1, 2, 1))]
    R = [np.zeros((1, 2)), np.array([[bonus, 0.0]] * 2), np.array([[0.3] * 2, [0.6] * 2])]
    return E.FiniteMDP(P=P, R=R, features=[np.ones((1, 1)), *[np.ones((2, 1))] * 2], **options)


def two_doors(swap):
    """One door leads to a room worth 1 with probability .3, the other pays .2 for sure: the loss is .1 or nothing."""
    P = [np.zeros((1, 2, 2)), np.tile(np.eye(2)[:, None], (1, 2, 1))]
    P[0][0, swap], P[0][0, 1 - swap] = [0.3, 0.7], [0, 1]
    R = [np.zeros((1, 2)), np.zeros((2, 2)), np.array([[1.0, 0], [0, 0]])]
    R[0][0, 1 - swap] = 0.2
    return E.FiniteMDP(P=P, R=R, features=[np.eye(3)[:1], np.eye(3)[1:], np.eye(3)[1:]])


def rooms(seed):
    """A gamble leads to five rooms with chance .06 each, where one action of three pays 1; leaving at once pays .2."""
    secrets, gamble = np.random.default_rng(seed).integers(3, size=5), seed % 3
    P, R = np.zeros((1, 3, 6)), [np.full((1, 3), 0.2), np.zeros((6, 3))]
    P[0, :, 5], R[0][0, gamble] = 1, 0
    P[0, gamble] = [0.06] * 5 + [0.7]
    R[1][np.arange(5), secrets] = 1
    return E.FiniteMDP(P=[P], R=R, features=[np.eye(6)[:1], np.eye(6)])


def door(seed):
    """One action opens a lock of six steps worth 1 with chance .6; the others pay .52: who leaves it loses .08."""
    rng = np.random.default_rng(seed)
    first, secrets = int(rng.integers(4)), rng.integers(4, size=6)
    P, R = [np.zeros((1, 4, 2))], [np.full((1, 4), 0.52), *np.zeros((6, 2, 4))]
    P[0][0, :, 1], R[0][0, first], R[-1][0, secrets[-1]] = 1, 0, 1
    P[0][0, first] = [0.6, 0.4]
    for secret in secrets[:-1]:
        P.append(np.zeros((2, 4, 2)))
        P[-1][:, :, 1] = 1
        P[-1][0, secret] = [1, 0]
    return E.FiniteMDP(P=P, R=R, features=[np.eye(2)[:1], *[np.eye(2)] * 6])


def coin(seed):
    """A coin, tossed at the start, decides all 20 rewards: two actions, chances .56 and .5, so one loses .06."""
    better = int(np.random.default_rng([306, seed]).integers(2))
    P = [np.tile(np.eye(3)[:, None], (1, 2, 1)) for _ in range(19)]
    P[0] = np.full((1, 2, 3), [0.0, 0.5, 0.5])
    P[0][0, better] = [0.0, 0.56, 0.44]
    R = [np.zeros((1, 2)), *[np.array([[0.0, 0.0], [1.0, 1.0], [0.0, 0.0]]) / 19] * 19]
    return E.FiniteMDP(P=P, R=R, features=[np.eye(3)[:1], *[np.eye(3)] * 19])


def bet(seed):
    """One action pays 1 with chance .935, the other always: who keeps to a bet that was won at first loses .065."""
    chances = np.ones((1, 2))
    chances[0, seed % 2] = 0.935
    return E.FiniteMDP(P=[], R=[chances], features=[np.ones((1, 1))], caps=[1.0])


def sprinkled(seed):
    """At each of 40 levels one of two actions pays 1 with chance .015; the end pays .3, so that each is worth less."""
    rng = np.random.default_rng(seed)
    P, R = [], []
    for h in range(40):
        right, m = int(rng.integers(2)), 1 if h == 0 else 3
        step = np.zeros((m, 2, 3))  # on the way, paid, over
        step[0, :, 0] = 1
        step[0, right] = [0.985, 0.015, 0]
        step[1:, :, 2] = 1
        P.append(step)
        R.append(np.array([[0.0, 0.0], [1.0, 1.0], [0.0, 0.0]])[:m])
    R[-1][0] = 0.3
    return E.FiniteMDP(P=P[:-1], R=R, features=[np.eye(3)[:1], *[np.eye(3)] * 39])


def rare_start(seed):
    """One episode of ten starts in a lock worth 1, and giving up pays .4 there: the loss of .06 is above epsilon."""
    secrets = np.random.default_rng(seed).integers(3, size=(2, 4))
    P, R = [], [np.zeros((2, 3))]
    for h in range(4):
        step = np.zeros((2 if h == 0 else 3, 3, 3))
        step[:, :, 2] = 1
        for lane in range(2):
            step[lane, secrets[lane, h]] = np.eye(3)[lane]
        P.append(step)
        R.append(np.zeros((3, 3)))
    R[0][1, (secrets[1, 0] + 1) % 3] = 0.4
    R[4][:2] = 1
    return E.FiniteMDP(P=P, R=R, features=[np.eye(3)[:2], *[np.eye(3)] * 4], start=[0.9, 0.1])


def small_parts(seed):
    """Each of 60 levels pays 1/60 with probability .6 by one action and .4 by the others: the values differ by .2."""
    means = np.full((60, 1, 4), 0.4 / 60)
    means[np.arange(60), 0, np.random.default_rng(seed).integers(4, size=60)] = 0.6 / 60
    return E.FiniteMDP(P=[np.ones((1, 4, 1))] * 59, R=list(means), features=[np.ones((1, 1))] * 60, caps=[1 / 60] * 60)


def short_lock(length):
    """The good state of a lock has a feature of this length; a first action that gives up pays .3, the lock .8."""
    horizon, secrets = 5, [1, 0, 2, 2, 1]
    P = [np.zeros((1 if h == 0 else 2, 3, 2)) for h in range(horizon - 1)]
    R = [np.zeros((1 if h == 0 else 2, 3)) for h in range(horizon)]
    for h, transitions in enumerate(P):
        transitions[:, :, 1] = 1
        transitions[0, secrets[h]] = [1, 0]
    R[0][0], R[-1][0, secrets[-1]] = [0.3, 0, 0.3], 0.8
    features = [np.array([[1.0, 0]])] + [np.array([[length, 0], [0, 1.0]])] * (horizon - 1)
    return E.FiniteMDP(P=P, R=R, features=features)


# Medians of 20 seeds, strict and quick (docs/adaptive.md).
FAMILIES = {
    "lock 5": (lambda s: E.combination_lock(5, 4, rng=s), 110, 110),
    "lock 20": (lambda s: E.combination_lock(20, 4, rng=s), 245, 245),
    "noisy lock": (lambda s: E.combination_lock(10, 4, rng=s, p_success=0.9), 552, 286),
    "deep sea 10": (lambda s: E.deep_sea(10, rng=s), 79, 79),
    "deep sea 20": (lambda s: E.deep_sea(20, rng=s), 101, 101),
    "chain 10": (lambda s: E.chain(10, rng=s), 345, 180),
    "linear Q": (lambda s: E.linear_q(rng=s), 347, 200),
    "decoy 20": (lambda s: E.decoy_lock(20), 338, 296),
    "river swim": (lambda s: E.river_swim(6, 20), 1222, 459),
}


@pytest.mark.parametrize("n_seeds", [2, pytest.param(10, marks=pytest.mark.slow)])
@pytest.mark.parametrize("mode", ["strict", "quick"])
@pytest.mark.parametrize("name", FAMILIES)
def test_is_within_epsilon_after_as_few_episodes_as_the_page_says(name, mode, n_seeds):
    make, *medians = FAMILIES[name]
    episodes = []
    for seed in range(n_seeds):
        env = make(seed)
        outcome = run_of(env, seed, mode=mode).learn()
        assert outcome.status == "finished" and outcome.warnings == ()
        assert loss(env, outcome) <= 0.05
        assert outcome.test_size >= 61 and outcome.upsides.max() <= 0.05
        assert outcome.interval[0] <= outcome.mean_return <= outcome.interval[1]
        episodes.append(outcome.n_episodes)
    # Ten seeds of a skewed law: twenty of them are within 10 % (docs/adaptive.md).
    assert np.median(episodes) <= (1.25 if n_seeds == 10 else 2) * medians[mode == "quick"]


@pytest.mark.parametrize(
    ("make", "n", "most"),
    [
        # Of 100 runs 5 may fail: 12 is three standard deviations more. A run whose door never opened early loses .1.
        (lambda s: two_doors(s % 2), 100, 12),
        pytest.param(lambda s: two_doors(s % 2), 600, 46, marks=pytest.mark.slow),
        # A plan that takes the frequency of the rooms for their chance stops too early in a quarter of the runs.
        # Where it may be as large as its visits allow, 4 of 300 do; limits here are four standard deviations above.
        (rooms, 50, 4),
        pytest.param(rooms, 200, 10, marks=pytest.mark.slow),
        # Where the share of a few visits in which the door opened counts as its chance, a fifth of the runs fail.
        (door, 60, 6),
        # Where the value that a lucky test saw is compared with what was never tried, 9 of 40 runs fail.
        (bet, 100, 6),
        pytest.param(door, 300, 16, marks=pytest.mark.slow),
        # A test that compares the mean of its 61 episodes with epsilon passes where the start came up five times: 35 of
        # 150 runs fail. With the standard error of the mean it is 2; the limits are four standard deviations above.
        (rare_start, 40, 4),
        pytest.param(rare_start, 150, 11, marks=pytest.mark.slow),
        # Where the quantile of the sample of refits is asked once, 156 of 2,000 runs fail; 64 is not above delta.
        pytest.param(coin, 1000, 64, marks=pytest.mark.slow),
        # Without a bootstrap 17 of 20 quick runs lose more than epsilon.
        (small_parts, 2, 0),
        # The loss of the wrong action is 2 mu > epsilon, the error of the fit only mu.
        (lambda s: pooled(0.46, 0.54), 8, 1),
        (lambda s: pooled(0.45, 0.55), 8, 1),
    ],
    ids=[
        "doors",
        "600 doors",
        "rooms",
        "200 rooms",
        "door",
        "bets",
        "300 doors to a lock",
        "rare start",
        "150 rare starts",
        "1000 coins",
        "parts",
        "pooled",
        "more pooled",
    ],
)
def test_fails_no_more_often_than_it_may(make, n, most):
    assert failures(make, range(n)) <= most


@pytest.mark.parametrize(("mode", "n", "least", "most"), [("strict", 6, 3, 6), ("many", 10, 0, 1)])
def test_many_small_outcomes_are_the_exception_of_the_promise_of_all_modes_but_one(mode, n, least, most):
    assert least <= failures(sprinkled, range(n), mode=mode) <= most


# Environment, options and seed of a run; its episodes by purpose, tests, contradictions and duels won; how often each
# step after the first objected; loss quantile and p_min.
RUNS = {
    "lock": (E.combination_lock(6, 3, rng=0), {}, 1, (114, 0, 61, 1, 0, 0), (0, 0, 0, 0), 0.0, 0.05),
    "quick": (E.combination_lock(6, 3, rng=0), {"mode": "quick"}, 1, (70, 3, 61, 1, 0, 0), (0, 0, 0, 0), 0.0, 0.5),
    "noisy lock": (
        *(E.combination_lock(5, 3, rng=1, p_success=0.8), {"epsilon": 0.1}, 0),
        *((188, 0, 31, 1, 0, 0), (0, 0, 1, 0), 0.0, 0.1),
    ),
    "chain": (E.chain(6, rng=0), {"delta": 0.2}, 0, (475, 0, 37, 1, 0, 0), (0, 1, 1, 0), 0.0003, 0.05),
    "river swim": (
        *(E.river_swim(4, 8), {"epsilon": 0.1, "mode": "quick"}, 1),
        *((101, 0, 31, 1, 0, 0), (0, 1, 1, 0), 0.0, 0.5),
    ),
    "linear MDP": (
        *(E.linear_mdp(rng=1), {"epsilon": 0.1, "p_min": 0.2}, 0),
        *((354, 16, 31, 1, 0, 0), (1, 1, 1, 0), 0.0106, 0.2),
    ),
    "bet": (bet(0), {}, 0, (2, 7, 182, 2, 0, 0), (0, 0, 1, 0), 0.0, 0.05),
    "rooms": (rooms(3), {}, 3, (223, 0, 61, 1, 0, 0), (0, 1, 1, 0), 0.0, 0.05),
    "rare start": (rare_start(5), {}, 0, (74, 0, 363, 3, 0, 0), (0, 0, 2, 0), 0.0, 0.05),
    "coins": (
        *(one_state(0.5, 0.7, 0.5, caps=[1.0]), {"epsilon": 0.1}, 1),
        *((7, 125, 92, 2, 0, 0), (8, 0, 1, 0), 0.0598, 0.1),
    ),
    "pooled": (pooled(0.3, 0.7), {}, 0, (77, 1, 182, 2, 1, 0), (1, 1, 0, 1), 0.0, 0.025),
    "pooled a little": (pooled(0.45, 0.55), {}, 0, (87, 0, 604, 4, 0, 1), (0, 0, 2, 0), 0.0079, 0.05),
    "pooled coins": (
        *(pooled(0.35, 0.65, caps=[0.0, 1.0]), {"epsilon": 0.1}, 2),
        *((90, 224, 304, 4, 0, 1), (5, 1, 3, 0), 0.0976, 0.1),
    ),
    "pooled path": (pooled_path(0.03), {"epsilon": 0.1}, 0, (47, 3, 426, 5, 0, 1), (0, 0, 3, 0), 0.028, 0.1),
    "rarely paid": (
        *(one_state(0.0, 0.15, caps=[1.0]), {"mode": "quick"}, 0),
        *((10, 3, 61, 1, 0, 0), (0, 0, 0, 0), 0.0, 0.5),
    ),
    "zero features": (
        *(E.FiniteMDP(P=[], R=[np.array([[0.2, 0.7]])], features=[np.zeros((1, 1))]), {}, 0),
        *((1, 7, 604, 4, 4, 0), (0, 0, 0, 3), 0.0, 0.003125),
    ),
}


def run_named(name, tuning=TUNING):
    """Return the outcome of a run of the table, and how often each step objected."""
    env, options, seed, *_ = RUNS[name]
    run, objections = run_of(env, seed, tuning=tuning, **options), Counter(dict.fromkeys(STEPS, 0))
    for step, method in [(step, getattr(run, step)) for step in STEPS]:

        def counted(step=step, method=method):
            before = run.planner.n_episodes, run.p_min
            agreed = method()
            objections[step] += not agreed
            # Who objects plays, or looks for rarer outcomes; or the next exploration plays, where the test found more.
            assert agreed or before != (run.planner.n_episodes, run.p_min) or step in ("test", "ask_returns")
            return agreed

        setattr(run, step, counted)
    return run.learn(), objections


def numbers_of(outcome):
    return (*outcome.counts.values(), outcome.tests_made, outcome.contradictions, outcome.duels_won)


@pytest.mark.parametrize("name", RUNS)
def test_whole_runs_play_as_many_episodes_as_ever_and_each_step_objects(name):
    *_, numbers, objections, quantile, p_min = RUNS[name]
    outcome, counted = run_named(name)
    assert numbers_of(outcome) == numbers
    assert tuple(counted.values()) == (0, *objections)  # exploration plays until it agrees
    assert outcome.loss_quantile == pytest.approx(quantile, abs=1e-4) and outcome.p_min == p_min
    assert outcome.status == ("contradiction" if name == "zero features" else "finished")


def test_every_step_but_the_first_objects_in_some_run():
    assert (np.sum([row[4] for row in RUNS.values()], axis=0) > 0).all()


@pytest.mark.parametrize(
    ("name", "field", "value"),
    [
        ("linear MDP", "ridge", 1e-4),
        ("coins", "noise", 100.0),
        ("noisy lock", "impatience", 1e-9),
        ("lock", "rows_per_episode", 1),
        ("chain", "episodes_per_plan", 50),
        ("coins", "refits", 19),
        ("coins", "first_sample", 7),
        ("coins", "growth", 0.1),
        ("coins", "equal_part", 0.1),
        ("coins", "asks", 1),
        ("chain", "margin", 1.5),
        ("chain", "looks", 1.0),
        ("bet", "untried", 5.0),
        ("rooms", "episodes_per_episode", 20),
        ("pooled path", "first_piece", 31),
        ("rare start", "kept_loss", 0.5),
        ("rare start", "most_tests", 2),
        ("pooled a little", "duels", 1),
        ("pooled coins", "near", 0.01),
        ("pooled a little", "lead", 2.0),
        ("pooled coins", "errors", 10.0),
        ("lock", "contradiction_errors", 0.1),
        ("zero features", "least_share", 0.03),
        ("pooled", "linearity_refits", 39),
        ("pooled", "least_visits", 200),
        ("pooled", "least_disagreement", 2.0),
    ],
)
def test_every_number_of_the_tuning_decides_something(name, field, value):
    assert getattr(TUNING, field) != value
    (before, _), (after, _) = run_named(name), run_named(name, Tuning(**{field: value}))
    assert (numbers_of(before), before.loss_quantile, before.disagreements) != (
        numbers_of(after),
        after.loss_quantile,
        after.disagreements,
    )


def test_the_tuning_is_checked_and_says_what_was_changed():
    assert Tuning() == TUNING and TUNING.changes() == {} and Tuning(margin=1.5, refits=40).changes() == {"margin": 1.5}
    for given, message in (
        ({"margin": 0.0}, "tuning.margin"),
        ({"ridge": math.nan}, "tuning.ridge"),
        ({"refits": 1}, "tuning.refits: expected an integer >= 2, got 1"),
        ({"first_piece": 2.5}, "tuning.first_piece: expected an integer, got 2.5"),
        ({"equal_part": 1.5}, "tuning.equal_part: expected a number in (0, 1], got 1.5"),
        ({"near": "much"}, "tuning.near"),
    ):
        with pytest.raises((TypeError, ValueError), match=re.escape(message)):
            Tuning(**given)
    with pytest.raises(TypeError):
        Tuning(rows=3)


PAGE = (Path(__file__).parents[1] / "docs" / "adaptive.md").read_text()


def test_the_page_names_the_methods_in_their_order_and_the_numbers_with_their_values():
    how = PAGE[PAGE.index("## How it works") : PAGE.index("## The numbers")]
    methods = [name for name in re.findall(r"`(\w+)`", how) if name in vars(SelfStoppingRun)]
    defined = [name for name in vars(SelfStoppingRun) if name in methods]
    assert list(dict.fromkeys(methods)) == defined and set(STEPS) <= set(methods)
    table = dict(re.findall(r"^\| `(\w+)` \| ([^|]+) \|", PAGE, re.M))
    assert {name: float(value) for name, value in table.items()} == Tuning.of_role(PROMISE)


# ---- Aims, intervals, and what is reported


def test_equal_seeds_give_equal_bits():
    env = E.river_swim(6, 10)
    first, second, other = (run_of(env, seed, mode="quick").learn() for seed in (3, 3, 4))
    assert first.theta.tobytes() == second.theta.tobytes() and first.counts == second.counts
    assert first.theta.tobytes() != other.theta.tobytes()


def test_the_sizes_of_all_tests_together_err_with_probability_delta():
    aim = Aim.of(0.05, 0.05)
    assert [aim.test_size(j) for j in (1, 2, 3)] == [61, 121, 181]
    assert sum((1 - 0.05) ** aim.test_size(j) for j in range(1, 200)) <= 0.05
    assert sum((1 - 0.2) ** Aim.of(0.2, 0.01).test_size(j) for j in range(1, 200)) <= 0.01


@pytest.mark.parametrize("delta", [0.5, 0.05, 1e-3, 1e-12])
def test_half_of_delta_in_the_strict_mode_is_for_outcomes_never_seen(delta):
    assert math.exp(-Aim.of(0.1, delta).log_confidence) == pytest.approx(delta / 2)
    assert Aim.of(0.1, delta, mode="quick").log_confidence == math.log(1 / delta)


def test_the_modes_differ_in_the_smallest_probability_that_they_consider():
    assert Aim.of(0.1, 0.2).numbers() == Aim.of(0.1, 0.2, mode="strict", p_min=0.1).numbers()
    assert Aim.of(0.1, 0.2, mode="quick").p_min == 0.5
    assert Aim.of(0.1, 0.2, p_min=0.3).p_min == 0.3
    assert list(Aim.of().numbers()) == ["epsilon", "delta", "p_min", "log_confidence"]  # as in journals of 0.2.0


def test_the_interval_covers_the_mean():
    """Its ends are where n kl(mean, end) = log(2 / delta); the law of the means is summed instead of drawn."""
    for mean, n in itertools.product((0.02, 0.5, 0.98), (20, 61, 300)):
        law = np.array([math.comb(n, k) * mean**k * (1 - mean) ** (n - k) for k in range(n + 1)])
        likely = np.flatnonzero(law > 1e-4)
        covered = [k for k in likely if interval(k / n, n, 0.05)[0] <= mean <= interval(k / n, n, 0.05)[1]]
        assert law[covered].sum() >= 0.95
    low, high = interval(0.7, 61, 0.05)
    for end in (low, high):
        divergence = 0.7 * math.log(0.7 / end) + 0.3 * math.log(0.3 / (1 - end))
        assert 61 * divergence == pytest.approx(math.log(40), rel=1e-9)
    assert interval(math.nan, 0, 0.05) == (0.0, 1.0)
    assert interval(0.0, 10, 0.05)[0] == 0.0 and interval(1.0, 10, 0.05)[1] == 1.0


def test_refits_that_see_no_loss_play_as_well():
    """One arm pays .35 for sure, and one worth .8 was unlucky: refits that see a loss prefer the first."""
    run = run_of(one_state(0.35, 0.8, caps=[1.0]))
    for i in range(408):
        run.planner.add([[1.0]], np.array([int(i < 8)]), [float(i < 3) if i < 8 else 0.35])
    run.plan()
    assert run.noisy and not run.refits_agree(Candidate(run.planner, run.planner.theta, np.arange(8)))
    run.plan()
    assert (1 / run.planner.table(0)[0])[0, 1] > 8 + 2


@pytest.mark.parametrize(("errors", "least", "most"), [(1.75, 0, 10), (2.6, 30, 40)])
def test_refits_agree_where_a_loss_above_epsilon_is_unlikely_at_many_looks(errors, least, most):
    """Two coins, whose heads differ so that a loss of epsilon is so many standard errors away.

    At 1.75 errors 25 of 40 runs agree by the quantile of the sample, asked once; 13 by the present one, asked once.
    """
    n = 400
    lead = round((errors * math.sqrt(0.5 * n) - 0.05 * n) / 2)
    heads = n // 2 + lead, n // 2 - lead
    agreed = 0
    for seed in range(40):
        run = run_of(one_state(0.5, 0.5, caps=[1.0]), seed)
        for action, one in enumerate(heads):
            for i in range(n):
                run.planner.add([[1.0]], np.array([action]), [float(i < one)])
        run.plan()
        agreed += run.refits_agree(Candidate(run.planner, run.planner.theta, np.arange(61)))
    assert least <= agreed <= most


def test_what_was_random_once_is_random():
    run = run_of(one_state(0.35, 0.8))
    run.episodes.play("explore", 5, run.planner.theta)
    run.plan()
    assert not run.noisy
    run.noisy = True
    run.plan()
    assert run.noisy


def test_where_the_watched_policy_may_miss_the_most_episodes_follow_it_to_that_level():
    class Watched(Candidate):
        def loss(self, theta=None):
            return 0.0

        def upper_upsides(self, confidence_left):
            return np.array([0.0, 0.1, 0.3, 0.2, 0.0, 0.0])

    class Played(Exception):
        pass

    def play(*arguments):
        raise Played(*arguments)

    run = run_of(E.combination_lock(6, 3, rng=0))
    run.explore()
    run.watched, run.episodes.play = Watched(run.planner, run.planner.theta), play
    with pytest.raises(Played) as caught:
        run.close_upsides(0.0)
    assert caught.value.args == ("explore", 1, run.watched.theta, 2)


def test_refits_to_returns_end_once_more_than_half_of_them_agree():
    run = run_of(E.combination_lock(6, 3, rng=0))
    run.learn()
    drawn, refits = [], run.bootstrap.refits_to_returns
    run.bootstrap.refits_to_returns = lambda rng: (drawn.append(theta) or theta for theta in refits(rng))
    assert not run.duels.returns_favour_another(run.candidate)
    assert len(drawn) == run.tuning.refits // 2 + 1


@pytest.mark.parametrize(
    ("returns", "won"),
    [
        # Mean returns and standard errors; at epsilon = .05 a lead of .025 and two standard errors win.
        ([(0.5, 0.006), (0.544, 0.008)], 0),
        ([(0.5, 0.006), (0.546, 0.008), (0.55, 0.0)], 1),
        ([(0.1, 0.0), (0.2, 0.0), (0.3, 0.0), (0.4, 0.0), (0.5, 0.0)], 3),
    ],
)
def test_a_rival_wins_by_a_lead_and_two_standard_errors_three_times_at_most(returns, won):
    class Tested:
        def __init__(self, numbers):
            self.mean_return = lambda: numbers

    duels, (candidate, *rivals) = run_of(one_state(0.35, 0.8)).duels, map(Tested, returns)
    duels.returns_favour_another, duels.rival = lambda candidate: True, iter(rivals).__next__
    assert duels.winner(candidate) is [candidate, *rivals][won] and duels.won == won


@pytest.mark.parametrize(
    ("budget", "status"), [({"max_trajectories": 50}, "max_trajectories"), ({"max_seconds": 1e-9}, "max_seconds")]
)
def test_a_budget_ends_the_run_without_a_promise(budget, status):
    outcome = run_of(E.combination_lock(20, 4, rng=0), **budget).learn()
    assert outcome.status == status and outcome.n_episodes <= 50
    assert math.isnan(outcome.mean_return) and outcome.interval == (0.0, 1.0) and outcome.test_size == 0
    assert any("no test was passed" in warning for warning in outcome.warnings)


@pytest.mark.parametrize(
    ("env", "options", "said"),
    [
        (one_state(0.0, 0.0), {}, "no episode earned anything: if"),
        (one_state(0.0, 0.0), {"mode": "quick"}, "no episode earned anything: if"),
        (
            one_state(0.01, 0.04),
            {},
            "any policy that was played would keep the promise",
        ),  # every policy is within epsilon of the best
        (one_state(0.01, 0.04), {"epsilon": 0.01}, None),
        (pooled(0.3, 0.7), {}, "predicted value and mean return of a test differed"),
        (pooled(0.45, 0.55), {}, "Q* is not linear"),
        (RUNS["zero features"][0], {}, "no test was passed"),
    ],
    ids=["nothing to earn", "nothing, quick", "little to earn", "enough", "contradiction", "duel", "no features"],
)
def test_reasons_to_doubt_a_result_are_reported(env, options, said):
    outcome = run_of(env, **options).learn()
    assert outcome.warnings == () if said is None else any(said in warning for warning in outcome.warnings)
    assert outcome.p_min <= 0.05


def test_while_nothing_ever_paid_rarer_outcomes_are_looked_for():
    run = run_of(one_state(0.0, 0.0), mode="quick")
    run.explore()
    assert run.floor == 0.03125 and run.p_min == 0.5  # halved until it is at most epsilon
    paid = run_of(one_state(0.0, 0.15, caps=[1.0]), mode="quick")
    paid.floor = 0.25
    paid.explore()
    assert paid.planner.rewarded and paid.floor == 0.5


@pytest.mark.parametrize(
    "env",
    [one_state(0.0), one_state(*np.linspace(0, 1, 50)), E.combination_lock(200, 2, rng=0)],
    ids=["one action", "many actions", "many levels"],
)
def test_extreme_sizes(env):
    outcome = run_of(env).learn()
    assert outcome.status == "finished" and loss(env, outcome) <= 0.05


@pytest.mark.parametrize("length", [0.09, 1e-3, 1e-6])
def test_short_features_are_explored(length):
    outcome = run_of(env := short_lock(length)).learn()
    assert outcome.status == "finished" and loss(env, outcome) == 0 and outcome.n_episodes < 200


def test_tiny_delta_ends():
    outcome = run_of(E.combination_lock(3, 2, rng=0), delta=1e-17).learn()
    assert outcome.status == "finished" and outcome.test_size > 700


def test_returns_overrule_features_that_pool_states():
    """Level 1 pools two states worth .3 and .7, so that the level before has no reason to prefer either."""
    for seed in range(6):
        outcome = run_of(env := pooled(0.3, 0.7), seed).learn()
        assert outcome.status in ("finished", "contradiction") and loss(env, outcome) == 0
        assert outcome.status == "contradiction" or outcome.mean_return == pytest.approx(0.7)


def test_after_too_many_tests_the_best_by_returns_is_returned():
    outcome, _ = run_named("pooled a little", Tuning(most_tests=1))
    assert (outcome.status, outcome.tests_made, outcome.test_size) == ("contradiction", 2, 0)
    assert loss(RUNS["pooled a little"][0], outcome) == 0  # the policy of the duel


def test_progress_is_called_after_every_plan():
    seen = []
    outcome = run_of(E.chain(5, rng=0), mode="quick", progress=lambda *report: seen.append(report)).learn()
    assert {"explore", "test"} <= {phase for phase, _ in seen} <= {"explore", "refine", "test"}
    assert seen[0] == ("explore", 1.0) and seen[-1][1] <= outcome.epsilon


# ---- Environments of every kind


@pytest.mark.parametrize("chunk_size", [4096, 3])
def test_learns_an_environment_written_in_python(chunk_size):
    env = Line()
    env.chunk_size = chunk_size
    first, second = (run_of(env, 1, epsilon=0.2, delta=0.2, mode="quick").learn() for _ in range(2))
    assert first.status == "finished" and first.theta.tobytes() == second.theta.tobytes()
    value = as_sampler(Line()).evaluate(Policy.greedy(first.theta), 20_000, stream=Stream(9)).value
    assert abs(value - 0.9**4) < 0.02


def test_faults_of_an_environment_written_in_python_name_the_episode():
    class Unpaid(Line):
        def step(self, level, states, actions, rng):
            states, rewards = super().step(level, states, actions, rng)
            return states, rewards + (np.nan if level == 2 else 0.0)

    class NoPair(Line):
        def step(self, level, states, actions, rng):
            return super().step(level, states, actions, rng)[0]

    with pytest.raises(ValueError, match=r"level 2, call 0.*rewards"):
        run_of(Unpaid()).learn()
    with pytest.raises(TypeError, match=r"level 0, call 0.*expected \(states, rewards\)"):
        run_of(NoPair()).learn()


def test_states_are_released():
    released = []

    class Held(Line):
        def release(self, states):
            released.append(len(states))

    outcome = run_of(Held(), 1, epsilon=0.1, mode="quick").learn()
    assert sum(released) == outcome.n_episodes


def test_learns_a_gymnasium_environment_step_by_step():
    pytest.importorskip("gymnasium")
    env = E.make("gym:FrozenLake-v1", horizon=12, is_slippery=False, through="step")
    outcome = run_of(env, mode="quick", max_trajectories=3000).learn()
    assert outcome.status == "finished" and outcome.mean_return > 0.9


def test_noisy_features_of_a_compiled_environment():
    env = E.lock_bernoulli(4, 0.1, rng=0, observation="coins")
    outcome = run_of(env, mode="quick").learn()
    value = as_sampler(env).evaluate(Policy.greedy(outcome.theta), 20_000, stream=Stream(9)).value
    assert outcome.status == "finished" and env.optimal_value - value < 0.07


# ---- The front


LOCK = E.combination_lock(8, 3, rng=0)


def learned(env, epsilon=0.05, delta=0.05, *, mode="strict", p_min=None, rng=0, **how):
    return SelfStopping(env, epsilon, delta, mode=mode, p_min=p_min, rng=rng).learn(**how)


def content(result):
    return (
        result.theta.tobytes(), result.counts, result.status, result.stopping, result.parameters, result.key,
        result.warnings,
    )  # fmt: skip


WALK = {"epsilon": 0.2, "delta": 0.2, "mode": "quick"}
JOURNALS = {
    "lock": (lambda: E.combination_lock(6, 3, rng=0), {}),
    "river swim": (lambda: E.river_swim(4, 8), {"epsilon": 0.1, "mode": "quick"}),
    "noisy features": (lambda: E.lock_bernoulli(3, 0.1, rng=0, observation="coins"), {"epsilon": 0.2, "mode": "quick"}),
    "Python": (lambda: Counted(Line()), WALK),
}


def ends_of(contents):
    ends = [0]
    for _, _, payload in journal.records(contents):
        ends.append(ends[-1] + journal.HEAD.size + len(payload))
    return ends[1:]


@pytest.mark.parametrize("name", JOURNALS)
def test_a_journal_that_ends_after_any_record_gives_the_undisturbed_run(tmp_path, name):
    make, aim = JOURNALS[name]
    path = tmp_path / "journal"
    expected = learned(make(), rng=3, **aim)
    assert expected.status == "finished"
    assert content(learned(make(), rng=3, journal=path, **aim)) == content(expected)
    whole = path.read_bytes()
    ends = ends_of(whole)
    assert len(ends) > 10
    for end in [*ends[: -1 : max(1, len(ends) // 4)], ends[-2] + 9, ends[-1]]:
        path.write_bytes(whole[:end])
        source = make()
        assert content(learned(source, rng=None, journal=path, **aim)) == content(expected)
        assert len(path.read_bytes()) == len(whole)
        if name == "Python":  # nothing that the journal holds is played again
            recorded = sum(record.integers[0] for record in journal.read(path, whole[:end]).decisions)
            assert source.shown == expected.n_trajectories - recorded


@pytest.mark.parametrize("budget", [{"max_trajectories": 70}, {"max_seconds": 1e-3}])
def test_a_run_that_a_budget_ended_goes_on(tmp_path, budget):
    path = tmp_path / "journal"
    expected = learned(LOCK, rng=3)
    part = learned(LOCK, rng=3, journal=path, **budget)
    assert part.status == next(iter(budget)) and part.n_trajectories < expected.n_trajectories
    assert content(learned(LOCK, rng=3, journal=path)) == content(expected)


def test_an_exception_in_the_midst_leaves_a_journal_to_resume_from(tmp_path):
    class Fragile(Line):
        steps, most = 0, 40

        def step(self, level, states, actions, rng):
            self.steps += 1
            if self.steps == self.most:
                raise OSError("the simulator is gone")
            return super().step(level, states, actions, rng)

    path = tmp_path / "journal"
    expected = learned(Line(), rng=3, **WALK)
    run = SelfStopping(Fragile(), rng=3, **WALK)
    with pytest.raises(OSError, match="the simulator is gone"):
        run.learn(journal=path)
    assert run.result().status == "failed" and 0 < run.result().n_trajectories < expected.n_trajectories
    lasting = Fragile()
    lasting.most = -1
    assert content(learned(lasting, rng=3, journal=path, **WALK)) == content(expected)


SCRIPT = """
import sys, time
import numpy as np
import dmq_fast as dmq

class Line:
    horizon, n_actions, dimension = 4, 2, 5
    def reset(self, n, rng):
        return np.zeros(n, dtype=int)
    def features(self, level, states):
        return np.eye(5)[states]
    def step(self, level, states, actions, rng):
        time.sleep(float(sys.argv[2]))
        states = states + actions * (rng.random(len(states)) < 0.9)
        return states, (states == 4).astype(float)

result = dmq.learn(Line(), epsilon=0.2, delta=0.2, mode="quick", rng=3, journal=sys.argv[1])
print(result.theta.tobytes().hex(), result.counts, result.stopping)
"""


@pytest.mark.slow
def test_a_killed_run_resumes_to_the_same_bits(tmp_path):
    path = tmp_path / "journal"

    def command(pause):
        return [sys.executable, "-P", "-c", SCRIPT, str(path), str(pause)]

    expected = subprocess.run(command(0), capture_output=True, text=True, check=True).stdout
    path.unlink()
    for _ in range(3):
        process = subprocess.Popen(command(0.002), stdout=subprocess.DEVNULL)
        size = path.stat().st_size if path.exists() else 0
        while process.poll() is None and not (path.exists() and path.stat().st_size > size + 5_000):
            time.sleep(0.01)
        process.kill()
        process.wait()
    assert len(ends_of(path.read_bytes())) > 10
    assert subprocess.run(command(0), capture_output=True, text=True, check=True).stdout == expected


def test_workers_change_no_bit():
    make, aim = JOURNALS["Python"]
    expected = content(learned(make(), rng=3, **aim))
    with ThreadPoolExecutor(2) as threads:
        assert content(learned(make(), rng=3, executor=threads, **aim)) == expected
    assert content(learned(make(), rng=3, workers=2, **aim)) == expected


def test_a_journal_of_another_aim_tuning_or_algorithm_is_refused(tmp_path):
    path = tmp_path / "journal"
    learned(LOCK, 0.1, rng=3, journal=path)
    with pytest.raises(journal.JournalError, match=r"parameters.epsilon is 0\.1 there and 0\.2 here"):
        learned(LOCK, 0.2, rng=3, journal=path)
    with pytest.raises(journal.JournalError, match=r"tuning is None there and \{'margin': 1.5\} here"):
        SelfStopping(LOCK, 0.1, tuning=Tuning(margin=1.5), rng=3).learn(journal=path)
    assert SelfStopping(LOCK, 0.1, tuning=Tuning(), rng=3).learn(journal=path).status == "finished"
    with pytest.raises(journal.JournalError, match="variant is 'adaptive' there and 'frugal' here"):
        DMQ(LOCK, variant="frugal", rng=3).learn(journal=path)


@pytest.mark.parametrize("aim", [{"epsilon": 0.1}, {"mode": "quick"}, {"p_min": 0.3}], ids=str)
def test_a_result_has_what_the_run_promises(tmp_path, aim):
    result = learned(LOCK, **aim)
    assert result.status == "finished" and LOCK.value(result.policy) == LOCK.optimal_value
    assert result.n_trajectories == sum(result.counts["trajectories"].values())
    assert result.stopping["interval"][0] <= LOCK.optimal_value <= result.stopping["interval"][1]
    result.save(tmp_path / "result.npz")
    again = load(tmp_path / "result.npz")
    assert type(again) is type(result) and again.policy == result.policy and content(again) == content(result)
    assert (result.mode, result.epsilon) == (aim.get("mode", "strict"), aim.get("epsilon", 0.05))
    with pytest.raises(TypeError, match="result: expected a DMQResult, which has covers, got SelfStoppingResult"):
        certificate(result)


def test_one_call_learns_what_the_learner_learns():
    assert content(learn(LOCK, 0.1, rng=0, max_trajectories=20)) == content(learned(LOCK, 0.1, max_trajectories=20))


def test_a_result_without_a_passed_test_is_saved_and_loaded(tmp_path):
    result = learned(LOCK, 0.1, max_trajectories=5)
    assert result.status == "max_trajectories" and result.stopping["mean_return"] is None
    result.save(tmp_path / "result.npz")
    assert load(tmp_path / "result.npz").stopping == result.stopping


def test_equal_returns_are_reported_while_nothing_is_tested():
    said = "all episodes had the same return: nothing shows which actions are better"
    assert said in learned(E.cart_pole(6), 0.1, max_trajectories=10).warnings
    assert said not in learned(E.cart_pole(6), 0.1, max_trajectories=1).warnings


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"epsilon": 1.0}, "epsilon: expected a number in"),
        ({"delta": 0.0}, "delta"),
        ({"p_min": 1.5}, "p_min: expected a number in"),
        ({"mode": "fast"}, "mode: expected one of auto, strict, quick, many, tested, got 'fast'"),
        ({"tuning": {"margin": 1.5}}, "tuning: expected a Tuning"),
        ({"env": FlowSampler(LOCK)}, "a sampler that shows trajectories"),
    ],
    ids=str,
)
def test_wrong_arguments_are_refused_before_the_run(arguments, message):
    with pytest.raises((TypeError, ValueError), match=message):
        SelfStopping(**{"env": LOCK, **arguments})


def test_an_interrupted_run_shows_what_it_learned():
    def stop(progress):
        if progress.n_trajectories == 5:
            raise KeyboardInterrupt

    run = SelfStopping(LOCK, epsilon=0.1, rng=0)
    with pytest.raises(KeyboardInterrupt):
        run.learn(progress=stop)
    assert run.result().status == "interrupted" and run.result().n_trajectories == 5


def test_the_shell_learns_resumes_and_writes_a_page(tmp_path, capsys):
    pytest.importorskip("matplotlib")
    run = tmp_path / "run"
    assert (
        main(["learn", "lock", "--horizon", "8", "--epsilon", "0.1", "--seed", "1", "--json", "--out", str(run)]) == 0
    )
    assert json.loads(capsys.readouterr().out)["stopping"]["test_size"] >= 31
    assert main(["resume", str(run)]) == 0
    assert "test 1 was passed" in capsys.readouterr().out
    assert main(["report", str(run)]) == 0
    assert "test 1 was passed" in (run / "report.html").read_text()


def test_sweeps_of_it_have_a_page(tmp_path):
    pytest.importorskip("matplotlib")
    spec = {
        "seeds": 1,
        "environments": [{"name": "lock", "horizon": 6}],
        "algorithms": [{"name": "self-stopping", "epsilon": [0.1, 0.2], "mode": "quick"}],
    }
    experiments.sweep(spec, tmp_path / "sweep")
    assert [row["status"] for row in experiments.load(tmp_path / "sweep")] == ["finished"] * 2
    assert main(["report", str(tmp_path / "sweep")]) == 0
    assert "epsilon" in (tmp_path / "sweep" / "report.html").read_text()
