"""Ridge regression; the names below have moved to `_factor` and can still be cimported from here."""

from dmq_fast.kernels._factor cimport (
    NOT_DEFINITE, downdate_factor, solve_factor, solve_factor_transposed, update_factor,
)
