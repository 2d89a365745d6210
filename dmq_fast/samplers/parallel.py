"""Chunks of trajectories on several workers."""

from __future__ import annotations

import contextlib
import functools
import itertools
import multiprocessing
import os
import pickle
import threading
from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import BrokenExecutor, Executor, Future, ProcessPoolExecutor, ThreadPoolExecutor
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dmq_fast._support.arguments import count, integer
from dmq_fast.kernels import Rule, Stream, heeding
from dmq_fast.moments import Moments
from dmq_fast.policy import Policy
from dmq_fast.samplers.base import Sampler
from dmq_fast.samplers.evaluate import Estimate

__all__ = ["ParallelSampler", "WorkerError", "pool_of"]


class WorkerError(RuntimeError):
    """A worker died. The message names call, chunk and stream of what it was to draw."""


class Chunk(NamedTuple):
    """One piece of a call: its stream, which holds call, number and key, and how many trajectories."""

    stream: Stream
    size: int


class ParallelSampler(Sampler):
    """Draws the chunks of `inner` on the workers of an executor and adds their moments up in order.

    The answers are those of `inner`, bit for bit, for any number and kind of workers.

    Parameters
    ----------
    inner : Sampler
        What answers a chunk. Workers in other processes receive it pickled.
    executor : concurrent.futures.Executor, or callable
        A pool of threads or processes, loky, dask's ``Client.get_executor()``, mpi4py and the like; it is used and
        left open. Not the pool that the caller itself runs in, nor one from before a fork. Or a function of no
        arguments that makes one: then it is closed by `close`, and made anew when a worker died.
    in_flight : int, optional
        How many chunks are drawn or kept at a time, which bounds memory; default: four times the number of workers,
        so that those of a millisecond keep them busy while the calling thread waits for a core.

    Raises
    ------
    TypeError, ValueError
        On an argument of a wrong type or out of range.

    Notes
    -----
    Only a call of several chunks can be split (16,384 trajectories each with a `RolloutSampler`); one of a single
    chunk is answered by `inner` at once, in the calling thread.

    A call that is given up, as on Ctrl-C, stops the chunks that threads are drawing after some ten milliseconds of
    computing; those of other processes are drawn to their ends.

    What `inner` raises comes through with a note that names call, chunk and stream. When a worker dies, all that was in
    flight is drawn again, one chunk at a time, on a new pool where `executor` makes one, or on the given one where it
    still works; a chunk that takes a worker down twice is reported by a `WorkerError`. It is never drawn in the
    calling process, which it would take down as well.
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
        self._shipped = Shipped(inner)
        self._make = executor if callable(executor) else None
        self._executor = None if callable(executor) else executor
        self._home = os.getpid()

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

    def pieces(
        self, policy: Policy, n: int, stream: Stream, levels: Sequence[int], returns_from: Sequence[int]
    ) -> Generator[Moments]:
        """Yield the moments of the chunks of a call in order; closing the generator cancels the remaining ones."""
        sizes = enumerate(self.inner.chunks(n))
        chunks = (Chunk(stream.at(stream.call, number), size) for number, size in sizes)
        tail = tuple(levels), tuple(returns_from)
        if len(self.inner.chunks(n)) == 1:
            chunk = next(chunks)
            yield self.collect_chunk(policy, chunk.size, rng=chunk.stream, levels=levels, returns_from=returns_from)
            return

        self._shipped.by_pickle = isinstance(self.executor, ProcessPoolExecutor)
        # What is being drawn when the call is given up need not be drawn to its end, in this process at least.
        stop = threading.Event() if isinstance(self.executor, ThreadPoolExecutor) else None

        def submit(chunk: Chunk) -> Future[Moments] | None:
            try:
                return self.executor.submit(draw, self._shipped, policy, chunk, *tail, os.getpid(), stop)
            except BrokenExecutor:
                return None  # a worker died since the last look; what is in flight will tell
            except Exception as error:
                error.add_note(f"executor: {type(self.executor).__name__} did not take {name_of(chunk)}")
                raise

        window = self.in_flight or 4 * workers_of(self.executor)
        got: Moments | None
        flying: deque[tuple[Chunk, Future[Moments] | None]] = deque()
        try:
            while True:
                for chunk in itertools.islice(chunks, window - len(flying)):
                    flying.append((chunk, submit(chunk)))
                if not flying:
                    return
                chunk, future = flying[0]
                with naming(chunk):
                    try:
                        got = answer(future)
                    except BrokenExecutor:
                        got = None
                if got is not None:
                    flying.popleft()
                    yield got
                    continue
                # Nobody knows which of them it was: one at a time, so that a second death has a name.
                self._renew()
                while flying:
                    chunk, future = flying[0]
                    with naming(chunk):
                        try:
                            piece = answer(future if succeeded(future) else submit(chunk))
                        except BrokenExecutor as error:
                            self._renew()
                            raise WorkerError(describe(chunk, self._make is not None)) from error
                    flying.popleft()
                    yield piece
        finally:
            if stop is not None:
                stop.set()
            for _, future in flying:
                if future is not None:
                    future.cancel()

    @property
    def executor(self) -> Executor:
        """The executor in use; made first where a function was given."""
        if self._home != os.getpid():
            # The workers of an executor stay behind in the parent: a fork that waited for them would hang.
            if self._make is None:
                raise RuntimeError(
                    "executor: expected one of this process, got one that came through a fork from process "
                    f"{self._home}; given a function that makes executors, a new one takes its place"
                )
            self._executor, self._home = None, os.getpid()
        if self._executor is None:
            assert self._make is not None
            made = self._make()
            if not isinstance(made, Executor):
                raise TypeError(f"executor: expected a function that makes an Executor, got {type(made).__name__}")
            self._executor = made
        return self._executor

    def _renew(self) -> None:
        """Let go of a broken executor, if another can be made."""
        if self._make is not None:
            self.close()

    def close(self) -> None:
        """Shut down the executor, if it was made here; waits for the chunks being drawn."""
        if self._make is not None and self._executor is not None and self._home == os.getpid():
            executor, self._executor = self._executor, None
            executor.shutdown(wait=True)

    def __enter__(self) -> ParallelSampler:
        return self

    def __exit__(self, *stop: object) -> None:
        self.close()


class Shipped:
    """A sampler on its way to another process: pickled once, and unpickled once by each worker."""

    def __init__(self, sampler: Sampler) -> None:
        self.sampler = sampler
        # Whether the executor's own pickler is that of Python, which knows no better.
        self.by_pickle = False

    @functools.cached_property
    def data(self) -> bytes | None:
        """The pickled sampler, or None where the executor's own pickler may know better (functions, `__main__`)."""
        try:
            data = pickle.dumps(self.sampler, pickle.HIGHEST_PROTOCOL)
        except Exception:  # picklers raise nearly anything; what the executor's own one raises will be seen
            return None
        return None if b"__main__" in data and not self.by_pickle else data

    def __reduce__(self) -> tuple[Any, ...]:
        return (Shipped, (self.sampler,)) if self.data is None else (Received, (self.data,))


