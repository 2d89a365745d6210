"""Descriptions that a journal compares before a run is resumed: of the environment and of the initial policies."""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np

from dmq_fast._support.json_text import to_plain
from dmq_fast.kernels import Fixed, Greedy
from dmq_fast.policy import Policy
from dmq_fast.samplers.base import Sampler

__all__ = ["fingerprint", "policy_fingerprint"]


def fingerprint(sampler: Sampler) -> dict[str, Any]:
    """Return a JSON-able description of a sampler: sizes, class, rewards, its own fingerprint, its environment's.

    An environment without a method `fingerprint` is described by its class only. A `ParallelSampler` has the
    description of the sampler inside it, which draws the same trajectories.
    """
    sampler = sampler.unwrapped()
    described: dict[str, Any] = {
        "horizon": sampler.horizon,
        "n_actions": sampler.n_actions,
        "dimension": sampler.dimension,
        "sampler": type(sampler).__name__,
    }
    if (own := sampler.fingerprint()) is not None:
        described["fingerprint"] = own
    if callable(getattr(sampler.env, "fingerprint", None)):
        described |= sampler.env.fingerprint()
    elif sampler.env is not None:
        described["class"] = type(sampler.env).__qualname__
    described["rewards"] = sampler.rewards.describe()
    return dict(to_plain(described, default=repr))


def policy_fingerprint(policy: Policy) -> str:
    """Return the SHA-256 of the rules of a policy."""
    whole = hashlib.sha256()
    for rule in policy.rules:
        whole.update(b"fixed %d;" % rule.action if isinstance(rule, Fixed) else b"%s;" % type(rule).__name__.encode())
        if isinstance(rule, Greedy):
            whole.update(np.ascontiguousarray(rule.theta).data)
    return whole.hexdigest()
