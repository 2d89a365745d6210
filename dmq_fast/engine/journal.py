"""Journals: the decisions of a run on disk, from which it is resumed after a kill.

A journal holds decisions, not moments, in the order in which the run made them: the oracle's answers, with the
potential at each True; the fitted thetas; S_h after each run of Algorithm 2; and where moments accumulate, the M2 of
each True. That of a self-stopping run holds its episodes. A resumed run repeats the control flow with these answers in
place of trajectories until the journal ends. The size of a journal is O(oracle calls + fits d + (runs of Algorithm 2 +
Trues) d^2), or O(episodes H + distinct features d). A moment that is sparse is stored on its support only.

The file is a sequence of records, each written by a single append: `HEAD`, then the payload. The payload of the first
record is the header as JSON. The others hold the elapsed seconds and the number of sampler calls so far, then integers
and floats.

A run is deterministic, so a journal that ends after any of its records leads to the same result. Hence damage costs
time only: what follows the first damaged record is cut off, and the run finds those answers again.
"""

from __future__ import annotations

import contextlib
import errno
import math
import os
import struct
import time
import weakref
import zlib
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from dmq_fast._support.files import FileError, above_standard, sync_directory
from dmq_fast._support.json_text import finite_json, plain, to_plain
from dmq_fast.kernels.build import build, number_of

fcntl: ModuleType | None
try:
    import fcntl
except ImportError:  # not a POSIX system: no lock
    fcntl = None

__all__ = ["Journal", "JournalError", "check_free", "read_header"]

# Version of the file format: raised whenever an older reader could not understand a newer file.
FORMAT = 4

# Head of a record: mark, kind, number, length of the payload; checksum of these and the payload.
HEAD = struct.Struct("<4sIQQI")
MARK = b"\xd1dmq"

# Begin of a payload: elapsed seconds, sampler calls, number of integers.
START = struct.Struct("<dqI")

# Kinds of records, and their names in messages.
HEADER, SCAN, FIT, LEVEL, CLOCK, ADDED, EPISODES = range(7)
NAMES = (
    *("header", "scan of the oracle", "fit", "learned level", "clock", "moment added", "piece of episodes"),
    *("mark of a sync", "numbers of observations"),
)

# Kind of a record that version 0.2.0 wrote after each fsync; it is skipped. And that of the numbers that observations
# got since the last record, where features number what they see: the first number, and the key of each.
SYNCED, NUMBERS = 7, 8

# Least time between two calls of fsync in seconds: a power cut loses the records of about as long.
SYNC_EVERY = 1.0


class JournalError(FileError):
    """A file is not the journal of this run, or is in use.

    Parameters
    ----------
    path : str or path-like
        File of the journal.
    problem : str
        What is wrong with it.
    remedy : str
        What to do.

    Attributes
    ----------
    path : pathlib.Path
        File of the journal.
    remedy : str
        What to do; the message ends with it.
    """

    def __init__(self, path: str | os.PathLike[str], problem: str, remedy: str) -> None:
        super().__init__(path, problem, remedy)
        self.path, self.problem, self.remedy = Path(path), problem, remedy

    def __str__(self) -> str:
        return f"{self.path}: {self.problem}; {self.remedy}"


class Record(NamedTuple):
    """Record of one decision: kind, seconds and sampler calls so far, and the integers and floats of the answer."""

    kind: int
    elapsed: float
    calls: int
    integers: tuple[int, ...]
    floats: NDArray[np.float64]


class Memory(Protocol):
    """Numbers that are given to keys, in ascending order, and never change."""

    @property
    def keys(self) -> list[int]:
        """The keys in the order of their numbers."""

    def restore(self, first: int, keys: Iterable[int]) -> None:
        """Give these keys the numbers first, first + 1, ...; ValueError if they have others."""


class Contents(NamedTuple):
    """Intact beginning of a journal: its header, None where there is none, its decisions, their number and end."""

    header: dict[str, Any] | None
    decisions: list[Record]
    number: int
    end: int


