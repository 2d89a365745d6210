"""`status`: what has become of the runs of a sweep."""

from __future__ import annotations

import os
import sqlite3
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from dmq_fast._support.checks import as_path
from dmq_fast._support.words import number_of
from dmq_fast.experiments.report.csv_export import as_specified
from dmq_fast.experiments.sweeps import store
from dmq_fast.experiments.sweeps.runs import FAILURES
from dmq_fast.experiments.sweeps.spec import BUDGETS, Cell, Spec, SpecError, check_shard, read, reread

__all__ = ["STATES", "CellStatus", "Status", "status"]

STATES = ("done", "failed", "waiting")
"""What has become of a run."""


class CellStatus(NamedTuple):
    """One cell: its parameters as specified, and how many of its runs are done (without a failure), failed and waiting.

    Runs that a worker is doing are among those that wait.
    """

    cell: str
    environment: str
    environment_parameters: dict[str, Any]
    algorithm: str
    algorithm_parameters: dict[str, Any]
    done: int
    failed: int
    waiting: int


@dataclass(frozen=True)
class Status:
    """The state of the runs in a directory.

    Attributes
    ----------
    directory : Path
    names : tuple of str
        Names of the specifications.
    cells : tuple of CellStatus
    failures : tuple of dict
        The rows of the runs that failed, as `load` returns them.
    notes : tuple of str
        What could not be found out, and that runs are of several versions.
    """

    directory: Path
    names: tuple[str, ...]
    cells: tuple[CellStatus, ...]
    failures: tuple[dict[str, Any], ...]
    notes: tuple[str, ...]

    @property
    def counts(self) -> dict[str, int]:
        """Numbers of runs: "runs" in all, "done", "failed" and "waiting"."""
        counts = {state: sum(getattr(cell, state) for cell in self.cells) for state in STATES}
        return {"runs": sum(counts.values()), **counts}


def status(
    directory: str | os.PathLike[str],
    spec: str | os.PathLike[str] | Mapping[str, Any] | Spec | None = None,
    *,
    shard: tuple[int, int] | None = None,
) -> Status:
    """Return what has become of the runs in a directory, even while a sweep is writing to it.

    Parameters
    ----------
    directory : str or path-like
        The ``out`` of `sweep`.
    spec : path, mapping or Spec, optional
        Count the runs of this specification, as a sweep of it would find them; there need be no directory yet. Default:
        the specifications and shards that the directory has seen, and all other runs that it holds.
    shard : (int, int), optional
        The part of `spec`; see `sweep`.

    Raises
    ------
    SpecError
        If `spec` is wrong.
    FileNotFoundError, IsADirectoryError, StoreError
        As `load` does; without a store there is no error if `spec` is given.

    Examples
    --------
    >>> from dmq_fast import experiments
    >>> spec = {
    ...     "seeds": 4,
    ...     "environments": [{"name": "lock", "horizon": [3, 4]}],
    ...     "algorithms": [{"name": "dmq"}],
    ... }
    >>> experiments.status("not yet", spec, shard=(0, 2)).counts
    {'runs': 4, 'done': 0, 'failed': 0, 'waiting': 4}
    """
    directory, shard = as_path("directory", directory).absolute(), check_shard(shard)
    if shard is not None and spec is None:
        raise ValueError("shard: expected with a specification only")
    known = None if spec is None else read(spec)
    statuses: dict[tuple[str, int], str] = {}
    examples: dict[str, dict[str, Any]] = {}
    failures: list[dict[str, Any]] = []
    parts, names = ([], []) if known is None else ([(known, shard)], [known.name])
    notes: list[str] = []
    if known is None or (directory / store.FILE).exists():
        with store.reading(directory / store.FILE) as connection:
            connection.execute("BEGIN")  # all of it at one moment
            statuses, failures = store.statuses(connection), store.failures(connection)
            mixed = store.versions_text(store.versions(connection))
            examples = {row["cell"]: row for row in store.rows(connection, "GROUP BY cell")}
            if known is None:
                names = [name for name, _, _ in store.specs(connection)]
                parts, notes = parts_of(connection)
            notes = [*notes, *mixed]
    cells: dict[str, Cell | None] = {}
    wanted: dict[tuple[str, int], None] = {}
    for part, piece in parts:
        for cell, seed in part.runs(piece):
            cells.setdefault(cell.id, cell)
            wanted[cell.id, seed] = None
    if known is None:
        for key in statuses:
            cells.setdefault(key[0], None)
            wanted[key] = None
    counts: dict[str, Counter[str]] = {cell: Counter() for cell in cells}
    for key in wanted:
        ended = statuses.get(key)
        counts[key[0]]["waiting" if ended is None else "failed" if ended in FAILURES else "done"] += 1
    return Status(
        directory,
        tuple(dict.fromkeys(names)),
        tuple(cell_status(id, cell, examples.get(id), counts[id]) for id, cell in cells.items()),
        tuple(row for row in failures if (row["cell"], row["seed"]) in wanted),
        tuple(notes),
    )


def parts_of(connection: sqlite3.Connection) -> tuple[list[tuple[Spec, tuple[int, int] | None]], list[str]]:
    """Return the specifications and shards that a store has seen, and notes on those that cannot be read."""
    parts: list[tuple[Spec, tuple[int, int] | None]] = []
    notes = []
    for name, text, runs in store.specs(connection):
        try:
            spec = reread(text, name)
        except SpecError as error:  # perhaps a module of the user is not here
            notes.append(f"of the {number_of(runs, 'run')} of {name} only those that are stored are counted: {error}")
            continue
        shards = {shard for seen, shard in store.shards(connection) if seen == text}
        if not shards or "" in shards:  # none of a store that was merged
            parts.append((spec, None))
        else:
            parts += [(spec, (int(i), int(n))) for i, n in (shard.split("/") for shard in sorted(shards))]
    return parts, notes


def cell_status(id: str, cell: Cell | None, example: dict[str, Any] | None, counts: Counter[str]) -> CellStatus:
    """Return the status of a cell that is known from a specification or from a row."""
    if cell is None:
        assert example is not None
        row = as_specified(example)
        environment, algorithm = row["environment_parameters"], row["algorithm_parameters"]
        names = row["environment"], row["algorithm"]
    else:
        seed = {} if cell.environment_seed is None else {"seed": cell.environment_seed}
        budgets = {name: value for name in BUDGETS if (value := getattr(cell.budget, name)) is not None}
        environment, algorithm = cell.environment_parameters | seed, cell.algorithm_parameters | budgets
        names = cell.environment, cell.algorithm
    numbers = (counts[state] for state in STATES)
    return CellStatus(id, names[0], environment, names[1], algorithm, *numbers)
