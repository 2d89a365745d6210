"""Compiled environments: one in C, and the engine against a twin that uses the same uniforms."""

import ctypes
import os
import pickle
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import numpy as np
import pytest
import walker
from flat import flat
from hypothesis import strategies as st
from properties import for_all, seeds
from refusals import refused

import dmq_fast as dmq
from dmq_fast.environments import CompiledEnv, combination_lock, river_swim
from dmq_fast.environments.block import block_mdp, diabolical_lock, lock_bernoulli, lock_gaussian
from dmq_fast.environments.compiled import FEATURES, RESET, STEP, Functions
from dmq_fast.kernels import (
    CompiledModel,
    EnvironmentHandle,
    Episode,
    FiniteModel,
    Fixed,
    Greedy,
    Uniform,
    capsule_at,
)
from dmq_fast.kernels._block import BlockModel
from dmq_fast.samplers import ParallelSampler, RolloutSampler, estimate_value

pytestmark = pytest.mark.kernels

BLOCK = 256


# As ctypes has it for functions of Python's own C interface.
GIL_HELD = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_int64, ctypes.c_void_p, ctypes.c_void_p)


def roll_out(env, policy, n, stream, levels, returns_from):
    """The engine in NumPy: blocks of 256, the handle's functions, uniforms in the documented order."""
    handle, rng = env.handle, stream.generator()
    d = env.dimension
    grams, moments = np.zeros((len(levels), d, d)), np.zeros((len(returns_from), d))
    squares, earned = np.zeros(len(returns_from)), []
    last = env.horizon - 1 if len(returns_from) else max(levels, default=-1)

    def draw(size, count):
        return rng.random(size * count).reshape(size, count)

    for first in range(0, n, BLOCK):
        size = min(BLOCK, n - first)
        states = handle.reset(draw(size, handle.reset_uniforms))
        origin, so_far = {}, {}
        for h in range(last + 1):
            rule = policy.rules[h]
            if h in levels or h in returns_from or isinstance(rule, Greedy):
                phi = handle.features(h, states, draw(size, handle.feature_uniforms[h]))
                if env.features is not None:
                    phi = env.features(phi)
                phi[handle.ended(h, states)] = 0.0
                if h in levels:
                    grams[list(levels).index(h)] += phi.T @ phi
                if h in returns_from:
                    origin[h], so_far[h] = phi, np.zeros(size)
            if h == last and not len(returns_from):
                break
            if isinstance(rule, Fixed):
                actions = np.full(size, rule.action)
            elif isinstance(rule, Uniform):
                actions = (draw(size, 1)[:, 0] * env.n_actions).astype(np.int64)
            else:
                actions = np.argmax(phi @ rule.theta.T, axis=1)
            rewards = handle.step(h, states, actions, draw(size, handle.step_uniforms[h]))
            for y in so_far.values():
                y += rewards
        for r, h in enumerate(returns_from):
            moments[r] += so_far[h] @ origin[h]
            squares[r] += so_far[h] @ so_far[h]
        if returns_from and returns_from[0] == 0:
            earned.append(so_far[0])
    return grams, moments, squares, np.concatenate(earned or [np.empty(0)])


def some_policy(rng, env):
    rules = [
        Uniform(),
        Fixed(int(rng.integers(env.n_actions))),
        Greedy(rng.normal(size=(env.n_actions, env.dimension))),
    ]
    return dmq.Policy([rules[int(rng.integers(3))] for _ in range(env.horizon)])


@for_all(
    seed=seeds,
    n=st.integers(0, 700),
    levels=st.sets(st.integers(0, 5)),
    returns_from=st.sets(st.integers(0, 5), max_size=3),
)
def test_the_engine_agrees_with_its_twin(seed, n, levels, returns_from):
    env = walker.in_c()
    policy, stream = some_policy(np.random.default_rng(seed), env), dmq.Stream(seed, call=3, chunk=1)
    levels, returns_from = sorted(levels), sorted(returns_from)
    expected = roll_out(env, policy, n, stream, levels, returns_from)
    model = CompiledModel(env.handle)
    got = model.rollout(policy.rules, n, stream, levels, returns_from)
    for mine, theirs in zip(got, expected[:3], strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-12, atol=1e-12)
    whole = roll_out(env, policy, n, stream, (), (0,))
    np.testing.assert_array_equal(model.returns(policy.rules, n, stream), whole[3])