class Journal:
    """The journal of one run, open for appending and locked.

    Parameters
    ----------
    path : str or path-like
        File of the journal, made if it does not exist.
    header : dict
        Description of the run, JSON-able. An existing journal must have the same one, "budget" excepted.
    memory : Memory, optional
        Numbers that features give to what they see; `features.Seen` is one. They are recorded before each answer, and
        restored with it.

    Attributes
    ----------
    elapsed : float
        Seconds that the run had taken when the journal was last written.
    resumed : bool
        Whether the file had decisions when it was opened.
    mixed : str or None
        Warning that another build of the package began the run.
    damage : str or None
        Warning that records were lost, as the file was damaged.
    failure : str or None
        Message of the error after which nothing more was written; the run continues without its journal.

    Raises
    ------
    JournalError
        If the file is not a journal, belongs to another run, has a damaged header, or is in use.
    OSError
        If the file cannot be opened.

    Notes
    -----
    A kill loses nothing that was recorded, since each record reaches the system in one write. A power cut loses at most
    what came after the last fsync. A record is followed by an fsync if the last one was at least a second ago.
    """

    def __init__(self, path: str | os.PathLike[str], header: dict[str, Any], memory: Memory | None = None) -> None:
        self.path, self.memory = Path(path), memory
        self.resumed, self._kept = False, 0
        self.damage: str | None = None
        self.mixed: str | None = None
        self.failure: str | None = None
        self.elapsed = 0.0
        self._records: deque[Record] = deque()
        self._torn = False
        self._synced = time.monotonic()
        self._file = open_locked(self.path)
        OPEN.add(self)
        try:
            header = to_plain(header | {"format": FORMAT, "dmq_fast": build()})
            contents = self._file.readall()
            first, decisions, self._number, self._end = read(self.path, contents)
            if first is None:
                self._start(header)
            else:
                check_same(self.path, first, header)
                self.elapsed = decisions[-1].elapsed if decisions else 0.0
                self.resumed = bool(decisions)
                # 0.2.0 wrote its number only.
                if self.resumed and first["dmq_fast"] not in (header["dmq_fast"], number_of(header["dmq_fast"])):
                    self.mixed = f"{self.path}: begun by dmq_fast {first['dmq_fast']}, resumed by {header['dmq_fast']}"
                self._records.extend(record for record in decisions if record.kind not in (CLOCK, SYNCED))
                if MARK in contents[self._end + 1 :]:  # more than the last record, which a kill may have cut short
                    self.damage = (
                        f"{self.path}: resumed from second {self.elapsed:.0f}; the rest of the file was damaged"
                    )
            if self._end < len(contents):
                self._file.truncate(self._end)
                os.fsync(self._file.fileno())  # or parts of the tail could come back after records that are to come
        except BaseException:
            self.close()
            raise

    def _start(self, header: dict[str, Any]) -> None:
        """Write the header, and sync the file and its directory."""
        try:
            self._file.truncate(0)
            self._append(HEADER, finite_json(header).encode())
            os.fsync(self._file.fileno())
        except OSError as error:
            raise JournalError(self.path, f"could not be written ({error})", "give a path on another disk") from error
        sync_directory(self.path.parent)

    @property
    def replaying(self) -> bool:
        """Whether the journal still has answers to recall."""
        return bool(self._records)

    def recall(self, kind: int, calls: int) -> Record | None:
        """Return the next answer; None after the last one, when the run must find and record the answer itself.

        Raises
        ------
        JournalError
            If the next answer is of another kind, or came after another number of sampler calls.
        """
        while self._records and self._records[0].kind == NUMBERS:
            self._restore(self._records.popleft())
        if not self._records:
            return None
        record = self._records.popleft()
        if (record.kind, record.calls) != (kind, calls):
            raise JournalError(
                self.path,
                f"expected a {NAMES[kind]} after {calls} calls of the sampler, got a {NAMES[record.kind]} after "
                f"{record.calls}",
                "resume the run with the version and on the machine that wrote the file, or give another path",
            )
        return record

    def _restore(self, record: Record) -> None:
        """Give the observations of a record their numbers."""
        try:
            if self.memory is None or not record.integers:
                raise ValueError("expected none, as no features number what they see")
            first, *keys = record.integers
            self.memory.restore(first, keys)
        except ValueError as error:
            raise self.refusal(record, error) from error
        self._kept = first + len(keys)

    def refusal(self, record: Record, error: ValueError) -> JournalError:
        """Return the error about a record whose content is not the answer that it stands for."""
        return JournalError(
            self.path,
            f"damaged: {NAMES[record.kind]} after {record.calls} calls of the sampler: {error}",
            "give another path",
        )

    def record(
        self, kind: int, elapsed: float, calls: int, integers: Sequence[int] = (), floats: Sequence[Any] = ()
    ) -> None:
        """Append an answer; `floats` are arrays, which are written one after the other."""
        if self.failure is not None:
            return
        try:
            if self.memory is not None and len(keys := self.memory.keys) > self._kept:
                self._append(NUMBERS, packed(elapsed, calls, [self._kept, *keys[self._kept :]]))
                self._kept = len(keys)
            self._append(kind, packed(elapsed, calls, integers, floats))
            if time.monotonic() - self._synced >= SYNC_EVERY:
                os.fsync(self._file.fileno())
                self._synced = time.monotonic()
        except OSError as error:
            self.failure = (
                f"the journal {self.path} could not be written ({error}); the run continued without it and can be "
                f"resumed from second {self.elapsed:.0f} only"
            )
            with contextlib.suppress(OSError):
                self._file.truncate(self._end)
        else:
            self.elapsed = elapsed

    def _append(self, kind: int, payload: bytes) -> None:
        if self._torn:  # Ctrl-C interrupted the last append: remove what it wrote
            self._file.truncate(self._end)
        record = seal(kind, self._number, payload)
        self._torn = True
        written = 0
        while written < len(record):  # more than once only when the disk becomes full
            written += self._file.write(record[written:]) or 0
        self._end, self._number, self._torn = self._end + len(record), self._number + 1, False

    def close(self) -> None:
        """Sync, unlock and close the file."""
        if not self._file.closed:
            with contextlib.suppress(OSError):
                os.fsync(self._file.fileno())
            self._file.close()

    def _forget(self) -> None:
        """Close the file without syncing: file and lock belong to the parent of this process."""
        self._file.close()


