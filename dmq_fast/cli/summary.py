"""The summary of a run: as plain data, and as a table for a person."""

from __future__ import annotations

import importlib.metadata
import platform
from typing import TYPE_CHECKING, Any

from dmq_fast.cli.options import as_options
from dmq_fast.cli.subject import Subject

if TYPE_CHECKING:
    from dmq_fast.learners import DMQ, SelfStopping
    from dmq_fast.results.result import Result

__all__ = ["summarise", "summary_table"]


def summarise(
    subject: Subject, learner: DMQ | SelfStopping, result: Result, worth: dict[str, Any], options: dict[str, Any]
) -> dict[str, Any]:
    """Return the summary of a run as plain data."""
    from dmq_fast import theory
    from dmq_fast.environments import FiniteMDP
    from dmq_fast.kernels.build import build
    from dmq_fast.learners import DMQ
    from dmq_fast.results.result import DMQResult, SelfStoppingResult

    sampler, own, sampled = learner.sampler, dict[str, Any](), options.get("sampler") or "rollout"
    if isinstance(result, DMQResult) and isinstance(learner, DMQ):
        printed = theory.printed_cover_bound(sampler.dimension, learner.parameters.eps_r)
        own = {
            "variant": result.variant,
            "options": result.options,
            "function_class": result.function_class,
            "cover_sizes": list(result.cover_sizes),
            "printed_cover_bound": printed if result.is_plain_linear else None,
            "sure_cover_bound": learner.solver().cover_bound(len(learner.initial)),
        }
    elif isinstance(result, SelfStoppingResult):
        own = {"mode": result.mode, "stopping": result.stopping}
    return {
        "environment": subject.name,
        "environment_parameters": subject.parameters,
        "environment_seed": subject.seed,
        "horizon": sampler.horizon,
        "n_actions": sampler.n_actions,
        "dimension": sampler.dimension,
        "algorithm": "dmq" if isinstance(learner, DMQ) else "self-stopping",
        "parameters": result.parameters,
        "sampler": sampled if isinstance(subject.env, FiniteMDP) else type(sampler).__name__,
        "arithmetic": sampler.arithmetic.name,
        "rewards": sampler.rewards.describe(),
        "seed": options["seed"],
        "status": result.status,
        **worth,
        "n_trajectories": result.n_trajectories,
        "counts": result.counts,
        **own,
        "seconds": result.seconds,
        "warnings": list(result.warnings),
        "version": build(),
        "versions": {
            "python": platform.python_version(),
            "numpy": importlib.metadata.version("numpy"),
            "scipy": importlib.metadata.version("scipy"),
        },
    }


def summary_table(summary: dict[str, Any]) -> str:
    """Return a summary as a table, with the certificate below it."""
    from dmq_fast.results.summary import summary_rows
    from dmq_fast.theory import certificate_table

    rows = ((label, as_options(text) if label == "warning" else text) for label, text in summary_rows(summary))
    text = "\n".join(f"{label:<21} {text}" for label, text in rows)
    return f"{text}\n\n{certificate_table.table(summary['certificate'])}" if "certificate" in summary else text
