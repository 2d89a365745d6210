"""Files: the error for one that cannot be read, what survives a power cut, and the standard descriptors."""

from __future__ import annotations

import contextlib
import io
import os
import secrets
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

__all__ = [
    "FileError",
    "above_standard",
    "check_makeable",
    "check_replaceable",
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
    """Open a file for writing, which becomes the file `path` if the block succeeds.

    A kill or a power cut leaves the old file or the new one; after the block the new one is there. It has the mode of
    the old one, and its owner and group where this process may set them; other hard links keep the old contents. Links
    are followed, and stay. A device or a pipe is written to at the end of the block, and stays what it is.
    """
    target = target_of(path)
    if target is None:
        contents = io.BytesIO()
        yield contents
        with open(path, "wb", buffering=0) as special:
            rest = contents.getbuffer()
            while rest:
                rest = rest[special.write(rest) :]
        return
    temporary = temporary_beside(target)
    try:
        with open(temporary, "xb", opener=above_standard) as file:
            keep_mode(target, file.fileno())
            yield file
            file.flush()
            os.fsync(file.fileno())  # before the name: on disk it could precede the contents
        temporary.replace(target)
        sync_directory(target.parent)
    except BaseException as error:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)
        if isinstance(error, OSError) and error.filename == str(temporary):
            raise OSError(error.errno, error.strerror, str(path)) from error  # the file that the caller gave
        raise


def target_of(path: Path) -> Path | None:
    """Return the regular file that `path` leads to, there or not; None if it is of another kind, as a device is.

    The path of a device or pipe must stay as it is: /dev/stdout leads to a name that cannot be opened.

    Raises
    ------
    OSError
        If links lead around, or a name is too long.
    """
    try:
        kind = path.stat().st_mode
    except FileNotFoundError:
        return path.resolve()
    return path.resolve() if stat.S_ISREG(kind) or stat.S_ISDIR(kind) else None


def keep_mode(path: Path, descriptor: int) -> None:
    """Give an open file the mode, the owner and the group of the file at `path`, if there is one."""
    try:
        old = path.stat()
    except FileNotFoundError:
        return
    if hasattr(os, "fchown"):
        for owner, group in ((old.st_uid, -1), (-1, old.st_gid)):
            with contextlib.suppress(OSError):  # only root gives files away
                os.fchown(descriptor, owner, group)
        os.fchmod(descriptor, stat.S_IMODE(old.st_mode) & 0o777)


def check_replaceable(path: Path) -> None:
    """Raise OSError if `replacing` cannot write to `path`; a file is made beside it and removed.

    Raises
    ------
    OSError
        The message names the path that is in the way: a directory, one that is not there, a file or a device that is
        not writable, a name that is too long.
    """
    if path.is_dir():
        raise IsADirectoryError(f"{path} is a directory")
    target = target_of(path)
    if target is not None and not target.parent.is_dir():
        link = f", to which the link {path} leads" if path.is_symlink() else ""
        raise FileNotFoundError(f"there is no directory {target.parent}{link}")
    if path.exists() and not os.access(path, os.W_OK):
        raise PermissionError(f"{path} is not writable")
    if target is None:
        return
    temporary = temporary_beside(target)
    try:
        temporary.touch(exist_ok=False)
        temporary.unlink()
    except OSError as error:
        raise type(error)(f"{target.parent} is not writable: {error.strerror}") from error


LONGEST_NAME = 200
"""Most bytes of a name that the name of a temporary file repeats: file systems take 255, of which it needs some."""


def temporary_beside(path: Path) -> Path:
    """Return a new name for a file in the directory of `path`."""
    name = os.fsencode(path.name)[:LONGEST_NAME].decode(errors="ignore")
    return path.with_name(f".{name}.{os.getpid()}.{secrets.token_hex(4)}.tmp")


def make_directory(directory: Path) -> None:
    """Make a directory that may be there, and its parents; they survive a power cut from then on."""
    refuse_dangling(directory)
    parents = [directory.parent, *(path.parent for path in directory.parents if not path.exists())]
    directory.mkdir(parents=True, exist_ok=True)
    for parent in parents:
        sync_directory(parent)


def check_makeable(directory: Path) -> None:
    """Raise OSError if `make_directory` cannot make a directory, or files cannot be written to it."""
    refuse_dangling(directory)
    if directory.exists() and not directory.is_dir():
        raise NotADirectoryError(f"expected a directory, got the file {directory}")
    there = next(path for path in (directory.absolute(), *directory.absolute().parents) if path.is_dir())
    if not os.access(there, os.W_OK):
        raise PermissionError(f"{there} is not writable")


def refuse_dangling(directory: Path) -> None:
    """Raise FileNotFoundError if a directory, or one above it, is a link to what is not there."""
    for path in (directory, *directory.parents):
        if path.is_symlink() and not path.exists():
            raise FileNotFoundError(f"{path} is a link to {os.readlink(path)}, which is not there")


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
