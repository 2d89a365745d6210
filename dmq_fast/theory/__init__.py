"""The paper's theory as numbers: what the proof prescribes, what it needs, and what a run can be held against.

`Parameters.from_theorem` evaluates the constants of Theorem 6.1, as printed or corrected; `Parameters.check` lists the
inequalities behind them with both sides; `bounds` holds for any run. These modules know no environment.
`theory.measures` computes on a `FiniteMDP` what the proof bounds, and `theory.certificate` compares a run with the
lemmas. Where the printed algorithm and its proof fall short is in docs/findings.md.
"""

from dmq_fast.theory.bounds import (
    finite_cover_bound,
    potential,
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
    "potential",
    "printed_cover_bound",
    "ridge_norm_bound",
    "sure_cover_bound",
]
