"""Checks of arguments that all rooms share.

Each check returns the argument as a built-in type, or raises an error with its name, what was expected, and what came.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Sized
from operator import index
from pathlib import Path
from typing import Any, Protocol, cast

import numpy as np

__all__ = ["Seed", "as_path", "check_horizon", "count", "declared", "flag", "integer", "number", "one_of", "seeded"]

Seed = int | np.random.SeedSequence | np.random.Generator | None
"""Type of the argument ``rng`` of the generators of environments."""


def integer(name: str, value: int, minimum: int) -> int:
    """Return an integer argument, at least `minimum`; TypeError or ValueError otherwise."""
    if type(value) is not int:
        try:
            if isinstance(value, bool):
                raise TypeError
            value = index(value)
        except TypeError:
            raise TypeError(f"{name}: expected an integer, got {value!r}") from None
    if value < minimum:
        raise ValueError(f"{name}: expected an integer >= {minimum}, got {value}")
    return value


def count(name: str, value: int, minimum: int, hint: str = "") -> int:
    """Return an integer argument in [minimum, 2^63), the range of the counters of compiled code.

    `hint` ends the message for larger ones: it names what accepts them.
    """
    if type(value) is int and minimum <= value < 2**63:
        return value  # the usual case, once for every call of a sampler
    result = integer(name, value, minimum)
    if result >= 2**63:
        raise ValueError(f"{name}: expected an integer < 2^63, got {result}{hint}")
    return result


def number(name: str, value: float, low: float = 0.0, high: float = 1.0) -> float:
    """Return a real argument in [low, high]; TypeError or ValueError otherwise."""
    try:
        if isinstance(value, (str, bytes, bool)):
            raise TypeError
        result = float(value)
    except TypeError:
        raise TypeError(f"{name}: expected a number, got {value!r}") from None
    except OverflowError:
        raise ValueError(f"{name}: expected a number in [{low:g}, {high:g}], got one beyond float64") from None
    if not low <= result <= high:
        raise ValueError(f"{name}: expected a number in [{low:g}, {high:g}], got {result!r}")
    return result


def flag(name: str, value: bool) -> bool:
    """Return a boolean argument, or TypeError."""
    if not isinstance(value, bool | np.bool_):
        raise TypeError(f"{name}: expected a bool, got {value!r}")
    return bool(value)


def declared(name: str, value: Any, source: object) -> Any:
    """Return an argument, or where it is None what an object declares by an attribute of that name, if it does."""
    return getattr(source, name, None) if value is None else value


def one_of(name: str, value: str, known: Collection[str]) -> str:
    """Return a string argument, one of the known names; ValueError otherwise."""
    if not isinstance(value, str) or value not in known:
        raise ValueError(f"{name}: expected one of {', '.join(known)}, got {value!r}")
    return value


def as_path(name: str, value: str | os.PathLike[str]) -> Path:
    """Return a path; TypeError or ValueError otherwise.

    An empty text, as of a variable that is not set, would be the working directory.
    """
    if not isinstance(value, str | os.PathLike) or not isinstance(text := os.fspath(value), str):
        raise TypeError(f"{name}: expected a path, got {value!r}")
    if not text or "\0" in text:
        raise ValueError(f"{name}: expected a path, got {text!r}")
    return Path(text)


def seeded(rng: Seed) -> tuple[np.random.Generator, int | str]:
    """Return a random generator, and a record of its origin.

    Parameters
    ----------
    rng : None, int, SeedSequence or Generator
        None draws a fresh 128-bit seed.

    Returns
    -------
    generator : numpy.random.Generator
    record : int or str
        An integer seed that makes the same generator again; where none exists, the name of the type of `rng`.

    Raises
    ------
    TypeError, ValueError
        If `rng` is of another type, or negative.
    """
    if rng is None:
        rng = np.random.SeedSequence()
    if isinstance(rng, np.random.SeedSequence):
        # A pool of another size gives other numbers; 4 words are NumPy's default, which an integer seed has.
        replayable = isinstance(rng.entropy, int) and not rng.spawn_key and rng.pool_size == 4
        return np.random.default_rng(rng), cast(int, rng.entropy) if replayable else "SeedSequence"
    if isinstance(rng, np.random.Generator):
        return rng, "Generator"
    try:
        seed = integer("rng", rng, 0)
    except TypeError:
        raise TypeError(f"rng: expected None, an integer, a SeedSequence or a Generator, got {rng!r}") from None
    return np.random.default_rng(seed), seed


class HasRules(Protocol):
    """A policy of any kind."""

    @property
    def rules(self) -> Sized:
        """One rule a level."""


def check_horizon(policy: HasRules, horizon: int, name: str = "policy") -> None:
    """Raise unless `policy` has rules, one for each level; `name` is the argument."""
    if not hasattr(policy, "rules"):
        raise TypeError(f"{name}: expected a Policy, got {type(policy).__name__}")
    if len(policy.rules) != horizon:
        raise ValueError(f"{name}: expected {horizon} rules, one a level, got {len(policy.rules)}")
