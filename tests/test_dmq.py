"""Algorithms 1 to 3: against the literal reference, on the field's environments, and at the border."""

import copy
import itertools
import pickle
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from flat import flat
from hypothesis import assume
from hypothesis import strategies as st
from properties import for_all
from refusals import refused
from replay import assert_agrees
from test_batch import Table

import dmq_fast as dmq
from dmq_fast._support.words import level_names
from dmq_fast.covers.draws import mixture
from dmq_fast.covers.memory import Memory
from dmq_fast.covers.oracle import Regression
from dmq_fast.environments import (
    FiniteMDP,
    chain,
    combination_lock,
    decoy_lock,
    deep_sea,
    linear_q,
    river_swim,
)
from dmq_fast.kernels import Fixed, Greedy, Uniform
from dmq_fast.rules import ExactGreedy
from dmq_fast.samplers import BatchSampler, ExactSampler, FlowSampler, RolloutSampler

SEEDS = range(5)

# Counts over N are rational, so that R (S + eps_r I) = M2 can hold exactly where eps_r is a round number, and then
# rounding decides. Where two ways of computing are compared, eps_r is not round.
EPS_R = 0.0103

GOLDEN_TRAJECTORIES = {"check": 460, "regression": 510, "states": 170, "final": 10}
GOLDEN_THETA = [
    [0.0, 0.0, 0.6993006993006993],
    [0.0, 0.499001996007984, 0.0],
    [0.0, 0.499001996007984, 0.0],
    [0.7984031936127745, 0.0, 0.0],
    [0.6986027944111776, 0.0, 0.0],
    [0.5988023952095808, 0.0, 0.0],
]


# Every variant on two environments at least, and with each oracle; other combinations are drawn below.
CASES = [
    (combination_lock(12, rng=0), {"n_samples": 20, "ratio": 10.0, "eps_r": 1e-5, "variant": "paper"}),
    (combination_lock(8, rng=1, p_success=0.9, dimension=5), {"n_samples": 50, "oracle": "value"}),
    (chain(8, rng=2), {"n_samples": 30, "variant": "frugal"}),
    (deep_sea(8, stochastic=True), {"n_samples": 30, "variant": "paper", "oracle": "value"}),
    (linear_q(rng=3), {"n_samples": 200}),
    (river_swim(4, 8), {"n_samples": 50, "variant": "frugal", "oracle": "value"}),
    (decoy_lock(8), {"n_samples": 50, "ratio": 4.0, "variant": "paper"}),
]


@pytest.mark.parametrize(("env", "chosen"), CASES, ids=lambda value: getattr(value, "name", ""))
def test_every_call_agrees_with_the_literal_reference(env, chosen):
    assert_agrees(flat(env, rng=7, **{"eps_r": EPS_R} | chosen))


@st.composite
def options(draw, horizon, n_actions):
    """Strategy for any valid combination of options."""
    sequence = st.lists(st.integers(0, n_actions - 1), min_size=horizon, max_size=horizon)
    sequences = st.lists(sequence, min_size=1, max_size=3)
    chosen = {name: draw(st.booleans(), name) for name in ("recheck", "accumulate", "reuse", "memo")}
    mixtures = ["stratified"] if chosen["reuse"] else ["stratified", "multinomial"]
    return {
        **chosen,
        "variant": draw(st.sampled_from(["paper", "sound", "frugal"])),
        "initial": draw(st.one_of(st.sampled_from(["uniform", "fixed"]), sequence, sequences)),
        "mixture": draw(st.sampled_from(mixtures)),
        "oracle": draw(st.sampled_from(["decision", "value"])),
    }


class Watchful(RolloutSampler):
    """Sampler that records whether rounding alone decided between two actions; then two ways of fitting may differ."""

    tied = False

    def collect(self, policy, n, **request):
        for rule, phi in zip(policy.rules, self.env.features, strict=True):
            if isinstance(rule, Greedy):
                best = np.sort(phi @ rule.theta.T, axis=1)[:, -2:]
                gap = best[:, -1] - best[:, 0]
                self.tied |= bool(((gap > 0) & (gap < 1e-12)).any())
        return super().collect(policy, n, **request)


def assume_it_ends(progress):
    """Discard the example whose cover grows without end: drawn anew, the determinant need not grow (finding C)."""
    assume(progress.n_policies < 200)


