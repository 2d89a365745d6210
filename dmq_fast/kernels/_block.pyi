from collections.abc import Sequence
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from typing_extensions import disjoint_base

from dmq_fast.kernels._finite import FiniteModel

NOISES: dict[str, int]

@disjoint_base
class BlockModel:
    def __new__(
        cls,
        model: FiniteModel,
        base: Sequence[ArrayLike],
        *,
        noise: str = "none",
        n_coins: int = 0,
        sigma: float = 0.0,
        scale: float = 1.0,
    ) -> Self: ...
    @property
    def model(self) -> FiniteModel: ...
    def check_states(self, level: int, states: NDArray[np.uint8]) -> None: ...
    def __dmq_environment__(self) -> Any: ...
