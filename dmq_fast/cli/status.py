"""``dmq-fast status``: what has become of the runs of a sweep."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from dmq_fast._support.json_text import to_json
from dmq_fast._support.words import number_of, table_lines
from dmq_fast.cli.exit_codes import FINISHED, SHORT_EXIT_CODES
from dmq_fast.cli.options import command_parser, full_path
from dmq_fast.cli.terminal import show, signals, told, usage_error

if TYPE_CHECKING:
    from dmq_fast.experiments import Status

__all__ = ["status", "status_dict", "status_table"]


def status(arguments: Sequence[str]) -> int:
    """Run ``dmq-fast status DIR``."""
    parser = command_parser(
        "status",
        description="List the cells of the sweep in DIR, and how many of their runs are done, failed and "
        "waiting; then the failures with seeds and tracebacks. A sweep may be writing to DIR.",
        epilog=SHORT_EXIT_CODES,
    )
    parser.add_argument("directory", type=full_path, metavar="DIR", help="directory of a sweep")
    parser.add_argument("--json", action="store_true", help="print one JSON object, with all tracebacks")
    options = parser.parse_args(arguments)

    from dmq_fast import experiments

    try:
        found = experiments.status(options.directory)
    except (ValueError, OSError) as error:
        return usage_error(f"status: {told(error)}")
    text = to_json(status_dict(found)) if options.json else status_table(found)
    return signals.code(show("status", text, FINISHED))


def status_dict(found: Status) -> dict[str, Any]:
    """Return a status as plain data."""
    from dmq_fast.experiments.report.tables import failure_dict

    return {
        "directory": str(found.directory),
        "names": list(found.names),
        **found.counts,
        "cells": [cell._asdict() for cell in found.cells],
        "failures": [failure_dict(row) for row in found.failures],
        "notes": list(found.notes),
    }


def status_table(found: Status) -> str:
    """Return a status as a table."""
    from dmq_fast.experiments.report.tables import failure_lines, table_of
    from dmq_fast.experiments.status import STATES

    cells = [cell._asdict() | {"runs": sum(getattr(cell, state) for state in STATES)} for cell in found.cells]
    counts = found.counts
    lines = [
        *table_lines(*table_of(cells, ("runs", *STATES), {})),
        "",
        f"{', '.join(found.names) or found.directory}: {number_of(counts['runs'], 'run')}, "
        + ", ".join(f"{counts[state]:,} {state}" for state in STATES),
        *(f"note: {note}" for note in found.notes),
        *failure_lines(found.failures, cells),
    ]
    return "\n".join(lines)
