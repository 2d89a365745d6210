"""Samplers and environments that fail in a worker; importable, so that they can be sent to one."""

import functools
import os
import signal
import threading

from dmq_fast import Policy, Stream
from dmq_fast.environments.block import lock_bernoulli
from dmq_fast.samplers import RolloutSampler


class Awkward(Exception):
    """Cannot be rebuilt from its pickle."""

    def __init__(self, one, two):
        super().__init__(f"{one} and {two}")


class Fragile(RolloutSampler):
    """`failure` at one chunk: "die" takes the process down, "die once" only while `marker` does not exist.

    "be killed once" is a death in the middle of compiled code.
    """

    def __init__(self, env, failure=None, chunk=3, marker=None):
        super().__init__(env)
        self.failure, self.chunk, self.marker = failure, chunk, marker

    def collect_chunk(self, policy, n, *, rng, levels, returns_from=()):
        if rng.chunk == self.chunk:
            self.fail()
        return super().collect_chunk(policy, n, rng=rng, levels=levels, returns_from=returns_from)

    def fail(self):
        if self.failure == "raise":
            raise ZeroDivisionError("of the user's making")
        if self.failure == "raise awkwardly":
            raise Awkward(1, 2)
        if self.failure == "die":
            os._exit(9)
        if self.failure == "die once" and not os.path.exists(self.marker):
            with open(self.marker, "x"):
                os._exit(9)
        if self.failure == "be killed once" and not os.path.exists(self.marker):
            with open(self.marker, "x"):
                threading.Timer(0.05, os.kill, (os.getpid(), signal.SIGKILL)).start()
            super().collect_chunk(Policy.uniform(self.horizon), 2**50, rng=Stream(0), levels=(self.horizon - 1,))

    def __reduce__(self):
        return (Fragile, (self.env, self.failure, self.chunk, self.marker))


class Counting(RolloutSampler):
    """Counts its chunks, and how often a pickle of it was opened in this process."""

    opened = 0

    def __init__(self, env, delay=0.0):
        super().__init__(env)
        type(self).opened += 1
        self.drawn = 0
        self.delay = delay
        self.lock = threading.Lock()

    def collect_chunk(self, policy, n, *, rng, levels, returns_from=()):
        with self.lock:
            self.drawn += 1
        threading.Event().wait(self.delay)
        moments = super().collect_chunk(policy, n, rng=rng, levels=levels, returns_from=returns_from)
        moments.grams[0, 0, 0] = type(self).opened
        return moments

    def __reduce__(self):
        return (Counting, (self.env,))


def coins():
    """A compiled environment that travels by its own factory."""
    return lock_bernoulli(6, 0.1, observation="coins", rng=0)


def made_at_home(home, problem):
    """Factory that only the process `home` can use."""
    if os.getpid() == home:
        return homely(problem)
    raise LookupError(problem)


def homely(problem):
    """A compiled environment whose factory raises anywhere but here."""
    env = coins()
    env._factory = functools.partial(made_at_home, os.getpid(), problem)
    return env
