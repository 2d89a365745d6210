"""What is kept of an exception."""

from __future__ import annotations

import traceback

__all__ = ["spelled", "writable"]


def spelled(error: BaseException) -> str:
    """Return type and message of an exception as a traceback ends with them, then its notes, a line each."""
    told = traceback.TracebackException.from_exception(error)
    notes, told.__notes__ = told.__notes__, None  # which would be the last lines
    words = [list(told.format_exception_only())[-1].strip(), *(notes if isinstance(notes, list) else ())]
    return writable("\n".join(map(str, words)))


def writable(text: str) -> str:
    """Return a text with escapes for lone surrogates (a file's name may have them), which UTF-8 cannot hold."""
    return text.encode(errors="backslashreplace").decode()
