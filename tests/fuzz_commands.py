"""Fuzz targets for the command line: command lines that are nearly right, run in this process.

Each run has a directory of its own with a saved run, a sweep, a specification and files that are none of these, some of
them broken. The exit code must be one that ``--help`` documents, and standard error must have a message where it is not
0, and no traceback.
"""

from __future__ import annotations

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

import numpy as np
from fuzz import Target
from fuzz_files import (
    SPECS,
    SWEEP,
    broken,
    broken_bytes,
    broken_toml,
    folder,
    npy,
    pick,
    result_file,
    store_file,
)

from dmq_fast import cli, experiments
from dmq_fast.cli.exit_codes import FAILED, FINISHED, NOT_SAVED, OUT_OF_BUDGET, USAGE
from dmq_fast.environments import registry
from dmq_fast.learners.named import decisions_of, resources_of

Generator = np.random.Generator

warnings.simplefilter("ignore")

TEXTS = (
    "", " ", "-", "--", "nan", "inf", "-inf", "1e400", "-1", "0", "1", "2", "0.5", "1e-300", "3.0", "0x10", "1_0", "é",
    "٣", "\ud800", "\x00", "a\nb", "None", "true", "[]", "{}", "[" * 2000, "9" * 5000, "1,2", "0,1,1", "0/2", "x=y",
    "=", ".", "..", "/", "/proc/nothing/there", "/dev/null", "uniform", "fixed", "sound", "adaptive", "linear",
    "finite:scale=2", "finite:penalty=penalty.npy", "math:sin", "exact", "rational", "40", "run", "sweep",
    "spec.toml", "result.npz", "new", "%s%n", "--help=", "$HOME", "~", "x" * 300,
)  # fmt: skip
"""Values of options, right and wrong for most."""

EXTREME = ("0", "-1", "nan", "inf", "1e-5000", "1e9999999", "1", "2", "1e5", "0.1", "", "é", "sNaN", "1e-99999999")
"""Values of the numbers of the theorem."""

SMALL = {"int": (1, 2, 3, 4), "float": (0.1, 0.5, 1.0, 2.0)}


# ---- Places


@functools.cache
def places() -> Path:
    """A directory with a saved run, a self-stopping one, a sweep and other files, which inputs copy."""
    home = folder() / "places"
    home.mkdir()
    runs = {
        "run": ["run", "lock", "--horizon", "3", "--n-actions", "2", "--n-samples", "3"],
        "adaptive": ["learn", "chain", "--horizon", "3", "--epsilon", "0.5"],
        "cut": ["run", "lock", "--horizon", "3", "--n-actions", "2", "--n-samples", "3", "--max-trajectories", "30"],
    }
    with quiet():
        for name, arguments in runs.items():
            cli.main([*arguments, "--out", str(home / name), "--json"])
    experiments.sweep(SWEEP, home / "sweep", workers=0)
    (home / "spec.toml").write_text(SPECS[1])
    (home / "tiny.toml").write_text(
        'seeds = 1\n[[environments]]\nname = "lock"\nhorizon = 3\n[[algorithms]]\nname = "dmq"\nn_samples = 2\n'
    )
    (home / "penalty.npy").write_bytes(npy(np.eye(2)))
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
def fresh(names: tuple[str, ...]) -> Any:
    """Copy those of the places that exist to a new working directory, which is removed at the end."""
    home, before = folder() / f"place-{next(numbers)}", os.getcwd()
    home.mkdir()
    for name in filter(None, names):
        source = places() / name
        if source.exists():
            shutil.copytree(source, home / name) if source.is_dir() else shutil.copy(source, home / name)
    os.chdir(home)
    try:
        yield home
    finally:
        os.chdir(before)
        shutil.rmtree(home)


def run(arguments: list[str], *codes: int) -> None:
    """Run a command line; AssertionError unless it ends as documented, ValueError where it was refused."""
    with quiet() as (out, err):
        try:
            code: Any = cli.main(arguments)
        except SystemExit as stop:
            code = stop.code
    said, told = out.getvalue(), err.getvalue()
    shown = f"{arguments!r:.1500}: {code!r}, {told[-1500:]!r}"
    assert code in codes or code in (FINISHED, None, USAGE), shown
    assert "Traceback (most recent call last)" not in told, f"{arguments!r:.800}: {code!r}\n{told[-3000:]}"
    if code == USAGE:
        assert told.strip() and not said, shown
        messages = [line for line in told.splitlines() if line.startswith("dmq-fast")]
        assert len(messages) == 1, shown
        raise ValueError(messages[0])
    if code in (FINISHED, None):
        assert said.strip(), shown


