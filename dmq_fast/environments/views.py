"""How the observations of an environment that is stepped are kept, and their default features."""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dmq_fast.features import Seen
from dmq_fast.observing import Anything, ArrayForm, Form, Numbers, OneHot
from dmq_fast.spaces import Arrays, Finite, Integer, Product, finite

__all__ = ["FIRST", "Features", "View", "actions_of", "as_history", "view_of_object", "view_of_space"]

Features = Callable[[NDArray[Any]], NDArray[np.float64]]

FIRST = "first"
"""The history that joins the first observation of an episode to the current one."""

# Elements up to which a space that is no single integer is numbered in whole; larger ones get numbers by appearance.
MOST_NUMBERED = 4096

# Numbers of an array of integers up to which its values are taken to be few. An image has more.
MOST_ENTRIES = 1024

# Combinations of actions up to which they get numbers.
MOST_ACTIONS = 256

REMEDY = "give features, a function from n observations to (n, d)"


class View(NamedTuple):
    """How observations are kept, their features, and which kept integers are observations: [low, high), or None."""

    form: Form
    features: Features
    bounds: tuple[int, int] | None = None


def as_history(value: object) -> bool:
    """Return whether a history is wanted; ValueError for one that there is not."""
    if value not in (None, FIRST):
        raise ValueError(f"history: expected {FIRST!r} or None, got {value!r}")
    return value is not None


def view_of_space(space: Any, features: Features | None, paired: bool) -> View:
    """Return the view of observations of one of Gymnasium's spaces.

    Parameters
    ----------
    space : object
    features : callable or None
        A function from blocks of observations to features; blocks are arrays of numbers where the space has arrays,
        else of objects. None: by the space. An integer is one-hot. So are elements of other finite spaces of up to
        4,096, by their numbers. Those of larger ones, arrays of up to 1,024 integers in a Box, and anything else
        without real numbers are one-hot by appearance.
    paired : bool
        Whether each observation comes as the pair of the first one of the episode and itself.

    Raises
    ------
    TypeError
        If there are no default features, or `features` is no function.
    """
    check_features(features)
    known = finite(space)
    arrays = hasattr(space, "low") or isinstance(known, Integer | Arrays)
    form: Form = ArrayForm(space.shape, space.dtype, paired) if arrays else Anything()
    if features is not None:
        bounds = limits(known) if not paired else None
        return View(form, features, bounds)
    if known is not None:
        if isinstance(known, Integer) and not paired:
            return View(form, OneHot(known.n, known.start), limits(known))
        whole: Finite = Product((known, known)) if paired else known
        if whole.n <= MOST_NUMBERED:
            return View(Numbers(whole), OneHot(whole.n, 0))
        return View(form, Seen())
    if hasattr(space, "low"):
        return View(form, features_of_box(space))
    if has_real_numbers(space):
        raise TypeError(
            f"features: expected a function from n observations to (n, d), as observations in {space} have real numbers"
        )
    return View(form, Seen())


def features_of_box(space: Any) -> Features:
    """Return the default features of observations in a Box: by appearance where they are few integers."""
    if np.dtype(space.dtype).kind in "iub":
        if prod(space.shape) <= MOST_ENTRIES:
            return Seen()
        raise TypeError(
            f"features: expected a function from observations (n, ...) to features (n, d), as observations of "
            f"{'x'.join(map(str, space.shape))} integers are images; features.Seen(size) where they are few"
        )
    # The place for a default of real numbers.
    raise TypeError(
        f"features: expected a function from observations (n, ...) to features (n, d), since only discrete "
        f"observations have a default; got None with {space}; dmq.features has maps such as Fourier(low, high, order)"
    )


def view_of_object(first: Any, features: Features | None, paired: bool) -> View:
    """Return the view of observations of which only one is known: numbers by appearance without `features`."""
    check_features(features)
    if features is None or isinstance(features, Seen):
        return View(Anything(isinstance(first, list)), Seen() if features is None else features)
    array = np.empty(0, dtype=object) if isinstance(first, dict | str) else np.asarray(first)
    if array.dtype.kind not in "biuf":
        return View(Anything(isinstance(first, list)), features)
    return View(ArrayForm(array.shape, np.float64 if array.dtype.kind == "f" else np.int64, paired), features)


def check_features(features: Any) -> None:
    """Raise TypeError unless features are None or can be called."""
    if features is not None and not callable(features):
        raise TypeError(f"features: expected a callable, got {features!r}")


def limits(space: Finite | None) -> tuple[int, int] | None:
    """Return the integers of a space of single integers, [low, high)."""
    return (space.start, space.start + space.n) if isinstance(space, Integer) else None


def has_real_numbers(space: Any) -> bool:
    """Return whether a space has a Box of real numbers anywhere inside."""
    if hasattr(space, "low"):
        return bool(np.dtype(space.dtype).kind == "f")
    parts: Any = getattr(space, "spaces", ())
    return any(map(has_real_numbers, parts.values() if isinstance(parts, dict) else parts))


def actions_of(space: Any) -> Finite:
    """Return a space of actions that are few; refuse others by name."""
    known = finite(space)
    if known is None:
        continuous = (
            "; continuous actions need a wrapper that offers a choice of them" if has_real_numbers(space) else ""
        )
        raise TypeError(f"env: expected a Discrete action space, got {space}{continuous}")
    if not isinstance(known, Integer) and known.n > MOST_ACTIONS:
        raise TypeError(
            f"env: expected at most {MOST_ACTIONS} combinations of actions, got {known.n:,} in {space}; a wrapper can "
            "offer fewer"
        )
    return known
