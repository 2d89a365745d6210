"""BatchSampler: exact distributions, streams, cuts, and what it refuses of an environment."""

from __future__ import annotations

import functools
import pickle
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import scipy.stats
from refusals import refused

import dmq_fast as dmq
from dmq_fast.environments import FiniteMDP, combination_lock
from dmq_fast.kernels import Fixed, Stream, Uniform
from dmq_fast.policy import Policy
from dmq_fast.samplers import (
    BatchEnvironment,
    BatchSampler,
    Sampler,
    as_sampler,
    estimate_value,
)

FAMILY_LEVEL = 1e-3  # probability that a correct sampler fails any of the statistical tests of one function


class Table:
    """A FiniteMDP as a user would write it in NumPy; counts what it is asked for."""

    def __init__(self, mdp, chunk_size=None):
        self.mdp = mdp
        self.horizon, self.n_actions, self.dimension = mdp.horizon, mdp.n_actions, mdp.dimension
        self.asked = []
        if chunk_size is not None:
            self.chunk_size = chunk_size

    def reset(self, n, rng):
        self.asked.append(("reset", n))
        return rng.choice(len(self.mdp.start), size=n, p=self.mdp.start)

    def features(self, level, states):
        self.asked.append(("features", level))
        return self.mdp.features[level][states]

    def step(self, level, states, actions, rng):
        self.asked.append(("step", level))
        u = rng.random((2, len(states)))
        rewards, after = self.mdp.R[level], states
        if level < len(self.mdp.P):
            cumulative = self.mdp.P[level][states, actions].cumsum(axis=1)
            after = (u[0][:, None] >= cumulative / cumulative[:, -1:]).sum(axis=1)
        earned = rewards[states, actions, after] if rewards.ndim == 3 else rewards[states, actions]
        cap = self.mdp.caps[level]
        return after, np.where(u[1] < earned / cap, cap, 0.0) if cap > 0 else earned


def small_mdp(seed=0, horizon=4, states=5, n_actions=3):
    """One-hot features, so that second moments are counts of states."""
    rng = np.random.default_rng(seed)
    P = [rng.dirichlet(np.full(states, 0.5), size=(states, n_actions)) for _ in range(horizon - 1)]
    R = list(rng.random((horizon, states, n_actions)) / horizon)
    caps = np.where(np.arange(horizon) % 2, 1 / horizon, 0.0)
    return FiniteMDP(P, R, [np.eye(states)] * horizon, rng.dirichlet(np.ones(states)), caps)


def policies(mdp):
    theta = np.random.default_rng(1).normal(size=(mdp.horizon, mdp.n_actions, mdp.dimension))
    greedy = Policy.greedy(theta)
    mixed = [Uniform(), Fixed(1), greedy.rules[2], Uniform()]
    return [Policy.uniform(mdp.horizon), Policy.fixed([1] * mdp.horizon), greedy, Policy(mixed)]


def same(one, other):
    shapes = [(m.n, tuple(m.levels), m.returns.keys()) for m in (one, other)]
    pairs = zip(one.returns.values(), other.returns.values(), strict=True)
    return (
        shapes[0] == shapes[1]
        and (one.grams == other.grams).all()
        and all((a.moment == b.moment).all() and a[1:] == b[1:] for a, b in pairs)
    )


def test_is_a_sampler_of_the_protocol():
    env = Table(small_mdp())
    assert isinstance(env, BatchEnvironment) and not isinstance(env, Sampler)
    sampler = as_sampler(env)
    assert isinstance(sampler, BatchSampler) and isinstance(sampler, Sampler)
    assert as_sampler(sampler) is sampler


