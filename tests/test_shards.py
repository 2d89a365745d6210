"""Shards of a sweep, and the stores that are merged of them."""

import contextlib
import itertools
import json
import os
import re
import shlex
import signal
import sqlite3
import subprocess
import sys
from collections import Counter

import pytest
from sweeping import ROOT, altered, content, environment_of_tests, one, slow_spec, start, wait_until, write

from dmq_fast import experiments
from dmq_fast.cli import sweep as command
from dmq_fast.experiments.sweeps import scheduler, store
from dmq_fast.experiments.sweeps import spec as spec_module
from dmq_fast.kernels.build import build


def test_shards_are_disjoint_even_and_mixed():
    spec = experiments.read(
        {
            "seeds": 2,
            "environments": [{"name": "lock", "horizon": [3, 4, 5, 6, 7, 8]}],
            "algorithms": [{"name": "dmq", "variant": ["sound", "paper"]}],
        }
    )
    for n in (1, 2, 3, 4, 7, 24, 30):
        parts = [list(spec.runs((i, n))) for i in range(n)]
        keys = [(cell.id, seed) for part in parts for cell, seed in part]
        assert Counter(keys) == Counter((cell.id, seed) for cell, seed in spec.runs())
        assert max(map(len, parts)) - min(map(len, parts)) <= 1
        if n <= 4:  # which divide the numbers of seeds and algorithms
            for part in parts:
                assert {cell.algorithm_parameters["variant"] for cell, _ in part} == {"sound", "paper"}
                assert {seed for _, seed in part} == {0, 1}


@pytest.mark.parametrize(
    ("shard", "error"),
    [((3, 3), ValueError), ((-1, 3), ValueError), ("0/3", TypeError), ((0.5, 3), TypeError), ((0, 1, 2), TypeError)],
)
def test_what_is_no_shard_is_refused(tmp_path, shard, error):
    with pytest.raises(error, match=r"^shard: expected "):
        experiments.sweep(one(), tmp_path / "out", shard=shard, workers=0)
    assert not (tmp_path / "out").exists()


def test_the_command_takes_its_shard_from_slurm(tmp_path, run, monkeypatch):
    array = {"ID": 6, "COUNT": 2, "MIN": 5}
    for name, value in array.items():
        monkeypatch.setenv(f"SLURM_ARRAY_TASK_{name}", str(value))
    code, out, _ = run("sweep", write(tmp_path), "--out", tmp_path / "1", "--shard", "slurm", "--workers", 0, "--json")
    assert (code, json.loads(out)["runs"], json.loads(out)["statuses"]) == (0, 18, {"ended": 18})
    run("sweep", write(tmp_path), "--out", tmp_path / "2", "--shard", "1/2", "--workers", 0)
    assert content(experiments.load(tmp_path / "1")) == content(experiments.load(tmp_path / "2"))
    stepped = {"SLURM_ARRAY_TASK_ID": "7", "SLURM_ARRAY_TASK_COUNT": "3", "SLURM_ARRAY_TASK_MIN": "1"}
    assert command.slurm_shard(stepped | {"SLURM_ARRAY_TASK_STEP": "3"}) == (2, 3)


WRONG = [
    ("3/3", (), "expected I/N with 0 <= I < N, such as 0/3, or slurm, got '3/3'"),
    ("x", (), "got 'x'"),
    ("-1/3", (), "expected"),
    ("slurm", (), "slurm: expected the numbers SLURM_ARRAY_TASK_ID"),
    ("slurm", (7, 3, 1), "slurm: expected an array of consecutive tasks, got task 7 of 3 that begin with 1"),
    ("slurm", (3, 1, 3), "slurm: expected an array of at least 2 tasks, got one with the task 3 alone"),
]


