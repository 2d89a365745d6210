from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from typing_extensions import disjoint_base

class DsecResult(NamedTuple):
    decision: bool
    value: float
    witness: NDArray[np.float64]

def dsec(m1: ArrayLike, m2: ArrayLike, eps1: float, eps2: float) -> DsecResult: ...
def dsec_decision(m1: ArrayLike, m2: ArrayLike, eps1: float, eps2: float) -> bool: ...

@disjoint_base
class ShiftScan:
    def __init__(self, dimension: int, ratio: float, eps_r: float, with_values: bool) -> None: ...
    @property
    def dimension(self) -> int: ...
    @property
    def ratio(self) -> float: ...
    @property
    def eps_r(self) -> float: ...
    @property
    def with_values(self) -> bool: ...
    def scan(
        self,
        cover: NDArray[np.float64],
        grams: NDArray[np.float64],
        n: float,
        base: int,
        top: int,
        bottom: int,
    ) -> tuple[int, list[float]]: ...
