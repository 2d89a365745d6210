"""Sweeps: many runs of many algorithms on many environments, stored so that no run is done twice.

    from dmq_fast import experiments
    experiments.sweep("locks.toml", "locks", workers=8)
    rows = experiments.load("locks")
    table = rows.to_dataframe()

`dmq_fast.experiments.sweeps.spec` explains the format of specifications, and
`dmq_fast.experiments.sweeps.algorithms` how to add an algorithm.
"""

from dmq_fast.experiments.report.csv_export import columns
from dmq_fast.experiments.report.export import export
from dmq_fast.experiments.rows import Rows, load
from dmq_fast.experiments.status import CellStatus, Status, status
from dmq_fast.experiments.sweeps import algorithms
from dmq_fast.experiments.sweeps.algorithms import Algorithm, Budget, Outcome
from dmq_fast.experiments.sweeps.merge import Merged, MergeError, merge
from dmq_fast.experiments.sweeps.scheduler import Summary, SweepProgress, sweep
from dmq_fast.experiments.sweeps.spec import Cell, Spec, SpecError, read
from dmq_fast.experiments.sweeps.store import StoreError, WriteError

__all__ = [
    "Algorithm",
    "Budget",
    "Cell",
    "CellStatus",
    "MergeError",
    "Merged",
    "Outcome",
    "Rows",
    "Spec",
    "SpecError",
    "Status",
    "StoreError",
    "Summary",
    "SweepProgress",
    "WriteError",
    "algorithms",
    "columns",
    "export",
    "load",
    "merge",
    "read",
    "status",
    "sweep",
]
