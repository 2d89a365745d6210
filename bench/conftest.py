"""Settings of the benchmarks under pytest-benchmark: ``pytest bench``. BLAS runs on one thread."""

import os
import sys
from pathlib import Path

for variable in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[variable] = "1"

# The benchmarks import the literal reference implementation from the tests, and from the scripts beside them.
sys.path[:0] = [str(Path(__file__).parent.parent / "tests"), str(Path(__file__).parent)]
