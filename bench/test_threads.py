"""What a second thread is worth: calls of several chunks on one and on two workers, taking turns.

Run ``python bench/test_threads.py`` for the table. The speed-up is of wall-clock time, best against best, which other
work on the machine spoils; CPU seconds of two workers over those of one say what threads cost each other (caches,
memory bandwidth, the GIL), and the share of the calling thread's own CPU time what cannot be spread.
"""

import os
import time

import numpy as np
import pytest

import dmq_fast as dmq
from dmq_fast import environments
from dmq_fast.environments.block import block_mdp, lock_bernoulli
from dmq_fast.samplers import ParallelSampler, RolloutSampler
from dmq_fast.samplers.parallel import pool_of

CHUNKS = 16


def rotated(dimension):
    lock = environments.combination_lock(20, 4, rng=0)
    return block_mdp(lock, noise="gaussian", sigma=0.1, dimension=dimension, rng=0)


CASES = {
    "finite, lock 100": lambda: environments.combination_lock(100, rng=0),
    "finite, deep sea 20": lambda: environments.deep_sea(20, stochastic=True),
    "finite, deep sea 100": lambda: environments.deep_sea(100, stochastic=True),
    "finite, linear-Q": lambda: environments.linear_q(rng=0),
    "compiled, no noise": lambda: block_mdp(environments.combination_lock(20, 4, rng=0)),
    "compiled, coins 32": lambda: lock_bernoulli(29, observation="coins", rng=0),
    "compiled, gaussian 16": lambda: rotated(16),
    "compiled, gaussian 128": lambda: rotated(128),
    "compiled, mountain car": environments.mountain_car,
}


class Job:
    """One call of `CHUNKS` chunks under a greedy policy, on one worker or on two."""

    def __init__(self, name):
        env = CASES[name]()
        self.inner = RolloutSampler(env)
        self.n = CHUNKS * self.inner.chunk_size
        shape = (env.horizon, env.n_actions, env.dimension)
        self.policy = dmq.Policy.greedy(np.random.default_rng(0).normal(size=shape))
        self.arguments = {"stream": dmq.Stream(0), "levels": range(env.horizon), "returns_from": (0,)}
        self.samplers = {1: self.inner, 2: ParallelSampler(self.inner, pool_of(self.inner, 2))}

    def collect(self, workers):
        """Draw the trajectories of one call."""
        return self.samplers[workers].collect(self.policy, self.n, **self.arguments)

    def timed(self, workers):
        """Wall-clock seconds, CPU seconds of the process, and those of the calling thread alone."""
        began = time.perf_counter(), time.process_time(), time.thread_time()
        self.collect(workers)
        ended = time.perf_counter(), time.process_time(), time.thread_time()
        return np.subtract(ended, began)

    def turns(self, rounds):
        """Times by workers, (rounds, 3), taken in turns."""
        taken = {1: [], 2: []}
        for _ in range(rounds):
            for workers, times in taken.items():
                times.append(self.timed(workers))
        return {workers: np.array(times) for workers, times in taken.items()}


@pytest.mark.parametrize("name", CASES)
@pytest.mark.benchmark(min_rounds=5)
def test_threads(benchmark, name):
    job = Job(name)
    assert job.collect(2).grams.tobytes() == job.collect(1).grams.tobytes()
    times = job.turns(5)
    benchmark(job.collect, 2)
    for key, value in described(times).items():
        benchmark.extra_info[key] = round(value, 3)
    job.samplers[2].close()


def described(times):
    """Speed-up, CPU seconds over those of one worker, and share of the calling thread with two."""
    best = {workers: columns.min(axis=0) for workers, columns in times.items()}
    return {
        "speed-up": best[1][0] / best[2][0],
        "CPU ratio": best[2][1] / best[1][1],
        "caller's share": best[2][2] / best[2][1],
    }


def main():
    """Print the table."""
    print(f"load average {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores; {CHUNKS} chunks a call")
    print(f"{'case':<24} {'chunk':>7} {'ms, 1 worker':>13} {'2 workers':>10} {'speed-up':>9} {'CPU':>6} {'caller':>7}")
    for name in CASES:
        job = Job(name)
        job.turns(1)
        times = job.turns(9)
        one, two = (1e3 * times[workers][:, 0].min() for workers in (1, 2))
        speed_up, cpu, caller = described(times).values()
        size = job.inner.chunk_size
        print(f"{name:<24} {size:>7} {one:>13.1f} {two:>10.1f} {speed_up:>9.2f} {cpu:>6.2f} {caller:>7.1%}", flush=True)
        job.samplers[2].close()
    print(f"load average {os.getloadavg()[0]:.1f}")


if __name__ == "__main__":
    main()
