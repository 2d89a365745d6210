"""Suggestions for misspelt names, without NumPy, which the command line loads late."""

from __future__ import annotations

import difflib
from collections.abc import Collection

__all__ = ["suggestion"]


def suggestion(given: str, known: Collection[str]) -> str:
    """Return the end of a message about an unknown name: the most similar known name, or nothing if none is similar."""
    near = difflib.get_close_matches(given, known, n=1)
    return f"; did you mean {near[0]!r}?" if near else ""
