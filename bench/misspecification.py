"""Measure how often a run succeeds when Q* is linear only up to an error.

    python bench/misspecification.py [--seeds 10]

Random vectors are added to the features of a `linear_q` and of a `combination_lock` with copied states. The resulting
error of Q* is the smallest sup norm of Q* - phi^T theta over theta, at the worst level and action, in units of the
smallest gap. Prints two tables for each family, of R against this error and of eps_r against it. Each cell holds the
number of runs whose policy is within 1% of the optimal value, the mean relative loss, and the mean size of the largest
cover.
"""

import os

os.environ.update(dict.fromkeys(("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"), "1"))

import argparse
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linprog

import dmq_fast as dmq
from dmq_fast.environments import FiniteMDP, combination_lock, linear_q
from dmq_fast.samplers import FlowSampler

Array = NDArray[np.float64]

SIZES = (0.0, 0.05, 0.1, 0.2, 0.4, 0.8)
RATIOS = (1.1, 2.0, 5.0, 20.0, 100.0)
REGULARISERS = (1e-4, 1e-3, 1e-2, 1e-1)


def perturbed(env: FiniteMDP, size: float, rng: np.random.Generator) -> FiniteMDP:
    """Return the MDP with a random vector of length `size` added to each feature, scaled to fit the unit ball."""
    features = []
    for phi in env.features:
        noise = rng.standard_normal(phi.shape)
        features.append((phi + size * noise / np.linalg.norm(noise, axis=1, keepdims=True)) / (1.0 + size))
    return FiniteMDP(P=env.P, R=env.R, features=features, start=env.start)


def perturbed_linear_q(size: float = 0.05, *, rng: int | None = None) -> FiniteMDP:
    """Return a `linear_q` with perturbed features."""
    return perturbed(linear_q(rng=rng), size, np.random.default_rng(rng))


def perturbed_lock(size: float = 0.05, *, rng: int | None = None) -> FiniteMDP:
    """Return a combination lock with eight copies of every state and perturbed features."""
    return perturbed(copied(combination_lock(10, 4, rng=rng), 8), size, np.random.default_rng(rng))


def distance(phi: Array, q: Array) -> float:
    """Return the smallest max_s |q(s) - phi(s)^T theta| over theta, by linear programming."""
    n, d = phi.shape
    ones = np.ones((n, 1))
    bounds = [(None, None)] * d + [(0, None)]
    program = linprog(np.eye(d + 1)[d], np.block([[phi, -ones], [-phi, -ones]]), np.append(q, -q), bounds=bounds)
    return float(program.fun)


def misspecification(env: FiniteMDP) -> float:
    """Return the largest distance of Q*(., a) from the linear functions, over levels and actions."""
    return max(
        distance(phi, q[:, a]) for phi, q in zip(env.features, env.optimal_q, strict=True) for a in range(q.shape[1])
    )


def copied(env: FiniteMDP, n: int) -> FiniteMDP:
    """Return the MDP with n copies of every state, of which one is drawn uniformly on every visit."""
    return FiniteMDP(
        P=[np.repeat(np.repeat(p, n, axis=0), n, axis=2) / n for p in env.P],
        R=[np.repeat(r, n, axis=0) for r in env.R],
        features=[np.repeat(phi, n, axis=0) for phi in env.features],
        start=np.repeat(env.start, n) / n,
    )


class Cell(NamedTuple):
    """Outcome of the runs with one setting: how many succeeded, mean loss, mean size of the largest cover."""

    solved: int
    loss: float
    cover: float


def measure(envs: list[FiniteMDP], **settings: float) -> Cell:
    """Run DMQ once on each environment, and return the outcome."""
    losses, covers = [], []
    for seed, env in enumerate(envs):
        algorithm = dmq.DMQ(FlowSampler(env), n_samples=1000, variant="frugal", rng=seed, **settings)
        result = algorithm.learn()
        losses.append(1.0 - env.value(result.policy) / env.optimal_value)
        covers.append(max(result.cover_sizes))
    return Cell(sum(loss <= 0.01 for loss in losses), float(np.mean(losses)), float(np.mean(covers)))


def main() -> None:
    """Print both tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=10)
    n = parser.parse_args().seeds
    families = {"linear_q(5, 40, 6, 3)": perturbed_linear_q, "combination_lock(10, 4), 8 copies": perturbed_lock}
    for family, make in families.items():
        print(f"\n{family}, {n} runs: solved, mean loss, mean largest cover")
        worlds = {}
        for size in SIZES:
            envs = [make(size, rng=seed) for seed in range(n)]
            worlds[float(np.mean([misspecification(env) / env.gap for env in envs]))] = envs
        for name, values, fixed in (("ratio", RATIOS, {"eps_r": 1e-3}), ("eps_r", REGULARISERS, {"ratio": 2.0})):
            print("delta / gap " + "".join(f"{f'{name} {value:g}':<19}" for value in values) + f" at {fixed}")
            for delta, envs in worlds.items():
                cells = [measure(envs, **fixed, **{name: value}) for value in values]
                print(f"{delta:11.2f} " + "".join(f"{c.solved:3d} {c.loss:6.3f} {c.cover:5.1f}   " for c in cells))


if __name__ == "__main__":
    main()
