"""Print digests of what kernels, samplers and runs compute, to compare two platforms: python bench/digests.py.

Where two lines are the same, so are all bits. What the first table shows is computed by loops of the package, and is
the same on every platform. The second table goes through BLAS or LAPACK, which choose their code by the CPU and add in
an order of their own. OPENBLAS_CORETYPE=Prescott, and other names of CPUs, show what that changes on one machine.
"""

import hashlib
import os
import platform
from collections.abc import Callable, Iterator
from functools import partial

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np

import dmq_fast as dmq
from dmq_fast import environments, kernels
from dmq_fast.environments.block import block_mdp
from dmq_fast.samplers import RolloutSampler


def digest(*arrays: object) -> str:
    """Return a digest of the bytes of arrays."""
    return hashlib.sha256(b"".join(np.ascontiguousarray(array).tobytes() for array in arrays)).hexdigest()[:16]


def rollouts(env: object) -> str:
    sampler, rng = RolloutSampler(env), np.random.default_rng(0)
    policy = dmq.Policy.greedy(rng.random((sampler.horizon, sampler.n_actions, sampler.dimension)) - 0.5)
    seen = sampler.trajectories(policy, 300, stream=dmq.Stream(0))
    return digest(seen.features, seen.actions, seen.rewards)


def ridge(dimension: int) -> kernels.Ridge:
    learner, rng = kernels.Ridge(dimension, 1e-3), np.random.default_rng(1)
    for row, target in zip(rng.random((2 * dimension, dimension)), rng.random(2 * dimension), strict=True):
        learner.update(row, target)
    return learner


def moment(dimension: int) -> str:
    sums = kernels.SecondMoment(dimension)
    sums.add_rows(np.random.default_rng(2).random((500, dimension)))
    return digest(sums.matrix)


def greedy() -> str:
    rng = np.random.default_rng(3)
    return digest(*kernels.greedy_actions(rng.random((999, 24)), rng.random((7, 24)), return_values=True))


def grams() -> list[np.ndarray]:
    """Pairs of Gram matrices of integers, which no order of additions rounds."""
    factors = np.random.default_rng(4).integers(-8, 9, (200, 2, 16, 24)).astype(float)
    return [*(factors @ factors.transpose(0, 1, 3, 2))]


def decisions() -> str:
    shifts = [kernels.dsec_decision(m1, m2, 1e-3, 0.05) for m1, m2 in grams()]
    return f"{digest(shifts)}  {sum(shifts)} shifts of {len(shifts)}"


def values() -> str:
    found = [kernels.dsec_value(m1, m2, 1e-3) for m1, m2 in grams()]
    return f"{digest(found)}  largest {max(found):.12g}"


def plan() -> str:
    plans, rng = kernels.OptimisticPlanner(5, 4, 12, 1e-3, 4.74), np.random.default_rng(5)
    for features in rng.random((300, 5, 12)):
        plans.add(features, rng.integers(4, size=5), np.full(5, 0.1))
    return digest(plans.plan(0.05))


def learned(learner: type[dmq.DMQ] | type[dmq.SelfStopping], env: object, **arguments: object) -> str:
    result = learner(env, rng=0, **arguments).learn()
    return f"{digest(result.theta)}  {result.n_trajectories:,} trajectories"


def digests() -> Iterator[tuple[str, dict[str, Callable[[], str]]]]:
    """Yield each table: a title, and what finds each line."""
    lock = environments.combination_lock(20, 4, rng=0)
    noisy = block_mdp(lock, noise="gaussian", sigma=0.05, dimension=32, rotation="hadamard", rng=0)
    yield (
        "The same on every platform",
        {
            "uniforms": lambda: digest(dmq.Stream(0).generator().random(1000)),
            "rollouts of a finite MDP": partial(rollouts, environments.deep_sea(20, stochastic=True)),
            "rollouts with Gaussian noise": partial(rollouts, noisy),
            "greedy_actions": greedy,
            "SecondMoment, d = 24": partial(moment, 24),
            "Ridge, d = 96": lambda: digest(ridge(96).theta),
            "dsec_decision": decisions,
            "OptimisticPlanner": plan,
            "DMQ on the lock": partial(learned, dmq.DMQ, lock, n_samples=20),
            "a run that stops by itself": partial(learned, dmq.SelfStopping, lock, epsilon=0.05),
        },
    )
    yield (
        "As BLAS adds",
        {
            "SecondMoment, d = 96": partial(moment, 96),
            "dsec_value": values,
            "DMQ with Gaussian noise": partial(learned, dmq.DMQ, noisy, n_samples=200),
        },
    )


def main() -> None:
    """Print both tables."""
    print(f"{platform.platform()}, Python {platform.python_version()}, NumPy {np.__version__}")
    for title, table in digests():
        print(f"\n{title}")
        for name, find in table.items():
            print(f"    {name:32}{find()}")


if __name__ == "__main__":
    main()
