"""``dmq-fast sweep``: many runs."""

from __future__ import annotations

import json
import statistics
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dmq_fast.cli.exit_codes import FAILED, FINISHED
from dmq_fast.cli.files import claim_file
from dmq_fast.cli.options import command_parser, nonnegative_integer
from dmq_fast.cli.terminal import ProgressLine, exit_code, interruptible, not_saved, say, usage_error

if TYPE_CHECKING:
    from concurrent.futures import Executor

    from dmq_fast.experiments import Summary, SweepProgress

__all__ = ["sweep"]

EXIT_CODES = """\
exit codes:
  0    every run is stored, and none failed
  1    every run is stored, some as failed or crashed; or no worker comes up
  2    the command line, the specification or the directory is wrong; nothing was run
  4    the store or the exported file could not be written
  130  interrupted by Ctrl-C; the same command does the rest
  143  terminated (SIGTERM); likewise
"""


def sweep(arguments: Sequence[str]) -> int:
    """Run ``dmq-fast sweep SPEC --out DIR``."""
    parser = command_parser(
        "sweep",
        description="Do the runs that the TOML file SPEC describes and DIR does not hold yet: after a kill, Ctrl-C or "
        "a change of SPEC, the same command does what is missing. python -m pydoc dmq_fast.experiments.sweeps.spec "
        "explains SPEC. Several sweeps may share DIR on one machine.",
        epilog=EXIT_CODES,
    )
    parser.add_argument("spec", type=Path, metavar="SPEC")
    parser.add_argument("--out", type=Path, required=True, metavar="DIR", help="where the runs are stored")
    group = parser.add_mutually_exclusive_group()
    group.add_argument(
        "--workers", type=nonnegative_integer, metavar="N", help="processes; 0: this one. Default: one for each CPU"
    )
    group.add_argument("--dask", metavar="ADDRESS", help="of the scheduler of a dask cluster, to run there")
    parser.add_argument("--retry", action="store_true", help="do runs again that failed or crashed")
    parser.add_argument("--export", type=Path, metavar="FILE", help="write all runs of DIR to a .csv or .parquet file")
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of a table")
    group = parser.add_mutually_exclusive_group()
    group.add_argument("--quiet", action="store_true", help="no progress line")
    group.add_argument("--progress", action="store_true", help="show progress where there is no terminal, too")
    options = parser.parse_args(arguments)

    from concurrent.futures import BrokenExecutor

    from dmq_fast import experiments
    from dmq_fast.experiments.report import csv_export
    from dmq_fast.experiments.sweeps.workers import WorkerStartError

    command = f"sweep {options.spec}"
    shown = options.progress or (sys.stderr.isatty() and not options.quiet)
    progress = ProgressLine(describe, terminal=sys.stderr.isatty()) if shown else None
    with interruptible() as received, ExitStack() as stack:
        try:
            if options.export is not None:
                csv_export.check_format(options.export)
                if options.export.absolute().parent != options.out.absolute():  # which the sweep makes
                    claim_file("--export", options.export)
            spec = experiments.read(options.spec)
            executor = None if options.dask is None else dask_executor(options.dask, stack)
            summary = experiments.sweep(
                spec, options.out, workers=options.workers, executor=executor, retry=options.retry, progress=progress
            )
            stored = experiments.load(options.out)
        except KeyboardInterrupt:
            if progress is not None:
                progress.clear()
            say(f"dmq-fast {command}: stopped; the same command goes on from here")
            return exit_code(received)
        except experiments.WriteError as error:
            return not_saved(command, error)
        except (BrokenExecutor, WorkerStartError) as error:
            say(f"dmq-fast {command}: {error}")
            return FAILED
        except (ValueError, TypeError, ImportError, OSError) as error:
            return usage_error(f"{command}: {error}")
        if progress is not None:
            progress.clear()
        rows = chosen(stored, {cell.id for cell in spec.cells}, set(spec.seeds))
        print(json.dumps(as_dict(summary, rows)) if options.json else table(summary, rows), flush=True)
        if options.export is not None:
            try:
                csv_export.export(stored, options.export)
            except OSError as error:
                return not_saved(command, error)
    return FAILED if summary.failed else FINISHED


def dask_executor(address: str, stack: ExitStack) -> Executor:
    """Connect to a dask scheduler."""
    try:
        import distributed
    except ImportError as error:
        raise ImportError('--dask needs distributed: pip install "dmq-fast[parallel]"') from error
    client = stack.enter_context(distributed.Client(address))
    executor: Executor = client.get_executor()
    return executor


def chosen(rows: list[dict[str, Any]], cells: set[str], seeds: set[int]) -> list[dict[str, Any]]:
    """Return the rows of a specification; the store may hold those of others."""
    return [row for row in rows if row["cell"] in cells and row["seed"] in seeds]


