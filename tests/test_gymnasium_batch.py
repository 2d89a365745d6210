"""GymnasiumBatch: transitions of Gymnasium's own step, whatever resets, ends or counts from elsewhere."""

from __future__ import annotations

import functools
import pickle
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from flat import flat
from refusals import refused

import dmq_fast as dmq
from dmq_fast._support.workers import Workers
from dmq_fast.environments import FiniteMDP, GymnasiumBatch, from_gymnasium, make
from dmq_fast.kernels import Stream
from dmq_fast.policy import Policy
from dmq_fast.samplers import BatchEnvironment, BatchSampler, ParallelSampler
from dmq_fast.samplers.parallel import pool_of

gymnasium = pytest.importorskip("gymnasium")

MODES = list(gymnasium.vector.AutoresetMode)


class Walk(gymnasium.Env):
    """Ends or is cut off at random; counts observations from `first` and actions from `first_action`."""

    def __init__(self, first=0, first_action=0, ends=True):
        self.observation_space = gymnasium.spaces.Discrete(7, start=first)
        self.action_space = gymnasium.spaces.Discrete(3, start=first_action)
        self.ends = ends
        self.over = True

    def reset(self, *, seed=None, options=None):
        assert seed is None or type(seed) is int
        super().reset(seed=seed)
        self.place = int(self.np_random.integers(7))
        self.over = False
        return self.observation_space.start + self.place, {}

    def step(self, action):
        assert self.action_space.contains(action), action
        assert not self.over, "step after the end"
        move = action - int(self.action_space.start)
        self.place = int((self.place + move + self.np_random.integers(2)) % 7)
        terminated = self.ends and self.place == 3
        truncated = self.ends and (self.place == 5 or (terminated and bool(self.np_random.integers(2))))
        self.over = terminated or truncated
        return self.observation_space.start + self.place, self.place / 7, terminated, truncated, {}


def tiles(observations):
    """One-hot: the tile of angle and angular velocity, 6 x 4."""
    angle = np.clip((observations[:, 2] / 0.21 + 1) * 3, 0, 5).astype(int)
    spin = np.clip((observations[:, 3] / 1.5 + 1) * 2, 0, 3).astype(int)
    return np.eye(24)[angle * 4 + spin]


def everything(env, policy, n, seed=0):
    every = range(env.horizon)
    return BatchSampler(env).collect(policy, n, stream=Stream(seed), levels=every, returns_from=every)


def same(one, other):
    return (one.grams == other.grams).all() and all(
        (a.moment == b.moment).all() and a[1:] == b[1:]
        for a, b in zip(one.returns.values(), other.returns.values(), strict=True)
    )


# Transitions


def by_hand(env, horizon, actions, seeds, features, dimension):
    """Features (H, n, d) and rewards (H, n) of episodes stepped one after the other in a plain loop."""
    phi, rewards = np.zeros((horizon, len(seeds), dimension)), np.zeros((horizon, len(seeds)))
    for i, seed in enumerate(seeds):
        observation, _ = env.reset(seed=int(seed))
        for h in range(horizon):
            phi[h, i] = features(np.asarray(observation)[None])[0]
            observation, rewards[h, i], terminated, truncated, _ = env.step(int(actions[h]))
            if terminated or truncated:
                break
    return phi, rewards


LAKE = lambda s: np.eye(16)[s]  # noqa: E731
CAR = dmq.features.Fourier([-1.2, -0.07], [0.6, 0.07], order=3)
LOOPS = [
    ("CartPole-v1", 30, tiles, (0, 30), {"max_episode_steps": 12}),
    ("FrozenLake-v1", 20, LAKE, None, {}),
    ("FrozenLake-v1", 20, LAKE, (0, 1), {"max_episode_steps": 5}),
    ("MountainCar-v0", 20, CAR, (-20, -1), {}),
    ("CliffWalking-v1", 20, lambda s: np.eye(48)[s], None, {}),
]


