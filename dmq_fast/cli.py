"""The command line, ``dmq-fast``.

This module imports neither NumPy nor anything that does until the BLAS thread count is set.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.machinery
import importlib.metadata
import importlib.util
import itertools
import json
import os
import platform
import shutil
import signal
import sys
import textwrap
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from decimal import Decimal
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from dmq_fast.dmq import DMQ, Progress
    from dmq_fast.environments import FiniteMDP
    from dmq_fast.environments.registry import Parameter
    from dmq_fast.result import Result
    from dmq_fast.samplers import Sampler

__all__ = ["main"]

FINISHED, FAILED, USAGE, OUT_OF_BUDGET, NOT_SAVED, INTERRUPTED, TERMINATED = 0, 1, 2, 3, 4, 130, 143

EXIT_CODES = """\
exit codes:
  0    the run finished
  1    the environment failed with an exception of its own; what was learned until then is reported and saved
  2    the command line, a parameter, the output directory or a journal is wrong; nothing was run
  3    a budget (--max-...) ended the run; what was learned until then is reported and saved
  4    the run ended and is reported, but could not be saved
  130  interrupted by Ctrl-C; what was learned until then is reported and saved
  143  terminated (SIGTERM); likewise
"""

SWEEP_EXIT_CODES = """\
exit codes:
  0    every run is stored, and none failed
  1    every run is stored, some as failed or crashed; or no worker comes up
  2    the command line, the specification or the directory is wrong; nothing was run
  4    the store or the exported file could not be written
  130  interrupted by Ctrl-C; the same command does the rest
  143  terminated (SIGTERM); likewise
"""

EXAMPLES = """\
examples:
  dmq-fast run lock --horizon 100 --n-samples 20
  dmq-fast run decoy --horizon 12 --variant paper --ratio 8 --n-samples 2000
  dmq-fast run decoy --horizon 60 --variant paper --ratio 8 --sampler exact
  dmq-fast run gym:FrozenLake-v1 --horizon 20 --make is_slippery=false
  dmq-fast run cart-pole --horizon 50 --max-trajectories 100000
  dmq-fast run --env-file my_env.py:make_env --make size=5
  dmq-fast run chain --horizon 20 --out run1; dmq-fast resume run1
  dmq-fast bench oracle --plot oracle.png
  dmq-fast theory --gamma 0.5 --d 2 --H 5 --K 2
  dmq-fast report run1
  dmq-fast sweep locks.toml --out locks --export locks.csv
"""

BLAS_THREADS = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS", "VECLIB_MAXIMUM_THREADS")


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code."""
    for variable in BLAS_THREADS:
        os.environ.setdefault(variable, "1")
    try:
        return dispatch(list(sys.argv[1:] if argv is None else argv))
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        # The reader, such as `head`, has seen enough. What Python flushes at exit must not fail again.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return FINISHED


def dispatch(arguments: list[str]) -> int:
    """Run one command."""
    if arguments[:1] == ["run"]:
        if arguments[1:2] and not arguments[1].startswith("-"):
            return run(arguments[1], arguments[2:])
        if any(argument.split("=")[0] == "--env-file" for argument in arguments):
            return run(None, arguments[1:])
    options = overview().parse_args(arguments)
    if options.command == "resume":
        return resume(options.directory, vars(options))
    if options.command == "envs":
        return list_environments(options.json)
    if options.command == "bench":
        return bench_oracle(options.d, options.n, options.json, options.plot)
    if options.command == "theory":
        return show_theory(vars(options))
    if options.command == "report":
        return report(options.directory, options.out, options.epsilon)
    if options.command == "sweep":
        from dmq_fast.experiments.command import run_sweep

        return run_sweep(options)
    # What is left is `run` without an environment.
    return usage_error("run: expected the name of an environment first, or --env-file; see dmq-fast envs")


