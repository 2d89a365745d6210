"""Power cuts: nothing is lost that the documentation does not say, and no file is torn."""

import json
import random
import shutil

import pytest
from power_cut import Disk, power_cuts, recorded, tree
from sweeping import content, one
from test_journal import content as learned

import dmq_fast as dmq
from dmq_fast import experiments
from dmq_fast.engine import journal
from dmq_fast.environments import combination_lock

MANY = [20, pytest.param(200, marks=pytest.mark.slow)]

SAY = """
import os, sys
from pathlib import Path
root, said = Path(sys.argv[1]), open(sys.argv[2], "ab", buffering=0)
def say(line):
    said.write(f"{line}\\n".encode())
"""


# The model


@pytest.mark.parametrize(
    ("synced", "states"),
    [
        ("", {None, b"", b"new", b"n", b"ne", bytes(3)}),
        ("os.fsync(file)", {None, b"new"}),
        ("os.fsync(file); os.fsync(os.open(root, os.O_RDONLY))", {b"new"}),
    ],
)
def test_a_disk_keeps_for_certain_what_was_synced(tmp_path, synced, states):
    root, said = tmp_path / "disk", tmp_path / "said"
    root.mkdir()
    disk = Disk(root, said)
    code = f'{SAY}\nfile = os.open(root / "a", os.O_CREAT | os.O_WRONLY)\nos.write(file, b"new")\n{synced}'
    for entry in recorded(code, root, said, record=tmp_path / "record"):
        disk.do(entry)
    found = set()
    for seed in range(200):
        disk.crash(random.Random(seed), tmp_path / str(seed))
        found.add(tree(tmp_path / str(seed)).get("a"))
    assert found == states


# Journals

RUNS = [{"n_samples": 20}, {"n_samples": 20, "variant": "frugal"}, {"epsilon": 0.1}]

# The clock of the journal advances .3 s at each look, so that every fourth record is followed by an fsync.
LEARN = f"""{SAY}
import itertools, json, types
import dmq_fast as dmq
from dmq_fast.environments import combination_lock
from dmq_fast.engine import journal
ticks = itertools.count()
journal.time = types.SimpleNamespace(monotonic=lambda: 0.3 * next(ticks))
dmq.DMQ(combination_lock(5, 3, rng=0), rng=7, journal=root / "journal", **json.loads(sys.argv[3])).learn()
say("learned")
"""


@pytest.mark.parametrize("n", MANY)
@pytest.mark.parametrize("settings", RUNS, ids=str)
def test_a_journal_goes_on_after_a_power_cut(tmp_path, settings, n):
    env = combination_lock(5, 3, rng=0)
    expected = learned(dmq.DMQ(env, rng=7, **settings).learn())
    lost = set()
    for disk, heard, left in power_cuts(tmp_path, LEARN, json.dumps(settings), n=n):
        path, file = left / "journal", disk.file("journal")
        synced, written = (0, 0) if file is None else (count(file.synced), count(file.contents))
        assert written - synced <= (0 if heard else 6)
        kept = journal.read(path, path.read_bytes())[2] if path.exists() else 0
        assert kept >= synced or "journal" not in disk.tree.synced
        lost.add(written - kept)
        assert learned(dmq.DMQ(env, rng=7, **settings, journal=path).learn()) == expected
    assert max(lost) > 1


def count(contents):
    """The number of records of a journal."""
    return len(list(journal.records(bytes(contents))))


@pytest.mark.parametrize("n", [4, pytest.param(20, marks=pytest.mark.slow)])
def test_a_power_cut_after_a_power_cut(tmp_path, n):
    env, settings = combination_lock(5, 3, rng=0), RUNS[0]
    expected = learned(dmq.DMQ(env, rng=7, **settings).learn())
    for i, (*_, once) in enumerate(power_cuts(tmp_path, LEARN, json.dumps(settings), n=n, seed=1)):
        again = tmp_path / f"again {i}"
        shutil.copytree(once, again / "disk")
        for *_, twice in power_cuts(again, LEARN, json.dumps(settings), n=n, seed=i):
            assert learned(dmq.DMQ(env, rng=7, **settings, journal=twice / "journal").learn()) == expected


RUN = f"""{SAY}
from dmq_fast import cli
sys.exit(cli.main([*sys.argv[3:], "--out", str(root / "a" / "run")]))
"""
COMMAND = ["--n-samples", 20, "--json"]


@pytest.mark.parametrize("n", MANY)
@pytest.mark.parametrize("replaced", [False, True])
def test_a_command_is_resumed_or_repeated_after_a_power_cut(tmp_path, run, replaced, n):
    """Also one that replaces another run: whichever is there, it is whole."""
    expected = {h: json.loads(run("run", "chain", "--horizon", h, *COMMAND)[1]) for h in (3, 4)}
    command, found = ["run", "chain", "--horizon", 4, *COMMAND], set()
    if replaced:
        command.append("--overwrite")
        assert run("run", "chain", "--horizon", 3, *COMMAND, "--out", tmp_path / "disk" / "a" / "run")[0] == 0
    for *_, left in power_cuts(tmp_path, RUN, *command, n=n):
        out = left / "a" / "run"
        code, text, _ = run("resume", out, "--json")
        if code != 0:
            assert not (out / "command.json").exists()
            code, text, _ = run(*command, "--out", out)
        assert code == 0
        summary = json.loads(text)
        horizon = summary["horizon"]
        saved = json.loads((out / "run.json").read_text())
        assert untimed(saved) == untimed(summary) == untimed(expected[horizon])
        assert dmq.load(out / "result.npz").policy.horizon == horizon
        found.add(horizon)
    assert found == ({3, 4} if replaced else {4})


