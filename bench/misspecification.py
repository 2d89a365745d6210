"""Environments of `experiments/map.toml` whose Q* is linear only up to an error: random vectors shift the features."""

from __future__ import annotations

import numpy as np

from dmq_fast.environments import FiniteMDP, combination_lock, linear_q


def perturbed(env: FiniteMDP, size: float, rng: np.random.Generator) -> FiniteMDP:
    """Return the MDP with a random vector of length `size` added to each feature, scaled to fit the unit ball."""
    features = []
    for phi in env.features:
        noise = rng.standard_normal(phi.shape)
        features.append((phi + size * noise / np.linalg.norm(noise, axis=1, keepdims=True)) / (1.0 + size))
    return FiniteMDP(P=env.P, R=env.R, features=features, start=env.start)


def perturbed_linear_q(size: float = 0.05, *, rng: int | None = None) -> FiniteMDP:
    """Return a `linear_q` with perturbed features."""
    return perturbed(linear_q(rng=rng), size, np.random.default_rng(rng))


def perturbed_lock(size: float = 0.05, *, rng: int | None = None) -> FiniteMDP:
    """Return a combination lock with eight copies of every state and perturbed features."""
    return perturbed(copied(combination_lock(10, 4, rng=rng), 8), size, np.random.default_rng(rng))


def copied(env: FiniteMDP, n: int) -> FiniteMDP:
    """Return the MDP with n copies of every state, of which one is drawn uniformly on every visit."""
    return FiniteMDP(
        P=[np.repeat(np.repeat(p, n, axis=0), n, axis=2) / n for p in env.P],
        R=[np.repeat(r, n, axis=0) for r in env.R],
        features=[np.repeat(phi, n, axis=0) for phi in env.features],
        start=np.repeat(env.start, n) / n,
    )
