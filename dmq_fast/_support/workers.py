"""`Workers`: an executor of processes that survives the death of one of them.

A worker is a plain child process. Tasks and answers are pickles on its standard input and output, each with its kind
and length before it. What it prints goes to standard error.
"""

from __future__ import annotations

import contextlib
import faulthandler
import io
import math
import multiprocessing
import os
import pickle
import queue
import re
import select
import signal
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future
from multiprocessing import spawn
from pathlib import Path
from typing import IO, Any, NamedTuple

from dmq_fast._support.files import fill_standard
from dmq_fast._support.threads import BLAS_THREADS

__all__ = ["Overdue", "WorkerDied", "WorkerStartError", "Workers", "ending", "in_worker"]

PATIENCE = 10.0
"""Seconds that a worker may take to exit."""

SLICE, LONGEST = 0.25, 1.0
"""Seconds between two looks at a worker that has a limit, and the most that such a time counts.

The process was stopped in a longer one, or starved.
"""

LATE = getattr(signal, "SIGVTALRM", signal.SIGTERM)
"""Signal that ends a worker at its limit. The kernel sends it only to who has set a timer for it."""

PROGRAM = "import sys; sys.path[:] = {path!r}; from dmq_fast._support.workers import work; work()"

MESSAGE, LIMIT = b"m", b"l"
"""Kinds of what is sent: a task or its answer, or the seconds and the name of the part that begins, None at its end."""

# Parent


class Overdue(NamedTuple):
    """The limit that a worker exceeded: its name, and the place in the code where the worker was."""

    name: str
    trace: str


class WorkerDied(RuntimeError):
    """A worker process died while it ran a task.

    `overdue` is the part of the task that went on beyond its limit, if the process was ended for that.
    """

    def __init__(self, message: str, overdue: Overdue | None = None) -> None:
        super().__init__(message)
        self.overdue = overdue


class WorkerStartError(RuntimeError):
    """No worker process, or no thread for one, could be started."""


class RemoteTraceback(Exception):
    """The cause of an exception that a task raised: its traceback in the worker, as text."""


