"""Compare the instructions that six hot kernels execute with the counts of `bench/instructions.json`.

    python bench/instructions.py            # compare: exit code 1 where a count differs by more than 3 %
    python bench/instructions.py --write    # renew the counts

Valgrind counts them (Linux), so the counts do not depend on what else the machine does. They depend on the compiler,
and a little on the other versions that `instructions.json` names. They are compared whatever the versions are: counts
that a new compiler changed have to be renewed too. BLAS is told which CPU it runs on, because it would choose its code
by the CPU. Our own loops take their AVX2 form; Valgrind does not know AVX-512.
"""

import argparse
import gc
import json
import os
import platform
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable
from functools import partial
from importlib.metadata import version
from pathlib import Path

RECORDED = Path(__file__).with_suffix(".json")
TOLERANCE = 0.03

# Valgrind ends a part of its counts whenever this function of the C library is called; nothing else here calls it.
MARKER = "getppid"


def kernels() -> dict[str, Callable[[], object]]:
    """Return one call of each kernel, with all that it needs already made."""
    import numpy as np

    import dmq_fast as dmq
    from dmq_fast import environments, kernels
    from dmq_fast.environments.block import block_mdp
    from dmq_fast.samplers import RolloutSampler

    rng = np.random.default_rng(0)

    def rollouts(env: object, n: int) -> Callable[[], object]:
        sampler = RolloutSampler(env)
        policy = dmq.Policy.greedy(rng.normal(size=(sampler.horizon, sampler.n_actions, sampler.dimension)))
        return partial(sampler.collect, policy, n, stream=dmq.Stream(0), levels=range(sampler.horizon))

    def ridge() -> Callable[[], object]:
        learner, phi, y = kernels.Ridge(64, 1e-3), rng.normal(size=(200, 64)), rng.random(200).tolist()
        return lambda: [learner.update(row, target) for row, target in zip(phi, y, strict=True)]

    def oracle() -> Callable[[], object]:
        factors = rng.normal(size=(200, 2, 16, 16))
        grams = factors @ factors.transpose(0, 1, 3, 2)
        return lambda: [kernels.dsec_decision(m1, m2, 1e-3, 0.1) for m1, m2 in grams]

    def planner() -> Callable[[], object]:
        plans = kernels.OptimisticPlanner(5, 4, 12, 1e-3, 4.74)
        for features in rng.normal(size=(300, 5, 12)):
            plans.add(features, rng.integers(4, size=5), np.full(5, 0.1))
        return partial(plans.plan, 0.05)

    rotated = block_mdp(environments.combination_lock(20, 4, rng=0), dimension=32, rng=0)
    return {
        "rollouts of a finite MDP": rollouts(environments.deep_sea(20, stochastic=True), 2000),
        "rollouts of a compiled environment": rollouts(rotated, 500),
        "SecondMoment.add_rows": partial(kernels.SecondMoment(32).add_rows, rng.normal(size=(4000, 32))),
        "Ridge.update": ridge(),
        "dsec_decision": oracle(),
        "OptimisticPlanner.plan": planner(),
    }


def run() -> None:
    """Call each kernel between two markers, and print the names of the kernels."""
    calls = kernels()
    gc.disable()
    for call in calls.values():
        call()  # the first call of a kernel also sets up what the others use
        os.getppid()
        call()
        os.getppid()
    print(json.dumps(list(calls)))


def measured() -> dict[str, int]:
    """Return the instructions of one call of each kernel, counted by Valgrind."""
    # The oldest CPU of BLAS, whose code runs everywhere; the hash seed decides how often dictionaries collide.
    fixed = {"OPENBLAS_CORETYPE": "Prescott", "OPENBLAS_NUM_THREADS": "1", "PYTHONHASHSEED": "0"}
    with tempfile.TemporaryDirectory() as folder:
        counts = Path(folder, "counts")
        tool = ["valgrind", "--tool=callgrind", f"--callgrind-out-file={counts}", f"--dump-before={MARKER}"]
        command = [*tool, sys.executable, "-P", __file__, "--run"]
        done = subprocess.run(command, env=os.environ | fixed, check=False, capture_output=True, text=True)
        if done.returncode != 0:
            raise RuntimeError(f"{' '.join(command)}: expected exit code 0, got {done.returncode}\n{done.stderr}")
        names = json.loads(done.stdout)
        # Part 2 k + 1 ends where kernel k begins, part 2 k + 2 where it ends.
        return {name: instructions(Path(f"{counts}.{2 * k + 2}")) for k, name in enumerate(names)}


def instructions(part: Path) -> int:
    """Return the instructions of one part of Valgrind's counts."""
    found = re.search(r"^totals: (\d+)$", part.read_text(), re.MULTILINE)
    if found is None:
        raise ValueError(f"{part}: expected a line 'totals: N', got none")
    return int(found[1])


def versions() -> dict[str, str]:
    """Return the versions that the counts depend on; those of the compiler and of Cython as the binary has them."""
    from dmq_fast.kernels import _moments

    binary = Path(_moments.__file__).read_bytes()
    compiler, cython = re.search(rb"GCC: \(.*?\) ([\d.]+)", binary), re.search(rb"_cython_(\d+_\d+_\d+)", binary)
    return {
        "python": platform.python_version(),
        "numpy": version("numpy"),
        "scipy": version("scipy"),
        "gcc": compiler[1].decode() if compiler else "none",
        "cython": cython[1].decode().replace("_", ".") if cython else "none",
        "libc": platform.libc_ver()[1],
        "machine": platform.machine(),
        "avx2": "yes" if "avx2" in Path("/proc/cpuinfo").read_text().split() else "no",
    }


def compare(recorded: dict[str, dict], found: dict[str, int], here: dict[str, str]) -> bool:
    """Print both counts of each kernel and the versions that differ; return whether all counts agree."""
    before, then = recorded["instructions"], recorded["versions"]
    if found.keys() != before.keys():
        print(f"expected counts of {', '.join(before)}; got {', '.join(found)}")
        return False
    changes = {name: found[name] / before[name] - 1 for name in before}
    for name, change in changes.items():
        verdict = "" if abs(change) <= TOLERANCE else "  changed"
        print(f"{name:<36} {before[name]:>12,} {found[name]:>12,} {change:>+8.2%}{verdict}")
    for name in then:
        if then[name] != here[name]:
            print(f"{name}: recorded with {then[name]}, here {here[name]}")
    return all(abs(change) <= TOLERANCE for change in changes.values())


def main() -> int:
    """Compare or renew the counts; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--write", action="store_true", help="renew the counts instead of comparing them")
    parser.add_argument("--run", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.run:
        run()
        return 0
    found, here = measured(), versions()
    if options.write:
        RECORDED.write_text(json.dumps({"versions": here, "instructions": found}, indent=2) + "\n")
        return 0
    if compare(json.loads(RECORDED.read_text()), found, here):
        return 0
    print(
        f"A count differs by more than {TOLERANCE:.0%}. If this is meant, or if the commit before differs as much,\n"
        "with the same versions, renew the counts: python bench/instructions.py --write"
    )
    return 1


if __name__ == "__main__":
    sys.exit(main())
