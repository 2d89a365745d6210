"""Sweeps on clusters of dask: what their workers cannot do, and processes that are killed."""

import asyncio
import contextlib
import re
import signal
import threading
import time
from concurrent.futures import BrokenExecutor, CancelledError, Future, ThreadPoolExecutor, wait

import obstinate
import pytest
from clusters import Processes
from sweeping import ROOT, content, one, slow_spec, start, wait_until, write

from dmq_fast import environments, experiments
from dmq_fast._support.cluster import pass_on, reached
from dmq_fast.experiments.sweeps import algorithms, scheduler
from dmq_fast.kernels.build import build

distributed = pytest.importorskip("distributed")


def begun_since(begun, known):
    return len({file.name for file in begun.iterdir()} - known)


@pytest.mark.slow
def test_scheduler_worker_and_client_may_each_be_killed(tmp_path):
    path, begun = slow_spec(tmp_path, seconds=0.1)
    experiments.sweep(path, tmp_path / "local", workers=0)
    line = [path, "--out", tmp_path / "out", "--quiet", "--dask"]

    def go_on(cluster, stack):
        known = {file.name for file in begun.iterdir()}
        sweeping = stack.enter_context(start(*line, cluster.address))
        wait_until(lambda: begun_since(begun, known) >= 4)
        return sweeping

    with contextlib.ExitStack() as stack:
        first, second = (tmp_path / name for name in ("first", "second"))
        first.mkdir()
        second.mkdir()
        cluster = Processes(first, stack)
        workers = [cluster.worker(path=[ROOT]) for _ in range(2)]
        sweeping = go_on(cluster, stack)
        workers[0].kill()
        known = {file.name for file in begun.iterdir()}
        wait_until(lambda: begun_since(begun, known) >= 4)
        assert sweeping.poll() is None
        sweeping.kill()
        assert sweeping.wait() == -signal.SIGKILL
        sweeping = go_on(cluster, stack)
        assert 0 < len(experiments.load(tmp_path / "out")) < 50
        cluster.scheduler.kill()
        assert sweeping.wait(timeout=60) == 1
        assert sweeping.stderr.read().endswith("; the same command does the remaining runs\n")
        assert len(experiments.load(tmp_path / "out")) < 50
        cluster = Processes(second, stack)
        cluster.worker(path=[ROOT])
        sweeping = go_on(cluster, stack)
        assert sweeping.wait(timeout=60) == 0
    assert content(experiments.load(tmp_path / "out")) == content(experiments.load(tmp_path / "local"))


@pytest.mark.slow
def test_a_run_that_kills_its_workers_ends_as_crashed(tmp_path, monkeypatch):
    """Although a cluster gives a worker up that dies too often."""
    monkeypatch.setenv("PYTHONPATH", str(ROOT), prepend=":")
    data = one("obstinate:failing", kind="kill", seeds=4)
    data["algorithms"][0] |= {"seeds": [[2]]}
    with (
        distributed.LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=":0") as cluster,
        distributed.Client(cluster) as client,
    ):
        summary = experiments.sweep(data, tmp_path, executor=client.get_executor())
    assert summary.statuses == {"crashed": 1, "finished": 3}
    assert [row["status"] for row in experiments.load(tmp_path)] == ["finished", "finished", "crashed", "finished"]


def test_a_worker_that_its_cluster_has_given_up_is_started_again():
    with (
        distributed.LocalCluster(n_workers=2, threads_per_worker=1, processes=False, dashboard_address=":0") as cluster,
        distributed.Client(cluster) as client,
    ):
        mine = reached(client.get_executor())
        assert mine.watch() == 2
        given_up = cluster.workers.pop(0)
        cluster.sync(given_up.close)
        wait_until(lambda: mine.watch() == 2 and len(cluster.workers) == 2)


@pytest.mark.parametrize("outcome", [3, ValueError("lost"), CancelledError(), asyncio.CancelledError()])
def test_every_outcome_of_a_task_reaches_its_future(outcome):
    """Also an exception that comes while its result is gathered."""

    async def task():
        if isinstance(outcome, BaseException):
            raise outcome
        return outcome

    future, cancelled = Future(), Future()
    cancelled.cancel()
    for some in (future, cancelled):
        asyncio.run(pass_on(task(), some))
    assert cancelled.cancelled()
    if isinstance(outcome, int):
        assert future.result(timeout=0) == 3
    elif isinstance(outcome, ValueError):
        assert future.exception(timeout=0) is outcome
    else:
        assert future.cancelled()


# What workers cannot do, and what is lost


FOREIGN = '[[environments]]\nname = "lock"\nhorizon = 3\n[[algorithms]]\nname = "obstinate:foreign"\n'


@pytest.fixture(scope="module")
def bare(tmp_path_factory):
    """A worker that has the package, but none of the modules of the tests."""
    with contextlib.ExitStack() as stack:
        processes = Processes(tmp_path_factory.mktemp("dask"), stack)
        processes.worker()
        with processes.executor() as executor:
            executor._client.wait_for_workers(1)
        yield processes


