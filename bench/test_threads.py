"""Measure the speed-up of a second thread: calls of several chunks on one and on two workers, interleaved.

    python bench/test_threads.py    # the table
    pytest bench/test_threads.py    # under pytest-benchmark

The speed-up is the ratio of the best wall-clock times, which other work on the machine distorts. Three more numbers do
not depend on other work (Linux, from schedstat). "busy" is the share of the time in which the workers ran or waited for
a core, and so did not wait for the GIL or for each other. "CPU" is the ratio of CPU seconds of two workers to those of
one: it grows if they compete for caches and bandwidth. "promised" is the speed-up that the two imply for an idle
machine, 2 x busy / CPU.
"""

import os
import time
from pathlib import Path

import common
import numpy as np
import pytest

import dmq_fast as dmq
from dmq_fast import environments
from dmq_fast.environments.block import block_mdp, lock_bernoulli
from dmq_fast.samplers import ParallelSampler, RolloutSampler
from dmq_fast.samplers.parallel import pool_of

CHUNKS = 16 if common.MEASURING else 3


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
    """Call of `CHUNKS` chunks under a greedy policy, on one worker or on two."""

    def __init__(self, name):
        env = CASES[name]()
        self.inner = RolloutSampler(env)
        self.n = CHUNKS * self.inner.chunk_size
        shape = (env.horizon, env.n_actions, env.dimension)
        self.policy = dmq.Policy.greedy(np.random.default_rng(0).normal(size=shape))
        self.arguments = {"stream": dmq.Stream(0), "levels": range(env.horizon), "returns_from": (0,)}
        self.samplers = {1: self.inner, 2: ParallelSampler(self.inner, pool_of(self.inner, 2))}

    def collect(self, workers):
        """Return the moments of the call."""
        return self.samplers[workers].collect(self.policy, self.n, **self.arguments)

    def timed(self, workers):
        """Return wall-clock seconds, CPU seconds of the process, and the busy share of its workers."""
        threads = [os.getpid()]
        if workers == 2:
            threads = [thread.native_id for thread in self.samplers[2].executor._threads]
        before, cpu, began = runnable(threads), time.process_time(), time.perf_counter()
        self.collect(workers)
        wall, cpu = time.perf_counter() - began, time.process_time() - cpu
        return wall, cpu, (runnable(threads) - before) / wall / workers

    def turns(self, rounds):
        """Return the times by number of workers, (rounds, 3), from interleaved calls."""
        taken = {1: [], 2: []}
        self.collect(2)  # makes the threads
        for _ in range(rounds):
            for workers, times in taken.items():
                times.append(self.timed(workers))
        return {workers: np.array(times) for workers, times in taken.items()}


def runnable(threads):
    """Return the total seconds in which threads of this process ran or waited for a core."""
    fields = (Path(f"/proc/self/task/{thread}/schedstat").read_text().split() for thread in threads)
    return sum(int(ran) + int(waited) for ran, waited, _ in fields) / 1e9


@pytest.mark.parametrize("name", CASES)
@pytest.mark.benchmark(min_rounds=5)
def test_threads(benchmark, name):
    job = Job(name)
    assert job.collect(2).grams.tobytes() == job.collect(1).grams.tobytes()
    times = job.turns(5 if common.MEASURING else 1)
    benchmark(job.collect, 2)
    for key, value in described(times).items():
        benchmark.extra_info[key] = round(value, 3)
    job.samplers[2].close()


def described(times):
    """Return the speed-up of the best times, the median busy share, the median CPU ratio, and the promised speed-up."""
    speed_up = times[1][:, 0].min() / times[2][:, 0].min()
    busy, cpu = np.median(times[2][:, 2]), np.median(times[2][:, 1] / times[1][:, 1])
    return {"speed-up": speed_up, "busy": busy, "CPU ratio": cpu, "promised": 2 * busy / cpu}


def main():
    """Print the table."""
    print(f"load average {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores; {CHUNKS} chunks a call")
    print(f"{'case':<24} {'ms, 1 worker':>13} {'2 workers':>10} {'speed-up':>9} {'busy':>7} {'CPU':>6} {'promised':>9}")
    for name in CASES:
        job = Job(name)
        times = job.turns(15)
        one, two = (1e3 * times[workers][:, 0].min() for workers in (1, 2))
        speed_up, busy, cpu, promised = described(times).values()
        print(
            f"{name:<24} {one:>13.1f} {two:>10.1f} {speed_up:>9.2f} {busy:>7.1%} {cpu:>6.2f} {promised:>9.2f}",
            flush=True,
        )
        job.samplers[2].close()
    print(f"load average {os.getloadavg()[0]:.1f}")


if __name__ == "__main__":
    main()
