"""Times of the DSEC oracle and of implementations with NumPy and SciPy, as ``dmq-fast bench oracle`` prints them.

All methods get the same two second moments and return the decision, or the value v that decides. They take turns, so
that noise hits all of them alike: in every round each is called once to warm the caches, then for at least `SAMPLE`
seconds. Arrays are prepared outside the timing, in the memory order that each routine needs.
"""

from __future__ import annotations

import itertools
import math
import os
import platform
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import scipy
import scipy.linalg
from numpy.typing import NDArray
from scipy.linalg import lapack

from dmq_fast import kernels
from dmq_fast._support import threads
from dmq_fast._version import __version__

__all__ = ["ALTERNATIVE", "DIMENSIONS", "FLOOR", "OURS", "ROUNDS", "Method", "measure", "methods"]

DIMENSIONS = (4, 8, 16, 32, 64, 128, 256, 512)
ROUNDS = 15

SAMPLE = 200e-6
"""Smallest duration of a sample in seconds."""

REGULARISER = 1e-2
LEVELS = 100
LARGEST_BATCH = 2**22
"""Largest number of doubles in an array of a batch; from d = 205 on a batch has fewer than `LEVELS` levels."""

OURS, ALTERNATIVE, FLOOR = "ours", "alternative", "floor"

FALSE, TRUE = "decision, False, v = .99 R", "decision, True, v = 10 R, one direction"
BATCH, VALUE = "decision, False, per level of a batch", "value"
WHITENING, EIGH, SYGVX = "numpy eigh, eigvalsh", "scipy eigh, gvx, top", "f2py dsygvx, top"
POTRF = "f2py dpotrf of R M1 - M2, ready-made"

THREADS = "BLAS may run on several threads: set OPENBLAS_NUM_THREADS=1 for times that compare"

Matrix = NDArray[np.float64]


class Method(NamedTuple):
    """A method to time: one call gives `calls` answers, and `check` returns whether an answer is right."""

    name: str
    kind: str
    call: Callable[[], Any]
    check: Callable[[Any], bool]
    calls: int = 1


def instance(d: int) -> tuple[Matrix, Matrix]:
    """Return the regularised second moment M1 of D1 and the second moment M2 of D2, both of Gaussian features."""
    rows1, rows2 = np.random.default_rng(d).normal(size=(2, 4 * d, d)) / np.sqrt(d)
    return symmetric(rows1.T @ rows1 / (4 * d) + REGULARISER * np.eye(d)), symmetric(rows2.T @ rows2 / (4 * d))


def new_direction(d: int) -> tuple[Matrix, Matrix]:
    """Return M1 and M2 for a D2 of a single feature vector, orthogonal to all of D1."""
    rng = np.random.default_rng(d)
    new = rng.normal(size=d)
    new /= np.linalg.norm(new)
    rows = rng.normal(size=(4 * d, d)) / np.sqrt(d)
    rows -= np.outer(rows @ new, new)
    return symmetric(rows.T @ rows / (4 * d) + REGULARISER * np.eye(d)), np.outer(new, new)


def symmetric(m: Matrix) -> Matrix:
    """Return a matrix without its asymmetry, which is due to rounding."""
    return (m + m.T) / 2


