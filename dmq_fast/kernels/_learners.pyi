from collections.abc import Sequence
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from typing_extensions import disjoint_base

from dmq_fast.kernels._episode import Episode, Learner

@disjoint_base
class LinearQLearner(Learner):
    def __new__(
        cls,
        episode: Episode,
        alpha: float,
        alpha_decay: float,
        epsilon: float,
        epsilon_decay: float,
        *,
        groups: Sequence[int] | None = None,
    ) -> Self: ...
    @property
    def weights(self) -> NDArray[np.float64]: ...

@disjoint_base
class SpanLearner(Learner):
    def __new__(cls, episode: Episode, tolerance: float, *, groups: Sequence[int] | None = None) -> Self: ...
    @property
    def n_conflicts(self) -> int: ...
    @property
    def weights(self) -> NDArray[np.float64]: ...
    @property
    def ranks(self) -> NDArray[np.int64]: ...

@disjoint_base
class TabularLearner(Learner):
    def __new__(
        cls, episode: Episode, *arguments: Any, groups: Sequence[int] | None = None, **options: Any
    ) -> Self: ...
    @property
    def table(self) -> list[NDArray[np.float64]]: ...
    @property
    def counts(self) -> list[NDArray[np.int64]]: ...

@disjoint_base
class UCBQLearner(TabularLearner):
    def __new__(
        cls,
        episode: Episode,
        c: float,
        alpha: float | None,
        clipped: bool,
        *,
        optimism: str = "flat",
        groups: Sequence[int] | None = None,
    ) -> Self: ...

@disjoint_base
class DelayedQLearner(TabularLearner):
    def __new__(cls, episode: Episode, m: int, epsilon: float, *, groups: Sequence[int] | None = None) -> Self: ...
    @property
    def n_attempts(self) -> int: ...
    @property
    def n_updates(self) -> int: ...

@disjoint_base
class ModelLearner(TabularLearner):
    def __new__(
        cls, episode: Episode, optimism: str, *arguments: Any, groups: Sequence[int] | None = None, **options: Any
    ) -> Self: ...
    def fit(self) -> list[NDArray[np.float64]]: ...

@disjoint_base
class BernsteinLearner(ModelLearner):
    def __new__(
        cls,
        episode: Episode,
        optimism: str,
        c1: float,
        c2: float,
        epsilon: float | None,
        noise: float = 0.0,
        *,
        groups: Sequence[int] | None = None,
    ) -> Self: ...
    @property
    def lower(self) -> list[NDArray[np.float64]]: ...
    @property
    def gap(self) -> float: ...

@disjoint_base
class PolicyOptimisationLearner(ModelLearner):
    def __new__(
        cls, episode: Episode, optimism: str, alpha: float, beta: float, *, groups: Sequence[int] | None = None
    ) -> Self: ...
    @property
    def probabilities(self) -> list[NDArray[np.float64]]: ...
