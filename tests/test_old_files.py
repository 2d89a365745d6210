"""Files of version 0.2.0, as it wrote them: results, journals, and the cells and commands that belong to them.

There both learners were `DMQ`: with ``epsilon=0.5, strict=False`` and with ``n_samples=5, memo=True``, on a small lock.
"""

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

import dmq_fast as dmq
from dmq_fast import experiments
from dmq_fast.cli.files import Command, read_command
from dmq_fast.engine.journal import JournalError

OLD = Path(__file__).parent / "old"
LOCK = dmq.environments.combination_lock(horizon=2, n_actions=2, rng=0)
LEARNERS = {
    "dmq": lambda: dmq.DMQ(LOCK, n_samples=5, variant=replace(dmq.VARIANTS["sound"], memo=True)),
    "self-stopping": lambda: dmq.SelfStopping(LOCK, epsilon=0.5, mode="quick"),
}


def test_a_result_is_that_of_the_same_run_now_and_its_journal_goes_on(tmp_path):
    old = dmq.load(OLD / "dmq.npz")
    shutil.copy(OLD / "dmq.journal", tmp_path / "journal")  # of a run that a budget ended
    now = LEARNERS["dmq"]().learn(journal=tmp_path / "journal")
    assert type(old) is type(now)
    for field in ("policy", "status", "counts", "key", "warnings", "history", "cover"):
        assert getattr(old, field) == getattr(now, field), field
    assert old.theta.tobytes() == now.theta.tobytes()
    # "finished" there; the variant had the name of that from which the options came.
    assert (old.status, old.variant, now.variant) == ("ended", "sound", "custom")
    assert old.options == now.options | {"hindsight": False}


def test_a_self_stopping_run_is_read_and_shown_and_its_journal_is_of_another_algorithm(tmp_path):
    old = dmq.load(OLD / "self-stopping.npz")
    assert (old.status, old.mode, old.epsilon) == ("finished", "quick", 0.5)
    assert len(old.stopping["largest_v"]) == len(old.stopping["upsides"]) == 2
    shutil.copy(OLD / "self-stopping.journal", tmp_path / "journal")
    with pytest.raises(JournalError, match=r"algorithm_version is None there and 2 here; .* another path"):
        LEARNERS["self-stopping"]().learn(journal=tmp_path / "journal")


def test_a_journal_has_no_record_where_a_remembered_answer_is_certain(tmp_path):
    lock = dmq.environments.combination_lock(horizon=4, n_actions=2, rng=0)
    learner = dmq.DMQ(lock, n_samples=5, variant="frugal", rng=1)
    shutil.copy(OLD / "frugal.journal", tmp_path / "journal")
    resumed, undisturbed = learner.learn(journal=tmp_path / "journal"), learner.learn()
    assert resumed.theta.tobytes() == undisturbed.theta.tobytes()
    assert (resumed.history, resumed.counts) == (undisturbed.history, undisturbed.counts)


def test_a_saved_run_is_resumed_by_the_command_of_its_learner(run, tmp_path):
    def saved(arguments):
        command = {"format": 1, "dmq_fast": "0.2.0", "environment": "lock", "arguments": arguments.split()}
        (tmp_path / "command.json").write_text(json.dumps(command))
        return read_command(tmp_path)

    lock = "--horizon 2 --n-actions 2"
    for arguments, found in {
        f"{lock} --n-samples 5 --no-hindsight": ("run", f"{lock} --n-samples 5"),
        f"{lock} --variant adaptive": ("learn", lock),
        f"--variant=adaptive {lock}": ("learn", lock),
        f"{lock} --p-min=0.1 --strict": ("learn", f"{lock} --p-min=0.1 --mode strict"),
        f"{lock} --epsilon 0.5 --no-strict --max-trajectories 10": (
            "learn",
            f"{lock} --epsilon 0.5 --mode quick --max-trajectories 10",
        ),
    }.items():
        assert saved(arguments) == Command(found[0], "lock", found[1].split(), None)


def test_cells_of_a_sweep_keep_their_names():
    def ids(*algorithms):
        lock = {"name": "lock", "horizon": 2, "n_actions": 2}
        return [cell.id for cell in experiments.read({"environments": [lock], "algorithms": algorithms}).cells]

    assert ids({"name": "dmq", "n_samples": 5}) == ["43b16b4681fd08138209"]
    stopping = {"name": "self-stopping", "epsilon": 0.5}
    for by_level in (False, "no"):
        found = ids(stopping | {"mode": "quick", "homogeneous": by_level}, stopping | {"homogeneous": by_level})
        assert found == ["65a4442df233b33554fe", "61d1adce05ae43a571c0"]
    # Levels that share their data give other runs than those of 0.2.0.
    (shared,) = ids(stopping)
    assert [shared] == ids(stopping | {"homogeneous": "auto"}) != ["61d1adce05ae43a571c0"]


def test_a_summary_in_original_units_is_shown_and_has_a_page(run, tmp_path):
    """It has values in [0, 1], those of the rewards before they were shifted and scaled, and no uniform play."""
    assert run("run", "chain", "--horizon", 4, "--n-samples", 5, "--out", tmp_path)[0] == 0
    summary = json.loads((tmp_path / "run.json").read_text())
    for name in ("uniform_value", "uniform_value_trajectories", "score", "rewards"):
        del summary[name]
    summary |= {"original_value": 2.0, "original_value_standard_error": None, "original_optimal_value": 2.1}
    (tmp_path / "run.json").write_text(json.dumps(summary))
    code, out, _ = run("resume", tmp_path)
    assert code == 0 and "value / optimum" in out and "score" not in out and "uniform" not in out
    assert run("report", tmp_path)[0] == 0
