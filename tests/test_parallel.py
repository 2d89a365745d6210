"""Chunks on several workers: the same bits, and no death goes unexplained."""

import contextlib
import functools
import itertools
import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time
import traceback
from concurrent.futures import BrokenExecutor, Executor, Future, ProcessPoolExecutor, ThreadPoolExecutor

import numpy as np
import pytest
import walker
from clusters import Processes
from fragile import Counting, Fragile, coins, homely

import dmq_fast as dmq
from dmq_fast._support.cluster import Cluster
from dmq_fast.environments import chain, deep_sea
from dmq_fast.samplers import (
    EqualChunks,
    ParallelSampler,
    RolloutSampler,
    Sampler,
    WorkerError,
    estimate_value,
    parallel,
)

ENV = deep_sea(6, stochastic=True)
POLICY = dmq.Policy.uniform(6)
N = 50_000
MANY = 5 * 16_384 + 7
SPAWN = functools.partial(ProcessPoolExecutor, 2, mp_context=multiprocessing.get_context("spawn"))


def collect(sampler, n=N, policy=POLICY):
    return sampler.collect(policy, n, stream=dmq.Stream(5, call=9), levels=(0, 2, 5), returns_from=(1, 5))


def assert_same(a, b):
    assert (a.n, tuple(a.levels)) == (b.n, tuple(b.levels))
    assert a.grams.tobytes() == b.grams.tobytes()
    assert a.returns.keys() == b.returns.keys()
    for h in a.returns:
        assert a.returns[h].moment.tobytes() == b.returns[h].moment.tobytes()
        assert a.returns[h][1:] == b.returns[h][1:]


def loky():
    return pytest.importorskip("loky").ProcessPoolExecutor(2)


EXECUTORS = {
    "1 thread": lambda: ThreadPoolExecutor(1),
    "3 threads": lambda: ThreadPoolExecutor(3),
    "spawned processes": SPAWN,
    "loky": loky,
}


# Processes like the spawned ones, which take seconds more to start.
LOKY = pytest.param("loky", marks=pytest.mark.slow)

SOURCES = {
    "finite": lambda: ENV,
    "compiled, coins": coins,
    "compiled, in C": walker.in_c,
    "compiled, with a feature map": lambda: walker.in_c().with_features(
        dmq.features.Fourier([-1.0, -1.0], [1.0, 1.0], 2)
    ),
}


@pytest.mark.parametrize("kind", ["1 thread", "3 threads", "spawned processes", LOKY])
def test_any_workers_give_the_bits_of_none(kind):
    with EXECUTORS[kind]() as executor:
        for source, in_flight in [*itertools.product(SOURCES, (None,)), ("finite", 1), ("finite", 3)]:
            inner = RolloutSampler(SOURCES[source]())
            sampler = ParallelSampler(inner, executor, in_flight=in_flight)
            assert isinstance(sampler, Sampler)
            for n in (0, 1, 16_384, 16_385, N):
                assert_same(collect(sampler, n), collect(inner, n))


def test_dask_gives_the_bits_of_none():
    distributed = pytest.importorskip("distributed")
    inner = RolloutSampler(ENV)
    settings = {"n_workers": 2, "threads_per_worker": 1, "dashboard_address": ":0"}
    with (
        distributed.LocalCluster(**settings) as cluster,
        distributed.Client(cluster) as client,
        client.get_executor() as executor,
    ):
        assert parallel.workers_of(executor) == 2
        assert_same(collect(ParallelSampler(inner, executor)), collect(inner))
        for source in ("compiled, coins", "compiled, in C"):
            other = RolloutSampler(SOURCES[source]())
            assert_same(collect(ParallelSampler(other, executor)), collect(other))
        with pytest.raises(ZeroDivisionError) as caught:
            collect(ParallelSampler(Fragile(ENV, "raise"), executor), MANY)
        assert "chunk 3 of call 9" in caught.value.__notes__[0]


