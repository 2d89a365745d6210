"""Difference Maximization Q-learning with the DSEC oracle (Du, Luo, Wang, Zhang 2019).

The names of this package load on first use, so that the command line can set the number of BLAS threads before NumPy
loads.

Examples
--------
>>> import dmq_fast as dmq
>>> env = dmq.environments.combination_lock(horizon=100, n_actions=4, rng=0)
>>> result = dmq.learn(env, epsilon=0.05, delta=0.05, rng=1)
>>> result.status, env.value(result.policy) == env.optimal_value
('finished', True)
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dmq_fast import baselines, environments, experiments, features, kernels, samplers, theory
    from dmq_fast._support.files import FileError
    from dmq_fast._version import __version__
    from dmq_fast.covers.options import VARIANTS, Options
    from dmq_fast.engine.journal import JournalError
    from dmq_fast.engine.session import Progress
    from dmq_fast.function_class import FiniteClass, LinearClass
    from dmq_fast.kernels import Stream
    from dmq_fast.learners import DMQ, SelfStopping, learn
    from dmq_fast.moments import Moments
    from dmq_fast.policy import Policy
    from dmq_fast.results.comparison import compare
    from dmq_fast.results.result import BaselineResult, DMQResult, Result, SelfStoppingResult, load
    from dmq_fast.stopping.tuning import Tuning
    from dmq_fast.table_policy import TablePolicy
    from dmq_fast.theory import certificate_table, measures
    from dmq_fast.theory.certificate import certificate
    from dmq_fast.trajectories import Trajectories

__all__ = [
    "DMQ",
    "VARIANTS",
    "BaselineResult",
    "DMQResult",
    "FileError",
    "FiniteClass",
    "JournalError",
    "LinearClass",
    "Moments",
    "Options",
    "Policy",
    "Progress",
    "Result",
    "SelfStopping",
    "SelfStoppingResult",
    "Stream",
    "TablePolicy",
    "Trajectories",
    "Tuning",
    "__version__",
    "baselines",
    "certificate",
    "certificate_table",
    "compare",
    "environments",
    "experiments",
    "features",
    "kernels",
    "learn",
    "load",
    "measures",
    "samplers",
    "theory",
]

# Where each name of `__all__` is found: in a module, or as "module:attribute". tests/test_names.py compares the three
# lists of names of this file, of which type checkers need the first two as they stand.
_HOMES = {
    "BaselineResult": "results.result:BaselineResult",
    "DMQ": "learners:DMQ",
    "DMQResult": "results.result:DMQResult",
    "FileError": "_support.files:FileError",
    "FiniteClass": "function_class:FiniteClass",
    "JournalError": "engine.journal:JournalError",
    "LinearClass": "function_class:LinearClass",
    "Moments": "moments:Moments",
    "Options": "covers.options:Options",
    "Policy": "policy:Policy",
    "Progress": "engine.session:Progress",
    "Result": "results.result:Result",
    "SelfStopping": "learners:SelfStopping",
    "SelfStoppingResult": "results.result:SelfStoppingResult",
    "Stream": "kernels:Stream",
    "TablePolicy": "table_policy:TablePolicy",
    "Trajectories": "trajectories:Trajectories",
    "Tuning": "stopping.tuning:Tuning",
    "VARIANTS": "covers.options:VARIANTS",
    "__version__": "_version:__version__",
    "baselines": "baselines",
    "certificate": "theory.certificate:certificate",
    "certificate_table": "theory.certificate_table",
    "compare": "results.comparison:compare",
    "environments": "environments",
    "experiments": "experiments",
    "features": "features",
    "kernels": "kernels",
    "learn": "learners:learn",
    "load": "results.result:load",
    "measures": "theory.measures",
    "samplers": "samplers",
    "theory": "theory",
}


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module 'dmq_fast' has no attribute {name!r}")
    module, _, attribute = _HOMES[name].partition(":")
    value: object = import_module(f"dmq_fast.{module}")
    if attribute:
        value = getattr(value, attribute)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
