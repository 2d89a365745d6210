"""``dmq-fast learn``, ``dmq-fast run`` and ``dmq-fast resume``."""

from __future__ import annotations

import contextlib
import os
import shlex
import traceback
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from dmq_fast._support.json_text import to_json
from dmq_fast._support.names import suggestion
from dmq_fast._support.progress import ProgressLine, on_terminal
from dmq_fast.cli.exit_codes import EXIT_CODES, FAILED, FINISHED, OUT_OF_BUDGET, USAGE
from dmq_fast.cli.files import (
    JOURNAL,
    Command,
    check_writable,
    claim_directory,
    finished,
    read_command,
    save,
    working_directory,
    write_command,
)
from dmq_fast.cli.options import (
    EVALUATION,
    EXAMPLES,
    add_resources,
    as_options,
    command_parser,
    environment_parser,
    full_path,
    learner_options,
)
from dmq_fast.cli.subject import Subject, make_subject
from dmq_fast.cli.summary import summarise, summary_table
from dmq_fast.cli.terminal import (
    not_saved,
    output_apart,
    say,
    say_where,
    show,
    signals,
    told,
    usage_error,
)

if TYPE_CHECKING:
    from dmq_fast.learners import DMQ, SelfStopping
    from dmq_fast.results.result import Result

__all__ = ["Job", "learn", "prepare", "read_options", "resume", "run", "with_flags"]


LEARNERS = {"learn": "self-stopping", "run": "dmq"}
"""Commands that learn, and the learner of each."""

BOXES = {"learn": "interpolation", "run": "fourier"}
"""The kind of features of real numbers by default."""


class Given(NamedTuple):
    """The command, the environment that it describes, and the values of all options."""

    command: str
    subject: Subject
    options: dict[str, Any]


class Job(NamedTuple):
    """A run as a command line describes it, ready to start."""

    command: str
    subject: Subject
    learner: DMQ | SelfStopping
    how: dict[str, Any]
    options: dict[str, Any]
    progress: ProgressLine | None


def learn(arguments: Sequence[str]) -> int:
    """Run ``dmq-fast learn ENV ...`` or ``dmq-fast learn --env-file FILE:NAME ...``."""
    return start(
        "learn",
        arguments,
        "Learn a policy of the environment ENV that is within epsilon of the best with probability 1 - delta, if Q* is "
        "linear in the features. The run chooses its number of trajectories and stops by itself.",
    )


def run(arguments: Sequence[str]) -> int:
    """Run ``dmq-fast run ENV ...`` or ``dmq-fast run --env-file FILE:NAME ...``."""
    return start(
        "run",
        arguments,
        "Run Algorithms 1 to 3 of the paper (DMQ) on the environment ENV, with N and R set by hand. A run that comes "
        "to its end promises nothing about its policy; dmq-fast learn does.",
    )


def start(command: str, arguments: Sequence[str], purpose: str) -> int:
    """Run ``learn`` or ``run``."""
    if arguments and not arguments[0].startswith("-"):
        return run_environment(command, arguments[0], arguments[1:])
    if any(argument.split("=")[0] == "--env-file" for argument in arguments):
        return run_environment(command, None, arguments)
    if arguments and not {"-h", "--help"}.intersection(arguments):
        return usage_error(f"{command}: {first_expected(command, arguments)}")
    parser = command_parser(
        command,
        usage=f"dmq-fast {command} ENV [options]\n       dmq-fast {command} --env-file FILE:NAME [options]",
        description=f"{purpose} ENV is a name that dmq-fast envs lists, an id of Gymnasium's, alone or as gym:ID, or "
        "bsuite:ID; or the function NAME in the Python file FILE returns an environment of your own. With ENV or "
        "FILE:NAME in front of it, --help also lists the parameters of the environment.",
        parents=[learner_options(LEARNERS[command])],
        epilog=EXAMPLES + "\n" + EXIT_CODES,
    )
    parser.parse_args(arguments)
    return usage_error(f"{command}: expected the name of an environment first, or --env-file; see dmq-fast envs")


def first_expected(command: str, arguments: Sequence[str]) -> str:
    """Return the message about a command line that begins with an option, but not with an environment."""
    from dmq_fast.environments import registry

    message = "expected the name of an environment first, or --env-file"
    for i, argument in enumerate(arguments):
        if argument in registry.REGISTRY or argument.startswith(registry.PREFIXES):
            return f"{message}; did you mean {shlex.join([command, argument, *arguments[:i], *arguments[i + 1 :]])!r}?"
    meant = [suggestion(argument.partition("=")[0], ["--env-file"]) for argument in arguments]
    return f"{message}, got {arguments[0]}{''.join(meant) or '; see dmq-fast envs'}"


