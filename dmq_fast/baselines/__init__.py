"""What DMQ is compared with: other algorithms that explore, each written from its paper, on the same environments.

    result = dmq.baselines.REGISTRY["rlsvi"](env, n_episodes=2000, sigma=0.1, rng=0).learn()
    result.policy, result.value, result.curve

All learn from one episode after the other, and each says in its result how its value and its rewards developed.
"""

from dmq_fast.baselines.linear import LSVIUCB, OCP, RLSVI, LinearQ, UniformLeastSquares
from dmq_fast.baselines.protocol import Baseline, BaselineResult, Curve
from dmq_fast.baselines.table import TablePolicy
from dmq_fast.baselines.tabular import UCBQ, DelayedQ

__all__ = [
    "LSVIUCB",
    "OCP",
    "REGISTRY",
    "RLSVI",
    "UCBQ",
    "Baseline",
    "BaselineResult",
    "Curve",
    "DelayedQ",
    "LinearQ",
    "TablePolicy",
    "UniformLeastSquares",
]

REGISTRY: dict[str, type[Baseline]] = {
    algorithm.name: algorithm for algorithm in (UniformLeastSquares, LinearQ, RLSVI, LSVIUCB, OCP, UCBQ, DelayedQ)
}
"""Name -> class. All are made as ``REGISTRY[name](env, rng=seed, **parameters)`` and have ``learn()``."""
