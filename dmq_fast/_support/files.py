"""Files: the error for one that cannot be read, what survives a power cut, and the standard descriptors."""

from __future__ import annotations

import contextlib
import os
import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

__all__ = [
    "FileError",
    "above_standard",
    "fill_standard",
    "make_directory",
    "replacing",
    "sync_directory",
    "temporary_beside",
    "writable",
]


class FileError(ValueError):
    """A file is not one that dmq_fast wrote and this version can read; the message holds its path."""


def writable(text: str) -> str:
    """Return a text with lone surrogates escaped: file names may hold them, and UTF-8 cannot encode them."""
    return text.encode(errors="backslashreplace").decode()


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[BinaryIO]:
    """Open a temporary file beside `path` for writing; move it to `path` if the block succeeds, else remove it.

    A kill or a power cut leaves the old file or the new one; after the block the new one is there.
    """
    temporary = temporary_beside(path)
    try:
        with open(temporary, "xb", opener=above_standard) as file:
            yield file
            file.flush()
            os.fsync(file.fileno())  # before the name: on disk it could precede the contents
        temporary.replace(path)
        sync_directory(path.parent)
    except BaseException as error:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)
        if isinstance(error, OSError) and error.filename == str(temporary):
            raise OSError(error.errno, error.strerror, str(path)) from error  # the file that the caller gave
        raise


def temporary_beside(path: Path) -> Path:
    """Return a new name for a file in the directory of `path`."""
    return path.with_name(f".{path.name}.{os.getpid()}.{secrets.token_hex(4)}.tmp")


def make_directory(directory: Path) -> None:
    """Make a directory that may be there, and its parents; they survive a power cut from then on."""
    parents = [directory.parent, *(path.parent for path in directory.parents if not path.exists())]
    directory.mkdir(parents=True, exist_ok=True)
    for parent in parents:
        sync_directory(parent)


def sync_directory(directory: Path) -> None:
    """Sync the names in a directory: what was made, renamed or removed there survives a power cut."""
    with contextlib.suppress(OSError):  # not every file system lets a directory be opened or synced
        descriptor = os.open(directory, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def above_standard(path: str, flags: int) -> int:
    """Open a file on a descriptor above 2, as an `opener`: where 0 to 2 are closed, others print to those numbers."""
    low: list[int] = []
    try:
        while (descriptor := os.open(path, flags, 0o666)) <= 2:
            low.append(descriptor)
            flags &= ~os.O_EXCL  # this call has made the file
        return descriptor
    finally:
        for other in low:
            os.close(other)


def fill_standard() -> None:
    """Open the null device on those of the descriptors 0 to 2 that are closed, for this process and its children."""
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)  # the lowest free number
