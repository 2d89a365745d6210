"""`Baseline`, the base class of the algorithms that DMQ is compared with."""

from __future__ import annotations

import contextlib
import inspect
import logging
import time
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar, NamedTuple, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from dmq_fast._support.checks import count, integer
from dmq_fast._support.stopwatch import Stopwatch
from dmq_fast._support.words import number_of, rounded
from dmq_fast.covers.doubts import Verdict, doubts, exactly
from dmq_fast.engine.session import noting_the_end
from dmq_fast.environments.block import block_mdp
from dmq_fast.environments.compiled import CompiledEnv
from dmq_fast.environments.finite import FiniteMDP
from dmq_fast.homogeneity import Groups, as_labels, declared_by, is_auto
from dmq_fast.kernels import Episode, Stream, as_positive
from dmq_fast.policy import Policy
from dmq_fast.results.history import Curve
from dmq_fast.results.result import BaselineResult
from dmq_fast.rewards import RewardModel, ValueRange, as_bounds
from dmq_fast.samplers.rollout import RolloutSampler
from dmq_fast.samplers.streams import as_key
from dmq_fast.table_policy import TablePolicy

__all__ = ["REGISTRY", "Baseline", "Estimates", "Learner", "PythonLearner", "register"]

LOGGER = logging.getLogger(__name__)

# First call of the streams that evaluations use; episodes use the calls below.
EVALUATIONS = 2**63

N_CHECKPOINTS = 20

REGISTRY: dict[str, type[Baseline]] = {}
"""Name -> class. All are made as ``REGISTRY[name](env, rng=seed, **parameters)`` and have ``learn()``."""

B = TypeVar("B", bound="type[Baseline]")


def register(algorithm: B) -> B:
    """Add a class to `REGISTRY` by its name; a class decorator.

    Examples
    --------
    >>> import dmq_fast as dmq
    >>> class Lazy(dmq.baselines.UniformLeastSquares):
    ...     name = "lazy"
    >>> dmq.baselines.register(Lazy) is dmq.baselines.REGISTRY.pop("lazy")
    True
    """
    if algorithm.name in REGISTRY:
        raise ValueError(f"name: {algorithm.name!r} is already registered")
    REGISTRY[algorithm.name] = algorithm
    return algorithm


class Estimates(NamedTuple):
    """The present estimates of an algorithm, linear or in a table, and the policy that is greedy on them."""

    policy: Policy | TablePolicy
    theta: NDArray[np.float64] | None = None
    table: tuple[NDArray[np.float64], ...] | None = None

    def verdicts(self) -> list[Verdict]:
        """Return whether the estimates of each level tell its actions apart; nothing where there are none."""
        levels = self.theta if self.theta is not None else [q.T for q in self.table or ()]
        return list(map(exactly, levels))


class Learner(Protocol):
    """The part of an algorithm that plays episodes and learns from each; compiled, or a `PythonLearner`."""

    @property
    def n_episodes(self) -> int:
        """Number of episodes learned from so far."""

    def run(self, returns: NDArray[np.float64], deadline: float | None = None) -> bool:
        """Learn from ``len(returns)`` more episodes and fill in what each earned, in the environment's own rewards.

        Returns False where `deadline`, a time of `time.perf_counter`, has passed between two episodes. A learner that
        stops by itself may leave the rest of the episodes out.
        """