# Open journals of this process: a forked child must not hold the locks of its parent.
OPEN: weakref.WeakSet[Journal] = weakref.WeakSet()


def forget_all() -> None:
    """Close the journals of the parent process, in a forked child."""
    for journal in list(OPEN):
        journal._forget()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=forget_all)


def open_locked(path: Path) -> Any:
    """Open a file for appending, unbuffered and locked."""
    refuse_endless(path)
    file = open(path, "a+b", buffering=0, opener=above_standard)
    try:
        lock(path, file)
    except BaseException:
        file.close()
        raise
    file.seek(0)
    return file


def refuse_endless(path: Path) -> None:
    """Raise JournalError for a pipe or a device, of which reading may never end."""
    if path.exists() and not (path.is_file() or path.is_dir()):
        raise JournalError(path, "expected a regular file", "give another path")


def lock(path: Path, file: Any) -> None:
    """Lock an open file for this process; closing the file in any way releases the lock."""
    if fcntl is None:
        return
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        remedy = "wait until it has ended, or give another path"
        raise JournalError(path, "another run is writing this journal", remedy) from error
    except OSError as error:
        if error.errno not in (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP):  # some network file systems have no locks
            raise


def check_free(path: Path) -> None:
    """Raise JournalError if a run is writing the journal at `path`."""
    if path.exists():
        open_locked(path).close()


def packed(elapsed: float, calls: int, integers: Sequence[int] = (), floats: Sequence[Any] = ()) -> bytes:
    """Return the payload of a record that is not the header."""
    numbers = np.array(integers, dtype="<i8").tobytes()
    arrays = b"".join(np.asarray(array, dtype="<f8").tobytes() for array in floats)
    return START.pack(elapsed, calls, len(integers)) + numbers + arrays


def seal(kind: int, number: int, payload: bytes) -> bytes:
    """Return the bytes of a record."""
    head = HEAD.pack(MARK, kind, number, len(payload), 0)[: -struct.calcsize("<I")]
    return head + struct.pack("<I", zlib.crc32(payload, zlib.crc32(head))) + payload


def records(contents: bytes) -> Iterator[tuple[int, int, memoryview]]:
    """Yield kind, number and payload of the records up to the first that is damaged or out of order."""
    view, at, count = memoryview(contents), 0, 0
    while len(contents) - at >= HEAD.size:
        mark, kind, number, length, checksum = HEAD.unpack_from(contents, at)
        begin = at + HEAD.size
        payload = view[begin : begin + length]
        head = view[at : begin - struct.calcsize("<I")]
        if mark != MARK or number != count or (kind == HEADER) != (count == 0) or kind > NUMBERS:
            return
        if zlib.crc32(payload, zlib.crc32(head)) != checksum:
            return
        yield kind, number, payload
        at, count = begin + length, count + 1