def test_chunks_add_up_and_the_same_stream_gives_the_same_bits():
    mdp = small_mdp()
    sampler = BatchSampler(Table(mdp, chunk_size=300))
    policy, stream = policies(mdp)[3], Stream(5, 7)
    assert list(sampler.chunks(1000)) == [300, 300, 300, 100]
    assert list(sampler.chunks(0)) == [0]
    asked = {"levels": [0, 2, 3], "returns_from": [1, 3]}
    whole = sampler.collect(policy, 1000, stream=stream, **asked)
    pieces = [
        sampler.collect_chunk(policy, size, rng=stream.at(7, j), **asked) for j, size in enumerate(sampler.chunks(1000))
    ]
    assert same(whole, pieces[0] + pieces[1] + pieces[2] + pieces[3])
    again = pickle.loads(pickle.dumps(sampler))
    assert same(whole, again.collect(policy, 1000, stream=stream, **asked))
    assert not same(whole, sampler.collect(policy, 1000, stream=stream.at(8), **asked))
    with ThreadPoolExecutor(4) as pool:
        jobs = [
            pool.submit(sampler.collect_chunk, policy, size, rng=stream.at(7, j), **asked)
            for j, size in enumerate(sampler.chunks(1000))
        ]
        threaded = [job.result() for job in jobs]
    assert all(same(a, b) for a, b in zip(pieces, threaded, strict=True))


@pytest.mark.parametrize(
    ("levels", "returns_from", "asked"),
    [
        ([0], [], [("reset", 9), ("features", 0)]),
        ([1], [], [("reset", 9), ("step", 0), ("features", 1)]),
        ([0, 2], [], [("reset", 9), ("features", 0), ("step", 0), ("step", 1), ("features", 2)]),
        ([], [2], [("reset", 9), ("step", 0), ("step", 1), ("features", 2), ("step", 2), ("step", 3)]),
        ([], [], []),
    ],
)
def test_trajectories_are_cut_after_the_last_level_that_matters(levels, returns_from, asked):
    env = Table(small_mdp())
    BatchSampler(env).collect(Policy.uniform(4), 9, stream=Stream(0), levels=levels, returns_from=returns_from)
    assert env.asked == asked


def test_what_is_asked_for_does_not_change_the_trajectories():
    mdp = small_mdp()
    sampler = BatchSampler(Table(mdp))
    for policy in policies(mdp):
        every = sampler.collect(policy, 500, stream=Stream(1), levels=range(4), returns_from=range(4))
        for level in range(4):
            one = sampler.collect(policy, 500, stream=Stream(1), levels=np.array([level]))
            assert (one.grams[0] == every.grams[level]).all()
            one = sampler.collect(
                policy, 500, stream=Stream(1), levels=np.array([], int), returns_from=np.array([level])
            )
            assert (one.returns[level].moment == every.returns[level].moment).all()


def test_generators_are_what_the_documentation_says():
    """The environment's is the stream's own; that of uniform rules has counter (0, 1, chunk, call)."""
    drawn = {}

    class Env(Table):
        def reset(self, n, rng):
            drawn["environment"] = rng.random(3)
            return super().reset(n, rng)

        def step(self, level, states, actions, rng):
            drawn[level] = actions
            return super().step(level, states, actions, rng)

    stream = Stream(11).at(6, 2)
    sampler = BatchSampler(Env(small_mdp()))
    sampler.collect_chunk(Policy.uniform(4), 50, rng=stream, levels=[3])
    assert (drawn["environment"] == stream.generator().random(3)).all()
    key = np.array(stream.key, dtype=np.uint64)
    own = np.random.Generator(np.random.Philox(key=key, counter=np.array([0, 1, 2, 6], dtype=np.uint64)))
    for level in range(3):
        assert (drawn[level] == own.integers(3, size=50)).all()


def test_environments_may_reuse_their_arrays():
    class Env(Table):
        def features(self, level, states):
            if not hasattr(self, "buffer"):
                self.buffer = np.empty((len(states), self.dimension))
            self.buffer[:] = super().features(level, states)
            return self.buffer

    mdp = small_mdp()
    plain, thrifty = (
        BatchSampler(kind(mdp)).collect(Policy.uniform(4), 90, stream=Stream(0), levels=range(4), returns_from=range(4))
        for kind in (Table, Env)
    )
    assert same(plain, thrifty)


