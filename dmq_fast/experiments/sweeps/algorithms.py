"""The algorithms that a sweep can name.

An algorithm is registered by a factory ``factory(env, seed, **parameters)``. The object that it returns has a method
``learn(budget)``, which returns an `Outcome` or an object with attributes of the same names. To add one::

    from dmq_fast.experiments import Budget, Outcome, algorithms

    class RandomSearch:
        def __init__(self, env, seed, n_policies):
            ...
        def learn(self, budget):
            ...
            return Outcome(status="finished", n_trajectories=n, policy=best)

    def random_search(env, seed, *, n_policies=100):
        return RandomSearch(env, seed, n_policies)

    algorithms.REGISTRY["random-search"] = random_search

A sweep may also name a factory as ``module:function`` without registering it. The factory must refuse a wrong
parameter by a TypeError or ValueError whose message begins with the name of the parameter: so the sweep can point to
the line of its specification before any run begins. The factory is pickled by reference to reach the worker processes,
so it must be a function of a module that they can import.
"""

from __future__ import annotations

import contextlib
import inspect
import logging
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, Protocol

import numpy as np

from dmq_fast import baselines
from dmq_fast._support.described import Parameter, summary_of
from dmq_fast._support.described import parameters_of as of_function
from dmq_fast._support.imported import imported
from dmq_fast._support.names import suggestion
from dmq_fast.baselines import Baseline, BaselineResult, TablePolicy
from dmq_fast.engine.budget import Budget
from dmq_fast.engine.learner import LOGGER as LEARNING
from dmq_fast.environments import CompiledEnv, FiniteMDP
from dmq_fast.learners import DMQ, SelfStopping
from dmq_fast.learners.named import LEARNERS, SPELLED, as_given, decisions_of, named_learner, resources_of
from dmq_fast.policy import Policy
from dmq_fast.results.appraisal import uniform_value
from dmq_fast.results.result import COMPLETE, DMQResult
from dmq_fast.results.score import solves
from dmq_fast.samplers import BatchEnvironment, Sampler

__all__ = ["REGISTRY", "Algorithm", "Budget", "Environment", "Factory", "Outcome", "describe", "find", "parameters_of"]

Environment = FiniteMDP | CompiledEnv | BatchEnvironment | Sampler
"""The environments that a factory may get."""


@dataclass(frozen=True)
class Outcome:
    """The result of a run, as far as a sweep stores it.

    Attributes
    ----------
    status : str
        "finished" or "ended", or the budget that ended the run: "max_trajectories", "max_seconds", ….
    n_trajectories : int
        Number of trajectories drawn; an attribute ``episodes`` is read in its place.
    policy : Policy or TablePolicy, optional
        The learned policy; the sweep computes or estimates its value.
    value : float, optional
        The value of what was learned, if the algorithm returns it and there is no `policy`.
    counts, seconds, details : mapping
        Further data that JSON can hold; `seconds` by phase.
    warnings : sequence of str
        Reasons to doubt the result.
    """

    status: str
    n_trajectories: int
    policy: Policy | TablePolicy | None = None
    value: float | None = None
    counts: Mapping[str, Any] = field(default_factory=dict)
    seconds: Mapping[str, float] = field(default_factory=dict)
    details: Mapping[str, Any] = field(default_factory=dict)
    warnings: Sequence[str] = ()

    @classmethod
    def of(cls, result: Any) -> Outcome:
        """Return the outcome with the attributes of an object that ``learn`` returned."""
        if isinstance(result, Outcome):
            return result
        given = {f.name: getattr(result, f.name) for f in fields(cls) if getattr(result, f.name, None) is not None}
        if "n_trajectories" not in given and hasattr(result, "episodes"):
            given["n_trajectories"] = result.episodes
        for name in ("status", "n_trajectories"):
            if name not in given:
                raise TypeError(f"learn: expected a result with the attribute {name}, got {type(result).__name__}")
        return cls(**given)


class Algorithm(Protocol):
    """The interface of the objects that a factory makes."""

    def learn(self, budget: Budget) -> Any:
        """Learn within the budget; return an `Outcome` or an object with its attributes."""


Factory = Callable[..., Algorithm]


SHARED = ("max_trajectories", "max_seconds", "workers")
"""Arguments of `learn` that are keys of a specification, or that a sweep gives otherwise: its workers do whole runs."""


class LearnerAlgorithm:
    """`SelfStopping` or `DMQ` as an `Algorithm`."""

    def __init__(self, learner: SelfStopping | DMQ, limits: dict[str, Any]) -> None:
        self.learner, self.limits, self.warnings = learner, limits, learner.warnings()
        learner.resources(**limits)  # refuses wrong ones before the sweep begins

    def learn(self, budget: Budget) -> Outcome:
        """Learn, without a log: a sweep says once what it would say in every run."""
        with unlogged():
            result = self.learner.learn(
                max_trajectories=budget.max_trajectories, max_seconds=budget.max_seconds, **self.limits
            )
        details: dict[str, Any] = {"parameters": result.parameters}
        if isinstance(result, DMQResult):
            details |= {
                "variant": result.variant,
                "options": result.options,
                "function_class": result.function_class,
                "cover_sizes": list(result.cover_sizes),
            }
        else:
            details |= {"mode": result.mode, "stopping": result.stopping}
        return replace(Outcome.of(result), details=details)


