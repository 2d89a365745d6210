"""`load`: the runs of a sweep, as rows, as cells, and as tables."""

from __future__ import annotations

import os
from collections.abc import MutableMapping
from typing import TYPE_CHECKING, Any

from dmq_fast._support.checks import as_path
from dmq_fast._support.frames import data_frame
from dmq_fast._support.words import number_of, table_lines
from dmq_fast.experiments.report.against import against
from dmq_fast.experiments.report.cells import CellRuns, cells_of
from dmq_fast.experiments.report.csv_export import columns
from dmq_fast.experiments.report.tables import summarise_cells, table_of
from dmq_fast.experiments.sweeps import store
from dmq_fast.experiments.sweeps.records import Record

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["Rows", "load"]


class Rows(list[MutableMapping[str, Any]]):
    """A list of the runs of a sweep, one mapping for each, as `load` describes them; ``dict(row)`` makes a dict.

    ``Rows(row for row in rows if ...)`` makes one of some of the runs. Tables are in long form: a line for each run, a
    column for each parameter, count and timing, as `columns` names them. With ``curves=True`` they have a line for
    each checkpoint of each learning curve instead.

    Examples
    --------
    >>> from dmq_fast import experiments
    >>> row = {"cell": "a", "seed": 0, "environment_parameters": {"horizon": 3}, "value": 0.7}
    >>> experiments.Rows([row]).columns()
    {'cell': ['a'], 'seed': [0], 'environment.horizon': [3], 'value': [0.7]}
    """

    @property
    def cells(self) -> list[CellRuns]:
        """The runs by cell, in order of environment, algorithm and their parameters."""
        return cells_of(self)

    def columns(self, *, curves: bool = False) -> dict[str, list[Any]]:
        """Return the runs as columns of one length; see `dmq_fast.experiments.columns`."""
        return columns(self, curves=curves)

    def to_dataframe(self, *, curves: bool = False) -> Any:
        """Return the runs as a `pandas.DataFrame`.

        Raises
        ------
        ImportError
            If pandas is not installed.
        """
        return data_frame(self.columns(curves=curves))

    def plot(self, x: str | None = None, y: str = "value", **options: Any) -> Figure:
        """Plot a quantity of the runs against a parameter; see `dmq_fast.experiments.report.against.against`.

        Raises
        ------
        ImportError
            If matplotlib is not installed.
        ValueError
            If an argument is out of range, or no run has both x and y.
        """
        return against(self, x, y, **options)

    def __repr__(self) -> str:
        """Return the number of the runs, and a table of their cells with the parameters in which they differ."""
        try:
            cells = summarise_cells(self)
        except KeyError:  # rows without the entries of a sweep
            return super().__repr__()
        heads, lines = table_of(cells[:SHOWN], ("runs",), {})
        more = [f"and {number_of(len(cells) - SHOWN, 'more cell')}"] * (len(cells) > SHOWN)
        return "\n".join([f"{number_of(len(self), 'run')}:", *table_lines(heads, lines), *more])


SHOWN = 20
"""Largest number of cells that `repr` of rows shows."""


def load(directory: str | os.PathLike[str]) -> Rows:
    """Return the runs stored in a directory, ordered by cell and seed, even while a sweep is writing to it.

    Parameters
    ----------
    directory : str or path-like
        The ``out`` of `sweep`.

    Returns
    -------
    Rows
        One mapping for each run, which acts like a dict. It has ``cell`` (an id), ``seed``; ``environment``,
        ``environment_parameters``, ``environment_seed``; ``algorithm``, ``algorithm_parameters``, ``algorithm_seed``;
        ``max_trajectories``, ``max_seconds``, ``evaluate``; ``status`` ("failed", "crashed", "timeout" or a status of
        the algorithm), ``error``; ``value``, ``value_standard_error`` (None if the value is exact), ``uniform_value``
        (of uniform play; None in stores of 0.2.0), ``optimal_value``, ``gap``; ``n_trajectories`` (rounded to 53 bits
        from 2^63 on), ``counts``, ``seconds``, ``timings``, ``warnings``, ``details``; ``version``, ``host``,
        ``ended`` (UTC).

    Raises
    ------
    FileNotFoundError, IsADirectoryError
        If there is no store, or a directory of its name.
    StoreError
        If the file is not a store of this version.
    """
    with store.reading(as_path("directory", directory) / store.FILE) as connection:
        found = store.records(connection)
    return Rows(Record(found, i) for i in range(len(found.columns["cell"])))
