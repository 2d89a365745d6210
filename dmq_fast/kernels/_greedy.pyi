from typing import Literal, overload

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dmq_fast.kernels._validate import _Sparse

@overload
def greedy_actions(
    features: ArrayLike | _Sparse, theta: ArrayLike, *, return_values: Literal[False] = False
) -> NDArray[np.int64]: ...
@overload
def greedy_actions(
    features: ArrayLike | _Sparse, theta: ArrayLike, *, return_values: Literal[True]
) -> tuple[NDArray[np.int64], NDArray[np.float64]]: ...
@overload
def greedy_actions(
    features: ArrayLike | _Sparse, theta: ArrayLike, *, return_values: bool
) -> NDArray[np.int64] | tuple[NDArray[np.int64], NDArray[np.float64]]: ...
