"""One door for any environment: dm_env's, plain objects, spaces of every kind, observations by appearance, seeds."""

import copy
import itertools
import json
import logging
import pickle
import sys
import textwrap
from types import SimpleNamespace

import gymnasium
import numpy as np
import pytest
from refusals import refused

import dmq_fast as dmq
from dmq_fast import cli, experiments, spaces
from dmq_fast.engine.journal import JournalError
from dmq_fast.environments import as_environment, check, from_dm_env, from_object
from dmq_fast.features import Seen
from dmq_fast.samplers import as_sampler

SPACES = gymnasium.spaces


class Corridor:
    """Ten places; the right action at each, which a table has, leads on, and a fall at random back to the start."""

    n_actions, horizon, value_range = 3, 5, (0, 1)
    right = (2, 0, 1, 1, 2)

    def reset(self, seed=None):
        self.rng = np.random.default_rng(seed)
        self.place = 0
        return {"at": (self.place, "start"), "light": np.zeros(2)}

    def step(self, action):
        good = action == self.right[self.place % 5]
        self.place = (self.place + 1) % 5 if good and self.rng.random() < 0.9 else 0
        return (
            {"at": (self.place, "on"), "light": np.full(2, good, np.float32)},
            float(self.place == 4),
            self.place == 4,
        )


class Unseeded(Corridor):
    """The same, without a seed."""

    def __init__(self):
        self.own = np.random.default_rng(5)

    def reset(self):
        return super().reset(self.own)


def time_step(observation, reward=None, last=False):
    return SimpleNamespace(observation=observation, reward=reward, last=lambda: last)


class Signs:
    """As dm_env has it: the first observation is the action that pays at the end."""

    def __init__(self, length=3, spec=None):
        self.length, self.rng = length, np.random.default_rng(3)
        self.spec = spec or SimpleNamespace(num_values=2, minimum=0, shape=(), dtype=np.dtype(int))
        self.steps = 0

    def action_spec(self):
        return self.spec

    def observation_spec(self):
        return SimpleNamespace(shape=(1, 2), dtype=np.dtype(np.float32))

    def reset(self):
        self.t, self.sign = 0, int(self.rng.integers(2))
        return time_step(np.array([[self.sign, 1]], np.float32))

    def step(self, action):
        self.t, self.steps = self.t + 1, self.steps + 1
        last = self.t == self.length
        return time_step(np.zeros((1, 2), np.float32), float(last and action == self.sign), last)


# ---- Spaces


FINITE = [
    SPACES.Discrete(5, start=-2),
    SPACES.MultiDiscrete([3, 1, 2], start=[1, 0, -4]),
    SPACES.MultiDiscrete(np.array([[2, 3], [1, 2]])),
    SPACES.MultiBinary(3),
    SPACES.MultiBinary((2, 2)),
    SPACES.Tuple([SPACES.Discrete(3), SPACES.Tuple([SPACES.MultiBinary(2)]), SPACES.Discrete(2, start=7)]),
    SPACES.Dict(b=SPACES.Discrete(2), a=SPACES.Dict(c=SPACES.MultiDiscrete([2, 2]))),
]


@pytest.mark.parametrize("space", FINITE, ids=str)
def test_elements_of_finite_spaces_have_numbers(space):
    known = spaces.finite(space)
    again = spaces.described_space(json.loads(json.dumps(known.describe())))
    seen = []
    for number in range(known.n):
        element = known.element(number)
        assert known.number(element) == again.number(element) == number
        assert repr(again.element(number)) == repr(element)
        seen.append(repr(element))
    assert len(set(seen)) == known.n
    space.seed(0)
    for _ in range(50):
        drawn = space.sample()
        assert repr(known.element(known.number(drawn))) in seen and known.is_one(drawn)


