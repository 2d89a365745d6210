"""Number types of a run: float64, or more digits for the constants of the theorem.

The constants of the proof have eps_r near 1e-36 and below, where S and S + eps_r I are equal in float64. Moments, fit,
greedy choice and oracle must then all be computed with more digits. An `Arithmetic` makes the arrays, greedy rules and
solvers of one number type. `DMQ` uses the attribute `arithmetic` of its sampler: `FLOAT64` for all samplers but
`samplers.ExactSampler`, which takes another on request.
"""

from dmq_fast.arithmetic.extended import Extended, ExtendedSolver, as_arithmetic
from dmq_fast.arithmetic.float64 import FLOAT64, Arithmetic, Float64

__all__ = ["FLOAT64", "Arithmetic", "Extended", "ExtendedSolver", "Float64", "as_arithmetic"]
