"""Feeds drawn inputs to everything public, under the sanitizers or not, and lists those that break it.

    python tests/fuzz.py --inputs 1000000 --seed 0     # all targets, which share the inputs by their weights
    python tests/fuzz.py --targets kernels commands.run  # the targets of tests/fuzz_kernels.py, and one more
    python tests/fuzz.py --only kernels.dsec:4711      # one input again, in this process

The targets are in the modules tests/fuzz_*.py; each has a dictionary TARGETS. A target draws one input from the
generator that it is given and runs it. It may succeed, or raise one of REFUSALS or of its own refusals, with a text.
All else is a finding: another exception (also a failed assertion of the target), a signal, a sanitizer's abort, or more
than LIMIT seconds. Inputs depend on the seed, the target and the index alone. Workers are processes, so a finding ends
one worker at most, and the run goes on with the next input. The exit code is 1 where something was found.

CONTRIBUTING.md says how to build for the sanitizers.
"""

import argparse
import dataclasses
import faulthandler
import importlib
import multiprocessing
import os
import pathlib
import queue
import re
import resource
import signal
import sys
import tempfile
import threading
import time
import traceback
import warnings
import zlib
from collections.abc import Callable
from multiprocessing.connection import Connection

import numpy as np

REFUSALS: tuple[type[Exception], ...] = (ValueError, TypeError, OverflowError, IndexError, BufferError)
LIMIT = 20.0  # seconds for one input
START = 120.0  # seconds for the imports of a worker
CHUNK = 500  # inputs that a worker is asked for at once
PATIENCE = 20  # workers that one target may end before the rest of its inputs is dropped
MEMORY = 4 << 30  # bytes of one worker


@dataclasses.dataclass(frozen=True)
class Target:
    """Says how one input is drawn and run, and which share of the inputs is for it."""

    run: Callable[[np.random.Generator], None]
    weight: float = 1.0
    refusals: tuple[type[BaseException], ...] = ()  # beside REFUSALS; an exception of these may be without text


@dataclasses.dataclass
class Tally:
    """Counts what became of the inputs of one target; finds maps a kind of finding to the inputs and the first text."""

    accepted: int = 0
    refused: int = 0
    deaths: int = 0
    finds: dict[str, tuple[list[int], str]] = dataclasses.field(default_factory=dict)

    def found(self, kind: str, index: int, text: str) -> None:
        self.finds.setdefault(kind, ([], text))[0].append(index)

    def died(self, kind: str, index: int, text: str) -> None:
        self.found(kind, index, text)
        self.deaths += 1

    def add(self, other: "Tally", name: str) -> None:
        """Adds the counts of other inputs, and says at once what they found first."""
        self.accepted, self.refused = self.accepted + other.accepted, self.refused + other.refused
        self.deaths += other.deaths
        for kind, (indexes, text) in other.finds.items():
            if kind not in self.finds:
                print(f"{name}:{indexes[0]}: {kind}", file=sys.stderr, flush=True)
            for index in indexes:
                self.found(kind, index, text)


def all_targets() -> dict[str, Target]:
    """Returns the targets of all modules by their names, MODULE.TARGET without the prefix fuzz_."""
    targets = {}
    for path in sorted(pathlib.Path(__file__).parent.glob("fuzz_*.py")):
        for name, target in importlib.import_module(path.stem).TARGETS.items():
            targets[f"{path.stem.removeprefix('fuzz_')}.{name}"] = target
    return targets


def sanitizers() -> str:
    """Returns for which sanitizers the kernels were built."""
    from dmq_fast.kernels import _dsec

    code = pathlib.Path(_dsec.__file__).read_bytes()
    marks = {"address": b"__asan_", "undefined": b"__ubsan_"}
    return ", ".join(name for name, mark in marks.items() if mark in code) or "none"


