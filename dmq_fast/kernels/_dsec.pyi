from typing import Literal, Self, overload

import numpy as np
from numpy.typing import ArrayLike, NDArray
from typing_extensions import disjoint_base

from dmq_fast.kernels._dsec_numpy import DsecResult
from dmq_fast.kernels._validate import _Square, _Stack

_Bools = NDArray[np.bool_]
_Floats = NDArray[np.float64]

# One problem has a float or a bool, a stack has an array.
@overload
def dsec(m1: _Square, m2: _Square, eps1: float, eps2: float) -> DsecResult[bool, float]: ...
@overload
def dsec(m1: _Stack, m2: ArrayLike, eps1: ArrayLike, eps2: ArrayLike) -> DsecResult[_Bools, _Floats]: ...
@overload
def dsec(m1: ArrayLike, m2: _Stack, eps1: ArrayLike, eps2: ArrayLike) -> DsecResult[_Bools, _Floats]: ...
@overload
def dsec(
    m1: ArrayLike, m2: ArrayLike, eps1: ArrayLike, eps2: ArrayLike
) -> DsecResult[bool, float] | DsecResult[_Bools, _Floats]: ...
@overload
def dsec_value(m1: _Square, m2: _Square, eps1: float) -> float: ...
@overload
def dsec_value(m1: _Stack, m2: ArrayLike, eps1: ArrayLike) -> _Floats: ...
@overload
def dsec_value(m1: ArrayLike, m2: _Stack, eps1: ArrayLike) -> _Floats: ...
@overload
def dsec_value(m1: ArrayLike, m2: ArrayLike, eps1: ArrayLike) -> float | _Floats: ...
@overload
def dsec_decision(
    m1: _Square, m2: _Square, eps1: float, eps2: float, *, return_marginal: Literal[False] = False, exact: bool = True
) -> bool: ...
@overload
def dsec_decision(
    m1: _Stack,
    m2: ArrayLike,
    eps1: ArrayLike,
    eps2: ArrayLike,
    *,
    return_marginal: Literal[False] = False,
    exact: bool = True,
) -> _Bools: ...
@overload
def dsec_decision(
    m1: ArrayLike,
    m2: _Stack,
    eps1: ArrayLike,
    eps2: ArrayLike,
    *,
    return_marginal: Literal[False] = False,
    exact: bool = True,
) -> _Bools: ...
@overload
def dsec_decision(
    m1: ArrayLike,
    m2: ArrayLike,
    eps1: ArrayLike,
    eps2: ArrayLike,
    *,
    return_marginal: Literal[False] = False,
    exact: bool = True,
) -> bool | _Bools: ...
@overload
def dsec_decision(
    m1: _Square, m2: _Square, eps1: float, eps2: float, *, return_marginal: Literal[True], exact: bool = True
) -> tuple[bool, bool]: ...
@overload
def dsec_decision(
    m1: _Stack, m2: ArrayLike, eps1: ArrayLike, eps2: ArrayLike, *, return_marginal: Literal[True], exact: bool = True
) -> tuple[_Bools, _Bools]: ...
@overload
def dsec_decision(
    m1: ArrayLike, m2: _Stack, eps1: ArrayLike, eps2: ArrayLike, *, return_marginal: Literal[True], exact: bool = True
) -> tuple[_Bools, _Bools]: ...
@overload
def dsec_decision(
    m1: ArrayLike,
    m2: ArrayLike,
    eps1: ArrayLike,
    eps2: ArrayLike,
    *,
    return_marginal: Literal[True],
    exact: bool = True,
) -> tuple[bool | _Bools, bool | _Bools]: ...

@disjoint_base
class Stack:
    def __init__(self, m1: ArrayLike, m2: ArrayLike, eps1: ArrayLike, eps2: ArrayLike) -> None: ...

@disjoint_base
class Scan:
    @property
    def eps_s(self) -> float: ...
    @property
    def eps_t(self) -> float: ...
    @property
    def with_values(self) -> bool: ...
    @property
    def n_marginal(self) -> int: ...

@disjoint_base
class ShiftScan(Scan):
    def __new__(cls, dimension: int, eps_s: float, eps_t: float, eps_r: float, with_values: bool) -> Self: ...
    @property
    def dimension(self) -> int: ...
    @property
    def eps_r(self) -> float: ...
    def scan(
        self,
        cover: NDArray[np.float64],
        grams: NDArray[np.float64],
        n: float,
        base: int,
        top: int,
        bottom: int,
    ) -> tuple[int, list[float]]: ...
