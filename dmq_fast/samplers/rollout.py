"""Simulated trajectories."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from dmq_fast.environments.finite import FiniteMDP
from dmq_fast.kernels import FiniteModel, Rule, Stream
from dmq_fast.moments import Moments, Returns
from dmq_fast.policy import Policy
from dmq_fast.samplers._finite import actions_everywhere
from dmq_fast.samplers.protocol import EqualChunks, collect_chunks

__all__ = ["RolloutSampler"]

# Trajectories of one stream. Part of the format: it decides which uniforms a trajectory gets.
CHUNK = 16_384


class RolloutSampler:
    """Simulates trajectories of a finite MDP, one by one, in compiled code.

    Parameters
    ----------
    env : FiniteMDP

    Notes
    -----
    Memory does not depend on the number of trajectories. Control returns to Python after each chunk of 16,384,
    so Ctrl-C is answered between chunks.
    """

    def __init__(self, env: FiniteMDP) -> None:
        self.env = env
        self.horizon = env.horizon
        self.n_actions = env.n_actions
        self.dimension = env.dimension
        self._model = FiniteModel(env.P, env.R, env.features, env.start, env.caps)

    def chunks(self, n: int) -> Sequence[int]:
        """Return the sizes of the pieces of n trajectories: 16,384 each, then the rest."""
        return EqualChunks(n, CHUNK)

    def collect_chunk(
        self, policy: Policy, n: int, *, rng: Stream, levels: Sequence[int], returns_from: Sequence[int] = ()
    ) -> Moments:
        """Roll out one piece; see `Sampler.collect_chunk`."""
        grams, moments, squares = self._model.rollout(policy.rules, n, rng, levels, returns_from)
        returns = {
            h: Returns(moment, square, n) for h, moment, square in zip(returns_from, moments, squares, strict=True)
        }
        return Moments(n, levels, grams, returns)

    def collect(
        self,
        policy: Policy,
        n: int,
        *,
        stream: Stream,
        levels: Sequence[int],
        returns_from: Sequence[int] = (),
    ) -> Moments:
        """Roll out n trajectories; see `Sampler.collect`."""
        if n <= CHUNK:
            # The usual case, thousands of times a run.
            start = stream.at(stream.call)
            return self.collect_chunk(policy, n, rng=start, levels=levels, returns_from=returns_from)
        return collect_chunks(self, policy, n, stream, levels, returns_from)

    def actions(self, level: int, rule: Rule) -> NDArray[np.int64] | None:
        """Return what a rule does in each state of a level: two policies that do the same are one.

        None where the rule is uniform or a score overflows.
        """
        return actions_everywhere(self.env, level, rule)

    def __reduce__(self) -> tuple[type[RolloutSampler], tuple[FiniteMDP]]:
        return (RolloutSampler, (self.env,))
