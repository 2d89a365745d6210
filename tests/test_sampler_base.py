"""What a sampler of one's own must have, what it may have, and what it is told when it gets a name wrong."""

import pickle
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from line import Thin

import dmq_fast as dmq
from dmq_fast.engine.fingerprint import fingerprint
from dmq_fast.environments import chain
from dmq_fast.samplers import (
    ExactSampler,
    FlowSampler,
    ParallelSampler,
    RolloutSampler,
    Sampler,
    as_sampler,
    collect_chunks,
    estimate_value,
)

POLICY = dmq.Policy.fixed([1] * 4)
SIZES = {"horizon": 4, "n_actions": 2, "dimension": 5}


def inner():
    return RolloutSampler(chain(4, 2, fail=0.3))


def content(moments):
    return moments.n, moments.grams.tobytes(), [(y.moment.tobytes(), y.square) for y in moments.returns.values()]


def asked(sampler, n=1000):
    return content(sampler.collect(POLICY, n, stream=dmq.Stream(5, call=3), levels=[1, 3], returns_from=[0]))


def test_the_defaults():
    sampler = Thin(inner())
    assert sampler.chunks(10**6) == (10**6,)
    assert sampler.arithmetic is dmq.samplers.RolloutSampler.arithmetic
    assert not sampler.holds_gil
    assert sampler.env is None
    assert sampler.unwrapped() is sampler
    assert sampler.actions(0, POLICY.rules[0]) is None
    assert sampler.fingerprint() is None
    assert fingerprint(sampler) == SIZES | {"sampler": "Thin", "rewards": {"value_range": None, "noise": None}}
    assert asked(sampler) == asked(sampler.inner)


@pytest.mark.parametrize("variant", ["paper", "sound", "frugal"])
def test_a_run_needs_no_more_than_the_defaults(variant):
    # Without `actions` policies that act the same are drawn anew: another run, which also comes to an end.
    result = dmq.DMQ(Thin(inner()), variant=variant, n_samples=20, rng=0).learn()
    assert result.status == "ended"
    if variant != "frugal":
        expected = dmq.DMQ(inner(), variant=variant, n_samples=20, rng=0).learn()
        np.testing.assert_array_equal(result.theta, expected.theta)


def test_chunks_add_up_in_order():
    sampler = Thin(inner())
    sampler.chunk_size = 300
    assert list(sampler.chunks(1000)) == [300, 300, 300, 100]
    position = dmq.Stream(5, call=3)
    parts = [
        sampler.collect_chunk(POLICY, size, rng=position.at(3, j), levels=[1, 3], returns_from=[0])
        for j, size in enumerate([300, 300, 300, 100])
    ]
    assert asked(sampler) == content(sum(parts[1:], start=parts[0]))
    sizes = []
    collect_chunks(sampler, POLICY, 1000, position, [1], [], sizes.append)
    assert sizes == [300, 300, 300, 100]


def test_values_are_estimated_from_single_trajectories_by_default():
    sampler = Thin(inner()).declaring((0, 1), None)
    stream = dmq.Stream(1)
    estimate = estimate_value(sampler, POLICY, 200, stream=stream)
    returns = [
        sampler.inner.evaluate(POLICY, 1, stream=stream).value
        if i == 0
        else np.sqrt(
            sampler.inner.collect_chunk(POLICY, 1, rng=stream.at(0, i), levels=(), returns_from=(0,)).returns[0].square
        )
        for i in range(200)
    ]
    np.testing.assert_allclose(estimate.value, np.mean(returns), rtol=1e-12)
    for n, error in ((0, ValueError), (2.5, TypeError)):
        with pytest.raises(error, match=r"^n: expected an integer"):
            sampler.evaluate(POLICY, n, stream=stream)
    with pytest.raises(TypeError, match=r"^stream: expected a Stream"):
        sampler.evaluate(POLICY, 5, stream=None)
    for unsigned in (Thin(inner()), Thin(inner()).declaring((-1, 1), None)):
        with pytest.raises(TypeError, match=r"^Thin gives moments only, which hold no signs of returns: expected"):
            sampler.evaluate(POLICY, 5, stream=stream), unsigned.evaluate(POLICY, 5, stream=stream)


