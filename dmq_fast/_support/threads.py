"""Number of threads of BLAS, which BLAS reads from the environment when it loads.

The matrices of a run are too small for several threads: on blocks of a few hundred rows BLAS is several times slower on
two threads than on one, and its threads compete with the workers of a run for cores.
"""

from __future__ import annotations

import importlib
import os
from typing import Any

__all__ = ["BLAS_THREADS", "LARGEST_WITHOUT_BLAS", "libraries", "log_once", "one_thread", "several_threads"]

BLAS_THREADS = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS", "VECLIB_MAXIMUM_THREADS")
"""Environment variables that set the number of threads of the BLAS libraries."""

LARGEST_WITHOUT_BLAS = 48
"""Largest dimension of second moments computed without BLAS; a test compares it with `SMALL` of ``_moments.pyx``."""

_logged = False


def one_thread() -> None:
    """Set the number of BLAS threads to one where the environment does not set it. Call it before NumPy loads."""
    for variable in BLAS_THREADS:
        os.environ.setdefault(variable, "1")


def libraries() -> list[dict[str, Any]] | None:
    """Return the loaded BLAS libraries as threadpoolctl describes them; None where threadpoolctl is not installed."""
    try:
        threadpoolctl = importlib.import_module("threadpoolctl")
    except ModuleNotFoundError:
        return None
    return [info for info in threadpoolctl.threadpool_info() if info["user_api"] == "blas"]


def several_threads() -> str | None:
    """Return "runs on 4 threads" or "may run on several threads", completing "BLAS ..."; None where it uses one."""
    found = libraries()
    if found:
        most = max(int(library["num_threads"]) for library in found)
        return f"runs on {most} threads" if most > 1 else None
    chosen = {os.environ[name] for name in BLAS_THREADS if name in os.environ}
    return None if chosen == {"1"} or os.cpu_count() == 1 else "may run on several threads"


def log_once() -> None:
    """Log, once in a process, that BLAS runs on several threads.

    A Python warning would be too much: the results are right, and tests that turn warnings into errors must not depend
    on the machine that they run on.
    """
    global _logged
    if not _logged:
        _logged = True
        if (doing := several_threads()) is not None:
            import logging

            logging.getLogger("dmq_fast").warning(
                "BLAS %s, which makes runs with more than %d features several times slower: set "
                "OPENBLAS_NUM_THREADS=1 before NumPy loads",
                doing,
                LARGEST_WITHOUT_BLAS,
            )
