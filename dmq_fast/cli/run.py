"""``dmq-fast run`` and ``dmq-fast resume``."""

from __future__ import annotations

import json
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from dmq_fast.cli import EXAMPLES, EXIT_CODES, FAILED, FINISHED, INTERRUPTED, OUT_OF_BUDGET, TERMINATED
from dmq_fast.cli.files import (
    JOURNAL,
    check_writable,
    claim_directory,
    finished,
    read_command,
    save,
    write_command,
)
from dmq_fast.cli.options import EVALUATION, command_parser, environment_parser, resource_options, run_options
from dmq_fast.cli.subject import Subject, make_sampler, make_subject, tables_of
from dmq_fast.cli.summary import summarise, table
from dmq_fast.cli.terminal import ProgressLine, exit_code, interruptible, not_saved, say, usage_error

if TYPE_CHECKING:
    from dmq_fast.learner import DMQ, Progress
    from dmq_fast.run.result import Result

__all__ = ["Job", "prepare", "resume", "run"]

NOT_FOR_DMQ = {
    "env_seed",
    "sampler",
    "arithmetic",
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


class Job(NamedTuple):
    """A command line, made ready to run."""

    command: str
    subject: Subject
    dmq: DMQ
    options: dict[str, Any]
    progress: ProgressLine | None


def run(arguments: Sequence[str]) -> int:
    """Run ``dmq-fast run``: ENV comes first, or --env-file is among the options."""
    if arguments and not arguments[0].startswith("-"):
        return run_environment(arguments[0], arguments[1:])
    if any(argument.split("=")[0] == "--env-file" for argument in arguments):
        return run_environment(None, arguments)
    parser = command_parser(
        "run",
        usage="dmq-fast run ENV [options]\n       dmq-fast run --env-file FILE:NAME [options]",
        description="Learn ENV, a name that `dmq-fast envs` lists or gym:ID, or an environment of your own: what "
        "NAME() in the Python file FILE returns. dmq-fast run ENV --help adds the parameters of ENV to the options "
        "below, dmq-fast run --env-file FILE:NAME --help those of environments of your own.",
        parents=[run_options()],
        epilog=EXAMPLES + "\n" + EXIT_CODES,
    )
    parser.parse_args(arguments)
    return usage_error("run: expected the name of an environment first, or --env-file; see dmq-fast envs")


def run_environment(name: str | None, arguments: Sequence[str]) -> int:
    """Run ``dmq-fast run NAME ...``, or ``dmq-fast run --env-file ...`` where there is no name."""
    command = "run" if name is None else f"run {name}"
    try:
        job = prepare(command, name, arguments, {})
        if job.options["out"] is not None:
            claim_directory(job.options["out"], job.options["overwrite"])
            write_command(job.options["out"], name, arguments)
    except (ValueError, TypeError, ImportError, OSError) as error:
        return usage_error(f"{command}: {error}")
    return perform(job)


def resume(arguments: Sequence[str]) -> int:
    """Run ``dmq-fast resume DIR``."""
    parser = command_parser(
        "resume",
        description="Go on with the run in DIR from where it was killed, interrupted or out of budget. What comes out "
        "is what an undisturbed run gives, byte for byte. Budgets that are given replace those of the run.",
        parents=[resource_options()],
        epilog=EXIT_CODES,
    )
    parser.add_argument("directory", type=Path, metavar="DIR", help="what --out was")
    given = vars(parser.parse_args(arguments))
    directory: Path = given["directory"]
    command = f"resume {directory}"
    try:
        name, noted = read_command(directory)
        if (summary := finished(directory)) is None:
            budgets = {key: value for key, value in given.items() if key.startswith("max_") or key == "workers"}
            changes = {key: value for key, value in budgets.items() if value is not None}
            changes |= {"out": directory, "json": given["json"], "quiet": given["quiet"]}
            job = prepare(command, name, noted, changes)
            check_writable(directory)
    except (ValueError, TypeError, ImportError, OSError) as error:
        return usage_error(f"{command}: {error}")
    if summary is None:
        return perform(job)
    say(f"dmq-fast {command}: this run has finished already")
    print(json.dumps(summary) if given["json"] else table(summary), flush=True)
    return FINISHED


def prepare(command: str, name: str | None, arguments: Sequence[str], changes: dict[str, Any]) -> Job:
    """Read the arguments of ``run NAME``, or of ``run --env-file``, with these changes, and make what they describe."""
    from dmq_fast.learner import DMQ

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
    progress = None if options["quiet"] or not sys.stderr.isatty() else progress_line(subject.env.horizon)
    sampler = make_sampler(options["sampler"], subject.env, options["arithmetic"])
    # A journal holds float64 only. Without one, resume starts anew and ends the same.
    journalled = options["out"] is not None and options["arithmetic"] in (None, "float64")
    journal = options["out"] / JOURNAL if journalled else None
    dmq = DMQ(sampler, rng=options["seed"], progress=progress, journal=journal, **chosen)
    return Job(command, subject, dmq, options, progress)


def perform(job: Job) -> int:
    """Run, report and save."""
    from dmq_fast.run.journal import JournalError

    options, progress = job.options, job.progress
    if progress is not None:
        for warning in job.dmq.warnings():
            say(f"warning: {warning}")
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
            return not_saved(job.command, error)
    return code


def progress_line(horizon: int) -> ProgressLine:
    """Return the progress line of a run."""

    def describe(progress: Progress) -> str:
        return (
            f"learned level {progress.level} of {horizon}, {progress.n_trajectories:,} trajectories, "
            f"{progress.n_policies:,} policies, {progress.seconds:.1f} s"
        )

    return ProgressLine(describe)


def learn(dmq: DMQ) -> tuple[Result, int]:
    """Run to the end or the first signal that asks to stop; return what was learned and the exit code."""
    from dmq_fast.run.journal import JournalError

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


def appraise(subject: Subject, dmq: DMQ, result: Result, code: int, n_trajectories: int) -> tuple[dict[str, Any], int]:
    """Value of the returned policy, exact where a table gives it, estimated from fresh trajectories elsewhere.

    Returns the entries of the summary and the exit code.
    """
    from dmq_fast.samplers import estimate_value
    from dmq_fast.samplers.streams import LAST_CALL

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
