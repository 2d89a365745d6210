"""Environments of `experiments/same.toml`: random tables that are the same at every level."""

from __future__ import annotations

from adaptive_families import same_table

from dmq_fast.environments import FiniteMDP


def table(
    n_states: int = 10, horizon: int = 20, spread: float = 0.2, paying: float = 0.5, *, rng: int = 0
) -> FiniteMDP:
    """Return a random table of three actions; a share of its pairs pays up to 1 / H with coins."""
    return same_table(rng, n_states, 3, horizon, spread, paying)