@for_all(data=st.data(), quick=25, slow=500)
def test_random_mdps_agree_with_the_literal_reference(data):
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32 - 1), "seed"))
    horizon, n_actions, d = (data.draw(st.integers(1, 4), name) for name in ("H", "K", "d"))
    sizes = rng.integers(1, 5, size=horizon)
    transitions = [rng.dirichlet(np.full(b, 0.5), size=(a, n_actions)) for a, b in itertools.pairwise(sizes)]
    rewards = [rng.random((s, n_actions)) / horizon for s in sizes]
    features = [rng.normal(size=(s, d)) for s in sizes]
    features = [phi / max(1.0, np.linalg.norm(phi, axis=1).max()) for phi in features]
    start = rng.dirichlet(np.ones(sizes[0]))
    env = FiniteMDP(transitions, rewards, features, start, caps=[1 / horizon] * horizon)
    sampler = Watchful(env)
    algorithm = flat(
        sampler,
        n_samples=data.draw(st.integers(1, 40), "N"),
        ratio=data.draw(st.sampled_from([0.5, 1.1, 2.0, 10.0]), "R"),
        eps_r=data.draw(st.sampled_from([1.07e-4, EPS_R, 1.019]), "eps_r"),
        **data.draw(options(horizon, n_actions), "options"),
        rng=data.draw(st.integers(0, 100), "run seed"),
        progress=assume_it_ends,
    )
    try:
        assert_agrees(algorithm)
    except AssertionError:
        assume(not sampler.tied)
        raise


def in_batches(env):
    return BatchSampler(Table(env))


OPTIONS = [
    {"accumulate": True},
    {"reuse": True},
    {"memo": True},
    {"accumulate": True, "reuse": True},
    {"accumulate": True, "memo": True},
    {"reuse": True, "memo": True},
    {"reuse": True, "memo": True, "recheck": False},
    {"variant": "paper", "reuse": True},
    {"variant": "paper", "accumulate": True, "memo": True},
    {"variant": "frugal", "initial": "uniform"},
]


# Samplers know nothing of the options: rollouts meet each, the other samplers some.
ON_SAMPLERS = [(RolloutSampler, chosen) for chosen in OPTIONS]
ON_SAMPLERS += [(FlowSampler, OPTIONS[3]), (ExactSampler, OPTIONS[5]), (in_batches, OPTIONS[9])]


@pytest.mark.parametrize(("sampler", "chosen"), ON_SAMPLERS, ids=lambda value: getattr(value, "__name__", str(value)))
def test_every_option_agrees_with_the_literal_reference_on_every_sampler(sampler, chosen):
    for env in (chain(6, rng=2), deep_sea(5, stochastic=True))[: 2 if sampler is RolloutSampler else 1]:
        result = assert_agrees(flat(sampler(env), n_samples=20, eps_r=EPS_R, rng=1, **chosen))
        assert max(result.cover_sizes) > 1
        if result.options["reuse"]:
            assert result.counts["trajectories"]["states"] == 0


@pytest.mark.parametrize("chosen", [{"reuse": True}, {"memo": True}, {"variant": "frugal"}], ids=str)
def test_moments_dropped_from_memory_are_drawn_again_bit_for_bit(monkeypatch, chosen):
    env = chain(6, rng=0)
    expected = flat(env, n_samples=30, rng=1, **chosen).learn()
    size = RolloutSampler(env).collect(dmq.Policy.uniform(6), 1, stream=dmq.Stream(0), levels=range(6)).nbytes
    draws = []
    for limit in (0, 3 * size, 10**9):
        sampler = Recording(env)
        monkeypatch.setattr("dmq_fast.covers.memory.LIMIT", limit)
        result = flat(sampler, n_samples=30, rng=1, **chosen).learn()
        assert result.theta.tobytes() == expected.theta.tobytes()
        assert result.history.columns()["call"].tobytes() == expected.history.columns()["call"].tobytes()
        assert result.counts == expected.counts
        draws.append(sampler.draws)
    assert draws[0] > draws[1] > draws[2] == expected.counts["sampler_calls"]


