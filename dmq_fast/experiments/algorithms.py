"""Algorithms by name, for sweeps.

An algorithm is a factory ``factory(env, seed, **parameters)``; what it makes has a method ``learn(budget)`` that
returns an `Outcome` or anything with attributes of those names. To add one::

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

A sweep may also name it as ``module:function`` without registering it. A wrong parameter must be refused by the
factory, by a TypeError or ValueError whose message begins with the parameter's name: that is how a sweep finds the
line of its specification before anything runs. The factory is pickled by reference to get to the workers, so it is a
function of a module that they can import.
"""

from __future__ import annotations

import difflib
import importlib
import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, Protocol

import numpy as np

from dmq_fast import samplers
from dmq_fast.dmq import DMQ
from dmq_fast.environments import CompiledEnv, FiniteMDP
from dmq_fast.policy import Policy
from dmq_fast.result import Result
from dmq_fast.samplers import BatchEnvironment, Sampler

__all__ = ["REGISTRY", "Algorithm", "Budget", "Environment", "Factory", "Outcome", "find", "parameters_of"]

Environment = FiniteMDP | CompiledEnv | BatchEnvironment | Sampler
"""What an algorithm may be handed."""


@dataclass(frozen=True)
class Budget:
    """Where one run is to stop. None: no limit."""

    max_trajectories: int | None = None
    max_seconds: float | None = None


@dataclass(frozen=True)
class Outcome:
    """What is stored of a run.

    Attributes
    ----------
    status : str
        "finished", or what ended the run: "max_trajectories", "max_seconds", ….
    n_trajectories : int
        Trajectories drawn, called ``episodes`` by some.
    policy : Policy, optional
        What was learned; the sweep finds its value.
    value : float, optional
        The value, where the algorithm itself knows it and there is no `policy`.
    counts, seconds, details : mapping
        Whatever else is worth keeping, as JSON can hold it; `seconds` by phase.
    warnings : sequence of str
        Reasons to doubt the result.
    """

    status: str
    n_trajectories: int
    policy: Policy | None = None
    value: float | None = None
    counts: Mapping[str, Any] = field(default_factory=dict)
    seconds: Mapping[str, float] = field(default_factory=dict)
    details: Mapping[str, Any] = field(default_factory=dict)
    warnings: Sequence[str] = ()

    @classmethod
    def of(cls, result: Any) -> Outcome:
        """Read the attributes of what ``learn`` returned."""
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
    """What a factory makes."""

    def learn(self, budget: Budget) -> Any:
        """Run within the budget; return an `Outcome` or what has its attributes."""


Factory = Callable[..., Algorithm]


class DMQAlgorithm:
    """DMQ as an `Algorithm`."""

    def __init__(self, env: Environment, settings: dict[str, Any]) -> None:
        self.env, self.settings = env, settings
        DMQ(env, **settings)  # refuses wrong settings before the sweep begins

    def learn(self, budget: Budget) -> Outcome:
        """Run `DMQ.learn`."""
        limits: dict[str, Any] = {"max_trajectories": budget.max_trajectories, "max_seconds": budget.max_seconds}
        result: Result = DMQ(self.env, **self.settings, **limits).learn()
        return Outcome(
            status=result.status,
            n_trajectories=result.n_trajectories,
            policy=result.policy,
            counts=result.counts,
            seconds=result.seconds,
            details={
                "variant": result.variant,
                "options": result.options,
                "parameters": result.parameters,
                "cover_sizes": list(result.cover_sizes),
            },
            warnings=result.warnings,
        )


def dmq(
    env: Environment,
    seed: int | np.random.SeedSequence,
    *,
    sampler: str = "rollout",
    n_samples: int = 100,
    ratio: float | None = None,
    eps_s: float | None = None,
    eps_t: float | None = None,
    eps_r: float = 1e-2,
    ridge: float = 1e-3,
    variant: str = "sound",
    initial: str | Sequence[int] | None = None,
    recheck: bool | None = None,
    oracle: str | None = None,
    mixture: str | None = None,
    max_policies: int | None = None,
) -> DMQAlgorithm:
    """Make `dmq_fast.DMQ`, whose parameters these are.

    `sampler` is "rollout", "flow" or "exact"; the latter two need tables.
    """
    settings = {
        "n_samples": n_samples, "ratio": ratio, "eps_s": eps_s, "eps_t": eps_t, "eps_r": eps_r, "ridge": ridge,
        "variant": variant, "initial": initial, "recheck": recheck, "oracle": oracle, "mixture": mixture,
        "max_policies": max_policies, "rng": seed,
    }  # fmt: skip
    kinds = {"rollout": None, "flow": samplers.FlowSampler, "exact": samplers.ExactSampler}
    if not isinstance(sampler, str) or sampler not in kinds:
        raise ValueError(f"sampler: expected one of {', '.join(kinds)}, got {sampler!r}")
    if (kind := kinds[sampler]) is not None:
        if not isinstance(env, FiniteMDP):
            raise ValueError(f"sampler: {sampler} needs a FiniteMDP, got {type(env).__name__}")
        env = kind(env)
    return DMQAlgorithm(env, settings)


REGISTRY: dict[str, Factory] = {"dmq": dmq}


def find(name: str) -> Factory:
    """Return the factory of a name: a key of :data:`REGISTRY`, or ``module:function``.

    Raises
    ------
    ValueError
        If there is none of that name.
    """
    if name in REGISTRY:
        return REGISTRY[name]
    if ":" in name:
        return imported(name)
    raise ValueError(
        f"name: expected one of {', '.join(REGISTRY)} or module:function, got {name!r}{close(name, REGISTRY)}"
    )


def imported(name: str) -> Callable[..., Any]:
    """Return what ``module:function`` names."""
    module, _, attribute = name.partition(":")
    try:
        found: Any = getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError, ValueError) as error:
        raise ValueError(f"name: {name!r} cannot be imported: {error}") from error
    if not callable(found):
        raise ValueError(f"name: expected a function, and {name!r} is {type(found).__name__}")
    return found  # type: ignore[no-any-return]


def parameters_of(factory: Callable[..., Any], *, but: Iterable[str]) -> dict[str, Any] | None:
    """Return the names and defaults of a function's parameters, `inspect.Parameter.empty` for those without.

    None where the function takes any keyword.
    """
    parameters = inspect.signature(factory).parameters.values()
    if any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters):
        return None
    return {parameter.name: parameter.default for parameter in parameters if parameter.name not in but}


def close(given: str, known: Iterable[str]) -> str:
    """Suggest the known name that is meant, if one is near."""
    matches = difflib.get_close_matches(given, list(known), n=1)
    return f"; did you mean {matches[0]!r}?" if matches else ""