def run_one(name: str, target: Target, seed: int, index: int) -> str:
    """Runs one input. Returns how it was refused, or "" where it was accepted; a finding raises."""
    key = (zlib.crc32(name.encode()), index)
    generator = np.random.Generator(np.random.PCG64(np.random.SeedSequence(seed, spawn_key=key)))
    try:
        target.run(generator)
    except target.refusals as error:
        return f"{type(error).__name__}: {error}"
    except REFUSALS as error:
        if not str(error):
            raise AssertionError(f"{type(error).__name__} without a text") from error
        return f"{type(error).__name__}: {error}"
    return ""


def work(seed: int, pipe: Connection, errors: str) -> None:
    """Runs the chunks that are asked for. Answers for each input: kind and text of a finding, or if it was refused."""
    said = os.open(errors, os.O_WRONLY | os.O_APPEND)
    for descriptor, to in ((0, os.open(os.devnull, os.O_RDONLY)), (1, said), (2, said)):
        os.dup2(to, descriptor)
    faulthandler.enable()
    warnings.simplefilter("ignore")
    if sanitizers() == "none":  # their shadow is terabytes of address space
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    targets = all_targets()
    pipe.send("ready")
    while True:
        name, start, stop = pipe.recv()
        for index in range(start, stop):
            try:
                pipe.send(bool(run_one(name, targets[name], seed, index)))
            except BaseException as error:
                frame = traceback.extract_tb(error.__traceback__)[-1]
                place = f"line {frame.lineno} of {pathlib.Path(frame.filename).name}"
                pipe.send((f"{type(error).__name__} in {frame.name}, {place}", traceback.format_exc()))


