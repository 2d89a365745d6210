"""The store of a sweep: an SQLite file with one row for each run.

A row is identified by cell and seed, and is added whole or not at all. If two sweeps do the same run, the first row is
kept; the rows differ in timings only. SQLite's write-ahead log requires that all processes that open the directory are
on one machine. On a cluster, one process sweeps and stores, and an executor takes the work to the nodes; or each node
does a shard into a store of its own, and `merge` joins them.
"""

from __future__ import annotations

import contextlib
import datetime
import itertools
import math
import os
import re
import sqlite3
import typing
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from dmq_fast._support.files import make_directory, sync_directory, temporary_beside
from dmq_fast._support.json_text import Form, check_form, finite_json
from dmq_fast.experiments.sweeps.records import FINITE, STRUCTURED, Records, read
from dmq_fast.experiments.sweeps.runs import FAILURES, row_json
from dmq_fast.experiments.sweeps.spec import Cell, Spec

__all__ = [
    "COLUMNS",
    "FILE",
    "Store",
    "StoreError",
    "WriteError",
    "failures",
    "load_specs",
    "reading",
    "records",
    "rows",
    "selected",
    "shards",
    "specs",
    "statuses",
    "versions",
    "versions_text",
]

FILE = "runs.sqlite"
"""Name of the file in the directory of a sweep."""

# "DMQs" in the header of the SQLite file marks it as a store; FORMAT is the version of its tables.
APPLICATION, FORMAT = 0x444D5173, 2

FORMATS = (1, FORMAT)
"""The formats that are read. Opening a store for writing adds the columns `ADDED` to one of format 1."""

COLUMNS = {
    "cell": "TEXT NOT NULL",
    "seed": "INTEGER NOT NULL",
    "environment": "TEXT NOT NULL",
    "environment_parameters": "JSON NOT NULL",
    "environment_seed": "INTEGER NOT NULL",
    "algorithm": "TEXT NOT NULL",
    "algorithm_parameters": "JSON NOT NULL",
    "algorithm_seed": "INTEGER NOT NULL",
    "max_trajectories": "INTEGER",
    "max_seconds": "REAL",
    "evaluate": "INTEGER NOT NULL",
    "status": "TEXT NOT NULL",
    "error": "TEXT",
    "value": "REAL",
    "value_standard_error": "REAL",
    "uniform_value": "REAL",
    "optimal_value": "REAL",
    "gap": "REAL",
    "n_trajectories": "INTEGER",
    "counts": "JSON NOT NULL",
    "seconds": "REAL",
    "timings": "JSON NOT NULL",
    "warnings": "JSON NOT NULL",
    "details": "JSON NOT NULL",
    "version": "TEXT NOT NULL",
    "host": "TEXT NOT NULL",
    "ended": "TEXT NOT NULL",
}
ADDED = ("uniform_value",)
"""Columns that stores of format 1 lack, with which their rows read None."""

SCHEMA = f"""
CREATE TABLE IF NOT EXISTS runs ({", ".join(f"{name} {kind}" for name, kind in COLUMNS.items())},
    PRIMARY KEY (cell, seed));
CREATE TABLE IF NOT EXISTS specs (text TEXT PRIMARY KEY, name TEXT NOT NULL, runs INTEGER NOT NULL,
    began TEXT NOT NULL);
"""

# The parts "i/n" of specifications, or "" for the whole, that sweeps into this store have worked on. This table is made
# when a sweep opens the store, and is not part of the file format; other versions may ignore it.
SHARDS = "CREATE TABLE IF NOT EXISTS shards (text TEXT NOT NULL, shard TEXT NOT NULL, PRIMARY KEY (text, shard));"

# Seconds to wait while another sweep is writing.
PATIENCE = 60.0

# Runs that took as many seconds together are followed by an fsync: a power cut loses fewer.
SYNC_EVERY = 1.0


class StoreError(ValueError):
    """A file is not a store of this version; the message names it."""


class WriteError(OSError):
    """Writing to the store failed; the runs stored before are unharmed."""


