"""Closing of environments, by whoever made them."""

from __future__ import annotations

from typing import Any

from dmq_fast.samplers.base import Sampler

__all__ = ["close"]


def close(env: Any) -> None:
    """Call the method ``close`` of an environment, or of a sampler and of the environment that it plays, if it has one.

    Raises whatever that raises, after all were called.
    """
    parts = [env, env.env] if isinstance(env, Sampler) else [env]
    failure: Exception | None = None
    for part in parts:
        method = getattr(part, "close", None)
        if callable(method) and not isinstance(part, type):
            try:
                method()
            except Exception as error:
                failure = failure or error
    if failure is not None:
        raise failure
