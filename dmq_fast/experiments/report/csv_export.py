"""The runs of a sweep as flat columns, for CSV files and for data frames."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Mapping
from typing import Any

from dmq_fast._support.files import writable
from dmq_fast._support.json_text import to_json
from dmq_fast.experiments.sweeps.records import Record, peek
from dmq_fast.experiments.sweeps.spec import BUDGETS, seeds_of
from dmq_fast.results.score import score

__all__ = [
    "as_csv", "as_specified", "columns", "learning_curve", "score_of", "uniform_of",
]  # fmt: skip

# The entries of these dicts become columns of their own, with this prefix to the name.
SPREAD = {
    "environment_parameters": "environment.",
    "algorithm_parameters": "algorithm.",
    "counts": "counts.",
    "timings": "timings.",
}


def as_specified(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return a row whose parameters hold a fixed seed of the environment and the budgets as well.

    The specification gives them among the parameters, and they distinguish cells as parameters do.
    """
    own = row.get("environment_seed")
    fixed = {} if own is None or own == seeds_of(row["seed"])[0] else {"seed": own}
    budgets = {key: row[key] for key in BUDGETS if row.get(key) is not None}
    return {
        **row,
        "environment_parameters": row["environment_parameters"] | fixed,
        "algorithm_parameters": row["algorithm_parameters"] | budgets,
    }


def uniform_of(row: Mapping[str, Any]) -> float:
    """Return the value of uniform play; 0 in rows of 0.2.0, which had none, and rewards >= 0."""
    uniform = row.get("uniform_value")
    return 0.0 if uniform is None else float(uniform)


def score_of(row: Mapping[str, Any]) -> float | None:
    """Return the score of a row, None where its value or the optimum is unknown, or every policy is optimal."""
    value, optimum = row.get("value"), row.get("optimal_value")
    return None if value is None or optimum is None else score(value, uniform_of(row), optimum)


# What a checkpoint has of its run.
OF_THE_RUN = (
    "cell",
    "seed",
    "environment",
    "environment_parameters",
    "algorithm",
    "algorithm_parameters",
    "uniform_value",
    "optimal_value",
)


def columns(rows: Iterable[Mapping[str, Any]], *, curves: bool = False) -> dict[str, list[Any]]:
    """Return the rows that `load` returned as columns, all of one length.

    Each parameter, count and timing has a column ("environment.horizon", "algorithm.n_samples", "counts.oracle_calls"),
    with None for runs without it. The entries of "warnings" are lists, those of "details" dicts. Where the optimum is
    known, "score" is (value - uniform_value) / (optimal_value - uniform_value), with 0 for a missing uniform_value.

    With `curves`, there is a line for each checkpoint of each learning curve instead of one for each run: the cell, the
    seed, the names and the parameters of the run, its "uniform_value" and "optimal_value", and "episodes", "value",
    "standard_error", "reward", "regret" and "score" at the checkpoint. Rewards and regrets are those that were drawn.
    Runs without a learning curve, such as those of DMQ, have no lines.

    Examples
    --------
    >>> from dmq_fast import experiments
    >>> row = {"seed": 0, "environment_parameters": {"horizon": 3}, "value": 0.7}
    >>> experiments.columns([row])
    {'seed': [0], 'environment.horizon': [3], 'value': [0.7]}
    """
    table: dict[str, list[Any]] = {}
    n = 0
    for row in checkpoints(rows) if curves else rows:
        for name, value in dict(flatten(row)).items():
            # In the order of the first run, columns that later runs add at the end.
            column = table.setdefault(name, [])
            if len(column) < n:
                column += [None] * (n - len(column))
            column.append(value)
        n += 1
    return {name: column + [None] * (n - len(column)) for name, column in table.items()}


def learning_curve(row: Mapping[str, Any]) -> dict[str, list[Any]]:
    """Return the columns of the learning curve of a run; none where `details` holds no table of that name."""
    if isinstance(row, Record) and '"curve"' not in (row.text("details") or '"curve"'):
        return {}
    curve = (peek(row, "details") or {}).get("curve")
    if not isinstance(curve, dict) or not all(isinstance(column, list) for column in curve.values()):
        return {}
    return curve if len(set(map(len, curve.values()))) == 1 else {}


def checkpoints(rows: Iterable[Mapping[str, Any]]) -> Iterable[Mapping[str, Any]]:
    """Yield a row for each checkpoint of the learning curves."""
    for row in rows:
        curve = learning_curve(row)
        run = {name: row[name] for name in OF_THE_RUN if name in row}
        for values in zip(*curve.values(), strict=True):
            yield run | dict(zip(curve, values, strict=True))


def flatten(row: Mapping[str, Any]) -> Iterable[tuple[str, Any]]:
    """Yield the entries of a row, those of dicts by dotted names."""
    for name in row:
        value = peek(row, name)
        if name in SPREAD:
            yield from spread(SPREAD[name], value)
        else:
            yield name, list(value) if isinstance(value, list) else value
    if row.get("optimal_value") is not None:
        yield "score", score_of(row)


def spread(prefix: str, value: Mapping[str, Any]) -> Iterable[tuple[str, Any]]:
    """Yield the entries of nested dicts by dotted names."""
    for name, entry in value.items():
        if isinstance(entry, dict):
            yield from spread(f"{prefix}{name}.", entry)
        else:
            yield prefix + name, entry


def as_text(value: Any) -> Any:
    """Return a list or dict as JSON, and any other value but a text as it is."""
    if isinstance(value, list | dict):
        return to_json(value)
    return writable(value) if isinstance(value, str) else value


def as_csv(table: Mapping[str, list[Any]]) -> bytes:
    """Return a table as CSV: lists and dicts as JSON, texts such as UTF-8 can encode, an empty field for None."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(map(writable, table))
    writer.writerows(map(as_text, row) for row in zip(*table.values(), strict=True))
    return text.getvalue().encode()