class Store:
    """The store in `directory`, opened for writing, and made if there is none.

    Raises
    ------
    OSError
        If the directory cannot be made or written to.
    StoreError
        If the file of that name is not a store.
    """

    def __init__(self, directory: Path) -> None:
        if directory.exists() and not directory.is_dir():
            raise NotADirectoryError(f"out: expected a directory, got the file {directory}")
        make_directory(directory)
        self.path = path = directory / FILE
        if path.is_dir():
            raise IsADirectoryError(f"out: {path} is a directory")
        if path.is_symlink():
            self.path = path = path.resolve()
            if not path.parent.is_dir():
                raise FileNotFoundError(f"out: {directory / FILE} is a link to {path}, and there is no directory there")
        if not os.access(path if path.exists() else path.parent, os.W_OK):
            raise PermissionError(f"{path} is not writable")
        self._unsynced = 0.0  # seconds of the runs that were stored since the last fsync
        with naming(path):
            if not path.exists():
                make(path)
            self.connection = sqlite3.connect(path, timeout=PATIENCE, isolation_level=None)
        try:
            with naming(path):
                check(self.connection, path)
                self._upgrade()
        except BaseException:
            self.connection.close()
            raise

    def _upgrade(self) -> None:
        """Add the tables and columns that a store of before lacks."""
        self.connection.execute("BEGIN IMMEDIATE")
        try:
            self.connection.execute(SHARDS)
            for name in ADDED:
                if name not in columns_of(self.connection):
                    self.connection.execute(f"ALTER TABLE runs ADD COLUMN {name} {COLUMNS[name]}")
            self.connection.execute(f"PRAGMA user_version = {FORMAT}")
            self.connection.execute("COMMIT")
        except BaseException:
            if self.connection.in_transaction:
                self.connection.execute("ROLLBACK")
            raise

    @contextlib.contextmanager
    def writing(self, *, synced: bool = True) -> Iterator[None]:
        """Make all writes of the block or none; raise WriteError if the disk or another sweep prevents it.

        They survive a kill from then on; with `synced` they survive a power cut too, which takes an fsync, and move
        from the write-ahead log into the file itself, unless a reader is at work.
        """
        try:
            self.connection.execute(f"PRAGMA synchronous = {'FULL' if synced else 'NORMAL'}")
            try:
                self.connection.execute("BEGIN IMMEDIATE")
                yield
                self.connection.execute("COMMIT")
                if synced:
                    with contextlib.suppress(sqlite3.OperationalError):  # what was committed stays in the log
                        self.connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall()
            except BaseException:
                # If the disk is full, SQLite has rolled back already.
                if self.connection.in_transaction:
                    self.connection.execute("ROLLBACK")
                raise
        except sqlite3.OperationalError as error:
            raise WriteError(f"{self.path}: could not be written: {error}") from error

    def note(self, spec: Spec, shard: tuple[int, int] | None = None) -> None:
        """Store the text of a specification, and that the runs of its shard are done here."""
        part = "" if shard is None else f"{shard[0]}/{shard[1]}"
        with self.writing():
            self.connection.execute(
                "INSERT OR IGNORE INTO specs VALUES (?, ?, ?, ?)", (spec.text, spec.name, spec.n_runs, now())
            )
            self.connection.execute("INSERT OR IGNORE INTO shards VALUES (?, ?)", (spec.text, part))

    def add(self, rows: Iterable[dict[str, Any]]) -> None:
        """Store rows; a row that is stored already stays as it is.

        They survive a kill. A power cut, or a copy of the file alone, loses runs of less than `SYNC_EVERY` seconds in
        all.
        """
        rows = list(rows)
        self._unsynced += sum(SYNC_EVERY if row["seconds"] is None else row["seconds"] for row in rows)
        synced = self._unsynced >= SYNC_EVERY
        marks = ", ".join("?" * len(COLUMNS))
        values = [tuple(stored(name, row[name]) for name in COLUMNS) for row in rows]
        with self.writing(synced=synced):
            self.connection.executemany(f"INSERT OR IGNORE INTO runs ({', '.join(COLUMNS)}) VALUES ({marks})", values)
        if synced:
            self._unsynced = 0.0

    def forget_failures(self, runs: Iterable[tuple[Cell, int]]) -> None:
        """Delete those of some runs that failed."""
        keys = ((cell.id, seed, *FAILURES) for cell, seed in runs)
        marks = ", ".join("?" * len(FAILURES))
        with self.writing():
            self.connection.executemany(f"DELETE FROM runs WHERE cell = ? AND seed = ? AND status IN ({marks})", keys)

    def known(self, keys: Sequence[tuple[str, int]]) -> set[tuple[str, int]]:
        """Return those pairs of cell and seed that are stored, of up to a few hundred."""
        marks = ", ".join(["(?, ?)"] * len(keys))
        flat = list(itertools.chain.from_iterable(keys))
        query = f"SELECT cell, seed FROM runs WHERE (cell, seed) IN (VALUES {marks})"
        return set(self.connection.execute(query, flat))

    def statuses(self) -> dict[tuple[str, int], str]:
        """Return the status of every stored run by cell and seed."""
        return statuses(self.connection)

    def versions(self) -> dict[str, int]:
        """Return the versions of this package that wrote the runs, and how many each did."""
        return versions(self.connection)

    def timings(self) -> dict[str, tuple[int, float]]:
        """Return the number and the total seconds of the runs of each cell."""
        found = self.connection.execute("SELECT cell, count(seconds), total(seconds) FROM runs GROUP BY cell")
        return {cell: (count, total) for cell, count, total in found if count > 0}

    def close(self) -> None:
        """Close the file."""
        self.connection.close()

    def __enter__(self) -> Store:
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        self.close()
        if isinstance(error, sqlite3.Error):  # the file is damaged
            raise StoreError(f"{self.path}: {error}") from error