def test_what_is_no_element_is_refused():
    product = spaces.finite(FINITE[5])
    refused(
        [
            (lambda: spaces.finite(FINITE[0]).number(3), ValueError, r"expected an integer in \[-2, 3\), got 3"),
            (lambda: spaces.finite(FINITE[0]).number(0.5), ValueError, "expected an integer, got 0.5"),
            (lambda: spaces.finite(FINITE[3]).number([0, 1]), ValueError, r"array \(3,\) of integers in their ranges"),
            (lambda: spaces.finite(FINITE[3]).number([0, 1, 2]), ValueError, r"array \(3,\)"),
            (lambda: product.number((1, 2)), ValueError, r"expected a tuple of 3, got \(1, 2\)"),
            (lambda: spaces.finite(FINITE[6]).number({"b": 1}), ValueError, "expected a dict with the keys b, a"),
        ]
    )
    for space in (SPACES.Box(0, 1), SPACES.Text(3), SPACES.Tuple([SPACES.Box(0, 1)]), SPACES.Sequence(FINITE[0])):
        assert spaces.finite(space) is None


class Combined(gymnasium.Env):
    """Tuples of actions, dicts of observations: the right pair of actions is the pair that is seen."""

    action_space = SPACES.Tuple([SPACES.Discrete(2, start=1), SPACES.MultiBinary(2)])
    observation_space = SPACES.Dict(first=SPACES.Discrete(2, start=1), pair=SPACES.MultiBinary(2))
    value_range = 0, 1

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return self.drawn(), {}

    def drawn(self):
        self.now = {
            "first": int(self.np_random.integers(1, 3)),
            "pair": self.np_random.integers(2, size=2, dtype=np.int8),
        }
        return self.now

    def step(self, action):
        first, pair = action
        assert self.action_space.contains((first, np.asarray(pair, np.int8)))
        earned = 0.5 * float(first == self.now["first"] and (pair == self.now["pair"]).all())
        return self.drawn(), earned, False, False, {}


@pytest.mark.parametrize("source", [Combined, lambda: gymnasium.vector.SyncVectorEnv([Combined] * 3)])
def test_tuples_and_dicts_become_numbers(source, tmp_path):
    env = as_environment(source, horizon=2)
    assert (env.n_actions, env.dimension, env.ordered) == (8, 8, False)
    result = dmq.learn(env, rng=0)
    assert result.status == "finished"
    result.save(tmp_path / "run.npz")
    for policy in (result.policy, pickle.loads(pickle.dumps(result.policy)), dmq.load(tmp_path / "run.npz").policy):
        for first, pair in itertools.product((1, 2), itertools.product((0, 1), repeat=2)):
            action = policy.act_on(1, {"first": first, "pair": np.array(pair)})
            assert action[0] == first and action[1].tolist() == list(pair)
        both = policy.act_on(0, [{"first": 1, "pair": [0, 1]}, {"first": 2, "pair": [1, 1]}])
        assert [(a, b.tolist()) for a, b in both] == [(1, [0, 1]), (2, [1, 1])]


def test_blackjack_is_numbered():
    env = as_environment("Blackjack-v1", horizon=10)
    assert env.dimension == 704 and not env.ordered
    drawn = as_sampler(env).trajectories(dmq.Policy.uniform(10), 40, stream=dmq.Stream(0))
    assert set(drawn.returns_to_go(0)) <= {-1.0, 0.0, 1.0}


def test_spaces_that_are_too_large_or_not_finite_are_seen():
    class Mixed(Corridor):
        observation_space = SPACES.Dict(at=SPACES.Text(5), board=SPACES.MultiDiscrete([9] * 9))

    class Board(Corridor):
        observation_space = SPACES.Box(0, 9, (4, 4), np.int8)

    assert all(isinstance(from_object(one()).memory, Seen) for one in (Mixed, Board))

    class Real(Corridor):
        observation_space = SPACES.Dict(x=SPACES.Box(0, 1), n=SPACES.Discrete(2))

    class Line(Corridor):
        observation_space = SPACES.Box(0, 1, (2,))

    class Screen(Corridor):
        observation_space = SPACES.Box(0, 255, (84, 84), np.uint8)

    refused(
        [
            (lambda: from_object(Real()), TypeError, "^features: .* as observations in Dict.* have real numbers"),
            (lambda: from_object(Line()), TypeError, "^observation: expected real numbers, got dtype object"),
            (
                lambda: from_object(Screen()),
                TypeError,
                r"^features: .* 84x84 integers are images; features.Seen\(size\)",
            ),
        ]
    )
    assert from_object(Screen(), features=Seen(7)).dimension == 7


