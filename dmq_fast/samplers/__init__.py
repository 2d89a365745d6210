"""Sources of trajectories: all have `Sampler.collect`, the one primitive that Algorithms 2 and 3 are built on."""

from dmq_fast.samplers.base import Drawing, EqualChunks, Estimate, Sampler, check_shown, collect_chunks, estimate_value
from dmq_fast.samplers.batch import BatchEnvironment, BatchSampler
from dmq_fast.samplers.choose import as_sampler
from dmq_fast.samplers.exact import ExactSampler
from dmq_fast.samplers.flow import FlowSampler
from dmq_fast.samplers.parallel import ParallelSampler, WorkerError
from dmq_fast.samplers.rollout import RolloutSampler

__all__ = [
    "BatchEnvironment",
    "BatchSampler",
    "Drawing",
    "EqualChunks",
    "Estimate",
    "ExactSampler",
    "FlowSampler",
    "ParallelSampler",
    "RolloutSampler",
    "Sampler",
    "WorkerError",
    "as_sampler",
    "check_shown",
    "collect_chunks",
    "estimate_value",
]