def test_dmq_learns_on_it():
    mdp = combination_lock(6, n_actions=3, rng=0)
    result = dmq.DMQ(Table(mdp), n_samples=20, rng=1).learn()
    assert result.status == "ended"
    assert mdp.value(result.policy) == pytest.approx(mdp.optimal_value)
    assert (dmq.DMQ(Table(mdp), n_samples=20, rng=1).learn().theta == result.theta).all()


# What an environment must not do


def broken(**changes):
    """An environment that misbehaves at level 2 only: name of the method, and what it does to the right answer."""

    class Env(Table):
        def features(self, level, states):
            phi = super().features(level, states)
            return changes["features"](phi) if level == 2 and "features" in changes else phi

        def step(self, level, states, actions, rng):
            after, rewards = super().step(level, states, actions, rng)
            if level == 2 and "step" in changes:
                return changes["step"](after, rewards)
            return after, changes["rewards"](rewards) if level == 2 and "rewards" in changes else rewards

    return Env(small_mdp(), chunk_size=10)


def put(value):
    def change(array):
        array = array.copy()
        array[(3, *[0] * (array.ndim - 1))] = value
        return array

    return change


ANSWERS = [
    ("features", lambda phi: phi[:-1], ValueError, r"features: expected shape \(10, 5\), got \(9, 5\)"),
    ("features", lambda phi: phi[:, :4], ValueError, r"features: expected shape \(10, 5\), got \(10, 4\)"),
    ("features", lambda phi: phi * 1j, TypeError, "features: expected real numbers, got dtype complex128"),
    ("features", lambda phi: None, TypeError, "features: expected real numbers"),
    ("features", put(np.nan), ValueError, "features: expected finite numbers, got .*nan.* for trajectory 3"),
    ("features", put(-np.inf), ValueError, "features: expected finite numbers"),
    ("features", put(1e200), ValueError, "features: expected Euclidean norms of at most 1, got .* trajectory 3"),
    ("features", lambda phi: phi * (1 + 2e-9), ValueError, "features: .* norms .* got 1.000000002 for trajectory 0"),
    ("rewards", lambda r: r[:, None], ValueError, r"rewards: expected shape \(10,?\), got \(10, 1\)"),
    ("rewards", lambda r: r * 1j, TypeError, "rewards: expected real numbers"),
    (
        "rewards",
        put(np.nan),
        ValueError,
        r"rewards: expected finite numbers between -1e\+100 .*got nan for trajectory 3",
    ),
    ("rewards", put(-np.inf), ValueError, "rewards: expected finite numbers .* got -inf for trajectory 3"),
    ("rewards", put(1e101), ValueError, r"rewards: expected finite numbers .* got 1e\+101 for trajectory 3"),
    ("step", lambda after, r: after, TypeError, r"step: expected \(states, rewards\), got ndarray"),
    ("step", lambda after, r: (after, r, {}), TypeError, "step: expected .* got a tuple of 3"),
]


def test_what_an_environment_returns_is_checked():
    def collect(method, change):
        sampler = BatchSampler(broken(**{method: change}))
        sampler.collect_chunk(Policy.uniform(4), 10, rng=Stream(0).at(6, 1), levels=range(4), returns_from=[0])

    refused(
        (functools.partial(collect, method, change), error, f"level 2, call 6, chunk 1: {words}")
        for method, change, error, words in ANSWERS
    )


def test_rounding_is_forgiven():
    sampler = BatchSampler(broken(features=lambda phi: phi * (1 + 5e-10)))
    sampler.collect(Policy.uniform(4), 10, stream=Stream(0), levels=range(4))