def test_the_range_of_rewards_is_declared_by_sampler_or_environment():
    class Ranged(Thin):
        value_range, noise = (-3, 4), 0.5

    assert not Thin(inner()).rewards.known
    assert Ranged(inner()).rewards.describe() == {"value_range": [-3, 4], "noise": 0.5}
    assert inner().rewards.describe() == {"value_range": [0, 1], "noise": None}
    others = dmq.samplers.ExactSampler(inner().env), dmq.samplers.FlowSampler(inner().env)
    for sampler in (Ranged(inner()), inner(), *others):
        wider = dmq.samplers.as_sampler(sampler, value_range=(-9, 9), noise=2)
        assert type(wider) is type(sampler) and wider.env is sampler.env
        for one in (wider, pickle.loads(pickle.dumps(dmq.samplers.as_sampler(inner().env, (-9, 9), 2)))):
            assert one.rewards.describe() == {"value_range": [-9, 9], "noise": 2}
        assert fingerprint(wider)["rewards"] == {"value_range": [-9.0, 9.0], "noise": 2.0}
        assert dmq.samplers.as_sampler(sampler) is sampler
        assert not dmq.samplers.as_sampler(sampler, "seen").rewards.known
        with ThreadPoolExecutor(1) as executor:
            spread = dmq.samplers.ParallelSampler(sampler, executor)
            assert spread.rewards.describe() == sampler.rewards.describe()
            assert spread.declaring((-9, 9), 2).rewards.describe() == wider.rewards.describe()
        with pytest.raises(ValueError, match=r"^value_range: expected \(low, high\)"):
            dmq.samplers.as_sampler(sampler, (1, 0))


def test_a_method_that_draws_is_required():
    with pytest.raises(TypeError, match=r"^Nothing: expected a sampler with collect_chunk or trajectories_chunk"):
        type("Nothing", (Sampler,), {})()


def test_sizes_are_checked_where_a_run_begins():
    for name, value in (("horizon", 0), ("n_actions", -1), ("dimension", 0)):
        sampler = Thin(inner())
        setattr(sampler, name, value)
        with pytest.raises(ValueError, match=f"^env.{name}: expected an integer >= 1, got {value}$"):
            dmq.DMQ(sampler)
        delattr(sampler, name)
        with pytest.raises(TypeError, match=f"^env: expected a sampler that sets {name}, got Thin$"):
            dmq.DMQ(sampler)


def test_an_object_that_only_looks_like_a_sampler_is_told_to_derive():
    class Duck:
        horizon, n_actions, dimension = 4, 2, 5

        def collect_chunk(self, policy, n, *, rng, levels, returns_from=()):
            return inner().collect_chunk(policy, n, rng=rng, levels=levels, returns_from=returns_from)

    assert not isinstance(Duck(), Sampler)
    message = r"got Duck, which has collect_chunk but is no sampler; derive its class from dmq_fast\.samplers\.Sampler$"
    with pytest.raises(TypeError, match=message):
        as_sampler(Duck())
    with pytest.raises(TypeError, match=message):
        dmq.DMQ(Duck())
    with pytest.raises(TypeError, match=r"^inner: expected a Sampler, got Duck$"):
        ParallelSampler(Duck(), lambda: None)


def test_parallel_samplers_stand_for_what_they_spread():
    for sampler in (inner(), FlowSampler(chain(4, 2)), ExactSampler(chain(4, 2), "rational")):
        parallel = ParallelSampler(ParallelSampler(sampler, lambda: None), lambda: None)
        assert parallel.unwrapped() is sampler
        assert parallel.arithmetic is sampler.arithmetic
        assert parallel.env is sampler.env
        assert parallel.fingerprint() == sampler.fingerprint()
        assert fingerprint(parallel) == fingerprint(sampler)
        greedy = dmq.Policy.greedy(np.ones((4, 2, 5))).rules[1]
        np.testing.assert_array_equal(parallel.actions(1, greedy), sampler.actions(1, greedy))
