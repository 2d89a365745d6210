"""`Cluster`: dask as an executor whose scheduler imports nothing of ours, and which does not wait for ever."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import pickle
import sys
import time
from collections.abc import Callable
from concurrent.futures import BrokenExecutor, CancelledError, Executor, Future, wait
from typing import Any

__all__ = ["Cluster", "killed", "reached"]

LOGGER = logging.getLogger(__name__)

POLL = 0.2
"""Seconds between looks at the connection."""

PATIENCE = 5.0
"""Seconds in which a scheduler should say how many workers it has."""


class Call:
    """A call that takes place where it is unpickled."""

    def __init__(self, fn: Callable[..., Any], args: tuple[Any, ...]) -> None:
        self.fn, self.args = fn, args

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        return self.fn, self.args


def packed(fn: Callable[..., Any], *args: Any) -> bytes:
    """Return bytes that ``pickle.loads`` turns into the result of a call.

    Schedulers and workers of dask unpickle functions and arguments outside the task. What fails to import there does
    not fail the task, but closes the worker or cancels everything. Bytes and ``pickle.loads`` need no import.
    """
    import cloudpickle

    data: bytes = cloudpickle.dumps(Call(fn, args))
    return data


async def pass_on(task: Any, future: Future[Any]) -> None:
    """Give the outcome of a task of dask to a future.

    Dask's own executor leaves a future without one, for ever, where a result was lost with its worker before it arrived
    and the task was given up when it was repeated.
    """
    try:
        result = await task
    except (CancelledError, asyncio.CancelledError):
        future.cancel()
        future.set_running_or_notify_cancel()
    except Exception as error:
        if future.set_running_or_notify_cancel():
            future.set_exception(error)
    else:
        if future.set_running_or_notify_cancel():
            future.set_result(result)


class Cluster(Executor):
    """Calls functions on the workers of dask; only they import what a call names.

    Parameters
    ----------
    executor : distributed.cfexecutor.ClientExecutor
        What ``Client.get_executor()`` returns.

    Attributes
    ----------
    address : str
        Address of the scheduler.
    """

    def __init__(self, executor: Any) -> None:
        self._inner, self._client = executor, executor._client
        self.address = getattr(self._client.scheduler, "address", "an unknown address")
        self._options = {**getattr(executor, "_kwargs", {}), "pure": False}
        self._threads, self._waiting = 1, False

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Submit a call without keyword arguments; BrokenExecutor if the scheduler is lost."""
        assert not kwargs
        self.check_connected()
        try:
            task = self._client.submit(pickle.loads, packed(fn, *args), **self._options)
        except RuntimeError:  # of a client that has closed since
            self.check_connected()
            raise
        future: Future[Any] = Future()
        future.add_done_callback(lambda future: task.cancel() if future.cancelled() and not task.cancelled() else None)
        self._client.loop.add_callback(pass_on, task, future)
        return future

    def result(self, future: Future[Any] | None) -> Any:
        """Wait for a call and return its result; BrokenExecutor if the scheduler is lost or workers die of the call."""
        if future is None:
            self.check_connected()
            raise BrokenExecutor(f"the dask cluster at {self.address} takes no more work")
        while not wait([future], timeout=1.0).done:
            self.watch()
        try:
            return future.result()
        except CancelledError as error:
            raise BrokenExecutor(f"the dask scheduler at {self.address} has ended, or cancelled what it ran") from error
        except Exception as error:
            if killed(error):
                raise BrokenExecutor(str(error)) from error
            raise

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Shut down the executor of dask, which has no calls of its own; those that were submitted here go on."""
        self._inner.shutdown(wait=wait and not cancel_futures)

    def check_connected(self) -> None:
        """Raise BrokenExecutor if the client has given the scheduler up; while it tries to connect, there is hope."""
        if self._client.status in ("closing", "closed"):
            raise BrokenExecutor(f"the connection to the dask scheduler at {self.address} is lost")

    def watch(self) -> int:
        """Return the number of threads of all workers, and log once that there are none; BrokenExecutor if lost."""
        self.check_connected()
        with contextlib.suppress(OSError, TimeoutError, AttributeError):  # a busy scheduler, or one that is being lost
            threads = self._client.sync(self._client.scheduler.ncores, callback_timeout=PATIENCE)
            self._threads = sum(threads.values())
        self.restore_workers()
        waiting = not self._threads
        if waiting and not self._waiting:
            LOGGER.warning("waiting for workers at %s", self.address)
        self._waiting = waiting
        return self._threads

    def restore_workers(self) -> None:
        """Let the client's cluster start those of its workers again that it has given up.

        It gives up a worker process that is not there some seconds after a death, as one may be that dies repeatedly.
        """
        cluster = getattr(self._client, "cluster", None)
        wanted, there = (getattr(cluster, name, ()) for name in ("worker_spec", "workers"))
        if cluster is not None and set(wanted) - set(there):
            cluster.scale(len(wanted))

    def await_workers(self) -> None:
        """Wait until there is a worker."""
        if not self.watch():
            first = self.submit(os.getpid)  # a cluster that adapts starts workers only for tasks
            while not first.done():
                self.watch()
                time.sleep(POLL)
            self.result(first)
            self.watch()


def reached(executor: Executor) -> Executor:
    """Return the `Cluster` of an executor of dask, any other executor as it is."""
    client = getattr(executor, "_client", None)
    is_dask = not isinstance(executor, Cluster) and hasattr(client, "nthreads") and hasattr(client, "run")
    return Cluster(executor) if is_dask else executor


def killed(error: Exception) -> bool:
    """Return whether an exception means that workers of dask died while they ran a call."""
    distributed = sys.modules.get("distributed")
    return distributed is not None and isinstance(error, distributed.KilledWorker)
