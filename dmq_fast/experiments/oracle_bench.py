"""Times of the DSEC oracle and of implementations with NumPy and SciPy, as ``dmq-fast bench oracle`` prints them.

All methods get the same two second moments and return the decision, or the value v that decides. They take turns, so
that noise hits all of them alike: in every round each is called once to warm the caches, then for at least `SAMPLE`
seconds. Arrays are prepared outside the timing, in the memory order that each routine needs.

Rates count the nominal operations of a method, `flops` d^3: 1/3 for a Cholesky factorisation; 1 for
L^{-1} M2 L^{-T} where symmetry is used, 2 by triangular solves, 8/3 for each solution by LU; 4/3 for tridiagonal form;
14/3 for all eigenvectors; 2 for a matrix product. Methods whose work is not such a multiple have no rate.
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
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import scipy
import scipy.linalg
from numpy.typing import NDArray
from scipy.linalg import blas, lapack
from scipy.sparse.linalg import LinearOperator, eigsh

from dmq_fast import kernels
from dmq_fast._support import threads
from dmq_fast._support.files import replacing
from dmq_fast._version import __version__
from dmq_fast.experiments.report.pictures import learning_curves

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = [
    "ALTERNATIVE",
    "DIMENSIONS",
    "FLOOR",
    "OURS",
    "ROUNDS",
    "Method",
    "measure",
    "methods",
    "picture",
    "save_picture",
]

DIMENSIONS = (4, 8, 16, 32, 64, 128, 256, 512)
ROUNDS = 15

SAMPLE = 200e-6
"""Smallest duration of a sample in seconds."""

NOISY = 1.2
"""Ratio of median to fastest time of the matrix products from which a warning calls the machine noisy."""

REGULARISER = 1e-2
GEMM = 512
LEVELS = 100
LARGEST_BATCH = 2**22
"""Largest number of doubles in an array of a batch; from d = 205 on a batch has fewer than `LEVELS` levels."""

ITERATIVE = 128
"""Smallest dimension for which the iterative method is timed."""

OURS, ALTERNATIVE, FLOOR = "ours", "alternative", "floor"

FALSE, TRUE_BARELY = "decision, False, v = .99 R", "decision, True, v = 1.01 R"
TRUE_SPREAD, TRUE_NEW = "decision, True, v = 10 R", "decision, True, v = 10 R, one direction"
BATCH, VALUE, WITNESS = "decision, False, per level of a batch", "value", "decision, value, witness"
WHITENING, SOLVE = "numpy eigh, eigvalsh", "numpy cholesky, solve, eigvalsh"
EIGH_D, EIGH_X = "scipy eigh, gvd", "scipy eigh, gvx, top"
SYGVD, SYGVX, PIECES = "f2py dsygvd", "f2py dsygvx, top", "f2py dpotrf, dtrsm, dsyevx"
LANCZOS = "scipy eigsh, whitened"
NUMPY_IDEA, POTRF = "numpy cholesky of R M1 - M2", "f2py dpotrf of R M1 - M2, ready-made"

Matrix = NDArray[np.float64]


class Method(NamedTuple):
    """A method to time.

    `flops` is the nominal number of operations divided by d^3, or None; one call gives `calls` answers; `check` returns
    whether an answer is right.
    """

    name: str
    kind: str
    flops: float | None
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
    v = float(scipy.linalg.eigvalsh(m2, m1)[-1])
    v_new = float(scipy.linalg.eigvalsh(m2_new, m1_new)[-1])
    # eps1 = 1, so that R = eps2.
    barely_false = v / 0.99

    yield Method(FALSE, OURS, 1 / 3, partial(kernels.dsec_decision, m1, m2, 1.0, barely_false), is_false)
    yield Method(TRUE_BARELY, OURS, None, partial(kernels.dsec_decision, m1, m2, 1.0, v / 1.01), is_true)
    yield Method(TRUE_SPREAD, OURS, None, partial(kernels.dsec_decision, m1, m2, 1.0, v / 10), is_true)
    yield Method(TRUE_NEW, OURS, None, partial(kernels.dsec_decision, m1_new, m2_new, 1.0, v_new / 10), is_true)
    levels = max(1, min(LEVELS, LARGEST_BATCH // (d * d)))
    cover = np.repeat((m1 - REGULARISER * np.eye(d))[None], levels, axis=0)
    grams = np.repeat(m2[None], levels, axis=0)
    scan = kernels.ShiftScan(d, 1.0, barely_false, REGULARISER, False)
    yield Method(
        BATCH, OURS, 1 / 3, partial(scan.scan, cover, grams, 1.0, 0, levels - 1, 0),
        lambda answer: bool(answer[0] == -1), levels,
    )  # fmt: skip
    close = partial(is_close, v)
    yield Method(VALUE, OURS, 8 / 3, partial(kernels.dsec_value, m1, m2, 1.0), close)
    yield Method(
        WITNESS, OURS, 3.0, partial(kernels.dsec, m1, m2, 1.0, barely_false),
        lambda answer: not answer.decision and close(answer.value) and close(answer.witness @ m2 @ answer.witness),
    )  # fmt: skip

    yield Method(WHITENING, ALTERNATIVE, 10.0, partial(by_whitening, m1, m2), close)
    yield Method(SOLVE, ALTERNATIVE, 7.0, partial(by_solve, m1, m2), close)
    eigh = partial(scipy.linalg.eigh, m2, m1, eigvals_only=True, check_finite=False)
    yield Method(EIGH_D, ALTERNATIVE, 8 / 3, partial(eigh, driver="gvd"), lambda w: close(w[-1]))
    top = [d - 1, d - 1]
    yield Method(EIGH_X, ALTERNATIVE, 8 / 3, partial(eigh, driver="gvx", subset_by_index=top), lambda w: close(w[0]))
    f1, f2 = np.asfortranarray(m1), np.asfortranarray(m2)
    yield Method(SYGVD, ALTERNATIVE, 8 / 3, partial(lapack.dsygvd, f2, f1, jobz="N"), lambda out: close(out[0][-1]))
    sygvx = partial(lapack.dsygvx, f2, f1, jobz="N", range="I", il=d, iu=d)
    yield Method(SYGVX, ALTERNATIVE, 8 / 3, sygvx, lambda out: close(out[0][0]))
    yield Method(PIECES, ALTERNATIVE, 11 / 3, partial(by_pieces, f1, f2), close)
    if d >= ITERATIVE:
        yield Method(LANCZOS, ALTERNATIVE, None, partial(by_lanczos, f1, f2), close)

    definite = np.asfortranarray(symmetric(barely_false * m1 - m2))
    yield Method(NUMPY_IDEA, FLOOR, 1 / 3, partial(by_numpy_cholesky, m1, m2, barely_false), is_false)
    factor = partial(lapack.dpotrf, definite, lower=1, clean=0)
    yield Method(POTRF, FLOOR, 1 / 3, factor, lambda out: bool(out[1] == 0))


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


def by_solve(m1: Matrix, m2: Matrix) -> float:
    """Return the value by a Cholesky factor and general solves, as NumPy has no triangular ones."""
    factor = np.linalg.cholesky(m1)
    half = np.linalg.solve(factor, m2)
    return float(np.linalg.eigvalsh(np.linalg.solve(factor, half.T))[-1])


def by_pieces(f1: Matrix, f2: Matrix) -> float:
    """Return the value by single routines of LAPACK, with triangular solves instead of dsygst."""
    d = len(f1)
    factor = lapack.dpotrf(f1, lower=1, clean=0)[0]
    c = blas.dtrsm(1.0, factor, f2, side=0, lower=1)
    c = blas.dtrsm(1.0, factor, c, side=1, lower=1, trans_a=1, overwrite_b=1)
    return float(lapack.dsyevx(c, compute_v=0, range="I", il=d, iu=d, lower=1, overwrite_a=1)[0][0])


def by_lanczos(f1: Matrix, f2: Matrix) -> float:
    """Return the value by ARPACK on L^{-1} M2 L^{-T}, to about ten digits."""
    d = len(f1)
    factor = lapack.dpotrf(f1, lower=1, clean=0)[0]

    def multiply(x: Matrix) -> Matrix:
        x = blas.dtrsv(factor, x, lower=1, trans=1)
        return blas.dtrsv(factor, blas.dsymv(1.0, f2, x, lower=1), lower=1)

    operator = LinearOperator((d, d), matvec=multiply, dtype=np.float64)
    start = np.random.default_rng(0).normal(size=d)
    return float(eigsh(operator, k=1, which="LA", return_eigenvectors=False, v0=start, tol=1e-6)[0])


def by_numpy_cholesky(m1: Matrix, m2: Matrix, ratio: float) -> bool:
    """Return the decision by the idea of the oracle, without its certificate against rounding."""
    try:
        np.linalg.cholesky(ratio * m1 - m2)
    except np.linalg.LinAlgError:
        return True
    return False


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
        Plain data: `machine`, `versions`, `blas`, `rounds`, `dgemm` (GFLOP/s and noise), `warnings` and
        `measurements`. These have a row for each dimension and method: its times in microseconds, `min_us` and
        `median_us`; the rate of the fastest sample, `gflops`, and its share of the rate of dgemm, `share_of_dgemm`; and
        the time of the best alternative divided by its time, `ratio_min` and `ratio_median`.

    Raises
    ------
    RuntimeError
        If a method gives a wrong answer.
    """
    a, b = np.random.default_rng(0).normal(size=(2, GEMM, GEMM))
    product = np.empty((GEMM, GEMM))
    gemm = Method("dgemm", FLOOR, 2.0, partial(np.matmul, a, b, out=product), lambda _: True)
    measured, products = [], []
    for d in dimensions:
        compared = [*methods(d), gemm]
        samples = interleaved(compared, rounds, d)
        products += samples.pop()
        measured.append([row(d, method, times) for method, times in zip(compared, samples, strict=False)])
        compare(measured[-1], 2 * GEMM**3 / min(products))
        if progress is not None:
            progress(measured[-1])
    rate = 2 * GEMM**3 / min(products)
    for rows in measured:
        compare(rows, rate)
    noise = float(np.median(products)) / min(products)
    return {
        "benchmark": "oracle",
        "machine": machine(),
        "versions": {
            "python": platform.python_version(),
            "numpy": np.__version__,
            "scipy": scipy.__version__,
            "dmq_fast": __version__,
        },
        "blas": blas_libraries(),
        "rounds": rounds,
        "dgemm": {"size": GEMM, "gflops": rate / 1e9, "median_over_min": noise},
        "warnings": [*thread_warnings(), *noise_warnings(noise)],
        "measurements": [row for rows in measured for row in rows],
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


def row(d: int, method: Method, times: Sequence[float]) -> dict[str, Any]:
    """Return one measurement, before `compare`."""
    fastest = min(times)
    flops = None if method.flops is None else method.flops * d**3
    return {
        "d": d,
        "method": method.name,
        "kind": method.kind,
        "min_us": fastest * 1e6,
        "median_us": float(np.median(times)) * 1e6,
        "flops": flops,
        "gflops": None if flops is None else flops / fastest / 1e9,
    }


def compare(rows: list[dict[str, Any]], rate: float) -> None:
    """Add to the rows of one dimension their ratios to dgemm and to the best alternative."""
    others = [row for row in rows if row["kind"] == ALTERNATIVE]
    for item in rows:
        item["share_of_dgemm"] = None if item["gflops"] is None else item["gflops"] * 1e9 / rate
        for statistic in ("min", "median"):
            best = min(others, key=lambda other: other[f"{statistic}_us"])
            item[f"best_{statistic}"] = best["method"]
            item[f"ratio_{statistic}"] = best[f"{statistic}_us"] / item[f"{statistic}_us"]


def machine() -> dict[str, Any]:
    """Return the properties of the machine that times depend on, and no name or address."""
    model = platform.processor() or platform.machine()
    family = None
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
        fields = dict(line.split(":", 1) for line in lines if ":" in line)
        fields = {key.strip(): value.strip() for key, value in fields.items()}
        model = fields.get("model name", model)
        family = f"family {fields['cpu family']}, model {fields['model']}"
    except (OSError, KeyError):
        pass
    return {
        "cpu": model,
        "cpu_family": family,
        "cores": os.cpu_count(),
        "architecture": platform.machine(),
        "system": platform.system(),
    }


def blas_libraries() -> list[dict[str, Any]]:
    """Return the loaded BLAS libraries, or without threadpoolctl the library that NumPy was built with."""
    found = threads.libraries()
    if found is None:
        built = np.show_config(mode="dicts")["Build Dependencies"]["blas"]
        return [{"name": built.get("name"), "version": built.get("version")}]
    kept = ("internal_api", "version", "num_threads", "architecture", "threading_layer")
    return [{key: info.get(key) for key in kept} for info in found]


def thread_warnings() -> list[str]:
    """Return a warning if BLAS may run on several threads."""
    doing = threads.several_threads()
    return [] if doing is None else [f"BLAS {doing}: set OPENBLAS_NUM_THREADS=1 for times that compare"]


def noise_warnings(noise: float) -> list[str]:
    """Return a warning if the times of the machine vary."""
    if noise <= NOISY:
        return []
    return [f"noisy machine: the median matrix product took {noise:.2f} times as long as the fastest; trust min_us"]


PLOTTED = {
    FALSE: "decision, False (v = .99 R)",
    TRUE_NEW: "decision, True (new direction)",
    BATCH: "decision, per level of a batch",
    VALUE: "value v",
    WHITENING: WHITENING,
    EIGH_D: EIGH_D,
    SYGVX: SYGVX,
    LANCZOS: LANCZOS,
    POTRF: "dpotrf alone (floor)",
}
"""The methods of the picture, and their names there."""


def save_picture(result: dict[str, Any], path: Path) -> None:
    """Save `picture`; the suffix of `path` chooses the format."""
    with replacing(path) as file:
        picture(result).savefig(file, format=path.suffix.removeprefix("."), dpi=200)


def picture(result: dict[str, Any]) -> Figure:
    """Plot the median time of a call against the dimension, for our methods and the best of the others.

    Parameters
    ----------
    result : dict
        The dict that `measure` returned, or that ``dmq-fast bench oracle --json`` wrote.

    Raises
    ------
    ImportError
        If matplotlib is not installed.
    """
    curves = {}
    for method, name in PLOTTED.items():
        if line := [item for item in result["measurements"] if item["method"] == method]:
            curves[name] = [item["d"] for item in line], [item["median_us"] for item in line]
    return learning_curves(
        curves, xlabel="dimension $d$", ylabel="microseconds a call", xscale="log", yscale="log", width=5.0, height=3.2
    )
