"""Builds of one version: told apart where their sources differ, in stores, in journals and between processes."""

import re
from pathlib import Path

import pytest

import dmq_fast as dmq
from dmq_fast import experiments
from dmq_fast.kernels._sources import DIGEST
from dmq_fast.kernels.build import build, digest_of, number_of

SPEC = {"seeds": 2, "environments": [{"name": "lock", "horizon": 3}], "algorithms": [{"name": "dmq", "n_samples": 5}]}
OTHER = f"{dmq.__version__}+0a1b2c3d"


def other_build(monkeypatch, *modules):
    """From now on these modules are of another build."""
    for module in modules:
        monkeypatch.setattr(f"dmq_fast.{module}.build", lambda: OTHER)


def test_a_digest_is_that_of_all_sources(tmp_path):
    def tree(name, files):
        for place, text in files.items():
            path = tmp_path / name / place
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(text)
        return digest_of(tmp_path / name, "compiled")

    first = tree("first", {"a.py": b"x = 1\n", "b/c.py": b"y = 2\n"})
    assert first == tree("same", {"b/c.py": b"y = 2\r\n", "a.py": b"x = 1\n", "notes.txt": b"no source"})
    others = [
        tree("text", {"a.py": b"x = 2\n", "b/c.py": b"y = 2\n"}),
        tree("name", {"a.py": b"x = 1\n", "b/d.py": b"y = 2\n"}),
        tree("less", {"a.py": b"x = 1\n"}),
        digest_of(tmp_path / "first", "compiled of others"),
    ]
    assert len({first, *others}) == 5 and all(re.fullmatch("[0-9a-f]{8}", one) for one in (first, *others))
    assert re.fullmatch("[0-9a-f]{64}", DIGEST)
    assert build() == f"{dmq.__version__}+{digest_of(Path(dmq.__file__).parent, DIGEST)}"
    assert number_of(build()) == dmq.__version__


def test_stores_tell_the_builds_of_their_runs_apart(tmp_path, monkeypatch):
    with monkeypatch.context() as patched:
        other_build(patched, "experiments.sweeps.runs", "experiments.sweeps.scheduler")
        experiments.sweep(SPEC, tmp_path / "a", workers=0, shard=(0, 2))
    summary = experiments.sweep(SPEC, tmp_path / "a", workers=0)
    assert summary.warnings == (f"some of the runs stored in {tmp_path / 'a'} are of dmq_fast {OTHER}",)
    assert {row["version"] for row in experiments.load(tmp_path / "a")} == {build(), OTHER}
    merged = experiments.merge(tmp_path / "b", [tmp_path / "a"])
    assert any(OTHER in warning and build() in warning for warning in merged.warnings)


def test_a_worker_of_another_build_is_refused(monkeypatch, tmp_path):
    other_build(monkeypatch, "experiments.sweeps.scheduler")
    with pytest.raises(Exception, match=re.escape(f"expected dmq_fast {OTHER}, got {build()}")):
        experiments.sweep(SPEC, tmp_path, workers=1)


def test_a_journal_tells_of_a_run_that_another_build_began(tmp_path, monkeypatch):
    learner = dmq.DMQ(dmq.environments.chain(4, rng=0), n_samples=5, rng=0)
    with monkeypatch.context() as patched:
        other_build(patched, "engine.journal")
        learner.learn(journal=tmp_path / "journal", max_trajectories=60)
    told, undisturbed = learner.learn(journal=tmp_path / "journal"), learner.learn()
    assert told.theta.tobytes() == undisturbed.theta.tobytes()
    (added,) = set(told.warnings) - set(undisturbed.warnings)
    assert added.endswith(f"begun by dmq_fast {OTHER}, resumed by {build()}")