def test_only_workers_of_dask_import_what_they_draw_and_a_lost_scheduler_is_noticed(tmp_path):
    pytest.importorskip("distributed")
    inner = RolloutSampler(ENV)
    with contextlib.ExitStack() as stack:
        processes = Processes(tmp_path, stack)
        processes.worker()
        with processes.executor(timeout="2s") as executor:
            sampler = ParallelSampler(inner, executor)
            assert_same(collect(sampler), collect(inner))  # the scheduler does not have the package
            with pytest.raises(ModuleNotFoundError, match="fragile") as caught:
                collect(ParallelSampler(Fragile(ENV, "raise"), executor), MANY)
            assert "chunk 0 of call 9" in caught.value.__notes__[0]
            assert_same(collect(sampler), collect(inner))
            processes.scheduler.kill()
            with pytest.raises(WorkerError, match=r"dask scheduler at tcp://.*; the loss came while drawing chunk"):
                for _ in range(3):
                    collect(sampler)


def test_a_client_of_dask_that_gives_up_ends_what_waits_for_it(monkeypatch):
    distributed = pytest.importorskip("distributed")
    with distributed.LocalCluster(n_workers=1, processes=False, dashboard_address=":0") as cluster:
        with distributed.Client(cluster) as client:

            def waiting(self, *call):
                client.close()
                return Future()

            monkeypatch.setattr(Cluster, "submit", waiting)
            with pytest.raises(WorkerError, match=r"the connection to the dask scheduler .* is lost; .* chunk 0"):
                collect(ParallelSampler(RolloutSampler(ENV), client.get_executor()))


@pytest.mark.parametrize("settings", [{"workers": 2}, {"workers": 1}, {"executor": SPAWN}, {"max_seconds": 1e6}])
def test_a_run_does_not_depend_on_workers(settings):
    env = chain(4, rng=0)
    serial = dmq.DMQ(env, n_samples=40_000, rng=0).learn()
    before = threading.active_count()
    result = dmq.DMQ(env, n_samples=40_000, rng=0, **settings).learn()
    assert threading.active_count() == before
    assert result.theta.tobytes() == serial.theta.tobytes()
    assert result.history == serial.history
    assert (result.cover, result.counts) == (serial.cover, serial.counts)


def test_values_are_those_of_the_inner_sampler():
    inner = RolloutSampler(ENV)
    with ThreadPoolExecutor(2) as executor:
        found = estimate_value(ParallelSampler(inner, executor), POLICY, 20_000, stream=dmq.Stream(1))
    assert found == estimate_value(inner, POLICY, 20_000, stream=dmq.Stream(1))


def test_a_given_executor_stays_open():
    with ThreadPoolExecutor(2) as executor:
        algorithm = dmq.DMQ(chain(3, rng=0), n_samples=20_000, rng=0, executor=executor, max_seconds=1e6)
        a, b = algorithm.learn(), algorithm.learn()
        assert a.theta.tobytes() == b.theta.tobytes()
        assert executor.submit(int).result() == 0


def test_workers_that_are_processes_start_no_chunk_twice_and_unpickle_once():
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as executor:
        moments = collect(ParallelSampler(Counting(ENV), executor), MANY)
    # Each of the 6 chunks left there how many samplers its process had made.
    assert moments.grams[0, 0, 0] == 6


@pytest.mark.parametrize("failure", ["raise", "raise awkwardly"])
@pytest.mark.parametrize("kind", ["3 threads", "spawned processes", LOKY])
def test_what_the_sampler_raises_comes_through_with_chunk_and_stream(kind, failure):
    sampler = Fragile(ENV, failure)
    with EXECUTORS[kind]() as executor:
        with pytest.raises(Exception, match=r"of the user's making|1 and 2") as caught:
            collect(ParallelSampler(sampler, executor), MANY)
        rebuilt = kind == "3 threads" or failure == "raise"
        assert caught.type.__name__ == {"raise": "ZeroDivisionError"}.get(
            failure, "Awkward" if rebuilt else "RuntimeError"
        )
        (note,) = caught.value.__notes__
        key = dmq.Stream(5).key
        assert note == (
            f"while drawing chunk 3 of call 9: 16384 trajectories, rng=Stream.from_key({key}, call=9, chunk=3)"
        )
        # The executor goes on working.
        assert_same(collect(ParallelSampler(RolloutSampler(ENV), executor)), collect(RolloutSampler(ENV)))


