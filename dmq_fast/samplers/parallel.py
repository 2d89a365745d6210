"""`ParallelSampler`: the chunks of a call, drawn on several threads or processes."""

from __future__ import annotations

import atexit
import contextlib
import functools
import itertools
import logging
import os
import pickle
import sys
import threading
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import BrokenExecutor, Executor, Future
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dmq_fast._support.checks import count, integer
from dmq_fast._support.cluster import Cluster, reached
from dmq_fast._support.threads import cpus
from dmq_fast._support.workers import WorkerDied, Workers, WorkerStartError, portable
from dmq_fast.kernels import Rule, Stream, heeding
from dmq_fast.moments import Moments
from dmq_fast.policy import Policy
from dmq_fast.rewards import RewardModel, ValueRange
from dmq_fast.samplers.base import Drawing, Estimate, Sampler, close
from dmq_fast.trajectories import Trajectories

__all__ = ["ParallelSampler", "WorkerError", "pool_of"]

LOGGER = logging.getLogger(__name__)


class WorkerError(RuntimeError):
    """Workers died or were lost. The message names the call, chunk and stream that they were drawing."""


class Chunk(NamedTuple):
    """One chunk of a call: its stream, which holds key, call and chunk number, and its number of trajectories."""

    stream: Stream
    size: int


class Task(NamedTuple):
    """A task of a worker: draw a chunk by a method of the sampler, with a policy and the moments that are wanted."""

    chunk: Chunk
    method: str
    policy: Policy
    wanted: dict[str, tuple[int, ...]]