# ---- Observations by appearance


def test_equal_observations_are_the_same():
    phi = Seen(20)
    equal = [
        [3, 3.0, np.int8(3), np.float32(3), np.array(3)],
        [[0, 1], (0, 1), np.array([-0.0, 1.0]), np.array([False, True])],
        ["3", np.str_("3")],
        [{"a": 1, "b": [2, 3]}, {"b": np.array([2, 3]), "a": True}],
        [(1, (2, 3)), [1, [2, 3]]],
        [(1, 2, 3)],
        [None],
        [b"3"],
        [2**62, np.int64(2**62)],
        [2**62 + 1],
        [np.uint64(2**63 + 1)],
    ]
    numbers = [phi(group).argmax(axis=1).tolist() for group in equal]
    assert numbers == [[i] * len(group) for i, group in enumerate(equal)]
    assert len(phi.keys) == len(equal) and not phi.known(["never"]).any()
    twin = pickle.loads(pickle.dumps(phi))
    assert twin.keys == phi.keys and twin.dimension == 20 and repr(twin) == "Seen(20)"


def test_what_cannot_be_seen_is_refused():
    full = Seen(1)
    full(["a"])
    refused(
        [
            (lambda: Seen(0), ValueError, "^size: expected an integer >= 1"),
            (lambda: full(["a", "b"]), ValueError, r"^features: expected at most 1 different .* give Seen\(2\)"),
            (
                lambda: Seen()([object()]),
                TypeError,
                "^observation: expected numbers, texts, .* got object; give features",
            ),
            (lambda: full.restore(0, [1]), ValueError, "^keys: expected at most 1 different ones"),
        ]
    )
    assert full(["a"]).tolist() == [[1.0]]


def test_a_learned_policy_acts_on_what_it_saw(tmp_path):
    result = dmq.learn(Corridor(), epsilon=0.1, rng=0)
    assert result.status == "finished"
    result.save(tmp_path / "run.npz")
    for policy in (result.policy, dmq.load(tmp_path / "run.npz").policy):
        env, total = Corridor(), 0.0
        for seed in range(100):
            seen, ended, level = env.reset(seed), False, 0
            while level < 5 and not ended:
                seen, reward, ended = env.step(policy.act_on(level, seen))
                total, level = total + reward, level + 1
        assert total > 50  # four steps without a fall, .66 in the mean
        assert policy.act_on(0, {"at": "never"}) == 0  # the first action, in what was never seen
        assert policy.act_on(0, [{"at": "never"}] * 2).tolist() == [0, 0]


def run(env, learner=dmq.SelfStopping, **how):
    options = {"epsilon": 0.2} if learner is dmq.SelfStopping else {"n_samples": 20, "variant": "frugal"}
    return learner(env, rng=0, **options).learn(**how)


@pytest.mark.parametrize("learner", [dmq.SelfStopping, dmq.DMQ])
def test_workers_and_a_resume_give_the_same_bits(learner, tmp_path, caplog):
    whole = run(from_object(Corridor), learner)
    with caplog.at_level(logging.WARNING):
        spread = run(from_object(Corridor), learner, workers=2)
    assert "workers: not used" in caplog.text
    undisturbed = run(from_object(Corridor), learner, journal=tmp_path / "whole")
    contents = (tmp_path / "whole").read_bytes()
    for share in (0.2, 0.5, 0.9):
        path = tmp_path / f"cut{share}"
        path.write_bytes(contents[: int(share * len(contents))])
        env = from_object(Corridor)
        resumed = run(env, learner, journal=path)
        assert path.read_bytes()[-8:] and resumed.theta.tobytes() == whole.theta.tobytes()
        assert resumed.n_trajectories == whole.n_trajectories
        keys = env.memory.keys
        assert run(env, learner).theta.tobytes() == whole.theta.tobytes()  # and again in what has numbers already
        assert env.memory.keys[: len(keys)] == keys
    assert spread.theta.tobytes() == undisturbed.theta.tobytes() == whole.theta.tobytes()


