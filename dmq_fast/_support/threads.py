"""Number of threads of BLAS, which BLAS reads from the environment when it loads.

The matrices of a run are too small for several threads: on blocks of a few hundred rows BLAS is several times slower on
two threads than on one, and its threads compete with the workers of a run for cores.
"""

from __future__ import annotations

import os

__all__ = ["BLAS_THREADS", "LARGEST_WITHOUT_BLAS", "log_once", "one_thread", "several_threads"]

BLAS_THREADS = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS", "VECLIB_MAXIMUM_THREADS")
"""Environment variables that set the number of threads of the BLAS libraries."""

LARGEST_WITHOUT_BLAS = 48
"""Largest dimension of second moments computed without BLAS; a test compares it with `SMALL` of ``_moments.pyx``."""

_logged = False


def one_thread() -> None:
    """Set the number of BLAS threads to one where the environment does not set it. Call it before NumPy loads."""
    for variable in BLAS_THREADS:
        os.environ.setdefault(variable, "1")


def several_threads() -> bool:
    """Return whether BLAS may run on several threads, by the environment: what a process sets later is not known."""
    chosen = {os.environ[name] for name in BLAS_THREADS if name in os.environ}
    return chosen != {"1"} and os.cpu_count() != 1


def log_once() -> None:
    """Log, once in a process, that BLAS may run on several threads.

    A Python warning would be too much: the results are right, and tests that turn warnings into errors must not depend
    on the machine that they run on.
    """
    global _logged
    if not _logged:
        _logged = True
        if several_threads():
            import logging

            logging.getLogger("dmq_fast").warning(
                "BLAS may run on several threads, which makes runs with more than %d features several times slower: "
                "set OPENBLAS_NUM_THREADS=1 before NumPy loads",
                LARGEST_WITHOUT_BLAS,
            )
