"""How the observations of an environment that is stepped are kept, and their default features."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dmq_fast.environments._look import MOST_COORDINATES, Grids, Look, interpolation, shows_real_numbers
from dmq_fast.features import Seen
from dmq_fast.observing import Anything, ArrayForm, Form, Numbers, OneHot
from dmq_fast.spaces import Arrays, Finite, Integer, Product, finite

__all__ = [
    "FIRST",
    "Features",
    "Looking",
    "View",
    "actions_of",
    "as_history",
    "has_box",
    "on_grids",
    "view_of_object",
    "view_of_space",
]

Features = Callable[[NDArray[Any]], NDArray[np.float64]]

Looking = Callable[[Any, Any], Look]
"""A look at uniform play, given the bounds of observations, low and high."""

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


def view_of_space(space: Any, features: Features | Grids | None, paired: bool, look: Looking) -> View:
    """Return the view of observations of one of Gymnasium's spaces.

    Parameters
    ----------
    space : object
    features : callable or None
        A function from blocks of observations to features; blocks are arrays of numbers where the space has arrays,
        else of objects. None: by the space. An integer is one-hot. So are elements of other finite spaces of up to
        4,096, by their numbers. Those of larger ones, arrays of up to 1,024 integers in a Box, and anything else
        without real numbers are one-hot by appearance. Those in a Box of real numbers are interpolated on grids.
    paired : bool
        Whether each observation comes as the pair of the first one of the episode and itself.
    look : callable
        Plays uniformly; called where grids are chosen.

    Raises
    ------
    TypeError
        If there are no default features, or `features` is no function.
    ValueError
        If grids are to be chosen for more than 16 numbers, or for pairs.
    """
    check_features(features)
    known = finite(space)
    arrays = hasattr(space, "low") or isinstance(known, Integer | Arrays)
    form: Form = ArrayForm(space.shape, space.dtype, paired) if arrays else Anything()
    if isinstance(features, Grids) or (features is None and has_box(space)):
        if not has_box(space):
            raise ValueError(f"features: expected none of real numbers for observations in {space}")
        return on_grids(space.shape, space.dtype, features, paired, look, space.low, space.high)
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
    if hasattr(space, "low") and prod(space.shape) > MOST_ENTRIES:
        raise TypeError(
            f"features: expected a function from observations (n, ...) to features (n, d), as observations of "
            f"{'x'.join(map(str, space.shape))} integers are images; features.Seen(size) where they are few"
        )
    if has_real_numbers(space):
        raise TypeError(
            f"features: expected a function from n observations to (n, d), as observations in {space} have real numbers"
        )
    return View(form, Seen())


def on_grids(
    shape: Sequence[int],
    dtype: Any,
    features: Grids | None,
    paired: bool,
    look: Looking,
    low: ArrayLike,
    high: ArrayLike,
) -> View:
    """Return interpolation of real numbers on grids that a look chooses; ValueError for pairs."""
    if paired:
        raise ValueError(f"history: expected none with real numbers on grids, got {FIRST!r}; give features")
    order = None if features is None else features.order
    return View(ArrayForm(shape, dtype, flat=len(shape) != 1), interpolation(look(low, high), order))


def view_of_object(
    first: Any,
    features: Features | Grids | None,
    paired: bool,
    look: Looking,
    low: ArrayLike = -np.inf,
    high: ArrayLike = np.inf,
) -> View:
    """Return the view of observations of which only one, and bounds, are known.

    Without `features` up to 16 real numbers, unless in pairs, are interpolated on grids if uniform play hardly ever
    shows one twice. All else is one-hot by appearance.
    """
    check_features(features)
    array = np.empty(0, dtype=object) if isinstance(first, dict | str) else np.asarray(first)
    numbers = array.dtype.kind in "biuf"
    form: Form = Anything(isinstance(first, list))
    if numbers and not isinstance(features, Seen):
        form = ArrayForm(array.shape, np.float64 if array.dtype.kind == "f" else np.int64, paired)
    if isinstance(features, Grids):
        if array.dtype.kind != "f":
            raise ValueError(f"features: expected none of real numbers for observations such as {first!r:.80}")
        return on_grids(array.shape, np.float64, features, paired, look, low, high)
    if features is not None:
        return View(form, features)
    few = array.dtype.kind == "f" and array.size <= MOST_COORDINATES and not paired
    if few and shows_real_numbers(seen := look(low, high)):
        return on_grids(array.shape, np.float64, None, paired, lambda *_: seen, low, high)
    return View(Anything(isinstance(first, list)), Seen())


def check_features(features: Any) -> None:
    """Raise TypeError unless features are None, grids, or can be called."""
    if not (features is None or isinstance(features, Grids) or callable(features)):
        raise TypeError(f"features: expected a callable, got {features!r}")


def limits(space: Finite | None) -> tuple[int, int] | None:
    """Return the integers of a space of single integers, [low, high)."""
    return (space.start, space.start + space.n) if isinstance(space, Integer) else None


def has_box(space: Any) -> bool:
    """Return whether a space is a Box of real numbers."""
    return hasattr(space, "low") and bool(np.dtype(space.dtype).kind == "f")


def has_real_numbers(space: Any) -> bool:
    """Return whether a space has a Box of real numbers anywhere inside."""
    if hasattr(space, "low"):
        return has_box(space)
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
