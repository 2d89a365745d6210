"""Files: what is raised about a file that cannot be read, and how one is replaced in one step."""

from __future__ import annotations

import contextlib
import os
import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

__all__ = ["FileError", "replacing"]


class FileError(ValueError):
    """A file is not one that dmq_fast wrote and this version can read; the message holds its path."""


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[BinaryIO]:
    """Open a file beside `path` for writing; move it to `path` when the block ends well, remove it when not."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.{secrets.token_hex(4)}.tmp")
    try:
        try:
            file = temporary.open("xb")
        except OSError as error:  # it names the temporary file, which nobody asked for
            error.filename = str(path)
            raise
        with file:
            yield file
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