def test_wrong_shards_of_the_command(tmp_path, run, monkeypatch):
    """Numbers that are none, and job arrays of Slurm that say nothing about shards: --array=1,5,7 and --array=3."""
    monkeypatch.delenv("SLURM_ARRAY_TASK_ID", raising=False)
    for shard, array, words in WRONG:
        for name, value in zip(("ID", "COUNT", "MIN"), array, strict=False):
            monkeypatch.setenv(f"SLURM_ARRAY_TASK_{name}", str(value))
        code, out, err = run("sweep", write(tmp_path), "--out", tmp_path / "out", f"--shard={shard}")
        assert (code, out) == (2, "") and words in err and not (tmp_path / "out").exists()


def test_shards_that_are_killed_and_merged_give_the_rows_of_an_undivided_sweep(tmp_path, run):
    path, begun = slow_spec(tmp_path)
    experiments.sweep(path, tmp_path / "whole", workers=0)
    for file in begun.iterdir():
        file.unlink()
    parts = [tmp_path / f"part {i}" for i in range(3)]
    with contextlib.ExitStack() as stack:
        options = ("--workers", "0", "--quiet")
        sweeps = [
            stack.enter_context(start(path, "--out", part, "--shard", f"{i}/3", *options))
            for i, part in enumerate(parts)
        ]
        mine = f"{sweeps[1].pid} "
        wait_until(lambda: sum(file.name.startswith(mine) for file in begun.iterdir()) >= 4)
        sweeps[1].kill()
        codes = [sweep.wait(timeout=60) for sweep in sweeps]
        assert codes == [0, -signal.SIGKILL, 0]
        for sweep in sweeps:
            sweep.communicate()
    sizes = [len(experiments.load(part)) for part in parts]
    assert {sizes[0], sizes[2]} <= {16, 17} and 0 < sizes[1] < 16
    out = tmp_path / "all"
    code, stdout, _ = run("merge", out, *parts, "--json")
    told = json.loads(stdout)
    assert (code, told["added"], told["runs"], told["missing"]) == (1, sum(sizes), sum(sizes), 50 - sum(sizes))
    summary = experiments.sweep(path, out, workers=0)
    assert (summary.runs, summary.ran) == (50, 50 - sum(sizes))
    assert content(experiments.load(out)) == content(experiments.load(tmp_path / "whole"))
    before = experiments.load(out)
    code, stdout, _ = run("merge", out, *parts)
    assert (code, stdout) == (0, f"{out}: 50 runs, 0 of them new; 0 took the place of worse ones\n")
    assert experiments.load(out) == before


def swept(directory, **options):
    experiments.sweep(one(n_samples=20, seeds=4), directory, workers=0, **options)
    return directory


def test_a_run_that_finished_wins_whatever_the_order(tmp_path):
    a, b, c = (swept(tmp_path / name) for name in "abc")
    late = "'2999-01-01T00:00:00.000+00:00'"
    altered(a, "UPDATE runs SET status = 'failed', error = 'x', value = NULL WHERE seed IN (0, 1)")
    altered(a, f"UPDATE runs SET status = 'crashed', ended = {late} WHERE seed = 2")
    altered(b, "UPDATE runs SET status = 'max_seconds', value = 0.1, n_trajectories = 3 WHERE seed IN (0, 2)")
    altered(b, f"UPDATE runs SET status = 'failed', ended = {late} WHERE seed = 1")
    altered(c, "UPDATE runs SET status = 'failed', error = 'y' WHERE seed IN (1, 2)")
    expected = None
    for order in itertools.permutations((a, b, c)):
        out = tmp_path / "".join(place.name for place in order)
        assert experiments.merge(out, order).runs == 4
        rows = experiments.load(out)
        assert [row["status"] for row in rows] == ["ended", "failed", "max_seconds", "ended"]
        assert rows[1]["error"] == "x"
        assert expected is None or rows == expected
        expected = rows
    before = expected
    assert experiments.merge(out, [a, b, c, out]) == experiments.Merged(out, 4, 0, 0)
    assert experiments.load(out) == before