class ParallelSampler(Sampler):
    """Draws the chunks of `inner` on the workers of an executor and adds their moments up in order.

    The answers are those of `inner`, bit for bit, for any number and kind of workers.

    Parameters
    ----------
    inner : Sampler
        The sampler that draws each chunk. Workers in other processes receive it pickled.
    executor : concurrent.futures.Executor, or callable
        A pool of threads or processes, loky, dask's ``Client.get_executor()``, mpi4py and the like; it is used and
        left open. Not the pool that the caller itself runs in, nor one from before a fork. Or a function of no
        arguments that makes one, which `close` shuts down.
    in_flight : int, optional
        Largest number of chunks submitted or kept at a time, which bounds memory. Default: four times the number of
        workers, so that chunks of a millisecond keep them busy while the calling thread waits for a core.

    Raises
    ------
    TypeError, ValueError
        On an argument of a wrong type or out of range.

    Notes
    -----
    Only a call of several chunks can be split (16,384 trajectories each with a `RolloutSampler`); a single chunk is
    drawn in the calling thread.

    When a call is cancelled, as by Ctrl-C, threads stop within some ten milliseconds of computing; other processes
    finish the chunks they have begun.

    Exceptions of `inner` are raised with a note that names call, chunk and stream. With ``workers=`` of a run, a chunk
    whose worker process died is drawn again by another one, and a chunk on which a worker dies twice raises a
    `WorkerError`. It is never drawn in the calling process, which could die as well. With an executor that was given,
    whatever breaks it raises a `WorkerError`. Dask itself tries several workers first.

    The worker processes of ``workers=`` unpickle `inner` once. Others receive it with every chunk, pickled by their
    executor, and close it after the chunk.

    Examples
    --------
    >>> from concurrent.futures import ThreadPoolExecutor
    >>> import dmq_fast as dmq
    >>> inner = dmq.samplers.RolloutSampler(dmq.environments.chain(horizon=5))
    >>> request = {"stream": dmq.Stream(0), "levels": [4]}
    >>> with ThreadPoolExecutor(2) as executor:
    ...     moments = ParallelSampler(inner, executor).collect(dmq.Policy.uniform(5), 50_000, **request)
    >>> bool((moments.grams == inner.collect(dmq.Policy.uniform(5), 50_000, **request).grams).all())
    True
    """

    def __init__(
        self, inner: Sampler, executor: Executor | Callable[[], Executor], *, in_flight: int | None = None
    ) -> None:
        if not isinstance(inner, Sampler):
            raise TypeError(f"inner: expected a Sampler, got {type(inner).__name__}")
        check_executor(executor)
        self.inner = inner
        self.horizon, self.n_actions, self.dimension = inner.horizon, inner.n_actions, inner.dimension
        self.arithmetic, self.env = inner.arithmetic, inner.env
        self.in_flight = None if in_flight is None else integer("in_flight", in_flight, 1)
        self._make = executor if callable(executor) else None
        self._executor = None if callable(executor) else reached(executor)

    @property
    def rewards(self) -> RewardModel:
        """Range and noise of the rewards, those of `inner`."""
        return self.inner.rewards

    def declaring(self, value_range: ValueRange, noise: float | None) -> Sampler:
        """Return `inner` with this range and noise, on the same executor; see `Sampler.declaring`."""
        inner = self.inner.declaring(value_range, noise)
        return ParallelSampler(inner, self.executor, in_flight=self.in_flight)

    def chunks(self, n: int) -> Sequence[int]:
        """Return the sizes of the chunks of n trajectories, those of `inner`."""
        return self.inner.chunks(n)

    def collect_chunk(
        self, policy: Policy, n: int, *, rng: Stream, levels: Sequence[int], returns_from: Sequence[int] = ()
    ) -> Moments:
        """Roll out one chunk in the calling thread; see `Sampler.collect_chunk`."""
        with naming(Chunk(rng, n)):
            return self.inner.collect_chunk(policy, n, rng=rng, levels=levels, returns_from=returns_from)

    def evaluate(self, policy: Policy, n: int, *, stream: Stream) -> Estimate:
        """Estimate the value of `policy` as `inner` does, in the calling thread; see `Sampler.evaluate`."""
        return self.inner.evaluate(policy, n, stream=stream)

    def actions(self, level: int, rule: Rule) -> NDArray[np.int64] | None:
        """Return the action of a rule in each state of a level, as `inner` does; see `Sampler.actions`."""
        return self.inner.actions(level, rule)

    def fingerprint(self) -> Any:
        """Return the fingerprint of `inner`; see `Sampler.fingerprint`."""
        return self.inner.fingerprint()

    def unwrapped(self) -> Sampler:
        """Return the sampler whose chunks are drawn on workers."""
        return self.inner.unwrapped()

    def trajectories_chunk(self, policy: Policy, n: int, *, rng: Stream) -> Trajectories:
        """Roll out one chunk in the calling thread and show it; see `Sampler.trajectories_chunk`."""
        with naming(Chunk(rng, n)):
            return self.inner.trajectories_chunk(policy, n, rng=rng)

    @property
    def shows_trajectories(self) -> bool:
        """Whether `inner` does."""
        return self.inner.shows_trajectories

    def pieces(
        self, policy: Policy, n: int, stream: Stream, levels: Sequence[int], returns_from: Sequence[int]
    ) -> Generator[Moments]:
        """Yield the moments of the chunks of a call in order; closing the generator cancels the remaining ones."""
        if len(self.inner.chunks(n)) == 1:
            position = stream.at(stream.call, 0)
            yield self.collect_chunk(policy, n, rng=position, levels=levels, returns_from=returns_from)
            return
        wanted = {"levels": tuple(levels), "returns_from": tuple(returns_from)}
        sizes = enumerate(self.inner.chunks(n))
        chunks = (Chunk(stream.at(stream.call, chunk), size) for chunk, size in sizes)
        yield from self._in_order(Task(chunk, "collect_chunk", policy, wanted) for chunk in chunks)

    def series(self, drawings: Iterable[Drawing]) -> Generator[Trajectories]:
        """Yield the trajectories of several drawings in order; closing the generator cancels the remaining ones."""
        yield from self._in_order(Task(Chunk(stream, n), "trajectories_chunk", pi, {}) for pi, n, stream in drawings)

    def _in_order(self, tasks: Iterator[Task]) -> Generator[Any]:
        """Yield the answers of tasks in order; closing the generator cancels the remaining ones."""
        executor = self.executor
        # Set when the call is cancelled: threads of this process then stop drawing.
        stop = threading.Event() if has_threads(executor) else None

        def submit(task: Task) -> Future[Any] | None:
            try:
                sampler = self._pickled if isinstance(executor, Workers) else self.inner
                return executor.submit(draw, sampler, task, os.getpid(), stop)
            except BrokenExecutor:
                return None  # the results of the submitted chunks show why
            except Exception as error:
                if isinstance(error, RuntimeError) and self._make is not None and has_threads(executor):
                    raise WorkerStartError(f"a worker thread could not be started: {error}") from error
                error.add_note(f"executor: {type(executor).__name__} did not take {name_of(task.chunk)}")
                raise

        window = self.in_flight or 4 * workers_of(executor)
        flying: deque[tuple[Task, Future[Any] | None]] = deque()
        try:
            while True:
                for task in itertools.islice(tasks, window - len(flying)):
                    flying.append((task, submit(task)))
                if not flying:
                    return
                task, future = flying[0]
                with naming(task.chunk):
                    try:
                        got = answer(executor, future)
                    except WorkerDied:  # another worker has taken its place
                        got = answer(executor, submit(task))
                flying.popleft()
                yield got
        finally:
            if stop is not None:
                stop.set()
            for _, future in flying:
                if future is not None:
                    future.cancel()

    @functools.cached_property
    def _pickled(self) -> bytes:
        """The sampler as own worker processes receive it with every chunk."""
        return pickle.dumps(self.inner, pickle.HIGHEST_PROTOCOL)

    @property
    def executor(self) -> Executor:
        """The executor in use; made on first access where a function was given."""
        if self._executor is None:
            assert self._make is not None
            self._executor = made(self._make)
        return self._executor

    def close(self) -> None:
        """Shut down an executor that was made here; waits for the chunks being drawn."""
        if self._make is not None and self._executor is not None:
            executor, self._executor = self._executor, None
            executor.shutdown(wait=True)

    def __enter__(self) -> ParallelSampler:
        return self

    def __exit__(self, *stop: object) -> None:
        self.close()


