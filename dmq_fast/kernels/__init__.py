"""The door to compiled code: what the rest of the package, and users, import from here.

The modules behind it are private. Other projects can cimport from them; the declarations are in the ``.pxd`` files
beside this one, and the sources in ``src_pyx``, a folder a topic: ``base``, ``linalg``, ``sim``, ``env``, ``learn``.
"""

try:
    from dmq_fast.kernels._arms import RidgeArms
    from dmq_fast.kernels._block import BlockModel
    from dmq_fast.kernels._control import CartPole, MountainCar
    from dmq_fast.kernels._dsec import ShiftScan, dsec, dsec_decision, dsec_value
    from dmq_fast.kernels._dsec_numpy import DsecResult, dsec_rows
    from dmq_fast.kernels._env import ENVIRONMENT_SIZE, EnvironmentHandle, capsule_at
    from dmq_fast.kernels._env import VERSION as ENVIRONMENT_VERSION
    from dmq_fast.kernels._episode import Episode, Learner
    from dmq_fast.kernels._features import (
        RBF,
        FeatureMap,
        Fourier,
        Identity,
        Interpolation,
        Nystrom,
        OneHot,
        RandomFourier,
        TileCoding,
    )
    from dmq_fast.kernels._finite import FiniteModel, alias_tables, transition_edges
    from dmq_fast.kernels._greedy import greedy_actions
    from dmq_fast.kernels._learners import (
        BernsteinLearner,
        DelayedQLearner,
        LinearQLearner,
        PolicyOptimisationLearner,
        SpanLearner,
        UCBQLearner,
    )
    from dmq_fast.kernels._lsvi import LeastSquaresLearner
    from dmq_fast.kernels._moments import SecondMoment
    from dmq_fast.kernels._optimist import OptimisticPlanner
    from dmq_fast.kernels._philox import Stream
    from dmq_fast.kernels._ridge import Ridge, RidgeFit, ridge_fit
    from dmq_fast.kernels._rollout import CompiledModel
    from dmq_fast.kernels._row_oracle import RowOracle, RowScan
    from dmq_fast.kernels._rows import LevelRows
    from dmq_fast.kernels._rules import Fixed, Greedy, Interpreted, Rule, Uniform
    from dmq_fast.kernels._sparse_ridge import SparseRidge
    from dmq_fast.kernels._stop import heeding
    from dmq_fast.kernels._transitions import Transitions
    from dmq_fast.kernels._validate import as_csr, as_floats, as_numbers, as_positive, is_sparse
except ModuleNotFoundError as _missing:
    if not (_missing.name or "").startswith("dmq_fast.kernels"):
        raise
    raise ImportError(
        f"dmq_fast is not compiled in {__path__[0]}: start Python outside the checkout to use the installed package, "
        "or make the checkout importable with an editable install (CONTRIBUTING.md)"
    ) from _missing

__all__ = [
    "ENVIRONMENT_SIZE",
    "ENVIRONMENT_VERSION",
    "RBF",
    "BernsteinLearner",
    "BlockModel",
    "CartPole",
    "CompiledModel",
    "DelayedQLearner",
    "DsecResult",
    "EnvironmentHandle",
    "Episode",
    "FeatureMap",
    "FiniteModel",
    "Fixed",
    "Fourier",
    "Greedy",
    "Identity",
    "Interpolation",
    "Interpreted",
    "Learner",
    "LeastSquaresLearner",
    "LevelRows",
    "LinearQLearner",
    "MountainCar",
    "Nystrom",
    "OneHot",
    "OptimisticPlanner",
    "PolicyOptimisationLearner",
    "RandomFourier",
    "Ridge",
    "RidgeArms",
    "RidgeFit",
    "RowOracle",
    "RowScan",
    "Rule",
    "SecondMoment",
    "ShiftScan",
    "SpanLearner",
    "SparseRidge",
    "Stream",
    "TileCoding",
    "Transitions",
    "UCBQLearner",
    "Uniform",
    "alias_tables",
    "as_csr",
    "as_floats",
    "as_numbers",
    "as_positive",
    "capsule_at",
    "dsec",
    "dsec_decision",
    "dsec_rows",
    "dsec_value",
    "greedy_actions",
    "heeding",
    "is_sparse",
    "ridge_fit",
    "transition_edges",
]