def test_a_journal_of_other_numbers_is_refused(tmp_path):
    run(from_object(Corridor), journal=tmp_path / "run")
    env = from_object(Corridor)
    env.memory(["something else"])
    with pytest.raises(JournalError, match="numbers of observations"):
        run(env, journal=tmp_path / "run")


# ---- dm_env


def test_environments_of_dm_env_are_learned():
    env = Signs()
    batch = from_dm_env(env, horizon=3, history="first", value_range=(0, 1))
    assert (batch.n_actions, batch.chunk_size, batch.repeatable, batch.name) == (2, 1, False, "Signs")
    result = dmq.learn(batch, rng=0)
    assert result.status == "finished" and env.steps == 3 * result.n_trajectories
    zero = np.zeros((1, 2))
    assert [result.policy.act_on(2, (np.array([[sign, 1]]), zero)) for sign in (0, 1)] == [0, 1]
    assert dmq.learn(Signs, horizon=3, value_range=(0, 1), rng=0).status == "finished"
    assert dmq.DMQ(from_dm_env(Signs(), 3), n_samples=5, rng=0).learn().status == "ended"


def test_specs_of_dm_env():
    integer = SimpleNamespace(minimum=-1, maximum=1, shape=(), dtype=np.dtype(np.int32))
    assert from_dm_env(Signs(spec=integer), 3).n_actions == 3
    real = SimpleNamespace(minimum=-1.0, maximum=1.0, shape=(), dtype=np.dtype(float))
    discrete = Signs(1)
    discrete.observation_spec = lambda: SimpleNamespace(num_values=4, minimum=0)
    discrete.reward_spec = lambda: SimpleNamespace(minimum=0.0, maximum=2.0)
    env = from_dm_env(discrete, 1)
    assert env.dimension == 4 and env.value_range.tolist() == [[0.0, 2.0]]
    refused(
        [
            (lambda: from_dm_env(Signs()), ValueError, "^horizon: expected the number of levels, such as horizon=50"),
            (lambda: from_dm_env(Signs(spec=real), 3), TypeError, "^env: expected actions that are one integer of few"),
            (lambda: from_dm_env(3, 3), TypeError, "^env: expected a dm_env environment or a function"),
            (lambda: from_dm_env(lambda: 3, 3), TypeError, "^env: expected a function that makes a dm_env"),
            (lambda: from_dm_env(Signs(), 3, history="last"), ValueError, "^history: expected 'first' or None"),
            (lambda: from_dm_env(Signs(), 3, features=3), TypeError, "^features: expected a callable, got 3"),
        ]
    )


@pytest.mark.parametrize("source", [Signs, Unseeded])
def test_what_takes_no_seed_is_recorded_and_not_repeated(source, tmp_path):
    first = dmq.learn(source(), horizon=5, epsilon=0.2, rng=0, journal=tmp_path / "run", max_trajectories=60)
    assert first.status == "max_trajectories" and not any("takes no seed" in text for text in first.warnings)
    resumed = dmq.learn(source(), horizon=5, epsilon=0.2, rng=0, journal=tmp_path / "run")
    assert any("resumed in an environment that takes no seed" in text for text in resumed.warnings)
    assert resumed.n_trajectories > first.n_trajectories
    with pytest.raises(ValueError, match=r"^journal: expected none, as the environment takes no seed"):
        dmq.DMQ(as_environment(source(), 5), rng=0).learn(journal=tmp_path / "other")
    assert not (tmp_path / "other").exists()
    report = check(as_environment(source(), 5))
    assert any("takes no seed" in note for note in report.notes)
    assert not any("the same episodes" in held for held in report.held)


# ---- Plain objects


class Plain:
    """Two steps; action 1 pays."""

    n_actions = 2

    def __init__(self, form=3):
        self.form = form

    def reset(self):
        self.taken = []
        return len(self.taken)

    def step(self, action):
        self.taken.append(action)
        ends = len(self.taken) == 2
        flags = {3: (ends,), 4: (ends, {}), 5: (ends, False, {})}[self.form]
        return len(self.taken), 0.5 * action, *flags