class PythonLearner(ABC):
    """A learner written in Python, to try out an algorithm before it is compiled: some hundred times slower.

    Parameters
    ----------
    episode : Episode
        The environment, one episode at a time: ``features()`` of the present state, ``act(scores)``, ``step(action)``
        which returns the reward in units of the range (see `Baseline`), and ``draws(n)``, uniforms of the learner's
        own.

    Attributes
    ----------
    episode : Episode
    n_episodes : int
        Number of episodes learned from so far.

    Examples
    --------
    Averages of the next reward alone, under uniform actions:

    >>> import numpy as np
    >>> import dmq_fast as dmq
    >>> from dmq_fast.baselines import Baseline, Estimates, PythonLearner
    >>> class Averages(PythonLearner):
    ...     def __init__(self, episode):
    ...         super().__init__(episode)
    ...         self.sums = np.zeros((episode.horizon, episode.n_actions, episode.dimension))
    ...
    ...     def play(self):
    ...         for level in range(self.episode.horizon):
    ...             phi = self.episode.features()
    ...             action = self.episode.act(np.zeros(self.episode.n_actions))  # ties are broken at random
    ...             reward = self.episode.step(action)
    ...             self.sums[level, action] += reward * phi
    >>> class Myopic(Baseline):
    ...     name = "myopic"
    ...
    ...     def learner(self, episode):
    ...         return Averages(episode)
    ...
    ...     def estimates(self, learner):
    ...         theta = learner.sums / max(learner.n_episodes, 1)
    ...         return Estimates(dmq.Policy.greedy(theta), theta=theta)
    >>> result = Myopic(dmq.environments.river_swim(horizon=5), n_episodes=50, rng=0).learn()
    >>> result.n_trajectories, result.status
    (50, 'ended')
    """

    def __init__(self, episode: Episode) -> None:
        self.episode = episode
        self.n_episodes = 0

    @abstractmethod
    def play(self) -> object:
        """Play the episode that has just been started to its end, and learn from it."""

    def run(self, returns: NDArray[np.float64], deadline: float | None = None) -> bool:
        """Learn from ``len(returns)`` more episodes; see `Learner.run`."""
        for i in range(len(returns)):
            if i > 0 and deadline is not None and time.perf_counter() >= deadline:
                return False
            self.episode.reset(self.n_episodes)
            self.play()
            returns[i] = self.episode.earned
            self.n_episodes += 1
        return True


def parameter_names(kind: type[Baseline]) -> set[str]:
    """Return the names of the arguments that a baseline has of its own; none if it leaves them to `Baseline`."""
    own = [base for base in kind.__mro__ if issubclass(base, Baseline) and base is not Baseline]
    found = (inspect.signature(base.__init__).parameters.values() for base in own if "__init__" in vars(base))
    return {one.name for parameters in found for one in parameters if one.kind is one.KEYWORD_ONLY}