def make(path: Path) -> None:
    """Make an empty store, whole or not at all; nothing if another sweep makes it at the same time.

    Neither a kill nor a power cut leaves a part of a store, which a reader could not repair.
    """
    temporary = temporary_beside(path)
    try:
        with contextlib.closing(sqlite3.connect(temporary, isolation_level=None)) as connection:
            connection.execute("PRAGMA journal_mode = WAL")
            number = f"PRAGMA application_id = {APPLICATION}; PRAGMA user_version = {FORMAT};"
            connection.executescript(f"BEGIN; {number} {SCHEMA} COMMIT;")
        try:
            os.link(temporary, path)
        except FileExistsError:
            pass
        except OSError:  # a file system without links
            temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
    sync_directory(path.parent)


def load_specs(directory: str | os.PathLike[str]) -> list[tuple[str, str, int]]:
    """Return names, texts and numbers of runs of the specifications that a directory has seen; errors as in `load`."""
    with reading(Path(directory) / FILE) as connection:
        return specs(connection)


def shards(connection: sqlite3.Connection) -> set[tuple[str, str]]:
    """Return the texts of specifications with the shards "i/n", or "" for the whole, that sweeps have worked on."""
    if not connection.execute("SELECT count(*) FROM sqlite_master WHERE name = 'shards'").fetchone()[0]:
        return set()  # a store of before
    found = set(entries(connection, "SELECT text, shard FROM shards", str, str))
    for _, shard in found:
        if shard and not is_shard(shard):
            raise ValueError(f"shard: expected a text such as '0/3', got {shard!r}")
    return found


def is_shard(text: str) -> bool:
    """Return whether a text is I/N with 0 <= I < N, as `Store.note` writes it."""
    numbers = re.fullmatch(r"([0-9]{1,18})/([0-9]{1,18})", text)
    return numbers is not None and int(numbers[1]) < int(numbers[2])


def rows(connection: sqlite3.Connection, query: str, *given: Any) -> list[dict[str, Any]]:
    """Return the rows of runs that the end of a query selects, as `load` describes them; ValueError as `loaded`."""
    found = connection.execute(f"SELECT {selected(connection)} FROM runs {query}", given)
    return [loaded(row) for row in found]


