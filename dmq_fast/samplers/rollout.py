"""`RolloutSampler`: trajectories simulated in compiled code."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dmq_fast._support.arrays import once_each
from dmq_fast._support.checks import count
from dmq_fast.environments.compiled import CompiledEnv
from dmq_fast.environments.finite import FiniteMDP
from dmq_fast.kernels import (
    CompiledModel,
    FiniteModel,
    Rule,
    Stream,
    is_sparse,
)
from dmq_fast.moments import Moments, Returns, fits_rows
from dmq_fast.policy import Policy, rules_of
from dmq_fast.rewards import ValueRange
from dmq_fast.samplers._finite import actions_everywhere, most_nonzeros
from dmq_fast.samplers.base import Estimate, Sampler, estimate
from dmq_fast.samplers.streams import check_stream
from dmq_fast.trajectories import Trajectories

if TYPE_CHECKING:
    from dmq_fast._support.arrays import Sparse

__all__ = ["RolloutSampler"]

# Largest number of trajectories in one chunk. Part of the format: it decides which uniforms a trajectory gets.
CHUNK = 16_384

# Approximate number of floats computed in one chunk of a compiled environment, which takes a fraction of a second.
WORK = 2**24


class RolloutSampler(Sampler):
    """Simulates trajectories one by one, in compiled code that does not hold the GIL.

    Parameters
    ----------
    env : FiniteMDP or CompiledEnv
    value_range, noise
        Instead of those that the environment declares; see `RewardModel`.

    Raises
    ------
    TypeError
        If `env` is neither.

    Attributes
    ----------
    env : FiniteMDP or CompiledEnv
    chunk_size : int
        Largest number of trajectories in one chunk: 16,384, or fewer where those of a compiled environment are long or
        wide.

    Notes
    -----
    Memory does not depend on the number of trajectories. Ctrl-C is answered within chunks, after some ten milliseconds
    of computing, or one level of 256 trajectories of a compiled environment where that takes longer.

    Examples
    --------
    >>> import dmq_fast as dmq
    >>> env = dmq.environments.combination_lock(horizon=3, rng=0)
    >>> sampler = RolloutSampler(env)
    >>> moments = sampler.collect(dmq.Policy.uniform(3), 1000, stream=dmq.Stream(0), levels=[2], returns_from=[0])
    >>> moments.second_moment(2)  # the share of trajectories in each of the two states
    array([[0.053, 0.   ],
           [0.   , 0.947]])
    >>> moments.returns[0].n
    1000
    """

    env: FiniteMDP | CompiledEnv
    chunk_size: int

    def __init__(
        self, env: FiniteMDP | CompiledEnv, value_range: ValueRange = None, noise: float | None = None
    ) -> None:
        if not isinstance(env, FiniteMDP | CompiledEnv):
            raise TypeError(f"env: expected a FiniteMDP or a CompiledEnv, got {type(env).__name__}")
        self.env, self.value_range, self.noise = env, value_range, noise
        self.horizon = env.horizon
        self.n_actions = env.n_actions
        self.dimension = env.dimension
        self._model: FiniteModel | CompiledModel
        if isinstance(env, FiniteMDP):
            self._model = FiniteModel(env.P, env.R, env.features, env.start, env.caps)
            self.chunk_size = CHUNK
            # Rows of a level are those of its states, so there are never more.
            self._most_rows = max(env.n_states)
            self._nonzeros = max(once_each(most_nonzeros, env.features))
        else:
            self._model = CompiledModel(env.handle, env.features, self.rewards)
            self.chunk_size = self._most_rows = chunk_size(env)
            self._nonzeros = getattr(env.features, "nonzeros", 0) or env.dimension

    def collect_chunk(
        self, policy: Policy, n: int, *, rng: Stream, levels: Sequence[int], returns_from: Sequence[int] = ()
    ) -> Moments:
        """Roll out one chunk; see `Sampler.collect_chunk`."""
        n = count("n", n, 0)
        check_stream("rng", rng)
        in_rows = fits_rows(min(n, self._most_rows), self._nonzeros, self.dimension)
        sums, moments, squares = self._model.rollout(rules_of(policy), n, rng, levels, returns_from, in_rows)
        returns = {h: Returns(moments[i], squares[i], n) for i, h in enumerate(returns_from)} if len(moments) else {}
        return Moments(n, levels, sums, returns)

    def trajectories_chunk(self, policy: Policy, n: int, *, rng: Stream) -> Trajectories:
        """Roll out one chunk and show it; see `Sampler.trajectories_chunk`."""
        n, rules = count("n", n, 0), rules_of(policy)
        check_stream("rng", rng)
        seen, actions, rewards = self._model.trajectories(rules, n, rng)
        if isinstance(self.env, FiniteMDP):  # then `seen` are states
            return Trajectories(shown(self.env.features, seen.astype(np.int32, copy=False)), actions, rewards)
        return Trajectories(seen.astype(np.float64, copy=False), actions, rewards)

    def evaluate(self, policy: Policy, n: int, *, stream: Stream) -> Estimate:
        """Estimate the value of `policy` from n >= 1 trajectories of the call that `stream` stands for."""
        rules, sizes = rules_of(policy), enumerate(self.chunks(count("n", n, 1)))
        check_stream("stream", stream)
        return estimate(self._model.returns(rules, size, stream.at(stream.call, chunk)) for chunk, size in sizes)

    def actions(self, level: int, rule: Rule) -> NDArray[np.int64] | None:
        """Return the action of a rule in each state of a level of a FiniteMDP; see `Sampler.actions`.

        None where the rule is uniform, a score overflows, or the environment is no FiniteMDP.
        """
        return actions_everywhere(self.env, level, rule) if isinstance(self.env, FiniteMDP) else None

    def declaring(self, value_range: ValueRange, noise: float | None) -> RolloutSampler:
        """Return the same sampler with this range and noise; see `Sampler.declaring`."""
        given = self.value_range if value_range is None else value_range
        return RolloutSampler(self.env, given, self.noise if noise is None else noise)

    def __reduce__(self) -> tuple[Any, ...]:
        return (RolloutSampler, (self.env, self.value_range, self.noise))


def shown(features: Sequence[NDArray[np.float64] | Sparse], states: NDArray[np.int32]) -> Any:
    """Return the features of states (n, H), given those of all states by level: (n, H, d), or H sparse (n, d)."""
    chosen: list[Any] = [rows[visited] for rows, visited in zip(features, states.T, strict=True)]
    if not any(map(is_sparse, chosen)):
        return np.stack(chosen, axis=1)
    from scipy.sparse import csr_array

    return tuple(rows if is_sparse(rows) else csr_array(rows) for rows in chosen)


def chunk_size(env: CompiledEnv) -> int:
    """Return the largest power of two that keeps a chunk below `WORK`, within 256 and `CHUNK`."""
    handle = env.handle
    uniforms = max(handle.reset_uniforms, *handle.feature_uniforms, *handle.step_uniforms)
    affordable = WORK // (env.horizon * (env.dimension + handle.dimension + uniforms))
    return min(CHUNK, max(256, 1 << max(affordable.bit_length() - 1, 0)))