@pytest.mark.parametrize("form", [3, 4, 5])
def test_old_and_new_steps(form):
    result = dmq.learn(Plain(form), horizon=4, rng=0)
    assert result.status == "finished" and [result.policy.act_on(level, level) for level in (0, 1)] == [1, 1]


def test_objects_are_seeded_in_three_ways():
    class ByGenerator(Corridor):
        def reset(self, rng):
            return super().reset(rng)

    class ByMethod(Corridor):
        def seed(self, seed):
            self.number = seed

        def reset(self, **kwargs):
            assert not kwargs
            return super().reset(self.number), {}

    class ByInfo(Corridor):
        def reset(self, *, seed=None, options=None):
            return super().reset(seed), {"info": 1}

    reference = None
    for kind in (Corridor, ByGenerator, ByMethod, ByInfo):
        env = as_environment(kind())
        assert env.repeatable and env.chunk_size == 256
        drawn = as_sampler(env).trajectories(dmq.Policy.uniform(5), 30, stream=dmq.Stream(0))
        reference = drawn if reference is None else reference
        assert np.array_equal(drawn.features, reference.features) and np.array_equal(drawn.rewards, reference.rewards)
    assert not as_environment(Unseeded()).repeatable


def test_an_object_declares_what_it_knows():
    class Declared(Plain):
        max_episode_steps, value_range, noise, homogeneous, name = 2, (-1, 1), 0.5, True, "declared"

    env = as_environment(Declared())
    assert (env.horizon, env.noise, env.homogeneous, env.name) == (2, 0.5, True, "declared")
    assert env.value_range.tolist() == [[-1, 1]] * 2
    assert as_environment(Declared(), 3).horizon == 3

    class Numbers(Plain):
        def reset(self):
            return [super().reset()]

        def step(self, action):
            seen, *rest = super().step(action)
            return [seen], *rest

    given = []

    def features(observations):
        given.append(observations)
        return np.eye(3)[observations[:, 0]]

    env = as_environment(Numbers(), 2, features=features)
    assert env.dimension == 3 and given[0].dtype == np.int64
    assert env.features_of(0, [2]).tolist() == [0, 0, 1]
    policy = dmq.learn(Numbers(), horizon=2, rng=0).policy
    assert policy.act_on(1, [1]) == 1  # a list is one observation where observations are lists


def test_objects_that_lack_something_are_told_what_to_write():
    class Nothing:
        def reset(self):
            return 0

        def step(self, action):
            return 0, 1.0, True

    class Endless(Plain):
        horizon = 0

    class Torn(Plain):
        def step(self, action):
            return 0, 1.0

    class Held(Corridor):
        def __init__(self):
            self.stream = (i for i in ())

    refused(
        [
            (
                lambda: from_object(Nothing(), 3),
                TypeError,
                "^env: .* n_actions, .* or an action_space in Nothing, got",
            ),
            (lambda: from_object(Plain()), ValueError, "^horizon: expected the number of levels, such as horizon=50"),
            (lambda: from_object(lambda: 3, 3), TypeError, "^env: .* that makes an object with reset and step, got 3"),
            (lambda: from_object(3, 3), TypeError, "^env: expected an object with reset and step, or a function"),
            (lambda: from_object(Endless()), ValueError, r"^env\.horizon: expected an integer >= 1, got 0"),
        ]
    )
    with pytest.raises(TypeError, match=r"^step: expected \(observation, reward, done\), .* got a tuple of 2"):
        dmq.learn(Torn(), horizon=2, rng=0)
    with pytest.raises(TypeError, match=r"^env: this Held cannot be copied"):
        as_sampler(from_object(Held(), 3)).trajectories(dmq.Policy.uniform(3), 2, stream=dmq.Stream(0))


def test_every_door_takes_an_environment():
    class Known(Plain):
        horizon = 2

    assert dmq.SelfStopping(Known()).learn().status == "finished"
    assert dmq.DMQ(Known, n_samples=20, rng=0).learn().status == "ended"
    assert as_sampler("FrozenLake-v1").horizon == 100
    assert check(Known()).held and check(Known).held
    assert as_environment("gym:FrozenLake-v1", 8, features="seen").ordered


