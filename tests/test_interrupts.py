"""Ctrl-C: every computation stops soon, and nothing learned is lost."""

import ctypes
import os
import shlex
import signal
import subprocess
import sysconfig
import threading
import time

import numpy as np
import pytest
from flat import flat

import dmq_fast as dmq
from dmq_fast.environments import CompiledEnv, GymnasiumBatch, combination_lock
from dmq_fast.environments.block import block_mdp, diabolical_lock
from dmq_fast.samplers import BatchSampler, RolloutSampler
from dmq_fast.samplers.parallel import ParallelSampler, pool_of

# CPU seconds. An answer takes some ten milliseconds, the time for 2^22 numbers, and is to take .2 s at most; where the
# caches are shared with other work everything takes up to five times as long. Each rollout below would take minutes.
SOON = 1.0

# src_pyx/sim: numbers computed between two checks for signals, and trajectories of a block.
UNCHECKED, BLOCK = 2**22, 256


def interrupted(run, ready=lambda: True, delay=0.15):
    """Run until Ctrl-C; return CPU seconds of the process from the signal to KeyboardInterrupt."""
    sent = []

    def send():
        while not ready():
            time.sleep(0.002)
        time.sleep(delay)
        sent.append(time.process_time())
        os.kill(os.getpid(), signal.SIGINT)

    sender = threading.Thread(target=send, daemon=True)
    sender.start()
    with pytest.raises(KeyboardInterrupt):
        run()
    answered = time.process_time()
    sender.join()
    return answered - sent[0]


def one_chunk(env):
    """Sampler that draws all it is asked for in one chunk."""
    sampler = RolloutSampler(env)
    sampler.chunk_size = 2**40
    return sampler


def greedy(env):
    shape = (env.horizon, env.n_actions, env.dimension)
    return dmq.Policy.greedy(np.random.default_rng(0).normal(size=shape))


LONG = {
    "noisy diabolical lock": lambda: diabolical_lock(100, observation="noisy", rng=0),
    "wide": lambda: block_mdp(combination_lock(10, rng=0), dimension=1500, rng=0),
    "narrow": lambda: block_mdp(combination_lock(20, rng=0)),
    "mapped": lambda: block_mdp(combination_lock(20, rng=0), dimension=64, rng=0).with_features(
        dmq.features.RandomFourier(64, 512, rng=0)
    ),
    "finite": lambda: combination_lock(2000, rng=0),
}


