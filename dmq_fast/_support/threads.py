"""The CPUs of this process, and the threads of BLAS, whose number BLAS reads from the environment when it loads.

The matrices of a run are too small for several threads: on blocks of a few hundred rows BLAS is several times slower on
two threads than on one, and its threads compete with the workers of a run for cores.
"""

from __future__ import annotations

import contextlib
import math
import os
import re
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

__all__ = ["BLAS_THREADS", "LARGEST_WITHOUT_BLAS", "cpus", "log_once", "one_thread", "several_threads"]

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
    return chosen != {"1"} and os.cpu_count() != 1  # BLAS counts the CPUs of the machine


def cpus() -> int:
    """Return how many CPUs this process may use: those of its affinity mask, or what its control groups grant.

    A quota of 2.5 CPUs counts as 3, so that none is left idle. ``PYTHON_CPU_COUNT`` is heeded from Python 3.13 on.
    """
    if hasattr(os, "process_cpu_count"):  # Python 3.13
        number = os.process_cpu_count() or 1
    else:
        number = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, min([number, *(math.ceil(quota) for quota in quotas())]))


def quotas(process: Path = Path("/proc/self")) -> Iterator[float]:
    """Yield the limits of CPU time that the control groups of a process set, in CPUs.

    A group is limited by each group above it as well. In a container the file system may show only those from its own
    group on; `mountinfo` then holds the path of this one.
    """
    with contextlib.suppress(OSError, ValueError):  # none outside Linux
        groups: dict[str, str] = {}
        for line in (process / "cgroup").read_text().splitlines():
            _, controllers, path = line.split(":", 2)
            groups.update(dict.fromkeys(controllers.split(","), path))  # version 2 names none
        for line in (process / "mountinfo").read_text().splitlines():
            place, _, kind = line.partition(" - ")
            is_1 = kind.startswith("cgroup ") and "cpu" in kind.split()[-1].split(",")
            if not (is_1 or kind.startswith("cgroup2 ")) or (group := groups.get("cpu" if is_1 else "")) is None:
                continue
            root, mounted = (re.sub(r"\\(\d{3})", lambda octal: chr(int(octal[1], 8)), x) for x in place.split()[3:5])
            yield from limits_of(Path(mounted), below(group, root))


def below(path: str, root: str) -> PurePosixPath:
    """Return the path of a group from the root of what is mounted on."""
    try:
        return PurePosixPath(path).relative_to(root)
    except ValueError:  # the group is outside of what this process sees
        return PurePosixPath()


def limits_of(mount: Path, group: PurePosixPath) -> Iterator[float]:
    """Yield the limits of a group and of those above it: quota by period, in version 2 or in version 1."""
    for one in (group, *group.parents):
        folder = mount / one
        for files in (("cpu.max",), ("cpu.cfs_quota_us", "cpu.cfs_period_us")):
            with contextlib.suppress(OSError, ValueError, ZeroDivisionError):  # "max" is no number
                quota, period = map(int, " ".join((folder / file).read_text() for file in files).split())
                if quota > 0:
                    yield quota / period


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
