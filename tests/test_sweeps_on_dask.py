"""Sweeps on clusters of dask whose processes are killed."""

import asyncio
import contextlib
import signal
from concurrent.futures import CancelledError, Future

import pytest
from clusters import Processes
from sweeping import ROOT, content, one, slow_spec, start, wait_until

from dmq_fast import experiments
from dmq_fast._support.cluster import pass_on, reached

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
def test_a_function_connects_to_another_scheduler_after_the_first_has_ended(tmp_path):
    path, begun = slow_spec(tmp_path, seconds=0.1)
    experiments.sweep(path, tmp_path / "local", workers=0)
    known = {file.name for file in begun.iterdir()}
    with contextlib.ExitStack() as stack:
        clusters = []
        for name in ("first", "second"):
            (tmp_path / name).mkdir()
            clusters.append(Processes(tmp_path / name, stack))
            clusters[-1].worker(path=[ROOT])
        left = clusters.copy()

        def connect():
            client = stack.enter_context(distributed.Client(left.pop(0).address))
            return client.get_executor()

        def kill(progress):
            if begun_since(begun, known) >= 4:
                clusters[0].scheduler.kill()

        summary = experiments.sweep(path, tmp_path / "out", executor=connect, progress=kill)
        assert summary.statuses == {"finished": 50} and not left
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