def test_a_single_chunk_that_fails_is_named_too():
    with ParallelSampler(Fragile(ENV, "raise", chunk=0), SPAWN) as sampler:
        with pytest.raises(ZeroDivisionError) as caught:
            collect(sampler, 10)
        assert "chunk 0 of call 9: 10 trajectories" in caught.value.__notes__[0]


def test_a_worker_that_dies_once_costs_nothing(tmp_path):
    dying = Fragile(ENV, "die once", marker=str(tmp_path / "died"))
    with ParallelSampler(dying, SPAWN) as sampler:
        assert_same(collect(sampler, MANY), collect(RolloutSampler(ENV), MANY))
    assert os.listdir(tmp_path) == ["died"]


@pytest.mark.parametrize("given", ["executor", "function"])
def test_a_worker_that_dies_again_is_reported_with_its_chunk(given):
    dying = Fragile(ENV, "die")
    with SPAWN() as executor, ParallelSampler(dying, executor if given == "executor" else SPAWN) as sampler:
        with pytest.raises(WorkerError, match="a worker died") as caught:
            collect(sampler, MANY)
    assert isinstance(caught.value.__cause__, BrokenExecutor)
    if given == "function":
        assert "died twice while drawing chunk 3 of call 9" in str(caught.value)
    else:
        assert "a function that makes executors" in str(caught.value)
    assert f"Stream.from_key({dmq.Stream(5).key}, call=9, chunk=" in str(caught.value)


def test_a_worker_killed_in_compiled_code_costs_nothing(tmp_path):
    env = coins()
    dying = Fragile(env, "be killed once", marker=str(tmp_path / "killed"))
    with ParallelSampler(dying, SPAWN) as sampler:
        assert_same(collect(sampler, MANY), collect(RolloutSampler(env), MANY))
    assert os.listdir(tmp_path) == ["killed"]


@pytest.mark.parametrize("kind", ["spawned processes", LOKY])
def test_an_environment_without_a_factory_stays_where_it_is(kind):
    inner = RolloutSampler(walker.in_c(factory=None))
    with EXECUTORS[kind]() as executor:
        sampler = ParallelSampler(inner, executor)
        with pytest.raises(Exception, match=r"addresses, which mean nothing in another process|pickle") as caught:
            collect(sampler)
        told = "".join(traceback.format_exception(caught.value))
        assert "give it a factory that makes it there" in told
        assert f"while drawing chunk 0 of call 9: 16384 trajectories, rng=Stream.from_key({dmq.Stream(5).key}" in told
        # One chunk is drawn here, and threads share the addresses.
        assert_same(collect(sampler, 100), collect(inner, 100))
    with ThreadPoolExecutor(2) as executor:
        assert_same(collect(ParallelSampler(inner, executor)), collect(inner))


@pytest.mark.parametrize("kind", ["spawned processes", LOKY])
def test_what_a_factory_raises_is_no_dead_worker(kind):
    inner = RolloutSampler(homely("no such file"))
    with EXECUTORS[kind]() as executor:
        with pytest.raises(LookupError, match="no such file") as caught:
            collect(ParallelSampler(inner, executor))
        assert "while drawing chunk 0 of call 9" in caught.value.__notes__[0]
        # The workers are well.
        assert_same(collect(ParallelSampler(RolloutSampler(ENV), executor)), collect(RolloutSampler(ENV)))


def in_a_fork(work):
    """What `work` returns, or the exception it raises, in a forked child; an error if it takes 20 s."""
    receiving, sending = multiprocessing.Pipe(duplex=False)
    child = os.fork()
    if child == 0:
        try:
            signal.alarm(20)
            sending.send(work())
        except BaseException as error:
            sending.send(error)
        finally:
            os._exit(0)
    sending.close()
    try:
        return receiving.recv()
    except EOFError:
        pytest.fail("the child hangs or died")
    finally:
        receiving.close()
        os.waitpid(child, 0)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
