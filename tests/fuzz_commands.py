"""Fuzz targets for the command line: command lines that are nearly right, run in this process.

What a command takes is asked of its own parser: every argument and option that it has is drawn, with values that are
right for most and with some that are not. Each run has a directory of its own, with copies of what it names: a saved
run, a sweep, specifications, and files that are none of these; some of them are broken. The exit code must be one that
``--help`` documents, and standard error must have a message where it is not 0, and no traceback.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import io
import itertools
import json
import math
import os
import shutil
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
from fuzz import Target
from fuzz_files import SPECS, SWEEP, broken_toml, folder, result_file, store_file
from mutations import broken, broken_bytes, pick

from dmq_fast import cli, experiments
from dmq_fast.cli.exit_codes import FAILED, FINISHED, NOT_SAVED, OUT_OF_BUDGET, USAGE
from dmq_fast.cli.options import Parser

Generator = np.random.Generator

warnings.simplefilter("ignore")

TEXTS = (
    "", " ", "-", "--", "nan", "inf", "-inf", "1e400", "-1", "0", "1", "2", "0.5", "1e-300", "3.0", "0x10", "1_0", "é",
    "٣", "\ud800", "\x00", "a\nb", "None", "true", "[]", "{}", "[" * 2000, "9" * 5000, "1,2", "0,1,1", "0/2", "x=y",
    "=", ".", "..", "/", "/proc/nothing/there", "/dev/null", "uniform", "fixed", "sound", "adaptive", "linear",
    "finite:scale=2", "math:sin", "exact", "rational", "40", "run", "sweep",
    "spec.toml", "result.npz", "new", "%s%n", "--help=", "$HOME", "~", "x" * 300, "1e-5000", "1e9999999", "sNaN",
)  # fmt: skip
"""Values of options, right and wrong for most."""

ENVIRONMENTS = {
    "lock": ["--horizon", "3", "--n-actions", "2"],
    "chain": ["--horizon", "3"],
    "deep-sea": ["--size", "3"],
    "river-swim": ["--horizon", "3", "--n-states", "3"],
    "linear-q": ["--horizon", "3"],
    "decoy": ["--horizon", "4"],
    "cart-pole": ["--horizon", "3", "--order", "1"],
}
PLACES = ("run", "cut", "adaptive", "sweep", "sweep2", "empty", "text.txt", "nothing", "new", "new/er")
TABLES = ("a.csv", "a.csv", "a.csv", "b.csv", "a.txt", "new/a.csv", "nothing/a.csv", "empty")
VALUES: dict[str, tuple[str, ...]] = {
    "directory": ("sweep", "sweep", "sweep", "sweep", "run", "cut", *PLACES), "out": ("new", "new", *PLACES),
    "directories": ("sweep", "sweep", "sweep2", *PLACES),
    "spec": ("spec.toml", "broken.toml", "broken.toml", "tiny.toml", "text.txt", "empty"),
    "env_file": ("env.py:make", "env.py:make", "env.py:fails", "env.py:nothing", "env.py:x", "env.py", "x.py:a"),
    "make": ("size=3", "size=x", "size", "size=[[]]", "sise=3", "=", "size=null"),
    "shard": ("0/2", "1/2", "2/2", "0/0", "x", "slurm", "-1/2", "0/1", "٠/٢", "0/99999999999999999999"),
    "export": TABLES, "export_curves": TABLES, "figures": ("figures",), "interval": ("0.5", "1", "0"),
    "x": ("horizon", "horizn"), "y": ("value", "loss", "x"), "gamma": ("0.5",), "d": ("2",), "H": ("5",), "K": ("2",),
    "only": ("chain", "river-swim", "chain,river-swim", "chan", "chain,"), "seeds": ("0", "1,2", "3,x"),
    "algorithm": ("bpi-ucbvi", "self-stopping,lsvi-ucb", "math:sin", "math:no", "bpi"),
    "name": (*ENVIRONMENTS, "dmq", "ucb-q", "gym:X-v0", "my_env", "a/b", "class"),
    "command": tuple(cli.COMMANDS), "benchmark": ("x",),
}  # fmt: skip
"""By the name of an argument or option, values that are right, or nearly."""


# ---- Places


@functools.cache
def places() -> Path:
    """A directory with a saved run, a self-stopping one, a sweep and other files, which inputs copy."""
    home = folder() / "places"
    home.mkdir()
    lock = ["run", "lock", "--horizon", "3", "--n-actions", "2", "--n-samples", "3"]
    runs = {
        "run": lock,
        "adaptive": ["learn", "chain", "--horizon", "3", "--epsilon", "0.5"],
        "cut": [*lock, "--max-trajectories", "30"],
    }
    with quiet():
        for name, arguments in runs.items():
            cli.main([*arguments, "--out", str(home / name), "--json"])
    experiments.sweep(SWEEP, home / "sweep", workers=0)
    shutil.copytree(home / "sweep", home / "sweep2")
    (home / "spec.toml").write_text(SPECS[1])
    (home / "tiny.toml").write_text(
        'seeds = 1\n[[environments]]\nname = "lock"\nhorizon = 3\n[[algorithms]]\nname = "dmq"\nn_samples = 2\n'
    )
    (home / "env.py").write_text(
        "import dmq_fast\ndef make(size=3):\n    return dmq_fast.environments.combination_lock(size, 2, rng=0)\n"
        "def fails():\n    raise RuntimeError('no')\nnothing = 3\n"
    )
    (home / "empty").mkdir()
    (home / "text.txt").write_text("neither this nor that\n")
    return home


@contextlib.contextmanager
def quiet() -> Any:
    """Take what a command prints."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        yield out, err


