from collections.abc import Sequence
from typing import Self

import numpy as np
from numpy.typing import NDArray
from typing_extensions import disjoint_base

from dmq_fast.kernels._env import EnvironmentHandle
from dmq_fast.kernels._features import FeatureMap
from dmq_fast.kernels._philox import Stream
from dmq_fast.kernels._rows import LevelRows
from dmq_fast.kernels._rules import Rule
from dmq_fast.rewards import RewardModel

@disjoint_base
class CompiledModel:
    def __new__(
        cls, handle: EnvironmentHandle, feature_map: FeatureMap | None = None, rewards: RewardModel | None = None
    ) -> Self: ...
    @property
    def rewards(self) -> RewardModel | None: ...
    @property
    def handle(self) -> EnvironmentHandle: ...
    @property
    def feature_map(self) -> FeatureMap | None: ...
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
    ) -> tuple[NDArray[np.float64], NDArray[np.int64], NDArray[np.float64]]: ...
