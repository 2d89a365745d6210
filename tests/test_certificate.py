"""Certificates: measures of policies and results on finite MDPs, and the statements about a run."""

import itertools
import json
from dataclasses import replace

import numpy as np
import pytest
from flat import flat
from hypothesis import given, settings
from hypothesis import strategies as st
from refusals import refused
from test_finite_mdp import paths

import dmq_fast as dmq
from dmq_fast import Policy, certificate_table
from dmq_fast.environments import FiniteMDP, combination_lock, deep_sea, linear_q, river_swim
from dmq_fast.function_class import FiniteClass, LinearSolver
from dmq_fast.kernels import Fixed, Uniform
from dmq_fast.rewards import RewardModel
from dmq_fast.theory.certificate import (
    checked_policies,
    low_variance,
    policy_values,
    suboptimal_probability,
    value_error,
)


@pytest.fixture
def fork():
    """Two levels: action 0 leads to state 0 or 1 with probabilities 0.25 and 0.75, action 1 to state 1 for 0.1.

    At the second level, state 0 pays 0.8 for action 0 and nothing for 1; state 1 pays 0.2 for either.
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
    """V* is 0.2 + 0.25 0.6 = 0.35 by action 0 and 0.1 + 0.2 = 0.3 by action 1."""
    wrong_then_wrong, right_then_wrong = Policy.fixed([1, 1]), Policy.fixed([0, 1])
    assert fork.optimal_value == pytest.approx(0.35)
    assert [v.tolist() for v in policy_values(fork, right_then_wrong)] == [pytest.approx([0.15]), [0.0, 0.2]]
    # Losses at the second level: 0.8 with probability 0.25.
    assert low_variance(fork, right_then_wrong) == pytest.approx([1, 0.25 * 0.64 / 0.2**2])
    assert low_variance(fork, wrong_then_wrong) == pytest.approx([1, 1])
    assert suboptimal_probability(fork, right_then_wrong) == pytest.approx([0, 0.25])
    # State 1 is a tie, and state 0 is not reached.
    assert suboptimal_probability(fork, wrong_then_wrong) == pytest.approx([1, 0])
    assert suboptimal_probability(fork, Policy.uniform(2)) == pytest.approx([0.5, 0.125 * 0.5])


@settings(max_examples=25)
@given(st.integers(0, 2**32 - 1))
def test_everything_agrees_with_the_sum_over_paths(seed):
    rng = np.random.default_rng(seed)
    mdp = small_mdp(rng)
    policy = Policy([Uniform(), Fixed(1), *Policy.greedy(rng.normal(size=(1, 2, 3))).rules])
    theta = rng.normal(size=(3, 2, 3))
    values = policy_values(mdp, policy)
    means, squares, wrong, errors = np.zeros(3), np.zeros(3), np.zeros(3), np.zeros((3, 2))
    for probability, _, _, steps in paths(mdp, policy):
        for h, s, a in steps:
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


@settings(max_examples=25)
@given(st.integers(0, 2**32 - 1))
def test_lemma_a1_bounds_the_loss(seed):
    """At most sum_h P[suboptimal at h] is lost, as rewards add up to at most 1."""
    rng = np.random.default_rng(seed)
    mdp = small_mdp(rng)
    policy = Policy.greedy(rng.normal(size=(3, 2, 3)))
    assert mdp.optimal_value - mdp.value(policy) <= suboptimal_probability(mdp, policy).sum() + 1e-12


def test_rewards_that_depend_on_where_the_last_action_leads():
    mdp = FiniteMDP(P=[[[[0.5, 0.5], [1.0, 0.0]]]], R=[[[[1.0, 0.0], [0.25, 0.0]]]], features=[[[1.0]]])
    assert policy_values(mdp, Policy.uniform(1))[0] == pytest.approx([0.375])
    assert suboptimal_probability(mdp, Policy.uniform(1)) == pytest.approx([0.5])


@pytest.fixture(scope="module")
def lock():
    return combination_lock(6, n_actions=3, rng=0)


@pytest.fixture(scope="module")
def learned(lock):
    return flat(lock, n_samples=20, eps_r=1e-3, oracle="value", rng=0).learn()


def statements(found):
    return {one["name"]: one for one in found["statements"]}


def test_checked_policies_agrees_with_one_policy_at_a_time():
    for mdp, variant in ((linear_q(rng=1), "sound"), (river_swim(4, 5), "paper"), (deep_sea(4, rng=0), "paper")):
        result = dmq.DMQ(mdp, n_samples=5, ratio=1.5, variant=variant, rng=0).learn()
        found = checked_policies(mdp, result)
        errors, ratios = np.zeros(mdp.horizon), np.ones(mdp.horizon)
        for h in range(mdp.horizon):
            for pi, a in itertools.product(result.cover[h], range(mdp.n_actions)):
                candidate = pi.deviate(h, a, result.policy)
                later = slice(h + 1, None)
                error = value_error(mdp, result.theta, [[candidate]] * mdp.horizon)
                errors[later] = np.maximum(errors[later], [one.max() for one in error[later]])
                ratios[later] = np.maximum(ratios[later], low_variance(mdp, candidate)[later])
        assert found.error == pytest.approx(errors, rel=1e-9, abs=1e-15)
        assert found.low_variance == pytest.approx(ratios, rel=1e-9)


def test_the_recorded_potential_is_that_of_the_moments(monkeypatch):
    """Compare with the potential of S and M_2 at each oracle call."""
    seen, scan = [], LinearSolver.scan

    def spy(self, cover, moments, top, bottom):
        level, values = scan(self, cover, moments, top, bottom)
        if level >= 0:
            m2 = moments.gram[level] / moments.n
            seen.append([np.linalg.slogdet(s + 1e-2 * np.eye(len(s)))[1] for s in (cover[level], cover[level] + m2)])
        return level, values

    monkeypatch.setattr(LinearSolver, "scan", spy)
    result = dmq.DMQ(river_swim(4, 6), n_samples=10, rng=0).learn()
    assert len(seen) > 3
    assert result.history.potentials == pytest.approx(np.array(seen), rel=1e-9)


def test_the_certificate_survives_saving(learned, lock, tmp_path):
    learned.save(tmp_path / "run.npz")
    assert dmq.certificate(dmq.load(tmp_path / "run.npz"), lock, epsilon=0.1) == dmq.certificate(
        learned, lock, epsilon=0.1
    )


def without_potentials(result, path):
    """Return the result as read from a file without potentials."""
    result.save(path)
    with np.load(path) as archive:
        arrays = {name: archive[name] for name in archive.files if name != "history_potentials"}
    np.savez(path, **arrays)
    return dmq.load(path)


def test_files_without_potentials_can_be_read(learned, lock, tmp_path):
    old = without_potentials(learned, tmp_path / "run.npz")
    assert np.isnan(old.history.potentials).all() and len(old.history.potentials) == learned.counts["trues"]
    assert old.history != learned.history
    found = dmq.certificate(old, lock)
    assert "growth" not in statements(found)
    assert all(one["factor"] is None for level in found["levels"] for one in level["raises"])
    json.dumps(found, allow_nan=False)


def test_a_damaged_potential_is_refused(learned, tmp_path):
    path = tmp_path / "run.npz"
    learned.save(path)
    with np.load(path) as archive:
        arrays = dict(archive)
    arrays["history_potentials"] = arrays["history_potentials"][1:]
    np.savez(path, **arrays)
    with pytest.raises(dmq.FileError, match="history_potentials"):
        dmq.load(path)


def test_eps_r_beyond_float64_leaves_the_potential_unknown(monkeypatch):
    monkeypatch.setattr("dmq_fast.covers.options.FLOAT64_EPS_R", 0)
    mdp = linear_q(rng=0)
    result = dmq.DMQ(mdp, n_samples=2, eps_r=1e-30, rng=0).learn(max_policies=5)
    assert np.isnan(result.history.potentials[0]).all()
    json.dumps(dmq.certificate(result, mdp), allow_nan=False)


def test_certificate_by_hand(learned, lock):
    found = dmq.certificate(learned, lock, epsilon=0.2)
    json.dumps(found, allow_nan=False)
    given = learned.parameters
    smallest = found["exact"]["smallest_epsilon"]["invariant 1"]
    assert statements(dmq.certificate(learned, lock, epsilon=smallest * 1.001))["invariant 1"]["holds"]
    assert not statements(dmq.certificate(learned, lock, epsilon=smallest * 0.999))["invariant 1"]["holds"]
    columns = learned.history.columns()
    for record in found["levels"]:
        here = columns["level"] == record["level"]
        assert record["oracle_calls"] == here.sum()
        assert record["trues"] == (here & columns["decision"]).sum() == record["cover_size"] - 1
        for step in record["raises"]:
            call = learned.history[step["call"]]
            assert (call.level, call.decision) == (record["level"], True)
            assert step["factor"] == pytest.approx(np.exp(step["after"] - step["before"]))
        assert [step["policies"] for step in record["raises"]] == list(range(2, record["cover_size"] + 1))
        false = columns["value"][here & ~columns["decision"]]
        assert record["nearest_false"] == (None if not false.size else pytest.approx(false.max() / given["eps_t"]))


def test_both_sides_of_every_statement():
    """The formulas of the lemmas, written out again; no side is zero or equal to another by chance."""
    mdp, epsilon, ratio, eps_r, ridge, m = linear_q(rng=4), 0.2, 1.5, 1e-3, 0.05, 2
    initial = np.random.default_rng(0).integers(mdp.n_actions, size=(m, mdp.horizon))
    settings = {"n_samples": 20, "ratio": ratio, "eps_r": eps_r, "ridge": ridge}
    result = flat(mdp, initial=initial, rng=0, **settings).learn()
    d, H, sizes = mdp.dimension, mdp.horizon, result.cover_sizes
    columns = result.history.columns()
    before, after = result.history.potentials.T
    raised = columns["level"][columns["decision"]]
    # How many policies the level has, with the one that is added.
    policies = np.array([m + (raised[: i + 1] == level).sum() for i, level in enumerate(raised)])
    ceilings = d * np.log(eps_r + policies / d)
    highest = (after - ceilings).argmax()
    sure = max(n for n in range(1, 500) if (n - m) * np.log(1 + ratio) <= d * np.log((eps_r + n / d) / eps_r))
    norm = max(np.linalg.norm(theta) for theta in result.theta.reshape(-1, d))
    cover = max(one.max() for one in value_error(mdp, result.theta, result.cover))
    returned = max(one.max() for one in value_error(mdp, result.theta, [[result.policy]] * H))
    wrong = suboptimal_probability(mdp, result.policy)
    loss, allowed = mdp.optimal_value - mdp.value(result.policy), mdp.gap**2 * epsilon / (4 * H)
    sides = {
        "thresholds": (d, ratio),
        "thresholds, corrected": (1.0, ratio),
        "cover, printed": (max(sizes), 2 * d * np.log(d / eps_r)),
        "cover, sure": (max(sizes), sure),
        "norm, printed": (norm, 1 / ridge),
        "norm, corrected": (norm, 1 / (2 * np.sqrt(ridge))),
        "growth": (np.log(1 + ratio), (after - before).min()),
        "ceiling": (after[highest], ceilings[highest]),
        "returned policy": (0, 0),
        "policy correctness": (loss, wrong.sum()),
        "invariant 1": (cover, allowed),
        "invariant 2": (checked_policies(mdp, result).error.max(), allowed),
        "equation 3": (returned, allowed),
        "suboptimal actions": (wrong.max(), epsilon / H),
        "value": (loss, epsilon),
    }
    found = {
        one["name"]: (one["left"], one["right"]) for one in dmq.certificate(result, mdp, epsilon=epsilon)["statements"]
    }
    assert found == {name: pytest.approx(both) for name, both in sides.items()}
    assert 0 < loss < wrong.max() < wrong.sum() and returned < cover and max(sizes) > m


@pytest.mark.parametrize("seed", range(5))
def test_statements_are_in_points(seed):
    """The image of an MDP: rewards times 7, and 3 less at the end. Ranges multiply what the paper has 1 for."""
    mdp = small_mdp(np.random.default_rng(seed))
    scaled = [7.0 * R for R in mdp.R]
    image = FiniteMDP(mdp.P, [*scaled[:-1], scaled[-1] - 3.0], mdp.features)
    widths, largest_return = np.ptp(image.value_range, axis=1), np.abs(image.value_range).max()
    result = dmq.DMQ(image, n_samples=20, rng=0).learn()
    found = dmq.certificate(result, image, epsilon=0.7)
    held, exact, given = statements(found), found["exact"], result.parameters
    wrong = suboptimal_probability(image, result.policy)
    assert wrong == pytest.approx(suboptimal_probability(mdp, result.policy))
    assert low_variance(image, result.policy) == pytest.approx(low_variance(mdp, result.policy))
    assert exact["loss"] == pytest.approx(7.0 * (mdp.optimal_value - mdp.value(result.policy)), abs=1e-9)
    assert exact["loss_bound"] == pytest.approx(widths @ wrong) and held["policy correctness"]["holds"]
    assert held["suboptimal actions"]["right"] == pytest.approx(0.7 / 3 / widths.max())
    assert held["invariant 1"]["right"] == pytest.approx(image.gap**2 * 0.7 / 12 / widths.max())
    assert held["norm, corrected"]["right"] == pytest.approx(largest_return / (2 * np.sqrt(given["ridge"])))
    assert held["norm, corrected"]["holds"] and found["notes"] == []
    smallest = exact["smallest_epsilon"]["invariant 1"]
    again = statements(dmq.certificate(result, image, epsilon=smallest))["invariant 1"]
    assert again["left"] == pytest.approx(again["right"])


def test_what_noise_and_an_unknown_range_leave_unsaid(lock, learned):
    for rewards, words in (
        (RewardModel(np.array([[0.0, 1.0]] * lock.horizon), 0.1), "rewards are noisy"),
        (RewardModel(), "the range of values is unknown"),
    ):
        found = dmq.certificate(learned, lock, rewards=rewards)
        (note,) = found["notes"]
        assert words in note and note in str(found)
        assert not any(name.startswith("norm") for name in statements(found))
        assert statements(found)["policy correctness"]["holds"]


def test_a_bad_policy_fails_where_it_should(lock):
    result = dmq.DMQ(lock, variant="paper", n_samples=1, rng=0).learn(max_policies=0)
    assert result.status == "max_policies"
    held = statements(dmq.certificate(result, lock, epsilon=0.1))
    assert not held["value"]["holds"] and not held["suboptimal actions"]["holds"]
    assert held["policy correctness"]["holds"]
    # The True whose policy the budget refused is on record all the same.
    raised = [step for level in dmq.certificate(result)["levels"] for step in level["raises"]]
    assert [step["policies"] for step in raised] == [2]


def mixed_start(seed):
    """Three levels that begin in any of three states, so that the returned policy mixes the pi_0^a."""
    rng = np.random.default_rng(seed)
    mdp = small_mdp(rng)
    features = [rng.normal(size=(3, 3)) for _ in range(3)]
    features = [phi / np.linalg.norm(phi, axis=1, keepdims=True) for phi in features]
    first = rng.dirichlet(np.ones(3), size=(3, 2))
    return FiniteMDP(P=[first, *mdp.P[1:]], R=[mdp.R[1], *mdp.R[1:]], features=features, start=[0.5, 0.3, 0.2])


@pytest.mark.parametrize("variant", ["sound", "frugal"])
def test_the_last_test_of_the_returned_policy_is_told_from_earlier_ones(variant):
    """A finished run ends with a test without a True; a run that ended in a test with a True shows it."""
    served_twice = cut = 0
    for seed in range(8):
        mdp, settings = mixed_start(seed), {"variant": variant, "n_samples": 3, "ratio": 1.2, "rng": seed}
        result = flat(mdp, **settings).learn()
        assert result.status == "ended"
        assert statements(dmq.certificate(result))["returned policy"]["left"] == 0
        tests = [call for call in result.history if call.target < 0]
        served_twice += any(call.decision and call.call == tests[-1].call for call in tests)
        for limit in range(result.counts["trues"]):
            short = flat(mdp, max_policies=limit, **settings).learn()
            if short.history[-1].target < 0:
                cut += 1
                since = max(i for i, one in enumerate(short.history) if one.target < 0 and one.level == 2)
                left = sum(one.decision and one.target < 0 for one in short.history[since:])
                assert statements(dmq.certificate(short))["returned policy"]["left"] == left > 0
    assert cut > 0
    # What was drawn for a test that found something serves the next one, if the policy is the same still.
    assert (served_twice > 0) == (variant == "frugal")


@pytest.mark.parametrize("horizon", [1, 2])
def test_the_policy_that_a_budget_refused_is_no_initial_one(horizon):
    """One trajectory a call: the first reaches one of two states, the test of the returned policy the other."""
    P, reward = np.full((horizon - 1, 2, 1, 2), 0.5), np.full((2, 1), 0.5 / horizon)
    mdp = FiniteMDP(P=P, R=[reward] * horizon, features=[np.eye(2)] * horizon, start=[0.5, 0.5])
    refused = 0
    for seed in range(20):
        result = dmq.DMQ(mdp, n_samples=1, rng=seed).learn(max_policies=0)
        found = dmq.certificate(result)
        refused += result.status == "max_policies"
        raised = [step["policies"] for level in found["levels"] for step in level["raises"]]
        assert raised == [2] * result.counts["trues"]
        # 3^11 <= (1 + 50 12)^2, but not 3^12 <= (1 + 50 13)^2
        assert result.cover_sizes == (1,) * horizon and statements(found)["cover, sure"]["right"] == 12
        assert result.counts["trues"] == 0 or statements(found)["ceiling"]["holds"]
    assert refused > 0


def test_what_needs_an_mdp_is_absent_without_one(learned):
    found = dmq.certificate(learned)
    assert found["exact"] is None and found["epsilon"] is None
    assert "invariant 1" not in statements(found)
    assert "error_cover" not in found["levels"][0]


def test_what_does_not_fit_is_refused(fork, learned, lock):
    theta, other = np.zeros((2, 2, 2)), combination_lock(7, n_actions=3, rng=0)
    measures = [low_variance, suboptimal_probability, policy_values]
    refused(
        [
            *(
                (lambda f=f: f(fork, Policy.uniform(3)), ValueError, "policy: expected 2 rules, one a")
                for f in measures
            ),
            *((lambda f=f: f(fork, Policy.fixed([0, 2])), ValueError, "level 1 takes action 2") for f in measures),
            *((lambda f=f: f(fork, "uniform"), TypeError, "policy: expected a Policy, got str") for f in measures),
            (lambda: value_error(fork, np.zeros((2, 3, 2)), [[], []]), ValueError, "theta"),
            (lambda: value_error(fork, theta, [[]]), ValueError, "policies: expected 2 levels, got 1"),
            (lambda: value_error(fork, theta, [[], [Policy.uniform(1)]]), ValueError, "policy: expected 2 rules"),
            (lambda: dmq.certificate(learned, epsilon=0.1), ValueError, "epsilon: expected together with an mdp, "),
            (lambda: dmq.certificate(learned, lock, epsilon=-1.0), ValueError, "epsilon"),
            (lambda: dmq.certificate(learned, other), ValueError, r"mdp: .* = \(6, 3, 2\) as in .* got \(7, 3, 2\)"),
            (lambda: dmq.certificate(learned, "lock"), TypeError, "mdp: expected a FiniteMDP, got str"),
            (lambda: dmq.certificate(None), TypeError, "result: expected a DMQResult, .* got NoneType"),
        ]
    )


def test_the_table_of_a_certificate(learned, lock):
    text = certificate_table.table(dmq.certificate(learned, lock, epsilon=0.1))
    assert "max |Pi_h| <= 2 d log(d / eps_r)" in text and "Lemma A.5" in text
    assert "V = 0.7, V* = 0.7, gamma = 0.7, low variance of the policies checked: 1 (assumption 3.1)" in text
    verdicts = [line for line in text.splitlines() if line.endswith((" holds", " FAILS"))]
    assert len(verdicts) == len(dmq.certificate(learned, lock, epsilon=0.1)["statements"])
    assert all(line.startswith("  ") and line[75:77].strip() == line[76] for line in verdicts)
    # Every level is in one row.
    head = text.splitlines().index(next(line for line in text.splitlines() if line.startswith("level ")))
    levels = []
    for line in text.splitlines()[head + 1 :]:
        first, _, last = line[:11].strip().partition(" to ")
        levels += range(int(first), int(last or first) + 1)
    assert levels == list(range(6))


def test_the_command_line_prints_a_certificate(run):
    code, out, err = run("run", "lock", "--horizon", 5, "--n-samples", 20, "--certificate")
    assert (code, err) == (0, "")
    assert "V* - V <= sum_h w_h P[pi(s_h) != pi*(s_h)]" in out
    code, out, err = run("run", "lock", "--horizon", 5, "--n-samples", 20, "--certificate", "--json")
    assert json.loads(out)["certificate"]["exact"]["loss"] == 0.0
    code, out, err = run("run", "cart-pole", "--horizon", 4, "--n-samples", 5, "--certificate", "--json")
    assert json.loads(out)["certificate"]["exact"] is None


def test_other_function_classes_have_their_own_statements():
    """Candidates 0 and 1 of a lock's last action, and linear functions with a matrix as regulariser, as of 0.2.0."""
    lock = combination_lock(4, n_actions=2, rng=0)
    finite = dmq.DMQ(lock, function_class=FiniteClass(eps_s=0.1, eps_t=0.2), n_samples=20, rng=0).learn()
    held = statements(dmq.certificate(finite, lock))
    assert "norm, printed" not in held and "growth" not in held
    assert held["cover, sure"]["right"] == 1 + 2 * 1 / 2 and held["cover, sure"]["holds"]
    result = dmq.DMQ(lock, n_samples=20, rng=0).learn()
    weighted = replace(result, function_class=result.function_class | {"regularizer": "a digest"})
    held = statements(dmq.certificate(weighted, lock))
    assert "cover, printed" not in held and held["growth"]["holds"]