def overview() -> argparse.ArgumentParser:
    """Build the parser of everything but ``run ENV``, whose options depend on ENV."""
    from dmq_fast._version import __version__

    parser = argparse.ArgumentParser(
        prog="dmq-fast",
        description="Difference Maximization Q-learning (Du, Luo, Wang, Zhang 2019).",
        epilog=EXAMPLES + "\n" + EXIT_CODES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"dmq-fast {__version__}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    runner = commands.add_parser(
        "run",
        help="learn an environment; dmq-fast run ENV --help lists what ENV takes",
        usage="dmq-fast run ENV [options]\n       dmq-fast run --env-file FILE:NAME [options]",
        description="Learn ENV, a name that `dmq-fast envs` lists or gym:ID, or an environment of your own: what "
        "NAME() in the Python file FILE returns. dmq-fast run ENV --help adds the parameters of ENV to the options "
        "below, dmq-fast run --env-file FILE:NAME --help those of environments of your own.",
        parents=[run_options()],
        epilog=EXAMPLES + "\n" + EXIT_CODES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    runner.set_defaults(command="run")
    resumer = commands.add_parser(
        "resume",
        help="go on with a run that --out saved",
        description="Go on with the run in DIR from where it was killed, interrupted or out of budget. What comes out "
        "is what an undisturbed run gives, byte for byte. Budgets that are given replace those of the run.",
        parents=[resource_options()],
        epilog=EXIT_CODES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    resumer.add_argument("directory", type=Path, metavar="DIR", help="what --out was")
    lister = commands.add_parser("envs", help="list the environments and their parameters")
    lister.add_argument("--json", action="store_true", help="print one JSON object")
    add_bench(commands)
    add_theory(commands)
    add_report(commands)
    add_sweep(commands)
    return parser


def add_bench(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add ``bench`` and the benchmarks there are."""
    bench = commands.add_parser("bench", help="time the kernels on this machine", allow_abbrev=False)
    benchmarks = bench.add_subparsers(dest="benchmark", required=True, metavar="BENCHMARK")
    oracle = benchmarks.add_parser(
        "oracle",
        help="the DSEC oracle beside NumPy and SciPy",
        description="Time the DSEC oracle beside what one would write with NumPy and SciPy. The methods take turns, "
        "so that a noisy moment hits all of them alike; BLAS runs on one thread unless the environment says otherwise.",
        epilog=EXIT_CODES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    oracle.add_argument(
        "--d", type=dimension_list, metavar="D,...", help="dimensions; default: 4,8,16,32,64,128,256,512"
    )
    oracle.add_argument("--n", type=positive_integer, default=15, metavar="N", help="rounds; default: 15")
    oracle.add_argument("--json", metavar="FILE", help="save all measurements; - prints them instead of the table")
    oracle.add_argument("--plot", type=Path, metavar="FILE", help="draw them: .png, .pdf or .svg; needs matplotlib")


def add_theory(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add ``theory``."""
    parser = commands.add_parser(
        "theory",
        help="the constants of the paper's theorem for a problem, and whether its proof goes through with them",
        description="Print the constants that the proof of Theorem 6.1 prescribes beside corrected ones, the "
        "inequalities that the proof needs of them with both sides, the largest epsilon for which all hold, and what "
        "that would cost.",
        epilog=EXIT_CODES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--gamma", type=decimal_number, required=True, metavar="X", help="minimum gap")
    parser.add_argument("--d", type=positive_integer, required=True, metavar="N", help="dimension of the features")
    parser.add_argument("--H", type=positive_integer, required=True, metavar="N", help="horizon")
    parser.add_argument("--K", type=positive_integer, required=True, metavar="N", help="number of actions")
    parser.add_argument(
        "--C", type=decimal_number, default="1", metavar="X", help="constant of Low Variance; default: 1"
    )
    parser.add_argument("--epsilon", type=decimal_number, default="0.1", metavar="X", help="accuracy; default: 0.1")
    parser.add_argument(
        "--delta",
        type=decimal_number,
        default="0.1",
        metavar="X",
        help="probability of failure of the corrected constants; default: 0.1",
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def add_report(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add ``report``."""
    parser = commands.add_parser(
        "report",
        help="one HTML page about a run that --out saved, or about a sweep",
        description="Write one HTML page about the run or the sweep in DIR: tables, pictures, how the run stands "
        "against the lemmas of the paper, and how to repeat it. The page needs no network and no other file. Needs "
        "matplotlib.",
        epilog=EXIT_CODES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("directory", type=Path, metavar="DIR")
    parser.add_argument("--out", type=Path, metavar="FILE", help="default: DIR/report.html")
    parser.add_argument("--epsilon", type=float, metavar="X", help="target accuracy of the certificate of a run")


def decimal_number(text: str) -> Decimal:
    """Read a number that float64 need not hold."""
    try:
        return Decimal(text)
    except ArithmeticError:
        raise argparse.ArgumentTypeError(f"expected a number, got {text!r}") from None


def add_sweep(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add ``sweep``."""
    parser = commands.add_parser(
        "sweep",
        help="do many runs: environments x algorithms x parameters x seeds",
        description="Do the runs that the TOML file SPEC describes and DIR does not hold yet: after a kill, Ctrl-C or "
        "a change of SPEC, the same command does what is missing. python -m pydoc dmq_fast.experiments.spec explains "
        "SPEC. Several sweeps may share DIR on one machine.",
        epilog=SWEEP_EXIT_CODES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("spec", type=Path, metavar="SPEC")
    parser.add_argument("--out", type=Path, required=True, metavar="DIR", help="where the runs are stored")
    group = parser.add_mutually_exclusive_group()
    group.add_argument("--workers", type=count, metavar="N", help="processes; 0: this one. Default: one for each CPU")
    group.add_argument("--dask", metavar="ADDRESS", help="of the scheduler of a dask cluster, to run there")
    parser.add_argument("--retry", action="store_true", help="do runs again that failed or crashed")
    parser.add_argument("--export", type=Path, metavar="FILE", help="write all runs of DIR to a .csv or .parquet file")
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of a table")
    group = parser.add_mutually_exclusive_group()
    group.add_argument("--quiet", action="store_true", help="no progress line")
    group.add_argument("--progress", action="store_true", help="show progress where there is no terminal, too")


LARGEST_DIMENSION = 4096


def positive_integer(text: str) -> int:
    """Read an integer >= 1."""
    try:
        number = int(text)
    except ValueError:
        number = 0
    if number < 1:
        raise argparse.ArgumentTypeError(f"expected an integer >= 1, got {text!r}")
    return number


def count(text: str) -> int:
    """Read an integer >= 0."""
    return 0 if text.strip() == "0" else positive_integer(text)


def dimension_list(text: str) -> list[int]:
    """Read dimensions, separated by commas."""
    dimensions = [positive_integer(part) for part in text.split(",")]
    if max(dimensions) > LARGEST_DIMENSION:
        raise argparse.ArgumentTypeError(f"expected dimensions up to {LARGEST_DIMENSION}, got {max(dimensions)}")
    return sorted(set(dimensions))


def run_options() -> argparse.ArgumentParser:
    """Build the options of ``run`` that every environment shares."""
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False, parents=[resource_options()])
    group = parser.add_argument_group("algorithm (what is not given comes from the variant or the library)")
    group.add_argument("--variant", choices=["sound", "frugal", "paper"], help="default: sound")
    group.add_argument("--n-samples", type=int, metavar="N", help="trajectories per policy; default: 100")
    group.add_argument("--ratio", type=float, metavar="R", help="R = eps_t / eps_s of the oracle; default: 2")
    group.add_argument("--eps-s", type=float, metavar="X", help="eps_s; default: 1")
    group.add_argument("--eps-t", type=float, metavar="X", help="eps_t; default: R eps_s")
    group.add_argument("--eps-r", type=float, metavar="X", help="regulariser of the oracle; default: 0.01")
    group.add_argument("--ridge", type=float, metavar="X", help="lambda_ridge of the regression; default: 0.001")
    group.add_argument("--initial", choices=["uniform", "fixed"], help="first policy of every cover")
    group.add_argument("--recheck", action=argparse.BooleanOptionalAction, help="repeat checks until all is quiet")
    group.add_argument("--accumulate", action=argparse.BooleanOptionalAction, help="keep the moments that said True")
    group.add_argument("--reuse", action=argparse.BooleanOptionalAction, help="fit what was drawn for the checks")
    group.add_argument("--memo", action=argparse.BooleanOptionalAction, help="draw no policy twice")
    group.add_argument("--oracle", choices=["decision", "value"], help="one Cholesky factorisation or the eigenvalue")
    group.add_argument("--mixture", choices=["stratified", "multinomial"], help="how regression data mix policies")
    group.add_argument(
        "--sampler",
        choices=["rollout", "flow", "exact"],
        default="rollout",
        help="simulated trajectories, counts of any number of them, or expectations; default: rollout",
    )
    group.add_argument("--seed", type=int, default=0, metavar="S", help="of the run; default: 0")
    group = parser.add_argument_group("saving")
    group.add_argument(
        "--out",
        type=Path,
        metavar="DIR",
        help="save the run: DIR/result.npz and DIR/run.json at its end, DIR/journal on the way, for dmq-fast resume",
    )
    group.add_argument("--overwrite", action="store_true", help="let --out replace a run saved in DIR")
    group = parser.add_argument_group("certificate")
    group.add_argument(
        "--certificate", action="store_true", help="also hold the run against the lemmas of the paper, one by one"
    )
    return parser


def resource_options() -> argparse.ArgumentParser:
    """Build the options that ``run`` and ``resume`` share: none of them changes what a run decides."""
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    group = parser.add_argument_group("budgets")
    group.add_argument("--max-trajectories", type=int, metavar="N")
    group.add_argument("--max-policies", type=int, metavar="N", help="policies added to the covers")
    group.add_argument("--max-seconds", type=float, metavar="S")
    group = parser.add_argument_group("workers")
    group.add_argument(
        "--workers", type=positive_integer, metavar="N", help="threads that share batches of over 16,384 trajectories"
    )
    group = parser.add_argument_group("output")
    group.add_argument("--json", action="store_true", help="print one JSON object instead of a table")
    group.add_argument("--quiet", action="store_true", help="no progress line")
    return parser


OUTPUTS = ("result.npz", "run.json")
COMMAND, JOURNAL = "command.json", "journal"

NOT_FOR_DMQ = {
    "env_seed",
    "sampler",
    "seed",
    "json",
    "out",
    "overwrite",
    "quiet",
    "make",
    "env_file",
    "evaluate",
    "certificate",
}

# Trajectories from which a value is estimated, unless --evaluate says otherwise.
EVALUATION = 1000


class Subject(NamedTuple):
    """What a run is about: an environment, and how the report calls it. `seed` is None where none was asked for."""

    env: FiniteMDP | Sampler
    name: str
    parameters: dict[str, Any]
    seed: int | None


class Job(NamedTuple):
    """A command line, made ready to run."""

    command: str
    subject: Subject
    dmq: DMQ
    options: dict[str, Any]
    progress: ProgressLine | None


def run(name: str | None, arguments: Sequence[str]) -> int:
    """Run ``dmq-fast run NAME ...``, or ``dmq-fast run --env-file ...`` where there is no name."""
    command = "run" if name is None else f"run {name}"
    try:
        job = prepare(command, name, arguments, {})
        if job.options["out"] is not None:
            claim(job.options["out"], job.options["overwrite"])
            write_command(job.options["out"], name, arguments)
    except (ValueError, TypeError, ImportError, OSError) as error:
        return usage_error(f"{command}: {error}")
    return perform(job)


def resume(directory: Path, given: dict[str, Any]) -> int:
    """Run ``dmq-fast resume DIR``."""
    command = f"resume {directory}"
    try:
        name, arguments = read_command(directory)
        if (summary := finished(directory)) is not None:
            print(f"dmq-fast {command}: this run has finished already", file=sys.stderr)
            print(json.dumps(summary) if given["json"] else table(summary), flush=True)
            return FINISHED
        budgets = {key: value for key, value in given.items() if key.startswith("max_") or key == "workers"}
        changes = {key: value for key, value in budgets.items() if value is not None}
        changes |= {"out": directory, "json": given["json"], "quiet": given["quiet"]}
        job = prepare(command, name, arguments, changes)
        check_writable(directory)
    except (ValueError, TypeError, ImportError, OSError) as error:
        return usage_error(f"{command}: {error}")
    return perform(job)


def prepare(command: str, name: str | None, arguments: Sequence[str], changes: dict[str, Any]) -> Job:
    """Read the arguments of ``run NAME``, or of ``run --env-file``, with these changes, and make what they describe."""
    from dmq_fast.dmq import DMQ

    parser, own = environment_parser(name)
    options = vars(parser.parse_args(arguments)) | changes
    settings = {key: value for key, value in options.items() if value is not None}
    parameters = {key: settings.pop(key) for key in own if key in settings}
    for key, value in settings.get("make", []):
        if key in own:
            raise ValueError(f"--make: {key} is an option of its own, --{key}")
        parameters[key] = value
    subject = make_subject(name, options, parameters)
    chosen = {key: value for key, value in settings.items() if key not in NOT_FOR_DMQ}
    progress = None if options["quiet"] or not sys.stderr.isatty() else ProgressLine(subject.env.horizon)
    journal = None if options["out"] is None else options["out"] / JOURNAL
    sampler = make_sampler(options["sampler"], subject.env)
    dmq = DMQ(sampler, rng=options["seed"], progress=progress, journal=journal, **chosen)
    return Job(command, subject, dmq, options, progress)


def perform(job: Job) -> int:
    """Run, report and save."""
    from dmq_fast.journal import JournalError

    options, progress = job.options, job.progress
    if progress is not None:
        for warning in job.dmq.warnings():
            print(f"warning: {warning}", file=sys.stderr)
    try:
        result, code = learn(job.dmq)
    except JournalError as error:
        return usage_error(f"{job.command}: {error}")
    if progress is not None:
        progress.clear()
    worth, code = appraise(job.subject, job.dmq, result, code, options.get("evaluate", EVALUATION))
    summary = summarise(job.subject, job.dmq, result, worth, options)
    if options["certificate"]:
        summary["certificate"] = result.certificate(tables_of(job.subject))
    print(json.dumps(summary) if options["json"] else table(summary), flush=True)
    if options["out"] is not None:
        try:
            save(result, summary, options["out"])
        except OSError as error:
            print(f"dmq-fast {job.command}: could not save: {error}", file=sys.stderr)
            return NOT_SAVED
    return code


def make_subject(name: str | None, options: dict[str, Any], parameters: dict[str, Any]) -> Subject:
    """Make the environment that the options describe."""
    from dmq_fast.environments import FiniteMDP, registry
    from dmq_fast.samplers import as_sampler

    if name is None:
        return Subject(load_environment(options["env_file"], parameters), options["env_file"], parameters, None)
    env = registry.make(name, rng=options["env_seed"], **parameters)
    subject = env if isinstance(env, FiniteMDP) else as_sampler(env)
    return Subject(subject, env.name, env.parameters, options["env_seed"])


def load_environment(place: str, arguments: dict[str, Any]) -> FiniteMDP | Sampler:
    """Return what the function NAME makes, for `place` FILE:NAME; ValueError with one line where it does not."""
    from dmq_fast.environments import FiniteMDP
    from dmq_fast.samplers import as_sampler

    file, _, name = place.rpartition(":")
    if not file or not name:
        raise ValueError(f"--env-file: expected FILE:NAME, such as my_env.py:make_env, got {place!r}")
    path = Path(file).absolute()
    if not path.is_file():
        raise ValueError(f"--env-file: there is no file {file}")
    with blaming(f"{file} does not load", path):
        module = load_module(path)
    factory = getattr(module, name, None)
    if not callable(factory):
        there = "no such name" if factory is None else f"{type(factory).__name__} of that name"
        raise ValueError(f"--env-file: expected a function {name} in {file}, got {there}")
    with blaming(f"{name}() in {file} failed", path):
        made = factory(**arguments)
    try:
        return made if isinstance(made, FiniteMDP) else as_sampler(made)
    except (TypeError, ValueError) as error:
        raise ValueError(f"--env-file: {name}() in {file}: {one_line(error)}") from error


def load_module(path: Path) -> ModuleType:
    """Run a Python file as a module that others find by its name, with the files beside it importable."""
    if str(path.parent) not in sys.path:
        sys.path.insert(0, str(path.parent))
    # A name in use belongs to somebody else.
    name = path.stem if path.stem not in sys.modules else f"env_file_{path.stem}"
    loader = importlib.machinery.SourceFileLoader(name, str(path))
    spec = importlib.util.spec_from_loader(name, loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module


@contextlib.contextmanager
def blaming(what: str, path: Path) -> Iterator[None]:
    """Turn any exception of a user's file into one line that names the line of the file."""
    try:
        yield
    except (Exception, SystemExit) as error:
        lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == str(path)]
        where = f", line {lines[-1]}" if lines else ""
        raise ValueError(f"--env-file: {what}: {type(error).__name__}: {one_line(error)}{where}") from error


def one_line(error: BaseException) -> str:
    """Return the message of an exception without line breaks."""
    return " ".join(str(error).split())


def make_sampler(name: str, env: FiniteMDP | Sampler) -> Sampler:
    """Make the sampler that ``--sampler`` names."""
    from dmq_fast import samplers
    from dmq_fast.environments import FiniteMDP

    if not isinstance(env, FiniteMDP):
        if name != "rollout":
            raise ValueError(f"--sampler: {name} needs a FiniteMDP, and this is none")
        return env
    if name == "exact":
        return samplers.ExactSampler(env)
    # DMQ asks of the sum of squared returns only whether it is positive.
    return samplers.FlowSampler(env) if name == "flow" else samplers.RolloutSampler(env)


@contextlib.contextmanager
def interruptible() -> Iterator[list[int]]:
    """Turn signals that ask to stop into KeyboardInterrupt; yield the list of those received."""
    received: list[int] = []

    def stop(number: int, frame: object) -> None:
        received.append(number)
        raise KeyboardInterrupt

    before = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield received
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def exit_code(received: list[int]) -> int:
    """Return the exit code of the first signal received."""
    return TERMINATED if received[:1] == [signal.SIGTERM] else INTERRUPTED


def learn(dmq: DMQ) -> tuple[Result, int]:
    """Run to the end or the first signal that asks to stop; return what was learned and the exit code."""
    from dmq_fast.journal import JournalError

    with interruptible() as received:
        try:
            result = dmq.learn()
        except KeyboardInterrupt:
            result = dmq.result()
        except JournalError:
            raise  # Nothing was run.
        except Exception:
            # Mostly the environment's own. Hours of learning are not lost to it.
            traceback.print_exc()
            return dmq.result(), FAILED
    if received:
        return result, exit_code(received)
    return result, FINISHED if result.status == "finished" else OUT_OF_BUDGET


WORTH = (
    "value",
    "value_standard_error",
    "value_trajectories",
    "optimal_value",
    "original_value",
    "original_value_standard_error",
    "original_optimal_value",
    "gap",
)


def appraise(subject: Subject, dmq: DMQ, result: Result, code: int, n_trajectories: int) -> tuple[dict[str, Any], int]:
    """Value of the returned policy, exact where a table gives it, estimated from fresh trajectories elsewhere.

    Returns the entries of the summary and the exit code.
    """
    from dmq_fast.samplers import estimate_value

    tables = tables_of(subject)
    if tables is not None:
        value = tables.value(result.policy)
        return {
            "value": value,
            "value_standard_error": None,
            "value_trajectories": None,
            "optimal_value": tables.optimal_value,
            "original_value": tables.original_value(value),
            "original_value_standard_error": None,
            "original_optimal_value": tables.original_value(tables.optimal_value),
            "gap": tables.gap,
        }, code
    worth: dict[str, Any] = dict.fromkeys(WORTH)
    if n_trajectories == 0 or code in (FAILED, INTERRUPTED, TERMINATED):
        return worth, code
    with interruptible() as received:
        try:
            found = estimate_value(dmq.sampler, result.policy, n_trajectories, stream=dmq.stream.at(LAST_CALL))
        except KeyboardInterrupt:
            return worth, exit_code(received)
        except Exception:
            traceback.print_exc()
            return worth, FAILED
    error = found.standard_error if found.n > 1 else None
    worth |= {"value": found.value, "value_standard_error": error, "value_trajectories": found.n}
    original = getattr(getattr(subject.env, "env", None), "original_value", None)
    if original is not None:
        worth["original_value"] = original(found.value)
        if error is not None:
            worth["original_value_standard_error"] = original(found.value + error) - original(found.value)
    return worth, code


def tables_of(subject: Subject) -> FiniteMDP | None:
    """Return the tables of the environment, if it has any."""
    from dmq_fast.environments import FiniteMDP

    tables = subject.env if isinstance(subject.env, FiniteMDP) else getattr(subject.env, "env", None)
    return tables if isinstance(tables, FiniteMDP) else None


# The last call there is, which no run reaches, draws the trajectories of an estimate.
LAST_CALL = 2**64 - 1


def environment_parser(name: str | None) -> tuple[argparse.ArgumentParser, list[str]]:
    """Build the parser of ``run NAME``; with it, the names of the environment's own parameters."""
    from dmq_fast.environments import registry

    parser = argparse.ArgumentParser(
        prog="dmq-fast run" if name is None else f"dmq-fast run {name}",
        parents=[run_options()],
        epilog=EXIT_CODES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    group = parser.add_argument_group("environment")
    group.add_argument(
        "--evaluate", type=count, default=EVALUATION, metavar="N",
        help="trajectories drawn after the run, beyond its budgets, to estimate the value of its policy where no "
        f"table gives it; 0: none. Default: {EVALUATION:,}",
    )  # fmt: skip
    if name is None:
        group.add_argument(
            "--env-file", required=True, metavar="FILE:NAME",
            help="the function NAME in the Python file FILE returns a FiniteMDP, CompiledEnv, BatchEnvironment or "
            "Sampler",
        )  # fmt: skip
        group.add_argument("--make", action="append", type=key_value, metavar="KEY=VALUE", help="argument of NAME")
        return parser, []
    group.add_argument("--env-seed", type=int, default=0, metavar="S", help="what it is drawn from; default: 0")
    if name.startswith(registry.GYMNASIUM_PREFIX):
        parameters = registry.describe_gymnasium()
        group.add_argument(
            "--make", action="append", type=key_value, metavar="KEY=VALUE", help="argument of gymnasium.make"
        )
    else:
        known = registry.describe()
        if name not in known:
            registry.make(name)  # says which there are
        parameters = known[name]
    for parameter in parameters:
        flag = "--" + parameter.name.replace("_", "-")
        if parameter.required or parameter.default is None:
            help_text = parameter.help
        else:
            help_text = f"{parameter.help} Default: {parameter.default}"
        help_text = help_text.replace("%", "%%")
        if parameter.type is bool:
            group.add_argument(flag, action=argparse.BooleanOptionalAction, help=help_text)
        else:
            metavar = {int: "N", float: "X"}.get(parameter.type, "VALUE")
            group.add_argument(flag, type=parameter.type, required=parameter.required, metavar=metavar, help=help_text)
    return parser, [parameter.name for parameter in parameters]


def key_value(text: str) -> tuple[str, Any]:
    """Split KEY=VALUE; VALUE is read as JSON, or taken as a string where it is none."""
    key, equals, value = text.partition("=")
    if not equals or not key:
        raise argparse.ArgumentTypeError(f"expected KEY=VALUE, got {text!r}")
    try:
        return key, json.loads(value)
    except json.JSONDecodeError:
        return key, value


def claim(directory: Path, overwrite: bool) -> None:
    """Make the output directory, and make sure before the run that its result can be written there."""
    from dmq_fast.journal import check_free

    directory.mkdir(parents=True, exist_ok=True)
    names = (*OUTPUTS, JOURNAL, COMMAND)
    for name in names:
        if (directory / name).is_dir():
            raise IsADirectoryError(f"--out: {directory / name} is a directory")
    check_writable(directory)
    check_free(directory / JOURNAL)
    if not overwrite and any((directory / name).exists() for name in ("result.npz", JOURNAL)):
        raise FileExistsError(
            f"--out: {directory} holds a run already; choose another, pass --overwrite, or go on with it by "
            f"dmq-fast resume {directory}"
        )
    for name in names:
        (directory / name).unlink(missing_ok=True)


def check_writable(directory: Path) -> None:
    """Refuse a directory that a result cannot be written to."""
    if not os.access(directory, os.W_OK):
        raise PermissionError(f"--out: {directory} is not writable")


def write_command(directory: Path, name: str | None, arguments: Sequence[str]) -> None:
    """Note what was asked for, so that ``resume`` can make it again."""
    from dmq_fast._version import __version__

    command = {"format": 1, "dmq_fast": __version__, "environment": name, "arguments": list(arguments)}
    write_text(directory / COMMAND, json.dumps(command, indent=2) + "\n")


def read_command(directory: Path) -> tuple[str | None, list[str]]:
    """Return environment (None with --env-file) and arguments of the run in a directory."""
    path = directory / COMMAND
    if not path.exists():
        raise FileNotFoundError(f"{directory} holds no run: there is no {COMMAND}")
    try:
        command = json.loads(path.read_text())
        if command["format"] != 1:
            raise ValueError(f"written in format {command['format']} by dmq_fast {command.get('dmq_fast')}")
        name = command["environment"]
        return None if name is None else str(name), [str(argument) for argument in command["arguments"]]
    except (ValueError, KeyError, TypeError) as error:
        raise ValueError(f"{path}: not the command of a run ({error})") from error


def finished(directory: Path) -> dict[str, Any] | None:
    """Return the summary of the run in a directory, if it has finished and is saved."""
    npz, text = (directory / name for name in OUTPUTS)
    try:
        summary = json.loads(text.read_text())
    except (FileNotFoundError, ValueError):
        return None
    if not npz.exists() or not isinstance(summary, dict) or summary.get("status") != "finished":
        return None
    return summary


def save(result: Result, summary: dict[str, Any], directory: Path) -> None:
    """Write both files of a run, each in one step."""
    npz, text = (directory / name for name in OUTPUTS)
    result.save(npz)
    write_text(text, json.dumps(summary, indent=2) + "\n")


def summarise(
    subject: Subject, dmq: DMQ, result: Result, worth: dict[str, Any], options: dict[str, Any]
) -> dict[str, Any]:
    """Everything `table` shows, as plain data."""
    from dmq_fast import theory
    from dmq_fast._version import __version__
    from dmq_fast.environments import FiniteMDP

    sampler, parameters = dmq.sampler, dmq.parameters
    return {
        "environment": subject.name,
        "environment_parameters": subject.parameters,
        "environment_seed": subject.seed,
        "horizon": sampler.horizon,
        "n_actions": sampler.n_actions,
        "dimension": sampler.dimension,
        "variant": result.variant,
        "options": result.options,
        "parameters": result.parameters,
        "sampler": options["sampler"] if isinstance(subject.env, FiniteMDP) else type(sampler).__name__,
        "seed": options["seed"],
        "status": result.status,
        **worth,
        "n_trajectories": result.n_trajectories,
        "counts": result.counts,
        "cover_sizes": list(result.cover_sizes),
        "printed_cover_bound": theory.printed_cover_bound(sampler.dimension, parameters.eps_r),
        "sure_cover_bound": theory.sure_cover_bound(sampler.dimension, parameters.ratio, parameters.eps_r),
        "seconds": result.seconds,
        "warnings": list(result.warnings),
        "version": __version__,
        "versions": {
            "python": platform.python_version(),
            "numpy": importlib.metadata.version("numpy"),
            "scipy": importlib.metadata.version("scipy"),
        },
    }


def table(summary: dict[str, Any]) -> str:
    """Lay a summary out for a person."""
    from dmq_fast import certificate_table

    text = "\n".join(f"{label:<22}{text}" for label, text in rows(summary))
    return f"{text}\n\n{certificate_table.table(summary['certificate'])}" if "certificate" in summary else text


def rows(summary: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """The lines of `table`: a label and a text."""
    given = summary["environment_parameters"].items()
    described = " ".join(f"{key}={value}" for key, value in given if value is not None)
    yield summary["environment"], described
    yield "", f"H = {summary['horizon']}, K = {summary['n_actions']}, d = {summary['dimension']}"
    given = summary["parameters"]
    yield (
        summary["variant"],
        f"N = {given['n_samples']:,}, R = {given['ratio']:g}, eps_r = {given['eps_r']:g}, ridge = {given['ridge']:g}, "
        f"seed = {summary['seed']}",
    )
    if summary["sampler"] != "rollout":
        yield "sampler", summary["sampler"]
    yield "status", summary["status"]
    yield from value_rows(summary)
    by_purpose = summary["counts"]["trajectories"]
    yield "trajectories", f"{summary['n_trajectories']:,}   " + parts(by_purpose, "{:,}")
    counts = summary["counts"]
    yield "oracle calls", f"{counts['oracle_calls']:,}   True {counts['trues']:,}"
    sizes = summary["cover_sizes"]
    yield (
        "policies |Pi_h|",
        f"at most {max(sizes)}   bounds: printed {summary['printed_cover_bound']:.1f}, "
        f"sure {summary['sure_cover_bound']}",
    )
    for size, levels in runs(sizes):
        yield "", f"{levels}: {size}"
    seconds = dict(summary["seconds"])
    yield "time", f"{seconds.pop('total'):.3g} s   " + parts(seconds, "{:.3g} s")
    for warning in summary["warnings"]:
        yield "warning", warning


def value_rows(summary: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """The lines of `table` about the value of the returned policy."""
    value, best, original = (summary[key] for key in ("value", "optimal_value", "original_value"))
    if value is None:
        yield "value", "unknown: not estimated"
    elif best is None:
        n = summary["value_trajectories"]
        error = plus_minus(summary["value_standard_error"])
        yield "value (estimate)", f"{value:.6g}{error}, mean and standard error of {n:,} fresh trajectories"
        if original not in (None, value):
            yield "", f"{original:.6g}{plus_minus(summary['original_value_standard_error'])} in original units"
    else:
        share = f"   ({value / best:.1%})" if best > 0 else ""
        yield "value / optimum", f"{value:.6g} / {best:.6g}{share}"
        if original != value:
            yield "", f"{original:.6g} / {summary['original_optimal_value']:.6g} in original units"


def plus_minus(error: float | None) -> str:
    """Spell out a standard error, where there is one."""
    return "" if error is None else f" +- {error:.2g}"


def parts(amounts: dict[str, float], form: str) -> str:
    """Spell out named amounts on one line."""
    return ", ".join(f"{name} {form.format(amount)}" for name, amount in amounts.items())


def runs(sizes: Sequence[int]) -> Iterator[tuple[int, str]]:
    """Group consecutive levels of equal size: (size, "level 3" or "levels 3 to 7")."""
    for size, group in itertools.groupby(enumerate(sizes), key=lambda pair: pair[1]):
        levels = [level for level, _ in group]
        first, last = levels[0], levels[-1]
        yield size, f"level {first}" if first == last else f"levels {first} to {last}"


class ProgressLine:
    """One line on a terminal, rewritten at most ten times a second."""

    def __init__(self, horizon: int, write: Callable[[str], object] | None = None) -> None:
        self.horizon = horizon
        self.write = write or sys.stderr.write
        self.drawn = 0.0

    def __call__(self, progress: Progress) -> None:
        """Redraw, unless that was done a moment ago."""
        now = time.monotonic()
        if now - self.drawn < 0.1:
            return
        self.drawn = now
        self.write(
            f"\r\x1b[Klearned level {progress.level} of {self.horizon}, {progress.n_trajectories:,} trajectories, "
            f"{progress.n_policies:,} policies, {progress.seconds:.1f} s"
        )
        sys.stderr.flush()

    def clear(self) -> None:
        """Remove the line."""
        if self.drawn:
            self.write("\r\x1b[K")
            sys.stderr.flush()


def list_environments(as_json: bool) -> int:
    """Run ``dmq-fast envs``."""
    from dmq_fast.environments import registry

    known = registry.describe()
    if as_json:
        listing = {
            name: [
                {
                    "name": parameter.name,
                    "type": parameter.type.__name__,
                    "required": parameter.required,
                    "default": None if parameter.required else parameter.default,
                    "help": parameter.help,
                }
                for parameter in parameters
            ]
            for name, parameters in known.items()
        }
        print(json.dumps(listing))
        return FINISHED
    for name, parameters in known.items():
        print(name)
        print_parameters(parameters)
    print("--env-file FILE:NAME")
    print_option("--make", "KEY=VALUE: argument of the function NAME in the Python file FILE, any number of times")
    print_option("", "An environment of your own: NAME returns a FiniteMDP, CompiledEnv, BatchEnvironment or Sampler.")
    print("gym:ID")
    print_parameters(registry.describe_gymnasium())
    print_option("--make", "KEY=VALUE: argument of gymnasium.make, any number of times")
    print_option("", "Any Gymnasium environment with discrete actions, such as FrozenLake-v1 or Acrobot-v1.")
    return FINISHED


def print_parameters(parameters: Sequence[Parameter]) -> None:
    """Print the parameters of one environment."""
    for parameter in parameters:
        if parameter.required:
            note = " (required)"
        else:
            note = "" if parameter.default is None else f" (default {parameter.default})"
        print_option(f"--{parameter.name.replace('_', '-')}", parameter.help + note)


def print_option(flag: str, text: str) -> None:
    """Print one option of the listing, wrapped to the terminal."""
    width = max(40, shutil.get_terminal_size().columns)
    indent = " " * 17
    print(textwrap.fill(text, width, initial_indent=f"  {flag:<15}", subsequent_indent=indent))


def bench_oracle(dimensions: list[int] | None, rounds: int, json_file: str | None, plot: Path | None) -> int:
    """Run ``dmq-fast bench oracle``."""
    try:
        if plot is not None:
            if plot.suffix.lower() not in (".png", ".pdf", ".svg"):
                raise ValueError(f"--plot: expected a file that ends in .png, .pdf or .svg, got {plot}")
            if importlib.util.find_spec("matplotlib") is None:
                raise ImportError('--plot needs matplotlib: pip install "dmq_fast[plot]"')
        for option, path in (("--json", Path(json_file) if json_file not in (None, "-") else None), ("--plot", plot)):
            if path is not None:
                claim_file(option, path)
    except (ValueError, ImportError, OSError) as error:
        return usage_error(f"bench oracle: {error}")

    from dmq_fast import oracle_bench

    def show(rows: list[dict[str, Any]]) -> None:
        print(oracle_bench.table(rows) + "\n", flush=True)

    result = oracle_bench.measure(
        dimensions or oracle_bench.DIMENSIONS, rounds, progress=None if json_file == "-" else show
    )
    for warning in result["warnings"]:
        print(f"warning: {warning}", file=sys.stderr)
    print(json.dumps(result) if json_file == "-" else oracle_bench.summary(result), flush=True)
    try:
        if json_file not in (None, "-"):
            write_text(Path(str(json_file)), json.dumps(result, indent=2) + "\n")
        if plot is not None:
            oracle_bench.draw(result, plot)
    except OSError as error:
        print(f"dmq-fast bench oracle: could not save: {error}", file=sys.stderr)
        return NOT_SAVED
    return FINISHED


def show_theory(options: dict[str, Any]) -> int:
    """Run ``dmq-fast theory``."""
    from dmq_fast import theory_table

    try:
        description = theory_table.describe(
            *(options[name] for name in ("epsilon", "gamma", "C", "d", "H", "K")), delta=options["delta"]
        )
    except ValueError as error:
        return usage_error(f"theory: --{error}")
    print(json.dumps(description) if options["json"] else theory_table.table(description))
    return FINISHED


def report(directory: Path, out: Path | None, epsilon: float | None) -> int:
    """Run ``dmq-fast report DIR``."""
    path = directory / "report.html" if out is None else out
    try:
        if importlib.util.find_spec("matplotlib") is None:
            raise ImportError('expected matplotlib: pip install "dmq_fast[plot]"')
        if not directory.is_dir():
            raise NotADirectoryError(f"there is no directory {directory}")
        claim_file("--out", path)
        from dmq_fast.experiments.command_report import page_of

        page, notes = page_of(directory, epsilon)
    except (ValueError, ImportError, OSError) as error:
        return usage_error(f"report: {error}")
    for note in notes:
        print(f"note: {note}", file=sys.stderr)
    try:
        write_text(path, page)
    except OSError as error:
        print(f"dmq-fast report: could not save: {error}", file=sys.stderr)
        return NOT_SAVED
    print(path)
    return FINISHED


def claim_file(option: str, path: Path) -> None:
    """Make sure before the work that its result can be written to `path`; a file there will be replaced."""
    if path.is_dir():
        raise IsADirectoryError(f"{option}: {path} is a directory")
    if not path.absolute().parent.is_dir():
        raise FileNotFoundError(f"{option}: there is no directory {path.absolute().parent}")
    if not os.access(path if path.exists() else path.absolute().parent, os.W_OK):
        raise PermissionError(f"{option}: {path} is not writable")


def write_text(path: Path, text: str) -> None:
    """Write a small file in one step."""
    from dmq_fast.result import replacing

    with replacing(path) as file:
        file.write(text.encode())


def usage_error(message: str) -> int:
    """Say what is wrong and return the exit code for it."""
    print(f"dmq-fast {message}", file=sys.stderr)
    return USAGE
