"""``dmq-fast report``: write a page, tables or figures about the run or the sweep in a directory."""

from __future__ import annotations

import importlib.util
from argparse import Namespace
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from dmq_fast._support.files import make_directory, writable
from dmq_fast.cli.exit_codes import FINISHED, SHORT_EXIT_CODES
from dmq_fast.cli.figures import FIGURE_OPTIONS, add_figure_options, check_figure_options, figures
from dmq_fast.cli.files import OUTPUTS, Command, claim_file, read_command, read_summary, write_bytes
from dmq_fast.cli.options import command_parser, full_path, reader
from dmq_fast.cli.run import read_options, with_flags
from dmq_fast.cli.terminal import not_saved, say, show, signals, told, usage_error

if TYPE_CHECKING:
    from dmq_fast.environments import FiniteMDP
    from dmq_fast.experiments import Rows
    from dmq_fast.experiments.report.page import Picture
    from dmq_fast.results.result import DMQResult, SelfStoppingResult

__all__ = ["report"]

OPTIONS = {name: name for name in ("export", "export_curves", "epsilon", "out")} | FIGURE_OPTIONS
"""Arguments in messages, and the options that give them."""


def report(arguments: Sequence[str]) -> int:
    """Run ``dmq-fast report DIR``."""
    parser = command_parser(
        "report",
        description="Write an HTML page about the run or the sweep in DIR: tables, pictures, a comparison of the run "
        "with the lemmas of the paper, and the command that repeats it. The page loads no other file. Needs "
        "matplotlib. With --figures, write single pictures for papers instead; with --export, tables.",
        epilog=SHORT_EXIT_CODES,
    )
    parser.add_argument(
        "directory", type=full_path, metavar="DIR", help="the directory that --out of run or sweep named"
    )
    parser.add_argument("--out", type=full_path, metavar="FILE", help="the page; default: DIR/report.html")
    parser.add_argument(
        "--epsilon",
        type=reader(float),
        metavar="X",
        help="accuracy for which the certificate of a run checks the premises of the lemmas",
    )
    tables = parser.add_argument_group("tables of a sweep")
    tables.add_argument(
        "--export",
        type=full_path,
        metavar="FILE",
        help="write a line for each run to a .csv file, or a LaTeX table of algorithms to a .tex file",
    )
    tables.add_argument(
        "--export-curves",
        type=full_path,
        metavar="FILE",
        help="write a line for each checkpoint of each learning curve to a .csv file",
    )
    add_figure_options(parser)
    options = parser.parse_args(arguments)
    with signals.held():
        try:
            if not options.directory.is_dir():
                raise NotADirectoryError(f"there is no directory {options.directory}")
            made = signals.attempt(lambda: outputs(options))
        except (ValueError, ImportError, OSError) as error:
            return usage_error(f"report: {with_flags(told(error), OPTIONS)}")
        if made is None:
            return signals.code(FINISHED)
        files, notes = made
        for note in notes:
            say(f"note: {note}")
        try:
            for path, data in files.items():
                make_directory(path.parent)
                write_bytes(path, data)
        except OSError as error:
            return not_saved("report", error)
        return signals.code(show("report", "\n".join(map(str, files)), FINISHED))


def outputs(options: Namespace) -> tuple[dict[Path, bytes], list[str]]:
    """Return the contents of the files to write, and notes on what could not be computed.

    Raises
    ------
    OSError
        If there is neither a run nor a sweep, or a file cannot be written.
    ValueError
        If a file there is damaged, or an option does not fit.
    ImportError
        If matplotlib is needed and missing.
    """
    directory = options.directory
    check_figure_options(options)
    files = dict(table_files(options))
    page = options.out is not None or (options.figures is None and not files)
    if options.epsilon is not None and not page:
        raise ValueError("epsilon: expected with a page only; --out names one")
    if not page and options.figures is None:
        return files, []
    if importlib.util.find_spec("matplotlib") is None:
        raise ImportError('expected matplotlib: pip install "dmq-fast[plot]"')
    path = directory / "report.html" if options.out is None else options.out
    if page:
        claim_file("--out", path)
    from dmq_fast.experiments.sweeps.store import FILE

    subject = sweep_of(directory) if (directory / FILE).exists() else run_of(directory)
    if options.figures is not None:
        files |= figures(options, subject.pictures)
    if page:
        files[path] = writable(subject.page(options.epsilon)).encode()
    return files, subject.notes


def table_files(options: Namespace) -> Iterator[tuple[Path, bytes]]:
    """Yield the files of the tables that are asked for, with their contents."""
    from dmq_fast.experiments.report.export import check_format, exported

    for name, curves in (("export", False), ("export_curves", True)):
        path = getattr(options, name)
        if path is not None:
            claim_file(f"--{name.replace('_', '-')}", path)
            check_format(path, name, curves=curves)
            yield path, exported(rows_of(options.directory, name), path, curves=curves)


def rows_of(directory: Path, argument: str) -> Rows:
    """Return the runs of the sweep in a directory, for an argument that needs a sweep."""
    from dmq_fast import experiments
    from dmq_fast.experiments.sweeps.store import FILE

    if not (directory / FILE).exists():
        raise ValueError(f"{argument}: expected the directory of a sweep, and {directory} holds none")
    rows = experiments.load(directory)
    if not rows:
        raise ValueError(f"{directory}: no run of this sweep has ended yet")
    return rows


