"""How a seed reaches a function that makes an environment."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

__all__ = ["SEEDS", "seeded"]

SEEDS = ("rng", "seed")
"""Parameters of a function by which it takes a seed, the first that it has."""


def seeded(factory: Callable[..., Any], seed: int, asked: bool) -> dict[str, Any]:
    """Return the argument with which a function takes a seed; empty where it takes none.

    Parameters
    ----------
    factory : callable
    seed : int
    asked : bool
        Whether the user has given a seed for this environment: then a function that takes any argument, ``**kwargs``,
        gets it as `seed`, and one that takes neither is refused.

    Raises
    ------
    ValueError
        If a seed was asked for and cannot be given.

    Examples
    --------
    >>> seeded(lambda size, rng=None: ..., 42, asked=False), seeded(lambda seed=0: ..., 42, asked=False)
    ({'rng': 42}, {'seed': 42})
    >>> seeded(lambda **kwargs: ..., 42, asked=False), seeded(lambda **kwargs: ..., 42, asked=True)
    ({}, {'seed': 42})
    """
    try:
        parameters = inspect.signature(factory).parameters
    except (TypeError, ValueError):  # it is compiled, and does not tell
        parameters = {}  # type: ignore[assignment]
    for name in SEEDS:
        if name in parameters and parameters[name].kind != inspect.Parameter.POSITIONAL_ONLY:
            return {name: seed}
    if not asked:
        return {}
    if any(one.kind == one.VAR_KEYWORD for one in parameters.values()):
        return {"seed": seed}
    name = getattr(factory, "__qualname__", type(factory).__qualname__)
    raise ValueError(f"expected none, as {name} has no parameter rng or seed to take it, got {seed}")