class Received:
    """A sampler that has arrived: not unpickled before a chunk is drawn, so that what that raises has a chunk."""

    def __init__(self, data: bytes) -> None:
        self.data = data

    @property
    def sampler(self) -> Sampler:
        """The sampler, unpickled by the first chunk that brings it."""
        return unpacked(self.data)


def unpack(data: bytes) -> Sampler:
    """Return the sampler that was shipped."""
    sampler: Sampler = pickle.loads(data)
    return sampler


# What a worker received last.
unpacked = functools.lru_cache(maxsize=4)(unpack)


def draw(
    shipped: Shipped | Received,
    policy: Policy,
    chunk: Chunk,
    levels: Sequence[int],
    returns_from: Sequence[int],
    home: int,
    stop: threading.Event | None,
) -> Moments:
    """Draw one chunk; runs in the worker. `home` is the process that waits for the answer, until `stop` is set."""
    try:
        with heeding(stop):
            return shipped.sampler.collect_chunk(
                policy, chunk.size, rng=chunk.stream, levels=levels, returns_from=returns_from
            )
    except Exception as error:
        if os.getpid() == home or travels(error):
            raise
        # An exception that cannot be rebuilt on the other side would break the pool there.
        raise RuntimeError(f"{type(error).__module__}.{type(error).__qualname__}: {error}") from None