@functools.lru_cache(maxsize=1)
def unpickled(data: bytes) -> Sampler:
    """Return the sampler of an own worker process, whose environment is closed when the process ends."""
    sampler: Sampler = pickle.loads(data)
    atexit.register(close, sampler)
    return sampler


def draw(given: Sampler | bytes, task: Task, home: int, stop: threading.Event | None) -> Any:
    """Draw one chunk in a worker, until `stop` is set; `home` is the id of the process that submitted it."""
    sampler = unpickled(given) if isinstance(given, bytes) else given
    try:
        with heeding(stop):
            method = getattr(sampler, task.method)
            return method(task.policy, task.chunk.size, rng=task.chunk.stream, **task.wanted)
    except Exception as error:
        if os.getpid() == home:
            raise
        raise portable(error) from None  # one that cannot be rebuilt on the other side would break the pool there
    finally:
        if os.getpid() != home and sampler is given:  # it came with this chunk
            with contextlib.suppress(Exception):  # the moments, or the first exception, are what counts
                close(sampler)


def answer(executor: Executor, future: Future[Any] | None) -> Any:
    """Wait for a chunk and return what was drawn; None stands for a chunk that the executor refused."""
    if isinstance(executor, Cluster):  # it raises an error when the scheduler is lost
        return executor.result(future)
    if future is None:
        raise BrokenExecutor("the executor takes no more work")
    # A library may have system calls go on after a signal, as polars does when it is imported; then Ctrl-C does not end
    # a wait that has no end of its own.
    while True:
        try:
            return future.result(timeout=0.5)
        except TimeoutError:
            if future.done():  # or the chunk raised it
                return future.result()


