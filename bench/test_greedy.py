"""Measure the greedy actions of a block of states, beside a matrix product and argmax in NumPy.

pytest bench/test_greedy.py
"""

import timeit

import numpy as np
import pytest

from dmq_fast.kernels import greedy_actions


@pytest.mark.parametrize(("n", "d", "n_actions"), [(1, 4, 3), (20, 8, 4), (1000, 8, 4), (1000, 64, 4), (1000, 64, 10)])
def test_greedy_actions(benchmark, n, d, n_actions):
    rng = np.random.default_rng(0)
    phi, theta = rng.normal(size=(n, d)), rng.normal(size=(n_actions, d))

    def numpy_way():
        return (phi @ theta.T).argmax(axis=1)

    ours, theirs = [], []
    number = max(1, 20_000 // (n * d))
    for _ in range(20):  # interleaved
        ours.append(timeit.timeit(lambda: greedy_actions(phi, theta), number=number) / number)
        theirs.append(timeit.timeit(numpy_way, number=number) / number)
    actions = benchmark(greedy_actions, phi, theta)

    assert np.array_equal(actions, numpy_way())
    benchmark.extra_info["NumPy us"] = round(min(theirs) * 1e6, 2)
    benchmark.extra_info["ratio to NumPy"] = round(min(theirs) / min(ours), 2)