@pytest.mark.parametrize(("name", "horizon", "features", "value_range", "arguments"), LOOPS, ids=range(5))
def test_episodes_are_those_of_a_plain_loop(name, horizon, features, value_range, arguments):
    batch = GymnasiumBatch(name, horizon, features, value_range=value_range, make=arguments)
    rng = np.random.default_rng(3)
    actions = rng.integers(batch.n_actions, size=horizon)
    stream, n = Stream(4), 40
    moments = BatchSampler(batch).collect(
        Policy.fixed(actions), n, stream=stream, levels=range(horizon), returns_from=[0]
    )
    seeds = stream.generator().integers(2**31, size=n)
    phi, rewards = by_hand(gymnasium.make(name, **arguments), horizon, actions, seeds, features, batch.dimension)
    np.testing.assert_allclose(moments.grams, np.einsum("hni,hnj->hij", phi, phi), rtol=0, atol=1e-12 * n)
    y = rewards.sum(axis=0)
    np.testing.assert_allclose(moments.returns[0].moment, y @ phi[0], rtol=1e-12, atol=1e-12 * n)
    assert moments.returns[0].square == pytest.approx(y @ y, rel=1e-12)


def vector(mode, n, make=Walk):
    return lambda: gymnasium.vector.SyncVectorEnv([make] * n, autoreset_mode=mode)


@pytest.mark.parametrize("mode", MODES, ids=lambda mode: mode.name)
def test_rows_of_a_vector_are_the_episodes_of_copies(mode):
    """Gymnasium seeds row i with seed + i."""
    n, horizon = 32, 9
    policy = Policy.fixed([0, 1, 2, 1, 0, 2, 2, 1, 0])
    rows = everything(GymnasiumBatch(vector(mode, n), horizon), policy, n)
    first = int(Stream(0).generator().integers(2**31, size=1)[0])
    phi, rewards = by_hand(
        Walk(), horizon, [0, 1, 2, 1, 0, 2, 2, 1, 0], first + np.arange(n), lambda s: np.eye(7)[s], 7
    )
    np.testing.assert_array_equal(rows.grams, np.einsum("hni,hnj->hij", phi, phi))
    np.testing.assert_allclose(rows.returns[0].moment, rewards.sum(axis=0) @ phi[0], atol=1e-12)
    # Most have ended by the last level, and what has ended has no features.
    counts = np.trace(rows.grams, axis1=1, axis2=2)
    assert counts[0] == n and (np.diff(counts) <= 0).all() and 0 < counts[-1] < counts[1]


def test_a_vector_may_be_wider_than_the_block():
    env = GymnasiumBatch(vector(MODES[0], 50), 9)
    sampler = BatchSampler(env)
    assert list(sampler.chunks(120)) == [50, 50, 20]
    moments = sampler.collect(Policy.uniform(9), 120, stream=Stream(1), levels=[0, 8])
    assert np.trace(moments.gram[0]) == 120


def test_vector_environments_of_other_makes():
    """Gymnasium's own vectorised CartPole has one generator for all rows and no inner environments."""

    def make():
        return gymnasium.make_vec("CartPole-v1", num_envs=60, vectorization_mode="vector_entry_point")

    env = GymnasiumBatch(make, 50, tiles)
    assert (env.chunk_size, env.n_actions, env.dimension) == (60, 2, 24)
    moments = everything(env, Policy.uniform(50), 150)
    assert same(moments, everything(env, Policy.uniform(50), 150))


def test_async_vectors_work():
    def make():
        # Python from 3.12 on warns of forks in a process that has threads.
        return gymnasium.vector.AsyncVectorEnv([Walk] * 3, context="spawn" if sys.version_info >= (3, 12) else None)

    env = GymnasiumBatch(make, 5)
    try:
        moments = everything(env, Policy.uniform(5), 7)
    finally:
        env.close()
    assert same(moments, everything(GymnasiumBatch(vector(MODES[0], 3), 5), Policy.uniform(5), 7))