def read(path: Path, contents: bytes) -> Contents:
    """Return the intact beginning of a journal; without a header, all of it may be written anew.

    Raises
    ------
    JournalError
        If the file is not a journal, or its header is damaged or in another format.
    """
    first: dict[str, Any] | None = None
    found: list[Record] = []
    end = count = 0
    for kind, _, payload in records(contents):
        if kind == HEADER:
            first = header_of(path, payload)
        else:
            try:
                found.append(decision(kind, payload))
            except ValueError:  # which no run has written
                break
        end += HEAD.size + len(payload)
        count += 1
    if first is None:
        if not MARK.startswith(contents.rstrip(b"\0")[: len(MARK)]):  # a header that was cut short may end in zeros
            raise JournalError(path, "not a journal of dmq_fast", "give another path")
        if MARK in contents[1:]:
            raise JournalError(path, "damaged: the header cannot be read", "give another path")
    return Contents(first, found, count, end)


def header_of(path: Path, payload: memoryview) -> dict[str, Any]:
    """Return the header; raise JournalError if it cannot be read or is in another format."""
    try:
        header = plain(bytes(payload))
        version = header["format"]
    except (ValueError, TypeError, KeyError) as error:
        raise JournalError(path, f"damaged: the header cannot be read ({error})", "give another path") from error
    if version != FORMAT:
        raise JournalError(
            path,
            f"written in format {version} by dmq_fast {header.get('dmq_fast')}; expected format {FORMAT}",
            "resume the run with that version, or give another path",
        )
    return dict(header)


def decision(kind: int, payload: memoryview) -> Record:
    """Return the record with a payload that is not the header; ValueError if it cannot be one."""
    if len(payload) < START.size:
        raise ValueError(f"expected at least {START.size} bytes, got {len(payload)}")
    elapsed, calls, n_integers = START.unpack_from(payload)
    if not 0.0 <= elapsed < math.inf:
        raise ValueError(f"expected a time >= 0, got {elapsed}")
    integers = np.frombuffer(payload, "<i8", n_integers, START.size) if n_integers else np.empty(0, dtype=np.int64)
    floats = np.frombuffer(payload[START.size + 8 * n_integers :], "<f8").astype(np.float64)
    return Record(kind, elapsed, calls, tuple(integers.tolist()), floats)


def read_header(path: str | os.PathLike[str]) -> dict[str, Any] | None:
    """Return the header of a journal; None if the file does not exist or is empty.

    Raises
    ------
    JournalError
        If the file is not a journal, or its header is damaged or in another format.
    OSError
        If the file cannot be read.
    """
    path = Path(path)
    refuse_endless(path)
    try:
        contents = path.read_bytes()
    except FileNotFoundError:
        return None
    return read(path, contents).header


def check_same(path: Path, theirs: dict[str, Any], mine: dict[str, Any]) -> None:
    """Raise JournalError with the differences of two headers, if there are any that matter.

    Builds of one version may differ; `Journal.mixed` tells of it.
    """
    theirs, mine = (header | {"dmq_fast": number_of(str(header.get("dmq_fast")))} for header in (theirs, mine))
    different = list(differences(upgraded(theirs) | {"budget": None}, mine | {"budget": None}))
    named = "options" in mine and all(text.startswith("variant is ") for text in different)
    if different and not named:  # the same options may have had another name
        remedy = "give the arguments of that run, or another path"
        raise JournalError(path, f"the journal of another run: {'; '.join(different)}", remedy)


def upgraded(header: dict[str, Any]) -> dict[str, Any]:
    """Return a header of version 0.2.0 as this version writes it.

    Without the option `hindsight`, where it was off, and with the range (0, 1) that all rewards had, in place of how
    they were shifted and scaled.
    """
    environment, options = header.get("environment"), header.get("options")
    if isinstance(environment, dict) and isinstance(environment.get("rewards"), list):
        header = header | {"environment": environment | {"rewards": {"value_range": [0.0, 1.0], "noise": None}}}
    if not isinstance(options, dict) or options.get("hindsight") is not False:
        return header
    return header | {"options": {name: value for name, value in options.items() if name != "hindsight"}}


def differences(theirs: Any, mine: Any, name: str = "") -> Iterator[str]:
    """Yield the differences of two JSON values, each as "NAME is VALUE there and VALUE here"."""
    if isinstance(theirs, dict) and isinstance(mine, dict):
        for key in [*theirs, *(key for key in mine if key not in theirs)]:
            yield from differences(theirs.get(key), mine.get(key), f"{name}.{key}" if name else key)
    elif theirs != mine:
        yield f"{name} is {theirs!r} there and {mine!r} here"
