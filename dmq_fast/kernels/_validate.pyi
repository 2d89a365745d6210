from typing import Any

import numpy as np
from numpy.typing import NDArray

def as_numbers(name: str, value: Any) -> NDArray[Any]: ...
def as_floats(
    name: str, value: Any, shape: tuple[int | None, ...], *, finite: bool = True
) -> NDArray[np.float64]: ...
def as_positive(name: str, value: Any, *, zero: bool = False) -> float: ...
