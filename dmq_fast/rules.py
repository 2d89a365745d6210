"""Rules that only samplers written in Python can follow: greedy on rational weights, and by the plan of a planner."""

from __future__ import annotations

import hashlib
import math
import operator
from collections.abc import Sequence
from fractions import Fraction

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dmq_fast.kernels import Interpreted, OptimisticPlanner, Rule, as_floats

__all__ = ["ExactGreedy", "Optimistic"]


class ExactGreedy(Interpreted):
    """Rule that takes argmax_a phi(s)^T theta^a, computed without rounding; ties go to the smallest action.

    Parameters
    ----------
    theta : sequence of K sequences of d Fraction
        One weight vector per action; floats and integers are converted exactly.

    Attributes
    ----------
    exact : tuple of K tuples of d Fraction
        The weights theta.
    theta : numpy.ndarray, shape (K, d)
        The weights rounded to float64, for display: their greedy actions may differ.

    Raises
    ------
    ValueError
        If theta has no entries, one that is no finite number, or rows of different lengths.

    Notes
    -----
    Features are float64 and so are fractions; scores are compared in integer arithmetic. The action of each feature
    vector is computed once and kept. Only samplers written in Python can follow this rule.

    Examples
    --------
    >>> from fractions import Fraction
    >>> rule = ExactGreedy([[Fraction(1, 3)], [Fraction(1, 3) + Fraction(1, 10**30)]])  # equal in float64
    >>> rule.actions([[1.0], [-1.0], [0.0]])
    array([1, 0, 0])
    """

    __slots__ = ("_actions", "_digest", "_integers", "exact", "theta")

    def __init__(self, theta: Sequence[Sequence[Fraction | float]]) -> None:
        try:
            exact = tuple(tuple(Fraction(weight) for weight in row) for row in theta)
        except (TypeError, ValueError, OverflowError) as error:
            raise ValueError(f"theta: expected rows of finite numbers, got {theta!r:.100}") from error
        if not exact or not exact[0] or len({len(row) for row in exact}) > 1:
            raise ValueError(f"theta: expected shape (K, d) with K, d >= 1, got rows of {[len(row) for row in exact]}")
        rounded = np.array(exact, dtype=np.float64)
        rounded.setflags(write=False)
        # With a common denominator, comparing scores is comparing integers.
        common = math.lcm(*(weight.denominator for row in exact for weight in row))
        integers = [[weight.numerator * (common // weight.denominator) for weight in row] for row in exact]
        whole = hashlib.blake2b(b"exact %d %d;" % rounded.shape, digest_size=16)
        for row in exact:
            for weight in row:
                whole.update(b"%x/%x;" % (weight.numerator, weight.denominator))
        for name, value in (
            ("exact", exact),
            ("theta", rounded),
            ("_digest", whole.digest()),
            ("_integers", integers),
            ("_actions", {}),
        ):
            object.__setattr__(self, name, value)

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"ExactGreedy is immutable; {name} cannot be set")

    def __delattr__(self, name: str) -> None:
        raise AttributeError(f"ExactGreedy is immutable; {name} cannot be deleted")

    exact: tuple[tuple[Fraction, ...], ...]
    theta: NDArray[np.float64]
    _digest: bytes
    _integers: list[list[int]]
    _actions: dict[bytes, int]

    @property
    def digest(self) -> bytes:
        """Digest of theta, 16 bytes: equal if and only if theta is."""
        return self._digest

    @property
    def n_actions(self) -> int:
        """Number of actions K."""
        return len(self.exact)

    def actions(self, features: ArrayLike) -> NDArray[np.int64]:
        """Return the actions (n,) of states whose features (n, d) are given."""
        rows = as_floats("features", features, (None, self.theta.shape[1]))
        out = np.empty(len(rows), dtype=np.int64)
        for i, row in enumerate(rows):
            key = row.tobytes()
            action = self._actions.get(key)
            if action is None:
                action = self._actions[key] = self._action(row.tolist())
            out[i] = action
        return out

    def _action(self, row: list[float]) -> int:
        ratios = [value.as_integer_ratio() for value in row]
        common = math.lcm(*(denominator for _, denominator in ratios))
        phi = [numerator * (common // denominator) for numerator, denominator in ratios]
        scores = [sum(map(operator.mul, phi, weights)) for weights in self._integers]
        return scores.index(max(scores))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Rule):
            return NotImplemented
        return isinstance(other, ExactGreedy) and self.exact == other.exact

    def __hash__(self) -> int:
        return hash(self.digest)

    def __repr__(self) -> str:
        return f"ExactGreedy(<theta of shape {self.theta.shape}>)"

    def __reduce__(self) -> tuple[type[ExactGreedy], tuple[tuple[tuple[Fraction, ...], ...]]]:
        return (ExactGreedy, (self.exact,))


class Optimistic(Interpreted):
    """Rule that takes the action of the largest W, by the last plan of a planner (docs/adaptive.md).

    What it does changes with the planner: it is a rule for the episodes between two plans. Only samplers written in
    Python can follow it.

    Parameters
    ----------
    planner : OptimisticPlanner
    level : int
    """

    __slots__ = ("level", "planner")

    def __init__(self, planner: OptimisticPlanner, level: int) -> None:
        self.planner, self.level = planner, level

    def actions(
        self, features: NDArray[np.float64], earned: NDArray[np.float64], uniforms: NDArray[np.float64]
    ) -> NDArray[np.int64]:
        """Return the actions (n,) of states: features (n, d), points earned before (n,), uniforms (n,) for ties."""
        states = zip(features, earned, uniforms, strict=True)
        return np.array([self.planner.choose(self.level, *state) for state in states], dtype=np.int64)
