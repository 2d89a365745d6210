"""``dmq-fast sweep``: do the runs of a specification."""

from __future__ import annotations

import argparse
import os
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dmq_fast._support.json_text import to_json
from dmq_fast._support.progress import ProgressLine, on_terminal
from dmq_fast._support.words import number_of, table_lines
from dmq_fast.cli.exit_codes import FAILED, FINISHED
from dmq_fast.cli.files import claim_file
from dmq_fast.cli.options import command_parser, full_path, nonnegative_integer, path
from dmq_fast.cli.run import with_flags
from dmq_fast.cli.status import status_dict, status_table
from dmq_fast.cli.terminal import (
    not_saved,
    output_apart,
    say,
    show,
    signals,
    told,
    usage_error,
)

if TYPE_CHECKING:
    from concurrent.futures import Executor

    from dmq_fast.experiments import Spec, Summary

__all__ = ["sweep"]

OPTIONS = {name: name for name in ("out", "export", "workers")}
"""Arguments of `sweep` and `export`, and the options that give them."""

EXIT_CODES = """\
exit codes:
  0    every run is stored, and none failed
  1    every run is stored, some as failed, crashed or timeout; or workers could not be started, were lost, or cannot do
       the runs; the same command does the remaining ones
  2    the command line, the specification or the directory is wrong; nothing was run
  4    the store or the exported file could not be written
  130  interrupted by Ctrl-C; the same command does the remaining runs
  143  terminated by SIGTERM; the same command does the remaining runs
"""