def test_dmq_learns_to_walk_right():
    env = walker.in_c()
    result = dmq.DMQ(env, n_samples=200, rng=0).learn()
    sampler = RolloutSampler(env)
    assert result.status == "ended"
    right = estimate_value(sampler, dmq.Policy.fixed([1] * 6), 4000, stream=dmq.Stream(9))
    found = estimate_value(sampler, result.policy, 4000, stream=dmq.Stream(8))
    assert found.value > right.value - 0.3 > 5.0


def test_what_is_declared_goes_with_the_environment():
    env = walker.in_c()
    rough = env.with_features(dmq.features.RandomFourier(2, 6, rng=0))
    for one in (env, rough, pickle.loads(pickle.dumps(env))):
        np.testing.assert_array_equal(one.value_range, walker.SIZES["value_range"])
        np.testing.assert_array_equal(RolloutSampler(one).rewards.bounds, one.value_range)
    assert RolloutSampler(env, value_range="seen").rewards.bounds is None
    assert not RolloutSampler(walker.in_c(value_range=None)).rewards.known
    assert walker.in_c(noise=2).noise == 2.0
    lock = combination_lock(3, rng=0)
    np.testing.assert_array_equal(block_mdp(lock).value_range, lock.value_range)


def test_what_is_noisy_or_undeclared_is_not_checked():
    step = {"step": lambda level, states, u: states + 5.0}
    for declared in ({}, {"value_range": "seen"}, {"value_range": (0, 1), "noise": 1.0}):
        assert collect(python_env(**step, **declared)).returns[0].square == pytest.approx(300 * 15.0**2)
    env = python_env(**step, value_range=(0, 1))
    assert RolloutSampler(env).evaluate(dmq.Policy.uniform(3), 10, stream=dmq.Stream(0)).value == 15.0
    assert RolloutSampler(env).trajectories(dmq.Policy.uniform(3), 10, stream=dmq.Stream(0)).rewards.max() == 5.0


def test_after_the_end_nothing_is_left_to_earn():
    """An episode that is over returns 0 to go, which need not be in the range of those that go on."""
    env = walker.in_c(value_range=[(-3.0, 7.5)] * 2 + [(1e-6, 7.5)] * 4)
    right = dmq.Policy.fixed([1] * 6)
    shown = RolloutSampler(env).trajectories(right, 2000, stream=dmq.Stream(0))
    over = ~shown.features.any(axis=2)[:, 5]
    assert 0 < over.sum() < 2000 and not shown.returns_to_go(5)[over].any()
    with pytest.raises(ValueError, match=r"^level 5, call 0, chunk 0: an episode earned -0\.5 from level 5 on"):
        RolloutSampler(env).collect(right, 2000, stream=dmq.Stream(0), levels=[], returns_from=[5])
    wide = walker.in_c(value_range=[(-3.0, 7.5)] * 5 + [(-0.5, 7.5)])
    RolloutSampler(wide).collect(right, 2000, stream=dmq.Stream(0), levels=[], returns_from=[5])
    apart = walker.in_c(value_range=[(-3.0, 7.5)] * 5 + [(-0.5, -0.25)])
    with pytest.raises(ValueError, match=r"earned 7\.5 from level 5 on"):
        RolloutSampler(apart).collect(right, 2000, stream=dmq.Stream(0), levels=[], returns_from=[5])


def test_environments_travel_by_their_factory():
    env = walker.in_c()
    twin = pickle.loads(pickle.dumps(env))
    ours, theirs = (
        RolloutSampler(one).collect(dmq.Policy.uniform(6), 500, stream=dmq.Stream(1), levels=[5]) for one in (env, twin)
    )
    np.testing.assert_array_equal(ours.grams, theirs.grams)
    assert twin.fingerprint() == env.fingerprint()


def test_without_a_factory_they_say_why_they_cannot():
    with pytest.raises(TypeError, match="addresses, which mean nothing in another process; give it a factory"):
        pickle.dumps(walker.in_c(factory=None))


