"""The package in surroundings that its authors do not have: odd file names, threads, switches of Python, terminals."""

import functools
import json
import os
import shlex
import sqlite3
import subprocess
import sys
import threading
import zipfile

import numpy as np
import pytest
from flat import flat

import dmq_fast as dmq
from dmq_fast import cli, experiments
from dmq_fast._support.checks import seeded
from dmq_fast._support.progress import ProgressLine
from dmq_fast.environments import registry

SHORT = ("lock", "--horizon", "4", "--n-samples", "5")
SWEEP = {
    "seeds": 2,
    "environments": [{"name": "lock", "horizon": 3}],
    "algorithms": [{"name": "dmq", "n_samples": 5}],
}


def python(*arguments, **settings):
    """Run Python in a process of its own."""
    return subprocess.run([sys.executable, "-P", *arguments], capture_output=True, check=False, timeout=120, **settings)


COMMANDS = (("run", *SHORT, "--json"),)
ALL = """
import json, sys
from dmq_fast import cli
for command in json.loads(sys.argv[1]):
    try:
        cli.main(command)
    except SystemExit:
        pass
    print(chr(0), flush=True)
"""


def test_nothing_needs_docstrings_or_assertions():
    plain, stripped = (python(*more, "-c", ALL, json.dumps(COMMANDS), text=True) for more in ((), ("-OO",)))
    assert (plain.returncode, stripped.returncode) == (0, 0), stripped.stderr
    run, again = (done.stdout.partition("\0\n")[0] for done in (plain, stripped))
    assert json.loads(run) | {"seconds": None} == json.loads(again) | {"seconds": None}


def test_errors_of_numpy_may_be_exceptions():
    env = dmq.environments.chain(5, rng=0)
    ways = [
        {"n_samples": 20},
        {"epsilon": 0.1},
        {"epsilon": 1e-300, "max_trajectories": 500},
        {"n_samples": 20, "oracle": "value"},
    ]
    plain = [flat(env, rng=1, **way).learn().theta for way in ways]
    with np.errstate(all="raise"):
        raising = [flat(env, rng=1, **way).learn().theta for way in ways]
    for one, two in zip(plain, raising, strict=True):
        np.testing.assert_array_equal(one, two)


def test_the_command_line_runs_in_a_thread(tmp_path, capsys):
    codes = []
    spec = tmp_path / "s.toml"
    spec.write_text(
        "seeds = 1\n[[environments]]\nname = 'lock'\nhorizon = 3\n[[algorithms]]\nname = 'dmq'\nn_samples = 5\n"
    )
    for command in (("run", *SHORT), ("sweep", spec, "--out", tmp_path / "sweep", "--workers", 0)):
        thread = threading.Thread(target=lambda command=command: codes.append(cli.main(list(map(str, command)))))
        thread.start()
        thread.join()
    assert codes == [0, 0], capsys.readouterr().err


def test_names_of_files_need_not_be_utf8(tmp_path, run):
    pytest.importorskip("matplotlib")
    directory = tmp_path / os.fsdecode(b"d\xff")
    try:
        directory.mkdir()
    except OSError:
        pytest.skip("this file system has UTF-8 names only")
    assert run("run", *SHORT, "--out", directory / "run")[0] == 0
    for command in ("resume", "report"):
        assert run(command, directory / "run")[0] == 0
    experiments.sweep(SWEEP, directory / "sweep", workers=0)
    assert len(experiments.load(directory / "sweep")) == 2
    assert run("report", directory / "sweep")[0] == 0
    assert (directory / "sweep" / "report.html").read_text(encoding="utf-8")


def test_the_specification_is_read_from_a_directory_that_is_read_only(tmp_path, monkeypatch, run):
    pytest.importorskip("matplotlib")
    sweep = tmp_path / "sweep"
    experiments.sweep(SWEEP | {"name": "the name of it"}, sweep, workers=0)
    # Whoever may write everywhere, as root may, sees what SQLite is asked instead.
    opened = []
    connect = sqlite3.connect
    monkeypatch.setattr(sqlite3, "connect", lambda place, **options: opened.append(place) or connect(place, **options))
    access = os.access
    monkeypatch.setattr(os, "access", lambda path, mode: os.fspath(path) != os.fspath(sweep) and access(path, mode))
    code, _, err = run("report", sweep, "--out", tmp_path / "page.html")
    assert code == 0, err
    assert "the name of it" in (tmp_path / "page.html").read_text()
    assert opened and all("immutable=1" in uri for uri in opened)


