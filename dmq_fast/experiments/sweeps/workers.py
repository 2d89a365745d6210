"""Processes that run the tasks of a sweep, one BLAS thread each; a death is known by the task that it was at."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import queue
import signal
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection
from multiprocessing.context import SpawnProcess
from multiprocessing.reduction import ForkingPickler
from typing import Any

from dmq_fast._support.threads import BLAS_THREADS
from dmq_fast.experiments.sweeps.errors import spelled

__all__ = ["WorkerDied", "WorkerStartError", "Workers"]


class WorkerDied(RuntimeError):
    """A worker process died at its task."""


class WorkerStartError(RuntimeError):
    """No worker process comes up: nothing can be run."""


class Workers(Executor):
    """An executor of `n` spawned processes.

    Unlike a ``ProcessPoolExecutor`` it survives the death of a worker, which only the future of the task at hand learns
    of (by `WorkerDied`), and can be stopped at once by `kill`. Workers leave when this process dies, however it does.

    Parameters
    ----------
    n : int
        Number of processes, started as tasks come.
    """

    def __init__(self, n: int) -> None:
        self._max_workers = n
        self._tasks: queue.SimpleQueue[tuple[Future[Any], memoryview] | None] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._processes: set[SpawnProcess] = set()
        self._closed = self._closed_at_once = False
        self._threads = [threading.Thread(target=self._serve, name=f"worker {i}", daemon=True) for i in range(n)]
        for thread in self._threads:
            thread.start()

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Queue a call; what cannot be pickled raises here."""
        task = ForkingPickler.dumps((fn, args, kwargs))
        with self._lock:
            if self._closed:
                raise RuntimeError("submit: these workers were shut down")
            future: Future[Any] = Future()
            self._tasks.put((future, task))
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Let the workers leave after the tasks that were submitted; see `Executor.shutdown`."""
        with self._lock:
            first, self._closed = not self._closed, True
        if cancel_futures:
            with contextlib.suppress(queue.Empty):
                while (task := self._tasks.get_nowait()) is None or task[0].cancel():
                    pass
        if first or cancel_futures:
            for _ in self._threads:
                self._tasks.put(None)
        if wait:
            for thread in self._threads:
                thread.join()

    def kill(self) -> None:
        """Stop at once: the tasks being run are lost, the others are cancelled."""
        with self._lock:
            self._closed_at_once = True
            for process in self._processes:
                process.kill()
        self.shutdown(cancel_futures=True)

    def _serve(self) -> None:
        """Hand tasks to one process, started anew whenever it died."""
        # Ctrl-C is for the sweep to act on. Workers inherit the mask, from their first instruction on, if the helper
        # that multiprocessing starts with the first of them is there already: to start it ends with a mask lifted.
        resource_tracker.ensure_running()
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        process: SpawnProcess | None = None
        link: Connection[Any, Any] | None = None
        try:
            while (item := self._tasks.get()) is not None:
                future, task = item
                if not future.set_running_or_notify_cancel():
                    continue
                try:
                    if process is None or link is None or not process.is_alive():
                        if link is not None:
                            link.close()
                        process, link = self._start()
                    succeeded, answer = self._ask(process, link, task)
                except Exception as error:
                    future.set_exception(error)
                    continue
                if succeeded:
                    future.set_result(answer)
                else:
                    future.set_exception(RuntimeError(answer))
        finally:
            if process is not None and link is not None:
                link.close()
                self._bury(process)

    def _start(self) -> tuple[SpawnProcess, Connection[Any, Any]]:
        """Start a process and wait until it is ready."""
        context = multiprocessing.get_context("spawn")
        link, other = context.Pipe()
        process = context.Process(target=work, args=(other,), daemon=True)
        try:
            with self._lock:
                if self._closed_at_once:
                    raise WorkerDied("the workers were stopped")
                with one_blas_thread():
                    process.start()
                self._processes.add(process)
            other.close()
            link.recv()
        except WorkerDied:
            raise
        except Exception as error:
            link.close()
            if process.pid is not None:
                self._bury(process)
            if self._closed_at_once:
                raise WorkerDied("the workers were stopped") from error
            raise WorkerStartError(
                "a worker process ended before it was ready; its own message is on standard error. A script that "
                "starts a sweep has to do so under `if __name__ == '__main__':`"
            ) from error
        return process, link

    def _ask(self, process: SpawnProcess, link: Connection[Any, Any], task: memoryview) -> tuple[bool, Any]:
        """Send a task and wait for the answer."""
        try:
            link.send_bytes(task)
            answer: tuple[bool, Any] = link.recv()
        except (EOFError, OSError) as error:
            link.close()
            self._bury(process)
            raise WorkerDied(f"the worker process died: {describe(process.exitcode)}") from error
        return answer

    def _bury(self, process: SpawnProcess) -> None:
        """Wait for a process that is dead or about to leave."""
        process.join()
        with self._lock:
            self._processes.discard(process)


def describe(exitcode: int | None) -> str:
    """Say how a process ended."""
    if exitcode is None or exitcode >= 0:
        return f"exit code {exitcode}"
    try:
        name = signal.Signals(-exitcode).name
    except ValueError:
        name = str(-exitcode)
    return f"signal {name}" + (" (out of memory?)" if name == "SIGKILL" else "")


# os.environ belongs to the process; several threads start workers.
environment_lock = threading.Lock()


@contextlib.contextmanager
def one_blas_thread() -> Iterator[None]:
    """Let the processes started in this block have one BLAS thread, whenever they load NumPy."""
    with environment_lock:
        before = {variable: os.environ.get(variable) for variable in BLAS_THREADS}
        os.environ.update(dict.fromkeys(BLAS_THREADS, "1"))
        try:
            yield
        finally:
            for variable, value in before.items():
                if value is None:
                    del os.environ[variable]
                else:
                    os.environ[variable] = value


def work(link: Connection[Any, Any]) -> None:
    """Answer tasks until the other side goes away; runs in the worker."""
    threading.Thread(target=leave_with_parent, daemon=True).start()
    # Standard output is the sweep's: what a run prints goes to standard error.
    os.dup2(2, 1)
    # The other side may go away at any moment, closing or breaking the pipe.
    with contextlib.suppress(EOFError, OSError):
        link.send("ready")
        while True:
            link.send_bytes(answer_to(link.recv_bytes()))


def answer_to(task: bytes) -> memoryview:
    """Do one task; return whether that went well, and the result or what was raised, pickled."""
    try:
        fn, args, kwargs = ForkingPickler.loads(task)
        return ForkingPickler.dumps((True, fn(*args, **kwargs)))
    except BaseException as error:
        # An exception need not survive a pickle; its text does.
        return ForkingPickler.dumps((False, spelled(error)))


def leave_with_parent() -> None:
    """End this process as soon as the one that started it is gone."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)
