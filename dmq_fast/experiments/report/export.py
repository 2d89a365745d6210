"""`export`: the runs of a sweep as a file: CSV for other programs, LaTeX for papers."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from dmq_fast._support.checks import as_path
from dmq_fast._support.files import replacing, writable
from dmq_fast.experiments.report.csv_export import as_csv, columns
from dmq_fast.experiments.report.latex import comparison

__all__ = ["check_format", "export", "exported"]


def check_format(path: str | os.PathLike[str], argument: str = "export", *, curves: bool = False) -> Path:
    """Return `path` if runs, or curves, can be exported to it; raise ValueError or OSError, on `argument`, if not."""
    path = as_path(argument, path)
    formats = (".csv",) if curves else (".csv", ".tex")
    if path.suffix.lower() not in formats:
        raise ValueError(f"{argument}: expected a file that ends in {' or '.join(formats)}, got {path}")
    if path.is_dir():
        raise IsADirectoryError(f"{argument}: {path} is a directory")
    return path


def export(rows: Iterable[Mapping[str, Any]], path: str | os.PathLike[str], *, curves: bool = False) -> None:
    """Write the runs that `load` returned to a file.

    Parameters
    ----------
    rows : iterable of mapping
    path : str or path-like
        Its ending decides. ``.csv``: a line for each run; lists and dicts are written as JSON. ``.tex``: a LaTeX table
        that compares algorithms, with a line for each of them and each of its settings, by environment; see
        `dmq_fast.experiments.report.latex.comparison`.
    curves : bool, default False
        Write a line for each checkpoint of the learning curves instead of one for each run, to a .csv file; see
        `columns`.

    Raises
    ------
    ValueError
        If the name of the file ends otherwise.
    OSError
        If the file cannot be written; a file that was there before is unharmed.
    """
    path = check_format(path, curves=curves)
    data = exported(rows, path, curves=curves)
    with replacing(path.absolute()) as file:
        file.write(data)


def exported(rows: Iterable[Mapping[str, Any]], path: Path, *, curves: bool = False) -> bytes:
    """Return what `export` writes."""
    if path.suffix.lower() == ".tex":
        return writable(comparison(rows)).encode()
    return as_csv(columns(rows, curves=curves))
