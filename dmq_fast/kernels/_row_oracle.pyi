from typing import Literal, Self, overload

import numpy as np
from numpy.typing import ArrayLike, NDArray
from typing_extensions import disjoint_base

from dmq_fast.kernels._dsec import Scan
from dmq_fast.kernels._rows import LevelRows
from dmq_fast.kernels._validate import _Sparse

def restored(
    version: int, dimension: int, eps_r: float, support: NDArray[np.int32], gram: NDArray[np.float64]
) -> RowOracle: ...

@disjoint_base
class RowOracle:
    def __new__(cls, dimension: int, eps_r: float) -> Self: ...
    @property
    def dimension(self) -> int: ...
    @property
    def eps_r(self) -> float: ...
    @property
    def order(self) -> int: ...
    @property
    def support(self) -> NDArray[np.int32]: ...
    @property
    def gram(self) -> NDArray[np.float64]: ...
    def matrix(self) -> NDArray[np.float64]: ...
    def add(self, rows: LevelRows | ArrayLike | _Sparse, level: int = 0, divisor: float = 1.0) -> None: ...
    def add_gram(self, support: ArrayLike, gram: ArrayLike) -> None: ...
    def log_det(self, rows: LevelRows | None = None, level: int = 0, divisor: float = 1.0) -> float: ...
    def leverages(self, rows: LevelRows | ArrayLike | _Sparse, level: int = 0) -> NDArray[np.float64]: ...
    @overload
    def decision(
        self,
        rows: LevelRows | ArrayLike | _Sparse,
        eps1: float,
        eps2: float,
        level: int = 0,
        *,
        n: float | None = None,
        return_marginal: Literal[False] = False,
    ) -> bool: ...
    @overload
    def decision(
        self,
        rows: LevelRows | ArrayLike | _Sparse,
        eps1: float,
        eps2: float,
        level: int = 0,
        *,
        n: float | None = None,
        return_marginal: Literal[True],
    ) -> tuple[bool, bool]: ...

@disjoint_base
class RowScan(Scan):
    def __new__(cls, eps_s: float, eps_t: float, with_values: bool = False) -> Self: ...
    @property
    def n_exact(self) -> int: ...
    def scan(
        self, oracles: list[RowOracle], rows: LevelRows, n: float, base: int, top: int, bottom: int
    ) -> tuple[int, list[float]]: ...