@pytest.mark.parametrize("mode", [None, *MODES], ids=str)
def test_spaces_that_do_not_start_at_zero(mode):
    def env(*first):
        def make():
            return Walk(*first)

        return GymnasiumBatch(make if mode is None else vector(mode, 40, make), 6)

    policy = Policy([*Policy.uniform(3).rules, *Policy.greedy(np.random.default_rng(0).normal(size=(3, 3, 7))).rules])
    plain, shifted = everything(env(), policy, 40), everything(env(-4, 5), policy, 40)
    assert same(plain, shifted)
    assert env(-4, 5).n_actions == 3 and env(-4, 5).dimension == 7


def test_ended_episodes_are_paid_nothing():
    class Ends(Walk):
        def __init__(self, terminated, truncated, at):
            super().__init__()
            self.how, self.at = (terminated, truncated), at

        def reset(self, **arguments):
            self.steps = 0
            return super().reset(**arguments)

        def step(self, action):
            assert self.steps < self.at, "step after the end"
            self.steps += 1
            return (0, -1.0, *(self.how if self.steps == self.at else (False, False)), {})

    horizon = 6
    for how in ((True, False), (False, True), (True, True)):
        for at in (1, 3, horizon, horizon + 1):
            bounds = [(h - horizon, -1) for h in range(horizon)]
            env = GymnasiumBatch(lambda how=how, at=at: Ends(*how, at), horizon, value_range=bounds)
            moments = everything(env, Policy.uniform(horizon), 4)
            left = [max(0, min(at, horizon) - h) for h in range(horizon)]
            assert [one.square for one in moments.returns.values()] == [4 * steps**2 for steps in left]
            alive = np.trace(moments.grams, axis1=1, axis2=2)
            assert alive.tolist() == [4.0 if h < at else 0.0 for h in range(horizon)]


# The same seed, the same bits


def test_what_ran_before_does_not_matter():
    env = GymnasiumBatch("FrozenLake-v1", 8, copies=30)
    sampler, policy = BatchSampler(env), Policy.uniform(8)
    assert list(sampler.chunks(70)) == [30, 30, 10]
    first = everything(env, policy, 70)
    sampler.collect(policy, 13, stream=Stream(9), levels=[2])  # leaves episodes unfinished
    assert same(first, everything(env, policy, 70))
    fresh = GymnasiumBatch("FrozenLake-v1", 8, copies=30)
    pieces = [
        BatchSampler(fresh).collect_chunk(
            policy, size, rng=Stream(0).at(0, chunk), levels=range(8), returns_from=range(8)
        )
        for chunk, size in reversed(list(enumerate(sampler.chunks(70))))
    ]
    assert same(first, pieces[2] + pieces[1] + pieces[0])


def test_an_environment_may_be_an_id_an_object_or_a_function():
    given = gymnasium.make("FrozenLake-v1", is_slippery=False)
    given.reset(seed=1)
    given.step(1)
    before = given.unwrapped.s
    kinds = [
        GymnasiumBatch("FrozenLake-v1", 8, make={"is_slippery": False}),
        GymnasiumBatch(given, 8),
        GymnasiumBatch(lambda: gymnasium.make("FrozenLake-v1", is_slippery=False), 8),
    ]
    outcomes = [everything(env, Policy.uniform(8), 50) for env in kinds]
    assert same(outcomes[0], outcomes[1]) and same(outcomes[0], outcomes[2])
    assert [env.name for env in kinds] == ["FrozenLake-v1"] * 3
    assert kinds[0].parameters == {"env": "FrozenLake-v1", "horizon": 8, "is_slippery": False}
    assert given.unwrapped.s == before, "an object is copied, not used"
    assert all(isinstance(env, BatchEnvironment) for env in kinds)


def test_a_vector_given_as_an_object_is_copied():
    given = vector(MODES[0], 10)()
    given.reset(seed=1)
    env, policy = GymnasiumBatch(given, 6), Policy.uniform(6)
    assert same(everything(env, policy, 35), everything(GymnasiumBatch(vector(MODES[0], 10), 6), policy, 35))
    states = [env.reset(10, np.random.default_rng(0)) for _ in range(2)]  # two blocks at a time
    assert states[0].members[0].env is not states[1].members[0].env
    for one in states:
        env.release(one)
    env.close()
    given.step(given.action_space.sample())  # still its owner's


