"""Files that commands and results write: links, devices, pipes, modes, long names; and the file of a store."""

import os
import shutil
import stat
import threading

import pytest
from sweeping import one

import dmq_fast as dmq
from dmq_fast import experiments
from dmq_fast._support.files import replacing
from dmq_fast.experiments.sweeps.store import FILE, Store

LONG = "x" * 240


@pytest.fixture(scope="module")
def stored(tmp_path_factory):
    """Return the directory of a sweep."""
    directory = tmp_path_factory.mktemp("swept")
    experiments.sweep(one(n_samples=5, seeds=3), directory, workers=0)
    return directory


@pytest.fixture(scope="module")
def result():
    """Return the result of a run."""
    return dmq.DMQ(dmq.environments.chain(3, rng=0), n_samples=3, rng=0).learn()


def writers(run, stored, result):
    """Return ways to write a file, with the end of its name."""
    return {
        ".csv": lambda path: run("report", stored, "--export", path),
        ".html": lambda path: run("report", stored, "--out", path),
        ".json": lambda path: run("bench", "oracle", "--d", 4, "--n", 1, "--json", path),
        ".npz": lambda path: (0, result.save(path)),
    }


@pytest.mark.parametrize("end", [".csv", ".html", ".json", ".npz"])
def test_links_stay_and_modes_too(run, stored, result, tmp_path, end):
    write = writers(run, stored, result)[end]
    (tmp_path / "there").mkdir()
    link, dangling, target = tmp_path / f"link{end}", tmp_path / f"dangling{end}", tmp_path / "there" / f"a{end}"
    target.write_text("old")
    target.chmod(0o660)
    link.symlink_to(target)
    dangling.symlink_to(tmp_path / "there" / f"new{end}")
    for path in (link, dangling):
        assert write(path)[0] == 0
        assert path.is_symlink() and path.stat().st_size > 3
    assert stat.S_IMODE(target.stat().st_mode) == 0o660
    assert {path.name for path in (tmp_path / "there").iterdir()} == {target.name, f"new{end}"}
    assert write(tmp_path / f"{LONG}{end}")[0] == 0 and (tmp_path / f"{LONG}{end}").stat().st_size > 3


@pytest.mark.parametrize("end", [".csv", ".html", ".json", ".npz"])
def test_a_pipe_is_written_to_and_stays_one(run, stored, result, tmp_path, end):
    path, got = tmp_path / f"pipe{end}", []
    os.mkfifo(path)
    reader = threading.Thread(target=lambda: got.append(path.read_bytes()), daemon=True)
    reader.start()
    assert writers(run, stored, result)[end](path)[0] == 0
    reader.join(60)
    assert len(got[0]) > 100 and stat.S_ISFIFO(path.stat().st_mode)


def test_a_device_stays_one(run, stored, tmp_path):
    null = tmp_path / "null.csv"
    null.symlink_to(os.devnull)
    assert run("report", stored, "--export", null)[0] == 0
    assert run("report", stored, "--out", os.devnull)[0] == 0
    assert null.is_symlink() and stat.S_ISCHR(os.stat(os.devnull).st_mode)


def test_nothing_reaches_a_pipe_if_the_writing_fails(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(ZeroDivisionError), replacing(tmp_path / "pipe") as file:  # opens nothing, or it would wait
        file.write(b"half")
        raise ZeroDivisionError


@pytest.mark.parametrize(
    "command", ["report STORED --export {}.csv", "report STORED --out {}", "sweep SPEC --out new --export {}.csv",
                "sweep SPEC --out new --export new/{}.csv", "bench oracle --d 4 --n 1 --json {}"]
)  # fmt: skip
def test_names_that_are_too_long_are_refused_before_the_work(run, stored, tmp_path, monkeypatch, command):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(experiments, "sweep", None)
    monkeypatch.setattr("dmq_fast.experiments.oracle_bench.measure", None)
    words = command.replace("STORED", str(stored)).format("y" * 256).split()
    code, _, err = run(*words)
    assert code == 2 and "File name too long" in err
    assert list(tmp_path.iterdir()) == []


def test_links_that_lead_nowhere_are_named_before_the_work(run, stored, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("link", "link.csv"):
        (tmp_path / name).symlink_to("nowhere/x")
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / FILE).symlink_to(tmp_path / "nowhere" / FILE)
    (tmp_path / "SPEC").write_text(
        '[[environments]]\nname = "lock"\nhorizon = 3\n[[algorithms]]\nname = "dmq"\nn_samples = 5\n'
    )
    for command, message in {
        f"report {stored} --export link.csv": "link.csv leads",
        f"report {stored} --out link/page.html": "there is no directory",
        f"report {stored} --figures link": "link is a link to nowhere/x, which is not there",
        "run lock --horizon 3 --n-samples 2 --out link": "link is a link to nowhere/x, which is not there",
        "sweep SPEC --out link --workers 0": "link is a link to nowhere/x, which is not there",
        "sweep SPEC --out out --workers 0": "is a link to",
    }.items():
        code, _, err = run(*command.split())
        assert (code, message in err) == (2, True), err
    assert not (tmp_path / "nowhere").exists()


def test_a_store_may_be_a_link_to_one_that_is_to_be_made(tmp_path):
    (tmp_path / "disk").mkdir()
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / FILE).symlink_to(tmp_path / "disk" / FILE)
    assert experiments.sweep(one(n_samples=5, seeds=2), tmp_path / "out", workers=0).ran == 2
    assert len(experiments.load(tmp_path / "out")) == 2 and (tmp_path / "out" / FILE).is_symlink()


def test_names_of_figures_are_not_longer_than_a_file_system_takes(run, tmp_path, monkeypatch):
    name = "a" * 300
    (tmp_path / "long.py").write_text(
        f"import dmq_fast as dmq\ndef {name}(horizon): return dmq.environments.chain(horizon, rng=0)\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    spec = {
        "environments": [{"name": f"long:{name}", "horizon": [3, 4]}],
        "algorithms": [{"name": "dmq", "n_samples": 5}],
    }
    experiments.sweep(spec, tmp_path / "out", workers=0)
    code, out, err = run("report", tmp_path / "out", "--figures", tmp_path / "figures", "--format", "svg")
    assert code == 0, err
    assert len(set(out.split())) > 1


def test_the_file_of_a_store_has_all_that_was_promised(stored, tmp_path):
    rows = experiments.load(stored)
    with Store(tmp_path / "store") as store:
        for i, row in enumerate(rows):
            store.add([row | {"seconds": 2.0}])
            copy = tmp_path / f"copy-{i}"
            copy.mkdir()
            shutil.copy(tmp_path / "store" / FILE, copy)  # without the write-ahead log
            assert len(experiments.load(copy)) == i + 1
        store.add([row | {"seconds": 0.001, "seed": 7}])  # may wait for the next second
        store.note(experiments.read(one()))
        shutil.copy(tmp_path / "store" / FILE, copy)
        assert len(experiments.load(copy)) == len(rows) + 1
