"""Compiled feature maps from observations to features of Euclidean norm at most 1.

    phi = dmq.features.Fourier(low=[-1.2, -0.07], high=[0.6, 0.07], order=7)
    env = dmq.environments.GymnasiumBatch("MountainCar-v0", horizon=200, features=phi, value_range=(-200, 0))

A map called with observations (n, m) returns features (n, d). It is immutable, can be pickled, and serves any number of
threads. Other maps can be derived from `FeatureMap` in Cython.

Examples
--------
>>> phi = Fourier(low=[0.0], high=[1.0], order=2)
>>> phi([[0.0], [0.5]]).round(3)
array([[ 0.577,  0.577,  0.577],
       [ 0.577,  0.   , -0.577]])
>>> OneHot(3)([[2], [0]])
array([[0., 0., 1.],
       [1., 0., 0.]])
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping, Sequence
from hashlib import blake2b
from math import sqrt
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dmq_fast._support.checks import integer
from dmq_fast.kernels import (
    RBF,
    FeatureMap,
    Fourier,
    Identity,
    Interpolation,
    Nystrom,
    OneHot,
    RandomFourier,
    TileCoding,
    as_floats,
)

__all__ = [
    "RBF",
    "FeatureMap",
    "Fourier",
    "Identity",
    "Interpolation",
    "Nystrom",
    "OneHot",
    "RandomFourier",
    "Seen",
    "TileCoding",
    "action_blocks",
    "grid",
]

Array = NDArray[np.float64]


def grid(low: ArrayLike, high: ArrayLike, counts: int | Sequence[int] | NDArray[np.integer[Any]]) -> Array:
    """Return the points of a regular grid in a box, as centres of `RBF` or landmarks of `Nystrom`.

    Parameters
    ----------
    low, high : array_like, shape (m,)
        Corners of the box, finite, low <= high.
    counts : int or sequence of int, length m
        Number of points along each coordinate: the first is at `low`, the last at `high`, a single one in the middle.

    Returns
    -------
    numpy.ndarray, shape (prod(counts), m)
        The points, in lexicographic order.

    Raises
    ------
    TypeError, ValueError
        If an argument is of another type or shape or out of range; the message names it.

    Examples
    --------
    >>> grid([0.0, -1.0], [1.0, 1.0], [2, 3]).tolist()
    [[0.0, -1.0], [0.0, 0.0], [0.0, 1.0], [1.0, -1.0], [1.0, 0.0], [1.0, 1.0]]
    """
    lower = as_floats("low", np.atleast_1d(low), (None,))
    upper = as_floats("high", np.atleast_1d(high), lower.shape)
    if (lower > upper).any():
        raise ValueError(f"high: expected numbers >= low, got {upper.tolist()} against {lower.tolist()}")
    sizes = list(counts) if isinstance(counts, Sequence | np.ndarray) else [counts] * len(lower)
    if len(sizes) != len(lower):
        raise ValueError(f"counts: expected an integer or {len(lower)} integers, got {counts!r}")
    axes = [_points(a, b, size) for a, b, size in zip(lower, upper, sizes, strict=True)]
    return np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1).reshape(-1, len(lower))


def _points(low: float, high: float, size: int) -> Array:
    """Return the coordinates of the points along one axis."""
    size = integer("counts", size, 1)
    return np.linspace(low, high, size) if size > 1 else np.array([low / 2 + high / 2])


def action_blocks(phi: ArrayLike) -> Array:
    """Return features of states made from features of states and actions.

    Row s of the result is (phi(s, 1), ..., phi(s, K)) / sqrt(K), so that its squared norm is the mean of
    ||phi(s, a)||^2 over the actions, at most 1 if each of these is. A function Q(s, a) = phi(s, a)^T w, linear in the
    features of pairs, is linear in these: theta^a is sqrt(K) w in block a (entries a d to (a + 1) d, a = 0, ..., K - 1)
    and 0 elsewhere, and features(s)^T theta^a = phi(s, a)^T w.

    Parameters
    ----------
    phi : array_like, shape (S, K, d)
        Features of S states and K >= 1 actions, finite.

    Returns
    -------
    numpy.ndarray, shape (S, K * d)

    Raises
    ------
    TypeError, ValueError
        If `phi` has another dtype or shape, or is not finite.

    Examples
    --------
    >>> action_blocks([[[1.0, 0.0], [0.0, 1.0]]]).round(3)  # one state, two actions
    array([[0.707, 0.   , 0.   , 0.707]])
    """
    blocks = as_floats("phi", phi, (None, None, None))
    n_states, n_actions, d = blocks.shape
    if n_actions == 0 or d == 0:
        raise ValueError(f"phi: expected shape (S, K, d) with K, d >= 1, got {blocks.shape}")
    return blocks.reshape(n_states, n_actions * d) / sqrt(n_actions)


class Seen:
    """The unit vector of an observation, by the number that it got when it was first seen.

    It needs no knowledge of the observations but that they are few: numbers, texts, arrays, and tuples, lists and dicts
    of them. Numbers that are equal count as the same whatever their type is. An environment asks it for features and it
    gives a new observation the next number. Numbers never change, and where a run is resumed, its journal gives them
    back. A learned policy asks for observations without numbering them: one that was never seen has features 0, and
    a greedy policy takes the first action there.

    Parameters
    ----------
    size : int, default 2048
        d, the most observations that can be told apart, >= 1. Costs are those of the observations that were seen, but
        for vectors of this length.
    keys : iterable of int, optional
        Keys of observations that have the first numbers, as the attribute has them.

    Attributes
    ----------
    dimension : int
        The size.
    keys : list of int
        A hash of 64 bits of each observation, in the order of numbers.

    Notes
    -----
    The order in which observations are first seen decides which coordinate each has, so whatever plays an environment
    with this map has to play its episodes in one order: a run leaves them to its own thread, whatever the number of its
    workers.

    Examples
    --------
    >>> phi = Seen(3)
    >>> phi(["left", "right", "left"])
    array([[1., 0., 0.],
           [0., 1., 0.],
           [1., 0., 0.]])
    >>> phi.known(["right", "middle"])
    array([[0., 1., 0.],
           [0., 0., 0.]])
    """

    def __init__(self, size: int = 2048, keys: Iterable[int] = ()) -> None:
        self.dimension = integer("size", size, 1)
        self._numbers: dict[int, int] = {}
        self._labels: dict[int, Any] = {}
        self._lock = threading.Lock()
        self.restore(0, keys)

    def __call__(self, observations: Any) -> Array:
        """Return the features (n, d) of n observations; those that are new get numbers.

        Raises
        ------
        ValueError
            If there are more than `size` of them.
        TypeError
            If an observation is of another kind.
        """
        numbers = self._numbers
        columns = []
        for observation in observations:
            key = key_of(observation)
            number = numbers.get(key)
            if number is None or number not in self._labels:  # a number that a journal gave back has no label yet
                number = self._number(key, observation)
            columns.append(number)
        phi = np.zeros((len(columns), self.dimension))
        phi[np.arange(len(columns)), columns] = 1.0
        return phi

    def known(self, observations: Any) -> Array:
        """Return the features (n, d) of n observations, 0 of those that were never seen."""
        columns = [self._numbers.get(key_of(observation), -1) for observation in observations]
        phi = np.zeros((len(columns), self.dimension))
        rows = [row for row, column in enumerate(columns) if column >= 0]
        phi[rows, [columns[row] for row in rows]] = 1.0
        return phi

    @property
    def keys(self) -> list[int]:
        """The keys of the observations seen, in the order of their numbers."""
        return list(self._numbers)

    @property
    def labels(self) -> list[Any]:
        """The observations seen, in the order of their numbers: numbers, texts and tuples of them.

        None of those that are longer than 16 entries, or of which only the key is known.
        """
        return [self._labels.get(number) for number in range(len(self._numbers))]

    def with_labels(self, labels: Sequence[Any]) -> Seen:
        """Return the same map, of which these observations are known to have the first numbers."""
        other = Seen(self.dimension, self.keys)
        other._labels = dict(enumerate(labels))
        return other

    def restore(self, first: int, keys: Iterable[int]) -> None:
        """Give observations with these keys the numbers first, first + 1, ..., or find that they have them.

        Raises
        ------
        ValueError
            If one has another number, or there are more than `size`.
        """
        for number, key in enumerate(keys, first):
            if self._numbers.get(key) is None and len(self._numbers) == number < self.dimension:
                self._numbers[key] = number
            if self._numbers.get(key) != number:
                raise ValueError(f"keys: expected at most {self.dimension} different ones, each with its number")

    def _number(self, key: int, observation: Any) -> int:
        with self._lock:
            if len(self._numbers) == self.dimension and key not in self._numbers:
                raise ValueError(
                    f"features: expected at most {self.dimension:,} different observations, and there are more: give "
                    f"Seen({2 * self.dimension}) if they are few, else features of their own, a function from "
                    "observations (n, ...) to (n, d)"
                )
            number = self._numbers.setdefault(key, len(self._numbers))
            self._labels.setdefault(number, label_of(observation))
            return number

    def __reduce__(self) -> tuple[Any, ...]:
        return (Seen, (self.dimension, self.keys), {"_labels": self._labels})

    def __repr__(self) -> str:
        return f"Seen({self.dimension})"


def key_of(observation: Any) -> int:
    """Return a hash of 64 bits of an observation, the same for equal ones in every process."""
    return int.from_bytes(blake2b(spelled(observation), digest_size=8).digest(), "little", signed=True)


LONGEST_LABEL = 16
"""Number of entries up to which an observation is kept as a label."""


def label_of(observation: Any) -> Any:
    """Return an observation as a number, a text, or a tuple of them; None where it is longer or something else.

    Examples
    --------
    >>> import numpy as np
    >>> label_of(np.array([[1, 2]])), label_of(("left", np.int64(3))), label_of(np.zeros(17))
    (((1, 2),), ('left', 3), None)
    """
    if isinstance(observation, np.ndarray | np.generic):
        return label_of(observation.tolist()) if observation.size <= LONGEST_LABEL else None
    if isinstance(observation, str | bool | int | float):
        return observation
    if isinstance(observation, tuple | list) and len(observation) <= LONGEST_LABEL:
        parts = tuple(map(label_of, observation))
        return None if None in parts else parts
    return None


def spelled(observation: Any) -> bytes:
    """Return an observation as bytes, the same for equal ones."""
    if isinstance(observation, str):
        return b"s" + observation.encode("utf-8", "surrogatepass")
    if isinstance(observation, bytes):
        return b"b" + observation
    if observation is None:
        return b"n"
    if isinstance(observation, Mapping):
        pairs = sorted((spelled(key), spelled(value)) for key, value in observation.items())
        return joined(b"m", [part for pair in pairs for part in pair])
    try:
        array = np.asarray(observation)
    except ValueError:  # of parts of several shapes
        array = np.empty(0, dtype=object)
    if array.dtype.kind in "biuf":
        exact = array.dtype.kind in "bf" or not array.size or bool(np.abs(array.astype(np.float64)).max() < 2.0**53)
        # Sums with 0 turn -0.0 into 0.0.
        plain = array.astype(np.float64) + 0.0 if exact else array.astype(f"{array.dtype.kind}8")
        return b"a%d" % (not exact) + repr(array.shape).encode() + plain.tobytes()
    if array.dtype.kind == "U" and array.ndim == 0:
        return spelled(str(array))
    if isinstance(observation, tuple | list) or (isinstance(observation, np.ndarray) and observation.ndim):
        return joined(b"t", [spelled(part) for part in observation])
    raise TypeError(
        f"observation: expected numbers, texts, arrays, or tuples and dicts of them, got {type(observation).__name__}; "
        "give features, a function from n observations to (n, d)"
    )


def joined(kind: bytes, parts: Sequence[bytes]) -> bytes:
    """Return parts as one text that no other parts have."""
    return kind + b"".join(b"%d:%b" % (len(part), part) for part in parts)