def first_two(observations):
    return observations[:, :2] / 10


def last_two(observations):
    return observations[:, 2:] / 10


def fourier(speed):
    return dmq.features.Fourier([-2.4, -speed, -0.21, -3.5], [2.4, speed, 0.21, 3.5], order=1)


class Halved:
    """Features that are an object."""

    def __call__(self, observations):
        return observations[:, :2] / 20


def test_a_fingerprint_differs_in_what_differs(tmp_path):
    lakes = [GymnasiumBatch("FrozenLake-v1", 5, make={"is_slippery": slips}) for slips in (False, True)]
    objects = [GymnasiumBatch(gymnasium.make("FrozenLake-v1", is_slippery=slips), 5) for slips in (False, True)]
    walk, carts = GymnasiumBatch(Walk, 5), [first_two, last_two, Halved(), fourier(3.0), fourier(3.5)]
    one, two, three, four, five = (GymnasiumBatch("CartPole-v1", 5, features) for features in carts)
    for key, mine, other in (
        ("parameters", *lakes),
        ("parameters", *objects),
        ("observations", walk, GymnasiumBatch(lambda: Walk(first=2), 5)),
        ("actions", walk, GymnasiumBatch(lambda: Walk(first_action=2), 5)),
        ("rewards", walk, GymnasiumBatch(Walk, 5, value_range=(0, 1))),
        ("rewards", walk, GymnasiumBatch(Walk, 5, noise=0.5)),
        ("features", one, two),
        ("features", two, three),
        ("features", four, five),
    ):
        a, b = mine.fingerprint(), other.fingerprint()
        assert {name for name in a if a[name] != b[name]} == {key}
        assert pickle.loads(pickle.dumps(mine)).fingerprint() == a
    assert BatchSampler(walk).fingerprint() != BatchSampler(GymnasiumBatch(Walk, 5, copies=20)).fingerprint()
    settings = {"n_samples": 10, "rng": 0, "journal": tmp_path / "journal"}
    flat(lakes[0], max_trajectories=50, **settings).learn()
    with pytest.raises(dmq.JournalError, match="is_slippery is False there and True here"):
        flat(lakes[1], **settings).learn()


def test_threads_give_the_same_bits():
    env = GymnasiumBatch(Walk, 6, copies=20)
    serial = [everything(env, Policy.uniform(6), 20, seed) for seed in range(6)]
    with ThreadPoolExecutor(6) as pool:
        answers = pool.map(lambda seed: everything(env, Policy.uniform(6), 20, seed), range(6))
        assert all(same(one, other) for one, other in zip(serial, answers, strict=True))


def test_processes_give_the_same_bits():
    sampler = BatchSampler(GymnasiumBatch("FrozenLake-v1", 6, copies=20))
    assert sampler.holds_gil
    made = pool_of(sampler, 1)
    policy, every = Policy.uniform(6), range(6)
    serial = sampler.collect(policy, 110, stream=Stream(3), levels=every, returns_from=every)
    with ParallelSampler(sampler, made) as parallel:
        assert isinstance(parallel.executor, Workers)
        assert same(serial, parallel.collect(policy, 110, stream=Stream(3), levels=every, returns_from=every))


def test_gymnasium_is_imported_on_use_only():
    code = "import sys, dmq_fast.environments, dmq_fast.samplers; assert 'gymnasium' not in sys.modules"
    subprocess.run([sys.executable, "-P", "-c", code], check=True)


# Agreement with tables, and learning