def test_wrappers_and_histories():
    def doubled(env):
        return gymnasium.wrappers.TransformReward(env, lambda reward: 2 * reward)

    lake = as_environment("FrozenLake-v1", 8, wrapper=doubled)
    assert not isinstance(lake, dmq.environments.FiniteMDP) and lake.dimension == 16
    joined = as_environment("FrozenLake-v1", 8, history="first")
    assert joined.dimension == 256
    assert joined.features_of(0, (3, 5)).argmax() == 3 * 16 + 5
    pole = as_environment("CartPole-v1", 8, history="first", features=lambda x: np.eye(8)[:1].repeat(len(x), 0))
    first = np.arange(4, dtype=np.float32)
    assert pole.observer.form.keep((first, 2 * first)).tolist() == [*range(4), *range(0, 8, 2)]
    block, alone = pole.observer.form.block((np.zeros((3, 4)), np.ones((3, 4))))
    assert block.shape == (3, 8) and not alone
    vector = as_environment(lambda: gymnasium.make_vec("CartPole-v1", num_envs=2), 5, history="first")
    states = vector.reset(2, np.random.default_rng(0))
    states.step(np.array([0, 1]))
    assert states.observations.shape == (2, 8) and (states.observations[:, :4] == states.firsts).all()

    class Held(Corridor):
        def __init__(self, env):
            self.env = env

        def reset(self, seed=None):
            return self.env.reset(seed)

        def step(self, action):
            return self.env.step(2)

    made = as_environment(Corridor, wrapper=Held)
    member = made.new_member()
    member.reset(0)
    assert made.name == "Held" and member.step(0).observation["light"].all()
    refused(
        [
            (lambda: as_environment(Corridor(), wrapper=lambda env: 3), TypeError, "^wrapper: expected it to return"),
            (lambda: as_environment(Corridor(), wrapper=lambda env: 1 / 0), ValueError, r"^wrapper: .* ZeroDivision"),
            (lambda: as_environment(Corridor(), wrapper=3), TypeError, "^wrapper: expected a function"),
            (
                lambda: as_environment(Corridor(), features="waves"),
                ValueError,
                "^features: expected interpolation, seen or MODULE",
            ),
            (lambda: as_environment("chain", 5, history="first"), ValueError, "^history: expected none, as chain has"),
            (
                lambda: as_environment(dmq.environments.chain(5), features="seen"),
                ValueError,
                "^features: expected none",
            ),
        ]
    )


def test_an_environment_may_write_into_its_observations():
    class Board:
        n_actions, horizon = 2, 3

        def reset(self, seed=None):
            self.board = {"cells": np.zeros(2)}
            return self.board

        def step(self, action):
            self.board["cells"][action] += 1
            return self.board, 0.0, False

    env = as_environment(Board(), history="first")
    states = env.reset(2, np.random.default_rng(0))
    for _ in range(2):
        states.step(np.array([0, 1]))
    firsts, currents = zip(*states.observations, strict=True)
    assert all(not first["cells"].any() for first in firsts)
    assert [current["cells"].tolist() for current in currents] == [[2, 0], [0, 2]]


def test_a_copy_of_an_environment_keeps_its_numbers():
    env = from_object(Corridor)
    drawn = as_sampler(env).trajectories(dmq.Policy.uniform(5), 20, stream=dmq.Stream(0))
    for other in (copy.deepcopy(env), pickle.loads(pickle.dumps(env))):
        assert other.memory.keys == env.memory.keys
        again = as_sampler(other).trajectories(dmq.Policy.uniform(5), 20, stream=dmq.Stream(0))
        assert np.array_equal(again.features, drawn.features)


# ---- The shell, and sweeps


