"""Results and their files: a saved result is read back equal, and a failed save leaves the earlier file as it was."""

import copy
import itertools
import json
import os
import signal
import subprocess
import sys
import time
import zipfile
from collections.abc import Sequence

import numpy as np
import pytest

import dmq_fast as dmq
from dmq_fast.baselines import REGISTRY, TablePolicy
from dmq_fast.environments import chain, combination_lock, lock_bernoulli
from dmq_fast.results.result import COMPLETE


@pytest.fixture(scope="module", params=["sound", "paper"])
def result(request):
    return dmq.DMQ(chain(6, rng=0), variant=request.param, n_samples=30, rng=0).learn()


def test_a_saved_result_comes_back(result, tmp_path):
    result.save(tmp_path / "run.npz")
    back = dmq.load(str(tmp_path / "run.npz"))
    for name in ("status", "variant", "options", "parameters", "counts", "seconds", "key", "warnings"):
        assert getattr(back, name) == getattr(result, name)
    assert back.theta.tobytes() == result.theta.tobytes()
    assert back.policy == result.policy
    assert back.cover == result.cover
    assert back.history == result.history


BASELINES = {
    "estimates of features": ("rlsvi", chain(4, rng=0), dmq.Policy),
    "a table that is linear in features": ("ucb-q", chain(4, rng=0), dmq.Policy),
    "a table of states": ("ucb-q", lock_bernoulli(4, 0.1, rng=0, observation="coins"), TablePolicy),
}


@pytest.mark.parametrize("name", BASELINES)
def test_the_result_of_a_baseline_comes_back(tmp_path, name):
    algorithm, env, kind = BASELINES[name]
    result = REGISTRY[algorithm](env, n_episodes=50, rng=0).learn()
    result.save(tmp_path / "run.npz")
    back = dmq.load(tmp_path / "run.npz")
    assert type(back) is dmq.BaselineResult and isinstance(back.policy, kind) and back.policy == result.policy
    for field in ("algorithm", "status", "parameters", "counts", "seconds", "key", "warnings", "value", "trajectories"):
        assert getattr(back, field) == getattr(result, field), field
    for mine, theirs in zip(result.curve, back.curve, strict=True):
        assert mine.tobytes() == theirs.tobytes() and mine.dtype == theirs.dtype
    assert back.returns.tobytes() == result.returns.tobytes()
    assert (back.theta is None, back.table is None) == (result.theta is None, result.table is None)
    for mine, theirs in zip(result.table or [result.theta], back.table or [back.theta], strict=True):
        np.testing.assert_array_equal(mine, theirs)
    for change in ({"curve": np.zeros((3, 5))}, {"returns": None}, {"header": {"algorithm": 3}}):
        rewrite(tmp_path / "run.npz", tmp_path / "bad.npz", **change)
        with pytest.raises(dmq.FileError, match="damaged"):
            dmq.load(tmp_path / "bad.npz")


def test_results_of_all_learners_have_one_base():
    env = chain(3, rng=0)
    for result in (
        dmq.DMQ(env, n_samples=5, rng=0).learn(),
        dmq.learn(env, epsilon=0.3, rng=0),
        REGISTRY["rlsvi"](env, n_episodes=20, rng=0).learn(),
    ):
        assert isinstance(result, dmq.Result) and result.name in repr(result) and result.status in repr(result)
        assert result.n_trajectories == sum(result.trajectories.values()) >= 5
        assert len(result.key) == 2 and result.seconds["total"] >= 0 and result.warnings == tuple(result.warnings)
        with pytest.raises(ValueError, match=f"what: expected one of {', '.join(result.PICTURES)}, got 'covers'"):
            result.plot("covers")
        assert result.status in COMPLETE


@pytest.mark.parametrize(("error", "status"), [(KeyboardInterrupt, "interrupted"), (OSError, "failed")])
def test_a_run_that_an_exception_ends_says_what_it_was(error, status):
    def stop(progress):
        raise error

    env = chain(4, rng=0)
    for learner in (dmq.DMQ(env, n_samples=5, rng=0), dmq.SelfStopping(env, epsilon=0.3, rng=0)):
        running = []
        learner.learn(progress=lambda _, learner=learner, running=running: running.append(learner.result().status))
        assert set(running) == {"running"}
        with pytest.raises(error):
            learner.learn(progress=stop)
        assert learner.result().status == status