def test_frozen_lake_without_slipping_is_solved_through_step():
    horizon = 6
    env = GymnasiumBatch("FrozenLake-v1", horizon, make={"is_slippery": False})
    result = dmq.DMQ(env, n_samples=5, variant="frugal", rng=0).learn()
    table = from_gymnasium(gymnasium.make("FrozenLake-v1", is_slippery=False), horizon, features=np.eye(16))
    assert result.status == "ended"
    assert table.value(result.policy) == pytest.approx(1.0)
    assert BatchSampler(env).evaluate(result.policy, 20, stream=Stream(1)).value == 1.0


# By id


@pytest.mark.parametrize(
    ("name", "dimension", "first", "last"),
    [
        ("CartPole-v1", 81, (0, 12), (0, 1)),
        ("MountainCar-v0", 16, (-12, 0), (-1, 0)),
        ("Acrobot-v1", 64, (-12, 0), (-1, 0)),
        ("FrozenLake-v1", 16, (0, 1), (0, 1)),
        ("CliffWalking-v1", 48, (-1200, -12), (-100, -1)),
    ],
)
def test_environments_by_id_have_features_and_ranges(name, dimension, first, last):
    env = make(f"gym:{name}", horizon=12, through="step")
    assert isinstance(env, GymnasiumBatch)
    assert (env.name, env.horizon, env.dimension, env.noise) == (name, 12, dimension, None)
    assert (*env.value_range[0], *env.value_range[-1]) == (*first, *last)
    again = make(f"gym:{env.parameters['env']}", **{k: v for k, v in env.parameters.items() if k != "env"})
    assert again.parameters == env.parameters
    assert same(everything(env, Policy.uniform(12), 5), everything(again, Policy.uniform(12), 5))


def test_tables_are_taken_where_there_are_any():
    slippery = make("gym:FrozenLake-v1", horizon=8, through="tables", is_slippery=True)
    assert isinstance(slippery, FiniteMDP) and isinstance(make("gym:FrozenLake-v1", horizon=8), FiniteMDP)
    cliff = make("gym:CliffWalking-v1", horizon=8)
    stepped = make("gym:CliffWalking-v1", horizon=8, through="step")
    assert stepped.value_range.tolist() == cliff.value_range.tolist() and stepped.value_range[0, 0] == -800
    wide = make("gym:CliffWalking-v1", horizon=8, value_range=(-900, 0))
    told = make("gym:CliffWalking-v1", horizon=8, through="step", value_range=(-900, 0), noise=2.0)
    assert wide.value_range.tolist() == told.value_range.tolist() == [[-900, 0]] * 8 and told.noise == 2
    assert told.parameters["value_range"] == [-900, 0] and told.parameters["noise"] == 2


class Free(gymnasium.Env):
    """Two numbers, the second without bounds."""

    action_space = gymnasium.spaces.Discrete(2)
    observation_space = gymnasium.spaces.Box(np.float32([0, -np.inf]), np.float32([1, 0]))


class Unlimited(Free):
    limit = np.finfo(np.float32).max
    observation_space = gymnasium.spaces.Box(np.float32([0, -limit]), np.float32([1, limit]))


class Picture(Free):
    observation_space = gymnasium.spaces.Box(0, 255, (64, 64, 3), np.uint8)


class Long(Free):
    observation_space = gymnasium.spaces.Box(-1, 1, (500,))


def test_boxes_that_no_map_fits_are_refused(monkeypatch):
    monkeypatch.setattr(gymnasium.envs.registration, "registry", dict(gymnasium.registry))
    boxes = [
        (Free, "features: expected observations with bounds, got none for 1 of Test0-v0"),
        (Unlimited, "features: expected observations with bounds, got none for 1 of Test1-v0"),
        (Picture, r"features: .* of 64x64x3 integers are images; features.Seen\(size\) where they are few"),
        (Long, "got more by order 1 with 500 numbers; 500 numbers need features of your own, as in Gymn"),
    ]
    for i, (env, _) in enumerate(boxes):
        gymnasium.register(f"Test{i}-v0", env)
    errors = ValueError, TypeError
    refused((lambda i=i: make(f"gym:Test{i}-v0", horizon=5), errors, words) for i, (_, words) in enumerate(boxes))


