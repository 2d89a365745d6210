"""Benchmarks run on one BLAS thread: ``pytest bench``."""

import os
import sys
from pathlib import Path

for variable in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[variable] = "1"

# The literal reference lives with the tests.
sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))