class Baseline(ABC):
    """An algorithm that learns from one episode after the other.

    A subclass sets `name` and defines `learner` and `estimates`. The decorator `register` adds it to the algorithms of
    the command line, of sweeps and of reports.

    Constants and estimates are in units of the range of what can be earned, in which all values to go are in [0, 1]:
    learners see r' = (r - [the episode ends] low) / (high - low), and Q = low + (high - low) phi^T theta, or the table
    in the place of phi^T theta. Values, returns and the curve are in the environment's own rewards.

    Parameters
    ----------
    env : FiniteMDP or CompiledEnv
    n_episodes : int
        Number of episodes to learn from; the most, for an algorithm that stops by itself.
    max_seconds : float, optional
        End the run, between two episodes, so many seconds after `learn` began. Compiled learners look at the clock
        every few milliseconds of work.
    checkpoints : int or sequence of int
        Numbers of episodes after which the policy is evaluated, or how many such numbers, in geometric order; the last
        episode is always one of them.
    n_evaluation : int
        Number of trajectories from which the value at a checkpoint is estimated, where the environment is no finite
        MDP.
    rng : None, int, SeedSequence, Generator or Stream, optional
        Source of the run's 128-bit key. Episode e draws from call e of it. The environment's uniforms are separate from
        those of the algorithm, so that algorithms with one key get the same ones from the environment.
    value_range : pair of float or array_like of shape (H, 2), optional
        Least and largest sum of rewards that can be earned from any level on, or from each level. Default: what the
        environment declares, and (0, 1) where it declares nothing. An episode outside of it ends the run.
    noise : float, optional
        > 0, a guess of the standard deviation of rewards, where they are means plus noise: default, what the
        environment declares. Then the range is that of means, and no episode is checked; each algorithm says what else
        changes. It needs a range, since no episode would tell that it is not (0, 1).

    Attributes
    ----------
    name : str
        Name in the registry.
    parameters : dict
        Parameters of the run, JSON-able.
    rewards : RewardModel
        The range and the noise.
    groups : tuple of int
        A label for each level; levels of one label share their data. They all differ where an algorithm has no argument
        `homogeneous`. What is declared is believed: no test looks for differences, as that of `SelfStopping` does.

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
        value_range: ValueRange = None,
        noise: float | None = None,
        **own: Any,
    ) -> None:
        if not isinstance(env, FiniteMDP | CompiledEnv):
            raise TypeError(
                f"env: expected a FiniteMDP or a CompiledEnv, whose single steps can be seen, got {type(env).__name__}"
            )
        if (names := parameter_names(type(self))) and (unknown := own.keys() - names):
            raise TypeError(f"{min(unknown)}: expected no such argument, {self.name} has {', '.join(sorted(names))}")
        self.env = env
        self.n_episodes = count("n_episodes", n_episodes, 1)
        self.max_seconds = None if max_seconds is None else as_positive("max_seconds", max_seconds)
        self.checkpoints = as_checkpoints(checkpoints)
        self.n_evaluation = count("n_evaluation", n_evaluation, 1)
        self.stream = as_key(rng)
        self.rewards = in_range(RewardModel.of(env, value_range, noise), env.horizon)
        self.groups = as_labels(False, env.horizon)
        self.own = own
        if "homogeneous" in own:
            given = own["homogeneous"]
            self.groups = as_labels(declared_by(env) if is_auto(given) else given, env.horizon)
            own["homogeneous"] = described(self.groups)
        # Wrong parameters, and environments that the algorithm cannot learn, are refused here.
        self._training = Training(self)

    @abstractmethod
    def learner(self, episode: Episode) -> Learner:
        """Return the learner, ready for its first episode."""

    @abstractmethod
    def estimates(self, learner: Any) -> Estimates:
        """Return the present estimates of the learner."""

    def counts(self, learner: Any) -> dict[str, Any]:
        """Return further counts of the algorithm, by name."""
        return {}

    def warnings(self, learner: Any) -> list[str]:
        """Return reasons to doubt the result."""
        return []

    def stopped(self, learner: Any) -> bool | None:
        """Return whether the learner has met the algorithm's own rule when to stop; None if it has no rule."""
        return None

    @property
    def constants(self) -> dict[str, Any]:
        """The algorithm's own parameters, without `homogeneous`."""
        return {name: value for name, value in self.own.items() if name != "homogeneous"}

    @property
    def noise(self) -> float:
        """The noise in units of the range; 0 where nothing is noisy."""
        return 0.0 if self.rewards.noise is None else self.rewards.in_units(self.rewards.noise)

    @property
    def parameters(self) -> dict[str, Any]:
        """Parameters of the run, JSON-able."""
        run = {"n_episodes": self.n_episodes, "max_seconds": self.max_seconds}
        return run | ({} if self.rewards.is_unit else self.rewards.describe()) | self.own

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
            If the environment breaks its interface or estimates overflow; the message names level and call (the
            episode).
        """
        if n_episodes is not None:
            self.n_episodes = count("n_episodes", n_episodes, 1)
        if max_seconds is not None:
            self.max_seconds = as_positive("max_seconds", max_seconds)
        if self._training.used:
            self._training = Training(self)
        LOGGER.info("start: %s, %s", self.name, self.parameters)
        try:
            with noting_the_end(self._training):
                self._training.play()
        finally:
            LOGGER.info("end: %s", self._training.text())
        return self._training.result().seen_in(self.env)

    def result(self) -> BaselineResult:
        """Return the result of the last `learn`; its status is "interrupted" after Ctrl-C, "failed" after an exception.

        Raises
        ------
        RuntimeError
            If no episode has been learned from.
        """
        if self._training.learner.n_episodes == 0:
            raise RuntimeError("result: no episode has been learned from")
        return self._training.result().seen_in(self.env)

    def __getstate__(self) -> dict[str, Any]:
        """Return all attributes but the last training, which holds compiled workspace: a copy starts afresh."""
        return {name: value for name, value in vars(self).items() if name != "_training"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Restore a baseline that has not run."""
        vars(self).update(state)
        self._training = Training(self)


