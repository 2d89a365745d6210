"""What the rewards of a table can add up to: the value range of a `FiniteMDP`.

Everything is over paths of positive probability. A reward that is `cap` with probability R / cap counts as 0 and `cap`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dmq_fast._support.arrays import once_each
from dmq_fast.environments.arrays import frozen
from dmq_fast.kernels import is_sparse, transition_edges
from dmq_fast.rewards import LARGEST, as_bounds

if TYPE_CHECKING:
    from dmq_fast._support.arrays import Sparse

__all__ = ["Edges", "edges_of", "ended_states", "path_sums", "reachable_states", "tightest", "unit_sums", "value_range"]

Array = NDArray[np.float64]
Mask = NDArray[np.bool_]

TOLERANCE = 1e-9
"""Slack of sums of rewards, relative to a range of width 1: room for the caller's rounding."""

NARROWEST = 1e-9
"""Width of a range, relative to its numbers, below which it is that of a single number: they differ by rounding."""


class Edges(NamedTuple):
    """The positive entries of a transition array, in the order of its rows.

    Row s * K + a holds the entries from ``starts[s * K + a]`` on; ``targets`` are their next states. Rows sum
    to 1, so none is empty and ``np.maximum.reduceat(x, starts)`` is the maximum of each row.
    """

    starts: NDArray[np.intp]
    counts: NDArray[np.intp]
    targets: NDArray[np.intp]


def edges_of(P: Sequence[Array | Sparse]) -> list[Edges]:
    """Return the edges of each transition array, shared where the arrays are."""
    return once_each(_edges, P)


def _edges(transitions: Array | Sparse) -> Edges:
    rows, targets, _ = transition_edges(transitions)
    shape = transitions.shape
    counts = np.bincount(rows, minlength=shape[0] if is_sparse(transitions) else shape[0] * shape[1])
    return Edges(np.cumsum(counts) - counts, counts, targets)


def reachable_states(start: Array, edges: Sequence[Edges], n_states: Sequence[int], n_actions: int) -> list[Mask]:
    """Return which states some policy visits with positive probability: H boolean arrays (S_h,)."""
    masks = [start > 0]
    for following, (_, counts, targets) in zip(n_states[1:], edges, strict=False):
        visited = np.repeat(np.repeat(masks[-1], n_actions), counts)
        mask = np.zeros(following, dtype=np.bool_)
        mask[targets[visited]] = True
        masks.append(mask)
    return masks


def ended_states(
    P: Sequence[Array | Sparse], R: Sequence[Array], features: Sequence[Array | Sparse], edges: Sequence[Edges]
) -> list[Mask]:
    """Return in which states the episode has ended: H boolean arrays (S_h,).

    Their features are 0, nothing pays from there on, and what follows has ended, too.
    """
    masks: list[Mask] = []
    ahead = np.ones(P[-1].shape[-1] if len(P) == len(R) else 1, dtype=np.bool_)
    for level in reversed(range(len(R))):
        ahead = _without_features(features[level])
        if ahead.any():
            ahead &= _quiet(level, P, R, edges, masks[-1] if masks else None)
        masks.append(ahead)
    return masks[::-1]


def _without_features(features: Array | Sparse) -> Mask:
    if is_sparse(features):
        empty: Mask = np.diff(features.indptr) == 0
        return empty
    filled: Any = features.any(axis=1)
    bare: Mask = ~filled
    return bare


def _quiet(
    level: int, P: Sequence[Array | Sparse], R: Sequence[Array], edges: Sequence[Edges], following: Mask | None
) -> Mask:
    """Return the states (S_h,) of a level where nothing pays, and that lead to states of `following` only."""
    rewards = R[level]
    paying: Any = rewards.any(axis=1) if rewards.ndim == 2 else np.zeros(len(rewards), dtype=np.bool_)
    if level == len(P):
        idle: Mask = ~paying
        return idle
    starts, _, targets = edges[level]
    held = np.ones(len(targets), dtype=np.bool_) if following is None else following[targets]
    if rewards.ndim == 3:
        held = held & (rewards[_dense(P[level]) > 0] == 0)
    every: Any = np.logical_and.reduceat(held, starts).reshape(rewards.shape[:2]).all(axis=1)
    quiet: Mask = every & ~paying
    return quiet