def records(connection: sqlite3.Connection) -> Records:
    """Return all rows as columns, by cell and seed; ValueError as `loaded`."""
    found = Records(tuple(COLUMNS))
    columns, seen = list(found.columns.values()), dict[str, str]()
    cursor = connection.execute(f"SELECT {selected(connection)} FROM runs ORDER BY cell, seed")
    n_trajectories, whole = list(COLUMNS).index("n_trajectories"), structured(connection)
    while some := cursor.fetchmany(MANY):
        parts = [list(part) for part in zip(*some, strict=True)]
        if not (whole and all(map(sound, COLUMNS, parts))):
            for values in some:
                loaded(values)  # finds the row that is damaged, and says what is
        parts[n_trajectories] = [None if n is None else int(n) for n in parts[n_trajectories]]
        for name, column, part in zip(COLUMNS, columns, parts, strict=True):
            column += [seen.setdefault(one, one) for one in part] if name in REPEATED else part
    return found


def structured(connection: sqlite3.Connection) -> bool:
    """Return whether the structured columns of all rows surely hold JSON of their forms; `loaded` judges others."""
    kinds = {name: "array" if ROW[name] is list else "object" for name in STRUCTURED}
    right = " AND ".join(
        [f"json_type({name}) = '{kind}'" for name, kind in kinds.items()]
        + ["coalesce(json_type(details, '$.traceback'), 'null') IN ('text', 'null')"]
    )
    valid = " AND ".join(f"json_valid({name})" for name in STRUCTURED)
    try:
        query = f"SELECT count(*) FROM runs WHERE NOT CASE WHEN {valid} THEN {right} ELSE 0 END"
        damaged: int = connection.execute(query).fetchone()[0]
        return not damaged
    except sqlite3.OperationalError:  # a library without JSON
        return False


MANY = 5000
"""Rows that are taken from a store at a time."""

REPEATED = {name for name, kind in COLUMNS.items() if kind.startswith(("TEXT", "JSON"))} - {"ended", "timings"}
"""Columns in which many rows have the same text."""


def sound(name: str, column: list[Any]) -> bool:
    """Return whether the entries of a column surely have its type and range; `loaded` judges others."""
    if not set(map(type, column)) <= ALLOWED[name]:
        return False
    if name == "seed":
        return bool(min(column) >= 0)
    return name != "n_trajectories" or all(n is None or math.isfinite(n) for n in column)


def columns_of(connection: sqlite3.Connection) -> set[str]:
    """Return the names of the columns of the runs."""
    return {name for _, name, *_ in connection.execute("PRAGMA table_info(runs)")}


def selected(connection: sqlite3.Connection) -> str:
    """Return what selects `COLUMNS`, in order; NULL for those of a later format."""
    missing = set(ADDED) - columns_of(connection)
    return ", ".join("NULL" if name in missing else name for name in COLUMNS)


def statuses(connection: sqlite3.Connection) -> dict[tuple[str, int], str]:
    """Return the status of every stored run by cell and seed, in this order."""
    found = entries(connection, "SELECT cell, seed, status FROM runs ORDER BY cell, seed", str, int, str)
    return {(cell, seed): status for cell, seed, status in found}


def failures(connection: sqlite3.Connection) -> list[dict[str, Any]]:
    """Return the rows of the runs that failed."""
    return rows(connection, f"WHERE status IN ({', '.join('?' * len(FAILURES))}) ORDER BY cell, seed", *FAILURES)


def specs(connection: sqlite3.Connection) -> list[tuple[str, str, int]]:
    """Return names, texts and numbers of runs of the specifications."""
    return entries(connection, "SELECT name, text, runs FROM specs ORDER BY began", str, str, int)


def versions(connection: sqlite3.Connection) -> dict[str, int]:
    """Return the versions of this package that wrote the runs, and how many each did."""
    return dict(entries(connection, "SELECT version, count(*) FROM runs GROUP BY version ORDER BY 1", str, int))


def versions_text(counts: Mapping[str, int]) -> list[str]:
    """Return a warning where runs are of several versions, which may do the runs of a cell in different ways.

    >>> versions_text({"0.1.0": 3, "0.2.0": 1}), versions_text({"0.2.0": 4})
    (['the runs are of several versions: 3 of dmq_fast 0.1.0, 1 of dmq_fast 0.2.0'], [])
    """
    if len(counts) < 2:
        return []
    parts = ", ".join(f"{n:,} of dmq_fast {version}" for version, n in counts.items())
    return [f"the runs are of several versions: {parts}"]