def test_chunks_on_threads_are_those_of_one_thread():
    sampler = RolloutSampler(walker.in_c())
    sampler.chunk_size = 300
    asked = {"stream": dmq.Stream(4), "levels": range(6), "returns_from": (1,)}
    alone = sampler.collect(dmq.Policy.uniform(6), 5000, **asked)
    with ThreadPoolExecutor(3) as pool:
        shared = ParallelSampler(sampler, pool).collect(dmq.Policy.uniform(6), 5000, **asked)
    np.testing.assert_array_equal(shared.grams, alone.grams)
    np.testing.assert_array_equal(shared.returns[1].moment, alone.returns[1].moment)


def test_chunks_shrink_where_trajectories_are_long_or_wide():
    assert RolloutSampler(walker.in_c()).chunk_size == 16_384
    wide = walker.in_c(dimension=400, feature_uniforms=400)
    assert RolloutSampler(wide).chunk_size == 2048
    assert RolloutSampler(walker.in_c(dimension=10**6)).chunk_size == 256


CYCLE = """
import gc, walker
env = walker.in_c()
env.itself = env
del env
gc.collect()
"""


def test_a_collected_cycle_may_free_the_struct_first(tmp_path):
    """Freed memory is overwritten here, so that reading it does not go unnoticed."""
    search = os.pathsep.join([os.path.dirname(walker.__file__), *(path for path in sys.path if path)])
    environment = os.environ | {"PYTHONMALLOC": "debug", "PYTHONPATH": search}
    command = [sys.executable, "-c", CYCLE]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr


# Journals.

ROWS = np.eye(5, 7)

JOURNALED = {
    "in C": walker.in_c,
    "with a feature map": lambda: walker.in_c().with_features(dmq.features.RandomFourier(2, 6, [0.5, 0.5], rng=0)),
    "without noise": lambda: block_mdp(river_swim(5, 5), embedding=ROWS),
    "coins": lambda: lock_bernoulli(5, 0.1, observation="coins", rng=0),
    "gaussian": lambda: diabolical_lock(5, 3, observation="noisy", rng=0),
}


@pytest.mark.parametrize("name", JOURNALED)
def test_a_run_goes_on_from_its_journal(tmp_path, name):
    env, path = JOURNALED[name](), tmp_path / "journal"
    settings = {"n_samples": 60, "rng": 0, "variant": "sound"}
    expected = flat(env, **settings).learn()
    limit = expected.n_trajectories // 2
    assert flat(env, journal=path, max_trajectories=limit, **settings).learn().status == "max_trajectories"
    size = path.stat().st_size
    # Another object of the same environment, here one that came out of a pickle.
    result = flat(pickle.loads(pickle.dumps(env)), journal=path, **settings).learn()
    assert path.stat().st_size > size
    assert result.status == "ended" and result.theta.tobytes() == expected.theta.tobytes()
    assert result.history == expected.history and result.counts == expected.counts


def block(embedding=ROWS, **changes):
    arguments = {"noise": "gaussian", "sigma": 0.1, "dimension": 8, "rng": 0} | changes
    return block_mdp(river_swim(5, 5), embedding=embedding, **arguments)


def lock(**changes):
    return block_mdp(combination_lock(4, rng=0, **changes), parameters={})


def mapped(rng=0):
    return walker.in_c().with_features(dmq.features.RandomFourier(2, 6, rng=rng))


