"""Chunks on several workers: the same bits, and no death goes unexplained."""

import contextlib
import functools
import itertools
import multiprocessing
import os
import subprocess
import sys
import threading
import time
import traceback
from concurrent.futures import BrokenExecutor, Executor, Future, ProcessPoolExecutor, ThreadPoolExecutor

import pytest
import walker
from clusters import Processes
from flat import flat
from fragile import Counting, Fragile, coins, homely
from line import Closing
from refusals import refused
from sweeping import environment_of_tests

import dmq_fast as dmq
from dmq_fast._support.cluster import Cluster
from dmq_fast._support.threads import cpus
from dmq_fast._support.workers import WorkerDied, Workers, WorkerStartError
from dmq_fast.environments import chain, deep_sea
from dmq_fast.samplers import (
    BatchSampler,
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
KEY = dmq.Stream(5).key
CHUNK = f"chunk 3 of call 9: 16384 trajectories, rng=Stream.from_key({KEY}, call=9, chunk=3)"

SOURCES = {
    "finite": lambda: ENV,
    "compiled, coins": coins,
    "compiled, in C": walker.in_c,
    "compiled, with a feature map": lambda: walker.in_c().with_features(
        dmq.features.Fourier([-1.0, -1.0], [1.0, 1.0], 2)
    ),
}


def spawned():
    return ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn"))


def loky():
    return pytest.importorskip("loky").ProcessPoolExecutor(2)


@pytest.fixture(scope="module")
def own():
    """The processes of ``workers=2``, which survive all that the tests do to them."""
    with Workers(2) as executor:
        yield executor


@pytest.fixture(scope="module")
def pool():
    """A pool of Python's own, with one process."""
    with spawned() as executor:
        yield executor


def collect(sampler, n=N, policy=POLICY):
    return sampler.collect(policy, n, stream=dmq.Stream(5, call=9), levels=(0, 2, 5), returns_from=(1, 5))


def assert_same(a, b):
    assert (a.n, tuple(a.levels)) == (b.n, tuple(b.levels))
    assert a.grams.tobytes() == b.grams.tobytes()
    assert a.returns.keys() == b.returns.keys()
    for h in a.returns:
        assert a.returns[h].moment.tobytes() == b.returns[h].moment.tobytes()
        assert a.returns[h][1:] == b.returns[h][1:]


def check_bits(executor):
    for source, in_flight in [*itertools.product(SOURCES, (None,)), ("finite", 1), ("finite", 3)]:
        inner = RolloutSampler(SOURCES[source]())
        sampler = ParallelSampler(inner, executor, in_flight=in_flight)
        assert isinstance(sampler, Sampler)
        for n in (0, 1, 16_384, 16_385, N):
            assert_same(collect(sampler, n), collect(inner, n))


def check_exceptions(executor):
    """What the sampler raises comes through with call, chunk and stream, and the executor goes on working."""
    for failure, kind in (("raise", "ZeroDivisionError"), ("raise awkwardly", "Awkward|RuntimeError")):
        with pytest.raises(Exception, match=r"of the user's making|1 and 2") as caught:
            collect(ParallelSampler(Fragile(ENV, failure), executor), MANY)
        assert caught.type.__name__ in kind
        assert caught.value.__notes__[-1] == f"while drawing {CHUNK}"
    assert_same(collect(ParallelSampler(RolloutSampler(ENV), executor)), collect(RolloutSampler(ENV)))


@pytest.mark.parametrize("n", [1, 3])
def test_threads_give_the_bits_of_none(n):
    with ThreadPoolExecutor(n) as executor:
        check_bits(executor)
        check_exceptions(executor)
        assert parallel.workers_of(executor) == n


def test_own_processes_give_the_bits_of_none(own):
    check_bits(own)
    check_exceptions(own)


def test_processes_of_other_makes_give_the_bits_of_none(pool):
    check_bits(pool)
    check_exceptions(pool)


@pytest.mark.slow
def test_loky_gives_the_bits_of_none():
    with loky() as executor:
        check_bits(executor)
        check_exceptions(executor)


@pytest.mark.slow
def test_dask_gives_the_bits_of_none():
    distributed = pytest.importorskip("distributed")
    settings = {"n_workers": 2, "threads_per_worker": 1, "dashboard_address": ":0"}
    with (
        distributed.LocalCluster(**settings) as cluster,
        distributed.Client(cluster) as client,
        client.get_executor() as executor,
    ):
        assert parallel.workers_of(executor) == 2
        check_bits(executor)
        check_exceptions(executor)


@pytest.mark.slow
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
            check_exceptions(client.get_executor())

            def waiting(self, *call):
                client.close()
                return Future()

            monkeypatch.setattr(Cluster, "submit", waiting)
            with pytest.raises(WorkerError, match=r"the connection to the dask scheduler .* is lost; .* chunk 0"):
                collect(ParallelSampler(RolloutSampler(ENV), client.get_executor()))


def test_a_run_does_not_depend_on_workers(own):
    env = chain(4, rng=0)
    serial = dmq.DMQ(env, n_samples=40_000, rng=0).learn()
    before = threading.active_count()
    for settings in ({"workers": 2}, {"workers": 1}, {"executor": own}, {"max_seconds": 1e6}):
        result = flat(env, n_samples=40_000, rng=0, **settings).learn()
        assert threading.active_count() == before
        assert result.theta.tobytes() == serial.theta.tobytes()
        assert result.history == serial.history
        assert (result.cover, result.counts) == (serial.cover, serial.counts)


def test_values_are_those_of_the_inner_sampler():
    inner = RolloutSampler(ENV)
    with ThreadPoolExecutor(2) as executor:
        found = estimate_value(ParallelSampler(inner, executor), POLICY, 20_000, stream=dmq.Stream(1))
    assert found == estimate_value(inner, POLICY, 20_000, stream=dmq.Stream(1))


def test_a_given_executor_stays_open_and_one_that_is_made_does_not():
    made = []

    def make():
        made.append(ThreadPoolExecutor(2))
        return made[-1]

    with ThreadPoolExecutor(2) as executor:
        for given in (executor, executor, make, make):
            dmq.DMQ(chain(3, rng=0), n_samples=20_000, rng=0).learn(executor=given, max_seconds=1e6)
        assert executor.submit(int).result() == 0
    assert len(made) == 2 and all(one._shutdown for one in made)


def test_own_processes_start_no_chunk_twice_and_unpickle_once(own, pool):
    # Each of the 6 chunks left there how many samplers its process had made.
    assert collect(ParallelSampler(Counting(ENV), own), MANY).grams[0, 0, 0] == 6
    assert collect(ParallelSampler(Counting(ENV), pool), MANY).grams[0, 0, 0] == 1 + 2 + 3 + 4 + 5 + 6


def test_workers_close_the_environments_that_they_were_sent(tmp_path, pool):
    policy, wanted = dmq.Policy.uniform(4), {"stream": dmq.Stream(0), "levels": [3]}
    inner = BatchSampler(Closing(tmp_path))
    with ParallelSampler(inner, parallel.pool_of(inner, 1)) as sampler:
        sampler.collect(policy, 150, **wanted)
        assert list(tmp_path.iterdir()) == []  # it is used for the next call
    (own,) = tmp_path.iterdir()
    ParallelSampler(inner, pool).collect(policy, 150, **wanted)
    assert {int(file.name) for file in tmp_path.iterdir()} == {int(own.name), *pool._processes}


def test_a_single_chunk_that_fails_is_named_too(own):
    with pytest.raises(ZeroDivisionError) as caught:
        collect(ParallelSampler(Fragile(ENV, "raise", chunk=0), own), 10)
    assert "chunk 0 of call 9: 10 trajectories" in caught.value.__notes__[0]


@pytest.mark.parametrize(("failure", "env"), [("die once", ENV), ("be killed once", coins())], ids=["exit", "kill"])
def test_a_worker_that_dies_once_costs_nothing(own, tmp_path, failure, env):
    dying = Fragile(env, failure, marker=str(tmp_path / "died"))
    assert_same(collect(ParallelSampler(dying, own), MANY), collect(RolloutSampler(env), MANY))
    assert os.listdir(tmp_path) == ["died"]


def test_a_worker_that_dies_again_is_reported_with_its_chunk(own):
    lost = "exit code 9; the loss came while drawing "
    with pytest.raises(WorkerError, match=f"^the worker process died: {lost}chunk 3 of call 9") as caught:
        collect(ParallelSampler(Fragile(ENV, "die"), own), MANY)
    assert isinstance(caught.value.__cause__, WorkerDied)
    assert str(caught.value).endswith(CHUNK)


class Broken(Executor):
    """Has lost its workers."""

    def submit(self, function, /, *arguments):
        raise BrokenExecutor


def test_lost_workers_end_a_run_with_what_was_learned():
    algorithm = dmq.DMQ(chain(4, rng=0), n_samples=20_000, rng=0)
    with pytest.raises(WorkerError, match="takes no more work; the loss came while drawing chunk 0 of call 1: 16384"):
        algorithm.learn(executor=Broken())
    assert algorithm.result().status == "failed"


def test_a_death_that_breaks_an_executor_is_reported_with_a_chunk():
    with spawned() as executor, pytest.raises(WorkerError, match=r"terminated abruptly .*; the loss came") as caught:
        collect(ParallelSampler(Fragile(ENV, "die"), executor), MANY)
    assert isinstance(caught.value.__cause__, BrokenExecutor)
    assert f"Stream.from_key({KEY}, call=9, chunk=" in str(caught.value)


def test_an_environment_without_a_factory_stays_where_it_is(own, pool):
    inner = RolloutSampler(walker.in_c(factory=None))
    for executor in (own, pool):
        sampler = ParallelSampler(inner, executor)
        with pytest.raises(Exception, match=r"addresses, which mean nothing in another process|pickle") as caught:
            collect(sampler)
        assert "give it a factory that makes it there" in "".join(traceback.format_exception(caught.value))
        assert "chunk 0 of call 9: 16384 trajectories, rng=Stream.from_key(" in "".join(caught.value.__notes__)
        assert_same(collect(sampler, 100), collect(inner, 100))  # one chunk is drawn here
    with ThreadPoolExecutor(2) as executor:  # threads share the addresses
        assert_same(collect(ParallelSampler(inner, executor)), collect(inner))


def test_what_a_factory_raises_is_no_dead_worker(own):
    with pytest.raises(LookupError, match="no such file") as caught:
        collect(ParallelSampler(RolloutSampler(homely("no such file")), own))
    assert "while drawing chunk 0 of call 9" in caught.value.__notes__[0]


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


def test_few_chunks_are_in_flight_however_many_there_are():
    executor = Lazy()
    assert parallel.workers_of(executor) == cpus()
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
    result = dmq.DMQ(chain(4, rng=0), n_samples=2**62, rng=0).learn(workers=2, max_seconds=0.2)
    assert result.status == "max_seconds"
    assert 0 < result.n_trajectories
    assert time.perf_counter() - began < 5


def test_what_is_refused():
    inner, make = RolloutSampler(ENV), functools.partial(ThreadPoolExecutor, 2)
    sampler, algorithm = ParallelSampler(inner, make), dmq.DMQ(ENV)
    closed = make()
    closed.shutdown()
    refused(
        [
            (lambda: algorithm.learn(workers=2, executor=make), ValueError, "^workers, executor"),
            (lambda: algorithm.learn(workers=0), ValueError, "^workers"),
            (lambda: algorithm.learn(workers=1.5), TypeError, "^workers"),
            (lambda: algorithm.learn(executor=3), TypeError, "^executor"),
            (lambda: algorithm.learn(executor=ThreadPoolExecutor), TypeError, "^executor"),
            (lambda: ParallelSampler(ENV, make), TypeError, "^inner"),
            (lambda: ParallelSampler(inner, None), TypeError, "^executor"),
            (lambda: ParallelSampler(inner, make, in_flight=0), ValueError, "^in_flight"),
            (lambda: ParallelSampler(inner, make, in_flight=2.0), TypeError, "^in_flight"),
            (lambda: sampler.collect(POLICY, 5, stream=0, levels=[0]), TypeError, "^stream: .* a Stream, got int"),
            (
                lambda: sampler.collect(POLICY, 2.5, stream=dmq.Stream(0), levels=[0]),
                TypeError,
                "^n: expected an integer, got 2.5",
            ),
            (lambda: collect(ParallelSampler(inner, lambda: 3)), TypeError, "makes an Executor"),
            (lambda: collect(ParallelSampler(inner, closed)), RuntimeError, "after shutdown"),
        ]
    )
    with pytest.raises(RuntimeError) as caught:
        collect(ParallelSampler(inner, closed))
    assert caught.value.__notes__[0].startswith("executor: ThreadPoolExecutor did not take chunk 0 of call 9: 16384")


def refuse_threads(monkeypatch, allowed):
    """Let only some more threads start, as a limit of processes does."""
    start, left = threading.Thread.start, iter(range(allowed))

    def limited(thread):
        if next(left, None) is None:
            raise RuntimeError("can't start new thread")
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", limited)


@pytest.mark.parametrize("allowed", [0, 1])
def test_threads_that_cannot_be_started_are_no_mystery(monkeypatch, allowed):
    inner = RolloutSampler(ENV)
    refuse_threads(monkeypatch, allowed)
    before = threading.active_count()
    with pytest.raises(WorkerStartError, match="worker process could not be started: can't start new thread"):
        Workers(2)
    assert threading.active_count() == before  # the first thread has ended
    refuse_threads(monkeypatch, 0)
    with (
        ParallelSampler(inner, parallel.pool_of(inner, 2)) as sampler,
        pytest.raises(WorkerStartError, match="worker thread could not be started: can't start new thread"),
    ):
        sampler.collect(POLICY, N, stream=dmq.Stream(0), levels=(0,))


LATE = """
import logging, threading
import dmq_fast as dmq
from sweeping import one

logging.basicConfig(format="%(message)s", level=logging.WARNING)
env = dmq.environments.deep_sea(6, rng=0)

def work(out):
    threading.main_thread().join()
    from dmq_fast import experiments
    result = dmq.DMQ(env, n_samples=40_000, rng=0).learn(workers=2)
    assert (result.theta == dmq.DMQ(env, n_samples=40_000, rng=0).learn().theta).all()
    print(experiments.sweep(one(n_samples=20), out, workers=1).statuses)

threading.Thread(target=work, args=("late",)).start()
"""


def test_a_thread_may_go_on_after_the_main_thread(tmp_path):
    """Python then refuses pools of threads, even the import of their module; worker processes still start."""
    line = [sys.executable, "-P", "-c", LATE]
    done = subprocess.run(line, cwd=tmp_path, env=environment_of_tests(), capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "{'ended': 3}\n"), done.stderr
    assert done.stderr.startswith("the main thread has ended") and done.stderr.count("\n") == 1
