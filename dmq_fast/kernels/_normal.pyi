import numpy as np
from numpy.typing import ArrayLike, NDArray

def normals(uniforms: ArrayLike) -> NDArray[np.float64]: ...