def test_the_journal_of_another_environment_is_refused_by_what_differs(tmp_path):
    coins = partial(block, noise="coins", sigma=0.0, dimension=None, n_coins=2)
    own, ranges = (
        partial(lock_gaussian, 4, rng=0),
        r"rewards\.value_range is \[\[-3\.0, 7\.5\], .* there and \[-3\.0, 8\.0\]",
    )
    table = [
        (block, partial(block, sigma=0.2), r"parameters\.sigma is 0\.1 there and 0\.2 here"),
        (block, partial(block, ROWS[::-1]), r"sha256 is '\w+' there and '\w+' here"),
        (block, partial(block, ROWS * (1 - 2.0**-52)), "sha256 is "),
        (block, partial(block, rng=1), r"parameters\.rotation_rng is 0 there and 1 here"),
        (block, partial(block, rotation="hadamard"), r"parameters\.rotation is None there and 'hadamard'"),
        (block, partial(block, dimension=9), "dimension is 8 there and 9 here"),
        (coins, partial(block, dimension=9), r"parameters\.noise is 'coins' there and 'gaussian' here"),
        (lock, partial(lock, final=0.6), r"latent\.parameters\.final is 0\.7 there and 0\.6 here"),
        (own, partial(lock_gaussian, 4, sigma=0.3, rng=0), r"parameters\.sigma is 0\.1 there and 0\.3 here"),
        (own, partial(lock_gaussian, 4, rng=1), r"parameters\.rng is 0 there and 1 here"),
        (walker.in_c, partial(walker.in_c, parameters={"noise": 0.5}), r"parameters\.noise is None there and 0\.5"),
        (walker.in_c, partial(walker.in_c, value_range=(-3, 8)), ranges),
        (walker.in_c, partial(walker.in_c, noise=0.5), r"rewards\.noise is None there and 0\.5 here"),
        (walker.in_c, partial(walker.in_c, context=np.array([0.125, 0.3])), "sha256 is "),
        (walker.in_c, partial(lock_bernoulli, 6, rng=0), r"\w+ is "),
        (mapped, partial(mapped, 1), r"features is '\w+' there and '\w+' here"),
    ]
    for number, (mine, other, words) in enumerate(table):
        path = tmp_path / str(number)
        settings = {"n_samples": 20, "rng": 0, "journal": path}
        flat(mine(), max_trajectories=200, **settings).learn()
        before, message = (
            path.read_bytes(),
            rf"^{re.escape(str(path))}: the journal of another run: .*environment\.{words}",
        )
        refused([(flat(other(), **settings).learn, dmq.JournalError, message)])
        assert path.read_bytes() == before
        flat(mine(), max_trajectories=300, **settings).learn()


# What goes wrong inside an environment comes out, with its place.


def python_env(reset=0.0, features=0.5, step=0.0, **declared):
    """An environment whose functions are Python behind ctypes.

    Each is what it writes, or a function of the level, the states and the uniforms that returns it. Integers are codes.
    """

    def numbers(pointer, *shape):
        return np.ctypeslib.as_array(ctypes.cast(pointer, ctypes.POINTER(ctypes.c_double)), shape)

    def answer(what, out, *seen):
        value = what(*seen) if callable(what) else what
        if type(value) is int:
            return value
        out[:] = value
        return 0

    def start(context, n, u, states):
        return answer(reset, numbers(states, n), 0, None, numbers(u, n))

    def observe(context, level, n, states, u, phi):
        return answer(features, numbers(phi, n, 2), level, numbers(states, n, 1), numbers(u, n, 1))

    def act(context, level, n, states, actions, u, rewards):
        return answer(step, numbers(rewards, n), level, numbers(states, n), numbers(u, n))

    sizes = {"horizon": 3, "n_actions": 2, "dimension": 2, "state_bytes": 8}
    functions = {"reset": RESET(start), "features": FEATURES(observe), "step": STEP(act)}
    return CompiledEnv.from_functions(**sizes, **functions, **declared)


def collect(env):
    stream = dmq.Stream(0, call=7, chunk=2)
    return RolloutSampler(env).collect_chunk(dmq.Policy.uniform(3), 300, rng=stream, levels=range(3), returns_from=(0,))


def test_python_behind_ctypes_works():
    assert collect(python_env()).grams[2, 0, 1] == 75.0


def one(value, at):
    """A `features` or `step` that writes one other number, at one level."""

    def function(level, states, _):
        return np.where(np.arange(states.size).reshape(states.shape) == 17, value if level == at else 0.0, 0.0)

    return function


