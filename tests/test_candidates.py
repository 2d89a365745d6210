"""Policies that are drawn, and candidates that are checked, in one call: one by one, they give the same."""

from __future__ import annotations

import numpy as np
import pytest

import dmq_fast as dmq
from dmq_fast.covers.candidates import Candidates
from dmq_fast.covers.oracle import Regression
from dmq_fast.engine import journal
from dmq_fast.features import TileCoding
from dmq_fast.kernels import Fixed, LevelRows, RowOracle, RowScan, Uniform, draw_each, draw_until_shift
from dmq_fast.policy import Deviations
from dmq_fast.samplers import RolloutSampler, rollout

pytestmark = pytest.mark.kernels

STREAM = dmq.Stream(3, call=10)


def tiles(horizon=6):
    return dmq.environments.mountain_car(horizon=horizon, features=TileCoding([-1.2, -0.07], [0.6, 0.07], 6, 4))


ENVIRONMENTS = {
    "deep sea": lambda: dmq.environments.deep_sea(25, rng=0),
    "river swim": lambda: dmq.environments.river_swim(30, 12),
    "tiles": tiles,
}


def oracles_of(env, n_seen):
    """By level, the oracle of the states that a uniform policy sees."""
    moments = RolloutSampler(env).collect(
        dmq.Policy.uniform(env.horizon), n_seen, stream=dmq.Stream(0), levels=range(env.horizon)
    )
    oracles = []
    for h in range(env.horizon):
        oracles.append(RowOracle(env.dimension, 0.01))
        support = np.flatnonzero(moments.gram[h].diagonal())
        oracles[-1].add_gram(support, moments.gram[h][np.ix_(support, support)])
    return oracles


def policies_of(env, n, h):
    """The rules of some policies, which draw, choose and are greedy; and those of one to follow from level h on."""
    rng = np.random.default_rng(1)
    kinds = [Uniform(), Fixed(0), Fixed(env.n_actions - 1)]
    kinds += [dmq.kernels.Greedy(rng.normal(size=(env.n_actions, env.dimension))) for _ in range(3)]
    some = [tuple(kinds[k] for k in rng.integers(len(kinds), size=env.horizon)) for _ in range(n + 1)]
    return some[:n], (*some[n][:h], Fixed(1), *some[n][h + 1 :])


def one_by_one(env, scan, oracles, before, policy, n, h, levels, returns_from):
    model, drawn = RolloutSampler(env)._model, []
    for i, rules in enumerate(before):
        marginal = scan.n_marginal
        drawn.append(model.rollout(rules[:h] + policy[h:], n, STREAM.at(10 + i), levels, returns_from, True))
        found, _ = scan.scan(oracles, drawn[-1][0], n, levels[0], env.horizon - 1, h + 1)
        if found >= 0 or scan.n_marginal > marginal:
            return drawn, False
    return drawn, True


@pytest.mark.parametrize("name", ENVIRONMENTS)
@pytest.mark.parametrize("reuse", [False, True])
@pytest.mark.parametrize("n", [1, 2, 20, 600])
@pytest.mark.parametrize("eps_t", [0.2, 1e4])
def test_the_kernel_takes_the_steps_of_its_loop(name, reuse, n, eps_t):
    env, stopped = ENVIRONMENTS[name](), 0
    oracles = oracles_of(env, 20)
    for h in (0, 2, env.horizon - 2):
        before, policy = policies_of(env, 9, h)
        levels, returns_from = (range(h, env.horizon), (h,)) if reuse else (range(h + 1, env.horizon), ())
        arguments = (oracles, before, policy, n)
        one = RowScan(1.0, eps_t)
        expected, certain = one_by_one(env, one, *arguments, h, levels, returns_from)
        many = RowScan(1.0, eps_t)
        model = RolloutSampler(env)._model
        drawn, all_false, seconds = draw_until_shift(model, many, *arguments, STREAM, h, levels, returns_from)
        assert (len(drawn), all_false, many.n_marginal) == (len(expected), certain, one.n_marginal)
        assert seconds >= 0.0
        stopped += not certain
        for (rows, *sums), (their_rows, *their_sums) in zip(drawn, expected, strict=True):
            for level in range(len(levels)):
                for ours, theirs in zip(rows.arrays(level), their_rows.arrays(level), strict=True):
                    np.testing.assert_array_equal(ours, theirs)
            for ours, theirs in zip(sums, their_sums, strict=True):
                np.testing.assert_array_equal(ours, theirs)
    assert stopped == 0 if eps_t == 1e4 else stopped > 0