def run_environment(command: str, name: str | None, arguments: Sequence[str]) -> int:
    """Run ``COMMAND NAME ...``, or ``COMMAND --env-file ...`` where there is no name."""
    said = command if name is None else f"{command} {name}"
    noted = Command(command, name, list(arguments), working_directory())  # which code of the user may change
    options: dict[str, Any] = {}
    try:
        given = read_options(noted, {})
        options = given.options
        if options["check"]:
            return check_environment(said, given)
        job = prepare(said, given)
        if options["out"] is not None:
            claim_directory(options["out"], options["overwrite"])
            write_command(options["out"], noted)
    except (ValueError, TypeError, ImportError, OSError) as error:
        return usage_error(f"{said}: {with_flags(told(error), options_of(options))}")
    return finish(job)


@contextlib.contextmanager
def coming_back() -> Iterator[None]:
    """Leave this block in the working directory in which it was entered."""
    here = working_directory()
    try:
        yield
    finally:
        if here is not None:
            os.chdir(here)


@coming_back()
def resume(arguments: Sequence[str]) -> int:
    """Run ``dmq-fast resume DIR``."""
    parser = command_parser(
        "resume",
        description="Continue the run in DIR from where it was killed, interrupted or out of budget. The result is "
        "that of an undisturbed run, byte for byte. Budgets given here replace those of the run.",
        epilog=EXIT_CODES,
    )
    parser.add_argument("directory", type=full_path, metavar="DIR", help="the directory that --out named")
    add_resources(parser, "dmq")
    given = vars(parser.parse_args(arguments))
    directory: Path = given["directory"]
    command = f"resume {directory}"
    try:
        noted = read_command(directory)
        if (summary := finished(directory)) is None:
            changes = {name: value for name, value in given.items() if value is not None and name != "directory"}
            job = prepare(command, read_options(noted, changes | {"out": directory}))
            check_writable(directory)
    except (ValueError, TypeError, ImportError, OSError) as error:
        return usage_error(f"{command}: {with_flags(told(error), options_of(given))}")
    if summary is None:
        return finish(job)
    say(f"dmq-fast {command}: this run has come to its end")
    return show(command, to_json(summary) if given["json"] else summary_table(summary), FINISHED)


def read_options(noted: Command, changes: dict[str, Any]) -> Given:
    """Read the arguments of a command; `changes` replace the values of options.

    Of the code that the arguments may name, only that of the environment is run, in the working directory of the
    command if it is still there.
    """
    from dmq_fast.environments import registry

    command, name, arguments, place = noted
    if name is not None:
        name = registry.full_name(name)
    parser, own = environment_parser(command, LEARNERS[command], name)
    options = vars(parser.parse_args(arguments)) | changes
    parameters = {key: options[key] for key in own if options[key] is not None}
    for key, value in options.get("make") or []:
        if key in own:
            raise ValueError(f"--make: expected --{key.replace('_', '-')} instead, got {key}")
        parameters[key] = value
    return_to(place, options.get("env_file"))
    try:
        with output_apart():
            return Given(command, make_subject(name, options, parameters, BOXES[command]), options)
    except (TypeError, ValueError) as error:
        raise ValueError(with_flags(str(error), options_of(own))) from error


def return_to(place: str | None, env_file: str | None) -> None:
    """Change to the directory in which a run began, unless it or the file of its environment has gone from there."""
    if place is None or place == working_directory():
        return
    file = (env_file or "").rpartition(":")[0]
    if not file or Path(place, file).is_file():
        with contextlib.suppress(OSError):
            os.chdir(place)
    elif not Path(file).is_file():
        raise ValueError(f"--env-file: there is no file {file}, nor is there one in {place}, where the run began")


def check_environment(command: str, given: Given) -> int:
    """Check the environment, and run nothing."""
    from dmq_fast.environments import CheckError, FiniteMDP, check

    _, subject, options = given
    env = subject.env if isinstance(subject.env, FiniteMDP) else getattr(subject.env, "env", None)
    if env is None:
        raise ValueError(f"--check: expected an environment, got the sampler {type(subject.env).__name__}")
    try:
        with output_apart():
            report, code = check(env, rng=options["seed"]), FINISHED
    except CheckError as error:
        report, code = error.report, FAILED
    return show(command, to_json(asdict(report)) if options["json"] else str(report), code)


@output_apart()
def prepare(said: str, given: Given) -> Job:
    """Make the run that options describe."""
    from dmq_fast.engine.session import is_repeatable
    from dmq_fast.learners.named import decisions_of, named_learner, resources_of

    command, subject, options = given
    name = LEARNERS[command]
    decisions = {one.name: options[one.name] for one in decisions_of(name)}
    learner = named_learner(name, subject.env, decisions | {"rng": options["seed"]})
    if name != "dmq" and options.get("max_policies") is not None:  # which resume takes for both
        raise ValueError(f"max_policies: expected none, as this run has no covers, got {options['max_policies']}")
    how = {one.name: options[one.name] for one in resources_of(name)}
    horizon, quiet = subject.env.horizon, options["quiet"] or not on_terminal()
    progress = None if quiet else ProgressLine(lambda progress: progress.text(horizon))
    how["progress"] = signals.checking(progress)
    # A journal holds float64 only. Without one, resume repeats the run from its beginning, with the same result.
    kept = options.get("arithmetic") in (None, "float64") and (is_repeatable(learner.sampler) or not learner.redraws)
    if options["out"] is not None and kept:
        how["journal"] = options["out"] / JOURNAL
    learner.resources(**how)  # refuses wrong ones before a directory is claimed
    return Job(said, subject, learner, how, options, progress)