def test_a_worker_that_cannot_import_what_runs_name_does_none(tmp_path, bare, monkeypatch, run):
    monkeypatch.setitem(algorithms.REGISTRY, "registered", obstinate.leaving)
    monkeypatch.setitem(environments.registry.REGISTRY, "mine", environments.chain)
    nowhere = "cannot be imported: ModuleNotFoundError: No module named 'obstinate'"
    code, out, err = run("sweep", write(tmp_path, FOREIGN), "--out", tmp_path, "--dask", bare.address)
    assert (code, out) == (1, "") and err.startswith(f"dmq-fast sweep {tmp_path}")
    assert "a worker cannot do the runs: ImportError: process " in err and "No module named 'obstinate'" in err
    assert err.endswith("; the same command does the remaining runs\n") and err.count("\n") == 1
    wrong = {
        f": algorithm: 'obstinate:foreign' {nowhere}": one("obstinate:foreign"),
        f": environment: 'obstinate:unlucky' {nowhere}": one(environment={"name": "obstinate:unlucky", "horizon": 3}),
        f": function_class: 'obstinate:linear' {nowhere}": one(function_class="obstinate:linear"),
        ": environment: mine is registered in": one(environment={"name": "mine", "horizon": 3}),
        "ModuleNotFoundError: No module named 'obstinate'": one("registered"),
    }
    with bare.executor() as executor:
        for words, data in wrong.items():
            with pytest.raises(BrokenExecutor, match="a worker cannot do the runs: ") as caught:
                experiments.sweep(data, tmp_path, executor=executor)
            assert words in str(caught.value)
        assert experiments.load(tmp_path) == []
        # The worker lives.
        assert experiments.sweep(one(n_samples=20), tmp_path, executor=executor).statuses == {"ended": 3}


def test_a_worker_of_another_version_does_no_runs(tmp_path, bare, monkeypatch):
    monkeypatch.setattr(scheduler, "build", lambda: "9.9")
    with bare.executor() as executor:
        with pytest.raises(BrokenExecutor, match=rf"process .*: expected dmq_fast 9\.9, got {re.escape(build())}"):
            experiments.sweep(one(n_samples=20), tmp_path, executor=executor)
    assert experiments.load(tmp_path) == []


@pytest.mark.slow
def test_a_sweep_on_dask_waits_for_a_worker_and_says_so(tmp_path):
    with contextlib.ExitStack() as stack:
        processes = Processes(tmp_path, stack)
        line = [
            write(tmp_path, FOREIGN.replace("obstinate:foreign", "dmq")),
            "--out",
            tmp_path / "out",
            "--dask",
            processes.address,
        ]
        with start(*line) as sweeping:
            assert sweeping.stderr.readline() == f"warning: waiting for workers at {processes.address}\n"
            processes.worker()
            _, err = sweeping.communicate(timeout=60)
        assert (sweeping.returncode, err) == (0, "")


def test_a_client_that_gives_up_ends_the_sweep(tmp_path, bare, monkeypatch):
    """Without a word to the futures, as it may when it does not find the scheduler again."""
    with distributed.Client(bare.address) as client:
        executor = client.get_executor()

        def waiting(self, *call):
            client.close()
            return Future()

        monkeypatch.setattr(scheduler.Cluster, "submit", waiting)
        with pytest.raises(BrokenExecutor, match=r"the connection to the dask scheduler at tcp://.* is lost"):
            experiments.sweep(one(n_samples=20), tmp_path, executor=executor)
    assert experiments.load(tmp_path) == []


@pytest.mark.parametrize("patience", [1.0, 0.004])
def test_only_a_run_that_dask_gives_up_alone_is_a_crash(tmp_path, monkeypatch, patience):
    """Dask suspects all tasks that a worker had when it died, and may take its time until it gives a task up."""
    monkeypatch.setattr(
        scheduler, "wait", lambda futures, timeout, return_when: wait(futures, patience, return_when=return_when)
    )

    lock = threading.Lock()

    class Suspecting(ThreadPoolExecutor):
        flying = ()

        def submit(self, *call):
            future = Future()
            with lock:
                self.flying += ((future, call),)
            super().submit(self.land)
            return future

        def land(self):
            time.sleep(0.01)
            with lock:
                landed, self.flying = self.flying, ()
            deadly = any(run.seed == 1 for _, (_, runs, _) in landed for run in runs)
            for future, (do, *what) in landed:
                if deadly:
                    future.set_exception(distributed.KilledWorker("task", None, 3))
                else:
                    future.set_result(do(*what))

    with Suspecting(1) as executor:
        assert experiments.sweep(one(n_samples=20, seeds=8), tmp_path, executor=executor).statuses == {
            "crashed": 1,
            "ended": 7,
        }
    assert [row["seed"] for row in experiments.load(tmp_path) if row["status"] == "crashed"] == [1]
