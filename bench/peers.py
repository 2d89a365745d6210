"""Compare wide questions to the ridge kernels with the best that NumPy does: many candidates, contexts, arms, samples.

    python bench/peers.py

NumPy keeps the inverses of V, which are formed outside the timing, and writes products into arrays that are there.
Calls take turns on one BLAS thread. The table has microseconds of CPU time a call of ours, minimum and median, and how
many times as long NumPy's takes.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np
from common import heading, interleaved, line, options
from numpy.typing import NDArray

from dmq_fast.kernels import Ridge, RidgeArms

ALPHA = 0.5

Case = tuple[str, Callable[[], object], Callable[[], object], float]
"""Name, our call, NumPy's, and the relative difference that is allowed."""


def candidates(d: int, m: int, dtype: type) -> list[Case]:
    """Bounds, leverages and predictions of m rows of one regression."""
    rng = np.random.default_rng(d)
    ridge = Ridge(d, 1.0)
    ridge.update_rows(rng.normal(size=(4 * d, d)), rng.normal(size=4 * d))
    rows = (rng.normal(size=(m, d)) / np.sqrt(d)).astype(dtype)
    inverse, theta = np.linalg.inv(ridge.gram + np.eye(d)).astype(dtype), ridge.theta.astype(dtype)
    product = np.empty((m, d), dtype)

    def leverage() -> NDArray[np.floating]:
        return np.einsum("ij,ij->i", np.dot(rows, inverse, out=product), rows)

    def upper() -> NDArray[np.floating]:
        return np.dot(rows, theta) + ALPHA * np.sqrt(leverage())

    name, near = f"{m} rows, d = {d}, {np.dtype(dtype)}", 1e-9 if dtype is np.float64 else 1e-2
    return [
        (f"`Ridge.upper`, {name}", lambda: ridge.upper(rows, ALPHA), upper, near),
        (f"`Ridge.leverage`, {name}", lambda: ridge.leverage(rows), leverage, near),
        (f"`Ridge.predict`, {name}", lambda: ridge.predict(rows), lambda: np.dot(rows, theta), near),
    ]


def contexts(d: int, batch: int, n_arms: int, dtype: type) -> list[Case]:
    """Bounds of all arms for a batch of contexts: a product with the inverse of each arm."""
    rng = np.random.default_rng(d)
    arms = RidgeArms(n_arms, d, 1.0)
    inverse, theta = np.empty((n_arms, d, d), dtype), np.empty((n_arms, d), dtype)
    for k in range(n_arms):
        for row in rng.normal(size=(2 * d, d)):
            arms.update(k, row, rng.normal())
        inverse[k], theta[k] = np.linalg.inv(arms.factor[k].T @ arms.factor[k]), arms.theta[k]
    rows = (rng.normal(size=(batch, d)) / np.sqrt(d)).astype(dtype)
    product, squares = np.empty((batch, d), dtype), np.empty((batch, n_arms), dtype)

    def upper() -> NDArray[np.floating]:
        for k in range(n_arms):
            squares[:, k] = np.einsum("ij,ij->i", np.dot(rows, inverse[k], out=product), rows)
        return np.dot(rows, theta.T) + ALPHA * np.sqrt(squares)

    name = f"`RidgeArms.upper`, {batch} contexts, {n_arms} arms, d = {d}, {np.dtype(dtype)}"
    return [(name, lambda: arms.upper(rows, ALPHA), upper, 1e-9 if dtype is np.float64 else 1e-2)]


def shared(d: int, batch: int, n_arms: int) -> list[Case]:
    """Bounds of arms that share their rows, and so one factor."""
    rng = np.random.default_rng(d)
    ridge = Ridge(d, 1.0, targets=n_arms)
    ridge.update_rows(rng.normal(size=(4 * d, d)), rng.normal(size=(4 * d, n_arms)))
    rows = rng.normal(size=(batch, d)) / np.sqrt(d)
    inverse, theta, product = np.linalg.inv(ridge.gram + np.eye(d)), ridge.theta, np.empty((batch, d))

    def upper() -> NDArray[np.floating]:
        squares = np.einsum("ij,ij->i", np.dot(rows, inverse, out=product), rows)
        return np.dot(rows, theta) + (ALPHA * np.sqrt(squares))[:, None]

    name = f"`Ridge(targets={n_arms}).upper`, {batch} contexts, d = {d}"
    return [(name, lambda: ridge.upper(rows, ALPHA), upper, 1e-9)]


def draws(d: int, m: int) -> list[Case]:
    """Samples of the posterior: normals, and a product with the inverse of the factor."""
    rng = np.random.default_rng(d)
    ridge = Ridge(d, 1.0)
    ridge.update_rows(rng.normal(size=(4 * d, d)), rng.normal(size=4 * d))
    root, theta = np.linalg.inv(ridge.factor).T.copy(), ridge.theta

    def sample() -> NDArray[np.floating]:
        return theta + np.dot(np.random.default_rng(1).standard_normal((m, d)), root)

    ours = f"`Ridge.sample_many`, {m} draws, d = {d}"
    return [(ours, lambda: ridge.sample_many(np.random.default_rng(1), m), sample, 1e-9)]


def main(rounds: int, only: str) -> None:
    """Print the table."""
    cases: list[Case] = []
    for dtype in (np.float64, np.float32):
        sizes = {16: (20, 10_000), 32: (10_000,), 64: (20, 1000, 10_000), 128: (1000,), 256: (1000,)}
        for d, m in ((d, m) for d, many in sizes.items() for m in many):
            cases += candidates(d, m, dtype)
        for d in (16, 64, 256):
            cases += contexts(d, 1000, 10, dtype)
    for d in (16, 64, 256):
        cases += shared(d, 1000, 10) + draws(d, 256)
    heading(["call", "µs, minimum, median", "NumPy, ratio of minima", "ratio of medians"])
    for name, ours, theirs, near in cases:
        if only not in name:
            continue
        np.testing.assert_allclose(ours(), theirs(), rtol=near, atol=near)
        number = max(1, int(2e-3 / min(interleaved({"ours": ours}, 1, 3, time.process_time)["ours"][0] + 1e-7, 1.0)))
        times = interleaved({"ours": ours, "theirs": theirs}, number, rounds, time.process_time)
        (low, middle), (least, median) = times["ours"], times["theirs"]
        line([name, f"{low * 1e6:.1f}, {middle * 1e6:.1f}", f"{least / low:.2f}", f"{median / middle:.2f}"])


if __name__ == "__main__":
    given = options(__doc__, rounds=15, only="")
    main(given.rounds, given.only)