def options_of(arguments: Iterable[str]) -> dict[str, str]:
    """Return the options that give these arguments: those of their names."""
    return {"journal": "out"} | {name: name for name in arguments}


def with_flags(message: str, options: Mapping[str, str]) -> str:
    """Return an error message with the arguments that it begins with replaced by the options that give them."""
    names, colon, rest = message.partition(": ")
    flags = [f"--{options[name].replace('_', '-')}" for name in names.split(", ") if name in options]
    return ", ".join(flags) + colon + rest if len(flags) == len(names.split(", ")) else message


def finish(job: Job) -> int:
    """Run a job to its end, report the result and save it; return the exit code."""
    from dmq_fast.engine.journal import JournalError
    from dmq_fast.samplers.base import close

    options, progress = job.options, job.progress
    with signals.held():
        try:
            result, code = learned(job.command, job.learner, job.how)
        except (JournalError, OSError) as error:
            return usage_error(f"{job.command}: {told(error)}")
        if progress is not None:
            progress.clear()
        summary, code = described(job, result, code)
        if options["out"] is not None:
            try:
                save(result, summary, options["out"])
            except OSError as error:
                code = not_saved(job.command, error)
        text = to_json(summary) if options["json"] else summary_table(summary)
        code = show(job.command, text, code)
        try:
            with signals.held(spare=0), output_apart():  # all is saved and printed
                close(job.subject.env)
        except Exception:
            say_where()
            code = FAILED if code == FINISHED else code
        return signals.code(code)


@output_apart()
def learned(said: str, learner: DMQ | SelfStopping, how: dict[str, Any]) -> tuple[Result, int]:
    """Run to the end or to the first SIGINT or SIGTERM; return the result so far and the exit code."""
    from dmq_fast._support.workers import WorkerStartError
    from dmq_fast.engine.journal import JournalError
    from dmq_fast.results.result import COMPLETE

    try:
        result = signals.attempt(lambda: learner.learn(**how))
    except JournalError:
        raise  # Nothing was run.
    except Exception as error:
        # Mostly an exception of the environment, which must not cost hours of learning.
        try:
            result = learner.result()
        except RuntimeError:  # before the run began: its journal cannot be opened
            raise error from None
        if refuses_rewards(error):
            say(f"dmq-fast {said}: {as_options(told(error))}")
            return result, USAGE
        if isinstance(error, WorkerStartError):
            say(f"dmq-fast {said}: {error}")
        else:
            say_where()
        return result, FAILED
    if result is None:
        try:
            result = learner.result()
        except RuntimeError as error:
            raise KeyboardInterrupt from error  # before the run began
        return result, FINISHED
    return result, FINISHED if result.status in COMPLETE else OUT_OF_BUDGET


def refuses_rewards(error: BaseException) -> bool:
    """Return whether the package refused what an environment paid; the message says what to declare instead."""
    # The environment's own errors have their last frame in its code, and need their traceback.
    *_, last = traceback.extract_tb(error.__traceback__)
    ours = last.filename.startswith(str(Path(__file__).parents[1])) or last.filename.endswith(".pyx")
    return isinstance(error, ValueError) and ours and any(word in str(error) for word in ("value_range", "reward"))


@output_apart()
def described(job: Job, result: Result, code: int) -> tuple[dict[str, Any], int]:
    """Return the summary of a result, with its value and its certificate, and the exit code.

    Whoever has stopped the run does not wait for an estimate, and an environment that has failed may fail again. So
    a signal or an exception leaves out what is not known yet.
    """
    from dmq_fast.results.appraisal import appraise, tables_of
    from dmq_fast.samplers.streams import LAST_CALL
    from dmq_fast.theory.certificate import certificate

    env, stream = job.subject.env, job.learner.stream.at(LAST_CALL)
    n = 0 if code in (FAILED, USAGE) or signals.received else job.options.get("evaluate", EVALUATION)
    worth = None
    try:
        if n == 0:
            worth = appraise(env, result.policy, 0, stream)
        else:
            worth = signals.attempt(lambda: appraise(env, result.policy, n, stream))
    except Exception:
        say_where()
        code = FAILED
    summary = summarise(job.subject, job.learner, result, worth or appraise(env, None, 0, stream), job.options)
    if job.options.get("certificate"):
        found = signals.attempt(lambda: certificate(result, tables_of(env), rewards=job.learner.sampler.rewards))
        if found is not None:
            summary["certificate"] = found
    return summary, code