# What is refused


def with_spaces(observation, action, **methods):
    env = Walk()
    env.observation_space, env.action_space = observation, action
    for name, method in methods.items():
        setattr(env, name, method)
    return lambda: env


SPACES = gymnasium.spaces
BOX, TWO = SPACES.Box(-1, 1, (3,)), SPACES.Discrete(2)


def uncopied():
    env = Walk()
    env.lock = threading.Lock()
    return env


def narrow():
    env = vector(MODES[0], 3)()
    env.num_envs = 0
    return env


def of_an_unknown_mode():
    env = vector(MODES[0], 3)()
    env.metadata["autoreset_mode"] = "Sometimes"
    return env


REFUSALS = [
    # Spaces.
    (
        (with_spaces(BOX, SPACES.Box(-1, 1, (2,))), 5),
        TypeError,
        "env: .* Discrete action space, got Box.*continuous",
    ),
    (
        (with_spaces(TWO, SPACES.MultiDiscrete([17, 17])), 5),
        TypeError,
        r"env: .* at most 256 combinations of actions, got 289 in MultiDiscrete.*; a wrapper can offer fewer",
    ),
    ((with_spaces(SPACES.Dict(a=BOX), TWO), 5), TypeError, "features: .* as observations in Dict.* have real numbers"),
    ((with_spaces(TWO, SPACES.Text(5)), 5), TypeError, "env: expected a Discrete action space, got Text"),
    (("MountainCarContinuous-v0", 5, tiles), TypeError, "env: expected a Discrete action space, got Box"),
    ((lambda: gymnasium.make_vec("Pendulum-v1", num_envs=2), 5, tiles), TypeError, "env: .* Discrete .*, got Box"),
    # Other arguments.
    (("CartPole-v1", 0, tiles), ValueError, "horizon: expected an integer >= 1"),
    (("CartPole-v1", 2.0, tiles), TypeError, "horizon: expected an integer"),
    (
        (lambda: gymnasium.make_vec("CartPole-v1", num_envs=2), 5),
        TypeError,
        "features: expected those of your own for a vector of environments",
    ),
    (("CartPole-v1", 5, np.eye(3)), TypeError, "features: expected a callable"),
    (("CartPole-v1", 5, lambda x: x[0]), ValueError, r"features: expected shape \(1, d\) .* got \(4,\)"),
    (("NoSuch-v0", 5), ValueError, r"env: gymnasium.make\('NoSuch-v0'\) failed"),
    ((3, 5), TypeError, "env: expected an id, .* got int"),
    ((lambda: 3, 5), TypeError, "env: expected a function that makes .* got 3 from it"),
    ((uncopied(), 5), TypeError, "env: this Walk cannot be copied .* give an id or a function"),
    ((narrow, 5), ValueError, r"env\.num_envs: expected an integer >= 1, got 0"),
    ((of_an_unknown_mode, 5), ValueError, "env: expected an autoreset mode .* got 'Sometimes'"),
]

SETTINGS = [
    ({"value_range": (1, 0)}, ValueError, r"value_range: .* with low < high, got \(1, 0\)"),
    ({"value_range": 5}, ValueError, r"value_range: expected \(low, high\), one such pair for each of 5 levels"),
    ({"noise": 0.0}, ValueError, "noise: expected a number > 0, or none"),
    ({"noise": "1"}, TypeError, "noise: expected a number"),
    ({"copies": 0}, ValueError, "copies: expected an integer >= 1"),
    ({"make": {"first": 1}}, ValueError, "make: expected an id in env"),
]


def test_bad_arguments_are_refused_by_name(monkeypatch):
    refused((lambda given=given: GymnasiumBatch(*given), error, words) for given, error, words in REFUSALS)
    refused((lambda given=given: GymnasiumBatch(Walk, 5, **given), error, words) for given, error, words in SETTINGS)
    env = GymnasiumBatch(Walk, 5, copies=4)
    blocks = [
        (lambda n=n: env.reset(n, np.random.default_rng(0)), ValueError, "n: expected 1 <= n <= 4") for n in (0, 5)
    ]
    refused(blocks)
    monkeypatch.setitem(sys.modules, "gymnasium", None)
    refused([(lambda: GymnasiumBatch("CartPole-v1", 5, tiles), ImportError, r'pip install "dmq-fast\[gym\]"')])