def test_a_result_cut_short_comes_back(tmp_path):
    result = dmq.DMQ(combination_lock(6, rng=0), n_samples=10, rng=0).learn(max_trajectories=120)
    assert result.status == "max_trajectories"
    result.save(tmp_path / "run.npz")
    back = dmq.load(tmp_path / "run.npz")
    assert back.policy == result.policy
    assert back.history == result.history


def test_a_result_without_oracle_calls_comes_back(tmp_path):
    env = combination_lock(1, rng=0)
    result = dmq.DMQ(env, variant="paper", rng=0).learn()
    assert len(result.history) == 0
    result.save(tmp_path / "run.npz")
    assert list(dmq.load(tmp_path / "run.npz").history) == []


def test_history_is_a_sequence(result):
    history = result.history
    calls = list(history)
    assert len(calls) == len(history) > 0
    assert history[0] == pytest.approx(calls[0], nan_ok=True)
    assert history[-1] == pytest.approx(calls[-1], nan_ok=True)
    assert history[2:9:3] == [history[2], history[5], history[8]] or np.isnan(history[2].value)
    assert len(history[-4:]) == 4 and isinstance(history, Sequence)
    with pytest.raises(IndexError):
        history[len(history)]


def test_levels_of_a_batch_descend_to_the_first_true(result):
    calls = list(result.history)
    for before, after in itertools.pairwise(calls):
        if before.call == after.call:
            assert after.level == before.level - 1


def test_files_hold_no_pickles(result, tmp_path):
    result.save(tmp_path / "run.npz")
    with np.load(tmp_path / "run.npz", allow_pickle=False) as archive:
        assert all(archive[name].dtype != object for name in archive.files)
        assert json.loads(archive["header"].item())["format"] == 1


def test_results_compare_by_identity(result):
    assert result == result
    assert result != copy.copy(result)
    assert hash(result) == hash(result)


def test_a_saved_file_has_the_usual_permissions_and_links_stay(result, tmp_path):
    plain, link = tmp_path / "plain", tmp_path / "link.npz"
    plain.touch()
    link.symlink_to(tmp_path / "run.npz")
    result.save(link)
    assert link.is_symlink()
    assert (tmp_path / "run.npz").stat().st_mode == plain.stat().st_mode


def rewrite(source, target, **changes):
    with np.load(source) as archive:
        arrays = {name: archive[name] for name in archive.files}
    header = json.loads(arrays["header"].item())
    header.update(changes.pop("header", {}))
    arrays["header"] = np.array(json.dumps(header))
    arrays |= changes
    np.savez(target, **{name: array for name, array in arrays.items() if array is not None})


