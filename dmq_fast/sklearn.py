"""`RidgeRegressor`: `Ridge` with the manners of scikit-learn, which is the extra ``sklearn``."""

from __future__ import annotations

from typing import Self

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

    It minimises ``sum_i w_i (y_i - x_i^T coef - intercept)^2 + alpha (|coef|^2 + intercept^2)``. `partial_fit` in any
    pieces gives the estimate of one `fit`, up to rounding.

    Parameters
    ----------
    alpha : float, default 1.0
        Penalty > 0.
    fit_intercept : bool, default True
        Whether to fit an intercept, as the coefficient of a feature that is 1. So it is penalised, too, unlike that of
        `sklearn.linear_model.Ridge`.

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
        The sums and the factor behind these, with the feature that is 1 last.

    Examples
    --------
    >>> model = RidgeRegressor(alpha=0.1).fit([[0.0], [1.0]], [1.0, 2.0])
    >>> model.partial_fit([[2.0], [3.0]], [3.0, 4.0]).predict([[4.0]]).round(1)
    array([5.])
    """

    ridge_: Ridge
    n_samples_seen_: int
    n_features_in_: int
    # Sums of w y^2 and of w; whether there is a feature that is 1.
    _squares: float
    _total: float
    _constant: bool

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
        weights = None
        if sample_weight is not None:
            weights = _check_sample_weight(sample_weight, rows, dtype=np.float64, ensure_non_negative=True)
        if first:
            alpha = as_positive("alpha", self.alpha)
            self._constant = flag("fit_intercept", self.fit_intercept)
            ridge, squares, total, seen = Ridge(rows.shape[1] + self._constant, alpha), 0.0, 0.0, 0
        else:
            ridge, squares, total, seen = self.ridge_, self._squares, self._total, self.n_samples_seen_
        ridge.update_rows(self._features(rows), targets, weights)
        self.ridge_ = ridge
        self._squares = squares + float((targets * targets).sum() if weights is None else weights @ (targets * targets))
        self._total = total + float(len(targets) if weights is None else weights.sum())
        self.n_samples_seen_ = seen + len(targets)
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
            Only with `return_std`: of a new y at each row, (noise_variance_ (1 + x^T V^{-1} x))^{1/2}.

        Raises
        ------
        sklearn.exceptions.NotFittedError
            Before `fit` and `partial_fit`.
        TypeError, ValueError
            On an array of a wrong type or shape, or an entry that is not finite.
        """
        check_is_fitted(self, "ridge_")
        rows = self._features(validate_data(self, X, reset=False, dtype=np.float64, order="C"))
        mean: NDArray[np.float64] = self.ridge_.predict(rows)
        if not return_std:
            return mean
        return mean, np.sqrt(self.noise_variance_ * (1.0 + self.ridge_.leverage(rows)))

    def _features(self, rows: NDArray[np.float64]) -> NDArray[np.float64]:
        return np.column_stack([rows, np.ones(len(rows))]) if self._constant else rows

    @property
    def coef_(self) -> NDArray[np.float64]:
        """Coefficients of the features."""
        return self.ridge_.theta[: self.n_features_in_]

    @property
    def intercept_(self) -> float:
        """Prediction where all features are 0."""
        return float(self.ridge_.theta[-1]) if self._constant else 0.0

    @property
    def noise_variance_(self) -> float:
        """Variance of y about the line."""
        # The minimum is sum w y^2 - theta^T sum w y phi, which rounding may leave below 0 where y is linear.
        least = self._squares - float(self.ridge_.theta @ self.ridge_.moment)
        return max(least, 0.0) / self._total