class Workers(Executor):
    """An executor of `n` processes, with one BLAS thread each.

    Unlike a ``ProcessPoolExecutor`` it survives the death of a worker: only the future of the task that the worker was
    running raises `WorkerDied`. A task may limit the time of its parts by `ending`. `kill` stops all workers at once.
    They exit when this process ends, in whatever way.

    As with ``multiprocessing`` each imports the script of this process as ``__mp_main__``, so that tasks may refer to
    what it defines. So the script must start them under ``if __name__ == "__main__":``.

    A worker is in a session of its own, so it does not receive Ctrl-C. If SIGTERM or SIGINT ends it all the same, as
    when a batch system sends them to every process of a job, its task is done again, once.

    Parameters
    ----------
    n : int
        Number of processes, started as tasks come.

    Raises
    ------
    RuntimeError
        In a worker that imports the script.
    WorkerStartError
        If a thread cannot be started, as where few processes are allowed.
    """

    def __init__(self, n: int) -> None:
        if hasattr(multiprocessing.current_process(), "_inheriting"):  # as multiprocessing marks it
            raise RuntimeError("a script must start worker processes under `if __name__ == '__main__':`")
        fill_standard()  # or the pipe to a worker could take the number of its standard output
        self._max_workers = n
        self._tasks: queue.SimpleQueue[tuple[Future[Any], bytes] | None] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._workers: set[Worker] = set()
        self._closed = self._closed_at_once = False
        self._threads: list[threading.Thread] = []
        for i in range(n):
            thread = threading.Thread(target=self._serve, name=f"worker {i}", daemon=True)
            try:
                thread.start()
            except RuntimeError as error:  # too many processes, or the interpreter is ending
                self.shutdown()
                raise WorkerStartError(f"a thread for a worker process could not be started: {error}") from error
            self._threads.append(thread)

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Queue a call; raises an exception here if it cannot be pickled."""
        task = pickle.dumps((fn, args, kwargs), pickle.HIGHEST_PROTOCOL)
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

    def kill(self) -> None:
        """Stop at once: running tasks are lost, waiting tasks are cancelled."""
        with self._lock:
            self._closed_at_once = True
            for worker in self._workers:
                worker.process.kill()
        self.shutdown(cancel_futures=True)

    def _serve(self) -> None:
        """Send tasks to one process, and start a new process when it has died."""
        worker: Worker | None = None
        while (item := self._tasks.get()) is not None:
            future, task = item
            if not future.set_running_or_notify_cancel():
                continue
            try:
                worker = self._able(worker)
                try:
                    answer = worker.do(task)
                except WorkerDied:
                    if worker.process.returncode not in (-signal.SIGINT, -signal.SIGTERM):
                        raise
                    worker = self._able(worker)
                    answer = worker.do(task)
            except Exception as error:
                future.set_exception(error)
            else:
                future.set_result(answer)
        if worker is not None:
            self._end(worker)

    def _able(self, worker: Worker | None) -> Worker:
        """Return the worker while it lives, else a new one that is ready."""
        if worker is not None:
            if worker.process.poll() is None:
                return worker
            self._end(worker)
        data = preparation_data()
        with self._lock:
            if self._closed_at_once:
                raise WorkerDied("the workers were stopped")
            try:
                worker = Worker(data["sys_path"])
            except OSError as error:  # too many processes or open files
                raise WorkerStartError(f"a worker process could not be started: {error}") from error
            self._workers.add(worker)
        try:
            worker.do(pickle.dumps((prepare, (data,), {})))
        except Exception as error:
            self._end(worker)
            if self._closed_at_once:
                raise WorkerDied("the workers were stopped") from error
            raise WorkerStartError(
                f"a worker process could not be made ready: {type(error).__name__}: {error}; its standard error may "
                "tell more"
            ) from error
        return worker

    def _end(self, worker: Worker) -> None:
        """Wait until a worker has ended."""
        worker.end()
        with self._lock:
            self._workers.discard(worker)


def preparation_data() -> dict[str, Any]:
    """Return what `prepare` takes: folder and search path of this process, and its script if that is a file."""
    data = spawn.get_preparation_data("dmq_fast worker")
    data["authkey"] = bytes(data["authkey"])  # otherwise multiprocessing alone may pickle it
    if not os.path.isfile(data.get("init_main_from_path", "")):  # a script on standard input is called <stdin>
        data.pop("init_main_from_path", None)
    return data


class Worker:
    """A process that does one task after the other."""

    def __init__(self, path: list[str]) -> None:
        options = subprocess._args_from_interpreter_flags()  # type: ignore[attr-defined]
        self.process = subprocess.Popen(
            [sys.executable, *options, "-c", PROGRAM.format(path=path)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=os.environ | dict.fromkeys(BLAS_THREADS, "1"),
            start_new_session=True,
        )
        assert isinstance(self.process.stdout, io.BufferedReader)
        self.pipe = self.process.stdout.raw  # without a buffer, the system knows whether there is something to read

    def do(self, task: bytes) -> Any:
        """Send a task; return its result or raise its exception. WorkerDied if the process ends before."""
        assert self.process.stdin is not None
        answer: bytes | Overdue | None
        try:
            send(self.process.stdin, MESSAGE, task)
            answer = self.answer()
        except (EOFError, OSError):
            answer = None
        if not isinstance(answer, bytes):
            self.end()
            raise WorkerDied(f"the worker process died: {exit_text(self.process.returncode)}", answer)
        succeeded, result, trace = pickle.loads(answer)
        if succeeded:
            return result
        raise result from RemoteTraceback(f"\n{trace}")

    def answer(self) -> bytes | Overdue | None:
        """Wait for the answer to a task; end the process if a part of the task exceeds its limit. None if it died."""
        limit: tuple[float, str] | None = None
        while limit is None or self.speaks_within(limit[0]):
            kind = self.pipe.read(1)
            if kind != LIMIT:
                return received(self.pipe) if kind == MESSAGE else None
            limit = pickle.loads(received(self.pipe))
        return Overdue(limit[1], self.cut_off())

    def speaks_within(self, seconds: float) -> bool:
        """Wait until the process has sent something or has ended; False if it has run for these seconds without.

        This process counts them, as the worker may be stuck in code that keeps Python's lock. Time in which either of
        them was stopped does not count: a batch system may suspend a job, and a user a program.
        """
        while seconds > 0:
            began = time.monotonic()
            if readable(self.pipe, min(seconds, SLICE)):
                return True
            if not is_stopped(self.process.pid):
                seconds -= min(time.monotonic() - began, LONGEST)
        return False

    def cut_off(self) -> str:
        """End the process; return the tracebacks of its threads, which faulthandler writes."""
        self.process.send_signal(LATE)
        told = b""
        while readable(self.pipe, PATIENCE):
            if not (part := self.pipe.read(2**16)):
                break
            told += part
        else:  # it has changed what the signal does
            self.process.kill()
        found = re.search(rb"^(Current t|T)hread 0x", told, re.MULTILINE)
        return told[found.start() :].decode(errors="replace") if found else ""

    def end(self) -> None:
        """Wait for a process that has died or may exit, but not for what its environments have left behind."""
        assert self.process.stdin is not None and self.process.stdout is not None
        with contextlib.suppress(OSError):  # of what was not sent
            self.process.stdin.close()
        try:
            self.process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.process.stdout.close()


def readable(pipe: io.RawIOBase, seconds: float) -> bool:
    """Wait until there is something to read, or the other side has closed the pipe; False after these seconds."""
    poll = select.poll()
    poll.register(pipe.fileno(), select.POLLIN)
    return bool(poll.poll(math.ceil(1000 * seconds)))


def is_stopped(pid: int) -> bool:
    """Return whether a process is stopped, as by SIGSTOP; False where the system does not tell."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_bytes()
    except OSError:
        return False
    return stat.rpartition(b")")[2].split()[0] in (b"T", b"t")