class Costly(Table):
    """Every step costs 1 until an episode ends; action 0 ends it, in a state with features 0. The last level pays 4."""

    def __init__(self):
        move = np.eye(2)[[[1, 0], [1, 1]]]
        cost, last = [[-1.0, -1.0], [0.0, 0.0]], [[4.0, 4.0], [0.0, 0.0]]
        super().__init__(FiniteMDP([move] * 2, [cost, cost, last], [[[1.0], [0.0]]] * 3))


@pytest.mark.parametrize("value_range", [None, (-3, 4), [(-2, 2), (-1, 3), (4, 4)]], ids=str)
def test_rewards_of_any_sign_are_points(value_range):
    env, n = Costly(), 64
    if value_range is not None:
        env.value_range = value_range
    sampler, uniform = BatchSampler(env), Policy.uniform(3)
    request = {"levels": range(3), "returns_from": range(3)}
    moments = sampler.collect(uniform, n, stream=Stream(0), **request)
    drawn = sampler.trajectories(uniform, n, stream=Stream(0))
    # Episodes that have ended are worth 0, also where what goes on is worth at least 4.
    went_on = drawn.dense()[:, :, 0].sum(axis=1)
    assert set(went_on) == {1, 2, 3}
    assert drawn.returns_to_go(0).tolist() == np.where(went_on == 3, 2, -went_on).tolist()
    for level, given in drawn.moments(**request).returns.items():
        assert moments.returns[level].moment == given.moment and moments.returns[level].square == given.square
    assert sampler.evaluate(uniform, n, stream=Stream(0)).value == drawn.returns_to_go(0).mean()
    assert env.mdp.value(uniform) == pytest.approx(-1 * 0.5 - 2 * 0.25 + 2 * 0.25)


def test_returns_outside_of_a_declared_range_are_refused():
    env, uniform = Costly(), Policy.uniform(3)
    env.value_range = [(-2, 2), (-1, 2), (4, 4)]
    request = {"levels": [], "returns_from": [0, 1, 2]}
    told = (
        r"^level 1, call 5, chunk 0: an episode earned 3 from level 1 on, outside of value_range = \(-1, 2\): "
        r"declare .* such as value_range=\(-1, 3\), or noise="
    )
    with pytest.raises(ValueError, match=told):
        BatchSampler(env).collect_chunk(uniform, 64, rng=Stream(0).at(5), **request)
    # Single trajectories and values are shown as they are, and so is all that may be noisy or is not declared.
    assert BatchSampler(env).trajectories(uniform, 64, stream=Stream(0)).returns_to_go(1).max() == 3
    assert BatchSampler(env).evaluate(uniform, 64, stream=Stream(0)).n == 64
    for sampler in (as_sampler(env, "seen"), as_sampler(env, noise=0.1), as_sampler(env, (-9, 9))):
        assert sampler.collect_chunk(uniform, 64, rng=Stream(0).at(5), **request).n == 64


@pytest.mark.parametrize("method", ["reset", "features", "step"])
@pytest.mark.parametrize("error", [ValueError, StopIteration])
def test_exceptions_of_the_environment_surface_with_their_place(method, error):
    class Env(Table):
        def release(self, states):
            released.append(states)

    def fail(*arguments):
        if method == "reset" or arguments[0] == 1:
            raise error("oops")
        return getattr(Table, method)(env, *arguments)

    released = []
    env = Env(small_mdp(), chunk_size=5)
    setattr(env, method, fail)
    sampler = BatchSampler(env)
    with pytest.raises(error, match="oops") as caught:
        sampler.collect_chunk(Policy.uniform(4), 5, rng=Stream(0).at(3, 2), levels=range(4), returns_from=[0])
    level = 0 if method == "reset" else 1
    assert caught.value.__notes__ == [f"raised in {method} of the environment: level {level}, call 3, chunk 2"]
    assert len(released) == (method != "reset")


