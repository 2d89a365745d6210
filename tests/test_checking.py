"""`environments.check`: right environments pass, and each kind of fault is found and named."""

import ctypes

import numpy as np
import pytest
import walker
from refusals import refused

import dmq_fast as dmq
from dmq_fast import environments
from dmq_fast.environments import CheckError, CompiledEnv, check
from dmq_fast.environments.compiled import ENDED, FEATURES, RESET, STEP

HORIZON, ACTIONS = 4, 3


def test_the_walker_is_right():
    report = check(walker.in_c())
    assert report.faults == () and "all numbers were written" in report.held


def test_shipped_environments_are_right():
    for env in (
        environments.lock_bernoulli(6, observation="coins", rng=0),
        environments.diabolical_lock(5, observation="noisy", rng=0),
        environments.noisy_deep_sea(5, rng=0),
        environments.cart_pole(20),
        environments.mountain_car(20),
        environments.chain(5),
    ):
        report = check(env)
        assert report.environment == env.name and report.faults == () and report.held
        assert str(report).startswith(f"{env.name}\n  held   ")


def doubles(pointer, *shape):
    return np.ctypeslib.as_array(ctypes.cast(pointer, ctypes.POINTER(ctypes.c_double)), shape)


def right():
    """The functions of a walk that is over at 1 or above; a uniform for the start and for each step."""

    def reset(context, n, u, states):
        doubles(states, n)[:] = doubles(u, n) / 2
        return 0

    def features(context, level, n, states, u, phi):
        doubles(phi, n, 2)[:] = np.column_stack([np.minimum(doubles(states, n), 1.0) / 2, np.full(n, 0.5)])
        return 0

    def step(context, level, n, states, actions, u, rewards):
        x = doubles(states, n)
        over = x >= 1
        x += np.where(over, 0.0, (np.ctypeslib.as_array(actions, (n,)) + doubles(u, n)) / 4)
        doubles(rewards, n)[:] = np.where(over, 0.0, 0.25)
        return 0

    def ended(context, level, n, states, over):
        np.ctypeslib.as_array(over, (n,))[:] = doubles(states, n) >= 1
        return 0

    return {"reset": reset, "features": features, "step": step, "ended": ended}


def environment(changes=None, **settings):
    kinds = {"reset": RESET, "features": FEATURES, "step": STEP, "ended": ENDED}
    functions = {name: kinds[name](function) for name, function in (right() | (changes or {})).items()}
    sizes = {"horizon": HORIZON, "n_actions": ACTIONS, "dimension": 2, "state_bytes": 8}
    uniforms = {"reset_uniforms": 1, "step_uniforms": 1, "value_range": (0, 1)}
    return CompiledEnv.from_functions(**(sizes | uniforms | functions | settings), name="walk")


def after(name, then):
    """The function `name`, and something more: `then(n, arguments by their names)`."""
    function = right()[name]
    names = {
        "reset": ("context", "n", "u", "states"),
        "features": ("context", "level", "n", "states", "u", "phi"),
        "step": ("context", "level", "n", "states", "actions", "u", "rewards"),
        "ended": ("context", "level", "n", "states", "ended"),
    }[name]

    def both(*values):
        given = dict(zip(names, values, strict=True))
        function(*values)
        return then(given["n"], given) or 0

    return {name: both}


def test_a_right_environment_in_python_passes_and_cannot_leave_its_process():
    report = check(environment())
    assert report.faults == ()
    assert any("works in this process only" in note for note in report.notes)


calls = iter(range(10**9))


def put(key, shape, value):
    def then(n, given):
        doubles(given[key], *shape(n))[-1] = value

    return then


def add(key, amount):
    def then(n, given):
        doubles(given[key], n)[:] += amount(n, given)

    return then


def flags(value):
    def then(n, given):
        np.ctypeslib.as_array(given["ended"], (n,))[:] = value(n, given)

    return then


def leave_out(context, level, n, states, actions, u, rewards):
    paid = np.ctypeslib.as_array(actions, (n,)) > 0
    doubles(rewards, n)[paid] = 0.1
    return 0


def narrow_actions(context, level, n, states, actions, u, rewards):
    taken = np.ctypeslib.as_array(ctypes.cast(actions, ctypes.POINTER(ctypes.c_int32)), (n,))
    doubles(rewards, n)[:] = taken / 10
    return 0


def overwrite_actions(n, given):
    np.ctypeslib.as_array(given["actions"], (n,))[:] = 0