numbers = itertools.count()


@contextlib.contextmanager
def fresh(rng: Generator, arguments: list[str]) -> Any:
    """Copy those of the places that are named to a new working directory, and break some; it is removed at the end."""
    home, before = folder() / f"place-{next(numbers)}", os.getcwd()
    home.mkdir()
    for name in sorted({argument.partition(":")[0] for argument in arguments} & set(os.listdir(places()))):
        source = places() / name
        shutil.copytree(source, home / name) if source.is_dir() else shutil.copy(source, home / name)
        with contextlib.suppress(OSError):
            if source.is_dir() and rng.random() < 0.6:
                break_files(rng, home / name)
    (home / "broken.toml").write_bytes(broken_toml(rng))
    os.chdir(home)
    try:
        yield home
    finally:
        os.chdir(before)
        shutil.rmtree(home)


def break_files(rng: Generator, directory: Path) -> None:
    """Break one of the files of a directory."""
    files = sorted(file for file in directory.rglob("*") if file.is_file())
    if not files:
        return
    file = pick(rng, files)
    data, kind = file.read_bytes(), rng.integers(8)
    if kind < 2:
        file.unlink()
        if kind == 1:
            file.mkdir()
    elif kind == 2:
        file.write_bytes(b"" if rng.random() < 0.5 else b"[" * 50_000)
    elif file.suffix == ".json" and kind < 7:
        file.write_text(json.dumps(broken(rng, json.loads(data)), skipkeys=True))
    elif file.suffix == ".npz" and kind < 7:
        file.write_bytes(result_file(rng))
    elif file.suffix == ".sqlite":
        file.write_bytes(store_file(rng))
    else:
        file.write_bytes(broken_bytes(rng, data))


def too_large(arguments: list[str]) -> bool:
    """Whether a command line asks for a long run, which is no fault of it."""
    for argument in arguments:
        with contextlib.suppress(ValueError, OverflowError):
            number = float(argument.rpartition("=")[2])
            if math.isfinite(number) and (abs(number) > 60 or 0 < abs(number) < 1e-3):
                return True
    return False


def harmless(home: Path, command: str, arguments: list[str]) -> bool:
    """Whether neither this command line, nor a saved one or a specification that it names, asks for long runs."""
    if command == "sweep":
        with contextlib.suppress(ValueError, OSError):
            spec = experiments.read(home / arguments[0])
            values = [str(value) for cell in spec.cells for value in cell.environment_parameters.values()]
            return len(spec.cells) <= 12 and not too_large(values)
    for saved in home.glob("*/command.json"):
        with contextlib.suppress(OSError, ValueError, TypeError, KeyError, RecursionError):
            texts = [text for text in map(str, json.loads(saved.read_text())["arguments"]) if text not in USUAL_SIZES]
            return not too_large(texts) and not any("1000" in text for text in texts)
    return command not in ("run", "learn") or not too_large([one for one in arguments if one not in USUAL_SIZES])


USUAL_SIZES = ("2000", "30")


# ---- Command lines


class Taken(BaseException):
    """What carries a parser out of a command."""


@functools.cache
def taken(*arguments: str) -> tuple[argparse.Action, ...]:
    """What the parser that reads a command line takes."""

    def stop(parser: Parser, *_: Any) -> Any:
        raise Taken(parser)

    with mock.patch.object(Parser, "parse_args", stop):
        try:
            cli.main(list(arguments))
        except Taken as found:
            return tuple(found.args[0]._actions)
    raise AssertionError(f"no parser read {arguments}")


