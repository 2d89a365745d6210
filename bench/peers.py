"""Measure online ridge regression, one row a call, beside the libraries that one would use instead.

    pip install contextualbandits river scikit-learn vowpalwabbit
    python bench/peers.py [--dimensions 16 64 256] [--rounds 15]

Prints a Markdown table of microseconds a call (CPU time), minimum and median; the least minimum is bold. All libraries
learn the same rows in one process, on one BLAS thread, and take turns. One that is not installed is left out, and a
line says so. The columns:

- row: bring a NumPy row into the form that the library takes. The other columns start from that form.
- update: add a row.
- predict: x^T theta of a row, with theta at hand.
- leverage: x^T V^{-1} x of a row, or the call from whose result it follows.
- sample: draw from N(theta, V^{-1}), or make the prediction of such a draw.
- step: update, predict and leverage. This has the work, too, that a library puts off until it is asked.

Predictions and leverages must be those of `Ridge` with the same rows; the variance of draws is printed. First-order
methods estimate something else: `SGDRegressor` and vowpalwabbit are only timed, and not in bold.
"""

import argparse
import itertools
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from importlib.metadata import version
from importlib.util import find_spec
from typing import Any

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np
from scipy.linalg.blas import dsymv, dtrmv
from scipy.linalg.lapack import dpotrf
from test_ridge import REGULARIZATION, BlasShermanMorrison, ShermanMorrison

from dmq_fast.kernels import Ridge

COLUMNS = ("row", "update", "predict", "leverage", "sample", "step")
# Rows learned before anything is measured, in units of d; and rows that the measured calls go through.
LEARNED, MEASURED = 4, 256
# Shortest measurement, in seconds: it holds a hundred updates of `Ridge`, which adds every 64 rows to its Gram matrix.
SHORTEST = 1e-3
# Dimension and number of the draws whose variance is measured; its relative standard error is sqrt(2 / DRAWS).
DRAWN, DRAWS = 16, 2000


@dataclass
class Peer:
    """A library: its calls, and what they take and give."""

    name: str
    update: Callable[[Any, Any], Any]
    predict: Callable[[Any], Any]
    leverage: Callable[[Any], Any] | None = None
    # Of a row, as some libraries draw predictions only.
    sample: Callable[[Any], Any] | None = None
    # The library's row and target from a NumPy row x and a float y.
    row: Callable[[np.ndarray, float], Any] = lambda x, y: x
    target: Callable[[float], Any] = lambda y: y
    # The leverage from the results of `leverage` and `predict`.
    leverage_from: Callable[[Any, float], float] = lambda result, prediction: result
    # The prediction of a draw from the result of `sample` and x.
    prediction_of: Callable[[Any, np.ndarray], float] = lambda draw, x: draw @ x
    # lambda of the estimate; None if it is not that of ridge regression.
    regularization: Callable[[], float] | None = lambda: REGULARIZATION
    # Whether an update fits all rows again.
    refits: bool = False


def row_of_matrix(x, y):
    return x[None, :].copy()


def target_of_vector(y):
    return np.array([y])


def ours(phi, y, rng):
    """`Ridge`."""
    ridge = Ridge(phi.shape[1], REGULARIZATION)
    return Peer("dmq_fast", ridge.update, ridge.predict, ridge.leverage, lambda row: ridge.sample(rng))


class Queries:
    """What a bandit asks of a learner with V^{-1} and sum_i y_i x_i; theta is computed when it is asked for."""

    def __init__(self, d, rng):
        super().__init__(d)
        self.rng, self.at_hand = rng, None

    def update(self, x, y):
        """Add a row."""
        super().update(x, y)
        self.at_hand = None

    def estimate(self):
        """Return theta."""
        if self.at_hand is None:
            self.at_hand = self.theta
        return self.at_hand

    def predict(self, x):
        """Return x^T theta."""
        return self.estimate() @ x

    def leverage(self, x):
        """Return x^T V^{-1} x."""
        return self.solve(x) @ x

    def sample(self, x):
        """Draw from N(theta, V^{-1})."""
        return self.estimate() + self.displacement(self.rng.standard_normal(len(x)))


class ByNumPy(Queries, ShermanMorrison):
    """The queries by NumPy."""

    def solve(self, x):
        """Return V^{-1} x."""
        return self.inverse @ x

    def displacement(self, z):
        """Return L z, where V^{-1} = L L^T."""
        return np.linalg.cholesky(self.inverse) @ z


class ByBlas(Queries, BlasShermanMorrison):
    """The queries by BLAS and LAPACK, which read the upper triangle only."""

    def solve(self, x):
        """Return V^{-1} x."""
        return dsymv(1.0, self.inverse, x)

    def displacement(self, z):
        """Return L z, where V^{-1} = L L^T."""
        return dtrmv(dpotrf(self.inverse, clean=0)[0], z, trans=1, overwrite_x=1)


