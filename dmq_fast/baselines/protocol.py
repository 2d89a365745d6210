"""What all baselines share: episodes, checkpoints, and the result."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dmq_fast._support.arguments import count, integer
from dmq_fast.baselines.table import TablePolicy
from dmq_fast.environments.block import block_mdp
from dmq_fast.environments.compiled import CompiledEnv
from dmq_fast.environments.finite import FiniteMDP
from dmq_fast.kernels import Episode, Learner, Stream, as_positive
from dmq_fast.policy import Policy
from dmq_fast.samplers.rollout import RolloutSampler
from dmq_fast.samplers.streams import as_key

__all__ = ["Baseline", "BaselineResult", "Curve"]

# Evaluations use the calls from here on; episodes those below.
EVALUATIONS = 2**63

N_CHECKPOINTS = 20


class Curve(NamedTuple):
    """How learning went, at checkpoints.

    Attributes
    ----------
    episodes : numpy.ndarray of int64, shape (m,)
        Episodes learned from, ascending.
    value : numpy.ndarray, shape (m,)
        Value of the policy that would be returned then.
    standard_error : numpy.ndarray, shape (m,)
        0 where the value is exact.
    reward : numpy.ndarray, shape (m,)
        What all episodes so far have earned together; so the regret is ``episodes * optimal_value - reward``.
    """

    episodes: NDArray[np.int64]
    value: NDArray[np.float64]
    standard_error: NDArray[np.float64]
    reward: NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class BaselineResult:
    """What `Baseline.learn` returns. Compared by identity; compare the fields that matter.

    Attributes
    ----------
    algorithm : str
        Its name in the registry.
    policy : Policy or TablePolicy
        Greedy on what was learned, without exploration.
    theta : numpy.ndarray of shape (H, K, d), or None
        The estimates that the policy is greedy on, of algorithms that learn linear ones.
    table : tuple of H numpy.ndarray (S_h, K), or None
        The same, of tabular algorithms.
    curve : Curve
    returns : numpy.ndarray, shape (n_trajectories,)
        What each episode earned.
    status : str
        "finished", "max_seconds" or "interrupted".
    parameters : dict
        How it was run.
    counts : dict
        "episodes", "transitions" and "evaluation_trajectories", and what the algorithm counts of its own.
    seconds : dict
        Wall-clock time "learning", "evaluation" and "total".
    key : tuple of two int
        The run's 128-bit key; ``rng=Stream.from_key(key)`` repeats it.
    warnings : tuple of str
        Reasons to doubt the result.
    """

    algorithm: str
    policy: Policy | TablePolicy
    theta: NDArray[np.float64] | None
    table: tuple[NDArray[np.float64], ...] | None
    curve: Curve
    returns: NDArray[np.float64]
    status: str
    parameters: dict[str, Any]
    counts: dict[str, Any]
    seconds: dict[str, float]
    key: tuple[int, int]
    warnings: tuple[str, ...]

    @property
    def n_trajectories(self) -> int:
        """Episodes learned from."""
        return len(self.returns)

    @property
    def value(self) -> float:
        """Value of the policy, as at the last checkpoint; see `Curve`."""
        return float(self.curve.value[-1])

    def first_above(self, mean: float, every: int = 100) -> int | None:
        """Return the first multiple of `every` episodes whose returns so far average more than `mean`, or None."""
        ends = np.arange(integer("every", every, 1), self.n_trajectories + 1, every)
        above = np.cumsum(self.returns)[ends - 1] > mean * ends
        return int(ends[above.argmax()]) if above.any() else None

    def __repr__(self) -> str:
        return (
            f"<BaselineResult: {self.algorithm}, {self.status}, {self.n_trajectories} episodes, "
            f"value {self.value:.6g}, {len(self.warnings)} warning(s)>"
        )


class Learned(NamedTuple):
    """What an algorithm has learned by now: a policy and the numbers it is greedy on."""

    policy: Policy | TablePolicy
    theta: NDArray[np.float64] | None = None
    table: tuple[NDArray[np.float64], ...] | None = None


class Baseline(ABC):
    """An algorithm that learns from one episode after the other.

    Parameters
    ----------
    env : FiniteMDP or CompiledEnv
    n_episodes : int
        Episodes to learn from.
    max_seconds : float, optional
        End the run, between two episodes, so many seconds after `learn` began.
    checkpoints : int or sequence of int
        Where the curve is looked at: so many numbers of episodes in geometric order, or these; the last episode always.
    n_evaluation : int
        Trajectories that the value at a checkpoint is estimated from, where the environment is no finite MDP.
    rng : None, int, SeedSequence, Generator or Stream, optional
        Source of the run's 128-bit key. Episode e draws from call e of it, the environment's numbers apart from the
        algorithm's own, so that algorithms of one key meet the same numbers.

    Attributes
    ----------
    name : str
        In the registry.
    parameters : dict
        What `BaselineResult.parameters` says.

    Raises
    ------
    TypeError, ValueError
        On an argument of a wrong type or out of range; the message names it.
    """

    name: ClassVar[str]

    def __init__(
        self,
        env: FiniteMDP | CompiledEnv,
        *,
        n_episodes: int = 1000,
        max_seconds: float | None = None,
        checkpoints: int | Sequence[int] = N_CHECKPOINTS,
        n_evaluation: int = 1000,
        rng: int | np.random.SeedSequence | np.random.Generator | Stream | None = None,
        **own: Any,
    ) -> None:
        if not isinstance(env, FiniteMDP | CompiledEnv):
            raise TypeError(
                f"env: expected a FiniteMDP or a CompiledEnv, whose single steps can be seen, got {type(env).__name__}"
            )
        self.env = env
        self.n_episodes = count("n_episodes", n_episodes, 1)
        self.max_seconds = None if max_seconds is None else as_positive("max_seconds", max_seconds)
        self.checkpoints = as_checkpoints(checkpoints)
        self.n_evaluation = count("n_evaluation", n_evaluation, 1)
        self.stream = as_key(rng)
        self.own = own
        # Refuses what the algorithm cannot do, and wrong parameters, before anything runs.
        self._run = Run(self)

    @abstractmethod
    def learner(self, episode: Episode) -> Learner:
        """Return the compiled part, ready for its first episode."""

    @abstractmethod
    def learned(self, learner: Any) -> Learned:
        """Return what the compiled part has learned by now."""

    def counts(self, learner: Any) -> dict[str, Any]:
        """Return what the algorithm counts of its own."""
        return {}

    def warnings(self, learner: Any) -> list[str]:
        """Return reasons to doubt its result."""
        return []

    @property
    def parameters(self) -> dict[str, Any]:
        """How it is run, JSON-able."""
        return {"n_episodes": self.n_episodes, "max_seconds": self.max_seconds, **self.own}

    def learn(self, n_episodes: int | None = None, *, max_seconds: float | None = None) -> BaselineResult:
        """Learn from the beginning.

        Parameters
        ----------
        n_episodes : int, optional
        max_seconds : float, optional
            Each instead of the constructor's.

        Returns
        -------
        BaselineResult

        Raises
        ------
        KeyboardInterrupt
            On Ctrl-C; `result` still returns what was learned.
        ValueError, RuntimeError, ArithmeticError
            Where the environment breaks its interface or estimates overflow; names level and call (the episode).
        """
        if n_episodes is not None:
            self.n_episodes = count("n_episodes", n_episodes, 1)
        if max_seconds is not None:
            self.max_seconds = as_positive("max_seconds", max_seconds)
        if self._run.used:
            self._run = Run(self)
        self._run.play()
        return self._run.result()

    def result(self) -> BaselineResult:
        """Return what the last `learn` has got; its status is "interrupted" where an exception ended it.

        Raises
        ------
        RuntimeError
            If no episode has been learned from.
        """
        if self._run.learner.n_episodes == 0:
            raise RuntimeError("result: no episode has been learned from")
        return self._run.result()

    def __getstate__(self) -> dict[str, Any]:
        """Everything but the last run, which holds compiled workspace: a copy starts afresh."""
        return {name: value for name, value in vars(self).items() if name != "_run"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Restore a baseline that has not run."""
        vars(self).update(state)
        self._run = Run(self)