def test_what_goes_wrong_is_reported_with_level_call_and_chunk():
    place, numbers = "level {}, call 7, chunk 2: {}", "rewards: expected finite numbers, got "
    unit = {"value_range": (0, 1)}
    features, rewards = partial(one, at=1), partial(one, at=2)
    table = [
        ({"reset": 5}, RuntimeError, 0, "reset of the environment returned the code 5"),
        ({"features": 6}, RuntimeError, 0, "features of the environment returned the code 6"),
        ({"step": -7}, RuntimeError, 0, "step of the environment returned the code -7"),
        ({"features": features(np.nan)}, ValueError, 1, "features: expected finite numbers, got nan"),
        ({"features": features(np.inf)}, ValueError, 1, "features: expected finite numbers, got inf"),
        ({"features": features(0.8)}, ValueError, 1, r"features: expected Euclidean norms of at most 1, got 1\.1313"),
        ({"step": rewards(np.nan)}, ValueError, 2, numbers + "nan"),
        ({"step": rewards(-np.inf)}, ValueError, 2, numbers + "-inf"),
        (
            {"step": rewards(-0.01), **unit},
            ValueError,
            0,
            r"an episode earned -0\.01 from level 0 on, outside of value_r",
        ),
        ({"step": 0.4, **unit}, ValueError, 0, r"an episode earned 1\.2 .*, such as value_range=\(0, 1\.2\), or noise"),
    ]
    calls = [
        (partial(collect, python_env(**functions)), error, place.format(h, text)) for functions, error, h, text in table
    ]
    refused(calls)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_an_exception_behind_ctypes_does_not_become_a_zero():
    def broken(*_):
        raise KeyError("broken")

    # What ctypes returns then is not defined: a code, or 0 with nothing written.
    error, message = (ValueError, RuntimeError), r"did the function raise|returned the code"
    refused(
        [(partial(collect, python_env(**{name: broken})), error, message) for name in ("reset", "features", "step")]
    )


def one_step(env):
    episode = Episode(env.handle, None, dmq.Stream(0))
    episode.reset(0)
    episode.features()
    return episode.step(0)


# What uses one uniform a trajectory, and forgets to ask for it.
FORGETFUL = {
    "reset": {"reset": lambda level, states, u: u / 2, "features": lambda level, states, u: states},
    "features": {"features": lambda level, states, u: u / 2},
    "step": {"step": lambda level, states, u: u / 3},
}


@pytest.mark.parametrize("name", ["reset", "features", "step"])
def test_uniforms_that_were_not_asked_for_are_no_numbers(name):
    env = python_env(**FORGETFUL[name])
    for simulate in (collect, one_step):
        with pytest.raises(ValueError, match=r"level 0.*got nan \(did the function .* or read uniforms that"):
            simulate(env)
    by_hand = {
        "reset": lambda: env.handle.reset(np.empty((3, 0))).view(np.float64),
        "features": lambda: env.handle.features(0, np.zeros((3, 8), np.uint8)),
        "step": lambda: env.handle.step(0, np.zeros((3, 8), np.uint8), [0] * 3),
    }
    assert np.isnan(by_hand[name]()).all()


def test_scores_that_overflow_are_reported():
    policy = dmq.Policy.greedy(np.full((3, 2, 2), 1.7e308))
    with pytest.raises(ArithmeticError, match="level 0, call 0, chunk 0: a greedy score is not finite"):
        RolloutSampler(python_env(features=one(0.7, 0))).collect(policy, 20, stream=dmq.Stream(0), levels=[1])


# The border.


def test_bad_arguments_are_named():
    table = [
        ({"horizon": 0}, ValueError, "horizon: expected an integer >= 1, got 0"),
        ({"n_actions": 2.5}, TypeError, "n_actions: expected an integer, got 2.5"),
        ({"dimension": 2**40}, ValueError, "dimension: expected an integer in"),
        ({"state_bytes": 0}, ValueError, "state_bytes: expected an integer >= 1, got 0"),
        ({"reset_uniforms": -1}, ValueError, "reset_uniforms: expected an integer >= 0, got -1"),
        ({"feature_uniforms": [1, 2]}, ValueError, "feature_uniforms: expected one integer or 6, one a level, got 2"),
        ({"step_uniforms": [1, 1, 1, 1, 1, -2]}, ValueError, r"step_uniforms\[5\]: expected an integer >= 0, got -2"),
        ({"value_range": (1.0, 1.0)}, ValueError, r"value_range: expected \(low, high\), one such .* with low < high"),
        ({"value_range": (0.0, float("nan"))}, ValueError, "value_range: .* of finite numbers, got"),
        ({"value_range": [(0, 1)] * 5}, ValueError, "value_range: .* one such pair for each of 6 levels"),
        ({"noise": 0.0}, ValueError, "noise: expected a number > 0, or none"),
        ({"reward_shift": 1.0}, TypeError, "unexpected keyword argument 'reward_shift'"),
        ({"reset": None}, TypeError, "reset: expected an address, .* got NoneType"),
        ({"step": 0}, ValueError, "step: expected a function, got NULL"),
        ({"step": lambda: 0}, TypeError, "step: .* got function, which is Python: see BatchEnvironment"),
        ({"step_uniforms": 1.5}, TypeError, "step_uniforms: expected one integer or 6, one a level, got 1.5"),
        ({"step": True}, TypeError, "step: expected an address, a ctypes function, or .* got bool"),
        ({"reset": GIL_HELD(lambda *_: 0)}, TypeError, "reset: expected a function that needs no GIL, as of CFUNCTYPE"),
        ({"context": np.zeros((4, 4))[:, 1]}, ValueError, "context: expected a contiguous array"),
        ({"context": "text"}, TypeError, "context: expected an address, a ctypes object or an array, got str"),
        ({"factory": "walker"}, TypeError, "factory: expected a function, got str"),
    ]
    refused([(partial(walker.in_c, **changes), error, message) for changes, error, message in table])


