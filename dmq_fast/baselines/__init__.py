"""The algorithms that DMQ is compared with, each written from its paper, on the same environments.

>>> import dmq_fast as dmq
>>> env = dmq.environments.chain(horizon=5)
>>> result = dmq.baselines.REGISTRY["rlsvi"](env, n_episodes=200, sigma=0.1, rng=0).learn()
>>> result
<BaselineResult: rlsvi, ended, 200 trajectories, value ..., 0 warnings>

All learn from one episode after the other, and `BPIUCBVI` stops by itself. The result has the learning curve: the value
of the policy and the rewards earned so far at each checkpoint.
"""

from dmq_fast.baselines.base import REGISTRY, Baseline, Estimates, PythonLearner, register
from dmq_fast.baselines.linear import LSVIUCB, OCP, RLSVI, LinearQ, UniformLeastSquares
from dmq_fast.baselines.tabular import BPIUCBVI, OPPO, UCBQ, DelayedQ
from dmq_fast.results.history import Curve
from dmq_fast.results.result import BaselineResult
from dmq_fast.table_policy import TablePolicy

__all__ = [
    "BPIUCBVI",
    "LSVIUCB",
    "OCP",
    "OPPO",
    "REGISTRY",
    "RLSVI",
    "UCBQ",
    "Baseline",
    "BaselineResult",
    "Curve",
    "DelayedQ",
    "Estimates",
    "LinearQ",
    "PythonLearner",
    "TablePolicy",
    "UniformLeastSquares",
    "register",
]
