from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array
from typing_extensions import TypeIs

class _Sparse(Protocol):
    def tocsr(self) -> Any: ...

# One row, and rows: what a call returns for each differs.
_Row = Sequence[float] | np.ndarray[tuple[int], np.dtype[Any]]
_Matrix = np.ndarray[tuple[int, int], np.dtype[Any]]
_Rows = Sequence[Sequence[float]] | _Matrix | _Sparse
_Singles = np.ndarray[tuple[int, int], np.dtype[np.float32]]
# One problem, and stacks of them.
_Square = Sequence[Sequence[float]] | _Matrix
_Stack = np.ndarray[tuple[int, int, int, *tuple[int, ...]], np.dtype[Any]]

def as_numbers(name: str, value: Any) -> NDArray[Any]: ...
def as_floats(name: str, value: Any, shape: tuple[int | None, ...], *, finite: bool = True) -> NDArray[np.float64]: ...
def as_positive(name: str, value: Any, *, zero: bool = False) -> float: ...
def is_sparse(value: Any) -> TypeIs[csr_array[np.float64, tuple[int, int]]]: ...
def as_csr(name: str, value: Any, shape: tuple[int | None, ...]) -> csr_array[np.float64, tuple[int, int]]: ...
