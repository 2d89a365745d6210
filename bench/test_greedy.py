"""Measure the greedy actions of a block of states, beside a matrix product and argmax in NumPy.

pytest bench/test_greedy.py
"""

import numpy as np
import pytest
from common import interleaved, noted

from dmq_fast.kernels import greedy_actions


@pytest.mark.parametrize(("n", "d", "n_actions"), [(1, 4, 3), (20, 8, 4), (1000, 8, 4), (1000, 64, 4), (1000, 64, 10)])
def test_greedy_actions(benchmark, n, d, n_actions):
    rng = np.random.default_rng(0)
    phi, theta = rng.normal(size=(n, d)), rng.normal(size=(n_actions, d))

    def numpy_way():
        return (phi @ theta.T).argmax(axis=1)

    calls = {"greedy_actions": lambda: greedy_actions(phi, theta), "NumPy": numpy_way}
    times = interleaved(calls, max(1, 20_000 // (n * d)))
    actions = benchmark(greedy_actions, phi, theta)

    assert np.array_equal(actions, numpy_way())
    noted(benchmark.extra_info, times, "greedy_actions")
