"""Algorithms that fail, die or take their time; importable, so that sweeps find them as obstinate:NAME."""

import asyncio
import multiprocessing
import os
import signal
import time
from pathlib import Path

import numpy as np
from line import Thin

from dmq_fast import LinearClass, Policy
from dmq_fast._support.workers import ending
from dmq_fast.environments import chain
from dmq_fast.experiments import Outcome, algorithms
from dmq_fast.experiments.sweeps.spec import seeds_of
from dmq_fast.samplers import RolloutSampler


def blas_threads():
    """The settings that this process was started with."""
    try:
        began = Path("/proc/self/environ").read_bytes().decode().split("\0")
    except FileNotFoundError:
        began = [f"{name}={value}" for name, value in os.environ.items()]
    return sorted(entry for entry in began if "_THREADS=" in entry)


def forever():
    """Sleep without end."""
    while True:
        time.sleep(1.0)


def nap(directory):
    """Leave the id of this process in `directory`, sleep for half a second, and return the id."""
    Path(directory, f"{os.getpid()}").touch()
    time.sleep(0.5)
    return os.getpid()


def deaf():
    """Sleep without end, and ignore the signal that ends a worker at its limit."""
    signal.signal(signal.SIGVTALRM, signal.SIG_IGN)
    forever()


def limited(work, seconds, name):
    """Do the work in a worker process that ends after these seconds."""
    with ending(seconds, name):
        return work()


class Obstinate:
    def __init__(self, env, learn):
        self.env, self.act = env, learn

    def learn(self, budget):
        return self.act(self.env, budget)


def seed_of(algorithm_seed):
    """The run's seed."""
    return next(seed for seed in range(100) if seeds_of(seed)[1] == algorithm_seed)


def uniform(env, **more):
    return Outcome("finished", 7, policy=Policy.uniform(env.horizon), **more)


def failing(env, seed, *, kind, seeds, marker=""):
    """Runs of these `seeds` fail in the way of `kind`, unless the file `marker` exists."""

    def learn(env, budget):
        if seed_of(seed) in seeds and not os.path.exists(marker):
            fail(kind)
        return uniform(env)

    return Obstinate(env, learn)


def fail(kind):
    if kind == "raise":
        raise ZeroDivisionError("of the user's making")
    if kind == "note":
        error = ZeroDivisionError("of the user's making")
        error.add_note("at level 3")
        raise error
    if kind == "surrogate":
        raise FileNotFoundError("no \udcff")
    if kind == "exit":
        raise SystemExit(3)
    if kind == "cancel":
        raise asyncio.CancelledError
    if kind == "die":
        os._exit(9)
    if kind == "kill":
        os.kill(os.getpid(), signal.SIGKILL)


def odd(env, seed, *, answer):
    """Returns something that cannot be stored."""
    answers = {
        "nothing": lambda: None,
        "no count": lambda: type("Result", (), {"status": "finished"})(),
        "object": lambda: uniform(env, details={"what": object()}),
        "status": lambda: Outcome("crashed", 1),
        "nan": lambda: Outcome("finished", 1, value=float("nan")),
        "infinity": lambda: Outcome("finished", 1, value=float("inf")),
        "negative": lambda: Outcome("finished", -1),
        "endless": lambda: Outcome("finished", 10**400),
    }
    return Obstinate(env, lambda env, budget: answers[answer]())


class Episodes:
    """What another library's result may look like."""

    def __init__(self, seed):
        self.status, self.episodes, self.value = "max_trajectories", np.int64(3), np.float64(0.25)
        self.counts = {"rows": np.arange(2)}


def counting(env, seed, *, n):
    """Tells of any number of trajectories."""
    return Obstinate(env, lambda env, budget: Outcome("st\udcff", 10**n, counts={"trajectories": {"check": 10**n}}))


def kill_me(number):
    """End this process by a signal."""
    os.kill(os.getpid(), number)
    time.sleep(600.0)


def killed_once(number, marker):
    """End this process by a signal, unless the file `marker` exists."""
    if not os.path.exists(marker):
        Path(marker).touch()
        kill_me(number)
    return "done"


def die_with_child(path):
    """Leave a forked child behind, whose id stands in the file `path`."""
    child = multiprocessing.get_context("fork").Process(target=time.sleep, args=(600,))
    child.start()
    Path(path).write_text(str(child.pid))
    os._exit(7)


def ended_child():
    """The exit code of a forked child that was sent SIGTERM."""
    child = multiprocessing.get_context("fork").Process(target=time.sleep, args=(600,), daemon=True)
    child.start()
    child.terminate()
    child.join()
    return child.exitcode


class Homely:
    """A factory that is unpickled only in the process that it comes from."""

    def __reduce__(self):
        return at_home, (os.getpid(),)

    def __call__(self, env, seed):
        return Obstinate(env, lambda env, budget: uniform(env))


def at_home(home):
    if os.getpid() != home:
        raise ImportError("not at home")
    return Homely()


def linear():
    return LinearClass()


def leaving(env, seed):
    """Ends the program where it is made."""
    raise SystemExit(5)


def foreign(env, seed):
    return Obstinate(env, lambda env, budget: Episodes(seed))


def surroundings(env, seed):
    """Tells which process it ran in, and what was in its environment when it began."""

    def learn(env, budget):
        print("a line that is not the sweep's", flush=True)
        return uniform(env, details={"pid": os.getpid(), "environ": blas_threads()})

    return Obstinate(env, learn)


def sleepy(env, seed, *, directory, seconds=600.0):
    """Leaves its process id in `directory` and sleeps, for some seconds or for none."""

    def learn(env, budget):
        if seconds:
            Path(directory, f"{os.getpid()}").touch()
        time.sleep(seconds)
        return uniform(env)

    return Obstinate(env, learn)


def slow_dmq(env, seed, *, directory, seconds=0.02, n_samples=20):
    """DMQ with a pause; notes in `directory` that a run was begun."""
    algorithm = algorithms.REGISTRY["dmq"](env, seed, n_samples=n_samples)

    def learn(env, budget):
        Path(directory, f"{os.getpid()} {time.monotonic_ns()}").touch()
        time.sleep(seconds)
        return algorithm.learn(budget)

    return Obstinate(env, learn)


def without_tables(horizon, rng):
    """An environment whose values have to be estimated."""

    return Thin(RolloutSampler(chain(horizon, rng=rng))).declaring((0, 1), None)


def unlucky(horizon, rng):
    """An environment that some seeds do not give."""
    if rng == seeds_of(0)[0]:
        raise LookupError("no such luck")
    return chain(horizon, rng=rng)


def endless(env, seed, *, kind, seeds=()):
    """Runs of these `seeds` go on for ever: asleep, in Python, or in compiled code that keeps the GIL."""

    def learn(env, budget):
        if seed_of(seed) in seeds:
            block(kind)
        return uniform(env)

    return Obstinate(env, learn)


def block(kind):
    if kind in ("sleep", "brief"):
        time.sleep(600.0 if kind == "sleep" else 2.0)
    while kind == "python":
        try:
            time.sleep(0.01)
        except BaseException:  # nothing that is raised here ends it
            continue
    if kind == "compiled":
        sum(range(10**15))
