"""`merge`: makes one store of several, such as those of the shards of a sweep."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from dmq_fast._support.checks import as_path
from dmq_fast.experiments.sweeps.runs import FAILURES
from dmq_fast.experiments.sweeps.spec import SpecError, reread
from dmq_fast.experiments.sweeps.store import (
    COLUMNS,
    FILE,
    Store,
    loaded,
    naming,
    reading,
    selected,
    specs,
    versions_text,
)

__all__ = ["MergeError", "Merged", "merge"]

RESULTS = ("status", "value", "value_standard_error", "optimal_value", "gap", "n_trajectories", "counts")
"""Columns in which two rows of one run must agree."""

NAMES = list(COLUMNS)
INTO = ", ".join(NAMES)


class MergeError(ValueError):
    """Stores cannot be merged: they have no specification in common, or one run with different results.

    The message names the stores, and runs and columns that differ. Nothing was written.
    """


class Merged(NamedTuple):
    """The result of `merge`.

    Of `runs` runs in the store `out`, `added` are new and `replaced` had failed before. `missing` runs of its
    specifications are in none of the stores. `warnings` tell of runs of several versions, and of specifications that
    cannot be read here, of which it is not known what is missing.
    """

    out: Path
    runs: int
    added: int
    replaced: int
    missing: int = 0
    warnings: tuple[str, ...] = ()


def merge(
    out: str | os.PathLike[str], directories: Sequence[str | os.PathLike[str]], *, keep_first: bool = False
) -> Merged:
    """Add the runs of several stores to one.

    A sweep into `out`, or a report of it, then goes on with the runs of all of them. The stores that are read are left
    as they are. Merging again changes nothing, and the order of the stores does not matter.

    Parameters
    ----------
    out : str or path-like
        Directory of the store that is written, made if there is none. It may be one of `directories`.
    directories : sequence of str or path-like
        Directories of stores.
    keep_first : bool
        Where stores have different results of one run, keep that of `out` or of the directory that is named first,
        instead of raising MergeError.

    Returns
    -------
    Merged

    Raises
    ------
    FileNotFoundError, IsADirectoryError
        If there is no store in one of the directories.
    StoreError
        If a file is not a store of this version.
    MergeError
        If a store has no specification in common with the others, or one run has different results.
    OSError
        If `out` cannot be opened; WriteError if it cannot be written.

    Notes
    -----
    Of two rows of one run, one that finished is taken before one that `max_seconds` ended, and this one before a
    failure; of equals the one that ended first. Two rows that finished must agree in value, trajectories and counts,
    as the seed decides them on machines of one kind.

    All rows are written at once or not at all: after a kill, the same call does the work.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> from dmq_fast import experiments
    >>> spec = {"seeds": 4, "environments": [{"name": "lock", "horizon": 3}], "algorithms": [{"name": "dmq"}]}
    >>> with tempfile.TemporaryDirectory() as directory:
    ...     parts = [Path(directory, str(i)) for i in range(2)]
    ...     ran = [experiments.sweep(spec, part, shard=(i, 2), workers=0).ran for i, part in enumerate(parts)]
    ...     merged = experiments.merge(Path(directory, "all"), parts)
    >>> ran, merged.runs, merged.missing
    ([2, 2], 4, 0)
    """
    if isinstance(directories, str | bytes | os.PathLike):
        raise TypeError(f"directories: expected a sequence of directories, got {directories!r}")
    out, places = as_path("out", out), [as_path("directories", directory) for directory in directories]
    if not places:
        raise ValueError("directories: expected at least one, got none")
    check_specs(([out] if (out / FILE).exists() else []) + places)
    with Store(out) as store:
        found = Findings(store.connection, out, keep_first)
        others = [place for place in places if not (place / FILE).samefile(store.path)]
        with store.writing():
            for place in others:
                with reading(place / FILE) as source:
                    found.take(source, place)
                if found.conflict:
                    raise MergeError(found.conflict)
            store.connection.execute("DELETE FROM shards")  # what it lacks is missing now
        stored, warnings = store.statuses(), versions_text(store.versions())
        wanted: set[tuple[str, int]] = set()
        for name, text, _ in specs(store.connection):
            try:
                wanted.update((cell.id, seed) for cell, seed in reread(text, name).runs())
            except SpecError as error:  # perhaps a module of the user is not here
                warnings.append(f"it is not known which runs of {name} are missing: {error}")
    return Merged(out, len(stored), found.added, found.replaced, len(wanted - stored.keys()), tuple(warnings))


def check_specs(places: Sequence[Path]) -> None:
    """Raise MergeError at the first store that has no specification in common with all of those before.

    A store without any is empty, as one is whose sweep was killed at its very beginning.
    """
    common: dict[str, str] = {}
    for place in places:
        with reading(place / FILE) as source:
            own = {text: name for name, text, _ in specs(source)}
        shared = {text: name for text, name in own.items() if text in common} if common and own else own or common
        if own and not shared:
            raise MergeError(
                f"{place}: expected a store with runs of the specification {' or '.join(sorted(common.values()))}, as "
                f"the directories before it, got one of {', '.join(sorted(own.values()))} with another text"
            )
        common = shared


class Findings:
    """The state of a merge: how many rows it took, from where, and the first conflict."""

    def __init__(self, connection: sqlite3.Connection, out: Path, keep_first: bool) -> None:
        self.connection, self.out, self.keep_first = connection, out, keep_first
        self.added = self.replaced = 0
        self.conflict = ""
        self.origins: dict[tuple[str, int], Path] = {}

    def take(self, source: sqlite3.Connection, place: Path) -> None:
        """Take the specifications and the rows of a store."""
        seen = source.execute("SELECT text, name, runs, began FROM specs")
        self.connection.executemany("INSERT OR IGNORE INTO specs VALUES (?, ?, ?, ?)", seen)
        marks = ", ".join("?" * len(NAMES))
        for values in source.execute(f"SELECT {selected(source)} FROM runs"):
            loaded(values)  # refuses what no sweep has stored
            row = dict(zip(NAMES, values, strict=True))
            key = row["cell"], row["seed"]
            if self.connection.execute(f"INSERT OR IGNORE INTO runs ({INTO}) VALUES ({marks})", values).rowcount:
                self.added += 1
            elif not self.is_better(row, place):
                continue
            else:
                self.connection.execute(f"REPLACE INTO runs ({INTO}) VALUES ({marks})", values)
                self.replaced += 1
            self.origins[key] = place

    def is_better(self, row: dict[str, Any], place: Path) -> bool:
        """Return whether a row is to replace that of the same run; note the first conflict."""
        key = row["cell"], row["seed"]
        query = f"SELECT {INTO} FROM runs WHERE cell = ? AND seed = ?"
        values = self.connection.execute(query, key).fetchone()
        with naming(self.out / FILE):
            loaded(values)
        known = dict(zip(NAMES, values, strict=True))
        if rank(row) != rank(known):
            return rank(row) < rank(known)
        different = [name for name in RESULTS if row[name] != known[name]]
        if rank(row) == 0 and different:
            if not self.keep_first and not self.conflict:
                where = self.origins.get(key, self.out)
                values = ", ".join(f"{name} {known[name]} in {where} and {row[name]} in {place}" for name in different)
                self.conflict = (
                    f"cell {row['cell']} ({row['algorithm']} on {row['environment']}), seed {row['seed']} has "
                    f"different results: {values}; nothing was merged"
                )
            return False
        return bool((row["ended"], row["host"]) < (known["ended"], known["host"]))


def rank(row: dict[str, Any]) -> int:
    """Return 0 for a run whose end the seed decided, 1 for one that ran out of time, 2 for a failure."""
    return 2 if row["status"] in FAILURES else int(row["status"] == "max_seconds")
