"""What has become of the runs of a sweep: `status`, ``dmq-fast status``, and what a sweep prints and would do."""

import json
import os
import re

import pytest
from sweeping import SPEC, altered, one, write

from dmq_fast import experiments
from dmq_fast.experiments.sweeps import store


def failing(**more):
    data = one("obstinate:failing", kind="raise", seeds=4, environment={"name": "chain", "horizon": [3, 4]})
    data["algorithms"][0] |= {"seeds": [[1, 3]]}
    return data | {"name": "mine"} | more


def test_every_run_is_counted_once(tmp_path):
    assert experiments.status(tmp_path, failing()).counts == {"runs": 8, "done": 0, "failed": 0, "waiting": 8}
    assert list(tmp_path.iterdir()) == []
    experiments.sweep(failing(seeds=2), tmp_path, workers=0)
    found = experiments.status(tmp_path, failing())
    assert found.counts == {"runs": 8, "done": 2, "failed": 2, "waiting": 4}
    assert [cell.environment_parameters["horizon"] for cell in found.cells] == [3, 4]
    for cell in found.cells:
        assert (cell.done, cell.failed, cell.waiting) == (1, 1, 2)
    assert [(row["seed"], row["status"]) for row in found.failures] == [(1, "failed")] * 2
    # The directory has seen the first seeds only.
    assert experiments.status(tmp_path).counts == {"runs": 4, "done": 2, "failed": 2, "waiting": 0}
    with pytest.raises(FileNotFoundError, match="holds no sweep"):
        experiments.status(tmp_path / "none")
    with pytest.raises(ValueError, match="shard: expected with a specification only"):
        experiments.status(tmp_path, shard=(0, 2))


def test_a_directory_of_a_shard_waits_for_no_other_runs_until_it_is_merged(tmp_path):
    parts = [tmp_path / str(i) for i in range(2)]
    for i, part in enumerate(parts):
        experiments.sweep(one(n_samples=20, seeds=5), part, shard=(i, 2), workers=0)
        altered(part, "DELETE FROM runs WHERE seed = (SELECT max(seed) FROM runs)")
        counts = experiments.status(part).counts
        assert counts["waiting"] == 1 and counts["runs"] == [3, 2][i]
        assert experiments.status(part, one(n_samples=20, seeds=5), shard=(i, 2)).counts == counts
    experiments.merge(parts[0], parts[1:])
    assert experiments.status(parts[0]).counts == {"runs": 5, "done": 3, "failed": 0, "waiting": 2}


def test_a_store_of_before_and_a_specification_that_cannot_be_read(tmp_path, monkeypatch):
    experiments.sweep(failing(seeds=2), tmp_path, workers=0)
    altered(tmp_path, "DROP TABLE shards")
    assert experiments.status(tmp_path).counts["runs"] == 4
    altered(tmp_path, "UPDATE specs SET text = replace(text, 'obstinate:failing', 'no_such_module:failing')")
    found = experiments.status(tmp_path)
    assert found.counts == {"runs": 4, "done": 2, "failed": 2, "waiting": 0}
    assert re.search("of the 4 runs of mine only those that are stored are counted: .*no_such_module", found.notes[0])
    assert [cell.environment_parameters for cell in found.cells] == [
        row["environment_parameters"] for row in experiments.load(tmp_path) if row["seed"] == 0
    ]
    # A sweep still opens it.
    assert experiments.sweep(failing(seeds=2), tmp_path, workers=0).ran == 0


def test_the_command_lists_cells_and_failures(tmp_path, run):
    experiments.sweep(failing(), tmp_path, workers=0)
    code, out, err = run("status", tmp_path)
    assert (code, err) == (0, "")
    lines = out.splitlines()
    assert lines[0].split() == "environment horizon algorithm runs done failed waiting".split()
    assert [line.split() for line in lines[1:3]] == [
        ["chain", horizon, "obstinate:failing", "4", "2", "2", "0"] for horizon in "34"
    ]
    assert lines[4] == "mine: 8 runs, 4 done, 4 failed, 0 waiting"
    at = lines.index("4 x ZeroDivisionError: of the user's making")
    assert lines[at + 1 : at + 3] == [f"    chain horizon={horizon}, obstinate:failing: seeds 1, 3" for horizon in "34"]
    assert lines[at + 3] == "        Traceback (most recent call last):"
    assert lines[-1] == "        ZeroDivisionError: of the user's making"
    found = json.loads(run("status", tmp_path, "--json")[1])
    assert [failure["seed"] for failure in found["failures"]] == [1, 3, 1, 3]
    assert all("in fail" in failure["traceback"] for failure in found["failures"])
    code, out, err = run("status", tmp_path / "none")
    assert (code, out) == (2, "") and err.startswith("dmq-fast status: ") and err.count("\n") == 1


def test_a_sweep_prints_seeds_and_tracebacks_of_its_failures(tmp_path, run):
    text = 'seeds = 13\n[[environments]]\nname = "chain"\nhorizon = 3\n[[algorithms]]\nname = "obstinate:failing"\n'
    path = write(tmp_path, text + f'kind = "raise"\nseeds = [{list(range(12))}]\n')
    code, out, _ = run("sweep", path, "--out", tmp_path / "out", "--workers", 0)
    assert code == 1
    assert "12 x ZeroDivisionError: of the user's making\n" in out
    assert "    chain, obstinate:failing: seeds 0, 1, 2, 3, 4, 5, 6, 7, 8, 9 and 2 more\n        Traceback " in out
    found = json.loads(run("sweep", path, "--out", tmp_path / "out", "--json")[1])
    assert [failure["seed"] for failure in found["failures"]] == list(range(12))


def test_a_dry_run_does_nothing(tmp_path, run):
    path, out = write(tmp_path, SPEC), tmp_path / "out"
    code, stdout, _ = run("sweep", path, "--out", out, "--dry-run")
    assert code == 0 and not out.exists()
    assert "small: 36 runs, 0 done, 0 failed, 36 waiting" in stdout
    assert len(stdout.splitlines()) == 12 + 3
    assert "18 runs" in run("sweep", path, "--out", out, "--dry-run", "--shard", "0/2")[1]
    experiments.sweep(path, out, shard=(0, 3), workers=0)
    before = os.stat(out / store.FILE).st_mtime_ns
    found = json.loads(run("sweep", path, "--out", out, "--dry-run", "--json")[1])
    assert (found["runs"], found["done"], found["waiting"]) == (36, 12, 24)
    assert os.stat(out / store.FILE).st_mtime_ns == before
    code, stdout, err = run("sweep", write(tmp_path, "seds = 3", "b.toml"), "--out", out, "--dry-run")
    assert (code, stdout) == (2, "") and "b.toml: seds" in err
    wrong = write(tmp_path, SPEC.replace("n_samples = [\n    20", "n_samples = [\n    0"), "c.toml")
    code, stdout, err = run("sweep", wrong, "--out", out, "--dry-run")
    assert (code, stdout) == (2, "") and "n_samples[0]: expected an integer >= 1, got 0" in err
