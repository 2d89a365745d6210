"""`Trajectories`: what some trajectories looked like, level by level, where `Moments` hold sums only."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dmq_fast.moments import Moments, Returns, sums_of

__all__ = ["Trajectories"]


class Trajectories(NamedTuple):
    """n trajectories.

    Attributes
    ----------
    features : numpy.ndarray, shape (n, H, d)
        phi(s_h) by trajectory and level.
    actions : numpy.ndarray of int64, shape (n, H)
    rewards : numpy.ndarray, shape (n, H)

    Examples
    --------
    >>> import dmq_fast as dmq
    >>> sampler = dmq.samplers.RolloutSampler(dmq.environments.chain(horizon=3))
    >>> drawn = sampler.trajectories(dmq.Policy.fixed([1, 1, 1]), 2, stream=dmq.Stream(0))
    >>> drawn.actions, drawn.returns_to_go(0)
    (array([[1, 1, 1],
           [1, 1, 1]]), array([1., 1.]))
    """

    features: NDArray[np.float64]
    actions: NDArray[np.int64]
    rewards: NDArray[np.float64]

    @property
    def n(self) -> int:
        """Number of trajectories."""
        return len(self.actions)

    def returns_to_go(self, level: int) -> NDArray[np.float64]:
        """Return the sums of the rewards from a level on, shape (n,)."""
        total: NDArray[np.float64] = self.rewards[:, level:].sum(axis=1)
        return total

    def moments(self, levels: Sequence[int], returns_from: Sequence[int] = ()) -> Moments:
        """Return the moments of these trajectories; see `Sampler.collect`."""
        blocks = [np.ascontiguousarray(self.features[:, level]) for level in levels]
        returns = {}
        for level in returns_from:
            y = self.returns_to_go(level)
            returns[level] = Returns(self.features[:, level].T @ y, float(y @ y), self.n)
        return Moments(self.n, levels, sums_of(blocks, self.features.shape[2]), returns)

    @classmethod
    def joined(cls, pieces: Sequence[Trajectories]) -> Trajectories:
        """Return the trajectories of at least one piece, one after the other."""
        return pieces[0] if len(pieces) == 1 else cls(*(np.concatenate(parts) for parts in zip(*pieces, strict=True)))
