"""Files: the error for one that cannot be read, replacement in a single step, and the standard descriptors."""

from __future__ import annotations

import contextlib
import os
import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

__all__ = ["FileError", "above_standard", "fill_standard", "replacing", "writable"]


class FileError(ValueError):
    """A file is not one that dmq_fast wrote and this version can read; the message holds its path."""


def writable(text: str) -> str:
    """Return a text with lone surrogates escaped: file names may hold them, and UTF-8 cannot encode them."""
    return text.encode(errors="backslashreplace").decode()


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[BinaryIO]:
    """Open a temporary file beside `path` for writing; move it to `path` if the block succeeds, else remove it."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.{secrets.token_hex(4)}.tmp")
    try:
        try:
            file = open(temporary, "xb", opener=above_standard)
        except OSError as error:  # name the file that the caller gave, not the temporary one
            error.filename = str(path)
            raise
        with file:
            yield file
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


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