def as_dict(summary: Summary, rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Everything `table` shows, as plain data."""
    return {
        "name": summary.name,
        "out": str(summary.out),
        "runs": summary.runs,
        "ran": summary.ran,
        "statuses": summary.statuses,
        "seconds": summary.seconds,
        "warnings": list(summary.warnings),
        "errors": errors(rows),
        "cells": cells(rows),
    }


def errors(rows: list[dict[str, Any]]) -> dict[str, int]:
    """Count the messages of runs that failed or crashed."""
    return dict(Counter(row["error"] for row in rows if row["error"] is not None).most_common())


def cells(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Sum up the runs of each cell."""
    from dmq_fast.experiments.report.csv_export import as_specified
    from dmq_fast.experiments.sweeps.runs import FAILURES

    groups: dict[str, list[dict[str, Any]]] = {}
    for row in rows:
        groups.setdefault(row["cell"], []).append(row)
    return [
        {
            "cell": cell,
            "environment": group[0]["environment"],
            "environment_parameters": as_specified(group[0])["environment_parameters"],
            "algorithm": group[0]["algorithm"],
            **{name: group[0][name] for name in ("algorithm_parameters", "max_trajectories", "max_seconds")},
            "runs": len(group),
            "failed": sum(row["status"] in FAILURES for row in group),
            **{name: mean(group, name) for name in ("value", "optimal_value", "n_trajectories", "seconds")},
        }
        for cell, group in groups.items()
    ]


def mean(rows: list[dict[str, Any]], name: str) -> float | None:
    """Mean of a column where it is known."""
    values = [row[name] for row in rows if row[name] is not None]
    return statistics.fmean(values) if values else None


def table(summary: Summary, rows: list[dict[str, Any]]) -> str:
    """Lay a sweep out for a person."""
    from dmq_fast.experiments.sweeps.store import FILE

    statuses = ", ".join(f"{status} {count:,}" for status, count in summary.statuses.items())
    lines = [
        *grid(sorted(cells(rows), key=in_order)),
        "",
        f"{summary.name}: {summary.runs:,} runs ({statuses}), {summary.ran:,} of them now, in {clock(summary.seconds)}",
        f"stored in {summary.out / FILE}",
        *(f"warning: {warning}" for warning in summary.warnings),
        *(f"{count:,} x {message}" for message, count in errors(rows).items()),
    ]
    return "\n".join(lines)


def in_order(cell: dict[str, Any]) -> tuple[Any, ...]:
    """Sort by environment, algorithm and parameters; numbers as numbers."""

    def key(value: Any) -> tuple[bool, Any]:
        return (False, value) if isinstance(value, int | float) else (True, str(value))

    return tuple(
        (cell[kind], [(name, key(value)) for name, value in cell[f"{kind}_parameters"].items()])
        for kind in ("environment", "algorithm")
    )


def grid(cells: list[dict[str, Any]]) -> Iterator[str]:
    """Lay the cells out: parameters that are the same in all cells of an environment or algorithm are left out."""
    columns: list[tuple[str, list[str]]] = []
    for kind in ("environment", "algorithm"):
        columns.append((kind, [cell[kind] for cell in cells]))
        given = [cell[f"{kind}_parameters"] for cell in cells]
        for name in dict.fromkeys(name for parameters in given for name in parameters):
            kinds: dict[str, set[str]] = {}
            for cell in cells:
                kinds.setdefault(cell[kind], set()).add(spell(cell[f"{kind}_parameters"].get(name)))
            if any(len(entries) > 1 for entries in kinds.values()):
                columns.append((name, [spell(parameters.get(name)) for parameters in given]))
    columns += varying(cells, ["max_trajectories", "max_seconds"])
    columns += [(name, [f"{cell[name]:,}" for cell in cells]) for name in ("runs", "failed")]
    titles = {"value": "value", "optimal_value": "optimum", "n_trajectories": "trajectories", "seconds": "seconds"}
    columns += [(f"mean {title}", [spell(cell[name]) for cell in cells]) for name, title in titles.items()]
    widths = [max(map(len, [title, *entries])) for title, entries in columns]
    for row in zip(*([title, *entries] for title, entries in columns), strict=True):
        yield "  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)).rstrip()


def varying(given: list[dict[str, Any]], names: list[str]) -> Iterator[tuple[str, list[str]]]:
    """Yield the columns of those names whose values are not all the same."""
    for name in names:
        entries = [spell(entry.get(name)) for entry in given]
        if len(set(entries)) > 1:
            yield name, entries


def spell(value: Any) -> str:
    """Write an entry of the grid."""
    if value is None:
        return "-"
    if isinstance(value, float):
        return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"
    return str(value)


def clock(seconds: float) -> str:
    """Write a time for a person."""
    if seconds < 100:
        return f"{seconds:.0f} s" if seconds >= 10 else f"{seconds:.1f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 100 else f"{minutes / 60:.1f} h"


def describe(progress: SweepProgress) -> str:
    """Write progress on one line."""
    text = f"{progress.done:,} of {progress.total:,} runs"
    if progress.failed:
        text += f", {progress.failed:,} failed"
    text += f", {clock(progress.seconds)}"
    if progress.done == progress.total:
        return text
    if progress.seconds_left is None:
        return f"{text}, no run has finished yet: time left unknown"
    if progress.unseen:
        return f"{text}, more than {clock(progress.seconds_left)} left ({progress.unseen:,} cells not yet known)"
    return f"{text}, about {clock(progress.seconds_left)} left"