def untimed(summary):
    """All of a summary but times."""
    return {key: value for key, value in summary.items() if key != "seconds"}


# Saved results and tables

SAVE = f"""{SAY}
import dmq_fast as dmq
from dmq_fast import experiments
results = [dmq.load(path) for path in sys.argv[3:5]]
rows = experiments.load(sys.argv[5])
for i in range(4):
    results[i % 2].save(root / "result.npz")
    say(f"result.npz {{i % 2}}")
    experiments.export(rows[: i % 2 + 1], root / "rows.csv")
    say(f"rows.csv {{i % 2}}")
"""


@pytest.mark.parametrize("n", MANY)
def test_a_saved_file_is_the_old_or_the_new_one(tmp_path, n):
    saved, rows = [tmp_path / f"{i}.npz" for i in range(2)], [tmp_path / f"{i}.csv" for i in range(2)]
    experiments.sweep(one(n_samples=20), tmp_path / "sweep", workers=0)
    for i in range(2):
        dmq.DMQ(combination_lock(3, 3, rng=0), n_samples=20, rng=i).learn().save(saved[i])
        experiments.export(experiments.load(tmp_path / "sweep")[: i + 1], rows[i])
    states = set()
    for _, heard, left in power_cuts(tmp_path, SAVE, *saved, tmp_path / "sweep", n=n):
        for name, versions in (("result.npz", saved), ("rows.csv", rows)):
            there = which(left / name, versions)
            said = [int(line.split()[1]) for line in heard if line.startswith(name)]
            # The version that was saved last, or the one after it.
            assert there in ((said[-1], 1 - said[-1]) if said else (None, 0))
            states.add(there)
    assert states >= {0, 1}


def which(path, versions):
    """The number of the version that a file is; None if there is no file."""
    contents = (lambda file: learned(dmq.load(file))) if path.suffix == ".npz" else (lambda file: file.read_bytes())
    return [contents(version) for version in versions].index(contents(path)) if path.exists() else None


# Stores

SWEEP = f"""{SAY}
import json
from dmq_fast import experiments
from dmq_fast.experiments.sweeps import scheduler, store
scheduler.BATCH_RUNS = 2
store.SYNC_EVERY = float(sys.argv[4])
add = store.Store.add
def told(self, rows):
    rows = [dict(row, seconds=0.3) for row in rows]
    add(self, rows)
    for row in rows:
        say(json.dumps([row["cell"], row["seed"], row["seconds"]]))
    self.connection.execute("PRAGMA wal_autocheckpoint = 30")  # moves pages from the log to the file now and then
store.Store.add = told
experiments.sweep(json.loads(sys.argv[3]), root / "a" / "out", workers=0)
"""

SPEC = one(seeds=10, n_samples=[20, 30])


@pytest.mark.parametrize("n", MANY)
@pytest.mark.parametrize("every", [0.0, 1.0])
def test_a_store_keeps_every_run_that_was_stored(tmp_path, every, n):
    """It may lose those that were stored last, if they took less than `SYNC_EVERY` seconds in all."""
    experiments.sweep(SPEC, tmp_path / "undisturbed", workers=0)
    expected = content(experiments.load(tmp_path / "undisturbed"))
    sizes, most = set(), 0.0
    for _, heard, left in power_cuts(tmp_path, SWEEP, json.dumps(SPEC), every, n=n):
        out = left / "a" / "out"
        try:
            found = {(row["cell"], row["seed"]) for row in experiments.load(out)}
            experiments.status(out)
        except FileNotFoundError as error:
            assert "holds no sweep" in str(error)
            found = set()
        stored = [json.loads(line) for line in heard]
        lost = sum(seconds for cell, seed, seconds in stored if (cell, seed) not in found)
        assert lost < every or lost == 0
        sizes.add(len(found))
        most = max(most, lost)
        summary = experiments.sweep(SPEC, out, workers=0)
        assert summary.ran == len(expected) - len(found)
        assert content(experiments.load(out)) == expected
    assert len(sizes) > 3 and (every > 0 or most == 0)
    assert n < 200 or (most > 0) == (every > 0)  # few cuts may all miss the time between a run and its fsync


MERGE = f"""{SAY}
from dmq_fast import experiments
experiments.merge(root / "all", sys.argv[3:])
say("merged")
"""


@pytest.mark.parametrize("n", MANY)
def test_a_merge_is_whole_or_did_not_take_place(tmp_path, n):
    parts = [tmp_path / f"part {i}" for i in range(3)]
    for i, part in enumerate(parts):
        experiments.sweep(SPEC, part, shard=(i, 3), workers=0)
    experiments.merge(tmp_path / "undisturbed", parts)
    expected = experiments.load(tmp_path / "undisturbed")
    sizes = set()
    for _, heard, left in power_cuts(tmp_path, MERGE, *parts, n=n):
        out = left / "all"
        try:
            found = experiments.load(out)
        except FileNotFoundError as error:
            assert "holds no sweep" in str(error)
            found = []
        assert found in ([], expected) and not (heard and not found)
        sizes.add(len(found))
        experiments.merge(out, parts)
        assert experiments.load(out) == expected
    assert sizes == {0, len(expected)}