def sweep(arguments: Sequence[str]) -> int:
    """Run ``dmq-fast sweep SPEC --out DIR``."""
    parser = command_parser(
        "sweep",
        description="Do the runs that the TOML file SPEC describes, and store them in DIR. Runs that DIR holds already "
        "are not repeated: after a kill, Ctrl-C or a change of SPEC, the same command does the missing runs. Several "
        "sweeps on one machine may share DIR. The format of SPEC: python -m pydoc dmq_fast.experiments.sweeps.spec",
        epilog=EXIT_CODES,
    )
    parser.add_argument("spec", type=path, metavar="SPEC", help="environments, algorithms, parameters and seeds")
    parser.add_argument(
        "--out", type=full_path, required=True, metavar="DIR", help="directory of the store; made if it does not exist"
    )
    group = parser.add_mutually_exclusive_group()
    group.add_argument(
        "--workers",
        type=nonnegative_integer,
        metavar="N",
        help="number of worker processes; 0 does all runs in this process; default: one for each CPU that the "
        "sweep may use",
    )
    group.add_argument(
        "--dask", metavar="ADDRESS", help="do the runs on the dask cluster whose scheduler is at ADDRESS"
    )
    parser.add_argument(
        "--shard",
        type=read_shard,
        metavar="I/N",
        help="do part I of N of the runs only, I = 0, ..., N - 1, each with a DIR of its own, which dmq-fast merge "
        "joins; slurm: the task of the job array of Slurm",
    )
    parser.add_argument(
        "--dry-run", action="store_true", help="run nothing: list the cells, their runs, and which of them DIR holds"
    )
    parser.add_argument(
        "--retry",
        action="store_true",
        help="repeat the runs that failed, crashed or timed out",
    )
    parser.add_argument(
        "--export",
        type=full_path,
        metavar="FILE",
        help="write the runs in DIR to a .csv file, or compare their algorithms in a .tex file",
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of a table")
    group = parser.add_mutually_exclusive_group()
    group.add_argument("--quiet", action="store_true", help="show no progress line")
    group.add_argument("--progress", action="store_true", help="show progress even without a terminal")
    options = parser.parse_args(arguments)

    from concurrent.futures import BrokenExecutor

    from dmq_fast import experiments
    from dmq_fast._support.workers import WorkerStartError
    from dmq_fast.experiments.report.export import check_format, export
    from dmq_fast.experiments.sweeps.scheduler import progress_text

    command = f"sweep {options.spec}"
    if options.dry_run:
        return dry_run(command, options.spec, options.out, options.shard, options.json)
    shown = options.progress or (on_terminal() and not options.quiet)
    progress = ProgressLine(progress_text, terminal=on_terminal()) if shown else None

    @output_apart()
    def swept() -> tuple[Spec, Summary]:
        if options.export is not None:
            check_format(options.export)
            claim_file("--export", options.export, made=options.export.parent == options.out)
        spec = experiments.read(options.spec)
        with ExitStack() as stack:
            executor = None if options.dask is None else dask_executor(options.dask, stack)
            return spec, experiments.sweep(
                spec,
                options.out,
                workers=options.workers,
                executor=executor,
                shard=options.shard,
                retry=options.retry,
                progress=signals.checking(progress),
            )

    with signals.held():
        try:
            done = signals.attempt(swept)
            if progress is not None:
                progress.clear()
            if done is None:
                say(f"dmq-fast {command}: stopped; the same command does the remaining runs")
                return signals.code(FINISHED)
            spec, summary = done
            stored = experiments.load(options.out)
        except experiments.WriteError as error:
            return not_saved(command, error)
        except (BrokenExecutor, WorkerStartError) as error:
            say(f"dmq-fast {command}: {error}; the same command does the remaining runs")
            return FAILED
        except (ValueError, TypeError, ImportError, OSError) as error:
            return usage_error(f"{command}: {with_flags(told(error), OPTIONS)}")
        rows = rows_of(stored, {cell.id for cell in spec.cells}, set(spec.seeds))
        code = FAILED if summary.failed else FINISHED
        if options.export is not None:
            try:
                export(stored, options.export)
            except OSError as error:
                code = not_saved(command, error)
        text = to_json(as_dict(summary, rows)) if options.json else sweep_table(summary, rows)
        return signals.code(show(command, text, code))


def dry_run(command: str, spec: Path, out: Path, shard: tuple[int, int] | None, as_json: bool) -> int:
    """Print what a sweep would do, after all checks of its specification."""
    from dmq_fast import experiments

    try:
        with output_apart():
            wanted = experiments.read(spec)
            wanted.check()
            found = experiments.status(out, wanted, shard=shard)
    except (ValueError, TypeError, ImportError, OSError) as error:
        return usage_error(f"{command}: {with_flags(told(error), OPTIONS)}")
    text = to_json(status_dict(found)) if as_json else status_table(found)
    return signals.code(show(command, text, FINISHED))


def read_shard(text: str) -> tuple[int, int]:
    """Read the pair (i, n) of I/N, or that of the task of Slurm's job array in which this process runs."""
    if text == "slurm":
        return slurm_shard(os.environ)
    i, slash, n = text.partition("/")
    if not slash or not i.isdecimal() or not n.isdecimal() or int(i) >= int(n):
        raise argparse.ArgumentTypeError(f"expected I/N with 0 <= I < N, such as 0/3, or slurm, got {text!r}")
    return int(i), int(n)


def slurm_shard(environment: Mapping[str, str]) -> tuple[int, int]:
    """Return (i, n) for the task i of the n tasks of a job array, whatever number the first of them has."""
    prefix = "SLURM_ARRAY_TASK_"
    try:
        task, n, first = (int(environment[prefix + name]) for name in ("ID", "COUNT", "MIN"))
        step = int(environment.get(prefix + "STEP", "1"))
    except (KeyError, ValueError) as error:
        raise argparse.ArgumentTypeError(
            f"slurm: expected the numbers {prefix}ID, {prefix}COUNT and {prefix}MIN in the environment, as Slurm sets "
            f"them for the tasks of a job array ({type(error).__name__}: {error})"
        ) from error
    if n == 1:  # as of one task that is submitted again, which would do all runs
        raise argparse.ArgumentTypeError(
            f"slurm: expected an array of at least 2 tasks, got one with the task {task} alone; give its part as I/N"
        )
    i, rest = divmod(task - first, max(step, 1))
    if rest or not 0 <= i < n:
        raise argparse.ArgumentTypeError(
            f"slurm: expected an array of consecutive tasks, got task {task} of {n} that begin with {first}; give the "
            "part as I/N"
        )
    return i, n


def dask_executor(address: str, stack: ExitStack) -> Executor:
    """Connect to a dask scheduler."""
    try:
        import distributed
    except ImportError as error:
        raise ImportError('--dask needs distributed: pip install "dmq-fast[parallel]"') from error
    client = stack.enter_context(distributed.Client(address))
    executor: Executor = client.get_executor()
    return executor


def rows_of(rows: Sequence[Mapping[str, Any]], cells: set[str], seeds: set[int]) -> list[Mapping[str, Any]]:
    """Return the rows of one specification, from a store that may hold others."""
    return [row for row in rows if row["cell"] in cells and row["seed"] in seeds]


def as_dict(summary: Summary, rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the summary of a sweep as plain data."""
    from dmq_fast.experiments.report.cells import warned
    from dmq_fast.experiments.report.tables import count_errors, failure_dict, failures_of, summarise_cells

    return {
        "name": summary.name,
        "out": str(summary.out),
        "runs": summary.runs,
        "ran": summary.ran,
        "statuses": summary.statuses,
        "seconds": summary.seconds,
        "warnings": list(summary.warnings),
        "run_warnings": warned(rows),
        "errors": count_errors(rows),
        "failures": [failure_dict(row) for row in failures_of(rows)],
        "cells": summarise_cells(rows),
    }


def sweep_table(summary: Summary, rows: Sequence[Mapping[str, Any]]) -> str:
    """Return the summary of a sweep as a table."""
    from dmq_fast.experiments.report.cells import warned
    from dmq_fast.experiments.report.tables import (
        MEANS,
        failure_lines,
        failures_of,
        summarise_cells,
        table_of,
    )
    from dmq_fast.experiments.sweeps.scheduler import clock
    from dmq_fast.experiments.sweeps.store import FILE

    statuses = ", ".join(f"{status} {count:,}" for status, count in summary.statuses.items())
    cells = summarise_cells(rows)
    lines = [
        *table_lines(*table_of(cells, ("runs", "failed"), MEANS)),
        "",
        f"{summary.name}: {number_of(summary.runs, 'run')} ({statuses}), {summary.ran:,} of them now, "
        f"in {clock(summary.seconds)}",
        f"stored in {summary.out / FILE}",
        *(f"warning: {warning}" for warning in summary.warnings),
        *(f"warning: {warning}" for warning in warned(rows)),
        *failure_lines(failures_of(rows), cells),
    ]
    return "\n".join(lines)