@pytest.mark.parametrize("chosen", [options for options in OPTIONS[1:6] if "memo" not in options], ids=str)
def test_the_pairs_of_a_level_keep_no_other_level(chosen, monkeypatch):
    """Algorithm 2 holds them while it runs for later levels, up to H of it at a time; with memo the memory has all."""
    fit, held = Regression.fit, []

    def fit_and_look(self, pairs, h):
        held.extend(tuple(pair.moments.levels) == (h,) for pair in pairs)
        return fit(self, pairs, h)

    monkeypatch.setattr(Regression, "fit", fit_and_look)
    flat(combination_lock(6, 3, rng=0), n_samples=2, rng=0, **chosen).learn()
    assert len(held) > 20 and all(held)


def test_policies_are_remembered_by_content():
    theta = np.arange(6.0).reshape(3, 1, 2)
    one, two = dmq.Policy.greedy(theta), dmq.Policy.greedy(theta.copy() * -0.0 + theta)
    assert one.digest() == two.digest()
    others = [
        dmq.Policy.greedy(theta + 1e-15),
        dmq.Policy.greedy(theta.reshape(3, 2, 1)),
        one.replace(2, Fixed(0)),
        one.replace(2, Fixed(1)),
        one.replace(2, Uniform()),
        dmq.Policy(one.rules[:2]),
    ]
    assert len({policy.digest() for policy in [one, *others]}) == 7
    assert {policy.digest(2) for policy in others[2:]} == {one.digest(2)}
    assert dmq.Policy.fixed([1, 23]).digest() != dmq.Policy.fixed([12, 3]).digest()


@pytest.mark.parametrize("known", [True, False])
def test_the_content_of_a_policy_is_that_of_its_rules_alone(known):
    env = chain(5, rng=0)
    actions = RolloutSampler(env).actions if known else lambda level, rule: None
    memory = Memory(actions=actions if known else None)
    rng = np.random.default_rng(0)
    policies = [dmq.Policy.uniform(5), *(dmq.Policy.greedy(rng.normal(size=(5, 2, env.dimension))) for _ in range(3))]
    policies.append(dmq.Policy.greedy(np.full((5, 2, env.dimension), 1.7e308)))  # no action is known of it
    for _ in range(30):
        before, after = (policies[i] for i in rng.integers(len(policies), size=2))
        policies.append(before.deviate(int(rng.integers(5)), int(rng.integers(2)), after))

    def same(one, other, levels):
        for level, rules in enumerate(zip(one.rules[:levels], other.rules[:levels], strict=True)):
            mine, theirs = (actions(level, rule) for rule in rules)
            if (rules[0] != rules[1]) if mine is None or theirs is None else (mine != theirs).any():
                return False
        return True

    for split, levels in itertools.combinations_with_replacement(range(6), 2):
        contents = [memory.content(policy, split, levels) for policy in policies]
        for (one, mine), (other, theirs) in itertools.product(zip(policies, contents, strict=True), repeat=2):
            assert (mine == theirs) == same(one, other, levels)
    assert len(set(contents)) > 15


class Questioned:
    """Linear functions whose solver notes the levels that it is asked for; it may call every answer marginal."""

    is_cone = True

    def thresholds(self, ratio):
        return 1.0, ratio

    def __init__(self, marginal):
        self.marginal, self.asked, self.marginals = marginal, 0, 0
        self.describe = dmq.LinearClass().describe

    def solver(self, dimension, **parameters):
        self.inner = dmq.LinearClass().solver(dimension, **parameters)
        self.fit, self.potential, self.cover_bound = self.inner.fit, self.inner.potential, self.inner.cover_bound
        return self

    @property
    def n_marginal(self):
        return self.marginals

    def scan(self, cover_moments, moments, top, bottom):
        found, values = self.inner.scan(cover_moments, moments, top, bottom)
        asked = top - max(found, bottom) + 1
        self.asked += asked
        self.marginals += asked * self.marginal
        return found, values


@pytest.mark.parametrize("variant", ["sound", "frugal"])
def test_the_oracle_is_not_asked_again_while_the_cover_is_the_same(variant):
    env = combination_lock(15, 3, rng=0)
    expected = flat(env, n_samples=10, variant=variant, memo=True, rng=0).learn()

    def run(marginal, **options):
        questioned = Questioned(marginal)
        result = flat(
            env, n_samples=10, variant=variant, memo=True, rng=0, function_class=questioned, **options
        ).learn()
        columns, known = result.history.columns(), expected.history.columns()
        assert all((columns[name] == known[name]).all() for name in columns if name != "value")
        assert result.theta.tobytes() == expected.theta.tobytes()
        return questioned, result

    questioned, result = run(marginal=False)
    assert questioned.asked < 0.9 * result.counts["oracle_calls"]
    questioned, result = run(marginal=True)  # an answer that is too close to call is counted each time
    assert questioned.asked == questioned.marginals == result.counts["oracle_calls"]
    questioned, result = run(marginal=False, oracle="value")  # each call has its value
    assert questioned.asked == np.isfinite(result.history.columns()["value"]).sum() == result.counts["oracle_calls"]


