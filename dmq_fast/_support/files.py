"""Files: the error for one that cannot be read, and the replacement of one in a single step."""

from __future__ import annotations

import contextlib
import os
import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

__all__ = ["FileError", "replacing", "writable"]


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
            file = temporary.open("xb")
        except OSError as error:  # name the file that the caller gave, not the temporary one
            error.filename = str(path)
            raise
        with file:
            yield file
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
