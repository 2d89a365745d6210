from typing import Self

import numpy as np
from numpy.typing import NDArray
from typing_extensions import disjoint_base

from dmq_fast.kernels._episode import Episode
from dmq_fast.kernels._tabular_q import TabularLearner

@disjoint_base
class ModelLearner(TabularLearner):
    def fit(self) -> list[NDArray[np.float64]]: ...

@disjoint_base
class BernsteinLearner(ModelLearner):
    def __new__(cls, episode: Episode, optimism: str, c1: float, c2: float, epsilon: float | None) -> Self: ...
    @property
    def lower(self) -> list[NDArray[np.float64]]: ...
    @property
    def gap(self) -> float: ...

@disjoint_base
class PolicyOptimisationLearner(ModelLearner):
    def __new__(cls, episode: Episode, optimism: str, alpha: float, beta: float) -> Self: ...
    @property
    def probabilities(self) -> list[NDArray[np.float64]]: ...