MODULE = """
    import numpy as np
    import dmq_fast as dmq

    def lock(horizon=4, seed=None):
        return dmq.environments.linear_mdp(horizon=horizon, n_states=6, dimension=3, rng=seed)

    def right(horizon=4, rng=None):
        return dmq.environments.linear_mdp(horizon=horizon, n_states=6, dimension=3, rng=rng)

    def fixed(horizon=4):
        return dmq.environments.linear_mdp(horizon=horizon, n_states=6, dimension=3, rng=1)

    def anything(**given):
        return dmq.environments.linear_mdp(horizon=4, n_states=6, dimension=3, rng=given.get("seed", 2))

    class Walk:
        n_actions, value_range = 2, (0, 1)

        def __init__(self, size=3):
            self.size = size

        def reset(self, seed=None):
            self.place = 0
            return self.place

        def step(self, action):
            self.place += action
            return self.place, float(self.place == self.size), self.place == self.size

    class Paid:
        def __init__(self, env):
            self.env, self.n_actions, self.value_range = env, env.n_actions, (0, 2)

        def reset(self, seed=None):
            return self.env.reset(seed)

        def step(self, action):
            seen, reward, ended = self.env.step(action)
            return seen, 2 * reward, ended

    def features(observations):
        return np.eye(8)[[hash(one) % 8 for one in observations]]
"""


@pytest.fixture
def module(tmp_path, monkeypatch):
    (tmp_path / "mine_of_doors.py").write_text(textwrap.dedent(MODULE))
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.chdir(tmp_path)
    yield "mine_of_doors"
    sys.modules.pop("mine_of_doors", None)


def shell(capsys, *words):
    code = cli.main(["learn", *words, "--json", "--quiet"])
    out, err = capsys.readouterr()
    return code, json.loads(out) if out else err


def test_the_shell_takes_objects_wrappers_and_ids(module, capsys):
    code, told = shell(capsys, "--env-file", f"{module}.py:Walk", "--horizon", "4", "--make", "size=2")
    assert code == 0 and told["status"] == "finished" and told["value"] == 1.0
    code, told = shell(
        capsys, "--env-file", f"{module}.py:Walk", "--horizon", "4", "--wrapper", f"{module}:Paid", "--history", "first"
    )
    assert code == 0 and told["value"] == 2.0
    code, told = shell(capsys, "--env-file", f"{module}.py:Walk", "--horizon", "4", "--features", f"{module}:features")
    assert code == 0 and told["value"] == 1.0
    code, told = shell(capsys, "CliffWalking-v1", "--horizon", "14", "--epsilon", "0.5")
    assert code == 0 and told["value"] == -13.0
    code, said = shell(capsys, "--env-file", f"{module}.py:Walk")
    assert code == 2 and "horizon: expected the number of levels" in said
    code, told = shell(capsys, "--env-file", f"{module}.py:lock", "--env-seed", "7")
    assert code == 0 and told["environment_seed"] == 7
    code, said = shell(capsys, "--env-file", f"{module}.py:fixed", "--env-seed", "7")
    assert code == 2 and "--env-seed: expected none, as fixed has no parameter rng or seed" in said


def test_the_shell_saves_and_resumes_what_was_seen(module, capsys, tmp_path):
    given = ["--env-file", f"{module}.py:Walk", "--horizon", "4"]
    code, told = shell(capsys, *given, "--out", "whole")
    assert code == 0
    code, _ = shell(capsys, *given, "--out", "cut", "--max-trajectories", "20")
    assert code == 3 and cli.main(["resume", "cut", "--json", "--quiet", "--max-trajectories", "9999"]) == 0
    assert json.loads(capsys.readouterr().out)["n_trajectories"] == told["n_trajectories"]
    assert dmq.load("cut/result.npz").theta.tobytes() == dmq.load("whole/result.npz").theta.tobytes()
    assert dmq.load("cut/result.npz").policy.act_on(0, 0) == 1


def optima(name, out, seeds=3, **given):
    spec = {
        "seeds": seeds,
        "environments": [{"name": name, **given}],
        "algorithms": [{"name": "uniform", "n_episodes": 5}],
    }
    experiments.sweep(spec, out, workers=0)
    rows = experiments.load(out)
    return [row["optimal_value"] for row in rows], [row["environment_seed"] for row in rows], rows