def exit_text(exitcode: int) -> str:
    """Return the exit code of a process, or the signal that ended it, as text."""
    if exitcode >= 0:
        return f"exit code {exitcode}"
    try:
        name = signal.Signals(-exitcode).name
    except ValueError:
        name = str(-exitcode)
    return f"signal {name}" + (" (out of memory?)" if name == "SIGKILL" else "")


# Both sides


def send(pipe: IO[bytes], kind: bytes, data: bytes) -> None:
    """Write one message."""
    pipe.write(kind + len(data).to_bytes(8))
    pipe.write(data)
    pipe.flush()


def received(pipe: IO[bytes] | io.RawIOBase) -> bytes:
    """Read a message whose kind has been read; EOFError if the other side ends before."""
    return exactly(pipe, int.from_bytes(exactly(pipe, 8)))


def exactly(pipe: IO[bytes] | io.RawIOBase, size: int) -> bytes:
    """Read so many bytes."""
    data = bytearray()
    while len(data) < size:
        if not (part := pipe.read(size - len(data))):
            raise EOFError
        data += part
    return bytes(data)


# Worker

answers: IO[bytes] | None = None
"""The pipe to the parent, if this process is a worker."""


def in_worker() -> bool:
    """Return whether this process is a worker, which its parent replaces when it ends."""
    return answers is not None


@contextlib.contextmanager
def ending(seconds: float, name: str) -> Iterator[None]:
    """Let the parent end this worker if the block takes longer, whatever it is doing.

    The `WorkerDied` that the parent then raises has this name and the traceback.
    """
    assert answers is not None
    send(answers, LIMIT, pickle.dumps((seconds, name)))
    try:
        yield
    finally:
        send(answers, LIMIT, pickle.dumps(None))


def work() -> None:
    """Do tasks until the other side closes the pipe; the main function of a worker."""
    global answers
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # it ends this process, but is no exception in a task
    tasks, answers = open(os.dup(0), "rb"), open(os.dup(1), "wb")
    null = os.open(os.devnull, os.O_RDWR)
    os.dup2(null, 0)
    os.dup2(2, 1)
    with contextlib.suppress(AttributeError):  # Windows has no such function
        faulthandler.register(LATE, file=answers.fileno(), all_threads=True, chain=True)
    # A process that a task forks may outlive this one, whose end the parent sees by the end of the pipe.
    os.register_at_fork(after_in_child=lambda: os.dup2(null, answers.fileno(), inheritable=False))
    waiting: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
    busy = threading.Event()
    threading.Thread(target=listen, args=(tasks, waiting, busy), daemon=True).start()
    while (task := waiting.get()) is not None:
        answer = answer_to(task)
        busy.clear()
        try:
            send(answers, MESSAGE, answer)
        except OSError:  # the parent has ended
            os._exit(1)


def listen(tasks: IO[bytes], waiting: queue.SimpleQueue[bytes | None], busy: threading.Event) -> None:
    """Receive tasks; end this process as soon as its parent has ended."""
    try:
        with contextlib.suppress(EOFError):
            while tasks.read(1) == MESSAGE:
                task = received(tasks)
                busy.set()
                waiting.put(task)
    finally:
        if busy.is_set():
            os._exit(1)
        waiting.put(None)


def answer_to(task: bytes) -> bytes:
    """Do one task; return, pickled, whether it succeeded, its result or exception, and the text of its traceback."""
    try:
        fn, args, kwargs = pickle.loads(task)
        return pickle.dumps((True, fn(*args, **kwargs), ""), pickle.HIGHEST_PROTOCOL)
    except BaseException as error:
        unknown = isinstance(error, AttributeError) and "'__main__'" in str(error)
        if unknown and not hasattr(sys.modules["__main__"], "__file__"):
            error.add_note(
                "what a session or a script on standard input defines is not known to worker processes: put it in a "
                "file"
            )
        return pickle.dumps((False, portable(error), traceback.format_exc()))


def prepare(data: dict[str, Any]) -> None:
    """Import the script of the parent, and take over its folder and search path, as spawned processes do."""
    process = multiprocessing.current_process()
    process._inheriting = True  # type: ignore[attr-defined]
    try:
        spawn.prepare(data)
    finally:
        del process._inheriting  # type: ignore[attr-defined]


def portable(error: BaseException) -> Exception:
    """Return an exception if it can be raised in another process, else its type and message as a RuntimeError."""
    try:
        pickle.loads(pickle.dumps(error))  # unpickling runs its __init__, which may raise anything
        if isinstance(error, Exception):
            return error
    except Exception:
        pass
    return RuntimeError(f"{type(error).__qualname__}: {error}")
