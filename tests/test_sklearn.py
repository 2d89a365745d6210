"""`RidgeRegressor` against scikit-learn's own checks and models."""

from __future__ import annotations

import pickle
import subprocess
import sys

import numpy as np
import pytest

pytest.importorskip("sklearn")

from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import Ridge as Reference
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

from dmq_fast.kernels import Ridge
from dmq_fast.sklearn import RidgeRegressor


@parametrize_with_checks([RidgeRegressor(), RidgeRegressor(0.1, fit_intercept=False)])
def test_checks_of_scikit_learn(estimator, check):
    check(estimator)


def problem(seed=0, n=200, d=5, noise=0.3):
    rng = np.random.default_rng(seed)
    X, truth = rng.normal(size=(n, d)), rng.normal(size=d)
    return X, X @ truth + 2.0 + noise * rng.normal(size=n), rng.uniform(0.0, 3.0, size=n)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("intercept", [False, True])
def test_estimates_are_those_of_scikit_learn(weighted, intercept):
    X, y, weights = problem()
    weights = weights if weighted else None
    model = RidgeRegressor(0.7, fit_intercept=intercept).fit(X, y, weights)
    reference = Reference(0.7, fit_intercept=intercept, solver="cholesky").fit(X, y, weights)
    assert model.coef_ == pytest.approx(reference.coef_, rel=1e-10)
    assert model.intercept_ == pytest.approx(reference.intercept_, rel=1e-10)
    assert model.predict(X) == pytest.approx(reference.predict(X), rel=1e-10)
    pieces = RidgeRegressor(0.7, fit_intercept=intercept)
    for part in np.array_split(np.arange(len(X)), [1, 2, 50]):
        pieces.partial_fit(X[part], y[part], None if weights is None else weights[part])
    assert pieces.coef_ == pytest.approx(model.coef_, rel=1e-12)
    assert pieces.noise_variance_ == pytest.approx(model.noise_variance_, rel=1e-10)
    assert pieces.n_samples_seen_ == model.n_samples_seen_ == 200
    # Another fit forgets.
    assert (pieces.fit(X, y, weights).coef_ == model.coef_).all()


def test_standard_deviations():
    X, y, _ = problem(n=5000, noise=0.3)
    model = RidgeRegressor(1e-3).fit(X, y)
    assert model.noise_variance_ == pytest.approx(0.09, rel=0.1)
    new, fresh, _ = problem(n=5000, noise=0.3)
    mean, std = model.predict(new, return_std=True)
    assert (mean == model.predict(new)).all()
    assert ((mean - fresh) / std).std() == pytest.approx(1.0, abs=0.05)
    # As the formula says, with V of the rows themselves.
    rows = np.column_stack([X, np.ones(len(X))])
    at = np.append(new[0], 1.0)
    v = rows.T @ rows + 1e-3 * np.diag([1.0] * 5 + [0.0])
    residual = y - rows @ np.append(model.coef_, model.intercept_)
    least = residual @ residual + 1e-3 * (model.coef_ @ model.coef_)
    assert std[0] == pytest.approx(np.sqrt(least / len(y) * (1.0 + at @ np.linalg.solve(v, at))), rel=1e-9)
    assert model.predict(100 * new, return_std=True)[1].min() > std.max()


@pytest.mark.parametrize("offset", [0.0, 20.0, 2000.0, 1e6, 1e9])
@pytest.mark.parametrize("pieces", [1, 7, 300])
def test_an_offset_of_the_targets_changes_nothing_but_the_intercept(offset, pieces):
    """The intercept is not penalised, and no sums of squares are subtracted from each other."""
    X, y, weights = problem(n=300)
    y, plain = y + offset, RidgeRegressor(0.5).fit(X, y, weights)
    model = RidgeRegressor(0.5)
    for part in np.array_split(np.arange(len(X)), pieces):
        model.partial_fit(X[part], y[part], weights[part])
    # Targets are rounded to `room`, and so are means, which move once a piece.
    room = 1e-12 + 4 * np.spacing(offset) * pieces**0.5
    assert model.coef_ == pytest.approx(plain.coef_, abs=room)
    assert model.intercept_ == pytest.approx(plain.intercept_ + offset, abs=room)
    mean, std = model.predict(X[:9], return_std=True)
    expected, width = plain.predict(X[:9], return_std=True)
    assert mean == pytest.approx(expected + offset, abs=room) and std == pytest.approx(width, abs=room)


