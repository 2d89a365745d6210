"""Compiled kernels: the validated Python face. Their C-level API is in the installed ``.pxd`` files."""

try:
    from dmq_fast.kernels._dsec import ShiftScan, dsec, dsec_decision, dsec_value
    from dmq_fast.kernels._env import EnvironmentHandle
    from dmq_fast.kernels._finite import FiniteModel, alias_tables
    from dmq_fast.kernels._greedy import greedy_actions
    from dmq_fast.kernels._moments import SecondMoment
    from dmq_fast.kernels._dsec_numpy import DsecResult, dsec_rows
    from dmq_fast.kernels._philox import Stream
    from dmq_fast.kernels._ridge import Ridge
    from dmq_fast.kernels._ridge_fit import RidgeFit, ridge_fit
    from dmq_fast.kernels._rollout import CompiledModel
    from dmq_fast.kernels._rules import Fixed, Greedy, Interpreted, Rule, Uniform
except ModuleNotFoundError as _missing:
    if not (_missing.name or "").startswith("dmq_fast.kernels"):
        raise
    raise ImportError(
        f"dmq_fast is not compiled in {__path__[0]}: start Python outside the checkout to use the installed package, "
        "or make the checkout importable with an editable install (README, Develop)"
    ) from _missing

__all__ = [
    "CompiledModel",
    "DsecResult",
    "EnvironmentHandle",
    "FiniteModel",
    "Fixed",
    "Greedy",
    "Interpreted",
    "Ridge",
    "RidgeFit",
    "Rule",
    "SecondMoment",
    "ShiftScan",
    "Stream",
    "Uniform",
    "alias_tables",
    "dsec",
    "dsec_decision",
    "dsec_rows",
    "dsec_value",
    "greedy_actions",
    "ridge_fit",
]