# ---- Options


def value_near(rng: Generator, kind: Any) -> str:
    """A text for an option that reads this type."""
    if rng.random() < 0.2:
        return str(pick(rng, TEXTS))
    if kind in (int, float):
        return str(pick(rng, SMALL[kind.__name__]))
    return str(pick(rng, TEXTS))


def option_of(rng: Generator, name: str, kind: Any, choices: tuple[str, ...] = ()) -> list[str]:
    """An option with a value, rarely without one or misspelt."""
    flag = "--" + name.replace("_", "-")
    if rng.random() < 0.02:
        flag = flag[:-1] if rng.random() < 0.5 else flag + "s"
    if kind is bool:
        return [flag if rng.random() < 0.5 else flag.replace("--", "--no-", 1)]
    text = pick(rng, choices) if choices and rng.random() < 0.9 else value_near(rng, kind)
    if rng.random() < 0.02:
        return [flag]
    return [f"{flag}={text}"] if rng.random() < 0.3 or text.startswith("-") else [flag, text]


def too_large(arguments: list[str]) -> bool:
    """Whether a command line asks for a long run, which is no fault of it."""
    for argument in arguments:
        with contextlib.suppress(ValueError, OverflowError):
            number = float(argument.rpartition("=")[2])
            if math.isfinite(number) and (abs(number) > 60 or 0 < abs(number) < 1e-3):
                return True
    return False


ENVIRONMENTS = {
    "lock": ["--horizon", "3", "--n-actions", "2"],
    "chain": ["--horizon", "3"],
    "deep-sea": ["--size", "3"],
    "river-swim": ["--horizon", "3", "--n-states", "3"],
    "linear-q": ["--horizon", "3"],
    "decoy": ["--horizon", "4"],
    "cart-pole": ["--horizon", "3", "--order", "1"],
}


def run_command(rng: Generator) -> None:
    """``dmq-fast learn`` and ``dmq-fast run``."""
    name = pick(rng, list(ENVIRONMENTS))
    arguments = [name, *ENVIRONMENTS[name]]
    if rng.random() < 0.1:
        arguments = [
            "--env-file",
            pick(rng, ("env.py:make", "env.py:fails", "env.py:nothing", "env.py:x", "env.py", "x.py:a")),
        ]
        if rng.random() < 0.5:
            arguments += ["--make", pick(rng, ("size=3", "size=x", "size", "size=[[]]", "sise=3", "=", "size=null"))]
    learner = "self-stopping" if rng.random() < 0.2 else "dmq"
    arguments += ["--n-samples", "3"] if learner == "dmq" else ["--epsilon", "0.5"]
    arguments += ["--max-trajectories", "2000", "--evaluate", "5", "--quiet"]
    for _ in range(int(pick(rng, (0, 1, 1, 2, 3)))):
        given = (*decisions_of(learner), *resources_of(learner))
        one = pick(rng, [one for one in given if one.name not in ("workers", "max_trajectories")])
        arguments += option_of(rng, one.name, one.type, one.choices)
    if rng.random() < 0.3:
        mine = registry.describe().get(name, ())
        if mine:
            one = pick(rng, mine)
            arguments += option_of(rng, one.name, one.type)
    for flag in ("--json", "--certificate", "--check", "--overwrite"):
        if rng.random() < 0.12:
            arguments.append(flag)
    if rng.random() < 0.35:
        arguments += [
            "--out",
            pick(rng, ("new", "run", "empty", "text.txt", "new/deep/er", "", "x" * 300, "a\x00b", "cut")),
        ]
    if rng.random() < 0.1:
        arguments += option_of(rng, pick(rng, ("seed", "env_seed", "make", "evaluate", "nothing")), int)
    if rng.random() < 0.1:
        del arguments[int(rng.integers(len(arguments)))]
    if rng.random() < 0.05:
        arguments.insert(int(rng.integers(len(arguments) + 1)), pick(rng, TEXTS))
    if too_large([one for one in arguments if one != "2000"]):
        arguments += ["--max-seconds", "0.01"]
        if any(len(one) > 3 and one.rpartition("=")[2].isdigit() for one in arguments if one != "2000"):
            return
    copied = ("empty", "text.txt", "penalty.npy", "env.py", *(("run", "cut") if "--out" in arguments else ()))
    with fresh(copied) as home:
        if "--env-file" in arguments and rng.random() < 0.3:
            (home / "env.py").write_bytes(broken_bytes(rng, (home / "env.py").read_bytes()))
        run(
            ["run" if learner == "dmq" else "learn", *arguments],
            OUT_OF_BUDGET,
            *((FAILED,) if "--check" in arguments else ()),
        )