@contextlib.contextmanager
def unlogged() -> Iterator[None]:
    """Drop the warnings that learners log in this thread."""
    thread = threading.get_ident()

    def keep(record: logging.LogRecord) -> bool:
        return record.thread != thread or record.levelno < logging.WARNING

    LEARNING.addFilter(keep)
    try:
        yield
    finally:
        LEARNING.removeFilter(keep)


class LearnerFactory:
    """Makes a `LearnerAlgorithm` from the arguments of `SelfStopping` or `DMQ` that a text can give."""

    def __init__(self, name: str) -> None:
        self.name, self.kind = name, LEARNERS[name]
        self.limits = tuple(one for one in resources_of(name) if one.name not in SHARED)
        self.parameters = (*decisions_of(name), *self.limits)
        # From the complete signature, a sweep refuses unknown parameters and stores the defaults.
        self.__signature__ = signature_of(
            inspect.Parameter(one.name, inspect.Parameter.KEYWORD_ONLY, default=one.default) for one in self.parameters
        )

    def __call__(self, env: Environment, seed: int | np.random.SeedSequence, **parameters: Any) -> LearnerAlgorithm:
        """Return the algorithm."""
        limits = {one.name: parameters.pop(one.name, None) for one in self.limits}
        return LearnerAlgorithm(named_learner(self.name, env, parameters | {"rng": seed}), limits)

    def __reduce__(self) -> tuple[type[LearnerFactory], tuple[str]]:
        """Pickle the factory by the name of its learner."""
        return LearnerFactory, (self.name,)


def signature_of(parameters: Iterable[inspect.Parameter]) -> inspect.Signature:
    """Return the signature of a factory with these parameters."""
    first = [inspect.Parameter(name, inspect.Parameter.POSITIONAL_OR_KEYWORD) for name in ("env", "seed")]
    return inspect.Signature([*first, *parameters])


class BaselineAlgorithm:
    """A baseline as an `Algorithm`."""

    def __init__(self, baseline: Baseline) -> None:
        self.baseline = baseline

    def learn(self, budget: Budget) -> Outcome:
        """Run `Baseline.learn` for as many episodes as it was made for, or as the budget allows."""
        wanted = self.baseline.n_episodes
        n = wanted if budget.max_trajectories is None else min(wanted, budget.max_trajectories)
        result = self.baseline.learn(n, max_seconds=budget.max_seconds)
        cut = n < wanted and not result.counts.get("stopped_after")
        # Without tables and without a `Policy`, the last point of the curve is the only estimate of the value.
        env = self.baseline.env
        runnable = isinstance(env, FiniteMDP) or isinstance(result.policy, Policy)
        return replace(
            Outcome.of(result),
            status="max_trajectories" if result.status in COMPLETE and cut else result.status,
            policy=result.policy if runnable else None,
            details={"parameters": result.parameters, **progress_of(result, env.optimal_value, uniform_value(env))},
        )


GOOD = 0.95
"""Score from which a policy counts as learned; see `results.score.score`."""

REWARD_EVERY = 100
"""Number of episodes between evaluations of the running mean reward, as in papers on locks."""


def progress_of(result: BaselineResult, optimum: float | None, uniform: float | None) -> dict[str, Any]:
    """Return the learning curve of a baseline and the episodes it needed.

    Parameters
    ----------
    result : BaselineResult
    optimum, uniform : float or None
        Values of the best policy and of uniform play, where known.

    Returns
    -------
    dict
        "curve" holds the columns "episodes", "value", "standard_error" and "reward" at the checkpoints. If the optimum
        is known, the curve has a column "regret", and the dict three numbers of episodes, None if not reached:
        "learned_at", the first checkpoint whose policy scores 95 %; "kept_at", the first from which on the policies of
        all checkpoints do; and "solved_at", the first multiple of 100 with a running mean reward above the middle
        between uniform play and the optimum, as papers on locks report it, where uniform play earns nothing.

        The regret is that of the rewards that were drawn, in points: it may fall by luck. That of the policies that
        were played is not known, as they explore, and a curve has the values of those that would be returned.
    """
    curve = result.curve
    columns = {name: column.tolist() for name, column in curve._asdict().items()}
    if optimum is None or uniform is None:
        return {"curve": columns}
    learned = np.array([solves(value, uniform, optimum, GOOD) for value in columns["value"]], dtype=bool)
    good, kept = curve.episodes[learned], curve.episodes[np.logical_and.accumulate(learned[::-1])[::-1]]
    return {
        "curve": columns | {"regret": (curve.episodes * optimum - curve.reward).tolist()},
        "learned_at": int(good[0]) if good.size else None,
        "kept_at": int(kept[0]) if kept.size else None,
        "solved_at": result.first_above((uniform + optimum) / 2, REWARD_EVERY),
    }


