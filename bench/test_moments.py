"""Measure second moments of blocks of 256 rows: `SecondMoment.add_rows`, NumPy, and dsyrk alone.

pytest bench/test_moments.py
"""

from functools import partial

import numpy as np
import pytest
from scipy.linalg import blas
from scipy.sparse import csr_array

from dmq_fast.experiments import oracle_bench
from dmq_fast.kernels import SecondMoment

ROWS = 256
ROUNDS = 25
DIMENSIONS = (4, 8, 16, 24, 32, 48, 64, 128, 256)


# Each returns two functions: one adds the rows once more, the other returns the sum.


def by_numpy(rows):
    total = np.zeros((rows.shape[1], rows.shape[1]))

    def add():
        nonlocal total
        total += rows.T @ rows

    return add, lambda: total


def by_dsyrk(rows):
    """Use BLAS alone, in place, on a Fortran view made beforehand; it computes one triangle."""
    columns = rows.T
    total = np.zeros((len(columns), len(columns)), order="F")
    assert columns.flags.f_contiguous
    add = partial(blas.dsyrk, 1.0, columns, beta=1.0, c=total, overwrite_c=1)
    return add, lambda: np.triu(total) + np.triu(total, 1).T


def by_second_moment(rows, weights=None):
    moment = SecondMoment(rows.shape[1])
    return partial(moment.add_rows, rows, weights), lambda: moment.matrix


@pytest.mark.parametrize("d", DIMENSIONS)
def test_blocks(benchmark, d):
    rows = np.random.default_rng(d).normal(size=(ROWS, d))
    candidates = {
        "add_rows": by_second_moment(rows),
        "add_rows, weights": by_second_moment(rows, np.ones(ROWS)),
        "numpy": by_numpy(rows),
        "dsyrk": by_dsyrk(rows),
    }
    expected = rows.T @ rows
    methods = [
        oracle_bench.Method(name, oracle_bench.OURS, add, lambda _, total=total: np.allclose(total(), expected))
        for name, (add, total) in candidates.items()
    ]
    benchmark.group = "moments, all in turn"

    samples = benchmark.pedantic(
        oracle_bench.interleaved, args=(methods, ROUNDS if benchmark.enabled else 1, d), rounds=1
    )

    medians = {name: float(np.median(times)) for name, times in zip(candidates, samples, strict=True)}
    for name, seconds in medians.items():
        benchmark.extra_info[f"{name}, us"] = round(seconds * 1e6, 2)
    benchmark.extra_info["numpy / ours"] = round(medians["numpy"] / medians["add_rows"], 2)
    benchmark.extra_info["dsyrk / ours"] = round(medians["dsyrk"] / medians["add_rows"], 2)


@pytest.mark.parametrize("d", DIMENSIONS)
def test_rows_that_are_mostly_zeros(benchmark, d):
    rng = np.random.default_rng(d)
    indices = rng.integers(0, d, ROWS)
    one_hot = csr_array((np.ones(ROWS), indices, np.arange(ROWS + 1)), shape=(ROWS, d))
    by_index, by_csr = SecondMoment(d), SecondMoment(d)
    expected = np.diag(np.bincount(indices, minlength=d)).astype(float)

    def once(moment):
        return lambda _: bool((moment.matrix == expected).all())

    methods = [
        oracle_bench.Method("add_indices", oracle_bench.OURS, lambda: by_index.add_indices(indices), once(by_index)),
        oracle_bench.Method("add_csr", oracle_bench.OURS, lambda: by_csr.add_rows(one_hot), once(by_csr)),
    ]
    benchmark.group = "moments of sparse rows, in turn"

    samples = benchmark.pedantic(
        oracle_bench.interleaved, args=(methods, ROUNDS if benchmark.enabled else 1, d), rounds=1
    )

    for method, times in zip(methods, samples, strict=True):
        benchmark.extra_info[f"{method.name}, ns a row"] = round(float(np.median(times)) / ROWS * 1e9, 2)
