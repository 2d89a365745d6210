"""Arithmetics for a run: float64, or numbers that hold the constants of the theorem beside second moments.

The constants of the proof have eps_r near 1e-36 and below, where float64 cannot tell S from S + eps_r I: moments, fit,
greedy choice and oracle must then all be computed in more digits. An arithmetic says how: a sampler has one, as its
attribute `arithmetic`, and `DMQ` asks it for the arrays, greedy rules and function class that suit that sampler's
moments. All but `samplers.ExactSampler` on request work in `FLOAT64`.
"""

from dmq_fast.arithmetic.exact_greedy import ExactGreedy
from dmq_fast.arithmetic.extended import Extended, ExtendedSolver, as_arithmetic
from dmq_fast.arithmetic.float64 import FLOAT64, Arithmetic, Float64

__all__ = ["FLOAT64", "Arithmetic", "ExactGreedy", "Extended", "ExtendedSolver", "Float64", "as_arithmetic"]