def test_what_release_raises_hides_nothing():
    def fail(*arguments):
        raise OSError("no release")

    env = Table(small_mdp())
    env.release = fail
    with pytest.raises(OSError, match="no release") as caught:
        BatchSampler(env).collect(Policy.uniform(4), 5, stream=Stream(0, 3), levels=[2])
    assert caught.value.__notes__ == ["raised in release of the environment: level 2, call 3, chunk 0"]
    env = broken(features=put(np.nan))
    env.release = fail
    with pytest.raises(ValueError, match="features: expected finite numbers"):
        BatchSampler(env).collect(Policy.uniform(4), 5, stream=Stream(0, 3), levels=[2])


def test_interrupts_pass():
    def fail(*arguments):
        raise KeyboardInterrupt

    env = Table(small_mdp())
    env.step = fail
    with pytest.raises(KeyboardInterrupt) as caught:
        BatchSampler(env).collect(Policy.uniform(4), 5, stream=Stream(0), levels=[3])
    assert not hasattr(caught.value, "__notes__")


def test_small_integers_of_numpy_are_numbers():
    """Of a uint8, the chunk size would not fit its type."""
    sampler = BatchSampler(Table(small_mdp()))
    expected = sampler.collect(Policy.uniform(4), 3, stream=Stream(0), levels=[2])
    for n in (np.uint8(3), np.int64(3), np.array(3)):
        moments = sampler.collect(Policy.uniform(4), n, stream=Stream(0), levels=[2])
        assert (moments.grams == expected.grams).all() and moments.n == 3


class Half:
    horizon, n_actions = 3, 2

    def step(self):
        pass


def test_objects_that_are_no_environments_are_refused():
    def changed(name, value):
        env = Table(small_mdp())
        setattr(env, name, value)
        return env

    accepted = "env: expected a FiniteMDP, a CompiledEnv, a BatchEnvironment or a Sampler, got "
    refused(
        [
            (lambda: BatchSampler(changed("horizon", 0)), ValueError, "env.horizon: expected an integer"),
            (lambda: BatchSampler(changed("n_actions", 2.5)), TypeError, "env.n_actions: expected an integer"),
            (lambda: BatchSampler(changed("dimension", None)), TypeError, "env.dimension: expected an integer"),
            (lambda: BatchSampler(changed("chunk_size", 0)), ValueError, "env.chunk_size: expected an integer"),
            (lambda: BatchSampler(Half()), TypeError, "env: expected a BatchEnvironment, got Half without dimension"),
            (lambda: dmq.DMQ(Half()), TypeError, accepted + "Half, which .* lacks dimension, reset, features"),
            (lambda: as_sampler(Table), TypeError, r"env: .* without arguments, but Table\(\) raised"),
            (lambda: as_sampler(3), TypeError, accepted + "int$"),
            (lambda: as_sampler("lock"), ValueError, "lock: expected the parameter horizon"),
        ]
    )


# Values


def test_the_value_of_a_policy_is_estimated():
    mdp = small_mdp()
    sampler = BatchSampler(Table(mdp, chunk_size=700))
    p_values = []
    for call, policy in enumerate(policies(mdp)):
        found = sampler.evaluate(policy, 10_000, stream=Stream(2, call))
        moments = sampler.collect(policy, 10_000, stream=Stream(2, call), levels=[], returns_from=[0])
        y, square = moments.returns[0].moment.sum() / 10_000, moments.returns[0].square / 10_000
        assert found.value == pytest.approx(y, rel=1e-12)
        assert found.standard_error == pytest.approx(np.sqrt((square - y * y) / 9_999), rel=1e-9)
        assert estimate_value(sampler, policy, 10_000, stream=Stream(2, call)) == found
        p_values.append(2 * scipy.stats.norm.sf(abs(found.value - mdp.value(policy)) / found.standard_error))
    assert min(p_values) > FAMILY_LEVEL / len(p_values)
