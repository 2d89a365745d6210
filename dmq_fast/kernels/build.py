"""The build of this package: its version, with a digest of the sources where two builds of one version differ."""

from __future__ import annotations

import functools
import hashlib
from pathlib import Path

from dmq_fast._version import __version__

__all__ = ["build", "number_of"]

ROOT = Path(__file__).parents[1]


@functools.cache
def build() -> str:
    """Return the version with a digest of all sources, as files record it.

    A checkout has the number of the release before it; the digest tells them apart. It is that of the Python files that
    are there and of the sources that were compiled, so equal sources have equal builds on every machine.

    Examples
    --------
    >>> number, digest = build().split("+")
    >>> len(digest)
    8
    """
    from dmq_fast.kernels._sources import DIGEST  # only what writes files asks

    return f"{__version__}+{digest_of(ROOT, DIGEST)}"


def digest_of(root: Path, compiled: str) -> str:
    """Return the digest of the Python files below a directory, and of what was compiled: eight letters."""
    found = hashlib.sha256(compiled.encode())
    for path in sorted(root.rglob("*.py"), key=lambda path: path.relative_to(root).as_posix()):
        text = path.read_bytes().replace(b"\r\n", b"\n")
        found.update(f"{path.relative_to(root).as_posix()} {len(text)}\n".encode() + text)
    return found.hexdigest()[:8]


def number_of(build: str) -> str:
    """Return the version of a build.

    >>> number_of("0.2.0+1a2b3c4d"), number_of("0.2.0")
    ('0.2.0', '0.2.0')
    """
    return build.partition("+")[0]
