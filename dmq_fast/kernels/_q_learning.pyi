from typing import Self

import numpy as np
from numpy.typing import NDArray
from typing_extensions import disjoint_base

from dmq_fast.kernels._episode import Episode, Learner

@disjoint_base
class LinearQLearner(Learner):
    def __new__(
        cls, episode: Episode, alpha: float, alpha_decay: float, epsilon: float, epsilon_decay: float
    ) -> Self: ...
    @property
    def weights(self) -> NDArray[np.float64]: ...
