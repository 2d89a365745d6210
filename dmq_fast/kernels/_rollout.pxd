"""Rollouts of compiled environments; the names below have moved to `_fault` and can still be cimported from here."""

from dmq_fast.kernels._fault cimport (
    BLANK, ENDED, FEATURES, NONE, NORM, RESET, RETURN, REWARD, SCORE, SLACK, STEP, Fault, Stop, explain, has_blank,
)