@pytest.mark.parametrize("in_rows", [False, True])
@pytest.mark.parametrize("name", ENVIRONMENTS)
def test_each_policy_is_drawn_as_alone(name, in_rows):
    env = ENVIRONMENTS[name]()
    model = RolloutSampler(env)._model
    for h in (0, 3, env.horizon):
        before, policy = policies_of(env, 5, min(h, env.horizon - 1))
        for n, levels, returns_from in [(0, (0,), (0,)), (3, (1, 4), (1, 2)), (600, (), (0,)), (20, (2,), ())]:
            drawn = draw_each(model, before, policy, n, STREAM, h, levels, returns_from, in_rows)
            assert len(drawn) == len(before)
            for i, (rules, (sums, *others)) in enumerate(zip(before, drawn, strict=True)):
                their_sums, *theirs = model.rollout(
                    rules[:h] + policy[h:], n, STREAM.at(10 + i), levels, returns_from, in_rows
                )
                for level in range(len(levels)):
                    one, other = (sums.gram(level), their_sums.gram(level)) if in_rows else (sums, their_sums)
                    np.testing.assert_array_equal(one, other)
                for ours, their in zip(others, theirs, strict=True):
                    np.testing.assert_array_equal(ours, their)


def test_policies_to_draw_must_fit():
    model, rules = RolloutSampler(ENVIRONMENTS["deep sea"]())._model, (Fixed(0),) * 25
    for h, before, message in [
        (26, [rules], r"^h: expected an integer in \[0, 25\], got 26"), (-1, [rules], "^h: "),
        (3, [], "^before: expected at least one policy, got none"),
        (3, [rules, rules[:3]], "^before: expected 25 rules, one a level, got 3"),
        (3, [rules, (Fixed(2), *rules[1:])], "^policy: level 0 takes action 2, expected < 2"),
    ]:  # fmt: skip
        with pytest.raises(ValueError, match=message):
            draw_each(model, before, rules, 2, STREAM, h, (4,), (), False)


@pytest.mark.parametrize("n", [0, 1, 7, 512, 513, 2000])
def test_rows_are_those_of_the_matrices(n):
    for make in ENVIRONMENTS.values():
        env = make()
        before, policy = policies_of(env, 1, 3)
        model, levels = RolloutSampler(env)._model, [0, 2, env.horizon - 1]
        rows, *sums = model.rollout(before[0][:3] + policy[3:], n, STREAM, levels, (1, 2), True)
        grams, *their_sums = model.rollout(before[0][:3] + policy[3:], n, STREAM, levels, (1, 2), False)
        assert rows.n_levels == len(levels)
        for i in range(len(levels)):
            np.testing.assert_allclose(rows.gram(i), grams[i], rtol=1e-13, atol=1e-300)
        np.testing.assert_allclose(sums[0], their_sums[0], rtol=1e-13, atol=1e-15)
        np.testing.assert_array_equal(sums[1], their_sums[1])


