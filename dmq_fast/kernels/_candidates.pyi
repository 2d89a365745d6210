from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from dmq_fast.kernels._dsec import ShiftScan
from dmq_fast.kernels._finite import FiniteModel
from dmq_fast.kernels._philox import Stream
from dmq_fast.kernels._rollout import CompiledModel
from dmq_fast.kernels._row_oracle import RowOracle, RowScan
from dmq_fast.kernels._rows import LevelRows
from dmq_fast.kernels._rules import Rule

# What `rollout` returns.
_Sums = tuple[LevelRows | NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]

def draw_each(
    model: FiniteModel | CompiledModel,
    before: list[tuple[Rule, ...]],
    policy: tuple[Rule, ...],
    n: int,
    stream: Stream,
    h: int,
    levels: Sequence[int],
    returns_from: Sequence[int],
    in_rows: bool,
) -> list[_Sums]: ...
def draw_until_shift(
    model: FiniteModel | CompiledModel,
    scan: RowScan | ShiftScan,
    cover: list[RowOracle] | NDArray[np.float64],
    before: list[tuple[Rule, ...]],
    policy: tuple[Rule, ...],
    n: int,
    stream: Stream,
    h: int,
    levels: Sequence[int],
    returns_from: Sequence[int],
) -> tuple[list[_Sums], bool, float]: ...
