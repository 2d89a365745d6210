"""The script tests/fuzz.py: it finds what it should, names it, and goes on behind it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

TARGETS = '''
import os, signal, time
from fuzz import Target

def mixed(rng):
    """Of five inputs one is accepted, two are refused, and two are findings."""
    kind = int(rng.integers(5))
    if kind < 2:
        raise ValueError("no")
    if kind == 2:
        raise KeyError("what nobody expects")
    if kind == 3:
        raise TypeError  # without a text

def fatal(rng):
    u = rng.random()
    if u < 0.1:
        os.kill(os.getpid(), signal.SIGSEGV)
    if u > 0.93:
        time.sleep(600)

TARGETS = {"mixed": Target(mixed, 2.0), "own": Target(lambda rng: exit(), 1.0, (SystemExit,)), "fatal": Target(fatal)}
'''


@pytest.fixture
def fuzz(tmp_path):
    """Return a function that runs the script on the targets above."""
    script = Path(__file__).with_name("fuzz.py").read_text()
    (tmp_path / "fuzz.py").write_text(script.replace("LIMIT = 20.0", "LIMIT = 4.0"))
    (tmp_path / "fuzz_sample.py").write_text(TARGETS)

    def run(*arguments):
        command = [sys.executable, tmp_path / "fuzz.py", "--seed", "1", *arguments]
        variables = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
        return subprocess.run(command, capture_output=True, text=True, env=variables)

    return run


def counts(done):
    """By target: inputs, accepted, refused, found."""
    rows = [line.split() for line in done.stdout.partition("\ntarget ")[2].splitlines()[1:]]
    return {row[0]: [int(x) for x in row[1:5]] for row in rows}


def test_findings_are_named_and_the_run_goes_on(fuzz):
    done = fuzz("--inputs", "90", "--jobs", "1", "--targets", "sample.mixed", "sample.own")
    assert done.returncode == 1, done.stderr
    assert "== sample.mixed: KeyError in mixed, line 11 of fuzz_sample.py" in done.stdout
    assert "AssertionError: TypeError without a text" in done.stdout
    (inputs, accepted, refused, found), own = counts(done)["sample.mixed"], counts(done)["sample.own"]
    assert inputs == accepted + refused + found == 60 and min(accepted, refused, found) > 5
    assert own == [30, 0, 30, 0]
    # The command that is given repeats the input, in one process.
    again = next(line for line in done.stdout.partition("KeyError")[2].splitlines() if "; again: " in line)
    assert "what nobody expects" in fuzz(*again.split()[-2:]).stderr
    assert "there are sample.mixed, sample.own, sample.fatal" in fuzz("--targets", "none").stderr


@pytest.mark.slow
def test_signals_and_inputs_without_end_are_findings(fuzz):
    done = fuzz("--inputs", "30", "--jobs", "2", "--targets", "sample.fatal")
    assert done.returncode == 1, done.stderr
    assert "== sample.fatal: SIGSEGV" in done.stdout and "== sample.fatal: no answer within 4 s" in done.stdout
    inputs, accepted, refused, found = counts(done)["sample.fatal"]
    assert inputs == accepted + found == 30 and refused == 0 and 1 < found < 10
