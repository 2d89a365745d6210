"""Fingerprints that a journal compares before a run is resumed: of the environment and of the initial policies."""

from __future__ import annotations

import hashlib
import json
from typing import Any

import numpy as np

from dmq_fast.kernels import Fixed, Greedy
from dmq_fast.policy import Policy

__all__ = ["fingerprint", "policy_fingerprint", "unwrapped"]


def fingerprint(sampler: object) -> dict[str, Any]:
    """Return a JSON-able description of a sampler and its environment: sizes, class, and their own fingerprints.

    Either can have a method `fingerprint`: a sampler's returns a JSON value, an environment's a dict. An environment
    without one is described by its class only. A `ParallelSampler` has the fingerprint of the sampler inside it.
    """
    sampler = unwrapped(sampler)
    described = {name: getattr(sampler, name) for name in ("horizon", "n_actions", "dimension")}
    described["sampler"] = type(sampler).__name__
    if callable(own := getattr(sampler, "fingerprint", None)):
        described["fingerprint"] = own()
    env = getattr(sampler, "env", None)
    if callable(own := getattr(env, "fingerprint", None)):
        described |= own()
    elif env is not None:
        described["class"] = type(env).__qualname__
    return dict(json.loads(json.dumps(described, default=repr)))


def unwrapped(sampler: Any) -> Any:
    """Return the sampler inside a `ParallelSampler`; any other sampler itself."""
    while hasattr(sampler, "pieces") and hasattr(sampler, "inner"):
        sampler = sampler.inner
    return sampler


def policy_fingerprint(policy: Policy) -> str:
    """Return the SHA-256 of the rules of a policy."""
    whole = hashlib.sha256()
    for rule in policy.rules:
        whole.update(b"fixed %d;" % rule.action if isinstance(rule, Fixed) else b"%s;" % type(rule).__name__.encode())
        if isinstance(rule, Greedy):
            whole.update(np.ascontiguousarray(rule.theta).data)
    return whole.hexdigest()