def methods(d: int) -> Iterator[Method]:
    """Yield all methods of dimension d, on one instance."""
    m1, m2 = instance(d)
    m1_new, m2_new = new_direction(d)
    v, v_new = (float(scipy.linalg.eigvalsh(b, a)[-1]) for a, b in ((m1, m2), (m1_new, m2_new)))
    ratio = v / 0.99  # eps1 = 1, so that R = eps2
    close = partial(is_close, v)

    yield Method(FALSE, OURS, partial(kernels.dsec_decision, m1, m2, 1.0, ratio), is_false)
    yield Method(TRUE, OURS, partial(kernels.dsec_decision, m1_new, m2_new, 1.0, v_new / 10), is_true)
    levels = max(1, min(LEVELS, LARGEST_BATCH // (d * d)))
    cover = np.repeat((m1 - REGULARISER * np.eye(d))[None], levels, axis=0)
    grams = np.repeat(m2[None], levels, axis=0)
    scan = partial(kernels.ShiftScan(d, 1.0, ratio, REGULARISER, False).scan, cover, grams, 1.0, 0, levels - 1, 0)
    yield Method(BATCH, OURS, scan, lambda answer: bool(answer[0] == -1), levels)
    yield Method(VALUE, OURS, partial(kernels.dsec_value, m1, m2, 1.0), close)

    yield Method(WHITENING, ALTERNATIVE, partial(by_whitening, m1, m2), close)
    eigh = partial(scipy.linalg.eigh, m2, m1, eigvals_only=True, check_finite=False, driver="gvx")
    yield Method(EIGH, ALTERNATIVE, partial(eigh, subset_by_index=[d - 1, d - 1]), lambda w: close(w[0]))
    sygvx = partial(lapack.dsygvx, *map(np.asfortranarray, (m2, m1)), jobz="N", range="I", il=d, iu=d)
    yield Method(SYGVX, ALTERNATIVE, sygvx, lambda out: close(out[0][0]))

    definite = np.asfortranarray(symmetric(ratio * m1 - m2))
    yield Method(POTRF, FLOOR, partial(lapack.dpotrf, definite, lower=1, clean=0), lambda out: bool(out[1] == 0))


def is_true(answer: object) -> bool:
    """Return whether a decision is True."""
    return answer is True


def is_false(answer: object) -> bool:
    """Return whether a decision is False."""
    return answer is False


def is_close(expected: float, value: float) -> bool:
    """Return whether a value agrees with the expected one."""
    return math.isclose(value, expected, rel_tol=1e-8)


def by_whitening(m1: Matrix, m2: Matrix) -> float:
    """Return the value by the paper's formula."""
    w, q = np.linalg.eigh(m1)
    root = q / np.sqrt(w)
    return float(np.linalg.eigvalsh(root.T @ m2 @ root)[-1])


def measure(
    dimensions: Sequence[int] = DIMENSIONS,
    rounds: int = ROUNDS,
    progress: Callable[[list[dict[str, Any]]], object] | None = None,
) -> dict[str, Any]:
    """Time every method in every dimension.

    Parameters
    ----------
    dimensions : sequence of int
        Each >= 1.
    rounds : int
        Samples of each method in each dimension.
    progress : callable, optional
        Called with the rows of each dimension when they are measured.

    Returns
    -------
    dict
        Plain data: `machine`, `versions`, `rounds`, `warnings` and `measurements`. These have a row for each dimension
        and method: its times in microseconds, `min_us` and `median_us`, and the median time of the best alternative
        divided by its own, `ratio`.

    Raises
    ------
    RuntimeError
        If a method gives a wrong answer.
    """
    measurements: list[dict[str, Any]] = []
    for d in dimensions:
        compared = list(methods(d))
        rows: list[dict[str, Any]] = [
            {
                "d": d,
                "method": method.name,
                "kind": method.kind,
                "min_us": min(times) * 1e6,
                "median_us": float(np.median(times)) * 1e6,
            }
            for method, times in zip(compared, interleaved(compared, rounds, d), strict=True)
        ]
        best = min(row["median_us"] for row in rows if row["kind"] == ALTERNATIVE)
        measurements += (measured := [row | {"ratio": best / row["median_us"]} for row in rows])
        if progress is not None:
            progress(measured)
    return {
        "benchmark": "oracle",
        "machine": machine(),
        "versions": {
            "python": platform.python_version(),
            "numpy": np.__version__,
            "scipy": scipy.__version__,
            "dmq_fast": __version__,
        },
        "rounds": rounds,
        "warnings": [THREADS] if threads.several_threads() else [],
        "measurements": measurements,
    }


def interleaved(compared: Sequence[Method], rounds: int, d: int) -> list[list[float]]:
    """Return the seconds per call in `rounds` samples of each method, which take turns."""
    repeats = []
    for method in compared:
        answer = method.call()
        if not method.check(answer):
            raise RuntimeError(f"{method.name}, d = {d}: wrong answer {answer!r}")
        repeats.append(max(1, math.ceil(SAMPLE / timed(method.call, 3))))
    samples: list[list[float]] = [[] for _ in compared]
    for _ in range(rounds):
        for method, repeat, taken in zip(compared, repeats, samples, strict=True):
            method.call()
            taken.append(timed(method.call, repeat) / method.calls)
    return samples


def timed(call: Callable[[], Any], repeat: int) -> float:
    """Return the seconds per call of `repeat` calls."""
    began = time.perf_counter()
    for _ in itertools.repeat(None, repeat):
        call()
    return (time.perf_counter() - began) / repeat


def machine() -> dict[str, Any]:
    """Return the properties of the machine that times depend on, and no name or address."""
    model = platform.processor() or platform.machine()
    if (cpuinfo := Path("/proc/cpuinfo")).exists():
        lines = cpuinfo.read_text(encoding="utf-8").splitlines()
        model = next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), model)
    return {"cpu": model, "cores": os.cpu_count(), "system": platform.system()}