def numpy(phi, y, rng):
    """Sherman-Morrison updates by NumPy."""
    model = ByNumPy(phi.shape[1], rng)
    return Peer("NumPy", model.update, model.predict, model.leverage, model.sample)


def scipy(phi, y, rng):
    """Sherman-Morrison updates by SciPy's BLAS."""
    model = ByBlas(phi.shape[1], rng)
    return Peer("SciPy's BLAS", model.update, model.predict, model.leverage, model.sample)


def contextualbandits(phi, y, rng):
    """Sherman-Morrison updates in compiled code. Every update solves for theta; a draw is an eigendecomposition."""
    from contextualbandits.linreg import LinearRegression

    model = LinearRegression(REGULARIZATION, fit_intercept=False, method="sm", use_float=False)
    return Peer(
        "contextualbandits",
        model.partial_fit,
        model.predict,
        # x^T theta + sqrt(leverage)
        model.predict_ucb,
        partial(model.predict_thompson, random_state=rng),
        row_of_matrix,
        target_of_vector,
        lambda result, prediction: (float(result[0]) - prediction) ** 2,
        lambda draw, x: float(draw[0]),
    )


def river(phi, y, rng):
    """Sherman-Morrison updates by NumPy and SciPy, of rows that are dictionaries."""
    from river.linear_model import BayesianLinearRegression

    model = BayesianLinearRegression(alpha=1 / REGULARIZATION, beta=1)
    return Peer(
        "river",
        model.learn_one,
        model.predict_one,
        # The distribution of a new y, of variance 1 + leverage.
        partial(model.predict_one, with_dist=True),
        row=lambda x, y: dict(enumerate(x.tolist())),
        leverage_from=lambda result, prediction: result.sigma**2 - 1.0,
    )


def sklearn_ridge(phi, y, rng):
    """A fit of all rows for each that comes."""
    from sklearn.linear_model import Ridge as Refit

    model = Refit(REGULARIZATION, fit_intercept=False, solver="cholesky")
    return Peer(
        "scikit-learn Ridge", lambda row, target: model.fit(phi, y), model.predict, row=row_of_matrix, refits=True
    )


def sklearn_bayesian(phi, y, rng):
    """A fit of all rows for each that comes, at the lambda of the largest evidence."""
    from sklearn.linear_model import BayesianRidge

    model = BayesianRidge(fit_intercept=False)
    return Peer(
        "scikit-learn BayesianRidge",
        lambda row, target: model.fit(phi, y),
        model.predict,
        # x^T theta and the standard deviation of a new y, of variance (1 + leverage) / alpha_.
        partial(model.predict, return_std=True),
        row=row_of_matrix,
        leverage_from=lambda result, prediction: model.alpha_ * float(result[1][0]) ** 2 - 1.0,
        regularization=lambda: model.lambda_ / model.alpha_,
        refits=True,
    )


def sklearn_gradient(phi, y, rng):
    """A gradient step for each row."""
    from sklearn.linear_model import SGDRegressor

    model = SGDRegressor(fit_intercept=False)
    return Peer(
        "scikit-learn SGDRegressor",
        model.partial_fit,
        model.predict,
        row=row_of_matrix,
        target=target_of_vector,
        regularization=None,
    )


def vowpalwabbit(phi, y, rng):
    """A normalised adaptive gradient step for each row. Rows are text, with the target."""
    from vowpalwabbit import Workspace

    model = Workspace("--quiet --noconstant")
    return Peer(
        "vowpalwabbit",
        lambda row, target: model.learn(row),
        model.predict,
        row=lambda x, y: model.parse(f"{y!r} | " + " ".join(f"{i}:{value!r}" for i, value in enumerate(x.tolist()))),
        regularization=None,
    )


MAKERS = (
    *(ours, numpy, scipy, contextualbandits, river),
    *(sklearn_ridge, sklearn_bayesian, sklearn_gradient, vowpalwabbit),
)


def installed():
    """Return the makers whose libraries are installed; print the others, and all versions."""
    found, rows = [], np.eye(2)
    for make in MAKERS:
        try:
            make(rows, rows[0], None)
        except ModuleNotFoundError as error:
            print(f"{make.__name__} is left out: {error}")
        else:
            found.append(make)
    libraries = ("numpy", "scipy", "contextualbandits", "river", "scikit-learn", "vowpalwabbit")
    print(", ".join(f"{name} {version(name)}" for name in libraries if find_spec(name.replace("scikit-", "sk"))), "\n")
    return found


def taught(makers, phi, y, rng):
    """Return a peer of each maker that has learned the rows."""
    peers = [make(phi, y, rng) for make in makers]
    for peer in peers:
        for x, target in [(phi[-1], y[-1])] if peer.refits else zip(phi, y, strict=True):
            peer.update(peer.row(x, target), peer.target(target))
    return peers