def test_every_cover_starts_with_all_initial_sequences():
    env = combination_lock(6, 3, rng=0)
    sequences = [[0] * 6, [1] * 6, np.array([2, 1, 0, 2, 1, 0])]
    algorithm = dmq.DMQ(env, variant="frugal", initial=sequences, n_samples=20, rng=0)
    result = assert_agrees(algorithm)
    for policies in result.cover:
        assert list(policies[:3]) == [dmq.Policy.fixed(sequence) for sequence in sequences]
    assert result.counts["trues"] == sum(result.cover_sizes) - 3 * 6
    assert env.value(result.policy) == env.optimal_value
    short = dmq.DMQ(env, initial=sequences, n_samples=20).learn(max_trajectories=20)
    assert short.policy == dmq.Policy.fixed(sequences[0])
    one = dmq.DMQ(env, initial=[sequences[0]], n_samples=20, rng=0).learn()
    assert one.theta.tobytes() == dmq.DMQ(env, initial=sequences[0], n_samples=20, rng=0).learn().theta.tobytes()


def shares(make_env, **settings):
    """V / V* of five seeds, and the results."""
    envs = [make_env(seed) for seed in SEEDS]
    results = [flat(env, rng=seed, **settings).learn() for seed, env in zip(SEEDS, envs, strict=True)]
    assert all(result.status == "ended" for result in results)
    return [env.value(result.policy) / env.optimal_value for env, result in zip(envs, results, strict=True)], results


# Arguments of `shares`, and the least share of the optimum.
SOLVED = [
    (lambda seed: combination_lock(10, 4, rng=seed), {}, 1.0 - 1e-9),
    (lambda seed: combination_lock(100, 4, rng=seed), {"n_samples": 20}, 1.0 - 1e-9),
    (lambda seed: chain(10, rng=seed), {}, 0.97),
    (lambda seed: deep_sea(10, rng=seed), {}, 0.97),
    (lambda seed: linear_q(rng=seed), {"n_samples": 5000, "ridge": 1e-4}, 0.97),
]


@pytest.mark.parametrize("case", range(len(SOLVED)))
def test_sound_solves(case):
    make, chosen, least = SOLVED[case]
    values, results = shares(make, **chosen)
    assert min(values) >= least
    if case < 2:  # locks
        assert all(max(result.cover_sizes) <= 2 for result in results)


@pytest.mark.parametrize("variant", ["paper", "sound", "frugal"])
def test_same_seed_same_bits(variant):
    """By the same object again, in many threads, by a copy, and from the key of a result; not by another seed."""
    env = chain(6, rng=0)
    algorithm = dmq.DMQ(env, variant=variant, rng=np.random.default_rng(3), n_samples=30)
    expected = algorithm.learn()
    from_key = dmq.DMQ(env, variant=variant, rng=dmq.Stream.from_key(expected.key), n_samples=30)
    copies = [algorithm, from_key, copy.deepcopy(algorithm), pickle.loads(pickle.dumps(algorithm))]
    with ThreadPoolExecutor(3) as pool:
        results = list(pool.map(lambda learner: learner.learn(), [*copies, algorithm, algorithm]))
    for result in results:
        assert result.theta.tobytes() == expected.theta.tobytes()
        assert (result.history, result.cover) == (expected.history, expected.cover)
    other = dmq.DMQ(env, variant=variant, rng=6, n_samples=30).learn()
    assert other.theta.tobytes() != expected.theta.tobytes()


def test_golden_run():
    """Pins the streams and the order of calls: a change here changes everybody's seeds."""
    result = dmq.DMQ(combination_lock(6, 3, rng=0), n_samples=10, rng=0).learn()
    assert result.counts["trajectories"] == GOLDEN_TRAJECTORIES
    np.testing.assert_allclose(result.theta[:, :, 0], GOLDEN_THETA, rtol=1e-12, atol=1e-15)


