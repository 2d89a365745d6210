"""Environments: finite MDPs with known solutions, and the benchmarks of the field."""

from dmq_fast.environments.block import block_mdp, diabolical_lock, lock_bernoulli, lock_gaussian, noisy_deep_sea
from dmq_fast.environments.checking import CheckError, CheckReport, check
from dmq_fast.environments.classic import chain, deep_sea, river_swim
from dmq_fast.environments.compiled import CompiledEnv
from dmq_fast.environments.control import cart_pole, mountain_car
from dmq_fast.environments.dm import from_dm_env
from dmq_fast.environments.finite import FiniteMDP
from dmq_fast.environments.gym.batch import GymnasiumBatch
from dmq_fast.environments.gym.tables import from_gymnasium
from dmq_fast.environments.linear_mdp import linear_mdp
from dmq_fast.environments.linear_q import linear_q
from dmq_fast.environments.locks import combination_lock, decoy_lock
from dmq_fast.environments.mirage import mirage_lock
from dmq_fast.environments.noisy import NoisyMDP, affine, with_noise
from dmq_fast.environments.plain import from_object
from dmq_fast.environments.registry import REGISTRY, describe, make, register
from dmq_fast.environments.sources import as_environment

__all__ = [
    "REGISTRY",
    "CheckError",
    "CheckReport",
    "CompiledEnv",
    "FiniteMDP",
    "GymnasiumBatch",
    "NoisyMDP",
    "affine",
    "as_environment",
    "block_mdp",
    "cart_pole",
    "chain",
    "check",
    "combination_lock",
    "decoy_lock",
    "deep_sea",
    "describe",
    "diabolical_lock",
    "from_dm_env",
    "from_gymnasium",
    "from_object",
    "linear_mdp",
    "linear_q",
    "lock_bernoulli",
    "lock_gaussian",
    "make",
    "mirage_lock",
    "mountain_car",
    "noisy_deep_sea",
    "register",
    "river_swim",
    "with_noise",
]