def break_files(rng: Generator, directory: Path) -> None:
    """Break one of the files of a directory."""
    files = sorted(file for file in directory.rglob("*") if file.is_file())
    if not files:
        return
    file = pick(rng, files)
    data = file.read_bytes()
    kind = rng.integers(8)
    if kind == 0:
        file.unlink()
    elif kind == 1:
        file.unlink()
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


def harmless(directory: Path) -> bool:
    """Whether the command of a saved run, which a broken one may have changed, asks for a small run only."""
    with contextlib.suppress(OSError, ValueError, TypeError, KeyError, RecursionError):
        arguments = json.loads((directory / "command.json").read_text())["arguments"]
        numbers = [text for text in map(str, arguments) if text not in ("2000", "30")]
        return not too_large(numbers) and not any("1000" in text for text in numbers)
    return True


def resume_command(rng: Generator) -> None:
    """``dmq-fast resume``, of a directory that is perhaps broken."""
    name = pick(rng, ("run", "cut", "cut", "adaptive", "empty", "text.txt", "sweep", "nothing", ""))
    arguments = [name]
    for _ in range(int(pick(rng, (0, 0, 1, 2)))):
        one = pick(rng, [one for one in resources_of("dmq") if one.name != "workers"])
        arguments += option_of(rng, one.name, one.type)
    if rng.random() < 0.2:
        arguments.insert(
            int(rng.integers(len(arguments) + 1)), pick(rng, ("--json", "--quiet", "--out", "x", "--help"))
        )
    with fresh((name,)) as home:
        if name and rng.random() < 0.7 and (home / name).is_dir():
            with contextlib.suppress(OSError):
                if name != "cut" and rng.random() < 0.6:
                    (home / name / "run.json").unlink(missing_ok=True)
                break_files(rng, home / name)
        if not harmless(home / (name or "nothing")):
            return
        run(["resume", *arguments], OUT_OF_BUDGET)


SHARED = ("--json", "--quiet", "--help", "--nothing", "x")


def status_command(rng: Generator) -> None:
    """``dmq-fast status``."""
    name = pick(rng, ("sweep", "sweep", "sweep", "run", "empty", "text.txt", "nothing", "", "\ud800"))
    with fresh((name,)) as home:
        if name == "sweep" and rng.random() < 0.7:
            break_files(rng, home / name)
        run(["status", name, *([pick(rng, SHARED)] if rng.random() < 0.4 else [])])


def merge_command(rng: Generator) -> None:
    """``dmq-fast merge``."""
    options = ("sweep", "sweep2", "new", "empty", "text.txt", "nothing", "")
    arguments = [pick(rng, ("new", "sweep", "sweep2", *options)), pick(rng, ("sweep", "sweep2", *options))]
    if rng.random() < 0.3:
        arguments.append(pick(rng, options))
    if rng.random() < 0.3:
        arguments.insert(int(rng.integers(3)), pick(rng, ("--keep-first", *SHARED)))
    with fresh(("sweep", "empty", "text.txt")) as home:
        shutil.copytree(home / "sweep", home / "sweep2")
        if rng.random() < 0.6:
            break_files(rng, home / "sweep2")
        run(["merge", *arguments], NOT_SAVED)


def sweep_command(rng: Generator) -> None:
    """``dmq-fast sweep``, most of them without runs."""
    dry = rng.random() < 0.8
    spec = (
        pick(rng, ("spec.toml", "broken.toml", "broken.toml", "tiny.toml", "text.txt", "empty", "nothing", ""))
        if dry
        else "tiny.toml"
    )
    arguments = [spec, "--out", pick(rng, ("new", "new", "sweep", "empty", "text.txt", "new/er", ""))]
    arguments += ["--dry-run"] if dry else ["--workers", "0"]
    if rng.random() < 0.3:
        arguments += [
            "--shard",
            pick(rng, ("0/2", "1/2", "2/2", "0/0", "x", "slurm", "-1/2", "0/1", "٠/٢", "0/99999999999999999999")),
        ]
    if rng.random() < 0.2:
        arguments += ["--export", pick(rng, ("a.csv", "a.txt", "new/a.csv", "nothing/a.csv", "empty", ""))]
    if rng.random() < 0.3:
        arguments.append(pick(rng, ("--retry", "--progress", *SHARED)))
    if rng.random() < 0.05:
        del arguments[int(rng.integers(len(arguments)))]
        if "--dry-run" not in arguments:
            return
    with fresh(("spec.toml", "tiny.toml", "text.txt", "empty", "sweep")) as home:
        (home / "broken.toml").write_bytes(broken_toml(rng))
        with contextlib.suppress(ValueError, OSError):
            read = experiments.read(home / spec) if spec else None
            if read is not None and (
                len(read.cells) > 12
                or too_large([str(value) for cell in read.cells for value in cell.environment_parameters.values()])
            ):
                return
        if rng.random() < 0.2:
            break_files(rng, home / "sweep")
        run(["sweep", *arguments], NOT_SAVED)


