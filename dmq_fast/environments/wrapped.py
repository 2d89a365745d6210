"""Wrappers and features that a text names, for environments that are stepped."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

from dmq_fast._support.imported import imported, one_line
from dmq_fast.environments._look import Grids
from dmq_fast.environments.views import Features
from dmq_fast.features import Seen

__all__ = ["INTERPOLATION", "SEEN", "Wrapped", "features_of", "wrapped"]

SEEN = "seen"
"""The name of `features.Seen`."""

INTERPOLATION = "interpolation"
"""The name of features in which Q* is only nearly linear, for runs by returns."""


class Wrapped:
    """A function without arguments that makes an environment and puts a wrapper around it."""

    def __init__(self, make: Callable[[], Any], wrapper: str | Callable[[Any], Any]) -> None:
        self.make, self.wrapper = make, wrapper

    def __call__(self) -> Any:
        """Make one."""
        return wrapped(self.make(), self.wrapper)


def wrapped(env: Any, wrapper: str | Callable[[Any], Any] | None) -> Any:
    """Return what a wrapper, a function or the "module:function" of one, makes of an environment."""
    if wrapper is None:
        return env
    function = imported("wrapper", wrapper) if isinstance(wrapper, str) else wrapper
    if not callable(function):
        raise TypeError(f"wrapper: expected a function from an environment to another, or its name, got {wrapper!r}")
    try:
        made = function(env)
    except Exception as error:  # whatever the function does
        name = getattr(function, "__qualname__", type(function).__name__)
        raise ValueError(f"wrapper: {name}(env) failed: {type(error).__name__}: {one_line(error)}") from error
    if not callable(getattr(made, "step", None)):
        raise TypeError(f"wrapper: expected it to return an environment with reset and step, got {made!r:.80}")
    return made


def features_of(features: str | Features | None, kinds: Collection[str] = ()) -> Features | Grids | None:
    """Return features that may be given by name: "seen", "interpolation", or the "module:function" of a function.

    `kinds` are other names that would have done, for the message.
    """
    if not isinstance(features, str):
        return features
    if features == SEEN:
        return Seen()
    if features == INTERPOLATION:
        return Grids()
    if ":" not in features:
        names = dict.fromkeys((INTERPOLATION, *kinds, SEEN))
        raise ValueError(f"features: expected {', '.join(names)} or MODULE:FUNCTION, got {features!r}")
    return imported("features", features)