class Run:
    """One call of `Baseline.learn`."""

    def __init__(self, baseline: Baseline) -> None:
        self.baseline = baseline
        self.compiled = as_compiled(baseline.env)
        self.learner = baseline.learner(Episode(self.compiled.handle, self.compiled.features, baseline.stream))
        self.returns = np.zeros(0)
        self.points: list[tuple[int, float, float, float]] = []
        self.seconds = {"learning": 0.0, "evaluation": 0.0}
        self.used = False
        self.evaluated = 0
        self.status = "interrupted"

    def play(self) -> None:
        """Play all episodes, and look at the policy in between."""
        baseline, n = self.baseline, self.baseline.n_episodes
        deadline = None if baseline.max_seconds is None else time.perf_counter() + baseline.max_seconds
        self.used = True
        self.returns = np.zeros(n)
        well = True
        for end in checkpoints_until(baseline.checkpoints, n):
            began = time.perf_counter()
            try:
                well = self.learner.run(self.returns[self.learner.n_episodes : end], deadline)
            finally:
                self.seconds["learning"] += time.perf_counter() - began
            if self.learner.n_episodes > 0:
                self.look()
            if not well:
                break
        self.status = "finished" if well else "max_seconds"

    def look(self) -> Learned:
        """Add a point to the curve; return what it is about."""
        began = time.perf_counter()
        learned, n = self.baseline.learned(self.learner), self.learner.n_episodes
        if not (self.points and self.points[-1][0] == n):
            value, error = self.value_of(learned.policy)
            self.points.append((n, value, error, float(self.returns[:n].sum())))
        self.seconds["evaluation"] += time.perf_counter() - began
        return learned

    def value_of(self, policy: Policy | TablePolicy) -> tuple[float, float]:
        """Return the value of a policy and its standard error."""
        env = self.baseline.env
        if isinstance(env, FiniteMDP):
            return env.value(policy), 0.0
        if isinstance(policy, TablePolicy):
            assert env.latent is not None
            return env.latent.value(policy), 0.0
        n = self.baseline.n_evaluation
        stream = self.baseline.stream.at(EVALUATIONS + len(self.points))
        self.evaluated += n
        answer = RolloutSampler(env).evaluate(policy, n, stream=stream)
        return answer.value, answer.standard_error

    def result(self) -> BaselineResult:
        """Return what there is."""
        learned, n = self.look(), self.learner.n_episodes
        baseline = self.baseline
        returns = self.returns[:n].copy()
        warnings = baseline.warnings(self.learner)
        if returns.max() == returns.min() and n > 1:
            warnings.append("all episodes earned the same: nothing told actions apart")
        columns = [np.array(column) for column in zip(*self.points, strict=True)]
        return BaselineResult(
            algorithm=baseline.name,
            **learned._asdict(),
            curve=Curve(*columns),
            returns=returns,
            status=self.status,
            parameters=baseline.parameters,
            counts={
                "episodes": n,
                "transitions": n * baseline.env.horizon,
                "evaluation_trajectories": self.evaluated,
                **baseline.counts(self.learner),
            },
            seconds={**self.seconds, "total": sum(self.seconds.values())},
            key=baseline.stream.key,
            warnings=tuple(warnings),
        )


def as_compiled(env: FiniteMDP | CompiledEnv) -> CompiledEnv:
    """Return the environment in machine code: a finite MDP shows its features as they are."""
    return block_mdp(env) if isinstance(env, FiniteMDP) else env


def as_checkpoints(checkpoints: int | Sequence[int]) -> int | tuple[int, ...]:
    """Return a number of checkpoints, or ascending numbers of episodes."""
    if not isinstance(checkpoints, Sequence | np.ndarray):
        return integer("checkpoints", checkpoints, 1)
    return tuple(sorted({integer("checkpoints", n, 1) for n in checkpoints}))


def checkpoints_until(checkpoints: int | tuple[int, ...], n: int) -> list[int]:
    """Return the checkpoints of a run of n episodes, the last one included."""
    if isinstance(checkpoints, tuple):
        return [*(point for point in checkpoints if point < n), n]
    return sorted({round(x) for x in np.geomspace(1, n, checkpoints).tolist()} | {n})