def value_of(rng: Generator, action: argparse.Action) -> str:
    """A text for what an action reads."""
    if rng.random() < 0.12:
        return str(pick(rng, TEXTS))
    if action.choices and rng.random() < 0.9:
        return str(pick(rng, list(action.choices)))
    usual = {"N": ("1", "2", "3", "4"), "S": ("1", "2", "3", "4"), "X": ("0.1", "0.5", "1.0", "2.0")}
    return str(pick(rng, VALUES.get(action.dest) or usual.get(str(action.metavar), TEXTS)))


def written(rng: Generator, action: argparse.Action) -> list[str]:
    """An option with its value, rarely without one or misspelt; or the values of an argument."""
    if not action.option_strings:
        return [value_of(rng, action) for _ in range(2 if action.nargs == "+" and rng.random() < 0.3 else 1)]
    flag = pick(rng, action.option_strings)
    if rng.random() < 0.02:
        flag = flag[:-1] if rng.random() < 0.5 else flag + "s"
    if action.nargs == 0 or rng.random() < 0.02:
        return [flag]
    text = value_of(rng, action)
    return [f"{flag}={text}"] if rng.random() < 0.3 or text.startswith("-") else [flag, text]


def command_line(rng: Generator, command: str) -> list[str]:
    """The arguments of a command: those that it requires, some options, and rarely one too few or too many."""
    first: list[str] = []
    if command in ("run", "learn"):
        name = pick(rng, list(ENVIRONMENTS))
        first = [name, *ENVIRONMENTS[name]] if rng.random() < 0.9 else ["--env-file", pick(rng, VALUES["env_file"])]
        first += ["--n-samples", "3"] if command == "run" else ["--epsilon", "0.5"]
        first += ["--max-trajectories", "2000", "--evaluate", "5", "--quiet"]
    if command == "exam":
        first = ["--only", "chain", "--max-trajectories", "20", "--max-seconds", "5", "--evaluate", "2"]
    actions = [one for one in taken(command, *first) if one.dest not in ("workers", "max_trajectories")]
    for action in actions:
        if (action.required or not action.option_strings) and not set(action.option_strings) & set(first):
            first += written(rng, action)
    if command == "sweep":
        first += ["--workers", "0"] if first[:1] == ["tiny.toml"] else ["--dry-run"]
    if command == "report" and rng.random() < 0.95:  # most pages and figures take too long for many inputs
        first += ["--export", pick(rng, TABLES)]
    for _ in range(int(pick(rng, (0, 0, 1, 1, 2, 3)))):
        first += written(rng, pick(rng, [one for one in actions if one.option_strings]))
    if rng.random() < 0.05:
        del first[int(rng.integers(len(first)))]
    if rng.random() < 0.05:
        first.insert(int(rng.integers(len(first) + 1)), pick(rng, TEXTS))
    return first


def run(command: str, rng: Generator) -> None:
    """Run a command line; AssertionError unless it ends as documented, ValueError where it was refused."""
    arguments = command_line(rng, command)
    if command == "bench" and "oracle" in arguments:
        return
    with fresh(rng, arguments) as home, quiet() as (out, err):
        if not harmless(home, command, arguments):
            return
        try:
            code: Any = cli.main([command, *arguments] if command else arguments)
        except SystemExit as stop:
            code = stop.code
    said, told = out.getvalue(), err.getvalue()
    shown = f"{command} {arguments!r:.1500}: {code!r}, {told[-1500:]!r}"
    documented = {FINISHED, None, USAGE, OUT_OF_BUDGET if command in ("run", "learn", "resume") else NOT_SAVED}
    assert code in documented | ({FAILED} if "--check" in arguments else set()), shown
    assert "Traceback (most recent call last)" not in told, f"{shown[:800]}\n{told[-3000:]}"
    if code == USAGE:
        assert told.strip() and not said, shown
        messages = [line for line in told.splitlines() if line.startswith("dmq-fast")]
        assert len(messages) == 1, shown
        raise ValueError(messages[0])
    if code in (FINISHED, None):
        assert said.strip(), shown


def target(command: str) -> Callable[[Generator], None]:
    return functools.partial(run, command)


WEIGHTS = {"run": 4.0, "learn": 2.0, "resume": 3.0, "status": 3.0, "merge": 3.0, "sweep": 3.0, "report": 2.0}
TARGETS = {name or "none": Target(target(name), WEIGHTS.get(name, 0.5) / 10) for name in (*cli.COMMANDS, "")}
