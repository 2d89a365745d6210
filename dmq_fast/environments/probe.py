"""Calls of the functions of a compiled environment between guards, to find what a simulation would not notice."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dmq_fast.environments.compiled import CompiledEnv, Struct
from dmq_fast.environments.functions import PROTOTYPES
from dmq_fast.rewards import RewardModel

__all__ = ["HELD", "Probe", "Returns"]

Array = NDArray[Any]

HELD = (
    "the same states, actions and uniforms gave the same results",
    "no uniforms were read that were not asked for",
    "nothing was written outside of the arrays, or in those that are only to be read",
    "all numbers were written",
    "a trajectory went the same way alone and among others",
    "norms of features and sums of rewards were in range",
    "episodes that had ended stayed so, and paid nothing",
)
"""The report of `Probe.run` on an environment without faults."""

# Bytes before and behind every array.
GUARD = 1 << 15
ALIGNMENT = 64
CANARY = 0xA5

# Rows that are also simulated one by one.
ALONE = 8

# How far above 1 a feature norm may lie, and how far two results apart, for rounding.
SLACK = 1e-9

LOW, HIGH = 0.0, 1.0 - 2.0**-53
"""The smallest and the largest uniform: a comparison with any chance in between distinguishes them."""


class Guarded:
    """A copy of an array between guards; the one behind it may hold a number instead of the canary."""

    def __init__(self, content: Array, behind: float | None = None) -> None:
        self.content = content
        size = content.nbytes
        self.memory = np.full(size + 2 * GUARD + ALIGNMENT, CANARY, dtype=np.uint8)
        self.first = GUARD + -(self.memory.ctypes.data + GUARD) % ALIGNMENT
        self.inside = self.memory[self.first : self.first + size]
        self.inside[:] = content.reshape(-1).view(np.uint8)
        if behind is not None:
            numbers = np.full(GUARD // 8, behind).view(np.uint8)
            self.memory[self.first + size :][: len(numbers)] = numbers
        self.before = self.memory.copy()

    @property
    def address(self) -> int:
        """Address of the content."""
        return self.memory.ctypes.data + self.first

    def now(self) -> Array:
        """Return what the array holds after a call."""
        return self.inside.copy().view(self.content.dtype).reshape(self.content.shape)

    def overrun(self) -> bool:
        """Whether a guard has changed."""
        last = self.first + len(self.inside)
        same = np.array_equal(self.memory[: self.first], self.before[: self.first])
        return not (same and np.array_equal(self.memory[last:], self.before[last:]))

    def changed(self) -> bool:
        """Whether the content has changed."""
        return self.now().tobytes() != self.content.tobytes()


class Results(NamedTuple):
    """The arrays that a call has written: the states after it, and phi, rewards or ended."""

    states: Array
    out: Array


class Stopped(Exception):
    """A function returned a code, so there is nothing to go on with."""


class Returns(NamedTuple):
    """What episodes earned.

    Attributes
    ----------
    low, high : float
        Least and largest sum of rewards from any level on, of episodes that had not ended there.
    fault : tuple of (int, str), or None
        The last level at which one is outside of the declared range, and what is wrong.
    """

    low: float
    high: float
    fault: tuple[int, str] | None

    @classmethod
    def of(cls, rewards: RewardModel, paid: Array, going: NDArray[np.bool_]) -> Returns:
        """Hold the rewards (n, H) of episodes against their range; `going` (n, H) tells where they had not ended."""
        low, high, first = np.inf, -np.inf, None
        for level in reversed(range(paid.shape[1])):
            to_go = paid[going[:, level], level:].sum(axis=1)
            to_go = to_go[np.isfinite(to_go)]  # what is not finite was noted already
            low, high = min(low, to_go.min(initial=np.inf)), max(high, to_go.max(initial=-np.inf))
            wrong = to_go[rewards.outside(to_go, level)]
            if wrong.size and first is None:
                assert rewards.bounds is not None
                first = level, float(wrong[np.abs(wrong - rewards.bounds[level].mean()).argmax()])
        low, high = float(low), float(high)
        fault = None if first is None else (first[0], rewards.refusal(first[1], first[0], (low, high)))
        return cls(low, high, fault)

    def advice(self, rewards: RewardModel) -> str | None:
        """Return what to declare where no range is; None where one is, or nothing was earned."""
        if rewards.known or not self.low <= self.high:
            return None
        low, high = f"{self.low:.6g}", f"{self.high:.6g}"
        return (
            f"no value range is declared, and from {low} to {high} was earned from a level on: if that is all that can "
            f"be, write value_range=({low}, {high}); a tight range needs the fewest episodes"
        )


class Probe:
    """A few episodes of a compiled environment, call by call.

    Attributes
    ----------
    faults : dict
        By function and kind of fault: the first of this kind, as text.
    """

    def __init__(self, env: CompiledEnv, n: int, rng: np.random.Generator) -> None:
        self.env, self.n, self.rng = env, n, rng
        struct = Struct.from_address(env.handle.address)
        self.context = struct.context
        self.functions: dict[str, Any] = {
            name: prototype(getattr(struct, name))
            for name, (prototype, _) in PROTOTYPES.items()
            if getattr(struct, name) is not None
        }
        self.faults: dict[tuple[str, str], str] = {}
        self.returns: Returns | None = None

    def blame(self, name: str, level: int, kind: str, text: str) -> None:
        """Note a fault, once for each function and kind."""
        self.faults.setdefault((name, kind), f"{name}, level {level}: {text}")

    def run(self) -> None:
        """Play n episodes of random actions, half of them of one action each, and note the faults."""
        handle, n = self.env.handle, self.n
        data = self.env.fingerprint()["sha256"]
        loyal = np.arange(n) % handle.n_actions
        try:
            states = self.visit("reset", 0, np.full((n, handle.state_bytes), 0xFF, np.uint8)).states
            if (states == 0xFF).all(axis=1).any():
                self.blame("reset", 0, "blank", "expected all states to be written, got one of which no byte is")
            over, going = np.zeros(n, bool), np.zeros((n, handle.horizon), bool)
            paid = np.zeros((n, handle.horizon))
            for level in range(handle.horizon):
                over = self.watch_end(level, states, over)
                going[:, level] = ~over
                self.watch_features(level, states, over)
                actions = np.where(np.arange(n) < n // 2, loyal, self.rng.integers(handle.n_actions, size=n))
                states, raw = self.visit("step", level, states, actions)
                self.watch_rewards(level, raw, over)
                paid[:, level] = raw
            self.returns = Returns.of(RewardModel.of(self.env), paid, going)
            if self.returns.fault is not None:
                level, text = self.returns.fault
                self.blame("step", level, "sum", text)
        except Stopped:
            pass
        if self.env.fingerprint()["sha256"] != data:
            self.faults["context", "changed"] = "context: expected that no function changes it, but one did"

    def watch_end(self, level: int, states: Array, before: Array) -> Array:
        """Return which episodes are over."""
        if "ended" not in self.functions:
            return before
        flags = self.visit("ended", level, states).out
        if not np.isin(flags, (0, 1)).all():
            self.blame("ended", level, "range", f"expected 0 or 1, got {flags[~np.isin(flags, (0, 1))][0]}")
        if (before & (flags == 0)).any():
            self.blame("ended", level, "back", "expected that an episode that has ended stays so, got 0 after 1")
        over: Array = flags != 0
        return over

    def watch_features(self, level: int, states: Array, over: Array) -> None:
        """Hold the features of the episodes that are not over against the border."""
        phi = self.visit("features", level, states).out[~over]
        if not np.isfinite(phi).all():
            self.blame("features", level, "finite", f"expected finite numbers, got {phi[~np.isfinite(phi)][0]}")
            return
        if self.env.features is not None:
            phi = self.env.features(phi)
        norms = np.linalg.norm(phi, axis=1)
        if not (norms <= 1.0 + SLACK).all():
            self.blame("features", level, "norm", f"expected Euclidean norms of at most 1, got {norms.max():.12g}")

    def watch_rewards(self, level: int, raw: Array, over: Array) -> None:
        """Note rewards that are no numbers, and those of episodes that are over."""
        if not np.isfinite(raw).all():
            self.blame("step", level, "reward", f"expected finite rewards, got {raw[~np.isfinite(raw)][0]}")
        if (raw[over] != 0.0).any():
            text = f"expected the reward 0 after the end of an episode, got {raw[over][raw[over] != 0.0][0]:.12g}"
            self.blame("step", level, "late reward", text)

    def visit(self, name: str, level: int, states: Array, actions: Array | None = None) -> Results:
        """Call a function as a simulation does, call it again in other ways, and return the first results."""
        count = self.uniforms_of(name, level)
        u = self.rng.random((self.n, count))
        u[0], u[-1] = LOW, HIGH
        given = {"states": states, "actions": np.empty(0, np.int64) if actions is None else actions, "u": u}
        first = self.call(name, level, given)
        if not self.agree(name, level, first, self.call(name, level, given)):
            self.blame(name, level, "pure", "expected the same results for the same arguments, got others")
            return first
        if not self.agree(name, level, first, self.call(name, level, given, behind=HIGH)):
            asked = "reset_uniforms" if name == "reset" else f"{name.removesuffix('s')}_uniforms[{level}]"
            self.blame(name, level, "uniforms", f"reads more uniforms than it asks for: {asked} is {count}")
        if not np.array_equal(first.out, self.call(name, level, given, blank=1).out, equal_nan=True):
            output = PROTOTYPES[name][1][-1]
            self.blame(
                name, level, "blank", f"expected all of {output} to be written, got numbers that were there before"
            )
        parts = [self.call(name, level, part) for part in self.parts(given)]
        together = Results(*(np.concatenate(arrays) for arrays in zip(*parts, strict=True)))
        if not self.agree(name, level, first, together):
            self.blame(
                name, level, "blocks", "expected the same results for a trajectory alone and among others, got others"
            )
        return first

    def uniforms_of(self, name: str, level: int) -> int:
        """Return the number of uniforms that a function declares for a trajectory."""
        handle = self.env.handle
        counts = {"features": handle.feature_uniforms, "step": handle.step_uniforms}
        return handle.reset_uniforms if name == "reset" else counts[name][level] if name in counts else 0

    def parts(self, given: Mapping[str, Array]) -> Iterator[dict[str, Array]]:
        """Yield the rows of the arguments, the first ones one by one and then the others."""
        alone = min(ALONE, self.n - 1)
        for first, last in [*((i, i + 1) for i in range(alone)), (alone, self.n)]:
            yield {name: array[first:last] for name, array in given.items()}

    def agree(self, name: str, level: int, mine: Results, theirs: Results) -> bool:
        """Return whether two results are the same to the learner, up to rounding."""
        if not close(mine.out, theirs.out):
            return False
        following = level + (name == "step")
        if mine.states.tobytes() == theirs.states.tobytes() or following == self.env.horizon:
            return True
        # States may differ in padding, or in their last bits; what is observed of them decides.
        u = self.rng.random((len(mine.states), self.uniforms_of("features", following)))
        for seen in ("features", "ended"):
            if seen in self.functions:
                both = [
                    self.call(seen, following, {"states": one.states, "actions": np.empty(0, np.int64), "u": u}).out
                    for one in (mine, theirs)
                ]
                if not close(*both):
                    return False
        return True

    def call(self, name: str, level: int, given: Mapping[str, Array], behind: float = LOW, blank: int = 0) -> Results:
        """Call a function once, with its arrays between guards; note what it should not have touched.

        `behind` stands behind the uniforms, and `blank` chooses what the output holds before.
        """
        n = len(given["states"])
        outputs: dict[str, Array] = {
            "reset": np.empty(0),
            "features": np.full((n, self.env.handle.dimension), (np.nan, 0.5)[blank]),
            "step": np.full(n, (np.nan, 0.5)[blank]),
            "ended": np.full(n, (2, 3)[blank], np.int8),
        }
        arrays = {key: Guarded(given[key]) for key in ("states", "actions")}
        arrays["u"] = Guarded(given["u"], behind)
        arrays["out"] = Guarded(outputs[name])
        where = {key: ctypes.c_void_p(array.address) for key, array in arrays.items()}
        names = PROTOTYPES[name][1]
        numbers = {"context": self.context, "level": level, "n": n}
        prototype, function = PROTOTYPES[name][0], self.functions[name]
        values = [
            numbers[argument] if argument in numbers else ctypes.cast(where.get(argument, where["out"]), kind)
            for argument, kind in zip(names, prototype._argtypes_, strict=True)
        ]
        code = function(*values)
        if code != 0:
            self.blame(name, level, "code", f"returned the code {code}")
            raise Stopped
        for key, array in arrays.items():
            title = names[-1] if key == "out" else key
            if array.overrun():
                self.blame(name, level, "bounds", f"writes outside of {title}")
            if array.changed() and key != "out" and (key, name) not in {("states", "reset"), ("states", "step")}:
                self.blame(name, level, "input", f"changes {title}, which is only to be read")
        return Results(arrays["states"].now(), arrays["out"].now())


def close(mine: Array, theirs: Array) -> bool:
    """Return whether two arrays are equal up to rounding, and NaN in the same places."""
    return np.allclose(mine, theirs, rtol=SLACK, atol=SLACK, equal_nan=True)
