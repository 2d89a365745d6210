"""Exceptions as text that can be stored."""

from __future__ import annotations

import traceback

from dmq_fast._support.files import writable

__all__ = ["spelled"]


def spelled(error: BaseException) -> str:
    """Return the last line of an exception's traceback, with type and message, then its notes, one on each line."""
    shown = traceback.TracebackException.from_exception(error)
    notes, shown.__notes__ = shown.__notes__, None  # otherwise the notes would be the last lines
    words = [list(shown.format_exception_only())[-1].strip(), *(notes if isinstance(notes, list) else ())]
    return writable("\n".join(map(str, words)))
