"""`Trajectories`: what some trajectories looked like, level by level, where `Moments` hold sums only."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dmq_fast.kernels import as_csr, is_sparse
from dmq_fast.moments import Moments, Returns, entries_of, sums_of

if TYPE_CHECKING:
    from dmq_fast._support.arrays import Sparse

__all__ = ["Trajectories"]


class Trajectories(NamedTuple):
    """n trajectories.

    Attributes
    ----------
    features : numpy.ndarray of shape (n, H, d), or tuple of H SciPy sparse arrays of shape (n, d)
        phi(s_h) by trajectory and level; sparse where those of the environment are.
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

    features: NDArray[np.float64] | tuple[Sparse, ...]
    actions: NDArray[np.int64]
    rewards: NDArray[np.float64]

    @property
    def n(self) -> int:
        """Number of trajectories."""
        return len(self.actions)

    def at(self, level: int) -> NDArray[np.float64] | Sparse:
        """Return phi(s_h) of a level, shape (n, d), dense or as `csr_array`.

        Raises
        ------
        TypeError, ValueError
            If a sparse array is no array of numbers (n, d).
        """
        if isinstance(self.features, np.ndarray):
            return np.ascontiguousarray(self.features[:, level])
        rows = self.features[level]
        return as_csr(f"features[{level}]", rows, (self.n, None)) if is_sparse(rows) else rows

    def dense(self) -> NDArray[np.float64]:
        """Return phi(s_h) by trajectory and level, shape (n, H, d), dense."""
        if isinstance(self.features, np.ndarray):
            return self.features
        return np.stack([rows.toarray() for rows in self.features], axis=1)

    def going(self, level: int) -> NDArray[np.bool_]:
        """Return which trajectories have not ended before a level, by features that are not all 0, shape (n,)."""
        going: NDArray[np.bool_] = entries_of(self.at(level)) > 0
        return going

    def returns_to_go(self, level: int) -> NDArray[np.float64]:
        """Return the sums of the rewards from a level on, shape (n,)."""
        total: NDArray[np.float64] = self.rewards[:, level:].sum(axis=1)
        return total

    def moments(self, levels: Sequence[int], returns_from: Sequence[int] = ()) -> Moments:
        """Return the moments of these trajectories; see `Sampler.collect`."""
        blocks = [self.at(level) for level in levels]
        returns = {}
        for level in returns_from:
            rows: Any = self.features[:, level] if isinstance(self.features, np.ndarray) else self.at(level)
            y = self.returns_to_go(level)
            returns[level] = Returns(rows.T @ y, float(y @ y), self.n)
        dimension = self.features.shape[2] if isinstance(self.features, np.ndarray) else self.features[0].shape[1]
        return Moments(self.n, levels, sums_of(blocks, dimension), returns)

    @classmethod
    def joined(cls, pieces: Sequence[Trajectories]) -> Trajectories:
        """Return the trajectories of at least one piece, one after the other."""
        if len(pieces) == 1:
            return pieces[0]
        features, actions, rewards = zip(*pieces, strict=True)
        if any(isinstance(part, np.ndarray) for part in features):
            return cls(np.concatenate([piece.dense() for piece in pieces]), *map(np.concatenate, (actions, rewards)))
        from scipy.sparse import vstack

        rows = tuple(vstack(parts, format="csr") for parts in zip(*features, strict=True))
        return cls(rows, *map(np.concatenate, (actions, rewards)))
