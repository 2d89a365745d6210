"""What tests of sweeps share: specifications, rows without times, and sweeps as processes."""

import contextlib
import os
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

from dmq_fast.experiments.sweeps import scheduler
from dmq_fast.experiments.sweeps.store import FILE

ROOT = Path(__file__).parent

SPEC = """\
name = "small"
seeds = 3

[[environments]]
name = "lock"
horizon = [3, 4]
n_actions = 3

[[environments]]
name = "deep-sea"   # a comment
size = 4
seed = 42

[[algorithms]]
name = "dmq"
variant = ["sound", "paper"]
n_samples = [
    20,
    50,
]
"""

TIMES = {"seconds", "timings", "ended", "host"}


def write(tmp_path, text=SPEC, name="spec.toml"):
    path = tmp_path / name
    path.write_text(text)
    return path


def one(algorithm="dmq", seeds=3, environment=None, **parameters):
    """A specification with one cell, unless parameters are lists."""
    return {
        "seeds": seeds,
        "environments": [environment or {"name": "chain", "horizon": 3}],
        "algorithms": [{"name": algorithm, **parameters}],
    }


def content(rows):
    """Everything but times."""
    return [{key: value for key, value in row.items() if key not in TIMES} for row in rows]


def environment_of_tests():
    """Of a process that finds the modules beside this one."""
    # An empty entry would be the current directory.
    path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    return os.environ | {"PYTHONPATH": path}


def start(*arguments, **options):
    return subprocess.Popen(
        [sys.executable, "-P", "-m", "dmq_fast", "sweep", *map(str, arguments)],
        env=environment_of_tests(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **options,
    )  # fmt: skip


def wait_until(condition, timeout=40.0):
    end = time.monotonic() + timeout
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.01)


def slow_spec(tmp_path, seconds=0.02):
    begun = tmp_path / "begun"
    begun.mkdir(exist_ok=True)
    text = (
        f'seeds = 25\n[[environments]]\nname = "lock"\nhorizon = [3, 5]\n[[algorithms]]\nname = "obstinate:slow_dmq"\n'
        f'directory = "{begun}"\nseconds = {seconds}\n'
    )
    return write(tmp_path, text), begun


def altered(directory, statement):
    """Change the store of a sweep by a statement of SQL."""
    with contextlib.closing(sqlite3.connect(directory / FILE)) as connection, connection:
        connection.execute(statement)


def alive(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return "zombie" not in Path(f"/proc/{pid}/status").read_text() if Path("/proc").exists() else True


def noted_batches(monkeypatch):
    """The list of the tasks that a sweep makes from now on, as for runs that take a microsecond: many to a task."""
    batches = []
    next_batch = scheduler.Sweep.next_batch

    def noted(self):
        self.timings = {run.cell.id: (1, 1e-6) for run in self.missing} or self.timings
        batches.append(next_batch(self))
        return batches[-1]

    monkeypatch.setattr(scheduler.Sweep, "next_batch", noted)
    return batches
