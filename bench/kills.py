"""Kill runs, sweeps, shards and merges at random moments, and compare what they end with to undisturbed ones.

    python bench/kills.py --kills 200

Each subject is a command of `dmq-fast` in a process. It is killed by SIGKILL at a random moment and started again, as
the documentation says, until it ends by itself; then another one of its kind begins, until there were enough kills.

- run: `dmq-fast run --out`, which `dmq-fast resume` continues. Records that were in its journal must stay there.
- sweep: two workers; the kill hits the sweep, one of its workers, or the whole process group. Runs that were stored
  must stay stored. A worker that dies costs at most the run that it was doing, which is stored as "crashed" and which
  `--retry` repeats.
- shards: three shards, one after the other, are killed, and so is their merge.

"lost" counts records and stored runs that a kill has removed, "differing" the results of runs that are not those of the
undisturbed ones byte for byte, "left" the processes that were still there `PATIENCE` seconds after a kill.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from common import options

import dmq_fast as dmq
from dmq_fast import experiments
from dmq_fast.engine import journal
from dmq_fast.results.result import COMPLETE

RUN = ["run", "lock", "--horizon", "30", "--n-samples", "1000", "--oracle", "value", "--seed", "5"]

SPEC = """\
seeds = 8

[[environments]]
name = "lock"
horizon = [10, 15]

[[algorithms]]
name = "dmq"
variant = ["sound", "frugal"]
n_samples = [200, 1000]
"""

COUNTED = ("killed process", "killed worker", "killed group", "crashed", "lost", "differing", "left")
"""What is counted, in the order in which it is printed."""

TIMES = ("seconds", "timings", "ended", "host")
"""Columns of a row that differ from run to run."""

VICTIMS = ("process", "worker", "group")
"""What a kill of a sweep hits: the sweep itself, one of its workers, or all of its processes."""

PATIENCE = 30.0
"""Seconds in which the processes of a killed sweep must end."""


class Kills:
    """The kills so far: the moments to come, and what was counted.

    Parameters
    ----------
    wanted : int
        Number of kills after which commands are left alone.
    seed : int
    """

    def __init__(self, wanted: int, seed: int) -> None:
        self.wanted = wanted
        self.random = random.Random(seed)
        self.counts: Counter[str] = Counter()
        self.seconds: dict[str, float] = {}

    @property
    def done(self) -> int:
        """Number of kills so far."""
        return sum(count for name, count in self.counts.items() if name.startswith("killed "))

    def undisturbed(self, name: str, arguments: Sequence[str]) -> None:
        """Run a command to its end, and keep its duration."""
        began = time.monotonic()
        subprocess.run(command(arguments), check=True, stdout=subprocess.DEVNULL)
        self.seconds[name] = time.monotonic() - began

    def until_it_ends(
        self,
        name: str,
        arguments: Callable[[], Sequence[str]],
        held: Callable[[], set[Any]],
        victims: Sequence[str] = ("process",),
    ) -> None:
        """Start a command again and again, and kill it, until it ends.

        Parameters
        ----------
        name : str
            Name of the command whose duration is known.
        arguments : callable
            Return the arguments of the next start.
        held : callable
            Return what is stored; a kill must remove nothing of it.
        victims : sequence of str
            What a kill may hit: "process", "worker" or "group".
        """
        kills = 0
        while True:
            # Longer lives after every kill, as it takes time to get to where the last one ended.
            life = self.random.uniform(0.0, self.seconds[name] * (1.0 + kills / 8))
            before = held()
            quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
            with subprocess.Popen(command(arguments()), **quiet, start_new_session=True) as process:
                code = self.wait(process, life, self.random.choice(victims))
            self.counts["lost"] += len(before - held())
            self.counts["left"] += remaining(process.pid)
            if code == 0:
                return
            # A sweep ends with 1 if a run has crashed with its worker, or a worker has died before it was ready.
            if code != -signal.SIGKILL and (code, victims) != (1, VICTIMS):
                raise RuntimeError(f"{name}: exit code {code}")
            kills += 1

    def wait(self, process: subprocess.Popen[bytes], life: float, victim: str) -> int:
        """Kill what is to be killed after its life; return the exit code of the process."""
        if self.done < self.wanted:
            with contextlib.suppress(subprocess.TimeoutExpired):
                return process.wait(life)
            workers = [pid for pid in members(process.pid) if pid != process.pid]
            if victim == "worker" and workers:
                os.kill(self.random.choice(workers), signal.SIGKILL)
            elif victim == "group":
                os.killpg(process.pid, signal.SIGKILL)
            else:
                victim = "process"
                process.kill()
            self.counts[f"killed {victim}"] += 1
        return process.wait()


def command(arguments: Sequence[str]) -> list[str]:
    """Return the line that starts `dmq-fast`."""
    return [sys.executable, "-P", "-m", "dmq_fast", *arguments]


def members(session: int) -> list[int]:
    """Return the processes of a session that have not ended."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            with contextlib.suppress(OSError):
                state, _, _, of = (entry / "stat").read_text().rpartition(")")[2].split()[:4]
                if int(of) == session and state != "Z":
                    found.append(int(entry.name))
    return found