def arguments_of_the_kernel():
    env = ENVIRONMENTS["deep sea"]()
    before, policy = policies_of(env, 2, 3)
    return {
        "model": RolloutSampler(env)._model, "scan": RowScan(1.0, 1e9), "cover": oracles_of(env, 100),
        "before": before, "policy": policy, "n": 1, "stream": STREAM, "h": 3, "levels": range(4, 25),
        "returns_from": (),
    }  # fmt: skip


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"h": 24}, r"^h: expected an integer in \[0, 24\), got 24"),
        ({"h": -1}, "^h: "),
        ({"levels": [4, 6]}, "^levels: expected consecutive levels"),
        ({"levels": []}, "^levels: expected consecutive levels"),
        ({"levels": range(5, 25)}, "^scan: rows and levels do not fit together"),
        ({"n": -1}, "^n: "),
        ({"n": 0}, "^scan: "),
        ({"cover": []}, "^scan: "),
        ({"policy": (Fixed(0),)}, "^policy: expected 25 rules"),
        ({"before": []}, "^before: expected at least one policy, got none"),
        ({"before": [(Fixed(0),) * 25, (Fixed(0),)]}, "^before: expected 25 rules, one a level, got 1"),
        ({"before": [(Fixed(0),) * 25, (Fixed(2),) * 25]}, "^policy: level 0 takes action 2, expected < 2"),
    ],
)
def test_the_kernel_refuses_what_does_not_fit(change, message):
    with pytest.raises(ValueError, match=message):
        draw_until_shift(**(arguments_of_the_kernel() | change))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"scan": object()}, "^scan: expected a RowScan or a ShiftScan, got object"),
        ({"before": [None]}, "^before: expected tuples of rules, got NoneType"),
        ({"before": [(Fixed(0),) * 25, [Fixed(0)] * 25]}, "^before: expected tuples of rules, got list"),
        ({"cover": [None] * 25}, r"^oracles\[24\]: expected a RowOracle, got NoneType"),
    ],
)
def test_the_kernel_refuses_what_is_of_another_type(change, message):
    with pytest.raises(TypeError, match=message):
        draw_until_shift(**(arguments_of_the_kernel() | change))


def test_the_sum_of_rows_is_that_of_their_pairs():
    rng = np.random.default_rng(0)
    parts = [
        LevelRows.of(
            [rng.integers(0, 2, (3, 4)) * 0.1, rng.integers(0, 2, (5, 4)) * 0.1], [rng.random(3), rng.random(5)]
        )
        for _ in range(20)
    ]
    places = [i % 2 for i in range(20)]
    expected = parts[0].pick([0])
    for part, place in zip(parts[1:], places[1:], strict=True):
        expected = expected + part.pick([place])
    total = LevelRows.total(parts, places)
    for ours, theirs in zip(total.arrays(0), expected.arrays(0), strict=True):
        np.testing.assert_array_equal(ours, theirs)
    for arguments, error in [
        (([], []), ValueError), ((parts, places[1:]), ValueError), ((parts[:1], [2]), IndexError),
        ((parts[:1], [-1]), IndexError), (([parts[0], LevelRows.of([[[1.0]]])], [0, 0]), ValueError),
        (([parts[0], None], [0, 0]), TypeError),
    ]:  # fmt: skip
        with pytest.raises(error):
            LevelRows.total(*arguments)


# The same trajectories from a class of a user's, which is asked for one call at a time. Journals know it by its name.
OneByOne = type("RolloutSampler", (RolloutSampler,), {})


RUNS = [
    {"n_samples": 1, "variant": "frugal"},
    {"n_samples": 3, "variant": "frugal", "reuse": False},
    {"n_samples": 2, "variant": "frugal", "accumulate": False, "max_trajectories": 3000},
    {"n_samples": 2, "variant": "sound", "memo": True, "max_trajectories": 3000},
    {"n_samples": 2, "variant": "sound", "max_trajectories": 3000},
    {"n_samples": 2, "variant": "sound", "accumulate": True, "max_trajectories": 2999},
]


def run(sampler, journal, **chosen):
    return dmq.DMQ(sampler, rng=0, journal=journal, **({"eps_t": 3.0, "max_policies": 40} | chosen)).learn()