def test_feature_maps_must_fit():
    give, wide = walker.in_c().with_features, dmq.features.Identity([-1.0] * 3, [1.0] * 3)
    refused([
        (lambda: give(wide), ValueError, "features: expected a map of 2 observed numbers, got one of 3"),
        (lambda: give(lambda x: x), TypeError, "features: expected a FeatureMap, got function"),
    ])  # fmt: skip


def test_what_is_no_environment_is_refused():
    with pytest.raises(TypeError, match=r"a capsule named 'dmq_fast\.environment' or an object with a method"):
        EnvironmentHandle(object())
    lock = combination_lock(2, rng=0)
    model = FiniteModel(lock.P, lock.R, lock.features, lock.start, lock.caps)
    capsule = BlockModel(model, lock.features).__dmq_environment__()
    EnvironmentHandle(capsule)
    with pytest.raises(ValueError, match="this capsule was taken already"):
        EnvironmentHandle(capsule)
    for address in (1.0, np.longdouble(1.0), "1", None, -1, 2**64):
        with pytest.raises(ValueError, match=r"^environment: expected an integer in \[0, 2\^64\), got"):
            capsule_at(address)
    with pytest.raises(ValueError, match=r"^environment: expected an address, got NULL"):
        capsule_at(0)


def functions_in_c():
    return {name: getattr(walker.c_library(), f"walker_{name}") for name in ("reset", "features", "step")}


def test_another_version_is_refused():
    made = Functions(functions_in_c(), None)
    made.struct.version = 3
    with pytest.raises(ValueError, match="expected version 2 of the interface and 120 bytes, got version 3 and 120"):
        EnvironmentHandle(made)
    made.struct.version, made.struct.size = 1, 136
    with pytest.raises(ValueError, match=r"got version 1 and 136 bytes; compile it again .*, without reward_shift and"):
        EnvironmentHandle(made)


def test_release_is_called_once_when_nobody_simulates_any_more():
    released = []
    release = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(released.append)
    made = Functions(functions_in_c(), 77)
    made.fill(horizon=1, n_actions=1, dimension=2, state_bytes=8, reset_uniforms=1)
    made.struct.release = ctypes.cast(release, ctypes.c_void_p).value
    env = CompiledEnv(made)
    sampler = RolloutSampler(env.with_features(None))
    del env
    assert released == []
    del sampler
    assert released == [77]


def test_stepping_by_hand_checks_what_it_is_given():
    handle = walker.in_c().handle
    states = handle.reset(np.full((4, 1), 0.5))
    assert states.view(np.float64).tolist() == [[0.5]] * 4
    odd = np.zeros(states.size + 1, np.uint8)[1:].reshape(states.shape)  # doubles would begin between two
    shapes, actions = r"uniforms: expected shape \(4, 1\), got \(4, 0\)", r"actions: expected 4 integers in \[0, 2\)"
    refused([
        (lambda: handle.features(6, states), ValueError, r"level: expected an integer in \[0, 5\], got 6"),
        (lambda: handle.features(1, states), ValueError, shapes),
        (lambda: handle.step(0, states, [0, 1, 2, 0], np.zeros((4, 1))), ValueError, actions),
        (lambda: handle.ended(0, states[::2]), ValueError, "states: expected a contiguous array of uint8"),
        (lambda: handle.ended(0, odd), ValueError, "which begins at a multiple of"),
    ])  # fmt: skip
    assert handle.step(0, states, [1] * 4, np.full((4, 1), 0.5)).tolist() == [-0.5] * 4
    assert states.view(np.float64).tolist() == [[0.625]] * 4
