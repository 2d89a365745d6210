"""Function classes: how to fit one, and how to ask the DSEC oracle about it."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dmq_fast.kernels import RidgeFit, ShiftScan
from dmq_fast.moments import Moments

__all__ = ["LinearClass"]


class LinearClass:
    """Linear functions f(s) = phi(s)^T theta (paper, section 6).

    Parameters
    ----------
    dimension : int
        Feature dimension d.
    ridge : float
        lambda_ridge of the regression, Gamma(theta) = lambda_ridge ||theta||^2.
    eps_s, eps_t, eps_r : float
        Of the oracle. Only the ratio R = eps_t / eps_s and eps_r enter its answer.
    oracle : {"decision", "value"}
        Answer by one factorisation alone, or compute the top eigenvalue v as well.
    """

    def __init__(self, dimension: int, *, ridge: float, eps_s: float, eps_t: float, eps_r: float, oracle: str) -> None:
        self._ridge_fit = RidgeFit(dimension, ridge)
        self._scan = ShiftScan(dimension, eps_s, eps_t, eps_r, oracle == "value")

    @property
    def n_marginal(self) -> int:
        """How many oracle answers so far were too close to call; see `kernels.DsecResult`."""
        return self._scan.n_marginal

    def fit(self, moments: Moments, level: int) -> NDArray[np.float64]:
        """Return the ridge estimate theta_h^a, shape (d,), from pairs (phi(s_h), y) of one level (equation 2)."""
        pairs = moments.returns[level]
        return self._ridge_fit(moments.grams[moments.levels.index(level)], pairs.moment, pairs.n)

    def scan(
        self, cover: NDArray[np.float64], moments: Moments, top: int, bottom: int
    ) -> tuple[int, NDArray[np.float64]]:
        """Invoke the oracle on levels top, top - 1, ..., bottom, until it says True.

        Parameters
        ----------
        cover : numpy.ndarray, shape (H, d, d)
            S_h = sum over pi in Pi_h of M_pi. The cardinality of the cover cancels: with D_h of N states a
            policy, M1 = (S_h + eps_r I) / |Pi_h| and eps_1 = eps_s / |Pi_h|, so that
            v = eps_s lambda_max((S_h + eps_r I)^{-1} M2).
        moments : Moments
            Of the candidate policy; its levels are consecutive.
        top, bottom : int
            First and last level to test.

        Returns
        -------
        level : int
            The level whose answer was True, or -1.
        values : numpy.ndarray
            v of each level tested, in order; empty with ``oracle="decision"``.
        """
        level, values = self._scan.scan(cover, moments.grams, moments.n, moments.levels[0], top, bottom)
        return level, np.asarray(values)