def test_damaged_and_foreign_files_are_refused_with_their_path(result, tmp_path):
    good, bad, array = tmp_path / "good.npz", tmp_path / "bad.npz", tmp_path / "array.npy"
    result.save(good)
    np.save(array, np.zeros(3))

    def refused(words):
        with pytest.raises(dmq.FileError, match=words) as caught:
            dmq.load(bad)
        assert str(bad) in str(caught.value)

    contents = good.read_bytes()
    cut = [contents[:size] for size in (0, 1, 10, len(contents) // 2, len(contents) - 1)]
    for foreign in (*cut, b"hello world, this is no archive", array.read_bytes()):
        bad.write_bytes(foreign)
        refused("damaged")
    for arrays in ({"theta": np.zeros(3)}, {"header": np.array([{}], dtype=object)}):
        np.savez(bad, **arrays)
        refused("damaged")
    with np.load(good) as archive:
        whole = dict(archive)
    changes = [{name: None} for name in ("cover", "theta", "rule_codes", "history_level")]
    changes += [{name: np.full_like(whole[name], -1)} for name in ("cover", "cover_sizes")]
    changes += [
        {"cover": np.full_like(whole["cover"], 10**6)},
        {"cover_sizes": whole["cover_sizes"] + 1},
        {"policy": whole["policy"][:, 1:]},
        {"theta": whole["theta"][0]},
        {"rule_weights": whole["rule_weights"][..., 1:]},
        {"rule_codes": whole["rule_codes"] - 10**6},
        {"history_level": whole["history_level"].astype(float)},
        {"history_decision": whole["history_decision"][1:]},
    ]
    headers = [{"status": 5}, {"warnings": "abc"}, {"key": ["x", "y"]}, {"counts": []}, {"counts": {}}, {"seconds": {}}]
    headers += [{"counts": {**result.counts, "trues": "2"}}, {"warnings": [5]}, {"function_class": {}}]
    headers += [{"parameters": {**result.parameters, "eps_t": None}}, {"key": ["0x1", "-0x1"]}]
    for change in (*changes, *({"header": header} for header in headers)):
        rewrite(good, bad, **change)
        refused("damaged")
    for name, entry in itertools.product(("call", "target", "action", "member", "level"), (-2, 10**6)):
        if (name, entry) != ("call", 10**6):
            column = whole[f"history_{name}"].copy()
            column[0] = entry
            rewrite(good, bad, **{f"history_{name}": column})
            refused(f"damaged .*history_{name}: expected entries in")
    with zipfile.ZipFile(bad, "a") as archive:
        archive.writestr("extra.npy", b"not an array of NumPy")
    refused("damaged")
    rewrite(good, bad, header={"format": 9, "dmq_fast": "9.9"})
    refused("written in format 9 by dmq_fast 9.9")


def test_the_promise_of_a_run_that_stops_is_read_as_it_was_written(tmp_path):
    good, bad = tmp_path / "good.npz", tmp_path / "bad.npz"
    dmq.SelfStopping(chain(3, rng=0), epsilon=0.5, delta=0.5, rng=0).learn().save(good)
    stopping = dmq.load(good).stopping
    assert stopping["mean_return"] is not None
    for change in ({"interval": [0.0]}, {"reason": None}, {"upsides": [0.0]}, {"largest_v": None}, {"p_min": "1"}):
        rewrite(good, bad, header={"stopping": stopping | change})
        with pytest.raises(dmq.FileError, match=rf"damaged .*stopping\.{next(iter(change))}.*: expected"):
            dmq.load(bad)


@pytest.mark.parametrize("step", [101, pytest.param(3, marks=pytest.mark.slow)])
def test_a_flipped_bit_is_noticed_or_harmless(result, tmp_path, step):
    good, bad = tmp_path / "good.npz", tmp_path / "bad.npz"
    result.save(good)
    contents = good.read_bytes()
    noticed, positions = 0, range(0, len(contents), step)
    for position in positions:
        flipped = bytearray(contents)
        flipped[position] ^= 0x40
        bad.write_bytes(flipped)
        try:
            back = dmq.load(bad)
        except dmq.FileError:
            noticed += 1
        else:
            # Times and attributes of the archive's entries carry nothing.
            assert back.theta.tobytes() == result.theta.tobytes()
            assert back.history == result.history
            assert back.cover == result.cover
            assert back.counts == result.counts
    assert noticed > len(positions) // 2


def test_a_missing_file_is_missing(tmp_path):
    with pytest.raises(FileNotFoundError):
        dmq.load(tmp_path / "nothing.npz")


def test_a_failing_save_leaves_the_old_file_and_no_litter(result, tmp_path, monkeypatch):
    path = tmp_path / "run.npz"
    result.save(path)
    before = path.read_bytes()

    def full(file, **arrays):
        file.write(b"some of it")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(np, "savez_compressed", full)
    with pytest.raises(OSError, match="No space left"):
        result.save(path)
    assert path.read_bytes() == before
    assert os.listdir(tmp_path) == ["run.npz"]


def test_saving_into_a_missing_directory_says_so(result, tmp_path):
    with pytest.raises(FileNotFoundError) as caught:
        result.save(tmp_path / "no" / "run.npz")
    assert caught.value.filename == str(tmp_path / "no" / "run.npz")


SAVE_FOREVER = """
import sys
import dmq_fast as dmq
result = dmq.load(sys.argv[1])
print("ready", flush=True)
while True:
    result.save(sys.argv[1])
"""


@pytest.mark.parametrize("attempts", [1, pytest.param(3, marks=pytest.mark.slow)])
def test_a_kill_while_saving_leaves_a_whole_file(result, tmp_path, attempts):
    path = tmp_path / "run.npz"
    result.save(path)
    for attempt in range(attempts):
        process = subprocess.Popen([sys.executable, "-P", "-c", SAVE_FOREVER, path], stdout=subprocess.PIPE, text=True)
        with process:
            assert process.stdout.readline() == "ready\n"
            time.sleep(0.02 + 0.013 * attempt)
            process.send_signal(signal.SIGKILL)
        assert dmq.load(path).theta.tobytes() == result.theta.tobytes()
