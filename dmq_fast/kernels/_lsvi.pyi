from collections.abc import Sequence
from typing import Self

import numpy as np
from numpy.typing import NDArray
from typing_extensions import disjoint_base

from dmq_fast.kernels._episode import Episode, Learner

KINDS: dict[str, int]

@disjoint_base
class LeastSquaresLearner(Learner):
    def __new__(
        cls,
        episode: Episode,
        kind: str,
        ridge: float,
        scale: float,
        *,
        optimism: str = "flat",
        clipped: bool = False,
        blocks: bool = False,
        groups: Sequence[int] | None = None,
    ) -> Self: ...
    @property
    def weights(self) -> NDArray[np.float64]: ...
    @property
    def n_observations(self) -> tuple[int, ...]: ...
    def fit(self) -> NDArray[np.float64]: ...
