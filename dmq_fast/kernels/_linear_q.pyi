import numpy as np
from numpy.typing import NDArray
from typing_extensions import disjoint_base

from dmq_fast.kernels._episode import Episode, Learner

@disjoint_base
class LinearQLearner(Learner):
    def __init__(
        self, episode: Episode, alpha: float, alpha_decay: float, epsilon: float, epsilon_decay: float
    ) -> None: ...
    @property
    def weights(self) -> NDArray[np.float64]: ...