@pytest.mark.parametrize("variant", ["paper", "sound", "frugal"])
@pytest.mark.parametrize(
    ("budget", "status"),
    [({"max_trajectories": 700}, "max_trajectories"), ({"max_policies": 3}, "max_policies")],
)
def test_a_budget_ends_the_run_with_what_was_learned(variant, budget, status):
    env = deep_sea(8)
    result = flat(env, variant=variant, n_samples=10, rng=0, **budget).learn()
    assert result.status == status
    assert result.n_trajectories <= budget.get("max_trajectories", 10**9)
    assert sum(result.cover_sizes) - env.horizon <= budget.get("max_policies", 10**9)
    assert 0.0 <= env.value(result.policy) <= env.optimal_value
    assert result.theta.shape == (8, 2, 8)


def test_a_policy_cut_short_is_initial_where_nothing_was_learned():
    env = combination_lock(6, rng=0)
    # Level 5 takes 4 x 10 for regression and 10 states, level 4 needs more than the 20 that are left.
    result = dmq.DMQ(env, n_samples=10, initial=[3, 2, 1, 0, 1, 2]).learn(max_trajectories=70)
    actions = [getattr(rule, "action", "greedy") for rule in result.policy.rules]
    assert actions == [3, 2, 1, 0, 1, "greedy"]
    assert not result.theta[:5].any()
    assert result.theta[5].shape == (4, 2)


@pytest.mark.parametrize(
    ("env", "budget", "drawn"), [(chain(4, rng=0), 1, 0), (combination_lock(6, 4, rng=0), 400, 400)]
)
def test_a_budget_too_small_for_a_level_returns_the_initial_policy(env, budget, drawn):
    """A level is not learned before its states are drawn."""
    result = dmq.DMQ(env, rng=0).learn(max_trajectories=budget)
    assert (result.status, result.n_trajectories, result.warnings) == ("max_trajectories", drawn, ())
    assert result.policy == result.cover[0][0]


def test_an_interrupted_run_keeps_what_it_learned():
    seen = []

    def interrupt(progress):
        seen.append(progress)
        if len(seen) == 3:
            raise KeyboardInterrupt

    algorithm = flat(chain(6, rng=0), n_samples=10, rng=0, progress=interrupt)
    with pytest.raises(KeyboardInterrupt):
        algorithm.learn()
    result = algorithm.result()
    assert result.status == "interrupted"
    assert result.n_trajectories == seen[-1].n_trajectories > 0
    assert result.theta[-1].any()


def test_progress_is_told_of_every_level():
    seen = []
    result = dmq.DMQ(chain(6, rng=0), n_samples=10, rng=0).learn(progress=seen.append)
    assert len(seen) == result.counts["algorithm_2_runs"]
    assert [p.levels_learned for p in seen] == list(range(1, len(seen) + 1))
    assert {p.level for p in seen} == set(range(6))
    assert seen[-1].n_policies == sum(result.cover_sizes) - 6


class Recording(RolloutSampler):
    """Remembers which levels each call asked for."""

    def __init__(self, env):
        super().__init__(env)
        self.seen = {}
        self.draws = 0

    def collect_chunk(self, policy, n, *, rng, levels, returns_from=()):
        self.draws += 1
        self.seen[rng.call] = (policy, list(levels), list(returns_from))
        return super().collect_chunk(policy, n, rng=rng, levels=levels, returns_from=returns_from)


@pytest.mark.parametrize("variant", ["paper", "sound", "frugal"])
def test_history_names_the_call_that_drew_the_trajectories(variant):
    sampler = Recording(chain(10, rng=0))
    result = dmq.DMQ(sampler, variant=variant, n_samples=100, rng=3).learn()
    for call in result.history:
        policy, levels, returns_from = sampler.seen[call.call]
        assert call.level in levels
        assert returns_from == ([call.target] if variant == "frugal" and call.target >= 0 else [])
        if call.target >= 0:
            assert policy.rules[call.target] == Fixed(call.action)
            assert policy.rules[: call.target] == result.cover[call.target][call.member].rules[: call.target]


def test_result_repeats_what_learn_returned():
    algorithm = flat(chain(5, rng=0), n_samples=20, rng=1, max_trajectories=300)
    with pytest.raises(RuntimeError, match="never called"):
        algorithm.result()
    first, again = algorithm.learn(), algorithm.result()
    assert (first.status, first.seconds) == (again.status, again.seconds)