@contextlib.contextmanager
def naming(chunk: Chunk) -> Iterator[None]:
    """Name the chunk that was being drawn: in a note, or in a `WorkerError` where workers died or were lost."""
    try:
        yield
    except (BrokenExecutor, WorkerDied) as error:
        raise WorkerError(f"{str(error).rstrip('.')}; the loss came while drawing {name_of(chunk)}") from error
    except Exception as error:
        error.add_note(f"while drawing {name_of(chunk)}")
        raise


def name_of(chunk: Chunk) -> str:
    """Describe a chunk by all that is needed to draw it again."""
    stream = chunk.stream
    return (
        f"chunk {stream.chunk} of call {stream.call}: {chunk.size} trajectories, "
        f"rng=Stream.from_key({stream.key}, call={stream.call}, chunk={stream.chunk})"
    )


def workers_of(executor: Executor) -> int:
    """Return the number of workers of an executor, or of CPUs of this process where it is unknown."""
    executor = reached(executor)
    if isinstance(executor, Cluster):
        return executor.watch() or 1
    counts = (getattr(executor, name, None) for name in ("_max_workers", "num_workers"))  # the latter: mpi4py
    return next((count for count in counts if isinstance(count, int) and count > 0), cpus())


def check_executor(executor: Any) -> None:
    """Raise TypeError for anything but an executor or a function."""
    if isinstance(executor, type) or not (isinstance(executor, Executor) or callable(executor)):
        raise TypeError(f"executor: expected an Executor or a function that makes one, got {executor!r}")


def made(make: Callable[[], Executor]) -> Executor:
    """Return the executor that a function makes; TypeError if it makes something else."""
    executor = make()
    if not isinstance(executor, Executor):
        raise TypeError(f"executor: expected a function that makes an Executor, got {type(executor).__name__}")
    return reached(executor)


def check_workers(
    workers: int | None, executor: Executor | Callable[[], Executor] | None
) -> tuple[int | None, Executor | Callable[[], Executor] | None]:
    """Check what draws chunks: a number of workers or an executor, or neither; return both."""
    if workers is not None and executor is not None:
        raise ValueError("workers, executor: expected at most one of them, got both")
    if executor is not None:
        check_executor(executor)
    number = None if workers is None else count("workers", workers, 1)
    return number, executor


def spread(sampler: Sampler, workers: int | None, executor: Executor | Callable[[], Executor] | None) -> Sampler:
    """Return a sampler whose chunks are drawn on `executor` or on `workers`; `sampler` itself if both are None."""
    if executor is None and workers in (None, 1):
        return sampler
    if getattr(sampler.unwrapped().env, "ordered", False):
        LOGGER.warning(
            "workers: not used, as episodes of this environment depend on those before them: it takes no seed, or its "
            "features are numbers of what was seen"
        )
        return sampler
    if executor is not None:
        return ParallelSampler(sampler, executor)
    assert workers is not None
    if not (sampler.holds_gil or threading.main_thread().is_alive()):
        LOGGER.warning("the main thread has ended, and Python lets no pool of threads start after it: one thread draws")
        return sampler
    return ParallelSampler(sampler, pool_of(sampler, workers))


def pool_of(sampler: Sampler, workers: int) -> Callable[[], Executor]:
    """Return a function that makes an executor: threads, or processes for a sampler that holds the GIL."""
    if sampler.holds_gil:
        return functools.partial(Workers, workers)
    return functools.partial(thread_pool, workers)


def thread_pool(workers: int) -> Executor:
    """Return a pool of threads."""
    from concurrent.futures import ThreadPoolExecutor  # its module cannot be imported once the main thread has ended

    return ThreadPoolExecutor(workers, thread_name_prefix="dmq_fast")


def has_threads(executor: Executor) -> bool:
    """Return whether an executor is a pool of threads."""
    module = sys.modules.get("concurrent.futures.thread")
    return module is not None and isinstance(executor, module.ThreadPoolExecutor)