class Worker:
    """Owns one process that runs inputs, and starts it again when an input has ended it."""

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self._process: multiprocessing.process.BaseProcess | None = None
        self._errors = tempfile.NamedTemporaryFile()  # what the process writes about its end

    def run(self, name: str, start: int, stop: int, tally: Tally) -> int:
        """Runs inputs of a target. Returns the index behind the last one, below `stop` where that was fatal."""
        if self._process is None:
            self._errors.truncate(0)
            context = multiprocessing.get_context("spawn")
            self._pipe, other = context.Pipe()
            arguments = self._seed, other, self._errors.name
            self._process = context.Process(target=work, args=arguments, daemon=True)
            self._process.start()
            other.close()
            if not self._pipe.poll(START) or self._pipe.recv() != "ready":
                raise RuntimeError(f"no worker started: {self._end()}")
        self._pipe.send((name, start, stop))
        for index in range(start, stop):
            try:
                if not self._pipe.poll(LIMIT):
                    os.kill(self._process.pid or 0, signal.SIGABRT)
                    tally.died(f"no answer within {LIMIT:g} s", index, self._end()[1])
                    return index + 1
                answer = self._pipe.recv()
            except (EOFError, ConnectionResetError):
                code, text = self._end()
                said = re.search(r"SUMMARY: .*|runtime error: .*", text)
                ended = signal.Signals(-code).name if code < 0 else f"exit code {code}"
                tally.died(said[0] if said else ended, index, text)
                return index + 1
            if isinstance(answer, tuple):
                tally.found(answer[0], index, answer[1])
            else:
                tally.accepted += not answer
                tally.refused += answer
        return stop

    def _end(self) -> tuple[int, str]:
        """Waits for the process, or ends it. Returns its exit code and what it said about its end."""
        assert self._process is not None
        self._process.join(10)
        if self._process.exitcode is None:
            self.close()
        code, self._process = self._process.exitcode, None
        self._errors.seek(0)
        text = self._errors.read().decode(errors="replace")
        text = re.sub(r"Extension modules: .*\n|.*WARNING: AddressSanitizer failed to allocate.*\n", "", text)
        return code or 0, text

    def close(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.join()


def chunks(targets: dict[str, Target], inputs: int) -> list[tuple[str, int, int]]:
    """Returns the chunks of all targets, their shares of the inputs mixed evenly over the run."""
    total = sum(target.weight for target in targets.values())
    placed = []
    for name, target in targets.items():
        count = max(1, round(inputs * target.weight / total))
        placed += [(start / count, name, start, min(start + CHUNK, count)) for start in range(0, count, CHUNK)]
    return [(name, start, stop) for _, name, start, stop in sorted(placed)]


def fuzz(targets: dict[str, Target], inputs: int, seed: int, jobs: int, minutes: float) -> dict[str, Tally]:
    """Runs the inputs on workers. Returns what became of them, by target."""
    todo: queue.SimpleQueue[tuple[str, int, int]] = queue.SimpleQueue()
    for chunk in chunks(targets, inputs):
        todo.put(chunk)
    tallies = {name: Tally() for name in targets}
    lock, end = threading.Lock(), time.monotonic() + 60 * minutes
    failures: list[BaseException] = []  # of this script

    def serve() -> None:
        worker = Worker(seed)
        try:
            while time.monotonic() < end:
                name, start, stop = todo.get_nowait()
                whole = tallies[name]
                while start < stop and whole.deaths < PATIENCE:
                    tally = Tally()
                    start = worker.run(name, start, stop, tally)
                    with lock:
                        whole.add(tally, name)
        except queue.Empty:
            pass
        except BaseException as error:
            failures.append(error)
        finally:
            worker.close()

    threads = [threading.Thread(target=serve, daemon=True) for _ in range(jobs)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]
    return tallies


def show(tallies: dict[str, Tally], seed: int) -> bool:
    """Prints what was found and a table of counts. Returns whether something was found."""
    found = False
    for name, tally in tallies.items():
        for kind, (indexes, text) in tally.finds.items():
            found = True
            print(f"\n== {name}: {kind}\n{text.strip()[:6000]}")
            print(f"{len(indexes)} inputs; again: python tests/fuzz.py --seed {seed} --only {name}:{min(indexes)}")
        if tally.deaths >= PATIENCE:
            print(f"\n== {name} ended {tally.deaths} workers: the rest of its inputs was dropped")
    print(f"\n{'target':32}{'inputs':>10}{'accepted':>10}{'refused':>10}{'found':>8}{'accepted':>10}")
    rows = [
        (name, tally.accepted, tally.refused, sum(len(indexes) for indexes, _ in tally.finds.values()))
        for name, tally in tallies.items()
    ]
    rows.append(("all", sum(row[1] for row in rows), sum(row[2] for row in rows), sum(row[3] for row in rows)))
    for name, accepted, refused, finds in rows:
        inputs = accepted + refused + finds
        print(f"{name:32}{inputs:>10,}{accepted:>10,}{refused:>10,}{finds:>8,}{accepted / max(inputs, 1):>10.0%}")
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--inputs", type=int, default=20_000, help="over all targets")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--targets", nargs="+", metavar="NAME", help="modules or targets; all by default")
    parser.add_argument("--jobs", type=int, default=2, help="worker processes")
    parser.add_argument("--minutes", type=float, default=float("inf"), help="begin no more inputs after this time")
    parser.add_argument("--only", metavar="TARGET:INDEX", help="run one input in this process")
    options = parser.parse_args()
    # A size that cannot be had is a MemoryError for Python, not an abort.
    sizes = f"allocator_may_return_null=1:max_allocation_size_mb={MEMORY >> 20}"
    os.environ["ASAN_OPTIONS"] = f"{os.environ.get('ASAN_OPTIONS', '')}:{sizes}"
    os.environ["OPENBLAS_NUM_THREADS"] = "1"
    targets = all_targets()
    if options.only:
        name, index = options.only.split(":")
        print(run_one(name, targets[name], options.seed, int(index)) or "accepted")
        return 0
    for wanted in options.targets or ():
        if not any(wanted in (name, name.partition(".")[0]) for name in targets):
            parser.error(f"--targets: {wanted} is no module or target; there are {', '.join(targets)}")
    chosen = {
        name: target
        for name, target in targets.items()
        if not options.targets or {name, name.partition(".")[0]} & set(options.targets)
    }
    print(f"sanitizers: {sanitizers()}; seed {options.seed}", flush=True)
    tallies = fuzz(chosen, options.inputs, options.seed, options.jobs, options.minutes)
    return int(show(tallies, options.seed))


if __name__ == "__main__":
    sys.exit(main())
