"""The files that commands read and write: the directory of a run, and single output files."""

from __future__ import annotations

import contextlib
import os
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from dmq_fast._support.files import check_replaceable, make_directory, replacing, sync_directory, writable
from dmq_fast._support.json_text import check_form, from_json, plain, to_json

if TYPE_CHECKING:
    from dmq_fast.results.result import Result

__all__ = [
    "COMMAND",
    "JOURNAL",
    "OUTPUTS",
    "Command",
    "check_writable",
    "claim_directory",
    "claim_file",
    "finished",
    "read_command",
    "read_summary",
    "save",
    "working_directory",
    "write_bytes",
    "write_command",
    "write_text",
]

OUTPUTS = ("result.npz", "run.json")
COMMAND, JOURNAL = "command.json", "journal"
FILES = (*OUTPUTS, JOURNAL, COMMAND)
"""All that the directory of a run holds."""


def claim_file(option: str, path: Path, *, made: bool = False) -> None:
    """Check before the work that its result can be written to `path`; a file there will be replaced.

    With `made`, the work makes the directory of the file if there is none.
    """
    try:
        if made and not path.absolute().parent.is_dir():
            there = next(parent for parent in path.absolute().parents if parent.is_dir())
            with contextlib.suppress(FileNotFoundError):  # any other error is one of the name, such as its length
                (there / path.name).lstat()
            return
        check_replaceable(path)
    except OSError as error:
        if error.strerror is not None:  # of the system, such as that a name is too long
            raise type(error)(error.errno, f"{option}: {error.strerror}", error.filename) from error
        raise type(error)(f"{option}: {error}") from error


def write_text(path: Path, text: str) -> None:
    """Write a small file in one step."""
    write_bytes(path, writable(text).encode())


def write_bytes(path: Path, data: bytes) -> None:
    """Write a file in one step."""
    with replacing(path) as file:
        file.write(data)


def claim_directory(directory: Path, overwrite: bool) -> None:
    """Make the output directory, and check before the run that its result can be written there."""
    from dmq_fast.engine.journal import check_free

    if directory.exists() and not directory.is_dir():
        raise NotADirectoryError(f"--out: expected a directory, got the file {directory}")
    make_directory(directory)
    check_writable(directory)
    check_free(directory / JOURNAL)
    if not overwrite and any((directory / name).exists() for name in ("result.npz", JOURNAL)):
        raise FileExistsError(
            f"--out: {directory} holds a run already; choose another directory, pass --overwrite, or continue the run "
            f"by dmq-fast resume {shlex.quote(str(directory))}"
        )
    for name in FILES:
        (directory / name).unlink(missing_ok=True)
    sync_directory(directory)  # or the result of another run could come back beside the new command


def check_writable(directory: Path) -> None:
    """Raise PermissionError or IsADirectoryError if the files of a run cannot be written in a directory."""
    for name in FILES:
        if (directory / name).is_dir():
            raise IsADirectoryError(f"--out: {directory / name} is a directory")
    if not os.access(directory, os.W_OK):
        raise PermissionError(f"--out: {directory} is not writable")


class Command(NamedTuple):
    """The command of a run, the name of its environment (None with --env-file), and the other arguments.

    `place` is the working directory when it began, which its paths are relative to; None if nobody knows.
    """

    command: str
    environment: str | None
    arguments: list[str]
    place: str | None


def working_directory() -> str | None:
    """Return the working directory; None if it was removed."""
    try:
        return os.getcwd()
    except FileNotFoundError:
        return None


def write_command(directory: Path, noted: Command) -> None:
    """Save the command of a run, which ``resume`` repeats."""
    from dmq_fast.kernels.build import build

    fields = {"format": 2, "dmq_fast": build()} | noted._asdict()
    write_text(directory / COMMAND, to_json(fields, indent=2) + "\n")


def read_command(directory: Path) -> Command:
    """Return the command of the run in a directory."""
    path = directory / COMMAND
    if not directory.is_dir():
        raise NotADirectoryError(f"there is no directory {directory}")
    if not path.exists():
        raise FileNotFoundError(f"{directory} holds no run: there is no {COMMAND}")
    try:
        command = plain(path.read_bytes())
        check_form("command", command, {"format": int})
        if command["format"] not in (1, 2):
            raise ValueError(f"written in format {command['format']} by dmq_fast {command.get('dmq_fast')}")
        check_form("command", command, {"environment": str | None, "arguments": [str]})
        if command["format"] == 1:
            given, arguments = upgraded(command["arguments"])
            return Command(given, command["environment"], arguments, None)
        check_form("command", command, {"command": str})
        if command["command"] not in ("learn", "run"):
            raise ValueError(f"command: expected learn or run, got {command['command']!r}")
        command.setdefault("place", None)  # as early files of this format
        check_form("command", command, {"place": str | None})
        return Command(*(command[name] for name in Command._fields))
    except ValueError as error:
        raise ValueError(f"{path}: not the command of a run ({error})") from error


def upgraded(arguments: list[str]) -> tuple[str, list[str]]:
    """Return the command with the arguments of ``run`` of version 0.2.0, which had one command for both learners."""
    modes = {"--strict": ["--mode", "strict"], "--no-strict": ["--mode", "quick"], "--no-hindsight": []}
    given = [part for argument in arguments for part in modes.get(argument, [argument])]
    for i, argument in enumerate(given):
        if argument == "--variant=adaptive" or given[i : i + 2] == ["--variant", "adaptive"]:
            return "learn", given[:i] + given[i + 1 + (argument == "--variant") :]
    aims = {"--epsilon", "--delta", "--mode", "--p-min"}
    return "learn" if aims & {argument.split("=")[0] for argument in given} else "run", given


def finished(directory: Path) -> dict[str, Any] | None:
    """Return the summary of the run in a directory, if it has finished and is saved."""
    from dmq_fast.results.result import COMPLETE

    npz, text = (directory / name for name in OUTPUTS)
    try:
        summary = read_summary(text)
    except (FileNotFoundError, ValueError):
        return None
    return summary if npz.exists() and summary["status"] in COMPLETE else None


def read_summary(path: Path) -> dict[str, Any]:
    """Return the summary of a run; ValueError if the file is none: if its lines cannot be told."""
    from dmq_fast.cli.summary import summary_table
    from dmq_fast.results.saved import renamed

    try:
        summary: dict[str, Any] = from_json(path.read_bytes())
        check_form("summary", summary, {"status": str, "n_trajectories": int, "counts": {"trajectories": {...: int}}})
        if "stopping" in summary:
            summary["stopping"] = renamed(summary["stopping"])
        summary_table(summary)
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        raise ValueError(f"{path}: not the summary of a run ({type(error).__name__}: {error})") from error
    return summary


def save(result: Result, summary: dict[str, Any], directory: Path) -> None:
    """Write both files of a run, each in one step."""
    npz, text = (directory / name for name in OUTPUTS)
    result.save(npz)
    write_text(text, to_json(summary, indent=2) + "\n")
