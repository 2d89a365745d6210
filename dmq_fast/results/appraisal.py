"""The value of a learned policy: exact where the environment has tables, otherwise from fresh trajectories."""

from __future__ import annotations

from typing import Any

from dmq_fast import samplers
from dmq_fast.environments.finite import FiniteMDP
from dmq_fast.kernels import Stream
from dmq_fast.policy import Policy

__all__ = ["appraise", "environment_of", "tables_of"]

UNKNOWN = {
    "value": None,
    "value_standard_error": None,
    "value_trajectories": None,
    "optimal_value": None,
    "original_value": None,
    "original_value_standard_error": None,
    "original_optimal_value": None,
    "gap": None,
}


def environment_of(env: Any) -> Any:
    """Return the environment that a sampler plays, if it shows one; anything else as it is."""
    return env.env if isinstance(env, samplers.Sampler) and env.env is not None else env


def tables_of(env: Any) -> FiniteMDP | None:
    """Return the tables of an environment, or of the environment that a sampler plays, if it has any."""
    tables = environment_of(env)
    return tables if isinstance(tables, FiniteMDP) else None


def appraise(env: Any, policy: Any, n: int, stream: Stream) -> dict[str, Any]:
    """Return the value of a policy beside the optimum, each None where it is unknown.

    Parameters
    ----------
    env : FiniteMDP, CompiledEnv, BatchEnvironment or Sampler
    policy : Policy, TablePolicy or None
        Only tables give the value of a `TablePolicy`.
    n : int
        Number of trajectories of an estimate; 0 for none.
    stream : Stream
        Source of these trajectories.

    Returns
    -------
    dict
        "value", "value_standard_error" and "value_trajectories" (None where the value is exact), "optimal_value" and
        "gap"; "original_value", "original_value_standard_error" and "original_optimal_value" in the units of an
        environment that rescales its rewards.
    """
    worth: dict[str, Any] = dict(UNKNOWN)
    environment, tables = environment_of(env), tables_of(env)
    # A block MDP has the optimum of its latent MDP, whose tables know nothing of observations.
    solved = getattr(environment, "latent", None) if tables is None else tables
    original = getattr(environment, "original_value", None)
    if isinstance(solved, FiniteMDP):
        worth |= {"optimal_value": float(solved.optimal_value), "gap": float(solved.gap)}
        if original is not None:
            worth["original_optimal_value"] = original(worth["optimal_value"])
    if policy is None:
        return worth
    if tables is not None:
        worth["value"] = float(tables.value(policy))
    elif isinstance(policy, Policy) and n > 0:
        found = samplers.estimate_value(samplers.as_sampler(env), policy, n, stream=stream)
        error = found.standard_error if found.n > 1 else None
        worth |= {"value": found.value, "value_standard_error": error, "value_trajectories": found.n}
    if original is not None and worth["value"] is not None:
        value, error = worth["value"], worth["value_standard_error"]
        worth["original_value"] = original(value)
        if error is not None:
            worth["original_value_standard_error"] = original(value + error) - original(value)
    return worth