def test_both_oracles_decide_alike_also_where_there_are_ties():
    """N = 100, R = 2, eps_r = .01: a state seen twice in 100 and not covered gives v = R but for rounding."""
    for env, seed in itertools.product((chain(10, rng=0), river_swim(6, 10), deep_sea(8, stochastic=True)), range(2)):
        a, b = (flat(env, variant="paper", oracle=oracle, rng=seed).learn() for oracle in ("decision", "value"))
        assert a.theta.tobytes() == b.theta.tobytes() and a.cover == b.cover
        mine, theirs = a.history.columns(), b.history.columns()
        assert all(np.array_equal(mine[name], theirs[name]) for name in mine if name != "value")
        assert np.isnan(mine["value"]).all()


def test_counts_add_up():
    result = dmq.DMQ(chain(8, rng=0), n_samples=10, rng=0).learn()
    counts = result.counts
    assert len(result.history) == counts["oracle_calls"]
    assert sum(call.decision for call in result.history) == counts["trues"]
    assert counts["trues"] == sum(result.cover_sizes) - 8
    assert result.n_trajectories == 10 * counts["sampler_calls"]
    assert result.seconds["total"] == pytest.approx(sum(result.seconds.values()) - result.seconds["total"])


def test_deep_recursion_has_room():
    env = combination_lock(400, 2, rng=0)
    result = dmq.DMQ(env, n_samples=4, rng=0).learn(max_trajectories=20_000)
    assert result.status in ("ended", "max_trajectories")


def test_start_distribution_is_covered_by_the_final_check():
    rng = np.random.default_rng(0)
    # Two start states, each with its own good action; the features tell them apart.
    stay = np.zeros((2, 2, 2))
    stay[0, :, 0] = stay[1, :, 1] = 1.0
    rewards = [np.zeros((2, 2)), np.array([[0.5, 0.0], [0.0, 0.7]])]
    env = FiniteMDP([stay], rewards, [np.eye(2)] * 2, start=[0.5, 0.5])
    result = dmq.DMQ(env, n_samples=200, rng=rng).learn()
    assert env.value(result.policy) == pytest.approx(env.optimal_value)
    assert result.counts["trajectories"]["final"] >= 200
    finals = [call for call in result.history if call.target == -1]
    assert {call.level for call in finals} == {0, 1}


def test_one_level_and_one_action():
    env = FiniteMDP([], [np.array([[0.3]])], [np.array([[1.0]])])
    result = dmq.DMQ(env, rng=0, ridge=1e-12).learn()
    assert result.theta == pytest.approx(np.array([[[0.3]]]))
    assert env.value(result.policy) == pytest.approx(0.3)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"ratio": 1.0}, "R = eps_t / eps_s = 1 <= 1"),
        ({"ratio": 30.0}, "R eps_r = 0.3 > 0.2"),
        ({"initial": "uniform", "ratio": 3.0}, "R = 3 >= K = 3"),
    ],
)
def test_parameters_known_to_fail_are_warned_of(settings, words):
    result = flat(chain(3, rng=0), n_samples=10, rng=0, max_trajectories=200, **settings).learn()
    assert any(words in warning for warning in result.warnings)


def test_levels_never_seen_are_warned_of():
    env = FiniteMDP([np.ones((1, 2, 1))], [np.zeros((1, 2))] * 2, [np.ones((1, 1)), np.zeros((1, 1))])
    warnings = " ".join(dmq.DMQ(env, n_samples=5, rng=0).learn().warnings)
    assert "no policy was ever added" in warnings
    assert "no reward was ever seen" in warnings


def test_thresholds_come_from_any_sufficient_part():
    env = chain(3, rng=0)

    def chosen(**settings):
        parameters = flat(env, rng=0, **settings).parameters
        return parameters.eps_s, parameters.eps_t

    assert chosen() == (1.0, 2.0)
    assert chosen(ratio=5) == (1.0, 5.0)
    assert chosen(function_class=dmq.FiniteClass(eps_s=0.1)) == (0.1, 0.2)
    assert chosen(function_class=dmq.FiniteClass(eps_t=0.5), ratio=5) == (0.1, 0.5)
    assert chosen(function_class=dmq.FiniteClass(eps_s=0.1, eps_t=0.7)) == (0.1, 0.7)
    assert chosen(function_class=dmq.FiniteClass(eps_s=0.1, eps_t=0.7), ratio=7) == (0.1, 0.7)


