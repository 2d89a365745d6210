"""`check`: say what is wrong with an environment, before it is learned."""

from __future__ import annotations

import pickle
import warnings
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dmq_fast._support.checks import Seed, integer
from dmq_fast.environments.compiled import CompiledEnv
from dmq_fast.environments.finite import FiniteMDP
from dmq_fast.environments.gym.batch import GymnasiumBatch, Single
from dmq_fast.environments.probe import HELD, Probe, Returns
from dmq_fast.environments.sources import as_environment, is_source
from dmq_fast.kernels import as_floats
from dmq_fast.rewards import RewardModel

__all__ = ["CheckError", "CheckReport", "check"]

Floats = NDArray[np.float64]

# How far above 1 a feature norm may lie, for rounding in the environment.
SLACK = 1e-9

MEMBERS = ("horizon", "n_actions", "dimension", "reset", "features", "step")


@dataclass(frozen=True)
class CheckReport:
    """The report of `check`.

    Attributes
    ----------
    environment : str
        Name, or class where there is none.
    faults : tuple of str
        What is wrong: function, level, what was expected and what came. The first of each kind.
    held : tuple of str
        What was checked and is right.
    notes : tuple of str
        What could not be checked, and what Gymnasium advises.
    """

    environment: str
    faults: tuple[str, ...]
    held: tuple[str, ...]
    notes: tuple[str, ...]

    def __str__(self) -> str:
        """One line for each finding."""
        parts = [("wrong", self.faults), ("held", self.held), ("note", self.notes)]
        lines = [f"  {word:<6} {text}" for word, texts in parts for text in texts]
        return "\n".join([self.environment, *lines])


class CheckError(ValueError):
    """An environment is wrong. The message lists all faults; `report` has them, and what held."""

    def __init__(self, report: CheckReport) -> None:
        super().__init__(report)
        self.report = report

    def __str__(self) -> str:
        """List the faults."""
        return "\n  ".join([f"{self.report.environment}: {len(self.report.faults)} found wrong:", *self.report.faults])


class Findings:
    """The lists of a report that is being written."""

    def __init__(self) -> None:
        self.faults: list[str] = []
        self.held: list[str] = []
        self.notes: list[str] = []

    def note(self, faults: list[str], held: tuple[str, ...]) -> None:
        """Add faults, or what held if there are none."""
        self.faults += faults
        self.held += [] if faults else held

    def advise(self, returns: Returns | None, env: Any) -> None:
        """Note which range to declare, where there is none."""
        advice = None if returns is None else returns.advice(RewardModel.of(env))
        self.notes += [] if advice is None else [advice]


def check(env: Any, *, n_episodes: int = 64, rng: Seed = 0) -> CheckReport:
    """Simulate a few episodes of random actions in many ways, and raise a list of what is wrong with an environment.

    Run it once, when you have written an environment: it finds what simulations cannot, because it costs too much.

    - `CompiledEnv`: each function is called several times, with arrays between guards. It must give the same results
      for the same arguments, whatever is near its arrays and whichever trajectories are in the same block; write all
      numbers, and nothing else. Features and rewards must be in range, and episodes that have ended stay so. A
      factory must make the same environment. A function that writes or reads far outside of its arrays may still end
      the process.
    - `BatchEnvironment`: the same generator must give the same episodes, features must not change anything, and types,
      shapes and ranges must be right. Where no `value_range` is declared, the report says what was
      earned. For `GymnasiumBatch`, Gymnasium's ``check_env`` is run as well.
    - `FiniteMDP`: everything was checked when it was built.

    Parameters
    ----------
    env : CompiledEnv, BatchEnvironment or FiniteMDP, or what stands for one
        Also what `as_environment` takes.
    n_episodes : int, optional
        Number of episodes, >= 2. What only happens in rare states may need more.
    rng : None, int, SeedSequence or Generator, optional
        What actions and uniforms are drawn from.

    Returns
    -------
    CheckReport
        What was checked, and what could not be; ``print`` shows it.

    Raises
    ------
    CheckError
        If something is wrong: a ValueError with all faults.
    TypeError, ValueError
        If `env` is no environment, or `n_episodes` is out of range.

    Examples
    --------
    >>> import dmq_fast as dmq
    >>> print(dmq.environments.check(dmq.environments.chain(horizon=5)))
    chain
      held   tables, rewards, features and start were checked when it was built
      note   there is nothing else to check: its tables cannot change
    """
    n, generator, findings = integer("n_episodes", n_episodes, 2), np.random.default_rng(rng), Findings()
    if isinstance(env, FiniteMDP):
        findings.held.append("tables, rewards, features and start were checked when it was built")
        findings.notes.append("there is nothing else to check: its tables cannot change")
    elif isinstance(env, CompiledEnv):
        check_compiled(env, n, generator, findings)
    else:
        if is_source(env):
            env = as_environment(env)
        missing = [name for name in MEMBERS if not hasattr(env, name)]
        if missing or isinstance(env, type):
            got = f"the class {env.__name__}" if isinstance(env, type) else type(env).__name__
            lacks = f" without {', '.join(missing)}" if 0 < len(missing) < len(MEMBERS) else ""
            raise TypeError(
                "env: expected a CompiledEnv, a BatchEnvironment or a FiniteMDP, or an object with reset and step, got "
                f"{got}{lacks}"
            )
        if isinstance(env, GymnasiumBatch):
            check_gymnasium(env, findings)
        check_batch(env, n, generator, findings)
    name = str(getattr(env, "name", type(env).__name__))
    report = CheckReport(name, tuple(findings.faults), tuple(findings.held), tuple(findings.notes))
    if report.faults:
        raise CheckError(report)
    return report