def entries(connection: sqlite3.Connection, query: str, *kinds: type) -> list[Any]:
    """Return the rows that a query finds; ValueError unless their entries are of these types."""
    found = connection.execute(query).fetchall()
    for row in found:
        check_form("entry", list(row), list(kinds))
    return found


def now() -> str:
    """Return the time (UTC) as text."""
    return datetime.datetime.now(datetime.UTC).isoformat(timespec="milliseconds")


@contextlib.contextmanager
def reading(path: Path) -> Iterator[sqlite3.Connection]:
    """Open a store for reading."""
    directory = path.parent
    if not path.exists():
        raise FileNotFoundError(f"{directory} holds no sweep: there is no {FILE}")
    if path.is_dir():
        raise IsADirectoryError(f"{directory} holds no sweep: {FILE} is a directory")
    # A reader needs a file of shared memory beside the write-ahead log. If the directory is read-only and there is no
    # log, no process can be writing, and SQLite can read without that file. It keeps the log where a link leads.
    log = path.resolve().with_name(f"{path.resolve().name}-wal")
    idle = not os.access(log.parent, os.W_OK) and not log.exists()
    uri = f"{path.absolute().as_uri()}?mode=ro{'&immutable=1' if idle else ''}"
    with naming(path), contextlib.closing(sqlite3.connect(uri, uri=True, timeout=PATIENCE)) as connection:
        check(connection, path)
        yield connection


def stored(name: str, value: Any) -> Any:
    """Return an entry of a row in the form in which SQLite stores it."""
    if name in FINITE:
        return finite_json(value, separators=(",", ":"))
    if name in STRUCTURED:
        return row_json(value)
    # SQLite's integers have 64 bits; exact samplers count beyond.
    return float(value) if name == "n_trajectories" and value is not None and value >= 2**63 else value


FORMS: dict[str, Any] = {"TEXT": str, "INTEGER": int, "REAL": int | float, "JSON": dict}
ROW: dict[str, Form] = {
    name: FORMS[kind.split()[0]] if kind.endswith("NOT NULL") else FORMS[kind] | None for name, kind in COLUMNS.items()
} | {"n_trajectories": int | float | None, "warnings": list}
"""The types of the columns of a row; SQLite keeps values of other types, too."""

ALLOWED = {name: {str} if name in STRUCTURED else {*(typing.get_args(form) or (form,))} for name, form in ROW.items()}
"""The types of their entries in SQLite."""


def loaded(values: Sequence[Any]) -> dict[str, Any]:
    """Return the row that was stored as these values; of n_trajectories beyond 2^63, the first 53 bits.

    Raises
    ------
    ValueError
        If the values are not those of a row.
    """
    row = dict(zip(COLUMNS, values, strict=True))
    try:
        for name in STRUCTURED:
            row[name] = read(name, row[name])
        check_form("row", row, ROW)
        if row["status"] in FAILURES:
            check_form("row.details", {"traceback": None} | row["details"], {"traceback": str | None})
        if row["seed"] < 0:
            raise ValueError(f"row.seed: expected an integer >= 0, got {row['seed']}")
        if row["n_trajectories"] is not None:
            row["n_trajectories"] = int(row["n_trajectories"])
    except (ValueError, TypeError, OverflowError) as error:
        raise ValueError(f"the row of cell {row['cell']!r}, seed {row['seed']!r}, is damaged: {error}") from error
    return row


def check(connection: sqlite3.Connection, path: Path) -> None:
    """Raise StoreError if the file is not a store of this version."""
    (application,), (version,) = (
        connection.execute(f"PRAGMA {name}").fetchone() for name in ("application_id", "user_version")
    )
    if application != APPLICATION:
        raise StoreError(f"{path}: not the store of a sweep")
    if version not in FORMATS:
        raise StoreError(f"{path}: a store of format {version}, expected format {' or '.join(map(str, FORMATS))}")


@contextlib.contextmanager
def naming(path: Path) -> Iterator[None]:
    """Turn errors of SQLite, and at entries that no sweep has stored, into StoreError, which names the file."""
    try:
        yield
    except StoreError:
        raise
    except (sqlite3.DatabaseError, ValueError, OverflowError) as error:
        raise StoreError(f"{path}: {error}") from error