@pytest.mark.parametrize("source", SOURCES)
def test_a_forked_child_samples_like_its_parent(source):
    inner = RolloutSampler(SOURCES[source]())
    expected = collect(inner)
    with ParallelSampler(inner, functools.partial(ThreadPoolExecutor, 2)) as sampler:
        assert_same(collect(sampler), expected)
        # Threads do not survive a fork: the child makes its own.
        for again in (inner, sampler):
            assert_same(in_a_fork(lambda one=again: collect(one)), expected)
        assert_same(collect(sampler), expected)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
@pytest.mark.parametrize("make", [functools.partial(ThreadPoolExecutor, 2), SPAWN], ids=["threads", "processes"])
def test_an_executor_that_came_through_a_fork_is_refused(make):
    inner = RolloutSampler(coins())
    with make() as executor:
        sampler = ParallelSampler(inner, executor)
        expected = collect(sampler)
        error = in_a_fork(lambda: collect(sampler))
        assert isinstance(error, RuntimeError)
        assert (
            f"executor: expected one of this process, got one that came through a fork from process {os.getpid()}"
            in str(error)
        )
        assert_same(collect(sampler), expected)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_run_in_a_forked_child_is_that_of_its_parent():
    algorithm = dmq.DMQ(coins(), n_samples=20_000, rng=0, workers=2)
    assert in_a_fork(lambda: algorithm.learn().theta.tobytes()) == algorithm.learn().theta.tobytes()
    assert in_a_fork(lambda: algorithm.learn().theta.tobytes()) == algorithm.learn().theta.tobytes()


def test_a_dead_worker_ends_a_run_with_what_was_learned():
    algorithm = dmq.DMQ(Fragile(chain(4, rng=0), "die", chunk=1), n_samples=20_000, rng=0, executor=SPAWN)
    with pytest.raises(WorkerError, match="chunk 1 of call 1: 3616 trajectories"):
        algorithm.learn()
    assert algorithm.result().status == "interrupted"


def test_loky_replaces_its_dead_workers(tmp_path):
    pool = pytest.importorskip("loky").get_reusable_executor
    dying = Fragile(ENV, "die once", marker=str(tmp_path / "died"))
    with ParallelSampler(dying, functools.partial(pool, max_workers=2)) as sampler:
        assert_same(collect(sampler, MANY), collect(RolloutSampler(ENV), MANY))


class Lazy(Executor):
    """Answers on request, and remembers how many futures were open at a time and how many cancelled."""

    def __init__(self):
        self.open, self.most, self.cancelled = 0, 0, 0

    def submit(self, function, /, *arguments):
        self.open += 1
        self.most = max(self.most, self.open)
        outer = self

        class Open(Future):
            def result(self, timeout=None):
                outer.open -= 1
                return function(*arguments)

            def cancel(self):
                outer.cancelled += 1
                return super().cancel()

        return Open()


def test_the_number_of_workers_is_asked_for():
    with ThreadPoolExecutor(3) as executor:
        assert parallel.workers_of(executor) == 3
    assert parallel.workers_of(Lazy()) == os.cpu_count()


@pytest.mark.parametrize("kind", ["3 threads", "spawned processes"])
def test_an_executor_that_was_shut_down_is_named(kind):
    executor = EXECUTORS[kind]()
    executor.shutdown()
    with pytest.raises(RuntimeError, match="after shutdown") as caught:
        collect(ParallelSampler(RolloutSampler(ENV), executor))
    (note,) = caught.value.__notes__
    assert note.startswith(f"executor: {type(executor).__name__} did not take chunk 0 of call 9: 16384 trajectories")


# A script whose environment is defined where workers, which import the script without running it, do not look.
SCRIPT = """
import dmq_fast as dmq
import numpy as np

class Known:
    horizon, n_actions, dimension = 1, 2, 1
    def reset(self, n, rng): return np.ones((n, 1))
    def features(self, level, states): return states
    def step(self, level, states, actions, rng): return states, actions / 2

if __name__ == "__main__":
    class Unknown(Known):
        pass

    print(dmq.DMQ(Known(), n_samples=5000, workers=2, rng=0).learn().status)
    dmq.DMQ(Unknown(), n_samples=5000, workers=2, rng=0).learn()
"""