def check_compiled(env: CompiledEnv, n: int, rng: np.random.Generator, findings: Findings) -> None:
    """Check functions and factory of a compiled environment."""
    probe = Probe(env, n, rng)
    probe.run()
    findings.note(list(probe.faults.values()), HELD)
    findings.advise(probe.returns, env)
    try:
        twin = pickle.loads(pickle.dumps(env))
    except Exception as error:
        findings.notes.append(f"it works in this process only: {' '.join(str(error).split())}")
        return
    same = twin.fingerprint() == env.fingerprint() and repr(twin) == repr(env)
    wrong = f"factory: expected the same environment, got {twin!r} with another fingerprint"
    findings.note([] if same else [wrong], ("its factory makes it again",))


def check_gymnasium(env: GymnasiumBatch, findings: Findings) -> None:
    """Run Gymnasium's own check on a new copy of the environment."""
    member = env.new_member()
    if not isinstance(member, Single):
        findings.notes.append("Gymnasium has no check of a VectorEnv")
        return
    from gymnasium.utils.env_checker import check_env

    try:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            check_env(member.env.unwrapped, skip_render_check=True, skip_close_check=True)
        findings.held.append("Gymnasium's check_env passed")
        findings.notes += list(dict.fromkeys(f"Gymnasium: {' '.join(str(one.message).split())}" for one in caught))
    except Exception as error:
        findings.faults.append(f"Gymnasium: {type(error).__name__}: {' '.join(str(error).split())}")
    finally:
        with suppress(Exception):
            member.close()


def check_batch(env: Any, n: int, rng: np.random.Generator, findings: Findings) -> None:
    """Play the same episodes of a `BatchEnvironment` twice."""
    play, repeatable = Play(env, n, rng), bool(getattr(env, "repeatable", True))
    runs = [play.run(), play.run()]
    if not repeatable:
        findings.notes.append("it takes no seed: runs in it are recorded, and cannot be repeated")
    elif "raised" not in play.faults:
        for number, (mine, theirs) in enumerate(zip(*runs, strict=True)):
            if not np.array_equal(mine, theirs):
                play.place = f"{('features', 'step')[number % 2]}, level {number // 2}"
                play.blame("repeat", "expected the same episodes from the same generator, got others")
    findings.advise(play.returns, env)
    findings.note(
        list(play.faults.values()),
        (
            *(("the same generator gave the same episodes",) if repeatable else ()),
            "the same states gave the same features",
            "shapes and types, norms of features and sums of rewards were in range",
        ),
    )


class Play:
    """Episodes of random actions of a `BatchEnvironment`, the same in each run if the environment lets them.

    Attributes
    ----------
    place : str
        The function that is called, and the level.
    faults : dict
        By kind of fault: the first of this kind, as text.
    returns : Returns or None
        What the episodes of the last run earned.
    """

    def __init__(self, env: Any, n: int, rng: np.random.Generator) -> None:
        self.env = env
        sizes = (integer(f"env.{name}", getattr(env, name), 1) for name in ("horizon", "n_actions", "dimension"))
        self.horizon, n_actions, self.dimension = sizes
        self.n = min(n, integer("env.chunk_size", getattr(env, "chunk_size", n), 1))
        self.actions, self.seed = rng.integers(n_actions, size=(self.horizon, self.n)), int(rng.integers(2**32))
        self.place = "reset"
        self.faults: dict[str, str] = {}
        self.rewards = RewardModel.of(env)
        self.returns: Returns | None = None

    def blame(self, kind: str, text: str) -> None:
        """Note a fault at the present place."""
        self.faults.setdefault(kind, f"{self.place}: {text}")

    def run(self) -> list[Floats]:
        """Play the episodes once; return features and rewards of each level in turn."""
        seen: list[Floats] = []
        self.place, states = "reset", None
        try:
            generator = np.random.Generator(np.random.Philox(self.seed))
            states = self.env.reset(self.n, generator)
            for level in range(self.horizon):
                seen.append(self.look(level, states))
                states, rewards = self.step(level, states, generator)
                seen.append(rewards)
            going = np.column_stack([phi.any(axis=1) for phi in seen[::2]])
            self.returns = Returns.of(self.rewards, np.column_stack(seen[1::2]), going)
            if self.returns.fault is not None:
                level, text = self.returns.fault
                self.place = f"step, level {level}"
                self.blame("sum", text)
        except Exception as error:
            self.blame("raised", f"{type(error).__name__}: {' '.join(str(error).split())}")
        finally:
            if states is not None:
                with suppress(Exception):
                    getattr(self.env, "release", lambda _: None)(states)
        return seen

    def look(self, level: int, states: Any) -> Floats:
        """Return the features of the states, (n, d), asked for twice."""
        self.place = f"features, level {level}"
        shape = self.n, self.dimension
        phi, again = (as_floats("features", self.env.features(level, states), shape).copy() for _ in range(2))
        if not np.array_equal(phi, again):
            self.blame("features", "expected the same features of the same states, got others")
        norm = float(np.linalg.norm(phi, axis=1).max())
        if norm > 1.0 + SLACK:
            self.blame("norm", f"expected Euclidean norms of at most 1, got {norm:.12g}")
        return phi

    def step(self, level: int, states: Any, generator: np.random.Generator) -> tuple[Any, Floats]:
        """Take the actions of a level; return the next states and the rewards (n,)."""
        self.place = f"step, level {level}"
        taken = self.actions[level].copy()
        states, paid = self.env.step(level, states, taken, generator)
        rewards = as_floats("rewards", paid, (self.n,)).copy()
        if not np.array_equal(taken, self.actions[level]):
            self.blame("actions", "expected that the actions are only read, but they were changed")
        return states, rewards