@pytest.mark.parametrize("name", ["lock", "right"])
def test_a_seed_reaches_an_environment_of_ones_own(name, module, tmp_path):
    drawn, _, rows = optima(f"{module}:{name}", tmp_path / "a")
    assert len(set(drawn)) == 3 and all("seed" not in row["environment_parameters"] for row in rows)
    assert optima(f"{module}:{name}", tmp_path / "b")[0] == drawn
    fixed, seeds, _ = optima(f"{module}:{name}", tmp_path / "c", seed=42)
    assert len(set(fixed)) == 1 and set(seeds) == {42} and fixed[0] not in drawn
    assert optima(f"{module}:{name}", tmp_path / "d", seed=42)[0] == fixed


def test_a_seed_that_nothing_takes_is_refused_by_name(module, tmp_path, caplog):
    asked, seeds, _ = optima(f"{module}:anything", tmp_path / "e", seed=42)
    assert len(set(asked)) == 1 and asked != optima(f"{module}:anything", tmp_path / "f")[0] and set(seeds) == {42}

    def given(name, **more):
        return lambda: optima(name, tmp_path / "g", seed=42, **more)

    words = r"environments\[0\].seed: expected none, as "
    refused(
        [
            (given(f"{module}:fixed"), experiments.SpecError, words + "fixed has no parameter rng or seed .* got 42"),
            (
                given("gym:FrozenLake-v1"),
                experiments.SpecError,
                words + "nothing of gym:FrozenLake-v1 is drawn from it",
            ),
            (given("river-swim"), experiments.SpecError, words + "nothing of river-swim is drawn from it"),
        ]
    )
    with caplog.at_level(logging.WARNING):
        optima(f"{module}:fixed", tmp_path / "h")
    assert "fixed has no parameter rng or seed: it is called in the same way for every seed" in caplog.text


def test_a_sweep_takes_objects(module, tmp_path):
    spec = {
        "environments": [{"name": f"{module}:Walk", "size": 2, "horizon": 4, "wrapper": f"{module}:Paid"}],
        "algorithms": [{"name": "self-stopping"}],
    }
    experiments.sweep(spec, tmp_path / "out", workers=0)
    (row,) = experiments.load(tmp_path / "out")
    assert row["status"] == "finished" and row["value"] == 2.0
    assert row["environment_parameters"] == {"size": 2, "horizon": 4, "wrapper": f"{module}:Paid"}


# ---- bsuite


def test_bsuite_is_named_where_it_is_missing(monkeypatch):
    monkeypatch.setitem(sys.modules, "bsuite", None)
    with pytest.raises(ImportError, match=r'needs bsuite; install it with pip install "dmq-fast\[exams\]"'):
        as_environment("bsuite:catch/0")


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    ("identifier", "horizon", "history", "value"),
    [
        ("catch/0", 9, None, 1.0),
        ("deep_sea/0", 10, None, 0.99),
        ("memory_len/3", 5, "first", 1.0),
        ("bandit/0", 1, None, 1.0),
        ("bandit_scale/3", 1, None, 0.001),
        ("umbrella_length/0", 1, None, None),
        ("discounting_chain/0", 100, None, None),
    ],
)
def test_bsuite_by_its_ids(identifier, horizon, history, value):
    pytest.importorskip("bsuite")
    env = as_environment(f"bsuite:{identifier}", history=history, rng=0)
    assert env.horizon == horizon and not env.repeatable and env.name == f"bsuite:{identifier}"
    if value is None:
        return
    result = dmq.learn(env, rng=0)
    assert result.status == "finished"
    found = as_sampler(env).evaluate(result.policy, 100, stream=dmq.Stream(1))
    assert found.value == pytest.approx(value, abs=0.02 * value)


@pytest.mark.filterwarnings("ignore")
def test_bsuite_settings(capsys):
    pytest.importorskip("bsuite")
    refused(
        [
            (
                lambda: as_environment("bsuite:catch/20"),
                ValueError,
                "^env: expected catch/0 to catch/19, got 'catch/20'$",
            ),
            (lambda: as_environment("bsuite:cach/2"), ValueError, "^env: expected EXPERIMENT/NUMBER .* mean 'catch'"),
        ]
    )
    code, told = shell(capsys, "bsuite:deep_sea/1", "--max-trajectories", "30")
    assert code == 3 and told["environment"] == "bsuite:deep_sea/1" and told["environment_seed"] is not None