FAULTS = {

    "impure reset": (after("reset", add("states", lambda *_: next(calls) * 1e-3)), "reset, level 0: .* same arguments"),
    "impure step": (after("step", add("rewards", lambda *_: next(calls) * 1e-6)), "step, level 0: .* same arguments"),
    "more uniforms in step": (
        after("step", add("rewards", lambda n, given: doubles(given["u"], n + 9)[9:] / 100)),
        r"step, level 0: reads more uniforms than it asks for: step_uniforms\[0\] is 1",
    ),
    "uniforms in features": (
        after("features", lambda n, given: put("phi", lambda n: (2 * n,), doubles(given["u"], n)[0] / 9)(n, given)),
        r"features, level 0: reads more uniforms than it asks for: feature_uniforms\[0\] is 0",
    ),
    "states too long": (after("reset", put("states", lambda n: (n + 1,), 0.5)), "reset, level 0: writes outside of"),
    "phi too long": (after("features", put("phi", lambda n: (2 * n + 3,), 0.5)), "features, .* outside of phi"),
    "rewards too long": (after("step", put("rewards", lambda n: (n + 1,), 0.0)), "step, .* outside of rewards"),
    "actions changed": (after("step", overwrite_actions), "step, level 0: changes actions, which is only to be read"),
    "uniforms changed": (after("reset", add("u", lambda *_: 0.1)), "reset, level 0: changes u, which is only"),
    "states changed": (after("features", add("states", lambda *_: 0.1)), "features, level 0: changes states, which"),
    "numbers left out": ({"step": leave_out}, "step, level 0: expected all of rewards to be written, got numbers tha"),
    "actions of 32 bits": ({"step": narrow_actions}, "step, level 0: .* for a trajectory alone and among others"),
    "size of the block": (after("step", add("rewards", lambda n, _: n / 1000)), "step, level 0: .* alone and"),
    "norm": (after("features", put("phi", lambda n: (2 * n,), 1.5)), "features, level 0: .* at most 1, got 1.5"),
    "infinite": (after("features", put("phi", lambda n: (2 * n,), np.inf)), "features, level 0: .* finite .* got inf"),
    "no number": (after("step", put("rewards", lambda n: (n,), np.inf)), "step, level 0: expected finite .* got inf"),
    "reward below 0": (after("step", add("rewards", lambda *_: -0.5)), r"step, level 3: .*earned -0\.(25|5) from"),
    "sum of rewards": (after("step", add("rewards", lambda *_: 0.25)), r"step, level .: .*earned 1.*range = \(0, 1"),
    "reward after the end": (after("step", add("rewards", lambda *_: 1e-3)), "step, level .: .* the reward 0 after"),
    "end taken back": (after("ended", flags(lambda n, given: given["level"] == 1)), "ended, level 2: .* got 0 after 1"),
    "end is 7": (after("ended", flags(lambda *_: 7)), "ended, level 0: expected 0 or 1, got 7"),
    "end not written": ({"ended": lambda *_: 0}, "ended, level 0: expected all of ended to be written"),
    "blank start": ({"reset": lambda *_: 0}, "reset, level 0: expected all states to be written, got one of which no"),
    "code": ({"step": lambda *_: 5}, "step, level 0: returned the code 5"),
}  # fmt: skip


def test_each_fault_is_found_and_named():
    for changes, message in FAULTS.values():
        with pytest.raises(CheckError, match=message) as caught:
            check(environment(changes))
        assert caught.value.report.environment == "walk"
        # Named once, though it happens at every level.
        assert sum("level" in fault for fault in caught.value.report.faults) <= 6


def test_all_faults_are_listed_at_once():
    changes = after("features", lambda n, given: doubles(given["phi"], n, 2).fill(1.5)) | after(
        "step", overwrite_actions
    )
    with pytest.raises(CheckError) as caught:
        check(environment(changes))
    assert str(caught.value).splitlines() == [
        "walk: 2 found wrong:",
        *(f"  {one}" for one in caught.value.report.faults),
    ]


def test_a_context_that_changes_is_found():
    context = np.zeros(3)

    def then(n, given):
        context[1] += 1.0

    with pytest.raises(CheckError, match="context: expected that no function changes it, but one did"):
        check(environment(after("ended", then), context=context))


def other_walker():
    return walker.in_c(value_range=(-4, 8))


def test_a_factory_of_another_environment_is_found():
    with pytest.raises(CheckError, match="factory: expected the same environment, got CompiledEnv"):
        check(walker.in_c(factory=other_walker))


