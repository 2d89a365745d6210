"""``dmq-fast merge``: make one store of several."""

from __future__ import annotations

from collections.abc import Sequence

from dmq_fast._support.json_text import to_json
from dmq_fast._support.words import number_of
from dmq_fast.cli.exit_codes import FAILED, FINISHED
from dmq_fast.cli.options import command_parser, path
from dmq_fast.cli.terminal import not_saved, say, show, signals, told, usage_error

__all__ = ["merge"]

EXIT_CODES = """\
exit codes:
  0    OUT holds all runs of its specifications
  1    OUT holds the runs of all directories, and others of its specifications are missing
  2    the command line or a directory is wrong, or the stores do not fit together; nothing was written
  4    the store could not be written
  130  interrupted by Ctrl-C; the same command does the work
  143  terminated by SIGTERM; the same command does the work
"""


def merge(arguments: Sequence[str]) -> int:
    """Run ``dmq-fast merge OUT DIR...``."""
    parser = command_parser(
        "merge",
        description="Add the runs that are stored in every DIR to OUT. A sweep into OUT, or a report of it, goes on "
        "with them. Finished runs are taken before failed ones. The directories stay as they are, merging again "
        "changes nothing, and a kill leaves OUT as it was.",
        epilog=EXIT_CODES,
    )
    parser.add_argument("out", type=path, metavar="OUT", help="directory of the store; made if it does not exist")
    parser.add_argument("directories", type=path, nargs="+", metavar="DIR", help="directory of a store to read")
    parser.add_argument(
        "--keep-first",
        action="store_true",
        help="where stores have different results of one run, keep that of OUT or of the first DIR",
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    options = parser.parse_args(arguments)

    from dmq_fast import experiments

    try:
        merged = experiments.merge(options.out, options.directories, keep_first=options.keep_first)
    except experiments.WriteError as error:
        return not_saved("merge", error)
    except (ValueError, OSError) as error:
        return usage_error(f"merge: {told(error)}")
    if options.json:
        text = to_json(merged._asdict() | {"out": str(merged.out)})
    else:
        text = (
            f"{merged.out}: {number_of(merged.runs, 'run')}, {merged.added:,} of them new; {merged.replaced:,} took "
            "the place of worse ones"
        )
        if merged.missing:
            lacking = number_of(merged.missing, "run")
            text += f"\n{lacking} missing: a sweep of the specification into {merged.out} does them"
    for warning in merged.warnings:
        say(f"warning: {warning}")
    return signals.code(show("merge", text, FAILED if merged.missing else FINISHED))
