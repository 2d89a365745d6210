"""`RidgeRegressor`: `Ridge` with the manners of scikit-learn, which is the extra ``sklearn``."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dmq_fast._support.checks import flag
from dmq_fast.kernels import Ridge, as_positive

try:
    from sklearn.base import BaseEstimator, RegressorMixin
    from sklearn.utils.validation import _check_sample_weight, check_is_fitted, validate_data
except ModuleNotFoundError as _missing:
    if _missing.name != "sklearn":
        raise
    raise ModuleNotFoundError(
        'dmq_fast.sklearn: expected scikit-learn >= 1.6: pip install "dmq-fast[sklearn]"', name="sklearn"
    ) from None

__all__ = ["RidgeRegressor"]


class RidgeRegressor(RegressorMixin, BaseEstimator):  # type: ignore[misc]
    """Ridge regression that learns row by row and has a standard error for each prediction.

    It minimises ``sum_i w_i (y_i - x_i^T coef - intercept)^2 + alpha |coef|^2``, as `sklearn.linear_model.Ridge` does.
    `partial_fit` in any pieces gives the estimate of one `fit`, up to rounding.

    Parameters
    ----------
    alpha : float, default 1.0
        Penalty > 0 of the coefficients; the intercept has none.
    fit_intercept : bool, default True
        Whether to fit an intercept.

    Attributes
    ----------
    coef_ : numpy.ndarray, shape (n_features,)
    intercept_ : float
        0 without one.
    noise_variance_ : float
        Variance of y about the line, at which the rows seen are likeliest if coefficients are normal with this variance
        divided by alpha: the minimum above, divided by the sum of the weights.
    n_samples_seen_ : int
    n_features_in_ : int
    feature_names_in_ : numpy.ndarray
        Only where X had names.
    ridge_ : Ridge
        The sums and the factor behind these. With an intercept, they are those about the means of X and y: each call of
        `partial_fit` adds its rows less their means, and one row for the distance to the means before it.

    Notes
    -----
    Neither sums of squares nor products with the offsets of X and y are subtracted from each other. A block of rows
    X with targets y takes the minimum R, the estimate coef and ``V = alpha I + sum w x x^T`` to ::

        R' = R + |V^{1/2} (coef' - coef)|^2 + |y - X coef'|^2

    where no term is negative, and an error of coef' enters by its square only.

    Examples
    --------
    >>> model = RidgeRegressor(alpha=0.1).fit([[0.0], [1.0]], [1.0, 2.0])
    >>> model.partial_fit([[2.0], [3.0]], [3.0, 4.0]).predict([[4.0]]).round(1)
    array([5.])
    """

    ridge_: Ridge
    n_samples_seen_: int
    n_features_in_: int
    # The minimum and the sum of w; whether there is an intercept; means of X and y, zeros without one.
    _least: float
    _total: float
    _constant: bool
    _center: NDArray[np.float64]
    _level: float

    def __init__(self, alpha: float = 1.0, *, fit_intercept: bool = True) -> None:
        self.alpha = alpha
        self.fit_intercept = fit_intercept

    def fit(self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None) -> Self:
        """Forget what was learned, and learn these rows.

        Parameters
        ----------
        X : array_like, shape (n, n_features)
        y : array_like, shape (n,)
        sample_weight : array_like, shape (n,), optional
            Non-negative weights, not all 0; ones by default. A weight of 2 is a row seen twice.

        Returns
        -------
        RidgeRegressor
            The object itself.

        Raises
        ------
        TypeError, ValueError
            On a parameter or an array of a wrong type, shape or range.
        """
        self.__dict__.pop("ridge_", None)
        return self.partial_fit(X, y, sample_weight)

    def partial_fit(self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None) -> Self:
        """Learn these rows as well. Arguments, result and errors are those of `fit`."""
        first = not hasattr(self, "ridge_")
        rows, targets = validate_data(self, X, y, reset=first, dtype=np.float64, order="C", y_numeric=True)
        targets = np.asarray(targets, dtype=np.float64)
        n, share = len(targets), np.ones(len(targets))
        if sample_weight is not None:
            share = _check_sample_weight(sample_weight, rows, dtype=np.float64, ensure_non_negative=True)
        if not share.any():
            raise ValueError("sample_weight: expected at least one non-zero number")
        if first:
            ridge = Ridge(rows.shape[1], as_positive("alpha", self.alpha))
            constant = flag("fit_intercept", self.fit_intercept)
            least, before, seen, center, level = 0.0, 0.0, 0, np.zeros(rows.shape[1]), 0.0
        else:
            ridge, constant, center, level = self.ridge_, self._constant, self._center, self._level
            least, before, seen = self._least, self._total, self.n_samples_seen_
        added = float(share.sum())
        if constant:
            rows, targets, share, center, level = _about_means(rows, targets, share, center, level, before)
        theta, factor = ridge.theta, ridge.factor.copy()
        ridge.update_rows(rows, targets, share)
        moved, residual = factor @ (ridge.theta - theta), targets - ridge.predict(rows)
        self.ridge_, self._constant, self._center, self._level = ridge, constant, center, level
        self._least = least + float(moved @ moved + share @ (residual * residual))
        self._total = before + added
        self.n_samples_seen_ = seen + n
        return self

    def predict(
        self, X: ArrayLike, return_std: bool = False
    ) -> NDArray[np.float64] | tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return predictions, and their standard deviations.

        Parameters
        ----------
        X : array_like, shape (n, n_features)
        return_std : bool, default False

        Returns
        -------
        mean : numpy.ndarray, shape (n,)
        std : numpy.ndarray, shape (n,)
            Only with `return_std`: of a new y at each row, (noise_variance_ (1 + x^T V^{-1} x))^{1/2}. With an
            intercept x is the row less the mean of X, and 1 + 1 / (sum of weights) takes the place of 1.

        Raises
        ------
        sklearn.exceptions.NotFittedError
            Before `fit` and `partial_fit`.
        TypeError, ValueError
            On an array of a wrong type or shape, or an entry that is not finite.
        """
        check_is_fitted(self, "ridge_")
        rows = validate_data(self, X, reset=False, dtype=np.float64, order="C") - self._center
        mean: NDArray[np.float64] = self._level + self.ridge_.predict(rows)
        if not return_std:
            return mean
        own = 1.0 + 1.0 / self._total if self._constant else 1.0
        return mean, np.sqrt(self.noise_variance_ * (own + self.ridge_.leverage(rows)))

    def __setstate__(self, state: dict[str, Any]) -> None:
        if "_squares" in state:
            raise ValueError(
                "state: expected that of a RidgeRegressor after 0.2.0, which penalised the intercept; fit again"
            )
        super().__setstate__(state)

    @property
    def coef_(self) -> NDArray[np.float64]:
        """Coefficients of the features."""
        return self.ridge_.theta

    @property
    def intercept_(self) -> float:
        """Prediction where all features are 0."""
        return self._level - float(self._center @ self.ridge_.theta)

    @property
    def noise_variance_(self) -> float:
        """Variance of y about the line."""
        return self._least / self._total


def _about_means(
    rows: NDArray[np.float64],
    targets: NDArray[np.float64],
    share: NDArray[np.float64],
    center: NDArray[np.float64],
    level: float,
    before: float,
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64], NDArray[np.float64], float]:
    """Return rows, targets and weights to add to sums about the means of rows of weight `before`, and the new means.

    These are the rows less their own means, and the difference of the means with weight ``before w / (before + w)``,
    where w is the weight of the rows (Chan, Golub and LeVeque 1983).
    """
    added = float(share.sum())
    mean, middle = np.average(rows, axis=0, weights=share), float(np.average(targets, weights=share))
    step, rise = mean - center, middle - level
    part = added / (before + added)
    return (
        np.vstack([rows - mean, step]),
        np.append(targets - middle, rise),
        np.append(share, before * part),
        center + part * step,
        level + part * rise,
    )