def answers(path):
    """What a journal says, by record: its kind, and where no clock is in it, the call and all that follows.

    Records of what was synced are left out: one is written a second.
    """
    return [
        (kind, None if kind in (journal.HEADER, journal.LEVEL, journal.CLOCK) else bytes(payload[8:]))
        for kind, _, payload in journal.records(path.read_bytes())
        if kind != journal.SYNCED
    ]


def same(one, other):
    assert (one.status, one.counts, one.warnings) == (other.status, other.counts, other.warnings)
    assert (one.theta == other.theta).all() and one.history == other.history
    assert one.cover == other.cover


@pytest.mark.parametrize("name", ENVIRONMENTS)
@pytest.mark.parametrize("chosen", RUNS, ids=lambda chosen: "-".join(map(str, chosen.values())))
def test_a_run_is_what_it_is_one_by_one(name, chosen, tmp_path, monkeypatch):
    env, calls = ENVIRONMENTS[name](), []
    draw = Candidates._draw
    monkeypatch.setattr(Candidates, "_draw", lambda *arguments: calls.append(draw(*arguments)) or calls[-1])
    expected = run(OneByOne(env), tmp_path / "one by one", **chosen)
    assert not calls
    found = run(RolloutSampler(env), tmp_path / "many", **chosen)
    same(found, expected)
    assert sum(calls) > 0
    assert answers(tmp_path / "many") == answers(tmp_path / "one by one")
    same(run(RolloutSampler(env), None, **chosen), expected)
    same(run(RolloutSampler(env), tmp_path / "one by one", **chosen), expected)  # replayed
    monkeypatch.setattr(rollout, "AT_ONCE", 2)
    same(run(RolloutSampler(env), None, **chosen), expected)


def test_a_budget_ends_a_run_where_it_ends_one_by_one(tmp_path):
    env = ENVIRONMENTS["deep sea"]()
    for limit in (97, 200, 333, 500):
        budget = {"n_samples": 1, "variant": "frugal", "max_trajectories": limit, "max_policies": 10**6}
        one, many = tmp_path / f"one {limit}", tmp_path / f"many {limit}"
        expected = run(OneByOne(env), one, **budget)
        same(run(RolloutSampler(env), many, **budget), expected)
        assert expected.status == "max_trajectories"
        assert expected.n_trajectories == limit
        whole = {"n_samples": 1, "variant": "frugal", "max_policies": 10**6}
        same(run(RolloutSampler(env), one, **whole), run(OneByOne(env), many, **whole))


@pytest.mark.parametrize("chosen", RUNS, ids=lambda chosen: "-".join(map(str, chosen.values())))
def test_the_pairs_of_a_level_keep_no_other_level(chosen, monkeypatch):
    """Algorithm 2 holds them while it runs for later levels, up to H of it at a time."""
    fit, held = Regression.fit, []

    def fit_and_look(self, pairs, h):
        held.extend(tuple(pair.moments.levels) == (h,) for pair in pairs)
        return fit(self, pairs, h)

    monkeypatch.setattr(Regression, "fit", fit_and_look)
    for env in (ENVIRONMENTS["deep sea"](), dmq.environments.combination_lock(6, 3, rng=0)):
        run(env, None, **chosen)
    assert len(held) > 100
    assert all(held)


def test_deviations_are_those_of_each_policy():
    cover, after = [dmq.Policy.fixed([a] * 4) for a in range(3)], dmq.Policy.fixed([5] * 4)
    deviations = Deviations(cover, 1, 7, after)
    assert list(deviations) == [pi.deviate(1, 7, after) for pi in cover]
    assert deviations[1:] == list(deviations)[1:] and deviations[-1] == deviations[2]
    cover.append(after)
    assert len(deviations) == 4 and repr(deviations[3]) == "Policy([5][7][5][5])"
