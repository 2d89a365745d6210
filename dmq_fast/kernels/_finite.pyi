from collections.abc import Sequence
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.sparse import csr_array
from typing_extensions import disjoint_base

from dmq_fast.kernels._philox import Stream
from dmq_fast.kernels._rows import LevelRows
from dmq_fast.kernels._rules import Rule

def alias_tables(probabilities: ArrayLike) -> tuple[NDArray[np.float64], NDArray[np.int32]]: ...
def transition_edges(
    transitions: NDArray[np.float64] | csr_array[np.float64, tuple[int, int]],
) -> tuple[NDArray[Any], NDArray[Any], NDArray[np.float64]]: ...

@disjoint_base
class FiniteModel:
    def __new__(
        cls,
        transitions: Sequence[NDArray[np.float64] | csr_array[np.float64, tuple[int, int]]],
        rewards: Sequence[NDArray[np.float64]],
        features: Sequence[NDArray[np.float64] | csr_array[np.float64, tuple[int, int]]],
        start: NDArray[np.float64],
        caps: NDArray[np.float64],
    ) -> Self: ...
    @property
    def horizon(self) -> int: ...
    @property
    def n_actions(self) -> int: ...
    @property
    def dimension(self) -> int: ...
    def rollout(
        self,
        rules: tuple[Rule, ...],
        n: int,
        stream: Stream,
        levels: Sequence[int],
        returns_from: Sequence[int] = (),
        in_rows: bool = False,
    ) -> tuple[NDArray[np.float64] | LevelRows, NDArray[np.float64], NDArray[np.float64]]: ...
    def returns(self, rules: tuple[Rule, ...], n: int, stream: Stream) -> NDArray[np.float64]: ...
    def trajectories(
        self, rules: tuple[Rule, ...], n: int, stream: Stream
    ) -> tuple[NDArray[np.int32], NDArray[np.int64], NDArray[np.float64]]: ...
