from typing import Any, Self

from typing_extensions import disjoint_base

@disjoint_base
class Control:
    def __new__(cls, horizon: int, hold: int = 1) -> Self: ...
    def __dmq_environment__(self) -> Any: ...

class MountainCar(Control):
    def __new__(cls, horizon: int, hold: int = 1) -> Self: ...

class CartPole(Control):
    def __new__(cls, horizon: int, hold: int = 1) -> Self: ...
