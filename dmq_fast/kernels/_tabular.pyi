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
    def __init__(self, episode: Episode, c: float, alpha: float | None, clipped: bool) -> None: ...

@disjoint_base
class DelayedQLearner(TabularLearner):
    def __init__(self, episode: Episode, m: int, epsilon: float) -> None: ...
    @property
    def n_attempts(self) -> int: ...
    @property
    def n_updates(self) -> int: ...
