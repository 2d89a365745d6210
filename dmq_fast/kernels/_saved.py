"""Files of kernels: `Ridge`, `RidgeArms`, `SecondMoment` and `SparseRidge` in NumPy's format npz, with a version.

docs/kernels.md describes the format, and what is promised of it.
"""

from __future__ import annotations

import os
import zipfile
import zlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from dmq_fast._support.checks import as_path
from dmq_fast._support.files import FileError, replacing

__all__ = ["load", "read", "save", "write"]

VERSIONS = {"Ridge": 1, "RidgeArms": 1, "SecondMoment": 1, "SparseRidge": 1}
"""The version of the files of each class: raised by a change that an older reader could not understand."""


def save(path: str | os.PathLike[str], made: Any, names: Sequence[str]) -> None:
    """Write an object that can be pickled: the arguments it is made of, by these names, and its state.

    None among the arguments is written as -1.
    """
    make, arguments, state = made.__reduce__()
    given = {name: -1 if one is None else one for name, one in zip(names, arguments, strict=True)}
    write(path, make.__name__, given | {name: value for name, value in state.items() if name != "version"})


def load(path: str | os.PathLike[str], make: type[Any], names: Sequence[str], version: int) -> Any:
    """Return the object that `save` wrote; `version` is that of its states. Raises what `read` raises."""
    contents = read(path, make.__name__)
    try:
        given = [contents.pop(name) for name in names]
        new = make(*(None if one == -1 else one for one in given))
        new.__setstate__({"version": version, **contents})
    except (KeyError, TypeError, ValueError) as error:
        raise FileError(f"{path}: expected a file of {make.__name__}.save: {error}") from error
    return new


def write(path: str | os.PathLike[str], kind: str, contents: Mapping[str, Any]) -> None:
    """Write the arrays and numbers of an object; the file appears whole, or not at all."""
    with replacing(as_path("path", path)) as file:
        np.savez(file, kind=np.array(kind), version=np.array(VERSIONS[kind]), **contents)


def read(path: str | os.PathLike[str], kind: str) -> dict[str, Any]:
    """Return the contents of a file of `write`: arrays, and numbers of Python.

    Raises
    ------
    OSError
        If the file cannot be read.
    FileError
        If it is not such a file, is damaged, or is of another class or a later version.
    """
    contents: dict[str, Any] = {}
    path = as_path("path", path)
    try:
        with path.open("rb") as raw, np.load(raw, allow_pickle=False) as file:
            for name in file.files:
                array = file[name]
                contents[name] = array if array.ndim else array.item()
    except (
        ValueError,
        TypeError,
        KeyError,
        EOFError,
        AttributeError,
        NotImplementedError,
        zipfile.BadZipFile,
        zlib.error,
        RuntimeError,
        OverflowError,
        SyntaxError,
    ) as error:
        raise FileError(f"{path}: expected a file of {kind}.save: {error}") from error
    found, version = contents.pop("kind", None), contents.pop("version", None)
    if found != kind:
        raise FileError(f"{path}: expected a file of {kind}.save, got one of {found!r}")
    if version not in range(1, VERSIONS[kind] + 1):
        raise FileError(
            f"{path}: expected version {VERSIONS[kind]} or older of the files of {kind}, got {version!r}: "
            "read it with the version of dmq_fast that wrote it, or a later one"
        )
    return contents