BAD = [
    ({"n_samples": 0}, ValueError, "n_samples"),
    ({"n_samples": 2.5}, TypeError, "n_samples: expected an integer, got 2.5"),
    ({"n_samples": True}, TypeError, "n_samples: expected an integer, got True"),
    ({"max_policies": "3"}, TypeError, "max_policies: expected an integer, got '3'"),
    ({"workers": 2.0}, TypeError, "workers: expected an integer, got 2.0"),
    ({"workers": 2**63}, ValueError, r"workers: expected an integer < 2\^63, got 9223372036854775808$"),
    ({"max_policies": 2**63}, ValueError, r"max_policies: expected an integer < 2\^63, got 9223372036854775808$"),
    ({"n_samples": 2**63}, ValueError, "n_samples"),
    ({"ratio": 0}, ValueError, "ratio"),
    ({"ratio": float("nan")}, ValueError, "ratio"),
    ({"eps_r": 0.0}, ValueError, "eps_r"),
    ({"eps_r": float("inf")}, ValueError, "eps_r"),
    ({"eps_r": 1j}, TypeError, "eps_r"),
    ({"ridge": 0.0}, ValueError, "ridge"),
    ({"ridge": [1.0]}, ValueError, "ridge"),
    ({"variant": "best"}, ValueError, "variant"),
    ({"initial": "random"}, ValueError, "initial"),
    ({"initial": [0, 1]}, ValueError, "initial"),
    ({"initial": [0, 1, 3]}, ValueError, "initial"),
    ({"initial": [0, 1, -1]}, ValueError, "initial: action"),
    ({"initial": [0, 1, 1.0]}, ValueError, "initial: action"),
    ({"initial": dmq.Policy.uniform(4)}, ValueError, "initial"),
    ({"initial": dmq.Policy.greedy(np.zeros((3, 2, 5)))}, ValueError, "initial"),
    ({"initial": dmq.Policy([ExactGreedy(np.eye(3).tolist())] * 3)}, TypeError, "initial: level 0 is an ExactGreedy"),
    ({"initial": []}, ValueError, "initial"),
    ({"initial": [[]]}, ValueError, "initial"),
    ({"initial": [[0, 1, 2], [0, 1]]}, ValueError, "initial: expected 3 rules, one a level, got 2"),
    ({"initial": [[0, 1, 2], [0, 1, 3]]}, ValueError, "initial: level 2 takes action 3, expected < 3"),
    ({"initial": [[0, 1, 2], "fixed"]}, ValueError, "initial"),
    ({"initial": [[[0, 1, 2]]]}, ValueError, "initial"),
    ({"recheck": 1}, TypeError, "recheck"),
    ({"accumulate": "yes"}, TypeError, "accumulate"),
    ({"reuse": 0}, TypeError, "reuse"),
    ({"memo": 2.0}, TypeError, "memo"),
    ({"reuse": True, "mixture": "multinomial"}, ValueError, "mixture: expected 'stratified', which reuse implies"),
    ({"variant": "frugal", "mixture": "multinomial"}, ValueError, "mixture: expected 'stratified'"),
    ({"variant": "frugal", "mixture": "equal"}, ValueError, "mixture"),
    ({"oracle": "svd"}, ValueError, "oracle"),
    ({"mixture": "equal"}, ValueError, "mixture"),
    ({"max_trajectories": 0}, ValueError, "max_trajectories"),
    ({"max_policies": -1}, ValueError, "max_policies"),
    ({"max_seconds": 0}, ValueError, "max_seconds"),
    ({"variant": 5}, TypeError, "variant: expected a name or Options, got 5"),
    ({"initial": 5}, TypeError, "initial"),
    ({"initial": b"fixed"}, TypeError, "initial"),
    ({"oracle": ""}, ValueError, "oracle"),
    ({"mixture": False}, ValueError, "mixture"),
    ({"progress": 3}, TypeError, "progress"),
    ({"rng": -1}, ValueError, "rng"),
    ({"rng": "seed"}, TypeError, "rng: expected None, a non-negative int, a SeedSequence or a Generator, got str"),
    ({"rng": dmq.Stream(0, call=7)}, ValueError, "rng"),
]


