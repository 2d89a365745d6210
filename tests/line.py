"""An environment and samplers written in Python, in a module that worker processes can import."""

import os
from pathlib import Path

import numpy as np

from dmq_fast.samplers import BatchSampler, Sampler


class Line:
    """Five states on a line: action 1 goes right by chance, and the end pays. It changes the arrays it is given."""

    horizon, n_actions, dimension = 4, 2, 5

    def __init__(self, chance=0.9, pay=1.0, chunk_size=50):
        self.chance, self.pay, self.chunk_size = chance, pay, chunk_size

    def reset(self, n, rng):
        return np.zeros(n, dtype=int)

    def features(self, level, states):
        return np.eye(5)[states]

    def step(self, level, states, actions, rng):
        states = states + actions * (rng.random(len(states)) < self.chance)
        actions[:] = -1
        return states, (states == 4) * self.pay


class Closing(Line):
    """Leaves a file in `directory` when it is closed."""

    def __init__(self, directory):
        super().__init__()
        self.directory = directory

    def close(self):
        Path(self.directory, f"{os.getpid()}").touch()


def closing(directory):
    return Closing(directory)


class Counted(BatchSampler):
    """Counts the trajectories that it shows."""

    shown = 0

    def trajectories_chunk(self, policy, n, *, rng):
        self.shown += n
        return super().trajectories_chunk(policy, n, rng=rng)


class Thin(Sampler):
    """The trajectories of `inner`, with nothing but what a sampler must have."""

    def __init__(self, inner):
        self.inner = inner
        self.horizon, self.n_actions, self.dimension = inner.horizon, inner.n_actions, inner.dimension

    def collect_chunk(self, policy, n, *, rng, levels, returns_from=()):
        return self.inner.collect_chunk(policy, n, rng=rng, levels=levels, returns_from=returns_from)