def check(peer, phi, y, probes):
    """Check predictions and leverages of d probes, so theta too, against those of `Ridge` with the same rows."""
    ridge = Ridge(phi.shape[1], peer.regularization())
    ridge.update_rows(phi, y)
    for x in probes:
        row = peer.row(x, 0.0)
        prediction = float(np.squeeze(peer.predict(row)))
        np.testing.assert_allclose(prediction, ridge.predict(x), rtol=1e-8, atol=1e-8, err_msg=peer.name)
        if peer.leverage is not None:
            leverage = peer.leverage_from(peer.leverage(row), prediction)
            np.testing.assert_allclose(leverage, ridge.leverage(x), rtol=1e-8, err_msg=peer.name)


def columns_of(peer, phi, y):
    """Return the calls of each column, and the arguments that they go through."""
    rows = [peer.row(x, target) for x, target in zip(phi, y, strict=True)]
    pairs = list(zip(rows, [peer.target(target) for target in y], strict=True))
    singles = [(row,) for row in rows]

    def step(row, target):
        peer.update(row, target)
        peer.predict(row)
        peer.leverage(row)

    calls = {"row": (peer.row, list(zip(phi, y, strict=True))), "update": (peer.update, pairs)}
    calls["predict"] = (peer.predict, singles)
    if peer.leverage is not None:
        calls |= {"leverage": (peer.leverage, singles), "step": (step, pairs)}
    if peer.sample is not None:
        calls["sample"] = (peer.sample, singles)
    return calls


def seconds(call, arguments):
    """Return the CPU seconds of a call, from as many as last `SHORTEST`."""
    n = 1
    while True:
        chosen = list(itertools.islice(itertools.cycle(arguments), n))
        began = time.thread_time()
        for given in chosen:
            call(*given)
        took = time.thread_time() - began
        if took >= SHORTEST:
            return took / n
        n *= 2


def measured(peers, phi, y, rounds):
    """Return the microseconds of all rounds by peer and column; the calls take turns."""
    calls = {(peer.name, column): each for peer in peers for column, each in columns_of(peer, phi, y).items()}
    times = {key: [] for key in calls}
    for _ in range(rounds):
        for key, (call, arguments) in calls.items():
            times[key].append(1e6 * seconds(call, arguments))
    return times


def print_variances(makers, rng):
    """Print the variance of x^T draw for the draws of each peer, divided by x^T V^{-1} x."""
    phi, y = rows(DRAWN, LEARNED * DRAWN, rng)
    print(f"Variance of {DRAWS} draws, divided by the leverage, d = {DRAWN}:\n")
    for peer in taught(makers, phi, y, rng):
        if peer.sample is not None:
            row = peer.row(phi[0], y[0])
            prediction = float(np.squeeze(peer.predict(row)))
            draws = [peer.prediction_of(peer.sample(row), phi[0]) for _ in range(DRAWS)]
            ratio = np.var(draws) / peer.leverage_from(peer.leverage(row), prediction)
            print(f"- {peer.name}: {ratio:.2f}, their mean off by {abs(np.mean(draws) - prediction):.2g}")
    print()


def rows(d, n, rng):
    """Return n rows of length about 1 and noisy targets."""
    phi = rng.normal(size=(n, d)) / np.sqrt(d)
    return phi, (phi @ rng.normal(size=d) + 0.1 * rng.normal(size=n)).tolist()


def cell(times, best):
    """Return minimum and median of the times, if there are any; in bold if the minimum is the best one."""
    if times is None:
        return ""
    text = ", ".join(f"{each:.3g}" if each < 1000 else f"{each:,.0f}" for each in (min(times), np.median(times)))
    return f"**{text}**" if min(times) == best else text


def main():
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dimensions", type=int, nargs="+", default=[16, 64, 256])
    parser.add_argument("--rounds", type=int, default=15)
    arguments = parser.parse_args()
    makers, rng = installed(), np.random.default_rng(0)
    print_variances(makers, rng)
    print("| d | library | " + " | ".join(COLUMNS) + " |\n" + "|---" * (2 + len(COLUMNS)) + "|")
    for d in arguments.dimensions:
        phi, y = rows(d, LEARNED * d, rng)
        peers = taught(makers, phi, y, rng)
        exact = [peer for peer in peers if peer.regularization is not None]
        for peer in exact:
            check(peer, phi, y, probes=rows(d, d, rng)[0])
        times = measured(peers, *rows(d, MEASURED, rng), arguments.rounds)
        best = {
            column: min(min(times[peer.name, column]) for peer in exact if (peer.name, column) in times)
            for column in COLUMNS[1:]
        }
        for peer in peers:
            cells = [cell(times.get((peer.name, column)), best.get(column)) for column in COLUMNS]
            print(f"| {d} | {peer.name} | " + " | ".join(cells) + " |", flush=True)


if __name__ == "__main__":
    main()