def test_the_hint_to_resume_can_be_pasted(tmp_path, run):
    directory = tmp_path / "a b"
    run("run", *SHORT, "--out", directory)
    code, _, err = run("run", *SHORT, "--out", directory)
    assert code == 2
    hint = err[err.index("dmq-fast resume") :]
    assert shlex.split(hint) == ["dmq-fast", "resume", str(directory)]


@pytest.mark.parametrize("size", [4, 8])
def test_a_recorded_seed_makes_the_same_environment_again(size):
    sequence = np.random.SeedSequence(7, pool_size=size)
    generator, record = seeded(sequence)
    assert record == (7 if size == 4 else "SeedSequence")
    if isinstance(record, int):
        assert generator.random() == np.random.default_rng(record).random()


@pytest.mark.parametrize("shape", [(2**62, 4), (2**63, 2**63), (2**40,), (-1, 2)])
def test_sizes_that_overflow_are_refused(tmp_path, shape):
    header = repr({"descr": "<f8", "fortran_order": False, "shape": shape}).encode() + b"\n"
    array = b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header + bytes(64)
    path = tmp_path / "result.npz"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("theta.npy", array)
    with pytest.raises(ValueError, match=r"result\.npz: not a result"):
        dmq.load(path)


def test_standard_output_holds_the_result_alone(tmp_path, run):
    file = tmp_path / "talkative_env.py"
    file.write_text(
        "import dmq_fast as dmq\nprint('at import')\n"
        "def make_env():\n    print('in the function')\n    return dmq.environments.chain(4, rng=0)\n"
    )
    code, out, err = run("run", "--env-file", f"{file}:make_env", "--n-samples", 5, "--json")
    assert code == 0 and json.loads(out)["status"] == "ended"
    assert "at import" in err and "in the function" in err


MISSING = [
    ("sweep none.toml --out x", "sweep none.toml: none.toml: No such file or directory"),
    ("sweep . --out x", "sweep .: .: Is a directory"),
    ("sweep s.toml --out x --export x.cvs", "--export: expected a file that ends in .csv or .tex, got {here}/x.cvs"),
    ("sweep s.toml --out s.toml", "--out: expected a directory, got the file {here}/s.toml"),
    ("run lock --horizon 3 --out s.toml", "run lock: --out: expected a directory, got the file {here}/s.toml"),
    ("run lock --horizon 3 --out s.toml/x", "run lock: {here}/s.toml/x: Not a directory"),
    ("resume none", "resume {here}/none: there is no directory {here}/none"),
]


def test_files_that_are_not_there_are_named_without_numbers(tmp_path, monkeypatch, run):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "s.toml").write_text("[[environments]]\nname = 'lock'\nhorizon = 3\n[[algorithms]]\nname = 'dmq'\n")
    for command, message in MISSING:
        code, out, err = run(*command.split())
        assert (code, out) == (2, "") and err.endswith(f"{message.format(here=tmp_path)}\n"), command


LOUD = """
import atexit, ctypes, os
import numpy as np

def speak():
    print("in Python", flush=True)
    ctypes.CDLL(None).puts(b"in C")
    os.write(1, b"beneath\\n")
    os.system("echo another process")

class Loud:
    horizon, n_actions, dimension, chunk_size = 2, 2, 2, 50
    reset = lambda self, n, rng: speak() or np.full((n, 2), 0.5)
    features = lambda self, level, states: states
    step = lambda self, level, states, actions, rng: (states, states[:, 0] / 4)
    close = lambda self: speak()

speak()
atexit.register(speak)
"""


@pytest.mark.parametrize(
    "more",
    [("--workers", "2"), *(pytest.param(more, marks=pytest.mark.slow) for more in (("--workers", "1"), ("--check",)))],
)
def test_whatever_prints_is_not_among_the_results(tmp_path, more):
    (tmp_path / "loud.py").write_text(LOUD)
    command = ("run", "--env-file", tmp_path / "loud.py:Loud", "--n-samples", "120", "--evaluate", "1", "--json", *more)
    done = python("-m", "dmq_fast", *command, text=True)
    assert done.returncode == 0, done.stderr
    json.loads(done.stdout)
    for words in ("in Python", "in C", "beneath", "another process"):
        assert words in done.stderr


