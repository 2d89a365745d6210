"""A pool of worker processes that survives the death of a worker and reports which task it was running."""

from __future__ import annotations

import atexit
import contextlib
import functools
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

from dmq_fast._support.files import fill_standard
from dmq_fast._support.threads import BLAS_THREADS
from dmq_fast.experiments.sweeps.errors import spelled
from dmq_fast.experiments.sweeps.limits import LastWords, Overdue

__all__ = ["WorkerDied", "WorkerStartError", "Workers"]


PATIENCE = 10.0
"""Seconds that a worker may take to exit."""


class WorkerDied(RuntimeError):
    """A worker process died while it ran a task.

    `overdue` is the part of the task that went on beyond its limit, if the process ended itself for that.
    """

    def __init__(self, message: str, overdue: Overdue | None = None) -> None:
        super().__init__(message)
        self.overdue = overdue


class WorkerStartError(RuntimeError):
    """No worker process could be started."""


class Workers(Executor):
    """An executor of `n` spawned processes, with one BLAS thread each.

    Unlike a ``ProcessPoolExecutor`` it survives the death of a worker: only the future of the task that the worker was
    running raises `WorkerDied`. A task may limit the time of its parts by `limits.limited`. `kill` stops all workers at
    once. They exit when this process ends, in whatever way.

    Parameters
    ----------
    n : int
        Number of processes, started as tasks come.
    """

    def __init__(self, n: int) -> None:
        fill_standard()  # or the pipe to a worker could take the number of its standard output
        self._max_workers = n
        self._tasks: queue.SimpleQueue[tuple[Future[Any], memoryview] | None] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._processes: set[SpawnProcess] = set()
        self._closed = self._closed_at_once = False
        self._threads = [threading.Thread(target=self._serve, name=f"worker {i}", daemon=True) for i in range(n)]
        # The processes are not daemonic, since those may not start others, as environments do. So multiprocessing would
        # wait for them at exit; this comes before.
        atexit.register(self.kill)
        for thread in self._threads:
            thread.start()

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Queue a call; raises an exception here if it cannot be pickled."""
        task = ForkingPickler.dumps((fn, args, kwargs))
        with self._lock:
            if self._closed:
                raise RuntimeError("submit: these workers were shut down")
            future: Future[Any] = Future()
            self._tasks.put((future, task))
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Let the workers exit after the submitted tasks; see `Executor.shutdown`."""
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
            atexit.unregister(self.kill)

    def kill(self) -> None:
        """Stop at once: running tasks are lost, waiting tasks are cancelled."""
        with self._lock:
            self._closed_at_once = True
            for process in self._processes:
                process.kill()
        self.shutdown(cancel_futures=True)

    def _serve(self) -> None:
        """Send tasks to one process, and start a new process when it has died."""
        # Only the sweep itself reacts to signals that a terminal or a batch system sends to all of its processes. So
        # workers start with them blocked. They inherit this thread's mask. Starting the resource tracker of
        # multiprocessing would lift the mask, so it must be running before.
        resource_tracker.ensure_running()
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGTERM})
        process: SpawnProcess | None = None
        link: Connection[Any, Any] | None = None
        words = LastWords()
        try:
            while (item := self._tasks.get()) is not None:
                future, task = item
                if not future.set_running_or_notify_cancel():
                    continue
                try:
                    if process is None or link is None or not process.is_alive():
                        if link is not None:
                            link.close()
                        process, link = self._start(words)
                    succeeded, answer = self._ask(process, link, task, words)
                except Exception as error:
                    future.set_exception(error)
                    continue
                if succeeded:
                    future.set_result(answer)
                else:
                    future.set_exception(RuntimeError(answer))
        finally:
            words.close()
            if process is not None and link is not None:
                link.close()
                self._bury(process)

    def _start(self, words: LastWords) -> tuple[SpawnProcess, Connection[Any, Any]]:
        """Start a process; return it when it is ready."""
        context = multiprocessing.get_context("spawn")
        link, other = context.Pipe()
        words.empty()
        process = context.Process(target=work, args=(other, words))
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
                "a worker process ended before it was ready; its error message is on standard error. A script must "
                "start a sweep under `if __name__ == '__main__':`"
            ) from error
        return process, link

    def _ask(
        self, process: SpawnProcess, link: Connection[Any, Any], task: memoryview, words: LastWords
    ) -> tuple[bool, Any]:
        """Send a task and wait for the answer."""
        try:
            link.send_bytes(task)
            answer: tuple[bool, Any] = link.recv()
        except (EOFError, OSError) as error:
            link.close()
            self._bury(process)
            raise WorkerDied(f"the worker process died: {exit_text(process.exitcode)}", words.read()) from error
        return answer

    def _bury(self, process: SpawnProcess) -> None:
        """Wait for a process that has died or is about to exit, but not for what its environments have left behind."""
        process.join(PATIENCE)
        process.kill()
        process.join()
        with self._lock:
            self._processes.discard(process)


def exit_text(exitcode: int | None) -> str:
    """Return the exit code of a process, or the signal that ended it, as text."""
    if exitcode is None or exitcode >= 0:
        return f"exit code {exitcode}"
    try:
        name = signal.Signals(-exitcode).name
    except ValueError:
        name = str(-exitcode)
    return f"signal {name}" + (" (out of memory?)" if name == "SIGKILL" else "")


# Several threads start workers, and os.environ is shared by all of them.
environment_lock = threading.Lock()


@contextlib.contextmanager
def one_blas_thread() -> Iterator[None]:
    """Set the environment so that processes started in this block have one BLAS thread."""
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


def work(link: Connection[Any, Any], words: LastWords) -> None:
    """Run tasks until the other side closes the pipe; the main function of a worker, which has received its words."""
    leave_signals_to_parent()
    threading.Thread(target=leave_with_parent, daemon=True).start()
    # The output of runs goes to standard error, as the sweep writes its results to standard output.
    os.dup2(2, 1)
    # The other side may end at any moment, which closes or breaks the pipe.
    with contextlib.suppress(EOFError, OSError):
        link.send("ready")
        while True:
            link.send_bytes(answer_to(link.recv_bytes()))


def leave_signals_to_parent() -> None:
    """Take no notice of SIGTERM, but let the processes that an environment starts end by it; SIGINT is blocked."""

    def mask(how: int) -> None:
        signal.pthread_sigmask(how, {signal.SIGTERM})

    def heed() -> None:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        mask(signal.SIG_UNBLOCK)

    # Programs started by exec do not inherit a handler, forked processes do. Python forgets the signals that come to
    # one of these before it can be told otherwise, so they have to wait.
    signal.signal(signal.SIGTERM, lambda number, frame: None)
    os.register_at_fork(
        before=functools.partial(mask, signal.SIG_BLOCK),
        after_in_parent=functools.partial(mask, signal.SIG_UNBLOCK),
        after_in_child=heed,
    )
    mask(signal.SIG_UNBLOCK)


def answer_to(task: bytes) -> memoryview:
    """Run one task; return, pickled, whether it succeeded and its result or the text of its exception."""
    try:
        fn, args, kwargs = ForkingPickler.loads(task)
        return ForkingPickler.dumps((True, fn(*args, **kwargs)))
    except BaseException as error:
        # Not every exception can be pickled, but its text can.
        return ForkingPickler.dumps((False, spelled(error)))


def leave_with_parent() -> None:
    """End this process as soon as its parent has ended."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)