def path_sums(
    P: Sequence[Array | Sparse],
    R: Sequence[Array],
    caps: Array,
    edges: Sequence[Edges],
    which: str = "largest",
) -> list[Array]:
    """Return the largest, or the least, sum of rewards of a path from each state: H arrays (S_h,)."""
    best: Any = np.maximum if which == "largest" else np.minimum
    ahead: Array = np.zeros(P[-1].shape[-1] if len(P) == len(R) else 1)
    sums: list[Array] = []
    for level in reversed(range(len(R))):
        rewards = _extreme(R[level], caps[level], which)
        if level == len(P):
            pairs = rewards
        else:
            along = ahead[edges[level].targets]
            if rewards.ndim == 3:
                along = along + rewards[_dense(P[level]) > 0]
            pairs = best.reduceat(along, edges[level].starts).reshape(rewards.shape[:2])
            if rewards.ndim == 2:
                pairs = pairs + rewards
        ahead = best.reduce(pairs, axis=1)
        sums.append(ahead)
    return sums[::-1]


def _extreme(rewards: Array, cap: float, which: str) -> Array:
    """Return the largest or the least reward that can be drawn."""
    if cap == 0:
        return rewards
    return np.where(rewards > 0 if which == "largest" else rewards >= cap, cap, 0.0)


def _dense(transitions: Array | Sparse) -> Array:
    """Return transitions that are dense: others come with no rewards that depend on the next state."""
    assert not is_sparse(transitions)
    return transitions


def tightest(lows: Sequence[Array], highs: Sequence[Array], counted: Sequence[Mask]) -> Array:
    """Return the tightest range by level, (H, 2), of sums of rewards from the states that count on.

    A level without such states has the range (0, 0).
    """
    bounds = np.zeros((len(lows), 2))
    for pair, low, high, mask in zip(bounds, lows, highs, counted, strict=True):
        if mask.any():
            pair[:] = low[mask].min(), high[mask].max()
    return bounds


def value_range(given: Any, tight: Array) -> Array:
    """Return the value range of tables, (H, 2), read-only.

    Parameters
    ----------
    given : array_like or None
        What was declared: checked to hold what the tables can pay.
    tight : numpy.ndarray, shape (H, 2)
        That of `tightest`.

    Raises
    ------
    ValueError
        If a path adds up to something outside of the range that was given, or to more than 1e100.
    """
    low, high = float(tight[:, 0].min()), float(tight[:, 1].max())
    if not max(abs(low), abs(high)) <= LARGEST:
        raise ValueError(
            f"R: expected rewards that add up to numbers between -{LARGEST:g} and {LARGEST:g} on every path, got "
            f"{low if abs(low) > LARGEST else high:g}"
        )
    if given is None:
        if high - low <= NARROWEST * max(abs(low), abs(high)):  # every policy is worth the same
            tight = np.broadcast_to([min(low, 0.0), max(high, 0.0)], tight.shape).copy()
        return frozen(tight)
    bounds = as_bounds(given, len(tight))
    if bounds is None:
        raise ValueError(f"value_range: expected (low, high) or None, as tables know what they pay, got {given!r}")
    slack = TOLERANCE * max(1.0, float(bounds[:, 1].max() - bounds[:, 0].min()))
    for level, ((least, most), (from_low, to_high)) in enumerate(zip(tight, bounds, strict=True)):
        if least < from_low - slack or most > to_high + slack:
            path = least if least < from_low - slack else most
            raise ValueError(
                f"value_range: expected a range of all that can be earned from a level on, got ({from_low:g}, "
                f"{to_high:g}), but a path from level {level} on adds up to {path:.12g}; write "
                f"value_range=({low:.12g}, {high:.12g}), or leave it out"
            )
    return bounds


def unit_sums(P: Sequence[Array | Sparse], R: Sequence[Array], start: Array | None = None) -> list[Array]:
    """Return nonnegative rewards of a generator, divided by the largest sum of a path from the start, where positive.

    Parameters
    ----------
    P, R
        As for `FiniteMDP`, arrays of float64.
    start : numpy.ndarray, optional
        Distribution of the first state. Default: state 0.
    """
    largest = max(float(rewards.max()) for rewards in R)
    if largest == 0:
        return list(R)
    edges, none = edges_of(P), np.zeros(len(R))

    def total(rewards: Sequence[Array]) -> float:
        sums = path_sums(P, rewards, none, edges)[0]
        return float(sums[0] if start is None else sums[start > 0].max())

    # In two steps: the sum is taken of rewards of a size at which it cannot overflow.
    scale = 1 / (len(R) * largest)
    summed = total(once_each(lambda rewards: rewards * scale, R))
    if summed == 0:
        return list(R)
    return once_each(lambda rewards: rewards * (scale / summed), R)