def report_command(rng: Generator) -> None:
    """``dmq-fast report``, with tables; most pages and figures take too long for many inputs."""
    name = pick(rng, ("sweep", "sweep", "run", "adaptive", "empty", "text.txt", "nothing"))
    arguments = [name]
    drawn = rng.random() < 0.04
    if not drawn and rng.random() < 0.8:
        arguments += [
            pick(rng, ("--export", "--export-curves")),
            pick(rng, ("a.csv", "b.parquet", "a.txt", "nothing/a.csv", "empty", "")),
        ]
    elif not drawn:  # refused before anything is drawn
        arguments += ["--figures", "figures", *pick(rng, (
            ["--format", "x"], ["--width", "-1"], ["--width", "nan"], ["--success", "2"], ["--interval", "1"],
            ["--statistic", "x"], ["--x", "horizn", "--y", "value"], ["--y", "x"], ["--epsilon", "0.1"],
            ["--format", ""],
            ["--width", ""], ["--success", "nan"], ["--interval", "0"], ["--x", "", "--y", "loss"],
        ))]  # fmt: skip
    else:
        arguments += pick(
            rng, ([], ["--epsilon", "0.1"], ["--epsilon", "nan"], ["--epsilon", "-1"], ["--out", "page.html"])
        )
    with fresh(tuple({name, "empty"})) as home:
        if (home / name).is_dir() and rng.random() < 0.6:
            break_files(rng, home / name)
        if not harmless(home / name):
            return
        run(["report", *arguments], NOT_SAVED)


def other_command(rng: Generator) -> None:
    """The commands that read no file: ``theory``, ``envs``, ``algorithms``, ``new-env``, ``bench``, and none."""
    kind = rng.integers(6)
    if kind < 2:
        arguments = ["theory"]
        usual = {"gamma": "0.5", "d": "2", "H": "5", "K": "2"}
        for name in ("gamma", "d", "H", "K", "C", "epsilon", "delta"):
            if (name in usual and rng.random() < 0.97) or rng.random() < 0.2:
                arguments += [f"--{name}", usual.get(name, "0.1") if rng.random() < 0.8 else pick(rng, EXTREME)]
        arguments += ["--json"] if rng.random() < 0.5 else []
    elif kind == 2:
        arguments = ["envs", *([pick(rng, (*ENVIRONMENTS, *TEXTS, "gym:X-v0"))] if rng.random() < 0.8 else [])]
        arguments += ["--json"] if rng.random() < 0.5 else []
    elif kind == 3:
        arguments = ["algorithms", *([pick(rng, ("dmq", "ucb-q", *TEXTS))] if rng.random() < 0.8 else [])]
    elif kind == 4:
        arguments = ["new-env", pick(rng, ("numba", "cython", "x", "")), pick(rng, ("my_env", "a/b", "class", *TEXTS))]
    else:
        arguments = [pick(rng, (*cli.COMMANDS, *TEXTS)), *([pick(rng, TEXTS)] if rng.random() < 0.5 else [])]
        if arguments[0] == "bench" and "oracle" in arguments:
            return
    with fresh(()):
        run(arguments)


COMMANDS: dict[str, tuple[Callable[[Generator], None], float]] = {
    "run": (run_command, 4.0),
    "resume": (resume_command, 2.0),
    "status": (status_command, 1.0),
    "merge": (merge_command, 1.0),
    "sweep": (sweep_command, 2.0),
    "report": (report_command, 1.0),
    "others": (other_command, 2.0),
}
TARGETS = {name: Target(target, weight / 10) for name, (target, weight) in COMMANDS.items()}
