"""The theory of the paper in numbers: constants, inequalities, bounds, and the comparison of a run with the lemmas.

`Parameters.from_theorem` evaluates the constants of Theorem 6.1, as printed or corrected; `Parameters.check` lists the
inequalities that the proof needs of them, with both sides. `theory.bounds` holds bounds for any run. These modules
import no environment. `theory.measures` computes on a `FiniteMDP` the quantities that the proof bounds, and
`theory.certificate` compares a run with the lemmas. The errors found in the printed algorithm and its proof are listed
in docs/findings.md.
"""

from dmq_fast.theory.bounds import (
    finite_cover_bound,
    printed_cover_bound,
    ridge_norm_bound,
    sure_cover_bound,
)
from dmq_fast.theory.constants import Parameters
from dmq_fast.theory.inequalities import Inequality

__all__ = [
    "Inequality",
    "Parameters",
    "finite_cover_bound",
    "printed_cover_bound",
    "ridge_norm_bound",
    "sure_cover_bound",
]