def travels(error: Exception) -> bool:
    """Whether an exception survives being pickled."""
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:  # its own __init__ runs, and raises whatever it likes
        return False
    return True


def answer(future: Future[Moments] | None) -> Moments:
    """Wait for a chunk; None stands for one that the executor did not take any more."""
    if future is None:
        raise BrokenExecutor("the executor takes no more work")
    return future.result()


def succeeded(future: Future[Moments] | None) -> bool:
    """Whether a chunk has been drawn."""
    return future is not None and future.done() and not future.cancelled() and future.exception() is None


@contextlib.contextmanager
def naming(chunk: Chunk) -> Iterator[None]:
    """Note on what is raised inside which trajectories it concerns."""
    try:
        yield
    except Exception as error:
        if not isinstance(error, BrokenExecutor | WorkerError):
            error.add_note(f"while drawing {name_of(chunk)}")
        raise


def name_of(chunk: Chunk) -> str:
    """Everything that is needed to draw a chunk again."""
    stream = chunk.stream
    return (
        f"chunk {stream.chunk} of call {stream.call}: {chunk.size} trajectories, "
        f"rng=Stream.from_key({stream.key}, call={stream.call}, chunk={stream.chunk})"
    )


def describe(chunk: Chunk, renewed: bool) -> str:
    """Message of a `WorkerError`."""
    if renewed:
        return f"a worker died twice while drawing {name_of(chunk)}"
    return (
        f"a worker died while drawing {name_of(chunk)}; it could not be drawn again, since the executor is broken or "
        "broke again. Given a function that makes executors, a new one takes its place"
    )


def workers_of(executor: Executor) -> int:
    """How many workers an executor has, as far as it tells."""
    client = getattr(executor, "_client", None)
    if client is not None and hasattr(client, "nthreads"):  # dask: threads by worker, wherever they are
        return sum(client.nthreads().values()) or 1
    counts = (getattr(executor, name, None) for name in ("_max_workers", "num_workers"))  # the latter: mpi4py
    return next((count for count in counts if isinstance(count, int) and count > 0), os.cpu_count() or 1)


def check_executor(executor: Any) -> None:
    """Refuse what is neither an executor nor a function."""
    if isinstance(executor, type) or not (isinstance(executor, Executor) or callable(executor)):
        raise TypeError(f"executor: expected an Executor or a function that makes one, got {executor!r}")


def check_workers(
    workers: int | None, executor: Executor | Callable[[], Executor] | None
) -> tuple[int | None, Executor | Callable[[], Executor] | None]:
    """Return a number of workers and an executor, of which there is one at most."""
    if workers is not None and executor is not None:
        raise ValueError("workers, executor: expected at most one of them, got both")
    if executor is not None:
        check_executor(executor)
    return None if workers is None else count("workers", workers, 1), executor


def spread(sampler: Sampler, workers: int | None, executor: Executor | Callable[[], Executor] | None) -> Sampler:
    """Return a sampler whose chunks are drawn on the executor or on so many workers; by default `sampler` itself."""
    if executor is not None:
        return ParallelSampler(sampler, executor)
    if workers is None or workers == 1:
        return sampler
    return ParallelSampler(sampler, pool_of(sampler, workers))


def pool_of(sampler: Sampler, workers: int) -> Callable[[], Executor]:
    """Return what makes the executor for a number of workers: threads, or processes where `sampler` asks for them.

    Compiled samplers release the GIL. One that runs Python says so by an attribute `holds_gil` that is true; its
    processes are spawned, since a forked BLAS may hang.
    """
    if sampler.holds_gil:
        context = multiprocessing.get_context("spawn")
        return functools.partial(ProcessPoolExecutor, workers, mp_context=context)
    return functools.partial(ThreadPoolExecutor, workers, thread_name_prefix="dmq_fast")
