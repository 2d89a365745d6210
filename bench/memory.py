"""Measure the peak memory of a process that draws n trajectories, for n = 10^4 to 10^8; it must not grow with n.

    python bench/memory.py

A new process draws each number of trajectories and reports the peak of its resident memory (VmHWM, Linux). The table
takes some minutes, most of them for the last column.
"""

import argparse
import subprocess
import sys
from pathlib import Path

import dmq_fast as dmq
from dmq_fast import environments
from dmq_fast.samplers import ParallelSampler, RolloutSampler
from dmq_fast.samplers.parallel import pool_of

# Environment and largest n of each case; trajectories of compiled environments take longer.
CASES = {
    "finite": (lambda: environments.deep_sea(20, stochastic=True), 10**8),
    "finite, 2 threads": (lambda: environments.deep_sea(20, stochastic=True), 10**8),
    "compiled": (lambda: environments.lock_bernoulli(8, observation="coins", rng=0), 10**7),
    "compiled, 2 threads": (lambda: environments.lock_bernoulli(8, observation="coins", rng=0), 10**7),
}

# Largest relative difference of the peaks of a case.
FLAT = 0.05


def draw(case, n):
    """Draw n trajectories, and print the peak of resident memory of this process in KiB."""
    inner = RolloutSampler(CASES[case][0]())
    sampler = ParallelSampler(inner, pool_of(inner, 2)) if case.endswith("2 threads") else inner
    horizon = inner.horizon
    policy = dmq.Policy.uniform(horizon)
    moments = sampler.collect(policy, n, stream=dmq.Stream(0), levels=range(horizon), returns_from=(0,))
    assert moments.n == n
    print(peak())


def peak():
    """Return VmHWM of this process in KiB."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1])
    raise OSError("/proc/self/status: expected a line VmHWM, got none")


def measured(case, n):
    """Return the peak, in KiB, of a new process that draws n trajectories."""
    command = [sys.executable, __file__, "--case", case, "--n", str(n)]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    return int(done.stdout)


def main():
    """Print the table; in a process with ``--case``, draw and print its own peak."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--case", choices=CASES)
    parser.add_argument("--n", type=int)
    arguments = parser.parse_args()
    if arguments.case is not None:
        draw(arguments.case, arguments.n)
        return
    decades = range(4, 9)
    print(f"{'peak in MiB':<20}", *(f"{f'10^{k}':>8}" for k in decades), "  largest / smallest")
    for case, (_, most) in CASES.items():
        peaks = [measured(case, 10**k) for k in decades if 10**k <= most]
        cells = [f"{one / 1024:8.1f}" for one in peaks] + [" " * 8] * (len(decades) - len(peaks))
        ratio = max(peaks) / min(peaks)
        print(f"{case:<20}", *cells, f"  {ratio:.3f}{'' if ratio <= 1 + FLAT else '  NOT FLAT'}", flush=True)


if __name__ == "__main__":
    main()