def refuses(make, words, error=ValueError):
    with pytest.raises(error, match=words) as caught:
        everything(GymnasiumBatch(make, 5), Policy.uniform(5), 6)
    return getattr(caught.value, "__notes__", [])


def answering(**answers):
    """A Walk without ends, one of whose methods answers something else at its second call in an episode."""

    class Env(Walk):
        def __init__(self):
            super().__init__(ends=False)
            self.count = 0

        def step(self, action):
            self.count += 1
            right = super().step(action)
            return answers["step"](right) if self.count == 2 and "step" in answers else right

    return Env


def test_exceptions_inside_step_surface_with_their_place():
    def fail(right):
        raise ZeroDivisionError("inside")

    episode, place = refuses(answering(step=fail), "inside", ZeroDivisionError)
    seed = int(Stream(0).generator().integers(2**31, size=6)[0])
    assert episode == f"in episode 0 of the block, which began with reset(seed={seed})"
    assert place == "raised in step of the environment: level 1, call 0, chunk 0"
    notes = refuses(vector(MODES[1], 6, answering(step=fail)), "inside", ZeroDivisionError)
    assert "in a block that began with reset(seed=" in notes[0] and "level 1" in notes[1]


def test_what_a_failed_block_used_is_not_used_again():
    class Env(Walk):
        closed = 0

        def step(self, action):
            if Env.fails:
                raise RuntimeError("inside")
            return super().step(action)

        def close(self):
            Env.closed += 1

    Env.fails = False
    env = GymnasiumBatch(Env, 5)
    before = everything(env, Policy.uniform(5), 6)
    Env.fails = True
    with pytest.raises(RuntimeError, match="inside"):
        everything(env, Policy.uniform(5), 6)
    assert Env.closed == 6
    Env.fails = False
    assert same(before, everything(env, Policy.uniform(5), 6))
    env.close()
    assert Env.closed == 12


ANSWERS = [
    (lambda right: right[:4], TypeError, "step: expected .* got a tuple of 4"),
    (lambda right: (7, *right[1:]), ValueError, r"observation: expected one in \[0, 7\), got .* 7"),
    (lambda right: ([1, 2], *right[1:]), ValueError, r"observation: expected shape \(\), got \(2,\)"),
    (lambda right: (right[0], float("nan"), *right[2:]), ValueError, "level 1, .* rewards: .* got nan"),
    (lambda right: (right[0], float("inf"), *right[2:]), ValueError, "level 1, .* rewards: .* got inf"),
    (lambda right: (right[0], "0.5", *right[2:]), TypeError, "reward: expected real numbers, got dtype <U3"),
    (lambda right: (right[0], None, *right[2:]), TypeError, "reward: expected real numbers, got dtype object"),
    (lambda right: (right[0], [0.1], *right[2:]), ValueError, r"reward: expected shape \(\), got \(1,\)"),
    (lambda right: (*right[:2], "False", *right[3:]), TypeError, "terminated: expected real numbers"),
    (lambda right: (*right[:3], None, right[4]), TypeError, "truncated: expected real numbers"),
    (
        lambda right: (*right[:2], float("nan"), *right[3:]),
        ValueError,
        "terminated: expected True or False .*nan",
    ),
    (
        lambda right: (*right[:2], 0.5, *right[3:]),
        ValueError,
        r"terminated: expected True or False \(1 or 0\), got .*0\.5",
    ),
    (lambda right: (*right[:3], -1, right[4]), ValueError, "truncated: expected True or False .* got .*-1"),
    (lambda right: (*right[:3], [True], right[4]), ValueError, r"truncated: expected shape \(\), got \(1,\)"),
    (lambda right: (right[0] + 0.7, *right[1:]), ValueError, r"observation: expected numbers .* int64 .* \d\.7"),
    (lambda right: (float("nan"), *right[1:]), ValueError, "observation: expected numbers .* int64 holds, got nan"),
    (lambda right: (right[0] + 1j, *right[1:]), TypeError, "observation: expected real numbers, got dtype complex"),
]