@pytest.mark.parametrize("name", LONG)
def test_a_chunk_is_left_in_the_middle(name):
    env = LONG[name]()
    sampler, policy, stream = one_chunk(env), greedy(env), dmq.Stream(0)
    levels, returns_from = range(0, env.horizon, 1 + env.horizon // 100), range(min(1, env.horizon - 1))
    collect = sampler.collect
    assert interrupted(lambda: collect(policy, 10**9, stream=stream, levels=levels, returns_from=returns_from)) < SOON
    # It is as good as new.
    assert collect(policy, 10, stream=stream, levels=(0,)).n == 10


@pytest.mark.parametrize("name", ["narrow", "finite"])
def test_values_are_interrupted_too(name):
    env = LONG[name]()
    policy = dmq.Policy.uniform(env.horizon)
    assert interrupted(lambda: one_chunk(env).evaluate(policy, 10**8, stream=dmq.Stream(0))) < SOON


@pytest.mark.parametrize("restarts", [False, True])  # True: a library has system calls go on after the signal
@pytest.mark.parametrize("name", ["noisy diabolical lock", "wide", "finite"])
def test_threads_stop_drawing_what_nobody_waits_for(name, restarts):
    """Both workers are within a chunk that would take minutes, and end before `close` does."""
    env = LONG[name]()
    signal.siginterrupt(signal.SIGINT, not restarts)
    inner, policy = RolloutSampler(env), greedy(env)
    inner.chunk_size = 10**7
    before = threading.active_count()

    def collect():
        with ParallelSampler(inner, pool_of(inner, 2)) as sampler:
            sampler.collect(policy, 10**9, stream=dmq.Stream(0), levels=(0, 5), returns_from=(0,))

    try:
        assert interrupted(collect) < 2 * SOON
    finally:
        signal.siginterrupt(signal.SIGINT, True)
    assert threading.active_count() == before


@pytest.mark.parametrize("workers", [None, 2])
def test_an_interrupted_run_resumes_from_its_journal(tmp_path, workers):
    env = diabolical_lock(12, 4, observation="noisy", rng=0)
    undisturbed = dmq.DMQ(env, n_samples=2000, rng=0).learn()
    reached = []
    sampler = RolloutSampler(env)
    settings = {"n_samples": 2000, "rng": 0, "workers": workers, "journal": tmp_path / "journal"}
    algorithm = flat(sampler, progress=reached.append, **settings)
    seconds = interrupted(algorithm.learn, ready=lambda: len(reached) >= 4, delay=0.0)
    assert seconds < (workers or 1) * SOON
    assert algorithm.result().status == "interrupted"
    assert 0 < algorithm.result().n_trajectories < undisturbed.n_trajectories
    result = flat(env, **settings).learn()
    assert result.status == "ended"
    assert result.theta.tobytes() == undisturbed.theta.tobytes()
    assert result.history == undisturbed.history
    assert result.n_trajectories == undisturbed.n_trajectories


def test_gymnasium_is_interrupted_while_it_steps():
    gymnasium = pytest.importorskip("gymnasium")
    env = GymnasiumBatch(lambda: gymnasium.make("FrozenLake-v1"), horizon=20, copies=64)
    sampler, policy = BatchSampler(env), dmq.Policy.uniform(20)
    arguments = {"stream": dmq.Stream(0), "levels": range(20), "returns_from": (0,)}
    expected = sampler.collect(policy, 200, **arguments)
    assert interrupted(lambda: sampler.collect(policy, 10**9, **arguments)) < SOON
    again = sampler.collect(policy, 200, **arguments)
    assert again.grams.tobytes() == expected.grams.tobytes()


# The same without a clock: an environment that presses Ctrl-C itself, and counts what is asked of it afterwards.

PRESSING = r"""
#include <signal.h>
#include <stdint.h>
#include <string.h>

struct context { int64_t left, after, d; };

int pressing_reset(const void *context, int64_t n, const double *u, void *states)
{
    memset(states, 0, 8 * n);
    return 0;
}

int pressing_features(const void *given, int64_t level, int64_t n, const void *states, const double *u, double *phi)
{
    const struct context *context = given;
    memset(phi, 0, n * context->d * sizeof(double));
    return 0;
}

int pressing_step(
    const void *given, int64_t level, int64_t n, void *states, const int64_t *actions, const double *u,
    double *rewards)
{
    struct context *context = (struct context *) given;
    memset(rewards, 0, n * sizeof(double));
    if (context->left-- == 0)
        raise(SIGINT);
    context->after += context->left < 0;
    return 0;
}
"""


@pytest.fixture(scope="module")
def pressing(tmp_path_factory):
    folder = tmp_path_factory.mktemp("pressing")
    (folder / "pressing.c").write_text(PRESSING)
    compiler = shlex.split(sysconfig.get_config_var("CC") or "cc")
    subprocess.run(
        [*compiler, "-O1", "-shared", "-fPIC", str(folder / "pressing.c"), "-o", str(folder / "pressing.so")],
        check=True,
        capture_output=True,
    )
    return ctypes.CDLL(str(folder / "pressing.so"))


@pytest.mark.parametrize(("dimension", "counted"), [(1, False), (1, True), (64, False), (64, True), (1024, True)])
def test_so_many_numbers_are_computed_after_ctrl_c(pressing, dimension, counted):
    """Numbers by trajectory and level: d features, uniforms (1 at least), 8 more, and d^2 / 32 for the moment."""
    context = np.array([100, 0, dimension])
    env = CompiledEnv.from_functions(
        horizon=10,
        n_actions=2,
        dimension=dimension,
        state_bytes=8,
        context=context,
        **{name: getattr(pressing, f"pressing_{name}") for name in ("reset", "features", "step")},
    )
    levels = range(10) if counted else (9,)
    with pytest.raises(KeyboardInterrupt):
        one_chunk(env).collect(dmq.Policy.fixed([0] * 10), 10**9, stream=dmq.Stream(0), levels=levels)
    a_level = BLOCK * (dimension + 1 + 8 + (dimension**2 // 32 if counted else 0))
    assert 1 <= context[1] <= UNCHECKED // a_level + 2
