"""Code of an interactive session, which other processes cannot import."""

from __future__ import annotations

import os
import pickle
import sys
from typing import Any

__all__ = ["of_session"]


def of_session(thing: Any) -> bool:
    """Return whether `thing`, once pickled, refers to code that was typed into this session and is in no file."""
    if os.path.exists(getattr(sys.modules["__main__"], "__file__", None) or ""):
        return False
    try:
        return b"__main__" in pickle.dumps(thing)
    except Exception:  # of any type; it is raised again where the value is sent
        return getattr(thing, "__module__", None) == "__main__"
