from typing import Any, Literal, TypeAlias, overload

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.sparse import sparray, spmatrix

Sparse: TypeAlias = sparray[Any, Any] | spmatrix[Any]

@overload
def greedy_actions(
    features: ArrayLike | Sparse, theta: ArrayLike, *, return_values: Literal[False] = False
) -> NDArray[np.int64]: ...
@overload
def greedy_actions(
    features: ArrayLike | Sparse, theta: ArrayLike, *, return_values: Literal[True]
) -> tuple[NDArray[np.int64], NDArray[np.float64]]: ...
@overload
def greedy_actions(
    features: ArrayLike | Sparse, theta: ArrayLike, *, return_values: bool
) -> NDArray[np.int64] | tuple[NDArray[np.int64], NDArray[np.float64]]: ...
