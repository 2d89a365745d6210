"""The value of a learned policy: exact where the environment has tables, otherwise from fresh trajectories.

Values are in points: the rewards of the environment as it pays them.
"""

from __future__ import annotations

from typing import Any

from dmq_fast import samplers
from dmq_fast.environments.finite import FiniteMDP
from dmq_fast.environments.noisy import NoisyMDP
from dmq_fast.kernels import Stream
from dmq_fast.policy import Policy
from dmq_fast.results.score import score
from dmq_fast.samplers.streams import UNIFORM_CALL

__all__ = ["appraise", "environment_of", "solved_by", "tables_of", "uniform_value"]

UNKNOWN = {
    "value": None,
    "value_standard_error": None,
    "value_trajectories": None,
    "uniform_value": None,
    "uniform_value_trajectories": None,
    "optimal_value": None,
    "score": None,
    "gap": None,
}


def environment_of(env: Any) -> Any:
    """Return the environment that a sampler plays, if it shows one; anything else as it is."""
    return env.env if isinstance(env, samplers.Sampler) and env.env is not None else env


def tables_of(env: Any) -> FiniteMDP | None:
    """Return the tables of an environment, or of the environment that a sampler plays, if it has any.

    Those of a `NoisyMDP` are the mean rewards that it simulates: it is worth what they are.
    """
    environment = environment_of(env)
    tables = environment.tables if isinstance(environment, NoisyMDP) else environment
    return tables if isinstance(tables, FiniteMDP) else None


def solved_by(env: Any) -> FiniteMDP | None:
    """Return the tables that give the optimum of an environment, and of its sampler; None where there are none.

    A block MDP has the optimum of its latent MDP, whose tables know nothing of observations.
    """
    tables = tables_of(env)
    solved = getattr(environment_of(env), "latent", None) if tables is None else tables
    return solved if isinstance(solved, FiniteMDP) else None


def uniform_value(env: Any) -> float | None:
    """Return the exact value of uniform play, which no observation changes; None without tables."""
    solved = solved_by(env)
    return None if solved is None else float(solved.value(Policy.uniform(solved.horizon)))


def appraise(env: Any, policy: Any, n: int, stream: Stream) -> dict[str, Any]:
    """Return the value of a policy beside those of uniform play and of the best policy, each None where it is unknown.

    Parameters
    ----------
    env : FiniteMDP, CompiledEnv, BatchEnvironment or Sampler
    policy : Policy, TablePolicy or None
        Only tables give the value of a `TablePolicy`.
    n : int
        Number of trajectories of an estimate; 0 for none.
    stream : Stream
        Source of these trajectories. Those of uniform play are from another call of it.

    Returns
    -------
    dict
        "value", "value_standard_error" and "value_trajectories" (None where the value is exact), "uniform_value" and
        "uniform_value_trajectories", "optimal_value", "score" as `results.score.score` has it, and "gap".
    """
    worth: dict[str, Any] = dict(UNKNOWN)
    tables, solved = tables_of(env), solved_by(env)
    if solved is not None:
        worth |= {"optimal_value": float(solved.optimal_value), "gap": float(solved.gap)}
        worth["uniform_value"] = uniform_value(env)
    if policy is None:
        return worth
    if tables is not None:
        worth["value"] = float(tables.value(policy))
    elif isinstance(policy, Policy) and n > 0:
        sampler = samplers.as_sampler(env)
        found = samplers.estimate_value(sampler, policy, n, stream=stream)
        error = found.standard_error if found.n > 1 else None
        worth |= {"value": found.value, "value_standard_error": error, "value_trajectories": found.n}
        if solved is None:
            played = samplers.estimate_value(
                sampler, Policy.uniform(sampler.horizon), n, stream=stream.at(UNIFORM_CALL)
            )
            worth |= {"uniform_value": played.value, "uniform_value_trajectories": played.n}
    if worth["value"] is not None and worth["optimal_value"] is not None:
        worth["score"] = score(worth["value"], worth["uniform_value"], worth["optimal_value"])
    return worth
