"""Who answers `collect`: the one primitive Algorithms 2 and 3 are built on."""

from dmq_fast.samplers.protocol import Sampler, as_sampler
from dmq_fast.samplers.rollout import RolloutSampler

__all__ = ["RolloutSampler", "Sampler", "as_sampler"]