class Walk:
    """A walk on a line, in NumPy."""

    horizon, n_actions, dimension = 5, 2, 2

    def reset(self, n, rng):
        return rng.random(n) / 2

    def features(self, level, states):
        return np.column_stack([states / 2, 0.5 - states / 2])

    def step(self, level, states, actions, rng):
        states = np.clip(states + actions / 10 + 0.02 * rng.random(len(states)), 0.0, 1.0)
        return states, states / 5


class Released(Walk):
    def __init__(self):
        self.released = 0

    def release(self, states):
        self.released += 1


def test_a_batch_environment_passes_and_its_states_are_released():
    env = Released()
    assert check(env).faults == () and env.released == 2


def changed(**members):
    return type("Changed", (Walk,), members)()


def test_each_fault_of_a_batch_environment_is_found():
    reset, features, step = Walk.reset, Walk.features, Walk.step
    refused(
        (lambda members=members: check(changed(**members)), CheckError, words)
        for members, words in (
            ({"reset": lambda self, n, rng: reset(self, n, rng) + next(calls) * 1e-4}, "level 0: .* same generator"),
            ({"features": lambda self, h, x: features(self, h, x) + next(calls) * 1e-9}, "features, .* same features"),
            ({"features": lambda self, h, x: np.ones((len(x), 2))}, "features, level 0: .* at most 1, got 1.414"),
            ({"features": lambda self, h, x: np.ones((len(x), 3))}, "features, level 0: ValueError: features: exp"),
            (
                {"step": lambda self, h, x, a, rng: (x, x / 9 + (h == 3) * next(calls) * 1e-9)},
                "step, level 3: .* same gen",
            ),
            ({"step": lambda self, h, x, a, rng: (x, x + np.inf)}, "step, level 0: ValueError: rewards: .*finite"),
            (
                {"step": lambda self, h, x, a, rng: (x, 0 * x - (h == 3)), "value_range": (0, 1)},
                r"step, level 3: an episode earned -1 from level 3 on, outside of value_range = \(0, 1\): declare",
            ),
            ({"step": lambda self, h, x, a, rng: 1 / 0}, "step, level 0: ZeroDivisionError: division by zero"),
            ({"step": lambda *given: (given[3].fill(0), step(*given))[1]}, "step, level 0: .* actions are only"),
        )
    )


def test_the_range_that_was_seen_is_named_where_none_is_declared():
    def note(**members):
        return [note for note in check(changed(**members)).notes if "value range" in note]

    def costs(self, h, x, a, rng):
        return x, np.full(len(x), -1.5)

    (told,) = note(step=costs)
    assert "from -7.5 to -1.5 was earned" in told and "write value_range=(-7.5, -1.5)" in told
    assert not note(step=costs, value_range=(-8, 0)) and not note(step=costs, value_range=(0, 1), noise=3.0)

    # A range that is wrong on many levels is named at the last one, with what was earned from all of them.
    with pytest.raises(CheckError, match=r"-1\.5 from level 4 on.* such as value_range=\(-7\.5, 1\)"):
        check(changed(step=costs, value_range=(0, 1)))

    class Ends(Walk):  # what has ended has features 0, and does not count
        value_range = tuple((h - 5, -1) for h in range(5))

        def features(self, level, states):
            return super().features(level, states) * (level < 2)

        def step(self, level, states, actions, rng):
            return states, np.full(len(states), -1.0 * (level < 2))

    assert check(Ends()).notes == ()
    del Ends.value_range
    assert "write value_range=(-2, -1)" in check(Ends()).notes[0]


def test_gymnasium_checks_its_own():
    gymnasium = pytest.importorskip("gymnasium")
    lake = environments.make("gym:FrozenLake-v1", horizon=4, through="step")
    assert "Gymnasium's check_env passed" in check(lake, n_episodes=4).held

    class Liar(gymnasium.Env):
        observation_space = gymnasium.spaces.Discrete(7)
        action_space = gymnasium.spaces.Discrete(2)

        def reset(self, *, seed=None, options=None):
            super().reset(seed=seed)
            return 9, {}

        def step(self, action):
            return 0, 0.0, False, False, {}

    with pytest.raises(CheckError, match=r"Gymnasium: AssertionError: .*\n  reset: ValueError: observation: expected"):
        check(environments.GymnasiumBatch(Liar(), horizon=3), n_episodes=4)


def test_what_is_no_environment_is_refused():
    words = "env: expected a CompiledEnv, a BatchEnvironment or a FiniteMDP, or an object with reset and step, got"
    objects = [None, 3, dmq.samplers.RolloutSampler(environments.chain(3))]
    refused((lambda env=env: check(env), TypeError, words) for env in objects)