class BaselineFactory:
    """Makes a `BaselineAlgorithm` from `n_episodes`, `checkpoints`, `n_evaluation` and the baseline's parameters."""

    def __init__(self, name: str) -> None:
        self.kind = kind = baselines.REGISTRY[name]
        own = inspect.signature(kind).parameters.values()
        common = inspect.signature(Baseline).parameters
        self.__signature__ = signature_of(
            [
                *(common[shared] for shared in ("n_episodes", "checkpoints", "n_evaluation")),
                *(parameter for parameter in own if parameter.kind is parameter.KEYWORD_ONLY),
            ]
        )

    def __call__(
        self, env: FiniteMDP | CompiledEnv, seed: int | np.random.SeedSequence, **parameters: Any
    ) -> BaselineAlgorithm:
        """Return the algorithm."""
        if "homogeneous" in parameters:
            parameters["homogeneous"] = as_given("homogeneous", parameters["homogeneous"])
        return BaselineAlgorithm(self.kind(env, rng=seed, **parameters))

    def __reduce__(self) -> tuple[type[BaselineFactory], tuple[str]]:
        """Pickle the factory by the name of its baseline."""
        return BaselineFactory, (self.kind.name,)


REGISTRY: dict[str, Factory] = {
    **{name: LearnerFactory(name) for name in LEARNERS},
    **{name: BaselineFactory(name) for name in baselines.REGISTRY},
}


def identity(name: str, parameters: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    """Return name and parameters of a learner as version 0.2.0 had them: cells keep the hashes of these.

    There both learners were "dmq", what is a default now had no value, no epsilon was a share, and all algorithms had
    data by level, so that a cell with other data has another hash.
    """
    if name in baselines.REGISTRY and parameters.get("homogeneous") is False:
        parameters = {key: value for key, value in parameters.items() if key != "homogeneous"}
    if name == "bpi-ucbvi" and parameters.get("epsilon") == "5%":
        return name, parameters | {"epsilon": 0.05}
    if name == "dmq":
        return name, {key: value for key, value in parameters.items() if (key, value) != ("ratio", 2.0)}
    if name != "self-stopping":
        return name, parameters
    defaults = {one.name: one.default for one in decisions_of(name)}
    kept = {key: value for key, value in parameters.items() if key == "epsilon" or value != defaults[key]}
    shared = parameters.get("homogeneous", defaults["homogeneous"])
    kept = {key: value for key, value in kept.items() if key != "homogeneous"}
    kept |= {} if shared in (False, "no") else {"homogeneous": shared}  # the runs of 0.2.0 had data by level
    if kept.get("mode") == "strict":  # "auto" is that, but for features in which Q* is not linear
        del kept["mode"]
    if kept.get("mode") == "quick":
        kept["strict"] = kept.pop("mode") == "strict"
    return "dmq", {"sampler": "rollout", "variant": "adaptive"} | kept


def find(name: str) -> Factory:
    """Return the factory of a name: a key of :data:`REGISTRY`, or ``module:function``.

    Raises
    ------
    ValueError
        If there is no such factory.
    """
    if name in REGISTRY:
        return REGISTRY[name]
    if ":" in name:
        return imported("name", name)
    raise ValueError(
        f"name: expected one of {', '.join(REGISTRY)} or module:function, got {name!r}{suggestion(name, REGISTRY)}"
    )


def describe(name: str) -> tuple[str, tuple[Parameter, ...]]:
    """Return what an algorithm is, and its parameters with their defaults and meanings.

    They come from signatures and docstrings.

    Raises
    ------
    ValueError
        As `find` does.
    """
    factory = find(name)
    names = list(inspect.signature(factory).parameters)[2:]
    if isinstance(factory, LearnerFactory):
        return summary_of(factory.kind), factory.parameters
    if isinstance(factory, BaselineFactory):
        known = {parameter.name: parameter for kind in (Baseline, factory.kind) for parameter in of_function(kind)}
        if "homogeneous" in known:
            one = known["homogeneous"]
            known["homogeneous"] = one._replace(type=str, choices=(), help=f"{one.help} {SPELLED['homogeneous']}")
        return summary_of(factory.kind), tuple(known[name] for name in names)
    return summary_of(factory), tuple(parameter for parameter in of_function(factory) if parameter.name in names)


def parameters_of(factory: Callable[..., Any], *, but: Iterable[str]) -> dict[str, Any] | None:
    """Return names and defaults of a function's parameters, or None if it takes any keyword.

    The default of a required parameter is `inspect.Parameter.empty`. Parameters in `but` are left out.
    """
    parameters = inspect.signature(factory).parameters.values()
    if any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters):
        return None
    return {parameter.name: parameter.default for parameter in parameters if parameter.name not in but}
