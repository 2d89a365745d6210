from typing import Any, Self

from typing_extensions import disjoint_base

@disjoint_base
class Control:
    def __new__(cls, horizon: int) -> Self: ...
    def __dmq_environment__(self) -> Any: ...

@disjoint_base
class MountainCar(Control):
    def __new__(cls, horizon: int) -> Self: ...

@disjoint_base
class CartPole(Control):
    def __new__(cls, horizon: int) -> Self: ...