def test_conflicts_are_named_and_nothing_is_written(tmp_path, run):
    a, b = swept(tmp_path / "a"), swept(tmp_path / "b")
    altered(b, "UPDATE runs SET value = 0.125, counts = '{}' WHERE seed = 2")
    altered(b, "UPDATE runs SET seconds = 99, host = 'elsewhere' WHERE seed = 1")
    out = swept(tmp_path / "out", shard=(0, 4))
    before = experiments.load(out)
    (cell,) = {row["cell"] for row in before}
    with pytest.raises(experiments.MergeError) as caught:
        experiments.merge(out, [a, b])
    assert str(caught.value).startswith(f"cell {cell} (dmq on chain), seed 2 has different results: value ")
    assert f" in {a} and 0.125 in {b}, counts " in str(caught.value)
    assert experiments.load(out) == before
    code, stdout, err = run("merge", out, a, b)
    assert (code, stdout) == (2, "") and "seed 2 has different results: value " in err
    assert run("merge", out, b, a, "--keep-first")[0] == 0
    assert [row["value"] == 0.125 for row in experiments.load(out)] == [False, False, True, False]


def test_a_merge_that_is_killed_has_written_nothing(tmp_path):
    parts = [swept(tmp_path / str(i), shard=(i, 2)) for i in range(2)]
    out = tmp_path / "out"
    code = (
        "import os, sys, signal\nfrom dmq_fast.experiments.sweeps import merge\ntake = merge.Findings.take\n"
        "def dying(self, source, place):\n    take(self, source, place)\n"
        "    if place.name == '1': os.kill(os.getpid(), signal.SIGKILL)\n"
        "merge.Findings.take = dying\nmerge.merge(sys.argv[1], sys.argv[2:])\n"
    )
    line = [sys.executable, "-P", "-c", code, str(out), *map(str, parts)]
    assert subprocess.run(line, env=environment_of_tests(), check=False).returncode == -signal.SIGKILL
    assert experiments.load(out) == []
    assert experiments.merge(out, parts).added == 4


def test_stores_that_do_not_fit_are_refused(tmp_path, run):
    a, out = swept(tmp_path / "a"), tmp_path / "out"
    other = tmp_path / "other"
    experiments.sweep(one(n_samples=30) | {"name": "else"}, other, workers=0)
    with pytest.raises(experiments.MergeError, match=r"other: expected a store with runs of the specification sweep"):
        experiments.merge(out, [a, other])
    with pytest.raises(experiments.MergeError, match=r"a: expected a store .* got one of sweep with another text"):
        experiments.merge(other, [a])
    with pytest.raises(FileNotFoundError, match="none holds no sweep"):
        experiments.merge(out, [a, tmp_path / "none"])
    with pytest.raises(ValueError, match="directories: expected at least one, got none"):
        experiments.merge(out, [])
    with pytest.raises(TypeError, match="directories: expected a sequence"):
        experiments.merge(out, str(a))
    altered(other, "PRAGMA user_version = 9")
    for arguments in ([a, other], [tmp_path / "none"]):
        code, stdout, err = run("merge", out, *arguments)
        assert (code, stdout) == (2, "") and err.startswith("dmq-fast merge: ") and err.count("\n") == 1
    assert "a store of format 9, expected format 1 or 2" in run("merge", out, a, other)[2]
    assert not out.exists()


def test_what_a_store_holds_besides_comes_along(tmp_path):
    """A sweep that was extended in one of its directories has a specification in common with the others."""
    a, b = swept(tmp_path / "a", shard=(0, 2)), swept(tmp_path / "b", shard=(1, 2))
    experiments.sweep(one(n_samples=20, seeds=6), b, workers=0)
    assert experiments.merge(tmp_path / "out", [a, b]).runs == 6
    assert len(store.load_specs(tmp_path / "out")) == 2


# What docs/large-sweeps.md says


def of_the_page(heading, language):
    """The blocks of a section in a language."""
    page = (ROOT.parent / "docs" / "large-sweeps.md").read_text(encoding="utf-8")
    (section,) = re.findall(rf"^## {heading}\n(.*?)(?=^## |\Z)", page, re.MULTILINE | re.DOTALL)
    return re.findall(rf"^```{language}\n(.*?)^```$", section, re.MULTILINE | re.DOTALL)