def remaining(session: int) -> int:
    """Return the number of processes that a session has not ended within `PATIENCE` seconds, and end them."""
    end = time.monotonic() + PATIENCE
    while (left := members(session)) and time.monotonic() < end:
        time.sleep(0.02)
    for pid in left:
        os.kill(pid, signal.SIGKILL)
    return len(left)


def load(directory: Path) -> list[dict[str, Any]]:
    """Return the rows of a store, none if there is no store yet."""
    try:
        return experiments.load(directory)
    except FileNotFoundError:
        return []


def rows_of(directory: Path) -> dict[tuple[str, int], str]:
    """Return the stored runs, without times, by cell and seed."""
    return {
        (row["cell"], row["seed"]): json.dumps({name: row[name] for name in row if name not in TIMES})
        for row in load(directory)
    }


def records_of(path: Path) -> set[int]:
    """Return the numbers of the intact records of a journal."""
    return set(range(journal.read(path, path.read_bytes()).number)) if path.exists() else set()


def arrays_of(path: Path) -> tuple[Any, ...]:
    """Return all of a saved result but times."""
    result = dmq.load(path)
    columns = {name: column.tobytes() for name, column in result.history.columns().items()}
    return result.theta.tobytes(), columns, result.counts, result.cover_sizes, result.key, result.warnings


def kill_a_run(kills: Kills, scratch: Path, number: int) -> None:
    """Kill one run until it ends."""
    expected, out = scratch / "run", scratch / f"run {number}"
    if not expected.exists():
        kills.undisturbed("run", [*RUN, "--out", str(expected)])

    def arguments() -> Sequence[str]:
        return ["resume", str(out)] if (out / "command.json").exists() else [*RUN, "--out", str(out)]

    kills.until_it_ends("run", arguments, lambda: records_of(out / "journal"))
    kills.counts["differing"] += arrays_of(out / "result.npz") != arrays_of(expected / "result.npz")


def kill_a_sweep(kills: Kills, scratch: Path, number: int) -> None:
    """Kill one sweep and its workers until it ends."""
    out, line = scratch / f"sweep {number}", sweep_line(kills, scratch)
    before, crashed = kills.counts["killed worker"], set()

    def arguments() -> Sequence[str]:
        crashed.update((row["cell"], row["seed"], row["ended"]) for row in load(out) if row["status"] == "crashed")
        return [*line, str(out), "--retry"]

    kills.until_it_ends("sweep", arguments, lambda: stored(out), VICTIMS)
    kills.counts["crashed"] += len(crashed)
    kills.counts["lost"] += max(0, len(crashed) - (kills.counts["killed worker"] - before))
    kills.counts["differing"] += differing(rows_of(out), rows_of(scratch / "sweep"))


def kill_shards_and_a_merge(kills: Kills, scratch: Path, number: int) -> None:
    """Kill three shards, one after the other, and their merge, until they end."""
    line = sweep_line(kills, scratch)
    kills.seconds.setdefault("shard", kills.seconds["sweep"] / 2)
    parts = [scratch / f"shard {number} {i}" for i in range(3)]
    for i, part in enumerate(parts):
        kills.until_it_ends("shard", partial(list, [*line, str(part), "--shard", f"{i}/3"]), partial(stored, part))
    if "merge" not in kills.seconds:
        kills.undisturbed("merge", ["merge", str(scratch / "merged"), *map(str, parts)])
    for i in range(3):  # a merge is short
        out = scratch / f"merged {number} {i}"
        kills.until_it_ends("merge", partial(list, ["merge", str(out), *map(str, parts)]), partial(stored, out))
        kills.counts["differing"] += differing(rows_of(out), rows_of(scratch / "sweep"))


def stored(directory: Path) -> set[Any]:
    """Return the stored runs that finished, with their results."""
    return {(key, row) for key, row in rows_of(directory).items() if json.loads(row)["status"] in COMPLETE}


def sweep_line(kills: Kills, scratch: Path) -> list[str]:
    """Return the command of the sweep but for its directory; first do it undisturbed."""
    path = scratch / "spec.toml"
    line = ["sweep", str(path), "--workers", "2", "--quiet", "--out"]
    if not path.exists():
        path.write_text(SPEC)
        kills.undisturbed("sweep", [*line, str(scratch / "sweep")])
    return line


def differing(rows: dict[tuple[str, int], str], expected: dict[tuple[str, int], str]) -> int:
    """Return the number of runs that are missing, too many, or have another result."""
    return len({key for key, _ in rows.items() ^ expected.items()})


def main() -> None:
    given = options(__doc__, kills=200, seed=0)
    subjects = {"run": kill_a_run, "sweep": kill_a_sweep, "shards, merges": kill_shards_and_a_merge}
    kills = Kills(0, given.seed)
    with tempfile.TemporaryDirectory() as scratch:
        for i, (name, subject) in enumerate(subjects.items(), 1):
            kills.wanted, before, number = given.kills * i // len(subjects), kills.counts.copy(), 0
            while kills.done < kills.wanted:
                subject(kills, Path(scratch), number)
                number += 1
            counts = {key: kills.counts[key] - before[key] for key in COUNTED}
            print(f"{name:<16}{number:>3} ended   " + "   ".join(f"{key} {counts[key]}" for key in COUNTED), flush=True)
    raise SystemExit(any(kills.counts[key] for key in ("lost", "differing", "left")))


if __name__ == "__main__":
    main()