class Training:
    """One call of `Baseline.learn`: the learner, its returns, and the curve."""

    def __init__(self, baseline: Baseline) -> None:
        self.baseline = baseline
        self.compiled = as_compiled(baseline.env)
        episode = Episode(self.compiled.handle, self.compiled.features, baseline.stream, baseline.rewards)
        self.learner = baseline.learner(episode)
        self.returns = np.zeros(0)
        self.points: list[tuple[int, float, float, float]] = []
        self.seconds = {"learning": 0.0, "evaluation": 0.0}
        self.used = False
        self.n_evaluated = 0
        self.status = "running"

    def play(self) -> None:
        """Play all episodes, or until the algorithm stops by itself, and evaluate the policy at the checkpoints."""
        baseline, n = self.baseline, self.baseline.n_episodes
        self.used = True
        self.returns = np.zeros(n)
        complete, stopped = True, None
        limit = baseline.max_seconds
        with contextlib.nullcontext() if limit is None else contextlib.closing(Stopwatch(limit)) as watch:
            for end in checkpoints_until(baseline.checkpoints, n):
                began = time.perf_counter()
                try:
                    complete = self.play_until(end, watch)
                finally:
                    self.seconds["learning"] += time.perf_counter() - began
                if self.learner.n_episodes > 0:
                    self.evaluate()
                    LOGGER.info("%s", self.text())
                stopped = baseline.stopped(self.learner)
                if stopped or not complete:
                    break
        if not complete:
            self.status = "max_seconds"
        else:
            self.status = {None: "ended", False: "max_trajectories", True: "finished"}[stopped]

    def text(self) -> str:
        """Return status, episodes and the last value on one line."""
        value = f", value {rounded(self.points[-1][1], 6)}" if self.points else ""
        return f"{self.status}, {number_of(self.learner.n_episodes, 'episode')}{value}"

    def play_until(self, end: int, watch: Stopwatch | None) -> bool:
        """Play the episodes up to a checkpoint; return False if `max_seconds` are over before."""
        while True:
            deadline = None if watch is None else time.perf_counter() + watch.left()
            if self.learner.run(self.returns[self.learner.n_episodes : end], deadline):
                return True
            if watch is None or watch.left() <= 0.0:  # else the process was stopped meanwhile
                return False

    def evaluate(self) -> Estimates:
        """Return the present estimates, and add the value of their policy to the curve."""
        began = time.perf_counter()
        estimates, n = self.baseline.estimates(self.learner), self.learner.n_episodes
        if not (self.points and self.points[-1][0] == n):
            value, error = self.value_of(estimates.policy)
            self.points.append((n, value, error, float(self.returns[:n].sum())))
        self.seconds["evaluation"] += time.perf_counter() - began
        return estimates

    def value_of(self, policy: Policy | TablePolicy) -> tuple[float, float]:
        """Return the value of a policy and its standard error, in the environment's own rewards."""
        env = self.baseline.env
        if isinstance(env, FiniteMDP):
            return env.value(policy), 0.0
        if isinstance(policy, TablePolicy):
            assert env.latent is not None
            return env.latent.value(policy), 0.0
        baseline, n = self.baseline, self.baseline.n_evaluation
        stream = baseline.stream.at(EVALUATIONS + len(self.points))
        self.n_evaluated += n
        answer = RolloutSampler(env).evaluate(policy, n, stream=stream)
        return answer.value, answer.standard_error

    def result(self) -> BaselineResult:
        """Return the result of the episodes learned from so far."""
        estimates, n = self.evaluate(), self.learner.n_episodes
        baseline = self.baseline
        returns = self.returns[:n].copy()
        warnings = baseline.warnings(self.learner)
        if returns.max() == returns.min() and n > 1:
            warnings.append("all episodes had the same return: nothing shows which actions are better")
        elif baseline.env.n_actions > 1:
            warnings += doubts(estimates.verdicts())
        columns = [np.array(column) for column in zip(*self.points, strict=True)]
        return BaselineResult(
            algorithm=baseline.name,
            **estimates._asdict(),
            curve=Curve(*columns),
            returns=returns,
            status=self.status,
            parameters=baseline.parameters,
            counts={
                "episodes": n,
                "transitions": n * baseline.env.horizon,
                "evaluation_trajectories": self.n_evaluated,
                **baseline.counts(self.learner),
            },
            seconds={**self.seconds, "total": sum(self.seconds.values())},
            key=baseline.stream.key,
            warnings=tuple(warnings),
        )


def described(groups: Groups) -> bool | list[int]:
    """Return labels as JSON has them: whether all are the same, if all or none are."""
    if len(set(groups)) in (1, len(groups)):
        return len(set(groups)) < len(groups)
    return list(groups)


def in_range(rewards: RewardModel, horizon: int) -> RewardModel:
    """Return a model of rewards with a range: (0, 1) where none is known, which every episode then has to confirm."""
    if rewards.known:
        return rewards
    if rewards.noise is not None:  # nothing would notice that it is another
        raise ValueError("value_range: expected the range of the means of noisy rewards, got none")
    return RewardModel(as_bounds((0.0, 1.0), horizon))


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
