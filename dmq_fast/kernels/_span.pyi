from typing import Self

import numpy as np
from numpy.typing import NDArray
from typing_extensions import disjoint_base

from dmq_fast.kernels._episode import Episode, Learner

@disjoint_base
class SpanLearner(Learner):
    def __new__(cls, episode: Episode, tolerance: float) -> Self: ...
    @property
    def n_conflicts(self) -> int: ...
    @property
    def weights(self) -> NDArray[np.float64]: ...
    @property
    def ranks(self) -> NDArray[np.int64]: ...