def test_bad_arguments_are_refused_by_name():
    env = chain(3, rng=0)
    table = [(lambda given=given: flat(env, **given).learn(), error, text) for given, error, text in BAD]
    sources = (None, 3, object(), FiniteMDP)
    refused(table + [(lambda source=source: dmq.DMQ(source), TypeError, "env") for source in sources])


def test_a_mixture_beyond_64_bits_ends_the_run():
    env = chain(4, rng=0)
    result = dmq.DMQ(FlowSampler(env), variant="paper", n_samples=2**62, rng=0).learn()
    assert result.status == "n_samples"
    assert result.n_trajectories > 0


def test_mixture_counts_are_multinomial():
    """Of 3 x 4000 draws each policy gets a third: mean and variance of a binomial, and the right total."""
    counts = np.array([mixture(dmq.Stream(0, call=call), 12_000, 3) for call in range(1000)])
    assert (counts.sum(axis=1) == 12_000).all()
    sd = np.sqrt(12_000 * 2 / 9)
    assert np.abs(counts.mean(axis=0) - 4000).max() < 5 * sd / np.sqrt(1000)
    assert np.abs(counts.var(axis=0) / sd**2 - 1).max() < 5 * np.sqrt(2 / 1000)


def test_levels_without_a_reward_ahead_are_named():
    """A few samples on the slippery lake: most levels never see the goal, and their estimates are 0."""
    pytest.importorskip("gymnasium")
    env = dmq.environments.make("gym:FrozenLake-v1", horizon=20)
    result = dmq.DMQ(env, variant="frugal", n_samples=20, rng=0).learn()
    blank = [h for h in range(20) if not result.theta[h].any()]
    assert result.status == "ended" and 0 < len(blank) < 20
    assert (
        f"no reward was seen from {level_names(blank)} on: what the returned policy does there is arbitrary"
        in result.warnings
    )


ALIKE = "nothing distinguishes the actions at levels 0 to 2: what the returned policy does there is arbitrary"


def constant(states):
    """Three levels of states that are reached at random, and a reward that depends on nothing."""
    reached, same = np.full((states, 2, states), 1 / states), np.full((states, 2), 0.25)
    return FiniteMDP([reached[:1], reached], [same[:1], same, same], [np.eye(1, states), *[np.eye(states)] * 2])


@pytest.mark.parametrize("variant", ["paper", "sound", "frugal"])
@pytest.mark.parametrize("ridge", [1e-3, 1e-9])
def test_levels_at_which_the_actions_look_alike_are_named(variant, ridge):
    result = dmq.DMQ(constant(3), variant=variant, n_samples=50, ridge=ridge, rng=0).learn()
    assert result.theta.any(axis=(1, 2)).all() and ALIKE in result.warnings


def test_actions_look_alike_in_exact_arithmetic_and_in_finite_classes_only_if_equal():
    sampler = dmq.samplers.ExactSampler(constant(3), "rational")
    assert ALIKE in dmq.DMQ(sampler, rng=0).learn().warnings
    only = dmq.function_class.FiniteClass(0.25, eps_s=0.01)  # one candidate a state
    assert ALIKE in dmq.DMQ(constant(1), function_class=only, rng=0).learn().warnings


def test_actions_that_differ_do_not_look_alike():
    """The last reward of the chain comes whatever is done there, and a lake whose goal is reached pays no more."""
    pytest.importorskip("gymnasium")
    lake = dmq.environments.make("gym:FrozenLake-v1", horizon=8, is_slippery=False)
    assert dmq.DMQ(lake, n_samples=10, rng=0).learn().warnings == ()
    for env in (chain(6, rng=0), river_swim(4, 8), combination_lock(6, 3, rng=0), deep_sea(5, rng=0)):
        result = dmq.DMQ(env, n_samples=50, rng=0).learn()
        assert not [warning for warning in result.warnings if "nothing distinguishes" in warning]


def test_what_is_known_beforehand_is_logged_before_anything_is_drawn(caplog):
    logged = []

    def progress(_):
        logged.append(len(caplog.records))

    learner = flat(chain(3, rng=0), n_samples=5, ratio=1.0, max_trajectories=50, progress=progress, rng=0)
    assert caplog.records == []
    result = learner.learn()
    (record,) = caplog.records
    assert (record.name.split(".")[0], record.levelname) == ("dmq_fast", "WARNING")
    assert record.getMessage() in result.warnings and record.getMessage().startswith("R = eps_t / eps_s = 1 <= 1")
    assert logged and set(logged) == {1}
