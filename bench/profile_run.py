"""Measure the share of compiled code in whole runs of `sound`, and how many times as long the NumPy reference takes.

    python bench/profile_run.py

Calls of compiled kernels are timed from outside, so the arrays that they make count as theirs; the rest of the time is
Python. The reference of tests/reference.py simulates all trajectories of a call at once; its time is compared per
trajectory, as the two draw different numbers of them where rewards or steps are random.
"""

import os
import sys
from pathlib import Path

os.environ.update(dict.fromkeys(("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"), "1"))
sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))

import time
from collections.abc import Callable
from typing import Any

import numpy as np
from reference import NumpySampler, ReferenceDMQ

import dmq_fast as dmq
from dmq_fast import environments

ROUNDS = 9
THRESHOLDS = {"eps_s": 1.0, "eps_t": 10.0, "eps_r": 1e-5, "ridge": 1e-3}
SETTINGS = {"ratio": 10.0, "eps_r": 1e-5, "ridge": 1e-3}
MOST_STEPS = 5 * 10**6
"""Steps up to which the reference runs too."""

CASES = {
    "chain 10": environments.chain(10),
    "chain 20": environments.chain(20),
    "deep sea 10": environments.deep_sea(10),
    "deep sea 20": environments.deep_sea(20),
    "lock 10": environments.combination_lock(10, rng=0),
    "lock 20": environments.combination_lock(20, rng=0),
    "lock 100": environments.combination_lock(100, rng=0),
}


class Timed:
    """Wrapper of a compiled object that adds up the time spent in its methods."""

    def __init__(self, inner: Any) -> None:
        self.inner = inner
        self.seconds = 0.0

    def _clock(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any) -> Any:
            began = time.perf_counter()
            result = function(*arguments)
            self.seconds += time.perf_counter() - began
            return result

        return call

    def __getattr__(self, name: str) -> Any:
        value = getattr(self.inner, name)
        return self._clock(value) if callable(value) else value


def profiled(algorithm: dmq.DMQ) -> tuple[float, dict[str, float]]:
    """Return the seconds of a run, and those of compiled code."""
    sampler: Any = algorithm.sampler
    session: Any = algorithm.session(algorithm.resources())
    linear: Any = session.oracle.solver
    model = sampler._model
    kernels = {
        "rollouts": Timed(model),
        "oracle": Timed(linear.matrix_scan),
        "regression": Timed(linear._ridge_fit),
    }
    sampler._model, linear.matrix_scan, linear._ridge_fit = kernels.values()
    began = time.perf_counter()
    session.algorithm.algorithm_1()
    seconds = time.perf_counter() - began
    sampler._model = model
    return seconds, {name: timed.seconds for name, timed in kernels.items()}


def reference(env: environments.FiniteMDP, algorithm: dmq.DMQ, n_samples: int) -> tuple[float, ReferenceDMQ]:
    """Return the seconds of a run of the reference with the same settings, and the run."""
    initial = tuple(("fixed", rule.action) for rule in algorithm.initial[0].rules)
    sampler = NumpySampler(env, np.random.default_rng(1))
    shape = env.horizon, env.n_actions, env.dimension
    run = ReferenceDMQ(sampler, *shape, n_samples=n_samples, **THRESHOLDS, initial=initial, recheck=True, mixture=None)
    began = time.perf_counter()
    run.learn()
    return time.perf_counter() - began, run


def main() -> None:
    """Print the table: the fastest of several runs, which take turns with the reference."""
    names = "run | N | trajectories | ms | rollouts | oracle | regression | Python"
    print(f"| {names} | reference / ours |\n|{'---|' * 9}")
    for n_samples in (20, 100, 1000):
        for name, env in CASES.items():
            algorithm = dmq.DMQ(env, n_samples=n_samples, rng=1, **SETTINGS)
            n = algorithm.learn().n_trajectories
            runs, peers = [], []
            for i in range(ROUNDS):
                runs.append(profiled(algorithm))
                if i < 3 and n * env.horizon <= MOST_STEPS:
                    peers.append(reference(env, algorithm, n_samples))
            seconds, kernels = min(runs, key=lambda run: run[0])
            shares = [f"{kernel / seconds:.0%}" for kernel in (*kernels.values(), seconds - sum(kernels.values()))]
            each = [peer / run.n_trajectories for peer, run in peers]
            ratio = f"{min(each) / (seconds / n):.1f}" if peers else ""
            row = (name, str(n_samples), f"{n:,}", f"{seconds * 1e3:.1f}", *shares, ratio)
            print(f"| {' | '.join(row)} |", flush=True)


if __name__ == "__main__":
    main()
