"""The option `hindsight`: which stored trajectories serve a policy, and what a run saves by them."""

import itertools
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from line import Line

import dmq_fast as dmq
from dmq_fast import environments as E
from dmq_fast.covers.hindsight import Archive
from dmq_fast.kernels import Fixed, Greedy, Uniform
from dmq_fast.samplers import FlowSampler, as_sampler


def rules(draw, rng, n_actions, dimension):
    kind = draw(st.sampled_from(["fixed", "greedy", "uniform"]))
    if kind == "fixed":
        return Fixed(draw(st.integers(0, n_actions - 1)))
    return Uniform() if kind == "uniform" else Greedy(rng.integers(2, size=(n_actions, dimension)).astype(float))


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_a_call_serves_the_policies_that_would_have_acted_the_same(data):
    """Against the definition, rule by rule and state by state, with calls that are added between the questions."""
    sampler = as_sampler(E.river_swim(3, 3))
    rng = np.random.default_rng(data.draw(st.integers(0, 100)))
    sizes = sampler.n_actions, sampler.dimension
    made = [[rules(data.draw, rng, *sizes) for _ in range(2)] for _ in range(3)]
    policies = [dmq.Policy(chosen) for chosen in itertools.product(*made)]
    archive, stored = Archive(3), []
    for call, policy in enumerate(policies):
        drawn = sampler.trajectories(policy, data.draw(st.integers(1, 3)), stream=dmq.Stream(0, call=call))
        archive.add(call, policy, drawn)
        stored.append((policy, drawn))
        asked = policies[data.draw(st.integers(0, len(policies) - 1))]
        serving = [
            position
            for position, (theirs, shown) in enumerate(stored)
            if all(
                rule == theirs.rules[h]
                or (not isinstance(rule, Uniform) and (asked.act(h, shown.features[:, h]) == shown.actions[:, h]).all())
                for h, rule in enumerate(asked.rules)
            )
        ]
        assert archive.serving(asked, 10**9) == serving[::-1]
        n = data.draw(st.integers(1, 6))
        enough = archive.serving(asked, n)
        assert enough == serving[::-1][: len(enough)]
        assert sum(archive.sizes[p] for p in enough[:-1]) < n
        assert len(enough) == len(serving) or sum(archive.sizes[p] for p in enough) >= n
    for position, (policy, drawn) in enumerate(stored):
        counted = sampler.collect(
            policy, drawn.n, stream=dmq.Stream(0, call=position), levels=range(3), returns_from=range(3)
        )
        kept = archive.moments(position)
        np.testing.assert_allclose(kept.grams, counted.grams, atol=1e-12)
        assert all(kept.returns[h].square == pytest.approx(counted.returns[h].square, abs=1e-12) for h in range(3))


def test_where_nothing_is_random_hindsight_changes_no_answer():
    """The covers and estimates are those of `frugal`: a stored batch is what would have been drawn."""
    for make in (lambda s: E.combination_lock(6, 3, rng=s, p_success=1.0, final=1.0), lambda s: E.deep_sea(8, rng=s)):
        for seed in range(3):
            env = make(seed)
            plain = dmq.DMQ(env, variant="frugal", n_samples=1, rng=seed).learn()
            saved = dmq.DMQ(env, variant="frugal", n_samples=1, hindsight=True, rng=seed).learn()
            np.testing.assert_array_equal(saved.theta, plain.theta)
            assert [len(policies) for policies in saved.cover] == [len(policies) for policies in plain.cover]
            assert saved.n_trajectories < plain.n_trajectories
            assert saved.counts["oracle_calls"] == plain.counts["oracle_calls"]


# Median trajectories of 20 seeds, without and with hindsight, of the design on its NumPy sketch.
FAMILIES = {
    "lock 20": (lambda s: E.combination_lock(20, 4, rng=s), 10, 1180),
    "noisy lock": (lambda s: E.combination_lock(10, 4, rng=s, p_success=0.9), 25, 1625),
    "deep sea 10": (lambda s: E.deep_sea(10, rng=s), 1, 56),
    "deep sea 20": (lambda s: E.deep_sea(20, rng=s), 1, 211),
}


@pytest.mark.parametrize("name", FAMILIES)
def test_a_run_needs_as_few_trajectories_as_the_design(name):
    make, n_samples, median = FAMILIES[name]
    drawn = []
    for seed in range(5):
        env = make(seed)
        result = dmq.DMQ(env, variant="frugal", n_samples=n_samples, hindsight=True, rng=seed).learn()
        assert result.status == "finished" and env.value(result.policy) >= 0.95 * env.optimal_value
        drawn.append(result.n_trajectories)
    assert np.median(drawn) <= 1.05 * median


RUN = {"variant": "frugal", "hindsight": True, "n_samples": 20, "rng": 7}


def content(result):
    columns = result.history.columns()
    return result.theta.tobytes(), result.counts, {name: columns[name].tobytes() for name in columns}


@pytest.mark.parametrize(
    "make", [lambda: E.combination_lock(5, 3, rng=0), lambda: Line(chunk_size=7)], ids=["compiled", "Python"]
)
def test_the_same_bits_with_workers_and_after_a_kill(make, tmp_path):
    path, expected = tmp_path / "journal", content(dmq.DMQ(make(), **RUN).learn())
    assert content(dmq.DMQ(make(), journal=path, **RUN).learn()) == expected
    with ThreadPoolExecutor(2) as threads:
        assert content(dmq.DMQ(make(), executor=threads, **RUN).learn()) == expected
    whole = path.read_bytes()
    for end in range(len(whole) // 5, len(whole), len(whole) // 5):
        path.write_bytes(whole[:end])
        assert content(dmq.DMQ(make(), journal=path, **RUN).learn()) == expected
        assert len(path.read_bytes()) == len(whole)


def test_moments_that_were_dropped_are_computed_again(monkeypatch):
    expected = content(dmq.DMQ(E.chain(5), **RUN).learn())
    monkeypatch.setattr("dmq_fast.covers.memory.LIMIT", 2000)
    assert content(dmq.DMQ(E.chain(5), **RUN).learn()) == expected


def test_what_does_not_go_together_is_refused():
    env = E.chain(5)
    for variant, options in itertools.product(("sound", "frugal"), ({"accumulate": False}, {"reuse": False})):
        with pytest.raises(ValueError, match=r"^hindsight: expected accumulate, reuse and memo with it"):
            dmq.DMQ(env, variant=variant, hindsight=True, **options)
    with pytest.raises(TypeError, match=r"^hindsight: expected a bool, got 1"):
        dmq.DMQ(env, variant="frugal", hindsight=1)
    with pytest.raises(TypeError, match=r"shows trajectories.* for hindsight; got FlowSampler"):
        dmq.DMQ(FlowSampler(env), variant="frugal", hindsight=True)
    with pytest.raises(ValueError, match=r"^hindsight: expected none with the variant 'adaptive', got True"):
        dmq.DMQ(env, epsilon=0.1, hindsight=True)