class SavedSweep(NamedTuple):
    """The sweep of a directory, and notes to the reader."""

    rows: Rows
    name: str
    specs: list[str]
    notes: list[str]

    def page(self, epsilon: float | None) -> str:
        """Return the HTML page; ValueError if there is an epsilon."""
        from dmq_fast.experiments.report.reports import sweep_report

        if epsilon is not None:
            raise ValueError("epsilon: expected with a run only, and this is a sweep")
        return sweep_report(self.rows, name=self.name, specs=self.specs, notes=self.notes)

    def pictures(self, *, y: str | None = None, **looks: Any) -> Iterator[Picture]:
        """Yield the pictures of the page; with x or y, quantities of all runs against a parameter."""
        from dmq_fast.experiments.report.reports import quantity_pictures, sweep_pictures

        if y is None and "x" not in looks:
            return sweep_pictures(self.rows, **looks)
        wanted = None if y in (None, "all") else [one.strip() for one in str(y).split(",")]
        return quantity_pictures(self.rows, wanted=wanted, **looks)


class SavedRun(NamedTuple):
    """The run of a directory, its environment if that has tables, and notes to the reader."""

    result: DMQResult | SelfStoppingResult
    summary: dict[str, Any]
    command: list[str]
    mdp: FiniteMDP | None
    notes: list[str]

    def page(self, epsilon: float | None) -> str:
        """Return the HTML page; ValueError if epsilon does not fit, or the summary is damaged."""
        from dmq_fast.experiments.report.reports import run_report

        if self.mdp is None and epsilon is not None:
            raise ValueError("epsilon: expected where errors are known exactly; " + "; ".join(self.notes))
        return run_report(
            self.result, self.summary, command=self.command, mdp=self.mdp, epsilon=epsilon, notes=self.notes
        )

    def pictures(self, *, width: float, **looks: Any) -> Iterator[Picture]:
        """Yield the pictures of the page; ValueError if they are to look like those of a sweep."""
        from dmq_fast.experiments.report.reports import run_pictures

        for name in looks:
            raise ValueError(f"{name}: expected the directory of a sweep")
        return run_pictures(self.result, self.mdp, width)


def sweep_of(directory: Path) -> SavedSweep:
    """Return the sweep in a directory; errors as in `outputs`."""
    from dmq_fast.experiments.sweeps.store import load_specs

    rows = rows_of(directory, "out")
    specs = load_specs(directory)
    names = dict.fromkeys(name for name, _, _ in specs) or {directory.absolute().name: None}
    wanted = max((runs for _, _, runs in specs), default=0)
    notes = [f"{len(rows):,} of {wanted:,} runs are stored; the sweep has not ended"] if wanted > len(rows) else []
    return SavedSweep(rows, ", ".join(names), [text for _, text, _ in specs], notes)


def run_of(directory: Path) -> SavedRun:
    """Return the run in a directory; errors as in `outputs`."""
    from dmq_fast.results.result import DMQResult, SelfStoppingResult, load

    npz, text = (directory / name for name in OUTPUTS)
    if not npz.exists() or not text.exists():
        raise FileNotFoundError(f"{directory} holds neither a run that has ended nor a sweep")
    result = load(npz)
    if not isinstance(result, DMQResult | SelfStoppingResult):
        raise ValueError(f"{npz}: expected the result of a run, got a {type(result).__name__}")
    summary = read_summary(text)
    noted = read_command(directory)
    mdp, notes = remade_tables(noted, result, summary)
    name = noted.environment
    command = ["dmq-fast", noted.command, *([] if name is None else [name]), *noted.arguments]
    return SavedRun(result, summary, command, mdp, notes)


def remade_tables(
    noted: Command,
    result: DMQResult | SelfStoppingResult,
    summary: dict[str, Any],
) -> tuple[FiniteMDP | None, list[str]]:
    """Make the environment of a run again, if it has tables; otherwise return a note on why it could not be made."""
    from dmq_fast.results.appraisal import tables_of

    # A report may be about a run from another machine, whose code must not be executed.
    name = noted.environment
    if name is None or name.count(":") > 1:
        return None, ["nothing is exact in the certificate, since a report does not run the code of an --env-file"]
    try:
        mdp = tables_of(read_options(noted._replace(place=None), {}).subject.env)
    except SystemExit:
        return None, ["nothing is exact in the certificate: this version does not understand the command of the run"]
    except (ValueError, TypeError, ImportError) as error:
        return None, [f"nothing is exact in the certificate: the environment cannot be made again ({error})"]
    if mdp is None:
        return None, ["nothing is exact in the certificate, since this environment has no tables"]
    same = result.theta.shape == (mdp.horizon, mdp.n_actions, mdp.dimension)
    if not same or mdp.optimal_value != summary["optimal_value"] or mdp.value(result.policy) != summary["value"]:
        return None, ["nothing is exact in the certificate: this version makes another environment of that command"]
    return mdp, []
