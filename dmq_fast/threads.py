"""How many threads BLAS runs on, which it reads from the environment when it loads.

Blocks of a few hundred rows are too small to share: on two threads BLAS is several times slower than on one, and
workers get in each other's way as well.
"""

from __future__ import annotations

import importlib
import os
from typing import Any

__all__ = ["BLAS_THREADS", "LARGEST_WITHOUT_BLAS", "libraries", "one_thread", "say_once", "several"]

BLAS_THREADS = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS", "VECLIB_MAXIMUM_THREADS")

LARGEST_WITHOUT_BLAS = 48
"""Dimension up to which second moments are added up without BLAS; `SMALL` of ``src_pyx/linalg/_moments.pyx``."""

_said = False


def one_thread() -> None:
    """Ask for one thread, unless the environment says otherwise already; before NumPy loads."""
    for variable in BLAS_THREADS:
        os.environ.setdefault(variable, "1")


def libraries() -> list[dict[str, Any]] | None:
    """Return what threadpoolctl finds of the BLAS libraries that are loaded; None where it is not installed."""
    try:
        threadpoolctl = importlib.import_module("threadpoolctl")
    except ModuleNotFoundError:
        return None
    return [info for info in threadpoolctl.threadpool_info() if info["user_api"] == "blas"]


def several() -> str | None:
    """Return what BLAS does, "runs on 4 threads" or "may run on several threads"; None where one is all."""
    found = libraries()
    if found:
        most = max(int(library["num_threads"]) for library in found)
        return f"runs on {most} threads" if most > 1 else None
    chosen = {os.environ[name] for name in BLAS_THREADS if name in os.environ}
    return None if chosen == {"1"} or os.cpu_count() == 1 else "may run on several threads"


def say_once() -> None:
    """Log, once in a process, that BLAS runs on several threads.

    Logged and not warned of: the results are right, and nobody's tests should fail over the machine that they run on.
    """
    global _said
    if not _said:
        _said = True
        if (doing := several()) is not None:
            import logging

            logging.getLogger("dmq_fast").warning(
                "BLAS %s, which makes runs with more than %d features several times slower: set "
                "OPENBLAS_NUM_THREADS=1 before NumPy loads",
                doing,
                LARGEST_WITHOUT_BLAS,
            )
