from typing import Self

import numpy as np
from numpy.typing import NDArray
from typing_extensions import disjoint_base

from dmq_fast.kernels._episode import Episode, Learner

@disjoint_base
class TabularLearner(Learner):
    @property
    def table(self) -> list[NDArray[np.float64]]: ...
    @property
    def counts(self) -> list[NDArray[np.int64]]: ...

@disjoint_base
class UCBQLearner(TabularLearner):
    def __new__(
        cls, episode: Episode, c: float, alpha: float | None, clipped: bool, *, optimism: str = "flat"
    ) -> Self: ...

@disjoint_base
class DelayedQLearner(TabularLearner):
    def __new__(cls, episode: Episode, m: int, epsilon: float) -> Self: ...
    @property
    def n_attempts(self) -> int: ...
    @property
    def n_updates(self) -> int: ...
