"""How many threads BLAS runs on, which it reads from the environment when it loads."""

from __future__ import annotations

import os

__all__ = ["BLAS_THREADS", "one_thread"]

BLAS_THREADS = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS", "VECLIB_MAXIMUM_THREADS")


def one_thread() -> None:
    """Ask for one thread, unless the environment says otherwise already; before NumPy loads."""
    for variable in BLAS_THREADS:
        os.environ.setdefault(variable, "1")