def test_a_class_that_workers_do_not_find_is_no_dead_worker(tmp_path):
    (tmp_path / "script.py").write_text(SCRIPT)
    done = subprocess.run([sys.executable, tmp_path / "script.py"], capture_output=True, text=True, timeout=120)
    assert (done.stdout, done.returncode) == ("finished\n", 1)
    assert "AttributeError: Can't get attribute 'Unknown' on <module '__main__'" in done.stderr.replace(
        "__mp_main__", "__main__"
    )
    assert "while drawing chunk 0 of call 1: 4096 trajectories" in done.stderr


def test_few_chunks_are_in_flight_however_many_there_are():
    executor = Lazy()
    sampler = ParallelSampler(RolloutSampler(ENV), executor, in_flight=5)
    began = time.perf_counter()
    pieces = sampler.pieces(POLICY, 2**60, dmq.Stream(0), (5,), ())
    drawn = list(itertools.islice(pieces, 10))
    pieces.close()
    assert len(drawn) == 10 and executor.most == 5
    assert executor.cancelled == 4
    assert time.perf_counter() - began < 5


@pytest.mark.parametrize("stop", [KeyboardInterrupt, ValueError])
def test_what_stops_a_call_cancels_what_is_pending(stop):
    inner = Counting(ENV, delay=0.05)
    seen = []

    def drawn(size):
        seen.append(size)
        raise stop

    with ThreadPoolExecutor(2) as executor:
        sampler = ParallelSampler(inner, executor, in_flight=50)
        with pytest.raises(stop):
            dmq.samplers.collect_chunks(sampler, POLICY, 10**7, dmq.Stream(0), (5,), (), drawn)
    assert seen == [16_384]
    assert inner.drawn <= 6


def test_seconds_end_a_call_on_workers():
    began = time.perf_counter()
    result = dmq.DMQ(chain(4, rng=0), n_samples=2**62, rng=0, workers=2, max_seconds=0.2).learn()
    assert result.status == "max_seconds"
    assert 0 < result.n_trajectories
    assert time.perf_counter() - began < 5


def test_moments_of_chunks_say_their_size():
    inner = RolloutSampler(ENV)
    with ThreadPoolExecutor(2) as executor:
        pieces = list(ParallelSampler(inner, executor).pieces(POLICY, N, dmq.Stream(0), (0,), ()))
    assert [piece.n for piece in pieces] == list(EqualChunks(N, 16_384))
    assert np.sum([piece.n for piece in pieces]) == N


@pytest.mark.parametrize(
    ("settings", "error", "name"),
    [
        ({"workers": 2, "executor": SPAWN}, ValueError, "workers, executor"),
        ({"workers": 0}, ValueError, "workers"),
        ({"workers": 1.5}, TypeError, "workers"),
        ({"executor": 3}, TypeError, "executor"),
        ({"executor": ThreadPoolExecutor}, TypeError, "executor"),
    ],
)
def test_wrong_workers_are_refused_by_name(settings, error, name):
    with pytest.raises(error, match=name):
        dmq.DMQ(ENV, **settings)


def test_wrong_arguments_of_the_sampler_are_refused_by_name():
    with pytest.raises(TypeError, match="inner"):
        ParallelSampler(ENV, SPAWN)
    with pytest.raises(TypeError, match="executor"):
        ParallelSampler(RolloutSampler(ENV), None)
    with pytest.raises(ValueError, match="in_flight"):
        ParallelSampler(RolloutSampler(ENV), SPAWN, in_flight=0)
    with pytest.raises(TypeError, match="in_flight"):
        ParallelSampler(RolloutSampler(ENV), SPAWN, in_flight=2.0)
    with pytest.raises(TypeError, match=r"^stream: expected a Stream, got int"):
        ParallelSampler(RolloutSampler(ENV), SPAWN).collect(POLICY, 5, stream=0, levels=[0])
    with pytest.raises(TypeError, match=r"^n: expected an integer, got 2.5"):
        ParallelSampler(RolloutSampler(ENV), SPAWN).collect(POLICY, 2.5, stream=dmq.Stream(0), levels=[0])
    with pytest.raises(TypeError, match="makes an Executor"):
        collect(ParallelSampler(RolloutSampler(ENV), lambda: 3))
