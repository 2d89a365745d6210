"""Settings of the benchmarks under pytest-benchmark: ``pytest bench``. BLAS runs on one thread."""

import sys
from pathlib import Path

# The benchmarks import the literal reference implementation from the tests, and from the scripts beside them.
sys.path[:0] = [str(Path(__file__).parent.parent / "tests"), str(Path(__file__).parent)]

import common  # noqa: E402  sets the number of threads of BLAS


def pytest_configure(config):
    common.MEASURING = not config.getoption("--benchmark-disable")