MEANT = {
    "rn lock": "'run'",
    "run lock --horizont 5": "'--horizon'",
    "run lock --horizont=5": "'--horizon'",
    "theory --gama 1": "'--gamma'",
    "resume here --jsn": "'--json'",
    "sweep s.toml --out x --worker 1": "'--workers'",
    "bench orcle": "'oracle'",
    "bench oracle --jsn x": "'--json'",
    "run lock --horizon 5 --variant soud": "'sound'",
    "run lock --horizon 5 --make n_action=3": "'n_actions'",
    "run --env-fil x.py:make": "'--env-file'",
    "run --n-sample 5 lock --horizon 5": "'run lock --n-sample 5 --horizon 5'",
    "run --horizon 5 gym:FrozenLake-v1": "'run gym:FrozenLake-v1 --horizon 5'",
    "--verison": "'--version'",
    "--hlep run": "'--help'",
}


def test_a_misspelt_word_is_answered_by_the_one_that_was_meant(run):
    for command, meant in MEANT.items():
        code, out, err = run(*command.split())
        assert (code, out) == (2, "") and f"did you mean {meant}?" in err, command


ARGUMENTS = [
    ("make", "sise=5", "--make: expected arguments of make among size, slip, got 'sise'; did you mean 'size'?"),
    ("make", "slip=1", "--make: expected size=VALUE, since make has no default for it, got none"),
    ("bare", "size=5", "--make: expected none, as bare takes none, got 'size'"),
    ("mkae", "size=5", "got no such name; did you mean 'make'?"),
]


def test_arguments_of_ones_own_function_are_compared_with_it(tmp_path, run):
    file = tmp_path / "with_arguments.py"
    file.write_text("def make(size, *, slip=0.1): 1 / 0\ndef bare(): 1 / 0\ndef open_ended(**more): 1 / 0\n")
    for function, given, message in ARGUMENTS:
        code, out, err = run("run", "--env-file", f"{file}:{function}", "--make", given)
        assert (code, out) == (2, "") and err.endswith(f"{message}\n"), (function, given)
        assert "ZeroDivisionError" in run("run", "--env-file", f"{file}:open_ended", "--make", given)[2]


def test_arguments_of_gymnasium_are_compared_with_those_of_the_environment(run):
    pytest.importorskip("gymnasium")
    lake = ("run", "gym:FrozenLake-v1", "--horizon", 3, "--make")
    assert "did you mean 'is_slippery'?" in run(*lake, "is_slipery=false")[2]
    assert "did you mean" not in run(*lake, "map_name=5x5")[2]


def test_progress_fits_a_narrow_terminal_and_a_dumb_one(monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", "20")
    monkeypatch.setenv("TERM", "xterm")
    line = ProgressLine(lambda _: "x" * 50)
    line(None)
    line(None)
    line.clear()
    assert capsys.readouterr().err == "\r\x1b[K" + "x" * 19 + "\r\x1b[K"
    monkeypatch.setenv("TERM", "dumb")
    ProgressLine(lambda _: "x" * 50)(None)
    assert capsys.readouterr().err == "x" * 50 + "\n"


def no_environment():
    return 3


def test_a_function_that_makes_no_environment_is_blamed_itself(tmp_path):
    spec = SWEEP | {"environments": [{"name": f"{__name__}:no_environment"}]}
    with pytest.raises(ValueError, match=r"specification: environments\[0\]: .*expected an environment"):
        experiments.sweep(spec, tmp_path, workers=0)


def shifted(horizon: int, shift, rng=None):
    """Make a chain.

    Parameters
    ----------
    horizon : int
        Number of levels.
    shift : int
        What is added to it.
    """
    return dmq.environments.chain(horizon + shift, rng=rng)


class Maker:
    """Makes chains, of a length that the instance knows."""

    def __init__(self, horizon: int = 3, rng=None):
        self.horizon = horizon

    def __call__(self, longer: int = 0, rng=None):
        return dmq.environments.chain(self.horizon + longer, rng=rng)


@pytest.mark.parametrize(
    ("factory", "given", "names"),
    [
        (functools.partial(shifted, shift=1), {"horizon": 3}, {"horizon": int, "shift": int}),
        (Maker(4), {}, {"longer": int}),
        (shifted, {"horizon": 2, "shift": 2}, {"horizon": int, "shift": str}),
    ],
)
def test_whatever_can_be_called_can_be_registered(monkeypatch, factory, given, names):
    monkeypatch.setattr(registry, "REGISTRY", dict(registry.REGISTRY))
    registry.register("mine")(factory)
    assert {parameter.name: parameter.type for parameter in registry.describe()["mine"]} == names
    assert registry.make("mine", rng=0, **given).horizon == 4
