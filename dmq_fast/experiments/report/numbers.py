"""The numbers of many runs as arrays, from which figures and tables take their quantities."""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dmq_fast._support.json_text import Form, check_form
from dmq_fast.experiments.report.csv_export import learning_curve, uniform_of
from dmq_fast.experiments.sweeps.records import peek
from dmq_fast.experiments.sweeps.runs import FAILURES
from dmq_fast.results.score import solves

__all__ = ["Curves", "Numbers", "curve_of"]

BUDGETS = ("max_trajectories", "max_policies", "max_seconds", "n_samples")
"""Statuses of runs that a budget ended."""


def curve_of(row: Mapping[str, Any], *columns: str) -> dict[str, list[Any]] | None:
    """Return the learning curve of a run that has one, with these columns too, and a known optimum, as baselines have.

    `algorithms.progress_of` describes what such a run has.
    """
    if row.get("optimal_value") is None:
        return None
    curve = learning_curve(row)
    form: dict[str, Form] = {"episodes": [int], **{name: [float] for name in ("value", *columns)}}
    try:
        check_form("curve", curve, form)
    except ValueError:
        return None
    return curve if curve["episodes"] else None


class Curves(NamedTuple):
    """What the learning curves of runs tell, one entry for each run.

    Attributes
    ----------
    has : ndarray of bool
        Whether the run has a learning curve.
    good_after : ndarray
        The first checkpoint whose policy solves the environment, infinity if none does; NaN without a curve.
    solved_at : ndarray
        The episodes until half is earned, infinity if it was not.
    stops : ndarray of bool
        Whether the algorithm has a rule when to stop: all do that have no learning curve.
    """

    has: NDArray[np.bool_]
    good_after: NDArray[np.float64]
    solved_at: NDArray[np.float64]
    stops: NDArray[np.bool_]


class Numbers:
    """The numbers of runs as arrays, NaN where one is unknown."""

    def __init__(self, rows: Sequence[Mapping[str, Any]]) -> None:
        self.rows = rows
        self._curves: dict[float, Curves] = {}

    def of(self, name: str) -> NDArray[np.float64]:
        """Return the entries of a column."""
        entries = [row.get(name) for row in self.rows]
        return np.array([math.nan if one is None else one for one in entries], dtype=np.float64)

    @functools.cached_property
    def failed(self) -> NDArray[np.bool_]:
        """Whether a run failed, crashed, or was ended at its limit."""
        return np.array([row.get("status") in FAILURES for row in self.rows], dtype=bool)

    @functools.cached_property
    def cut(self) -> NDArray[np.bool_]:
        """Whether a budget ended a run."""
        return np.array([row.get("status") in BUDGETS for row in self.rows], dtype=bool)

    @functools.cached_property
    def value(self) -> NDArray[np.float64]:
        """Values of the learned policies."""
        return self.of("value")

    @functools.cached_property
    def uniform(self) -> NDArray[np.float64]:
        """Values of uniform play; 0 in rows of 0.2.0, which had none."""
        return np.nan_to_num(self.of("uniform_value"))

    @functools.cached_property
    def optimum(self) -> NDArray[np.float64]:
        """Values of the best policies."""
        return self.of("optimal_value")

    @functools.cached_property
    def episodes(self) -> NDArray[np.float64]:
        """Numbers of trajectories."""
        return self.of("n_trajectories")

    @functools.cached_property
    def seconds(self) -> NDArray[np.float64]:
        """Wall-clock times."""
        return self.of("seconds")

    def curves(self, share: float) -> Curves:
        """Return what the learning curves tell of a policy that scores at least `share`."""
        if share not in self._curves:
            self._curves[share] = self._read_curves(share)
        return self._curves[share]

    def _read_curves(self, share: float) -> Curves:
        n = len(self.rows)
        found = Curves(np.zeros(n, bool), np.full(n, math.nan), np.full(n, math.inf), np.ones(n, bool))
        for i, row in enumerate(self.rows):
            curve = curve_of(row)
            if curve is None:
                continue
            found.has[i] = True
            best, uniform = row["optimal_value"], uniform_of(row)
            at = zip(curve["episodes"], curve["value"], strict=True)
            found.good_after[i] = next((n for n, own in at if solves(own, uniform, best, share)), math.inf)
            solved_at = peek(row, "details").get("solved_at")
            if isinstance(solved_at, int):
                found.solved_at[i] = solved_at
            epsilon = peek(row, "algorithm_parameters").get("epsilon", 0.05)
            found.stops[i] = "stopped_after" in peek(row, "counts") and epsilon is not None
        return found
