"""Difference Maximization Q-learning with the DSEC oracle (Du, Luo, Wang, Zhang 2019).

    import dmq_fast as dmq
    env = dmq.environments.combination_lock(horizon=100, n_actions=4, rng=0)
    result = dmq.DMQ(env, n_samples=20, rng=1).learn()

Names load on first use, so that the command line can set the number of BLAS threads before NumPy loads.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dmq_fast import baselines, environments, experiments, features, kernels, samplers, theory
    from dmq_fast._support.files import FileError
    from dmq_fast._version import __version__
    from dmq_fast.function_class import FiniteClass, LinearClass
    from dmq_fast.kernels import Stream
    from dmq_fast.learner import DMQ, Progress
    from dmq_fast.moments import Moments
    from dmq_fast.policy import Policy
    from dmq_fast.run.journal import JournalError
    from dmq_fast.run.result import Result, load
    from dmq_fast.theory import certificate, certificate_table, misspecification

__all__ = [
    "DMQ",
    "FileError",
    "FiniteClass",
    "JournalError",
    "LinearClass",
    "Moments",
    "Policy",
    "Progress",
    "Result",
    "Stream",
    "__version__",
    "baselines",
    "certificate",
    "certificate_table",
    "environments",
    "experiments",
    "features",
    "kernels",
    "load",
    "misspecification",
    "samplers",
    "theory",
]

# The module of each name that is not itself a module of this package.
_HOMES = {
    "DMQ": "learner",
    "FileError": "_support.files",
    "FiniteClass": "function_class",
    "JournalError": "run.journal",
    "LinearClass": "function_class",
    "Moments": "moments",
    "Policy": "policy",
    "Progress": "learner",
    "Result": "run.result",
    "Stream": "kernels",
    "__version__": "_version",
    "load": "run.result",
}

# Modules of `theory` that are names of this package too.
_MODULES = {name: f"theory.{name}" for name in ("certificate", "certificate_table", "misspecification")}


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module 'dmq_fast' has no attribute {name!r}")
    module = import_module(f"dmq_fast.{_HOMES.get(name) or _MODULES.get(name, name)}")
    value = getattr(module, name) if name in _HOMES else module
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
