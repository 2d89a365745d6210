"""CPU time of a short run in a sweep, beside the same run in a plain loop: a table of docs/benchmarks.md.

    python bench/sweep_overhead.py

A run of DMQ on a lock with four levels. Each way does 500 and 3,000 of them in a process of its own; the difference of
the CPU times, those of all worker processes included, over 2,500 is the cost of a run, without what it takes to start.
The ways take turns, and the least of three rounds counts.
"""

from __future__ import annotations

import multiprocessing
import resource
import subprocess
import sys
import tempfile
from concurrent.futures import ProcessPoolExecutor

import common  # noqa: F401, sets the number of BLAS threads before NumPy loads

import dmq_fast as dmq
from dmq_fast import experiments

WAYS = ("loop", "workers=0", "workers=1", "workers=2", "loky", "spawned pool")
FEW, MANY, ROUNDS = 500, 3000, 3


def cpu() -> float:
    """Return the CPU seconds of this process and of those that it has waited for."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in used)


def specification(seeds: int) -> dict[str, object]:
    """Return the specification of so many runs."""
    lock = {"name": "lock", "horizon": 4, "n_actions": 2}
    return {"seeds": seeds, "environments": [lock], "algorithms": [{"name": "dmq", "n_samples": 3}]}


def do(way: str, n: int) -> float:
    """Do n runs; return the CPU seconds."""
    spec = experiments.read(specification(n))
    began = cpu()
    if way == "loop":
        for seed in range(n):
            env = dmq.environments.combination_lock(horizon=4, n_actions=2, rng=seed)
            env.value(dmq.DMQ(env, n_samples=3, rng=seed).learn().policy)
        return cpu() - began
    with tempfile.TemporaryDirectory() as out:
        if way.startswith("workers="):
            experiments.sweep(spec, out, workers=int(way[-1]))
        elif way == "loky":
            import loky

            with loky.ProcessPoolExecutor(2) as executor:
                experiments.sweep(spec, out, executor=executor)
        else:
            with ProcessPoolExecutor(2, mp_context=multiprocessing.get_context("spawn")) as executor:
                experiments.sweep(spec, out, executor=executor)
    return cpu() - began


def main() -> None:
    """Print the cost of a run in each way."""
    if len(sys.argv) > 1:
        print(do(sys.argv[1], int(sys.argv[2])))
        return
    least: dict[tuple[str, int], float] = {}
    for _ in range(ROUNDS):
        for way in WAYS:
            for n in (FEW, MANY):
                took = float(subprocess.check_output([sys.executable, __file__, way, str(n)], text=True))
                least[way, n] = min(took, least.get((way, n), took))
    loop = 0.0
    for way in WAYS:
        cost = 1000 * (least[way, MANY] - least[way, FEW]) / (MANY - FEW)
        loop = loop or cost
        print(f"{way:12} {cost:6.2f} ms a run, {cost - loop:+.2f}")


if __name__ == "__main__":
    main()
