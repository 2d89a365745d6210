"""Positions in the streams of a run's key, by purpose.

A run has one 128-bit key. Call c of its sampler, from 1 on, reads the stream at call c, chunk by chunk. Draws of the
run itself (the initial sequence, the counts of mixtures) use the calls from `OWN_CALLS` on. The value of the returned
policy is estimated on `LAST_CALL`, which no run reaches.
"""

from __future__ import annotations

import numpy as np

from dmq_fast.kernels import Stream

__all__ = ["LAST_CALL", "OWN_CALLS", "UNIFORM_CALL", "as_key", "check_stream"]

OWN_CALLS = 2**63
LAST_CALL = 2**64 - 1
UNIFORM_CALL = LAST_CALL - 1


def as_key(rng: int | np.random.SeedSequence | np.random.Generator | Stream | None) -> Stream:
    """Return the stream at call 0 of the key that `rng` stands for.

    Raises
    ------
    TypeError, ValueError
        If `rng` is of another type, negative, or a Stream at another position.
    """
    if isinstance(rng, Stream):
        if rng.call or rng.chunk:
            raise ValueError(f"rng: expected a Stream at call 0 and chunk 0, got {rng!r}")
        return rng
    try:
        return Stream(rng)
    except (TypeError, ValueError) as error:
        raise type(error)(f"rng: {str(error).removeprefix('seed: ')}") from error


def check_stream(name: str, stream: object) -> None:
    """Raise TypeError for anything but a Stream; `name` is the argument."""
    if not isinstance(stream, Stream):
        raise TypeError(f"{name}: expected a Stream, got {type(stream).__name__}")