# Of a vector: the position in the answer, and what stands there instead.
ROWS = [
    (0, lambda seen: seen[:-1], ValueError, r"observations: expected shape \(3,\), got \(2,\)"),
    (0, lambda seen: seen + 0.7, ValueError, r"observations: expected numbers that int64 holds, got \d\.7"),
    (0, lambda seen: seen.astype(object), TypeError, "observations: expected real numbers, got dtype object"),
    (1, lambda rewards: rewards + 5j, TypeError, "rewards: expected real numbers, got dtype complex128"),
    (1, lambda rewards: rewards[:, None], ValueError, r"rewards: expected shape \(3,\), got \(3, 1\)"),
    (2, lambda over: [None] * 3, TypeError, "terminations: expected real numbers, got dtype object"),
    (3, lambda over: ["False"] * 3, TypeError, "truncations: expected real numbers, got dtype <U5"),
    (2, lambda over: [0, 1, 0.5], ValueError, r"terminations: expected True or False \(1 or 0\), got .*0\.5"),
    (3, lambda over: [0, np.nan, 1], ValueError, "truncations: expected True or False .*nan"),
]


def test_what_step_returns_is_checked():
    for change, error, words in ANSWERS:
        refuses(answering(step=change), words, error)


def test_what_a_vector_returns_is_checked():
    def make(position, change):
        env = vector(MODES[0], 3)()
        right = env.step

        def step(actions):
            answer = list(right(actions))
            answer[position] = change(answer[position])
            return tuple(answer)

        env.step = step
        return env

    for position, change, error, words in ROWS:
        notes = refuses(functools.partial(make, position, change), words, error)
        assert "step of the environment: level 0" in notes[-1]


def test_observations_come_in_the_dtype_of_their_space():
    """What holds exactly is kept; floats are rounded to the space's own."""
    space = SPACES.Box(0, 255, (2,), np.uint8)
    dtypes = set()

    def features(observations):
        dtypes.add(observations.dtype)
        return observations / 1000.0

    def reset(seen):
        source = with_spaces(space, TWO, reset=lambda seed: (seen, {}))
        return GymnasiumBatch(source, 1, features, copies=1).reset(1, np.random.default_rng(0)).observations

    for seen in ([3, 255], np.array([3.0, 255.0]), np.array([3, 255], dtype=np.int64)):
        assert (reset(seen) == [[3, 255]]).all()
    assert dtypes == {np.dtype(np.uint8)}
    for seen, wrong in (([3, 256], "256"), ([-1, 3], "-1"), ([0.5, 3], "0.5")):
        with pytest.raises(ValueError, match=f"observation: expected numbers that uint8 holds, got {wrong}"):
            reset(np.array(seen))


def test_reset_of_old_makes_is_refused():
    class Old(Walk):
        def reset(self, *, seed=None, options=None):
            return super().reset(seed=seed)[0]

    assert "level 0" in refuses(Old, r"reset: expected \(observation, info\), got int", TypeError)[-1]


def test_features_of_another_dimension_are_refused():
    calls = iter(range(100))

    def features(observations):
        return np.zeros((len(observations), 3 if next(calls) < 2 else 4))

    with pytest.raises(ValueError, match="level 1, call 0, chunk 0: features: expected shape"):
        everything(GymnasiumBatch(answering(), 5, features), Policy.uniform(5), 6)


def test_functions_that_return_the_same_object_again_are_refused():
    env = Walk()
    with pytest.raises(ValueError, match=r"env: expected a new environment from every call .* the same one twice"):
        everything(GymnasiumBatch(lambda: env, 5), Policy.uniform(5), 6)