def test_the_commands_of_the_page_run(tmp_path, run, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(scheduler, "own_executor", lambda workers, n: scheduler.Here())
    write(tmp_path, of_the_page("Shards", "toml")[0], "locks.toml")
    for block in of_the_page("Shards", "sh") + of_the_page("Seeing a sweep", "sh"):
        for line in block.splitlines():
            program, *arguments = shlex.split(line, comments=True)
            assert program == "dmq-fast" and run(*arguments)[0] == 0, line
    assert experiments.status("locks").counts == {"runs": 24, "done": 24, "failed": 0, "waiting": 0}


@pytest.mark.slow
def test_the_job_array_of_the_page_runs(tmp_path, run, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write(tmp_path, of_the_page("Shards", "toml")[0], "locks.toml")
    script = write(tmp_path, of_the_page("Slurm", "bash")[0], "locks.sbatch")
    shim = write(tmp_path, f'#!/bin/sh\nexec "{sys.executable}" -P -m dmq_fast "$@"\n', "dmq-fast")
    shim.chmod(0o755)
    base = environment_of_tests() | {"PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}"}
    tasks = []
    for task in (4, 5):  # of --array=4-5
        array = {"ID": task, "COUNT": 2, "MIN": 4, "MAX": 5, "STEP": 1}
        slurm = {f"SLURM_ARRAY_TASK_{name}": str(value) for name, value in array.items()}
        env = base | slurm | {"SLURM_CPUS_PER_TASK": "1"}
        tasks.append(subprocess.Popen(["bash", str(script)], env=env, stdout=subprocess.DEVNULL))
    assert [task.wait(timeout=60) for task in tasks] == [0, 0]
    assert run("merge", "locks", "parts/4", "parts/5")[0] == 0
    assert experiments.status("locks").counts["done"] == 24


def test_missing_shards_and_several_versions_are_told(tmp_path, run):
    path = write(tmp_path)  # 36 runs
    parts = [tmp_path / f"part {i}" for i in range(3)]
    for i, part in enumerate(parts):
        experiments.sweep(path, part, shard=(i, 3), workers=0)
    out = tmp_path / "all"
    code, stdout, err = run("merge", out, parts[0], parts[2])
    assert (code, err) == (1, "") and "12 runs missing: a sweep of the specification into" in stdout
    assert experiments.merge(out, parts).missing == 0
    with contextlib.closing(sqlite3.connect(parts[1] / store.FILE)) as connection, connection:
        connection.execute("UPDATE runs SET version = '0.1.0'")
    said = f"the runs are of several versions: 12 of dmq_fast 0.1.0, 24 of dmq_fast {build()}"
    code, _, err = run("merge", tmp_path / "mixed", *parts)
    assert (code, err) == (0, f"warning: {said}\n")
    assert experiments.merge(tmp_path / "mixed", parts).warnings == (said,)
    assert said in run("status", tmp_path / "mixed")[1]
    assert experiments.status(out).notes == ()


def test_what_cannot_be_read_here_is_told_by_a_merge(tmp_path, monkeypatch):
    (tmp_path / "elsewhere.py").write_text(
        "import dmq_fast as dmq\ndef make(): return dmq.environments.chain(3, rng=0)\n"
    )
    spec = {"environments": [{"name": "elsewhere:make"}], "algorithms": [{"name": "dmq", "n_samples": 3}], "seeds": 2}
    with monkeypatch.context() as here:
        here.syspath_prepend(tmp_path)
        experiments.sweep(spec, tmp_path / "part", shard=(0, 2), workers=0)
    monkeypatch.delitem(sys.modules, "elsewhere")
    spec_module.environment_parameters.cache_clear()
    merged = experiments.merge(tmp_path / "all", [tmp_path / "part"])
    assert merged.runs == 1 and "it is not known which runs of sweep are missing" in merged.warnings[0]