@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.parametrize("scale", [1.0, 1e4, 1e7, 1e9])
def test_features_far_from_zero_keep_the_variance(intercept, scale):
    rng = np.random.default_rng(0)
    X = scale + rng.normal(size=(1000, 1))
    y = X[:, 0] + 0.1 * rng.normal(size=1000)
    model = RidgeRegressor(1e-3, fit_intercept=intercept).fit(X, y)
    least = ((y - model.predict(X)) ** 2).sum() + 1e-3 * (model.coef_**2).sum()
    # The residuals here, of 0.1, are those of rounded predictions.
    assert model.noise_variance_ == pytest.approx(least / 1000, rel=1e-9 + np.spacing(scale) / 0.1)
    assert model.predict(X[:9], return_std=True)[1] == pytest.approx(0.1, rel=0.1)


def test_a_state_of_0_2_0_is_refused():
    X, y, _ = problem()
    state = RidgeRegressor().fit(X, y).__getstate__()
    with pytest.raises(ValueError, match=r"^state: expected that of a RidgeRegressor after 0\.2\.0"):
        RidgeRegressor().__setstate__({**state, "_squares": 1.0})


def test_a_line_without_noise():
    X = np.arange(12.0).reshape(6, 2)
    model = RidgeRegressor(1e-12, fit_intercept=False).fit(X, X @ [1.0, 2.0])
    assert 0.0 <= model.noise_variance_ < 1e-9
    assert model.predict(X, return_std=True)[1].max() < 1e-4


def test_it_works_with_the_tools_of_scikit_learn():
    X, y, _ = problem()
    search = GridSearchCV(make_pipeline(StandardScaler(), RidgeRegressor()), {"ridgeregressor__alpha": [1e-3, 1e4]})
    assert search.fit(X, y).best_params_ == {"ridgeregressor__alpha": 1e-3}
    assert search.score(X, y) > 0.9
    model = RidgeRegressor(2.0).fit(X, y)
    again = pickle.loads(pickle.dumps(model))
    assert (again.predict(X) == model.predict(X)).all() and isinstance(again.ridge_, Ridge)
    assert clone(model).get_params() == {"alpha": 2.0, "fit_intercept": True} and not hasattr(clone(model), "ridge_")
    # A copy goes its own way.
    before = model.predict(X)
    again.partial_fit(X[:1], [100.0])
    assert (model.predict(X) == before).all()


def test_arguments_are_named():
    X, y, _ = problem(n=4)
    for alpha, error in ((0.0, ValueError), (-1.0, ValueError), (np.nan, ValueError), ("1", TypeError)):
        with pytest.raises(error, match=r"^alpha: expected"):
            RidgeRegressor(alpha).fit(X, y)
    with pytest.raises(TypeError, match=r"^fit_intercept: expected"):
        RidgeRegressor(fit_intercept=1).fit(X, y)
    with pytest.raises(NotFittedError):
        RidgeRegressor().predict(X)
    model = RidgeRegressor().fit(X, y)
    theta = model.coef_.copy()
    with pytest.raises(ValueError, match="5 features"):
        model.partial_fit(X[:, :2], y)
    with pytest.raises(ValueError, match=r"[Nn]egative"):
        model.partial_fit(X, y, [-1.0, 1.0, 1.0, 1.0])
    with pytest.raises(ValueError, match="non-zero"):
        model.partial_fit(X, y, np.zeros(4))
    assert (model.coef_ == theta).all() and model.n_samples_seen_ == 4


def test_nothing_else_loads_scikit_learn():
    code = "import dmq_fast, dmq_fast.cli, sys; assert 'sklearn' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)
