"""Measure the shares of rollouts, oracle, regression and Python in the time of a whole run.

    python bench/profile_run.py

The run is `sound` on the lock of 100 levels. Calls of compiled kernels are timed from outside; the rest of the time is
Python. Prints the shares of the fastest of twenty runs.
"""

import os

os.environ.update(dict.fromkeys(("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"), "1"))

import time
from typing import Any

import dmq_fast as dmq
from dmq_fast.environments import combination_lock
from dmq_fast.sessions import Resources


class Timed:
    """Wrapper of a compiled object that adds up the time spent in its methods."""

    def __init__(self, inner: Any) -> None:
        self.inner = inner
        self.seconds = 0.0
        self.calls = 0

    def _clock(self, function: Any) -> Any:
        def call(*arguments: Any) -> Any:
            began = time.perf_counter()
            result = function(*arguments)
            self.seconds += time.perf_counter() - began
            self.calls += 1
            return result

        return call

    def __getattr__(self, name: str) -> Any:
        value = getattr(self.inner, name)
        return self._clock(value) if callable(value) else value

    def __call__(self, *arguments: Any) -> Any:
        """Call the object itself, and add the time to the sum."""
        return self._clock(self.inner)(*arguments)


def main() -> None:
    """Print the shares of the fastest of twenty runs."""
    algorithm = dmq.DMQ(combination_lock(100, 4, rng=0), n_samples=20, ratio=10, eps_r=1e-5, rng=1)
    model = algorithm.sampler._model  # type: ignore[attr-defined]
    best = None
    for _ in range(20):
        kernels = {"rollouts": Timed(model)}
        algorithm.sampler._model = kernels["rollouts"]  # type: ignore[attr-defined]
        surroundings = (algorithm.stream, algorithm.budget, algorithm.workers, algorithm.executor, algorithm.progress)
        resources = Resources(algorithm.variant, algorithm.sampler, *surroundings)
        session: Any = algorithm.settings.session(resources, None)
        linear: Any = session.oracle.solver
        kernels["oracle"] = linear._scan = Timed(linear._scan)
        kernels["regression"] = linear._ridge_fit = Timed(linear._ridge_fit)
        began = time.perf_counter()
        session.algorithm.algorithm_1()
        total = time.perf_counter() - began
        if best is None or total < best[0]:
            best = total, kernels
    assert best is not None
    total, kernels = best
    print(f"whole run    {total * 1e3:6.1f} ms")
    for name, timed in kernels.items():
        print(f"{name:<12} {timed.seconds * 1e3:6.1f} ms  {timed.seconds / total:5.1%}  {timed.calls:,} calls")
    python = total - sum(timed.seconds for timed in kernels.values())
    print(f"Python       {python * 1e3:6.1f} ms  {python / total:5.1%}")


if __name__ == "__main__":
    main()
